//! A command that prints the key, as users of `encryption_key_command` have one.
//!
//! Run by /bin/sh with `%p` replaced by the protected directory, in the caller's environment
//! without the preload library. Its standard error is the caller's; its output is 32 bytes or 64
//! hexadecimal digits.

use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tidelock_cipher::Secret;
use zeroize::Zeroizing;

use super::printed::parse_key;
use super::{PrincipalKey, Purpose};
use crate::error::Error;
use crate::slot::{SlotKind, SlotTerms};

/// How long a command may take.
pub(super) const TIMEOUT: Duration = Duration::from_secs(60);
/// More output is no key.
const MAX_OUTPUT: usize = 128;

/// Opens slots with what a command prints.
#[derive(Clone, Debug)]
pub struct CommandProvider {
    command: String,
    protected: PathBuf,
    timeout: Duration,
}

impl CommandProvider {
    /// Runs `command`; `%p` in it is `protected`.
    #[must_use]
    pub fn new(command: impl Into<String>, protected: impl Into<PathBuf>) -> Self {
        Self { command: command.into(), protected: protected.into(), timeout: TIMEOUT }
    }

    /// The same with another time limit.
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    fn run(&self) -> Result<Zeroizing<Vec<u8>>, Error> {
        let (command, path) = (&self.command, &self.protected);
        Shell { command, path, input: None, timeout: self.timeout }.run()
    }
}

/// One run of a command by /bin/sh.
pub(super) struct Shell<'a> {
    pub(super) command: &'a str,
    /// What `%p` stands for.
    pub(super) path: &'a Path,
    /// For its standard input; short enough for a pipe.
    pub(super) input: Option<&'a [u8]>,
    pub(super) timeout: Duration,
}

impl Shell<'_> {
    /// What it wrote to standard output, up to one byte more than it may.
    pub(super) fn run(&self) -> Result<Zeroizing<Vec<u8>>, Error> {
        let text = expand(self.command, self.path)?;
        let mut child = Command::new("/bin/sh")
            .args(["-c", &text])
            .env_remove("LD_PRELOAD")
            .env_remove("TIDELOCK_AGENT")
            .stdin(if self.input.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .spawn()
            .map_err(Error::io("run", "/bin/sh"))?;
        if let (Some(mut pipe), Some(input)) = (child.stdin.take(), self.input) {
            // A command that does not read it shows by what it makes of it.
            let _ = pipe.write_all(input);
        }
        let result = self.collect(&mut child);
        if result.is_err() {
            let _ = child.kill();
        }
        let status = child.wait().map_err(Error::io("wait for", "/bin/sh"))?;
        let output = result?;
        if !status.success() {
            return Err(Error::CommandFailed {
                command: self.command.into(),
                status: status.to_string(),
            });
        }
        Ok(output)
    }

    fn collect(&self, child: &mut Child) -> Result<Zeroizing<Vec<u8>>, Error> {
        let mut pipe = child.stdout.take().ok_or(Error::Crypto { what: "a pipe" })?;
        let until = Instant::now() + self.timeout;
        let mut output = Zeroizing::new(Vec::with_capacity(MAX_OUTPUT + 1));
        while output.len() <= MAX_OUTPUT && self.wait(&pipe, until)? {
            let mut chunk = Zeroizing::new([0; MAX_OUTPUT + 1]);
            let room = MAX_OUTPUT + 1 - output.len();
            match pipe.read(&mut chunk[..room]).map_err(Error::io("read from", "/bin/sh"))? {
                0 => break,
                count => output.extend_from_slice(&chunk[..count]),
            }
        }
        Ok(output)
    }

    /// True once the pipe has something to say, also that it is closed.
    fn wait(&self, pipe: &ChildStdout, until: Instant) -> Result<bool, Error> {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let mut fds = [PollFd::new(pipe, PollFlags::IN)];
        match poll(&mut fds, Some(&left)) {
            Ok(0) => Err(Error::CommandTimeout {
                command: self.command.into(),
                seconds: self.timeout.as_secs(),
            }),
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::INTR) => self.wait(pipe, until),
            Err(errno) => Err(Error::io("wait for", "/bin/sh")(errno.into())),
        }
    }
}

impl PrincipalKey for CommandProvider {
    fn kind(&self) -> SlotKind {
        SlotKind::Command
    }

    fn describe(&self) -> String {
        format!("command `{}`", self.command)
    }

    fn principal_key(&self, _: &SlotTerms, _: Purpose) -> Result<Secret<32>, Error> {
        let output = self.run()?;
        parse_key(&output).ok_or_else(|| Error::CommandOutput {
            command: self.command.clone(),
            found: output.len(),
        })
    }
}

/// Replaces `%p` and `%%`. A directory whose name means something to a shell is refused: its name
/// may have been chosen by whoever can write the disk.
fn expand(command: &str, protected: &Path) -> Result<String, Error> {
    let refuse = |why| Error::CommandText { command: command.into(), why };
    let mut out = String::with_capacity(command.len());
    let mut rest = command.chars();
    while let Some(character) = rest.next() {
        match (character, character == '%') {
            (_, false) => out.push(character),
            _ => match rest.next() {
                Some('%') => out.push('%'),
                Some('p') => {
                    let safe =
                        |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+@=:,".contains(byte);
                    let path = protected.as_os_str().as_bytes();
                    let path = Some(path).filter(|path| path.iter().all(safe));
                    let path = path.and_then(|path| std::str::from_utf8(path).ok());
                    out.push_str(path.ok_or_else(|| {
                        refuse("the directory's name has characters that a shell would interpret")
                    })?);
                }
                _ => return Err(refuse("`%` is followed by neither `p` nor `%`")),
            },
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::SlotId;
    use tidelock_format::KeyringId;

    fn key_of(command: &str) -> Result<Secret<32>, Error> {
        key_within(Duration::from_secs(120), command)
    }

    fn key_within(limit: Duration, command: &str) -> Result<Secret<32>, Error> {
        let terms = SlotTerms::new(KeyringId([1; 16]), SlotId([2; 16]), SlotKind::Command);
        CommandProvider::new(command, "/data/pg")
            .with_timeout(limit)
            .principal_key(&terms, Purpose::Unlock)
    }

    #[test]
    fn hexadecimal_and_raw_output_are_the_same_key() {
        let hex = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1F";
        let from_hex = key_of(&format!("echo {hex}")).unwrap();
        let script =
            r#"for i in 0 1 2 3; do for j in 0 1 2 3 4 5 6 7; do printf "\\$i$j"; done; done"#;
        let from_raw = key_of(script).unwrap();
        assert_eq!(from_hex.expose(), from_raw.expose());
        assert_eq!(from_hex.expose()[31], 31);
    }

    #[test]
    fn the_directory_takes_the_place_of_its_mark() {
        assert_eq!(
            expand("get %p 100%%", Path::new("/data/pg-15")).unwrap(),
            "get /data/pg-15 100%"
        );
        assert!(matches!(expand("get %q", Path::new("/d")), Err(Error::CommandText { .. })));
        assert!(matches!(expand("get %", Path::new("/d")), Err(Error::CommandText { .. })));
        for dir in ["/d/$(reboot)", "/d/a b", "/d/;x", "/d/'x"] {
            assert!(expand("get %p", Path::new(dir)).is_err(), "{dir}");
            assert!(expand("get", Path::new(dir)).is_ok(), "{dir}");
        }
    }

    #[test]
    fn what_is_no_key_is_refused_with_its_length() {
        assert!(matches!(key_of("echo short"), Err(Error::CommandOutput { found: 6, .. })));
        assert!(matches!(key_of("true"), Err(Error::CommandOutput { found: 0, .. })));
        assert!(matches!(
            key_of("yes"),
            Err(Error::CommandOutput { .. } | Error::CommandFailed { .. })
        ));
    }

    #[test]
    fn a_failing_command_is_refused_even_with_a_key() {
        let hex = "00".repeat(32);
        assert!(matches!(key_of(&format!("echo {hex}; exit 3")), Err(Error::CommandFailed { .. })));
    }

    #[test]
    fn a_command_that_hangs_is_given_up() {
        let given_up = key_within(Duration::from_millis(500), "exec sleep 600");
        assert!(matches!(given_up, Err(Error::CommandTimeout { .. })));
    }
}

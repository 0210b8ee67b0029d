//! One run of a command by /bin/sh, with `%p` replaced by a path.
//!
//! It runs in the caller's environment without the preload library and without the credentials of
//! other providers. Its standard error is the caller's; its output is wiped.

use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tidelock_keyring::Error;
use zeroize::Zeroizing;

use crate::registry::secrets;

/// More output is no key.
const MAX_OUTPUT: usize = 128;

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
        let mut shell = Command::new("/bin/sh");
        // A command is not to have what opens other keys.
        secrets().for_each(|name| {
            shell.env_remove(name);
        });
        let mut child = shell
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
        let until = Instant::now() + self.timeout;
        let collected = self.collect(&mut child, until);
        let ended = match &collected {
            Ok(_) => self.end(&mut child, until),
            Err(_) => Ok(None),
        };
        if !matches!(ended, Ok(Some(_))) {
            let _ = child.kill();
        }
        let status = child.wait().map_err(Error::io("wait for", "/bin/sh"))?;
        let output = collected?;
        ended?;
        if !status.success() {
            return Err(Error::CommandFailed {
                command: program_of(self.command).into(),
                status: status.to_string(),
            });
        }
        Ok(output)
    }

    /// The rest of the time is for its end: it may have closed its output long before.
    fn end(&self, child: &mut Child, until: Instant) -> Result<Option<ExitStatus>, Error> {
        loop {
            let ended = child.try_wait().map_err(Error::io("wait for", "/bin/sh"))?;
            if ended.is_some() {
                return Ok(ended);
            }
            if Instant::now() >= until {
                return Err(self.took_too_long());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn took_too_long(&self) -> Error {
        let seconds = self.timeout.as_secs();
        Error::CommandTimeout { command: program_of(self.command).into(), seconds }
    }

    fn collect(&self, child: &mut Child, until: Instant) -> Result<Zeroizing<Vec<u8>>, Error> {
        let mut pipe = child.stdout.take().ok_or(Error::Crypto { what: "a pipe" })?;
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
            Ok(0) => Err(self.took_too_long()),
            Ok(_) => Ok(true),
            Err(rustix::io::Errno::INTR) => self.wait(pipe, until),
            Err(errno) => Err(Error::io("wait for", "/bin/sh")(errno.into())),
        }
    }
}

/// What a message says of a command, whose text may hold a passphrase: the first word that sets no
/// variable. What is quoted may go on behind a space.
pub(super) fn program_of(command: &str) -> &str {
    for word in command.split_whitespace() {
        if word.contains(['"', '\'', '\\', '`', '(']) {
            return "?";
        }
        if !word.contains('=') {
            return word;
        }
    }
    "?"
}

/// Replaces `%p` and `%%`. A directory whose name means something to a shell is refused: its name
/// may have been chosen by whoever can write the disk.
fn expand(command: &str, protected: &Path) -> Result<String, Error> {
    let refuse = |why| Error::CommandText { command: program_of(command).into(), why };
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

    #[test]
    fn a_message_has_no_more_of_a_command_than_the_program() {
        for (command, program) in [
            ("openssl enc -d -pass pass:tide -in %p", "openssl"),
            (" PASS=tide  /usr/bin/unwrap %p", "/usr/bin/unwrap"),
            ("A=tide", "?"),
            ("PASS=\"a b\" openssl", "?"),
            ("A=1 PASS=a\\ b openssl", "?"),
            ("$(cat key) b", "?"),
            ("", "?"),
        ] {
            assert_eq!(program_of(command), program);
        }
        let secret = "PASS=tide exit 3";
        let (path, timeout) = (Path::new("/d"), Duration::from_secs(60));
        let why = Shell { command: secret, path, input: None, timeout }.run().unwrap_err();
        assert!(!why.to_string().contains("tide") && why.to_string().ends_with(": exit"), "{why}");
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
}

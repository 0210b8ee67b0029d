//! A pair of commands that wraps and unwraps, as EDB's PGDATAKEYWRAPCMD and PGDATAKEYUNWRAPCMD do.
//!
//! ```text
//!   what is wrapped --standard input--> wrap   --file %p--> bytes of the slot
//!   bytes of the slot --file %p--> unwrap --standard output--> what was wrapped
//! ```
//!
//! The file lies in a folder of its own that nobody else can enter, and goes with it. Whether
//! changed bytes show is the commands' affair; a wrong key opens no keyring in any case.

use std::env;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use tidelock_keyring::{Error, Payload, Provider, SlotKind, SlotTerms, Wrapping};
use zeroize::Zeroizing;

use super::shell::{Shell, program_of};
use super::{SLOT, TIMEOUT};

/// A slot takes no more.
const MAX_WRAPPED: u64 = 6 * 1024;

/// Opens slots with a pair of commands.
pub(super) struct CommandPair {
    wrap: String,
    unwrap: String,
    timeout: Duration,
}

impl CommandPair {
    /// Commands for /bin/sh; `%p` in them is a file.
    pub(super) fn new(wrap: &str, unwrap: &str) -> Self {
        Self { wrap: wrap.into(), unwrap: unwrap.into(), timeout: TIMEOUT }
    }

    fn run(
        &self,
        command: &str,
        place: &Folder,
        input: Option<&[u8]>,
    ) -> Result<Zeroizing<Vec<u8>>, Error> {
        if !command.contains("%p") {
            let why = "it does not name the file of the wrapped key (%p)";
            return Err(Error::CommandText { command: program_of(command).into(), why });
        }
        Shell { command, path: &place.file(), input, timeout: self.timeout }.run()
    }

    fn unwrap_bytes(&self, wrapped: &[u8]) -> Result<Payload, Error> {
        let place = Folder::new()?;
        place.write(wrapped)?;
        let output = self.run(&self.unwrap, &place, None)?;
        Payload::from_slice(&output).ok_or_else(|| Error::CommandUnwrapped {
            command: program_of(&self.unwrap).into(),
            found: output.len(),
        })
    }
}

impl Provider for CommandPair {
    fn kind(&self) -> SlotKind {
        SLOT
    }

    fn describe(&self) -> String {
        format!("command `{}`", program_of(&self.unwrap))
    }

    fn wrapping(&self) -> Wrapping {
        Wrapping::Remote
    }

    fn wrap(&self, _: &SlotTerms, payload: &Payload) -> Result<Vec<u8>, Error> {
        let place = Folder::new()?;
        place.write(&[])?;
        self.run(&self.wrap, &place, Some(payload.expose()))?;
        let wrapped = place.read()?;
        let length = u64::try_from(wrapped.len()).unwrap_or(u64::MAX);
        if wrapped.is_empty() || length > MAX_WRAPPED {
            let (command, found) = (program_of(&self.wrap).into(), wrapped.len());
            return Err(Error::CommandWrapped { command, found });
        }
        Ok(wrapped)
    }

    fn unwrap(&self, terms: &SlotTerms, wrapped: &[u8]) -> Result<Payload, Error> {
        if terms.wrapping != Wrapping::Remote {
            return Err(Error::NoSlot { keyring: terms.keyring, kind: SLOT });
        }
        self.unwrap_bytes(wrapped)
    }
}

/// A folder that nobody else can enter, removed with all that is in it.
struct Folder(TempDir);

impl Folder {
    fn new() -> Result<Self, Error> {
        let mut options = tempfile::Builder::new();
        options.prefix("tidelock-").permissions(Permissions::from_mode(0o700));
        options.tempdir().map(Self).map_err(Error::io("make a folder in", env::temp_dir()))
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("wrapped")
    }

    fn write(&self, bytes: &[u8]) -> Result<(), Error> {
        let path = self.file();
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let file = options.open(&path);
        file.and_then(|mut file| file.write_all(bytes)).map_err(Error::io("write", &path))
    }

    /// One byte more than a slot takes, if there is more.
    fn read(&self) -> Result<Vec<u8>, Error> {
        let (path, mut bytes) = (self.file(), Vec::new());
        let file = File::open(&path);
        file.and_then(|file| file.take(MAX_WRAPPED + 1).read_to_end(&mut bytes))
            .map_err(Error::io("read", &path))?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use tidelock_format::{KeyringId, Layout};
    use tidelock_keyring::{Keyring, Profile, SlotId};

    fn terms(wrapping: Wrapping) -> SlotTerms {
        SlotTerms { wrapping, ..SlotTerms::new(KeyringId([1; 16]), SlotId([2; 16]), SLOT) }
    }

    fn pair(wrap: &str, unwrap: &str) -> CommandPair {
        CommandPair { timeout: Duration::from_millis(2000), ..CommandPair::new(wrap, unwrap) }
    }

    /// And unwraps, as whoever makes a slot does.
    fn wrap(pair: &CommandPair) -> Result<Vec<u8>, Error> {
        let payload = Payload::from_slice(&[9; 64]).unwrap();
        let wrapped = pair.wrap(&terms(Wrapping::Remote), &payload)?;
        unwrap(pair, &wrapped)?;
        Ok(wrapped)
    }

    fn unwrap(pair: &CommandPair, wrapped: &[u8]) -> Result<Payload, Error> {
        pair.unwrap(&terms(Wrapping::Remote), wrapped)
    }

    #[test]
    fn openssl_opens_what_it_wrapped_and_not_with_another_passphrase() {
        let home = tempfile::tempdir().unwrap();
        let openssl = |direction: &str, pass: &str| {
            let file = home.path().join(pass);
            fs::write(&file, pass).unwrap();
            let cipher = "openssl enc -aes-256-cbc -pbkdf2 -iter 1000";
            format!("{cipher} {direction} \"%p\" -pass file:{}", file.display())
        };
        let one = pair(&openssl("-e -out", "one"), &openssl("-d -in", "one"));
        let wrapped = wrap(&one).unwrap();
        assert!(wrapped.starts_with(b"Salted__"));
        assert_eq!(unwrap(&one, &wrapped).unwrap().expose(), &[9; 64]);
        let other = pair(&openssl("-e -out", "two"), &openssl("-d -in", "two"));
        assert!(matches!(
            unwrap(&other, &wrapped),
            Err(Error::CommandFailed { .. } | Error::CommandUnwrapped { .. })
        ));
        let direct = one.unwrap(&terms(Wrapping::Direct), &wrapped);
        assert!(matches!(direct, Err(Error::NoSlot { .. })));
    }

    #[test]
    fn commands_that_fail_hang_or_lose_the_key_are_refused() {
        let (take, give) = ("cat > %p", "cat %p");
        assert!(wrap(&pair(take, give)).is_ok());
        let failed = |result| matches!(result, Err(Error::CommandFailed { .. }));
        assert!(failed(wrap(&pair("cat > %p; exit 3", give))));
        assert!(failed(wrap(&pair(take, "cat %p; exit 3"))));
        let slow = |result| matches!(result, Err(Error::CommandTimeout { .. }));
        assert!(slow(wrap(&pair("exec sleep 60 # %p", give))));
        // Its output is closed at once.
        assert!(slow(wrap(&pair("exec sleep 60 > %p", give))));
        assert!(slow(wrap(&pair(take, "exec sleep 60 # %p"))));
        for (nothing, found) in [("cat > /dev/null # %p", 0), ("head -c 9999 /dev/zero > %p", 6145)]
        {
            match wrap(&pair(nothing, give)) {
                Err(Error::CommandWrapped { found: length, .. }) => assert_eq!(length, found),
                other => panic!("{nothing}: {other:?}"),
            }
        }
        for short in ["true %p", "head -c 63 %p", "cat %p %p", "head -c 9999 /dev/zero # %p"] {
            let done = wrap(&pair(take, short));
            let told =
                matches!(done, Err(Error::CommandUnwrapped { .. } | Error::CommandFailed { .. }));
            assert!(told, "{short}: {done:?}");
        }
        let other = pair(take, "head -c 64 /dev/zero # %p");
        let policy = Profile::builtin("generic").unwrap().compile(&[], &[]).unwrap();
        let made = Keyring::create(policy, Layout::DEFAULT, &[&other]);
        assert!(matches!(made, Err(Error::WrapsOnly { why: None, .. })));
        assert!(matches!(wrap(&pair("cat > /dev/null", give)), Err(Error::CommandText { .. })));
    }

    #[test]
    fn the_file_is_private_and_is_gone_afterwards() {
        let home = tempfile::tempdir().unwrap();
        let seen = home.path().join("seen");
        let look = format!(
            "d=$(dirname %p); stat -c %%a $d %p > {0}; echo $d >> {0}; cat > %p",
            seen.display()
        );
        wrap(&pair(&look, "cat %p")).unwrap();
        let seen = fs::read_to_string(seen).unwrap();
        let lines: Vec<_> = seen.lines().collect();
        assert_eq!(lines[..2], ["700", "600"]);
        assert!(!PathBuf::from(lines[2]).exists());
    }
}

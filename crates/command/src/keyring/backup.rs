//! `tidelock keyring backup`, and the copy that `[keyring] copy` asks for after each change.
//!
//! What is copied is opened first: a damaged keyring never takes the place of a good copy.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use tidelock_agent::audit::Event;
use tidelock_contract::control::FOLDER;
use tidelock_keyring::{Keyring, KeyringDir, SealedKeyring};
use tidelock_providers::known;

use super::proof::{Examined, Proof};
use super::{Copies, Copy, MAX, earlier, is_same_filesystem, record};
use crate::console;
use crate::error::{Error, Result};
use crate::folder::{Entry, Folder, lock_within};
use crate::protected::{self, Protected};
use crate::unlock::KeyOptions;

/// How long a command waits for another: a copy may go to a slow disk.
const PATIENCE: Duration = Duration::from_secs(30);

/// Copy the keyring to FILE; it stays wrapped, and opens with the same keys
#[derive(clap::Args)]
pub(crate) struct Backup {
    /// The protected directory
    #[arg(short = 'D', long = "directory", value_name = "DIR", env = "PGDATA")]
    dir: PathBuf,
    /// Where the copy goes: on another disk, or on its way to one. An older copy of this keyring
    /// that is there stays beside it, as FILE.generation-N
    file: PathBuf,
    #[command(flatten)]
    keys: KeyOptions,
}

/// A copy that was written.
pub(crate) struct Copied {
    /// Where.
    pub(crate) path: PathBuf,
    /// Where the older copy is now.
    pub(crate) earlier: Option<PathBuf>,
}

impl Backup {
    pub(super) fn run(&self) -> Result<()> {
        let directory = protected::folder(&self.dir)?;
        let (protected, folder) = Protected::hold(&directory)?;
        let mut opened = None;
        let done = self.copy(&directory, &protected, &folder, &mut opened);
        let keyring = (&protected.keyring, opened.as_ref());
        let said = done.as_ref().map(Clone::clone).map_err(ToString::to_string);
        record(keyring, &protected.path, Event::KeyringBackup, &self.file, &said);
        done.map(drop)
    }

    /// How it was checked, in words.
    fn copy(
        &self,
        directory: &Folder,
        protected: &Protected,
        folder: &KeyringDir,
        opened: &mut Option<Keyring>,
    ) -> Result<String> {
        let (bytes, dir) = (folder.bytes()?, &protected.path);
        let Examined { keyring, proof } = Examined::of(&bytes, dir, dir, &self.keys)?;
        let words = proof.words();
        let mut warning = None;
        match proof {
            Proof::Opened(keyring) => *opened = Some(*keyring),
            Proof::Shape(why) => warning = Some(why),
            Proof::Agent(_) => {}
        }
        let copied = {
            let _alone = alone(directory)?;
            // Somebody may have been asked for a key meanwhile: what is copied now must be what was
            // opened.
            if folder.bytes()? != bytes {
                let (expected, found) = (keyring.generation().0, folder.read()?.generation().0);
                return Err(tidelock_keyring::Error::Changed { expected, found }.into());
            }
            write(directory, &keyring, &bytes, &self.file)?
        };
        console::print(format_args!(
            "keyring {}, generation {}, is copied to {}\nchecked: {words}\n",
            keyring.id(),
            keyring.generation().0,
            copied.path.display()
        ))?;
        if let Some(earlier) = &copied.earlier {
            console::print(format_args!("the older copy is {} now\n", earlier.display()))?;
        }
        if let Some(why) = warning {
            console::warn(
                format!("the keyring was not opened, so damage may be copied: {why}"),
                "have a key at hand: --provider, --recovery-file or --passphrase-fd",
            );
        }
        if is_same_filesystem(dir, &copied.path) {
            console::warn(
                "this copy is on the same file system as the directory: both are lost together",
                "take it to another disk or machine",
            );
        }
        Ok(words)
    }
}

/// The copy that the configuration asks for, of the keyring that was just written here; `opened` is
/// that keyring.
///
/// # Errors
/// As `tidelock keyring backup`.
pub(crate) fn copy_again(opened: &Keyring, dir: &Path, file: &Path) -> Result<Copied> {
    let directory = protected::folder(dir)?;
    let _alone = alone(&directory)?;
    // Read only now: another command may have changed it again.
    let (protected, folder) = Protected::hold(&directory)?;
    let bytes = folder.bytes()?;
    let keyring = SealedKeyring::parse(&bytes).and_then(known)?;
    let done = write(&directory, &keyring, &bytes, file);
    let words = done.as_ref().map(|_| "written by this command".to_owned());
    let words = words.map_err(ToString::to_string);
    let both = (&protected.keyring, Some(opened));
    record(both, &protected.path, Event::KeyringBackup, file, &words);
    done
}

/// No other command copies this keyring until this is dropped: of two, the one that has read the
/// older keyring would write last. Not the keyring's own lock, since a change of the keyring need
/// not wait for the disk of a copy: whoever changes it copies it afterwards, as it is then.
fn alone(directory: &Folder) -> Result<Folder> {
    let folder = directory.entry(FOLDER).open_folder()?;
    match lock_within(&folder, PATIENCE) {
        Ok(()) => Ok(folder),
        Err(Errno::WOULDBLOCK) => Err(Error::refused(
            format!("another command is copying the keyring of {}", directory.path().display()),
            "wait until it has ended, then run this again",
        )),
        Err(errno) => Err(Error::io("lock", folder.path())(errno.into())),
    }
}

fn write(directory: &Folder, keyring: &SealedKeyring, bytes: &[u8], file: &Path) -> Result<Copied> {
    let file = std::path::absolute(file).map_err(Error::io("find", file))?;
    let present = refuse_place(directory.path(), &file, keyring)?;
    let entry = Entry::of(&file)?;
    let is_new = present.is_none();
    let earlier = match present {
        Some((older, found)) if found != bytes => Some(earlier::keep(&entry, &found, &older)?),
        _ => None,
    };
    match is_new {
        // A copy of another keyring that has come meanwhile is not replaced.
        true => {
            entry.create_whole(|new| new.write_all(bytes).map_err(Error::io("write", &file)))?
        }
        false => entry.replace(bytes, 0o600, None)?,
    }
    Copies::record(directory, &Copy::new(&file, keyring.generation()))?;
    Ok(Copied { path: file, earlier })
}

/// The older copy that is there. Inside the directory it is no second copy; over anything but an
/// older copy it would destroy.
fn refuse_place(
    dir: &Path,
    file: &Path,
    keyring: &SealedKeyring,
) -> Result<Option<(SealedKeyring, Vec<u8>)>> {
    let folder = file.parent().unwrap_or(file);
    let folder = fs::canonicalize(folder).map_err(Error::io("find", folder))?;
    if folder.starts_with(dir) {
        return Err(Error::refused(
            format!("{} lies inside the directory whose keyring it would save", file.display()),
            "name a file on another disk",
        ));
    }
    let Some(bytes) = Entry::of(file)?.read(MAX)? else { return Ok(None) };
    match SealedKeyring::parse(&bytes).and_then(known) {
        Ok(there) if there.id() == keyring.id() && there.generation() > keyring.generation() => {
            Err(Error::refused(
                format!(
                    "{} is a newer copy, of generation {}: the keyring of the directory has \
                     generation {} only",
                    file.display(),
                    there.generation().0,
                    keyring.generation().0
                ),
                "was the keyring rolled back? `tidelock keyring restore` brings the newer one back",
            ))
        }
        Ok(there) if there.id() == keyring.id() => Ok(Some((there, bytes))),
        _ => Err(Error::refused(
            format!("{} exists and is not an older copy of this keyring", file.display()),
            "name another file",
        )),
    }
}

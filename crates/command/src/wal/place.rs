//! A directory that WAL comes from or goes to: a protected one, or a plain one.

use std::path::{Path, PathBuf};

use tidelock_contract::control::FOLDER;
use tidelock_contract::{Decision, Policy};
use tidelock_format::{Class, Generation};
use tidelock_keyring::{Conversion, Direction, KEYRING};

use crate::error::{Error, Result};
use crate::folder::Folder;
use crate::protected::{self, Protected, is_protected};
use crate::sealed::{Keys, Wanted};
use crate::server::Server;
use crate::unlock::KeyOptions;
use crate::wal::keys::{self, Unlocked};

/// How bytes lie in a directory.
pub(super) enum Form {
    /// Sealed, as its policy says.
    Sealed(Unlocked),
    /// As they are.
    Plain,
}

/// What the name of a file wants.
#[derive(Clone, Copy)]
pub(super) enum Want<'k> {
    /// Sealed under these keys, in this class.
    Sealed(&'k Keys, Class),
    /// Plain; it may be sealed all the same, if these keys open it.
    Plain(Option<&'k Keys>),
}

impl Want<'_> {
    /// For [`Keys::open`].
    pub(super) const fn header(self) -> Wanted {
        match self {
            Self::Sealed(_, class) => Wanted::File(class),
            Self::Plain(_) => Wanted::Any,
        }
    }
}

/// The data directory of the server that runs the command: where `%p` lies.
pub(super) struct Node {
    /// The protected directory, if there is one.
    pub(super) dir: Option<PathBuf>,
    pub(super) form: Form,
    /// The server that runs there.
    pub(super) server: Option<i32>,
}

impl Node {
    /// The node in which `file` lies, which need not exist.
    ///
    /// # Errors
    /// Its keyring does not open.
    pub(super) fn around(file: &Path) -> Result<Self> {
        let typed = std::path::absolute(file).map_err(Error::io("find", file))?;
        let above = typed.parent().unwrap_or(&typed);
        let real = std::fs::canonicalize(above).map_err(Error::io("find", above))?;
        let found = real.ancestors().chain(above.ancestors()).find(|dir| is_protected(dir));
        // %p is relative to the data directory, in which the server's own programs run.
        let here = std::env::current_dir().ok();
        let server = found.map(Path::to_path_buf).or(here).and_then(|dir| process(&dir));
        let Some(dir) = found else {
            return Ok(Self { dir: None, form: Form::Plain, server });
        };
        let protected = Protected::open(dir)?;
        let unlocked = keys::unlock(&protected, None, server)?;
        Ok(Self { dir: Some(protected.path), form: Form::Sealed(unlocked), server })
    }

    /// What the policy wants of `file`.
    pub(super) fn want(&self, file: &Path) -> Want<'_> {
        let (Form::Sealed(Unlocked { keys, policy, .. }), Some(dir)) = (&self.form, &self.dir)
        else {
            return Want::Plain(None);
        };
        want(keys, policy, dir, file)
    }

    /// Its keys, if it has any.
    pub(super) const fn keys(&self) -> Option<&Keys> {
        match &self.form {
            Form::Sealed(unlocked) => Some(&unlocked.keys),
            Form::Plain => None,
        }
    }
}

fn want<'k>(keys: &'k Keys, policy: &Policy, dir: &Path, file: &Path) -> Want<'k> {
    use std::os::unix::ffi::OsStrExt;
    let typed = std::path::absolute(file).ok();
    let folder = typed.as_deref().and_then(Path::parent);
    let real = folder.and_then(|folder| std::fs::canonicalize(folder).ok());
    let real = real.zip(file.file_name()).map(|(folder, name)| folder.join(name));
    let relative = |path: PathBuf| path.strip_prefix(dir).ok().map(Path::to_path_buf);
    // What lies behind a link has the link's name.
    let name = [real, typed].into_iter().flatten().find_map(relative);
    let name =
        name.unwrap_or_else(|| Path::new("pg_wal").join(file.file_name().unwrap_or_default()));
    match policy.decide(name.as_os_str().as_bytes()) {
        Decision::Seal(class) => Want::Sealed(keys, class),
        Decision::Plain(_) => Want::Plain(Some(keys)),
    }
}

fn process(dir: &Path) -> Option<i32> {
    match Server::on(dir) {
        Server::Running { pid, .. } => i32::try_from(pid).ok(),
        Server::Stopped | Server::Unseen => None,
    }
}

/// The directory of an archive.
pub(super) struct Archive {
    pub(super) folder: Folder,
    pub(super) form: Form,
    /// That of its keyring; none in a plain one.
    generation: Option<Generation>,
}

/// Which archive.
#[derive(clap::Args)]
pub(super) struct ArchiveOptions {
    /// The archive: a protected directory that `tidelock init --profile wal-archive` made
    #[arg(value_name = "ARCHIVE")]
    dir: PathBuf,
    /// ARCHIVE is an ordinary directory, and what lies there is plain
    #[arg(long, conflicts_with = "through")]
    plain: bool,
    /// Carry sealed streams by this command instead of files in ARCHIVE, whose keys are used; it
    /// finds the name in $TIDELOCK_WAL
    #[arg(long, value_name = "COMMAND")]
    pub(super) through: Option<String>,
    #[command(flatten)]
    keys: KeyOptions,
}

impl Archive {
    /// Opens it; `server` is the process that an agent is to stay for.
    ///
    /// # Errors
    /// It is no archive, or its keyring does not open.
    pub(super) fn open(options: &ArchiveOptions, server: Option<i32>) -> Result<Self> {
        let dir = &options.dir;
        let folder = protected::folder(dir).map_err(|why| missing(dir, why))?;
        match (has_keyring(&folder)?, options.plain) {
            (true, false) => {
                let protected = Protected::open(folder.path())?;
                let generation = Some(protected.keyring.generation());
                let unlocked = keys::unlock(&protected, Some(&options.keys), server)?;
                Ok(Self { folder, form: Form::Sealed(unlocked), generation })
            }
            (false, true) => Ok(Self { folder, form: Form::Plain, generation: None }),
            (true, true) => Err(Error::refused(
                format!("{} is a protected directory", dir.display()),
                "leave --plain out",
            )),
            // An archive that is not mounted must not be taken for an empty one.
            (false, false) => Err(Error::refused(
                format!("{} has no keyring: it is no archive, or it is not mounted", dir.display()),
                format!(
                    "mount it; `tidelock init {} --profile wal-archive` makes one; a plain archive \
                     is named with --plain",
                    dir.display()
                ),
            )),
        }
    }

    /// A conversion of the archive that has begun since it was opened may not have seen a new file.
    ///
    /// # Errors
    /// It has begun, or has ended already.
    pub(super) fn refuse_converted(&self, options: &ArchiveOptions) -> Result<()> {
        let there = has_keyring(&self.folder)?;
        if there != self.generation.is_some() {
            return Err(Error::refused(
                format!("{} was converted meanwhile", self.folder.path().display()),
                "the server tries again; give `wal put` and `wal get` --plain for a plain archive, \
                 and leave it out for a sealed one",
            ));
        }
        let Some(generation) = self.generation else { return Ok(()) };
        let protected = Protected::open(self.folder.path())?;
        if protected.keyring.generation() == generation {
            return Ok(());
        }
        let unlocked = keys::unlock(&protected, Some(&options.keys), None)?;
        refuse_decrypted(&unlocked, &protected.path)
    }

    /// A new file would be sealed although the archive is being made plain.
    ///
    /// # Errors
    /// A conversion has begun that does not end in a sealed archive.
    pub(super) fn refuse_decrypted(&self) -> Result<()> {
        match &self.form {
            Form::Sealed(unlocked) => refuse_decrypted(unlocked, self.folder.path()),
            Form::Plain => Ok(()),
        }
    }

    /// What its policy wants of the file of this name; in a plain archive a sealed file may be one
    /// of the node's, which `cp` has put there.
    pub(super) fn want<'k>(&'k self, name: &str, node: Option<&'k Keys>) -> Want<'k> {
        match &self.form {
            Form::Plain => Want::Plain(node),
            Form::Sealed(Unlocked { keys, policy, .. }) => match policy.decide(name.as_bytes()) {
                Decision::Seal(class) => Want::Sealed(keys, class),
                Decision::Plain(_) => Want::Plain(Some(keys)),
            },
        }
    }

    /// The keys that streams are sealed under.
    ///
    /// # Errors
    /// [`Error::Usage`] for a plain archive.
    pub(super) fn stream_keys(&self) -> Result<&Keys> {
        match &self.form {
            Form::Sealed(unlocked) => Ok(&unlocked.keys),
            Form::Plain => Err(Error::usage(
                "a plain archive has no keys for streams",
                "name a protected directory; only its keyring is used",
            )),
        }
    }
}

/// Other conversions leave a file that is sealed as it is; `key destroy` finds the old key in it.
fn refuse_decrypted(unlocked: &Unlocked, directory: &Path) -> Result<()> {
    match unlocked.conversion {
        Some(Conversion { direction: direction @ Direction::Decrypt, .. }) => {
            let directory = directory.to_path_buf();
            Err(tidelock_agent::Error::HalfConverted { directory, direction }.into())
        }
        _ => Ok(()),
    }
}

fn has_keyring(folder: &Folder) -> Result<bool> {
    match folder.entry(FOLDER).open_folder() {
        Ok(control) => control.entry(KEYRING).exists(),
        Err(why) if why.is_not_found() => Ok(false),
        Err(why) => Err(why),
    }
}

fn missing(dir: &Path, why: Error) -> Error {
    match why {
        Error::Refused { what, .. } => Error::refused(
            what,
            format!("mount it, or make it: tidelock init {} --profile wal-archive", dir.display()),
        ),
        other => other,
    }
}

//! `tidelock keyring restore`: a copy in the place of a lost, damaged or older keyring.
//!
//! The copy is opened first. What it replaces stays beside it. An older copy than the files need is
//! the last resort: it is opened and sealed again as a newer generation.

use std::path::{Path, PathBuf};

use tidelock_agent::audit::Event;
use tidelock_format::{Generation, KeyringId};
use tidelock_keyring::{Keyring, KeyringDir, SealedKeyring};

use super::proof::{Examined, Proof};
use super::{read, record};
use crate::console;
use crate::error::{Error, Result};
use crate::folder::Folder;
use crate::protected::{self, Protected};
use crate::running::{Found, Programs};
use crate::unlock::KeyOptions;
use crate::walk;

/// Replace a lost, damaged or older keyring by the one in a backup; what was there stays beside it
#[derive(clap::Args)]
pub(crate) struct Restore {
    /// The protected directory
    #[arg(short = 'D', long = "directory", value_name = "DIR", env = "PGDATA")]
    dir: PathBuf,
    /// What `tidelock keyring backup` wrote
    file: PathBuf,
    /// Replace a keyring although no key is at hand that opens the backup: it may be damaged
    #[arg(long)]
    unopened: bool,
    /// The last resort, where every newer copy is lost: take a backup that is older than the files.
    /// It must be opened, and is sealed again as a newer generation
    #[arg(long, conflicts_with = "unopened")]
    older: bool,
    #[command(flatten)]
    keys: KeyOptions,
}

/// What the headers of the files say of the keyring that they need.
#[derive(Default)]
struct Need {
    /// The newest generation that sealed one of them.
    newest: Option<Generation>,
    /// One that was sealed under another keyring, whose data key the backup has not.
    foreign: Option<(PathBuf, String)>,
    /// Those whose data key the opened backup has not, and the first of them.
    without_key: usize,
    first: Option<PathBuf>,
    /// What could not be looked at, and the first of it: an empty mount point, for example.
    unseen: usize,
    first_unseen: Option<PathBuf>,
}

/// The keyring that is there.
struct Present {
    bytes: Vec<u8>,
    /// It was found to open with no key.
    broken: bool,
    /// Its generation, if that can be believed.
    generation: Option<Generation>,
}

impl Restore {
    pub(super) fn run(&self) -> Result<()> {
        let directory = protected::folder(&self.dir)?;
        let bytes = read(&self.file)?;
        let examined = Examined::of(&bytes, &self.file, directory.path(), &self.keys);
        let examined = examined.inspect_err(|why| {
            // In the log of the keyring that it did not replace: a damaged one names no log.
            if let Ok(present) = Protected::open(directory.path()) {
                let (both, failed) = ((&present.keyring, None), Err(why.to_string()));
                record(both, &present.path, Event::KeyringRestore, &self.file, &failed);
            }
        })?;
        let words = examined.proof.words();
        let Examined { keyring, proof } = examined;
        let (mut opened, why_not) = match proof {
            Proof::Opened(opened) => (Some(*opened), None),
            Proof::Agent(_) => (None, None),
            Proof::Shape(why) => (None, Some(why)),
        };
        let done = self.replace(&directory, &bytes, &keyring, (&mut opened, why_not), words);
        let both = (&keyring, opened.as_ref());
        let said = done.as_ref().map(Clone::clone).map_err(ToString::to_string);
        record(both, directory.path(), Event::KeyringRestore, &self.file, &said);
        done.map(drop)
    }

    /// How it was checked, in words.
    fn replace(
        &self,
        directory: &Folder,
        bytes: &[u8],
        backup: &SealedKeyring,
        (opened, why_not): (&mut Option<Keyring>, Option<Error>),
        words: String,
    ) -> Result<String> {
        let dir = directory.path();
        let need = Need::of(dir, backup, opened.as_ref());
        if let (Some((path, keyring)), None) = (&need.foreign, need.newest) {
            return Err(Error::refused(
                format!(
                    "{} holds keyring {}, but {} was sealed under keyring {keyring}",
                    self.file.display(),
                    backup.id(),
                    path.display()
                ),
                "restore the backup of that keyring",
            ));
        }
        let present = Present::of(directory, backup, need.newest.is_some() && opened.is_some());
        let loses = present.as_ref().is_some_and(|present| present.bytes != bytes);
        if let (true, false, Some(why)) = (loses, self.unopened, &why_not) {
            return Err(Error::refused(
                format!(
                    "{} was not opened, and would replace a keyring: {why}",
                    self.file.display()
                ),
                "have a key at hand (--provider, --recovery-file, --passphrase-fd), or say \
                 --unopened",
            ));
        }
        let here = present.as_ref().and_then(|present| present.generation);
        // Of which keyring an announcement is, only the keyring and the files here show.
        let ours = need.newest.is_some() || here.is_some();
        let seen = need.newest.max(here).max(told(directory, backup.id(), ours));
        let older = self.must_be_newer(backup, seen, &need)?;
        let folder = match KeyringDir::create_in(directory, dir) {
            // A keyring is there; whether it may be replaced is decided below.
            Err(tidelock_keyring::Error::KeyringExists { .. }) => {
                KeyringDir::open_in(directory, dir)?
            }
            made => made?,
        };
        let broken = present.filter(|present| present.broken).map(|present| present.bytes);
        let (kept, generation) = match (older, opened) {
            (Some(seen), Some(keyring)) => {
                refuse_while_programs_run(dir, keyring)?;
                let kept = folder.restore_older(keyring, seen, broken.as_deref());
                (kept, keyring.generation())
            }
            (Some(_), None) => {
                return Err(Error::refused(
                    format!("{} is older than the files, and was not opened", self.file.display()),
                    "have a key of it at hand: --provider, --recovery-file, --passphrase-fd",
                ));
            }
            (None, _) => (folder.restore(bytes, broken.as_deref()), backup.generation()),
        };
        let kept = kept.map_err(|why| match why {
            tidelock_keyring::Error::KeyringExists { .. } => Error::refused(
                format!("{} has a keyring of another id", dir.display()),
                "a keyring is restored only over itself; `tidelock inspect FILE` shows the id",
            ),
            other => other.into(),
        })?;
        // What another keyring has announced here is not this one's. What this one has is never
        // lowered: an agent may have told programs of a later one meanwhile.
        if !ours || folder.announced().is_ok_and(|announced| announced < generation) {
            let _ = folder.announce(generation);
        }
        console::print(format_args!(
            "keyring {}, generation {}, is restored to {}\nchecked: {words}\n",
            backup.id(),
            generation.0,
            dir.display()
        ))?;
        if let Some(kept) = &kept {
            console::print(format_args!("what was there is {} now\n", kept.display()))?;
        }
        self.warn(backup, generation, why_not, &need);
        Ok(words)
    }

    /// The newest generation that was seen, if the backup is older than that, or has not all keys.
    ///
    /// # Errors
    /// [`Error::BadKey`] unless the last resort is asked for.
    fn must_be_newer(
        &self,
        backup: &SealedKeyring,
        seen: Option<Generation>,
        need: &Need,
    ) -> Result<Option<Generation>> {
        let seen = seen.unwrap_or(backup.generation());
        let what = match &need.first {
            _ if seen > backup.generation() => {
                let have = backup.generation();
                tidelock_keyring::Error::RolledBack { have, seen }.to_string()
            }
            Some(first) => format!("it has not the data key of {}", first.display()),
            None => return Ok(None),
        };
        if self.older {
            return Ok(Some(seen));
        }
        Err(Error::BadKey {
            what: format!("{} is too old: {what}", self.file.display()),
            hint: "restore the newest copy; if every newer one is lost, `--older` takes this one"
                .to_owned(),
        })
    }

    fn warn(
        &self,
        backup: &SealedKeyring,
        generation: Generation,
        why_not: Option<Error>,
        need: &Need,
    ) {
        if let Some(why) = why_not {
            console::warn(
                format!("the backup was not opened, and may be damaged: {why}"),
                "`tidelock key check -D DIR` before the server starts",
            );
        }
        if generation > backup.generation() {
            console::warn(
                format!(
                    "generation {} came back as generation {}: slots that were removed since open \
                     it again, slots that were added since are gone",
                    backup.generation().0,
                    generation.0
                ),
                "`tidelock key list -D DIR` shows them; write a new copy with `tidelock keyring \
                 backup`",
            );
        }
        if let Some(first) = &need.first_unseen {
            console::warn(
                format!(
                    "{} could not be looked at, {} first; files there may need a newer keyring",
                    console::count(need.unseen, "place"),
                    first.display()
                ),
                "mount what the links lead to, and run `tidelock verify -D DIR`",
            );
        }
        if let Some(first) = &need.first {
            console::warn(
                format!(
                    "{} cannot be read without a data key that the backup has not, {} first",
                    console::count(need.without_key, "file"),
                    first.display()
                ),
                "keep every copy of the keyring that is found; `tidelock verify -D DIR` names the \
                 files",
            );
        }
    }
}

/// The newest generation that running programs were told of, or that an agent of this keyring
/// holds: no file need have been sealed under it. Announcements count if they are `ours`.
fn told(directory: &Folder, id: KeyringId, ours: bool) -> Option<Generation> {
    let dir = directory.path();
    let announced = || KeyringDir::open_in(directory, dir).and_then(|it| it.announced()).ok();
    let agents = Found::all(dir, id, &Programs::of(dir));
    let held = agents.iter().filter_map(|found| match found {
        Found::Answers(agent) => Some(Generation(agent.generation)),
        _ => None,
    });
    held.max().max(ours.then(announced).flatten())
}

impl Need {
    fn of(dir: &Path, backup: &SealedKeyring, opened: Option<&Keyring>) -> Self {
        let mut need = Self::default();
        let files = walk::files(dir, &mut |path, _| {
            need.unseen += 1;
            need.first_unseen.get_or_insert(path.to_path_buf());
        });
        for file in files {
            let Ok(probe) = walk::probe(&file.path) else { continue };
            let copies: Vec<_> = probe.ranked().map(|copy| copy.outline).collect();
            let Some(likely) = copies.first() else { continue };
            // Files of other keyrings may have come here by hand: they are theirs.
            let Some(own) = copies.iter().find(|copy| copy.keyring == backup.id()) else {
                need.foreign.get_or_insert((file.path, likely.keyring.to_string()));
                continue;
            };
            need.newest = need.newest.max(Some(own.generation));
            // One good copy is enough to read a file.
            let has = |keyring: &Keyring| {
                copies.iter().any(|copy| keyring.data_key(copy.data_key).is_some())
            };
            if !opened.is_none_or(has) {
                need.without_key += 1;
                need.first.get_or_insert(file.path);
            }
        }
        need
    }
}

impl Present {
    /// `sure`: the backup is opened, and files of this directory are its own. Then a keyring of
    /// another id that opens with nothing is a damaged one.
    fn of(directory: &Folder, backup: &SealedKeyring, sure: bool) -> Option<Self> {
        let dir = directory.path();
        let bytes = KeyringDir::open_in(directory, dir).and_then(|folder| folder.bytes()).ok()?;
        Some(match Examined::unattended(&bytes, dir, dir) {
            Ok(Examined { keyring, proof: Proof::Shape(_) }) => {
                let ours = keyring.id() == backup.id();
                let broken = sure && !ours;
                Self { bytes, broken, generation: ours.then(|| keyring.generation()) }
            }
            Ok(Examined { keyring, .. }) => {
                let ours = keyring.id() == backup.id();
                let generation = ours.then(|| keyring.generation());
                Self { bytes, broken: false, generation }
            }
            Err(_) => Self { bytes, broken: true, generation: None },
        })
    }
}

/// They may hold the only data keys that the lost keyring had.
///
/// # Errors
/// [`Error::Refused`].
fn refuse_while_programs_run(dir: &Path, keyring: &Keyring) -> Result<()> {
    let programs = Programs::of(dir);
    let agents = Found::all(dir, keyring.id(), &programs);
    let newer = agents.iter().find_map(|found| match found {
        Found::Answers(agent) if agent.generation > keyring.generation().0 => {
            Some(format!("agent, process {}", agent.pid))
        }
        Found::Silent(agent) => Some(agent.to_string()),
        _ => None,
    });
    let running = programs.heads().first().map(|pid| format!("process {pid}"));
    match newer.or(running) {
        None => Ok(()),
        Some(who) => Err(Error::refused(
            format!("running programs may have newer keys than the backup ({who})"),
            "dump what they can still read, then stop them",
        )),
    }
}

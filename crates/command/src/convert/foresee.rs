//! What a conversion would do, and whether it would refuse: asked while the server still runs.
//!
//! Changes nothing. The files change meanwhile, so the conversion itself looks again.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::{Args as _, FromArgMatches as _};
use procfs::process::Process;
use tidelock_keyring::{Direction, Keyring, KeyringDir};

use super::begin::{growth, keep, refuse_sealed};
use super::scan::{Scan, scan};
use super::{BATCH, Decrypt, Encrypt, How, estimate, instance, rights};
use crate::error::{Error, Result};
use crate::init::NewDirectory;
use crate::owner::Owner;
use crate::protected::Protected;
use crate::rollback;
use crate::unlock::KeyOptions;

/// What would be done.
pub(crate) struct Foreseen {
    pub(crate) files: usize,
    pub(crate) bytes: u64,
    /// Bytes that must be free, on all file systems together.
    pub(crate) needs: u64,
    /// Bytes that the files take more at the end.
    pub(crate) growth: u64,
    /// There is no room for several files at once.
    pub(crate) one_by_one: bool,
    /// Folders outside that links lead to, converted too.
    pub(crate) places: Vec<PathBuf>,
}

/// A decryption whose keyring has opened.
pub(crate) struct Opened {
    pub(crate) foreseen: Foreseen,
    keyring: Keyring,
    /// The keyring as it lies there, if nothing is half done.
    unchanged: Option<Vec<u8>>,
    kept: PathBuf,
}

impl Foreseen {
    fn of(scan: &Scan, growth: u64, how: &How) -> Result<Self> {
        let (jobs, needs) = estimate::room(scan, growth, how.jobs(), BATCH)?;
        Ok(Self {
            files: scan.items.len(),
            bytes: scan.bytes(),
            needs: needs.iter().map(|(_, bytes)| bytes).sum(),
            growth: 0,
            one_by_one: jobs < how.jobs(),
            places: scan.places().into_iter().map(|(_, target)| target.clone()).collect(),
        })
    }
}

impl Encrypt {
    /// The command `tidelock` with these words.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub(crate) fn typed<'w>(words: impl Iterator<Item = &'w OsStr>) -> Result<Self> {
        let command = Self::augment_args(clap::Command::new("encrypt"));
        let typed = command.try_get_matches_from(words).and_then(|it| Self::from_arg_matches(&it));
        typed.map_err(|why| Error::usage(why.to_string(), "see `tidelock encrypt --help`"))
    }

    /// Looks through the files, and tries the provider. What is `spared` is the server, which is
    /// stopped before.
    ///
    /// # Errors
    /// What the conversion would refuse; a provider that does not wrap, or does not open what it
    /// has wrapped.
    pub(crate) fn foresee(&self, spared: &dyn Fn(&Process) -> bool) -> Result<Foreseen> {
        let place = NewDirectory::with_data(&self.dir)?;
        let (policy, layout) = self.making.check(&place, self.profile_for(&place.path)?)?;
        rights::check(&place.path, &policy, place.owner, Direction::Encrypt)?;
        instance::refuse_working(&place.path, &policy, spared)?;
        let scan = scan(&place.path, &policy, self.how.leave_links)?;
        refuse_sealed(&scan)?;
        scan.refuse_protected_below(&place.path)?;
        scan.refuse_everybodys(&place.path)?;
        scan.refuse_too_many_links(&place.path, &policy)?;
        let mut foreseen = Foreseen::of(&scan, growth(Direction::Encrypt, layout), &self.how)?;
        // What follows the written part of a header is a hole.
        foreseen.growth = layout.written_header().get() * scan.items.len() as u64 + scan.stays();
        self.making.try_provider(&place, policy, layout)?;
        Ok(foreseen)
    }
}

impl Decrypt {
    /// The command `tidelock decrypt` on `dir`.
    pub(crate) fn new(dir: &Path, keep: Option<&Path>, keys: KeyOptions, how: How) -> Self {
        Self { dir: dir.into(), keep_keyring: keep.map(Path::to_path_buf), keys, how }
    }

    /// Opens the keyring, and looks through the files.
    ///
    /// # Errors
    /// The keyring does not open, or was rolled back; its copy would lie in the directory; what the
    /// conversion would refuse.
    pub(crate) fn foresee(&self) -> Result<Opened> {
        let found = Protected::open(&self.dir)?;
        let kept = self.kept(&found)?;
        let keyring = self.keys.unlock(&found)?;
        // The conversion refuses it, when the server is down already.
        rollback::refuse(&found)?;
        rights::check(&found.path, keyring.policy(), Owner::of(&found.path)?, Direction::Decrypt)?;
        let half_done = keyring.conversion().is_some();
        let mut scan = scan(&found.path, keyring.policy(), self.how.leave_links)?;
        scan.refuse_sealed_at_plain(&keyring)?;
        scan.refuse_unopened(&keyring, Direction::Decrypt)?;
        scan.refuse_shared(&found)?;
        if half_done {
            scan.mark_done(Direction::Decrypt, &keyring);
        }
        let growth = growth(Direction::Decrypt, keyring.layout());
        let foreseen = Foreseen::of(&scan, growth, &self.how)?;
        let unchanged = match half_done {
            true => None,
            false => Some(KeyringDir::open(&found.path)?.bytes()?),
        };
        Ok(Opened { foreseen, keyring, unchanged, kept })
    }
}

impl Opened {
    /// An interrupted conversion goes on, or is turned round.
    pub(crate) fn is_half_done(&self) -> bool {
        self.unchanged.is_none()
    }

    /// Leaves the copy of the keyring, as the conversion will once more.
    ///
    /// # Errors
    /// It cannot be written, or another keyring's copy is there.
    pub(crate) fn keep(&mut self) -> Result<()> {
        // The same bytes as the conversion's: what is sealed once more is another copy, and each
        // copy that is replaced stays beside.
        if let Some(unchanged) = &self.unchanged {
            return keep(unchanged, &self.kept);
        }
        self.keyring.set_conversion(None);
        keep(&self.keyring.seal()?, &self.kept)
    }
}

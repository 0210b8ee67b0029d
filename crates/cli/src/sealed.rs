//! A sealed file without the library: header, key, plain bytes.
//!
//! Written against format and cipher alone, so that it is a second opinion on what the engine wrote.
//! One file at a time: its key is installed in the one slot that is used here.

use std::fs::File;
use std::io;

use tidelock_cipher::{KeySlot, UnitCipher, UnlockError, open_units};
use tidelock_ffi::Xts;
use tidelock_ffi::datakeys::{self, Source};
use tidelock_format::{
    BLOCK, DataKeyId, DiskSize, Generation, Header, HeaderError, KeyringId, Layout, PROBE_LEN,
    PlainOffset, PlainSize, Probe, UNIT, UnverifiedHeader,
};
use tidelock_keys::Keyring;

use crate::error::{Error, Result};
use crate::walk::read_at;

static XTS: Xts = Xts::new();
const SLOT: KeySlot = KeySlot(0);
/// The library's place for the keys of the one directory that a command opens.
const ROOT: u8 = 0;

/// The data keys of one keyring, for reading and making sealed files.
pub(crate) struct Keys {
    /// The keyring.
    pub(crate) id: KeyringId,
    /// Where the units of its files begin.
    pub(crate) layout: Layout,
    generation: Generation,
}

/// A sealed file whose header is good and whose key is installed.
pub(crate) struct SealedFile {
    /// Its header; the MAC is right.
    pub(crate) header: Header,
    file: File,
}

/// What a file is.
pub(crate) enum Content {
    /// No header yet, and no bytes.
    Empty,
    /// A sealed file.
    Sealed(SealedFile),
}

/// Why a file is no good sealed file.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// A plain file.
    #[error("it is not sealed")]
    NotSealed,
    /// No usable header.
    #[error("its header is damaged: {0}")]
    Header(HeaderError),
    /// A header of zeros before data.
    #[error("its header is lost: all zeros before {behind} bytes of data")]
    LostHeader {
        /// How many.
        behind: u64,
    },
    /// The MAC is wrong.
    #[error("its header was changed: the MAC does not match")]
    Mac,
    /// Another keyring's.
    #[error("the keyring does not hold its data key {data_key} (sealed under keyring {keyring})")]
    UnknownKey {
        /// The data key.
        data_key: DataKeyId,
        /// The keyring that had it.
        keyring: KeyringId,
    },
    /// A keyring that was put back.
    #[error(
        "it was sealed under generation {seen} of the keyring, which is older now: rolled back"
    )]
    RolledBack {
        /// The file's generation.
        seen: u64,
    },
    /// The system gives no randomness.
    #[error("the system gives no random bytes")]
    NoRandomness,
    /// It cannot be read.
    #[error("it cannot be read: {0}")]
    Read(#[from] io::Error),
}

impl Keys {
    /// Takes the data keys of a keyring. Once in a process.
    ///
    /// # Errors
    /// [`Error::Refused`] if there are more than the library holds.
    pub(crate) fn install(keyring: &Keyring) -> Result<Self> {
        let (id, generation) = (keyring.id(), keyring.generation());
        let source = Source { keyring: id, generation, current: keyring.current().id };
        let keys = keyring.data_keys().iter();
        if !datakeys::take(ROOT, source, keys.map(|key| (key.id, key.key.secret().expose()))) {
            return Err(Error::refused(
                "the keyring has more data keys than can be held at once",
                "rekey the oldest files, then remove the keys that are no longer used",
            ));
        }
        Ok(Self { id, layout: keyring.layout(), generation })
    }

    /// Opens a sealed file.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn open(&self, file: File) -> std::result::Result<Content, Fault> {
        let mut first = [0u8; PROBE_LEN];
        let count = read_at(&file, &mut first, 0)?;
        let first = first.get(..count).unwrap_or_default();
        if Probe::is_blank(first) {
            let size = file.metadata()?.len();
            return match size.saturating_sub(self.layout.data_offset().into()) {
                0 => Ok(Content::Empty),
                behind => Err(Fault::LostHeader { behind }),
            };
        }
        let header = self.admit(&Probe::parse(first))?;
        Ok(Content::Sealed(SealedFile { header, file }))
    }

    /// Installs the key of the better copy whose MAC is right.
    ///
    /// # Errors
    /// [`Fault`], of the first copy.
    pub(crate) fn admit(&self, probe: &Probe) -> std::result::Result<Header, Fault> {
        let mut fault = None;
        for found in probe.candidates().into_iter().flatten() {
            match self.check(found) {
                Ok(()) => return Ok(found.header.clone()),
                Err(why) => fault = fault.or(Some(why)),
            }
        }
        Err(fault.unwrap_or_else(|| match probe.error() {
            HeaderError::Magic | HeaderError::Truncated => Fault::NotSealed,
            other => Fault::Header(other),
        }))
    }

    /// Checks one copy and installs its key.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn check(&self, found: &UnverifiedHeader) -> std::result::Result<(), Fault> {
        let header = &found.header;
        XTS.unlock(SLOT, found).map_err(|why| match why {
            UnlockError::Header(why) => Fault::Header(why),
            UnlockError::UnknownKey
                if header.keyring == self.id && header.generation > self.generation =>
            {
                Fault::RolledBack { seen: header.generation.0 }
            }
            UnlockError::UnknownKey => {
                Fault::UnknownKey { data_key: header.data_key, keyring: header.keyring }
            }
            UnlockError::RolledBack => Fault::RolledBack { seen: header.generation.0 },
            UnlockError::NoRandomness => Fault::NoRandomness,
            _ => Fault::Mac,
        })
    }

    /// A fresh header of class `class` under the current data key; its key is installed.
    ///
    /// # Errors
    /// [`Fault::NoRandomness`].
    pub(crate) fn create(
        &self,
        class: tidelock_format::Class,
    ) -> std::result::Result<(Vec<u8>, Header), Fault> {
        let region = XTS.create(ROOT, class, self.layout).map_err(|_| Fault::NoRandomness)?;
        let header = self.admit(&Probe::parse(region.as_bytes()))?;
        let mut bytes = region.as_bytes().to_vec();
        bytes.resize(usize::try_from(self.layout.data_offset()).unwrap_or(bytes.len()), 0);
        Ok((bytes, header))
    }
}

impl SealedFile {
    /// Its size on the disk, now.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn disk_size(&self) -> io::Result<DiskSize> {
        Ok(DiskSize(self.file.metadata()?.len()))
    }

    /// Its plain size, now.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn plain_size(&self) -> io::Result<PlainSize> {
        Ok(self.disk_size()?.plain(self.header.layout))
    }

    /// Reads sealed bytes from plain offset `at`.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn read_sealed(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        read_at(&self.file, into, at + u64::from(self.header.layout.data_offset()))
    }

    /// Opens sealed bytes in place that were read from plain offset `at`, the start of a unit.
    pub(crate) fn open_bytes(&self, at: u64, bytes: &mut [u8]) {
        open_body(&self.header, at, bytes);
    }

    /// Reads plain bytes from `at`, the start of a unit, up to `size`; fewer than asked for at the end.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn read_plain(
        &self,
        at: u64,
        size: PlainSize,
        into: &mut [u8],
    ) -> io::Result<usize> {
        let left = size.block_end().saturating_sub(at);
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(into.len());
        let Some(into) = into.get_mut(..wanted) else { return Ok(0) };
        let count = self.read_sealed(at, into)?;
        let whole = count - count % usize::try_from(BLOCK).unwrap_or(1);
        let Some(bytes) = into.get_mut(..whole) else { return Ok(0) };
        self.open_bytes(at, bytes);
        let plain_left = usize::try_from(size.0.saturating_sub(at)).unwrap_or(usize::MAX);
        Ok(whole.min(plain_left))
    }
}

/// Opens sealed bytes in place that begin at plain offset `at`, the start of a unit; the key of the file
/// is installed.
pub(crate) fn open_body(header: &Header, at: u64, bytes: &mut [u8]) {
    debug_assert!(at.is_multiple_of(UNIT), "units are opened from their start");
    if let Some(at) = PlainOffset::new(at) {
        open_units(&XTS, SLOT, at.unit(), header.zero_rule, bytes);
    }
}

/// Seals whole blocks that begin at plain offset `at`, the start of a unit, and puts `zeros` bytes of
/// zeros behind them; the key of the file is installed.
pub(crate) fn seal_body(at: u64, plain: &[u8], zeros: usize) -> Vec<u8> {
    debug_assert!(at.is_multiple_of(UNIT), "units are sealed from their start");
    let mut out = vec![0; plain.len() + zeros];
    if let Some(at) = PlainOffset::new(at) {
        tidelock_cipher::seal_units(&XTS, SLOT, at.unit(), plain, zeros, &mut out);
    }
    out
}

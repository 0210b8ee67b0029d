//! A sealed file without the library: header, key, plain bytes.
//!
//! Written against format and cipher alone, so that it is a second opinion on what the engine
//! wrote. One file at a time for each slot of the cipher: its key is installed there.

use std::fs::File;
use std::io;

use tidelock_cipher::{KeySlot, Proven, StreamMac, UnitCipher, UnlockError, is_zero, open_units};
use tidelock_contract::wire::Grant;
use tidelock_ffi::{Cells, HOST, Xts};
use tidelock_format::{
    BLOCK, BLOCK_USIZE, Class, DataKeyId, DiskSize, END_LEN, EndMark, Form, Front, Header,
    HeaderCopy, HeaderError, HeaderRegion, KeyringId, Layout, Outline, PROBE_LEN, PlainOffset,
    PlainSize, Probe, Start, UNIT, UNIT_USIZE, WHOLE, WHOLE_AT,
};
use tidelock_keyring::Keyring;
use tidelock_runtime::{HeldKeyring, Source, header_under};

use crate::error::{Error, Result};
use crate::walk::read_at;

static XTS: Xts = Xts::over(&CELLS);
static CELLS: Cells = Cells::EMPTY;
/// For those who look at one file at a time.
const SLOT: KeySlot = KeySlot(0);

/// The data keys of one keyring, for reading and making sealed files.
pub(crate) struct Keys {
    /// The keyring.
    pub(crate) id: KeyringId,
    /// Where the units of its files begin.
    pub(crate) layout: Layout,
    held: &'static HeldKeyring,
}

/// A sealed file whose header is good and whose key is installed.
pub(crate) struct SealedFile {
    /// Its header; the MAC is right.
    pub(crate) header: Header,
    file: File,
    slot: KeySlot,
}

/// What a file is.
pub(crate) enum Content {
    /// No header yet, and no bytes.
    Empty,
    /// All zeros, header and data: made longer before a crash and never written. Reads as zeros.
    Blank(PlainSize),
    /// A sealed file, or a stream: its header tells.
    Sealed(SealedFile),
}

/// Over what a sealed file has a MAC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mac {
    /// Its header alone: the body may change.
    Header,
    /// All of it.
    WholeFile,
}

impl Mac {
    /// As a header says.
    pub(crate) fn of(header: &Header) -> Self {
        match header.compatible & WHOLE != 0 && header.form == Form::File {
            true => Self::WholeFile,
            false => Self::Header,
        }
    }
}

/// What the place of a file wants of its header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    /// A file of a protected directory, whose name has this class.
    File(Class),
    /// A copy of a file, or a stream: its header says all there is to know.
    Any,
}

/// What is wrong with the end of a file. Its bytes are what the library shows all the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum EndFault {
    /// A size that none maps to.
    #[error("no plain size has the disk size {0}: its end is cut or damaged")]
    Size(u64),
    /// Something where only zeros are.
    #[error("the bytes behind its last block are not zero: its end is cut or changed")]
    Tail,
    /// Likewise within the last block.
    #[error("its last block is not padded with zeros: changed, or cut")]
    Padding,
    /// Of a whole file: other bytes than it was made with.
    #[error(
        "it was changed or damaged since it was written: the MAC over its bytes does not match"
    )]
    Whole,
}

impl EndFault {
    /// For programs; stays the same.
    pub(crate) const fn kind(self) -> &'static str {
        match self {
            Self::Size(_) => "size",
            Self::Tail => "tail",
            Self::Padding => "padding",
            Self::Whole => "whole",
        }
    }
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
    /// Two good copies of one sequence number.
    #[error("its two headers have the same sequence number and different contents")]
    TwoHeaders,
    /// Header and keyring disagree.
    #[error("its data begins at {found}, the keyring says {must}")]
    Layout {
        /// What the header says.
        found: u32,
        /// What the keyring says.
        must: u32,
    },
    /// Header and policy disagree.
    #[error("its header has the class {found}, its name the class {must}")]
    Policy {
        /// What the header says.
        found: &'static str,
        /// What the policy says.
        must: &'static str,
    },
    /// A stream where a file must be.
    #[error("it is a sealed stream, which servers cannot read")]
    Stream,
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
    /// Takes the data keys of a keyring; again after it got more of them.
    ///
    /// # Errors
    /// [`Error::Refused`] if there are more than the library holds.
    pub(crate) fn install(keyring: &Keyring) -> Result<Self> {
        let (id, generation) = (keyring.id(), keyring.generation());
        let source = Source { keyring: id, generation, current: keyring.current().id };
        let keys = keyring.data_keys().iter();
        let keys = keys.map(|key| (key.id, key.key.secret().expose()));
        Self::hold(source, keyring.layout(), keys)
    }

    /// Takes the data keys that an agent gave.
    ///
    /// # Errors
    /// As [`Keys::install`].
    pub(crate) fn of_grant(grant: &Grant) -> Result<Self> {
        let Grant { keyring, generation, current, .. } = *grant;
        let keys = grant.keys.iter().map(|key| (key.id, key.key.secret().expose()));
        Self::hold(Source { keyring, generation, current }, grant.layout, keys)
    }

    fn hold<'k>(
        source: Source,
        layout: Layout,
        keys: impl Iterator<Item = (DataKeyId, &'k [u8; 32])>,
    ) -> Result<Self> {
        let held = tidelock_runtime::take(&HOST, source, keys).ok_or_else(|| {
            Error::refused(
                "the keyring has more data keys than can be held at once",
                "rekey the oldest files, then remove the keys that are no longer used",
            )
        })?;
        Ok(Self { id: source.keyring, layout, held })
    }

    /// Is this the header of a file that would get the same keys today?
    pub(crate) fn is_current(&self, header: &Header) -> bool {
        let current = self.held.current().map(|(keyring, data_key, _)| (keyring, data_key));
        current == Some((header.keyring, header.data_key))
    }

    /// Opens a sealed file, as the library would in a place that wants this of it.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn open(&self, file: File, wanted: Wanted) -> std::result::Result<Content, Fault> {
        self.open_in(SLOT, file, wanted)
    }

    /// As [`Keys::open`]; its key is installed in this slot.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn open_in(
        &self,
        slot: KeySlot,
        file: File,
        wanted: Wanted,
    ) -> std::result::Result<Content, Fault> {
        let mut first = [0u8; PROBE_LEN];
        let count = read_at(&file, &mut first, 0)?;
        let first = first.get(..count).unwrap_or_default();
        let size = DiskSize(file.metadata()?.len());
        match Start::of(first, size, self.layout) {
            Start::Empty => return Ok(Content::Empty),
            Start::Blank { behind } if self.is_zero_behind(&file)? => {
                let plain = size.plain(self.layout);
                return Ok(if behind == 0 { Content::Empty } else { Content::Blank(plain) });
            }
            Start::Blank { behind } => return Err(Fault::LostHeader { behind }),
            Start::Header => {}
        }
        let header = self.admit_in(slot, first, wanted)?;
        Ok(Content::Sealed(SealedFile { header, file, slot }))
    }

    fn is_zero_behind(&self, file: &File) -> io::Result<bool> {
        let mut chunk = vec![0u8; 64 * UNIT_USIZE];
        let mut at = self.layout.start().get();
        loop {
            let count = read_at(file, &mut chunk, at)?;
            if count == 0 {
                return Ok(true);
            }
            if !is_zero(chunk.get(..count).unwrap_or_default()) {
                return Ok(false);
            }
            at += count as u64;
        }
    }

    /// The header in the first bytes of a file; its key is installed.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn admit(&self, first: &[u8], wanted: Wanted) -> std::result::Result<Header, Fault> {
        self.admit_in(SLOT, first, wanted)
    }

    fn admit_in(
        &self,
        slot: KeySlot,
        first: &[u8],
        wanted: Wanted,
    ) -> std::result::Result<Header, Fault> {
        let explain = |why| fault(why, first);
        let proven: Proven = XTS.choose(first).map_err(explain)?;
        let header = proven.header();
        let found = header.class.name();
        match wanted {
            Wanted::File(_) if header.form == Form::Stream => return Err(Fault::Stream),
            _ if !header.agrees(self.layout, header.zero_rule) => {
                let (found, must) = (header.layout.data_offset(), self.layout.data_offset());
                return Err(Fault::Layout { found, must });
            }
            Wanted::File(class) if !header.agrees(self.layout, class.zero_rule()) => {
                return Err(Fault::Policy { found, must: class.name() });
            }
            _ => {}
        }
        XTS.unlock(slot, &proven).map_err(explain)?;
        Ok(header.clone())
    }

    /// Checks one copy by itself.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn check(&self, copy: &HeaderCopy) -> std::result::Result<(), Fault> {
        XTS.choose(&copy.bytes).map(drop).map_err(|why| fault(why, &copy.bytes))
    }

    /// A fresh header of a file of class bytes under the current data key, and all bytes up to the
    /// data offset; its key is installed.
    ///
    /// # Errors
    /// [`Fault::NoRandomness`].
    pub(crate) fn create_file(&self) -> std::result::Result<(Vec<u8>, Header), Fault> {
        self.create_in(SLOT, Class::Bytes, Front::Copy)
    }

    /// As [`Keys::create_file`], of any class; its key is installed in this slot.
    ///
    /// # Errors
    /// [`Fault::NoRandomness`].
    pub(crate) fn create_in(
        &self,
        slot: KeySlot,
        class: Class,
        front: Front,
    ) -> std::result::Result<(Vec<u8>, Header), Fault> {
        let region = header_under(self.held, class, self.layout)
            .map_err(|_| Fault::NoRandomness)?
            .with_front(front);
        let header = self.admit_in(slot, region.as_bytes(), Wanted::Any)?;
        Ok((self.region(region.as_bytes()), header))
    }

    /// As [`Keys::create_file`], of a stream.
    ///
    /// # Errors
    /// [`Fault::NoRandomness`].
    pub(crate) fn create_stream(&self) -> std::result::Result<(Vec<u8>, Header), Fault> {
        // A file key and a stream's MAC key come from one nonce; each stream has its own.
        let (_, mut header) = self.create_file()?;
        header.form = Form::Stream;
        self.sign(SLOT, &header)
    }

    /// As [`Keys::create_in`], of a file that gets a mark with a MAC over all of it.
    ///
    /// # Errors
    /// [`Fault::NoRandomness`].
    pub(crate) fn create_whole_in(
        &self,
        slot: KeySlot,
        class: Class,
    ) -> std::result::Result<(Vec<u8>, Header), Fault> {
        let (_, mut header) = self.create_in(slot, class, Front::Copy)?;
        header.compatible |= WHOLE;
        self.sign(slot, &header)
    }

    /// A fresh header that was changed, and all bytes up to the data offset.
    fn sign(
        &self,
        slot: KeySlot,
        header: &Header,
    ) -> std::result::Result<(Vec<u8>, Header), Fault> {
        let signed = header.signed_bytes();
        let mac =
            tidelock_runtime::header_mac(header.data_key, &signed).ok_or(Fault::NoRandomness)?;
        let region = self.region(HeaderRegion::both(&signed, &mac).as_bytes());
        let header = self.admit_in(slot, &region, Wanted::Any)?;
        Ok((region, header))
    }

    fn region(&self, copies: &[u8]) -> Vec<u8> {
        let mut bytes = copies.to_vec();
        bytes.resize(usize::try_from(self.layout.data_offset()).unwrap_or(bytes.len()), 0);
        bytes
    }
}

/// The MAC over a whole file while it is read, and the mark that it must lead to.
pub(crate) struct Whole {
    mac: StreamMac,
    /// None if there is no mark where one must be.
    mark: Option<EndMark>,
}

impl Whole {
    /// Counts the next sealed bytes of its body.
    pub(crate) fn update(&mut self, sealed: &[u8]) {
        self.mac.update(sealed);
    }

    /// Whether all that was counted is what the file was made with.
    pub(crate) fn check(self, plain: PlainSize) -> std::result::Result<(), EndFault> {
        match self.mark {
            Some(mark) => self.mac.check(plain, &mark).map_err(|_| EndFault::Whole),
            None => Err(EndFault::Whole),
        }
    }
}

/// The MAC of the stream with this header, at its beginning.
pub(crate) fn stream_mac(header: &Header) -> Option<StreamMac> {
    tidelock_runtime::stream_mac(header)
}

/// The MAC of the whole file with this header, at its beginning; none if it is no whole file.
pub(crate) fn whole_mac(header: &Header) -> Option<StreamMac> {
    match Mac::of(header) {
        Mac::WholeFile => tidelock_runtime::stream_mac(header),
        Mac::Header => None,
    }
}

fn fault(why: UnlockError, first: &[u8]) -> Fault {
    // Of a key or generation that is not here, the newest copy speaks.
    let probe = Probe::parse(first);
    let newest = probe.copies().max_by_key(|copy| copy.outline.sequence);
    match (why, newest.map(|copy| copy.outline)) {
        (UnlockError::Header(HeaderError::Magic), _) => Fault::NotSealed,
        (UnlockError::Header(why), _) => Fault::Header(why),
        (UnlockError::UnknownKey, Some(Outline { data_key, keyring, .. })) => {
            Fault::UnknownKey { data_key, keyring }
        }
        (UnlockError::RolledBack, Some(newest)) => Fault::RolledBack { seen: newest.generation.0 },
        (UnlockError::NoRandomness, _) => Fault::NoRandomness,
        (UnlockError::TwoHeaders, _) => Fault::TwoHeaders,
        _ => Fault::Mac,
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

    /// What is wrong with its end, now.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn end(&self) -> io::Result<Vec<EndFault>> {
        let size = self.disk_size()?;
        let layout = self.header.layout;
        let plain = size.plain(layout);
        if !size.is_canonical(layout) {
            return Ok(vec![EndFault::Size(size.0)]);
        }
        if plain.is_whole_blocks() {
            return Ok(Vec::new());
        }
        let unit = (plain.0 - 1) / UNIT * UNIT;
        let mut last = vec![0u8; UNIT_USIZE + BLOCK_USIZE];
        let count = self.read_sealed(unit, &mut last)?;
        let within = |at: u64| usize::try_from(at - unit).unwrap_or(count).min(count);
        let found = last.get_mut(..count).unwrap_or_default();
        let (body, tail) = found.split_at_mut(within(plain.block_end()));
        let mut faults = Vec::new();
        if !is_zero(tail) {
            faults.push(EndFault::Tail);
        }
        if body.len().is_multiple_of(BLOCK_USIZE) && !body.is_empty() {
            self.open_bytes(unit, body);
        }
        if !is_zero(body.get(within(plain.0)..).unwrap_or_default()) {
            faults.push(EndFault::Padding);
        }
        Ok(faults)
    }

    /// Whether a whole file has the bytes that it was made with; reads all of it.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn check_whole(&self) -> io::Result<std::result::Result<(), EndFault>> {
        let Some(mut whole) = self.whole()? else { return Ok(Ok(())) };
        let mut chunk = vec![0u8; 64 * UNIT_USIZE];
        let mut at = 0;
        loop {
            let count = self.read_sealed(at, &mut chunk)?;
            if count == 0 {
                return Ok(whole.check(self.plain_size()?));
            }
            whole.update(chunk.get(..count).unwrap_or_default());
            at += count as u64;
        }
    }

    /// The MAC over its header, if it is a whole file; its body is still to be counted.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn whole(&self) -> io::Result<Option<Whole>> {
        let Some(mac) = whole_mac(&self.header) else { return Ok(None) };
        let mut head = [0u8; WHOLE_AT + END_LEN];
        let count = read_at(&self.file, &mut head, 0)?;
        let (copies, mark) = head.split_at(WHOLE_AT.min(count));
        let mark = mark.first_chunk().and_then(EndMark::parse);
        let mut whole = Whole { mac, mark };
        whole.update(copies);
        Ok(Some(whole))
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
        open_body_in(self.slot, &self.header, at, bytes);
    }

    /// Its bytes as the kernel has them.
    pub(crate) const fn file(&self) -> &File {
        &self.file
    }

    /// Reads plain bytes from `at`, the start of a unit, up to `size`; fewer than asked for at the
    /// end.
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

/// Opens sealed bytes in place that begin at plain offset `at`, the start of a unit; the key of the
/// file is installed.
pub(crate) fn open_body(header: &Header, at: u64, bytes: &mut [u8]) {
    open_body_in(SLOT, header, at, bytes);
}

fn open_body_in(slot: KeySlot, header: &Header, at: u64, bytes: &mut [u8]) {
    debug_assert!(at.is_multiple_of(UNIT), "units are opened from their start");
    if let Some(at) = PlainOffset::new(at) {
        open_units(&XTS, slot, at.unit(), header.zero_rule, bytes);
    }
}

/// Seals whole blocks that begin at plain offset `at`, the start of a unit, and puts `zeros` bytes
/// of zeros behind them; the key of the file is installed.
pub(crate) fn seal_body(at: u64, plain: &[u8], zeros: usize) -> Vec<u8> {
    let mut out = vec![0; plain.len() + zeros];
    seal_body_in(SLOT, at, plain, zeros, &mut out);
    out
}

/// As [`seal_body`], into `out`, which is as long as what is written there; the key of the file is
/// installed in this slot.
pub(crate) fn seal_body_in(slot: KeySlot, at: u64, plain: &[u8], zeros: usize, out: &mut [u8]) {
    debug_assert!(at.is_multiple_of(UNIT), "units are sealed from their start");
    let sealed = PlainOffset::new(at)
        .and_then(|at| tidelock_cipher::seal_units(&XTS, slot, at.unit(), plain, zeros, out));
    assert!(sealed.is_some(), "there is room for what is sealed, at a place that a file can have");
}

//! The plain bytes of a file, whichever form it has, and the same bytes in the other form.
//!
//! Whole units from their start, holes left out: what is a hole in one form is one in the other.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use tidelock_cipher::KeySlot;
use tidelock_format::{BLOCK_USIZE, Header, PlainSize, UNIT, UNIT_USIZE, WHOLE_AT};

use crate::sealed::{self, Mac, SealedFile, whole_mac};
use crate::walk::read_at;

/// Where plain bytes come from.
pub(super) enum Source {
    /// A plain file of this size.
    Plain(File, PlainSize),
    /// A sealed one.
    Sealed(SealedFile, PlainSize),
    /// Zeros, header and data: it was made longer before a crash and never written.
    Zeros(PlainSize),
}

/// Where they go to: a new, empty file.
pub(super) enum Target {
    /// As they are.
    Plain(File),
    /// Sealed, behind these bytes of the header.
    Sealed {
        /// The file.
        file: File,
        /// The written part of the header.
        head: Vec<u8>,
        /// Where the file's key is installed.
        slot: KeySlot,
        /// The header, with the layout of the file.
        header: Header,
    },
}

impl Source {
    pub(super) const fn size(&self) -> PlainSize {
        match self {
            Self::Plain(_, size) | Self::Sealed(_, size) | Self::Zeros(size) => *size,
        }
    }

    /// Over what it has a MAC, or gets one: what is not sealed yet gets the usual one.
    pub(super) fn mac(&self) -> Mac {
        match self {
            Self::Sealed(file, _) => Mac::of(&file.header),
            Self::Plain(..) | Self::Zeros(_) => Mac::Header,
        }
    }

    /// Reads plain bytes from `at`, the start of a unit, until `into` is full or the file ends.
    pub(super) fn read(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(file, size) => {
                let left = usize::try_from(size.0.saturating_sub(at)).unwrap_or(usize::MAX);
                let wanted = left.min(into.len());
                read_at(file, into.get_mut(..wanted).unwrap_or_default(), at)
            }
            Self::Sealed(file, size) => file.read_plain(at, *size, into),
            Self::Zeros(_) => Ok(0),
        }
    }

    /// The next range of whole units from `at` on, the start of a unit, in which there may be data;
    /// `None` if only a hole follows.
    ///
    /// The unit at the end of a file counts as data where the size cuts a block: how many bytes of
    /// it count is told by what is written there.
    pub(super) fn data(&self, at: u64) -> io::Result<Option<Range<u64>>> {
        let (file, start, size) = match self {
            Self::Plain(file, size) => (file, 0, *size),
            Self::Sealed(file, size) => (file.file(), file.header.layout.start().get(), *size),
            Self::Zeros(size) => return Ok(last_unit(*size).filter(|last| last.start >= at)),
        };
        let end = size.block_end();
        if at >= end {
            return Ok(None);
        }
        let first = match seek(file, SeekFrom::Data(at + start)) {
            Ok(found) => found.saturating_sub(start).max(at),
            Err(Errno::NXIO) => end,
            // A file system that does not know holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some(at..end)),
            Err(errno) => return Err(errno.into()),
        };
        if first >= end {
            return Ok(last_unit(size).filter(|last| last.start >= at));
        }
        let behind = seek(file, SeekFrom::Hole(first + start))?.saturating_sub(start);
        let from = first / UNIT * UNIT;
        let to = behind.next_multiple_of(UNIT);
        // What the last unit lacks is not worth another range.
        let to = if last_unit(size).is_some_and(|last| to >= last.start) { end } else { to };
        Ok(Some(from..to.min(end)))
    }
}

/// If the header says that a MAC over the whole file stands behind it: reads what was written, and
/// puts the MAC there.
fn mark_whole(file: &File, head: &[u8], header: &Header, size: PlainSize) -> io::Result<()> {
    let Some(mut mac) = whole_mac(header) else { return Ok(()) };
    mac.update(head.get(..WHOLE_AT).unwrap_or(head));
    let mut chunk = vec![0u8; 64 * UNIT_USIZE];
    let mut at = header.layout.start().get();
    loop {
        let count = read_at(file, &mut chunk, at)?;
        if count == 0 {
            return file.write_all_at(&mac.end(size).to_bytes(), WHOLE_AT as u64);
        }
        mac.update(chunk.get(..count).unwrap_or_default());
        at += count as u64;
    }
}

/// The last unit of a file whose end cuts a block.
fn last_unit(size: PlainSize) -> Option<Range<u64>> {
    (!size.is_whole_blocks()).then(|| (size.0 - 1) / UNIT * UNIT..size.block_end())
}

impl Target {
    /// Writes plain bytes that belong at `at`, the start of a unit. `room` is behind them in
    /// `plain`: they are padded there to whole blocks. `out` is scratch memory.
    ///
    /// Only the last bytes of a file may be no whole blocks.
    pub(super) fn write(
        &self,
        at: u64,
        plain: &mut [u8],
        count: usize,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let Self::Sealed { file, head, slot, header } = self else {
            return self.file().write_all_at(plain.get(..count).unwrap_or_default(), at);
        };
        let whole = count.next_multiple_of(BLOCK_USIZE);
        plain.get_mut(count..whole).unwrap_or_default().fill(0);
        let tail = count % BLOCK_USIZE;
        if at == 0 {
            file.write_all_at(head, 0)?;
        }
        out.resize(whole + tail, 0);
        sealed::seal_body_in(*slot, at, plain.get(..whole).unwrap_or_default(), tail, out);
        file.write_all_at(out, at + header.layout.start().get())
    }

    /// Has the system begin to write these plain bytes to the disk, in whichever form.
    pub(super) fn begin_writeback(&self, plain: Range<u64>) {
        let start = match self {
            Self::Plain(_) => 0,
            Self::Sealed { header, .. } => header.layout.start().get(),
        };
        let len = plain.end - plain.start;
        tidelock_ffi::begin_writeback(self.file().as_fd(), plain.start + start, len);
    }

    /// Sets the size, once all data is written; `headed` says that the first unit was.
    pub(super) fn finish(&self, size: PlainSize, headed: bool) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.set_len(size.0),
            Self::Sealed { file, head, header, .. } => {
                if !headed {
                    file.write_all_at(head, 0)?;
                }
                file.set_len(size.on_disk(header.layout).0)?;
                mark_whole(file, head, header, size)
            }
        }
    }

    pub(super) const fn file(&self) -> &File {
        match self {
            Self::Plain(file) | Self::Sealed { file, .. } => file,
        }
    }
}

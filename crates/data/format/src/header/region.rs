//! The header's place on the disk: two copies at fixed offsets, zeros up to the data offset.

use super::fields::{COPY_LEN, Header, HeaderCopy, HeaderError, MAC_LEN, SIGNED_LEN};
use super::front::Front;
use crate::place::Layout;
use crate::size::DiskSize;

/// Where the second copy begins: the next 512-byte sector.
pub const SECOND_COPY_AT: usize = 512;
/// How many bytes of a file must be read to see both copies.
pub const PROBE_LEN: usize = SECOND_COPY_AT + COPY_LEN;

/// The compatible feature flag of a whole file: at [`WHOLE_AT`] lies an end mark with a MAC over
/// its header copies and its body, as they were when the file was made.
pub const WHOLE: u64 = 1;
/// Where the end mark of a whole file lies: behind the copies.
pub const WHOLE_AT: usize = PROBE_LEN;

/// Both copies as one write of [`PROBE_LEN`] bytes; the rest of the data offset is zeros.
#[derive(Clone)]
pub struct HeaderRegion([u8; PROBE_LEN]);

impl HeaderRegion {
    /// Both copies alike, as a new file has them.
    #[must_use]
    pub fn both(signed: &[u8; SIGNED_LEN], mac: &[u8; MAC_LEN]) -> Self {
        let mut copy = [0u8; COPY_LEN];
        let (head, tail) = copy.split_at_mut(SIGNED_LEN);
        head.copy_from_slice(signed);
        tail.copy_from_slice(mac);
        Self::of_copy(&copy)
    }

    /// This copy, twice.
    #[must_use]
    pub fn of_copy(copy: &[u8; COPY_LEN]) -> Self {
        let mut region = [0u8; PROBE_LEN];
        for at in [0, SECOND_COPY_AT] {
            if let Some(place) = region.get_mut(at..at + COPY_LEN) {
                place.copy_from_slice(copy);
            }
        }
        Self(region)
    }

    /// With this at offset 0.
    #[must_use]
    pub fn with_front(mut self, front: Front) -> Self {
        if let (Some(bytes), Some(place)) = (front.bytes(), self.0.first_chunk_mut()) {
            *place = bytes;
        }
        self
    }

    /// The bytes, for the kernel.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; PROBE_LEN] {
        &self.0
    }
}

/// How a file of sealed bytes begins. The one answer for everybody who opens one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// No header yet, and no data.
    Empty,
    /// All zeros where the header would be, and this many bytes behind it: a file that was made
    /// longer before a crash and never written if they are zeros too, else a lost header.
    Blank {
        /// Bytes from the data offset on.
        behind: u64,
    },
    /// Something that must be a header.
    Header,
}

impl Start {
    /// Of the first [`PROBE_LEN`] bytes of a file (fewer if it is shorter) and its size.
    #[must_use]
    pub fn of(first: &[u8], size: DiskSize, layout: Layout) -> Self {
        if !Probe::is_blank(first) {
            return Self::Header;
        }
        match size.0.saturating_sub(layout.start().get()) {
            0 => Self::Empty,
            behind => Self::Blank { behind },
        }
    }
}

/// What the first bytes of a file hold: each copy, or why there is none.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The copy at offset 0.
    pub first: Result<HeaderCopy, HeaderError>,
    /// The copy in the next sector.
    pub second: Result<HeaderCopy, HeaderError>,
}

impl Probe {
    /// Reads both copies from the first bytes of a file; `bytes` may be shorter than [`PROBE_LEN`].
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let copy = |at| HeaderCopy::parse(bytes.get(at..).unwrap_or(&[]));
        Self { first: copy(0), second: copy(SECOND_COPY_AT) }
    }

    /// True if no copy was ever written, or all were lost: what was read is zero, apart from what
    /// a [`Front`] puts there.
    #[must_use]
    pub fn is_blank(bytes: &[u8]) -> bool {
        Front::skip(bytes).iter().all(|&byte| byte == 0)
    }

    /// The copies that begin with the magic.
    pub fn copies(&self) -> impl Iterator<Item = &HeaderCopy> {
        self.first.iter().chain(&self.second)
    }

    /// The copies that begin with the magic, the likelier one first: that with the higher sequence;
    /// of two alike, one whose fields version 1 has, since the other must be damaged.
    pub fn ranked(&self) -> impl Iterator<Item = &HeaderCopy> {
        let (first, second) = (self.first.as_ref().ok(), self.second.as_ref().ok());
        let rank = |copy: &HeaderCopy| (copy.outline.sequence, copy.fields.is_ok());
        let turned = first.zip(second).is_some_and(|(first, second)| rank(second) > rank(first));
        let both = if turned { [second, first] } else { [first, second] };
        both.into_iter().flatten()
    }

    /// The header by which somebody without keys may go: the fields of the likelier copy, if
    /// version 1 has them. Which copy counts is proven by MACs (`tidelock_cipher::choose`).
    ///
    /// `None` says nothing of whether the file is sealed:
    /// [`looks_sealed`](super::fields::looks_sealed) does.
    #[must_use]
    pub fn likely(&self) -> Option<&Header> {
        self.ranked().next()?.fields.as_ref().ok()
    }

    /// Why there is no header, if no copy begins with the magic: what the first says, unless it is
    /// only zeros.
    #[must_use]
    pub fn error(&self) -> HeaderError {
        match (&self.first, &self.second) {
            (Err(HeaderError::Zero), Err(HeaderError::Magic)) => HeaderError::Magic,
            (Err(first), _) => *first,
            _ => HeaderError::Magic,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fields::looks_sealed;
    use super::*;
    use crate::class::Class;
    use crate::ident::{DataKeyId, Generation, KeyringId, Nonce};

    /// The first bytes of a file, with these bytes flipped.
    fn probe(flipped: &[usize]) -> Probe {
        let ids = (KeyringId([1; 16]), Generation(7));
        let (key, nonce) = (DataKeyId([2; 16]), Nonce([3; 32]));
        let header = Header::new(Class::Bytes, Layout::DEFAULT, ids, key, nonce);
        let mut bytes = *HeaderRegion::both(&header.signed_bytes(), &[0; MAC_LEN]).as_bytes();
        for at in flipped {
            bytes[*at] ^= 255;
        }
        Probe::parse(&bytes)
    }

    #[test]
    fn one_damaged_copy_hides_no_header() {
        let whole = probe(&[]).likely().cloned();
        assert!(whole.is_some());
        // Magic, version, cipher, reserved bytes: of either copy.
        for at in [0, 8, 16, 190] {
            assert_eq!(probe(&[at]).likely().cloned(), whole, "{at}");
            assert_eq!(probe(&[SECOND_COPY_AT + at]).likely().cloned(), whole, "{at}");
            let both = probe(&[at, SECOND_COPY_AT + at]);
            assert_eq!(both.likely(), None, "{at}");
            assert_eq!(both.ranked().count(), if at == 0 { 0 } else { 2 }, "{at}");
        }
    }

    #[test]
    fn a_front_leaves_the_second_copy_and_without_it_the_file_is_blank() {
        let ids = (KeyringId([1; 16]), Generation(7));
        let (key, nonce) = (DataKeyId([2; 16]), Nonce([3; 32]));
        let header = Header::new(Class::Paged, Layout::DEFAULT, ids, key, nonce);
        let both = HeaderRegion::both(&header.signed_bytes(), &[0; MAC_LEN]);
        for front in [Front::Zeros, Front::NewerLog] {
            let region = both.clone().with_front(front);
            let bytes = region.as_bytes();
            assert!(front.is_in(bytes) && !front.is_in(both.as_bytes()));
            assert!(looks_sealed(bytes) && !Probe::is_blank(bytes));
            let probe = Probe::parse(bytes);
            assert!(probe.first.is_err());
            assert_eq!(probe.likely(), Some(&header));
            // What a power cut leaves of the first write, by sectors; and a shorter piece.
            for cut in [512, 256, 32, 7] {
                let torn = bytes.get(..cut).unwrap_or_default();
                assert!(Probe::is_blank(torn) && !looks_sealed(torn), "{front:?} {cut}");
                assert_eq!(Start::of(torn, DiskSize(512), Layout::DEFAULT), Start::Empty);
            }
        }
        let whole = both.clone().with_front(Front::Copy);
        assert_eq!(whole.as_bytes(), both.as_bytes());
    }

    #[test]
    fn a_newer_copy_that_is_not_understood_is_not_skipped_for_the_older() {
        // The lowest byte of the sequence, and the version.
        let newer = probe(&[SECOND_COPY_AT + 48, SECOND_COPY_AT + 8]);
        assert_eq!(newer.likely(), None);
        assert_eq!(newer.ranked().count(), 2);
    }
}

//! The header's place on the disk: two copies at fixed offsets, zeros up to the data offset.

use super::fields::{COPY_LEN, HeaderError, MAC_LEN, SIGNED_LEN, UnverifiedHeader};

/// Where the second copy begins: the next 512-byte sector.
pub const SECOND_COPY_AT: usize = 512;
/// How many bytes of a file must be read to see both copies.
pub const PROBE_LEN: usize = SECOND_COPY_AT + COPY_LEN;

/// Both copies as one write of [`PROBE_LEN`] bytes; the rest of the data offset is zeros.
#[derive(Clone)]
pub struct HeaderRegion([u8; PROBE_LEN]);

impl HeaderRegion {
    /// Both copies alike, as a new file has them.
    #[must_use]
    pub fn both(signed: &[u8; SIGNED_LEN], mac: &[u8; MAC_LEN]) -> Self {
        let mut region = [0u8; PROBE_LEN];
        let mut copy = [0u8; COPY_LEN];
        let (head, tail) = copy.split_at_mut(SIGNED_LEN);
        head.copy_from_slice(signed);
        tail.copy_from_slice(mac);
        for at in [0, SECOND_COPY_AT] {
            if let Some(place) = region.get_mut(at..at + COPY_LEN) {
                place.copy_from_slice(&copy);
            }
        }
        Self(region)
    }

    /// The bytes, for the kernel.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; PROBE_LEN] {
        &self.0
    }
}

/// What the first bytes of a file hold: each copy, or why there is none.
#[derive(Clone, Debug)]
pub struct Probe {
    /// The copy at offset 0.
    pub first: Result<UnverifiedHeader, HeaderError>,
    /// The copy in the next sector.
    pub second: Result<UnverifiedHeader, HeaderError>,
}

impl Probe {
    /// Reads both copies from the first bytes of a file; `bytes` may be shorter than [`PROBE_LEN`].
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let copy = |at| UnverifiedHeader::parse(bytes.get(at..).unwrap_or(&[]));
        Self { first: copy(0), second: copy(SECOND_COPY_AT) }
    }

    /// True if neither copy was ever written, or both were lost: all that was read is zero.
    #[must_use]
    pub fn is_blank(bytes: &[u8]) -> bool {
        bytes.iter().all(|&byte| byte == 0)
    }

    /// The copies with good fields, the one with the higher sequence first.
    #[must_use]
    pub fn candidates(&self) -> [Option<&UnverifiedHeader>; 2] {
        match (self.first.as_ref().ok(), self.second.as_ref().ok()) {
            (Some(a), Some(b)) if b.header.sequence > a.header.sequence => [Some(b), Some(a)],
            (a, b) => [a, b],
        }
    }

    /// Why there is no header, if neither copy has one: what the first says, unless it is only zeros.
    #[must_use]
    pub fn error(&self) -> HeaderError {
        match (&self.first, &self.second) {
            (Err(HeaderError::Zero), Err(other)) | (Err(other), _) => *other,
            _ => HeaderError::Magic,
        }
    }
}

//! The end mark of a sealed stream: what comes behind its body, so that a cut is seen.
//!
//! Layout only; the MAC in it is made and checked in `tidelock_cipher`.

use crate::size::PlainSize;
use crate::wire::Reader;

/// The first bytes of an end mark.
pub const END_MAGIC: [u8; 8] = *b"\x89TDLE\r\n\x1a";
/// The length of an end mark.
pub const END_LEN: usize = 64;
/// The bytes of the mark that the MAC covers, behind all of the stream: those that precede it.
pub const END_SIGNED_LEN: usize = END_LEN - 32;

/// The end of a stream, as it was found; not proven.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndMark {
    /// How many plain bytes the stream has.
    pub plain: PlainSize,
    /// HMAC-SHA-256 over the stream's bytes before it.
    pub mac: [u8; 32],
}

impl EndMark {
    /// What the MAC covers of a mark.
    #[must_use]
    pub fn signed_bytes(plain: PlainSize) -> [u8; END_SIGNED_LEN] {
        let mut out = [0; END_SIGNED_LEN];
        let fields = END_MAGIC.into_iter().chain(plain.0.to_le_bytes());
        out.iter_mut().zip(fields).for_each(|(place, byte)| *place = byte);
        out
    }

    /// The bytes of the mark.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; END_LEN] {
        let mut out = [0; END_LEN];
        let fields = Self::signed_bytes(self.plain).into_iter().chain(self.mac);
        out.iter_mut().zip(fields).for_each(|(place, byte)| *place = byte);
        out
    }

    /// Reads a mark; `None` if these bytes are none.
    #[must_use]
    pub fn parse(bytes: &[u8; END_LEN]) -> Option<Self> {
        let mut from = Reader::new(bytes);
        let magic = from.bytes(END_MAGIC.len()).ok()?;
        let plain = PlainSize(from.u64().ok()?);
        let reserved: [u8; 16] = from.array().ok()?;
        let mac = from.array().ok()?;
        (magic == END_MAGIC && reserved == [0; 16]).then_some(Self { plain, mac })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_mark_survives_and_nothing_else_is_one() {
        let mark = EndMark { plain: PlainSize(4097), mac: [7; 32] };
        let bytes = mark.to_bytes();
        assert_eq!(EndMark::parse(&bytes), Some(mark));
        for at in (0..8).chain(16..32) {
            let mut other = bytes;
            other[at] ^= 1;
            assert_eq!(EndMark::parse(&other), None, "byte {at}");
        }
    }
}

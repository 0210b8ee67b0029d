//! What is being done to all files of a protected directory: sealing them, taking them back, or
//! sealing them under another data key.
//!
//! Kept in the keyring's body, so whoever has the disk can neither begin a conversion nor turn it
//! round. Which files are done is told by the files themselves.

use tidelock_contract::Writer;
use tidelock_format::{Reader, Truncated};

use crate::error::Error;
use crate::slot::now;

const VERSION: u8 = 1;

/// Where the files are on their way to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Direction {
    /// Plain files become sealed ones.
    Encrypt = 1,
    /// Sealed files become plain ones.
    Decrypt = 2,
    /// Sealed files are sealed again, under the current data key.
    Rekey = 3,
}

/// A conversion that has begun and has not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conversion {
    /// Where to.
    pub direction: Direction,
    /// When it was begun, in seconds since 1970.
    pub begun: u64,
    /// A file that begins with zeros is a plain one. Else it is a sealed one that never got a
    /// header: both look alike.
    pub zeros_are_plain: bool,
}

impl Direction {
    /// The command that does it.
    #[must_use]
    pub const fn command(self) -> &'static str {
        match self {
            Self::Encrypt => "encrypt",
            Self::Decrypt => "decrypt",
            Self::Rekey => "rekey",
        }
    }

    /// What half of the files are: "sealed".
    #[must_use]
    pub const fn participle(self) -> &'static str {
        match self {
            Self::Encrypt => "sealed",
            Self::Decrypt => "unsealed",
            Self::Rekey => "rekeyed",
        }
    }
}

impl Conversion {
    /// One that begins now.
    #[must_use]
    pub fn begin(direction: Direction) -> Self {
        let zeros_are_plain = direction == Direction::Encrypt;
        Self { direction, begun: now(), zeros_are_plain }
    }

    pub(crate) fn encode(self) -> Vec<u8> {
        let mut out = Writer::with_capacity(16);
        out.u8(VERSION);
        out.u8(self.direction as u8);
        out.u8(u8::from(self.zeros_are_plain));
        out.bytes(&[0; 5]);
        out.u64(self.begun);
        out.into_bytes().to_vec()
    }

    /// Nothing, if there are no bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Self>, Error> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let short = |_: Truncated| Error::Damaged { what: "its conversion state ends early" };
        let unknown = Error::Damaged { what: "its conversion state is of a later version" };
        let mut from = Reader::new(bytes);
        let (version, direction) = (from.u8().map_err(short)?, from.u8().map_err(short)?);
        let direction = match direction {
            1 => Direction::Encrypt,
            2 => Direction::Decrypt,
            3 => Direction::Rekey,
            _ => return Err(unknown),
        };
        let zeros_are_plain = match from.u8().map_err(short)? {
            0 => false,
            1 => true,
            _ => return Err(unknown),
        };
        let reserved = from.bytes(5).map_err(short)?.iter().any(|byte| *byte != 0);
        let begun = from.u64().map_err(short)?;
        if version != VERSION || reserved || !from.rest().is_empty() {
            return Err(unknown);
        }
        Ok(Some(Self { direction, begun, zeros_are_plain }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_what_was_written_or_refused() {
        for direction in [Direction::Encrypt, Direction::Decrypt, Direction::Rekey] {
            let state = Conversion { direction, begun: 1_700_000_000, zeros_are_plain: true };
            let bytes = state.encode();
            assert_eq!(Conversion::decode(&bytes).unwrap(), Some(state));
            for cut in 1..bytes.len() {
                assert!(Conversion::decode(&bytes[..cut]).is_err(), "{cut}");
            }
            for place in 0..8 {
                let mut other = bytes.clone();
                other[place] ^= 0x40;
                assert!(Conversion::decode(&other).is_err(), "{place}");
            }
        }
        assert_eq!(Conversion::decode(&[]).unwrap(), None);
    }
}

//! The MAC at the end of a stream: over all of its bytes, so that a cut, a change, zeros or another
//! order is seen.

use aws_lc_rs::hmac;
use tidelock_format::{EndMark, Header, PlainSize};

use crate::derive::DataKey;

/// All of a stream's bytes up to here.
pub struct StreamMac(hmac::Context);

/// The stream does not end with the mark that was made for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the MAC at its end does not match its bytes")]
pub struct StreamChanged;

impl StreamMac {
    /// Begins a stream with this header, none of whose bytes are counted yet.
    #[must_use]
    pub fn begin(key: &DataKey, header: &Header) -> Self {
        Self(hmac::Context::with_key(&key.stream_key(header)))
    }

    /// Counts the next bytes of the stream, as they stand on the disk.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The mark of a stream that ends here, after `plain` plain bytes.
    #[must_use]
    pub fn end(mut self, plain: PlainSize) -> EndMark {
        self.0.update(&EndMark::signed_bytes(plain));
        let mut mac = [0; 32];
        mac.copy_from_slice(self.0.sign().as_ref());
        EndMark { plain, mac }
    }

    /// Whether `found` is the mark of the stream that ends here, after `plain` plain bytes.
    ///
    /// # Errors
    /// [`StreamChanged`].
    pub fn check(self, plain: PlainSize, found: &EndMark) -> Result<(), StreamChanged> {
        let mark = self.end(plain);
        let same = aws_lc_rs::constant_time::verify_slices_are_equal(&mark.mac, &found.mac);
        if same.is_ok() && mark.plain == found.plain { Ok(()) } else { Err(StreamChanged) }
    }
}

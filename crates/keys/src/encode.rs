//! Fixed-width little-endian fields, written in order: the other half of
//! [`tidelock_format::Reader`].
//!
//! The buffer is wiped when it is dropped. It is made as large as it will get, since growing leaves
//! a copy behind.

use zeroize::Zeroizing;

/// Writes fields one after another.
pub(crate) struct Writer(Zeroizing<Vec<u8>>);

impl Writer {
    /// Room for this many bytes.
    pub(crate) fn with_capacity(len: usize) -> Self {
        Self(Zeroizing::new(Vec::with_capacity(len)))
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// A count of 16 bits. Callers have checked their limits.
    pub(crate) fn count(&mut self, count: usize) {
        self.u16(
            u16::try_from(count).expect("a list is checked against its limit when it is made"),
        );
    }

    /// A length of 16 bits, then the bytes.
    pub(crate) fn text(&mut self, text: &[u8]) {
        self.count(text.len());
        self.bytes(text);
    }

    /// What was written, no longer wiped.
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        std::mem::take(&mut *self.0)
    }
}

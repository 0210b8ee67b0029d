//! Fixed-width little-endian fields, written in order: the other half of
//! [`tidelock_format::Reader`].
//!
//! The buffer is wiped when it is dropped. It is made as large as it will get, since growing leaves
//! a copy behind.

use zeroize::Zeroizing;

/// Writes fields one after another.
pub struct Writer(Zeroizing<Vec<u8>>);

impl Writer {
    /// Room for this many bytes.
    #[must_use]
    pub fn with_capacity(len: usize) -> Self {
        Self(Zeroizing::new(Vec::with_capacity(len)))
    }

    /// Bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// A byte.
    pub fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    /// Two bytes.
    pub fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    /// Four bytes.
    pub fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    /// Eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    /// A count of 16 bits.
    ///
    /// # Panics
    /// If it is above 65535: callers have checked their limits.
    pub fn count(&mut self, count: usize) {
        self.u16(
            u16::try_from(count).expect("a list is checked against its limit when it is made"),
        );
    }

    /// A length of 16 bits, then the bytes.
    ///
    /// # Panics
    /// As [`Writer::count`].
    pub fn text(&mut self, text: &[u8]) {
        self.count(text.len());
        self.bytes(text);
    }

    /// What was written, no longer wiped.
    #[must_use]
    pub fn into_bytes(mut self) -> Vec<u8> {
        std::mem::take(&mut *self.0)
    }
}

//! Fixed-width little-endian fields, read in order.

/// The bytes ended before the field did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the data ends at byte {at}, {missing} bytes too early")]
pub struct Truncated {
    /// Where the field began.
    pub at: usize,
    /// How many of its bytes are not there.
    pub missing: usize,
}

/// Reads fields one after another; never past the end.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Begins at the first byte of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, at: 0 }
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// [`Truncated`] if fewer are left.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], Truncated> {
        let short = Truncated { at: self.at, missing: len.saturating_sub(self.rest.len()) };
        let (field, rest) = self.rest.split_at_checked(len).ok_or(short)?;
        self.rest = rest;
        self.at += len;
        Ok(field)
    }

    /// The next `N` bytes as an array.
    ///
    /// # Errors
    /// [`Truncated`] if fewer are left.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Truncated> {
        let mut out = [0; N];
        out.copy_from_slice(self.bytes(N)?);
        Ok(out)
    }

    /// A byte.
    ///
    /// # Errors
    /// [`Truncated`] if none is left.
    pub fn u8(&mut self) -> Result<u8, Truncated> {
        self.array().map(|[byte]| byte)
    }

    /// Two bytes.
    ///
    /// # Errors
    /// [`Truncated`] if fewer are left.
    pub fn u16(&mut self) -> Result<u16, Truncated> {
        self.array().map(u16::from_le_bytes)
    }

    /// Four bytes.
    ///
    /// # Errors
    /// [`Truncated`] if fewer are left.
    pub fn u32(&mut self) -> Result<u32, Truncated> {
        self.array().map(u32::from_le_bytes)
    }

    /// Eight bytes.
    ///
    /// # Errors
    /// [`Truncated`] if fewer are left.
    pub fn u64(&mut self) -> Result<u64, Truncated> {
        self.array().map(u64::from_le_bytes)
    }

    /// What has not been read yet.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

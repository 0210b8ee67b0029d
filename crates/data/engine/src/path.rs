//! Paths in fixed memory: no allocation, no limit but PATH_MAX.

use crate::errno::Errno;

/// The longest path the kernel takes, its final zero byte included.
pub(crate) const PATH_MAX: usize = 4096;

/// A path under construction; always followed by a zero byte.
pub struct PathBuffer {
    bytes: [u8; PATH_MAX],
    len: usize,
}

impl Default for PathBuffer {
    fn default() -> Self {
        Self::new()
    }
}

impl PathBuffer {
    /// The empty path.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: [0; PATH_MAX], len: 0 }
    }

    /// The path, without its zero byte.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// The path with its zero byte.
    #[must_use]
    pub fn as_c(&self) -> &[u8] {
        self.bytes.get(..=self.len).unwrap_or_default()
    }

    /// Replaces the path.
    ///
    /// # Errors
    /// ENAMETOOLONG.
    pub fn set(&mut self, path: &[u8]) -> Result<(), Errno> {
        self.len = 0;
        self.append(path)
    }

    /// Lets the kernel fill in a path.
    pub(crate) fn fill(
        &mut self,
        with: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    ) -> Result<(), Errno> {
        let room = self.bytes.get_mut(..PATH_MAX - 1).unwrap_or_default();
        let len = with(room)?;
        if len >= PATH_MAX - 1 {
            return Err(Errno::NAMETOOLONG);
        }
        self.truncate(len);
        Ok(())
    }

    /// Adds a slash, unless there is one, and a component.
    ///
    /// # Errors
    /// ENAMETOOLONG.
    pub fn push(&mut self, component: &[u8]) -> Result<(), Errno> {
        if self.as_bytes().last().is_some_and(|&last| last != b'/') {
            self.append(b"/")?;
        }
        self.append(component)
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        let end = self.len + bytes.len();
        if end >= PATH_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        self.bytes.get_mut(self.len..end).ok_or(Errno::NAMETOOLONG)?.copy_from_slice(bytes);
        self.truncate(end);
        Ok(())
    }

    /// Goes up by one component; from the root to itself.
    pub(crate) fn pop(&mut self) {
        let slash = self.as_bytes().iter().rposition(|&byte| byte == b'/');
        self.truncate(slash.unwrap_or(0).max(1));
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = len.min(PATH_MAX - 1);
        if let Some(end) = self.bytes.get_mut(self.len) {
            *end = 0;
        }
    }
}

/// The components of a path that name something: neither empty nor ".".
pub(crate) fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".")
}

/// The next of these components from byte `from` on, and where the rest begins.
pub(crate) fn next_component(path: &[u8], from: usize) -> Option<(&[u8], usize)> {
    let mut at = from;
    loop {
        let rest = path.get(at..).filter(|rest| !rest.is_empty())?;
        let len = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
        let part = rest.get(..len)?;
        at = (at + len + 1).min(path.len());
        if !part.is_empty() && part != b"." {
            return Some((part, at));
        }
    }
}

/// Directory and last component. `None` if the path ends in a slash, "." or "..": then it is a
/// directory.
pub(crate) fn split_last(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let (directory, name) = match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (path.get(..=at)?, path.get(at + 1..)?),
        None => (&b""[..], path),
    };
    (!matches!(name, b"" | b"." | b"..")).then_some((directory, name))
}

/// What follows `prefix` in `path`, if it is one at a component's end; without the slash.
pub(crate) fn strip_prefix<'p>(path: &'p [u8], prefix: &[u8]) -> Option<&'p [u8]> {
    let rest = path.strip_prefix(prefix)?;
    match rest.first() {
        None => Some(rest),
        Some(b'/') => rest.get(1..),
        Some(_) if prefix == b"/" => Some(rest),
        Some(_) => None,
    }
}

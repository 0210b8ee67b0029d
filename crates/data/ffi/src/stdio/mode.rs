//! The mode string of fopen, read as glibc reads it (libio/fileops.c).
//!
//! Knows nothing of files.

use core::ffi::{CStr, c_int};

/// What a mode string asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mode {
    /// For open.
    pub(crate) flags: c_int,
    /// For fopencookie, which knows these six only.
    pub(crate) plain: &'static CStr,
    /// ",ccs=": a wide stream that converts.
    pub(crate) converts: bool,
}

impl Mode {
    /// `None` unless it begins with r, w or a.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let (&first, rest) = text.split_first()?;
        let (one, both, flags) = match first {
            b'r' => (c"r", c"r+", 0),
            b'w' => (c"w", c"w+", libc::O_CREAT | libc::O_TRUNC),
            b'a' => (c"a", c"a+", libc::O_CREAT | libc::O_APPEND),
            _ => return None,
        };
        // glibc looks at six more letters and passes over those that it does not know.
        let letters = rest.get(..rest.len().min(6)).unwrap_or_default();
        let has = |letter| letters.contains(&letter);
        let access = match (has(b'+'), first) {
            (true, _) => libc::O_RDWR,
            (false, b'r') => libc::O_RDONLY,
            (false, _) => libc::O_WRONLY,
        };
        let exclusive = if has(b'x') { libc::O_EXCL } else { 0 };
        let on_exec = if has(b'e') { libc::O_CLOEXEC } else { 0 };
        Some(Self {
            flags: flags | access | exclusive | on_exec,
            plain: if has(b'+') { both } else { one },
            converts: rest.windows(5).any(|part| part == b",ccs="),
        })
    }

    /// The mode for what an open file may be used for.
    pub(crate) const fn of(flags: c_int) -> Self {
        let plain = match (flags & libc::O_ACCMODE, flags & libc::O_APPEND != 0) {
            (libc::O_RDONLY, _) => c"r",
            (libc::O_WRONLY, false) => c"w",
            (libc::O_WRONLY, true) => c"a",
            (_, false) => c"r+",
            (_, true) => c"a+",
        };
        Self { flags, plain, converts: false }
    }

    /// True for "a": what is only appended to starts at the end. "a+" starts reading at the
    /// beginning.
    pub(crate) const fn starts_at_end(self) -> bool {
        let appends = self.flags & libc::O_APPEND != 0;
        appends && self.flags & libc::O_ACCMODE == libc::O_WRONLY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(text: &str) -> c_int {
        Mode::parse(text.as_bytes()).unwrap().flags
    }

    #[test]
    fn the_six_modes_of_the_standard() {
        use libc::{O_APPEND, O_CREAT, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY};
        assert_eq!(flags("r"), O_RDONLY);
        assert_eq!(flags("rb+"), O_RDWR);
        assert_eq!(flags("w"), O_WRONLY | O_CREAT | O_TRUNC);
        assert_eq!(flags("w+b"), O_RDWR | O_CREAT | O_TRUNC);
        assert_eq!(flags("ab"), O_WRONLY | O_CREAT | O_APPEND);
        assert_eq!(flags("a+"), O_RDWR | O_CREAT | O_APPEND);
    }

    #[test]
    fn glibc_adds_letters() {
        assert_eq!(flags("re"), libc::O_CLOEXEC);
        assert_eq!(flags("wx"), flags("w") | libc::O_EXCL);
        assert_eq!(flags("rmc"), 0);
        assert_eq!(flags("rt"), 0);
        // The eighth letter is not looked at.
        assert_eq!(flags("rbbbbbb+"), 0);
    }

    #[test]
    fn what_is_no_mode_is_refused_and_conversions_are_seen() {
        assert_eq!(Mode::parse(b""), None);
        assert_eq!(Mode::parse(b"+r"), None);
        assert!(Mode::parse(b"r,ccs=UTF-8").unwrap().converts);
        assert!(!Mode::parse(b"r").unwrap().converts);
    }

    #[test]
    fn only_a_without_plus_starts_at_the_end() {
        assert!(Mode::parse(b"a").unwrap().starts_at_end());
        assert!(!Mode::parse(b"a+").unwrap().starts_at_end());
        assert_eq!(Mode::of(libc::O_RDWR | libc::O_APPEND).plain, c"a+");
    }
}

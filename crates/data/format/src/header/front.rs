//! What stands where the first copy of a header would be, for files that SQLite judges by their
//! first bytes.
//!
//! SQLite acts on journals by their names, before it reads the database. A program without keys
//! that finds `NAME-journal` or `NAME-wal` takes sealed bytes for a file without content, and
//! removes it. So these have one copy of the header, the second, and before it what lets any
//! SQLite keep its hands off.

use super::fields::COPY_LEN;

/// What stands at offset 0 of a sealed file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Front {
    /// The first copy.
    #[default]
    Copy = 0,
    /// Zeros: of a rollback journal, SQLite says "not hot", and leaves it alone.
    Zeros = 1,
    /// The head of a write-ahead log of a version that no SQLite has: "unable to open database
    /// file".
    NewerLog = 2,
}

/// The head of a write-ahead log as SQLite's file format has it, big-endian: magic, version, page
/// size, checkpoint number, two salts, and the checksum over all of these, which SQLite checks
/// before it looks at the version. That is 2^32 - 1; the one in use is 3007000.
const NEWER_LOG: [u8; 32] = {
    let mut head = [0; 32];
    let fields = [0x377f_0683, u32::MAX, 512, 0, 0, 0];
    let (mut one, mut other, mut at) = (0u32, 0u32, 0);
    while at < fields.len() {
        one = one.wrapping_add(fields[at]).wrapping_add(other);
        other = other.wrapping_add(fields[at + 1]).wrapping_add(one);
        at += 2;
    }
    let words = [fields[0], fields[1], fields[2], 0, 0, 0, one, other];
    let mut at = 0;
    while at < head.len() {
        head[at] = words[at / 4].to_be_bytes()[at % 4];
        at += 1;
    }
    head
};

impl Front {
    /// Of a new file with this name; what precedes its last component does not matter.
    #[inline]
    #[must_use]
    pub fn of(name: &[u8]) -> Self {
        match name {
            [.., b'-', b'w', b'a', b'l'] => Self::NewerLog,
            [.., b'-', b'j', b'o', b'u', b'r', b'n', b'a', b'l'] => Self::Zeros,
            _ => Self::Copy,
        }
    }

    /// The front with this number; the first copy if there is none.
    #[must_use]
    pub const fn of_number(number: u8) -> Self {
        match number {
            1 => Self::Zeros,
            2 => Self::NewerLog,
            _ => Self::Copy,
        }
    }

    /// What stands there instead of the first copy; `None` if the copy does.
    #[must_use]
    pub(crate) fn bytes(self) -> Option<[u8; COPY_LEN]> {
        let mut bytes = [0; COPY_LEN];
        match self {
            Self::Copy => return None,
            Self::Zeros => {}
            Self::NewerLog => {
                let (head, _) = bytes.split_first_chunk_mut()?;
                *head = NEWER_LOG;
            }
        }
        Some(bytes)
    }

    /// True if the first bytes of a file are this and not a copy of a header.
    #[must_use]
    pub fn is_in(self, first: &[u8]) -> bool {
        self.bytes().is_some_and(|bytes| first.starts_with(&bytes))
    }

    /// True if the first bytes of a file with this name are such on purpose. A log keeps them when
    /// it is moved; zeros may as well be a copy that was lost.
    #[must_use]
    pub fn is_meant(name: &[u8], first: &[u8]) -> bool {
        Self::of(name).is_in(first) || Self::NewerLog.is_in(first)
    }

    /// The first bytes of a file without what a [`Front::NewerLog`] puts there, perhaps only its
    /// beginning.
    pub(crate) fn skip(first: &[u8]) -> &[u8] {
        match first.strip_prefix(&NEWER_LOG) {
            Some(rest) => rest,
            None if NEWER_LOG.starts_with(first) => &[],
            None => first,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_a_newer_log_is_the_one_that_sqlite_was_tried_with() {
        // Computed apart, as https://www.sqlite.org/fileformat2.html (section 4.2) says.
        let wanted = "377f0683ffffffff00000200000000000000000000000000157b248cbbf83a13";
        let hex: String = NEWER_LOG.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, wanted);
    }

    #[test]
    fn only_the_end_of_a_name_decides() {
        for (name, front) in [
            ("/data/app.db-wal", Front::NewerLog),
            ("app.db-journal", Front::Zeros),
            ("-wal", Front::NewerLog),
            ("app.db", Front::Copy),
            ("app.db-wal2", Front::Copy),
            ("app.wal", Front::Copy),
            ("app-journal/x", Front::Copy),
            ("", Front::Copy),
        ] {
            assert_eq!(Front::of(name.as_bytes()), front, "{name}");
        }
    }

    #[test]
    fn numbers_lead_back_to_their_fronts() {
        for front in [Front::Copy, Front::Zeros, Front::NewerLog] {
            assert_eq!(Front::of_number(front as u8), front);
        }
    }
}

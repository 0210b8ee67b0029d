//! How plain pages, WAL and control files begin: fixed fields that random bytes do not have.
//!
//! Each signature asks for at least 40 bits, so that a terabyte of sealed bytes has none by chance:
//! it has 2^31 places where one is looked for. Field names are those of PostgreSQL's source.

/// Where signatures are looked for: no file system and no device writes smaller pieces.
pub(crate) const STEP: usize = 512;

/// Something that begins in a known way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signature {
    /// A page of a relation: `PageHeaderData` (bufpage.h).
    Page,
    /// A page of WAL: `XLogPageHeaderData` (xlog_internal.h).
    Wal,
    /// `pg_filenode.map` (relmapper.c).
    RelationMap,
    /// A database of SQLite.
    Sqlite,
}

impl Signature {
    /// In a report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Page => "the header of a page",
            Self::Wal => "the header of a page of WAL",
            Self::RelationMap => "the header of a relation map",
            Self::Sqlite => "the header of an SQLite database",
        }
    }

    /// What these bytes begin as, if they begin as anything known.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        match bytes {
            _ if is_page(bytes) => Some(Self::Page),
            _ if is_wal(bytes) => Some(Self::Wal),
            _ if is_relation_map(bytes) => Some(Self::RelationMap),
            _ if bytes.starts_with(b"SQLite format 3\0") => Some(Self::Sqlite),
            _ => None,
        }
    }
}

/// pd_flags, pd_lower, pd_upper, pd_special and pd_pagesize_version agree, as `PageIsVerified`
/// wants: 16 bits of version and size, 13 of flags, and three offsets in order.
fn is_page(bytes: &[u8]) -> bool {
    let Some(fields) = bytes.get(..24) else { return false };
    let at = |place: usize| u16(fields, place);
    let (flags, lower, upper, special, version) = (at(10), at(12), at(14), at(16), at(18));
    let (size, layout) = (version & 0xff00, version & 0x00ff);
    let sizes = [1024, 2048, 4096, 8192, 16_384, 32_768];
    (2..=4).contains(&layout)
        && sizes.contains(&size)
        && flags <= 0x0007
        && (24..=upper).contains(&lower)
        && upper <= special
        && special <= size
        && special % 8 == 0
}

/// xlp_magic of PostgreSQL 9.3 (0xd075) to 18 (0xd118) and a few later ones, known flags in
/// xlp_info, an address of whole pages, a timeline that somebody could reach.
fn is_wal(bytes: &[u8]) -> bool {
    let Some(fields) = bytes.get(..20) else { return false };
    let (magic, info) = (u16(fields, 0), u16(fields, 2));
    let timeline = u32(fields, 4);
    let address = u32(fields, 8);
    (0xd075..=0xd130).contains(&magic)
        && info <= 0x000f
        && (1..=0x000f_ffff).contains(&timeline)
        && address.is_multiple_of(1024)
}

/// Its magic number, and as many mappings as it can hold.
fn is_relation_map(bytes: &[u8]) -> bool {
    let Some(fields) = bytes.get(..8) else { return false };
    u32(fields, 0) == 0x0059_2717 && u32(fields, 4) <= 64
}

fn u16(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |two| u16::from_le_bytes([two[0], two[1]]))
}

fn u32(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16(bytes, at)) | u32::from(u16(bytes, at + 2)) << 16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first bytes of base/1/1259 of a fresh PostgreSQL 15, LSN and checksum included.
    const PAGE: [u8; 24] = [
        0x00, 0x00, 0x00, 0x00, 0x60, 0x23, 0x4b, 0x01, 0x9a, 0x53, 0x05, 0x00, 0xe8, 0x00, 0x28,
        0x01, 0x00, 0x20, 0x04, 0x20, 0x00, 0x00, 0x00, 0x00,
    ];
    /// Of pg_wal/000000010000000000000001.
    const WAL: [u8; 20] = [
        0x10, 0xd1, 0x02, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00,
    ];

    #[test]
    fn what_a_server_writes_is_known() {
        assert_eq!(Signature::of(&PAGE), Some(Signature::Page));
        assert_eq!(Signature::of(&WAL), Some(Signature::Wal));
        let map = [0x17, 0x27, 0x59, 0, 17, 0, 0, 0];
        assert_eq!(Signature::of(&map), Some(Signature::RelationMap));
        assert_eq!(Signature::of(b"SQLite format 3\0more"), Some(Signature::Sqlite));
    }

    #[test]
    fn random_bytes_zeros_and_short_bytes_are_not() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut bytes = [0; 24];
        for _ in 0..1_000_000 {
            random.fill(&mut bytes);
            assert_eq!(Signature::of(&bytes), None, "{bytes:x?}");
        }
        assert_eq!(Signature::of(&[0; 24]), None);
        for length in 0..8 {
            assert_eq!(Signature::of(&WAL[..length]), None);
        }
    }

    #[test]
    fn each_field_of_a_page_counts() {
        for at in [11, 13, 15, 17, 18, 19] {
            let mut other = PAGE;
            other[at] ^= 0x80;
            assert_eq!(Signature::of(&other), None, "byte {at}");
        }
    }
}

//! Flags of open(2), of calls that take a directory (`AT_`), and of renameat2(2), as Linux numbers
//! them on x86-64.
//!
//! Only those that the engine knows. A flag that it does not know goes to the kernel as it came.

pub(crate) const O_WRONLY: i32 = 0o1;
pub(crate) const O_RDWR: i32 = 0o2;
pub(crate) const O_ACCMODE: i32 = 0o3;
pub(crate) const O_CREAT: i32 = 0o100;
pub(crate) const O_EXCL: i32 = 0o200;
pub(crate) const O_NOCTTY: i32 = 0o400;
pub(crate) const O_TRUNC: i32 = 0o1_000;
pub(crate) const O_APPEND: i32 = 0o2_000;
pub(crate) const O_NONBLOCK: i32 = 0o4_000;
pub(crate) const O_DSYNC: i32 = 0o10_000;
pub(crate) const O_DIRECT: i32 = 0o40_000;
pub(crate) const O_DIRECTORY: i32 = 0o200_000;
pub(crate) const O_NOFOLLOW: i32 = 0o400_000;
pub(crate) const O_NOATIME: i32 = 0o1_000_000;
pub(crate) const O_CLOEXEC: i32 = 0o2_000_000;
pub(crate) const O_PATH: i32 = 0o10_000_000;
/// The bit that tells O_SYNC from O_DSYNC.
pub(crate) const SYNC_BIT: i32 = 0o4_000_000;
pub(crate) const O_SYNC: i32 = SYNC_BIT | O_DSYNC;
/// The bit that tells O_TMPFILE from O_DIRECTORY.
pub(crate) const TMPFILE_BIT: i32 = 0o20_000_000;
pub(crate) const O_TMPFILE: i32 = TMPFILE_BIT | O_DIRECTORY;

pub(crate) const AT_SYMLINK_FOLLOW: i32 = 0x400;
pub(crate) const AT_EMPTY_PATH: i32 = 0x1000;

pub(crate) const RENAME_EXCHANGE: u32 = 1 << 1;
pub(crate) const RENAME_WHITEOUT: u32 = 1 << 2;

/// True for an open that makes the file or fails.
pub(crate) const fn makes(flags: i32) -> bool {
    flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL
}

/// A directory that paths are looked up in, and that is not read.
pub(crate) const PATH_DIRECTORY: i32 = O_PATH | O_DIRECTORY | O_CLOEXEC;

#[cfg(test)]
mod tests {
    macro_rules! pin {
        ($($name:ident),* $(,)?) => {
            $(assert_eq!(super::$name, libc::$name, stringify!($name));)*
        };
    }

    #[test]
    fn they_are_those_of_libc() {
        pin!(O_WRONLY, O_RDWR, O_ACCMODE, O_CREAT, O_EXCL, O_NOCTTY, O_TRUNC, O_APPEND);
        pin!(O_NONBLOCK, O_DSYNC, O_DIRECT, O_DIRECTORY, O_NOFOLLOW, O_NOATIME, O_CLOEXEC, O_PATH);
        pin!(O_SYNC, O_TMPFILE, AT_SYMLINK_FOLLOW, AT_EMPTY_PATH, RENAME_EXCHANGE, RENAME_WHITEOUT);
        assert_eq!(crate::Fd::CWD.0, libc::AT_FDCWD);
    }
}

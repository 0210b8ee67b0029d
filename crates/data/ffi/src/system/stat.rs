//! What the kernel says of a file, and its time.

#![forbid(unsafe_code)]

use core::ffi::CStr;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, StatxFlags, Timespec, Timestamps};
use rustix::io::{Errno, Result};
use tidelock_engine::FileStat;
use tidelock_format::DiskSize;

/// What the engine wants to know of a file.
const WITHOUT_TIMES: StatxFlags = StatxFlags::TYPE.union(StatxFlags::INO).union(StatxFlags::SIZE);

#[inline]
pub(super) fn of(file: BorrowedFd<'_>) -> Result<FileStat> {
    // Not fstat: who has asked for a file's times makes the next write take a new time, and the
    // file system write the inode, with each call (Linux 6.13 and later).
    match rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, WITHOUT_TIMES) {
        Ok(stat) => Ok(file_statx(&stat)),
        // A sandbox that does not have it.
        Err(Errno::NOSYS | Errno::PERM) => rustix::fs::fstat(file).map(|stat| file_stat(&stat)),
        Err(why) => Err(why),
    }
}

pub(super) fn at(directory: BorrowedFd<'_>, path: &CStr) -> Result<FileStat> {
    let found = rustix::fs::statat(directory, path, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(file_stat(&found))
}

/// The time of now as that of the last change; the time of access stays.
pub(super) fn touch(file: BorrowedFd<'_>) -> Result<()> {
    let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    let times = Timestamps {
        last_access: special(rustix::fs::UTIME_OMIT),
        last_modification: special(rustix::fs::UTIME_NOW),
    };
    rustix::fs::futimens(file, &times)
}

fn file_statx(stat: &rustix::fs::Statx) -> FileStat {
    let kind = rustix::fs::FileType::from_raw_mode(stat.stx_mode.into());
    FileStat {
        device: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
        inode: stat.stx_ino,
        size: DiskSize(stat.stx_size),
        regular: kind.is_file(),
        directory: kind.is_dir(),
        symlink: kind.is_symlink(),
        block: kind.is_block_device(),
    }
}

fn file_stat(stat: &rustix::fs::Stat) -> FileStat {
    let kind = rustix::fs::FileType::from_raw_mode(stat.st_mode);
    FileStat {
        device: stat.st_dev,
        inode: stat.st_ino,
        size: DiskSize(u64::try_from(stat.st_size).unwrap_or(0)),
        regular: kind.is_file(),
        directory: kind.is_dir(),
        symlink: kind.is_symlink(),
        block: kind.is_block_device(),
    }
}

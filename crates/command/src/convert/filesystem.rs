//! What file systems promise, as far as it is known.

use std::fs::File;
use std::os::fd::AsFd;

use rustix::fs::FsWord;

/// ext4, XFS, Btrfs, F2FS and tmpfs, as statfs(2) has them.
const KNOWN: [FsWord; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x0102_1994];

fn is_known(file: &File) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|found| KNOWN.contains(&found.f_type))
}

/// True where syncfs(2) has everything written, and fails if any file could not be, since the
/// descriptor was opened: from Linux 5.8 on, and on file systems of which that is known. FUSE does
/// not tell its server, for one.
///
/// The first descriptor of a batch was opened before anything of the batch was written. fsync(2) of
/// each file would say the same, and flush the disk's cache for each: that takes ten times as long.
pub(super) fn syncfs_is_enough(file: &File) -> bool {
    let version = procfs::KernelVersion::current();
    let tells = version.is_ok_and(|version| version >= procfs::KernelVersion::new(5, 8, 0));
    tells && is_known(file)
}

/// True if somebody else can write to a file that is open for reading alone: a process of another
/// user too, whose files nobody but root can list. NFS refuses leases for reasons of its own, so
/// only file systems are asked of which that is known.
pub(super) fn is_written(file: &File) -> bool {
    is_known(file) && tidelock_ffi::is_open_for_writing(file.as_fd()) == Some(true)
}

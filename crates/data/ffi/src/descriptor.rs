//! What the command does with descriptors and `rustix` does not offer.
//!
//! UNSAFETY: descriptors by their number, borrowed for one call or made by it.
#![expect(unsafe_code, reason = "descriptors by number")]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use crate::sys;

const SOL_SOCKET: i64 = 1;
const SO_PEERCRED: i64 = 17;
/// Linux 6.5: the pidfd of the peer as it was when it connected.
const SO_PEERPIDFD: i64 = 77;
/// `SYNC_FILE_RANGE_WRITE`: start to write what is dirty, wait for nothing.
const START_WRITING: i64 = 2;
const F_SETSIG: i64 = 10;
const F_SETLEASE: i64 = 1024;
/// A lease for reading, and its end.
const F_RDLCK: i64 = 0;
const F_UNLCK: i64 = 2;
const SIGURG: i64 = 23;

/// Keeps a descriptor that the caller knows by its number from the programs that it becomes or
/// starts. A number that is no descriptor is left alone.
pub fn close_on_exec(number: u32) {
    let Ok(number) = i32::try_from(number) else { return };
    // SAFETY: it is borrowed for this one call, which fails for a number that is no descriptor.
    let fd = unsafe { BorrowedFd::borrow_raw(number) };
    let _ = rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC);
}

/// SO_PEERPIDFD of a connected socket, where the kernel has it.
#[must_use]
pub fn peer_pidfd(socket: BorrowedFd<'_>) -> Option<OwnedFd> {
    let fd = sys::socket_option(socket.as_raw_fd(), SOL_SOCKET, SO_PEERPIDFD).ok()?;
    // SAFETY: the kernel just made it for us.
    Some(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The number of the process at the other end of a socket, as the kernel knows it here: 0 for one
/// in another PID namespace, which `rustix` has no value for.
#[must_use]
pub fn peer_pid(socket: BorrowedFd<'_>) -> Option<i32> {
    // As much of struct ucred as there is room for; the number is the first of it.
    sys::socket_option(socket.as_raw_fd(), SOL_SOCKET, SO_PEERCRED).ok()
}

/// Closes every descriptor from this number on, those without close-on-exec too.
pub fn close_from(first: u32) {
    // Fails only on kernels before 5.9, where close-on-exec does most of it.
    let _ = sys::plain(sys::nr::CLOSE_RANGE, [i64::from(first), i64::from(u32::MAX), 0, 0, 0, 0]);
}

/// Has the system begin to write a range of a file to the disk, so that whoever syncs it later
/// waits less. Promises nothing, and so cannot fail.
pub fn begin_writeback(file: BorrowedFd<'_>, at: u64, len: u64) {
    let [at, len] = [at, len].map(|number| i64::try_from(number).unwrap_or(0));
    let fd = i64::from(file.as_raw_fd());
    let _ = sys::plain(sys::nr::SYNC_FILE_RANGE, [fd, at, len, START_WRITING, 0, 0]);
}

/// Locks a whole file, open for writing, against the record locks of other programs, until the last
/// copy of this descriptor is closed. Other than theirs, it stays when this process opens and
/// closes the file again.
///
/// # Errors
/// `WouldBlock` if somebody has it locked.
pub fn lock_whole(file: BorrowedFd<'_>) -> io::Result<()> {
    // F_WRLCK, from SEEK_SET 0 to the end.
    let all = libc::flock { l_type: 1, l_whence: 0, l_start: 0, l_len: 0, l_pid: 0 };
    sys::lock_record(file.as_raw_fd(), i64::from(libc::F_OFD_SETLK), &all)
        .map_err(|errno| io::Error::from_raw_os_error(errno.0))
}

/// True if another open file, of whatever process, can write to this one, which is open for reading
/// alone: by a descriptor, a shared map whose descriptor is closed, or a loop device. The kernel
/// gives no lease then. `None` where it gives none to this process or on this file system.
#[must_use]
pub fn is_open_for_writing(file: BorrowedFd<'_>) -> Option<bool> {
    let fcntl = |command, word| {
        let fd = i64::from(file.as_raw_fd());
        sys::plain(sys::nr::FCNTL, [fd, command, word, 0, 0, 0])
    };
    // If somebody opens the file meanwhile, the kernel sends us a signal. SIGIO would end the
    // process; SIGURG is ignored.
    fcntl(F_SETSIG, SIGURG).ok()?;
    match fcntl(F_SETLEASE, F_RDLCK) {
        Ok(_) => {
            let _ = fcntl(F_SETLEASE, F_UNLCK);
            Some(false)
        }
        Err(why) if why.0 == libc::EAGAIN => Some(true),
        Err(_) => None,
    }
}

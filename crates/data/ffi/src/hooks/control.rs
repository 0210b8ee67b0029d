//! fcntl, ioctl and isatty: each command of a sealed file by name, and no other.
//!
//! UNSAFETY: see hooks.rs. The variadic argument is hooked as a fixed one; it comes in the same
//! register.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{c_char, c_int, c_long, c_ulong, c_void};

use libc::size_t;
use tidelock_engine::{Descriptor, Errno};

use crate::hooks::{File, NOTTY, descriptor, duplicate, is_ours, locks, none};
use crate::raw::Outcome as _;
use crate::{guard, next, raw, touch};

pub unsafe fn fcntl(fd: c_int, command: c_int, arg: c_long) -> c_int {
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
        return duplicate::from(fd, c_int::from_word(arg), command == libc::F_DUPFD_CLOEXEC);
    }
    // SAFETY: the contract of fcntl.
    let file = sealed_or!(fd, unsafe { straight_fcntl(fd, command, arg) });
    match command {
        libc::F_GETFD | libc::F_SETFD => numeric!(SYS_fcntl, fd, command, arg),
        libc::F_GETFL => get_flags(&file),
        libc::F_SETFL => set_flags(&file, c_int::from_word(arg)),
        libc::F_GETLK
        | libc::F_SETLK
        | libc::F_SETLKW
        | libc::F_OFD_GETLK
        | libc::F_OFD_SETLK
        | libc::F_OFD_SETLKW => {
            // SAFETY: the contract of fcntl: these commands take a struct flock.
            let lock = unsafe { locks::range_at(command, pointer(arg)) };
            none(lock.and_then(|lock| locks::record(&file, command, lock)))
        }
        // A regular file sends no signal; the number is the engine's (`Kernel::mark_appends`).
        F_GETSIG => 0,
        F_SETSIG if (0..=64).contains(&arg) => 0,
        // Whom to tell of what, advice about lifetime, and what only memory files or pipes have.
        libc::F_GETOWN
        | libc::F_SETOWN
        | F_SETOWN_EX
        | F_GETOWN_EX
        | F_GET_RW_HINT..=F_SET_FILE_RW_HINT
        | libc::F_ADD_SEALS
        | libc::F_GET_SEALS
        | libc::F_GETPIPE_SZ
        | libc::F_SETPIPE_SZ
        | libc::F_NOTIFY => {
            // SAFETY: the program's own arguments.
            unsafe { raw!(SYS_fcntl, file.hidden().0, command, arg) }
        }
        // Leases: the engine takes them itself to learn whether it is alone.
        libc::F_GETLEASE => libc::F_UNLCK,
        _ => raw::fail(Errno::INVAL),
    }
}

/// What the kernel says, with those flags as the program gave them that are carried out here.
fn get_flags(file: &File) -> c_int {
    let flags: c_int = numeric!(SYS_fcntl, file.hidden().0, libc::F_GETFL);
    if flags < 0 {
        return flags;
    }
    let ours = if file.flags().is_unread() { EMULATED | libc::O_NOATIME } else { EMULATED };
    let append = if file.appends() { libc::O_APPEND } else { 0 };
    flags & !ours | file.flags().0 & EMULATED & !libc::O_APPEND | append
}

fn set_flags(file: &File, flags: c_int) -> c_int {
    let done: c_int = numeric!(SYS_fcntl, file.hidden().0, libc::F_SETFL, flags & !EMULATED);
    if done == 0 {
        file.set_flags(flags);
    }
    done
}

const EMULATED: c_int = libc::O_ACCMODE | libc::O_APPEND | libc::O_DIRECT;
const F_SETSIG: c_int = 10;
const F_GETSIG: c_int = 11;
const F_SETOWN_EX: c_int = 15;
const F_GETOWN_EX: c_int = 16;
const F_GET_RW_HINT: c_int = 1035;
const F_SET_FILE_RW_HINT: c_int = 1038;

pub unsafe fn ioctl(fd: c_int, request: c_ulong, arg: c_long) -> c_int {
    if request == libc::FICLONE && is_ours(c_int::from_word(arg)) {
        return raw::fail(Errno::OPNOTSUPP);
    }
    // SAFETY: the contract of ioctl.
    let file = sealed_or!(fd, unsafe { straight_ioctl(fd, request, arg) });
    match request {
        libc::FIOCLEX => numeric!(SYS_fcntl, fd, libc::F_SETFD, libc::FD_CLOEXEC),
        libc::FIONCLEX => numeric!(SYS_fcntl, fd, libc::F_SETFD, 0),
        libc::FIONREAD => {
            // SAFETY: the contract of ioctl: FIONREAD takes an int.
            let left = unsafe { touch::value_mut(pointer::<c_int>(arg)) };
            none(left.and_then(|left| {
                *left = bytes_left(&file)?;
                Ok(())
            }))
        }
        libc::FIONBIO => {
            // The first read would set what the open said.
            file.begin_to_read();
            // SAFETY: the program's own arguments.
            unsafe { raw!(SYS_ioctl, file.hidden().0, request, arg) }
        }
        libc::FS_IOC_GETFLAGS
        | libc::FS_IOC_SETFLAGS
        | libc::FS_IOC_GETVERSION
        | FS_IOC_FSGETXATTR
        | FS_IOC_FSSETXATTR
        | FIGETBSZ => {
            // SAFETY: the program's own arguments.
            unsafe { raw!(SYS_ioctl, file.hidden().0, request, arg) }
        }
        // Bytes shared with another file would be sealed under that file's key.
        libc::FICLONE | libc::FICLONERANGE | FIDEDUPERANGE | FS_IOC_FIEMAP | FIBMAP => {
            raw::fail(Errno::OPNOTSUPP)
        }
        _ => raw::fail(NOTTY),
    }
}

/// A file that waits for sealed bytes shares none within the kernel.
///
/// # Safety
/// The contract of ioctl.
unsafe fn straight_ioctl(fd: c_int, request: c_ulong, arg: c_long) -> c_int {
    // SAFETY: the caller's promise.
    let done: c_int = unsafe { raw!(SYS_ioctl, fd, request, arg) };
    let shares = matches!(request, libc::FICLONE | libc::FICLONERANGE);
    if done < 0 && shares && raw::errno() == Errno::BADF && guard::is_waiting(fd) {
        return raw::fail(Errno::OPNOTSUPP);
    }
    done
}

/// The flags of one that waits are those that it will have.
///
/// # Safety
/// The contract of fcntl.
unsafe fn straight_fcntl(fd: c_int, command: c_int, arg: c_long) -> c_int {
    // SAFETY: the program's own arguments.
    let done: c_int = unsafe { raw!(SYS_fcntl, fd, command, arg) };
    match command {
        libc::F_GETFL if done >= 0 && done & libc::O_PATH != 0 && guard::is_waiting(fd) => {
            libc::O_RDWR
        }
        libc::F_SETFL if done < 0 && raw::errno() == Errno::BADF && guard::is_waiting(fd) => 0,
        libc::F_GETLK
        | libc::F_SETLK
        | libc::F_SETLKW
        | libc::F_OFD_GETLK
        | libc::F_OFD_SETLK
        | libc::F_OFD_SETLKW => guard::locked(done, fd),
        _ => done,
    }
}

const FIBMAP: c_ulong = 1;
const FIGETBSZ: c_ulong = 2;
const FIDEDUPERANGE: c_ulong = 0xc018_9436;
const FS_IOC_FIEMAP: c_ulong = 0xc020_660b;
const FS_IOC_FSGETXATTR: c_ulong = 0x801c_581f;
const FS_IOC_FSSETXATTR: c_ulong = 0x401c_5820;

fn bytes_left(file: &File) -> Result<c_int, Errno> {
    let at = file.seek(0, libc::SEEK_CUR)?;
    let left = file.size()?.0.cast_signed() - at.cast_signed();
    Ok(c_int::try_from(left).unwrap_or(if left < 0 { 0 } else { c_int::MAX }))
}

pub unsafe fn isatty(fd: c_int) -> c_int {
    match descriptor(fd) {
        Descriptor::Foreign => {}
        Descriptor::Hidden => return no(Errno::BADF),
        Descriptor::Sealed(_) => return no(NOTTY),
    }
    let mut settings = [0u8; 256];
    // SAFETY: the program's own arguments.
    let done: c_int = unsafe { raw!(SYS_ioctl, fd, libc::TCGETS, settings.as_mut_ptr()) };
    c_int::from(done == 0)
}

/// "No", with the reason in errno.
fn no(why: Errno) -> c_int {
    raw::set_errno(why);
    0
}

pub unsafe fn ttyname(fd: c_int) -> *mut c_char {
    if is_ours(fd) {
        raw::set_errno(NOTTY);
        return core::ptr::null_mut();
    }
    // SAFETY: the contract of ttyname.
    unsafe { next::ttyname(fd) }
}

/// Returns the error instead of setting errno.
pub unsafe fn ttyname_r(fd: c_int, into: *mut c_char, len: size_t) -> c_int {
    if is_ours(fd) {
        return libc::ENOTTY;
    }
    // SAFETY: the contract of ttyname_r.
    unsafe { next::ttyname_r(fd, into, len) }
}

pub unsafe fn ttyname_r_chk(fd: c_int, into: *mut c_char, len: size_t, room: size_t) -> c_int {
    // SAFETY: the contract of ttyname_r.
    unsafe { ttyname_r(fd, into, len.min(room)) }
}

/// The variadic argument as an address.
fn pointer<T>(arg: c_long) -> *mut T {
    <*mut c_void>::from_word(arg).cast()
}

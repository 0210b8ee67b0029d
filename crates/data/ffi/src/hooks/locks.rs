//! Record locks, flock and lockf: held on the real file, counted in plain bytes.
//!
//! A range from the start or from the offset needs no change, because the kernel's offset of a
//! sealed file is the plain one; a range from the end is converted, because the end is not.
//!
//! UNSAFETY: see hooks.rs.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{c_int, c_short};

use libc::{flock as Range, off_t};
use tidelock_engine::{Descriptor, Errno};

use crate::hooks::{File, descriptor, none};
use crate::{guard, raw, touch};

pub unsafe fn flock(fd: c_int, operation: c_int) -> c_int {
    let file = sealed_or!(fd, guard::locked(numeric!(SYS_flock, fd, operation), fd));
    numeric!(SYS_flock, file.hidden().0, operation)
}

pub unsafe fn lockf(fd: c_int, command: c_int, len: off_t) -> c_int {
    let kind = if command == libc::F_ULOCK { libc::F_UNLCK } else { libc::F_WRLCK };
    let mut range = Range {
        l_type: short(kind),
        l_whence: short(libc::SEEK_CUR),
        l_start: 0,
        l_len: len,
        l_pid: 0,
    };
    match command {
        libc::F_ULOCK | libc::F_TLOCK => any_record(fd, libc::F_SETLK, &mut range),
        libc::F_LOCK => any_record(fd, libc::F_SETLKW, &mut range),
        libc::F_TEST => {
            range.l_type = short(libc::F_RDLCK);
            let done = any_record(fd, libc::F_GETLK, &mut range);
            if done == 0 && range.l_type != short(libc::F_UNLCK) {
                // A lock of this very process is never told.
                return raw::fail(Errno::ACCES);
            }
            done
        }
        _ => raw::fail(Errno::INVAL),
    }
}

fn any_record(fd: c_int, command: c_int, range: &mut Range) -> c_int {
    match descriptor(fd) {
        Descriptor::Foreign => {
            // SAFETY: the program's own arguments.
            let done = unsafe { raw!(SYS_fcntl, fd, command, core::ptr::from_mut(range)) };
            guard::locked(done, fd)
        }
        Descriptor::Hidden => raw::fail(Errno::BADF),
        Descriptor::Sealed(file) => none(record(&file, command, range)),
    }
}

/// The range that the program asks about, or wants locked.
///
/// # Safety
/// The contract of fcntl with this command: what is there is a struct flock.
pub(crate) unsafe fn range_at<'r>(command: c_int, at: *mut Range) -> Result<&'r mut Range, Errno> {
    if !matches!(command, libc::F_GETLK | libc::F_OFD_GETLK) {
        // Only read, and it may lie where nothing can be written.
        touch::all(at.cast_const().cast(), size_of::<Range>(), touch::Want::Read)?;
        // SAFETY: the memory is there, and `record` changes it only for the two commands that ask.
        return Ok(unsafe { &mut *at });
    }
    // SAFETY: the caller's promise.
    unsafe { touch::value_mut(at) }
}

/// One of the six fcntl commands about record locks, on a sealed file.
pub(crate) fn record(file: &File, command: c_int, lock: &mut Range) -> Result<(), Errno> {
    let mut range = match c_int::from(lock.l_whence) {
        libc::SEEK_END => from_start(lock, file.size()?.0)?,
        libc::SEEK_CUR => from_start(lock, file.seek(0, libc::SEEK_CUR)?)?,
        _ => *lock,
    };
    let asks = matches!(command, libc::F_GETLK | libc::F_OFD_GETLK);
    if !asks {
        may_lock(file, c_int::from(range.l_type))?;
    }
    if matches!(command, libc::F_SETLK | libc::F_SETLKW) {
        // Before it is there, so that no close in between can miss it.
        file.note_record_lock()?;
    }
    let before = raw::errno();
    // SAFETY: the program's own arguments.
    let done: c_int = unsafe { raw!(SYS_fcntl, file.hidden().0, command, &raw mut range) };
    if done != 0 {
        let error = raw::errno();
        raw::set_errno(before);
        return Err(error);
    }
    if asks {
        *lock = range;
    }
    Ok(())
}

/// As the kernel checks it on the program's own descriptor; the hidden one can do more.
fn may_lock(file: &File, kind: c_int) -> Result<(), Errno> {
    let access = file.flags().access();
    match kind {
        libc::F_RDLCK if !access.read => Err(Errno::BADF),
        libc::F_WRLCK if !access.write => Err(Errno::BADF),
        _ => Ok(()),
    }
}

/// A range from `base`, the plain end or the offset, as one from the start: the kernel has its own
/// of both.
fn from_start(range: &Range, base: u64) -> Result<Range, Errno> {
    let base = i64::try_from(base).map_err(|_| Errno::OVERFLOW)?;
    let start = base.checked_add(range.l_start).ok_or(Errno::OVERFLOW)?;
    if start < 0 {
        return Err(Errno::INVAL);
    }
    Ok(Range { l_start: start, l_whence: short(libc::SEEK_SET), ..*range })
}

fn short(number: c_int) -> c_short {
    c_short::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(whence: c_int, start: i64, len: i64) -> Range {
        Range { l_type: 0, l_whence: short(whence), l_start: start, l_len: len, l_pid: 0 }
    }

    #[test]
    fn a_range_from_the_end_counts_plain_bytes() {
        let found = from_start(&range(libc::SEEK_END, -10, 10), 8192).unwrap();
        assert_eq!((found.l_whence, found.l_start, found.l_len), (0, 8182, 10));
        let behind = from_start(&range(libc::SEEK_END, 0, 0), 17).unwrap();
        assert_eq!((behind.l_whence, behind.l_start, behind.l_len), (0, 17, 0));
    }

    #[test]
    fn a_range_before_the_start_is_refused() {
        assert_eq!(from_start(&range(libc::SEEK_END, -1, 1), 0).err(), Some(Errno::INVAL));
        let far = from_start(&range(libc::SEEK_END, i64::MAX, 1), 1);
        assert_eq!(far.err(), Some(Errno::OVERFLOW));
    }
}

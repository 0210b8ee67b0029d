//! readv, writev and their kin.
//!
//! UNSAFETY: see hooks.rs.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::c_int;
use std::io::IoSlice;

use libc::{iovec, off_t, ssize_t};
use tidelock_engine::Errno;

use crate::hooks::{File, aside, buffer_mut, count, deep, place};
use crate::touch::{self, Want};
use crate::{guard, raw};

pub unsafe fn readv(fd: c_int, pieces: *const iovec, n: c_int) -> ssize_t {
    // SAFETY: the program's own arguments.
    let file = sealed_or!(fd, guard::read(unsafe { raw!(SYS_readv, fd, pieces, n) }, fd));
    // SAFETY: the contract of readv.
    count(unsafe {
        fill(
            pieces,
            n,
            |into| deep(file.is_ready(), || file.read(into)),
            |len, put| deep(file.is_ready(), || file.read_pieces(len, put)),
        )
    })
}

pub unsafe fn preadv(fd: c_int, pieces: *const iovec, n: c_int, at: off_t) -> ssize_t {
    // SAFETY: the program's own arguments.
    let file = sealed_or!(fd, guard::read(unsafe { raw!(SYS_preadv, fd, pieces, n, at, 0) }, fd));
    // SAFETY: the contract of preadv.
    unsafe { preadv_from(&file, pieces, n, at) }
}

/// preadv of a sealed file.
pub(crate) unsafe fn preadv_from(
    file: &File,
    pieces: *const iovec,
    n: c_int,
    at: off_t,
) -> ssize_t {
    // SAFETY: the contract of preadv.
    count(place(at).and_then(|at| unsafe {
        fill(
            pieces,
            n,
            |into| deep(file.is_ready(), || file.pread(into, at)),
            |len, put| deep(file.is_ready(), || file.pread_pieces(len, at, put)),
        )
    }))
}

pub unsafe fn preadv2(
    fd: c_int,
    pieces: *const iovec,
    n: c_int,
    at: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the program's own arguments.
    let _file = sealed_or!(fd, unsafe { raw!(SYS_preadv2, fd, pieces, n, at, 0, flags) });
    if flags & !(HINTS | SYNCHRONOUS) != 0 {
        return raw::fail(Errno::OPNOTSUPP);
    }
    if at == -1 {
        // SAFETY: the contract of preadv2 is that of readv.
        return unsafe { readv(fd, pieces, n) };
    }
    // SAFETY: the contract of preadv2 is that of preadv.
    unsafe { preadv(fd, pieces, n, at) }
}

pub unsafe fn writev(fd: c_int, pieces: *const iovec, n: c_int) -> ssize_t {
    // SAFETY: the program's own arguments.
    let straight = || unsafe { raw!(SYS_writev, fd, pieces, n) };
    // SAFETY: the contract of writev.
    let file = sealed_or!(fd, unsafe { guard::written_vector(fd, pieces, n, straight) });
    // SAFETY: the contract of writev.
    count(unsafe { with(pieces, n, |from| aside(|| file.writev(from))) })
}

pub unsafe fn pwritev(fd: c_int, pieces: *const iovec, n: c_int, at: off_t) -> ssize_t {
    // Only what comes to lie at the beginning can be a header.
    let looked_at = if at == 0 { n } else { 0 };
    // SAFETY: the program's own arguments.
    let straight = || unsafe { raw!(SYS_pwritev, fd, pieces, n, at, 0) };
    // SAFETY: the contract of pwritev.
    let file = sealed_or!(fd, unsafe { guard::written_vector(fd, pieces, looked_at, straight) });
    // SAFETY: the contract of pwritev.
    unsafe { pwritev_to(&file, pieces, n, at) }
}

/// pwritev of a sealed file.
pub(crate) unsafe fn pwritev_to(file: &File, pieces: *const iovec, n: c_int, at: off_t) -> ssize_t {
    // SAFETY: the contract of pwritev.
    count(
        place(at)
            .and_then(|at| unsafe { with(pieces, n, |from| aside(|| file.pwritev(from, at))) }),
    )
}

pub unsafe fn pwritev2(
    fd: c_int,
    pieces: *const iovec,
    n: c_int,
    at: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the program's own arguments.
    let file = sealed_or!(fd, unsafe { raw!(SYS_pwritev2, fd, pieces, n, at, 0, flags) });
    if flags & !(HINTS | SYNCHRONOUS) != 0 {
        return raw::fail(Errno::OPNOTSUPP);
    }
    let written = if at == -1 {
        // SAFETY: the contract of pwritev2 is that of writev.
        unsafe { writev(fd, pieces, n) }
    } else {
        // SAFETY: the contract of pwritev2 is that of pwritev.
        unsafe { pwritev(fd, pieces, n, at) }
    };
    if written > 0 && synchronise(&file, flags) != 0 { -1 } else { written }
}

/// The promise of RWF_SYNC and RWF_DSYNC, kept for more bytes than it was made for.
fn synchronise(file: &File, flags: c_int) -> c_int {
    if flags & libc::RWF_SYNC != 0 {
        numeric!(SYS_fsync, file.hidden().0)
    } else if flags & libc::RWF_DSYNC != 0 {
        numeric!(SYS_fdatasync, file.hidden().0)
    } else {
        0
    }
}

/// Flags that ask for nothing but speed.
const HINTS: c_int = libc::RWF_HIPRI | libc::RWF_DONTCACHE;
/// Of a read they ask for nothing.
const SYNCHRONOUS: c_int = libc::RWF_DSYNC | libc::RWF_SYNC;
const MOST_PIECES: usize = 1024;

/// The program's vector.
///
/// # Safety
/// The contract of readv and writev.
unsafe fn vector<'v>(pieces: *const iovec, n: c_int) -> Result<&'v [iovec], Errno> {
    let n = usize::try_from(n).ok().filter(|&n| n <= MOST_PIECES).ok_or(Errno::INVAL)?;
    if n == 0 {
        return Ok(&[]);
    }
    touch::all(pieces.cast(), n * size_of::<iovec>(), Want::Read)?;
    // SAFETY: the memory is there; the caller's promise: n iovecs.
    let pieces: &[iovec] = unsafe { core::slice::from_raw_parts(pieces, n) };
    let total = pieces.iter().try_fold(0usize, |sum, piece| sum.checked_add(piece.iov_len));
    total.filter(|&sum| sum.cast_signed() >= 0).ok_or(Errno::INVAL)?;
    let plausible = |piece: &iovec| touch::is_plausible(piece.iov_base.cast(), piece.iov_len);
    if !pieces.iter().all(plausible) {
        return Err(crate::hooks::FAULT);
    }
    Ok(pieces)
}

/// Fills the program's vector by one read: of a single piece by `one`, of more by `several`, which
/// is told how many bytes there is room for, and puts what it finds.
///
/// # Safety
/// As [`vector`].
unsafe fn fill(
    pieces: *const iovec,
    n: c_int,
    one: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    several: impl FnOnce(usize, &mut dyn FnMut(usize, &[u8])) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    let pieces = unsafe { vector(pieces, n) }?;
    if let [piece] = pieces {
        // SAFETY: the piece is memory that the program wants filled.
        return match unsafe { buffer_mut(piece.iov_base, piece.iov_len) } {
            Ok(into) => one(into),
            // A file that may not be read is told first.
            Err(fault) => one(&mut []).and(Err(fault)),
        };
    }
    let mut room = 0;
    for piece in pieces {
        let there = touch::reach(piece.iov_base.cast_const().cast(), piece.iov_len, Want::Write);
        room += there;
        if there < piece.iov_len {
            break;
        }
    }
    if room == 0 && pieces.iter().any(|piece| piece.iov_len > 0) {
        return one(&mut []).and(Err(crate::hooks::FAULT));
    }
    several(room, &mut |at, bytes| {
        // SAFETY: so much of the pieces is memory that the program wants filled.
        unsafe { scatter(pieces, at, bytes) }
    })
}

/// Puts bytes into the pieces, from byte `at` of all of them on.
///
/// # Safety
/// The pieces are memory that the program wants filled, as far as these bytes reach.
unsafe fn scatter(pieces: &[iovec], mut at: usize, mut bytes: &[u8]) {
    for piece in pieces {
        let room = piece.iov_len.saturating_sub(at).min(bytes.len());
        if room > 0 {
            // SAFETY: `at` lies within the piece.
            let start = unsafe { piece.iov_base.cast::<u8>().add(at) };
            // SAFETY: the caller's promise; nobody else uses the memory during the call.
            let into = unsafe { core::slice::from_raw_parts_mut(start, room) };
            let (now, later) = bytes.split_at(room);
            into.copy_from_slice(now);
            bytes = later;
        }
        at = at.saturating_sub(piece.iov_len);
    }
}

/// Hands the program's vector over as slices.
///
/// # Safety
/// As [`vector`].
unsafe fn with(
    pieces: *const iovec,
    n: c_int,
    write: impl FnOnce(&[IoSlice<'_>]) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    // SAFETY: the caller's promise.
    let pieces = unsafe { vector(pieces, n) }?;
    let whole = |piece: &iovec| {
        let start = piece.iov_base.cast_const().cast();
        !piece.iov_base.is_null() && touch::reach(start, piece.iov_len, Want::Read) == piece.iov_len
    };
    if pieces.iter().all(whole) {
        // SAFETY: IoSlice has the layout of iovec (its documentation promises it), and no address
        // is null.
        return write(unsafe { core::slice::from_raw_parts(pieces.as_ptr().cast(), pieces.len()) });
    }
    let mut room = core::array::from_fn::<_, 64, _>(|_| IoSlice::new(&[]));
    let mut used = 0;
    for piece in pieces.iter().filter(|piece| piece.iov_len > 0) {
        // SAFETY: each piece is memory that the program wants written.
        let from = match unsafe { crate::hooks::buffer(piece.iov_base, piece.iov_len) } {
            Ok(from) => from,
            Err(fault) if used == 0 => return write(&[]).and(Err(fault)),
            Err(_) => break,
        };
        // What has no room is left for the next call.
        let Some(place) = room.get_mut(used) else { break };
        *place = IoSlice::new(from);
        used += 1;
        if from.len() < piece.iov_len {
            break;
        }
    }
    write(room.get(..used).unwrap_or_default())
}

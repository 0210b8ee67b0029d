//! poll, select and epoll_ctl: a regular file is always ready, and epoll does not take it.
//!
//! To the kernel a visible descriptor does not exist: poll marks it POLLNVAL at once, select
//! refuses it. So poll's answer is corrected, and select is asked about the others only.
//!
//! UNSAFETY: see hooks.rs.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{c_int, c_long, c_short};

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};
use tidelock_engine::{Descriptor, Errno};

use crate::hooks::descriptor;
use crate::process::process;
use crate::raw;
use crate::touch::{self, Want};

pub unsafe fn poll(fds: *mut pollfd, n: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    let call = || unsafe { raw!(SYS_poll, fds, n, timeout) };
    // SAFETY: the contract of poll.
    unsafe { corrected(fds, n, call) }
}

pub unsafe fn ppoll(
    fds: *mut pollfd,
    n: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // The kernel changes the timeout; the program's stays as it is.
    // SAFETY: the contract of ppoll.
    let mut left = try_or_fail!(unsafe { time_at(timeout) });
    let left = left.as_mut().map_or(core::ptr::null_mut(), core::ptr::from_mut);
    // SAFETY: the program's own arguments.
    let call = || unsafe { raw!(SYS_ppoll, fds, n, left, mask, SIGNAL_SET) };
    // SAFETY: the contract of ppoll.
    unsafe { corrected(fds, n, call) }
}

/// The call itself: the kernel counts the timeout down, in the program's memory.
pub(crate) unsafe fn ppoll_counting(
    fds: *mut pollfd,
    n: nfds_t,
    timeout: *mut timespec,
    mask: *const sigset_t,
    size: usize,
) -> c_int {
    // SAFETY: the program's own arguments.
    let call = || unsafe { raw!(SYS_ppoll, fds, n, timeout, mask, size) };
    // SAFETY: the contract of ppoll.
    unsafe { corrected(fds, n, call) }
}

pub unsafe fn poll_chk(fds: *mut pollfd, n: nfds_t, timeout: c_int, _room: usize) -> c_int {
    // SAFETY: the contract of poll.
    unsafe { poll(fds, n, timeout) }
}

pub unsafe fn ppoll_chk(
    fds: *mut pollfd,
    n: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    _room: usize,
) -> c_int {
    // SAFETY: the contract of ppoll.
    unsafe { ppoll(fds, n, timeout, mask) }
}

/// What the kernel called invalid and is a sealed file is as ready as a regular file. If that is
/// not what the program waits for, the kernel is asked again without such files: it came back at
/// once because of them. Beyond 1,024 entries it is not asked again.
///
/// # Safety
/// `n` of them, and `call` asks the kernel about them.
unsafe fn corrected(fds: *mut pollfd, n: nfds_t, call: impl Fn() -> c_int) -> c_int {
    let ready = call();
    let Ok(len) = usize::try_from(n) else { return ready };
    if ready <= 0 || process().is_none() {
        return ready;
    }
    // SAFETY: the caller's promise, the kernel has just filled them, and there is at least one.
    let entries = unsafe { core::slice::from_raw_parts_mut(fds, len) };
    let (mut left, mut all_hidden) = (ready, true);
    let mut hidden = [0u64; 16];
    for (at, entry) in entries.iter_mut().enumerate() {
        if entry.revents & libc::POLLNVAL == 0 {
            continue;
        }
        if let Descriptor::Sealed(_) = descriptor(entry.fd) {
            entry.revents = entry.events & ALWAYS;
            if entry.revents == 0 {
                left -= 1;
                match hidden.get_mut(at / 64) {
                    Some(word) => *word |= 1 << (at % 64),
                    None => all_hidden = false,
                }
            }
        }
    }
    if left > 0 || !all_hidden {
        return left;
    }
    // The kernel passes over what is negative.
    flip(entries, &hidden);
    let ready = call();
    flip(entries, &hidden);
    ready
}

/// Makes the descriptors of these entries negative, or what they were.
fn flip(entries: &mut [pollfd], which: &[u64; 16]) {
    for (group, word) in entries.chunks_mut(64).zip(which) {
        let chosen = group.iter_mut().enumerate().filter(|(at, _)| word >> at & 1 == 1);
        chosen.for_each(|(_, entry)| entry.fd = !entry.fd);
    }
}

/// What a regular file is always ready for.
const ALWAYS: c_short = libc::POLLIN | libc::POLLOUT | libc::POLLRDNORM | libc::POLLWRNORM;
/// Bytes in the kernel's set of signals.
const SIGNAL_SET: usize = 8;

pub unsafe fn select(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let sets = [read, write, except];
    let mut now = timeval { tv_sec: 0, tv_usec: 0 };
    // SAFETY: the contract of select.
    let taken = try_or_fail!(unsafe { Taken::from(n, sets) });
    let timeout = if taken.ready() > 0 { &raw mut now } else { timeout };
    // SAFETY: the program's own arguments.
    let others: c_int = unsafe { raw!(SYS_select, n, read, write, except, timeout) };
    // SAFETY: the contract of select.
    unsafe { taken.put_back(sets, others) }
}

pub unsafe fn pselect(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let sets = [read, write, except];
    // SAFETY: the contract of pselect.
    let given = try_or_fail!(unsafe { time_at(timeout) });
    // SAFETY: the contract of pselect.
    let taken = try_or_fail!(unsafe { Taken::from(n, sets) });
    let now = timespec { tv_sec: 0, tv_nsec: 0 };
    let mut left = if taken.ready() > 0 { Some(now) } else { given };
    let left = left.as_mut().map_or(core::ptr::null_mut(), core::ptr::from_mut);
    let signals = (mask, SIGNAL_SET);
    let signals = [crate::raw::Word::word(signals.0), crate::raw::Word::word(signals.1)];
    // SAFETY: the program's own arguments.
    let others: c_int =
        unsafe { raw!(SYS_pselect6, n, read, write, except, left, signals.as_ptr()) };
    // SAFETY: the contract of pselect.
    unsafe { taken.put_back(sets, others) }
}

/// The call itself: the signals come with their size, and the kernel counts the timeout down.
pub(crate) unsafe fn pselect6(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timespec,
    signals: *const c_long,
) -> c_int {
    let sets = [read, write, except];
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the contract of pselect.
    let taken = try_or_fail!(unsafe { Taken::from(n, sets) });
    let timeout = if taken.ready() > 0 { &raw mut now } else { timeout };
    // SAFETY: the program's own arguments.
    let others: c_int = unsafe { raw!(SYS_pselect6, n, read, write, except, timeout, signals) };
    // SAFETY: the contract of pselect.
    unsafe { taken.put_back(sets, others) }
}

/// The program's timeout, if it gave one.
///
/// # Safety
/// What is there is a timespec.
unsafe fn time_at(timeout: *const timespec) -> Result<Option<timespec>, Errno> {
    if timeout.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    unsafe { touch::value(timeout) }.map(|time| Some(*time))
}

/// The sealed files that were taken out of the three sets.
struct Taken {
    sets: [[c_long; WORDS]; 3],
    any: bool,
}

const WORD_BITS: usize = c_long::BITS as usize;
const WORDS: usize = libc::FD_SETSIZE / WORD_BITS;

impl Taken {
    /// Takes them out.
    ///
    /// # Safety
    /// The contract of select: each set is null or has at least `n` bits.
    unsafe fn from(n: c_int, sets: [*mut fd_set; 3]) -> Result<Self, Errno> {
        let mut taken = Self { sets: [[0; WORDS]; 3], any: false };
        if process().is_none() {
            return Ok(taken);
        }
        let n = usize::try_from(n).unwrap_or(0).min(libc::FD_SETSIZE);
        for set in sets.into_iter().filter(|set| !set.is_null()) {
            touch::all(set.cast(), n.div_ceil(WORD_BITS) * size_of::<c_long>(), Want::Write)?;
        }
        for (kept, set) in taken.sets.iter_mut().zip(sets).filter(|(_, set)| !set.is_null()) {
            for (index, kept) in kept.iter_mut().enumerate().take(n.div_ceil(WORD_BITS)) {
                // SAFETY: within the first `n` bits, in whole words.
                let word = unsafe { set.cast::<c_long>().add(index) };
                // SAFETY: the program's memory, which it does not use while it waits for us.
                *kept = sealed_among(unsafe { *word }, index, n)?;
                taken.any |= *kept != 0;
            }
        }
        // Not before all are known: a call that fails leaves the sets as they are.
        // SAFETY: the caller's promise.
        unsafe { taken.change(sets, |word, kept| word & !kept) };
        Ok(taken)
    }

    /// Changes those words of the sets, as many as are given, in which sealed files stand.
    ///
    /// # Safety
    /// As [`from`](Self::from), with the same sets.
    unsafe fn change<const N: usize>(
        &self,
        sets: [*mut fd_set; N],
        change: impl Fn(c_long, c_long) -> c_long,
    ) {
        for (kept, set) in self.sets.iter().zip(sets).filter(|(_, set)| !set.is_null()) {
            for (index, &kept) in kept.iter().enumerate().filter(|&(_, &kept)| kept != 0) {
                // SAFETY: a word that `from` has looked at.
                let word = unsafe { set.cast::<c_long>().add(index) };
                // SAFETY: the program's memory, which it does not use while it waits for us.
                let word = unsafe { &mut *word };
                *word = change(*word, kept);
            }
        }
    }

    /// How many are ready: all that shall be read or written.
    fn ready(&self) -> c_int {
        let [read, write, _] = &self.sets;
        let bits = read.iter().chain(write).map(|word| word.count_ones()).sum::<u32>();
        if self.any { bits.cast_signed() } else { 0 }
    }

    /// Puts back those that are ready; how many are, with the `others`.
    ///
    /// # Safety
    /// As [`from`](Self::from), with the same sets.
    unsafe fn put_back(&self, sets: [*mut fd_set; 3], others: c_int) -> c_int {
        if others < 0 {
            // A call that fails leaves the sets as they are.
            // SAFETY: the caller's promise.
            unsafe { self.change(sets, |word, kept| word | kept) };
            return others;
        }
        if !self.any {
            return others;
        }
        let [read, write, _] = sets;
        // SAFETY: the caller's promise.
        unsafe { self.change([read, write], |word, kept| word | kept) };
        others + self.ready()
    }
}

/// The bits of `word`, the one of this index, that stand for sealed files.
fn sealed_among(word: c_long, index: usize, n: usize) -> Result<c_long, Errno> {
    let mut sealed = 0;
    for bit in (0..WORD_BITS).filter(|bit| word >> bit & 1 != 0) {
        let fd = index * WORD_BITS + bit;
        let Some(fd) = c_int::try_from(fd).ok().filter(|_| fd < n) else { break };
        match descriptor(fd) {
            Descriptor::Sealed(_) => sealed |= 1 << bit,
            Descriptor::Hidden => return Err(Errno::BADF),
            Descriptor::Foreign => {}
        }
    }
    Ok(sealed)
}

pub unsafe fn epoll_ctl(
    epoll: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: the program's own arguments.
    let _file = sealed_or!(fd, unsafe { raw!(SYS_epoll_ctl, epoll, operation, fd, event) });
    raw::fail(Errno::PERM)
}

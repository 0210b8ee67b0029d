//! mmap and its kin: a private map is a copy of bounded size, a shared one is refused.
//!
//! A shared map would be the page cache itself: sealed bytes to read, plain bytes to write. A copy
//! would go stale, so shared maps are refused whatever their protection; programs fall back to
//! reading. A file that its program only maps, and never reads, is memory (runtime's `memory`).
//!
//! Advice to drop a copy that the program cannot have changed leaves it as it is: it shows what the
//! file did. One that it may have written to is refused: EINVAL.
//!
//! UNSAFETY: see hooks.rs. The copy is made in memory that was mapped a moment ago and that nobody
//! else knows.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

mod copies;

use core::ffi::{c_int, c_void};

use libc::{off_t, size_t};
use tidelock_engine::{Errno, PathBuffer, Refusal, may_be_index};

use crate::hooks::{File, aside, deep, place};
use crate::process::process;
use crate::{raw, touch};

pub unsafe fn mmap(
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    at: off_t,
) -> *mut c_void {
    let straight = || {
        // SAFETY: the program's own arguments.
        let map: *mut c_void = unsafe { raw!(SYS_mmap, address, len, protection, flags, fd, at) };
        if flags & libc::MAP_FIXED != 0 && map != libc::MAP_FAILED {
            gone(map, len);
        }
        map
    };
    if flags & libc::MAP_ANONYMOUS != 0 {
        return straight();
    }
    let file = sealed_or!(fd, straight());
    let kind = flags & libc::MAP_TYPE;
    let from = try_or_fail!(map_start(at, len));
    if !matches!(kind, libc::MAP_PRIVATE | libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE) {
        return raw::fail(Errno::INVAL);
    }
    if kind != libc::MAP_PRIVATE {
        if at == 0 && is_memory(&file) {
            // SAFETY: the program's own arguments.
            return unsafe { memory(&file, address, len, protection, flags) };
        }
        let why = match protection & libc::PROT_WRITE {
            _ if is_index(&file) => Refusal::IndexMap,
            0 => Refusal::SharedMapToRead,
            _ => Refusal::SharedMap,
        };
        return refuse(&file, why);
    }
    if len > LARGEST {
        return refuse(&file, Refusal::LargeMap);
    }
    if !file.flags().access().read {
        return raw::fail(Errno::ACCES);
    }
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    let anonymous = flags | libc::MAP_ANONYMOUS;
    // SAFETY: the program's own arguments.
    let map: *mut c_void = unsafe { raw!(SYS_mmap, address, len, writable, anonymous, -1, 0) };
    if map == libc::MAP_FAILED {
        return map;
    }
    gone(map, len);
    // SAFETY: `len` bytes that were mapped just now, readable and writable, known to nobody else.
    let copy = unsafe { core::slice::from_raw_parts_mut(map.cast(), len) };
    // SAFETY: the map that was just made; `copy`, the reference into it, is not used any more.
    let restrict = || unsafe { protect(map, len, protection) };
    let filled = deep(file.is_ready(), || fill(&file, copy, from)).and_then(|()| restrict());
    let changed = protection & libc::PROT_WRITE != 0;
    let known = filled.map(|()| copies::add(range(map, len), changed));
    if known == Ok(true) {
        return map;
    }
    // SAFETY: the map that was just made.
    let _: c_int = unsafe { raw!(SYS_munmap, map, len) };
    match known {
        Ok(_) => refuse(&file, Refusal::TooManyMaps),
        Err(error) => raw::fail(error),
    }
}

/// Where a map begins in the file: the kernel looks at that before all else.
fn map_start(at: off_t, len: usize) -> Result<u64, Errno> {
    if at % PAGE != 0 || len == 0 {
        return Err(Errno::INVAL);
    }
    let end = at.checked_add(off_t::try_from(len).unwrap_or(0));
    if at < 0 || end.is_none() { Err(Errno(libc::EOVERFLOW)) } else { place(at) }
}

fn refuse(file: &File, why: Refusal) -> *mut c_void {
    let told = aside(|| Ok(file.refuse_once(why)));
    raw::fail(told.unwrap_or_else(|errno| errno))
}

/// True for what SQLite would map beside a log. Where a policy knows of it, it is not sealed.
fn is_index(file: &File) -> bool {
    let named = aside(|| {
        let mut path = PathBuffer::new();
        file.path(&mut path)?;
        Ok(may_be_index(path.as_c()))
    });
    named.unwrap_or(false)
}

fn is_memory(file: &File) -> bool {
    let named = aside(|| {
        let mut path = PathBuffer::new();
        file.path(&mut path)?;
        Ok(file.policy().is_some_and(|directory| directory.is_memory(path.as_bytes())))
    });
    named.unwrap_or(false)
}

/// Memory instead of a shared map of the file. It begins as zeros, and so does the file: nobody
/// shall find there what it had before.
///
/// # Safety
/// As mmap.
unsafe fn memory(
    file: &File,
    address: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
) -> *mut c_void {
    let access = file.flags().access();
    if !access.read || !access.write {
        return raw::fail(Errno::ACCES);
    }
    let size = try_or_fail!(file.size()).0;
    try_or_fail!(aside(|| file.set_len(0).and_then(|()| file.set_len(size))));
    let anonymous = flags & !libc::MAP_TYPE | libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: the program's own arguments. Shared, so that advice to drop pages keeps their bytes,
    // as with a map of a file.
    let map: *mut c_void = unsafe { raw!(SYS_mmap, address, len, protection, anonymous, -1, 0) };
    if map != libc::MAP_FAILED {
        gone(map, len);
    }
    map
}

fn fill(file: &File, copy: &mut [u8], from: u64) -> Result<(), Errno> {
    let mut done = 0;
    while let Some(rest) = copy.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.pread(rest, from + done as u64)? {
            0 => break,
            count => done += count,
        }
    }
    Ok(())
}

/// # Safety
/// The map is one that the program asked for, and nobody holds a reference into it.
unsafe fn protect(map: *mut c_void, len: usize, protection: c_int) -> Result<(), Errno> {
    // SAFETY: the caller's promise.
    let done: c_int = unsafe { raw!(SYS_mprotect, map, len, protection) };
    if done == 0 { Ok(()) } else { Err(raw::errno()) }
}

/// The largest copy.
const LARGEST: usize = 256 << 20;
const PAGE: off_t = 4096;

pub unsafe fn munmap(address: *mut c_void, len: size_t) -> c_int {
    let taken = take(address, len);
    // SAFETY: the program's own arguments.
    let done: c_int = unsafe { raw!(SYS_munmap, address, len) };
    if let Some(taken) = taken {
        if done == 0 {
            touch::forget(address.cast_const().cast(), len);
        } else {
            taken.put_back();
        }
    }
    done
}

pub unsafe fn mprotect(address: *mut c_void, len: size_t, protection: c_int) -> c_int {
    if process().is_some()
        && protection & libc::PROT_WRITE != 0
        && !copies::mark_changed(range(address, len))
    {
        return raw::fail(Errno::NOMEM);
    }
    // SAFETY: the program's own arguments.
    let done = unsafe { raw!(SYS_mprotect, address, len, protection) };
    touch::forget(address.cast_const().cast(), len);
    done
}

/// The new address, which is looked at only if the flags say that it was passed, comes in a
/// register like the mode of open.
pub unsafe fn mremap(
    old: *mut c_void,
    old_len: size_t,
    new_len: size_t,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    let end = range(old, old_len).end;
    let grows = process().is_some() && new_len > old_len;
    // The file may go on where a copy ends. Programs that cannot grow a map make another.
    if grows && copies::within(range(old, old_len)).any(|part| part.range.end == end) {
        return raw::fail(Errno::NOMEM);
    }
    let taken = take(old, old_len);
    // SAFETY: the program's own arguments.
    let moved: *mut c_void = unsafe { raw!(SYS_mremap, old, old_len, new_len, flags, new) };
    if moved == libc::MAP_FAILED {
        if let Some(taken) = taken {
            taken.put_back();
        }
        return moved;
    }
    if process().is_some() {
        touch::forget(old.cast_const().cast(), old_len);
        touch::forget(moved.cast_const().cast(), new_len);
        let to = range(moved, new_len);
        if old.addr() != to.start {
            copies::remove(&to);
        }
        if let Some(taken) = taken {
            taken.put_at(to);
        }
    }
    moved
}

pub unsafe fn madvise(address: *mut c_void, len: size_t, advice: c_int) -> c_int {
    let straight =
        // SAFETY: the program's own advice, for a part of its range.
        |from: usize, to: usize| -> c_int { unsafe { raw!(SYS_madvise, from, to - from, advice) } };
    let all = range(address, len);
    let whole = all.start.is_multiple_of(PAGE_USIZE) && all.start < all.end;
    if process().is_none() || !whole || copies::within(all.clone()).next().is_none() {
        // SAFETY: the program's own arguments.
        return unsafe { raw!(SYS_madvise, address, len, advice) };
    }
    match advice {
        libc::MADV_DONTNEED | MADV_DONTNEED_LOCKED => {}
        // For anonymous memory only, which a private map of a file is not.
        libc::MADV_FREE | libc::MADV_REMOVE | libc::MADV_WIPEONFORK | MADV_GUARD_INSTALL => {
            return raw::fail(Errno::INVAL);
        }
        // SAFETY: the program's own arguments.
        _ => return unsafe { raw!(SYS_madvise, address, len, advice) },
    }
    if copies::within(all.clone()).any(|part| part.changed) {
        // The file's bytes would have to come back, and they may be others now.
        return raw::fail(Errno::INVAL);
    }
    // A copy that nobody has changed is as the file was: it may stay. What lies between is emptied.
    let mut at = all.start;
    while at < all.end {
        let next = copies::within(at..all.end).min_by_key(|part| part.range.start);
        let (gap, behind) =
            next.map_or((all.end, all.end), |part| (part.range.start, part.range.end));
        if at < gap && straight(at, gap) != 0 {
            return -1;
        }
        at = behind;
    }
    0
}

const MADV_DONTNEED_LOCKED: c_int = 24;
const MADV_GUARD_INSTALL: c_int = 102;

/// Whole pages from an address on.
fn range(address: *mut c_void, len: usize) -> core::ops::Range<usize> {
    let start = address.addr();
    start..start.saturating_add(len).checked_next_multiple_of(PAGE_USIZE).unwrap_or(usize::MAX)
}

/// The copies in these pages, which count as none from here on. To be called before the kernel
/// takes the pages away: after that, another thread's map may lie there, and a copy of its own.
/// `None` for pages that the kernel refuses.
fn take(address: *mut c_void, len: usize) -> Option<copies::Taken> {
    let all = range(address, len);
    let whole = all.start.is_multiple_of(PAGE_USIZE) && all.start < all.end;
    (process().is_some() && whole).then(|| copies::take(all))
}

/// The program has no such memory any more, or other memory there.
fn gone(address: *mut c_void, len: usize) {
    if process().is_some() {
        touch::forget(address.cast_const().cast(), len);
        copies::remove(&range(address, len));
    }
}

const PAGE_USIZE: usize = 4096;

//! Whether memory that the program names may be touched: a bad address is EFAULT, as the kernel
//! says it, and no signal.
//!
//! ```text
//!   reach   in a range that was touched lately?     a few comparisons, nothing else
//!           in a page that was touched lately?
//!           else the kernel is asked, once a page, by a call that touches it and does nothing;
//!           and after many such pages for the whole map that they lie in (/proc/self/maps)
//! ```
//!
//! What the program takes away afterwards is forgotten where it says so (munmap, mprotect). Where
//! that cannot be seen, within libc's free, an address that was good and is not any more still ends
//! in the signal that it deserves.
//!
//! UNSAFETY: the calls that ask the kernel take addresses of the program; the kernel checks them,
//! that is their purpose.
#![expect(unsafe_code, reason = "addresses that are asked about")]

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

use rustix::fs::{CWD, Mode, OFlags};
use tidelock_engine::Errno;

use crate::{stack, sys};

/// What memory is wanted for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Want {
    /// To be read.
    Read = 1,
    /// To be read and written.
    Write = 3,
}

const PAGE: usize = 4096;
/// No program has memory from here on.
const TOP: usize = 0x00ff_ffff_ffff_f000;
/// How many pages are remembered.
const PAGES: usize = 4096;
/// So many pages were asked about before their map is looked up.
const ONE_BY_ONE: u32 = 64;

/// A map of the program's, or several that touch.
struct Range {
    start: AtomicUsize,
    end: AtomicUsize,
    want: AtomicU32,
}

static RANGES: [Range; 4] = [const {
    Range { start: AtomicUsize::new(0), end: AtomicUsize::new(0), want: AtomicU32::new(0) }
}; 4];
/// Which range is replaced next.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// Pages by what is left of their number when the place in this table is known; the lowest two bits
/// are a [`Want`]. Half as long as whole numbers: a server's connection, a process of its own,
/// copies each page of it that it writes.
static KNOWN: [AtomicU32; PAGES] = [const { AtomicU32::new(0) }; PAGES];
static ASKED: AtomicU32 = AtomicU32::new(0);

/// How many of the `len` bytes from `start` on may be touched, up to the first that may not.
#[inline]
pub(crate) fn reach(start: *const u8, len: usize, want: Want) -> usize {
    let (start, end) = (start.addr(), start.addr().saturating_add(len));
    if is_in_range(start, end, want) { len } else { by_page(start, end, want) }
}

/// All of the `len` bytes.
///
/// # Errors
/// `EFAULT`.
#[inline]
pub(crate) fn all(start: *const u8, len: usize, want: Want) -> Result<(), Errno> {
    if reach(start, len, want) == len && is_plausible(start, len) { Ok(()) } else { Err(FAULT) }
}

/// What lies at the address.
///
/// # Errors
/// `EFAULT`.
///
/// # Safety
/// If the memory is there, it is a `T` that nobody changes for the time of the call.
pub(crate) unsafe fn value<'v, T>(at: *const T) -> Result<&'v T, Errno> {
    all(at.cast(), size_of::<T>(), Want::Read)?;
    // SAFETY: it may be touched; the caller's promise for the rest.
    Ok(unsafe { &*at })
}

/// As [`value`], to be changed.
///
/// # Errors
/// `EFAULT`.
///
/// # Safety
/// As [`value`], and nobody else looks at it.
pub(crate) unsafe fn value_mut<'v, T>(at: *mut T) -> Result<&'v mut T, Errno> {
    all(at.cast_const().cast(), size_of::<T>(), Want::Write)?;
    // SAFETY: it may be touched; the caller's promise for the rest.
    Ok(unsafe { &mut *at })
}

/// True if the bytes could lie there, in some program: the kernel looks at that before all else.
#[inline]
pub(crate) fn is_plausible(start: *const u8, len: usize) -> bool {
    start.addr().checked_add(len).is_some_and(|end| end <= TOP)
}

pub(crate) const FAULT: Errno = Errno(libc::EFAULT);

/// The program takes memory away, or the rights to it.
pub(crate) fn forget(start: *const u8, len: usize) {
    let (start, end) = (start.addr(), start.addr().saturating_add(len));
    for range in &RANGES {
        if start < range.end.load(Relaxed) && end > range.start.load(Relaxed) {
            range.want.store(0, Relaxed);
        }
    }
    if len / PAGE >= PAGES {
        KNOWN.iter().for_each(|known| known.store(0, Relaxed));
        return;
    }
    for page in start / PAGE..end.div_ceil(PAGE) {
        KNOWN[page % PAGES].store(0, Relaxed);
    }
}

/// The ranges are read as they are, also while they are replaced: a mixture of two is a mistake of
/// the kind that a range which the program has unmapped is.
#[inline]
fn is_in_range(start: usize, end: usize, want: Want) -> bool {
    RANGES.iter().any(|range| {
        range.start.load(Relaxed) <= start
            && end <= range.end.load(Relaxed)
            && range.want.load(Relaxed) & want as u32 == want as u32
    })
}

fn by_page(start: usize, end: usize, want: Want) -> usize {
    let mut at = start;
    while at < end {
        let page = at / PAGE;
        let known = KNOWN[page % PAGES].load(Relaxed);
        let has = if (known >> 2) as usize == page / PAGES { known & 3 } else { 0 };
        if has & want as u32 != want as u32 {
            let left = end.div_ceil(PAGE) - page;
            if left > PAGES / 64 || ASKED.fetch_add(1, Relaxed) >= ONE_BY_ONE {
                ASKED.store(0, Relaxed);
                if let Ok(Some(behind)) = stack::run(|| look_up(at, want)) {
                    at = behind.min(end);
                    continue;
                }
            }
            if !ask(page * PAGE, want) {
                break;
            }
            if let Some(tag) = tag_of(page) {
                KNOWN[page % PAGES].store(tag << 2 | want as u32, Relaxed);
            }
        }
        at = ((page + 1) * PAGE).min(end);
    }
    at - start
}

/// What tells a page from others of its place in the table. `None` for memory beyond the 47 bits
/// that programs get unless they ask for more: the kernel is asked each time.
fn tag_of(page: usize) -> Option<u32> {
    u32::try_from(page / PAGES).ok().filter(|tag| *tag < 1 << 30)
}

/// Asks the kernel about a page.
fn ask(page: usize, want: Want) -> bool {
    // Nothing lies at null, and to the calls it says that nothing was passed.
    if page == 0 || page >= TOP {
        return false;
    }
    match want {
        Want::Read => sys::can_read(page),
        Want::Write => sys::can_write(page),
    }
}

/// The end of the memory from `at` on that may be touched, by the list of maps; remembers it as a
/// range. `None` if the list cannot be read, or `at` is in none of them.
#[cold]
fn look_up(at: usize, want: Want) -> Option<usize> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let list = rustix::fs::openat(CWD, c"/proc/self/maps", flags, Mode::empty()).ok()?;
    let found = search(&list, at, want);
    // std's own close would be our hook.
    let fd = std::os::fd::IntoRawFd::into_raw_fd(list);
    let _ = sys::plain(sys::nr::CLOSE, [i64::from(fd), 0, 0, 0, 0, 0]);
    let (start, end) = found?;
    let place = &RANGES[NEXT.fetch_add(1, Relaxed) % RANGES.len()];
    place.want.store(0, Relaxed);
    place.start.store(start, Relaxed);
    place.end.store(end, Relaxed);
    place.want.store(want as u32, Relaxed);
    Some(end)
}

/// The memory around `at` that may be touched without a gap.
fn search(list: &std::os::fd::OwnedFd, at: usize, want: Want) -> Option<(usize, usize)> {
    let mut found: Option<(usize, usize)> = None;
    let mut lines = Lines::new();
    let mut room = [0u8; 8192];
    'read: loop {
        let count = match rustix::io::read(list, &mut room) {
            Ok(0) => break,
            Ok(count) => count,
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return None,
        };
        for &byte in room.get(..count).unwrap_or_default() {
            let Some(map) = lines.take(byte) else { continue };
            let good = map.want & want as u32 == want as u32;
            match &mut found {
                Some((_, end)) if good && *end == map.start => *end = map.end,
                Some((_, end)) if *end > at => break 'read,
                _ => found = good.then_some((map.start, map.end)),
            }
        }
    }
    found.filter(|&(start, end)| start <= at && at < end)
}

/// One line of the list.
struct Map {
    start: usize,
    end: usize,
    want: u32,
}

/// Reads `START-END rwxp ...` byte by byte.
struct Lines {
    field: Field,
    number: usize,
    start: usize,
    want: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Field {
    Start,
    End,
    Rights,
    Rest,
}

impl Lines {
    const fn new() -> Self {
        Self { field: Field::Start, number: 0, start: 0, want: 0 }
    }

    /// The map, at the end of its rights.
    fn take(&mut self, byte: u8) -> Option<Map> {
        match (self.field, byte) {
            (_, b'\n') => *self = Self::new(),
            (Field::Start, b'-') => {
                (self.start, self.number, self.field) = (self.number, 0, Field::End);
            }
            (Field::End, b' ') => self.field = Field::Rights,
            (Field::Start | Field::End, digit) => {
                let digit = char::from(digit).to_digit(16).unwrap_or(0);
                self.number = self.number << 4 | digit as usize;
            }
            (Field::Rights, b'r') => self.want |= 1,
            (Field::Rights, b'w') => self.want |= 2,
            (Field::Rights, b' ') => {
                self.field = Field::Rest;
                return Some(Map { start: self.start, end: self.number, want: self.want });
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_maps_is_read() {
        let text = "00400000-00401000 r--p 00000000 08:01 131 /bin/a b\n\
                    7f0000000000-7f0000002000 rw-p 00000000 00:00 0\nffffffffff600000-ffffffffff601000 --xp 0 0 0 [v]\n";
        let mut lines = Lines::new();
        let maps: Vec<_> = text
            .bytes()
            .filter_map(|byte| lines.take(byte))
            .map(|map| (map.start, map.end, map.want))
            .collect();
        let last = (0xffff_ffff_ff60_0000, 0xffff_ffff_ff60_1000, 0);
        assert_eq!(
            maps,
            [(0x40_0000, 0x40_1000, 1), (0x7f00_0000_0000, 0x7f00_0000_2000, 3), last]
        );
    }

    #[test]
    fn memory_is_good_up_to_the_first_page_that_is_not_there() {
        let four = 4 * PAGE;
        let rights = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
        // SAFETY: fresh private memory.
        let map = unsafe {
            rustix::mm::mmap_anonymous(
                core::ptr::null_mut(),
                four,
                rights,
                rustix::mm::MapFlags::PRIVATE,
            )
        };
        let map = map.expect("memory").cast::<u8>();
        let none = rustix::mm::MprotectFlags::empty();
        // SAFETY: the last page of that map, which nobody uses.
        unsafe { rustix::mm::mprotect(map.wrapping_add(3 * PAGE).cast(), PAGE, none) }
            .expect("done");
        for want in [Want::Read, Want::Write] {
            assert_eq!(reach(map, four, want), 3 * PAGE);
            assert_eq!(reach(map.wrapping_add(100), 3 * PAGE, want), 3 * PAGE - 100);
            assert_eq!(reach(map.wrapping_add(3 * PAGE), 1, want), 0);
            assert_eq!(look_up(map.addr() + 7, want), Some(map.addr() + 3 * PAGE));
            assert_eq!(reach(map, 3 * PAGE, want), 3 * PAGE);
        }
        // SAFETY: as above.
        unsafe { rustix::mm::mprotect(map.cast(), PAGE, rustix::mm::MprotectFlags::READ) }
            .expect("done");
        forget(map, PAGE);
        assert_eq!(reach(map, 1, Want::Write), 0);
        assert_eq!(reach(map, 1, Want::Read), 1);
        assert_eq!(all(core::ptr::null(), 1, Want::Read), Err(FAULT));
        assert_eq!(all(core::ptr::without_provenance(usize::MAX), 0, Want::Read), Err(FAULT));
    }
}

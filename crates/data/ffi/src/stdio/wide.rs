//! Wide input and output of streams on sealed files: letter by letter, converted by the locale that
//! is in force at the call, through the stream of bytes. glibc's own functions would go through a
//! part of FILE that a stream of fopencookie does not have.
//!
//! Not made: wscanf and its kin. They fail, and the stream shows the error. So it does where the
//! locale does not know a letter, for which libc's own streams write something like it.
//!
//! UNSAFETY: see stdio.rs. Letters are converted one at a time, with a state that begins and ends
//! with the letter: no locale of glibc shifts.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::ptr::null_mut;

use libc::{FILE, size_t, wchar_t};
use tidelock_engine::Errno;

use super::{standard, streams};
use crate::hooks::print::variadic;
use crate::{next, raw};

/// `WEOF`.
const END: c_uint = c_uint::MAX;
/// What mbrtowc and wcrtomb answer of bytes, or a letter, that the locale does not know.
const UNKNOWN: size_t = size_t::MAX;
/// What mbrtowc answers of a letter's first bytes.
const UNFINISHED: size_t = size_t::MAX - 1;
/// MB_LEN_MAX.
const LONGEST: usize = 16;

/// `mbstate_t` at a letter's beginning.
type State = [u32; 2];
const BEGINNING: State = [0; 2];

unsafe extern "C" {
    fn flockfile(file: *mut FILE);
    fn funlockfile(file: *mut FILE);
    fn getc_unlocked(file: *mut FILE) -> c_int;
    fn feof_unlocked(file: *mut FILE) -> c_int;
    fn fwrite_unlocked(from: *const c_void, size: size_t, n: size_t, file: *mut FILE) -> size_t;
    fn mbrtowc(into: *mut wchar_t, from: *const c_char, len: size_t, state: *mut State) -> size_t;
    fn wcrtomb(into: *mut c_char, letter: wchar_t, state: *mut State) -> size_t;
    fn open_wmemstream(text: *mut *mut wchar_t, len: *mut size_t) -> *mut FILE;
}

/// A stream of ours that this thread holds until it is dropped.
struct Held(*mut FILE);

impl Held {
    /// `None` for a stream of libc's.
    fn of(file: *mut FILE) -> Option<Self> {
        let stream = streams::of(file)?;
        stream.orient(1);
        // SAFETY: an open stream.
        unsafe { flockfile(file) };
        Some(Self(file))
    }

    /// Marks an error, as libc does for its own streams.
    fn fail(&self, why: Errno) {
        // SAFETY: an open stream of ours, which this thread holds.
        unsafe { standard::note_error(self.0) };
        raw::set_errno(why);
    }

    /// The next letter; `None` at the end of the file.
    fn read(&self) -> Result<Option<c_uint>, ()> {
        let (mut letter, mut state) = (0, BEGINNING);
        loop {
            // SAFETY: an open stream that this thread holds.
            let Ok(byte) = u8::try_from(unsafe { getc_unlocked(self.0) }) else {
                // SAFETY: as above. Of half a letter at the end libc says nothing.
                return if unsafe { feof_unlocked(self.0) } == 0 { Err(()) } else { Ok(None) };
            };
            let from = (&raw const byte).cast();
            // SAFETY: one byte, a place for a letter, and a state.
            match unsafe { mbrtowc(&raw mut letter, from, 1, &raw mut state) } {
                UNFINISHED => {}
                UNKNOWN => {
                    self.fail(Errno(libc::EILSEQ));
                    return Err(());
                }
                _ => return Ok(Some(letter.cast_unsigned())),
            }
        }
    }

    /// False, and the stream shows the error, unless the letter is written.
    fn write(&self, letter: wchar_t) -> bool {
        let Some((bytes, len)) = bytes_of(letter) else {
            self.fail(Errno(libc::EILSEQ));
            return false;
        };
        // SAFETY: that many bytes, and an open stream that this thread holds.
        unsafe { fwrite_unlocked(bytes.as_ptr().cast(), 1, len, self.0) == len }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: `of` has locked it.
        unsafe { funlockfile(self.0) };
    }
}

/// A letter's bytes, and how many there are; `None` if the locale does not know it.
fn bytes_of(letter: wchar_t) -> Option<([u8; LONGEST], usize)> {
    let (mut bytes, mut state) = ([0; LONGEST], BEGINNING);
    // SAFETY: room for any letter, and a state.
    let len = unsafe { wcrtomb(bytes.as_mut_ptr().cast(), letter, &raw mut state) };
    (len <= LONGEST).then_some((bytes, len))
}

pub unsafe fn fwide(file: *mut FILE, wanted: c_int) -> c_int {
    match streams::of(file) {
        Some(stream) => stream.orient(wanted.signum()),
        // SAFETY: the contract of fwide.
        None => unsafe { next::fwide(file, wanted) },
    }
}

pub unsafe fn fgetwc(file: *mut FILE) -> c_uint {
    match Held::of(file) {
        Some(stream) => stream.read().ok().flatten().unwrap_or(END),
        // SAFETY: the contract of fgetwc.
        None => unsafe { next::fgetwc(file) },
    }
}

pub unsafe fn getwchar() -> c_uint {
    // SAFETY: stdin is an open stream, or the program may not call this.
    unsafe { fgetwc(standard::input()) }
}

pub unsafe fn putwc(letter: wchar_t, file: *mut FILE) -> c_uint {
    match Held::of(file) {
        Some(stream) if stream.write(letter) => letter.cast_unsigned(),
        Some(_) => END,
        // SAFETY: the contract of putwc.
        None => unsafe { next::putwc(letter, file) },
    }
}

pub unsafe fn putwchar(letter: wchar_t) -> c_uint {
    // SAFETY: stdout is an open stream, or the program may not call this.
    unsafe { putwc(letter, standard::output()) }
}

pub unsafe fn ungetwc(letter: c_uint, file: *mut FILE) -> c_uint {
    let Some(stream) = Held::of(file) else {
        // SAFETY: the contract of ungetwc.
        return unsafe { next::ungetwc(letter, file) };
    };
    if letter == END {
        return END;
    }
    let Some((bytes, len)) = bytes_of(letter.cast_signed()) else {
        stream.fail(Errno(libc::EILSEQ));
        return END;
    };
    for &byte in bytes.iter().take(len).rev() {
        // SAFETY: an open stream.
        if unsafe { libc::ungetc(byte.into(), file) } < 0 {
            return END;
        }
    }
    letter
}

pub unsafe fn fgetws(into: *mut wchar_t, len: c_int, file: *mut FILE) -> *mut wchar_t {
    let Some(stream) = Held::of(file) else {
        // SAFETY: the contract of fgetws.
        return unsafe { next::fgetws(into, len, file) };
    };
    // SAFETY: the contract of fgetws.
    unsafe { line(&stream, into, len) }
}

pub unsafe fn fgetws_chk(
    into: *mut wchar_t,
    room: size_t,
    len: c_int,
    file: *mut FILE,
) -> *mut wchar_t {
    let Some(stream) = Held::of(file) else {
        // SAFETY: the contract of fgetws.
        return unsafe { next::__fgetws_chk(into, room, len, file) };
    };
    // A line that is too long for the room is cut, where libc would end the program.
    let most = c_int::try_from(room).map_or(len, |room| room.min(len));
    // SAFETY: the contract of fgetws, with as much room as there is.
    unsafe { line(&stream, into, most) }
}

/// # Safety
/// The contract of fgetws.
unsafe fn line(stream: &Held, into: *mut wchar_t, len: c_int) -> *mut wchar_t {
    let Some(most) = usize::try_from(len).ok().and_then(|len| len.checked_sub(1)) else {
        return null_mut();
    };
    let mut count = 0;
    while count < most {
        let letter = match stream.read() {
            Ok(Some(letter)) => letter.cast_signed(),
            Ok(None) if count > 0 => break,
            _ => return null_mut(),
        };
        // SAFETY: `count` is less than `len`.
        let place = unsafe { into.add(count) };
        // SAFETY: as above.
        unsafe { place.write(letter) };
        count += 1;
        if letter == NEW_LINE {
            break;
        }
    }
    // SAFETY: `count` is less than `len`.
    let end = unsafe { into.add(count) };
    // SAFETY: as above.
    unsafe { end.write(0) };
    into
}

const NEW_LINE: wchar_t = 10;

pub unsafe fn fputws(text: *const wchar_t, file: *mut FILE) -> c_int {
    let Some(stream) = Held::of(file) else {
        // SAFETY: the contract of fputws.
        return unsafe { next::fputws(text, file) };
    };
    let mut at = text;
    loop {
        // SAFETY: the contract of fputws: a text that ends with a zero.
        match unsafe { *at } {
            0 => return 1,
            letter if !stream.write(letter) => return -1,
            _ => at = at.wrapping_add(1),
        }
    }
}

pub unsafe extern "C" fn vfwprintf(
    file: *mut FILE,
    format: *const wchar_t,
    list: *mut c_void,
) -> c_int {
    // SAFETY: the contract of vfwprintf.
    let print = |file| unsafe { next::vfwprintf(file, format, list) };
    Held::of(file).map_or_else(|| print(file), |stream| formatted(&stream, print))
}

pub unsafe extern "C" fn vfwprintf_chk(
    file: *mut FILE,
    flag: c_int,
    format: *const wchar_t,
    list: *mut c_void,
) -> c_int {
    // SAFETY: the contract of vfwprintf.
    let print = |file| unsafe { next::__vfwprintf_chk(file, flag, format, list) };
    Held::of(file).map_or_else(|| print(file), |stream| formatted(&stream, print))
}

/// What `print` makes of a stream in memory, written to this one.
fn formatted(stream: &Held, print: impl FnOnce(*mut FILE) -> c_int) -> c_int {
    let (mut text, mut len) = (null_mut(), 0);
    // SAFETY: two variables that outlive the stream.
    let memory = unsafe { open_wmemstream(&raw mut text, &raw mut len) };
    if memory.is_null() {
        stream.fail(raw::errno());
        return -1;
    }
    let count = print(memory);
    let error = raw::errno();
    // SAFETY: an open stream of libc's.
    let closed = unsafe { next::fclose(memory) };
    let mut done = count;
    if count < 0 || closed != 0 || text.is_null() {
        stream.fail(error);
        done = -1;
    } else {
        // SAFETY: the memory stream has that many letters there.
        let letters = unsafe { core::slice::from_raw_parts(text, len) };
        if !letters.iter().all(|&letter| stream.write(letter)) {
            done = -1;
        }
    }
    let error = raw::errno();
    // SAFETY: memory that open_wmemstream gives away; null is nothing.
    unsafe { libc::free(text.cast()) };
    raw::set_errno(error);
    done
}

pub unsafe extern "C" fn vwprintf(format: *const wchar_t, list: *mut c_void) -> c_int {
    // SAFETY: the contract of vwprintf.
    unsafe { vfwprintf(standard::output(), format, list) }
}

pub unsafe extern "C" fn vwprintf_chk(
    flag: c_int,
    format: *const wchar_t,
    list: *mut c_void,
) -> c_int {
    // SAFETY: the contract of vwprintf.
    unsafe { vfwprintf_chk(standard::output(), flag, format, list) }
}

variadic!("`wprintf(format, ...)`.", wprintf, 1, vwprintf);
variadic!("`__wprintf_chk(flag, format, ...)`.", wprintf_chk, 2, vwprintf_chk);
variadic!("`fwprintf(file, format, ...)`.", fwprintf, 2, vfwprintf);
variadic!("`__fwprintf_chk(file, flag, format, ...)`.", fwprintf_chk, 3, vfwprintf_chk);

/// The functions that read by a format, in one of its three standards.
macro_rules! scans {
    ($list:ident, $list_in:ident, $wscanf:ident, $fwscanf:ident) => {
        pub unsafe extern "C" fn $list(
            file: *mut FILE,
            format: *const wchar_t,
            list: *mut c_void,
        ) -> c_int {
            match Held::of(file) {
                Some(stream) => {
                    stream.fail(Errno::OPNOTSUPP);
                    -1
                }
                // SAFETY: the contract of vfwscanf.
                None => unsafe { next::$list(file, format, list) },
            }
        }

        pub unsafe extern "C" fn $list_in(format: *const wchar_t, list: *mut c_void) -> c_int {
            // SAFETY: the contract of vwscanf.
            unsafe { $list(standard::input(), format, list) }
        }

        variadic!("`wscanf(format, ...)`.", $wscanf, 1, $list_in);
        variadic!("`fwscanf(file, format, ...)`.", $fwscanf, 2, $list);
    };
}

scans!(vfwscanf, vwscanf, wscanf, fwscanf);
scans!(__isoc99_vfwscanf, vwscanf_99, wscanf_99, fwscanf_99);
scans!(__isoc23_vfwscanf, vwscanf_23, wscanf_23, fwscanf_23);

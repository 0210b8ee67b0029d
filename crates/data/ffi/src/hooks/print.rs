//! dprintf and its kin: libc would write to the descriptor within itself.
//!
//! UNSAFETY: see hooks.rs. A variadic function cannot be written in stable Rust: functions of a
//! few instructions build the va_list of the System V ABI for x86-64 (3.5.7) as a C compiler does,
//! and call the function that takes one.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{c_char, c_int, c_void};

use crate::hooks::bytes;
use crate::next;

/// A variadic function with so many arguments before the variable ones. It calls the given one with
/// these and the list.
macro_rules! variadic {
    ($doc:literal, $name:ident, 1, $function:ident) => {
        variadic!($doc, $name, "8", "rsi", $function);
    };
    ($doc:literal, $name:ident, 2, $function:ident) => {
        variadic!($doc, $name, "16", "rdx", $function);
    };
    ($doc:literal, $name:ident, 3, $function:ident) => {
        variadic!($doc, $name, "24", "rcx", $function);
    };
    ($doc:literal, $name:ident, $offset:literal, $list:literal, $function:ident) => {
        #[doc = $doc]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                "sub rsp, 216",
                "mov [rsp + 40], rsi",
                "mov [rsp + 48], rdx",
                "mov [rsp + 56], rcx",
                "mov [rsp + 64], r8",
                "mov [rsp + 72], r9",
                "test al, al",
                "je 2f",
                "movaps [rsp + 80], xmm0",
                "movaps [rsp + 96], xmm1",
                "movaps [rsp + 112], xmm2",
                "movaps [rsp + 128], xmm3",
                "movaps [rsp + 144], xmm4",
                "movaps [rsp + 160], xmm5",
                "movaps [rsp + 176], xmm6",
                "movaps [rsp + 192], xmm7",
                "2:",
                concat!("mov dword ptr [rsp], ", $offset),
                "mov dword ptr [rsp + 4], 48",
                "lea rax, [rsp + 224]",
                "mov [rsp + 8], rax",
                "lea rax, [rsp + 32]",
                "mov [rsp + 16], rax",
                concat!("mov ", $list, ", rsp"),
                "call {function}",
                "add rsp, 216",
                "ret",
                function = sym $function,
            );
        }
    };
}
pub(crate) use variadic;

variadic!("`dprintf(fd, format, ...)`.", dprintf, 2, vdprintf);
variadic!("`__dprintf_chk(fd, flag, format, ...)`.", dprintf_chk, 3, vdprintf_chk);

pub unsafe extern "C" fn vdprintf_chk(
    fd: c_int,
    _flag: c_int,
    format: *const c_char,
    list: *mut c_void,
) -> c_int {
    // SAFETY: the contract of vdprintf.
    unsafe { vdprintf(fd, format, list) }
}

pub unsafe extern "C" fn vdprintf(fd: c_int, format: *const c_char, list: *mut c_void) -> c_int {
    // SAFETY: the contract of vdprintf.
    let _file = sealed_or!(fd, unsafe { next::vdprintf(fd, format, list) });
    // A list can be walked once; its state is these three words.
    // SAFETY: the contract of vdprintf: a va_list.
    let mut copy = unsafe { *list.cast::<[u64; 3]>() };
    let mut room = [0u8; 1024];
    // SAFETY: the contract of vdprintf, with room of that size.
    let len = unsafe { vsnprintf(room.as_mut_ptr(), room.len(), format, copy.as_mut_ptr().cast()) };
    let Ok(wanted) = usize::try_from(len) else { return len };
    if let Some(text) = room.get(..wanted).filter(|_| wanted < room.len()) {
        return write_all(fd, text, len);
    }
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let no_place = core::ptr::null::<c_void>();
    // SAFETY: the program's own arguments.
    let map: *mut c_void = unsafe { raw!(SYS_mmap, no_place, wanted + 1, writable, kind, -1, 0) };
    if map == libc::MAP_FAILED {
        return -1;
    }
    // SAFETY: as above, with the mapping as room.
    unsafe { vsnprintf(map.cast(), wanted + 1, format, list) };
    // SAFETY: `wanted` bytes that were filled just now.
    let text = unsafe { core::slice::from_raw_parts(map.cast::<u8>(), wanted) };
    let done = write_all(fd, text, len);
    // SAFETY: the program's own arguments.
    let _: c_int = unsafe { raw!(SYS_munmap, map, wanted + 1) };
    done
}

/// `len` if all of the text is written.
fn write_all(fd: c_int, text: &[u8], len: c_int) -> c_int {
    let mut rest = text;
    while !rest.is_empty() {
        // SAFETY: a live slice.
        let count = unsafe { bytes::write(fd, rest.as_ptr().cast(), rest.len()) };
        match usize::try_from(count) {
            Ok(count) if count > 0 => rest = rest.get(count..).unwrap_or_default(),
            _ => return -1,
        }
    }
    len
}

unsafe extern "C" {
    fn vsnprintf(into: *mut u8, len: usize, format: *const c_char, list: *mut c_void) -> c_int;
}

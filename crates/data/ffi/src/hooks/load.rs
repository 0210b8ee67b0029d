//! dlopen and dlmopen: a library that looks for functions in its own libraries first, or has a libc
//! of its own, would call libc past the hooks.
//!
//! libc looks at the caller's address to find libraries, so both jump to it.
//!
//! UNSAFETY: see hooks.rs. Functions of a few instructions that keep the caller's address on top of
//! the stack, as a tail call of a C compiler does.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::arch::naked_asm;
use core::ffi::{c_int, c_long, c_void};

use tidelock_runtime::messages;

use crate::next;
use crate::process::process;

/// How a library is loaded after all; in two registers.
#[repr(C)]
pub struct Loader {
    /// The function to jump to; null to answer with null.
    function: *mut c_void,
    flags: c_long,
}

/// `dlopen(path, flags)`.
#[unsafe(naked)]
pub unsafe extern "C" fn dlopen() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "mov edi, esi",
        "call {how}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "mov esi, edx",
        "test rax, rax",
        "je 2f",
        "jmp rax",
        "2:",
        "ret",
        how = sym how,
    );
}

/// `dlmopen(namespace, path, flags)`.
#[unsafe(naked)]
pub unsafe extern "C" fn dlmopen() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "mov esi, edx",
        "call {how}",
        "mov rcx, rdx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "mov edx, ecx",
        "test rax, rax",
        "je 2f",
        "jmp rax",
        "2:",
        "ret",
        how = sym how_in,
    );
}

extern "C" fn how(flags: c_int) -> Loader {
    Loader { function: next::dlopen_place(), flags: shallow(flags) }
}

extern "C" fn how_in(namespace: c_long, flags: c_int) -> Loader {
    if namespace != libc::LM_ID_BASE && process().is_some() {
        messages::own_libc();
        // libc refuses such flags, and has words for dlerror then.
        return Loader { function: next::dlmopen_place(), flags: 0 };
    }
    Loader { function: next::dlmopen_place(), flags: shallow(flags) }
}

/// Where there are keys, the functions of a library are those of the program, and not first those
/// of the libraries that it needs.
fn shallow(flags: c_int) -> c_long {
    let deep = if process().is_some() { libc::RTLD_DEEPBIND } else { 0 };
    c_long::from(flags & !deep)
}

//! exec and its kin: refused where a lock would end by it that the program means to keep.
//!
//! The real file of a sealed one is always closed on exec, and a lock ends with it. Plain, a lock
//! stays with a descriptor that is not closed on exec, and the program that comes holds it: flock
//! -F, a supervisor that becomes what it guards. A child of fork does not hold its parent's locks,
//! and the parent keeps them: it may be another program.
//!
//! What locks there are the kernel says (/proc/self/fdinfo). Without /proc nothing is refused.
//!
//! UNSAFETY: see hooks.rs. Functions of a few instructions that leave all arguments as they are,
//! some of which are variable, and jump to libc's.
#![expect(unsafe_code, reason = "C functions with the contract of libc's")]

use core::ffi::{c_int, c_void};
use std::io::Write as _;

use tidelock_engine::{Descriptor, Errno, Refusal};

use crate::hooks::{File, aside, descriptor};
use crate::process::process;
use crate::{next, raw};

macro_rules! execs {
    ($($name:ident)*) => {
        $(
            #[doc = "See exec(3)."]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                core::arch::naked_asm!(
                    "push rdi",
                    "push rsi",
                    "push rdx",
                    "push rcx",
                    "push r8",
                    "push r9",
                    "push rax",
                    "call {place}",
                    "mov r11, rax",
                    "pop rax",
                    "pop r9",
                    "pop r8",
                    "pop rcx",
                    "pop rdx",
                    "pop rsi",
                    "pop rdi",
                    "test r11, r11",
                    "je 2f",
                    "jmp r11",
                    "2:",
                    "mov eax, -1",
                    "ret",
                    place = sym places::$name,
                );
            }
        )*

        /// Where to jump to; null, and errno, to fail.
        mod places {
            use super::{c_void, judge_then_find, next};
            $(
                pub(super) extern "C" fn $name() -> *mut c_void {
                    judge_then_find(next::exec_places::$name)
                }
            )*
        }
    };
}

execs! { execve execv execvp execvpe execl execlp execle fexecve execveat }

fn judge_then_find(libc: fn() -> *mut c_void) -> *mut c_void {
    let before = raw::errno();
    if let Some(why) = refusal() {
        raw::set_errno(why);
        return core::ptr::null_mut();
    }
    raw::set_errno(before);
    let found = libc();
    if found.is_null() {
        raw::set_errno(Errno::NOSYS);
    }
    found
}

/// Why this process may not become another program.
fn refusal() -> Option<Errno> {
    let process = process()?;
    process.sealed_in(0, u32::MAX).find_map(|fd| {
        let Descriptor::Sealed(file) = descriptor(fd) else { return None };
        let closes: c_int = numeric!(SYS_fcntl, fd, libc::F_GETFD);
        if closes != 0 || !has_lock(&file) {
            return None;
        }
        aside(|| Ok(file.refuse_once(Refusal::LockAcrossExec))).map_or_else(Some, Some)
    })
}

/// True if this process has a lock on it that ends with the real descriptor.
fn has_lock(file: &File) -> bool {
    let mut name = [0u8; 48];
    let mut rest = name.as_mut_slice();
    // 19 letters, 10 digits and a zero byte fit.
    if write!(rest, "/proc/self/fdinfo/{}\0", file.hidden().0).is_err() {
        return false;
    }
    let path: *const c_void = name.as_ptr().cast();
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: a path that outlives the call.
    let fd: c_int = unsafe { raw!(SYS_openat, libc::AT_FDCWD, path, flags, 0) };
    if fd < 0 {
        return false;
    }
    let mut text = [0u8; 1024];
    let into: *mut c_void = text.as_mut_ptr().cast();
    // SAFETY: room of that size. Each lock of this process has a line, and one is enough.
    let count: isize = unsafe { raw!(SYS_read, fd, into, text.len()) };
    let _: c_int = numeric!(SYS_close, fd);
    let count = usize::try_from(count).unwrap_or(0);
    let me: c_int = numeric!(SYS_getpid);
    tells_lock(text.get(..count).unwrap_or_default(), me)
}

/// True if there is a line of a lock that this process took: `lock: 1: FLOCK ADVISORY WRITE PID`.
fn tells_lock(text: &[u8], me: c_int) -> bool {
    text.split(|&byte| byte == b'\n').any(|line| {
        let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let is_lock = words.next() == Some(b"lock:");
        let kind = words.nth(1);
        let owner = words.nth(2).and_then(|word| core::str::from_utf8(word).ok()?.parse().ok());
        is_lock && (kind == Some(b"FLOCK") || kind == Some(b"POSIX")) && owner == Some(me)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_locks_that_this_process_took_count() {
        let text = b"pos:\t0\nflags:\t0100002\nlock:\t1: FLOCK  ADVISORY  WRITE 71 fe:01:5 0 EOF\n\
            lock:\t2: OFDLCK ADVISORY  READ -1 fe:01:5 0 EOF\n\
            lock:\t3: POSIX  ADVISORY  READ 72 fe:01:5 0 9\n";
        assert!(tells_lock(text, 71) && tells_lock(text, 72));
        assert!(!tells_lock(text, 1) && !tells_lock(text, -1) && !tells_lock(b"", 71));
    }
}

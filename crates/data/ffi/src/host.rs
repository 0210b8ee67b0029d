//! The process around the engine, for `runtime`: memory for good, record locks, other programs, and
//! the end.
//!
//! UNSAFETY: mappings that are made once and never undone, and keys that are placed in them by
//! hand.
#![expect(unsafe_code, reason = "shared words and keys in mappings")]

use core::ffi::CStr;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::process::Pid;
use tidelock_cipher::{DataKey, Secret};
use tidelock_engine::{Fd, System as _, Words};
use tidelock_runtime::Host;

use crate::process::starting;
use crate::{environment, locked, memory, spawn, sys};

/// The process around the engine.
pub static HOST: ThisProcess = ThisProcess;

/// This process.
pub struct ThisProcess;

impl Host for ThisProcess {
    fn exit(&self, code: i32) -> ! {
        sys::exit(code)
    }

    fn spawn(&self, program: &CStr, arguments: &[&CStr]) -> Result<Pid, Errno> {
        spawn::spawn(program, arguments, environment::kept())
    }

    fn map_words(&self, memory: &OwnedFd) -> Result<&'static Words, Errno> {
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let len = size_of::<Words>();
        // SAFETY: a shared mapping of the file in memory, wherever the kernel likes, for good.
        let map = unsafe { mmap(core::ptr::null_mut(), len, rights, MapFlags::SHARED, memory, 0) }?;
        // SAFETY: as long as the words, aligned to a page, shared by atomics only and never
        // unmapped.
        Ok(unsafe { &*map.cast::<Words>() })
    }

    /// memfd_secret(2) pages are taken out of the kernel's own map, cannot be swapped or dumped,
    /// and stay over fork. Where the kernel does not offer such memory, the locked private memory
    /// of `memory` serves.
    fn store_keys(&self, keys: &[&[u8; 32]]) -> Option<Vec<&'static DataKey>> {
        const PAGE: usize = 4096;
        let len = (keys.len() * size_of::<DataKey>()).next_multiple_of(PAGE);
        if keys.is_empty() {
            return Some(Vec::new());
        }
        let start = locked::secret_mapping(len).unwrap_or_else(|| memory::allocate(len));
        if start.is_null() {
            return None;
        }
        let place = start.cast::<DataKey>();
        let stored = keys.iter().enumerate().map(|(index, key)| {
            // SAFETY: the mapping has room for all of them.
            let place = unsafe { place.add(index) };
            // SAFETY: the place is ours, aligned (DataKey is bytes), and nothing else is put there.
            unsafe { place.write(DataKey::new(Secret::new(**key))) };
            // SAFETY: it was just written, and is never freed or changed.
            unsafe { &*place }
        });
        Some(stored.collect())
    }

    fn conceal(&self, fd: OwnedFd) -> Fd {
        let system = starting().system();
        let moved = system.duplicate(Fd(fd.as_raw_fd()), system.hidden_from(), true);
        let raw = fd.into_raw_fd();
        let hidden = match moved {
            Ok(hidden) => {
                // The copy keeps it open; std's own close would be our hook.
                let _ = system.close(Fd(raw));
                hidden
            }
            Err(_) => Fd(raw),
        };
        starting().hide(hidden);
        hidden
    }

    fn is_read_only(&self, fd: Fd) -> bool {
        let args = [fd.0.into(), libc::F_GETFL.into(), 0, 0, 0, 0];
        let flags = sys::plain(sys::nr::FCNTL, args);
        flags.is_ok_and(|flags| flags & i64::from(libc::O_ACCMODE) == i64::from(libc::O_RDONLY))
    }

    fn lock_byte(&self, file: Fd, at: u64) -> bool {
        sys::lock_record(file.0, i64::from(libc::F_SETLK), &record(at)).is_ok()
    }

    fn is_byte_locked(&self, file: Fd, at: u64) -> Result<bool, Errno> {
        let mut lock = record(at);
        sys::query_record(file.0, libc::F_GETLK, &mut lock)
            .map_err(|errno| Errno::from_raw_os_error(errno.0))?;
        Ok(i32::from(lock.l_type) != libc::F_UNLCK)
    }
}

fn record(at: u64) -> libc::flock {
    libc::flock {
        l_type: i16::try_from(libc::F_WRLCK).unwrap_or(0),
        l_whence: 0,
        l_start: i64::try_from(at).unwrap_or(i64::MAX),
        l_len: 1,
        l_pid: 0,
    }
}

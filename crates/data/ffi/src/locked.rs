//! Memory that is not swapped and not dumped.
//!
//! UNSAFETY: a mapping of memfd_secret memory.
#![expect(unsafe_code, reason = "secret memory")]

use std::os::fd::{FromRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, getrlimit};
use zeroize::Zeroize;

use crate::{memory, sys};

/// Secret bytes in a mapping of their own, wiped when it is dropped.
pub struct LockedMapping {
    start: *mut u8,
    len: usize,
    room: usize,
    secret: bool,
    locked: bool,
}

// SAFETY: the mapping belongs to this object alone and is not bound to a thread.
unsafe impl Send for LockedMapping {}

impl LockedMapping {
    /// A copy of these bytes.
    ///
    /// # Panics
    /// If not even a few pages can be mapped.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let room = bytes.len().max(1).next_multiple_of(4096);
        let mapped = secret_mapping(room)
            .map(|start| (start, true))
            .or_else(|| private_mapping(room).map(|start| (start, false)));
        let (start, secret) = mapped.expect("a few pages of memory can be mapped");
        // SAFETY: the mapping is fresh, and at least as long as the bytes.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len()) };
        // SAFETY: the range is the mapping.
        let locked = !secret && unsafe { rustix::mm::mlock(start.cast(), room) }.is_ok();
        Self { start, len: bytes.len(), room, secret, locked }
    }

    /// The bytes.
    #[must_use]
    pub const fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has `len` bytes, which were written when it was made and never
        // change.
        unsafe { core::slice::from_raw_parts(self.start, self.len) }
    }

    /// How they are protected: "memfd_secret", "mlock", "none".
    #[must_use]
    pub const fn protection(&self) -> &'static str {
        match (self.secret, self.locked) {
            (true, _) => "memfd_secret",
            (false, true) => "mlock",
            (false, false) => "none",
        }
    }
}

impl Drop for LockedMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and has `len` bytes.
        unsafe { core::slice::from_raw_parts_mut(self.start, self.len) }.zeroize();
        // SAFETY: nobody can reach it after this.
        let _ = unsafe { rustix::mm::munmap(self.start.cast(), self.room) };
    }
}

/// Memory that the kernel takes out of its own map.
pub(crate) fn secret_mapping(room: usize) -> Option<*mut u8> {
    const CLOEXEC: i64 = libc::O_CLOEXEC as i64;
    // It is a file, and the kernel ends who exceeds the limit of its size.
    let limit = getrlimit(Resource::Fsize).current;
    if limit.is_some_and(|limit| limit < room as u64) || may_end_the_process() {
        return None;
    }
    let fd = sys::plain(sys::nr::MEMFD_SECRET, [CLOEXEC, 0, 0, 0, 0, 0]).ok()?;
    // SAFETY: the descriptor was just made and belongs to nobody else.
    let fd = unsafe { OwnedFd::from_raw_fd(i32::try_from(fd).ok()?) };
    rustix::fs::ftruncate(&fd, room as u64).ok()?;
    let prot = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
    let flags = rustix::mm::MapFlags::SHARED;
    // SAFETY: a fresh mapping wherever the kernel likes; it keeps the memory after the descriptor
    // is closed.
    unsafe { rustix::mm::mmap(core::ptr::null_mut(), room, prot, flags, &fd, 0) }
        .ok()
        .map(|at| at.cast())
}

/// In a service of systemd with a filter of system calls, as Debian's Redis has, a call that is not
/// among those of systemd's sets ends the process, and memfd_secret is in none of them (version
/// 252). Filters of containers answer with an error instead.
fn may_end_the_process() -> bool {
    let mode = [libc::PR_GET_SECCOMP.into(), 0, 0, 0, 0, 0];
    let is_filtered = sys::plain(sys::nr::PRCTL, mode).is_ok_and(|mode| mode != 0);
    is_filtered && is_in_a_service().unwrap_or(true)
}

/// By the control group: a server's environment may be its unit's no more.
fn is_in_a_service() -> rustix::io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(c"/proc/self/cgroup", flags, Mode::empty())?;
    let mut text = [0; 1024];
    let count = rustix::io::read(&file, &mut text)?;
    let text = text.get(..count).unwrap_or_default();
    Ok(text.windows(SERVICE.len()).any(|part| part == SERVICE))
}

const SERVICE: &[u8] = b".service";

fn private_mapping(room: usize) -> Option<*mut u8> {
    let prot = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
    let flags = rustix::mm::MapFlags::PRIVATE;
    // SAFETY: a fresh mapping wherever the kernel likes.
    let start =
        unsafe { rustix::mm::mmap_anonymous(core::ptr::null_mut(), room, prot, flags) }.ok()?;
    // SAFETY: the range is the mapping.
    let _ = unsafe { rustix::mm::madvise(start, room, rustix::mm::Advice::LinuxDontDump) };
    Some(start.cast())
}

/// Wipes what ended calls have left on the stack: keys that were moved leave copies there.
pub fn wipe_stack() {
    memory::wipe_stack::<{ memory::DEEPEST }>();
}

//! System calls that `rustix` does not offer, made without libc.
//!
//! UNSAFETY: a system call takes addresses as numbers. Each wrapper here passes only addresses of
//! arguments that it borrows for the time of the call.
#![expect(unsafe_code, reason = "raw system calls")]

use tidelock_engine::Errno;

/// x86-64 numbers (linux, arch/x86/entry/syscalls/syscall_64.tbl).
pub(crate) mod nr {
    pub(crate) const RT_SIGPROCMASK: i64 = 14;
    pub(crate) const FCNTL: i64 = 72;
    pub(crate) const SIGALTSTACK: i64 = 131;
    pub(crate) const FUTEX: i64 = 202;
    pub(crate) const GETCWD: i64 = 79;
    pub(crate) const DUP3: i64 = 292;
    pub(crate) const MEMFD_SECRET: i64 = 447;
    pub(crate) const PRCTL: i64 = 157;
    pub(crate) const CLOSE_RANGE: i64 = 436;
    pub(crate) const UNSHARE: i64 = 272;
    pub(crate) const GETSOCKOPT: i64 = 55;
    pub(crate) const CLOSE: i64 = 3;
    pub(crate) const RENAMEAT2: i64 = 316;
    pub(crate) const LINKAT: i64 = 265;
    pub(crate) const PWRITE64: i64 = 18;
    pub(crate) const PWRITEV: i64 = 296;
    pub(crate) const TRUNCATE: i64 = 76;
    pub(crate) const SYNC_FILE_RANGE: i64 = 277;
    pub(crate) const EXIT_GROUP: i64 = 231;
    pub(crate) const IO_SETUP: i64 = 206;
    pub(crate) const IO_DESTROY: i64 = 207;
    pub(crate) const IO_GETEVENTS: i64 = 208;
    pub(crate) const IO_SUBMIT: i64 = 209;
    pub(crate) const IO_CANCEL: i64 = 210;
    pub(crate) const IO_PGETEVENTS: i64 = 333;
}

/// One system call.
///
/// # Safety
/// The arguments must be what the call with this number wants; addresses must be good for its whole
/// time.
#[inline]
pub(crate) unsafe fn call(number: i64, args: [i64; 6]) -> i64 {
    let result: i64;
    // SAFETY: the kernel's calling convention for x86-64; the caller answers for the arguments.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// The result of a raw call: a number, or an errno.
pub(crate) fn check(result: i64) -> Result<i64, Errno> {
    if (-4095..0).contains(&result) {
        Err(Errno(i32::try_from(-result).unwrap_or(5)))
    } else {
        Ok(result)
    }
}

/// A call that takes numbers only.
pub(crate) fn plain(number: i64, args: [i64; 6]) -> Result<i64, Errno> {
    debug_assert!(matches!(
        number,
        nr::DUP3
            | nr::CLOSE
            | nr::MEMFD_SECRET
            | nr::FCNTL
            | nr::CLOSE_RANGE
            | nr::UNSHARE
            | nr::SYNC_FILE_RANGE
            | nr::PRCTL
    ));
    // SAFETY: none of the arguments is an address; DUP3 and CLOSE act on descriptors that the
    // caller owns.
    check(unsafe { call(number, args) })
}

/// Blocks all signals; the mask that was.
pub(crate) fn block_signals() -> u64 {
    let all = u64::MAX;
    let mut before = 0u64;
    let args =
        [0, (&raw const all).addr().cast_signed() as i64, (&raw mut before).addr() as i64, 8, 0, 0];
    // SAFETY: both addresses are those of live local variables of eight bytes.
    unsafe { call(nr::RT_SIGPROCMASK, args) };
    before
}

/// Sets the signal mask again.
pub(crate) fn restore_signals(mask: u64) {
    let args = [2, (&raw const mask).addr() as i64, 0, 8, 0, 0];
    // SAFETY: the address is that of a live local variable of eight bytes.
    unsafe { call(nr::RT_SIGPROCMASK, args) };
}

/// fcntl with a `struct flock`.
pub(crate) fn lock_record(fd: i32, command: i64, lock: &libc::flock) -> Result<(), Errno> {
    let args = [i64::from(fd), command, core::ptr::from_ref(lock).addr() as i64, 0, 0, 0];
    // SAFETY: the address is that of a live flock.
    check(unsafe { call(nr::FCNTL, args) }).map(|_| ())
}

/// F_GETLK or F_OFD_GETLK: who holds a record lock that would be in the way; F_UNLCK in `lock` if
/// nobody does.
pub(crate) fn query_record(fd: i32, command: i32, lock: &mut libc::flock) -> Result<(), Errno> {
    debug_assert!(matches!(command, libc::F_GETLK | libc::F_OFD_GETLK));
    let address = core::ptr::from_mut(lock).addr() as i64;
    let args = [i64::from(fd), i64::from(command), address, 0, 0, 0];
    // SAFETY: the address is that of a live flock.
    check(unsafe { call(nr::FCNTL, args) }).map(|_| ())
}

/// The working directory into `into`; its length without the zero byte.
pub(crate) fn working_directory(into: &mut [u8]) -> Result<usize, Errno> {
    let args = [into.as_mut_ptr().addr() as i64, into.len() as i64, 0, 0, 0, 0];
    // SAFETY: address and length are those of a live buffer.
    let len = check(unsafe { call(nr::GETCWD, args) })?;
    Ok(usize::try_from(len).unwrap_or(1).saturating_sub(1))
}

/// A call of two directories and two paths: renameat2, linkat.
pub(crate) fn two_paths(
    number: i64,
    from: (i32, &core::ffi::CStr),
    to: (i32, &core::ffi::CStr),
    flags: i64,
) -> Result<(), Errno> {
    debug_assert!(matches!(number, nr::RENAMEAT2 | nr::LINKAT));
    let args = [
        i64::from(from.0),
        from.1.as_ptr().addr() as i64,
        i64::from(to.0),
        to.1.as_ptr().addr() as i64,
        flags,
        0,
    ];
    // SAFETY: both addresses are those of live strings that end with a zero byte.
    check(unsafe { call(number, args) }).map(|_| ())
}

/// truncate(2).
pub(crate) fn truncate(path: &core::ffi::CStr, size: u64) -> Result<(), Errno> {
    let size = i64::try_from(size).map_err(|_| Errno::INVAL)?;
    let args = [path.as_ptr().addr() as i64, size, 0, 0, 0, 0];
    // SAFETY: the address is that of a live string that ends with a zero byte.
    check(unsafe { call(nr::TRUNCATE, args) }).map(|_| ())
}

/// pwritev of up to three pieces.
pub(crate) fn write_pieces(
    fd: i32,
    pieces: &[std::io::IoSlice<'_>],
    at: i64,
) -> Result<usize, Errno> {
    let args = [i64::from(fd), pieces.as_ptr().addr() as i64, pieces.len() as i64, at, 0, 0];
    // SAFETY: IoSlice has the layout of iovec (its documentation promises it), and the slices are
    // live.
    let count = check(unsafe { call(nr::PWRITEV, args) })?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// getsockopt of a number.
pub(crate) fn socket_option(socket: i32, level: i64, name: i64) -> Result<i32, Errno> {
    let mut value = 0i32;
    let mut len = 4u32;
    let args = [
        i64::from(socket),
        level,
        name,
        (&raw mut value).addr() as i64,
        (&raw mut len).addr() as i64,
        0,
    ];
    // SAFETY: both addresses are those of live local variables; `len` tells the room.
    check(unsafe { call(nr::GETSOCKOPT, args) })?;
    Ok(value)
}

/// Ends the process at once: no handlers, no buffers.
pub(crate) fn exit(code: i32) -> ! {
    loop {
        // SAFETY: the call takes a number and does not return.
        unsafe { call(nr::EXIT_GROUP, [i64::from(code), 0, 0, 0, 0, 0]) };
    }
}

/// The flags of this thread's alternate signal stack: whether there is one, and whether the caller
/// stands on it.
pub(crate) fn alternate_stack() -> i32 {
    let mut stack =
        libc::stack_t { ss_sp: core::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
    let args = [0, (&raw mut stack).addr() as i64, 0, 0, 0, 0];
    // SAFETY: the address is that of a live local variable of that type; none is set.
    unsafe { call(nr::SIGALTSTACK, args) };
    stack.ss_flags
}

/// Where the stack is.
#[inline]
pub(crate) fn stack_pointer() -> usize {
    let pointer: usize;
    // SAFETY: copies a register.
    unsafe {
        core::arch::asm!("mov {}, rsp", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    pointer
}

/// True if the page may be read. The kernel copies a signal mask from there and then refuses what
/// shall be done with it.
pub(crate) fn can_read(page: usize) -> bool {
    const NOTHING: i64 = 99;
    // SAFETY: the kernel checks the address, and changes nothing for an operation that does not
    // exist.
    let answer =
        unsafe { call(nr::RT_SIGPROCMASK, [NOTHING, page.cast_signed() as i64, 0, 8, 0, 0]) };
    answer != -i64::from(libc::EFAULT)
}

/// True if the page may be written. The kernel adds zero to its first word, at once for all who
/// look, and wakes nobody: who would have to be awake is asked for by a number that is not there.
pub(crate) fn can_write(page: usize) -> bool {
    static NOBODY: core::sync::atomic::AtomicU32 = core::sync::atomic::AtomicU32::new(0);
    const WAKE_OP_PRIVATE: i64 = 5 | 128;
    const ADD_ZERO: i64 = 1 << 28;
    const IF_IT_WAS: i64 = 0x7ff;
    let word = (&raw const NOBODY).addr().cast_signed() as i64;
    let args = [word, WAKE_OP_PRIVATE, 0, 0, page.cast_signed() as i64, ADD_ZERO | IF_IT_WAS];
    // SAFETY: the kernel checks the address, and the word there keeps its value.
    unsafe { call(nr::FUTEX, args) != -i64::from(libc::EFAULT) }
}

/// A number that tells this thread from the others of the process, the same in a forked child.
#[inline]
pub(crate) fn thread() -> u64 {
    let pointer: u64;
    // SAFETY: on x86-64 Linux the first word of the thread control block is its own address.
    unsafe {
        core::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, readonly, preserves_flags));
    }
    pointer
}

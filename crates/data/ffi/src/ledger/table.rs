//! The table itself: a macro that hands all lines to another macro. Its last section, the calls
//! that are not hooked, is in `passes.rs`.
//!
//! A line of hooks is `module::function(arguments) -> result: names;`. Arguments are those of the C
//! function; where it is variadic, the one argument that is ever looked at (see the hook's module).

/// Hands the ledger to the macro `$to`.
#[doc(hidden)]
#[macro_export]
macro_rules! ledger {
    ($($to:tt)+) => { $crate::ledger_passes! { [$($to)+]
hooks {
    "The engine judges the path: sealed files are opened behind a visible descriptor, all \
        others as they are. O_TMPFILE below a protected directory: EOPNOTSUPP." {
        open::open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int: open, open64,
            __open, __open64, __open_nocancel, __open64_nocancel;
        open::openat(at: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int: openat,
            openat64;
        open::creat(path: *const c_char, mode: mode_t) -> c_int: creat, creat64;
        open::open_2(path: *const c_char, flags: c_int) -> c_int: __open_2, __open64_2;
        open::openat_2(at: c_int, path: *const c_char, flags: c_int) -> c_int: __openat_2,
            __openat64_2;
    }
    "Its way of resolving a path is not ours: ENOSYS; programs fall back to openat." {
        open::openat2(at: c_int, path: *const c_char, how: *const c_void, size: size_t) -> c_int:
            openat2;
    }
    "Opened by us under a random name: libc would open it within itself." {
        temporary::mkstemp(template: *mut c_char) -> c_int: mkstemp, mkstemp64;
        temporary::mkostemp(template: *mut c_char, flags: c_int) -> c_int: mkostemp, mkostemp64;
        temporary::mkstemps(template: *mut c_char, suffix: c_int) -> c_int: mkstemps, mkstemps64;
        temporary::mkostemps(template: *mut c_char, suffix: c_int, flags: c_int) -> c_int:
            mkostemps, mkostemps64;
    }
    "The descriptor and its entry in the table go together; hidden descriptors stay." {
        close::close(fd: c_int) -> c_int: close, __close, __close_nocancel,
            __close_nocancel_nostatus;
        close::closefrom(lowest: c_int) -> (): closefrom;
    }
    "The same. With CLOSE_RANGE_UNSHARE as unshare with CLONE_FILES." {
        close::close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int: close_range;
    }
    "Opened, sealed and counted in plain bytes by the engine." {
        bytes::read(fd: c_int, into: *mut c_void, len: size_t) -> ssize_t: read,
            __read, __read_nocancel;
        bytes::read_chk(fd: c_int, into: *mut c_void, len: size_t, room: size_t) -> ssize_t:
            __read_chk;
        bytes::pread(fd: c_int, into: *mut c_void, len: size_t, at: off_t) -> ssize_t: pread,
            pread64, __pread64, __pread64_nocancel, __libc_pread;
        bytes::pread_chk(fd: c_int, into: *mut c_void, len: size_t, at: off_t, room: size_t) ->
            ssize_t: __pread_chk, __pread64_chk;
        bytes::write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t: write,
            __write, __write_nocancel;
        bytes::pwrite(fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t: pwrite,
            pwrite64, __pwrite64, __libc_pwrite;
        vectors::readv(fd: c_int, pieces: *const iovec, n: c_int) -> ssize_t: readv;
        vectors::writev(fd: c_int, pieces: *const iovec, n: c_int) -> ssize_t: writev;
        vectors::preadv(fd: c_int, pieces: *const iovec, n: c_int, at: off_t) -> ssize_t: preadv,
            preadv64;
        vectors::pwritev(fd: c_int, pieces: *const iovec, n: c_int, at: off_t) -> ssize_t: pwritev,
            pwritev64;
    }
    "As above; of the flags those that are hints or ask for synchronous writes, others are \
        refused: EOPNOTSUPP." {
        vectors::preadv2(fd: c_int, pieces: *const iovec, n: c_int, at: off_t, flags: c_int) ->
            ssize_t: preadv2, preadv64v2;
        vectors::pwritev2(fd: c_int, pieces: *const iovec, n: c_int, at: off_t, flags: c_int) ->
            ssize_t: pwritev2, pwritev64v2;
    }
    "Plain offsets; the end is that of the plain file." {
        bytes::lseek(fd: c_int, at: off_t, whence: c_int) -> off_t: lseek, lseek64,
            __lseek, llseek;
    }
    "The kernel's answer with the size of the plain file, also of one that is open as O_PATH; \
        `.tidelock` is not there. An index of SQLite may have another name (docs/decisions/0020)." {
        stat::stat(path: *const c_char, into: *mut Stat) -> c_int: stat, stat64;
        stat::lstat(path: *const c_char, into: *mut Stat) -> c_int: lstat, lstat64;
        stat::fstat(fd: c_int, into: *mut Stat) -> c_int: fstat, fstat64,
            __fstat64;
        stat::fstatat(at: c_int, path: *const c_char, into: *mut Stat, flags: c_int) -> c_int:
            fstatat, fstatat64;
        stat::statx(at: c_int, path: *const c_char, flags: c_int, mask: c_uint, into: *mut Statx) ->
            c_int: statx;
    }
    "The stat family of programs built before glibc 2.33." {
        stat::xstat(version: c_int, path: *const c_char, into: *mut Stat) -> c_int: __xstat,
            __xstat64;
        stat::lxstat(version: c_int, path: *const c_char, into: *mut Stat) -> c_int: __lxstat,
            __lxstat64;
        stat::fxstat(version: c_int, fd: c_int, into: *mut Stat) -> c_int: __fxstat, __fxstat64;
        stat::fxstatat(version: c_int, at: c_int, path: *const c_char, into: *mut Stat, flags:
            c_int) -> c_int: __fxstatat, __fxstatat64;
    }
    "Cut and extended by the engine, so that no unit is left half sealed; of fallocate only \
        room and holes; other modes: EOPNOTSUPP." {
        size::ftruncate(fd: c_int, len: off_t) -> c_int: ftruncate, ftruncate64;
        size::truncate(path: *const c_char, len: off_t) -> c_int: truncate, truncate64;
        size::fallocate(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int: fallocate,
            fallocate64;
        size::posix_fallocate(fd: c_int, at: off_t, len: off_t) -> c_int: posix_fallocate,
            posix_fallocate64;
    }
    "Advice about the same range of the real file." {
        size::posix_fadvise(fd: c_int, at: off_t, len: off_t, advice: c_int) -> c_int:
            posix_fadvise, posix_fadvise64;
        size::readahead(fd: c_int, at: off_t, len: size_t) -> ssize_t: readahead;
        size::sync_file_range(fd: c_int, at: off_t, len: off_t, flags: c_uint) -> c_int:
            sync_file_range;
    }
    "Of the real file; its errors are handed up and never retried." {
        sync::fsync(fd: c_int) -> c_int: fsync;
        sync::fdatasync(fd: c_int) -> c_int: fdatasync;
        sync::syncfs(fd: c_int) -> c_int: syncfs;
    }
    "Duplicates share one open file, in the kernel and in the table." {
        duplicate::dup(fd: c_int) -> c_int: dup;
        duplicate::dup2(fd: c_int, onto: c_int) -> c_int: dup2, __dup2;
        duplicate::dup3(fd: c_int, onto: c_int, flags: c_int) -> c_int: dup3;
    }
    "Duplicates, flags as the program gave them, record locks in plain bytes; leases and \
        unknown commands: EINVAL." {
        control::fcntl(fd: c_int, command: c_int, arg: c_long) -> c_int: fcntl, fcntl64,
            __fcntl, __libc_fcntl64, __fcntl_nocancel;
    }
    "Inode flags, bytes left, close-on-exec; sharing bytes between files: EOPNOTSUPP; else \
        ENOTTY." {
        control::ioctl(fd: c_int, request: c_ulong, arg: c_long) -> c_int: ioctl;
    }
    "A sealed file is no terminal: ENOTTY." {
        control::isatty(fd: c_int) -> c_int: isatty;
        control::ttyname(fd: c_int) -> *mut c_char: ttyname;
        control::ttyname_r(fd: c_int, into: *mut c_char, len: size_t) -> c_int: ttyname_r;
        control::ttyname_r_chk(fd: c_int, into: *mut c_char, len: size_t, room: size_t) -> c_int:
            __ttyname_r_chk;
    }
    "Held on the real file, in plain bytes." {
        locks::flock(fd: c_int, operation: c_int) -> c_int: flock;
        locks::lockf(fd: c_int, command: c_int, len: off_t) -> c_int: lockf, lockf64;
    }
    "Asked of, or changed on, the real file: not about bytes." {
        attributes::fchmod(fd: c_int, mode: mode_t) -> c_int: fchmod;
        attributes::fchown(fd: c_int, owner: uid_t, group: gid_t) -> c_int: fchown;
        attributes::fchownat(at: c_int, path: *const c_char, owner: uid_t, group: gid_t, flags:
            c_int) -> c_int: fchownat;
        attributes::futimens(fd: c_int, times: *const timespec) -> c_int: futimens;
        attributes::futimes(fd: c_int, times: *const timeval) -> c_int: futimes;
        attributes::utimensat(at: c_int, path: *const c_char, times: *const timespec, flags: c_int)
            -> c_int: utimensat;
        attributes::fstatfs(fd: c_int, into: *mut statfs) -> c_int: fstatfs, fstatfs64;
        attributes::fpathconf(fd: c_int, name: c_int) -> c_long: fpathconf;
        attributes::fstatvfs(fd: c_int, into: *mut statvfs) -> c_int: fstatvfs, fstatvfs64;
        attributes::fgetxattr(fd: c_int, name: *const c_char, into: *mut c_void, len: size_t) ->
            ssize_t: fgetxattr;
        attributes::fsetxattr(fd: c_int, name: *const c_char, from: *const c_void, len: size_t,
            flags: c_int) -> c_int: fsetxattr;
        attributes::flistxattr(fd: c_int, into: *mut c_char, len: size_t) -> ssize_t: flistxattr;
        attributes::fremovexattr(fd: c_int, name: *const c_char) -> c_int: fremovexattr;
    }
    "By the kernel; a descriptor's name (/proc/self/fd/N, /proc/PID/fd/N, /dev/fd/N) is the sealed \
        file, not the anchor. An index of SQLite may have another name (docs/decisions/0020)." {
        attributes::chmod(path: *const c_char, mode: mode_t) -> c_int: chmod;
        attributes::chown(path: *const c_char, owner: uid_t, group: gid_t) -> c_int: chown;
        attributes::access(path: *const c_char, mode: c_int) -> c_int: access;
        attributes::faccessat(at: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int:
            faccessat;
        attributes::utimes(path: *const c_char, times: *const timeval) -> c_int: utimes;
        attributes::utime(path: *const c_char, times: *const utimbuf) -> c_int: utime;
    }
    "By the kernel; a descriptor's name (/proc/self/fd/N, /proc/PID/fd/N, /dev/fd/N) is the sealed \
        file, not the anchor." {
        attributes::fchmodat(at: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int:
            fchmodat;
        attributes::statfs_of(path: *const c_char, into: *mut statfs) -> c_int: statfs,
            statfs64, __statfs;
        attributes::getxattr(path: *const c_char, name: *const c_char, into: *mut c_void, len:
            size_t) -> ssize_t: getxattr;
        attributes::setxattr(path: *const c_char, name: *const c_char, from: *const c_void, len:
            size_t, flags: c_int) -> c_int: setxattr;
        attributes::listxattr(path: *const c_char, into: *mut c_char, len: size_t) -> ssize_t:
            listxattr;
        attributes::removexattr(path: *const c_char, name: *const c_char) -> c_int: removexattr;
    }
    "A private map is a copy of at most 256 MiB; a shared one is refused: ENODEV." {
        map::mmap(address: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, at:
            off_t) -> *mut c_void: mmap, mmap64, __mmap;
    }
    "By the kernel; a copy stays where it would be filled with zeros, and one that may have been \
        changed is refused: EINVAL. Memory that goes away is not touched any more." {
        map::madvise(address: *mut c_void, len: size_t, advice: c_int) -> c_int: madvise, __madvise;
        map::munmap(address: *mut c_void, len: size_t) -> c_int: munmap, __munmap;
        map::mprotect(address: *mut c_void, len: size_t, protection: c_int) -> c_int:
            mprotect, __mprotect;
        map::mremap(old: *mut c_void, old_len: size_t, new_len: size_t, flags: c_int, new: *mut
            c_void) -> *mut c_void: mremap;
    }
    "A sealed file is always ready, as every regular file." {
        wait::poll(fds: *mut pollfd, n: nfds_t, timeout: c_int) -> c_int: poll, __poll;
        wait::poll_chk(fds: *mut pollfd, n: nfds_t, timeout: c_int, room: size_t) -> c_int:
            __poll_chk;
        wait::ppoll(fds: *mut pollfd, n: nfds_t, timeout: *const timespec, mask: *const sigset_t) ->
            c_int: ppoll;
        wait::ppoll_chk(fds: *mut pollfd, n: nfds_t, timeout: *const timespec, mask: *const
            sigset_t, room: size_t) -> c_int: __ppoll_chk;
        wait::select(n: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout:
            *mut timeval) -> c_int: select, __select;
        wait::pselect(n: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout:
            *const timespec, mask: *const sigset_t) -> c_int: pselect;
    }
    "Within one policy as the kernel does it; where the bytes would have to be other ones: EXDEV; \
        a whiteout: EINVAL." {
        names::rename(from: *const c_char, to: *const c_char) -> c_int: rename;
        names::renameat(from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char) ->
            c_int: renameat;
        names::renameat2(from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char,
            flags: c_uint) -> c_int: renameat2;
        names::link(from: *const c_char, to: *const c_char) -> c_int: link;
        names::linkat(from_at: c_int, from: *const c_char, to_at: c_int, to: *const c_char, flags:
            c_int) -> c_int: linkat;
    }
    "Made as it is; a link that leads out of a protected directory takes its target along." {
        names::symlink(target: *const c_char, path: *const c_char) -> c_int: symlink;
        names::symlinkat(target: *const c_char, at: c_int, path: *const c_char) -> c_int: symlinkat;
    }
    "Relative paths are judged from the new directory." {
        names::chdir(path: *const c_char) -> c_int: chdir;
        names::fchdir(fd: c_int) -> c_int: fchdir;
    }
    "As they are: libc lists names within itself, `.tidelock` among them, with sizes on the disk. \
        It may go into another directory: relative paths are judged from there." {
        walk::fts_read(walk: *mut c_void) -> *mut c_void: fts_read, fts64_read;
        walk::fts_children(walk: *mut c_void, options: c_int) -> *mut c_void: fts_children,
            fts64_children;
        walk::fts_close(walk: *mut c_void) -> c_int: fts_close, fts64_close;
    }
    "`.tidelock` of a protected directory is not there: it can be neither listed nor removed \
        nor entered." {
        listing::opendir(path: *const c_char) -> *mut DIR: opendir;
        names::unlink(path: *const c_char) -> c_int: unlink;
        names::unlinkat(at: c_int, path: *const c_char, flags: c_int) -> c_int: unlinkat;
        names::rmdir(path: *const c_char) -> c_int: rmdir;
        names::remove(path: *const c_char) -> c_int: remove;
        walk::glob(pattern: *const c_char, flags: c_int, error: *mut c_void, found: *mut Glob) ->
            c_int: glob, glob64;
        walk::nftw(path: *const c_char, visit: Visit, fds: c_int, flags: c_int) -> c_int: nftw,
            nftw64;
        walk::ftw(path: *const c_char, visit: Visit, fds: c_int) -> c_int: ftw, ftw64;
        listing::readdir(directory: *mut DIR) -> *mut dirent: readdir, readdir64;
        listing::readdir_r(directory: *mut DIR, entry: *mut dirent, result: *mut *mut dirent) ->
            c_int: readdir_r, readdir64_r;
        listing::scandir(path: *const c_char, list: *mut *mut *mut dirent, filter: Filter, order:
            Order) -> c_int: scandir, scandir64;
        listing::scandirat(at: c_int, path: *const c_char, list: *mut *mut *mut dirent, filter:
            Filter, order: Order) -> c_int: scandirat, scandirat64;
    }
    "Answered by fork: a child that shares memory would change the table of its parent." {
        processes::vfork() -> pid_t: vfork, __vfork, __libc_vfork;
    }
    "From here on offsets are shared with another process; fork itself tells by its handlers." {
        processes::fork_without_handlers() -> pid_t: _Fork;
        processes::daemon(stay: c_int, keep_open: c_int) -> c_int: daemon;
    }
    "A child with memory of its own shares offsets from here on; a thread goes on as it is. One \
        with its parent's memory and descriptors of its own would change the parent's table: it \
        is a fork where the parent waits for it (CLONE_VFORK), else refused: EINVAL; clone3 by \
        number: ENOSYS." {
        processes::clone(run: *mut c_void, stack: *mut c_void, flags: c_int, arg: *mut c_void,
            parent: *mut c_void, thread: *mut c_void, child: *mut c_void) -> c_int: clone,
            __clone;
    }
    "Without RTLD_DEEPBIND in a program with keys, so that a library's calls come here too; a \
        library in a protected directory is sealed and therefore refused." {
        load::dlopen(...) -> *mut c_void: dlopen;
    }
    "The same; in another namespace than the program's, with a libc of its own, refused: null." {
        load::dlmopen(...) -> *mut c_void: dlmopen;
    }
    "Refused where a lock on a sealed file would end by it that the program means to keep: ENOLCK. \
        Hidden descriptors are closed, visible ones are anchors that nobody can use." {
        exec::execve(...) -> c_int: execve;
        exec::execv(...) -> c_int: execv;
        exec::execvp(...) -> c_int: execvp;
        exec::execvpe(...) -> c_int: execvpe;
        exec::execl(...) -> c_int: execl;
        exec::execlp(...) -> c_int: execlp;
        exec::execle(...) -> c_int: execle;
        exec::fexecve(...) -> c_int: fexecve;
        exec::execveat(...) -> c_int: execveat;
    }
    "With CLONE_FILES, where others have the same memory (threads, children of clone), refused: \
        EINVAL, since there is one table; alone a thread keeps it. After \
        CLONE_FS relative paths are judged from the directory of the thread." {
        unshare::unshare(flags: c_int) -> c_int: unshare;
    }
    "Puts a terminal on 0, 1 and 2, which stand for nothing else from then on." {
        processes::login_tty(fd: c_int) -> c_int: login_tty;
        processes::forkpty(master: *mut c_int, name: *mut c_char, settings: *const c_void, size:
            *const c_void) -> pid_t: forkpty;
    }
    "As it is; noted, since the library stands on stacks of its own." {
        signals::sigaltstack(new: *const stack_t, before: *mut stack_t) -> c_int: sigaltstack;
    }
    "By number: see below." {
        direct::syscall(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f:
            c_long) -> c_long: syscall;
    }
    "On a sealed file a stream of fopencookie; ',ccs=' is refused: EINVAL." {
        streams::fopen(path: *const c_char, mode: *const c_char) -> *mut FILE: fopen,
            fopen64, _IO_fopen;
        streams::fdopen(fd: c_int, mode: *const c_char) -> *mut FILE: fdopen,
            _IO_fdopen;
    }
    "Standard streams are replaced by new ones; other streams of libc cannot be: EOPNOTSUPP." {
        streams::freopen(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE:
            freopen, freopen64;
    }
    "Letter by letter, by the locale that is in force at the call." {
        wide::fwide(file: *mut FILE, wanted: c_int) -> c_int: fwide;
        wide::fgetwc(file: *mut FILE) -> c_uint: fgetwc, getwc, fgetwc_unlocked, getwc_unlocked;
        wide::getwchar() -> c_uint: getwchar, getwchar_unlocked;
        wide::ungetwc(letter: c_uint, file: *mut FILE) -> c_uint: ungetwc;
        wide::fgetws(into: *mut wchar_t, len: c_int, file: *mut FILE) -> *mut wchar_t: fgetws,
            fgetws_unlocked;
        wide::fgetws_chk(into: *mut wchar_t, room: size_t, len: c_int, file: *mut FILE) -> *mut
            wchar_t: __fgetws_chk, __fgetws_unlocked_chk;
        wide::putwc(letter: wchar_t, file: *mut FILE) -> c_uint: putwc, putwc_unlocked, fputwc,
            fputwc_unlocked;
        wide::putwchar(letter: wchar_t) -> c_uint: putwchar, putwchar_unlocked;
        wide::fputws(text: *const wchar_t, file: *mut FILE) -> c_int: fputws, fputws_unlocked;
    }
    "Formatted in memory, then written letter by letter." {
        wide::fwprintf(...) -> c_int: fwprintf;
        wide::fwprintf_chk(...) -> c_int: __fwprintf_chk;
        wide::wprintf(...) -> c_int: wprintf;
        wide::wprintf_chk(...) -> c_int: __wprintf_chk;
        wide::vfwprintf(file: *mut FILE, format: *const wchar_t, list: *mut c_void) -> c_int:
            vfwprintf;
        wide::vfwprintf_chk(file: *mut FILE, flag: c_int, format: *const wchar_t, list: *mut
            c_void) -> c_int: __vfwprintf_chk;
        wide::vwprintf(format: *const wchar_t, list: *mut c_void) -> c_int: vwprintf;
        wide::vwprintf_chk(flag: c_int, format: *const wchar_t, list: *mut c_void) -> c_int:
            __vwprintf_chk;
    }
    "Formatted in memory, then written as by write." {
        print::dprintf(...) -> c_int: dprintf;
        print::dprintf_chk(...) -> c_int: __dprintf_chk;
        print::vdprintf(fd: c_int, format: *const c_char, list: *mut c_void) -> c_int: vdprintf;
        print::vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, list: *mut c_void) ->
            c_int: __vdprintf_chk;
    }
    "A link of a protected directory takes its target along before the program gets a name; a \
        descriptor's name tells the sealed file, not the anchor." {
        proc::readlink(path: *const c_char, into: *mut c_char, len: size_t) -> ssize_t: readlink;
        proc::readlinkat(at: c_int, path: *const c_char, into: *mut c_char, len: size_t) -> ssize_t:
            readlinkat;
        proc::readlink_chk(path: *const c_char, into: *mut c_char, len: size_t, room: size_t) ->
            ssize_t: __readlink_chk;
        proc::readlinkat_chk(at: c_int, path: *const c_char, into: *mut c_char, len: size_t, room:
            size_t) -> ssize_t: __readlinkat_chk;
        proc::realpath(path: *const c_char, into: *mut c_char) -> *mut c_char: realpath;
        proc::realpath_chk(path: *const c_char, into: *mut c_char, room: size_t) -> *mut c_char:
            __realpath_chk;
        proc::canonicalize_file_name(path: *const c_char) -> *mut c_char: canonicalize_file_name;
    }
    "A stream as by fopen and fclose; those of libc close the descriptor without asking us, so \
        the table is cleared first." {
        streams::setmntent(path: *const c_char, mode: *const c_char) -> *mut FILE: setmntent,
            __setmntent;
        streams::endmntent(file: *mut FILE) -> c_int: endmntent, __endmntent;
        streams::file_close(file: *mut FILE) -> c_int: _IO_file_close;
        streams::file_close_it(file: *mut FILE) -> c_int: _IO_file_close_it;
        streams::file_finish(file: *mut FILE, always_zero: c_int) -> (): _IO_file_finish;
        listing::closedir(directory: *mut DIR) -> c_int: closedir;
    }
    "The descriptor behind a stream of ours; closing a stream of libc also clears the table." {
        streams::fileno(file: *mut FILE) -> c_int: fileno, fileno_unlocked;
        streams::fclose(file: *mut FILE) -> c_int: fclose, _IO_fclose;
    }
    "By the kernel; a new limit of descriptors moves what is hidden." {
        limits::setrlimit(resource: c_int, limit: *const rlimit) -> c_int: setrlimit, setrlimit64;
        limits::prlimit(of: pid_t, resource: c_int, limit: *const rlimit, before: *mut rlimit)
            -> c_int: prlimit, prlimit64;
    }
    "libaio: whole units with direct access by the kernel's own requests, the rest on the spot." {
        asynchronous::io_setup(count: c_int, context: *mut c_void) -> c_int: io_setup;
        asynchronous::io_destroy(context: *mut c_void) -> c_int: io_destroy;
        asynchronous::io_submit(context: *mut c_void, count: c_long, list: *mut *mut c_void) ->
            c_int: io_submit;
        asynchronous::io_cancel(context: *mut c_void, request: *mut c_void, event: *mut c_void) ->
            c_int: io_cancel;
        asynchronous::io_getevents(context: *mut c_void, least: c_long, most: c_long, into: *mut
            c_void, timeout: *mut timespec) -> c_int: io_getevents;
        asynchronous::io_pgetevents(context: *mut c_void, least: c_long, most: c_long, into: *mut
            c_void, timeout: *mut timespec, mask: *mut sigset_t) -> c_int: io_pgetevents;
    }
}
refusals {
    EINVAL "Moves bytes within the kernel; programs then copy by reading and writing." {
        transfer::sendfile(to: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t:
            sendfile, sendfile64;
        transfer::splice(from: c_int, from_at: *mut loff_t, to: c_int, to_at: *mut loff_t, len:
            size_t, flags: c_uint) -> ssize_t: splice;
        transfer::tee(from: c_int, to: c_int, len: size_t, flags: c_uint) -> ssize_t: tee;
    }
    EBADF "A sealed file is no pipe." {
        transfer::vmsplice(fd: c_int, pieces: *const iovec, n: size_t, flags: c_uint) -> ssize_t:
            vmsplice;
    }
    EXDEV "Copies sealed bytes from file to file; programs then copy by reading and writing." {
        transfer::copy_file_range(from: c_int, from_at: *mut loff_t, to: c_int, to_at: *mut loff_t,
            len: size_t, flags: c_uint) -> ssize_t: copy_file_range;
    }
    EPERM "As for every regular file." {
        wait::epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) ->
            c_int: epoll_ctl;
    }
    ENOSYS "Asynchronous I/O of libc writes from threads within libc." {
        asynchronous::aio_read(request: *mut aiocb) -> c_int: aio_read, aio_read64;
        asynchronous::aio_write(request: *mut aiocb) -> c_int: aio_write, aio_write64;
        asynchronous::aio_fsync(operation: c_int, request: *mut aiocb) -> c_int: aio_fsync,
            aio_fsync64;
        asynchronous::lio_listio(mode: c_int, requests: *const *mut aiocb, n: c_int, event: *mut
            sigevent) -> c_int: lio_listio, lio_listio64;
    }
    ENOSYS "Rings go round libc; refused from the start, so that programs fall back." {
        asynchronous::io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) ->
            c_int: io_uring_queue_init;
        asynchronous::io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters:
            *mut c_void) -> c_int: io_uring_queue_init_params;
        asynchronous::io_uring_queue_init_mem(entries: c_uint, ring: *mut c_void, parameters: *mut
            c_void, memory: *mut c_void, len: size_t) -> c_int: io_uring_queue_init_mem;
        asynchronous::io_uring_setup(entries: c_uint, parameters: *mut c_void) -> c_int:
            io_uring_setup;
    }
    EOPNOTSUPP "On a sealed file nothing is read by a wide format, and the stream shows the \
        error." {
        wide::vfwscanf(file: *mut FILE, format: *const wchar_t, list: *mut c_void) -> c_int:
            vfwscanf;
        wide::vwscanf(format: *const wchar_t, list: *mut c_void) -> c_int: vwscanf;
        wide::fwscanf(...) -> c_int: fwscanf;
        wide::wscanf(...) -> c_int: wscanf;
        wide::__isoc99_vfwscanf(file: *mut FILE, format: *const wchar_t, list: *mut c_void) ->
            c_int: __isoc99_vfwscanf;
        wide::vwscanf_99(format: *const wchar_t, list: *mut c_void) -> c_int: __isoc99_vwscanf;
        wide::fwscanf_99(...) -> c_int: __isoc99_fwscanf;
        wide::wscanf_99(...) -> c_int: __isoc99_wscanf;
        wide::__isoc23_vfwscanf(file: *mut FILE, format: *const wchar_t, list: *mut c_void) ->
            c_int: __isoc23_vfwscanf;
        wide::vwscanf_23(format: *const wchar_t, list: *mut c_void) -> c_int: __isoc23_vwscanf;
        wide::fwscanf_23(...) -> c_int: __isoc23_fwscanf;
        wide::wscanf_23(...) -> c_int: __isoc23_wscanf;
    }
    EOPNOTSUPP "Opens a file without a path that could be judged." {
        open::open_by_handle_at(mount: c_int, handle: *mut c_void, flags: c_int) -> c_int:
            open_by_handle_at;
    }
    EOPNOTSUPP "libc, or the kernel, would write plain bytes to the path within itself." {
        within::updwtmp(path: *const c_char, entry: *const c_void) -> (): updwtmp, updwtmpx;
        within::utmpname(path: *const c_char) -> c_int: utmpname, utmpxname;
        within::acct(path: *const c_char) -> c_int: acct;
        within::swapon(path: *const c_char, flags: c_int) -> c_int: swapon;
        within::file_fopen(file: *mut FILE, path: *const c_char, mode: *const c_char, small: c_int)
            -> *mut FILE: _IO_file_fopen;
        within::file_open(file: *mut FILE, path: *const c_char, flags: c_int, mode: c_int, access:
            c_int, small: c_int) -> *mut FILE: _IO_file_open;
    }
    EOPNOTSUPP "The child would write plain bytes there before it is another program. A relative \
        path for writing is refused after another action, which may have changed the directory." {
        within::spawn_opens(actions: *mut c_void, fd: c_int, path: *const c_char, flags: c_int,
            mode: mode_t) -> c_int: posix_spawn_file_actions_addopen;
    }
    EPERM "Changes what every path means, also that of the protected directory; refused in a \
        program with keys, after a line." {
        names::chroot(path: *const c_char) -> c_int: chroot;
        names::pivot_root(new: *const c_char, old: *const c_char) -> c_int: pivot_root;
    }
    ENOSYS "May take a hidden descriptor from another process of the server; refused whatever it \
        is." {
        within::pidfd_getfd(pidfd: c_int, fd: c_int, flags: c_uint) -> c_int: pidfd_getfd;
    }
    EINVAL "The kernel would open files for writing as they are; events that are read only are \
        given." {
        within::fanotify_init(flags: c_uint, event_flags: c_uint) -> c_int: fanotify_init;
    }
}
    } };
}

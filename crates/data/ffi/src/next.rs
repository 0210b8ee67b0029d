//! The functions of libc, and of libraries behind us, that a hook stands in front of and must call:
//! those that own memory of their own (FILE, DIR, rings), which no system call can replace.
//!
//! Looked up once when the library starts; a constructor of another library that calls first looks
//! up what it needs, and finds the same.
//!
//! UNSAFETY: an address from dlsym has the type that the C library documents for that name.
#![expect(unsafe_code, reason = "functions found by name")]
#![expect(non_snake_case, reason = "the names of libc")]

use core::ffi::{CStr, c_char, c_int, c_long, c_uint, c_void};
use core::sync::atomic::{AtomicPtr, Ordering::Acquire, Ordering::Release};

use libc::{DIR, FILE, aiocb, dirent, mode_t, off_t, pid_t, sigevent, size_t, statvfs, wchar_t};
use tidelock_engine::Errno;

use crate::hooks::listing::{Filter, Order};
use crate::hooks::walk::{Glob, Visit};
use crate::raw::{self, Outcome as _};
use crate::stdio::cookie::Functions;

macro_rules! next {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty, else $missing:expr;)*) => {
        $(
            pub(crate) unsafe fn $name($($arg: $type),*) -> $result {
                type Function = unsafe extern "C" fn($($type),*) -> $result;
                let address = find(&places::$name, name!($name));
                if address.is_null() {
                    raw::set_errno(Errno::NOSYS);
                    return $missing;
                }
                // SAFETY: the function of this name has this type, and libraries stay.
                let function = unsafe { core::mem::transmute::<*mut c_void, Function>(address) };
                // SAFETY: the caller's promise is that of the function.
                unsafe { function($($arg),*) }
            }
        )*

        mod places {
            use super::{AtomicPtr, c_void};
            $(#[expect(non_upper_case_globals, reason = "the names of libc")]
            pub(super) static $name: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());)*
        }

        /// Looks all of them up; called when the library starts.
        pub(crate) fn find_all() {
            $(find(&places::$name, name!($name));)*
            dlopen_place();
            dlmopen_place();
            exec_places::find_all();
        }
    };
}

macro_rules! name {
    ($name:ident) => {
        match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => c"",
        }
    };
}

const NULL: *mut c_void = core::ptr::null_mut();
/// Of a function that answers nothing.
const NOTHING: () = ();

next! {
    fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE, else
        NULL.cast();
    fopen(path: *const c_char, mode: *const c_char) -> *mut FILE, else NULL.cast();
    fdopen(fd: c_int, mode: *const c_char) -> *mut FILE, else NULL.cast();
    freopen(path: *const c_char, mode: *const c_char, file: *mut FILE) -> *mut FILE, else
        NULL.cast();
    fclose(file: *mut FILE) -> c_int, else -1;
    _IO_file_fopen(file: *mut FILE, path: *const c_char, mode: *const c_char, small: c_int) ->
        *mut FILE, else NULL.cast();
    _IO_file_open(file: *mut FILE, path: *const c_char, flags: c_int, mode: c_int, access: c_int,
        small: c_int) -> *mut FILE, else NULL.cast();
    _IO_file_close(file: *mut FILE) -> c_int, else -1;
    _IO_file_close_it(file: *mut FILE) -> c_int, else -1;
    _IO_file_finish(file: *mut FILE, always_zero: c_int) -> (), else NOTHING;
    setmntent(path: *const c_char, mode: *const c_char) -> *mut FILE, else NULL.cast();
    updwtmp(path: *const c_char, entry: *const c_void) -> (), else NOTHING;
    utmpname(path: *const c_char) -> c_int, else -1;
    posix_spawn_file_actions_addopen(actions: *mut c_void, fd: c_int, path: *const c_char, flags:
        c_int, mode: mode_t) -> c_int, else libc::ENOSYS;
    fileno(file: *mut FILE) -> c_int, else -1;
    fgetwc(file: *mut FILE) -> c_uint, else c_uint::MAX;
    putwc(letter: wchar_t, file: *mut FILE) -> c_uint, else c_uint::MAX;
    ungetwc(letter: c_uint, file: *mut FILE) -> c_uint, else c_uint::MAX;
    fgetws(into: *mut wchar_t, len: c_int, file: *mut FILE) -> *mut wchar_t, else NULL.cast();
    __fgetws_chk(into: *mut wchar_t, room: size_t, len: c_int, file: *mut FILE) -> *mut wchar_t,
        else NULL.cast();
    fwide(file: *mut FILE, wanted: c_int) -> c_int, else 0;
    fputws(text: *const wchar_t, file: *mut FILE) -> c_int, else -1;
    vfwprintf(file: *mut FILE, format: *const wchar_t, list: *mut c_void) -> c_int, else -1;
    __vfwprintf_chk(file: *mut FILE, flag: c_int, format: *const wchar_t, list: *mut c_void) ->
        c_int, else -1;
    vfwscanf(file: *mut FILE, format: *const wchar_t, list: *mut c_void) -> c_int, else -1;
    __isoc99_vfwscanf(file: *mut FILE, format: *const wchar_t, list: *mut c_void) -> c_int, else
        -1;
    __isoc23_vfwscanf(file: *mut FILE, format: *const wchar_t, list: *mut c_void) -> c_int, else
        -1;
    vdprintf(fd: c_int, format: *const c_char, list: *mut c_void) -> c_int, else -1;
    opendir(path: *const c_char) -> *mut DIR, else NULL.cast();
    closedir(directory: *mut DIR) -> c_int, else -1;
    realpath(path: *const c_char, into: *mut c_char) -> *mut c_char, else NULL.cast();
    __realpath_chk(path: *const c_char, into: *mut c_char, room: size_t) -> *mut c_char, else
        NULL.cast();
    glob(pattern: *const c_char, flags: c_int, error: *mut c_void, found: *mut Glob) -> c_int, else
        libc::ENOSYS;
    nftw(path: *const c_char, visit: Visit, fds: c_int, flags: c_int) -> c_int, else -1;
    ftw(path: *const c_char, visit: Visit, fds: c_int) -> c_int, else -1;
    fts_read(walk: *mut c_void) -> *mut c_void, else NULL;
    fts_children(walk: *mut c_void, options: c_int) -> *mut c_void, else NULL;
    fts_close(walk: *mut c_void) -> c_int, else -1;
    readdir(directory: *mut DIR) -> *mut dirent, else NULL.cast();
    readdir_r(directory: *mut DIR, entry: *mut dirent, result: *mut *mut dirent) -> c_int, else
        libc::ENOSYS;
    scandir(path: *const c_char, list: *mut *mut *mut dirent, filter: Filter, order: Order) ->
        c_int, else -1;
    scandirat(at: c_int, path: *const c_char, list: *mut *mut *mut dirent, filter: Filter, order:
        Order) -> c_int, else -1;
    fchmodat(at: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int, else -1;
    faccessat(at: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int, else -1;
    fpathconf(fd: c_int, name: c_int) -> c_long, else -1;
    fstatvfs(fd: c_int, into: *mut statvfs) -> c_int, else -1;
    posix_fallocate(fd: c_int, at: off_t, len: off_t) -> c_int, else libc::ENOSYS;
    ttyname(fd: c_int) -> *mut c_char, else NULL.cast();
    ttyname_r(fd: c_int, into: *mut c_char, len: size_t) -> c_int, else libc::ENOSYS;
    _Fork() -> pid_t, else plain_fork();
    clone(run: *mut c_void, stack: *mut c_void, flags: c_int, arg: *mut c_void, parent: *mut c_void,
        thread: *mut c_void, child: *mut c_void) -> c_int, else -1;
    daemon(stay: c_int, keep_open: c_int) -> c_int, else -1;
    forkpty(master: *mut c_int, name: *mut c_char, settings: *const c_void, size: *const c_void) ->
        pid_t, else -1;
    aio_read(request: *mut aiocb) -> c_int, else -1;
    aio_write(request: *mut aiocb) -> c_int, else -1;
    aio_fsync(operation: c_int, request: *mut aiocb) -> c_int, else -1;
    lio_listio(mode: c_int, requests: *const *mut aiocb, n: c_int, event: *mut sigevent) -> c_int,
        else -1;
    io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int, else
        -libc::ENOSYS;
    io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters: *mut c_void) ->
        c_int, else -libc::ENOSYS;
    io_uring_queue_init_mem(entries: c_uint, ring: *mut c_void, parameters: *mut c_void, memory:
        *mut c_void, len: usize) -> c_int, else -libc::ENOSYS;
    io_uring_setup(entries: c_uint, parameters: *mut c_void) -> c_int, else -libc::ENOSYS;
}

/// The address of dlopen, to jump to.
pub(crate) fn dlopen_place() -> *mut c_void {
    static PLACE: AtomicPtr<c_void> = AtomicPtr::new(NULL);
    find(&PLACE, c"dlopen")
}

/// The address of dlmopen, to jump to.
pub(crate) fn dlmopen_place() -> *mut c_void {
    static PLACE: AtomicPtr<c_void> = AtomicPtr::new(NULL);
    find(&PLACE, c"dlmopen")
}

/// The addresses of exec and its kin, to jump to.
pub(crate) mod exec_places {
    use super::{AtomicPtr, CStr, NULL, c_void, find};

    macro_rules! places {
        ($($name:ident)*) => {
            $(pub(crate) fn $name() -> *mut c_void {
                static PLACE: AtomicPtr<c_void> = AtomicPtr::new(NULL);
                find(&PLACE, name!($name))
            })*

            /// A child of fork looks nothing up.
            pub(super) fn find_all() {
                $($name();)*
            }
        };
    }

    places! { execve execv execvp execvpe execl execlp execle fexecve execveat }
}

fn find(place: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = place.load(Acquire);
    if !known.is_null() {
        return known;
    }
    // SAFETY: a string, and the libraries behind this one.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    place.store(found, Release);
    found
}

/// What _Fork does, for a libc that has none (before glibc 2.34).
fn plain_fork() -> pid_t {
    pid_t::from_word(raw::answer(fork_call()))
}

fn fork_call() -> i64 {
    // SAFETY: takes nothing; the child goes on as a copy.
    unsafe { raw::call(libc::SYS_fork, []) }
}

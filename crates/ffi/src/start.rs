//! From ld.so to a working engine: is this program listed, which directories, which keys?
//!
//! In a program that is not listed two small files are read, and the guard begins (guard.rs). In a listed one
//! everything is ready before main, or the process ends with an error and a hint: it never runs unprotected.
//!
//! UNSAFETY: the environment as main gets it, and a mapping for good.
#![expect(unsafe_code, reason = "the environment and a mapping for good")]

use core::ffi::c_char;
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};
use tidelock_engine::{Decided, Errno, Fd, PathBuffer, System};

use crate::environment::Environment;
use crate::process::{ActivePolicy, begin, process, starting};
use crate::{
    cores, datakeys, guard, handshake, hooks, limits, memory, mounts, next, recovery, renewal,
    report, scratch, stack, system, words,
};

/// The sockets of the agents, separated by colons, one for each protected directory.
const AGENTS: &[u8] = b"TIDELOCK_AGENT=";
/// The program that `tidelock exec` has named for this run.
const NAMED: &[u8] = b"TIDELOCK_PROGRAM=";
/// The exit code for everything that concerns keys.
const EXIT_KEY: i32 = 4;
const EXIT_REFUSED: i32 = 3;

/// Starts the library, once. `environment` is main's third argument.
///
/// # Safety
/// `environment` is a null-terminated array of C strings, or null.
pub unsafe fn start(environment: *const *const c_char) {
    if process().is_some() {
        return;
    }
    // SAFETY: the caller's promise; it is the process's own, which nobody changes before main.
    let environment = unsafe { Environment::new(environment) };
    let Some(agents) = environment.value(AGENTS) else { return };
    let mut exe = PathBuffer::new();
    let mut room = [0u8; 4096];
    let Ok(count) = starting().system().read_link(Fd::CWD, b"/proc/self/exe\0", &mut room) else {
        return;
    };
    if exe.set(room.get(..count).unwrap_or_default()).is_err() {
        return;
    }
    let mut sockets = agents.split(|&byte| byte == b':').filter(|socket| !socket.is_empty());
    // It asks whatever the lists say: an agent that was started anew does not know it, and refuses.
    let named = environment.value(NAMED) == Some(exe.as_bytes());
    let listed = sockets.clone().any(|socket| handshake::lists(socket, exe.as_bytes()));
    if listed {
        // What a server starts is not what the user named: a shell of archive_command stays without keys.
        environment.remove(NAMED);
    }
    if named || listed {
        memory::start();
        stack::start();
        report::start();
        scratch::start();
        memory::serve_aws_lc();
        limits::make_room();
        renewal::keep_environment(environment);
        let mut core_dumps = true;
        sockets.by_ref().for_each(|socket| {
            core_dumps &= protect(socket, exe.as_bytes(), environment);
        });
        if !core_dumps {
            cores::forbid();
        }
        memory::wipe_stack::<{ memory::IN_PROGRAMS }>();
        starting().cipher().warm_up();
        system::refresh_working_directory();
        next::find_all();
        hooks::processes::watch_forks();
        begin();
        attach_links();
        refuse_inherited();
    } else {
        guard::start(sockets, exe.as_bytes());
    }
}

/// Asks one agent for its directory and keys; true if this program may leave core files.
#[inline(never)]
fn protect(socket: &[u8], exe: &[u8], environment: Environment) -> bool {
    let name = String::from_utf8_lossy(socket);
    let granted = match handshake::ask(socket, environment) {
        Ok(granted) => granted,
        Err(why) => report::fatal(
            format_args!("no key for {}: {why} ({name})", String::from_utf8_lossy(exe)),
            "start the program with `tidelock exec -D DIR -- PROGRAM`, which unlocks the directory",
            EXIT_KEY,
        ),
    };
    if let Err(why) = set_up(&granted, socket, exe) {
        report::fatal(
            format_args!("{} cannot be used: {why}", granted.grant.directory.display()),
            "`tidelock verify -D DIR` tells what is wrong with it",
            EXIT_REFUSED,
        );
    }
    conceal(granted.connection);
    granted.grant.core_dumps
}

fn set_up(granted: &handshake::Granted, socket: &[u8], exe: &[u8]) -> Result<(), String> {
    let grant = &granted.grant;
    let directory = grant.directory.as_os_str().as_bytes();
    let errno = |what: &'static str| move |error: Errno| format!("{what} (errno {})", error.0);
    let root = starting()
        .roots()
        .add(directory, ActivePolicy::new(grant.policy.clone()), grant.layout)
        .map_err(errno("its path is too long, or there are too many directories"))?;
    mounts::learn(root, directory);
    if !datakeys::take_granted(root, grant) {
        return Err("it has more data keys than this library can hold".into());
    }
    renewal::watch(root, socket);
    let anchor =
        control_file(&grant.directory, tidelock_keys::ANCHOR, OFlags::PATH | OFlags::NOFOLLOW)?;
    starting().system().set_anchor(root, Fd(conceal(anchor)));
    share_words(root, &grant.directory)?;
    if grant.policy.recovers(exe) {
        let mut control = PathBuffer::new();
        let joined = [directory, b"/global/pg_control"].concat();
        control.set(&joined).map_err(errno("its path is too long"))?;
        recovery::watch(root, control);
        starting().system().set_may_rekey(root);
    }
    Ok(())
}

/// Opens what is in `.tidelock`, by no link: a program of root's may work on a directory of another user, who puts a
/// link or a second name of another file there at any moment.
fn control_file(directory: &Path, name: &str, flags: OFlags) -> Result<OwnedFd, String> {
    use rustix::fs::{FileType, ResolveFlags, fstat, openat, openat2};
    use rustix::io::Errno;
    let path = directory.join(tidelock_keys::FOLDER).join(name);
    let failed = |error: Errno| format!("{}: {error}", path.display());
    let way = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = match openat2(CWD, directory, way, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // A kernel or a sandbox without openat2.
        Err(Errno::NOSYS) => openat(CWD, directory, way | OFlags::NOFOLLOW, Mode::empty()),
        opened => opened,
    };
    let above = above.map_err(failed)?;
    let folder = openat(&above, tidelock_keys::FOLDER, way | OFlags::NOFOLLOW, Mode::empty());
    // A pipe in its place holds nobody.
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = openat(folder.map_err(failed)?, name, flags, Mode::empty()).map_err(failed)?;
    let (owner, found) = (fstat(&above).map_err(failed)?.st_uid, fstat(&file).map_err(failed)?);
    let me = rustix::process::geteuid().as_raw();
    let is_anchor = name == tidelock_keys::ANCHOR;
    let kind = if is_anchor { FileType::Symlink } else { FileType::RegularFile };
    let refused = |why: &str| Err(format!("{}: {why}", path.display()));
    if FileType::from_raw_mode(found.st_mode) != kind {
        return refused("somebody has put something else in its place");
    }
    if ![0, me, owner].contains(&found.st_uid) {
        return refused("it belongs to somebody else");
    }
    // Copies of hard links are no harm to their owner, who alone can have linked another file of one's own here.
    if !is_anchor && found.st_nlink > 1 && me != owner {
        return refused("it has a second name, a hard link, elsewhere");
    }
    Ok(file)
}

/// Meets the other processes of the directory, and maps the memory that they share.
fn share_words(root: u8, directory: &Path) -> Result<(), String> {
    use rustix::mm::{MapFlags, ProtFlags};
    let open = |flags| control_file(directory, tidelock_keys::FILE_LOCK, flags | OFlags::NOFOLLOW);
    let lock = open(OFlags::RDWR).or_else(|_| open(OFlags::RDONLY))?;
    let met =
        tidelock_keys::meet(lock.as_fd(), words::MAP as u64).map_err(|why| why.to_string())?;
    words::set_lock_file(root, Fd(conceal(lock)));
    let Some(memory) = met.memory else { return Ok(()) };
    let rights = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a shared mapping of the file in memory, wherever the kernel likes, for good.
    let mapped = unsafe {
        rustix::mm::mmap(core::ptr::null_mut(), words::MAP, rights, MapFlags::SHARED, &memory, 0)
    };
    let map = mapped.map_err(|error| format!("its shared memory: {error}"))?;
    words::set_memory(root, Fd(conceal(memory)), map.cast());
    if !words::can_have_number(root) {
        return Err("the system gives this program no record locks (fcntl), by which processes \
                    learn which others live: is it in a sandbox?"
            .into());
    }
    Ok(())
}

/// Moves a descriptor of ours to where the program does not find it; its new number.
pub(crate) fn conceal(fd: OwnedFd) -> i32 {
    let system = starting().system();
    let moved =
        system.duplicate(Fd(std::os::fd::AsRawFd::as_raw_fd(&fd)), system.hidden_from(), true);
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
    hidden.0
}

/// Links of a protected directory that lead out of it, such as pg_wal and the tablespaces: their
/// targets belong to it, by whatever path they are reached.
pub(crate) fn attach_links() {
    let mut number = 0;
    while let Some(directory) = starting().roots().path(number) {
        attach_links_in(directory);
        let mut spaces = directory.to_vec();
        spaces.extend_from_slice(b"/pg_tblspc");
        attach_links_in(&spaces);
        number += 1;
    }
}

fn attach_links_in(directory: &[u8]) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(fd) = rustix::fs::openat(CWD, directory, flags, Mode::empty()) else { return };
    let mut room = [core::mem::MaybeUninit::uninit(); 4096];
    let mut entries = rustix::fs::RawDir::new(fd.as_fd(), &mut room);
    while let Some(Ok(entry)) = entries.next() {
        if entry.file_type() == rustix::fs::FileType::Symlink {
            let link = [directory, b"/", entry.file_name().to_bytes()].concat();
            starting().attach(&link);
        }
    }
}

/// A regular file of ours that was opened by whoever started us is written without being sealed:
/// `pg_ctl -l DIR/log` lets a shell do that.
fn refuse_inherited() {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(listing) = rustix::fs::openat(CWD, c"/proc/self/fd", flags, Mode::empty()) else {
        return;
    };
    let mut room = [core::mem::MaybeUninit::uninit(); 4096];
    let mut entries = rustix::fs::RawDir::new(listing.as_fd(), &mut room);
    while let Some(Ok(entry)) = entries.next() {
        let Some(number) = entry.file_name().to_str().ok().and_then(|name| name.parse().ok())
        else {
            continue;
        };
        refuse_if_ours(number);
    }
}

fn refuse_if_ours(number: i32) {
    let system = starting().system();
    let regular = tidelock_engine::Kernel::stat(system, Fd(number)).is_ok_and(|stat| stat.regular);
    let mut path = [0u8; 4096];
    if !regular {
        return;
    }
    let Ok(count) = system.path_of(Fd(number), &mut path) else { return };
    let path = path.get(..count).unwrap_or_default();
    if let Decided::Sealed(..) = starting().roots().decide(path) {
        report::fatal(
            format_args!(
                "descriptor {number} is {}, opened outside this program, so its bytes would not be sealed",
                String::from_utf8_lossy(path)
            ),
            "write that file elsewhere, for example `pg_ctl -l /var/log/...`, or let logging_collector write it",
            EXIT_REFUSED,
        );
    }
}

#[cfg(feature = "exports")]
mod constructor {
    use core::ffi::{c_char, c_int};

    /// glibc calls it with main's arguments before main, and before other libraries' constructors (-z initfirst).
    extern "C" fn on_load(
        _count: c_int,
        _arguments: *const *const c_char,
        environment: *const *const c_char,
    ) {
        // SAFETY: glibc passes the environment of the process.
        unsafe { super::start(environment) };
    }

    #[used]
    // SAFETY: the section holds addresses of such functions.
    #[unsafe(link_section = ".init_array")]
    static ON_LOAD: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = on_load;

    unsafe extern "C" {
        /// environ(7), which libc sets to the same value when its own turn comes, after ours.
        static mut environ: *const *const c_char;
    }

    /// AWS-LC's constructor asks getenv for OPENSSL_ia32cap when it chooses its code for the CPU.
    extern "C" fn before_aws_lc(
        _count: c_int,
        _arguments: *const *const c_char,
        environment: *const *const c_char,
    ) {
        // SAFETY: no other thread exists yet, and glibc passes the environment of the process.
        unsafe { environ = environment };
    }

    #[used]
    // SAFETY: as above; sections with a number come first, in their order.
    #[unsafe(link_section = ".init_array.00001")]
    static FIRST: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = before_aws_lc;
}

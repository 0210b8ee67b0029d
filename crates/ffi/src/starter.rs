//! Starts an agent where none is alive, by the command that the last one left beside its socket.
//!
//! ```text
//!   this program, before main --posix_spawn--> tidelock agent start SOCKET DIR
//!        | waitpid                               | unlocks without a terminal
//!        |                                       | starts the agent, which is nobody's child
//!        | <------------------------------- ends |
//! ```
//!
//! The command has the program's environment without the library, no standard input, and the
//! program's standard error for its reasons.
//!
//! UNSAFETY: posix_spawn and what it is told.
#![expect(unsafe_code, reason = "posix_spawn")]

use core::ffi::{CStr, c_char};
use core::mem::MaybeUninit;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, waitpid};
use tidelock_agent::Starter;

use crate::environment::Environment;

/// What the command must not have: it would ask for keys itself.
pub(crate) const OURS: [&[u8]; 3] = [b"LD_PRELOAD=", b"TIDELOCK_AGENT=", b"TIDELOCK_PROGRAM="];

/// Makes sure that an agent listens at `socket`, if one can be started without anybody at a terminal.
/// False if nothing tells how.
///
/// # Errors
/// A sentence: the command cannot be run, or ended badly and has said why.
pub(crate) fn start_agent(socket: &[u8], environment: Environment) -> Result<bool, String> {
    let path = Path::new(OsStr::from_bytes(socket));
    let Some(starter) = Starter::beside(path).map_err(|why| why.to_string())? else {
        return Ok(false);
    };
    let text = |bytes: &[u8]| CString::new(bytes).map_err(|why| why.to_string());
    let program = text(starter.program.as_os_str().as_bytes())?;
    let directory = text(starter.directory.as_os_str().as_bytes())?;
    let socket = text(socket)?;
    let arguments = [&program, c"agent", c"start", &socket, &directory];
    let child = spawn(&program, &arguments, environment)
        .map_err(|why| format!("{} cannot be run: {why}", starter.program.display()))?;
    if ended_well(child) {
        Ok(true)
    } else {
        Err("no agent is alive, and none could be started without a terminal".into())
    }
}

fn spawn(program: &CStr, arguments: &[&CStr], environment: Environment) -> Result<Pid, Errno> {
    let pointers = |texts: &mut dyn Iterator<Item = &CStr>| -> Vec<*mut c_char> {
        texts.map(|text| text.as_ptr().cast_mut()).chain([core::ptr::null_mut()]).collect()
    };
    let kept = |entry: &&CStr| !OURS.iter().any(|name| entry.to_bytes().starts_with(name));
    let arguments = pointers(&mut arguments.iter().copied());
    let environment = pointers(&mut environment.entries().filter(kept));
    let mut how = How::new()?;
    let mut child = 0;
    // SAFETY: both arrays end with a null and hold C strings that outlive the call; `how` is
    // initialised.
    check(unsafe {
        libc::posix_spawn(
            &raw mut child,
            program.as_ptr(),
            how.actions.as_ptr(),
            how.attributes.as_mut_ptr(),
            arguments.as_ptr(),
            environment.as_ptr(),
        )
    })?;
    Pid::from_raw(child).ok_or(Errno::CHILD)
}

/// Standard input from /dev/null; no signal is blocked or ignored, whatever this program inherited.
struct How {
    actions: MaybeUninit<libc::posix_spawn_file_actions_t>,
    attributes: MaybeUninit<libc::posix_spawnattr_t>,
}

impl How {
    fn new() -> Result<Self, Errno> {
        let mut how = Self { actions: MaybeUninit::uninit(), attributes: MaybeUninit::uninit() };
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        let actions = how.actions.as_mut_ptr();
        let attributes = how.attributes.as_mut_ptr();
        // SAFETY: initialises what it is given; a failure of glibc's leaves nothing to free.
        check(unsafe { libc::posix_spawn_file_actions_init(actions) })?;
        // SAFETY: as above; neither ever fails in glibc, so that nothing is dropped half made.
        check(unsafe { libc::posix_spawnattr_init(attributes) })?;
        let null = c"/dev/null".as_ptr();
        // SAFETY: initialised actions and a C string.
        check(unsafe {
            libc::posix_spawn_file_actions_addopen(actions, 0, null, libc::O_RDONLY, 0)
        })?;
        // SAFETY: initialises the set.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: initialised attributes and set.
        check(unsafe { libc::posix_spawnattr_setsigmask(attributes, set.as_ptr()) })?;
        // SAFETY: fills the set.
        unsafe { libc::sigfillset(set.as_mut_ptr()) };
        // SAFETY: initialised attributes and set.
        check(unsafe { libc::posix_spawnattr_setsigdefault(attributes, set.as_ptr()) })?;
        let flags = libc::POSIX_SPAWN_SETSIGMASK | libc::POSIX_SPAWN_SETSIGDEF;
        let flags = i16::try_from(flags).map_err(|_| Errno::INVAL)?;
        // SAFETY: initialised attributes.
        check(unsafe { libc::posix_spawnattr_setflags(attributes, flags) })?;
        Ok(how)
    }
}

impl Drop for How {
    fn drop(&mut self) {
        // SAFETY: `new` gives it away with both initialised.
        unsafe { libc::posix_spawn_file_actions_destroy(self.actions.as_mut_ptr()) };
        // SAFETY: as above.
        unsafe { libc::posix_spawnattr_destroy(self.attributes.as_mut_ptr()) };
    }
}

/// True if the command ended with 0, or if nobody can know: a program that was started with SIGCHLD
/// ignored waits until it has ended and is not told how.
fn ended_well(child: Pid) -> bool {
    loop {
        match waitpid(Some(child), WaitOptions::empty()) {
            Ok(Some((_, status))) => return status.exit_status() == Some(0),
            Err(Errno::INTR) | Ok(None) => {}
            Err(_) => return true,
        }
    }
}

/// posix_spawn and its kin return the errno.
fn check(result: i32) -> Result<(), Errno> {
    if result == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(result)) }
}

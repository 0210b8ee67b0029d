//! Starts a program from inside another, before main: posix_spawn, which neither forks nor
//! allocates for the child.
//!
//! UNSAFETY: posix_spawn and what it is told.
#![expect(unsafe_code, reason = "posix_spawn")]

use core::ffi::{CStr, c_char};
use core::mem::MaybeUninit;

use rustix::io::Errno;
use rustix::process::Pid;

use crate::environment::Environment;

/// Starts `program` with this environment, with no standard input, and with no signal blocked or
/// ignored.
pub(crate) fn spawn(
    program: &CStr,
    arguments: &[&CStr],
    environment: Environment,
) -> Result<Pid, Errno> {
    let pointers = |texts: &mut dyn Iterator<Item = &CStr>| -> Vec<*mut c_char> {
        texts.map(|text| text.as_ptr().cast_mut()).chain([core::ptr::null_mut()]).collect()
    };
    let arguments = pointers(&mut arguments.iter().copied());
    let environment = pointers(&mut environment.entries());
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

/// posix_spawn and its kin return the errno.
fn check(result: i32) -> Result<(), Errno> {
    if result == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(result)) }
}

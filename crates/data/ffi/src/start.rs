//! What ld.so starts: reads the environment as main gets it, asks `runtime` for its part, and makes
//! memory ready for it.
//!
//! UNSAFETY: the environment as main gets it.
#![expect(unsafe_code, reason = "the environment")]

use core::ffi::c_char;

use tidelock_engine::{Fd, System};
use tidelock_runtime::start::{
    Part, attach_links, part, protect, refuse_inherited, refuse_nameless, tell_of_anchors,
};
use tidelock_runtime::upgrade::{self, Upgrade};
use tidelock_runtime::{limits, spaces};

use crate::environment::{self, Environment};
use crate::host::HOST;
use crate::process::{begin, process, starting};
use crate::{guard, hooks, memory, next, process, requests, scratch, stack, system};

/// The sockets of the agents, separated by colons, one for each protected directory.
const AGENTS: &[u8] = b"TIDELOCK_AGENT=";
/// The program that `tidelock exec` has named for this run.
const NAMED: &[u8] = b"TIDELOCK_PROGRAM=";
/// What it has made ready for a run of pg_upgrade.
const UPGRADE: &[u8] = b"TIDELOCK_UPGRADE=";
/// Whose some folders in tablespaces are.
const SPACES: &[u8] = b"TIDELOCK_SPACES=";

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
    let mut room = [0u8; 4096];
    let count = match starting().system().read_link(Fd::CWD, b"/proc/self/exe\0", &mut room) {
        Ok(count) => count,
        Err(why) => refuse_nameless(&HOST, why),
    };
    let exe = room.get(..count).unwrap_or_default();
    let upgrade = environment.value(UPGRADE).and_then(Upgrade::parse);
    if let Some(upgrade) = upgrade {
        // A path that is too long is that of no directory that `exec` has made.
        let _ = upgrade.leave_out_logs(starting());
    }
    match part(agents, exe, [environment.value(NAMED), upgrade.map(|it| it.copier)]) {
        Part::Guards => {
            guard::start(agents, exe);
            tell_of_anchors(starting(), &HOST);
        }
        Part::Protects { listed } => {
            upgrade::refuse_unprepared(&HOST, exe, upgrade);
            let spaces = environment.value(SPACES).unwrap_or_default();
            if upgrade::ends_with(exe) {
                environment.remove(UPGRADE);
                environment.remove(SPACES);
            }
            if listed {
                // What a server starts is not what the user named: a shell of archive_command stays
                // without keys.
                environment.remove(NAMED);
            }
            begin_with_keys(environment, agents, exe, spaces);
        }
    }
}

fn begin_with_keys(environment: Environment, agents: &[u8], exe: &[u8], shared: &[u8]) {
    memory::start();
    stack::start();
    scratch::start();
    process::start();
    requests::start();
    memory::serve_aws_lc();
    starting().system().set_numbers(limits::make_room());
    environment::keep(environment);
    protect(starting(), &HOST, agents, exe);
    spaces::share(starting(), &HOST, shared);
    memory::wipe_stack::<{ memory::IN_PROGRAMS }>();
    starting().cipher().decide();
    system::refresh_working_directory();
    next::find_all();
    hooks::processes::watch_forks();
    begin();
    attach_links(starting(), &HOST);
    refuse_inherited(starting(), &HOST);
    tell_of_anchors(starting(), &HOST);
}

/// Lets glibc start the library: for the preload library only, which calls this once.
#[macro_export]
macro_rules! constructors {
    () => {
        mod constructors {
            use core::ffi::{c_char, c_int};

            /// glibc calls it with main's arguments before main, and before other libraries'
            /// constructors (-z initfirst).
            extern "C" fn on_load(
                _count: c_int,
                _arguments: *const *const c_char,
                environment: *const *const c_char,
            ) {
                // SAFETY: glibc passes the environment of the process.
                unsafe { $crate::start::start(environment) };
            }

            #[used]
            // SAFETY: the section holds addresses of such functions.
            #[unsafe(link_section = ".init_array")]
            static ON_LOAD: extern "C" fn(c_int, *const *const c_char, *const *const c_char) =
                on_load;

            unsafe extern "C" {
                /// environ(7), which libc sets to the same value when its own turn comes, after
                /// ours.
                static mut environ: *const *const c_char;
            }

            /// AWS-LC's constructor asks getenv for OPENSSL_ia32cap when it chooses its code for
            /// the CPU.
            extern "C" fn before_aws_lc(
                _count: c_int,
                _arguments: *const *const c_char,
                environment: *const *const c_char,
            ) {
                // SAFETY: no other thread exists yet, and glibc passes the environment of the
                // process.
                unsafe { environ = environment };
            }

            #[used]
            // SAFETY: as above; sections with a number come first, in their order.
            #[unsafe(link_section = ".init_array.00001")]
            static FIRST: extern "C" fn(c_int, *const *const c_char, *const *const c_char) =
                before_aws_lc;
        }
    };
}

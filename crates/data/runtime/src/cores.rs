//! No core file of a program that has keys, unless the configuration allows it: it would hold plain
//! pages.
//!
//! ```text
//!   RLIMIT_CORE = 1, soft and hard
//!     below a page: the kernel writes no file
//!     just 1, not 0: it hands nothing to the program of a core_pattern that is a pipe either
//! ```
//!
//! (core(5); Linux, fs/coredump.c.) Programs that this one starts have the limit too. A hard limit
//! of 0 that was there before stays as it is, since only a privileged process may raise it. Keys
//! are left out of cores by their memory, whatever this says.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const NONE: u64 = 1;

static FORBIDDEN: AtomicBool = AtomicBool::new(false);

/// From here on, this process and those that it starts leave none.
pub fn forbid() {
    FORBIDDEN.store(true, Relaxed);
    lower();
}

/// The program has changed the limit, as `pg_ctl -c` does and a privileged one may: it is put back,
/// and true is told, if that would allow cores.
pub fn keep() -> bool {
    FORBIDDEN.load(Relaxed) && {
        let limit = getrlimit(Resource::Core);
        let allows = |limit: Option<u64>| limit.is_none_or(|limit| limit > NONE);
        let raised = allows(limit.current) || allows(limit.maximum);
        if raised {
            lower();
        }
        raised
    }
}

fn lower() {
    let none = Some(NONE);
    if setrlimit(Resource::Core, Rlimit { current: none, maximum: none }).is_err() {
        // The hard limit is 0 already.
        let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    }
}

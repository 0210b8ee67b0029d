//! No core file of this command, which has keys and credentials in its memory; the program that
//! `exec` becomes has the limit that the caller set.

use std::sync::OnceLock;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

static BEFORE: OnceLock<Rlimit> = OnceLock::new();

/// From here on, this process and its children leave none.
pub(crate) fn forbid() {
    let limit = getrlimit(Resource::Core);
    let _ = BEFORE.set(limit);
    // 1 and not 0, by which nothing goes to the program of a core_pattern either
    // (docs/decisions/0013).
    let least = limit.maximum.unwrap_or(1).min(1);
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(least), ..limit });
}

/// As it was when the command began.
pub(crate) fn as_before() {
    if let Some(limit) = BEFORE.get() {
        let _ = setrlimit(Resource::Core, *limit);
    }
}

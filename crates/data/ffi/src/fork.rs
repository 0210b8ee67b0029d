//! What a fork must leave in order: locks, locked memory, shared offsets.

use crate::host::HOST;
use crate::process::{process, starting};
use crate::{memory, requests, scratch, stack, system};

/// Just before a fork.
pub fn before() {
    if let Some(process) = process() {
        if tidelock_runtime::start::has_news(process) {
            // A handler or a small thread may fork. Without memory for it the child asks.
            let _ = stack::run(|| {
                tidelock_runtime::start::before_fork(process, &HOST);
                memory::wipe_stack::<{ memory::IN_PROGRAMS }>();
            });
        }
        requests::before_fork();
        // It waits for the turns of others, and nobody waits for it yet. What they open meanwhile
        // is shared too.
        process.forked();
        process.fork_begins();
        process.forked();
    }
}

/// Just after it, in the parent, also where it failed.
pub fn after_in_parent() {
    if let Some(process) = process() {
        process.fork_ended();
    }
}

/// Just after it, in the child, where only the forking thread exists.
pub fn after_in_child() {
    if process().is_some() {
        memory::after_fork_in_child();
        starting().forked_child();
        scratch::after_fork_in_child();
        requests::after_fork_in_child();
        stack::after_fork_in_child();
        system::working_directory_after_fork();
        tidelock_runtime::start::after_fork_in_child(starting());
        starting().cipher().after_fork_in_child();
    }
}

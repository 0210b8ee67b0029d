//! What a fork must leave in order: locks, locked memory, shared offsets.

use crate::process::{process, starting};
use crate::{memory, requests, scratch, stack, system};

/// Just before a fork.
pub fn before() {
    if let Some(process) = process() {
        process.forked();
        requests::before_fork();
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

//! What tests of several modules wait for.

use std::fs;
use std::process::Child;
use std::thread::sleep;
use std::time::Duration;

/// Waits until /proc has all `count` words of `child`. While a process becomes another program, its
/// first word may be there alone. After ten seconds it waits no longer.
pub(crate) fn until_words_are_whole(child: &Child, count: usize) {
    let line = format!("/proc/{}/cmdline", child.id());
    for _ in 0..10_000 {
        let ends = fs::read(&line).unwrap().into_iter().filter(|byte| *byte == 0).count();
        if ends == count {
            return;
        }
        sleep(Duration::from_millis(1));
    }
}

//! The agents of a test's directories, which would stay for a while after it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use tidelock_agent::client;

/// Ends those of directories below `home`, by the number that each tells.
pub(crate) fn end_below(home: &Path) {
    let Ok(me) = fs::metadata("/proc/self") else { return };
    for run in [home.join("run/tidelock"), format!("/run/tidelock/{}", me.uid()).into()] {
        for entry in fs::read_dir(run).into_iter().flatten().flatten() {
            let socket = entry.path();
            if socket.extension().is_none_or(|ending| ending != "sock") {
                continue;
            }
            let Ok(Some(agent)) = client::connect(&socket) else { continue };
            let Ok(status) = agent.status() else { continue };
            if status.directory.starts_with(home)
                && let Some(pid) = Pid::from_raw(status.pid)
            {
                let _ = kill_process(pid, Signal::TERM);
            }
        }
    }
}

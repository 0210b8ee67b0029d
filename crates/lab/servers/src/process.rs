//! Processes by id: children, death, and the CPU time of a server.
//!
//! CPU time is user plus system time of /proc/PID/stat, of the postmaster with its ended children
//! (cutime, cstime) and of each live child with its own. This works without privilege and counts
//! every backend that came and went; a control group would need root. Each live process adds a
//! rounding of one clock tick (10 ms), the same in every arm: with a dozen processes about 15 ms in
//! a block.

use std::thread;
use std::time::{Duration, Instant};

use procfs::process::{Stat, all_processes};
use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, test_kill_process, waitpid,
};

use crate::error::{Error, Result};

/// A process, by id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(Pid);

impl Process {
    /// The process with this id; `None` if it is no id.
    #[must_use]
    pub fn new(id: i32) -> Option<Self> {
        (id > 1).then(|| Pid::from_raw(id).map(Self)).flatten()
    }

    /// Its number.
    #[must_use]
    pub fn id(self) -> i32 {
        self.0.as_raw_nonzero().get()
    }

    /// Whether it exists and is not a zombie.
    #[must_use]
    pub fn lives(self) -> bool {
        test_kill_process(self.0).is_ok() && self.stat().is_some_and(|stat| stat.state != 'Z')
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When the process is gone or not ours.
    pub fn signal(self, signal: Signal) -> Result<()> {
        kill_process(self.0, signal).map_err(|errno| {
            Error::io(format!("sending {signal:?} to {}", self.id()))(errno.into())
        })
    }

    /// Its direct children.
    #[must_use]
    pub fn children(self) -> Vec<Self> {
        let stats = all_processes().into_iter().flatten().filter_map(|one| one.ok()?.stat().ok());
        stats.filter(|stat| stat.ppid == self.id()).filter_map(|stat| Self::new(stat.pid)).collect()
    }

    fn stat(self) -> Option<Stat> {
        procfs::process::Process::new(self.id()).ok()?.stat().ok()
    }

    /// Makes orphans below us our own children, so that [`Process::reap`] can end them for good.
    ///
    /// An orphan that was killed stays a zombie until init gets round to it, and a postmaster that
    /// is restarted meanwhile takes the zombie for a live one.
    pub(super) fn adopt_orphans() {
        // Without it everything works as long as init is quick.
        let _ = set_child_subreaper(Some(getpid()));
    }

    /// Removes it from the process table if it is a zombie of ours.
    pub(super) fn reap(self) {
        let _ = waitpid(Some(self.0), WaitOptions::NOHANG);
    }

    /// Does so with all ended orphans of this name. Who waits for a server that is not its child
    /// would wait for ever while the zombie is ours.
    ///
    /// Only for names that nobody here starts as a child of its own: its status would be lost.
    pub fn reap_orphans(name: &str) {
        let Ok(me) = i32::try_from(std::process::id()) else { return };
        let stats = all_processes().into_iter().flatten().filter_map(|one| one.ok()?.stat().ok());
        let ended = stats.filter(|stat| stat.ppid == me && stat.state == 'Z' && stat.comm == name);
        ended.filter_map(|stat| Self::new(stat.pid)).for_each(Self::reap);
    }

    /// Waits until it is gone.
    ///
    /// # Errors
    /// When it still lives after `limit`.
    pub fn wait_gone(self, limit: Duration) -> Result<()> {
        let start = Instant::now();
        while self.lives() {
            if start.elapsed() > limit {
                let what = format!("process {} still lives after {limit:?}", self.id());
                return Err(Error::Unexpected(what));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

/// CPU seconds that the server `postmaster` and all its children, ended ones too, have used.
#[must_use]
pub fn cpu_seconds(postmaster: Process) -> f64 {
    // A child that is reaped between two of our reads would be missed by both, or counted twice:
    // what counts is a reading during which no child came or went.
    let mut used = 0;
    for _ in 0..1000 {
        let children = postmaster.children();
        let ticks = |process: &Process| process.stat().map(|stat| ticks(&stat));
        let own = ticks(&postmaster);
        let of_children: Option<u64> = children.iter().map(ticks).sum();
        used = own.unwrap_or(0) + of_children.unwrap_or(0);
        if of_children.is_some() && children == postmaster.children() {
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
    used as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// Clock ticks of CPU time, in user and system mode, of a process and its ended children.
#[must_use]
pub fn ticks(stat: &Stat) -> u64 {
    stat.utime + stat.stime + stat.cutime.cast_unsigned() + stat.cstime.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_killed_child_is_found_and_then_gone() {
        let me = Process::new(i32::try_from(std::process::id()).unwrap()).unwrap();
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = Process::new(i32::try_from(child.id()).unwrap()).unwrap();
        assert!(process.lives() && me.children().contains(&process));
        process.signal(Signal::KILL).unwrap();
        process.wait_gone(Duration::from_secs(5)).unwrap();
        child.wait().unwrap();
        assert!(!me.children().contains(&process));
    }

    #[test]
    fn work_of_an_ended_child_is_counted() {
        let me = Process::new(i32::try_from(std::process::id()).unwrap()).unwrap();
        let before = cpu_seconds(me);
        let burn = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        assert!(Command::new("sh").args(["-c", burn]).status().unwrap().success());
        assert!(cpu_seconds(me) > before);
    }
}

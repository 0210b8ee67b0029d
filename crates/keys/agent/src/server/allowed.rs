//! A program that was listed for one run, and the process that it was listed for.
//!
//! Knows no keys: what a listed program gets, the server says.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

use rustix::fs::{Mode, OFlags, fstat};

use crate::peer::{Program, descends, is_alive};

/// A program that was listed for one run: for the process that asked, which becomes it, and for
/// those that it starts. Not for others: `cp` named once must not open the `cp` of an archive
/// command.
pub(super) struct Allowed {
    program: Program,
    /// Held open: the inode of a file that is gone may be given to another.
    _file: OwnedFd,
    pid: i32,
    /// That process, and no other that gets its number; `None` once it has ended.
    process: Option<OwnedFd>,
    /// Until then it is waited for, also if its process ends: a unit's command names the program
    /// that systemd starts next.
    until: Instant,
}

impl Allowed {
    /// The program that [`hold`] has found, for the process `pid`.
    pub(super) fn new(
        (program, file): (Program, OwnedFd),
        pid: i32,
        process: OwnedFd,
        until: Instant,
    ) -> Self {
        Self { program, _file: file, pid, process: Some(process), until }
    }

    /// The process, if it was alive at the last look.
    pub(super) const fn process(&self) -> Option<&OwnedFd> {
        self.process.as_ref()
    }

    /// Until when it is waited for.
    pub(super) const fn until(&self) -> Instant {
        self.until
    }

    /// True if it lists `program` for the process `pid`.
    pub(super) fn lists(&self, program: &Program, pid: i32) -> bool {
        self.program == *program && self.has_started(pid)
    }

    fn has_started(&self, pid: i32) -> bool {
        self.process.as_ref().is_some_and(is_alive) && descends(pid, self.pid)
    }

    /// The process `pid` has got keys: if it is one of these, nobody is waited for any more.
    pub(super) fn meets(&mut self, pid: i32) {
        let now = Instant::now();
        if self.until > now && self.has_started(pid) {
            self.until = now;
        }
    }

    /// Looks whether its process has ended; true if it did since the last look.
    pub(super) fn has_ended(&mut self) -> bool {
        self.process.take_if(|process| !is_alive(process)).is_some()
    }
}

/// A program by path, and a descriptor that keeps its inode.
pub(super) fn hold(path: &Path) -> io::Result<(Program, OwnedFd)> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    let program = Program::at(path)?;
    let held = fstat(&file)?;
    if (held.st_dev, held.st_ino) != (program.device, program.inode) {
        return Err(io::Error::other("it was replaced meanwhile"));
    }
    Ok((program, file))
}

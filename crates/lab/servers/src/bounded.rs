//! Runs any program to its end or to a limit, whichever comes first.
//!
//! Output goes to files, not pipes: a daemon that the program leaves behind would keep a pipe open,
//! and its reader waiting for ever. Programs of a server are [`crate::Tool`]s, which add account
//! and arm.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::net::{TcpListener, TcpStream};
use std::ops::{Deref, DerefMut};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{self, Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// How long a program may run if nothing else is said: many times what any takes on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(300);

/// `program` in a session of its own: it meets no terminal, and what it starts ends with it at the
/// limit.
#[must_use]
pub fn alone(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("/usr/bin/setsid");
    command.arg(program);
    command
}

/// Starts a server of 127.0.0.1 by `command`, which is given a port; returns once it answers there.
///
/// # Errors
/// When it cannot be started, or does not answer within [`LIMIT`] at one of a few ports.
pub fn listening(mut command: impl FnMut(u16) -> Command) -> io::Result<(Started, u16)> {
    let begin = Instant::now();
    for _ in 0..5 {
        let port = unused_port()?;
        let mut server = command(port).start()?;
        // One that ends has found the port taken, for all that we know.
        while server.try_wait()?.is_none() {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok((server, port));
            }
            if begin.elapsed() > LIMIT {
                let what = format!("no answer at port {port} after {} s", LIMIT.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
            thread::sleep(Duration::from_millis(50));
        }
    }
    Err(io::Error::other("the server ends instead of listening"))
}

/// A port of 127.0.0.1 for a server that is about to start.
///
/// Below those that the kernel deals out (32768 and up), so that nobody is given it by chance
/// before the server has it; another one at each call, and in each process that runs at the same
/// time.
///
/// # Errors
/// When all of them are taken.
pub fn unused_port() -> io::Result<u16> {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let own = process::id().wrapping_mul(97);
    for _ in 0..PORTS {
        let number = own.wrapping_add(CALLS.fetch_add(1, Ordering::Relaxed)) % PORTS;
        let port = u16::try_from(12_000 + number).map_err(io::Error::other)?;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

const PORTS: u32 = 20_000;

/// The end of a program, for whoever must not wait for ever.
pub trait Bounded {
    /// As [`Command::output`], with nothing to read, and an error after [`LIMIT`].
    ///
    /// # Errors
    /// When it cannot be started, or after the limit; then it is ended, with its process group if
    /// that is its own, and the error has the command and what it had printed.
    fn finish(&mut self) -> io::Result<Output> {
        self.finish_within(LIMIT)
    }

    /// The same with another limit.
    ///
    /// # Errors
    /// As [`Bounded::finish`].
    fn finish_within(&mut self, limit: Duration) -> io::Result<Output> {
        self.finish_unless(&AtomicBool::new(false), limit)
    }

    /// The same, ended early once `stop` is set.
    ///
    /// # Errors
    /// As [`Bounded::finish`]; [`io::ErrorKind::Interrupted`] after `stop`.
    fn finish_unless(&mut self, stop: &AtomicBool, limit: Duration) -> io::Result<Output>;

    /// Starts it, and ends it and its process group when what is returned is dropped.
    ///
    /// # Errors
    /// When it cannot be started.
    fn start(&mut self) -> io::Result<Started>;
}

impl Bounded for Command {
    fn finish_unless(&mut self, stop: &AtomicBool, limit: Duration) -> io::Result<Output> {
        let (mut stdout, mut stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
        self.stdin(Stdio::null()).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
        let mut started = self.start()?;
        let ended = started.ended_unless(stop, limit);
        let (stdout, stderr) = (printed(&mut stdout)?, printed(&mut stderr)?);
        // Daemons stay: they are what the program was for.
        let status = ended.map_err(|why| {
            let mut told = format!("{self:?} {why}; it had printed:\n");
            told += &String::from_utf8_lossy(&stdout);
            told += &String::from_utf8_lossy(&stderr);
            io::Error::new(why.kind(), told)
        })?;
        started.leave();
        Ok(Output { status, stdout, stderr })
    }

    fn start(&mut self) -> io::Result<Started> {
        Ok(Started { child: self.spawn()?, ended: false })
    }
}

/// A program that runs. Dropping it ends it and its process group.
#[derive(Debug)]
pub struct Started {
    child: Child,
    /// Its group is not ours to end any more.
    ended: bool,
}

impl Started {
    /// Waits for its end.
    ///
    /// # Errors
    /// [`io::ErrorKind::TimedOut`] when it still runs after `limit`; it is ended then.
    pub fn ended_within(&mut self, limit: Duration) -> io::Result<ExitStatus> {
        self.ended_unless(&AtomicBool::new(false), limit)
    }

    fn ended_unless(&mut self, stop: &AtomicBool, limit: Duration) -> io::Result<ExitStatus> {
        let start = Instant::now();
        let mut pause = Duration::from_millis(1);
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if stop.load(Ordering::Relaxed) {
                self.end();
                return Err(io::Error::new(io::ErrorKind::Interrupted, "was stopped"));
            }
            if start.elapsed() > limit {
                self.end();
                let what = format!("did not end within {} s", limit.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
            thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(10));
        }
    }

    /// Lets what it has left behind go on.
    pub fn leave(&mut self) {
        self.ended = true;
    }

    /// Ends it and its process group at once. One that waits for a dead disk cannot be ended: after
    /// a few seconds it is left to the kernel.
    pub fn end(&mut self) -> ExitStatus {
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(group) = group.filter(|_| !self.ended) {
            // Refused unless it leads a group, as `alone` makes it do.
            let _ = kill_process_group(group, Signal::KILL);
        }
        self.ended = true;
        let _ = self.child.kill();
        let until = Instant::now() + Duration::from_secs(5);
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return status,
                Ok(None) if Instant::now() < until => thread::sleep(Duration::from_millis(5)),
                _ => return ExitStatus::from_raw(-1),
            }
        }
    }
}

impl Deref for Started {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.child
    }
}

impl DerefMut for Started {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.child
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if !self.ended {
            self.end();
        }
    }
}

pub(crate) fn printed(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Process;

    fn sh(script: &str) -> Command {
        let mut sh = alone("sh");
        sh.args(["-c", script]);
        sh
    }

    #[test]
    fn a_daemon_that_holds_the_output_does_not_hold_the_test() {
        let begin = Instant::now();
        let ended = sh("sleep 600 & echo $!; exit 3").finish().unwrap();
        let daemon = String::from_utf8(ended.stdout).unwrap().trim().parse().unwrap();
        let daemon = Process::new(daemon).unwrap();
        let lives = daemon.lives();
        daemon.signal(Signal::KILL).unwrap();
        assert!(lives && ended.status.code() == Some(3));
        assert!(begin.elapsed() < Duration::from_secs(300));
    }

    #[test]
    fn what_hangs_is_ended_with_its_children_and_told() {
        let hangs = sh("sleep 600 & echo child $!; echo words >&2; wait")
            .finish_within(Duration::from_secs(2));
        let told = hangs.unwrap_err();
        assert_eq!(told.kind(), io::ErrorKind::TimedOut);
        let told = told.to_string();
        assert!(told.contains("sleep 600 & echo child"), "{told}");
        assert!(told.contains("did not end within 2 s") && told.contains("words\n"), "{told}");
        let child = told.lines().find_map(|line| line.strip_prefix("child ")).unwrap();
        let child = Process::new(child.parse().unwrap()).unwrap();
        child.wait_gone(Duration::from_secs(60)).unwrap();
    }

    #[test]
    fn what_is_stopped_ends_before_its_limit() {
        let stopped = sh("exec sleep 600").finish_unless(&AtomicBool::new(true), LIMIT);
        assert_eq!(stopped.unwrap_err().kind(), io::ErrorKind::Interrupted);
    }

    #[test]
    fn what_is_dropped_runs_no_more() {
        let started = sh("exec sleep 600").start().unwrap();
        let process = Process::new(i32::try_from(started.id()).unwrap()).unwrap();
        assert!(process.lives());
        drop(started);
        assert!(!process.lives());
    }
}

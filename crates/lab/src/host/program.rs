//! Programs of the system, such as mkfs, losetup, mount and openssl: to their end or to a limit.
//!
//! Output goes to files and each leads a process group, as with `tidelock_servers::Tool`, which runs what
//! belongs to a server; these run as ourselves.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::volume::VolumeError;

/// Runs a program of the system to its end; its standard error becomes the message.
///
/// # Errors
/// [`VolumeError::Refused`] when it does not start, does not succeed, or not within ten minutes.
pub fn run_program(command: &mut Command) -> Result<(), VolumeError> {
    text_of(command).map(drop)
}

/// The same, and what it printed.
pub(super) fn text_of(command: &mut Command) -> Result<String, VolumeError> {
    let said = match output_within(command, LIMIT, &AtomicBool::new(false)) {
        Ok(output) if output.status.success() => {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    Err(VolumeError::Refused { command: format!("{command:?}"), said })
}

/// As [`Command::output`], but not for ever.
///
/// # Errors
/// When it cannot be started; [`io::ErrorKind::TimedOut`] after `limit`, [`io::ErrorKind::Interrupted`] once
/// `stop` is set. It is ended then, with all that it started.
pub(crate) fn output_within(
    command: &mut Command,
    limit: Duration,
    stop: &AtomicBool,
) -> io::Result<Output> {
    let (mut stdout, mut stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
    command.stdin(Stdio::null()).stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
    let mut running = Running(command.process_group(0).spawn()?);
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    let status = loop {
        if let Some(status) = running.0.try_wait()? {
            break status;
        }
        if stop.load(Ordering::Relaxed) {
            return Err(io::Error::from(io::ErrorKind::Interrupted));
        }
        if start.elapsed() >= limit {
            let what = format!("it did not end within {} s", limit.as_secs());
            return Err(io::Error::new(io::ErrorKind::TimedOut, what));
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    };
    Ok(Output { status, stdout: all(&mut stdout)?, stderr: all(&mut stderr)? })
}

fn all(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Ended with its group on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(Some(_))) {
            return;
        }
        if let Some(group) = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        // A program that waits for a dead disk cannot be ended: it is left to the kernel.
        let until = Instant::now() + Duration::from_secs(5);
        while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The longest of them makes a file system of many GiB, or writes out what is dirty on a slow one.
const LIMIT: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;
    use tidelock_servers::Process;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_program_that_hangs_ends_at_its_limit_with_what_it_started() {
        let dir = tempfile::tempdir().unwrap();
        let told = dir.path().join("child");
        let script = format!("sleep 600 & echo $! > {}; wait", told.display());
        let go = AtomicBool::new(false);
        let error = output_within(&mut sh(&script), Duration::from_secs(1), &go).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("within 1 s"), "{error}");
        let child = std::fs::read_to_string(told).unwrap().trim().parse().unwrap();
        Process::new(child).unwrap().wait_gone(Duration::from_secs(10)).unwrap();
    }

    #[test]
    fn a_stop_ends_a_program_and_its_output_is_that_of_the_program() {
        let long = Duration::from_secs(600);
        let stopped = output_within(&mut sh("sleep 600"), long, &AtomicBool::new(true));
        assert_eq!(stopped.unwrap_err().kind(), io::ErrorKind::Interrupted);
        let output =
            output_within(&mut sh("echo a; echo b >&2; exit 3"), long, &AtomicBool::new(false));
        let output = output.unwrap();
        assert_eq!((&*output.stdout, &*output.stderr), (&b"a\n"[..], &b"b\n"[..]));
        assert_eq!(output.status.code(), Some(3));
        let error = run_program(&mut sh("echo no; echo why >&2; exit 1")).unwrap_err().to_string();
        assert!(error.contains("echo no") && error.ends_with("why"), "{error}");
    }
}

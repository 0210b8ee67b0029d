//! Starts an agent where none is alive, by the command that the last one left beside its socket.
//!
//! ```text
//!   this program, before main --spawn--> tidelock agent start SOCKET DIR
//!        | waits, not for ever             | unlocks without a terminal
//!        |                                 | starts the agent, which is nobody's child
//!        | <------------------------- ends |
//! ```
//!
//! The command's reasons go to the program's standard error. It asks no person: one that does not
//! end is held up by what opens the keyring, and is killed when its time is over.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, pidfd_send_signal, waitpid,
};
use tidelock_contract::Starter;

use crate::host::Host;

/// How long a command that was killed may take to be gone.
const DYING: Duration = Duration::from_secs(5);
/// How often a command is looked at where it cannot be waited for.
const LOOK: Duration = Duration::from_millis(10);

/// How the command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// An agent listens.
    Well,
    /// It has said why.
    Badly,
    /// It was killed.
    Late,
}

/// Makes sure that an agent listens at `socket`, if one can be started without anybody at a
/// terminal. False if nothing says how. The command that starts it may take `limit`.
///
/// # Errors
/// A sentence: the command cannot be run, ended badly and has said why, or took too long.
pub(crate) fn start_agent(host: &dyn Host, socket: &[u8], limit: Duration) -> Result<bool, String> {
    let path = Path::new(OsStr::from_bytes(socket));
    let Some(starter) = Starter::beside(path).map_err(|why| why.to_string())? else {
        return Ok(false);
    };
    let text = |bytes: &[u8]| CString::new(bytes).map_err(|why| why.to_string());
    let program = text(starter.program.as_os_str().as_bytes())?;
    let directory = text(starter.directory.as_os_str().as_bytes())?;
    let socket = text(socket)?;
    let child = host
        .spawn(&program, &[&program, c"agent", c"start", &socket, &directory])
        .map_err(|why| format!("{} cannot be run: {why}", starter.program.display()))?;
    match await_end(child, limit) {
        End::Well => Ok(true),
        End::Badly => Err("no agent is alive, and none could be started without a terminal".into()),
        End::Late => Err(format!(
            "no agent is alive, and starting one was given up after {} s: what opens the keyring \
             does not answer",
            limit.as_secs()
        )),
    }
}

/// Waits for the command, and kills it when its time is over. Reaped in any case but that of a
/// process that not even the kernel can end: an unknown child is a crash to a server that waits for
/// its own.
fn await_end(child: Pid, limit: Duration) -> End {
    // Without one (an old kernel, a sandbox) the child is looked at.
    let process = pidfd_open(child, PidfdFlags::empty()).ok();
    let rest = |left: Duration| match &process {
        Some(process) => {
            let limit = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
            if poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&limit)).is_err() {
                // Interrupted, or not to be had in a sandbox.
                sleep(left.min(LOOK));
            }
        }
        None => sleep(left.min(LOOK)),
    };
    if let Some(end) = end_within(child, limit, rest) {
        return end;
    }
    let _ = match &process {
        Some(process) => pidfd_send_signal(process, Signal::KILL),
        // Not reaped yet, so the number is still the child's.
        None => kill_process(child, Signal::KILL),
    };
    end_within(child, DYING, rest);
    End::Late
}

/// How the command ended; `None` if it has not. Well, too, if nobody can know: a program that was
/// started with SIGCHLD ignored is told only that it has ended.
fn end_within(child: Pid, limit: Duration, rest: impl Fn(Duration)) -> Option<End> {
    let until = Instant::now() + limit;
    loop {
        match waitpid(Some(child), WaitOptions::NOHANG) {
            Ok(Some((_, status))) if status.exit_status() == Some(0) => return Some(End::Well),
            Ok(Some(_)) => return Some(End::Badly),
            Ok(None) | Err(Errno::INTR) => {}
            Err(_) => return Some(End::Well),
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        rest(left);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// How a shell's command ends for who waits so long, and whether it was reaped.
    fn end_of(script: &str, limit: Duration) -> (End, bool) {
        let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let end = await_end(Pid::from_child(&child), limit);
        (end, child.wait().is_err())
    }

    #[test]
    fn a_command_that_ends_in_time_says_how() {
        let long = Duration::from_secs(120);
        assert_eq!(end_of("exit 0", long), (End::Well, true));
        assert_eq!(end_of("sleep 0.2; exit 4", long), (End::Badly, true));
        assert_eq!(end_of("kill -9 $$", long), (End::Badly, true));
    }

    #[test]
    fn a_command_that_does_not_end_is_killed_and_reaped() {
        let begun = Instant::now();
        let hung = "trap '' TERM; exec sleep 600";
        assert_eq!(end_of(hung, Duration::from_millis(300)), (End::Late, true));
        assert!(begun.elapsed() < Duration::from_secs(120));
    }

    #[test]
    fn without_a_descriptor_of_the_child_it_is_looked_at() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let pid = Pid::from_child(&child);
        let rest = |left: Duration| sleep(left.min(LOOK));
        assert_eq!(end_within(pid, Duration::from_millis(100), rest), None);
        child.kill().unwrap();
        assert_eq!(end_within(pid, Duration::from_secs(120), rest), Some(End::Badly));
        // Reaped already.
        assert!(child.wait().is_err());
    }
}

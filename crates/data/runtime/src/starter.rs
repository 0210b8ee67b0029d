//! Starts an agent where none is alive, by the command that the last one left beside its socket.
//!
//! ```text
//!   this program, before main --spawn--> tidelock agent start SOCKET DIR
//!        | waitpid                         | unlocks without a terminal
//!        |                                 | starts the agent, which is nobody's child
//!        | <------------------------- ends |
//! ```
//!
//! The command's reasons go to the program's standard error.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, waitpid};
use tidelock_contract::Starter;

use crate::host::Host;

/// Makes sure that an agent listens at `socket`, if one can be started without anybody at a
/// terminal. False if nothing says how.
///
/// # Errors
/// A sentence: the command cannot be run, or ended badly and has said why.
pub(crate) fn start_agent(host: &dyn Host, socket: &[u8]) -> Result<bool, String> {
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
    if ended_well(child) {
        Ok(true)
    } else {
        Err("no agent is alive, and none could be started without a terminal".into())
    }
}

/// True if the command ended with 0, or if nobody can know: a program that was started with SIGCHLD
/// ignored waits until it has ended and is not told how.
fn ended_well(child: Pid) -> bool {
    loop {
        match waitpid(Some(child), WaitOptions::empty()) {
            Ok(Some((_, status))) => return status.exit_status() == Some(0),
            Err(Errno::INTR) | Ok(None) => {}
            Err(_) => return true,
        }
    }
}

//! Programs of the system, such as mkfs, losetup and mount, run as ourselves: to their end or to a
//! limit. What belongs to a server is run by `tidelock_servers::Tool`.

use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use tidelock_servers::Bounded as _;

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
    let said = match command.process_group(0).finish_within(LIMIT) {
        Ok(output) if output.status.success() => {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    Err(VolumeError::Refused { command: format!("{command:?}"), said })
}

/// Whether there is a program of this name.
pub(super) fn found(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// The longest of them makes a file system of many GiB, or writes out what is dirty on a slow one.
const LIMIT: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_says_why() {
        let mut command = Command::new("sh");
        let error = run_program(command.args(["-c", "echo no; echo why >&2; exit 1"]));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("echo no") && error.ends_with("why"), "{error}");
    }
}

//! The cipher alone, on one core: ours in a process of its own, and `openssl speed` beside it.
//!
//! AWS-LC and OpenSSL choose their code for the CPU when they start, and `OPENSSL_ia32cap` in the
//! environment hides instructions from both: so each trial is a process.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tidelock_servers::Bounded as _;

use super::Done;
use crate::arm::Definition;
use crate::error::{Error, Result};
use crate::experiment::Crypto;

/// One trial: ours, or OpenSSL's for the arms `plain` and `control`.
///
/// # Errors
/// When the process fails, prints something else or does not end; when the lab is interrupted.
pub(crate) fn measure(
    arm: &Definition,
    work: &Crypto,
    levels: &BTreeMap<String, String>,
    stop: &AtomicBool,
) -> Result<Done> {
    let block: u32 = work.block.number(levels)?;
    let seconds: u32 = work.seconds.number(levels)?;
    let mut command = match arm.arm {
        tidelock_servers::Arm::Sealed => {
            let me = std::env::current_exe().map_err(Error::io("finding this program"))?;
            let mut command = Command::new(me);
            command.args(["cipher", "--block", &block.to_string()]);
            command.args(["--seconds", &seconds.to_string()]);
            command
        }
        _ => {
            let bin = arm.bin.as_deref();
            let mut command =
                Command::new(bin.map_or_else(|| "openssl".into(), |bin| bin.join("openssl")));
            command.args(["speed", "-mr", "-elapsed", "-seconds", &seconds.to_string()]);
            command.args(["-bytes", &block.to_string(), "-evp", "aes-256-xts"]);
            command
        }
    };
    command.envs(arm.env.iter().map(|(name, value)| (name, value)));
    let told = format!("{command:?}").replace('"', "");
    let limit = Duration::from_secs(u64::from(seconds) * 3 + 120);
    let output =
        command.process_group(0).finish_unless(stop, limit).map_err(|error| {
            match error.kind() {
                ErrorKind::Interrupted => Error::Interrupted,
                _ => Error::io(format!("running {told}"))(error),
            }
        })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let bytes_per_second = last_number(&text).filter(|_| output.status.success());
    let Some(rate) = bytes_per_second else {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Error::Other(format!("`{told}` ended with {}: {said}", output.status)));
    };
    let seconds = f64::from(seconds);
    Ok(Done {
        units: rate * seconds / f64::from(block),
        seconds,
        metrics: BTreeMap::from([("gigabytes_per_second".to_owned(), rate / 1e9)]),
        ..Done::default()
    })
}

/// Bytes a second: the last field of the last line of `openssl speed -mr`
/// (`+F:23:aes-256-xts:1.5e9`), and all that ours prints.
fn last_number(text: &str) -> Option<f64> {
    text.lines().last()?.rsplit(':').next()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_the_last_field_of_either_program() {
        assert_eq!(
            last_number("+H:8192\n+F:36:AES-256-XTS:3982663680.00\n"),
            Some(3_982_663_680.0)
        );
        assert_eq!(last_number("4100000000\n"), Some(4_100_000_000.0));
        assert_eq!(last_number("speed: Unknown algorithm\n"), None);
    }
}

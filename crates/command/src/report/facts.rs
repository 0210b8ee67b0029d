//! The facts of a report, as one JSON document: what `status` and `verify` see, in the words of the
//! page.

use std::fs::{self, File};
use std::path::Path;

use serde_json::{Value, json};
use tidelock_evidence::{NOT_SHOWN, controls, sha256};
use tidelock_keyring::Keyring;

use super::history;
use crate::console;
use crate::error::{Error, Result};
use crate::exec::Library;
use crate::protected::Protected;
use crate::status::{self, CRYPTOPERIOD_DAYS};
use crate::unlock::KeyOptions;
use crate::verify::Output;

/// Where facts come from.
pub(super) struct Facts<'p> {
    pub(super) protected: &'p Protected,
    pub(super) keyring: &'p Keyring,
    pub(super) keys: &'p KeyOptions,
}

impl Facts<'_> {
    /// All of them; `found` is what became of each file.
    ///
    /// # Errors
    /// More data keys than can be held; programs that cannot be read.
    pub(super) fn of(&self, found: &Output, markers: usize) -> Result<Value> {
        let Self { protected, keyring, keys } = self;
        let seen = serde_json::to_value(status::look(protected, keys, Ok(keyring))?)
            .map_err(|why| Error::refused(format!("no facts: {why}"), "report this"))?;
        let config = keys.configured(&protected.keyring, &protected.path).unwrap_or_default();
        let period = u64::from(config.cryptoperiod_days.unwrap_or(CRYPTOPERIOD_DAYS));
        let history = history::of(protected, keyring, &config);
        let unlocked = &seen["unlocked"];
        let problems = found.problems.len();
        let left_out = &found.left_out;
        Ok(json!({
            "made": console::time(now()),
            "host": host(),
            "directory": protected.path.display().to_string(),
            "name": protected.path.file_name().unwrap_or_default().to_string_lossy(),
            "profile": keyring.policy().profile(),
            "verdict": {
                "sealed": problems == 0,
                "words": words(problems, left_out.len(), found.files.gone),
            },
            "cipher": {
                "name": unlocked["cipher"], "unit": tidelock_format::UNIT, "library": "AWS-LC",
                "derivation": "HKDF-Expand-SHA-256",
            },
            "keyring": {"id": keyring.id().to_string(), "generation": keyring.generation().0},
            "build": build()?,
            "server": server(&seen["server"]),
            "files": {
                "sealed": found.files.sealed, "empty": found.files.empty,
                "plain": found.files.plain, "gone": found.files.gone,
                "bytes_read": found.bytes_read,
            },
            "deep": found.coverage.is_some(),
            "coverage": found.coverage,
            "markers": markers,
            "not_shown": NOT_SHOWN,
            "problems": found.problems,
            "notes": found.notes.len().saturating_sub(left_out.len()),
            "left_out": left_out,
            "plain_rules": unlocked["files"]["plain"],
            "cryptoperiod_days": period,
            "data_keys": data_keys(&unlocked["data_keys"], period),
            "slots": dated(&seen["keyring"]["slots"]),
            "audit": history.audit,
            "events": history.events,
            "warnings": seen["warnings"],
            "controls": controls(),
        }))
    }
}

/// What the page begins with.
fn words(problems: usize, left_out: usize, gone: u64) -> String {
    let others = match left_out {
        0 => String::new(),
        _ => format!(
            " Not looked at: {} of clusters of other versions in its tablespaces, named below.",
            console::count(left_out, "folder")
        ),
    };
    let but = match gone {
        0 => String::new(),
        1 => " but 1 that was removed meanwhile".to_owned(),
        _ => format!(" but {gone} that were removed meanwhile"),
    };
    match problems {
        0 => format!(
            "Every {}{but} was read: its header, key, MAC and size are as they must be, and no \
             file is plain that the policy wants sealed.{others}",
            if left_out == 0 { "file" } else { "file of this cluster" }
        ),
        _ => format!("{} below.{others}", console::count(problems, "problem")),
    }
}

fn data_keys(keys: &Value, period: u64) -> Value {
    let mut keys = dated(keys);
    for key in keys.as_array_mut().into_iter().flatten() {
        // A key seals new files for its cryptoperiod; what it has sealed may be read longer.
        let within = key["age_days"].as_u64().is_some_and(|age| age < period);
        key["within"] = json!(within);
        // Names of files are for `status`.
        key.as_object_mut().map(|key| key.remove("first_files"));
    }
    keys
}

/// `created` as people write it.
fn dated(all: &Value) -> Value {
    let mut all = all.clone();
    for one in all.as_array_mut().into_iter().flatten() {
        one["created"] = json!(one["created"].as_u64().map(console::time));
    }
    all
}

fn server(seen: &Value) -> String {
    match (seen["state"].as_str(), seen["pid"].as_u64(), seen["library"].as_str()) {
        (Some("running"), Some(pid), Some("loaded")) => {
            format!("process {pid} runs with the library")
        }
        (Some("running"), Some(pid), Some("not_loaded")) => {
            format!("process {pid} runs WITHOUT the library: what it writes is plain")
        }
        (Some("running"), Some(pid), _) => {
            format!("process {pid} seems to run here; whether with the library could not be seen")
        }
        _ => "no server was running".to_owned(),
    }
}

/// The programs by path and SHA-256, which the package's own list can be compared with.
fn build() -> Result<Value> {
    let command = std::env::current_exe().map_err(Error::io("find", "this program"))?;
    let library = Library::find()?.path;
    let digest = |path: &Path| {
        let failed = || Error::io("read", path);
        let file = File::open(path).map_err(failed())?;
        let sha256 = sha256(file).map_err(failed())?;
        Ok::<_, Error>(json!({"path": path.display().to_string(), "sha256": sha256}))
    };
    Ok(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "command": digest(&command)?,
        "library": digest(&library)?,
    }))
}

fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_does_not_claim_folders_that_were_left_out() {
        assert!(words(0, 0, 0).starts_with("Every file was read: "));
        assert!(words(0, 0, 0).ends_with("wants sealed."));
        for problems in [0, 2] {
            let told = words(problems, 1, 0);
            assert!(told.contains("Not looked at: 1 folder of clusters"), "{told}");
            assert!(!told.contains("Every file was read"), "{told}");
        }
    }

    #[test]
    fn a_verdict_does_not_claim_files_that_were_gone() {
        let told = words(0, 0, 3);
        assert!(told.starts_with("Every file but 3 that were removed meanwhile was read: "));
        let told = words(0, 1, 1);
        assert!(told.starts_with("Every file of this cluster but 1 that was removed meanwhile"));
    }

    #[test]
    fn only_a_stopped_server_is_called_stopped() {
        assert_eq!(server(&json!({"state": "stopped"})), "no server was running");
        let hidden = json!({"state": "running", "pid": 7, "library": "cannot_be_told"});
        assert!(server(&hidden).starts_with("process 7 seems to run here"));
    }
}

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
use crate::this_program;
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
        let left_out = [&found.left_out, &found.lost, &found.anothers, &found.foreign];
        let left_out: Vec<&String> = left_out.into_iter().flatten().collect();
        let mut verdict = json!({"sealed": problems == 0, "words": words(found)});
        if found.files.sealed == 0 {
            verdict["nothing"] = json!(true);
        }
        Ok(json!({
            "made": console::time(console::now()),
            "began": console::time(found.began),
            "host": host(),
            "directory": protected.path.display().to_string(),
            "name": protected.path.file_name().unwrap_or_default().to_string_lossy(),
            "profile": keyring.policy().profile(),
            "verdict": verdict,
            "cipher": {
                "name": unlocked["cipher"], "unit": tidelock_format::UNIT, "library": "AWS-LC",
                "derivation": "HKDF-Expand-SHA-256",
            },
            "keyring": {"id": keyring.id().to_string(), "generation": keyring.generation().0},
            "build": build()?,
            "server": server(&seen["server"], seen["other_library"] == true),
            "files": {
                "sealed": found.files.sealed, "empty": found.files.empty,
                "plain": found.files.plain, "gone": found.files.gone,
                "appeared": found.files.appeared, "bytes_read": found.bytes_read,
            },
            "scope": scope(found),
            "deep": found.coverage.is_some(),
            "coverage": found.coverage,
            "markers": markers,
            "not_shown": NOT_SHOWN,
            "problems": found.problems,
            "notes": found.notes.len().saturating_sub(left_out.len()),
            "left_out": left_out,
            "left_out_why": left_out_why(found),
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

/// What the page begins with. It claims no more than was looked at.
fn words(found: &Output) -> String {
    let mut more = not_looked_at(found);
    if let Some(direction) = found.half {
        more += &format!(
            " The directory is half {}: `tidelock {}` has not ended.",
            direction.participle(),
            direction.command()
        );
    }
    if found.coverage.is_none() {
        more += " The bytes behind the headers were not searched for plaintext.";
    }
    let but = match missed(found) {
        it if it.is_empty() => it,
        it => format!(" but {it}"),
    };
    let problems = found.problems.len();
    if problems > 0 {
        let read = match but.is_empty() {
            true => String::new(),
            false => format!(" Every file{but} was read."),
        };
        return format!("{} below.{read}{more}", console::count(problems, "problem"));
    }
    let of = of(found);
    let files = match (of.is_empty(), found.lost.is_empty()) {
        (_, true) => format!("file{of}"),
        (true, false) => "file outside of lost+found".to_owned(),
        (false, false) => format!("file{of}, outside of lost+found,"),
    };
    let all = but.is_empty() && found.foreign.is_empty();
    let none = if all { "no file is" } else { "none of these is" };
    format!(
        "Every {files}{but} was read: its header, key, MAC and size are as they must be, and \
         {none} plain that the policy wants sealed.{more}"
    )
}

/// Whose files are meant, where others were left out.
fn of(found: &Output) -> &'static str {
    if !found.foreign.is_empty() {
        return " that was looked at";
    }
    match (found.left_out.is_empty(), found.anothers.is_empty()) {
        (true, true) => "",
        (true, false) => " of this directory",
        (false, _) => " of this cluster",
    }
}

/// The files that were not read, for one reason or another.
fn missed(found: &Output) -> String {
    let that = |count: u64, one: &str, many: &str| match count {
        0 => None,
        1 => Some(format!("1 that {one}")),
        _ => Some(format!("{count} that {many}")),
    };
    let gone = that(found.files.gone, "was not found any more", "were not found any more");
    let appeared = that(found.files.appeared, "appeared at the end", "appeared at the end");
    [gone, appeared].into_iter().flatten().collect::<Vec<_>>().join(" and ")
}

/// Sentences about what was left out.
fn not_looked_at(found: &Output) -> String {
    let mut text = String::new();
    if !found.left_out.is_empty() {
        text += &format!(
            " Not looked at: {} of clusters of other versions in its tablespaces, named below.",
            console::count(found.left_out.len(), "folder")
        );
    }
    if !found.lost.is_empty() {
        text += &format!(
            " Not looked at: {} lost+found of a file system, named below.",
            console::count(found.lost.len(), "folder")
        );
    }
    if !found.anothers.is_empty() {
        text += &format!(
            " Not looked at: what is behind {} into other protected directories, named below.",
            console::count(found.anothers.len(), "link")
        );
    }
    if !found.foreign.is_empty() {
        text += &format!(
            " Not looked at: what is behind {} of another user to what is not that user's, named \
             below.",
            console::count(found.foreign.len(), "link")
        );
    }
    text
}

/// Which files are meant by all of them, behind "every file".
fn scope(found: &Output) -> &'static str {
    match missed(found).is_empty() && found.lost.is_empty() {
        true => of(found),
        false => " that was looked at",
    }
}

fn left_out_why(found: &Output) -> String {
    let whys = [
        (&found.left_out, "clusters of other versions have these folders in the tablespaces"),
        (&found.lost, "a repair of the file system keeps in lost+found what it finds"),
        (&found.anothers, "other protected directories have what these links lead to"),
        (&found.foreign, "these links of another user lead to what is not that user's"),
    ];
    let whys = whys.into_iter().filter(|(places, _)| !places.is_empty());
    format!("since {}", whys.map(|(_, why)| why).collect::<Vec<_>>().join(", and "))
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

/// `other`: its library is not the file that the report has the hash of.
fn server(seen: &Value, other: bool) -> String {
    match (seen["state"].as_str(), seen["pid"].as_u64(), seen["library"].as_str()) {
        (Some("running"), Some(pid), Some("loaded")) if other => {
            format!(
                "process {pid} runs with another file of the library than this one, as after an \
                 upgrade without a restart"
            )
        }
        (Some("running"), Some(pid), Some("loaded")) => {
            format!("process {pid} runs with the library")
        }
        (Some("running"), Some(pid), Some("not_loaded")) => {
            format!("process {pid} runs WITHOUT the library: what it writes is plain")
        }
        (Some("running"), Some(pid), _) => {
            format!("process {pid} seems to run here; whether with the library could not be seen")
        }
        (Some("unseen"), ..) => "whether a server was running could not be seen".to_owned(),
        _ => "no server of PostgreSQL, MariaDB or MySQL was running, and no program with keys"
            .to_owned(),
    }
}

/// The programs by path and SHA-256, which the package's own list can be compared with.
fn build() -> Result<Value> {
    let command = this_program::path()?;
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

#[cfg(test)]
mod tests {
    use tidelock_evidence::Coverage;

    use super::*;
    use crate::verify::Finding;

    fn deep() -> Output {
        let mut found = Output::default();
        found.coverage = Some(Coverage::default());
        found
    }

    #[test]
    fn a_verdict_does_not_claim_folders_that_were_left_out() {
        assert!(words(&deep()).starts_with("Every file was read: "));
        assert!(words(&deep()).ends_with("no file is plain that the policy wants sealed."));
        for problems in [0, 2] {
            let mut found = deep();
            found.left_out.push("pg_tblspc/1/PG_13_202007201".into());
            found.problems.extend((0..problems).map(|_| Finding {
                file: "file".into(),
                kind: "mac",
                what: "bad".into(),
            }));
            let told = words(&found);
            assert!(told.contains("Not looked at: 1 folder of clusters"), "{told}");
            assert!(!told.contains("Every file was read"), "{told}");
            found.lost.push("lost+found".into());
            let told = words(&found);
            assert!(told.contains("Not looked at: 1 folder lost+found of a file"), "{told}");
            assert_eq!(scope(&found), " that was looked at");
        }
    }

    #[test]
    fn a_verdict_does_not_claim_what_links_lead_to_in_other_directories() {
        let mut found = deep();
        found.anothers.push("link".into());
        let told = words(&found);
        assert!(told.starts_with("Every file of this directory was read: "), "{told}");
        assert!(told.contains("Not looked at: what is behind 1 link into"), "{told}");
        assert_eq!(scope(&found), " of this directory");
        assert!(left_out_why(&found).starts_with("since other protected directories have"));
    }

    #[test]
    fn a_verdict_does_not_claim_what_links_of_another_user_lead_to() {
        let mut found = deep();
        found.foreign.push("pg_wal".into());
        let told = words(&found);
        assert!(told.starts_with("Every file that was looked at was read: "), "{told}");
        assert!(told.contains("none of these is plain"), "{told}");
        assert!(told.contains("Not looked at: what is behind 1 link of another user"), "{told}");
        assert_eq!(scope(&found), " that was looked at");
        assert!(left_out_why(&found).starts_with("since these links of another user"));
    }

    #[test]
    fn a_verdict_says_that_a_conversion_has_not_ended() {
        let mut found = deep();
        found.half = Some(tidelock_keyring::Direction::Encrypt);
        let told = words(&found);
        assert!(told.contains("half sealed: `tidelock encrypt` has not ended"), "{told}");
    }

    #[test]
    fn a_verdict_does_not_claim_files_that_were_gone_or_new() {
        let mut found = deep();
        found.files.gone = 3;
        let told = words(&found);
        assert!(told.starts_with("Every file but 3 that were not found any more was read: "));
        assert!(told.ends_with("none of these is plain that the policy wants sealed."), "{told}");
        found.files.appeared = 1;
        found.left_out.push("pg_tblspc/1/PG_13_202007201".into());
        let told = words(&found);
        let but = "but 3 that were not found any more and 1 that appeared at the end was read";
        assert!(told.starts_with(&format!("Every file of this cluster {but}")), "{told}");
        found.problems.push(Finding { file: "file".into(), kind: "mac", what: "bad".into() });
        assert!(words(&found).starts_with(&format!("1 problem below. Every file {but}.")));
    }

    #[test]
    fn a_verdict_says_that_bytes_were_not_searched() {
        let told = words(&Output::default());
        assert!(told.ends_with(" The bytes behind the headers were not searched for plaintext."));
        assert!(!words(&deep()).contains("not searched"));
    }

    #[test]
    fn only_a_stopped_server_is_called_stopped() {
        let stopped = server(&json!({"state": "stopped"}), false);
        assert!(stopped.starts_with("no server of PostgreSQL, MariaDB or MySQL was running"));
        let hidden = json!({"state": "running", "pid": 7, "library": "cannot_be_told"});
        assert!(server(&hidden, false).starts_with("process 7 seems to run here"));
        assert!(server(&json!({"state": "unseen"}), false).contains("could not be seen"));
    }

    #[test]
    fn a_library_that_is_not_the_hashed_file_is_told() {
        let seen = json!({"state": "running", "pid": 7, "library": "loaded"});
        assert_eq!(server(&seen, false), "process 7 runs with the library");
        assert!(server(&seen, true).contains("another file of the library than this one"));
    }
}

//! `--out`: which directories a run or a report may be written into.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tidelock_lab::results::{MANIFEST, Results};
use tidelock_lab::{report, run};

use super::error::{Error, Result};

/// A new run has a directory of its own.
pub(super) fn check_for_run(dir: &Path) -> Result<()> {
    check_directory(dir)?;
    if run::exists(dir) {
        let what = format!("{} has a run already", dir.display());
        let hint = "`tidelock-lab resume DIR` goes on with it; --out names another directory";
        return Err(Error::Refused { what, hint });
    }
    let names = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    // What a lab leaves that was killed before it had a run, and what a file system begins with.
    let is_foreign = |name: &String| name != "lost+found" && !name.starts_with(".run.json-");
    match names.find(is_foreign) {
        Some(name) => Err(Error::Refused {
            what: format!("{} is no run, and has other files: {name}", dir.display()),
            hint: "--out names a directory that is new or empty",
        }),
        None => Ok(()),
    }
}

/// A report does not take the place of another run's, or of what is no report of the lab's.
pub(super) fn check_for_report(dir: &Path, results: &Results) -> Result<()> {
    check_directory(dir)?;
    let is_own = || Some(dir.canonicalize().ok()? == results.dir.canonicalize().ok()?);
    if is_own() == Some(true) {
        return Ok(());
    }
    for name in [MANIFEST, TOLD] {
        let path = dir.join(name);
        if path.exists() && !is_of(&path, results) {
            return Err(Error::Refused {
                what: format!("{} is not of {}", path.display(), results.dir.display()),
                hint: "that directory is another run's; --out names one of its own",
            });
        }
    }
    // With one of this run, the others are its own.
    if dir.join(TOLD).exists() {
        return Ok(());
    }
    // A link that leads nowhere is somebody's too.
    let is_there = |name: &&str| dir.join(name).symlink_metadata().is_ok();
    match report::FILES.into_iter().find(is_there) {
        Some(name) => Err(Error::Refused {
            what: format!("{} is there, and no report of this run's", dir.join(name).display()),
            hint: "--out names a directory without such a file, or move the file away",
        }),
        None => Ok(()),
    }
}

/// Whether a file of a run is one of this run, by when it began and what it drew from.
fn is_of(path: &Path, results: &Results) -> bool {
    let text = fs::read_to_string(path).unwrap_or_default();
    let told: Value = serde_json::from_str(&text).unwrap_or_default();
    let manifest = &results.manifest;
    told["created"] == manifest.created && told["seed"] == manifest.seed
}

fn check_directory(dir: &Path) -> Result<()> {
    match dir.exists() && !dir.is_dir() {
        true => {
            let what = format!("--out {}: that is a file", dir.display());
            Err(Error::usage(what, "--out names a directory"))
        }
        false => Ok(()),
    }
}

/// The file of a report that says which run it is of.
const TOLD: &str = "report.json";

#[cfg(test)]
mod tests {
    use tidelock_lab::experiment::Size;
    use tidelock_lab::manifest::{Machine, Manifest};

    use super::*;

    fn refused(checked: Result<()>) -> (u8, String) {
        let why = checked.unwrap_err();
        (why.exit_code(), why.to_string())
    }

    #[test]
    fn a_run_is_not_written_among_other_files() {
        let dir = tempfile::tempdir().unwrap();
        check_for_run(&dir.path().join("new")).unwrap();
        check_for_run(dir.path()).unwrap();
        fs::write(dir.path().join(".run.json-a1b2"), "").unwrap();
        fs::create_dir(dir.path().join("lost+found")).unwrap();
        check_for_run(dir.path()).unwrap();
        let file = dir.path().join("notes");
        fs::write(&file, "").unwrap();
        let (code, why) = refused(check_for_run(dir.path()));
        assert!(code == 3 && why.ends_with("is no run, and has other files: notes"), "{why}");
        let (code, why) = refused(check_for_run(&file));
        assert!(code == 2 && why.ends_with("notes: that is a file"), "{why}");
        fs::write(dir.path().join(MANIFEST), "").unwrap();
        let (code, why) = refused(check_for_run(dir.path()));
        assert!(code == 3 && why.ends_with("has a run already"), "{why}");
    }

    #[test]
    fn a_report_does_not_take_the_place_of_files_of_the_user_s() {
        let run = tempfile::tempdir().unwrap();
        let manifest = Manifest {
            format: 1,
            tidelock: "0.1.0".into(),
            commit: String::new(),
            created: 7,
            seed: 1,
            size: Size::Small,
            machine: Machine::default(),
            experiments: Vec::new(),
        };
        let text = serde_json::to_string(&manifest).unwrap();
        fs::write(run.path().join(MANIFEST), text).unwrap();
        let results = Results::read(run.path()).unwrap();
        for name in ["report.md", "report.html", "report.csv"] {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join(name);
            fs::write(&file, "mine").unwrap();
            let (code, why) = refused(check_for_report(dir.path(), &results));
            assert!(code == 3 && why.contains(name), "{why}");
            assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
        }
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("notes"), "mine").unwrap();
        for _ in 0..2 {
            check_for_report(dir.path(), &results).unwrap();
            report::write(&results, dir.path()).unwrap();
        }
        // A run's own directory has whatever its owner put there.
        fs::write(run.path().join("report.md"), "an earlier one").unwrap();
        check_for_report(run.path(), &results).unwrap();
    }
}

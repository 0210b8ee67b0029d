//! The experiments that come with the lab.

use std::path::Path;

use crate::error::{Error, Result};
use crate::experiment::{Experiment, Size, read};

/// Their names, in the order in which they are listed and run.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// The file of the experiment of this name.
pub(crate) fn text(name: &str) -> Option<&'static str> {
    FILES.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// The experiment of this name, or of this TOML file.
///
/// # Errors
/// [`Error::Unknown`], or what is wrong with the file or with a directory of programs that it
/// names.
pub fn find(name: &str, size: Size) -> Result<Experiment> {
    if let Some(text) = text(name) {
        return read(name, text, size);
    }
    let path = Path::new(name);
    if path.extension().is_none_or(|extension| extension != "toml") {
        return Err(Error::Unknown(name.into()));
    }
    let text = std::fs::read_to_string(path).map_err(Error::io(format!("reading {name}")))?;
    let mut experiment = read(name, &text, size)?;
    // A directory of programs is relative to the file that names it.
    crate::arm::find_programs(&mut experiment, path.parent().unwrap_or(Path::new("")))?;
    Ok(experiment)
}

macro_rules! files {
    ($($name:literal),+ $(,)?) => {
        [$(($name, include_str!(concat!("../experiments/", $name, ".toml")))),+]
    };
}

const FILES: [(&str, &str); 12] = files![
    "crypto",
    "cpu-paths",
    "shared-buffers",
    "rds-encryption",
    "cybertec-matrix",
    "wal-stress",
    "provisioned-iops",
    "aurora-mysqlslap",
    "aurora-mysql",
    "mariadb-sysbench",
    "latency",
    "regression",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_is_understood_in_every_size() {
        for name in names() {
            for size in [Size::Miniature, Size::Small, Size::Published] {
                let experiment = find(name, size).unwrap();
                assert_eq!(experiment.name, name);
                crate::plan::cells(&experiment).unwrap();
                assert!(experiment.claims.iter().all(|claim| !claim.text.is_empty()));
            }
        }
    }

    #[test]
    fn every_file_of_a_peer_is_understood_and_says_whether_it_was_run() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/peers");
        let mut files = 0;
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            for size in [Size::Miniature, Size::Small] {
                let experiment = read("peer", &text, size).unwrap();
                assert_eq!(Some(&*experiment.name), path.file_stem().unwrap().to_str());
                crate::plan::cells(&experiment).unwrap();
                let run = |note: &String| note.contains("run");
                assert!(experiment.notes.iter().any(run), "{}", path.display());
            }
            files += 1;
        }
        assert_eq!(files, 6);
    }

    #[test]
    fn an_unknown_name_is_no_file() {
        assert!(matches!(find("shared-bufers", Size::Small), Err(Error::Unknown(_))));
    }
}

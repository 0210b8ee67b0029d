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
/// [`Error::Unknown`], or what is wrong with the file.
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
    // A directory of an arm is relative to the file that names it.
    crate::arm::find_directories(&mut experiment, path.parent().unwrap_or(Path::new("")));
    crate::plan::cells(&experiment)?;
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
    use crate::experiment::{Engine, Param};

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
    fn no_server_vacuums_by_itself_where_a_trial_takes_seconds() {
        for name in names() {
            let small = find(name, Size::Small).unwrap();
            if small.engine == Engine::Postgresql {
                let set = small.settings.get("autovacuum").map(|Param(value)| value.as_str());
                assert_eq!(set, Some("off"), "{name}");
            }
        }
        // At the published size it is on, as a server has it that does not set it.
        for name in ["cybertec-matrix", "rds-encryption"] {
            let published = find(name, Size::Published).unwrap();
            assert_eq!(published.settings["autovacuum"], Param::from("on"), "{name}");
        }
    }

    /// A server may be built without libxml.
    #[test]
    fn nothing_asks_a_server_for_xml() {
        let (dir, mut files) = (Path::new(env!("CARGO_MANIFEST_DIR")), 0);
        let mut dirs = vec![dir.join("experiments"), dir.join("src"), dir.join("../servers/src")];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    dirs.push(path);
                } else if !path.ends_with("catalogue.rs") {
                    files += 1;
                    let text = std::fs::read_to_string(&path).unwrap().to_lowercase();
                    for word in ["xpath", "xmltable", "xmlparse", "xmlelement", "to_xml", "::xml"] {
                        assert!(!text.contains(word), "{}: {word}", path.display());
                    }
                }
            }
        }
        assert!(files > 100, "{files}");
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
    fn cybertec_s_published_size_has_all_that_was_published() {
        let matrix = find("cybertec-matrix", Size::Published).unwrap();
        let published = include_str!("../published/cybertec_tde.toml");
        let published: toml::Table = toml::from_str(published).unwrap();
        for (factor, key) in [("scale", "scales"), ("connections", "connections")] {
            let levels = published["setup"][key].as_array().unwrap();
            assert!(levels.len() > 7, "{levels:?}");
            for level in levels {
                let level = crate::experiment::Param(level.to_string());
                assert!(matrix.factors[factor].contains(&level), "{factor} {level:?}");
            }
        }
    }

    #[test]
    fn an_experiment_with_one_server_of_each_arm_says_what_follows() {
        let mut alone = 0;
        for name in names() {
            let experiment = find(name, Size::Small).unwrap();
            let says = experiment.notes.iter().any(|note| {
                note.contains("one server of each arm") && note.contains("between arms")
            });
            let one = experiment.engine != crate::experiment::Engine::None
                && experiment.stop.servers == 1;
            assert_eq!(says, one, "{name}");
            alone += usize::from(one);
        }
        assert!(alone > 0);
    }

    #[test]
    fn a_tpcb_that_begins_after_a_checkpoint_says_so() {
        for name in ["cybertec-matrix", "rds-encryption"] {
            let experiment = find(name, Size::Small).unwrap();
            let says = |note: &String| note.contains("checkpoint, so nearly every transaction");
            assert!(experiment.notes.iter().any(says), "{name}");
        }
    }

    #[test]
    fn the_large_batch_is_not_judged_by_the_cells_of_another() {
        let of = |size| {
            let experiment = find("provisioned-iops", size).unwrap();
            let verdicts = crate::verdict::judge(&experiment, &everything(&experiment), &[]);
            verdicts.into_iter().find(|v| v.claim.id == "large-batch").unwrap()
        };
        let small = of(Size::Small);
        assert!(small.why.starts_with("not measured here: this size"), "{}", small.why);
        assert!(small.why.ends_with("has no large batch") && small.ours.is_none());
        assert_eq!(of(Size::Published).why, "it was not measured");
        let published = find("provisioned-iops", Size::Published).unwrap();
        let cells = crate::plan::cells(&published).unwrap();
        assert!(cells.iter().any(|cell| cell.workload() == "large_batch"));
    }

    fn everything(experiment: &Experiment) -> Vec<crate::manifest::PlannedArm> {
        let arm = |name: &String| crate::manifest::PlannedArm {
            name: name.clone(),
            title: String::new(),
            missing: None,
        };
        experiment.arms.iter().map(arm).collect()
    }

    #[test]
    fn an_unknown_name_is_no_file() {
        assert!(matches!(find("shared-bufers", Size::Small), Err(Error::Unknown(_))));
    }
}

//! `run.json`: what was to be measured, on which machine, with which seed.
//!
//! Written once before the first trial; `resume` repeats exactly this plan.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::experiment::{Experiment, Size};

/// A run of one or more experiments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of this file and of the lines of results: 1.
    pub format: u32,
    /// Version of Tidelock.
    pub tidelock: String,
    /// Commit that it was built from, `-changed` where files differed from it; empty if not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub commit: String,
    /// Unix time of the start, in seconds.
    pub created: u64,
    /// Seed of every order and of the bootstrap.
    pub seed: u64,
    /// Size that was asked for.
    pub size: Size,
    /// The machine.
    pub machine: Machine,
    /// What is measured, in this order.
    pub experiments: Vec<Planned>,
}

/// One experiment of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Planned {
    /// The experiment, resolved to the run's size.
    #[serde(deserialize_with = "experiment")]
    pub experiment: Experiment,
    /// Its arms; those that are missing say why.
    pub arms: Vec<PlannedArm>,
    /// What limits the conclusions on this machine: throttling without root, a CPU without VAES.
    pub limits: Vec<String>,
}

/// Earlier versions could end a cell where its interval was narrow, and wrote `precision = null`
/// where that was not asked for. Such a run is like any other; one where it was asked for is
/// refused.
fn experiment<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Experiment, D::Error> {
    let mut value = Value::deserialize(deserializer)?;
    if let Some(stop) = value.get_mut("stop").and_then(Value::as_object_mut)
        && stop.get("precision").is_some_and(Value::is_null)
    {
        stop.remove("precision");
    }
    Experiment::deserialize(value).map_err(D::Error::custom)
}

/// An arm of an experiment on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedArm {
    /// Name, as in the trials.
    pub name: String,
    /// What it is, for people.
    pub title: String,
    /// Why it cannot be measured here; `None` if it can.
    pub missing: Option<String>,
}

/// What the numbers depend on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Short name for directories: letters, digits and dashes.
    pub name: String,
    /// Model of the CPU.
    pub cpu: String,
    /// Processors the lab may use.
    pub cpus: usize,
    /// What the CPU has of AES: `aes`, `vaes`, `avx512f`.
    pub cpu_features: Vec<String>,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Kernel release.
    pub kernel: String,
    /// Distribution.
    pub system: String,
    /// File system that the servers' directories lay on.
    pub file_system: String,
    /// The disk below it: model or name, and size; empty if not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub disk: String,
    /// Median milliseconds of a write of 8 KiB with its fdatasync there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fsync_ms: Option<f64>,
    /// Versions of servers and tools by name.
    pub versions: BTreeMap<String, String>,
    /// Whether a control group could be made: by root, where no container hides them.
    pub root: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_could_have_ended_cells_early_is_read_unless_it_did() {
        let experiment = crate::synthetic::experiment(&["plain"]);
        let planned = Planned { experiment, arms: Vec::new(), limits: Vec::new() };
        let mut value = serde_json::to_value(&planned).unwrap();
        let stop = value["experiment"]["stop"].as_object_mut().unwrap();
        assert!(!stop.contains_key("precision"));
        stop.insert("precision".into(), Value::Null);
        assert_eq!(serde_json::from_value::<Planned>(value.clone()).unwrap(), planned);
        value["experiment"]["stop"]["precision"] = 0.02.into();
        let why = serde_json::from_value::<Planned>(value).unwrap_err().to_string();
        assert!(why.contains("unknown field `precision`"), "{why}");
    }

    #[test]
    fn every_run_that_is_kept_is_read_and_its_cells_are_known() {
        let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../lab/runs");
        let mut runs = 0;
        for entry in std::fs::read_dir(kept).unwrap() {
            let dir = entry.unwrap().path();
            if dir.is_dir() {
                let run = crate::results::Results::read(&dir).unwrap();
                for planned in &run.manifest.experiments {
                    crate::plan::cells(&planned.experiment).unwrap();
                }
                runs += 1;
            }
        }
        assert!(runs > 0, "none in {kept}");
    }
}

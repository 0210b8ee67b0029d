//! `run.json`: what was to be measured, on which machine, with which seed.
//!
//! Written once before the first trial; `resume` repeats exactly this plan.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::experiment::{Experiment, Size};

/// A run of one or more experiments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of this file and of the lines of results: 1.
    pub format: u32,
    /// Version of Tidelock.
    pub tidelock: String,
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
    pub experiment: Experiment,
    /// Its arms; those that are missing say why.
    pub arms: Vec<PlannedArm>,
    /// What limits the conclusions on this machine: throttling without root, a CPU without VAES.
    pub limits: Vec<String>,
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Versions of servers and tools by name.
    pub versions: BTreeMap<String, String>,
    /// Whether cgroups, loop devices and mounts could be used.
    pub root: bool,
}

//! One trial: one arm, one cell, one block, and everything that was measured in it.
//!
//! A line of `results.jsonl` is one trial as JSON. Nothing derived is stored: ratios, intervals and
//! verdicts are made from trials by `analysis`.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// One finished trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    /// Name of the experiment.
    pub experiment: String,
    /// Levels of its factors; the workload is one of them.
    pub cell: Cell,
    /// What the trial is for.
    pub phase: Phase,
    /// Block, from 0: trials of one block are paired.
    pub block: u32,
    /// Which start of the lab measured it: 0, and one more with each `resume`.
    #[serde(default, skip_serializing_if = "is_first")]
    pub sitting: u32,
    /// Place in the block, from 0.
    pub order: u32,
    /// Name of the arm.
    pub arm: String,
    /// Which of the arm's servers, from 0; plain and control are each other's second.
    #[serde(default, skip_serializing_if = "is_first")]
    pub instance: u32,
    /// Unix time of its start, in seconds.
    pub started: f64,
    /// Wall clock seconds of the measured part.
    pub seconds: f64,
    /// Values by the name of a metric (see `metric`).
    pub metrics: BTreeMap<String, f64>,
    /// Values over time by the name of a metric: seconds since the start, value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub series: BTreeMap<String, Vec<(f64, f64)>>,
    /// What may have disturbed it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_first(number: &u32) -> bool {
    *number == 0
}

/// What a trial is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// As much as the arm can do.
    Capacity,
    /// Equal work at a part of what the plain server can do, 40 % where the experiment says
    /// nothing, or less, where clients would have a queue. In short slices: CPU time for a unit of
    /// work, and latencies.
    EqualWork,
    /// A fixed rate, for latencies: 70 % of what the plain server can do.
    FixedRate,
}

impl Phase {
    /// All, in the order in which they are measured.
    pub const ALL: [Self; 3] = [Self::Capacity, Self::EqualWork, Self::FixedRate];

    /// Its name in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::EqualWork => "equal-work",
            Self::FixedRate => "fixed-rate",
        }
    }

    /// How it is said beside a metric; nothing of capacity.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Capacity => "",
            Self::EqualWork => "by equal work",
            Self::FixedRate => "at 70 % of capacity",
        }
    }
}

/// Levels of the factors by name, as text: `scale` = `50`. `workload` is always one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cell(pub BTreeMap<String, String>);

impl Cell {
    /// Name of the workload.
    #[must_use]
    pub fn workload(&self) -> &str {
        self.0.get(WORKLOAD).map_or("", String::as_str)
    }

    /// Whether every level that `filter` names is the same here.
    #[must_use]
    pub fn matches(&self, filter: &BTreeMap<String, String>) -> bool {
        filter.iter().all(|(name, level)| self.0.get(name) == Some(level))
    }
}

impl fmt::Display for Cell {
    /// `tpcb_like, connections 12, scale 50`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.workload())?;
        for (name, level) in self.0.iter().filter(|(name, _)| *name != WORKLOAD) {
            write!(f, ", {} {level}", name.replace('_', " "))?;
        }
        Ok(())
    }
}

/// The factor that every experiment has.
pub const WORKLOAD: &str = "workload";

/// Something that may have disturbed a trial; it is shown, never used to drop the trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Warning {
    /// What kind of disturbance.
    pub kind: WarningKind,
    /// The sentence with the numbers.
    pub text: String,
}

/// Kinds of disturbance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WarningKind {
    /// The hypervisor took CPU time away.
    Steal,
    /// The kernel throttled the server's CPU time.
    Throttling,
    /// A checkpoint that was not asked for fell into the trial.
    Checkpoint,
    /// A trial that was to be warm wrote full-page images.
    PageImages,
    /// Something else on the machine used CPU time.
    OtherLoad,
    /// The limits of the experiment could not be set.
    Unlimited,
    /// CPU time was counted in ticks of the clock, by processes, and not in nanoseconds.
    CoarseClock,
    /// The servers' files were not read into the page cache before the block: they do not fit.
    ColdCache,
    /// Slices of equal work took longer than planned, since transactions waited for each other.
    Queue,
    /// Equal work has a lower rate than was asked for: at that, transactions would wait.
    LoweredRate,
    /// Another row of the same trial says something else. No lab writes it: it is found by reading.
    Contradicted,
}

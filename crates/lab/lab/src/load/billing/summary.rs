//! What a run did: for programs as JSON, for people as lines.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Phase;

/// What one run did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Each phase that was begun, in order.
    pub phases: Vec<PhaseSummary>,
    /// Whether the stop flag ended it before everything was done.
    pub stopped: bool,
}

/// What one run did in one phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseSummary {
    /// The phase.
    pub phase: Phase,
    /// Records that this run loaded, validated or charged.
    pub records: u64,
    /// Records that earlier runs had done.
    pub before: u64,
    /// Wall clock seconds.
    pub seconds: f64,
    /// Lines that this run rejected.
    pub rejected: u64,
    /// Rows that phases 2 and 3 inserted: findings and charges; in phase 1 the records.
    pub inserted: u64,
}

impl PhaseSummary {
    /// Records a second; 0 if nothing was done.
    #[must_use]
    pub fn rate(&self) -> f64 {
        if self.records == 0 { 0.0 } else { self.records as f64 / self.seconds }
    }
}

impl Summary {
    /// One phase, if it was begun.
    #[must_use]
    pub fn phase(&self, phase: Phase) -> Option<&PhaseSummary> {
        self.phases.iter().find(|summary| summary.phase == phase)
    }

    /// One JSON object: `format` 1, the phases with their rates, totals.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let phases: Vec<_> = self
            .phases
            .iter()
            .map(|phase| {
                serde_json::json!({
                    "phase": phase.phase,
                    "records": phase.records,
                    "before": phase.before,
                    "seconds": phase.seconds,
                    "records_per_second": phase.rate(),
                    "rejected": phase.rejected,
                    "inserted": phase.inserted,
                })
            })
            .collect();
        serde_json::json!({
            "format": 1,
            "stopped": self.stopped,
            "seconds": self.phases.iter().map(|phase| phase.seconds).sum::<f64>(),
            "rejected": self.phases.iter().map(|phase| phase.rejected).sum::<u64>(),
            "phases": phases,
        })
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for phase in &self.phases {
            write!(
                f,
                "{:<18} {:>10} records in {:8.2} s: {:>8.0} records/s, {} rows inserted",
                phase.phase.to_string(),
                phase.records,
                phase.seconds,
                phase.rate(),
                phase.inserted
            )?;
            if phase.rejected > 0 {
                write!(f, ", {} lines rejected", phase.rejected)?;
            }
            if phase.before > 0 {
                write!(f, " ({} done before)", phase.before)?;
            }
            writeln!(f)?;
        }
        if self.stopped {
            writeln!(f, "stopped; the next run goes on from here")?;
        }
        Ok(())
    }
}

/// How far a phase is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// The phase.
    pub phase: Phase,
    /// Seconds since it began.
    pub seconds: f64,
    /// Records that this run has done in it.
    pub records: u64,
    /// Lines that it rejected.
    pub rejected: u64,
    /// How many this run will do at most, where that is known: not while files are read.
    pub of: Option<u64>,
}

//! Families of cells: what is said first, because it is told from many blocks.
//!
//! A family is one kind of load in all experiments that compare with plain. Its estimate is the
//! mean of its cells' logarithms, each cell with the same weight. A cell that says nothing (too few
//! blocks, a control that voids it, a limit not in force) is left out, and counted.

use serde::Serialize;

use super::{Comparison, PLAIN};
use crate::experiment::{Experiment, Script, Work};
use crate::metric::Better;
use crate::statistics::{Estimate, Interval};
use crate::trial::Phase;

/// One kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Every cell.
    All,
    /// Queries alone.
    ReadOnly,
    /// TPC-B-like.
    TpcB,
    /// Rows in bulk.
    Bulk,
    /// Inserts and updates, whose cost is the log's.
    Wal,
    /// The batch engine and mysqlslap.
    Batch,
}

impl Kind {
    /// In the order in which they are shown.
    pub const ORDER: [Self; 6] =
        [Self::All, Self::ReadOnly, Self::TpcB, Self::Bulk, Self::Wal, Self::Batch];

    /// For people.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::All => "all loads",
            Self::ReadOnly => "read only",
            Self::TpcB => "TPC-B-like",
            Self::Bulk => "bulk",
            Self::Wal => "write-ahead log",
            Self::Batch => "batch",
        }
    }

    /// The kind of a workload; `None` of what has no server.
    #[must_use]
    pub fn of(work: &Work) -> Option<Self> {
        Some(match work {
            Work::Crypto(_) => return None,
            Work::Sql(_) => Self::Bulk,
            Work::Mysqlslap(_) | Work::Billing(_) => Self::Batch,
            Work::Pgbench(pgbench) => match pgbench.script {
                Script::SelectOnly => Self::ReadOnly,
                Script::TpcbLike => Self::TpcB,
                Script::Custom => {
                    let text = pgbench.custom.as_deref().unwrap_or_default().to_uppercase();
                    let writes = ["INSERT", "UPDATE", "DELETE"].iter().any(|w| text.contains(w));
                    if writes { Self::Wal } else { Self::ReadOnly }
                }
            },
        })
    }
}

/// What a family is judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aspect {
    /// CPU time for a unit of work: by equal work where that was measured.
    Cpu,
    /// Throughput at capacity, or time.
    Throughput,
    /// 95th percentile of the latency at 40 % of capacity, or at 70 % where that was measured
    /// instead.
    P95,
}

impl Aspect {
    /// In the order in which they are shown.
    pub const ORDER: [Self; 3] = [Self::Cpu, Self::Throughput, Self::P95];

    /// For people.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Cpu => "CPU time",
            Self::Throughput => "throughput",
            Self::P95 => "95th percentile of latency",
        }
    }

    /// Whether a comparison of a cell belongs to it; `paced` if the cell has equal work, `fast` if
    /// it has a throughput, without which its time is taken.
    pub(crate) fn is(self, comparison: &Comparison, paced: bool, fast: bool) -> bool {
        let (phase, metric) = (comparison.phase, comparison.metric);
        let (equal_work, capacity) = (phase == Phase::EqualWork, phase == Phase::Capacity);
        match self {
            Self::Cpu => metric.name == "cpu_per_unit" && if paced { equal_work } else { capacity },
            Self::Throughput if fast => capacity && metric.better == Better::Higher,
            Self::Throughput => capacity && metric.name == "elapsed",
            Self::P95 => metric.name == "latency_p95" && !capacity && equal_work == paced,
        }
    }
}

/// A family by one aspect.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Its loads.
    pub kind: Kind,
    /// What it is judged by.
    pub aspect: Aspect,
    /// The arm.
    pub arm: String,
    /// Performance as a part of plain's, with its error.
    pub estimate: Estimate,
    /// The same as a ratio with its 95 % interval.
    pub ratio: Interval,
    /// Cells that it rests on.
    pub cells: usize,
    /// Cells of it that say nothing.
    pub left_out: usize,
}

/// The families of `arm` against plain in all experiments, those that have a cell.
#[must_use]
pub fn families(compared: &[(&Experiment, &[Comparison])], arm: &str) -> Vec<Family> {
    let mut families = Vec::new();
    for kind in Kind::ORDER {
        for aspect in Aspect::ORDER {
            let (mut estimates, mut left_out) = (Vec::new(), 0);
            for (experiment, all) in compared {
                let of_arm = |c: &&Comparison| c.arm == arm && c.base == PLAIN;
                for c in all.iter().filter(of_arm) {
                    let in_cell = || all.iter().filter(of_arm).filter(|o| o.cell == c.cell);
                    let paced = in_cell().any(|other| other.phase == Phase::EqualWork);
                    let fast = in_cell().any(|other| Aspect::Throughput.is(other, paced, true));
                    let name = c.cell.workload().split('/').next().unwrap_or_default();
                    let of_kind = experiment.workload.get(name).and_then(Kind::of);
                    let here = kind == Kind::All && of_kind.is_some() || of_kind == Some(kind);
                    if !here || !aspect.is(c, paced, fast) {
                        continue;
                    }
                    match c.estimate.filter(|_| c.told().is_ok() && c.unlimited.is_none()) {
                        Some(estimate) => estimates.push(estimate),
                        None => left_out += 1,
                    }
                }
            }
            let Some(estimate) = Estimate::pooled(&estimates) else { continue };
            families.push(Family {
                kind,
                aspect,
                arm: arm.into(),
                estimate,
                ratio: estimate.interval(0.95),
                cells: estimates.len(),
                left_out,
            });
        }
    }
    families
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::compare;
    use crate::experiment::{Param, Pgbench, Sql};
    use crate::synthetic::{Synthetic, experiment};

    fn pgbench(script: Script, custom: Option<&str>) -> Work {
        let one = || Param::from("1");
        Work::Pgbench(Pgbench {
            script,
            custom: custom.map(Into::into),
            setup: None,
            scale: one(),
            clients: one(),
            jobs: one(),
            seconds: one(),
            reindex: false,
        })
    }

    #[test]
    fn a_family_has_its_cells_and_no_other_s() {
        let mut run = Synthetic::new(10);
        let arms = ["plain", "control", "sealed"];
        for (workload, speed) in [("select", 0.9), ("insert", 1.0)] {
            for arm in arms {
                run.arm(arm, workload, if arm == "sealed" { speed } else { 1.0 });
            }
        }
        let mut experiment = experiment(&arms);
        let sql = Sql { setup: "".into(), sql: "".into(), rows: "1".into() };
        experiment.workload.insert("select".into(), pgbench(Script::SelectOnly, None));
        experiment.workload.insert("insert".into(), Work::Sql(sql));
        let all = compare(&experiment, &run.trials);
        let families = families(&[(&experiment, &all)], "sealed");
        let of = |kind, aspect| families.iter().find(|f| f.kind == kind && f.aspect == aspect);
        for aspect in [Aspect::Cpu, Aspect::Throughput] {
            let read = of(Kind::ReadOnly, aspect).unwrap();
            assert!(read.cells == 1 && (read.ratio.mid - 0.9).abs() < 0.01, "{read:?}");
            let whole = of(Kind::All, aspect).unwrap();
            let middle = 0.9_f64.sqrt();
            assert!(whole.cells == 2 && (whole.ratio.mid - middle).abs() < 0.01, "{whole:?}");
            assert!(of(Kind::TpcB, aspect).is_none());
        }
        assert!(of(Kind::All, Aspect::P95).is_none());
    }

    #[test]
    fn custom_scripts_are_judged_by_what_they_do() {
        let of = |text| Kind::of(&pgbench(Script::Custom, Some(text)));
        assert_eq!(of("SELECT sum(a) FROM t;"), Some(Kind::ReadOnly));
        assert_eq!(of("insert into t values (1);"), Some(Kind::Wal));
    }
}

//! Families of cells: what is said first, because it is told from many blocks.
//!
//! A family is one kind of load in all experiments that compare with plain. Its estimate is the
//! mean of its cells' logarithms, each cell with the same weight; phases of the batch engine, which
//! one trial measures, are one cell in that. A cell that says nothing (too few blocks, a control
//! that voids it, a limit not in force, no equal work where it was planned) is left out, and
//! counted. The controls of the cells that are left have one mean too, and it may void the family.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{CONTROL, Comparison, PART, PLAIN, SEALED, because_void, changes, is_paced, void};
use crate::experiment::{Experiment, Script, SysbenchScript, Work};
use crate::metric::Better;
use crate::statistics::{Estimate, Interval};
use crate::trial::{Cell, Phase, WORKLOAD};

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
    /// Many queries and a few changes in a transaction.
    Mixed,
    /// Rows in bulk.
    Bulk,
    /// Inserts and updates, whose cost is the log's.
    Wal,
    /// The batch engine and mysqlslap.
    Batch,
    /// A new connection for each transaction: a process of the server for each.
    Connect,
}

impl Kind {
    /// In the order in which they are shown.
    pub const ORDER: [Self; 8] = [
        Self::All,
        Self::ReadOnly,
        Self::TpcB,
        Self::Mixed,
        Self::Bulk,
        Self::Wal,
        Self::Batch,
        Self::Connect,
    ];

    /// For people.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::All => "all loads",
            Self::ReadOnly => "read only",
            Self::TpcB => "TPC-B-like",
            Self::Mixed => "queries and changes",
            Self::Bulk => "bulk",
            Self::Wal => "write-ahead log",
            Self::Batch => "batch",
            Self::Connect => "new connections",
        }
    }

    /// The kind of a workload; `None` of what has no server.
    #[must_use]
    pub fn of(work: &Work) -> Option<Self> {
        Some(match work {
            Work::Crypto(_) => return None,
            Work::Sql(_) => Self::Bulk,
            Work::Mysqlslap(_) | Work::Billing(_) => Self::Batch,
            Work::Sysbench(sysbench) => match sysbench.script {
                SysbenchScript::OltpReadOnly => Self::ReadOnly,
                SysbenchScript::OltpReadWrite => Self::Mixed,
                SysbenchScript::OltpWriteOnly => Self::Wal,
                SysbenchScript::BulkInsert => Self::Bulk,
            },
            Work::Pgbench(pgbench) if pgbench.connect => Self::Connect,
            Work::Pgbench(pgbench) => match pgbench.script {
                Script::SelectOnly => Self::ReadOnly,
                Script::TpcbLike => Self::TpcB,
                Script::Custom => {
                    let script = pgbench.custom.as_deref().unwrap_or_default();
                    if changes::rows(script) { Self::Wal } else { Self::ReadOnly }
                }
            },
        })
    }
}

/// What a family is judged by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aspect {
    /// CPU time for a unit of work: by equal work where that was planned.
    Cpu,
    /// Throughput at capacity, or time.
    Throughput,
    /// 95th percentile of the latency by equal work, or at 70 % of capacity where that was planned
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

    /// Whether a comparison of a cell belongs to it; `paced` if equal work was to be measured in
    /// the cell, `fast` if it has a throughput, without which its time is taken.
    fn is(self, comparison: &Comparison, paced: bool, fast: bool) -> bool {
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
    /// Performance as a part of its base's, with its error.
    pub estimate: Estimate,
    /// The same as a ratio with its 95 % interval.
    pub ratio: Interval,
    /// Cells that it rests on.
    pub cells: usize,
    /// Cells of it that say nothing.
    pub left_out: usize,
    /// What two equal servers seem to differ by in the same cells, with its 95 % interval.
    pub control: Option<Interval>,
    /// The same, at 99 %, where it excludes 1: then servers are compared, not arms. Each cell alone
    /// may be too noisy to show it.
    pub void: Option<Interval>,
}

impl Family {
    /// Why nothing is said of it; `None` if something can be.
    #[must_use]
    pub fn untold(&self) -> Option<String> {
        self.void.as_ref().map(because_void)
    }
}

/// The comparisons of one arm in one cell that belong to `aspect`; `here` are all of them.
pub(crate) fn of_aspect<'c>(
    experiment: &Experiment,
    cell: &Cell,
    here: &[&'c Comparison],
    aspect: Aspect,
) -> Vec<&'c Comparison> {
    let paced =
        is_paced(experiment, cell.workload()) || here.iter().any(|c| c.phase == Phase::EqualWork);
    let fast = here.iter().any(|c| Aspect::Throughput.is(c, paced, true));
    here.iter().copied().filter(|c| aspect.is(c, paced, fast)).collect()
}

/// The families of `arm` against plain in all experiments, those that have a cell.
#[must_use]
pub fn families(compared: &[(&Experiment, &[Comparison])], arm: &str) -> Vec<Family> {
    against(compared, arm, |base| base == PLAIN)
}

/// The families of the sealed server against another encryption; see [`super::beside_peer`].
#[must_use]
pub fn families_beside_peer(compared: &[(&Experiment, &[Comparison])]) -> Vec<Family> {
    against(compared, SEALED, |base| base != PLAIN)
}

fn against(
    compared: &[(&Experiment, &[Comparison])],
    arm: &str,
    is_base: fn(&str) -> bool,
) -> Vec<Family> {
    let mut families = Vec::new();
    for kind in Kind::ORDER {
        for aspect in Aspect::ORDER {
            let (mut estimates, mut controls) = (Vec::new(), Vec::new());
            let (mut cells, mut left_out) = (0, 0);
            for (experiment, all) in compared {
                let of_arm = |c: &&Comparison| c.arm == arm && is_base(&c.base);
                let of_arm: Vec<&Comparison> = all.iter().filter(of_arm).collect();
                let Members { trials, left_out: out } =
                    of_experiment(experiment, &of_arm, kind, aspect);
                cells += trials.values().map(Vec::len).sum::<usize>();
                left_out += out;
                for parts in trials.values() {
                    let (of_arm, equal): (Vec<_>, Vec<_>) = parts.iter().copied().unzip();
                    estimates.extend(Estimate::together(&of_arm));
                    let equal: Vec<Estimate> = equal.into_iter().flatten().collect();
                    controls.extend(Estimate::together(&equal));
                }
            }
            let Some(estimate) = Estimate::pooled(&estimates) else { continue };
            let control = Estimate::pooled(&controls);
            families.push(Family {
                kind,
                aspect,
                arm: arm.into(),
                estimate,
                ratio: estimate.interval(PART),
                cells,
                left_out,
                control: control.map(|control| control.interval(PART)),
                void: void(control.as_ref(), 1).filter(|_| arm != CONTROL),
            });
        }
    }
    families
}

/// The cells of one experiment that are of a family.
#[derive(Default)]
struct Members {
    /// The estimate of each and that of its control, by the cell of their trials: phases of the
    /// batch engine are measured in the same ones.
    trials: BTreeMap<Cell, Vec<(Estimate, Option<Estimate>)>>,
    /// How many say nothing.
    left_out: usize,
}

fn of_experiment(
    experiment: &Experiment,
    of_arm: &[&Comparison],
    kind: Kind,
    aspect: Aspect,
) -> Members {
    let mut cells: BTreeMap<&Cell, Vec<&Comparison>> = BTreeMap::new();
    for c in of_arm {
        cells.entry(&c.cell).or_default().push(c);
    }
    let mut members = Members::default();
    for (cell, here) in cells {
        let name = cell.workload().split('/').next().unwrap_or_default();
        let of_kind = experiment.workload.get(name).and_then(Kind::of);
        let of_it = kind == Kind::All && of_kind.is_some() || of_kind == Some(kind);
        if !of_it {
            continue;
        }
        let found = of_aspect(experiment, cell, &here, aspect);
        // What equal work alone tells is not taken from elsewhere.
        if found.is_empty() && aspect != Aspect::Throughput && is_paced(experiment, name) {
            members.left_out += 1;
        }
        for c in found {
            match c.estimate.filter(|_| c.told().is_ok() && c.unlimited.is_none()) {
                Some(estimate) => {
                    let parts = members.trials.entry(of_trials(cell)).or_default();
                    parts.push((estimate, c.control_estimate));
                }
                None => members.left_out += 1,
            }
        }
    }
    members
}

/// The cell of its trials: phases of the batch engine, `billing/phase1`, share theirs.
pub(crate) fn of_trials(cell: &Cell) -> Cell {
    let mut whole = cell.clone();
    let name = cell.workload().split('/').next().unwrap_or_default();
    whole.0.insert(WORKLOAD.into(), name.into());
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::compare;
    use crate::experiment::{Param, Pgbench, Sql};
    use crate::synthetic::{Synthetic, billing, experiment};

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
            connect: false,
            warm: 0,
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
    fn a_cell_without_the_equal_work_that_was_planned_is_left_out() {
        let mut run = Synthetic::new(10);
        let arms = ["plain", "control", "sealed"];
        for workload in ["never_paced", "paced"] {
            for arm in arms {
                run.arm(arm, workload, if arm == "sealed" { 0.9 } else { 1.0 });
            }
        }
        let mut paced: Vec<_> =
            run.trials.iter().filter(|t| t.cell.workload() == "paced").cloned().collect();
        paced.iter_mut().for_each(|trial| trial.phase = Phase::EqualWork);
        run.trials.append(&mut paced);
        let mut experiment = experiment(&arms);
        experiment.stop.equal_work_blocks = 10;
        for workload in ["never_paced", "paced"] {
            experiment.workload.insert(workload.into(), pgbench(Script::SelectOnly, None));
        }
        let all = compare(&experiment, &run.trials);
        let families = families(&[(&experiment, &all)], "sealed");
        let of = |aspect| {
            let same = |f: &&Family| f.kind == Kind::All && f.aspect == aspect;
            families.iter().find(same).map(|f| (f.cells, f.left_out))
        };
        assert_eq!(of(Aspect::Cpu), Some((1, 1)));
        assert_eq!(of(Aspect::Throughput), Some((2, 0)));
    }

    #[test]
    fn phases_of_the_same_trials_are_not_independent() {
        let mut run = Synthetic::new(10);
        let arms = ["plain", "control", "sealed"];
        for arm in arms {
            run.arm(arm, "batch/phase1", 1.0);
        }
        let first = run.trials.clone();
        for phase in ["batch/phase2", "batch/phase3"] {
            run.trials.extend(first.iter().cloned().map(|mut trial| {
                trial.cell.0.insert(WORKLOAD.into(), phase.into());
                trial
            }));
        }
        let mut experiment = experiment(&arms);
        experiment.workload.insert("batch".into(), Work::Billing(billing()));
        let cpu_of = |trials: &[crate::trial::Trial]| {
            let all = compare(&experiment, trials);
            let families = families(&[(&experiment, &all)], "sealed");
            let cpu = |f: &&Family| f.kind == Kind::Batch && f.aspect == Aspect::Cpu;
            families.iter().find(cpu).map(|f| (f.cells, f.ratio.high / f.ratio.low)).unwrap()
        };
        let ((one, width), (three, of_three)) = (cpu_of(&first), cpu_of(&run.trials));
        assert_eq!((one, three), (1, 3));
        assert!((width - of_three).abs() < 1e-9, "{width} {of_three}");
    }

    #[test]
    fn custom_scripts_are_judged_by_what_they_do() {
        let of = |text| Kind::of(&pgbench(Script::Custom, Some(text)));
        assert_eq!(of("SELECT sum(a) FROM t;"), Some(Kind::ReadOnly));
        assert_eq!(of("insert into t values (1);"), Some(Kind::Wal));
        assert_eq!(of("SELECT updated_at FROM inserts;"), Some(Kind::ReadOnly));
        let Work::Pgbench(mut work) = pgbench(Script::SelectOnly, None) else { panic!() };
        work.connect = true;
        assert_eq!(Kind::of(&Work::Pgbench(work)), Some(Kind::Connect));
    }
}

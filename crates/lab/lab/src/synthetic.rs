//! Trials with a known truth, for the tests of what is concluded from trials.
//!
//! Machine drift that is common to a block, and 1 % of noise in each trial.

use std::collections::{BTreeMap, BTreeSet};

use crate::experiment::{Billing, Engine, Experiment, Limits, OwnArm, Param, Size, Stop};
use crate::manifest::{Machine, Manifest, Planned, PlannedArm};
use crate::results::Results;
use crate::trial::{Cell, Phase, Trial, WORKLOAD, Warning, WarningKind};

/// Collects trials of one experiment, named `synthetic`.
pub(crate) struct Synthetic {
    blocks: u32,
    random: fastrand::Rng,
    pub(crate) trials: Vec<Trial>,
    pub(crate) noise: f64,
}

impl Synthetic {
    pub(crate) fn new(blocks: u32) -> Self {
        Self::seeded(blocks, 5)
    }

    pub(crate) fn seeded(blocks: u32, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self { blocks, random, trials: Vec::new(), noise: 0.01 }
    }

    /// Every block of an arm whose speed is `speed` in a workload.
    pub(crate) fn arm(&mut self, arm: &str, workload: &str, speed: f64) -> &mut Self {
        self.at(arm, &[(WORKLOAD, workload)], speed)
    }

    /// The same in a cell of given levels.
    pub(crate) fn at(&mut self, arm: &str, levels: &[(&str, &str)], speed: f64) -> &mut Self {
        let cell: BTreeMap<String, String> =
            levels.iter().map(|(name, level)| ((*name).into(), (*level).into())).collect();
        for block in 0..self.blocks {
            let drift = 1000.0 + 100.0 * f64::from(block);
            let mut noise = || {
                let normal = (0..12).map(|_| self.random.f64()).sum::<f64>() - 6.0;
                1.0 + self.noise * normal
            };
            let metrics = BTreeMap::from([
                ("transactions_per_second".into(), drift * speed * noise()),
                ("cpu_per_unit".into(), 1e6 / (drift * speed * noise())),
            ]);
            self.trials.push(Trial {
                experiment: "synthetic".into(),
                cell: Cell(cell.clone()),
                phase: Phase::Capacity,
                block,
                sitting: 0,
                order: 0,
                arm: arm.into(),
                instance: 0,
                started: 0.0,
                seconds: 1.0,
                metrics,
                series: BTreeMap::new(),
                warnings: Vec::new(),
            });
        }
        self
    }
}

impl Synthetic {
    /// Makes every trial of a workload warn that a limit was not in force.
    pub(crate) fn unlimited(&mut self, workload: &str) {
        for trial in self.trials.iter_mut().filter(|t| t.cell.workload() == workload) {
            let text = "it needs root".into();
            trial.warnings.push(Warning { kind: WarningKind::Unlimited, text });
        }
    }
}

/// The experiment `synthetic` without workloads, factors or claims.
pub(crate) fn experiment(arms: &[&str]) -> Experiment {
    Experiment {
        name: "synthetic".into(),
        question: String::new(),
        notes: Vec::new(),
        published: Vec::new(),
        engine: Engine::Postgresql,
        arms: arms.iter().map(|arm| (*arm).into()).collect(),
        own_arms: Vec::new(),
        factors: BTreeMap::new(),
        stands_for: BTreeMap::new(),
        settings: BTreeMap::new(),
        limits: Limits::default(),
        workload: BTreeMap::new(),
        stop: Stop {
            blocks: 10,
            warm_up: 10,
            latency_blocks: 0,
            equal_work_blocks: 0,
            equal_work_rounds: 4,
            equal_work_rate: "0.4".into(),
            servers: 1,
            control_precision: None,
        },
        claims: Vec::new(),
    }
}

/// An arm of the experiment's own that is like `plain`.
pub(crate) fn own_arm(name: &str) -> OwnArm {
    OwnArm {
        name: name.into(),
        title: String::new(),
        like: "plain".into(),
        bin: None,
        env: BTreeMap::new(),
        needs_cpu: Vec::new(),
        settings: BTreeMap::new(),
        initdb: Vec::new(),
        sql: None,
        restart: false,
        on: None,
        volume: None,
        dsn: None,
    }
}

/// A batch load of the least size.
pub(crate) fn billing() -> Billing {
    let one = || Param::from("1");
    Billing {
        records: one(),
        days: one(),
        files: one(),
        workers: one(),
        batch: one(),
        meters: one(),
    }
}

/// A run of the experiment, with all `arms` present.
pub(crate) fn results(run: Synthetic, arms: &[&str]) -> Results {
    let planned =
        |name: &&str| PlannedArm { name: (*name).into(), title: String::new(), missing: None };
    let planned = Planned {
        experiment: experiment(arms),
        arms: arms.iter().map(planned).collect(),
        limits: Vec::new(),
    };
    let manifest = Manifest {
        format: 1,
        tidelock: "0.1.0".into(),
        commit: String::new(),
        created: 0,
        seed: 1,
        size: Size::Small,
        machine: Machine { name: "here".into(), ..Machine::default() },
        experiments: vec![planned],
    };
    Results {
        dir: "run".into(),
        manifest,
        trials: run.trials,
        broken: Vec::new(),
        outside: Vec::new(),
        absent: Vec::new(),
        cut: 0,
        cut_blocks: BTreeSet::new(),
        sittings: 1,
        finished: true,
        forecast: Vec::new(),
    }
}

/// Gives the control of each cell this ratio of CPU time, in the mean over its blocks.
pub(crate) fn set_controls(results: &mut Results, ratio: f64) {
    const CPU: &str = "cpu_per_unit";
    let (plain, control): (Vec<_>, Vec<_>) = results
        .trials
        .iter_mut()
        .filter(|trial| trial.arm != "sealed")
        .partition(|trial| trial.arm == "plain");
    let mean = |trials: &[&mut Trial], cell: &Cell| {
        let here = trials.iter().filter(|trial| trial.cell == *cell);
        let logs: Vec<f64> = here.map(|trial| trial.metrics[CPU].ln()).collect();
        logs.iter().sum::<f64>() / logs.len() as f64
    };
    let away: Vec<f64> = control
        .iter()
        .map(|trial| mean(&control, &trial.cell) - mean(&plain, &trial.cell))
        .collect();
    for (trial, away) in control.into_iter().zip(away) {
        *trial.metrics.get_mut(CPU).unwrap() *= (-away).exp() / ratio;
    }
}

//! A run that was never measured: made from a seed, with everything that a report must cope with.
//!
//! Three experiments; a missing arm, a factor with sizes, provisioned I/O over time, latencies at a
//! fixed rate, outliers, warnings, too few blocks, cells that were not measured, a corrupt line.
//! Beside it one whose every name would like to be markup.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;

use tidelock_lab::experiment::{self, Param, Size};
use tidelock_lab::manifest::{Machine, Manifest, Planned, PlannedArm};
use tidelock_lab::results::{FORMAT, RESULTS, Writer};
use tidelock_lab::trial::{Cell, Phase, Trial, Warning, WarningKind};

/// What would break out of a script, a tag or a table.
pub(crate) const HOSTILE: &str =
    "</script><script>window.intruder = 1</script><img src=x onerror=alert(1)>|\"'&";
/// What a spreadsheet would compute.
pub(crate) const FORMULA: &str = "=HYPERLINK(\"http://example.org\")";

/// Writes the run into `dir`.
pub(crate) fn make(dir: &Path) {
    let planned = EXPERIMENTS.map(|(name, text)| {
        let experiment = experiment::read(name, text, Size::Small).unwrap();
        let arms = experiment.arms.iter().map(|arm| PlannedArm {
            name: arm.clone(),
            title: title(arm),
            missing: (arm == "gocryptfs").then(|| "gocryptfs is not installed".into()),
        });
        Planned { arms: arms.collect(), limits: Vec::new(), experiment }
    });
    let mut manifest = Manifest {
        format: FORMAT,
        tidelock: "0.1.0".into(),
        commit: "0123456789ab".into(),
        created: 1_795_248_600,
        seed: 7,
        size: Size::Small,
        machine: Machine {
            name: "example".into(),
            cpu: "Synthetic 2-core processor".into(),
            cpus: 2,
            cpu_features: vec!["aes".into(), "vaes".into()],
            memory_mib: 8192,
            kernel: "6.1.0".into(),
            system: "Debian GNU/Linux 12".into(),
            file_system: "ext4".into(),
            disk: "Example disk, 32 GiB".into(),
            fsync_ms: Some(0.87),
            versions: BTreeMap::from([("postgresql".into(), "15.14".into())]),
            root: true,
        },
        experiments: planned.into(),
    };
    manifest.experiments[0].limits.push(format!("A limit that is named {HOSTILE}"));
    let mut writer = Writer::create(dir, &manifest).unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    let mut noise = move || 1.0 + (random.f64() + random.f64() + random.f64() - 1.5) * 0.02;
    for (number, trial) in matrix(&mut noise).into_iter().enumerate() {
        writer.add(&trial).unwrap();
        if number == 20 {
            let mut file = OpenOptions::new().append(true).open(dir.join(RESULTS)).unwrap();
            writeln!(file, "{{\"experiment\": \"{HOSTILE}").unwrap();
        }
    }
    for trial in buffers(&mut noise).into_iter().chain(iops(&mut noise)) {
        writer.add(&trial).unwrap();
    }
}

/// Writes a run of one experiment in which every name and every text is hostile.
pub(crate) fn make_hostile(dir: &Path) {
    let mut experiment = experiment::read("hostile", EXPERIMENTS[1].1, Size::Small).unwrap();
    experiment.name = HOSTILE.into();
    experiment.question = HOSTILE.into();
    experiment.notes = vec![HOSTILE.into()];
    experiment.arms.push(FORMULA.into());
    let levels = [HOSTILE, FORMULA].map(Param::from);
    experiment.factors = BTreeMap::from([(HOSTILE.into(), levels.into())]);
    experiment.settings = BTreeMap::from([("a".into(), format!("{{{HOSTILE}}}").as_str().into())]);
    let work = experiment.workload.remove("read_only").unwrap();
    experiment.workload.insert(HOSTILE.into(), work);
    let claim = &mut experiment.claims[0];
    claim.id = HOSTILE.into();
    claim.text = HOSTILE.into();
    claim.source = HOSTILE.into();
    claim.levels.clear();
    let arm = |name: &String| PlannedArm {
        name: name.clone(),
        title: HOSTILE.into(),
        missing: (name == "control").then(|| HOSTILE.into()),
    };
    let planned = Planned {
        arms: experiment.arms.iter().map(arm).collect(),
        limits: vec![HOSTILE.into()],
        experiment,
    };
    let machine = Machine {
        name: HOSTILE.into(),
        cpu: HOSTILE.into(),
        kernel: HOSTILE.into(),
        versions: BTreeMap::from([(HOSTILE.into(), HOSTILE.into())]),
        ..Machine::default()
    };
    let manifest = Manifest {
        format: FORMAT,
        tidelock: HOSTILE.into(),
        commit: HOSTILE.into(),
        created: 1_795_248_600,
        seed: 7,
        size: Size::Small,
        machine,
        experiments: vec![planned],
    };
    let mut writer = Writer::create(dir, &manifest).unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    for level in [HOSTILE, FORMULA] {
        for block in 0..6 {
            for arm in ["plain", "control", "sealed", FORMULA] {
                let levels = [("workload", HOSTILE), (HOSTILE, level)];
                let mut trial = trial(HOSTILE, &levels, block, arm);
                let value = 900.0 + 200.0 * random.f64();
                trial.metrics.insert("transactions_per_second".into(), value);
                trial.metrics.insert(FORMULA.into(), value);
                trial
                    .series
                    .insert(HOSTILE.into(), (1..9).map(|s| (f64::from(s), value)).collect());
                trial.warnings.push(Warning { kind: WarningKind::Steal, text: HOSTILE.into() });
                writer.add(&trial).unwrap();
            }
        }
    }
}

fn title(arm: &str) -> String {
    match arm {
        "plain" => "PostgreSQL as it is".into(),
        "control" => "PostgreSQL as it is, once more".into(),
        "sealed" => "PostgreSQL under Tidelock".into(),
        "gocryptfs" => "PostgreSQL on gocryptfs".into(),
        other => other.into(),
    }
}

fn trial(experiment: &str, levels: &[(&str, &str)], block: u32, arm: &str) -> Trial {
    let cell = levels.iter().map(|(name, level)| ((*name).to_owned(), (*level).to_owned()));
    Trial {
        experiment: experiment.into(),
        cell: Cell(cell.collect()),
        phase: Phase::Capacity,
        block,
        sitting: 0,
        order: 0,
        arm: arm.into(),
        instance: 0,
        started: 1_795_248_600.0 + f64::from(block) * 60.0,
        seconds: 20.0,
        metrics: BTreeMap::new(),
        series: BTreeMap::new(),
        warnings: Vec::new(),
    }
}

fn matrix(noise: &mut impl FnMut() -> f64) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (workload, rate, loss) in [("read_only", 9000.0, 0.985), ("tpcb_like", 1200.0, 0.992)] {
        for (scale, by_scale) in [("15", 1.0), ("50", 0.92), ("500", 0.45)] {
            for (connections, by_connections) in
                [("4", 0.8), ("12", 1.0), ("24", 0.96), ("48", 0.9)]
            {
                let levels =
                    [("workload", workload), ("scale", scale), ("connections", connections)];
                for block in 0..12 {
                    let drift = noise();
                    for arm in ["plain", "control", "sealed"] {
                        let part = if arm == "sealed" { loss } else { 1.0 };
                        let far = block == 5 && arm == "sealed" && connections == "48";
                        let value = rate * by_scale * by_connections * drift * part * noise();
                        let mut trial = trial("cybertec-matrix", &levels, block, arm);
                        let value = if far { value * 0.9 } else { value };
                        trial.metrics.insert("transactions_per_second".into(), value);
                        trial.metrics.insert("cpu_per_unit".into(), 180.0 / part * noise());
                        if block == 3 {
                            let text = "6.2 % of the CPU time was taken away".into();
                            trial.warnings.push(Warning { kind: WarningKind::Steal, text });
                        }
                        trials.push(trial);
                        if connections == "12" && scale != "500" {
                            trials.push(latency(
                                &levels,
                                block,
                                arm,
                                rate * 0.7 * by_scale,
                                part,
                                noise,
                            ));
                        }
                    }
                }
            }
        }
    }
    trials
}

fn latency(
    levels: &[(&str, &str)],
    block: u32,
    arm: &str,
    rate: f64,
    part: f64,
    noise: &mut impl FnMut() -> f64,
) -> Trial {
    let mut trial = trial("cybertec-matrix", levels, block, arm);
    trial.phase = Phase::FixedRate;
    trial.metrics.insert("rate".into(), rate);
    for (name, ms) in [("latency_p50", 1.1), ("latency_p95", 2.7), ("latency_p99", 6.4)] {
        trial.metrics.insert(name.into(), ms / part * noise());
    }
    trial
}

fn buffers(noise: &mut impl FnMut() -> f64) -> Vec<Trial> {
    let mut trials = Vec::new();
    let sizes = [
        ("1MB", 0.5, 0.86),
        ("8MB", 0.58, 0.9),
        ("64MB", 0.8, 0.95),
        ("256MB", 1.0, 0.999),
        ("1GB", 1.0, 1.0),
    ];
    for (size, part, loss) in sizes {
        for block in 0..6 {
            for arm in ["plain", "control", "sealed"] {
                let levels = [("workload", "read_only"), ("shared_buffers", size)];
                let mut trial = trial("shared-buffers", &levels, block, arm);
                let loss = if arm == "sealed" { loss } else { 1.0 };
                trial
                    .metrics
                    .insert("transactions_per_second".into(), 15_000.0 * part * loss * noise());
                trials.push(trial);
            }
        }
    }
    trials
}

fn iops(noise: &mut impl FnMut() -> f64) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (level, limit) in [("500", 500.0), ("2000", 2000.0)] {
        for workload in ["billing/phase1", "billing/phase2", "billing/phase3"] {
            for block in 0..10 {
                for arm in ["plain", "control", "sealed"] {
                    let levels = [("workload", workload), ("iops", level)];
                    let mut trial = trial("provisioned-iops", &levels, block, arm);
                    let bound = if workload == "billing/phase1" { limit } else { 450.0 };
                    let rate = 350.0 * (0.7 + 0.3 * bound / 500.0) * noise();
                    trial.metrics.insert("records_per_second".into(), rate);
                    for (name, part) in [("write_iops", 1.0), ("read_iops", 0.3)] {
                        let wave = |second: u32| {
                            let wave = 0.85 + 0.12 * (f64::from(second) / 4.0).sin();
                            (f64::from(second), (bound * part * wave * noise()).min(limit))
                        };
                        trial.series.insert(name.into(), (1..=40).map(wave).collect());
                    }
                    trials.push(trial);
                }
            }
        }
    }
    trials
}

const EXPERIMENTS: [(&str, &str); 3] = [
    ("cybertec-matrix", include_str!("matrix.toml")),
    ("shared-buffers", include_str!("buffers.toml")),
    ("provisioned-iops", include_str!("iops.toml")),
];

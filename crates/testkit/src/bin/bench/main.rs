//! `make bench`: what sealing costs, on the cases that were promised, those we lose included.
//!
//! Three servers (plain, plain once more as the control, sealed) run interleaved blocks, each round in an
//! order drawn from a recorded seed. Raw rows go to build/bench/ as JSON lines. CPU time is that of all
//! processes of the server; see `pg::cpu_seconds`. Writing cases end each block with a CHECKPOINT, inside
//! the measurement, so that the pages they dirtied are paid for.
#![forbid(unsafe_code)]

mod cases;
mod report;

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use tidelock_testkit::pg::{Arm, Cluster, Error, Place, Result, Sample, fill_pgbench, run_rounds};

use cases::{CASES, Case};
use report::{Raw, Report};

/// Measures a sealed PostgreSQL against a plain one and prints ratios with 95 % intervals.
#[derive(Parser)]
pub(crate) struct Options {
    /// Rounds of each case; each has one block of every server.
    #[arg(long, default_value_t = 12)]
    rounds: usize,
    /// Seconds of one pgbench block.
    #[arg(long, default_value_t = 6)]
    seconds: u32,
    /// pgbench scale.
    #[arg(long, default_value_t = 50)]
    scale: u32,
    /// Rows of INSERT and of CREATE TABLE AS.
    #[arg(long, default_value_t = 2_000_000)]
    rows: u64,
    /// Only cases whose name contains this; may be repeated.
    #[arg(long = "case")]
    only: Vec<String>,
    /// What is compared with plain: sealed, idle (library loaded, nothing protected), or plain.
    #[arg(long, default_value = "sealed", value_parser = ["sealed", "idle", "plain"])]
    arm: String,
    /// Seed of the order of blocks and of the bootstrap.
    #[arg(long)]
    seed: Option<u64>,
    /// Directory of the raw rows.
    #[arg(long, default_value = "build/bench")]
    out: PathBuf,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            eprintln!("hint:  --rounds 2 --seconds 1 --scale 1 tries everything quickly");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
    let arm = match options.arm.as_str() {
        "plain" => Arm::Plain,
        "idle" => Arm::Idle,
        _ => Arm::Sealed,
    };
    let place = Place::new()?;
    let servers = prepare(&place, arm, options)?;
    let mut raw = Raw::create(raw_file(&options.out, seed)?, &servers[0], options, seed)?;
    let mut report = Report::new(arm, options.rounds, seed);
    let mut buffers = "";
    for case in CASES.iter().filter(|case| wanted(case, &options.only)) {
        if case.shared_buffers != buffers {
            buffers = case.shared_buffers;
            for server in &servers {
                server.set("shared_buffers", buffers)?;
                server.restart()?;
            }
        }
        let samples = measure(case, &servers, options, seed, &mut raw)?;
        report.add(case, &samples);
    }
    report.print();
    println!("raw rows: {}", raw.path().display());
    Ok(())
}

fn wanted(case: &Case, only: &[String]) -> bool {
    only.is_empty() || only.iter().any(|part| case.name.contains(part.as_str()))
}

fn raw_file(out: &std::path::Path, seed: u64) -> Result<PathBuf> {
    fs::create_dir_all(out).map_err(Error::io(format!("making {}", out.display())))?;
    Ok(out.join(format!("postgres-{seed:016x}.jsonl")))
}

/// Plain, its control, and the arm, each with its own data.
fn prepare<'p>(place: &'p Place, arm: Arm, options: &Options) -> Result<Vec<Cluster<'p>>> {
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(std::time::Duration::from_millis(100));
    let mut servers = Vec::new();
    for (name, arm) in [("plain", Arm::Plain), ("control", Arm::Plain), ("arm", arm)] {
        bar.set_message(format!("filling {name} ({arm}) at scale {}", options.scale));
        let server = Cluster::new(place, name, arm)?;
        for (setting, value) in [
            ("autovacuum", "off"),
            ("checkpoint_timeout", "1h"),
            ("max_wal_size", "16GB"),
            ("min_wal_size", "2GB"),
            ("max_parallel_workers_per_gather", "0"),
            ("jit", "off"),
        ] {
            server.set(setting, value)?;
        }
        server.start()?;
        fill_pgbench(&server, options.scale)?;
        server.sql("VACUUM FREEZE; CHECKPOINT")?;
        servers.push(server);
    }
    bar.finish_and_clear();
    Ok(servers)
}

fn measure(
    case: &Case,
    servers: &[Cluster<'_>],
    options: &Options,
    seed: u64,
    raw: &mut Raw<File>,
) -> Result<Vec<Vec<Sample>>> {
    for server in servers {
        case.prepare(server)?;
        case.block(server, &options.warm_up())?;
    }
    let bar = ProgressBar::new((options.rounds * servers.len()) as u64);
    if let Ok(style) = ProgressStyle::with_template("{msg:<34} [{bar:30}] {pos}/{len}, {eta} left")
    {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_message(case.name);
    let samples = run_rounds(servers.len(), options.rounds, seed, |block| {
        let server = &servers[block.arm];
        case.prepare(server)?;
        let sample = Sample::of(server, || case.block(server, options))?;
        raw.row(case, block, server.arm(), &sample)?;
        bar.inc(1);
        Ok(sample)
    })?;
    bar.finish_and_clear();
    Ok(samples)
}

impl Options {
    fn warm_up(&self) -> Self {
        Self {
            rounds: 1,
            seconds: 1,
            scale: self.scale,
            rows: 1000,
            only: Vec::new(),
            arm: String::new(),
            seed: None,
            out: PathBuf::new(),
        }
    }
}

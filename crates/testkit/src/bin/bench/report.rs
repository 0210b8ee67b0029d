//! Raw rows as JSON lines, and the table of ratios.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tidelock_lab::statistics::Interval;
use tidelock_testkit::pg::{Arm, Block, Cluster, Cost, Error, Result, Sample};

use crate::Options;
use crate::cases::{Bar, Case};

/// The file of raw rows: the first line is the machine and the settings, each other one a block.
pub(crate) struct Raw<W> {
    path: PathBuf,
    out: W,
}

impl Raw<File> {
    pub(crate) fn create(
        path: PathBuf,
        server: &Cluster<'_>,
        options: &Options,
        seed: u64,
    ) -> Result<Self> {
        let out = File::create(&path).map_err(Error::io(format!("making {}", path.display())))?;
        let mut raw = Self { path, out };
        raw.line(&json!({
            "format": 1,
            "seed": seed,
            "rounds": options.rounds,
            "seconds": options.seconds,
            "scale": options.scale,
            "rows": options.rows,
            "server": server.sql("SELECT version()")?,
            "kernel": first_line("/proc/sys/kernel/osrelease"),
            "cpu": cpu_model(),
            "cpus": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        }))?;
        Ok(raw)
    }

    pub(crate) fn row(&mut self, case: &Case, block: Block, arm: Arm, s: &Sample) -> Result<()> {
        self.line(&json!({
            "case": case.name,
            "round": block.round,
            "server": block.arm,
            "arm": arm.to_string(),
            "unit": case.unit,
            "units": s.units,
            "seconds": s.seconds,
            "cpu_seconds": s.cpu,
            "pages": s.pages,
        }))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn line(&mut self, value: &Value) -> Result<()> {
        writeln!(self.out, "{value}").map_err(Error::io(format!("writing {}", self.path.display())))
    }
}

/// Collects the costs of all cases and prints them, good or bad.
pub(crate) struct Report {
    arm: Arm,
    rounds: usize,
    seed: u64,
    lines: Vec<String>,
}

impl Report {
    pub(crate) fn new(arm: Arm, rounds: usize, seed: u64) -> Self {
        Self { arm, rounds, seed, lines: Vec::new() }
    }

    /// `samples`: plain, control, arm.
    pub(crate) fn add(&mut self, case: &Case, samples: &[Vec<Sample>]) {
        let control = Cost::of(&samples[1], &samples[0], self.seed);
        let cost = Cost::of(&samples[2], &samples[0], self.seed);
        let (Some(control), Some(cost)) = (control, cost) else {
            self.lines.push(format!("{}: a block did no work, nothing to compare", case.name));
            return;
        };
        let per_page = |cost: &Cost| cost.per_page.map_or("-".to_owned(), |i| i.to_string());
        let loss = (1.0 - control.throughput.low).max(control.throughput.high - 1.0) * 100.0;
        self.lines.push(format!(
            "{name}\n  \
             throughput          {t}   control {ct} (losses below {loss:.1} % are not detectable)\n  \
             CPU per {unit:<12}{c}   control {cc}\n  \
             us per 8 KiB block  {p}   control {cp}\n  \
             bar: {bar}",
            name = case.name,
            unit = case.unit,
            t = cost.throughput,
            ct = control.throughput,
            c = cost.cpu,
            cc = control.cpu,
            p = per_page(&cost),
            cp = per_page(&control),
            bar = verdict(case.bar, &cost),
        ));
    }

    pub(crate) fn print(&self) {
        println!(
            "{} against plain, {} rounds in random order, seed {}; 1 is no cost, below 1 is a loss;\n\
             CPU is plain over {}, throughput {} over plain; in brackets 95 % intervals (bootstrap)\n",
            self.arm, self.rounds, self.seed, self.arm, self.arm
        );
        for line in &self.lines {
            println!("{line}\n");
        }
    }
}

/// Whether the bar is met by the whole interval, by the estimate only, or missed, and by how much.
fn verdict(bar: Bar, cost: &Cost) -> String {
    let (what, value, good, by) = match bar {
        Bar::Cpu(least) => {
            let Interval { low, mid, .. } = cost.cpu;
            (format!("CPU >= {least}"), low >= least, mid >= least, least - mid)
        }
        Bar::PerPage(most) => match cost.per_page {
            Some(Interval { mid, high, .. }) => {
                (format!("<= {most} us per block"), high <= most, mid <= most, mid - most)
            }
            None => return format!("<= {most} us per block: too few blocks to tell"),
        },
    };
    match (value, good) {
        (true, _) => format!("{what}: met"),
        (false, true) => format!("{what}: met by the estimate, not by the whole interval"),
        (false, false) => format!("{what}: MISSED by {by:.3}"),
    }
}

fn cpu_model() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("model name"));
    line.map_or_else(String::new, |rest| rest.trim_start_matches([':', '\t', ' ']).to_owned())
}

fn first_line(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

//! `tidelock-lab run` and `resume`: progress on the terminal, Ctrl-C between trials.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tidelock_lab::plan::Step;
use tidelock_lab::report;
use tidelock_lab::results::Results;
use tidelock_lab::run::{self, Options, Progress};
use tidelock_lab::trial::{Cell, Trial};
use time::UtcDateTime;

use super::error::{Error, Result};
use super::out;
use super::which::Which;

/// Run experiments
#[derive(clap::Args)]
pub(super) struct Run {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    disk: WorkDirectory,
    /// Directory of the run (default: lab/runs/DATE-MACHINE)
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The most minutes that a run with --precision takes for its blocks of equal work
    #[arg(long, value_name = "N", requires = "precision", value_parser = some())]
    minutes: Option<u32>,
    /// Seed of the order of trials (default: drawn, and recorded)
    #[arg(long)]
    seed: Option<u64>,
}

/// Go on with a run that did not end
#[derive(clap::Args)]
pub(super) struct Resume {
    /// Directory of the run
    dir: PathBuf,
    #[command(flatten)]
    disk: WorkDirectory,
    /// The most minutes that blocks of equal work take from now on, of a run with --precision
    /// (default: as many as the run began with)
    #[arg(long, value_name = "N", value_parser = some())]
    minutes: Option<u32>,
}

/// Where servers keep their data
#[derive(clap::Args)]
pub(super) struct WorkDirectory {
    /// Make the servers' directories below this one, on the disk that is to be measured (`resume`:
    /// the one that the run began with)
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
}

impl Run {
    pub(super) fn run(self) -> Result<()> {
        let work = self.disk.work(None)?;
        let experiments = self.which.experiments()?;
        let machine = run::machine(&work).with_fsync(&work);
        let seed = self.seed.unwrap_or_else(|| fastrand::u64(..1 << 53));
        let manifest = run::manifest(experiments, self.which.size(), seed, machine);
        let named = || {
            let date = (UtcDateTime::UNIX_EPOCH + Duration::from_secs(manifest.created)).date();
            PathBuf::from("lab/runs").join(format!("{date}-{}", manifest.machine.name))
        };
        let out = self.out.unwrap_or_else(named);
        out::check_for_run(&out)?;
        let options = Options { out, work, minutes: self.minutes, stop: stop()? };
        let mut shown = Shown::new();
        let done = run::start(&manifest, &options, &mut shown);
        finish(&options, shown, done)
    }
}

impl Resume {
    pub(super) fn run(self) -> Result<()> {
        let results = Results::read(&self.dir)?;
        if let Some(what) = results.damaged() {
            let what = format!("{}: {what}", self.dir.display());
            tidelock_console::warn(what, "what is lost is measured again; the lines stay");
        }
        let mut planned = results.manifest.experiments.iter();
        let precise = planned.any(|p| p.experiment.stop.control_precision.is_some());
        if self.minutes.is_some() && !precise {
            let what = "--minutes is for a run with --precision, and this one has none";
            return Err(Error::usage(what, "it measures all blocks of its plan, and no more"));
        }
        let work = self.disk.work(run::noted_work(&self.dir))?;
        let options = Options { out: self.dir, work, minutes: self.minutes, stop: stop()? };
        let mut shown = Shown::new();
        let done = run::resume(&options, &mut shown);
        finish(&options, shown, done)
    }
}

impl WorkDirectory {
    /// As told, else as `noted` by an earlier part of the run.
    fn work(&self, noted: Option<PathBuf>) -> Result<PathBuf> {
        let work = self.work.clone().or(noted).unwrap_or_else(run::default_work);
        Ok(work.canonicalize().map_err(tidelock_console::Error::io("use", work))?)
    }
}

fn finish(options: &Options, shown: Shown, done: tidelock_lab::Result<()>) -> Result<()> {
    shown.bar.finish_and_clear();
    done?;
    let written = report::write(&Results::read(&options.out)?, &options.out)?;
    let page = written.first().unwrap_or(&options.out);
    Ok(tidelock_console::print(format_args!("{}\n", page.display()))?)
}

/// A whole number from 1 on.
fn some() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..)
}

/// Set by Ctrl-C and by a polite kill.
pub(super) fn stop() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // The second one ends the process at once.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .map_err(tidelock_console::Error::io("handle signals of", "this process"))?;
    }
    Ok(stop)
}

/// A bar on a terminal, a line for each cell elsewhere.
struct Shown {
    bar: ProgressBar,
    terminal: bool,
    cell: Option<(String, Cell)>,
}

impl Shown {
    fn new() -> Self {
        let terminal = std::io::stderr().is_terminal();
        let bar = if terminal { ProgressBar::new(0) } else { ProgressBar::hidden() };
        let template = "[{bar:24}] {pos}/{len}, {eta} left  {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar, terminal, cell: None }
    }
}

impl Progress for Shown {
    fn planned(&mut self, trials: usize, done: usize) {
        self.bar.set_length(trials as u64);
        self.bar.set_position(done as u64);
        self.bar.reset_eta();
    }

    fn preparing(&mut self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    fn note(&mut self, what: &str) {
        self.bar.suspend(|| tidelock_console::tell("lab:", "36", format_args!("{what}")));
    }

    fn trial(&mut self, experiment: &str, step: &Step, blocks: u32) {
        let Step { cell, block, arm, .. } = step;
        self.bar
            .set_message(format!("{experiment}: {cell}; block {} of {blocks}, {arm}", block + 1));
        let now = (experiment.to_owned(), cell.clone());
        if !self.terminal && self.cell.as_ref() != Some(&now) {
            tidelock_console::tell("lab:", "36", format_args!("{experiment}: {cell}"));
            self.cell = Some(now);
        }
    }

    fn finished(&mut self, _trial: &Trial) {
        self.bar.inc(1);
    }
}

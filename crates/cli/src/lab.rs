//! `tidelock lab`: the published experiments on what encryption costs, on this machine.
//!
//! Everything that is measured or concluded is in the crate of the lab; here is what can be typed and how it
//! is shown.

mod load;
mod plan;
mod run;
mod shown;

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Subcommand;
use tidelock_lab::analysis::{CONTROL, PLAIN};
use tidelock_lab::catalogue;
use tidelock_lab::experiment::{Experiment, Param, Size};
use tidelock_lab::trial::WORKLOAD;

use crate::console;
use crate::error::{Error, Result};

/// Measure what sealing costs on this machine, as published experiments did elsewhere
#[derive(Subcommand)]
pub(crate) enum LabCommand {
    /// List the experiments
    List(List),
    /// Print the trials of experiments and how long they take; measure nothing
    Plan(plan::Plan),
    /// Run experiments; each finished trial is kept at once
    Run(run::Run),
    /// Go on with a run that did not end
    Resume(run::Resume),
    /// Write the report of a run: HTML that opens from disk, CSV, JSON, Markdown
    Report(shown::Report),
    /// Set two runs side by side
    Compare(shown::Compare),
    /// Fail if sealing costs more than a limit (exit 5), or if it cannot be told (7)
    Gate(shown::GateArgs),
    /// Put a load on a database of your own
    #[command(subcommand)]
    Load(load::Load),
    /// Seal in memory on one core and print bytes a second; run by the experiment `crypto`
    #[command(hide = true)]
    Cipher(Cipher),
}

/// List the experiments
#[derive(clap::Args)]
pub(crate) struct List {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Seal in memory
#[derive(clap::Args)]
pub(crate) struct Cipher {
    /// Bytes of a call, a multiple of 16
    #[arg(long)]
    block: usize,
    /// Length
    #[arg(long)]
    seconds: u32,
}

/// Which experiments, and how large
#[derive(clap::Args)]
pub(crate) struct Which {
    /// Names of experiments, or TOML files
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// The size that was published: hours, and memory and cores as there
    #[arg(long, conflicts_with = "miniature")]
    published_size: bool,
    /// Seconds: shows that everything works, says nothing of cost
    #[arg(long)]
    miniature: bool,
    /// Blocks of each cell, instead of the experiment's own number
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    blocks: Option<u32>,
    /// Only these arms; an experiment's first one, plain and control always stay
    #[arg(long, value_name = "ARM", value_delimiter = ',')]
    arms: Vec<String>,
    /// Only cells with this level of a factor, such as scale=15; repeated with the same factor: with any of these
    #[arg(long, value_name = "FACTOR=LEVEL", value_parser = level)]
    only: Vec<(String, String)>,
}

impl LabCommand {
    /// # Errors
    /// What the lab says.
    pub(crate) fn run(self) -> Result<ExitCode> {
        let done = |()| ExitCode::SUCCESS;
        match self {
            Self::List(list) => list.run().map(done),
            Self::Plan(plan) => plan.run().map(done),
            Self::Run(run) => run.run().map(done),
            Self::Resume(resume) => resume.run().map(done),
            Self::Report(report) => report.run().map(done),
            Self::Compare(compare) => compare.run().map(done),
            Self::Gate(gate) => gate.run(),
            Self::Load(load) => load.run().map(done),
            Self::Cipher(cipher) => cipher.run().map(done),
        }
    }
}

impl List {
    fn run(self) -> Result<()> {
        let experiments: Vec<_> = catalogue::names()
            .map(|name| catalogue::find(name, Size::Small))
            .collect::<tidelock_lab::Result<_>>()?;
        if self.json {
            #[derive(serde::Serialize)]
            struct Listed {
                experiments: Vec<Experiment>,
            }
            return console::print_json("lab list", &Listed { experiments });
        }
        let width = experiments.iter().map(|e| e.name.len()).max().unwrap_or(0);
        for experiment in &experiments {
            console::print(format_args!("{:width$}  {}\n", experiment.name, experiment.question))?;
        }
        Ok(())
    }
}

impl Cipher {
    fn run(self) -> Result<()> {
        if self.block == 0 || !self.block.is_multiple_of(16) {
            return Err(Error::usage("--block must be a multiple of 16", "for example 8192"));
        }
        let rate = tidelock_ffi::speed(self.block, self.seconds)
            .map_err(|why| Error::refused(format!("nothing was sealed: {why}"), "try again"))?;
        console::print(format_args!("{rate:.0}\n"))
    }
}

impl Which {
    /// The experiments, resolved.
    fn experiments(&self) -> Result<Vec<Experiment>> {
        let mut found = Vec::new();
        for name in &self.names {
            let mut experiment = catalogue::find(name, self.size())?;
            if let Some(blocks) = self.blocks {
                experiment.stop.blocks = blocks;
            }
            self.choose_arms(&mut experiment)?;
            found.push(experiment);
        }
        let mut wanted = BTreeMap::<&str, Vec<&str>>::new();
        for (factor, level) in &self.only {
            wanted.entry(factor).or_default().push(level);
        }
        for (factor, levels) in wanted {
            choose_levels(&mut found, factor, &levels)?;
        }
        Ok(found)
    }

    /// Base, plain and control always stay: without them there would be nothing to compare with, and no
    /// noise to tell a difference from.
    fn choose_arms(&self, experiment: &mut Experiment) -> Result<()> {
        if self.arms.is_empty() {
            return Ok(());
        }
        for arm in &self.arms {
            if !experiment.arms.contains(arm) {
                let what = format!("{} has no arm {arm}", experiment.name);
                let hint = format!("it has {}", experiment.arms.join(", "));
                return Err(Error::usage(what, hint));
            }
        }
        let base = experiment.arms.first().cloned();
        experiment.arms.retain(|arm| {
            Some(arm) == base.as_ref()
                || [PLAIN, CONTROL].contains(&arm.as_str())
                || self.arms.contains(arm)
        });
        Ok(())
    }

    const fn size(&self) -> Size {
        match (self.published_size, self.miniature) {
            (true, _) => Size::Published,
            (_, true) => Size::Miniature,
            _ => Size::Small,
        }
    }
}

/// Leaves only the cells with these levels of a factor, or the workloads of these names. Experiments without
/// the factor stay as they are, but one has to have it.
fn choose_levels(experiments: &mut [Experiment], factor: &str, wanted: &[&str]) -> Result<()> {
    let of_work = factor == WORKLOAD;
    let has = |experiment: &Experiment| of_work || experiment.factors.contains_key(factor);
    if !experiments.iter().any(has) {
        let mut known: Vec<&str> = experiments
            .iter()
            .flat_map(|experiment| experiment.factors.keys().map(String::as_str))
            .chain([WORKLOAD])
            .collect();
        known.sort_unstable();
        known.dedup();
        let what = format!("no experiment that was named has a factor {factor}");
        return Err(Error::usage(what, format!("they have {}", known.join(", "))));
    }
    for experiment in experiments.iter_mut().filter(|experiment| has(experiment)) {
        let known: Vec<String> = match experiment.factors.get(factor) {
            Some(levels) => levels.iter().map(|Param(text)| text.clone()).collect(),
            None => experiment.workload.keys().cloned().collect(),
        };
        if let Some(level) = wanted.iter().find(|level| !known.iter().any(|known| known == *level))
        {
            let what = format!("{} has no level {level} of {factor}", experiment.name);
            return Err(Error::usage(what, format!("it has {}", known.join(", "))));
        }
        match experiment.factors.get_mut(factor) {
            Some(levels) => levels.retain(|Param(text)| wanted.contains(&text.as_str())),
            None => experiment.workload.retain(|name, _| wanted.contains(&name.as_str())),
        }
    }
    Ok(())
}

/// `scale=15`.
fn level(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((factor, level)) => Ok((factor.into(), level.into())),
        None => Err("it has the form FACTOR=LEVEL".into()),
    }
}

//! Which experiments are meant: their names, size, blocks, arms and levels.

use std::collections::BTreeMap;

use tidelock_lab::analysis::{CONTROL, PLAIN};
use tidelock_lab::catalogue;
use tidelock_lab::experiment::{Experiment, Param, Size, Work};
use tidelock_lab::phrase::LEAST_FOR_PUBLICATION;
use tidelock_lab::plan;
use tidelock_lab::trial::{Phase, WORKLOAD};

use super::error::{Error, Result};

/// Which experiments, and how large
#[derive(clap::Args)]
pub(super) struct Which {
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
    /// Measure equal work until half the width of the control's interval is within this part, such
    /// as 2%, whatever the other arms show
    #[arg(long, value_name = "PERCENT", value_parser = precision)]
    precision: Option<f64>,
    /// Only these arms; an experiment's first one, plain and control always stay
    #[arg(long, value_name = "ARM", value_delimiter = ',')]
    arms: Vec<String>,
    /// Only cells with this level of a factor, such as scale=15; repeated with the same factor:
    /// with any of these
    #[arg(long, value_name = "FACTOR=LEVEL", value_parser = level)]
    only: Vec<(String, String)>,
}

impl Which {
    /// The experiments, resolved.
    pub(super) fn experiments(&self) -> Result<Vec<Experiment>> {
        let mut found = Vec::new();
        for name in &self.names {
            let mut experiment = catalogue::find(name, self.size())?;
            if let Some(blocks) = self.blocks {
                experiment.stop.blocks = blocks;
            }
            if let Some(precision) =
                self.precision.filter(|_| experiment.stop.equal_work_blocks > 0)
            {
                experiment.stop.control_precision = Some(precision);
                experiment.stop.equal_work_blocks = tidelock_lab::run::MOST_BLOCKS;
            }
            self.choose_arms(&mut experiment)?;
            if found.iter().any(|other: &Experiment| other.name == experiment.name) {
                let what = format!("two experiments are named {}", experiment.name);
                let hint = "name each once; a file that is a copy needs a `name` of its own";
                return Err(Error::usage(what, hint));
            }
            found.push(experiment);
        }
        let mut wanted = BTreeMap::<&str, Vec<&str>>::new();
        for (factor, level) in &self.only {
            wanted.entry(factor).or_default().push(level);
        }
        for (factor, levels) in wanted {
            choose_levels(&mut found, factor, &levels)?;
        }
        if self.precision.is_some() {
            self.check_blocks()?;
            check_precision(&found)?;
        }
        Ok(found)
    }

    /// What a precision ends are blocks of equal work, ten at least; so few of the others would be
    /// no measurement beside them.
    fn check_blocks(&self) -> Result<()> {
        match self.blocks {
            Some(blocks) if (blocks as usize) < LEAST_FOR_PUBLICATION => {
                let what = format!("--blocks {blocks} is too few for --precision");
                let hint = format!("{LEAST_FOR_PUBLICATION} are the least; or leave it out");
                Err(Error::usage(what, hint))
            }
            _ => Ok(()),
        }
    }

    /// Base, plain and control always stay: without them there would be nothing to compare with,
    /// and no noise to tell a difference from.
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

    pub(super) const fn size(&self) -> Size {
        match (self.published_size, self.miniature) {
            (true, _) => Size::Published,
            (_, true) => Size::Miniature,
            _ => Size::Small,
        }
    }
}

/// A precision is that of the control, in blocks of equal work: one experiment has to have some,
/// and those that have need both plain and control.
fn check_precision(experiments: &[Experiment]) -> Result<()> {
    let paced = |experiment: &&Experiment| {
        let has = |work: &Work| plan::blocks(experiment, work, Phase::EqualWork) > 0;
        experiment.workload.values().any(has)
    };
    let paced: Vec<&Experiment> = experiments.iter().filter(paced).collect();
    if paced.is_empty() {
        let what = "--precision is for equal work, and nothing that was named has any";
        let hint = "`tidelock-lab show NAME` has what it measures; most have none in miniature";
        return Err(Error::usage(what, hint));
    }
    for experiment in paced {
        let lacks = |arm: &&str| experiment.arms.iter().all(|own| own != arm);
        if let Some(arm) = [PLAIN, CONTROL].into_iter().find(lacks) {
            let name = &experiment.name;
            let what = format!("--precision is that of the control, and {name} has no arm {arm}");
            return Err(Error::usage(what, format!("it has {}", experiment.arms.join(", "))));
        }
    }
    Ok(())
}

/// Leaves only the cells with these levels of a factor, or the workloads of these names.
/// Experiments without the factor stay as they are, but one has to have it.
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

/// `2%` or `2` as 0.02; nothing is ever known to 0 %.
fn precision(text: &str) -> std::result::Result<f64, String> {
    match super::shown::percent(text) {
        Ok(part) if part > 0.0 => Ok(part),
        _ => Err("it is a percentage above 0 and below 100, such as 2%".into()),
    }
}

/// `scale=15`.
fn level(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((factor, level)) => Ok((factor.into(), level.into())),
        None => Err("it has the form FACTOR=LEVEL".into()),
    }
}

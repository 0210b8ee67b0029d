//! `tidelock-lab plan`: cells, arms and time of a run, without running it.

use tidelock_lab::experiment::Experiment;
use tidelock_lab::manifest::Planned;
use tidelock_lab::{arm, plan, run};

use super::error::Result;
use super::which::Which;

/// Print the trials of experiments and how long they take
#[derive(clap::Args)]
pub(super) struct Plan {
    #[command(flatten)]
    which: Which,
}

impl Plan {
    pub(super) fn run(self) -> Result<()> {
        let mut all = Vec::new();
        let machine = run::machine(&run::default_work());
        for experiment in self.which.experiments()? {
            let arms = arm::planned(&experiment, &machine);
            tidelock_console::print(format_args!(
                "{}: {}\n",
                experiment.name, experiment.question
            ))?;
            for arm in &arms {
                let missing = arm.missing.as_ref().map(|why| format!(" (missing: {why})"));
                let missing = missing.unwrap_or_default();
                tidelock_console::print(format_args!(
                    "  arm   {:16} {}{missing}\n",
                    arm.name, arm.title
                ))?;
            }
            // A run is refused, or ends when it wants the base's capacity.
            if arms.first().is_some_and(|arm| arm.missing.is_some()) {
                tidelock_console::print(
                    "  no cell is planned: the first arm is missing, with which others are compared\n",
                )?;
                continue;
            }
            let here = arms.iter().filter(|arm| arm.missing.is_none());
            let here: Vec<String> = here.map(|arm| arm.name.clone()).collect();
            cells(&experiment, plan::instances(&experiment, &here).len())?;
            all.push(Planned { experiment, arms, limits: Vec::new() });
        }
        let pre_flight = run::pre_flight_seconds(&all, self.which.size())?;
        let whole = duration(run::seconds(&all)? + pre_flight);
        let with = match pre_flight > 0.0 {
            true => format!(", {} of them before the first trial", duration(pre_flight)),
            false => String::new(),
        };
        Ok(tidelock_console::print(format_args!("about {whole} in all{with}\n"))?)
    }
}

/// Prints the cells, and how long each takes with so many servers.
fn cells(experiment: &Experiment, servers: usize) -> Result<()> {
    for cell in plan::cells(experiment)? {
        let blocks = experiment.stop.blocks;
        let time = duration(plan::seconds(experiment, &cell, servers)?);
        let (blocks, servers) = (count(blocks as usize, "block"), count(servers, "server"));
        tidelock_console::print(format_args!("  cell  {cell}: {blocks} of {servers}, {time}\n"))?;
    }
    Ok(())
}

/// `1 block`, `2 blocks`.
fn count(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// `2 h 5 min`, `3 min`, `40 s`.
pub(super) fn duration(seconds: f64) -> String {
    let minutes = (seconds / 60.0).round();
    match minutes {
        _ if seconds < 90.0 => format!("{seconds:.0} s"),
        _ if minutes < 60.0 => format!("{minutes:.0} min"),
        _ => format!("{:.0} h {:.0} min", (minutes / 60.0).floor(), minutes % 60.0),
    }
}

#[cfg(test)]
mod tests {
    use super::{count, duration};

    #[test]
    fn one_is_no_plural() {
        assert_eq!((count(1, "block"), count(0, "server")), ("1 block".into(), "0 servers".into()));
    }

    #[test]
    fn durations_are_as_long_as_they_need() {
        assert_eq!(duration(40.2), "40 s");
        assert_eq!(duration(90.0), "2 min");
        assert_eq!(duration(7500.0), "2 h 5 min");
    }
}

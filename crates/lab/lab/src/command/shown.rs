//! `tidelock-lab report`, `compare` and `gate`: what a reader may conclude from runs.

use std::path::PathBuf;
use std::process::ExitCode;

use tidelock_lab::gate::{Gate, Options, gate};
use tidelock_lab::results::Results;
use tidelock_lab::{compare, report};

use super::error::{Error, Result};
use super::out;

/// Write the report of a run: HTML that opens from disk, CSV, JSON, Markdown
#[derive(clap::Args)]
pub(super) struct Report {
    /// Directory of the run
    dir: PathBuf,
    /// Directory of the report (default: that of the run)
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Set two runs side by side
#[derive(clap::Args)]
pub(super) struct Compare {
    /// Directory of one run
    a: PathBuf,
    /// Directory of the other
    b: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write one page that opens from disk, instead of printing
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    html: Option<PathBuf>,
}

/// Fail if sealing costs more than a limit (exit 5), or if that is undecided (7)
#[derive(clap::Args)]
pub(super) struct GateArgs {
    /// Directory of the run
    dir: PathBuf,
    /// The most that may be lost, such as 2%
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    max_loss: f64,
    /// The arm that is judged, against the first one of its experiment
    #[arg(long, default_value = "sealed")]
    arm: String,
    /// Only these experiments
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    experiment: Vec<String>,
    /// Judge by these metrics; `throughput` is that of each cell, whatever its unit (default:
    /// cpu_per_unit, and throughput where a cell has no CPU time)
    #[arg(long, value_name = "METRIC", value_delimiter = ',')]
    metric: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Report {
    pub(super) fn run(self) -> Result<()> {
        let results = read(&self.dir)?;
        let out = self.out.unwrap_or(self.dir);
        out::check_for_report(&out, &results)?;
        for path in report::write(&results, &out).map_err(Error::Report)? {
            tidelock_console::print(format_args!("{}\n", path.display()))?;
        }
        Ok(())
    }
}

impl Compare {
    pub(super) fn run(self) -> Result<()> {
        let (a, b) = (read(&self.a)?, read(&self.b)?);
        if let Some(path) = self.html {
            report::write_side_by_side(&a, &b, &path)?;
            return Ok(tidelock_console::print(format_args!("{}\n", path.display()))?);
        }
        let side_by_side = compare::compare(&a, &b);
        match self.json {
            true => tidelock_console::print_json("compare", &side_by_side)?,
            false => tidelock_console::print(format_args!("{side_by_side}\n"))?,
        }
        Ok(())
    }
}

impl GateArgs {
    pub(super) fn run(self) -> Result<ExitCode> {
        let options = Options {
            max_loss: self.max_loss,
            arm: self.arm,
            experiments: self.experiment,
            metrics: self.metric,
        };
        let judged: Gate = gate(&read(&self.dir)?, &options)?;
        match self.json {
            true => tidelock_console::print_json("gate", &judged)?,
            false => tidelock_console::print(format_args!("{judged}\n"))?,
        }
        Ok(ExitCode::from(judged.outcome.exit_code()))
    }
}

/// A run, with a warning of the lines that are no trials, and one of the rows that do not count.
fn read(dir: &std::path::Path) -> Result<Results> {
    let results = Results::read(dir)?;
    if let Some(what) = results.damaged() {
        let what = format!("{}: {what}", dir.display());
        tidelock_console::warn(what, "`tidelock-lab resume DIR` measures again what is lost");
    }
    for what in &results.outside {
        let what = format!("{}: {what}", dir.display());
        tidelock_console::warn(what, "the lab writes no such rows: see where the file is from");
    }
    if results.trials.is_empty() {
        let what = match &*results.absent.join(", ") {
            "" => format!("{} has no finished trial", dir.display()),
            absent => {
                format!("{} has no whole block: there is no row of {absent}", dir.display())
            }
        };
        return Err(Error::Refused { what, hint: "`tidelock-lab resume DIR` goes on with it" });
    }
    Ok(results)
}

/// `2%` or `2` as 0.02.
pub(super) fn percent(text: &str) -> std::result::Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim().parse::<f64>();
    match number {
        Ok(number) if (0.0..100.0).contains(&number) => Ok(number / 100.0),
        _ => Err("it is a percentage from 0 to below 100, such as 2%".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::percent;

    #[test]
    fn percentages_are_parts_of_a_hundred() {
        assert_eq!(percent("2%"), Ok(0.02));
        assert_eq!(percent("0.5"), Ok(0.005));
        assert!(percent("100%").is_err() && percent("-1").is_err() && percent("NaN").is_err());
    }
}

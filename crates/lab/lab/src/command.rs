//! What can be typed: one module for each call, and how it is shown.

mod cipher;
mod error;
mod list;
mod load;
mod out;
mod plan;
mod run;
mod show;
mod shown;
mod which;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tidelock_console::{Completions, Man};

use error::Result;

/// Measures what sealing costs on this machine, as published experiments did elsewhere.
#[derive(Parser)]
#[command(name = "tidelock-lab", version, disable_help_subcommand = true)]
#[command(
    after_help = "Exit codes: 0 done, 1 failure, 2 usage, 3 refused, 5 more was lost than the \
                        limit, 7 undecided, 130 interrupted."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the experiments
    List(list::List),
    /// Show what an experiment asks, compares, sets and measures, and what was published
    Show(show::Show),
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
    /// Fail if sealing costs more than a limit (exit 5), or if that is undecided (7)
    ///
    /// Each kind of load is judged over all of its cells, then each cell by itself. Exit 5: one of
    /// them loses more than the limit. The one-sided chance of seeing that by accident, adjusted by
    /// Holm's method, is below 2.5 % among kinds of load, and below 2.5 % among cells; so a build
    /// that costs exactly the limit fails in at most one of twenty cases. Exit 0: each kind of load
    /// lost no more, and it and its control are known well enough to have shown it. Exit 7:
    /// everything else, such as a loss beyond the limit that could be chance, servers that are not
    /// equal, a cell that was not measured, or a miniature.
    Gate(shown::GateArgs),
    /// Put a load on a database of your own
    #[command(subcommand)]
    Load(load::Load),
    Completions(Completions),
    Man(Man),
    /// Seal in memory on one core and print bytes a second; run by the experiment `crypto`
    #[command(hide = true)]
    Cipher(cipher::Cipher),
}

/// Does what was typed; the code that the process ends with.
pub(crate) fn main() -> ExitCode {
    let cli: Cli = match tidelock_console::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    cli.run().unwrap_or_else(|error| {
        tidelock_console::fail(&error, error.hint());
        ExitCode::from(error.exit_code())
    })
}

impl Cli {
    fn run(self) -> Result<ExitCode> {
        let done = |()| ExitCode::SUCCESS;
        match self.command {
            Command::List(list) => list.run().map(done),
            Command::Show(show) => show.run().map(done),
            Command::Plan(plan) => plan.run().map(done),
            Command::Run(run) => run.run().map(done),
            Command::Resume(resume) => resume.run().map(done),
            Command::Report(report) => report.run().map(done),
            Command::Compare(compare) => compare.run().map(done),
            Command::Gate(gate) => gate.run(),
            Command::Load(load) => load.run().map(done),
            Command::Completions(completions) => Ok(completions.run::<Self>().map(done)?),
            Command::Man(man) => Ok(man.run::<Self>().map(done)?),
            Command::Cipher(cipher) => cipher.run().map(done),
        }
    }
}

//! `make demo`: a stock PostgreSQL with data is protected by one command, is killed, recovers,
//! gets a standby with other keys, is searched byte by byte, refuses to start bare, is made plain
//! again by one command, and is measured against plain.
//!
//! `--arm plain` runs the same steps without Tidelock: then the search has to find the marker.
#![forbid(unsafe_code)]

mod steps;
mod tell;

use std::process::ExitCode;

use clap::Parser;
use tidelock_testkit::pg::{Arm, Result};

use tell::Teller;

/// Shows a stock PostgreSQL 15 protected, running sealed and made plain again, and the cost.
#[derive(Parser)]
struct Options {
    /// The arm to show: sealed, or plain as the control.
    #[arg(long, default_value = "sealed", value_parser = ["sealed", "plain"])]
    arm: String,
    /// pgbench scale of the server that is shown.
    #[arg(long, default_value_t = 10)]
    scale: u32,
    /// Rounds of the measurement; each has a plain and a sealed block.
    #[arg(long, default_value_t = 8)]
    rounds: usize,
    /// Seconds of one block.
    #[arg(long, default_value_t = 4)]
    seconds: u32,
    /// Seed of the order of blocks.
    #[arg(long)]
    seed: Option<u64>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let teller = Teller::new();
    match run(&options, &teller) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            teller.failed(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options, teller: &Teller) -> Result<()> {
    let arm = if options.arm == "plain" { Arm::Plain } else { Arm::Sealed };
    steps::life(arm, options.scale, teller)?;
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..));
    steps::measure(arm, options.rounds, options.seconds, seed, teller)?;
    teller.done();
    Ok(())
}

//! `powercut`: cuts the power under PostgreSQL and checks what is left, JSON lines out.
//!
//! Needs root for its volumes; the servers run as `postgres`. Exit code 1 if something failed on
//! the sealed arm that did not fail on the plain one as often, or a header was lost.
#![forbid(unsafe_code)]

use std::{error::Error, io::Write, path::PathBuf, process::ExitCode};

use clap::{Parser, ValueEnum};
use serde_json::{Value, json};
use tidelock_testkit::{
    powercut::{self, Arm, Plan},
    volume::FileSystem,
};

/// Cuts the power under PostgreSQL, plain and sealed by turns.
#[derive(Parser)]
struct Arguments {
    /// The file system: ext4 or xfs.
    #[arg(long)]
    fs: FileSystem,
    /// Power cuts for each arm.
    #[arg(long, default_value_t = 20)]
    cycles: u32,
    /// Which arms take turns.
    #[arg(long, value_enum, default_value_t = Arms::Both)]
    arm: Arms,
    /// PostgreSQL's setting of that name.
    #[arg(long, value_enum, default_value_t = Switch::On)]
    full_page_writes: Switch,
    /// Run `tidelock verify` after every so many cuts of the sealed arm; 0 for never.
    #[arg(long, default_value_t = 10)]
    verify_every: u32,
    /// The programs of PostgreSQL.
    #[arg(long, default_value = "/usr/lib/postgresql/15/bin")]
    postgres: PathBuf,
    /// The command; by default the one beside this program.
    #[arg(long)]
    tidelock: Option<PathBuf>,
    /// Another series of loads and cuts.
    #[arg(long, default_value_t = 0)]
    seed: u32,
}

#[derive(Clone, Copy, ValueEnum)]
enum Arms {
    Plain,
    Sealed,
    Both,
}

#[derive(Clone, Copy, ValueEnum)]
enum Switch {
    On,
    Off,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments = Arguments::parse();
    let tidelock = match arguments.tidelock {
        Some(path) => path,
        None => std::env::current_exe()?.with_file_name("tidelock"),
    };
    let plan = Plan {
        fs: arguments.fs,
        cycles: arguments.cycles,
        arms: match arguments.arm {
            Arms::Plain => vec![Arm::Plain],
            Arms::Sealed => vec![Arm::Sealed],
            Arms::Both => vec![Arm::Plain, Arm::Sealed],
        },
        full_page_writes: matches!(arguments.full_page_writes, Switch::On),
        fsync: true,
        postgres: arguments.postgres,
        tidelock,
        verify_every: arguments.verify_every,
        seed: arguments.seed,
    };
    let tallies = powercut::run(&plan, &mut |line| print(&line))?;
    for (arm, tally) in &tallies {
        print(&json!({
            "summary": arm.name(), "fs": plan.fs.to_string(),
            "full_page_writes": plan.full_page_writes, "cycles": tally.cycles,
            "starts_failed": tally.starts_failed, "acknowledged": tally.acknowledged,
            "lost": tally.lost, "damaged": tally.damaged, "replaced_headers": tally.replaced_headers, "lost_headers": tally.lost_headers,
            "problems": tally.problems,
        }));
    }
    let of = |wanted| tallies.iter().find(|(arm, _)| *arm == wanted).map(|(_, tally)| *tally);
    let plain = of(Arm::Plain).unwrap_or_default();
    let sealed = of(Arm::Sealed).unwrap_or_default();
    Ok(if sealed.is_worse_than(&plain) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn print(line: &Value) {
    // A reader that went away does not stop the trial; its exit code still counts.
    let _ = writeln!(std::io::stdout(), "{line}");
}

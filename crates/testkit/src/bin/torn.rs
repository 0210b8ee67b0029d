//! `torn`: counts half-seen 16-byte blocks between a writer and a reader, JSON lines out.
//!
//! Needs root for its volumes. The trial behind docs/decisions/0003-torn-blocks.md.
#![forbid(unsafe_code)]

use std::{error::Error, io::Write};

use clap::Parser;
use tidelock_testkit::{torn, trial::Trial, volume::FileSystem};

/// Counts half-seen 16-byte blocks between a concurrent writer and reader.
#[derive(Parser)]
struct Arguments {
    /// File systems to try; both if not given.
    #[arg(long)]
    fs: Vec<FileSystem>,
    /// Length of a short run; long ones take ten times as long.
    #[arg(long, default_value_t = 1000)]
    milliseconds: u32,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let chosen = if arguments.fs.is_empty() { FileSystem::ALL.to_vec() } else { arguments.fs };
    let trial = Trial::compile("torn")?;
    for fs in chosen {
        let volume = torn::volume(fs)?;
        for meeting in torn::plan(arguments.milliseconds) {
            writeln!(std::io::stdout(), "{}", torn::meet(&trial, &volume, &meeting)?)?;
        }
    }
    Ok(())
}

//! `headers`: cuts the power under files that get their first header, JSON lines out.
//!
//! Needs root for its volumes. The trial behind docs/decisions/0004-first-headers.md.
#![forbid(unsafe_code)]

use std::{error::Error, io::Write, time::Duration};

use clap::Parser;
use serde_json::json;
use tidelock_testkit::{
    headers::{self, Tally},
    trial::Trial,
    volume::{FileSystem, Volume},
};

/// Cuts the power under files that get their first header, and counts what is left of them.
#[derive(Parser)]
struct Arguments {
    /// File systems to try; both if not given.
    #[arg(long)]
    fs: Vec<FileSystem>,
    /// Power cuts on each.
    #[arg(long, default_value_t = 50)]
    cuts: u32,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let chosen = if arguments.fs.is_empty() { FileSystem::ALL.to_vec() } else { arguments.fs };
    let trial = Trial::compile("headers")?;
    for fs in chosen {
        let mut volume = Volume::create(fs, 2048)?;
        let mut all = Tally::new();
        for seed in 1..=arguments.cuts {
            let load = Duration::from_millis(u64::from(400 + seed * 7919 % 1000));
            for (key, count) in headers::cut_once(&trial, &mut volume, seed, load)? {
                *all.entry(key).or_default() += count;
            }
        }
        for ((kind, class), files) in all {
            let class = format!("{class:?}");
            let line = json!({
                "fs": fs.to_string(), "cuts": arguments.cuts,
                "kind": kind, "class": class, "files": files,
            });
            writeln!(std::io::stdout(), "{line}")?;
        }
    }
    Ok(())
}

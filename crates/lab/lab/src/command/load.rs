//! `tidelock-lab load billing`: the batch engine on a database of the user's own.

use std::path::PathBuf;

use clap::Subcommand;
use tidelock_lab::load::billing::{self, Market, Phase, Settings};

use super::error::{Error, Result};

/// Put a load on a database
#[derive(Subcommand)]
pub(super) enum Load {
    /// Load, validate and charge a month of an electricity market, in three phases
    Billing(Billing),
}

/// Load, validate and charge a month of an electricity market, in three phases
#[derive(clap::Args)]
pub(super) struct Billing {
    /// The database, as libpq writes it: "host=/run/postgresql user=me dbname=test". Its password
    /// is best in PGPASSWORD: others can read a command line. The connection has no TLS
    #[arg(long, value_name = "CONNINFO")]
    connection: String,
    /// Directory of the market's files; they are made if it is empty or not there
    #[arg(long, value_name = "DIR", default_value = "market")]
    dir: PathBuf,
    /// Records in all files
    #[arg(long, default_value_t = Market::default().records)]
    records: u64,
    /// Days of each meter; fewer days are more meters, and more work in phase 3
    #[arg(long, default_value_t = Market::default().days)]
    days: u32,
    /// Flat files
    #[arg(long, default_value_t = Market::default().files)]
    files: u32,
    /// Bad lines for each good one
    #[arg(long, default_value_t = Market::default().bad_lines)]
    bad_lines: f64,
    /// Seed of the files
    #[arg(long, default_value_t = Market::default().seed)]
    seed: u64,
    /// Worker threads, each with a connection
    #[arg(long, default_value_t = 4)]
    workers: usize,
    /// Lines of one transaction
    #[arg(long, default_value_t = 1000)]
    batch: usize,
    /// Only these phases: 1, 2, 3
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        value_parser = clap::value_parser!(i16).range(1..=3)
    )]
    phase: Vec<i16>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Load {
    pub(super) fn run(self) -> Result<()> {
        let Self::Billing(billing) = self;
        billing.run()
    }
}

impl Billing {
    fn run(self) -> Result<()> {
        let market = Market {
            records: self.records,
            days: self.days,
            files: self.files,
            seed: self.seed,
            bad_lines: self.bad_lines,
        };
        let failed = |why: billing::Error| Error::Lab(why.into());
        billing::generate(&self.dir, &market).map_err(failed)?;
        let mut settings = Settings::new(self.connection, self.dir);
        settings.workers = self.workers;
        settings.batch = self.batch;
        if !self.phase.is_empty() {
            settings.phases = self.phase.iter().filter_map(|n| Phase::of_number(*n)).collect();
        }
        let stop = super::run::stop()?;
        let bar = tidelock_console::spinner();
        let mut progress = |now: billing::Progress| {
            let of = now.of.map(|of| format!(" of {of}")).unwrap_or_default();
            bar.set_message(format!("{}: {}{of} records", now.phase, now.records));
        };
        let summary = billing::run(&settings, &mut progress, &stop).map_err(failed)?;
        bar.finish_and_clear();
        match self.json {
            true => tidelock_console::print_json("load billing", &summary.to_json())?,
            false => tidelock_console::print(format_args!("{summary}\n"))?,
        }
        if summary.stopped { Err(Error::Lab(tidelock_lab::Error::Stopped)) } else { Ok(()) }
    }
}

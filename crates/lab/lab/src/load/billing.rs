//! The batch engine: one month of an electricity market, loaded, validated and charged in three
//! phases.
//!
//! ```text
//!   DIR/market-0001.csv ...   generate      written once from a seed, with some bad lines
//!        |  lines, record                   a line at a time; a bad one costs only itself
//!   phase 1  load             many inserts; a batch of lines is a transaction
//!        |                                  FILE.rejected: line number, reason, the line
//!   phase 2  validate         many reads for each record, some inserts of what was found
//!   phase 3  charge           sums for each meter and month, few inserts
//!        |  store                           what the phases ask of a database
//!   postgres                                its SQL, in one place
//! ```
//!
//! In the directory only files are replaced or removed that the engine made itself (`made`).
//!
//! Each transaction also writes its step into a ledger, whose key makes a second time impossible: a
//! run that was stopped, killed or lost its server goes on where the last commit was. An advisory
//! lock lets one engine at a time work on a database.

mod charge;
mod crew;
mod engine;
mod error;
mod generate;
mod lines;
mod load;
mod made;
mod master;
mod postgres;
mod record;
mod rejects;
mod store;
mod summary;
mod validate;

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use engine::run;
pub use error::{Error, Result};
pub use generate::{BadLine, Generated, Market, generate};
pub use summary::{PhaseSummary, Progress, Summary};

/// What to run, where, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The database, as libpq writes it: `host=/run/postgresql user=me dbname=test`.
    pub connection: String,
    /// Directory of the files that [`generate`] wrote, or that look like them.
    pub dir: PathBuf,
    /// Worker threads, each with a connection. 0 counts as 1.
    pub workers: usize,
    /// Lines of one transaction. 0 counts as 1.
    pub batch: usize,
    /// Meters of one transaction of phase 3, the same in every run on one database: they are its
    /// steps. 0 counts as 1.
    pub meters: u32,
    /// Phases to run; always in their order.
    pub phases: Vec<Phase>,
    /// How often progress is told.
    pub tell_every: Duration,
}

impl Settings {
    /// All phases with 4 workers, 1000 lines or 10 meters a transaction, progress each second.
    #[must_use]
    pub fn new(connection: impl Into<String>, dir: impl Into<PathBuf>) -> Self {
        Self {
            connection: connection.into(),
            dir: dir.into(),
            workers: 4,
            batch: 1000,
            meters: 10,
            phases: Phase::ALL.to_vec(),
            tell_every: Duration::from_secs(1),
        }
    }
}

/// One of the three phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Phase 1: files into the database.
    Load,
    /// Phase 2: each record against its meter, its tariff and the reading before it.
    Validate,
    /// Phase 3: charges for each meter and month.
    Charge,
}

impl Phase {
    /// All, in their order.
    pub const ALL: [Self; 3] = [Self::Load, Self::Validate, Self::Charge];

    /// 1, 2 or 3, as in the ledger.
    #[must_use]
    pub const fn number(self) -> i16 {
        match self {
            Self::Load => 1,
            Self::Validate => 2,
            Self::Charge => 3,
        }
    }

    /// The phase of a number.
    #[must_use]
    pub fn of_number(number: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.number() == number)
    }
}

impl std::fmt::Display for Phase {
    /// `phase 1 (load)`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self {
            Self::Load => "load",
            Self::Validate => "validate",
            Self::Charge => "charge",
        };
        write!(f, "phase {} ({name})", self.number())
    }
}

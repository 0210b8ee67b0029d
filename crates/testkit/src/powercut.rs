//! Power cuts under PostgreSQL, plain and sealed by turns, on volumes of their own.
//!
//! ```text
//!   start -> load -> cut -> mount -> start -> check -> (load ...)    equal seeds in both arms
//! ```
//! A commit that a client heard of before the cut has to be there afterwards, the server has to
//! start and amcheck has to agree. What fails on the plain arm too is PostgreSQL's or the file
//! system's; the bar is that nothing fails only when sealed. Needs root; servers run as the user
//! `postgres`.

use std::{io, path::PathBuf, time::Duration};

use serde_json::{Value, json};

use crate::volume::{FileSystem, Volume, VolumeError};

mod load;
mod server;

use load::Load;
use server::Server;

/// What is tried.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The file system below the data directory.
    pub fs: FileSystem,
    /// Power cuts for each arm.
    pub cycles: u32,
    /// Which arms take turns.
    pub arms: Vec<Arm>,
    /// The server's setting of that name.
    pub full_page_writes: bool,
    /// The server's setting of that name. Off, commits must get lost: the harness's own test.
    pub fsync: bool,
    /// Where the programs of PostgreSQL are.
    pub postgres: PathBuf,
    /// The command `tidelock`, for the sealed arm.
    pub tidelock: PathBuf,
    /// Stop cleanly and run `tidelock verify` after every so many cuts; never if zero.
    pub verify_every: u32,
    /// Added to the number of the cycle; equal for all arms.
    pub seed: u32,
}

/// With the library or without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arm {
    /// The untouched server.
    Plain,
    /// The server under `tidelock exec`.
    Sealed,
}

/// What became of one arm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Power cuts.
    pub cycles: u32,
    /// The server did not start after so many of them.
    pub starts_failed: u32,
    /// Commits heard of before a cut.
    pub acknowledged: u64,
    /// Databases among them.
    pub databases: u64,
    /// Those of them that were gone.
    pub lost: u64,
    /// Cycles after which a query or amcheck complained.
    pub damaged: u32,
    /// Lost headers that recovery gave a new key, as the library has reported them.
    pub replaced_headers: u64,
    /// Lost headers that remain, as `tidelock verify` lists them.
    pub lost_headers: u64,
    /// Other problems that `tidelock verify` lists.
    pub problems: u64,
}

impl Tally {
    /// True if something failed here that did not fail as often in the plain arm. Lost headers, and
    /// what verify finds, it cannot have: none may be.
    #[must_use]
    pub fn is_worse_than(&self, plain: &Self) -> bool {
        self.starts_failed > plain.starts_failed
            || self.lost > plain.lost
            || self.damaged > plain.damaged
            || self.replaced_headers + self.lost_headers + self.problems > 0
    }
}

/// Runs the plan; `report` gets one JSON line a cycle, the answer one tally an arm.
///
/// # Errors
/// When the harness itself fails: no root, no server installed, a load that ends before the cut.
/// A server that does not start after a cut is a figure, not an error.
pub fn run(plan: &Plan, report: &mut dyn FnMut(Value)) -> Result<Vec<(Arm, Tally)>, PowercutError> {
    let mut arms = Vec::new();
    for arm in &plan.arms {
        arms.push((Cluster::create(plan, *arm)?, Tally::default()));
    }
    for cycle in 1..=plan.cycles {
        for (cluster, tally) in &mut arms {
            report(cluster.cycle(plan, cycle, tally)?);
        }
    }
    Ok(arms.into_iter().map(|(cluster, tally)| (cluster.arm, tally)).collect())
}

/// One arm's server and its volume.
#[derive(Debug)]
struct Cluster {
    arm: Arm,
    server: Server,
    volume: Volume,
    /// Replaced headers that were counted.
    replaced: u64,
}

impl Cluster {
    fn create(plan: &Plan, arm: Arm) -> Result<Self, PowercutError> {
        let volume = Volume::create(plan.fs, VOLUME_MIB)?;
        let server = Server::create(plan, arm, volume.root())?;
        server.start(&settings(plan, 0))?;
        server.query(load::PREPARE)?;
        Ok(Self { arm, server, volume, replaced: 0 })
    }

    fn cycle(
        &mut self,
        plan: &Plan,
        cycle: u32,
        tally: &mut Tally,
    ) -> Result<Value, PowercutError> {
        let seed = plan.seed + cycle;
        let time = Duration::from_millis(u64::from(500 + seed.wrapping_mul(7919) % 1000));
        let load = Load::start(&self.server, seed)?;
        std::thread::sleep(time);
        load.wait_for_a_commit()?;
        let mut acknowledged = load.stop_listening()?;
        let postmaster = self.server.postmaster()?;
        self.volume.cut()?;
        self.volume.unmount()?;
        load.end(&mut acknowledged)?;
        server::wait_until_gone(postmaster)?;
        self.volume.mount()?;

        tally.cycles += 1;
        tally.acknowledged += acknowledged.count();
        tally.databases += acknowledged.databases.len() as u64;
        let mut line = json!({
            "arm": self.arm.name(), "fs": plan.fs.to_string(), "cycle": cycle, "seed": seed,
            "full_page_writes": plan.full_page_writes, "load_ms": time.as_millis(),
            "markers": acknowledged.markers.len(), "tables": acknowledged.tables.len(),
            "databases": acknowledged.databases.len(),
        });
        if let Err(refused) = self.server.start(&settings(plan, seed)) {
            tally.starts_failed += 1;
            line["start"] = refused.to_string().into();
            line["log"] = self.server.log_tail().into();
            *self = Self::create(plan, self.arm)?;
            return Ok(line);
        }
        line["start"] = "done".into();
        line["recovery"] = self.server.recovery().into();
        let mut found = acknowledged.check(&self.server)?;
        if found.damage.is_empty()
            && let Err(PowercutError::Program { said, .. }) = self.server.query(load::TIDY)
        {
            found.damage.push(said);
        }
        tally.lost += found.lost.len() as u64;
        tally.damaged += u32::from(!found.damage.is_empty());
        if self.arm == Arm::Sealed {
            self.count_headers(plan, cycle, tally, &mut line)?;
        }
        let (broken, damage) = (!found.is_clean(), found.damage);
        line["lost"] = found.lost.into();
        line["damage"] = damage.into();
        if broken {
            line["log"] = self.server.log_tail().into();
            *self = Self::create(plan, self.arm)?;
        }
        Ok(line)
    }

    /// Lost headers: those that recovery replaced, each cycle; those that remain, when verify
    /// looks.
    fn count_headers(
        &mut self,
        plan: &Plan,
        cycle: u32,
        tally: &mut Tally,
        line: &mut Value,
    ) -> Result<(), PowercutError> {
        let replaced = self.server.replaced_headers() - self.replaced;
        self.replaced += replaced;
        tally.replaced_headers += replaced;
        line["replaced_headers"] = replaced.into();
        if plan.verify_every != 0 && cycle.is_multiple_of(plan.verify_every) {
            self.server.stop()?;
            let verified = self.server.verify()?;
            // A lost header that stays is seen by every later look: the last one counts.
            tally.lost_headers = tally.lost_headers.max(verified.lost_headers);
            tally.problems += verified.problems.len() as u64;
            line["lost_headers"] = verified.lost_headers.into();
            line["verify"] = json!({ "problems": verified.problems, "notes": verified.notes });
            self.server.start(&settings(plan, plan.seed + cycle))?;
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _already_down = self.server.stop();
    }
}

/// Small buffers and segments, so that a second of load evicts, flushes, checkpoints and recycles.
fn settings(plan: &Plan, seed: u32) -> Vec<String> {
    let mut settings: Vec<String> = [
        "shared_buffers=4MB",
        "max_wal_size=16MB",
        "min_wal_size=2MB",
        "backend_flush_after=128kB",
        "bgwriter_delay=10ms",
        "autovacuum_naptime=1s",
        "listen_addresses=",
        "max_connections=20",
    ]
    .map(str::to_owned)
    .into();
    let switch = |on: bool| if on { "on" } else { "off" };
    settings.push(format!("full_page_writes={}", switch(plan.full_page_writes)));
    settings.push(format!("fsync={}", switch(plan.fsync)));
    settings.push(format!("wal_recycle={}", switch(!seed.is_multiple_of(3))));
    settings.push(format!("wal_init_zero={}", switch(!seed.is_multiple_of(5))));
    // Without WAL for new tables, their own fsync at commit carries them.
    if seed % 2 == 1 {
        settings.extend(["wal_level=minimal".to_owned(), "max_wal_senders=0".to_owned()]);
    }
    settings
}

impl Arm {
    /// Its name on the command line and in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Sealed => "sealed",
        }
    }
}

const VOLUME_MIB: u64 = 2048;

/// Why the harness could not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PowercutError {
    /// The volume failed.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// A program failed that must not.
    #[error("{program} failed: {said}")]
    Program {
        /// Its command line.
        program: String,
        /// What it printed.
        said: String,
    },
    /// A client was gone before the cut.
    #[error("the client \"{client}\" ended before the cut: {said}")]
    LoadEnded {
        /// Which one.
        client: &'static str,
        /// Its standard error.
        said: String,
    },
    /// The harness's own files.
    #[error("the private directory of the harness: {0}")]
    Private(#[from] io::Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_only_when_sealed_is_worse_and_so_is_each_lost_header() {
        let plain = Tally { starts_failed: 1, lost: 2, damaged: 3, ..Tally::default() };
        assert!(!plain.is_worse_than(&plain));
        assert!(!Tally::default().is_worse_than(&plain));
        for worse in [
            Tally { starts_failed: 2, ..plain },
            Tally { lost: 3, ..plain },
            Tally { damaged: 4, ..plain },
            Tally { replaced_headers: 1, ..plain },
            Tally { lost_headers: 1, ..plain },
            Tally { problems: 1, ..plain },
        ] {
            assert!(worse.is_worse_than(&plain), "{worse:?}");
        }
    }
}

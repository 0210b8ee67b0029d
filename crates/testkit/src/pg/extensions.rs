//! Suites of extensions, run on a plain and on a sealed server with the same installed extension.
//!
//! ```text
//!   build/extensions/NAME     the extension's source, unchanged (ci/extensions)
//!   build/extensions/server   a copy of Debian's server with the extensions installed
//!     --> Suite::run          the extension's own driver, against a running server
//!     --> Outcome             which tests passed, and what the others printed
//! ```
//!
//! A suite may be made for another minor version of the server than the installed one: only a
//! comparison of the arms says something.

mod list;
mod page;
mod suite;

use std::path::{Path, PathBuf};

use tidelock_servers::{Arm, Cluster, Error, Result, Workspace, ensure, skip};

pub use self::list::{EXTENSIONS, Extension};
pub use self::page::row;
use self::suite::Run;
use super::regress::Outcome;
use crate::marker::Marker;

/// What one arm said of an extension.
#[derive(Debug)]
pub struct Tried {
    /// What its server calls the extension's version.
    pub version: String,
    /// How its tests ended.
    pub outcome: Outcome,
}

impl Tried {
    /// Whether a test waited longer than it says that it does: on a busy machine.
    #[must_use]
    pub fn ran_out_of_time(&self) -> bool {
        let told = "canceling statement due to statement timeout";
        self.outcome.printed.values().any(|text| text.contains(told))
    }
}

impl Extension {
    /// Whether it can be tried; says why not.
    #[must_use]
    pub fn is_here(&self) -> bool {
        let here = self.source().is_dir() && bin().join("postgres").is_file();
        if !here {
            skip::because(format_args!("the suite of {} is missing: ci/extensions", self.name));
        }
        here
    }

    /// Runs its suite on a server of its own, and looks for plaintext after it.
    ///
    /// # Errors
    /// When the driver could not run, or the directory does not hold what its arm promises. Tests
    /// that fail are no error.
    pub fn try_on(&self, arm: Arm) -> Result<Tried> {
        let place = Workspace::new()?;
        let bin = bin().canonicalize().map_err(Error::io("finding build/extensions/server"))?;
        let cluster = Cluster::at(&place, "main", arm)?;
        let sockets = cluster.socket_dir().display().to_string();
        // Extensions connect to their own server, and their tests print how.
        let env = vec![("PGHOST".to_owned(), sockets.clone())];
        let cluster = cluster.with(Some(bin.clone()), env);
        cluster.make(&["-k"])?;
        for (name, value) in BASE.iter().chain(self.settings) {
            cluster.set(name, &value.replace("SOCKETS", &sockets))?;
        }
        cluster.start()?;
        let version = self.version(&cluster)?;
        let outcome = Run::prepare(self, &cluster, &bin)?.run()?;
        self.leaves_no_plaintext(&cluster)?;
        Ok(Tried { version, outcome })
    }

    /// Rows that the extension has stored, indexed, logged or decoded are in a plain directory, and
    /// not in a sealed one.
    fn leaves_no_plaintext(&self, cluster: &Cluster<'_>) -> Result<()> {
        let marker = Marker::new();
        let database = self.database.unwrap_or("marked");
        if self.database.is_none() {
            cluster.sql("CREATE DATABASE marked")?;
        }
        cluster.sql_in(database, &self.stores.replace("MARKER", marker.text()))?;
        cluster.sql("CHECKPOINT")?;
        let dir = cluster.dir().to_path_buf();
        // While it runs: spilled transactions and logs are there, and then at rest.
        let running = marker.search(&[&dir]).map_err(Error::io("searching"))?;
        cluster.stop("fast")?;
        let stopped = marker.search(&[&dir]).map_err(Error::io("searching"))?;
        let sealed = cluster.arm() == Arm::Sealed;
        for seen in [running, stopped] {
            ensure(seen.findings.is_empty() == sealed && seen.files > 500, || {
                format!("{}: {} files, {:?}", self.name, seen.files, seen.findings)
            })?;
        }
        if sealed {
            cluster.tidelock(&["verify", "-D"])?.arg(&dir).limit(600).run()?;
        }
        Ok(())
    }

    fn version(&self, cluster: &Cluster<'_>) -> Result<String> {
        if let Some(version) = self.plugin_version {
            return Ok(version.into());
        }
        let name = self.name;
        let asked =
            format!("SELECT default_version FROM pg_available_extensions WHERE name = '{name}'");
        let version = cluster.sql(&asked)?;
        ensure(!version.is_empty(), || format!("{name} is not installed: ci/packages full"))?;
        Ok(version)
    }

    fn source(&self) -> PathBuf {
        built().join(self.name)
    }
}

/// What a suite runs on, whichever it is.
const BASE: [(&str, &str); 5] = [
    ("fsync", "off"),
    ("max_connections", "60"),
    ("max_locks_per_transaction", "256"),
    ("logging_collector", "on"),
    ("log_min_messages", "warning"),
];

fn built() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/extensions")
}

fn bin() -> PathBuf {
    built().join("server/usr/lib/postgresql/15/bin")
}

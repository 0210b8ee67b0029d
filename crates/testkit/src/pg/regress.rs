//! PostgreSQL's own SQL and isolation suites, run against a running server, and which of them
//! failed.
//!
//! The drivers come from Debian's binaries (pgxs), the SQL and expected files from its source
//! package, which `ci/pg-source` fetches. The source may be a minor version behind the server, so
//! some tests fail on the plain server too: only a comparison of arms says something.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{env, fs};

use tidelock_servers::{Cluster, Error, Result};

/// A suite of the source package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// `src/test/regress`.
    Sql,
    /// `src/test/isolation`.
    Isolation,
}

/// Names of the tests of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Those that passed.
    pub passed: BTreeSet<String>,
    /// Those that did not.
    pub failed: BTreeSet<String>,
    /// What those that failed printed.
    pub printed: BTreeMap<String, String>,
}

impl Suite {
    /// Runs these tests, or the suite's whole schedule if there are none, on `cluster`.
    ///
    /// # Errors
    /// When the source is not there or the driver could not run at all; tests that fail are no
    /// error.
    pub fn run(self, cluster: &Cluster<'_>, tests: &[&str]) -> Result<Outcome> {
        let source = source()?;
        let place = cluster.workspace();
        let (name, driver, schedule) = match self {
            Self::Sql => ("regress", "pg_regress", "parallel_schedule"),
            Self::Isolation => ("isolation", "pg_isolation_regress", "isolation_schedule"),
        };
        let input = source.join("src/test").join(name);
        let output = place.make_dir(&format!("{name}-{}", cluster.arm()))?;
        let copy = place.make_dir("suite")?;
        // What the tests load: the suite's own library, and two that the server's package has.
        let libraries = place.make_dir("suite/lib")?;
        let own = [source.join("src/test/regress/regress.so")];
        for from in own.into_iter().chain(loaded()) {
            let to = libraries.join(from.file_name().unwrap_or_default());
            fs::copy(&from, &to).map_err(Error::io(format!("copying {}", from.display())))?;
            place.account().give(&to)?;
        }
        // The suite writes beside its input, and the servers' account may not read our sources.
        let copied = copy.join(name);
        if !copied.exists() {
            place.tool("cp").arg("-a").arg(&input).arg(&copied).as_ourselves().run()?;
            let owner = format!("{}:", place.account().name());
            place.tool("chown").args(["-R", &owner]).arg(&copied).as_ourselves().run()?;
        }
        let pgxs = Path::new(PGXS).join(name).join(driver);
        let mut run = cluster
            .client(&pgxs.display().to_string())
            .arg(format!("--inputdir={}", copied.display()))
            .arg(format!("--outputdir={}", output.display()))
            .arg(format!("--bindir={}", super::BINDIR))
            .arg(format!("--dlpath={}", libraries.display()))
            .arg("--max-connections=8")
            .arg(format!("--host={}", cluster.socket_dir().display()))
            .args(["--port=5432", "--user=postgres"])
            .limit(2400);
        run = match tests {
            [] => run.arg(format!("--schedule={}", copied.join(schedule).display())),
            some => run.args(some),
        };
        let printed = run.attempt()?;
        if env::var_os("TIDELOCK_KEEP").is_some() {
            eprintln!("{}", printed.text());
        }
        let mut outcome = Outcome::read(&printed.stdout);
        if outcome.passed.is_empty() {
            return Err(Error::Ended {
                command: printed.command.clone(),
                status: printed.status.to_string(),
                output: printed.text(),
            });
        }
        for test in &outcome.failed {
            let path = output.join("results").join(format!("{test}.out"));
            let text = fs::read(&path).unwrap_or_default();
            outcome.printed.insert(test.clone(), String::from_utf8_lossy(&text).into_owned());
        }
        Ok(outcome)
    }
}

/// What the SQL suite loads beside its own library, from the server's package.
pub(super) fn loaded() -> [PathBuf; 2] {
    ["autoinc.so", "refint.so"].map(|name| Path::new(LIBRARIES).join(name))
}

impl Outcome {
    /// Reads the lines of pg_regress 15: `test boolean ... ok 50 ms`, `     char ... FAILED 20 ms`.
    pub(super) fn read(printed: &str) -> Self {
        let mut outcome = Self::default();
        for line in printed.lines() {
            let Some((name, result)) = line.split_once(" ... ") else { continue };
            let name = name.trim().trim_start_matches("test ").trim().to_owned();
            match result.split_whitespace().next() {
                Some("ok") => outcome.passed.insert(name),
                Some("FAILED" | "failed") => outcome.failed.insert(name),
                _ => false,
            };
        }
        outcome
    }

    /// What ended otherwise in the other run, or failed in both with other words.
    #[must_use]
    pub fn differs(&self, other: &Self) -> Vec<String> {
        let tests = |it: &Self| it.passed.union(&it.failed).cloned().collect::<BTreeSet<_>>();
        let differs = |test: &String| {
            self.passed.contains(test) != other.passed.contains(test)
                || self.failed.contains(test) != other.failed.contains(test)
                || self.printed.get(test) != other.printed.get(test)
        };
        tests(self).union(&tests(other)).filter(|test| differs(test)).cloned().collect()
    }

    /// One line a test, sorted, for keeping.
    #[must_use]
    pub fn list(&self) -> String {
        let passed = self.passed.iter().map(|name| (name, "ok"));
        let failed = self.failed.iter().map(|name| (name, "FAILED"));
        let mut lines: Vec<String> =
            passed.chain(failed).map(|(name, how)| format!("{name} {how}\n")).collect();
        lines.sort();
        lines.concat()
    }
}

const LIBRARIES: &str = "/usr/lib/postgresql/15/lib";
const PGXS: &str = "/usr/lib/postgresql/15/lib/pgxs/src/test";

pub(super) const SOURCE_HINT: &str = "ci/pg-source fetches Debian's source package";

/// Where `ci/pg-source` unpacked the source; `TIDELOCK_PG_SOURCE` names another place.
pub(super) fn source() -> Result<PathBuf> {
    let path = env::var_os("TIDELOCK_PG_SOURCE").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/postgresql-15"),
        PathBuf::from,
    );
    match path.join("src/test/regress/parallel_schedule").is_file() {
        true => Ok(path),
        false => Err(Error::Missing { path, hint: SOURCE_HINT }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_serial_and_parallel_groups_are_read() {
        let outcome = Outcome::read(
            "test tablespace ... ok 5 ms\nparallel group (2 tests): char name\n     \
             char                         ... FAILED       23 ms\n     name                         \
             ... ok           21 ms\ntest bad  ... FAILED (test process exited with exit code 2) 1 ms\n",
        );
        assert_eq!(outcome.list(), "bad FAILED\nchar FAILED\nname ok\ntablespace ok\n");
    }
}

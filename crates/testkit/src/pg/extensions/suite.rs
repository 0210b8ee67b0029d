//! Runs the driver that an extension has for its tests, and reads what it says.
//!
//! A suite writes beside its input: each run has a copy of the source that belongs to the servers'
//! account.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use tidelock_servers::{Cluster, Error, Output, Result, Tool};

use super::list::Extension;
use crate::pg::regress::Outcome;

/// How an extension tests itself.
#[derive(Clone, Copy, Debug)]
pub enum Suite {
    /// `make installcheck`, in this folder and with these arguments.
    Pgxs {
        /// Below the source.
        folder: &'static str,
        /// Of make.
        args: &'static [&'static str],
    },
    /// Files of pgTAP, one psql for each.
    PgTap,
    /// `regress/run_test.pl`, with Debian's loaders.
    PostGis,
    /// `test/pg_regress.sh`, as cmake's target for a running server calls it.
    Timescale,
}

/// A copy of a source, and the server that it is to be run on.
pub(super) struct Run<'r, 'w> {
    suite: Suite,
    cluster: &'r Cluster<'w>,
    bin: &'r Path,
    source: PathBuf,
}

impl<'r, 'w> Run<'r, 'w> {
    pub(super) fn prepare(
        extension: &Extension,
        cluster: &'r Cluster<'w>,
        bin: &'r Path,
    ) -> Result<Self> {
        let place = cluster.workspace();
        let source = place.make_dir("suite")?.join(extension.name);
        place.tool("cp").arg("-a").arg(extension.source()).arg(&source).as_ourselves().run()?;
        let run = Self { suite: extension.suite, cluster, bin, source };
        run.own()?;
        Ok(run)
    }

    pub(super) fn run(&self) -> Result<Outcome> {
        let mut outcome = match self.suite {
            Suite::Pgxs { folder, args } => self.pgxs(&self.source.join(folder), args),
            Suite::PgTap => self.pgtap(),
            Suite::PostGis => self.postgis(),
            Suite::Timescale => self.timescale(),
        }?;
        // Each run has a place of its own, with a name as long as the others'.
        let place = self.cluster.workspace().path().display().to_string();
        for text in outcome.printed.values_mut() {
            *text = without_versions(&text.replace(&place, "PLACE"));
        }
        Ok(outcome)
    }

    fn pgxs(&self, folder: &Path, args: &[&str]) -> Result<Outcome> {
        self.no_fixed_places(folder)?;
        let config = format!("PG_CONFIG={}", self.bin.join("pg_config").display());
        let make = self.tool("make").arg("-C").arg(folder);
        let said = make.args(["-s", "installcheck", "USE_PGXS=1", &config]).args(args).attempt()?;
        read(&said, |test| {
            let outputs = ["results", "test/results", "output_iso/results"];
            let paths = outputs.map(|output| folder.join(output).join(format!("{test}.out")));
            paths.iter().find_map(|path| fs::read(path).ok()).unwrap_or_default()
        })
    }

    /// pg_repack's test of tablespaces has one place for the whole machine.
    fn no_fixed_places(&self, folder: &Path) -> Result<()> {
        let fixed = "/tmp/pg-repack-tablespace";
        let space = self.cluster.workspace().make_dir("space")?.display().to_string();
        for file in ["sql/tablespace.sql", "expected/tablespace.out"].map(|it| folder.join(it)) {
            let Ok(text) = fs::read_to_string(&file) else { continue };
            fs::write(&file, text.replace(fixed, &space)).map_err(Error::io("writing a test"))?;
        }
        Ok(())
    }

    /// As the suite's own description says: the extension in the schema partman.
    fn pgtap(&self) -> Result<Outcome> {
        let made = "CREATE EXTENSION pgtap; CREATE SCHEMA partman;
                    CREATE EXTENSION pg_partman SCHEMA partman";
        self.cluster.sql(made)?;
        let mut outcome = Outcome::default();
        for file in files(&self.source.join("test"), "sql")? {
            let name = stem(&file);
            let psql = self.tool("psql").args(["-X", "-A", "-t", "-q", "-f"]).arg(&file);
            let said = psql.attempt()?;
            let lines = || said.stdout.lines();
            let planned = lines().find_map(|line| line.strip_prefix("1..")?.parse().ok());
            let passed = lines().filter(|line| line.starts_with("ok ")).count();
            if said.status.success() && planned == Some(passed) {
                outcome.passed.insert(name);
            } else {
                outcome.failed.insert(name.clone());
                outcome.printed.insert(name, said.text());
            }
        }
        Ok(outcome)
    }

    fn postgis(&self) -> Result<Outcome> {
        // Where the script looks for what make would have built.
        for (folder, program) in
            [("loader", "shp2pgsql"), ("loader", "pgsql2shp"), ("raster/loader", "raster2pgsql")]
        {
            let link = self.source.join(folder).join(program);
            let what = format!("linking {program}");
            std::os::unix::fs::symlink(Path::new("/usr/bin").join(program), link)
                .map_err(Error::io(what))?;
        }
        // As its Makefile does: the topology that most tests of topologies load.
        let topology = "for srid in -1 4326; do
            to=load_topology-$srid.sql
            cpp -P -traditional-cpp load_topology.sql.in | sed \"s/@SRID@/$srid/g\" > $to || exit
        done; mv load_topology--1.sql load_topology.sql";
        let folder = self.source.join("topology/test");
        self.tool("sh").args(["-c", topology]).within(&folder).run()?;
        let told = self.cluster.workspace().make_dir("regress")?;
        let mut tests = Vec::new();
        for (folder, end) in POSTGIS {
            tests.extend(files(&self.source.join(folder), end)?);
        }
        let tests = tests.iter().map(|file| file.with_extension("")).filter(|test| {
            if OPTIONAL.contains(&stem(test).as_str()) {
                return false;
            }
            let expected = |end: &str| test.with_file_name(stem(test) + end).is_file();
            ["_expected", "-1.expected", "_expected.shp", "-w.expected"].into_iter().any(expected)
        });
        let perl = self
            .tool("perl")
            .arg(self.source.join("regress/run_test.pl"))
            .args(["--extensions", "--topology", "--raster", "--nodrop"])
            .args(tests)
            .env("PGIS_REG_TMPDIR", &told)
            .env("POSTGIS_TOP_BUILD_DIR", &self.source)
            .within(&self.source.join("regress"));
        let said = perl.attempt()?;
        let mut outcome = Outcome::default();
        for line in said.stdout.lines() {
            // ` /SOURCE/regress/core/affine ... ok in 300 ms`, with as many dots as it had steps.
            let Some(path) = line.strip_prefix(' ').and_then(|line| line.split(' ').next()) else {
                continue;
            };
            let Ok(name) = Path::new(path).strip_prefix(&self.source) else { continue };
            let name = name.display().to_string();
            if line.contains(". ok ") {
                outcome.passed.insert(name);
            } else if let Some((_, why)) = line.split_once(". failed (") {
                let diff = why.rsplit(": ").next().unwrap_or_default().trim_end_matches(')');
                let text = fs::read_to_string(diff).unwrap_or_else(|_| why.to_owned());
                // Its first lines have the time of day.
                let is_head = |line: &&str| line.starts_with("--- ") || line.starts_with("+++ ");
                let text: Vec<&str> = text.lines().filter(|line| !is_head(line)).collect();
                let text = text.join("\n");
                outcome.failed.insert(name.clone());
                outcome.printed.insert(name, text);
            }
        }
        tried(outcome, &said)
    }

    fn timescale(&self) -> Result<Outcome> {
        let test = self.source.join("test");
        let made = self.source.join("made");
        let output = made.join("test");
        let roles = ROLES.map(|(_, role)| role).join(",");
        let pg_regress = self.bin.join("../lib/pgxs/src/test/regress/pg_regress");
        let mut tool = self
            .tool("bash")
            .arg(test.join("pg_regress.sh"))
            .arg(format!("--host={}", self.cluster.socket_dir().display()))
            .arg(format!("--dlpath={}", made.join("src").display()))
            .arg(format!("--create-role={roles}"))
            .arg("--dbname=single")
            .arg(format!("--launcher={}", test.join("runner.sh").display()))
            .arg(format!("--inputdir={}", test.display()))
            .arg(format!("--outputdir={}", output.display()))
            .arg(format!("--bindir={}", self.bin.display()))
            .arg("--port=5432")
            .env("TEST_PGUSER", "default_perm_user")
            .env("TEST_PGHOST", self.cluster.socket_dir())
            .env("TEST_PGPORT", "5432")
            .env("TEST_DBNAME", "single")
            .env("TEST_INPUT_DIR", &test)
            .env("TEST_OUTPUT_DIR", &output)
            .env("TEST_SCHEDULE", output.join("test_schedule"))
            .env("PG_BINDIR", self.bin)
            .env("PG_REGRESS", &pg_regress)
            .within(&output);
        for (variable, role) in ROLES {
            tool = tool.env(variable, role);
        }
        let said = tool.attempt()?;
        read(&said, |test| {
            fs::read(output.join("results").join(format!("{test}.out"))).unwrap_or_default()
        })
    }

    /// A client that finds the copy's programs first, with patience for a whole suite.
    fn tool(&self, program: &str) -> Tool<'w> {
        let path = format!("{}:/usr/bin:/bin", self.bin.display());
        self.cluster.client(program).env("PATH", path).limit(3600)
    }

    fn own(&self) -> Result<()> {
        let place = self.cluster.workspace();
        let owner = format!("{}:", place.account().name());
        place.tool("chown").args(["-R", &owner]).arg(&self.source).as_ourselves().run().map(drop)
    }
}

/// Where PostGIS has tests, and by which file each shows.
const POSTGIS: [(&str, &str); 5] = [
    ("regress/core", "sql"),
    ("regress/loader", "dbf"),
    ("regress/dumper", "dmp"),
    ("topology/test/regress", "sql"),
    ("raster/test/regress", "sql"),
];

/// Left out by PostGIS too, unless a build asks for them; the first needs another GEOS.
const OPTIONAL: [&str; 4] =
    ["concave_hull_hard", "interrupt", "interrupt_buffer", "interrupt_relate"];

/// What TimescaleDB's scripts call their roles.
const ROLES: [(&str, &str); 9] = [
    ("TEST_ROLE_SUPERUSER", "super_user"),
    ("TEST_ROLE_DEFAULT_PERM_USER", "default_perm_user"),
    ("TEST_ROLE_DEFAULT_PERM_USER_2", "default_perm_user_2"),
    ("TEST_ROLE_CLUSTER_SUPERUSER", "cluster_super_user"),
    ("TEST_ROLE_1", "test_role_1"),
    ("TEST_ROLE_2", "test_role_2"),
    ("TEST_ROLE_3", "test_role_3"),
    ("TEST_ROLE_4", "test_role_4"),
    ("TEST_ROLE_READ_ONLY", "test_role_read_only"),
];

/// 15.20 shows a number in attoptions that depends on how much WAL was written before.
fn without_versions(text: &str) -> String {
    let mut parts = text.split("pg_attver=");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |told, part| {
        told + "pg_attver=N" + part.trim_start_matches(|c: char| c.is_ascii_digit())
    })
}

/// The outcome of a driver that prints as pg_regress does, with what each failed test printed.
fn read(said: &Output, text: impl Fn(&str) -> Vec<u8>) -> Result<Outcome> {
    let mut outcome = Outcome::read(&said.stdout);
    for test in &outcome.failed {
        outcome.printed.insert(test.clone(), String::from_utf8_lossy(&text(test)).into_owned());
    }
    tried(outcome, said)
}

/// A driver that ran nothing is an error.
fn tried(outcome: Outcome, said: &Output) -> Result<Outcome> {
    match outcome.passed.is_empty() {
        false => Ok(outcome),
        true => Err(Error::Ended {
            command: said.command.clone(),
            status: said.status.to_string(),
            output: said.text(),
        }),
    }
}

/// The files of a folder that end so, sorted.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(Error::io(format!("reading {}", folder.display())));
    let mut found: Vec<PathBuf> = entries?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_file())
        .filter(|path| extension.is_empty() || path.extension() == Some(OsStr::new(extension)))
        .collect();
    found.sort();
    Ok(found)
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_differ_from_run_to_run_are_left_out() {
        let text = "a | {pg_attver=34987048,n_distinct=10} | {pg_attver=1}";
        assert_eq!(without_versions(text), "a | {pg_attver=N,n_distinct=10} | {pg_attver=N}");
        assert_eq!(without_versions("none"), "none");
    }
}

//! pg_upgrade from one major to another, with tablespaces, as its page in PostgreSQL's manual says;
//! the old cluster and its keys are deleted afterwards. Rows of docs/tools.md.

use std::fs;
use std::path::{Path, PathBuf};

use tidelock_testkit::marker::Marker;
use tidelock_testkit::pg::{
    Arm, BINDIR, Cluster, Error, Output, Result, Tool, Workspace, ensure, majors,
};
use tidelock_testkit::tools::{Page, Sees};

/// A major and its programs.
struct Major(u32, PathBuf);

impl Major {
    /// Debian's for 15; others as `ci/pg-build` has made them.
    fn find(major: u32) -> Option<Self> {
        let bin = if major == 15 { BINDIR.into() } else { majors::built(major)? };
        Some(Self(major, bin))
    }

    fn cluster<'p>(&self, place: &'p Workspace, name: &str, arm: Arm) -> Result<Cluster<'p>> {
        let cluster = Cluster::at(place, name, arm)?.with(Some(self.1.clone()), Vec::new());
        cluster.make(&["-k"])?;
        Ok(cluster)
    }

    fn bin(&self) -> &Path {
        &self.1
    }
}

/// One upgrade: two clusters and two tablespaces that they share.
struct Upgrade<'p> {
    place: &'p Workspace,
    marker: Marker,
    from: Major,
    to: Major,
    old: Cluster<'p>,
    new: Cluster<'p>,
    spaces: [PathBuf; 2],
}

/// Debian's 15 is ahead of the other builds: it marks columns with `pg_attver`, which stops
/// pg_upgrade of a plain cluster too.
const RELEASES: &str =
    "UPDATE pg_attribute SET attoptions = NULL WHERE attoptions::text LIKE '%pg_attver%'";

impl<'p> Upgrade<'p> {
    /// Rows in tables, in indexes and in a whole database, in both tablespaces and outside; the old
    /// server is stopped, the new one never ran.
    fn ready(place: &'p Workspace, from: (Major, Arm), to: (Major, Arm)) -> Result<Self> {
        let marker = Marker::new();
        let spaces = [place.make_dir("space-a")?, place.make_dir("space-b")?];
        let old = from.0.cluster(place, "old", from.1)?;
        old.start()?;
        old.sql(&format!(
            "CREATE TABLESPACE a LOCATION '{}';
             CREATE TABLESPACE b LOCATION '{}';
             CREATE ROLE \"r{marker}\" LOGIN PASSWORD 'secret';
             CREATE TABLE t AS SELECT g, '{marker}' AS b FROM generate_series(1, 1000) g;
             CREATE TABLE in_a TABLESPACE a AS SELECT g, '{marker}' AS b
                 FROM generate_series(1, 20000) g;
             CREATE INDEX ON in_a (g) TABLESPACE b;
             SELECT lo_from_bytea(4711, '{marker}');
             CREATE DATABASE d TABLESPACE b",
            spaces[0].display(),
            spaces[1].display(),
            marker = marker.text(),
        ))?;
        let rows = format!(
            "CREATE TABLE u AS SELECT g, '{}' AS b FROM generate_series(1, 500) g",
            marker.text()
        );
        old.sql_in("d", &rows)?;
        for database in ["postgres", "d"] {
            old.sql_in(database, RELEASES)?;
        }
        old.stop("fast")?;
        let new = to.0.cluster(place, "new", to.1)?;
        Ok(Self { place, marker, from: from.0, to: to.0, old, new, spaces })
    }

    fn pg_upgrade(&self) -> Tool<'p> {
        let mut tool = self.place.tool(self.to.bin().join("pg_upgrade"));
        for cluster in [&self.old, &self.new] {
            if cluster.arm() == Arm::Sealed {
                tool = tool.under(Arm::Sealed, cluster.dir());
            }
        }
        tool.arg("-b")
            .arg(self.from.bin())
            .arg("-B")
            .arg(self.to.bin())
            .arg("-d")
            .arg(self.old.dir())
            .arg("-D")
            .arg(self.new.dir())
            .args(["-U", "postgres", "-j", "2", "-s"])
            .arg(self.place.path())
            .limit(900)
    }

    fn all_rows(&self, of: &Cluster<'_>) -> Result<()> {
        of.expect(
            "SELECT count(*), count(DISTINCT b) FROM t; SELECT count(*), sum(g) FROM in_a;
             SELECT length(lo_get(4711)) > 30; SET enable_seqscan = off;
             SELECT count(*) FROM in_a WHERE g > 19000",
            "1000|1\n20000|200010000\nt\n1000",
        )?;
        let count = of.sql_in("d", "SELECT count(*), min(b) FROM u")?;
        ensure(count == format!("500|{}", self.marker.text()), || count.clone())
    }

    /// The old server still runs on what it has, and its files are what they were.
    fn the_old_one_is_whole(&self) -> Result<()> {
        self.old.start()?;
        self.all_rows(&self.old)?;
        self.old.stop("fast")?;
        if self.old.arm() == Arm::Sealed {
            self.verify(&self.old)?;
        }
        Ok(())
    }

    fn verify(&self, cluster: &Cluster<'_>) -> Result<Output> {
        let verify = cluster.tidelock(&["verify", "-D"])?.arg(cluster.dir());
        verify.run()
    }

    fn nothing_readable(&self) -> Result<()> {
        let [a, b] = &self.spaces;
        let found = self.marker.search(&[self.new.dir(), a, b]);
        let found = found.map_err(Error::io("searching"))?;
        ensure(found.findings.is_empty(), || format!("{found:?}"))
    }
}

fn upgrade(test: &'static str, from: (u32, Arm), to: (u32, Arm)) -> Result<()> {
    let (Some(old), Some(new)) = (Major::find(from.0), Major::find(to.0)) else { return Ok(()) };
    let place = Workspace::new()?;
    let it = Upgrade::ready(&place, (old, from.1), (new, to.1))?;
    let page = Page::new(&place, test).of(it.to.bin());
    let command = "pg_upgrade -b BIN -B NEWBIN -d OLD -D NEW -U postgres -j 2 -s SOCKETS";
    if (from.1, to) == (Arm::Sealed, (18, Arm::Sealed)) {
        for mode in ["--clone", "--copy-file-range", "--link", "--swap"] {
            let tool = it.pg_upgrade().arg(mode);
            let said = "each is sealed with keys of its own cluster";
            page.fails(tool, Sees::Plain, &format!("{command} {mode}"), said)?;
        }
    }
    let check = it.pg_upgrade().arg("--check").run()?;
    ensure(check.stdout.contains("*Clusters are compatible*"), || check.text())?;
    let done = it.pg_upgrade().run()?;
    ensure(done.stdout.contains("Upgrade Complete"), || done.text())?;
    it.the_old_one_is_whole()?;
    let template = format!("{command} # OLD is a {} {}, NEW is {}", from.1, from.0, to.1);
    let told = "works, tablespaces too; OLD stays whole until it is deleted, with its keys";
    page.row(Sees::Plain, &template, told)?;
    if to.1 == Arm::Sealed {
        // The old cluster's folders lie beside, under other keys or none.
        let told = it.verify(&it.new)?;
        let folder = format!("PG_{}_", it.from.0);
        ensure(told.stdout.matches(&folder).count() == 2, || told.text())?;
    }
    // As pg_upgrade advises.
    place.wait_for_agents()?;
    place.tool("sh").arg(place.join("delete_old_cluster.sh")).run()?;
    ensure(!it.old.dir().exists(), || "the old cluster is there".into())?;
    let key = place.join("home/old.key");
    if key.exists() {
        fs::remove_file(key).map_err(Error::io("deleting the old key"))?;
    }
    if to.1 == Arm::Sealed {
        it.nothing_readable()?;
        let told = it.verify(&it.new)?;
        ensure(told.stdout.contains("0 notes"), || told.text())?;
    }
    it.new.start()?;
    it.all_rows(&it.new)?;
    it.new.sql("UPDATE in_a SET g = g + 1; VACUUM FREEZE; CHECKPOINT")?;
    it.new.expect("SELECT sum(g) FROM in_a", "200030000")?;
    let version = it.new.sql("SHOW server_version_num")?;
    ensure(version.starts_with(&it.to.0.to_string()), || version.clone())?;
    it.new.stop("fast")?;
    it.new.tool("pg_checksums").arg("--check").arg(it.new.dir()).run().map(drop)
}

#[test]
#[ignore = "long: make test-full"]
fn from_15_to_18_both_sealed() -> Result<()> {
    upgrade("from_15_to_18_both_sealed", (15, Arm::Sealed), (18, Arm::Sealed))
}

#[test]
#[ignore = "long: make test-full"]
fn from_a_plain_15_to_a_sealed_18() -> Result<()> {
    upgrade("from_a_plain_15_to_a_sealed_18", (15, Arm::Plain), (18, Arm::Sealed))
}

#[test]
#[ignore = "long: make test-full"]
fn from_a_sealed_15_to_a_plain_18() -> Result<()> {
    upgrade("from_a_sealed_15_to_a_plain_18", (15, Arm::Sealed), (18, Arm::Plain))
}

#[test]
#[ignore = "long: make test-full"]
fn from_15_to_17_both_sealed() -> Result<()> {
    upgrade("from_15_to_17_both_sealed", (15, Arm::Sealed), (17, Arm::Sealed))
}

#[test]
#[ignore = "long: make test-full"]
fn from_a_plain_17_to_a_sealed_18() -> Result<()> {
    upgrade("from_a_plain_17_to_a_sealed_18", (17, Arm::Plain), (18, Arm::Sealed))
}

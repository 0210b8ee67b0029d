//! PostgreSQL's own tools on the directory of a server: checksums, control data, WAL, rewind,
//! reset, dump, and Debian's wrapper.

use std::fs;
use std::path::{Path, PathBuf};

use tidelock_servers::{Running, Tool, skip};
use tidelock_testkit::arms;
use tidelock_testkit::pg::{Arm, BINDIR, Cluster, Error, Result, Workspace, ensure, fill_pgbench};
use tidelock_testkit::tools::{Page, Sees};

fn checksums_are_checked_disabled_and_enabled(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let cluster = Cluster::started(&place, "main", arm)?;
    fill_pgbench(&cluster, 1)?;
    cluster.stop("fast")?;
    let checksums = |what: &str| {
        cluster.tool("pg_checksums").arg("-D").arg(cluster.dir()).args([what, "--progress"]).run()
    };
    let told = checksums("--check")?.text();
    ensure(told.contains("Bad checksums:  0"), || told.clone())?;
    checksums("--disable")?;
    cluster.start()?;
    cluster.expect("SHOW data_checksums", "off")?;
    cluster.sql("UPDATE pgbench_accounts SET abalance = 1 WHERE aid % 2 = 0")?;
    cluster.stop("fast")?;
    checksums("--enable")?;
    checksums("--check")?;
    cluster.start()?;
    cluster.expect("SHOW data_checksums; SELECT sum(abalance) FROM pgbench_accounts", "on\n50000")
}
arms!(checksums_are_checked_disabled_and_enabled: plain, sealed);

fn control_data_and_wal_are_readable(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let cluster = Cluster::new(&place, "main", arm)?;
    cluster.set("wal_keep_size", "64MB")?;
    cluster.start()?;
    let segment =
        cluster.sql("CREATE TABLE t (a text); SELECT pg_walfile_name(pg_current_wal_lsn())")?;
    cluster.sql(
        "INSERT INTO t SELECT md5(g::text) FROM generate_series(1, 1000) g; SELECT pg_switch_wal()",
    )?;
    // Running and stopped.
    for state in ["in production", "shut down"] {
        let control = cluster.tool("pg_controldata").arg("-D").arg(cluster.dir()).run()?;
        ensure(control.stdout.contains(state), || control.text())?;
        let path = cluster.dir().join("pg_wal").join(&segment);
        let dump = cluster.tool("pg_waldump").arg("--stats").arg(&path).run()?;
        ensure(dump.stdout.contains("Heap"), || dump.text())?;
        if state == "in production" {
            cluster.stop("fast")?;
        }
    }
    Ok(())
}
arms!(control_data_and_wal_are_readable: plain, sealed);

fn resetwal_makes_a_server_without_its_wal_start(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let cluster = Cluster::started(&place, "main", arm)?;
    cluster.sql("CREATE TABLE t AS SELECT g FROM generate_series(1, 100) g; CHECKPOINT")?;
    cluster.stop("fast")?;
    cluster
        .tool("pg_resetwal")
        .arg("-D")
        .arg(cluster.dir())
        .args(["-f", "--wal-segsize=4"])
        .run()?;
    cluster.start()?;
    cluster.expect("SELECT count(*) FROM t; SHOW wal_segment_size", "100\n4MB")
}
arms!(resetwal_makes_a_server_without_its_wal_start: plain, sealed);

fn rewind_makes_an_old_primary_follow_the_new_one(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let old = Cluster::new(&place, "old", arm)?;
    old.set("wal_log_hints", "on")?;
    old.set("wal_keep_size", "512MB")?;
    old.start()?;
    fill_pgbench(&old, 1)?;
    let new = Cluster::empty(&place, "new", arm)?;
    new.backup_of(&old, &["-R"])?;
    new.start()?;
    old.sql("CREATE TABLE common (a int)")?;
    new.wait_for("SELECT count(*) FROM pg_class WHERE relname = 'common'", "1")?;
    new.promote()?;
    old.sql(
        "CREATE TABLE lost AS SELECT g FROM generate_series(1, 10000) g; UPDATE \
             pgbench_accounts SET abalance = 5",
    )?;
    new.sql(
        "CREATE TABLE kept AS SELECT g FROM generate_series(1, 10000) g; UPDATE \
             pgbench_accounts SET abalance = 7 WHERE aid < 100; CHECKPOINT",
    )?;
    old.stop("fast")?;
    let conf = place.join("home/old.conf");
    place.write(&conf, &read(&old.dir().join("postgresql.conf"))?)?;
    old.tool("pg_rewind")
        .args(["--source-server", &new.conninfo(), "-R", "--progress", "--target-pgdata"])
        .arg(old.dir())
        .run()?;
    old.listen_here()?;
    old.start()?;
    old.wait_for("SELECT count(*) FROM pg_class WHERE relname IN ('kept', 'lost')", "1")?;
    old.wait_for("SELECT sum(abalance) FROM pgbench_accounts", "693")?;
    new.sql("CREATE TABLE after (a int)")?;
    old.wait_for("SELECT count(*) FROM pg_class WHERE relname = 'after'", "1")
}
arms!(rewind_makes_an_old_primary_follow_the_new_one: plain, sealed);

fn dump_and_restore_cross_the_arms(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let from = Cluster::started(&place, "from", arm)?;
    fill_pgbench(&from, 1)?;
    let dump = place.join("home/dump");
    from.client("pg_dump").args(["-Fd", "-j2", "-f"]).arg(&dump).run()?;
    let to = Cluster::started(&place, "to", Arm::Plain)?;
    to.client("pg_restore").args(["-j2", "-d", "postgres"]).arg(&dump).run()?;
    to.expect("SELECT count(*) FROM pgbench_accounts", "100000")
}
arms!(dump_and_restore_cross_the_arms: plain, sealed);

/// Debian's wrapper empties the environment: library and agent come from the cluster's own file.
fn pg_ctlcluster_starts_and_stops(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    if skip::unless_root("pg_ctlcluster, which manages /etc/postgresql,") {
        return Ok(());
    }
    let cluster = Cluster::new(&place, "main", arm)?;
    let debian = Debian::of(&place, &cluster)?;
    debian.ctl("start").run()?;
    cluster.expect("SELECT 1", "1")?;
    debian.ctl("restart").run()?;
    cluster.sql("CREATE TABLE t AS SELECT 1")?;
    debian.ctl("status").run()?;
    debian.ctl("stop").run().map(drop)
}
arms!(pg_ctlcluster_starts_and_stops: plain, sealed);

/// It gives its environment to nothing but a server that it starts; `promote` reads pg_control.
fn pg_ctlcluster_promotes_a_standby(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    if skip::unless_root("pg_ctlcluster, which manages /etc/postgresql,") {
        return Ok(());
    }
    let primary = Cluster::started(&place, "primary", Arm::Plain)?;
    let standby = Cluster::empty(&place, "standby", arm)?;
    standby.backup_of(&primary, &["-R"])?;
    let debian = Debian::of(&place, &standby)?;
    debian.ctl("start").run()?;
    debian.ctl("reload").run()?;
    standby.expect("SELECT pg_is_in_recovery()", "t")?;
    if arm == Arm::Sealed {
        let mut page = Page::new(&place, "pg_ctlcluster_promotes_a_standby");
        page.word("NAME", &debian.name);
        let template = "pg_ctlcluster --skip-systemctl-redirect 15 NAME promote";
        page.fails(
            page.tool(template).as_ourselves(),
            Sees::SealedBytes,
            template,
            "control file appears to be corrupt",
        )?;
        // The way that `service install` puts in front of it.
        let ours = debian.tidelock(&["service", "pg-ctlcluster", "--"])?;
        ours.args(["--skip-systemctl-redirect", "15", &debian.name, "promote"]).run()?;
        let how = "works by the pg_ctlcluster that `tidelock service install` puts in front";
        page.row(Sees::Plain, template, how)?;
        let unit = format!("postgresql@15-{}", debian.name);
        let control = debian.tidelock(&["service", "run", &unit, "--"])?;
        let control = control.arg(format!("{BINDIR}/pg_controldata")).arg(standby.dir()).run()?;
        ensure(control.stdout.contains("in production"), || control.text())?;
    } else {
        debian.ctl("promote").run()?;
    }
    standby.wait_for("SELECT pg_is_in_recovery()", "f")?;
    debian.ctl("stop").run().map(drop)
}
arms!(pg_ctlcluster_promotes_a_standby: plain, sealed);

/// It would make a plain cluster with pg_createcluster, but reads pg_control before.
#[test]
#[ignore = "long: make test-full"]
fn pg_upgradecluster_refuses_a_sealed_cluster() -> Result<()> {
    let place = Workspace::new()?;
    if skip::unless_root("pg_upgradecluster, which manages /etc/postgresql,") {
        return Ok(());
    }
    let main = Cluster::new(&place, "main", Arm::Sealed)?;
    let debian = Debian::of(&place, &main)?;
    debian.ctl("start").run()?;
    let other = format!("{}new", debian.name);
    let conf = Path::new("/etc/postgresql/15").join(&other);
    let _removed = Remove(vec![conf.clone()]);
    let mut page = Page::new(&place, "pg_upgradecluster_refuses_a_sealed_cluster");
    page.word("OUT", place.join("new").display());
    page.word("NAME", &debian.name);
    page.word("OTHER", &other);
    let template = "pg_upgradecluster -v 15 --rename OTHER 15 NAME OUT";
    let tool = page.tool(template).as_ourselves();
    page.fails(tool, Sees::SealedBytes, template, "Invalid pg_controldata output")?;
    ensure(!conf.exists() && !place.join("new").exists(), || "a cluster was made".into())?;
    main.expect("SELECT 1", "1")?;
    debian.ctl("stop").run().map(drop)
}

/// A cluster of /etc/postgresql, as `pg_createcluster` and `tidelock service install` leave it.
struct Debian<'p> {
    place: &'p Workspace,
    name: String,
    /// The agent lives as long as somebody is connected: this shell holds it.
    _holder: Option<Running>,
    _removed: Remove,
}

impl<'p> Debian<'p> {
    fn of(place: &'p Workspace, cluster: &Cluster<'p>) -> Result<Self> {
        let main = cluster.dir().file_name().unwrap_or_default().to_string_lossy();
        let name = format!("tl{}{}{main}", std::process::id(), cluster.arm());
        let conf = Path::new("/etc/postgresql/15").join(&name);
        let record =
            Path::new("/etc/tidelock/installed").join(format!("postgresql@15-{name}.toml"));
        let removed = Remove(vec![conf.clone(), record.clone()]);
        fs::create_dir_all(&conf).map_err(Error::io("making the cluster's configuration"))?;
        place.account().give(&conf)?;
        for file in ["postgresql.conf", "pg_hba.conf", "pg_ident.conf"] {
            place.tool("mv").arg(cluster.dir().join(file)).arg(&conf).run()?;
        }
        let settings = [
            ("data_directory", cluster.dir().display().to_string()),
            ("hba_file", conf.join("pg_hba.conf").display().to_string()),
            ("ident_file", conf.join("pg_ident.conf").display().to_string()),
        ];
        let mut text = read(&conf.join("postgresql.conf"))?;
        for (setting, value) in settings {
            text += &format!("{setting} = '{value}'\n");
        }
        place.write(&conf.join("postgresql.conf"), &text)?;
        place.write(&conf.join("start.conf"), "manual\n")?;
        let mut holder = None;
        if cluster.arm() == Arm::Sealed {
            let told = place.join("home/environment");
            let script = format!(
                "printf \"LD_PRELOAD = '%s'\\nTIDELOCK_AGENT = '%s'\\n\" \"$LD_PRELOAD\" \
                 \"$TIDELOCK_AGENT\" \
                 > {told}.new && mv {told}.new {told} && exec sleep 3000",
                told = told.display()
            );
            holder = Some(cluster.tool("sh").args(["-c", &script]).spawn()?);
            for _ in 0..6000 {
                if told.exists() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
            let environment = read(&told)?;
            place.write(&conf.join("environment"), &environment)?;
            let socket = environment.split("TIDELOCK_AGENT = '").nth(1).unwrap_or_default();
            let socket = socket.trim_end().trim_end_matches('\'');
            let text = format!(
                "directory = \"{}\"\nsocket = \"{socket}\"\nwritten = []\n",
                cluster.dir().display()
            );
            fs::create_dir_all(record.parent().unwrap_or(&record))
                .and_then(|()| fs::write(&record, text))
                .map_err(Error::io("writing what is installed"))?;
        }
        Ok(Self { place, name, _holder: holder, _removed: removed })
    }

    fn ctl(&self, what: &str) -> Tool<'p> {
        self.place.tool("/usr/bin/pg_ctlcluster").as_ourselves().args([
            "--skip-systemctl-redirect",
            "15",
            &self.name,
            what,
        ])
    }

    /// The command as root.
    fn tidelock(&self, arguments: &[&str]) -> Result<Tool<'p>> {
        Ok(self.place.tool(self.place.programs()?.command).as_ourselves().args(arguments))
    }
}

struct Remove(Vec<PathBuf>);

impl Drop for Remove {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
    }
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(Error::io(format!("reading {}", path.display())))
}

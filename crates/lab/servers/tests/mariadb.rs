//! Private MariaDB servers: their life, their death, and whether their own encryption encrypts.

use std::path::Path;
use std::process::Command;

use tidelock_servers::mysqld::{Brand, Mysqld, sealed_is_possible};
use tidelock_servers::{Arm, Error, Result, Workspace, cpu_seconds};

/// Small, and quick on a busy disk: nothing here outlives the machine, so nothing needs an fsync.
const SMALL: [(&str, &str); 4] = [
    ("innodb_log_file_size", "4M"),
    ("innodb_buffer_pool_size", "16M"),
    ("innodb_flush_method", "nosync"),
    ("debug_no_sync", "ON"),
];

fn installed(place: &Workspace) -> Result<Mysqld<'_>> {
    Mysqld::mariadb(place, "m", Arm::Plain)?.installed(&SMALL)
}

#[test]
fn a_stopped_server_keeps_its_rows_and_frees_its_place() {
    let place = Workspace::new().unwrap();
    let maria = installed(&place).unwrap();
    assert!(maria.process().is_err() && maria.stop().is_ok());
    maria.start().unwrap();
    assert!(maria.start().is_err());
    maria
        .expect("SELECT CURRENT_USER(), @@skip_networking, @@log_bin", "root@localhost\t1\t0")
        .unwrap();
    maria.expect("SHOW DATABASES LIKE 'test'", "").unwrap();
    maria.sql("CREATE DATABASE d; CREATE TABLE d.t (a INT); INSERT INTO d.t VALUES (7)").unwrap();
    let process = maria.process().unwrap();
    assert!(process.lives() && cpu_seconds(process) > 0.0);
    maria.set("log_bin", "on").unwrap();
    maria.restart().unwrap();
    assert!(!process.lives());
    maria.expect("SELECT a, @@log_bin FROM d.t", "7\t1").unwrap();
    maria.stop().unwrap();
    assert!(maria.process().is_err() && !maria.socket().exists());
}

#[test]
fn committed_rows_survive_kill_nine() {
    let place = Workspace::new().unwrap();
    let maria = installed(&place).unwrap();
    maria.start().unwrap();
    maria
        .sql(
            "CREATE DATABASE d; USE d; CREATE TABLE t (a INT); INSERT INTO t SELECT seq FROM \
              seq_1_to_5000",
        )
        .unwrap();
    maria.kill_nine().unwrap();
    assert!(maria.sql("SELECT 1").is_err());
    maria.start().unwrap();
    maria.expect("SELECT COUNT(*), SUM(a) FROM d.t", "5000\t12502500").unwrap();
    let process = maria.process().unwrap();
    drop(maria);
    assert!(!process.lives(), "a dropped server still runs");
}

#[test]
fn a_server_that_does_not_start_says_why() {
    let place = Workspace::new().unwrap();
    let maria = installed(&place).unwrap();
    maria.set("innodb_no_such_thing", "1").unwrap();
    let told = maria.start().unwrap_err().to_string();
    assert!(told.contains("unknown variable 'innodb_no_such_thing"), "{told}");
    assert!(maria.process().is_err());
}

/// The second opinion: what the plain server shows, this one does not.
#[test]
fn its_own_encryption_leaves_no_row_in_any_file_that_it_covers() {
    let place = Workspace::new().unwrap();
    let plain = with_markers(&place, "plain", false).unwrap();
    let shown = plain.holding("MARKER").unwrap();
    for name in ["ib_logfile0", "d/t.ibd", "d/a.MAD", "binlog.000001"] {
        assert!(
            shown.contains(&name.into()),
            "{name} of the plain server shows nothing: {shown:?}"
        );
    }
    let own = with_markers(&place, "own", true).unwrap();
    assert_eq!(own.holding("INNODB-MARKER").unwrap(), [""; 0]);
    // What MariaDB 10.11 has no switch for.
    assert_eq!(own.holding("ARIA-MARKER").unwrap(), ["aria_log.00000001"]);
    assert_eq!(own.holding("COLUMN_MARKER").unwrap(), ["d/t.frm"]);
    own.0.start().unwrap();
    let spaces = "information_schema.innodb_tablespaces_encryption";
    let plain = format!("SELECT name FROM {spaces} WHERE encryption_scheme <> 1");
    own.0.expect(&plain, "").unwrap();
    assert!(own.0.sql("CREATE TABLE d.p (a INT) ENCRYPTED = NO").is_err());
}

#[test]
fn the_command_is_asked_whether_it_knows_mariadb() {
    let why = sealed_is_possible(Brand::MariaDb, Path::new("/nowhere/tidelock")).unwrap_err();
    assert!(why.contains("/nowhere/tidelock cannot be run"), "{why}");
}

/// A server that was stopped after it wrote the markers.
fn with_markers<'p>(place: &'p Workspace, name: &str, own: bool) -> Result<Marked<'p>> {
    let mut maria = Mysqld::mariadb(place, name, Arm::Plain)?;
    for (name, value) in SMALL {
        maria.set(name, value)?;
    }
    maria.set("log_bin", "on")?;
    maria.set("binlog_format", "MIXED")?;
    if own {
        maria = maria.encrypting_itself()?;
    }
    maria.install()?;
    maria.start()?;
    maria.sql(
        "CREATE DATABASE d; USE d;
             CREATE TABLE t (COLUMN_MARKER TEXT);
             CREATE TABLE a (s TEXT) ENGINE = Aria TRANSACTIONAL = 1;
             INSERT INTO t VALUES ('INNODB-MARKER');
             INSERT INTO a VALUES ('ARIA-MARKER')",
    )?;
    // The row as it was goes to the undo log.
    maria.sql("UPDATE d.t SET COLUMN_MARKER = 'INNODB-MARKER, changed'")?;
    maria.stop()?;
    Ok(Marked(maria))
}

struct Marked<'p>(Mysqld<'p>);

impl Marked<'_> {
    /// Names of the files below the data directory that have the marker.
    fn holding(&self, marker: &str) -> Result<Vec<String>> {
        let grep = Command::new("grep")
            .args(["-rlaF", marker, "."])
            .current_dir(self.0.dir())
            .output()
            .map_err(Error::io("running grep"))?;
        assert_eq!(grep.stderr, b"");
        let names = String::from_utf8_lossy(&grep.stdout);
        let mut found: Vec<String> = names.lines().map(|name| name.replace("./", "")).collect();
        found.sort();
        Ok(found)
    }
}

#[test]
fn the_programs_of_another_build_run_and_none_of_the_installed_ones_in_their_place() {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let place = Workspace::new().unwrap();
    let base = place.make_dir("build").unwrap();
    let ran = base.join("ran");
    for dir in ["bin", "sbin"] {
        fs::create_dir(base.join(dir)).unwrap();
    }
    symlink("/usr/share", base.join("share")).unwrap();
    symlink("/usr/lib", base.join("lib")).unwrap();
    // As Debian lays them out.
    let programs = [
        ("sbin", "mariadbd"),
        ("bin", "mariadb-install-db"),
        ("bin", "my_print_defaults"),
        ("bin", "resolveip"),
    ];
    for (dir, name) in programs {
        let path = base.join(dir).join(name);
        let (ran, installed) = (ran.display(), format!("/usr/{dir}/{name}"));
        let text = format!("#!/bin/sh\necho {name} >> {ran}\nexec {installed} \"$@\"\n");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let server = |name: &str, bin: &str| {
        Mysqld::mariadb(&place, name, Arm::Plain).unwrap().with(Some(base.join(bin)), Vec::new())
    };
    let maria = server("m", "bin");
    for (name, value) in SMALL {
        maria.set(name, value).unwrap();
    }
    maria.install().unwrap();
    maria.start().unwrap();
    maria.restart().unwrap();
    maria.expect("SELECT 1", "1").unwrap();
    let ran = fs::read_to_string(ran).unwrap();
    let count = |name: &str| ran.lines().filter(|line| *line == name).count();
    assert!(count("mariadb-install-db") == 1 && count("mariadbd") >= 3, "{ran}");
    drop(maria);

    fs::remove_file(base.join("sbin/mariadbd")).unwrap();
    let error = server("n", "bin").start().unwrap_err().to_string();
    assert!(error.contains("build/bin/mariadbd is not there"), "{error}");
}

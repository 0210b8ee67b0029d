//! A MariaDB server's life: install, start, every engine, a crash, a clean stop, and who is refused
//! meanwhile.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use tidelock_testkit::maria::{Inserter, contents, installed, search, started};
use tidelock_testkit::marker::Marker;
use tidelock_testkit::pg::mysqld::Mysqld;
use tidelock_testkit::pg::{Arm, Error, Result, Workspace, ensure};

/// The short one: everything that must not break between two changes.
#[test]
fn a_sealed_server_keeps_what_it_acknowledged_and_no_bare_server_reads_or_harms_it() -> Result<()> {
    let place = Workspace::new()?;
    let marker = Marker::new();
    let maria = started(&place, "m", Arm::Sealed, &[("log_bin", "on")])?;
    let text = marker.text();
    maria.sql(&format!(
        "CREATE DATABASE d; USE d;
         CREATE TABLE i (k INT PRIMARY KEY, b TEXT) ENGINE = InnoDB COMMENT '{text}';
         CREATE TABLE a (b TEXT) ENGINE = Aria; CREATE TABLE m (b TEXT) ENGINE = MyISAM;
         CREATE TABLE c (b TEXT NOT NULL) ENGINE = CSV;
         INSERT INTO a VALUES ('{text}'); INSERT INTO m VALUES ('{text}');
         INSERT INTO c VALUES ('{text}');
         FLUSH TABLES"
    ))?;
    let inserter = Inserter::start(&maria, "d.i", 0)?;
    inserter.wait_beyond(50)?;
    maria.kill_nine()?;

    let mut before = contents(maria.dir())?;
    // After a crash every start that fails takes it along, plain servers' too.
    before.remove(&maria.dir().join("ddl_recovery.log"));
    for more in [None, Some(("innodb_force_recovery", "6")), Some(("skip_grant_tables", "ON"))] {
        let bare = Mysqld::mariadb(&place, "bare", Arm::Plain)?.on(maria.dir().to_path_buf());
        if let Some((setting, value)) = more {
            bare.set(setting, value)?;
        }
        let told = bare.start().expect_err("a bare server starts on sealed files").to_string();
        let innodb = "Plugin 'InnoDB' registration as a STORAGE ENGINE failed";
        for reason in ["aria_log_control", innodb, "Aborting"] {
            ensure(told.contains(reason), || format!("{more:?}: no word of {reason}:\n{told}"))?;
        }
        let now = contents(maria.dir())?;
        ensure(now == before, || format!("{more:?}: the bare server has changed files"))?;
    }

    maria.start()?;
    inserter.compare(&maria)?;
    maria.expect("SELECT (SELECT b FROM d.a) = (SELECT b FROM d.c)", "1")?;
    maria.expect("SHOW DATABASES LIKE '%t%d%lock%'", "")?;
    // A server of threads forks never: it learns of a new data key with its next file.
    let tidelock = |words: &[&str]| -> Result<String> {
        let tool = place.tool(place.programs()?.command).args(words);
        Ok(tool.run()?.stdout)
    };
    let dir = maria.dir().display().to_string();
    let current = || -> Result<String> {
        let told = tidelock(&["status", "--json", "-D", &dir])?;
        let told: serde_json::Value = serde_json::from_str(&told).expect("a document");
        let keys = told["unlocked"]["data_keys"].as_array().cloned().unwrap_or_default();
        let current = keys.iter().find(|key| key["state"] == "current").expect("a current key");
        Ok(current["id"].as_str().unwrap_or_default().to_owned())
    };
    let first = current()?;
    tidelock(&["key", "new-data-key", "-D", &dir])?;
    let second = current()?;
    maria.sql("CREATE TABLE d.later (k INT) ENGINE = InnoDB")?;
    let told = tidelock(&["inspect", "--json", &format!("{dir}/d/later.ibd")])?;
    ensure(first != second && told.contains(&second), || told)?;
    maria.stop()?;
    search(&marker, Arm::Sealed, &[maria.dir()]).map(drop)
}

/// Names of the places that are refused, and of that which is taken.
#[test]
#[ignore = "long: make test-full"]
fn a_place_for_rows_outside_the_directory_is_refused_by_name() -> Result<()> {
    let place = Workspace::new()?;
    let maria = installed(&place, "m", Arm::Sealed, &[])?;
    let outside = place.make_dir("outside")?;
    for setting in [
        "tmpdir",
        "innodb_log_group_home_dir",
        "log_bin",
        "innodb_undo_directory",
        "log_basename",
        "log_ddl_recovery",
    ] {
        let value = format!("--{setting}={}/x", outside.display());
        let output = maria.server_tool("mariadbd")?.arg(&value).limit(60).fails()?;
        let text = output.text();
        ensure(output.status.code() == Some(3), || text.clone())?;
        ensure(text.contains(&format!("error: {setting} is")) && text.contains("hint:"), || {
            text.clone()
        })?;
    }
    // As the first program of a container, which hands options on to the server.
    let entry = place.join("entry");
    place.write(&entry, "#!/bin/sh\nexec mariadbd \"$@\"\n")?;
    fs::set_permissions(&entry, fs::Permissions::from_mode(0o755))
        .map_err(Error::io("making a script"))?;
    let output = place
        .tool(&entry)
        .under(Arm::Sealed, maria.dir())
        .arg(format!("--defaults-file={}", place.join("m.cnf").display()))
        .arg(format!("--datadir={}", maria.dir().display()))
        .arg(format!("--log-bin={}/b", outside.display()))
        .limit(60)
        .fails()?;
    ensure(output.text().contains("error: log_bin is"), || output.text())?;
    maria.set("tmpdir", &outside.display().to_string())?;
    let told = maria.start().expect_err("it starts with a tmpdir outside").to_string();
    ensure(told.contains("error: tmpdir is"), || told)?;
    maria.set("tmpdir", &maria.dir().display().to_string())?;
    // A link below the directory leads to another disk, and the files there are sealed.
    let link = maria.dir().join("binlog");
    std::os::unix::fs::symlink(&outside, &link).map_err(Error::io("making a link"))?;
    maria.set("log_bin", &link.join("b").display().to_string())?;
    maria.start()?;
    let marker = Marker::new();
    maria.sql(&format!(
        "CREATE DATABASE d; CREATE TABLE d.t (b TEXT); INSERT INTO d.t VALUES ('{}')",
        marker.text()
    ))?;
    let made = fs::read_dir(&outside).map_err(Error::io("reading the other disk"))?.count();
    ensure(made >= 2, || format!("{made} files of the binary log"))?;
    search(&marker, Arm::Sealed, &[maria.dir(), &outside]).map(drop)
}

/// mariadb-upgrade's statements are plain, and their names are `sql` and six letters. A server that
/// is told to write under such a name is not that.
#[test]
#[ignore = "long: make test-full"]
fn a_log_with_the_name_of_a_plain_file_is_told_and_a_tablespace_is_refused() -> Result<()> {
    let place = Workspace::new()?;
    let maria = installed(&place, "m", Arm::Sealed, &[])?;
    let spaces = "--innodb-data-file-path=ibdata1:12M;sqldata02:12M:autoextend";
    let refused = maria.server_tool("mariadbd")?.arg(spaces).limit(60).fails()?;
    let text = refused.text();
    let named = text.contains("error: innodb_data_file_path is") && text.contains("sqldata02");
    ensure(refused.status.code() == Some(3) && named, || text.clone())?;
    let mut server = maria
        .server_tool("mariadbd")?
        .args(["--general-log=ON", "--general-log-file=sqlbackup", "--log-error=sqlerrors"])
        .limit(300)
        .spawn()?;
    ensure(maria.wait_until_it_answers(&mut server)?, || "it ended".into())?;
    maria.sql("SHUTDOWN")?;
    let told = server.wait()?.text();
    let warned = told.contains("warning: general_log_file is") && !told.contains("log_error is");
    ensure(warned, || told.clone())?;
    // The server adds .err itself.
    for (name, is_sealed) in [("sqlbackup", false), ("sqlerrors.err", true)] {
        let bytes = fs::read(maria.dir().join(name)).map_err(Error::io("reading a log"))?;
        ensure(bytes.starts_with(b"\x89TDLK") == is_sealed, || format!("{name}: {is_sealed}"))?;
    }
    Ok(())
}

/// mariadbd-safe opens the error log before the server does, and its helper writes it.
#[test]
#[ignore = "long: make test-full"]
fn the_error_log_of_mariadbd_safe_is_sealed_below_the_directory() -> Result<()> {
    let place = Workspace::new()?;
    let maria = installed(&place, "m", Arm::Sealed, &[])?;
    let log = maria.dir().join("server.err");
    let mut server = maria
        .server_tool("mariadbd-safe")?
        .arg(format!("--log-error={}", log.display()))
        .limit(300)
        .spawn()?;
    maria.wait_until_it_answers(&mut server)?;
    maria.sql("SHUTDOWN")?;
    let output = server.wait()?;
    ensure(output.status.success(), || output.text())?;
    let bytes = fs::read(&log).map_err(Error::io("reading the log"))?;
    ensure(bytes.starts_with(b"\x89TDLK"), || "the error log is plain".into())?;
    let cat = place.tool(place.programs()?.command).arg("cat").arg(&log).run()?;
    ensure(cat.stdout.contains("ready for connections"), || cat.text())?;
    ensure(cat.stdout.contains("mysqld_safe mysqld from pid file"), || cat.text())
}

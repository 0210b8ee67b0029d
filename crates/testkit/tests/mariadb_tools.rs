//! MariaDB's own tools on sealed directories: backups, installations and upgrades, checks of
//! files; replicas, and the stream that makes one, are in `replicas`.

#[path = "mariadb_tools/replicas.rs"]
mod replicas;

use std::fs;
use std::path::{Path, PathBuf};

use tidelock_testkit::maria::{Inserter, SMALL, contents, installed, search, started};
use tidelock_testkit::marker::Marker;
use tidelock_testkit::pg::mysqld::Mysqld;
use tidelock_testkit::pg::{Arm, Error, Output, Result, Workspace, ensure, skip};
use tidelock_testkit::tools::{Page, Sees};

const TABLES: &str = "d.i, d.a, d.m, d.z";

fn tables(maria: &Mysqld<'_>, marker: &Marker) -> Result<()> {
    let text = marker.text();
    maria.sql(&format!(
        "CREATE DATABASE d; USE d;
         CREATE TABLE i (k INT PRIMARY KEY, b TEXT) ENGINE = InnoDB;
         CREATE TABLE a (k INT PRIMARY KEY, b TEXT) ENGINE = Aria;
         CREATE TABLE m (k INT PRIMARY KEY, b TEXT) ENGINE = MyISAM;
         CREATE TABLE z (k INT PRIMARY KEY, b TEXT) ENGINE = InnoDB PAGE_COMPRESSED = 1;
         INSERT INTO i SELECT seq, CONCAT('{text}', seq) FROM seq_1_to_4000;
         INSERT INTO a SELECT * FROM i; INSERT INTO m SELECT * FROM i; INSERT INTO z SELECT * FROM i"
    ))?;
    Ok(())
}

fn checksums(maria: &Mysqld<'_>) -> Result<String> {
    maria.sql(&format!("CHECKSUM TABLE {TABLES}"))
}

/// mariadb-backup is a package of its own.
fn backup_is_missing() -> bool {
    let missing = !std::path::Path::new("/usr/bin/mariadb-backup").exists();
    if missing {
        skip::missing("mariadb-backup");
    }
    missing
}

/// A directory that waits for a backup; its server has a name of its own.
fn empty<'p>(place: &'p Workspace, name: &str) -> Result<Mysqld<'p>> {
    let maria = Mysqld::mariadb(place, name, Arm::Sealed)?;
    for (name, value) in SMALL {
        maria.set(name, value)?;
    }
    maria.protect()?;
    Ok(maria)
}

/// A page with the words that most commands have.
fn page<'w>(place: &'w Workspace, test: &'static str, maria: &Mysqld<'_>) -> Page<'w> {
    let mut page = Page::new(place, test);
    page.word("DIR", maria.dir().display());
    page.word("SOCKET", maria.socket().display());
    page
}

/// The command with the keys of these servers' directories: a row.
fn by_exec(page: &Page<'_>, keys: &[&Mysqld<'_>], template: &str, result: &str) -> Result<Output> {
    let tool = keys.iter().fold(page.tool(template), |it, one| it.under(Arm::Sealed, one.dir()));
    page.works(tool, Sees::Plain, template, result)
}

/// The command without keys, which fails, and the directory stays as it is: a row.
fn bare(page: &Page<'_>, dir: &Mysqld<'_>, template: &str, said: &str) -> Result<()> {
    let before = contents(dir.dir())?;
    page.fails(page.tool(template), Sees::SealedBytes, template, said)?;
    ensure(contents(dir.dir())? == before, || format!("{template} without keys changes files"))
}

const TAKE: &str =
    "mariadb-backup --backup --socket=SOCKET --user=root --datadir=DIR --target-dir=";

#[test]
#[ignore = "long: make test-full"]
fn full_and_incremental_backups_are_prepared_and_restored_under_other_keys() -> Result<()> {
    if backup_is_missing() {
        return Ok(());
    }
    let place = Workspace::new()?;
    let marker = Marker::new();
    let maria = started(&place, "m", Arm::Sealed, &[("log_bin", "on")])?;
    tables(&maria, &marker)?;
    let [copy, restored, moved] = ["copy", "restored", "moved"].map(|name| empty(&place, name));
    let (copy, restored, moved) = (copy?, restored?, moved?);
    let test = "full_and_incremental_backups_are_prepared_and_restored_under_other_keys";
    let mut page = page(&place, test, &maria);
    page.word("OUT", place.join("out").display());
    page.word("BACKUP", copy.dir().display());
    page.word("NEW", restored.dir().display());

    let outside = format!("{TAKE}OUT");
    let said = "Invalid log header checksum";
    page.fails(page.tool(&outside), Sees::SealedBytes, &outside, said)?;
    ensure(!place.join("out").exists(), || "a backup without keys leaves something".into())?;
    let told = "a **plain** backup; without keys it is prepared, and restored to a stock server";
    by_exec(&page, &[&maria], &outside, told)?;
    starts_plain(&page, &maria)?;

    by_exec(&page, &[&maria, &copy], &format!("{TAKE}BACKUP/full"), "sealed under BACKUP's keys")?;
    maria.sql("UPDATE d.i SET b = REVERSE(b); DELETE FROM d.a WHERE k > 3000; FLUSH TABLES")?;
    // While rows arrive.
    maria.sql("CREATE TABLE d.n (k INT PRIMARY KEY, b TEXT)")?;
    let inserter = Inserter::start(&maria, "d.n", 0)?;
    inserter.wait_beyond(20)?;
    let step = format!("{TAKE}BACKUP/step --incremental-basedir=BACKUP/full");
    by_exec(&page, &[&maria, &copy], &step, "sealed under BACKUP's keys")?;
    let wanted = checksums(&maria)?;
    drop(inserter);

    let prepare = "mariadb-backup --prepare --target-dir=BACKUP/full";
    bare(&page, &copy, prepare, "Found option without preceding group in config file")?;
    by_exec(&page, &[&copy], prepare, "works")?;
    let increment = format!("{prepare} --incremental-dir=BACKUP/step");
    by_exec(&page, &[&copy], &increment, "works")?;
    let away = "mariadb-backup --copy-back --target-dir=BACKUP/full --datadir=OUT";
    page.word("OUT", place.join("away").display());
    page.tool(away).run()?;
    let bytes = |path: PathBuf| fs::read(path).map_err(Error::io("reading a copy"));
    let same = bytes(place.join("away/ibdata1"))? == bytes(copy.dir().join("full/ibdata1"))?;
    ensure(same, || "it copies something else".into())?;
    page.row(Sees::SealedBytes, away, "copies sealed bytes, without the keyring")?;
    let back = "mariadb-backup --copy-back --target-dir=BACKUP/full --datadir=NEW";
    by_exec(&page, &[&copy, &restored], back, "sealed under NEW's keys; the server starts")?;
    restored.start()?;
    ensure(checksums(&restored)? == wanted, || "the restored tables differ".into())?;
    restored.expect("SELECT COUNT(*) = MAX(k) AND COUNT(*) >= 20 FROM d.n", "1")?;

    // One table of the backup, into a server that runs.
    let export = "mariadb-backup --prepare --export --target-dir=BACKUP/full";
    by_exec(&page, &[&copy], export, "works")?;
    restored.sql("DELETE FROM d.i; ALTER TABLE d.i DISCARD TABLESPACE")?;
    let bring = "cp BACKUP/full/d/i.ibd BACKUP/full/d/i.cfg NEW/d";
    let told = "after `--export`: sealed under NEW's keys; `IMPORT TABLESPACE` takes it";
    by_exec(&page, &[&copy, &restored], bring, told)?;
    restored.sql("ALTER TABLE d.i IMPORT TABLESPACE")?;
    ensure(checksums(&restored)? == wanted, || "the imported table differs".into())?;

    page.word("NEW", moved.dir().display());
    let back = "mariadb-backup --move-back --target-dir=BACKUP/full --datadir=NEW";
    let told = "sealed under NEW's keys: it copies, then removes; the server starts";
    by_exec(&page, &[&copy, &moved], back, told)?;
    ensure(!copy.dir().join("full/ibdata1").exists(), || "the backup is still there".into())?;
    moved.start()?;
    ensure(checksums(&moved)? == wanted, || "the moved tables differ".into())?;
    let roots = [maria.dir(), copy.dir(), restored.dir(), moved.dir()];
    search(&marker, Arm::Sealed, &roots).map(drop)
}

/// A plain backup in OUT is prepared and restored without keys, and a stock server has its tables.
fn starts_plain(page: &Page<'_>, maria: &Mysqld<'_>) -> Result<()> {
    let plain = Mysqld::mariadb(maria.workspace(), "plain", Arm::Plain)?;
    for (name, value) in SMALL {
        plain.set(name, value)?;
    }
    page.tool("mariadb-backup --prepare --target-dir=OUT").run()?;
    let to = format!("--datadir={}", plain.dir().display());
    page.tool("mariadb-backup --copy-back --target-dir=OUT").arg(to).run()?;
    plain.start()?;
    ensure(checksums(&plain)? == checksums(maria)?, || "the plain copy differs".into())?;
    plain.stop()
}

/// Rows of a file that LOAD DATA reads: more than one event of a binary log has room for.
const LOADED: u32 = 10_000;

/// Loads rows with the marker; the binary log gets the statement, and the bytes of the file.
fn load(maria: &Mysqld<'_>, table: &str, marker: &Marker) -> Result<()> {
    let (text, place) = (marker.text(), maria.workspace());
    let file = place.join(&format!("{table}.rows"));
    let rows: Vec<String> = (0..LOADED).map(|k| format!("{text}{k}")).collect();
    place.write(&file, &rows.join("\n"))?;
    let statements = format!(
        "SET SESSION binlog_format = STATEMENT;
         LOAD DATA LOCAL INFILE '{}' INTO TABLE {table} (b)",
        file.display()
    );
    let client = maria.client("mariadb")?.arg("--local-infile=1");
    client.stdin(statements).run().map(drop)
}

/// The files of a directory whose path has these letters.
fn named(dir: &Path, letters: &str) -> Result<Vec<PathBuf>> {
    let all = contents(dir)?.into_keys();
    Ok(all.filter(|path| path.to_string_lossy().contains(letters)).collect())
}

/// Searches the files of a server whose path has these letters: sealed, none may have the marker;
/// plain, one must.
fn searched_by_name(maria: &Mysqld<'_>, marker: &Marker, letters: &str) -> Result<()> {
    let seen = marker.search(&named(maria.dir(), letters)?).map_err(Error::io("searching"))?;
    let good = match maria.arm() {
        Arm::Plain => !seen.findings.is_empty(),
        _ => seen.bytes > seen.files * HEADER && seen.findings.is_empty(),
    };
    ensure(good, || format!("{} {letters}: {seen:?}", maria.arm()))
}

/// As the profile has it: a file of this size is empty.
const HEADER: u64 = 16384;

/// What the offline tools say of sealed files with keys, and that they say nothing without.
#[test]
#[ignore = "long: make test-full"]
fn offline_tools_read_sealed_files_with_keys_and_only_then() -> Result<()> {
    let place = Workspace::new()?;
    let marker = Marker::new();
    let maria = started(&place, "m", Arm::Sealed, &[("log_bin", "on"), ("binlog_format", "ROW")])?;
    tables(&maria, &marker)?;
    maria.sql(
        "CREATE TABLE d.l AS SELECT 'told in the binary log' AS b;
         CREATE TABLE d.f (k INT PRIMARY KEY, b TEXT, FULLTEXT (b)) ENGINE = MyISAM;
         INSERT INTO d.f VALUES (1, 'an indexed word'), (2, 'another'), (3, 'third');
         CREATE TABLE d.loaded (b TEXT) ENGINE = InnoDB",
    )?;
    load(&maria, "d.loaded", &marker)?;
    maria.sql("FLUSH TABLES")?;
    let page = page(&place, "offline_tools_read_sealed_files_with_keys_and_only_then", &maria);
    for (template, result) in CLIENTS {
        let output = page.works(page.tool(template), Sees::Plain, template, result)?;
        ensure(!output.stdout.contains("error    :"), || output.text())?;
    }
    maria.stop()?;
    for (template, said, result) in OFFLINE {
        bare(&page, &maria, template, said)?;
        by_exec(&page, &[&maria], template, result)?;
    }
    // These two do not fail: what they print means nothing.
    for (template, read) in [
        ("aria_dump_log -f DIR/aria_log.00000001", "Aria log version"),
        ("myisam_ftdump -c DIR/d/f 1", "indexed"),
    ] {
        let bare = page.tool(template).attempt()?;
        ensure(!bare.text().contains(read), || bare.text())?;
        page.row(Sees::SealedBytes, template, "prints nothing that means anything")?;
        let told = by_exec(&page, &[&maria], template, "works")?;
        ensure(told.stdout.contains(read), || told.text())?;
    }
    let on = |arm: Arm, program: &str| match arm {
        Arm::Sealed => place.tool(program).under(arm, maria.dir()),
        _ => place.tool(program),
    };
    let path = |name: &str| maria.dir().join(name);
    let log = on(Arm::Sealed, "mariadb-binlog").arg("-v").arg(path("binlog.000001")).run()?;
    ensure(log.stdout.contains("told in the binary log"), || log.text())?;
    // It does not like its own doublewrite pages: what it says of the plain bytes, it has to say.
    for file in ["d/i.ibd", "d/z.ibd", "ibdata1"] {
        let opened = place.join("opened");
        let command = place.programs()?.command;
        place.tool(command).arg("cat").arg(path(file)).stdout_to(&opened).run()?;
        let wanted = on(Arm::Plain, "innochecksum").arg(&opened).attempt()?;
        let told = on(Arm::Sealed, "innochecksum").arg(path(file)).attempt()?;
        ensure(told.status == wanted.status && told.text() == wanted.text(), || {
            format!("{file}: {}\nof the plain bytes: {}", told.text(), wanted.text())
        })?;
        ensure(told.status.success() || file == "ibdata1", || told.text())?;
    }
    maria.start()?;
    maria.expect("SELECT COUNT(*) FROM d.m", "4000")?;
    let again = installed(&place, "again", Arm::Sealed, &[])?;
    again.start()?;
    let dump = maria.client("mariadb-dump")?.args(["--databases", "d"]).run()?.stdout;
    again.client("mariadb")?.stdin(dump).run()?;
    ensure(checksums(&again)? == checksums(&maria)?, || "the dump differs".into())?;
    let replayed = installed(&place, "replayed", Arm::Plain, &[])?;
    replayed.start()?;
    // As docs/engines/mariadb.md has it: the client, which has no keys, reads the loaded rows.
    let rows = place.make_dir("replay")?;
    let given = format!("--local-load={}", rows.display());
    let log = on(Arm::Sealed, "mariadb-binlog").arg(given).arg(path("binlog.000001")).run()?.stdout;
    replayed.client("mariadb")?.arg("--local-infile=1").stdin(log).run()?;
    ensure(checksums(&replayed)? == checksums(&maria)?, || "the log played back differs".into())?;
    let loaded = format!("SELECT COUNT(*), SUM(b LIKE '{}%') FROM d.loaded", marker.text());
    replayed.expect(&loaded, &format!("{LOADED}\t{LOADED}"))?;
    let seen = marker.search(&[&rows]).map_err(Error::io("searching the rows"))?;
    ensure(!seen.findings.is_empty(), || "it was not the tool that wrote them".into())?;
    // Without a place they lie in TMPDIR, below the directory.
    searched_by_name(&maria, &marker, "SQL_LOAD_MB-")?;
    search(&marker, Arm::Sealed, &[maria.dir()]).map(drop)
}

/// Programs that ask the server, and what comes of them.
const CLIENTS: [(&str, &str); 3] = [
    (
        "mariadb-check --socket=SOCKET --user=root --all-databases --extended",
        "works: the server reads for it",
    ),
    ("mariadb-upgrade --socket=SOCKET --user=root --force", "works: the server writes for it"),
    ("mariadb-dump --socket=SOCKET --user=root --databases d", "works; its output is plain"),
];

/// Programs that read or write files of a server that does not run: what they say without keys, and
/// what comes of them with keys.
const OFFLINE: [(&str, &str, &str); 9] = [
    ("mariadb-binlog -v DIR/binlog.000001", "File is not a binary log file", "works"),
    ("innochecksum DIR/d/i.ibd", "First page of the tablespace file should be 0", "works"),
    ("aria_chk --datadir=DIR --check DIR/d/a", "is not a Aria table", "works"),
    ("aria_chk --datadir=DIR --recover DIR/d/a", "is not a Aria table", "works"),
    ("aria_read_log -d -h DIR", "File size bigger than expected", "works"),
    ("myisamchk --check DIR/d/m", "is not a MyISAM-table", "works"),
    ("myisamchk --recover DIR/d/m", "is not a MyISAM-table", "works"),
    ("myisampack DIR/d/m", "gave error 130 on open", "works"),
    ("myisamchk --unpack DIR/d/m", "is not a MyISAM-table", "works"),
];

/// mariadb-upgrade goes by the file that its last run has left. The server is of one series only:
/// the file names an older one, and a system table gets the columns that it had there (10.6).
#[test]
#[ignore = "long: make test-full"]
fn an_upgrade_from_an_older_series_changes_sealed_system_tables() -> Result<()> {
    const OLD: &str = "10.6.18-MariaDB";
    const COLUMNS: &str = "SELECT COLUMN_NAME, COLUMN_TYPE FROM information_schema.COLUMNS
         WHERE TABLE_SCHEMA = 'mysql' AND TABLE_NAME = 'column_stats' AND COLUMN_NAME LIKE 'hist%'";
    let place = Workspace::new()?;
    let marker = Marker::new();
    let maria = started(&place, "m", Arm::Sealed, &[])?;
    tables(&maria, &marker)?;
    let wanted = (maria.sql(COLUMNS)?, checksums(&maria)?);
    maria.sql(
        "ALTER TABLE mysql.column_stats MODIFY histogram VARBINARY(255),
         MODIFY hist_type ENUM('SINGLE_PREC_HB', 'DOUBLE_PREC_HB')",
    )?;
    let old = maria.sql(COLUMNS)?;
    ensure(old != wanted.0, || old.clone())?;
    let number = maria.sql("SELECT VERSION()")?;
    let number = number.split('-').next().unwrap_or_default();
    let file = maria.dir().join("mysql_upgrade_info");
    let upgrade = |from: &str| -> Result<Output> {
        place.write(&file, from)?;
        let socket = format!("--socket={}", maria.socket().display());
        place.tool("mariadb-upgrade").args([&*socket, "--user=root"]).limit(300).attempt()
    };
    let told = upgrade(&format!("{number}-MariaDB"))?.text();
    ensure(told.contains("already upgraded") && maria.sql(COLUMNS)? == old, || told.clone())?;
    let done = upgrade(OLD)?;
    let good = done.status.success() && done.text().contains(&format!("detected from {OLD}"));
    ensure(good, || done.text())?;
    let now = (maria.sql(COLUMNS)?, checksums(&maria)?);
    ensure(now == wanted, || format!("{now:?} instead of {wanted:?}"))?;
    let written =
        fs::read_to_string(&file).map_err(Error::io("reading the file of the upgrade"))?;
    ensure(written.starts_with(number), || written.clone())?;
    maria.restart()?;
    maria.expect(COLUMNS, &wanted.0)?;
    maria.stop()?;
    place.tool(place.programs()?.command).args(["verify", "-D"]).arg(maria.dir()).run()?;
    search(&marker, Arm::Sealed, &[maria.dir()]).map(drop)
}

/// Both install into a protected directory: one by `exec`, one that was forgotten.
#[test]
#[ignore = "long: make test-full"]
fn a_server_is_installed_and_started_with_keys_and_refused_without() -> Result<()> {
    let place = Workspace::new()?;
    let test = "a_server_is_installed_and_started_with_keys_and_refused_without";
    let (maria, careless) = (empty(&place, "m")?, empty(&place, "careless")?);
    let mut page = page(&place, test, &maria);
    let install =
        "mariadb-install-db --datadir=DIR --auth-root-authentication-method=normal --skip-test-db";
    page.word("DIR", careless.dir().display());
    page.tool(install).run()?;
    let command = place.programs()?.command;
    let verify = place.tool(&command).arg("verify").arg("-D").arg(careless.dir()).fails()?;
    ensure(verify.text().contains("ibdata1"), || verify.text())?;
    careless.start().err().ok_or_else(|| Error::Unexpected("it starts on plain files".into()))?;
    let told = "**plain** files in an empty protected directory; `tidelock verify` names them, \
                and no server starts with keys";
    page.row(Sees::SealedBytes, install, told)?;
    page.word("DIR", maria.dir().display());
    by_exec(&page, &[&maria], install, "sealed from the first byte")?;
    place.tool(&command).arg("verify").arg("-D").arg(maria.dir()).run()?;
    maria.start()?;
    maria.stop()?;
    let before = contents(maria.dir())?;
    let again = "mariadb-install-db --datadir=DIR";
    page.tool(again).run()?;
    page.row(Sees::SealedBytes, again, "changes nothing where a server was installed")?;
    let said = "File size bigger than expected";
    let start = "mariadbd --no-defaults --datadir=DIR --socket=SOCKET --skip-networking";
    page.fails(page.tool(start), Sees::SealedBytes, start, said)?;
    ensure(contents(maria.dir())? == before, || "a program without keys changes files".into())
}

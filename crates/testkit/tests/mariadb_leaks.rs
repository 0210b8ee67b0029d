//! The leak search: a marker goes through every kind of file of a MariaDB server, also of those
//! that have lost their name, then through none of a sealed server's files.
//!
//! The same run on a plain server is the negative control: there each kind of file has the marker.
//! These kinds never have rows or text of statements: `ib_buffer_pool`, `*.index`,
//! `aria_log_control` and `ddl_recovery.log` (page numbers, names, positions), `tc.log`, process
//! id. What replicas have besides (the relay log, rows of LOAD DATA) is searched in
//! `mariadb_tools`, and what Galera adds in `mariadb_galera`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::thread;
use std::time::{Duration, Instant};

use tidelock_testkit::arms;
use tidelock_testkit::maria::{Nameless, installed, nameless, nameless_below, search};
use tidelock_testkit::marker::Marker;
use tidelock_testkit::pg::mysqld::Mysqld;
use tidelock_testkit::pg::{Arm, Error, Result, Running, Workspace, ensure};

fn a_marker_written_on_every_path_is_found_in_no_file(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let (marker, shared) = (Marker::new(), Marker::new());
    let maria = installed(&place, "m", arm, &SETTINGS)?;
    // The last setting of a place counts: the control, too, has everything below its directory.
    maria.set("tmpdir", &maria.dir().display().to_string())?;
    maria.set("log_error", &maria.dir().join("server.err").display().to_string())?;
    maria.start()?;
    write_everywhere(&maria, &marker)?;
    write_into_the_system_tablespace(&maria, &shared)?;
    let mut shown = search(&marker, arm, &[maria.dir()])?;

    let mut seen = Seen::new(&maria, &marker)?;
    let held = hold_open(&mut seen)?;
    shown.extend(search(&marker, arm, &[maria.dir()])?);
    maria.kill_nine()?;
    drop(held);
    shown.extend(search(&marker, arm, &[maria.dir()])?);
    maria.start()?;
    maria.expect("SELECT COUNT(*) FROM d.i WHERE b LIKE '% changed'", "3000")?;
    maria.expect("SELECT COUNT(*) FROM d.z", "3000")?;
    maria.sql("CHECK TABLE d.a, d.m EXTENDED; REPAIR TABLE d.m; OPTIMIZE TABLE d.i, d.m, d.a")?;
    maria.expect("SELECT COUNT(*) FROM d.m", "2700")?;
    maria.expect("SELECT COUNT(*) FROM d.shared", "3000")?;
    maria.stop()?;
    shown.extend(search(&marker, arm, &[maria.dir()])?);
    search(&shared, arm, &[maria.dir()])?;
    if arm == Arm::Plain {
        ensure(has_rows_of_its_own(&maria, &shared)?, || "no rows in the tablespace".into())?;
        for (begin, end) in KINDS {
            let is_it = |name: &String| name.starts_with(begin) && name.ends_with(end);
            ensure(shown.iter().any(is_it), || {
                format!("no marker in {begin}*{end}, but in {shown:?}")
            })?;
        }
    }
    Ok(())
}
arms!(a_marker_written_on_every_path_is_found_in_no_file: plain, sealed; slow);

const SETTINGS: [(&str, &str); 16] = [
    ("log_bin", "on"),
    ("binlog_format", "MIXED"),
    ("binlog_cache_size", "4K"),
    ("general_log", "ON"),
    ("general_log_file", "general.log"),
    ("slow_query_log", "ON"),
    ("slow_query_log_file", "slow.log"),
    ("long_query_time", "0"),
    // The error log has statements that a binary log of statements is not safe for.
    ("log_warnings", "9"),
    ("tmp_disk_table_size", "1G"),
    ("tmp_memory_table_size", "1K"),
    ("sort_buffer_size", "32K"),
    // Temporary tables of Aria reach their files only when this is full.
    ("aria_pagecache_buffer_size", "128K"),
    ("innodb_sort_buffer_size", "64K"),
    ("innodb_undo_tablespaces", "2"),
    ("plugin_maturity", "experimental"),
];

/// Every kind of file that has a name and can hold rows or text, by the begin and the end of it.
const KINDS: [(&str, &str); 23] = [
    ("binlog.000001", ""),
    ("general.log", ""),
    ("slow.log", ""),
    ("server.err", ""),
    ("i.ibd", ""),
    // Words in lower case, but for a column that tells cases apart.
    ("FTS_", ".ibd"),
    ("p#P#p1.ibd", ""),
    ("a.MAD", ""),
    ("a.MAI", ""),
    ("m.MYD", ""),
    ("m.MYI", ""),
    ("c.CSV", ""),
    ("m.TRG", ""),
    ("v.frm", ""),
    ("comment.frm", ""),
    ("sorted.MAD", ""),
    ("out.txt", ""),
    // Redo, undo, the doublewrite buffer, which lies in the system tablespace, and Aria's log.
    ("ib_logfile0", ""),
    ("undo0", ""),
    ("ibdata1", ""),
    ("aria_log.0000000", ""),
    // Temporary tables of InnoDB, and of Aria.
    ("ibtmp1", ""),
    ("#sql-temptable-", ".MAD"),
];

fn write_everywhere(maria: &Mysqld<'_>, marker: &Marker) -> Result<()> {
    let (text, dir) = (marker.text(), maria.dir().display());
    maria.sql(&format!(
        "CREATE DATABASE d; USE d;
         CREATE TABLE i (k INT AUTO_INCREMENT PRIMARY KEY, b TEXT COLLATE utf8mb3_bin, FULLTEXT (b))
             ENGINE = InnoDB;
         CREATE TABLE p (k INT, b VARCHAR(200)) PARTITION BY HASH (k) PARTITIONS 3;
         CREATE TABLE z (k INT, b TEXT) ROW_FORMAT = COMPRESSED KEY_BLOCK_SIZE = 1;
         CREATE TABLE a (b TEXT, KEY (b(40))) ENGINE = Aria TRANSACTIONAL = 1;
         CREATE TABLE m (b VARCHAR(200), KEY (b)) ENGINE = MyISAM;
         CREATE TABLE c (b VARCHAR(200) NOT NULL, n INT NOT NULL) ENGINE = CSV;
         CREATE TABLE comment (k INT) COMMENT '{text}';
         INSERT INTO i (b) SELECT CONCAT('{text}', seq) FROM seq_1_to_3000;
         INSERT INTO p SELECT k, b FROM i; INSERT INTO z SELECT k, b FROM i;
         INSERT INTO a SELECT b FROM i; INSERT INTO m SELECT b FROM i;
         INSERT INTO c SELECT b, k FROM i;
         UPDATE i SET b = CONCAT(b, ' changed'); DELETE FROM m WHERE b LIKE '%7';
         CREATE TRIGGER g BEFORE INSERT ON m FOR EACH ROW SET NEW.b = CONCAT(NEW.b, '{text}');
         CREATE VIEW v AS SELECT '{text}' AS b;
         CREATE TABLE sorted ENGINE = Aria AS SELECT b FROM p UNION SELECT b FROM a ORDER BY b DESC;
         SET SESSION binlog_format = STATEMENT;
         INSERT INTO a VALUES (CONCAT('{text}', UUID())); INSERT INTO a VALUES ('{text}');
         SET SESSION binlog_format = MIXED;
         SELECT COUNT(*) FROM (SELECT b, COUNT(*) FROM p GROUP BY b ORDER BY b LIMIT 5000) x;
         ALTER TABLE p ADD KEY (b), ALGORITHM = INPLACE;
         ALTER TABLE p ADD COLUMN n INT, ALGORITHM = INSTANT;
         ALTER TABLE p MODIFY k BIGINT, ALGORITHM = COPY;
         SELECT b INTO OUTFILE '{dir}/out.txt' FROM a LIMIT 10;
         CREATE TABLE large (k INT PRIMARY KEY, b VARCHAR(400)) ENGINE = InnoDB;
         INSERT INTO large SELECT seq, CONCAT(REPEAT('{text}', 8), seq) FROM seq_1_to_100000;
         CREATE TABLE parent (b VARCHAR(100) PRIMARY KEY) ENGINE = InnoDB;
         CREATE TABLE child (b VARCHAR(100), FOREIGN KEY (b) REFERENCES parent (b)) ENGINE = InnoDB;
         FLUSH LOGS; FLUSH TABLES"
    ))?;
    Ok(())
}

/// A table without a file of its own.
fn write_into_the_system_tablespace(maria: &Mysqld<'_>, marker: &Marker) -> Result<()> {
    maria.sql(&format!(
        "USE d; SET GLOBAL innodb_file_per_table = OFF;
         CREATE TABLE d.shared (b TEXT) ENGINE = InnoDB;
         SET GLOBAL innodb_file_per_table = ON;
         INSERT INTO d.shared SELECT CONCAT('{}', seq) FROM seq_1_to_3000",
        marker.text()
    ))?;
    let own = maria.dir().join("d/shared.ibd");
    ensure(!own.exists(), || format!("{} is there", own.display()))
}

/// Whether the system tablespace of a plain server has the marker outside of the doublewrite
/// buffer, through which the pages of all tables go: pages 64 to 191, of 16 KiB (`buf0dblwr.cc`).
fn has_rows_of_its_own(maria: &Mysqld<'_>, marker: &Marker) -> Result<bool> {
    const MIB: usize = 1 << 20;
    let file = maria.dir().join("ibdata1");
    let bytes = fs::read(&file).map_err(Error::io("reading the system tablespace"))?;
    let has_it = |part: &[u8]| String::from_utf8_lossy(part).contains(marker.text());
    Ok(has_it(&bytes[..MIB]) || has_it(&bytes[3 * MIB..]))
}

/// Sorts and temporary tables go where `tmpdir` leads: behind a link below the directory, and to
/// another protected directory of the run.
fn a_tmpdir_elsewhere_has_the_marker_in_no_file(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let (marker, far) = (Marker::new(), place.make_dir("far")?);
    let small = [("sort_buffer_size", "32K"), ("aria_pagecache_buffer_size", "128K")];
    let maria = installed(&place, "m", arm, &small)?;
    let second = Mysqld::mariadb(&place, "second", arm)?;
    match arm {
        Arm::Sealed => second.protect()?,
        _ => drop(place.make_dir("second")?),
    }
    let link = maria.dir().join("far");
    symlink(&far, &link).map_err(Error::io("making a link"))?;
    for (named, real) in [(&*link, &*far), (second.dir(), second.dir())] {
        maria.set("tmpdir", &named.display().to_string())?;
        let mut server =
            maria.server_tool("mariadbd")?.under(arm, second.dir()).limit(300).spawn()?;
        if !maria.wait_until_it_answers(&mut server)? {
            return Err(Error::Unexpected(server.wait()?.text()));
        }
        maria.sql(&format!(
            "CREATE OR REPLACE DATABASE d; USE d; CREATE TABLE d.t (b VARCHAR(200));
             INSERT INTO d.t SELECT CONCAT('{}', seq) FROM seq_1_to_10000",
            marker.text()
        ))?;
        let query = "CREATE TEMPORARY TABLE d.held ENGINE = Aria AS SELECT b FROM d.t;
                     SELECT b, SLEEP(600) FROM d.t ORDER BY b";
        let _held = sleeping(&maria, query, 1)?;
        let sorts = nameless_below(server.id(), real, &marker)?;
        ensure(sorts.iter().any(|file| is_of_use(arm, file)), || format!("no sort: {sorts:?}"))?;
        let seen = marker.search(&[real]).map_err(Error::io("searching the other place"))?;
        let good = match arm {
            Arm::Plain => !seen.findings.is_empty(),
            _ => seen.bytes > seen.files * HEADER && seen.findings.is_empty(),
        };
        ensure(good, || format!("{}: {seen:?}", named.display()))?;
        let leak = sorts.iter().find(|file| arm == Arm::Sealed && file.has_marker);
        ensure(leak.is_none(), || format!("{}: {leak:?}", named.display()))?;
        search(&marker, arm, &[maria.dir()])?;
        maria.sql("SHUTDOWN")?;
        let ended = server.wait()?;
        ensure(ended.status.success(), || ended.text())?;
    }
    Ok(())
}
arms!(a_tmpdir_elsewhere_has_the_marker_in_no_file: plain, sealed; slow);

/// Sessions that keep temporary tables and files without a name while they are searched.
fn hold_open(seen: &mut Seen<'_>) -> Result<Vec<Running>> {
    let (maria, text) = (seen.maria, seen.marker.text());
    // The second report writes out what the first has left in a buffer.
    for _ in 0..2 {
        let refused = maria.sql(&format!("INSERT INTO d.child VALUES ('{text}')"));
        ensure(refused.is_err(), || "a child without its parent".into())?;
    }
    seen.more("InnoDB's report of a foreign key")?;

    let mut held = Vec::new();
    held.push(sleeping(maria, "SELECT b, SLEEP(600) FROM d.p IGNORE KEY (b) ORDER BY b", 1)?);
    seen.more("a sort")?;
    let query = format!(
        "USE d; BEGIN; INSERT INTO i (b) SELECT CONCAT('{text}', seq) FROM seq_1_to_3000;
         SELECT SLEEP(600)"
    );
    held.push(sleeping(maria, &query, 2)?);
    seen.more("a transaction's part of the binary log")?;
    // More than the buffer pool has room for.
    let query = "CREATE TEMPORARY TABLE d.t1 ENGINE = InnoDB AS SELECT b FROM d.large;
                 CREATE TEMPORARY TABLE d.t2 ENGINE = Aria AS SELECT b FROM d.large LIMIT 10000;
                 SELECT SLEEP(600)";
    held.push(sleeping(maria, query, 3)?);

    // An index is built by merging runs, and the server is killed in it or soon after. The log of
    // what others change meanwhile cannot be held: a plain server had nothing of it in a file while
    // their transaction was open.
    let mut builder = client(maria, "ALTER TABLE d.large ADD KEY (b), ALGORITHM = INPLACE")?;
    while seen.more("runs that are merged").is_err() {
        ensure(builder.runs(), || "no run of the index was seen".into())?;
    }
    held.push(builder);
    Ok(held)
}

/// Files of a running server that have no name any more, and are of use to the search: they have
/// the marker in the control, and bytes under the library.
struct Seen<'a> {
    maria: &'a Mysqld<'a>,
    marker: &'a Marker,
    nameless: BTreeSet<u64>,
}

impl<'a> Seen<'a> {
    fn new(maria: &'a Mysqld<'a>, marker: &'a Marker) -> Result<Self> {
        let mut new = Self { maria, marker, nameless: BTreeSet::new() };
        new.nameless = new.look()?;
        Ok(new)
    }

    fn look(&self) -> Result<BTreeSet<u64>> {
        let all = nameless(self.maria, self.marker)?;
        let arm = self.maria.arm();
        let leak = all.iter().find(|file| arm == Arm::Sealed && file.has_marker);
        ensure(leak.is_none(), || format!("{leak:?}"))?;
        let of_use = all.iter().filter(|file| is_of_use(arm, file));
        Ok(of_use.map(|file| file.number).collect())
    }

    /// Searches again; there has to be one more.
    fn more(&mut self, what: &str) -> Result<()> {
        let now = self.look()?;
        ensure(!now.is_subset(&self.nameless), || format!("no file without a name of {what}"))?;
        self.nameless.extend(now);
        Ok(())
    }
}

/// In the control it has the marker; under the library it has bytes.
fn is_of_use(arm: Arm, file: &Nameless) -> bool {
    match arm {
        Arm::Plain => file.has_marker,
        _ => file.len > HEADER,
    }
}

/// As the profile has it: a file of this size is empty.
const HEADER: u64 = 16384;

/// A client whose last statement sleeps, together with `count - 1` others.
fn sleeping(maria: &Mysqld<'_>, statements: &str, count: usize) -> Result<Running> {
    const QUERY: &str =
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE = 'User sleep'";
    let mut client = client(maria, statements)?;
    let begin = Instant::now();
    while maria.sql(QUERY)? != count.to_string() {
        let goes_on = client.runs() && begin.elapsed() < Duration::from_secs(120);
        ensure(goes_on, || format!("it does not get to its sleep: {statements}"))?;
        thread::sleep(Duration::from_millis(20));
    }
    Ok(client)
}

fn client(maria: &Mysqld<'_>, statements: &str) -> Result<Running> {
    maria.client("mariadb")?.arg("--batch").stdin(statements).limit(600).spawn()
}

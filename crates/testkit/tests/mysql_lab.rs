//! The private MySQL servers that the lab measures: their life, their death, and whether their own
//! encryption encrypts.

use tidelock_testkit::marker::Marker;
use tidelock_testkit::mysql::{Install, numbers};
use tidelock_testkit::mysqls;
use tidelock_testkit::pg::mysqld::{Brand, Mysqld, own_is_possible};
use tidelock_testkit::pg::{Arm, Error, Result, Workspace, ensure};

/// Small, and quick on a busy disk: nothing here outlives the machine, so nothing needs an fsync.
const SMALL: [(&str, &str); 6] = [
    ("innodb_buffer_pool_size", "32M"),
    ("loose_innodb_redo_log_capacity", "64M"),
    ("loose_innodb_log_file_size", "4M"),
    ("innodb_flush_method", "nosync"),
    ("log_bin", "off"),
    ("cte_max_recursion_depth", "1000000"),
];

fn a_server_lives_writes_out_and_survives_kill_nine(install: &Install) -> Result<()> {
    let place = Workspace::new()?;
    let mysqld = server(&place, install, "m")?.installed(&SMALL)?;
    ensure(mysqld.process().is_err(), || "it runs".into())?;
    mysqld.start()?;
    let own = "SELECT CURRENT_USER(), @@skip_networking, @@log_bin";
    mysqld.expect(own, "root@localhost\t1\t0")?;
    mysqld.empty_binary_log()?;
    mysqld.set("log_bin", "on")?;
    mysqld.restart()?;

    let set = "SELECT @@innodb_max_dirty_pages_pct_lwm, @@innodb_max_dirty_pages_pct,
               @@innodb_io_capacity, @@innodb_io_capacity_max";
    let before = mysqld.sql(set)?;
    mysqld.sql(&format!(
        "CREATE DATABASE d; CREATE TABLE d.t (a INT, b CHAR(200));
         INSERT INTO d.t SELECT n, 'x' FROM {}; FLUSH BINARY LOGS",
        numbers(20_000)
    ))?;
    mysqld.write_out()?;
    // Hundreds were changed; the server goes on with work of its own.
    let told = mysqld.sql("SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_pages_dirty'")?;
    let left = told.split_once('\t').and_then(|(_, pages)| pages.parse::<u32>().ok());
    ensure(left.is_some_and(|pages| pages < 50), || told)?;
    mysqld.expect(set, &before)?;

    let logs = || mysqld.sql("SHOW BINARY LOGS");
    ensure(logs()?.lines().count() > 1, || "there is no second binary log".into())?;
    mysqld.empty_binary_log()?;
    let left = logs()?;
    ensure(left.starts_with("binlog.000001\t") && left.lines().count() == 1, || left)?;

    mysqld.sql("INSERT INTO d.t VALUES (0, 'last')")?;
    mysqld.kill_nine()?;
    mysqld.start()?;
    mysqld.expect("SELECT COUNT(*), SUM(a) FROM d.t", "20001\t200010000")?;
    mysqld.stop()?;
    ensure(!mysqld.socket().exists(), || "its socket is left".into())
}
mysqls!(a_server_lives_writes_out_and_survives_kill_nine);

fn a_tree_without_the_component_says_so(install: &Install) -> Result<()> {
    let bin = install.server().parent();
    let why = own_is_possible(Brand::MySql, bin).expect_err("8.0.15 encrypts by itself");
    ensure(why.contains("no component_keyring_file.so"), || why)
}
mysqls!(a_tree_without_the_component_says_so: upstream);

/// The second opinion: what the plain server shows, this one does not.
fn its_own_encryption_leaves_no_row_in_any_file(install: &Install) -> Result<()> {
    own_is_possible(Brand::MySql, install.server().parent()).map_err(Error::Unexpected)?;
    let place = Workspace::new()?;
    let marker = Marker::new();
    let plain = server(&place, install, "plain")?;
    let shown = holding(&marker, &with_markers(plain, &marker)?)?;
    for name in ["t.ibd", "#ib_redo", "binlog.0", "undo_00"] {
        let has = shown.iter().any(|file| file.starts_with(name));
        ensure(has, || format!("{name} of the plain server shows nothing: {shown:?}"))?;
    }
    let own = server(&place, install, "own")?.encrypting_itself()?;
    let own = with_markers(own, &marker)?;
    let shown = holding(&marker, &own)?;
    ensure(shown.is_empty(), || format!("its own encryption leaves rows in {shown:?}"))?;
    own.start()?;
    own.expect(
        "SELECT encryption FROM information_schema.innodb_tablespaces WHERE name = 'd/t'",
        "Y",
    )
}
mysqls!(its_own_encryption_leaves_no_row_in_any_file: debian);

fn server<'p>(place: &'p Workspace, install: &Install, name: &str) -> Result<Mysqld<'p>> {
    let bin = install.server().parent().map(Into::into);
    Ok(Mysqld::mysql(place, name, Arm::Plain)?.with(bin, Vec::new()))
}

/// A server that was stopped after it wrote the marker, and wrote over it.
fn with_markers<'p>(mysqld: Mysqld<'p>, marker: &Marker) -> Result<Mysqld<'p>> {
    let mysqld = mysqld.installed(&SMALL)?;
    mysqld.set("log_bin", "on")?;
    mysqld.start()?;
    let text = marker.text();
    mysqld.sql(&format!(
        "CREATE DATABASE d; CREATE TABLE d.t (a INT PRIMARY KEY, b VARCHAR(200));
         INSERT INTO d.t VALUES (1, '{text}');
         UPDATE d.t SET b = '{text}, changed'"
    ))?;
    mysqld.stop()?;
    Ok(mysqld)
}

/// Names of the files of a data directory that have the marker.
fn holding(marker: &Marker, mysqld: &Mysqld<'_>) -> Result<Vec<String>> {
    let seen = marker.search(&[mysqld.dir()]).map_err(Error::io("searching"))?;
    ensure(seen.files > 20, || format!("only {} files were searched", seen.files))?;
    let name = |path: &std::path::Path| Some(path.file_name()?.to_string_lossy().into_owned());
    Ok(seen.findings.iter().filter_map(|found| name(&found.path)).collect())
}

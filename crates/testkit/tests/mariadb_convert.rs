//! An existing MariaDB server is sealed in place, and made plain again.

use tidelock_testkit::maria::{SMALL, installed, search};
use tidelock_testkit::marker::Marker;
use tidelock_testkit::pg::mysqld::Mysqld;
use tidelock_testkit::pg::{Arm, Result, Workspace, ensure};

#[test]
#[ignore = "long: make test-full"]
fn an_existing_server_is_sealed_and_made_plain_again() -> Result<()> {
    let place = Workspace::new()?;
    let marker = Marker::new();
    let text = marker.text();
    let plain = installed(&place, "m", Arm::Plain, &[("log_bin", "on")])?;
    // The same directory, by the other arm.
    let sealed = Mysqld::mariadb(&place, "sealed", Arm::Sealed)?.on(plain.dir().to_path_buf());
    for (name, value) in SMALL.iter().chain(&[("log_bin", "on")]) {
        sealed.set(name, value)?;
    }
    plain.start()?;
    plain.sql(&format!(
        "CREATE DATABASE d; USE d; CREATE TABLE i (b TEXT) ENGINE = InnoDB;
         CREATE TABLE a (b TEXT) ENGINE = Aria; CREATE TABLE m (b TEXT) ENGINE = MyISAM;
         INSERT INTO i SELECT CONCAT('{text}', seq) FROM seq_1_to_2000;
         INSERT INTO a SELECT b FROM i; INSERT INTO m SELECT b FROM i"
    ))?;
    let sums = "CHECKSUM TABLE d.i, d.a, d.m";
    let wanted = plain.sql(sums)?;
    let key = format!("file:{}", place.join("home/m.key").display());
    let command = place.programs()?.command;
    let tidelock = |what: &str| place.tool(&command).arg(what).arg(plain.dir());
    let encrypt = || tidelock("encrypt").args(["--no-recovery", "--provider", &*key]);
    let refused = encrypt().fails()?;
    ensure(refused.text().contains("a server runs on"), || refused.text())?;
    plain.kill_nine()?;
    let refused = encrypt().fails()?;
    ensure(refused.text().contains("was not stopped cleanly"), || refused.text())?;
    plain.start()?;
    plain.stop()?;

    encrypt().run()?;
    search(&marker, Arm::Sealed, &[plain.dir()])?;
    let told = plain.start().expect_err("a bare server starts").to_string();
    ensure(told.contains("Invalid log header checksum"), || told)?;
    sealed.start()?;
    let status = place.tool(&command).args(["status", "-D"]).arg(plain.dir()).run()?;
    ensure(status.stdout.contains("the library is loaded"), || status.text())?;
    ensure(sealed.sql(sums)? == wanted, || "the sealed tables differ".into())?;
    sealed.sql("INSERT INTO d.i VALUES ('more'); DELETE FROM d.i WHERE b = 'more'")?;
    sealed.stop()?;

    tidelock("decrypt").run()?;
    search(&marker, Arm::Plain, &[plain.dir()])?;
    plain.start()?;
    ensure(plain.sql(sums)? == wanted, || "the tables that are plain again differ".into())?;
    plain.stop()
}

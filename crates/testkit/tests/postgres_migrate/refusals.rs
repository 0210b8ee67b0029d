//! What a migration refuses, whom it does not trust, and what it takes back where.

use std::fs;

use tidelock_testkit::pg::{Arm, Cluster, Error, Result, Workspace, ensure};

use super::{migrate, number};

/// A user who may make functions, casts and tables has none of it called by a superuser, and no
/// name of his ends a statement or reaches psql as a command.
#[test]
fn what_users_of_the_source_have_made_is_not_run_by_a_migration() -> Result<()> {
    const MADE: &str = r#"
        CREATE TABLE ran (what text);
        CREATE FUNCTION public.pg_relation_size(oid) RETURNS bigint LANGUAGE plpgsql AS
            $$BEGIN INSERT INTO public.ran VALUES ('size'); RETURN 0; END$$;
        CREATE UNLOGGED TABLE quick (a int);
        CREATE FUNCTION public.hashtextextended(text, integer) RETURNS bigint LANGUAGE plpgsql AS
            $$BEGIN INSERT INTO public.ran VALUES ('hash'); RETURN 0; END$$;
        CREATE TABLE mine (a int);
        INSERT INTO mine VALUES (1);
        CREATE FUNCTION own(mine) RETURNS text LANGUAGE plpgsql AS
            $$BEGIN INSERT INTO public.ran VALUES ('cast'); RETURN ''; END$$;
        CREATE CAST (mine AS text) WITH FUNCTION own(mine);
        CREATE TABLE "a\'b" ();
        ALTER DATABASE postgres SET search_path = public, pg_catalog;
        ALTER DATABASE postgres SET standard_conforming_strings = off;"#;
    let place = Workspace::new()?;
    let from = Cluster::started(&place, "from", Arm::Plain)?;
    let to = Cluster::at(&place, "to", Arm::Sealed)?;
    let ran = from.dir().join("ran");
    let table = format!(r"$lock$\! touch {} #", ran.display());
    // A name has no more bytes.
    ensure(table.len() < 64, || format!("{table} is too long"))?;
    from.sql(&format!(r#"CREATE TABLE "{table}" ()"#))?;
    from.sql(MADE)?;
    let output = migrate(&place, from.dir(), to.dir(), &["--check", "sums", "--yes"])?.run()?;
    ensure(output.stdout.contains("4 tables, 1 rows"), || output.text())?;
    from.expect("SELECT count(*) FROM ran", "0")?;
    ensure(!ran.exists(), || "a command was run".into())?;
    migrate(&place, from.dir(), to.dir(), &["--abort"])?.run().map(drop)
}

#[test]
fn what_stands_in_the_way_is_refused_with_the_line_to_change() -> Result<()> {
    let place = Workspace::new()?;
    let from = Cluster::new(&place, "from", Arm::Plain)?;
    let to = place.join("to");
    let refused = |said: &str, hint: &str| -> Result<()> {
        let output = migrate(&place, from.dir(), &to, &["--yes"])?.fails()?;
        ensure(output.status.code() == Some(3), || output.text())?;
        ensure(output.stderr.contains(said) && output.stderr.contains(hint), || {
            format!("{said}: {}", output.text())
        })?;
        ensure(!to.exists(), || "something was made".into())
    };
    // One that has run tells where its programs are.
    from.start()?;
    from.stop("fast")?;
    refused("no server runs", "start it")?;
    from.set("wal_level", "minimal")?;
    from.set("max_wal_senders", "0")?;
    from.start()?;
    refused("wal_level is minimal", "wal_level = 'replica'")?;
    refused("max_wal_senders is 0", "max_wal_senders = 10")?;
    from.set("wal_level", "replica")?;
    from.set("max_wal_senders", "4")?;
    from.set("max_replication_slots", "1")?;
    from.restart()?;
    from.sql("SELECT pg_create_physical_replication_slot('other')")?;
    refused("max_replication_slots is 1", "max_replication_slots = 11")?;
    refused("replication slot other", "--leave-behind")?;
    from.sql("SELECT pg_drop_replication_slot('other')")?;
    from.sql("ALTER SYSTEM SET synchronous_standby_names = '*'; ALTER SYSTEM SET synchronous_commit = 'local'; SELECT pg_reload_conf()")?;
    from.wait_for("SHOW synchronous_standby_names", "*")?;
    refused("synchronous_standby_names is *", "name the standbys")?;
    from.sql("ALTER SYSTEM RESET ALL; SELECT pg_reload_conf()")?;
    let hba = from.dir().join("pg_hba.conf");
    let lines = fs::read_to_string(&hba).map_err(Error::io("reading pg_hba.conf"))?;
    let without: Vec<&str> = lines.lines().filter(|line| !line.contains("replication")).collect();
    place.write(&hba, &without.join("\n"))?;
    from.sql("SELECT pg_reload_conf()")?;
    from.wait_for("SHOW synchronous_standby_names", "")?;
    refused("refuses a connection for replication", "local replication postgres peer")?;
    place.write(&hba, &lines)?;
    from.sql("SELECT pg_reload_conf()")?;
    let space = place.make_dir("space")?;
    from.sql(&format!("CREATE TABLESPACE s LOCATION '{}'", space.display()))?;
    refused("has no new place", "-T ")?;
    let patronis = from.dir().join("patroni.dynamic.json");
    place.write(&patronis, "{}")?;
    refused("Patroni has the source", "auto_init")?;
    fs::remove_file(&patronis).map_err(Error::io("removing"))?;
    from.sql("DROP TABLESPACE s")?;
    // A standby has no rows of theirs.
    from.sql("CREATE UNLOGGED TABLE quick AS SELECT 1 AS a; CREATE UNLOGGED TABLE none (a int)")?;
    let one = "1 unlogged table or sequence of the database postgres would be empty";
    refused(one, "--leave-behind")?;
    from.sql("DROP TABLE quick")?;
    if number(&from.sql("SHOW server_version_num")?)? >= 150_000 {
        from.sql("CREATE UNLOGGED SEQUENCE counted; SELECT nextval('counted')")?;
        refused(one, "--leave-behind")?;
        from.sql("DROP SEQUENCE counted")?;
    }
    from.sql("CREATE DATABASE shut")?;
    from.sql("ALTER DATABASE shut ALLOW_CONNECTIONS false")?;
    refused("the database shut lets nobody in", "ALLOW_CONNECTIONS true")?;
    from.sql("DROP DATABASE shut")?;
    place.make_dir("to")?;
    place.write(&to.join("file"), "")?;
    let output = migrate(&place, from.dir(), &to, &["--yes"])?.fails()?;
    ensure(output.stderr.contains("is not empty"), || output.text())?;
    fs::remove_dir_all(&to).map_err(Error::io("removing"))?;
    let output = migrate(&place, from.dir(), &to, &[])?.fails()?;
    ensure(
        output.stderr.contains("--yes") && output.stdout.contains("protected, with new keys"),
        || output.text(),
    )?;
    from.expect("SELECT count(*) FROM pg_replication_slots", "0")
}

/// The slot keeps WAL until the disk is full, and another server may answer at the port that the
/// source had.
#[test]
fn abort_drops_the_slot_at_the_source_whatever_its_port_is_by_now() -> Result<()> {
    let place = Workspace::new()?;
    let from = Cluster::started(&place, "from", Arm::Plain)?;
    let to = Cluster::at(&place, "to", Arm::Sealed)?;
    migrate(&place, from.dir(), to.dir(), &["--check", "none", "--yes"])?.run()?;
    from.set("port", "5433")?;
    from.restart()?;
    let other = Cluster::new(&place, "other", Arm::Plain)?;
    other.set("unix_socket_directories", &from.socket_dir().display().to_string())?;
    other.start()?;
    let slots = "SELECT count(*) FROM pg_replication_slots";
    // At the old port.
    from.expect(slots, "0")?;
    let output = migrate(&place, from.dir(), to.dir(), &["--abort"])?.run()?;
    ensure(output.stdout.contains("as before"), || output.text())?;
    other.stop("fast")?;
    from.set("port", "5432")?;
    from.restart()?;
    from.expect(slots, "0")?;
    ensure(!place.join("to.tidelock-migration").exists(), || "the record stays".into())
}

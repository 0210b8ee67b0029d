//! What SQL makes the server do with files: spills, large objects, copies of databases, COPY,
//! tablespaces, logical decoding, extensions, JIT.

use std::fs;

use tidelock_testkit::arms;
use tidelock_testkit::pg::{Arm, Cluster, Error, Result, Workspace, ensure};

fn sorts_and_hash_joins_that_spill_give_the_same_answer(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let cluster = Cluster::started(&place, "main", arm)?;
    cluster.sql(
        "CREATE TABLE t AS SELECT g AS a, md5(g::text) AS b FROM generate_series(1, \
                 60000) g; ANALYZE t",
    )?;
    let answers = |memory: &str, more: &str| {
        cluster.sql(&format!(
            "SET work_mem = '{memory}'; SET log_temp_files = 0; {more}
             SELECT md5(string_agg(b, ',')) FROM (SELECT b FROM t ORDER BY b) s;
             SELECT count(*), sum(x.a) FROM t x JOIN t y ON x.b = y.b;
             SELECT count(*) FROM (SELECT DISTINCT b FROM t UNION SELECT b || 'x' FROM t) u;
             SELECT md5(string_agg(c::text, ',' ORDER BY b)) FROM (SELECT b, count(*) OVER (ORDER BY b) c FROM t) w;
             BEGIN; DECLARE c SCROLL CURSOR WITH HOLD FOR SELECT b FROM t ORDER BY a; COMMIT;
             FETCH LAST FROM c; FETCH ABSOLUTE 77 FROM c; CLOSE c"
        ))
    };
    let in_memory = answers("256MB", "")?;
    let parallel = "SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET \
                    parallel_tuple_cost = 0;";
    for more in ["", "SET enable_hashjoin = off;", "SET enable_mergejoin = off;", parallel] {
        let spilled = answers("64kB", more)?;
        ensure(spilled == in_memory, || format!("{more} gave {spilled}, not {in_memory}"))?;
    }
    // A backend reports what it has done when it ends, after its client.
    let spilled = "SELECT temp_files > 10 FROM pg_stat_database WHERE datname = 'postgres'";
    cluster.wait_for(spilled, "t")
}
arms!(sorts_and_hash_joins_that_spill_give_the_same_answer: plain, sealed);

fn temporary_tables_large_objects_and_vacuum_full(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let cluster = Cluster::new(&place, "main", arm)?;
    cluster.set("temp_buffers", "800kB")?;
    cluster.start()?;
    let answer = cluster.sql(
        "CREATE TEMP TABLE tt AS SELECT g, repeat(md5(g::text), 20) b FROM generate_series(1, \
         20000) g;
         UPDATE tt SET b = b || 'x' WHERE g % 3 = 0; SELECT count(*), sum(length(b)) FROM tt",
    )?;
    ensure(answer == "20000|12806666", || answer.clone())?;
    let source = place.join("object");
    place.write(&source, &"large object ".repeat(100_000))?;
    let (from, to) = (source.display(), place.join("home/object.out"));
    cluster.sql(&format!(
        "SELECT lo_import('{from}', 4711); SELECT lo_put(4711, 1000000, 'changed')"
    ))?;
    cluster.sql(&format!("SELECT lo_export(4711, '{}')", to.display()))?;
    cluster.expect(
        "SELECT length(lo_get(4711)), convert_from(lo_get(4711, 999998, 11), 'UTF8')",
        "1300000| lchangedje",
    )?;
    cluster.sql(
        "CREATE TABLE v AS SELECT g, repeat('v', 500) b FROM generate_series(1, 20000) g;
         CREATE INDEX vi ON v (g); DELETE FROM v WHERE g % 10 <> 0; VACUUM FULL v; CLUSTER v USING vi;
         REINDEX TABLE CONCURRENTLY v; VACUUM (FREEZE) v; ALTER TABLE v SET UNLOGGED; ALTER TABLE v SET LOGGED",
    )?;
    cluster.expect("SELECT count(*), pg_relation_size('v') < 2000000 FROM v", "2000|t")?;
    cluster.sql("TRUNCATE v; INSERT INTO v VALUES (1, 'again')")?;
    cluster.restart()?;
    cluster.expect("SELECT b FROM v", "again")
}
arms!(temporary_tables_large_objects_and_vacuum_full: plain, sealed);

fn databases_are_created_with_both_strategies_and_dropped(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let cluster = Cluster::started(&place, "main", arm)?;
    cluster.sql("CREATE DATABASE source")?;
    cluster.sql_in(
        "source",
        "CREATE TABLE t AS SELECT g FROM generate_series(1, 30000) g; CREATE INDEX ON t (g)",
    )?;
    for strategy in ["wal_log", "file_copy"] {
        cluster.sql(&format!("CREATE DATABASE {strategy} TEMPLATE source STRATEGY {strategy}"))?;
        let count = cluster.sql_in(strategy, "SELECT count(*) FROM t WHERE g > 10")?;
        ensure(count == "29990", || format!("{strategy}: {count}"))?;
    }
    cluster.kill_nine()?;
    cluster.start()?;
    for strategy in ["wal_log", "file_copy"] {
        let count = cluster.sql_in(strategy, "SELECT count(*) FROM t; INSERT INTO t VALUES (0)")?;
        ensure(count == "30000", || format!("{strategy} after a crash: {count}"))?;
    }
    let space = place.make_dir("space")?;
    cluster.sql(&format!(
        "CREATE TABLESPACE s LOCATION '{}'; ALTER DATABASE file_copy SET TABLESPACE s",
        space.display()
    ))?;
    cluster.expect("SELECT count(*) FROM pg_tablespace", "3")?;
    cluster.sql("DROP DATABASE wal_log; DROP DATABASE file_copy; DROP TABLESPACE s").map(drop)
}
arms!(databases_are_created_with_both_strategies_and_dropped: plain, sealed);

fn copy_to_and_from_files_and_programs(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let cluster = Cluster::started(&place, "main", arm)?;
    let outside = place.make_dir("outside")?;
    let inside = cluster.dir().join("copied");
    cluster.sql(
        "CREATE TABLE t AS SELECT g a, md5(g::text) b FROM generate_series(1, 20000) g; \
                 CREATE TABLE u (LIKE t)",
    )?;
    let check = "SELECT count(*), count(DISTINCT b) FROM u";
    for file in [outside.join("file"), inside] {
        for format in ["text", "csv", "binary"] {
            let name = file.display();
            cluster.sql(&format!(
                "COPY t TO '{name}' (FORMAT {format}); TRUNCATE u; COPY u FROM \
                                  '{name}' (FORMAT {format})"
            ))?;
            cluster.expect(check, "20000|20000")?;
        }
    }
    let file = outside.join("zipped");
    let name = file.display();
    cluster.sql(&format!(
        "COPY t TO PROGRAM 'gzip > {name}'; TRUNCATE u; COPY u FROM PROGRAM 'gunzip < {name}'"
    ))?;
    cluster.expect(check, "20000|20000")
}
arms!(copy_to_and_from_files_and_programs: plain, sealed);

fn tablespaces_hold_tables_indexes_and_temporary_files(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let cluster = Cluster::started(&place, "main", arm)?;
    for name in ["one", "two"] {
        let dir = place.make_dir(name)?;
        cluster.sql(&format!("CREATE TABLESPACE {name} LOCATION '{}'", dir.display()))?;
    }
    cluster.sql(
        "CREATE TABLE t TABLESPACE one AS SELECT g, md5(g::text) b FROM generate_series(1, 30000) g;
         CREATE INDEX ti ON t (b) TABLESPACE two;
         SET temp_tablespaces = one, two; SET work_mem = '64kB';
         CREATE TEMP TABLE x AS SELECT * FROM t ORDER BY b; SELECT count(*) FROM x;
         ALTER TABLE t SET TABLESPACE two; ALTER INDEX ti SET TABLESPACE one; ALTER TABLE t SET TABLESPACE pg_default",
    )?;
    cluster.kill_nine()?;
    cluster.start()?;
    cluster.expect("SET enable_seqscan = off; SELECT g FROM t WHERE b = md5('77')", "77")?;
    cluster
        .sql("ALTER INDEX ti SET TABLESPACE pg_default; DROP TABLESPACE one; DROP TABLESPACE two")
        .map(drop)
}
arms!(tablespaces_hold_tables_indexes_and_temporary_files: plain, sealed);

/// More of them than links out of a protected directory can be known.
fn a_server_with_140_tablespaces_starts_again(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let cluster = Cluster::started(&place, "main", arm)?;
    let above = place.make_dir("spaces")?;
    for number in 1..=140 {
        place.make_dir(&format!("spaces/{number}"))?;
    }
    let above = above.display();
    cluster.sql(&format!(
        "SELECT format('CREATE TABLESPACE s%s LOCATION %L', g, '{above}/' || g) \
         FROM generate_series(1, 140) g \\gexec"
    ))?;
    cluster.sql("CREATE TABLE t TABLESPACE s140 AS SELECT 'words of 140' AS a; CHECKPOINT")?;
    let locations = "SELECT count(pg_tablespace_location(oid)) FROM pg_tablespace";
    cluster.expect(locations, "142")?;
    cluster.kill_nine()?;
    cluster.start()?;
    // Before recovery each directory is opened, to sync it.
    let log = fs::read_to_string(cluster.log()).map_err(Error::io("reading the log"))?;
    ensure(!log.contains("could not open") && !log.contains("out of file descriptors"), || log)?;
    cluster.expect("SELECT a FROM t", "words of 140")?;
    cluster.expect(locations, "142")?;
    cluster.sql("INSERT INTO t VALUES ('more'); DROP TABLESPACE s139")?;
    cluster.stop("fast")?;
    if arm == Arm::Sealed {
        cluster.tidelock(&["verify", "-D"])?.arg(cluster.dir()).run()?;
        // A file without a name behind a link would be plain.
        let links = cluster.dir().join("pg_tblspc");
        let opened = place.tool("python3").args(["-c", UNNAMED]).arg(&links);
        let opened = opened.under(Arm::Sealed, cluster.dir()).run()?;
        ensure(opened.stdout == "ENFILE,ENOTSUP\n", || opened.text())?;
    }
    Ok(())
}
arms!(a_server_with_140_tablespaces_starts_again: plain, sealed);

const UNNAMED: &str = "\
import errno, os, sys
found = set()
for link in os.listdir(sys.argv[1]):
    try:
        os.open(f'{sys.argv[1]}/{link}', os.O_TMPFILE | os.O_RDWR, 0o600)
        found.add(link)
    except OSError as error:
        found.add(errno.errorcode[error.errno])
print(','.join(sorted(found)))";

/// What was a tablespace when the server started, and names that begin like a tablespace's folder.
#[test]
fn exports_outside_are_plain_wherever_tablespaces_were() -> Result<()> {
    let place = Workspace::new()?;
    let cluster = Cluster::started(&place, "main", Arm::Sealed)?;
    let (space, like) = (place.make_dir("space")?, place.make_dir("PG_15_main_1")?);
    cluster.sql(&format!("CREATE TABLESPACE space LOCATION '{}'", space.display()))?;
    cluster.restart()?;
    let within = space.join("within");
    cluster.sql(&format!("COPY (SELECT 'words') TO '{}'", within.display()))?;
    let sealed = fs::read(&within).map_err(Error::io("reading an export"))?;
    ensure(sealed.get(1..5) == Some(b"TDLK"), || "an export in a tablespace is plain".into())?;
    fs::remove_file(&within).map_err(Error::io("removing an export"))?;
    cluster.sql("DROP TABLESPACE space")?;
    for file in [space.join("e.csv"), like.join("e.csv"), place.join("space/PG_15_20251128.csv")] {
        cluster.sql(&format!("COPY (SELECT 'words') TO '{}'", file.display()))?;
        let text = fs::read(&file).map_err(Error::io("reading an export"))?;
        ensure(text == b"words\n", || format!("{} is not plain", file.display()))?;
    }
    Ok(())
}

fn logical_decoding_that_spills_returns_every_change(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let cluster = Cluster::new(&place, "main", arm)?;
    cluster.set("wal_level", "logical")?;
    cluster.set("logical_decoding_work_mem", "64kB")?;
    cluster.start()?;
    cluster.sql(
        "CREATE TABLE t (a int, b text);
         SELECT pg_create_logical_replication_slot('s', 'test_decoding');
         BEGIN; INSERT INTO t SELECT g, md5(g::text) FROM generate_series(1, 10000) g;
         SAVEPOINT one; INSERT INTO t SELECT g, md5(g::text) FROM generate_series(1, 10000) g; COMMIT",
    )?;
    cluster.restart()?;
    cluster.expect(
        "SELECT count(*) FROM pg_logical_slot_get_changes('s', NULL, NULL) WHERE data \
                    LIKE 'table%INSERT%'",
        "20000",
    )?;
    cluster.expect("SELECT spill_bytes > 1000000 FROM pg_stat_replication_slots", "t")?;
    cluster.sql("SELECT pg_drop_replication_slot('s')").map(drop)
}
arms!(logical_decoding_that_spills_returns_every_change: plain, sealed);

fn extensions_and_jit_work(arm: Arm) -> Result<()> {
    let place = Workspace::new()?;
    let cluster = Cluster::new(&place, "main", arm)?;
    cluster.set("shared_preload_libraries", "pg_stat_statements")?;
    cluster.start()?;
    cluster.sql(
        "CREATE EXTENSION pg_stat_statements; CREATE EXTENSION amcheck; CREATE EXTENSION plpython3u;
         CREATE EXTENSION pg_prewarm; CREATE EXTENSION file_fdw; CREATE EXTENSION adminpack;
         CREATE TABLE t AS SELECT g a, md5(g::text) b FROM generate_series(1, 50000) g; CREATE INDEX i ON t (b);
         CREATE FUNCTION py(a int) RETURNS text LANGUAGE plpython3u AS
           $$ import os; return open(os.path.join(plpy.execute('SHOW data_directory')[0]['data_directory'], 'PG_VERSION')).read().strip() + str(a) $$",
    )?;
    cluster.expect("SELECT py(1)", "151")?;
    cluster.sql(
        "SELECT bt_index_check('i', true); SELECT count(*) FROM verify_heapam('t'); \
                 SELECT pg_prewarm('t')",
    )?;
    let jit = cluster.sql(
        "SET jit = on; SET jit_above_cost = 0; SET jit_inline_above_cost = 0; SET \
         jit_optimize_above_cost = 0;
         EXPLAIN (ANALYZE) SELECT sum(a * 2 + 1), count(*) FROM t WHERE a % 3 = 1 AND b > '5'",
    )?;
    ensure(jit.contains("JIT:"), || format!("no JIT (llvmjit missing?):\n{jit}"))?;
    cluster.restart()?;
    cluster.expect("SELECT calls FROM pg_stat_statements WHERE query LIKE 'SELECT py%'", "1")?;
    cluster.sql("SELECT pg_stat_statements_reset()").map(drop)
}
arms!(extensions_and_jit_work: plain, sealed);

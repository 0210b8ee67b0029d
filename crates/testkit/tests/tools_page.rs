//! Stock tools, none renamed, beside a sealed server: each row of docs/tools.md is what happens
//! here. Most are long; the page itself is looked at by `make test`.

use std::fs;
use std::path::Path;

use tidelock_servers::skip;
use tidelock_testkit::maria::contents;
use tidelock_testkit::pg::{
    Arm, BINDIR, Cluster, Error, Result, Tool, Workspace, ensure, fill_pgbench,
};
use tidelock_testkit::tools::{FILES, Page, Sees, named_tests};

/// Rows of a test that is gone say nothing.
#[test]
fn every_row_of_the_page_names_a_test() -> Result<()> {
    let mut source = String::new();
    for file in FILES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(file);
        source += &fs::read_to_string(path).map_err(Error::io("reading the tests"))?;
    }
    let named = named_tests()?;
    ensure(named.len() > 40, || format!("only {} rows", named.len()))?;
    for test in named.iter().filter(|name| *name != "test" && !name.starts_with("---")) {
        ensure(source.contains(&format!("fn {test}(")), || format!("no test {test}"))?;
    }
    Ok(())
}

/// A page with the words that most commands have.
fn page<'w>(place: &'w Workspace, test: &'static str, cluster: &Cluster<'_>) -> Page<'w> {
    let mut page = Page::new(place, test);
    page.word("DIR", cluster.dir().display());
    page.word("CONN", cluster.socket_dir().display());
    page
}

/// The command by `tidelock exec` for these directories.
fn with_keys<'w>(page: &Page<'w>, template: &str, clusters: &[&Cluster<'_>]) -> Tool<'w> {
    let mut tool = page.tool(template);
    for cluster in clusters {
        tool = tool.under(Arm::Sealed, cluster.dir());
    }
    tool
}

/// A stock server without keys starts on what lies there, and it has this many rows.
fn starts_plain(place: &Workspace, name: &str, rows: &str) -> Result<()> {
    let copy = Cluster::at(place, name, Arm::Plain)?;
    copy.listen_here()?;
    copy.start()?;
    copy.expect("SELECT count(*) FROM pgbench_accounts", rows)?;
    copy.stop("fast")
}

#[test]
#[ignore = "long: make test-full"]
fn backups() -> Result<()> {
    let place = Workspace::new()?;
    let main = Cluster::started(&place, "main", Arm::Sealed)?;
    fill_pgbench(&main, 1)?;
    let space = place.make_dir("space")?;
    main.sql(&format!(
        "CREATE TABLESPACE s LOCATION '{}'; CREATE TABLE in_s TABLESPACE s AS SELECT 1 AS a",
        space.display()
    ))?;
    let mut page = page(&place, "backups", &main);
    page.word("SPACE", space.display());
    for (number, method) in ["stream", "fetch", "none"].into_iter().enumerate() {
        let name = format!("plain{number}");
        page.word("OUT", place.join(&name).display());
        page.word("MOVED", place.join(&format!("moved{number}")).display());
        let template =
            format!("pg_basebackup -h CONN -U postgres -c fast -D OUT -X {method} -T SPACE=MOVED");
        let result = match method {
            "none" => "a plain backup; `pg_verifybackup` passes, WAL has to come from elsewhere",
            _ => "a plain backup; `pg_verifybackup` passes and a stock server starts on it",
        };
        page.works(page.tool(&template), Sees::Plain, &template, result)?;
        let verify = "pg_verifybackup OUT";
        let arguments = if method == "none" { "pg_verifybackup -n OUT" } else { verify };
        page.tool(arguments).run()?;
        if method != "none" {
            starts_plain(&place, &name, "100000")?;
        }
    }
    let template = "pg_verifybackup OUT";
    page.word("OUT", place.join("plain0").display());
    let mut fresh = Page::new(&place, "backups");
    // The server has changed it since: a fresh one.
    fresh.word("CONN", main.socket_dir().display());
    fresh.word("OUT", place.join("fresh").display());
    fresh.word("SPACE", space.display());
    fresh.word("MOVED", place.join("moved-fresh").display());
    fresh.tool("pg_basebackup -h CONN -U postgres -c fast -D OUT -T SPACE=MOVED").run()?;
    fresh.works(
        fresh.tool(template),
        Sees::Plain,
        template,
        "passes; without keys, on a backup that is plain",
    )?;
    // Into a protected directory with keys of its own.
    let copy = Cluster::empty(&place, "copy", Arm::Sealed)?;
    page.word("NEW", copy.dir().display());
    page.word("MOVED", place.join("moved-new").display());
    let template = "pg_basebackup -h CONN -U postgres -c fast -D NEW -T SPACE=MOVED";
    let told = "a sealed copy under keys of its own, tablespace included; the server starts on it";
    page.works(with_keys(&page, template, &[&copy]), Sees::Plain, template, told)?;
    let template = "pg_verifybackup NEW";
    page.works(with_keys(&page, template, &[&copy]), Sees::Plain, template, "passes")?;
    let template = "pg_verifybackup NEW";
    let said = "could not parse backup manifest";
    let bare = page.tool(template).fails()?;
    ensure(bare.text().contains("manifest"), || bare.text())?;
    page.row(Sees::SealedBytes, template, &format!("fails: \"{said}\" or its like"))?;
    copy.listen_here()?;
    copy.start()?;
    copy.expect("SELECT count(*) FROM pgbench_accounts; SELECT a FROM in_s", "100000\n1")?;
    copy.stop("fast")?;
    // Archives.
    for (number, options) in
        ["-Ft -X stream", "-Ft -X fetch -z", "-Ft -X none -Z server-gzip:5"].into_iter().enumerate()
    {
        page.word("OUT", place.join(&format!("tar{number}")).display());
        let template = format!("pg_basebackup -h CONN -U postgres -c fast -D OUT {options}");
        page.works(
            with_keys(&page, &template, &[&main]),
            Sees::Plain,
            &template,
            "plain archives; `tar` lists them",
        )?;
        let dir = place.join(&format!("tar{number}"));
        let (file, list) = if number == 0 { ("base.tar", "-tf") } else { ("base.tar.gz", "-tzf") };
        let list = place.tool("tar").arg(list).arg(dir.join(file)).run()?;
        ensure(list.stdout.contains("global/pg_control"), || list.text())?;
        ensure(!list.stdout.contains(".tidelock"), || list.text())?;
    }
    Ok(())
}

#[test]
#[ignore = "long: make test-full"]
fn looking_at_files() -> Result<()> {
    let place = Workspace::new()?;
    let main = Cluster::new(&place, "main", Arm::Sealed)?;
    main.start()?;
    fill_pgbench(&main, 1)?;
    main.sql("CREATE EXTENSION amcheck")?;
    let segment = main.sql("SELECT pg_walfile_name(pg_switch_wal())")?;
    let mut page = page(&place, "looking_at_files", &main);
    page.word("SEGMENT", &segment);
    let template = "pg_amcheck -h CONN -U postgres -d postgres --heapallindexed";
    page.works(page.tool(template), Sees::Plain, template, "passes: the server reads for it")?;
    let template = "pg_controldata DIR";
    page.works(with_keys(&page, template, &[&main]), Sees::Plain, template, "works")?;
    let bare = page.tool(template).attempt()?;
    ensure(!bare.stdout.contains("in production"), || bare.text())?;
    page.row(
        Sees::SealedBytes,
        template,
        "warns of a wrong CRC, and what it prints means nothing",
    )?;
    let template = "pg_waldump --stats DIR/pg_wal/SEGMENT";
    page.works(with_keys(&page, template, &[&main]), Sees::Plain, template, "works")?;
    page.fails(page.tool(template), Sees::SealedBytes, template, "fatal")
        .or_else(|_| page.fails(page.tool(template), Sees::SealedBytes, template, "error"))?;
    main.stop("fast")?;
    for mode in ["check", "disable", "enable"] {
        let template = format!("pg_checksums --{mode} -D DIR");
        page.works(with_keys(&page, &template, &[&main]), Sees::Plain, &template, "works")?;
    }
    let template = "pg_checksums --check -D DIR";
    page.fails(
        page.tool(template),
        Sees::SealedBytes,
        template,
        "pg_control CRC value is incorrect",
    )?;
    let template = "pg_ctl -D DIR status";
    let status = page.tool(template).fails()?;
    // pg_ctl's own: no server runs.
    ensure(status.status.code() == Some(3), || status.text())?;
    page.row(Sees::SealedBytes, template, "works: it reads postmaster.pid only")?;
    page.word("LOG", main.log().display());
    let template = "pg_ctl -D DIR -l LOG -t 20 start";
    let before = contents(main.dir())?;
    let start = page.tool(template).fails()?;
    ensure(start.text().contains("could not start server"), || start.text())?;
    ensure(contents(main.dir())? == before, || "the bare server has changed files".into())?;
    page.row(Sees::SealedBytes, template, "fails; nothing is written")?;
    main.tidelock(&["verify", "-D", &main.dir().display().to_string()])?.run()?;
    let _ = fs::remove_file(main.dir().join("postmaster.pid"));
    let template = "pg_resetwal -D DIR --wal-segsize=4";
    page.works(
        with_keys(&page, template, &[&main]),
        Sees::Plain,
        template,
        "works; the server starts",
    )?;
    let template = "pg_resetwal -D DIR";
    let before = contents(main.dir())?;
    let refused = page.tool(template).fails()?;
    ensure(refused.text().contains("Guessed pg_control values"), || refused.text())?;
    ensure(contents(main.dir())? == before, || "pg_resetwal has changed files".into())?;
    page.row(Sees::SealedBytes, template, "refuses: it would have to guess; with -f see below")?;
    main.start()?;
    main.expect("SELECT count(*) FROM pgbench_accounts", "100000")?;
    let template = "pg_ctl -D DIR reload";
    page.works(
        page.tool(template),
        Sees::SealedBytes,
        template,
        "works: it reads postmaster.pid only",
    )?;
    let template = "pg_ctl -D DIR -w stop";
    page.works(
        page.tool(template),
        Sees::SealedBytes,
        template,
        "works: it reads postmaster.pid only",
    )?;
    let old = segment_before(&main)?;
    page.word("SEGMENT", old);
    let template = "pg_archivecleanup -n DIR/pg_wal SEGMENT";
    page.works(page.tool(template), Sees::SealedBytes, template, "works: it reads names only")?;
    Ok(())
}

fn segment_before(main: &Cluster<'_>) -> Result<String> {
    let mut names: Vec<String> = fs::read_dir(main.dir().join("pg_wal"))
        .map_err(Error::io("listing pg_wal"))?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.len() == 24)
        .collect();
    names.sort();
    names.pop().ok_or_else(|| Error::Unexpected("no segment".into()))
}

/// `pg_resetwal -f` guesses what it cannot read: on a directory that is lost after it.
#[test]
#[ignore = "long: make test-full"]
fn what_resetwal_destroys() -> Result<()> {
    let place = Workspace::new()?;
    let main = Cluster::started(&place, "main", Arm::Sealed)?;
    main.stop("fast")?;
    let page = page(&place, "what_resetwal_destroys", &main);
    let template = "pg_resetwal -f -D DIR";
    page.tool(template).attempt()?;
    let told = main.start_fails()?;
    let log = fs::read_to_string(main.log()).unwrap_or_default();
    ensure((told.text() + &log).contains("must be sealed and is not"), || log.clone())?;
    page.row(
        Sees::SealedBytes,
        template,
        "destroys pg_control and WAL; the server refuses to start after it",
    )
}

#[test]
#[ignore = "long: make test-full"]
fn replication() -> Result<()> {
    let place = Workspace::new()?;
    let old = Cluster::new(&place, "old", Arm::Sealed)?;
    for (name, value) in
        [("wal_level", "logical"), ("wal_log_hints", "on"), ("wal_keep_size", "512MB")]
    {
        old.set(name, value)?;
    }
    old.start()?;
    fill_pgbench(&old, 1)?;
    let mut page = page(&place, "replication", &old);
    page.word("WAL", place.make_dir("home/wal")?.display());
    page.word("CHANGES", place.join("home/changes").display());
    let end =
        old.sql("SELECT pg_switch_wal(); CREATE TABLE t (a int); SELECT pg_current_wal_lsn()")?;
    let end = end.lines().last().unwrap_or_default().to_owned();
    page.word("LSN", &end);
    let template = "pg_receivewal -h CONN -U postgres -D WAL --endpos=LSN --no-loop";
    page.works(page.tool(template), Sees::Plain, template, "plain segments")?;
    let first = fs::read_dir(place.join("home/wal")).map_err(Error::io("listing the segments"))?;
    let first = first.flatten().map(|entry| entry.path()).next();
    let bytes = fs::read(first.unwrap_or_default()).map_err(Error::io("reading a segment"))?;
    ensure(bytes.starts_with(&WAL_PAGE_MAGIC), || "the segment is not plain".into())?;
    let template =
        "pg_recvlogical -h CONN -U postgres -d postgres --slot=s --create-slot -P test_decoding";
    page.works(page.tool(template), Sees::Plain, template, "works")?;
    old.sql("INSERT INTO t VALUES (4711)")?;
    page.word("LSN", old.sql("SELECT pg_current_wal_lsn()")?);
    let template = "pg_recvlogical -h CONN -U postgres -d postgres --slot=s --start --endpos=LSN --no-loop -f CHANGES";
    page.works(page.tool(template), Sees::Plain, template, "a plain file of changes")?;
    let changes = fs::read_to_string(place.join("home/changes")).map_err(Error::io("reading"))?;
    ensure(changes.contains("4711"), || changes.clone())?;
    old.sql("SELECT pg_drop_replication_slot('s')")?;
    let new = Cluster::empty(&place, "new", Arm::Sealed)?;
    new.backup_of(&old, &["-R"])?;
    new.start()?;
    page.word("NEW", new.dir().display());
    let template = "pg_ctl -D NEW promote";
    page.fails(
        page.tool(template),
        Sees::SealedBytes,
        template,
        "control file appears to be corrupt",
    )?;
    page.works(with_keys(&page, template, &[&new]), Sees::Plain, template, "works")?;
    new.wait_for("SELECT pg_is_in_recovery()", "f")?;
    old.sql("INSERT INTO t SELECT generate_series(1, 1000)")?;
    new.sql("CREATE TABLE kept AS SELECT 1; CHECKPOINT")?;
    old.stop("fast")?;
    page.word("SOURCE", format!("host={}", new.socket_dir().display()));
    let rewind = with_keys(&page, "pg_rewind -D DIR", &[&old]);
    let rewind = rewind.args(["-R", "--source-server", &new.conninfo()]);
    let template = "pg_rewind -D DIR -R --source-server=SOURCE";
    page.works(rewind, Sees::Plain, template, "works; each node keeps keys of its own")?;
    old.listen_here()?;
    old.start()?;
    old.wait_for("SELECT count(*) FROM pg_class WHERE relname = 'kept'", "1")
}

/// XLOG_PAGE_MAGIC of PostgreSQL 15 (xlog_internal.h), little-endian.
const WAL_PAGE_MAGIC: [u8; 2] = [0x10, 0xd1];

#[test]
#[ignore = "long: make test-full"]
fn databases() -> Result<()> {
    let place = Workspace::new()?;
    let main = Cluster::started(&place, "main", Arm::Sealed)?;
    fill_pgbench(&main, 1)?;
    let mut page = page(&place, "databases", &main);
    let space = place.make_dir("space")?;
    main.sql(&format!("CREATE TABLESPACE s LOCATION '{}'", space.display()))?;
    for strategy in ["wal_log", "file_copy"] {
        let command = format!("CREATE DATABASE d_{strategy} TEMPLATE postgres STRATEGY {strategy}");
        main.sql_in("template1", &command)?;
        let count =
            main.sql_in(&format!("d_{strategy}"), "SELECT count(*) FROM pgbench_accounts")?;
        ensure(count == "100000", || count.clone())?;
        page.row(Sees::Plain, &command, "works; the new files are sealed")?;
    }
    let command = "ALTER DATABASE d_wal_log SET TABLESPACE s";
    main.sql(command)?;
    let count = main.sql_in("d_wal_log", "SELECT count(*) FROM pgbench_accounts")?;
    ensure(count == "100000", || count.clone())?;
    page.row(Sees::Plain, command, "works; the files are sealed again, in the tablespace")?;
    main.tidelock(&["verify", "-D", &main.dir().display().to_string()])?.run()?;
    page.word("DUMP", place.join("home/dump").display());
    let template = "pg_dump -h CONN -U postgres -Fd -j2 -f DUMP postgres";
    page.works(page.tool(template), Sees::Plain, template, "a plain dump")?;
    main.sql("CREATE DATABASE restored")?;
    let template = "pg_restore -h CONN -U postgres -j2 -d restored DUMP";
    page.works(page.tool(template), Sees::Plain, template, "works")?;
    let count = main.sql_in("restored", "SELECT count(*) FROM pgbench_accounts")?;
    ensure(count == "100000", || count.clone())?;
    let template = "pg_dumpall -h CONN -U postgres -g -f DUMP.sql";
    page.works(page.tool(template), Sees::Plain, template, "a plain dump").map(drop)
}

/// A copy of the files, of a stopped server or between the two calls of a backup, restores with
/// nothing but the key.
#[test]
#[ignore = "long: make test-full"]
fn copies_of_files() -> Result<()> {
    let place = Workspace::new()?;
    let main = Cluster::started(&place, "main", Arm::Sealed)?;
    fill_pgbench(&main, 1)?;
    main.stop("fast")?;
    let mut page = page(&place, "copies_of_files", &main);
    let restored = |name: &str| -> Result<()> {
        place.wait_for_agents()?;
        let copy = Cluster::at(&place, name, Arm::Sealed)?;
        copy.listen_here()?;
        copy.start()?;
        copy.expect("SELECT count(*) FROM pgbench_accounts", "100000")?;
        copy.stop("fast")
    };
    let told = "sealed bytes, keyring included; restores with nothing but the key";
    for (name, template) in [("c1", "cp -a DIR OUT"), ("c2", "rsync -a DIR/ OUT/")] {
        page.word("OUT", place.join(name).display());
        page.works(page.tool(template), Sees::SealedBytes, template, told)?;
        restored(name)?;
    }
    page.word("OUT", place.join("home/main.tar").display());
    let template = "tar -C DIR -cf OUT .";
    page.works(page.tool(template), Sees::SealedBytes, template, told)?;
    let into = place.make_dir("c3")?;
    place.tool("tar").arg("-C").arg(&into).arg("-xf").arg(place.join("home/main.tar")).run()?;
    restored("c3")?;
    // Of a running server, by the low-level backup of the manual.
    main.set("wal_keep_size", "512MB")?;
    main.start()?;
    let label = place.join("home/label");
    main.sql(&format!(
        "SELECT pg_backup_start('copy', true);
         \\! cp -a {from} {to} && rm -f {to}/postmaster.*
         \\t on
         \\o {label}
         SELECT labelfile FROM pg_backup_stop(false);
         \\o",
        from = main.dir().display(),
        to = place.join("c4").display(),
        label = label.display(),
    ))?;
    main.sql("SELECT pg_switch_wal(); CHECKPOINT")?;
    main.stop("fast")?;
    place.tool("cp").arg(&label).arg(place.join("c4/backup_label")).run()?;
    // The WAL that the backup needs.
    let wal =
        format!("cp -a {}/pg_wal/0* {}/pg_wal/", main.dir().display(), place.join("c4").display());
    place.tool("sh").args(["-c", &wal]).run()?;
    restored("c4")?;
    let template = "cp -a DIR OUT";
    page.row(
        Sees::SealedBytes,
        &format!("{template} # between pg_backup_start and pg_backup_stop"),
        "restores with the key, and a backup_label written by psql",
    )
}

#[test]
#[ignore = "long: make test-full"]
fn debian() -> Result<()> {
    let place = Workspace::new()?;
    if skip::unless_root("pg_createcluster, which manages /etc/postgresql,") {
        return Ok(());
    }
    let main = Cluster::new(&place, "main", Arm::Sealed)?;
    let name = format!("tl{}", std::process::id());
    let mut page = page(&place, "debian", &main);
    page.word("NAME", &name);
    let template = "pg_createcluster 15 NAME -d DIR";
    let result =
        "takes a directory over in which initdb has run; without one it makes a plain cluster";
    let made = page.works(page.tool(template).as_ourselves(), Sees::SealedBytes, template, result);
    let rest = made.and_then(|_| {
        let conf = Path::new("/etc/postgresql/15").join(&name);
        ensure(conf.join("postgresql.conf").exists(), || "no configuration".into())?;
        let template = "pg_ctlcluster --skip-systemctl-redirect 15 NAME start";
        page.tool(template).as_ourselves().fails()?;
        page.row(
            Sees::SealedBytes,
            template,
            "fails before `tidelock service install`; nothing is written",
        )?;
        main.tidelock(&["verify", "-D", &main.dir().display().to_string()])?.run()
    });
    let template = "pg_dropcluster 15 NAME";
    let dropped = page.works(
        page.tool(template).as_ourselves(),
        Sees::SealedBytes,
        template,
        "removes the directory, and the keyring with it",
    );
    rest?;
    dropped?;
    ensure(!main.dir().exists(), || "the directory is there".into())
}

#[test]
#[ignore = "long: make test-full"]
fn upgrades() -> Result<()> {
    let place = Workspace::new()?;
    let old = Cluster::new(&place, "old", Arm::Sealed)?;
    let new = Cluster::new(&place, "new", Arm::Sealed)?;
    let mut page = page(&place, "upgrades", &old);
    page.word("OLD", old.dir().display());
    page.word("NEW", new.dir().display());
    page.word("BIN", BINDIR);
    page.word("SOCKETS", place.path().display());
    let base = "pg_upgrade -b BIN -B BIN -d OLD -D NEW -U postgres -s SOCKETS";
    let template = format!("{base} --link");
    page.fails(
        with_keys(&page, &template, &[&old, &new]),
        Sees::Plain,
        &template,
        "each is sealed with keys of its own cluster",
    )?;
    page.tool(base).fails()?;
    page.row(Sees::SealedBytes, base, "fails; it leaves logs in NEW/pg_upgrade_output.d")?;
    fs::remove_dir_all(new.dir().join("pg_upgrade_output.d"))
        .map_err(Error::io("removing logs"))?;
    let template = format!("{base} --check");
    page.works(with_keys(&page, &template, &[&old, &new]), Sees::Plain, &template, "works")?;
    let result = "works; postgres_upgrade.rs has the other directions";
    page.works(with_keys(&page, base, &[&old, &new]), Sees::Plain, base, result)?;
    new.start()
}

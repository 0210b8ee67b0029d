//! Rows of docs/tools.md for what PostgreSQL 17 and 18 have brought: incremental backups,
//! pg_createsubscriber, cloned databases. All long: `ci/pg-build` builds the programs.

use std::fs;
use std::path::Path;

use tidelock_testkit::maria::contents;
use tidelock_testkit::pg::{
    Arm, Cluster, Error, Result, Tool, Workspace, ensure, fill_pgbench, majors,
};
use tidelock_testkit::tools::{Page, Sees};

/// A cluster of another major.
fn cluster<'p>(place: &'p Workspace, name: &str, bin: &Path) -> Result<Cluster<'p>> {
    Ok(Cluster::at(place, name, Arm::Sealed)?.with(Some(bin.to_path_buf()), Vec::new()))
}

/// An empty protected directory for one.
fn empty<'p>(place: &'p Workspace, name: &str, bin: &Path) -> Result<Cluster<'p>> {
    Ok(Cluster::empty(place, name, Arm::Sealed)?.with(Some(bin.to_path_buf()), Vec::new()))
}

/// The command by `tidelock exec` for these directories.
fn with_keys<'w>(page: &Page<'w>, template: &str, clusters: &[&Cluster<'_>]) -> Tool<'w> {
    let mut tool = page.tool(template);
    for cluster in clusters {
        tool = tool.under(Arm::Sealed, cluster.dir());
    }
    tool
}

fn incremental_backups(major: u32, test: &'static str) -> Result<()> {
    let Some(bin) = majors::built(major) else { return Ok(()) };
    let place = Workspace::new()?;
    let main = cluster(&place, "main", &bin)?;
    main.make(&["-k"])?;
    main.set("summarize_wal", "on")?;
    main.start()?;
    fill_pgbench(&main, 1)?;
    let space = place.make_dir("space")?;
    main.sql(&format!(
        "CREATE TABLESPACE s LOCATION '{}'; CREATE TABLE in_s TABLESPACE s AS SELECT 1 AS a",
        space.display()
    ))?;
    let full = empty(&place, "full", &bin)?;
    let part = empty(&place, "part", &bin)?;
    let new = empty(&place, "new", &bin)?;
    let mut page = Page::new(&place, test).of(&bin);
    page.word("CONN", main.socket_dir().display());
    page.word("SPACE", space.display());
    page.word("FULL", full.dir().display());
    page.word("PART", part.dir().display());
    page.word("NEW", new.dir().display());
    page.word("MOVED1", place.join("moved-full").display());
    page.word("MOVED2", place.join("moved-part").display());
    page.word("MOVED3", place.join("moved-new").display());
    page.word("OUT1", place.join("out-full").display());
    page.word("OUT2", place.join("out-part").display());

    let base = "pg_basebackup -h CONN -U postgres -c fast";
    let template = format!("{base} -D FULL -T SPACE=MOVED1");
    with_keys(&page, &template, &[&full]).run()?;
    page.tool(&format!("{base} -D OUT1 -T SPACE=MOVED1.out")).run()?;
    main.sql(
        "UPDATE pgbench_accounts SET abalance = 7 WHERE aid <= 100; INSERT INTO in_s VALUES (2)",
    )?;
    let template = format!("{base} -D PART -T SPACE=MOVED2 -i FULL/backup_manifest");
    let told = "a sealed increment under keys of its own; it reads the manifest with FULL's";
    page.works(with_keys(&page, &template, &[&full, &part]), Sees::Plain, &template, told)?;
    let template = format!("{base} -D OUT2 -T SPACE=MOVED2.out -i OUT1/backup_manifest");
    page.works(page.tool(&template), Sees::Plain, &template, "a plain increment")?;
    main.stop("fast")?;

    let combine = "pg_combinebackup FULL PART -o NEW -T MOVED2=MOVED3";
    let before = contents(new.dir())?;
    let bare = page.tool(combine).fails()?;
    ensure(bare.text().contains("pg_combinebackup: error"), || bare.text())?;
    ensure(contents(new.dir())? == before, || "pg_combinebackup has written files".into())?;
    page.row(Sees::SealedBytes, combine, "fails; nothing is written")?;
    let told = "a sealed full backup under keys of its own; the server starts on it";
    let all = [&full, &part, &new];
    page.works(with_keys(&page, combine, &all), Sees::Plain, combine, told)?;
    let template = "pg_verifybackup NEW";
    page.works(with_keys(&page, template, &[&new]), Sees::Plain, template, "passes")?;
    starts_with_all_rows(&new)?;
    place.wait_for_agents()?;
    // Files that would be given away as they are.
    for mode in ["--clone", "--copy-file-range", "--link"] {
        if mode == "--link" && major < 18 {
            continue;
        }
        let other = empty(&place, &format!("other{mode}"), &bin)?;
        page.word("NEW", other.dir().display());
        page.word("MOVED3", place.join(&format!("moved{mode}")).display());
        let template = format!("{combine} {mode}");
        let tool = with_keys(&page, &template, &[&full, &part, &other]);
        let said = tool.limit(300).fails()?;
        let why = said.stderr.lines().find(|line| line.starts_with("pg_combinebackup: error"));
        let why = why.ok_or_else(|| Error::Unexpected(said.text()))?;
        let why = why.rsplit(": ").next().unwrap_or_default();
        page.row(Sees::Plain, &template, &format!("fails: \"{why}\"; copying works"))?;
    }
    // Plain backups become a sealed directory.
    let other = empty(&place, "other", &bin)?;
    page.word("NEW", other.dir().display());
    page.word("MOVED3", place.join("moved-other").display());
    let template = "pg_combinebackup OUT1 OUT2 -o NEW -T MOVED2.out=MOVED3";
    page.works(with_keys(&page, template, &[&other]), Sees::Plain, template, told)?;
    starts_with_all_rows(&other)?;
    // What the server has summed up of its WAL.
    let summaries = main.dir().join("pg_wal/summaries");
    let names = fs::read_dir(&summaries).map_err(Error::io("listing the summaries"))?;
    let mut names: Vec<_> = names.flatten().map(|entry| entry.path()).collect();
    names.sort();
    page.word("SUMMARY", names.pop().unwrap_or_default().display());
    let template = "pg_walsummary SUMMARY";
    page.works(with_keys(&page, template, &[&main]), Sees::Plain, template, "works")?;
    page.fails(page.tool(template), Sees::SealedBytes, template, "error").map(drop)
}

fn starts_with_all_rows(combined: &Cluster<'_>) -> Result<()> {
    combined.listen_here()?;
    combined.start()?;
    combined.expect("SELECT count(*) FROM pgbench_accounts WHERE abalance = 7", "100")?;
    combined.expect("SELECT count(*) FROM pgbench_accounts", "100000")?;
    combined.expect("SELECT count(*) FROM in_s", "2")?;
    combined.stop("fast")?;
    combined.tidelock(&["verify", "-D"])?.arg(combined.dir()).run().map(drop)
}

#[test]
#[ignore = "long: make test-full"]
fn incremental_backups_of_17() -> Result<()> {
    incremental_backups(17, "incremental_backups_of_17")
}

#[test]
#[ignore = "long: make test-full"]
fn incremental_backups_of_18() -> Result<()> {
    incremental_backups(18, "incremental_backups_of_18")
}

fn create_subscriber(major: u32, test: &'static str) -> Result<()> {
    let Some(bin) = majors::built(major) else { return Ok(()) };
    let place = Workspace::new()?;
    let main = cluster(&place, "main", &bin)?;
    main.make(&["-k"])?;
    main.set("wal_level", "logical")?;
    main.start()?;
    main.sql("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)")?;
    let new = empty(&place, "new", &bin)?;
    new.backup_of(&main, &["-R"])?;
    let mut page = Page::new(&place, test).of(&bin);
    page.word("CONN", main.socket_dir().display());
    page.word("NEW", new.dir().display());
    page.word("SOCKETS", place.path().display());
    let template = "pg_createsubscriber -D NEW -P postgresql:///postgres?host=CONN&user=postgres \
                    -d postgres -U postgres -s SOCKETS";
    let before = contents(new.dir())?;
    let bare = page.tool(template).fails()?;
    ensure(bare.text().contains("pg_createsubscriber: error"), || bare.text())?;
    ensure(contents(new.dir())? == before, || "pg_createsubscriber has changed files".into())?;
    page.row(Sees::SealedBytes, template, "fails; nothing is changed")?;
    let told = "works; the subscriber keeps keys of its own";
    page.works(with_keys(&page, template, &[&new]), Sees::Plain, template, told)?;
    new.start()?;
    main.sql("INSERT INTO t VALUES (2)")?;
    new.wait_for("SELECT count(*) FROM t", "2")?;
    new.expect("SELECT pg_is_in_recovery()", "f")?;
    new.stop("fast")?;
    main.stop("fast")?;
    new.tidelock(&["verify", "-D"])?.arg(new.dir()).run().map(drop)
}

#[test]
#[ignore = "long: make test-full"]
fn create_subscriber_of_17() -> Result<()> {
    create_subscriber(17, "create_subscriber_of_17")
}

#[test]
#[ignore = "long: make test-full"]
fn create_subscriber_of_18() -> Result<()> {
    create_subscriber(18, "create_subscriber_of_18")
}

/// Since 18 the server can ask the file system to share the blocks of a copy.
#[test]
#[ignore = "long: make test-full"]
fn cloned_databases() -> Result<()> {
    let Some(bin) = majors::built(18) else { return Ok(()) };
    let place = Workspace::new()?;
    let main = cluster(&place, "main", &bin)?;
    main.make(&["-k"])?;
    main.set("file_copy_method", "clone")?;
    main.start()?;
    fill_pgbench(&main, 1)?;
    let page = Page::new(&place, "cloned_databases").of(&bin);
    let command = "CREATE DATABASE d TEMPLATE postgres STRATEGY file_copy";
    let told = main.psql("template1", command).attempt()?;
    let result = if told.status.success() {
        let count = main.sql_in("d", "SELECT count(*) FROM pgbench_accounts")?;
        ensure(count == "100000", || count.clone())?;
        "works; the new files are sealed again".to_owned()
    } else {
        let line = told.stderr.lines().find(|line| line.contains("ERROR")).unwrap_or_default();
        format!("fails: \"{}\"", line.rsplit(": ").next().unwrap_or_default())
    };
    page.row(Sees::Plain, &format!("{command} # file_copy_method = clone"), &result)?;
    main.expect("SELECT count(*) FROM pgbench_accounts", "100000")?;
    main.stop("fast")?;
    main.tidelock(&["verify", "-D"])?.arg(main.dir()).run().map(drop)
}

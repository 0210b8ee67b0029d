//! Files that nobody meant to be there: a plain one where sealed ones belong stops a base backup,
//! and the command that the refusal names lets it go on.

use std::fs;
use std::path::Path;

use tidelock_testkit::pg::{Arm, Cluster, Error, Output, Result, Workspace, ensure};

fn backup(source: &Cluster<'_>, to: &Path) -> Result<Output> {
    let tool = source.tool("pg_basebackup").args(["-d", &source.conninfo(), "-c", "fast", "-D"]);
    tool.arg(to).attempt()
}

fn profile_set(cluster: &Cluster<'_>, arguments: &[&str]) -> Result<Output> {
    let dir = cluster.dir().display().to_string();
    cluster.tidelock(&["profile", "set", "-D", &dir])?.args(arguments).attempt()
}

fn refused(output: &Output, words: &[&str]) -> Result<()> {
    ensure(output.status.code() == Some(3), || output.text())?;
    for word in words {
        ensure(output.stderr.contains(word), || format!("no {word:?}: {}", output.text()))?;
    }
    Ok(())
}

#[test]
fn the_command_that_a_refused_backup_names_lets_the_next_one_go_on() -> Result<()> {
    let place = Workspace::new()?;
    let main = Cluster::new(&place, "main", Arm::Sealed)?;
    main.start()?;
    let stray = main.dir().join("notes.txt");
    place.write(&stray, "what the last administrator left\n")?;
    let failed = backup(&main, &place.join("home/first"))?;
    ensure(!failed.status.success(), || failed.text())?;
    let log = fs::read_to_string(main.log()).map_err(Error::io("reading the log"))?;
    let command = format!("tidelock profile set -D {} --plain notes.txt", main.dir().display());
    ensure(log.contains(&command), || log.clone())?;
    // Word for word, and the server runs on.
    let arguments: Vec<&str> = command.split(' ').skip(1).collect();
    let told = main.tidelock(&arguments)?.run()?;
    ensure(told.stdout.contains("learns of it with its next connection"), || told.text())?;
    let copy = place.join("home/second");
    let done = backup(&main, &copy)?;
    ensure(done.status.success(), || done.text())?;
    place.tool("pg_verifybackup").arg(&copy).run()?;
    let bytes = fs::read(copy.join("notes.txt")).map_err(Error::io("reading the copy"))?;
    ensure(bytes == b"what the last administrator left\n", || "another text".into())?;
    let dir = main.dir().display().to_string();
    main.tidelock(&["verify", "-D", &dir])?.run()?;
    let audit = main.tidelock(&["audit", "show", "-D", &dir])?.run()?;
    ensure(audit.stdout.contains("policy_change"), || audit.text())?;
    ensure(audit.stdout.contains("--plain notes.txt"), || audit.text())?;
    main.restart()?;
    let done = backup(&main, &place.join("home/third"))?;
    ensure(done.status.success(), || done.text())
}

#[test]
fn copies_of_the_configuration_do_not_stop_a_backup() -> Result<()> {
    let place = Workspace::new()?;
    let main = Cluster::started(&place, "main", Arm::Sealed)?;
    for name in ["postgresql.conf.bak", "pg_hba.conf~", ".postgresql.conf.swp", "pg_ident.conf.1"] {
        let conf = main.dir().join("postgresql.conf");
        place.tool("cp").arg(&conf).arg(main.dir().join(name)).run()?;
    }
    let done = backup(&main, &place.join("home/copy"))?;
    ensure(done.status.success(), || done.text())
}

#[test]
fn a_change_that_a_file_contradicts_is_refused_and_names_the_file() -> Result<()> {
    let place = Workspace::new()?;
    let main = Cluster::new(&place, "main", Arm::Sealed)?;
    let text = place.join("home/text");
    place.write(&text, "words\n")?;
    // `exec` names cp, so that the copy is sealed.
    main.tool("cp").arg(&text).arg(main.dir().join("extra")).run()?;
    refused(&profile_set(&main, &["--plain", "ext*"])?, &["extra", "tidelock cat"])?;
    ensure(profile_set(&main, &["--plain", "more/**"])?.status.success(), || "plain".into())?;
    main.start()?;
    refused(&profile_set(&main, &["--no-plain", "more/**"])?, &["old rules", "stop it"])?;
    main.stop("fast")?;
    place.make_dir("main/more")?;
    let plain = main.dir().join("more/file");
    place.write(&plain, "words\n")?;
    refused(&profile_set(&main, &["--no-plain", "more/**"])?, &["more/file", "move it out"])?;
    fs::remove_file(&plain).map_err(Error::io("removing a file"))?;
    ensure(profile_set(&main, &["--no-plain", "more/**"])?.status.success(), || "back".into())?;
    let dir = main.dir().display().to_string();
    main.tidelock(&["verify", "-D", &dir])?.run()?;
    main.start()
}

#[test]
fn a_program_that_is_listed_while_a_server_runs_gets_keys() -> Result<()> {
    let place = Workspace::new()?;
    let main = Cluster::started(&place, "main", Arm::Sealed)?;
    main.sql("CREATE TABLE o (l text)")?;
    let read = format!(
        "COPY o FROM PROGRAM 'head -c 4 {}/global/pg_filenode.map | od -An -tx1'",
        main.dir().display()
    );
    let seen = |expected: &str| -> Result<()> {
        main.sql(&format!("TRUNCATE o; {read}"))?;
        main.expect("SELECT trim(l) FROM o", expected)
    };
    // The beginning of a sealed file, then that of the plain one.
    seen("89 54 44 4c")?;
    ensure(profile_set(&main, &["--program", "/usr/bin/head"])?.status.success(), || {
        "head".into()
    })?;
    seen("17 27 59 00")?;
    ensure(profile_set(&main, &["--no-program", "/usr/bin/head"])?.status.success(), || {
        "head".into()
    })?;
    seen("89 54 44 4c")
}

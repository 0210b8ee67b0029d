//! Fail closed: each way in which a protected directory could be used wrongly, and what is said
//! then.

use std::fs;

use tidelock_testkit::marker::Marker;
use tidelock_testkit::pg::{Arm, BINDIR, Cluster, Error, Output, Result, Workspace, ensure};

fn says(output: &Output, words: &[&str]) -> Result<()> {
    let text = output.text();
    ensure(words.iter().any(|word| text.contains(word)), || {
        format!("{} did not say any of {words:?}:\n{text}", output.command)
    })
}

/// Two lines, `error:` and `hint:`, and this exit code.
fn refuses(output: &Output, code: i32) -> Result<()> {
    says(output, &["error:"])?;
    says(output, &["hint:"])?;
    ensure(output.status.code() == Some(code), || {
        format!("{}: {}, not {code}\n{}", output.command, output.status, output.text())
    })
}

#[test]
fn a_bare_server_refuses_to_start_and_writes_nothing_plain() -> Result<()> {
    let place = Workspace::new()?;
    let marker = Marker::new();
    let sealed = Cluster::started(&place, "main", Arm::Sealed)?;
    sealed.sql(&format!("CREATE TABLE t AS SELECT '{}' AS b", marker.text()))?;
    sealed.kill_nine()?;
    let bare = Cluster::at(&place, "main", Arm::Plain)?;
    bare.start_fails()?;
    for arm in [Arm::Plain, Arm::Idle] {
        let direct = place.tool("postgres").under(arm, sealed.dir()).arg("-D").arg(sealed.dir());
        let output = direct.limit(30).fails()?;
        says(&output, &["FATAL", "PANIC", "error:", "could not"])?;
    }
    let control = place.tool("pg_controldata").arg(sealed.dir()).attempt()?;
    ensure(!control.stdout.contains("in production"), || control.text())?;
    let found = marker.search(&[sealed.dir()]).map_err(Error::io("searching"))?;
    ensure(found.findings.is_empty(), || format!("{found:?}"))?;
    let _ = fs::remove_file(sealed.dir().join("postmaster.pid"));
    sealed.start()?;
    sealed.expect("SELECT count(*) FROM t", "1")
}

#[test]
fn a_missing_or_wrong_key_is_told_before_the_server_starts() -> Result<()> {
    let place = Workspace::new()?;
    let main = Cluster::new(&place, "main", Arm::Sealed)?;
    let other = Cluster::new(&place, "other", Arm::Sealed)?;
    let key = |cluster: &Cluster<'_>| {
        let name = cluster.dir().file_name().unwrap_or_default().to_string_lossy().into_owned();
        place.join(&format!("home/{name}.key"))
    };
    // An agent that is still unlocked would serve without asking for the key.
    place.wait_for_agents()?;
    let (mine, aside) = (key(&main), place.join("home/aside.key"));
    fs::rename(&mine, &aside).map_err(Error::io("moving the key away"))?;
    refuses(&main.start_fails()?, 4)?;
    fs::copy(key(&other), &mine).map_err(Error::io("putting a wrong key"))?;
    place.account().give(&mine)?;
    refuses(&main.start_fails()?, 4)?;
    fs::rename(&aside, &mine).map_err(Error::io("putting the key back"))?;
    main.start()
}

#[test]
fn a_log_of_the_shell_below_the_directory_is_refused_with_a_hint() -> Result<()> {
    let place = Workspace::new()?;
    let main = Cluster::new(&place, "main", Arm::Sealed)?;
    let inside = main.dir().join("server.log");
    let output = main.pg_ctl(&["-t", "20", "-l"]).arg(&inside).arg("start").fails()?;
    let log = fs::read(&inside).unwrap_or_default();
    let told = output.text() + &String::from_utf8_lossy(&log);
    ensure(told.contains("hint:") || told.contains("`pg_ctl -l` too"), || told.clone())?;
    ensure(!told.contains("starting PostgreSQL"), || told.clone())?;
    let _ = fs::remove_file(&inside);
    main.start()
}

#[test]
fn a_plain_file_where_a_sealed_one_must_be_is_an_error_that_names_it() -> Result<()> {
    let place = Workspace::new()?;
    let main = Cluster::started(&place, "main", Arm::Sealed)?;
    main.sql("CREATE TABLE t AS SELECT g FROM generate_series(1, 1000) g; CHECKPOINT")?;
    let path = main.sql("SELECT pg_relation_filepath('t')")?;
    main.stop("fast")?;
    let file = main.dir().join(&path);
    let kept = fs::read(&file).map_err(Error::io("reading the table's file"))?;
    place.write(&file, &"plain ".repeat(4096))?;
    let verify = main.tidelock(&["verify", "-D", &main.dir().display().to_string()])?.fails()?;
    ensure(verify.status.code() == Some(5), || verify.text())?;
    says(&verify, &[&path])?;
    main.start()?;
    let output = main.psql("postgres", "SELECT count(*) FROM t").fails()?;
    says(&output, &["Input/output error"])?;
    main.stop("fast")?;
    fs::write(&file, kept).map_err(Error::io("putting the table's file back"))?;
    main.tidelock(&["verify", "-D", &main.dir().display().to_string()])?.run()?;
    main.start()?;
    main.expect("SELECT count(*) FROM t", "1000")
}

#[test]
fn shared_memory_in_files_of_the_directory_is_refused_with_the_setting_to_change() -> Result<()> {
    let place = Workspace::new()?;
    let main = Cluster::new(&place, "main", Arm::Sealed)?;
    main.set("dynamic_shared_memory_type", "mmap")?;
    main.start_fails()?;
    let log = fs::read_to_string(main.log()).map_err(Error::io("reading the log"))?;
    for word in ["pg_dynshmem/mmap.", "dynamic_shared_memory_type = posix"] {
        ensure(log.contains(word), || format!("no {word}: {log}"))?;
    }
    main.set("dynamic_shared_memory_type", "posix")?;
    main.start()
}

/// A byte copy has the same keyring, and its agent would be the one of the original for a while.
#[test]
fn a_copy_starts_as_soon_as_the_original_has_stopped() -> Result<()> {
    let place = Workspace::new()?;
    let main = Cluster::started(&place, "main", Arm::Sealed)?;
    main.sql("CREATE TABLE t AS SELECT 1 AS a")?;
    main.stop("fast")?;
    let copy = Cluster::at(&place, "copy", Arm::Sealed)?;
    place.tool("cp").arg("-a").arg(main.dir()).arg(copy.dir()).run()?;
    copy.listen_here()?;
    copy.start()?;
    copy.expect("SELECT a FROM t", "1")?;
    // While one runs, the other is refused.
    let told = main.start_fails()?;
    refuses(&told, 3)?;
    says(&told, &["run one of them at a time"])
}

/// What is restored beside production has the keyring of that, whose agent has the same name, and
/// links to its tablespaces.
#[test]
fn a_copy_beside_its_running_original_is_rekeyed_and_takes_nothing_of_it() -> Result<()> {
    let place = Workspace::new()?;
    let main = Cluster::started(&place, "main", Arm::Sealed)?;
    let space = place.make_dir("space")?;
    main.sql(&format!(
        "CREATE TABLESPACE space LOCATION '{}'; CREATE TABLE t TABLESPACE space AS SELECT 1 AS a",
        space.display()
    ))?;
    main.stop("fast")?;
    let side = Cluster::at(&place, "side", Arm::Sealed)?;
    for (from, to) in [(main.dir(), side.dir()), (&space, &place.join("moved"))] {
        place.tool("cp").arg("-a").args([from, to]).run()?;
    }
    main.start()?;
    main.expect("SELECT a FROM t", "1")?;
    let kept = place.join("home/side.keyring");
    side.tidelock(&["keyring", "backup", "-D"])?.args([side.dir(), &kept]).run()?;
    side.tidelock(&["key", "new-data-key", "-D"])?.arg(main.dir()).run()?;
    let rekey = || Ok(side.tidelock(&["rekey", "--outside"])?.arg(side.dir()));
    let told = rekey()?.fails()?;
    let of_main = format!("and so does a link of {}", main.dir().display());
    says(&told, &[&of_main, "places of its own"])?;
    let spaces = side.dir().join("pg_tblspc");
    for link in fs::read_dir(&spaces).map_err(Error::io("reading links"))?.flatten() {
        place.tool("ln").arg("-sfn").args([&place.join("moved"), &link.path()]).run()?;
    }
    // The original's programs are not in the way, and what they hold is not the copy's.
    side.tidelock(&["keyring", "restore", "-D"])?.args([side.dir(), &kept]).run()?;
    let told = rekey()?.run()?.text();
    ensure(told.contains("moved, converted too"), || told.clone())?;
    let status = side.tidelock(&["status", "-D"])?.arg(side.dir()).attempt()?.stdout;
    ensure(status.contains("agent        not running"), || status.clone())?;
    main.expect("SELECT a FROM t", "1")?;
    main.stop("fast")?;
    side.listen_here()?;
    side.start()?;
    side.expect("SELECT a FROM t", "1")?;
    side.stop("fast")
}

#[test]
fn a_hard_limit_of_descriptors_is_told_and_the_server_works_with_fewer_files() -> Result<()> {
    let place = Workspace::new()?;
    let main = Cluster::new(&place, "main", Arm::Sealed)?;
    let run = |limit: &str, what: &str| {
        let dir = main.dir().display().to_string();
        let script = format!(
            "ulimit -n {limit}; exec {} exec -D {dir} -- {BINDIR}/pg_ctl -D {dir} -w -t 60 -l {} {what}",
            place.programs()?.command.display(),
            main.log().display()
        );
        place.tool("bash").args(["-c", &script]).log(main.log()).run()
    };
    let told = run("1024", "start")?;
    says(&told, &["1024 descriptors at most"])?;
    // More tables than either half of the descriptors.
    let make = "SELECT format('CREATE TABLE t%s AS SELECT %s AS a', g, g) \
                FROM generate_series(1, 600) g \\gexec";
    main.sql(make)?;
    let all = "DO $$ DECLARE n int := 0; a int; BEGIN FOR g IN 1..600 LOOP \
               EXECUTE format('SELECT a FROM t%s', g) INTO a; n := n + a; END LOOP; \
               IF n <> 180300 THEN RAISE 'n is %', n; END IF; END $$";
    main.sql(all)?;
    main.sql("CHECKPOINT")?;
    main.sql(all)?;
    main.stop("fast")?;
    // PostgreSQL needs 58, and a plain one starts with 64.
    let told = run("64", "start").err().map(|why| why.to_string()).unwrap_or_default();
    ensure(told.contains("64 descriptors at most"), || told.clone())?;
    ensure(told.contains("insufficient file descriptors"), || told.clone())?;
    run("128", "start")?;
    main.sql(all)?;
    main.stop("fast")
}

/// The server asks pg_control whether it recovers, to know whether a lost header may be replaced:
/// also where the lost one is that of pg_control.
#[test]
fn a_control_file_that_lost_its_header_is_told_and_not_waited_for() -> Result<()> {
    use std::os::unix::fs::FileExt as _;
    let place = Workspace::new()?;
    let main = Cluster::started(&place, "main", Arm::Sealed)?;
    main.kill_nine()?;
    let control = main.dir().join("global/pg_control");
    let kept = fs::read(&control).map_err(Error::io("reading pg_control"))?;
    let file = fs::OpenOptions::new().write(true).open(&control);
    let file = file.map_err(Error::io("opening pg_control"))?;
    file.write_all_at(&[0; 8192], 0).map_err(Error::io("losing its header"))?;
    // The single-user server opens it for writing at once, the other reads it first.
    for arguments in [&["--single"][..], &[]] {
        let server = place.tool("postgres").under(Arm::Sealed, main.dir());
        let server = arguments.iter().fold(server, |server, argument| server.arg(argument));
        let output = server.arg("-D").arg(main.dir()).limit(30).fails()?;
        says(&output, &["the header is lost"])?;
        says(&output, &["pg_control\": Input/output error"])?;
    }
    file.write_all_at(&kept, 0).map_err(Error::io("putting pg_control back"))?;
    let _ = fs::remove_file(main.dir().join("postmaster.pid"));
    main.start()
}

#[test]
fn status_tells_whether_the_library_is_loaded_and_what_is_dangerous() -> Result<()> {
    let place = Workspace::new()?;
    let main = Cluster::new(&place, "main", Arm::Sealed)?;
    main.set("full_page_writes", "off")?;
    main.start()?;
    let dir = main.dir().display().to_string();
    let told = main.tidelock(&["status", "-D", &dir])?.run()?;
    says(&told, &["full_page_writes"])?;
    let json = main.tidelock(&["status", "-D", &dir, "--json"])?.run()?;
    let value: serde_json::Value = serde_json::from_str(&json.stdout)
        .map_err(|error| Error::Unexpected(format!("status --json: {error}\n{}", json.stdout)))?;
    ensure(value.get("version").is_some(), || json.stdout.clone())
}

#[test]
fn children_that_the_server_starts_see_sealed_bytes() -> Result<()> {
    let place = Workspace::new()?;
    let main = Cluster::started(&place, "main", Arm::Sealed)?;
    let marker = Marker::new();
    main.sql(&format!(
        "CREATE TABLE t AS SELECT '{}' AS b; CHECKPOINT; CREATE TABLE o (l text)",
        marker.text()
    ))?;
    let path = main.sql("SELECT pg_relation_filepath('t')")?;
    main.sql(&format!(
        "COPY o FROM PROGRAM 'grep -c {} {}/{path} || true'",
        marker.text(),
        main.dir().display()
    ))?;
    main.expect("SELECT l FROM o", "0")
}

#[test]
fn a_server_writes_nothing_into_another_protected_directory() -> Result<()> {
    let place = Workspace::new()?;
    let marker = Marker::new();
    let main = Cluster::started(&place, "main", Arm::Sealed)?;
    let other = Cluster::new(&place, "other", Arm::Sealed)?;
    main.sql(&format!("CREATE TABLE t AS SELECT '{}' AS b", marker.text()))?;
    let copied = other.dir().join("copied");
    let copy = format!("COPY t TO '{}'", copied.display());
    says(&main.psql("postgres", &copy).fails()?, &["Permission denied"])?;
    ensure(!copied.exists(), || format!("{} was made", copied.display()))?;
    let log = fs::read_to_string(main.log()).map_err(Error::io("reading the server's log"))?;
    ensure(log.contains("another protected directory"), || log)?;
    let target = format!("server:{}", other.dir().join("backup").display());
    let backup = main.tool("pg_basebackup").args(["-d", &main.conninfo(), "-X", "none", "-t"]);
    says(&backup.arg(&target).fails()?, &["Permission denied"])?;
    // Where nobody has keys, what a server writes is plain, as it always was.
    let outside = place.join("home/copied");
    main.sql(&format!("COPY t TO '{}'", outside.display()))?;
    let text = fs::read_to_string(&outside).map_err(Error::io("reading the copy"))?;
    ensure(text.contains(marker.text()), || text)?;
    let found = marker.search(&[main.dir(), other.dir()]).map_err(Error::io("searching"))?;
    ensure(found.findings.is_empty(), || format!("{found:?}"))?;
    other.start()
}

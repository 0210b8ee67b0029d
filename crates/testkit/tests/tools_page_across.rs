//! Rows of docs/tools.md for what goes from plain to sealed or back: dumps, tar files and WAL that
//! a tool writes into a protected directory, pg_rewind between a plain and a sealed node, and a
//! snapshot of the file system below a running server.

use std::fs;
use std::path::{Path, PathBuf};

use tidelock_servers::skip;
use tidelock_testkit::marker::Marker;
use tidelock_testkit::pg::{
    Arm, BINDIR, Cluster, Error, Result, Tool, Workspace, ensure, fill_pgbench,
};
use tidelock_testkit::tools::{Page, Sees};
use tidelock_testkit::volume::{FileSystem, Volume};

/// A protected directory for whatever tools write.
fn store(place: &Workspace, name: &str) -> Result<PathBuf> {
    let (dir, key) = (place.join(name), place.join(&format!("home/{name}.key")));
    let init = place.tool(place.programs()?.command).args(["init", "--profile", "generic"]);
    let init = init.args(["--no-recovery", "--provider", &format!("file:{}", key.display())]);
    init.arg(&dir).run()?;
    Ok(dir)
}

/// The command by `tidelock exec` for these directories.
fn with_keys<'w>(page: &Page<'w>, template: &str, dirs: &[&Path]) -> Tool<'w> {
    dirs.iter().fold(page.tool(template), |tool, dir| tool.under(Arm::Sealed, dir))
}

/// Every format, whatever way it writes: streams, seeks, workers, gzip.
#[test]
fn dumps_in_a_protected_directory() -> Result<()> {
    let place = Workspace::new()?;
    let main = Cluster::started(&place, "main", Arm::Plain)?;
    let marker = Marker::new();
    main.sql(&format!(
        "CREATE TABLE t AS SELECT g, '{}' AS told FROM generate_series(1, 20000) g;
         CREATE TABLE u AS SELECT * FROM t; SELECT lo_from_bytea(4711, '{}')",
        marker.text(),
        marker.text()
    ))?;
    let out = store(&place, "out")?;
    let mut page = Page::new(&place, "dumps_in_a_protected_directory");
    page.word("CONN", main.socket_dir().display());
    page.word("OUT", out.display());
    let dump = "pg_dump -h CONN -U postgres";
    for (name, options) in
        [("custom", "-Fc -Z0"), ("packed", "-Fc"), ("folder", "-Fd -j2 -Z0"), ("tar", "-Ft")]
    {
        let template = format!("{dump} {options} -f OUT/{name} postgres");
        let tool = with_keys(&page, &template, &[&out]);
        page.works(tool, Sees::Plain, &template, "a sealed dump")?;
        let restored = format!("from_{name}");
        main.sql(&format!("CREATE DATABASE {restored}"))?;
        let jobs = if name == "tar" { "" } else { " -j2" };
        let template = format!("pg_restore -h CONN -U postgres{jobs} -d {restored} OUT/{name}");
        page.tool(&template).fails()?;
        page.row(Sees::SealedBytes, &template, "fails; nothing is restored")?;
        page.works(with_keys(&page, &template, &[&out]), Sees::Plain, &template, "works")?;
        let count = main.sql_in(&restored, "SELECT count(*), sum(g), min(told) FROM t")?;
        ensure(count == format!("20000|200010000|{}", marker.text()), || count.clone())?;
        let object = main.sql_in(&restored, "SELECT length(lo_get(4711)) > 30")?;
        ensure(object == "t", || object.clone())?;
    }
    // It starts pg_dump, which must be listed.
    let template = "pg_dumpall -h CONN -U postgres -f OUT/all.sql";
    let tool = with_keys(&page, template, &[&out]);
    page.fails(tool, Sees::Plain, template, "this program has no keys")?;
    let pg_dump = format!("{BINDIR}/pg_dump");
    let list = place.tool(place.programs()?.command).args(["profile", "set", "-D"]).arg(&out);
    list.args(["--program", &pg_dump]).run()?;
    let tool = with_keys(&page, template, &[&out]);
    tool.run()?;
    let listed = format!("{template} # after tidelock profile set -D OUT --program PG_DUMP");
    page.row(Sees::Plain, &listed, "a sealed dump")?;
    let other = Cluster::started(&place, "other", Arm::Plain)?;
    page.word("OTHER", other.socket_dir().display());
    let template = "psql -h OTHER -U postgres -f OUT/all.sql";
    page.works(with_keys(&page, template, &[&out]), Sees::Plain, template, "works")?;
    let count = other.sql_in("from_packed", "SELECT count(*), sum(g) FROM t")?;
    ensure(count == "20000|200010000", || count.clone())?;
    let found = marker.search(&[&out]).map_err(Error::io("searching"))?;
    ensure(found.findings.is_empty() && found.files > 8, || format!("{found:?}"))?;
    place.tool(place.programs()?.command).args(["verify", "-D"]).arg(&out).run().map(drop)
}

/// What tar, gzip and the replication protocol bring into a protected directory comes out again.
#[test]
fn streams_into_a_protected_directory() -> Result<()> {
    let place = Workspace::new()?;
    let main = Cluster::new(&place, "main", Arm::Plain)?;
    main.set("wal_level", "logical")?;
    main.start()?;
    let marker = Marker::new();
    main.sql("SELECT pg_create_physical_replication_slot('r', true); CREATE TABLE t (told text)")?;
    let out = store(&place, "out")?;
    let wal = out.join("wal");
    let mut page = Page::new(&place, "streams_into_a_protected_directory");
    page.word("CONN", main.socket_dir().display());
    page.word("OUT", out.display());
    for folder in [&wal, &out.join("tar")] {
        place.tool("mkdir").arg(folder).run()?;
    }
    let slot =
        "pg_recvlogical -h CONN -U postgres -d postgres --slot=s --create-slot -P test_decoding";
    page.tool(slot).run()?;
    main.sql(&format!("INSERT INTO t VALUES ('{}'); SELECT pg_switch_wal()", marker.text()))?;
    let end = main.sql("CHECKPOINT; SELECT pg_current_wal_lsn()")?;
    page.word("LSN", end.lines().last().unwrap_or_default());
    let template = "pg_receivewal -h CONN -U postgres -D OUT/wal -Z1 -S r --endpos=LSN --no-loop";
    let tool = with_keys(&page, template, &[&out]);
    page.works(tool, Sees::Plain, template, "sealed segments, compressed before")?;
    let names = fs::read_dir(&wal).map_err(Error::io("listing the segments"))?;
    let mut names: Vec<_> = names.flatten().map(|entry| entry.path()).collect();
    names.retain(|path| path.extension().is_some_and(|it| it == "gz"));
    let segment = names.first().ok_or_else(|| Error::Unexpected("no segment".into()))?;
    let unpacked = place.join("home/segment");
    let unpack = place.tool("gzip").under(Arm::Sealed, &out).arg("-dc").arg(segment);
    unpack.stdout_to(&unpacked).run()?;
    let bytes = fs::read(&unpacked).map_err(Error::io("reading a segment"))?;
    ensure(bytes.starts_with(&WAL_PAGE_MAGIC), || "the segment is not WAL".into())?;
    let template = "pg_recvlogical -h CONN -U postgres -d postgres --slot=s --start --endpos=LSN --no-loop -f OUT/changes";
    let tool = with_keys(&page, template, &[&out]);
    page.works(tool, Sees::Plain, template, "a sealed file of changes")?;
    let changes = place.tool("cat").under(Arm::Sealed, &out).arg(out.join("changes")).run()?;
    ensure(changes.stdout.contains(marker.text()), || changes.text())?;
    let template = "pg_basebackup -h CONN -U postgres -c fast -D OUT/tar -Ft -z -X fetch";
    let tool = with_keys(&page, template, &[&out]);
    page.works(tool, Sees::Plain, template, "sealed archives; `tar` unpacks them with keys")?;
    let new = Cluster::empty(&place, "new", Arm::Sealed)?;
    // tar opens the file and lets a gzip of its own read it.
    page.word("NEW", new.dir().display());
    let template = "tar -C NEW -xzf OUT/tar/base.tar.gz";
    let tool = with_keys(&page, template, &[&out, new.dir()]);
    page.fails(tool, Sees::Plain, template, "let this program open the file by its name")?;
    let template = "gzip -d OUT/tar/base.tar.gz";
    let tool = with_keys(&page, template, &[&out]);
    page.works(tool, Sees::Plain, template, "works; the file stays sealed")?;
    let template = "tar -C NEW -xf OUT/tar/base.tar";
    let tool = with_keys(&page, template, &[&out, new.dir()]);
    page.works(tool, Sees::Plain, template, "a protected directory; the server starts on it")?;
    new.listen_here()?;
    new.start()?;
    new.expect("SELECT count(*) FROM t", "1")?;
    new.stop("fast")?;
    let found = marker.search(&[&out, new.dir()]).map_err(Error::io("searching"))?;
    ensure(found.findings.is_empty(), || format!("{found:?}"))?;
    place.tool(place.programs()?.command).args(["verify", "-D"]).arg(&out).run().map(drop)
}

/// XLOG_PAGE_MAGIC of PostgreSQL 15 (xlog_internal.h), little-endian.
const WAL_PAGE_MAGIC: [u8; 2] = [0x10, 0xd1];

/// Each of two nodes is rewound twice: from the other's server, and from its files.
#[test]
fn rewinds_between_a_plain_and_a_sealed_node() -> Result<()> {
    let place = Workspace::new()?;
    let plain = Cluster::new(&place, "plain", Arm::Plain)?;
    plain.set("wal_log_hints", "on")?;
    plain.set("wal_keep_size", "512MB")?;
    plain.start()?;
    plain.sql("CREATE TABLE t (round int, told text)")?;
    let sealed = Cluster::empty(&place, "sealed", Arm::Sealed)?;
    sealed.backup_of(&plain, &["-R"])?;
    sealed.start()?;
    let mut page = Page::new(&place, "rewinds_between_a_plain_and_a_sealed_node");
    page.word("DIR", sealed.dir().display());
    page.word("OUT", plain.dir().display());
    let rounds = [
        (&plain, &sealed, "pg_rewind -D OUT -R --source-server=SOURCE # a sealed server"),
        (&sealed, &plain, "pg_rewind -D DIR -R --source-server=SOURCE # a plain server"),
        (&plain, &sealed, "pg_rewind -D OUT --source-pgdata=DIR"),
        (&sealed, &plain, "pg_rewind -D DIR --source-pgdata=OUT"),
    ];
    for (round, (old, new, template)) in rounds.into_iter().enumerate() {
        old.sql(&format!("INSERT INTO t VALUES ({round}, 'before'); CHECKPOINT"))?;
        new.wait_for(&format!("SELECT count(*) FROM t WHERE round = {round}"), "1")?;
        new.promote()?;
        new.wait_for("SELECT pg_is_in_recovery()", "f")?;
        old.sql(&format!(
            "INSERT INTO t SELECT {round}, 'lost' FROM generate_series(1, 5000);
             CREATE TABLE lost_{round} AS SELECT * FROM t"
        ))?;
        new.sql(&format!(
            "INSERT INTO t SELECT {round}, 'kept' FROM generate_series(1, 3000);
             CREATE TABLE kept_{round} AS SELECT * FROM t; CHECKPOINT"
        ))?;
        old.stop("fast")?;
        // pg_rewind brings the other node's along.
        let conf = old.dir().join("postgresql.conf");
        let settings = fs::read_to_string(&conf).map_err(Error::io("reading the settings"))?;
        let by_files = template.contains("pgdata");
        let mut tool = if by_files {
            new.stop("fast")?;
            with_keys(&page, template, &[sealed.dir()])
        } else {
            page.word("SOURCE", format!("host={}", new.socket_dir().display()));
            let words = template.split(" --source").next().unwrap_or_default();
            let keys = [sealed.dir()];
            let keys = if old.arm() == Arm::Sealed { &keys[..] } else { &[] };
            with_keys(&page, words, keys).args(["--source-server", &new.conninfo()])
        };
        tool = tool.limit(300);
        let told = match old.arm() {
            Arm::Sealed => "works; the target stays sealed under its own keys",
            _ => "works; the target stays plain",
        };
        page.works(tool, Sees::Plain, template, told)?;
        let keyring = old.dir().join(".tidelock/keyring").exists();
        ensure(keyring == (old.arm() == Arm::Sealed), || format!("round {round}: the keyring"))?;
        place.write(&conf, &settings)?;
        if by_files {
            new.start()?;
            let auto = old.dir().join("postgresql.auto.conf");
            place.write(&auto, &format!("primary_conninfo = '{}'\n", new.conninfo()))?;
            place.write(&old.dir().join("standby.signal"), "")?;
        }
        old.start()?;
        let seen = format!(
            "SELECT count(*) FILTER (WHERE told = 'kept'), count(*) FILTER (WHERE told = 'lost')
             FROM t WHERE round = {round}"
        );
        old.wait_for(&seen, "3000|0")?;
        old.expect(&format!("SELECT count(*) FROM pg_class WHERE relname = 'lost_{round}'"), "0")?;
    }
    for node in [&sealed, &plain] {
        node.stop("fast")?;
    }
    plain.tool("pg_checksums").arg("--check").arg("-D").arg(plain.dir()).run()?;
    sealed.tool("pg_checksums").arg("--check").arg("-D").arg(sealed.dir()).run()?;
    sealed.tidelock(&["verify", "-D"])?.arg(sealed.dir()).run().map(drop)
}

/// The device is copied while clients write, as a volume manager or a cloud does it.
#[test]
fn a_snapshot_of_the_file_system() -> Result<()> {
    if skip::unless_root("a volume of one's own") {
        return Ok(());
    }
    let place = Workspace::new()?;
    let failed = |why: tidelock_testkit::volume::VolumeError| Error::Unexpected(why.to_string());
    let volume = Volume::create(FileSystem::Ext4, 400).map_err(failed)?;
    let above = volume.root().join("instance");
    fs::create_dir(&above).map_err(Error::io("making a directory"))?;
    place.account().give(&above)?;
    let main = Cluster::at(&place, "main", Arm::Sealed)?.on(above.join("main"));
    main.make(&["-k"])?;
    main.start()?;
    fill_pgbench(&main, 1)?;
    let load = main.client("pgbench").args(["-n", "-c", "2", "-T", "600"]).limit(900).spawn()?;
    main.wait_for("SELECT count(*) > 200 FROM pgbench_history", "t")?;
    let before = main.sql("SELECT count(*) FROM pgbench_history")?;
    let image = place.join("snapshot");
    let script = "device=$(findmnt -no SOURCE \"$1\") && fsfreeze -f \"$1\" || exit 1
        dd if=$device of=\"$2\" bs=1M conv=sparse status=none; ended=$?
        fsfreeze -u \"$1\" && exit $ended";
    let copy = place.tool("sh").as_ourselves().args(["-c", script, "sh"]);
    copy.arg(volume.root()).arg(&image).run()?;
    drop(load);
    main.stop("fast")?;
    place.wait_for_agents()?;
    let mounted = Mounted::new(&place, &image)?;
    let copy = Cluster::at(&place, "main", Arm::Sealed)?.on(mounted.0.join("instance/main"));
    // As after a power cut, it recovers.
    copy.start()?;
    let after = copy.sql("SELECT count(*) FROM pgbench_history")?;
    let number = |text: &str| text.parse::<u64>().unwrap_or_default();
    ensure(number(&after) >= number(&before), || format!("{before} rows before, {after} after"))?;
    let sums = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) \
                = (SELECT sum(delta) FROM pgbench_history)";
    copy.expect(sums, "t")?;
    copy.stop("fast")?;
    copy.tool("pg_checksums").arg("--check").arg("-D").arg(copy.dir()).run()?;
    copy.tidelock(&["verify", "-D"])?.arg(copy.dir()).run()?;
    let mut page = Page::new(&place, "a_snapshot_of_the_file_system");
    page.word("OUT", image.display());
    let template = "dd if=DEVICE of=OUT bs=1M # a snapshot, while clients write";
    let told = "sealed bytes, keyring included; recovers with nothing but the key";
    page.row(Sees::SealedBytes, template, told)
}

/// A second file system of root's, gone with this value.
struct Mounted(PathBuf);

impl Mounted {
    fn new(place: &Workspace, image: &Path) -> Result<Self> {
        let at = place.make_dir("mounted")?;
        place.tool("mount").as_ourselves().args(["-o", "loop"]).arg(image).arg(&at).run()?;
        Ok(Self(at))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let lazily = std::process::Command::new("umount").arg("--lazy").arg(&self.0).status();
        drop(lazily);
    }
}

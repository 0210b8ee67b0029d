//! Backup programs and backup accounts beside a sealed server: what they see, what lies in their
//! repositories, and what can be restored where.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use tidelock_servers::skip;
use tidelock_testkit::maria::contents;
use tidelock_testkit::marker::Marker;
use tidelock_testkit::pg::{Arm, Cluster, Error, Result, Tool, Workspace, ensure, fill_pgbench};
use tidelock_testkit::tools::{Page, Sees};

const PGBACKREST: &str = "/usr/bin/pgbackrest";

/// pgBackRest is listed, so it reads plain bytes and checks pages; it encrypts its repository
/// itself. The archive is pushed asynchronously.
#[test]
#[ignore = "long: make test-full"]
fn pgbackrest_backs_up_and_restores_under_other_keys_and_plain() -> Result<()> {
    if !Path::new(PGBACKREST).is_file() {
        skip::missing("pgbackrest");
        return Ok(());
    }
    let place = Workspace::new()?;
    let marker = Marker::new();
    let repository = Repository::make(&place)?;
    let main = listed(&place, "main")?;
    main.initdb(&["-k"])?;
    main.set("archive_mode", "on")?;
    main.set("archive_command", &repository.command(main.dir(), "archive-push %p"))?;
    main.start()?;
    let mut page = Page::new(&place, "pgbackrest_backs_up_and_restores_under_other_keys_and_plain");
    page.word("CONFIG", repository.config.display());
    page.word("DIR", main.dir().display());
    let space = place.make_dir("space")?;
    main.sql(&format!("CREATE TABLESPACE space LOCATION '{}'", space.display()))?;
    main.sql("CREATE TABLE t (n int, t text) TABLESPACE space")?;
    let fill = |n: u32| {
        main.sql(&format!(
            "INSERT INTO t SELECT {n}, '{}' FROM generate_series(1, 1000); CHECKPOINT",
            marker.text()
        ))
    };
    let run = |verb: &str, told: &str| {
        let template = format!("pgbackrest --config=CONFIG --pg1-path=DIR --stanza=main {verb}");
        page.works(with_keys(&page, &template, &main), Sees::Plain, &template, told)
    };
    run("stanza-create", "works; run with `init --program /usr/bin/pgbackrest`")?;
    run("check", "works: the archive is pushed asynchronously, with keys, and encrypted")?;
    for (n, kind) in [(1, "full"), (2, "diff"), (3, "incr")] {
        fill(n)?;
        let verb = format!("--type={kind} backup");
        let told = "page checksums are checked; the repository is encrypted by repo1-cipher-type";
        let output = run(&verb, told)?;
        ensure(!output.text().contains("invalid page checksum"), || output.text())?;
    }
    main.sql("SELECT pg_create_restore_point('here')")?;
    fill(4)?;
    let last = main.sql("SELECT pg_walfile_name(pg_switch_wal())")?;
    main.wait_for(&format!("SELECT last_archived_wal >= '{last}' FROM pg_stat_archiver"), "t")?;
    // Without keys there is nothing to back up.
    let bare = "pgbackrest --config=CONFIG --pg1-path=DIR --stanza=main --type=full backup";
    page.fails(page.tool(bare), Sees::SealedBytes, bare, "unexpected control version")?;
    main.stop("fast")?;
    repository.has_nothing_of(&marker)?;
    // Another node has other keys.
    for (file, bytes) in contents(&repository.folder)? {
        ensure(!bytes.starts_with(b"\x89TDLK"), || format!("{} is sealed", file.display()))?;
    }

    let new = listed(&place, "new")?;
    page.word("NEW", new.dir().display());
    page.word("MOVED", place.join("moved").display());
    let restore = "pgbackrest --config=CONFIG --pg1-path=NEW --stanza=main \
                   --tablespace-map-all=MOVED restore";
    let told = "sealed under the keys of NEW; the server recovers from the archive and starts";
    page.works(with_keys(&page, restore, &new), Sees::Plain, restore, told)?;
    comes_up(&new, "4000")?;
    new.stop("fast")?;
    is_sealed(&new, &marker)?;

    // What is there stays if it is the same: read and compared through the library.
    let victim = new.dir().join("base/5/1259");
    fs::remove_file(victim).map_err(Error::io("losing a file"))?;
    let delta = "pgbackrest --config=CONFIG --pg1-path=NEW --stanza=main --delta --type=name \
                 --target=here --target-action=promote --tablespace-map-all=MOVED restore";
    let told =
        "point-in-time recovery into a directory that is there; only what differs is written";
    page.works(with_keys(&page, delta, &new), Sees::Plain, delta, told)?;
    comes_up(&new, "3000")?;
    new.stop("fast")?;
    is_sealed(&new, &marker)?;

    let plain = Cluster::at(&place, "plain", Arm::Plain)?;
    place.make_dir("plain")?;
    page.word("OUT", plain.dir().display());
    page.word("MOVED", place.join("moved-plain").display());
    let restore = "pgbackrest --config=CONFIG --pg1-path=OUT --stanza=main \
                   --tablespace-map-all=MOVED restore";
    let told = "outside of every protected directory: a plain server";
    page.works(page.tool(restore), Sees::Plain, restore, told)?;
    comes_up(&plain, "4000")
}

/// A repository without encryption of its own is a protected directory, and has its own keys.
#[test]
#[ignore = "long: make test-full"]
fn a_repository_without_a_cipher_is_sealed_as_a_protected_directory() -> Result<()> {
    if !Path::new(PGBACKREST).is_file() {
        skip::missing("pgbackrest");
        return Ok(());
    }
    let place = Workspace::new()?;
    let marker = Marker::new();
    let main = listed(&place, "main")?;
    main.initdb(&["-k"])?;
    main.start()?;
    main.sql(&format!("CREATE TABLE t AS SELECT '{}' AS t", marker.text()))?;
    for (name, sealed) in [("open", false), ("closed", true)] {
        let folder = place.join(name);
        if sealed {
            init(&place, &folder, "generic")?;
        } else {
            place.make_dir(name)?;
        }
        let config = place.join(&format!("{name}.conf"));
        let text = configuration(&place, &folder, "repo1-cipher-type=none\ncompress-type=none\n")?;
        place.write(&config, &text)?;
        let run = |verb: &str| {
            let tool = place.tool(PGBACKREST).under(Arm::Sealed, main.dir());
            let tool = if sealed { tool.under(Arm::Sealed, &folder) } else { tool };
            let socket = main.socket_dir().display();
            tool.arg(format!("--config={}", config.display()))
                .arg(format!("--pg1-path={}", main.dir().display()))
                .arg(format!("--pg1-socket-path={socket}"))
                .args(["--stanza=main", "--no-online"])
                .args(verb.split(' '))
                .limit(300)
                .run()
        };
        run("stanza-create")?;
        main.stop("fast")?;
        run("--type=full backup")?;
        main.start()?;
        let seen = marker.search(&[&folder]).map_err(Error::io("searching a repository"))?;
        ensure(seen.findings.is_empty() == sealed && seen.files > 500, || {
            format!("{name}: {} files, {:?}", seen.files, seen.findings)
        })?;
    }
    Ok(())
}

/// A repository on a path, with a cipher of its own.
struct Repository {
    folder: PathBuf,
    config: PathBuf,
}

impl Repository {
    fn make(place: &Workspace) -> Result<Self> {
        let folder = place.make_dir("repository")?;
        let config = place.join("pgbackrest.conf");
        let secret: String = std::iter::repeat_with(fastrand::alphanumeric).take(48).collect();
        let cipher = format!("repo1-cipher-type=aes-256-cbc\nrepo1-cipher-pass={secret}\n");
        place.write(&config, &configuration(place, &folder, &cipher)?)?;
        Ok(Self { folder, config })
    }

    fn command(&self, dir: &Path, verb: &str) -> String {
        let (config, dir) = (self.config.display(), dir.display());
        format!("pgbackrest --config={config} --pg1-path={dir} --stanza=main {verb}")
    }

    fn has_nothing_of(&self, marker: &Marker) -> Result<()> {
        let seen = marker.search(&[&self.folder]).map_err(Error::io("searching the repository"))?;
        ensure(seen.findings.is_empty() && seen.files > 500, || {
            format!("{} files, {:?}", seen.files, seen.findings)
        })
    }
}

/// `initdb -g` lets a group read the data directory, so that backups run as somebody who cannot
/// write it. The group gets sealed bytes and no keyring.
#[test]
#[ignore = "long: make test-full"]
fn a_member_of_the_group_copies_sealed_bytes_without_the_keyring() -> Result<()> {
    if skip::unless_root("a second account, in the servers' group,") {
        return Ok(());
    }
    let place = Workspace::new()?;
    let main = Cluster::at(&place, "main", Arm::Sealed)?;
    main.make(&["-g"])?;
    main.start()?;
    fill_pgbench(&main, 1)?;
    main.stop("fast")?;
    let mode = |name: &str| -> Result<u32> {
        let path = main.dir().join(name);
        let found = fs::metadata(&path);
        let found = found.map_err(Error::io(format!("looking at {}", path.display())))?;
        Ok(found.permissions().mode() & 0o7777)
    };
    let found = [mode("")?, mode("global/pg_control")?, mode(".tidelock")?];
    ensure(found == [0o750, 0o640, 0o700], || {
        format!("{:o} {:o} {:o}", found[0], found[1], found[2])
    })?;
    let (ours, archive) = (place.join("member"), place.join("member/main.tar"));
    let group = fs::metadata(main.dir()).map_err(Error::io("looking at the directory"))?.gid();
    let group = group.to_string();
    let as_root = |program: &str| place.tool(program).as_ourselves();
    as_root("install").args(["-d", "-o", MEMBER, "-g", &group]).arg(&ours).run()?;
    let tar = |more: &[&str]| {
        let member = ["--reuid", MEMBER, "--regid", &group, "--clear-groups", "tar", "-C"];
        as_root("setpriv").args(member).arg(main.dir()).args(more).arg("-cf").arg(&archive).arg(".")
    };
    let mut page =
        Page::new(&place, "a_member_of_the_group_copies_sealed_bytes_without_the_keyring");
    page.word("DIR", main.dir().display());
    let told = tar(&[]).fails()?;
    ensure(told.stderr.contains("./.tidelock: Cannot open: Permission denied"), || told.text())?;
    page.row(
        Sees::SealedBytes,
        "tar -C DIR -cf OUT . # by a member of the group, after initdb -g",
        "fails at DIR/.tidelock, which is its owner's alone",
    )?;
    tar(&["--exclude=./.tidelock"]).run()?;
    // The owner's part: once after each change of the keyring.
    let keyring = place.join("home/main.keyring");
    main.tidelock(&["keyring", "backup", "-D"])?.arg(main.dir()).arg(&keyring).run()?;
    place.wait_for_agents()?;
    let into = place.make_dir("copy")?;
    fs::set_permissions(&into, fs::Permissions::from_mode(0o750)).map_err(Error::io("chmod"))?;
    place.tool("tar").arg("-C").arg(&into).arg("-xf").arg(&archive).run()?;
    ensure(!into.join(".tidelock").exists(), || "the member has the keyring".into())?;
    let copy = Cluster::at(&place, "copy", Arm::Sealed)?;
    copy.tidelock(&["keyring", "restore", "-D"])?.arg(&into).arg(&keyring).run()?;
    copy.listen_here()?;
    copy.start()?;
    copy.expect("SELECT count(*) FROM pgbench_accounts", "100000")?;
    copy.stop("fast")?;
    page.row(
        Sees::SealedBytes,
        "tar -C DIR --exclude=./.tidelock -cf OUT . # by a member of the group, after initdb -g",
        "sealed bytes; restores with `tidelock keyring restore` of a copy of the keyring",
    )?;
    // As PostgreSQL's manual opens a cluster to a group that was made without.
    let open = "find . -type d -exec chmod 750 {} + && find . -type f -exec chmod 640 {} +";
    place.tool("sh").within(main.dir()).args(["-c", open]).run()?;
    main.start()?;
    main.expect("SELECT count(*) FROM pgbench_accounts", "100000")?;
    main.stop("fast")
}

/// Debian's `nobody`.
const MEMBER: &str = "65534";

fn configuration(place: &Workspace, repository: &Path, more: &str) -> Result<String> {
    let mut text = format!("[global]\nrepo1-path={}\n{more}", repository.display());
    for name in ["log", "lock", "spool"] {
        text +=
            &format!("{name}-path={}\n", place.make_dir(&format!("pgbackrest-{name}"))?.display());
    }
    text += "repo1-retention-full=9\nstart-fast=y\nprocess-max=2\narchive-async=y\n";
    let sockets = place.join("s-main");
    text += &format!("[main]\npg1-path={}\n", place.join("main").display());
    text += &format!("pg1-socket-path={}\npg1-user=postgres\n", sockets.display());
    Ok(text)
}

/// A protected directory whose keyring lists pgBackRest.
fn listed<'w>(place: &'w Workspace, name: &str) -> Result<Cluster<'w>> {
    let cluster = Cluster::at(place, name, Arm::Sealed)?;
    init(place, cluster.dir(), "postgres")?;
    Ok(cluster)
}

fn init(place: &Workspace, dir: &Path, profile: &str) -> Result<()> {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let init = place.tool(place.programs()?.command).arg("init").arg(dir);
    let key = place.join(&format!("home/{name}.key"));
    init.args(["--profile", profile, "--no-recovery", "--program", PGBACKREST, "--provider"])
        .arg(format!("file:{}", key.display()))
        .run()
        .map(drop)
}

fn with_keys<'w>(page: &Page<'w>, template: &str, cluster: &Cluster<'_>) -> Tool<'w> {
    page.tool(template).under(Arm::Sealed, cluster.dir())
}

fn comes_up(cluster: &Cluster<'_>, rows: &str) -> Result<()> {
    cluster.listen_here()?;
    cluster.set("archive_mode", "off")?;
    cluster.start()?;
    cluster.wait_for("SELECT pg_is_in_recovery()", "f")?;
    cluster.expect("SELECT count(*) FROM t", rows)
}

fn is_sealed(cluster: &Cluster<'_>, marker: &Marker) -> Result<()> {
    cluster.tidelock(&["verify", "-D"])?.arg(cluster.dir()).run()?;
    let seen = marker.search(&[cluster.dir()]).map_err(Error::io("searching"))?;
    ensure(seen.findings.is_empty() && seen.files > 500, || format!("{:?}", seen.findings))
}

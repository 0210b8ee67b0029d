//! WAL-G beside a sealed server. It is a Go program, so it gets no keys: from the directory it
//! copies sealed bytes, from the server's protocol it gets plain ones, which it can encrypt itself.
//!
//! Debian has no package of it. The tests run where `PATH` has `wal-g`, built with libsodium, or
//! `TIDELOCK_WALG` names its folder.

use std::path::{Path, PathBuf};
use std::{env, fs};

use tidelock_servers::skip;
use tidelock_testkit::marker::Marker;
use tidelock_testkit::pg::{Arm, Cluster, Error, Result, Tool, Workspace, ensure};
use tidelock_testkit::tools::{Page, Sees};

/// What was restored, and is stopped, gets other data keys; then it is made plain.
fn has_2000_rows_under_other_keys_and_plain(new: &Cluster<'_>) -> Result<()> {
    let place = new.workspace();
    new.tidelock(&["rekey"])?.arg(new.dir()).run()?;
    new.start()?;
    new.expect("SELECT count(*) FROM t", "2000")?;
    new.stop("fast")?;
    place.wait_for_agents()?;
    new.tidelock(&["decrypt"])?.arg(new.dir()).run()?;
    let plain = Cluster::at(place, "bare", Arm::Plain)?.on(new.dir().to_path_buf());
    plain.start()?;
    new.expect("SELECT count(*) FROM t", "2000")?;
    plain.stop("fast")
}

#[test]
#[ignore = "needs WAL-G"]
fn walg_copies_sealed_files_and_the_key_opens_what_it_restores() -> Result<()> {
    let Some(bin) = walg() else { return Ok(()) };
    let place = Workspace::new()?;
    let marker = Marker::new();
    let main = Cluster::new(&place, "main", Arm::Sealed)?;
    let repository = place.make_dir("repository")?;
    let test = "walg_copies_sealed_files_and_the_key_opens_what_it_restores";
    let mut page = Page::new(&place, test).of(&bin);
    page.word("DIR", main.dir().display());
    let config = configured(&place, &main, &repository, "LOCAL", &mut page, "")?;
    let command =
        |verb: &str| format!("{} --config {} {verb}", bin.join("wal-g").display(), config);
    main.set("archive_mode", "on")?;
    main.set("archive_command", &command("wal-push %p"))?;
    main.start()?;
    main.sql("CREATE TABLE t (n int, t text)")?;
    fill(&main, 1, &marker)?;
    let sees = Sees::SealedBytes;

    let push = "wal-g --config LOCAL backup-push DIR";
    let refused = page.tool(push).under(Arm::Sealed, main.dir());
    page.fails(refused, Sees::Plain, push, "is a Go program: its file calls go round libc")?;
    page.works(page.tool(push), sees, push, "sealed bytes, keyring included")?;
    fill(&main, 2, &marker)?;
    main.sql("SELECT pg_create_restore_point('here')")?;
    fill(&main, 3, &marker)?;
    archived(&main)?;
    let template = "wal-g --config LOCAL wal-push %p # as archive_command";
    page.row(sees, template, "sealed bytes: a child of the server has no keys")?;
    let template = "wal-g --config LOCAL wal-verify integrity";
    page.works(page.tool(template), sees, template, "works: it reads names only")?;
    has_nothing_of(&marker, &repository)?;
    main.stop("fast")?;

    // To a point in time, with the key of the old server; then under other keys, and plain.
    let fetch = "wal-g --config LOCAL backup-fetch NEW LATEST";
    let new = Cluster::at(&place, "new", Arm::Sealed)?;
    page.word("NEW", new.dir().display());
    place.wait_for_agents()?;
    let told = "starts with the key of the old server; `tidelock rekey` gives it other data keys, \
                `tidelock decrypt` makes it plain";
    page.works(page.tool(fetch), sees, fetch, told)?;
    recovers(&new, &command("wal-fetch %f %p"), true)?;
    new.expect("SELECT count(*) FROM t", "2000")?;
    let template = "wal-g --config LOCAL wal-fetch %f %p # as restore_command";
    let told =
        "works, also to a point in time; it gives up prefetching, as sealed files are longer";
    page.row(sees, template, told)?;
    new.stop("fast")?;
    is_sealed(&new, &marker)?;
    has_2000_rows_under_other_keys_and_plain(&new)?;

    // An increment; then one more after all files were sealed again, at the same sizes.
    configured(&place, &main, &repository, "DELTA", &mut page, DELTA)?;
    for (name, rekeyed) in [("increment", false), ("rekeyed", true)] {
        if rekeyed {
            place.wait_for_agents()?;
            main.tidelock(&["rekey"])?.arg(main.dir()).run()?;
        }
        main.start()?;
        let push = "wal-g --config DELTA backup-push DIR";
        let told = "an increment of sealed bytes: files that have changed, whole, because sealed \
                    pages are not recognised";
        page.works(page.tool(push), sees, push, told)?;
        fill(&main, 4, &marker)?;
        archived(&main)?;
        let rows = main.sql("SELECT count(*), sum(n) FROM t")?;
        main.stop("fast")?;
        let restored = Cluster::at(&place, name, Arm::Sealed)?;
        page.word("NEW", restored.dir().display());
        place.wait_for_agents()?;
        let fetch = "wal-g --config DELTA backup-fetch NEW LATEST";
        let told = "the last full backup and its increments; starts with the key of the old server";
        page.works(page.tool(fetch), sees, fetch, told)?;
        recovers(&restored, &command("wal-fetch %f %p"), false)?;
        restored.expect("SELECT count(*), sum(n) FROM t", &rows)?;
        restored.stop("fast")?;
        is_sealed(&restored, &marker)?;
        place.wait_for_agents()?;
    }
    has_nothing_of(&marker, &repository)
}

#[test]
#[ignore = "needs WAL-G"]
fn walg_of_a_standby_copies_its_sealed_files() -> Result<()> {
    let Some(bin) = walg() else { return Ok(()) };
    let place = Workspace::new()?;
    let marker = Marker::new();
    let archive = Archive::new(&place)?;
    let main = Cluster::new(&place, "main", Arm::Sealed)?;
    main.set("archive_mode", "on")?;
    main.set("archive_command", &archive.put)?;
    main.start()?;
    main.sql("CREATE TABLE t (n int, t text)")?;
    fill(&main, 1, &marker)?;
    let standby = Cluster::empty(&place, "standby", Arm::Sealed)?;
    standby.backup_of(&main, &["-R"])?;
    standby.start()?;
    let follows = |rows: &str| standby.wait_for("SELECT count(*) FROM t", rows);
    follows("1000")?;

    let test = "walg_of_a_standby_copies_its_sealed_files";
    let mut page = Page::new(&place, test).of(&bin);
    let (sealed, coded) = (place.make_dir("sealed")?, place.make_dir("coded")?);
    page.word("STANDBY", standby.dir().display());
    configured(&place, &standby, &sealed, "LOCAL", &mut page, DELTA)?;
    configured(&place, &standby, &coded, "CIPHER", &mut page, &cipher())?;
    let sees = Sees::SealedBytes;
    let push = "wal-g --config LOCAL backup-push STANDBY";
    let told = "sealed bytes of the standby, keyring included; then increments as on a primary";
    page.works(page.tool(push), sees, push, told)?;
    let push = "wal-g --config CIPHER backup-push # of a standby";
    let remote = page.tool("wal-g --config CIPHER backup-push");
    let told = "plain bytes by the server's protocol, encrypted by WALG_LIBSODIUM_KEY; \
                remove standby.signal from what is restored";
    page.works(remote, Sees::Plain, push, told)?;
    fill(&main, 2, &marker)?;
    follows("2000")?;
    page.tool("wal-g --config LOCAL backup-push STANDBY").limit(300).run()?;
    main.sql("SELECT pg_create_restore_point('here')")?;
    fill(&main, 3, &marker)?;
    archived(&main)?;
    follows("3000")?;
    standby.stop("fast")?;
    main.stop("fast")?;
    for repository in [&sealed, &coded] {
        has_nothing_of(&marker, repository)?;
    }

    // Sealed under the standby's keys: to a point in time, under other data keys, and plain.
    place.wait_for_agents()?;
    let new = Cluster::at(&place, "new", Arm::Sealed)?;
    page.word("NEW", new.dir().display());
    let fetch = "wal-g --config LOCAL backup-fetch NEW LATEST # of a standby";
    let local = page.tool("wal-g --config LOCAL backup-fetch NEW LATEST");
    let told = "starts with the key of the standby, with `tidelock wal get` as restore_command, \
                also to a point in time; then `tidelock rekey` or `tidelock decrypt`";
    page.works(local, sees, fetch, told)?;
    recovers(&new, &archive.get, true)?;
    new.expect("SELECT count(*) FROM t", "2000")?;
    new.stop("fast")?;
    is_sealed(&new, &marker)?;
    place.wait_for_agents()?;
    has_2000_rows_under_other_keys_and_plain(&new)?;

    // Plain, encrypted by WAL-G: into a plain directory, and into one with keys of its own.
    let out = Cluster::at(&place, "out", Arm::Plain)?;
    page.word("OUT", out.dir().display());
    page.tool("wal-g --config CIPHER backup-fetch OUT LATEST").limit(300).run()?;
    let signal = out.dir().join("standby.signal");
    fs::remove_file(&signal).map_err(Error::io("removing standby.signal"))?;
    let other = Cluster::empty(&place, "other", Arm::Sealed)?;
    let cp = format!("cp -a {}/. {}", out.dir().display(), other.dir().display());
    page.tool(&cp).under(Arm::Sealed, other.dir()).run()?;
    recovers(&out, &archive.get, false)?;
    out.expect("SELECT count(*) FROM t", "3000")?;
    out.stop("fast")?;
    recovers(&other, &archive.get, true)?;
    other.expect("SELECT count(*) FROM t", "2000")?;
    other.stop("fast")?;
    is_sealed(&other, &marker)
}

#[test]
#[ignore = "needs WAL-G"]
fn walg_streams_plain_bytes_and_encrypts_them_if_told() -> Result<()> {
    let Some(bin) = walg() else { return Ok(()) };
    let place = Workspace::new()?;
    let marker = Marker::new();
    let Archive { dir: archive, put, get } = Archive::new(&place)?;
    let main = Cluster::new(&place, "main", Arm::Sealed)?;
    main.set("archive_mode", "on")?;
    main.set("archive_command", &put)?;
    main.start()?;
    main.sql("CREATE TABLE t (n int, t text)")?;
    fill(&main, 1, &marker)?;

    let test = "walg_streams_plain_bytes_and_encrypts_them_if_told";
    let mut page = Page::new(&place, test).of(&bin);
    let (sealed, plain) = (place.make_dir("sealed")?, place.make_dir("plain")?);
    configured(&place, &main, &sealed, "CIPHER", &mut page, &cipher())?;
    configured(&place, &main, &plain, "REMOTE", &mut page, "")?;
    let push = "wal-g --config CIPHER backup-push";
    let told = "plain bytes by the server's protocol, encrypted by WALG_LIBSODIUM_KEY";
    page.works(page.tool(push), Sees::Plain, push, told)?;
    let push = "wal-g --config REMOTE backup-push";
    let told = "**plain** backup: it comes by the server's protocol";
    page.works(page.tool(push), Sees::Plain, push, told)?;
    fill(&main, 2, &marker)?;
    main.sql("SELECT pg_create_restore_point('here')")?;
    fill(&main, 3, &marker)?;
    archived(&main)?;
    main.stop("fast")?;
    has_nothing_of(&marker, &sealed)?;
    has_nothing_of(&marker, &archive)?;
    let seen = marker.search(&[&plain]).map_err(Error::io("searching"))?;
    ensure(!seen.findings.is_empty(), || "the search finds nothing in a plain backup".into())?;

    let fetch = "wal-g --config CIPHER backup-fetch OUT LATEST";
    let out = Cluster::at(&place, "out", Arm::Plain)?;
    page.word("OUT", out.dir().display());
    let told = "a plain server, with `tidelock wal get` as restore_command";
    page.works(page.tool(fetch), Sees::Plain, fetch, told)?;
    // Sealed before it recovers: no server writes plain.
    let new = Cluster::empty(&place, "new", Arm::Sealed)?;
    page.word("NEW", new.dir().display());
    let copy = "cp -a OUT/. NEW # after wal-g backup-fetch OUT";
    let cp = format!("cp -a {}/. {}", out.dir().display(), new.dir().display());
    let cp = page.tool(&cp).under(Arm::Sealed, new.dir());
    let told = "sealed under the keys of NEW, also for recovery to a point in time; OUT was plain, \
                so let it be on an encrypted disk or in memory";
    page.works(cp, Sees::Plain, copy, told)?;
    recovers(&out, &get, false)?;
    out.expect("SELECT count(*) FROM t", "3000")?;
    out.stop("fast")?;
    recovers(&new, &get, true)?;
    new.expect("SELECT count(*) FROM t", "2000")?;
    new.stop("fast")?;
    is_sealed(&new, &marker)
}

const DELTA: &str = ",\"WALG_DELTA_MAX_STEPS\":\"2\"";
/// Any 32 bytes.
const KEY: &str = "00112233445566778899aabbccddeeff102132435465768798a9bacbdcedfe0f";

fn cipher() -> String {
    format!(",\"WALG_LIBSODIUM_KEY_TRANSFORM\":\"hex\",\"WALG_LIBSODIUM_KEY\":\"{KEY}\"")
}

/// The folder of the program.
fn walg() -> Option<PathBuf> {
    let named = env::var_os("TIDELOCK_WALG").map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders = named.into_iter().chain(env::split_paths(&path));
    let found = folders.find(|folder| folder.join("wal-g").is_file());
    if found.is_none() {
        skip::because("WAL-G is not here, and not in Debian: PATH or TIDELOCK_WALG=DIR has wal-g");
    }
    found
}

/// An archive of WAL that every node can use, sealed under keys of its own.
struct Archive {
    dir: PathBuf,
    /// archive_command
    put: String,
    /// restore_command
    get: String,
}

impl Archive {
    fn new(place: &Workspace) -> Result<Self> {
        let dir = place.join("archive");
        let tidelock = place.programs()?.command;
        place
            .tool(&tidelock)
            .arg("init")
            .arg(&dir)
            .args(["--profile", "wal-archive", "--no-recovery", "--provider"])
            .arg(format!("file:{}", place.join("home/archive.key").display()))
            .run()?;
        Ok(Self {
            put: format!("{} wal put %p {}", tidelock.display(), dir.display()),
            get: format!("{} wal get %f %p {}", tidelock.display(), dir.display()),
            dir,
        })
    }
}

/// A configuration file for which a word of the page stands. Nothing is compressed, so that the
/// search for plaintext would find it.
fn configured(
    place: &Workspace,
    of: &Cluster<'_>,
    repository: &Path,
    word: &'static str,
    page: &mut Page<'_>,
    more: &str,
) -> Result<String> {
    let path = place.join(&format!("home/{word}.json"));
    let text = format!(
        "{{\"PGHOST\":\"{}\",\"PGUSER\":\"postgres\",\"WALG_FILE_PREFIX\":\"{}\",\
         \"WALG_COMPRESSION_METHOD\":\"none\"{more}}}",
        of.socket_dir().display(),
        repository.display()
    );
    place.write(&path, &text)?;
    page.word(word, path.display());
    Ok(path.display().to_string())
}

fn fill(cluster: &Cluster<'_>, n: u32, marker: &Marker) -> Result<()> {
    let word = marker.text();
    cluster
        .sql(&format!(
            "INSERT INTO t SELECT {n}, '{word}' FROM generate_series(1, 1000); CHECKPOINT"
        ))
        .map(drop)
}

/// Until all WAL of this moment is archived.
fn archived(cluster: &Cluster<'_>) -> Result<()> {
    let last = cluster.sql("SELECT pg_walfile_name(pg_switch_wal())")?;
    let asked = format!("SELECT last_archived_wal >= '{last}' FROM pg_stat_archiver");
    cluster.wait_for(&asked, "t")
}

/// Recovers from its archive: to its end, or to the restore point.
fn recovers(cluster: &Cluster<'_>, restore_command: &str, target: bool) -> Result<()> {
    cluster.listen_here()?;
    cluster.set("archive_mode", "off")?;
    cluster.set("restore_command", restore_command)?;
    if target {
        cluster.set("recovery_target_name", "here")?;
        cluster.set("recovery_target_action", "promote")?;
    }
    let signal = cluster.dir().join("recovery.signal");
    let place = cluster.workspace();
    let touch: Tool<'_> = place.tool("touch").arg(signal);
    touch.run()?;
    place.tool("chmod").arg("700").arg(cluster.dir()).run()?;
    cluster.start()?;
    cluster.wait_for("SELECT pg_is_in_recovery()", "f")
}

fn has_nothing_of(marker: &Marker, dir: &Path) -> Result<()> {
    let seen = marker.search(&[dir]).map_err(Error::io("searching"))?;
    ensure(seen.findings.is_empty() && seen.bytes > 1 << 20, || format!("{seen:?}"))
}

fn is_sealed(cluster: &Cluster<'_>, marker: &Marker) -> Result<()> {
    cluster.tidelock(&["verify", "-D"])?.arg(cluster.dir()).run()?;
    has_nothing_of(marker, cluster.dir())
}

//! What root's configuration does to servers: replicas that are built from nothing with keys of
//! their own, units of systemd, helper programs that get plain bytes.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tidelock_servers::{Bounded as _, skip};
use tidelock_testkit::pg::{Arm, BINDIR, Cluster, Error, Result, Workspace, ensure, fill_pgbench};
use tidelock_testkit::unit::{
    Etc, RunFiles, environment_of, is_plain_control, keyring_of, random_key,
};

/// Runs the service's own user in the second test: not the account of the other tests' agents.
const NOBODY: u32 = 65534;

#[test]
fn a_replica_is_built_from_nothing_with_keys_of_its_own_again_and_again() -> Result<()> {
    let place = Workspace::new()?;
    let primary = Cluster::started(&place, "primary", Arm::Sealed)?;
    fill_pgbench(&primary, 1)?;
    let standby = Cluster::at(&place, "standby", Arm::Sealed)?;
    let folder = place.make_dir("home/.config/tidelock")?;
    let keys = place.make_dir("home/recovery")?;
    let key = place.join("home/standby.key");
    fs::write(&key, random_key()).map_err(Error::io("writing a key"))?;
    secret(&place, &key)?;
    let file = folder.join("standby.toml");
    place.write(
        &file,
        &format!(
            "directory = \"{}\"\nprofile = \"postgres\"\nauto_init = true\nrecovery_folder = \
             \"{}\"\n\
             [[provider]]\ntype = \"file\"\npath = \"{}\"\n",
            standby.dir().display(),
            keys.display(),
            key.display()
        ),
    )?;
    secret(&place, &file)?;
    let mut seen = Vec::new();
    for round in 1..=2 {
        standby.backup_of(&primary, &["-R", "-X", "stream"])?;
        standby.start()?;
        primary
            .sql(&format!("CREATE TABLE t{round} AS SELECT g FROM generate_series(1, 100) g"))?;
        standby
            .wait_for(&format!("SELECT count(*) FROM pg_class WHERE relname = 't{round}'"), "1")?;
        standby.expect("SELECT count(*) FROM pgbench_accounts", "100000")?;
        let keyring = keyring_of(standby.dir())?;
        ensure(keyring != keyring_of(primary.dir())?, || "it has the primary's keyring".into())?;
        ensure(!seen.contains(&keyring), || "it has the keyring of the last one".into())?;
        seen.push(keyring);
        ensure(!is_plain_control(standby.dir())?, || "pg_control is plain".into())?;
        standby.tidelock(&["verify", "-D"])?.arg(standby.dir()).run()?;
        standby.stop("immediate")?;
        // Patroni removes the directory, and the keyring with it.
        fs::remove_dir_all(standby.dir()).map_err(Error::io("removing the replica"))?;
    }
    let recovery = fs::read_dir(&keys).map_err(Error::io("listing the recovery keys"))?.count();
    ensure(recovery == 2, || format!("{recovery} recovery keys"))?;
    // With data and without its keyring it is refused: it is lost, not new.
    standby.backup_of(&primary, &[])?;
    fs::rename(standby.dir().join(".tidelock"), place.join("home/lost"))
        .map_err(Error::io("losing the keyring"))?;
    let refused = standby.tool("pg_controldata").arg(standby.dir()).fails()?;
    ensure(refused.status.code() == Some(3) && refused.stderr.contains("and no keyring"), || {
        refused.text()
    })?;
    ensure(!standby.dir().join(".tidelock").exists(), || "it was made".into())
}

/// As Patroni does it: programs of PostgreSQL start below a unit whose environment was written
/// once, and none of them is started by `tidelock exec`.
#[test]
fn below_a_unit_a_replica_gets_a_keyring_whenever_there_is_none() -> Result<()> {
    let place = Workspace::new()?;
    if skip::unless_root("a file of /etc/tidelock") {
        return Ok(());
    }
    let primary = Cluster::started(&place, "primary", Arm::Sealed)?;
    fill_pgbench(&primary, 1)?;
    fs::set_permissions(primary.socket_dir(), fs::Permissions::from_mode(0o755))
        .map_err(Error::io("opening the primary's socket"))?;
    let home = tempfile::Builder::new().prefix("tl-").tempdir_in("/tmp");
    let home = home.map_err(Error::io("making a directory"))?;
    give(home.path(), 0o700)?;
    let dir = home.path().join("replica");
    let image = tempfile::tempdir().map_err(Error::io("making an image"))?;
    let unit = format!("tl-unit-{}", std::process::id());
    let key = home.path().join("key");
    fs::write(&key, random_key()).map_err(Error::io("writing a key"))?;
    give(&key, 0o600)?;
    let config = Etc::hold()?;
    let file = config.write(
        &unit,
        &format!(
            "directory = \"{}\"\nauto_init = true\nowner = \"nobody\"\naudit = \"file:{}\"\n\
             [[provider]]\ntype = \"file\"\npath = \"{}\"\n",
            dir.display(),
            home.path().join("audit.log").display(),
            key.display()
        ),
    )?;
    let programs = place.programs()?;
    let tidelock = |args: &[&str]| {
        let root = image.path().display().to_string();
        place.tool(&programs.command).as_ourselves().args(args).args(["--root", &root])
    };
    // The directory lies on this machine, and the unit's files in the image.
    let inside = image.path().join("etc/tidelock").join(format!("{unit}.toml"));
    fs::create_dir_all(inside.parent().unwrap_or(&inside)).map_err(Error::io("making /etc"))?;
    fs::copy(&file, &inside).map_err(Error::io("copying the configuration"))?;
    fs::create_dir_all(image.path().join(home.path().strip_prefix("/").unwrap_or(home.path())))
        .map_err(Error::io("making the image"))?;
    let told = tidelock(&["service", "install", &unit, "--iops", "5000"]).run()?.text();
    ensure(told.contains("to be made"), || told.clone())?;
    let environment = environment_of(&unit, image.path())?;
    let _run = RunFiles::beside(Path::new(&environment[1].1));
    // ExecStartPre of the unit, with nothing there.
    tidelock(&["service", "unlock", &unit]).run()?;
    let first = keyring_of(&dir)?;
    tidelock(&["service", "unlock", &unit]).run()?;
    ensure(first == keyring_of(&dir)?, || "another unlock made another keyring".into())?;

    let program = |name: &str| {
        let mut command = Command::new(Path::new(BINDIR).join(name));
        command.env_clear().envs(environment.iter().cloned()).env("LC_ALL", "C");
        command.uid(NOBODY).gid(NOBODY).current_dir("/");
        command
    };
    let mut seen = vec![first];
    for round in 1..=2 {
        let backup = run(program("pg_basebackup")
            .args(["-R", "-X", "stream", "-c", "fast", "-d", &primary.conninfo(), "-D"])
            .arg(&dir))?;
        ensure(backup.contains("keyring") == (round == 2), || backup.clone())?;
        let keyring = keyring_of(&dir)?;
        ensure(seen.contains(&keyring) == (round == 1), || format!("round {round}: {keyring}"))?;
        seen.push(keyring);
        ensure(!is_plain_control(&dir)?, || "pg_control is plain".into())?;
        let sockets = format!("-k {} -h ''", home.path().display());
        let log = home.path().join("log");
        let ctl = |what: &str| {
            run(program("pg_ctl")
                .arg("-D")
                .arg(&dir)
                .arg("-l")
                .arg(&log)
                .args(["-w", "-o", &sockets, what]))
            .map_err(|why| {
                Error::Unexpected(format!(
                    "{why}\n{}",
                    fs::read_to_string(&log).unwrap_or_default()
                ))
            })
        };
        ctl("start")?;
        let count = run(program("psql").args(["-U", "postgres", "-h"]).arg(home.path()).args([
            "-Atc",
            "SELECT count(*) FROM pgbench_accounts",
            "postgres",
        ]))?;
        ensure(count.trim() == "100000", || count.clone())?;
        ctl("stop")?;
        // At once: the agent of the keyring that is removed here is still alive.
        fs::remove_dir_all(&dir).map_err(Error::io("removing the replica"))?;
    }
    let removed = tidelock(&["service", "remove", &unit]).run()?.text();
    ensure(removed.contains("removed"), || removed.clone())
}

/// `archive_command` runs a small program of root's, which is not in the policy.
#[test]
fn a_helper_of_roots_configuration_archives_plain_bytes_and_nobody_else_does() -> Result<()> {
    let place = Workspace::new()?;
    if skip::unless_root("a helper in /etc/tidelock") {
        return Ok(());
    }
    let bin = tempfile::Builder::new().prefix("tl-helper-").tempdir_in("/tmp");
    let bin = bin.map_err(Error::io("making a directory"))?;
    let open = |path: &Path| {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(Error::io("chmod"))
    };
    open(bin.path())?;
    let copy = |to: PathBuf| -> Result<PathBuf> {
        fs::copy("/bin/cp", &to).map_err(Error::io("copying cp"))?;
        open(&to)?;
        Ok(to)
    };
    let helper = copy(bin.path().join("walcopy"))?;
    fs::create_dir(bin.path().join("other")).map_err(Error::io("making a directory"))?;
    let namesake = copy(bin.path().join("other/walcopy"))?;
    let theirs = copy(place.join("home/walcopy"))?;

    let cluster = Cluster::new(&place, "main", Arm::Sealed)?;
    let archive = place.make_dir("archive")?;
    cluster.set("archive_mode", "on")?;
    let name = format!("tl-helpers-{}", std::process::id());
    let head = format!("directory = \"{}\"\n", cluster.dir().display());
    let provider = format!(
        "[[provider]]\ntype = \"file\"\npath = \"{}\"\n",
        place.join("home/main.key").display()
    );
    let one_line = |path: &Path| format!("{head}helpers = [\"{}\"]\n{provider}", path.display());
    let config = Etc::hold()?;
    for (who, command, text, plain) in [
        ("without the line", &helper, format!("{head}{provider}"), Some(false)),
        ("with it", &helper, one_line(&helper), Some(true)),
        ("one of its name", &namesake, one_line(&helper), Some(false)),
        ("one that the server can replace", &theirs, one_line(&theirs), None),
    ] {
        config.write(&name, &text)?;
        cluster.set(
            "archive_command",
            &format!("{} %p {}/%f", command.display(), archive.display()),
        )?;
        cluster.start()?;
        let segment = cluster.sql(
            "CREATE TABLE IF NOT EXISTS t (a text); INSERT INTO t VALUES ('marker'); \
             SELECT pg_walfile_name(pg_current_wal_lsn())",
        )?;
        cluster.sql("SELECT pg_switch_wal()")?;
        if let Some(plain) = plain {
            cluster.wait_for(
                &format!("SELECT last_archived_wal >= '{segment}' FROM pg_stat_archiver"),
                "t",
            )?;
            let copied = archive.join(&segment);
            let bytes = fs::read(&copied).map_err(Error::io("reading the archive"))?;
            // XLOG_PAGE_MAGIC of PostgreSQL 15.
            ensure(bytes.starts_with(&[0x10, 0xd1]) == plain, || {
                format!("{who}: not as expected")
            })?;
            ensure(bytes.starts_with(b"\x89TDLK") != plain, || format!("{who}: not as expected"))?;
        } else {
            cluster.wait_for("SELECT failed_count > 0 FROM pg_stat_archiver", "t")?;
            let log = fs::read_to_string(cluster.log()).map_err(Error::io("reading the log"))?;
            ensure(log.contains("could be replaced by the user who runs it"), || {
                format!("{who}: the log says nothing of it")
            })?;
            ensure(!archive.join(&segment).exists(), || format!("{who}: it archived"))?;
            cluster.set("archive_command", "true")?;
        }
        cluster.stop("fast")?;
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<String> {
    let told = format!("{command:?}");
    let output = command.finish().map_err(Error::io(format!("running {told}")))?;
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    ensure(output.status.success(), || format!("{told}: {}\n{text}", output.status))?;
    Ok(text.into_owned())
}

/// The servers' account's alone.
fn secret(place: &Workspace, path: &Path) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(Error::io("chmod"))?;
    place.account().give(path)
}

fn give(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(Error::io("chmod"))?;
    chown(path, Some(NOBODY), Some(NOBODY)).map_err(Error::io("chown"))
}

//! What a node of a Galera cluster must be told before it starts sealed.
//!
//! A node that joins empties its directory, or lets a program of the donor write into it. So each
//! way of a state transfer is refused until it keeps the keyring and seals what comes. The provider
//! keeps write sets: below the directory (the library gives it memory), or in memory.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::statfs;

use super::settings::{RING, Settings, is_below};
use crate::console;
use crate::error::{Error, Result};

/// statfs(2): tmpfs and ramfs.
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];
/// The name of the ring, unless `gcache.name` says another.
const RING_NAME: &str = "galera.cache";
/// What the script of a transfer by rsync starts, and what must be sealed and opened there.
const BY_RSYNC: [&str; 2] = ["find", "rsync"];
/// The same for the binary log, if there is one.
const BY_TAR: &str = "tar";

/// Looks at a server's settings, and at the options of the group `sst`. `listed` are the programs
/// that get keys without being named; `None` if nobody can say before the keyring is open.
///
/// # Errors
/// [`Error::Refused`].
pub(super) fn check(
    settings: &Settings,
    datadir: &Path,
    roots: &[&Path],
    sst: impl FnOnce() -> Result<Vec<OsString>>,
    listed: Option<&[String]>,
) -> Result<()> {
    let Some(method) = settings.transfer() else { return Ok(()) };
    for (option, place) in settings.provider_places() {
        let path = datadir.join(place);
        refuse_disk(option, &path, roots)?;
        refuse_another_ring(option, &path, roots)?;
    }
    match method {
        "skip" | "mysqldump" => Ok(()),
        "mariabackup" => by_mariabackup(&sst()?, listed),
        "rsync" | "rsync_wan" => {
            refuse_deep_index(settings, datadir)?;
            by_rsync(settings, &sst()?, roots, listed)
        }
        _ => Err(Error::refused(
            format!("wsrep_sst_method is {method}, which was never tried with sealed files"),
            "mariabackup works, and rsync too: docs/engines/mariadb.md",
        )),
    }
}

/// Write sets are rows: a place outside of the directories must be in memory.
fn refuse_disk(option: &str, path: &Path, roots: &[&Path]) -> Result<()> {
    let on = path.ancestors().find_map(|above| statfs(above).ok());
    if is_below(path, roots) || on.is_some_and(|on| IN_MEMORY.contains(&on.f_type)) {
        return Ok(());
    }
    Err(Error::refused(
        format!("{option} is {}: write sets would lie there plain, on a disk", path.display()),
        format!("leave {option} away, or name a directory in memory, below /dev/shm"),
    ))
}

/// The library gives memory to the ring by its name alone; another file cannot be mapped.
fn refuse_another_ring(option: &str, path: &Path, roots: &[&Path]) -> Result<()> {
    if option != RING || path.ends_with(RING_NAME) || !is_below(path, roots) {
        return Ok(());
    }
    Err(Error::refused(
        format!("{option} is {}: only {RING_NAME} gets memory there", path.display()),
        format!("leave {option} away"),
    ))
}

fn by_mariabackup(sst: &[OsString], listed: Option<&[String]>) -> Result<()> {
    let keeps = |option: &OsString| {
        let option = option.as_bytes();
        option.starts_with(b"--cpat=") && option.windows(8).any(|part| part == b"tidelock")
    };
    if listed.is_none_or(|listed| lists(listed, "find")) || sst.iter().any(keeps) {
        return Ok(());
    }
    Err(Error::refused(
        "a state transfer of Galera would empty the directory, its keyring included",
        "`tidelock profile set -D DIR --program find`, or set cpat in [sst] so that it spares \
         .tidelock: docs/engines/mariadb.md",
    ))
}

/// Shells read and write the index of the binary log, which is plain at the top alone.
fn refuse_deep_index(settings: &Settings, datadir: &Path) -> Result<()> {
    for base in settings.binary_logs() {
        if !base.is_empty() && datadir.join(base).parent() != Some(datadir) {
            return Err(Error::refused(
                format!(
                    "the binary log is {}: its index is sealed there, and the shell of a transfer \
                     by rsync has no keys",
                    base.display()
                ),
                "name the log without a directory, or set wsrep_sst_method = mariabackup",
            ));
        }
    }
    Ok(())
}

fn by_rsync(
    settings: &Settings,
    sst: &[OsString],
    roots: &[&Path],
    listed: Option<&[String]>,
) -> Result<()> {
    let tar = settings.has_binary_log().then_some(BY_TAR);
    let needed: Vec<&str> = BY_RSYNC.into_iter().chain(tar).collect();
    let Some(listed) = listed else {
        console::warn(
            format!("a state transfer by rsync needs these listed: {}", needed.join(", ")),
            "`tidelock profile set` lists them; without keys they send sealed bytes, and may \
             remove a keyring: docs/engines/mariadb.md",
        );
        return refuse_sealed_notes(settings, sst, roots);
    };
    let missing: Vec<&str> = needed.into_iter().filter(|name| !lists(listed, name)).collect();
    if !missing.is_empty() {
        let options = missing.iter().map(|name| format!(" --program {name}")).collect::<String>();
        return Err(Error::refused(
            format!(
                "wsrep_sst_method is rsync, and {} would work without keys: sealed bytes would \
                 be sent, and a keyring removed or replaced",
                missing.join(", ")
            ),
            format!(
                "`tidelock profile set -D DIR{options}`, or wsrep_sst_method = mariabackup: \
                 docs/engines/mariadb.md"
            ),
        ));
    }
    refuse_sealed_notes(settings, sst, roots)
}

/// The script's shell lists the binary logs that came in a file of tmpdir, and shells have no keys.
/// The server's tmpdir counts first, then that of the group `sst`, then TMPDIR, which is sealed.
fn refuse_sealed_notes(settings: &Settings, sst: &[OsString], roots: &[&Path]) -> Result<()> {
    if !settings.has_binary_log() {
        return Ok(());
    }
    let mut of_sst = sst.iter().filter_map(|option| option.as_bytes().strip_prefix(b"--tmpdir="));
    let given = settings.tmpdir().map(OsStrExt::as_bytes).or_else(|| of_sst.next_back());
    let given = given.map(|place| Path::new(std::ffi::OsStr::from_bytes(place)));
    if given.is_some_and(|place| !is_below(place, roots)) {
        return Ok(());
    }
    Err(Error::refused(
        "with a binary log, the script of a transfer by rsync writes names of logs to tmpdir, \
         which is sealed, and its shell has no keys",
        "set tmpdir = /tmp in [sst], and no tmpdir for the server; it gets no rows",
    ))
}

fn lists(listed: &[String], name: &str) -> bool {
    listed.iter().any(|entry| entry.rsplit('/').next() == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(options: &[&str], sst: &[&str], listed: &[&str]) -> std::result::Result<(), String> {
        let all = ["--wsrep-on=ON"].iter().chain(options);
        let settings = Settings::of(&all.map(OsString::from).collect::<Vec<_>>());
        let sst = || Ok(sst.iter().map(OsString::from).collect());
        let listed: Vec<String> = listed.iter().map(|&name| name.to_owned()).collect();
        let (dir, roots) = (Path::new("/d"), [Path::new("/d")]);
        check(&settings, dir, &roots, sst, Some(&listed)).map_err(|why| why.to_string())
    }

    #[test]
    fn a_transfer_that_would_lose_the_keyring_is_refused() {
        let backup = "--wsrep-sst-method=mariabackup";
        assert!(node(&[backup], &[], &["mariadbd"]).unwrap_err().contains("keyring"));
        assert_eq!(node(&[backup], &[], &["find"]), Ok(()));
        assert_eq!(node(&[backup], &["--cpat=.*\\.tidelock$"], &[]), Ok(()));
        assert!(node(&[], &[], &["find"]).unwrap_err().contains("rsync would work without keys"));
        assert_eq!(node(&[], &[], &["find", "/usr/bin/rsync"]), Ok(()));
        assert!(node(&["--wsrep-sst-method=own"], &[], &["find"]).is_err());
    }

    #[test]
    fn a_binary_log_needs_tar_and_a_place_for_the_shells_notes() {
        let listed = ["find", "rsync", "tar"];
        assert!(node(&["--log-bin"], &["--tmpdir=/tmp"], &listed[..2]).is_err());
        assert_eq!(node(&["--log-bin"], &["--tmpdir=/tmp"], &listed), Ok(()));
        for (server, sst) in [("", &[][..]), ("", &["--tmpdir=/d/t"]), ("/d", &["--tmpdir=/tmp"])] {
            let server = format!("--tmpdir={server}");
            assert!(node(&["--log-bin", &server], sst, &listed).is_err(), "{server} {sst:?}");
        }
        for off in ["--skip-log-bin", "--disable-log-bin"] {
            assert_eq!(node(&["--log-bin=b", off], &[], &listed[..2]), Ok(()), "{off}");
        }
        for deep in [
            "--log-bin=binlog/b",
            "--log-bin=/e/b",
            "--log-bin-index=i/b.index",
            "--log-basename=/d/i/b",
        ] {
            let options = ["--log-bin", deep];
            let why = node(&options, &["--tmpdir=/tmp"], &listed).unwrap_err();
            assert!(why.contains("its index is sealed"), "{why}");
        }
        for top in ["--log-bin=b", "--log-bin=./b", "--log-bin=/d/b"] {
            assert_eq!(node(&[top], &["--tmpdir=/tmp"], &listed), Ok(()), "{top}");
        }
    }

    #[test]
    fn write_sets_lie_below_the_directory_or_in_memory() {
        let with = |options: &str| {
            let options = format!("--wsrep-provider-options={options}");
            let provider = "--wsrep-provider=/usr/lib/galera/libgalera_smm.so";
            node(&[&options, provider, "--wsrep-sst-method=skip"], &[], &[])
        };
        for good in [
            "",
            "gcache.size=2G",
            "gcache.dir=/dev/shm/x; gcs.fc_limit=1",
            "gcs.fc_limit=1;gcache.dir = /d/x",
            "base_dir=.",
            "gcache.name=galera.cache",
            "gcache.name=/d/x/galera.cache; gcache.dir=/dev/shm",
            "gcache.dir=/dev/shm;gcache.name=ring",
        ] {
            assert_eq!(with(good), Ok(()), "{good}");
        }
        for bad in [
            "gcache.dir=/usr/x",
            "gcs.fc_limit=1; gcache.dir = /usr",
            "base_dir=/usr",
            "gcache.name=/usr/galera.cache",
            "gcache.name=../ring",
            "gcache.dir=/dev/shm;gcache.name=/usr/ring",
        ] {
            assert!(with(bad).unwrap_err().contains("write sets"), "{bad}");
        }
        for other in ["gcache.name=ring", "gcache.name=/d/ring; gcache.dir=/dev/shm"] {
            assert!(with(other).unwrap_err().contains("only galera.cache"), "{other}");
        }
    }
}

//! The instance whose files are converted: which engine's it is, whether it was stopped cleanly,
//! and by which files a bare server knows it.

mod journals;

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use procfs::process::{Process, all_processes};
use rustix::fs::OFlags;
use tidelock_contract::Policy;
use tidelock_keyring::Keyring;

use crate::error::{Error, Result};
use crate::mysqld::{Brand, refuse_socket};
use crate::postgres::ControlFile;
use crate::sealed::Keys;
use crate::server::Server;
use crate::walk::{self, read_first};
use crate::whereabouts::{DELETED, used_below, works_below};

const CONTROL: &str = "global/pg_control";
/// Names the manifest of RocksDB and LevelDB, which open nothing without it.
const CURRENT: &str = "CURRENT";

/// The profile of an engine whose data directory this is, as far as it looks like one.
pub(super) fn profile(dir: &Path) -> Option<&'static str> {
    let is = |name: &str| dir.join(name).symlink_metadata().is_ok();
    if is("PG_VERSION") && is(CONTROL) {
        return Some("postgres");
    }
    Brand::of(dir).map(Brand::profile)
}

/// Whose rules hold for a directory: those of the engine that it looks like, whatever its profile
/// is called, else those of the profile.
pub(super) fn engine<'p>(dir: &Path, named: &'p str) -> &'p str {
    profile(dir).unwrap_or(named)
}

/// Files without which no server of the [`engine`] starts: sealed first and made plain last, so
/// that no bare server starts on a half-converted directory. Not all engines have such a file.
pub(super) fn gate(engine: &str) -> &'static [&'static str] {
    match engine {
        "postgres" => &[CONTROL],
        other => Brand::of_profile(other).map_or(&[CURRENT], Brand::gate),
    }
}

/// Refuses a directory that a server uses, or in which another process has a file open.
///
/// # Errors
/// [`Error::Refused`].
pub(super) fn refuse_running(dir: &Path) -> Result<()> {
    if let Server::Running { pid, .. } = Server::on(dir) {
        return Err(Error::refused(
            format!("a server runs on {}: process {pid}", dir.display()),
            "stop it first; a server that must not stop is converted by `tidelock migrate`",
        ));
    }
    if Brand::of(dir) == Some(Brand::MariaDb) {
        refuse_socket(dir)?;
    }
    match user_of(dir) {
        None => Ok(()),
        Some((pid, path)) => Err(Error::refused(
            format!("process {pid} has {} open or mapped", path.display()),
            "end that program first: what it writes would be lost",
        )),
    }
}

/// Refuses as [`refuse_running`], and keeps a bare server out until the files are closed: a MariaDB
/// that systemd starts for the next client, and that has capabilities, shows its open files to root
/// alone.
///
/// # Errors
/// As [`refuse_running`].
pub(super) fn lock_out(dir: &Path) -> Result<Vec<File>> {
    refuse_running(dir)?;
    let Some(brand) = Brand::of(dir) else { return Ok(Vec::new()) };
    let mut locked = Vec::new();
    for path in brand.locked().map(|name| dir.join(name)) {
        // The server's user may have put anything there, and root would open it.
        let file = match walk::open_file(&path, OFlags::RDWR | OFlags::NOFOLLOW) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => continue,
            opened => opened.map_err(Error::io("open", &path))?,
        };
        match tidelock_ffi::lock_whole(file.as_fd()) {
            Ok(()) => locked.push(file),
            Err(why) if why.kind() == io::ErrorKind::WouldBlock => {
                return Err(Error::refused(
                    format!("a server has {} locked", path.display()),
                    "stop it first: what it writes would be lost",
                ));
            }
            Err(why) => return Err(Error::io("lock", path)(why)),
        }
    }
    Ok(locked)
}

/// Another process that has a file below `dir` open or mapped, as far as the caller may see it.
pub(super) fn user_of(dir: &Path) -> Option<(i32, PathBuf)> {
    let me = std::process::id().cast_signed();
    let others = all_processes().into_iter().flatten().flatten().filter(|one| one.pid != me);
    others.into_iter().find_map(|process| {
        let path = used_below(&process, dir).next()?;
        Some((process.pid, path))
    })
}

/// Refuses a directory in which a listed program works, though it has no file of it open: Redis
/// writes a dump from time to time, under another name, and renames it over the sealed one.
///
/// # Errors
/// [`Error::Refused`], but for processes that are `spared`.
pub(super) fn refuse_working(
    dir: &Path,
    policy: &Policy,
    spared: &dyn Fn(&Process) -> bool,
) -> Result<()> {
    let me = std::process::id().cast_signed();
    for process in all_processes().into_iter().flatten().flatten().filter(|one| one.pid != me) {
        let Ok(program) = process.exe() else { continue };
        // One that was replaced by an upgrade, too.
        let path = program.as_os_str().as_bytes();
        let path = path.strip_suffix(DELETED.as_bytes()).unwrap_or(path);
        if policy.lists(path) && works_below(&process, dir) && !spared(&process) {
            return Err(Error::refused(
                format!(
                    "{}, process {}, works in {}",
                    program.display(),
                    process.pid,
                    dir.display()
                ),
                "end it, or run it from elsewhere: what it writes here later would be plain",
            ));
        }
    }
    Ok(())
}

/// Refuses what was not stopped cleanly: recovery needs the files as they are. `named` is the
/// profile, which counts where the directory does not show whose it is.
///
/// # Errors
/// [`Error::Refused`]; [`Error::Io`].
pub(super) fn refuse_unclean(dir: &Path, named: &str, keys: Option<&Keys>) -> Result<()> {
    let engine = engine(dir, named);
    if engine != "postgres" {
        return match Brand::of_profile(engine) {
            Some(brand) => brand.refuse_unclean(dir),
            None => journals::refuse_left(dir, keys),
        };
    }
    let Some(control) = control(dir, keys)? else {
        return Err(Error::refused(
            format!(
                "{} cannot be read as a control file of PostgreSQL",
                dir.join(CONTROL).display()
            ),
            "name the data directory of a server of version 13 to 18",
        ));
    };
    if control.is_clean() {
        return Ok(());
    }
    Err(Error::refused(
        format!("the server on {} was not stopped cleanly: {}", dir.display(), control.state),
        "start it, let it recover, and stop it with `pg_ctl stop -m fast`",
    ))
}

/// As [`refuse_unclean`], of a protected directory.
///
/// # Errors
/// As [`refuse_unclean`].
pub(super) fn refuse_unclean_sealed(dir: &Path, keyring: &Keyring) -> Result<()> {
    refuse_unclean(dir, keyring.policy().profile(), Some(&Keys::install(keyring)?))
}

/// The control file, in whichever form it has.
fn control(dir: &Path, keys: Option<&Keys>) -> Result<Option<ControlFile>> {
    if let Some(found) = keys.and_then(|keys| ControlFile::read(dir, keys)) {
        return Ok(Some(found));
    }
    let path = dir.join(CONTROL);
    let file = File::open(&path).map_err(Error::io("open", &path))?;
    let mut bytes = [0u8; 4096];
    let count = read_first(&file, &mut bytes).map_err(Error::io("read", &path))?;
    Ok(ControlFile::parse(bytes.get(..count).unwrap_or_default()))
}

/// Refuses what would not fit: how much each file system must have free.
///
/// # Errors
/// [`Error::Refused`]; [`Error::Io`].
pub(super) fn refuse_full(needs: &[(PathBuf, u64)]) -> Result<()> {
    for (path, needed) in needs {
        let found = rustix::fs::statvfs(path)
            .map_err(|errno| Error::io("look at the space around", path)(errno.into()))?;
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        if free < *needed {
            return Err(Error::refused(
                format!(
                    "the file system of {} has {} free, and {} are needed",
                    path.display(),
                    crate::console::bytes(free),
                    crate::console::bytes(*needed)
                ),
                "make room: one file at a time needs that much",
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_profile_of_any_name_leaves_an_engine_its_gate_and_its_recovery() {
        let home = tempfile::tempdir().unwrap();
        let place = |name: &str, files: &[&str]| {
            let dir = home.path().join(name);
            for file in files.iter().map(|file| dir.join(file)) {
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, "").unwrap();
            }
            dir
        };
        let postgres = place("p", &["PG_VERSION", CONTROL]);
        let mariadb = place("m", &["aria_log_control", "mysql/t.frm", "ddl_recovery.log"]);
        let mysql = place("s", &["ibdata1", "mysql.ibd", "ibtmp1"]);
        for named in ["./pg.toml", "my-maria", "generic"] {
            for (dir, file) in
                [(&postgres, CONTROL), (&mariadb, "aria_log_control"), (&mysql, "mysql.ibd")]
            {
                assert!(gate(engine(dir, named)).contains(&file), "{named} {file}");
                assert!(refuse_unclean(dir, named, None).is_err(), "{named} {file}");
            }
        }
        let other = place("o", &["a"]);
        assert_eq!(engine(&other, "mysql"), "mysql");
        for named in ["rocksdb", "generic", "./x"] {
            assert_eq!(gate(engine(&other, named)), [CURRENT], "{named}");
        }
        refuse_unclean(&other, "./x", None).unwrap();
    }
}

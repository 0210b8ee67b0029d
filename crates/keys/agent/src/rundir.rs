//! The directory of sockets: the caller's alone, or refused.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use tidelock_contract::control::programs_beside;
use tidelock_format::KeyringId;

use crate::error::Error;

/// Names the directory instead of all others.
const VARIABLE: &str = "TIDELOCK_RUN_DIR";
/// Of root; below it a directory for each user.
const RUN: &str = "/run/tidelock";
/// The address of a socket has no more bytes.
const MAX_SOCKET_PATH: usize = 107;

/// A directory of mode 0700 that belongs to the caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunDir {
    path: PathBuf,
}

impl RunDir {
    /// $TIDELOCK_RUN_DIR if it is set; else the first of /run/tidelock/UID,
    /// ~/.local/state/tidelock/run, $XDG_RUNTIME_DIR/tidelock and /tmp/tidelock-UID that exists or
    /// can be made. One that is not the caller's alone is an error, not a reason to try the next;
    /// of a home whose path is too long for a socket, or has a colon, nothing is tried.
    ///
    /// A server outlives the login that started it, and systemd removes $XDG_RUNTIME_DIR at the end
    /// of a user's last login: the home comes first.
    ///
    /// Whoever sets the environment of `tidelock` also says by TIDELOCK_AGENT where programs look
    /// for an agent, so the variable gives away nothing. Only in /tmp may somebody else be first,
    /// and so stop the caller: it serves those alone who have no home.
    ///
    /// # Errors
    /// [`Error::LooseRunDir`], [`Error::NoRunDir`]; [`Error::Io`] if the named one cannot be made.
    pub fn choose() -> Result<Self, Error> {
        if let Some(named) = std::env::var_os(VARIABLE) {
            return Self::named(Path::new(&named));
        }
        let (xdg, home) = (std::env::var_os("XDG_RUNTIME_DIR"), std::env::var_os("HOME"));
        Self::choose_from(Path::new(RUN), xdg, home, Path::new("/tmp"))
    }

    fn choose_from(
        run: &Path,
        xdg: Option<OsString>,
        home: Option<OsString>,
        tmp: &Path,
    ) -> Result<Self, Error> {
        let uid = rustix::process::geteuid();
        if uid.is_root() {
            let _ = make_for_all(run);
        }
        let mut candidates = Vec::new();
        if is_roots(run) {
            candidates.push(run.join(uid.as_raw().to_string()));
        }
        if let Some(home) = home.map(PathBuf::from).filter(|path| path.is_absolute()) {
            let state = home.join(".local/state/tidelock");
            let path = state.join("run");
            if home.is_dir() && fits(&path) && !has_colon(&path) {
                // What is wrong with it shows when its folder is made.
                let _ = DirBuilder::new().recursive(true).mode(0o700).create(state);
                candidates.push(path);
            }
        }
        if let Some(xdg) = xdg.map(PathBuf::from).filter(|path| path.is_absolute()) {
            candidates.push(xdg.join("tidelock"));
        }
        candidates.push(tmp.join(format!("tidelock-{}", uid.as_raw())));
        let mut tried = Vec::new();
        for path in candidates {
            match Self::at(&path) {
                Err(Error::Io { source, .. }) => {
                    tried.push(format!("{}: {source}", path.display()))
                }
                decided => return decided,
            }
        }
        Err(Error::NoRunDir { tried: tried.join("; ") })
    }

    fn named(path: &Path) -> Result<Self, Error> {
        if path.is_absolute() {
            return Self::at(path);
        }
        Err(Error::LooseRunDir {
            path: path.into(),
            why: "TIDELOCK_RUN_DIR needs an absolute path",
        })
    }

    /// The directory of another user, for root: /run/tidelock/UID, made for that user.
    ///
    /// # Errors
    /// [`Error::LooseRunDir`], [`Error::Io`].
    pub fn of_user(uid: u32, gid: u32) -> Result<Self, Error> {
        make_for_all(Path::new(RUN)).map_err(Error::io("make", RUN))?;
        let refuse = |why| Err(Error::LooseRunDir { path: RUN.into(), why });
        if !is_roots(Path::new(RUN)) {
            return refuse("it is not root's alone");
        }
        let mode = fs::metadata(RUN).map_err(Error::io("look at", RUN))?.permissions().mode();
        if mode & 0o001 == 0 {
            return refuse("others cannot enter it: chmod 755");
        }
        let path = Path::new(RUN).join(uid.to_string());
        match DirBuilder::new().mode(0o700).create(&path) {
            // Nobody but root can have put anything here.
            Ok(()) => chown(&path, Some(uid), Some(gid)).map_err(Error::io("chown", &path))?,
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {}
            Err(why) => return Err(Error::io("make", &path)(why)),
        }
        Self::checked(&path, uid)
    }

    /// This directory, which is made if it does not exist.
    ///
    /// # Errors
    /// [`Error::LooseRunDir`], [`Error::Io`].
    pub fn at(path: &Path) -> Result<Self, Error> {
        match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => {}
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(Error::Io { what: "make", path: path.into(), source }),
        }
        Self::checked(path, rustix::process::geteuid().as_raw())
    }

    /// This directory, which a user has already.
    ///
    /// # Errors
    /// [`Error::LooseRunDir`], [`Error::Io`].
    pub fn existing(path: &Path, uid: u32) -> Result<Self, Error> {
        Self::checked(path, uid)
    }

    fn checked(path: &Path, uid: u32) -> Result<Self, Error> {
        let found = fs::symlink_metadata(path).map_err(Error::io("look at", path))?;
        let refuse = |why| Err(Error::LooseRunDir { path: path.into(), why });
        if !found.is_dir() {
            return refuse("it is not a directory");
        }
        if found.uid() != uid {
            return refuse("it belongs to somebody else");
        }
        // The set-group-ID bit comes from the folder above (a volume of Kubernetes, a home), and
        // gives nobody a right; `chmod 700` keeps it.
        if found.permissions().mode() & 0o777 != 0o700 {
            return refuse("its mode is not 0700");
        }
        if !fits(path) {
            return refuse("its path is too long for a socket");
        }
        if has_colon(path) {
            return refuse("its path has a colon, at which TIDELOCK_AGENT ends a socket's path");
        }
        Ok(Self { path: path.into() })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The socket of a keyring's agent.
    #[must_use]
    pub fn socket(&self, keyring: KeyringId) -> PathBuf {
        self.path.join(format!("{keyring}.sock"))
    }

    /// The listed programs, one a line: the library's pre-filter.
    #[must_use]
    pub fn programs(&self, keyring: KeyringId) -> PathBuf {
        programs_beside(&self.socket(keyring))
    }

    /// The audit log.
    #[must_use]
    pub fn audit(&self, keyring: KeyringId) -> PathBuf {
        self.path.join(format!("{keyring}.audit.log"))
    }

    /// Locked by the agent while it lives.
    pub(crate) fn lock(&self, keyring: KeyringId) -> PathBuf {
        self.path.join(format!("{keyring}.lock"))
    }
}

/// Makes a folder that all may enter, whatever the umask says: MariaDB's unit has `UMask=007`, and
/// systemd gives it to commands that run as root too.
pub(crate) fn make_for_all(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o755).create(folder) {
        Ok(()) => fs::set_permissions(folder, fs::Permissions::from_mode(0o755)),
        Err(why) if why.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(why) => Err(why),
    }
}

/// ID.sock has 37 bytes, and a slash before them.
fn fits(path: &Path) -> bool {
    path.as_os_str().len() + 38 <= MAX_SOCKET_PATH
}

fn has_colon(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().contains(&b':')
}

/// Nobody but root may put directories of users here, unless each may only touch its own.
fn is_roots(run: &Path) -> bool {
    fs::symlink_metadata(run).is_ok_and(|found| {
        let mode = found.permissions().mode();
        found.is_dir() && found.uid() == 0 && (mode & 0o022 == 0 || mode & 0o1000 != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_others_can_enter_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("run");
        assert!(RunDir::at(&path).is_ok());
        assert!(RunDir::at(&path).is_ok());
        for mode in [0o755, 0o710, 0o2770, 0o777] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(matches!(RunDir::at(&path), Err(Error::LooseRunDir { .. })), "{mode:o}");
        }
    }

    #[test]
    fn a_directory_that_inherits_the_set_group_id_bit_is_taken() {
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o2755)).unwrap();
        let path = home.path().join("run");
        RunDir::at(&path).unwrap();
        // A file system may not hand the bit down.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o2700)).unwrap();
        RunDir::at(&path).unwrap();
    }

    /// A umask is a process's: the test's own, for the moment of one call.
    #[test]
    fn the_umask_of_a_unit_does_not_shut_others_out() {
        let home = tempfile::tempdir().unwrap();
        let run = home.path().join("run");
        let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        let made = make_for_all(&run);
        rustix::process::umask(before);
        made.unwrap();
        assert_eq!(fs::metadata(&run).unwrap().permissions().mode() & 0o7777, 0o755);
        make_for_all(&run).unwrap();
    }

    #[test]
    fn a_link_or_a_file_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let (real, link, file) =
            (home.path().join("real"), home.path().join("link"), home.path().join("file"));
        RunDir::at(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        fs::write(&file, "").unwrap();
        assert!(matches!(RunDir::at(&link), Err(Error::LooseRunDir { .. })));
        assert!(matches!(RunDir::at(&file), Err(Error::LooseRunDir { .. })));
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("x".repeat(80));
        assert!(matches!(RunDir::at(&path), Err(Error::LooseRunDir { .. })));
    }

    #[test]
    fn a_path_that_would_be_taken_for_two_sockets_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a:b");
        let refused = RunDir::at(&path).unwrap_err().to_string();
        assert!(refused.contains("a:b") && refused.contains("a colon"), "{refused}");
        // Who lives there has another.
        let none = home.path().join("no/run");
        let chosen = RunDir::choose_from(&none, None, Some(path.into()), home.path()).unwrap();
        assert_eq!(chosen.path().parent(), Some(home.path()));
    }

    /// One that is named is taken or refused: no other is tried.
    #[test]
    fn a_named_directory_is_checked_as_all_are() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("run");
        assert_eq!(RunDir::named(&path).unwrap().path(), path);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        for path in [path.as_path(), Path::new("run"), Path::new("")] {
            assert!(matches!(RunDir::named(path), Err(Error::LooseRunDir { .. })), "{path:?}");
        }
        let missing = home.path().join("no/run");
        assert!(matches!(RunDir::named(&missing), Err(Error::Io { .. })));
    }

    /// In /tmp everybody may be first.
    #[test]
    fn whoever_makes_the_folder_in_tmp_first_stops_nobody_who_has_a_home() {
        let home = tempfile::tempdir().unwrap();
        let (none, tmp) = (home.path().join("no/run"), home.path().join("tmp"));
        fs::create_dir(&tmp).unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let squatted = tmp.join(format!("tidelock-{uid}"));
        DirBuilder::new().mode(0o777).create(&squatted).unwrap();
        fs::set_permissions(&squatted, fs::Permissions::from_mode(0o777)).unwrap();
        let own = home.path().join("home");
        fs::create_dir(&own).unwrap();
        let chosen = RunDir::choose_from(&none, None, Some(own.clone().into()), &tmp).unwrap();
        assert_eq!(chosen.path(), own.join(".local/state/tidelock/run"));
        // Without a home, or with one that is too long for a socket, nothing else is left.
        let long = home.path().join("x".repeat(80));
        for home in [None, Some(long.into())] {
            let refused = RunDir::choose_from(&none, None, home, &tmp);
            assert!(matches!(refused, Err(Error::LooseRunDir { .. })));
        }
    }

    /// systemd removes that of a login when the user's last one ends; the server goes on.
    #[test]
    fn the_home_comes_before_a_folder_that_goes_with_the_last_login() {
        let above = tempfile::tempdir().unwrap();
        let (none, home, xdg) =
            (above.path().join("no/run"), above.path().join("home"), above.path().join("xdg"));
        fs::create_dir(&home).unwrap();
        DirBuilder::new().mode(0o700).create(&xdg).unwrap();
        let choose = |home: &Path| {
            RunDir::choose_from(&none, Some((&xdg).into()), Some(home.into()), above.path())
        };
        assert_eq!(choose(&home).unwrap().path(), home.join(".local/state/tidelock/run"));
        // Such as that of an account without one.
        assert_eq!(choose(&above.path().join("none")).unwrap().path(), xdg.join("tidelock"));
    }

    #[test]
    fn the_next_place_is_taken_only_if_one_cannot_be_made() {
        let home = tempfile::tempdir().unwrap();
        let (run, xdg) = (home.path().join("no/run"), home.path().join("xdg"));
        let choose = |xdg: &Path| RunDir::choose_from(&run, Some(xdg.into()), None, home.path());
        let chosen = choose(&xdg).unwrap();
        let uid = rustix::process::geteuid().as_raw();
        assert_eq!(chosen.path(), home.path().join(format!("tidelock-{uid}")));
        DirBuilder::new().mode(0o700).create(&xdg).unwrap();
        let chosen = choose(&xdg).unwrap();
        assert_eq!(chosen.path(), xdg.join("tidelock"));
        fs::set_permissions(chosen.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let loose = choose(&xdg);
        assert!(matches!(loose, Err(Error::LooseRunDir { .. })));
    }
}

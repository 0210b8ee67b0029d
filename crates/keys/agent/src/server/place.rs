//! Where an agent is found: its lock, its socket, and what it writes beside them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use tidelock_format::KeyringId;

use crate::error::Error;
use crate::rundir::RunDir;

/// The lock that makes this the only agent of the keyring.
pub(super) fn lock(run_dir: &RunDir, keyring: KeyringId) -> Result<File, Error> {
    let path = run_dir.lock(keyring);
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
        .open(&path)
        .map_err(Error::io("open", &path))?;
    tidelock_keyring::check_unshared(&file, &path, rustix::process::geteuid().as_raw())?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(Error::AlreadyRunning { keyring }),
        Err(errno) => Err(Error::sys("lock", path)(errno)),
    }
}

/// Listens; device and inode of the socket. The lock is held, so a socket that is there is a dead
/// agent's.
pub(super) fn listen_at(path: &Path) -> Result<(OwnedFd, (u64, u64)), Error> {
    let failed = |errno| Error::sys("listen at", path)(errno);
    match fs::remove_file(path) {
        Ok(()) => {}
        Err(why) if why.kind() == io::ErrorKind::NotFound => {}
        Err(why) => return Err(Error::io("remove", path)(why)),
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(failed)?;
    bind(&listener, &SocketAddrUnix::new(path).map_err(failed)?).map_err(failed)?;
    listen(&listener, 256).map_err(failed)?;
    let made = fs::symlink_metadata(path).map_err(Error::io("look at", path))?;
    Ok((listener, (made.dev(), made.ino())))
}

/// Writes a file of mode 0600 whole, in place of an older one. The folder may be on a disk: after a
/// power cut a name without its bytes would say that no program is listed.
pub(super) fn write_beside(path: &Path, text: &[u8]) -> Result<(), Error> {
    let mut next = path.as_os_str().to_owned();
    next.push(".new");
    let write = || {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&next)?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(&next, path)
    };
    write().map_err(Error::io("write", path))
}

//! How to start an agent where none is alive: the file ID.start beside the socket.
//!
//! ```text
//!   /usr/local/bin/tidelock      the program that was the agent
//!   /srv/data                    the protected directory
//! ```
//!
//! It stays when the agent ends. The library runs `PROGRAM agent start SOCKET DIRECTORY` then, so
//! the file is believed only if nobody but its reader or root can have written it.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat};
use rustix::io::Errno;

use crate::control::starter_beside;

/// Two paths are no longer.
const MAX: usize = 2 * 4096 + 2;

/// How to start an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Starter {
    /// The command `tidelock`.
    pub program: PathBuf,
    /// The protected directory, canonical.
    pub directory: PathBuf,
}

/// Why what lies there is not believed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StarterError {
    /// A call to the system failed.
    #[error("cannot open {}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// It may be somebody else's, or is something else.
    #[error("{} is refused: {why}", .path.display())]
    Loose {
        /// The file.
        path: PathBuf,
        /// What is loose.
        why: &'static str,
    },
}

impl Starter {
    /// What lies beside `socket`; `None` if nothing does.
    ///
    /// # Errors
    /// [`StarterError::Loose`] if somebody else may have written it; [`StarterError::Io`].
    pub fn beside(socket: &Path) -> Result<Option<Self>, StarterError> {
        let path = starter_beside(socket);
        let loose = |why| StarterError::Loose { path: path.clone(), why };
        let failed = |errno: Errno| StarterError::Io { path: path.clone(), source: errno.into() };
        let folder = path.parent().ok_or_else(|| loose("it is in no directory"))?;
        // By descriptors, so that what is checked is what is read.
        let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = match openat(CWD, folder, flags | OFlags::DIRECTORY, Mode::empty()) {
            Ok(folder) => folder,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(failed(errno)),
        };
        let name = path.file_name().unwrap_or_default();
        let file = match openat(&folder, name, flags | OFlags::NONBLOCK, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(failed(errno)),
        };
        let (folder, found) = (fstat(&folder).map_err(failed)?, fstat(&file).map_err(failed)?);
        if !FileType::from_raw_mode(found.st_mode).is_file() {
            return Err(loose("it is not a regular file"));
        }
        if !is_ours(&found) || !is_ours(&folder) {
            return Err(loose("somebody else may have written it"));
        }
        let mut bytes = vec![0; MAX];
        let mut length = 0;
        while length < MAX {
            match rustix::io::read(&file, &mut bytes[length..]) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        bytes.truncate(length);
        Self::parse(&bytes).map(Some).ok_or_else(|| loose("it is not two absolute paths"))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut lines = bytes.strip_suffix(b"\n")?.split(|byte| *byte == b'\n').map(|line| {
            let path = PathBuf::from(OsStr::from_bytes(line));
            (path.is_absolute() && !line.contains(&0)).then_some(path)
        });
        let (program, directory) = (lines.next()??, lines.next()??);
        lines.next().is_none().then_some(Self { program, directory })
    }

    /// The file's content.
    ///
    /// # Errors
    /// A path with a line break cannot be written.
    pub fn encode(&self) -> io::Result<Vec<u8>> {
        let mut text = Vec::new();
        for path in [&self.program, &self.directory] {
            let path = path.as_os_str().as_bytes();
            if path.contains(&b'\n') {
                return Err(io::Error::other("a path has a line break"));
            }
            text.extend_from_slice(path);
            text.push(b'\n');
        }
        Ok(text)
    }
}

/// Written by nobody but this user or root.
fn is_ours(found: &Stat) -> bool {
    let me = rustix::process::geteuid().as_raw();
    (found.st_uid == me || found.st_uid == 0) && found.st_mode & 0o022 == 0
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn what_is_written_is_found_and_what_others_may_write_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let (socket, path) = (home.path().join("x.sock"), home.path().join("x.start"));
        assert_eq!(Starter::beside(&socket).unwrap(), None);
        let starter = Starter { program: "/bin/tidelock".into(), directory: "/data".into() };
        fs::write(&path, starter.encode().unwrap()).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(Starter::beside(&socket).unwrap(), Some(starter));
        let refused = || matches!(Starter::beside(&socket), Err(StarterError::Loose { .. }));
        for mode in [0o620, 0o602] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert!(refused(), "{mode:o}");
        }
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(home.path(), Permissions::from_mode(0o770)).unwrap();
        assert!(refused());
        fs::set_permissions(home.path(), Permissions::from_mode(0o700)).unwrap();
        fs::rename(&path, home.path().join("elsewhere")).unwrap();
        symlink("elsewhere", &path).unwrap();
        assert!(Starter::beside(&socket).is_err());
    }

    #[test]
    fn anything_but_two_absolute_paths_is_refused() {
        for text in ["", "\n", "/a\n", "/a\n/b", "/a\nb\n", "a\n/b\n", "/a\n/b\n/c\n", "/a\0\n/b\n"]
        {
            assert_eq!(Starter::parse(text.as_bytes()), None, "{text:?}");
        }
        let broken = Starter { program: "/a".into(), directory: "/b\nc".into() };
        assert!(broken.encode().is_err());
    }
}

//! Opens what a walk has found, and nothing that took its name since.
//!
//! Hours may lie between both. A pipe would hold the caller for ever, and a link may lead to
//! anything: neither is followed or waited for. The folders above a name are not pinned: what comes
//! in by one that was moved is another file, and told by device and inode.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{Mode, OFlags, open as open_flags};

use crate::walk::Found;

/// Why a file is not open.
#[derive(Debug)]
pub(super) enum Unopened {
    /// Nothing has its name.
    Gone,
    /// Something else has its name.
    Changed,
    /// The system does not let us.
    Failed(io::Error),
}

/// The file that was found.
///
/// # Errors
/// [`Unopened`].
pub(super) fn open(found: &Found) -> Result<File, Unopened> {
    let mut flags = OFlags::PATH | OFlags::CLOEXEC;
    if !found.link {
        flags |= OFlags::NOFOLLOW;
    }
    // Some devices do something when they are opened, so what is there is held and looked at first.
    let held = open_flags(found.path.as_path(), flags, Mode::empty());
    let held = File::from(held.map_err(|errno| missed(errno.into()))?);
    same(found, &held.metadata().map_err(Unopened::Failed)?)?;
    let path = format!("/proc/self/fd/{}", held.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = open_flags(path, flags, Mode::empty());
    file.map(File::from).map_err(|errno| Unopened::Failed(errno.into()))
}

/// What was found is a regular file.
fn same(found: &Found, there: &Metadata) -> Result<(), Unopened> {
    let listed = &found.metadata;
    let is_it = there.is_file() && (there.dev(), there.ino()) == (listed.dev(), listed.ino());
    if is_it { Ok(()) } else { Err(Unopened::Changed) }
}

/// A folder on the way may be a file now.
fn missed(why: io::Error) -> Unopened {
    match why.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Unopened::Gone,
        _ => Unopened::Failed(why),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::path::Path;

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;
    use crate::walk::files;

    fn found(dir: &Path) -> Vec<Found> {
        files(dir, &mut |path, why| panic!("{}: {why}", path.display()))
    }

    #[test]
    fn what_took_the_name_of_a_file_is_neither_opened_nor_waited_for() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("data");
        fs::create_dir(&dir).unwrap();
        let names = ["fifo", "folder", "link", "other", "removed", "same", "socket"];
        for name in names {
            fs::write(dir.join(name), name).unwrap();
        }
        let found = found(&dir);
        assert_eq!(found.len(), names.len());
        for name in names.iter().filter(|name| **name != "same") {
            // The inode stays taken, so that no other file gets it.
            fs::rename(dir.join(name), home.path().join(name)).unwrap();
        }
        mknodat(CWD, dir.join("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        fs::create_dir(dir.join("folder")).unwrap();
        symlink("same", dir.join("link")).unwrap();
        fs::write(dir.join("other"), "another file").unwrap();
        let _socket = UnixListener::bind(dir.join("socket")).unwrap();
        for found in &found {
            match (found.name.to_str().unwrap(), open(found)) {
                ("same", Ok(_)) | ("removed", Err(Unopened::Gone)) => {}
                ("same" | "removed", other) => panic!("{}: {other:?}", found.name.display()),
                (_, Err(Unopened::Changed)) => {}
                (name, other) => panic!("{name}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_link_is_followed_only_to_the_file_that_was_found_there() {
        let home = tempfile::tempdir().unwrap();
        let (dir, far) = (home.path().join("data"), home.path().join("far"));
        fs::create_dir(&dir).unwrap();
        fs::write(&far, "far").unwrap();
        symlink(&far, dir.join("link")).unwrap();
        let found = found(&dir);
        let link = found.first().unwrap();
        assert!(link.link && open(link).is_ok());
        fs::rename(&far, home.path().join("kept")).unwrap();
        assert!(matches!(open(link), Err(Unopened::Gone)));
        fs::write(&far, "another file").unwrap();
        assert!(matches!(open(link), Err(Unopened::Changed)));
    }
}

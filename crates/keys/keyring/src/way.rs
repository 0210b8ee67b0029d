//! The way down to a folder, walked a name at a time, for what root does in folders of others.
//!
//! Whoever owns a folder may put a link in place of anything in it, at any moment. So nothing is
//! looked up twice, and a link on the way counts only where nobody but root and the caller can have
//! put it. What is made or opened in the folder is the matter of whoever asked for it.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat};
use rustix::io::Errno;

/// As many as the kernel follows.
const MAX_LINKS: u32 = 40;

/// Why a way was not walked to its end.
#[derive(Debug)]
pub enum Blocked {
    /// This is a link that somebody else can change.
    Link(PathBuf),
    /// The system's reason: of the kind `NotFound` or `NotADirectory` if there is no folder.
    System(io::Error),
}

impl From<Errno> for Blocked {
    fn from(errno: Errno) -> Self {
        Self::System(errno.into())
    }
}

/// Opens the folder at `path` for reading; it, and where it is: absolute, without links.
///
/// # Errors
/// [`Blocked`].
pub fn walk(path: &Path) -> Result<(File, PathBuf), Blocked> {
    let mut way = Way::begin(path)?;
    let mut ahead: VecDeque<OsString> = names(path).collect();
    let mut links = 0;
    while let Some(name) = ahead.pop_front() {
        if name == ".." {
            way.up()?;
            continue;
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let next = openat(&way.fd, &name, flags, Mode::empty())?;
        let found = fstat(&next)?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => way.down(next, &name),
            FileType::Symlink => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::LOOP.into());
                }
                if !is_safe_link(&found, &fstat(&way.fd)?) {
                    return Err(Blocked::Link(way.path.join(&name)));
                }
                let target = readlinkat(&next, "", Vec::new())?;
                let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                if target.is_absolute() {
                    way = Way::begin(&target)?;
                }
                for name in names(&target).collect::<Vec<_>>().into_iter().rev() {
                    ahead.push_front(name);
                }
            }
            _ => return Err(Errno::NOTDIR.into()),
        }
    }
    // Only now for reading: the folders on the way may be closed to lists.
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let file = openat(&way.fd, ".", flags, Mode::empty())?;
    Ok((file.into(), way.path))
}

/// How far one has come: a folder that may be closed to lists, and its path without links.
struct Way {
    fd: OwnedFd,
    path: PathBuf,
}

impl Way {
    fn begin(path: &Path) -> Result<Self, Blocked> {
        let (start, at) = match path.is_absolute() {
            true => ("/", PathBuf::from("/")),
            false => (".", std::env::current_dir().map_err(Blocked::System)?),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { fd: openat(CWD, start, flags, Mode::empty())?, path: at })
    }

    fn down(&mut self, fd: OwnedFd, name: &OsStr) {
        self.fd = fd;
        self.path.push(name);
    }

    fn up(&mut self) -> rustix::io::Result<()> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        self.fd = openat(&self.fd, "..", flags, Mode::empty())?;
        self.path.pop();
        Ok(())
    }
}

/// The names of a path; `..` stays.
fn names(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    })
}

/// Has root or the caller made this link, in a folder where nobody else puts another in its place?
fn is_safe_link(link: &Stat, above: &Stat) -> bool {
    let me = rustix::process::geteuid().as_raw();
    let ours = |uid: u32| uid == 0 || uid == me;
    // Whom an ordinary user has let into a group of their own is theirs to know.
    let others = if me != 0 && above.st_uid == me { 0o002 } else { 0o022 };
    let sticky = above.st_mode & 0o1000 != 0;
    ours(link.st_uid) && ours(above.st_uid) && (sticky || above.st_mode & others == 0)
}

//! One lab at a time: two would measure each other.
//!
//! The lock's file also names the directories of the lab's servers, so that the next lab can end
//! and remove what one that was killed left behind.

use std::cell::RefCell;
use std::fs::{File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// Held until it is dropped, or the process ends in whatever way.
#[derive(Debug)]
pub(super) struct Only {
    file: RefCell<File>,
    /// Directories that the last lab noted and did not take back. They stay noted until they are
    /// gone.
    pub(super) left: Vec<PathBuf>,
}

impl Only {
    /// Notes a directory of servers before it is used.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(super) fn note(&self, dir: &Path) -> Result<()> {
        let failed = Error::io(format!("noting {} in the lab's lock", dir.display()));
        writeln!(self.file.borrow_mut(), "{}", dir.display()).map_err(failed)
    }
}

impl Drop for Only {
    fn drop(&mut self) {
        // What this lab noted was cleaned up by then; what an earlier one left may have resisted.
        let left: Vec<&PathBuf> = self.left.iter().filter(|dir| dir.exists()).collect();
        let mut file = self.file.borrow_mut();
        let _ = file.set_len(0).and_then(|()| file.rewind());
        if !left.is_empty() {
            let _ = write(&mut file, "", left);
        }
    }
}

/// Takes the lock of `work`.
///
/// # Errors
/// [`Error::Busy`] while another lab holds it. When what lies in its place is no file of ours with
/// this name alone; that is left as it is.
pub(super) fn take(work: &Path) -> Result<Only> {
    let uid = rustix::process::geteuid().as_raw();
    let path = work.join(format!("tidelock-lab-{uid}.lock"));
    let failed = || Error::io(format!("locking {}", path.display()));
    let foreign = |what: &str| {
        let path = path.display();
        Error::Other(format!("{path} {what}: remove it, or name another directory with --work"))
    };
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let mut file: File = match open(&path, flags | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR) {
        Ok(file) => file.into(),
        Err(Errno::LOOP) => return Err(foreign("is a symbolic link, not a lock of the lab's")),
        // So the kernel says of another account's file in a directory like /tmp, even to root.
        Err(Errno::ACCESS) if path.exists() => return Err(foreign("cannot be opened by us")),
        Err(errno) => return Err(failed()(errno.into())),
    };
    // What it names is ended and removed: it has to be ours alone. In a directory like /tmp anybody
    // can put a name of another file into its place, which is then emptied.
    let meta = file.metadata().map_err(failed())?;
    if !meta.is_file() || meta.nlink() != 1 {
        return Err(foreign("is no file, or has another name as well: it is no lock of the lab's"));
    }
    if meta.uid() != uid || meta.mode() & 0o022 != 0 {
        return Err(foreign("belongs to somebody else, or others may write it"));
    }
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let holder = read(&mut file).lines().next().unwrap_or_default().trim().to_owned();
            return Err(Error::Busy { path, holder });
        }
        Err(TryLockError::Error(error)) => return Err(failed()(error)),
    }
    let noted = read(&mut file);
    let of_ours = |dir: &PathBuf| dir.parent() == Some(work);
    let left: Vec<PathBuf> = noted.lines().skip(1).map(PathBuf::from).filter(of_ours).collect();
    file.set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| write(&mut file, &std::process::id().to_string(), &left))
        .map_err(failed())?;
    Ok(Only { file: RefCell::new(file), left })
}

/// Who holds it, then the directories, in one piece: whoever is killed meanwhile loses none of
/// them.
fn write<'d>(
    file: &mut File,
    holder: &str,
    dirs: impl IntoIterator<Item = &'d PathBuf>,
) -> std::io::Result<()> {
    let lines = dirs.into_iter().map(|dir| format!("{}\n", dir.display()));
    file.write_all(format!("{holder}\n{}", lines.collect::<String>()).as_bytes())
}

fn read(file: &mut File) -> String {
    let mut text = String::new();
    let _ = file.read_to_string(&mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_second_lab_is_told_who_runs() {
        let dir = tempfile::tempdir().unwrap();
        let held = take(dir.path()).unwrap();
        let error = take(dir.path()).unwrap_err().to_string();
        assert!(error.contains(&std::process::id().to_string()), "{error}");
        drop(held);
        assert!(take(dir.path()).unwrap().left.is_empty());
    }

    #[test]
    fn what_a_killed_lab_noted_is_told_to_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let killed = take(dir.path()).unwrap();
        let servers = dir.path().join("tl-servers");
        killed.note(&servers).unwrap();
        killed.note(Path::new("/elsewhere")).unwrap();
        // A killed process drops nothing; the kernel closes its file.
        let uid = rustix::process::geteuid().as_raw();
        let path = dir.path().join(format!("tidelock-lab-{uid}.lock"));
        let text = fs::read_to_string(&path).unwrap();
        drop(killed);
        fs::write(&path, text).unwrap();
        let next = take(dir.path()).unwrap();
        assert_eq!(next.left, std::slice::from_ref(&servers));
        // Killed again, before it has cleaned up; and then one that could not.
        let text = fs::read_to_string(&path).unwrap();
        drop(next);
        fs::write(&path, text).unwrap();
        fs::create_dir(&servers).unwrap();
        drop(take(dir.path()).unwrap());
        let last = take(dir.path()).unwrap();
        assert_eq!(last.left, std::slice::from_ref(&servers));
        fs::remove_dir(&servers).unwrap();
        drop(last);
        assert!(take(dir.path()).unwrap().left.is_empty());
    }

    #[test]
    fn a_link_in_the_lock_s_place_does_not_empty_what_it_leads_to() {
        let dir = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let path = dir.path().join(format!("tidelock-lab-{uid}.lock"));
        let target = dir.path().join("target");
        fs::write(&target, "content").unwrap();
        let links: [fn(&Path, &Path) -> std::io::Result<()>; 2] = [
            |target, path| std::os::unix::fs::symlink(target, path),
            |t, path| fs::hard_link(t, path),
        ];
        for link in links {
            link(&target, &path).unwrap();
            let error = take(dir.path()).unwrap_err().to_string();
            assert!(error.contains(&path.display().to_string()), "{error}");
            assert!(error.contains("remove it, or name another directory"), "{error}");
            assert_eq!(fs::read_to_string(&target).unwrap(), "content");
            fs::remove_file(&path).unwrap();
        }
        // Nor does one that leads nowhere make a file there.
        let nowhere = dir.path().join("nowhere");
        std::os::unix::fs::symlink(&nowhere, &path).unwrap();
        take(dir.path()).unwrap_err();
        assert!(!nowhere.exists());
    }
}

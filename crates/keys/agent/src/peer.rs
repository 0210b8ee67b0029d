//! Who is at the other end of a connection, and may that program have keys?
//!
//! The kernel says which process connected; a pidfd makes sure that it is still that process when
//! its program has been looked at. The program is its file: its path for the list, device and inode
//! to be sure that the path still means that file.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open};

use tidelock_contract::wire::RefusalReason;

use crate::memory::Primitives;

/// Processes between one that asks and the one that was listed.
const MAX_DEPTH: u32 = 64;

/// A process and its program.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// 0 of one in another PID namespace: nothing else is known of that.
    pub(crate) pid: i32,
    pub(crate) uid: u32,
    /// `None` if it could not be found out.
    pub(crate) program: Option<Program>,
}

/// The file of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl Peer {
    /// The process that connected.
    ///
    /// # Errors
    /// Of the socket, or no descriptor is left to look at the process with: that is no reason to
    /// refuse its program.
    pub(crate) fn of(socket: &OwnedFd, primitives: &Primitives) -> io::Result<Self> {
        // `rustix` has no value for the number 0.
        if (primitives.peer_pid)(socket.as_fd()) == Some(0) {
            return Ok(Self { pid: 0, uid: u32::MAX, program: None });
        }
        let credentials = rustix::net::sockopt::socket_peercred(socket)?;
        let pidfd = match process_of(socket.as_fd(), primitives) {
            Err(why) if is_shortage(&why) => return Err(why),
            found => found.ok(),
        };
        let pid = credentials.pid.as_raw_nonzero().get();
        let program = Program::of_process(&pid.to_string())
            .ok()
            .filter(|_| pidfd.is_some_and(|pidfd| is_alive(&pidfd)));
        Ok(Self { pid, uid: credentials.uid.as_raw(), program })
    }

    /// The process itself, if it still runs the program that was found.
    pub(crate) fn process(&self) -> Option<OwnedFd> {
        let pid = rustix::process::Pid::from_raw(self.pid)?;
        let process = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        let now = Program::of_process(&self.pid.to_string()).ok();
        (now == self.program && is_alive(&process)).then_some(process)
    }

    /// The program's path for messages.
    pub(crate) fn name(&self) -> String {
        let path = self.program.as_ref().map(|program| program.path.as_path());
        let unknown = || match self {
            Self { pid: 0, .. } => "a program in another PID namespace",
            Self { uid: 0, .. } => "a program of root",
            _ => "?",
        };
        path.map_or_else(|| unknown().to_owned(), |path| path.display().to_string())
    }
}

impl Program {
    /// The program of a process: a number, or "self".
    pub(crate) fn of_process(process: &str) -> io::Result<Self> {
        let link = format!("/proc/{process}/exe");
        let path = fs::read_link(&link)?;
        let running = fs::metadata(&link)?;
        let found = Self::at(&path)?;
        if (found.device, found.inode) != (running.dev(), running.ino()) {
            return Err(io::Error::other("another file has taken the place of the program"));
        }
        Ok(found)
    }

    /// The program at an absolute path.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        let path = fs::canonicalize(path)?;
        let found = fs::metadata(&path)?;
        if !found.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        Ok(Self { path, device: found.dev(), inode: found.ino() })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.path.as_os_str().as_bytes()
    }

    pub(crate) fn is_same_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// True unless root alone can put another program into this path: the file and every directory
    /// above it are root's, and can be written neither by this process, which runs as the same user
    /// but perhaps without its groups, nor by others, a group with anybody but root in it included.
    pub(crate) fn is_writable_by(&self, uid: u32) -> bool {
        self.path.ancestors().any(|place| {
            let Ok(found) = fs::metadata(place) else { return true };
            // In a directory like /tmp nobody renames what is not one's own, but its owner does.
            let sticky = found.is_dir() && found.mode() & 0o1000 != 0;
            let owned = found.uid() != 0;
            let written = others_write(found.mode(), found.gid(), root_is_alone)
                || (uid != 0 && may_write(place.as_os_str()));
            owned || (!sticky && written)
        })
    }
}

/// True if there are no descriptors left, here or in the whole system.
fn is_shortage(why: &io::Error) -> bool {
    matches!(Errno::from_io_error(why), Some(Errno::MFILE | Errno::NFILE))
}

/// The process at the other end of a socket.
pub(crate) fn process_of(socket: BorrowedFd<'_>, primitives: &Primitives) -> io::Result<OwnedFd> {
    if let Some(pidfd) = (primitives.peer_pidfd)(socket) {
        return Ok(pidfd);
    }
    if (primitives.peer_pid)(socket) == Some(0) {
        return Err(io::Error::other("it is in another PID namespace"));
    }
    // Older kernels: the process may have ended and its number been given away before this.
    let credentials = rustix::net::sockopt::socket_peercred(socket)?;
    Ok(pidfd_open(credentials.pid, PidfdFlags::empty())?)
}

/// May this program have keys? Of those that are only listed, none that anybody but root could
/// replace.
pub(crate) fn judge(
    peer: &Peer,
    listed: bool,
    allowed: bool,
    allow_writable: bool,
) -> Result<(), RefusalReason> {
    let Some(program) = &peer.program else { return Err(RefusalReason::UnknownProgram) };
    if allowed {
        // Named by the user for this run, and known by its inode.
        return Ok(());
    }
    if !listed {
        return Err(RefusalReason::NotListed);
    }
    if !allow_writable && program.is_writable_by(peer.uid) {
        return Err(RefusalReason::Writable);
    }
    Ok(())
}

/// Does the mode let anybody write but the owner, and the members of a group that is root's alone?
fn others_write(mode: u32, group: u32, root_is_alone: impl FnOnce() -> bool) -> bool {
    mode & 0o002 != 0 || (mode & 0o020 != 0 && (group != 0 || !root_is_alone()))
}

/// True if nobody but root is in root's group, as far as the files of this machine say.
///
/// A look-up by name gives no such list, and would load modules of the name service beside the
/// keys.
fn root_is_alone() -> bool {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    is_alone(&read("/etc/passwd"), &read("/etc/group"))
}

/// passwd(5): `NAME:PASSWORD:UID:GID:...`; group(5): `NAME:PASSWORD:GID:MEMBER,...`.
fn is_alone(users: &str, groups: &str) -> bool {
    let by_account = users.lines().any(|line| {
        let mut fields = line.split(':').skip(2);
        let (uid, gid) = (fields.next(), fields.next());
        gid == Some("0") && uid != Some("0")
    });
    let by_list = groups.lines().any(|line| {
        let mut fields = line.split(':').skip(2);
        let gid = fields.next();
        let mut members = fields.next().unwrap_or_default().split(',').map(str::trim);
        gid == Some("0") && members.any(|name| !name.is_empty() && name != "root")
    });
    !by_account && !by_list
}

fn may_write(place: &OsStr) -> bool {
    accessat(CWD, place, Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}

/// True if process `pid` is `ancestor` or was started by it, directly or not, and not yet adopted.
pub(crate) fn descends(pid: i32, ancestor: i32) -> bool {
    let mut next = Some(pid);
    for _ in 0..MAX_DEPTH {
        match next {
            Some(pid) if pid == ancestor => return true,
            Some(pid) if pid > 1 => next = parent(pid),
            _ => return false,
        }
    }
    false
}

/// proc(5): `PID (NAME) STATE PARENT`; a name may hold anything.
fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let behind = stat.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(stat.get(behind + 1..)?).ok()?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

/// A pidfd can be read once its process has ended.
pub(crate) fn is_alive(pidfd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(poll(&mut fds, Some(&now)), Ok(0))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;

    #[test]
    fn a_group_that_others_are_in_may_not_write_a_program() {
        let (alone, joined) = (|| true, || false);
        assert!(!others_write(0o100_755, 100, joined));
        assert!(others_write(0o100_775, 100, alone), "another group than root's");
        assert!(others_write(0o100_775, 0, joined), "root's group with somebody else");
        assert!(!others_write(0o100_775, 0, alone));
        assert!(others_write(0o100_757, 0, alone), "everybody");
    }

    #[test]
    fn members_of_roots_group_are_found_in_both_files() {
        let users = "root:x:0:0:root:/root:/bin/sh\npg:x:26:26::/:/bin/sh\n";
        let groups = "root:x:0:\nwheel:x:10:pg\n";
        assert!(is_alone(users, groups) && is_alone(users, "root:x:0:root\n"));
        assert!(!is_alone(users, "root:x:0:root,pg\n"));
        assert!(!is_alone("root:x:0:0::/:\noperator:x:11:0::/:\n", groups));
    }

    #[test]
    fn a_program_or_its_folder_that_a_group_can_write_is_writable_by_root_too() {
        if !rustix::process::geteuid().is_root() {
            // What an ordinary user makes is that user's, and writable anyway.
            return;
        }
        const USER: u32 = 65534;
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("bin");
        let file = folder.join("program");
        fs::create_dir(&folder).unwrap();
        fs::write(&file, "x").unwrap();
        let set = |path: &Path, mode, gid| {
            chown(path, Some(0), Some(gid)).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        // This process is root, whom every directory lets write: the other user's own view is in
        // the tests of processes.
        let writable = || Program::at(&file).unwrap().is_writable_by(0);
        set(&folder, 0o755, 0);
        set(&file, 0o755, 0);
        assert!(!writable());
        set(&file, 0o775, USER);
        assert!(writable());
        set(&file, 0o755, USER);
        assert!(!writable());
        set(&folder, 0o775, USER);
        assert!(writable());
        set(&folder, 0o1775, USER);
        assert!(!writable(), "sticky");
        // Whoever owns the file or its folder, sticky or not, replaces the program.
        for (place, mode) in [(&file, 0o755), (&folder, 0o755), (&folder, 0o1755)] {
            set(place, mode, 0);
            chown(place, Some(USER), None).unwrap();
            assert!(writable(), "{} {mode:o}", place.display());
            set(place, 0o755, 0);
            assert!(!writable());
        }
    }

    #[test]
    fn a_child_descends_from_its_parent_and_not_the_other_way_round() {
        let me = rustix::process::getpid().as_raw_nonzero().get();
        let mut child = std::process::Command::new("sleep").arg("10").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(descends(pid, me) && descends(me, me));
        assert!(!descends(me, pid));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

//! A protected directory, as this process knows it: one entry of the engine's table.

use core::ffi::CStr;
use core::sync::atomic::AtomicU64;

use rustix::fs::{AtFlags, CWD, statat};
use tidelock_contract::postgres::TABLESPACES;
use tidelock_contract::{Decision, Policy};
use tidelock_engine::{Decide, Fd, PathBuffer, Sealing, SetOnce};

use crate::galera;
use crate::held::HeldKeyring;
use crate::sharing::Sharing;

/// A protected directory, as this process knows it. Its path and layout stand beside it in the
/// engine's table.
pub struct Directory {
    first: Policy,
    /// Those that came while this process ran; the last one counts.
    later: [SetOnce<Policy>; LATER],
    /// `None` in a program without keys, which is guarded.
    served: Option<Served>,
}

/// A process that has followed so many changes keeps what it has until it starts again.
const LATER: usize = 8;

/// What a program with keys has of a directory.
pub struct Served {
    /// The agent's socket.
    pub(crate) socket: Box<[u8]>,
    /// What visible descriptors of sealed files refer to.
    pub anchor: Fd,
    /// The lock file, in which the keyring's generation is announced.
    pub(crate) lock: Fd,
    /// The words that all processes of the directory share.
    pub sharing: Sharing,
    /// Its program may load Galera, whose files are memory.
    pub(crate) galera: bool,
    /// Where its keys come from.
    pub(crate) keyring: &'static HeldKeyring,
    /// The control file of a server that may give a lost header a new key while it recovers.
    pub(crate) recovery: Option<PathBuffer>,
    /// The announcement that was last followed.
    pub(crate) followed: AtomicU64,
    /// When the agent may be asked again, in seconds of the monotonic clock.
    pub(crate) not_before: AtomicU64,
}

impl Directory {
    /// With keys.
    pub(crate) const fn served(policy: Policy, served: Served) -> Self {
        Self { first: policy, later: [const { SetOnce::new() }; LATER], served: Some(served) }
    }

    /// Without keys: its files may be named, not read.
    pub(crate) const fn guarded(policy: Policy) -> Self {
        Self { first: policy, later: [const { SetOnce::new() }; LATER], served: None }
    }

    /// What must be true of its files.
    pub(crate) fn policy(&self) -> &Policy {
        SetOnce::all(&self.later).last().unwrap_or(&self.first)
    }

    /// Takes over what was changed; one caller at a time. False if there is no room for it: what is
    /// here stays in force.
    #[must_use]
    pub(crate) fn learn(&self, policy: Policy) -> bool {
        if *self.policy() == policy {
            return true;
        }
        SetOnce::put_into(&self.later, policy).is_some()
    }

    /// True for a file that its program only maps: all that it has is in the map, and the file is
    /// never read.
    #[must_use]
    pub fn is_memory(&self, path: &[u8]) -> bool {
        let server = self.served.as_ref().is_some_and(|served| served.galera);
        galera::is_memory_of_galera(self.policy().profile(), server, path)
    }

    /// True if a tablespace has this link, relative to the directory.
    fn has_tablespace(&self, link: &[u8]) -> bool {
        let name = link.strip_prefix(TABLESPACES.as_bytes()).and_then(|it| it.strip_prefix(b"/"));
        let is_one = name.is_some_and(|name| !name.is_empty() && !name.contains(&b'/'));
        is_one && self.policy().tablespace().is_some()
    }

    /// What a program with keys has of it.
    #[inline]
    #[must_use]
    pub const fn keys(&self) -> Option<&Served> {
        self.served.as_ref()
    }
}

impl Decide for Directory {
    fn decide(&self, relative: &[u8]) -> Sealing {
        sealing(self.policy().decide(relative))
    }

    fn decide_elsewhere(&self, path: &[u8]) -> Option<Sealing> {
        let tail = self.policy().tablespace_tail(path)?;
        let above = path.get(..path.len() - tail.len()).unwrap_or_default();
        if is_in_a_copy(above) {
            return None;
        }
        Some(sealing(self.policy().decide_tablespace(tail)))
    }

    fn same_below(&self, from: &[u8], to: &[u8]) -> bool {
        self.policy().same_below(from, to)
    }

    fn is_tablespace(&self, link: &[u8], real: &[u8]) -> bool {
        self.has_tablespace(link) && !is_in_a_copy(real)
    }

    fn is_dropped(&self, directory: &[u8], link: &[u8], below: &[u8]) -> bool {
        let policy = self.policy();
        if !self.has_tablespace(link) || policy.tablespace_tail(below).is_some() {
            return false;
        }
        let mut path = PathBuffer::new();
        let is_whole = path.set(directory).and_then(|()| path.push(link)).is_ok();
        let Ok(path) = CStr::from_bytes_with_nul(path.as_c()) else { return false };
        let found = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW);
        is_whole && found.is_err_and(|why| why == rustix::io::Errno::NOENT)
    }
}

/// Links were resolved: a folder of that name there is a copy's, as backup tools keep them.
fn is_in_a_copy(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|name| name == TABLESPACES.as_bytes())
}

const fn sealing(decision: Decision) -> Sealing {
    match decision {
        Decision::Seal(class) => Sealing::Sealed(class),
        Decision::Plain(_) => Sealing::Plain,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    use tidelock_contract::{Glob, Tablespace};

    use super::*;

    #[test]
    fn what_lies_in_a_dropped_tablespace_is_nobodys_and_a_servers_files_are_ours_without_a_link() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().as_os_str().as_bytes();
        let tablespace = Tablespace {
            component: Glob::new(b"PG_[0-9]*").unwrap(),
            prefix: Glob::new(b"pg_tblspc/0").unwrap(),
        };
        let policy = |tablespace| Policy::new("p".into(), vec![], vec![], tablespace, vec![]);
        let directory = Directory::guarded(policy(Some(tablespace)).unwrap());
        fs::create_dir(place.path().join(TABLESPACES)).unwrap();
        symlink("/srv/space", place.path().join("pg_tblspc/1")).unwrap();
        for (link, below, is_dropped) in [
            (&b"pg_tblspc/1"[..], &b""[..], false),
            (b"pg_tblspc/1", b"export", false),
            (b"pg_tblspc/2", b"", true),
            (b"pg_tblspc/2", b"export", true),
            (b"pg_tblspc/2", b"PG_15/5/1", false),
            (b"pg_wal", b"1", false),
            (b"pg_tblspc/2/deep", b"1", false),
        ] {
            let name = link.escape_ascii();
            assert_eq!(directory.is_dropped(dir, link, below), is_dropped, "{name}");
        }
        assert!(directory.is_tablespace(b"pg_tblspc/1", b"/srv/space"));
        assert!(!directory.is_tablespace(b"pg_tblspc/1", b"/backup/pg_tblspc/1"));
        assert!(!directory.is_tablespace(b"pg_wal", b"/srv/wal"));
        let other = Directory::guarded(policy(None).unwrap());
        assert!(!other.is_tablespace(b"pg_tblspc/1", b"/srv/space"));
        assert!(!other.is_dropped(dir, b"pg_tblspc/2", b""));
    }

    #[test]
    fn a_change_of_the_profile_that_finds_no_room_says_so_and_leaves_the_one_before() {
        let policy = |change: usize| {
            Policy::new(format!("profile {change}"), Vec::new(), Vec::new(), None, Vec::new())
                .unwrap()
        };
        let directory = Directory::guarded(policy(0));
        for change in 1..=LATER {
            assert!(directory.learn(policy(change)));
            assert_eq!(directory.policy(), &policy(change));
        }
        // No change takes no room.
        assert!(directory.learn(policy(LATER)));
        assert!(!directory.learn(policy(LATER + 1)));
        assert_eq!(directory.policy(), &policy(LATER));
    }
}

//! Whose is a directory that no text calls ours? The tree that the kernel knows tells: going up
//! from it, is there a protected directory, known by device and inode, or one whose keys we do not
//! have?
//!
//! Asked before something is written, made or moved where the text of the path says "outside": a
//! bind mount and /proc/PID/root lead into a protected directory without a link. Not asked for
//! reading, nor for paths that the text calls ours. What was found to be outside is remembered, as
//! long as the directory does not change.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tidelock_cipher::{Root, UnitCipher};

use crate::errno::Errno;
use crate::flags::PATH_DIRECTORY;
use crate::kernel::{Fd, Links, System};
use crate::path::{PathBuffer, split_last, strip_prefix};
use crate::process::Process;
use crate::refusal::Refusal;
use crate::roots::{Decide, Decided};

/// Deeper than paths go.
const MOST_LEVELS: usize = 2048;
/// One for each value of a byte.
const REMEMBERED: usize = 256;
const CONTROL_NAME: &[u8] = b".tidelock\0";

/// A directory as the kernel knows it, by whatever path it was reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The device of the file system.
    pub device: u64,
    /// The inode.
    pub inode: u64,
    /// The mount by which it was reached; 0 if the kernel does not tell.
    pub mount: u64,
    /// When it last changed: names in it, its own name, its rights. Seconds and nanoseconds.
    pub changed: (i64, u32),
}

impl Identity {
    /// Different for different directories and for one that has changed, but for an accident in
    /// 2^64; never 0.
    fn fingerprint(&self) -> u64 {
        let (seconds, nanoseconds) = self.changed;
        let fields =
            [self.device, self.inode, self.mount, seconds.cast_unsigned(), nanoseconds.into()];
        let mixed = fields.iter().fold(0x9e37_79b9_7f4a_7c15, |sum: u64, field| {
            let sum = (sum ^ field).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (sum ^ (sum >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb)
        });
        mixed ^ (mixed >> 32) | 1
    }
}

/// Directories that were found to be outside, by fingerprint. One that is pushed out is only looked
/// at again.
pub(crate) struct Outside {
    known: [AtomicU64; REMEMBERED],
}

impl Outside {
    pub(crate) const fn new() -> Self {
        Self { known: [const { AtomicU64::new(0) }; REMEMBERED] }
    }

    fn place(&self, fingerprint: u64) -> Option<&AtomicU64> {
        let [.., byte] = fingerprint.to_le_bytes();
        self.known.get(usize::from(byte))
    }

    fn holds(&self, fingerprint: u64) -> bool {
        self.place(fingerprint).is_some_and(|place| place.load(Relaxed) == fingerprint)
    }

    /// Something has become ours that may have been outside.
    pub(crate) fn forget(&self) {
        self.known.iter().for_each(|known| known.store(0, Relaxed));
    }

    fn add(&self, fingerprint: u64) {
        if let Some(place) = self.place(fingerprint) {
            place.store(fingerprint, Relaxed);
        }
    }
}

/// What lies above a directory, or is it.
enum Above<'s, S: System> {
    /// No protected directory.
    Nothing,
    /// A directory that belongs to the protected directory `root`, open here.
    Ours { root: Root, top: Step<'s, S> },
    /// A protected directory whose keys are not here.
    Another,
}

/// A directory on the way up; closed when it is left, unless it is the caller's.
struct Step<'s, S: System> {
    system: &'s S,
    fd: Fd,
    borrowed: bool,
}

impl<S: System> Drop for Step<'_, S> {
    fn drop(&mut self) {
        if !self.borrowed {
            // An O_PATH descriptor: closing it cannot lose anything.
            let _ = self.system.close(self.fd);
        }
    }
}

impl<S: System, C: UnitCipher, P: Decide> Process<S, C, P> {
    /// Whose the name `name` in the open directory `directory` is, where something shall be written
    /// or made. An empty name is the directory itself; `shown` is told to people.
    ///
    /// # Errors
    /// EACCES, with a message, below a protected directory whose keys are not here; those of the
    /// kernel.
    pub(crate) fn judge_in(
        &self,
        directory: Fd,
        name: &[u8],
        shown: &[u8],
    ) -> Result<Decided, Errno> {
        match self.owner_of(directory, name)? {
            Some(decided) => Ok(decided),
            None => self.refuse(shown, Refusal::AnotherDirectory),
        }
    }

    /// The same for a path whose text has said "outside"; its directory is opened with `links`.
    ///
    /// # Errors
    /// As [`judge_in`](Self::judge_in), and those of opening the directory.
    pub(crate) fn judge_outside(
        &self,
        at: Fd,
        path: &[u8],
        links: Links,
    ) -> Result<Decided, Errno> {
        let bare = path.strip_suffix(b"\0").unwrap_or(path);
        // What ends in a slash or dots is a directory: nothing can be written to it.
        let Some((before, name)) = split_last(bare) else { return Ok(Decided::Outside) };
        let directory = self.open_before(at, before, links)?;
        self.judge_in(directory.fd, name, path)
    }

    /// True if a directory lies in a protected one whose keys are not here, or is it.
    ///
    /// # Errors
    /// Those of the kernel.
    pub(crate) fn lies_in_another(&self, path: &[u8]) -> Result<bool, Errno> {
        let directory = self.open_before(Fd::CWD, path, Links::Follow)?;
        let first = self.system.identity(directory.fd)?;
        let mut relative = PathBuffer::new();
        Ok(matches!(self.above(directory.fd, first, &mut relative)?, Above::Another))
    }

    #[inline(never)]
    fn open_before(&self, at: Fd, before: &[u8], links: Links) -> Result<Step<'_, S>, Errno> {
        let mut path = PathBuffer::new();
        path.set(if before.is_empty() { b"." } else { before })?;
        self.open_step(at, path.as_c(), links)
    }

    fn open_step(&self, at: Fd, path: &[u8], links: Links) -> Result<Step<'_, S>, Errno> {
        let fd = self.system.open(at, path, PATH_DIRECTORY, 0, links)?;
        Ok(Step { system: &self.system, fd, borrowed: false })
    }

    /// Whose the name is; `None` if it is somebody else's.
    pub(crate) fn owner_of(&self, directory: Fd, name: &[u8]) -> Result<Option<Decided>, Errno> {
        let first = self.system.identity(directory)?;
        if self.outside.holds(first.fingerprint()) {
            return Ok(Some(Decided::Outside));
        }
        self.owner_above(directory, name, first)
    }

    /// Apart, for the stack that paths take.
    #[inline(never)]
    fn owner_above(
        &self,
        directory: Fd,
        name: &[u8],
        first: Identity,
    ) -> Result<Option<Decided>, Errno> {
        let mut relative = PathBuffer::new();
        match self.above(directory, first, &mut relative)? {
            Above::Nothing => Ok(Some(Decided::Outside)),
            Above::Another => Ok(None),
            Above::Ours { root, top } => {
                if let Some(decided) = self.shared(directory, name)? {
                    return Ok(Some(decided));
                }
                self.add_way(top.fd, directory, &mut relative)?;
                if !name.is_empty() {
                    relative.push(name)?;
                }
                Ok(Some(self.roots.decide_relative(root, relative.as_bytes())))
            }
        }
    }

    /// Whose the name is, if it lies in a tablespace that clusters share.
    #[inline(never)]
    fn shared(&self, directory: Fd, name: &[u8]) -> Result<Option<Decided>, Errno> {
        let mut whole = PathBuffer::new();
        whole.fill(|room| self.system.path_of(directory, room))?;
        if !name.is_empty() {
            whole.push(name)?;
        }
        Ok(self.roots.decide_shared(whole.as_bytes()))
    }

    /// Goes up from `directory` until something is known; `relative` becomes the policy's name of
    /// `top`.
    fn above(
        &self,
        directory: Fd,
        first: Identity,
        relative: &mut PathBuffer,
    ) -> Result<Above<'_, S>, Errno> {
        let mut here = Step { system: &self.system, fd: directory, borrowed: true };
        let mut identity = first;
        let mut parent = None;
        for _ in 0..MOST_LEVELS {
            if let Some((root, name)) = self.roots.identified(identity.device, identity.inode) {
                relative.set(name)?;
                return Ok(Above::Ours { root, top: here });
            }
            if self.system.stat_at(here.fd, CONTROL_NAME).is_ok_and(|stat| stat.directory) {
                return Ok(Above::Another);
            }
            let up = match self.open_step(here.fd, b"..\0", Links::Follow) {
                Ok(up) => up,
                // Nobody can tell what lies above.
                Err(Errno::ACCES) => return Ok(Above::Nothing),
                Err(error) => return Err(error),
            };
            let its = self.system.identity(up.fd)?;
            if its.mount != identity.mount
                && let Some(root) = self.mounted_from(&identity, relative)?
            {
                return Ok(Above::Ours { root, top: here });
            }
            let top = its == identity;
            parent.get_or_insert(its);
            if top || self.outside.holds(its.fingerprint()) {
                break;
            }
            (here, identity) = (up, its);
        }
        // The parent too: a directory that changes with every file made in it is one step from what
        // is known.
        self.outside.add(first.fingerprint());
        if let Some(parent) = parent {
            self.outside.add(parent.fingerprint());
        }
        Ok(Above::Nothing)
    }

    /// The directory is the top of a mount: that of a directory below a protected one?
    #[inline(never)]
    fn mounted_from(
        &self,
        top: &Identity,
        relative: &mut PathBuffer,
    ) -> Result<Option<Root>, Errno> {
        if !self.roots.is_on_device(top.device) {
            return Ok(None);
        }
        let mut origin = PathBuffer::new();
        match origin.fill(|room| self.system.mount_origin(top.mount, room)) {
            Ok(()) => {}
            // A mount of another namespace.
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error),
        }
        let Some((root, rest)) = self.roots.with_origin(origin.as_bytes()) else { return Ok(None) };
        relative.set(rest)?;
        Ok(Some(root))
    }

    /// Adds the names from directory `top` down to `directory`, as the kernel knows both.
    fn add_way(&self, top: Fd, directory: Fd, relative: &mut PathBuffer) -> Result<(), Errno> {
        if top == directory {
            return Ok(());
        }
        let (mut above, mut whole) = (PathBuffer::new(), PathBuffer::new());
        above.fill(|room| self.system.path_of(top, room))?;
        whole.fill(|room| self.system.path_of(directory, room))?;
        let way = strip_prefix(whole.as_bytes(), above.as_bytes()).ok_or(Errno::IO)?;
        if relative.as_bytes().is_empty() { relative.set(way) } else { relative.push(way) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_changed_is_not_remembered() {
        let outside = Outside::new();
        let one = Identity { device: 1, inode: 2, mount: 3, changed: (4, 5) };
        assert!(!outside.holds(one.fingerprint()));
        outside.add(one.fingerprint());
        assert!(outside.holds(one.fingerprint()));
        for other in [
            Identity { device: 2, inode: 1, ..one },
            Identity { inode: 3, ..one },
            Identity { mount: 2, ..one },
            Identity { changed: (5, 4), ..one },
            Identity { changed: (4, 6), ..one },
        ] {
            assert!(!outside.holds(other.fingerprint()), "{other:?}");
        }
    }
}

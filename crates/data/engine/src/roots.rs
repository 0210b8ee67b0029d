//! The protected directories of this process, and the places elsewhere that belong to them by a
//! link: tablespaces, a pg_wal on another disk.

use tidelock_cipher::Root;
use tidelock_format::{Class, Layout};

use crate::errno::Errno;
use crate::path::{self, PathBuffer};
use crate::set_once::SetOnce;

/// The keyring and the lock file; hidden from the engine's programs.
pub(crate) const CONTROL: &[u8] = b".tidelock";
const ROOTS: usize = 8;
const MOUNTS: usize = 128;
/// So many links may lead out of a protected directory, tablespaces aside: the rest is for the
/// directories themselves and their bind mounts.
pub const MOST_LINKS: usize = MOUNTS - 18;
const MOUNT_PATH: usize = 1024;
const MOUNT_PREFIX: usize = 256;
const VERSIONS: usize = 256;
/// SQLite and DuckDB follow a link to a database by themselves, and make these beside what the link
/// leads to.
const BESIDE: [&[u8]; 6] =
    [b"-journal", b"-wal", b"-shm", b".wal", b".wal.checkpoint", b".wal.recovery"];
/// And DuckDB this folder, for what does not fit into memory.
const FOLDER_BESIDE: &[u8] = b".tmp";

/// What the policy says of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sealing {
    /// Sealed, with this class.
    Sealed(Class),
    /// Plain, for a reason that the profile tells.
    Plain,
}

/// A policy: the class of each name below a protected directory.
pub trait Decide: 'static {
    /// What to do with the file of this name, relative to the protected directory.
    fn decide(&self, relative: &[u8]) -> Sealing;

    /// What to do with a file outside whose path says by itself that it belongs to such a
    /// directory: a tablespace (`.../PG_15_202209061/5/2619`). `path` is absolute.
    fn decide_elsewhere(&self, path: &[u8]) -> Option<Sealing>;

    /// True if what lies below a directory is judged the same when the directory's name changes
    /// from `from` to `to`, both relative to the protected directory.
    fn same_below(&self, from: &[u8], to: &[u8]) -> bool;

    /// True if `link`, relative to the protected directory, leads to a tablespace at `real`:
    /// [`decide_elsewhere`](Self::decide_elsewhere) knows a server's files below that without it.
    fn is_tablespace(&self, _link: &[u8], _real: &[u8]) -> bool {
        false
    }

    /// True for what no server has at `below` in a tablespace whose `link` below `directory` is
    /// gone: the tablespace was dropped.
    fn is_dropped(&self, _directory: &[u8], _link: &[u8], _below: &[u8]) -> bool {
        false
    }
}

/// Whose a path is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decided {
    /// Not below any protected directory.
    Outside,
    /// The protected directory itself.
    Root(Root),
    /// Its `.tidelock`, or something below it.
    Control(Root),
    /// A file that stays plain.
    Plain(Root),
    /// A file that is sealed.
    Sealed(Root, Class),
    /// A tablespace that could belong to several protected directories.
    Ambiguous,
}

impl Decided {
    const fn of(root: Root, sealing: Sealing) -> Self {
        match sealing {
            Sealing::Sealed(class) => Self::Sealed(root, class),
            Sealing::Plain => Self::Plain(root),
        }
    }
}

/// The protected directories of this process. Written while the library starts, and once for each
/// link found later. All of its bytes are zero at the beginning.
pub struct Roots<P> {
    roots: [SetOnce<Held<P>>; ROOTS],
    mounts: [SetOnce<Mount>; MOUNTS],
    versions: [SetOnce<Version>; VERSIONS],
    left_out: SetOnce<Fixed<MOUNT_PATH>>,
}

struct Held<P> {
    policy: P,
    layout: Layout,
    /// Its path within its file system, whatever is mounted where.
    origin: SetOnce<Fixed<MOUNT_PATH>>,
}

/// A directory (or file) whose names are judged as if they lay at `prefix` below the root.
struct Mount {
    root: Root,
    path: Fixed<MOUNT_PATH>,
    prefix: Fixed<MOUNT_PREFIX>,
    /// Not a directory: what SQLite and DuckDB make beside it comes along.
    file: bool,
    /// Device and inode.
    identity: SetOnce<(u64, u64)>,
}

/// A part of a path.
#[derive(Clone, Copy)]
enum Rest<'p> {
    /// A name below a directory; empty for itself.
    Below(&'p [u8]),
    /// What follows the name of a file.
    Beside(&'p [u8]),
}

impl Mount {
    /// What of `path` lies below it, or beside it.
    fn rest<'p>(&self, path: &'p [u8]) -> Option<Rest<'p>> {
        let in_folder = |rest: &[u8]| path::strip_prefix(rest, FOLDER_BESIDE).is_some();
        let beside = |rest: &&[u8]| self.file && (BESIDE.contains(rest) || in_folder(rest));
        match path::strip_prefix(path, self.path.get()) {
            Some(below) => Some(Rest::Below(below)),
            None => path.strip_prefix(self.path.get()).filter(beside).map(Rest::Beside),
        }
    }
}

/// The folders of one version in a tablespace that clusters of several versions share.
struct Version {
    /// How their paths begin: `/srv/space/PG_17_`.
    stem: Fixed<MOUNT_PATH>,
    /// `None` for those of a cluster that is plain.
    root: Option<Root>,
}

struct Fixed<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Fixed<N> {
    fn new(from: &[u8]) -> Option<Self> {
        let mut bytes = [0; N];
        bytes.get_mut(..from.len())?.copy_from_slice(from);
        Some(Self { bytes, len: from.len() })
    }

    fn get(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl<P: Decide> Default for Roots<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P: Decide> Roots<P> {
    /// No protected directory.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            roots: [const { SetOnce::new() }; ROOTS],
            mounts: [const { SetOnce::new() }; MOUNTS],
            versions: [const { SetOnce::new() }; VERSIONS],
            left_out: SetOnce::new(),
        }
    }

    /// Adds a protected directory by its canonical path; its number.
    ///
    /// # Errors
    /// ENAMETOOLONG, or ENFILE if there are too many.
    pub fn add(&self, path: &[u8], policy: P, layout: Layout) -> Result<Root, Errno> {
        let mut new = Held { policy, layout, origin: SetOnce::new() };
        for (number, place) in (0..).map(Root).zip(&self.roots) {
            match place.put(new) {
                Ok(()) => {
                    self.attach(number, path, b"", false)?;
                    return Ok(number);
                }
                Err(back) => new = back,
            }
        }
        Err(Errno::NFILE)
    }

    /// Lets the canonical path `path` be judged as `prefix` of directory `root`, and what engines
    /// make beside it if it is a `file`.
    ///
    /// # Errors
    /// ENAMETOOLONG, or ENFILE if there are too many.
    pub fn attach(&self, root: Root, path: &[u8], prefix: &[u8], file: bool) -> Result<(), Errno> {
        self.attach_known(root, path, prefix, file, None)
    }

    /// The same, with the device and inode of what is attached: without them a fork in between
    /// would leave a child that takes it for something else by another path.
    pub(crate) fn attach_known(
        &self,
        root: Root,
        path: &[u8],
        prefix: &[u8],
        file: bool,
        identity: Option<(u64, u64)>,
    ) -> Result<(), Errno> {
        let known = SetOnce::new();
        if let Some(identity) = identity {
            // It is new, and empty.
            let _ = known.put(identity);
        }
        let mount = |identity| {
            let (path, prefix) = (Fixed::new(path)?, Fixed::new(prefix)?);
            Some(Mount { root, path, prefix, file, identity })
        };
        let mut new = mount(known).ok_or(Errno::NAMETOOLONG)?;
        for place in &self.mounts {
            let is_it = |have: &Mount| have.path.get() == path && !self.is_dropped(have, b"");
            if place.get().is_some_and(is_it) {
                return Ok(());
            }
            match place.put(new) {
                Ok(()) => return Ok(()),
                Err(back) => new = back,
            }
        }
        Err(Errno::NFILE)
    }

    /// True if no more can be attached.
    pub(crate) fn is_full(&self) -> bool {
        self.mounts.last().is_none_or(|last| last.get().is_some())
    }

    /// True if a server's files below `real`, where the link `name` of `root` leads, are known to
    /// be this directory's by their own paths: they need no place here.
    pub(crate) fn names_itself(&self, root: Root, name: &[u8], real: &[u8]) -> bool {
        // By its path alone a tablespace could belong to any of several directories.
        self.numbered().count() == 1
            && self.root(root).is_some_and(|root| root.policy.is_tablespace(name, real))
    }

    /// True for what lies, at `below`, in what was a tablespace when it was attached.
    #[inline(never)]
    fn is_dropped(&self, mount: &Mount, below: &[u8]) -> bool {
        let link = mount.prefix.get();
        let Some(held) = self.root(mount.root).filter(|_| !link.is_empty()) else { return false };
        self.path(mount.root).is_some_and(|dir| held.policy.is_dropped(dir, link, below))
    }

    /// Lets directory `root` alone have what paths that begin with `stem` name, a part of a
    /// tablespace, whoever has the tablespace; nobody, if there is none.
    ///
    /// # Errors
    /// ENAMETOOLONG, or ENFILE if there are too many.
    pub fn share(&self, stem: &[u8], root: Option<Root>) -> Result<(), Errno> {
        let mut new = Version { stem: Fixed::new(stem).ok_or(Errno::NAMETOOLONG)?, root };
        for place in &self.versions {
            match place.put(new) {
                Ok(()) => return Ok(()),
                Err(back) => new = back,
            }
        }
        Err(Errno::NFILE)
    }

    /// Whose the canonical path is, if it lies in a tablespace that clusters share.
    pub(crate) fn decide_shared(&self, path: &[u8]) -> Option<Decided> {
        let mut versions = SetOnce::all(&self.versions);
        let version = versions.find(|version| path.starts_with(version.stem.get()))?;
        let Some(number) = version.root else { return Some(Decided::Outside) };
        let sealing = self.root(number)?.policy.decide_elsewhere(path);
        Some(Decided::of(number, sealing.unwrap_or(Sealing::Sealed(Class::Bytes))))
    }

    /// Lets links to this directory, or to what lies below it, lead out: it belongs to nobody.
    ///
    /// # Errors
    /// ENAMETOOLONG.
    pub fn leave_out(&self, path: &[u8]) -> Result<(), Errno> {
        // Told once, while the library starts.
        let _ = self.left_out.put(Fixed::new(path).ok_or(Errno::NAMETOOLONG)?);
        Ok(())
    }

    /// True if links to this path take nothing along.
    pub(crate) fn is_left_out(&self, path: &[u8]) -> bool {
        self.left_out.get().is_some_and(|left| path::strip_prefix(path, left.get()).is_some())
    }

    /// Tells which directory the path `path`, attached before, is.
    pub fn identify(&self, path: &[u8], device: u64, inode: u64) {
        for mount in SetOnce::all(&self.mounts) {
            if mount.path.get() == path {
                // Who was quicker has told the same.
                let _ = mount.identity.put((device, inode));
            }
        }
    }

    /// Tells the path of directory `root` within its file system.
    pub fn locate(&self, root: Root, origin: &[u8]) {
        if let (Some(root), Some(origin)) = (self.root(root), Fixed::new(origin)) {
            // Told once, while the library starts.
            let _ = root.origin.put(origin);
        }
    }

    /// The protected directory that this directory belongs to, and its name there: empty if it is
    /// the protected directory itself.
    pub(crate) fn identified(&self, device: u64, inode: u64) -> Option<(Root, &[u8])> {
        let is_it = |mount: &&Mount| mount.identity.get() == Some(&(device, inode));
        let mut mounts = SetOnce::all(&self.mounts).filter(is_it);
        let mount = mounts.find(|mount| !self.is_dropped(mount, b""))?;
        Some((mount.root, mount.prefix.get()))
    }

    /// True if a protected directory or what belongs to it lies on this device.
    pub(crate) fn is_on_device(&self, device: u64) -> bool {
        let mut identities = SetOnce::all(&self.mounts);
        identities.any(|mount| mount.identity.get().is_some_and(|&(on, _)| on == device))
    }

    /// The protected directory that holds what has this path within its file system, and its name
    /// there.
    pub(crate) fn with_origin<'p>(&self, path: &'p [u8]) -> Option<(Root, &'p [u8])> {
        let roots = self.numbered();
        roots
            .filter_map(|(number, root)| {
                Some((number, path::strip_prefix(path, root.origin.get()?.get())?))
            })
            .min_by_key(|(_, rest)| rest.len())
    }

    /// True if what lies below the directory `from` of `root` is judged the same below `to`.
    pub(crate) fn same_below(&self, root: Root, from: &[u8], to: &[u8]) -> bool {
        self.root(root).is_some_and(|root| root.policy.same_below(from, to))
    }

    /// True if no directory is protected: then nothing is ours.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.roots.first().is_none_or(|root| root.get().is_none())
    }

    /// The numbers of the protected directories.
    pub fn numbers(&self) -> impl Iterator<Item = Root> {
        (0..)
            .map(Root)
            .zip(&self.roots)
            .take_while(|(_, root)| root.get().is_some())
            .map(|(number, _)| number)
    }

    /// The layout of a directory's files.
    #[must_use]
    pub fn layout(&self, root: Root) -> Layout {
        self.root(root).map_or(Layout::DEFAULT, |root| root.layout)
    }

    /// The policy of a directory, with whatever else the owner of this table keeps for it.
    #[inline]
    #[must_use]
    pub fn policy(&self, root: Root) -> Option<&P> {
        self.root(root).map(|held| &held.policy)
    }

    /// The canonical path of a directory.
    #[must_use]
    pub fn path(&self, root: Root) -> Option<&[u8]> {
        let mut mounts = SetOnce::all(&self.mounts);
        let own = mounts.find(|mount| mount.root == root && mount.prefix.get().is_empty())?;
        Some(own.path.get())
    }

    /// Whose the canonical path `path` is.
    #[must_use]
    pub fn decide(&self, path: &[u8]) -> Decided {
        if let Some(decided) = self.decide_shared(path) {
            return decided;
        }
        let found = match self.nearest(path, |_| true) {
            Some((mount, Rest::Below(below)))
                if !mount.prefix.get().is_empty() && self.is_dropped(mount, below) =>
            {
                self.nearest_kept(path)
            }
            found => found,
        };
        match found {
            Some((mount, Rest::Below(rest))) if mount.prefix.get().is_empty() => {
                self.decide_relative(mount.root, rest)
            }
            Some((mount, rest)) => self.decide_attached(mount, rest),
            None => self.decide_elsewhere(path),
        }
    }

    /// Without what was dropped.
    #[inline(never)]
    fn nearest_kept<'p>(&self, path: &'p [u8]) -> Option<(&Mount, Rest<'p>)> {
        self.nearest(path, |mount| !self.is_dropped(mount, b""))
    }

    /// What the path lies below, or beside: the deepest that counts.
    #[inline]
    fn nearest<'p>(
        &self,
        path: &'p [u8],
        counts: impl Fn(&Mount) -> bool,
    ) -> Option<(&Mount, Rest<'p>)> {
        let mut best: Option<(&Mount, Rest<'p>)> = None;
        for mount in SetOnce::all(&self.mounts) {
            if let Some(rest) = mount.rest(path)
                && best.is_none_or(|(other, _)| other.path.len < mount.path.len)
                && counts(mount)
            {
                best = Some((mount, rest));
            }
        }
        best
    }

    // Apart: the buffer is a page of the stack, which most directories can do without.
    #[inline(never)]
    fn decide_attached(&self, mount: &Mount, rest: Rest<'_>) -> Decided {
        let mut relative = PathBuffer::new();
        let joined = relative.set(mount.prefix.get()).and_then(|()| match rest {
            Rest::Below([]) => Ok(()),
            Rest::Below(name) => relative.push(name),
            Rest::Beside(end) => relative.append(end),
        });
        match joined {
            Ok(()) => self.judge(mount.root, relative.as_bytes()),
            // Too long to be judged is too long to be opened.
            Err(_) => Decided::Sealed(mount.root, Class::Bytes),
        }
    }

    /// Whose a name relative to directory `root` is.
    pub(crate) fn decide_relative(&self, root: Root, relative: &[u8]) -> Decided {
        match path::components(relative).next() {
            None => Decided::Root(root),
            Some(CONTROL) => Decided::Control(root),
            Some(_) => self.judge(root, relative),
        }
    }

    fn decide_elsewhere(&self, path: &[u8]) -> Decided {
        let mut found = Decided::Outside;
        for (number, root) in self.numbered() {
            if let Some(sealing) = root.policy.decide_elsewhere(path) {
                if found != Decided::Outside {
                    return Decided::Ambiguous;
                }
                found = Decided::of(number, sealing);
            }
        }
        found
    }

    fn judge(&self, number: Root, relative: &[u8]) -> Decided {
        self.root(number)
            .map_or(Decided::Outside, |root| Decided::of(number, root.policy.decide(relative)))
    }

    /// The policy name of a canonical path below `root`: what `attach` takes as prefix for a link
    /// there.
    pub(crate) fn relative(
        &self,
        root: Root,
        path: &[u8],
        into: &mut PathBuffer,
    ) -> Result<(), Errno> {
        for mount in SetOnce::all(&self.mounts).filter(|mount| mount.root == root) {
            if let Some(rest) = path::strip_prefix(path, mount.path.get()) {
                into.set(mount.prefix.get())?;
                return if into.as_bytes().is_empty() { into.set(rest) } else { into.push(rest) };
            }
        }
        Err(Errno::NOENT)
    }

    /// All of them, with their numbers.
    fn numbered(&self) -> impl Iterator<Item = (Root, &Held<P>)> {
        let all = (0..).map(Root).zip(&self.roots);
        all.filter_map(|(number, place)| Some((number, place.get()?)))
    }

    fn root(&self, number: Root) -> Option<&Held<P>> {
        self.roots.get(usize::from(number.0))?.get()
    }
}

#[cfg(test)]
mod tests;

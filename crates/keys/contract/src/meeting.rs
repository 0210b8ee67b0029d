//! Where the processes that use a protected directory meet: a file in memory (tmpfs) that they all
//! map, named by `.tidelock/lock`.
//!
//! ```text
//!   .tidelock/lock   flock(2): shared by every process, exclusive while the file is named
//!      | 256: the record: magic, identity of the lock file, which folder, random name
//!      v
//!   /dev/shm/tidelock-NAME   made by the first of them, of mode 0600 and the directory's owner
//! ```
//!
//! The words in it must lie where no disk can fail them: a page of a sparse file, or one that a
//! snapshot shares, ends a process with SIGBUS when the disk is full. Who comes second finds the
//! file by its name. If it is not there although somebody uses the directory, that is another
//! container or host, and nothing would keep the two from writing over each other: refused. Knows
//! nothing of what the words mean.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use rustix::fs::{
    AtFlags, FallocateFlags, FileType, FlockOperation, Mode, OFlags, Stat, fchmod, fchown, flock,
    fstat,
};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// Folders of memory, the first that is one.
pub const MEMORY_FOLDERS: [&str; 3] = ["/dev/shm", "/run/shm", "/run/tidelock"];
/// `f_type` of tmpfs and ramfs (statfs(2)).
const MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];
const MAGIC: [u8; 8] = *b"TDLKMEET";
/// Where the record stands in the lock file.
const RECORD_AT: u64 = 256;
const RECORD: usize = 8 + 8 + 8 + 8 + 1 + NAME;
const NAME: usize = 32;
/// How often a process tries to be the first, or to find the file of the first: for twenty seconds.
/// Others that start at the same time have the lock for themselves for a moment each, on a slow
/// disk for longer.
const ATTEMPTS: u32 = if cfg!(test) { 100 } else { 1000 };

/// Why processes cannot meet.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeetingError {
    /// A call failed.
    #[error("its lock file: {what}: {source}")]
    Lock {
        /// What was done.
        what: &'static str,
        /// The error of the kernel.
        source: std::io::Error,
    },
    /// The file system has no locks.
    #[error(
        "its file system has no file locks (flock), by which the processes that use it find each \
         other"
    )]
    NoLocks,
    /// The lock file is not what it must be.
    #[error("its lock file {0}")]
    Foreign(&'static str),
    /// A command has the directory for itself.
    #[error(
        "a command works on it and keeps others out: `tidelock encrypt`, `decrypt` or `rekey`, \
         with --dry-run too; or the disk holds up a program that starts; start this one again \
         when it has ended"
    )]
    Busy,
    /// No folder of memory.
    #[error("no file system in memory (tmpfs) is at /dev/shm or /run/shm: {0}")]
    NoMemory(String),
    /// The process may not make a file as large as that.
    #[error(
        "the shared memory of its programs is a file of {0} bytes, and this program may not make \
         one so large: raise the limit of file sizes (`ulimit -f`, LimitFSIZE= of a unit)"
    )]
    Limit(u64),
    /// Another container, host or user has the file.
    #[error(
        "it is used by processes whose shared memory {path} cannot be used here ({why}): in \
         another container, \
         on another host, or of another version"
    )]
    Elsewhere {
        /// The file in memory.
        path: PathBuf,
        /// What is wrong with it here.
        why: String,
    },
    /// A version without such a file uses the directory.
    #[error(
        "it is used by a server that runs with an earlier version of Tidelock: stop that first"
    )]
    Earlier,
}

/// What a process has of the others.
#[derive(Debug)]
pub struct Meeting {
    /// The file in memory, to be mapped. `None` on a read-only directory that nobody uses: then
    /// there is nobody to meet.
    pub memory: Option<OwnedFd>,
}

struct Record {
    folder: usize,
    name: [u8; NAME],
    size: u64,
}

/// Meets the others. `lock` is the open lock file, which must stay open: it holds the shared lock.
/// The file in memory has `size` bytes, zeros when it is new.
///
/// # Errors
/// [`MeetingError`].
pub fn meet(lock: BorrowedFd<'_>, size: u64) -> Result<Meeting, MeetingError> {
    let found = fstat(lock).map_err(failed("looking at it"))?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(MeetingError::Foreign("is no file"));
    }
    let mut last = UNNAMED;
    for attempt in 0..ATTEMPTS {
        match try_to_meet(lock, &found, size)? {
            Attempt::Met(meeting) => return Ok(meeting),
            Attempt::Failed(why) => last = why,
        }
        flock(lock, FlockOperation::Unlock).map_err(failed("unlocking it"))?;
        std::thread::sleep(std::time::Duration::from_millis(u64::from(attempt.min(20))));
    }
    Err(last)
}

/// What one look at the lock has come to. The lock is held shared by whoever has met the others.
enum Attempt {
    Met(Meeting),
    /// It may be otherwise at the next.
    Failed(MeetingError),
}

/// The first one ended before it had named the file: another is first at the next attempt.
const UNNAMED: MeetingError =
    MeetingError::Foreign("names no shared memory although the directory is in use");

/// Never waits for the lock: a command may have it for hours.
fn try_to_meet(lock: BorrowedFd<'_>, found: &Stat, size: u64) -> Result<Attempt, MeetingError> {
    match flock(lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            let made = make(lock, found, size);
            // A failure must not keep others out.
            let shared = share(lock)?;
            Ok(match made? {
                // Between the two locks another may have been first in our place.
                _ if !shared => Attempt::Failed(MeetingError::Busy),
                None => Attempt::Met(Meeting { memory: None }),
                Some((memory, record)) if is_named(lock, found, &memory, &record) => {
                    Attempt::Met(Meeting { memory: Some(memory) })
                }
                Some(_) => Attempt::Failed(UNNAMED),
            })
        }
        Err(Errno::WOULDBLOCK) if share(lock)? => {
            let Some(record) = read(lock, found)? else { return Ok(Attempt::Failed(UNNAMED)) };
            Ok(match open(&record, found, size)? {
                Some(memory) => Attempt::Met(Meeting { memory: Some(memory) }),
                // Removed by an agent, whose last program had ended: another makes a new one. Or it
                // is elsewhere for good.
                None => Attempt::Failed(MeetingError::Elsewhere {
                    path: record.path(),
                    why: Errno::NOENT.to_string(),
                }),
            })
        }
        Err(Errno::WOULDBLOCK) => Ok(Attempt::Failed(MeetingError::Busy)),
        Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK | Errno::BADF) => {
            Err(MeetingError::NoLocks)
        }
        Err(errno) => Err(failed("locking it")(errno)),
    }
}

/// True if the lock is shared now; false if another has it alone, and this process has nothing of
/// it.
fn share(lock: BorrowedFd<'_>) -> Result<bool, MeetingError> {
    match flock(lock, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(failed("sharing it")(errno)),
    }
}

/// Removes the file in memory if nobody uses the directory any more; false if somebody does. For
/// the agent, when its last program has ended. `lock` must be a descriptor of its own, since the
/// lock belongs to it.
pub fn part(lock: BorrowedFd<'_>) -> bool {
    if flock(lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return false;
    }
    if let Ok(found) = fstat(lock) {
        remove_named(lock, &found);
    }
    flock(lock, FlockOperation::Unlock).is_ok()
}

fn failed(what: &'static str) -> impl FnOnce(Errno) -> MeetingError {
    move |errno| MeetingError::Lock { what, source: errno.into() }
}

/// Makes and names a new file, nobody else being there; the old one is nobody's.
fn make(
    lock: BorrowedFd<'_>,
    found: &Stat,
    size: u64,
) -> Result<Option<(OwnedFd, Record)>, MeetingError> {
    if !is_writable(lock) {
        return Ok(None);
    }
    refuse_earlier(lock)?;
    // The kernel would end the process by a signal, without a word.
    if getrlimit(Resource::Fsize).current.is_some_and(|most| most < size) {
        return Err(MeetingError::Limit(size));
    }
    remove_named(lock, found);
    let mut tried = String::new();
    for (folder, path) in MEMORY_FOLDERS.iter().enumerate() {
        match make_in(folder, path, found, size) {
            Ok(Some((memory, record))) => {
                write(lock, found, &record)?;
                return Ok(Some((memory, record)));
            }
            Ok(None) => {}
            Err(why) => tried += &format!("{path}: {why} ({size} bytes); "),
        }
    }
    let tried = if tried.is_empty() { "none is there".to_owned() } else { tried };
    Err(MeetingError::NoMemory(tried.trim_end_matches("; ").to_owned()))
}

fn make_in(
    folder: usize,
    path: &str,
    found: &Stat,
    size: u64,
) -> Result<Option<(OwnedFd, Record)>, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(place) = rustix::fs::open(path, flags, Mode::empty()) else { return Ok(None) };
    if !MEMORY.contains(&rustix::fs::fstatfs(&place)?.f_type) {
        return Ok(None);
    }
    let mut random = [0u8; NAME / 2];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut random))
        .map_err(|_| Errno::IO)?;
    let mut name = [0u8; NAME];
    for (digits, byte) in name.as_chunks_mut::<2>().0.iter_mut().zip(random) {
        *digits = [byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]);
    }
    let record = Record { folder, name, size };
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let memory = rustix::fs::openat(&place, record.file_name(), flags, Mode::from_raw_mode(0o600))?;
    let ready = (|| {
        fchmod(&memory, Mode::from_raw_mode(0o600))?;
        let made = fstat(&memory)?;
        if (made.st_uid, made.st_gid) != (found.st_uid, found.st_gid) {
            let owner = rustix::fs::Uid::from_raw(found.st_uid);
            fchown(&memory, Some(owner), Some(rustix::fs::Gid::from_raw(found.st_gid)))?;
        }
        // All of it now: there is no room later, or there is for good.
        rustix::fs::fallocate(&memory, FallocateFlags::empty(), 0, size)
    })();
    if let Err(errno) = ready {
        let _ = rustix::fs::unlinkat(&place, record.file_name(), AtFlags::empty());
        return Err(errno);
    }
    Ok(Some((memory, record)))
}

/// The file that the first process made; `None` if there is none by its name.
fn open(record: &Record, lock: &Stat, size: u64) -> Result<Option<OwnedFd>, MeetingError> {
    let path = record.path();
    let elsewhere = |why: String| MeetingError::Elsewhere { path: path.clone(), why };
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let memory = match rustix::fs::open(&path, flags, Mode::empty()) {
        Ok(memory) => memory,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(elsewhere(errno.to_string())),
    };
    let found = fstat(&memory).map_err(|errno| elsewhere(errno.to_string()))?;
    let place = rustix::fs::fstatfs(&memory).map_err(|errno| elsewhere(errno.to_string()))?;
    let is_file = FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
    if !is_file || found.st_nlink != 1 || !MEMORY.contains(&place.f_type) {
        return Err(elsewhere("it is no file in memory with one name".to_owned()));
    }
    if found.st_uid != lock.st_uid || found.st_mode & 0o077 != 0 {
        return Err(elsewhere("it is not the directory's owner's alone".to_owned()));
    }
    if record.size != size || u64::try_from(found.st_size) != Ok(size) {
        return Err(elsewhere("it has another size".to_owned()));
    }
    Ok(Some(memory))
}

fn is_writable(lock: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_getfl(lock).is_ok_and(|flags| flags.contains(OFlags::RDWR))
}

/// The file that the lock file names, if it is this lock file's: a copy of a directory names that
/// of its original. And if it is its owner's: whoever owns the directory writes any name there, and
/// root removes what it is told to.
fn remove_named(lock: BorrowedFd<'_>, found: &Stat) {
    let Ok(Some(record)) = read(lock, found) else { return };
    let path = record.path();
    let named = rustix::fs::lstat(&path);
    if named.is_ok_and(|named| {
        FileType::from_raw_mode(named.st_mode) == FileType::RegularFile
            && named.st_uid == found.st_uid
    }) {
        let _ = rustix::fs::unlink(path);
    }
}

/// True if the lock file names this memory, and no agent has removed it between the two locks.
fn is_named(lock: BorrowedFd<'_>, found: &Stat, memory: &OwnedFd, ours: &Record) -> bool {
    fstat(memory).is_ok_and(|made| made.st_nlink == 1)
        && read(lock, found).is_ok_and(|named| named.is_some_and(|named| named.name == ours.name))
}

fn read(lock: BorrowedFd<'_>, found: &Stat) -> Result<Option<Record>, MeetingError> {
    let mut bytes = [0u8; RECORD];
    match rustix::io::pread(lock, &mut bytes, RECORD_AT) {
        Ok(RECORD) => {}
        Ok(_) => return Ok(None),
        Err(errno) => return Err(failed("reading it")(errno)),
    }
    let number = |at: usize| u64::from_le_bytes(core::array::from_fn(|byte| bytes[at + byte]));
    let ours = bytes[..8] == MAGIC && number(8) == found.st_dev && number(16) == found.st_ino;
    let name: [u8; NAME] = core::array::from_fn(|byte| bytes[33 + byte]);
    let folder = usize::from(bytes[32]);
    let hexadecimal = name.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let valid = ours && hexadecimal && folder < MEMORY_FOLDERS.len();
    Ok(valid.then(|| Record { folder, name, size: number(24) }))
}

fn write(lock: BorrowedFd<'_>, found: &Stat, record: &Record) -> Result<(), MeetingError> {
    let mut bytes = Vec::with_capacity(RECORD);
    bytes.extend_from_slice(&MAGIC);
    for number in [found.st_dev, found.st_ino, record.size] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.push(u8::try_from(record.folder).unwrap_or(u8::MAX));
    bytes.extend_from_slice(&record.name);
    let failed = |source| MeetingError::Lock { what: "writing it", source };
    let copy = lock.try_clone_to_owned().map_err(failed)?;
    let written = File::from(copy).write_all_at(&bytes, RECORD_AT).map_err(failed);
    if written.is_err() {
        let _ = rustix::fs::unlink(record.path());
    }
    written
}

impl Record {
    fn file_name(&self) -> String {
        format!("tidelock-{}", String::from_utf8_lossy(&self.name))
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(MEMORY_FOLDERS.get(self.folder).unwrap_or(&MEMORY_FOLDERS[0]))
            .join(self.file_name())
    }
}

/// Earlier versions know each other by POSIX record locks on this file, and nothing of this
/// meeting.
fn refuse_earlier(lock: BorrowedFd<'_>) -> Result<(), MeetingError> {
    match rustix::fs::fcntl_lock(lock, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::AGAIN | Errno::ACCESS) => Err(MeetingError::Earlier),
        // Without such locks those versions could not live here either.
        Err(_) => Ok(()),
        Ok(()) => rustix::fs::fcntl_lock(lock, FlockOperation::Unlock)
            .map_err(failed("unlocking its records")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, OpenOptions};
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::MetadataExt as _;

    const SIZE: u64 = 16_384;

    fn lock_file(dir: &tempfile::TempDir) -> File {
        let path = dir.path().join("lock");
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
    }

    fn memory_of(lock: &File) -> File {
        File::from(meet(lock.as_fd(), SIZE).unwrap().memory.expect("memory"))
    }

    fn inode(file: &File) -> u64 {
        file.metadata().unwrap().ino()
    }

    #[test]
    fn the_second_process_finds_the_memory_of_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (lock_file(&dir), lock_file(&dir));
        let (one, two) = (memory_of(&first), memory_of(&second));
        assert_eq!(inode(&one), inode(&two));
        assert_eq!(one.metadata().unwrap().len(), SIZE);
        // All of it is there.
        assert!(one.metadata().unwrap().blocks() * 512 >= SIZE);
        assert!(!part(lock_file(&dir).as_fd()));
        drop((first, second));
        assert!(part(lock_file(&dir).as_fd()));
        assert_eq!(one.metadata().unwrap().nlink(), 0);
    }

    #[test]
    fn memory_that_nobody_uses_is_made_new() {
        let dir = tempfile::tempdir().unwrap();
        let lock = lock_file(&dir);
        let old = memory_of(&lock);
        old.write_all_at(b"left behind by a crash", 0).unwrap();
        drop(lock);
        let lock = lock_file(&dir);
        let new = memory_of(&lock);
        let mut first = [9u8; 8];
        new.read_exact_at(&mut first, 0).unwrap();
        assert_eq!((first, old.metadata().unwrap().nlink()), ([0; 8], 0));
        drop(lock);
        part(lock_file(&dir).as_fd());
    }

    #[test]
    fn a_copy_of_the_directory_leaves_the_memory_of_its_original_alone() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let lock = lock_file(&dir);
        let original = memory_of(&lock);
        fs::copy(dir.path().join("lock"), other.path().join("lock")).unwrap();
        let copied = lock_file(&other);
        let copy = memory_of(&copied);
        assert_ne!(inode(&original), inode(&copy));
        assert_eq!(original.metadata().unwrap().nlink(), 1);
        drop((lock, copied));
        assert!(part(lock_file(&dir).as_fd()) && part(lock_file(&other).as_fd()));
    }

    #[test]
    fn memory_that_is_not_there_while_others_use_the_directory_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let lock = lock_file(&dir);
        let memory = memory_of(&lock);
        let record = read(lock.as_fd(), &fstat(&lock).unwrap()).unwrap().expect("a record");
        let loose = rustix::fs::Mode::from_raw_mode(0o666);
        fchmod(&memory, loose).unwrap();
        let found = meet(lock_file(&dir).as_fd(), SIZE);
        assert!(matches!(found, Err(MeetingError::Elsewhere { .. })), "{found:?}");
        fs::remove_file(record.path()).unwrap();
        let found = meet(lock_file(&dir).as_fd(), SIZE);
        assert!(matches!(found, Err(MeetingError::Elsewhere { .. })), "{found:?}");
    }

    /// Whoever owns the directory writes the lock file, and root's program or agent reads it.
    #[test]
    fn what_the_lock_file_names_is_removed_only_if_it_is_a_file_of_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let lock = lock_file(&dir);
        let memory = memory_of(&lock);
        let record = read(lock.as_fd(), &fstat(&lock).unwrap()).unwrap().expect("a record");
        drop(lock);
        let is_there = || fs::symlink_metadata(record.path()).is_ok();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(record.path(), Some(65534), None).unwrap();
            assert!(part(lock_file(&dir).as_fd()) && is_there());
        }
        fs::remove_file(record.path()).unwrap();
        std::os::unix::fs::symlink("/nowhere", record.path()).unwrap();
        assert!(part(lock_file(&dir).as_fd()) && is_there());
        assert_ne!(inode(&memory_of(&lock_file(&dir))), inode(&memory));
        assert!(is_there());
        fs::remove_file(record.path()).unwrap();
        assert!(part(lock_file(&dir).as_fd()));
    }

    #[test]
    fn a_command_that_has_the_directory_for_itself_is_told_and_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let command = lock_file(&dir);
        flock(&command, FlockOperation::LockExclusive).unwrap();
        let found = meet(lock_file(&dir).as_fd(), SIZE);
        assert!(matches!(found, Err(MeetingError::Busy)), "{found:?}");
        // One that is about to end keeps nobody out.
        let lock = lock_file(&dir);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| meet(lock.as_fd(), SIZE));
            std::thread::sleep(std::time::Duration::from_millis(200));
            drop(command);
            assert!(waits.join().unwrap().unwrap().memory.is_some());
        });
        drop(lock);
        part(lock_file(&dir).as_fd());
    }

    #[test]
    fn memory_that_is_removed_while_another_comes_is_made_new() {
        let dir = tempfile::tempdir().unwrap();
        let (last, next) = (lock_file(&dir), lock_file(&dir));
        let old = memory_of(&last);
        let record = read(last.as_fd(), &fstat(&last).unwrap()).unwrap().expect("a record");
        fs::remove_file(record.path()).unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| memory_of(&next));
            std::thread::sleep(std::time::Duration::from_millis(200));
            drop(last);
            assert_ne!(inode(&waits.join().unwrap()), inode(&old));
        });
        drop(next);
        part(lock_file(&dir).as_fd());
    }

    #[test]
    fn twenty_that_come_at_once_have_one_memory() {
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..20 {
            let met: Vec<(File, u64)> = std::thread::scope(|scope| {
                let come = || {
                    let lock = lock_file(&dir);
                    let number = inode(&memory_of(&lock));
                    (lock, number)
                };
                let all: Vec<_> = (0..20).map(|_| scope.spawn(come)).collect();
                all.into_iter().map(|one| one.join().unwrap()).collect()
            });
            assert!(met.iter().all(|(_, number)| *number == met[0].1));
        }
        part(lock_file(&dir).as_fd());
    }
}

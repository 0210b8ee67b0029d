//! Drives engine processes with the actions of the model, as the hooks would.

use std::io::IoSlice;
use std::rc::Rc;
use std::thread;

use tidelock_engine::{Descriptor, Errno, Fd, LastLink, OpenFile, System};
use tidelock_format::{Layout, UNIT_USIZE};

use super::{ByDirectory, Engine, SimCipher, SimDisk, SimProcess};
use crate::model::{Action, O_APPEND, Outcome, Plain, class_of};

/// Several engine processes on one simulated disk.
pub struct Driver {
    disk: Rc<SimDisk>,
    processes: Vec<Rc<Engine>>,
    /// Looks at files without disturbing the others.
    observer: Rc<Engine>,
}

type File<'p> = OpenFile<'p, SimProcess, SimCipher, ByDirectory>;

impl Driver {
    /// Fresh processes on `disk`.
    #[must_use]
    pub fn new(disk: Rc<SimDisk>, processes: usize) -> Self {
        let observer = disk.process();
        Self { processes: (0..processes).map(|_| disk.process()).collect(), observer, disk }
    }

    /// The disk.
    #[must_use]
    pub const fn disk(&self) -> &Rc<SimDisk> {
        &self.disk
    }

    /// One of the processes.
    #[must_use]
    pub fn process(&self, who: usize) -> &Rc<Engine> {
        &self.processes[who]
    }

    /// Carries out an action.
    pub fn apply(&self, action: &Action) -> Outcome {
        match self.attempt(action) {
            Ok(outcome) => outcome,
            Err(error) => Outcome::Error(error.0),
        }
    }

    fn attempt(&self, action: &Action) -> Result<Outcome, Errno> {
        use Action as A;
        let process = &self.processes[action.who()];
        let number = |n: usize| Ok(Outcome::Number(n as u64));
        let fd_number = |fd: i32| Ok(Outcome::Number(u64::from(fd.cast_unsigned())));
        let file = |fd: i32| file(process, fd);
        match *action {
            A::Open { path, flags, .. } => {
                fd_number(process.open(Fd::CWD, &c(path), flags, 0o600)?)
            }
            A::Close { fd, .. } => process.close(fd).and_then(|()| number(0)),
            A::Dup { fd, lowest, .. } => fd_number(process.duplicate(&file(fd)?, lowest, false)?),
            A::Dup2 { fd, onto, .. } => {
                let file = file(fd)?;
                if fd != onto {
                    process.duplicate_onto(&file, onto, false)?;
                }
                fd_number(onto)
            }
            A::Read { fd, len, aligned, .. } => {
                let file = file(fd)?;
                buffered(len, aligned, |into| file.read(into))
            }
            A::Pread { fd, at, len, aligned, .. } => {
                let file = file(fd)?;
                buffered(len, aligned, |into| file.pread(into, at))
            }
            A::Write { fd, ref pieces, .. } => {
                let file = file(fd)?;
                number(match &pieces[..] {
                    [one] => file.write(one)?,
                    _ => file.writev(&slices(pieces))?,
                })
            }
            A::Pwrite { fd, at, ref pieces, .. } => {
                let file = file(fd)?;
                number(match &pieces[..] {
                    [one] => file.pwrite(one, at)?,
                    _ => file.pwritev(&slices(pieces), at)?,
                })
            }
            A::Seek { fd, offset, whence, .. } => {
                file(fd)?.seek(offset, whence).map(Outcome::Number)
            }
            A::SetLen { fd, size, .. } => file(fd)?.set_len(size).and_then(|()| number(0)),
            A::Allocate { fd, mode, at, len, .. } => {
                file(fd)?.allocate(mode, at, len).and_then(|()| number(0))
            }
            A::Append { fd, on, .. } => {
                file(fd)?.set_flags(if on { O_APPEND } else { 0 });
                number(0)
            }
            A::Sync { fd, .. } => {
                let file = file(fd)?;
                process.system().sync(file.hidden())?;
                number(0)
            }
            A::Rename { from, to, .. } => {
                process.rename((Fd::CWD, &c(from)), (Fd::CWD, &c(to)), 0).and_then(|()| number(0))
            }
            A::Link { from, to, .. } => {
                process.link((Fd::CWD, &c(from)), (Fd::CWD, &c(to)), 0).and_then(|()| number(0))
            }
            A::Unlink { path } => {
                if self.disk.unlink(path) {
                    number(0)
                } else {
                    Err(Errno::NOENT)
                }
            }
            A::TruncateAt { path, size, .. } => {
                process.truncate_at(&c(path), size).and_then(|()| number(0))
            }
            A::SizeAt { path, .. } => {
                let changes = process.size_changes();
                let found = process.system().stat_at(Fd::CWD, &c(path))?;
                let size = process.size_at((Fd::CWD, &c(path)), LastLink::Follow, &found, changes);
                size.map(Outcome::Number)
            }
        }
    }

    /// What another process reads at `path`.
    ///
    /// # Errors
    /// Those of open and read.
    pub fn content(&self, path: &str) -> Result<Vec<u8>, Errno> {
        self.disk.quietly(|| read_all(&self.observer, path))
    }

    /// The first difference between what the model and a fresh reader see.
    ///
    /// # Errors
    /// The difference, in words.
    pub fn compare(&self, model: &Plain) -> Result<(), String> {
        for path in crate::model::PATHS {
            match (model.content(path), self.disk.exists(path)) {
                (None, false) => {}
                (None, true) => return Err(format!("{path} should not be there")),
                (Some(_), false) => return Err(format!("{path} should be there")),
                (Some(want), true) => {
                    let got =
                        self.content(path).map_err(|error| format!("{path}: errno {}", error.0))?;
                    if let Some(difference) = differ(want, &got) {
                        return Err(format!("{path}: {difference}"));
                    }
                    self.check_disk(path)?;
                }
            }
        }
        Ok(())
    }

    /// The rules that hold on the disk between calls: a size that a plain size maps to; zeros
    /// behind the last block; no unit half a hole (zero rule 2).
    ///
    /// # Errors
    /// The broken rule, in words.
    pub(crate) fn check_disk(&self, path: &str) -> Result<(), String> {
        let layout = self.disk.layout();
        self.disk.inspect(path, |file| {
            let size = tidelock_format::DiskSize(file.bytes().len() as u64);
            if !size.is_canonical(layout) {
                return Err(format!("{path}: no plain size is {} on the disk", size.0));
            }
            half_hole(file.bytes(), layout, class_of(path))
                .map_or(Ok(()), |unit| Err(format!("{path}: unit {unit} is half a hole")))
        })
    }

    /// Closes everything and looks whether anything was left behind.
    ///
    /// # Errors
    /// What was left, in words.
    pub fn finish(&self) -> Result<(), String> {
        for process in self.processes.iter().chain([&self.observer]) {
            for fd in process.system().visible() {
                process.close(fd).map_err(|error| format!("close({fd}): errno {}", error.0))?;
            }
            let left = process.system().real_files();
            if left > 0 {
                return Err(format!("{left} hidden descriptors are left behind"));
            }
            if !process.system().holds_no_lock() {
                return Err("a lock is still held".to_owned());
            }
        }
        Ok(())
    }
}

/// Reads the whole file at `path` through `process`, in odd pieces.
///
/// # Errors
/// Those of open and read.
pub fn read_all(process: &Engine, path: &str) -> Result<Vec<u8>, Errno> {
    let fd = process.open(Fd::CWD, &c(path), 0, 0)?;
    let bytes = file(process, fd).and_then(|file| {
        let mut all = Vec::new();
        let mut piece = vec![0; 50_000];
        loop {
            match file.read(&mut piece)? {
                0 => break Ok(all),
                count => all.extend_from_slice(&piece[..count]),
            }
        }
    });
    process.close(fd)?;
    bytes
}

/// Runs `work` on a stack of its own: processes hold their tables by value, which is more than a
/// test's stack takes.
///
/// # Panics
/// As `work` does, and when there is no memory for a thread.
pub fn with_room(work: impl FnOnce() + Send + 'static) {
    let thread = thread::Builder::new().stack_size(256 << 20).spawn(work).expect("a thread");
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// A path as the kernel takes it.
#[must_use]
pub fn c(path: &str) -> Vec<u8> {
    [path.as_bytes(), b"\0"].concat()
}

/// The sealed file behind a descriptor; EBADF if there is none.
///
/// # Errors
/// EBADF.
pub fn file(process: &Engine, fd: i32) -> Result<File<'_>, Errno> {
    match process.descriptor(fd) {
        Descriptor::Sealed(file) => Ok(file),
        _ => Err(Errno::BADF),
    }
}

/// The first unit of which a part is a hole and a part is not, where the class does not allow that.
#[must_use]
pub fn half_hole(disk: &[u8], layout: Layout, class: tidelock_format::Class) -> Option<usize> {
    if class.zero_rule() == tidelock_format::ZeroRule::Block {
        return None;
    }
    let size = tidelock_format::DiskSize(disk.len() as u64).plain(layout);
    let start = layout.data_offset() as usize;
    let end = start + usize::try_from(size.block_end()).unwrap_or(usize::MAX);
    let body = disk.get(start..end).unwrap_or_default();
    body.chunks(UNIT_USIZE).position(|unit| {
        let zero = |block: &&[u8; 16]| **block == [0; 16];
        let zeros = unit.as_chunks::<16>().0.iter().filter(zero).count();
        zeros > 0 && zeros < unit.len() / 16
    })
}

/// Where two contents differ first, in words.
#[must_use]
pub fn differ(want: &[u8], got: &[u8]) -> Option<String> {
    let at = want.iter().zip(got).position(|(want, got)| want != got);
    match at {
        Some(at) => Some(format!(
            "byte {at} of {} is {:#x} and should be {:#x}",
            want.len(),
            got[at],
            want[at]
        )),
        None if want.len() != got.len() => {
            Some(format!("{} bytes where there should be {}", got.len(), want.len()))
        }
        None => None,
    }
}

fn slices(pieces: &[Vec<u8>]) -> Vec<IoSlice<'_>> {
    pieces.iter().map(|piece| IoSlice::new(piece)).collect()
}

fn buffered(
    len: usize,
    aligned: bool,
    read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
) -> Result<Outcome, Errno> {
    let mut memory = vec![b'#'; len + 4160];
    let from = memory.as_ptr().align_offset(4096) + usize::from(!aligned);
    let count = read(&mut memory[from..from + len])?;
    let behind = memory[from + len..].iter().chain(&memory[..from]);
    assert!(behind.copied().all(|byte| byte == b'#'), "bytes beside the buffer were changed");
    Ok(Outcome::Bytes(memory[from..from + count].to_vec()))
}

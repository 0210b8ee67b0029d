//! A plain POSIX file system of byte vectors: what a program would see without Tidelock.
//!
//! ```text
//!   Raw (numbers, shrinkable) --Plain::concrete--> Action --Plain::apply--------> Outcome
//!                                                         --sim::Driver::apply--> Outcome: equal
//! ```
//!
//! Knows no keys, no headers and no faults. [`Plain::concrete`] leaves out the one thing that
//! Tidelock does not promise: a process that works in whole units on a paged file or a log, while
//! another process gives that file an end within a unit (docs/concurrency.md).

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use tidelock_engine::Errno;
use tidelock_format::{BLOCK, Class, UNIT};

mod action;

pub use libc::{O_APPEND, O_CREAT, O_DIRECT, O_EXCL, O_RDWR, O_TRUNC, O_WRONLY};

pub use action::{Action, Outcome, Raw, data};

/// The names that the actions use.
pub const PATHS: [&str; 7] = [
    "/pg/paged/a",
    "/pg/paged/b",
    "/pg/log/a",
    "/pg/log/b",
    "/pg/bytes/a",
    "/pg/bytes/b",
    "/pg/bytes/c",
];
/// As the simulated kernel has it.
const LIMIT: i32 = 256;

/// The file system, and the processes that use it.
#[derive(Clone)]
pub struct Plain {
    files: Vec<Vec<u8>>,
    names: BTreeMap<&'static str, usize>,
    processes: Vec<BTreeMap<i32, Rc<Open>>>,
    /// Bytes that other files must not have: each write gets its own.
    stamp: u64,
}

/// An open file description.
pub struct Open {
    file: usize,
    class: Class,
    /// The size was a multiple of the unit when it was opened.
    whole: bool,
    flags: RefCell<i32>,
    offset: Cell<u64>,
}

impl Plain {
    /// Nothing but processes.
    #[must_use]
    pub fn new(processes: usize) -> Self {
        Self {
            files: Vec::new(),
            names: BTreeMap::new(),
            processes: vec![BTreeMap::new(); processes],
            stamp: 0,
        }
    }

    /// A copy that shares no offsets with this one.
    #[must_use]
    pub fn fork(&self) -> Self {
        let mut copies: BTreeMap<*const Open, Rc<Open>> = BTreeMap::new();
        let mut copy = self.clone();
        for open in copy.processes.iter_mut().flat_map(BTreeMap::values_mut) {
            let twin = copies.entry(Rc::as_ptr(open)).or_insert_with(|| {
                Rc::new(Open {
                    file: open.file,
                    class: open.class,
                    whole: open.whole,
                    flags: RefCell::new(*open.flags.borrow()),
                    offset: Cell::new(open.offset.get()),
                })
            });
            *open = Rc::clone(twin);
        }
        copy
    }

    /// The bytes of the file at `path`.
    #[must_use]
    pub fn content(&self, path: &str) -> Option<&[u8]> {
        self.names.get(path).map(|&file| self.files[file].as_slice())
    }

    /// Lets the file at `path` be what another run has shown.
    pub fn set_content(&mut self, path: &str, bytes: Vec<u8>) {
        if let Some(&file) = self.names.get(path) {
            self.files[file] = bytes;
        }
    }

    /// All names, with the number of the file behind each.
    #[must_use]
    pub const fn names(&self) -> &BTreeMap<&'static str, usize> {
        &self.names
    }

    /// The descriptors of a process.
    #[must_use]
    pub fn descriptors(&self, who: usize) -> Vec<i32> {
        self.processes[who].keys().copied().collect()
    }

    /// The file and offset behind a descriptor.
    #[must_use]
    pub fn behind(&self, who: usize, fd: i32) -> Option<(usize, u64)> {
        self.processes[who].get(&fd).map(|open| (open.file, open.offset.get()))
    }

    /// A name of this file, if it has one.
    #[must_use]
    pub fn name_of(&self, file: usize) -> Option<&'static str> {
        self.names.iter().find(|(_, have)| **have == file).map(|(name, _)| *name)
    }

    /// True if writes through this descriptor go to the end.
    #[must_use]
    pub fn appends(&self, who: usize, fd: i32) -> bool {
        self.processes[who].get(&fd).is_some_and(|open| *open.flags.borrow() & O_APPEND != 0)
    }

    /// Adds a file of no bytes.
    pub fn add_empty(&mut self, path: &'static str) {
        self.files.push(Vec::new());
        self.names.insert(path, self.files.len() - 1);
    }

    /// Moves the offset of a descriptor.
    pub fn set_offset(&mut self, who: usize, fd: i32, at: u64) {
        if let Some(open) = self.processes[who].get(&fd) {
            open.offset.set(at);
        }
    }

    /// Carries out an action.
    pub fn apply(&mut self, action: &Action) -> Outcome {
        match self.attempt(action) {
            Ok(outcome) => outcome,
            Err(error) => Outcome::Error(error.0),
        }
    }

    fn attempt(&mut self, action: &Action) -> Result<Outcome, Errno> {
        use Action as A;
        let number = |n: usize| Ok(Outcome::Number(n as u64));
        match *action {
            A::Open { who, path, flags } => self.open(who, path, flags),
            A::Close { who, fd } => {
                self.processes[who].remove(&fd).ok_or(Errno::BADF)?;
                number(0)
            }
            A::Dup { who, fd, lowest } => {
                let open = self.at(who, fd)?;
                let new = self.lowest_free(who, lowest);
                self.processes[who].insert(new, open);
                Ok(Outcome::Number(u64::from(new.cast_unsigned())))
            }
            A::Dup2 { who, fd, onto } => {
                let open = self.at(who, fd)?;
                if onto >= LIMIT {
                    return Err(Errno::BADF);
                }
                self.processes[who].insert(onto, open);
                Ok(Outcome::Number(u64::from(onto.cast_unsigned())))
            }
            A::Read { who, fd, len, .. } => {
                let open = self.readable(who, fd)?;
                let bytes = self.slice(open.file, open.offset.get(), len);
                open.offset.set(open.offset.get() + bytes.len() as u64);
                Ok(Outcome::Bytes(bytes))
            }
            A::Pread { who, fd, at, len, .. } => {
                let open = self.readable(who, fd)?;
                Ok(Outcome::Bytes(self.slice(open.file, at, len)))
            }
            A::Write { who, fd, ref pieces } => {
                let open = self.writable(who, fd)?;
                let at = self.target(&open, open.offset.get());
                let count = self.write(open.file, at, &pieces.concat());
                if count > 0 {
                    open.offset.set(at + count as u64);
                }
                number(count)
            }
            A::Pwrite { who, fd, at, ref pieces } => {
                let open = self.writable(who, fd)?;
                let at = self.target(&open, at);
                number(self.write(open.file, at, &pieces.concat()))
            }
            A::Seek { who, fd, offset, whence } => {
                let open = self.at(who, fd)?;
                let base = match whence {
                    0 => 0,
                    1 => open.offset.get(),
                    _ => self.files[open.file].len() as u64,
                };
                let to = base.checked_add_signed(offset).ok_or(Errno::INVAL)?;
                open.offset.set(to);
                Ok(Outcome::Number(to))
            }
            A::SetLen { who, fd, size } => {
                let open = self.at(who, fd)?;
                if *open.flags.borrow() & 3 == 0 {
                    return Err(Errno::INVAL);
                }
                self.files[open.file].resize(index(size), 0);
                number(0)
            }
            A::Allocate { who, fd, mode, at, len } => {
                let open = self.writable(who, fd)?;
                let (at, end) = (index(at), index(at + len));
                let file = &mut self.files[open.file];
                match (mode, len) {
                    (_, 0) => return Err(Errno::INVAL),
                    (0, _) if end > file.len() => file.resize(end, 0),
                    (3, _) if at < file.len() => {
                        let end = end.min(file.len());
                        file[at..end].fill(0);
                    }
                    _ => {}
                }
                number(0)
            }
            A::Append { who, fd, on } => {
                let open = self.at(who, fd)?;
                let flags = *open.flags.borrow() & !O_APPEND | if on { O_APPEND } else { 0 };
                *open.flags.borrow_mut() = flags;
                number(0)
            }
            A::Sync { who, fd } => self.at(who, fd).and_then(|_| number(0)),
            A::Rename { from, to, .. } => {
                let file = *self.names.get(from).ok_or(Errno::NOENT)?;
                if self.names.get(to) != Some(&file) {
                    self.names.remove(from);
                    self.names.insert(to, file);
                }
                number(0)
            }
            A::Link { from, to, .. } => {
                let file = *self.names.get(from).ok_or(Errno::NOENT)?;
                if self.names.contains_key(to) {
                    return Err(Errno::EXIST);
                }
                self.names.insert(to, file);
                number(0)
            }
            A::Unlink { path } => {
                self.names.remove(path).ok_or(Errno::NOENT)?;
                number(0)
            }
            A::TruncateAt { path, size, .. } => {
                let file = *self.names.get(path).ok_or(Errno::NOENT)?;
                self.files[file].resize(index(size), 0);
                number(0)
            }
            A::SizeAt { path, .. } => {
                let file = *self.names.get(path).ok_or(Errno::NOENT)?;
                number(self.files[file].len())
            }
        }
    }

    fn open(&mut self, who: usize, path: &'static str, flags: i32) -> Result<Outcome, Errno> {
        let file = match self.names.get(path) {
            Some(_) if flags & (O_CREAT | O_EXCL) == O_CREAT | O_EXCL => return Err(Errno::EXIST),
            Some(&file) => file,
            None if flags & O_CREAT == 0 => return Err(Errno::NOENT),
            None => {
                self.files.push(Vec::new());
                self.names.insert(path, self.files.len() - 1);
                self.files.len() - 1
            }
        };
        if flags & O_TRUNC != 0 {
            self.files[file].clear();
        }
        let class = class_of(path);
        let whole = class != Class::Bytes && (self.files[file].len() as u64).is_multiple_of(UNIT);
        let flags = RefCell::new(flags);
        let open = Open { file, class, whole, flags, offset: Cell::new(0) };
        let fd = self.lowest_free(who, 0);
        self.processes[who].insert(fd, Rc::new(open));
        Ok(Outcome::Number(u64::from(fd.cast_unsigned())))
    }

    fn at(&self, who: usize, fd: i32) -> Result<Rc<Open>, Errno> {
        self.processes[who].get(&fd).cloned().ok_or(Errno::BADF)
    }

    fn readable(&self, who: usize, fd: i32) -> Result<Rc<Open>, Errno> {
        let open = self.at(who, fd)?;
        if *open.flags.borrow() & 3 == O_WRONLY { Err(Errno::BADF) } else { Ok(open) }
    }

    fn writable(&self, who: usize, fd: i32) -> Result<Rc<Open>, Errno> {
        let open = self.at(who, fd)?;
        if *open.flags.borrow() & 3 == 0 { Err(Errno::BADF) } else { Ok(open) }
    }

    fn target(&self, open: &Open, at: u64) -> u64 {
        if *open.flags.borrow() & O_APPEND != 0 { self.files[open.file].len() as u64 } else { at }
    }

    fn slice(&self, file: usize, at: u64, len: usize) -> Vec<u8> {
        let rest = self.files[file].get(index(at)..).unwrap_or_default();
        rest[..rest.len().min(len)].to_vec()
    }

    fn write(&mut self, file: usize, at: u64, bytes: &[u8]) -> usize {
        if !bytes.is_empty() {
            let file = &mut self.files[file];
            let end = index(at) + bytes.len();
            if file.len() < end {
                file.resize(end, 0);
            }
            file[index(at)..end].copy_from_slice(bytes);
        }
        bytes.len()
    }

    fn lowest_free(&self, who: usize, lowest: i32) -> i32 {
        let table = &self.processes[who];
        (lowest..LIMIT).find(|fd| !table.contains_key(fd)).unwrap_or(lowest)
    }

    /// True if, after `action`, a file would end inside a unit that another process takes for
    /// whole.
    fn is_excluded(&self, action: &Action) -> bool {
        let mut after = self.fork();
        after.apply(action);
        let who = action.who();
        let others = self.processes.iter().enumerate().filter(|(other, _)| *other != who);
        let mut held = others.flat_map(|(_, table)| table.values()).filter(|open| open.whole);
        held.any(|open| !(after.files[open.file].len() as u64).is_multiple_of(UNIT))
    }
}

/// The class of the names below this path.
#[must_use]
pub fn class_of(path: &str) -> Class {
    match path.split('/').nth(2) {
        Some("paged") => Class::Paged,
        Some("log") => Class::Log,
        _ => Class::Bytes,
    }
}

fn index(at: u64) -> usize {
    usize::try_from(at).expect("the actions use small offsets")
}

/// Sizes on and beside the edges of blocks and units.
pub const EDGES: [u64; 24] = [
    0,
    1,
    BLOCK - 1,
    BLOCK,
    BLOCK + 1,
    31,
    33,
    100,
    511,
    512,
    UNIT - 17,
    UNIT - 16,
    UNIT - 1,
    UNIT,
    UNIT + 1,
    UNIT + 16,
    2 * UNIT - 1,
    2 * UNIT,
    2 * UNIT + 1,
    3 * UNIT,
    3 * UNIT + 5,
    5 * UNIT,
    6 * UNIT - 3,
    8 * UNIT,
];

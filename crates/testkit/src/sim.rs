//! A simulated kernel: an in-memory disk that several simulated processes share.
//!
//! ```text
//!   engine::Process --Kernel, System--> SimProcess  process.rs  descriptors, offsets, locks of one
//!                                          |
//!                                       SimDisk     this file   counts calls, carries out faults
//!                                          |         faults.rs   errno, short write, crash
//!                                       names.rs                 directories, links, paths
//!                                       file.rs                  bytes, what is synced, crashes
//!   engine::Process --UnitCipher------> SimCipher   cipher.rs    fast, keyed, no security
//! ```
//!
//! Everything runs in one thread, so that a seed names one run. The disk watches what arrives: a
//! run of plaintext (tests write only lower-case letters, and scratch memory is full of them) is a
//! panic.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tidelock_cipher::{DataKey, Secret};
use tidelock_engine::{
    DESCRIPTORS, Decide, Errno, FileStat, KeyTable, Process, Sealing, Table, Words,
};
use tidelock_format::{Class, DataKeyId, DiskSize, Layout};

mod cipher;
pub mod driver;
mod faults;
mod file;
mod names;
mod process;
mod scratch;

pub use cipher::SimCipher;
pub use driver::Driver;
pub use faults::{Call, Fault, Plan};
pub use file::SimFile;
pub use process::SimProcess;
pub use scratch::Scratch;

use names::{Names, Node};

/// The protected directory of every simulated process.
pub const ROOT: &str = "/pg";

/// An engine process over the simulated kernel.
pub type Engine = Process<SimProcess, SimCipher, ByDirectory>;

/// The first directory below the root names the class; anything else is plain.
pub struct ByDirectory;

/// A disk, and the kernel that serves it.
pub struct SimDisk {
    files: RefCell<Vec<SimFile>>,
    names: RefCell<Names>,
    plan: Cell<Option<Plan>>,
    calls: Cell<u64>,
    /// Which calls were made since [`SimDisk::forget_calls`].
    trace: RefCell<Vec<Call>>,
    crashed: Cell<bool>,
    /// How many 4096-byte blocks may still be allocated.
    room: Cell<Option<u64>>,
    /// No file grows beyond this, as by RLIMIT_FSIZE; a write stops there.
    longest: Cell<Option<usize>>,
    /// Milliseconds; it goes on only when told to.
    clock: Cell<u64>,
    nonces: Cell<u64>,
    processes: Cell<u64>,
    words: Box<Words>,
    layout: Layout,
}

impl Decide for ByDirectory {
    fn decide(&self, relative: &[u8]) -> Sealing {
        let first = relative.split(|&byte| byte == b'/').next();
        match first {
            Some(b"paged") => Sealing::Sealed(Class::Paged),
            Some(b"log") => Sealing::Sealed(Class::Log),
            Some(b"bytes") => Sealing::Sealed(Class::Bytes),
            _ => Sealing::Plain,
        }
    }

    fn decide_elsewhere(&self, _path: &[u8]) -> Option<Sealing> {
        None
    }

    fn same_below(&self, from: &[u8], to: &[u8]) -> bool {
        let below = |directory: &[u8]| self.decide(&[directory, b"/x"].concat());
        below(from) == below(to)
    }
}

impl SimDisk {
    /// An empty disk with the directories of each class, and one for plain files.
    #[must_use]
    pub fn new(layout: Layout) -> Rc<Self> {
        let names = Names::with_directories(&[
            "pg",
            "pg/paged",
            "pg/log",
            "pg/bytes",
            "pg/plain",
            "out",
            "proc",
            "proc/self",
            "proc/self/fd",
        ]);
        Rc::new(Self::with(layout, Vec::new(), names, 0))
    }

    fn with(layout: Layout, files: Vec<SimFile>, names: Names, nonces: u64) -> Self {
        Self {
            files: RefCell::new(files),
            names: RefCell::new(names),
            plan: Cell::new(None),
            calls: Cell::new(0),
            trace: RefCell::new(Vec::new()),
            crashed: Cell::new(false),
            room: Cell::new(None),
            longest: Cell::new(None),
            clock: Cell::new(3_600_000),
            nonces: Cell::new(nonces),
            processes: Cell::new(0),
            words: Box::new(Words::new()),
            layout,
        }
    }

    /// A process that has the keys and the protected directory.
    ///
    /// # Panics
    /// Never: the root path is short.
    #[must_use]
    pub fn process(self: &Rc<Self>) -> Rc<Engine> {
        self.processes.set(self.processes.get() + 1);
        let system = SimProcess::new(Rc::clone(self), self.processes.get());
        let keys = KeyTable::with_room(1024);
        let table = Table::with_room(DESCRIPTORS, 1024);
        let engine =
            Rc::new(Engine::simulated(system, SimCipher::new(Rc::clone(self)), keys, table));
        engine.hide(SimProcess::anchor_fd());
        engine.roots().add(ROOT.as_bytes(), ByDirectory, self.layout).expect("the path is short");
        engine
    }

    /// The layout of the directory's policy.
    #[must_use]
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// Lets a call fail, or the machine.
    pub fn plan(&self, plan: Option<Plan>) {
        self.plan.set(plan);
    }

    /// How many blocks of 4096 bytes may still be allocated; `None` is no limit.
    pub fn limit_room(&self, blocks: Option<u64>) {
        self.room.set(blocks);
    }

    /// Stops writes at this byte of any file, within a block too; `None` is no limit.
    pub fn limit_size(&self, longest: Option<usize>) {
        self.longest.set(longest);
    }

    /// Lets time pass.
    pub fn wait(&self, milliseconds: u64) {
        self.clock.set(self.clock.get() + milliseconds);
    }

    /// Cuts a file to nothing, as a program without the library does.
    ///
    /// # Panics
    /// There is no such file.
    pub fn cut_off(&self, path: &str) {
        let file = self.names.borrow().file(path.as_bytes()).expect("it is there");
        self.files.borrow_mut()[file].set_size(0);
    }

    /// Does something without faults, and without counting its calls.
    pub fn quietly<T>(&self, act: impl FnOnce() -> T) -> T {
        let (plan, calls, room) = (self.plan.take(), self.calls.get(), self.room.take());
        let done = act();
        self.plan.set(plan);
        self.calls.set(calls);
        self.room.set(room);
        done
    }

    fn stat_node(&self, node: &Node) -> FileStat {
        let (inode, size) = match node {
            Node::File(file) => {
                (*file as u64 + 100, self.files.borrow()[*file].bytes().len() as u64)
            }
            Node::Directory => (2, 4096),
            Node::Link(target) => (3, target.len() as u64),
        };
        FileStat {
            device: 1,
            inode,
            size: DiskSize(size),
            regular: matches!(node, Node::File(_)),
            directory: *node == Node::Directory,
            symlink: matches!(node, Node::Link(_)),
            block: false,
        }
    }

    /// How many calls have been made.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.get()
    }

    /// Begins a new trace.
    pub fn forget_calls(&self) {
        self.trace.borrow_mut().clear();
    }

    /// The calls since [`forget_calls`](Self::forget_calls).
    #[must_use]
    pub fn trace(&self) -> Vec<Call> {
        self.trace.borrow().clone()
    }

    /// True once the planned crash has happened.
    #[must_use]
    pub fn has_crashed(&self) -> bool {
        self.crashed.get()
    }

    /// What a crash now could leave, chosen by `dice`: a number below its argument.
    #[must_use]
    pub fn after_crash(&self, dice: &mut dyn FnMut(u64) -> u64) -> Rc<Self> {
        let files = self.files.borrow().iter().map(|file| file.after_crash(dice)).collect();
        Rc::new(Self::with(self.layout, files, self.names.borrow().clone(), self.nonces.get()))
    }

    /// Looks at a file by path.
    ///
    /// # Panics
    /// If there is none.
    pub fn inspect<T>(&self, path: &str, look: impl FnOnce(&mut SimFile) -> T) -> T {
        let node = self.names.borrow().file(path.as_bytes()).expect("the file exists");
        look(&mut self.files.borrow_mut()[node])
    }

    /// True if this path names a file.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.names.borrow().file(path.as_bytes()).is_some()
    }

    /// Removes a name, as unlink(2): open files live on.
    pub fn unlink(&self, path: &str) -> bool {
        self.names.borrow_mut().remove(path.as_bytes())
    }

    /// Makes a symbolic link.
    pub fn symlink(&self, path: &str, target: &str) {
        self.names.borrow_mut().insert_link(path.as_bytes(), target.as_bytes());
    }

    /// Makes a directory.
    pub fn make_directory(&self, path: &str) {
        self.names.borrow_mut().insert_directory(path.as_bytes());
    }

    /// Puts a file there, as a program without the library would.
    pub fn put(&self, path: &str, bytes: &[u8]) {
        let node = self.new_file();
        self.files.borrow_mut()[node] = SimFile::synced(bytes.to_vec());
        self.names.borrow_mut().insert_file(path.as_bytes(), node);
    }

    fn new_file(&self) -> usize {
        self.files.borrow_mut().push(SimFile::synced(Vec::new()));
        self.files.borrow().len() - 1
    }

    /// Counts a call; the fault that strikes it, if any. `Ok(Some(n))` lets a write stop after n
    /// bytes.
    fn enter(&self, call: Call) -> Result<Option<usize>, Errno> {
        let number = self.calls.get();
        self.calls.set(self.calls.get() + 1);
        self.trace.borrow_mut().push(call);
        if self.crashed.get() {
            return Err(Errno::IO);
        }
        match self.plan.get() {
            Some(plan) if plan.at == number => match plan.fault {
                Fault::Errno(error) if call.may_fail_with(error) => Err(error),
                Fault::Errno(_) => Ok(None),
                Fault::Short(count) => Ok(call.writes().then_some(count)),
                Fault::Crash => {
                    self.crashed.set(true);
                    Err(Errno::IO)
                }
            },
            _ => Ok(None),
        }
    }

    fn data_key() -> (DataKeyId, DataKey) {
        (DataKeyId([7; 16]), DataKey::new(Secret::new([42; 32])))
    }

    fn nonce(&self) -> u64 {
        self.nonces.set(self.nonces.get() + 1);
        self.nonces.get()
    }
}

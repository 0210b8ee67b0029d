//! One line on standard error for the administrator, made in fixed memory; names in it cannot play
//! with his terminal.
//!
//! Descriptor 2 is not always standard error: a daemon closes it, and the next file or socket that
//! it opens has the number. A line is written there only if it is what it was when the program
//! started, or what lines are for: a terminal, a pipe, a file that is appended to. Else it goes to
//! the system's log.

use core::fmt::Write as _;
use core::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::sync::OnceLock;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use tidelock_cipher::UnitCipher;
use tidelock_contract::ExitClass;
use tidelock_engine::{Refusal, Shown, System};

use crate::host::{Engine, Host};

/// A text of at most `N` bytes; what is longer is cut.
struct Line<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Line<N> {
    const fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    fn push(&mut self, bytes: &[u8]) {
        let count = bytes.len().min(N - self.len);
        if let (Some(place), Some(bytes)) =
            (self.bytes.get_mut(self.len..self.len + count), bytes.get(..count))
        {
            place.copy_from_slice(bytes);
            self.len += count;
        }
    }
}

impl<const N: usize> core::fmt::Write for Line<N> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

/// The program that is guarded, whose name its lines begin with.
pub(crate) static PROGRAM: OnceLock<Vec<u8>> = OnceLock::new();

/// Says why a call on a file is refused; of a stray plain file also what to type.
pub fn refusal<S: System, C: UnitCipher>(process: &Engine<S, C>, path: &[u8], why: Refusal) {
    let mut line = Line::<1400>::new();
    line.push(b"tidelock: ");
    if let Some(program) = PROGRAM.get() {
        let mut name = Line::<200>::new();
        let _ = write!(name, "{}", Shown(program));
        line.push(name.as_bytes());
        line.push(b": ");
    }
    let mut name = Line::<700>::new();
    // All lines take what fits.
    let _ = write!(name, "{}", Shown(path));
    line.push(name.as_bytes());
    let _ = write!(line, ": {why}");
    if why == Refusal::PlainWhereSealed {
        advise(process, path, &mut line);
    }
    line.push(b"\n");
    send(line.as_bytes());
}

/// Says that a descriptor which the program was given cannot be used.
pub(crate) fn handed_on(what: &str) {
    let mut line = Line::<600>::new();
    line.push(b"tidelock: ");
    if let Some(program) = PROGRAM.get() {
        // What fits.
        let _ = write!(line, "{}: ", Shown(program));
    }
    let _ = writeln!(
        line,
        "{what} is a sealed file that another program has opened; it cannot be handed on, so every \
         use fails (EBADF): let this program open the file by its name"
    );
    send(line.as_bytes());
}

/// Says that the profile was changed more often than this process can follow.
pub(crate) fn profile_kept() {
    send(
        b"tidelock: the profile was changed too often for this process, which goes on with the one \
          before: start it again\n",
    );
}

/// Says, once, why a library is not loaded that would have a libc of its own.
pub fn own_libc() {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.swap(true, Relaxed) {
        send(
            b"tidelock: dlmopen into a namespace of its own is refused: such a library would call a \
              libc of its own, and what it writes would be plain\n",
        );
    }
}

/// Says, once, why a call is refused that would give a part of this process descriptors of its own.
pub fn one_table(call: &str) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if TOLD.swap(true, Relaxed) {
        return;
    }
    let mut line = Line::<400>::new();
    // What fits.
    let _ = writeln!(
        line,
        "tidelock: {call} is refused: threads and others with the same memory must have the same \
         descriptors, or one file's bytes would be sealed as another's; let the program use a \
         process of its own (fork)"
    );
    send(line.as_bytes());
}

/// Says why a program with keys gets no other root.
pub fn new_root(call: &str) {
    let mut line = Line::<300>::new();
    // What fits.
    let _ = writeln!(
        line,
        "tidelock: {call} is refused: the protected directory has no name below a new root; leave \
         the option out, or start there: chroot ROOT tidelock exec -D DIR -- PROGRAM"
    );
    send(line.as_bytes());
}

/// Says why there is no `io_uring`, whatever the program says of it.
pub fn io_uring() {
    send(
        b"tidelock: io_uring is refused: it would go round this library; let the program use \
          another way, PostgreSQL by io_method = worker\n",
    );
}

/// Globs of the owner are for files that only the last rule covers. A name that a shell or a glob
/// would read otherwise is for people to write.
fn advise<S: System, C: UnitCipher, const N: usize>(
    process: &Engine<S, C>,
    path: &[u8],
    line: &mut Line<N>,
) {
    let path = path.strip_suffix(b"\0").unwrap_or(path);
    let roots = process.roots();
    let below = roots.numbers().find_map(|root| {
        let dir = roots.path(root)?;
        let name = path.strip_prefix(dir)?.strip_prefix(b"/")?;
        Some((dir, name, roots.policy(root)?))
    });
    let simple = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+=:@%~".contains(byte);
    match below {
        Some((dir, name, directory))
            if directory.policy().is_owners(name)
                && dir.iter().chain(name).all(simple)
                && dir.len() + name.len() < MAX_ADVICE =>
        {
            // What a program rewrites has another name at first, which begins with its own.
            let (before, behind): (&[u8], &[u8]) = match name.ends_with(b".conf") {
                true => (b" --plain '", b"*'"),
                false => (b" --plain ", b""),
            };
            for part in [
                &b"; remove it, or keep it plain: tidelock profile set -D "[..],
                dir,
                before,
                name,
                behind,
            ] {
                line.push(part);
            }
        }
        Some((_, name, directory)) if !directory.policy().is_owners(name) => {
            line.push(b"; move it away: pages and WAL are never plain here");
        }
        _ => line.push(b"; remove it, or keep it plain by `tidelock profile set --plain`"),
    }
}

/// Bytes of a directory and a name that fit into the line beside the rest.
const MAX_ADVICE: usize = 400;

/// Says why the process cannot go on, with a hint, and ends it with the code of `exit`.
pub(crate) fn fatal(
    host: &dyn Host,
    error: core::fmt::Arguments<'_>,
    hint: &str,
    exit: ExitClass,
) -> ! {
    let mut line = Line::<2048>::new();
    let mut what = Line::<1500>::new();
    // Both lines take what fits.
    let _ = write!(what, "{error}");
    let _ = writeln!(line, "error: {}\nhint:  {hint}", Shown(what.as_bytes()));
    send(line.as_bytes());
    host.exit(exit as i32)
}

/// A pipe that nobody reads, or a terminal that is held, is not waited for: the caller may have a
/// file that others wait for.
fn send(bytes: &[u8]) {
    let told = is_standard_error()
        && is_read()
        && match rustix::io::write(rustix::stdio::stderr(), bytes) {
            // A reader that has gone has nobody to be told.
            Ok(_) | Err(rustix::io::Errno::PIPE) => true,
            // Standard error may itself be the file that is refused.
            Err(_) => false,
        };
    if !told {
        // Without a system log there is nobody to tell.
        let _ = log(bytes);
    }
}

/// True if standard error takes a line at once, or within a moment.
fn is_read() -> bool {
    let mut standard = [PollFd::from_borrowed_fd(rustix::stdio::stderr(), PollFlags::OUT)];
    let moment = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    // Only who waits is interrupted. What is refused the write says.
    poll(&mut standard, Some(&moment)).map_or_else(|why| why != Errno::INTR, |ready| ready > 0)
}

/// What descriptor 2 was when the library started.
static DEVICE: AtomicU64 = AtomicU64::new(0);
static INODE: AtomicU64 = AtomicU64::new(0);
static STARTED: AtomicBool = AtomicBool::new(false);

/// Remembers what standard error is; whatever it is, the program was given it for that.
pub(crate) fn start() {
    if let Ok(stat) = rustix::fs::fstat(rustix::stdio::stderr()) {
        DEVICE.store(stat.st_dev, Relaxed);
        INODE.store(stat.st_ino, Relaxed);
        STARTED.store(true, Release);
    }
}

/// True if a line at descriptor 2 does no harm.
fn is_standard_error() -> bool {
    let Ok(now) = rustix::fs::fstat(rustix::stdio::stderr()) else { return false };
    if STARTED.load(Acquire)
        && now.st_dev == DEVICE.load(Relaxed)
        && now.st_ino == INODE.load(Relaxed)
    {
        return true;
    }
    match FileType::from_raw_mode(now.st_mode) {
        FileType::CharacterDevice | FileType::Fifo => true,
        // A log that the program has opened for it; a data file is never opened so.
        FileType::RegularFile => rustix::fs::fcntl_getfl(rustix::stdio::stderr())
            .is_ok_and(|flags| flags.contains(rustix::fs::OFlags::APPEND)),
        _ => false,
    }
}

/// Hands a line to the system's log, as an error of a daemon (RFC 3164, 4.1.1); waits for nobody.
fn log(line: &[u8]) -> Result<(), rustix::io::Errno> {
    let mut message = Line::<2100>::new();
    message.push(b"<27>");
    message.push(line.trim_ascii_end());
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    let address = SocketAddrUnix::new("/dev/log")?;
    rustix::net::sendto(&socket, message.as_bytes(), SendFlags::NOSIGNAL, &address).map(|_| ())
}

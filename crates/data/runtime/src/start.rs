//! Which part the library plays in a program, and the way from an agent's grant to a directory in
//! the engine's table.
//!
//! In a program that is not listed two small files are read for each agent, and the guard begins.
//! In a listed one everything is ready before main, or the process ends with an error and a hint:
//! it never runs unprotected.

use core::mem::MaybeUninit;
use core::sync::atomic::AtomicU64;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, RawDir, ResolveFlags, fstat, openat, openat2};
use tidelock_cipher::UnitCipher;
use tidelock_contract::control::{ANCHOR, FOLDER, LOCK};
use tidelock_contract::wire::Grant;
use tidelock_contract::{ExitClass, MAX_NOTICE, Notice, meet, names_program, postgres};
use tidelock_engine::{Decided, Errno, Fd, PathBuffer, System};

use crate::belief::believes;
use crate::directory::{Directory, Served};
use crate::handshake::{self, Granted};
use crate::held::{self, HeldKeyring, Source};
use crate::host::{Engine, Host};
use crate::sharing::{MAP, Sharing};
use crate::{cores, galera, messages, mounts};

/// The name of the command.
const COMMAND: &[u8] = b"tidelock";
/// A list of programs is no longer.
const MAX_LIST: usize = 64 * 1024;

/// The part that the library plays in a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// It gets keys, or does not run.
    Protects {
        /// By a list, and not only since the user has named it for this run.
        listed: bool,
    },
    /// It gets none, and is kept from writing plain bytes where sealed ones belong.
    Guards,
}

/// The part to play in the program `exe`. `agents` are the paths of their sockets, separated by
/// colons; `named` are the programs that `tidelock exec` has named for this run.
#[must_use]
pub fn part(agents: &[u8], exe: &[u8], named: [Option<&[u8]>; 2]) -> Part {
    let listed = sockets(agents).any(|socket| lists(socket, exe));
    // It asks whatever the lists say: an agent that was started since does not know it, and
    // refuses.
    match listed || named.contains(&Some(exe)) {
        true => Part::Protects { listed },
        false => Part::Guards,
    }
}

/// Ends a process whose program is unknown: a server without keys would write plain bytes.
pub fn refuse_nameless(host: &dyn Host, why: Errno) -> ! {
    messages::start();
    let why = std::io::Error::from_raw_os_error(why.0);
    messages::fatal(
        host,
        format_args!("/proc/self/exe cannot be read, so nobody knows which program this is: {why}"),
        "mount /proc where it runs (a chroot, RootDirectory= of a unit), or unset LD_PRELOAD",
        ExitClass::Key,
    )
}

/// Gets the keys of all directories, or ends the process.
pub fn protect<S: System, C: UnitCipher>(
    process: &Engine<S, C>,
    host: &dyn Host,
    agents: &[u8],
    exe: &[u8],
) {
    messages::start();
    let mut core_dumps = true;
    for socket in sockets(agents) {
        core_dumps &= protect_one(process, host, socket, exe);
    }
    if !core_dumps {
        cores::forbid();
    }
}

/// Gets the policies of all directories; false if there is none, and so nothing to guard.
pub fn guard<S: System, C: UnitCipher>(process: &Engine<S, C>, agents: &[u8], exe: &[u8]) -> bool {
    let mut found = false;
    for socket in sockets(agents) {
        let Some(notice) = notice(socket, &[]) else { continue };
        let directory = notice.directory.as_os_str().as_bytes();
        let entry = Directory::guarded(notice.policy);
        if let Ok(root) = process.roots().add(directory, entry, notice.layout) {
            mounts::learn(process, root, directory);
            found = true;
        }
    }
    if found {
        messages::start();
        let _ = messages::PROGRAM.set(exe.to_vec());
        // A link that there is no room for is judged when it is used.
        let _ = try_attach_links(process);
    }
    found
}

fn sockets(agents: &[u8]) -> impl Iterator<Item = &[u8]> {
    agents.split(|&byte| byte == b':').filter(|socket| !socket.is_empty())
}

/// True if the list beside the socket names this program. The agent decides; this only says who may
/// ask. Without the list everybody must ask: a server would run without keys. So it is where the
/// list is not whole, or the policy, by which a program without keys is guarded; or if somebody has
/// written them who is not believed. The command is no server. A unit of systemd gives it the
/// library too, and has it start the agent, which writes the list.
fn lists(socket: &[u8], exe: &[u8]) -> bool {
    let list = beside(socket, b".programs", MAX_LIST).filter(|list| is_whole(&list.bytes));
    if let Some(list) = list {
        let mut entries = list.bytes.split(|&byte| byte == b'\n');
        if entries.any(|entry| !entry.is_empty() && names_program(entry, exe)) {
            return true;
        }
        if notice(socket, &[list.owner]).is_some() {
            return false;
        }
    }
    !names_program(COMMAND, exe)
}

/// The policy beside a socket, if whoever wrote it is believed about that directory, and these
/// users are too.
fn notice(socket: &[u8], others: &[u32]) -> Option<Notice> {
    let file = beside(socket, b".policy", MAX_NOTICE)?;
    let notice = Notice::decode(&file.bytes).ok()?;
    let mut users = others.iter().chain([&file.owner]);
    users.all(|user| believes(*user, &notice.directory)).then_some(notice)
}

/// False for what a power cut leaves of a file: no byte of it, zeros, or a part; and for a list
/// that is longer than any. That of an earlier version has no [`LIST_END`], and is empty if there
/// is nobody on it: then everybody asks.
///
/// [`LIST_END`]: tidelock_contract::control::LIST_END
fn is_whole(list: &[u8]) -> bool {
    list.ends_with(b"\n") && !list.contains(&0) && list.len() < MAX_LIST
}

/// A file beside a socket.
struct Beside {
    bytes: Vec<u8>,
    owner: u32,
}

/// A file beside a socket, if there is one; at most so many bytes of it.
fn beside(socket: &[u8], extension: &[u8], most: usize) -> Option<Beside> {
    let stem = socket.strip_suffix(b".sock").unwrap_or(socket);
    let path = [stem, extension].concat();
    // A pipe in its place holds nobody.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = openat(CWD, path, flags, Mode::empty()).ok()?;
    let found = fstat(&file).ok()?;
    let size = usize::try_from(found.st_size).ok()?;
    let mut bytes = vec![0u8; size.min(most)];
    let mut count = 0;
    loop {
        match rustix::io::read(&file, bytes.get_mut(count..)?) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    bytes.truncate(count);
    Some(Beside { bytes, owner: found.st_uid })
}

/// Asks one agent for its directory and keys; true if this program may leave core files.
#[inline(never)]
fn protect_one<S: System, C: UnitCipher>(
    process: &Engine<S, C>,
    host: &dyn Host,
    socket: &[u8],
    exe: &[u8],
) -> bool {
    let name = String::from_utf8_lossy(socket);
    let granted = match handshake::ask(host, socket, handshake::AT_START) {
        Ok(granted) => granted,
        Err(why) => messages::fatal(
            host,
            format_args!("no key for {}: {why} ({name})", String::from_utf8_lossy(exe)),
            "start the program with `tidelock exec -D DIR -- PROGRAM`, which unlocks the directory",
            ExitClass::Key,
        ),
    };
    if let Err(why) = set_up(process, host, &granted, socket, exe) {
        messages::fatal(
            host,
            format_args!("{} cannot be used: {why}", granted.grant.directory.display()),
            "`tidelock verify -D DIR` tells what is wrong with it",
            ExitClass::Refused,
        );
    }
    host.conceal(granted.connection);
    granted.grant.core_dumps
}

fn set_up<S: System, C: UnitCipher>(
    process: &Engine<S, C>,
    host: &dyn Host,
    granted: &Granted,
    socket: &[u8],
    exe: &[u8],
) -> Result<(), String> {
    let grant = &granted.grant;
    let path = grant.directory.as_os_str().as_bytes();
    let errno = |what: &'static str| move |error: Errno| format!("{what} (errno {})", error.0);
    let keyring = take(host, grant).ok_or("it has more data keys than this library can hold")?;
    let anchor = anchor()?;
    let (lock, sharing) = share_words(host, &grant.directory)?;
    let recovery = match grant.policy.recovers(exe) {
        true => {
            let mut control = PathBuffer::new();
            let joined = [path, b"/", postgres::CONTROL_FILE.as_bytes()].concat();
            control.set(&joined).map_err(errno("its path is too long"))?;
            Some(control)
        }
        false => None,
    };
    let served = Served {
        socket: socket.into(),
        anchor: host.conceal(anchor),
        lock,
        sharing,
        galera: galera::loads_galera(exe),
        keyring,
        recovery,
        followed: AtomicU64::new(0),
        not_before: AtomicU64::new(0),
    };
    let entry = Directory::served(grant.policy.clone(), served);
    let root = process
        .roots()
        .add(path, entry, grant.layout)
        .map_err(errno("its path is too long, or there are too many directories"))?;
    mounts::learn(process, root, path);
    Ok(())
}

/// Takes over the keys of a grant that are new here.
pub(crate) fn take(host: &dyn Host, grant: &Grant) -> Option<&'static HeldKeyring> {
    let Grant { keyring, generation, current, .. } = *grant;
    let keys = grant.keys.iter().map(|key| (key.id, key.key.secret().expose()));
    held::take(host, Source { keyring, generation, current }, keys)
}

/// What all descriptors of sealed files refer to: it can be neither read nor written nor opened
/// again.
fn anchor() -> Result<OwnedFd, String> {
    let failed = |error: rustix::io::Errno| format!("{ANCHOR}: {error}");
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let link = openat(CWD, ANCHOR, flags, Mode::empty()).map_err(failed)?;
    let mode = fstat(&link).map_err(failed)?.st_mode;
    match FileType::from_raw_mode(mode) {
        FileType::Symlink => Ok(link),
        _ => Err(format!("{ANCHOR} is no symbolic link")),
    }
}

/// Opens what is in `.tidelock`, by no link: a program of root's may work on a directory of another
/// user, who puts a link or a second name of another file there at any moment.
fn control_file(directory: &Path, name: &str, flags: OFlags) -> Result<OwnedFd, String> {
    use rustix::io::Errno;
    let path = directory.join(FOLDER).join(name);
    let failed = |error: Errno| format!("{}: {error}", path.display());
    let way = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = match openat2(CWD, directory, way, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // A kernel or a sandbox without openat2.
        Err(Errno::NOSYS) => openat(CWD, directory, way | OFlags::NOFOLLOW, Mode::empty()),
        opened => opened,
    };
    let above = above.map_err(failed)?;
    let folder = openat(&above, FOLDER, way | OFlags::NOFOLLOW, Mode::empty());
    // A pipe in its place holds nobody.
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = openat(folder.map_err(failed)?, name, flags, Mode::empty()).map_err(failed)?;
    let (owner, found) = (fstat(&above).map_err(failed)?.st_uid, fstat(&file).map_err(failed)?);
    let me = rustix::process::geteuid().as_raw();
    let refused = |why: &str| Err(format!("{}: {why}", path.display()));
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return refused("somebody has put something else in its place");
    }
    if ![0, me, owner].contains(&found.st_uid) {
        return refused("it belongs to somebody else");
    }
    // Copies of hard links are no harm to their owner, who alone can have linked another file of
    // one's own here.
    if found.st_nlink > 1 && me != owner {
        return refused("it has a second name, a hard link, elsewhere");
    }
    Ok(file)
}

/// Meets the other processes of the directory: the lock file, and the memory that they share.
fn share_words(host: &dyn Host, directory: &Path) -> Result<(Fd, Sharing), String> {
    let open = |flags| control_file(directory, LOCK, flags);
    let lock = open(OFlags::RDWR).or_else(|_| open(OFlags::RDONLY))?;
    let met = meet(lock.as_fd(), MAP).map_err(|why| why.to_string())?;
    let lock = host.conceal(lock);
    let Some(memory) = met.memory else { return Ok((lock, Sharing::with_nobody())) };
    let words = host.map_words(&memory).map_err(|error| format!("its shared memory: {error}"))?;
    let sharing = Sharing::with_others(words, host.conceal(memory));
    if !sharing.can_have_number(host) {
        return Err("the system gives this program no record locks (fcntl), by which processes \
                    learn which others live: is it in a sandbox?"
            .into());
    }
    Ok((lock, sharing))
}

/// Links of a protected directory that lead out of it, such as pg_wal and the tablespaces: their
/// targets belong to it, by whatever path they are reached. Ends the process if there are more than
/// can be known.
pub fn attach_links<S: System, C: UnitCipher>(process: &Engine<S, C>, host: &dyn Host) {
    if let Err(directory) = try_attach_links(process) {
        messages::fatal(
            host,
            format_args!(
                "too many links lead out of {}: what they lead to would not all be sealed",
                String::from_utf8_lossy(&directory)
            ),
            "about 120 can be known, and those of tablespaces too where a program has two \
             directories: let one link lead to a directory above all that they lead to \
             (`ln -s /dir/above/all DIR/+above`)",
            ExitClass::Refused,
        );
    }
}

/// The directory with the first link that there is no room for.
fn try_attach_links<S: System, C: UnitCipher>(process: &Engine<S, C>) -> Result<(), Vec<u8>> {
    for directory in process.roots().numbers().filter_map(|root| process.roots().path(root)) {
        let spaces = [directory, b"/", postgres::TABLESPACES.as_bytes()].concat();
        for directory in [directory, spaces.as_slice()] {
            // What cannot be attached for another reason is met again when it is used.
            if attach_links_in(process, directory) == Err(Errno::NFILE) {
                return Err(directory.to_vec());
            }
        }
    }
    Ok(())
}

fn attach_links_in<S: System, C: UnitCipher>(
    process: &Engine<S, C>,
    directory: &[u8],
) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(fd) = openat(CWD, directory, flags, Mode::empty()) else { return Ok(()) };
    let mut room = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(fd.as_fd(), &mut room);
    let mut links = Vec::new();
    while let Some(Ok(entry)) = entries.next() {
        // Some file systems do not say what it is. What is no link is left alone.
        if matches!(entry.file_type(), FileType::Symlink | FileType::Unknown) {
            links.push([directory, b"/", entry.file_name().to_bytes()].concat());
        }
    }
    // In their order, so that one to a directory above all others can come first by its name.
    links.sort_unstable();
    match links.iter().any(|link| process.attach(Fd::CWD, link) == Err(Errno::NFILE)) {
        true => Err(Errno::NFILE),
        false => Ok(()),
    }
}

/// A regular file of ours that was opened by whoever started us is written without being sealed, as
/// `pg_ctl -l DIR/log` lets a shell do, and read as it is on the disk.
pub fn refuse_inherited<S: System, C: UnitCipher>(process: &Engine<S, C>, host: &dyn Host) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(listing) = openat(CWD, c"/proc/self/fd", flags, Mode::empty()) else { return };
    let mut room = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(listing.as_fd(), &mut room);
    while let Some(Ok(entry)) = entries.next() {
        if let Some(number) = entry.file_name().to_str().ok().and_then(|name| name.parse().ok()) {
            refuse_if_ours(process, host, number);
        }
    }
}

fn refuse_if_ours<S: System, C: UnitCipher>(process: &Engine<S, C>, host: &dyn Host, number: i32) {
    let system = process.system();
    let mut path = [0u8; 4096];
    if !system.stat(Fd(number)).is_ok_and(|stat| stat.regular) {
        return;
    }
    let Ok(count) = system.path_of(Fd(number), &mut path) else { return };
    let path = path.get(..count).unwrap_or_default();
    if let Decided::Sealed(..) = process.roots().decide(path) {
        let (what, hint) = if host.is_read_only(Fd(number)) {
            (
                "this program would read sealed bytes",
                "let the program open the file by its name, without `<` of the shell",
            )
        } else {
            (
                "its bytes would not be sealed",
                "write that file elsewhere, for example `pg_ctl -l /var/log/...`, or let \
                 logging_collector write it",
            )
        };
        let path = String::from_utf8_lossy(path);
        messages::fatal(
            host,
            format_args!("descriptor {number} is {path}, opened outside this program, so {what}"),
            hint,
            ExitClass::Refused,
        );
    }
}

/// Says so where standard input, output or error is a sealed file of the program that started this
/// one, as in `sh -c 'cat a > b'`: what is handed on is the anchor, and every use of it ends with
/// EBADF. Where both output and error are, nothing that the program says reaches anybody, and it
/// may end well all the same: it ends here. Where error alone is, its work may be good without it.
/// A program with keys may open the file again by its name, as servers do that replace themselves:
/// it goes on.
///
/// Servers of MariaDB write a sealed error log by both, and start scripts with it (wsrep_sst_*),
/// which do their work without what they say there: those are told of input and output alone.
pub fn tell_of_anchors<S: System, C: UnitCipher>(process: &Engine<S, C>, host: &dyn Host) {
    let is_one = |number| is_anchor(process.system(), Fd(number), &mut [0u8; 4096]);
    let (output, error) = (is_one(1), is_one(2));
    let may_be_script = error && starts_scripts(process);
    let roots = process.roots();
    let mut here = roots.numbers().filter_map(|root| roots.policy(root));
    let has_keys = here.any(|directory| directory.keys().is_some());
    if output && error && !may_be_script && !has_keys {
        messages::fatal(
            host,
            format_args!(
                "standard output and error are a sealed file that another program has opened; it \
                 cannot be handed on, so all that this program says would be lost"
            ),
            "let this program open the file by its name, or write to a pipe that the other reads",
            ExitClass::Refused,
        );
    }
    for (is_anchor, what) in [
        (is_one(0), "standard input"),
        (output, "standard output"),
        (error && !may_be_script, "standard error"),
    ] {
        if is_anchor {
            messages::handed_on(what);
        }
    }
}

/// True if a directory has such servers, by their names in its policy.
fn starts_scripts<S: System, C: UnitCipher>(process: &Engine<S, C>) -> bool {
    let roots = process.roots();
    let mut policies = roots.numbers().filter_map(|root| roots.policy(root)).map(Directory::policy);
    policies.any(|policy| galera::SERVERS.iter().any(|server| policy.lists_by_name(server)))
}

fn is_anchor(system: &impl System, fd: Fd, path: &mut [u8]) -> bool {
    // A link and not what it leads to: opened with O_PATH.
    let odd = system.stat(fd).is_ok_and(|stat| !stat.regular && !stat.directory);
    let named = system.path_of(fd, path).ok().and_then(|count| path.get(..count));
    odd && named == Some(ANCHOR.as_bytes())
}

/// True if there is something to ask before a fork. Takes little of the stack.
#[must_use]
pub fn has_news<S: System, C: UnitCipher>(process: &Engine<S, C>) -> bool {
    crate::renewal::has_news(process)
}

/// Before a fork: the child begins with the keys of today.
pub fn before_fork<S: System, C: UnitCipher>(process: &Engine<S, C>, host: &dyn Host) {
    crate::renewal::follow_before_fork(process, host);
}

/// Remembers nothing of parents' threads in a forked child.
pub fn after_fork_in_child<S: System, C: UnitCipher>(process: &Engine<S, C>) {
    for root in process.roots().numbers() {
        if let Some(served) = process.roots().policy(root).and_then(Directory::keys) {
            served.sharing.after_fork_in_child();
        }
    }
    crate::renewal::after_fork_in_child();
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::chown;

    use tidelock_contract::Policy;
    use tidelock_format::Layout;

    use super::*;

    #[test]
    fn where_a_power_cut_has_left_no_list_or_no_policy_everybody_asks() {
        let home = tempfile::tempdir().unwrap();
        let (list, policy) = (home.path().join("id.programs"), home.path().join("id.policy"));
        let agents = [home.path().as_os_str().as_bytes(), b"/id.sock"].concat();
        let asks = |exe: &[u8]| part(&agents, exe, [None, None]) != Part::Guards;
        let none = Policy::new("test".into(), Vec::new(), Vec::new(), None, Vec::new()).unwrap();
        let notice = Notice::encode(Path::new("/srv/data"), Layout::DEFAULT, &none);
        fs::write(&policy, &notice).unwrap();
        for whole in ["server\n# the end\n", "server\n"] {
            fs::write(&list, whole).unwrap();
            assert!(asks(b"/bin/server") && !asks(b"/bin/cp"), "{whole:?}");
        }
        fs::write(&list, "# the end\n").unwrap();
        assert!(!asks(b"/bin/server"));
        for torn in ["", "\0\0\0", "other\nser"] {
            fs::write(&list, torn).unwrap();
            assert!(asks(b"/bin/server") && !asks(b"/usr/bin/tidelock"), "{torn:?}");
        }
        fs::write(&list, "other\n# the end\n").unwrap();
        assert!(!asks(b"/bin/server"));
        for torn in [&b""[..], &notice[..notice.len() - 1], &[0; 64]] {
            fs::write(&policy, torn).unwrap();
            assert!(asks(b"/bin/server") && !asks(b"/usr/bin/tidelock"), "{torn:?}");
        }
        // The agent writes the policy first.
        fs::remove_file(&policy).unwrap();
        assert!(asks(b"/bin/server"));
        fs::write(&policy, &notice).unwrap();
        fs::remove_file(&list).unwrap();
        assert!(asks(b"/bin/server"));
        // Nor do files count of a user whose the directory is not.
        fs::write(&list, "other\n# the end\n").unwrap();
        assert!(!asks(b"/bin/server"));
        for path in [&list, &policy] {
            if chown(path, Some(54321), None).is_ok() {
                assert!(asks(b"/bin/server"));
                chown(path, Some(0), None).unwrap();
            }
        }
        assert!(!asks(b"/bin/server"));
    }
}

//! The agent's loop: one thread that accepts, judges, answers and waits for its last client to
//! leave.
//!
//! Holds the grant as bytes in locked memory, and nothing else of the keyring.

mod allowed;
mod place;
mod room;

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send};
use rustix::process::{DumpableBehavior, Pid, PidfdFlags, pidfd_open, set_dumpable_behavior};
use signal_hook::consts::SIGTERM;
use signal_hook::low_level::pipe;
use tidelock_cipher::Secret;
use tidelock_contract::control::{FOLDER, notice_beside, programs_beside, starter_beside};
use tidelock_contract::wire::{
    self, ClientInfo, Grant, MAX_ANSWER, MAX_REQUEST, RefusalReason, Request, Status, Terms,
};
use tidelock_contract::{Notice, Policy, Starter, part};
use tidelock_format::{Generation, KeyringId};
use tidelock_keyring::{Keyring, KeyringDir};
use zeroize::Zeroizing;

use crate::audit::{Audit, ChainKey, Details, Event, Log};
use crate::error::Error;
use crate::listed::{Helpers, is_linked, list};
use crate::memory::{LockedBytes, Primitives};
use crate::peer::{Peer, Program, is_alive, judge};
use crate::rundir::RunDir;
use allowed::{Allowed, hold};
use place::{listen_at, lock, write_beside};
use room::make_room;

/// How long a connection may stay without a request.
const SILENCE: Duration = Duration::from_secs(10);

/// How an agent behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where its files are.
    pub run_dir: RunDir,
    /// The audit log.
    pub log: Option<Log>,
    /// Listed programs get keys even if the user of the server can replace them.
    pub allow_writable_programs: bool,
    /// Programs that get keys may leave core files.
    pub core_dumps: bool,
    /// Programs that have keys from an agent that is gone: it stays as long as any of these lives,
    /// so that what they fork finds it.
    pub accompany: Vec<i32>,
    /// Programs that get keys though the policy does not list them; not handed to another process.
    pub helpers: Helpers,
    /// How long it waits for its first client, and for a program that was just listed.
    pub grace: Duration,
    /// How long it stays after its last client.
    pub linger: Duration,
}

impl Options {
    /// 30 seconds of grace, 10 to linger; the audit log is in the run directory.
    #[must_use]
    pub const fn new(run_dir: RunDir) -> Self {
        Self {
            run_dir,
            log: None,
            allow_writable_programs: false,
            core_dumps: false,
            accompany: Vec::new(),
            helpers: |_, _| Vec::new(),
            grace: Duration::from_secs(30),
            linger: Duration::from_secs(10),
        }
    }
}

/// An agent that listens.
pub struct Server {
    listener: OwnedFd,
    socket: PathBuf,
    socket_file: (u64, u64),
    /// Held as long as it may give keys.
    lock: File,
    grant: Box<dyn LockedBytes>,
    policy: Policy,
    /// Programs that root's configuration adds to the list of the policy, by absolute path. Never
    /// those that the user of the server can replace.
    helpers: Vec<PathBuf>,
    allowed: Vec<Allowed>,
    myself: Program,
    keyring: KeyringId,
    generation: Generation,
    /// Of the keyring file that was unlocked.
    file: [u8; 32],
    directory: PathBuf,
    audit: Audit,
    options: Options,
    primitives: Primitives,
    connections: Vec<Connection>,
    /// The descriptors that there are for them.
    room: usize,
    /// Those that it accompanies and that live.
    companions: Vec<OwnedFd>,
    /// Names the memory that its programs share; open from the start, since the directory may be
    /// gone at the end.
    meeting_place: Option<File>,
    /// When it ends, unless somebody comes or a listed program is waited for.
    until: Instant,
}

struct Connection {
    socket: OwnedFd,
    since: Instant,
    /// Set once it got keys.
    client: Option<Peer>,
}

impl Server {
    /// Listens for programs of `keyring`, whose protected directory is `directory`, canonical. From
    /// here on the process cannot be dumped or traced by its own user.
    ///
    /// # Errors
    /// [`Error::AlreadyRunning`] if another agent holds this keyring; [`Error::Outdated`];
    /// [`Error::Io`].
    pub fn bind(
        keyring: Keyring,
        directory: &Path,
        options: Options,
        primitives: Primitives,
    ) -> Result<Self, Error> {
        let id = keyring.id();
        let myself = Program::of_process("self").map_err(Error::io("look at", "/proc/self/exe"))?;
        set_dumpable_behavior(DumpableBehavior::NotDumpable)
            .map_err(Error::sys("forbid dumps of", "this process"))?;
        let lock = lock(&options.run_dir, id)?;
        let grant =
            grant(&keyring, directory, options.core_dumps).ok_or_else(|| Error::NotStarted {
                why: "the keyring has more data keys than fit into a message".to_owned(),
            })?;
        let grant = (primitives.lock)(grant);
        let chain = ChainKey::of(&keyring, primitives.lock);
        let (policy, generation) = (keyring.policy().clone(), keyring.generation());
        let layout = keyring.layout();
        drop(keyring);
        let file = digest_of(directory, id, generation);
        let socket = options.run_dir.socket(id);
        let helpers = (options.helpers)(id, directory);
        write_beside(&notice_beside(&socket), &Notice::encode(directory, layout, &policy))?;
        write_beside(&programs_beside(&socket), &list(&policy, &helpers))?;
        let starter = Starter { program: myself.path.clone(), directory: directory.into() };
        let path = starter_beside(&socket);
        let text = starter.encode().map_err(Error::io("write", &path))?;
        write_beside(&path, &text)?;
        let log = options.log.clone().unwrap_or_else(|| Log::at(options.run_dir.audit(id)));
        let mut audit = Audit::open(&log, id, chain);
        let (listener, socket_file) = listen_at(&socket)?;
        // Programs that have run without an agent since the keyring was changed ask this one now. A
        // directory that cannot be written has none that is behind.
        if KeyringDir::open(directory).is_ok_and(|folder| !announce(&folder, id, generation)) {
            // Nobody else listens while the lock is held.
            let _ = fs::remove_file(&socket);
            return Err(Error::Outdated { keyring: id });
        }
        let companions = options.accompany.iter().filter_map(|pid| process(*pid)).collect();
        audit.write(
            Event::Start,
            &Details { directory: directory.to_str(), ..Details::of_this_process() },
        );
        Ok(Self {
            listener,
            socket,
            socket_file,
            lock,
            grant,
            policy,
            helpers,
            allowed: Vec::new(),
            myself,
            keyring: id,
            generation,
            file,
            directory: directory.into(),
            audit,
            until: Instant::now() + options.grace,
            options,
            primitives,
            connections: Vec::new(),
            room: make_room(),
            companions,
            meeting_place: KeyringDir::open(directory).and_then(|it| it.meeting_place()).ok(),
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Serves until the last client has left or SIGTERM comes, then takes its socket away. The rest
    /// stays: the list of programs, how to start another agent, the audit log.
    ///
    /// # Errors
    /// [`Error::Io`] if it cannot wait any more.
    pub fn run(mut self) -> Result<(), Error> {
        let (end, wake) = UnixStream::pair().map_err(Error::io("make a pipe for", &self.socket))?;
        pipe::register(SIGTERM, wake).map_err(Error::io("await SIGTERM at", &self.socket))?;
        while !self.is_alone() || Instant::now() < self.end() {
            let Some(ready) = self.wait(&end)? else { break };
            // From the back: removing leaves the places of the others.
            for (place, ready) in ready.iter().enumerate().rev() {
                if *ready {
                    let stays = self.serve(place);
                    // A new keyring was opened there, perhaps.
                    (self.primitives.wipe_stack)();
                    if !stays {
                        self.leave(place);
                    }
                }
            }
            self.drop_silent();
            self.drop_ended();
            self.accept();
        }
        if let Some(place) = &self.meeting_place {
            // Whoever still runs keeps it; what they share then goes with the last agent after
            // them, or a restart.
            part(place.as_fd());
        }
        self.close();
        Ok(())
    }

    fn clients(&self) -> impl Iterator<Item = &Peer> {
        self.connections.iter().filter_map(|connection| connection.client.as_ref())
    }

    /// A process that has had a program listed is not yet a client, but on its way to become one:
    /// it asks for a passphrase of another directory, say.
    fn is_alone(&self) -> bool {
        let listed = self.allowed.iter().any(|allowed| allowed.process().is_some());
        !listed && self.clients().next().is_none() && self.companions.is_empty()
    }

    /// When it ends if it is alone.
    fn end(&self) -> Instant {
        self.allowed.iter().map(Allowed::until).fold(self.until, Instant::max)
    }

    /// Waits for something to do; says which connections have something to say, `None` at the end.
    fn wait(&self, end: &UnixStream) -> Result<Option<Vec<bool>>, Error> {
        let mut fds = vec![PollFd::new(end, PollFlags::IN)];
        let sockets = self.connections.iter().map(|connection| &connection.socket);
        fds.extend(sockets.map(|socket| PollFd::new(socket, PollFlags::IN)));
        if self.takes_in() {
            fds.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        let listed = self.allowed.iter().filter_map(Allowed::process);
        let processes = self.companions.iter().chain(listed);
        fds.extend(processes.map(|process| PollFd::new(process, PollFlags::IN)));
        let limit = self.next_deadline().map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        match poll(&mut fds, limit.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(Some(Vec::new())),
            Err(errno) => return Err(Error::sys("wait on", &self.socket)(errno)),
        }
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        if ready.next() == Some(true) {
            return Ok(None);
        }
        Ok(Some(ready.take(self.connections.len()).collect()))
    }

    fn next_deadline(&self) -> Option<Duration> {
        let now = Instant::now();
        let silent = self.connections.iter().filter(|connection| connection.client.is_none());
        let silent = silent.map(|connection| connection.since + SILENCE).min();
        let idle = self.is_alone().then(|| self.end());
        let next = silent.into_iter().chain(idle).min()?;
        Some(next.saturating_duration_since(now) + Duration::from_millis(1))
    }

    fn accept(&mut self) {
        while self.takes_in() {
            match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => {
                    // A grant is sent whole or not at all.
                    let _ = set_socket_send_buffer_size(&socket, 2 * MAX_ANSWER);
                    let since = Instant::now();
                    self.connections.push(Connection { socket, since, client: None });
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                // Out of descriptors: those who wait would wake the loop for ever.
                Err(Errno::MFILE | Errno::NFILE) => {
                    std::thread::sleep(Duration::from_millis(100));
                    return;
                }
                Err(_) => return,
            }
        }
    }

    fn leave(&mut self, place: usize) {
        if self.connections.swap_remove(place).client.is_some() {
            self.until = self.until.max(Instant::now() + self.options.linger);
        }
    }

    fn drop_silent(&mut self) {
        self.connections.retain(|connection| {
            connection.client.is_some() || connection.since.elapsed() < SILENCE
        });
    }

    fn drop_ended(&mut self) {
        let before = self.companions.len();
        self.companions.retain(is_alive);
        let mut ended = self.companions.len() < before;
        for allowed in &mut self.allowed {
            ended |= allowed.has_ended();
        }
        let now = Instant::now();
        self.allowed.retain(|allowed| allowed.process().is_some() || now < allowed.until());
        if ended {
            self.until = self.until.max(now + self.options.linger);
        }
    }

    /// Reads and answers one request; false if the connection has ended. A call of its own: what
    /// was moved in its frame is then wiped with the stack.
    #[inline(never)]
    fn serve(&mut self, place: usize) -> bool {
        let mut bytes = Zeroizing::new([0u8; MAX_REQUEST + 1]);
        let socket = &self.connections[place].socket;
        let length = match recv(socket, &mut *bytes, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return false,
            Ok((_, length)) => length,
            Err(Errno::AGAIN | Errno::INTR) => return true,
            Err(_) => return false,
        };
        let Ok(peer) = Peer::of(socket, &self.primitives) else { return false };
        let result = match Request::decode(&bytes[..length]) {
            Err(_) => Err(RefusalReason::BadRequest),
            Ok(_) if peer.pid == 0 => Err(RefusalReason::UnknownProgram),
            Ok(_) if peer.uid != 0 && peer.uid != this_user() => Err(RefusalReason::OtherUser),
            Ok(Request::Keys | Request::Allow(_)) if self.is_full_for_long() => {
                Err(RefusalReason::Full)
            }
            Ok(Request::Keys) => self.grant(place, &peer),
            Ok(Request::Allow(path)) => self.allow(place, &peer, &path),
            Ok(Request::Reload(key)) => self.reload(place, &peer, key.0),
            Ok(Request::Status) => {
                self.refresh_helpers();
                Ok(self.answer(place, &self.status().encode()))
            }
        };
        result.unwrap_or_else(|reason| self.refuse(place, &peer, reason))
    }

    fn grant(&mut self, place: usize, peer: &Peer) -> Result<bool, RefusalReason> {
        self.refresh_helpers();
        let program = peer.program.as_ref();
        let listed = program.is_some_and(|it| {
            self.policy.lists(it.bytes()) || is_linked(&self.policy, it, peer.uid)
        });
        let helps = program.is_some_and(|it| self.helpers.contains(&it.path));
        let allowed = program.is_some_and(|it| self.is_allowed(it, peer.pid));
        // The command itself opens the keyring in any case; here it is spared to ask the provider.
        let ours = self.must_be_tidelock(peer).is_ok();
        // The policy decides before the configuration does, as it did when the directory was made.
        let allow_writable = (listed || ours) && self.options.allow_writable_programs;
        judge(peer, listed || helps || ours, allowed, allow_writable)?;
        if self.is_gone() {
            return Err(RefusalReason::KeyringGone);
        }
        // The line comes first: no keys without a trace.
        self.audit.write(Event::Grant, &details(peer, &peer.name()));
        if !self.answer(place, self.grant.bytes()) {
            return Ok(false);
        }
        self.connections[place].client = Some(peer.clone());
        // Whoever was waited for has come; other programs that were listed have not.
        self.until = Instant::now();
        self.allowed.iter_mut().for_each(|allowed| allowed.meets(peer.pid));
        Ok(true)
    }

    fn allow(&mut self, place: usize, peer: &Peer, path: &Path) -> Result<bool, RefusalReason> {
        self.must_be_tidelock(peer)?;
        let held = hold(path).map_err(|_| RefusalReason::UnknownProgram)?;
        let name = held.0.path.display().to_string();
        let process = peer.process().ok_or(RefusalReason::UnknownProgram)?;
        let until = Instant::now() + self.options.grace;
        self.allowed.push(Allowed::new(held, peer.pid, process, until));
        self.audit
            .write(Event::Allow, &Details { allowed: Some(&name), ..details(peer, &peer.name()) });
        Ok(self.answer(place, &wire::allowed()))
    }

    fn must_be_tidelock(&self, peer: &Peer) -> Result<(), RefusalReason> {
        // By its path too: an upgrade replaces the file. Where this user could do that, it proves
        // nothing.
        let is_tidelock = peer.program.as_ref().is_some_and(|program| {
            program.is_same_file(&self.myself)
                || program.path == self.myself.path && !program.is_writable_by(peer.uid)
        });
        if is_tidelock { Ok(()) } else { Err(RefusalReason::NotTidelock) }
    }

    /// Root's command may. The kernel says that it is root's; an agent of another user cannot see
    /// which program it is. It brings the key of the keyring, so it learns nothing here.
    fn may_change_the_keyring(&self, peer: &Peer) -> Result<(), RefusalReason> {
        if peer.uid == 0 { Ok(()) } else { self.must_be_tidelock(peer) }
    }

    /// The keyring was changed: what is given from now on is the new one's, and programs that have
    /// keys are told to ask again.
    fn reload(
        &mut self,
        place: usize,
        peer: &Peer,
        key: Secret<32>,
    ) -> Result<bool, RefusalReason> {
        self.may_change_the_keyring(peer)?;
        let other = |_| RefusalReason::OtherKeyring;
        let folder = KeyringDir::open(&self.directory).map_err(other)?;
        let keyring = folder.read().and_then(|it| it.unlock_with(key)).map_err(other)?;
        if keyring.id() != self.keyring || keyring.generation() < self.generation {
            return Err(RefusalReason::OtherKeyring);
        }
        if keyring.conversion().is_some() {
            return Err(RefusalReason::OtherKeyring);
        }
        let grant = grant(&keyring, &self.directory, self.options.core_dumps);
        let grant = grant.ok_or(RefusalReason::TooManyKeys)?;
        self.grant = (self.primitives.lock)(grant);
        (self.policy, self.generation) = (keyring.policy().clone(), keyring.generation());
        self.audit.set_key(ChainKey::of(&keyring, self.primitives.lock));
        let notice = Notice::encode(&self.directory, keyring.layout(), &self.policy);
        // Without it, programs without keys are judged by the policy as it was.
        let _ = write_beside(&notice_beside(&self.socket), &notice);
        // Without it, programs that were listed by the change are not asked to come.
        let _ = write_beside(&programs_beside(&self.socket), &list(&self.policy, &self.helpers));
        drop(keyring);
        self.file = digest_of(&self.directory, self.keyring, self.generation);
        // Without the announcement, running programs keep what they have until they start again.
        // Whoever has changed it once more tells this agent too.
        let _ = announce(&folder, self.keyring, self.generation);
        self.audit.write(Event::Reload, &details(peer, &peer.name()));
        Ok(self.answer(place, &wire::reloaded(self.generation)))
    }

    /// Whoever starts a server asks here first: from then on root's file counts as it is now.
    fn refresh_helpers(&mut self) {
        let now = (self.options.helpers)(self.keyring, &self.directory);
        if now != self.helpers {
            let list = list(&self.policy, &now);
            // Without the new list, those that were added are not asked to come.
            let _ = write_beside(&programs_beside(&self.socket), &list);
            self.helpers = now;
        }
    }

    /// True if the directory was removed, and perhaps made again: under the old keyring nothing
    /// must be written there any more. Where only the keyring is lost, this agent is the last that
    /// can read the data.
    fn is_gone(&self) -> bool {
        match KeyringDir::open(&self.directory).and_then(|folder| folder.read()) {
            Ok(found) => found.id() != self.keyring,
            Err(tidelock_keyring::Error::NoKeyring { .. }) => match fs::read_dir(&self.directory) {
                Ok(mut entries) => {
                    !entries.any(|entry| entry.is_ok_and(|entry| entry.file_name() != FOLDER))
                }
                Err(why) => why.kind() == io::ErrorKind::NotFound,
            },
            Err(_) => false,
        }
    }

    fn is_allowed(&self, program: &Program, pid: i32) -> bool {
        self.allowed.iter().any(|allowed| allowed.lists(program, pid))
    }

    fn refuse(&mut self, place: usize, peer: &Peer, reason: RefusalReason) -> bool {
        let name = peer.name();
        let details = Details { reason: Some(reason.to_string()), ..details(peer, &name) };
        self.audit.write(Event::Refuse, &details);
        self.answer(place, &wire::refused(reason, &format!(": {name}")))
    }

    fn status(&self) -> Status {
        let count = u32::try_from(self.clients().count()).unwrap_or(u32::MAX);
        let clients = self.clients().map(|peer| ClientInfo {
            pid: peer.pid,
            program: peer.program.as_ref().map(|it| it.path.clone()).unwrap_or_default(),
        });
        Status {
            keyring: self.keyring,
            generation: self.generation,
            directory: self.directory.clone(),
            pid: rustix::process::getpid().as_raw_nonzero().get(),
            protection: self.grant.protection().to_owned(),
            client_count: count,
            clients: clients.collect(),
            file: self.file,
        }
    }

    fn answer(&self, place: usize, message: &[u8]) -> bool {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        send(&self.connections[place].socket, message, flags).is_ok()
    }

    /// Takes the socket away, unless somebody put another there.
    fn close(self) {
        let Self { socket, socket_file, listener, lock, mut audit, .. } = self;
        let mine = fs::symlink_metadata(&socket)
            .is_ok_and(|found| (found.dev(), found.ino()) == socket_file);
        if mine {
            let _ = fs::remove_file(&socket);
        }
        // Whoever finds no agent any more starts the next one, and need not wait for the disk.
        drop((listener, lock));
        audit.write(Event::End, &Details::of_this_process());
    }
}

fn details<'a>(peer: &Peer, name: &'a str) -> Details<'a> {
    let is_known = peer.pid != 0;
    let (pid, uid) = (is_known.then_some(peer.pid), is_known.then_some(peer.uid));
    Details { pid, uid, program: Some(name), ..Details::default() }
}

fn this_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A process that lives.
fn process(pid: i32) -> Option<OwnedFd> {
    pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
}

/// Tells running programs of this generation, unless a later one was announced. False if the
/// keyring is a later one by now: whoever has changed it may have looked for an agent before this
/// one listened.
fn announce(folder: &KeyringDir, id: KeyringId, generation: Generation) -> bool {
    if folder.announced().is_ok_and(|announced| announced < generation) {
        let _ = folder.announce(generation);
    }
    // Last: a change after this look finds this agent, and one before it has been announced here or
    // shows now.
    !folder.read().is_ok_and(|now| now.id() == id && now.generation() > generation)
}

/// Of the keyring file, if it is the one that was unlocked.
fn digest_of(directory: &Path, id: KeyringId, generation: Generation) -> [u8; 32] {
    let found = KeyringDir::open(directory).and_then(|folder| {
        let (digest, keyring) = (folder.digest()?, folder.read()?);
        Ok((keyring.id() == id && keyring.generation() == generation).then_some(digest))
    });
    found.ok().flatten().unwrap_or_default()
}

/// Everything that a listed program needs of `keyring`, as a message; `None` if it is too long for
/// one.
fn grant(keyring: &Keyring, directory: &Path, core_dumps: bool) -> Option<Zeroizing<Vec<u8>>> {
    let terms = Terms {
        directory,
        keyring: keyring.id(),
        generation: keyring.generation(),
        layout: keyring.layout(),
        current: keyring.current().id,
        core_dumps,
        policy: keyring.policy(),
    };
    let keys = keyring.data_keys().iter().map(|entry| (entry.id, &entry.key, entry.state));
    Grant::encode(&terms, &keys.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests;

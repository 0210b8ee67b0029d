//! Starts an agent that outlives its starter, and is nobody's child.
//!
//! ```text
//!   tidelock exec  --start-->  tidelock agent detach  --detach-->  tidelock agent serve
//!        |                       ends at once                        |
//!        | pipe: keyring key, directory, options                     | reads it, listens
//!        | <--------------------------------- "ready" ---------------|
//! ```
//!
//! The keyring key goes over a pipe, never in arguments or the environment. The step between is
//! what a double fork is for: PostgreSQL takes an unknown child that ends for a crashed backend.

use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use tidelock_cipher::Secret;
use tidelock_contract::Writer;
use tidelock_format::{Reader, Truncated};
use tidelock_keyring::{Keyring, KeyringDir};
use zeroize::Zeroizing;

use crate::audit::Log;
use crate::client::{self, Connection};
use crate::error::{Error, refuse_half_converted};
use crate::listed::Helpers;
use crate::memory::Primitives;
use crate::peer::Program;
use crate::rundir::RunDir;
use crate::server::{Options, Server};

const MAGIC: &[u8; 8] = b"TDLAGENT";
const MAX_ORDERS: usize = 16 * 1024;
/// Processes that an agent is told to stay for; one server is one.
const MAX_ACCOMPANIED: usize = 64;
const READY: &[u8] = b"ready\n";
/// Another agent holds the keyring, or this one must not: the starter looks again.
const RUNNING: &[u8] = b"running\n";
/// The running program, whatever became of its file; to another program it is that one.
const MYSELF: &str = "/proc/self/exe";
/// Of util-linux.
const SETPRIV: &str = "/usr/bin/setpriv";
/// How long an agent may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);

/// How this program runs itself as an agent.
#[derive(Clone, Debug)]
pub struct AgentCommand {
    /// The program.
    pub program: PathBuf,
    /// Arguments with which it calls [`detach`].
    pub detach: Vec<OsString>,
    /// Arguments with which it calls [`serve`].
    pub serve: Vec<OsString>,
    /// As whom, when root starts it: user and group.
    pub user: Option<(u32, u32)>,
    /// The capabilities that its clients have, as setpriv(1) takes them (`+ipc_lock`); may be
    /// empty. The kernel shows an agent that lacks one of them nothing of such a client.
    pub capabilities: String,
    /// A program and its arguments that run the first step elsewhere, so that the agent does not
    /// belong to the unit of its starter; may be empty.
    pub elsewhere: Vec<OsString>,
}

impl AgentCommand {
    /// The running program itself, also if its file was replaced meanwhile; `agent detach` and
    /// `agent serve`.
    #[must_use]
    pub fn this_program() -> Self {
        // Its path gives the process its name in listings.
        let program = match Program::of_process("self") {
            Ok(program) => program.path,
            Err(_) => PathBuf::from(MYSELF),
        };
        Self {
            program,
            detach: vec!["agent".into(), "detach".into()],
            serve: vec!["agent".into(), "serve".into()],
            user: None,
            capabilities: String::new(),
            elsewhere: Vec::new(),
        }
    }

    /// The program for another one that runs it: after an upgrade the new file, which took the
    /// place of the old one.
    fn program_by_path(&self) -> PathBuf {
        let replaced = || replacement(&fs::read_link(MYSELF).ok()?);
        let is_myself = self.program == Path::new(MYSELF);
        is_myself.then(replaced).flatten().unwrap_or_else(|| self.program.clone())
    }
}

/// What has the path now of which the kernel says that its file is gone.
fn replacement(told: &Path) -> Option<PathBuf> {
    let path = told.as_os_str().as_bytes().strip_suffix(b" (deleted)")?;
    let path = Path::new(OsStr::from_bytes(path));
    path.is_file().then(|| path.to_owned())
}

/// Makes sure that an agent holds this unlocked keyring for `directory`, canonical; its socket.
/// Returns once the socket answers.
///
/// # Errors
/// [`Error::OtherDirectory`] if the agent that is alive serves another directory;
/// [`Error::NotStarted`].
pub fn start(
    keyring: &Keyring,
    directory: &Path,
    options: &Options,
    command: &AgentCommand,
) -> Result<PathBuf, Error> {
    refuse_half_converted(keyring, directory)?;
    let socket = options.run_dir.socket(keyring.id());
    // One that was about to end may have been in the way the first time.
    let mut connection = unless_leaving(client::connect(&socket)?, directory, &socket)?;
    for _ in 0..2 {
        if connection.is_none() {
            launch(keyring, directory, options, command).or_else(|why| {
                // A systemd that does not serve this process, in a container say.
                if command.elsewhere.is_empty() {
                    return Err(why);
                }
                let here = AgentCommand { elsewhere: Vec::new(), ..command.clone() };
                launch(keyring, directory, options, &here)
            })?;
            connection = connect_soon(&socket)?;
        }
    }
    let connection =
        connection.ok_or_else(|| Error::NotStarted { why: "it ended at once".to_owned() })?;
    let theirs = connection.status()?.directory;
    if theirs != directory {
        return Err(Error::OtherDirectory { theirs, ours: directory.into() });
    }
    Ok(socket)
}

/// The agent of another directory that has lost its last client: a byte copy of that directory is
/// about to be used, and waits until it has ended.
fn unless_leaving(
    found: Option<Connection>,
    directory: &Path,
    socket: &Path,
) -> Result<Option<Connection>, Error> {
    let mut found = found;
    let until = Instant::now() + PATIENCE_WITH_ANOTHER;
    while let Some(agent) = &found {
        match agent.status() {
            // Asked at its last moment.
            Err(Error::Ended { .. }) if Instant::now() < until => {}
            answer => {
                let status = answer?;
                let stays = status.directory == directory || status.client_count > 0;
                if stays || Instant::now() > until {
                    break;
                }
            }
        }
        sleep(Duration::from_millis(100));
        found = client::connect(socket)?;
    }
    Ok(found)
}

/// Longer than an agent stays after its last client.
const PATIENCE_WITH_ANOTHER: Duration = Duration::from_secs(15);

/// An agent that another command has just started may not listen yet.
fn connect_soon(socket: &Path) -> Result<Option<Connection>, Error> {
    let until = Instant::now() + Duration::from_secs(2);
    loop {
        match client::connect(socket)? {
            None if Instant::now() < until => sleep(Duration::from_millis(20)),
            found => return Ok(found),
        }
    }
}

fn launch(
    keyring: &Keyring,
    directory: &Path,
    options: &Options,
    command: &AgentCommand,
) -> Result<(), Error> {
    let here = match command.elsewhere.is_empty() {
        true => OsString::from(&command.program),
        false => command.program_by_path().into(),
    };
    let mut words = command.elsewhere.iter().chain([&here]).chain(&command.detach);
    let program = words.next().unwrap_or(&here);
    let failed = |what| Error::io(what, program);
    let mut starter = Command::new(program);
    starter.args(words);
    if let Some((uid, gid)) = command.user {
        // Not here: what runs it elsewhere needs root.
        starter.args([uid.to_string(), gid.to_string(), command.capabilities.clone()]);
    }
    let mut child = starter
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed("run"))?;
    let handed = hand_over(&mut child, keyring, directory, options).map_err(failed("talk to"));
    let answer = handed.and_then(|()| read_answer(&mut child).map_err(failed("listen to")));
    let status = child.wait().map_err(failed("wait for"))?;
    let answer = answer?;
    match answer.as_slice() {
        READY | RUNNING => Ok(()),
        b"" => Err(Error::NotStarted { why: format!("it ended without a word ({status})") }),
        words => Err(Error::NotStarted { why: String::from_utf8_lossy(words).trim().to_owned() }),
    }
}

fn hand_over(
    child: &mut Child,
    keyring: &Keyring,
    directory: &Path,
    options: &Options,
) -> io::Result<()> {
    let millis = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    let mut orders = Writer::with_capacity(MAX_ORDERS);
    orders.bytes(MAGIC);
    orders.bytes(keyring.keyring_key().expose());
    orders.u8(u8::from(options.allow_writable_programs));
    orders.u8(u8::from(options.core_dumps));
    orders.u32(millis(options.grace));
    orders.u32(millis(options.linger));
    orders.text(directory.as_os_str().as_bytes());
    orders.text(options.run_dir.path().as_os_str().as_bytes());
    let log = options.log.as_ref();
    orders.text(log.map_or(&[][..], |log| log.file.as_os_str().as_bytes()));
    orders.u8(log.map_or(0, |log| u8::from(log.journal)));
    let (uid, gid) = log.and_then(|log| log.owner).unwrap_or((u32::MAX, u32::MAX));
    orders.u32(uid);
    orders.u32(gid);
    let accompanied = options.accompany.get(..MAX_ACCOMPANIED).unwrap_or(&options.accompany);
    orders.count(accompanied.len());
    for pid in accompanied {
        orders.u32(pid.cast_unsigned());
    }
    let mut pipe = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
    pipe.write_all(&Zeroizing::new(orders.into_bytes()))
}

/// Until it closes its output, or patience ends.
fn read_answer(child: &mut Child) -> io::Result<Vec<u8>> {
    let mut pipe = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let until = Instant::now() + PATIENCE;
    let mut answer = Vec::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let mut fds = [PollFd::new(&pipe, PollFlags::IN)];
        match poll(&mut fds, Some(&left)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
            Ok(_) => {}
        }
        let mut chunk = [0; 1024];
        match pipe.read(&mut chunk)? {
            0 => return Ok(answer),
            length => answer.extend_from_slice(&chunk[..length]),
        }
    }
}

/// `agent detach [UID GID CAPABILITIES]`: starts the agent proper, as `command.user`, with this
/// process's input and output, and returns at once; the caller ends the process.
///
/// # Errors
/// [`Error::Io`].
pub fn detach(command: &AgentCommand) -> Result<(), Error> {
    rustix::process::setsid().map_err(Error::sys("leave the session of", "this process"))?;
    let mut agent = match command.user {
        Some((uid, gid)) if !command.capabilities.is_empty() => {
            let mut agent = Command::new(SETPRIV);
            let caps = &command.capabilities;
            agent
                .args([format!("--reuid={uid}"), format!("--regid={gid}")])
                .arg("--clear-groups")
                .args([format!("--inh-caps={caps}"), format!("--ambient-caps={caps}")])
                .arg("--")
                .arg(command.program_by_path());
            agent
        }
        Some((uid, gid)) => {
            let mut agent = Command::new(&command.program);
            agent.uid(uid).gid(gid);
            agent
        }
        None => Command::new(&command.program),
    };
    agent
        .args(&command.serve)
        .env_clear()
        .current_dir("/")
        .spawn()
        .map(drop)
        .map_err(Error::io("run", &command.program))
}

/// `agent serve`: reads its orders from standard input, listens, says so on standard output, and
/// serves until its last client has left. `helpers` finds root's.
///
/// # Errors
/// What keeps it from serving; the starter was told.
pub fn serve(primitives: Primitives, helpers: Helpers) -> Result<(), Error> {
    (primitives.close_from)(3);
    let bound = obey(primitives, helpers);
    (primitives.wipe_stack)();
    let words = match &bound {
        Ok(_) => READY.to_vec(),
        Err(Error::AlreadyRunning { .. } | Error::Outdated { .. }) => RUNNING.to_vec(),
        Err(why) => why.to_string().into_bytes(),
    };
    let said = io::stdout().write_all(&words).and_then(|()| io::stdout().flush());
    silence()?;
    match bound {
        Ok(server) => {
            said.map_err(Error::io("answer", "the starter"))?;
            server.run()
        }
        Err(Error::AlreadyRunning { .. } | Error::Outdated { .. }) => Ok(()),
        Err(why) => Err(why),
    }
}

/// A call of its own: what was moved in its frame, the keyring key too, is then wiped with the
/// stack.
#[inline(never)]
fn obey(primitives: Primitives, helpers: Helpers) -> Result<Server, Error> {
    let mut orders = read_orders()?;
    orders.options.helpers = helpers;
    bind(orders, primitives)
}

struct Orders {
    key: Secret<32>,
    directory: PathBuf,
    options: Options,
}

fn read_orders() -> Result<Orders, Error> {
    // Not through std's reader, whose buffer nobody wipes.
    let mut bytes = Zeroizing::new(vec![0; MAX_ORDERS]);
    let mut length = 0;
    while length < MAX_ORDERS {
        match rustix::io::read(io::stdin(), &mut bytes[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::sys("read the orders from", "standard input")(errno)),
        }
    }
    bytes.truncate(length);
    let nonsense = || Error::NotStarted {
        why: "`agent` is for tidelock itself; use `tidelock exec`".to_owned(),
    };
    let (magic, rest) = bytes.split_first_chunk::<8>().ok_or_else(nonsense)?;
    if magic != MAGIC {
        return Err(nonsense());
    }
    let parsed = parse_orders(rest).map_err(|_| nonsense())?;
    let mut options = Options::new(RunDir::at(&parsed.run_dir)?);
    options.log = parsed.log;
    options.allow_writable_programs = parsed.writable;
    options.core_dumps = parsed.core_dumps;
    options.accompany = parsed.accompany;
    options.grace = Duration::from_millis(parsed.grace.into());
    options.linger = Duration::from_millis(parsed.linger.into());
    Ok(Orders { key: parsed.key, directory: parsed.directory, options })
}

/// What was written into the pipe, in other types.
struct Parsed {
    key: Secret<32>,
    directory: PathBuf,
    run_dir: PathBuf,
    log: Option<Log>,
    writable: bool,
    core_dumps: bool,
    grace: u32,
    linger: u32,
    accompany: Vec<i32>,
}

fn parse_orders(bytes: &[u8]) -> Result<Parsed, Truncated> {
    let mut from = Reader::new(bytes);
    let mut key = Secret::new([0; 32]);
    key.expose_mut().copy_from_slice(from.bytes(32)?);
    let (writable, core_dumps) = (from.u8()? != 0, from.u8()? != 0);
    let (grace, linger) = (from.u32()?, from.u32()?);
    let path = |from: &mut Reader<'_>| -> Result<PathBuf, Truncated> {
        let length = usize::from(from.u16()?);
        Ok(PathBuf::from(OsStr::from_bytes(from.bytes(length)?)))
    };
    let (directory, run_dir, file) = (path(&mut from)?, path(&mut from)?, path(&mut from)?);
    let journal = from.u8()? != 0;
    let owner = Some((from.u32()?, from.u32()?)).filter(|owner| owner.0 != u32::MAX);
    let log = (!file.as_os_str().is_empty()).then_some(Log { file, journal, owner });
    let count = from.u16()?;
    let pids = (0..count).map(|_| from.u32().map(u32::cast_signed));
    let accompany = pids.collect::<Result<_, _>>()?;
    Ok(Parsed { key, directory, run_dir, log, writable, core_dumps, grace, linger, accompany })
}

fn bind(orders: Orders, primitives: Primitives) -> Result<Server, Error> {
    let Orders { key, directory, options } = orders;
    let keyring = KeyringDir::open(&directory)?.read()?.unlock_with(key)?;
    refuse_half_converted(&keyring, &directory)?;
    Server::bind(keyring, &directory, options, primitives)
}

/// Lets go of the starter's pipes and terminal.
fn silence() -> Result<(), Error> {
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(Error::io("open", "/dev/null"))?;
    rustix::stdio::dup2_stdin(&null)
        .and_then(|()| rustix::stdio::dup2_stdout(&null))
        .and_then(|()| rustix::stdio::dup2_stderr(&null))
        .map_err(Error::sys("open", "/dev/null"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_program_runs_the_one_that_took_the_place_of_this_one() {
        let home = tempfile::tempdir().unwrap();
        let new = home.path().join("tidelock");
        fs::write(&new, "").unwrap();
        let told = |path: &Path| PathBuf::from(format!("{} (deleted)", path.display()));
        assert_eq!(replacement(&told(&new)), Some(new.clone()));
        assert_eq!(replacement(&new), None);
        assert_eq!(replacement(&told(&home.path().join("gone"))), None);
        let here = AgentCommand { program: new.clone(), ..AgentCommand::this_program() };
        assert_eq!(here.program_by_path(), new);
    }
}

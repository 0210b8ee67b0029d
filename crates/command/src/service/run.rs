//! What an installed unit runs before and after its server starts.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use tidelock_agent::server::Options;
use tidelock_agent::spawn::{self, AgentCommand};
use tidelock_agent::{RunDir, client};
use tidelock_keyring::KeyringDir;

use crate::audit::trail;
use crate::console;
use crate::error::{Error, Result};
use crate::init::open_or_make;
use crate::owner::Owner;
use crate::rollback;
use crate::server::{Loaded, Server};
use crate::service::plan::Unit;
use crate::service::record::Record;
use crate::service::{before, fit};
use crate::unlock;
use crate::whereabouts::works_in;

/// A server may take a while to write its process id.
const PATIENCE: Duration = Duration::from_secs(10);

/// Unlocks without a terminal, and leaves an agent that runs as the owner of the directory. As root
/// the credentials of the unit are read before that.
///
/// # Errors
/// The library is gone, the keyring does not open, the agent does not start.
pub(super) fn unlock(record: &Record) -> Result<()> {
    // ld.so would only warn.
    if let Some(library) = record.library().filter(|it| !it.exists()) {
        return Err(Error::refused(
            format!("{} is gone: the server would start without the library", library.display()),
            "install Tidelock again; then `tidelock service install` of the unit",
        ));
    }
    let protected = open_or_make(&record.directory)?;
    let owner = Owner::of(&protected.path)?;
    let another = owner.uid != Owner::caller().uid;
    let run_dir = if rustix::process::geteuid().is_root() {
        RunDir::of_user(owner.uid, owner.gid)?
    } else {
        RunDir::choose()?
    };
    let mut options = Options::new(run_dir);
    let socket = options.run_dir.socket(protected.keyring.id());
    if record.socket.parent() != Some(options.run_dir.path()) {
        return Err(Error::refused(
            format!("{} has another owner than when it was installed", protected.path.display()),
            "run `tidelock service install` again",
        ));
    }
    let mut command = AgentCommand::this_program();
    command.user = another.then_some((owner.uid, owner.gid));
    fit(&mut command, &protected.path);
    let mut outdated = false;
    if let Some(agent) = client::connect(&socket)? {
        let status = agent.status()?;
        let ours = status.directory == protected.path;
        // By its bytes: a keyring that was damaged, changed or put back is opened and judged first.
        let current = ours && status.file == KeyringDir::open(&protected.path)?.digest()?;
        if current && publish(&record.socket, &socket, &command).is_ok() {
            return Ok(());
        }
        outdated = ours && !current;
    }
    let config = unlock::configured(&protected.keyring, &protected.path)?;
    options.allow_writable_programs = config.allow_writable_programs;
    options.core_dumps = config.core_dumps;
    options.log = Some(trail::log(&protected.keyring, &protected.path, &config)?);
    let keyring = unlock::unattended(&protected, &config)?;
    rollback::refuse(&protected)?;
    // What is half converted is refused by who starts one.
    let outdated = outdated && keyring.conversion().is_none();
    if outdated && let Some(agent) = client::connect(&socket)? {
        agent.reload(keyring.keyring_key())?;
    } else {
        spawn::start(&keyring, &protected.path, &options, &command)?;
    }
    publish(&record.socket, &socket, &command)
}

/// Begins again without the library. systemd gives it to every command of a unit; where no agent
/// runs yet, what this command starts would end for want of keys.
pub(super) fn without_library() -> Result<()> {
    const AGENT: &str = "TIDELOCK_AGENT";
    if std::env::var_os(AGENT).is_none() {
        return Ok(());
    }
    let program = std::env::current_exe().map_err(Error::io("find", "/proc/self/exe"))?;
    let mut again = Command::new(&program);
    again.args(std::env::args_os().skip(1)).env_remove("LD_PRELOAD").env_remove(AGENT);
    Err(Error::io("run", program)(again.exec()))
}

/// Says so if the unit's file runs other commands before its server than it did when the drop-in
/// was written.
pub(super) fn warn_of_changes(record: &Record, unit: &Unit, root: &Path) {
    let Ok(program) = std::env::current_exe() else { return };
    let path = before::path(unit);
    let written = record.written.iter().find(|it| it.path == path).map(|it| it.text.as_str());
    if written != before::text(unit, &unit.unlock(&program), root).as_deref() {
        console::warn(
            format!("{unit}.service has other ExecStartPre commands than when it was installed"),
            format!("`tidelock service install {unit}`, then `systemctl daemon-reload`"),
        );
    }
}

/// Makes the unit's socket lead to that of the keyring, as the user whose folder it is.
fn publish(unit: &Path, socket: &Path, command: &AgentCommand) -> Result<()> {
    let Some((uid, gid)) = command.user else { return crate::agent::publish(unit, socket) };
    let status = Command::new(&command.program)
        .args(["agent", "alias"])
        .args([unit, socket])
        .env_clear()
        .uid(uid)
        .gid(gid)
        .status()
        .map_err(Error::io("run", &command.program))?;
    match status.success() {
        true => Ok(()),
        // It has said why.
        false => Err(Error::Io {
            what: "make the socket",
            path: unit.into(),
            source: io::Error::other(status.to_string()),
        }),
    }
}

/// Waits for the server and looks whether the library is in it.
///
/// # Errors
/// [`Error::WithoutLibrary`] if it is not; [`Error::NoServer`] or [`Error::LibraryUnknown`].
pub(super) fn check(record: &Record) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    // What systemd takes for the main process: the server, or what will start it.
    let main = std::env::var("MAINPID").ok().and_then(|pid| pid.parse().ok());
    loop {
        match server_of(&record.directory, main) {
            Server::Running { pid, library: Loaded::Yes, .. } => {
                return console::print(format_args!("loaded        in process {pid}\n"));
            }
            Server::Running { pid, library: Loaded::No, .. } => {
                return Err(Error::WithoutLibrary { pid });
            }
            _ if Instant::now() < until => sleep(Duration::from_millis(200)),
            Server::Running { pid, .. } => return Err(Error::LibraryUnknown { pid }),
            Server::Stopped => return Err(Error::NoServer { dir: record.directory.clone() }),
        }
    }
}

/// The main process, if it works in the directory; else the server that does. A main process that
/// works elsewhere counts until there is one.
fn server_of(dir: &Path, main: Option<u32>) -> Server {
    if let Some(pid) = main.filter(|pid| works_in(*pid, dir).unwrap_or(false)) {
        return Server::process(pid);
    }
    match (Server::on(dir), main) {
        (Server::Stopped, Some(pid)) => Server::process(pid),
        (server, _) => server,
    }
}

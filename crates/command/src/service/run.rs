//! What an installed unit runs before and after its server starts.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use tidelock_agent::server::Options;
use tidelock_agent::spawn::{self, AgentCommand};
use tidelock_agent::{RunDir, client};
use tidelock_keyring::KeyringDir;

use crate::audit::trail;
use crate::console;
use crate::error::{Error, Result};
use crate::exec::Library;
use crate::init::open_or_make;
use crate::mysqld::{self, Unseen};
use crate::owner::Owner;
use crate::rollback;
use crate::server::{Loaded, Server};
use crate::service::plan::{Unit, Whose, refuse_preload};
use crate::service::record::Record;
use crate::service::{before, fit, start};
use crate::this_program;
use crate::unlock;
use crate::whereabouts::{Identity, program_name, works_in};

/// A server may take a while to write its process id.
const PATIENCE: Duration = Duration::from_secs(10);
/// From the start of a program until ld.so has loaded the library into it.
const LOADING: Duration = Duration::from_secs(1);
/// The programs of systemd from which a unit's main process comes.
const SYSTEMD: [&str; 2] = ["systemd", "systemd-executor"];
/// As long as a start may wait for what systemd and the option files say.
const LOOK: Duration = Duration::from_secs(10);

/// Unlocks without a terminal, and leaves an agent that runs as the owner of the directory. As root
/// the credentials of the unit are read before that.
///
/// # Errors
/// The library is gone, the keyring does not open or is configured for another user, the agent does
/// not start.
pub(super) fn unlock(record: &Record) -> Result<()> {
    // ld.so would only warn.
    if let Some(library) = record.library() {
        if !library.exists() {
            return Err(Error::refused(
                format!(
                    "{} is gone: the server would start without the library",
                    library.display()
                ),
                "install Tidelock again; then `tidelock service install` of the unit",
            ));
        }
        Library::refuse_without_hooks(&library)?;
    }
    let protected = open_or_make(&record.directory)?;
    let owner = protected.owner;
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
    let config = unlock::to_open(&protected.keyring, &protected.path, owner)?;
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

/// Begins again without the library, and with a home. systemd gives the library to every command of
/// a unit; where no agent runs yet, what this command starts would end for want of keys.
pub(super) fn without_library() -> Result<()> {
    const AGENT: &str = "TIDELOCK_AGENT";
    match std::env::var_os(AGENT) {
        Some(_) => this_program::begin_again(&[AGENT, "LD_PRELOAD"]),
        None => this_program::begin_again(&[]),
    }
}

/// Says so if the unit's file runs other commands before its server than it did when the drop-in
/// was written.
pub(super) fn warn_of_changes(record: &Record, unit: &Unit, root: &Path) {
    let Ok(program) = this_program::path() else { return };
    let path = before::path(unit);
    let written = record.written.iter().find(|it| it.path == path).map(|it| it.text.as_str());
    if written != before::text(unit, &unit.unlock(&program), root).as_deref() {
        console::warn(
            format!("{unit}.service has other ExecStartPre commands than when it was installed"),
            format!("`tidelock service install {unit}`, then `systemctl daemon-reload`"),
        );
    }
}

/// What a look at a server's options has shown.
enum Look {
    Fine,
    /// What would lie outside, and what to do.
    Refused(String, String),
    /// Nothing, for this reason.
    Failed(String),
}

/// Refuses a library that the unit's variables name now instead of ours: in a file of them, or in a
/// drop-in behind ours.
///
/// # Errors
/// [`Error::Refused`].
pub(super) fn refuse_other_library(record: &Record, unit: &Unit, root: &Path) -> Result<()> {
    let Some(library) = record.library_of_drop_in().filter(|_| root == Path::new("/")) else {
        return Ok(());
    };
    let name = unit.to_string();
    let given = within(LOOK, move || {
        let of_files = mysqld::variable_of_files(&name, start::PRELOAD);
        let of_unit = mysqld::variable(&name, start::PRELOAD).filter(|_| of_files.is_none());
        (of_files, of_unit)
    });
    let (of_files, of_unit) = given.unwrap_or_default();
    let library = library.display().to_string();
    refuse_preload(unit, Whose::File, of_files.as_deref(), &library)?;
    refuse_preload(unit, Whose::Unit, of_unit.as_deref(), &library)
}

/// Refuses places outside of the directory that the unit names for rows of MariaDB or MySQL now:
/// somebody may have set one since it was installed. A look that fails says nothing against a
/// server that was fine then: that is told, and the server starts.
///
/// # Errors
/// [`Error::Refused`].
pub(super) fn refuse_places(record: &Record, unit: &Unit, root: &Path) -> Result<()> {
    let (name, dir) = (unit.to_string(), record.directory.clone());
    // The programs of an image do not run here.
    if root != Path::new("/") || !unit.is_mysqld_on(&dir) {
        return Ok(());
    }
    let look = move || {
        if !is_told(&name) {
            return Look::Failed("systemd does not say what the unit starts".to_owned());
        }
        match mysqld::check_unit(&name, &dir, Unseen::Start) {
            Ok(()) => Look::Fine,
            Err(Error::Refused { what, hint }) => Look::Refused(what, hint),
            Err(why) => Look::Failed(why.to_string()),
        }
    };
    let why = match within(LOOK, look) {
        Some(Look::Fine) => return Ok(()),
        Some(Look::Refused(what, hint)) => return Err(Error::refused(what, hint)),
        Some(Look::Failed(why)) => why,
        None => format!("nothing was said of them within {} s", LOOK.as_secs()),
    };
    console::warn(
        format!("the options of the server of {unit} are unknown: {why}"),
        format!(
            "where they name places outside of {}, rows are plain there; `tidelock service \
             install {unit}` looks at them again",
            record.directory.display()
        ),
    );
    Ok(())
}

/// False if systemd runs and is silent. What it would add to the option files is unknown then, and
/// by these alone a good server may look bad.
fn is_told(unit: &str) -> bool {
    if !Path::new("/run/systemd/system").is_dir() {
        return true;
    }
    let mut command = Command::new("systemctl");
    command.args(["show", unit, "--property=ExecStart"]);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command.output().is_ok_and(|told| told.status.success() && !told.stdout.is_empty())
}

/// What `work` comes to. If that takes longer, it goes on for nobody.
fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (done, result) = mpsc::channel();
    thread::spawn(move || {
        // Nobody may be waiting any more.
        let _ = done.send(work());
    });
    result.recv_timeout(limit).ok()
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

/// Waits for the server and looks whether the library is in it, and whether it works there. What is
/// no server, and does not work there, may become one until the patience ends.
///
/// # Errors
/// [`Error::WithoutLibrary`] if it is not; [`Error::Verification`] if it works elsewhere;
/// [`Error::NoServer`] or [`Error::LibraryUnknown`].
pub(super) fn check(record: &Record) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    let dir = &record.directory;
    // What systemd takes for the main process: the server, or what will start it.
    let main: Option<u32> = std::env::var("MAINPID").ok().and_then(|pid| pid.parse().ok());
    let mut bare = Bare(None);
    loop {
        // A server may still be on its way to the directory.
        let elsewhere = main.and_then(|pid| Some((pid, works_elsewhere(pid, dir)?)));
        let server = server_of(dir, main);
        let without = bare.lasts(&server, dir);
        match (server, elsewhere) {
            (Server::Running { pid, .. }, _) if without => {
                return Err(Error::WithoutLibrary { pid });
            }
            (Server::Running { pid, library: Loaded::Yes, .. }, None) => {
                return console::print(format_args!("loaded        in process {pid}\n"));
            }
            _ if Instant::now() < until => sleep(Duration::from_millis(200)),
            (Server::Running { pid, library: Loaded::No, .. }, _) => {
                return Err(Error::WithoutLibrary { pid });
            }
            (_, Some((pid, place))) => return Err(in_another(pid, &place, dir)),
            (Server::Running { pid, .. }, None) => return Err(Error::LibraryUnknown { pid }),
            (Server::Stopped | Server::Unseen, None) => {
                return Err(Error::NoServer { dir: dir.clone() });
            }
        }
    }
}

/// A server without the library, and since when that was seen. The main process of a unit of
/// Type=simple may still be a child of systemd's that has not begun its program, or a program that
/// ld.so has not put together yet.
struct Bare(Option<(u32, Instant)>);

impl Bare {
    /// True if nothing will change it any more.
    fn lasts(&mut self, server: &Server, dir: &Path) -> bool {
        self.0 = match server {
            Server::Running { pid, library: Loaded::No, .. } if is_begun(*pid, dir) => {
                Some(self.0.filter(|(known, _)| known == pid).unwrap_or((*pid, Instant::now())))
            }
            _ => None,
        };
        self.0.is_some_and(|(_, since)| since.elapsed() >= LOADING)
    }
}

/// True for a server's program, and for what works in `dir` but for systemd itself, whose child
/// goes there before it begins another program.
fn is_begun(pid: u32, dir: &Path) -> bool {
    let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    if SYSTEMD.contains(&program_name(&program)) {
        return false;
    }
    is_database_server(&program) || works_in(pid, dir).unwrap_or(false)
}

fn is_database_server(program: &Path) -> bool {
    mysqld::is_server(program) || program_name(program) == "postgres"
}

fn in_another(pid: u32, place: &Path, dir: &Path) -> Error {
    Error::Verification {
        what: format!(
            "the server of the unit (process {pid}) works in {}, not in {}: all that it writes is \
             plain",
            place.display(),
            dir.display()
        ),
        hint: format!(
            "name {} as the server's data directory; or protect the one that it has, and name that \
             with `tidelock service install UNIT -D DIR`",
            dir.display()
        ),
    }
}

/// Where a server works, if that is neither `dir` nor below it, nor behind a link there: what such
/// a link leads to is protected with it. Nothing of another program, which may start a server.
fn works_elsewhere(pid: u32, dir: &Path) -> Option<PathBuf> {
    let process = PathBuf::from(format!("/proc/{pid}"));
    let program = fs::read_link(process.join("exe")).ok()?;
    if !is_database_server(&program) {
        return None;
    }
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let links = entries.map(|entry| entry.path()).filter(|path| path.is_symlink());
    let mut roots = vec![Identity::of(dir).ok()?];
    roots.extend(links.filter_map(|link| Identity::of(&link).ok()));
    let place = process.join("cwd");
    if lies_in(&place, &roots).ok()? {
        return None;
    }
    fs::read_link(place).ok()
}

/// True if one of `roots` is this directory or above it. By device and inode, since the process may
/// have other paths; `..` is taken where the process has the directory.
fn lies_in(place: &Path, roots: &[Identity]) -> io::Result<bool> {
    let mut at = place.to_path_buf();
    let mut here = Identity::of(&at)?;
    while !roots.contains(&here) {
        at.push("..");
        let above = Identity::of(&at)?;
        // The root is above itself.
        if above == here {
            return Ok(false);
        }
        here = above;
    }
    Ok(true)
}

/// The main process, if it works in the directory; else the server that does. A main process that
/// works elsewhere counts until there is one.
fn server_of(dir: &Path, main: Option<u32>) -> Server {
    if let Some(pid) = main.filter(|pid| works_in(*pid, dir).unwrap_or(false)) {
        return Server::process(pid);
    }
    match (Server::on(dir), main) {
        (Server::Stopped | Server::Unseen, Some(pid)) => Server::process(pid),
        (server, _) => server,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_takes_too_long_is_given_up() {
        assert_eq!(within(PATIENCE, || 1), Some(1));
        let (_held, never) = mpsc::channel::<()>();
        assert_eq!(within(Duration::from_millis(20), move || never.recv().is_ok()), None);
    }

    #[test]
    fn a_directory_lies_in_what_is_above_it_by_any_path() {
        let home = tempfile::tempdir().unwrap();
        let (outer, other) = (home.path().join("outer"), home.path().join("other"));
        fs::create_dir_all(outer.join("a/b")).unwrap();
        fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(outer.join("a/b"), other.join("link")).unwrap();
        let roots = [Identity::of(&outer).unwrap()];
        for (place, inside) in
            [(outer.clone(), true), (outer.join("a/b"), true), (other.clone(), false)]
        {
            assert_eq!(lies_in(&place, &roots).unwrap(), inside, "{}", place.display());
        }
        // Where a link leads, and not where it stands.
        assert!(lies_in(&other.join("link"), &roots).unwrap());
        assert!(lies_in(&home.path().join("none"), &roots).is_err());
    }

    #[test]
    fn a_program_without_the_library_fails_the_check_once_it_is_the_servers() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path();
        let mut child = Command::new("sleep").arg("60").current_dir(dir).spawn().unwrap();
        let pid = child.id();
        let server = |library| Server::Running { pid, program: None, library };
        let before = Instant::now().checked_sub(LOADING);
        let mut bare = Bare(before.map(|since| (pid, since)));
        assert!(bare.lasts(&server(Loaded::No), dir));
        // What works elsewhere and is no server may be systemd's child, or Patroni.
        assert!(!bare.lasts(&server(Loaded::No), Path::new("/proc")));
        // From now on it is looked at for a while.
        assert!(!bare.lasts(&server(Loaded::No), dir));
        assert!(bare.0.is_some());
        assert!(!bare.lasts(&server(Loaded::Yes), dir));
        assert!(bare.0.is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Not every program that systemd takes for the main process is a server.
    #[test]
    fn a_program_that_is_no_server_works_anywhere() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(works_elsewhere(std::process::id(), home.path()), None);
    }
}

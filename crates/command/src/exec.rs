//! `tidelock exec`: unlocks, leaves an agent behind, and becomes the program.
//!
//! ```text
//!   directories --> agents: alive, or unlocked here (a passphrase is asked once) and started
//!   program     --> judged: would the library be loaded? --> listed for this run
//!   environment --> LD_PRELOAD, TIDELOCK_AGENT, TIDELOCK_PROGRAM --> execve
//! ```
//!
//! pg_upgrade alone is a child, after which there is something to clear away ([`upgrade`]).
//!
//! Everything that can be refused is refused before the first agent is started.

mod arguments;
mod library;
mod program;
mod spaces;
mod target;
mod temporary;
mod upgrade;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::Duration;

use tidelock_agent::server::Options;
use tidelock_agent::spawn::AgentCommand;
use tidelock_agent::{RunDir, client, spawn};
use tidelock_keyring::KeyringDir;

pub(crate) use library::Library;
pub(crate) use program::Program;
pub(crate) use temporary::{is_of, notice};
use upgrade::Upgrade;
pub(crate) use upgrade::outlive;

use crate::audit::trail;
use crate::console;
use crate::cores;
use crate::error::{Error, Result};
use crate::init::open_or_make;
use crate::mysqld;
use crate::owner::Owner;
use crate::protected::Protected;
use crate::rollback;
use crate::running::Programs;
use crate::unlock::KeyOptions;

/// How many agents may end while they are talked to.
const ATTEMPTS: usize = 20;
const PRELOAD: &str = "LD_PRELOAD";
const AGENT: &str = "TIDELOCK_AGENT";
const NAMED: &str = "TIDELOCK_PROGRAM";

/// Unlock, then become PROGRAM, whose files below DIR are sealed
#[derive(clap::Args)]
pub(crate) struct Exec {
    /// A protected directory; may be given several times [default: $PGDATA]
    #[arg(short = 'D', long = "directory", value_name = "DIR")]
    dirs: Vec<PathBuf>,
    #[command(flatten)]
    keys: KeyOptions,
    /// The program gets no terminal: root's command runs it as another user
    #[arg(long, hide = true)]
    leave_terminal: bool,
    /// The program; it gets keys for this run even if the profile does not list it
    #[arg(required = true, last = true, value_name = "PROGRAM [ARG]...")]
    program: Vec<OsString>,
}

impl Exec {
    /// Returns only if the program does not start, or was pg_upgrade.
    ///
    /// # Errors
    /// The program cannot have the library, a directory is not protected, a keyring does not open.
    pub(crate) fn run(mut self) -> Result<ExitCode> {
        let arguments = self.program.split_off(1);
        let name = self.program.pop().unwrap_or_default();
        let dirs = self.directories()?;
        let program = Program::find(&name)?;
        judge(&program)?;
        let library = Library::find()?;
        let directories = open_each(dirs)?;
        warn_of_the_run(&program, &arguments, &directories);
        let spaces = spaces::mapped(&program.called, &arguments, &directories)?;
        let upgrade = Upgrade::plan(&program.called, &arguments, &directories)?;
        let copier = upgrade.as_ref().map(|upgrade| &*upgrade.copier);
        let sockets = self.agents(&program, copier, &directories)?;
        let sqlite = temporary::choose(&directories, &sockets);
        let sorts = mysqld::prepare(&program, &arguments, &directories, &sockets)?;
        let mut become_it = Command::new(&program.called);
        self.keep_back(&mut become_it, &directories)?;
        cores::as_before();
        become_it
            .arg0(&name)
            .args(&arguments)
            .env(PRELOAD, preload(&library, std::env::var_os(PRELOAD)))
            .env(AGENT, joined(&sockets))
            .env(NAMED, &program.path);
        if let Some(folder) = sqlite {
            become_it.env(temporary::VARIABLE, folder);
        }
        if let Some(dir) = sorts {
            become_it.env("TMPDIR", dir);
        }
        if !spaces.is_empty() {
            become_it.env(spaces::VARIABLE, spaces);
        }
        if let Some(upgrade) = upgrade {
            return upgrade.run(become_it);
        }
        let error = become_it.exec();
        Err(Error::io("run", program.called)(error))
    }

    /// What is this process's alone: the program does not get what opens keyrings, nor the terminal
    /// if root's command runs it.
    fn keep_back(&self, become_it: &mut Command, directories: &[Protected]) -> Result<()> {
        for variable in self.secret_variables(directories) {
            become_it.env_remove(variable);
        }
        if self.keys.have_standard_input() {
            become_it.stdin(Stdio::null());
        }
        if self.leave_terminal {
            let failed = Error::io("leave the terminal of", "this process");
            rustix::process::setsid().map_err(|errno| failed(errno.into()))?;
        }
        Ok(())
    }

    /// What opens the keyrings and stands in the environment: whoever has that and a copy of the
    /// directory has the data, and superusers of PostgreSQL read its environment by COPY PROGRAM.
    fn secret_variables(&self, directories: &[Protected]) -> BTreeSet<String> {
        let mut all = BTreeSet::new();
        for protected in directories {
            let Protected { path, keyring, .. } = protected;
            let configured = self.keys.configured(keyring, path).unwrap_or_default();
            for choice in self.keys.choices(keyring, path).iter().chain(&configured.providers) {
                all.extend(choice.secret_variables().into_iter().map(str::to_owned));
            }
        }
        all.retain(|name| std::env::var_os(name).is_some());
        if !all.is_empty() {
            let names = all.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            console::warn(
                format!(
                    "the program does not get these variables, which may open the keyring: {names}"
                ),
                "if it needs them itself, put them into a file or profile that it reads",
            );
        }
        all
    }

    fn directories(&self) -> Result<Vec<PathBuf>> {
        let mut dirs = self.dirs.clone();
        if dirs.is_empty() {
            dirs.extend(
                std::env::var_os("PGDATA").filter(|dir| !dir.is_empty()).map(PathBuf::from),
            );
        }
        if dirs.is_empty() {
            return Err(Error::usage(
                "no protected directory is named",
                "tidelock exec -D DIR -- PROGRAM [ARG]...",
            ));
        }
        Ok(dirs)
    }

    /// The sockets of the agents of these directories, all of which list the program, and what of
    /// pg_upgrade copies.
    fn agents(
        &self,
        program: &Program,
        copier: Option<&Path>,
        directories: &[Protected],
    ) -> Result<Vec<PathBuf>> {
        let programs: Vec<&Path> = [&*program.path].into_iter().chain(copier).collect();
        directories.iter().map(|protected| self.agent_that_lists(&programs, protected)).collect()
    }

    /// The socket of an agent that holds the keyring and lists these programs for this run.
    fn agent_that_lists(&self, programs: &[&Path], protected: &Protected) -> Result<PathBuf> {
        let list = || -> Result<PathBuf> {
            let socket = self.agent(protected)?;
            for program in programs {
                let ended = || tidelock_agent::Error::Ended { socket: socket.clone() };
                client::connect(&socket)?.ok_or_else(ended)?.allow(program)?;
            }
            Ok(socket)
        };
        // One that is about to end may still have answered.
        for _ in 0..ATTEMPTS {
            match list() {
                Err(Error::Agent(tidelock_agent::Error::Ended { .. })) => {
                    sleep(Duration::from_millis(50));
                }
                done => return done,
            }
        }
        list()
    }

    /// The socket of an agent that holds the keyring; started if there is none.
    fn agent(&self, protected: &Protected) -> Result<PathBuf> {
        let mut options = Options::new(RunDir::choose()?);
        let socket = options.run_dir.socket(protected.keyring.id());
        let mut outdated = false;
        if let Some(agent) = client::connect(&socket)? {
            let status = agent.status()?;
            let ours = status.directory == protected.path;
            // By its bytes: a keyring that was damaged or changed must be refused as by everybody
            // else.
            let folder = KeyringDir::open(&protected.path)?;
            if ours && status.file == folder.digest()? {
                return Ok(socket);
            }
            outdated = ours;
        }
        let config = self.keys.to_open(&protected.keyring, &protected.path, protected.owner)?;
        options.log = Some(trail::log(&protected.keyring, &protected.path, &config)?);
        options.allow_writable_programs = config.allow_writable_programs;
        options.core_dumps = config.core_dumps;
        let keyring = self.keys.unlock(protected)?;
        rollback::refuse(protected)?;
        options.accompany = Programs::of(&protected.path).heads();
        if outdated && let Some(agent) = client::connect(&socket)? {
            agent.reload(keyring.keyring_key())?;
            return Ok(socket);
        }
        Ok(spawn::start(&keyring, &protected.path, &options, &AgentCommand::this_program())?)
    }
}

/// Would the library be loaded, and by what the program starts?
///
/// # Errors
/// [`Error::Refused`] if not by the program itself.
fn judge(program: &Program) -> Result<()> {
    program.refuse_unless_it_loads()?;
    if program.drops_the_environment() {
        console::warn(
            format!(
                "{} empties the environment: what it starts loads no library",
                program.called.display()
            ),
            "put it before `tidelock exec`, for example `sudo -u postgres tidelock exec ...`",
        );
    }
    if program.is_shell() && std::io::stderr().is_terminal() {
        console::warn(
            shell_words(program),
            "name the program itself: tidelock exec -D DIR -- PROGRAM",
        );
    }
    Ok(())
}

/// What is not refused, and may not be meant.
fn warn_of_the_run(program: &Program, arguments: &[OsString], directories: &[Protected]) {
    if may_change_its_user(program) && !program.drops_the_environment() {
        warn_of_other_owners(directories);
    }
    warn_of_process_one();
    target::warn_if_elsewhere(&program.called, arguments, directories);
    warn_of_few_descriptors();
}

/// A server that becomes the owner of its directory when root starts it, or what may start one.
/// PostgreSQL's does not run as root.
fn may_change_its_user(program: &Program) -> bool {
    mysqld::is_server(&program.path) || program.script.is_some() || program.is_shell()
}

/// Root's agent gives no keys to a server that has become another user.
fn warn_of_other_owners(directories: &[Protected]) {
    let others = |it: &&Protected| it.owner.uid != 0 && Owner::caller().uid == 0;
    if let Some(theirs) = directories.iter().find(others) {
        let (user, dir) = (theirs.owner.name(), theirs.path.display());
        console::warn(
            format!(
                "{dir} belongs to {user}, and root runs this: a server that becomes {user} gets no \
                 changes of the keyring while it runs"
            ),
            format!(
                "start a server as that user: sudo -u {user} tidelock exec -D {dir} -- PROGRAM"
            ),
        );
    }
}

/// The first process of a container becomes the parent of the agent.
fn warn_of_process_one() {
    if std::process::id() == 1 {
        console::warn(
            "this is process 1, and the agent becomes a child of the program: PostgreSQL takes one \
             that is killed for a crash, and restarts",
            "start an init before it: tini, or `--init` of podman and docker",
        );
    }
}

/// Two descriptors for a sealed file, and PostgreSQL counts on a thousand files.
fn warn_of_few_descriptors() {
    const ENOUGH: u64 = 2048;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    if let Some(limit) = limit.filter(|limit| *limit < ENOUGH) {
        console::warn(
            format!(
                "a process may have {limit} descriptors at most (the hard limit), and a sealed \
                 file takes two: the program will have fewer files open at a time"
            ),
            "raise it for a server: ulimit -Hn 65536 as root, or LimitNOFILE=65536 in its unit",
        );
    }
}

/// Only where somebody reads: a script that starts a listed server is in order.
fn shell_words(program: &Program) -> String {
    let shell = program.path.display();
    let is = match &program.script {
        Some(script) => format!("{} is a script of {shell}", script.display()),
        None => format!("{shell} is a shell"),
    };
    format!(
        "{is}: it gets keys; of the programs that it starts, only those that the profile lists \
         get them, and the others cannot write here"
    )
}

/// Each once. One that is configured to be made when there is nothing is made here.
fn open_each(dirs: Vec<PathBuf>) -> Result<Vec<Protected>> {
    let mut found: Vec<Protected> = Vec::new();
    for dir in dirs {
        let protected = open_or_make(&dir)?;
        if found.iter().all(|other| other.path != protected.path) {
            found.push(protected);
        }
    }
    Ok(found)
}

/// Ours first; what the caller preloads stays.
fn preload(library: &Library, present: Option<OsString>) -> OsString {
    let ours = library.path.as_os_str();
    let mut all = ours.to_owned();
    let present = present.unwrap_or_default();
    for other in present.as_bytes().split(|byte| b": ".contains(byte)) {
        if !other.is_empty() && other != ours.as_bytes() {
            all.push(":");
            all.push(OsStr::from_bytes(other));
        }
    }
    all
}

fn joined(sockets: &[PathBuf]) -> OsString {
    let mut all = OsString::new();
    for (index, socket) in sockets.iter().enumerate() {
        if index > 0 {
            all.push(":");
        }
        all.push(socket);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_that_changes_its_user_is_known_and_what_may_start_one() {
        let may = |path: &str, script: Option<&str>| {
            let script = script.map(PathBuf::from);
            may_change_its_user(&Program { called: path.into(), path: path.into(), script })
        };
        for server in ["/usr/sbin/mariadbd", "/usr/sbin/mysqld", "/usr/sbin/mysqld-debug"] {
            assert!(may(server, None), "{server}");
        }
        assert!(may("/bin/dash", None));
        assert!(may("/usr/bin/perl", Some("/usr/bin/start-mysqld")));
        for other in ["/usr/lib/postgresql/17/bin/postgres", "/usr/bin/mysqldump", "/usr/bin/perl"]
        {
            assert!(!may(other, None), "{other}");
        }
    }

    #[test]
    fn the_callers_own_libraries_stay_behind_ours() {
        let library = Library { path: "/lib/ours.so".into() };
        let preload = |present: &str| preload(&library, Some(present.into()));
        assert_eq!(preload(""), "/lib/ours.so");
        assert_eq!(preload("/a.so:/b.so"), "/lib/ours.so:/a.so:/b.so");
        assert_eq!(preload("/a.so /lib/ours.so"), "/lib/ours.so:/a.so");
    }
}

//! Programs that the command runs as the owner of a directory, and what they print.
//!
//! Root never runs them itself: whoever owns a directory says by its files which program that is.
//! Nor do they have root's terminal, into which they could type, but for a program that a person
//! names and uses there.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::sleep;
use std::time::Duration;

use procfs::process::Process;
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::SIGINT;
use signal_hook::flag;
use signal_hook::low_level::{emulate_default_handler, unregister};
use tidelock_agent::RunDir;
use tidelock_providers::{Config, Places, has_terminal, secrets};

use crate::begun::{Lock, beside};
use crate::console;
use crate::error::{Error, Result};
use crate::folder::{Entry, give};
use crate::owner::Owner;
use crate::protected::{Protected, is_protected};
use crate::this_program;
use crate::unlock;

/// Of util-linux, as setpriv is.
const SETSID: &str = "setsid";
/// How often a program is looked at that does not hear the terminal.
const LOOK: Duration = Duration::from_millis(5);
/// The caller's own places, which another user may not enter.
const OWN_PLACES: [&str; 5] =
    ["XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "TIDELOCK_RUN_DIR", "XDG_CACHE_HOME"];

/// Who runs programs, and what they hold meanwhile.
#[derive(Clone)]
pub(crate) struct RunAs {
    owner: Owner,
    /// Their standard input: a program that goes on when the command is killed keeps the lock.
    lock: Option<Rc<File>>,
}

impl RunAs {
    /// The owner of a directory of servers.
    ///
    /// # Errors
    /// [`Error::Refused`] if the caller is neither root nor the owner, or the owner is root.
    pub(crate) fn new(owner: Owner) -> Result<Self> {
        let me = Owner::caller().uid;
        if me != 0 && me != owner.uid {
            return Err(Error::refused(
                format!("the directory belongs to another user, {}", owner.name()),
                format!("run it as {} or as root", owner.name()),
            ));
        }
        if owner.uid == 0 {
            return Err(Error::refused(
                "the directory belongs to root, and servers refuse to run as root",
                "name the data directory of a server",
            ));
        }
        Ok(Self { owner, lock: None })
    }

    /// From now on they hold this lock while they run.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn hold(&mut self, lock: &Lock) -> Result<()> {
        self.lock = Some(Rc::new(lock.share()?));
        Ok(())
    }

    /// What a program gets as its standard input.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn stdin(&self) -> Result<Stdio> {
        match &self.lock {
            Some(file) => Ok(file.try_clone().map_err(Error::io("share", "the lock"))?.into()),
            None => Ok(Stdio::null()),
        }
    }

    /// Who runs them.
    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    /// A program that works on `dir`: with keys if that is a protected directory.
    ///
    /// # Errors
    /// [`Error::Io`]; there is no folder for the agent's socket.
    pub(crate) fn on(&self, dir: &Path, program: &Path) -> Result<Command> {
        if !is_protected(dir) {
            return self.program(program);
        }
        self.make_place()?;
        // The command itself may need credentials, and passes none on.
        let tidelock = this_program::path()?;
        let config = self.config(dir);
        let mut command = if self.asks_a_person(config.as_ref()) {
            let mut command = self.on_the_terminal(&tidelock)?;
            command.args(["exec", "--leave-terminal"]);
            command
        } else {
            let mut command = self.as_owner(&tidelock)?;
            command.arg("exec");
            command
        };
        command.arg("-D").arg(dir).arg("--").arg(program);
        self.keep_back(&mut command, config.as_ref());
        Ok(command)
    }

    /// A server on `dir` that outlives the command, with keys if that is a protected directory. It
    /// has no lock, and writes what it prints at the end of `log`, which the owner opens.
    ///
    /// # Errors
    /// [`Error::Io`]; there is no folder for the agent's socket.
    pub(crate) fn server(&self, dir: &Path, words: &[String], log: &Path) -> Result<Command> {
        let shell = Path::new("/bin/sh");
        let is_sealed = is_protected(dir);
        let mut command = if is_sealed { self.as_owner(shell)? } else { self.program(shell)? };
        command.args(["-c", "log=$1; shift; exec \"$@\" >>\"$log\" 2>&1", "sh"]).arg(log);
        if is_sealed {
            self.make_place()?;
            self.keep_back(&mut command, self.config(dir).as_ref());
            let program = this_program::path()?;
            command.arg(program).args(["exec", "-D"]).arg(dir).arg("--");
        }
        command.args(words).stdin(Stdio::null());
        // Ctrl-C is for the command. A session of its own is a group already; setsid(1) would stay
        // as the parent of one that leads a group.
        if !self.leaves_the_terminal() {
            command.process_group(0);
        }
        Ok(command)
    }

    /// Where a server on `dir` writes what it prints, by preference at the end of `wanted`: a file
    /// that the owner can write to. Only root can write into the folders of many directories of
    /// servers, so root makes one beside this. A server must not stay down for its log.
    ///
    /// # Errors
    /// [`Error::Io`] if nothing can be run.
    pub(crate) fn log(&self, wanted: &Path, dir: &Path) -> Result<PathBuf> {
        if self.appends(wanted)? {
            return Ok(wanted.to_path_buf());
        }
        let beside = beside(dir, ".log");
        if Owner::caller().uid != self.owner.uid {
            // Whoever owns the server says by its descriptors where it writes: root makes none of
            // that.
            if let Ok(entry) = Entry::of(&beside)
                && let Ok(file) = entry.create()
                && give(&file, self.owner).is_err()
            {
                // A file system without owners.
                let _ = entry.remove();
            }
        }
        let (name, log) = match self.appends(&beside)? {
            true => (beside.display().to_string(), beside),
            false => ("no file".to_owned(), Path::new("/dev/null").to_path_buf()),
        };
        console::warn(
            format!(
                "{} cannot write to {}: what the server prints goes into {name}",
                self.owner.name(),
                wanted.display()
            ),
            "name its log in its own configuration (logging_collector, log_error)",
        );
        Ok(log)
    }

    /// The owner can write at the end of this file, which is made.
    fn appends(&self, log: &Path) -> Result<bool> {
        let mut command = self.program(Path::new("/bin/sh"))?;
        // As pg_ctl makes one: rows are in it.
        command.args(["-c", "umask 077; : >>\"$1\"", "sh"]).arg(log).stderr(Stdio::null());
        let status = command.status().map_err(Error::io("run", command.get_program()))?;
        Ok(status.success())
    }

    /// The folder of the owner's agents, which the owner may be unable to make.
    fn make_place(&self) -> Result<()> {
        if Owner::caller().uid != self.owner.uid {
            RunDir::of_user(self.owner.uid, self.owner.gid)?;
        }
        Ok(())
    }

    /// True if the terminal is root's, and not that of the owner.
    fn leaves_the_terminal(&self) -> bool {
        Owner::caller().uid != self.owner.uid && has_terminal()
    }

    /// How the keyring of `dir` opens, as root has configured it for this owner. What the owner
    /// says would give away root's terminal, or what stands in its environment.
    fn config(&self, dir: &Path) -> Option<Config> {
        if Owner::caller().uid == self.owner.uid {
            return None;
        }
        let protected = Protected::open(dir).ok()?;
        unlock::to_open(&protected.keyring, &protected.path, protected.owner).ok()
    }

    /// True if the keyring is opened by somebody who types.
    fn asks_a_person(&self, config: Option<&Config>) -> bool {
        self.leaves_the_terminal()
            && config.is_some_and(|it| it.providers.iter().any(|one| !one.is_unattended()))
    }

    /// Where `tidelock exec` runs as another user, it has no secrets of the caller's but those by
    /// which this keyring opens, and these it keeps to itself.
    fn keep_back(&self, exec: &mut Command, config: Option<&Config>) {
        if Owner::caller().uid == self.owner.uid {
            return;
        }
        let providers = config.iter().flat_map(|it| &it.providers);
        let opening: BTreeSet<&str> = providers.flat_map(|it| it.secret_variables()).collect();
        for name in secret_variables().filter(|name| !opening.contains(&**name)) {
            exec.env_remove(name);
        }
    }

    /// Any program, as the owner, and [`without_secrets`].
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn program(&self, program: &Path) -> Result<Command> {
        self.as_owner(program).map(without_secrets)
    }

    /// As [`RunAs::program`], for a person who has named it and may type into it: with the
    /// terminal.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn of_a_person(&self, program: &Path) -> Result<Command> {
        self.on_the_terminal(program).map(without_secrets)
    }

    /// In a session of its own, where the terminal is root's.
    fn as_owner(&self, program: &Path) -> Result<Command> {
        if !self.leaves_the_terminal() {
            return self.on_the_terminal(program);
        }
        let mut setsid = Command::new(SETSID);
        setsid.args(["--wait", "setpriv"]);
        self.prepare(setsid, program)
    }

    /// With the terminal, if there is one.
    fn on_the_terminal(&self, program: &Path) -> Result<Command> {
        self.prepare(Command::new("setpriv"), program)
    }

    /// With the groups of that user: a server may read its TLS key by one.
    fn prepare(&self, mut setpriv: Command, program: &Path) -> Result<Command> {
        let another = Owner::caller().uid != self.owner.uid;
        let mut command = if another {
            setpriv
                .arg(format!("--reuid={}", self.owner.uid))
                .arg(format!("--regid={}", self.owner.gid))
                .args(["--init-groups", "--"])
                .arg(program);
            if let Some(user) = self.owner.account() {
                setpriv.env("HOME", user.dir).env("USER", &user.name).env("LOGNAME", user.name);
            }
            OWN_PLACES.iter().for_each(|name| {
                setpriv.env_remove(name);
            });
            setpriv
        } else {
            Command::new(program)
        };
        command.current_dir("/").stdin(self.stdin()?);
        Ok(command)
    }
}

/// Takes what may open a keyring out of a program's environment: superusers of a server read that.
pub(crate) fn without_secrets(mut command: Command) -> Command {
    for name in secret_variables() {
        command.env_remove(name);
    }
    command
}

/// Those of every provider, and of what is configured for any keyring.
fn secret_variables() -> impl Iterator<Item = String> {
    secrets().map(str::to_owned).chain(Places::of_process().secret_variables())
}

/// Runs a program to its end; what it printed on standard output.
///
/// It prints to memory and not to a pipe: a pipe would end it together with a caller that is
/// killed, and a server that pg_ctl is stopping would go on to stop with nobody holding the lock.
///
/// # Errors
/// [`Error::Tool`] with the last line that it said; [`Error::Io`].
pub(crate) fn run(mut command: Command) -> Result<String> {
    let called = called(&command);
    let (out, err) = (Printed::new()?, Printed::new()?);
    command.stdout(out.end()?).stderr(err.end()?);
    let status = wait_for(&mut command).map_err(Error::io("run", command.get_program()))?;
    if status.success() {
        return out.text();
    }
    let said = [err.text()?, out.text()?];
    let said: Vec<&str> = said.iter().flat_map(|text| text.lines()).collect();
    // What ends a message is seldom all of it; pg_ctl names the log in its last line.
    let from = said.len().saturating_sub(3);
    let said = said.get(from..).unwrap_or_default().join("; ");
    Err(Error::Tool { program: called, ended: status.to_string(), said })
}

/// Runs a program to its end. One in a session of its own does not hear Ctrl-C: it is told, and
/// the command ends after it.
pub(crate) fn wait_for(command: &mut Command) -> io::Result<ExitStatus> {
    static AT_REST: OnceLock<Arc<AtomicBool>> = OnceLock::new();
    let ignored =
        || Process::myself().and_then(|it| it.status()).is_ok_and(|it| it.sigign & 2 != 0);
    if command.get_program() != SETSID || AT_REST.get().is_none() && ignored() {
        return command.status();
    }
    let at_rest = AT_REST.get_or_init(|| {
        let at_rest = Arc::new(AtomicBool::new(true));
        // Where that fails, Ctrl-C ends the command as ever.
        let _ = flag::register_conditional_default(SIGINT, Arc::clone(&at_rest));
        at_rest
    });
    let mut child = command.spawn()?;
    let typed = Arc::new(AtomicBool::new(false));
    let Ok(hook) = flag::register(SIGINT, Arc::clone(&typed)) else { return child.wait() };
    at_rest.store(false, Ordering::Release);
    let mut told = false;
    let ended = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if typed.swap(false, Ordering::AcqRel) {
            told = true;
            // One that has ended is found by the next look.
            let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            let _ = pid.map(|pid| kill_process_group(pid, Signal::INT));
        }
        sleep(LOOK);
    };
    unregister(hook);
    at_rest.store(true, Ordering::Release);
    if told {
        emulate_default_handler(SIGINT)?;
    }
    Ok(ended)
}

/// What a program prints.
struct Printed(File);

impl Printed {
    fn new() -> Result<Self> {
        let file = memfd_create("printed", MemfdFlags::CLOEXEC);
        file.map(|file| Self(file.into()))
            .map_err(|errno| Error::io("make", "a file in memory")(errno.into()))
    }

    /// The program's.
    fn end(&self) -> Result<Stdio> {
        Ok(self.0.try_clone().map_err(Error::io("share", "a file in memory"))?.into())
    }

    fn text(&self) -> Result<String> {
        let failed = || Error::io("read", "a file in memory");
        let mut bytes = Vec::new();
        let mut file = &self.0;
        file.rewind().and_then(|()| file.read_to_end(&mut bytes)).map_err(failed())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// `pg_ctl`, whatever runs it.
fn called(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.collect();
    let after = words.iter().rposition(|word| *word == "--").map_or(0, |at| at + 1);
    let first = words.get(after).or(words.first()).map(Path::new);
    first.and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    use tidelock_servers::skip;

    use super::*;

    #[test]
    fn a_server_whose_owner_may_write_no_log_gets_one_from_root() {
        if skip::unless_root("a file in a folder of root's") {
            return;
        }
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        // An account that every Debian has.
        let owner: Owner = "daemon".parse().unwrap();
        let run_as = RunAs { owner, lock: None };
        let (dir, beside) = (home.path().join("data"), home.path().join("data.log"));
        // As root's nohup.out.
        let wanted = home.path().join("wanted");
        fs::write(&wanted, "").unwrap();
        for _ in 0..2 {
            assert_eq!(run_as.log(&wanted, &dir).unwrap(), beside);
            assert_eq!(fs::metadata(&beside).unwrap().uid(), owner.uid);
        }
        assert_eq!(fs::read(&wanted).unwrap(), b"");
        std::os::unix::fs::chown(&wanted, Some(owner.uid), None).unwrap();
        assert_eq!(run_as.log(&wanted, &dir).unwrap(), wanted);
        // What somebody else has put there stays theirs.
        fs::write(home.path().join("other.log"), "theirs").unwrap();
        let nowhere = run_as.log(Path::new("/"), &home.path().join("other")).unwrap();
        assert_eq!(nowhere, Path::new("/dev/null"));
    }

    /// Which test runs again, on a terminal.
    const ON_A_TERMINAL: &str = "TIDELOCK_TEST_ON_A_TERMINAL";

    #[test]
    fn a_program_of_another_user_cannot_type_into_roots_terminal() {
        if skip::unless_root("to become another user") {
            return;
        }
        if std::env::var_os(ON_A_TERMINAL).is_none() {
            // The terminal of this test is whoever's, or none.
            let name = "run_as::tests::a_program_of_another_user_cannot_type_into_roots_terminal";
            let test = std::env::current_exe().unwrap();
            let line = format!("'{}' --exact {name} --nocapture", test.display());
            let mut script = Command::new("script");
            script.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
            script.env(ON_A_TERMINAL, "1").env_remove("SHELL").stdin(Stdio::null());
            let output = script.output().unwrap();
            assert!(output.status.success(), "{output:?}");
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(said.contains("1 passed"), "{said}");
            return;
        }
        let run_as = RunAs { owner: "daemon".parse().unwrap(), lock: None };
        let opens = |mut command: Command| {
            command.args(["-c", ": </dev/tty"]).stdin(Stdio::null()).stderr(Stdio::null());
            command.status().unwrap().success()
        };
        let shell = Path::new("/bin/sh");
        assert!(opens(Command::new(shell)) && opens(run_as.on_the_terminal(shell).unwrap()));
        assert!(!opens(run_as.program(shell).unwrap()));
        // A server is no child of setsid(1), which would wait for it.
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let log = home.path().join("log");
        fs::write(&log, "").unwrap();
        std::os::unix::fs::chown(&log, Some(run_as.owner.uid), None).unwrap();
        let words = ["/bin/sh", "-c", "echo $$; : </dev/tty"].map(str::to_owned);
        let mut server = run_as.server(home.path(), &words, &log).unwrap().spawn().unwrap();
        assert!(!server.wait().unwrap().success());
        let said = fs::read_to_string(&log).unwrap();
        assert_eq!(said.lines().next(), Some(&*server.id().to_string()), "{said}");
    }

    #[test]
    fn a_program_is_called_by_its_own_name_whatever_runs_it() {
        let mut command = Command::new("/usr/bin/setpriv");
        command.args([
            "--reuid=1",
            "--",
            "/x/tidelock",
            "exec",
            "-D",
            "/d",
            "--",
            "/b/pg_ctl",
            "x",
        ]);
        assert_eq!(called(&command), "pg_ctl");
        assert_eq!(called(&Command::new("/b/psql")), "psql");
    }

    #[test]
    fn what_a_failed_program_said_last_is_told() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo one >&2; echo two >&2; exit 3"]);
        let error = run(command).unwrap_err().to_string();
        assert!(error.contains("one; two") && error.contains('3'), "{error}");
    }
}

//! One run of one program: as the servers' account, with a clean environment, captured output and a
//! time limit.
//!
//! Output goes to files, not pipes: a server started by `pg_ctl` would keep a pipe open for ever.
//! Each run leads a process group, so that Ctrl-C on the terminal is for us alone, and whatever
//! fails, runs too long or is dropped ends with all that it started. Nothing of it reads or writes
//! the terminal.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Seek as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::bounded::{Bounded as _, Started, printed};
use crate::error::{Error, Result};
use crate::workspace::{ROOTS_HOME, Workspace};
use crate::{Arm, BINDIR, home, unlinked};

/// A program about to be run.
#[derive(Debug)]
pub struct Tool<'p> {
    workspace: &'p Workspace,
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(OsString, OsString)>,
    secrets: Vec<(OsString, OsString)>,
    arm: Arm,
    protected: Vec<PathBuf>,
    within: Option<PathBuf>,
    stdin: Option<Vec<u8>>,
    stdout: Option<PathBuf>,
    log: Option<PathBuf>,
    limit: Duration,
    as_root: bool,
}

/// What a program printed and how it ended.
#[derive(Debug)]
pub struct Output {
    /// The command line.
    pub command: String,
    /// How it ended.
    pub status: ExitStatus,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Output {
    /// Both outputs, for searching.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

impl<'p> Tool<'p> {
    pub(super) fn new(workspace: &'p Workspace, program: &Path) -> Self {
        // Ready binaries of another major lack most client tools: then Debian's, then PATH's.
        let named = env::var_os("TIDELOCK_PG_BINDIR").map(PathBuf::from);
        let mut places = named.into_iter().chain([BINDIR.into()]).map(|bin| bin.join(program));
        let program = places.find(|path| path.is_file()).unwrap_or_else(|| program.to_path_buf());
        Self {
            workspace,
            program,
            args: Vec::new(),
            env: Vec::new(),
            secrets: Vec::new(),
            arm: Arm::Plain,
            protected: Vec::new(),
            within: None,
            stdin: None,
            stdout: None,
            log: None,
            limit: Duration::from_secs(120),
            as_root: false,
        }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<I: IntoIterator<Item: AsRef<OsStr>>>(mut self, args: I) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets a variable of the environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.env.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Sets a variable of the environment that no message shows.
    #[must_use]
    pub fn secret_env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.secrets.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Sets variables of the environment.
    #[must_use]
    pub fn envs<'v>(mut self, all: impl IntoIterator<Item = (&'v str, &'v str)>) -> Self {
        self.env.extend(all.into_iter().map(|(name, value)| (name.into(), value.into())));
        self
    }

    /// Runs it in this directory instead of the workspace.
    #[must_use]
    pub fn within(mut self, dir: &Path) -> Self {
        self.within = Some(dir.to_path_buf());
        self
    }

    /// Runs it as `arm` runs a server's tool; `dir` is the protected directory if the arm has one.
    #[must_use]
    pub fn under(mut self, arm: Arm, dir: &Path) -> Self {
        self.arm = arm;
        self.protected.push(dir.to_path_buf());
        self
    }

    /// Gives it this text to read.
    #[must_use]
    pub fn stdin(mut self, text: impl Into<Vec<u8>>) -> Self {
        self.stdin = Some(text.into());
        self
    }

    /// Sends its standard output to `path`, which belongs to the servers' account, as a shell
    /// would.
    #[must_use]
    pub fn stdout_to(mut self, path: &Path) -> Self {
        self.stdout = Some(path.to_path_buf());
        self
    }

    /// Adds the end of the file `path` to the message when it fails.
    #[must_use]
    pub fn log(mut self, path: &Path) -> Self {
        self.log = Some(path.to_path_buf());
        self
    }

    /// Ends it after so many seconds (120 if not set).
    #[must_use]
    pub fn limit(mut self, seconds: u64) -> Self {
        self.limit = Duration::from_secs(seconds);
        self
    }

    /// Keeps our own account: for tools that change it themselves, such as pg_ctlcluster.
    #[must_use]
    pub fn as_ourselves(mut self) -> Self {
        self.as_root = true;
        self
    }

    /// Runs it; anything but exit code 0 is an error.
    ///
    /// # Errors
    /// When it cannot be started, ends otherwise, or runs too long.
    pub fn run(self) -> Result<Output> {
        let log = self.log.clone();
        let output = self.attempt()?;
        if output.status.success() {
            return Ok(output);
        }
        let mut told = last_lines(&output.stdout, &output.stderr);
        if let Some(log) = log.and_then(|path| fs::read(path).ok()) {
            let _ = write!(told, "log:\n{}", tail(&String::from_utf8_lossy(&log), 25));
        }
        let status = output.status.to_string();
        Err(Error::Ended { command: output.command, status, output: told })
    }

    /// Runs it and returns how it ended.
    ///
    /// # Errors
    /// When it cannot be started or runs too long.
    pub fn attempt(self) -> Result<Output> {
        self.spawn()?.wait()
    }

    /// Runs it and expects it to fail; returns what it printed.
    ///
    /// # Errors
    /// When it succeeds, cannot be started, or runs too long.
    pub fn fails(self) -> Result<Output> {
        let output = self.attempt()?;
        match output.status.success() {
            false => Ok(output),
            true => Err(Error::Ended {
                output: last_lines(&output.stdout, &output.stderr),
                command: output.command,
                status: "success, where a refusal was expected".into(),
            }),
        }
    }

    /// Starts it and returns at once.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(self) -> Result<Running> {
        let mut command = self.command()?;
        let told = line(&command);
        command.envs(self.secrets.iter().map(|(name, value)| (name, value)));
        let failed = || Error::io(format!("starting {told}"));
        let mut stdout = tempfile::tempfile().map_err(failed())?;
        let stderr = tempfile::tempfile().map_err(failed())?;
        if let Some(path) = &self.stdout {
            stdout = unlinked::to_write(path).map_err(failed())?;
            stdout.set_len(0).map_err(failed())?;
            self.workspace.account().give_open(&stdout, path)?;
        }
        let stdin = match &self.stdin {
            None => Stdio::null(),
            Some(text) => {
                let mut file = tempfile::tempfile().map_err(failed())?;
                file.write_all(text).and_then(|()| file.rewind()).map_err(failed())?;
                Stdio::from(file)
            }
        };
        command
            .process_group(0)
            .stdin(stdin)
            .stdout(stdout.try_clone().map_err(failed())?)
            .stderr(stderr.try_clone().map_err(failed())?);
        let child = command.start().map_err(failed())?;
        let readable = self.stdout.is_none();
        let (begin, limit) = (Instant::now(), self.limit);
        Ok(Running { child, command: told, stdout, readable, stderr, begin, limit })
    }

    /// The command line and environment that its arm gives it.
    fn command(&self) -> Result<Command> {
        let mut command = match self.arm {
            Arm::Plain => Command::new(&self.program),
            Arm::Idle => {
                let mut command = Command::new(&self.program);
                command.env("LD_PRELOAD", self.workspace.programs()?.library);
                command
            }
            Arm::Sealed => {
                let mut command = Command::new(self.workspace.programs()?.command);
                command.arg("exec");
                for dir in &self.protected {
                    command.arg("-D").arg(dir);
                }
                command.arg("--").arg(&self.program);
                command
            }
        };
        command.args(&self.args);
        for (name, _) in env::vars_os() {
            if name.to_str().is_some_and(|n| n.starts_with("PG") || n.starts_with("TIDELOCK_")) {
                command.env_remove(&name);
            }
        }
        command.current_dir(self.within.as_deref().unwrap_or(self.workspace.path()));
        command.env("LC_ALL", "C.UTF-8").env("TZ", "UTC").env("NO_COLOR", "1");
        let account = self.workspace.account();
        if self.as_root && account.switches() {
            command.envs(home::variables(&self.workspace.join(ROOTS_HOME)));
        } else {
            command.envs(home::variables(&self.workspace.join("home"))).env("USER", account.name());
            account.apply(&mut command);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }
}

/// A program that runs; ended on drop with its process group.
#[derive(Debug)]
pub struct Running {
    child: Started,
    command: String,
    stdout: File,
    readable: bool,
    stderr: File,
    begin: Instant,
    limit: Duration,
}

impl Running {
    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has not ended yet.
    pub fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Looks after one that somebody else waits for.
    ///
    /// # Errors
    /// When it has run longer than its limit since its start (it is ended then).
    pub fn check_limit(&mut self) -> Result<()> {
        if self.begin.elapsed() < self.limit { Ok(()) } else { Err(self.too_long()) }
    }

    /// Waits for its end; what it started ends too if it failed.
    ///
    /// # Errors
    /// When it runs too long (it is ended then).
    pub fn wait(mut self) -> Result<Output> {
        match self.child.ended_within(self.limit) {
            Ok(status) => {
                if status.success() {
                    self.child.leave();
                } else {
                    self.child.end();
                }
                self.output(status)
            }
            Err(why) if why.kind() == io::ErrorKind::TimedOut => Err(self.too_long()),
            Err(why) => Err(Error::io(format!("waiting for {}", self.command))(why)),
        }
    }

    fn output(&mut self, status: ExitStatus) -> Result<Output> {
        let (stdout, stderr) = self.printed();
        Ok(Output { command: self.command.clone(), status, stdout, stderr })
    }

    fn too_long(&mut self) -> Error {
        self.child.end();
        let (stdout, stderr) = self.printed();
        let output = last_lines(&stdout, &stderr);
        Error::TooLong { command: self.command.clone(), seconds: self.limit.as_secs(), output }
    }

    fn printed(&mut self) -> (String, String) {
        let read = |file: &mut File| {
            let bytes = printed(file).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let stdout = if self.readable { read(&mut self.stdout) } else { String::new() };
        (stdout, read(&mut self.stderr))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.runs() {
            self.child.leave();
        }
    }
}

/// The command line, without the environment: that is long, and says little.
fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

fn last_lines(stdout: &str, stderr: &str) -> String {
    format!("stdout:\n{}stderr:\n{}", tail(stdout, 15), tail(stderr, 25))
}

fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    let from = all.len().saturating_sub(lines);
    all[from..].iter().fold(String::new(), |told, line| told + "    " + line + "\n")
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::Process;

    /// `sh` with this script, which prints the process id of a child first.
    fn child_of(workspace: &Workspace, script: &str, limit: u64) -> (Running, Process) {
        let told = workspace.join("child");
        let script =
            format!("sleep 600 & echo $! > {}.new; mv {0}.new {0}; {script}", told.display());
        let running = workspace.tool("sh").args(["-c", &script]).limit(limit).spawn().unwrap();
        let start = Instant::now();
        let id = loop {
            if let Ok(text) = fs::read_to_string(&told) {
                break text.trim().parse().unwrap();
            }
            assert!(start.elapsed() < Duration::from_secs(60), "it did not start");
            thread::sleep(Duration::from_millis(5));
        };
        (running, Process::new(id).unwrap())
    }

    #[test]
    fn what_a_tool_started_ends_with_it_at_its_limit_on_failure_and_on_drop() {
        let workspace = Workspace::new().unwrap();
        let (running, child) = child_of(&workspace, "wait", 1);
        let error = running.wait().unwrap_err();
        assert!(matches!(error, Error::TooLong { seconds: 1, .. }), "{error}");
        assert!(error.to_string().contains("sleep 600"), "the command is not named: {error}");
        child.wait_gone(Duration::from_secs(10)).unwrap();

        fs::remove_file(workspace.join("child")).unwrap();
        let (running, child) = child_of(&workspace, "exit 3", 60);
        assert_eq!(running.wait().unwrap().status.code(), Some(3));
        child.wait_gone(Duration::from_secs(10)).unwrap();

        fs::remove_file(workspace.join("child")).unwrap();
        let (running, child) = child_of(&workspace, "wait", 60);
        drop(running);
        child.wait_gone(Duration::from_secs(10)).unwrap();
    }

    #[test]
    fn a_secret_reaches_the_program_and_no_message() {
        let workspace = Workspace::new().unwrap();
        let tool = workspace.tool("sh").args(["-c", "echo ${#SECRET}; exit 3"]);
        let error = tool.secret_env("SECRET", "twelve bytes").run().unwrap_err().to_string();
        assert!(error.contains("12") && !error.contains("twelve bytes"), "{error}");
    }

    #[test]
    fn a_limit_counts_from_the_start_for_whoever_only_looks() {
        let workspace = Workspace::new().unwrap();
        let mut running = workspace.tool("sleep").arg("600").limit(1).spawn().unwrap();
        running.check_limit().unwrap();
        thread::sleep(Duration::from_millis(1100));
        assert!(matches!(running.check_limit(), Err(Error::TooLong { .. })));
        assert!(!running.runs());
    }
}

//! One MariaDB data directory and the server on it: the sibling of [`crate::Cluster`].
//!
//! Its option file, socket and log lie in the workspace, outside the data directory; temporary
//! files too, but for a sealed server. The server listens on its socket only and runs as the
//! servers' account, since mariadbd refuses root.

mod options;
mod own;
mod sealed;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::Arm;
use crate::error::{Error, Result, ensure};
use crate::process::Process;
use crate::tool::{Running, Tool};
use crate::workspace::Workspace;

pub use sealed::sealed_is_possible;

/// A data directory of MariaDB. Dropping it ends its server at once.
#[derive(Debug)]
pub struct MariaDb<'p> {
    workspace: &'p Workspace,
    arm: Arm,
    name: String,
    dir: PathBuf,
    /// Socket, process id and temporary files.
    sockets: PathBuf,
    options: PathBuf,
    log: PathBuf,
    bin: Option<PathBuf>,
    env: Vec<(String, String)>,
    server: Mutex<Option<Running>>,
}

impl<'p> MariaDb<'p> {
    /// A directory that [`MariaDb::install`] fills, with an option file that makes the server
    /// private.
    ///
    /// # Errors
    /// When the directory of the socket or the option file cannot be made.
    pub fn at(workspace: &'p Workspace, name: &str, arm: Arm) -> Result<Self> {
        let maria = Self {
            workspace,
            arm,
            name: name.into(),
            dir: workspace.join(name),
            sockets: workspace.make_dir(&format!("s-{name}"))?,
            options: workspace.join(&format!("{name}.cnf")),
            log: workspace.join(&format!("{name}.log")),
            bin: None,
            env: Vec::new(),
            server: Mutex::new(None),
        };
        let socket = maria.socket();
        let private = options::private(&socket, &maria.sockets, &maria.log);
        workspace.write(&maria.options, &private)?;
        if arm != Arm::Sealed {
            // A sealed server has its temporary files in its directory, and is not started with
            // them outside.
            maria.set("tmpdir", &maria.sockets.display().to_string())?;
        }
        Ok(maria)
    }

    /// A fresh directory in the workspace, installed with these settings, not started.
    ///
    /// # Errors
    /// When mariadb-install-db fails.
    pub fn new(workspace: &'p Workspace, name: &str, settings: &[(&str, &str)]) -> Result<Self> {
        let maria = Self::at(workspace, name, Arm::Plain)?;
        for (name, value) in settings {
            maria.set(name, value)?;
        }
        maria.install()?;
        Ok(maria)
    }

    /// The same with its data directory at `dir`, outside the workspace: on a volume, say. The
    /// caller makes and removes what is above it.
    #[must_use]
    pub fn on(mut self, dir: PathBuf) -> Self {
        self.dir = dir;
        self
    }

    /// The same with the programs of another build, and variables for all that work on the
    /// directory. The server's programs are taken from `bin` and nowhere else; clients too, where
    /// it has them.
    #[must_use]
    pub fn with(mut self, bin: Option<PathBuf>, env: Vec<(String, String)>) -> Self {
        self.bin = bin;
        self.env = env;
        self
    }

    /// Lets the server encrypt by itself, from its first byte if this comes before
    /// [`MariaDb::install`]: tables, redo and undo log, temporary files, binary log. The key is a
    /// file outside the data directory. What it leaves plain: table definitions (`.frm`) and Aria's
    /// log.
    ///
    /// # Errors
    /// When the key or the option file cannot be written.
    pub fn encrypt_itself(&self) -> Result<()> {
        let keys = self.workspace.join(&format!("home/{}.maria-keys", self.name));
        own::write_key(self.workspace, &keys)?;
        own::SETTINGS.iter().try_for_each(|(name, value)| self.set(name, value))?;
        self.set("file_key_management_filename", &keys.display().to_string())
    }

    /// Appends one setting of the server to its option file; the last one counts, from the next
    /// start. `log_bin` takes `on` and `off`, which the server itself has no values for.
    ///
    /// # Errors
    /// When the value has a line end, or the file cannot be written.
    pub fn set(&self, name: &str, value: &str) -> Result<()> {
        let mut text = fs::read_to_string(&self.options)
            .map_err(Error::io(format!("reading {}", self.options.display())))?;
        text += &options::line(name, value)?;
        self.workspace.write(&self.options, &text)
    }

    /// mariadb-install-db: system tables, `root` without a password, no test database. In the arm
    /// sealed, the directory is protected first.
    ///
    /// # Errors
    /// When it fails; the message has the end of the log.
    pub fn install(&self) -> Result<()> {
        if self.arm == Arm::Sealed {
            self.protect()?;
        }
        let mut tool = self.server_tool("mariadb-install-db")?;
        if let Some(base) = self.bin.as_deref().and_then(Path::parent) {
            tool = tool.arg(format!("--basedir={}", base.display()));
        }
        tool.args(["--auth-root-authentication-method=normal", "--skip-test-db"])
            .args(["--skip-name-resolve", "--force"])
            .log(&self.log)
            .run()
            .map(drop)
    }

    /// Starts the server and waits until it answers, crash recovery included.
    ///
    /// # Errors
    /// When it runs already or does not come up; the message has the end of its log.
    pub fn start(&self) -> Result<()> {
        let mut slot = self.slot();
        let runs = slot.as_mut().is_some_and(Running::runs);
        ensure(!runs, || format!("a server runs on {} already", self.dir.display()))?;
        // A killed server leaves its socket behind.
        let _ = fs::remove_file(self.socket());
        let mut server = self.server_tool("mariadbd")?.limit(START_SECONDS).spawn()?;
        if self.wait_until_it_answers(&mut server)? {
            *slot = Some(server);
            return Ok(());
        }
        let ended = server.wait()?;
        let output = format!("{}\nlog:\n{}", ended.text(), self.last_lines());
        Err(Error::Ended { command: ended.command, status: ended.status.to_string(), output })
    }

    /// Waits for the server that this program is or starts; false if the program ends before.
    ///
    /// # Errors
    /// When it takes too long; the message has the end of its log.
    pub fn wait_until_it_answers(&self, server: &mut Running) -> Result<bool> {
        let start = Instant::now();
        while server.runs() {
            if self.answers()? {
                return Ok(true);
            }
            ensure(start.elapsed().as_secs() < START_SECONDS, || {
                format!("mariadbd does not answer after {START_SECONDS} s\n{}", self.last_lines())
            })?;
            thread::sleep(Duration::from_millis(20));
        }
        Ok(false)
    }

    /// Whether the server has opened its socket and answers there.
    fn answers(&self) -> Result<bool> {
        if !self.socket().exists() {
            return Ok(false);
        }
        let ping = self.client("mariadb-admin")?.arg("--connect-timeout=10").arg("ping");
        Ok(ping.attempt()?.status.success())
    }

    /// `SHUTDOWN`, which writes everything out; nothing if no server runs.
    ///
    /// # Errors
    /// When the server does not stop by itself; then it is ended by SIGTERM, at last by SIGKILL.
    pub fn stop(&self) -> Result<()> {
        let Some(server) = self.slot().take() else { return Ok(()) };
        let process = process(&server)?;
        // mariadb-admin shutdown says the same, then looks for the end once a second only.
        let asked = self.sql("SHUTDOWN");
        let gone = asked.and_then(|_| process.wait_gone(Duration::from_secs(120)));
        if gone.is_err() {
            let _ = process.signal(Signal::TERM);
            let _ = process.wait_gone(Duration::from_secs(20));
        }
        // Dropped at the end of this function, which ends what still runs and reaps it.
        gone
    }

    /// Stops the server and starts it again.
    ///
    /// # Errors
    /// As [`MariaDb::stop`] and [`MariaDb::start`].
    pub fn restart(&self) -> Result<()> {
        self.stop()?;
        self.start()
    }

    /// Ends the server with SIGKILL.
    ///
    /// # Errors
    /// When no server runs, or it does not go.
    pub fn kill_nine(&self) -> Result<()> {
        let process = self.process()?;
        process.signal(Signal::KILL)?;
        process.wait_gone(Duration::from_secs(30))?;
        drop(self.slot().take());
        Ok(())
    }

    /// The running server; all its work is done by threads of this one process.
    ///
    /// # Errors
    /// When none runs.
    pub fn process(&self) -> Result<Process> {
        let mut slot = self.slot();
        let runs = slot.as_mut().is_some_and(Running::runs);
        let nobody = || Error::Unexpected(format!("no server runs on {}", self.dir.display()));
        process(slot.as_ref().filter(|_| runs).ok_or_else(nobody)?)
    }

    /// Runs SQL as `root`, stopping at the first error; each row of the answer is a line, with
    /// tabs.
    ///
    /// # Errors
    /// When a statement fails.
    pub fn sql(&self, text: &str) -> Result<String> {
        let sql = self.client("mariadb")?.args(["--batch", "--skip-column-names", "--raw"]);
        let output = sql.stdin(text).log(&self.log).run()?;
        Ok(output.stdout.trim_end().to_owned())
    }

    /// Writes the pages that InnoDB holds changed, and a checkpoint; returns when it is done.
    ///
    /// # Errors
    /// When it fails, or this version has no switch for it.
    pub fn write_out(&self) -> Result<()> {
        self.sql("SET GLOBAL innodb_log_checkpoint_now = ON").map(drop)
    }

    /// Expects a query to answer exactly this.
    ///
    /// # Errors
    /// When it answers something else.
    pub fn expect(&self, query: &str, answer: &str) -> Result<()> {
        let got = self.sql(query)?;
        ensure(got == answer, || format!("{query}\n  answered {got:?}\n  expected {answer:?}"))
    }

    /// A program that reaches the server by its socket only, as `root`.
    ///
    /// # Errors
    /// [`Error::Missing`] when it is not installed.
    pub fn client(&self, program: &str) -> Result<Tool<'p>> {
        let tool = self.workspace.tool(self.program(program)?);
        Ok(tool.arg(format!("--defaults-file={}", self.options.display())))
    }

    /// A program that works on the directory's files, as the arm runs it: with the server's option
    /// file and data directory.
    ///
    /// # Errors
    /// [`Error::Missing`] when it is not installed.
    pub fn server_tool(&self, program: &str) -> Result<Tool<'p>> {
        let mut tool =
            self.workspace.tool(self.server_program(program)?).under(self.arm, &self.dir);
        for (name, value) in &self.env {
            tool = tool.env(name, value);
        }
        Ok(tool
            .arg(format!("--defaults-file={}", self.options.display()))
            .arg(format!("--datadir={}", self.dir.display())))
    }

    /// A program of the other build if there is one, never ours in its workspace.
    fn server_program(&self, name: &str) -> Result<PathBuf> {
        let Some(bin) = &self.bin else { return self.program(name) };
        let hint = "the directory of another build has to have all programs of its server";
        program_of(bin, name).ok_or_else(|| Error::Missing { path: bin.join(name), hint })
    }

    fn program(&self, name: &str) -> Result<PathBuf> {
        let hint = "install MariaDB (Debian: mariadb-server), or set TIDELOCK_MARIADB_BINDIR";
        find(self.bin.as_deref(), name).ok_or_else(|| Error::Missing { path: name.into(), hint })
    }

    /// The data directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The server's log, outside the data directory.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The socket that the server listens on.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.sockets.join("socket")
    }

    /// Its name in the workspace.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its arm.
    #[must_use]
    pub fn arm(&self) -> Arm {
        self.arm
    }

    /// Its workspace.
    #[must_use]
    pub fn workspace(&self) -> &'p Workspace {
        self.workspace
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Running>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last_lines(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(25)..].join("\n")
    }
}

/// A program of the server of another build: in `bin`, or beside it where that is the `bin` or
/// `sbin` of an installation (Debian has the server in `sbin`, upstream its scripts in `scripts`).
#[must_use]
pub fn program_of(bin: &Path, name: &str) -> Option<PathBuf> {
    let installed = bin.ends_with("bin") || bin.ends_with("sbin");
    let base = bin.parent().filter(|_| installed);
    let beside = ["bin", "sbin", "scripts"].into_iter();
    let beside = beside.filter_map(|dir| base.map(|base| base.join(dir)));
    let dirs = std::iter::once(bin.to_path_buf()).chain(beside);
    dirs.map(|dir| dir.join(name)).find(|path| path.is_file())
}

/// A program's path. Debian has the server in /usr/sbin, which a user's PATH may not name.
fn find(bin: Option<&Path>, name: &str) -> Option<PathBuf> {
    let named = env::var_os("TIDELOCK_MARIADB_BINDIR").map(PathBuf::from);
    let debian = ["/usr/bin", "/usr/sbin"].map(PathBuf::from);
    let dirs = bin.map(Path::to_path_buf).into_iter().chain(named).chain(debian);
    dirs.map(|dir| dir.join(name)).find(|path| path.is_file())
}

fn process(server: &Running) -> Result<Process> {
    let id = i32::try_from(server.id()).ok();
    id.and_then(Process::new).ok_or_else(|| Error::Unexpected("no process id".into()))
}

/// How long a server may take to come up.
const START_SECONDS: u64 = 300;

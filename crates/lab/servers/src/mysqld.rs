//! One data directory of MariaDB or MySQL and the server on it: the sibling of [`crate::Cluster`].
//!
//! Its option file, socket and log lie in the workspace, outside the data directory; temporary
//! files too, but for a sealed server. The server listens on its socket only and runs as the
//! servers' account, since both refuse root. What only one brand has is in `mariadb` and `mysql`.

mod brand;
mod mariadb;
mod mysql;
mod options;
mod sealed;

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
use crate::unlinked;
use crate::workspace::Workspace;

pub use brand::{Brand, program_of};
pub use sealed::sealed_is_possible;

/// A data directory of MariaDB or MySQL. Dropping it ends its server at once.
#[derive(Debug)]
pub struct Mysqld<'p> {
    brand: Brand,
    workspace: &'p Workspace,
    arm: Arm,
    name: String,
    dir: PathBuf,
    /// Socket, process id and temporary files.
    sockets: PathBuf,
    options: PathBuf,
    log: PathBuf,
    bin: Option<PathBuf>,
    /// A copy of the server that runs in its place.
    own_server: Option<PathBuf>,
    env: Vec<(String, String)>,
    server: Mutex<Option<Running>>,
}

impl<'p> Mysqld<'p> {
    /// A directory of MariaDB that [`Mysqld::install`] fills, with an option file that makes the
    /// server private.
    ///
    /// # Errors
    /// When the directory of the socket or the option file cannot be made.
    pub fn mariadb(workspace: &'p Workspace, name: &str, arm: Arm) -> Result<Self> {
        Self::at(workspace, Brand::MariaDb, name, arm)
    }

    /// The same of MySQL.
    ///
    /// # Errors
    /// As [`Mysqld::mariadb`].
    pub fn mysql(workspace: &'p Workspace, name: &str, arm: Arm) -> Result<Self> {
        Self::at(workspace, Brand::MySql, name, arm)
    }

    /// The same of either.
    ///
    /// # Errors
    /// As [`Mysqld::mariadb`].
    pub fn at(workspace: &'p Workspace, brand: Brand, name: &str, arm: Arm) -> Result<Self> {
        let mysqld = Self {
            brand,
            workspace,
            arm,
            name: name.into(),
            dir: workspace.join(name),
            sockets: workspace.make_dir(&format!("s-{name}"))?,
            options: workspace.join(&format!("{name}.cnf")),
            log: workspace.join(&format!("{name}.log")),
            bin: None,
            own_server: None,
            env: Vec::new(),
            server: Mutex::new(None),
        };
        let private = options::private(&mysqld.socket(), &mysqld.sockets, &mysqld.log);
        workspace.write(&mysqld.options, &private)?;
        if arm != Arm::Sealed {
            // A sealed server has its temporary files in its directory, and is not started with
            // them outside.
            mysqld.set("tmpdir", &mysqld.sockets.display().to_string())?;
        }
        if brand == Brand::MySql {
            mysql::SETTINGS.iter().try_for_each(|(name, value)| mysqld.set(name, value))?;
        }
        Ok(mysqld)
    }

    /// The same, installed with these settings, not started.
    ///
    /// # Errors
    /// As [`Mysqld::install`].
    pub fn installed(self, settings: &[(&str, &str)]) -> Result<Self> {
        settings.iter().try_for_each(|(name, value)| self.set(name, value))?;
        self.install()?;
        Ok(self)
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

    /// The same encrypting by itself, from its first byte if this comes before
    /// [`Mysqld::install`] and after [`Mysqld::with`]: tables, redo and undo log, binary log. Keys
    /// are in a file outside the data directory. MariaDB leaves table definitions (`.frm`) and
    /// Aria's log plain; MySQL its data dictionary and what is not InnoDB's.
    ///
    /// # Errors
    /// When keys or the option file cannot be written, or this server has no such encryption.
    pub fn encrypting_itself(mut self) -> Result<Self> {
        let settings = match self.brand {
            Brand::MariaDb => {
                let keys = self.workspace.join(&format!("home/{}.maria-keys", self.name));
                mariadb::write_key(self.workspace, &keys)?;
                self.set("file_key_management_filename", &keys.display().to_string())?;
                &mariadb::ENCRYPTED[..]
            }
            Brand::MySql => {
                mysql::with_keyring(&mut self)?;
                &mysql::ENCRYPTED
            }
        };
        settings.iter().try_for_each(|(name, value)| self.set(name, value))?;
        Ok(self)
    }

    /// Appends one setting of the server to its option file; the last one counts, from the next
    /// start. `log_bin` takes `on` and `off`, which the server itself has no values for.
    ///
    /// # Errors
    /// When the value has a line end, or the file cannot be written.
    pub fn set(&self, name: &str, value: &str) -> Result<()> {
        let mut text = unlinked::read(&self.options)
            .map_err(Error::io(format!("reading {}", self.options.display())))?;
        text += &options::line(name, value)?;
        self.workspace.write(&self.options, &text)
    }

    /// System tables, and `root` without a password. In the arm sealed, the directory is protected
    /// first.
    ///
    /// # Errors
    /// When the server's program for it fails; the message has the end of the log.
    pub fn install(&self) -> Result<()> {
        if self.arm == Arm::Sealed {
            self.protect()?;
        }
        let base = self.bin.as_deref().and_then(Path::parent);
        let tool = match self.brand {
            Brand::MariaDb => {
                let base = base.map(|base| format!("--basedir={}", base.display()));
                let tool = self.server_tool("mariadb-install-db")?.args(base);
                tool.args(mariadb::INSTALL)
            }
            Brand::MySql => self.server_tool(Brand::MySql.server())?.arg("--initialize-insecure"),
        };
        tool.limit(START_SECONDS).log(&self.log).run().map(drop)
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
        let mut server = self.server_tool(self.brand.server())?.limit(START_SECONDS).spawn()?;
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
                let (server, told) = (self.brand.server(), self.last_lines());
                format!("{server} does not answer after {START_SECONDS} s\n{told}")
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
    /// As [`Mysqld::stop`] and [`Mysqld::start`].
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

    /// Writes the pages that InnoDB holds changed, so that a checkpoint can follow; returns when it
    /// is done.
    ///
    /// # Errors
    /// When it fails, or this version has no switch for it.
    pub fn write_out(&self) -> Result<()> {
        match self.brand {
            Brand::MariaDb => {
                let text = "SET GLOBAL innodb_log_checkpoint_now = ON";
                // On a slow volume it takes minutes.
                self.client("mariadb")?.stdin(text).limit(3600).log(&self.log).run().map(drop)
            }
            Brand::MySql => mysql::write_out(self),
        }
    }

    /// Begins a new binary log, if there is one.
    ///
    /// # Errors
    /// When a statement fails.
    pub fn empty_binary_log(&self) -> Result<()> {
        let told = self.sql("SELECT @@log_bin, @@version")?;
        let Some(version) = told.strip_prefix("1\t") else { return Ok(()) };
        let statement = match self.brand {
            Brand::MariaDb => "RESET MASTER",
            Brand::MySql => mysql::empties_binary_log(version),
        };
        self.sql(statement).map(drop)
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
        let installed = self.server_program(program)?;
        let own = self.own_server.as_ref().filter(|_| program == self.brand.server());
        let runs = own.unwrap_or(&installed);
        let mut tool = self.workspace.tool(runs).under(self.arm, &self.dir);
        for (name, value) in &self.env {
            tool = tool.env(name, value);
        }
        tool = tool
            .arg(format!("--defaults-file={}", self.options.display()))
            .arg(format!("--datadir={}", self.dir.display()));
        if self.brand == Brand::MySql {
            // Where its messages are; upstream's tree may lie anywhere.
            tool = tool.arg(format!("--basedir={}", mysql::base_of(&installed).display()));
        }
        Ok(tool)
    }

    /// A program of the other build if there is one, never ours in its workspace.
    fn server_program(&self, name: &str) -> Result<PathBuf> {
        let Some(bin) = &self.bin else { return self.program(name) };
        let hint = "the directory of another build has to have all programs of its server";
        program_of(bin, name).ok_or_else(|| Error::Missing { path: bin.join(name), hint })
    }

    fn program(&self, name: &str) -> Result<PathBuf> {
        self.brand.program(self.bin.as_deref(), name)
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

/// Whether the server that would run, one of `bin` if given, can encrypt by itself.
///
/// # Errors
/// The reason, as a sentence.
pub fn own_is_possible(brand: Brand, bin: Option<&Path>) -> std::result::Result<(), String> {
    match brand {
        Brand::MariaDb => Ok(()),
        Brand::MySql => mysql::own_is_possible(bin),
    }
}

fn process(server: &Running) -> Result<Process> {
    let id = i32::try_from(server.id()).ok();
    id.and_then(Process::new).ok_or_else(|| Error::Unexpected("no process id".into()))
}

/// How long a server may take to come up.
const START_SECONDS: u64 = 300;

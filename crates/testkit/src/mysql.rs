//! MySQL in the tests: two builds of it, and small private servers.
//!
//! ```text
//!   upstream   8.0.15, the server alone, as `ci/mysql` unpacks it; clients are MariaDB's
//!   debian     that of Debian's unstable suite, with its tools, in a root of its own
//! ```
//!
//! That root needs a newer libc than this machine may have. So the test program runs once more
//! there, by `ci/mysql enter`, for one test.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::maria::Sql;
use crate::pg::{Arm, Error, Process, Programs, Result, Running, Tool, Workspace, ensure, skip};

/// Defines two tests of `fn body(install: &Install) -> Result<()>`: `body::upstream` and
/// `body::debian`, or the one that is named. All of them are left to `make test-full`.
#[macro_export]
macro_rules! mysqls {
    ($body:ident) => { $crate::mysqls!($body: upstream, debian); };
    ($body:ident: $($build:ident),+) => {
        mod $body {
            $(
                #[test]
                #[ignore = "long: make test-full"]
                fn $build() -> $crate::pg::Result<()> {
                    let name = concat!(stringify!($body), "::", stringify!($build));
                    $crate::mysql::$build(name, super::$body)
                }
            )+
        }
    };
}

/// Where programs of MySQL are.
#[derive(Debug)]
pub struct Install {
    server: PathBuf,
    client: PathBuf,
    /// What this build of the server needs beside its settings.
    own: Vec<String>,
    /// It has all programs, and what came after 8.0.15.
    pub is_whole: bool,
}

impl Install {
    /// The server's program.
    #[must_use]
    pub fn server(&self) -> &Path {
        &self.server
    }
}

/// Runs a test with upstream's server.
///
/// # Errors
/// Those of the test.
pub fn upstream(_: &str, body: fn(&Install) -> Result<()>) -> Result<()> {
    let base = repository().join("build/mysql/8.0");
    let (server, client) = (base.join("bin/mysqld"), PathBuf::from("/usr/bin/mariadb"));
    if !server.is_file() || !client.is_file() {
        skip::because("build/mysql/8.0 or MariaDB's client is missing: ci/mysql, ci/packages test");
        return Ok(());
    }
    let own = vec![
        format!("--basedir={}", base.display()),
        // MariaDB's client knows no other.
        "--default-authentication-plugin=mysql_native_password".to_owned(),
    ];
    body(&Install { server, client, own, is_whole: false })
}

/// Runs the test `name` with Debian's server: here, if this is the root that has it.
///
/// # Errors
/// Those of the test.
pub fn debian(name: &str, body: fn(&Install) -> Result<()>) -> Result<()> {
    if env::var_os(INSIDE).is_some() {
        let (server, client) = ("/usr/sbin/mysqld".into(), "/usr/bin/mysql".into());
        return body(&Install { server, client, own: Vec::new(), is_whole: true });
    }
    if skip::unless_root("a root of Debian's unstable suite") {
        return Ok(());
    }
    if !repository().join("build/mysql/root/usr/sbin/mysqld").is_file() {
        skip::because("build/mysql/root is missing: ci/mysql");
        return Ok(());
    }
    let place = Workspace::new()?;
    let me = env::current_exe().map_err(Error::io("finding the running program"))?;
    let built = Programs::command_beside()?;
    let mut shown = vec![me.parent(), built.parent()];
    shown.dedup();
    let mut tool = place.tool(repository().join("ci/mysql")).as_ourselves().arg("enter");
    for dir in shown.into_iter().flatten() {
        tool = tool.arg("--show").arg(dir);
    }
    let built = built.parent().unwrap_or(Path::new("/")).display();
    let output = tool
        .args(["env", &format!("{INSIDE}=1"), &format!("TIDELOCK_BUILT={built}")])
        .arg(me)
        .args(["--exact", name, "--include-ignored", "--nocapture", "--test-threads=1"])
        .limit(3600)
        .attempt()?;
    let passed = output.status.success() && output.stdout.contains("test result: ok. 1 passed");
    ensure(passed, || output.text())
}

/// Set where the test runs in the root.
const INSIDE: &str = "TIDELOCK_MYSQL_INSIDE";

fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// Small, private, and quick on a busy disk: the machine outlives the test, so nothing needs an
/// fsync. `loose` is for what another version has.
const SMALL: [(&str, &str); 11] = [
    ("innodb_buffer_pool_size", "16M"),
    ("loose_innodb_redo_log_capacity", "8M"),
    ("loose_innodb_log_file_size", "4M"),
    ("innodb_flush_method", "nosync"),
    ("key_buffer_size", "1M"),
    ("performance_schema", "OFF"),
    ("skip_networking", "ON"),
    ("mysqlx", "OFF"),
    ("secure_file_priv", ""),
    ("server_id", "1"),
    ("cte_max_recursion_depth", "1000000"),
];

/// A data directory of MySQL, in a workspace. Dropping it ends its server at once.
#[derive(Debug)]
pub struct MySql<'p> {
    place: &'p Workspace,
    install: &'p Install,
    arm: Arm,
    name: String,
    dir: PathBuf,
    sockets: PathBuf,
    settings: Vec<(String, String)>,
    server: Mutex<Option<Running>>,
}

impl<'p> MySql<'p> {
    /// A directory that is still to be made.
    ///
    /// # Errors
    /// When the directory of its socket cannot be made.
    pub fn at(
        place: &'p Workspace,
        install: &'p Install,
        name: &str,
        arm: Arm,
        settings: &[(&str, &str)],
    ) -> Result<Self> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Ok(Self {
            place,
            install,
            arm,
            name: name.into(),
            dir: place.join(name),
            sockets: place.make_dir(&format!("s-{name}"))?,
            settings: SMALL.iter().chain(settings).map(owned).collect(),
            server: Mutex::new(None),
        })
    }

    /// As [`MySql::at`], installed.
    ///
    /// # Errors
    /// When the server cannot fill its directory.
    pub fn installed(
        place: &'p Workspace,
        install: &'p Install,
        name: &str,
        arm: Arm,
        settings: &[(&str, &str)],
    ) -> Result<Self> {
        let mysql = Self::at(place, install, name, arm, settings)?;
        mysql.install()?;
        Ok(mysql)
    }

    /// Makes the directory, protected in the arm sealed, and lets the server fill it.
    ///
    /// # Errors
    /// When one of them fails.
    pub fn install(&self) -> Result<()> {
        match self.arm {
            Arm::Sealed => self.protect()?,
            _ => {
                let made = fs::create_dir(&self.dir);
                made.map_err(Error::io(format!("making {}", self.dir.display())))?;
                self.place.account().give(&self.dir)?;
            }
        }
        self.mysqld()?.arg("--initialize-insecure").limit(600).run().map(drop)
    }

    /// As [`MySql::installed`], and started.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn started(
        place: &'p Workspace,
        install: &'p Install,
        name: &str,
        arm: Arm,
        settings: &[(&str, &str)],
    ) -> Result<Self> {
        let mysql = Self::installed(place, install, name, arm, settings)?;
        mysql.start()?;
        Ok(mysql)
    }

    /// The same with its data directory elsewhere.
    #[must_use]
    pub fn on(mut self, dir: &Path) -> Self {
        self.dir = dir.to_path_buf();
        self
    }

    /// One more setting, or another value, from the next start.
    pub fn set(&mut self, name: &str, value: &str) {
        self.settings.push((name.into(), value.into()));
    }

    /// `tidelock init` with the profile of MySQL: own key file, own recovery key.
    ///
    /// # Errors
    /// When the command refuses.
    pub fn protect(&self) -> Result<()> {
        self.place
            .tool(self.place.programs()?.command)
            .arg("init")
            .arg(&self.dir)
            .args(["--profile", "mysql", "--provider"])
            .arg(format!("file:{}", self.key().display()))
            .arg("--recovery-file")
            .arg(self.place.join(&format!("home/{}.recovery", self.name)))
            .run()
            .map(drop)
    }

    /// Its key file.
    #[must_use]
    pub fn key(&self) -> PathBuf {
        self.place.join(&format!("home/{}.key", self.name))
    }

    /// The server as it would be started.
    ///
    /// # Errors
    /// When the built command is missing.
    pub fn mysqld(&self) -> Result<Tool<'p>> {
        self.server_tool(&self.install.server)
    }

    /// A program that takes the server's options, and starts it.
    ///
    /// # Errors
    /// When the built command is missing.
    pub fn server_tool(&self, program: &Path) -> Result<Tool<'p>> {
        let tool = self.place.tool(program).under(self.arm, &self.dir);
        let own = |file: &str| self.sockets.join(file).display().to_string();
        Ok(tool
            .arg("--no-defaults")
            .arg(format!("--datadir={}", self.dir.display()))
            .args(&self.install.own)
            .args([format!("--socket={}", own("socket")), format!("--pid-file={}", own("pid"))])
            .args(self.settings.iter().map(|(name, value)| format!("--{name}={value}"))))
    }

    /// Starts the server and waits until it answers, crash recovery included.
    ///
    /// # Errors
    /// When it does not come up; the message has what it said.
    pub fn start(&self) -> Result<()> {
        // A killed server leaves its socket behind.
        let _ = fs::remove_file(self.socket());
        let mut server = self.mysqld()?.limit(3600).spawn()?;
        if self.wait_until_it_answers(&mut server)? {
            *self.slot() = Some(server);
            return Ok(());
        }
        let ended = server.wait()?;
        let output = ended.text();
        Err(Error::Ended { command: ended.command, status: ended.status.to_string(), output })
    }

    /// Waits for the server that this program is or starts; false if the program ends before.
    ///
    /// # Errors
    /// When it takes too long.
    pub fn wait_until_it_answers(&self, server: &mut Running) -> Result<bool> {
        let begin = Instant::now();
        while server.runs() {
            if self.socket().exists()
                && self.client()?.stdin("SELECT 1").attempt()?.status.success()
            {
                return Ok(true);
            }
            ensure(begin.elapsed() < Duration::from_secs(300), || "mysqld does not answer".into())?;
            thread::sleep(Duration::from_millis(50));
        }
        Ok(false)
    }

    /// `SHUTDOWN`, and what the server said in its life.
    ///
    /// # Errors
    /// When it does not stop by itself.
    pub fn stop(&self) -> Result<String> {
        self.sql("SHUTDOWN")?;
        let taken = self.slot().take();
        let server = taken.ok_or_else(|| Error::Unexpected("no server runs".into()))?;
        Ok(server.wait()?.text())
    }

    /// Ends the server with SIGKILL.
    ///
    /// # Errors
    /// When no server runs, or it does not go.
    pub fn kill_nine(&self) -> Result<()> {
        let taken = self.slot().take();
        let server = taken.ok_or_else(|| Error::Unexpected("no server runs".into()))?;
        let id = i32::try_from(server.id()).ok().and_then(Process::new);
        let process = id.ok_or_else(|| Error::Unexpected("no process id".into()))?;
        process.signal(Signal::KILL)?;
        process.wait_gone(Duration::from_secs(30))
    }

    /// Waits until the server ends by itself.
    ///
    /// # Errors
    /// When it does not.
    pub fn await_end(&self) -> Result<()> {
        let taken = self.slot().take();
        taken.map_or(Ok(()), |server| server.wait().map(drop))
    }

    /// Expects a query to answer exactly this.
    ///
    /// # Errors
    /// When it answers something else.
    pub fn expect(&self, query: &str, answer: &str) -> Result<()> {
        let got = self.sql(query)?;
        ensure(got == answer, || format!("{query}\n  answered {got:?}\n  expected {answer:?}"))
    }

    /// A program that reaches the server by its socket, as `root`.
    #[must_use]
    pub fn reach(&self, program: &str) -> Tool<'p> {
        let socket = format!("--socket={}", self.socket().display());
        self.place.tool(program).args(["--no-defaults", "--user=root", &socket])
    }

    /// A program that works on files, as the arm runs it.
    #[must_use]
    pub fn offline(&self, program: &str) -> Tool<'p> {
        self.place.tool(program).under(self.arm, &self.dir)
    }

    /// The data directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The socket on which it takes clients, in a directory of its own.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.sockets.join("socket")
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Running>> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sql for MySql<'_> {
    fn workspace(&self) -> &Workspace {
        self.place
    }

    fn client(&self) -> Result<Tool<'_>> {
        Ok(self.reach(&self.install.client.display().to_string()))
    }

    fn sql(&self, text: &str) -> Result<String> {
        let client = self.client()?.args(["--batch", "--skip-column-names", "--raw"]);
        Ok(client.stdin(text).run()?.stdout.trim_end().to_owned())
    }
}

/// The numbers 1 to `last`, as a table `s` with the column `n`.
#[must_use]
pub fn numbers(last: u32) -> String {
    format!(
        "(WITH RECURSIVE r (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < {last}) \
         SELECT n FROM r) s"
    )
}

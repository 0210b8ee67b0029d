//! One PostgreSQL server of the harness: made, started, stopped and asked, as the user `postgres`.
//!
//! Its data directory lies on the volume; sockets, log, key file and configuration lie outside,
//! where the cut does not reach them.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;
use tidelock_servers::home::{self, Agents};
use tidelock_servers::{Account, Bounded as _};

use super::{Arm, Plan, PowercutError};

/// A server and where its files are.
#[derive(Debug)]
pub(super) struct Server {
    arm: Arm,
    data: PathBuf,
    postgres: PathBuf,
    tidelock: PathBuf,
    _agents: Agents,
    private: tempfile::TempDir,
}

impl Server {
    /// Makes the cluster below `root`, checksums on, with WAL segments of 1 MB.
    pub(super) fn create(plan: &Plan, arm: Arm, root: &Path) -> Result<Self, PowercutError> {
        let private = tempfile::Builder::new().prefix("tidelock-powercut-").tempdir()?;
        let server = Self {
            arm,
            data: root.join("data"),
            postgres: plan.postgres.clone(),
            tidelock: plan.tidelock.clone(),
            _agents: Agents::of(private.path(), root),
            private,
        };
        let no_user = |why: tidelock_servers::Error| PowercutError::Program {
            program: "the harness".into(),
            said: why.to_string(),
        };
        let account = Account::of_servers().map_err(no_user)?;
        for directory in [server.private.path(), root] {
            account.give(directory).map_err(no_user)?;
        }
        if arm == Arm::Sealed {
            let mut init = server.as_postgres(&server.tidelock);
            init.arg("init").arg(&server.data).args(["--profile", "postgres", "--provider"]);
            init.arg(format!("file:{}", server.private.path().join("key").display()));
            init.arg("--no-recovery");
            server.run(init)?;
        }
        let mut initdb = server.engine("initdb");
        initdb.args(["-N", "-k", "-A", "trust", "-U", "postgres", "--wal-segsize=1"]);
        server.run(initdb)?;
        File::open(root)?.sync_all()?;
        rustix::fs::syncfs(File::open(root)?).map_err(std::io::Error::from)?;
        Ok(server)
    }

    /// Starts and waits until it answers.
    pub(super) fn start(&self, settings: &[String]) -> Result<(), PowercutError> {
        let mut options = format!("-k {}", self.private.path().display());
        for setting in settings {
            options.push_str(" -c ");
            options.push_str(setting);
        }
        let mut start = self.engine("pg_ctl");
        start.args(["start", "-w", "-t", "150", "-o", &options, "-l"]).arg(self.log());
        self.run(start).map(drop)
    }

    /// Stops it cleanly.
    pub(super) fn stop(&self) -> Result<(), PowercutError> {
        let mut stop = self.engine("pg_ctl");
        stop.args(["stop", "-w", "-m", "fast"]);
        self.run(stop).map(drop)
    }

    /// The process that `pg_ctl start` left.
    pub(super) fn postmaster(&self) -> Result<u32, PowercutError> {
        let file = fs::read_to_string(self.data.join("postmaster.pid"))?;
        let first = file.lines().next().and_then(|pid| pid.parse().ok());
        first.ok_or_else(|| PowercutError::Program { program: "postmaster.pid".into(), said: file })
    }

    /// A client of the server; it is never under the library.
    pub(super) fn psql(&self, database: &str) -> Command {
        let mut psql = self.as_postgres(&self.postgres.join("psql"));
        psql.args(["-X", "-q", "-A", "-t", "-U", "postgres", "-d", database, "-h"]);
        psql.arg(self.private.path());
        psql
    }

    /// The answer to `sql`, with errors as errors.
    pub(super) fn query(&self, sql: &str) -> Result<String, PowercutError> {
        let mut psql = self.psql("postgres");
        psql.args(["-v", "ON_ERROR_STOP=1", "-c", sql]);
        self.run(psql)
    }

    /// What amcheck says of every table and index of every database; nothing if all is well.
    pub(super) fn amcheck(&self) -> Result<(), PowercutError> {
        let mut amcheck = self.as_postgres(&self.postgres.join("pg_amcheck"));
        amcheck.args(["-a", "--install-missing", "--heapallindexed", "-U", "postgres", "-h"]);
        amcheck.arg(self.private.path());
        self.run(amcheck).map(drop)
    }

    /// What `tidelock verify` says; no answer, or one without its lists, is an error and never
    /// "nothing".
    pub(super) fn verify(&self) -> Result<Verified, PowercutError> {
        let mut verify = self.as_postgres(&self.tidelock);
        verify.args(["verify", "--json", "-D"]).arg(&self.data);
        let output = verify.finish()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let report: Option<Value> = serde_json::from_str(&said).ok();
        let list = |name: &str| report.as_ref()?[name].as_array().cloned();
        let expected = matches!(output.status.code(), Some(0 | VERIFY_FOUND));
        match (list("problems"), list("notes")) {
            (Some(problems), Some(notes)) if expected => Ok(Verified::sort(&problems, &notes)),
            _ => Err(PowercutError::Program {
                program: format!("tidelock verify --json ({})", output.status),
                said: said + &String::from_utf8_lossy(&output.stderr),
            }),
        }
    }

    /// How many headers the library has replaced, as the server's log tells, since the cluster was
    /// made.
    pub(super) fn replaced_headers(&self) -> u64 {
        let log = fs::read(self.log()).unwrap_or_default();
        let told = |line: &&str| line.contains("the header was lost in a crash");
        String::from_utf8_lossy(&log).lines().filter(told).count() as u64
    }

    /// What the last recovery said of its end.
    pub(super) fn recovery(&self) -> String {
        self.log_lines(
            |line| line.contains("redo done") || line.contains("redo is not required"),
            1,
        )
    }

    /// The end of the server's log.
    pub(super) fn log_tail(&self) -> String {
        self.log_lines(|_| true, 25)
    }

    /// A program of the user `postgres` with a time limit, so that no hang outlives the cycle.
    pub(super) fn as_postgres(&self, program: &Path) -> Command {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", "180", "runuser", "-u", "postgres", "--", "env"]);
        let variables = home::variables(self.private.path());
        command.args(variables.map(|(name, value)| format!("{name}={}", value.display())));
        command.arg(program);
        command.current_dir(self.private.path()).stdin(Stdio::null());
        command
    }

    /// A place outside the volume.
    pub(super) fn private(&self, name: &str) -> PathBuf {
        self.private.path().join(name)
    }

    /// A program that touches the data directory: under the library on the sealed arm.
    fn engine(&self, program: &str) -> Command {
        let program = self.postgres.join(program);
        let mut command = match self.arm {
            Arm::Plain => self.as_postgres(&program),
            Arm::Sealed => {
                let mut command = self.as_postgres(&self.tidelock);
                command.args(["exec", "-D"]).arg(&self.data).arg("--").arg(&program);
                command
            }
        };
        command.arg("-D").arg(&self.data);
        command
    }

    /// Runs to the end. Output goes through a file: a daemon that is left behind may keep it open.
    fn run(&self, mut command: Command) -> Result<String, PowercutError> {
        let to = tempfile::NamedTempFile::new()?;
        let output = to.reopen()?;
        let status = command.stdout(output.try_clone()?).stderr(output).status()?;
        let said = fs::read_to_string(to.path())?;
        if status.success() {
            return Ok(said);
        }
        let program = format!("{} arm: {command:?}", self.arm.name());
        Err(PowercutError::Program { program, said })
    }

    fn log(&self) -> PathBuf {
        self.private("log")
    }

    fn log_lines(&self, wanted: impl Fn(&str) -> bool, last: usize) -> String {
        let log = fs::read(self.log()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().filter(|line| wanted(line)).collect();
        lines[lines.len().saturating_sub(last)..].join("\n")
    }
}

/// What `tidelock verify` has found.
#[derive(Debug)]
pub(super) struct Verified {
    /// Files whose header is lost and was not replaced.
    pub(super) lost_headers: u64,
    /// Every other problem.
    pub(super) problems: Vec<String>,
    /// The kind and number of what it only notes.
    pub(super) notes: BTreeMap<String, u64>,
}

impl Verified {
    fn sort(problems: &[Value], notes: &[Value]) -> Self {
        let (lost, others): (Vec<_>, Vec<_>) =
            problems.iter().partition(|problem| problem["kind"] == "lost_header");
        let mut kinds = BTreeMap::new();
        for note in notes {
            *kinds.entry(note["kind"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
        Self {
            lost_headers: lost.len() as u64,
            problems: others.iter().map(ToString::to_string).collect(),
            notes: kinds,
        }
    }
}

/// The exit code of verify with problems.
const VERIFY_FOUND: i32 = 5;

/// Waits until init has buried a dead postmaster: a new one takes the corpse for a running server,
/// which after a power failure it could not meet.
pub(super) fn wait_until_gone(process: u32) -> Result<(), PowercutError> {
    let until = Instant::now() + Duration::from_secs(120);
    while Path::new(&format!("/proc/{process}")).exists() {
        if Instant::now() > until {
            let said = format!("process {process} is dead and nobody waits for it");
            return Err(PowercutError::Program { program: "init".into(), said });
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

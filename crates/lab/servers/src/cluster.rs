//! One data directory and the server on it, in one arm.
//!
//! In the arm sealed the directory is made by `tidelock init` and every server-side tool runs
//! through `tidelock exec -D DIR -- ...`, exactly as a user types it. Clients (psql, pgbench) run
//! bare.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use rustix::process::Signal;

use crate::elsewhere::Service;
use crate::error::{Error, Result};
use crate::process::Process;
use crate::tool::{Output, Tool};
use crate::workspace::Workspace;
use crate::{Arm, ensure, unlinked};

/// A data directory with its socket directory and the log of `pg_ctl -l`, which lies outside it.
#[derive(Debug)]
pub struct Cluster<'p> {
    workspace: &'p Workspace,
    arm: Arm,
    dir: PathBuf,
    sockets: PathBuf,
    log: PathBuf,
    bin: Option<PathBuf>,
    env: Vec<(String, String)>,
    /// How clients reach a server that is not ours.
    service: Option<Service>,
    /// `io_method`, where it is not the server's own default: it is new in 18.
    io_method: Option<String>,
}

impl<'p> Cluster<'p> {
    /// A directory that the caller fills, keyring included. Its server has the `io_method` that
    /// `TIDELOCK_PG_IO_METHOD` names: long tests choose it so for every server.
    ///
    /// # Errors
    /// When the socket directory cannot be made.
    pub fn at(workspace: &'p Workspace, name: &str, arm: Arm) -> Result<Self> {
        let sockets = workspace.make_dir(&format!("s-{name}"))?;
        let log = workspace.join(&format!("{name}.log"));
        let dir = workspace.join(name);
        let (bin, env, service) = (None, Vec::new(), None);
        let io_method = env::var(IO_METHOD).ok().filter(|method| method != "default");
        Ok(Self { workspace, arm, dir, sockets, log, bin, env, service, io_method })
    }

    /// A server elsewhere, which clients reach by these parameters of libpq (`host`, `dbname`,
    /// `sslmode`), and with the password that PGPASSWORD has here. It has no directory, is not
    /// started and not stopped.
    ///
    /// # Errors
    /// When the connection service cannot be written, a parameter is there twice, or none names the
    /// database.
    pub fn elsewhere(
        workspace: &'p Workspace,
        name: &str,
        parameters: &[(String, String)],
    ) -> Result<Self> {
        let service = Service::write(workspace, name, parameters)?;
        let mut cluster = Self::at(workspace, name, Arm::Plain)?;
        cluster.service = Some(service);
        Ok(cluster)
    }

    /// Whether the server is elsewhere.
    #[must_use]
    pub fn is_elsewhere(&self) -> bool {
        self.service.is_some()
    }

    /// The same with its data directory at `dir`, outside the workspace: on a volume, say. The
    /// caller makes and removes what is above it.
    #[must_use]
    pub fn on(mut self, dir: PathBuf) -> Self {
        self.dir = dir;
        self
    }

    /// The same with the programs of another build, and variables for those that work on the
    /// directory. Programs of the server are taken from `bin` and nowhere else; clients too, where
    /// it has them.
    #[must_use]
    pub fn with(mut self, bin: Option<PathBuf>, env: Vec<(String, String)>) -> Self {
        self.bin = bin;
        self.env = env;
        self
    }

    /// The same with PostgreSQL's default of `io_method`, whatever `TIDELOCK_PG_IO_METHOD` says: a
    /// server that is measured has the settings that are recorded, and no others.
    #[must_use]
    pub fn with_its_own_io_method(mut self) -> Self {
        self.io_method = None;
        self
    }

    /// Makes the directory, protected in the arm sealed, and runs initdb.
    ///
    /// # Errors
    /// When `tidelock init` or initdb fails.
    pub fn make(&self, initdb: &[&str]) -> Result<()> {
        if self.arm == Arm::Sealed {
            self.protect()?;
        }
        self.initdb(initdb)
    }

    /// An absent directory; in the arm sealed, a protected directory that is otherwise empty.
    ///
    /// # Errors
    /// When `tidelock init` fails.
    pub fn empty(workspace: &'p Workspace, name: &str, arm: Arm) -> Result<Self> {
        let cluster = Self::at(workspace, name, arm)?;
        if arm == Arm::Sealed {
            cluster.protect()?;
        }
        Ok(cluster)
    }

    /// A fresh cluster with checksums, not started.
    ///
    /// # Errors
    /// When initdb fails.
    pub fn new(workspace: &'p Workspace, name: &str, arm: Arm) -> Result<Self> {
        let cluster = Self::empty(workspace, name, arm)?;
        cluster.initdb(&["-k"])?;
        Ok(cluster)
    }

    /// A fresh cluster whose server runs.
    ///
    /// # Errors
    /// When initdb or the start fails.
    pub fn started(workspace: &'p Workspace, name: &str, arm: Arm) -> Result<Self> {
        let cluster = Self::new(workspace, name, arm)?;
        cluster.start()?;
        Ok(cluster)
    }

    /// `tidelock init`: own key file, own recovery key.
    fn protect(&self) -> Result<()> {
        let name = self.name();
        let key = self.workspace.join(&format!("home/{name}.key"));
        let recovery = self.workspace.join(&format!("home/{name}.recovery"));
        self.workspace
            .tool(self.workspace.programs()?.command)
            .arg("init")
            .arg(&self.dir)
            .args(["--profile", "postgres", "--provider"])
            .arg(format!("file:{}", key.display()))
            .arg("--recovery-file")
            .arg(recovery)
            .run()
            .map(drop)
    }

    /// Runs initdb and lets the server listen in its own socket directory only.
    ///
    /// # Errors
    /// When initdb fails.
    pub fn initdb(&self, extra: &[&str]) -> Result<()> {
        self.tool("initdb")
            .arg("-D")
            .arg(&self.dir)
            .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8"])
            .args(extra)
            .run()?;
        if self.arm == Arm::Sealed {
            self.really_sealed()?;
        }
        self.listen_here()
    }

    /// A library that was built without its symbols would let everything through unnoticed.
    fn really_sealed(&self) -> Result<()> {
        let path = self.dir.join("global/pg_filenode.map");
        let bytes = fs::read(&path).map_err(Error::io(format!("reading {}", path.display())))?;
        ensure(!bytes.starts_with(&RELMAPPER_MAGIC), || {
            format!("{} is plain: is the library whole?", path.display())
        })
    }

    /// Makes this directory a copy of a running server by `pg_basebackup -Fp`.
    ///
    /// # Errors
    /// When the backup fails.
    pub fn backup_of(&self, primary: &Self, extra: &[&str]) -> Result<()> {
        self.tool("pg_basebackup")
            .arg("-D")
            .arg(&self.dir)
            .args(["-d", &primary.conninfo(), "-Fp", "-c", "fast"])
            .args(extra)
            .run()?;
        self.listen_here()
    }

    /// Settings that make the server private to its workspace.
    ///
    /// # Errors
    /// When postgresql.conf cannot be written.
    pub fn listen_here(&self) -> Result<()> {
        self.set("listen_addresses", "")?;
        self.set("unix_socket_directories", &self.sockets.display().to_string())?;
        if let Some(method) = &self.io_method {
            self.set("io_method", method)?;
        }
        self.set("port", "5432")
    }

    /// Appends one setting to postgresql.conf; the last one counts.
    ///
    /// # Errors
    /// When the file cannot be written, or is a link.
    pub fn set(&self, name: &str, value: &str) -> Result<()> {
        let path = self.dir.join("postgresql.conf");
        let mut text = unlinked::read(&path)
            .map_err(Error::io(format!("reading {} (is it sealed?)", path.display())))?;
        text += &format!("{name} = '{}'\n", value.replace('\'', "''"));
        self.workspace.write(&path, &text)
    }

    /// `pg_ctl start`.
    ///
    /// # Errors
    /// When the server does not come up; the message has the end of its log.
    pub fn start(&self) -> Result<()> {
        self.start_tool().run().map(drop)
    }

    /// `pg_ctl start`, which must fail.
    ///
    /// # Errors
    /// When it succeeds.
    pub fn start_fails(&self) -> Result<Output> {
        self.start_tool().fails()
    }

    fn start_tool(&self) -> Tool<'p> {
        let seconds = START_SECONDS.to_string();
        self.start_with(self.pg_ctl(&["-t", &seconds, "-l"]).arg(&self.log).arg("start"))
    }

    /// pg_ctl takes the server that lies beside itself, wherever a link or a script leads: not
    /// always ours.
    fn start_with(&self, pg_ctl: Tool<'p>) -> Tool<'p> {
        let pg_ctl = match &self.bin {
            Some(bin) => pg_ctl.arg("-p").arg(bin.join("postgres")),
            None => pg_ctl,
        };
        pg_ctl.log(&self.log).limit(START_SECONDS + 60)
    }

    /// `pg_ctl stop -m MODE`.
    ///
    /// # Errors
    /// When it does not stop.
    pub fn stop(&self, mode: &str) -> Result<()> {
        let postmaster = self.postmaster()?;
        self.pg_ctl(&["-m", mode, "stop"]).log(&self.log).run()?;
        postmaster.wait_gone(Duration::from_secs(120))?;
        postmaster.reap();
        Ok(())
    }

    /// `pg_ctl restart`. It ends with a checkpoint, which takes minutes on a slow volume.
    ///
    /// # Errors
    /// When it does not come up again.
    pub fn restart(&self) -> Result<()> {
        let seconds = RESTART_SECONDS.to_string();
        let restart = self.pg_ctl(&["-t", &seconds, "-l"]).arg(&self.log).arg("restart");
        self.start_with(restart).limit(RESTART_SECONDS + 60).run().map(drop)
    }

    /// `pg_ctl promote`.
    ///
    /// # Errors
    /// When it fails.
    pub fn promote(&self) -> Result<()> {
        self.pg_ctl(&["promote"]).log(&self.log).run().map(drop)
    }

    /// `pg_ctl -D DIR -w ARGS`.
    #[must_use]
    pub fn pg_ctl(&self, args: &[&str]) -> Tool<'p> {
        self.tool("pg_ctl").arg("-D").arg(&self.dir).arg("-w").args(args)
    }

    /// Ends the postmaster with SIGKILL and waits until all its children are gone too.
    ///
    /// # Errors
    /// When no server runs or a child does not go.
    pub fn kill_nine(&self) -> Result<()> {
        let postmaster = self.postmaster()?;
        let children = postmaster.children();
        postmaster.signal(Signal::KILL)?;
        for process in std::iter::once(postmaster).chain(children) {
            process.wait_gone(Duration::from_secs(30))?;
            process.reap();
        }
        Ok(())
    }

    /// The running postmaster.
    ///
    /// # Errors
    /// When there is none.
    pub fn postmaster(&self) -> Result<Process> {
        self.running()
            .ok_or_else(|| Error::Unexpected(format!("no server runs on {}", self.dir.display())))
    }

    /// The postmaster named by postmaster.pid, if that process really works in this directory.
    fn running(&self) -> Option<Process> {
        let text = fs::read_to_string(self.dir.join("postmaster.pid")).ok()?;
        let process = Process::new(text.lines().next()?.trim().parse().ok()?)?;
        let works_in = fs::read_link(format!("/proc/{}/cwd", process.id())).ok()?;
        let dir = self.dir.canonicalize().ok()?;
        (works_in == dir && process.lives()).then_some(process)
    }

    /// Runs SQL in the database postgres; each statement is a transaction of its own.
    ///
    /// # Errors
    /// When a statement fails.
    pub fn sql(&self, text: &str) -> Result<String> {
        self.sql_in("postgres", text)
    }

    /// Runs SQL in a database.
    ///
    /// # Errors
    /// When a statement fails.
    pub fn sql_in(&self, database: &str, text: &str) -> Result<String> {
        let output = self.psql(database, text).log(&self.log).run()?;
        Ok(output.stdout.trim_end().to_owned())
    }

    /// Expects a query to answer exactly this.
    ///
    /// # Errors
    /// When it answers something else.
    pub fn expect(&self, query: &str, answer: &str) -> Result<()> {
        let got = self.sql(query)?;
        ensure(got == answer, || format!("{query}\n  answered {got:?}\n  expected {answer:?}"))
    }

    /// Repeats a query until it answers this.
    ///
    /// # Errors
    /// When it does not within 300 seconds.
    pub fn wait_for(&self, query: &str, answer: &str) -> Result<()> {
        let start = Instant::now();
        loop {
            let got = self.sql(query)?;
            if got == answer {
                return Ok(());
            }
            ensure(start.elapsed() < Duration::from_secs(300), || {
                format!("{query}\n  still answers {got:?}, not {answer:?}")
            })?;
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// psql with this text to run, stopping at the first error.
    #[must_use]
    pub fn psql(&self, database: &str, text: &str) -> Tool<'p> {
        let psql = self.client("psql").args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1"]);
        // The database of a server elsewhere is the one that was named with it.
        let psql = if self.is_elsewhere() { psql } else { psql.args(["-d", database]) };
        psql.args(["-f", "-"]).stdin(text)
    }

    /// A program that reaches the server by its socket only.
    #[must_use]
    pub fn client(&self, program: &str) -> Tool<'p> {
        let tool = self.workspace.tool(self.client_program(program.as_ref()));
        if let Some(service) = &self.service {
            return service.reached_by(tool);
        }
        tool.env("PGHOST", &self.sockets)
            .env("PGPORT", "5432")
            .env("PGUSER", "postgres")
            .env("PGDATABASE", "postgres")
    }

    /// A program that works on the directory's files.
    #[must_use]
    pub fn tool(&self, program: impl AsRef<Path>) -> Tool<'p> {
        let program = program.as_ref();
        let program =
            self.bin.as_ref().map_or_else(|| program.to_path_buf(), |bin| bin.join(program));
        let mut tool = self.workspace.tool(program).under(self.arm, &self.dir);
        for (name, value) in &self.env {
            tool = tool.env(name, value);
        }
        tool
    }

    /// The other build's client if it has one.
    fn client_program(&self, name: &Path) -> PathBuf {
        let theirs = self.bin.as_ref().map(|bin| bin.join(name)).filter(|path| path.is_file());
        theirs.unwrap_or_else(|| name.to_path_buf())
    }

    /// A run of the command `tidelock` itself.
    ///
    /// # Errors
    /// When it is not built.
    pub fn tidelock(&self, args: &[&str]) -> Result<Tool<'p>> {
        Ok(self.workspace.tool(self.workspace.programs()?.command).args(args))
    }

    /// How a replica or a backup reaches the server.
    #[must_use]
    pub fn conninfo(&self) -> String {
        format!("host={} port=5432 user=postgres dbname=postgres", self.sockets.display())
    }

    /// The data directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where its socket is.
    #[must_use]
    pub fn socket_dir(&self) -> &Path {
        &self.sockets
    }

    /// The server's log, outside the data directory.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
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

    fn name(&self) -> String {
        self.dir.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// The variable by which long tests choose `io_method`.
const IO_METHOD: &str = "TIDELOCK_PG_IO_METHOD";
/// The longest time in which a server starts: it may have to recover first.
const START_SECONDS: u64 = 300;
/// The longest time in which a server ends and comes up again.
const RESTART_SECONDS: u64 = 600;

/// RELMAPPER_FILEMAGIC (relmapper.c), little-endian: how a plain relation map begins.
const RELMAPPER_MAGIC: [u8; 4] = 0x0059_2717_u32.to_le_bytes();

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        let Some(postmaster) = self.running() else { return };
        let children = postmaster.children();
        let _ = postmaster.signal(Signal::QUIT);
        if postmaster.wait_gone(Duration::from_secs(10)).is_err() {
            let _ = postmaster.signal(Signal::KILL);
        }
        for process in children.into_iter().chain([postmaster]) {
            let _ = process.wait_gone(Duration::from_secs(10));
            process.reap();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    #[test]
    fn a_measured_server_has_no_io_method_that_the_environment_chose() {
        let place = Workspace::new().unwrap();
        let settings = |cluster: &Cluster<'_>| {
            fs::create_dir(cluster.dir()).unwrap();
            fs::write(cluster.dir().join("postgresql.conf"), "").unwrap();
            cluster.listen_here().unwrap();
            fs::read_to_string(cluster.dir().join("postgresql.conf")).unwrap()
        };
        let under_test = |name: &str| {
            let mut cluster = Cluster::at(&place, name, Arm::Plain).unwrap();
            cluster.io_method = Some("sync".into());
            cluster
        };
        assert!(settings(&under_test("tested")).contains("io_method = 'sync'\n"));
        let measured = under_test("measured").with_its_own_io_method();
        assert!(!settings(&measured).contains("io_method"));
    }

    /// What a file of root's has after `work` was done, in a directory of the servers' account,
    /// with a link to the file in each way there is.
    fn through_links(name: &str, work: impl Fn(&Cluster<'_>, &Path) -> Result<()>) {
        let place = Workspace::new().unwrap();
        let theirs = tempfile::tempdir_in(env::temp_dir()).unwrap();
        let links: [fn(&Path, &Path) -> std::io::Result<()>; 2] =
            [|file, link| symlink(file, link), |file, link| fs::hard_link(file, link)];
        for (number, link) in links.into_iter().enumerate() {
            let cluster = Cluster::at(&place, &format!("{name}-{number}"), Arm::Plain).unwrap();
            fs::create_dir(cluster.dir()).unwrap();
            place.account().give(cluster.dir()).unwrap();
            let file = theirs.path().join(number.to_string());
            fs::write(&file, "mine\n").unwrap();
            let at = cluster.dir().join("postgresql.conf");
            link(&file, &at).unwrap();
            let error = work(&cluster, &at).unwrap_err().to_string();
            assert!(error.contains("postgresql.conf"), "{error}");
            assert_eq!(fs::read_to_string(&file).unwrap(), "mine\n");
            assert_eq!(fs::metadata(&file).unwrap().uid(), 0);
        }
    }

    #[test]
    fn root_does_not_write_settings_through_a_link_of_the_servers_account() {
        if crate::skip::unless_root("a file of root's") {
            return;
        }
        through_links("set", |cluster, _| cluster.set("port", "1"));
        through_links("write", |cluster, at| cluster.workspace().write(at, "port = 1\n"));
    }

    #[test]
    fn root_does_not_give_away_what_a_link_leads_to() {
        if crate::skip::unless_root("a file of root's") {
            return;
        }
        let place = Workspace::new().unwrap();
        let theirs = tempfile::tempdir_in(env::temp_dir()).unwrap();
        symlink(theirs.path(), place.join("link")).unwrap();
        place.account().give(&place.join("link")).unwrap();
        let of = |path: &Path| fs::symlink_metadata(path).unwrap().uid();
        assert_eq!(of(theirs.path()), 0);
        assert_eq!(Some(of(&place.join("link"))), place.account().uid());
        let before = fs::metadata(theirs.path()).unwrap().mode();
        place.make_dir("link").unwrap_err();
        let meta = fs::metadata(theirs.path()).unwrap();
        assert_eq!((meta.uid(), meta.mode()), (0, before));
    }
}

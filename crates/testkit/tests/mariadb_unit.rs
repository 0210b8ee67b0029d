//! Debian's unit of MariaDB, protected and taken back: by root, for a server of the user mysql.
//!
//! No systemd runs in the tests. `units/systemctl` does what it would do with the unit's ExecStart
//! and the drop-in; what systemd itself makes of them is not shown here.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use tidelock_servers::Bounded as _;
use tidelock_testkit::maria::{SMALL, search};
use tidelock_testkit::marker::Marker;
use tidelock_testkit::pg::{Arm, Error, Process, Result, Tool, Workspace, ensure, skip};
use tidelock_testkit::unit::{Etc, RunFiles, keyring_of, random_key};

/// The server of the unit, with all that is its user's.
struct Server {
    home: TempDir,
    user: (u32, u32),
}

impl Server {
    fn installed(user: (u32, u32)) -> Result<Self> {
        let home = tempfile::Builder::new().prefix("tl-").tempdir_in("/tmp");
        let server = Self { home: home.map_err(Error::io("making a directory"))?, user };
        let path = |name: &str| server.path(name).display().to_string();
        let mut text = format!(
            "[client]\nsocket={socket}\n[mysqld]\nsocket={socket}\ndatadir={}\npid_file={}\n\
             log_error={}\nskip_networking\n",
            path("data"),
            path("pid"),
            path("log"),
            socket = path("socket")
        );
        for (name, value) in SMALL {
            text += &format!("{name}={value}\n");
        }
        fs::write(server.path("my.cnf"), text).map_err(Error::io("writing the options"))?;
        let (uid, gid) = server.user;
        let place = server.home.path();
        chown(place, Some(uid), Some(gid))
            .and_then(|()| fs::set_permissions(place, fs::Permissions::from_mode(0o755)))
            .map_err(Error::io("giving a directory to mysql"))?;
        server.run("mariadb-install-db", &["--auth-root-authentication-method=normal"])?;
        Ok(server)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// A program of MariaDB, as its user; what it printed.
    fn run(&self, program: &str, args: &[&str]) -> Result<String> {
        let mut command = Command::new(program);
        command
            .arg(format!("--defaults-file={}", self.path("my.cnf").display()))
            .args(args)
            .uid(self.user.0)
            .gid(self.user.1)
            .current_dir(self.home.path());
        let output = command.finish().map_err(Error::io(format!("running {program}")))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure(output.status.success(), || {
            format!("{program}: {text}{}", String::from_utf8_lossy(&output.stderr))
        })?;
        Ok(text)
    }

    fn sql(&self, text: &str) -> Result<String> {
        self.run("mariadb", &["--user=root", "--batch", "--skip-column-names", "-e", text])
    }

    fn process(&self) -> Result<Process> {
        let text = fs::read_to_string(self.path("pid")).map_err(Error::io("reading its id"))?;
        let id = text.trim().parse().ok().and_then(Process::new);
        id.ok_or_else(|| Error::Unexpected(format!("{text:?} is no process id")))
    }

    /// A tool by which root speaks to the unit.
    fn by_root<'p>(&self, place: &'p Workspace, program: &Path) -> Tool<'p> {
        let double = Path::new(env!("CARGO_MANIFEST_DIR")).join("units");
        let options = self.path("my.cnf");
        place
            .tool(program)
            .as_ourselves()
            .env("PATH", format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", double.display()))
            .env("MYSQLD_OPTS", format!("--defaults-file={}", options.display()))
            .env("PIDFILE", self.path("pid"))
            .env("SOCKET", self.path("socket"))
            // As root's own: the audit log then lies where every user's agent finds it.
            .env("XDG_STATE_HOME", "")
            .limit(300)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(process) = self.process() {
            let _ = process.signal(Signal::KILL);
            let _ = process.wait_gone(Duration::from_secs(60));
        }
    }
}

/// What root's part of the commands writes below /etc for this unit; gone with the test.
struct Written {
    unit: String,
    keyring: Option<String>,
}

impl Drop for Written {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(format!("/etc/systemd/system/{}.service.d", self.unit));
        let _ = fs::remove_file(format!("/etc/tidelock/installed/{}.toml", self.unit));
        if let Some(id) = &self.keyring {
            for ending in ["toml", "keyring"] {
                let _ = fs::remove_file(format!("/etc/tidelock/keyrings/{id}.{ending}"));
            }
            let _ = fs::remove_file(format!("/var/log/tidelock/{id}.audit.log"));
        }
        for folder in ["/etc/tidelock/keyrings", "/etc/tidelock/installed", "/var/log/tidelock"] {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// User and group of an account of this machine.
fn account(name: &str) -> Result<Option<(u32, u32)>> {
    let all = fs::read_to_string("/etc/passwd").map_err(Error::io("reading the accounts"))?;
    Ok(all.lines().find_map(|line| {
        let mut fields = line.strip_prefix(name)?.strip_prefix(':')?.split(':').skip(1);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    }))
}

#[test]
#[ignore = "long: make test-full"]
fn the_packaged_unit_starts_sealed_and_plain_again() -> Result<()> {
    if skip::unless_root("a unit") {
        return Ok(());
    }
    let Some(user) = account("mysql")? else {
        skip::missing("mariadb-server");
        return Ok(());
    };
    let place = Workspace::new()?;
    let etc = Etc::hold()?;
    let _run = RunFiles::beside(Path::new(&format!("/run/tidelock/{}/x", user.0)));
    let marker = Marker::new();
    let server = Server::installed(user)?;
    let unit = format!("tl-mariadb-{}", std::process::id());
    let mut written = Written { unit: unit.clone(), keyring: None };
    let (dir, key) = (server.path("data"), place.join("root/key"));
    fs::write(&key, random_key()).map_err(Error::io("writing a key"))?;
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).map_err(Error::io("chmod"))?;
    etc.write(
        &unit,
        &format!(
            "directory = \"{}\"\naudit = \"file:{}\"\n[[provider]]\ntype = \"file\"\npath = \
             \"{}\"\n",
            dir.display(),
            server.path("audit.log").display(),
            key.display()
        ),
    )?;
    let systemctl = Path::new(env!("CARGO_MANIFEST_DIR")).join("units/systemctl");
    server.by_root(&place, &systemctl).args(["start", &*unit]).run()?;
    let command = place.programs()?.command;
    let provider = format!("file:{}", key.display());
    let tidelock = |what: &str| {
        server.by_root(&place, &command).args([what, &*unit, "--yes", "-U", "root", "-D"]).arg(&dir)
    };
    let keys = ["--no-recovery", "--no-keyring-copy", "--provider", &*provider];
    // What the unit starts counts, and not what a server without arguments would do.
    let options = format!("--defaults-file={}", server.path("my.cnf").display());
    let elsewhere = format!("{options} --slave-load-tmpdir=/tmp");
    let refused = tidelock("protect").args(keys).env("MYSQLD_OPTS", &elsewhere).fails()?;
    ensure(refused.status.code() == Some(3), || refused.text())?;
    ensure(refused.stderr.contains("slave_load_tmpdir is /tmp"), || refused.text())?;
    server.sql(&format!(
        "CREATE DATABASE d; USE d; CREATE TABLE d.t (b TEXT);
         INSERT INTO d.t SELECT CONCAT('{}', seq) FROM seq_1_to_2000",
        marker.text()
    ))?;
    let wanted = server.sql("CHECKSUM TABLE d.t")?;
    search(&marker, Arm::Plain, &[&dir])?;
    let told = tidelock("protect").args(keys).attempt()?;
    written.keyring = keyring_of(&dir).ok();
    ensure(told.stdout.contains("with the library; it has"), || told.text())?;
    let file = |name: &str| {
        let path = format!("/proc/{}/{name}", server.process()?.id());
        fs::read(&path).map_err(Error::io(format!("reading {path}")))
    };
    let environment = String::from_utf8_lossy(&file("environ")?).into_owned();
    let place_of_sorts = format!("TMPDIR={}", dir.display());
    ensure(environment.contains(&place_of_sorts), || environment.clone())?;
    ensure(server.sql("CHECKSUM TABLE d.t")? == wanted, || "the sealed table differs".into())?;
    search(&marker, Arm::Sealed, &[&dir])?;
    let drop_in = format!("/etc/systemd/system/{unit}.service.d");
    ensure(Path::new(&drop_in).exists(), || "no drop-in".into())?;
    // What is set later is judged at each start.
    let unit_is_told = |verb: &str| server.by_root(&place, &systemctl).args([verb, &*unit]);
    unit_is_told("stop").run()?;
    let refused = unit_is_told("start").env("MYSQLD_OPTS", &elsewhere).fails()?;
    ensure(refused.stderr.contains("slave_load_tmpdir is /tmp"), || refused.text())?;
    unit_is_told("start").run()?;
    ensure(server.sql("CHECKSUM TABLE d.t")? == wanted, || "the table differs".into())?;

    let told = tidelock("unprotect").run()?;
    ensure(told.stdout.contains("without the library"), || told.text())?;
    ensure(!Path::new(&drop_in).join("tidelock.conf").exists(), || "the drop-in stays".into())?;
    ensure(server.sql("CHECKSUM TABLE d.t")? == wanted, || "the plain table differs".into())?;
    search(&marker, Arm::Plain, &[&dir]).map(drop)
}

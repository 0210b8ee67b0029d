//! One data directory, its configuration, and the server on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use crate::console;
use crate::error::{Error, Result};
use crate::owner::Owner;
use crate::postgres::programs::Programs;
use crate::run_as::run;
use crate::server::Server;

/// As long as a server may take to write its last checkpoint, or to recover.
const PATIENCE: &str = "86400";

/// A data directory.
#[derive(Clone)]
pub(crate) struct Instance {
    /// Without links.
    pub(crate) dir: PathBuf,
    pub(crate) programs: Programs,
    /// Debian's, if it is one.
    pub(crate) cluster: Option<Cluster>,
}

/// A cluster of Debian's postgresql-common.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Cluster {
    pub(crate) version: String,
    pub(crate) name: String,
}

/// What postmaster.pid says of a running server.
pub(crate) struct Running {
    pub(crate) pid: u32,
    pub(crate) port: u16,
    /// The first directory of sockets, else the first address.
    pub(crate) host: PathBuf,
}

/// What pg_controldata says.
pub(crate) struct Control {
    /// `shut down`, `in production`, ...
    pub(crate) state: String,
    /// Where the last checkpoint begins, as `0/3000028`.
    pub(crate) checkpoint: String,
}

impl Cluster {
    /// `postgresql@15-main`
    pub(crate) fn of_unit(unit: &str) -> Option<Self> {
        let unit = unit.strip_suffix(".service").unwrap_or(unit);
        let (version, name) = unit.strip_prefix("postgresql@")?.split_once('-')?;
        let good = |text: &str| {
            !text.is_empty()
                && !text.starts_with('.')
                && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
        };
        (good(version) && good(name))
            .then(|| Self { version: version.to_owned(), name: name.to_owned() })
    }

    /// The cluster whose postgresql.conf this is.
    pub(crate) fn of_config(file: &Path) -> Option<Self> {
        let rest = file.strip_prefix(confroot()).ok()?;
        let mut names = rest.iter().map(|name| name.to_string_lossy().into_owned());
        match (names.next(), names.next(), names.next(), names.next()) {
            (Some(version), Some(name), Some(file), None) if file == "postgresql.conf" => {
                Some(Self { version, name })
            }
            _ => None,
        }
    }

    /// `postgresql@15-main`
    pub(crate) fn unit(&self) -> String {
        format!("postgresql@{}-{}", self.version, self.name)
    }

    /// `/etc/postgresql/15/main`
    pub(crate) fn folder(&self) -> PathBuf {
        confroot().join(&self.version).join(&self.name)
    }
}

/// Where Debian's clusters have their configuration (PgCommon.pm).
fn confroot() -> PathBuf {
    match std::env::var_os("PG_CLUSTER_CONF_ROOT") {
        Some(root) if !root.is_empty() => root.into(),
        _ => PathBuf::from("/etc/postgresql"),
    }
}

impl Running {
    /// The server that runs on `dir`.
    pub(crate) fn on(dir: &Path) -> Option<Self> {
        let Server::Running { pid, .. } = Server::on(dir) else { return None };
        let text = fs::read_to_string(dir.join("postmaster.pid")).ok()?;
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let port = lines.get(3)?.parse().ok()?;
        let socket = lines.get(4).filter(|line| !line.is_empty());
        let host = match socket.or(lines.get(5)).copied().unwrap_or_default() {
            "" | "*" => Path::new("localhost").to_path_buf(),
            // Relative to the data directory.
            "." => dir.to_path_buf(),
            host => host.into(),
        };
        Some(Self { pid, port, host })
    }

    /// The server that runs on `dir`, once it neither starts nor stops.
    pub(crate) fn settled(dir: &Path) -> Option<Self> {
        let mut told = false;
        loop {
            let running = Self::on(dir)?;
            let Some(doing) = running.doing(dir) else { return Some(running) };
            if !told {
                let line = format_args!("waits         for the server, which is {doing}\n");
                let _ = console::print(line);
                told = true;
            }
            sleep(Duration::from_millis(100));
        }
    }

    /// `starting` or `stopping`, by the last line of postmaster.pid.
    fn doing(&self, dir: &Path) -> Option<&'static str> {
        let text = fs::read_to_string(dir.join("postmaster.pid")).ok()?;
        let state = text.lines().nth(7)?.trim();
        ["starting", "stopping"].into_iter().find(|it| *it == state)
    }

    /// The file that it writes its log to, as `pg_ctl -l` has it.
    pub(crate) fn log(&self) -> Option<PathBuf> {
        let file = fs::read_link(format!("/proc/{}/fd/2", self.pid)).ok()?;
        file.is_file().then_some(file)
    }
}

impl Instance {
    /// The data directory `dir`, with the programs in `bin`, else those of its server.
    ///
    /// # Errors
    /// It is no data directory; the programs are missing; the caller may not.
    pub(crate) fn find(dir: &Path, bin: Option<&Path>, cluster: Option<Cluster>) -> Result<Self> {
        let dir = &dir.canonicalize().map_err(Error::io("find", dir))?;
        if !dir.join("PG_VERSION").exists() {
            return Err(Error::refused(
                format!("{} is not the data directory of a PostgreSQL server", dir.display()),
                "name the directory that has PG_VERSION, or a cluster: postgresql@VERSION-NAME",
            ));
        }
        let owner = Owner::of(dir)?;
        let bin = match bin {
            Some(bin) => bin.to_path_buf(),
            None => beside_server(dir)?,
        };
        let cluster = cluster.or_else(|| {
            // Words that cannot be read are refused where they are needed.
            let options = options(dir).unwrap_or_default();
            let config = options.iter().find_map(|it| it.strip_prefix("config_file="));
            config.map(Path::new).and_then(Cluster::of_config)
        });
        Ok(Self { dir: dir.into(), programs: Programs::new(&bin, owner)?, cluster })
    }

    /// Ends the server in order: clients are sent away, all WAL goes to the standbys.
    ///
    /// # Errors
    /// [`Error::Tool`].
    pub(crate) fn stop(&self) -> Result<()> {
        if Running::on(&self.dir).is_none() {
            return Ok(());
        }
        let mut command = match (&self.cluster, Owner::caller().uid) {
            // By root it goes through systemd, which else takes the end for a failure.
            (Some(cluster), 0) => {
                let mut command = cluster.ctl("stop");
                command.stdin(self.programs.run_as().stdin()?);
                command
            }
            _ => {
                let mut command = self.programs.bare("pg_ctl")?;
                command.arg("-D").arg(&self.dir).args(["-w", "-t", PATIENCE, "stop"]);
                command
            }
        };
        command.args(["-m", "fast"]);
        run(command).map(drop)
    }

    /// Starts it for its clients: a cluster of Debian by pg_ctlcluster, else by pg_ctl with these
    /// options, and with keys if the directory is protected.
    ///
    /// # Errors
    /// [`Error::Tool`].
    pub(crate) fn start(&self, options: &[String], log: &Path) -> Result<()> {
        if let Some(cluster) = &self.cluster {
            let mut command = cluster.ctl("start");
            command.stdin(self.programs.run_as().stdin()?);
            return run(command).map(drop);
        }
        let log = self.programs.run_as().log(log, &self.dir)?;
        let mut command = self.programs.on(&self.dir, "pg_ctl")?;
        command.arg("-D").arg(&self.dir).args(["-w", "-t", PATIENCE, "-l"]).arg(log);
        if !options.is_empty() {
            command.arg("-o").arg(shell_words(options));
        }
        run(with(command, "start")).map(drop)
    }

    /// What pg_controldata says.
    ///
    /// # Errors
    /// [`Error::Tool`]; [`Error::Refused`] if it says it in another way than known.
    pub(crate) fn control(&self) -> Result<Control> {
        let mut command = self.programs.on(&self.dir, "pg_controldata")?;
        command.arg("-D").arg(&self.dir).env("LC_ALL", "C");
        let text = run(command)?;
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.map(|value| value.trim().to_owned()).ok_or_else(|| {
                Error::refused(
                    format!("pg_controldata says no \"{name}\" of {}", self.dir.display()),
                    "name the server's own programs with --bindir",
                )
            })
        };
        Ok(Control {
            state: value("Database cluster state")?,
            checkpoint: value("Latest checkpoint location")?,
        })
    }
}

impl Cluster {
    /// `pg_ctlcluster 15 main WHAT`
    fn ctl(&self, what: &str) -> Command {
        let mut command = Command::new("pg_ctlcluster");
        command.args([&self.version, &self.name]).arg(what);
        command
    }
}

fn with(mut command: Command, last: &str) -> Command {
    command.arg(last);
    command
}

/// The program that runs, that ran last, or of the package of its version.
fn beside_server(dir: &Path) -> Result<PathBuf> {
    if let Server::Running { program: Some(program), .. } = Server::on(dir)
        && let Some(folder) = program.parent()
    {
        return Ok(folder.to_path_buf());
    }
    let version = dir.join("PG_VERSION");
    let version = fs::read_to_string(&version).map_err(Error::io("read", &version))?;
    let version = version.trim();
    let last = fs::read_to_string(dir.join("postmaster.opts")).unwrap_or_default();
    let last = Path::new(last.split(" \"").next().unwrap_or_default().trim()).parent();
    let candidates = [
        last.map(Path::to_path_buf),
        Some(format!("/usr/lib/postgresql/{version}/bin").into()),
        Some(format!("/usr/pgsql-{version}/bin").into()),
    ];
    let found = candidates.into_iter().flatten().find(|bin| bin.join("postgres").is_file());
    found.ok_or_else(|| {
        Error::refused(
            format!("the programs of PostgreSQL {version} are not where they are looked for"),
            "name their directory with --bindir",
        )
    })
}

/// The options of the server that runs, else of the last start, without the directory: `-p`,
/// `5433`, `-c`, `fsync=off`.
///
/// # Errors
/// [`Error::Refused`] for words that are no UTF-8, which no record holds.
pub(crate) fn options(dir: &Path) -> Result<Vec<String>> {
    let mut words = words(dir)?.into_iter();
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        if word == "-D" {
            words.next();
        } else if !word.starts_with("-D") && !word.starts_with("--data") {
            found.push(word);
        }
    }
    Ok(found)
}

/// The words behind the program. postmaster.opts has them in quotes and keeps no quote in a word
/// apart from these, so the process itself is asked where there is one.
fn words(dir: &Path) -> Result<Vec<String>> {
    let text = |bytes: Vec<u8>| {
        String::from_utf8(bytes).map_err(|why| {
            let words = String::from_utf8_lossy(why.as_bytes()).replace('\0', " ");
            Error::refused(
                format!("the server on {} was started with `{words}`, no UTF-8", dir.display()),
                "restart it with another name for that: it is started again by the same words",
            )
        })
    };
    if let Server::Running { pid, .. } = Server::on(dir)
        && let Ok(line) = fs::read(format!("/proc/{pid}/cmdline"))
        && let Some(line) = line.strip_suffix(b"\0")
    {
        let line = text(line.to_vec())?;
        return Ok(line.split('\0').skip(1).map(str::to_owned).collect());
    }
    let text = text(fs::read(dir.join("postmaster.opts")).unwrap_or_default())?;
    let words = text.trim_end().split(" \"").skip(1).map(|word| word.trim_end_matches('"'));
    Ok(words.map(str::to_owned).collect())
}

/// As pg_ctl hands them to a shell.
pub(crate) fn shell_words(words: &[String]) -> String {
    let quoted = |word: &String| format!("'{}'", word.replace('\'', r"'\''"));
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::process::Stdio;

    use super::*;
    use crate::testing::until_words_are_whole;

    #[test]
    fn options_of_the_last_start_come_without_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let put = |text: &str| fs::write(dir.path().join("postmaster.opts"), text).unwrap();
        put("/b/postgres \"-D\" \"/d\" \"-c\" \"a=b c\" \"-p\" \"1\"\n");
        assert_eq!(options(dir.path()).unwrap(), ["-c", "a=b c", "-p", "1"]);
        put("/b/postgres \"-D/d\"\n");
        assert!(options(dir.path()).unwrap().is_empty());
        fs::write(dir.path().join("postmaster.opts"), b"/b/postgres \"-c\" \"a=\xff\"\n").unwrap();
        assert!(matches!(options(dir.path()), Err(Error::Refused { .. })));
    }

    /// A word may have blanks and quotes.
    #[test]
    fn options_of_a_server_that_runs_are_the_words_of_its_process() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().canonicalize().unwrap();
        fs::write(dir.join("PG_VERSION"), "15\n").unwrap();
        let opts = "/b/postgres \"-c\" \"cluster_name=a \"b\"\" \"-D\" \"/d\"\n";
        fs::write(dir.join("postmaster.opts"), opts).unwrap();
        let started = |words: &[&OsStr]| {
            // It waits for its input, as a server for its clients.
            let mut command = Command::new("/bin/sh");
            command.args(["-c", "read line"]).args(words).current_dir(&dir);
            let child = command.stdin(Stdio::piped()).spawn().unwrap();
            until_words_are_whole(&child, 3 + words.len());
            fs::write(dir.join("postmaster.pid"), format!("{}\n", child.id())).unwrap();
            child
        };
        let mut child = started(&["cluster_name=a \"b\"", "-D", "/d", "-p1"].map(OsStr::new));
        let found = options(&dir);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found.unwrap(), ["-c", "read line", "cluster_name=a \"b\"", "-p1"]);
        let mut child = started(&[OsStr::from_bytes(b"-p\xff")]);
        let found = options(&dir);
        child.kill().unwrap();
        child.wait().unwrap();
        let why = found.unwrap_err();
        assert!(why.exit_code() == 3 && why.to_string().contains("no UTF-8"), "{why}");
    }

    #[test]
    fn clusters_are_told_by_unit_and_by_configuration() {
        let cluster = Cluster::of_unit("postgresql@15-my-own.service").unwrap();
        assert_eq!((&*cluster.version, &*cluster.name), ("15", "my-own"));
        assert_eq!(Cluster::of_config(&cluster.folder().join("postgresql.conf")), Some(cluster));
        for other in ["postgresql", "postgresql@15", "postgresql@../x-main", "mariadb"] {
            assert_eq!(Cluster::of_unit(other), None, "{other}");
        }
        assert_eq!(Cluster::of_config(Path::new("/d/postgresql.conf")), None);
    }

    #[test]
    fn shell_words_keep_their_quotes() {
        assert_eq!(shell_words(&["-c".into(), "a='b'".into()]), r"'-c' 'a='\''b'\'''");
    }
}

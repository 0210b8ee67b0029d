//! One data directory of MariaDB or MySQL and the server on it: how it was started, whether it
//! takes clients, how it is stopped and started again.
//!
//! What is asked is asked by the server's own client, as the owner of the directory. Nothing here
//! converts a file.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use procfs::process::{Process, Stat};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::brand::Brand;
use super::by_rule::Rules;
use super::judge::{Datadir, check};
use super::sockets::takes_clients;
use super::start::Start;
use super::{listed_in, server_on};
use crate::console;
use crate::error::{Error, Result};
use crate::owner::Owner;
use crate::run_as::{RunAs, run};
use crate::whereabouts::DELETED;

/// Scripts that start a server, wait for it, and start it again after a crash.
pub(super) const WRAPPERS: [&str; 2] = ["mariadbd-safe", "mysqld_safe"];
/// Options that name where the server is, and its files; other paths are below these.
const PLACES: [&str; 5] =
    ["--datadir", "--basedir", "--ledir", "--defaults-file", "--defaults-extra-file"];
const SHORT_PLACES: [&str; 2] = ["-h", "-b"];
/// Variables by which a server and its wrapper find option files and groups in them, and what
/// times and new files are like.
const VARIABLES: [&str; 7] = [
    "MYSQL_HOME",
    "MARIADB_HOME",
    "MYSQL_GROUP_SUFFIX",
    "MARIADB_GROUP_SUFFIX",
    "TZ",
    "UMASK",
    "UMASK_DIR",
];
/// A wrapper ends soon after its server.
const WRAPPER_PATIENCE: Duration = Duration::from_secs(60);
/// How often a server that starts or stops is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// Lines of a log in a message.
const LAST_LINES: usize = 6;
/// What a client says that has no plugin for the server's passwords, as MariaDB's has none for
/// those of MySQL.
const NO_PLUGIN: &str = "ERROR 2059";

/// A data directory.
pub(crate) struct Instance {
    /// Without links.
    pub(crate) dir: PathBuf,
    pub(crate) brand: Brand,
    pub(crate) run_as: RunAs,
    bin: Option<PathBuf>,
}

/// A server that runs.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Running {
    pub(crate) pid: u32,
    /// Where it takes clients; none while it starts and stops.
    pub(crate) socket: Option<PathBuf>,
}

/// What the server said to a question.
pub(crate) enum Answer {
    Value(String),
    /// It answers, and does not let this user in.
    Denied,
}

impl Instance {
    /// The data directory `dir`, with clients in `bin`, else beside its server or in PATH.
    ///
    /// # Errors
    /// It is no data directory; the caller may not.
    pub(crate) fn find(dir: &Path, bin: Option<&Path>) -> Result<Self> {
        let dir = dir.canonicalize().map_err(Error::io("find", dir))?;
        let brand = Brand::of(&dir).ok_or_else(|| {
            Error::refused(
                format!("{} is not the data directory of a server that is known", dir.display()),
                "name the directory that has PG_VERSION (PostgreSQL), aria_log_control (MariaDB) \
                 or mysql.ibd (MySQL)",
            )
        })?;
        let run_as = RunAs::new(Owner::of(&dir)?)?;
        Ok(Self { dir, brand, run_as, bin: bin.map(Path::to_path_buf) })
    }

    /// The server that runs here.
    pub(crate) fn running(&self) -> Option<Running> {
        let pid = server_on(&self.dir)?;
        Some(Running { pid, socket: takes_clients(self.brand, pid, &self.dir) })
    }

    /// The server that runs here, once it neither starts nor stops.
    pub(crate) fn settled(&self) -> Option<Running> {
        let mut told = false;
        loop {
            let running = self.running()?;
            if running.socket.is_some() {
                return Some(running);
            }
            if !told {
                let line = "waits         for the server, which is starting or stopping\n";
                let _ = console::print(line);
                told = true;
            }
            sleep(LOOK);
        }
    }

    /// The server's program: that which runs, else that in the directory that was named, else the
    /// package's.
    pub(crate) fn server(&self) -> PathBuf {
        let program = |pid: u32| fs::read_link(proc(pid, "exe")).ok();
        let running = server_on(&self.dir).and_then(program).map(without_mark);
        let named = || self.bin.as_ref().map(|bin| bin.join(self.brand.server()));
        let named = || named().filter(|path| path.is_file());
        running.or_else(named).unwrap_or_else(|| self.brand.packaged().into())
    }

    /// How the running server was started, to start it again: program and arguments, of the wrapper
    /// if there is one. Empty if none runs.
    ///
    /// # Errors
    /// [`Error::Refused`] for words that are no UTF-8, which no record holds.
    pub(crate) fn options(&self) -> Result<Vec<String>> {
        let Some(pid) = server_on(&self.dir) else { return Ok(Vec::new()) };
        let words = match wrapper_of(pid).and_then(wrapped) {
            Some(words) => words,
            None => {
                let mut words = command_line(pid);
                if let Some(first) = words.first_mut() {
                    *first = self.server().into_os_string();
                }
                words
            }
        };
        let text =
            words.into_iter().map(OsString::into_string).collect::<std::result::Result<_, _>>();
        text.map_err(|word| {
            Error::refused(
                format!("the server was started with {}, which is no UTF-8", word.display()),
                "start it with another name for that",
            )
        })
    }

    /// Refuses words that mean another place where this command starts a server, or a program that
    /// is gone.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub(crate) fn refuse_words(words: &[String]) -> Result<()> {
        if let Some(word) = relative(words) {
            return Err(Error::refused(
                format!("the server was started with {word}, a relative path"),
                "start it with full paths first: it is started again from another directory",
            ));
        }
        match words.first().filter(|program| !Path::new(program).is_file()) {
            None => Ok(()),
            Some(program) => Err(Error::refused(
                format!("the server was started by {program}, which is gone since"),
                "install that again first: it is what would start the server again",
            )),
        }
    }

    /// Refuses a server that would find other options, another time zone or other modes of files
    /// when this command starts it again: what it was started with has other variables.
    ///
    /// # Errors
    /// [`Error::Refused`] with the variable; [`Error::Io`].
    pub(crate) fn refuse_variables(&self) -> Result<()> {
        let Some(pid) = self.head() else { return Ok(()) };
        let path = proc(pid, "environ");
        let theirs = match fs::read(&path) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
            read => read.map_err(Error::io("read", path))?,
        };
        let Some((name, theirs)) = another(&theirs, |name| std::env::var_os(name)) else {
            return Ok(());
        };
        let (value, set) = match theirs {
            Some(value) => (format!("{name}={value}"), format!("env {name}={value}")),
            None => (format!("no {name}"), format!("env -u {name}")),
        };
        Err(Error::refused(
            format!("the server was started with {value}, and this command has another {name}"),
            format!(
                "give it the same: `{set} tidelock ...`; the server gets the variables of this command"
            ),
        ))
    }

    /// Processes beside the server that have its files open by right: the wrapper, with what that
    /// has started.
    pub(crate) fn head(&self) -> Option<u32> {
        let pid = server_on(&self.dir)?;
        Some(wrapper_of(pid).unwrap_or(pid))
    }

    /// The file that the one who starts it has named for what it prints.
    pub(crate) fn log(&self) -> Option<PathBuf> {
        let file = fs::read_link(proc(self.head()?, "fd/1")).ok()?;
        (file.is_file() && !file.starts_with(&self.dir)).then_some(file)
    }

    /// Refuses what would keep the sealed server from starting: rows elsewhere, a state transfer
    /// that empties the directory.
    ///
    /// # Errors
    /// [`Error::Refused`]; the option files cannot be read.
    pub(crate) fn refuse_places_outside(&self, options: &[String]) -> Result<()> {
        let Some((program, arguments)) = options.split_first() else { return Ok(()) };
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let listed = listed_in(&self.dir, self.brand)?;
        let rules = Rules::to_be(&self.dir, self.brand)?;
        let start = Start {
            brand: self.brand,
            server: Path::new(program),
            arguments: &arguments,
            run_as: Some(&self.run_as),
        };
        check(&start, &[&self.dir], listed.as_deref(), &rules, Datadir::Is(&self.dir))
    }

    /// Ends the server in order, and waits until it and its wrapper are gone.
    ///
    /// # Errors
    /// [`Error::Io`] if the server cannot be signalled.
    pub(crate) fn stop(&self) -> Result<()> {
        let Some(pid) = server_on(&self.dir) else { return Ok(()) };
        let (wrapper, begun) = (wrapper_of(pid), stat_of(pid).map(|stat| stat.starttime));
        let failed = |errno: rustix::io::Errno| Error::io("end", proc(pid, ""))(errno.into());
        let Some(number) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return Ok(()) };
        match pidfd_open(number, PidfdFlags::empty()) {
            // Another process may have the number by now; it would not work here.
            Ok(process) if server_on(&self.dir) == Some(pid) => {
                pidfd_send_signal(&process, Signal::TERM).map_err(failed)?;
            }
            Ok(_) | Err(rustix::io::Errno::SRCH) => return Ok(()),
            Err(errno) => return Err(failed(errno)),
        }
        // It has its files open for a moment after it shows no program any more: until its last
        // thread is gone.
        let is_there = |stat: Stat| {
            Some(stat.starttime) == begun && (stat.state != 'Z' || stat.num_threads > 1)
        };
        while server_on(&self.dir) == Some(pid) || stat_of(pid).is_some_and(is_there) {
            sleep(LOOK);
        }
        let begin = Instant::now();
        while wrapper.is_some_and(is_wrapper) && begin.elapsed() < WRAPPER_PATIENCE {
            sleep(LOOK);
        }
        Ok(())
    }

    /// Starts it by these words, with keys if the directory is protected, and waits until it takes
    /// clients.
    ///
    /// # Errors
    /// [`Error::Tool`] with the end of its log.
    pub(crate) fn start(&self, options: &[String], log: &Path) -> Result<()> {
        let log = &self.run_as.log(log, &self.dir)?;
        let mut command = self.run_as.server(&self.dir, options, log)?;
        let mut child = command.spawn().map_err(Error::io("run", command.get_program()))?;
        loop {
            let running = self.running();
            if running.as_ref().is_some_and(|it| it.socket.is_some()) {
                return Ok(());
            }
            let ended = child.try_wait().map_err(Error::io("wait for", command.get_program()))?;
            // One that a killed call had started holds the files: that one comes up.
            if let (Some(status), None) = (ended, running) {
                return Err(Error::Tool {
                    program: options.first().cloned().unwrap_or_default(),
                    ended: status.to_string(),
                    said: last_lines(log),
                });
            }
            sleep(LOOK);
        }
    }

    /// Asks the running server, as this user of it.
    ///
    /// # Errors
    /// [`Error::Tool`] with the server's reason; [`Error::NoServer`].
    pub(crate) fn ask(&self, user: &str, sql: &str) -> Result<Answer> {
        let none = || Error::NoServer { dir: self.dir.clone() };
        let socket = self.running().and_then(|it| it.socket).ok_or_else(none)?;
        let mut command = self.client()?;
        command
            .args(["--batch", "--skip-column-names", "--local-infile=0", "--connect-timeout=20"])
            // Whatever option files say of the place of servers.
            .args(["--host=localhost", "--protocol=socket", "--socket"])
            .arg(socket)
            .args(["--user", user, "--execute", sql])
            .env("LC_ALL", "C");
        match run(command) {
            Ok(text) => Ok(Answer::Value(text.trim().to_owned())),
            Err(Error::Tool { said, .. })
                if said.contains("Access denied") || said.contains(NO_PLUGIN) =>
            {
                Ok(Answer::Denied)
            }
            Err(why) => Err(why),
        }
    }

    /// The server's client, run by the owner: beside the server, else by PATH.
    fn client(&self) -> Result<Command> {
        let server = self.server();
        let sibling = server.parent().and_then(Path::parent).map(|base| base.join("bin"));
        let beside = [self.bin.clone(), server.parent().map(Path::to_path_buf), sibling];
        let names = self.brand.clients();
        let mut all = beside.iter().flatten().flat_map(|bin| names.map(|name| bin.join(name)));
        let found = all.find(|path| path.is_file()).unwrap_or_else(|| names[0].into());
        self.run_as.program(&found)
    }
}

fn proc(pid: u32, name: &str) -> PathBuf {
    Path::new("/proc").join(pid.to_string()).join(name)
}

/// A program's path without the mark of one that was replaced while it runs.
fn without_mark(program: PathBuf) -> PathBuf {
    match program.as_os_str().as_bytes().strip_suffix(DELETED.as_bytes()) {
        Some(path) => PathBuf::from(OsStr::from_bytes(path)),
        None => program,
    }
}

/// The first of the [`VARIABLES`] that an environment, as the kernel shows it, has otherwise than
/// the caller: its name and its value there.
fn another(
    environment: &[u8],
    ours: impl Fn(&str) -> Option<OsString>,
) -> Option<(&'static str, Option<String>)> {
    let value = |name: &str| {
        let mut all = environment.split(|byte| *byte == 0);
        all.find_map(|it| it.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
            .map(OsStr::from_bytes)
    };
    let name = VARIABLES.into_iter().find(|name| value(name) != ours(name).as_deref())?;
    Some((name, value(name).map(|text| text.to_string_lossy().into_owned())))
}

/// The words of a process; empty if it is gone.
fn command_line(pid: u32) -> Vec<OsString> {
    let bytes = fs::read(proc(pid, "cmdline")).unwrap_or_default();
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
    bytes.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect()
}

fn stat_of(pid: u32) -> Option<Stat> {
    Process::new(i32::try_from(pid).ok()?).ok()?.stat().ok()
}

/// The wrapper that has started this server and waits for it.
fn wrapper_of(pid: u32) -> Option<u32> {
    let stat = stat_of(pid)?;
    u32::try_from(stat.ppid).ok().filter(|pid| is_wrapper(*pid))
}

fn is_wrapper(pid: u32) -> bool {
    wrapped(pid).is_some()
}

/// The words of a wrapper from its own name on: before it stands its interpreter.
fn wrapped(pid: u32) -> Option<Vec<OsString>> {
    let words = command_line(pid);
    let is_one = |word: &OsString| {
        let name = Path::new(word).file_name().and_then(OsStr::to_str);
        name.is_some_and(|name| WRAPPERS.contains(&name))
    };
    let at = words.iter().take(2).position(is_one)?;
    Some(words.into_iter().skip(at).collect())
}

/// The first of the words by which a server was started that means another place in another
/// directory: its program, or where its files are.
fn relative(words: &[String]) -> Option<&str> {
    let is_relative = |path: &str| !path.is_empty() && !path.starts_with('/');
    let mut words = words.iter().map(String::as_str);
    if let Some(program) = words.next().filter(|program| is_relative(program)) {
        return Some(program);
    }
    while let Some(word) = words.next() {
        let value = match word.split_once('=') {
            Some((name, value)) if PLACES.contains(&name) => Some(value),
            None if PLACES.contains(&word) => words.next(),
            _ => SHORT_PLACES.iter().find_map(|name| match word.strip_prefix(name) {
                Some("") => words.next(),
                value => value,
            }),
        };
        if value.is_some_and(is_relative) {
            return Some(word);
        }
    }
    None
}

fn last_lines(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(LAST_LINES)..).unwrap_or_default().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::until_words_are_whole;

    #[test]
    fn words_that_mean_another_place_elsewhere_are_seen() {
        let found = |words: &str| {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            relative(&words).map(str::to_owned)
        };
        for (words, bad) in [
            ("/usr/sbin/mariadbd --datadir=/d -h /d -b/usr --port=1 --user mysql", None),
            ("/usr/bin/mysqld_safe --datadir /d --socket=mysql.sock", None),
            ("bin/mysqld_safe --user=mysql", Some("bin/mysqld_safe")),
            ("/usr/sbin/mariadbd --datadir=data", Some("--datadir=data")),
            ("/m --defaults-extra-file=my.cnf", Some("--defaults-extra-file=my.cnf")),
            ("/usr/sbin/mariadbd --basedir .", Some("--basedir")),
            ("/usr/sbin/mysqld -h data", Some("-h")),
            ("/usr/sbin/mysqld -bshare", Some("-bshare")),
        ] {
            assert_eq!(found(words).as_deref(), bad, "{words}");
        }
    }

    #[test]
    fn a_variable_that_leads_the_server_to_other_options_is_seen() {
        let ours = |name: &str| match name {
            "MYSQL_HOME" => Some(OsString::from("/a")),
            "UMASK" => Some(OsString::new()),
            _ => None,
        };
        for (theirs, seen) in [
            ("MYSQL_HOME=/a\0UMASK=\0HOME=/b\0MYSQL_HOME2=/c\0", None),
            ("HOME=/b\0MYSQL_HOME=/c\0UMASK=\0", Some(("MYSQL_HOME", Some("/c")))),
            ("UMASK=\0", Some(("MYSQL_HOME", None))),
            ("MYSQL_HOME=/a\0UMASK=0640\0", Some(("UMASK", Some("0640")))),
            ("MYSQL_HOME=/a\0UMASK=\0TZ=UTC", Some(("TZ", Some("UTC")))),
        ] {
            let found = another(theirs.as_bytes(), ours);
            let found = found.as_ref().map(|(name, value)| (*name, value.as_deref()));
            assert_eq!(found, seen, "{theirs:?}");
        }
    }

    /// A stand-in for a server that works in `dir`, once it is seen there.
    fn stand_in(program: &Path, dir: &Path) -> std::process::Child {
        let child = Command::new(program).arg("60").current_dir(dir).spawn().unwrap();
        while server_on(dir) != Some(child.id()) {
            sleep(LOOK);
        }
        until_words_are_whole(&child, 2);
        child
    }

    #[test]
    fn a_server_whose_program_was_replaced_is_started_again_by_the_new_one() {
        let home = tempfile::tempdir().unwrap();
        let (dir, program) = (home.path().join("data"), home.path().join("mysqld"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("mysql.ibd"), "").unwrap();
        if Owner::caller().uid == 0 {
            // An account that every Debian has.
            let owner: Owner = "daemon".parse().unwrap();
            std::os::unix::fs::chown(&dir, Some(owner.uid), None).unwrap();
        }
        let (dir, next) = (dir.canonicalize().unwrap(), home.path().join("next"));
        // Written by another process: what this one has open for writing, a child of another test
        // may hold for a moment, and then nothing runs it.
        for copy in [&program, &next] {
            assert!(Command::new("cp").arg("/bin/sleep").arg(copy).status().unwrap().success());
        }
        let program = program.canonicalize().unwrap();
        let mut child = stand_in(&program, &dir);
        fs::rename(&next, &program).unwrap();
        let instance = Instance::find(&dir, None).unwrap();
        let words = instance.options().unwrap();
        let found = (instance.server(), Instance::refuse_words(&words));
        fs::remove_file(&program).unwrap();
        let gone = Instance::refuse_words(&instance.options().unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found.0, program);
        assert_eq!(words, [program.display().to_string(), "60".to_owned()]);
        found.1.unwrap();
        let gone = gone.unwrap_err().to_string();
        assert!(
            gone.contains(&format!("started by {}, which is gone", program.display())),
            "{gone}"
        );
    }
}

//! One data directory of MariaDB or MySQL and the server on it: how it was started, whether it
//! takes clients, how it is stopped and started again.
//!
//! What is asked is asked by the server's own client, as the owner of the directory. Nothing here
//! converts a file.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use procfs::process::Process;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::brand::Brand;
use super::sockets::takes_clients;
use super::start::Start;
use super::{Datadir, check, listed_in, server_on};
use crate::console;
use crate::error::{Error, Result};
use crate::owner::Owner;
use crate::run_as::{RunAs, run};

/// Scripts that start a server, wait for it, and start it again after a crash.
const WRAPPERS: [&str; 2] = ["mariadbd-safe", "mysqld_safe"];
/// Options that name where the server is, and its files; other paths are below these.
const PLACES: [&str; 5] =
    ["--datadir", "--basedir", "--ledir", "--defaults-file", "--defaults-extra-file"];
const SHORT_PLACES: [&str; 2] = ["-h", "-b"];
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
        let running = server_on(&self.dir).and_then(|pid| fs::read_link(proc(pid, "exe")).ok());
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

    /// Refuses words that mean another place where this command starts a server.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub(crate) fn refuse_words(words: &[String]) -> Result<()> {
        match relative(words) {
            None => Ok(()),
            Some(word) => Err(Error::refused(
                format!("the server was started with {word}, a relative path"),
                "start it with full paths first: it is started again from another directory",
            )),
        }
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
        let start = Start {
            brand: self.brand,
            server: Path::new(program),
            arguments: &arguments,
            run_as: Some(&self.run_as),
        };
        check(&start, &[&self.dir], listed.as_deref(), Datadir::Is(&self.dir))
    }

    /// Ends the server in order, and waits until it and its wrapper are gone.
    ///
    /// # Errors
    /// [`Error::Io`] if the server cannot be signalled.
    pub(crate) fn stop(&self) -> Result<()> {
        let Some(pid) = server_on(&self.dir) else { return Ok(()) };
        let wrapper = wrapper_of(pid);
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
        while server_on(&self.dir) == Some(pid) {
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
            .arg("--socket")
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

/// The words of a process; empty if it is gone.
fn command_line(pid: u32) -> Vec<OsString> {
    use std::os::unix::ffi::OsStringExt as _;
    let bytes = fs::read(proc(pid, "cmdline")).unwrap_or_default();
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(&bytes);
    bytes.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec())).collect()
}

/// The wrapper that has started this server and waits for it.
fn wrapper_of(pid: u32) -> Option<u32> {
    let stat = Process::new(i32::try_from(pid).ok()?).ok()?.stat().ok()?;
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
}

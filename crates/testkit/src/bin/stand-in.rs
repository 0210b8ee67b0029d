//! `stand-in`: stands in PATH under the name of each of PostgreSQL's programs and runs that with
//! the library, as an operator would who protects every data directory.
//!
//! ```text
//!   initdb, pg_basebackup -Fp   tidelock init DIR; the program by tidelock exec -D DIR
//!   pg_ctl start, postgres      a plain DIR, restored from a tar file, is sealed first
//!   pg_upgrade                  by tidelock exec; the logs that a failure leaves are removed
//!   everything else             by tidelock exec, for each protected directory that it names
//!   names no protected one      as it is
//! ```
//!
//! Data directories know each other's data keys (`tidelock key adopt`), since the tests archive and
//! restore with `cp`. Each of them stands for a machine with sockets of its own, because the byte
//! copy of a directory has the keyring of the original. The keys, and what was done, lie in the
//! directory that `TIDELOCK_TAP` names.
#![forbid(unsafe_code)]

use std::env;
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::slice;

use tidelock_keyring::KeyringDir;
use tidelock_testkit::pg::BINDIR;
use tidelock_testkit::pg::tap::stand_in::{SEALED, Work, is_protected, protected};
use tidelock_testkit::protection::is_sealed;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let mut arguments = env::args_os();
    let called = PathBuf::from(arguments.next().unwrap_or_default());
    let name = called.file_name().and_then(OsStr::to_str).unwrap_or_default().to_owned();
    let call = Call { name, arguments: arguments.collect() };
    match State::found().and_then(|state| call.run(&state)) {
        Ok(code) => code,
        Err(why) => {
            let _ = writeln!(std::io::stderr(), "stand-in: {}: {why}", call.name);
            ExitCode::from(125)
        }
    }
}

/// What the test's script typed.
struct Call {
    name: String,
    arguments: Vec<OsString>,
}

impl Call {
    fn run(&self, state: &State) -> Result<ExitCode> {
        let pgdata = env::var_os("PGDATA");
        match Work::of(&self.name, &self.arguments, pgdata.as_deref()) {
            Work::Makes(dir) if is_absent_or_empty(&dir) => return self.make(state, &dir),
            Work::Starts(dir) => {
                state.seal_what_came_plain(&dir)?;
                if is_protected(&dir) {
                    state.join(&dir.canonicalize()?)?;
                }
            }
            Work::Stops(dir) if is_protected(&dir) => {
                let dir = dir.canonicalize()?;
                return Ok(code(self.by_exec(state, slice::from_ref(&dir)).status()?));
            }
            _ => {}
        }
        let dirs = protected(&self.arguments, pgdata.as_deref());
        let mut command = match dirs.as_slice() {
            [] => self.bare(),
            dirs if self.name == "pg_upgrade" => return self.upgrade(state, dirs),
            dirs => self.by_exec(state, dirs),
        };
        Err(command.exec().into())
    }

    /// Where it fails, `tidelock exec` leaves its logs in memory and asks to remove them.
    fn upgrade(&self, state: &State, dirs: &[PathBuf]) -> Result<ExitCode> {
        let mut exec = self.by_exec(state, dirs).spawn()?;
        let status = exec.wait()?;
        let logs = Path::new("/dev/shm").join(format!("tidelock-upgrade-{}-0", exec.id()));
        if logs.is_dir() {
            fs::remove_dir_all(&logs)?;
        }
        Ok(code(status))
    }

    /// A new directory is a protected one. If the program fails it is gone again, or empty.
    fn make(&self, state: &State, dir: &Path) -> Result<ExitCode> {
        let was_there = dir.exists();
        if let Some(above) = dir.parent() {
            fs::create_dir_all(above)?;
        }
        state.init(dir)?;
        let dir = dir.canonicalize()?;
        state.join(&dir)?;
        let status = self.by_exec(state, slice::from_ref(&dir)).status()?;
        let is_filled = has_other_names(&dir)?;
        if status.success() && is_filled {
            state.came_out_sealed(&dir)?;
        }
        if !status.success() && !is_filled {
            fs::remove_dir_all(dir.join(FOLDER))?;
            if !was_there {
                fs::remove_dir(&dir)?;
            }
        }
        Ok(code(status))
    }

    fn bare(&self) -> Command {
        let mut command = Command::new(Path::new(BINDIR).join(&self.name));
        command.args(&self.arguments);
        command
    }

    fn by_exec(&self, state: &State, dirs: &[PathBuf]) -> Command {
        let mut command = state.exec(dirs);
        command.arg(Path::new(BINDIR).join(&self.name)).args(&self.arguments);
        command
    }
}

/// The keys of one run of a test, and which directories it has protected.
struct State {
    dir: PathBuf,
}

impl State {
    fn found() -> Result<Self> {
        let dir = env::var_os("TIDELOCK_TAP").ok_or("TIDELOCK_TAP is not set")?;
        Ok(Self { dir: dir.into() })
    }

    /// `tidelock` where these directories live.
    fn tidelock(&self, dirs: &[PathBuf]) -> Command {
        let mut hasher = DefaultHasher::new();
        dirs.hash(&mut hasher);
        let machine = self.dir.join("machines").join(format!("{:016x}", hasher.finish()));
        let mut command = Command::new(self.dir.join("tidelock"));
        // The sockets' folder has mode 0700; the agent makes it, not what is above.
        let _ = fs::create_dir_all(&machine);
        command.env("TIDELOCK_RUN_DIR", machine.join("run"));
        command
    }

    fn exec(&self, dirs: &[PathBuf]) -> Command {
        let mut command = self.tidelock(dirs);
        command.arg("exec");
        for dir in dirs {
            command.arg("-D").arg(dir);
        }
        command.arg("--");
        command
    }

    fn init(&self, dir: &Path) -> Result<()> {
        let mut command = self.tidelock(&[dir.to_path_buf()]);
        command.args(["init", "--no-recovery", "--provider"]);
        command.arg(format!("file:{}", self.dir.join("key").display())).arg(dir);
        for glob in fs::read_to_string(self.dir.join("plain")).unwrap_or_default().lines() {
            command.args(["--plain", glob]);
        }
        quietly(command)
    }

    /// `dir` and every directory known before it adopt each other's data keys, once.
    fn join(&self, dir: &Path) -> Result<()> {
        let known = fs::read_to_string(self.dir.join("known")).unwrap_or_default();
        if !known.lines().any(|line| Path::new(line) == dir) {
            self.note("known", dir)?;
        }
        for other in known.lines().map(Path::new).filter(|other| *other != dir) {
            if is_protected(other) {
                self.adopt(dir, other)?;
                self.adopt(other, dir)?;
            }
        }
        Ok(())
    }

    fn note(&self, list: &str, dir: &Path) -> Result<()> {
        let mut list = OpenOptions::new().create(true).append(true).open(self.dir.join(list))?;
        Ok(writeln!(list, "{}", dir.display())?)
    }

    /// A program that went round the library would agree with the plain arm in everything.
    fn came_out_sealed(&self, dir: &Path) -> Result<()> {
        let control = dir.join("global/pg_control");
        if !is_sealed(&control) {
            return Err(format!("{} is not sealed", control.display()).into());
        }
        self.note(SEALED, dir)
    }

    fn adopt(&self, dir: &Path, from: &Path) -> Result<()> {
        let id = |dir: &Path| KeyringDir::open(dir)?.read().map(|keyring| keyring.id().to_string());
        let (ours, theirs) = (id(dir)?, id(from)?);
        if ours == theirs {
            return Ok(());
        }
        let mut hasher = DefaultHasher::new();
        (dir, &ours, &theirs).hash(&mut hasher);
        let mark = self.dir.join("adopted").join(format!("{:016x}", hasher.finish()));
        if mark.exists() {
            return Ok(());
        }
        let mut command = self.tidelock(&[dir.to_path_buf()]);
        command.args(["key", "adopt", "-D"]).arg(dir).arg("--from").arg(from);
        quietly(command)?;
        fs::create_dir_all(self.dir.join("adopted"))?;
        fs::write(mark, "")?;
        Ok(())
    }

    /// An unencrypted backup is restored into a protected directory, as docs/lifecycle.md says.
    fn seal_what_came_plain(&self, dir: &Path) -> Result<()> {
        if is_protected(dir) || !dir.join("PG_VERSION").is_file() {
            return Ok(());
        }
        let dir = dir.canonicalize()?;
        self.restore(&dir, &dir, |dir| self.init(dir))?;
        // A backup in tar files has tablespaces of its own, and this map of them.
        let map = fs::read_to_string(dir.join("tablespace_map")).unwrap_or_default();
        for place in map.lines().filter_map(|line| Some(line.split_once(' ')?.1)) {
            let make = |at: &Path| Ok(fs::create_dir(at)?);
            self.restore(&dir, &Path::new(place).canonicalize()?, make)?;
        }
        Ok(())
    }

    /// Packs what lies in `place` and unpacks it there through the library, which seals it for
    /// `dir`. By `tar`, as backups come: the library would take a copy's source for a tablespace of
    /// `dir`, because of its name.
    fn restore(&self, dir: &Path, place: &Path, make: impl Fn(&Path) -> Result<()>) -> Result<()> {
        let mode = fs::metadata(place)?.permissions().mode();
        let mut plain = place.to_path_buf().into_os_string();
        plain.push(".plain");
        fs::rename(place, &plain)?;
        make(place)?;
        let mut pack = Command::new("tar");
        pack.arg("-C").arg(&plain).args(["-cf", "-", "."]).stdout(Stdio::piped());
        let mut packed = pack.spawn()?;
        let mut unpack = self.exec(&[dir.to_path_buf()]);
        unpack.args(["tar", "-xpf", "-", "-C"]).arg(place);
        unpack.stdin(packed.stdout.take().ok_or("tar has no output")?);
        quietly(unpack)?;
        if !packed.wait()?.success() {
            return Err(format!("tar could not pack {}", Path::new(&plain).display()).into());
        }
        fs::remove_dir_all(&plain)?;
        fs::set_permissions(place, fs::Permissions::from_mode(mode))?;
        Ok(())
    }
}

const FOLDER: &str = ".tidelock";

fn is_absent_or_empty(dir: &Path) -> bool {
    match fs::read_dir(dir) {
        Ok(mut entries) => entries.next().is_none(),
        Err(why) => why.kind() == std::io::ErrorKind::NotFound,
    }
}

fn has_other_names(dir: &Path) -> Result<bool> {
    for entry in fs::read_dir(dir)? {
        if entry?.file_name() != FOLDER {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Runs a command of our own, whose words the test must not see unless it fails.
fn quietly(mut command: Command) -> Result<()> {
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into())
}

fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(125))
}

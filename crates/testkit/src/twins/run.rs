//! Where and how a twin program runs: a scratch place with a plain and a protected directory, and
//! the built command.

use std::env;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use tempfile::TempDir;
use tidelock_servers::Bounded as _;
use tidelock_servers::home::{self, Agents};

use super::{Error, Result, failed};

/// The built command; the library lies beside it.
#[derive(Clone, Debug)]
pub struct Product {
    command: PathBuf,
}

impl Product {
    /// Finds the command beside the running test (`target/PROFILE`) or where `TIDELOCK_BUILT` says.
    ///
    /// # Errors
    /// [`Error::Missing`] when it, or the library, is not built.
    pub fn find() -> Result<Self> {
        let dir = match env::var_os("TIDELOCK_BUILT") {
            Some(dir) => PathBuf::from(dir),
            None => beside_the_test()?,
        };
        for path in [dir.join("tidelock"), dir.join("libtidelock_preload.so")] {
            if !path.is_file() {
                return Err(Error::Missing { path });
            }
        }
        Ok(Self { command: dir.join("tidelock") })
    }

    /// The command.
    #[must_use]
    pub fn command(&self) -> &Path {
        &self.command
    }

    /// The library.
    #[must_use]
    pub fn library(&self) -> PathBuf {
        self.command.with_file_name("libtidelock_preload.so")
    }
}

fn beside_the_test() -> Result<PathBuf> {
    let me = env::current_exe().map_err(failed("finding the running test".to_owned()))?;
    let profile = me.ancestors().find(|dir| dir.ends_with("deps")).and_then(Path::parent);
    Ok(profile.unwrap_or(Path::new(".")).to_path_buf())
}

/// How one run ended and what it printed.
#[derive(Debug)]
pub struct Ended {
    /// Everything on stdout.
    pub output: String,
    /// Everything on stderr: messages of the library, if any.
    pub messages: String,
    status: ExitStatus,
}

impl Ended {
    /// The exit code, unless a signal ended it.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Whether the program ended with exit code 0.
    #[must_use]
    pub fn good(&self) -> bool {
        self.status.success()
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = if self.status.code() == Some(137) { " (killed; it may hang)" } else { "" };
        write!(f, "{}{why}\n{}", self.status, self.messages)
    }
}

/// A scratch directory with all that two runs of one program need. Removed when dropped.
#[derive(Debug)]
pub struct Workspace {
    _agents: Agents,
    root: TempDir,
}

impl Workspace {
    /// A fresh place.
    ///
    /// # Errors
    /// When no directory can be made.
    pub fn new(name: &str) -> Result<Self> {
        let prefix: String = name.chars().take(12).collect();
        let root = tempfile::Builder::new()
            .prefix(&format!("{prefix}-"))
            .tempdir()
            .map_err(failed("making a scratch directory".to_owned()))?;
        for dir in ["home", "programs", "plain", "other"] {
            fs::create_dir(root.path().join(dir)).map_err(failed(format!("making {dir}")))?;
        }
        Ok(Self { _agents: Agents::of(&root.path().join("home"), root.path()), root })
    }

    /// Leaves everything behind and says where it is.
    #[must_use]
    pub fn keep(self) -> PathBuf {
        self.root.keep()
    }

    /// Where programs are compiled to.
    #[must_use]
    pub fn programs(&self) -> PathBuf {
        self.root.path().join("programs")
    }

    /// The directory of the plain run.
    #[must_use]
    pub fn plain(&self) -> PathBuf {
        self.root.path().join("plain")
    }

    /// The directory of a second plain run.
    #[must_use]
    pub(crate) fn other_plain(&self) -> PathBuf {
        self.root.path().join("other")
    }

    /// Makes the protected directory, its key beside it.
    ///
    /// # Errors
    /// When `tidelock init` fails.
    pub fn protect(&self, product: &Product, profile: &str) -> Result<PathBuf> {
        let dir = self.root.path().join("sealed");
        let key = format!("file:{}", self.root.path().join("key").display());
        let mut init = self.command(product);
        init.arg("init").arg(&dir);
        init.args(["--profile", profile, "--no-recovery", "--provider", &key]);
        self.must(init)?;
        Ok(dir)
    }

    /// Runs a program without the library.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn run_plain(&self, program: &Path, dir: &Path) -> Result<Ended> {
        self.run(self.limited(program, [dir.as_os_str()]), dir)
    }

    /// Runs a program by `tidelock exec`.
    ///
    /// # Errors
    /// When the command cannot be started.
    pub fn run_sealed(
        &self,
        product: &Product,
        program: &Path,
        args: &[&OsStr],
        dir: &Path,
    ) -> Result<Ended> {
        let call = exec(dir, program).into_iter().chain(args.iter().copied());
        self.run(self.limited(&product.command, call), dir)
    }

    /// The same for a program that takes the directory, with system calls written to `trace`: all,
    /// or those that the options of strace name.
    ///
    /// # Errors
    /// When strace cannot be started.
    pub fn run_traced(
        &self,
        product: &Product,
        program: &Path,
        dir: &Path,
        trace: &Path,
        options: &[&str],
    ) -> Result<Ended> {
        let strace = [OsStr::new("-f"), OsStr::new("-o"), trace.as_os_str()];
        let call = strace.into_iter().chain(options.iter().map(OsStr::new));
        let call = call.chain([product.command.as_os_str()]);
        let call = call.chain(exec(dir, program)).chain([dir.as_os_str()]);
        self.run(self.limited(Path::new("strace"), call), dir)
    }

    /// Runs a program that takes the directory under `step`, which writes its counts to `trace`;
    /// plain without a product.
    ///
    /// # Errors
    /// When `step` cannot be started.
    pub fn run_stepped(
        &self,
        product: Option<&Product>,
        step: &Path,
        program: &Path,
        dir: &Path,
        trace: &Path,
    ) -> Result<Ended> {
        let call = match product {
            Some(product) => {
                [product.command.as_os_str()].into_iter().chain(exec(dir, program)).collect()
            }
            None => vec![program.as_os_str()],
        };
        let call = [trace.as_os_str()].into_iter().chain(call).chain([dir.as_os_str()]);
        self.run(self.limited(step, call), dir)
    }

    /// A program that takes the directory, not yet started and without a limit of time; plain
    /// without a product.
    #[must_use]
    pub fn waiting(&self, product: Option<&Product>, program: &Path, dir: &Path) -> Command {
        let mut command = match product {
            Some(product) => Command::new(&product.command),
            None => Command::new(program),
        };
        self.surround(&mut command);
        if product.is_some() {
            command.args(exec(dir, program));
        }
        command.arg(dir);
        command
    }

    /// The plain bytes of one sealed file.
    ///
    /// # Errors
    /// When `tidelock cat` fails.
    pub fn cat(&self, product: &Product, file: &Path) -> Result<Vec<u8>> {
        let mut cat = self.command(product);
        cat.arg("cat").arg(file);
        self.must(cat)
    }

    /// Has every file checked: header, MAC, key, sizes, and no plain file among them.
    ///
    /// # Errors
    /// When `tidelock verify` finds anything.
    pub fn verify(&self, product: &Product, dir: &Path) -> Result<()> {
        let mut verify = self.command(product);
        verify.arg("verify").arg("-D").arg(dir);
        self.must(verify).map(drop)
    }

    /// The command, able to find what `init` wrote down and nothing of the caller's.
    #[must_use]
    pub fn command(&self, product: &Product) -> Command {
        let mut command = Command::new(&product.command);
        self.surround(&mut command);
        command
    }

    /// The same call with `input` as its standard input, which
    /// [`Bounded`](tidelock_servers::Bounded) would take away.
    #[must_use]
    pub fn fed(&self, command: &Command, input: &Path) -> Command {
        let mut shell = Command::new("/bin/sh");
        self.surround(&mut shell);
        shell.args(["-c", "input=$1; shift; exec \"$@\" < \"$input\"", "sh"]);
        shell.arg(input).arg(command.get_program()).args(command.get_args());
        shell
    }

    /// A command that is killed with all its children when it takes too long.
    fn limited<'a>(&self, program: &Path, args: impl IntoIterator<Item = &'a OsStr>) -> Command {
        let mut timeout = Command::new("timeout");
        timeout.args(["--signal=KILL", LIMIT]).arg(program).args(args);
        self.surround(&mut timeout);
        timeout
    }

    fn surround(&self, command: &mut Command) {
        command.env_clear().env("PATH", env::var_os("PATH").unwrap_or_default());
        command.envs(home::variables(&self.root.path().join("home")));
        command.env("LC_ALL", "C").stdin(Stdio::null()).current_dir("/");
    }

    /// Output goes to files, not to pipes: the agent outlives the program and may hold what it
    /// inherits.
    fn run(&self, mut command: Command, dir: &Path) -> Result<Ended> {
        let output = dir.with_extension("stdout");
        let messages = dir.with_extension("stderr");
        let create = |path: &Path| {
            File::create(path).map_err(failed(format!("creating {}", path.display())))
        };
        command.stdout(create(&output)?).stderr(create(&messages)?);
        let status = command.status().map_err(failed(format!("starting {command:?}")))?;
        let text = |path: &Path| {
            let bytes = fs::read(path).map_err(failed(format!("reading {}", path.display())))?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        Ok(Ended { output: text(&output)?, messages: text(&messages)?, status })
    }

    fn must(&self, mut command: Command) -> Result<Vec<u8>> {
        let done = command.finish().map_err(failed(format!("running {command:?}")))?;
        if done.status.success() {
            return Ok(done.stdout);
        }
        Err(Error::Command {
            call: format!("{command:?}"),
            status: done.status.to_string(),
            said: String::from_utf8_lossy(&done.stderr).into_owned(),
        })
    }
}

fn exec<'a>(dir: &'a Path, program: &'a Path) -> [&'a OsStr; 5] {
    let word = OsStr::new;
    [word("exec"), word("-D"), dir.as_os_str(), word("--"), program.as_os_str()]
}

/// Seconds that one run may take; the longest takes two, on a machine that does nothing else.
const LIMIT: &str = "300";

/// What a trace has between the marks that a program writes to no descriptor, `begin NAME` and
/// `end`: each name and the calls of that process which follow it. Others may be traced beside it
/// (the agent), whose lines cut calls in two.
#[must_use]
pub fn sections(trace: &str) -> Vec<(String, Vec<String>)> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    let mut inside = None;
    for line in trace.lines() {
        let call = line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ');
        let process = line.strip_suffix(call);
        if let Some(name) = call.strip_prefix("write(-1, \"begin ") {
            let name = name.split('"').next().unwrap_or_default();
            found.push((name.to_owned(), Vec::new()));
            inside = process;
        } else if process != inside || call.starts_with("<... ") {
            // Another process, or the end of a call that was counted where it began.
        } else if call.starts_with("write(-1, \"end\"") {
            inside = None;
        } else if let Some((_, calls)) = found.last_mut() {
            calls.push(call.to_owned());
        }
    }
    found
}

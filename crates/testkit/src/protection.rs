//! `tidelock protect` and `unprotect` of a server of MariaDB or MySQL that no unit starts: called,
//! killed at each step, called again.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::killed::{again, kill_at};
use crate::pg::{Error, Process, Result, Tool, Workspace, ensure};

/// Where a call is killed. Each state lasts until a later step that takes its time.
const POINTS: [&str; 5] =
    ["it has begun", "the server has stopped", "some files are sealed", "all are", "it runs again"];

/// A server that the command stops and starts, so that it is no child of the test: ended on drop.
#[derive(Debug)]
pub struct Subject<'p> {
    place: &'p Workspace,
    dir: PathBuf,
    program: &'static str,
    first: &'static str,
}

impl<'p> Subject<'p> {
    /// The server on `dir`: `program` is the name of what it runs, `first` the file that is sealed
    /// before all others.
    #[must_use]
    pub fn new(
        place: &'p Workspace,
        dir: &Path,
        program: &'static str,
        first: &'static str,
    ) -> Self {
        Self { place, dir: dir.to_path_buf(), program, first }
    }

    /// `tidelock WHAT -D DIR` with these options, which asks the server as its user `root`.
    ///
    /// # Errors
    /// When the built command is missing.
    pub fn tidelock(&self, what: &str, options: &[&str]) -> Result<Tool<'p>> {
        let command = self.place.programs()?.command;
        let tool = self.place.tool(command).args([what, "--yes", "-U", "root", "-D"]);
        Ok(tool.arg(&self.dir).args(options).limit(300))
    }

    /// `protect`, with a key file and a second copy of the keyring.
    ///
    /// # Errors
    /// As [`Subject::tidelock`].
    pub fn protect(&self) -> Result<Tool<'p>> {
        let key = format!("file:{}", self.place.join("home/key").display());
        let copy = self.keyring_copy().display().to_string();
        let options = ["--no-recovery", "--provider", &key, "--keyring-copy", &copy];
        self.tidelock("protect", &options)
    }

    /// `unprotect`.
    ///
    /// # Errors
    /// As [`Subject::tidelock`].
    pub fn unprotect(&self) -> Result<Tool<'p>> {
        self.tidelock("unprotect", &[])
    }

    /// Where the second copy of the keyring goes.
    #[must_use]
    pub fn keyring_copy(&self) -> PathBuf {
        self.place.join("home/keyring-copy")
    }

    /// The server works in its directory.
    ///
    /// # Errors
    /// When none does.
    pub fn process(&self) -> Result<Process> {
        self.found().ok_or_else(|| Error::Unexpected(format!("no {} runs", self.program)))
    }

    fn found(&self) -> Option<Process> {
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let mut ours = all.map(|it| it.path()).filter(|it| {
            let exe = fs::read_link(it.join("exe")).unwrap_or_default();
            fs::read_link(it.join("cwd")).is_ok_and(|cwd| cwd == self.dir)
                && exe.file_name().is_some_and(|name| name == self.program)
        });
        ours.find_map(|it| it.file_name()?.to_str()?.parse().ok()).and_then(Process::new)
    }

    /// The library is in the running server.
    ///
    /// # Errors
    /// When none runs.
    pub fn library_is_loaded(&self) -> Result<bool> {
        let maps = self.of_process("maps")?;
        Ok(String::from_utf8_lossy(&maps).contains("libtidelock_preload"))
    }

    /// The words of the running server, with a blank after each.
    ///
    /// # Errors
    /// When none runs.
    pub fn words(&self) -> Result<String> {
        Ok(blanks(&self.of_process("cmdline")?))
    }

    /// The words of the process that has started the server.
    ///
    /// # Errors
    /// When none runs.
    pub fn parent(&self) -> Result<String> {
        let status = String::from_utf8_lossy(&self.of_process("status")?).into_owned();
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap_or("0");
        let words = fs::read(format!("/proc/{}/cmdline", parent.trim()));
        words.map(|words| blanks(&words)).map_err(Error::io("looking at a process"))
    }

    fn of_process(&self, name: &str) -> Result<Vec<u8>> {
        let path = format!("/proc/{}/{name}", self.process()?.id());
        fs::read(path).map_err(Error::io("looking at a process"))
    }

    /// Ends the server in order.
    ///
    /// # Errors
    /// When it does not end.
    pub fn stop(&self) -> Result<()> {
        let process = self.process()?;
        process.signal(Signal::TERM)?;
        process.wait_gone(Duration::from_secs(120))
    }

    /// `protect` is killed at each step, and `unprotect` takes it back; `same` says whether the
    /// server still has its rows.
    ///
    /// # Errors
    /// When it is not so.
    pub fn is_taken_back_from_each_step(&self, same: impl Fn() -> Result<()>) -> Result<()> {
        for point in POINTS {
            self.forget_keys();
            self.killed(point)?;
            let back = again(|| self.unprotect())?;
            ensure(back.status.success(), || format!("{point}: {}", back.text()))?;
            ensure(!self.library_is_loaded()?, || format!("{point}: the library is loaded"))?;
            ensure(!self.dir.join(".tidelock").exists(), || format!("{point}: a keyring"))?;
            ensure(!self.record().exists(), || format!("{point}: the record stays"))?;
            same()?;
        }
        Ok(())
    }

    /// `protect` is killed at one step after another, and goes on each time.
    ///
    /// # Errors
    /// When it is not so.
    pub fn goes_on_from_each_step(&self, same: impl Fn() -> Result<()>) -> Result<()> {
        for point in POINTS {
            self.killed(point)?;
        }
        let done = again(|| self.protect())?;
        ensure(done.status.success(), || done.text())?;
        ensure(self.library_is_loaded()?, || "the library is not loaded".into())?;
        same()
    }

    /// Kills `protect` at this point; one that was quicker than we could look is taken back, and
    /// the next one is killed.
    fn killed(&self, point: &str) -> Result<()> {
        let begin = Instant::now();
        loop {
            if kill_at(self.protect()?.spawn()?, || self.has_reached(point))? {
                return Ok(());
            }
            ensure(begin.elapsed() < Duration::from_secs(300), || format!("never: {point}"))?;
            // What an earlier call had started is still at work; or all was done before we looked.
            if !self.record().exists() {
                self.unprotect()?.run()?;
                self.forget_keys();
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn has_reached(&self, point: &str) -> bool {
        let record = fs::read_to_string(self.record());
        let converted = || record.as_ref().is_ok_and(|it| it.contains("stage = \"converted\""));
        match point {
            "it has begun" => record.is_ok(),
            "the server has stopped" => record.is_ok() && self.found().is_none(),
            "some files are sealed" => is_sealed(&self.dir.join(self.first)),
            "all are" => converted(),
            _ => converted() && self.found().is_some(),
        }
    }

    /// What has begun.
    fn record(&self) -> PathBuf {
        PathBuf::from(format!("{}.tidelock-protection", self.dir.display()))
    }

    /// The key file of the last round belongs to another keyring.
    fn forget_keys(&self) {
        for old in [self.place.join("home/key"), self.keyring_copy()] {
            let _ = fs::remove_file(old);
        }
    }
}

impl Drop for Subject<'_> {
    fn drop(&mut self) {
        if let Some(process) = self.found() {
            let _ = process.signal(Signal::KILL);
        }
    }
}

/// It begins as sealed files do.
#[must_use]
pub fn is_sealed(file: &Path) -> bool {
    fs::read(file).unwrap_or_default().starts_with(b"\x89TDLK")
}

fn blanks(words: &[u8]) -> String {
    String::from_utf8_lossy(words).replace('\0', " ")
}

//! The directory of a run: `run.json`, and `results.jsonl` to which each finished trial is appended.
//!
//! A trial counts once its line has reached the disk (write, fdatasync). A torn last line, left by a
//! crash, and a corrupt one are reported with their number and never read as a trial; everything else
//! stays.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::manifest::Manifest;
use crate::trial::Trial;

/// Everything of a run that was read.
#[derive(Clone, Debug)]
pub struct Results {
    /// Its directory.
    pub dir: PathBuf,
    /// What was to be measured.
    pub manifest: Manifest,
    /// What was measured, in order of time.
    pub trials: Vec<Trial>,
    /// Lines that are no trials: number from 1, and why.
    pub broken: Vec<(usize, String)>,
}

impl Results {
    /// Reads a run.
    ///
    /// # Errors
    /// [`Error::NotARun`] without a readable `run.json`; a results file that is not there is empty.
    pub fn read(dir: &Path) -> Result<Self> {
        let not_a_run = |why: String| Error::NotARun { path: dir.into(), why };
        let text = fs::read_to_string(dir.join(MANIFEST))
            .map_err(|e| not_a_run(format!("{MANIFEST}: {e}")))?;
        let manifest: Manifest =
            serde_json::from_str(&text).map_err(|e| not_a_run(format!("{MANIFEST}: {e}")))?;
        if manifest.format != FORMAT {
            return Err(not_a_run(format!("its format is {}, not {FORMAT}", manifest.format)));
        }
        let path = dir.join(RESULTS);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(e) => return Err(Error::io(format!("reading {}", path.display()))(e)),
        };
        let mut trials = Vec::new();
        let mut broken = Vec::new();
        for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            if line.is_empty() {
                continue;
            }
            match serde_json::from_slice(line) {
                Ok(trial) => trials.push(trial),
                Err(why) => broken.push((number + 1, why.to_string())),
            }
        }
        Ok(Self { dir: dir.into(), manifest, trials, broken })
    }
}

/// Appends trials.
#[derive(Debug)]
pub struct Writer {
    file: File,
    path: PathBuf,
}

impl Writer {
    /// Makes the directory and writes the manifest.
    ///
    /// # Errors
    /// When the directory has a run already, or cannot be written.
    pub fn create(dir: &Path, manifest: &Manifest) -> Result<Self> {
        let what = format!("making {}", dir.display());
        fs::create_dir_all(dir).map_err(Error::io(what))?;
        let path = dir.join(MANIFEST);
        let failed = || Error::io(format!("writing {}", path.display()));
        let text = serde_json::to_string_pretty(manifest)
            .map_err(|e| Error::Other(format!("the manifest cannot be written: {e}")))?;
        let mut file = File::create_new(&path).map_err(failed())?;
        file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed())?;
        Self::append(dir)
    }

    /// Goes on with a run. A torn last line is ended, so that the next trial has a line of its own.
    ///
    /// # Errors
    /// When the results cannot be opened.
    pub fn append(dir: &Path) -> Result<Self> {
        let path = dir.join(RESULTS);
        let failed = || Error::io(format!("opening {}", path.display()));
        let mut file = OpenOptions::new().create(true).append(true).open(&path).map_err(failed())?;
        let torn = fs::read(&path).map_err(failed())?.last().is_some_and(|byte| *byte != b'\n');
        if torn {
            file.write_all(b"\n").map_err(failed())?;
        }
        Ok(Self { file, path })
    }

    /// Appends a trial and waits until it is on the disk.
    ///
    /// # Errors
    /// When it could not be written whole: a full disk. What was there before stays readable.
    pub fn add(&mut self, trial: &Trial) -> Result<()> {
        let failed = || Error::io(format!("writing {}", self.path.display()));
        let mut line = serde_json::to_vec(trial)
            .map_err(|e| Error::Other(format!("a trial cannot be written: {e}")))?;
        line.push(b'\n');
        let before = self.file.metadata().map_err(failed())?.len();
        let written = self.file.write_all(&line).and_then(|()| self.file.sync_data());
        written.map_err(|error| {
            // The part of a line that did fit must not stay in front of the next one.
            let _ = self.file.set_len(before);
            failed()(error)
        })
    }
}

/// Version of both files.
pub const FORMAT: u32 = 1;
/// Name of the manifest.
pub const MANIFEST: &str = "run.json";
/// Name of the results.
pub const RESULTS: &str = "results.jsonl";

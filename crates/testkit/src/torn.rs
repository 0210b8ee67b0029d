//! The plan of the torn-block trial: which buffers, sizes and offsets meet, and for how long.
//!
//! It runs `trials/torn.c` on a volume and passes on what that counted, one JSON line a run.
//! Judging the figures is the work of docs/decisions/0003-torn-blocks.md.

use std::process::Command;

use serde_json::Value;
use tidelock_servers::Bounded as _;

use crate::{
    trial::Trial,
    volume::{FileSystem, Volume, VolumeError},
};

/// One run of the trial.
#[derive(Clone, Copy, Debug)]
pub struct Meeting {
    /// Why this run is in the plan.
    pub part: &'static str,
    /// File offset of the range that both sides share.
    pub offset: u32,
    /// Bytes that one call transfers.
    pub size: u32,
    /// Address of the writer's buffer.
    pub writer: Buffer,
    /// Address of the reader's buffer.
    pub reader: Buffer,
    /// Length of the run.
    pub milliseconds: u32,
}

/// Where a side keeps its bytes.
#[derive(Clone, Copy, Debug)]
pub enum Buffer {
    /// Handed to a system call, at this address modulo 64.
    Residue(u32),
    /// A shared map and 16-byte loads or stores, which do not tear.
    Map,
}

/// Every meeting of the trial; short runs take `milliseconds`, the long ones ten times that.
#[must_use]
pub fn plan(milliseconds: u32) -> Vec<Meeting> {
    let run = |part, offset, size, writer, reader| Meeting {
        part,
        offset,
        size,
        writer,
        reader,
        milliseconds,
    };
    let at = Buffer::Residue;
    let mut plan = Vec::new();
    for size in [512, 4096, 8192] {
        for residue in [0, 8, 16, 24, 32, 48, 56] {
            plan.push(run("writer's buffer", 4096, size, at(residue), at(0)));
            plan.push(run("reader's buffer", 4096, size, at(0), at(residue)));
            plan.push(run("writer alone", 4096, size, at(residue), Buffer::Map));
            plan.push(run("reader alone", 4096, size, Buffer::Map, at(residue)));
        }
        for residue in [16, 32, 48] {
            plan.push(run("congruent", 4096 + residue, size, at(residue), at(residue)));
        }
    }
    for size in [16, 48, 64, 80, 528] {
        plan.push(run("small", 4096, size, at(0), at(0)));
    }
    for residue in [0, 8] {
        let long = run("long", 4096, 8192, at(residue), at(residue));
        plan.extend([Meeting { milliseconds: 10 * milliseconds, ..long }; 3]);
    }
    plan
}

/// Runs one meeting on `volume`; the answer is the program's line with the file system and the
/// part.
///
/// # Errors
/// When the program fails or says something else than JSON.
pub fn meet(trial: &Trial, volume: &Volume, meeting: &Meeting) -> Result<Value, TornError> {
    let mut command = Command::new(trial.program());
    command
        .arg(volume.root().join("shared"))
        .args([meeting.offset, meeting.size].map(|number| number.to_string()))
        .args([meeting.writer, meeting.reader].map(|buffer| buffer.argument()))
        .arg(meeting.milliseconds.to_string());
    let output = command.finish().map_err(|error| TornError::Failed(error.to_string()))?;
    if !output.status.success() {
        return Err(TornError::Failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let mut line: Value = serde_json::from_slice(&output.stdout)?;
    line["fs"] = volume.file_system().to_string().into();
    line["part"] = meeting.part.into();
    Ok(line)
}

/// Makes the volume of one trial.
///
/// # Errors
/// Those of the volume.
pub fn volume(fs: FileSystem) -> Result<Volume, VolumeError> {
    Volume::create(fs, 400)
}

impl Buffer {
    fn argument(self) -> String {
        match self {
            Self::Residue(residue) => residue.to_string(),
            Self::Map => "map".to_owned(),
        }
    }
}

/// Why a run has no figures.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TornError {
    /// The program did not end well.
    #[error("the trial of torn blocks failed: {0}")]
    Failed(String),
    /// Its line is no JSON.
    #[error("the trial of torn blocks printed no JSON: {0}")]
    NoFigures(#[from] serde_json::Error),
}

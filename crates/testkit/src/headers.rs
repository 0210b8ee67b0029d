//! What a power cut leaves of files that begin with a header: runs `trials/headers.c`, cuts, looks.
//!
//! It counts classes; which of them the engine must expect is the work of
//! docs/decisions/0004-first-headers.md. The tearing of one 4096-byte page by a real disk is not
//! seen here: the loop device writes whole pages.

use std::{
    collections::{BTreeMap, HashMap},
    fs, io,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{
    trial::Trial,
    volume::{Volume, VolumeError},
};

/// How many files of each kind and way ended in each class.
pub type Tally = BTreeMap<(String, Class), u64>;

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// The name is not there.
    Absent,
    /// No bytes.
    Empty,
    /// Fewer bytes than a header.
    Short,
    /// Zeros where the header should be, and nothing but zeros behind it.
    AllZeros,
    /// Zeros where the header should be, and data behind it: a lost header.
    LostHeader,
    /// One of the two header copies is not as written.
    PartialHeader,
    /// Both copies, no byte of data.
    HeaderOnly,
    /// Both copies, and zeros where data was written (first block).
    DataLost,
    /// Both copies and the first block.
    Whole,
    /// Bytes that nobody wrote.
    Foreign,
}

/// One cut: makes files for `load`, cuts, mounts again, and classifies every file that was made.
///
/// # Errors
/// When the trial cannot start, the volume cannot be cut or mounted, or a synced file is damaged.
pub fn cut_once(
    trial: &Trial,
    volume: &mut Volume,
    seed: u32,
    load: Duration,
) -> Result<Tally, HeadersError> {
    let directory = volume.root().join(seed.to_string());
    fs::create_dir(&directory)?;
    fs::File::open(volume.root())?.sync_all()?;
    let mut program = Command::new(trial.program())
        .arg(&directory)
        .arg(seed.to_string())
        .stdout(Stdio::piped())
        .spawn()?;
    let said = BufReader::new(program.stdout.take().ok_or(HeadersError::Silent)?);
    let cutting = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&cutting);
    let listener = thread::spawn(move || listen(said, &seen));
    thread::sleep(load);
    cutting.store(true, Ordering::SeqCst);
    volume.cut()?;
    let ended = program.wait()?;
    let made = listener.join().map_err(|_| HeadersError::Silent)?;
    if !ended.success() || made.is_empty() {
        return Err(HeadersError::Full);
    }
    volume.remount()?;
    let mut tally = Tally::new();
    for (name, synced) in &made {
        let (class, size) = classify(&directory.join(name))?;
        if let Some(promised) = synced
            && (size < *promised || !matches!(class, Class::Whole))
        {
            return Err(HeadersError::Broken { name: name.clone(), class, size });
        }
        let kind: Vec<&str> = name.splitn(3, '-').take(2).collect();
        let synced = if synced.is_some() { "synced" } else { "unsynced" };
        *tally.entry((format!("{} {synced}", kind.join(" ")), class)).or_default() += 1;
    }
    fs::remove_dir_all(&directory)?;
    Ok(tally)
}

/// The files that were made, with the size that fsync has promised, if it has.
///
/// A promise heard during the cut does not count: an fsync that overlaps the shutdown can return 0
/// on XFS (the aborted log leaves the inode unpinned, which looks like written), and a dead machine
/// says nothing.
fn listen(said: impl BufRead, cutting: &AtomicBool) -> HashMap<String, Option<u64>> {
    let mut made = HashMap::new();
    for line in said.lines().map_while(Result::ok) {
        let mut words = line.split(' ');
        let (Some(what), Some(name)) = (words.next(), words.next()) else { continue };
        let size = words.next().and_then(|size| size.parse().ok());
        let file = made.entry(name.to_owned()).or_insert(None);
        if what == "synced" && !cutting.load(Ordering::SeqCst) {
            *file = size;
        }
    }
    made
}

fn classify(path: &Path) -> io::Result<(Class, u64)> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Class::Absent, 0)),
        Err(error) => return Err(error),
    };
    let size = bytes.len() as u64;
    let Some((header, data)) = bytes.split_at_checked(HEADER) else {
        return Ok((if bytes.is_empty() { Class::Empty } else { Class::Short }, size));
    };
    let blank = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    let first = &data[..data.len().min(BLOCK)];
    let class = match header {
        _ if data.iter().any(|byte| !matches!(byte, 0 | 0xd3)) => Class::Foreign,
        header if blank(header) && blank(data) => Class::AllZeros,
        header if blank(header) => Class::LostHeader,
        header if !is_whole(header) => Class::PartialHeader,
        _ if data.is_empty() => Class::HeaderOnly,
        _ if first.len() < BLOCK || first.contains(&0) => Class::DataLost,
        _ => Class::Whole,
    };
    Ok((class, size))
}

fn is_whole(header: &[u8]) -> bool {
    header.iter().enumerate().all(|(at, byte)| match at {
        0..256 => *byte == 0xa1,
        512..768 => *byte == 0xb2,
        _ => *byte == 0,
    })
}

const HEADER: usize = 4096;
const BLOCK: usize = 8192;

/// Why a cut has no tally.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeadersError {
    /// The volume failed.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// A file could not be read or removed.
    #[error("the files of the trial could not be read: {0}")]
    Files(#[from] io::Error),
    /// The program's output was lost.
    #[error("the trial of first headers said nothing")]
    Silent,
    /// The program ended for another reason than the cut.
    #[error("the trial of first headers ended before the cut, or the volume is full")]
    Full,
    /// fsync promised more than the volume kept.
    #[error("{name} was synced and is {class:?} with {size} bytes after the cut")]
    Broken {
        /// The file.
        name: String,
        /// What it is now.
        class: Class,
        /// How long it is now.
        size: u64,
    },
}

//! Reads a file of a directory whose owner may put anything in its place at any moment.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use tidelock_format::{Header, PROBE_LEN, Probe};

/// More of a text is not read.
const LONGEST: u64 = 1 << 20;

/// How a file begins; nothing of it is proven.
///
/// # Errors
/// The system's.
pub(crate) fn probe(path: &Path) -> io::Result<Probe> {
    let mut first = [0u8; PROBE_LEN];
    let count = read_first(&open_file(path, OFlags::RDONLY)?, &mut first)?;
    Ok(Probe::parse(first.get(..count).unwrap_or_default()))
}

/// The header of a file, if it has one; the fields only, not verified.
pub(crate) fn header(path: &Path) -> Option<Header> {
    probe(path).ok()?.likely().cloned()
}

/// True if a file never got a header, nor any data behind it.
///
/// # Errors
/// The system's.
pub(crate) fn is_all_zeros(path: &Path) -> io::Result<bool> {
    let file = open_file(path, OFlags::RDONLY)?;
    let mut piece = vec![0u8; 1 << 20];
    let mut at = 0;
    loop {
        let count = read_at(&file, &mut piece, at)?;
        let bytes = piece.get(..count).unwrap_or_default();
        let is_zero =
            if at == 0 { Probe::is_blank(bytes) } else { bytes.iter().all(|it| *it == 0) };
        if count == 0 || !is_zero {
            return Ok(is_zero);
        }
        at += count as u64;
    }
}

/// Opens a regular file and nothing else: who owns the directory may put a pipe in its place at any
/// moment, which nobody waits for, or a link, which [`OFlags::NOFOLLOW`] refuses.
///
/// # Errors
/// The system's; [`io::ErrorKind::InvalidInput`] for what is no regular file.
pub(crate) fn open_file(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    }
}

/// The text of a file that people or a server write, as far as it has any length that these have.
///
/// # Errors
/// As [`open_file`].
pub(crate) fn read_small(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    open_file(path, OFlags::RDONLY)?.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads from the start of a file until `into` is full or the file ends.
///
/// # Errors
/// The system's.
pub(crate) fn read_first(file: &File, into: &mut [u8]) -> io::Result<usize> {
    read_at(file, into, 0)
}

/// Reads at an offset until `into` is full or the file ends.
///
/// # Errors
/// The system's.
pub(crate) fn read_at(file: &File, into: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, at + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Err(why),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_text_that_is_no_regular_file_is_not_waited_for() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        let mode = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, mode, 0)
            .unwrap();
        symlink("/dev/zero", at("endless")).unwrap();
        for name in ["pipe", "endless"] {
            assert!(read_small(&at(name)).is_err() && probe(&at(name)).is_err(), "{name}");
        }
        fs::write(at("text"), b"caf\xe9\n").unwrap();
        assert_eq!(read_small(&at("text")).unwrap(), "caf\u{fffd}\n");
    }
}

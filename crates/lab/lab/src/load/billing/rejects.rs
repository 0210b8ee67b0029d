//! FILE.rejected: line number, reason and the line itself, tab-separated, as the database has them.
//!
//! The database is the truth, since it takes a rejected line in the transaction of its batch; the
//! file is made from it whenever its market file was read on, and again at each start. `cut -f3-`
//! gives back the lines, to be put right and loaded as another file. A file of the user's by this
//! name stays.

use std::fs;
use std::io::{BufWriter, ErrorKind, Write as _};
use std::path::Path;

use super::error::{Error, Result};
use super::made::Made;
use super::store::Rejected;

/// Writes the rejected lines of `file`, or removes the file if there are none.
///
/// # Errors
/// [`Error::NotOurs`]; when it cannot be written.
pub(super) fn write(file: &Path, rejected: &[Rejected]) -> Result<()> {
    let dir = file.parent().unwrap_or(Path::new(""));
    let market = file.file_name().unwrap_or_default().to_string_lossy();
    let name = format!("{market}.rejected");
    let path = dir.join(&name);
    let mut made = Made::read(dir)?;
    if rejected.is_empty() && !made.has(&name) {
        return Ok(());
    }
    if rejected.is_empty() {
        return match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                Err(Error::io(format!("removing {}", path.display()))(e))
            }
            _ => Ok(()),
        };
    }
    let partial_name = format!("{name}.partial");
    let partial = dir.join(&partial_name);
    made.claim(&[name, partial_name])?;
    let write = || {
        let mut out = BufWriter::new(fs::File::create(&partial)?);
        for Rejected { line, reason, bytes } in rejected {
            write!(out, "{line}\t{reason}\t")?;
            out.write_all(bytes)?;
            out.write_all(b"\n")?;
        }
        out.into_inner()?.sync_all()?;
        fs::rename(&partial, &path)
    };
    write().map_err(Error::io(format!("writing {}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected() -> [Rejected; 1] {
        [Rejected { line: 2, reason: "fields".into(), bytes: b"x".to_vec() }]
    }

    #[test]
    fn a_file_of_the_user_s_is_neither_replaced_nor_removed() {
        let dir = tempfile::tempdir().unwrap();
        let market = dir.path().join("a.csv");
        for name in ["a.csv.rejected", "a.csv.rejected.partial"] {
            let theirs = dir.path().join(name);
            fs::write(&theirs, "notes").unwrap();
            let error = write(&market, &rejected()).unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
            write(&market, &[]).unwrap();
            assert_eq!(fs::read_to_string(&theirs).unwrap(), "notes");
            fs::remove_file(&theirs).unwrap();
        }
        write(&market, &rejected()).unwrap();
        let path = dir.path().join("a.csv.rejected");
        assert_eq!(fs::read_to_string(&path).unwrap(), "2\tfields\tx\n");
        write(&market, &[]).unwrap();
        assert!(!path.exists());
    }
}

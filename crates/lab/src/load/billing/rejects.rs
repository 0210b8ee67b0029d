//! FILE.rejected: line number, reason and the line itself, tab-separated, as the database has them.
//!
//! The database is the truth, since it takes a rejected line in the transaction of its batch; the file
//! is made from it whenever its market file was read on, and anew at each start. `cut -f3-` gives back
//! the lines, to be put right and loaded as another file.

use std::fs;
use std::io::{BufWriter, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use super::error::{Error, Result};
use super::store::Rejected;

/// `FILE.rejected`.
pub(super) fn path(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".rejected");
    name.into()
}

/// Writes the rejected lines of `file`, or removes the file if there are none.
pub(super) fn write(file: &Path, rejected: &[Rejected]) -> Result<()> {
    let path = path(file);
    if rejected.is_empty() {
        return match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                Err(Error::io(format!("removing {}", path.display()))(e))
            }
            _ => Ok(()),
        };
    }
    let partial = file.with_extension("rejected.partial");
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

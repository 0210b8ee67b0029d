//! `tidelock wal get`: restores one file, for PostgreSQL's restore_command.
//!
//! Recovery takes a command that ends with 1 to 125 for "there is no more WAL", and comes up. So 1
//! is for a file that is not there, and for nothing else. All other failures end with more than
//! 125, at which recovery stops: a damaged file, an archive that is not mounted, or a key service
//! that does not answer must not cost the transactions behind it.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::error::{Error, Result};
use crate::folder::Entry;
use crate::sealed::Mac;
use crate::wal::fresh::Fresh;
use crate::wal::name::WalName;
use crate::wal::place::{Archive, ArchiveOptions, Form, Node};
use crate::wal::source::Source;
use crate::wal::through;

/// Added to the exit code of a failure. PostgreSQL stops recovery above 125; only 143 (SIGTERM)
/// means something else to it.
const STOPS: u8 = 200;
/// The file is not in the archive.
const NOT_THERE: u8 = 1;

/// Restore a file of WAL: restore_command = 'tidelock wal get %f %p ARCHIVE'
#[derive(clap::Args)]
#[command(after_help = "Ends with 0 once the file is in place, and with 1 if it is not in the \
                        archive. Any other failure ends with 200 and the usual code, at which \
                        PostgreSQL stops recovery instead of taking it for the end of WAL.")]
pub(crate) struct Get {
    /// The name in the archive
    name: OsString,
    /// Where it goes: sealed under the keys of the data directory in which it lies, if that is
    /// protected
    target: PathBuf,
    #[command(flatten)]
    archive: ArchiveOptions,
    /// With --through: the exit code by which COMMAND says that the file is not there
    #[arg(long, value_name = "CODE", default_value_t = 1, requires = "through")]
    not_there: u8,
}

/// True if `wal get` was typed: a mistake in it must stop recovery too.
pub(crate) fn is_get() -> bool {
    let mut words = std::env::args_os().skip(1);
    words.next().is_some_and(|word| word == "wal") && words.next().is_some_and(|word| word == "get")
}

/// The exit code of a failure of `wal get`.
pub(crate) const fn stops(code: u8) -> u8 {
    STOPS.saturating_add(code)
}

/// What pg_receivewal writes with -Z. PostgreSQL would take a missing segment for the end of WAL.
fn refuse_compressed(archive: &Archive, name: &WalName) -> Result<()> {
    for ending in ["gz", "lz4", "zst"] {
        let file = format!("{name}.{ending}");
        if archive.folder.entry(&file).exists()? {
            return Err(Error::refused(
                format!("{} is there compressed, as {file}", name),
                "decompress it there: `tidelock cat FILE | gunzip`, then `tidelock wal put`",
            ));
        }
    }
    Ok(())
}

impl Get {
    /// # Errors
    /// The file is damaged, a keyring does not open, it cannot be read or written.
    pub(crate) fn run(self) -> Result<ExitCode> {
        let name = WalName::parse(&self.name).ok_or_else(|| {
            Error::usage(
                format!("\"{}\" is no name of a file of WAL", self.name.display()),
                "restore_command = 'tidelock wal get %f %p ARCHIVE'",
            )
        })?;
        let restored = match self.restore(&name) {
            // The archive's keyring may have been changed since its keys were taken.
            Err(Error::BadKey { .. }) => self.restore(&name)?,
            done => done?,
        };
        if restored {
            return Ok(ExitCode::SUCCESS);
        }
        // A standby asks again and again: its log need not hear of it.
        if std::io::stderr().is_terminal() {
            tidelock_console::fail(format!("{name} is not in the archive"), "see what is there");
        }
        Ok(ExitCode::from(NOT_THERE))
    }

    /// False if it is not there.
    fn restore(&self, name: &WalName) -> Result<bool> {
        let node = Node::around(&self.target)?;
        let archive = Archive::open(&self.archive, node.server)?;
        let target = Entry::of(&self.target)?;
        let file = self.target.file_name().unwrap_or_default().to_string_lossy();
        let want = node.want(&self.target);
        if let Some(command) = &self.archive.through {
            let keys = archive.stream_keys()?;
            let mut fresh = Fresh::new(target.folder(), &file)?;
            if !through::get(command, self.not_there, name, keys, (&mut fresh, want))? {
                return Ok(false);
            }
            fresh.replace()?;
            return Ok(true);
        }
        let stored = archive.want(name.as_str(), node.keys());
        let Some(mut source) = Source::open_in(&archive.folder, name.as_str(), stored)? else {
            // Without a keyring nothing else tells an archive from an empty mount point.
            if matches!(archive.form, Form::Plain) && archive.folder.names()?.is_empty() {
                return Err(Error::refused(
                    format!("{} is empty", archive.folder.path().display()),
                    "is it mounted? an archive from which WAL is restored has some",
                ));
            }
            refuse_compressed(&archive, name)?;
            return Ok(false);
        };
        source.refuse_unless_wal(name)?;
        let mut fresh = Fresh::new(target.folder(), &file)?;
        fresh.fill(&mut source, want, Mac::Header)?;
        fresh.replace()?;
        Ok(true)
    }
}

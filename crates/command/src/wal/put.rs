//! `tidelock wal put`: archives one file, for PostgreSQL's archive_command.
//!
//! PostgreSQL asks for the same file again after a crash. So a file that is there already is
//! compared: the same content is success, other content is refused, and nothing is overwritten.
//!
//! PostgreSQL writes the history of a base backup without a sync, so a power cut may leave it empty
//! or torn. Nobody reads it to recover, and without it the server would archive nothing more: then
//! an empty file takes its place.

use std::path::{Path, PathBuf};

use crate::console;
use crate::error::{Error, Result};
use crate::sealed::Mac;
use crate::wal::fresh::{Fresh, Published};
use crate::wal::name::{Kind, WalName};
use crate::wal::place::{Archive, ArchiveOptions, Node};
use crate::wal::source::{CHUNK, Source};
use crate::wal::through;

/// Archive a file of WAL: archive_command = 'tidelock wal put %p ARCHIVE'
#[derive(clap::Args)]
#[command(after_help = "Ends with 0 once the file is in the archive and on its disk. The same \
                        file may be archived again; other bytes under the name of an archived \
                        file are refused.")]
pub(crate) struct Put {
    /// The file, in a data directory, sealed or not; its name becomes that in the archive
    file: PathBuf,
    #[command(flatten)]
    archive: ArchiveOptions,
}

impl Put {
    /// # Errors
    /// The file is no WAL, or damaged; the archive has another one of this name; a keyring does not
    /// open; it cannot be written.
    pub(crate) fn run(self) -> Result<()> {
        let name = name_of(&self.file)?;
        let node = Node::around(&self.file)?;
        let archive = Archive::open(&self.archive, node.server)?;
        let (mut source, torn) = self.source(&name, &node)?;
        if let Some(command) = &self.archive.through {
            return through::put(command, &name, &mut source, archive.stream_keys()?);
        }
        archive.refuse_decrypted()?;
        let want = archive.want(name.as_str(), node.keys());
        if let Some(there) = Source::open_in(&archive.folder, name.as_str(), want)? {
            accept_same(&archive, there, source, torn)?;
            return archive.refuse_converted(&self.archive);
        }
        let mut fresh = Fresh::new(&archive.folder, name.as_str())?;
        fresh.fill(&mut source, want, Mac::WholeFile)?;
        match fresh.publish()? {
            Published::Done => archive.refuse_converted(&self.archive),
            Published::Taken => {
                source.rewind()?;
                match Source::open_in(&archive.folder, name.as_str(), want)? {
                    Some(there) => {
                        accept_same(&archive, there, source, torn)?;
                        archive.refuse_converted(&self.archive)
                    }
                    None => Err(Error::refused(
                        format!("{} vanished from the archive meanwhile", name),
                        "see who removes files there; the server tries again",
                    )),
                }
            }
        }
    }

    /// The file, and whether it is a history of a base backup that is no good.
    fn source(&self, name: &WalName, node: &Node) -> Result<(Source, bool)> {
        let opened = Source::open(&self.file, node.want(&self.file)).and_then(|mut source| {
            source.refuse_unless_wal(name)?;
            Ok(source)
        });
        let why = match opened {
            Err(Error::Verification { what, .. }) if name.kind() == Kind::Backup => what,
            Ok(source) if name.kind() == Kind::Backup && source.size() == 0 => {
                format!("{}: it is empty", self.file.display())
            }
            opened => return Ok((opened?, false)),
        };
        console::warn(
            why,
            "a power cut has left it so; recovery does without it: an empty file is archived",
        );
        Ok((Source::empty(&self.file), true))
    }
}

fn name_of(file: &Path) -> Result<WalName> {
    file.file_name().and_then(WalName::parse).ok_or_else(|| {
        Error::refused(
            format!("{} does not have the name of a file of WAL", file.display()),
            "archive what the server names: archive_command = 'tidelock wal put %p ARCHIVE'",
        )
    })
}

/// An earlier run may have been cut off before it made the name last. What is torn here may have
/// been archived whole.
fn accept_same(archive: &Archive, mut there: Source, mut source: Source, torn: bool) -> Result<()> {
    if !torn && !is_same(&mut there, &mut source)? {
        return Err(Error::refused(
            format!(
                "{} is in the archive already, with other content than {}",
                there.path().display(),
                source.path().display()
            ),
            "nothing was overwritten: does another server archive to the same place?",
        ));
    }
    there.sync()?;
    archive.folder.sync()
}

fn is_same(there: &mut Source, source: &mut Source) -> Result<bool> {
    if there.size() != source.size() {
        return Ok(false);
    }
    let (mut ours, mut theirs) = (vec![0u8; CHUNK], vec![0u8; CHUNK]);
    let mut same = true;
    loop {
        let (have, found) = (source.next(&mut ours)?, there.next(&mut theirs)?);
        same &= ours.get(..have) == theirs.get(..found);
        // To the end in any case: there it shows whether either is damaged.
        if have == 0 {
            return Ok(same);
        }
    }
}

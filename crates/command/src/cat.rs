//! `tidelock cat`: the plain bytes of a sealed file, also of one that was copied out of a backup.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use tidelock_contract::Decision;
use tidelock_format::{BLOCK, Form, PlainSize, UNIT};
use tidelock_keyring::{Keyring, SealedKeyring};
use tidelock_providers::known;

use crate::console;
use crate::error::{Error, Result};
use crate::keyring;
use crate::pipe::unseal;
use crate::protected::Protected;
use crate::sealed::{Content, Fault, Keys, SealedFile, Wanted};
use crate::unlock::KeyOptions;

const CHUNK: usize = 1024 * 1024;
/// How often a followed file is looked at.
const PAUSE: Duration = Duration::from_millis(200);

/// Print the plain bytes of a sealed file
#[derive(clap::Args)]
pub(crate) struct Cat {
    /// A sealed file, in its directory or copied from it
    file: PathBuf,
    /// Go on as the file grows, until interrupted
    #[arg(short, long)]
    follow: bool,
    /// The protected directory, if the file does not lie in it
    #[arg(short = 'D', long = "directory", value_name = "DIR", conflicts_with = "keyring")]
    dir: Option<PathBuf>,
    /// A copy of the keyring, for a file out of a backup
    #[arg(long, value_name = "FILE")]
    keyring: Option<PathBuf>,
    #[command(flatten)]
    keys: KeyOptions,
}

impl Cat {
    /// # Errors
    /// The keyring does not open; the file is not sealed, or damaged.
    pub(crate) fn run(self) -> Result<()> {
        let file = File::open(&self.file).map_err(Error::io("open", &self.file))?;
        if !file.metadata().map_err(Error::io("look at", &self.file))?.is_file() {
            return Err(Error::refused(
                format!("{} is not a regular file", self.file.display()),
                "name a sealed file",
            ));
        }
        let (keyring, dir) = self.unlock()?;
        let wanted = self.wanted(&keyring, dir.as_deref());
        let keys = Keys::install(&keyring)?;
        let open = || {
            let again = file.try_clone().map_err(Error::io("open", &self.file))?;
            keys.open(again, wanted).map_err(|fault| self.explain(fault))
        };
        let mut content = open()?;
        while self.follow && !matches!(content, Content::Sealed(_)) {
            sleep(PAUSE);
            content = open()?;
        }
        match content {
            Content::Empty => Ok(()),
            Content::Blank(size) => console::finish_output(zeros(size)),
            Content::Sealed(sealed) if sealed.header.form == Form::Stream => {
                unseal(&mut &file, &keys, &mut io::stdout().lock()).map(drop)
            }
            Content::Sealed(sealed) => {
                console::finish_output(self.copy(&sealed))?;
                self.look_at_end(&sealed)
            }
        }
    }

    /// What the place of the file wants of it, if that can be told; a stream is no file, wherever
    /// it lies.
    fn wanted(&self, keyring: &Keyring, dir: Option<&Path>) -> Wanted {
        let Some(dir) = dir else { return Wanted::Any };
        let real = std::fs::canonicalize(&self.file).ok();
        let typed = std::path::absolute(&self.file).ok();
        let name = [real, typed].into_iter().flatten().find_map(|path| {
            path.strip_prefix(dir).ok().map(|name| name.as_os_str().as_bytes().to_vec())
        });
        match name.map(|name| keyring.policy().decide(&name)) {
            Some(Decision::Seal(class)) => Wanted::File(class),
            // Where files are plain, the library too goes by the header alone.
            Some(Decision::Plain(_)) | None => Wanted::Any,
        }
    }

    /// All that can be given was given; whether that is all that was written is said now.
    fn look_at_end(&self, sealed: &SealedFile) -> Result<()> {
        let whole = sealed.check_whole().map_err(Error::io("read", &self.file))?;
        if let Err(fault) = whole {
            return Err(Error::Verification {
                what: format!("{}: {fault}", self.file.display()),
                hint: "do not trust what was printed; compare it with another copy".to_owned(),
            });
        }
        for looks in 1.. {
            let faults = sealed.end().map_err(Error::io("read", &self.file))?;
            let Some(fault) = faults.first() else { break };
            // A server may be between two calls.
            if looks < 4 {
                sleep(PAUSE / 4);
                continue;
            }
            return Err(Error::Verification {
                what: format!("{}: {fault}", self.file.display()),
                hint: "what was printed is what is left; compare it with a backup".to_owned(),
            });
        }
        Ok(())
    }

    /// The keyring, and the directory that it belongs to, if it lies in one.
    fn unlock(&self) -> Result<(Keyring, Option<PathBuf>)> {
        let protected = match (&self.keyring, &self.dir) {
            (Some(copy), _) => return Ok((unlock_copy(&self.keys, copy)?, None)),
            (None, Some(dir)) => Protected::open(dir)?,
            (None, None) => Protected::around(&self.file)?,
        };
        Ok((self.keys.unlock(&protected)?, Some(protected.path)))
    }

    fn copy(&self, sealed: &SealedFile) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let mut chunk = vec![0u8; CHUNK];
        let mut done = 0;
        loop {
            let size = sealed.plain_size()?;
            if size.0 < done {
                // Truncated, as a log is when it starts again.
                done = 0;
            }
            while done < size.0 {
                let from = done - done % UNIT;
                let count = self.read(sealed, from, size, &mut chunk)?;
                let fresh = usize::try_from(done - from).unwrap_or(count);
                match chunk.get(fresh..count).filter(|bytes| !bytes.is_empty()) {
                    Some(bytes) => out.write_all(bytes)?,
                    // It was cut meanwhile.
                    None => break,
                }
                done = from + count as u64;
            }
            out.flush()?;
            if !self.follow {
                return Ok(());
            }
            sleep(PAUSE);
        }
    }

    /// A block that is being written may be seen half: what is read twice alike is whole.
    fn read(
        &self,
        sealed: &SealedFile,
        from: u64,
        size: PlainSize,
        chunk: &mut [u8],
    ) -> io::Result<usize> {
        let mut count = sealed.read_plain(from, size, chunk)?;
        let ends_here = from + count as u64 == size.0;
        if !self.follow || !ends_here || count == 0 {
            return Ok(count);
        }
        let unit = (count as u64 - 1) / UNIT * UNIT;
        let mut again = vec![0u8; usize::try_from(UNIT + BLOCK).unwrap_or(CHUNK)];
        loop {
            let second = sealed.read_plain(from + unit, size, &mut again)?;
            let start = usize::try_from(unit).unwrap_or(0);
            if chunk.get(start..count) == again.get(..second) {
                return Ok(count);
            }
            count = sealed.read_plain(from, size, chunk)?;
            if count <= start {
                return Ok(count);
            }
        }
    }

    fn explain(&self, fault: Fault) -> Error {
        let what = format!("{}: {fault}", self.file.display());
        match fault {
            Fault::NotSealed => Error::refused(
                what,
                "read it with any other program; `tidelock verify` tells whether it should be \
                 sealed",
            ),
            Fault::Stream => Error::refused(what, "tidelock unseal -D DIR < FILE"),
            Fault::Policy { .. } | Fault::Layout { .. } => Error::refused(
                what,
                "move it back to where it was, or read a copy elsewhere with --keyring FILE",
            ),
            Fault::Read(source) => Error::io("read", &self.file)(source),
            Fault::UnknownKey { .. } => Error::BadKey {
                what,
                hint: "name the keyring that has it: -D DIR, or --keyring FILE".to_owned(),
            },
            Fault::RolledBack { .. } => Error::BadKey {
                what,
                hint: "restore the newest keyring with `tidelock keyring restore`".to_owned(),
            },
            _ => Error::Verification { what, hint: "restore the file from a backup".to_owned() },
        }
    }
}

/// A file that was made longer and never written.
fn zeros(size: PlainSize) -> io::Result<()> {
    io::copy(&mut io::repeat(0).take(size.0), &mut io::stdout().lock()).map(drop)
}

/// Unlocks a copy of a keyring with what is configured for its id.
///
/// # Errors
/// [`Error::Locked`].
pub(crate) fn unlock_copy(keys: &KeyOptions, copy: &Path) -> Result<Keyring> {
    let bytes = keyring::read(copy)?;
    let sealed = SealedKeyring::parse(&bytes)
        .and_then(known)
        .map_err(|source| Error::Locked { dir: copy.into(), source })?;
    keys.unlock_copy(&sealed, copy)
}

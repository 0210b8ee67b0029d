//! `tidelock seal` and `tidelock unseal`: a stream in the format of sealed files, and back.
//!
//! A sealed stream is a sealed file of class bytes: what `seal` writes into a file, `cat` reads. Its end
//! tells its size, so a stream that is cut at a multiple of 16 bytes looks whole; the archive in it must
//! tell (tar, gzip and pg_restore do).

use std::io::{self, IsTerminal, Read, Write};
use std::path::PathBuf;

use tidelock_format::{BLOCK_USIZE, Class, DiskSize, Header, PROBE_LEN, Probe, UNIT_USIZE};
use tidelock_keys::Keyring;

use crate::cat::unlock_copy;
use crate::console;
use crate::error::{Error, Result};
use crate::protected::Protected;
use crate::sealed::{self, Fault, Keys};
use crate::unlock::KeyOptions;

/// Sealed at once: whole units.
const CHUNK: usize = 64 * UNIT_USIZE;
/// Behind the last whole chunk the end of a stream is told by at most so many bytes.
const AHEAD: usize = 2 * BLOCK_USIZE;

/// Whose keys a stream has.
#[derive(clap::Args)]
pub(crate) struct Whose {
    /// The protected directory whose keys are used
    #[arg(short = 'D', long = "directory", value_name = "DIR", env = "PGDATA")]
    #[arg(required_unless_present = "keyring")]
    dir: Option<PathBuf>,
    /// A copy of a keyring instead
    #[arg(long, value_name = "FILE", conflicts_with = "dir")]
    keyring: Option<PathBuf>,
    #[command(flatten)]
    keys: KeyOptions,
}

/// Seal standard input to standard output under a directory's keys
#[derive(clap::Args)]
pub(crate) struct Seal {
    #[command(flatten)]
    whose: Whose,
}

/// Unseal standard input to standard output
#[derive(clap::Args)]
pub(crate) struct Unseal {
    #[command(flatten)]
    whose: Whose,
}

impl Whose {
    fn unlock(&self) -> Result<Keyring> {
        match (&self.keyring, &self.dir) {
            (Some(copy), _) => unlock_copy(&self.keys, copy),
            (None, Some(dir)) => self.keys.unlock(&Protected::open(dir)?),
            (None, None) => Err(Error::usage("no directory is named", "name one with -D DIR")),
        }
    }
}

impl Seal {
    /// # Errors
    /// The keyring does not open; the stream cannot be read or written.
    pub(crate) fn run(self) -> Result<()> {
        if io::stdout().is_terminal() {
            return Err(Error::refused(
                "sealed bytes are not for a terminal",
                "send them to a file or pipe: tidelock seal -D DIR > FILE",
            ));
        }
        let keys = Keys::install(&self.whose.unlock()?)?;
        let (header, _) = keys.create(Class::Bytes).map_err(broken)?;
        let mut input = io::stdin().lock();
        let mut out = io::stdout().lock();
        let mut write = |bytes: &[u8]| out.write_all(bytes).map_err(unwritten);
        write(&header)?;
        let mut chunk = vec![0u8; CHUNK];
        let mut at = 0;
        loop {
            let count = fill(&mut input, &mut chunk)?;
            let uneven = count % BLOCK_USIZE;
            let whole = count.next_multiple_of(BLOCK_USIZE);
            if let Some(padding) = chunk.get_mut(count..whole) {
                padding.fill(0);
            }
            write(&sealed::seal_body(at, chunk.get(..whole).unwrap_or_default(), uneven))?;
            if count < CHUNK {
                return console::finish_output(Ok(()));
            }
            at += count as u64;
        }
    }
}

impl Unseal {
    /// # Errors
    /// The keyring does not open; the stream is not sealed, changed or cut; it cannot be read or written.
    pub(crate) fn run(self) -> Result<()> {
        let keys = Keys::install(&self.whose.unlock()?)?;
        let mut input = io::stdin().lock();
        let header = read_header(&mut input, &keys)?;
        let mut out = io::stdout().lock();
        let mut held = vec![0u8; CHUNK + AHEAD];
        let (mut at, mut have) = (0, 0);
        loop {
            have += fill(&mut input, held.get_mut(have..).unwrap_or_default())?;
            if have < CHUNK + AHEAD {
                let end = last(&header, at, held.get_mut(..have).unwrap_or_default())?;
                return console::finish_output(out.write_all(end));
            }
            let chunk = held.get_mut(..CHUNK).unwrap_or_default();
            sealed::open_body(&header, at, chunk);
            if let Err(why) = out.write_all(chunk) {
                return console::finish_output(Err(why));
            }
            held.copy_within(CHUNK.., 0);
            (at, have) = (at + CHUNK as u64, AHEAD);
        }
    }
}

fn read_header(input: &mut impl Read, keys: &Keys) -> Result<Header> {
    let mut first = [0u8; PROBE_LEN];
    let count = fill(input, &mut first)?;
    let header =
        keys.admit(&Probe::parse(first.get(..count).unwrap_or_default())).map_err(broken)?;
    let rest = usize::try_from(header.layout.data_offset()).unwrap_or(PROBE_LEN) - PROBE_LEN;
    let mut gap = vec![0u8; rest];
    if count < PROBE_LEN || fill(input, &mut gap)? < rest {
        return Err(cut("it ends within its header"));
    }
    Ok(header)
}

/// The plain bytes of what remains of a stream.
fn last<'b>(header: &Header, at: u64, bytes: &'b mut [u8]) -> Result<&'b [u8]> {
    let size = DiskSize(u64::from(header.layout.data_offset()) + at + bytes.len() as u64);
    if !size.is_canonical(header.layout) {
        return Err(cut("no stream ends so"));
    }
    let plain = size.plain(header.layout);
    let within = |place: u64| usize::try_from(place.saturating_sub(at)).unwrap_or(usize::MAX);
    let (body, tail) = bytes.split_at_mut(within(plain.block_end()).min(bytes.len()));
    if tail.iter().any(|byte| *byte != 0) {
        return Err(cut("the bytes behind its last block are not zero"));
    }
    sealed::open_body(header, at, body);
    let (plain, padding) = body.split_at(within(plain.0).min(body.len()));
    if padding.iter().any(|byte| *byte != 0) {
        return Err(cut("its last block is not padded with zeros"));
    }
    Ok(plain)
}

/// Reads until `into` is full or the stream ends.
fn fill(input: &mut impl Read, into: &mut [u8]) -> Result<usize> {
    let mut done = 0;
    while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match input.read(rest) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Err(why) => return Err(Error::io("read", "standard input")(why)),
        }
    }
    Ok(done)
}

/// A reader that has gone is a failure here: the stream is not whole.
fn unwritten(why: io::Error) -> Error {
    Error::io("write to", "standard output")(why)
}

fn cut(why: &str) -> Error {
    Error::Verification {
        what: format!("the sealed stream is cut or changed: {why}"),
        hint: "do not use what was written; transfer the stream again".to_owned(),
    }
}

fn broken(fault: Fault) -> Error {
    let what = format!("standard input: {fault}");
    match fault {
        Fault::NotSealed => Error::refused(what, "it must be what `tidelock seal` wrote"),
        Fault::UnknownKey { .. } | Fault::RolledBack { .. } => Error::BadKey {
            what,
            hint: "name the keyring that has it: -D DIR, or --keyring FILE".to_owned(),
        },
        _ => Error::Verification { what, hint: "transfer the stream again".to_owned() },
    }
}

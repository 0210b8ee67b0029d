//! `tidelock seal` and `tidelock unseal`: a stream in the format of sealed files with an end mark,
//! and back.
//!
//! The mark holds a MAC over all that precedes it, so a stream that is cut or changed anywhere is
//! told at its end; what was written until then has left this process. With `--file`, `seal` writes
//! a file instead, whose size tells its end, as `exec` would.

use std::io::{self, IsTerminal, Read, Write};
use std::path::PathBuf;

use tidelock_cipher::StreamMac;
use tidelock_format::{
    BLOCK_USIZE, DiskSize, END_LEN, EndMark, Form, Header, HeaderError, PROBE_LEN, PlainSize,
    UNIT_USIZE,
};
use tidelock_keyring::Keyring;

use crate::cat::unlock_copy;
use crate::console;
use crate::error::{Error, Result};
use crate::protected::Protected;
use crate::sealed::{self, Fault, Keys, Wanted};
use crate::unlock::KeyOptions;

/// Sealed at once: whole units.
const CHUNK: usize = 64 * UNIT_USIZE;
/// Behind the last whole chunk the end of a body is told by at most so many bytes.
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
    /// Write the form of a file, for a protected directory: without the end mark, which servers
    /// cannot read
    #[arg(long)]
    file: bool,
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
        let new = if self.file { keys.create_file() } else { keys.create_stream() };
        seal(&mut io::stdin().lock(), new.map_err(broken)?, &mut io::stdout().lock())?;
        console::finish_output(Ok(()))
    }
}

/// Seals `input` to `out` as a stream with an end mark.
///
/// # Errors
/// It cannot be read or written.
pub(crate) fn seal_stream(input: &mut impl Read, keys: &Keys, out: &mut impl Write) -> Result<()> {
    seal(input, keys.create_stream().map_err(broken)?, out)
}

/// Seals `input` behind a fresh header, with an end mark if that is one of a stream.
fn seal(
    input: &mut impl Read,
    (region, header): (Vec<u8>, Header),
    out: &mut impl Write,
) -> Result<()> {
    let mut mac = mac_of(&header)?;
    let mut write = |bytes: &[u8], mac: &mut Option<StreamMac>| {
        if let Some(mac) = mac {
            mac.update(bytes);
        }
        out.write_all(bytes).map_err(unwritten)
    };
    write(&region, &mut mac)?;
    let mut chunk = vec![0u8; CHUNK];
    let mut at = 0;
    loop {
        let count = fill(input, &mut chunk)?;
        let cut = count % BLOCK_USIZE;
        let whole = count.next_multiple_of(BLOCK_USIZE);
        if let Some(padding) = chunk.get_mut(count..whole) {
            padding.fill(0);
        }
        let body = sealed::seal_body(at, chunk.get(..whole).unwrap_or_default(), cut);
        write(&body, &mut mac)?;
        at += count as u64;
        if count < CHUNK {
            break;
        }
    }
    match mac {
        Some(mac) => write(&mac.end(PlainSize(at)).to_bytes(), &mut None),
        None => Ok(()),
    }
}

impl Unseal {
    /// # Errors
    /// The keyring does not open; the stream is not sealed, changed or cut; it cannot be read or
    /// written.
    pub(crate) fn run(self) -> Result<()> {
        let keys = Keys::install(&self.whose.unlock()?)?;
        let form = unseal(&mut io::stdin().lock(), &keys, &mut io::stdout().lock())?;
        if form == Form::File {
            console::warn(
                "the stream has no end mark, like those of earlier versions: a cut would not be \
                 noticed",
                "test the archive in it (gzip -t, tar -t, pg_restore -l)",
            );
        }
        Ok(())
    }
}

/// Writes the plain bytes of a sealed stream to `out`, standard output; whether it had an end mark.
///
/// # Errors
/// The stream is not sealed, changed or cut; it cannot be read or written.
pub(crate) fn unseal(input: &mut impl Read, keys: &Keys, out: &mut impl Write) -> Result<Form> {
    let (header, region) = read_header(input, keys)?;
    let mut mac = mac_of(&header)?;
    if let Some(mac) = &mut mac {
        mac.update(&region);
    }
    let ahead = AHEAD + if mac.is_some() { END_LEN } else { 0 };
    let mut held = vec![0u8; CHUNK + ahead];
    let (mut at, mut have, mut gone) = (0, 0, false);
    loop {
        have += fill(input, held.get_mut(have..).unwrap_or_default())?;
        if have < CHUNK + ahead {
            let end = last(&header, at, held.get_mut(..have).unwrap_or_default(), mac)?;
            put(out, end, &mut gone)?;
            return Ok(header.form);
        }
        let chunk = held.get_mut(..CHUNK).unwrap_or_default();
        if let Some(mac) = &mut mac {
            mac.update(chunk);
        }
        refuse_zeros(chunk)?;
        sealed::open_body(&header, at, chunk);
        put(out, chunk, &mut gone)?;
        // A reader that has seen enough has believed what it saw: a stream is still proven.
        if gone && mac.is_none() {
            return Ok(header.form);
        }
        held.copy_within(CHUNK.., 0);
        (at, have) = (at + CHUNK as u64, ahead);
    }
}

/// Writes to a reader until it is `gone`.
fn put(out: &mut impl Write, bytes: &[u8], gone: &mut bool) -> Result<()> {
    if *gone {
        return Ok(());
    }
    let written = out.write_all(bytes);
    *gone = written.is_err();
    console::finish_output(written)
}

/// The MAC of a stream at its beginning; a file has none.
fn mac_of(header: &Header) -> Result<Option<StreamMac>> {
    match header.form {
        Form::File => Ok(None),
        Form::Stream => match sealed::stream_mac(header) {
            Some(mac) => Ok(Some(mac)),
            None => Err(broken(Fault::Mac)),
        },
    }
}

/// The header, and all bytes up to the data offset.
fn read_header(input: &mut impl Read, keys: &Keys) -> Result<(Header, Vec<u8>)> {
    let mut region = vec![0u8; PROBE_LEN];
    let count = fill(input, &mut region)?;
    let first = region.get(..count).unwrap_or_default();
    if first.is_empty() {
        return Err(cut("it is empty"));
    }
    let header = match keys.admit(first, Wanted::Any) {
        Err(Fault::Header(HeaderError::Truncated)) => return Err(cut("it ends within its header")),
        admitted => admitted.map_err(broken)?,
    };
    region.resize(usize::try_from(header.layout.data_offset()).unwrap_or(PROBE_LEN), 0);
    let gap = region.get_mut(PROBE_LEN..).unwrap_or_default();
    if count < PROBE_LEN || fill(input, gap)? < gap.len() {
        return Err(cut("it ends within its header"));
    }
    Ok((header, region))
}

/// The plain bytes of what remains of a stream, once its end mark is right.
fn last<'b>(
    header: &Header,
    at: u64,
    bytes: &'b mut [u8],
    mac: Option<StreamMac>,
) -> Result<&'b [u8]> {
    let (bytes, mark) = match &mac {
        None => (bytes, None),
        Some(_) => {
            let Some((body, mark)) = bytes.split_last_chunk_mut::<END_LEN>() else {
                return Err(cut("its end mark is missing"));
            };
            match EndMark::parse(mark) {
                Some(mark) => (body, Some(mark)),
                None => return Err(cut("its end mark is missing")),
            }
        }
    };
    let size = DiskSize(u64::from(header.layout.data_offset()) + at + bytes.len() as u64);
    let plain = size.plain(header.layout);
    if let (Some(mut mac), Some(mark)) = (mac, mark) {
        mac.update(bytes);
        mac.check(plain, &mark).map_err(|why| cut(&why.to_string()))?;
    }
    if !size.is_canonical(header.layout) {
        return Err(cut("it does not end as a stream does"));
    }
    let within = |place: u64| usize::try_from(place.saturating_sub(at)).unwrap_or(usize::MAX);
    let (body, tail) = bytes.split_at_mut(within(plain.block_end()).min(bytes.len()));
    refuse_zeros(body)?;
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

/// A stream has no holes: all of it was sealed.
fn refuse_zeros(body: &[u8]) -> Result<()> {
    let zero = |block: &[u8; BLOCK_USIZE]| u128::from_ne_bytes(*block) == 0;
    if body.as_chunks().0.iter().any(zero) {
        return Err(cut("it has zeros where sealed bytes must be"));
    }
    Ok(())
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
        hint: "do not trust what was written; transfer the stream again".to_owned(),
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

#[cfg(test)]
mod tests;

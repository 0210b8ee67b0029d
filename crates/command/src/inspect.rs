//! `tidelock inspect`: what the header of a sealed file says, or the open part of a keyring. Needs
//! no key, and so believes nothing: MACs are what `verify` checks.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use data_encoding::HEXLOWER;
use serde::Serialize;
use tidelock_format::{
    COPY_LEN, DiskSize, Form, Front, Header, HeaderCopy, HeaderError, PROBE_LEN, Probe,
    SECOND_COPY_AT, VERSION, ZeroRule,
};
use tidelock_keyring::{Kdf, SealedKeyring, Wrapping};
use tidelock_providers::known;

use crate::console;
use crate::error::{Error, Result};

/// A keyring is no longer.
const MAX_KEYRING: u64 = 1024 * 1024;
/// What is said of a first copy that a journal of SQLite does not have.
const FRONT: &str = "left out, so that SQLite without keys does not remove the file";
const KEYRING_MAGIC: &[u8] = b"TDLKRING";

/// Show the header of a sealed file, or of a keyring; needs no key
#[derive(clap::Args)]
pub(crate) struct Inspect {
    /// A sealed file, or a keyring
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct FileReport {
    file: String,
    kind: &'static str,
    disk_size: u64,
    plain_size: Option<u64>,
    size_is_regular: Option<bool>,
    copies: Vec<CopyReport>,
}

#[derive(Serialize)]
struct CopyReport {
    offset: usize,
    #[serde(flatten)]
    state: CopyState,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum CopyState {
    Header(HeaderReport),
    Error(String),
}

#[derive(Serialize, PartialEq)]
struct HeaderReport {
    format_version: u16,
    cipher: &'static str,
    kdf: &'static str,
    class: &'static str,
    zero_rule: &'static str,
    data_offset: u32,
    unit: u64,
    sequence: u64,
    compatible_flags: u64,
    keyring: String,
    generation: u64,
    data_key: String,
    nonce: String,
    mac: String,
}

#[derive(Serialize)]
struct KeyringReport {
    file: String,
    kind: &'static str,
    keyring: String,
    generation: u64,
    slots: Vec<SlotReport>,
}

#[derive(Serialize)]
struct SlotReport {
    id: String,
    kind: &'static str,
    wrapping: &'static str,
    kdf: String,
    created: u64,
    reference: String,
}

impl Inspect {
    /// # Errors
    /// The file cannot be read, or is neither sealed nor a keyring.
    pub(crate) fn run(self) -> Result<()> {
        let file = File::open(&self.file).map_err(Error::io("open", &self.file))?;
        let metadata = file.metadata().map_err(Error::io("look at", &self.file))?;
        if !metadata.is_file() {
            return Err(Error::refused(
                format!("{} is not a regular file", self.file.display()),
                "name a sealed file, or the file `keyring` in .tidelock",
            ));
        }
        let mut bytes = Vec::new();
        file.take(MAX_KEYRING).read_to_end(&mut bytes).map_err(Error::io("read", &self.file))?;
        if bytes.starts_with(KEYRING_MAGIC) {
            return self.keyring(&bytes);
        }
        bytes.truncate(PROBE_LEN);
        self.sealed(&bytes, metadata.len())
    }

    fn sealed(&self, first: &[u8], size: u64) -> Result<()> {
        let probe = Probe::parse(first);
        let best = probe.likely();
        if probe.copies().next().is_none()
            && matches!(probe.error(), HeaderError::Magic | HeaderError::Truncated)
        {
            let what = format!("{} is not sealed: {}", self.file.display(), probe.error());
            return Err(Error::refused(
                what,
                "read it with any other program; `tidelock verify` tells whether it should be \
                 sealed",
            ));
        }
        let form = best.map_or(Form::File, |header| header.form);
        let layout = best.map(|header| header.layout).filter(|_| form == Form::File);
        let report = FileReport {
            file: self.file.display().to_string(),
            kind: match form {
                Form::File => "sealed file",
                Form::Stream => "sealed stream",
            },
            disk_size: size,
            plain_size: layout.map(|layout| DiskSize(size).plain(layout).0),
            size_is_regular: layout.map(|layout| DiskSize(size).is_canonical(layout)),
            copies: vec![
                match Front::is_meant(self.file.as_os_str().as_bytes(), first) {
                    true => CopyReport { offset: 0, state: CopyState::Error(FRONT.to_owned()) },
                    false => copy(0, &probe.first),
                },
                copy(SECOND_COPY_AT, &probe.second),
            ],
        };
        if self.json {
            return console::print_json("inspect", &report);
        }
        console::print(people(&report))
    }

    fn keyring(&self, bytes: &[u8]) -> Result<()> {
        let keyring = SealedKeyring::parse(bytes).and_then(known)?;
        let slots = keyring.slots().iter().map(|slot| SlotReport {
            id: slot.terms.id.to_string(),
            kind: slot.terms.kind.name(),
            wrapping: match slot.terms.wrapping {
                Wrapping::Direct => "here, AES-256-GCM",
                Wrapping::Remote => "by the provider",
            },
            kdf: kdf(slot.terms.kdf),
            created: slot.terms.created,
            reference: slot.terms.reference.clone(),
        });
        let report = KeyringReport {
            file: self.file.display().to_string(),
            kind: "keyring",
            keyring: keyring.id().to_string(),
            generation: keyring.generation().0,
            slots: slots.collect(),
        };
        if self.json {
            return console::print_json("inspect", &report);
        }
        let mut text =
            format!("keyring      {}\ngeneration   {}\n", report.keyring, report.generation);
        for slot in &report.slots {
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "slot         {} {}, made {}, wrapped {}{}",
                slot.id,
                slot.kind,
                console::time(slot.created),
                slot.wrapping,
                if slot.kdf == "none" { String::new() } else { format!(", {}", slot.kdf) },
            );
        }
        text.push_str("not checked  unlocking verifies all of it: `tidelock status -D DIR`\n");
        console::print(text)
    }
}

fn kdf(kdf: Kdf) -> String {
    match kdf {
        Kdf::None => "none".to_owned(),
        Kdf::Argon2id { memory, passes, lanes } => {
            format!("argon2id, {memory} KiB, {passes} passes, {lanes} lanes")
        }
        Kdf::Pbkdf2 { iterations } => format!("PBKDF2-HMAC-SHA-256, {iterations} iterations"),
    }
}

fn copy(offset: usize, found: &std::result::Result<HeaderCopy, HeaderError>) -> CopyReport {
    let fields = found.as_ref().map_err(|why| *why).and_then(|copy| {
        let fields = copy.fields.as_ref().map_err(|why| *why)?;
        Ok(header(fields, copy.signed().1))
    });
    let state = match fields {
        Ok(header) => CopyState::Header(header),
        Err(why) => CopyState::Error(why.to_string()),
    };
    CopyReport { offset, state }
}

fn header(header: &Header, mac: &[u8]) -> HeaderReport {
    HeaderReport {
        format_version: VERSION,
        cipher: "AES-256-XTS",
        kdf: "HKDF-Expand-SHA-256",
        class: header.class.name(),
        zero_rule: match header.zero_rule {
            ZeroRule::Block => "each 16-byte block of zeros reads as zeros",
            ZeroRule::Unit => "a unit of zeros reads as zeros",
        },
        data_offset: header.layout.data_offset(),
        unit: tidelock_format::UNIT,
        sequence: header.sequence,
        compatible_flags: header.compatible,
        keyring: header.keyring.to_string(),
        generation: header.generation.0,
        data_key: header.data_key.to_string(),
        nonce: header.nonce.to_string(),
        mac: HEXLOWER.encode(mac),
    }
}

/// The same for people; a second copy that is like the first is one line.
fn people(report: &FileReport) -> String {
    let mut text = String::new();
    let mut line = |label: &str, words: &dyn std::fmt::Display| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{label:<13}{words}");
    };
    let mut shown: Option<&HeaderReport> = None;
    for copy in &report.copies {
        match &copy.state {
            CopyState::Error(why) => line(&format!("copy at {}", copy.offset), why),
            CopyState::Header(header) if shown == Some(header) => {
                line(&format!("copy at {}", copy.offset), &"the same");
            }
            CopyState::Header(header) => {
                let end = copy.offset + COPY_LEN;
                line(&format!("copy at {}", copy.offset), &format!("good fields, ends at {end}"));
                line("version", &header.format_version);
                line("cipher", &format!("{}, units of {} bytes", header.cipher, header.unit));
                line("file key", &format!("{} of data key and nonce", header.kdf));
                line("class", &header.class);
                line("zero rule", &header.zero_rule);
                line("data offset", &header.data_offset);
                line("keyring", &format!("{}, generation {}", header.keyring, header.generation));
                line("data key", &header.data_key);
                line("nonce", &header.nonce);
                line("sequence", &header.sequence);
                line("mac", &format!("{} (not checked: `tidelock verify` does)", header.mac));
                shown = Some(header);
            }
        }
    }
    if report.kind == "sealed stream" {
        line("form", &"a stream: body and end mark (`tidelock unseal` reads it)");
    }
    line("disk size", &report.disk_size);
    if let (Some(plain), Some(regular)) = (report.plain_size, report.size_is_regular) {
        let note = if regular { "" } else { " (no plain size has exactly this disk size)" };
        line("plain size", &format!("{plain}{note}"));
    }
    text
}

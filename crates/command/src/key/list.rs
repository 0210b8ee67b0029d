//! `tidelock key list`: the slots, as the open part of the keyring names them.

use std::fmt::Write;
use std::path::PathBuf;

use serde::Serialize;
use tidelock_keyring::{Kdf, Slot, Wrapping};

use super::session::short;
use crate::console;
use crate::error::Result;
use crate::protected::Protected;

/// Show what opens the keyring; needs no key
#[derive(clap::Args)]
pub(crate) struct List {
    /// The protected directory
    #[arg(short = 'D', long = "directory", value_name = "DIR", env = "PGDATA")]
    dir: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Output {
    directory: PathBuf,
    keyring: String,
    generation: u64,
    slots: Vec<SlotOutput>,
}

#[derive(Serialize)]
struct SlotOutput {
    id: String,
    kind: &'static str,
    /// Who wraps: `here`, or the `service` whose principal key never leaves it.
    wrapped_by: &'static str,
    kdf: Option<String>,
    reference: Option<String>,
    created: u64,
}

impl SlotOutput {
    fn of(slot: &Slot) -> Self {
        let terms = &slot.terms;
        Self {
            id: terms.id.to_string(),
            kind: terms.kind.name(),
            wrapped_by: match terms.wrapping {
                Wrapping::Direct => "here",
                Wrapping::Remote => "service",
            },
            kdf: kdf(terms.kdf),
            reference: Some(terms.reference.clone()).filter(|text| !text.is_empty()),
            created: terms.created,
        }
    }
}

impl List {
    /// # Errors
    /// The directory is not protected.
    pub(super) fn run(self) -> Result<()> {
        let Protected { path, keyring, .. } = Protected::open(&self.dir)?;
        if self.json {
            let report = Output {
                directory: path,
                keyring: keyring.id().to_string(),
                generation: keyring.generation().0,
                slots: keyring.slots().iter().map(SlotOutput::of).collect(),
            };
            return console::print_json("key list", &report);
        }
        let mut text = String::new();
        for slot in keyring.slots() {
            let report = SlotOutput::of(slot);
            let detail = report.reference.or(report.kdf).unwrap_or_default();
            let (id, kind) = (short(slot.terms.id), report.kind);
            let made = console::time(report.created);
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{}", format!("{id}  {kind:<10}  {made}  {detail}").trim_end());
        }
        console::print(text)
    }
}

fn kdf(kdf: Kdf) -> Option<String> {
    match kdf {
        Kdf::None => None,
        Kdf::Argon2id { memory, passes, lanes } => {
            Some(format!("argon2id, {} MiB, {passes} passes, {lanes} lanes", memory / 1024))
        }
        Kdf::Pbkdf2 { iterations } => Some(format!("PBKDF2, {iterations} iterations")),
    }
}

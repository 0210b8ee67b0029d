//! `tidelock audit`: checks, exports and shows the audit log of a keyring.

pub(crate) mod trail;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use data_encoding::HEXLOWER;
use serde::Serialize;
use tidelock_agent::audit::{Broken, ChainKey, Verified, last_mac, verify};

use crate::console;
use crate::error::{Error, Result};
use crate::protected::Protected;
use crate::unlock::{self, KeyOptions};

/// Check, export and show the audit log
#[derive(Subcommand)]
pub(crate) enum AuditCommand {
    /// Check the chain for changed, removed or reordered lines; with --head also for a cut at the
    /// end
    Verify(Box<Verify>),
    /// Print the head of the chain: keep it where the owner of the log cannot change it
    Head(Which),
    /// Print the lines
    Show(Which),
}

/// Which log
#[derive(clap::Args)]
pub(crate) struct Which {
    /// The protected directory
    #[arg(short = 'D', long = "directory", value_name = "DIR", env = "PGDATA")]
    dir: PathBuf,
    /// Another file than the configured one: a copy of the log
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Check the chain
#[derive(clap::Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    which: Which,
    /// A head that was exported before; it must be a link of the chain
    #[arg(long, value_name = "HEX")]
    head: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    keys: KeyOptions,
}

#[derive(Serialize)]
struct Document<'r> {
    file: &'r Path,
    #[serde(flatten)]
    report: &'r Verified,
}

impl AuditCommand {
    /// # Errors
    /// The directory is not protected, there is no log, the chain is broken.
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::Verify(verify) => verify.run(),
            Self::Head(which) => which.head(),
            Self::Show(which) => which.show(),
        }
    }
}

impl Which {
    fn find(&self) -> Result<(Protected, PathBuf)> {
        let protected = Protected::open(&self.dir)?;
        let file = match &self.file {
            Some(file) => file.clone(),
            None => {
                let config = unlock::configured(&protected.keyring, &protected.path)?;
                trail::log(&protected.keyring, &protected.path, &config)?.file
            }
        };
        Ok((protected, file))
    }

    fn head(&self) -> Result<()> {
        let (_, file) = self.find()?;
        refuse_missing(&file)?;
        match last_mac(&file)? {
            Some(mac) => console::print(format_args!("{}\n", HEXLOWER.encode(&mac))),
            None => Err(Error::NoChain { file }),
        }
    }

    fn show(&self) -> Result<()> {
        let (_, file) = self.find()?;
        refuse_missing(&file)?;
        let text = std::fs::read(&file).map_err(Error::io("read the audit log", &file))?;
        console::print(String::from_utf8_lossy(&text))
    }
}

impl Verify {
    fn run(&self) -> Result<()> {
        let (protected, file) = self.which.find()?;
        // Before the keyring is opened, which writes a line.
        refuse_missing(&file)?;
        let keyring = self.keys.unlock(&protected)?;
        let keys = ChainKey::all_of(&keyring, crate::primitives::primitives().lock);
        let report = verify(&file, keyring.id(), &keys, self.head.as_deref())?;
        if self.json {
            console::print_json("audit verify", &Document { file: &file, report: &report })?;
        } else {
            console::print(text(&file, &report))?;
        }
        verdict(&file, &report)
    }
}

fn text(file: &Path, report: &Verified) -> String {
    let mut lines = vec![
        format!("audit log    {}", file.display()),
        format!("lines        {}, {} chained", report.lines, report.chained),
    ];
    if let Some(head) = &report.head {
        lines.push(format!("head         {head}"));
    }
    if report.pending > 0 {
        lines.push(format!("note         {} at the end, which no MAC covers yet", report.pending));
    }
    for line in &report.torn {
        lines.push(format!(
            "note         line {line} has no end: its writer crashed, or somebody added it"
        ));
    }
    if let (Some(first), Some(last)) = (report.unknown.first(), report.unknown.last()) {
        lines.push(format!(
            "note         {} from {first} to {last} cannot be checked, as their data key was \
             destroyed: they may have been changed, and others removed",
            console::count(report.unknown.len(), "line")
        ));
    }
    for line in &report.keyless {
        lines.push(format!(
            "note         line {line} has no MAC and is not proven: no key was at hand, or \
             somebody added it"
        ));
    }
    for line in &report.unproven {
        lines.push(format!(
            "NOT PROVEN   line {line} has no MAC: no writer leaves such a line without one"
        ));
    }
    for Broken { line, from, chain } in &report.broken {
        lines.push(match chain {
            None => format!(
                "BROKEN       line {line}: something between line {from} and here was changed, \
                 removed or moved"
            ),
            Some(key) => format!(
                "BROKEN       line {line}: from line {from} to here under data key {key}, which \
                 the keyring has not; no proven line says that it was destroyed"
            ),
        });
    }
    if report.head_unchecked {
        lines.push(
            "note         the exported head is a MAC that cannot be checked: export a new one"
                .to_owned(),
        );
    }
    if report.head_found == Some(false) {
        lines.push("BROKEN       the exported head is not a link of this chain".to_owned());
    }
    lines.join("\n") + "\n"
}

fn verdict(file: &Path, report: &Verified) -> Result<()> {
    let hint = "keep the file as it is, and compare it with a copy or with the journal";
    let bad = |what| Err(Error::Verification { what, hint: hint.to_owned() });
    if let Some(first) = report.broken.first() {
        let what = format!("{} is not as it was written: line {}", file.display(), first.place());
        if first.chain.is_some() {
            let hint = format!("{hint}; docs/audit.md says when no attack is behind it");
            return Err(Error::Verification { what, hint });
        }
        return bad(what);
    }
    if let Some(first) = report.unproven.first() {
        return bad(format!(
            "{} has a line that somebody without a key added: line {first}",
            file.display()
        ));
    }
    if report.head_found == Some(false) {
        return bad(format!("{} was cut or replaced since the head was exported", file.display()));
    }
    if let Some(first) = report.unknown.first() {
        return Err(Error::Uncheckable { file: file.to_path_buf(), line: *first });
    }
    Ok(())
}

fn refuse_missing(file: &Path) -> Result<()> {
    if file.symlink_metadata().is_ok() {
        return Ok(());
    }
    Err(Error::NoAuditLog { file: file.to_path_buf() })
}

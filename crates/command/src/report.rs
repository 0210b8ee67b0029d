//! `tidelock report`: what is sealed, with what, under which keys and with which exceptions, for an
//! auditor; with a MAC, as a page and as JSON.
//!
//! Says only what this run or the audit log saw, and beside each requirement what it does not
//! prove. `--check` tells whether a report is as it was made.

mod facts;
mod history;

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tidelock_agent::audit::{Details, Event, Outcome};
use tidelock_contract::Policy;
use tidelock_evidence::{Checked, Document};

use crate::audit::trail;
use crate::console;
use crate::error::{Error, Result};
use crate::folder::Entry;
use crate::protected::{Protected, is_protected};
use crate::unlock::KeyOptions;
use crate::verify::{Deep, Output, verify};
use facts::Facts;

/// Names of files are in it, which not everybody needs to know.
const MODE: u32 = 0o600;

/// Write a report for an auditor: what is sealed and with what, ages of keys, exceptions by name
/// and reason, requirements and what is not proved; signed with a MAC
#[derive(clap::Args)]
pub(crate) struct Report {
    /// The protected directory
    #[arg(short = 'D', long = "directory", value_name = "DIR", env = "PGDATA")]
    dir: PathBuf,
    /// Write a page for a browser and for printing to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write JSON to this file [default: to standard output, if there is no --html]
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Do not make a report: check whether this one, a page or JSON, is as it was made
    #[arg(long, value_name = "FILE", conflicts_with_all = ["html", "json", "deep"])]
    check: Option<PathBuf>,
    #[command(flatten)]
    deep: Deep,
    #[command(flatten)]
    keys: KeyOptions,
}

impl Report {
    /// # Errors
    /// The keyring does not open; a file is not as it must be, after the report was written.
    pub(crate) fn run(self) -> Result<ExitCode> {
        match &self.check {
            Some(file) => self.check(file),
            None => self.make(),
        }
    }

    fn make(&self) -> Result<ExitCode> {
        let markers = self.deep.markers()?;
        let protected = Protected::open(&self.dir)?;
        // A place that cannot be written is found before an hour of reading.
        let page = self.html.as_deref().map(Entry::of).transpose()?;
        let json = self.json.as_deref().map(Entry::of).transpose()?;
        let keyring = self.keys.unlock(&protected)?;
        for target in [&page, &json].into_iter().flatten() {
            refuse_among_sealed(&target.path(), &protected.path, keyring.policy())?;
        }
        let mut found = verify(&protected, &keyring, &self.deep.search(&markers))?;
        let (protected, keyring) = found.newer.take().unwrap_or((protected, keyring));
        let facts = Facts { protected: &protected, keyring: &keyring, keys: &self.keys };
        let facts = facts.of(&found, markers.count())?;
        let current = keyring.current();
        let document = Document::sign(facts, current.id.to_string(), &current.key);
        if let Some(page) = &page {
            let html = document.html().map_err(|why| {
                Error::refused(
                    format!("the page cannot be made: {why:#}"),
                    "report this with the output of --json",
                )
            })?;
            page.replace(html.as_bytes(), MODE, None)?;
        }
        match &json {
            Some(json) => json.replace(document.json().as_bytes(), MODE, None)?,
            None if page.is_none() => console::print_json_text(&document.json())?,
            None => {}
        }
        let told = [&self.html, &self.json].into_iter().flatten();
        let told = told.map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
        record(&protected, &keyring, &found, &told);
        if !told.is_empty() {
            console::print(format_args!("wrote {told}\n"))?;
        }
        found.verdict(&protected.path)
    }

    fn check(&self, file: &Path) -> Result<ExitCode> {
        let protected = Protected::open(&self.dir)?;
        let text = fs::read_to_string(file).map_err(Error::io("read the report", file))?;
        let document = Document::parse(&text).map_err(|why| {
            Error::refused(
                format!("{}: {why}", file.display()),
                "name a file that `tidelock report` wrote",
            )
        })?;
        let keyring = self.keys.unlock(&protected)?;
        let entry =
            keyring.data_keys().iter().find(|key| key.id.to_string() == document.data_key());
        let Some(entry) = entry else {
            return Err(Error::BadKey {
                what: format!(
                    "{} is signed under data key {}, which this keyring does not hold",
                    file.display(),
                    document.data_key()
                ),
                hint: "check it with the keyring that made it, or with a copy from that time"
                    .to_owned(),
            });
        };
        let facts = document.facts();
        let word = |name: &str| facts[name].as_str().unwrap_or("?").to_owned();
        match document.check(&text, &entry.key) {
            Checked::Genuine => {
                let (directory, made) = (word("directory"), word("made"));
                console::print(format_args!(
                    "genuine: {} is as it was made of {directory}, {made}\n",
                    file.display()
                ))?;
                Ok(ExitCode::SUCCESS)
            }
            Checked::Forged => bad(file, "its MAC does not match: it was changed"),
            Checked::OtherPage => bad(
                file,
                "its data is genuine, but the page is not what this version makes of it: changed, \
                 or made by another version",
            ),
        }
    }
}

/// Refuses a place where the policy of `dir`, or that of another protected directory, wants files
/// sealed: this command writes plain ones.
fn refuse_among_sealed(file: &Path, dir: &Path, policy: &Policy) -> Result<()> {
    let above = file.ancestors().skip(1).find(|above| is_protected(above));
    let Some(holder) = above else { return Ok(()) };
    let name = file.strip_prefix(dir).ok().filter(|_| holder == dir);
    if name.is_some_and(|name| policy.kind(name.as_os_str().as_bytes()).is_none()) {
        return Ok(());
    }
    Err(Error::refused(
        format!(
            "{} lies in {}, where files must be sealed, and a report is plain",
            file.display(),
            holder.display()
        ),
        "name a place outside of protected directories",
    ))
}

fn bad(file: &Path, why: &str) -> Result<ExitCode> {
    Err(Error::Verification {
        what: format!("{}: {why}", file.display()),
        hint: "make a new one; compare both".to_owned(),
    })
}

fn record(protected: &Protected, keyring: &tidelock_keyring::Keyring, found: &Output, file: &str) {
    let details = Details {
        file: Some(file.to_owned()).filter(|file| !file.is_empty()),
        reason: Some(console::count(found.problems.len(), "problem")),
        ..Details::of_this_process()
    };
    let (sealed, dir) = (&protected.keyring, &protected.path);
    trail::write(sealed, dir, Some(keyring), Event::Report, Outcome::Done, &details);
}

//! `tidelock profile check`: is a profile valid, and what would a program meet?
//!
//! Without a program the profile alone is checked. A program that stands behind `--` is also run
//! ([`watch`]).
//!
//! The imports of the program and of the libraries that it needs, against the ledger of the preload
//! library. System calls that a program makes without libc are not imports: on a sealed file they
//! fail.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;

use serde::Serialize;
use tidelock_contract::names_program;
use tidelock_ffi::ledger::{Action, LEDGER, is_no_file_call};
use tidelock_keyring::Profile;

use crate::console;
use crate::error::{Error, Result};
use crate::exec::Program;
use crate::profile;
use crate::profile::imports::Imports;
use crate::profile::watch::{self, Watched};

/// Check a profile, what a program would meet, and behind `--` what it does when it runs
///
/// Of a program: how it is loaded, and each file call that it imports.
#[derive(clap::Args)]
pub(crate) struct Check {
    /// The program: a path, or a name in $PATH; not run
    #[arg(conflicts_with = "run")]
    program: Option<OsString>,
    /// The profile in which it should be listed: a built-in one, or the path of one
    #[arg(long, value_name = "PROFILE", default_value = "postgres")]
    profile: String,
    /// Where the program that runs keeps its files
    #[arg(long = "in", value_name = "DIR", default_value = ".", requires = "run")]
    place: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Run this program as it is, plain and without keys, and observe it with strace
    #[arg(last = true, value_name = "PROGRAM [ARG]...")]
    run: Vec<OsString>,
}

#[derive(Serialize)]
struct Output {
    program: PathBuf,
    /// The script that it runs.
    script: Option<PathBuf>,
    libraries: Vec<PathBuf>,
    /// Needed, and not where they are looked for.
    missing: Vec<String>,
    profile: String,
    listed: bool,
    hooked: Vec<&'static str>,
    refused: Vec<Group>,
    passed: Vec<Group>,
    /// File calls, perhaps, that the ledger does not have.
    unknown: Vec<String>,
    /// What it did when it ran.
    watched: Option<Watched>,
}

#[derive(Serialize)]
struct Group {
    errno: Option<&'static str>,
    reason: &'static str,
    calls: Vec<&'static str>,
}

impl Check {
    /// # Errors
    /// The file is no profile; the library would not be loaded into the program; it imports or
    /// makes a call that the ledger does not know.
    pub(crate) fn run(self) -> Result<()> {
        let profile = profile::named(&self.profile)?;
        let Some(name) = self.program.as_ref().or(self.run.first()) else {
            return console::print(format_args!(
                "{}: valid; {}, {}\n",
                self.profile,
                console::count(profile.rules.len(), "rule"),
                console::count(profile.programs.len(), "listed program")
            ));
        };
        let program = Program::find(name)?;
        program.refuse_unless_it_loads()?;
        let imports = Imports::of(&program.path)?;
        let listed = is_listed(&profile, &program);
        let watched = match self.run.split_first() {
            Some((_, arguments)) => {
                let policy = profile.compile(&[], &[]).map_err(tidelock_keyring::Error::from)?;
                Some(watch::watch(&self.place, &policy, &program, arguments)?)
            }
            None => None,
        };
        let mut report = report(program, self.profile, listed, imports);
        report.watched = watched;
        if self.json {
            console::print_json("profile check", &report)?;
        } else {
            console::print(text(&report))?;
        }
        let made = report.watched.as_ref().map_or(0, |watched| watched.unknown.len());
        if report.unknown.is_empty() && made == 0 {
            return Ok(());
        }
        Err(Error::Verification {
            what: format!(
                "{} imports or makes {} that the ledger does not know",
                report.program.display(),
                console::count(report.unknown.len() + made, "call")
            ),
            hint: "if one of them takes a file, it would go round the library: please report it"
                .to_owned(),
        })
    }
}

/// By its name as it was called, or by the file that runs.
fn is_listed(profile: &Profile, program: &Program) -> bool {
    let called = std::path::absolute(&program.called).unwrap_or_else(|_| program.called.clone());
    [called.as_path(), &program.path].iter().any(|path| {
        let exe = path.as_os_str().as_encoded_bytes();
        profile.programs.iter().any(|entry| names_program(entry.as_bytes(), exe))
    })
}

fn report(program: Program, profile: String, listed: bool, imports: Imports) -> Output {
    let mut hooked = Vec::new();
    let mut refused: BTreeMap<&str, Group> = BTreeMap::new();
    let mut passed: BTreeMap<&str, Group> = BTreeMap::new();
    let mut known = BTreeSet::new();
    for entry in LEDGER.iter().filter(|entry| imports.names.contains_key(entry.name)) {
        known.insert(entry.name);
        let (groups, errno) = match entry.action {
            Action::Hook => {
                hooked.push(entry.name);
                continue;
            }
            Action::Refuse(errno) => (&mut refused, Some(errno)),
            Action::Pass => (&mut passed, None),
        };
        let empty = || Group { errno, reason: entry.note, calls: Vec::new() };
        groups.entry(entry.note).or_insert_with(empty).calls.push(entry.name);
    }
    let unknown = imports
        .names
        .iter()
        .filter(|(name, of_libc)| **of_libc && !known.contains(name.as_str()))
        .map(|(name, _)| name.clone())
        .filter(|name| !is_no_file_call(name))
        .collect();
    hooked.sort_unstable();
    Output {
        program: program.path,
        script: program.script,
        libraries: imports.libraries,
        missing: imports.missing,
        profile,
        listed,
        hooked,
        refused: refused.into_values().collect(),
        passed: passed.into_values().collect(),
        unknown,
        watched: None,
    }
}

fn text(report: &Output) -> String {
    let mut lines = Vec::new();
    let mut add = |label: &str, words: String| lines.push(format!("{label:<13}{words}\n"));
    add("program", report.program.display().to_string());
    if let Some(script) = &report.script {
        add("script", format!("{}: `exec` names its interpreter", script.display()));
    }
    add("loading", "64-bit, glibc: the library is loaded into it".to_owned());
    let listed = if report.listed { "listed" } else { "not listed: gets keys only from `exec`" };
    add("profile", format!("{}: {listed}", report.profile));
    let names = report.libraries.iter().filter_map(|path| path.file_name()?.to_str());
    add("libraries", names.collect::<Vec<_>>().join(" "));
    if !report.missing.is_empty() {
        add("not found", report.missing.join(" "));
    }
    add("sealed", report.hooked.join(" "));
    for group in &report.refused {
        let errno = group.errno.unwrap_or_default();
        add("refused", format!("{} with {errno}: {}", group.calls.join(" "), group.reason));
    }
    for group in &report.passed {
        add("passed", format!("{}: {}", group.calls.join(" "), group.reason));
    }
    if !report.unknown.is_empty() {
        add("unknown", report.unknown.join(" "));
    }
    for (label, words) in report.watched.iter().flat_map(watch::lines) {
        add(label, words);
    }
    lines.concat()
}

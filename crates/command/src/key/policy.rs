//! `tidelock profile set`: changes what stays plain and which programs get keys, after init.
//!
//! ```text
//!   renewed?   --> rules that go and come are printed, and programs that are not taken over
//!   new policy --> every file of the directory: does it contradict? --> refused, files named
//!              --> could a running server write by the old one?     --> refused, stop it first
//!              --> would a newer rule make plain what is sealed? --> refused without --yes
//!              --> keyring replaced, audit line, agent told
//! ```
//!
//! No file is touched: what must be sealed and is plain, or the other way round, is for people to
//! move, and is said before anything is changed.

use std::io;
use std::path::PathBuf;

use tidelock_contract::{Action, Decision, Policy};
use tidelock_keyring::{Amendment, Profile, needs_a_stop};

use super::session::{Change, Opening};
use crate::console;
use crate::error::{Error, Result};
use crate::running::Programs;
use crate::server::Server;
use crate::walk::{self, Found};

/// Names in a message.
const SHOWN: usize = 5;

/// Change what stays plain and which programs get keys
#[derive(clap::Args)]
pub(crate) struct ProfileSet {
    #[command(flatten)]
    opening: Opening,
    /// A file that stays plain from now on; may be given several times
    #[arg(long, value_name = "GLOB")]
    plain: Vec<String>,
    /// A glob of --plain that is no longer one; may be given several times
    #[arg(long, value_name = "GLOB")]
    no_plain: Vec<String>,
    /// A program that gets keys from now on; may be given several times
    #[arg(long, value_name = "PROGRAM")]
    program: Vec<String>,
    /// A program that no longer gets keys; may be given several times
    #[arg(long, value_name = "PROGRAM")]
    no_program: Vec<String>,
    /// Take the rules that the built-in profile has now; who gets keys stays as it is
    #[arg(long)]
    renew: bool,
    /// With --renew, take the rules of this profile, which has the same name: the path of a file of
    /// one's own
    #[arg(long, value_name = "PROFILE", requires = "renew")]
    profile: Option<String>,
    /// Take them although files that were sealed may be plain by them
    #[arg(long, requires = "renew")]
    yes: bool,
}

/// A file that the new policy would not read as it is.
struct Contradiction {
    name: String,
    must_be: &'static str,
}

impl ProfileSet {
    /// # Errors
    /// The keyring does not open; a file contradicts; a server runs that must not.
    pub(crate) fn run(self) -> Result<()> {
        let mut session = self.opening.begin()?;
        let old = session.keyring.policy().clone();
        let words = self.words();
        let profile = self.newer(old.profile())?;
        let change = Amendment {
            profile,
            plain: self.plain,
            not_plain: self.no_plain,
            programs: self.program,
            not_programs: self.no_program,
        };
        let new = change.apply(&old).map_err(tidelock_keyring::Error::from)?;
        warn_of_left_out(&change.left_out(&new));
        if new == old {
            return Err(Error::usage(
                "nothing would be another than it is",
                "name a change: --plain, --no-plain, --program, --no-program, or --renew",
            ));
        }
        let dir = session.protected.path.clone();
        refuse_contradictions(&dir, &old, &new)?;
        let runs = runs(&dir);
        if let (Some(who), true) = (&runs, needs_a_stop(&old, &new)) {
            return Err(Error::refused(
                format!("{who} runs on {} and would write by the old rules", dir.display()),
                "stop it, change the profile, and start it again; only --plain and programs can \
                 be changed while it runs",
            ));
        }
        if self.renew {
            console::print(differences(&old, &new))?;
            refuse_unsealing(&change.unseals(&old, &new), self.yes)?;
        }
        session.keyring.set_policy(new);
        let told = session.write(&[Change::policy(words)])?;
        if let Some(who) = runs {
            console::print(format_args!(
                "{who} learns of it with its next connection; what is connected already, and the \
                 server's own workers, with the next restart\n"
            ))?;
        }
        told.finish()
    }

    /// The profile whose rules are to be taken, for a directory of profile `name`.
    fn newer(&self, name: &str) -> Result<Option<Profile>> {
        if !self.renew {
            return Ok(None);
        }
        if let Some(named) = &self.profile {
            return crate::profile::named(named).map(Some);
        }
        if Profile::builtin_text(name).is_none() {
            return Err(Error::usage(
                format!("the rules are those of a profile of your own, \"{name}\""),
                "name its file too: --renew --profile ./FILE",
            ));
        }
        Ok(Some(Profile::builtin(name)?))
    }

    /// For the audit log.
    fn words(&self) -> String {
        let lists = [
            ("--plain", &self.plain),
            ("--no-plain", &self.no_plain),
            ("--program", &self.program),
            ("--no-program", &self.no_program),
        ];
        let mut words: Vec<String> = lists
            .iter()
            .flat_map(|(option, values)| values.iter().map(move |it| format!("{option} {it}")))
            .collect();
        words.extend(self.renew.then(|| "--renew".to_owned()));
        words.extend(self.profile.iter().map(|named| format!("--profile {named}")));
        words.extend(self.yes.then(|| "--yes".to_owned()));
        words.join(" ")
    }
}

/// A newer profile gives nobody keys whom the owner has not named, or has taken out.
fn warn_of_left_out(programs: &[&str]) {
    if !programs.is_empty() {
        console::warn(
            format!("the newer profile lists also: {}", programs.join(", ")),
            "they get no keys by this; add them with --program NAME",
        );
    }
}

/// Which rules a renewal takes out and puts in, a line each.
fn differences(old: &Policy, new: &Policy) -> String {
    let mut text = String::new();
    for (way, of, other) in [("out", old, new), ("in", new, old)] {
        for rule in of.rules().iter().filter(|rule| !other.rules().contains(rule)) {
            let does = match &rule.action {
                Action::Seal(class) => format!("sealed, class {}", class.name()),
                Action::Plain(reason) => format!("plain: {reason}"),
            };
            text += &format!("rule {way:<4} {}: {does}\n", rule.glob);
        }
    }
    text
}

/// `globs` are those by which files may be plain that the old rules seal.
fn refuse_unsealing(globs: &[String], yes: bool) -> Result<()> {
    if yes || globs.is_empty() {
        return Ok(());
    }
    let shown: Vec<&str> = globs.iter().take(SHOWN).map(String::as_str).collect();
    let more = match globs.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Err(Error::refused(
        format!("files that are sealed now would be plain: {}{more}", shown.join(", ")),
        "say --yes if they may be; where the rules came from a file of your own, name that with \
         --profile",
    ))
}

/// Who writes there, if anybody does.
fn runs(dir: &std::path::Path) -> Option<String> {
    if let Server::Running { pid, .. } = Server::on(dir) {
        return Some(format!("the server (process {pid})"));
    }
    Programs::of(dir).heads().first().map(|pid| format!("process {pid}"))
}

fn refuse_contradictions(dir: &std::path::Path, old: &Policy, new: &Policy) -> Result<()> {
    let mut unseen: Vec<(PathBuf, io::Error)> = Vec::new();
    let files = walk::files(dir, &mut |path, why| unseen.push((path.into(), why)));
    if let Some((path, why)) = unseen.first() {
        let missing = why.kind() == io::ErrorKind::NotFound;
        return Err(Error::refused(
            match missing {
                true => format!("{} may contradict the change: {why}", path.display()),
                false => {
                    format!("{} cannot be looked at, and may contradict the change", path.display())
                }
            },
            match missing {
                true => "mount the disk; or remove the link, if nothing is behind it any more",
                false => "run it as the owner of the directory, or as root",
            },
        ));
    }
    let bad: Vec<Contradiction> =
        files.iter().filter_map(|found| contradiction(found, old, new)).collect();
    let Some(first) = bad.first() else { return Ok(()) };
    let names: Vec<&str> = bad.iter().take(SHOWN).map(|it| it.name.as_str()).collect();
    let more = bad.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Err(Error::refused(
        format!(
            "files of {} would not be as they must be: {}{more}",
            dir.display(),
            names.join(", ")
        ),
        match first.must_be {
            "plain" => format!(
                "{} is sealed: bring its bytes out with `tidelock cat`, remove it, change the \
                 profile, and put it back",
                first.name
            ),
            _ => format!(
                "{} is plain or of another class: move it out of the directory first",
                first.name
            ),
        },
    ))
}

/// Only what the change concerns: what is wrong already is for `verify` to name.
fn contradiction(found: &Found, old: &Policy, new: &Policy) -> Option<Contradiction> {
    let kind = |policy: &Policy| match policy.decide(found.name_bytes()) {
        Decision::Seal(class) => Some(class),
        Decision::Plain(_) => None,
    };
    let (before, after) = (kind(old), kind(new));
    if before == after || found.metadata.len() == 0 {
        return None;
    }
    let class = walk::header(&found.path).map(|header| header.class);
    let fits = class == after;
    let must_be = if after.is_none() { "plain" } else { "sealed" };
    (!fits).then(|| Contradiction { name: found.name.display().to_string(), must_be })
}

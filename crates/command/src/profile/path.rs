//! `tidelock profile path`: which rule decides about a file, and what it makes of it.

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use serde::Serialize;
use tidelock_contract::control::FOLDER;
use tidelock_contract::postgres::TABLESPACES;
use tidelock_contract::{Action, Origin, Policy};

use crate::console;
use crate::error::{Error, Result};
use crate::links::{goes_up, without_links};
use crate::profile;
use crate::protected::{Protected, is_protected};
use crate::unlock::KeyOptions;

/// Say which rule decides about a file, and what it makes of it
#[derive(clap::Args)]
pub(crate) struct PathCommand {
    /// A file in a protected directory, which need not exist; with --profile a name below the
    /// directory
    file: PathBuf,
    /// By this profile instead of what is in force: a built-in one, or the path of one
    #[arg(long, value_name = "PROFILE")]
    profile: Option<String>,
    /// The protected directory, if the file lies in a tablespace elsewhere
    #[arg(short = 'D', long = "directory", value_name = "DIR", conflicts_with = "profile")]
    dir: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    keys: KeyOptions,
}

#[derive(Serialize)]
struct Output {
    /// Below the directory.
    name: String,
    profile: String,
    /// The place of the rule, from 1 on.
    rule: usize,
    glob: String,
    /// True for a glob of the owner.
    own: bool,
    /// `None` if it stays plain.
    class: Option<&'static str>,
    /// Why it stays plain.
    reason: Option<String>,
}

impl PathCommand {
    /// # Errors
    /// The file lies in no protected directory; its keyring does not open.
    pub(crate) fn run(self) -> Result<()> {
        let (policy, name) = match &self.profile {
            Some(given) => {
                let compiled = profile::named(given)?.compile(&[], &[]);
                let policy = compiled.map_err(tidelock_keyring::Error::from)?;
                let name = self.below(&policy)?;
                (policy, name)
            }
            None => self.in_force()?,
        };
        let found = output(&policy, &name);
        if self.json {
            return console::print_json("profile path", &found);
        }
        let is = match (&found.class, &found.reason) {
            (Some(class), _) => format!("sealed, class {class}"),
            (None, reason) => format!("plain: {}", reason.as_deref().unwrap_or_default()),
        };
        let own = if found.own { ", of the owner" } else { "" };
        console::print(format_args!(
            "{}: {is} (rule {}, `{}`{own}, profile {})\n",
            found.name, found.rule, found.glob, found.profile
        ))
    }

    /// The file's name below a directory that nobody has named.
    fn below(&self, policy: &Policy) -> Result<PathBuf> {
        if !self.file.has_root() || is_in_tablespace(policy, &self.file) {
            return self.name(&self.file);
        }
        Err(Error::usage(
            format!("{} is no name below a protected directory", self.file.display()),
            "with --profile, leave out the directory and the slash behind it",
        ))
    }

    /// The policy of the directory, and the file's name in it.
    fn in_force(&self) -> Result<(Policy, PathBuf)> {
        let typed = std::path::absolute(&self.file).map_err(Error::io("find", &self.file))?;
        let real = real(&typed)?;
        let protected = match (&self.dir, holder(&real).or_else(|| holder(&typed))) {
            (Some(dir), _) => Protected::open(dir)?,
            (None, Some(dir)) => Protected::open(dir)?,
            (None, None) => {
                return Err(Error::refused(
                    format!("{} lies in no protected directory", real.display()),
                    "name the directory with -D DIR, or a profile with --profile",
                ));
            }
        };
        if let Some(other) = holder(&real).filter(|other| *other != protected.path) {
            return Err(Error::refused(
                format!(
                    "{} lies in {}, whose own rules decide",
                    self.file.display(),
                    other.display()
                ),
                format!("name that directory: -D {}", other.display()),
            ));
        }
        let policy = self.keys.unlock(&protected)?.policy().clone();
        let name = match name_in(&protected.path, &typed) {
            Some(name) => self.name(&name)?,
            // It is recognised by its own directory, wherever it lies.
            None if is_in_tablespace(&policy, &real) => self.name(&real)?,
            None => {
                return Err(Error::refused(
                    format!("{} lies outside of {}", self.file.display(), protected.path.display()),
                    "its rules hold outside only behind its links: if one leads there, name the \
                     file behind that link",
                ));
            }
        };
        Ok((policy, name))
    }

    /// A name as the policy takes it.
    fn name(&self, name: &Path) -> Result<PathBuf> {
        if goes_up(name) {
            return Err(Error::usage(
                format!("{} has a `..` that cannot be followed", self.file.display()),
                "name the file without `..`",
            ));
        }
        let name: PathBuf = name.components().filter(|part| *part != Component::CurDir).collect();
        match name.components().next() {
            None => Err(Error::usage(
                format!("{} is the directory itself", self.file.display()),
                "name a file in it",
            )),
            Some(first) if first.as_os_str() == FOLDER => Err(Error::usage(
                format!("{} is Tidelock's own, and no rule decides about it", name.display()),
                "name a file of the engine",
            )),
            Some(_) => Ok(name),
        }
    }
}

/// The nearest directory above it with a keyring.
fn holder(file: &Path) -> Option<&Path> {
    file.ancestors().find(|dir| is_protected(dir))
}

/// True for a path in a tablespace. A folder of that name below another `pg_tblspc` is a copy's.
fn is_in_tablespace(policy: &Policy, path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    let Some(tail) = policy.tablespace_tail(bytes) else { return false };
    let above = bytes.strip_suffix(tail).unwrap_or_default();
    above.split(|byte| *byte == b'/').all(|name| name != TABLESPACES.as_bytes())
}

/// The name of a file in `dir`, by the last place in it on the way: what a link there leads to has
/// the link's name.
fn name_in(dir: &Path, typed: &Path) -> Option<PathBuf> {
    typed.ancestors().find_map(|above| {
        let real = std::fs::canonicalize(above).ok()?;
        let inside = real.strip_prefix(dir).ok()?;
        let rest = typed.strip_prefix(above).ok()?;
        Some(inside.components().chain(rest.components()).collect())
    })
}

/// Without links. A link that leads nowhere is refused here: the file would be made where it leads,
/// and the rules of that place would decide.
fn real(typed: &Path) -> Result<PathBuf> {
    let existing = typed.ancestors().find(|it| it.symlink_metadata().is_ok());
    let existing = existing.unwrap_or(Path::new("/"));
    std::fs::canonicalize(existing).map_err(Error::io("find", existing))?;
    without_links(typed).map_err(Error::io("find", typed))
}

fn output(policy: &Policy, name: &Path) -> Output {
    let bytes = name.as_os_str().as_bytes();
    let found = policy.deciding_rule(bytes).and_then(|at| Some((at, policy.rules().get(at)?)));
    let (class, reason) = match found.map(|(_, rule)| &rule.action) {
        Some(Action::Plain(reason)) => (None, Some(reason.clone())),
        Some(Action::Seal(class)) => (Some(class.name()), None),
        None => (policy.kind(bytes).map(tidelock_format::Class::name), None),
    };
    Output {
        name: name.display().to_string(),
        profile: policy.profile().to_owned(),
        rule: found.map_or(0, |(at, _)| at + 1),
        glob: found.map(|(_, rule)| rule.glob.to_string()).unwrap_or_default(),
        own: found.is_some_and(|(_, rule)| rule.origin == Origin::Owner),
        class,
        reason,
    }
}

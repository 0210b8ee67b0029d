//! `tidelock profile path`: which rule decides about a file, and what it makes of it.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use tidelock_contract::control::FOLDER;
use tidelock_contract::{Action, Origin, Policy};
use tidelock_keyring::KEYRING;

use crate::console;
use crate::error::{Error, Result};
use crate::profile;
use crate::protected::Protected;
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
                (compiled.map_err(tidelock_keyring::Error::from)?, self.file.clone())
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

    /// The policy of the directory, and the file's name in it.
    fn in_force(&self) -> Result<(Policy, PathBuf)> {
        let real = real(&self.file)?;
        let protected = match &self.dir {
            Some(dir) => Protected::open(dir)?,
            None => Protected::open(holder(&real)?)?,
        };
        let name = match real.strip_prefix(&protected.path) {
            Ok(name) if !name.as_os_str().is_empty() => name.to_path_buf(),
            Ok(_) => {
                return Err(Error::usage(
                    format!("{} is the directory itself", self.file.display()),
                    "name a file in it",
                ));
            }
            // A tablespace is recognised by its own directory.
            Err(_) => real,
        };
        Ok((self.keys.unlock(&protected)?.policy().clone(), name))
    }
}

/// The nearest directory above it with a keyring.
fn holder(file: &Path) -> Result<&Path> {
    let holds = |dir: &&Path| dir.join(FOLDER).join(KEYRING).symlink_metadata().is_ok();
    file.ancestors().find(holds).ok_or_else(|| {
        Error::refused(
            format!("{} lies in no protected directory", file.display()),
            "name the directory with -D DIR, or a profile with --profile",
        )
    })
}

/// With links resolved as far as the path exists.
fn real(file: &Path) -> Result<PathBuf> {
    let typed = std::path::absolute(file).map_err(Error::io("find", file))?;
    let there = existing(&typed);
    let rest = typed.strip_prefix(there).unwrap_or(Path::new("")).to_path_buf();
    let there = std::fs::canonicalize(there).map_err(Error::io("find", there))?;
    Ok(if rest.as_os_str().is_empty() { there } else { there.join(rest) })
}

/// The part of a path that exists.
fn existing(path: &Path) -> &Path {
    path.ancestors().find(|it| it.symlink_metadata().is_ok()).unwrap_or(Path::new("/"))
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

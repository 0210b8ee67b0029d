//! As whom it is asked: who will unlock when the server starts?
//!
//! ```text
//!   the owner, or anybody else     asks as oneself
//!   root, of an installed unit     as root, with what systemd gives the unit
//!   root, otherwise                becomes the owner, with the owner's home and groups
//! ```

use std::ffi::CString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::errno::Errno;
use nix::unistd::{Gid, Uid, initgroups, setgid, setgroups, setuid};
use tidelock_providers::has_terminal;

use crate::error::{Error, Result};
use crate::owner::Owner;
use crate::protected;
use crate::run_as::wait_for;
use crate::service;
use crate::this_program;

/// What the owner's own shell would have too.
const KEPT: [&str; 6] = ["PATH", "LANG", "LC_ALL", "COLUMNS", "NO_COLOR", "TERM"];

/// What another run of this program, which root has begun, is told.
#[derive(clap::Args)]
pub(super) struct As {
    /// How root asks as another user: this process becomes the owner
    #[arg(long = "as-owner", hide = true)]
    owner: bool,
    /// How root asks as an installed unit: this process has what that has
    #[arg(long = "as-unit", hide = true)]
    unit: bool,
}

/// As whom it is asked.
pub(super) struct User {
    /// The account, or its number.
    pub(super) name: String,
}

/// Becomes the user who will unlock. For root that takes another run of this program, whose
/// environment is the owner's, or that of a unit.
///
/// # Errors
/// The directory is not protected; the system does not let us.
pub(super) fn choose(dir: &Path, told: &As, json: bool) -> Result<User> {
    let path = protected::canonical(dir)?;
    let owner = Owner::of(&path)?;
    let caller = Owner::caller();
    if caller.uid != 0 || told.unit {
        return Ok(User { name: name(caller) });
    }
    if let Some(unit) = service::unit_of(&path).filter(|_| !told.owner) {
        let mut again = service::as_unit(&unit)?;
        ask(&mut again, "--as-unit", &path, json);
        // Returns only if that fails.
        let failed = again.exec();
        return Err(Error::io("run", again.get_program())(failed));
    }
    if owner.uid == 0 {
        return Ok(User { name: name(caller) });
    }
    if told.owner {
        become_owner(owner)
            .map_err(|errno| Error::io("become the owner of", path)(errno.into()))?;
        return Ok(User { name: name(owner) });
    }
    let program = this_program::path()?;
    // What the owner has configured runs as the owner, and must not type into root's terminal.
    let mut again = Command::new(if has_terminal() { Path::new("setsid") } else { &*program });
    if has_terminal() {
        again.arg("--wait").arg(&program);
    }
    again.env_clear();
    again.envs(KEPT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    if let Some(account) = owner.account() {
        again.env("HOME", account.dir).env("USER", &account.name).env("LOGNAME", account.name);
    }
    ask(&mut again, "--as-owner", &path, json);
    let failed = match has_terminal() {
        // It does not hear Ctrl-C there.
        true => match wait_for(&mut again) {
            Ok(ended) => std::process::exit(ended.code().unwrap_or(1)),
            Err(failed) => failed,
        },
        // Returns only if that fails.
        false => again.exec(),
    };
    Err(Error::io("run", again.get_program())(failed))
}

fn ask(command: &mut Command, as_whom: &str, dir: &Path, json: bool) {
    command.args(["key", "check", as_whom, "-D"]).arg(dir).args(json.then_some("--json"));
}

fn become_owner(owner: Owner) -> nix::Result<()> {
    let gid = Gid::from_raw(owner.gid);
    let account = owner.account();
    let named = account.as_ref().and_then(|user| CString::new(user.name.as_bytes()).ok());
    let gid = account.as_ref().map_or(gid, |user| user.gid);
    match named {
        Some(name) => initgroups(&name, gid)?,
        None => setgroups(&[])?,
    }
    setgid(gid)?;
    setuid(Uid::from_raw(owner.uid))?;
    // Root's rights must be gone, whatever the system says.
    if Owner::caller().uid == owner.uid { Ok(()) } else { Err(Errno::EPERM) }
}

fn name(user: Owner) -> String {
    user.account().map_or_else(|| user.uid.to_string(), |account| account.name)
}

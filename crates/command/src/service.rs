//! `tidelock service`: has systemd and Debian's pg_ctlcluster start an unmodified server with the
//! library.
//!
//! ```text
//!   install --> DIR of the unit, root's configuration (target) --> files (plan) --> record
//!   remove  --> what was recorded, if nobody changed it  --> taken away
//!   systemd --> ExecStartPre: unlock --> server --> ExecStartPost: check
//! ```
//!
//! Nothing here runs systemctl: which units start when is the operator's.

mod as_unit;
mod before;
mod plan;
mod record;
mod run;
mod sandbox;
mod scope;
mod start;
mod target;
mod upgrade;

use std::path::{Path, PathBuf};

use clap::Subcommand;

pub(crate) use as_unit::{command as as_unit, refuse_unopened};
pub(crate) use plan::refuse_another_directory;
pub(crate) use record::{edit, text_of};
pub(crate) use scope::fit;

use crate::console;
use crate::error::{Error, Result};
use crate::owner::Owner;
use crate::protected::is_protected;
use crate::unlock::opens_by_itself;
use plan::{Limits, Plan, Unit};
use record::Record;
use target::Target;

/// Start a unit of systemd, or a Debian cluster, with the library
#[derive(Subcommand)]
pub(crate) enum ServiceCommand {
    /// Make a unit unlock its directory, load the library, and fail if it is not loaded
    Install(Install),
    /// Remove what install wrote
    Remove(Remove),
    /// Unlock the directory of an installed unit and leave an agent for its user; run by the unit
    Unlock(Named),
    /// Fail unless the library is loaded in the server of an installed unit; run by the unit
    Check(Named),
    #[command(hide = true)]
    Try(as_unit::Try),
    Run(start::Run),
    #[command(name = "pg-ctlcluster", hide = true)]
    ClusterTool(start::ClusterTool),
    #[command(name = "pg-upgradecluster", hide = true)]
    UpgradeTool(upgrade::UpgradeTool),
}

/// Make a unit start with the library
#[derive(clap::Args)]
pub(crate) struct Install {
    #[command(flatten)]
    named: Named,
    /// The protected directory (default: that of /etc/tidelock/UNIT.toml, or of
    /// postgresql@VERSION-NAME its data_directory)
    #[arg(short = 'D', long = "directory", value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Let the unit do at most N reads and N writes a second (IOReadIOPSMax, IOWriteIOPSMax)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    iops: Option<u32>,
    /// Let it do at most N reads a second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    read_iops: Option<u32>,
    /// Let it do at most N writes a second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    write_iops: Option<u32>,
    /// Print what would be written, write nothing
    #[arg(long)]
    dry_run: bool,
}

/// Remove what install wrote
#[derive(clap::Args)]
pub(crate) struct Remove {
    #[command(flatten)]
    named: Named,
}

/// An installed unit
#[derive(clap::Args)]
pub(crate) struct Named {
    /// The unit: postgresql@15-main, mariadb
    unit: Unit,
    /// Read and write all files of /etc below this directory: for images
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

/// An installed unit of this machine that unlocks `dir`, a canonical path, as root.
pub(crate) fn unit_of(dir: &Path) -> Option<String> {
    units(dir).first().map(ToString::to_string)
}

/// True if the drop-in of an installed unit says `Environment=` with this word, `NAME=VALUE`.
pub(crate) fn has_assigned(unit: &str, word: &str) -> bool {
    let Ok(named) = Named::of(unit) else { return false };
    let record = Record::read(&named.unit, &named.root);
    record.is_ok_and(|record| record.is_some_and(|record| record.has_assigned(word)))
}

/// The installed units of this machine that unlock `dir`, a canonical path.
fn units(dir: &Path) -> Vec<Unit> {
    let all = Record::all().into_iter();
    let theirs = all.filter(|(_, record)| {
        record.directory == dir || record.directory.canonicalize().is_ok_and(|it| it == dir)
    });
    theirs.map(|(unit, _)| unit).collect()
}

/// Refuses to make `dir`, a canonical path, plain for the unit that is named, or for none, while
/// any other one unlocks it: that would fail at its next start.
///
/// # Errors
/// [`Error::Refused`].
pub(crate) fn refuse_other_units(named: Option<&str>, dir: &Path) -> Result<()> {
    let named = named.map(Named::of).transpose()?;
    let all = units(dir);
    let is_named = |unit: &Unit| named.as_ref().is_some_and(|it| it.unit == *unit);
    let Some(unit) = all.iter().find(|unit| !is_named(unit)) else { return Ok(()) };
    let dir = dir.display();
    let hint = match all.iter().any(is_named) {
        true => format!(
            "`tidelock service remove {unit}` first, if that unit shall start on plain files or is \
             gone; then the same command"
        ),
        false => format!(
            "name it too, as root: `tidelock unprotect {unit} -D {dir}`; if all is plain or the \
             unit is gone, `tidelock service remove {unit}`"
        ),
    };
    Err(Error::refused(
        format!("{unit} unlocks {dir} before it starts, and would not start on plain files"),
        hint,
    ))
}

impl ServiceCommand {
    /// # Errors
    /// There is no such unit, its directory is not protected or not that of its server, somebody
    /// changed the files, the keyring does not open, the library is not loaded, rows would lie
    /// outside.
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::Install(install) => install.run(),
            Self::Remove(remove) => remove.run(),
            Self::Unlock(named) => {
                run::without_library()?;
                let record = named.installed()?;
                run::warn_of_changes(&record, &named.unit, &named.root);
                run::refuse_other_library(&record, &named.unit, &named.root)?;
                run::refuse_places(&record, &named.unit, &named.root)?;
                run::unlock(&record)
            }
            Self::Check(named) => run::check(&named.installed()?),
            Self::Try(it) => it.run(),
            Self::Run(run) => run.run(),
            Self::ClusterTool(tool) => tool.run(),
            Self::UpgradeTool(tool) => tool.run(),
        }
    }
}

impl Install {
    fn run(&self) -> Result<()> {
        let (unit, root) = (&self.named.unit, &self.named.root);
        let target = Target::find(unit, self.dir.as_deref(), root)?;
        unit.refuse_another_directory(&target.path, root)?;
        let limits =
            Limits { read: self.read_iops.or(self.iops), write: self.write_iops.or(self.iops) };
        let plan = Plan::make(unit, &target, limits, root)?;
        let old = Record::read(unit, root)?;
        if self.dry_run {
            return console::print(plan.text());
        }
        let mut text = tell_written(&plan.record.write(old.as_ref(), unit, root)?);
        if !target.exists {
            let dir = target.path.display();
            text.push_str(&format!("to be made    {dir}, when {unit} first starts\n"));
        }
        text.push_str(&format!(
            "next          systemctl daemon-reload; systemctl restart {unit}\n"
        ));
        console::print(text)?;
        if target.exists && root == Path::new("/") {
            as_unit::warn_unopened(&unit.to_string(), &target.path, &target.config);
        }
        Ok(())
    }
}

impl Remove {
    fn run(&self) -> Result<()> {
        let record = self.named.installed()?;
        let mut text = tell_removed(&record.remove(&self.named.unit, &self.named.root)?);
        text.push_str("next          systemctl daemon-reload; no file of the data has changed\n");
        console::print(text)
    }
}

/// Installs a unit for this directory, as `install` does without limits.
///
/// # Errors
/// As `tidelock service install`.
pub(crate) fn install(unit: &str, dir: &Path) -> Result<()> {
    let named = Named::of(unit)?;
    let target = Target::find(&named.unit, Some(dir), &named.root)?;
    named.unit.refuse_another_directory(&target.path, &named.root)?;
    let limits = Limits { read: None, write: None };
    let plan = Plan::make(&named.unit, &target, limits, &named.root)?;
    let old = Record::read(&named.unit, &named.root)?;
    let wrote = plan.record.write(old.as_ref(), &named.unit, &named.root)?;
    console::print(tell_written(&wrote))?;
    reload()?;
    run::unlock(&named.installed()?)
}

/// What [`install`] would refuse once `dir` has keys: a path that no unit can hold, a file that
/// somebody has changed; and, where it has them already, that no provider is configured, or none
/// that opens by itself, as the unit asks it. Writes nothing.
///
/// # Errors
/// As [`install`].
pub(crate) fn refuse(unit: &str, dir: &Path, owner: Owner) -> Result<()> {
    let named = Named::of(unit)?;
    let target = match is_protected(dir) {
        true => {
            let target = Target::find(&named.unit, Some(dir), &named.root)?;
            refuse_attended(&target)?;
            if !as_unit::waits_for_a_credential(&target.config) {
                refuse_unopened(unit, &target.path, None)?;
            }
            target
        }
        false => Target::to_be(dir, owner),
    };
    let limits = Limits { read: None, write: None };
    let plan = Plan::make(&named.unit, &target, limits, &named.root)?;
    let old = Record::read(&named.unit, &named.root)?;
    plan.record.refuse_write(old.as_ref(), &named.unit, &named.root)
}

/// No unit asks a person.
fn refuse_attended(target: &Target) -> Result<()> {
    if target.config.providers.iter().any(opens_by_itself) {
        return Ok(());
    }
    let dir = target.path.display();
    Err(Error::refused(
        format!("no provider that is configured for {dir} opens its keyring by itself"),
        format!("add one: `tidelock key add -D {dir} PROVIDER` (docs/keys.md)"),
    ))
}

/// What [`remove`] would refuse, without removing.
///
/// # Errors
/// As [`remove`].
pub(crate) fn refuse_removal(unit: &str) -> Result<()> {
    let named = Named::of(unit)?;
    match Record::read(&named.unit, &named.root)? {
        Some(record) => record.refuse_remove(&named.unit, &named.root),
        None => Ok(()),
    }
}

/// Has systemd, if it runs here, read what was written.
fn reload() -> Result<()> {
    if !Path::new("/run/systemd/system").is_dir() {
        return Ok(());
    }
    let mut command = std::process::Command::new("systemctl");
    command.arg("daemon-reload");
    crate::run_as::run(command).map(drop)
}

/// Removes what was installed for a unit; nothing may be.
///
/// # Errors
/// As `tidelock service remove`.
pub(crate) fn remove(unit: &str) -> Result<()> {
    let named = Named::of(unit)?;
    match Record::read(&named.unit, &named.root)? {
        Some(record) => {
            console::print(tell_removed(&record.remove(&named.unit, &named.root)?))?;
            reload()
        }
        // A call that was cut off may have removed it and told systemd nothing.
        None => reload(),
    }
}

fn tell_written(wrote: &[PathBuf]) -> String {
    match wrote {
        [] => "unchanged     everything is already as it would be written\n".to_owned(),
        wrote => wrote.iter().map(|path| format!("wrote         {}\n", path.display())).collect(),
    }
}

fn tell_removed(removed: &[PathBuf]) -> String {
    removed.iter().map(|path| format!("removed       {}\n", path.display())).collect()
}

impl Named {
    fn of(unit: &str) -> Result<Self> {
        let unit = unit.parse().map_err(|why: &str| Error::usage(why, "name a unit of systemd"))?;
        Ok(Self { unit, root: "/".into() })
    }

    fn installed(&self) -> Result<Record> {
        installed(&self.unit, &self.root)
    }
}

fn installed(unit: &Unit, root: &Path) -> Result<Record> {
    Record::read(unit, root)?.ok_or_else(|| {
        Error::refused(
            format!("{unit} is not installed"),
            format!("`tidelock service install {unit}` writes what it needs"),
        )
    })
}

//! `tidelock service`: has systemd and Debian's pg_ctlcluster start an unmodified server with the library.
//!
//! ```text
//!   install --> DIR of the unit, root's configuration (target) --> files (plan) --> written, recorded
//!   remove  --> what was recorded, if nobody changed it  --> taken away
//!   systemd --> ExecStartPre: unlock --> server --> ExecStartPost: check
//! ```
//!
//! Nothing here runs systemctl: which units start when is the operator's.

mod plan;
mod record;
mod run;
mod target;

use std::path::PathBuf;

use clap::Subcommand;

use crate::console;
use crate::error::{Error, Result};
use plan::{Limits, Plan, Unit};
use record::Record;
use target::Target;

/// Start a unit of systemd, or a Debian cluster, with the library
#[derive(Subcommand)]
pub(crate) enum ServiceCommand {
    /// Write what makes a unit unlock its directory, load the library, and fail if it is not loaded
    Install(Install),
    /// Take away what install wrote
    Remove(Remove),
    /// Unlock the directory of an installed unit and leave an agent for its user; run by the unit
    Unlock(Named),
    /// Fail unless the library is loaded in the server of an installed unit; run by the unit
    Check(Named),
}

/// Write what makes a unit start with the library
#[derive(clap::Args)]
pub(crate) struct Install {
    #[command(flatten)]
    named: Named,
    /// The protected directory (default: that of /etc/tidelock/UNIT.toml, or of postgresql@VERSION-NAME its data_directory)
    #[arg(short = 'D', long = "directory", value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Let the unit read and write at most this often a second (IOReadIOPSMax, IOWriteIOPSMax)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    iops: Option<u32>,
    /// Let it read at most this often a second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    read_iops: Option<u32>,
    /// Let it write at most this often a second
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    write_iops: Option<u32>,
    /// Print what would be written, write nothing
    #[arg(long)]
    dry_run: bool,
}

/// Take away what install wrote
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
    /// Take and write all files of /etc below this directory: for images
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

impl ServiceCommand {
    /// # Errors
    /// The unit or its directory is none, somebody changed the files, the keyring does not open, the
    /// library is not loaded.
    pub(crate) fn run(self) -> Result<()> {
        match self {
            Self::Install(install) => install.run(),
            Self::Remove(remove) => remove.run(),
            Self::Unlock(named) => run::unlock(&named.installed()?),
            Self::Check(named) => run::check(&named.installed()?),
        }
    }
}

impl Install {
    fn run(&self) -> Result<()> {
        let (unit, root) = (&self.named.unit, &self.named.root);
        let target = Target::find(unit, self.dir.as_deref(), root)?;
        let limits =
            Limits { read: self.read_iops.or(self.iops), write: self.write_iops.or(self.iops) };
        let plan = Plan::make(unit, &target, limits, root)?;
        let old = Record::read(unit, root)?;
        if self.dry_run {
            return console::print(plan.text());
        }
        let wrote = plan.record.write(old.as_ref(), unit, root)?;
        let mut text = String::new();
        for path in &wrote {
            text.push_str(&format!("wrote         {}\n", path.display()));
        }
        if wrote.is_empty() {
            text.push_str("unchanged     all is as it would be written\n");
        }
        if !target.exists {
            let dir = target.path.display();
            text.push_str(&format!("to be made    {dir}, when {unit} first starts\n"));
        }
        text.push_str(&format!(
            "next          systemctl daemon-reload; systemctl restart {unit}\n"
        ));
        console::print(text)
    }
}

impl Remove {
    fn run(&self) -> Result<()> {
        let record = self.named.installed()?;
        let mut text = String::new();
        for path in record.remove(&self.named.unit, &self.named.root)? {
            text.push_str(&format!("removed       {}\n", path.display()));
        }
        text.push_str("next          systemctl daemon-reload; the data stays sealed\n");
        console::print(text)
    }
}

impl Named {
    fn installed(&self) -> Result<Record> {
        Record::read(&self.unit, &self.root)?.ok_or_else(|| {
            Error::refused(
                format!("{} is not installed", self.unit),
                format!("`tidelock service install {}` writes what it needs", self.unit),
            )
        })
    }
}

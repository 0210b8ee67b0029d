//! Which server is meant, and how it is stopped and started: a Debian cluster, another unit of
//! systemd, or a directory whose server is pg_ctl's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::begun::beside;
use crate::error::{Error, Result};
use crate::owner::Owner;
use crate::postgres::{Cluster, Instance, options, run};
use crate::service;

/// Which one
#[derive(clap::Args)]
pub(super) struct Which {
    /// A Debian cluster (postgresql@15-main), or with -D another unit of systemd
    #[arg(required_unless_present = "dir")]
    unit: Option<String>,
    /// The data directory [default: that of the cluster]
    #[arg(short = 'D', long = "directory", value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Where the server's programs are [default: beside the running server]
    #[arg(long, value_name = "DIR")]
    bindir: Option<PathBuf>,
}

/// A server and who starts it.
pub(super) struct Target {
    pub(super) instance: Instance,
    /// `postgresql@15-main`, `mydb`: it gets the service part.
    pub(super) unit: Option<String>,
    /// Options of the last start, for a server of pg_ctl's.
    pub(super) options: Vec<String>,
}

impl Which {
    /// # Errors
    /// There is no such server; its programs are missing; the caller may not.
    pub(super) fn find(&self) -> Result<Target> {
        let cluster = self.unit.as_deref().and_then(Cluster::of_unit);
        let dir = match (&self.dir, &cluster) {
            (Some(dir), _) => dir.clone(),
            (None, Some(cluster)) => data_directory(cluster)?,
            (None, None) => {
                return Err(Error::usage(
                    format!(
                        "{} is not a Debian cluster, so its directory is unknown",
                        self.unit.as_deref().unwrap_or_default()
                    ),
                    "name its data directory with -D DIR",
                ));
            }
        };
        let instance = Instance::find(&dir, self.bindir.as_deref(), cluster)?;
        let unit = match &instance.cluster {
            Some(cluster) => Some(cluster.unit()),
            None => self.unit.clone(),
        };
        if unit.is_some() && Owner::caller().uid != 0 {
            return Err(Error::refused(
                "what a unit needs is written into /etc, by root alone",
                "run it as root; or name the directory alone, with -D, if no unit starts it",
            ));
        }
        Ok(Target { options: options(&instance.dir), instance, unit })
    }

    /// As it is typed again.
    pub(super) fn words(&self) -> String {
        let dir = self.dir.iter().map(|dir| format!("-D {}", dir.display()));
        self.unit.iter().cloned().chain(dir).collect::<Vec<_>>().join(" ")
    }
}

/// That of a cluster, by its configuration.
pub(crate) fn data_directory(cluster: &Cluster) -> Result<PathBuf> {
    let file = cluster.folder().join("postgresql.conf");
    let text = fs::read_to_string(&file).map_err(Error::io("read", &file))?;
    let dir = service::setting(&text, "data_directory").ok_or_else(|| {
        Error::refused(
            format!("{} has no data_directory", file.display()),
            "name the data directory itself",
        )
    })?;
    Ok(dir.into())
}

impl Target {
    pub(super) fn dir(&self) -> &Path {
        &self.instance.dir
    }

    /// A unit that is no cluster is systemd's alone.
    fn other_unit(&self) -> Option<&str> {
        self.unit.as_deref().filter(|_| self.instance.cluster.is_none())
    }

    /// # Errors
    /// [`Error::Tool`].
    pub(super) fn stop(&self) -> Result<()> {
        match self.other_unit() {
            Some(unit) => self.systemctl("stop", unit),
            None => self.instance.stop(),
        }
    }

    /// # Errors
    /// [`Error::Tool`].
    pub(super) fn start(&self, options: &[String], log: Option<&Path>) -> Result<()> {
        let log = log.map_or_else(|| beside(self.dir(), ".log"), Path::to_path_buf);
        match self.other_unit() {
            Some(unit) => self.systemctl("start", unit),
            None => self.instance.start(options, &log),
        }
    }

    fn systemctl(&self, what: &str, unit: &str) -> Result<()> {
        let mut command = Command::new("systemctl");
        command.args([what, unit]).stdin(self.instance.programs.stdin()?);
        run(command).map(drop)
    }
}

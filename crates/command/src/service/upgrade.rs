//! A pg_upgradecluster in front of Debian's, which cannot upgrade a protected cluster.
//!
//! Debian's runs every tool without keys, and makes the new cluster by pg_createcluster, which is
//! plain. So `install` puts one before it that refuses the clusters of installed units and says
//! what to do, before anything is stopped. It upgrades nothing itself.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use super::record::Record;
use super::{Unit, start};
use crate::error::{Error, Result};

/// Debian's.
const UPGRADE_TOOL: &str = "/usr/bin/pg_upgradecluster";
/// Before it in PATH.
pub(super) const IN_FRONT: &str = "/usr/local/bin/pg_upgradecluster";

/// Debian's pg_upgradecluster, unless it is given a cluster of an installed unit
#[derive(clap::Args)]
pub(crate) struct UpgradeTool {
    #[arg(last = true, value_name = "ARG")]
    arguments: Vec<OsString>,
}

impl UpgradeTool {
    /// Returns only if pg_upgradecluster does not start.
    ///
    /// # Errors
    /// [`Error::Refused`] for the cluster of an installed unit; [`Error::Io`].
    pub(super) fn run(&self) -> Result<()> {
        for unit in named(&self.arguments) {
            if let Some(record) = Record::read(&unit, Path::new("/"))? {
                return Err(refused(&unit, &record));
            }
        }
        start::become_it(Command::new(UPGRADE_TOOL), &self.arguments, None)
    }
}

fn refused(unit: &Unit, record: &Record) -> Error {
    Error::refused(
        format!(
            "pg_upgradecluster would make a plain cluster of {unit}, whose {} is protected",
            record.directory.display()
        ),
        "docs/tools.md, \"A Debian cluster\": `tidelock init NEW`, initdb and pg_upgrade by \
         `tidelock exec`, then pg_createcluster takes NEW over",
    )
}

/// Every cluster that two words side by side may name: whatever options there are, VERSION and NAME
/// are among them.
fn named(arguments: &[OsString]) -> Vec<Unit> {
    let words: Vec<&str> = arguments.iter().filter_map(|argument| argument.to_str()).collect();
    let pairs = words.iter().zip(words.iter().skip(1));
    pairs.filter_map(|(version, name)| Unit::of_cluster(version, name)).collect()
}

/// What `install` writes for clusters of Debian.
pub(super) fn script(program: &Path) -> String {
    format!(
        "#!/bin/sh\n\
         # Written by `tidelock service install`. Debian's pg_upgradecluster makes a plain\n\
         # cluster of a protected one: that is refused here. All else goes on as is.\n\
         exec {} service pg-upgradecluster -- \"$@\"\n",
        program.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_is_among_those_named_whatever_the_options() {
        let units = |line: &str| {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            named(&words).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        for line in [
            "15 main",
            "-v 17 15 main",
            "--version=17 -m link 15 main /srv/new",
            "15 main --rename other",
            "-j 2 --method upgrade 15 main",
        ] {
            assert!(units(line).contains(&"postgresql@15-main".to_owned()), "{line}");
        }
        for line in ["", "--help", "main", "-v 17"] {
            assert!(units(line).is_empty(), "{line}: {:?}", units(line));
        }
    }
}

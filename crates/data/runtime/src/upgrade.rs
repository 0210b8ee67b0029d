//! What `tidelock exec` says of a run of pg_upgrade: which `cp` has keys, where the logs are, and
//! whose the folders of a tablespace are.
//!
//! pg_upgrade starts `cp` for some files of the old cluster, and shells that append to its logs
//! below the new one. `exec` makes a place in memory for the logs and a link to it; neither is
//! known to a pg_upgrade that a script starts, which would fail half-way.
//!
//! Both clusters have the same tablespaces, each a folder of its own there, named for its version.

use tidelock_cipher::UnitCipher;
use tidelock_engine::{Errno, System};

use crate::host::{Engine, Host};
use crate::messages;

const EXIT_REFUSED: i32 = 3;

/// The variable: a line `CP:LOGS`, then two lines for each folder in a tablespace: the cluster that
/// has it, empty for a plain one, and how the folder's path begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Upgrade<'v> {
    /// The program that copies, a canonical path.
    pub copier: &'v [u8],
    /// Where the logs are: a directory that belongs to no protected one, whatever link leads to it.
    /// Empty if the new cluster is plain.
    pub logs: &'v [u8],
    /// The lines about tablespaces.
    pub spaces: &'v [u8],
}

impl<'v> Upgrade<'v> {
    /// Reads the value; `None` for one that `exec` does not write.
    #[must_use]
    pub fn parse(value: &'v [u8]) -> Option<Self> {
        let (first, spaces) = split(value, b'\n').unwrap_or((value, b""));
        let (copier, logs) = split(first, b':')?;
        let absolute = |path: &[u8]| path.starts_with(b"/");
        let read = absolute(copier) && (logs.is_empty() || absolute(logs));
        read.then_some(Self { copier, logs, spaces })
    }

    /// Each folder in a tablespace: the cluster that has it, and how its path begins.
    fn folders(self) -> impl Iterator<Item = (&'v [u8], &'v [u8])> {
        let mut rest = self.spaces;
        core::iter::from_fn(move || {
            let (cluster, after) = split(rest, b'\n')?;
            let (stem, after) = split(after, b'\n').unwrap_or((after, b""));
            rest = after;
            stem.starts_with(b"/").then_some((cluster, stem))
        })
    }

    /// Lets the link to the logs lead out of the protected directory.
    ///
    /// # Errors
    /// ENAMETOOLONG.
    pub fn leave_out_logs<S: System, C: UnitCipher>(
        self,
        process: &Engine<S, C>,
    ) -> Result<(), Errno> {
        if self.logs.is_empty() { Ok(()) } else { process.roots().leave_out(self.logs) }
    }

    /// Tells the engine whose the folders in the tablespaces are.
    ///
    /// # Errors
    /// ENAMETOOLONG, ENFILE if there are too many, ENOENT for a cluster whose keys are not here.
    fn share<S: System, C: UnitCipher>(self, process: &Engine<S, C>) -> Result<(), Errno> {
        let roots = process.roots();
        for (cluster, stem) in self.folders() {
            let number = roots.numbers().find(|root| roots.path(*root) == Some(cluster));
            if number.is_none() && !cluster.is_empty() {
                return Err(Errno::NOENT);
            }
            roots.share(stem, number)?;
        }
        Ok(())
    }
}

/// Shares the tablespaces between the clusters, whose directories are in the engine's table
/// already; or ends the process, which would seal files with the wrong keys.
pub fn share_tablespaces<S: System, C: UnitCipher>(
    process: &Engine<S, C>,
    host: &dyn Host,
    upgrade: Option<Upgrade<'_>>,
) {
    if let Some(Err(Errno(number))) = upgrade.map(|upgrade| upgrade.share(process)) {
        messages::fatal(
            host,
            format_args!("the tablespaces of the two clusters cannot be shared (errno {number})"),
            "name both clusters, if both are protected: tidelock exec -D OLD -D NEW -- pg_upgrade",
            EXIT_REFUSED,
        );
    }
}

/// True for the program that hands the variable on to nobody: what a server starts has no keys.
#[must_use]
pub fn ends_with(exe: &[u8]) -> bool {
    is_named(exe, b"postgres")
}

/// Ends a pg_upgrade that nothing was made ready for.
pub fn refuse_unprepared(host: &dyn Host, exe: &[u8], upgrade: Option<Upgrade<'_>>) {
    if upgrade.is_none() && is_named(exe, b"pg_upgrade") {
        messages::start();
        messages::fatal(
            host,
            format_args!(
                "pg_upgrade was started by another program: it copies pg_xact with a `cp` that \
                 has no keys, and its logs cannot be written"
            ),
            "let tidelock start it: tidelock exec -D OLD -D NEW -- pg_upgrade -d OLD -D NEW ...",
            EXIT_REFUSED,
        );
    }
}

fn split(text: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let place = text.iter().position(|&byte| byte == at)?;
    Some((text.get(..place)?, text.get(place + 1..)?))
}

fn is_named(exe: &[u8], name: &[u8]) -> bool {
    exe.rsplit(|&byte| byte == b'/').next() == Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_paths_are_taken() {
        let both = Upgrade { copier: b"/bin/cp", logs: b"/dev/shm/a", spaces: b"" };
        assert_eq!(Upgrade::parse(b"/bin/cp:/dev/shm/a"), Some(both));
        assert_eq!(Upgrade::parse(b"/bin/cp:"), Some(Upgrade { logs: b"", ..both }));
        for wrong in [&b""[..], b"/bin/cp", b"cp:/dev/shm/a", b"/bin/cp:logs", b":/logs"] {
            assert_eq!(Upgrade::parse(wrong), None);
        }
    }

    #[test]
    fn each_folder_of_a_tablespace_has_a_cluster_or_nobody() {
        let read = |value: &'static str| -> Vec<_> {
            Upgrade::parse(value.as_bytes()).expect("a variable").folders().collect()
        };
        let (one, two) = ((&b"/old"[..], &b"/s/PG_15_"[..]), (&b""[..], &b"/s/PG_17_"[..]));
        assert_eq!(read("/bin/cp:\n/old\n/s/PG_15_\n\n/s/PG_17_\n"), [one, two]);
        assert_eq!(read("/bin/cp:/dev/shm/a\n/old\n/s/PG_15_"), [one]);
        assert_eq!(read("/bin/cp:\n"), []);
        assert_eq!(read("/bin/cp:\n/old\nPG_15_\n"), []);
    }

    #[test]
    fn programs_are_known_by_the_last_part_of_their_path() {
        assert!(ends_with(b"/usr/lib/postgresql/15/bin/postgres") && ends_with(b"postgres"));
        assert!(!ends_with(b"/usr/bin/not-postgres") && !ends_with(b"/postgres/psql"));
    }
}

//! What `tidelock exec` says of a run of pg_upgrade: which `cp` has keys, and where the logs are.
//!
//! pg_upgrade starts `cp` for some files of the old cluster, and shells that append to its logs
//! below the new one. `exec` makes a place in memory for the logs and a link to it; neither is
//! known to a pg_upgrade that a script starts, which would fail half-way.

use tidelock_cipher::UnitCipher;
use tidelock_contract::ExitClass;
use tidelock_engine::{Errno, System};

use crate::host::{Engine, Host};
use crate::messages;

/// `CP:LOGS` of the variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Upgrade<'v> {
    /// The program that copies, a canonical path.
    pub copier: &'v [u8],
    /// Where the logs are: a directory that belongs to no protected one, whatever link leads to it.
    /// Empty if the new cluster is plain.
    pub logs: &'v [u8],
}

impl<'v> Upgrade<'v> {
    /// Reads the value; `None` for one that `exec` does not write.
    #[must_use]
    pub fn parse(value: &'v [u8]) -> Option<Self> {
        let colon = value.iter().position(|&byte| byte == b':')?;
        let (copier, logs) = (value.get(..colon)?, value.get(colon + 1..)?);
        let absolute = |path: &[u8]| path.starts_with(b"/");
        (absolute(copier) && (logs.is_empty() || absolute(logs))).then_some(Self { copier, logs })
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
            ExitClass::Refused,
        );
    }
}

fn is_named(exe: &[u8], name: &[u8]) -> bool {
    exe.rsplit(|&byte| byte == b'/').next() == Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_paths_are_taken() {
        let both = Upgrade { copier: b"/bin/cp", logs: b"/dev/shm/a" };
        assert_eq!(Upgrade::parse(b"/bin/cp:/dev/shm/a"), Some(both));
        assert_eq!(Upgrade::parse(b"/bin/cp:"), Some(Upgrade { logs: b"", ..both }));
        for wrong in [&b""[..], b"/bin/cp", b"cp:/dev/shm/a", b"/bin/cp:logs", b":/logs"] {
            assert_eq!(Upgrade::parse(wrong), None);
        }
    }

    #[test]
    fn programs_are_known_by_the_last_part_of_their_path() {
        assert!(ends_with(b"/usr/lib/postgresql/15/bin/postgres") && ends_with(b"postgres"));
        assert!(!ends_with(b"/usr/bin/not-postgres") && !ends_with(b"/postgres/psql"));
    }
}

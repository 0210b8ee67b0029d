//! Folders in tablespaces whose cluster their paths do not show: `tidelock exec` says whose.
//!
//! pg_upgrade puts the new cluster's folders beside those of the old one. Incremental backups have
//! several protected directories in one run, and tablespaces go to places that no link names yet.

use tidelock_cipher::UnitCipher;
use tidelock_contract::ExitClass;
use tidelock_engine::{Errno, System};

use crate::host::{Engine, Host};
use crate::messages;

/// Tells the engine whose they are; the directories are in its table already. Ends a process that
/// would seal files with the wrong keys.
///
/// `value` has two lines for each folder: the protected directory that has it, empty if it is
/// plain, and how the folder's path begins.
pub fn share<S: System, C: UnitCipher>(process: &Engine<S, C>, host: &dyn Host, value: &[u8]) {
    let roots = process.roots();
    for (cluster, stem) in folders(value) {
        let number = roots.numbers().find(|root| roots.path(*root) == Some(cluster));
        let shared = match number {
            None if !cluster.is_empty() => Err(Errno::NOENT),
            number => roots.share(stem, number),
        };
        if let Err(Errno(number)) = shared {
            messages::fatal(
                host,
                format_args!(
                    "{}* cannot be said to belong to {} (errno {number})",
                    String::from_utf8_lossy(stem),
                    String::from_utf8_lossy(cluster)
                ),
                "name all protected directories of the run with -D before the `--`",
                ExitClass::Refused,
            );
        }
    }
}

fn folders(value: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut lines = value.split(|&byte| byte == b'\n');
    core::iter::from_fn(move || Some((lines.next()?, lines.next()?)))
        .take_while(|(_, stem)| stem.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_folder_has_a_directory_or_nobody() {
        let read = |value: &'static str| folders(value.as_bytes()).collect::<Vec<_>>();
        let (one, two) = ((&b"/old"[..], &b"/s/PG_15_"[..]), (&b""[..], &b"/s/PG_17_"[..]));
        assert_eq!(read("/old\n/s/PG_15_\n\n/s/PG_17_\n"), [one, two]);
        assert_eq!(read("/old\n/s/PG_15_"), [one]);
        assert_eq!(read("/old\nPG_15_\n"), []);
        assert_eq!(read(""), []);
    }
}

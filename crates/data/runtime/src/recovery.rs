//! Is PostgreSQL recovering from an unclean stop? Only then may a lost header get a new key.

use tidelock_cipher::{Root, UnitCipher};
use tidelock_contract::postgres::{STATE_END, recovers};
use tidelock_engine::{Descriptor, Fd, System};

use crate::host::Engine;

/// open(2): O_RDONLY with O_CLOEXEC.
const READ: i32 = 0o2_000_000;

/// True if the control file of directory `root` says that this program, its server, recovers.
pub fn is_under_way<S: System, C: UnitCipher>(process: &Engine<S, C>, root: Root) -> bool {
    first_bytes(process, root).is_some_and(|first| recovers(&first))
}

fn first_bytes<S: System, C: UnitCipher>(
    process: &Engine<S, C>,
    root: Root,
) -> Option<[u8; STATE_END]> {
    let path = process.roots().policy(root)?.keys()?.recovery.as_ref()?;
    let fd = process.open(Fd::CWD, path.as_c(), READ, 0).ok()?;
    let mut first = [0u8; STATE_END];
    let count = match process.descriptor(fd) {
        Descriptor::Sealed(file) => file.pread(&mut first, 0),
        _ => Ok(0),
    };
    process.close(fd).ok()?;
    (count == Ok(first.len())).then_some(first)
}

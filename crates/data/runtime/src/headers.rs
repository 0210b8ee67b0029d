//! Headers under the keys that are held; the agent is asked for newer ones where a header is ahead
//! of them.

use rustix::rand::{GetRandomFlags, getrandom};
use tidelock_cipher::{Proven, Root, SealedHeader, UnitCipher, UnlockError};
use tidelock_engine::System;
use tidelock_format::{Class, Header, HeaderRegion, Layout, Nonce};

use crate::held::{Held, HeldKeyring};
use crate::host::{Engine, Host};
use crate::renewal;

/// The header in the first bytes of a file.
///
/// # Errors
/// [`UnlockError`].
pub fn choose<S: System, C: UnitCipher>(
    process: &Engine<S, C>,
    host: &dyn Host,
    first: &[u8],
) -> Result<Proven, UnlockError> {
    renewal::follow_in_new_child(process, host);
    match tidelock_cipher::choose(first, &Held) {
        Err(UnlockError::UnknownKey | UnlockError::RolledBack)
            if renewal::follow_all(process, host) =>
        {
            tidelock_cipher::choose(first, &Held)
        }
        chosen => chosen,
    }
}

/// Catches up with the keyring of `root` before a new file is made; may wait for its agent.
pub fn prepare<S: System, C: UnitCipher>(process: &Engine<S, C>, host: &dyn Host, root: Root) {
    renewal::follow_in_new_child(process, host);
    renewal::follow(process, host, root);
}

/// The header of a new file of directory `root`. Waits for nobody.
///
/// # Errors
/// [`UnlockError`] if there is no current data key or no randomness.
pub fn new_header<S: System, C: UnitCipher>(
    process: &Engine<S, C>,
    root: Root,
    class: Class,
    layout: Layout,
) -> Result<SealedHeader, UnlockError> {
    let directory = process.roots().policy(root).and_then(|directory| directory.keys());
    header_under(directory.ok_or(UnlockError::UnknownKey)?.keyring, class, layout)
}

/// The header of a new file under the current data key of this keyring, with a fresh nonce.
///
/// # Errors
/// [`UnlockError`] if there is no randomness.
pub fn header_under(
    keyring: &HeldKeyring,
    class: Class,
    layout: Layout,
) -> Result<SealedHeader, UnlockError> {
    let (id, data_key, key) = keyring.current().ok_or(UnlockError::UnknownKey)?;
    let mut nonce = [0u8; 32];
    fill_random(&mut nonce)?;
    let from = (id, keyring.generation());
    let signed = Header::new(class, layout, from, data_key, Nonce(nonce)).signed_bytes();
    Ok(SealedHeader::new(HeaderRegion::both(&signed, &key.header_mac(&signed))))
}

/// getrandom(2): AWS-LC's generator keeps state that a hook must not touch.
fn fill_random(into: &mut [u8; 32]) -> Result<(), UnlockError> {
    let mut done = 0;
    while done < into.len() {
        match getrandom(&mut into[done..], GetRandomFlags::empty()) {
            Ok(count) => done += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return Err(UnlockError::NoRandomness),
        }
    }
    Ok(())
}

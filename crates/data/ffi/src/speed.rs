//! How fast one core seals: the lab's experiment `crypto`. No file, no keyring; a throw-away key.

use std::hint::black_box;
use std::time::{Duration, Instant};

use tidelock_cipher::{DataKey, KeySlot, Secret, UnitCipher as _, UnlockError};
use tidelock_format::{Class, DataKeyId, Generation, Header, KeyringId, Layout, Nonce, UnitNumber};

use crate::{Cells, Xts};

/// Bytes a second that one core seals in calls of `block` bytes (cut into units as a write is; the
/// last one may be partial), over about `seconds`.
///
/// # Errors
/// When there is no memory for a key.
pub fn speed(block: usize, seconds: u32) -> Result<f64, UnlockError> {
    static CELLS: Cells = Cells::EMPTY;
    static CIPHER: Xts = Xts::over(&CELLS);
    let slot = KeySlot(0);
    CIPHER.install(slot, &DataKey::new(Secret::new([7; 32])).file_key(&header()))?;
    let plain = vec![0x5a; block];
    let mut sealed = vec![0; block];
    let limit = Duration::from_secs(seconds.into());
    let (start, mut bytes, mut first) = (Instant::now(), 0.0, 0);
    while start.elapsed() < limit {
        for _ in 0..CALLS {
            CIPHER.seal(slot, UnitNumber(first), &plain, &mut sealed);
            first += 1;
        }
        bytes += (block * CALLS) as f64;
    }
    black_box(&sealed);
    Ok(bytes / start.elapsed().as_secs_f64())
}

fn header() -> Header {
    let from = (KeyringId([0; 16]), Generation(1));
    Header::new(Class::Paged, Layout::DEFAULT, from, DataKeyId([0; 16]), Nonce([3; 32]))
}

/// Calls between two looks at the clock.
const CALLS: usize = 256;

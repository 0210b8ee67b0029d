//! Whether this process takes the path of our own: what the CPU has, what AWS-LC lacks, and a test
//! at start that both make the same of bytes.
//!
//! UNSAFETY: a variable of AWS-LC, and what runs with a key that was set.

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

use tidelock_format::{UNIT_USIZE, UnitNumber};

use super::{Keys, Way, has_instructions};
use crate::xts::by_aws_lc;

unsafe extern "C" {
    /// What AWS-LC knows of the CPU (`crypto/fipsmodule/cpucap`), without what OPENSSL_ia32cap
    /// hides. The name carries the version that Cargo.toml pins: another one does not link.
    #[link_name = "aws_lc_0_47_0_OPENSSL_ia32cap_P"]
    static CAPABILITIES: [u32; 4];
}

/// True if sealing and opening go this way in this process. It is decided while the library starts;
/// at the first question in programs that only link it.
#[inline]
pub(crate) fn is_chosen() -> bool {
    match CHOSEN.load(Relaxed) {
        UNKNOWN => decide(),
        known => known == YES,
    }
}

static CHOSEN: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const YES: u8 = 1;
const NO: u8 = 2;

/// Takes 16 KiB of the stack, which calls of the program may not have.
#[cold]
#[inline(never)]
fn decide() -> bool {
    // AWS-LC looks at the CPU before it encrypts.
    let chosen = has_instructions() && agrees() && is_missing_in_aws_lc();
    CHOSEN.store(if chosen { YES } else { NO }, Relaxed);
    chosen
}

/// True if AWS-LC has VAES and lacks what its own code for AVX-512 needs
/// (`avx512_xts_available`).
fn is_missing_in_aws_lc() -> bool {
    /// In word 2: AVX2.
    const AVX2: u32 = 1 << 5;
    /// In word 2: AVX-512 F, DQ, BW, VL.
    const AVX512: u32 = 1 << 16 | 1 << 17 | 1 << 30 | 1 << 31;
    /// In word 3: VAES and VPCLMULQDQ.
    const VAES: u32 = 1 << 9 | 1 << 10;
    /// In word 3: AVX512_VBMI2.
    const VBMI2: u32 = 1 << 6;
    // SAFETY: AWS-LC has written it before its first encryption, and never again.
    let [_, _, two, three] = unsafe { CAPABILITIES };
    let wide = two & AVX512 == AVX512 && three & VBMI2 != 0;
    two & AVX2 != 0 && three & VAES == VAES && !wide
}

/// The test at start: what this file makes of bytes is what AWS-LC makes of them, both ways.
fn agrees() -> bool {
    let mut keys = Keys::new();
    keys.set(&TEST_KEY)
        && agrees_with_aws_lc(|way, unit, bytes| {
            let place = bytes.as_mut_ptr();
            // SAFETY: the key is set; both places are the same bytes.
            unsafe { keys.run(way, unit, place.cast_const(), place, bytes.len()) };
        })
}

/// True if `run` seals, under [`TEST_KEY`], as AWS-LC does, and opens what it has sealed.
fn agrees_with_aws_lc(run: impl Fn(Way, UnitNumber, &mut [u8])) -> bool {
    let plain: [u8; TESTED] = core::array::from_fn(|at| (at % 251).to_le_bytes()[0]);
    // A whole unit, lengths on both sides of a pass, and numbers that reach into each byte.
    for (unit, len) in [(0, TESTED), (1, 16), (0x0102_0304_0506_0708, 240), (u64::MAX, 272)] {
        let (mut ours, mut theirs) = (plain, plain);
        run(Way::Seal, UnitNumber(unit), &mut ours[..len]);
        if !by_aws_lc(Way::Seal, &TEST_KEY, UnitNumber(unit), &mut theirs[..len]) || ours != theirs
        {
            return false;
        }
        run(Way::Open, UnitNumber(unit), &mut ours[..len]);
        if ours != plain {
            return false;
        }
    }
    true
}

/// The key of the test at start. Its halves differ, as SP 800-38E wants.
const TEST_KEY: [u8; 64] = {
    let mut key = [0; 64];
    let mut at = 0;
    while at < 64 {
        key[at as usize] = 0x5a ^ at;
        at += 1;
    }
    key
};

/// Bytes of the test at start: one unit, since a longer run would be two.
const TESTED: usize = UNIT_USIZE;

#[cfg(test)]
mod tests {
    use super::*;

    /// A path with a fault; `wrong` spoils what it made of bytes.
    fn faulty(wrong: impl Fn(Way, u64, &mut [u8])) -> bool {
        agrees_with_aws_lc(|way, unit, bytes| {
            assert!(by_aws_lc(way, &TEST_KEY, unit, bytes), "memory");
            wrong(way, unit.0, bytes);
        })
    }

    #[test]
    fn a_path_with_one_wrong_bit_is_not_taken() {
        assert!(faulty(|_, _, _| {}), "AWS-LC agrees with itself");
        // In the last byte of each length, in one direction alone.
        for wrong_len in [TESTED, 16, 240, 272] {
            for wrong_way in [Way::Seal, Way::Open] {
                let taken = faulty(|way, _, bytes| {
                    if way == wrong_way && bytes.len() == wrong_len {
                        bytes[wrong_len - 1] ^= 0x80;
                    }
                });
                assert!(!taken, "{wrong_way:?}, {wrong_len} bytes");
            }
        }
    }

    /// Opening undoes such a fault, so that a file would look whole until another CPU reads it.
    #[test]
    fn a_path_that_opens_what_it_seals_and_is_another_cipher_is_not_taken() {
        let other = |change: fn(&mut [u8; 64], &mut u64)| {
            agrees_with_aws_lc(|way, unit, bytes| {
                let (mut key, mut number) = (TEST_KEY, unit.0);
                change(&mut key, &mut number);
                assert!(by_aws_lc(way, &key, UnitNumber(number), bytes), "memory");
            })
        };
        assert!(other(|_, _| {}));
        assert!(!other(|key, _| key[31] ^= 1));
        assert!(!other(|key, _| key.rotate_left(32)));
        assert!(!other(|_, number| *number &= u64::from(u32::MAX)));
        assert!(!other(|_, number| *number = number.swap_bytes()));
        assert!(!agrees_with_aws_lc(|_, _, _| {}), "nothing is sealed");
    }
}

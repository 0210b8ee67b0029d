//! AES-256-XTS with the 256-bit VAES instructions, for CPUs on which AWS-LC takes AES-NI.
//!
//! ```text
//!   one pass   16 blocks in 8 registers    block XOR tweak -> 14 rounds -> XOR tweak
//!              16 tweaks in 8 registers    each times x^16 for the next pass
//! ```
//!
//! AWS-LC has this mode for AVX-512 and for AES-NI; AMD's Zen 3 and Intel's clients of today have
//! VAES without AVX-512. This file is the one cipher of our own (docs/decisions/0018): it is chosen
//! only where AWS-LC would not take AVX-512, only after it has agreed with AWS-LC in this process,
//! and never in the feature `fips`. No branch and no address depends on a key, a tweak or a plain
//! byte: lengths and unit numbers decide what runs.
//!
//! UNSAFETY: assembly and intrinsics take pointers, and instructions must be there.
#![expect(unsafe_code, reason = "assembly, and what AWS-LC knows of the CPU")]

use core::arch::asm;
use core::arch::x86_64::{
    __m128i, __m256i, _mm_aesenc_si128, _mm_aesenclast_si128, _mm_aesimc_si128,
    _mm_aeskeygenassist_si128, _mm_loadu_si128, _mm_set_epi64x, _mm_shuffle_epi32, _mm_slli_si128,
    _mm_xor_si128, _mm256_broadcastsi128_si256, _mm256_clmulepi64_epi128, _mm256_or_si256,
    _mm256_permute2x128_si256, _mm256_set_m128i, _mm256_set1_epi64x, _mm256_slli_epi64,
    _mm256_slli_si256, _mm256_srli_epi64, _mm256_storeu_si256, _mm256_xor_si256, _mm256_zeroall,
};

use tidelock_format::{UNIT_USIZE, UnitNumber};
use zeroize::Zeroize as _;

pub(crate) use choice::is_chosen;

mod choice;

const ROUNDS: usize = 14;
/// Bytes of one pass.
const PASS: usize = 256;
const REGISTERS: usize = 8;

/// Round keys, each twice, as a register of two blocks wants them; aligned in [`Keys`].
type Schedule = [[u64; 4]; ROUNDS + 1];

/// The schedules of one file key; wiped when dropped.
#[derive(Clone)]
#[repr(C, align(32))]
pub struct Keys {
    seal: Schedule,
    open: Schedule,
    tweak: Schedule,
}

/// What is to be done with the blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Encrypt.
    Seal,
    /// Decrypt.
    Open,
}

impl Drop for Keys {
    fn drop(&mut self) {
        for schedule in [&mut self.seal, &mut self.open, &mut self.tweak] {
            schedule.iter_mut().for_each(|key| key.zeroize());
        }
    }
}

impl Keys {
    /// Schedules of no key yet.
    #[must_use]
    pub const fn new() -> Self {
        let none = [[0; 4]; ROUNDS + 1];
        Self { seal: none, open: none, tweak: none }
    }

    /// Takes a key of two halves: data, then tweaks. False if they are equal, which SP 800-38E
    /// forbids; or if the CPU lacks an instruction.
    ///
    /// Round keys pass through the stack: whoever calls wipes it.
    #[must_use]
    pub fn set(&mut self, key: &[u8; 64]) -> bool {
        let (data, tweak) = key.split_at(32);
        let differ = data.iter().zip(tweak).fold(0, |differ, (a, b)| differ | (a ^ b)) != 0;
        let (Some(data), Some(tweak)) = (data.first_chunk(), tweak.first_chunk()) else {
            return false;
        };
        if !differ || !has_instructions() {
            return false;
        }
        // SAFETY: the instructions are there.
        unsafe { self.expand(data, tweak) };
        true
    }

    #[target_feature(enable = "aes,avx2")]
    fn expand(&mut self, data: &[u8; 32], tweak: &[u8; 32]) {
        let keys = round_keys(data);
        for (round, key) in keys.iter().enumerate() {
            self.seal[round] = twice(*key);
            let inner = round > 0 && round < ROUNDS;
            let inverse = if inner { _mm_aesimc_si128(*key) } else { *key };
            self.open[ROUNDS - round] = twice(inverse);
        }
        for (place, key) in self.tweak.iter_mut().zip(round_keys(tweak)) {
            *place = twice(key);
        }
    }

    /// Whole units from `first` on, the last of them perhaps in part: `len` bytes, a multiple of
    /// 16, from `input` to `output`, which may be the same place.
    ///
    /// # Safety
    /// `set` has returned true, `input` can be read and `output` written for `len` bytes.
    #[inline]
    pub unsafe fn run(
        &self,
        way: Way,
        first: UnitNumber,
        input: *const u8,
        output: *mut u8,
        len: usize,
    ) {
        match way {
            // SAFETY: `set` has found the instructions; the caller's promise for the memory.
            Way::Seal => unsafe { self.units::<true>(first, input, output, len) },
            // SAFETY: as above.
            Way::Open => unsafe { self.units::<false>(first, input, output, len) },
        }
    }

    /// # Safety
    /// As [`run`](Self::run).
    #[target_feature(enable = "aes,avx2,vaes,vpclmulqdq")]
    unsafe fn units<const SEAL: bool>(
        &self,
        first: UnitNumber,
        input: *const u8,
        output: *mut u8,
        len: usize,
    ) {
        let (mut at, mut number) = (0, first.0);
        while at < len {
            let count = (len - at).min(UNIT_USIZE);
            // SAFETY: within the caller's memory.
            unsafe {
                self.unit::<SEAL>(
                    number.into(),
                    input.wrapping_add(at),
                    output.wrapping_add(at),
                    count,
                );
            }
            at += count;
            // Behind the last number there is nothing.
            number = number.wrapping_add(1);
        }
    }

    /// One data unit in place, of any length that is a multiple of 16, under any tweak: for test
    /// vectors.
    ///
    /// # Panics
    /// For another length, and on a CPU without the instructions.
    pub fn data_unit(&self, way: Way, tweak: u128, bytes: &mut [u8]) {
        assert!(bytes.len().is_multiple_of(16) && has_instructions(), "blocks, and a CPU for them");
        let place = bytes.as_mut_ptr();
        let len = bytes.len();
        match way {
            // SAFETY: the instructions are there; the memory is that of the slice.
            Way::Seal => unsafe { self.unit::<true>(tweak, place.cast_const(), place, len) },
            // SAFETY: as above.
            Way::Open => unsafe { self.unit::<false>(tweak, place.cast_const(), place, len) },
        }
    }

    /// One data unit, of any length that is a multiple of 16.
    ///
    /// # Safety
    /// As [`run`](Self::run).
    #[target_feature(enable = "aes,avx2,vaes,vpclmulqdq")]
    unsafe fn unit<const SEAL: bool>(
        &self,
        number: u128,
        input: *const u8,
        output: *mut u8,
        len: usize,
    ) {
        let keys = if SEAL { &self.seal } else { &self.open };
        let mut tweaks = Tweaks([[0; 4]; REGISTERS]);
        self.first_tweaks(number, &mut tweaks);
        let whole = len - len % PASS;
        if whole > 0 {
            // SAFETY: whole passes within the caller's memory.
            unsafe { passes::<SEAL>(keys, &mut tweaks, input, output, whole) };
        }
        let rest = len - whole;
        if rest > 0 {
            let (input, output) = (input.wrapping_add(whole), output.wrapping_add(whole));
            let mut last = [0u8; PASS];
            let place = last.as_mut_ptr();
            // SAFETY: `rest` bytes within the caller's memory, fewer than there is room for.
            unsafe { core::ptr::copy_nonoverlapping(input, place, rest) };
            // SAFETY: a pass over memory of our own.
            unsafe { passes::<SEAL>(keys, &mut tweaks, place.cast_const(), place, PASS) };
            // SAFETY: `rest` bytes within the caller's memory.
            unsafe { core::ptr::copy_nonoverlapping(place.cast_const(), output, rest) };
            last.zeroize();
        }
        tweaks.0.iter_mut().for_each(|pair| pair.zeroize());
    }

    /// The tweaks of blocks 0 to 15 of a unit: its number, encrypted, times x^0 to x^15.
    #[target_feature(enable = "aes,avx2,vpclmulqdq")]
    fn first_tweaks(&self, number: u128, into: &mut Tweaks) {
        // SAFETY: 16 bytes; no alignment is wanted.
        let number = unsafe { _mm_loadu_si128((&raw const number).cast()) };
        let mut tweak = _mm_xor_si128(number, half(&self.tweak[0]));
        for key in &self.tweak[1..ROUNDS] {
            tweak = _mm_aesenc_si128(tweak, half(key));
        }
        tweak = _mm_aesenclast_si128(tweak, half(&self.tweak[ROUNDS]));
        let both = _mm256_broadcastsi128_si256(tweak);
        let first = _mm256_permute2x128_si256::<0x30>(both, times_x::<1, 63>(both));
        let mut pairs = [first; REGISTERS];
        pairs[1] = times_x::<2, 62>(pairs[0]);
        for index in 2..4 {
            pairs[index] = times_x::<4, 60>(pairs[index - 2]);
        }
        for index in 4..REGISTERS {
            pairs[index] = times_x::<8, 56>(pairs[index - 4]);
        }
        for (place, pair) in into.0.iter_mut().zip(&pairs) {
            // SAFETY: 32 bytes; no alignment is wanted.
            unsafe { _mm256_storeu_si256(place.as_mut_ptr().cast(), *pair) };
        }
        // The next call does not find them there.
        _mm256_zeroall();
    }
}

/// The tweaks of one pass.
#[repr(C, align(32))]
struct Tweaks([[u64; 4]; REGISTERS]);

/// The polynomial of the field, x^128 = x^7 + x^2 + x + 1, for both blocks of a register.
#[repr(C, align(32))]
struct Polynomial([u64; 4]);
static POLYNOMIAL: Polynomial = Polynomial([0x87, 0, 0x87, 0]);

/// One instruction for each of the eight registers of blocks.
macro_rules! blocks {
    ($op:literal, $source:expr) => {
        concat!(
            $op,
            " ymm0, ymm0, ",
            $source,
            "\n",
            $op,
            " ymm1, ymm1, ",
            $source,
            "\n",
            $op,
            " ymm2, ymm2, ",
            $source,
            "\n",
            $op,
            " ymm3, ymm3, ",
            $source,
            "\n",
            $op,
            " ymm4, ymm4, ",
            $source,
            "\n",
            $op,
            " ymm5, ymm5, ",
            $source,
            "\n",
            $op,
            " ymm6, ymm6, ",
            $source,
            "\n",
            $op,
            " ymm7, ymm7, ",
            $source,
        )
    };
}

/// A register of tweaks times x^16, which is two bytes; by two of the registers of blocks.
macro_rules! times_x16 {
    ($tweak:literal, $carried:literal) => {
        concat!(
            "vpsrldq ",
            $carried,
            ", ",
            $tweak,
            ", 14\n",
            "vpslldq ",
            $tweak,
            ", ",
            $tweak,
            ", 2\n",
            "vpclmulqdq ",
            $carried,
            ", ",
            $carried,
            ", [{polynomial}], 0x00\n",
            "vpxor ",
            $tweak,
            ", ",
            $tweak,
            ", ",
            $carried,
        )
    };
}

/// The loop over passes. Blocks are in ymm0 to ymm7, their tweaks in ymm8 to ymm15, round keys are
/// operands in memory: nothing that is secret goes to the stack.
macro_rules! passes {
    ($round:literal, $last:literal, $($operands:tt)*) => {
        asm!(
            "vmovdqa ymm8, [{tweaks}]",
            "vmovdqa ymm9, [{tweaks} + 32]",
            "vmovdqa ymm10, [{tweaks} + 64]",
            "vmovdqa ymm11, [{tweaks} + 96]",
            "vmovdqa ymm12, [{tweaks} + 128]",
            "vmovdqa ymm13, [{tweaks} + 160]",
            "vmovdqa ymm14, [{tweaks} + 192]",
            "vmovdqa ymm15, [{tweaks} + 224]",
            "2:",
            "vpxor ymm0, ymm8, [{input}]",
            "vpxor ymm1, ymm9, [{input} + 32]",
            "vpxor ymm2, ymm10, [{input} + 64]",
            "vpxor ymm3, ymm11, [{input} + 96]",
            "vpxor ymm4, ymm12, [{input} + 128]",
            "vpxor ymm5, ymm13, [{input} + 160]",
            "vpxor ymm6, ymm14, [{input} + 192]",
            "vpxor ymm7, ymm15, [{input} + 224]",
            blocks!("vpxor", "[{keys}]"),
            blocks!($round, "[{keys} + 32]"),
            blocks!($round, "[{keys} + 64]"),
            blocks!($round, "[{keys} + 96]"),
            blocks!($round, "[{keys} + 128]"),
            blocks!($round, "[{keys} + 160]"),
            blocks!($round, "[{keys} + 192]"),
            blocks!($round, "[{keys} + 224]"),
            blocks!($round, "[{keys} + 256]"),
            blocks!($round, "[{keys} + 288]"),
            blocks!($round, "[{keys} + 320]"),
            blocks!($round, "[{keys} + 352]"),
            blocks!($round, "[{keys} + 384]"),
            blocks!($round, "[{keys} + 416]"),
            blocks!($last, "[{keys} + 448]"),
            "vpxor ymm0, ymm0, ymm8",
            "vpxor ymm1, ymm1, ymm9",
            "vpxor ymm2, ymm2, ymm10",
            "vpxor ymm3, ymm3, ymm11",
            "vpxor ymm4, ymm4, ymm12",
            "vpxor ymm5, ymm5, ymm13",
            "vpxor ymm6, ymm6, ymm14",
            "vpxor ymm7, ymm7, ymm15",
            "vmovdqu [{output}], ymm0",
            "vmovdqu [{output} + 32], ymm1",
            "vmovdqu [{output} + 64], ymm2",
            "vmovdqu [{output} + 96], ymm3",
            "vmovdqu [{output} + 128], ymm4",
            "vmovdqu [{output} + 160], ymm5",
            "vmovdqu [{output} + 192], ymm6",
            "vmovdqu [{output} + 224], ymm7",
            times_x16!("ymm8", "ymm0"),
            times_x16!("ymm9", "ymm1"),
            times_x16!("ymm10", "ymm2"),
            times_x16!("ymm11", "ymm3"),
            times_x16!("ymm12", "ymm4"),
            times_x16!("ymm13", "ymm5"),
            times_x16!("ymm14", "ymm6"),
            times_x16!("ymm15", "ymm7"),
            "add {input}, 256",
            "add {output}, 256",
            "sub {len}, 256",
            "jnz 2b",
            "vmovdqa [{tweaks}], ymm8",
            "vmovdqa [{tweaks} + 32], ymm9",
            "vmovdqa [{tweaks} + 64], ymm10",
            "vmovdqa [{tweaks} + 96], ymm11",
            "vmovdqa [{tweaks} + 128], ymm12",
            "vmovdqa [{tweaks} + 160], ymm13",
            "vmovdqa [{tweaks} + 192], ymm14",
            "vmovdqa [{tweaks} + 224], ymm15",
            // No tweak and no plain block stays in a register.
            "vzeroall",
            $($operands)*
            out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _,
            out("ymm4") _, out("ymm5") _, out("ymm6") _, out("ymm7") _,
            out("ymm8") _, out("ymm9") _, out("ymm10") _, out("ymm11") _,
            out("ymm12") _, out("ymm13") _, out("ymm14") _, out("ymm15") _,
            options(nostack),
        )
    };
}

/// Passes over `len` bytes, a multiple of 256 and not 0; the tweaks are then those of the next one.
///
/// In assembly, because a compiler that has intrinsics keeps the round keys of the loop where it
/// likes: rustc 1.95 put all of them on the stack.
///
/// # Safety
/// `len` bytes can be read at `input` and written at `output`.
#[target_feature(enable = "avx2,vaes,vpclmulqdq")]
unsafe fn passes<const SEAL: bool>(
    keys: &Schedule,
    tweaks: &mut Tweaks,
    input: *const u8,
    output: *mut u8,
    len: usize,
) {
    let keys = keys.as_ptr();
    let tweaks = &raw mut *tweaks;
    if SEAL {
        // SAFETY: the instructions are there, by the features; the caller's promise for the memory.
        unsafe {
            passes!("vaesenc", "vaesenclast",
                keys = in(reg) keys, tweaks = in(reg) tweaks,
                polynomial = in(reg) &raw const POLYNOMIAL,
                input = inout(reg) input => _, output = inout(reg) output => _,
                len = inout(reg) len => _,
            );
        }
    } else {
        // SAFETY: as above.
        unsafe {
            passes!("vaesdec", "vaesdeclast",
                keys = in(reg) keys, tweaks = in(reg) tweaks,
                polynomial = in(reg) &raw const POLYNOMIAL,
                input = inout(reg) input => _, output = inout(reg) output => _,
                len = inout(reg) len => _,
            );
        }
    }
}

/// Half of a pair of equal round keys; read each time, so that no copy of it is kept.
#[inline]
fn half(key: &[u64; 4]) -> __m128i {
    // SAFETY: 16 of its 32 bytes, which are aligned to 32.
    unsafe { core::ptr::read_volatile(key.as_ptr().cast()) }
}

impl Default for Keys {
    fn default() -> Self {
        Self::new()
    }
}

/// Two elements of GF(2^128), as IEEE 1619 orders their bits, times x^N; M is 64 - N.
#[inline]
#[target_feature(enable = "avx2,vpclmulqdq")]
fn times_x<const N: i32, const M: i32>(elements: __m256i) -> __m256i {
    let carried = _mm256_srli_epi64::<M>(elements);
    let shifted =
        _mm256_or_si256(_mm256_slli_epi64::<N>(elements), _mm256_slli_si256::<8>(carried));
    _mm256_xor_si256(shifted, _mm256_clmulepi64_epi128::<0x01>(carried, _mm256_set1_epi64x(0x87)))
}

#[target_feature(enable = "avx2")]
fn twice(key: __m128i) -> [u64; 4] {
    let mut place = [0; 4];
    let pair = _mm256_set_m128i(key, key);
    // SAFETY: 32 bytes; no alignment is wanted.
    unsafe { _mm256_storeu_si256(place.as_mut_ptr().cast(), pair) };
    place
}

/// The round keys of AES-256 (FIPS 197, 5.2).
#[target_feature(enable = "aes")]
fn round_keys(key: &[u8; 32]) -> [__m128i; ROUNDS + 1] {
    let word = |at: usize| {
        let bytes = key.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |bytes| i64::from_le_bytes(*bytes))
    };
    let (mut even, mut odd) =
        (_mm_set_epi64x(word(8), word(0)), _mm_set_epi64x(word(24), word(16)));
    let mut keys = [even; ROUNDS + 1];
    keys[1] = odd;
    /// The next two round keys.
    macro_rules! next {
        ($($round:literal: $constant:literal),+) => { $(
            let word = _mm_shuffle_epi32::<0xff>(_mm_aeskeygenassist_si128::<$constant>(odd));
            even = _mm_xor_si128(sums(even), word);
            keys[2 * $round] = even;
            let word = _mm_shuffle_epi32::<0xaa>(_mm_aeskeygenassist_si128::<0>(even));
            odd = _mm_xor_si128(sums(odd), word);
            if let Some(place) = keys.get_mut(2 * $round + 1) {
                *place = odd;
            }
        )+ };
    }
    next!(1: 0x01, 2: 0x02, 3: 0x04, 4: 0x08, 5: 0x10, 6: 0x20, 7: 0x40);
    keys
}

/// Each word XOR all words before it.
#[target_feature(enable = "sse2")]
fn sums(words: __m128i) -> __m128i {
    let once = _mm_xor_si128(words, _mm_slli_si128::<4>(words));
    _mm_xor_si128(once, _mm_slli_si128::<8>(once))
}

/// True if this CPU, and its operating system, can run this file.
#[must_use]
pub fn has_instructions() -> bool {
    std::arch::is_x86_feature_detected!("aes")
        && std::arch::is_x86_feature_detected!("avx2")
        && std::arch::is_x86_feature_detected!("vaes")
        && std::arch::is_x86_feature_detected!("vpclmulqdq")
}

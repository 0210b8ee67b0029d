//! The provider `vault` against a double of Vault's HTTP API, and both against a real Vault.
//!
//! The double is there so that every run of the tests sees every fault. The long test builds Vault,
//! runs the same scenarios on it, and compares status and JSON shape of each answer with the
//! double's.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "vault/double.rs"]
mod double;
#[path = "vault/real.rs"]
mod real;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use double::{Double, Mood};
use tidelock_format::{KeyringId, Layout};
use tidelock_keyring::{
    Error, Keyring, Payload, Profile, Provider, ServiceFault, SlotId, SlotKind, SlotTerms, Wrapping,
};
use tidelock_providers::ProviderChoice;
use tidelock_servers::{Bounded, alone};

const SLOT: SlotKind = SlotKind::new(7, "vault");

/// What the scenarios need of a server; all of it was made there before.
struct Prepared {
    address: String,
    /// May use the transit key `pg` and read the secret `db/pg`.
    good: String,
    /// May do nothing.
    powerless: String,
    /// May wrap with transit keys, and not unwrap.
    wraps: String,
    /// Of 4 seconds, of which more than half are gone; renewable.
    half: String,
    role_id: String,
    secret_id: String,
}

/// A private folder with token files.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn secret(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, format!("{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    fn provider(&self, address: &str, token: &str, more: &str) -> Box<dyn Provider> {
        let file = self.secret("token", token);
        open(&format!("address = \"{address}\"\ntoken_file = \"{}\"\n{more}", file.display()))
    }
}

fn open(text: &str) -> Box<dyn Provider> {
    let choice: ProviderChoice = toml::from_str(&format!("type = \"vault\"\n{text}")).unwrap();
    choice.open(Path::new("/data"), None).unwrap()
}

fn terms(provider: &dyn Provider) -> SlotTerms {
    SlotTerms {
        wrapping: provider.wrapping(),
        created: 1_700_000_000,
        reference: provider.reference(),
        ..SlotTerms::new(KeyringId([1; 16]), SlotId([2; 16]), SLOT)
    }
}

fn payload() -> Payload {
    let bytes: [u8; 64] = std::array::from_fn(|at| u8::try_from(at).unwrap());
    Payload::from_slice(&bytes).unwrap()
}

/// The fault and the words of a service.
fn fault<T>(result: Result<T, Error>) -> (ServiceFault, String) {
    match result {
        Err(Error::Service { provider, fault, why }) if provider == SLOT => {
            assert!(!why.contains("hvs."), "a token in an error: {why}");
            (fault, why)
        }
        Err(other) => panic!("not a fault of the service: {other}"),
        Ok(_) => panic!("it worked"),
    }
}

const TRANSIT: &str = "engine = \"transit\"\nkey = \"pg\"";
const KV: &str = "engine = \"kv2\"\npath = \"db/pg\"";

fn transit_opens_what_it_wrapped(on: &Prepared, home: &Home) {
    let provider = home.provider(&on.address, &on.good, TRANSIT);
    assert_eq!(provider.wrapping(), Wrapping::Remote);
    let terms = terms(&*provider);
    let wrapped = provider.wrap(&terms, &payload()).unwrap();
    assert!(wrapped.starts_with(b"vault:v1:"));
    assert_eq!(provider.unwrap(&terms, &wrapped).unwrap().expose(), payload().expose());
    let (_, left) = provider.check(&terms, &wrapped).unwrap().expires.unwrap();
    assert!((60..=3600).contains(&left), "{left}");

    let changed = SlotTerms { created: 1, ..terms.clone() };
    assert!(matches!(provider.unwrap(&changed, &wrapped), Err(Error::Tampered { .. })));
    let other = home.provider(&on.address, &on.good, &TRANSIT.replace("pg", "other"));
    assert!(matches!(other.unwrap(&terms, &wrapped), Err(Error::WrongKey { .. })));
    let none = home.provider(&on.address, &on.good, &TRANSIT.replace("pg", "none"));
    assert_eq!(fault(none.unwrap(&terms, &wrapped)).0, ServiceFault::NotFound);
    let mut flipped = wrapped.clone();
    let last = flipped.len() - 10;
    flipped[last] ^= 1;
    assert!(provider.unwrap(&terms, &flipped).is_err());
    for cut in [0, 8, 20, wrapped.len() - 4] {
        assert!(matches!(provider.unwrap(&terms, &wrapped[..cut]), Err(Error::Damaged { .. })));
    }
}

fn a_token_that_may_not_is_told_from_one_that_is_none(on: &Prepared, home: &Home) {
    for what in [TRANSIT, KV] {
        let terms = terms(&*home.provider(&on.address, &on.good, what));
        let ask = |token| home.provider(&on.address, token, what).wrap(&terms, &payload());
        assert_eq!(fault(ask(&on.powerless)).0, ServiceFault::Denied);
        let (kind, why) = fault(ask("hvs.nonsense"));
        assert_eq!(kind, ServiceFault::Credentials);
        assert!(why.contains("does not accept the token"), "{why}");
    }
}

fn a_token_that_may_only_wrap_gets_no_slot(on: &Prepared, home: &Home) {
    let create = |token: &str| {
        let policy = Profile::builtin("generic").unwrap().compile(&[], &[]).unwrap();
        let provider = home.provider(&on.address, token, TRANSIT);
        Keyring::create(policy, Layout::DEFAULT, &[&*provider]).map(drop)
    };
    create(&on.good).unwrap();
    match create(&on.wraps) {
        Err(Error::WrapsOnly { provider, why: Some(why) }) => {
            assert!(provider.starts_with("Vault transit key transit/pg at 127"), "{provider}");
            assert_eq!(fault::<()>(Err(*why)).0, ServiceFault::Denied);
        }
        other => panic!("{other:?}"),
    }
}

fn a_key_in_kv_wraps_here(on: &Prepared, home: &Home) {
    let provider = home.provider(&on.address, &on.good, KV);
    assert_eq!(provider.wrapping(), Wrapping::Direct);
    let terms = terms(&*provider);
    let wrapped = provider.wrap(&terms, &payload()).unwrap();
    assert_eq!(provider.unwrap(&terms, &wrapped).unwrap().expose(), payload().expose());
    assert!(provider.check(&terms, &wrapped).unwrap().expires.is_some());
    let ask = |more: &str| home.provider(&on.address, &on.good, more).unwrap(&terms, &wrapped);
    assert!(ask(&format!("{KV}\nversion = 1")).is_ok());
    for missing in [KV.replace("pg", "none"), format!("{KV}\nversion = 9")] {
        assert_eq!(fault(ask(&missing)).0, ServiceFault::NotFound);
    }
    let (kind, why) = fault(ask(&format!("{KV}\nfield = \"none\"")));
    assert!(kind == ServiceFault::NotFound && why.contains("field none"), "{why}");
    assert_eq!(fault(ask(&format!("{KV}\nfield = \"note\""))).0, ServiceFault::Protocol);
}

fn a_role_logs_in_with_its_secret(on: &Prepared, home: &Home) {
    let role = |secret: &str| {
        let file = home.secret("secret-id", secret);
        let role = format!("role_id = \"{}\"\nsecret_id_file = \"{}\"", on.role_id, file.display());
        open(&format!("address = \"{}\"\n{TRANSIT}\n[approle]\n{role}", on.address))
    };
    let provider = role(&on.secret_id);
    let terms = terms(&*provider);
    let wrapped = provider.wrap(&terms, &payload()).unwrap();
    assert!(provider.check(&terms, &wrapped).is_ok());
    let (kind, why) = fault(role("nonsense").unwrap(&terms, &wrapped));
    assert_eq!(kind, ServiceFault::Credentials, "{why}");
    assert!(!why.contains("nonsense"), "{why}");
}

fn a_token_past_half_of_its_time_is_renewed(on: &Prepared, home: &Home) {
    let good = home.provider(&on.address, &on.good, TRANSIT);
    let terms = terms(&*good);
    let wrapped = good.wrap(&terms, &payload()).unwrap();
    let half = home.provider(&on.address, &on.half, TRANSIT);
    let (what, left) = half.check(&terms, &wrapped).unwrap().expires.unwrap();
    assert_eq!((&*what, left), ("the Vault token", 4));
}

fn all(on: &Prepared, home: &Home) {
    transit_opens_what_it_wrapped(on, home);
    a_token_that_may_not_is_told_from_one_that_is_none(on, home);
    a_token_that_may_only_wrap_gets_no_slot(on, home);
    a_key_in_kv_wraps_here(on, home);
    a_role_logs_in_with_its_secret(on, home);
}

fn a_sealed_vault_is_locked(on: &Prepared, home: &Home) {
    for what in [TRANSIT, KV] {
        let provider = home.provider(&on.address, &on.good, what);
        let (kind, why) = fault(provider.wrap(&terms(&*provider), &payload()));
        assert_eq!(kind, ServiceFault::Locked);
        assert!(why.starts_with("is sealed (127.0.0.1:"), "{why}");
    }
}

#[test]
fn the_double_serves_every_scenario() {
    let (double, home) = (Double::start(), Home::new());
    let on = double.prepared();
    a_token_past_half_of_its_time_is_renewed(&on, &home);
    all(&on, &home);
    double.set(Mood::Sealed);
    a_sealed_vault_is_locked(&on, &home);
}

#[test]
fn the_token_of_a_role_is_revoked_when_it_was_used() {
    let (double, home) = (Double::start(), Home::new());
    let on = double.prepared();
    a_role_logs_in_with_its_secret(&on, &home);
    let asked = double.asked();
    let count = |what: &str| asked.iter().filter(|path| path.contains(what)).count();
    assert_eq!((count("revoke-self"), count("approle/login")), (1, 2));
}

#[test]
fn the_namespace_goes_with_every_request() {
    let (double, home) = (Double::start(), Home::new());
    let on = double.prepared();
    double.set(Mood::Namespace("team/db"));
    let provider =
        home.provider(&on.address, &on.good, &format!("{TRANSIT}\nnamespace = \"team/db\""));
    let terms = terms(&*provider);
    let wrapped = provider.wrap(&terms, &payload()).unwrap();
    assert!(provider.check(&terms, &wrapped).unwrap().expires.is_some());
    let without = home.provider(&on.address, &on.good, TRANSIT);
    assert_eq!(fault(without.wrap(&terms, &payload())).0, ServiceFault::NotFound);
}

/// Whether to try again is the caller's.
#[test]
fn a_vault_that_fails_once_is_told_and_the_next_call_is_answered() {
    let (double, home) = (Double::start(), Home::new());
    let on = double.prepared();
    let provider = home.provider(&on.address, &on.good, TRANSIT);
    double.set(Mood::Fails(0));
    assert_eq!(fault(provider.wrap(&terms(&*provider), &payload())).0, ServiceFault::Locked);
    provider.wrap(&terms(&*provider), &payload()).unwrap();
}

#[test]
fn a_vault_that_is_slow_or_away_is_given_up_with_its_place() {
    let (double, home) = (Double::start(), Home::new());
    let on = double.prepared();
    double.set(Mood::Slow);
    let provider = home.provider(&on.address, &on.good, &format!("{TRANSIT}\ntimeout_seconds = 1"));
    let began = Instant::now();
    let (kind, why) = fault(provider.wrap(&terms(&*provider), &payload()));
    let place = on.address.strip_prefix("http://").unwrap();
    assert_eq!((kind, why), (ServiceFault::NoAnswer, format!("did not answer ({place}, 1 s)")));
    assert!(began.elapsed() < Duration::from_secs(60));

    // Nobody listens at port 1, and nobody is given it.
    let free = "127.0.0.1:1";
    let away = home.provider(&format!("http://{free}"), &on.good, TRANSIT);
    let (kind, why) = fault(away.wrap(&terms(&*away), &payload()));
    assert_eq!(kind, ServiceFault::NoAnswer);
    assert!(why.contains(free), "{why}");
}

#[test]
fn what_is_no_answer_of_vault_is_refused_without_its_words() {
    let (double, home) = (Double::start(), Home::new());
    let on = double.prepared();
    for raw in [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        "HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n<html>hi</html>",
        "HTTP/1.1 200 OK\r\nContent-Length: 31\r\n\r\n{\"data\":{\"ciphertext\":\"hvs.xyz\"}}",
        "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: \
         0\r\n\r\n",
        "HTTP/1.1 500 Oops\r\nContent-Length: 50\r\n\r\n{\"errors\":[\"1 error: token \
         hvs.CAESIJ123456789 x\"]}",
        "SSH-2.0-OpenSSH_9.2\r\n",
    ] {
        double.set(Mood::Raw(raw));
        for what in [TRANSIT, KV] {
            let provider = home.provider(&on.address, &on.good, what);
            let (kind, why) = fault(provider.wrap(&terms(&*provider), &payload()));
            assert_eq!(kind, ServiceFault::Protocol, "{raw}: {why}");
            assert!(!why.contains("html"), "{why}");
        }
    }
}

#[test]
fn a_loose_or_empty_token_file_is_refused() {
    let (double, home) = (Double::start(), Home::new());
    let on = double.prepared();
    let provider = home.provider(&on.address, &on.good, TRANSIT);
    let token = home.0.path().join("token");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o640)).unwrap();
    let loose = provider.wrap(&terms(&*provider), &payload());
    assert!(matches!(loose, Err(Error::LooseFile { .. })));
    for text in ["", "two words", "caf\u{e9}"] {
        let provider = home.provider(&on.address, text, TRANSIT);
        let (kind, _) = fault(provider.wrap(&terms(&*provider), &payload()));
        assert_eq!(kind, ServiceFault::Credentials, "{text}");
    }
    let nobody = open(&format!("address = \"{}\"\n{TRANSIT}", on.address));
    let (kind, _) = fault(nobody.wrap(&terms(&*nobody), &payload()));
    assert_eq!(kind, ServiceFault::Credentials);
    assert!(double.asked().is_empty());
}

#[test]
fn tls_is_trusted_by_its_own_authority_only() {
    let home = Home::new();
    let (ca, certificate, key) = certificates(home.0.path());
    let double = Double::start_tls(&certificate, &key);
    let on = double.prepared();
    assert!(on.address.starts_with("https://"));
    let trusted = format!("{TRANSIT}\nca_file = \"{}\"", ca.display());
    let provider = home.provider(&on.address, &on.good, &trusted);
    let terms = terms(&*provider);
    let wrapped = provider.wrap(&terms, &payload()).unwrap();
    assert!(provider.unwrap(&terms, &wrapped).is_ok());
    let machine = home.provider(&on.address, &on.good, TRANSIT);
    let (kind, why) = fault(machine.wrap(&terms, &payload()));
    assert_eq!(kind, ServiceFault::Protocol);
    assert!(why.contains("cannot be trusted"), "{why}");
    let other = on.address.replace("127.0.0.1", "127.0.0.2");
    let other = home.provider(&other, &on.good, &trusted);
    assert!(other.wrap(&terms, &payload()).is_err());
}

/// An authority and a certificate of it for 127.0.0.1.
fn certificates(folder: &Path) -> (PathBuf, PathBuf, PathBuf) {
    let run = |arguments: &str| {
        let made = alone("openssl").args(arguments.split(' ')).current_dir(folder).finish();
        let made = made.unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    };
    let new = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2";
    run(&format!("{new} -subj /CN=authority -keyout ca.key -out ca.pem"));
    run(&format!(
        "{new} -subj /CN=vault -addext subjectAltName=IP:127.0.0.1 -addext \
         basicConstraints=critical,CA:FALSE -CA ca.pem -CAkey ca.key -keyout key.pem -out cert.pem"
    ));
    (folder.join("ca.pem"), folder.join("cert.pem"), folder.join("key.pem"))
}

#[test]
#[ignore = "make test-full: builds Vault 1.13.0, which takes Go and about five minutes"]
fn a_real_vault_answers_as_the_double_does() {
    let home = Home::new();
    let vault = real::Vault::start(home.0.path());
    let (real, double) = (vault.prepare(), Double::start());
    a_token_past_half_of_its_time_is_renewed(&real, &home);
    all(&real, &home);
    real::compare(&real, &double.prepared());
    vault.seal();
    a_sealed_vault_is_locked(&real, &home);
    double.set(Mood::Sealed);
    real::compare(&real, &double.prepared());
}

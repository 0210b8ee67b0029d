//! Keys in tokens of SoftHSM2, each test with a store of its own.
//!
//! SoftHSM2 finds its store by an environment variable, so a test runs itself again as a child that
//! has it.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tidelock_format::KeyringId;
use tidelock_keyring::{
    Error, Payload, Provider, ServiceFault, SlotId, SlotKind, SlotTerms, Wrapping,
};
use tidelock_providers::{Descriptor, ProviderChoice};
use tidelock_servers::{Bounded, alone};

const MODULE: &str = "/usr/lib/softhsm/libsofthsm2.so";
const PIN: &str = "7315-tide";
const STORE: &str = "TIDELOCK_TEST_STORE";
/// How SoftHSM's file of a token begins its flags (CKA_OS_TOKENFLAGS): which attribute, and that it
/// is a number, eight bytes each, the highest first. Eight bytes with the flags follow.
const FLAGS: [u8; 16] = [0, 0, 0, 0, 0x80, 0, 0x53, 0x4b, 0, 0, 0, 0, 0, 0, 0, 2];
/// Of bits 16 to 23: CKF_USER_PIN_COUNT_LOW, CKF_USER_PIN_FINAL_TRY.
const COUNT_LOW: u8 = 1;
const FINAL_TRY: u8 = 2;

/// A store with one token `one` that has the AES-256 key `pg`, id 01.
struct Store {
    home: PathBuf,
}

/// Runs `test` in a child that has a store.
fn with_store(name: &str, test: impl FnOnce(&Store)) {
    if let Some(home) = std::env::var_os(STORE) {
        let store = Store { home: home.into() };
        store.add_token("one");
        store.add_key("one", "pg", "01");
        return test(&store);
    }
    let home = TempDir::new().unwrap();
    fs::create_dir(home.path().join("tokens")).unwrap();
    let conf = home.path().join("softhsm2.conf");
    let tokens = home.path().join("tokens");
    fs::write(&conf, format!("directories.tokendir = {}\nlog.level = ERROR\n", tokens.display()))
        .unwrap();
    let child = alone(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env("SOFTHSM2_CONF", &conf)
        .env(STORE, home.path())
        .finish()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    let complained = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success() && said.contains("1 passed"), "{said}\n{complained}");
    assert!(!said.contains(PIN) && !complained.contains(PIN), "the PIN was shown");
}

impl Store {
    fn add_token(&self, label: &str) {
        run(
            "softhsm2-util",
            &["--init-token", "--free", "--label", label, "--pin", PIN, "--so-pin", "12345678"],
        );
    }

    fn add_key(&self, token: &str, label: &str, id: &str) {
        self.tool(
            token,
            &["--keygen", "--key-type", "AES:32", "--label", label, "--id", id, "--sensitive"],
        );
    }

    fn tool(&self, token: &str, args: &[&str]) {
        let common = ["--module", MODULE, "--token-label", token, "--login", "--pin", PIN];
        run("pkcs11-tool", &[&common[..], args].concat());
    }

    fn pin_file(&self, pin: &str, mode: u32) -> PathBuf {
        let path = self.home.join(format!("pin-{}-{mode:o}", pin.len()));
        fs::write(&path, format!("{pin}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    /// The file of the only token, and where bits 16 to 23 of its flags are.
    fn flags(&self) -> (PathBuf, usize) {
        let mut tokens = fs::read_dir(self.home.join("tokens")).unwrap();
        let file = tokens.next().unwrap().unwrap().path().join("token.object");
        let bytes = fs::read(&file).unwrap();
        let at = bytes.windows(FLAGS.len()).position(|window| window == FLAGS);
        (file, at.expect("SoftHSM's file of a token has flags") + FLAGS.len() + 5)
    }

    /// Has a wrong PIN been tried since the last good one?
    fn was_tried(&self) -> bool {
        let (file, at) = self.flags();
        fs::read(file).unwrap()[at] & COUNT_LOW != 0
    }

    /// SoftHSM never locks a token, but tells what its file says.
    fn set_final_try(&self) {
        let (file, at) = self.flags();
        let mut bytes = fs::read(&file).unwrap();
        bytes[at] |= FINAL_TRY;
        fs::write(file, bytes).unwrap();
    }

    fn provider(&self, path: &str) -> Box<dyn Provider> {
        self.provider_with(path, &self.pin_file(PIN, 0o600))
    }

    fn provider_with(&self, path: &str, pin: &Path) -> Box<dyn Provider> {
        provider(&format!("pkcs11:{path}?module-path={MODULE}&pin-source=file:{}", pin.display()))
    }
}

fn provider(uri: &str) -> Box<dyn Provider> {
    let choice: ProviderChoice = uri.parse().unwrap();
    choice.open(Path::new("/nowhere"), None).unwrap()
}

fn run(program: &str, args: &[&str]) {
    let done = alone(program).args(args).finish();
    let done = done.unwrap_or_else(|why| panic!("{program} (see ci/packages): {why}"));
    assert!(done.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

fn terms() -> SlotTerms {
    SlotTerms {
        wrapping: Wrapping::Remote,
        created: 7,
        reference: "pkcs11:token=one;object=pg".into(),
        ..SlotTerms::new(KeyringId([1; 16]), SlotId([2; 16]), SlotKind::new(9, "pkcs11"))
    }
}

fn payload() -> Payload {
    Payload::from_slice(&[9; 64]).unwrap()
}

fn fault(result: Result<Payload, Error>) -> (ServiceFault, String) {
    match result {
        Err(error @ Error::Service { fault, .. }) => (fault, error.to_string()),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it opened"),
    }
}

#[test]
fn a_token_opens_what_it_wrapped() {
    with_store("a_token_opens_what_it_wrapped", |store| {
        let one = store.provider("token=one;object=pg");
        let wrapped = one.wrap(&terms(), &payload()).unwrap();
        assert!(!wrapped.windows(8).any(|window| window == [9; 8]));
        assert_ne!(wrapped, one.wrap(&terms(), &payload()).unwrap());
        assert_eq!(one.unwrap(&terms(), &wrapped).unwrap().expose(), &[9; 64]);
        for path in ["token=one;id=%01", "token=one;object=pg;id=%01"] {
            assert!(store.provider(path).unwrap(&terms(), &wrapped).is_ok(), "{path}");
        }
        assert!(one.check(&terms(), &wrapped).is_ok());
        assert_eq!(one.reference(), "pkcs11:token=one;object=pg");
    });
}

#[test]
fn changed_terms_and_changed_bytes_are_told_from_another_key() {
    with_store("changed_terms_and_changed_bytes_are_told_from_another_key", |store| {
        let one = store.provider("token=one;object=pg");
        let wrapped = one.wrap(&terms(), &payload()).unwrap();
        let changed = SlotTerms { created: 8, ..terms() };
        assert!(matches!(one.unwrap(&changed, &wrapped), Err(Error::Tampered { .. })));
        // Version and lengths, IV, sealed bytes, tag.
        for (at, damaged) in [(0, true), (1, true), (2, false), (14, false), (80, false)] {
            let mut bytes = wrapped.clone();
            bytes[at] ^= 1;
            match one.unwrap(&terms(), &bytes) {
                Err(Error::Damaged { .. }) => assert!(damaged, "byte {at}"),
                Err(Error::Tampered { .. }) => assert!(!damaged, "byte {at}"),
                other => panic!("byte {at}: {:?}", other.err()),
            }
        }
        for length in [0, 1, 14, wrapped.len() - 1] {
            let cut = one.unwrap(&terms(), &wrapped[..length]);
            assert!(matches!(cut, Err(Error::Damaged { .. })), "{length} bytes");
        }
        store.add_key("one", "other", "02");
        store.add_token("two");
        store.add_key("two", "pg", "01");
        for path in ["token=one;object=other", "token=two;object=pg"] {
            let other = store.provider(path).unwrap(&terms(), &wrapped);
            assert!(matches!(other, Err(Error::WrongKey { .. })), "{path}: {:?}", other.err());
        }
    });
}

#[test]
fn a_wrong_pin_is_tried_once_and_never_shown() {
    with_store("a_wrong_pin_is_tried_once_and_never_shown", |store| {
        let wrapped = store.provider("token=one;object=pg").wrap(&terms(), &payload()).unwrap();
        let wrong = store.provider_with("token=one;object=pg", &store.pin_file("1234567", 0o600));
        for _ in 0..2 {
            let (fault, said) = fault(wrong.unwrap(&terms(), &wrapped));
            assert_eq!(fault, ServiceFault::Credentials, "{said}");
            assert!(!said.contains("1234567"), "{said}");
        }
        let empty = store.provider_with("token=one;object=pg", &store.pin_file("", 0o600));
        assert_eq!(fault(empty.unwrap(&terms(), &wrapped)).0, ServiceFault::Credentials);
        let loose = store.provider_with("token=one;object=pg", &store.pin_file(PIN, 0o644));
        assert!(matches!(loose.unwrap(&terms(), &wrapped), Err(Error::LooseFile { .. })));
    });
}

#[test]
fn a_pin_that_one_provider_had_refused_is_not_tried_by_another() {
    with_store("a_pin_that_one_provider_had_refused_is_not_tried_by_another", |store| {
        let good = store.provider("token=one;object=pg");
        let wrapped = good.wrap(&terms(), &payload()).unwrap();
        let wrong = || {
            let pin = store.pin_file("1234567", 0o600);
            fault(store.provider_with("token=one;object=pg", &pin).unwrap(&terms(), &wrapped))
        };
        let first = wrong();
        assert!(store.was_tried(), "SoftHSM tells so");
        assert!(good.unwrap(&terms(), &wrapped).is_ok() && !store.was_tried());
        assert_eq!(wrong(), first);
        assert!(!store.was_tried());
        let other = store.provider_with("token=one;object=pg", &store.pin_file("12345", 0o600));
        assert_eq!(fault(other.unwrap(&terms(), &wrapped)).0, ServiceFault::Credentials);
        assert!(store.was_tried(), "another PIN");
    });
}

#[test]
fn the_last_try_of_a_pin_is_a_persons() {
    with_store("the_last_try_of_a_pin_is_a_persons", |store| {
        let unattended = store.provider("token=one;object=pg");
        let wrapped = unattended.wrap(&terms(), &payload()).unwrap();
        store.set_final_try();
        let (fault, said) = fault(unattended.unwrap(&terms(), &wrapped));
        assert_eq!(fault, ServiceFault::Credentials, "{said}");
        let why = "has one try left for its PIN, which is not used unattended (pkcs11:token=one";
        assert!(said.contains(why), "{said}");
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(PIN.as_bytes()).unwrap();
        drop(writer);
        let given: Descriptor = reader.as_raw_fd().to_string().parse().unwrap();
        let uri = format!("pkcs11:token=one;object=pg?module-path={MODULE}");
        let choice: ProviderChoice = uri.parse().unwrap();
        let asked = choice.open(Path::new("/nowhere"), Some(&given)).unwrap();
        assert!(asked.unwrap(&terms(), &wrapped).is_ok());
    });
}

#[test]
fn what_is_not_there_is_named() {
    with_store("what_is_not_there_is_named", |store| {
        let one = store.provider("token=one;object=pg");
        let wrapped = one.wrap(&terms(), &payload()).unwrap();
        for path in ["token=three;object=pg", "token=one;serial=0;object=pg", "token=one;object=x"]
        {
            let (fault, said) = fault(store.provider(path).unwrap(&terms(), &wrapped));
            assert_eq!(fault, ServiceFault::NotFound, "{said}");
        }
        store.add_key("one", "pg", "02");
        assert_eq!(fault(one.unwrap(&terms(), &wrapped)).0, ServiceFault::NotFound, "two keys");
        assert!(store.provider("token=one;object=pg;id=%01").unwrap(&terms(), &wrapped).is_ok());
        store.tool("one", &["--delete-object", "--type", "secrkey", "--id", "01"]);
        let other = one.unwrap(&terms(), &wrapped);
        assert!(matches!(other, Err(Error::WrongKey { .. })), "{:?}", other.err());
        store.tool("one", &["--delete-object", "--type", "secrkey", "--id", "02"]);
        assert_eq!(fault(one.unwrap(&terms(), &wrapped)).0, ServiceFault::NotFound, "no key");
    });
}

#[test]
fn a_new_slot_wants_a_long_key_that_stays_in_the_token() {
    with_store("a_new_slot_wants_a_long_key_that_stays_in_the_token", |store| {
        store.tool("one", &["--keygen", "--key-type", "AES:16", "--label", "short", "--sensitive"]);
        store
            .tool("one", &["--keygen", "--key-type", "AES:32", "--label", "open", "--extractable"]);
        let short = store.provider("token=one;object=short").wrap(&terms(), &payload());
        assert!(matches!(short, Err(Error::Service { fault: ServiceFault::Denied, .. })));
        let open = store.provider("token=one;object=open").wrap(&terms(), &payload());
        let sensitive = matches!(open, Err(Error::Service { fault: ServiceFault::Denied, .. }));
        assert!(sensitive, "{open:?}");
    });
}

#[test]
fn a_module_that_is_missing_or_that_others_may_replace_is_not_loaded() {
    let home = TempDir::new().unwrap();
    let pin = home.path().join("pin");
    fs::write(&pin, PIN).unwrap();
    fs::set_permissions(&pin, fs::Permissions::from_mode(0o600)).unwrap();
    let with = |module: &Path| {
        provider(&format!(
            "pkcs11:token=one;object=pg?module-path={}&pin-source={}",
            module.display(),
            pin.display()
        ))
        .wrap(&terms(), &payload())
    };
    let missing = with(&home.path().join("none.so"));
    assert!(matches!(missing, Err(Error::Io { .. })), "{missing:?}");
    let copy = home.path().join("copy.so");
    fs::write(&copy, "no library").unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    let other = with(&copy);
    let named = matches!(other, Err(Error::Service { fault: ServiceFault::NotFound, .. }));
    assert!(named, "{other:?}");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o757)).unwrap();
    assert!(matches!(with(&copy), Err(Error::LooseShared { .. })));
    let folder = home.path().join("folder");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
    fs::copy(MODULE, folder.join("copy.so")).unwrap();
    assert!(matches!(with(&folder.join("copy.so")), Err(Error::LooseShared { .. })));
}

/// It runs in this process, and the next slot of the keyring waits for it.
#[test]
fn a_module_that_never_answers_is_given_up() {
    let home = TempDir::new().unwrap();
    let at = |name: &str| home.path().join(name);
    let source = "#include <unistd.h>\n\
                  unsigned long C_GetFunctionList(void **list) { for (;;) pause(); }\n";
    fs::write(at("hangs.c"), source).unwrap();
    let (module, source) = (at("hangs.so").display().to_string(), at("hangs.c"));
    run("gcc", &["-shared", "-fPIC", "-o", &module, &source.display().to_string()]);
    fs::set_permissions(&module, fs::Permissions::from_mode(0o755)).unwrap();
    let text = format!(
        "type = \"pkcs11\"\nmodule = \"{module}\"\ntoken = \"one\"\nkey = \"pg\"\npin_file = \
         \"/nowhere\"\ntimeout_seconds = 1\n"
    );
    let choice: ProviderChoice = toml::from_str(&text).unwrap();
    for _ in 0..2 {
        let hangs = choice.open(Path::new("/nowhere"), None).unwrap();
        let why = hangs.wrap(&terms(), &payload()).unwrap_err();
        let silent = matches!(why, Error::Service { fault: ServiceFault::NoAnswer, .. });
        assert!(silent && why.to_string().contains("did not answer within 1 s"), "{why}");
    }
}

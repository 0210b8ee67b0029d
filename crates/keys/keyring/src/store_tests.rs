//! What may happen to a keyring on a disk: interrupted, changed, truncated, rolled back.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use tidelock_format::Layout;

use super::*;
use crate::error::ServiceFault;
use crate::profile::Profile;
use crate::provider::{PrincipalKey, Provider, Purpose};
use crate::slot::{Payload, SlotKind, SlotTerms, Wrapping};

struct Fixture {
    _home: tempfile::TempDir,
    place: KeyringDir,
    file: Given,
    recovery: Given,
    home: PathBuf,
    dir: PathBuf,
}

const FILE: SlotKind = SlotKind::new(1, "file");
const PASSPHRASE: SlotKind = SlotKind::new(2, "passphrase");
const RECOVERY: SlotKind = SlotKind::new(4, "recovery");

/// A provider whose principal key the test gives.
struct Given(SlotKind, [u8; 32]);

impl PrincipalKey for Given {
    fn kind(&self) -> SlotKind {
        self.0
    }

    fn describe(&self) -> String {
        format!("the given {}", self.0)
    }

    fn principal_key(&self, _: &SlotTerms, _: Purpose) -> Result<Secret32, Error> {
        Ok(Secret32::new(self.1))
    }
}

/// A provider that wraps, and does with what it has wrapped what the test says.
struct Wraps<F>(F);

impl<F: Fn(&[u8]) -> Result<Payload, Error>> Provider for Wraps<F> {
    fn kind(&self) -> SlotKind {
        FILE
    }

    fn describe(&self) -> String {
        "the service".into()
    }

    fn wrapping(&self) -> Wrapping {
        Wrapping::Remote
    }

    fn wrap(&self, _: &SlotTerms, payload: &Payload) -> Result<Vec<u8>, Error> {
        Ok(payload.expose().to_vec())
    }

    fn unwrap(&self, _: &SlotTerms, wrapped: &[u8]) -> Result<Payload, Error> {
        self.0(wrapped)
    }
}

/// A principal key that is another one each time.
struct Fickle(Cell<u8>);

impl PrincipalKey for Fickle {
    fn kind(&self) -> SlotKind {
        FILE
    }

    fn describe(&self) -> String {
        "the command".into()
    }

    fn principal_key(&self, _: &SlotTerms, _: Purpose) -> Result<Secret32, Error> {
        self.0.set(self.0.get() + 1);
        Ok(Secret32::new([self.0.get(); 32]))
    }
}

fn fixture() -> Fixture {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("data");
    fs::create_dir(&dir).unwrap();
    let file = Given(FILE, [1; 32]);
    let recovery = Given(RECOVERY, [2; 32]);
    let policy = Profile::builtin("postgres").unwrap().compile(&[], &[]).unwrap();
    let keyring = Keyring::create(policy, Layout::DEFAULT, &[&file, &recovery]).unwrap();
    let place = KeyringDir::create(&dir).unwrap();
    place.write_first(&keyring).unwrap();
    Fixture { home: home.path().into(), _home: home, place, file, recovery, dir }
}

#[test]
fn a_provider_that_wraps_and_does_not_open_gets_no_slot() {
    let fixture = fixture();
    let mut keyring = fixture.place.read().unwrap().unlock(&fixture.file).unwrap();
    let before: Vec<_> = keyring.slots().to_vec();
    let denied = Wraps(|_: &[u8]| {
        let (fault, why) = (ServiceFault::Denied, "refuses (there)".into());
        Err(Error::Service { provider: FILE, fault, why })
    });
    let other = Wraps(|_: &[u8]| Ok(Payload::from_slice(&[7; 64]).unwrap()));
    let fickle = Fickle(Cell::new(0));
    for (provider, said) in [
        (&denied as &dyn Provider, "the service wraps but does not open what it has wrapped: the"),
        (&other, "the service wraps but does not open what it has wrapped: it gives something"),
        (&fickle, "the command wraps but does not open what it has wrapped: the command does not"),
    ] {
        let replaced = keyring.replace_slot(before[0].terms.id, provider).map(drop);
        for done in [replaced, keyring.add_slot(provider).map(drop)] {
            let why = done.unwrap_err();
            assert!(matches!(why, Error::WrapsOnly { .. }), "{why}");
            assert!(why.to_string().starts_with(said), "{why}");
        }
    }
    // Nor is a keyring key renewed under it, when it has lost the right since.
    let good = Wraps(|wrapped: &[u8]| Ok(Payload::from_slice(wrapped).unwrap()));
    assert_eq!(keyring.slots(), before);
    keyring.replace_slot(before[0].terms.id, &good).unwrap();
    let first = Cell::new(true);
    let late = Wraps(|wrapped: &[u8]| {
        let given = if first.replace(false) { wrapped } else { &[7; 64] };
        Ok(Payload::from_slice(given).unwrap())
    });
    let renewed = keyring.renew(&[&late, &fixture.recovery]);
    assert!(matches!(renewed, Err(Error::WrapsOnly { .. })), "{renewed:?}");
    keyring.renew(&[&good, &fixture.recovery]).unwrap();
}

/// Whoever has an old keyring and a key that opened it has its keyring key, which opens each later
/// keyring under it, whatever slots that has.
#[test]
fn only_another_keyring_key_takes_later_keyrings_from_a_stolen_pair() {
    let fixture = fixture();
    let stolen = fixture.place.read().unwrap();
    let opens = |now: &SealedKeyring| {
        let key = stolen.unlock(&fixture.file).unwrap();
        now.unlock_with(Secret32::new(*key.keyring_key().expose())).is_ok()
    };
    let mut keyring = fixture.place.read().unwrap().unlock(&fixture.file).unwrap();
    let new = Given(FILE, [3; 32]);
    let slot = keyring.slots()[0].terms.id;
    keyring.replace_slot(slot, &new).unwrap();
    keyring.add_data_key().unwrap();
    fixture.place.write(&mut keyring).unwrap();
    let now = fixture.place.read().unwrap();
    assert!(now.unlock(&fixture.file).is_err());
    assert!(opens(&now), "the slot is another, the keyring key is not");
    keyring.renew(&[&new, &fixture.recovery]).unwrap();
    fixture.place.write(&mut keyring).unwrap();
    let now = fixture.place.read().unwrap();
    assert!(!opens(&now) && now.unlock(&new).is_ok());
}

#[test]
fn each_slot_opens_the_same_keyring() {
    let fixture = fixture();
    let sealed = fixture.place.read().unwrap();
    let by_file = sealed.unlock(&fixture.file).unwrap();
    let by_recovery = sealed.unlock(&fixture.recovery).unwrap();
    assert!(by_file.keyring_key().equals(by_recovery.keyring_key().expose()));
    assert_eq!(by_file.current().id, by_recovery.current().id);
    assert_eq!(by_file.generation(), Generation(1));
    assert_eq!(by_file.policy().profile(), "postgres");
    assert_eq!(by_file.layout(), Layout::DEFAULT);
}

#[test]
fn who_holds_a_keyring_writes_it_and_who_read_it_before_is_refused() {
    let fixture = fixture();
    let mut one = fixture.place.read().unwrap().unlock(&fixture.file).unwrap();
    let other = fixture.place.read().unwrap().unlock(&fixture.file).unwrap();
    let held = fixture.place.hold(&one).unwrap();
    fixture.place.write_held(&held, &mut one).unwrap();
    drop(held);
    let refused = fixture.place.hold(&other).map(drop);
    assert!(matches!(refused, Err(Error::Changed { expected: 1, found: 2 })), "{refused:?}");
    assert!(fixture.place.hold(&one).is_ok());
}

#[test]
fn the_folder_has_what_the_engine_expects_and_nothing_for_others() {
    let fixture = fixture();
    let folder = fixture.dir.join(FOLDER);
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(mode(&folder.join(KEYRING)), 0o600);
    assert_eq!(mode(&folder.join(LOCK)), 0o600);
    // And no link, no pipe: tools that copy directories stop at them.
    for entry in fs::read_dir(&folder).unwrap() {
        let entry = entry.unwrap();
        assert!(entry.file_type().unwrap().is_file(), "{entry:?}");
    }
    assert!(!folder.join(NEXT).exists());
}

#[test]
fn of_two_slots_of_a_kind_each_opens_with_its_key() {
    let fixture = fixture();
    let mut keyring = fixture.place.read().unwrap().unlock(&fixture.file).unwrap();
    keyring.add_slot(&Given(PASSPHRASE, [1; 32])).unwrap();
    keyring.add_slot(&Given(PASSPHRASE, [2; 32])).unwrap();
    fixture.place.write(&mut keyring).unwrap();
    let sealed = fixture.place.read().unwrap();
    assert_eq!(sealed.generation(), Generation(2));
    assert!(sealed.unlock(&Given(PASSPHRASE, [1; 32])).is_ok());
    assert!(sealed.unlock(&Given(PASSPHRASE, [2; 32])).is_ok());
    let other = sealed.unlock(&Given(PASSPHRASE, [3; 32])).err().unwrap();
    assert!(matches!(other, Error::WrongKey { .. }));
    assert!(other.to_string().starts_with("the given passphrase does not open slot "));
}

#[test]
fn another_key_file_is_told_from_a_changed_keyring() {
    let fixture = fixture();
    let other = Given(FILE, [3; 32]);
    let sealed = fixture.place.read().unwrap();
    assert!(matches!(sealed.unlock(&other), Err(Error::WrongKey { .. })));
    assert!(matches!(
        sealed.unlock_with(Secret32::new([9; 32])),
        Err(Error::WrongKeyringKey { .. })
    ));
    let passphrase = Given(PASSPHRASE, [1; 32]);
    let found = sealed.unlock(&passphrase).err().unwrap();
    assert!(matches!(found, Error::NoSlot { kind, .. } if kind == PASSPHRASE));
}

/// Two slots of one type: a provider that wraps in another way, refuses or fails at the first must
/// come to its own.
#[test]
fn a_slot_that_a_provider_cannot_open_does_not_hide_the_next_of_its_type() {
    let says: [fn() -> Error; 5] = [
        || Error::NoSlot { keyring: KeyringId([0; 16]), kind: FILE },
        || Error::Damaged { what: "a slot's wrapped bytes are not Vault's" },
        || Error::CommandFailed { command: "unwrap".into(), status: "1".into() },
        || service(ServiceFault::Denied),
        || service(ServiceFault::NotFound),
    ];
    for says in says {
        let fixture = fixture();
        let mut keyring = fixture.place.read().unwrap().unlock(&fixture.file).unwrap();
        let added = |wrapped: &[u8]| match Payload::from_slice(wrapped) {
            Some(payload) if wrapped.len() == 64 => Ok(payload),
            _ => Err(says()),
        };
        keyring.add_slot(&Wraps(added)).unwrap();
        let sealed = SealedKeyring::parse(&keyring.seal().unwrap()).unwrap();
        assert!(sealed.slots().iter().filter(|slot| slot.terms.kind == FILE).count() == 2);
        let opened = sealed.unlock(&Wraps(added)).unwrap();
        assert_eq!(opened.opened_by().unwrap().terms.wrapping, Wrapping::Remote);
        assert!(sealed.unlock(&fixture.file).is_ok());
    }
    // A service that does not answer is not asked again.
    let fixture = fixture();
    let asked = Cell::new(0);
    let mute = Wraps(|_: &[u8]| {
        asked.set(asked.get() + 1);
        Err(service(ServiceFault::NoAnswer))
    });
    let mut keyring = fixture.place.read().unwrap().unlock(&fixture.file).unwrap();
    keyring.add_slot(&Given(FILE, [9; 32])).unwrap();
    let sealed = SealedKeyring::parse(&keyring.seal().unwrap()).unwrap();
    assert!(matches!(sealed.unlock(&mute), Err(Error::Service { .. })));
    assert_eq!(asked.get(), 1);
}

fn service(fault: ServiceFault) -> Error {
    Error::Service { provider: FILE, fault, why: "refuses (there)".into() }
}

type Secret32 = tidelock_cipher::Secret<32>;

#[test]
fn every_changed_byte_is_found() {
    let fixture = fixture();
    let bytes = fixture.place.bytes().unwrap();
    for at in 0..bytes.len() {
        for bit in [1u8, 0x80] {
            let mut changed = bytes.clone();
            changed[at] ^= bit;
            let opened = SealedKeyring::parse(&changed).and_then(|it| it.unlock(&fixture.file));
            let why = opened.err().unwrap_or_else(|| panic!("byte {at} bit {bit} is not covered"));
            assert_eq!(why.exit_class(), crate::ExitClass::Key, "byte {at}: {why}");
            if at >= bytes.len() - 1000 {
                assert!(matches!(why, Error::Tampered { .. }), "byte {at}: {why}");
            }
        }
    }
}

#[test]
fn every_truncation_is_found() {
    let fixture = fixture();
    let bytes = fixture.place.bytes().unwrap();
    for len in 0..bytes.len() {
        let why = SealedKeyring::parse(&bytes[..len]).err().unwrap();
        assert!(matches!(why, Error::Truncated { .. }), "{len}: {why}");
    }
    let mut longer = bytes;
    longer.push(0);
    assert!(matches!(SealedKeyring::parse(&longer), Err(Error::Damaged { .. })));
}

#[test]
fn a_slot_moved_to_another_keyring_opens_nothing() {
    let (one, two) = (fixture(), fixture());
    let mut bytes = two.place.bytes().unwrap();
    let other = one.place.bytes().unwrap();
    let (start, end) = (112, 112 + 64 + 108);
    bytes[start..end].copy_from_slice(&other[start..end]);
    let sealed = SealedKeyring::parse(&bytes).unwrap();
    assert!(matches!(sealed.unlock(&one.file), Err(Error::WrongKey { .. })));
    assert!(matches!(sealed.unlock(&two.recovery), Err(Error::Tampered { .. })));
}

#[test]
fn a_replacement_cut_at_any_step_leaves_the_old_or_the_new_keyring() {
    for cut in [Step::Created, Step::Written, Step::Synced, Step::Renamed] {
        let fixture = fixture();
        let mut keyring = fixture.place.read().unwrap().unlock(&fixture.file).unwrap();
        keyring.add_data_key().unwrap();
        keyring.set_generation(Generation(2));
        let bytes = keyring.seal().unwrap();
        let crashed = fixture.place.replace_in_steps(&bytes, &mut |step| {
            if step == cut { Err(io::Error::other("crash")) } else { Ok(()) }
        });
        assert!(crashed.is_err());
        let sealed = fixture.place.read().unwrap();
        let expected = Generation(if cut == Step::Renamed { 2 } else { 1 });
        assert_eq!(sealed.generation(), expected, "{cut:?}");
        let mut again = sealed.unlock(&fixture.file).unwrap();
        again.add_data_key().unwrap();
        fixture.place.write(&mut again).unwrap();
        assert_eq!(fixture.place.read().unwrap().generation(), Generation(expected.0 + 1));
        assert!(!fixture.dir.join(FOLDER).join(NEXT).exists());
    }
}

#[test]
fn of_two_commands_at_once_the_second_is_refused() {
    let fixture = fixture();
    let mut one = fixture.place.read().unwrap().unlock(&fixture.file).unwrap();
    let mut two = fixture.place.read().unwrap().unlock(&fixture.file).unwrap();
    fixture.place.write(&mut one).unwrap();
    let why = fixture.place.write(&mut two).err().unwrap();
    assert!(matches!(why, Error::Changed { expected: 1, found: 2 }), "{why}");
    assert_eq!(two.generation(), Generation(1));
}

#[test]
fn a_keyring_that_is_there_is_never_overwritten() {
    let fixture = fixture();
    let keyring = fixture.place.read().unwrap().unlock(&fixture.file).unwrap();
    let before = fixture.place.bytes().unwrap();
    assert!(matches!(fixture.place.write_first(&keyring), Err(Error::KeyringExists { .. })));
    assert!(matches!(KeyringDir::create(&fixture.dir), Err(Error::KeyringExists { .. })));
    assert_eq!(fixture.place.bytes().unwrap(), before);
}

#[test]
fn an_older_keyring_is_refused_as_rolled_back() {
    let fixture = fixture();
    let old = fixture.place.bytes().unwrap();
    let mut keyring = fixture.place.read().unwrap().unlock(&fixture.file).unwrap();
    keyring.add_data_key().unwrap();
    fixture.place.write(&mut keyring).unwrap();
    assert!(matches!(fixture.place.restore(&old, None), Err(Error::RolledBack { .. })));
}

#[test]
fn a_backup_replaces_a_damaged_keyring_but_not_another() {
    let (one, two) = (fixture(), fixture());
    let backup = one.place.bytes().unwrap();
    fs::write(one.dir.join(FOLDER).join(KEYRING), b"garbage").unwrap();
    one.place.restore(&backup, None).unwrap();
    assert!(one.place.read().unwrap().unlock(&one.file).is_ok());
    assert!(matches!(two.place.restore(&backup, None), Err(Error::KeyringExists { .. })));
    assert!(matches!(
        two.place.restore(b"garbage", None),
        Err(Error::Truncated { .. } | Error::NotAKeyring)
    ));
}

/// The lock file may be that of a keyring that was there before.
#[test]
fn a_first_keyring_does_not_inherit_what_another_has_announced() {
    let fixture = fixture();
    fixture.place.announce(Generation(7)).unwrap();
    let keyring = fixture.place.read().unwrap().unlock(&fixture.file).unwrap();
    fs::remove_file(fixture.dir.join(FOLDER).join(KEYRING)).unwrap();
    fixture.place.write_first(&keyring).unwrap();
    assert_eq!(fixture.place.announced().unwrap(), Generation(1));
}

#[test]
fn what_a_backup_replaces_stays_beside_it() {
    let fixture = fixture();
    let backup = fixture.place.bytes().unwrap();
    let path = fixture.dir.join(FOLDER).join(KEYRING);
    assert_eq!(fixture.place.restore(&backup, None).unwrap(), None, "the same");
    for round in 1..=12u8 {
        fs::write(&path, [round; 9]).unwrap();
        let kept = fixture.place.restore(&backup, None).unwrap().unwrap();
        assert_eq!(fs::read(kept).unwrap(), [round; 9]);
        assert_eq!(fixture.place.bytes().unwrap(), backup);
    }
    let names = fs::read_dir(fixture.dir.join(FOLDER)).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut kept: Vec<_> = names.filter(|name| name.contains("replaced")).collect();
    kept.sort();
    assert_eq!(kept.len(), 8, "{kept:?}");
    assert!(kept.contains(&"keyring.replaced-12".to_owned()), "{kept:?}");
}

/// The id of a keyring that is damaged says nothing; that of another which was not examined does.
#[test]
fn a_damaged_id_is_no_reason_to_refuse_a_backup() {
    let fixture = fixture();
    let backup = fixture.place.bytes().unwrap();
    let mut damaged = backup.clone();
    damaged[20] ^= 1;
    fs::write(fixture.dir.join(FOLDER).join(KEYRING), &damaged).unwrap();
    let refused = fixture.place.restore(&backup, None);
    assert!(matches!(refused, Err(Error::KeyringExists { .. })));
    let refused = fixture.place.restore(&backup, Some(&backup));
    assert!(matches!(refused, Err(Error::KeyringExists { .. })));
    fixture.place.restore(&backup, Some(&damaged)).unwrap();
    assert!(fixture.place.read().unwrap().unlock(&fixture.file).is_ok());
}

#[test]
fn an_older_keyring_comes_back_as_a_newer_generation() {
    let fixture = fixture();
    let old = fixture.place.bytes().unwrap();
    let mut keyring = fixture.place.read().unwrap().unlock(&fixture.file).unwrap();
    keyring.add_data_key().unwrap();
    fixture.place.write(&mut keyring).unwrap();
    let mut back = SealedKeyring::parse(&old).unwrap().unlock(&fixture.file).unwrap();
    fixture.place.restore_older(&mut back, Generation(7), None).unwrap();
    let found = fixture.place.read().unwrap().unlock(&fixture.file).unwrap();
    assert_eq!(found.generation(), Generation(8));
    assert_eq!(found.data_keys().len(), 1);
}

#[test]
fn the_last_slot_stays() {
    let fixture = fixture();
    let mut keyring = fixture.place.read().unwrap().unlock(&fixture.file).unwrap();
    let [first, second] = [0, 1].map(|at| keyring.slots()[at].terms.id);
    keyring.remove_slot(first).unwrap();
    assert!(matches!(keyring.remove_slot(first), Err(Error::UnknownSlot { .. })));
    assert!(matches!(keyring.remove_slot(second), Err(Error::LastSlot { .. })));
    fixture.place.write(&mut keyring).unwrap();
    let sealed = fixture.place.read().unwrap();
    assert!(matches!(sealed.unlock(&fixture.file), Err(Error::NoSlot { .. })));
    assert!(sealed.unlock(&fixture.recovery).is_ok());
}

#[test]
fn a_keyring_without_an_opener_cannot_be_made() {
    let policy = Profile::builtin("generic").unwrap().compile(&[], &[]).unwrap();
    assert!(Keyring::create(policy, Layout::DEFAULT, &[]).is_err());
}

#[test]
fn an_older_data_key_stays_readable() {
    let fixture = fixture();
    let mut keyring = fixture.place.read().unwrap().unlock(&fixture.file).unwrap();
    let old = keyring.current().id;
    let new = keyring.add_data_key().unwrap();
    fixture.place.write(&mut keyring).unwrap();
    let keyring = fixture.place.read().unwrap().unlock(&fixture.file).unwrap();
    assert_eq!(keyring.current().id, new);
    let entry = keyring.data_key(old).unwrap();
    assert_eq!(entry.state, tidelock_contract::wire::KeyState::Older);
    assert!(entry.retired.is_some());
}

#[test]
fn an_empty_directory_has_no_keyring() {
    let home = tempfile::tempdir().unwrap();
    assert!(matches!(KeyringDir::open(home.path()), Err(Error::NoKeyring { .. })));
    let made = KeyringDir::create(home.path()).unwrap();
    assert!(matches!(made.read(), Err(Error::NoKeyring { .. })));
}

#[test]
fn a_keyring_that_is_a_link_is_refused() {
    let fixture = fixture();
    let path = fixture.dir.join(FOLDER).join(KEYRING);
    let elsewhere = fixture.home.join("elsewhere");
    fs::rename(&path, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
    assert!(matches!(fixture.place.read(), Err(Error::Io { .. })));
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_a_keyring_or_an_error(bytes: Vec<u8>, good: bool) {
        let mut all = if good { b"TDLKRING\x01\0\x70\0\x01\0\x01\0".to_vec() } else { Vec::new() };
        all.extend_from_slice(&bytes);
        let _ = SealedKeyring::parse(&all);
    }
}

#[test]
fn a_lock_that_is_another_file_by_a_second_name_is_refused_and_not_written() {
    let fixture = fixture();
    let secret = fixture.home.join("secret");
    fs::write(&secret, "sixteen bytes and more").unwrap();
    let lock = fixture.dir.join(FOLDER).join(LOCK);
    fs::remove_file(&lock).unwrap();
    fs::hard_link(&secret, &lock).unwrap();
    let found = fixture.place.announce(Generation(9));
    assert!(matches!(found, Err(Error::ForeignFile { path, .. }) if path == lock));
    assert_eq!(fs::read(&secret).unwrap(), b"sixteen bytes and more");
    // Nor through a link, nor is a folder taken for a lock; a lock that is gone is made again.
    for replace in [
        (|lock, secret| std::os::unix::fs::symlink(secret, lock)) as fn(&Path, &Path) -> _,
        |lock, _| fs::create_dir(lock),
    ] {
        fs::remove_file(&lock).unwrap();
        replace(&lock, &secret).unwrap();
        assert!(fixture.place.announce(Generation(9)).is_err());
        assert_eq!(fs::read(&secret).unwrap(), b"sixteen bytes and more");
    }
    fs::remove_dir(&lock).unwrap();
    fixture.place.announce(Generation(9)).unwrap();
    assert_eq!(fs::read(&lock).unwrap()[8..], 9u64.to_ne_bytes());
}

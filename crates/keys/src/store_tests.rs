//! What may happen to a keyring on a disk: interrupted, changed, truncated, rolled back.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use tidelock_format::Layout;

use super::*;
use crate::policy::Policy;
use crate::profile::Profile;
use crate::provider::{FileProvider, PassphraseProvider, RecoveryKey};
use crate::slot::SlotKind;

struct Fixture {
    _home: tempfile::TempDir,
    place: KeyringDir,
    file: FileProvider,
    recovery: RecoveryKey,
    home: PathBuf,
    dir: PathBuf,
}

fn fixture() -> Fixture {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("data");
    fs::create_dir(&dir).unwrap();
    let file = FileProvider::create(home.path().join("key"), &dir).unwrap();
    let recovery = RecoveryKey::random().unwrap();
    let policy = Policy::compile(&Profile::builtin("postgres").unwrap(), &[], &[]).unwrap();
    let keyring = Keyring::create(policy, Layout::DEFAULT, &[&file, &recovery]).unwrap();
    let place = KeyringDir::create(&dir).unwrap();
    place.write_first(&keyring).unwrap();
    Fixture { home: home.path().into(), _home: home, place, file, recovery, dir }
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
    let slot = sealed.slots()[1].terms.id;
    assert!(sealed.unlock_slot(slot, &fixture.recovery).is_ok());
    assert!(matches!(sealed.unlock_slot(slot, &fixture.file), Err(Error::NoSlot { .. })));
}

#[test]
fn the_folder_has_what_the_engine_expects_and_nothing_for_others() {
    let fixture = fixture();
    let folder = fixture.dir.join(FOLDER);
    let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(mode(&folder.join(KEYRING)), 0o600);
    assert_eq!(mode(&folder.join(FILE_LOCK)), 0o600);
    assert!(fs::symlink_metadata(folder.join(ANCHOR)).unwrap().file_type().is_symlink());
    assert!(!folder.join(NEXT).exists());
}

#[test]
fn a_passphrase_opens_and_another_does_not() {
    let fixture = fixture();
    let mut keyring = fixture.place.read().unwrap().unlock(&fixture.file).unwrap();
    keyring.add_slot(&PassphraseProvider::quick("first")).unwrap();
    keyring.add_slot(&PassphraseProvider::quick("second")).unwrap();
    fixture.place.write(&mut keyring).unwrap();
    let sealed = fixture.place.read().unwrap();
    assert_eq!(sealed.generation(), Generation(2));
    assert!(sealed.unlock(&PassphraseProvider::quick("first")).is_ok());
    assert!(sealed.unlock(&PassphraseProvider::quick("second")).is_ok());
    let other = sealed.unlock(&PassphraseProvider::quick("third")).err().unwrap();
    assert!(matches!(other, Error::WrongKey { .. }));
    assert!(other.to_string().starts_with("the passphrase does not open slot "));
}

#[test]
fn another_key_file_is_told_from_a_changed_keyring() {
    let fixture = fixture();
    let other = FileProvider::create(fixture.home.join("other"), &fixture.dir).unwrap();
    let sealed = fixture.place.read().unwrap();
    assert!(matches!(sealed.unlock(&other), Err(Error::WrongKey { .. })));
    assert!(matches!(
        sealed.unlock_with(Secret32::new([9; 32])),
        Err(Error::WrongKeyringKey { .. })
    ));
    let passphrase = PassphraseProvider::quick("x");
    assert!(matches!(
        sealed.unlock(&passphrase),
        Err(Error::NoSlot { kind: SlotKind::Passphrase, .. })
    ));
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
    assert!(matches!(fixture.place.restore(&old), Err(Error::RolledBack { .. })));
    fs::write(fixture.dir.join(FOLDER).join(KEYRING), &old).unwrap();
    let rolled_back = fixture.place.read().unwrap().unlock(&fixture.file).unwrap();
    assert!(matches!(
        rolled_back.refuse_older_than(keyring.generation()),
        Err(Error::RolledBack { .. })
    ));
    assert!(rolled_back.refuse_older_than(Generation(1)).is_ok());
}

#[test]
fn a_backup_replaces_a_damaged_keyring_but_not_another() {
    let (one, two) = (fixture(), fixture());
    let backup = one.place.bytes().unwrap();
    fs::write(one.dir.join(FOLDER).join(KEYRING), b"garbage").unwrap();
    one.place.restore(&backup).unwrap();
    assert!(one.place.read().unwrap().unlock(&one.file).is_ok());
    assert!(matches!(two.place.restore(&backup), Err(Error::KeyringExists { .. })));
    assert!(matches!(
        two.place.restore(b"garbage"),
        Err(Error::Truncated { .. } | Error::NotAKeyring)
    ));
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
    let policy = Policy::compile(&Profile::builtin("generic").unwrap(), &[], &[]).unwrap();
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
    assert_eq!(entry.state, crate::KeyState::Older);
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
    let lock = fixture.dir.join(FOLDER).join(FILE_LOCK);
    fs::remove_file(&lock).unwrap();
    fs::hard_link(&secret, &lock).unwrap();
    let found = fixture.place.announce(Generation(9));
    assert!(matches!(found, Err(Error::ForeignFile { path, .. }) if path == lock));
    assert_eq!(fs::read(&secret).unwrap(), b"sixteen bytes and more");
    // Nor through a link, nor is a folder taken for a lock; a lock that is gone is made anew.
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
    assert_eq!(fs::read(&lock).unwrap()[ANNOUNCED_AT..], 9u64.to_ne_bytes());
}

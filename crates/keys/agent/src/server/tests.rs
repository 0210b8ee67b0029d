//! A keyring that is changed while its agent begins to listen.

use tidelock_keyring::Profile;
use tidelock_providers::RecoveryKey;

use super::*;

#[test]
fn an_agent_that_a_change_has_overtaken_does_not_serve_and_takes_back_no_announcement() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    fs::create_dir(&data).unwrap();
    let profile = Profile::builtin("generic").unwrap();
    let (policy, layout) = (profile.compile(&[], &[]).unwrap(), profile.layout().unwrap());
    let recovery = RecoveryKey::random().unwrap();
    let keyring = Keyring::create(policy, layout, &[&recovery]).unwrap();
    let (id, first) = (keyring.id(), keyring.generation());
    let folder = KeyringDir::create(&data).unwrap();
    folder.write_first(&keyring).unwrap();
    assert!(announce(&folder, id, first));
    // A command changes it, finds no agent that listens, and announces the change itself.
    let mut changed = folder.read().unwrap().unlock(&recovery).unwrap();
    folder.write(&mut changed).unwrap();
    let second = changed.generation();
    folder.announce(second).unwrap();
    let options = Options::new(RunDir::at(&home.path().join("run")).unwrap());
    let socket = options.run_dir.socket(id);
    let bound = Server::bind(keyring, &data, options, Primitives::default());
    assert!(matches!(bound, Err(Error::Outdated { keyring }) if keyring == id));
    assert!(!socket.exists());
    assert!(first < second && folder.announced().unwrap() == second);
    // Whoever has the new one says nothing new.
    assert!(announce(&folder, id, second));
    assert!(folder.announced().unwrap() == second);
}

//! A key that `systemd-creds` has encrypted for this machine opens a keyring, as in a unit with
//! LoadCredentialEncrypted: systemd decrypts it into $CREDENTIALS_DIRECTORY.
//!
//! systemd need not run. Root's, whose secret it uses.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "home/home.rs"]
mod home;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use home::Home;
use tidelock_servers::{Bounded, skip};

#[test]
fn an_encrypted_credential_opens_the_keyring_and_another_does_not() {
    if skip::unless_root("the secret of this machine") {
        return;
    }
    let home = Home::new();
    let shell = |line: &str| {
        let line = format!("export CREDENTIALS_DIRECTORY=$HOME/credentials; {line}");
        let output = home.shell(&line).finish().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    if shell("command -v systemd-creds").0 != Some(0) {
        skip::missing("systemd-creds");
        return;
    }
    let encrypt = "umask 077; mkdir credentials; for key in one two; do head -c 32 /dev/urandom | \
                   systemd-creds encrypt --with-key=host --name=$key - $key.cred || exit 1; done";
    let (code, said) = shell(encrypt);
    if code != Some(0) {
        skip::because(format_args!("systemd-creds cannot make a secret of this machine: {said}"));
        return;
    }
    // What systemd does before it starts a unit.
    let load = |key: &str| {
        let file = home.path("credentials/pg");
        let _ = fs::remove_file(&file);
        let line = format!("systemd-creds decrypt --name={key} {key}.cred credentials/pg");
        assert_eq!(shell(&line).0, Some(0));
        fs::set_permissions(&file, Permissions::from_mode(0o400)).unwrap();
    };
    load("one");
    let init = "tidelock init data --profile generic --provider systemd:pg --no-recovery";
    assert_eq!(shell(init).0, Some(0));
    assert_eq!(shell("echo text | tidelock seal --file -D data > data/file").0, Some(0));
    assert_eq!(shell("test \"$(tidelock cat data/file)\" = text").0, Some(0));
    load("two");
    let (code, said) = shell("tidelock cat data/file");
    assert_eq!(code, Some(4), "{said}");
    fs::remove_file(home.path("credentials/pg")).unwrap();
    assert_eq!(shell("tidelock cat data/file").0, Some(4));
    let (code, said) = shell("unset CREDENTIALS_DIRECTORY; tidelock cat data/file");
    assert!(code == Some(4) && said.contains("CREDENTIALS_DIRECTORY"), "{said}");
}

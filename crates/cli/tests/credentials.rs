//! A key that `systemd-creds` has encrypted for this machine opens a keyring, as in a unit with
//! LoadCredentialEncrypted: systemd decrypts it into $CREDENTIALS_DIRECTORY.
//!
//! systemd need not run. Skipped, with a word, without `systemd-creds` or without root, whose secret it uses.

#![expect(clippy::print_stderr, reason = "a skipped test says why")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tidelock_servers::{Bounded, alone};

#[test]
fn an_encrypted_credential_opens_the_keyring_and_another_does_not() {
    let home = tempfile::tempdir().unwrap();
    let shell = |line: &str| {
        let programs = Path::new(env!("CARGO_BIN_EXE_tidelock")).parent().unwrap();
        let output = alone("/bin/sh")
            .args(["-c", line])
            .current_dir(home.path())
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", programs.display()))
            .env("HOME", home.path())
            .env("XDG_STATE_HOME", home.path().join("state"))
            .env("CREDENTIALS_DIRECTORY", home.path().join("credentials"))
            .finish()
            .unwrap_or_else(|why| panic!("{line}: {why}"));
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    if shell("command -v systemd-creds && test $(id -u) = 0").0 != Some(0) {
        eprintln!("skipped: no systemd-creds (Debian: systemd), or not root");
        return;
    }
    let encrypt = "umask 077; mkdir credentials; for key in one two; do head -c 32 /dev/urandom | \
                   systemd-creds encrypt --with-key=host --name=$key - $key.cred || exit 1; done";
    let (code, said) = shell(encrypt);
    if code != Some(0) {
        eprintln!("skipped: systemd-creds cannot make a secret of this machine: {said}");
        return;
    }
    // What systemd does before it starts a unit.
    let load = |key: &str| {
        let file = home.path().join("credentials/pg");
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
    fs::remove_file(home.path().join("credentials/pg")).unwrap();
    assert_eq!(shell("tidelock cat data/file").0, Some(4));
    let (code, said) = shell("unset CREDENTIALS_DIRECTORY; tidelock cat data/file");
    assert!(code == Some(4) && said.contains("CREDENTIALS_DIRECTORY"), "{said}");
}

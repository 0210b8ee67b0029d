//! The disk fills up, really: each change of the keyring fails with error, hint and exit code, the
//! old state opens, and with room again the same command works.
//!
//! A small ext4 on a loop device, which needs root.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "home/place.rs"]
mod place;

use place::Shell;
use tidelock_servers::skip;

const FILL: &str = "dd if=/dev/zero of=v/fill bs=64k status=none; sync -f v; \
                    dd if=/dev/zero of=v/fill2 bs=1k status=none; sync -f v; \
                    dd if=/dev/zero of=v/fill3 bs=1k status=none; sync -f v; df --output=avail v | tail -1";

/// Unmounts before the folder goes.
struct Mounted(Shell);

impl Drop for Mounted {
    fn drop(&mut self) {
        self.0.run("PATH=$PATH:/usr/sbin:/sbin; umount v || umount -l v");
    }
}

/// `v` is the volume, HOME is `home`; `$1` and `$2` are the slots of two key files.
fn full(home: &str) {
    if skip::unless_root("a volume of one's own") {
        return;
    }
    let place = Shell::new();
    let mount = "PATH=$PATH:/usr/sbin:/sbin; mkdir v h && truncate -s 16M image && mkfs.ext4 -q \
                 -m 0 image && \
                 mount -o loop image v";
    let said = place.run(mount);
    if !said.is_empty() {
        skip::because(format_args!("no volume can be mounted here: {said}"));
        return;
    }
    let place = Mounted(place);
    let run = |line: &str| {
        place.0.run(&format!(
            "export HOME=$PWD/{home} XDG_STATE_HOME=$PWD/{home}/state; \
             set -- $(tidelock key list -D v/data 2> /dev/null | cut -c1-8); {line}"
        ))
    };
    let made = run(
        "mkdir -p $HOME; tidelock init v/data --profile generic --recovery-file $PWD/h/recovery \
         > out 2>&1 || cat out; \
         echo plain words | tidelock seal --file -D v/data > v/data/a; \
         tidelock key add -D v/data file:$PWD/h/second.key > out 2>&1 || cat out; mkdir -p $PWD/h",
    );
    assert_eq!(made, "");
    let before = run("tidelock key list -D v/data; sha256sum < v/data/.tidelock/keyring");
    let names = run("ls -A v/data/.tidelock");
    for command in [
        "key add -D v/data file:$PWD/h/third.key",
        "key rotate -D v/data --slot $1 --to file:$PWD/h/fourth.key --recovery-file $PWD/h/recovery",
        "key remove -D v/data --recovery-file $PWD/h/recovery $2",
        "key new-data-key -D v/data",
    ] {
        assert_eq!(run(FILL).lines().last().unwrap().trim(), "0", "the volume is not full");
        let said = run(&format!("tidelock {command}"));
        let told = said.contains("\nerror: ") || said.starts_with("error: ");
        assert!(
            told && said.contains("hint:  ") && said.ends_with("[exit 1]\n"),
            "{command}: {said}"
        );
        assert!(said.contains("No space left") && said.contains("make room"), "{command}: {said}");
        let after = run("tidelock key list -D v/data; sha256sum < v/data/.tidelock/keyring");
        assert_eq!(after, before, "{command}");
        assert!(run("tidelock cat v/data/a").contains("plain words\n"), "{command}");
        let checked = run("tidelock key check -D v/data > out 2>&1 || cat out");
        assert_eq!(checked, "", "{command}");
        assert_eq!(run("rm v/fill*; ls -A v/data/.tidelock"), names, "{command}");
    }
    let add = run("tidelock key add -D v/data file:$PWD/h/third.key > out 2>&1 || cat out");
    let rotate = run(
        "tidelock key rotate -D v/data --slot $1 --to file:$PWD/h/fourth.key --recovery-file $PWD/h/recovery > out 2>&1 || cat out",
    );
    let remove = run(
        "tidelock key remove -D v/data --recovery-file $PWD/h/recovery $2 > out 2>&1 || cat out",
    );
    assert_eq!([add, rotate, remove], ["", "", ""], "with room again");
    assert_eq!(run("tidelock cat v/data/a"), "plain words\n");
}

#[test]
fn a_full_disk_under_the_keyring_changes_nothing() {
    full("h");
}

#[test]
fn a_full_disk_under_keyring_and_configuration_changes_nothing() {
    full("v/home");
}

//! Nothing damaged takes the place of something good, and a check speaks for the server's user.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "home/others.rs"]
mod others;
#[path = "home/place.rs"]
mod place;

use others::Others;
use place::Shell;
use tidelock_servers::skip;

/// Every so many bytes of a keyring, one after another is changed.
fn change_every(step: usize) {
    let place = Shell::new();
    let made = place.run(
        "tidelock init data --recovery-file r > /dev/null; \
         tidelock seal --file -D data < r > data/a; \
         tidelock keyring backup -D data copy > /dev/null 2>&1; cp copy good; \
         stat -c %s copy > size; echo 0 > done",
    );
    assert_eq!(made, "");
    let found = place.run(&format!(
        "at=0; while [ $at -lt $(cat size) ]; do \
         cp good data/.tidelock/keyring; change data/.tidelock/keyring $at; \
         tidelock key check -D data > out 2>&1 && echo $at: check said yes; \
         tidelock keyring backup -D data copy > out 2>&1 && echo $at: copied; \
         cmp -s good copy || {{ echo $at: the copy is lost; cp good copy; }}; \
         cp good data/.tidelock/keyring; cp good bad; change bad $at; \
         tidelock keyring restore -D data bad > out 2>&1 && echo $at: restored; \
         cmp -s good data/.tidelock/keyring || echo $at: the keyring is lost; \
         at=$((at + {step})); echo $at > done; done"
    ));
    assert_eq!(found, "");
    let last: usize = place.run("cat done").trim().parse().unwrap();
    assert!(last > 400, "{last}");
}

/// Wherever a byte is changed: the copy stays, the keyring stays, and a restart is not promised.
#[test]
fn no_changed_byte_gets_into_a_copy_out_of_a_copy_or_past_a_check() {
    change_every(29);
}

#[test]
#[ignore = "long: make test-full"]
fn no_changed_byte_at_all_gets_into_a_copy_out_of_a_copy_or_past_a_check() {
    change_every(1);
}

/// The mode of a key file that root reads says nothing of the server.
#[test]
fn root_asks_as_the_owner_whether_a_server_would_come_back() {
    if skip::unless_root("a directory of another user") {
        return;
    }
    let (place, others) = (Shell::new(), Others::new());
    let first = others.first();
    let begin = "chmod 755 .; mkdir -p own; chown 54321:54321 own; cp /etc/passwd p; \
                 echo tlowner:x:54321:54321::$PWD/own:/bin/sh >> p; \
                 mount --bind p /etc/passwd || exit 9; \
                 as() { env -u XDG_STATE_HOME -u TIDELOCK_RUN_DIR HOME=$PWD/own \
                 setpriv --reuid=54321 --regid=54321 --clear-groups -- \"$@\"; };";
    let within = |line: &str| place.run(&format!("{first}unshare -m sh -c '{begin} {line}'"));
    let said = within("true");
    if !said.is_empty() {
        skip::because(format_args!("no mount namespace can be made here: {said}"));
        return;
    }
    let made = within("as tidelock init own/data --recovery-file own/r > out 2>&1 || cat out");
    assert_eq!(made, "");
    let opens =
        within("tidelock key check -D own/data; tidelock key check -D own/data --json > out");
    assert!(opens.contains("opens") && !opens.contains("exit"), "{opens}");
    assert!(place.run("grep user out").contains("[USER]"));
    assert!(within("grep tlowner out").contains("user"));
    // Root's own: root would read it, the server cannot.
    let taken = within(
        "chown 0:0 own/.config/tidelock/keys/data.key; tidelock key check -D own/data; \
         echo code $?; as tidelock exec -D own/data -- true; echo code $?",
    );
    assert!(taken.contains("DOES NOT OPEN") && taken.contains("Permission denied"), "{taken}");
    assert_eq!(taken.matches("code 4").count(), 2, "{taken}");
}

//! Nothing damaged takes the place of something good, and a check speaks for the server's user.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "home/others.rs"]
mod others;
#[path = "home/place.rs"]
mod place;

use others::Others;
use place::Shell;
use tidelock_cipher::Secret;
use tidelock_keyring::SealedKeyring;
use tidelock_providers::ProviderChoice;
use tidelock_servers::skip;

/// Every so many bytes of a keyring, one after another is changed.
fn change_every(step: usize) {
    let place = Shell::new();
    let made = place.run(
        "tidelock init data --recovery-file r > /dev/null; \
         tidelock seal --file -D data < r > data/a; \
         tidelock keyring backup -D data copy > /dev/null 2>&1; cp copy good; \
         stat -c %s copy > size",
    );
    assert_eq!(made, "");
    let size: usize = place.run("cat size").trim().parse().unwrap();
    assert!(size > 400, "{size}");
    // A few at a time: a shell may take minutes, and all bytes take more.
    for first in (0..size).step_by(20 * step) {
        let behind = size.min(first + 20 * step);
        let found = place.run(&format!(
            "at={first}; while [ $at -lt {behind} ]; do \
             cp good data/.tidelock/keyring; change data/.tidelock/keyring $at; \
             tidelock key check -D data > out 2>&1 && echo $at: check said yes; \
             tidelock keyring backup -D data copy > out 2>&1 && echo $at: copied; \
             cmp -s good copy || {{ echo $at: the copy is lost; cp good copy; }}; \
             cp good data/.tidelock/keyring; cp good bad; change bad $at; \
             tidelock keyring restore -D data bad > out 2>&1 && echo $at: restored; \
             cmp -s good data/.tidelock/keyring || echo $at: the keyring is lost; \
             at=$((at + {step})); done; echo $at > done"
        ));
        assert_eq!(found, "");
    }
    let last: usize = place.run("cat done").trim().parse().unwrap();
    assert!(last >= size, "{last}");
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

/// A machine in a mount namespace, where `own/data` is a protected directory of the user tlowner.
struct Machine {
    place: Shell,
    others: Others,
    mounts: String,
}

impl Machine {
    /// With these mounts, by which there is such a user; none where nothing can be mounted.
    #[track_caller]
    fn of_another_user(mounts: &str) -> Option<Self> {
        let (place, others) = (Shell::new(), Others::new());
        let machine = Self { place, others, mounts: mounts.into() };
        let said = machine.run("true");
        if !said.is_empty() {
            skip::because(format_args!("no mount namespace can be made here: {said}"));
            return None;
        }
        let made = "as tidelock init own/data --recovery-file own/r > out 2>&1 || cat out";
        assert_eq!(machine.run(made), "");
        Some(machine)
    }

    /// Lines of root's, in which `as` runs a command as the owner.
    fn run(&self, line: &str) -> String {
        let (first, mounts) = (self.others.first(), &self.mounts);
        self.place.run(&format!(
            "{first}unshare -m sh -c 'umask 022; chmod 755 .; mkdir -p own; \
             chown 54321:54321 own; {mounts} || exit 9; \
             as() {{ env -u XDG_STATE_HOME -u TIDELOCK_RUN_DIR HOME=$PWD/own \
             setpriv --reuid=54321 --regid=54321 --clear-groups -- \"$@\"; }}; {line}'"
        ))
    }
}

/// The mode of a key file that root reads says nothing of the server.
#[test]
fn root_asks_as_the_owner_whether_a_server_would_come_back() {
    if skip::unless_root("a directory of another user") {
        return;
    }
    let mounts = "cp /etc/passwd p; echo tlowner:x:54321:54321::$PWD/own:/bin/sh >> p; \
                  mount --bind p /etc/passwd";
    let Some(machine) = Machine::of_another_user(mounts) else { return };
    let within = |line: &str| machine.run(line);
    let opens =
        within("tidelock key check -D own/data; tidelock key check -D own/data --json > out");
    assert!(opens.contains("opens") && !opens.contains("exit"), "{opens}");
    assert!(machine.place.run("grep user out").contains("[USER]"));
    assert!(within("grep tlowner out").contains("user"));
    // Root's own: root would read it, the server cannot.
    let taken = within(
        "chown 0:0 own/.config/tidelock/keys/data.key; tidelock key check -D own/data; \
         echo code $?; as tidelock exec -D own/data -- true; echo code $?",
    );
    assert!(taken.contains("DOES NOT OPEN") && taken.contains("Permission denied"), "{taken}");
    assert_eq!(taken.matches("code 4").count(), 2, "{taken}");
}

/// The thief has the keyring key of then, whatever becomes of the slot.
#[test]
fn a_stolen_keyring_with_its_key_opens_none_behind_the_change_of_that_key() {
    let place = Shell::new();
    let out = tempfile::tempdir().unwrap();
    let at = |name: &str| out.path().join(name);
    let shelf = out.path().display();
    let made = place.run(&format!(
        "k=.config/tidelock/keys/data.key; tidelock init data --recovery-file r > /dev/null; \
         cp data/.tidelock/keyring {shelf}/stolen; cp $k {shelf}/key; chmod 600 {shelf}/key"
    ));
    assert_eq!(made, "");
    let stolen = SealedKeyring::parse(&std::fs::read(at("stolen")).unwrap()).unwrap();
    let key = ProviderChoice::file(at("key")).open(out.path(), None).unwrap();
    let stolen = stolen.unlock(&*key).unwrap();
    let opens = |line: &str| {
        let said = place.run(&format!(
            "slot=$(tidelock key list -D data | grep file | cut -c1-8); {line}; \
             tidelock key new-data-key -D data > out 2>&1 || cat out; \
             cp data/.tidelock/keyring {shelf}/now"
        ));
        let now = SealedKeyring::parse(&std::fs::read(at("now")).unwrap()).unwrap();
        (now.unlock_with(Secret::new(*stolen.keyring_key().expose())).is_ok(), said)
    };
    let rotate = "tidelock key rotate -D data --slot $slot --to file:$PWD/new";
    let (opened, said) = opens(rotate);
    let refused = "error: the keyring key is renewed under every slot, and slot [ID] of type recovery \
                   cannot be opened now";
    assert!(opened && said.starts_with(refused), "nothing is changed: {said}");
    let (opened, said) = opens(&format!("{rotate} --no-renew"));
    assert!(opened && said.contains("its own key is not renewed"), "{said}");
    // The recovery key lay beside it.
    let (opened, said) = opens("tidelock key recovery -D data --new-recovery-file r2");
    assert!(!opened && said.contains("recovery key in r2"), "{said}");
    let again = format!("{rotate}-er --recovery-file r2; tidelock key check -D data");
    let (opened, said) = opens(&again);
    assert!(!opened && said.contains("file        opens"), "{said}");
}

/// A configuration of root's goes before that of the owner, whom no command of root's asks.
#[test]
fn root_changes_the_keys_of_another_users_directory_where_its_server_finds_them() {
    if skip::unless_root("a directory of another user") {
        return;
    }
    let mounts = "[ -e etc ] || { cp -a /etc etc; rm -rf etc/tidelock; \
                  echo tlowner:x:54321:54321::$PWD/own:/bin/sh >> etc/passwd; }; \
                  mount --bind etc /etc";
    let Some(machine) = Machine::of_another_user(mounts) else { return };
    let slot = "slot=$(tidelock key list -D own/data 2> /dev/null | grep -m1 file | cut -c1-8);";
    let within = |line: &str| machine.run(&format!("{slot} {line}"));
    let remove = "tidelock key remove -D own/data $slot --recovery-file own/r";
    let said = within(remove);
    assert!(said.contains("is the last that opens without a person"), "{said}");
    let add = "tidelock key add -D own/data file:$PWD/own/new.key --recovery-file own/r";
    let said = within(&format!("{add}; ls own/new.key own/data/.tidelock; ls /etc/tidelock"));
    assert!(said.contains("which what root writes into /etc/tidelock would hide"), "{said}");
    let moved = "run the command as tlowner; or move that file to /etc/tidelock/keyrings/[ID].toml, \
                 chown it to root and chmod 644 (640 and the owner's group if it has a command)";
    assert!(said.contains(moved), "{said}");
    assert_eq!(said.matches("No such file or directory").count(), 2, "{said}");
    // Where nothing is configured, root configures the machine, and the owner reads that.
    let said = within(&format!(
        "mv own/.config away; {add}; stat -c %a-%U /etc/tidelock/keyrings/*.toml; \
         as tidelock exec -D own/data -- true; echo code $?"
    ));
    assert!(said.contains("provider in /etc/tidelock/keyrings/[ID].toml\n"), "{said}");
    assert!(said.contains("644-root\n") && said.ends_with("code 0\n"), "{said}");
    // The text of a command may hold a passphrase.
    let said = within(
        "rm -r /etc/tidelock; head -c 32 /dev/urandom > own/k; chown 54321 own/k; \
         tidelock init own/second --owner tlowner --no-recovery --provider \
         \"command:cat $PWD/own/k\" > out 2>&1 || cat out; \
         stat -c %a-%U-%g /etc/tidelock/keyrings/*.toml; \
         as tidelock exec -D own/second -- true; echo code $?",
    );
    assert_eq!(said, "640-root-54321\ncode 0\n");
    // In the owner's own file there is no advice that would close it to the server.
    let said = within(
        "rm -r /etc/tidelock; mkdir own/third; chown 54321 own/third; \
         as tidelock init own/third --recovery-file own/r3 > out 2>&1 || cat out; \
         mv own/.config/tidelock/keyrings/*.toml own/.config/tidelock/third.toml; \
         tidelock key add -D own/third file:$PWD/own/4.key --recovery-file own/r3",
    );
    assert!(said.contains("move that file to /etc/tidelock/third.toml"), "{said}");
    assert!(said.contains("chown it to root and chmod 644\n"), "{said}");
    // Each user's commands look into each `NAME.toml`.
    let said = within(
        "mkdir -p /etc/tidelock; mv own/.config/tidelock/third.toml /etc/tidelock; \
         chown 0:0 /etc/tidelock/third.toml; chmod 644 /etc/tidelock/third.toml; \
         tidelock key add -D own/third \"command:cat $PWD/own/k\" --recovery-file own/r3; \
         stat -c %a-%G /etc/tidelock/third.toml",
    );
    assert!(
        said.contains("every user can read /etc/tidelock/third.toml, and the command"),
        "{said}"
    );
    assert!(said.ends_with("644-root\n"), "{said}");
}

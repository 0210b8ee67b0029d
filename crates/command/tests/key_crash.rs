//! `tidelock key` killed at every system call that changes something: the keyring opens with what
//! is configured, and is the old one or the new one. And a directory that is made, by `tidelock
//! init` or by itself: made or not, also if one of the calls fails.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "home/place.rs"]
mod place;

use place::Shell;

/// Calls that change files, and those around which something could be half done.
const CALLS: &[&str] = &[
    "openat",
    "mkdir",
    "mkdirat",
    "write",
    "writev",
    "pwrite64",
    "fchown",
    "fchmod",
    "chmod",
    "fsync",
    "rename",
    "renameat",
    "renameat2",
    "linkat",
    "unlink",
    "unlinkat",
    "flock",
    "ftruncate",
];

/// `h` is HOME with a protected directory `data` of two slots; `t` its template.
fn template() -> Shell {
    let place = Shell::new();
    let made = place.run(
        "export HOME=$PWD/h; mkdir h; tidelock init h/data --recovery-file h/recovery > \
         /dev/null && \
         echo plain words | tidelock seal --file -D h/data > h/data/a && \
         tidelock key add -D h/data file:$HOME/second.key > /dev/null 2>&1 && mv h t",
    );
    assert_eq!(made, "");
    place
}

/// Kills `command` before each of its calls in turn; returns how often.
fn kill_everywhere(command: &str, slots: [usize; 2]) -> usize {
    let place = template();
    let mut kills = 0;
    for call in CALLS {
        for number in 1.. {
            let run = place.run(&format!(
                "rm -rf h; cp -a t h; export HOME=$PWD/h; first() {{ tidelock key list -D h/data \
                 | head -1 | cut -c1-8; }}; \
                 set -- $(first); alone strace -qq -o /dev/null -e trace={call} -e inject={call}:signal=KILL:when={number} \
                 tidelock key {command} > out 2>&1"
            ));
            let at = format!("{command}, {call} number {number}");
            let killed = run.contains("[exit 137]") || run.contains("[exit signal]");
            assert!(killed || run.is_empty(), "{at}: {run}{}", place.run("cat out"));
            let after = place.run(
                "export HOME=$PWD/h; tidelock key check -D h/data > checked 2>&1 || cat checked; \
                                   tidelock cat h/data/a; tidelock key list -D h/data | wc -l",
            );
            let count: usize = after
                .strip_prefix("plain words\n")
                .unwrap_or_else(|| panic!("{at}: {after}"))
                .trim()
                .parse()
                .unwrap();
            assert!(slots.contains(&count), "{at}: {count} slots");
            // The next command is not in the way of what the last one left.
            let again = place.run(
                "export HOME=$PWD/h; tidelock key new-data-key -D h/data > out 2>&1 || cat out; \
                 test ! -e h/third.key || test $(stat -c %s h/third.key) = 32 || echo half a key",
            );
            assert_eq!(again, "", "{at}");
            if !killed {
                break;
            }
            kills += 1;
        }
    }
    kills
}

#[test]
fn a_kill_while_a_slot_is_added_leaves_an_opener() {
    assert!(kill_everywhere("add -D h/data file:$HOME/third.key", [3, 4]) > 20);
}

#[test]
fn a_kill_while_a_slot_is_rotated_leaves_an_opener() {
    let rotate = "rotate -D h/data --recovery-file h/recovery --slot $1 --to file:$HOME/third.key";
    assert!(kill_everywhere(rotate, [3, 3]) > 20);
}

#[test]
fn a_kill_while_a_slot_is_removed_leaves_an_opener() {
    assert!(kill_everywhere("remove -D h/data --recovery-file h/recovery $1", [3, 2]) > 20);
}

#[test]
fn a_kill_while_a_recovery_key_is_replaced_leaves_one_that_opens() {
    let place = template();
    let mut kills = 0;
    for call in CALLS {
        for number in 1.. {
            let run = place.run(&format!(
                "rm -rf h; cp -a t h; export HOME=$PWD/h; alone strace -qq -o /dev/null \
                 -e trace={call} -e inject={call}:signal=KILL:when={number} tidelock key recovery \
                 -D h/data --recovery-file h/recovery --print-recovery > out 2> errors"
            ));
            let at = format!("{call} number {number}");
            let killed = run.contains("[exit 137]") || run.contains("[exit signal]");
            assert!(killed || run.is_empty(), "{at}: {run}{}", place.run("cat errors"));
            let after = place.run(
                "export HOME=$PWD/h; sed -n 's/^recovery key  //p' out > new; chmod 600 new; \
                 for key in h/recovery new; do \
                 tidelock cat --recovery-file $key h/data/a 2> /dev/null; done",
            );
            // Of the old one and the one that was seen, one opens.
            assert!(after.starts_with("plain words\n"), "{at}: {after}");
            if !killed {
                break;
            }
            kills += 1;
        }
    }
    assert!(kills > 20, "{kills}");
}

#[test]
fn a_kill_while_a_directory_is_made_by_itself_leaves_it_made_or_not() {
    let place = Shell::new();
    let made = place.run(
        "mkdir -p -m 700 t/.config/tidelock t/recovery; head -c 32 /dev/urandom > t/key; \
         printf 'directory = \"%s/h/data\"\\nauto_init = true\\nrecovery_folder = \
                               \"%s/h/recovery\"\\n\
                 [[provider]]\\ntype = \"file\"\\npath = \"%s/h/key\"\\n' $PWD $PWD $PWD \
         > t/.config/tidelock/pg.toml; chmod 600 t/key t/.config/tidelock/pg.toml",
    );
    assert_eq!(made, "");
    // With a provider that opens nothing it ends there, and no agent is left behind.
    let make = "tidelock exec --provider file:/nowhere -D h/data -- true";
    let mut kills = 0;
    for call in CALLS {
        for number in 1.. {
            let run = place.run(&format!(
                "rm -rf h; cp -a t h; export HOME=$PWD/h; strace -qq -o /dev/null -e trace={call} \
                 -e inject={call}:signal=KILL:when={number} {make} > out 2>&1"
            ));
            let at = format!("{call} number {number}");
            let killed = run.contains("[exit 137]") || run.contains("[exit signal]");
            assert!(killed || run == "[exit 4]\n", "{at}: {run}{}", place.run("cat out"));
            let after = place.run(&format!(
                "export HOME=$PWD/h; before=$(cat h/data/.tidelock/keyring 2>/dev/null | \
                 sha256sum); \
                 test -e h/data/.tidelock/keyring && old=1; {make} > out 2>&1; \
                 test -z \"$old\" || test \"$before\" = \"$(sha256sum < \
                           h/data/.tidelock/keyring)\" || echo replaced; \
                 echo plain words | tidelock seal --file -D h/data > h/data/a; tidelock cat h/data/a; \
                 for key in h/recovery/*; do tidelock cat --recovery-file $key h/data/a 2>/dev/null; done"
            ));
            // By the key, and by one recovery key, whatever others were left.
            assert!(after.starts_with("plain words\nplain words\n"), "{at}: {after}");
            if !killed {
                break;
            }
            kills += 1;
        }
    }
    assert!(kills > 20, "{kills}");
}

/// `fault` is what strace injects into one call after another.
fn init_with(fault: &str) -> usize {
    let place = Shell::new();
    let mut faults = 0;
    for call in CALLS {
        for number in 1.. {
            let at = format!("{call} number {number}, {fault}");
            let met = place.run(&format!(
                "rm -rf h; mkdir h; export HOME=$PWD/h; strace -qq -o calls -e trace={call} \
                 -e inject={call}:{fault}:when={number} tidelock init h/data --profile generic \
                 --recovery-file h/recovery > out 2>&1; echo $? > code; \
                 grep -q 'INJECTED\\|killed by' calls && echo met"
            ));
            // By the key, and by the recovery key. What a kill leaves without a keyring is
            // nobody's, and so is a configuration.
            let after = place.run(
                "export HOME=$PWD/h; if test -e h/data/.tidelock/keyring; then \
                 echo plain words | tidelock seal --file -D h/data > h/data/a; \
                 tidelock cat h/data/a; tidelock cat --recovery-file h/recovery h/data/a; \
                 elif test $(cat code) = 0; then echo done without a keyring; \
                 elif test $(cat code) -lt 100; then \
                 find h -name recovery -o -name '*.key'; fi",
            );
            let opens = after == "plain words\nplain words\n";
            assert!(opens || after.is_empty(), "{at}: {after}{}", place.run("cat out"));
            if met != "met\n" {
                assert!(opens, "{at}: {met}");
                break;
            }
            faults += 1;
        }
    }
    faults
}

#[test]
fn a_failed_call_while_a_directory_is_made_leaves_no_keyring_without_its_keys() {
    let faults = init_with("error=EIO");
    assert!(faults > 20, "{faults}");
}

#[test]
fn a_kill_while_a_directory_is_made_leaves_no_keyring_without_its_keys() {
    let faults = init_with("signal=KILL");
    assert!(faults > 20, "{faults}");
}

/// Such a file system has links: NFS.
#[test]
fn a_file_system_without_renameat2_gets_recovery_keys_and_copies_all_the_same() {
    let place = Shell::new();
    let said = place.run(
        "export HOME=$PWD/h; mkdir h; \
         without() { \
             strace -qq -o calls -e trace=renameat2,linkat -e inject=renameat2:error=EINVAL \
                 tidelock \"$@\" > out 2>&1 || cat out; \
             grep -q 'renameat2.*INJECTED' calls && grep -q '^linkat.* = 0$' calls || cat calls; \
         }; \
         without init h/data --profile generic --recovery-file h/recovery; \
         without keyring backup -D h/data h/copy; \
         echo plain words | tidelock seal --file -D h/data > h/data/a; \
         tidelock cat --recovery-file h/recovery h/data/a; \
         rm h/data/.tidelock/keyring; \
         tidelock keyring restore -D h/data h/copy > out 2>&1 || cat out; \
         tidelock cat h/data/a; ls h",
    );
    assert_eq!(said, "plain words\nplain words\ncopy\ndata\nrecovery\n");
}

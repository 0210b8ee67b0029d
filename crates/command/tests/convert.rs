//! `tidelock encrypt`, `decrypt` and `rekey` on files of every kind, killed at every system call
//! and resumed: no file is ever anything but whole.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "convert/damage.rs"]
mod damage;
#[path = "home/place.rs"]
mod place;

use place::Shell;
use tidelock_servers::skip;

/// Calls that change files, and those around which something could be half done.
const CALLS: &[&str] = &[
    "openat",
    "open",
    "pwrite64",
    "ftruncate",
    "fchown",
    "fchmod",
    "fsetxattr",
    "fsync",
    "syncfs",
    "linkat",
    "link",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "flock",
    "mkdir",
    "mkdirat",
    "write",
    "rmdir",
];

/// `make DIR`: files on and beside the edges, holes, second names, times and modes.
/// `look DIR`: all that must come back, whatever form the files have on the disk meanwhile.
const PROLOGUE: &str = r#"export HOME=$PWD/h
make() {
    mkdir -p $1/sub/deep $1/../elsewhere
    python3 - $1 <<'END'
import os, random, sys
random.seed(5)
d = sys.argv[1] + "/"
for n in [0, 1, 15, 16, 17, 4095, 4096, 4097, 8192, 1048577]:
    open(d + "f%d" % n, "wb").write(random.randbytes(n))
with open(d + "hole", "wb") as f:
    f.truncate(10 << 20); f.seek(5 << 20); f.write(b"data"); f.seek(123); f.write(b"x")
with open(d + "tail", "wb") as f:
    f.write(b"abc"); f.truncate((3 << 20) + 5)
with open(d + "only", "wb") as f: f.truncate((1 << 20) + 7)
with open(d + "zeros", "wb") as f: f.write(bytes(70000))
with open(d + "blank", "wb") as f: f.truncate(8192)
with open(d + "late", "wb") as f: f.write(bytes(8192) + b"data behind zeros")
os.link(d + "f17", d + "sub/second"); os.link(d + "f17", d + "sub/deep/third")
open(d + "../elsewhere/far", "wb").write(b"far away")
os.symlink("../elsewhere", d + "linked")
os.chmod(d + "f4096", 0o640); os.utime(d + "f4097", (1e9, 11e8))
try: os.setxattr(d + "f4095", "user.note", b"kept")
except OSError: pass
END
}
look() {
    python3 - $1 <<'END'
import hashlib, os, sys
for top, dirs, files in sorted(os.walk(sys.argv[1], followlinks=True)):
    dirs.sort()
    if top.endswith("/.tidelock"): continue
    for name in sorted(files):
        path = os.path.join(top, name)
        s = os.stat(path)
        notes = [os.getxattr(path, a) for a in os.listxattr(path) if a.startswith("user.")]
        small = s.st_blocks * 512 < s.st_size // 2
        print(path[len(sys.argv[1]):], s.st_size, oct(s.st_mode), s.st_nlink, notes, small,
              hashlib.sha256(open(path, "rb").read()).hexdigest())
END
}
"#;

fn run(place: &Shell, line: &str) -> String {
    place.run(&format!("{PROLOGUE}{line}"))
}

/// What a crash leaves of a sealed file that had just got longer: zeros, without a header.
const BLANK: &str = "cp -p w/d/blank p; truncate -s 0 w/d/blank; truncate -s 12288 w/d/blank; \
                     touch -r p w/d/blank";
const ENCRYPT: &str = "tidelock encrypt --outside w/d --profile generic --no-recovery";

#[test]
fn files_of_every_kind_come_back_as_they_were() {
    let place = Shell::new();
    let all = run(
        &place,
        &format!(
            "mkdir h w; make w/d; look w/d > before; {ENCRYPT} --jobs 3 > out 2>&1 || cat out; \
         tidelock verify -D w/d | grep -o '[0-9]* problem.*'; \
         grep -c . before; \
         for f in f1 f4097 hole tail only zeros sub/second linked/far; do \
             tidelock cat -D w/d w/d/$f | sha256sum | cut -c1-64 > sum; \
             grep -q \"/$f .*$(cat sum)\" before || echo $f differs; \
         done; \
         stat -c '%h' w/d/f17; \
         {BLANK}; tidelock rekey --outside w/d > out 2>&1 || cat out; \
         tidelock verify -D w/d | grep -o '[0-9]* problem.*'; \
         tidelock status -D w/d 2> /dev/null | grep -c ': 0 files, 0 B'; \
         tidelock decrypt --outside w/d > out 2>&1 || cat out; \
         look w/d > after; cmp before after && ls -d w/d/.tidelock"
        ),
    );
    assert_eq!(
        all,
        "0 problems, 0 notes\n19\n3\n0 problems, 1 note\n1\n\
                     ls: cannot access 'w/d/.tidelock': No such file or directory\n[exit 2]\n"
    );
}

/// The writer comes after the last look at who has the file open, and goes before its rename.
#[test]
fn a_file_that_is_changed_before_its_rename_keeps_what_was_written() {
    let script = "mkdir -p h d; echo first > d/a; alone strace -f -qq -o /dev/null \
                  -e trace=fsync -e inject=fsync:delay_enter=1000000 \
                  tidelock encrypt d --profile generic --no-recovery --no-compare > out 2>&1 & \
                  until ls -A d | grep -q convert; do kill -0 $! || break; sleep 0.05; done; sleep 0.3; \
                  echo second >> d/a; wait $!; echo $?; cat d/a; grep -o 'was changed.*' out; \
                  ls -A d";
    let said = run(&Shell::new(), script);
    let expected = "3\nfirst\nsecond\nwas changed while it was converted\n.tidelock\na\n";
    assert_eq!(said, expected);
}

const LINKED: &str = r#"mkdir -p h d/pg_wal; echo text > d/pg_wal/1; cat > p.toml <<'END'
name = "mine"
programs = []
[[rule]]
glob = "pg_wal/**"
class = "log"
[[rule]]
glob = "**"
class = "bytes"
END
for n in $(seq 20); do ln -s pg_wal d/link$n; done
tidelock encrypt d --profile ./p.toml --no-recovery > out 2>&1 || cat out
tidelock inspect d/pg_wal/1 | grep '^class'"#;

#[test]
fn a_link_inside_changes_no_class_and_one_to_nowhere_stops_a_conversion_before_it_begins() {
    let place = Shell::new();
    assert_eq!(run(&place, LINKED), "class        log\n");
    let refused = run(
        &place,
        "sums() { cat d/pg_wal/1 d/.tidelock/keyring | sha256sum; }; sums > before; \
         ln -s /nowhere/at/all d/far; tidelock rekey d; echo $?; tidelock decrypt d; echo $?; \
         sums | cmp - before; rm d/far; tidelock rekey d > out 2>&1 || cat out; \
         tidelock inspect d/pg_wal/1 | grep '^class'",
    );
    let told = "d/far cannot be converted: it leads to /nowhere/at/all, which is not there";
    assert_eq!(refused.matches(told).count(), 2, "{refused}");
    assert_eq!(refused.matches("\n3\n").count(), 2, "{refused}");
    assert!(!refused.contains("differ") && refused.ends_with("class        log\n"), "{refused}");
}

/// The template `t` has the files before, and after `prepare`. `command` is killed at each of its
/// calls in turn; then `resume` ends it, and the files are made plain.
fn kill_everywhere(prepare: &str, command: &str, resume: &str, calls: &[&str]) -> u32 {
    let place = Shell::new();
    assert_eq!(run(&place, "mkdir h w; make w/d; look w/d > before"), "");
    assert_eq!(
        run(&place, &format!("{{ {prepare}; }} > out 2>&1 || cat out; mv w t; mv h th")),
        ""
    );
    let mut kills = 0;
    for call in calls {
        for number in 1.. {
            let at = format!("{command}, {call} number {number}");
            let killed = run(
                &place,
                &format!(
                    "rm -rf w h out; cp -a t w; cp -a th h; alone strace -qq -o /dev/null -e trace={call} \
                 -e inject={call}:signal=KILL:when={number} {command} --jobs 1 > out 2>&1"
                ),
            );
            let was_killed = killed.contains("[exit 137]") || killed.contains("[exit signal]");
            assert!(was_killed || killed.is_empty(), "{at}: {killed}{}", run(&place, "cat out"));
            let after = run(
                &place,
                &format!(
                    "half=$(tidelock status -D w/d 2> /dev/null | grep -c ^conversion); \
                 if [ \"$half\" = 1 ]; then \
                     tidelock exec -D w/d -- true > out 2>&1 && echo a program got keys; \
                     {resume} > out 2>&1 || cat out; \
                 fi; \
                 if [ -e w/d/.tidelock/keyring ]; then \
                     tidelock verify -D w/d > out 2>&1 || cat out; tidelock decrypt --outside w/d > out 2>&1 || cat out; \
                 fi; \
                 look w/d > after; diff before after"
                ),
            );
            assert_eq!(after, "", "{at}");
            if !was_killed {
                break;
            }
            kills += 1;
        }
    }
    kills
}

const SHORT: &[&str] = &["syncfs", "rename", "linkat", "unlink"];

#[test]
fn an_encryption_that_is_killed_goes_on() {
    let resume = "tidelock encrypt --outside w/d --resume";
    assert!(kill_everywhere("true", ENCRYPT, resume, SHORT) > 15);
}

#[test]
fn a_decryption_that_is_killed_goes_on() {
    let (command, resume) =
        ("tidelock decrypt --outside w/d", "tidelock decrypt --outside w/d --resume");
    assert!(kill_everywhere(&sealed(), command, resume, SHORT) > 15);
}

#[test]
fn an_encryption_that_is_killed_is_turned_round() {
    let resume = "tidelock decrypt --outside w/d --resume";
    assert!(kill_everywhere("true", ENCRYPT, resume, &["rename"]) > 10);
}

/// Also when that is killed in its turn, and goes on.
#[test]
fn a_rekeying_that_is_turned_round_keeps_the_keyring_of_sealed_backups() {
    let place = Shell::new();
    let killed = |command: &str| {
        let said = run(
            &place,
            &format!(
                "alone strace -qq -o /dev/null -e trace=rename \
                 -e inject=rename:signal=KILL:when=4 {command} --jobs 1 > out 2>&1"
            ),
        );
        assert!(said.contains("[exit 137]") || said.contains("[exit signal]"), "{command}: {said}");
    };
    let said = run(
        &place,
        &format!(
            "mkdir h w; make w/d; {ENCRYPT} > out 2>&1 || cat out; \
             echo a backup | tidelock seal -D w/d > sealed"
        ),
    );
    assert_eq!(said, "");
    killed("tidelock rekey --outside w/d");
    killed("tidelock decrypt --outside w/d --resume --keep-keyring $PWD/kept");
    let opens = "tidelock unseal --keyring kept < sealed";
    assert_eq!(run(&place, opens), "a backup\n");
    let told = run(
        &place,
        "tidelock decrypt --outside w/d --resume --keep-keyring $PWD/kept > out 2>&1 || cat out; \
         grep -c 'the keyring is kept in ' out; ls -d w/d/.tidelock 2> /dev/null | wc -l",
    );
    assert_eq!(told, "1\n0\n");
    assert_eq!(run(&place, opens), "a backup\n");
}

/// systemd gives MariaDB's server a capability, and so its open files are for root alone to see.
/// Here it is among other processes.
#[test]
fn a_server_that_cannot_be_seen_keeps_its_files_by_its_locks() {
    let place = Shell::new();
    if !place.run("unshare --pid --fork --mount-proc true").is_empty() {
        skip::because("processes of its own are not allowed");
        return;
    }
    let said = place.run(
        "mkdir -p data/mysql; for name in aria_log_control ibdata1 ib_logfile0; do \
         head -c 65536 /dev/urandom > data/$name; done; sha256sum data/i* data/a* > before; \
         mkfifo ready; python3 -c 'import fcntl, time\n\
         file = open(\"data/ibdata1\", \"r+b\"); fcntl.lockf(file, fcntl.LOCK_EX)\n\
         open(\"ready\", \"w\").close(); time.sleep(600)' & server=$!; : < ready; \
         alone tidelock encrypt data --no-recovery; echo \"ended $?\"; \
         sha256sum -c --quiet before; kill $server; \
         alone tidelock encrypt data --no-recovery > said || cat said",
    );
    assert!(said.contains("a server has ") && said.contains("/data/ibdata1 locked"), "{said}");
    assert!(said.contains("ended 3\n") && !said.contains("FAILED"), "{said}");
    assert_eq!(place.run("grep -qa TDLK data/ibdata1 || echo plain"), "");
}

/// Runs as root, among mounts of its own: `w/d` and `far` are file systems of the user `daemon`,
/// each with its `lost+found`, and `w/d/space` leads to `far`. What root configures for others goes
/// to a copy of /etc.
const OF_DAEMON: &str = r#"set -e
PATH=$PATH:/usr/sbin:/sbin
chmod 755 .; mkdir -p h w/d far etc log; cp -a /etc/. etc
mount --bind etc /etc; mount --bind log /var/log
for place in w/d far; do
    truncate -s 256M image; mkfs.ext4 -q image; mount -o loop image $place; rm image
    mkdir $place/sub; echo "text in $place" > $place/sub/file; echo more > $place/file
    chown daemon: $place $place/sub $place/*/file $place/file
done
ln -s $PWD/far w/d/space
set +e
encrypt() {
    tidelock encrypt --outside w/d --profile generic --no-recovery --provider file:$PWD/key "$@"
}
texts() { cat w/d/sub/file w/d/file far/sub/file far/file; }
"#;

fn of_daemon(line: &str) -> Option<String> {
    if skip::unless_root("a directory of somebody else") {
        return None;
    }
    let run = |line: &str| {
        let script = format!("cat > script <<'SCRIPT'\n{OF_DAEMON}{line}\nSCRIPT\n");
        run(&Shell::new(), &format!("{script} unshare -m --propagation private sh script"))
    };
    let said = run("");
    if !said.is_empty() {
        skip::because(format_args!("no file system can be mounted here: {said}"));
        return None;
    }
    Some(run(line))
}

/// Each direction, and one that is killed and goes on.
#[test]
fn lost_and_found_of_a_file_system_keeps_no_conversion_from_its_end() {
    let said = of_daemon(
        r#"try() { "$@" > out 2>&1 || { echo "$@"; cat out; }; }
        texts > before; stat -c '%U %a' w/d/lost+found
        try encrypt; grep -la text w/d/sub/file far/sub/file
        try tidelock rekey --outside w/d; try tidelock verify -D w/d; try tidelock decrypt --outside w/d
        texts | cmp - before
        strace -qq -o /dev/null -e trace=rename -e inject=rename:signal=KILL:when=3 \
            tidelock encrypt --outside w/d --profile generic --no-recovery --provider file:$PWD/key \
            --jobs 1 > out 2>&1
        tidelock status -D w/d 2> /dev/null | grep -c ^conversion
        try tidelock encrypt --outside w/d --resume; try tidelock verify -D w/d
        try tidelock decrypt --outside w/d; texts | cmp - before"#,
    );
    let Some(said) = said else { return };
    assert_eq!(said, "root 700\n1\n");
}

#[test]
fn what_a_repair_of_the_file_system_found_is_not_looked_at_and_that_is_told() {
    let said = of_daemon(
        r#"encrypt > out 2>&1 || cat out; tidelock verify -D w/d | grep -c lost+found
        echo text > w/d/lost+found/file
        tidelock verify -D w/d | sed -n 's/.*\(lost+found: note: not looked at\).*/\1/p'
        tidelock report -D w/d | grep -o 'Every file outside of lost+found was read'"#,
    );
    let Some(said) = said else { return };
    let told = "lost+found: note: not looked at\nEvery file outside of lost+found was read\n";
    assert_eq!(said, format!("0\n{told}"));
}

#[test]
fn a_file_that_the_owner_cannot_replace_is_refused_before_anything_is_changed() {
    let said = of_daemon(
        r#"snapshot() {
            find w/d far etc/tidelock h key -printf '%p %u %g %m %i %C@\n' 2> /dev/null; texts
            cat w/d/.tidelock/keyring 2> /dev/null
        }
        check() {
            snapshot > before; "$@" > out 2>&1; echo "$?: $(sed -n 's/^error: //p' out)"
            grep -c '^hint:  `chown daemon: ' out; snapshot | cmp - before
        }
        each() {
            echo "[$1 $2]"; file=far/sub/file
            chown root: $file; chmod 600 $file; check "$@"; chmod 644 $file; check "$@"
            chown daemon:nogroup $file; check "$@"
            chown daemon: $file; chmod 0 $file; check "$@"
            chmod 644 $file; chown root: w/d/sub; check "$@"; chmod 700 w/d/sub; check "$@"
            chmod 755 w/d/sub; chown daemon: w/d/sub
        }
        texts > plain
        each encrypt
        # What stays as it is may be anybody's.
        echo plain > w/d/PLAIN; : > w/d/sub/empty
        encrypt --plain PLAIN > out 2>&1 || cat out
        each tidelock rekey --outside w/d; each tidelock decrypt --outside w/d
        # Decryption leaves what somebody put there plain.
        mkdir w/d/roots; echo "of root" > w/d/roots/note
        tidelock decrypt --outside w/d > out 2>&1 || cat out; texts | cmp - plain
        stat -c %U w/d/roots/note"#,
    );
    let Some(said) = said else { return };
    let alone = "; files are converted with the rights of daemon alone\n1\n";
    let file = "3: [HOME]/w/d/space/sub/file";
    let sub = "3: [HOME]/w/d/sub";
    let each = [
        format!("{file} belongs to root, not to daemon{alone}").repeat(2),
        format!("{file} has the group 65534, in which daemon is not{alone}"),
        format!("{file} cannot be read by daemon{alone}"),
        format!("{sub} cannot be written by daemon{alone}"),
        format!("{sub} cannot be read by daemon{alone}"),
    ]
    .concat();
    let all = ["[encrypt ]", "[tidelock rekey]", "[tidelock decrypt]"];
    let all = all.map(|command| format!("{command}\n{each}")).concat();
    assert_eq!(said, all + "root\n");
}

#[test]
fn what_the_file_system_keeps_in_its_place_is_refused_before_anything_is_changed() {
    let said = of_daemon(
        r#"try() { "$@" > out 2>&1; echo "$?: $(sed -n 's/^error: //p' out)"; }
        chattr +i w/d/file; try encrypt; chattr -i w/d/file
        chattr +a far/sub; try encrypt; chattr -a far/sub
        mount --bind w/d/file w/d/sub/file; try encrypt; umount w/d/sub/file
        ls -d w/d/.tidelock 2> /dev/null; encrypt > out 2>&1 || cat out
        chattr +i w/d/file; try tidelock decrypt --outside w/d; chattr -i w/d/file
        tidelock decrypt --outside w/d > out 2>&1 || cat out"#,
    );
    let Some(said) = said else { return };
    let rest = ": nothing can take the place of a file there\n";
    assert_eq!(
        said,
        format!(
            "3: [HOME]/w/d/file is immutable{rest}\
             3: [HOME]/w/d/space/sub can only be appended to{rest}\
             3: [HOME]/w/d/sub/file is a mount point{rest}\
             3: [HOME]/w/d/file is immutable{rest}"
        )
    );
}

/// New files get both from their folder.
#[test]
fn group_and_access_list_stay_those_of_the_file() {
    let said = of_daemon(
        r#"chown daemon:nogroup w/d/sub; chmod 2755 w/d/sub; chmod 640 w/d/sub/file
        stat -c '%U %G %a' w/d/sub/file
        python3 - w/d/sub <<'END'
import os, struct, sys
# Version 2; owner, user 2, group, mask, others.
acl = struct.pack("<I", 2)
for tag, bits, who in [(1, 7, -1), (2, 7, 2), (4, 5, -1), (16, 7, -1), (32, 5, -1)]:
    acl += struct.pack("<HHi", tag, bits, who)
os.setxattr(sys.argv[1], "system.posix_acl_default", acl)
END
        encrypt > out 2>&1 || cat out
        stat -c '%U %G %a' w/d/sub/file
        python3 -c 'import os; print(os.listxattr("w/d/sub/file"))'"#,
    );
    let Some(said) = said else { return };
    assert_eq!(said, "daemon daemon 640\ndaemon daemon 640\n[]\n");
}

/// At every call of all kinds.
fn killed_at_any_call(prepare: &str, command: &str, resume: &str) {
    let kills = kill_everywhere(prepare, command, resume, CALLS);
    println!("{command}, then {resume}: killed at {kills} calls");
    assert!(kills > 200);
}

fn sealed() -> String {
    format!("{ENCRYPT}; {BLANK}")
}

#[test]
#[ignore = "long: make test-full"]
fn an_encryption_killed_at_any_call_goes_on() {
    killed_at_any_call("true", ENCRYPT, "tidelock encrypt --outside w/d --resume");
}

#[test]
#[ignore = "long: make test-full"]
fn a_decryption_killed_at_any_call_goes_on() {
    killed_at_any_call(
        &sealed(),
        "tidelock decrypt --outside w/d",
        "tidelock decrypt --outside w/d --resume",
    );
}

#[test]
#[ignore = "long: make test-full"]
fn a_rekeying_killed_at_any_call_goes_on() {
    killed_at_any_call(
        &sealed(),
        "tidelock rekey --outside w/d",
        "tidelock rekey --outside w/d --resume",
    );
}

#[test]
#[ignore = "long: make test-full"]
fn a_decryption_killed_at_any_call_is_turned_round() {
    killed_at_any_call(
        &sealed(),
        "tidelock decrypt --outside w/d",
        "tidelock encrypt --outside w/d --resume",
    );
}

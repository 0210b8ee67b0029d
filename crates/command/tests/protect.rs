//! What `tidelock protect` and `unprotect` do around a conversion: which server they stop and
//! start, and what a call that was cut off has left.
//!
//! Nothing is PostgreSQL or systemd here: the server is `sleep` by its name, and scripts answer as
//! its programs and `systemctl` do. Needs root.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "home/place.rs"]
mod place;

use place::Shell;
use tidelock_servers::skip;

/// Lines of shell: in `pg` the directory of a server, which `server` starts and `lives` looks for;
/// `calls` has what its programs and `systemctl` were told. `record STAGE OPTION` leaves what a
/// call has begun.
const PLACE: &str = r#"
umask 022
chmod 755 .
mount -t tmpfs none /run && mkdir -p /run/systemd/system || exit 9
mkdir etc && cp -a /etc/. etc/ && rm -rf etc/tidelock && mount --bind etc /etc || exit 9
mkdir -p pg/global pg/base/1 pgbin bin
echo 15 > pg/PG_VERSION
echo rows > pg/base/1/1259
python3 -c 'import struct, sys
control = bytearray(8192)
struct.pack_into("<I", control, 8, 1300)
struct.pack_into("<I", control, 16, 1)
struct.pack_into("<d", control, 208, 1234567.0)
open("pg/global/pg_control", "wb").write(control)'
touch calls; chmod 666 calls
cp /bin/sleep pgbin/postgres
for name in pg_basebackup pg_controldata; do printf '#!/bin/sh\n' > pgbin/$name; done
cat > pgbin/psql << 'FILE'
#!/bin/sh
while read -r line; do case $line in '\echo'*) printf '\035\n' ;; esac; done
FILE
cat > pgbin/pg_ctl << 'FILE'
#!/bin/sh
home=$(dirname "$(dirname "$0")")
echo "pg_ctl $*" >> "$home/calls"
case $* in
*stop*) kill "$(head -n 1 "$home/pg/postmaster.pid")"; rm "$home/pg/postmaster.pid" ;;
*start*) "$home/begin" ;;
esac
FILE
cat > begin << 'FILE'
#!/bin/sh
cd "$(dirname "$0")/pg" || exit 1
../pgbin/postgres 60 > /dev/null 2>&1 &
printf '%s\n%s\n0\n5432\n/tmp\n\n\nready\n' $! "$PWD" > postmaster.pid
FILE
cat > bin/systemctl << FILE
#!/bin/sh
echo "systemctl \$*" >> $PWD/calls
case \$* in *MainPID*) echo 1 ;; *is-active*) exit 1 ;; esac
FILE
chmod 755 begin bin/* pgbin/*
chown -R nobody:nogroup pg
PATH=$PWD/bin:$PATH
as_nobody() { setpriv --reuid=nobody --regid=nogroup --clear-groups "$@"; }
server() { as_nobody "$PWD/begin"; }
id() { head -n 1 pg/postmaster.pid; }
lives() { [ "$(cat "/proc/$(id)/comm")" = postgres ] && echo it lives; }
trap '[ ! -e pg/postmaster.pid ] || kill $(id) 2> /dev/null' EXIT
keys="--no-recovery --no-keyring-copy --provider file:$PWD/key"
protect() { tidelock protect "$@" --bindir "$PWD/pgbin"; }
record() {
    printf 'goal = "protect"\nstage = "%s"\nwas_running = false\noptions = ["%s"]\n' "$1" "$2" \
        > pg.tidelock-protection
    chmod 600 pg.tidelock-protection
}
"#;

/// Runs lines of shell behind [`PLACE`]; nothing where that cannot be.
#[track_caller]
fn run(lines: &str) -> Option<String> {
    if skip::unless_root("a mount namespace") {
        return None;
    }
    let place = Shell::new();
    let made = place.run("mkdir a b; unshare -m mount --bind a b");
    if !made.is_empty() {
        skip::because(format_args!("no mount namespace can be made here: {made}"));
        return None;
    }
    let script = format!("cat > script << 'END'\n{PLACE}{lines}\nEND\n");
    Some(place.run(&format!("{script}unshare -m sh script")))
}

/// As a Patroni in pause does.
#[test]
fn a_unit_whose_stop_leaves_the_server_alive_is_started_again() {
    let lines = r#"
server
echo 0::/system.slice/boss.service > group
mount --bind group "/proc/$(id)/cgroup"
secret=$(printf 'ab%.0s' $(seq 32))
protect boss -D pg --yes --no-recovery --no-keyring-copy --provider "command:echo $secret"
grep 'systemctl st' calls
lives
ls pg.tidelock-protection 2> /dev/null || echo nothing has begun
"#;
    let Some(said) = run(lines) else { return };
    assert!(said.contains(") goes on without boss, which was stopped"), "{said}");
    assert!(said.contains("plain         nothing is sealed"), "{said}");
    let end = "systemctl stop boss\nsystemctl start boss\nsystemctl start boss\nit lives\nnothing \
               has begun\n";
    assert!(said.ends_with(end), "{said}");
}

#[test]
fn a_server_that_would_end_with_the_service_of_this_command_is_not_stopped() {
    let lines = r#"
server
echo 0::/system.slice/run-u17.service > group
sh -c 'mount --bind group /proc/$$/cgroup; exec tidelock protect -D pg --yes "$@"' sh \
    --bindir "$PWD/pgbin" $keys
lives
echo 0::/system.slice/ssh.service > group
sh -c 'mount --bind group /proc/$$/cgroup; exec tidelock protect -D pg "$@"' sh \
    --bindir "$PWD/pgbin" $keys < /dev/null
"#;
    let Some(said) = run(lines) else { return };
    let first = "error: this command runs in run-u17.service, and the server on [HOME]/pg would be \
                 started there";
    assert!(said.starts_with(first) && said.contains("it lives\n"), "{said}");
    assert!(said.contains("nobody is there to agree to this plan"), "{said}");
}

#[test]
fn a_server_that_was_started_while_a_person_read_the_plan_is_not_stopped() {
    let lines = r#"
cat > person << 'FILE'
import os, pty, subprocess, sys
child, terminal = pty.fork()
if child == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
shown = b''
while True:
    try:
        some = os.read(terminal, 4096)
    except OSError:
        break
    if not some:
        break
    shown += some
    if shown.endswith(b'[y/N] '):
        subprocess.run(['setpriv', '--reuid=nobody', '--regid=nogroup', '--clear-groups', './begin'])
        os.write(terminal, b'y\r')
print(shown.decode().replace('\r', ''), end='')
FILE
NO_COLOR=1 python3 person tidelock protect -D pg --bindir "$PWD/pgbin" $keys
lives
ls -d pg/.tidelock pg.tidelock-protection 2> /dev/null || echo nothing has begun
"#;
    let Some(said) = run(lines) else { return };
    assert!(said.contains(") was started meanwhile\n"), "{said}");
    assert!(said.ends_with("it lives\nnothing has begun\n"), "{said}");
}

#[test]
fn a_record_of_what_was_made_plain_since_protects_nothing() {
    let lines = r#"
record converted 60
protect -D pg $keys < /dev/null
echo "code $?"
protect -D pg $keys --yes > said 2>&1 || cat said
tail -n 2 said | grep -c '^protected '
head -c 5 pg/base/1/1259 | tail -c 4
"#;
    let Some(said) = run(lines) else { return };
    assert!(said.contains("nobody is there to agree to this plan"), "{said}");
    assert!(said.ends_with("code 3\n1\nTDLK\n"), "{said}");
}

#[test]
fn a_record_of_a_call_that_has_sealed_nothing_stops_no_server_unasked() {
    let lines = r#"
record converting 60
server
protect -D pg $keys < /dev/null
lives
grep stop calls || echo never stopped
"#;
    let Some(said) = run(lines) else { return };
    assert!(said.contains("nobody is there to agree to this plan"), "{said}");
    assert!(said.ends_with("it lives\nnever stopped\n"), "{said}");
}

#[test]
fn a_call_that_goes_on_says_the_same_and_may_name_another_place_for_the_copy() {
    let lines = r#"
tidelock encrypt pg --no-recovery --provider "file:$PWD/key" > said 2>&1 || cat said
typed() {
    record converted 60
    printf 'keyring_copy = "%s/gone/copy"\n[typed]\nkeys = ["--provider", "file:%s/key", %s]\n' \
        "$PWD" "$PWD" "$1" >> pg.tidelock-protection
}
typed '"--no-recovery", "--plain", "base/1"'
protect -D pg $keys
typed '"--no-recovery"'
protect -D pg $keys mydb
protect -D pg --no-recovery --provider "file:$PWD/key" > said 2>&1
echo "code $?"
protect -D pg --no-recovery --provider "file:$PWD/key" --keyring-copy copy > said 2>&1 || cat said
grep '^protected ' said
ls copy
ls pg.tidelock-protection 2> /dev/null || echo done
"#;
    let Some(said) = run(lines) else { return };
    let words = "error: `tidelock protect` of [HOME]/pg has begun with other words: -D [HOME]/pg \
                 --provider file:[HOME]/key --no-recovery";
    assert!(said.starts_with(&format!("{words} --plain base/1\nhint: ")), "{said}");
    assert_eq!(said.matches(words).count(), 2, "{said}");
    let end = "code 6\nprotected     [HOME]/pg\ncopy\ndone\n";
    assert!(said.ends_with(end), "{said}");
}

/// No configuration keeps the token: the server would be sealed, and would not start.
#[test]
fn a_server_is_not_stopped_for_a_provider_that_opens_only_in_this_shell() {
    let lines = r#"
server
export VAULT_ADDR=http://127.0.0.1:1 VAULT_TOKEN=hvs.tide
protect -D pg --yes --no-recovery --no-keyring-copy --provider vault:transit/pg
lives
ls pg/.tidelock pg.tidelock-protection 2> /dev/null; cat calls
"#;
    let Some(said) = run(lines) else { return };
    assert!(said.starts_with("error: this provider opens with VAULT_TOKEN"), "{said}");
    assert!(said.ends_with("it lives\n"), "{said}");
}

#[test]
fn a_server_that_was_started_since_is_started_again_as_it_was_then() {
    let lines = r#"
tidelock encrypt pg --no-recovery --provider "file:$PWD/key" > said 2>&1 || cat said
record converting -c
server
tidelock unprotect -D pg --yes --bindir "$PWD/pgbin" > said 2>&1 || cat said
grep -o -- "-o .*" calls
cat pg/base/1/1259
lives
"#;
    let Some(said) = run(lines) else { return };
    assert_eq!(said, "-o '60' start\nrows\nit lives\n");
}

/// A file gives its text again to whoever opens the descriptor: superusers of a server can.
#[test]
fn a_passphrase_that_unprotect_got_by_a_descriptor_is_not_the_servers() {
    let lines = r#"
echo 'seldom marble quiet vowel' > phrase
tidelock encrypt pg --no-recovery --provider passphrase --passphrase-fd 3 3< phrase > said 2>&1 ||
    cat said
record converting 60
server
tidelock unprotect -D pg --yes --bindir "$PWD/pgbin" --passphrase-fd 3 3< phrase > said 2>&1 ||
    cat said
cat pg/base/1/1259
ls -l /proc/$(id)/fd | grep phrase
lives
"#;
    let Some(said) = run(lines) else { return };
    assert_eq!(said, "rows\nit lives\n");
}

#[test]
fn a_sealed_server_that_root_starts_has_no_credentials_of_roots() {
    let lines = r#"
server
export VAULT_TOKEN=of-root AWS_SECRET_ACCESS_KEY=of-root KEPT=it
protect -D pg --yes $keys > said 2>&1
head -c 5 pg/base/1/1259 | tail -c 4
tr '\0' '\n' < /proc/$(id)/environ | grep -E 'of-root|^KEPT=|^TIDELOCK_AGENT=' | cut -c 1-14 | sort
lives
"#;
    let Some(said) = run(lines) else { return };
    assert_eq!(said, "TDLKKEPT=it\nTIDELOCK_AGENT\nit lives\n");
}

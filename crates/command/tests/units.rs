//! A server that a unit of systemd starts, and what is refused of it while nothing is changed yet.
//!
//! Nothing is systemd here: a file is mounted on the control group of a stand-in for the server,
//! and scripts answer as `systemctl` does. Needs root.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "home/mounted.rs"]
mod mounted;
#[path = "home/place.rs"]
mod place;

use mounted::mounted;
use place::Shell;
use tidelock_servers::skip;

/// HOME with a directory that looks like MariaDB's, which is another user's.
#[track_caller]
fn machine() -> Option<Shell> {
    mounted(
        "chmod 755 .; mkdir -p ours/mysql bin; cp /bin/sleep mariadbd; touch ours/ibdata1 \
         ours/aria_log_control; chown -R nobody:nogroup ours; unshare -m mount --bind bin ours",
    )
}

/// What `protect` asks for, behind the server.
const KEYS: &str = "--yes --no-recovery --no-keyring-copy --provider file:$PWD/key";

/// In a namespace where systemd seems to run, with the scripts of `bin`.
fn with_systemd(place: &Shell, line: &str) -> String {
    place.run(&format!(
        "unshare -m sh -c 'mount -t tmpfs none /run && mkdir -p /run/systemd/system || exit 9; \
         PATH=$PWD/bin:$PATH; chmod +x bin/*; {line}'"
    ))
}

/// What `protect` of these words says of a stand-in for a server that runs in this control group.
fn protect(place: &Shell, group: &str, words: &str) -> String {
    place.run(&format!(
        "echo 0::{group} > group; (cd ours; exec ../mariadbd 60) > /dev/null 2>&1 & ours=$!; \
         trap 'kill $ours' EXIT; \
         until [ \"$(basename \"$(readlink /proc/$ours/exe)\")\" = mariadbd ]; do sleep 0.05; \
         done; export ours; \
         unshare -m sh -c 'mount --bind group /proc/$ours/cgroup; PATH=$PWD/bin:$PATH; \
         tidelock protect {words} {KEYS}'"
    ))
}

/// systemd says that the main process of each unit is the first one of all.
fn with_supervisors(place: &Shell) {
    place.run("printf '#!/bin/sh\necho 1\n' > bin/systemctl; chmod +x bin/systemctl");
}

#[test]
fn the_server_of_a_unit_is_not_taken_by_its_directory_alone() {
    let Some(place) = machine() else { return };
    let protect = |group: &str| protect(&place, group, "-D ours");
    assert_eq!(
        protect("/system.slice/mydb.service"),
        "error: mydb.service runs the server on [HOME]/ours, and would start it as it was before\n\
         hint:  name it too, as root: `tidelock protect mydb -D [HOME]/ours`, or `tidelock \
         unprotect mydb -D [HOME]/ours`\n[exit 3]\n"
    );
    let own = protect("/user.slice/user-0.slice/session-1.scope");
    // It gets as far as asking the stand-in for its version.
    assert!(!own.contains("mydb") && own.contains("--no-defaults"), "{own}");
    // What cron has started is no server of cron's unit.
    with_supervisors(&place);
    for group in ["cron.service", "system-getty.slice/getty@tty1.service", "ssh.service"] {
        let said = protect(&format!("/system.slice/{group}"));
        assert!(!said.contains(".service") && said.contains("--no-defaults"), "{said}");
    }
}

/// Such as Patroni, which would start it again without the library.
#[test]
fn the_server_of_a_supervisor_is_not_taken_for_one_that_was_started_by_hand() {
    let Some(place) = machine() else { return };
    with_supervisors(&place);
    let protect = |words: &str| protect(&place, "/data.slice/boss.service", words);
    assert_eq!(
        protect("-D ours"),
        "error: boss.service runs the server on [HOME]/ours, and would start it as it was before\n\
         hint:  its process 1 starts the server: `systemctl stop boss`, `tidelock encrypt \
         [HOME]/ours`, `tidelock service install boss -D [HOME]/ours`, `systemctl daemon-reload`, \
         `systemctl start boss`; or back: `tidelock decrypt [HOME]/ours`, `tidelock service remove \
         boss`\n[exit 3]\n"
    );
    assert_eq!(
        protect("mydb -D ours"),
        "error: boss.service runs the server on [HOME]/ours, and not mydb\n\
         hint:  name that one: `tidelock protect boss -D [HOME]/ours`; or stop it for good, then \
         the same command\n[exit 3]\n"
    );
    let named = protect("boss -D ours");
    assert!(!named.contains("runs the server"), "{named}");
    place.run("touch ours/patroni.dynamic.json");
    for words in ["-D ours", "mydb -D ours"] {
        let said = protect(words);
        assert!(said.starts_with("error: Patroni has the server on [HOME]/ours, by"), "{said}");
        assert!(said.contains("`tidelock protect boss -D [HOME]/ours`, node by node"), "{said}");
    }
    let named = protect("boss -D ours");
    assert!(!named.contains("Patroni"), "{named}");
}

/// Nothing runs, so only what a unit starts shows whose the directory is.
#[test]
fn a_stopped_server_of_patroni_is_protected_by_the_unit_of_patroni_alone() {
    let Some(place) = machine() else { return };
    place.run(
        "touch ours/patroni.dynamic.json; \
         printf '#!/bin/sh\\n[ $2 = boss ] && echo /usr/bin/patroni\\n' > bin/systemctl",
    );
    let protect = |words: &str| with_systemd(&place, &format!("tidelock protect {words} {KEYS}"));
    for words in ["-D ours", "mydb -D ours"] {
        let said = protect(words);
        assert!(said.starts_with("error: Patroni has the server on"), "{said}");
    }
    let named = protect("boss -D ours");
    assert!(!named.contains("Patroni"), "{named}");
}

/// Its program and options are those of its own root.
#[test]
fn the_server_of_a_container_is_not_stopped_from_outside() {
    let Some(place) = machine() else { return };
    let said = place.run(&format!(
        "mkdir -p root/usr root$PWD; for it in bin lib lib64; do ln -s usr/$it root/$it; done; \
         unshare -m sh -c 'mount --rbind /usr root/usr && mount --bind $PWD root$PWD && \
         exec /usr/sbin/chroot root sh -c \"cd $PWD/ours && exec ../mariadbd 60\"' > /dev/null 2>&1 & \
         ours=$!; trap 'kill $ours' EXIT; \
         for try in $(seq 200); do \
         [ \"$(basename \"$(readlink /proc/$ours/exe)\")\" = mariadbd ] && break; sleep 0.05; \
         done; tidelock protect -D ours {KEYS}"
    ));
    assert!(said.contains("runs in a container or under another root"), "{said}");
}

#[test]
fn an_active_socket_is_refused_before_the_server_stops() {
    let Some(place) = machine() else { return };
    // Each unit's own option names a directory.
    let protect = |socket: &str, unit: &str, dir: &str| {
        place.run(&format!(
            "chmod 755 bin; \
             printf '#!/bin/sh\\ncat %s/bin/shown\\n' \"$PWD\" > bin/systemctl; \
             printf '#!/bin/sh\\n' > bin/my_print_defaults; \
             printf 'Id={socket}\\nActiveState=active\\nTriggers={unit}.service\\n' > bin/shown; \
             echo \"ExecStart={{ path=$PWD/bin/mariadbd ; argv[]=$PWD/bin/mariadbd \
             --datadir=$PWD/{dir} ; ignore_errors=no ; }}\" >> bin/shown"
        ));
        with_systemd(&place, &format!("tidelock protect -D ours {KEYS}"))
    };
    let said = protect("mariadb.socket", "mariadb", "ours");
    assert!(said.starts_with("error: mariadb.socket is active"), "{said}");
    assert!(said.contains("`tidelock protect mariadb`"), "{said}");
    let said = protect("mariadb-extra@b.socket", "mariadb@b", "ours");
    assert!(said.starts_with("error: mariadb-extra@b.socket is active"), "{said}");
    assert!(said.contains("`tidelock protect mariadb@b` and `unprotect mariadb@b` with"), "{said}");
    let said = protect("mine.socket", "mydb", "theirs");
    assert!(!said.contains("is active"), "{said}");
}

/// The options of the machine's own server say nothing of it.
#[test]
fn what_a_unit_starts_is_judged_and_not_the_server_of_the_package() {
    let Some(place) = machine() else { return };
    if !place.run("test -x /usr/sbin/mariadbd").is_empty() {
        skip::missing("mariadb-server");
        return;
    }
    let protect = |options: &str, tmpdir: &str| {
        place.run(&format!(
            "printf \"[mysqld]\\n{options}\\n\" > my2.cnf; \
             printf '#!/bin/sh\\n[ $1 = show ] && cat %s/bin/shown\\n' \"$PWD\" \
             > bin/systemctl; \
             echo \"ExecStart={{ path=/usr/sbin/mariadbd ; argv[]=/usr/sbin/mariadbd \
             --defaults-file=$PWD/my2.cnf \\$MORE ; ignore_errors=no ; }}\" > bin/shown; \
             echo Environment=MORE=--tmpdir={tmpdir} >> bin/shown"
        ));
        with_systemd(&place, &format!("tidelock protect mydb -D ours {KEYS}"))
    };
    let said = protect("datadir=$PWD/ours\\ninnodb_undo_directory=/srv/undo", "ibtmp");
    assert!(said.contains("innodb_undo_directory is /srv/undo"), "{said}");
    let said = protect("datadir=$PWD/ours", "/srv/tmp");
    assert!(said.contains("tmpdir is /srv/tmp"), "{said}");
    let said = protect("datadir=/srv/other", "ibtmp");
    assert!(said.contains("mydb starts a server on /srv/other, which is not below"), "{said}");
    place.run("sed -i 's,=/usr/sbin/mariadbd,=/x/start-it,g' bin/shown");
    let protect = format!("tidelock protect mydb -D ours {KEYS}");
    let said = with_systemd(&place, &protect);
    assert!(said.contains("mydb starts `/x/start-it --defaults-file"), "{said}");
}

/// Lines of shell: a unit whose directory has an agent, and in `newer` the keyring as a change made
/// it of which that agent was not told.
const UNLOCKED: &str = r#"
mount -t tmpfs none /run || exit 9
tidelock init data --no-recovery > said 2>&1 || cat said
cp -a data other && tidelock key new-data-key -D other > said 2>&1 || cat said
cp other/.tidelock/keyring newer
mkdir -p image/etc/tidelock/installed
printf 'directory = "%s/data"\nsocket = "/run/tidelock/0/unit-app.sock"\nwritten = []\n' \
    "$(pwd -P)" > image/etc/tidelock/installed/app.toml
unlock() { tidelock service unlock app --root image; }
reloads() { tidelock audit show -D data | grep -c '"event":"reload"'; }
unlock
"#;

/// Runs a line behind [`UNLOCKED`].
fn unlocked(line: &str) -> Option<String> {
    machine()?;
    let script = format!("cat > script << 'END'\n{UNLOCKED}{line}\nEND\n");
    Some(Shell::new().run(&format!("{script}chmod 755 .; unshare -m sh script")))
}

#[test]
fn an_agent_that_holds_an_older_keyring_is_told_before_the_server_starts() {
    let line = "reloads; cp newer data/.tidelock/keyring; unlock; reloads; unlock; reloads";
    let Some(said) = unlocked(line) else { return };
    assert_eq!(said, "0\n1\n1\n");
}

#[test]
fn an_agent_that_is_alive_does_not_hide_a_damaged_keyring() {
    let line = "size=$(stat -c %s data/.tidelock/keyring); \
                printf x | dd of=data/.tidelock/keyring bs=1 seek=$((size - 5)) conv=notrunc \
                status=none; unlock > said 2>&1 || echo refused";
    let Some(said) = unlocked(line) else { return };
    assert_eq!(said, "refused\n");
}

/// Runs lines of shell in a mount namespace where /run is empty, and /etc a copy without Tidelock.
fn with_own_etc(place: &Shell, lines: &str) -> String {
    place.run(&format!(
        "cat > script << 'END'\n\
         umask 022\n\
         mount -t tmpfs none /run || exit 9\n\
         [ -d etc ] || {{ mkdir etc && cp -a /etc/. etc/ && rm -rf etc/tidelock; }} || exit 9\n\
         mount --bind etc /etc && mkdir -p /etc/tidelock/installed || exit 9\n\
         installed() {{ # a unit, and its directory\n\
         {{ printf 'directory = \"%s\"\\nwritten = []\\n' \"$(pwd -P)/$2\"\n\
         printf 'socket = \"/run/tidelock/0/unit-%s.sock\"\\n' $1\n\
         }} > /etc/tidelock/installed/$1.toml\n\
         }}\n\
         {lines}\n\
         END\n\
         chmod 755 .; unshare -m sh script"
    ))
}

/// The directory alone says nothing of what systemd starts later.
#[test]
fn a_stopped_server_is_not_made_plain_while_another_unit_unlocks_its_directory() {
    let Some(place) = machine() else { return };
    let unprotect = |unit: &str| {
        let line = format!("installed mydb ours; tidelock unprotect {unit} -D ours --yes");
        with_own_etc(&place, &line)
    };
    let refused = "error: mydb unlocks [HOME]/ours before it starts, and would not start on plain \
                   files\n\
                   hint:  name it too, as root: `tidelock unprotect mydb -D [HOME]/ours`; if all \
                   is plain or the unit is gone, `tidelock service remove mydb`\n[exit 3]\n";
    assert_eq!(unprotect(""), refused);
    assert_eq!(unprotect("other"), refused);
    let named = unprotect("mydb.service");
    assert!(named.contains("[HOME]/ours is not a protected directory"), "{named}");
}

/// Lines of shell: a unit on a directory of a user who has a copy of another's keyring. Then who
/// may open it: root for that user, root by its own word, root for the user whose keyring it is.
const COPIED: &str = r#"
tidelock init --owner nobody --profile generic --no-recovery theirs > said 2>&1 || cat said
mkdir -p copy image/etc/tidelock/installed; cp -a theirs/.tidelock copy/
chown -R 54321:54321 copy; installed app copy
sed s,tidelock/0/,tidelock/54321/, /etc/tidelock/installed/app.toml \
    > image/etc/tidelock/installed/app.toml
tidelock service unlock app --root image; echo "code $?"
show() { tidelock profile show -D copy "$@" > said 2>&1; echo "code $?"; }
show; show --provider file:/etc/tidelock/keys/theirs.key
chown -R nobody: copy; show
"#;

/// The id of a keyring is for the owner of its directory to choose, and so would be what root opens
/// by it.
#[test]
fn root_opens_a_keyring_for_the_user_for_whom_it_is_configured_alone() {
    let Some(place) = machine() else { return };
    let said = with_own_etc(&place, COPIED);
    let refused = "error: /etc/tidelock/keyrings/[ID].toml is for [HOME]/theirs, and not for the \
                   owner of [HOME]/copy\n\
                   hint:  set directory = \"[HOME]/copy\" in /etc/tidelock/keyrings/[ID].toml if ";
    assert!(said.starts_with(refused), "{said}");
    assert!(said.ends_with("code 3\ncode 3\ncode 0\ncode 0\n"), "{said}");
}

/// Lines of shell: a unit of MariaDB, whose option files say what `options` has.
const MARIADB: &str = r#"
tidelock init data --profile mariadb --no-recovery > said 2>&1 || cat said
mkdir -p data/mysql bin; touch data/aria_log_control; installed app data
server=$PWD/bin/mariadbd
echo "ExecStart={ path=$server ; argv[]=$server ; ignore_errors=no ; }" > bin/shown
printf '#!/bin/sh\ncat %s/bin/shown\n' "$PWD" > bin/systemctl
printf '#!/bin/sh\ncat %s/options\n' "$PWD" > bin/my_print_defaults
chmod +x bin/*; PATH=$PWD/bin:$PATH
unlock() { tidelock service unlock app; }
echo "--datadir=$PWD/data" > options; unlock
"#;

#[test]
fn a_place_for_rows_that_was_set_later_is_refused_at_the_start() {
    if machine().is_none() {
        return;
    }
    let place = Shell::new();
    let said = with_own_etc(&place, &format!("{MARIADB}echo --log-bin=/srv/b >> options; unlock"));
    assert!(said.starts_with("error: log_bin is /srv/b: rows would lie there plain"), "{said}");
    assert!(said.ends_with("[exit 3]\n"), "{said}");
    // Nothing is known then, and the server was fine.
    let place = Shell::new();
    let said = with_own_etc(&place, &format!("{MARIADB}rm options; unlock && echo started"));
    assert!(said.contains("warning: the options of the server of app are unknown"), "{said}");
    assert!(said.ends_with("started\n"), "{said}");
}

/// Lines of shell: `check PROGRAM PLACE` says what `service check` does of a main process that has
/// the library and works there. Any library will do under its name.
const CHECK: &str = r#"
mkdir -p sealed/data plain image/etc/tidelock/installed
printf 'directory = "%s/sealed"\nsocket = "/run/x.sock"\nwritten = []\n' \
    "$(pwd -P)" > image/etc/tidelock/installed/app.toml
if ! [ -e postgres ]; then
    cp /bin/sleep postgres; cp /bin/sleep supervisor
    cp "$(ls /lib/$(uname -m)-linux-gnu/libm.so.6 /lib64/libm.so.6 2> /dev/null | head -n 1)" libtidelock_preload.so
fi
home=$PWD
check() {
    (cd "$2" && exec env LD_PRELOAD="$home/libtidelock_preload.so" "$home/$1" 60) > /dev/null 2>&1 &
    main=$!
    for try in $(seq 200); do
        grep -q libtidelock_preload "/proc/$main/maps" && break
        sleep 0.05
    done
    MAINPID=$main tidelock service check app --root image > said 2>&1
    code=$?
    kill $main
    sed 's/process [0-9]*$/process PID/' said
    return $code
}
"#;

#[test]
fn a_server_of_the_unit_counts_only_where_its_directory_is() {
    let place = Shell::new();
    let check = |lines: &str| place.run(&format!("umask 022\n{CHECK}{lines}"));
    let loaded = "loaded        in process PID\n";
    let said = check("check postgres sealed; check postgres sealed/data; check supervisor plain");
    assert_eq!(said, loaded.repeat(3));
    let said = check("check postgres plain");
    assert!(said.starts_with("error: the server of the unit (process "), "{said}");
    assert!(said.contains(") works in [HOME]/plain, not in [HOME]/sealed: all that it"), "{said}");
    assert!(said.ends_with("[exit 5]\n"), "{said}");
    // What a link there leads to is protected too.
    assert_eq!(check("ln -s ../plain sealed/link; check postgres plain"), loaded);
}

/// Type=simple: systemd's child may not have begun the program of the unit, nor that its server.
#[test]
fn a_main_process_may_become_a_server_after_a_while() {
    let place = Shell::new();
    let said = place.run(&format!(
        r#"umask 022
{CHECK}
later='sleep 2; cd ../sealed; exec env LD_PRELOAD="$0/libtidelock_preload.so" "$0/postgres" 60'
(cd plain && exec sh -c "$later" "$home") > /dev/null 2>&1 &
main=$!
MAINPID=$main tidelock service check app --root image | sed 's/process [0-9]*$/process PID/'
kill $main"#
    ));
    assert_eq!(said, "loaded        in process PID\n");
    let said = place.run(&format!(
        r#"umask 022
{CHECK}
(cd sealed && exec "$home/postgres" 60) > /dev/null 2>&1 &
main=$!
MAINPID=$main tidelock service check app --root image
kill $main"#
    ));
    assert!(said.starts_with("error: ") && said.contains("library"), "{said}");
}

/// The server has it, and so has what runs as the server runs.
#[test]
fn a_program_of_a_unit_has_the_groups_of_the_server_and_no_secrets_of_its_caller() {
    let Some(place) = machine() else { return };
    let lines = r#"
echo tidelock-more:x:54399:nobody >> /etc/group; echo typed > typed
tidelock init --owner nobody --profile generic --no-recovery data > said 2>&1 || cat said
installed app data
sed -i "s,tidelock/0/,tidelock/$(id -u nobody)/," /etc/tidelock/installed/app.toml
tidelock service unlock app > said 2>&1 || cat said
export VAULT_TOKEN=a AWS_SECRET_ACCESS_KEY=b XDG_STATE_HOME=/root/c HARMLESS=d
tidelock service run app -- /bin/sh -c 'id -un; id -Gn; cat; echo "$0"
    echo "$VAULT_TOKEN $AWS_SECRET_ACCESS_KEY $XDG_STATE_HOME $HARMLESS"
    pwd; echo ${LD_PRELOAD##*/} ${TIDELOCK_AGENT##*/}' word < typed
"#;
    let said = with_own_etc(&place, lines);
    let expected = "nobody\nnogroup tidelock-more\ntyped\nword\n   d\n[HOME]\n\
                    libtidelock_preload.so unit-app.sock\n";
    assert_eq!(said, expected);
}

#[test]
fn a_directory_that_two_units_unlock_is_made_plain_for_neither_alone() {
    let Some(place) = machine() else { return };
    let line = "installed mydb ours; installed second ours; tidelock unprotect mydb -D ours --yes";
    let said = with_own_etc(&place, line);
    assert!(said.starts_with("error: second unlocks [HOME]/ours before it starts"), "{said}");
    assert!(said.contains("hint:  `tidelock service remove second` first"), "{said}");
}

/// systemd shows what all files of the unit say, ours too once it is there.
#[test]
fn a_library_or_a_tmpdir_of_another_drop_in_is_refused_before_ours_is_written() {
    if machine().is_none() {
        return;
    }
    let place = Shell::new();
    let lines = r#"
say() { printf '%s\n' "$@" | cat bin/bare - > bin/shown; tidelock service install app -D data; }
cp bin/shown bin/bare; rm /etc/tidelock/installed/app.toml
mkdir -p /etc/tidelock/keyrings; cp .config/tidelock/keyrings/*.toml /etc/tidelock/keyrings
chmod 644 /etc/tidelock/keyrings/*
say Environment=LD_PRELOAD=/x/jemalloc.so
say Environment=TMPDIR=/fast
say
ours=$(sed -n s/^Environment=LD_PRELOAD=//p /etc/systemd/system/app.service.d/tidelock.conf)
sed -i "s,LD_PRELOAD=[^ ]*,LD_PRELOAD=/old/library.so," /etc/tidelock/installed/app.toml \
    /etc/systemd/system/app.service.d/tidelock.conf
say "Environment=LD_PRELOAD=/old/library.so TMPDIR=$PWD/data" > said 2>&1 || cat said
[ "$(sed -n s/^Environment=LD_PRELOAD=//p /etc/systemd/system/app.service.d/tidelock.conf)" \
    = "$ours" ] && echo written again
"#;
    let said = with_own_etc(&place, &format!("{MARIADB}{lines}"));
    let first =
        "error: app.service, or a drop-in of it, has LD_PRELOAD=/x/jemalloc.so without the library";
    assert!(said.starts_with(first), "{said}");
    assert!(said.contains("error: app gives its server TMPDIR=/fast"), "{said}");
    assert!(said.contains("app.service.d/tidelock.conf\n"), "{said}");
    assert!(said.ends_with("written again\n"), "{said}");
}

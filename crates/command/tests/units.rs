//! A server that a unit of systemd starts, and what is refused of it while nothing is changed yet.
//!
//! Nothing is systemd here: a file is mounted on the control group of a stand-in for the server,
//! and scripts answer as `systemctl` does. Needs root.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "home/place.rs"]
mod place;

use place::Shell;
use tidelock_servers::skip;

/// HOME with a directory that looks like MariaDB's, which is another user's.
#[track_caller]
fn machine() -> Option<Shell> {
    if skip::unless_root("a mount namespace") {
        return None;
    }
    let place = Shell::new();
    let made = place.run(
        "chmod 755 .; mkdir -p ours/mysql bin; cp /bin/sleep mariadbd; touch ours/ibdata1 \
         ours/aria_log_control; chown -R nobody:nogroup ours; unshare -m mount --bind bin ours",
    );
    if made.is_empty() {
        return Some(place);
    }
    skip::because(format_args!("no mount namespace can be made here: {made}"));
    None
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

#[test]
fn the_server_of_a_unit_is_not_taken_by_its_directory_alone() {
    let Some(place) = machine() else { return };
    let protect = |group: &str| {
        place.run(&format!(
            "echo 0::{group} > group; (cd ours; exec ../mariadbd 60) > /dev/null 2>&1 & ours=$!; \
             trap 'kill $ours' EXIT; \
             until [ \"$(basename \"$(readlink /proc/$ours/exe)\")\" = mariadbd ]; do sleep 0.05; \
             done; export ours; \
             unshare -m sh -c 'mount --bind group /proc/$ours/cgroup; PATH=$PWD/bin:$PATH; \
             tidelock protect -D ours {KEYS}'"
        ))
    };
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
    place.run("printf '#!/bin/sh\necho 1\n' > bin/systemctl; chmod +x bin/systemctl");
    let cron = protect("/system.slice/cron.service");
    assert!(!cron.contains("cron") && cron.contains("--no-defaults"), "{cron}");
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
    place.run(
        "printf '#!/bin/sh\\n[ $1 = is-active ]\\n' > bin/systemctl; \
         printf '#!/bin/sh\\necho --datadir=%s/ours\\n' \"$PWD\" > bin/my_print_defaults",
    );
    let said = with_systemd(&place, &format!("tidelock protect -D ours {KEYS}"));
    assert!(said.starts_with("error: mariadb.socket is active"), "{said}");
    assert!(said.contains("`tidelock protect mariadb`"), "{said}");
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

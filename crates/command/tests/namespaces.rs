//! A server of a container beside the machine's: the kernel shows both with the same directory.
//!
//! The stand-in for a server is `sleep` by the name of one. That of the container has a mount
//! namespace of its own, where another directory is mounted on ours. Needs root.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "home/mounted.rs"]
mod mounted;
#[path = "home/others.rs"]
mod others;
#[path = "home/place.rs"]
mod place;

use mounted::mounted;
use others::Others;
use place::Shell;

/// Lines of shell: `mine` runs a command as the owner of `own/ours`; `container` is the process of
/// the same user that another namespace has there, which ends with the line.
const CONTAINER: &str = r#"
mine() {
    env -u XDG_STATE_HOME -u TIDELOCK_RUN_DIR HOME="$PWD/own" \
        setpriv --reuid=54321 --regid=54321 --clear-groups -- "$@"
}
unshare -m sh -c 'mount --bind theirs own/ours && cd own/ours &&
    exec setpriv --reuid=54321 --regid=54321 --clear-groups -- ../../mariadbd 60' \
    > /dev/null 2>&1 &
container=$! ours=
trap 'kill $container $ours 2> /dev/null' EXIT
until [ "$(basename "$(readlink /proc/$container/exe)")" = mariadbd ]; do
    kill -0 $container || exit 9
    sleep 0.05
done
[ "$(readlink /proc/$container/cwd)" = "$(realpath own/ours)" ] || echo it works elsewhere
"#;

/// HOME with a directory that looks like MariaDB's, where a container's server seems to work;
/// nothing where no mount namespace can be made.
#[track_caller]
fn machine() -> Option<Shell> {
    mounted(
        "chmod 755 .; mkdir -p own/ours/mysql theirs; cp /bin/sleep mariadbd; \
         for name in aria_log_control ib_logfile0 ibdata1 mysql/t.ibd; do \
         echo rows > own/ours/$name; done; chown -R 54321:54321 own theirs; \
         unshare -m mount --bind theirs own",
    )
}

#[test]
fn the_server_of_a_container_neither_stops_a_conversion_nor_is_stopped() {
    let Some(place) = machine() else { return };
    let others = Others::new();
    let first = others.first();
    let said = place.run(&format!(
        "{first}{CONTAINER} mine tidelock encrypt own/ours --no-recovery > said 2>&1 || cat said; \
         head -c 6 own/ours/ibdata1 | tail -c 5; echo; \
         mine tidelock unprotect -D own/ours --yes > said 2>&1 || cat said; \
         cat own/ours/ibdata1; kill -0 $container && echo it lives"
    ));
    assert_eq!(said, "TDLK\r\nrows\nit lives\n");
}

#[test]
fn the_server_of_a_container_does_not_fail_the_check_of_a_unit() {
    let Some(place) = machine() else { return };
    let others = Others::new();
    let first = others.first();
    let check = "tidelock service check mydb --root image | sed 's/[0-9][0-9]*/N/'";
    let said = place.run(&format!(
        "{first}mkdir -p image/etc/tidelock/installed; \
         printf 'directory = \"%s\"\\nsocket = \"/x\"\\nwritten = []\\n' \
         \"$(realpath own/ours)\" > image/etc/tidelock/installed/mydb.toml; {CONTAINER} \
         library=$(dirname \"$(command -v tidelock)\")/libtidelock_preload.so; \
         (cd own/ours; LD_PRELOAD=$library exec ../../mariadbd 60) > /dev/null 2>&1 & ours=$!; \
         until grep -q tidelock_preload /proc/$ours/maps; do sleep 0.05; done; \
         MAINPID=$ours {check}; {check}"
    ));
    assert_eq!(said, "loaded        in process N\nloaded        in process N\n");
}

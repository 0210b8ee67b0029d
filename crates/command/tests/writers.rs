//! A conversion refuses files that somebody else can still write to, however they are held: what
//! goes into the old file after a conversion is lost.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "home/others.rs"]
mod others;
#[path = "home/place.rs"]
mod place;

use others::Others;
use place::Shell;
use tidelock_servers::skip;

/// `hold HOW FILE` has FILE held by a program that writes to it when it is told to go on, and ends.
/// It ends with the line in any case.
const LINES: &str = r#"export HOME=$PWD/h
mkdir -p h d; chmod 755 . h; head -c 8192 /dev/zero > d/data
hold() {
    mkfifo goes
    python3 - "$1" "$2" > held <<'END' &
import mmap, os, sys
how, path = sys.argv[1:]
fd = os.open(path, os.O_RDWR)
if how == "map":
    held = mmap.mmap(fd, 8192, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE, trackfd=False) \
        if sys.version_info >= (3, 13) else mmap.mmap(fd, 8192)
    for number in os.listdir("/proc/self/fd"):
        # Python keeps a copy of the descriptor.
        if int(number) > 2 and os.path.realpath(f"/proc/self/fd/{number}") == os.path.realpath(path):
            os.close(int(number))
print("held", flush=True)
open("goes").read()
if how == "map":
    held[0:5] = b"LATER"
    held.flush()
else:
    os.pwrite(fd, b"LATER", 0)
END
    holder=$!
    trap 'kill $holder 2> /dev/null' EXIT
    until grep -qs held held; do kill -0 $holder || exit 9; sleep 0.05; done
}
go_on() { : > goes; wait $holder; }
"#;

const ENCRYPT: &str = "tidelock encrypt d --profile generic --no-recovery";

fn run(place: &Shell, line: &str) -> String {
    place.run(&format!("{LINES}{line}"))
}

#[test]
fn a_file_that_is_mapped_with_its_descriptor_closed_is_not_converted() {
    let place = Shell::new();
    let said = run(
        &place,
        "hold map d/data; tidelock encrypt d --profile generic --no-recovery > out 2>&1; echo $?; \
         grep -c 'has .*/d/data open or mapped' out; ls -A d; go_on; head -c 5 d/data; \
         tidelock encrypt d --profile generic --no-recovery > out 2>&1 || cat out; \
         tidelock cat -D d d/data | head -c 5",
    );
    assert_eq!(said, "3\n1\ndata\nLATERLATER\n");
}

/// The owner of a directory sees no file of another user's process.
#[test]
fn a_file_that_another_users_process_has_open_is_not_converted() {
    if skip::unless_root("programs of another user") {
        return;
    }
    let (place, others) = (Shell::new(), Others::new());
    let on = place.run("stat -f -c %T .");
    if !["ext2/ext3\n", "xfs\n", "btrfs\n", "f2fs\n", "tmpfs\n"].contains(&&*on) {
        skip::because(format_args!("a lease says nothing on {on}"));
        return;
    }
    let said = run(
        &place,
        &format!(
            "{}mine() {{ env -u XDG_STATE_HOME -u TIDELOCK_RUN_DIR \
             setpriv --reuid=54321 --regid=54321 --clear-groups -- \"$@\"; }}; \
             chown -R 54321:54321 h d; hold open d/data; \
             mine {ENCRYPT} > out 2>&1; echo $?; \
             grep -c 'somebody has .*/d/data open' out; ls -A d; go_on; \
             mine {ENCRYPT} > out 2>&1 || cat out; \
             mine tidelock cat -D d d/data | head -c 5; echo; \
             rm goes; hold open d/data; mine tidelock decrypt d > out 2>&1; echo $?; \
             grep -c 'somebody has' out; ls d/.tidelock/keyring",
            others.first()
        ),
    );
    assert_eq!(said, "3\n1\ndata\nLATER\n3\n1\nd/.tidelock/keyring\n");
}

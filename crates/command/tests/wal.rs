//! Archiving when the disk fills up, and by several at once: a file is there whole, or not at all.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "home/place.rs"]
mod place;

use place::Shell;
use tidelock_servers::skip;

/// The first page of segment 1 of 1 MiB, and what follows it.
const SEGMENT: &str = r"printf '\020\321\002\0\001\0\0\0\0\0\020\0\0\0\0\0\0\0\0\0\0\0\0\0ABCDEFGH\0\0\020\0\0\040\0\0' | cat - body";
const NAME: &str = "000000010000000000000001";

/// Unmounts before the folder goes.
struct Mounted(Shell);

impl Drop for Mounted {
    fn drop(&mut self) {
        self.0.run("PATH=$PATH:/usr/sbin:/sbin; umount v || umount -l v");
    }
}

fn init(place: &Shell, archive: &str) {
    let made = place.run(&format!(
        "tidelock init {archive} --profile wal-archive --no-recovery > out 2>&1 || cat out; \
         head -c 1048536 /dev/urandom > body; {SEGMENT} > {NAME}"
    ));
    assert_eq!(made, "");
}

#[test]
fn a_full_disk_leaves_nothing_and_with_room_again_the_file_is_archived() {
    if skip::unless_root("a volume of one's own") {
        return;
    }
    let place = Shell::new();
    let said = place.run(
        "PATH=$PATH:/usr/sbin:/sbin; mkdir v && truncate -s 16M image && mkfs.ext4 -q -m 0 image \
         && mount -o loop image v",
    );
    if !said.is_empty() {
        skip::because(format_args!("no volume can be mounted here: {said}"));
        return;
    }
    let place = Mounted(place);
    init(&place.0, "v/archive");
    let run = |line: &str| place.0.run(line);
    run("dd if=/dev/zero of=v/fill bs=64k status=none; sync -f v");
    // Room for half of it.
    run("truncate -s -512K v/fill; sync -f v");
    for _ in 0..2 {
        let said = run(&format!("tidelock wal put {NAME} v/archive"));
        let told = said.contains("No space left") && said.contains("hint:  ");
        assert!(told && said.ends_with("[exit 1]\n"), "{said}");
        assert_eq!(run("ls -A v/archive"), ".tidelock\n");
        assert_eq!(run(&format!("tidelock wal get {NAME} x v/archive")), "[exit 1]\n");
    }
    // Nor is anything left where the restored file has no room.
    run("rm v/fill");
    assert_eq!(run(&format!("tidelock wal put {NAME} v/archive")), "");
    run("mkdir v/node; dd if=/dev/zero of=v/fill bs=64k status=none; sync -f v");
    let said = run(&format!("tidelock wal get {NAME} v/node/x v/archive"));
    assert!(said.contains("No space left") && said.ends_with("[exit 201]\n"), "{said}");
    assert_eq!(run("ls -A v/node"), "");
    run("rm v/fill");
    let got = run(&format!("tidelock wal get {NAME} v/node/x v/archive && cmp v/node/x {NAME}"));
    assert_eq!(got, "");
}

#[test]
fn of_many_at_once_one_content_wins_and_the_others_are_told() {
    let place = Shell::new();
    init(&place, "archive");
    // Four with one content, four with others.
    let said = place.run(&format!(
        "for n in 1 2 3 4 5 6 7 8; do mkdir $n; cp {NAME} $n; \
         [ $n -lt 5 ] || printf $n | dd of=$n/{NAME} bs=1 seek=70000 conv=notrunc status=none; done; \
         for n in 1 2 3 4 5 6 7 8; do (tidelock wal put $n/{NAME} archive > $n/out 2>&1; echo $? > $n/code) & \
         done; wait; cat ?/code | sort | uniq -c; tidelock wal get {NAME} got archive; \
         for n in 1 2 3 4 5 6 7 8; do cmp -s got $n/{NAME}; echo $? $(cat $n/code); done | sort | uniq -c; \
         ls -A archive"
    ));
    let lines: Vec<_> = said.lines().map(str::trim).collect();
    let (codes, rest) = lines.split_at(2);
    // Whoever has the content that won is told so, whoever else is refused.
    let won = codes[0].strip_suffix(" 0").unwrap();
    assert!(["1", "4"].contains(&won) && codes[1].ends_with(" 3"), "{said}");
    let others = 8 - won.parse::<u32>().unwrap();
    assert_eq!(rest[..2], [format!("{won} 0 0"), format!("{others} 1 3")], "{said}");
    assert_eq!(rest[2..], [".tidelock", NAME], "{said}");
}

/// A segment that a MAC proves is proven under the new data key too, and a damaged one is not made
/// whole by it.
#[test]
fn rekeying_an_archive_keeps_the_proof_of_its_files_and_refuses_a_damaged_one() {
    let place = Shell::new();
    init(&place, "archive");
    assert_eq!(place.run(&format!("tidelock wal put {NAME} archive")), "");
    // The agent that `put` has left behind ends by itself.
    let ended = "while test -e run/*.sock; do sleep 0.2; done; ";
    let rekeyed = place.run(&format!(
        "{ended}tidelock rekey archive > out 2>&1 || cat out; tidelock wal get {NAME} got archive \
         && cmp got {NAME}; tidelock wal check archive | tail -1"
    ));
    assert!(rekeyed.starts_with("1 segment, 0 other files, 1 proven"), "{rekeyed}");
    let flipped =
        format!("printf x | dd of=archive/{NAME} bs=1 seek=70000 conv=notrunc status=none; ");
    let said = place.run(&format!("{ended}{flipped}tidelock rekey archive"));
    assert!(said.contains(NAME) && said.ends_with("[exit 5]\n"), "{said}");
    let got = place.run(&format!("tidelock wal get {NAME} x archive"));
    assert!(got.ends_with("[exit 205]\n"), "{got}");
}

/// The server would ask for the same file for ever, and archive nothing behind it.
#[test]
fn a_backup_history_that_a_power_cut_has_emptied_does_not_stop_the_archive() {
    let place = Shell::new();
    init(&place, "archive");
    for (number, torn) in [(1, ":"), (2, "head -c 300 /dev/zero"), (3, "printf STOP")] {
        let name = format!("{NAME}.0000002{number}.backup");
        for _ in 0..2 {
            let said = place.run(&format!("{torn} > {name}; tidelock wal put {name} archive"));
            let warned = said.starts_with("warning: ") && said.contains(".backup: ");
            assert!(warned && !said.contains("[exit"), "{said}");
        }
        let got = place.run(&format!("tidelock wal get {name} x archive; stat -c %s x; rm x"));
        assert_eq!(got, "0\n", "{torn}");
    }
    // Torn after it was archived.
    let name = format!("{NAME}.00000028.backup");
    let whole =
        format!("echo 'START WAL LOCATION: 0/100' > {name}; tidelock wal put {name} archive");
    assert_eq!(place.run(&whole), "");
    let said = place.run(&format!("true > {name}; tidelock wal put {name} archive"));
    assert!(said.starts_with("warning: ") && !said.contains("[exit"), "{said}");
    let got = place.run(&format!("tidelock wal get {name} x archive; cat x"));
    assert_eq!(got, "START WAL LOCATION: 0/100\n");
    // What recovery reads is refused as ever.
    let said = place.run("true > 00000002.history; tidelock wal put 00000002.history archive");
    assert!(said.ends_with("[exit 5]\n"), "{said}");
    assert_eq!(place.run(&format!("tidelock wal put {NAME} archive")), "");
    let said = place.run("tidelock wal check archive | tail -1");
    assert!(said.starts_with("1 segment, 4 other files"), "{said}");
}

#[test]
fn put_into_an_archive_that_is_being_converted_is_refused() {
    let place = Shell::new();
    init(&place, "archive");
    assert_eq!(place.run(&format!("tidelock wal put {NAME} archive")), "");
    // Cut off at the damaged file: the keyring says that a conversion has begun.
    let said = place.run(&format!(
        "while test -e run/*.sock; do sleep 0.2; done; \
         printf x | dd of=archive/{NAME} bs=1 seek=70000 conv=notrunc status=none; \
         tidelock decrypt archive; cp {NAME} 000000010000000000000002; \
         printf '\\040' | dd of=000000010000000000000002 bs=1 seek=10 conv=notrunc status=none; \
         tidelock wal put 000000010000000000000002 archive; ls archive"
    ));
    assert!(said.contains("was interrupted"), "{said}");
    assert!(said.ends_with(&format!("{NAME}\n")), "{said}");
}

#[test]
fn what_is_there_compressed_or_not_mounted_is_not_taken_for_the_end_of_wal() {
    let place = Shell::new();
    init(&place, "archive");
    let said = place.run(&format!(
        "mkdir plain; gzip < {NAME} > plain/{NAME}.gz; tidelock wal get --plain {NAME} x plain"
    ));
    assert!(said.contains("compressed") && said.ends_with("[exit 203]\n"), "{said}");
    let said = place.run("mkdir empty; tidelock wal check --plain empty");
    assert!(said.contains("is it mounted?") && said.ends_with("[exit 3]\n"), "{said}");
}

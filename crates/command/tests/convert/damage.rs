//! What a crash, a copy, a bad disk or a file system without a call has left: no file is lost, none
//! is taken for plain.

use super::place::Shell;
use super::{ENCRYPT, run};

/// A second name outside says nothing of how much of a file had been written.
#[test]
fn half_a_file_that_got_a_name_in_a_copy_takes_no_place() {
    let place = Shell::new();
    let said = run(
        &place,
        &format!(
            "mkdir h w; make w/d; look w/d | sed 's/ [0-9]* \\[/ [/' > before; \
         alone strace -qq -o /dev/null -e trace=pwrite64 -e inject=pwrite64:signal=KILL:when=5 \
             {ENCRYPT} --jobs 1 > out 2>&1; \
         ls -A w/d | grep -c '^.tidelock-convert-[0-9]*$'; \
         cp -al w/d w/safe; rm -r w/safe/.tidelock; \
         tidelock encrypt --outside w/d --resume; ls -A w/d | grep -c '^.tidelock-convert-[0-9]*$'; \
         tidelock encrypt --outside w/d --resume --leave-links > out 2>&1 || cat out; \
         tidelock verify -D w/d | grep -o '[0-9]* problem.*'; \
         tidelock decrypt --outside w/d > out 2>&1 || cat out; \
         look w/d | sed 's/ [0-9]* \\[/ [/' | diff before -"
        ),
    );
    let refused = "outside of the directory (hard links), where the bytes stay as they are\n";
    assert!(said.starts_with("2\n") && said.contains(refused), "{said}");
    assert!(said.ends_with("\n2\n0 problems, 0 notes\n"), "{said}");
}

/// One copy of a header is enough for the library, and so it is for a conversion.
#[test]
fn a_damaged_copy_of_a_header_makes_no_file_plain() {
    let place = Shell::new();
    let said = run(
        &place,
        &format!(
            "mkdir h w; make w/d; look w/d > before; {ENCRYPT} > out 2>&1 || cat out; \
         old=$(tidelock status -D w/d --json 2> /dev/null | python3 -c '\
             import json, sys; all = json.load(sys.stdin); \
             print(all[\"unlocked\"][\"data_keys\"][0][\"id\"])'); \
         change w/d/f16 8; change w/d/f4095 16; change w/d/f8192 190; change w/d/f4097 520; \
         mkdir w/o; cp w/d/f4095 w/o/f; \
         tidelock encrypt w/o --profile generic --no-recovery; \
         tidelock key new-data-key -D w/d > out 2>&1 || cat out; \
         tidelock status -D w/d --under $old 2> out | grep -c '^f4095$'; \
         tidelock key destroy -D w/d $old; \
         tidelock rekey --outside w/d > out 2>&1 || cat out; \
         tidelock verify -D w/d | grep -o '[0-9]* problem.*'; \
         for at in 8 16 190; do change w/d/f8192 $at; done; \
         tidelock decrypt --outside w/d > out 2>&1 || cat out; \
         look w/d > after; cmp before after && ls -d w/d/.tidelock"
        ),
    );
    let sealed = "error: [HOME]/w/o/f is sealed already, under keyring [ID]\n";
    let used = "error: data key [ID] still seals ";
    assert!(said.starts_with(sealed) && said.contains(used), "{said}");
    let end = "0 problems, 0 notes\n\
               ls: cannot access 'w/d/.tidelock': No such file or directory\n[exit 2]\n";
    assert!(said.contains("\n1\n") && said.ends_with(end), "{said}");
}

/// Also what was half sealed stays sealed once.
#[test]
fn a_damaged_copy_of_a_header_has_no_file_sealed_twice() {
    let place = Shell::new();
    let said = run(
        &place,
        &format!(
            "mkdir h w; make w/d; look w/d > before; \
         alone strace -qq -o /dev/null -e trace=rename -e inject=rename:signal=KILL:when=6 \
             {ENCRYPT} --jobs 1 > out 2>&1; \
         sealed=$(grep -la TDLK w/d/f* | head -1); change $sealed 8; \
         tidelock encrypt --outside w/d --resume > out 2>&1 || cat out; \
         tidelock decrypt --outside w/d > out 2>&1 || cat out; look w/d | diff before -"
        ),
    );
    assert_eq!(said, "");
}

/// Between a rename and the sync of its folder, both file systems and power may fail.
#[test]
fn renames_of_a_killed_conversion_are_synced_before_the_keyring_goes() {
    let place = Shell::new();
    let said = run(
        &place,
        &format!(
            "mkdir h w; make w/d; {ENCRYPT} > out 2>&1 || cat out; \
         alone strace -qq -o /dev/null -P $PWD/w/d/sub/deep -e trace=fsync \
             -e inject=fsync:signal=KILL:when=2 tidelock decrypt --outside w/d --jobs 1 > out 2>&1; \
         alone strace -f -y -qq -o calls -e trace=fsync,unlinkat tidelock decrypt --outside w/d --resume \
             > out 2>&1 || cat out; \
         sed '/unlinkat.*\"keyring\"/,$d' calls > early; \
         for folder in w/d w/d/sub w/d/sub/deep w/elsewhere; do \
             grep -q \"fsync([0-9]*<$PWD/$folder>) *= 0\" early || echo $folder; \
         done; grep -c 'unlinkat.*\"keyring\"' calls"
        ),
    );
    assert_eq!(said, "1\n");
}

#[test]
fn a_file_that_is_sealed_where_the_profile_wants_it_plain_is_refused_by_name() {
    let place = Shell::new();
    let said = run(
        &place,
        &format!(
            "mkdir h w; make w/d; echo text > w/d/f; {ENCRYPT} --plain note > out 2>&1 || cat out; \
         mv w/d/f w/d/note; cp w/d/.tidelock/keyring keyring; \
         for command in decrypt rekey; do \
             tidelock $command w/d; tidelock $command w/d --dry-run | cat; done; \
         cmp keyring w/d/.tidelock/keyring; \
         tidelock status -D w/d 2> /dev/null | grep ^conversion; \
         mv w/d/note w/d/f; tidelock decrypt --outside w/d > out 2>&1 || cat out; cat w/d/f"
        ),
    );
    let told = "error: [HOME]/w/d/note is sealed with a key of this keyring, and plain by the \
                profile: it would stay sealed\n";
    assert_eq!(said.matches(told).count(), 4, "{said}");
    let mut left = said.lines().filter(|line| !line.starts_with("error:"));
    assert!(left.all(|line| line.starts_with("hint: ") || line == "text"), "{said}");
    assert!(said.ends_with("\ntext\n"), "{said}");
}

/// The library shows such files.
#[test]
fn an_end_that_a_power_cut_has_left_stops_no_conversion() {
    let place = Shell::new();
    let said = run(
        &place,
        &format!(
            "mkdir h w; make w/d; {ENCRYPT} > out 2>&1 || cat out; \
         change w/d/f17 $(($(stat -c %s w/d/f17) - 1)); truncate -s 4103 w/d/f4095; \
         tidelock rekey --outside w/d --jobs 1 2> out > said || cat out; grep ^warning: out; \
         tidelock verify -D w/d | grep -o '[0-9]* problem.*'; \
         truncate -s -16 w/d/f4097; \
         tidelock decrypt --outside w/d 2> out > said || cat out; grep -c '1 file had an end' out; \
         stat -c %s w/d/f17 w/d/f4095 w/d/f4097"
        ),
    );
    let told = "warning: 2 files had an end that a power cut or somebody has left, the first of \
                them [HOME]/w/d/";
    assert!(said.starts_with(told), "{said}");
    assert!(said.ends_with("\n0 problems, 0 notes\n1\n17\n0\n4081\n"), "{said}");
}

/// NFS and many FUSE file systems have no files without a name.
#[test]
fn a_dry_run_needs_no_files_without_a_name() {
    let place = Shell::new();
    let said = run(
        &place,
        &format!(
            "mkdir h w; make w/d; strace -f -qq -o /dev/null -P $PWD/w/d -e trace=open \
                 -e inject=open:error=EOPNOTSUPP {ENCRYPT} --dry-run > out 2>&1 || cat out; \
             grep '^how long' out"
        ),
    );
    assert_eq!(said, "how long is not known: the file system has no files without a name\n");
}

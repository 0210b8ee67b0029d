//! `tidelock verify` of a directory that changes while it is read.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "home/place.rs"]
mod place;

use place::Shell;

/// Lines of shell: the second of four files takes long to open, and what follows is done meanwhile.
const SLOW: &str = r#"
tidelock init data --profile generic --no-recovery > said 2>&1 || cat said
for name in a b c d; do
    echo "rows of $name" | tidelock seal --file -D data > data/$name
done
strace -f -qq -o /dev/null -P "$(realpath data)/b" -e trace=open,openat \
    -e inject=open,openat:delay_enter=8000000 tidelock verify -D data > said 2>&1 &
sleep 3
"#;

fn meanwhile(line: &str) -> String {
    Shell::new().run(&format!("{SLOW}{line}\nwait $!; echo ended $?; cat said"))
}

#[test]
fn a_file_that_was_renamed_before_its_turn_is_read_under_its_new_name() {
    let said = meanwhile("mv data/b data/z; mv data/c data/y; rm data/d");
    let told = "3 sealed, 0 empty, 0 plain by the profile, 1 not found any more; ";
    assert!(said.starts_with(&format!("ended 0\n{told}")), "{said}");
}

#[test]
fn a_plain_file_that_came_while_others_were_read_is_found() {
    let said = meanwhile("echo plain > data/new; mkdir data/more; echo plain > data/more/new");
    assert!(said.starts_with("ended 5\n") && said.contains("2 problems"), "{said}");
    assert!(said.contains("[HOME]/data/new: ") && said.contains("data/more/new: "), "{said}");
}

#[test]
fn a_pipe_that_took_the_name_of_a_file_holds_nobody_and_is_no_plain_file() {
    let said = meanwhile("mv data/c kept; mkfifo data/c; mv data/d there; ln -s ../there data/d");
    assert!(said.starts_with("ended 0\n[HOME]/data/c: note: not read: something else"), "{said}");
    // What the link leads to is read under the link's name.
    assert!(said.contains("\n3 sealed") && said.contains(", 1 not found any more; "), "{said}");
}

#[test]
fn a_key_that_came_while_files_were_read_makes_no_file_bad() {
    let said = meanwhile(
        "tidelock key new-data-key -D data > /dev/null 2>&1
         echo new | tidelock seal --file -D data > new; mv new data/c",
    );
    assert!(said.starts_with("ended 0\n4 sealed, 0 empty, 0 plain"), "{said}");
    assert!(said.contains("; 0 problems, 0 notes"), "{said}");
}

#[test]
fn a_policy_that_changed_while_files_were_read_makes_no_file_bad() {
    let said = meanwhile(
        "tidelock profile set -D data --plain '*.txt' > /dev/null 2>&1; echo plain > data/c.txt",
    );
    assert!(said.starts_with("ended 0\n4 sealed, 0 empty, 1 plain"), "{said}");
}

#[test]
fn a_file_that_was_being_written_is_looked_at_again_where_no_server_shows_itself() {
    let said = Shell::new().run(
        "tidelock init data --profile generic --no-recovery > said 2>&1 || cat said
         echo rows | tidelock seal --file -D data > good; echo half > data/a
         strace -f -qq -o /dev/null -e trace=nanosleep,clock_nanosleep \
             -e inject=nanosleep,clock_nanosleep:delay_enter=4000000 \
             tidelock verify -D data > said 2>&1 &
         sleep 2; cat good > data/a; wait $!; echo ended $?; cat said",
    );
    assert!(said.starts_with("ended 0\n1 sealed"), "{said}");
}

#[test]
fn a_pipe_or_a_device_in_place_of_what_a_server_writes_holds_nobody() {
    let said = Shell::new().run(
        "tidelock init data --no-recovery > said 2>&1 || cat said
         mkdir data/global; cd data
         mkfifo PG_VERSION postmaster.pid postmaster.opts postgresql.conf global/pg_control
         ln -s /dev/zero postgresql.auto.conf; cd ..
         for command in verify status report; do
             timeout 60 tidelock $command -D data > out 2>&1; echo $command $?
         done",
    );
    assert_eq!(said, "verify 0\nstatus 0\nreport 0\n");
}

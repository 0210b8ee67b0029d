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

//! A map that is refused says which file it was for, once.

use std::path::Path;

use tidelock_servers::{Bounded as _, skip};
use tidelock_testkit::twins::{Product, Workspace};

const PYTHON: &str = "/usr/bin/python3";

/// Each map that is asked for, and what comes of it.
const PROGRAM: &str = r#"
import mmap, os, sys
def ask(name, flags, protection, size):
    fd = os.open(os.path.join(sys.argv[1], name), os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(fd, size)
    try:
        mmap.mmap(fd, size, flags, protection)
        print(name, "mapped")
    except OSError as error:
        print(name, os.strerror(error.errno))
    os.close(fd)
for again in range(3):
    ask("read", mmap.MAP_SHARED, mmap.PROT_READ, 4096)
    ask("written", mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE, 4096)
    ask("large", mmap.MAP_PRIVATE, mmap.PROT_READ, (256 << 20) + 4096)
    ask("private", mmap.MAP_PRIVATE, mmap.PROT_READ, 4096)
for number in range(40):
    ask(f"many{number}", mmap.MAP_SHARED, mmap.PROT_READ, 4096)
"#;

#[test]
fn a_refused_map_names_its_file_once_and_the_way_out() {
    if !Path::new(PYTHON).exists() {
        skip::missing(PYTHON);
        return;
    }
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    let place = Workspace::new("maps").unwrap();
    let dir = place.protect(&product, "generic").unwrap_or_else(|error| panic!("{error}"));
    let mut python = place.command(&product);
    python.arg("exec").arg("-D").arg(&dir).args(["--", PYTHON, "-c", PROGRAM]).arg(&dir);
    let done = python.finish().unwrap();
    let (told, words) =
        (String::from_utf8(done.stdout).unwrap(), String::from_utf8(done.stderr).unwrap());
    assert!(done.status.success(), "{words}");
    assert_eq!(told.matches("No such device").count(), 9 + 40, "{told}");
    assert_eq!(told.matches("private mapped").count(), 3, "{told}");
    for (name, way) in [
        ("read", "let the program read without maps"),
        ("written", "dynamic_shared_memory_type = posix"),
        ("large", "core.packedGitWindowSize"),
    ] {
        let file = dir.join(name).display().to_string();
        let lines: Vec<&str> =
            words.lines().filter(|line| line.contains(&format!("{file}: "))).collect();
        assert!(lines.len() == 1 && lines[0].contains(way), "{name}: {lines:#?}");
    }
    assert!(!words.contains("sealed/private:"), "{words}");
    // A program that maps thousands of files does not fill the log.
    assert_eq!(words.lines().filter(|line| line.contains("/many")).count(), 13, "{words}");
}

/// A listed shell opens the file; the program that it starts gets a descriptor that nobody can use.
#[test]
fn a_sealed_file_as_standard_output_of_a_child_is_refused_by_name() {
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    let place = Workspace::new("children").unwrap();
    let dir = place.protect(&product, "generic").unwrap_or_else(|error| panic!("{error}"));
    let run = |script: &str| {
        let mut shell = place.command(&product);
        shell.arg("exec").arg("-D").arg(&dir).args(["--", "/bin/sh", "-c", script, "sh"]).arg(&dir);
        let done = shell.finish().unwrap();
        (done.status.success(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (good, words) = run("cd \"$1\" && echo words > a && cat a > b");
    assert!(!good && words.contains("standard output is a sealed file"), "{words}");
    let (good, words) = run("cd \"$1\" && cat < a");
    assert!(!good && words.contains("standard input is a sealed file"), "{words}");
    // The shell's own redirections work, and pipes say nothing.
    let (good, words) = run("cd \"$1\" && read x < a && echo \"$x\" | cat > /dev/null");
    assert!(good && words.is_empty(), "{words}");
    place.verify(&product, &dir).unwrap_or_else(|error| panic!("{error}"));
}

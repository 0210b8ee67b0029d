//! Links that lead to what is not the directory's own: the memory of all programs, another
//! protected directory.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use tidelock_servers::Bounded as _;
use tidelock_testkit::twins::{Product, Workspace};

/// Runs a shell on the directory `dir`, which is its first word; whether it ended well, what it
/// printed and its errors.
fn shell(
    place: &Workspace,
    product: &Product,
    dir: &Path,
    script: &str,
    more: &[&Path],
) -> (bool, String, String) {
    let mut shell = place.command(product);
    shell.arg("exec").arg("-D").arg(dir).args(["--", "/bin/sh", "-c", script, "sh"]).arg(dir);
    let done = shell.args(more).finish().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (done.status.success(), text(done.stdout), text(done.stderr))
}

/// What the library itself shares lies there too.
#[test]
fn a_link_to_the_memory_of_all_programs_is_refused_by_its_name() {
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    let place = Workspace::new("shared").unwrap();
    let dir = place.protect(&product, "generic").unwrap_or_else(|error| panic!("{error}"));
    symlink("/dev/shm", dir.join("memory")).unwrap();
    symlink("/", dir.join("everything")).unwrap();
    let name = format!("tidelock-test-{}", std::process::id());
    let script = "echo words > \"$1/own\" && read x < \"$1/own\" && echo \"$x\"; \
                  echo words > \"$1/memory/$2\"";
    let (good, said, words) = shell(&place, &product, &dir, script, &[Path::new(&name)]);
    assert!(!good && said == "words\n", "{said}\n{words}");
    // A path that the program follows itself says no longer whose it is.
    let inside = "cd \"$1/memory\" && echo words > \"$2\"";
    let (good, ..) = shell(&place, &product, &dir, inside, &[Path::new(&name)]);
    assert!(!good);
    for link in ["memory", "everything"] {
        let line = format!("{}: it leads to a place of all programs", dir.join(link).display());
        assert!(words.contains(&line), "{words}");
    }
    assert!(!Path::new("/dev/shm").join(&name).exists());
    // Plain by the rules, it is nobody's business.
    fs::remove_file(dir.join("everything")).unwrap();
    let mut set = place.command(&product);
    let done =
        set.args(["profile", "set", "--plain", "memory/**", "-D"]).arg(&dir).finish().unwrap();
    assert!(done.status.success(), "{done:?}");
    let script = format!("{script}; cat \"$1/memory/$2\"");
    let (good, said, words) = shell(&place, &product, &dir, &script, &[Path::new(&name)]);
    let there = fs::read_to_string(Path::new("/dev/shm").join(&name));
    fs::remove_file(Path::new("/dev/shm").join(&name)).unwrap();
    assert!(good && said == "words\nwords\n", "{said}\n{words}");
    assert_eq!(there.unwrap(), "words\n");
}

/// Its programs could not read what was written with other keys.
#[test]
fn a_link_into_another_protected_directory_takes_nothing_along() {
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    let place = Workspace::new("between").unwrap();
    let ours = place.protect(&product, "generic").unwrap_or_else(|error| panic!("{error}"));
    let theirs = place.plain().join("theirs");
    let mut init = place.command(&product);
    init.arg("init").arg(&theirs).args(["--profile", "generic", "--no-recovery", "--provider"]);
    let done = init.arg(format!("file:{}", place.plain().join("key").display())).finish().unwrap();
    assert!(done.status.success(), "{done:?}");
    fs::create_dir(theirs.join("sub")).unwrap();
    symlink(&theirs, ours.join("whole")).unwrap();
    symlink(theirs.join("sub"), ours.join("part")).unwrap();
    symlink(theirs.join("new"), ours.join("missing")).unwrap();
    for file in ["whole/file", "part/file", "whole/sub/file", "missing"] {
        let script = "echo words > \"$1/$2\"";
        let (good, _, words) = shell(&place, &product, &ours, script, &[Path::new(file)]);
        assert!(!good && words.contains("it lies in another protected directory"), "{words}");
    }
    let direct = "echo words > \"$2/direct\"";
    let (good, _, words) = shell(&place, &product, &ours, direct, &[&theirs]);
    assert!(!good && words.contains("it lies in another protected directory"), "{words}");
    // With the keys of both, each file has those of where it lies.
    let mut both = place.command(&product);
    both.arg("exec").arg("-D").arg(&ours).arg("-D").arg(&theirs);
    both.args(["--", "/bin/sh", "-c", "echo words > \"$1/part/file\"", "sh"]).arg(&ours);
    let done = both.finish().unwrap();
    assert!(done.status.success(), "{done:?}");
    let (good, said, words) =
        shell(&place, &product, &theirs, "read x < \"$1/sub/file\"; echo \"$x\"", &[]);
    assert!(good && said == "words\n", "{said}\n{words}");
}

/// It has been looked at once, when it was nobody's.
#[test]
fn what_a_link_takes_along_stays_sealed_under_another_path() {
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    let place = Workspace::new("moved").unwrap();
    let dir = place.protect(&product, "generic").unwrap_or_else(|error| panic!("{error}"));
    let far = place.plain().join("far");
    fs::create_dir_all(far.join("x/space/sub")).unwrap();
    let script = "echo words > \"$2/x/space/sub/before\"; ln -s \"$2/x/space\" \"$1/space\" && \
                  echo words > \"$1/space/sub/one\" && mv \"$2/x\" \"$2/y\" && \
                  echo words > \"$2/y/space/sub/two\" && read x < \"$2/y/space/sub/two\" && \
                  echo \"$x\"";
    let (good, said, words) = shell(&place, &product, &dir, script, &[&far]);
    assert!(good && said == "words\n", "{said}\n{words}");
    let sub = far.join("y/space/sub");
    assert_eq!(fs::read(sub.join("before")).unwrap(), b"words\n");
    for name in ["one", "two"] {
        let bytes = fs::read(sub.join(name)).unwrap();
        assert!(bytes.len() > 4096 && !bytes.windows(5).any(|at| at == b"words"), "{name}");
    }
}

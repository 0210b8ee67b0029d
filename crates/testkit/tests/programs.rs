//! Programs of other kinds on sealed files: fio, which verifies what it wrote by every engine, and
//! small programs of several languages, which must see what they see of plain files.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::path::Path;
use std::process::Command;

use tidelock_servers::{Bounded as _, skip};
use tidelock_testkit::twins::{Product, Workspace};

/// What fio says of an engine that must not work on sealed files.
const REFUSED: &[(&str, &str)] =
    &[("io_uring", "Function not implemented"), ("mmap", "No such device")];

#[test]
#[ignore = "long: make test-full"]
fn what_fio_wrote_is_verified_or_refused_and_never_wrong() {
    if !Path::new("/usr/bin/fio").exists() {
        skip::missing("fio");
        return;
    }
    fio_by_every_engine("generic", "file", "bytes");
    fio_by_every_engine("mariadb", "d/t.ibd", "paged");
}

/// On one file of a directory of this profile, by which it has this class.
fn fio_by_every_engine(profile: &str, name: &str, class: &str) {
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    let place = Workspace::new("fio").unwrap();
    let dir = place.protect(&product, profile).unwrap_or_else(|error| panic!("{error}"));
    let file = dir.join(name);
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    let mut verified = 0;
    for engine in ["psync", "sync", "pvsync", "libaio", "io_uring", "mmap"] {
        for direct in ["0", "1"] {
            for size in ["512", "1k", "4k", "8k", "13k", "16k", "64k", "256k", "1m"] {
                if direct == "1" && size == "13k" {
                    // Not what devices write directly.
                    continue;
                }
                // A map has whole pages.
                if engine == "mmap" && matches!(size, "512" | "1k" | "13k") {
                    continue;
                }
                let _ = fs::remove_file(&file);
                let mut exec = place.command(&product);
                exec.arg("exec").arg("-D").arg(&dir).arg("--").current_dir(place.plain());
                let (good, said) = fio(exec, &file, engine, direct, size);
                let refused = REFUSED.iter().find(|(name, _)| *name == engine);
                let named = format!("{class} {engine} direct={direct} bs={size}: {said}");
                match refused {
                    Some((_, words)) => assert!(!good && said.contains(words), "{named}"),
                    None => assert!(good, "{named}"),
                }
                assert!(!said.contains("verify:"), "{named}");
                verified += u32::from(good);
                if good {
                    let told = place.command(&product).arg("inspect").arg(&file).finish().unwrap();
                    let told = String::from_utf8_lossy(&told.stdout).into_owned();
                    let line = told.lines().find(|line| line.starts_with("class"));
                    assert!(line.is_some_and(|line| line.ends_with(class)), "{named}\n{told}");
                }
            }
        }
    }
    assert_eq!(verified, 4 * (9 + 8));
    place.verify(&product, &dir).unwrap_or_else(|error| panic!("{error}"));
}

/// Writes the file and verifies it, by a command that has the program and its arguments at its end.
fn fio(mut fio: Command, file: &Path, engine: &str, direct: &str, size: &str) -> (bool, String) {
    fio.args(["/usr/bin/fio", "--name=job", "--thread"]);
    fio.arg(format!("--filename={}", file.display()));
    fio.args(["--size=4m", "--rw=randwrite", "--verify=crc32c", "--verify_fatal=1"]);
    // Of the engines that have more than one request under way.
    fio.arg("--iodepth=16");
    fio.args([
        format!("--ioengine={engine}"),
        format!("--direct={direct}"),
        format!("--bs={size}"),
    ]);
    let done = fio.finish().unwrap();
    let said = [done.stdout, done.stderr].concat();
    (done.status.success(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
#[ignore = "long: make test-full"]
fn programs_of_five_languages_see_what_they_see_of_plain_files() {
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    for (program, script) in [
        ("/usr/bin/python3", "files.py"),
        ("/usr/bin/perl", "files.pl"),
        ("/usr/bin/ruby", "files.rb"),
        ("/usr/bin/node", "files.js"),
        ("/usr/bin/java", "Files.java"),
    ] {
        if !Path::new(program).exists() {
            skip::missing(program);
            continue;
        }
        let place = Workspace::new("languages").unwrap();
        let dir = place.protect(&product, "generic").unwrap_or_else(|error| panic!("{error}"));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("languages").join(script);
        let mut plain = Command::new(program);
        let plain = plain.arg(&script).arg(place.plain()).finish().unwrap();
        assert!(plain.status.success(), "{program}: {}", String::from_utf8_lossy(&plain.stderr));
        let mut sealed = place.command(&product);
        sealed.arg("exec").arg("-D").arg(&dir).args(["--", program]).arg(&script).arg(&dir);
        let sealed = sealed.finish().unwrap();
        let words = String::from_utf8_lossy(&sealed.stderr);
        assert!(sealed.status.success(), "{program}: {words}");
        assert!(!plain.stdout.is_empty() && plain.stdout == sealed.stdout, "{program}: {words}");
        place.verify(&product, &dir).unwrap_or_else(|error| panic!("{program}: {error}"));
    }
}

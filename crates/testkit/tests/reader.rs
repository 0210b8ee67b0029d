//! A second opinion on the format: the reader in Python, written from FORMAT.md alone, reads what the library
//! wrote, and the command reads the same.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tidelock_servers::Bounded as _;
use tidelock_testkit::twins::{Place, Product};

/// Debian's, which has `python3-cryptography`; another one on the path may not.
const PYTHON: &str = "/usr/bin/python3";

fn reader(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("reader").join(name)
}

fn files_below(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("the directory can be listed") {
        let path = entry.expect("an entry can be read").path();
        if path.file_name() == Some(OsStr::new(".tidelock")) {
            continue;
        }
        if path.is_dir() { files_below(&path, found) } else { found.push(path) }
    }
}

#[test]
fn the_independent_reader_sees_what_was_written() {
    let product = Product::find().unwrap();
    let place = Place::new("reader").unwrap();
    let sealed = place.protect(&product, "postgres").unwrap();
    let writer = reader("write_files.py");
    let python = Path::new(PYTHON);
    let plain = place.plain();
    let written = Command::new(python).arg(&writer).arg(&plain).finish().unwrap();
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    let args = [writer.as_os_str(), sealed.as_os_str()];
    let ended = place.run_sealed(&product, python, &args, &sealed).unwrap();
    assert!(ended.good(), "{ended}");

    let mut files = Vec::new();
    files_below(&plain, &mut files);
    assert_eq!(files.len(), 3 * 19);
    for path in files {
        let name = path.strip_prefix(&plain).unwrap();
        let expected = fs::read(&path).unwrap();
        let there = sealed.join(name);
        let raw = fs::read(&there).unwrap();
        assert!(expected.is_empty() || raw.starts_with(b"\x89TDLK"), "{} is plain", name.display());
        let read = Command::new(python)
            .arg(reader("tidelock_reader.py"))
            .arg(sealed.join(".tidelock/keyring"))
            .arg("--key-file")
            .arg(sealed.with_file_name("key"))
            .arg(&there)
            .finish()
            .unwrap();
        let said = String::from_utf8_lossy(&read.stderr);
        assert!(read.status.success(), "{}: {said}", name.display());
        assert!(read.stdout == expected, "{}: the reader sees other bytes", name.display());
        let by_command = place.cat(&product, &there).unwrap();
        assert!(by_command == expected, "{}: the command sees other bytes", name.display());
    }
}

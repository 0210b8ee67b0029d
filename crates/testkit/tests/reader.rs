//! A second opinion on the format: the reader in Python, written from FORMAT.md alone, reads what
//! the library wrote, and the command reads the same.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tidelock_servers::Bounded as _;
use tidelock_testkit::twins::{Product, Workspace};

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
    let place = Workspace::new("reader").unwrap();
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

/// The keyring and what opens it are enough: a passphrase byte by byte, or the recovery key, and
/// nothing else that lies in `.tidelock`.
#[test]
fn a_passphrase_counts_byte_by_byte_and_the_keyring_is_enough() {
    let product = Product::find().unwrap();
    let place = Workspace::new("reader").unwrap();
    let scratch = place.programs();
    let (dir, words, recovery) = (scratch.join("dir"), scratch.join("words"), scratch.join("key"));
    // Blanks at both ends, a tab, what is no UTF-8, and a composed and a decomposed letter.
    let typed: &[u8] = b" w\xc3\xb6rds wo\xcc\x88rds \xff\t ";
    fs::write(&words, [typed, b"\nanother line"].concat()).unwrap();
    let mut init = place.command(&product);
    init.args(["init", "--profile", "generic", "--provider", "passphrase", "--passphrase-fd", "0"]);
    init.arg("--weak-passphrase").arg("--recovery-file").arg(&recovery).arg(&dir);
    let made = place.fed(&init, &words).finish().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let plain = scratch.join("plain");
    fs::write(&plain, "plain words").unwrap();
    let mut seal = place.command(&product);
    seal.args(["seal", "--file", "--recovery-file"]).arg(&recovery).arg("-D").arg(&dir);
    let sealed = place.fed(&seal, &plain).finish().unwrap();
    assert!(sealed.status.success(), "{}", String::from_utf8_lossy(&sealed.stderr));
    let file = dir.join("notes");
    fs::write(&file, &sealed.stdout).unwrap();
    for name in ["lock", "keyring.lock"] {
        let path = dir.join(".tidelock").join(name);
        if path.symlink_metadata().is_ok() {
            fs::remove_file(path).unwrap();
        }
    }

    let read = |passphrase: &[u8]| {
        fs::write(&words, passphrase).unwrap();
        let mut read = Command::new(PYTHON);
        read.arg(reader("tidelock_reader.py")).arg(dir.join(".tidelock/keyring"));
        let python = read.arg("--passphrase-file").arg(&words).arg(&file).finish().unwrap();
        let mut cat = place.command(&product);
        cat.args(["cat", "--provider", "passphrase", "--passphrase-fd", "0"]).arg(&file);
        let command = place.fed(&cat, &words).finish().unwrap();
        [python, command].map(|done| (done.status.success(), done.stdout))
    };
    let good = (true, b"plain words".to_vec());
    for right in [typed, &[typed, b"\n"].concat(), &[typed, b"\nanything"].concat()] {
        assert_eq!(read(right), [good.clone(), good.clone()]);
    }
    let bad = (false, Vec::new());
    for wrong in [typed.trim_ascii(), &typed.to_ascii_uppercase(), &[typed, b"\r\n"].concat()] {
        assert_eq!(read(wrong), [bad.clone(), bad.clone()], "{wrong:?}");
    }
    let text = fs::read_to_string(&recovery).unwrap();
    let mut read = Command::new(PYTHON);
    read.arg(reader("tidelock_reader.py")).arg(dir.join(".tidelock/keyring"));
    let by_recovery = read.arg("--recovery").arg(text.trim()).arg(&file).finish().unwrap();
    assert_eq!(by_recovery.stdout, good.1, "{}", String::from_utf8_lossy(&by_recovery.stderr));
}

//! Sealed files that an earlier build wrote, kept in `fossils/VERSION/OFFSET`, open for ever: by
//! the library, by the command and by the independent reader, to the bytes whose sums
//! `fossils/VERSION/OFFSET.sums` has.
//!
//! A new set, when the format gets a new version or a new form of file, is made by
//! `TIDELOCK_FOSSILS=crates/testkit/fossils/VERSION cargo test -p tidelock-testkit --test fossils
//! -- --ignored`; a set that exists is never written again. `fossils/v1-streams` has sealed
//! streams, whose plain bytes are those of the files in `fossils/v1/4096/bytes`;
//! `make_stream_fossils` made it.
//! `fossils/v1-whole` is an archive of three texts that `tidelock wal put` wrote.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use tidelock_servers::Bounded as _;
use tidelock_testkit::twins::{Product, Workspace};

/// Debian's, which has `python3-cryptography`; another one on the path may not.
const PYTHON: &str = "/usr/bin/python3";
const SUMS: &str = "/usr/bin/sha256sum";
const PATIENCE: Duration = Duration::from_secs(300);
const OFFSETS: [&str; 2] = ["4096", "8192"];

fn testkit(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Output of a command that must end well.
fn must(command: &mut Command) -> Vec<u8> {
    let done = command.finish().unwrap_or_else(|why| panic!("{why}"));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {}\n{said}", done.status);
    done.stdout
}

/// The names in a file of sums, each with its line.
fn names(sums: &Path) -> Vec<(String, String)> {
    let text = fs::read_to_string(sums).expect("the set is whole");
    let line = |line: &str| {
        let (sum, name) = line.split_once("  ").expect("a sum and a name");
        (name.to_owned(), sum.to_owned())
    };
    text.lines().map(line).collect()
}

/// `sha256sum --check` of the files below `dir`, run as `prefix SUMS --check LIST`.
fn check(dir: &Path, list: &Path, wanted: &[(String, String)], mut run: Command) {
    let lines: Vec<String> =
        wanted.iter().map(|(name, sum)| format!("{sum}  {}\n", dir.join(name).display())).collect();
    fs::write(list, lines.concat()).expect("the scratch directory can be written");
    let told = must(run.arg("--check").arg(list));
    let good = String::from_utf8_lossy(&told).lines().filter(|line| line.ends_with(": OK")).count();
    assert_eq!(good, wanted.len(), "{}", String::from_utf8_lossy(&told));
}

/// One set, copied to where keys may lie: a key file is refused when others can read it.
struct Fossils {
    dir: PathBuf,
    provider: String,
    key: PathBuf,
    wanted: Vec<(String, String)>,
}

impl Fossils {
    fn copy(place: &Workspace, version: &str, offset: &str) -> Self {
        let kept = testkit("fossils").join(version);
        let root = place.programs();
        let dir = root.join(offset);
        must(Command::new("cp").arg("-dR").arg(kept.join(offset)).arg(&dir));
        let key = root.join(format!("{offset}.key"));
        fs::copy(kept.join(format!("{offset}.key")), &key).expect("the set is whole");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600))
            .expect("the scratch directory is ours");
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700))
            .expect("the scratch directory is ours");
        fs::set_permissions(dir.join(".tidelock"), fs::Permissions::from_mode(0o700))
            .expect("the scratch directory is ours");
        let wanted = names(&kept.join(format!("{offset}.sums")));
        let provider = format!("file:{}", key.display());
        Self { dir, provider, key, wanted }
    }
}

fn opens_for_ever(version: &str, offset: &str, count: usize) {
    let product = Product::find().expect("the command and the library are built");
    let place = Workspace::new("fossils").expect("a scratch directory can be made");
    let fossils = Fossils::copy(&place, version, offset);
    let Fossils { dir, provider, key, wanted } = &fossils;
    assert_eq!(wanted.len(), count);
    for (name, _) in wanted.iter().filter(|(name, _)| !name.ends_with("/0")) {
        let raw = fs::read(dir.join(name)).expect("the set is whole");
        let header = if name.ends_with("lost-a") { &raw[512..] } else { &raw[..] };
        assert!(header.starts_with(b"\x89TDLK"), "{name} has no header");
    }
    let list = place.programs().join("list");

    let exec = |program| {
        let mut exec = place.command(&product);
        exec.args(["exec", "--provider", provider, "-D"]).arg(dir).arg("--").arg(program);
        exec
    };
    let start = Instant::now();
    // An agent has a keyring open for one directory: another copy of the set may be under test.
    while !exec("/bin/true").finish().expect("the program ends").status.success() {
        assert!(start.elapsed() < PATIENCE, "{:?}", exec("/bin/true").finish());
        thread::sleep(Duration::from_millis(500));
    }
    check(dir, &list, wanted, exec(SUMS));

    for reader in ["reader", "command"] {
        let plain = place.programs().join(reader);
        for (name, _) in wanted {
            let mut read = if reader == "reader" {
                let mut python = Command::new(PYTHON);
                python.arg(testkit("reader/tidelock_reader.py")).arg(dir.join(".tidelock/keyring"));
                python.arg("--key-file").arg(key);
                python
            } else {
                let mut cat = place.command(&product);
                cat.args(["cat", "--provider", provider]);
                cat
            };
            let bytes = must(read.arg(dir.join(name)));
            fs::create_dir_all(plain.join(name).parent().unwrap_or(&plain))
                .expect("the scratch directory is ours");
            fs::write(plain.join(name), bytes).expect("the scratch directory can be written");
        }
        check(&plain, &list, wanted, Command::new(SUMS));
    }
    must(place.command(&product).args(["verify", "--provider", provider, "-D"]).arg(dir));
}

#[test]
fn fossils_of_version_1_with_data_at_4096_open() {
    opens_for_ever("v1", "4096", 12);
}

#[test]
fn fossils_of_version_1_with_data_at_8192_open() {
    opens_for_ever("v1", "8192", 9);
}

/// Whole files, as `tidelock wal put` writes them: the independent reader proves them too.
#[test]
fn fossils_of_whole_files_open() {
    opens_for_ever("v1-whole", "8192", 3);
}

/// The sums are of bytes that follow from the names alone, not of whatever a reader made of the
/// files.
#[test]
fn the_sums_are_those_of_the_writer() {
    for offset in OFFSETS {
        let place = Workspace::new("fossils").expect("a scratch directory can be made");
        let plain = place.plain();
        must(Command::new(PYTHON).arg(testkit("reader/write_fossils.py")).arg(&plain).arg(offset));
        let wanted = names(&testkit("fossils/v1").join(format!("{offset}.sums")));
        check(&plain, &place.programs().join("list"), &wanted, Command::new(SUMS));
    }
}

/// Sealed streams with an end mark: by `unseal`, by `cat` and by the independent reader.
#[test]
fn fossils_of_streams_open() {
    let product = Product::find().expect("the command and the library are built");
    let place = Workspace::new("fossils").expect("a scratch directory can be made");
    let kept = testkit("fossils/v1-streams");
    let key = place.programs().join("key");
    fs::copy(kept.join("key"), &key).expect("the set is whole");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600))
        .expect("the scratch directory is ours");
    let provider = format!("file:{}", key.display());
    let sums = names(&testkit("fossils/v1/4096.sums"));
    let wanted: Vec<_> = sums.into_iter().filter(|(name, _)| is_size(name)).collect();
    assert_eq!(wanted.len(), STREAMS.len());
    let command = |verb| {
        let mut command = place.command(&product);
        command.args([verb, "--provider", &provider, "--keyring"]).arg(kept.join("keyring"));
        command
    };
    for by in ["unseal", "cat", "reader"] {
        let plain = place.programs().join(by);
        fs::create_dir_all(plain.join("bytes")).expect("the scratch directory is ours");
        for (name, _) in &wanted {
            let stream = kept.join(name);
            let mut read = match by {
                "unseal" => command("unseal"),
                "cat" => command("cat"),
                _ => {
                    let mut python = Command::new(PYTHON);
                    python.arg(testkit("reader/tidelock_reader.py")).arg(kept.join("keyring"));
                    python.arg("--key-file").arg(&key);
                    python
                }
            };
            if by == "unseal" {
                read = place.fed(&read, &stream);
            } else {
                read.arg(&stream);
            }
            fs::write(plain.join(name), must(&mut read))
                .expect("the scratch directory can be written");
        }
        check(&plain, &place.programs().join("list"), &wanted, Command::new(SUMS));
    }
}

const STREAMS: [u64; 9] = [0, 1, 15, 16, 17, 4095, 4096, 4097, 8197];

/// `bytes/SIZE`.
fn is_size(name: &str) -> bool {
    let size = name.strip_prefix("bytes/").and_then(|size| size.parse().ok());
    size.is_some_and(|size| STREAMS.contains(&size))
}

#[test]
#[ignore = "makes a new set of streams in TIDELOCK_FOSSILS, which must not exist"]
fn make_stream_fossils() {
    let Some(target) = env::var_os("TIDELOCK_FOSSILS").map(PathBuf::from) else { return };
    let target = testkit("../..").join(target);
    fs::create_dir(&target).expect("fossils are never written again: name a new directory");
    fs::create_dir(target.join("bytes")).expect("it was just made");
    let product = Product::find().expect("the command and the library are built");
    let place = Workspace::new("fossils").expect("a scratch directory can be made");
    let profile = place.programs().join("profile.toml");
    fs::write(&profile, PROFILE.replace("OFFSET", "4096"))
        .expect("the scratch directory can be written");
    let dir = place
        .protect(&product, profile.to_str().expect("a scratch directory has a plain name"))
        .expect("the directory can be made");
    let plain = place.plain();
    must(Command::new(PYTHON).arg(testkit("reader/write_fossils.py")).arg(&plain).arg("4096"));
    for name in STREAMS.map(|size| format!("bytes/{size}")) {
        let mut seal = place.command(&product);
        seal.arg("seal").arg("-D").arg(&dir);
        let mut seal = place.fed(&seal, &plain.join(&name));
        fs::write(target.join(&name), must(&mut seal)).expect("the set can be written");
    }
    for (from, to) in
        [(dir.join(".tidelock/keyring"), "keyring"), (dir.with_file_name("key"), "key")]
    {
        fs::copy(from, target.join(to)).expect("the set can be written");
    }
}

#[test]
#[ignore = "makes a new set of fossils in TIDELOCK_FOSSILS, which must not exist"]
fn make_fossils() {
    let Some(target) = env::var_os("TIDELOCK_FOSSILS").map(PathBuf::from) else { return };
    let target = testkit("../..").join(target);
    fs::create_dir(&target).expect("fossils are never written again: name a new directory");
    let product = Product::find().expect("the command and the library are built");
    let place = Workspace::new("fossils").expect("a scratch directory can be made");
    for offset in OFFSETS {
        let profile = place.programs().join(format!("{offset}.toml"));
        fs::write(&profile, PROFILE.replace("OFFSET", offset))
            .expect("the scratch directory can be written");
        let dir = target.join(offset);
        let key = target.join(format!("{offset}.key"));
        let mut init = place.command(&product);
        init.arg("init").arg(&dir).arg("--profile").arg(&profile).arg("--no-recovery");
        must(init.arg("--provider").arg(format!("file:{}", key.display())));
        let writer = testkit("reader/write_fossils.py");
        let mut write = place.command(&product);
        write.args(["exec", "-D"]).arg(&dir).arg("--").arg(PYTHON).arg(&writer).arg(&dir);
        must(write.arg(offset));
        let plain = place.plain();
        must(Command::new(PYTHON).arg(&writer).arg(&plain).arg(offset));
        let find = "find * -type f | LC_ALL=C sort | xargs sha256sum";
        let sums = must(Command::new("sh").args(["-c", find]).current_dir(&plain));
        fs::write(target.join(format!("{offset}.sums")), sums)
            .expect("the scratch directory can be written");
        fs::remove_dir_all(&plain).expect("the set is whole");
        lose_copies(&dir);
        // Only record locks lie on it.
        fs::write(dir.join(".tidelock/lock"), "").expect("the scratch directory can be written");
    }
}

/// Zeros where one copy of the header was.
fn lose_copies(dir: &Path) {
    for class in ["bytes", "paged", "log"] {
        for (name, at) in [("lost-a", 0), ("lost-b", 512)] {
            let path = dir.join(class).join(name);
            let Ok(mut bytes) = fs::read(&path) else { continue };
            bytes[at..at + 256].fill(0);
            fs::write(&path, bytes).expect("the scratch directory can be written");
        }
    }
}

const PROFILE: &str = "\
name = \"fossils\"
data_offset = OFFSET
programs = []
recovery = []

[[rule]]
glob = \"paged/**\"
class = \"paged\"

[[rule]]
glob = \"log/**\"
class = \"log\"

[[rule]]
glob = \"**\"
class = \"bytes\"
";

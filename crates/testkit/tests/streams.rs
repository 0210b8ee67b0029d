//! A sealed stream that was cut, changed, or joined with another one ends `tidelock unseal` with 5,
//! wherever that happened; a whole one comes back as it was.
//!
//! Every length and every byte of a stream are tried within the command's own tests; here are the
//! edges, through pipes, and what the independent reader says.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tidelock_servers::Bounded as _;
use tidelock_testkit::twins::{Product, Workspace};

/// Debian's, which has `python3-cryptography`; another one on the path may not.
const PYTHON: &str = "/usr/bin/python3";
/// Where the data of the profile `postgres` begin.
const START: usize = 8192;
const BROKEN: Option<i32> = Some(5);

struct Streams {
    product: Product,
    place: Workspace,
    dir: PathBuf,
}

impl Streams {
    fn new() -> Self {
        let product = Product::find().expect("the command and the library are built");
        let place = Workspace::new("streams").expect("a scratch directory can be made");
        let dir = place.protect(&product, "postgres").expect("the directory can be made");
        Self { product, place, dir }
    }

    fn run(&self, verb: &str, input: &[u8]) -> Output {
        let file = self.place.programs().join("input");
        fs::write(&file, input).expect("the scratch directory can be written");
        let mut command = self.place.command(&self.product);
        command.arg(verb).arg("-D").arg(&self.dir);
        self.place.fed(&command, &file).finish().expect("the command runs")
    }

    fn seal(&self, plain: &[u8]) -> Vec<u8> {
        let done = self.run("seal", plain);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        done.stdout
    }

    fn must_break(&self, stream: &[u8], plain: &[u8], what: &str) {
        let done = self.run("unseal", stream);
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), BROKEN, "{what}: {said}");
        assert!(said.contains("do not trust what was written"), "{what}: {said}");
        assert!(plain.starts_with(&done.stdout) || what.contains("byte"), "{what}: other bytes");
    }

    fn by_reader(&self, stream: &[u8]) -> Output {
        let file = self.place.programs().join("stream");
        fs::write(&file, stream).expect("the scratch directory can be written");
        let reader = Path::new(env!("CARGO_MANIFEST_DIR")).join("reader/tidelock_reader.py");
        let mut read = Command::new(PYTHON);
        read.arg(reader).arg(self.dir.join(".tidelock/keyring"));
        read.arg("--key-file").arg(self.dir.with_file_name("key")).arg(file);
        read.finish().expect("python runs")
    }
}

fn content(size: usize) -> Vec<u8> {
    (0..size).map(|at| u8::try_from((at * 137 + at / 241 + size) % 255 + 1).unwrap_or(1)).collect()
}

#[test]
fn a_whole_stream_comes_back_and_a_cut_one_is_told() {
    let streams = Streams::new();
    for size in [0, 1, 16, 17, 4096, 4097, 262_144, 262_145, 1_000_003] {
        let plain = content(size);
        let stream = streams.seal(&plain);
        let back = streams.run("unseal", &stream);
        assert!(back.status.success(), "{size}: {}", String::from_utf8_lossy(&back.stderr));
        assert!(back.stdout == plain, "{size}: other bytes");
        assert!(back.stderr.is_empty(), "{size}: {}", String::from_utf8_lossy(&back.stderr));
        let read = streams.by_reader(&stream);
        assert!(read.stdout == plain, "{size}: {}", String::from_utf8_lossy(&read.stderr));
        let end = stream.len();
        let cuts = [START, START + 16, START + 4096, end / 2 / 16 * 16, end / 2];
        let near = [1, 8, 15, 16, 17, 32, 48, 63, 64, 65, 80, 96, 112].map(|less| end - less);
        for cut in cuts.into_iter().chain(near).filter(|cut| *cut < end) {
            streams.must_break(&stream[..cut], &plain, &format!("{size} bytes, cut at {cut}"));
        }
    }
    for cut in [0, 1, 255, 256, 700, 768, START - 1] {
        streams.must_break(&streams.seal(b"x")[..cut], b"", &format!("cut at {cut}"));
    }
}

#[test]
fn a_stream_that_was_changed_anywhere_is_told() {
    let streams = Streams::new();
    let plain = content(300_000);
    let stream = streams.seal(&plain);
    let end = stream.len();
    for at in
        [START, START + 5000, START + 262_144, end - 65, end - 64, end - 50, end - 40, end - 1]
    {
        let mut changed = stream.clone();
        changed[at] ^= 0x10;
        streams.must_break(&changed, &plain, &format!("byte {at}"));
    }
    // Not only in what is secret: the slack of the header too.
    let mut changed = stream.clone();
    changed[3000] = 1;
    streams.must_break(&changed, &plain, "the byte 3000 of the slack");
    for (at, len) in [(START + 8192, 4096), (START + 16, 16), (START, 300_000), (end - 64, 64)] {
        let mut zeroed = stream.clone();
        zeroed[at..at + len].fill(0);
        streams.must_break(&zeroed, &plain, &format!("{len} zeros at {at}"));
    }
    let mut swapped = stream.clone();
    swapped.copy_within(START..START + 4096, START + 4096);
    streams.must_break(&swapped, &plain, "a unit twice: other bytes");
    let without = [&stream[..START + 4096], &stream[START + 8192..]].concat();
    streams.must_break(&without, &plain, "a unit less: other bytes");
    let other = streams.seal(&plain);
    streams.must_break(&[&stream[..], &other].concat(), &plain, "two streams: other bytes");
    streams.must_break(
        &[&stream[..end - 64], &other[other.len() - 64..]].concat(),
        &plain,
        "another's end",
    );
    streams.must_break(&[&stream[..], &[0; 16]].concat(), &plain, "a block more: other bytes");
    assert!(
        !streams
            .by_reader(&[&stream[..end - 64], &other[other.len() - 64..]].concat())
            .status
            .success()
    );
}

/// A file that was sealed without an end mark is what earlier versions wrote into pipes.
#[test]
fn a_stream_without_an_end_mark_is_read_with_a_warning() {
    let streams = Streams::new();
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("fossils/v1");
    let key = streams.place.programs().join("old.key");
    fs::copy(old.join("4096.key"), &key).expect("the set is whole");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(&key, mode).expect("the scratch directory is ours");
    let unseal = |bytes: &[u8]| {
        let file = streams.place.programs().join("old");
        fs::write(&file, bytes).expect("the scratch directory can be written");
        let mut unseal = streams.place.command(&streams.product);
        unseal.arg("unseal").arg("--keyring").arg(old.join("4096/.tidelock/keyring"));
        unseal.arg("--provider").arg(format!("file:{}", key.display()));
        streams.place.fed(&unseal, &file).finish().expect("the command runs")
    };
    for size in [1, 16, 4097, 8197] {
        let stream = fs::read(old.join("4096/bytes").join(size.to_string())).expect("it is there");
        let back = unseal(&stream);
        let said = String::from_utf8_lossy(&back.stderr);
        assert!(back.status.success(), "{said}");
        assert!(back.stdout == content(size), "{size}: other bytes");
        assert!(said.contains("the stream has no end mark"), "{said}");
        // Zeros are damage here too.
        let mut zeroed = stream;
        zeroed[4096..4112].fill(0);
        assert_eq!(unseal(&zeroed).status.code(), BROKEN);
    }
}

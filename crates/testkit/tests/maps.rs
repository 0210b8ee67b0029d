//! A map that is refused says which file it was for, once. The real programs: git and Java here,
//! engines in `engines.rs`, PostgreSQL in `postgres_refusals.rs`.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output};

use tidelock_servers::{Bounded as _, skip};
use tidelock_testkit::twins::{Product, Workspace};

const PYTHON: &str = "/usr/bin/python3";

/// Each map that is asked for, and what comes of it.
const PROGRAM: &str = r#"
import mmap, os, resource, sys
def ask(name, flags, protection, size):
    fd = os.open(os.path.join(sys.argv[1], name), os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(fd, size)
    try:
        mmap.mmap(fd, size, flags, protection)
        print(name, "mapped")
    except OSError as error:
        print(name, os.strerror(error.errno))
    os.close(fd)
resource.setrlimit(resource.RLIMIT_NOFILE, (3000, 3000))
fd = os.open(os.path.join(sys.argv[1], "copies"), os.O_RDWR | os.O_CREAT, 0o600)
os.ftruncate(fd, 4096)
copies = []
try:
    while len(copies) < 2000:
        copies.append(mmap.mmap(fd, 4096, mmap.MAP_PRIVATE, mmap.PROT_READ))
except OSError as error:
    print(len(copies), "copies, then", os.strerror(error.errno))
del copies
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
    assert!(told.contains("1024 copies, then Cannot allocate memory"), "{told}");
    for (name, way) in [
        ("read", "let the program read without maps"),
        ("written", "dynamic_shared_memory_type = posix"),
        ("large", "core.packedGitWindowSize"),
        ("copies", "map fewer files at once"),
    ] {
        let file = dir.join(name).display().to_string();
        let lines: Vec<&str> =
            words.lines().filter(|line| line.contains(&format!("{file}: "))).collect();
        assert!(lines.len() == 1 && lines[0].contains(way), "{name}: {lines:#?}");
    }
    assert!(!words.contains("sealed/private:"), "{words}");
    // A program that maps thousands of files does not fill the log.
    assert_eq!(words.lines().filter(|line| line.contains("/many")).count(), 12, "{words}");
}

/// The file goes on behind a copy of its first page: zeros there would be wrong.
const GROWS: &str = r#"
import mmap, os, sys
fd = os.open(os.path.join(sys.argv[1], "file"), os.O_RDWR | os.O_CREAT, 0o600)
os.write(fd, b"x" * 12288)
part = mmap.mmap(fd, 4096, mmap.MAP_PRIVATE)
try:
    part.resize(8192)
    print(part[8191:8192])
except OSError as error:
    print(os.strerror(error.errno))
try:
    os.symlink(sys.argv[2], os.path.join(sys.argv[1], "link"))
    print("linked")
except OSError as error:
    print(os.strerror(error.errno))
os.symlink(os.path.dirname(sys.argv[2]), os.path.join(sys.argv[1], "links"))
print("linked")
"#;

#[test]
fn a_map_that_cannot_grow_and_a_link_to_a_file_outside_are_refused() {
    if !Path::new(PYTHON).exists() {
        skip::missing(PYTHON);
        return;
    }
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    let place = Workspace::new("grows").unwrap();
    let dir = place.protect(&product, "generic").unwrap_or_else(|error| panic!("{error}"));
    let outside = place.plain().join("outside");
    fs::write(&outside, "words").unwrap();
    let mut python = place.command(&product);
    python.arg("exec").arg("-D").arg(&dir).args(["--", PYTHON, "-c", GROWS]).args([&dir, &outside]);
    let done = python.finish().unwrap();
    let (told, words) =
        (String::from_utf8(done.stdout).unwrap(), String::from_utf8(done.stderr).unwrap());
    assert!(done.status.success(), "{words}");
    assert_eq!(told, "Cannot allocate memory\nOperation not supported\nlinked\n");
    assert!(words.contains("link: a link to a file outside"), "{words}");
}

/// A listed shell opens the file; the program that it starts gets a descriptor that nobody can use,
/// whether it is listed or not.
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
    for listed in [false, true] {
        if listed {
            let mut set = place.command(&product);
            set.args(["profile", "set", "--program", "cat", "-D"]).arg(&dir);
            assert!(set.finish().unwrap().status.success(), "{set:?}");
        }
        let (good, words) = run("cd \"$1\" && echo words > a && cat a > b");
        assert!(!good && words.contains("standard output is a sealed file"), "{words}");
        let (good, words) = run("cd \"$1\" && cat < a");
        assert!(!good && words.contains("standard input is a sealed file"), "{words}");
        // The shell's own redirections work, and pipes say nothing.
        let (good, words) = run("cd \"$1\" && read x < a && echo \"$x\" | cat > /dev/null");
        assert!(good && words.is_empty(), "{words}");
    }
    place.verify(&product, &dir).unwrap_or_else(|error| panic!("{error}"));
}

/// What such a program says would reach nobody. Scripts of a server of MariaDB, which writes its
/// error log by both, do their work all the same.
#[test]
fn a_program_whose_output_and_error_are_a_sealed_file_does_not_end_well() {
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    for (profile, ends_well) in [("generic", false), ("mariadb", true)] {
        let place = Workspace::new("children").unwrap();
        let dir = place.protect(&product, profile).unwrap_or_else(|error| panic!("{error}"));
        let run = |script: &str| {
            let mut shell = place.command(&product);
            shell.arg("exec").arg("-D").arg(&dir).args(["--", "/bin/sh", "-c", script, "sh"]);
            shell.arg(&dir).finish().unwrap()
        };
        for script in [
            "cd \"$1\"; > log; /bin/true > log 2>&1; echo $?",
            "cd \"$1\"; > log; (exec > log 2>&1; /bin/true); echo $?",
        ] {
            let done = run(script);
            let code = if ends_well { "0\n" } else { "3\n" };
            assert_eq!(String::from_utf8_lossy(&done.stdout), code, "{profile}: {script}");
        }
        // Without its standard error alone its work may be good.
        let done = run("cd \"$1\"; > log; /bin/echo words 2> log");
        assert_eq!(String::from_utf8_lossy(&done.stdout), "words\n", "{profile}");
        assert!(done.status.success(), "{profile}");
    }
}

/// The log of SQLite's WAL mode, whose index is mapped.
const WAL: &str = "
import sqlite3, sys
rows = sqlite3.connect(sys.argv[1])
print(rows.execute('PRAGMA journal_mode = wal').fetchone()[0])
rows.execute('CREATE TABLE IF NOT EXISTS t (a)')
rows.execute('INSERT INTO t VALUES (1)')
rows.commit()
print(rows.execute('SELECT sum(a) FROM t').fetchone()[0])
";

#[test]
fn the_index_of_a_log_that_a_profile_seals_is_named_with_a_way_out_that_works() {
    if !Path::new(PYTHON).exists() {
        skip::missing(PYTHON);
        return;
    }
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    let place = Workspace::new("wal").unwrap();
    let dir = place.protect(&product, "generic").unwrap_or_else(|error| panic!("{error}"));
    let run = || {
        let mut python = place.command(&product);
        python.arg("exec").arg("-D").arg(&dir).args(["--", PYTHON, "-c", WAL]);
        python.arg(dir.join("app.db")).finish().unwrap()
    };
    let refused = run();
    let words = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{words}");
    assert!(words.contains("app.db-shm: SQLite maps the index of its log"), "{words}");
    assert!(words.contains("--plain '**/*-shm'"), "{words}");
    fs::remove_file(dir.join("app.db-shm")).unwrap();
    let mut set = place.command(&product);
    ended_well(set.args(["profile", "set", "--plain", "**/*-shm", "-D"]).arg(&dir));
    let done = run();
    let words = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{words}");
    assert_eq!(String::from_utf8_lossy(&done.stdout), "wal\n1\n");
    place.verify(&product, &dir).unwrap_or_else(|error| panic!("{error}"));
}

/// A pack over 256 MiB, which git would map as a whole, and one that it may only map in windows.
#[test]
#[ignore = "long: make test-full"]
fn git_is_told_of_the_window_that_large_packs_need_and_reads_them_with_it() {
    let git = "/usr/bin/git";
    if !Path::new(git).exists() {
        skip::missing(git);
        return;
    }
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    let place = Workspace::new("git").unwrap();
    let dir = place.protect(&product, "generic").unwrap_or_else(|error| panic!("{error}"));
    // git starts itself, by another path.
    let mut set = place.command(&product);
    ended_well(set.args(["profile", "set", "--program", "git", "-D"]).arg(&dir));
    let (folder, tree) = (dir.join("repository"), place.plain());
    let run = |words: &[&str]| -> Output {
        let mut command = place.command(&product);
        command.arg("exec").arg("-D").arg(&dir).args(["--", git, "--git-dir"]).arg(&folder);
        command.arg("--work-tree").arg(&tree).args(["-c", "user.name=n", "-c", "user.email=e"]);
        // Noise is not worth compressing.
        command.args(["-c", "core.compression=0"]).args(words).finish().unwrap()
    };
    let good = |words: &[&str]| {
        let done = run(words);
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{words:?}: {said}");
        done.stdout
    };
    good(&["init", "--quiet"]);
    let mut noise = fastrand::Rng::with_seed(1);
    let mut block = vec![0; 1 << 20];
    for name in ["a", "b", "c"] {
        let mut file = fs::File::create(tree.join(name)).unwrap();
        for _ in 0..96 {
            noise.fill(&mut block);
            file.write_all(&block).unwrap();
        }
    }
    good(&["add", "."]);
    good(&["commit", "--quiet", "-m", "one"]);
    let windows = ["-c", "core.packedGitWindowSize=128m"];
    good(&[&windows[..], &["repack", "-a", "-d", "--quiet"]].concat());
    let packs = fs::read_dir(folder.join("objects/pack")).unwrap();
    let sizes = packs.map(|entry| entry.unwrap().metadata().unwrap().len());
    assert!(sizes.max().unwrap() > 256 << 20);
    let refused = run(&["cat-file", "blob", "HEAD:a"]);
    let words = String::from_utf8_lossy(&refused.stderr);
    let line = words.lines().find(|line| line.contains(".pack: ")).unwrap_or_default();
    assert!(!refused.status.success(), "{words}");
    assert!(line.contains("tidelock: ") && line.contains("core.packedGitWindowSize"), "{words}");
    for name in ["a", "b", "c"] {
        let blob = format!("HEAD:{name}");
        let got = good(&[&windows[..], &["cat-file", "blob", &blob]].concat());
        assert!(got == fs::read(tree.join(name)).unwrap(), "{name} differs");
    }
    good(&[&windows[..], &["fsck", "--full"]].concat());
    place.verify(&product, &dir).unwrap_or_else(|error| panic!("{error}"));
}

fn ended_well(command: &mut Command) {
    let done = command.finish().unwrap_or_else(|error| panic!("{error}"));
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// Java maps also where it is asked to send one file to another.
#[test]
#[ignore = "long: make test-full"]
fn java_is_refused_shared_maps_and_what_it_does_by_them() {
    let java = "/usr/bin/java";
    if !Path::new(java).exists() {
        skip::missing(java);
        return;
    }
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    let place = Workspace::new("java").unwrap();
    let dir = place.protect(&product, "generic").unwrap_or_else(|error| panic!("{error}"));
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("languages/Maps.java");
    let plain = Command::new(java).arg(&script).arg(place.plain()).finish().unwrap();
    let told = String::from_utf8(plain.stdout).unwrap();
    assert!(told.lines().count() == 7 && !told.contains("No such device"), "{told}");
    let mut sealed = place.command(&product);
    sealed.arg("exec").arg("-D").arg(&dir).args(["--", java]).arg(&script).arg(&dir);
    let sealed = sealed.finish().unwrap();
    let words = String::from_utf8_lossy(&sealed.stderr);
    assert!(sealed.status.success(), "{words}");
    let found = String::from_utf8(sealed.stdout).unwrap();
    for (plain, sealed) in told.lines().zip(found.lines()) {
        let (name, _) = plain.split_once(": ").unwrap();
        let works = ["map PRIVATE", "Files.copy"].contains(&name);
        let wanted = if works { plain } else { &format!("{name}: No such device") };
        assert_eq!(sealed, wanted, "{found}");
    }
    assert_eq!(found.lines().count(), 7, "{found}");
    let line = format!("tidelock: {}: a shared map of a sealed file", dir.join("mapped").display());
    assert!(words.starts_with(&line) && words.contains("read without maps"), "{words}");
    place.verify(&product, &dir).unwrap_or_else(|error| panic!("{error}"));
}

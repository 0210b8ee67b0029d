//! A key is found in no core file: not of a server, not of a small program, not of the agent; nor
//! in environments, command lines and logs.
//!
//! Looked for are the principal key, the keyring key, the data keys, the header MAC keys and every
//! file key, in pieces of 16 bytes. A schedule of AES-256 has the key itself as its first two round
//! keys, in either direction, so pieces find schedules too. Whole memory, which root can read, must
//! hold the file keys, or the search proves nothing.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use aho_corasick::AhoCorasick;
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
use tidelock_servers::{Bounded as _, alone, skip};
use tidelock_testkit::pg::{Arm, Cluster, Process, Result, Workspace};

const PYTHON: &str = "/usr/bin/python3";
const PIECE: usize = 16;

/// Pieces of keys, raw and as hexadecimal digits, and what each belongs to.
struct Keys {
    names: Vec<String>,
    search: AhoCorasick,
}

impl Keys {
    fn of(cluster: &Cluster<'_>) -> Self {
        let name = cluster.dir().file_name().unwrap().to_string_lossy().into_owned();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("reader/print_keys.py");
        let key = cluster.workspace().join(&format!("home/{name}.key"));
        let mut python = alone(PYTHON);
        let told = python.arg("-B").arg(script).arg(cluster.dir()).arg(key);
        let told = told.finish().unwrap();
        assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        let (mut names, mut patterns) = (Vec::new(), Vec::new());
        for line in String::from_utf8(told.stdout).unwrap().lines() {
            let (what, digits) = line.split_once(' ').unwrap();
            for piece in digits.as_bytes().chunks(2 * PIECE) {
                names.extend([what.to_owned(), format!("{what} in digits")]);
                patterns.extend([HEXLOWER_PERMISSIVE.decode(piece).unwrap(), piece.to_vec()]);
            }
        }
        for what in ["principal", "keyring", "data", "mac", "file"] {
            assert!(names.iter().any(|name| name == what), "no {what} key is known");
        }
        Self { names, search: AhoCorasick::new(patterns).unwrap() }
    }

    /// What is found in these bytes, each kind once, with the place of the first.
    fn found(&self, haystack: &[u8]) -> Vec<String> {
        let mut kinds = BTreeSet::new();
        let mut found = Vec::new();
        for hit in self.search.find_iter(haystack) {
            let name = &self.names[hit.pattern().as_usize()];
            if kinds.insert(name) {
                found.push(format!("{name} at {:#x}", hit.start()));
            }
        }
        found
    }

    #[track_caller]
    fn absent(&self, path: &Path) {
        let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let found = self.found(&bytes);
        assert!(found.is_empty(), "{} ({} bytes): {found:?}", path.display(), bytes.len());
    }

    /// Environment and command line of a process.
    #[track_caller]
    fn absent_in_proc(&self, process: Process) {
        for name in ["environ", "cmdline"] {
            self.absent(Path::new(&format!("/proc/{}/{name}", process.id())));
        }
    }
}

/// Everything that can be read of a process, locked memory too.
fn memory(process: Process) -> Vec<u8> {
    let id = process.id();
    let file = File::open(format!("/proc/{id}/mem")).unwrap();
    let maps = fs::read_to_string(format!("/proc/{id}/maps")).unwrap();
    let mut all = Vec::new();
    for line in maps.lines().filter(|line| line.contains(" rw") && !line.contains("/dev/")) {
        let (range, _) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let start = u64::from_str_radix(start, 16).unwrap();
        let end = u64::from_str_radix(end, 16).unwrap();
        // Most of a large reservation was never touched: what is zero is not kept.
        let mut buffer = vec![0; 1 << 20];
        let mut at = start;
        while at < end {
            let part = buffer.len().min(usize::try_from(end - at).unwrap());
            let Ok(got @ 1..) = file.read_at(&mut buffer[..part], at) else { break };
            if buffer[..got].iter().any(|byte| *byte != 0) {
                all.extend_from_slice(&buffer[..got]);
            }
            at += got as u64;
        }
    }
    all
}

/// The kernel's own dump of a process, which ends by it; nothing where dumps go to a program, or
/// where an ordinary user may not raise the limit.
fn dump_by_kernel(process: Process, folder: &Path) -> Option<PathBuf> {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    if pattern.trim() != "core" {
        skip::because(format_args!("a part, since core_pattern is {pattern:?}"));
        return None;
    }
    let all = Rlimit { current: None, maximum: None };
    if let Err(why) = prlimit(Pid::from_raw(process.id()), Resource::Core, all) {
        skip::because(format_args!("a part, since the limit of core files stays: {why}"));
        return None;
    }
    process.signal(Signal::ABORT).unwrap();
    process.wait_gone(Duration::from_secs(60)).unwrap();
    let names = ["core".to_owned(), format!("core.{}", process.id())];
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(10) {
        if let Some(core) = names.iter().map(|name| folder.join(name)).find(|path| path.is_file()) {
            let aside = folder.join(format!("aside-{}", process.id()));
            fs::rename(core, &aside).unwrap();
            return Some(aside);
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("process {} left no core file", process.id());
}

/// gdb's dump of a process, which goes on; it leaves out what is marked so. Nothing if that is
/// refused.
fn dump_by_gdb(process: Process, folder: &Path) -> Option<PathBuf> {
    let prefix = folder.join("gcore");
    let id = process.id().to_string();
    let done = alone("gcore").arg("-o").arg(&prefix).arg(&id).finish().unwrap();
    let core = folder.join(format!("gcore.{id}"));
    if !core.is_file() {
        let said = String::from_utf8_lossy(&done.stderr);
        skip::because(format_args!("a part, since gcore is refused: {}", said.trim_end()));
    }
    core.is_file().then_some(core)
}

/// Whether the process has this file open.
fn holds(process: Process, path: &Path) -> bool {
    let held = fs::read_dir(format!("/proc/{}/fd", process.id())).into_iter().flatten().flatten();
    held.filter_map(|fd| fs::read_link(fd.path()).ok()).any(|link| link == path)
}

/// The agent that has this directory's keyring open, and its files.
fn agents(cluster: &Cluster<'_>) -> (Vec<Process>, BTreeSet<PathBuf>) {
    let keyring = fs::read(cluster.dir().join(".tidelock/keyring")).unwrap();
    let id = HEXLOWER.encode(&keyring[16..32]);
    let (mut agents, mut files) = (Vec::new(), BTreeSet::new());
    let entries = fs::read_dir("/proc").unwrap().filter_map(std::result::Result::ok);
    for process in
        entries.filter_map(|entry| Process::new(entry.file_name().to_str()?.parse().ok()?))
    {
        let held =
            fs::read_dir(format!("/proc/{}/fd", process.id())).into_iter().flatten().flatten();
        let links = held.filter_map(|fd| fs::read_link(fd.path()).ok());
        let mut ours = links.filter(|link| link.to_string_lossy().contains(&id)).peekable();
        if ours.peek().is_some() {
            agents.push(process);
            files.extend(ours);
        }
    }
    (agents, files)
}

#[test]
fn a_key_is_found_in_no_core_file() -> Result<()> {
    let place = Workspace::new()?;
    let main = Cluster::started(&place, "main", Arm::Sealed)?;
    main.sql(
        "CREATE TABLE t AS SELECT g, md5(g::text) FROM generate_series(1, 20000) g; CHECKPOINT",
    )?;
    // More data keys than a list has room for at first; the agent has opened each new keyring.
    let dir = main.dir().display().to_string();
    for _ in 0..8 {
        main.tidelock(&["key", "new-data-key", "-D", &dir])?.run()?;
    }
    let query = "SELECT count(*) FROM t; SELECT count(*) FROM pg_class; SELECT pg_sleep(3000)";
    let session = main.psql("postgres", query).spawn()?;
    main.wait_for("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'", "1")?;
    let backend = main.sql("SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'")?;
    let backend = Process::new(backend.parse().unwrap()).unwrap();
    let sealed = main.dir().join("pg_wal/small");
    let small = main.tool("/usr/bin/dd").arg(format!("of={}", sealed.display()));
    { small }.stdin("a few bytes\n").run()?;
    let follow = main.tool("/usr/bin/tail").arg("-f").arg(&sealed).spawn()?;
    // The cipher of our own, where this CPU has what it needs: AWS-LC sees no AVX-512.
    let hidden = main.tool("/usr/bin/tail").env("OPENSSL_ia32cap", ":~0xc0230000");
    let other = hidden.arg("--follow").arg(&sealed).spawn()?;
    let keys = Keys::of(&main);
    let cores = place.make_dir("cores")?;

    let me = Process::new(i32::try_from(std::process::id()).unwrap()).unwrap();
    let start = Instant::now();
    let following = |option: &str| loop {
        let tail = |process: &Process| {
            let text = fs::read(format!("/proc/{}/cmdline", process.id())).unwrap_or_default();
            text.starts_with(format!("/usr/bin/tail\0{option}\0").as_bytes())
        };
        // It has its keys once it has the file open.
        let found = me.children().into_iter().find(tail).filter(|it| holds(*it, &sealed));
        if let Some(found) = found {
            break found;
        }
        assert!(start.elapsed() < Duration::from_secs(120), "tail {option} does not run");
        thread::sleep(Duration::from_millis(50));
    };
    let (small, masked) = (following("-f"), following("--follow"));
    let postmaster = main.postmaster()?;
    let mut programs = vec![backend, postmaster, small, masked];
    programs.extend(postmaster.children().into_iter().filter(|child| *child != backend));
    let (agents, files) = agents(&main);
    if place.account().switches() {
        assert_eq!(agents.len(), 1, "the agent's descriptors are root's to see");
        for process in [backend, small, masked] {
            let found = keys.found(&memory(process)).join(", ");
            assert!(found.contains("file"), "the search finds nothing in whole memory: {found}");
        }
    }
    for process in programs.iter().chain(&agents).filter(|process| process.lives()) {
        keys.absent_in_proc(*process);
    }
    let mut searched = 0;
    let mut search = |process: Process, core: PathBuf| {
        keys.absent(&core);
        // Its stack and its heap are there, or the search proves nothing.
        let query = AhoCorasick::new(["SELECT pg_sleep(3000)"]).unwrap();
        let is_whole = query.is_match(&fs::read(&core).unwrap());
        assert!(is_whole || process != backend, "the core has no memory of the session");
        fs::remove_file(core).unwrap();
        searched += 1;
    };
    for process in [backend, postmaster, small, masked].iter().chain(&agents) {
        if let Some(core) = dump_by_gdb(*process, &cores) {
            search(*process, core);
        }
    }
    for (process, folder) in [
        (small, place.path()),
        (masked, place.path()),
        (backend, main.dir()),
        (postmaster, main.dir()),
    ] {
        if process.lives()
            && let Some(core) = dump_by_kernel(process, folder)
        {
            search(process, core);
        }
    }
    println!("{searched} core files searched");
    if searched == 0 {
        skip::because("no core file can be made here");
    }
    drop((session, follow, other));
    keys.absent(main.log());
    for file in &files {
        keys.absent(file);
    }
    Ok(())
}

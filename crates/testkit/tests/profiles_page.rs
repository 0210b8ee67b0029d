//! docs/profiles.md builds a profile for Redis step by step: each step does what the page says.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tidelock_servers::{Bounded as _, skip};
use tidelock_testkit::twins::{Product, Workspace};

const PAGE: &str = include_str!("../../../docs/profiles.md");
const REDIS: &str = "/usr/bin/redis-server";
const STRACE: &str = "/usr/bin/strace";
const LIMIT: Duration = Duration::from_secs(60);

/// The fenced blocks of the page's section with this word after the fence, in their order.
fn blocks(kind: &str) -> Vec<&'static str> {
    let section = PAGE.split("## A profile for Redis, step by step").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let fenced = section.split("```").skip(1).step_by(2);
    fenced.filter_map(|block| block.strip_prefix(kind)?.strip_prefix('\n')).collect()
}

struct Bench {
    product: Product,
    place: Workspace,
}

impl Bench {
    /// `None` where one of these is not installed.
    fn new(programs: &[&str]) -> Option<Self> {
        if let Some(missing) = programs.iter().find(|path| !Path::new(path).exists()) {
            skip::missing(missing);
            return None;
        }
        let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
        Some(Self { product, place: Workspace::new("page").unwrap() })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.plain().join(name)
    }

    fn write(&self, text: &str) -> PathBuf {
        let path = self.path("redis.toml");
        fs::write(&path, text).unwrap();
        path
    }

    /// What `profile check` says of this text: on standard output or, if it is refused, of errors.
    fn check(&self, text: &str) -> Result<String, String> {
        let mut command = self.place.command(&self.product);
        command.args(["profile", "check", "--profile"]).arg(self.write(text));
        let done = command.finish().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if done.status.success() { Ok(text(&done.stdout)) } else { Err(text(&done.stderr)) }
    }
}

/// Runs a server that answers at `socket`, talks to it, ends it by `end`, and returns what it
/// printed.
fn talk(mut command: Command, socket: &Path, words: &str, end: impl FnOnce(Pid)) -> String {
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut server = command.spawn().unwrap();
    let pid = Pid::from_child(&server);
    let until = Instant::now() + LIMIT;
    let client = loop {
        match UnixStream::connect(socket) {
            Err(_) if Instant::now() < until => sleep(Duration::from_millis(20)),
            client => break client,
        }
    };
    let answered = client.and_then(|mut client| {
        client.set_read_timeout(Some(LIMIT))?;
        client.write_all(words.as_bytes())?;
        let mut answer = vec![0; "+OK\r\n".len() * words.matches("\r\n").count()];
        client.read_exact(&mut answer)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    });
    // Whatever it said, it ends.
    end(pid);
    let mut printed = String::new();
    server.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    let ended = server.wait().unwrap();
    assert!(ended.success(), "{ended}: {printed}");
    let answered = answered.unwrap_or_else(|why| panic!("{why}: {printed}"));
    assert_eq!(answered, "+OK\r\n".repeat(words.matches("\r\n").count()), "{printed}");
    printed
}

/// Ctrl-C at a terminal.
fn interrupt(group: Pid) {
    kill_process_group(group, Signal::INT).unwrap();
}

#[test]
fn the_profile_for_redis_is_built_as_the_page_says() {
    let Some(bench) = Bench::new(&[REDIS, STRACE]) else { return };
    let [least, plain, rename] = blocks("toml")[..] else { panic!("the page has other steps") };
    let (head, last) = least.split_once("[[rule]]").unwrap();
    let last = format!("[[rule]]{last}");

    // The least, and what the server does in an empty folder.
    assert!(bench.check(least).unwrap().contains("valid; 1 rule, 1 listed program"));
    let socket = bench.path("socket");
    let redis = |command: &mut Command, dir: &Path| {
        command.arg(REDIS).arg("--dir").arg(dir).args(["--appendonly", "yes"]);
        command.args(["--port", "0", "--unixsocket"]).arg(&socket);
    };
    let observe = |text: &str, folder: PathBuf| {
        fs::create_dir(&folder).unwrap();
        let mut check = bench.place.command(&bench.product);
        check.args(["profile", "check", "--profile"]).arg(bench.write(text));
        check.arg("--in").arg(&folder).arg("--");
        redis(&mut check, &folder);
        check.arg("--pidfile").arg(folder.join("redis.pid"));
        talk(check, &socket, "SET a b\r\n", interrupt)
    };
    let report = observe(least, bench.path("try"));
    for name in ["dump.rdb", "temp-", "appendonlydir/", "redis.pid"] {
        assert!(report.contains(name), "{name}: {report}");
    }

    // Plain files, and the fault that the rename shows, in the words of the page.
    let two = format!("{head}{plain}\n{last}");
    assert!(bench.check(&two).unwrap().contains("valid; 3 rules"));
    let with_rename = format!("{two}\n{rename}");
    let told = blocks("");
    let told = told.iter().find_map(|block| block.split_once("\nerror: the profile ./redis.toml"));
    let (_, why) = told.unwrap();
    let error = bench.check(&with_rename).unwrap_err();
    assert!(error.contains(why.trim_end()), "{error}");

    // One more rule mends it.
    let more = "[[rule]]\nglob = \"*.conf.??????\"\nplain = \"it becomes the configuration\"\n";
    let mended = format!("{head}{plain}\n{more}\n{last}\n{rename}");
    assert!(bench.check(&mended).unwrap().contains("valid; 4 rules"));
    assert!(PAGE.contains("One more rule, `*.conf.??????`, mends it."));

    // The same run has no configuration: its rules match no file.
    let report = observe(&mended, bench.path("again"));
    let globs = |label: &str| {
        let lines = report.lines().filter_map(|line| line.strip_prefix(label));
        lines.map(|words| words.split_whitespace().collect()).collect::<Vec<Vec<&str>>>()
    };
    assert_eq!(globs("no file "), [["*.conf", "*.conf.??????"]], "{report}");
    assert_eq!(globs("plain "), [["*.pid:", "redis.pid"]], "{report}");

    // The directory, and the server in it.
    let profile = bench.write(&mended);
    let dir = bench.place.protect(&bench.product, profile.to_str().unwrap()).unwrap();
    let conf = dir.join("redis.conf");
    fs::write(&conf, "").unwrap();
    let mut exec = bench.place.command(&bench.product);
    exec.arg("exec").arg("-D").arg(&dir).arg("--");
    exec.arg(REDIS).arg(&conf).arg("--dir").arg(&dir).args(["--appendonly", "yes"]);
    exec.args(["--port", "0", "--unixsocket"]).arg(&socket);
    let words = "SET name tidelock-page\r\nCONFIG SET maxmemory 64mb\r\nCONFIG REWRITE\r\nSAVE\r\n";
    talk(exec, &socket, words, interrupt);
    assert!(fs::read_to_string(&conf).unwrap().contains("maxmemory 64mb"));
    let dump = fs::read(dir.join("dump.rdb")).unwrap();
    assert!(!dump.starts_with(b"REDIS") && !dump.windows(8).any(|at| at == b"tidelock"));
    bench.place.verify(&bench.product, &dir).unwrap_or_else(|error| panic!("{error}"));
}

/// A function of a libc that is newer than the ledger, and a system call of 32-bit programs.
#[test]
fn calls_that_the_ledger_does_not_know_are_named_and_are_a_failure() {
    let Some(bench) = Bench::new(&["/usr/bin/gcc", STRACE]) else { return };
    let folder = bench.place.programs();
    for (name, text) in [("new.c", NEW), ("new.map", VERSION), ("program.c", CALLS)] {
        fs::write(folder.join(name), text).unwrap();
    }
    for words in [
        "-shared -fPIC -Wl,--version-script=new.map -o libnew.so new.c",
        "-o program program.c -L. -lnew -Wl,-rpath,$ORIGIN",
    ] {
        let mut gcc = Command::new("/usr/bin/gcc");
        let done = gcc.args(words.split(' ')).current_dir(&folder).finish().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }
    let place = bench.path("files");
    fs::create_dir(&place).unwrap();
    let mut check = bench.place.command(&bench.product);
    check.args(["profile", "check", "--profile", "generic", "--in"]).arg(&place).arg("--");
    let done = check.arg(folder.join("program")).arg(place.join("file")).finish().unwrap();
    let [report, error] = [&done.stdout, &done.stderr].map(|it| String::from_utf8_lossy(it));
    let unknown =
        |name: &str| report.lines().any(|line| line == format!("{:<13}{name}", "unknown"));
    assert!(unknown("a_new_call"), "{report}{error}");
    assert!(!done.status.success() && error.contains("that the ledger does not know"), "{error}");
    if report.contains("the program ended with exit status: 0") {
        assert!(unknown("fchown32"), "{report}{error}");
        assert!(error.contains("imports or makes 2 calls"), "{error}");
    } else {
        skip::because("this kernel has no system calls of 32-bit programs");
    }
}

/// fchown32 of the table of i386, which takes no address.
const NEW: &str = r#"
long a_new_call(long file)
{
    long made;
    __asm__ volatile("int $0x80"
                     : "=a"(made) : "a"(207L), "b"(file), "c"(-1L), "d"(-1L) : "memory");
    return made;
}
"#;
/// Of no glibc that there is.
const VERSION: &str = "GLIBC_9.99 { a_new_call; };\n";
const CALLS: &str = r"
#include <fcntl.h>
long a_new_call(long file);
int main(int count, char **words)
{
    return a_new_call(open(words[count - 1], O_RDWR | O_CREAT, 0600)) != 0;
}
";

/// Each rule that the page names is one of the profile that is shipped.
#[test]
fn the_shipped_profile_for_redis_has_the_rules_of_the_page() {
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    let place = Workspace::new("page").unwrap();
    let done = place.command(&product).args(["profile", "show", "redis"]).finish().unwrap();
    let shown = String::from_utf8_lossy(&done.stdout).into_owned();
    for glob in ["*.pid", "*.conf", "*.conf.??????", "*.conf.tmp-*", "**"] {
        // The shipped ones hold in folders too.
        let shipped = if glob == "**" { glob.into() } else { format!("**/{glob}") };
        assert!(shown.contains(&format!("glob = \"{shipped}\"")), "{glob}: {shown}");
        assert!(PAGE.contains(glob), "{glob}");
    }
}

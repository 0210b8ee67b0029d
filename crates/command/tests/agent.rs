//! A listed program finds no agent alive: it starts one, or ends with an error and a hint.
//!
//! Real processes, with the environment that `tidelock exec` has made. The library must lie beside
//! the command: `make test` builds it.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread::{scope, sleep, spawn};
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};
use rustix::process::{Pid, Signal, kill_process};
use tidelock_agent::client;
use tidelock_servers::{Bounded, Started, skip};

#[path = "home/home.rs"]
mod home;

use home::Home;

const TEXT: &str = "a line that is sealed\n";
const HINT: &str = "\nhint:  start the program with `tidelock exec -D DIR -- PROGRAM`, which \
                    unlocks the directory\n";

/// A protected directory whose policy lists `cat`, with a file, and what `exec` has put into the
/// environment of a program named `env`. Its agent has been killed.
struct World {
    home: Home,
    environment: Vec<(String, String)>,
}

impl World {
    fn new(init: &str, exec: &str) -> Self {
        let mut world = Self { home: Home::new(), environment: Vec::new() };
        world.shell(&format!(
            "echo 'seldom marble quiet vowel' > words; tidelock init data --profile generic --program cat \
             --no-recovery {init}"
        ));
        world.shell(&format!("printf '{TEXT}' | tidelock exec {exec} -D data -- dd of=data/file"));
        let said = world.shell(&format!("tidelock exec {exec} -D data -- env"));
        let ours = ["LD_PRELOAD", "TIDELOCK_AGENT", "TIDELOCK_PROGRAM"];
        world.environment = said
            .lines()
            .filter_map(|line| line.split_once('='))
            .filter(|(name, _)| ours.contains(name))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        assert_eq!(world.environment.len(), 3, "{said}");
        assert!(!fs::read(world.path("data/file")).unwrap().ends_with(TEXT.as_bytes()));
        world.kill_agent();
        world
    }

    fn with_key_file() -> Self {
        Self::new("--provider file:key", "")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path(name)
    }

    fn shell(&self, line: &str) -> String {
        let output = self.home.shell(line).finish().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// A program in the environment that `exec` has made, as one of its children would start it.
    fn preloaded(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = self.home.command(program);
        command.args(arguments).envs(self.environment.iter().cloned());
        command
    }

    fn cat(&self) -> Output {
        self.preloaded("/bin/cat", &["data/file"]).finish().unwrap()
    }

    /// A `cat` that has been started, and goes on to hold its keys until its input ends.
    fn start_cat(&self, number: usize) -> Cat {
        let printed = self.path(&format!("printed-{number}"));
        let output = fs::File::create(&printed).unwrap();
        let mut cat = self.preloaded("/bin/cat", &["data/file", "-"]);
        cat.stdin(Stdio::piped()).stderr(output.try_clone().unwrap()).stdout(output);
        Cat { printed, cat: cat.start().unwrap() }
    }

    fn socket(&self) -> PathBuf {
        let socket = self.environment.iter().find(|(name, _)| name == "TIDELOCK_AGENT");
        PathBuf::from(&socket.unwrap().1)
    }

    fn beside(&self, extension: &str) -> PathBuf {
        self.socket().with_extension(extension)
    }

    fn agent(&self) -> Option<i32> {
        Some(client::connect(&self.socket()).ok()??.status().ok()?.pid)
    }

    /// As a crash would. Its socket stays, and nobody is connected.
    fn kill_agent(&self) {
        let Some(pid) = self.agent() else { return };
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        let until = Instant::now() + PATIENCE;
        while self.agent().is_some() {
            assert!(Instant::now() < until, "the agent does not end");
            sleep(Duration::from_millis(20));
        }
    }

    fn starts(&self) -> usize {
        let name = self.socket().with_extension("audit.log");
        let log = self.path("state/tidelock").join(name.file_name().unwrap());
        let audit = fs::read_to_string(log).unwrap();
        audit.lines().filter(|line| line.contains("\"event\":\"start\"")).count()
    }
}

struct Cat {
    printed: PathBuf,
    cat: Started,
}

impl Cat {
    /// Waits until it has printed the text, and nothing else.
    fn prints_the_text(&mut self) {
        let until = Instant::now() + PATIENCE;
        loop {
            let printed = fs::read_to_string(&self.printed).unwrap();
            if printed == TEXT {
                return;
            }
            let runs = self.cat.try_wait().unwrap().is_none();
            assert!(printed.is_empty() && runs && Instant::now() < until, "{printed}");
            sleep(Duration::from_millis(20));
        }
    }
}

/// What has to happen happens long before this.
const PATIENCE: Duration = Duration::from_secs(120);

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Ended with 4, after an error and a hint.
#[track_caller]
fn refused(output: &Output, why: &str) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains(why) && said.ends_with(HINT), "{said}");
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn a_listed_program_starts_another_agent() {
    let world = World::with_key_file();
    assert!(world.socket().exists() && world.agent().is_none());
    let mut cat = world.start_cat(0);
    cat.prints_the_text();
    // Nobody's child, and no other program's: its parent has ended.
    let agent = world.agent().expect("it stays as long as a program has keys");
    let stat = fs::read_to_string(format!("/proc/{agent}/stat")).unwrap();
    let parent = stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap();
    assert_ne!(parent, std::process::id().to_string());
    // The same when it has taken its socket with it, and by its configured command alone.
    world.kill_agent();
    fs::remove_file(world.socket()).unwrap();
    let output = world.preloaded("/bin/cat", &["data/file"]).env_remove("PATH").finish().unwrap();
    assert_eq!((text(&output.stdout), text(&output.stderr)), (TEXT, ""));
    // Where signals are ignored and blocked, as below nohup and some supervisors.
    world.kill_agent();
    let ignoring = "import os,signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN); \
                    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 30)); \
                    os.execv('/bin/cat', ['cat', 'data/file'])";
    let output = world.preloaded("/usr/bin/python3", &["-c", ignoring]).finish().unwrap();
    assert_eq!((text(&output.stdout), text(&output.stderr)), (TEXT, ""));
}

#[test]
fn of_several_at_once_one_agent_remains() {
    let world = World::with_key_file();
    let before = world.starts();
    // All of them hold keys at the end: the one agent cannot have been too old for the last.
    let mut cats: Vec<Cat> = (0..8).map(|number| world.start_cat(number)).collect();
    cats.iter_mut().for_each(Cat::prints_the_text);
    assert_eq!(world.starts(), before + 1);
}

/// It takes three connections in, answers nobody, and ends.
#[test]
fn an_agent_that_ends_when_it_is_asked_is_followed_by_another() {
    let world = World::with_key_file();
    fs::remove_file(world.socket()).unwrap();
    // No program that another test starts may keep it open, nor a connection.
    let (kind, flags) = (SocketType::SEQPACKET, SocketFlags::CLOEXEC);
    let listener = socket_with(AddressFamily::UNIX, kind, flags, None).unwrap();
    bind(&listener, &SocketAddrUnix::new(world.socket()).unwrap()).unwrap();
    listen(&listener, 8).unwrap();
    let ending = spawn(move || (0..3).for_each(|_| drop(accept_with(&listener, flags).unwrap())));
    assert_eq!(world.shell("tidelock exec -D data -- cat data/file"), TEXT);
    ending.join().unwrap();
    assert!(world.agent().is_some());
}

#[test]
fn a_passphrase_is_not_asked_by_a_program() {
    let asking = "--provider passphrase --passphrase-fd 3 3< words";
    let world = World::new(asking, "--passphrase-fd 3 3< words");
    let output = world.cat();
    refused(&output, "no agent is alive, and none could be started without a terminal");
    let said = text(&output.stderr);
    assert!(said.contains("no passphrase was given: there is no terminal to ask for it"), "{said}");
    assert!(world.agent().is_none());
}

#[test]
fn a_key_that_is_gone_is_told() {
    let world = World::with_key_file();
    fs::remove_file(world.path("key")).unwrap();
    let output = world.cat();
    refused(&output, "none could be started");
    assert!(text(&output.stderr).contains("does not open: cannot open"), "{output:?}");
}

/// The agent that a program starts knows the policy alone. The program that was named to `exec`
/// must not run on without keys then: it would read sealed bytes and write plain ones.
#[test]
fn a_program_of_the_run_is_refused_by_another_agent() {
    let world = World::with_key_file();
    for _ in 0..2 {
        let output = world.preloaded("/usr/bin/env", &[]).finish().unwrap();
        refused(&output, "its agent refuses, since the program is not listed: /usr/bin/env");
    }
    // Others are still none of its business.
    let output = world.preloaded("/usr/bin/head", &["-c", "5", "data/file"]).finish().unwrap();
    assert_eq!(output.stdout, b"\x89TDLK");
}

#[test]
fn what_tells_how_to_start_it_must_be_ones_own() {
    let world = World::with_key_file();
    let start = world.beside("start");
    fs::set_permissions(&start, Permissions::from_mode(0o622)).unwrap();
    refused(&world.cat(), "somebody else may have written it");
    fs::remove_file(&start).unwrap();
    refused(&world.cat(), "its agent does not answer");
    fs::write(&start, format!("/nowhere/tidelock\n{}\n", world.path("data").display())).unwrap();
    fs::set_permissions(&start, Permissions::from_mode(0o600)).unwrap();
    refused(&world.cat(), "/nowhere/tidelock cannot be run");
    fs::write(&start, format!("{}\n/tmp\n", env!("CARGO_BIN_EXE_tidelock"))).unwrap();
    let output = world.cat();
    refused(&output, "none could be started");
    assert!(text(&output.stderr).contains("/tmp is not a protected directory"), "{output:?}");
    assert!(world.agent().is_none());
}

/// The kernel knows no number for who asks, as where a container's folder of sockets is shared.
#[test]
fn a_program_outside_of_the_agents_pid_namespace_is_refused_by_name() {
    if skip::unless_root("a PID namespace") {
        return;
    }
    let world = World::with_key_file();
    let printed = world.path("printed");
    let output = fs::File::create(&printed).unwrap();
    let mut inside = world.home.command("unshare");
    inside.args(["--pid", "--fork", "--kill-child", "--mount-proc", "tidelock", "exec", "-D"]);
    inside.args(["data", "--", "cat", "data/file", "-"]);
    inside.stdin(Stdio::piped()).stdout(output).stderr(Stdio::null());
    let mut inside = inside.start().unwrap();
    let until = Instant::now() + PATIENCE;
    while fs::read_to_string(&printed).unwrap() != TEXT {
        if inside.try_wait().unwrap().is_some() {
            skip::because("no PID namespace can be made here");
            return;
        }
        assert!(Instant::now() < until, "it does not start");
        sleep(Duration::from_millis(20));
    }
    refused(&world.cat(), "cannot be found out: a program in another PID namespace");
}

/// A stopped agent accepts and says nothing.
#[test]
fn a_stopped_agent_holds_nobody_for_ever() {
    let world = World::with_key_file();
    let mut cat = world.start_cat(0);
    cat.prints_the_text();
    let agent = Pid::from_raw(world.agent().unwrap()).unwrap();
    let signal = |signal| kill_process(agent, signal).unwrap();
    let limit = Duration::from_secs(90);
    signal(Signal::STOP);
    let run = |line: &str| world.home.shell(line).finish_within(limit);
    // Each waits for its own limit: at once, all of them take as long as one.
    let [listed, exec, key, status] = scope(|scope| {
        [
            scope.spawn(|| world.preloaded("/bin/cat", &["data/file"]).finish_within(limit)),
            scope.spawn(|| run("tidelock exec -D data -- true")),
            scope.spawn(|| run("tidelock key new-data-key -D data")),
            scope.spawn(|| run("tidelock status -D data")),
        ]
        .map(|waiting| waiting.join().unwrap())
    });
    signal(Signal::CONT);
    let told = format!("its agent (process {agent}) does not answer");
    refused(&listed.unwrap(), &told);
    let told = format!("the agent (process {agent}) does not answer");
    let exec = exec.unwrap();
    assert!(exec.status.code() == Some(4) && text(&exec.stderr).contains(&told), "{exec:?}");
    let key = key.unwrap();
    assert!(key.status.code() == Some(6) && text(&key.stderr).contains(&told), "{key:?}");
    let status = status.unwrap();
    assert!(
        text(&status.stdout).contains(&format!("process {agent} does not answer")),
        "{status:?}"
    );
    assert!(text(&status.stderr).contains(&format!("process {agent}")), "{status:?}");
    cat.prints_the_text();
}

/// Listens as an agent without programs, and names another process as its own.
const IMPOSTOR: &str = r"
import socket, struct, sys
text = lambda it: struct.pack('<H', len(it)) + it
body = bytes(16) + struct.pack('<Q', 1) + text(sys.argv[3].encode()) + struct.pack('<i', int(sys.argv[2]))
body += text(b'none') + struct.pack('<IH', 0, 0) + bytes(32)
answer = b'TDLA' + struct.pack('<HHII', 1, 0x8003, len(body), 0) + body
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(sys.argv[1])
listener.listen(8)
while True:
    asked = listener.accept()[0]
    if asked.recv(8192):
        asked.send(answer)
";

#[test]
fn a_conversion_ends_who_listens_and_no_process_that_its_answer_names() {
    let world = World::with_key_file();
    fs::remove_file(world.socket()).unwrap();
    let mut named = world.home.command("sleep").arg("600").start().unwrap();
    let mut impostor = world.home.command("python3");
    impostor.args(["-c", IMPOSTOR]).arg(world.socket()).arg(named.id().to_string());
    impostor.arg(world.path("data"));
    let mut impostor = impostor.start().unwrap();
    let until = Instant::now() + PATIENCE;
    while client::connect(&world.socket()).unwrap().is_none() {
        assert!(Instant::now() < until, "nobody listens");
        sleep(Duration::from_millis(20));
    }
    world.shell("tidelock rekey data");
    assert_eq!(impostor.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
    assert!(named.try_wait().unwrap().is_none(), "the process that was named has ended");
}

/// It has the same keyring, and so the same socket.
#[test]
fn the_agent_of_a_byte_copy_is_not_one_that_has_a_change_of_the_original() {
    let world = World::with_key_file();
    let mut cat = world.start_cat(0);
    cat.prints_the_text();
    world.kill_agent();
    world.shell("cp -a data copy");
    let printed = world.path("printed-of-copy");
    let output = fs::File::create(&printed).unwrap();
    let mut of_copy = world.home.command("tidelock");
    of_copy.args(["exec", "-D", "copy", "--", "cat", "copy/file", "-"]);
    of_copy.stdin(Stdio::piped()).stderr(Stdio::null()).stdout(output);
    let mut of_copy = Cat { printed, cat: of_copy.start().unwrap() };
    of_copy.prints_the_text();
    let output = world.home.shell("tidelock key new-data-key -D data").finish().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(said.contains("the agent holds this keyring for "), "{said}");
}

/// Listens as the agent of a directory, and takes no change over: it ends, or says that it has
/// generation 1.
const LAGGARD: &str = r"
import socket, struct, sys
text = lambda it: struct.pack('<H', len(it)) + it
body = bytes(16) + struct.pack('<Q', 1) + text(sys.argv[2].encode()) + struct.pack('<i', 77)
body += text(b'none') + struct.pack('<IH', 0, 0) + bytes(32)
message = lambda kind, body: b'TDLA' + struct.pack('<HHII', 1, kind, len(body), 0) + body
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind(sys.argv[1])
listener.listen(8)
while True:
    asked = listener.accept()[0]
    question = asked.recv(8192)
    if not question:
        continue
    if question[6] == 3:
        asked.send(message(0x8003, body))
    elif sys.argv[3] == 'behind':
        asked.send(message(0x8005, struct.pack('<Q', 1)))
    else:
        asked.close()
";

#[test]
fn an_agent_that_keeps_the_old_keyring_has_not_been_told_and_one_that_ends_had_no_programs() {
    for (kind, code, why, announced) in
        [("ends", 0, "", 2), ("behind", 6, "still has generation 1 of the keyring", 0)]
    {
        let world = World::with_key_file();
        fs::remove_file(world.socket()).unwrap();
        let lock = world.path("data/.tidelock/lock");
        // What no program was told yet.
        let mut words = fs::read(&lock).unwrap();
        words[8..16].fill(0);
        fs::write(&lock, words).unwrap();
        let mut laggard = world.home.command("python3");
        laggard.args(["-c", LAGGARD]).arg(world.socket()).arg(world.path("data")).arg(kind);
        let mut laggard = laggard.start().unwrap();
        let until = Instant::now() + PATIENCE;
        while client::connect(&world.socket()).unwrap().is_none() {
            assert!(Instant::now() < until, "nobody listens");
            sleep(Duration::from_millis(20));
        }
        let output = world.home.shell("tidelock key new-data-key -D data").finish().unwrap();
        laggard.kill().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(why), "{said}");
        assert_eq!(said.contains("the agent (process"), !why.is_empty(), "{said}");
        let words = fs::read(&lock).unwrap();
        assert_eq!(u64::from_ne_bytes(words[8..16].try_into().unwrap()), announced, "{kind}");
    }
}

/// A server that is restarted soon keeps it, and nobody would say so.
#[test]
fn an_agent_whose_program_an_upgrade_has_replaced_is_named() {
    if skip::unless_root("which program an agent runs") {
        return;
    }
    let world = World::with_key_file();
    world.shell(
        "mkdir bin; ours=$(dirname \"$(command -v tidelock)\"); \
         cp $ours/tidelock $ours/libtidelock_preload.so bin; \
         bin/tidelock exec -D data -- cat data/file",
    );
    let warned = || {
        let said = world.home.shell("bin/tidelock status -D data 2>&1").finish().unwrap();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains("agent        process"), "{said}");
        said.contains("is from before an upgrade")
    };
    assert!(!warned());
    // As a package does it.
    world.shell("cp bin/tidelock bin/new; mv bin/new bin/tidelock");
    assert!(warned());
}

/// Whoever a listed program becomes has no connection to its agent.
#[test]
fn the_connection_to_the_agent_is_closed_on_exec() {
    let world = World::with_key_file();
    let script = "import os; os.execv('/bin/ls', ['ls', '-l', '/proc/self/fd'])";
    let line = format!("tidelock exec -D data -- python3 -c \"{script}\"");
    let said = world.shell(&line);
    assert!(said.contains("/proc/") && !said.contains("socket:"), "{said}");
}

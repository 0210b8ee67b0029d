//! The agent with real processes: how it starts, when it ends, and what it answers and shows; who
//! gets keys, and who does not, is in `granted`.
//!
//! As root, everything runs as user 65534 and programs belong to root, as on a server. Otherwise
//! all belongs to one user, and listed programs are accepted by configuration.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "processes/granted.rs"]
mod granted;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Pid, Signal, kill_process};
use tidelock_agent::RunDir;
use tidelock_format::{KeyringId, Layout};
use tidelock_keyring::{Keyring, KeyringDir, Profile};
use tidelock_providers::{FileProvider, RecoveryKey};
use tidelock_servers::{Bounded, Started, alone};

const NOBODY: u32 = 65534;
/// Milliseconds of grace and to linger for an agent that a test ends itself, however slow the
/// machine is.
const LONG: [&str; 2] = ["600000", "600000"];
/// What has to happen happens long before this.
const PATIENCE: Duration = Duration::from_secs(120);

struct World {
    home: tempfile::TempDir,
    root: bool,
    keyring: KeyringId,
    secret: [u8; 32],
}

impl World {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), Permissions::from_mode(0o755)).unwrap();
        let root = fs::metadata(home.path()).is_ok_and(|it| {
            use std::os::unix::fs::MetadataExt;
            it.uid() == 0
        });
        for name in ["data", "run", "bin"] {
            fs::create_dir(home.path().join(name)).unwrap();
        }
        let (data, run, key) =
            (home.path().join("data"), home.path().join("run"), home.path().join("key"));
        fs::set_permissions(&run, Permissions::from_mode(0o700)).unwrap();
        let mut fresh = File::create_new(&key).unwrap();
        fresh.set_permissions(Permissions::from_mode(0o600)).unwrap();
        FileProvider::fill(&mut fresh, &key).unwrap();
        let file = FileProvider { path: key.clone() };
        if root {
            for path in [&data, &run, &key] {
                chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        let policy = Profile::builtin("postgres").unwrap().compile(&[], &[]).unwrap();
        let recovery = RecoveryKey::random().unwrap();
        let keyring = Keyring::create(policy, Layout::DEFAULT, &[&file, &recovery]).unwrap();
        KeyringDir::create(&data).unwrap().write_first(&keyring).unwrap();
        let world = Self {
            home,
            root,
            keyring: keyring.id(),
            secret: *keyring.current().key.secret().expose(),
        };
        for name in ["tidelock", "postgres", "pg_ctl", "cp"] {
            world.install(name);
        }
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn bin(&self, name: &str) -> PathBuf {
        self.home.path().join("bin").join(name)
    }

    fn install(&self, name: &str) {
        let here = std::env::current_exe().unwrap();
        let probe = here.ancestors().nth(2).unwrap().join("examples/agent_probe");
        assert!(probe.exists(), "cargo test builds examples unless --test is given");
        fs::copy(probe, self.bin(name)).unwrap();
    }

    fn socket(&self) -> PathBuf {
        self.path("run").join(format!("{}.sock", self.keyring))
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = if self.root {
            let mut command = alone("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(program);
            command
        } else {
            alone(program)
        };
        command.stdin(Stdio::null());
        command
    }

    fn run(&self, program: &str, arguments: &[&str]) -> (i32, String) {
        let Output { status, stdout, .. } =
            self.command(&self.bin(program)).args(arguments).finish().unwrap();
        (status.code().unwrap(), String::from_utf8(stdout).unwrap())
    }

    fn start_with(&self, times: [&str; 2], writable: &str) -> (i32, String) {
        let [data, key, run] = ["data", "key", "run"].map(|name| self.path(name));
        let text = |path: &PathBuf| path.to_str().unwrap().to_owned();
        let (data, key, run) = (text(&data), text(&key), text(&run));
        self.run("tidelock", &["start", &data, &key, &run, times[0], times[1], writable])
    }

    fn start(&self) -> u32 {
        self.start_for(LONG)
    }

    fn start_for(&self, times: [&str; 2]) -> u32 {
        // Only root can have programs that are not one's own.
        let writable = if self.root { "no" } else { "writable" };
        let (code, said) = self.start_with(times, writable);
        assert_eq!((code, said.trim()), (0, self.socket().to_str().unwrap()));
        self.agent().expect("the agent answers")
    }

    /// With so many descriptors, soft and hard limit.
    fn start_within(&self, limits: &str) -> u32 {
        let places = ["data", "key", "run"].map(|name| self.path(name));
        let writable = if self.root { "no" } else { "writable" };
        let mut command = self.command(Path::new("prlimit"));
        command.arg(format!("--nofile={limits}")).arg(self.bin("tidelock")).arg("start");
        let output = command.args(places).args(LONG).arg(writable).finish().unwrap();
        assert!(output.status.success(), "{output:?}");
        self.agent().expect("the agent answers")
    }

    fn ask(&self, program: &str, question: &str) -> (i32, String) {
        self.run(program, &[question, self.socket().to_str().unwrap()])
    }

    fn allow(&self, program: &str, allowed: &Path) -> (i32, String) {
        let (socket, allowed) = (self.socket(), allowed.to_str().unwrap());
        self.run(program, &["allow", socket.to_str().unwrap(), allowed])
    }

    fn agent(&self) -> Option<u32> {
        let (_, said) = self.ask("tidelock", "status");
        said.lines().find_map(|line| line.strip_prefix("pid ")?.parse().ok())
    }

    fn hold(&self, program: &Path) -> Started {
        let mut command = self.command(program);
        command.args(["hold", self.socket().to_str().unwrap()]);
        self.holding(command)
    }

    /// Starts what holds keys until its input is closed; returns when it has them.
    fn holding(&self, mut command: Command) -> Started {
        let said = tempfile::NamedTempFile::new().unwrap();
        let output = File::create(said.path()).unwrap();
        let mut child = command.stdin(Stdio::piped()).stdout(output).start().unwrap();
        let until = Instant::now() + PATIENCE;
        while !fs::read_to_string(said.path()).unwrap().contains('\n') {
            assert!(child.try_wait().unwrap().is_none() && Instant::now() < until, "{command:?}");
            sleep(Duration::from_millis(20));
        }
        let first = fs::read_to_string(said.path()).unwrap();
        assert!(first.starts_with("directory "), "{first}");
        child
    }

    fn audit(&self) -> Vec<String> {
        let path = self.path("run").join(format!("{}.audit.log", self.keyring));
        fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect()
    }

    fn wait_for_end(&self) {
        let ended = || {
            let audit = self.audit();
            let count = |what: &str| audit.iter().filter(|line| line.contains(what)).count();
            let starts = count("\"event\":\"start\"");
            // The line comes after the socket is gone.
            !self.socket().exists() && starts > 0 && starts == count("\"event\":\"end\"")
        };
        let until = Instant::now() + PATIENCE;
        while !ended() {
            assert!(Instant::now() < until, "the agent does not end");
            sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // By its number, which only this agent can have told.
        let mut status = self.command(&self.bin("tidelock"));
        let Ok(said) = status.arg("status").arg(self.socket()).finish() else { return };
        let said = String::from_utf8_lossy(&said.stdout);
        let pid = said.lines().find_map(|line| line.strip_prefix("pid ")?.parse().ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

#[test]
fn a_log_that_cannot_be_opened_does_not_stop_a_server() {
    let world = World::new();
    fs::create_dir(world.path("run").join(format!("{}.audit.log", world.keyring))).unwrap();
    world.start();
    let (code, said) = world.ask("postgres", "keys");
    assert_eq!(code, 0, "{said}");
}

#[test]
fn it_ends_with_its_last_client() {
    let world = World::new();
    // However long it would wait for a first client: once one has come, that is over.
    world.start_for(["600000", "500"]);
    let (mut one, mut two) = (world.hold(&world.bin("postgres")), world.hold(&world.bin("pg_ctl")));
    let (_, said) = world.ask("tidelock", "status");
    for (child, name) in [(&one, "postgres"), (&two, "pg_ctl")] {
        let line = format!("client {} {}\n", child.id(), world.bin(name).display());
        assert!(said.contains(&line), "{said}");
    }
    drop(one.stdin.take());
    one.ended_within(PATIENCE).unwrap();
    sleep(Duration::from_millis(2000));
    assert!(world.agent().is_some(), "it left a client");
    let left = Instant::now();
    drop(two.stdin.take());
    two.ended_within(PATIENCE).unwrap();
    world.wait_for_end();
    assert!(left.elapsed() >= Duration::from_millis(450), "{:?}", left.elapsed());
    // A program that is not listed stays inert when there is no agent, and a listed one starts
    // another.
    let beside = |name: &str| fs::read_to_string(world.socket().with_extension(name)).unwrap();
    assert!(beside("programs").contains("postgres\n"));
    let (tidelock, data) = (world.bin("tidelock"), world.path("data"));
    assert_eq!(beside("start"), format!("{}\n{}\n", tidelock.display(), data.display()));
    assert!(world.audit().last().unwrap().contains("\"event\":\"end\""));
    assert_eq!(world.ask("postgres", "keys"), (0, "nobody\n".to_owned()));
}

/// As `exec` for two directories is, which asks for the passphrase of the second one.
#[test]
fn a_process_for_which_a_program_was_listed_keeps_the_agent_without_having_keys() {
    let world = World::new();
    world.start_for(["600000", "100"]);
    let (socket, cp) = (world.socket(), world.bin("cp"));
    let mut other = world.command(&world.bin("tidelock"));
    other.arg("become").args([&socket, &cp]).arg("visit").arg(&socket);
    let mut other = world.holding(other);
    // It has come, so its grace is over; and it has let its keys go.
    sleep(Duration::from_secs(2));
    assert!(world.agent().is_some());
    drop(other.stdin.take());
    other.ended_within(PATIENCE).unwrap();
    world.wait_for_end();
}

/// As the unit's command does, whose process ends before its server starts.
#[test]
fn a_program_that_gets_keys_does_not_end_the_grace_of_another_that_was_listed() {
    let world = World::new();
    world.start_for(["600000", "100"]);
    let (code, said) = world.allow("tidelock", &world.bin("cp"));
    assert_eq!(code, 0, "{said}");
    assert_eq!(world.ask("postgres", "keys").0, 0);
    sleep(Duration::from_secs(2));
    assert!(world.agent().is_some());
}

#[test]
fn an_agent_takes_as_many_descriptors_as_it_may_have() {
    let world = World::new();
    let agent = world.start_within("64:512");
    let limits = fs::read_to_string(format!("/proc/{agent}/limits")).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert_eq!(line.split_whitespace().nth(3), Some("512"), "{line}");
}

#[test]
fn a_program_for_which_there_are_no_descriptors_waits_and_is_not_refused() {
    let world = World::new();
    world.start_within("40:40");
    let address = SocketAddrUnix::new(world.socket()).unwrap();
    let silent: Vec<_> = (0..40)
        .map(|_| {
            let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
            let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
            connect(&socket, &address).unwrap();
            socket
        })
        .collect();
    let (code, said) = std::thread::scope(|scope| {
        let asks = scope.spawn(|| world.ask("postgres", "keys"));
        sleep(Duration::from_secs(1));
        drop(silent);
        asks.join().unwrap()
    });
    assert_eq!(code, 0, "{said}");
}

/// Whoever waits in vain takes it for one that was stopped, and kills it.
#[test]
fn an_agent_whose_descriptors_are_taken_by_programs_says_so_at_once() {
    let world = World::new();
    // 20 of them are for connections: one each, and three for one that asks.
    world.start_within("40:40");
    let mut clients: Vec<_> = (0..18).map(|_| world.hold(&world.bin("postgres"))).collect();
    for _ in 0..3 {
        let (code, said) = world.ask("postgres", "keys");
        assert_eq!(code, 4, "{said}");
        assert!(said.contains("as many programs have keys from it as"), "{said}");
    }
    assert!(world.audit().last().unwrap().contains("\"event\":\"refuse\""));
    assert!(world.agent().is_some());
    let mut last = clients.pop().unwrap();
    drop(last.stdin.take());
    last.ended_within(PATIENCE).unwrap();
    let until = Instant::now() + PATIENCE;
    while world.ask("postgres", "keys").0 != 0 {
        assert!(Instant::now() < until, "there is room again");
    }
}

/// As at shutdown, though a program has keys.
#[test]
fn one_that_is_asked_to_end_takes_its_socket_away_and_writes_it_down() {
    let world = World::new();
    let agent = world.start();
    let _client = world.hold(&world.bin("postgres"));
    assert!(Command::new("kill").arg(agent.to_string()).status().unwrap().success());
    world.wait_for_end();
}

#[test]
fn it_ends_when_nobody_comes() {
    let world = World::new();
    // On a slow machine it may be gone before its starter asks for it, which is told then.
    world.start_with(["400", "100"], "no");
    world.wait_for_end();
}

#[test]
fn of_two_starts_at_once_one_agent_remains() {
    let world = World::new();
    let said: Vec<_> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..4).map(|_| scope.spawn(|| world.start_with(LONG, "no"))).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    });
    for (code, said) in said {
        assert_eq!(code, 0, "{said}");
    }
    let starts = world.audit().iter().filter(|line| line.contains("\"event\":\"start\"")).count();
    assert_eq!(starts, 1);
}

#[test]
fn a_killed_agent_leaves_no_obstacle() {
    let world = World::new();
    let first = world.start();
    kill_process(Pid::from_raw(first.cast_signed()).unwrap(), Signal::KILL).unwrap();
    let until = Instant::now() + PATIENCE;
    while world.agent().is_some() {
        assert!(Instant::now() < until);
        sleep(Duration::from_millis(20));
    }
    assert!(world.socket().exists());
    assert_ne!(world.start(), first);
    assert_eq!(world.ask("postgres", "keys").0, 0);
}

#[test]
fn it_is_nobodys_child_and_shows_nothing() {
    let world = World::new();
    let agent = world.start();
    let read = |name: &str| fs::read(format!("/proc/{agent}/{name}")).unwrap_or_default();
    let stat = String::from_utf8(read("stat")).unwrap();
    let parent = stat.rsplit(')').next().unwrap().split_whitespace().nth(1).unwrap();
    assert_ne!(parent, std::process::id().to_string());
    let command = String::from_utf8(read("cmdline")).unwrap();
    assert!(command.ends_with("tidelock\0agent\0serve\0"), "{command:?}");
    assert_eq!(
        fs::read_link(format!("/proc/{agent}/cwd")).ok().filter(|_| world.root),
        world.root.then(|| "/".into())
    );
    if world.root {
        assert_eq!(read("environ"), b"");
        // Not dumpable: its files in /proc are root's, so its user can neither trace nor dump it.
        use std::os::unix::fs::MetadataExt;
        assert_eq!(fs::metadata(format!("/proc/{agent}/environ")).unwrap().uid(), 0);
    }
}

#[test]
fn rubbish_is_answered_and_harms_nobody() {
    let world = World::new();
    world.start();
    let script = "import socket,sys\ns=socket.socket(socket.AF_UNIX,socket.SOCK_SEQPACKET)\n\
        s.connect(sys.argv[1])\nfor m in (b'x',b'TDLA'+b'\\xff'*12,b'y'*8193):\n  s.send(m);print(len(s.recv(4096))>16)";
    let output = world
        .command(Path::new("/usr/bin/python3"))
        .args(["-c", script, world.socket().to_str().unwrap()])
        .finish()
        .unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "True\nTrue\nTrue\n");
    assert_eq!(world.ask("postgres", "keys").0, 0);
}

#[test]
fn a_wrong_or_missing_key_is_an_error_before_anything_starts() {
    let world = World::new();
    fs::write(world.path("key"), [7; 32]).unwrap();
    let (code, said) = world.start_with(LONG, "no");
    assert_eq!(code, 4);
    assert!(said.contains("does not open slot"), "{said}");
    fs::remove_file(world.path("key")).unwrap();
    assert_eq!(world.start_with(LONG, "no").0, 1);
    assert!(!world.socket().exists());
}

#[test]
fn a_copy_of_the_directory_does_not_share_the_agent() {
    let world = World::new();
    world.start();
    let copy = world.path("copy");
    let copied = Command::new("cp").arg("-a").arg(world.path("data")).arg(&copy).status().unwrap();
    assert!(copied.success());
    let [key, run] = ["key", "run"].map(|name| world.path(name).display().to_string());
    let copy = copy.display().to_string();
    let (code, said) = world.run("tidelock", &["start", &copy, &key, &run, LONG[0], LONG[1], "no"]);
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("the agent holds this keyring for "), "{said}");
}

#[test]
fn a_directory_of_sockets_that_others_can_enter_is_refused() {
    let world = World::new();
    fs::set_permissions(world.path("run"), Permissions::from_mode(0o755)).unwrap();
    let (code, said) = world.start_with(LONG, "no");
    assert_eq!(code, 3, "{said}");
    assert!(RunDir::at(&world.path("run")).is_err());
}

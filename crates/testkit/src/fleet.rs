//! Three sealed nodes under Patroni, with etcd, as units of this machine have them: each with an
//! address, a configuration of root's and keys of its own.
//!
//! ```text
//!   writer --SQL--> leader --WAL--> synchronous standby, replica
//!                     |                |             |
//!                  patroni          patroni       patroni      below LD_PRELOAD, TIDELOCK_AGENT
//!                     +----------------+-------------+---- etcd
//! ```
//!
//! Patroni runs as `service install` lets it run, and gets no keys itself. Nothing here sleeps and
//! hopes: whoever disturbs the fleet waits until it is whole again.

mod node;
mod rest;
mod writer;

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub use node::Node;
pub use rest::Member;
use tidelock_servers::{Bounded as _, Error, Process, Result, Started, Workspace, alone, ensure};
pub use writer::Writer;

use crate::unit::{Etc, RunFiles};

/// What the fleet takes at most to be whole again, on a machine that does many other things.
const PATIENCE: Duration = Duration::from_secs(600);
const PAUSE: Duration = Duration::from_millis(100);
/// Debian's package.
const ETCD: &str = "/usr/bin/etcd";
/// Debian's package.
const PATRONI: &str = "/usr/bin/patroni";

/// The nodes, their etcd, and what belongs to them on this machine.
pub struct Fleet<'w> {
    /// All of them, by number.
    pub nodes: Vec<Node<'w>>,
    _orphans: Orphans,
    _etcd: Started,
    _run: RunFiles,
    etc: Etc,
}

impl<'w> Fleet<'w> {
    /// Debian's packages, if one of them is not installed.
    #[must_use]
    pub fn missing() -> Option<&'static str> {
        let absent = |file: &str| !Path::new(file).is_file();
        [(PATRONI, "patroni"), (ETCD, "etcd-server")]
            .into_iter()
            .find_map(|(file, package)| absent(file).then_some(package))
    }

    /// Three nodes, of which one made the cluster and two copied it; whole.
    ///
    /// # Errors
    /// When something does not start, or the fleet does not become whole.
    pub fn start(place: &'w Workspace) -> Result<Self> {
        let orphans = Orphans::reaped();
        let net = Net::of_this_process();
        let etcd = etcd(place, &net)?;
        let etc = Etc::hold()?;
        let run = RunFiles::beside(&run_folder(place).join("socket"));
        let nodes = (1..=3).map(|number| Node::make(place, &etc, &net, number));
        let nodes = nodes.collect::<Result<Vec<_>>>()?;
        let mut fleet = Self { nodes, _orphans: orphans, _etcd: etcd, _run: run, etc };
        for node in &mut fleet.nodes {
            node.start()?;
        }
        fleet.whole()?;
        Ok(fleet)
    }

    /// Waits until one leads, one follows synchronously and one follows, all on one timeline, and
    /// every server says so itself: what Patroni says may be a second old. The leader.
    ///
    /// # Errors
    /// When it does not come to that within `PATIENCE`.
    pub fn whole(&self) -> Result<usize> {
        let start = Instant::now();
        loop {
            let members = self.nodes.iter().find_map(|node| node.members().ok());
            let members = members.unwrap_or_default();
            if let Some(leader) = rest::leader_of_a_whole(&members, self.nodes.len()) {
                let leader = self.numbered(&leader)?;
                if self.streams_from(leader) {
                    return Ok(leader);
                }
            }
            ensure(start.elapsed() < PATIENCE, || {
                let logs = self.nodes.iter().map(Node::end_of_log).collect::<String>();
                format!("not whole after {PATIENCE:?}: {members:?}\n{logs}")
            })?;
            thread::sleep(PAUSE);
        }
    }

    fn streams_from(&self, leader: usize) -> bool {
        let followers = self.nodes.len() - 1;
        let answers = |node: &Node<'_>, query: &str| {
            let asked = node.cluster.psql("postgres", query).attempt();
            asked.map(|output| output.stdout.trim().to_owned()).unwrap_or_default()
        };
        let streams = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
        self.nodes.iter().enumerate().all(|(number, node)| {
            let follows = if number == leader { "f" } else { "t" };
            answers(node, "SELECT pg_is_in_recovery()") == follows
        }) && answers(&self.nodes[leader], streams) == followers.to_string()
    }

    /// Waits until another than `old` leads.
    ///
    /// # Errors
    /// When none does within `PATIENCE`.
    pub fn led_by_another(&self, old: usize) -> Result<usize> {
        let start = Instant::now();
        loop {
            for node in &self.nodes {
                let leader = node.members().ok().and_then(|all| rest::leader(&all));
                if let Some(leader) = leader.filter(|it| *it != self.nodes[old].name) {
                    return self.numbered(&leader);
                }
            }
            ensure(start.elapsed() < PATIENCE, || {
                let logs = self.nodes.iter().map(Node::end_of_log).collect::<String>();
                format!("nobody but {} leads\n{logs}", self.nodes[old].name)
            })?;
            thread::sleep(PAUSE);
        }
    }

    /// Waits until every node has replayed all that the leader has written.
    ///
    /// # Errors
    /// When one has not within the patience of [`tidelock_servers::Cluster::wait_for`].
    pub fn caught_up(&self) -> Result<()> {
        let leader = self.whole()?;
        let end = self.nodes[leader].cluster.sql("SELECT pg_current_wal_lsn()")?;
        let replayed = format!(
            "SELECT NOT pg_is_in_recovery() OR pg_last_wal_replay_lsn() >= '{end}'::pg_lsn"
        );
        self.nodes.iter().try_for_each(|node| node.cluster.wait_for(&replayed, "t"))
    }

    /// A writer that finds the leader by itself.
    ///
    /// # Errors
    /// When its table cannot be made.
    pub fn writer(&self, text: &str, threads: u32) -> Result<Writer> {
        let leader = &self.nodes[self.whole()?];
        leader.cluster.sql(writer::TABLE)?;
        let hosts = self.nodes.iter().map(|node| node.address.clone()).collect();
        Ok(Writer::start(hosts, text, threads))
    }

    /// Where root's files are.
    #[must_use]
    pub fn etc(&self) -> &Etc {
        &self.etc
    }

    fn numbered(&self, name: &str) -> Result<usize> {
        let found = self.nodes.iter().position(|node| node.name == name);
        found.ok_or_else(|| Error::Unexpected(format!("there is no node {name}")))
    }
}

/// Loopback addresses that another process of these tests does not take at the same time: every
/// node has the ports of its servers to itself, as on a machine of its own.
struct Net(String);

impl Net {
    fn of_this_process() -> Self {
        let own = std::process::id();
        Self(format!("127.{}.{}", 64 + own % 128, 1 + own / 128 % 250))
    }

    fn address(&self, host: u8) -> String {
        format!("{}.{host}", self.0)
    }

    fn etcd(&self) -> String {
        self.address(100)
    }
}

fn etcd(place: &Workspace, net: &Net) -> Result<Started> {
    let (client, peer) =
        (format!("http://{}:2379", net.etcd()), format!("http://{}:2380", net.etcd()));
    let log = place.join("etcd.log");
    let file = std::fs::File::create(&log).map_err(Error::io("making the log of etcd"))?;
    let mut command = alone(ETCD);
    place.account().apply(&mut command);
    command.arg("--data-dir").arg(place.make_dir("etcd")?).current_dir("/");
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &format!("default={peer}"), "--log-level", "warn"]);
    let copy = file.try_clone().map_err(Error::io("sharing the log of etcd"))?;
    command.stdout(file).stderr(copy);
    let mut etcd = command.start().map_err(Error::io("starting etcd"))?;
    let start = Instant::now();
    while TcpStream::connect((net.etcd(), 2379)).is_err() {
        let ended = etcd.try_wait().map_err(Error::io("waiting for etcd"))?;
        ensure(ended.is_none() && start.elapsed() < PATIENCE, || {
            format!("etcd does not listen: {}", end_of(&log))
        })?;
        thread::sleep(PAUSE);
    }
    Ok(etcd)
}

/// Where units' sockets of the servers' account lie.
fn run_folder(place: &Workspace) -> PathBuf {
    let uid = place.account().uid().unwrap_or_default();
    PathBuf::from(format!("/run/tidelock/{uid}"))
}

/// Takes ended servers from the process table as init would. They are ours by then: Patroni waits
/// for the end of a server that is not its child.
struct Orphans {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Orphans {
    fn reaped() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !until.load(Ordering::Relaxed) {
                Process::reap_orphans("postgres");
                thread::sleep(PAUSE);
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Orphans {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn end_of(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(25)..].join("\n")
}

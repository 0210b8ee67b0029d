//! Nodes of a Galera cluster on this machine: sealed MariaDB servers with keys of their own that
//! talk over loopback ports.
//!
//! ```text
//!   clients --socket--> node 0 ==write sets== node 1 ==write sets== node 2
//!                                   a node that comes: state transfer by Debian's scripts
//! ```
//!
//! The ring of write sets (GCache) of node 0 lies in a directory of /dev/shm that goes with the
//! node. Those of the others are where the provider puts them, in the data directory.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tempfile::TempDir;
use tidelock_servers::Process;
use tidelock_servers::mysqld::Mysqld;
use tidelock_servers::{Arm, Error, Result, Workspace, ensure};

use crate::maria::SMALL;

/// Debian's package galera-4.
const PROVIDER: &str = "/usr/lib/galera/libgalera_smm.so";
/// What a cluster takes at most to be whole again, on a machine that does many other things.
const PATIENCE: Duration = Duration::from_secs(600);
/// What Debian's scripts need and is not installed, by its package.
#[must_use]
pub fn missing() -> Option<&'static str> {
    let needed = [
        (PROVIDER, "galera-4"),
        ("/usr/bin/mariadb-backup", "mariadb-backup"),
        ("/usr/bin/socat", "socat"),
        ("/usr/bin/ss", "iproute2"),
        ("/usr/bin/rsync", "rsync"),
    ];
    let absent = |path: &str| !Path::new(path).exists();
    needed.into_iter().find(|(path, _)| absent(path)).map(|(_, package)| package)
}

/// The ports of one node.
#[derive(Debug)]
struct Ports {
    group: u16,
    increments: u16,
    transfer: u16,
}

/// One node.
#[derive(Debug)]
pub struct Node<'p> {
    /// Its server, started or not.
    pub maria: Mysqld<'p>,
    ring: TempDir,
    group: String,
}

/// How a node gets the state of another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transfer {
    /// By mariadb-backup and mbstream.
    Backup,
    /// By rsync, and a binary log on each node.
    Rsync,
}

/// Nodes of one cluster, none of them started. Node 0 has system tables; the others are empty
/// directories. Each sealed one has a keyring of its own.
///
/// # Errors
/// When one cannot be made.
pub fn nodes<'p>(place: &'p Workspace, arms: &[Arm], transfer: Transfer) -> Result<Vec<Node<'p>>> {
    let ports = ports(arms.len())?;
    let all: Vec<String> = ports.iter().map(|it| format!("127.0.0.1:{}", it.group)).collect();
    let group = format!("gcomm://{}", all.join(","));
    let all = ports.iter().zip(arms).enumerate();
    all.map(|(number, (ports, arm))| node(place, number, *arm, transfer, ports, &group)).collect()
}

fn node<'p>(
    place: &'p Workspace,
    number: usize,
    arm: Arm,
    transfer: Transfer,
    ports: &Ports,
    group: &str,
) -> Result<Node<'p>> {
    let name = format!("n{number}");
    let ring = tempfile::Builder::new().prefix("tl-ring-").tempdir_in("/dev/shm");
    let ring = ring.map_err(Error::io("making a directory in memory"))?;
    place.account().give(ring.path())?;
    let maria = Mysqld::mariadb(place, &name, arm)?;
    for (name, value) in SMALL {
        maria.set(name, value)?;
    }
    match number {
        0 => maria.install()?,
        _ if arm == Arm::Sealed => maria.protect()?,
        _ => drop(place.make_dir(&name)?),
    }
    let mut options = format!(
        "gmcast.listen_addr=tcp://127.0.0.1:{}; ist.recv_addr=127.0.0.1:{}; gcache.size=32M",
        ports.group, ports.increments,
    );
    if number == 0 {
        options = format!("{options}; gcache.dir={}", ring.path().display());
    }
    let method = match transfer {
        Transfer::Backup => "mariabackup",
        Transfer::Rsync => "rsync",
    };
    let address = format!("127.0.0.1:{}", ports.group);
    let receives = format!("127.0.0.1:{}", ports.transfer);
    for (name, value) in [
        ("binlog_format", "ROW"),
        ("innodb_autoinc_lock_mode", "2"),
        // What a crash may not lose lies on the disks of the other nodes too.
        ("innodb_flush_log_at_trx_commit", "1"),
        ("wsrep_on", "ON"),
        ("wsrep_provider", PROVIDER),
        ("wsrep_node_name", &name),
        ("wsrep_node_address", &address),
        ("wsrep_provider_options", &options),
        ("wsrep_sst_method", method),
        ("wsrep_sst_auth", "root:"),
        ("wsrep_sst_receive_address", &receives),
        // A read sees what any node has acknowledged.
        ("wsrep_sync_wait", "1"),
    ] {
        maria.set(name, value)?;
    }
    let node = Node { maria, ring, group: group.into() };
    if transfer == Transfer::Rsync {
        node.maria.set("log_bin", "on")?;
        // The script's shell writes names of binary logs there, and has no keys.
        node.append("[sst]\ntmpdir = /tmp\n[mysqld]\n")?;
    }
    Ok(node)
}

impl<'p> Node<'p> {
    /// Starts it as the first of a new cluster.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn found(&self) -> Result<()> {
        self.maria.set("wsrep_cluster_address", "gcomm://")?;
        self.maria.start()?;
        self.maria.set("wsrep_cluster_address", &self.group)
    }

    /// Starts it to join the others, and waits until it has all that they have.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn join(&self) -> Result<()> {
        self.maria.set("wsrep_cluster_address", &self.group)?;
        self.maria.start()?;
        self.wait_for("wsrep_local_state_comment", "Synced")
    }

    /// As [`Node::join`] after a crash, the way Debian's galera_recovery does it: the position that
    /// InnoDB has recovered is told to the server, so that increments may do.
    ///
    /// # Errors
    /// When there is no such position; when it does not come up.
    pub fn join_after_a_crash(&self) -> Result<()> {
        let recover = self.maria.server_tool("mariadbd")?.args(["--wsrep-recover"]).limit(300);
        let told = recover.run()?;
        let log = fs::read_to_string(self.maria.log()).map_err(Error::io("reading the log"))?;
        let found = log.lines().rev().find_map(|line| line.split_once("Recovered position: "));
        let position = found.map(|(_, position)| position.trim().to_owned());
        let position = position.ok_or_else(|| Error::Unexpected(told.text()))?;
        self.maria.set("wsrep_start_position", &position)?;
        let joined = self.join();
        // Only for this start.
        self.maria.set("wsrep_start_position", NOWHERE)?;
        joined
    }

    /// As [`Node::found`] after a crash of the only node, which its state file has to be told.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn found_after_a_crash(&self) -> Result<()> {
        let path = self.maria.dir().join("grastate.dat");
        let text = fs::read_to_string(&path).map_err(Error::io("reading the state"))?;
        let safe = text.replace("safe_to_bootstrap: 0", "safe_to_bootstrap: 1");
        fs::write(&path, safe).map_err(Error::io("writing the state"))?;
        self.found()
    }

    /// Starts it to join the others, and calls `then` as soon as it has been given the first files
    /// of a transfer by rsync, and before the last ones. Then it is ended, if it is still there.
    ///
    /// # Errors
    /// When there is no transfer.
    pub fn join_until(
        &self,
        donor: &Node<'_>,
        then: impl FnOnce(Process) -> Result<()>,
    ) -> Result<()> {
        const FIRST: &str = "Transfer of InnoDB data files done";
        let before = donor.logged(FIRST)?;
        self.join_while(donor, || Ok(donor.logged(FIRST)? == before), then)
    }

    /// As [`Node::join_until`] with a transfer by mariadb-backup, when the stream has brought so
    /// many bytes of this file.
    ///
    /// # Errors
    /// When there is no transfer.
    pub fn join_until_streamed(
        &self,
        donor: &Node<'_>,
        (file, bytes): (&str, u64),
        then: impl FnOnce(Process) -> Result<()>,
    ) -> Result<()> {
        let file = self.stream_dir().join(file);
        // What an earlier transfer has left would be taken for this one.
        let _ = fs::remove_dir_all(self.stream_dir());
        let waits = || Ok(fs::metadata(&file).map_or(0, |it| it.len()) < bytes);
        self.join_while(donor, waits, then)
    }

    /// Where the stream of mariadb-backup is unpacked on the node that joins.
    #[must_use]
    pub fn stream_dir(&self) -> PathBuf {
        self.maria.dir().join(".sst")
    }

    fn join_while(
        &self,
        donor: &Node<'_>,
        waits: impl Fn() -> Result<bool>,
        then: impl FnOnce(Process) -> Result<()>,
    ) -> Result<()> {
        const WAIT: Duration = Duration::from_secs(5);
        self.maria.set("wsrep_cluster_address", &self.group)?;
        let mut server = self.maria.server_tool("mariadbd")?.limit(300).spawn()?;
        let begin = Instant::now();
        while waits()? {
            let runs = server.runs() && begin.elapsed() < PATIENCE;
            let log = || fs::read(self.maria.log()).unwrap_or_default();
            let told = || format!("no transfer:\n{}", String::from_utf8_lossy(&log()));
            ensure(runs, told)?;
            thread::sleep(Duration::from_millis(5));
        }
        let process = i32::try_from(server.id()).ok().and_then(Process::new);
        let process = process.ok_or_else(|| Error::Unexpected("no process id".into()))?;
        then(process)?;
        // Without its donor it waits for another one.
        process.wait_gone(WAIT).or_else(|_| process.signal(Signal::KILL))?;
        drop(server.wait());
        // The script and its daemon end soon after. Nobody reaps them while the test runs, so the
        // next script would take them for alive.
        thread::sleep(WAIT);
        for dir in [self.maria.dir(), donor.maria.dir()] {
            for name in ["wsrep_sst.pid", "rsync_sst.pid"] {
                let _ = fs::remove_file(dir.join(name));
            }
        }
        Ok(())
    }

    /// Waits for this value of a status variable.
    ///
    /// # Errors
    /// When it does not come.
    pub fn wait_for(&self, variable: &str, wanted: &str) -> Result<()> {
        let begin = Instant::now();
        loop {
            let found = self.status(variable)?;
            if found == wanted {
                return Ok(());
            }
            ensure(begin.elapsed() < PATIENCE, || format!("{variable} is {found}, not {wanted}"))?;
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// A status variable of the server.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn status(&self, variable: &str) -> Result<String> {
        // Also while the nodes agree on who is there.
        let query = format!("SET SESSION wsrep_sync_wait = 0; SHOW STATUS LIKE '{variable}'");
        let told = self.maria.sql(&query)?;
        Ok(told.split('\t').nth(1).unwrap_or_default().to_owned())
    }

    /// How often its log has these words.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn logged(&self, words: &str) -> Result<usize> {
        let log = fs::read(self.maria.log()).map_err(Error::io("reading the log"))?;
        Ok(String::from_utf8_lossy(&log).matches(words).count())
    }

    /// Where its write sets lie, in memory.
    #[must_use]
    pub fn ring(&self) -> &Path {
        self.ring.path()
    }

    /// Its option file, which the state transfer's scripts read too.
    #[must_use]
    pub fn options(&self) -> PathBuf {
        self.maria.dir().with_extension("cnf")
    }

    fn append(&self, text: &str) -> Result<()> {
        let path = self.options();
        let what = || Error::io(format!("writing {}", path.display()));
        let mut file = OpenOptions::new().append(true).open(&path).map_err(what())?;
        file.write_all(text.as_bytes()).map_err(what())
    }
}

/// The server's own default: it asks the group.
const NOWHERE: &str = "00000000-0000-0000-0000-000000000000:-1";

/// Free ones; all are taken before the first is given back, so that no two are the same.
fn ports(count: usize) -> Result<Vec<Ports>> {
    let taken: std::io::Result<Vec<TcpListener>> =
        (0..count * 3).map(|_| TcpListener::bind("127.0.0.1:0")).collect();
    let taken = taken.map_err(Error::io("looking for free ports"))?;
    let port = |it: &TcpListener| it.local_addr().map(|it| it.port());
    let numbers: std::io::Result<Vec<u16>> = taken.iter().map(port).collect();
    let numbers = numbers.map_err(Error::io("looking for free ports"))?;
    let of = |three: &[u16]| Ports { group: three[0], increments: three[1], transfer: three[2] };
    Ok(numbers.chunks_exact(3).map(of).collect())
}

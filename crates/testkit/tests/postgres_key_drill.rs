//! Keys are changed, and the server is stopped, killed and started, while clients write: every
//! commit that a client was told of is there afterwards.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tidelock_testkit::arms;
use tidelock_testkit::pg::{Arm, Cluster, Error, Result, Workspace, ensure, fill_pgbench};

/// A transaction of a client: `n` counts its own, so that each commit has a name.
const SCRIPT: &str = "\\set n :n + 1
\\set account random(1, 100000 * :scale)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :account;
INSERT INTO ledger (round, client, n) VALUES (:round, :client_id, :n);
END;
";
const CLIENTS: u32 = 4;

/// Commits that each client was told of: it has no gaps, since a client waits for each.
type Acknowledged = BTreeMap<u32, u64>;

/// How the server ends in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// By SIGKILL, after the changes.
    Killed,
    /// By `pg_ctl stop`, after the changes.
    Stopped,
    /// By SIGKILL while keys change, and it is started again while they go on changing.
    KilledInBetween,
}

impl End {
    fn of(round: u32) -> Self {
        [Self::Killed, Self::KilledInBetween, Self::Stopped][round as usize % 3]
    }
}

/// One round: the load, the changes of an operator, the end of the server.
struct Drill<'c, 'p> {
    server: &'c Cluster<'p>,
    place: &'p Workspace,
    acknowledged: BTreeMap<u32, Acknowledged>,
    changes: AtomicU32,
}

impl Drill<'_, '_> {
    fn key(&self, args: &[&str]) -> Result<()> {
        let dir = self.server.dir().display().to_string();
        let [verb, rest @ ..] = args else { return Ok(()) };
        let done = self.server.tidelock(&["key", verb, "-D", &dir])?.args(rest).attempt()?;
        // 6: the keyring is changed, but the agent that should be told has just ended.
        ensure(matches!(done.status.code(), Some(0 | 6)), || {
            format!("{} ended with {}:\n{}", done.command, done.status, done.text())
        })?;
        self.changes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// SQL of the operator, unless the server is killed meanwhile.
    fn sql(&self, end: End, text: &str) -> Result<()> {
        if end == End::KilledInBetween { Ok(()) } else { self.server.sql(text).map(drop) }
    }

    /// The first digits of the slots of this type.
    fn slots(&self, kind: &str) -> Result<Vec<String>> {
        let dir = self.server.dir().display().to_string();
        let output = self.server.tidelock(&["key", "list", "--json", "-D", &dir])?.run()?;
        let report: Value = serde_json::from_str(&output.stdout)
            .map_err(|why| Error::Unexpected(why.to_string()))?;
        let slots = report["slots"].as_array().cloned().unwrap_or_default();
        let of_kind = slots.iter().filter(|slot| slot["kind"] == kind);
        Ok(of_kind.filter_map(|slot| slot["id"].as_str()).map(str::to_owned).collect())
    }

    /// Clients write until the server ends; what they were told of is noted.
    fn round(&mut self, round: u32, end: End) -> Result<()> {
        let folder = self.place.make_dir(&format!("acks-{round}"))?;
        let script = self.place.join("drill.sql");
        let variables = [format!("round={round}"), "n=0".into(), "scale=2".into()];
        let load = self
            .server
            .client("pgbench")
            .args(["-n", "-c", &CLIENTS.to_string(), "-j", "2", "-T", "600", "-l"])
            .arg(format!("--log-prefix={}", folder.join("log").display()))
            .args(variables.iter().flat_map(|variable| ["-D", variable]))
            .arg("-f")
            .arg(&script)
            .limit(660)
            .spawn()?;
        let changed = match end {
            End::KilledInBetween => thread::scope(|scope| {
                let before = self.changes.load(Ordering::Relaxed);
                let changes = scope.spawn(|| self.changes_of(round, end));
                let two = || self.changes.load(Ordering::Relaxed) >= before + 2;
                while !two() && !changes.is_finished() {
                    thread::sleep(Duration::from_millis(2));
                }
                let between = !changes.is_finished();
                let ended = self.server.kill_nine().and_then(|()| self.server.start());
                let panicked = |_| Err(Error::Unexpected("the changes panicked".into()));
                ended.and(changes.join().unwrap_or_else(panicked))?;
                ensure(between, || "the changes had ended before the kill".into())
            }),
            End::Killed => self.changes_of(round, end).and_then(|()| self.server.kill_nine()),
            End::Stopped => self.changes_of(round, end).and_then(|()| self.server.stop("fast")),
        };
        let ended = load.wait()?;
        changed?;
        ensure(!ended.status.success(), || "pgbench ended before its server".into())?;
        let acknowledged = read(&folder)?;
        let count: u64 = acknowledged.values().sum();
        ensure(acknowledged.len() == CLIENTS as usize && count > 0, || {
            format!("round {round}: no commits of some clients:\n{}", ended.text())
        })?;
        self.acknowledged.insert(round, acknowledged);
        Ok(())
    }

    /// What an operator may do to the keys of a server, all of it, while new files are made.
    fn changes_of(&self, round: u32, end: End) -> Result<()> {
        let home = |name: &str| self.place.join(&format!("home/{name}"));
        let file = |name: &str| format!("file:{}", home(&format!("{name}-{round}.key")).display());
        let recovery = home("server.recovery").display().to_string();
        let (added, rotated) = (file("added"), file("rotated"));
        thread::sleep(Duration::from_millis(500));
        self.key(&["new-data-key"])?;
        self.sql(end, "SELECT pg_switch_wal()")?;
        self.sql(end, "VACUUM FULL ledger")?;
        self.key(&["add", &added])?;
        let old = self.slots("file")?;
        // Renews the keyring key under all that are left.
        self.key(&["remove", &old[0], "--recovery-file", &recovery])?;
        let left = self.slots("file")?;
        let words = ["rotate", "--slot", &left[0], "--to", &rotated, "--recovery-file", &recovery];
        self.key(&words)?;
        self.sql(end, &format!("CREATE TABLE made_{round} AS SELECT 1 AS one"))?;
        self.key(&["new-data-key"])?;
        self.sql(end, "REINDEX TABLE ledger")?;
        thread::sleep(Duration::from_millis(300));
        Ok(())
    }

    /// Commits that clients were told of, and those of them that are not there.
    fn lost(&self) -> Result<(u64, u64)> {
        let (mut told, mut lost) = (0, 0);
        for (round, clients) in &self.acknowledged {
            for (client, count) in clients {
                let query = format!(
                    "SELECT count(*) FROM generate_series(1, {count}) n WHERE NOT EXISTS (SELECT \
                     FROM ledger l WHERE (l.round, l.client, l.n) = ({round}, {client}, n))"
                );
                let missing = self.server.sql(&query)?;
                told += count;
                lost += missing.parse::<u64>().map_err(|_| Error::Unexpected(missing))?;
            }
        }
        Ok((told, lost))
    }
}

/// pgbench's log: a line for each transaction that its client was told of.
fn read(folder: &Path) -> Result<Acknowledged> {
    let what = || format!("reading {}", folder.display());
    let mut all = Acknowledged::new();
    for entry in fs::read_dir(folder).map_err(Error::io(what()))? {
        let path = entry.map_err(Error::io(what()))?.path();
        let text = fs::read_to_string(path).map_err(Error::io(what()))?;
        for line in text.lines() {
            let client = line.split(' ').next().and_then(|client| client.parse().ok());
            let client = client.ok_or_else(|| Error::Unexpected(line.to_owned()))?;
            *all.entry(client).or_default() += 1;
        }
    }
    Ok(all)
}

fn rounds(arm: Arm, rounds: u32) -> Result<()> {
    let place = Workspace::new()?;
    let server = Cluster::started(&place, "server", arm)?;
    fill_pgbench(&server, 2)?;
    server.sql(
        "CREATE TABLE ledger (round int, client int, n int, PRIMARY KEY (round, client, n))",
    )?;
    place.write(&place.join("drill.sql"), SCRIPT)?;
    let mut drill =
        Drill { server: &server, place: &place, acknowledged: BTreeMap::new(), changes: 0.into() };
    for round in 0..rounds {
        let end = End::of(round);
        drill.round(round, end)?;
        if end != End::KilledInBetween {
            server.start()?;
        }
        let (told, lost) = drill.lost()?;
        eprintln!(
            "round {round}, {end:?}: {} changes of keys, {told} commits acknowledged, {lost} lost",
            drill.changes.load(Ordering::Relaxed)
        );
        ensure(lost == 0, || format!("round {round}: {lost} of {told} commits are lost"))?;
    }
    server.stop("fast")?;
    // Every page of every file opens under the keys that are left, and is whole.
    let dir = server.dir().display().to_string();
    server.tidelock(&["verify", "-D", &dir])?.run()?;
    server.tool("pg_checksums").args(["--check", "-D", &dir]).run().map(drop)
}

fn no_commit_is_lost_while_keys_change(arm: Arm) -> Result<()> {
    rounds(arm, 2)
}
arms!(no_commit_is_lost_while_keys_change: sealed);

fn no_commit_is_lost_in_twenty_rounds(arm: Arm) -> Result<()> {
    rounds(arm, 20)
}
arms!(no_commit_is_lost_in_twenty_rounds: sealed; slow);

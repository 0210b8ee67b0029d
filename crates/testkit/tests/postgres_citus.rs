//! Citus over sealed nodes, each with keys of its own: rows of a distributed table are sealed on
//! every node, and a node that is killed comes back with what was acknowledged.
//!
//! Debian has no package of Citus. The test runs where `TIDELOCK_CITUS` names the folder of
//! programs of a PostgreSQL 15 that has it.

use std::env;
use std::path::{Path, PathBuf};

use tidelock_servers::skip;
use tidelock_testkit::marker::Marker;
use tidelock_testkit::pg::{Arm, Cluster, Error, Result, Workspace, ensure};

#[test]
#[ignore = "needs Citus"]
fn a_distributed_table_on_sealed_workers_survives_kills_of_each_node() -> Result<()> {
    let Some(bin) = citus() else {
        skip::because("Citus is not here, and not in Debian: TIDELOCK_CITUS=DIR has its programs");
        return Ok(());
    };
    let place = Workspace::new()?;
    let marker = Marker::new();
    let nodes = ["coordinator", "one", "two"]
        .map(|name| node(&place, name, &bin))
        .into_iter()
        .collect::<Result<Vec<_>>>()?;
    let [coordinator, workers @ ..] = &nodes[..] else { unreachable!("there are three") };
    let address = |node: &Cluster<'_>| format!("'{}', 5432", node.socket_dir().display());
    coordinator.sql(&format!("SELECT citus_set_coordinator_host({})", address(coordinator)))?;
    for worker in workers {
        coordinator.sql(&format!("SELECT citus_add_node({})", address(worker)))?;
    }
    coordinator.sql(&format!(
        "CREATE TABLE t (n int PRIMARY KEY, v int, t text);
         SELECT create_distributed_table('t', 'n');
         CREATE TABLE h (n int, at timestamptz DEFAULT now());
         SELECT create_distributed_table('h', 'n', colocate_with => 'none');
         INSERT INTO t SELECT n, 0, '{}' FROM generate_series(1, 20000) n",
        marker.text()
    ))?;
    let places =
        "SELECT count(DISTINCT nodename) FROM citus_shards WHERE table_name = 't'::regclass";
    coordinator.expect(places, "2")?;

    // Each transaction writes on both workers most of the time: two-phase commit.
    let script = place.join("transfer.sql");
    place.write(&script, TRANSFER)?;
    let mut acknowledged = 0;
    for victim in [&nodes[1], &nodes[2], &nodes[0]] {
        let before: u64 = number(&coordinator.sql("SELECT count(*) FROM h")?)?;
        let load = coordinator
            .client("pgbench")
            .args(["-n", "-c", "4", "-T", "900", "--max-tries=50", "-f"])
            .arg(&script)
            .spawn()?;
        let enough = format!("SELECT count(*) > {} FROM h", before + 100);
        coordinator.wait_for(&enough, "t")?;
        victim.kill_nine()?;
        // Its clients end by the error; what it counted was acknowledged.
        let said = load.wait()?;
        let told = "number of transactions actually processed: ";
        let counted = said.stdout.lines().find_map(|line| line.strip_prefix(told));
        acknowledged += number(counted.unwrap_or_default().split('/').next().unwrap_or_default())?;
        victim.start()?;
        coordinator.sql("SELECT recover_prepared_transactions()")?;
        coordinator.expect("SELECT sum(v) FROM t", "0")?;
        let there = number(&coordinator.sql("SELECT count(*) FROM h")?)?;
        ensure(there >= acknowledged, || format!("{acknowledged} acknowledged, {there} there"))?;
    }
    eprintln!("3 kills, {acknowledged} acknowledged transactions, lost: 0");

    coordinator.sql("SELECT run_command_on_all_nodes('CHECKPOINT')")?;
    for node in &nodes {
        node.stop("fast")?;
        let seen = marker.search(&[node.dir()]).map_err(Error::io("searching"))?;
        ensure(seen.findings.is_empty() && seen.files > 500, || format!("{:?}", seen.findings))?;
        node.tidelock(&["verify", "-D"])?.arg(node.dir()).run()?;
    }
    // The search can find it: the same rows in a plain node.
    nodes[1].tidelock(&["decrypt"])?.arg(nodes[1].dir()).run()?;
    let seen = marker.search(&[nodes[1].dir()]).map_err(Error::io("searching"))?;
    ensure(!seen.findings.is_empty(), || "a worker has no rows".into())
}

const TRANSFER: &str = "\\set a random(1, 20000)
\\set b random(1, 20000)
BEGIN;
UPDATE t SET v = v + 1 WHERE n = :a;
UPDATE t SET v = v - 1 WHERE n = :b;
INSERT INTO h (n) VALUES (:a);
COMMIT;
";

/// A sealed server that finds the others by their sockets.
fn node<'w>(place: &'w Workspace, name: &str, bin: &Path) -> Result<Cluster<'w>> {
    let node = Cluster::at(place, name, Arm::Sealed)?.with(Some(bin.into()), Vec::new());
    node.make(&["-k"])?;
    let sockets = node.socket_dir().display().to_string();
    for (setting, value) in [
        ("shared_preload_libraries", "citus"),
        ("citus.node_conninfo", "sslmode=disable"),
        ("citus.local_hostname", &sockets),
        ("max_prepared_transactions", "50"),
        ("shared_buffers", "16MB"),
    ] {
        node.set(setting, value)?;
    }
    node.start()?;
    node.sql("CREATE EXTENSION citus")?;
    Ok(node)
}

fn citus() -> Option<PathBuf> {
    let bin = env::var_os("TIDELOCK_CITUS").map(PathBuf::from)?;
    bin.join("postgres").is_file().then_some(bin)
}

fn number(text: &str) -> Result<u64> {
    text.trim().parse().map_err(|_| Error::Unexpected(format!("{text:?} is no number")))
}

//! Three sealed nodes of Galera, each with keys of its own: state transfers, lost nodes, rolling
//! rotation, beside writers whose acknowledged transactions are counted.

use tidelock_testkit::galera::{Node, missing, nodes};
use tidelock_testkit::maria::{Inserter, search};
use tidelock_testkit::marker::Marker;
use tidelock_testkit::pg::{Arm, Result, Workspace, ensure, skip};

/// Acknowledged beside what the test does.
const ROWS: u64 = 40;
/// Debian's script says so on the node that joins.
const WHOLE: &str = "Proceeding with SST";

#[test]
#[ignore = "long: make test-full"]
fn three_nodes_lose_no_acknowledged_row() -> Result<()> {
    if let Some(package) = missing() {
        skip::missing(package);
        return Ok(());
    }
    let place = Workspace::new()?;
    let marker = Marker::new();
    let nodes = nodes(&place, 3)?;
    let [a, b, c] = &nodes[..] else { unreachable!("three were asked for") };
    a.found()?;
    let text = marker.text();
    a.maria.sql(&format!(
        "CREATE DATABASE d; USE d; CREATE TABLE d.told (b TEXT) ENGINE = InnoDB;
         INSERT INTO d.told SELECT CONCAT('{text}', seq) FROM seq_1_to_2000;
         CREATE TABLE d.a (k INT PRIMARY KEY, b TEXT); CREATE TABLE d.b LIKE d.a;
         CREATE TABLE d.c LIKE d.a"
    ))?;
    // The whole state, from one keyring to another.
    b.join()?;
    c.join()?;
    a.wait_for("wsrep_cluster_size", "3")?;
    for node in [b, c] {
        ensure(node.logged(WHOLE)? == 1, || "the first transfer is not the whole".into())?;
    }
    let mut writers = Writers::start([a, b, c])?;

    // A node is lost; it comes back by the write sets that it has missed.
    writers.lose(2, c)?;
    a.wait_for("wsrep_cluster_size", "2")?;
    writers.go_on()?;
    c.join_after_a_crash()?;
    ensure(c.logged(WHOLE)? == 1, || "more than the missed write sets came".into())?;
    writers.check(2, c)?;

    // A node is lost, and does not know how far it was: it gets all again, over its old files.
    writers.lose(1, b)?;
    writers.go_on()?;
    b.join()?;
    ensure(b.logged(WHOLE)? == 2, || "the second transfer is not the whole".into())?;
    writers.check(1, b)?;

    // Keys change node by node while the others write.
    for (number, node) in [a, b, c].into_iter().enumerate() {
        let tidelock = |words: &[&str]| -> Result<()> {
            let command = place.programs()?.command;
            place.tool(command).args(words).arg("-D").arg(node.maria.dir()).run().map(drop)
        };
        tidelock(&["key", "new-data-key"])?;
        writers.stop(number);
        node.maria.stop()?;
        writers.go_on()?;
        node.join()?;
        tidelock(&["verify"])?;
        writers.check(number, node)?;
    }
    a.wait_for("wsrep_cluster_size", "3")?;
    writers.end([a, b, c])?;
    for node in &nodes {
        let found = node.maria.sql("SELECT COUNT(*), SUM(b LIKE CONCAT('%', 2000)) FROM d.told")?;
        ensure(found == "2000\t1", || found)?;
    }
    let dirs: Vec<_> = nodes.iter().map(|node| node.maria.dir()).collect();
    search(&marker, Arm::Sealed, &dirs)?;
    for node in &nodes {
        node.maria.stop()?;
    }
    search(&marker, Arm::Sealed, &dirs)?;
    // The control: write sets lie in memory, as the page says.
    let rings: Vec<_> = nodes.iter().map(Node::ring).collect();
    let seen = marker.search(&rings).expect("memory can be read");
    ensure(!seen.findings.is_empty(), || "the control finds nothing".into())
}

/// A client on each node, with a table of its own, and how far each has got.
struct Writers([Option<Inserter>; 3], [u64; 3]);

const TABLES: [&str; 3] = ["d.a", "d.b", "d.c"];

impl Writers {
    fn start(nodes: [&Node<'_>; 3]) -> Result<Self> {
        let mut all = Self([None, None, None], [0; 3]);
        for (number, node) in nodes.into_iter().enumerate() {
            all.0[number] = Some(Inserter::start(&node.maria, TABLES[number], 0)?);
        }
        all.go_on()?;
        Ok(all)
    }

    /// Waits until every writer that there is has got further.
    fn go_on(&self) -> Result<()> {
        for writer in self.0.iter().flatten().filter(|it| !it.is_ended()) {
            let at = writer.last()?.unwrap_or_default();
            writer.wait_beyond(at + ROWS)?;
        }
        Ok(())
    }

    /// Kills a node under its writer.
    fn lose(&mut self, number: usize, node: &Node<'_>) -> Result<()> {
        self.go_on()?;
        node.maria.kill_nine()?;
        self.stop(number);
        Ok(())
    }

    /// Ends a writer; what it was told stays.
    fn stop(&mut self, number: usize) {
        if let Some(writer) = &mut self.0[number] {
            writer.end();
        }
    }

    /// Compares the table with what was acknowledged, on the node that came back, and writes on.
    fn check(&mut self, number: usize, node: &Node<'_>) -> Result<()> {
        if let Some(writer) = &self.0[number] {
            self.1[number] = writer.compare(&node.maria)?;
        }
        let next = Inserter::start(&node.maria, TABLES[number], self.1[number])?;
        next.wait_beyond(self.1[number])?;
        self.0[number] = Some(next);
        Ok(())
    }

    /// Ends all, and compares every table on every node.
    fn end(&mut self, nodes: [&Node<'_>; 3]) -> Result<()> {
        for number in 0..3 {
            self.stop(number);
        }
        for node in nodes {
            for writer in self.0.iter().flatten() {
                writer.compare(&node.maria)?;
            }
        }
        Ok(())
    }
}

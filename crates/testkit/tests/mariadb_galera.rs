//! Three sealed nodes of Galera, each with keys of its own: state transfers, lost nodes, rolling
//! rotation, beside writers whose acknowledged transactions are counted.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, thread};

use rustix::process::Signal;
use tidelock_testkit::arms;
use tidelock_testkit::galera::{Node, Transfer, missing, nodes};
use tidelock_testkit::maria::{Inserter, search};
use tidelock_testkit::marker::Marker;
use tidelock_testkit::pg::{Arm, Error, Result, Workspace, ensure, skip};

/// Acknowledged beside what the test does.
const ROWS: u64 = 40;
/// Debian's scripts say so on the node that joins.
const WHOLE: &str = "Proceeding with SST";
const BY_RSYNC: &str = "rsync SST completed on joiner";
/// Beyond 4 MiB, the provider spills a write set to files that it maps; and beyond the 32 MiB of
/// the ring it makes another file.
const LARGE: &str = "USE d; CREATE TABLE d.large (k INT PRIMARY KEY, b TEXT) ENGINE = InnoDB;
     INSERT INTO d.large SELECT seq, RPAD('TEXT', 4000, 'TEXT') FROM seq_1_to_20000";
const IS_LARGE: &str = "SELECT COUNT(*), SUM(LENGTH(b)) FROM d.large";
/// Keys have 4 MiB of their own.
const MANY: &str = "USE d; CREATE TABLE d.many (k INT PRIMARY KEY) ENGINE = InnoDB;
     INSERT INTO d.many SELECT seq FROM seq_1_to_1000000";

#[test]
#[ignore = "long: make test-full"]
fn three_nodes_lose_no_acknowledged_row() -> Result<()> {
    if let Some(package) = missing() {
        skip::missing(package);
        return Ok(());
    }
    let place = Workspace::new()?;
    let marker = Marker::new();
    let nodes = nodes(&place, &[Arm::Sealed; 3], Transfer::Backup)?;
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
    // One transaction that no file of the provider has room for in the clear.
    let large = LARGE.replace("TEXT'", &format!("{text}'"));
    write_and_search(a, &large, &nodes, &marker)?;
    for node in &nodes {
        node.maria.expect(IS_LARGE, "20000\t80000000")?;
    }
    a.maria.sql(MANY)?;
    for node in &nodes {
        node.maria.expect("SELECT COUNT(*) FROM d.many", "1000000")?;
        node.wait_for("wsrep_cluster_size", "3")?;
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
        // The principal key while the node writes, then the data key.
        let listed = place.tool(place.programs()?.command).args(["key", "list", "--json", "-D"]);
        let listed = listed.arg(node.maria.dir()).run()?.stdout;
        let listed: serde_json::Value = serde_json::from_str(&listed).expect("a document");
        let slots = listed["slots"].as_array().expect("slots");
        let slot = slots.iter().find(|slot| slot["kind"] == "file").expect("a key file");
        let next = format!("file:{}", place.join(&format!("home/next-{number}.key")).display());
        let slot = slot["id"].as_str().expect("an id");
        let recovery = place.join(&format!("home/{}.recovery", node.maria.name()));
        let recovery = recovery.display().to_string();
        tidelock(&["key", "rotate", "--slot", slot, "--to", &next, "--recovery-file", &recovery])?;
        writers.go_on()?;
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
    // For the control: the ring forgets the oldest, as soon as the writers have written enough.
    a.maria.sql(&format!("INSERT INTO d.told VALUES ('{text}')"))?;
    let dirs: Vec<_> = nodes.iter().map(|node| node.maria.dir()).collect();
    search(&marker, Arm::Sealed, &dirs)?;
    for node in &nodes {
        node.maria.stop()?;
    }
    search(&marker, Arm::Sealed, &dirs)?;
    // The control: write sets lie in memory, as the page says.
    let seen = marker.search(&[a.ring()]).expect("memory can be read");
    ensure(!seen.findings.is_empty(), || "the control finds nothing".into())
}

#[test]
#[ignore = "long: make test-full"]
fn a_state_comes_by_rsync_whoever_is_killed_meanwhile() -> Result<()> {
    if let Some(package) = missing() {
        skip::missing(package);
        return Ok(());
    }
    let place = Workspace::new()?;
    let marker = Marker::new();
    let arms = [Arm::Sealed, Arm::Sealed, Arm::Plain];
    let nodes = nodes(&place, &arms, Transfer::Rsync)?;
    let [a, b, c] = &nodes[..] else { unreachable!("three were asked for") };

    // Without keys for rsync, a server is not even started.
    let refused = a.maria.server_tool("mariadbd")?.fails()?;
    let told = refused.text();
    ensure(told.contains("--program rsync --program tar"), || told.clone())?;
    for node in [a, b] {
        let tool = place.tool(place.programs()?.command).args(["profile", "set", "-D"]);
        tool.arg(node.maria.dir()).args(["--program", "rsync", "--program", "tar"]).run()?;
    }
    a.found()?;
    let text = marker.text();
    a.maria.sql(&format!(
        "CREATE DATABASE d; USE d; CREATE TABLE d.told (b TEXT) ENGINE = InnoDB;
         INSERT INTO d.told SELECT CONCAT('{text}', seq) FROM seq_1_to_20000;
         CREATE TABLE d.aria (b TEXT) ENGINE = Aria; CREATE TABLE d.isam (b TEXT) ENGINE = MyISAM;
         INSERT INTO d.aria SELECT * FROM d.told; INSERT INTO d.isam SELECT * FROM d.told"
    ))?;
    let has_all = |node: &Node<'_>| -> Result<()> {
        for table in ["told", "aria", "isam"] {
            let count = format!("SELECT COUNT(*), SUM(b LIKE '{text}%') FROM d.{table}");
            node.maria.expect(&count, "20000\t20000")?;
        }
        let checked = node.maria.sql("CHECK TABLE d.told, d.aria, d.isam")?;
        ensure(checked.matches("OK").count() == 3, || checked)
    };

    // The node that joins is killed in the middle.
    b.join_until(a, |joiner| joiner.signal(Signal::KILL))?;
    // One of two is no majority.
    a.wait_for("wsrep_cluster_status", "non-Primary")?;
    a.maria.sql("SET GLOBAL wsrep_provider_options = 'pc.bootstrap=true'")?;
    a.wait_for("wsrep_local_state_comment", "Synced")?;
    has_all(a)?;
    // The donor is killed in the middle; the other one cannot go on.
    b.join_until(a, |_| a.maria.kill_nine())?;
    a.found_after_a_crash()?;
    has_all(a)?;
    b.join()?;
    ensure(b.logged(BY_RSYNC)? > 0, || "not by rsync".into())?;
    has_all(b)?;
    a.maria.sql(LARGE)?;
    b.maria.expect(IS_LARGE, "20000\t80000000")?;
    let sealed = [a.maria.dir(), b.maria.dir()];
    search(&marker, Arm::Sealed, &sealed)?;

    // A cluster moves node by node: from a sealed donor to a plain node,
    c.join()?;
    ensure(c.logged(BY_RSYNC)? == 1, || "not by rsync".into())?;
    has_all(c)?;
    a.maria.sql(&format!("CREATE TABLE d.later AS SELECT '{text}' AS b"))?;
    c.maria.expect("SELECT COUNT(*) FROM d.later", "1")?;
    // and from a plain donor to a sealed one, over its old files.
    for node in [a, b] {
        node.maria.stop()?;
    }
    search(&marker, Arm::Sealed, &sealed)?;
    let before = b.logged(BY_RSYNC)?;
    std::fs::remove_file(b.maria.dir().join("grastate.dat")).expect("its state is plain");
    b.join()?;
    ensure(b.logged(BY_RSYNC)? == before + 1, || "the state is not from the plain node".into())?;
    has_all(b)?;
    b.maria.stop()?;
    c.maria.stop()?;
    place.tool(place.programs()?.command).args(["verify", "-D"]).arg(b.maria.dir()).run()?;
    search(&marker, Arm::Sealed, &sealed)?;
    // The control: a plain node's ring lies in its directory.
    let found = search(&marker, Arm::Plain, &[c.maria.dir()])?;
    ensure(found.iter().any(|name| name == "galera.cache"), || format!("{found:?}"))
}

/// The stream of mariadb-backup is searched in the directory where it arrives, while it does and
/// after either side was killed in it.
fn no_stream_of_a_transfer_is_readable(arm: Arm) -> Result<()> {
    if let Some(package) = missing() {
        skip::missing(package);
        return Ok(());
    }
    let place = Workspace::new()?;
    let marker = Marker::new();
    let nodes = nodes(&place, &[arm; 2], Transfer::Backup)?;
    let [a, b] = &nodes[..] else { unreachable!("two were asked for") };
    a.found()?;
    let text = marker.text();
    let insert = format!(
        "INSERT INTO d.told (b) SELECT CONCAT(REPEAT('{text}', 30), seq) FROM seq_1_to_20000;"
    );
    a.maria
        .sql("CREATE DATABASE d; CREATE TABLE d.told (k INT AUTO_INCREMENT PRIMARY KEY, b TEXT)")?;
    write_and_search(a, &format!("USE d; {}", insert.repeat(4)), &nodes[..1], &marker)?;
    let searched = || -> Result<()> {
        let seen = marker.search(&[b.stream_dir()]).map_err(Error::io("searching the stream"))?;
        let few = || format!("only {} bytes of the stream were searched", seen.bytes);
        ensure(seen.bytes > SOME, few)?;
        match arm {
            Arm::Plain => ensure(!seen.findings.is_empty(), || "the control finds nothing".into()),
            _ => ensure(seen.findings.is_empty(), || format!("{:?}", seen.findings)),
        }?;
        Ok(())
    };
    // What the scripts have not removed yet of the stream is below one of them.
    let dirs = [a.maria.dir(), b.maria.dir()];
    let some = ("d/told.ibd", SOME);

    // The node that joins is killed in the middle.
    b.join_until_streamed(a, some, |joiner| {
        searched()?;
        joiner.signal(Signal::KILL)?;
        search(&marker, arm, &dirs).map(drop)
    })?;
    a.wait_for("wsrep_cluster_status", "non-Primary")?;
    a.maria.sql("SET GLOBAL wsrep_provider_options = 'pc.bootstrap=true'")?;
    a.wait_for("wsrep_local_state_comment", "Synced")?;
    // The donor is killed in the middle.
    b.join_until_streamed(a, some, |_| {
        searched()?;
        a.maria.kill_nine()?;
        search(&marker, arm, &dirs).map(drop)
    })?;
    a.found_after_a_crash()?;
    b.join()?;
    ensure(b.logged(WHOLE)? > 0, || "not by mariadb-backup".into())?;
    b.maria.expect("SELECT COUNT(*), SUM(b LIKE CONCAT('%', 20000)) FROM d.told", "80000\t4")?;
    for node in [b, a] {
        node.maria.stop()?;
    }
    search(&marker, arm, &dirs).map(drop)
}
arms!(no_stream_of_a_transfer_is_readable: plain, sealed; slow);

/// Of 80 MB, so that most of the stream is still to come.
const SOME: u64 = 8 << 20;

/// A client writes transactions that the provider spills to files. Meanwhile these are searched:
/// plain, one of them must have the marker; sealed, no file of the nodes may.
fn write_and_search(
    node: &Node<'_>,
    statements: &str,
    nodes: &[Node<'_>],
    marker: &Marker,
) -> Result<()> {
    let searching = || Error::io("searching write sets");
    let dirs: Vec<&Path> = nodes.iter().map(|node| node.maria.dir()).collect();
    let mut client = node.maria.client("mariadb")?.stdin(statements).limit(600).spawn()?;
    let (mut searched, mut shown) = (0, false);
    while client.runs() {
        let before = searched;
        for file in spilled(&dirs)? {
            match marker.search_file(&file) {
                Ok(seen) => {
                    searched += 1;
                    shown |= !seen.findings.is_empty();
                }
                Err(why) if why.kind() == ErrorKind::NotFound => {}
                Err(why) => return Err(searching()(why)),
            }
        }
        if searched == before {
            thread::sleep(Duration::from_millis(5));
        } else if node.maria.arm() == Arm::Sealed {
            shown |= !marker.search(&dirs).map_err(searching())?.findings.is_empty();
        }
    }
    let done = client.wait()?;
    ensure(done.status.success(), || done.text())?;
    let right = searched > 0 && shown == (node.maria.arm() == Arm::Plain);
    ensure(right, || format!("{searched} spilled files were searched, the marker shown: {shown}"))
}

/// Files of write sets at the top of these directories.
fn spilled(dirs: &[&Path]) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for dir in dirs {
        let listing = || Error::io(format!("listing {}", dir.display()));
        for entry in fs::read_dir(dir).map_err(listing())? {
            let path = entry.map_err(listing())?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let rows = name.starts_with("0x") && name.contains("_data.");
            if rows || name.starts_with("gcache.page.") {
                found.push(path);
            }
        }
    }
    Ok(found)
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

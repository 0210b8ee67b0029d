//! Sealed nodes where they really run: three under Patroni and etcd, each with keys of its own,
//! disturbed while a writer counts what was acknowledged.

use std::collections::BTreeSet;

use tidelock_servers::skip;
use tidelock_testkit::fleet::{Fleet, Node};
use tidelock_testkit::marker::Marker;
use tidelock_testkit::pg::{Arm, Cluster, Error, Result, Workspace, ensure};
use tidelock_testkit::unit::{is_plain_control, keyring_of};

/// What is done to a leader.
#[derive(Clone, Copy, Debug)]
enum Disturbance {
    /// Asked to let another lead.
    SwitchOver,
    /// Its server is killed; its Patroni sees that.
    KillServer,
    /// Server and Patroni are killed: the others see that its lease ends.
    KillNode,
}

#[derive(Debug, Default)]
struct Counts {
    failovers: usize,
    switchovers: usize,
    killed_servers: usize,
    killed_nodes: usize,
    rebuilt: usize,
    reinitialised: usize,
    rotated: usize,
    rekeyed: usize,
}

/// 200 failovers, or as many as `TIDELOCK_FAILOVERS` says; in between, nodes are built from
/// nothing, rotated and rekeyed.
#[test]
#[ignore = "long: make test-full"]
fn no_acknowledged_commit_is_lost_by_failovers_rebuilds_rotation_and_rekeying() -> Result<()> {
    if skip::unless_root("a file of /etc/tidelock") {
        return Ok(());
    }
    if let Some(package) = Fleet::missing() {
        skip::missing(package);
        return Ok(());
    }
    let wanted = std::env::var("TIDELOCK_FAILOVERS").ok().and_then(|text| text.parse().ok());
    let wanted: usize = wanted.unwrap_or(200);
    ensure(wanted > 0, || "TIDELOCK_FAILOVERS=0 tries nothing".into())?;
    let place = Workspace::new()?;
    let marker = Marker::new();
    let mut fleet = Fleet::start(&place)?;
    each_has_a_keyring_of_its_own(&fleet)?;
    let writer = fleet.writer(marker.text(), 3)?;
    let mut counts = Counts::default();
    // A server that was killed may lead again before another could: then the round counts for
    // nothing, and there is one more.
    for round in 0..wanted * 2 {
        if counts.failovers == wanted {
            break;
        }
        writer.acknowledges(20)?;
        let old = fleet.whole()?;
        let disturbance = match round % 10 {
            9 => Disturbance::KillNode,
            odd if odd % 2 == 1 => Disturbance::KillServer,
            _ => Disturbance::SwitchOver,
        };
        disturb(&mut fleet, old, disturbance, &mut counts)?;
        if fleet.whole()? != old {
            counts.failovers += 1;
        }
        let between = if wanted < 40 { 5 } else { 20 };
        if round % between == between - 1 {
            rebuild(&mut fleet, &mut counts)?;
            let number = u32::try_from(round).unwrap_or(u32::MAX);
            change_keys(&mut fleet, number, &mut counts)?;
            println!("{counts:?}; {} commits acknowledged", writer.count());
        }
    }
    let left = fleet.whole()?;
    writer.acknowledges(20)?;
    let (acknowledged, broken) = writer.stop();
    fleet.caught_up()?;
    let mut lost = 0;
    for node in &fleet.nodes {
        let present = node.cluster.sql("SELECT n FROM acknowledged")?;
        let present: BTreeSet<i64> = present.lines().filter_map(|it| it.parse().ok()).collect();
        lost += acknowledged.difference(&present).count();
    }
    let rewound: usize = fleet.nodes.iter().map(|node| node.said("running pg_rewind")).sum();
    println!(
        "{counts:?}; {rewound} rewound; {} commits acknowledged, {lost} lost; {broken} sessions \
         broken; {} leads",
        acknowledged.len(),
        fleet.nodes[left].name,
    );
    ensure(counts.failovers == wanted, || format!("only {} failovers", counts.failovers))?;
    ensure(lost == 0, || format!("{lost} acknowledged commits are lost"))?;
    for node in &mut fleet.nodes {
        node.stop()?;
        is_sealed(node, &marker)?;
    }
    each_has_a_keyring_of_its_own(&fleet)
}

/// Changes of one table go from a sealed server to a plain one, and of another the other way.
#[test]
#[ignore = "long: make test-full"]
fn logical_replication_crosses_the_arms_in_both_directions() -> Result<()> {
    let place = Workspace::new()?;
    let marker = Marker::new();
    let clusters = [("sealed", Arm::Sealed), ("plain", Arm::Plain)].map(|(name, arm)| {
        let cluster = Cluster::new(&place, name, arm)?;
        cluster.set("wal_level", "logical")?;
        cluster.start()?;
        cluster.sql("CREATE TABLE from_sealed (n int PRIMARY KEY, t text)")?;
        cluster.sql("CREATE TABLE from_plain (n int PRIMARY KEY, t text)")?;
        Ok::<_, Error>(cluster)
    });
    let [sealed, plain] = clusters;
    let (sealed, plain) = (sealed?, plain?);
    let text = marker.text();
    for (from, to, table) in [(&sealed, &plain, "from_sealed"), (&plain, &sealed, "from_plain")] {
        from.sql(&format!(
            "INSERT INTO {table} SELECT g, '{text}' FROM generate_series(1, 500) g"
        ))?;
        from.sql(&format!("CREATE PUBLICATION {table} FOR TABLE {table}"))?;
        to.sql(&format!(
            "CREATE SUBSCRIPTION {table} CONNECTION '{}' PUBLICATION {table}",
            from.conninfo()
        ))?;
        to.wait_for(&format!("SELECT count(*) FROM {table}"), "500")?;
        // A crash of either side, changes meanwhile.
        to.kill_nine()?;
        from.sql(&format!("UPDATE {table} SET n = n + 1000 WHERE n <= 100"))?;
        from.kill_nine()?;
        from.start()?;
        to.start()?;
        from.sql(&format!("DELETE FROM {table} WHERE n BETWEEN 101 AND 200"))?;
        to.wait_for(
            &format!("SELECT count(*), sum(n) FROM {table} WHERE t = '{text}'"),
            "400|210200",
        )?;
    }
    sealed.stop("fast")?;
    let seen = marker.search(&[sealed.dir()]).map_err(Error::io("searching the sealed server"))?;
    ensure(seen.findings.is_empty(), || format!("{:?}", seen.findings))
}

fn disturb(
    fleet: &mut Fleet<'_>,
    old: usize,
    disturbance: Disturbance,
    counts: &mut Counts,
) -> Result<()> {
    match disturbance {
        Disturbance::SwitchOver => {
            counts.switchovers += usize::from(fleet.nodes[old].switch_over()?);
        }
        Disturbance::KillServer => {
            fleet.nodes[old].kill_server()?;
            counts.killed_servers += 1;
        }
        Disturbance::KillNode => {
            fleet.nodes[old].kill()?;
            fleet.led_by_another(old)?;
            fleet.nodes[old].start()?;
            counts.killed_nodes += 1;
        }
    }
    Ok(())
}

/// One node has lost its disk, and one is told to copy the leader again.
fn rebuild(fleet: &mut Fleet<'_>, counts: &mut Counts) -> Result<()> {
    let [lost, told] = followers(fleet)?;
    let before = keyring_of(fleet.nodes[lost].cluster.dir())?;
    fleet.nodes[lost].kill()?;
    fleet.nodes[lost].lose_everything()?;
    fleet.nodes[lost].start()?;
    fleet.whole()?;
    is_another_keyring(&fleet.nodes[lost], &before)?;
    counts.rebuilt += 1;
    let before = keyring_of(fleet.nodes[told].cluster.dir())?;
    fleet.nodes[told].reinitialize()?;
    // Patroni says yes first and begins then.
    let start = std::time::Instant::now();
    while keyring_of(fleet.nodes[told].cluster.dir()).is_ok_and(|now| now == before) {
        ensure(start.elapsed().as_secs() < 300, || fleet.nodes[told].end_of_log())?;
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    fleet.whole()?;
    is_another_keyring(&fleet.nodes[told], &before)?;
    counts.reinitialised += 1;
    Ok(())
}

/// Rotates every node online, then encrypts the files of each again: a follower while it is down,
/// the leader once it follows.
fn change_keys(fleet: &mut Fleet<'_>, number: u32, counts: &mut Counts) -> Result<()> {
    for node in 0..fleet.nodes.len() {
        let mut rotated = std::mem::take(&mut fleet.nodes);
        let done = rotated[node].rotate(fleet.etc(), number + 2);
        fleet.nodes = rotated;
        done?;
        counts.rotated += 1;
    }
    let mut due: Vec<usize> = (0..fleet.nodes.len()).collect();
    let mut asked = 0;
    while !due.is_empty() {
        let leader = fleet.whole()?;
        let Some(place) = due.iter().position(|node| *node != leader) else {
            ensure(asked < 20, || "nobody else would lead".into())?;
            fleet.nodes[leader].switch_over()?;
            asked += 1;
            continue;
        };
        let node = &mut fleet.nodes[due.remove(place)];
        node.stop()?;
        node.cluster.tidelock(&["rekey"])?.arg(node.cluster.dir()).run()?;
        node.start()?;
        counts.rekeyed += 1;
    }
    Ok(())
}

fn followers(fleet: &Fleet<'_>) -> Result<[usize; 2]> {
    let leader = fleet.whole()?;
    let mut others = (0..fleet.nodes.len()).filter(|node| *node != leader);
    let pair = others.next().zip(others.next());
    let (first, second) = pair.ok_or_else(|| Error::Unexpected("too few nodes".into()))?;
    Ok([first, second])
}

fn is_another_keyring(node: &Node<'_>, before: &str) -> Result<()> {
    let now = keyring_of(node.cluster.dir())?;
    ensure(now != before, || format!("{} has its old keyring", node.name))?;
    let plain = is_plain_control(node.cluster.dir())?;
    ensure(!plain, || format!("pg_control of {} is plain", node.name))
}

fn each_has_a_keyring_of_its_own(fleet: &Fleet<'_>) -> Result<()> {
    let ids = fleet.nodes.iter().map(|node| keyring_of(node.cluster.dir()));
    let ids = ids.collect::<Result<BTreeSet<_>>>()?;
    ensure(ids.len() == fleet.nodes.len(), || format!("keyrings: {ids:?}"))
}

/// Every file is as it must be, and nothing of the rows can be read.
fn is_sealed(node: &Node<'_>, marker: &Marker) -> Result<()> {
    let dir = node.cluster.dir();
    node.cluster.tidelock(&["verify", "-D"])?.arg(dir).run()?;
    let seen = marker.search(&[dir]).map_err(Error::io("searching a node"))?;
    ensure(seen.findings.is_empty() && seen.files > 500, || {
        format!("{}: {} files, {:?}", node.name, seen.files, seen.findings)
    })
}

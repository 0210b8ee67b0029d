//! Which trials an experiment needs, in which order, and how long they take.
//!
//! Cells that share servers and data follow one another. In a block every arm runs once, in an
//! order drawn from the run's seed, so a plan can be repeated exactly.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::analysis::{CONTROL, PLAIN};
use crate::error::{Error, Result};
use crate::experiment::{Engine, Experiment, Param, Pgbench, Work};
use crate::run::settles;
use crate::trial::{Cell, Phase, WORKLOAD};
use crate::work::script::Script;

/// One trial to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Levels of the factors.
    pub cell: Cell,
    /// What it is for.
    pub phase: Phase,
    /// Block, from 0.
    pub block: u32,
    /// Place in the block.
    pub order: u32,
    /// Name of the arm.
    pub arm: String,
    /// Which of its servers, from 0.
    pub instance: u32,
}

/// One server of an arm.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instance {
    /// Name of the arm.
    pub arm: String,
    /// Which of its servers, from 0.
    pub number: u32,
}

/// The servers of `arms`: as many of each as the experiment asks for. plain and control are one
/// arm, and share them.
#[must_use]
pub fn instances(experiment: &Experiment, arms: &[String]) -> Vec<Instance> {
    let paired = [PLAIN, CONTROL].iter().all(|name| arms.iter().any(|arm| arm == name));
    let of = |arm: &String| {
        let shares = paired && [PLAIN, CONTROL].contains(&arm.as_str());
        let all = experiment.stop.servers;
        let servers = if shares { (all / 2).max(1) } else { all };
        (0..servers).map(|number| Instance { arm: arm.clone(), number }).collect::<Vec<_>>()
    };
    arms.iter().flat_map(of).collect()
}

/// `servers` in an order drawn from the run's seed, another one for each cell. In that of a cell
/// they are warmed up and connected to; in that of the first cell that shares them they are made
/// and filled. In a fixed order plain would always be the first.
#[must_use]
pub fn drawn(
    mut servers: Vec<Instance>,
    experiment: &str,
    cell: &Cell,
    seed: u64,
) -> Vec<Instance> {
    let mut hasher = DefaultHasher::new();
    (seed, experiment, cell, "servers").hash(&mut hasher);
    fastrand::Rng::with_seed(hasher.finish()).shuffle(&mut servers);
    servers
}

/// What the servers of a cell have to be; cells with equal grounds share them.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ground {
    /// Scale of pgbench's tables, 0 for none.
    pub scale: u32,
    /// SQL that makes further tables.
    pub setup: String,
    /// sysbench's tables and the rows of each, 0 for none.
    pub sysbench: (u32, u32),
    /// Limits by name, resolved.
    pub limits: BTreeMap<&'static str, String>,
    /// Settings, resolved. Servers are restarted, not made again, where nothing else differs.
    pub settings: BTreeMap<String, String>,
}

impl Ground {
    /// Whether servers of `other` serve here too, after a restart.
    fn is_made_as(&self, other: &Self) -> bool {
        let Self { scale, setup, sysbench, limits, settings: _ } = self;
        (scale, setup, sysbench, limits)
            == (&other.scale, &other.setup, &other.sysbench, &other.limits)
    }
}

/// Every combination of levels and workloads, those that share servers next to each other.
///
/// # Errors
/// When a workload or a setting names a factor that is not there, a level that is no number, or
/// clients that the server would turn away.
pub fn cells(experiment: &Experiment) -> Result<Vec<Cell>> {
    let mut cells = vec![BTreeMap::new()];
    for (factor, levels) in &experiment.factors {
        cells = cells
            .iter()
            .flat_map(|cell| {
                levels.iter().map(|Param(level)| {
                    let mut cell: BTreeMap<String, String> = cell.clone();
                    cell.insert(factor.clone(), level.clone());
                    cell
                })
            })
            .collect();
    }
    let mut found = Vec::new();
    for (name, work) in &experiment.workload {
        for cell in &cells {
            let mut levels = cell.clone();
            levels.retain(|factor, _| uses(experiment, work, factor));
            levels.insert(WORKLOAD.into(), name.clone());
            found.push(Cell(levels));
        }
    }
    let mut grounds = Vec::new();
    for cell in found {
        if !grounds.iter().any(|(_, known)| *known == cell) {
            let ground = ground(experiment, &cell)?;
            let Connections { needed, allowed } = connections(experiment, &cell, &ground)?;
            if needed > allowed {
                let why = format!(
                    "{cell}: it needs {needed} connections with those that are reserved, and \
                     max_connections is {allowed}"
                );
                return Err(Error::Experiment { name: experiment.name.clone(), why });
            }
            seconds(experiment, &cell, 1)?;
            grounds.push((ground, cell));
        }
    }
    // By where each ground comes first, so that levels keep the order in which they were given.
    let place = |ground: &Ground| {
        let first = |same: &dyn Fn(&Ground) -> bool| {
            grounds.iter().position(|(other, _)| same(other)).unwrap_or_default()
        };
        (first(&|other| other.is_made_as(ground)), first(&|other| other == ground))
    };
    let mut placed: Vec<_> = grounds.iter().map(|(ground, cell)| (place(ground), cell)).collect();
    // Stable: so are cells within a ground.
    placed.sort_by_key(|(place, _)| *place);
    Ok(placed.into_iter().map(|(_, cell)| cell.clone()).collect())
}

/// Whether a level of `factor` can matter to a workload; if not, it makes no cells of its own.
fn uses(experiment: &Experiment, work: &Work, factor: &str) -> bool {
    let names = |text: &str, name: &str| {
        [format!("{{{name}}}"), format!("{{{name}:")].iter().any(|it| text.contains(it))
    };
    // As JSON has a name with quotes.
    let quoted = serde_json::to_string(factor).unwrap_or_default();
    let quoted = quoted.strip_prefix('"').and_then(|it| it.strip_suffix('"')).unwrap_or(factor);
    let own = serde_json::to_string(work).unwrap_or_default();
    let around =
        serde_json::to_string(&(&experiment.settings, &experiment.limits, &experiment.own_arms));
    // At a rate of its own only where it has equal work.
    let paced = blocks(experiment, work, Phase::EqualWork) > 0
        && names(&experiment.stop.equal_work_rate.0, factor);
    paced || names(&own, quoted) || names(&around.unwrap_or_default(), quoted)
}

/// What the servers of `cell` have to be.
///
/// # Errors
/// As [`cells`].
pub fn ground(experiment: &Experiment, cell: &Cell) -> Result<Ground> {
    let named = |error: Error| Error::Experiment {
        name: experiment.name.clone(),
        why: format!("{cell}: {error}"),
    };
    let mut ground = Ground::default();
    for (name, value) in &experiment.settings {
        ground.settings.insert(name.clone(), value.text(&cell.0).map_err(named)?);
    }
    let limits = &experiment.limits;
    for (name, value) in [
        ("cpus", &limits.cpus),
        ("memory_mib", &limits.memory_mib),
        ("iops", &limits.iops),
        ("throughput_mib", &limits.throughput_mib),
        ("volume", &limits.volume),
        ("volume_mib", &limits.volume_mib),
    ] {
        if let Some(value) = value {
            ground.limits.insert(name, value.text(&cell.0).map_err(named)?);
        }
    }
    match experiment.workload.get(cell.workload()) {
        Some(Work::Pgbench(pgbench)) => {
            ground.scale = pgbench.scale.number(&cell.0).map_err(named)?;
            ground.setup = pgbench.setup.clone().unwrap_or_default();
        }
        Some(Work::Sysbench(work)) if work.script.is_oltp() => {
            let tables = work.tables.number(&cell.0).map_err(named)?;
            ground.sysbench = (tables, work.rows.number(&cell.0).map_err(named)?);
        }
        _ => {}
    }
    Ok(ground)
}

/// Connections of a cell's server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connections {
    /// The workload's clients, the lab's own, and those that the server keeps for its
    /// administrator.
    pub needed: u32,
    /// `max_connections`.
    pub allowed: u32,
}

/// How many connections the workload of `cell` needs of a server with these settings, and how many
/// there are.
///
/// # Errors
/// When a number of clients is no number.
pub fn connections(experiment: &Experiment, cell: &Cell, ground: &Ground) -> Result<Connections> {
    let named = |error: Error| Error::Experiment {
        name: experiment.name.clone(),
        why: format!("{cell}: {error}"),
    };
    let clients = match experiment.workload.get(cell.workload()) {
        Some(Work::Pgbench(pgbench)) => pgbench.clients.number(&cell.0).map_err(named)?,
        Some(Work::Mysqlslap(slap)) => slap.concurrency(&cell.0).map_err(named)?,
        Some(Work::Sysbench(work)) => work.threads.number(&cell.0).map_err(named)?,
        // One more holds the lock of the engine.
        Some(Work::Billing(billing)) => {
            billing.workers.number::<u32>(&cell.0).map_err(named)?.saturating_add(1)
        }
        Some(Work::Sql(_)) => 1,
        Some(Work::Crypto(_)) | None => 0,
    };
    // Defaults of PostgreSQL 15, MariaDB 10.11 and MySQL 8.0; what they reserve beside or within
    // them.
    let (default, reserved) = match experiment.engine {
        Engine::Postgresql => (100, 3),
        Engine::Mariadb | Engine::Mysql => (151, 0),
        Engine::None => (u32::MAX, 0),
    };
    let set = |name: &str| ground.settings.get(name).and_then(|value| value.parse().ok());
    let reserved: u32 = set("superuser_reserved_connections").unwrap_or(reserved)
        + set("reserved_connections").unwrap_or(0);
    let own = u32::from(clients > 0);
    Ok(Connections {
        needed: clients.saturating_add(own).saturating_add(reserved),
        allowed: set("max_connections").unwrap_or(default),
    })
}

/// The trials of one cell in the order of their blocks. `servers` are those that can be measured
/// here.
#[must_use]
pub fn steps(cell: &Cell, phase: Phase, blocks: u32, servers: &[Instance], seed: u64) -> Vec<Step> {
    let mut hasher = DefaultHasher::new();
    (seed, cell, phase as u8).hash(&mut hasher);
    let mut random = fastrand::Rng::with_seed(hasher.finish());
    (0..blocks)
        .flat_map(|block| {
            let mut order: Vec<&Instance> = servers.iter().collect();
            random.shuffle(&mut order);
            let step = |(place, server): (usize, &Instance)| Step {
                cell: cell.clone(),
                phase,
                block,
                order: u32::try_from(place).unwrap_or(u32::MAX),
                arm: server.arm.clone(),
                instance: server.number,
            };
            order.into_iter().enumerate().map(step).collect::<Vec<_>>()
        })
        .collect()
}

/// Blocks of a phase in this experiment.
#[must_use]
pub fn blocks(experiment: &Experiment, work: &Work, phase: Phase) -> u32 {
    match (phase, work) {
        (Phase::Capacity, _) => experiment.stop.blocks,
        (Phase::FixedRate, Work::Pgbench(_)) => experiment.stop.latency_blocks,
        (Phase::EqualWork, Work::Pgbench(work)) if Script::of(work).is_ok() => {
            experiment.stop.equal_work_blocks
        }
        (Phase::EqualWork, Work::Sysbench(work)) if work.script.is_oltp() => {
            experiment.stop.equal_work_blocks
        }
        (Phase::EqualWork | Phase::FixedRate, _) => 0,
    }
}

/// Seconds of one trial at capacity, roughly: of the work, and of what surrounds it.
///
/// # Errors
/// When a parameter is no number.
pub(crate) fn trial_seconds(
    experiment: &Experiment,
    work: &Work,
    cell: &Cell,
) -> Result<(f64, f64)> {
    let levels = &cell.0;
    // Programs of others take whole seconds.
    let whole = |seconds: &Param| seconds.number::<u32>(levels).map(f64::from);
    // What surrounds a trial, and the slower units, are those of the runs of 2026-11-26 and 27 that
    // are kept in lab/runs.
    Ok(match work {
        Work::Pgbench(pgbench) if !settles(work) => (whole(&pgbench.seconds)?, 0.2),
        Work::Pgbench(pgbench) => (whole(&pgbench.seconds)?, 0.4),
        Work::Sql(sql) => (sql.rows.number::<f64>(levels)? * 1.5e-6, 0.2),
        Work::Mysqlslap(slap) => (slap.queries.number::<f64>(levels)? * 2.6e-4, 0.2),
        // A start of the client, and pages that are written out.
        Work::Sysbench(work) if work.script.is_oltp() => (whole(&work.seconds)?, 1.0),
        Work::Sysbench(work) => (work.rows.number::<f64>(levels)? * 2e-6, 1.0),
        // Phases wait for the disk, at the limit that the cell has: an operation for five records.
        Work::Billing(billing) => {
            let iops = experiment.limits.iops.as_ref().and_then(|it| it.number::<f64>(levels).ok());
            let waits = iops.filter(|iops| *iops > 0.0).map_or(0.0, |iops| 0.2 / iops);
            (billing.records.number::<f64>(levels)? * (1.3e-4 + waits), 0.2)
        }
        Work::Crypto(crypto) => (whole(&crypto.seconds)?, 0.1),
    })
}

/// Seconds that one cell takes with so many servers, roughly: measuring, and what surrounds it.
/// Filling and starting servers is in [`seconds_to_fill`].
///
/// # Errors
/// When a parameter is no number.
pub fn seconds(experiment: &Experiment, cell: &Cell, servers: usize) -> Result<f64> {
    let Some(work) = experiment.workload.get(cell.workload()) else { return Ok(0.0) };
    let (trial, around) = trial_seconds(experiment, work, cell)?;
    if !(trial > 0.0 && trial.is_finite()) {
        let why = format!("{cell}: a trial of {trial} seconds measures nothing");
        return Err(Error::Experiment { name: experiment.name.clone(), why });
    }
    let blocks_of = |phase| blocks(experiment, work, phase);
    if blocks_of(Phase::EqualWork) > 0 {
        equal_work_rate(experiment, cell)?;
    }
    let blocks = f64::from(blocks_of(Phase::Capacity) + blocks_of(Phase::FixedRate));
    let equal_work = f64::from(blocks_of(Phase::EqualWork)) * equal_work_seconds(experiment, work);
    let warm_up = match work {
        Work::Mysqlslap(_) | Work::Billing(_) | Work::Crypto(_) => 0.0,
        // About one block more.
        Work::Pgbench(_) | Work::Sql(_) | Work::Sysbench(_) => 1.0,
    };
    let once = match work {
        Work::Pgbench(pgbench) => f64::from(pgbench.warm) / 2.0 + reindex_seconds(pgbench, cell)?,
        _ => 0.0,
    };
    Ok(((blocks + warm_up) * (trial + around) + equal_work + once) * servers as f64)
}

/// Seconds to reindex one server for the phases of a cell, roughly.
fn reindex_seconds(work: &Pgbench, cell: &Cell) -> Result<f64> {
    let each = if work.reindex { 0.075 } else { 0.0 };
    Ok(2.0 * each * work.scale.number::<f64>(&cell.0)?)
}

/// The part of the plain server's capacity that equal work of a cell asks for.
///
/// # Errors
/// When it is no number from 0.01 to 1.
pub fn equal_work_rate(experiment: &Experiment, cell: &Cell) -> Result<f64> {
    let Param(text) = &experiment.stop.equal_work_rate;
    let rate = experiment.stop.equal_work_rate.number::<f64>(&cell.0)?;
    if (0.01..=1.0).contains(&rate) {
        return Ok(rate);
    }
    let why = format!("{cell}: stop.equal_work_rate is {text}; it is a part of 1");
    Err(Error::Experiment { name: experiment.name.clone(), why })
}

/// Seconds to make the servers of a ground, roughly.
pub(crate) fn seconds_of_ground(ground: &Ground, servers: usize) -> f64 {
    let (tables, rows) = ground.sysbench;
    let sysbench = f64::from(tables) * f64::from(rows) * 1e-5;
    (4.0 + 0.25 * f64::from(ground.scale) + sysbench) * servers as f64
}

/// Seconds to make the servers of all cells, roughly: once for each ground.
///
/// # Errors
/// As [`cells`].
pub fn seconds_to_fill(experiment: &Experiment, servers: usize) -> Result<f64> {
    let (mut total, mut last) = (0.0, None);
    for cell in cells(experiment)? {
        let ground = ground(experiment, &cell)?;
        if last.as_ref().is_none_or(|last: &Ground| !last.is_made_as(&ground)) {
            total += seconds_of_ground(&ground, servers);
            last = Some(ground);
        }
    }
    Ok(total)
}

/// Seconds of the shortest and the longest slice.
pub const SLICE: (f64, f64) = (0.2, 0.5);

/// Seconds of one server's part of a block of equal work: its slices, and a checkpoint of loads
/// that leave changed pages.
pub(crate) fn equal_work_seconds(experiment: &Experiment, work: &Work) -> f64 {
    let checkpoint = if settles(work) { 0.2 } else { 0.0 };
    f64::from(experiment.stop.equal_work_rounds) * (SLICE.0 + SLICE.1) / 2.0 + checkpoint
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Size, read};

    const TEXT: &str = r#"
        name = "t"
        question = "?"
        engine = "postgresql"
        arms = ["plain", "control", "sealed"]
        [factors]
        clients = [2, 4]
        scale = [1, 10]
        [workload.read]
        kind = "pgbench"
        script = "select-only"
        scale = "{scale}"
        clients = "{clients}"
        jobs = 1
        seconds = 1
        [workload.insert]
        kind = "sql"
        setup = ""
        sql = "SELECT 1"
        rows = 10
        [stop]
        blocks = 12
    "#;

    #[test]
    fn a_workload_has_no_cells_for_factors_that_it_does_not_use() {
        let experiment = read("t", TEXT, Size::Small).unwrap();
        let cells = cells(&experiment).unwrap();
        let told: Vec<String> = cells.iter().map(ToString::to_string).collect();
        let read = |clients: u32, scale: u32| format!("read, clients {clients}, scale {scale}");
        assert_eq!(told, ["insert".to_owned(), read(2, 1), read(4, 1), read(2, 10), read(4, 10)]);
    }

    #[test]
    fn every_cell_of_every_experiment_has_connections_to_spare() {
        for name in crate::catalogue::names() {
            for size in [Size::Miniature, Size::Small, Size::Published] {
                let experiment = crate::catalogue::find(name, size).unwrap();
                for cell in cells(&experiment).unwrap() {
                    let ground = ground(&experiment, &cell).unwrap();
                    let Connections { needed, allowed } =
                        connections(&experiment, &cell, &ground).unwrap();
                    let slack = allowed.saturating_sub(needed);
                    assert!(slack >= 5, "{name} {size:?}, {cell}: {needed} of {allowed}");
                }
            }
        }
    }

    #[test]
    fn more_clients_than_the_server_takes_are_refused_with_their_cell() {
        for (clients, fits) in [("5", false), ("4", true)] {
            let text = TEXT.replace("[2, 4]", &format!("[2, {clients}]"))
                + "[settings]\nmax_connections = 8\n";
            let found = cells(&read("t", &text, Size::Small).unwrap());
            assert_eq!(found.is_ok(), fits, "{found:?}");
            if let Err(why) = found {
                let why = why.to_string();
                assert!(why.contains("clients 5") && why.contains("is 8"), "{why}");
            }
        }
        let slap = crate::experiment::Mysqlslap {
            args: ["--x", "--concurrency={c},7"].map(crate::experiment::Param::from).into(),
            queries: "1".into(),
        };
        let levels = BTreeMap::from([("c".to_owned(), "5".to_owned())]);
        assert_eq!(slap.concurrency(&levels).unwrap(), 7);
    }

    #[test]
    fn every_block_has_every_arm_once_and_the_seed_repeats_the_order() {
        let names = ["plain", "control", "sealed"].map(str::to_owned);
        let experiment = read("t", TEXT, Size::Small).unwrap();
        let arms = instances(&experiment, &names);
        let cell = Cell::default();
        let steps = super::steps(&cell, Phase::Capacity, 12, &arms, 5);
        assert_eq!(steps, super::steps(&cell, Phase::Capacity, 12, &arms, 5));
        for block in 0..12 {
            let mut seen: Vec<&str> =
                steps.iter().filter(|s| s.block == block).map(|s| s.arm.as_str()).collect();
            seen.sort_unstable();
            assert_eq!(seen, ["control", "plain", "sealed"]);
        }
        let first: Vec<&str> =
            steps.iter().filter(|s| s.order == 0).map(|s| s.arm.as_str()).collect();
        assert!(names.iter().all(|arm| first.contains(&arm.as_str())), "{first:?}");
    }

    #[test]
    fn no_server_is_always_the_first_one_and_the_seed_repeats_the_order() {
        let experiment = read("t", TEXT, Size::Small).unwrap();
        let servers = instances(&experiment, &["plain", "control", "sealed"].map(str::to_owned));
        let cells = cells(&experiment).unwrap();
        let of = |cell, seed| drawn(servers.clone(), "t", cell, seed);
        let mut first = BTreeMap::new();
        for seed in 0..100 {
            for cell in &cells {
                let order = of(cell, seed);
                assert_eq!(order, of(cell, seed));
                *first.entry(order[0].arm.clone()).or_insert(0) += 1;
                let mut sorted = order;
                sorted.sort_unstable();
                let mut all = servers.clone();
                all.sort_unstable();
                assert_eq!(sorted, all);
            }
        }
        // 500 draws: a third of them, by six standard deviations.
        assert_eq!(first.len(), 3);
        assert!(first.values().all(|times| (103..=230).contains(times)), "{first:?}");
        assert!(cells.iter().any(|cell| of(cell, 1) != of(&cells[0], 1)), "one order for all");
    }

    #[test]
    fn plain_and_control_are_two_servers_of_one_arm() {
        let text = TEXT.to_owned() + "servers = 2\n";
        let experiment = read("t", &text, Size::Small).unwrap();
        let count = |arms: &[&str]| {
            let arms: Vec<String> = arms.iter().map(|arm| (*arm).into()).collect();
            instances(&experiment, &arms).len()
        };
        assert_eq!(count(&["plain", "control", "sealed"]), 4);
        assert_eq!(count(&["plain", "sealed"]), 4, "plain needs a second one without a control");
    }
}

//! What a run will decide, reckoned before it begins: how far the control's interval of each family
//! will reach, from what two equal servers differed by in the pre-flight. Cells without equal work
//! are reckoned by whole trials.
//!
//! A few blocks do not know their standard deviation well. So each family is reckoned twice: by
//! what they differed by, and by the most that they allow in [`CASES`] of all cases. A family that
//! is within the precision by the first and not by the second may not be known so well.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{MOST_BLOCKS, instances};
use crate::analysis::{CONTROL, Kind, LEAST_BLOCKS, PLAIN};
use crate::error::Result;
use crate::experiment::{Experiment, Work};
use crate::manifest::Planned;
use crate::phrase::{LEAST_FOR_PUBLICATION, part};
use crate::plan;
use crate::statistics::Estimate;
use crate::trial::{Cell, Phase};

/// What two equal servers differed by in one kind of load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spread {
    pub(super) estimate: Estimate,
    /// Blocks that it rests on.
    pub(super) measured: usize,
    /// Seconds of one server's part of one of these blocks.
    pub(super) seconds: f64,
}

/// What is tried: a kind of load by equal work or, where there is none, the whole trials of one
/// experiment. These differ as much as the experiments do, and so do scripts of one kind that are
/// not pgbench's own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Load {
    pub(super) kind: Kind,
    /// The phase of a run that decides its CPU time.
    pub(super) phase: Phase,
    /// Name of the experiment for whole trials, the text of a custom script; `None` for other equal
    /// work.
    pub(super) own: Option<String>,
}

/// What the pre-flight knows of a load, or why it knows nothing.
pub(super) type Spreads = BTreeMap<Load, Result<Spread, String>>;

/// How a run of these experiments will end.
pub(super) struct Forecast {
    wanted: f64,
    /// Blocks of equal work in a cell that the precision needs, by kind of load.
    needed: Vec<(Kind, usize, bool)>,
    /// Minutes with so many blocks, and as planned.
    minutes: f64,
    as_planned: f64,
    families: Vec<(Kind, Outlook)>,
}

/// What becomes of a family.
#[derive(Clone, Debug, PartialEq)]
enum Outlook {
    Decided,
    /// It may not be known so well, because of this.
    Doubtful(String),
    /// It will not be known so well, because of this.
    Open(String),
    /// Whether it will be is not known, because of this.
    Unknown(String),
}

/// Why a cell adds nothing that can be reckoned with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Lack {
    Control,
    Blocks,
    Time,
    Trial(Phase),
}

impl Forecast {
    /// Reckons with a precision of `wanted`, a part of 1, and so much time for everything, if it is
    /// limited: blocks of equal work end with it.
    ///
    /// # Errors
    /// When a parameter is no number.
    pub(super) fn of(
        experiments: &[Planned],
        spreads: &Spreads,
        wanted: f64,
        left: Option<Duration>,
    ) -> Result<Self> {
        let reach = (1.0 + wanted).ln();
        let mut families: BTreeMap<Kind, Vec<Result<Known<'_>, Lack>>> = BTreeMap::new();
        // So far: with the blocks that are needed, and as planned; as it will be, where blocks
        // differ as in the pre-flight, and where they differ by the most.
        let (mut needs, mut as_planned) = (0.0, 0.0);
        let (mut likely, mut at_most) = (0.0, 0.0);
        let over = left.map_or(f64::INFINITY, |left| left.as_secs_f64());
        for planned in experiments {
            let experiment = &planned.experiment;
            let servers = instances(planned).len();
            if servers == 0 {
                continue;
            }
            let fill = plan::seconds_to_fill(experiment, servers)?;
            for sum in [&mut needs, &mut as_planned, &mut likely, &mut at_most] {
                *sum += fill;
            }
            for cell in plan::cells(experiment)? {
                let whole = plan::seconds(experiment, &cell, servers)?;
                let blocks = blocks(experiment, &cell, Phase::EqualWork);
                let all_blocks = f64::from(blocks) * servers as f64;
                let block = |work| plan::equal_work_seconds(experiment, work);
                let block = experiment.workload.get(cell.workload()).map_or(0.0, block);
                let others = whole - all_blocks * block;
                for sum in [&mut needs, &mut as_planned, &mut likely, &mut at_most] {
                    *sum += others;
                }
                let load = Load::of(experiment, &cell);
                // A slice waits for its last transaction: slow ones make it longer than planned.
                let measured = match load.as_ref().and_then(|load| spreads.get(load)) {
                    Some(Ok(spread)) => spread.seconds,
                    _ => 0.0,
                };
                as_planned += all_blocks * block.max(measured);
                let Some(load) = load else { continue };
                let (kind, phase) = (load.kind, load.phase);
                let found = match spreads.get(&load) {
                    _ if !has_control(planned) => Err(Lack::Control),
                    Some(Ok(spread)) if phase == Phase::Capacity => {
                        match experiment.stop.blocks as usize {
                            blocks if blocks >= LEAST_BLOCKS => Ok(spread.after(blocks, blocks)),
                            _ => Err(Lack::Blocks),
                        }
                    }
                    Some(Ok(spread)) => {
                        let block = spread.seconds * servers as f64;
                        needs += spread.blocks_for(reach) as f64 * block;
                        let wished = |spread: &Spread| match experiment.stop.control_precision {
                            Some(_) => spread.blocks_for(reach).min(MOST_BLOCKS as usize),
                            None => blocks as usize,
                        };
                        let (fewer, more) = (wished(spread), wished(&spread.at_most()));
                        let these = fitting(fewer, block, &mut likely, over);
                        let least = fitting(more, block, &mut at_most, over);
                        match these {
                            these if these >= LEAST_BLOCKS => Ok(spread.after(these, least)),
                            these if these < fewer => Err(Lack::Time),
                            _ => Err(Lack::Blocks),
                        }
                    }
                    _ => Err(Lack::Trial(phase)),
                };
                for kind in [Kind::All, kind] {
                    families.entry(kind).or_default().push(found);
                }
            }
        }
        let told = |kind: &Kind| Some((*kind, outlook(families.get(kind)?, spreads, *kind, reach)));
        // Of several scripts of one kind the one that needs most.
        let mut needed: BTreeMap<Kind, usize> = BTreeMap::new();
        for (load, spread) in spreads.iter().filter(|(load, _)| load.phase == Phase::EqualWork) {
            let Ok(spread) = spread else { continue };
            let most = needed.entry(load.kind).or_default();
            *most = spread.blocks_for(reach).max(*most);
        }
        let needed = needed.into_iter().map(|(kind, n)| (kind, n, n > MOST_BLOCKS as usize));
        Ok(Self {
            wanted,
            needed: needed.collect(),
            minutes: (needs / 60.0).ceil(),
            as_planned: (as_planned / 60.0).ceil(),
            families: Kind::ORDER.iter().filter_map(told).collect(),
        })
    }

    /// How long the precision takes: where it was asked for with the blocks, else beside what this
    /// run takes. Nothing where no equal work was tried.
    pub(super) fn time(&self, is_asked: bool) -> Option<String> {
        let first = self.needed.first()?;
        let needs = format!("{} % needs about {:.0} min here", part(self.wanted), self.minutes);
        if !is_asked {
            return Some(instead(&needs, self.minutes, self.as_planned));
        }
        let more = |over: bool| match over {
            true => format!(", more than the {MOST_BLOCKS} that are measured at most"),
            false => String::new(),
        };
        if self.needed.iter().all(|(_, blocks, _)| *blocks == first.1) {
            let more = more(first.2);
            return Some(format!("{needs}: {} blocks of equal work in each cell{more}", first.1));
        }
        let each = self.needed.iter().map(|(kind, blocks, over)| {
            format!("{blocks} blocks of equal work in each cell of {}{}", kind.title(), more(*over))
        });
        Some(format!("{needs}: {}", each.collect::<Vec<_>>().join("; ")))
    }

    /// The families that will not be known so well, those that may not, those whose work could not
    /// be tried, and those that will.
    pub(super) fn families(&self) -> Vec<String> {
        let percent = part(self.wanted);
        let named = |wanted: &dyn Fn(&Outlook) -> Option<String>| {
            let one = |(kind, outlook): &(Kind, Outlook)| {
                wanted(outlook).map(|why| format!("{}{why}", kind.title()))
            };
            let all: Vec<String> = self.families.iter().filter_map(one).collect();
            (!all.is_empty()).then(|| all.join("; "))
        };
        let open = named(&|outlook| match outlook {
            Outlook::Open(why) => Some(format!(" ({why})")),
            _ => None,
        });
        let doubtful = named(&|outlook| match outlook {
            Outlook::Doubtful(why) => Some(format!(" ({why})")),
            _ => None,
        });
        let unknown = named(&|outlook| match outlook {
            Outlook::Unknown(why) => Some(format!(" ({why})")),
            _ => None,
        });
        let decided = named(&|outlook| matches!(outlook, Outlook::Decided).then(String::new));
        [
            open.map(|all| format!("CPU time of two equal servers will not be known to {percent} %: {all}")),
            doubtful.map(|all| format!("CPU time of two equal servers may not be known to {percent} %: {all}")),
            unknown.map(|all| {
                format!("whether CPU time of two equal servers will be known to {percent} % is not known: {all}")
            }),
            decided.map(|all| format!("CPU time of two equal servers will be known to {percent} %: {all}")),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// How many of so many blocks end in time, when each takes `block` seconds. `now` is when they
/// begin, and then when they end.
fn fitting(wished: usize, block: f64, now: &mut f64, over: f64) -> usize {
    let begin = *now;
    let blocks = (1..=wished).take_while(|n| begin + *n as f64 * block <= over).count();
    *now = begin + blocks as f64 * block;
    blocks
}

/// What a cell will be known by.
#[derive(Clone, Copy, Debug)]
struct Known<'s> {
    /// Where blocks differ as those of the pre-flight did.
    likely: Estimate,
    /// The same after the blocks that are measured where they differ by the most: with a precision
    /// these are more, and with minutes too they may be fewer. `None` of too few to conclude.
    at_most: Option<Estimate>,
    /// What the pre-flight measured; cells of one load share it.
    spread: &'s Spread,
}

impl Spread {
    /// What it will be known by after so many blocks, `at_most` where they differ by the most.
    fn after(&self, blocks: usize, at_most: usize) -> Known<'_> {
        let of = |blocks| self.estimate.after(blocks, self.measured);
        let is_enough = at_most >= LEAST_BLOCKS;
        Known { likely: of(blocks), at_most: is_enough.then(|| of(at_most)), spread: self }
    }

    /// The same where blocks differ by the most that is to be reckoned with.
    fn at_most(&self) -> Self {
        Self { estimate: self.estimate.at_most(CASES), ..*self }
    }

    /// Blocks that half the width of the interval needs to be within `reach`.
    fn blocks_for(&self, reach: f64) -> usize {
        self.estimate.blocks_for(self.measured, reach, LEAST_FOR_PUBLICATION)
    }
}

fn outlook(
    cells: &[Result<Known<'_>, Lack>],
    spreads: &Spreads,
    kind: Kind,
    reach: f64,
) -> Outlook {
    let lacks: Vec<Lack> = cells.iter().filter_map(|cell| cell.err()).collect();
    if let Some(lack) = lacks.iter().min().copied() {
        let many = lacks.iter().filter(|other| **other == lack).count();
        let of = match (many, cells.len()) {
            (1, 1) => "its cell has".into(),
            (many, all) if many == all => format!("its {all} cells have"),
            (1, all) => format!("1 of its {all} cells has"),
            (many, all) => format!("{many} of its {all} cells have"),
        };
        return match lack {
            Lack::Control => Outlook::Open(format!("{of} no control")),
            Lack::Blocks => Outlook::Open(format!("{of} fewer than {LEAST_BLOCKS} blocks")),
            Lack::Time => Outlook::Open(format!("{of} no time left of the minutes given")),
            Lack::Trial(phase) => Outlook::Unknown({
                let it = |load: &&Load| load.kind == kind && load.phase == phase;
                match spreads
                    .iter()
                    .find_map(|(load, spread)| Some(load).filter(it).and(spread.as_ref().err()))
                {
                    Some(why) => format!("{of} work that could not be tried: {why}"),
                    None => format!("{of} work that could not be tried"),
                }
            }),
        };
    }
    let known: Vec<Known<'_>> = cells.iter().filter_map(|cell| cell.ok()).collect();
    let all: Vec<Estimate> = known.iter().map(|cell| cell.likely).collect();
    let likely = half_width(Estimate::pooled(&all));
    let late = known.iter().filter(|cell| cell.at_most.is_none()).count();
    let at_most = half_width(Estimate::pooled_at_most(&by_load(&known), CASES));
    if late == 0 && at_most <= reach {
        return Outlook::Decided;
    }
    let of = match cells.len() {
        1 => "its cell".into(),
        cells => format!("its {cells} cells"),
    };
    let give = |half: f64| format!("{} %", part(half.exp() - 1.0));
    let blocks = format!("the blocks of {of} give {}", give(likely));
    if likely > reach {
        return Outlook::Open(blocks);
    }
    Outlook::Doubtful(match late {
        0 => format!("{blocks}, {} at most", give(at_most)),
        late => {
            let those = if cells.len() == 1 { "it".into() } else { format!("{late} of them") };
            format!("{blocks}; for {those} no time may be left of the minutes given")
        }
    })
}

/// The cells of each load, after the blocks that they have where these differ by the most, with
/// what was measured of it.
fn by_load(known: &[Known<'_>]) -> Vec<(Estimate, Vec<Estimate>)> {
    let mut loads: Vec<(&Spread, Vec<Estimate>)> = Vec::new();
    for (cell, at_most) in known.iter().filter_map(|cell| Some((cell, cell.at_most?))) {
        match loads.iter_mut().find(|(spread, _)| std::ptr::eq(*spread, cell.spread)) {
            Some((_, cells)) => cells.push(at_most),
            None => loads.push((cell.spread, vec![at_most])),
        }
    }
    loads.into_iter().map(|(spread, cells)| (spread.estimate, cells)).collect()
}

/// Half the width of a family's interval of 95 %, of its logarithm.
fn half_width(family: Option<Estimate>) -> f64 {
    let Some(family) = family else { return 0.0 };
    let interval = family.interval(0.95);
    (interval.high / interval.low).ln() / 2.0
}

fn has_control(planned: &Planned) -> bool {
    let has = |name| planned.arms.iter().any(|arm| arm.name == name && arm.missing.is_none());
    has(PLAIN) && has(CONTROL)
}

impl Load {
    /// That of a cell; `None` of what has no server.
    fn of(experiment: &Experiment, cell: &Cell) -> Option<Self> {
        let work = experiment.workload.get(cell.workload())?;
        let kind = Kind::of(work)?;
        let script = match work {
            Work::Pgbench(pgbench) => pgbench.custom.clone(),
            _ => None,
        };
        Some(match blocks(experiment, cell, Phase::EqualWork) {
            0 => Self { kind, phase: Phase::Capacity, own: Some(experiment.name.clone()) },
            _ => Self { kind, phase: Phase::EqualWork, own: script },
        })
    }
}

/// The first cell of each load that can be tried, with its experiment.
///
/// # Errors
/// When a parameter is no number.
pub(super) fn to_try(experiments: &[Planned]) -> Result<BTreeMap<Load, (&Planned, Cell)>> {
    let mut first = BTreeMap::new();
    let is_measured = |planned: &&Planned| has_control(planned) && !instances(planned).is_empty();
    for planned in experiments.iter().filter(is_measured) {
        for cell in plan::cells(&planned.experiment)? {
            if let Some(load) = Load::of(&planned.experiment, &cell) {
                first.entry(load).or_insert((planned, cell));
            }
        }
    }
    Ok(first)
}

/// Blocks of a phase that are planned in a cell, at most.
fn blocks(experiment: &Experiment, cell: &Cell, phase: Phase) -> u32 {
    let of = |work: &Work| plan::blocks(experiment, work, phase);
    experiment.workload.get(cell.workload()).map_or(0, of)
}

/// What a run of so many minutes says of the time that is needed.
fn instead(needs: &str, needed: f64, minutes: f64) -> String {
    let this_run = format!("{needs}; this run takes {minutes:.0} min");
    match minutes < needed {
        true => format!("{this_run}, too few to decide that: --precision measures until then"),
        false => this_run,
    }
}

/// Of how many cases the most that blocks may differ by is to hold.
const CASES: f64 = 0.8;

#[cfg(test)]
mod tests;

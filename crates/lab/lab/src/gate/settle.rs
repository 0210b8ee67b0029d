//! Which lines fail, with all of their test in mind, and which are open.

use statrs::distribution::{Binomial, DiscreteCDF as _};

use super::{Line, Outcome, PRIMARY, THROUGHPUT};
use crate::analysis::{Aspect, Comparison, Kind, VOID_BY_CHANCE, is_paced, phase_of};
use crate::experiment::Experiment;
use crate::metric::{Better, Metric, find};
use crate::statistics::holm;
use crate::trial::Phase;

/// Fails the lines that lose more: families and cells are two tests, each with its own lines in
/// mind. Cells that say nothing by themselves are open where their family says something.
pub(super) fn settle(lines: &mut [Line], compared: &[(&Experiment, &[Comparison])]) {
    let (families, cells): (Vec<usize>, Vec<usize>) = (0..lines.len())
        .filter(|at| lines[*at].chance.is_some())
        .partition(|at| lines[*at].family.is_some());
    let tests = [families, cells].map(|test| holm_of(lines, &test));
    let share = SIGNIFICANT / tests.iter().filter(|test| !test.is_empty()).count() as f64;
    for (at, chance) in tests.into_iter().flatten() {
        if chance < share {
            lines[at].outcome = Outcome::Failed;
            lines[at].why = lines[at].why.replacen(COULD_BE_CHANCE, "", 1);
        }
    }
    let decided: Vec<(Option<Kind>, &str)> = lines
        .iter()
        .filter(|line| line.family.is_some() && line.outcome != Outcome::Undecided)
        .filter_map(|line| Some((line.family, line.metric?)))
        .collect();
    let void = lines.iter().filter(|line| line.is_void).count();
    let sound = lines.iter().filter(|line| line.cell.is_some() && line.chance.is_some()).count();
    let stops = compared.iter().any(|(experiment, _)| experiment.stop.control_precision.is_some());
    let each = if stops { VOID_WHERE_IT_STOPS } else { VOID_BY_CHANCE };
    let void_by_chance = chance_of_void(void, void + sound, each) > SIGNIFICANT;
    let open = |line: &Line| {
        let cell = line.cell.as_ref()?;
        if line.chance.is_none() && !(line.is_void && void_by_chance) {
            return None;
        }
        let (experiment, _) = compared.iter().find(|(e, _)| e.name == line.experiment)?;
        let work = experiment.workload.get(cell.workload().split('/').next()?)?;
        let metric = find(line.metric?)?;
        let aspect = aspect(metric)?;
        // The latencies of a family are those of equal work, where it has any.
        let paced = phase_of(experiment, cell.workload(), metric) == Phase::EqualWork;
        let same = aspect != Aspect::P95 || paced == is_paced(experiment, cell.workload());
        (same && decided.contains(&(Kind::of(work), name(aspect)))).then_some(())
    };
    let opened: Vec<usize> = (0..lines.len())
        .filter(|at| lines[*at].outcome == Outcome::Undecided && open(&lines[*at]).is_some())
        .collect();
    for at in opened {
        lines[at].outcome = Outcome::Open;
    }
}

/// How likely so many or more of these cells are void where all servers are equal, and `each` is so
/// with this chance.
fn chance_of_void(void: usize, cells: usize, each: f64) -> f64 {
    let all = Binomial::new(each, cells as u64).expect("a chance from 0 to 1");
    void.checked_sub(1).map_or(1.0, |less| all.sf(less as u64))
}

/// The chances of these lines, each adjusted for all of them.
fn holm_of(lines: &[Line], test: &[usize]) -> Vec<(usize, f64)> {
    let alone: Vec<f64> = test.iter().filter_map(|at| lines[*at].chance).collect();
    test.iter().copied().zip(holm(&alone)).collect()
}

/// Which aspect of a family a metric is.
fn aspect(metric: &Metric) -> Option<Aspect> {
    match (metric.name, metric.better) {
        (PRIMARY, _) => Some(Aspect::Cpu),
        ("latency_p95", _) => Some(Aspect::P95),
        ("elapsed", _) | (_, Better::Higher) => Some(Aspect::Throughput),
        _ => None,
    }
}

/// The name of an aspect beside those of metrics.
pub(super) const fn name(aspect: Aspect) -> &'static str {
    match aspect {
        Aspect::Cpu => PRIMARY,
        Aspect::Throughput => THROUGHPUT,
        Aspect::P95 => "latency_p95",
    }
}

/// The chance that a cell is void where the control's width ended its blocks: it is a little too
/// sure then, by the simulation in `statistics`.
const VOID_WHERE_IT_STOPS: f64 = 0.02;
/// The chance of failing a build whose arms cost exactly the limit. Families and cells share it.
pub(super) const SIGNIFICANT: f64 = 0.05;
/// Why a loss beyond the limit is undecided.
pub(super) const COULD_BE_CHANCE: &str =
    "; that is more than the limit, but could be chance: more blocks would tell";

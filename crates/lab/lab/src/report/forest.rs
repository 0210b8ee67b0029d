//! The first picture of a report: kinds of load by CPU time, throughput and latency, each with its
//! interval, and what others published, all on one logarithmic axis.
//!
//! Only places on that axis are made here, in percent of its width; the page draws them as they
//! are, so that the picture needs no script and prints as it looks.

use serde::Serialize;

use super::words;
use crate::analysis::{Aspect, Family, Kind, PLAIN};
use crate::experiment::{Claim, Expectation, Experiment};
use crate::metric::{self, Better};
use crate::phrase;
use crate::statistics::Interval;
use crate::trial::WORKLOAD;

/// The picture.
#[derive(Debug, Default, Serialize)]
pub(super) struct Forest {
    ticks: Vec<Tick>,
    /// Where the unencrypted server stands.
    one: f64,
    pub(super) groups: Vec<Group>,
    /// Whether a published figure is in it.
    published: bool,
}

/// A ratio that the axis names.
#[derive(Debug, Serialize)]
struct Tick {
    at: f64,
    text: String,
    minor: bool,
}

/// One kind of load.
#[derive(Debug, Serialize)]
pub(super) struct Group {
    kind: Kind,
    title: &'static str,
    rows: Vec<Row>,
}

/// A kind of load by one aspect.
#[derive(Debug, Serialize)]
struct Row {
    aspect: Aspect,
    by: &'static str,
    /// One for each run.
    marks: Vec<Mark>,
    diamonds: Vec<Diamond>,
    /// What others published, in words; empty if nothing.
    published: String,
}

/// What one run measured.
#[derive(Debug, Serialize)]
struct Mark {
    low: f64,
    mid: f64,
    high: f64,
    ratio: String,
    words: String,
    cells: usize,
    left_out: usize,
    /// The control's interval in the same cells; empty without one.
    control: String,
    void: bool,
    /// Whether an end lies beyond that of the axis.
    beyond: (bool, bool),
}

/// What somebody published: one ratio, or a range of them.
#[derive(Debug, Serialize)]
struct Diamond {
    low: f64,
    high: f64,
    text: String,
    /// Whether an end lies beyond that of the axis.
    beyond: (bool, bool),
}

/// What somebody published of a kind of load.
pub(super) struct Elsewhere {
    kind: Kind,
    aspect: Aspect,
    low: f64,
    high: f64,
    text: String,
}

impl Forest {
    /// `runs` are the families of one run, or of two that are compared.
    pub(super) fn of(runs: &[Vec<Family>], elsewhere: &[Elsewhere]) -> Self {
        // A whisker that is very long says nothing, and would make everything else a dot.
        let ours = runs.iter().flatten().flat_map(|Family { ratio, .. }| {
            let wide = ratio.reach(1.0) > LONG;
            if wide { vec![ratio.mid] } else { vec![ratio.low, ratio.high] }
        });
        let theirs = elsewhere.iter().flat_map(|other| [other.low, other.high]);
        let axis = Axis::around(ours.chain(theirs));
        let row = |kind: Kind, aspect: Aspect| {
            let here = |family: &&Family| family.kind == kind && family.aspect == aspect;
            let marks = runs.iter().filter_map(|run| run.iter().find(here));
            let marks: Vec<Mark> = marks.map(|family| axis.mark(family)).collect();
            let others = || elsewhere.iter().filter(|o| o.kind == kind && o.aspect == aspect);
            let diamonds: Vec<Diamond> = others().map(|other| axis.diamond(other)).collect();
            let row =
                Row { aspect, by: aspect.title(), published: range(others()), marks, diamonds };
            (!row.marks.is_empty() || !row.diamonds.is_empty()).then_some(row)
        };
        let groups = Kind::ORDER.into_iter().filter_map(|kind| {
            let rows: Vec<Row> = Aspect::ORDER.into_iter().filter_map(|a| row(kind, a)).collect();
            (!rows.is_empty()).then(|| Group { kind, title: kind.title(), rows })
        });
        Self {
            groups: groups.collect(),
            ticks: axis.ticks(),
            one: axis.place(1.0),
            published: !elsewhere.is_empty(),
        }
    }
}

/// A logarithmic axis.
struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    /// Has room for all `ratios` and for 1, and ends within [`ENDS`].
    fn around(ratios: impl Iterator<Item = f64>) -> Self {
        let usable = ratios.filter(|ratio| ratio.is_finite() && *ratio > 0.0);
        let (low, high) = usable
            .fold((0.9, 1.05), |(low, high): (f64, f64), ratio| (low.min(ratio), high.max(ratio)));
        let room = (high / low).powf(0.04);
        Self { low: (low / room).max(ENDS.0), high: (high * room).min(ENDS.1) }
    }

    /// Percent of the axis's width; what lies beyond an end stands at it.
    fn place(&self, ratio: f64) -> f64 {
        let part = (ratio / self.low).ln() / (self.high / self.low).ln();
        (part.clamp(0.0, 1.0) * 10_000.0).round() / 100.0
    }

    fn mark(&self, family: &Family) -> Mark {
        let Interval { low, mid, high } = family.ratio;
        Mark {
            low: self.place(low),
            mid: self.place(mid),
            high: self.place(high),
            ratio: words::ratio(&family.ratio),
            words: words::of_family(family),
            cells: family.cells,
            left_out: family.left_out,
            control: family.control.as_ref().map(words::ends).unwrap_or_default(),
            void: family.void.is_some(),
            beyond: (low < self.low, self.high < high),
        }
    }

    fn diamond(&self, other: &Elsewhere) -> Diamond {
        Diamond {
            low: self.place(other.low),
            high: self.place(other.high),
            text: other.text.clone(),
            beyond: (other.low < self.low, self.high < other.high),
        }
    }

    /// As many ratios as can be read beside each other; 1 is always one of them. Those that a
    /// narrow screen has no room for are minor.
    fn ticks(&self) -> Vec<Tick> {
        let mut chosen = vec![(1.0, false)];
        for ratio in TICKS {
            let inside = (self.low..=self.high).contains(&ratio);
            let near = |known: f64| (self.place(known) - self.place(ratio)).abs();
            if inside && chosen.iter().all(|(known, _)| near(*known) >= APART) {
                let major = chosen.iter().filter(|(_, is_minor)| !is_minor);
                let minor = major.into_iter().any(|(known, _)| near(*known) < APART_ON_A_PHONE);
                chosen.push((ratio, minor));
            }
        }
        chosen.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let tick = |(ratio, minor): (f64, bool)| {
            let at = self.place(ratio);
            Tick { at, text: format!("{ratio}"), minor }
        };
        chosen.into_iter().map(tick).collect()
    }
}

/// What the claims of `experiments` say of a sealed server against a plain one.
pub(super) fn elsewhere<'e>(experiments: impl Iterator<Item = &'e Experiment>) -> Vec<Elsewhere> {
    let mut found: Vec<Elsewhere> = Vec::new();
    for experiment in experiments {
        for claim in &experiment.claims {
            let Some(one) = published(experiment, claim) else { continue };
            let same = |known: &Elsewhere| {
                (known.kind, known.aspect) == (one.kind, one.aspect)
                    && (known.low, known.high) == (one.low, one.high)
            };
            if !found.iter().any(same) {
                found.push(one);
            }
        }
    }
    found
}

fn published(experiment: &Experiment, claim: &Claim) -> Option<Elsewhere> {
    let of_cost = claim.against == PLAIN && claim.arm == "sealed" && claim.levels_against.is_none();
    if !of_cost || claim.not_comparable.is_some() || claim.figure.is_some() {
        return None;
    }
    let metric = metric::find(&claim.metric)?;
    let aspect = match (metric.name, metric.better) {
        ("cpu_per_unit", _) => Aspect::Cpu,
        ("latency_p95", _) => Aspect::P95,
        ("elapsed", _) | (_, Better::Higher) => Aspect::Throughput,
        _ => return None,
    };
    let named = claim.levels.get(WORKLOAD).map(|level| level.0.split('/').next().unwrap_or(""));
    let spoken_of = experiment.workload.iter().filter(|(name, _)| named.is_none_or(|n| n == *name));
    let mut kinds: Vec<Kind> = spoken_of.filter_map(|(_, work)| Kind::of(work)).collect();
    kinds.dedup();
    let [kind] = kinds[..] else { return None };
    let (low, high) = match claim.expect {
        Expectation::Ratio(ratio) => (ratio, ratio),
        // That it makes no difference.
        Expectation::EqualWithin(_) => (1.0, 1.0),
        Expectation::Between(low, high) => (low, high),
    };
    Some(Elsewhere { kind, aspect, low, high, text: claim.text.clone() })
}

/// `loss of 50.0 % to gain of 2.6 %`, over all that was published.
fn range<'e>(others: impl Iterator<Item = &'e Elsewhere> + Clone) -> String {
    let low = others.clone().map(|other| other.low).reduce(f64::min);
    let high = others.map(|other| other.high).reduce(f64::max);
    let (Some(low), Some(high)) = (low, high) else { return String::new() };
    let said = |ratio: f64| match ratio {
        // "Ruined" has no number.
        ratio if ratio < ENDS.0 => "ruin".to_owned(),
        ratio => phrase::published(ratio),
    };
    let percent = |ratio: f64| phrase::part(1.0 - ratio);
    match high {
        _ if low >= high => said(high),
        _ if low >= ENDS.0 && high < 1.0 => {
            format!("loss of {} to {} %", percent(low), percent(high))
        }
        _ => format!("{} to {}", said(low), said(high)),
    }
}

/// The farthest ends of the axis: beyond them everything else would be a dot.
const ENDS: (f64, f64) = (0.4, 2.5);
/// How far from 1 a whisker reaches that the axis need not show whole.
const LONG: f64 = 0.5;
/// Ratios that may be named, the most useful ones first.
const TICKS: [f64; 17] =
    [0.5, 0.9, 0.8, 2.0, 0.7, 0.95, 1.1, 1.05, 0.6, 0.3, 0.4, 1.5, 1.2, 0.25, 3.0, 4.0, 0.98];
/// How far apart they stand at least, in percent of the width.
const APART: f64 = 7.0;
/// The same where the picture is 270 pixels wide.
const APART_ON_A_PHONE: f64 = 12.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Size, read};
    use crate::statistics::Estimate;

    fn family(kind: Kind, aspect: Aspect, logs: &[f64]) -> Family {
        let estimate = Estimate::of(logs, None).unwrap();
        let ratio = estimate.interval(0.95);
        let (control, void) = (None, None);
        let arm = "sealed".into();
        Family { kind, aspect, arm, estimate, ratio, cells: 3, left_out: 1, control, void }
    }

    #[test]
    fn equal_steps_of_the_ratio_are_equal_steps_on_the_axis() {
        let axis = Axis { low: 0.25, high: 4.0 };
        let places = [0.25, 0.5, 1.0, 2.0, 4.0].map(|ratio| axis.place(ratio));
        assert_eq!(places, [0.0, 25.0, 50.0, 75.0, 100.0]);
        assert_eq!((axis.place(0.0), axis.place(9.0)), (0.0, 100.0));
    }

    #[test]
    fn everything_is_within_the_axis_and_no_two_names_meet() {
        let runs = [vec![family(Kind::TpcB, Aspect::Cpu, &[-0.02, -0.03, -0.01, -0.02, -0.025])]];
        let far = |low: f64| Elsewhere {
            kind: Kind::TpcB,
            aspect: Aspect::Throughput,
            low,
            high: 0.75,
            text: String::new(),
        };
        for low in [0.5, 0.0] {
            let forest = Forest::of(&runs, &[far(low)]);
            let [group] = &forest.groups[..] else { panic!("{forest:?}") };
            let mark = &group.rows[0].marks[0];
            assert!(0.0 < mark.low && mark.low < mark.mid && mark.mid < mark.high, "{mark:?}");
            assert!(mark.high < forest.one, "a loss lies before 1: {mark:?}");
            let diamond = &group.rows[1].diamonds[0];
            assert!(diamond.low < diamond.high && diamond.high < mark.low, "{diamond:?}");
            assert!(forest.ticks.len() >= 3 && forest.ticks.iter().any(|t| t.text == "1"));
            for pair in forest.ticks.windows(2) {
                assert!(pair[1].at - pair[0].at >= APART, "{:?}", forest.ticks);
            }
        }
    }

    #[test]
    fn an_end_beyond_the_axis_is_marked_as_one() {
        let mut wide = family(Kind::TpcB, Aspect::P95, &[0.0; 5]);
        for (low, high, beyond) in
            [(0.9, 1.1, (false, false)), (0.1, 1.02, (true, false)), (0.02, 8.0, (true, true))]
        {
            wide.ratio = Interval { low, mid: 1.0, high };
            let forest = Forest::of(&[vec![wide.clone()]], &[]);
            let mark = &forest.groups[0].rows[0].marks[0];
            assert_eq!(mark.beyond, beyond, "{mark:?}");
        }
        let ruin = Elsewhere {
            kind: Kind::TpcB,
            aspect: Aspect::Throughput,
            low: 0.0,
            high: 0.75,
            text: String::new(),
        };
        let forest = Forest::of(&[Vec::new()], &[ruin]);
        assert_eq!(forest.groups[0].rows[0].diamonds[0].beyond, (true, false));
    }

    #[test]
    fn published_figures_stand_with_the_kind_of_load_that_they_speak_of() {
        let of = |name| crate::catalogue::find(name, Size::Small).unwrap();
        let experiments = ["cybertec-matrix", "rds-encryption", "provisioned-iops"].map(of);
        let all = elsewhere(experiments.iter());
        let at = |kind| {
            let here = all.iter().filter(|e| e.kind == kind && e.aspect == Aspect::Throughput);
            here.map(|e| e.low).collect::<Vec<f64>>()
        };
        assert_eq!(at(Kind::TpcB), [0.5722, 1.005, 0.5371, 0.9916, 0.5002, 0.9923]);
        let read_only = [0.9816, 1.0263, 0.9805, 1.0215, 0.9966, 1.0142];
        assert_eq!(at(Kind::ReadOnly), read_only);
        assert_eq!(at(Kind::Bulk), [0.6923, 0.7692], "a time is a throughput here");
        assert!(at(Kind::Batch).is_empty(), "what provisioned I/O brings is no cost of sealing");
        let bulk = all.iter().filter(|e| e.kind == Kind::Bulk);
        assert_eq!(range(bulk), "loss of 30.8 to 23.1 %");
    }

    #[test]
    fn a_claim_of_two_kinds_of_load_is_of_neither() {
        let text = "name = 't'\nquestion = ''\nengine = 'postgresql'\narms = ['plain', 'sealed']\n\
                    [workload.a]\nkind = 'sql'\nsetup = ''\nsql = ''\nrows = 1\n\
                    [workload.b]\nkind = 'mysqlslap'\nargs = []\nqueries = 1\n[stop]\nblocks = 1\n\
                    [[claim]]\nid = 'c'\ntext = ''\nsource = ''\nmetric = 'elapsed'\n\
                    arm = 'sealed'\nagainst = 'plain'\nexpect = { ratio = 0.5 }\n";
        let experiment = read("t", text, Size::Small).unwrap();
        assert!(elsewhere([&experiment].into_iter()).is_empty());
    }
}

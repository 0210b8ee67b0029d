//! Values over the time of the trials: the device's reads and writes, and whatever else was
//! sampled.
//!
//! As in the published chart, the levels of what was provisioned lie in one chart: with and
//! without.

use std::collections::{BTreeMap, BTreeSet};

use super::{Chart, Figure, Track};
use crate::experiment::Experiment;
use crate::metric;
use crate::report::cells::{Cells, label, spaced};
use crate::trial::{Cell, Phase, Trial};

pub(in crate::report) fn over_time(
    experiment: &Experiment,
    cells: &Cells<'_>,
    arms: &[String],
) -> Vec<Figure> {
    let varying = cells.varying();
    let provisioned = provisioned(experiment, &varying);
    let rest: Vec<&String> = varying.iter().filter(|f| Some(*f) != provisioned.as_ref()).collect();
    let mut figures = Vec::new();
    for phase in Phase::ALL {
        // Cells that differ only in what was provisioned share a chart.
        let mut shared: Vec<(Cell, Vec<&Cell>)> = Vec::new();
        for cell in cells.cells(phase) {
            let mut key = cell.clone();
            if let Some(factor) = &provisioned {
                key.0.remove(factor);
            }
            match shared.iter_mut().find(|(known, _)| *known == key) {
                Some((_, members)) => members.push(cell),
                None => shared.push((key, vec![cell])),
            }
        }
        for (key, members) in shared {
            // Writes before reads, as in the published chart.
            for name in series_of(cells, phase, &members).into_iter().rev() {
                let mut tracks = Vec::new();
                for arm in arms {
                    for (style, cell) in members.iter().enumerate() {
                        let level = provisioned.iter().find_map(|factor| {
                            Some(format!("{} {}", spaced(factor), cell.0.get(factor)?))
                        });
                        let of_arm = cells.trials(phase, cell).iter().filter(|t| t.arm == *arm);
                        let trials: Vec<&Trial> = of_arm.copied().collect();
                        let name_of_track =
                            level.map_or_else(|| arm.clone(), |l| format!("{arm}, {l}"));
                        tracks.extend(track(&trials, &name, name_of_track, arm, style));
                    }
                }
                // A trial of a second or two has one sample, and one point is no line.
                if tracks.iter().all(|track| track.median.len() < 2) {
                    continue;
                }
                let (title, unit) = match metric::find(&name) {
                    Some(metric) => (metric.title.to_owned(), metric.unit.to_owned()),
                    None => (spaced(&name), String::new()),
                };
                let at = phase.words();
                figures.push(Figure {
                    id: format!("{}-time-{}", experiment.name, figures.len()),
                    title: format!("{}: {title} over time {at}", spaced(key.workload()))
                        .trim_end()
                        .into(),
                    caption: label(&key, rest.iter().copied()),
                    alt: format!("{title} over the time of the trials, {} lines.", tracks.len()),
                    wide: true,
                    chart: Chart::Times { y: unit, tracks },
                });
            }
        }
    }
    figures
}

/// The factor that the experiment's I/O limits name, if its levels differ here.
fn provisioned(experiment: &Experiment, varying: &BTreeSet<String>) -> Option<String> {
    let limits = [&experiment.limits.iops, &experiment.limits.throughput_mib];
    let named = |factor: &&String| {
        let place = format!("{{{factor}}}");
        limits.iter().any(|limit| limit.as_ref().is_some_and(|text| text.0.contains(&place)))
    };
    varying.iter().find(named).cloned()
}

fn series_of(cells: &Cells<'_>, phase: Phase, members: &[&Cell]) -> BTreeSet<String> {
    let trials = members.iter().flat_map(|cell| cells.trials(phase, cell));
    trials.flat_map(|trial| trial.series.keys().cloned()).collect()
}

fn track(trials: &[&Trial], series: &str, name: String, arm: &str, style: usize) -> Option<Track> {
    let blocks: Vec<Vec<(f64, f64)>> =
        trials.iter().filter_map(|trial| trial.series.get(series)).cloned().collect();
    if blocks.is_empty() {
        return None;
    }
    let period = period(&blocks);
    let mut at_a_time: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for (at, value) in blocks.iter().flatten().filter(|(at, value)| *at >= 0.0 && value.is_finite())
    {
        at_a_time.entry((at / period).round().to_bits()).or_default().push(*value);
    }
    let median = at_a_time.into_iter().map(|(number, mut values)| {
        values.sort_by(f64::total_cmp);
        (f64::from_bits(number) * period, values[values.len() / 2])
    });
    Some(Track { name, arm: arm.into(), style, median: median.collect(), blocks })
}

/// Seconds between samples, as they were meant: trials are put together by that.
fn period(blocks: &[Vec<(f64, f64)>]) -> f64 {
    let gaps = blocks.iter().flat_map(|block| block.windows(2).map(|two| two[1].0 - two[0].0));
    let mut gaps: Vec<f64> = gaps.filter(|gap| gap.is_finite()).collect();
    gaps.sort_by(f64::total_cmp);
    match gaps.get(gaps.len() / 2) {
        Some(gap) if *gap < 0.5 => SHORT,
        _ => 1.0,
    }
}

/// The period of trials that take less than a few seconds.
const SHORT: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{self, Synthetic};

    #[test]
    fn a_phase_of_half_a_second_has_a_line() {
        let block = |late: f64| (1..=5).map(|n| (f64::from(n) * 0.102 + late, 5.0)).collect();
        let mut run = Synthetic::new(2);
        run.arm("plain", "billing", 1.0);
        for (trial, late) in run.trials.iter_mut().zip([0.0, 0.003]) {
            trial.series.insert("write_iops".into(), block(late));
        }
        let trials: Vec<&Trial> = run.trials.iter().collect();
        let track = track(&trials, "write_iops", String::new(), "plain", 0).unwrap();
        let at: Vec<String> = track.median.iter().map(|(at, _)| format!("{at:.1}")).collect();
        assert_eq!(at, ["0.1", "0.2", "0.3", "0.4", "0.5"]);
    }

    #[test]
    fn trials_with_a_single_sample_make_no_empty_chart() {
        for (samples, figures) in [(1, 0), (2, 1)] {
            let mut run = Synthetic::new(3);
            run.arm("plain", "select", 1.0);
            for trial in &mut run.trials {
                let points = (1..=samples).map(|second| (f64::from(second), 5.0)).collect();
                trial.series.insert("steal_percent".into(), points);
            }
            let experiment = synthetic::experiment(&["plain"]);
            let cells = Cells::of(&experiment, &run.trials);
            let made = over_time(&experiment, &cells, &experiment.arms);
            assert_eq!(made.len(), figures, "{samples} samples");
        }
    }
}

//! How often intervals hold the truth, by simulation.

use super::*;
use crate::statistics::contrasts;

/// Sum of twelve uniform draws: close to a normal distribution with variance 1.
fn normal(random: &mut fastrand::Rng) -> f64 {
    (0..12).map(|_| random.f64()).sum::<f64>() - 6.0
}

/// Exponential about 0, so much skewed.
fn skewed(random: &mut fastrand::Rng) -> f64 {
    -(1.0 - random.f64()).ln() - 1.0
}

/// How far the 95 % interval reaches from the logarithm.
fn width(one: &Estimate) -> f64 {
    let Interval { low, high, .. } = one.interval(0.95);
    (high / low).ln() / 2.0
}

/// Part of 4,000 experiments whose interval holds the truth, a ratio of 1.
fn coverage(mut once: impl FnMut(&mut fastrand::Rng) -> Estimate) -> f64 {
    let mut random = fastrand::Rng::with_seed(3);
    let held = (0..4000).filter(|_| once(&mut random).interval(0.95).holds(1.0));
    held.count() as f64 / 4000.0
}

#[test]
fn quantiles_are_those_of_the_tables() {
    // Of n logarithms with mean 0 and variance n of their mean 1: t at 0.975 with n - 1.
    for (n, table) in [(5, 2.776_445), (10, 2.262_157), (20, 2.093_024)] {
        let one = Estimate::by_blocks(0.0, (1.0, f64::from(n - 1)));
        let high = one.interval(0.95).high.ln();
        assert!((high - table).abs() < 1e-6, "{n}: {high}");
    }
}

/// Four standard errors of 4,000 experiments are 0.014.
#[test]
fn intervals_hold_the_truth_as_often_as_they_say() {
    for n in [5, 10, 20] {
        let found = coverage(|random| {
            let logs: Vec<f64> = (0..n).map(|_| 0.02 * normal(random)).collect();
            Estimate::of(&logs, None).unwrap()
        });
        println!("{n} blocks, normal: {found}");
        assert!((found - 0.95).abs() < 0.014, "{n}: {found}");
    }
}

#[test]
fn a_ratio_of_skewed_times_is_covered_nearly_as_often() {
    // Both sides are skewed alike, so their logarithms' difference is not.
    for n in [5, 10, 20] {
        let found = coverage(|random| {
            let log = |random: &mut fastrand::Rng| (1.0 + 0.05 * (1.0 + skewed(random))).ln();
            let logs: Vec<f64> = (0..n).map(|_| log(random) - log(random)).collect();
            Estimate::of(&logs, None).unwrap()
        });
        println!("{n} blocks, skewed: {found}");
        assert!(found > 0.94, "{n}: {found}");
    }
}

#[test]
fn steal_is_taken_out_and_the_interval_still_holds() {
    for n in [10, 20] {
        let (mut with, mut without) = (0.0, 0.0);
        let found = coverage(|random| {
            let steal: Vec<f64> = (0..n).map(|_| 5.0 * normal(random)).collect();
            let logs: Vec<f64> = steal.iter().map(|s| -0.01 * s + 0.01 * normal(random)).collect();
            let adjusted = Estimate::of(&logs, Some(&steal)).unwrap();
            with += width(&adjusted);
            without += width(&Estimate::of(&logs, None).unwrap());
            adjusted
        });
        println!("{n} blocks, steal: {found}, width {:.2} of that without", with / without);
        assert!((found - 0.95).abs() < 0.014, "{n}: {found}");
        assert!(with < 0.35 * without, "{n}: {with} of {without}");
    }
}

/// A cell with so many servers of each arm as half of `bias`, by which they are away from what
/// their arm is.
fn of_servers(random: &mut fastrand::Rng, n: usize, bias: &[f64]) -> Estimate {
    let each = bias.len() / 2;
    let mut servers = vec![Vec::new(); bias.len()];
    let mut logs = Vec::new();
    for _ in 0..n {
        let values: Vec<f64> = bias.iter().map(|bias| bias + 0.02 * normal(random)).collect();
        logs.push(mean(&values[..each]) - mean(&values[each..]));
        servers.iter_mut().zip(values).for_each(|(logs, value)| logs.push(value));
    }
    let apart = [contrasts(&servers[..each]), contrasts(&servers[each..])];
    Estimate::of(&logs, None).unwrap().with_servers([&apart[0], &apart[1]])
}

/// Logarithms by which so many servers are away from what their arms are.
fn biases(random: &mut fastrand::Rng, servers: usize, deviation: f64) -> Vec<f64> {
    (0..servers).map(|_| deviation * normal(random)).collect()
}

/// docs/lab/statistics.md has these figures.
#[test]
fn what_servers_differ_by_is_in_the_interval() {
    for servers in [2, 4] {
        for n in [5, 10, 20] {
            for deviation in [0.0, 0.005, 0.01, 0.03] {
                let mut sum = 0.0;
                let found = coverage(|random| {
                    let bias = biases(random, 2 * servers, deviation);
                    let one = of_servers(random, n, &bias);
                    sum += width(&one);
                    one
                });
                let sum = sum / 4000.0;
                println!("{servers} servers, {n} blocks, {deviation}: {found}, width {sum:.4}");
                assert!(found > 0.936, "{servers}, {n}, {deviation}: {found}");
            }
        }
    }
}

/// `--precision` looks after each block from the tenth, and stops where the control is narrow.
#[test]
fn a_control_that_ends_its_own_blocks_is_a_little_too_sure() {
    for noise in [0.03, 0.05, 0.07] {
        let mut void = 0;
        let found = coverage(|random| {
            let mut logs: Vec<f64> = (0..9).map(|_| noise * normal(random)).collect();
            loop {
                logs.push(noise * normal(random));
                let one = Estimate::of(&logs, None).unwrap();
                if width(&one) <= 1.02_f64.ln() {
                    void += u32::from(!one.interval(0.99).holds(1.0));
                    return one;
                }
            }
        });
        let void = f64::from(void) / 4000.0;
        println!("a noise of {noise}: {found}, void {void}");
        assert!(found > 0.92 && void < 0.025, "{noise}: {found} {void}");
    }
}

/// The servers of several cells may be the same, or others, or the same with other differences;
/// some cells may have four of each arm, or one.
#[test]
fn a_family_of_cells_with_several_servers_holds_the_truth() {
    for (same, others, four, single) in [
        (0.0, 0.0, 0, 0),
        (0.02, 0.0, 0, 0),
        (0.0, 0.02, 0, 0),
        (0.01, 0.01, 0, 3),
        (0.01, 0.01, 3, 0),
        (0.01, 0.01, 2, 2),
    ] {
        let mut sum = 0.0;
        let found = coverage(|random| {
            let shared = biases(random, 8, same);
            let mut cell = |servers: usize| {
                let mut bias = biases(random, servers, others);
                bias.iter_mut().zip(&shared).for_each(|(bias, shared)| *bias += shared);
                of_servers(random, 10, &bias)
            };
            let mut cells: Vec<Estimate> = (0..5).map(|_| cell(4)).collect();
            cells.extend((0..four).map(|_| cell(8)));
            for _ in 0..single {
                let logs: Vec<f64> = (0..10).map(|_| 0.02 * normal(random)).collect();
                cells.push(Estimate::of(&logs, None).unwrap());
            }
            let pooled = Estimate::pooled(&cells).unwrap();
            sum += width(&pooled);
            pooled
        });
        println!("{same} {others} {four} {single}: {found}, width {:.4}", sum / 4000.0);
        assert!(found > 0.936, "{same}, {others}, {four}, {single}: {found}");
    }
}

/// Two runs on two pairs of servers each.
#[test]
fn the_difference_of_two_runs_has_the_servers_of_both() {
    let found = coverage(|random| {
        let mut run = || {
            let bias = biases(random, 4, 0.02);
            of_servers(random, 10, &bias)
        };
        let (one, other) = (run(), run());
        one.less(&other)
    });
    assert!(found > 0.936, "{found}");
}

#[test]
fn a_family_is_narrower_than_its_cells_and_holds_the_truth() {
    let mut widths = (0.0, 0.0);
    let found = coverage(|random| {
        let mut cell = |noise: f64| {
            let logs: Vec<f64> = (0..10).map(|_| noise * normal(random)).collect();
            Estimate::of(&logs, None).unwrap()
        };
        let cells = [0.01, 0.02, 0.02, 0.05].map(&mut cell);
        let pooled = Estimate::pooled(&cells).unwrap();
        widths.0 += width(&pooled);
        widths.1 += width(&cells[2]);
        pooled
    });
    assert!((found - 0.95).abs() < 0.014 && widths.0 < 0.8 * widths.1, "{found} {widths:?}");
    assert_eq!(Estimate::pooled(&[]), None);
}

#[test]
fn among_fifty_equal_cells_one_in_twenty_runs_finds_a_difference() {
    let mut random = fastrand::Rng::with_seed(9);
    let wrong = (0..1000).filter(|_| {
        let cells = (0..50).map(|_| {
            let logs: Vec<f64> = (0..10).map(|_| normal(&mut random)).collect();
            Estimate::of(&logs, None).unwrap().p_value()
        });
        holm(&cells.collect::<Vec<_>>()).iter().any(|p| *p < 0.05)
    });
    let wrong = wrong.count();
    // Four standard errors of 1,000 are 28.
    assert!((22..=78).contains(&wrong), "{wrong} of 1000 runs");
}

#[test]
fn half_the_width_takes_about_four_times_the_blocks() {
    let mut random = fastrand::Rng::with_seed(2);
    let logs: Vec<f64> = (0..40).map(|_| 0.02 * normal(&mut random)).collect();
    let one = Estimate::of(&logs, None).unwrap();
    let needed = |reach| one.blocks_for(40, reach, 2);
    let (wide, narrow) = (needed(0.004), needed(0.002));
    assert!((80..140).contains(&wide) && (3.6..4.4).contains(&(narrow as f64 / wide as f64)));
    assert!(one.reaches(0.004, wide, 40) && !one.reaches(0.004, wide - 1, 40));
    assert_eq!(one.blocks_for(40, 10.0, 10), 10);
}

#[test]
fn holm_is_as_in_its_paper() {
    let adjusted = holm(&[0.01, 0.04, 0.03, 0.005]);
    let expected = [0.03, 0.06, 0.06, 0.02];
    assert!(adjusted.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{adjusted:?}");
    assert_eq!(holm(&[]), Vec::<f64>::new());
}

#[test]
fn equal_values_have_no_width_and_too_few_none_at_all() {
    let one = Estimate::of(&[0.5; 8], None).unwrap();
    let Interval { low, mid, high } = one.interval(0.95);
    assert!(low == mid && mid == high && one.p_value() == 0.0, "{one:?}");
    assert!((Estimate::of(&[0.0; 8], None).unwrap().p_value() - 1.0).abs() < 1e-12);
    assert_eq!(Estimate::of(&[0.5], None), None);
    assert_eq!(Estimate::of(&[0.5, f64::NAN], None), None);
}

#[test]
fn the_error_of_saying_below_is_half_of_both_sides() {
    let one = Estimate::of(&[-0.02, -0.03, -0.01, -0.04, -0.02], None).unwrap();
    assert!((one.p_below(1.0) * 2.0 - one.p_value()).abs() < 1e-12);
    assert!(one.p_below(0.9) > 0.99 && one.p_below(1.1) < one.p_below(1.0));
    let none = one.less(&one);
    assert!(none.interval(0.95).holds(1.0) && width(&none) > width(&one));
}

#[test]
fn several_loads_that_were_measured_apart_allow_less_than_each_of_them() {
    let logs: Vec<f64> = (0..8).map(|n| if n % 2 == 0 { 0.05 } else { -0.05 }).collect();
    let one = Estimate::of(&logs, None).unwrap();
    let wider = |loads: usize| {
        let at_most = Estimate::pooled_at_most(&vec![(one, vec![one]); loads], 0.8).unwrap();
        let likely = Estimate::pooled(&vec![one; loads]).unwrap();
        at_most.interval(0.95).high.ln() / likely.interval(0.95).high.ln()
    };
    // Tables of chi-square have 3.822 for 7 degrees of freedom at 0.2, and 21.588 for 28.
    assert!((wider(1) - (7.0_f64 / 3.822).sqrt()).abs() < 1e-3, "{}", wider(1));
    assert!((wider(4) - (28.0_f64 / 21.588).sqrt()).abs() < 1e-3, "{}", wider(4));
}

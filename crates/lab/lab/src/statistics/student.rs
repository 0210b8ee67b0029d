//! The mean of paired logarithms with Student's t: an estimate that knows its own error.
//!
//! Three things make the error: blocks differ from one another, the hypervisor takes time from one
//! side more than from the other, and two servers of one arm are not quite the same. Blocks give
//! the first with `n - 1` degrees of freedom. Steal is a covariate, known beside each block. The
//! third stays however many blocks there are. Where both arms have two servers, the servers are
//! measured twice by themselves, which gives a second error with two degrees of freedom. The
//! interval is the wider of both, the chance the larger.
//!
//! That the 95 % of an interval are 95 % is shown by simulation, below, at 5, 10 and 20 blocks.

use statrs::distribution::{ContinuousCDF as _, StudentsT};

use super::describe::mean;
use super::interval::Interval;

/// The mean of logarithms of ratios, and what it may be wrong by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    mid: f64,
    /// Variance of the mean by blocks, and its degrees of freedom.
    blocks: (f64, f64),
    /// Variance by the choice of servers where one arm alone has two, and its degrees of freedom.
    servers: (f64, f64),
    /// What the servers say of the error where both arms have two.
    replicates: Option<Replicates>,
}

/// The error of a mean as its servers show it: the first ones of both arms are one experiment, the
/// second ones another.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Replicates {
    /// Half of what the two servers of each arm differ by, in the mean of all blocks and cells. The
    /// sum of the squares is a variance of the mean with two degrees of freedom.
    apart: [f64; 2],
    /// Variance by blocks, and its degrees of freedom, of what has no second server in both arms.
    rest: (f64, f64),
}

impl Estimate {
    /// The mean of `logs`. With a `covariate`, one value for each, it is what the mean would be at
    /// 0 of it, by a straight line; this needs [`LEAST_FOR_COVARIATE`] blocks and a covariate that
    /// varies, and is left out else. `None` without two values, or with one that is not finite.
    #[must_use]
    pub fn of(logs: &[f64], covariate: Option<&[f64]>) -> Option<Self> {
        let n = logs.len();
        if n < 2 || !logs.iter().all(|log| log.is_finite()) {
            return None;
        }
        let known = covariate.filter(|x| x.len() == n && n >= LEAST_FOR_COVARIATE);
        if let Some(found) = known.and_then(|x| adjusted(logs, x)) {
            return Some(found);
        }
        let (mid, df) = (mean(logs), (n - 1) as f64);
        let variance = logs.iter().map(|log| (log - mid).powi(2)).sum::<f64>() / df;
        Some(Self::by_blocks(mid, (variance / n as f64, df)))
    }

    fn by_blocks(mid: f64, blocks: (f64, f64)) -> Self {
        Self { mid, blocks, servers: (0.0, 0.0), replicates: None }
    }

    /// The same with the error of having measured these servers and not others. `pairs` are, for
    /// each of both arms, the logarithms of its first server over its second in each block; none
    /// where it has one.
    #[must_use]
    pub fn with_servers(mut self, pairs: [&[f64]; 2]) -> Self {
        match pairs.map(|logs| Self::of(logs, None)) {
            [Some(one), Some(other)] => {
                let apart = [one, other].map(|pair| pair.mid / 2.0);
                self.replicates = Some(Replicates { apart, rest: (0.0, 0.0) });
            }
            // What the two differ by beyond what blocks explain: twice the variance of one server,
            // and so four times that of the mean of two.
            [Some(pair), None] | [None, Some(pair)] => {
                let beyond = (pair.mid.powi(2) - pair.blocks.0).max(0.0) / 4.0;
                self.servers = (beyond, 1.0);
            }
            [None, None] => {}
        }
        self
    }

    /// The mean of several, each of the same weight. Their blocks are independent. Their servers
    /// may be the same ones: the mean over the first servers and that over the second are two
    /// experiments either way. Where one arm alone has two, that error does not shrink.
    #[must_use]
    pub fn pooled(all: &[Self]) -> Option<Self> {
        if all.is_empty() {
            return None;
        }
        let n = all.len() as f64;
        let of = |value: &dyn Fn(&Self) -> f64| all.iter().map(value).sum::<f64>();
        let mean = |parts: &[(f64, f64)]| {
            (parts.iter().map(|part| part.0).sum::<f64>() / (n * n), welch(parts.iter().copied()))
        };
        let servers = (of(&|one| one.servers.0.sqrt()) / n).powi(2);
        let servers_df = all.iter().map(|one| one.servers.1).fold(0.0, f64::max);
        let apart = |arm: usize| {
            let of_cell = |one: &Self| one.replicates.map_or(0.0, |known| known.apart[arm]);
            of(&of_cell) / n
        };
        let rest = |one: &Self| one.replicates.map_or(one.blocks, |known| known.rest);
        let replicates = Replicates {
            apart: [apart(0), apart(1)],
            rest: mean(&all.iter().map(rest).collect::<Vec<_>>()),
        };
        Some(Self {
            mid: of(&|one| one.mid) / n,
            blocks: mean(&all.iter().map(|one| one.blocks).collect::<Vec<_>>()),
            servers: (servers, servers_df),
            replicates: all.iter().any(|one| one.replicates.is_some()).then_some(replicates),
        })
    }

    /// The mean of several parts of the same trials, each of the same weight: their blocks are the
    /// same too, so no error shrinks.
    #[must_use]
    pub fn together(all: &[Self]) -> Option<Self> {
        let pooled = Self::pooled(all)?;
        let error = all.iter().map(|one| one.blocks.0.sqrt()).sum::<f64>() / all.len() as f64;
        let df = all.iter().map(|one| one.blocks.1).fold(f64::INFINITY, f64::min);
        Some(Self { blocks: (error.powi(2), df), ..pooled })
    }

    /// This one less another that shares nothing with it.
    #[must_use]
    pub fn less(&self, other: &Self) -> Self {
        let apart = |one: &Self, arm: usize| one.replicates.map_or(0.0, |known| known.apart[arm]);
        let apart = [0, 1].map(|arm| apart(self, arm) - apart(other, arm));
        let rest = |one: &Self| one.replicates.map_or(one.blocks, |known| known.rest);
        let replicates = Replicates { apart, rest: sum(rest(self), rest(other)) };
        Self {
            mid: self.mid - other.mid,
            blocks: sum(self.blocks, other.blocks),
            servers: sum(self.servers, other.servers),
            replicates: self.replicates.or(other.replicates).and(Some(replicates)),
        }
    }

    /// How many blocks like the `measured` ones it takes until half the width of the 95 % interval
    /// of the logarithm is at most `reach`; `least` at least, and the error of servers left out.
    #[must_use]
    pub fn blocks_for(&self, measured: usize, reach: f64, least: usize) -> usize {
        let mut blocks = least.max(2);
        while blocks < MANY_BLOCKS && !self.reaches(reach, blocks, measured) {
            blocks += 1;
        }
        blocks
    }

    /// Whether so many `blocks` like the `measured` ones would do for `reach`.
    #[must_use]
    pub fn reaches(&self, reach: f64, blocks: usize, measured: usize) -> bool {
        self.after(blocks, measured).interval(0.95).high.ln() <= reach
    }

    /// An equality that is known by so many `blocks` like the `measured` ones; the error of servers
    /// left out.
    #[must_use]
    pub fn after(&self, blocks: usize, measured: usize) -> Self {
        let one = self.blocks.0 * measured as f64;
        Self::by_blocks(0.0, (one / blocks as f64, (blocks.max(2) - 1) as f64))
    }

    /// The ratio with the interval that holds the truth in this part of all cases.
    #[must_use]
    pub fn interval(&self, part: f64) -> Interval {
        let high = f64::midpoint(part, 1.0);
        let reach = self.errors().map(|error| error.reach(high)).fold(0.0, f64::max);
        Interval {
            low: (self.mid - reach).exp(),
            mid: self.mid.exp(),
            high: (self.mid + reach).exp(),
        }
    }

    /// How likely equal arms are to differ by so much, in either direction.
    #[must_use]
    pub fn p_value(&self) -> f64 {
        self.p_beyond(0.0, Side::Both)
    }

    /// How likely a true ratio of `limit` is to be measured so low: the error of saying that the
    /// ratio is below it.
    #[must_use]
    pub fn p_below(&self, limit: f64) -> f64 {
        self.p_beyond(limit.ln(), Side::Below)
    }

    fn p_beyond(&self, log: f64, side: Side) -> f64 {
        let away = self.mid - log;
        let of = |error: Error| {
            let below = error.below(away);
            match side {
                Side::Below => below,
                Side::Both => 2.0 * below.min(1.0 - below),
            }
        };
        self.errors().map(of).fold(0.0, f64::max)
    }

    /// By blocks, and by servers where both arms have two.
    fn errors(&self) -> impl Iterator<Item = Error> {
        let by_servers = self.replicates.map(|known| known.error(self.servers));
        [Some(Error([self.by_blocks_and_one_pair(), NONE])), by_servers].into_iter().flatten()
    }

    fn by_blocks_and_one_pair(&self) -> (f64, f64) {
        sum(self.blocks, self.servers)
    }
}

impl Replicates {
    /// `servers` is the part of those that one arm alone has two of.
    fn error(&self, servers: (f64, f64)) -> Error {
        let apart = self.apart.iter().map(|half| half.powi(2)).sum();
        Error([(apart, self.apart.len() as f64), sum(self.rest, servers)])
    }
}

/// Two independent parts of an error: variances with their degrees of freedom, 0 for none.
///
/// The reaches of both, each by its own t, add up as their squares do. Welch's degrees of freedom
/// would be too many where one part has two: that part is too uncertain to say how much it counts.
#[derive(Clone, Copy)]
struct Error([(f64, f64); 2]);

impl Error {
    /// What the error stays below in this `part` of all cases, at least a half.
    fn reach(&self, part: f64) -> f64 {
        let of = |(variance, df): (f64, f64)| match student(df) {
            Some(t) if variance > 0.0 => variance * t.inverse_cdf(part).powi(2),
            _ => 0.0,
        };
        self.0.into_iter().map(of).sum::<f64>().sqrt()
    }

    /// In which part of all cases it is below this.
    fn below(&self, away: f64) -> f64 {
        let known: Vec<(f64, f64)> = self.0.into_iter().filter(|part| part.0 > 0.0).collect();
        match known[..] {
            [(variance, df)] => student(df).map_or(0.5, |t| t.cdf(away / variance.sqrt())),
            [] if away == 0.0 => 0.5,
            [] => f64::from(away > 0.0),
            _ => {
                let (mut low, mut high) = (0.5, 1.0);
                for _ in 0..HALVINGS {
                    let part = f64::midpoint(low, high);
                    if self.reach(part) < away.abs() { low = part } else { high = part }
                }
                if away < 0.0 { 1.0 - low } else { low }
            }
        }
    }
}

fn student(df: f64) -> Option<StudentsT> {
    StudentsT::new(0.0, 1.0, df.max(1.0)).ok()
}

/// The sum of two independent errors of which both are known well.
fn sum(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    (a.0 + b.0, welch([a, b].into_iter()))
}

#[derive(Clone, Copy)]
enum Side {
    Below,
    Both,
}

/// Degrees of freedom of a sum of variances (Welch, Biometrika 34, 1947).
fn welch(parts: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (mut sum, mut squares, mut most) = (0.0, 0.0, 0.0_f64);
    for (variance, df) in parts {
        most = most.max(df);
        if variance > 0.0 && df > 0.0 {
            sum += variance;
            squares += variance.powi(2) / df;
        }
    }
    if squares > 0.0 { sum.powi(2) / squares } else { most }
}

/// The intercept of the line of least squares; `None` where the covariate does not vary.
fn adjusted(logs: &[f64], covariate: &[f64]) -> Option<Estimate> {
    let n = logs.len() as f64;
    let (x, y) = (mean(covariate), mean(logs));
    let sxx: f64 = covariate.iter().map(|value| (value - x).powi(2)).sum();
    if !sxx.is_finite() || (sxx / (n - 1.0)).sqrt() < LEAST_SPREAD {
        return None;
    }
    let sxy: f64 = covariate.iter().zip(logs).map(|(a, b)| (a - x) * (b - y)).sum();
    let slope = sxy / sxx;
    let mid = y - slope * x;
    let left = covariate.iter().zip(logs).map(|(a, b)| (b - mid - slope * a).powi(2));
    let df = n - 2.0;
    let variance = left.sum::<f64>() / df;
    let blocks = (variance * (1.0 / n + x * x / sxx), df);
    Some(Estimate::by_blocks(mid, blocks))
}

/// Adjusts p-values of several tests so that the chance of a single wrong one among all is that of
/// one test (Holm, Scandinavian Journal of Statistics 6, 1979). In the order given.
#[must_use]
pub fn holm(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut adjusted = vec![1.0; values.len()];
    let mut largest: f64 = 0.0;
    for (rank, at) in order.into_iter().enumerate() {
        largest = largest.max(values[at] * (values.len() - rank) as f64);
        adjusted[at] = largest.min(1.0);
    }
    adjusted
}

/// Blocks without which a covariate costs more than it explains.
pub const LEAST_FOR_COVARIATE: usize = 8;
/// No part of an error.
const NONE: (f64, f64) = (0.0, 0.0);
/// Halvings after which a chance is known as well as it can be written.
const HALVINGS: u32 = 60;
/// Blocks beyond which it does not matter how many more.
const MANY_BLOCKS: usize = 100_000;
/// Standard deviation of the covariate, in its unit (percent of CPU time), below which it says
/// nothing: the kernel counts steal in ticks.
const LEAST_SPREAD: f64 = 0.5;

#[cfg(test)]
mod tests {
    use super::*;

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
                let logs: Vec<f64> =
                    steal.iter().map(|s| -0.01 * s + 0.01 * normal(random)).collect();
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

    /// A cell with two servers of each arm, which are `bias` away from what their arm is.
    fn of_four_servers(random: &mut fastrand::Rng, n: usize, bias: [f64; 4]) -> Estimate {
        let (mut logs, mut pairs) = (Vec::new(), [Vec::new(), Vec::new()]);
        for _ in 0..n {
            let [a, b, c, d] = bias.map(|bias| bias + 0.02 * normal(random));
            logs.push(f64::midpoint(a, b) - f64::midpoint(c, d));
            pairs[0].push(a - b);
            pairs[1].push(c - d);
        }
        Estimate::of(&logs, None).unwrap().with_servers([&pairs[0], &pairs[1]])
    }

    /// Logarithms by which four servers are away from what their arms are.
    fn biases(random: &mut fastrand::Rng, deviation: f64) -> [f64; 4] {
        std::array::from_fn(|_| deviation * normal(random))
    }

    /// docs/lab/statistics.md has these figures.
    #[test]
    fn what_two_servers_differ_by_is_in_the_interval() {
        for n in [5, 10, 20] {
            for servers in [0.0, 0.005, 0.01, 0.03] {
                let mut sum = 0.0;
                let found = coverage(|random| {
                    let bias = biases(random, servers);
                    let one = of_four_servers(random, n, bias);
                    sum += width(&one);
                    one
                });
                println!("{n} blocks, servers {servers}: {found}, width {:.4}", sum / 4000.0);
                assert!(found > 0.936, "{n}, {servers}: {found}");
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
    /// some cells may have one server of each arm.
    #[test]
    fn a_family_of_cells_with_two_servers_holds_the_truth() {
        for (same, others, single) in
            [(0.0, 0.0, 0), (0.02, 0.0, 0), (0.0, 0.02, 0), (0.01, 0.01, 3)]
        {
            let mut sum = 0.0;
            let found = coverage(|random| {
                let shared = biases(random, same);
                let mut cells: Vec<Estimate> = (0..5)
                    .map(|_| {
                        let mut bias = biases(random, others);
                        bias.iter_mut().zip(shared).for_each(|(bias, shared)| *bias += shared);
                        of_four_servers(random, 10, bias)
                    })
                    .collect();
                for _ in 0..single {
                    let logs: Vec<f64> = (0..10).map(|_| 0.02 * normal(random)).collect();
                    cells.push(Estimate::of(&logs, None).unwrap());
                }
                let pooled = Estimate::pooled(&cells).unwrap();
                sum += width(&pooled);
                pooled
            });
            println!("{same} {others} {single}: {found}, width {:.4}", sum / 4000.0);
            assert!(found > 0.936, "{same}, {others}, {single}: {found}");
        }
    }

    #[test]
    fn the_chance_of_an_error_of_two_parts_belongs_to_its_interval() {
        let error = Error([(0.0004, 2.0), (0.0009, 9.0)]);
        for part in [0.8, 0.95, 0.999] {
            let reach = error.reach(part);
            assert!((error.below(reach) - part).abs() < 1e-9, "{part}");
            assert!((error.below(-reach) - (1.0 - part)).abs() < 1e-9, "{part}");
        }
        let alone = Error([(0.0004, 2.0), NONE]);
        assert!((alone.reach(0.975) - 0.02 * 4.302_653).abs() < 1e-7, "{}", alone.reach(0.975));
        assert!((alone.below(alone.reach(0.975)) - 0.975).abs() < 1e-9);
    }

    /// Two runs on two pairs of servers each.
    #[test]
    fn the_difference_of_two_runs_has_the_servers_of_both() {
        let found = coverage(|random| {
            let mut run = || {
                let bias = biases(random, 0.02);
                of_four_servers(random, 10, bias)
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
}

//! The mean of paired logarithms with Student's t: an estimate that knows its own error.
//!
//! Three things make the error: blocks differ from one another, the hypervisor takes time from one
//! side more than from the other, and two servers of one arm are not quite the same. Blocks give
//! the first with `n - 1` degrees of freedom. Steal is a covariate, known beside each block. The
//! third stays however many blocks there are. Where both arms have several servers, these are
//! measurements by themselves and give a second error, with few degrees of freedom (`replicates`).
//! The interval is the wider of both, the chance the larger.
//!
//! That the 95 % of an interval are 95 % is shown by simulation, in the tests, at 5, 10 and 20
//! blocks.

use super::describe::mean;
use super::error::{Error, NONE, Variance, at_most, sum, welch};
use super::interval::Interval;
use super::replicates::Replicates;

/// The mean of logarithms of ratios, and what it may be wrong by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    mid: f64,
    /// Variance of the mean by blocks.
    blocks: Variance,
    /// Variance by the choice of servers where one arm alone has several.
    servers: Variance,
    /// What the servers say of the error where both arms have as many.
    replicates: Option<Replicates>,
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

    fn by_blocks(mid: f64, blocks: Variance) -> Self {
        Self { mid, blocks, servers: NONE, replicates: None }
    }

    /// The same with the error of having measured these servers and not others. `contrasts` are
    /// those of both arms, from [`super::contrasts`].
    #[must_use]
    pub fn with_servers(mut self, contrasts: [&[Vec<f64>]; 2]) -> Self {
        let known = contrasts.map(|of_arm| {
            of_arm.iter().filter_map(|logs| Self::of(logs, None)).collect::<Vec<Self>>()
        });
        let means = known.each_ref().map(|of_arm| of_arm.iter().map(|one| one.mid).collect());
        let [one, other]: [Vec<f64>; 2] = means;
        self.replicates = Replicates::of([&one, &other]);
        if self.replicates.is_none() {
            // What they differ by beyond what blocks explain.
            let beyond = |one: &Self| (one.mid.powi(2) - one.blocks.0).max(0.0);
            let all = known.iter().filter(|of_arm| !of_arm.is_empty()).map(|of_arm| {
                let n = of_arm.len() as f64;
                (of_arm.iter().map(beyond).sum::<f64>() / n, n)
            });
            self.servers = all.fold(NONE, sum);
        }
        self
    }

    /// The mean of several, each of the same weight. Their blocks are independent. Their servers
    /// may be the same ones: the mean over the first servers and that over the second are two
    /// experiments either way. Where one arm alone has several, that error does not shrink.
    #[must_use]
    pub fn pooled(all: &[Self]) -> Option<Self> {
        if all.is_empty() {
            return None;
        }
        let n = all.len() as f64;
        let of = |value: &dyn Fn(&Self) -> f64| all.iter().map(value).sum::<f64>();
        let blocks = of(&|one| one.blocks.0) / (n * n);
        let servers = (of(&|one| one.servers.0.sqrt()) / n).powi(2);
        let servers_df = all.iter().map(|one| one.servers.1).fold(0.0, f64::max);
        let replicates: Vec<Replicates> = all.iter().map(Self::by_servers).collect();
        Some(Self {
            mid: of(&|one| one.mid) / n,
            blocks: (blocks, welch(all.iter().map(|one| one.blocks))),
            servers: (servers, servers_df),
            replicates: all
                .iter()
                .any(|one| one.replicates.is_some())
                .then(|| Replicates::pooled(&replicates)),
        })
    }

    fn by_servers(&self) -> Replicates {
        self.replicates.unwrap_or_else(|| Replicates::without(self.blocks))
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
        let is_known = self.replicates.or(other.replicates).is_some();
        Self {
            mid: self.mid - other.mid,
            blocks: sum(self.blocks, other.blocks),
            servers: sum(self.servers, other.servers),
            replicates: is_known.then(|| self.by_servers().less(&other.by_servers())),
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

    /// The same where blocks differ by the most that these allow in this `part` of all cases.
    #[must_use]
    pub fn at_most(&self, part: f64) -> Self {
        let (variance, df) = self.blocks;
        Self { blocks: (at_most((variance, df), part), df), ..*self }
    }

    /// The mean of all `loads`, where blocks differ by the most that was measured of them allows in
    /// this `part` of all cases. Of each load: what was measured, and the estimates that were
    /// reckoned from that. Several loads were measured apart, so what is known of all of them
    /// together has more degrees of freedom than each.
    #[must_use]
    pub fn pooled_at_most(loads: &[(Self, Vec<Self>)], part: f64) -> Option<Self> {
        let all: Vec<Self> = loads.iter().flat_map(|(_, cells)| cells).copied().collect();
        let pooled = Self::pooled(&all)?;
        let of = |(measured, cells): &(Self, Vec<Self>)| {
            (cells.iter().map(|one| one.blocks.0).sum(), measured.blocks.1)
        };
        let variance = at_most((pooled.blocks.0, welch(loads.iter().map(of))), part);
        Some(Self { blocks: (variance, pooled.blocks.1), ..pooled })
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

    /// By blocks, and by servers where both arms have several.
    fn errors(&self) -> impl Iterator<Item = Error> {
        let by_servers = self.replicates.map(|known| known.error(self.servers));
        [Some(Error([self.by_blocks_and_one_pair(), NONE, NONE])), by_servers].into_iter().flatten()
    }

    fn by_blocks_and_one_pair(&self) -> Variance {
        sum(self.blocks, self.servers)
    }
}

#[derive(Clone, Copy)]
enum Side {
    Below,
    Both,
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
/// Blocks beyond which it does not matter how many more.
const MANY_BLOCKS: usize = 100_000;
/// Standard deviation of the covariate, in its unit (percent of CPU time), below which it says
/// nothing: the kernel counts steal in ticks.
const LEAST_SPREAD: f64 = 0.5;

#[cfg(test)]
mod tests;

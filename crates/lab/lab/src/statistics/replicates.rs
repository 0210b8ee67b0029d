//! The error of a mean as its servers show it.

use super::error::{Error, NONE, Variance, sum, welch};

/// The contrasts of one arm's servers in each block, from the logarithms that each had there; none
/// of one server, or of another number than two or four. A block in which one lacks its value is
/// left out by who asks.
#[must_use]
pub fn contrasts(servers: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let signs: &[&[f64]] = match servers.len() {
        2 => &[&[0.5, -0.5]],
        4 => {
            &[&[0.25, 0.25, -0.25, -0.25], &[0.25, -0.25, 0.25, -0.25], &[0.25, -0.25, -0.25, 0.25]]
        }
        _ => return Vec::new(),
    };
    let blocks = servers.iter().map(Vec::len).min().unwrap_or(0);
    let of = |signs: &&[f64], block: usize| {
        signs.iter().zip(servers).filter_map(|(sign, logs)| Some(sign * logs.get(block)?)).sum()
    };
    signs.iter().map(|signs| (0..blocks).map(|block| of(signs, block)).collect()).collect()
}

/// What the servers of two arms differ by among themselves, as contrasts of their means.
///
/// Of two servers half the difference; of four a quarter of `+ + - -`, of `+ - + -` and of
/// `+ - - +`. The square of each is a variance of the arm's mean with one degree of freedom, and
/// stays one in the mean over cells, whether the servers of the cells are the same or not.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Replicates {
    /// Of both arms, where they have two servers each.
    two: Option<[f64; 2]>,
    /// The same where they have four.
    four: Option<[[f64; 3]; 2]>,
    /// Variance by blocks of what has no such servers in both arms.
    rest: Variance,
}

impl Replicates {
    /// Of the contrasts of both arms; `None` unless both have two servers or both four.
    pub(super) fn of(contrasts: [&[f64]; 2]) -> Option<Self> {
        match contrasts {
            [&[one], &[other]] => Some(Self { two: Some([one, other]), ..Self::default() }),
            [&[a, b, c], &[d, e, f]] => {
                Some(Self { four: Some([[a, b, c], [d, e, f]]), ..Self::default() })
            }
            _ => None,
        }
    }

    /// Of a part without servers that show it: its variance by blocks.
    pub(super) fn without(blocks: Variance) -> Self {
        Self { rest: blocks, ..Self::default() }
    }

    /// Of the mean of several.
    pub(super) fn pooled(all: &[Self]) -> Self {
        let n = all.len() as f64;
        let rest: Vec<Variance> = all.iter().map(|one| one.rest).collect();
        let variance = rest.iter().map(|part| part.0).sum::<f64>() / (n * n);
        Self {
            rest: (variance, welch(rest.into_iter())),
            ..Self::weighted(all.iter().map(|one| (one, 1.0 / n)))
        }
    }

    /// Of the difference of two that share nothing.
    pub(super) fn less(&self, other: &Self) -> Self {
        let both = [(self, 1.0), (other, -1.0)];
        Self { rest: sum(self.rest, other.rest), ..Self::weighted(both.into_iter()) }
    }

    /// The sums of contrasts with these weights.
    fn weighted<'r>(all: impl Iterator<Item = (&'r Self, f64)>) -> Self {
        let mut sum = Self::default();
        for (one, weight) in all {
            if let Some(two) = one.two {
                let into = sum.two.get_or_insert_default();
                into.iter_mut().zip(two).for_each(|(into, add)| *into += weight * add);
            }
            if let Some(four) = one.four {
                let into = sum.four.get_or_insert_default();
                let places = into.iter_mut().flatten().zip(four.into_iter().flatten());
                places.for_each(|(into, add)| *into += weight * add);
            }
        }
        sum
    }

    /// `servers` is the part of those that one arm alone has more of.
    pub(super) fn error(&self, servers: Variance) -> Error {
        let two = self.two.map_or(NONE, |two| (squares(&two), 2.0));
        let four = self.four.map_or(NONE, |four| (squares(four.as_flattened()) / 3.0, 6.0));
        Error([two, four, sum(self.rest, servers)])
    }
}

fn squares(contrasts: &[f64]) -> f64 {
    contrasts.iter().map(|contrast| contrast.powi(2)).sum()
}

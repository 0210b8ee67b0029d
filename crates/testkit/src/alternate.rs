//! One program, plain, plain again and sealed: its blocks of work are measured in turns.
//!
//! ```text
//!   Arms      three processes of the program, each on a directory of its own, waiting for orders
//!     round   one order to each, in an order that is drawn; each answers with numbers
//!   Samples   what the rounds of several starts answered
//!     over    a difference or a ratio: the median of each start, and over the starts Student's t
//! ```
//!
//! The speed of a machine drifts by more than what is measured, so blocks are short and those that
//! are compared are neighbours. Processes of one program differ too, by where their memory lies: so
//! they are started several times, and an interval is one over starts. The control says what two
//! equal arms differ by.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use fastrand::Rng;
use tidelock_lab::statistics::{Estimate, Interval, median};

use crate::twins::{Error, Product, Result, Workspace};

/// Plain, the same again, sealed.
pub const ARMS: [&str; 3] = ["plain", "control", "sealed"];

/// The numbers of one round, by arm.
pub type Round = [Vec<f64>; 3];

/// Where the arms keep their files while their processes come and go.
#[derive(Debug)]
pub struct Place {
    workspace: Workspace,
    product: Product,
    sealed: PathBuf,
}

/// The processes of one start.
#[derive(Debug)]
pub struct Arms([Waiting; 3]);

/// A process that answers each line with a line of numbers, until its input ends.
#[derive(Debug)]
struct Waiting {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Place {
    /// Directories for each arm, the protected one with the profile of PostgreSQL.
    ///
    /// # Errors
    /// When the command is not built, or fails.
    pub fn new(name: &str) -> Result<Self> {
        let product = Product::find()?;
        let workspace = Workspace::new(name)?;
        let sealed = workspace.protect(&product, "postgres")?;
        Ok(Self { workspace, product, sealed })
    }

    /// Where programs are compiled to.
    #[must_use]
    pub fn programs(&self) -> PathBuf {
        self.workspace.programs()
    }

    /// Starts the program in each arm; it takes the directory.
    ///
    /// # Errors
    /// When one cannot be started.
    pub fn start(&self, program: &Path) -> Result<Arms> {
        let arm = |product, dir: &Path| {
            let command = self.workspace.waiting(product, program, dir);
            Waiting::start(command)
        };
        Ok(Arms([
            arm(None, &self.workspace.plain())?,
            arm(None, &self.workspace.other_plain())?,
            arm(Some(&self.product), &self.sealed)?,
        ]))
    }
}

impl Arms {
    /// Gives one order to each arm; what they answered.
    ///
    /// # Errors
    /// When one ends, or answers with something else than numbers.
    pub fn round(&mut self, order: &str, draw: &mut Rng) -> Result<Round> {
        let mut turns = [0, 1, 2];
        draw.shuffle(&mut turns);
        let mut round = Round::default();
        for arm in turns {
            round[arm] = self.0[arm].ask(order)?;
        }
        Ok(round)
    }
}

impl Waiting {
    fn start(mut command: Command) -> Result<Self> {
        let call = format!("{command:?}");
        let failed = |source| Error::Io { what: format!("starting {call}"), source };
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let orders = child.stdin.take();
        let answers = child.stdout.take().expect("it was asked for");
        Ok(Self { child, orders, answers: BufReader::new(answers) })
    }

    fn ask(&mut self, order: &str) -> Result<Vec<f64>> {
        let failed = |source| Error::Io { what: format!("the order {order:?}"), source };
        let orders = self.orders.as_mut().expect("open until it is dropped");
        orders.write_all(format!("{order}\n").as_bytes()).map_err(failed)?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer).map_err(failed)?;
        let numbers: Option<Vec<f64>> =
            answer.split_whitespace().map(|word| word.parse().ok()).collect();
        if let Some(numbers) = numbers.filter(|numbers| !numbers.is_empty()) {
            return Ok(numbers);
        }
        self.orders = None;
        let status = self.child.wait().map_err(failed)?.to_string();
        Err(Error::Command { call: order.to_owned(), status, said: answer })
    }
}

impl Drop for Waiting {
    /// Its input ends, and so does it.
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.child.wait();
    }
}

/// A new file that keeps what was measured.
///
/// # Errors
/// It is there already, or cannot be made.
pub fn rows_in(path: &Path) -> Result<File> {
    File::create_new(path)
        .map_err(|source| Error::Io { what: format!("making {}", path.display()), source })
}

/// What was measured: for each name, for each start, the rounds.
#[derive(Debug, Default)]
pub struct Samples<'r> {
    found: BTreeMap<String, Vec<Vec<Round>>>,
    rows: Option<&'r File>,
}

impl<'r> Samples<'r> {
    /// Nothing yet. Each round becomes a line of JSON in `rows`: its name, the start, and the
    /// numbers of each arm.
    #[must_use]
    pub fn kept_in(rows: Option<&'r File>) -> Self {
        Self { found: BTreeMap::new(), rows }
    }

    /// One more round of this start, counted from 0.
    ///
    /// # Errors
    /// The line cannot be written.
    pub fn add(&mut self, name: &str, start: usize, round: Round) -> Result<()> {
        if let Some(mut rows) = self.rows {
            let mut line = serde_json::json!({ "name": name, "start": start });
            for (arm, numbers) in ARMS.iter().zip(&round) {
                line[*arm] = numbers.clone().into();
            }
            writeln!(rows, "{line}")
                .map_err(|source| Error::Io { what: "keeping a row".into(), source })?;
        }
        let starts = self.found.entry(name.to_owned()).or_default();
        starts.resize_with(starts.len().max(start + 1), Vec::new);
        starts[start].push(round);
        Ok(())
    }

    /// The median of `value` in each start's rounds, and over the starts their mean with its 95 %
    /// interval; not a number where nothing was measured.
    #[must_use]
    pub fn over(&self, name: &str, value: impl Fn(&Round) -> f64) -> Interval {
        let starts = self.found.get(name).map_or(&[][..], Vec::as_slice);
        let each = starts.iter().filter_map(|rounds| {
            let values: Vec<f64> = rounds.iter().map(&value).collect();
            median(&values)
        });
        mean(&each.collect::<Vec<f64>>())
    }
}

/// The mean with its 95 % interval, of values that are independent; the ends are infinite where
/// there is one value.
#[must_use]
pub fn mean(values: &[f64]) -> Interval {
    match Estimate::of(values, None) {
        // The estimate is one of logarithms; these are none.
        Some(found) => {
            let ratio = found.interval(0.95);
            Interval { low: ratio.low.ln(), mid: ratio.mid.ln(), high: ratio.high.ln() }
        }
        None => Interval {
            low: f64::NEG_INFINITY,
            mid: values.first().copied().unwrap_or(f64::NAN),
            high: f64::INFINITY,
        },
    }
}

/// What sealed has more than the mean of both plain arms, in the number at `index`.
#[must_use]
pub fn more(round: &Round, index: usize) -> f64 {
    round[2][index] - base(round, index)
}

/// The mean of both plain arms.
#[must_use]
pub fn base(round: &Round, index: usize) -> f64 {
    f64::midpoint(round[0][index], round[1][index])
}

/// An interval of differences, with its sign.
#[must_use]
pub fn signed(found: &Interval) -> String {
    format!("{:+.3} [{:+.3}, {:+.3}]", found.mid, found.low, found.high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_counts_once_however_many_rounds_it_has() {
        let mut samples = Samples::default();
        for (start, sealed) in [(0, 2.0), (1, 4.0), (1, 4.0), (1, 4.0), (1, 900.0)] {
            samples.add("read", start, [vec![1.0], vec![1.0], vec![sealed]]).unwrap();
        }
        let found = samples.over("read", |round| more(round, 0));
        assert!((found.mid - 2.0).abs() < 1e-9, "{found}");
        // Two values, 1 and 3: Student's t of one degree of freedom.
        assert!((found.high - (2.0 + 12.706)).abs() < 1e-2, "{found}");
        assert!(samples.over("write", |round| more(round, 0)).mid.is_nan());
    }

    #[test]
    fn differences_below_zero_keep_their_sign() {
        let found = mean(&[-0.5, -0.25, -0.75]);
        assert!((found.mid + 0.5).abs() < 1e-9 && found.low < -0.5, "{found}");
        assert!(signed(&found).starts_with("-0.500 [-1.1"), "{}", signed(&found));
    }
}

//! Lines of the results that are no trials, and what they were of as far as that can be read.
//!
//! The lab leaves such a line where it was killed, and measures its block again. Any other line was
//! damaged later.

use serde::Deserialize;

use crate::trial::{Cell, Phase, Trial};

/// A line that is no trial: torn, or damaged later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// Its number, from 1.
    pub line: usize,
    /// Why it cannot be read.
    pub why: String,
    /// The beginning of the trial that it was, where that can be read.
    of: Option<Beginning>,
    /// Whether it was measured again: `resume` does that with what was lost.
    mended: bool,
}

/// How a trial begins.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Beginning {
    experiment: String,
    cell: Cell,
    phase: Phase,
    /// Where that can be read too.
    block: Option<u32>,
}

impl Damaged {
    /// A line of which nothing can be read.
    #[cfg(test)]
    pub(crate) fn at(line: usize) -> Self {
        Self { line, why: "torn".into(), of: None, mended: false }
    }

    /// Whether a trial of this cell may be lost with it.
    pub(crate) fn may_be_of(&self, (experiment, cell, phase): (&str, &Cell, Phase)) -> bool {
        let is_here =
            |of: &Beginning| of.experiment == experiment && of.cell == *cell && of.phase == phase;
        !self.mended && self.of.as_ref().is_none_or(is_here)
    }
}

/// The trials of a file, and its lines that cannot be read as such.
pub(super) fn read(bytes: &[u8]) -> (Vec<Trial>, Vec<Damaged>) {
    let (mut trials, mut damaged) = (Vec::<Trial>::new(), Vec::new());
    let mut last = 0;
    for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        match serde_json::from_slice::<Trial>(line) {
            Ok(trial) => {
                last = trial.sitting.max(last);
                trials.push(trial);
            }
            Err(why) => {
                let of = beginning(&String::from_utf8_lossy(line));
                let one = Damaged { line: number + 1, why: why.to_string(), of, mended: false };
                damaged.push((one, last, trials.len()));
            }
        }
    }
    let all = damaged.into_iter().map(|(one, sitting, at)| {
        let later = trials.iter().skip(at);
        let mended = match &one.of {
            Some(Beginning { experiment, cell, phase, block: Some(block) }) => {
                later.filter(|it| it.sitting > sitting).any(|it| {
                    (&it.experiment, &it.cell, it.phase, it.block)
                        == (experiment, cell, *phase, *block)
                })
            }
            // Where a sitting was killed while it wrote.
            _ => later.take(1).any(|it| it.sitting > sitting),
        };
        Damaged { mended, ..one }
    });
    let all = all.collect();
    (trials, all)
}

fn beginning(line: &str) -> Option<Beginning> {
    let ends = [",\"order\"", ",\"block\""];
    let mut heads = ends.iter().filter_map(|end| line.split_once(end));
    heads.find_map(|(head, _)| serde_json::from_str(&format!("{head}}}")).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::Synthetic;

    fn lines(sittings: [u32; 2]) -> (Cell, [String; 2]) {
        let mut run = Synthetic::new(2);
        run.arm("plain", "w", 1.0);
        for (trial, sitting) in run.trials.iter_mut().zip(sittings) {
            trial.sitting = sitting;
        }
        let line = |at: usize| serde_json::to_string(&run.trials[at]).unwrap();
        (run.trials[0].cell.clone(), [line(0), line(1)])
    }

    #[test]
    fn a_line_that_ends_early_is_of_its_cell_or_of_any() {
        let (cell, [whole, _]) = lines([0, 0]);
        let other = Cell([("workload".to_owned(), "x".to_owned())].into());
        let at = whole.find("\"started\"").unwrap();
        for (line, of_other) in [(&whole[..at], false), (&whole[..30], true), ("{nonsense", true)] {
            let (trials, damaged) = read(format!("{whole}\n\n{line}\n").as_bytes());
            assert_eq!((trials.len(), damaged.len(), damaged[0].line), (1, 1, 3));
            let of = |cell, phase| damaged[0].may_be_of(("synthetic", cell, phase));
            assert!(of(&cell, Phase::Capacity), "{line}");
            assert_eq!(of(&other, Phase::Capacity), of_other, "{line}");
            assert_eq!(of(&cell, Phase::EqualWork), of_other, "{line}");
        }
    }

    #[test]
    fn what_resume_measured_again_is_not_lost_and_what_it_did_not_is() {
        for (later, again, lost) in [(0, true, true), (1, true, false), (1, false, true)] {
            let (cell, [first, mut second]) = lines([0, later]);
            if again {
                // Of the same block.
                second = second.replace("\"block\":1", "\"block\":0");
            }
            let text = format!("{first}\n{}\n{second}\n", &first[..first.len() - 9]);
            let (_, damaged) = read(text.as_bytes());
            let of = damaged[0].may_be_of(("synthetic", &cell, Phase::Capacity));
            assert_eq!(of, lost, "{damaged:?}");
        }
    }

    #[test]
    fn a_line_of_which_nothing_can_be_read_is_lost_but_where_a_sitting_was_killed() {
        let (cell, [first, second]) = lines([0, 1]);
        let lost = |text: String| {
            let (_, damaged) = read(text.as_bytes());
            damaged[0].may_be_of(("synthetic", &cell, Phase::Capacity))
        };
        assert!(!lost(format!("{first}\n{{\"exp\n{second}\n")));
        assert!(lost(format!("{{\"exp\n{first}\n{second}\n")));
        assert!(lost(format!("{first}\n{second}\n{{\"exp\n{second}\n")));
    }
}

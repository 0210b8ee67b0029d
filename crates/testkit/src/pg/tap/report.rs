//! The output of one test file in the Test Anything Protocol, version 12, and how two of them
//! differ.

use std::collections::BTreeMap;

/// What one test file said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Its tests, in their order.
    pub tests: Vec<Test>,
    /// Why it did not run at all (`1..0 # SKIP why`).
    pub skipped: Option<String>,
    /// Why it gave up (`Bail out!  why`).
    pub gave_up: Option<String>,
    /// Its exit code, if no signal ended it.
    pub code: Option<i32>,
    /// Its own log, for whoever looks into a difference.
    pub log: String,
}

/// One line `ok 3 - name` or `not ok 3 - name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    /// What it checks; empty if it has no name.
    pub name: String,
    /// Whether it holds.
    pub outcome: Outcome,
}

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// `ok`.
    Passed,
    /// `not ok`.
    Failed,
    /// `ok # skip`: not tried here.
    Skipped,
    /// `not ok # TODO`: known to PostgreSQL's own people.
    Known,
}

/// A test whose outcome is not the same in both arms.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// The name of the test; of a file that ended otherwise, [`END`].
    pub name: String,
    /// What it was plain and sealed.
    pub what: String,
}

/// Stands for the end of the file.
pub const END: &str = "(end of the file)";

impl Report {
    /// Reads what a file printed, and how it ended.
    #[must_use]
    pub fn read(printed: &str, code: Option<i32>) -> Self {
        let mut report = Self { code, ..Self::default() };
        for line in printed.lines() {
            if let Some(why) = line.strip_prefix("Bail out!") {
                report.gave_up = Some(why.trim().to_owned());
            } else if let Some((_, why)) = line.split_once("1..0 # SKIP") {
                report.skipped = Some(why.trim().to_owned());
            } else if let Some(test) = Test::read(line) {
                report.tests.push(test);
            }
        }
        report
    }

    /// Lets PLACE stand for a path that differs from run to run.
    pub fn forget(&mut self, place: &str) {
        for test in &mut self.tests {
            test.name = test.name.replace(place, "PLACE");
        }
    }

    /// How many tests ended so.
    #[must_use]
    pub fn count(&self, outcome: Outcome) -> usize {
        self.tests.iter().filter(|test| test.outcome == outcome).count()
    }

    /// Whether a comparison with it says something: it ran to its end, or says why it does not run.
    #[must_use]
    pub fn is_baseline(&self) -> bool {
        let ran = self.count(Outcome::Passed) > 0 && self.gave_up.is_none();
        self.skipped.is_some() || ran && self.code.is_some()
    }

    /// For a line of progress.
    #[must_use]
    pub fn told(&self) -> String {
        format!(
            "{} ok, {} not ok, {} skipped, {}",
            self.count(Outcome::Passed),
            self.count(Outcome::Failed) + self.count(Outcome::Known),
            self.count(Outcome::Skipped),
            self.end(),
        )
    }

    /// The tests that ended otherwise in `sealed`, and whether the file did. Tests of one name
    /// are compared in their order.
    #[must_use]
    pub fn differences(&self, sealed: &Self) -> Vec<Difference> {
        let (plain, other) = (self.by_name(), sealed.by_name());
        let mut found = Vec::new();
        let names = plain.keys().chain(other.keys().filter(|name| !plain.contains_key(*name)));
        for name in names {
            let (ours, theirs) = (plain.get(name), other.get(name));
            if ours != theirs {
                let what = format!("plain {}, sealed {}", told(ours), told(theirs));
                found.push(Difference { name: (*name).to_owned(), what });
            }
        }
        let ends = |report: &Self| (report.code, report.skipped.clone(), report.gave_up.is_some());
        if ends(self) != ends(sealed) {
            let what = format!("plain {}, sealed {}", self.end(), sealed.end());
            found.push(Difference { name: END.to_owned(), what });
        }
        found
    }

    fn by_name(&self) -> BTreeMap<&str, Vec<Outcome>> {
        let mut all: BTreeMap<&str, Vec<Outcome>> = BTreeMap::new();
        for test in &self.tests {
            all.entry(&test.name).or_default().push(test.outcome);
        }
        all
    }

    fn end(&self) -> String {
        let code = self.code.map_or_else(|| "a signal".to_owned(), |code| format!("code {code}"));
        match (&self.gave_up, &self.skipped) {
            (Some(why), _) => format!("{code}, gave up: {why}"),
            (None, Some(why)) => format!("{code}, skipped: {why}"),
            (None, None) => code,
        }
    }
}

impl Test {
    /// Subtests are indented, and so not counted: their sum is a test of its own.
    fn read(line: &str) -> Option<Self> {
        let (passed, rest) = match line.strip_prefix("not ok ") {
            Some(rest) => (false, rest),
            None => (true, line.strip_prefix("ok ")?),
        };
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 {
            return None;
        }
        let rest = rest.get(digits..)?.trim();
        let rest = rest.strip_prefix("- ").unwrap_or(rest);
        let (name, directive) = match rest.split_once("# ") {
            Some((name, word)) if is_directive(word) => (name, word.to_ascii_lowercase()),
            _ => (rest, String::new()),
        };
        let outcome = match (passed, directive.get(..4)) {
            (_, Some("skip")) => Outcome::Skipped,
            (false, Some("todo")) => Outcome::Known,
            (true, _) => Outcome::Passed,
            (false, _) => Outcome::Failed,
        };
        Some(Self { name: without_answer(name.trim()), outcome })
    }
}

fn is_directive(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    word.starts_with("skip") || word.starts_with("todo")
}

/// Some names tell what was found as well: `... status (got 3 vs expected 0)`, `have walsender pid
/// 4711`.
fn without_answer(name: &str) -> String {
    let name = without_chance(name);
    let Some((before, after)) = name.split_once("(got ") else { return name };
    match after.split_once(" vs ") {
        Some((_, expected)) => format!("{before}({expected}"),
        None => name,
    }
}

/// N for a number or a time that is another one in each run, behind one of these words.
fn without_chance(name: &str) -> String {
    if let Some((before, after)) = name.split_once(" valid value (")
        && let Some((_time, after)) = after.split_once(')')
    {
        return format!("{before} valid value (N){after}");
    }
    let counted = name.starts_with("transaction count for ").then_some(" (");
    BY_CHANCE.into_iter().chain(counted).fold(name.to_owned(), |name, word| {
        let Some((before, after)) = name.split_once(word) else { return name };
        match after.trim_start_matches(|it: char| it.is_ascii_digit()) {
            rest if rest.len() == after.len() => name,
            rest => format!("{before}{word}N{rest}"),
        }
    })
}

/// Processes, random seeds, and pgbench's log files, which are named by processes.
const BY_CHANCE: [&str; 5] =
    [" pid ", " seeded with ", " random seed to ", "_pgbench_log_2.", "_pgbench_log_3."];

fn told(outcomes: Option<&Vec<Outcome>>) -> String {
    let Some(outcomes) = outcomes else { return "did not run".to_owned() };
    let word = |outcome: &Outcome| match outcome {
        Outcome::Passed => "ok",
        Outcome::Failed => "not ok",
        Outcome::Skipped => "skipped",
        Outcome::Known => "todo",
    };
    outcomes.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &str = "# a comment\nok 1 - first\nok 2 - same\n    ok 1 - inner\nnot ok 3 - same\n\
                         ok 4 # skip no lz4\nnot ok 5 - later # TODO some day\nok 6 - # 3 of 4\n1..6\n";

    #[test]
    fn every_kind_of_line_is_read() {
        let report = Report::read(PLAIN, Some(1));
        let outcomes: Vec<_> = report.tests.iter().map(|test| test.outcome).collect();
        use Outcome::{Failed, Known, Passed, Skipped};
        assert_eq!(outcomes, [Passed, Passed, Failed, Skipped, Known, Passed]);
        assert_eq!(report.tests[5].name, "# 3 of 4");
        let coded = Report::read("ok 1 - status (got 3 vs expected 0)\n", Some(0));
        assert_eq!(coded.tests[0].name, "status (expected 0)");
        let process = Report::read("ok 1 - have walsender pid 21181\n", Some(0));
        assert_eq!(process.tests[0].name, "have walsender pid N");
        for (read, name) in [
            (
                "random seeded with 99 stderr /setting random seed to 99\\b/",
                "random seeded with N stderr /setting random seed to N\\b/",
            ),
            (
                "transaction count for DIR/001_pgbench_log_2.4711 (57)",
                "transaction count for DIR/001_pgbench_log_2.N (N)",
            ),
            ("gives valid value (08:41:17.2+00) after it", "gives valid value (N) after it"),
            ("pid of (2 rows)", "pid of (2 rows)"),
        ] {
            assert_eq!(Report::read(&format!("ok 1 - {read}\n"), Some(0)).tests[0].name, name);
        }
        let skipped = Report::read("1..0 # SKIP no servers\n", Some(0));
        assert_eq!(skipped.skipped.as_deref(), Some("no servers"));
        let ended = Report::read("ok 1 - a\nBail out!  pg_ctl start failed\n", Some(255));
        assert_eq!(ended.gave_up.as_deref(), Some("pg_ctl start failed"));
    }

    #[test]
    fn a_test_that_fails_or_is_missing_or_is_skipped_is_a_difference() {
        let plain = Report::read("ok 1 - a\nok 2 - a\nok 3 - b\n", Some(0));
        assert!(plain.differences(&plain.clone()).is_empty());
        for (sealed, code, name, what) in [
            ("ok 1 - a\nnot ok 2 - a\nok 3 - b\n", 0, "a", "plain ok ok, sealed ok not ok"),
            ("ok 1 - a\nok 2 - a\n", 0, "b", "plain ok, sealed did not run"),
            ("ok 1 - a\nok 2 - a\nok 3 # skip\n", 0, "b", "plain ok, sealed did not run"),
            ("ok 1 - a\nok 2 - a\nok 3 - b\n", 29, END, "plain code 0, sealed code 29"),
        ] {
            let found = plain.differences(&Report::read(sealed, Some(code)));
            let expected = Difference { name: name.to_owned(), what: what.to_owned() };
            assert!(found.contains(&expected), "{sealed:?}: {found:?}");
        }
    }
}

//! Scripts in pgbench's language, as far as the lab's workloads use it: `\set`, integers, `+ - *
//! /`, `random(LOW, HIGH)`, `:variable` in SQL.
//!
//! pgbench cannot be held back for a slice and go on with the same connections, so slices are
//! driven by the lab itself (`pace`). What this subset does not have is refused with its line.

use std::collections::BTreeMap;

use crate::experiment::{Pgbench, Script as Kind};

/// One transaction as a list of steps.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Script(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Set(String, Term),
    /// One statement, without its semicolon.
    Sql(String),
}

#[derive(Clone, Debug, PartialEq)]
enum Term {
    Number(i64),
    Variable(String),
    Random(Box<(Term, Term)>),
    Of(char, Box<(Term, Term)>),
}

impl Script {
    /// The script of a workload.
    ///
    /// # Errors
    /// What of it is not in the subset.
    pub(crate) fn of(work: &Pgbench) -> Result<Self, String> {
        Self::parse(match work.script {
            Kind::SelectOnly => SELECT_ONLY,
            Kind::TpcbLike => TPCB_LIKE,
            Kind::Custom => work.custom.as_deref().unwrap_or_default(),
        })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let (mut steps, mut sql) = (Vec::new(), String::new());
        for line in text.lines() {
            if let Some(rest) = line.trim_start().strip_prefix('\\') {
                if !sql.trim().is_empty() {
                    return Err(format!("`{line}` stands within a statement"));
                }
                let mut words = rest.trim().splitn(3, char::is_whitespace);
                match (words.next(), words.next(), words.next()) {
                    (Some("set"), Some(name), Some(term)) => {
                        steps.push(Step::Set(name.into(), Parser::whole(term)?));
                    }
                    _ => return Err(format!("`{line}` is not \\set NAME EXPRESSION")),
                }
                continue;
            }
            let (mut quote, mut rest) = (None, line);
            if sql.contains("$$") || line.contains("$$") {
                return Err("dollar quotes are not understood".into());
            }
            let mut from = 0;
            for (at, c) in line.char_indices() {
                match quote {
                    Some(open) if c == open => quote = None,
                    Some(_) => {}
                    None if c == '\'' || c == '"' => quote = Some(c),
                    None if c == ';' => {
                        sql += &line[from..at];
                        steps.push(Step::Sql(sql.trim().into()));
                        sql.clear();
                        from = at + 1;
                        rest = &line[from..];
                    }
                    None => {}
                }
            }
            if quote.is_some() {
                return Err(format!("a quote is open at the end of `{line}`"));
            }
            sql += rest;
            sql.push('\n');
        }
        if !sql.trim().is_empty() {
            steps.push(Step::Sql(sql.trim().into()));
        }
        match steps.iter().any(|step| matches!(step, Step::Sql(_))) {
            true => Ok(Self(steps)),
            false => Err("it has no statement".into()),
        }
    }

    /// The statements of one transaction, with numbers drawn from `random`.
    ///
    /// # Errors
    /// A variable that nothing set, a division by 0, an empty range, an overflow.
    pub(crate) fn statements(
        &self,
        scale: i64,
        random: &mut fastrand::Rng,
    ) -> Result<Vec<String>, String> {
        let mut set = BTreeMap::from([("scale".to_owned(), scale)]);
        let mut statements = Vec::new();
        for step in &self.0 {
            match step {
                Step::Set(name, term) => {
                    let value = term.value(&set, random)?;
                    set.insert(name.clone(), value);
                }
                Step::Sql(text) => statements.push(substituted(text, &set)),
            }
        }
        Ok(statements)
    }
}

impl Term {
    fn value(
        &self,
        set: &BTreeMap<String, i64>,
        random: &mut fastrand::Rng,
    ) -> Result<i64, String> {
        let found = match self {
            Self::Number(number) => Some(*number),
            Self::Variable(name) => {
                return set.get(name).copied().ok_or_else(|| format!("nothing set `:{name}`"));
            }
            Self::Random(ends) => {
                let (low, high) = (ends.0.value(set, random)?, ends.1.value(set, random)?);
                (low <= high).then(|| random.i64(low..=high))
            }
            Self::Of(sign, both) => {
                let (a, b) = (both.0.value(set, random)?, both.1.value(set, random)?);
                match sign {
                    '+' => a.checked_add(b),
                    '-' => a.checked_sub(b),
                    '*' => a.checked_mul(b),
                    _ => a.checked_div(b),
                }
            }
        };
        found.ok_or_else(|| format!("{self:?} has no value"))
    }
}

/// `:name` becomes its value where it is set; `::type` and times stay.
fn substituted(sql: &str, set: &BTreeMap<String, i64>) -> String {
    let (mut text, mut rest, mut before) = (String::new(), sql, ' ');
    while let Some(at) = rest.find(':') {
        text += &rest[..at];
        before = rest[..at].chars().next_back().unwrap_or(before);
        let after = &rest[at + 1..];
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let name = &after[..after.find(|c| !is_name(c)).unwrap_or(after.len())];
        match set.get(name).filter(|_| before != ':') {
            Some(value) => {
                text += &value.to_string();
                rest = &after[name.len()..];
            }
            None => {
                text.push(':');
                rest = after;
            }
        }
        before = ':';
    }
    text + rest
}

/// Reads an expression: sums of products of atoms.
struct Parser<'t>(&'t str);

impl Parser<'_> {
    fn whole(text: &str) -> Result<Term, String> {
        let mut parser = Parser(text.trim());
        let term = parser.level(&['+', '-']);
        match term {
            Some(term) if parser.0.trim().is_empty() => Ok(term),
            _ => Err(format!("`{text}` is not understood")),
        }
    }

    fn level(&mut self, signs: &[char; 2]) -> Option<Term> {
        let below = |parser: &mut Self| match signs {
            ['+', _] => parser.level(&['*', '/']),
            _ => parser.atom(),
        };
        let mut term = below(self)?;
        while let Some(sign) = self.peek().filter(|c| signs.contains(c)) {
            self.take(sign)?;
            term = Term::Of(sign, Box::new((term, below(self)?)));
        }
        Some(term)
    }

    fn atom(&mut self) -> Option<Term> {
        match self.peek()? {
            '-' => {
                self.take('-')?;
                Some(Term::Of('-', Box::new((Term::Number(0), self.atom()?))))
            }
            ':' => {
                self.take(':')?;
                Some(Term::Variable(self.word()?))
            }
            '(' => {
                self.take('(')?;
                let term = self.level(&['+', '-'])?;
                self.take(')')?;
                Some(term)
            }
            c if c.is_ascii_digit() => Some(Term::Number(self.word()?.parse().ok()?)),
            _ => {
                if self.word()? != "random" {
                    return None;
                }
                self.take('(')?;
                let low = self.level(&['+', '-'])?;
                self.take(',')?;
                let high = self.level(&['+', '-'])?;
                self.take(')')?;
                Some(Term::Random(Box::new((low, high))))
            }
        }
    }

    fn peek(&mut self) -> Option<char> {
        self.0 = self.0.trim_start();
        self.0.chars().next()
    }

    fn take(&mut self, sign: char) -> Option<()> {
        self.peek()?;
        self.0 = self.0.strip_prefix(sign)?;
        Some(())
    }

    fn word(&mut self) -> Option<String> {
        self.peek()?;
        let ends = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
        let (word, rest) = self.0.split_at(self.0.find(ends).unwrap_or(self.0.len()));
        self.0 = rest;
        (!word.is_empty()).then(|| word.into())
    }
}

/// pgbench's built-in script `select-only`.
const SELECT_ONLY: &str = "\
\\set aid random(1, 100000 * :scale)
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
";

/// pgbench's built-in script `tpcb-like`.
const TPCB_LIKE: &str = "\
\\set aid random(1, 100000 * :scale)
\\set bid random(1, 1 * :scale)
\\set tid random(1, 10 * :scale)
\\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime)
    VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);
END;
";

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Result<Vec<String>, String> {
        let mut random = fastrand::Rng::with_seed(1);
        Script::parse(text)?.statements(3, &mut random)
    }

    #[test]
    fn expressions_bind_as_in_arithmetic() {
        let text =
            "\\set a 2 + 3 * -(4 - 1)\n\\set b :a / 2 + random(5, 5) * :scale\nSELECT :a, :b";
        assert_eq!(said(text).unwrap(), ["SELECT -7, 12"]);
    }

    #[test]
    fn names_that_nothing_set_and_casts_stay_as_pgbench_leaves_them() {
        let text = "SELECT ':', '12:30'::time, :none, x::scale, :scale;";
        assert_eq!(said(text).unwrap(), ["SELECT ':', '12:30'::time, :none, x::scale, 3"]);
    }

    #[test]
    fn statements_end_at_semicolons_outside_of_quotes() {
        let text = "SET a = 1; SELECT ';'\n  FROM t;\nEND";
        assert_eq!(said(text).unwrap(), ["SET a = 1", "SELECT ';'\n  FROM t", "END"]);
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for (text, why) in [
            ("\\sleep 1 s\nSELECT 1", "\\sleep 1 s"),
            ("\\set a random_zipfian(1, 2, 3)\nSELECT 1", "random_zipfian"),
            ("DO $$ BEGIN END $$;", "dollar"),
            ("\\set a 1", "no statement"),
            ("SELECT 'a\nb'", "quote is open"),
            ("\\set a 1 / 0\nSELECT 1", "has no value"),
            ("\\set a :b\nSELECT 1", "nothing set `:b`"),
            ("\\set a random(2, 1)\nSELECT 1", "has no value"),
        ] {
            let told = said(text).unwrap_err();
            assert!(told.contains(why), "{text}: {told}");
        }
    }

    #[test]
    fn every_pgbench_workload_of_the_catalogue_is_understood() {
        let mut scripts = 0;
        for name in crate::catalogue::names() {
            let experiment = crate::catalogue::find(name, crate::experiment::Size::Small).unwrap();
            for work in experiment.workload.values() {
                if let crate::experiment::Work::Pgbench(work) = work {
                    Script::of(work).unwrap();
                    scripts += 1;
                }
            }
        }
        assert!(scripts > 5, "{scripts}");
    }

    #[test]
    fn the_same_seed_draws_the_same_transaction() {
        let script = Script::parse(TPCB_LIKE).unwrap();
        let drawn = |seed| script.statements(9, &mut fastrand::Rng::with_seed(seed)).unwrap();
        assert_eq!(drawn(4), drawn(4));
        assert_ne!(drawn(4), drawn(5));
        assert_eq!(drawn(4).len(), 7);
        assert!(drawn(4).iter().all(|sql| !sql.contains(':')), "{:?}", drawn(4));
    }
}

//! The list of what is known to differ, `tap/differences.toml`: each with its reason.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use tidelock_servers::{Error, Result};

use super::report::{Difference, END};

/// The kept list.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// Tests that cannot agree.
    #[serde(default)]
    difference: Vec<Explained>,
    /// Files that the tests themselves put into a data directory.
    #[serde(default)]
    dropped_in: Vec<DroppedIn>,
    /// Files that are not run.
    #[serde(default)]
    left_out: Vec<LeftOut>,
}

/// Files that are not compared.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    /// Each, or how several begin.
    pub files: Vec<String>,
    /// Why.
    pub reason: String,
}

/// Tests of one file that differ for one reason.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Explained {
    /// `src/bin/initdb/t/001_initdb.pl`.
    pub file: String,
    /// Their names.
    pub tests: Vec<String>,
    /// The file ends there: what follows does not run.
    #[serde(default)]
    pub and_what_follows: bool,
    /// Why they differ, in a sentence or two.
    pub reason: String,
}

/// An operator who puts plain files there says so to `tidelock init --plain`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DroppedIn {
    /// As above.
    pub file: String,
    /// Globs for `tidelock init --plain`.
    pub plain: Vec<String>,
    /// Who puts them there.
    pub reason: String,
}

impl Known {
    /// Reads the list of the repository.
    ///
    /// # Errors
    /// When it is not there or cannot be read as one.
    pub fn read() -> Result<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tap/differences.toml");
        let what = || format!("reading {}", path.display());
        let text = fs::read_to_string(&path).map_err(Error::io(what()))?;
        toml::from_str(&text).map_err(|why| Error::Unexpected(format!("{}: {why}", what())))
    }

    /// The globs that `file` needs.
    #[must_use]
    pub fn plain(&self, file: &str) -> &[String] {
        self.dropped_in.iter().find(|it| it.file == file).map_or(&[], |it| &it.plain)
    }

    /// The explained differences.
    #[must_use]
    pub fn explained(&self) -> &[Explained] {
        &self.difference
    }

    /// What files drop in.
    #[must_use]
    pub fn dropped_in(&self) -> &[DroppedIn] {
        &self.dropped_in
    }

    /// What is not compared.
    #[must_use]
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Whether `file` is compared.
    #[must_use]
    pub fn compares(&self, file: &str) -> bool {
        !self.left_out.iter().flat_map(|it| &it.files).any(|start| file.starts_with(start))
    }

    /// Differences of `file` that the list does not explain, and names in the list that did not
    /// differ.
    #[must_use]
    pub fn judge(&self, file: &str, found: &[Difference]) -> Judgement {
        let of_file = || self.difference.iter().filter(|it| it.file == file);
        let listed: BTreeSet<&str> =
            of_file().flat_map(|it| &it.tests).map(String::as_str).collect();
        let open_end = of_file().any(|it| it.and_what_follows);
        let differ: BTreeSet<&str> = found.iter().map(|it| it.name.as_str()).collect();
        let ran = |it: &Difference| !it.what.ends_with("sealed did not run");
        let unexplained = found.iter().filter(|it| match it.name.as_str() {
            // The exit code counts the tests that failed.
            END => listed.is_empty(),
            name => !listed.contains(name) && (ran(it) || !open_end),
        });
        Judgement {
            unexplained: unexplained.cloned().collect(),
            mended: listed.difference(&differ).map(|name| (*name).to_owned()).collect(),
        }
    }
}

/// What the list and a run disagree about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Differences without a reason.
    pub unexplained: Vec<Difference>,
    /// Listed tests that do not differ.
    pub mended: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(name: &str, what: &str) -> Difference {
        Difference { name: name.into(), what: what.into() }
    }

    #[test]
    fn only_listed_tests_may_differ_and_listed_tests_must() {
        let known: Known = toml::from_str(
            "[[difference]]\nfile = 'a.pl'\ntests = ['x', 'y']\nreason = 'r'\n\
             [[difference]]\nfile = 'b.pl'\ntests = ['x']\nand_what_follows = true\nreason = 'r'\n",
        )
        .unwrap();
        let failed = |name| difference(name, "plain ok, sealed not ok");
        let missing = |name| difference(name, "plain ok, sealed did not run");
        assert_eq!(known.judge("a.pl", &[failed("x"), failed("y")]), Judgement::default());
        let judged = known.judge("a.pl", &[failed("x"), missing("z")]);
        assert_eq!(judged.unexplained, [missing("z")]);
        assert_eq!(judged.mended, ["y"]);
        assert_eq!(known.judge("b.pl", &[failed("x"), missing("z")]), Judgement::default());
        assert_eq!(known.judge("b.pl", &[failed("x"), failed("z")]).unexplained, [failed("z")]);
        assert_eq!(known.judge("c.pl", &[failed("x")]).unexplained, [failed("x")]);
        let ended = difference(END, "plain code 0, sealed code 1");
        assert_eq!(known.judge("a.pl", &[failed("x"), failed("y"), ended.clone()]).unexplained, []);
        assert_eq!(known.judge("c.pl", std::slice::from_ref(&ended)).unexplained, [ended]);
    }
}

//! MariaDB's own tests (Debian's package mariadb-test), with the library and without it.
//!
//! ```text
//!   mysql-test-run.pl --> var/install.db, var/mysqld.N/data   sealed: the servers' directories
//!         |               var/tmp/*, var/log, var/std_data    plain: what the tests' scripts write
//!         +-- mariadb-test --> mariadbd, mariadb-backup ...   all below one `tidelock exec`
//! ```
//!
//! A test passes or does not: compared is which do. Native asynchronous I/O is on in both arms, by
//! io_uring without the library and by libaio with it; the runner expects the server's words on
//! that.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use serde::Deserialize;
use tidelock_servers::{Arm, Error, Result, Workspace, ensure};

/// Where Debian has them.
const TESTS: &str = "/usr/share/mysql/mysql-test";
/// A run of one suite in one arm takes no longer, on a machine that does many other things.
const LIMIT: u64 = 7200;
/// Names below `var` that the tests' own scripts write and read.
const SCRIPTS_OWN: [&str; 16] = [
    "var/*",
    "var/log/**",
    "var/tmp/*",
    "var/run/**",
    "var/std_data/**",
    "var/zoneinfo/**",
    // As the profile says of those at the top of a directory.
    "**/tc.log",
    "**/*.pid",
    "**/mysql_upgrade_info",
    "**/grastate.dat",
    "**/gvwstate.dat*",
    "**/xtrabackup_ist",
    "**/mariabackup.*.log",
    "**/tables_flushed",
    "**/sst_error",
    "**/*sst_in_progress",
];
/// In both arms. rsync, the default, copies what it finds; both nodes' directories have one keyring
/// here, so its copies would say nothing of machines with keys of their own.
const BY_BACKUP: [&str; 2] =
    ["--mysqld=--wsrep_sst_method=mariabackup", "--mysqld=--wsrep_sst_auth=root:"];
/// Programs that work on the servers' files within the tests.
const LISTED: [&str; 3] = ["mariadb-test", "mariadb", "perl"];
/// In both arms. The runner's helper sets a hard limit of 1024 descriptors, and has an option for
/// another one that the runner does not give it for servers. The runner takes the helper's command
/// from this variable, and adds the helper's path that it finds itself behind it.
const DESCRIPTORS: &str = "-Mstrict; BEGIN { @My::SafeProcess::safe_process_cmd = (\
    '/usr/share/mysql/mysql-test/lib/My/SafeProcess/my_safe_process', \
    '--open-files-limit=8192') }";
/// In so many more tests of a suite may another try be needed with the library than without it.
/// Waits of the tests run out on a busy machine, in either arm, so a few differ by chance.
const MORE_RETRIES: usize = 3;

/// A suite, and which of its tests run: the first, and every so many after it, by name.
#[derive(Clone, Copy, Debug)]
pub struct Suite {
    /// Its name for mysql-test-run.pl.
    pub name: &'static str,
    /// 1 for all of them.
    pub every: usize,
}

/// How a test ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It passed at once.
    Passed,
    /// It failed, and passed when it was tried again.
    Retried,
    /// It failed, and failed when it was tried again.
    Failed,
    /// It does not run here.
    Skipped,
}

/// As the lists have them; `none` is a test of the other run alone.
const WORDS: [(Outcome, &str); 4] = [
    (Outcome::Passed, "pass"),
    (Outcome::Retried, "retry"),
    (Outcome::Failed, "fail"),
    (Outcome::Skipped, "skip"),
];

impl Outcome {
    /// Whether it passed, perhaps when it was tried again.
    #[must_use]
    pub fn passed(self) -> bool {
        matches!(self, Self::Passed | Self::Retried)
    }

    /// What two tries came to.
    fn and(self, next: Self) -> Self {
        match (self, next) {
            (Self::Passed, Self::Passed | Self::Skipped) | (Self::Skipped, Self::Passed) => {
                Self::Passed
            }
            (Self::Passed | Self::Retried, _) | (_, Self::Passed | Self::Retried) => Self::Retried,
            (_, next) => next,
        }
    }
}

/// What each test of a run came to, with its combination: `innodb.alter 'innodb,4k'`.
pub type Outcomes = BTreeMap<String, Outcome>;

/// Whether Debian's package is here.
#[must_use]
pub fn is_installed() -> bool {
    Path::new(TESTS).join("mysql-test-run.pl").is_file()
}

impl Suite {
    /// The tests that are run, by their names in the suite.
    ///
    /// # Errors
    /// When the suite is not there.
    pub fn tests(self) -> Result<Vec<String>> {
        let dir = match self.name {
            "main" => Path::new(TESTS).join("main"),
            name => Path::new(TESTS).join("suite").join(name),
        };
        // Most suites have their tests and results apart.
        let dir = [dir.join("t"), dir].into_iter().find(|it| it.is_dir()).unwrap_or_default();
        let entries =
            fs::read_dir(&dir).map_err(Error::io(format!("listing {}", dir.display())))?;
        let name = |path: PathBuf| {
            let is_test = path.extension().is_some_and(|it| it == "test");
            is_test.then(|| path.file_stem().unwrap_or_default().to_string_lossy().into_owned())
        };
        let mut names: Vec<String> =
            entries.flatten().filter_map(|entry| name(entry.path())).collect();
        names.sort_unstable();
        Ok(names.into_iter().step_by(self.every).map(|it| format!("{}.{it}", self.name)).collect())
    }
}

/// Runs these tests of MariaDB's in an arm; `name` is that of the run.
///
/// # Errors
/// When they do not run to the end.
pub fn run(name: &str, arm: Arm, tests: &[String]) -> Result<Outcomes> {
    let place = Workspace::new()?;
    let dir = place.make_dir("p")?;
    let mut tool = place.tool("perl").args([DESCRIPTORS, "mysql-test-run.pl"]);
    if arm == Arm::Sealed {
        let key = format!("file:{}", place.join("home/p.key").display());
        let init = place.tool(place.programs()?.command).arg("init").arg(&dir);
        let init = init.args(["--profile", "mariadb", "--no-recovery", "--provider", &*key]);
        let init = SCRIPTS_OWN.iter().fold(init, |it, glob| it.args(["--plain", *glob]));
        LISTED.iter().fold(init, |it, name| it.args(["--program", *name])).run()?;
        tool = tool.under(arm, &dir);
    }
    let suites: BTreeSet<&str> = tests.iter().filter_map(|it| it.split('.').next()).collect();
    let suites: Vec<&str> = suites.into_iter().collect();
    if suites.contains(&"galera") {
        tool = tool.args(BY_BACKUP);
    }
    let output = tool
        .within(Path::new(TESTS))
        .arg(format!("--vardir={}", dir.join("var").display()))
        .args(["--force", "--max-test-fail=0", "--retry=2"])
        .arg(format!("--suite={}", suites.join(",")))
        .args(tests)
        .limit(LIMIT)
        .attempt()?;
    if let Some(logs) = env::var_os("TIDELOCK_MTR_LOGS") {
        keep(&place, &dir.join("var/log"), &Path::new(&logs).join(format!("{name}.{arm}")))?;
    }
    let found = read(&output.stdout);
    let ended = output.stdout.contains("\nCompleted: ");
    ensure(ended && !found.is_empty(), || format!("{name} {arm}: {}", output.text()))?;
    let sealed = count_sealed(&dir)?;
    // A server's directory has more of them; one that lost its library has none.
    let fits = if arm == Arm::Sealed { sealed > 20 } else { sealed == 0 };
    ensure(fits, || format!("{name} {arm}: {sealed} sealed files"))?;
    Ok(found)
}

/// Files that begin with the header of a sealed one.
fn count_sealed(dir: &Path) -> Result<usize> {
    let reading = |path: &Path| Error::io(format!("reading {}", path.display()));
    let (mut count, mut waiting) = (0, vec![dir.to_path_buf()]);
    while let Some(next) = waiting.pop() {
        for entry in fs::read_dir(&next).map_err(reading(&next))? {
            let path = entry.map_err(reading(&next))?.path();
            let kind = path.symlink_metadata().map_err(reading(&path))?.file_type();
            if kind.is_dir() {
                waiting.push(path);
            } else if kind.is_file() {
                let mut first = [0; 5];
                let file = fs::File::open(&path).map_err(reading(&path))?;
                let got = file.read_at(&mut first, 0).map_err(reading(&path))?;
                count += usize::from(first[..got] == *b"\x89TDLK");
            }
        }
    }
    Ok(count)
}

/// Copies what mysql-test-run.pl wrote.
fn keep(place: &Workspace, log: &Path, to: &Path) -> Result<()> {
    let making = || Error::io(format!("making {}", to.display()));
    fs::create_dir_all(to).map_err(making())?;
    place.tool("cp").as_ourselves().args(["-r", "-T"]).arg(log).arg(to).run().map(drop)
}

/// What both arms came to, for `mtr/lists`: one line for each test.
#[must_use]
pub fn list(plain: &Outcomes, sealed: &Outcomes) -> String {
    let names: BTreeSet<&String> = plain.keys().chain(sealed.keys()).collect();
    let word = |all: &Outcomes, name: &str| {
        let outcome = all.get(name);
        outcome
            .and_then(|of| WORDS.iter().find(|(it, _)| it == of))
            .map_or("none", |(_, word)| word)
    };
    names.into_iter().fold(String::new(), |mut text, name| {
        let _ = writeln!(text, "{} {} {name}", word(plain, name), word(sealed, name));
        text
    })
}

/// What a kept list has of the plain run, and of the sealed one.
#[must_use]
pub fn runs_of(kept: &str) -> (Outcomes, Outcomes) {
    let outcome = |word| WORDS.iter().find(|(_, it)| *it == word).map(|(outcome, _)| *outcome);
    let (mut plain, mut sealed) = (Outcomes::new(), Outcomes::new());
    for line in kept.lines() {
        let mut words = line.splitn(3, ' ');
        let (without, with) = (words.next().and_then(outcome), words.next().and_then(outcome));
        let name = words.next().unwrap_or_default();
        plain.extend(without.map(|outcome| (name.to_owned(), outcome)));
        sealed.extend(with.map(|outcome| (name.to_owned(), outcome)));
    }
    (plain, sealed)
}

/// Tests of a kept list that passed in both arms, and now do not pass without the library either:
/// what is compared shows less than it did.
#[must_use]
pub fn no_longer_shown(kept: &str, plain: &Outcomes) -> Vec<String> {
    let (before, sealed) = runs_of(kept);
    let passed = |all: &Outcomes, name: &String| all.get(name).is_some_and(|it| it.passed());
    let lost = before
        .keys()
        .filter(|name| passed(&before, name) && passed(&sealed, name) && !passed(plain, name));
    lost.map(|name| format!("{name}: plain {:?}, and passed in the list", plain.get(name)))
        .collect()
}

/// Tests that passed in both arms, in one of them only when they were tried again.
#[must_use]
pub fn retried_in_one(plain: &Outcomes, sealed: &Outcomes) -> Vec<String> {
    let of = |name: &String| Some((*plain.get(name)?, *sealed.get(name)?));
    let differ = plain.keys().filter_map(|name| {
        let (without, with) = of(name)?;
        let differ = without != with && without.passed() && with.passed();
        differ.then(|| format!("{name}: plain {without:?}, sealed {with:?}"))
    });
    differ.collect()
}

/// Says so if clearly more tests needed another try with the library than without it. One that did
/// may be chance, and is only named ([`retried_in_one`]).
#[must_use]
pub fn too_unsteady(plain: &Outcomes, sealed: &Outcomes) -> Option<String> {
    let count = |all: &Outcomes| all.values().filter(|it| **it == Outcome::Retried).count();
    let (without, with) = (count(plain), count(sealed));
    (with > without + MORE_RETRIES).then(|| {
        format!("passed only when tried again: {without} tests plain, {with} tests sealed")
    })
}

/// The lines `maria.alter 'combination' w1 [ pass ]   347`.
fn read(printed: &str) -> Outcomes {
    let mut all = Outcomes::new();
    for line in printed.lines() {
        let Some((name, rest)) = line.split_once(" [ ") else { continue };
        let Some((word, _)) = rest.split_once(" ]") else { continue };
        let outcome = match word {
            "pass" => Outcome::Passed,
            "retry-pass" => Outcome::Retried,
            "fail" | "retry-fail" => Outcome::Failed,
            "skipped" | "disabled" => Outcome::Skipped,
            _ => continue,
        };
        let name = name.trim_end();
        let name = match name.rsplit_once(' ') {
            Some((before, worker)) if is_worker(worker) => before.trim_end(),
            _ => name,
        };
        let known = all.get(name).copied();
        all.insert(name.to_owned(), known.map_or(outcome, |before| before.and(outcome)));
    }
    all
}

fn is_worker(word: &str) -> bool {
    let number = word.strip_prefix('w').unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// `mtr/differences.toml`: what is known to differ, each with its reason.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    #[serde(default)]
    difference: Vec<Explained>,
    #[serde(default)]
    left_out: Vec<Explained>,
}

/// Tests, and one reason for all of them.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Explained {
    tests: Vec<String>,
    #[expect(dead_code, reason = "for whoever reads the list")]
    reason: String,
}

impl Known {
    /// Reads the list of the repository.
    ///
    /// # Errors
    /// When it is not there or cannot be read as one.
    pub fn read() -> Result<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("mtr/differences.toml");
        let what = || format!("reading {}", path.display());
        let text = fs::read_to_string(&path).map_err(Error::io(what()))?;
        toml::from_str(&text).map_err(|why| Error::Unexpected(format!("{}: {why}", what())))
    }

    /// Whether a test is run at all.
    #[must_use]
    pub fn runs(&self, test: &str) -> bool {
        !self.left_out.iter().flat_map(|it| &it.tests).any(|it| it == test)
    }

    /// What the list does not explain: tests that pass in one arm only, and listed ones that pass
    /// in both.
    #[must_use]
    pub fn judge(&self, plain: &Outcomes, sealed: &Outcomes) -> Vec<String> {
        let listed = |name: &str| {
            let test = name.split(' ').next().unwrap_or_default();
            let mut all = self.difference.iter().flat_map(|it| &it.tests);
            all.any(|it| it == name || it == test)
        };
        let names = plain.keys().chain(sealed.keys().filter(|name| !plain.contains_key(*name)));
        let passed = |all: &Outcomes, name: &String| all.get(name).is_some_and(|it| it.passed());
        let wrong = names.filter_map(|name| {
            let (without, with) = (passed(plain, name), passed(sealed, name));
            match (without == with, listed(name)) {
                (false, false) => Some(format!(
                    "{name}: plain {:?}, sealed {:?}",
                    plain.get(name),
                    sealed.get(name)
                )),
                (true, true) if with => Some(format!("{name}: listed, and passes in both")),
                _ => None,
            }
        });
        wrong.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "worker[01] Using MTR_BUILD_THREAD 300\n\
        maria.alter                              [ pass ]    347\n\
        innodb.a 'innodb,4k'                w2 [ fail ]\n        Test ended at 2026\n\
        innodb.a 'innodb,4k'                w2 [ retry-pass ]   12\n\
        main.b                                   [ skipped ]  Need debug [ x ]\n\
        main.c                                   [ disabled ]  later\n\
        main.d                                   [ fail ]\n\
        main.d                                   [ retry-fail ]\n";

    #[test]
    fn each_line_of_a_test_is_read_and_another_try_shows() {
        let found = read(PRINTED);
        let all: Vec<_> = found.iter().map(|(name, outcome)| (name.as_str(), *outcome)).collect();
        use Outcome::{Failed, Passed, Retried, Skipped};
        assert_eq!(
            all,
            [
                ("innodb.a 'innodb,4k'", Retried),
                ("main.b", Skipped),
                ("main.c", Skipped),
                ("main.d", Failed),
                ("maria.alter", Passed),
            ]
        );
    }

    #[test]
    fn only_listed_tests_may_differ_and_listed_tests_must() {
        let known: Known = toml::from_str(
            "[[difference]]\ntests = ['main.x']\nreason = 'r'\n\
             [[left_out]]\ntests = ['main.z']\nreason = 'r'\n",
        )
        .unwrap();
        let run = |lines: &[(&str, Outcome)]| -> Outcomes {
            lines.iter().map(|(name, outcome)| ((*name).to_owned(), *outcome)).collect()
        };
        use Outcome::{Failed, Passed, Skipped};
        let plain = run(&[("main.x 'c'", Passed), ("main.y", Passed)]);
        assert!(
            known.judge(&plain, &run(&[("main.x 'c'", Failed), ("main.y", Passed)])).is_empty()
        );
        assert_eq!(
            known.judge(&plain, &run(&[("main.x 'c'", Passed), ("main.y", Passed)])).len(),
            1
        );
        assert_eq!(known.judge(&plain, &run(&[("main.x 'c'", Failed)])).len(), 1);
        let skipped = run(&[("main.y", Skipped)]);
        assert!(known.judge(&skipped, &run(&[("main.y", Failed)])).is_empty());
        assert!(!known.runs("main.z") && known.runs("main.y"));
        let retried = run(&[("main.x 'c'", Failed), ("main.y", Outcome::Retried)]);
        assert!(known.judge(&plain, &retried).is_empty());
    }

    #[test]
    fn tests_that_pass_when_tried_again_are_named_and_too_many_of_them_fail() {
        use Outcome::{Failed, Passed, Retried};
        let run = |outcomes: &[Outcome]| -> Outcomes {
            let names = (0..).map(|number| format!("main.{number}"));
            names.zip(outcomes.iter().copied()).collect()
        };
        let plain = run(&[Passed, Retried, Passed, Passed, Passed, Retried]);
        assert!(retried_in_one(&plain, &plain).is_empty());
        let sealed = run(&[Retried, Passed, Failed, Retried, Retried, Retried]);
        assert_eq!(
            retried_in_one(&plain, &sealed),
            [
                "main.0: plain Passed, sealed Retried",
                "main.1: plain Retried, sealed Passed",
                "main.3: plain Passed, sealed Retried",
                "main.4: plain Passed, sealed Retried",
            ]
        );
        // Two, and three more than that.
        assert_eq!(too_unsteady(&plain, &run(&[Retried; 5])), None);
        let why = too_unsteady(&plain, &run(&[Retried; 6]));
        assert!(why.is_some_and(|why| why.contains("2 tests plain, 6 tests sealed")));
        assert_eq!(too_unsteady(&run(&[Retried; 6]), &plain), None);
    }

    #[test]
    fn a_list_says_which_tests_passed_only_when_tried_again() {
        use Outcome::{Failed, Passed, Retried};
        let run = |outcome| Outcomes::from([("main.a 'row'".to_owned(), outcome)]);
        for (plain, sealed, line, both) in [
            (Passed, Passed, "pass pass main.a 'row'\n", true),
            (Passed, Retried, "pass retry main.a 'row'\n", true),
            (Retried, Passed, "retry pass main.a 'row'\n", true),
            (Retried, Failed, "retry fail main.a 'row'\n", false),
        ] {
            assert_eq!(list(&run(plain), &run(sealed)), line);
            assert_eq!(runs_of(line), (run(plain), run(sealed)));
            assert!(no_longer_shown(line, &run(Retried)).is_empty());
            assert_eq!(no_longer_shown(line, &run(Failed)).len(), usize::from(both));
        }
    }

    #[test]
    fn a_test_that_passed_in_the_list_and_fails_in_both_arms_now_is_told() {
        let kept = "pass pass main.a\npass pass main.b 'row'\nfail fail main.c\n\
                    skip skip main.d\npass fail main.e\npass pass main.f\n";
        use Outcome::{Failed, Passed, Skipped};
        let now = [("main.a", Passed), ("main.b 'row'", Failed), ("main.c", Failed)];
        let now = now.into_iter().chain([("main.f", Skipped)]);
        let now: Outcomes = now.map(|(name, outcome)| (name.to_owned(), outcome)).collect();
        let lost = no_longer_shown(kept, &now);
        assert_eq!(lost.len(), 2, "{lost:?}");
        assert!(lost[0].starts_with("main.b 'row': plain Some(Failed)"), "{lost:?}");
        assert!(lost[1].starts_with("main.f: plain Some(Skipped)"), "{lost:?}");
        let without = no_longer_shown("pass pass main.g\n", &now);
        assert!(without[0].starts_with("main.g: plain None"), "{without:?}");
    }
}

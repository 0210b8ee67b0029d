//! MariaDB's own tests: the same pass with the library as without it, except those that
//! `mtr/differences.toml` lists with a reason.
//!
//! `TIDELOCK_MTR_EVERY=N` runs every N-th of each selection only.

use std::env;

use tidelock_testkit::maria::suite::{Known, Outcome, Outcomes, Suite, is_installed};
use tidelock_testkit::pg::{Arm, Result, ensure, skip};

/// Runs a suite in both arms.
fn sealed_equals_plain(suite: Suite) -> Result<()> {
    if !is_installed() {
        skip::missing("mariadb-test");
        return Ok(());
    }
    let known = Known::read()?;
    let every = env::var("TIDELOCK_MTR_EVERY").ok().and_then(|it| it.parse().ok()).unwrap_or(1);
    let tests = suite.tests()?.into_iter().filter(|test| known.runs(test));
    let tests: Vec<String> = tests.step_by(every).collect();
    let plain = suite.run(Arm::Plain, &tests)?;
    println!("{}: {} tests; plain {}", suite.name, tests.len(), told(&plain));
    let sealed = suite.run(Arm::Sealed, &tests)?;
    println!("{}: sealed {}", suite.name, told(&sealed));
    let passed = count(&plain, Outcome::Passed);
    ensure(passed > 2 * count(&plain, Outcome::Failed), || "the plain run is no baseline".into())?;
    let wrong = known.judge(&plain, &sealed);
    ensure(wrong.is_empty(), || wrong.join("\n"))
}

fn count(all: &Outcomes, wanted: Outcome) -> usize {
    all.values().filter(|it| **it == wanted).count()
}

fn told(all: &Outcomes) -> String {
    let [passed, failed, skipped] =
        [Outcome::Passed, Outcome::Failed, Outcome::Skipped].map(|it| count(all, it));
    format!("{passed} passed, {failed} failed, {skipped} skipped")
}

macro_rules! suites {
    ($($name:ident: $every:literal),+ $(,)?) => {
        $(
            #[test]
            #[ignore = "long: make test-full"]
            fn $name() -> Result<()> {
                sealed_equals_plain(Suite { name: stringify!($name), every: $every })
            }
        )+
    };
}

// All of Aria and of the backups; of the others a part, by name, so that both arms together take
// less than two hours on two cores.
suites! {
    main: 10,
    innodb: 10,
    maria: 1,
    binlog: 4,
    rpl: 20,
    mariabackup: 3,
    galera: 40,
}

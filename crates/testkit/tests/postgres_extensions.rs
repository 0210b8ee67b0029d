//! The suites of extensions say the same on a sealed server as on a plain one, and what they store
//! is sealed: docs/extensions.md.
//!
//! Set `TIDELOCK_EVIDENCE=DIR` to keep the lists of both runs there.

use std::path::Path;
use std::{env, fs};

use tidelock_testkit::pg::extensions::{EXTENSIONS, Extension, Tried, row};
use tidelock_testkit::pg::{Arm, Error, Result, ensure};

fn sealed_equals_plain(name: &str) -> Result<()> {
    let extension = EXTENSIONS.iter().find(|it| it.name == name).expect("it is listed");
    if !extension.is_here() {
        return Ok(());
    }
    let [plain, sealed] = [in_time(extension, Arm::Plain)?, in_time(extension, Arm::Sealed)?];
    let differ = plain.outcome.differs(&sealed.outcome);
    ensure(differ.is_empty(), || format!("{name}: {differ:?}"))?;
    // A suite that fails on the plain server proves little.
    let (passed, failed) = (plain.outcome.passed.len(), plain.outcome.failed.len());
    ensure(failed * 4 <= passed, || format!("no baseline: {:?}", plain.outcome.failed))?;
    row(extension, &plain, &sealed)
}

/// A test that waits for another process is given time again.
fn in_time(extension: &Extension, arm: Arm) -> Result<Tried> {
    let mut tried = extension.try_on(arm)?;
    for _ in 0..2 {
        if !tried.ran_out_of_time() {
            break;
        }
        tried = extension.try_on(arm)?;
    }
    keep(extension, arm, &tried)?;
    Ok(tried)
}

fn keep(extension: &Extension, arm: Arm, tried: &Tried) -> Result<()> {
    let Some(dir) = env::var_os("TIDELOCK_EVIDENCE") else { return Ok(()) };
    let mut text = tried.outcome.list();
    for (test, printed) in &tried.outcome.printed {
        text += &format!("\n==== {test}\n{printed}");
    }
    let path = Path::new(&dir).join(format!("{}-{arm}.txt", extension.name));
    fs::write(&path, text).map_err(Error::io(format!("writing {}", path.display())))
}

macro_rules! suites {
    ($($name:ident),+) => {
        $(
            #[test]
            #[ignore = "long: make test-full"]
            fn $name() -> Result<()> {
                sealed_equals_plain(stringify!($name))
            }
        )+

        #[test]
        fn each_extension_has_its_test() {
            let listed: Vec<&str> = EXTENSIONS.iter().map(|it| it.name).collect();
            assert_eq!(listed, [$(stringify!($name)),+]);
        }
    };
}

suites!(
    postgis,
    timescaledb,
    vector,
    pg_partman,
    pg_cron,
    pglogical,
    pg_repack,
    pgaudit,
    rum,
    wal2json
);

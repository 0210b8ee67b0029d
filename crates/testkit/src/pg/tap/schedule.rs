//! Some files run PostgreSQL's SQL suite by pg_regress, and say of it only whether all of it
//! passed. What each of its tests said stands in the file's log.

use super::report::{Outcome, Test};

/// The tests of the SQL suite in a log, in their order. A run of the suite in the plain arm may
/// fail as a whole, since the source may be older than the server: these tell where.
#[must_use]
pub fn tests(log: &str) -> Vec<Test> {
    log.lines().filter_map(test).collect()
}

/// `     copy            ... FAILED      391 ms`, alone in its group `test copy  ... ok  391 ms`.
fn test(line: &str) -> Option<Test> {
    let (name, said) = line.split_once(" ... ")?;
    let said = said.trim().strip_suffix(" ms")?;
    let (word, milliseconds) = said.split_once(' ')?;
    let outcome = match word {
        "ok" => Outcome::Passed,
        "FAILED" => Outcome::Failed,
        // `failed (ignored)`: the schedule expects it here and there.
        _ => Outcome::Known,
    };
    let measured = milliseconds.trim_start_matches("(ignored)").trim();
    let name = name.trim();
    let name = name.strip_prefix("test ").unwrap_or(name).trim();
    let is_one = !name.contains(' ') && measured.bytes().all(|byte| byte.is_ascii_digit());
    is_one.then(|| Test { name: format!("pg_regress: {name}"), outcome })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_of_the_suite_is_found_and_nothing_else() {
        let log = "parallel group (2 tests):  copyselect copy\n\
                   \x20    copy                         ... FAILED      391 ms\n\
                   \x20    copyselect                   ... ok          250 ms\n\
                   test tablespace                   ... ok         1037 ms\n\
                   test random                       ... failed (ignored)   12 ms\n\
                   waiting for server to start ... done\n\
                   [08:07:55.410](0.000s) ok 7 - took ... ok 5 ms\n";
        let found: Vec<(String, Outcome)> =
            tests(log).into_iter().map(|test| (test.name, test.outcome)).collect();
        let expected = [
            ("copy", Outcome::Failed),
            ("copyselect", Outcome::Passed),
            ("tablespace", Outcome::Passed),
            ("random", Outcome::Known),
        ];
        let expected = expected.map(|(name, outcome)| (format!("pg_regress: {name}"), outcome));
        assert_eq!(found, expected);
    }
}

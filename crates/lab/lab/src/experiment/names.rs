//! Names that an experiment and its arms may have: they stand in paths, reports and commands.

use super::Experiment;
use super::read::is_known;

/// An experiment's name, as it is typed and printed.
pub(super) fn check_experiment(name: &str) -> Result<(), String> {
    check(name, char::is_ascii_alphanumeric, "letters")
        .map_err(|why| format!("experiment `{name}`: {why}"))
}

/// A server's directory has the name of its arm, `NAME-2` for the second one, beside directories
/// and files of other names.
pub(super) fn check_arm(experiment: &Experiment, name: &str) -> Result<(), String> {
    let is_small = |letter: &char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    check(name, is_small, "small letters").map_err(|why| format!("arm `{name}`: {why}"))?;
    let begins = BEGINNINGS.iter().any(|beginning| name.starts_with(beginning));
    if TAKEN.contains(&name) || begins {
        return Err(format!("arm `{name}` has the name of a directory of the lab's own"));
    }
    let number =
        |suffix: &str| suffix.parse().ok().filter(|it| (2..=experiment.stop.servers).contains(it));
    let further = name.rsplit_once('-').filter(|(_, suffix)| number(suffix).is_some());
    match further.filter(|(first, _)| is_known(experiment, first)) {
        Some((first, suffix)) => {
            Err(format!("arm `{name}` has the name of server {suffix} of `{first}`"))
        }
        None => Ok(()),
    }
}

fn check(name: &str, is_first: impl Fn(&char) -> bool, letters: &str) -> Result<(), String> {
    let is_next = |letter: char| is_first(&letter) || ['-', '_'].contains(&letter);
    if !name.starts_with(|letter| is_first(&letter)) || !name.chars().all(is_next) {
        return Err(format!(
            "a name has {letters}, digits, `-` and `_`, and begins with a letter or a digit"
        ));
    }
    match name.len() > LONGEST {
        true => Err(format!("a name has at most {LONGEST} letters")),
        false => Ok(()),
    }
}

/// Letters of a name: the path of a socket, which has 107 at most, has one within it.
const LONGEST: usize = 40;

/// What lies beside the directories of servers: homes, programs, files of the batch engine.
const TAKEN: [&str; 4] = ["home", "root", "shelf", "market"];

/// How names begin that are made there: sockets of servers, pipes of sysbench, copies of MySQL,
/// volumes and mounts.
const BEGINNINGS: [&str; 4] = ["s-", "p-", "own-", "tidelock-lab-"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{experiment, own_arm};

    /// Names the second of two arms so, in an experiment with so many servers of each.
    fn checked(name: &str, servers: u32, other: &str) -> Result<(), String> {
        let mut experiment = experiment(&["plain"]);
        experiment.stop.servers = servers;
        experiment.own_arms = vec![own_arm(other), own_arm(name)];
        check_arm(&experiment, name)
    }

    #[test]
    fn an_arm_has_a_name_that_a_directory_can_have_beside_others() {
        let longest = "a".repeat(LONGEST);
        for name in ["fork", "pg-tde", "a_2", "17", "fork-2", "homes", "far-schema", &longest] {
            checked(name, 1, "peer").unwrap();
        }
        for name in ["", "../up", "/tmp", "a/b", ".", "a.log", "Fork", "a b", "-D", "_a", "\u{e9}"]
        {
            let why = checked(name, 1, "peer").unwrap_err();
            assert!(why.contains(&format!("arm `{name}`: a name has small letters")), "{why}");
        }
        let why = checked(&"a".repeat(300), 1, "peer").unwrap_err();
        assert!(why.contains("at most 40 letters"), "{why}");
        for name in ["home", "shelf", "root", "market", "s-x", "p-x", "own-x", "tidelock-lab-7-7-x"]
        {
            assert!(checked(name, 1, "peer").unwrap_err().contains("of the lab's own"), "{name}");
        }
        for (name, servers) in [("sealed-2", 2), ("fork-2", 2), ("fork-4", 4)] {
            let why = checked(name, servers, "fork").unwrap_err();
            assert!(why.contains("has the name of server"), "{why}");
        }
        for name in ["peer-2", "fork-3"] {
            checked(name, 2, "fork").unwrap();
        }
    }

    #[test]
    fn an_experiment_s_name_is_no_path() {
        for name in ["quick", "Mine_2", "17"] {
            check_experiment(name).unwrap();
        }
        for name in ["", "../../etc", "a b", ".", "-x", "a\nb"] {
            let why = check_experiment(name).unwrap_err();
            assert!(why.contains("a name has letters"), "{why}");
        }
        assert!(check_experiment(&"a".repeat(41)).unwrap_err().contains("at most 40"));
    }
}

//! Changes the policy of a directory that exists: globs of the owner, listed programs, or the rules
//! of a newer profile.
//!
//! Knows policies, not files: whether a file contradicts the new policy is for the command to find
//! out.

use tidelock_contract::{Action, Glob, Origin, Policy, Rule};

use super::compile::{glob, put_in};
use super::{Profile, ProfileError};

/// What is to be another in a policy.
#[derive(Clone, Default, Debug)]
pub struct Amendment {
    /// The rules of this profile take the place of those that came from one. Its programs do not:
    /// who gets keys is for the owner to say.
    pub profile: Option<Profile>,
    /// More globs of the owner.
    pub plain: Vec<String>,
    /// Globs of the owner that are so no more.
    pub not_plain: Vec<String>,
    /// More listed programs.
    pub programs: Vec<String>,
    /// Programs that are listed no more.
    pub not_programs: Vec<String>,
}

impl Amendment {
    /// The policy with the changes.
    ///
    /// # Errors
    /// A glob or program to be taken out that is not there; what a new profile can be refused for.
    pub fn apply(&self, policy: &Policy) -> Result<Policy, ProfileError> {
        for pattern in &self.plain {
            glob(pattern)?;
        }
        let mut plain: Vec<String> = owners(policy).map(|rule| rule.glob.to_string()).collect();
        take_out(&mut plain, &self.not_plain, "glob of the owner")?;
        put_in(&mut plain, &self.plain);
        let mut programs = policy.programs().to_vec();
        take_out(&mut programs, &self.not_programs, "listed program")?;
        if let Some(program) = self.not_programs.iter().find(|it| policy.recovery().contains(it)) {
            return Err(ProfileError::Needed { program: program.clone() });
        }
        put_in(&mut programs, &self.programs);
        let name = self.profile.as_ref().map_or(policy.profile(), |profile| &profile.name);
        if name != policy.profile() {
            return Err(ProfileError::OtherProfile {
                from: policy.profile().to_owned(),
                to: name.to_owned(),
            });
        }
        if let Some(profile) = &self.profile {
            let mut profile = Profile { programs: Vec::new(), ..profile.clone() };
            profile.plain.retain(|it| !plain.contains(it) && !self.not_plain.contains(it));
            return profile.compile(&plain, &programs);
        }
        let mut rules: Vec<Rule> =
            policy.rules().iter().filter(|rule| rule.origin == Origin::Profile).cloned().collect();
        let last = rules.pop();
        for pattern in &plain {
            let glob = Glob::new(pattern.as_bytes()).map_err(|why| {
                tidelock_contract::PolicyError::Glob { glob: pattern.clone(), why }
            })?;
            let action = Action::Plain("named plain by the owner".to_owned());
            rules.push(Rule { glob, action, origin: Origin::Owner });
        }
        rules.extend(last);
        let recovery = policy.recovery().to_vec();
        let tablespace = policy.tablespace().cloned();
        let amended = Policy::new(name.to_owned(), programs, recovery, tablespace, rules)?;
        if let Ok(builtin) = Profile::builtin(name) {
            builtin.check_renames(&amended)?;
        }
        Ok(amended)
    }

    /// Programs of the newer profile that `new`, which this made, does not list: to be named to the
    /// owner. Not those that are taken out in the same change.
    #[must_use]
    pub fn left_out(&self, new: &Policy) -> Vec<&str> {
        let programs = self.profile.iter().flat_map(|profile| &profile.programs);
        let is_left =
            |it: &&String| !new.programs().contains(it) && !self.not_programs.contains(it);
        programs.filter(is_left).map(String::as_str).collect()
    }

    /// The rules of a newer profile by which `new`, which this made, may keep files plain that
    /// `old` seals. More rather than fewer: by the order of the rules, not by what their globs
    /// cover. Not the globs that are named in the same change.
    #[must_use]
    pub fn unseals(&self, old: &Policy, new: &Policy) -> Vec<String> {
        let mut found = Vec::new();
        if self.profile.is_none() {
            return found;
        }
        for (at, rule) in new.rules().iter().enumerate().filter(|(_, rule)| is_plain(rule)) {
            let glob = rule.glob.to_string();
            if !self.plain.contains(&glob) && !was_plain(rule, &new.rules()[..at], old) {
                found.push(glob);
            }
        }
        // What lies outside by the old one belongs to no directory then.
        if let Some(tablespace) = old.tablespace().filter(|_| old.tablespace() != new.tablespace())
        {
            found.push(format!("tablespaces {}", tablespace.component));
        }
        found
    }
}

/// True if all that `rule` keeps plain, behind the rules `before` it, is plain by `old` too: that
/// has the rule, and nothing is sealed before it that would come to it now.
fn was_plain(rule: &Rule, before: &[Rule], old: &Policy) -> bool {
    let is_it = |it: &Rule| is_plain(it) && it.glob == rule.glob;
    let Some(place) = old.rules().iter().position(is_it) else { return false };
    let mut sealed = old.rules().iter().take(place).filter(|it| !is_plain(it));
    sealed.all(|it| before.iter().any(|other| other.glob == it.glob))
}

fn is_plain(rule: &Rule) -> bool {
    matches!(rule.action, Action::Plain(_))
}

/// True if the two differ in more than in globs that the owner has added and in listed programs: a
/// running server may then write by the rules that it knows, and be wrong.
#[must_use]
pub fn needs_a_stop(old: &Policy, new: &Policy) -> bool {
    let profile = |policy: &Policy| -> Vec<Rule> {
        policy.rules().iter().filter(|rule| rule.origin == Origin::Profile).cloned().collect()
    };
    let dropped = owners(old).any(|rule| owners(new).all(|other| other.glob != rule.glob));
    dropped || profile(old) != profile(new) || old.tablespace() != new.tablespace()
}

fn owners(policy: &Policy) -> impl Iterator<Item = &Rule> {
    policy.rules().iter().filter(|rule| rule.origin == Origin::Owner)
}

/// Each as often as it is there: policies that were made earlier may have one twice.
fn take_out(
    list: &mut Vec<String>,
    old: &[String],
    what: &'static str,
) -> Result<(), ProfileError> {
    for one in old {
        let before = list.len();
        list.retain(|have| have != one);
        if list.len() == before {
            return Err(ProfileError::NotThere { what, name: one.clone() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(of: &[&str]) -> Vec<String> {
        of.iter().map(|one| (*one).to_owned()).collect()
    }

    fn postgres(plain: &[&str]) -> Policy {
        Profile::builtin("postgres").unwrap().compile(&strings(plain), &[]).unwrap()
    }

    #[test]
    fn globs_and_programs_come_and_go() {
        let old = postgres(&["a", "b"]);
        let change = Amendment {
            plain: strings(&["c", "b"]),
            not_plain: strings(&["a"]),
            programs: strings(&["/usr/bin/x"]),
            ..Amendment::default()
        };
        let new = change.apply(&old).unwrap();
        assert_eq!((new.kind(b"a").is_some(), new.kind(b"c")), (true, None));
        assert!(new.lists(b"/usr/bin/x") && new.lists(b"/any/psql"));
        assert!(needs_a_stop(&old, &new), "a glob is gone");
        let back = Amendment {
            plain: strings(&["a"]),
            not_plain: strings(&["c"]),
            not_programs: strings(&["/usr/bin/x"]),
            ..Amendment::default()
        };
        assert_eq!(back.apply(&new).unwrap(), postgres(&["b", "a"]));
        assert!(!needs_a_stop(&postgres(&["b"]), &postgres(&["b", "a"])));
    }

    #[test]
    fn a_program_or_glob_that_a_policy_has_twice_is_taken_out_at_once() {
        let once = Profile::builtin("generic").unwrap().compile(&strings(&["a"]), &[]).unwrap();
        let mut rules = once.rules().to_vec();
        rules.insert(0, rules[0].clone());
        let programs = strings(&["cat", "cat"]);
        let twice = Policy::new("generic".to_owned(), programs, Vec::new(), None, rules).unwrap();
        let change = Amendment {
            not_plain: strings(&["a"]),
            not_programs: strings(&["cat"]),
            ..Amendment::default()
        };
        let new = change.apply(&twice).unwrap();
        assert!(!new.lists(b"/usr/bin/cat") && new.kind(b"a").is_some());
    }

    #[test]
    fn pages_stay_sealed_whatever_the_owner_says() {
        let all = Amendment { plain: strings(&["**"]), ..Amendment::default() };
        // backup_manifest and its like have one class before and after a rename.
        let new = all.apply(&postgres(&[])).unwrap();
        assert!(new.kind(b"base/1/1259").is_some() && new.kind(b"global/pg_control").is_some());
    }

    #[test]
    fn what_is_not_there_or_needed_is_not_taken_out() {
        let old = postgres(&["a"]);
        let without = |programs: &[&str], plain: &[&str]| Amendment {
            not_programs: strings(programs),
            not_plain: strings(plain),
            ..Amendment::default()
        };
        let refused = |change: Amendment| change.apply(&old).unwrap_err();
        assert!(matches!(refused(without(&["nobody"], &[])), ProfileError::NotThere { .. }));
        assert!(matches!(refused(without(&[], &["b"])), ProfileError::NotThere { .. }));
        assert!(matches!(refused(without(&["postgres"], &[])), ProfileError::Needed { .. }));
        let half = Amendment { plain: strings(&["current_logfiles"]), ..Amendment::default() };
        assert!(matches!(half.apply(&old).unwrap_err(), ProfileError::Rename { .. }));
        let generic = Profile::builtin("generic").ok();
        let other = Amendment { profile: generic, ..Amendment::default() };
        assert!(matches!(other.apply(&old).unwrap_err(), ProfileError::OtherProfile { .. }));
    }

    #[test]
    fn a_newer_profile_brings_its_rules_and_keeps_what_is_the_owners() {
        let mut older = Profile::builtin("postgres").unwrap();
        older.rules.retain(|rule| rule.glob != "PG_VERSION");
        let old = older.compile(&strings(&["a"]), &strings(&["/usr/bin/x"])).unwrap();
        assert!(old.kind(b"PG_VERSION").is_some());
        let newer =
            Amendment { profile: Profile::builtin("postgres").ok(), ..Amendment::default() };
        let new = newer.apply(&old).unwrap();
        assert_eq!((new.kind(b"PG_VERSION"), new.kind(b"a")), (None, None));
        assert!(new.lists(b"/usr/bin/x") && needs_a_stop(&old, &new));
    }

    fn renewal(profile: &Profile) -> Amendment {
        Amendment { profile: Some(profile.clone()), ..Amendment::default() }
    }

    #[test]
    fn renewing_gives_no_keys_to_programs_that_the_owner_took_out() {
        let builtin = Profile::builtin("postgres").unwrap();
        let no_psql = Amendment { not_programs: strings(&["psql"]), ..Amendment::default() };
        let old = no_psql.apply(&postgres(&[])).unwrap();
        let again = renewal(&builtin);
        let new = again.apply(&old).unwrap();
        assert_eq!((&new, again.left_out(&new)), (&old, vec!["psql"]));
        let asked = Amendment { programs: strings(&["psql"]), ..renewal(&builtin) };
        let new = asked.apply(&old).unwrap();
        assert!(new.lists(b"/any/psql") && asked.left_out(&new).is_empty());
        // In one change.
        let both = Amendment { profile: Some(builtin), ..no_psql };
        let new = both.apply(&postgres(&[])).unwrap();
        assert!(!new.lists(b"/any/psql") && new.lists(b"/any/postgres"));
        assert_eq!((new, both.left_out(&old)), (old, Vec::new()));
    }

    #[test]
    fn a_newer_profile_lists_no_new_program() {
        let mut newer = Profile::builtin("generic").unwrap();
        newer.programs = strings(&["new", "kept"]);
        let old = Profile::builtin("generic").unwrap().compile(&[], &strings(&["kept"])).unwrap();
        let change = renewal(&newer);
        let new = change.apply(&old).unwrap();
        assert_eq!((new.programs(), change.left_out(&new)), (old.programs(), vec!["new"]));
    }

    fn ruled(rules: &[(&str, bool)]) -> Profile {
        let rule = |&(glob, plain): &(&str, bool)| crate::ProfileRule {
            glob: glob.to_owned(),
            class: (!plain).then_some(crate::profile::ClassName::Bytes),
            plain: plain.then(|| "for a test".to_owned()),
        };
        let last = [("**", false)];
        let rules = rules.iter().chain(&last).map(rule).collect();
        Profile { rules, ..Profile::builtin("generic").unwrap() }
    }

    #[test]
    fn what_renewing_would_make_plain_is_named() {
        let owners = ["*.pem", "*.conf"].map(|glob| (glob, true));
        for (old, new, wanted) in [
            (&owners[..], &owners[..], &[][..]),
            (&owners, &[("*.conf", true), ("*.pem", true)], &[]),
            (&owners, &[("*.pem", true)], &[]),
            (&[], &[("*.pem", true)], &["*.pem"]),
            // The seal before it is gone, or behind it now.
            (&[("s.pem", false), ("*.pem", true)], &[("*.pem", true)], &["*.pem"]),
            (
                &[("s.pem", false), ("*.pem", true)],
                &[("*.pem", true), ("s.pem", false)],
                &["*.pem"],
            ),
            (
                &[("s.pem", false), ("*.pem", true)],
                &[("t", false), ("s.pem", false), ("*.pem", true)],
                &[],
            ),
            (&[("*.pem", true), ("s.conf", false)], &[("*.pem", true)], &[]),
        ] {
            let old = ruled(old).compile(&[], &[]).unwrap();
            let change = renewal(&ruled(new));
            assert_eq!(change.unseals(&old, &change.apply(&old).unwrap()), wanted, "{new:?}");
        }
    }

    #[test]
    fn globs_of_the_owner_are_named_only_if_a_file_brings_them() {
        let old = ruled(&[]).compile(&strings(&["kept", "gone"]), &[]).unwrap();
        let mut profile = ruled(&[]);
        profile.plain = strings(&["kept", "gone", "asked", "brought"]);
        let change = Amendment {
            plain: strings(&["asked"]),
            not_plain: strings(&["gone"]),
            ..renewal(&profile)
        };
        let new = change.apply(&old).unwrap();
        let kinds = (new.kind(b"kept"), new.kind(b"asked"), new.kind(b"brought"));
        assert_eq!(kinds, (None, None, None));
        assert!(new.kind(b"gone").is_some());
        assert_eq!(change.unseals(&old, &new), ["brought"]);
        let plain = Amendment { plain: strings(&["x"]), ..Amendment::default() };
        assert!(plain.unseals(&old, &plain.apply(&old).unwrap()).is_empty());
    }

    #[test]
    fn a_profile_without_the_old_ones_tablespaces_is_named() {
        let mut profile = Profile::builtin("postgres").unwrap();
        profile.tablespace = None;
        let (old, change) = (postgres(&[]), renewal(&profile));
        let found = change.unseals(&old, &change.apply(&old).unwrap());
        assert!(found.len() == 1 && found[0].starts_with("tablespaces PG_"), "{found:?}");
    }

    #[test]
    fn a_brace_in_a_glob_of_the_owner_is_refused_later_too() {
        let old = postgres(&[]);
        let brace = "log/*.{csv,json}";
        let change = Amendment { plain: strings(&[brace]), ..Amendment::default() };
        assert_eq!(change.apply(&old).unwrap_err(), ProfileError::Brace { glob: brace.into() });
    }
}

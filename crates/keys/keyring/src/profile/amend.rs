//! Changes the policy of a directory that exists: globs of the owner, listed programs, or the rules
//! of a newer profile.
//!
//! Knows policies, not files: whether a file contradicts the new policy is for the command to find
//! out.

use tidelock_contract::{Action, Glob, Origin, Policy, Rule};

use super::{Profile, ProfileError};

/// What is to be another in a policy.
#[derive(Clone, Default, Debug)]
pub struct Amendment {
    /// The rules of this profile take the place of those that came from one.
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

fn put_in(list: &mut Vec<String>, new: &[String]) {
    for one in new {
        if !list.contains(one) {
            list.push(one.clone());
        }
    }
}

fn take_out(
    list: &mut Vec<String>,
    old: &[String],
    what: &'static str,
) -> Result<(), ProfileError> {
    for one in old {
        let place = list.iter().position(|have| have == one);
        let place = place.ok_or_else(|| ProfileError::NotThere { what, name: one.clone() })?;
        list.remove(place);
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
}

//! Compiles a profile into the policy that runs, and shows a policy as a profile.

use tidelock_contract::{Action, Glob, Origin, Policy, PolicyError, Rule, Tablespace};
use tidelock_format::Class;

use super::Profile;

/// Why a profile cannot be compiled.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// A glob that is not valid, or too much of something.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// Other globs have alternatives in braces; here they would be two bytes of a name.
    #[error("the glob \"{glob}\" has a brace: write a rule for each name, or `[{{]` for a brace")]
    Brace {
        /// The pattern.
        glob: String,
    },
    /// The last rule must cover everything.
    #[error("the last rule of profile \"{profile}\" is not `**` with a class")]
    NoLastRule {
        /// Its name.
        profile: String,
    },
    /// A rule has both or neither of class and plain.
    #[error("the rule \"{glob}\" needs one of `class` (paged, log, bytes) and `plain`")]
    Action {
        /// The pattern.
        glob: String,
    },
    /// A rename would cross from sealed to plain, or between classes.
    #[error("the engine renames \"{from}\" to \"{to}\", and the globs treat them differently")]
    Rename {
        /// The name before.
        from: String,
        /// The name after.
        to: String,
    },
    /// It cannot be taken out.
    #[error("\"{name}\" is no {what} of this directory")]
    NotThere {
        /// Of which list.
        what: &'static str,
        /// What was named.
        name: String,
    },
    /// The engine itself.
    #[error("without keys for \"{program}\" nothing could open the directory")]
    Needed {
        /// The program.
        program: String,
    },
    /// The rules of another engine.
    #[error("the directory is one of profile \"{from}\", not \"{to}\"")]
    OtherProfile {
        /// What it was made with.
        from: String,
        /// What was named.
        to: String,
    },
}

impl Profile {
    /// The policy. `plain` are the owner's globs, tried before the last rule; `programs` are listed
    /// besides those of the profile.
    ///
    /// # Errors
    /// A glob that is not valid, a rename that would cross, or too much of something.
    pub fn compile(&self, plain: &[String], programs: &[String]) -> Result<Policy, ProfileError> {
        let mut rules = self.rules.iter().map(rule).collect::<Result<Vec<_>, _>>()?;
        let covers_all =
            |rule: &Rule| rule.glob.bytes() == b"**" && matches!(rule.action, Action::Seal(_));
        let last = rules
            .pop()
            .filter(covers_all)
            .ok_or_else(|| ProfileError::NoLastRule { profile: self.name.clone() })?;
        let mut owners = Vec::new();
        put_in(&mut owners, plain);
        put_in(&mut owners, &self.plain);
        for pattern in owners {
            rules.push(Rule {
                glob: glob(&pattern)?,
                action: Action::Plain("named plain by the owner".to_owned()),
                origin: Origin::Owner,
            });
        }
        rules.push(last);
        let tablespace = match &self.tablespace {
            Some(given) => Some(Tablespace {
                component: glob(&given.component)?,
                prefix: glob(&given.prefix)?,
            }),
            None => None,
        };
        let mut listed = Vec::new();
        put_in(&mut listed, &self.programs);
        put_in(&mut listed, programs);
        let policy =
            Policy::new(self.name.clone(), listed, self.recovery.clone(), tablespace, rules)?;
        self.check_renames(&policy)?;
        Ok(policy)
    }

    pub(super) fn check_renames(&self, policy: &Policy) -> Result<(), ProfileError> {
        let kind = |name: &str| policy.kind(name.as_bytes());
        match self.renames.iter().find(|pair| kind(&pair.from) != kind(&pair.to)) {
            Some(pair) => {
                Err(ProfileError::Rename { from: pair.from.clone(), to: pair.to.clone() })
            }
            None => Ok(()),
        }
    }

    /// A policy as a profile, to be shown. Which renames were checked is not kept.
    #[must_use]
    pub fn of(policy: &Policy) -> Self {
        let (plain, rules): (Vec<_>, Vec<_>) =
            policy.rules().iter().partition(|rule| rule.origin == Origin::Owner);
        let shown = |rule: &Rule| {
            let (class, plain) = match &rule.action {
                Action::Seal(class) => (Some(Class::into(*class)), None),
                Action::Plain(reason) => (None, Some(reason.clone())),
            };
            super::Rule { glob: rule.glob.to_string(), class, plain }
        };
        Self {
            name: policy.profile().to_owned(),
            data_offset: None,
            programs: policy.programs().to_vec(),
            recovery: policy.recovery().to_vec(),
            plain: plain.iter().map(|rule| rule.glob.to_string()).collect(),
            tablespace: policy.tablespace().map(|given| super::Tablespace {
                component: given.component.to_string(),
                prefix: given.prefix.to_string(),
            }),
            rules: rules.into_iter().map(shown).collect(),
            renames: Vec::new(),
        }
    }
}

/// Adds those that are not there yet.
pub(super) fn put_in(list: &mut Vec<String>, new: &[String]) {
    for one in new {
        if !list.contains(one) {
            list.push(one.clone());
        }
    }
}

/// # Errors
/// It is no glob; [`ProfileError::Brace`].
pub(super) fn glob(pattern: &str) -> Result<Glob, ProfileError> {
    let refused = |why| PolicyError::Glob { glob: pattern.to_owned(), why };
    let glob = Glob::new(pattern.as_bytes()).map_err(refused)?;
    let mut rest = pattern;
    while let Some(at) = rest.find(['{', '}', '[']) {
        if !rest[at..].starts_with('[') {
            return Err(ProfileError::Brace { glob: pattern.to_owned() });
        }
        // The first member of a set may be a `]`.
        let set = &rest[at + 1..];
        let members = set.strip_prefix(['!', '^']).unwrap_or(set);
        let end = members.char_indices().skip(1).find(|(_, member)| *member == ']');
        rest = end.map_or("", |(end, _)| &members[end + 1..]);
    }
    Ok(glob)
}

fn rule(given: &super::Rule) -> Result<Rule, ProfileError> {
    let action = match (given.class, &given.plain) {
        (Some(class), None) => Action::Seal(class.into()),
        (None, Some(reason)) => Action::Plain(reason.clone()),
        _ => return Err(ProfileError::Action { glob: given.glob.clone() }),
    };
    Ok(Rule { glob: glob(&given.glob)?, action, origin: Origin::Profile })
}

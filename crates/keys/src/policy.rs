//! Which files of a protected directory are sealed, in which class, and which stay plain.
//!
//! Compiled from a profile when the directory is made, sealed in the keyring's body, handed to
//! programs in the grant. Decides by path alone: symbolic links were resolved before.
//! [`Policy::decide`] neither allocates nor locks, and what no rule names is sealed.

mod codec;
mod glob;

use tidelock_format::Class;

pub(crate) use codec::MAX_LEN;
pub use glob::{Glob, GlobError};

use crate::profile::{self, Profile};

/// The compiled policy of a protected directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    profile: String,
    programs: Vec<String>,
    recovery: Vec<String>,
    tablespace: Option<Tablespace>,
    rules: Vec<Rule>,
}

/// How directories of a tablespace are recognised outside the protected directory.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Tablespace {
    component: Glob,
    prefix: Glob,
}

/// One glob and what it means.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Covers paths relative to the protected directory.
    pub glob: Glob,
    /// What happens to them.
    pub action: Action,
    /// Who wrote the rule.
    pub origin: Origin,
}

/// What a rule does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// The file is sealed, in this class.
    Seal(Class),
    /// The file stays plain, for this reason.
    Plain(String),
}

/// Who wrote a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The profile.
    Profile,
    /// The owner of the directory: `plain = [globs]`.
    Owner,
}

/// What must be true of a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// It is sealed, in this class.
    Seal(Class),
    /// It is plain by this rule: [`Policy::reason`].
    Plain(RuleIndex),
}

/// The place of a rule in [`Policy::rules`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuleIndex(pub u16);

/// Why a policy cannot be compiled or read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A glob is none.
    #[error("the glob \"{glob}\" is not valid: {why}")]
    Glob {
        /// The pattern.
        glob: String,
        /// What is wrong with it.
        why: GlobError,
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
    /// A program is neither a name nor an absolute path.
    #[error("\"{program}\" is neither a program's name nor an absolute path")]
    Program {
        /// What was given.
        program: String,
    },
    /// Too many or too long.
    #[error("the policy has too many or too long {what}")]
    TooBig {
        /// Of what.
        what: &'static str,
    },
    /// The encoded policy is not one.
    #[error("the encoded policy is damaged at {what}")]
    Damaged {
        /// The field.
        what: &'static str,
    },
}

impl Policy {
    /// Compiles a profile. `plain` are the owner's globs, tried before the last rule; `programs`
    /// are listed besides those of the profile.
    ///
    /// # Errors
    /// A glob that is none, a rename that would cross, or too much of something.
    pub fn compile(
        profile: &Profile,
        plain: &[String],
        programs: &[String],
    ) -> Result<Self, PolicyError> {
        let mut rules = profile.rules.iter().map(rule).collect::<Result<Vec<_>, _>>()?;
        let covers_all =
            |rule: &Rule| rule.glob.bytes() == b"**" && matches!(rule.action, Action::Seal(_));
        let last = rules
            .pop()
            .filter(covers_all)
            .ok_or_else(|| PolicyError::NoLastRule { profile: profile.name.clone() })?;
        for pattern in plain.iter().chain(&profile.plain) {
            rules.push(Rule {
                glob: parse(pattern)?,
                action: Action::Plain("named plain by the owner".to_owned()),
                origin: Origin::Owner,
            });
        }
        rules.push(last);
        let tablespace = match &profile.tablespace {
            Some(given) => Some(Tablespace {
                component: parse(&given.component)?,
                prefix: parse(&given.prefix)?,
            }),
            None => None,
        };
        let mut listed = profile.programs.clone();
        listed.extend(programs.iter().filter(|name| !profile.programs.contains(name)).cloned());
        let policy = Self {
            profile: profile.name.clone(),
            programs: listed,
            recovery: profile.recovery.clone(),
            tablespace,
            rules,
        };
        policy.check_limits()?;
        policy.check_renames(profile)?;
        Ok(policy)
    }

    /// What must be true of this path, relative to the protected directory. Links are resolved
    /// already, and there is no `.` or `..` in it. Neither allocates nor locks.
    #[must_use]
    pub fn decide(&self, relative: &[u8]) -> Decision {
        match self.tablespace_tail(relative) {
            Some(tail) => self.decide_tablespace(tail),
            None => self.first_match(relative, &[]),
        }
    }

    /// Of an absolute or relative path: the part from a tablespace's own directory on, if there is
    /// one. Such a path belongs to the policy wherever it lies.
    #[must_use]
    pub fn tablespace_tail<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        let component = &self.tablespace.as_ref()?.component;
        let mut rest = path;
        loop {
            let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
            let (first, after) = rest.split_at(end);
            if !first.is_empty() && component.matches(first) {
                return Some(rest);
            }
            rest = after.get(1..)?;
        }
    }

    /// What must be true of a path in a tablespace; `tail` is from [`Policy::tablespace_tail`].
    #[must_use]
    pub fn decide_tablespace(&self, tail: &[u8]) -> Decision {
        let prefix =
            self.tablespace.as_ref().map_or(&[][..], |tablespace| tablespace.prefix.bytes());
        self.first_match(prefix, tail)
    }

    fn first_match(&self, prefix: &[u8], tail: &[u8]) -> Decision {
        for (index, rule) in self.rules.iter().enumerate() {
            if rule.glob.matches_joined(prefix, tail) {
                return match (&rule.action, u16::try_from(index)) {
                    (Action::Plain(_), Ok(index)) => Decision::Plain(RuleIndex(index)),
                    (Action::Plain(_), Err(_)) => Decision::Seal(Class::Bytes),
                    (Action::Seal(class), _) => Decision::Seal(*class),
                };
            }
        }
        Decision::Seal(Class::Bytes)
    }

    /// True if the files below a directory stay what they are when its name changes from `from` to `to`, both
    /// relative to the protected directory. Asks for one example of what each glob covers, from each component of
    /// it on: enough to tell the directories that engines have apart. Neither allocates nor locks.
    #[must_use]
    pub fn same_below(&self, from: &[u8], to: &[u8]) -> bool {
        let alike = |tail: &[u8]| {
            let (mut old, mut new) = (Joined::new(), Joined::new());
            match (old.join(from, tail), new.join(to, tail)) {
                (Some(old), Some(new)) => self.kind(old) == self.kind(new),
                // Too long to be told.
                _ => false,
            }
        };
        self.rules.iter().all(|rule| {
            let pattern = rule.glob.bytes();
            let starts = pattern.iter().enumerate().filter(|(_, byte)| **byte == b'/');
            core::iter::once(0).chain(starts.map(|(at, _)| at + 1)).all(|start| {
                let mut example = [0; Glob::MAX];
                rule.glob.example(start, &mut example).is_none_or(&alike)
            })
        })
    }

    fn kind(&self, relative: &[u8]) -> Option<Class> {
        match self.decide(relative) {
            Decision::Seal(class) => Some(class),
            Decision::Plain(_) => None,
        }
    }

    /// Why the files of a plain rule stay plain.
    #[must_use]
    pub fn reason(&self, index: RuleIndex) -> Option<&str> {
        match &self.rules.get(usize::from(index.0))?.action {
            Action::Plain(reason) => Some(reason),
            Action::Seal(_) => None,
        }
    }

    /// The policy as a profile, to be shown. Which renames were checked is not kept.
    #[must_use]
    pub fn to_profile(&self) -> Profile {
        let (plain, rules): (Vec<_>, Vec<_>) =
            self.rules.iter().partition(|rule| rule.origin == Origin::Owner);
        let shown = |rule: &Rule| {
            let (class, plain) = match &rule.action {
                Action::Seal(class) => (Some((*class).into()), None),
                Action::Plain(reason) => (None, Some(reason.clone())),
            };
            profile::Rule { glob: rule.glob.to_string(), class, plain }
        };
        Profile {
            name: self.profile.clone(),
            data_offset: None,
            programs: self.programs.clone(),
            recovery: self.recovery.clone(),
            plain: plain.iter().map(|rule| rule.glob.to_string()).collect(),
            tablespace: self.tablespace.as_ref().map(|given| profile::Tablespace {
                component: given.component.to_string(),
                prefix: given.prefix.to_string(),
            }),
            rules: rules.into_iter().map(shown).collect(),
            renames: Vec::new(),
        }
    }

    /// The name of the profile.
    #[must_use]
    pub fn profile(&self) -> &str {
        &self.profile
    }

    /// The rules, in the order in which they are tried.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The listed programs: names without a slash, or absolute paths.
    #[must_use]
    pub fn programs(&self) -> &[String] {
        &self.programs
    }

    /// True if the program of this absolute path is listed.
    #[must_use]
    pub fn lists(&self, exe: &[u8]) -> bool {
        self.programs.iter().any(|entry| names_program(entry.as_bytes(), exe))
    }

    /// True if the program of this absolute path may give a new key to a file whose header is lost.
    #[must_use]
    pub fn recovers(&self, exe: &[u8]) -> bool {
        self.recovery.iter().any(|entry| names_program(entry.as_bytes(), exe))
    }

    fn check_renames(&self, profile: &Profile) -> Result<(), PolicyError> {
        let kind = |name: &str| self.kind(name.as_bytes());
        match profile.renames.iter().find(|pair| kind(&pair.from) != kind(&pair.to)) {
            Some(pair) => Err(PolicyError::Rename { from: pair.from.clone(), to: pair.to.clone() }),
            None => Ok(()),
        }
    }
}

/// True if this entry of a list of programs (a name without a slash, or an absolute path) means
/// `exe`, an absolute path.
#[must_use]
pub fn names_program(entry: &[u8], exe: &[u8]) -> bool {
    if entry.first() == Some(&b'/') {
        return entry == exe;
    }
    let name = exe.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    !name.is_empty() && entry == name
}

/// Two pieces of a path, in memory of its own.
struct Joined([u8; 1024]);

impl Joined {
    const fn new() -> Self {
        Self([0; 1024])
    }

    fn join(&mut self, directory: &[u8], tail: &[u8]) -> Option<&[u8]> {
        let (first, rest) = self.0.split_at_mut_checked(directory.len())?;
        let (slash, rest) = rest.split_first_mut()?;
        first.copy_from_slice(directory);
        *slash = b'/';
        rest.get_mut(..tail.len())?.copy_from_slice(tail);
        self.0.get(..directory.len() + 1 + tail.len())
    }
}

fn parse(pattern: &str) -> Result<Glob, PolicyError> {
    Glob::new(pattern.as_bytes()).map_err(|why| PolicyError::Glob { glob: pattern.to_owned(), why })
}

fn rule(given: &crate::profile::Rule) -> Result<Rule, PolicyError> {
    let action = match (given.class, &given.plain) {
        (Some(class), None) => Action::Seal(class.into()),
        (None, Some(reason)) => Action::Plain(reason.clone()),
        _ => return Err(PolicyError::Action { glob: given.glob.clone() }),
    };
    Ok(Rule { glob: parse(&given.glob)?, action, origin: Origin::Profile })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn postgres() -> Policy {
        Policy::compile(&Profile::builtin("postgres").unwrap(), &[], &[]).unwrap()
    }

    #[test]
    fn directories_that_may_change_their_names() {
        let policy = postgres();
        let same = |from: &str, to: &str| policy.same_below(from.as_bytes(), to.as_bytes());
        assert!(same("pg_replslot/x.tmp", "pg_replslot/x"));
        assert!(same("base/5", "base/6"));
        assert!(same("log", "old_log"));
        assert!(same("pg_tblspc/16400/PG_15_202209061/5", "pg_tblspc/16400/PG_15_202209061/6"));
        assert!(same("pg_wal/archive_status", "pg_wal/old"));
        assert!(!same("base", "other"), "pages become bytes");
        assert!(!same("base/5", "other"), "pages become bytes");
        assert!(!same("base/5", "base/x"), "pages become bytes");
        assert!(!same("pg_wal", "pg_xact"), "a log becomes pages");
        assert!(!same("conf.d", "log"), "plain files would have to be sealed");
        assert!(!same("log", "conf.d"), "sealed files would have to be plain");
        assert!(!same("log", "pg_wal/log"), "bytes become a log");
    }

    fn with_plain(globs: &[&str]) -> Result<Policy, PolicyError> {
        let globs: Vec<String> = globs.iter().map(|glob| (*glob).to_owned()).collect();
        Policy::compile(&Profile::builtin("postgres").unwrap(), &globs, &[])
    }

    fn is_plain(policy: &Policy, path: &str) -> bool {
        matches!(policy.decide(path.as_bytes()), Decision::Plain(_))
    }

    #[test]
    fn postgres_files_have_the_class_of_their_writer() {
        let policy = postgres();
        for (path, class) in [
            ("base/16384/2619", Class::Paged),
            ("base/16384/16385_fsm", Class::Paged),
            ("base/16384/16385.1", Class::Paged),
            ("base/16384/t3_16385", Class::Paged),
            ("base/16384/t3_16385_vm", Class::Paged),
            ("base/pgsql_tmp/pgsql_tmp12.0", Class::Paged),
            ("base/pgsql_tmp/pgsql_tmp12.0.sharedfileset/0.0", Class::Paged),
            ("base/16384/pg_filenode.map", Class::Bytes),
            ("base/16384/PG_VERSION", Class::Bytes),
            ("global/1262", Class::Paged),
            ("global/pg_control", Class::Paged),
            ("global/pg_internal.init", Class::Bytes),
            ("pg_wal/000000010000000000000001", Class::Log),
            ("pg_wal/archive_status/000000010000000000000001.done", Class::Log),
            ("pg_xact/0000", Class::Paged),
            ("pg_multixact/members/0000", Class::Paged),
            ("pg_tblspc/16390/PG_15_202209061/5/16391", Class::Paged),
            ("pg_tblspc/16390/PG_15_202209061/pgsql_tmp/pgsql_tmp1.0", Class::Paged),
            ("pg_tblspc/16390/PG_15_202209061/5/PG_VERSION", Class::Bytes),
            ("pg_twophase/000002F1", Class::Bytes),
            ("log/postgresql.log", Class::Bytes),
            ("logfile", Class::Bytes),
            ("backup_label", Class::Bytes),
            ("backup_manifest", Class::Bytes),
            ("standby.signal", Class::Bytes),
            ("current_logfiles", Class::Bytes),
            ("log/postgresql.conf", Class::Bytes),
            ("base/5/evil.conf", Class::Bytes),
            ("pg_upgrade_output.d/x/log/pg_upgrade_server.log", Class::Bytes),
        ] {
            assert_eq!(policy.decide(path.as_bytes()), Decision::Seal(class), "{path}");
        }
    }

    #[test]
    fn what_stays_plain_has_a_reason() {
        let policy = postgres();
        for path in [
            "PG_VERSION",
            "postgresql.conf",
            "postgresql.auto.conf",
            "postgresql.auto.conf.tmp",
            "pg_hba.conf",
            "pg_hba.conf.backup",
            "pg_ident.conf",
            "postmaster.pid",
            "postmaster.opts",
            "patroni.dynamic.json",
            ".s.PGSQL.5432",
            ".s.PGSQL.5432.lock",
            "server.key",
            "server.crt",
            "root.crl",
            "conf.d/mine.conf",
        ] {
            let Decision::Plain(index) = policy.decide(path.as_bytes()) else {
                panic!("{path} is sealed")
            };
            assert!(policy.reason(index).is_some_and(|reason| reason.len() > 10), "{path}");
        }
    }

    #[test]
    fn a_tablespace_by_absolute_path_is_decided_as_if_it_lay_inside() {
        let policy = postgres();
        let tail = policy.tablespace_tail(b"/mnt/fast/PG_15_202209061/5/16391").unwrap();
        assert_eq!(tail, b"PG_15_202209061/5/16391");
        assert_eq!(policy.decide_tablespace(tail), Decision::Seal(Class::Paged));
        assert_eq!(policy.decide(b"ts/PG_15_202209061/5/16391"), Decision::Seal(Class::Paged));
        assert_eq!(
            policy.decide_tablespace(b"PG_15_202209061/5/x.conf"),
            Decision::Seal(Class::Bytes)
        );
        assert_eq!(policy.tablespace_tail(b"/mnt/PG_VERSION"), None);
    }

    #[test]
    fn an_owners_glob_cannot_make_pages_or_wal_plain() {
        let policy = with_plain(&["log/**", "base/**", "pg_wal/**"]).unwrap();
        assert!(is_plain(&policy, "log/postgresql.log"));
        assert!(!is_plain(&policy, "base/5/2619"));
        assert!(!is_plain(&policy, "pg_wal/000000010000000000000001"));
        assert!(is_plain(&policy, "base/5/dropped.in"));
    }

    #[test]
    fn an_owners_glob_that_splits_a_rename_is_refused() {
        assert!(matches!(with_plain(&["current_logfiles"]), Err(PolicyError::Rename { .. })));
        assert!(with_plain(&["current_logfiles*"]).is_ok());
    }

    #[test]
    fn a_policy_shown_as_a_profile_compiles_to_itself() {
        let policy = with_plain(&["log/**"]).unwrap();
        let shown = Profile::parse(&policy.to_profile().to_toml()).unwrap();
        assert_eq!(Policy::compile(&shown, &[], &[]).unwrap(), policy);
    }

    #[test]
    fn a_program_is_listed_by_name_or_by_exact_path() {
        let listed = ["/opt/tool".to_owned(), "helper".to_owned()];
        let profile = Profile::builtin("postgres").unwrap();
        let policy = Policy::compile(&profile, &[], &listed).unwrap();
        assert!(policy.lists(b"/usr/lib/postgresql/15/bin/postgres"));
        assert!(policy.lists(b"/opt/tool"));
        assert!(policy.lists(b"/anywhere/helper"));
        assert!(!policy.lists(b"/other/opt/tool"));
        assert!(!policy.lists(b"/bin/cp"));
        assert!(!policy.lists(b"/bin/"));
        assert!(!policy.lists(b""));
        assert!(policy.recovers(b"/x/postgres"));
        assert!(!policy.recovers(b"/x/pg_basebackup"));
        let bad = ["../x".to_owned()];
        assert!(matches!(Policy::compile(&profile, &[], &bad), Err(PolicyError::Program { .. })));
    }
}

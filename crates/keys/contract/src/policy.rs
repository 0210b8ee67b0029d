//! Which files of a protected directory are sealed, in which class, and which stay plain.
//!
//! Compiled from a profile when the directory is made, sealed in the keyring's body, handed to
//! programs in the grant. Decides by path alone: symbolic links were resolved before.
//! [`Policy::decide`] neither allocates nor locks, and what no rule names is sealed.

mod codec;
mod glob;

use tidelock_format::Class;

pub use codec::MAX_LEN as MAX_POLICY;
pub use glob::{Glob, GlobError};

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
pub struct Tablespace {
    /// The name of its own directory.
    pub component: Glob,
    /// Where it is taken to lie.
    pub prefix: Glob,
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

/// Why a policy cannot be made or read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A glob is not valid.
    #[error("the glob \"{glob}\" is not valid: {why}")]
    Glob {
        /// The pattern.
        glob: String,
        /// What is wrong with it.
        why: GlobError,
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
    /// A policy of these rules, which are tried in their order.
    ///
    /// # Errors
    /// Too much of something, or a program that has no name.
    pub fn new(
        profile: String,
        programs: Vec<String>,
        recovery: Vec<String>,
        tablespace: Option<Tablespace>,
        rules: Vec<Rule>,
    ) -> Result<Self, PolicyError> {
        let policy = Self { profile, programs, recovery, tablespace, rules };
        policy.check_limits()?;
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

    /// Of an absolute or relative path: the part from a tablespace's own directory on, if something
    /// in one is named. Such a path belongs to the policy wherever it lies. The last name may be
    /// that of a file, and says nothing.
    #[must_use]
    pub fn tablespace_tail<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        let component = &self.tablespace.as_ref()?.component;
        let mut rest = path;
        loop {
            let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
            let (first, after) = rest.split_at(end);
            let below = after.get(1..).filter(|below| !below.is_empty())?;
            if !first.is_empty() && component.matches(first) {
                return Some(rest);
            }
            rest = below;
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
        let Some(index) = self.first_rule(prefix, tail) else {
            return Decision::Seal(Class::Bytes);
        };
        match (self.rules.get(index).map(|rule| &rule.action), u16::try_from(index)) {
            (Some(Action::Plain(_)), Ok(index)) => Decision::Plain(RuleIndex(index)),
            (Some(Action::Seal(class)), _) => Decision::Seal(*class),
            _ => Decision::Seal(Class::Bytes),
        }
    }

    fn first_rule(&self, prefix: &[u8], tail: &[u8]) -> Option<usize> {
        self.rules.iter().position(|rule| rule.glob.matches_joined(prefix, tail))
    }

    /// The place in [`Policy::rules`] of the rule that decides about a path; `None` if there is
    /// none, and the file is sealed as bytes. Neither allocates nor locks.
    #[must_use]
    pub fn deciding_rule(&self, relative: &[u8]) -> Option<usize> {
        match (self.tablespace_tail(relative), &self.tablespace) {
            (Some(tail), Some(tablespace)) => self.first_rule(tablespace.prefix.bytes(), tail),
            _ => self.first_rule(relative, &[]),
        }
    }

    /// True if only the last rule covers the path: a glob of the owner can make it plain.
    #[must_use]
    pub fn is_owners(&self, relative: &[u8]) -> bool {
        self.deciding_rule(relative).is_some_and(|rule| rule + 1 == self.rules.len())
    }

    /// True if the files below a directory stay what they are when its name changes from `from` to
    /// `to`, both relative to the protected directory. Asks for one example of what each glob
    /// covers, from each component of it on: enough to tell the directories that engines have
    /// apart. Neither allocates nor locks.
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

    /// The class of a path; `None` if it is plain.
    #[must_use]
    pub fn kind(&self, relative: &[u8]) -> Option<Class> {
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

    /// Those of them that may give a new key to a file whose header is lost.
    #[must_use]
    pub fn recovery(&self) -> &[String] {
        &self.recovery
    }

    /// How tablespaces are recognised outside the protected directory.
    #[must_use]
    pub const fn tablespace(&self) -> Option<&Tablespace> {
        self.tablespace.as_ref()
    }

    /// True if the program of this absolute path is listed.
    #[must_use]
    pub fn lists(&self, exe: &[u8]) -> bool {
        self.programs.iter().any(|entry| names_program(entry.as_bytes(), exe))
    }

    /// True if an entry, or the last part of its path, is this name.
    #[must_use]
    pub fn lists_by_name(&self, name: &[u8]) -> bool {
        let last = |entry: &str| entry.rsplit('/').next().is_some_and(|it| it.as_bytes() == name);
        self.programs.iter().any(|entry| last(entry))
    }

    /// True if the program of this absolute path may give a new key to a file whose header is lost.
    #[must_use]
    pub fn recovers(&self, exe: &[u8]) -> bool {
        self.recovery.iter().any(|entry| names_program(entry.as_bytes(), exe))
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

//! The policy as bytes: in the keyring's body and in the grant (FORMAT.md, "Policy").
//!
//! Every count and length is bounded; a policy that was read back passes the same checks as a new
//! one.

use tidelock_format::{Class, Reader};

use super::{Action, Glob, Origin, Policy, PolicyError, Rule, Tablespace};
use crate::writer::Writer;

/// The version of this encoding.
const VERSION: u16 = 1;
/// No policy has more bytes.
pub const MAX_LEN: usize = 64 * 1024;
const MAX_RULES: usize = 512;
const MAX_PROGRAMS: usize = 256;
const MAX_NAME: usize = 64;
const MAX_PROGRAM: usize = 4096;
const MAX_REASON: usize = 255;

const PLAIN: u8 = 0;
const FROM_PROFILE: u8 = 0;
const FROM_OWNER: u8 = 1;

impl Policy {
    /// The policy as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::with_capacity(4096);
        out.u16(VERSION);
        out.text(self.profile.as_bytes());
        for list in [&self.programs, &self.recovery] {
            out.count(list.len());
            list.iter().for_each(|program| out.text(program.as_bytes()));
        }
        let (component, prefix) = match &self.tablespace {
            Some(tablespace) => (tablespace.component.bytes(), tablespace.prefix.bytes()),
            None => (&[][..], &[][..]),
        };
        out.text(component);
        out.text(prefix);
        out.count(self.rules.len());
        for rule in &self.rules {
            let (action, reason) = match &rule.action {
                Action::Seal(class) => (*class as u8, ""),
                Action::Plain(reason) => (PLAIN, reason.as_str()),
            };
            out.u8(action);
            out.u8(match rule.origin {
                Origin::Profile => FROM_PROFILE,
                Origin::Owner => FROM_OWNER,
            });
            out.text(rule.glob.bytes());
            out.text(reason.as_bytes());
        }
        out.into_bytes()
    }

    /// Reads what [`Policy::encode`] wrote.
    ///
    /// # Errors
    /// [`PolicyError::Damaged`] for anything else, also for bytes that follow.
    pub fn decode(bytes: &[u8]) -> Result<Self, PolicyError> {
        let mut from = Reader::new(bytes);
        if from.u16().map_err(|_| damaged("version"))? != VERSION {
            return Err(damaged("version"));
        }
        let profile = text(&mut from, "name of the profile")?;
        let programs = list(&mut from, "programs")?;
        let recovery = list(&mut from, "recovery programs")?;
        let component = slice(&mut from, "tablespace")?;
        let prefix = slice(&mut from, "tablespace")?;
        let tablespace = match (component, prefix) {
            (b"", b"") => None,
            _ => Some(Tablespace { component: glob(component)?, prefix: glob(prefix)? }),
        };
        let count = from.u16().map_err(|_| damaged("rules"))?;
        if usize::from(count) > MAX_RULES {
            return Err(PolicyError::TooBig { what: "rules" });
        }
        let rules = (0..count).map(|_| rule(&mut from)).collect::<Result<Vec<_>, _>>()?;
        if !from.rest().is_empty() {
            return Err(damaged("end"));
        }
        let policy = Self { profile, programs, recovery, tablespace, rules };
        policy.check_limits()?;
        Ok(policy)
    }

    pub(super) fn check_limits(&self) -> Result<(), PolicyError> {
        let too_big = |what| Err(PolicyError::TooBig { what });
        if self.profile.is_empty() || self.profile.len() > MAX_NAME {
            return too_big("bytes in the name of the profile");
        }
        for list in [&self.programs, &self.recovery] {
            if list.len() > MAX_PROGRAMS {
                return too_big("programs");
            }
            if let Some(program) = list.iter().find(|program| !is_program(program)) {
                return Err(PolicyError::Program { program: program.clone() });
            }
        }
        if self.rules.len() > MAX_RULES {
            return too_big("rules");
        }
        let long =
            |rule: &Rule| matches!(&rule.action, Action::Plain(why) if why.len() > MAX_REASON);
        if self.rules.iter().any(long) {
            return too_big("bytes in a reason");
        }
        if self.encode().len() > MAX_LEN {
            return too_big("bytes in all");
        }
        Ok(())
    }
}

/// A name without a slash, or an absolute path; no line break, since lists of programs are lines.
fn is_program(program: &str) -> bool {
    let named = program.starts_with('/') || !program.contains('/');
    named
        && !program.is_empty()
        && program.len() <= MAX_PROGRAM
        && !program.contains(['\n', '\0'])
        && !matches!(program, "." | ".." | "/")
}

const fn damaged(what: &'static str) -> PolicyError {
    PolicyError::Damaged { what }
}

fn slice<'a>(from: &mut Reader<'a>, what: &'static str) -> Result<&'a [u8], PolicyError> {
    let len = from.u16().map_err(|_| damaged(what))?;
    from.bytes(usize::from(len)).map_err(|_| damaged(what))
}

fn text(from: &mut Reader<'_>, what: &'static str) -> Result<String, PolicyError> {
    String::from_utf8(slice(from, what)?.to_vec()).map_err(|_| damaged(what))
}

fn list(from: &mut Reader<'_>, what: &'static str) -> Result<Vec<String>, PolicyError> {
    let count = from.u16().map_err(|_| damaged(what))?;
    if usize::from(count) > MAX_PROGRAMS {
        return Err(PolicyError::TooBig { what });
    }
    (0..count).map(|_| text(from, what)).collect()
}

fn glob(bytes: &[u8]) -> Result<Glob, PolicyError> {
    Glob::new(bytes)
        .map_err(|why| PolicyError::Glob { glob: String::from_utf8_lossy(bytes).into_owned(), why })
}

fn rule(from: &mut Reader<'_>) -> Result<Rule, PolicyError> {
    let action = from.u8().map_err(|_| damaged("action"))?;
    let origin = match from.u8().map_err(|_| damaged("origin"))? {
        FROM_PROFILE => Origin::Profile,
        FROM_OWNER => Origin::Owner,
        _ => return Err(damaged("origin")),
    };
    let glob = glob(slice(from, "glob")?)?;
    let reason = text(from, "reason")?;
    let action = match (action, Class::from_number(action)) {
        (PLAIN, _) => Action::Plain(reason),
        (_, Some(class)) if reason.is_empty() => Action::Seal(class),
        _ => return Err(damaged("action")),
    };
    Ok(Rule { glob, action, origin })
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_policy_or_an_error(bytes: Vec<u8>) {
            let _ = Policy::decode(&bytes);
        }
    }
}

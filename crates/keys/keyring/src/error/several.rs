//! Why each of several providers opened nothing.

use std::fmt;

use super::{Error, ServiceFault};

/// Failures of several providers, of which any would have done: the most telling one first.
#[derive(Debug)]
pub struct Failures(Vec<Error>);

impl Failures {
    /// The only failure itself, or all of them; `None` if there are none.
    #[must_use]
    pub fn of(mut all: Vec<Error>) -> Option<Error> {
        // Stable: equal ones are as they were asked.
        all.sort_by_key(rank);
        match all.len() {
            0 | 1 => all.pop(),
            _ => Some(Error::Several(Self(all))),
        }
    }

    /// The one that says most of what to do.
    pub(super) fn first(&self) -> &Error {
        &self.0[0]
    }
}

impl Error {
    /// Of several failures the most telling one, else itself.
    #[must_use]
    pub fn telling(&self) -> &Self {
        match self {
            Self::Several(all) => all.first(),
            one => one,
        }
    }
}

/// A service that is down is to be mended; that nobody was asked, or a medium is away, may be as it
/// should be.
const fn rank(why: &Error) -> u8 {
    match why {
        Error::Service { fault: ServiceFault::NotHanded | ServiceFault::NotBuilt, .. } => 1,
        Error::Service { .. } | Error::Tampered { .. } => 0,
        Error::WrongKey { .. } => 2,
        Error::NoPassphrase { .. } => 3,
        _ => 1,
    }
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, why) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{why}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SlotKind;

    #[test]
    fn all_are_told_and_the_hint_is_that_of_the_service() {
        let missing = Error::NoConfigHome;
        let down = || Error::Service {
            provider: SlotKind::new(4, "vault"),
            fault: ServiceFault::Locked,
            why: "is sealed".into(),
        };
        let both = Failures::of(vec![missing, down()]).unwrap();
        let (one, other) = (down().to_string(), Error::NoConfigHome.to_string());
        assert_eq!(both.to_string(), format!("{one}; {other}"));
        assert_eq!(both.hint(), down().hint());
        assert!(matches!(Failures::of(vec![down()]), Some(Error::Service { .. })));
        assert!(Failures::of(Vec::new()).is_none());
    }
}

//! The limits of an experiment as numbers, and the reason why one could not be set.

use std::collections::BTreeMap;
use std::fmt;

use crate::error::{Error, Result};
use crate::experiment::{Limits, Param};
use crate::trial::{Warning, WarningKind};

/// What the server may have; `None` is all there is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Caps {
    /// Processors: 0.5 is half of one.
    pub cpus: Option<f64>,
    /// Memory with the page cache, in MiB.
    pub memory_mib: Option<u64>,
    /// Reads a second and writes a second, each.
    pub iops: Option<u64>,
    /// MiB read a second and MiB written a second, each.
    pub throughput_mib: Option<u64>,
}

impl Caps {
    /// The limits for one cell; the text `none` is no limit.
    ///
    /// # Errors
    /// When a limit is no positive number or names an unknown factor.
    pub fn resolve(limits: &Limits, levels: &BTreeMap<String, String>) -> Result<Self> {
        let cpus: Option<f64> = number("cpus", limits.cpus.as_ref(), levels, CPUS)?;
        if let Some(cpus) = cpus.filter(|cpus| !(0.01..=4096.0).contains(cpus)) {
            return Err(wrong("cpus", &cpus.to_string(), CPUS));
        }
        let some = |name, param: Option<&Param>| match number(name, param, levels, SOME)? {
            Some(0) => Err(wrong(name, "0", SOME)),
            found => Ok(found),
        };
        Ok(Self {
            cpus,
            memory_mib: some("memory_mib", limits.memory_mib.as_ref())?,
            iops: some("iops", limits.iops.as_ref())?,
            throughput_mib: some("throughput_mib", limits.throughput_mib.as_ref())?,
        })
    }

    /// Whether anything is limited.
    #[must_use]
    pub fn any(&self) -> bool {
        *self != Self::default()
    }

    /// Whether the device is limited.
    #[must_use]
    pub(crate) fn limits_device(&self) -> bool {
        self.iops.is_some() || self.throughput_mib.is_some()
    }
}

fn number<N: std::str::FromStr>(
    name: &str,
    param: Option<&Param>,
    levels: &BTreeMap<String, String>,
    range: &str,
) -> Result<Option<N>> {
    let Some(param) = param else { return Ok(None) };
    let text = param.text(levels).map_err(|why| Error::Other(format!("limits.{name}: {why}")))?;
    if text == "none" {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| wrong(name, &text, range))
}

fn wrong(name: &str, text: &str, range: &str) -> Error {
    Error::Other(format!("limits.{name} is {text}; it is {range}, or `none` for no limit"))
}

/// What may be said of processors, and of everything else.
const CPUS: &str = "a number from 0.01 to 4096";
const SOME: &str = "a whole number from 1 on";

/// Why a limit is not in force: a sentence for the report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unlimited {
    /// The sentence.
    pub why: String,
}

impl Unlimited {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self { why: why.into() }
    }

    /// As a trial carries it.
    #[must_use]
    pub fn warning(&self) -> Warning {
        Warning { kind: WarningKind::Unlimited, text: self.why.clone() }
    }
}

impl fmt::Display for Unlimited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_become_numbers_and_none_is_no_limit() {
        let levels = BTreeMap::from([("rate".to_owned(), "200".to_owned())]);
        let mut limits = Limits {
            cpus: Some("0.5".into()),
            iops: Some("{rate}".into()),
            memory_mib: Some("none".into()),
            ..Limits::default()
        };
        let caps = Caps::resolve(&limits, &levels).unwrap();
        assert_eq!((caps.cpus, caps.iops, caps.memory_mib), (Some(0.5), Some(200), None));
        assert!(caps.any() && caps.limits_device() && !Caps::default().any());
        for (cpus, iops) in [("0", "1"), ("-1", "1"), ("NaN", "1"), ("1", "0"), ("1", "-5")] {
            (limits.cpus, limits.iops) = (Some(cpus.into()), Some(iops.into()));
            assert!(Caps::resolve(&limits, &levels).is_err(), "{cpus} {iops}");
        }
    }
}

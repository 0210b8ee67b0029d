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
        let cpus: Option<f64> = number("cpus", limits.cpus.as_ref(), levels)?;
        if cpus.is_some_and(|cpus| !(0.01..=4096.0).contains(&cpus)) {
            return Err(Error::Other("limits: cpus must be from 0.01 to 4096".into()));
        }
        let caps = Self {
            cpus,
            memory_mib: number("memory_mib", limits.memory_mib.as_ref(), levels)?,
            iops: number("iops", limits.iops.as_ref(), levels)?,
            throughput_mib: number("throughput_mib", limits.throughput_mib.as_ref(), levels)?,
        };
        let zero = [caps.memory_mib, caps.iops, caps.throughput_mib].contains(&Some(0));
        match zero {
            true => Err(Error::Other("limits: 0 would stop the server; `none` is no limit".into())),
            false => Ok(caps),
        }
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
) -> Result<Option<N>> {
    let Some(param) = param else { return Ok(None) };
    let text = param.text(levels)?;
    if text == "none" {
        return Ok(None);
    }
    let number = text.parse();
    number.map(Some).map_err(|_| Error::Other(format!("limits: {name} = {text:?} is no number")))
}

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

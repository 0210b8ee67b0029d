//! A value of an experiment that may name factors: `"{scale}"`, `8`, `"{shared_buffers}"`, `true`.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::error::{Error, Result};

/// Text, number or truth value, kept as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Param(pub String);

impl Param {
    /// The text with `{factor}` replaced by its level, and `{factor: level = value, ...}` by the
    /// value of its level.
    ///
    /// # Errors
    /// When a factor that it names is not among `levels`, or a level has no value.
    pub fn text(&self, levels: &BTreeMap<String, String>) -> Result<String> {
        let mut text = self.0.clone();
        for (name, level) in levels {
            text = text.replace(&format!("{{{name}}}"), level);
            text = self.by_level(text, name, level)?;
        }
        let in_braces = text.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
        // `{}` is no parameter: SQL has empty objects and arrays.
        let is_name = |name: &str| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        match in_braces.map(|(name, _)| name).find(|name| is_name(name)) {
            Some(name) => {
                Err(Error::Other(format!("{:?} names {name}, which is no factor", self.0)))
            }
            None => Ok(text),
        }
    }

    fn by_level(&self, mut text: String, name: &str, level: &str) -> Result<String> {
        while let Some((before, rest)) = text.split_once(&format!("{{{name}:")) {
            let Some((values, after)) = rest.split_once('}') else { break };
            let mut values = values.split(',').filter_map(|value| value.split_once('='));
            let value = values.find(|(of, _)| of.trim() == level).map(|(_, value)| value.trim());
            let lacks = || Error::Other(format!("{:?} has no value for {name} {level}", self.0));
            text = format!("{before}{}{after}", value.ok_or_else(lacks)?);
        }
        Ok(text)
    }

    /// The number that the text is once factors are replaced.
    ///
    /// # Errors
    /// When it is no parameter, or names an unknown factor.
    pub fn number<N: std::str::FromStr>(&self, levels: &BTreeMap<String, String>) -> Result<N> {
        let text = self.text(levels)?;
        text.parse().map_err(|_| Error::Other(format!("{text:?} is not such a number")))
    }
}

impl From<&str> for Param {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl<'de> Deserialize<'de> for Param {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Any {
            Truth(bool),
            Whole(i64),
            Decimal(f64),
            Text(String),
        }
        Ok(Self(match Any::deserialize(deserializer)? {
            Any::Truth(true) => "on".into(),
            Any::Truth(false) => "off".into(),
            Any::Whole(number) => number.to_string(),
            Any::Decimal(number) => number.to_string(),
            Any::Text(text) => text,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_takes_the_place_of_its_factor() {
        let levels = BTreeMap::from([("scale".to_owned(), "50".to_owned())]);
        assert_eq!(Param::from("{scale}").number::<u32>(&levels).unwrap(), 50);
        assert_eq!(Param::from("a {scale} b").text(&levels).unwrap(), "a 50 b");
        assert!(Param::from("{scales}").text(&levels).is_err());
        assert_eq!(Param::from("'{}'::jsonb").text(&levels).unwrap(), "'{}'::jsonb");
        assert!(Param::from("'{}'::jsonb {scales}").text(&levels).is_err());
    }

    #[test]
    fn a_level_may_have_a_value_of_its_own() {
        let at = |level: &str| BTreeMap::from([("iops".to_owned(), level.to_owned())]);
        let records = Param::from("{iops: 200 = 16000, 10000=32000}");
        assert_eq!(records.number::<u32>(&at("200")).unwrap(), 16_000);
        assert_eq!(records.number::<u32>(&at("10000")).unwrap(), 32_000);
        let why = records.text(&at("500")).unwrap_err().to_string();
        assert!(why.contains("has no value for iops 500"), "{why}");
        let other = Param::from("{scale: 1 = 2}");
        assert!(other.number::<u32>(&at("200")).is_err(), "a factor that is not there");
    }
}

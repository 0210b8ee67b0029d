//! A key of AWS KMS, as the configuration names it.
//!
//! Data only. Credentials are never part of it: they come from Amazon's standard chain.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Seconds for all of a call, if the configuration does not say.
const TIMEOUT: u64 = 10;
const MAX_TIMEOUT: u64 = 300;

/// A key of AWS KMS, and where it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AwsKmsChoice {
    /// ARN or id of the key, or ARN or name (`alias/...`) of an alias.
    pub key: String,
    /// The region, if neither the ARN nor the standard chain says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Another endpoint than the region's: a VPC endpoint, a double.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// A profile of the shared configuration (`~/.aws/config`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// Seconds that a call may take in all, credentials and retries included; 1 to 300.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
}

impl AwsKmsChoice {
    /// The key of this name; all else comes from the standard chain.
    #[must_use]
    pub fn new(key: impl Into<String>) -> Self {
        let key = key.into();
        Self { key, region: None, endpoint: None, profile: None, timeout_seconds: None }
    }

    /// The configured region, else that of the key's ARN (`arn:aws:kms:REGION:ACCOUNT:key/ID`).
    #[must_use]
    pub fn region(&self) -> Option<&str> {
        let of_arn = || {
            let mut parts = self.key.split(':');
            let arn = parts.next() == Some("arn") && parts.nth(1) == Some("kms");
            parts.next().filter(|region| arn && !region.is_empty())
        };
        self.region.as_deref().or_else(of_arn)
    }

    /// How long a call may take.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds.unwrap_or(TIMEOUT).clamp(1, MAX_TIMEOUT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arn_names_its_region_and_the_configuration_overrules_it() {
        let arn = "arn:aws-cn:kms:cn-north-1:111122223333:key/1234";
        assert_eq!(AwsKmsChoice::new(arn).region(), Some("cn-north-1"));
        for other in ["1234", "alias/pg", "arn:aws:s3:eu-west-1:1:key/1", "arn:aws:kms::1:key/1"] {
            assert_eq!(AwsKmsChoice::new(other).region(), None, "{other}");
        }
        let choice: AwsKmsChoice =
            toml::from_str(&format!("key = \"{arn}\"\nregion = \"eu-west-1\"\n")).unwrap();
        assert_eq!(choice.region(), Some("eu-west-1"));
        assert!(
            toml::from_str::<AwsKmsChoice>("key = \"a\"\nsecret_access_key = \"b\"\n").is_err()
        );
    }
}

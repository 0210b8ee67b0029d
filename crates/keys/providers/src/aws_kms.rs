//! A key of AWS KMS. Credentials are never part of the configuration: they come from Amazon's
//! standard chain.

#[cfg(feature = "aws-kms")]
mod client;

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidelock_keyring::{Error, Provider, ServiceFault, SlotKind};

use crate::descriptor::Descriptor;
use crate::room::{Kind, Room, some};

const SLOT: SlotKind = SlotKind::new(8, "aws-kms");
/// What Amazon's SDKs read, with their older names (SECRET_ACCESS_KEY is a fallback of the one for
/// Rust), and what other programs of Amazon take for the same. Not the paths of files, whose rights
/// protect them, nor the addresses of services.
const SECRETS: [&str; 8] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_ACCESS_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SECRET_KEY",
    "SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_SECURITY_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
];

/// Seconds for all of a call, if the configuration does not say.
const TIMEOUT: u64 = 10;
const MAX_TIMEOUT: u64 = 300;

/// A key of AWS KMS, and where it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AwsKmsProvider {
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

impl Room for AwsKmsProvider {
    fn kind() -> Kind {
        Kind::service(SLOT, "aws-kms:KEY").remote().with_secrets(&SECRETS)
    }

    fn from_text(text: Option<&str>) -> Result<Option<Self>, Error> {
        Ok(some(text).map(Self::new))
    }

    fn open(&self, _: &Path, _: Option<&Descriptor>) -> Result<Box<dyn Provider>, Error> {
        #[cfg(feature = "aws-kms")]
        return Ok(Box::new(self.clone()));
        #[cfg(not(feature = "aws-kms"))]
        Err(fault(ServiceFault::NotBuilt, "is not built in (cargo feature aws-kms)"))
    }

    fn secret_variables(&self) -> Vec<&str> {
        SECRETS.to_vec()
    }
}

#[cfg_attr(not(feature = "aws-kms"), expect(dead_code, reason = "only the client asks"))]
impl AwsKmsProvider {
    /// The key of this name; all else comes from the standard chain.
    fn new(key: &str) -> Self {
        let key = key.into();
        Self { key, region: None, endpoint: None, profile: None, timeout_seconds: None }
    }

    /// The configured region, else that of the key's ARN (`arn:aws:kms:REGION:ACCOUNT:key/ID`).
    fn region(&self) -> Option<&str> {
        let of_arn = || {
            let mut parts = self.key.split(':');
            let arn = parts.next() == Some("arn") && parts.nth(1) == Some("kms");
            parts.next().filter(|region| arn && !region.is_empty())
        };
        self.region.as_deref().or_else(of_arn)
    }

    /// How long a call may take.
    fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_seconds.unwrap_or(TIMEOUT).clamp(1, MAX_TIMEOUT))
    }
}

fn fault(fault: ServiceFault, why: impl Into<String>) -> Error {
    Error::Service { provider: SLOT, fault, why: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_secret_variable_is_listed_and_no_other() {
        let listed = AwsKmsProvider::new("alias/pg");
        let listed = listed.secret_variables();
        for name in [
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            "AWS_SECURITY_TOKEN",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN",
        ] {
            assert!(listed.contains(&name), "{name}");
        }
        // Of files and services, which may be needed by others and tell nothing.
        for name in
            ["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_REGION"]
        {
            assert!(!listed.contains(&name), "{name}");
        }
    }

    #[test]
    fn an_arn_names_its_region_and_the_configuration_overrules_it() {
        let arn = "arn:aws-cn:kms:cn-north-1:111122223333:key/1234";
        assert_eq!(AwsKmsProvider::new(arn).region(), Some("cn-north-1"));
        for other in ["1234", "alias/pg", "arn:aws:s3:eu-west-1:1:key/1", "arn:aws:kms::1:key/1"] {
            assert_eq!(AwsKmsProvider::new(other).region(), None, "{other}");
        }
        let choice: AwsKmsProvider =
            toml::from_str(&format!("key = \"{arn}\"\nregion = \"eu-west-1\"\n")).unwrap();
        assert_eq!(choice.region(), Some("eu-west-1"));
        assert!(
            toml::from_str::<AwsKmsProvider>("key = \"a\"\nsecret_access_key = \"b\"\n").is_err()
        );
    }
}

//! A key in a PKCS#11 token, as the configuration and a PKCS#11 URI (RFC 7512) name it.
//!
//! Data only. A PIN is never part of it: neither has a place for one.

use std::path::PathBuf;
use std::str::FromStr;

use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use serde::{Deserialize, Serialize};
use tidelock_keyring::Error;

/// A key in a token, and how one logs in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct Pkcs11Choice {
    /// The module of the token: the absolute path of a shared library.
    pub module: PathBuf,
    /// The token's label, if it is to be found by it.
    pub token: Option<String>,
    /// The token's serial number, if it is to be found by it.
    pub serial: Option<String>,
    /// The key's label, if it is to be found by it.
    pub key: Option<String>,
    /// The key's id, if it is to be found by it.
    pub id: Option<Vec<u8>>,
    /// Where the PIN comes from.
    pub pin: PinSource,
    /// How long all of a call may take, where nobody is asked for the PIN.
    pub timeout_seconds: u16,
}

/// Where a PIN comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PinSource {
    /// The first line of this file, which is its owner's alone.
    File(PathBuf),
    /// The terminal, or the descriptor of `--passphrase-fd`.
    Ask,
}

/// The table as it stands in a file.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    module: PathBuf,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    serial: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pin_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pin: Option<Asked>,
    #[serde(default = "timeout", skip_serializing_if = "is_default")]
    timeout_seconds: u16,
}

/// Of tokens behind a network.
const TIMEOUT: u16 = 30;

const fn timeout() -> u16 {
    TIMEOUT
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_default(seconds: &u16) -> bool {
    *seconds == TIMEOUT
}

/// `pin` has one value, so that nobody writes a PIN there.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Asked {
    Ask,
}

impl Pkcs11Choice {
    /// The URI without the PIN's source: which key, for messages and as a slot's key reference.
    pub(super) fn key_uri(&self) -> String {
        let mut parts = Vec::new();
        let mut part = |name: &str, value: &Option<String>| {
            parts
                .extend(value.as_ref().map(|value| format!("{name}={}", encode(value.as_bytes()))));
        };
        part("token", &self.token);
        part("serial", &self.serial);
        part("object", &self.key);
        parts.extend(self.id.as_ref().map(|id| {
            let id: String = id.iter().map(|byte| format!("%{byte:02x}")).collect();
            format!("id={id}")
        }));
        format!("pkcs11:{}", parts.join(";"))
    }

    fn check(self) -> Result<Self, &'static str> {
        match self {
            _ if self.timeout_seconds == 0 => Err("`timeout_seconds` is 0"),
            _ if !self.module.is_absolute() => Err("the module's path is not absolute"),
            _ if self.token.is_none() && self.serial.is_none() => {
                Err("neither label nor serial number of a token is given")
            }
            _ if self.key.is_none() && self.id.is_none() => {
                Err("neither label (object) nor id of a key is given")
            }
            Self { pin: PinSource::File(ref path), .. } if !path.is_absolute() => {
                Err("the path of the PIN file is not absolute")
            }
            checked => Ok(checked),
        }
    }
}

impl TryFrom<Written> for Pkcs11Choice {
    type Error = &'static str;

    fn try_from(written: Written) -> Result<Self, &'static str> {
        let Written { module, token, serial, key, id, pin_file, pin, timeout_seconds } = written;
        let pin = match (pin_file, pin) {
            (Some(path), None) => PinSource::File(path),
            (None, Some(Asked::Ask)) => PinSource::Ask,
            (None, None) => return Err("neither `pin_file` nor `pin = \"ask\"` is given"),
            (Some(_), Some(_)) => return Err("both `pin_file` and `pin` are given"),
        };
        let id = id.map(|id| HEXLOWER_PERMISSIVE.decode(id.as_bytes())).transpose();
        let id = id.map_err(|_| "`id` is not hexadecimal")?;
        Self { module, token, serial, key, id, pin, timeout_seconds }.check()
    }
}

impl From<Pkcs11Choice> for Written {
    fn from(choice: Pkcs11Choice) -> Self {
        let (pin_file, pin) = match choice.pin {
            PinSource::File(path) => (Some(path), None),
            PinSource::Ask => (None, Some(Asked::Ask)),
        };
        let id = choice.id.map(|id| HEXLOWER.encode(&id));
        let Pkcs11Choice { module, token, serial, key, timeout_seconds, .. } = choice;
        Self { module, token, serial, key, id, pin_file, pin, timeout_seconds }
    }
}

/// What follows `pkcs11:` in a URI. Attributes that choose by something else are refused, not
/// passed over: they would choose another token than the URI says.
impl FromStr for Pkcs11Choice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        parse(text).map_err(|why| Error::Pkcs11Uri { why })
    }
}

fn parse(text: &str) -> Result<Pkcs11Choice, &'static str> {
    let (path, query) = text.split_once('?').unwrap_or((text, ""));
    let mut found = Pkcs11Choice {
        module: PathBuf::new(),
        token: None,
        serial: None,
        key: None,
        id: None,
        pin: PinSource::Ask,
        timeout_seconds: TIMEOUT,
    };
    for (name, value) in attributes(path, ';')? {
        let text = || String::from_utf8(value.clone()).map_err(|_| "an attribute is not UTF-8");
        match name {
            "token" => found.token = Some(text()?),
            "serial" => found.serial = Some(text()?),
            "object" => found.key = Some(text()?),
            "id" => found.id = Some(value),
            "type" if value == b"secret-key" => {}
            "type" => return Err("the key is not of type secret-key"),
            _ => return Err("its path may have token, serial, object, id and type"),
        }
    }
    for (name, value) in attributes(query, '&')? {
        let path = || {
            let text = String::from_utf8(value.clone()).map_err(|_| "a path is not UTF-8")?;
            let text = text.strip_prefix("file:").unwrap_or(&text);
            Ok::<_, &'static str>(PathBuf::from(text.strip_prefix("//").unwrap_or(text)))
        };
        match name {
            "module-path" => found.module = path()?,
            "pin-source" => found.pin = PinSource::File(path()?),
            "pin-value" => return Err("a PIN has no place on a command line: use pin-source"),
            _ => return Err("its query may have module-path and pin-source"),
        }
    }
    found.check()
}

/// `name=value` pairs, values with their percent encoding undone; a name stands once.
fn attributes(text: &str, between: char) -> Result<Vec<(&str, Vec<u8>)>, &'static str> {
    let mut found: Vec<(&str, Vec<u8>)> = Vec::new();
    for pair in text.split(between).filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or("an attribute has no value")?;
        if found.iter().any(|(known, _)| *known == name) {
            return Err("an attribute stands twice");
        }
        found.push((name, decode(value).ok_or("a percent sign is not followed by two digits")?));
    }
    Ok(found)
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let mut parts = text.as_bytes().split(|byte| *byte == b'%');
    let mut out = parts.next().unwrap_or_default().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        out.extend(HEXLOWER_PERMISSIVE.decode(digits).ok()?);
        out.extend_from_slice(rest);
    }
    Some(out)
}

fn encode(value: &[u8]) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:+".contains(&byte);
    value
        .iter()
        .map(
            |byte| {
                if plain(*byte) { char::from(*byte).to_string() } else { format!("%{byte:02X}") }
            },
        )
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const URI: &str = "token=My%20HSM;object=pg;id=%01%fF\
                       ?module-path=/usr/lib/m.so&pin-source=file:/etc/pin";

    #[test]
    fn a_uri_and_a_table_say_the_same() {
        let choice: Pkcs11Choice = URI.parse().unwrap();
        assert_eq!(choice.token.as_deref(), Some("My HSM"));
        assert_eq!(choice.id.as_deref(), Some(&[1, 0xff][..]));
        assert_eq!(choice.pin, PinSource::File("/etc/pin".into()));
        assert_eq!(choice.key_uri(), "pkcs11:token=My%20HSM;object=pg;id=%01%ff");
        let text = toml::to_string(&choice).unwrap();
        assert_eq!(
            text,
            "module = \"/usr/lib/m.so\"\ntoken = \"My HSM\"\nkey = \"pg\"\nid = \"01ff\"\n\
             pin_file = \"/etc/pin\"\n"
        );
        assert_eq!(toml::from_str::<Pkcs11Choice>(&text).unwrap(), choice);
        let asked: Pkcs11Choice = "serial=12;object=k?module-path=/m.so".parse().unwrap();
        assert_eq!(asked.pin, PinSource::Ask);
        let text = toml::to_string(&asked).unwrap();
        assert!(text.ends_with("pin = \"ask\"\n"), "{text}");
        assert_eq!(toml::from_str::<Pkcs11Choice>(&text).unwrap(), asked);
    }

    #[test]
    fn a_uri_that_says_too_little_or_another_thing_is_refused() {
        for text in [
            "",
            "token=t;object=k",
            "token=t;object=k?module-path=m.so",
            "object=k?module-path=/m.so",
            "token=t?module-path=/m.so",
            "token=t;token=u;object=k?module-path=/m.so",
            "token=t;object=k;slot-id=1?module-path=/m.so",
            "token=t;object=k;type=private?module-path=/m.so",
            "token=t;object=k?module-path=/m.so&pin-value=1234",
            "token=t;object=k?module-path=/m.so&pin-source=pin",
            "token=%4;object=k?module-path=/m.so",
            "token=%ff;object=k?module-path=/m.so",
            "token;object=k?module-path=/m.so",
        ] {
            assert!(matches!(text.parse::<Pkcs11Choice>(), Err(Error::Pkcs11Uri { .. })), "{text}");
        }
    }

    #[test]
    fn a_table_has_no_place_for_a_pin() {
        let table = "module = \"/m.so\"\ntoken = \"t\"\nkey = \"k\"\n";
        for rest in ["", "pin = \"1234\"\n", "pin = \"ask\"\npin_file = \"/p\"\n", "pins = 1\n"] {
            let text = format!("{table}{rest}");
            assert!(toml::from_str::<Pkcs11Choice>(&text).is_err(), "{text}");
        }
    }
}

//! Which key of which KMIP server, and whose certificate asks: configuration and command line.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A symmetric key that a KMIP server hands out or wraps with.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KmipChoice {
    /// The server's name or address, which its certificate must bear.
    pub host: String,
    /// Its port.
    #[serde(default = "port")]
    pub port: u16,
    /// The unique identifier of the key.
    pub key_id: String,
    /// Who wraps.
    #[serde(default, skip_serializing_if = "KmipMode::is_get")]
    pub mode: KmipMode,
    /// The client's certificate, PEM, with those between it and the authority.
    pub certificate_file: PathBuf,
    /// The client's private key, PEM; its owner's alone.
    pub key_file: PathBuf,
    /// Authorities that the server's certificate may come from, PEM; else the machine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// How long connecting and asking may take.
    #[serde(default = "timeout")]
    pub timeout_seconds: u16,
}

/// What the server is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KmipMode {
    /// Get: the raw key, at each unlock.
    #[default]
    Get,
    /// Encrypt and Decrypt: the key stays in the server.
    Encrypt,
}

impl KmipMode {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    fn is_get(&self) -> bool {
        *self == Self::Get
    }
}

impl KmipChoice {
    /// Reads `HOST[:PORT]/KEY-ID?certificate=PATH&key=PATH[&ca=PATH][&mode=get|encrypt]`; `None` if
    /// it is not that.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (place, files) = text.split_once('?')?;
        let (server, key_id) = place.split_once('/')?;
        let (host, port) = match server.rsplit_once(':') {
            Some((host, number)) if !host.contains(':') => (host, number.parse().ok()?),
            _ => (server, port()),
        };
        let (mut certificate, mut key, mut ca, mut mode) = (None, None, None, None);
        for pair in files.split('&') {
            let (name, path) = pair.split_once('=').filter(|(_, path)| !path.is_empty())?;
            let slot = match name {
                "mode" => {
                    let said = match path {
                        "get" => KmipMode::Get,
                        "encrypt" => KmipMode::Encrypt,
                        _ => return None,
                    };
                    if mode.replace(said).is_some() {
                        return None;
                    }
                    continue;
                }
                "certificate" => &mut certificate,
                "key" => &mut key,
                "ca" => &mut ca,
                _ => return None,
            };
            if slot.replace(PathBuf::from(path)).is_some() {
                return None;
            }
        }
        if host.is_empty() || key_id.is_empty() {
            return None;
        }
        Some(Self {
            host: host.into(),
            port,
            key_id: key_id.into(),
            mode: mode.unwrap_or_default(),
            certificate_file: certificate?,
            key_file: key?,
            ca_file: ca,
            timeout_seconds: timeout(),
        })
    }

    /// `HOST:PORT`, for messages.
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// The registered port.
const fn port() -> u16 {
    5696
}

const fn timeout() -> u16 {
    5
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_text_names_a_key() {
        let whole = KmipChoice::parse("kms:1/42?certificate=/c&key=/k&ca=/a").unwrap();
        assert_eq!((whole.place(), &*whole.key_id), ("kms:1".into(), "42"));
        let usual = KmipChoice::parse("kms/42?certificate=/c&key=/k").unwrap();
        assert_eq!((usual.port, usual.mode), (5696, KmipMode::Get));
        let wraps = KmipChoice::parse("kms/42?certificate=/c&mode=encrypt&key=/k").unwrap();
        assert_eq!(wraps.mode, KmipMode::Encrypt);
        for text in [
            "",
            "kms/42",
            "kms?certificate=/c&key=/k",
            "/42?certificate=/c&key=/k",
            "kms/?certificate=/c&key=/k",
            "kms:x/42?certificate=/c&key=/k",
            "kms/42?certificate=/c",
            "kms/42?certificate=/c&key=/k&key=/k",
            "kms/42?certificate=/c&key=/k&pin=1",
            "kms/42?certificate=/c&key=/k&mode=",
            "kms/42?certificate=/c&key=/k&mode=wrap",
            "kms/42?certificate=/c&key=/k&mode=get&mode=encrypt",
        ] {
            assert_eq!(KmipChoice::parse(text), None, "{text}");
        }
    }
}

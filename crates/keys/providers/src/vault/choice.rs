//! How a Vault is reached, which secret of it counts, and who asks: configuration and command line.
//!
//! A [`VaultChoice`] that exists is complete and has names that are safe in a URL. No token is ever
//! part of it: a file holds the token, or the caller's own environment.

use std::ffi::OsString;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A HashiCorp Vault or OpenBao.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Fields", into = "Fields")]
pub struct VaultChoice {
    /// `https://HOST:PORT`, without a slash at the end.
    pub address: String,
    /// Of Vault Enterprise or OpenBao.
    pub namespace: Option<String>,
    /// Where the secrets engine is mounted.
    pub mount: String,
    /// What of that engine.
    pub secret: VaultSecret,
    /// Who asks.
    pub login: VaultLogin,
    /// Authorities that the server's certificate may come from, PEM; else the machine's.
    pub ca_file: Option<PathBuf>,
    /// How long one request may take.
    pub timeout_seconds: u16,
    /// Speak without TLS to other machines.
    pub allow_http: bool,
}

/// The key in a Vault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VaultSecret {
    /// A key of the transit engine, which never leaves it.
    Transit {
        /// Its name.
        key: String,
    },
    /// 64 hexadecimal digits in a KV v2 secret.
    Kv2 {
        /// Its path below the mount.
        path: String,
        /// The field.
        field: String,
        /// This version of the secret, else the newest.
        version: Option<u32>,
    },
}

/// Who asks a Vault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum VaultLogin {
    /// A file with a token.
    TokenFile(PathBuf),
    /// A role and its secret.
    AppRole(VaultAppRole),
    /// The caller, with VAULT_TOKEN; only from the command line.
    Caller,
    /// Nobody: the configuration was made with VAULT_TOKEN, which it does not keep.
    Nobody,
}

/// An AppRole.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VaultAppRole {
    /// Its id.
    pub role_id: String,
    /// The file with its secret id; none if the role is bound otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_id_file: Option<PathBuf>,
    /// Where the method is mounted.
    #[serde(default = "approle", skip_serializing_if = "is_approle")]
    pub mount: String,
}

/// As the configuration file has it.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    address: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    engine: Engine,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mount: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ca_file: Option<PathBuf>,
    #[serde(default = "timeout")]
    timeout_seconds: u16,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    allow_http: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    approle: Option<VaultAppRole>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Engine {
    Transit,
    Kv2,
}

impl VaultChoice {
    /// Reads `transit/KEY` or `kv/PATH[#FIELD]`; where and who come from the caller's environment,
    /// as the command `vault` takes them. `None` if that names nothing.
    pub(super) fn parse(
        text: &str,
        environment: impl Fn(&str) -> Option<OsString>,
    ) -> Option<Self> {
        let secret = match text.split_once('/')? {
            ("transit", key) => VaultSecret::Transit { key: key.into() },
            ("kv", path) => {
                let (path, field) = path.split_once('#').unwrap_or((path, FIELD));
                VaultSecret::Kv2 { path: path.into(), field: field.into(), version: None }
            }
            _ => return None,
        };
        let variable = |name| environment(name).filter(|value| !value.is_empty());
        let text = |name| variable(name).and_then(|value| value.into_string().ok());
        let token_file = || {
            let path = PathBuf::from(variable("HOME")?).join(".vault-token");
            path.exists().then_some(path)
        };
        let login = match (variable("VAULT_TOKEN"), token_file()) {
            (None, Some(path)) => VaultLogin::TokenFile(path),
            _ => VaultLogin::Caller,
        };
        let choice = Self {
            address: text("VAULT_ADDR").unwrap_or_else(|| "https://127.0.0.1:8200".into()),
            namespace: text("VAULT_NAMESPACE"),
            mount: secret.usual_mount().into(),
            secret,
            login,
            ca_file: variable("VAULT_CACERT").map(PathBuf::from),
            timeout_seconds: timeout(),
            allow_http: false,
        };
        choice.checked().ok()
    }

    /// `HOST:PORT` of the address, for messages.
    pub(super) fn place(&self) -> String {
        let (authority, port) = authority(&self.address).unwrap_or((&self.address, 443));
        let named = authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if named { authority.into() } else { format!("{authority}:{port}") }
    }

    fn checked(mut self) -> Result<Self, String> {
        while self.address.ends_with('/') {
            self.address.pop();
        }
        let Some((authority, port)) = authority(&self.address) else {
            return Err(format!("the address {} is not https://HOST:PORT", self.address));
        };
        if port == 80 && !self.allow_http && !is_loopback(authority) {
            return Err(format!(
                "{} would be asked without TLS: use https://, or set allow_http",
                self.address
            ));
        }
        let names = match &self.secret {
            VaultSecret::Transit { key } => [Some(key), None],
            VaultSecret::Kv2 { path, field, .. } => [Some(path), Some(field)],
        };
        let roles = match &self.login {
            VaultLogin::AppRole(role) => [Some(&role.mount), Some(&role.role_id)],
            _ => [None, None],
        };
        for name in names.into_iter().chain(roles).flatten().chain([&self.mount]) {
            check_name(name)?;
        }
        self.namespace.as_deref().map_or(Ok(()), check_name)?;
        if let VaultSecret::Transit { key } = &self.secret
            && key.contains('/')
        {
            return Err(format!("a transit key has no slash in its name: {key}"));
        }
        if !(1..=300).contains(&self.timeout_seconds) {
            return Err("timeout_seconds is 1 to 300".into());
        }
        Ok(self)
    }
}

impl VaultSecret {
    const fn usual_mount(&self) -> &'static str {
        match self {
            Self::Transit { .. } => "transit",
            Self::Kv2 { .. } => "secret",
        }
    }
}

impl TryFrom<Fields> for VaultChoice {
    type Error = String;

    fn try_from(from: Fields) -> Result<Self, String> {
        let secret = match (from.engine, from.key, from.path) {
            (Engine::Transit, Some(key), None)
                if from.field.is_none() && from.version.is_none() =>
            {
                VaultSecret::Transit { key }
            }
            (Engine::Transit, ..) => {
                return Err(
                    "engine \"transit\" has a key, and neither path, field nor version".into()
                );
            }
            (Engine::Kv2, None, Some(path)) => VaultSecret::Kv2 {
                path,
                field: from.field.unwrap_or_else(|| FIELD.into()),
                version: from.version,
            },
            (Engine::Kv2, ..) => return Err("engine \"kv2\" has a path, and no key".into()),
        };
        let login = match (from.token_file, from.approle) {
            (Some(path), None) => VaultLogin::TokenFile(path),
            (None, Some(role)) => VaultLogin::AppRole(role),
            (None, None) => VaultLogin::Nobody,
            (Some(_), Some(_)) => return Err("token_file and approle are both there".into()),
        };
        let choice = Self {
            address: from.address,
            namespace: from.namespace,
            mount: from.mount.unwrap_or_else(|| secret.usual_mount().into()),
            secret,
            login,
            ca_file: from.ca_file,
            timeout_seconds: from.timeout_seconds,
            allow_http: from.allow_http,
        };
        choice.checked()
    }
}

impl From<VaultChoice> for Fields {
    fn from(from: VaultChoice) -> Self {
        let (engine, key, path, field, version) = match from.secret {
            VaultSecret::Transit { key } => (Engine::Transit, Some(key), None, None, None),
            VaultSecret::Kv2 { path, field, version } => {
                (Engine::Kv2, None, Some(path), Some(field), version)
            }
        };
        let (token_file, approle) = match from.login {
            VaultLogin::TokenFile(path) => (Some(path), None),
            VaultLogin::AppRole(role) => (None, Some(role)),
            VaultLogin::Caller | VaultLogin::Nobody => (None, None),
        };
        Self {
            address: from.address,
            namespace: from.namespace,
            engine,
            mount: Some(from.mount),
            key,
            path,
            field,
            version,
            token_file,
            ca_file: from.ca_file,
            timeout_seconds: from.timeout_seconds,
            allow_http: from.allow_http,
            approle,
        }
    }
}

/// Host with port, and the port that the scheme means by itself.
fn authority(address: &str) -> Option<(&str, u16)> {
    let (rest, port) = match address.split_once("://")? {
        ("https", rest) => (rest, 443),
        ("http", rest) => (rest, 80),
        _ => return None,
    };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    let safe = !authority.is_empty() && authority.bytes().all(plain);
    (safe && (path.is_empty() || check_name(path).is_ok())).then_some((authority, port))
}

fn is_loopback(authority: &str) -> bool {
    let host = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, _)) => host,
        None => authority.split(':').next().unwrap_or_default(),
    };
    let number = host.parse::<std::net::IpAddr>().map(|address| address.is_loopback());
    number.unwrap_or(host == "localhost")
}

/// Names go into URLs and headers as they are.
fn check_name(name: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-~@=+:,".contains(&byte);
    let part = |part: &str| !matches!(part, "" | "." | "..") && part.bytes().all(plain);
    let fine = name.strip_suffix('/').unwrap_or(name).split('/').all(part);
    if fine { Ok(()) } else { Err(format!("\"{name}\" is no name that Vault is asked for")) }
}

const FIELD: &str = "key";

const fn timeout() -> u16 {
    5
}

fn approle() -> String {
    "approle".into()
}

fn is_approle(mount: &str) -> bool {
    mount == "approle"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProviderChoice;

    fn parse(text: &str) -> Result<ProviderChoice, toml::de::Error> {
        toml::from_str(&format!("type = \"vault\"\n{text}"))
    }

    #[test]
    fn a_configuration_is_written_as_it_was_read() {
        for text in [
            "address = \"https://vault:8200/\"\nengine = \"transit\"\nkey = \"pg\"\ntoken_file = \
             \"/t\"",
            "address = \"http://127.0.0.1:8200\"\nengine = \"transit\"\nkey = \"pg\"\nmount = \
             \"a/b\"\n\
             namespace = \"team/db\"\napprole = { role_id = \"r\", secret_id_file = \"/s\" }",
            "address = \"https://[::1]\"\nengine = \"kv2\"\npath = \"db/pg\"\nversion = 3\n\
             ca_file = \"/ca.pem\"\ntimeout_seconds = 9",
            "address = \"http://vault\"\nallow_http = true\nengine = \"kv2\"\npath = \"x\"",
        ] {
            let choice = parse(text).unwrap();
            let again = toml::to_string(&choice).unwrap();
            assert_eq!(toml::from_str::<ProviderChoice>(&again).unwrap(), choice, "{again}");
        }
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let fine = "address = \"https://v\"\nengine = \"transit\"\nkey = \"k\"\n";
        assert!(parse(fine).is_ok());
        for (from, to) in [
            ("https", "http"),
            ("https", "ftp"),
            ("https://v", "https://user:word@v"),
            ("https://v", "https://v?x=1"),
            ("\"k\"", "\"../k\""),
            ("\"k\"", "\"a/b\""),
            ("\"k\"", "\"k?x\""),
            ("\"k\"", "\"k\"\npath = \"p\""),
            ("\"k\"", "\"k\"\ntoken = \"hvs.secret\""),
            ("\"k\"", "\"k\"\nnamespace = \"a b\""),
            ("\"k\"", "\"k\"\ntimeout_seconds = 0"),
            ("\"k\"", "\"k\"\ntoken_file = \"/t\"\napprole = { role_id = \"r\" }"),
            ("transit", "kv2"),
            ("transit", "kv1"),
        ] {
            assert!(parse(&fine.replace(from, to)).is_err(), "{to}");
        }
    }

    #[test]
    fn the_command_line_takes_where_and_who_from_vaults_variables() {
        let none = |_: &str| None;
        let choice = VaultChoice::parse("transit/pg", none).unwrap();
        assert_eq!((&*choice.address, &*choice.mount), ("https://127.0.0.1:8200", "transit"));
        assert_eq!(choice.login, VaultLogin::Caller);
        let some = |name: &str| match name {
            "VAULT_ADDR" => Some("https://vault.example:8200/".into()),
            "VAULT_NAMESPACE" => Some("db".into()),
            "VAULT_CACERT" => Some("/ca.pem".into()),
            "VAULT_TOKEN" => Some("hvs.secret".into()),
            _ => None,
        };
        let choice = VaultChoice::parse("kv/pg/main#hex", some).unwrap();
        assert_eq!(choice.place(), "vault.example:8200");
        assert_eq!(choice.namespace.as_deref(), Some("db"));
        assert!(matches!(&choice.secret, VaultSecret::Kv2 { path, field, .. }
            if path == "pg/main" && field == "hex"));
        let written = toml::to_string(&ProviderChoice::from(choice)).unwrap();
        assert!(!written.contains("secret\"\n[") && !written.contains("hvs."), "{written}");
        for text in ["", "transit", "transit/", "kv/", "pki/x", "transit/a/b", "kv/../x"] {
            assert_eq!(VaultChoice::parse(text, none), None, "{text}");
        }
        let far = |name: &str| (name == "VAULT_ADDR").then(|| "http://10.0.0.1:8200".into());
        assert_eq!(VaultChoice::parse("transit/pg", far), None);
    }
}

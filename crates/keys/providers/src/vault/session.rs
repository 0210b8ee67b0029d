//! Who asks Vault: the token of a file, of an AppRole, of the caller; and how long it lasts.
//!
//! A token of a file is renewed once less than half of its time is left; one of an AppRole is
//! revoked when the session ends.

use std::cell::OnceCell;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tidelock_keyring::{Error, Health, ServiceFault};
use zeroize::Zeroizing;

use super::client::{Answer, Client, Token};
use super::{VaultAppRole, VaultChoice, VaultLogin, fault};
use crate::trust::read_secret_line;

/// A Vault and a token for it.
pub(super) struct Session {
    client: Client,
    login: VaultLogin,
    token: OnceCell<Token>,
}

/// What `auth/token/lookup-self` says.
#[derive(Deserialize)]
struct Lookup {
    data: TokenState,
}

#[derive(Deserialize)]
struct TokenState {
    ttl: u64,
    creation_ttl: u64,
    #[serde(default)]
    renewable: bool,
    /// Null for a root token, which does not end.
    expire_time: Option<String>,
}

/// What a login and `auth/token/renew-self` say.
#[derive(Deserialize)]
struct Granted {
    auth: Auth,
}

#[derive(Deserialize)]
struct Auth {
    client_token: Zeroizing<String>,
    lease_duration: u64,
}

#[derive(Serialize)]
struct RoleLogin<'a> {
    role_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret_id: Option<&'a str>,
}

impl Session {
    pub(super) fn new(choice: &VaultChoice) -> Result<Self, Error> {
        Ok(Self {
            client: Client::new(choice)?,
            login: choice.login.clone(),
            token: OnceCell::new(),
        })
    }

    /// `HOST:PORT`.
    pub(super) fn place(&self) -> &str {
        self.client.place()
    }

    /// What an operator should change.
    pub(super) fn warnings(&self) -> Vec<String> {
        let why = "the token of VAULT_TOKEN is not kept: name token_file or approle in the \
                   configuration, or nothing opens this slot after a restart";
        if self.login == VaultLogin::Caller { vec![why.into()] } else { Vec::new() }
    }

    /// Asks with the token and reads the answer's JSON.
    ///
    /// # Errors
    /// No answer, or one that refuses.
    pub(super) fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
        body: Option<&[u8]>,
    ) -> Result<T, Error> {
        self.read(&self.answer(path, body)?)
    }

    /// Asks with the token; the answer may be one that refuses.
    ///
    /// # Errors
    /// No answer, no token.
    pub(super) fn answer(&self, path: &str, body: Option<&[u8]>) -> Result<Answer, Error> {
        self.client.ask(path, Some(self.token()?), body)
    }

    /// The JSON of an answer.
    ///
    /// # Errors
    /// It refuses, or is not what was asked for.
    pub(super) fn read<T: DeserializeOwned>(&self, answer: &Answer) -> Result<T, Error> {
        self.client.read(answer).map_err(|why| self.blame(why))
    }

    /// What a refusal means.
    pub(super) fn refusal(&self, answer: &Answer) -> Error {
        self.blame(self.client.refusal(answer))
    }

    /// Renews the token if it needs that, and says how long it lasts. A token that may not look at
    /// itself says nothing, and one that cannot be renewed goes on until its end.
    pub(super) fn tend(&self) -> Health {
        if !matches!(self.login, VaultLogin::TokenFile(_) | VaultLogin::Caller) {
            return Health::default();
        }
        let Ok(Lookup { data: mut token }) = self.ask::<Lookup>("auth/token/lookup-self", None)
        else {
            return Health::default();
        };
        if token.expire_time.is_none() {
            return Health::default();
        }
        if token.renewable
            && token.ttl < token.creation_ttl / 2
            && let Ok(renewed) = self.ask::<Granted>("auth/token/renew-self", Some(b"{}"))
        {
            token.ttl = renewed.auth.lease_duration;
        }
        Health { expires: Some(("the Vault token".into(), token.ttl)) }
    }

    /// Vault says 403 to a token that it does not know and to one that may not.
    fn blame(&self, why: Error) -> Error {
        let Error::Service { fault: ServiceFault::Denied, .. } = why else { return why };
        let looked = self.answer("auth/token/lookup-self", None);
        if looked.is_ok_and(|answer| answer.status.is_success()) {
            return why;
        }
        let place = self.place();
        fault(ServiceFault::Credentials, format!("does not accept the token ({place}, status 403)"))
    }

    fn token(&self) -> Result<&Token, Error> {
        if let Some(token) = self.token.get() {
            return Ok(token);
        }
        let token = match &self.login {
            VaultLogin::TokenFile(path) => {
                let bytes = read_secret_line(path)?;
                self.parse(&bytes, &path.display().to_string())?
            }
            VaultLogin::AppRole(role) => self.log_in(role)?,
            VaultLogin::Caller => {
                let value = std::env::var("VAULT_TOKEN").map(Zeroizing::new);
                let value = value.map_err(|_| {
                    let why = "has no token: neither VAULT_TOKEN nor ~/.vault-token is there";
                    fault(ServiceFault::Credentials, why)
                })?;
                self.parse(value.as_bytes(), "VAULT_TOKEN")?
            }
            VaultLogin::Nobody => {
                let why = "has no token: the configuration names neither token_file nor approle";
                return Err(fault(ServiceFault::Credentials, why));
            }
        };
        Ok(self.token.get_or_init(|| token))
    }

    fn parse(&self, bytes: &[u8], place: &str) -> Result<Token, Error> {
        let why = || fault(ServiceFault::Credentials, format!("gets no token from {place}"));
        Token::parse(bytes).filter(|_| bytes.len() <= MAX_TOKEN).ok_or_else(why)
    }

    fn log_in(&self, role: &VaultAppRole) -> Result<Token, Error> {
        let secret = match &role.secret_id_file {
            Some(path) => {
                let bytes = read_secret_line(path)?;
                Some(self.parse(&bytes, &path.display().to_string())?)
            }
            None => None,
        };
        let secret_id = secret.as_ref().map(Token::expose);
        let login = RoleLogin { role_id: &role.role_id, secret_id };
        let mut body = Zeroizing::new(Vec::with_capacity(2 * MAX_TOKEN));
        serde_json::to_writer(&mut *body, &login)
            .map_err(|_| fault(ServiceFault::Protocol, "cannot be asked in JSON"))?;
        let path = format!("auth/{}/login", role.mount.trim_end_matches('/'));
        let answer = self.client.ask(&path, None, Some(&body))?;
        let said = answer.errors();
        // Vault 1.13.0 says 500 to a secret id that it does not know.
        if matches!(answer.status.as_u16(), 400 | 403) || said.contains("invalid secret id") {
            let why = format!("does not let the AppRole in ({}: {said})", self.place());
            return Err(fault(ServiceFault::Credentials, why));
        }
        let granted: Granted = self.client.read(&answer)?;
        self.parse(granted.auth.client_token.as_bytes(), "its own answer")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let (VaultLogin::AppRole(_), Some(token)) = (&self.login, self.token.get()) {
            // It ends by itself soon enough if this fails.
            let _: Result<Answer, Error> =
                self.client.ask("auth/token/revoke-self", Some(token), Some(b"{}"));
        }
    }
}

/// No token and no secret id is longer.
const MAX_TOKEN: usize = 8 * 1024;

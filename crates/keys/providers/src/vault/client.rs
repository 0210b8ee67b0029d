//! One request to Vault's HTTP API and its answer, or the fault in words.
//!
//! Redirects are not followed and no proxy is used: the token goes to the configured address only.

use std::fmt::Write as _;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tidelock_keyring::{Error, ServiceFault};
use ureq::Agent;
use ureq::http::{HeaderValue, Method, Request, StatusCode};
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};
use zeroize::Zeroizing;

use super::{VaultChoice, fault};
use crate::tls;

/// A token as it goes into a header.
pub(super) struct Token(Zeroizing<String>);

/// An answer with another status than 4xx and 5xx, or with one of them.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    body: Zeroizing<Vec<u8>>,
}

/// Talks to one Vault.
pub(super) struct Client {
    agent: Agent,
    address: String,
    place: String,
    namespace: Option<String>,
    seconds: u16,
}

impl Token {
    /// What a file, a variable or an answer holds: visible ASCII with blanks around it.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.trim_ascii();
        let fine = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_graphic);
        let text = std::str::from_utf8(bytes).ok().filter(|_| fine)?;
        Some(Self(Zeroizing::new(text.into())))
    }

    /// The text, for the body of a login.
    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl Client {
    pub(super) fn new(choice: &VaultChoice) -> Result<Self, Error> {
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .user_agent(concat!("tidelock/", env!("CARGO_PKG_VERSION")))
            .timeout_global(Some(Duration::from_secs(choice.timeout_seconds.into())));
        if choice.address.starts_with("https:") {
            let trusted = tls::authorities(choice.ca_file.as_deref())?;
            let trusted: Vec<_> =
                trusted.iter().map(|one| Certificate::from_der(one).to_owned()).collect();
            config = config.https_only(true).tls_config(
                TlsConfig::builder()
                    .provider(TlsProvider::Rustls)
                    .unversioned_rustls_crypto_provider(tls::crypto())
                    .root_certs(RootCerts::new_with_certs(&trusted))
                    .build(),
            );
        }
        Ok(Self {
            agent: config.build().new_agent(),
            address: choice.address.clone(),
            place: choice.place(),
            namespace: choice.namespace.clone(),
            seconds: choice.timeout_seconds,
        })
    }

    /// `HOST:PORT`.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// Asks `/v1/PATH`: POST with a body, GET without one.
    ///
    /// # Errors
    /// There is no answer, it is no HTTP, or too long.
    pub(super) fn ask(
        &self,
        path: &str,
        token: Option<&Token>,
        body: Option<&[u8]>,
    ) -> Result<Answer, Error> {
        let broken = |_| fault(ServiceFault::Protocol, "has an address that is no URL");
        let method = if body.is_some() { Method::POST } else { Method::GET };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}/v1/{path}", self.address))
            .header("X-Vault-Request", "true");
        if let Some(namespace) = &self.namespace {
            request = request.header("X-Vault-Namespace", namespace);
        }
        if let Some(Token(token)) = token {
            let mut value = HeaderValue::from_str(token).map_err(|why| broken(why.into()))?;
            value.set_sensitive(true);
            request = request.header("X-Vault-Token", value);
        }
        let sent = match body {
            Some(body) => {
                let request = request.header("Content-Type", "application/json");
                self.agent.run(request.body(body).map_err(broken)?)
            }
            None => self.agent.run(request.body(()).map_err(broken)?),
        };
        let mut answer = sent.map_err(|why| self.no_answer(&why))?;
        let mut room = Zeroizing::new(vec![0; MAX_ANSWER]);
        let read = read_all(&mut answer.body_mut().as_reader(), &mut room);
        let length = read.map_err(|why| self.no_answer(&why.into()))?.ok_or_else(|| {
            let why = format!("answers with more than {MAX_ANSWER} bytes ({})", self.place);
            fault(ServiceFault::Protocol, why)
        })?;
        let body = Zeroizing::new(room[..length].to_vec());
        Ok(Answer { status: answer.status(), body })
    }

    /// The answer's JSON, if its status is one of success.
    ///
    /// # Errors
    /// The status in words, or it is no such JSON.
    pub(super) fn read<T: DeserializeOwned>(&self, answer: &Answer) -> Result<T, Error> {
        if !answer.status.is_success() {
            return Err(self.refusal(answer));
        }
        // The parser's message may quote the answer, which may be a secret.
        serde_json::from_slice(&answer.body).map_err(|_| {
            let why = format!("gave an answer that is not Vault's ({})", self.place);
            fault(ServiceFault::Protocol, why)
        })
    }

    /// What a status without success means. A 403 is [`ServiceFault::Denied`]; whether the token
    /// is at fault, the session finds out.
    pub(super) fn refusal(&self, answer: &Answer) -> Error {
        let said = answer.errors();
        let (kind, what) = match answer.status.as_u16() {
            503 if said.contains("sealed") => (ServiceFault::Locked, "is sealed"),
            429 => (ServiceFault::NoAnswer, "is too busy"),
            502..=504 => (ServiceFault::NoAnswer, "is not available"),
            403 => (ServiceFault::Denied, "refuses"),
            404 => (ServiceFault::NotFound, "has no such key or path"),
            300..=399 => (ServiceFault::Protocol, "sends elsewhere: name the active server"),
            _ => (ServiceFault::Protocol, "gave an answer that was not expected"),
        };
        let mut why = format!("{what} ({}, status {}", self.place, answer.status.as_u16());
        if !said.is_empty() && kind != ServiceFault::Locked {
            // Writing to a String cannot fail.
            let _ = write!(why, ": {said}");
        }
        why.push(')');
        fault(kind, why)
    }

    fn no_answer(&self, why: &ureq::Error) -> Error {
        let place = &self.place;
        let slow = format!("did not answer ({place}, {} s)", self.seconds);
        let (kind, words) = match why {
            ureq::Error::Timeout(_) => (ServiceFault::NoAnswer, slow),
            ureq::Error::Io(why) => match inner_tls(why) {
                Some(why) => tls::trouble(&why, place),
                None if why.kind() == std::io::ErrorKind::TimedOut => {
                    (ServiceFault::NoAnswer, slow)
                }
                None => (ServiceFault::NoAnswer, format!("did not answer ({place}: {why})")),
            },
            ureq::Error::Rustls(why) => tls::trouble(why, place),
            ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => {
                (ServiceFault::NoAnswer, format!("did not answer ({place}: {why})"))
            }
            _ => (
                ServiceFault::Protocol,
                format!("does not speak HTTP as Vault does ({place}: {why})"),
            ),
        };
        fault(kind, words)
    }
}

impl Answer {
    /// Vault's own words: short, printable, without anything that looks like a token.
    pub(super) fn errors(&self) -> String {
        #[derive(serde::Deserialize)]
        struct Errors {
            #[serde(default)]
            errors: Vec<String>,
        }
        let errors =
            serde_json::from_slice(&self.body).map_or(Vec::new(), |body: Errors| body.errors);
        let text = errors.join("; ");
        let words = text.split_whitespace().map(|word| {
            let hidden = ["hvs.", "hvb.", "hvr.", "s.", "b."].iter().any(|kind| {
                word.trim_start_matches(['"', '\'', '(']).starts_with(kind) && word.len() > 12
            });
            if hidden { "..." } else { word }
        });
        let text = words.collect::<Vec<_>>().join(" ");
        text.chars().filter(|c| !c.is_control()).take(MAX_WORDS).collect()
    }
}

/// rustls's error inside one of the system's.
fn inner_tls(why: &std::io::Error) -> Option<rustls::Error> {
    why.get_ref()?.downcast_ref::<rustls::Error>().cloned()
}

/// Bytes read; `None` if there are more than fit.
fn read_all(from: &mut impl std::io::Read, room: &mut [u8]) -> std::io::Result<Option<usize>> {
    let mut length = 0;
    while length < room.len() {
        match from.read(&mut room[length..])? {
            0 => return Ok(Some(length)),
            count => length += count,
        }
    }
    Ok(None)
}

/// Vault's answers to these questions are never longer.
const MAX_ANSWER: usize = 256 * 1024;
/// Of Vault's own words, in an error.
const MAX_WORDS: usize = 200;

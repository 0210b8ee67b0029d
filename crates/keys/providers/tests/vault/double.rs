//! A small double of Vault's HTTP API: what the provider asks, and the faults that it must see.
//!
//! The long test holds its answers against those of a real Vault.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::Prepared;

/// How the double is today.
#[derive(Clone, Copy)]
pub(crate) enum Mood {
    Fine,
    Sealed,
    Slow,
    /// Fails once, behind so many good answers.
    Fails(usize),
    Namespace(&'static str),
    Raw(&'static str),
}

/// A server that ends with the test's process.
pub(crate) struct Double {
    address: String,
    state: Arc<Mutex<State>>,
}

struct State {
    mood: Mood,
    asked: Vec<String>,
    renewed: bool,
    /// Ciphertext: key name and plaintext.
    sealed: HashMap<String, (String, String)>,
}

struct Asked {
    path: String,
    headers: HashMap<String, String>,
    body: Value,
}

pub(crate) const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

impl Double {
    pub(crate) fn start() -> Self {
        Self::serve(None)
    }

    pub(crate) fn start_tls(certificate: &Path, key: &Path) -> Self {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let chain = CertificateDer::pem_file_iter(certificate).unwrap().map(Result::unwrap);
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain.collect(), PrivateKeyDer::from_pem_file(key).unwrap())
            .unwrap();
        Self::serve(Some(Arc::new(config)))
    }

    fn serve(tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let address = format!("{scheme}://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State {
            mood: Mood::Fine,
            asked: Vec::new(),
            renewed: false,
            sealed: HashMap::new(),
        }));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (shared, tls) = (Arc::clone(&shared), tls.clone());
                std::thread::spawn(move || {
                    let stream: TcpStream = stream.unwrap();
                    match tls {
                        Some(config) => {
                            let tls = ServerConnection::new(config).unwrap();
                            converse(&mut StreamOwned::new(tls, stream), &shared);
                        }
                        None => converse(&mut { stream }, &shared),
                    }
                });
            }
        });
        Self { address, state }
    }

    pub(crate) fn set(&self, mood: Mood) {
        self.state.lock().unwrap().mood = mood;
    }

    /// The paths that were asked for.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.state.lock().unwrap().asked.clone()
    }

    pub(crate) fn prepared(&self) -> Prepared {
        Prepared {
            address: self.address.clone(),
            good: "hvs.good".into(),
            powerless: "hvs.powerless".into(),
            wraps: "hvs.wraps".into(),
            half: "hvs.half".into(),
            role_id: "role".into(),
            secret_id: "secret".into(),
        }
    }
}

/// One request, one answer; a client that breaks off is no failure of the double.
fn converse(stream: &mut (impl Read + Write), state: &Mutex<State>) {
    let Some(asked) = read(stream) else { return };
    let mood = {
        let mut state = state.lock().unwrap();
        let mood = state.mood;
        match mood {
            Mood::Fails(0) => state.mood = Mood::Fine,
            Mood::Fails(left) => state.mood = Mood::Fails(left - 1),
            _ => {}
        }
        mood
    };
    let (status, body) = match mood {
        Mood::Raw(text) => {
            let _ = stream.write_all(text.as_bytes()).and_then(|()| stream.flush());
            return;
        }
        Mood::Slow => {
            std::thread::sleep(Duration::from_secs(300));
            return;
        }
        Mood::Sealed | Mood::Fails(0) => (503, errors("Vault is sealed")),
        Mood::Namespace(name)
            if asked.headers.get("x-vault-namespace").map(String::as_str) != Some(name) =>
        {
            (404, errors("no handler for route"))
        }
        Mood::Namespace(_) | Mood::Fails(_) | Mood::Fine => {
            answer(&asked, &mut state.lock().unwrap())
        }
    };
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    );
    let _ = stream.write_all(text.as_bytes()).and_then(|()| stream.flush());
}

fn read(stream: &mut impl Read) -> Option<Asked> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.lines();
    let path = lines.next()?.split(' ').nth(1)?.strip_prefix("/v1/")?.to_string();
    let headers: HashMap<_, _> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_string()))
        .collect();
    let length = headers.get("content-length").map_or(0, |text| text.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    Some(Asked { path, headers, body })
}

fn errors(text: &str) -> Value {
    json!({ "errors": [text] })
}

fn good(data: Value) -> (u16, Value) {
    (200, envelope(data, Value::Null))
}

fn envelope(data: Value, auth: Value) -> Value {
    json!({
        "request_id": "9c1c0f7e", "lease_id": "", "renewable": false, "lease_duration": 0,
        "data": data, "wrap_info": null, "warnings": null, "auth": auth,
    })
}

fn granted(token: &str, seconds: u64, metadata: Value) -> (u16, Value) {
    let auth = json!({
        "client_token": token, "accessor": "a", "policies": ["default", "pg"],
        "token_policies": ["default", "pg"], "metadata": metadata, "lease_duration": seconds,
        "renewable": true, "entity_id": "", "token_type": "service", "orphan": true,
        "mfa_requirement": null, "num_uses": 0,
    });
    (200, envelope(Value::Null, auth))
}

fn answer(asked: &Asked, state: &mut State) -> (u16, Value) {
    state.asked.push(asked.path.clone());
    let text = |name: &str| asked.body[name].as_str().unwrap_or_default().to_string();
    if asked.path == "auth/approle/login" {
        return match (&*text("role_id"), &*text("secret_id")) {
            ("role", "secret") => granted("hvs.role", 1200, json!({ "role_name": "pg" })),
            _ => (500, errors("invalid secret id")),
        };
    }
    let token = asked.headers.get("x-vault-token").map_or("", String::as_str);
    let known = ["hvs.good", "hvs.powerless", "hvs.wraps", "hvs.half", "hvs.role"].contains(&token);
    let parts: Vec<_> = asked.path.split('/').collect();
    match &parts[..] {
        _ if !known => (403, errors("permission denied")),
        ["auth", "token", "lookup-self"] => {
            let (ttl, whole) = match token {
                "hvs.half" if !state.renewed => (1, 4),
                "hvs.half" => (4, 4),
                _ => (3500, 3600),
            };
            good(json!({
                "accessor": "a", "creation_time": 1, "creation_ttl": whole, "display_name": "token",
                "entity_id": "", "expire_time": "2026-01-01T00:00:00Z", "explicit_max_ttl": 0,
                "id": token, "issue_time": "2026-01-01T00:00:00Z", "meta": null, "num_uses": 0,
                "orphan": false, "path": "auth/token/create", "policies": ["default", "pg"],
                "renewable": true, "ttl": ttl, "type": "service",
            }))
        }
        ["auth", "token", "renew-self"] => {
            state.renewed |= token == "hvs.half";
            granted(token, if token == "hvs.half" { 4 } else { 3600 }, Value::Null)
        }
        ["auth", "token", "revoke-self"] => (204, Value::Null),
        _ if token == "hvs.powerless" || (token == "hvs.wraps" && parts[1] != "encrypt") => {
            (403, errors("1 error occurred:\n\t* permission denied\n\n"))
        }
        ["transit", "encrypt", key] => {
            let ciphertext = format!("vault:v1:{}", STANDARD.encode(fresh(state.sealed.len())));
            let entry = (key.to_string(), text("plaintext"));
            state.sealed.insert(ciphertext.clone(), entry);
            good(json!({ "ciphertext": ciphertext, "key_version": 1 }))
        }
        ["transit", "decrypt", "none"] => (400, errors("encryption key not found")),
        ["transit", "decrypt", key] => match state.sealed.get(&text("ciphertext")) {
            Some((name, plaintext)) if name == key => good(json!({ "plaintext": plaintext })),
            _ => (400, errors("cipher: message authentication failed")),
        },
        ["secret", "data", "db", "pg" | "pg?version=1"] => good(json!({
            "data": { "key": KEY, "note": "not a key" },
            "metadata": { "created_time": "t", "custom_metadata": null, "deletion_time": "",
                "destroyed": false, "version": 1 },
        })),
        ["secret", "data", ..] => (404, json!({ "errors": [] })),
        _ => (404, errors("no handler for route")),
    }
}

/// As long as what AES-256-GCM makes of 96 bytes.
fn fresh(number: usize) -> [u8; 124] {
    let mut out = [7; 124];
    out[..8].copy_from_slice(&number.to_le_bytes());
    out
}

//! A slot that Vault's transit engine wraps: the principal key never leaves it.
//!
//! Vault encrypts the payload and the SHA-256 of the slot's associated data, whatever the type of
//! the key and the version of the server; servers before 1.13 ignore `associated_data` without a
//! word, and what they wrapped would not open after their upgrade.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use tidelock_keyring::{
    Error, Health, PAYLOAD, Payload, Provider, ServiceFault, SlotKind, SlotTerms, Wrapping,
};
use zeroize::Zeroizing;

use super::session::Session;
use super::{SLOT, fault};

/// Wraps with one transit key.
pub(super) struct Transit {
    session: Session,
    mount: String,
    key: String,
}

#[derive(Deserialize)]
struct Data<T> {
    data: T,
}

#[derive(Deserialize)]
struct Ciphertext {
    ciphertext: String,
}

#[derive(Deserialize)]
struct Plaintext {
    plaintext: Zeroizing<String>,
}

impl Transit {
    pub(super) fn new(session: Session, mount: &str, key: &str) -> Self {
        Self { session, mount: mount.into(), key: key.into() }
    }

    fn path(&self, verb: &str) -> String {
        format!("{}/{verb}/{}", self.mount, self.key)
    }

    fn decrypt(&self, terms: &SlotTerms, ciphertext: &str) -> Result<Zeroizing<String>, Error> {
        let body = format!("{{\"ciphertext\":\"{ciphertext}\"}}");
        let answer = self.session.answer(&self.path("decrypt"), Some(body.as_bytes()))?;
        if answer.status.as_u16() == 400 {
            let said = answer.errors();
            let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
            if has(&["authentication failed", "unable to decrypt"]) {
                return Err(Error::WrongKey { slot: terms.id, provider: self.describe() });
            }
            if has(&["key not found"]) {
                let why = format!("has no transit key {} ({})", self.key, self.session.place());
                return Err(fault(ServiceFault::NotFound, why));
            }
            if has(&["disallowed by policy", "version is too new"]) {
                let place = self.session.place();
                let why = format!("no longer has this version of the key ({place}: {said})");
                return Err(fault(ServiceFault::Denied, why));
            }
        }
        if !answer.status.is_success() {
            return Err(self.session.refusal(&answer));
        }
        let Data { data: Plaintext { plaintext } } = self.session.read(&answer)?;
        Ok(plaintext)
    }
}

impl Provider for Transit {
    fn kind(&self) -> SlotKind {
        SLOT
    }

    fn describe(&self) -> String {
        format!("Vault transit key {}/{} at {}", self.mount, self.key, self.session.place())
    }

    fn wrapping(&self) -> Wrapping {
        Wrapping::Remote
    }

    fn reference(&self) -> String {
        format!("{}/{}", self.mount, self.key)
    }

    fn warnings(&self) -> Vec<String> {
        self.session.warnings()
    }

    fn wrap(&self, terms: &SlotTerms, payload: &Payload) -> Result<Vec<u8>, Error> {
        let mut plain = Zeroizing::new([0; PLAIN]);
        plain[..PAYLOAD].copy_from_slice(payload.expose());
        plain[PAYLOAD..].copy_from_slice(&bound(terms));
        let mut body = Zeroizing::new(String::with_capacity(512));
        body.push_str("{\"plaintext\":\"");
        STANDARD.encode_string(*plain, &mut body);
        body.push_str("\"}");
        let Data { data: Ciphertext { ciphertext } } =
            self.session.ask(&self.path("encrypt"), Some(body.as_bytes()))?;
        match sealed_length(&ciphertext) {
            Some(AEAD_LEAST..=AEAD_MOST) => Ok(ciphertext.into_bytes()),
            Some(_) => {
                let why = "wraps with a key that does not authenticate: use type aes256-gcm96";
                Err(fault(ServiceFault::Protocol, why))
            }
            None => Err(fault(ServiceFault::Protocol, "gave a ciphertext that is not Vault's")),
        }
    }

    fn unwrap(&self, terms: &SlotTerms, wrapped: &[u8]) -> Result<Payload, Error> {
        let payload = self.open(terms, wrapped)?;
        self.session.tend();
        Ok(payload)
    }

    fn check(&self, terms: &SlotTerms, wrapped: &[u8]) -> Result<Health, Error> {
        self.open(terms, wrapped)?;
        Ok(self.session.tend())
    }
}

impl Transit {
    fn open(&self, terms: &SlotTerms, wrapped: &[u8]) -> Result<Payload, Error> {
        let ciphertext = std::str::from_utf8(wrapped)
            .ok()
            .filter(|text| matches!(sealed_length(text), Some(AEAD_LEAST..=AEAD_MOST)))
            .ok_or(Error::Damaged { what: "a slot's wrapped bytes are not Vault's" })?;
        let plaintext = self.decrypt(terms, ciphertext)?;
        let mut plain = Zeroizing::new([0; PLAIN + 3]);
        let length = STANDARD.decode_slice(plaintext.as_bytes(), &mut *plain).ok();
        let (payload, rest) = plain.split_at(PAYLOAD);
        let whole = length == Some(PLAIN) && rest[..32] == bound(terms);
        let payload = Payload::from_slice(payload).filter(|_| whole);
        payload.ok_or(Error::Tampered { what: "its slot" })
    }
}

fn bound(terms: &SlotTerms) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, &terms.associated_data()).as_ref());
    out
}

/// Bytes behind `vault:vN:`, if that is what the text is.
fn sealed_length(text: &str) -> Option<usize> {
    let (version, sealed) = text.strip_prefix("vault:v")?.split_once(':')?;
    version.parse::<u32>().ok()?;
    STANDARD.decode(sealed).ok().map(|bytes| bytes.len())
}

/// Payload and digest.
const PLAIN: usize = PAYLOAD + 32;
/// Nonce of 12 bytes and tag of 16: AES-GCM and ChaCha20-Poly1305.
const AEAD_LEAST: usize = 12 + PLAIN + 16;
/// Less than any RSA ciphertext: a public key would wrap what an attacker chooses.
const AEAD_MOST: usize = 191;

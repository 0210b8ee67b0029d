//! Operations Encrypt and Decrypt (KMIP 1.4): the server wraps, and the principal key never leaves it.
//!
//! ```text
//!   version 1 | length of IV | IV | 64 bytes sealed, bound to the slot's terms | tag
//!             | length of IV | IV | 16 zeros sealed, bound to keyring and slot | tag
//! ```
//!
//! AES-256-GCM by the server. The second part tells another key from changed bytes. A server may take
//! another IV than it was given, so what it says is kept.

use kmip_protocol::types::common::Operation;
use tidelock_cipher::Secret;
use tidelock_keys::{
    Error, Health, KmipChoice, Payload, Provider, ServiceFault, SlotKind, SlotTerms, Wrapping,
};
use zeroize::Zeroizing;

use super::message::{
    Associated, Attributes, Data, Decrypt, Decrypted, Encrypt, Encrypted, GetAttribute, Iv, Name,
    Reason, Tag, aes_gcm,
};
use super::server::Server;
use super::{describe, fault};

/// Wraps with one key of one server.
pub(super) struct Encrypting {
    server: Server,
}

/// An IV and what it sealed, with its tag.
struct Sealed<'a> {
    iv: &'a [u8],
    bytes: &'a [u8],
    tag: &'a [u8],
}

impl Encrypting {
    pub(super) fn new(choice: &KmipChoice) -> Self {
        Self { server: Server::new(choice) }
    }

    fn protocol(&self, why: &str) -> Error {
        let (key, place) = (self.server.key(), self.server.place());
        fault(ServiceFault::Protocol, format!("{why} with key {key} ({place})"))
    }

    /// A shorter key would do everything else as well.
    fn check_length(&self) -> Result<(), Error> {
        let asked = GetAttribute(self.server.identifier(), Name(LENGTH));
        let told = self.server.ask::<_, Attributes>(MINOR, Operation::GetAttributes, asked)?;
        let told = told.map_err(|why| self.server.refused(&why))?;
        let mut attributes = told.attributes.into_iter().flatten();
        match attributes.find(|one| one.name == LENGTH) {
            Some(length) if length.value == 256 => Ok(()),
            _ => {
                let place = self.server.place();
                let why = format!("has no symmetric key of 256 bits there ({place})");
                Err(fault(ServiceFault::Protocol, why))
            }
        }
    }

    fn seal(&self, plain: &[u8], bound: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        let mut iv = [0; IV];
        aws_lc_rs::rand::fill(&mut iv).map_err(|_| Error::Crypto { what: "random bytes" })?;
        let asked = Encrypt(
            self.server.identifier(),
            aes_gcm(TAG_LENGTH),
            Data(plain),
            Iv(&iv),
            Associated(bound),
        );
        let told = self.server.ask::<_, Encrypted>(MINOR, Operation::Encrypt, asked)?;
        let told = told.map_err(|why| self.server.refused(&why))?;
        let iv = told.iv.as_ref().map_or(&iv[..], |iv| iv);
        let Some(tag) = told.tag.filter(|tag| tag.len() == TAG) else {
            return Err(self.protocol("does not authenticate what it encrypts"));
        };
        if told.data.len() != plain.len() || iv.is_empty() {
            return Err(self.protocol("encrypts to another length"));
        }
        out.push(u8::try_from(iv.len()).map_err(|_| self.protocol("has too long an IV"))?);
        out.extend_from_slice(iv);
        out.extend_from_slice(&told.data);
        out.extend_from_slice(&tag);
        Ok(())
    }

    /// `None` if the tag does not verify.
    fn open(&self, sealed: &Sealed<'_>, bound: &[u8]) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
        let asked = Decrypt(
            self.server.identifier(),
            aes_gcm(TAG_LENGTH),
            Data(sealed.bytes),
            Iv(sealed.iv),
            Associated(bound),
            Tag(sealed.tag),
        );
        match self.server.ask::<_, Decrypted>(MINOR, Operation::Decrypt, asked)? {
            Ok(told) => Ok(Some(Zeroizing::new(told.data.into_vec()))),
            // The standard names the first; PyKMIP says the second.
            Err(why)
                if matches!(
                    why.reason,
                    Some(Reason::CryptographicFailure | Reason::GeneralFailure)
                ) =>
            {
                Ok(None)
            }
            Err(why) => Err(self.server.refused(&why)),
        }
    }
}

impl Provider for Encrypting {
    fn kind(&self) -> SlotKind {
        SlotKind::Kmip
    }

    fn describe(&self) -> String {
        describe(&self.server)
    }

    fn wrapping(&self) -> Wrapping {
        Wrapping::Remote
    }

    fn reference(&self) -> String {
        self.server.key().into()
    }

    fn wrap(&self, terms: &SlotTerms, payload: &Payload) -> Result<Vec<u8>, Error> {
        self.check_length()?;
        let mut out = vec![VERSION];
        self.seal(payload.expose(), &terms.associated_data(), &mut out)?;
        self.seal(&CHECK, &check_data(terms), &mut out)?;
        Ok(out)
    }

    fn unwrap(&self, terms: &SlotTerms, wrapped: &[u8]) -> Result<Payload, Error> {
        if terms.wrapping != Wrapping::Remote {
            return Err(Error::NoSlot { keyring: terms.keyring, kind: SlotKind::Kmip });
        }
        let (sealed, check) = split(wrapped)
            .ok_or(Error::Damaged { what: "a slot's wrapped bytes have another form" })?;
        if let Some(plain) = self.open(&sealed, &terms.associated_data())? {
            return payload(&plain).ok_or_else(|| self.protocol("decrypts to another length"));
        }
        match self.open(&check, &check_data(terms))? {
            Some(_) => Err(Error::Tampered { what: "its slot" }),
            None => Err(Error::WrongKey { slot: terms.id, provider: self.describe() }),
        }
    }

    fn check(&self, terms: &SlotTerms, wrapped: &[u8]) -> Result<Health, Error> {
        self.unwrap(terms, wrapped)?;
        Ok(self.server.health())
    }
}

fn split(wrapped: &[u8]) -> Option<(Sealed<'_>, Sealed<'_>)> {
    let (version, rest) = wrapped.split_first()?;
    let (sealed, rest) = take(rest, PAYLOAD)?;
    let (check, rest) = take(rest, CHECK.len())?;
    (*version == VERSION && rest.is_empty()).then_some((sealed, check))
}

fn take(from: &[u8], length: usize) -> Option<(Sealed<'_>, &[u8])> {
    let (iv_length, rest) = from.split_first()?;
    let (iv, rest) = rest.split_at_checked(usize::from(*iv_length))?;
    let (bytes, rest) = rest.split_at_checked(length)?;
    let (tag, rest) = rest.split_at_checked(TAG)?;
    (!iv.is_empty()).then_some((Sealed { iv, bytes, tag }, rest))
}

fn payload(plain: &[u8]) -> Option<Payload> {
    let plain = <&[u8; PAYLOAD]>::try_from(plain).ok()?;
    let mut secret = Secret::new([0; PAYLOAD]);
    secret.expose_mut().copy_from_slice(plain);
    Some(Payload::from_secret(secret))
}

/// Bound to keyring and slot only, so that a changed parameter is told from another key.
fn check_data(terms: &SlotTerms) -> Vec<u8> {
    [b"tidelock v1 kmip key check", &terms.keyring.0[..], &terms.id.0[..]].concat()
}

/// Of the wrapped bytes.
const VERSION: u8 = 1;
const PAYLOAD: usize = 64;
/// As GCM likes it.
const IV: usize = 12;
const TAG: usize = 16;
const TAG_LENGTH: i32 = 16;
const CHECK: [u8; 16] = [0; 16];
/// KMIP 1.4 is the first with associated data and tags.
const MINOR: i32 = 4;
const LENGTH: &str = "Cryptographic Length";

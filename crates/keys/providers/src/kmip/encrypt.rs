//! Operations Encrypt and Decrypt (KMIP 1.4): the server wraps, and the principal key never leaves
//! it.
//!
//! AES-256-GCM by the server, in two parts.

use kmip_protocol::types::common::Operation;
use tidelock_keyring::{
    Error, Health, Payload, Provider, ServiceFault, SlotKind, SlotTerms, Wrapping,
};
use zeroize::Zeroizing;

use super::message::{
    Associated, Attributes, Data, Decrypt, Decrypted, Encrypt, Encrypted, GetAttribute, Iv, Name,
    Reason, Tag, aes_gcm,
};
use super::server::Server;
use super::{KmipChoice, SLOT, describe, fault};
use crate::two_parts::{self, Gcm, Sealed, TAG, TwoParts};

/// Wraps with one key of one server.
pub(super) struct Encrypting {
    server: Server,
}

impl Encrypting {
    pub(super) fn new(choice: &KmipChoice) -> Self {
        Self { server: Server::new(choice) }
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
}

impl Gcm for Encrypting {
    fn who(&self) -> String {
        self.describe()
    }

    fn fault(&self, why: &str) -> Error {
        let (key, place) = (self.server.key(), self.server.place());
        fault(ServiceFault::Protocol, format!("{why} with key {key} ({place})"))
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
            return Err(self.fault("does not authenticate what it encrypts"));
        };
        if told.data.len() != plain.len() || iv.is_empty() {
            return Err(self.fault("encrypts to another length"));
        }
        out.push(u8::try_from(iv.len()).map_err(|_| self.fault("has too long an IV"))?);
        out.extend_from_slice(iv);
        out.extend_from_slice(&told.data);
        out.extend_from_slice(&tag);
        Ok(())
    }

    fn open(&self, sealed: &Sealed<'_>, bound: &[u8]) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
        let (data, tag) = sealed.bytes.split_at(sealed.bytes.len() - TAG);
        let asked = Decrypt(
            self.server.identifier(),
            aes_gcm(TAG_LENGTH),
            Data(data),
            Iv(sealed.iv),
            Associated(bound),
            Tag(tag),
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
        SLOT
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
        two_parts::wrap(terms, LABEL, payload, self)
    }

    fn unwrap(&self, terms: &SlotTerms, wrapped: &[u8]) -> Result<Payload, Error> {
        if terms.wrapping != Wrapping::Remote {
            return Err(Error::NoSlot { keyring: terms.keyring, kind: SLOT });
        }
        TwoParts::parse(wrapped)?.open(terms, LABEL, self)
    }

    fn check(&self, terms: &SlotTerms, wrapped: &[u8]) -> Result<Health, Error> {
        self.unwrap(terms, wrapped)?;
        Ok(self.server.health())
    }
}

const LABEL: &str = "tidelock v1 kmip key check";
/// As GCM likes it.
const IV: usize = 12;
const TAG_LENGTH: i32 = 16;
/// KMIP 1.4 is the first with associated data and tags.
const MINOR: i32 = 4;
const LENGTH: &str = "Cryptographic Length";

//! What a key provider does for a slot: it wraps the keyring key, or gives the principal key that
//! does.
//!
//! ```text
//!   keyring key --Provider::wrap--> bytes of a slot --Provider::unwrap--> keyring key
//!
//!   PrincipalKey   gives a principal key; the wrapping is done here (direct)
//!   Provider       wraps by itself, so that the principal key never leaves it
//! ```
//!
//! A provider is made from the caller's configuration, never from what the protected directory
//! says.

mod direct;

use tidelock_cipher::Secret;

use crate::error::Error;
use crate::slot::{Kdf, Payload, SlotKind, SlotTerms, Wrapping};

/// Wraps and unwraps the keyring key.
pub trait Provider {
    /// The type of its slots.
    fn kind(&self) -> SlotKind;

    /// For messages: `key file /etc/x.key`. Never a secret.
    fn describe(&self) -> String;

    /// Who wraps.
    fn wrapping(&self) -> Wrapping;

    /// Which principal key, for a new slot; travels in the slot as associated data.
    fn reference(&self) -> String {
        String::new()
    }

    /// The passphrase function of a new slot.
    fn kdf(&self) -> Kdf {
        Kdf::None
    }

    /// What an operator should change about it, as sentences without an end. Asks nobody.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Wraps, bound to [`SlotTerms::associated_data`]. Whoever makes a slot unwraps it at
    /// once, unless a passphrase opens it: this need not try.
    ///
    /// # Errors
    /// The provider does not answer, or refuses.
    fn wrap(&self, terms: &SlotTerms, payload: &Payload) -> Result<Vec<u8>, Error>;

    /// Unwraps what [`Provider::wrap`] made for the same terms.
    ///
    /// # Errors
    /// [`Error::WrongKey`] for another principal key, [`Error::Tampered`] for changed terms or
    /// bytes; the provider does not answer, or refuses.
    fn unwrap(&self, terms: &SlotTerms, wrapped: &[u8]) -> Result<Payload, Error>;

    /// Would this slot open after a restart, now and without anybody at a terminal? Really unwraps.
    ///
    /// # Errors
    /// Why not.
    fn check(&self, terms: &SlotTerms, wrapped: &[u8]) -> Result<Health, Error> {
        self.unwrap(terms, wrapped).map(|_| Health::default())
    }
}

/// What a provider that works says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Health {
    /// The first thing of it that runs out, and the seconds left: a token, a certificate.
    pub expires: Option<(String, u64)>,
}

/// What a principal key is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A new slot: a passphrase is asked twice.
    NewSlot,
    /// A slot that exists.
    Unlock,
}

/// A provider that hands out its principal key.
pub trait PrincipalKey {
    /// The type of its slots.
    fn kind(&self) -> SlotKind;

    /// For messages. Never a secret.
    fn describe(&self) -> String;

    /// As [`Provider::reference`].
    fn reference(&self) -> String {
        String::new()
    }

    /// The passphrase function of a new slot.
    fn kdf(&self) -> Kdf {
        Kdf::None
    }

    /// As [`Provider::warnings`].
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// What [`Provider::check`] says after the slot has opened.
    fn health(&self) -> Health {
        Health::default()
    }

    /// The principal key.
    ///
    /// # Errors
    /// It cannot be had.
    fn principal_key(&self, terms: &SlotTerms, purpose: Purpose) -> Result<Secret<32>, Error>;
}

impl<P: PrincipalKey> Provider for P {
    fn kind(&self) -> SlotKind {
        PrincipalKey::kind(self)
    }

    fn describe(&self) -> String {
        PrincipalKey::describe(self)
    }

    fn wrapping(&self) -> Wrapping {
        Wrapping::Direct
    }

    fn reference(&self) -> String {
        PrincipalKey::reference(self)
    }

    fn warnings(&self) -> Vec<String> {
        PrincipalKey::warnings(self)
    }

    fn kdf(&self) -> Kdf {
        PrincipalKey::kdf(self)
    }

    fn wrap(&self, terms: &SlotTerms, payload: &Payload) -> Result<Vec<u8>, Error> {
        direct::wrap(&self.principal_key(terms, Purpose::NewSlot)?, terms, payload)
    }

    fn unwrap(&self, terms: &SlotTerms, wrapped: &[u8]) -> Result<Payload, Error> {
        if terms.wrapping != Wrapping::Direct {
            return Err(Error::NoSlot { keyring: terms.keyring, kind: terms.kind });
        }
        let key = self.principal_key(terms, Purpose::Unlock)?;
        direct::unwrap(&key, terms, wrapped, || PrincipalKey::describe(self))
    }

    fn check(&self, terms: &SlotTerms, wrapped: &[u8]) -> Result<Health, Error> {
        self.unwrap(terms, wrapped)?;
        Ok(PrincipalKey::health(self))
    }
}

//! A PKCS#11 token wraps: AES-256-GCM under a key that stays in the token.
//!
//! ```text
//!   version 1 | length of IV | IV | 64 bytes sealed, bound to the slot's terms | tag
//!             | length of IV | IV | 16 zeros sealed, bound to keyring and slot | tag
//! ```
//!
//! The second part tells another key from changed bytes. A token may choose its own IV, so what it
//! says it used is kept. Every call loads the module, logs in, logs out and ends the module, so that
//! nothing of it lives on in a process that forks. The PIN goes to the token and nowhere else.

use std::cell::{Cell, OnceCell};
use std::sync::{Mutex, PoisonError};

use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error as TokenError, RvError};
use cryptoki::mechanism::aead::GcmParams;
use cryptoki::mechanism::{Mechanism, MechanismType};
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle};
use cryptoki::session::{Session, UserType};
use cryptoki::slot::Slot;
use cryptoki::types::AuthPin;
use tidelock_cipher::Secret;
use tidelock_keys::{
    Error, Payload, PinSource, Pkcs11Choice, Provider, ServiceFault, SlotKind, SlotTerms, Wrapping,
    ask_on_terminal, check_code, read_descriptor, read_secret_line,
};
use zeroize::Zeroizing;

const VERSION: u8 = 1;
const IV: usize = 12;
const TAG: usize = 16;
const PAYLOAD: usize = 64;
const CHECK: [u8; 16] = [0; 16];

/// A module is initialised once for a process.
static MODULE: Mutex<()> = Mutex::new(());

/// Opens slots with a key in a PKCS#11 token.
pub(crate) struct Pkcs11Provider {
    choice: Pkcs11Choice,
    descriptor: Option<u32>,
    /// Asked once, however many slots are tried.
    pin: OnceCell<AuthPin>,
    /// A token counts wrong PINs and locks itself: one that was wrong is not tried on another slot.
    wrong: Cell<bool>,
}

impl Pkcs11Provider {
    /// A PIN that is to be asked is read from `descriptor`, if there is one.
    pub(crate) fn new(choice: &Pkcs11Choice, descriptor: Option<u32>) -> Self {
        let choice = choice.clone();
        Self { choice, descriptor, pin: OnceCell::new(), wrong: Cell::new(false) }
    }

    /// Runs `work` with the key, in a session of its own.
    fn with_key<T>(
        &self,
        work: impl FnOnce(&Session, ObjectHandle) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let _alone = MODULE.lock().unwrap_or_else(PoisonError::into_inner);
        let module = Pkcs11::new(check_code(&self.choice.module)?).map_err(|why| {
            // The loader's words name the path and the reason.
            self.fault(ServiceFault::NotFound, &format!("has no usable module: {why}"))
        })?;
        module
            .initialize(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK))
            .map_err(|why| self.token_error("does not start", &why))?;
        let done = self.in_session(&module, work);
        let _ = module.finalize();
        done
    }

    fn in_session<T>(
        &self,
        module: &Pkcs11,
        work: impl FnOnce(&Session, ObjectHandle) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let slot = self.find_token(module)?;
        let mechanisms = module
            .get_mechanism_list(slot)
            .map_err(|why| self.token_error("does not list its mechanisms", &why))?;
        if !mechanisms.contains(&MechanismType::AES_GCM) {
            return Err(self.fault(ServiceFault::Protocol, "has no AES-GCM (CKM_AES_GCM)"));
        }
        let session = module
            .open_ro_session(slot)
            .map_err(|why| self.token_error("opens no session", &why))?;
        self.log_in(module, slot, &session)?;
        let key = self.find_key(&session)?;
        let done = work(&session, key);
        let _ = session.logout();
        done
    }

    /// The one token with the configured label and serial number.
    fn find_token(&self, module: &Pkcs11) -> Result<Slot, Error> {
        let slots = module
            .get_slots_with_token()
            .map_err(|why| self.token_error("does not list its tokens", &why))?;
        let mut found = slots.into_iter().filter(|slot| {
            module.get_token_info(*slot).is_ok_and(|info| {
                let is = |wanted: &Option<String>, name: &str| {
                    wanted.as_ref().is_none_or(|wanted| wanted == name.trim_end())
                };
                is(&self.choice.token, info.label())
                    && is(&self.choice.serial, info.serial_number())
            })
        });
        match (found.next(), found.next()) {
            (Some(slot), None) => Ok(slot),
            (None, _) => Err(self.fault(ServiceFault::NotFound, "has no such token")),
            (Some(_), Some(_)) => {
                let why = "has several such tokens: name its serial number too";
                Err(self.fault(ServiceFault::NotFound, why))
            }
        }
    }

    fn log_in(&self, module: &Pkcs11, slot: Slot, session: &Session) -> Result<(), Error> {
        if self.wrong.get() {
            return Err(self.wrong_pin());
        }
        let info = module
            .get_token_info(slot)
            .map_err(|why| self.token_error("does not describe its token", &why))?;
        if info.user_pin_locked() {
            return Err(self.fault(ServiceFault::Locked, "is locked after too many wrong PINs"));
        }
        match session.login(UserType::User, Some(self.pin()?)) {
            Ok(()) | Err(TokenError::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => Ok(()),
            Err(TokenError::Pkcs11(
                RvError::PinIncorrect | RvError::PinInvalid | RvError::PinLenRange,
                _,
            )) => {
                self.wrong.set(true);
                Err(self.wrong_pin())
            }
            Err(why) => Err(self.token_error("does not let the user log in", &why)),
        }
    }

    fn wrong_pin(&self) -> Error {
        self.fault(ServiceFault::Credentials, "refuses the PIN")
    }

    fn pin(&self) -> Result<&AuthPin, Error> {
        if let Some(pin) = self.pin.get() {
            return Ok(pin);
        }
        let bytes = match (&self.choice.pin, self.descriptor) {
            (PinSource::File(path), _) => read_secret_line(path)?,
            (PinSource::Ask, Some(number)) => read_descriptor(number)?,
            (PinSource::Ask, None) => ask_on_terminal(&format!("PIN of {}: ", self.place()))?,
        };
        let text = std::str::from_utf8(&bytes).ok().filter(|text| !text.is_empty());
        let text = text.ok_or_else(|| {
            self.fault(ServiceFault::Credentials, "was given a PIN that is empty or not UTF-8")
        })?;
        Ok(self.pin.get_or_init(|| AuthPin::from(Box::<str>::from(text))))
    }

    /// The one AES-256 key with the configured label and id.
    fn find_key(&self, session: &Session) -> Result<ObjectHandle, Error> {
        let mut wanted =
            vec![Attribute::Class(ObjectClass::SECRET_KEY), Attribute::KeyType(KeyType::AES)];
        wanted.extend(self.choice.key.as_ref().map(|key| Attribute::Label(key.clone().into())));
        wanted.extend(self.choice.id.as_ref().map(|id| Attribute::Id(id.clone())));
        let found = session
            .find_objects(&wanted)
            .map_err(|why| self.token_error("does not list its keys", &why))?;
        match found.as_slice() {
            [key] => Ok(*key),
            [] => Err(self.fault(ServiceFault::NotFound, "has no such AES key")),
            _ => {
                let why = "has several such AES keys: name the id too";
                Err(self.fault(ServiceFault::NotFound, why))
            }
        }
    }

    /// A new slot wants a key of 256 bits that nobody can read out of the token.
    fn check_key(&self, session: &Session, key: ObjectHandle) -> Result<(), Error> {
        let attributes = session
            .get_attributes(key, &[AttributeType::ValueLen, AttributeType::Sensitive])
            .map_err(|why| self.token_error("does not describe the key", &why))?;
        for attribute in attributes {
            match attribute {
                Attribute::ValueLen(length) if *length != 32 => {
                    let why = "has another AES key there than one of 256 bits";
                    return Err(self.fault(ServiceFault::Denied, why));
                }
                Attribute::Sensitive(false) => {
                    let why = "would show the key to whoever logs in: it is not sensitive";
                    return Err(self.fault(ServiceFault::Denied, why));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn seal(
        &self,
        (session, key): (&Session, ObjectHandle),
        plain: &[u8],
        bound: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let mut iv = [0; IV];
        session
            .generate_random_slice(&mut iv)
            .map_err(|why| self.token_error("gives no random bytes", &why))?;
        let mechanism = Mechanism::AesGcm(self.parameters(&mut iv, bound)?);
        let sealed = session
            .encrypt(&mechanism, key, plain)
            .map_err(|why| self.token_error("does not encrypt with the key", &why))?;
        if sealed.len() != plain.len() + TAG {
            return Err(self.fault(ServiceFault::Protocol, "wraps to another length"));
        }
        out.push(u8::try_from(IV).expect("12 fits"));
        out.extend_from_slice(&iv);
        out.extend_from_slice(&sealed);
        Ok(())
    }

    /// `None` if the tag does not verify.
    fn open(
        &self,
        (session, key): (&Session, ObjectHandle),
        sealed: &Sealed<'_>,
        bound: &[u8],
    ) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
        let mut iv = sealed.iv.to_vec();
        let mechanism = Mechanism::AesGcm(self.parameters(&mut iv, bound)?);
        match session.decrypt(&mechanism, key, sealed.bytes) {
            Ok(plain) => Ok(Some(Zeroizing::new(plain))),
            // The standard names the first; SoftHSM says the second.
            Err(TokenError::Pkcs11(
                RvError::EncryptedDataInvalid
                | RvError::GeneralError
                | RvError::EncryptedDataLenRange,
                _,
            )) => Ok(None),
            Err(why) => Err(self.token_error("does not decrypt with the key", &why)),
        }
    }

    fn parameters<'a>(&self, iv: &'a mut [u8], bound: &'a [u8]) -> Result<GcmParams<'a>, Error> {
        let bits = cryptoki::types::Ulong::from(128);
        GcmParams::new(iv, bound, bits)
            .map_err(|why| self.token_error("does not take such parameters", &why))
    }

    fn place(&self) -> String {
        self.choice.key_uri()
    }

    fn fault(&self, fault: ServiceFault, why: &str) -> Error {
        let why = format!("{why} ({} by {})", self.place(), self.choice.module.display());
        Error::Service { provider: SlotKind::Pkcs11, fault, why }
    }

    fn token_error(&self, what: &str, why: &TokenError) -> Error {
        let fault = match why {
            TokenError::Pkcs11(why, _) => fault_of(*why),
            _ => ServiceFault::Protocol,
        };
        self.fault(fault, &format!("{what}: {why}"))
    }
}

impl Provider for Pkcs11Provider {
    fn kind(&self) -> SlotKind {
        SlotKind::Pkcs11
    }

    fn describe(&self) -> String {
        format!("token key {}", self.place())
    }

    fn wrapping(&self) -> Wrapping {
        Wrapping::Remote
    }

    fn reference(&self) -> String {
        self.place()
    }

    fn wrap(&self, terms: &SlotTerms, payload: &Payload) -> Result<Vec<u8>, Error> {
        self.with_key(|session, key| {
            self.check_key(session, key)?;
            let mut out = vec![VERSION];
            self.seal((session, key), payload.expose(), &terms.associated_data(), &mut out)?;
            self.seal((session, key), &CHECK, &check_data(terms), &mut out)?;
            Ok(out)
        })
    }

    fn unwrap(&self, terms: &SlotTerms, wrapped: &[u8]) -> Result<Payload, Error> {
        let (sealed, check) = split(wrapped)
            .ok_or(Error::Damaged { what: "a slot's wrapped bytes have another form" })?;
        self.with_key(|session, key| {
            if let Some(plain) = self.open((session, key), &sealed, &terms.associated_data())? {
                return payload(&plain).ok_or_else(|| {
                    self.fault(ServiceFault::Protocol, "unwraps to another length")
                });
            }
            match self.open((session, key), &check, &check_data(terms))? {
                Some(_) => Err(Error::Tampered { what: "its slot" }),
                None => Err(Error::WrongKey { slot: terms.id, provider: self.describe() }),
            }
        })
    }
}

/// An IV and what it sealed.
struct Sealed<'a> {
    iv: &'a [u8],
    bytes: &'a [u8],
}

fn split(wrapped: &[u8]) -> Option<(Sealed<'_>, Sealed<'_>)> {
    let (version, rest) = wrapped.split_first()?;
    let (sealed, rest) = take(rest, PAYLOAD + TAG)?;
    let (check, rest) = take(rest, CHECK.len() + TAG)?;
    (*version == VERSION && rest.is_empty()).then_some((sealed, check))
}

fn take(from: &[u8], length: usize) -> Option<(Sealed<'_>, &[u8])> {
    let (iv_length, rest) = from.split_first()?;
    let (iv, rest) = rest.split_at_checked(usize::from(*iv_length))?;
    let (bytes, rest) = rest.split_at_checked(length)?;
    (!iv.is_empty()).then_some((Sealed { iv, bytes }, rest))
}

fn payload(plain: &[u8]) -> Option<Payload> {
    let plain = <&[u8; PAYLOAD]>::try_from(plain).ok()?;
    let mut secret = Secret::new([0; PAYLOAD]);
    secret.expose_mut().copy_from_slice(plain);
    Some(Payload::from_secret(secret))
}

/// Bound to keyring and slot only, so that a changed parameter is told from another key.
fn check_data(terms: &SlotTerms) -> Vec<u8> {
    [b"tidelock v1 token key check", &terms.keyring.0[..], &terms.id.0[..]].concat()
}

const fn fault_of(why: RvError) -> ServiceFault {
    match why {
        RvError::PinExpired | RvError::UserPinNotInitialized | RvError::UserNotLoggedIn => {
            ServiceFault::Credentials
        }
        RvError::PinLocked => ServiceFault::Locked,
        RvError::KeyFunctionNotPermitted | RvError::ActionProhibited => ServiceFault::Denied,
        RvError::DeviceRemoved | RvError::DeviceError | RvError::TokenNotPresent => {
            ServiceFault::NoAnswer
        }
        _ => ServiceFault::Protocol,
    }
}

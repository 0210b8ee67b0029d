//! A PKCS#11 token wraps: AES-256-GCM under a key that stays in the token.
//!
//! Every call loads the module, logs in, logs out and ends the module, so that
//! nothing of it lives on in a process that forks. The PIN goes to the token and nowhere else.
//!
//! A module may never come back from a call: it runs in a thread of its own, which is left behind
//! then. Where a person is asked for the PIN there is no such limit: that person can end it.

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::error::{Error as TokenError, RvError};
use cryptoki::mechanism::aead::GcmParams;
use cryptoki::mechanism::{Mechanism, MechanismType};
use cryptoki::object::{Attribute, AttributeType, KeyType, ObjectClass, ObjectHandle};
use cryptoki::session::{Session, UserType};
use cryptoki::slot::{Slot, TokenInfo};
use cryptoki::types::AuthPin;
use tidelock_keyring::{Error, Payload, Provider, ServiceFault, SlotKind, SlotTerms, Wrapping};
use zeroize::Zeroizing;

use super::{PinSource, Pkcs11Choice, SLOT};
use crate::descriptor::Descriptor;
use crate::terminal::ask;
use crate::trust::{check_code, read_secret_line};
use crate::two_parts::{self, Gcm, Sealed, TAG, TwoParts};

const IV: usize = 12;
const LABEL: &str = "tidelock v1 token key check";

/// A module is initialised once for a process.
static MODULE: Mutex<()> = Mutex::new(());

/// A token counts wrong PINs and locks itself: one that was wrong is not tried again by this
/// process, whichever slot, keyring or part of a command asks.
static REFUSED: Mutex<Vec<Attempt>> = Mutex::new(Vec::new());

/// Opens slots with a key in a PKCS#11 token.
pub(super) struct Pkcs11Provider(Arc<Token>);

/// A key in a token, and who gives the PIN.
struct Token {
    choice: Pkcs11Choice,
    descriptor: Option<Descriptor>,
    /// Asked once, however many slots are tried.
    pin: OnceLock<Pin>,
}

/// A PIN, and its SHA-256, by which it is known again.
struct Pin {
    code: AuthPin,
    digest: Zeroizing<[u8; 32]>,
}

/// A PIN at a token.
#[derive(PartialEq, Eq)]
struct Attempt {
    module: PathBuf,
    label: String,
    serial: String,
    digest: Zeroizing<[u8; 32]>,
}

impl Pkcs11Provider {
    /// A PIN that is to be asked is read from `descriptor`, if there is one.
    pub(super) fn new(choice: &Pkcs11Choice, descriptor: Option<&Descriptor>) -> Self {
        let (choice, descriptor) = (choice.clone(), descriptor.cloned());
        Self(Arc::new(Token { choice, descriptor, pin: OnceLock::new() }))
    }

    /// As [`Token::with_key`], for as long as the choice says.
    fn with_key<T: Send + 'static>(
        &self,
        work: impl FnOnce(&OpenKey<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let token = Arc::clone(&self.0);
        if token.choice.pin == PinSource::Ask {
            return token.with_key(work);
        }
        let limit = token.choice.timeout_seconds;
        let (give, take) = sync_channel(1);
        let thread = thread::Builder::new().name("pkcs11".to_owned());
        let thread = thread
            .spawn(move || give.send(token.with_key(work)).is_ok())
            .map_err(Error::io("start a thread for", &self.0.choice.module))?;
        match take.recv_timeout(Duration::from_secs(limit.into())) {
            Ok(done) => {
                // Nothing of it runs when this process forks.
                let _ = thread.join();
                done
            }
            Err(RecvTimeoutError::Timeout) => {
                let why = format!("did not answer within {limit} s");
                Err(self.0.fault(ServiceFault::NoAnswer, &why))
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(self.0.fault(ServiceFault::Protocol, "ended in the middle of a call"))
            }
        }
    }
}

impl Token {
    /// Runs `work` with the key, in a session of its own.
    fn with_key<T>(&self, work: impl FnOnce(&OpenKey<'_>) -> Result<T, Error>) -> Result<T, Error> {
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
        work: impl FnOnce(&OpenKey<'_>) -> Result<T, Error>,
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
        let done = work(&OpenKey { token: self, session: &session, key });
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
        let info = module
            .get_token_info(slot)
            .map_err(|why| self.token_error("does not describe its token", &why))?;
        if info.user_pin_locked() {
            return Err(self.fault(ServiceFault::Locked, "is locked after too many wrong PINs"));
        }
        let pin = self.pin()?;
        let attempt = Attempt::of(&self.choice, &info, pin);
        if attempt.was_refused() {
            return Err(self.wrong_pin());
        }
        if info.user_pin_final_try() && self.choice.pin != PinSource::Ask {
            // Nobody may be there who knows whether the file is right.
            let why = "has one try left for its PIN, which is not used unattended";
            return Err(self.fault(ServiceFault::Credentials, why));
        }
        match session.login(UserType::User, Some(&pin.code)) {
            Ok(()) | Err(TokenError::Pkcs11(RvError::UserAlreadyLoggedIn, _)) => Ok(()),
            Err(TokenError::Pkcs11(
                RvError::PinIncorrect | RvError::PinInvalid | RvError::PinLenRange,
                _,
            )) => {
                attempt.remember();
                Err(self.wrong_pin())
            }
            Err(why) => Err(self.token_error("does not let the user log in", &why)),
        }
    }

    fn wrong_pin(&self) -> Error {
        self.fault(ServiceFault::Credentials, "refuses the PIN")
    }

    fn pin(&self) -> Result<&Pin, Error> {
        if let Some(pin) = self.pin.get() {
            return Ok(pin);
        }
        let bytes = match (&self.choice.pin, &self.descriptor) {
            (PinSource::File(path), _) => read_secret_line(path)?,
            (PinSource::Ask, Some(given)) => given.first()?,
            (PinSource::Ask, None) => ask(&format!("PIN of {}: ", self.place()))?,
        };
        let text = std::str::from_utf8(&bytes).ok().filter(|text| !text.is_empty());
        let text = text.ok_or_else(|| {
            self.fault(ServiceFault::Credentials, "was given a PIN that is empty or not UTF-8")
        })?;
        Ok(self.pin.get_or_init(|| Pin::new(text)))
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

    fn parameters<'a>(&self, iv: &'a mut [u8], bound: &'a [u8]) -> Result<GcmParams<'a>, Error> {
        let bits = cryptoki::types::Ulong::from(128);
        GcmParams::new(iv, bound, bits)
            .map_err(|why| self.token_error("does not take such parameters", &why))
    }

    fn describe(&self) -> String {
        format!("token key {}", self.place())
    }

    fn place(&self) -> String {
        self.choice.key_uri()
    }

    fn fault(&self, fault: ServiceFault, why: &str) -> Error {
        let why = format!("{why} ({} by {})", self.place(), self.choice.module.display());
        Error::Service { provider: SLOT, fault, why }
    }

    fn token_error(&self, what: &str, why: &TokenError) -> Error {
        let fault = match why {
            TokenError::Pkcs11(why, _) => fault_of(*why),
            _ => ServiceFault::Protocol,
        };
        self.fault(fault, &format!("{what}: {why}"))
    }
}

impl Pin {
    fn new(text: &str) -> Self {
        let mut known = Zeroizing::new([0; 32]);
        known.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
        Self { code: AuthPin::from(Box::<str>::from(text)), digest: known }
    }
}

impl Attempt {
    fn of(choice: &Pkcs11Choice, token: &TokenInfo, pin: &Pin) -> Self {
        Self {
            module: choice.module.clone(),
            label: token.label().to_owned(),
            serial: token.serial_number().to_owned(),
            digest: pin.digest.clone(),
        }
    }

    fn was_refused(&self) -> bool {
        REFUSED.lock().unwrap_or_else(PoisonError::into_inner).contains(self)
    }

    fn remember(self) {
        REFUSED.lock().unwrap_or_else(PoisonError::into_inner).push(self);
    }
}

/// The key, in a session that is logged in.
#[derive(Clone, Copy)]
struct OpenKey<'s> {
    token: &'s Token,
    session: &'s Session,
    key: ObjectHandle,
}

impl Gcm for OpenKey<'_> {
    fn who(&self) -> String {
        self.token.describe()
    }

    fn fault(&self, why: &str) -> Error {
        self.token.fault(ServiceFault::Protocol, why)
    }

    fn seal(&self, plain: &[u8], bound: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
        let Self { token, session, key } = *self;
        let mut iv = [0; IV];
        session
            .generate_random_slice(&mut iv)
            .map_err(|why| token.token_error("gives no random bytes", &why))?;
        let mechanism = Mechanism::AesGcm(token.parameters(&mut iv, bound)?);
        let sealed = session
            .encrypt(&mechanism, key, plain)
            .map_err(|why| token.token_error("does not encrypt with the key", &why))?;
        if sealed.len() != plain.len() + TAG {
            return Err(self.fault("wraps to another length"));
        }
        out.push(u8::try_from(IV).expect("12 fits"));
        out.extend_from_slice(&iv);
        out.extend_from_slice(&sealed);
        Ok(())
    }

    fn open(&self, sealed: &Sealed<'_>, bound: &[u8]) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
        let Self { token, session, key } = *self;
        let mut iv = sealed.iv.to_vec();
        let mechanism = Mechanism::AesGcm(token.parameters(&mut iv, bound)?);
        match session.decrypt(&mechanism, key, sealed.bytes) {
            Ok(plain) => Ok(Some(Zeroizing::new(plain))),
            // The standard names the first; SoftHSM says the second.
            Err(TokenError::Pkcs11(
                RvError::EncryptedDataInvalid
                | RvError::GeneralError
                | RvError::EncryptedDataLenRange,
                _,
            )) => Ok(None),
            Err(why) => Err(token.token_error("does not decrypt with the key", &why)),
        }
    }
}

impl Provider for Pkcs11Provider {
    fn kind(&self) -> SlotKind {
        SLOT
    }

    fn describe(&self) -> String {
        self.0.describe()
    }

    fn wrapping(&self) -> Wrapping {
        Wrapping::Remote
    }

    fn reference(&self) -> String {
        self.0.place()
    }

    fn wrap(&self, terms: &SlotTerms, payload: &Payload) -> Result<Vec<u8>, Error> {
        let terms = terms.clone();
        let payload =
            Payload::from_slice(payload.expose()).ok_or(Error::Crypto { what: "a copy" })?;
        self.with_key(move |open| {
            open.token.check_key(open.session, open.key)?;
            two_parts::wrap(&terms, LABEL, &payload, open)
        })
    }

    fn unwrap(&self, terms: &SlotTerms, wrapped: &[u8]) -> Result<Payload, Error> {
        TwoParts::parse(wrapped)?;
        let (terms, wrapped) = (terms.clone(), wrapped.to_vec());
        self.with_key(move |open| TwoParts::parse(&wrapped)?.open(&terms, LABEL, open))
    }
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

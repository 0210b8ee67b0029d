//! A key in a PKCS#11 token, which wraps. A PIN is never part of the configuration.

mod choice;
mod token;

use std::path::Path;

use tidelock_keyring::{Error, Provider, SlotKind};

pub(crate) use choice::{PinSource, Pkcs11Choice};

use crate::descriptor::Descriptor;
use crate::room::{Kind, Room, some};

const SLOT: SlotKind = SlotKind::new(9, "pkcs11");

impl Room for Pkcs11Choice {
    fn kind() -> Kind {
        Kind::service(SLOT, "pkcs11:URI")
    }

    fn from_text(text: Option<&str>) -> Result<Option<Self>, Error> {
        some(text).map(str::parse).transpose()
    }

    fn open(&self, _: &Path, descriptor: Option<&Descriptor>) -> Result<Box<dyn Provider>, Error> {
        Ok(Box::new(token::Pkcs11Provider::new(self, descriptor)))
    }

    fn is_unattended(&self) -> bool {
        self.pin != PinSource::Ask
    }
}

//! Keys of one file, and the types that keep plain and sealed bytes apart.
//!
//! ```text
//!   data key (32 bytes) --HKDF-Expand--> file key (64 bytes) --install--> UnitCipher slot
//!                       --HKDF-Expand--> MAC key  (32 bytes) ------------> header MAC
//!
//!   first bytes --choose--> Proven header
//!   Plain bytes --seal_units--> Sealed<'_> --only these--> kernel
//! ```
//!
//! Knows no files and no descriptors. Cryptography is AWS-LC's: HKDF and HMAC here, AES-256-XTS
//! behind [`UnitCipher`], which `ffi` implements.

mod choose;
mod derive;
mod sealed;
mod secret;
mod stream;
mod unit;

pub use choose::{HeldKeys, Proven, choose};
pub use derive::{DataKey, FileKey, Label};
pub use sealed::{Sealed, SealedHeader, seal_units};
pub use secret::Secret;
pub use stream::{StreamChanged, StreamMac};
pub use unit::{KeySlot, Root, UnitCipher, UnlockError, is_zero, open_units};

//! The keyring of a protected directory, what a provider must do to open it, and the policy inside.
//!
//! ```text
//!   profile (TOML) --compile--> Policy ---+
//!                                         v
//!   KeyringDir --read--> SealedKeyring --unlock--> Keyring: data keys, layout, policy
//!                                         ^
//!                                      Provider (trait)
//! ```
//!
//! Knows no provider by name: `tidelock-providers` has them, and which of them opens which keyring.

#![forbid(unsafe_code)]

mod conversion;
mod derive;
mod error;
mod keyring;
mod ownership;
mod profile;
mod provider;
mod slot;
mod store;
mod way;

pub use conversion::{Conversion, Direction};
pub use error::{Error, ExitClass, Failures, ServiceFault};
pub use keyring::{DataKeyEntry, Keyring, SealedKeyring};
pub use ownership::check_unshared;
pub use profile::{Amendment, Profile, ProfileError, Rule as ProfileRule, needs_a_stop};
pub use provider::{Health, PrincipalKey, Provider, Purpose};
pub use slot::{Kdf, PAYLOAD, Payload, Slot, SlotId, SlotKind, SlotTerms, Wrapping};
pub use store::{Held, KEYRING, KeyringDir, REPLACED, WITHOUT_KEYRING, digest};
pub use way::{Blocked, walk};

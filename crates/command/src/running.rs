//! What runs on a protected directory with its keys.
//!
//! ```text
//!   programs   those that have keys, by the lock file that each holds open
//!   agent      the one that holds the keyring, where it can be, whose word is believed
//! ```
//!
//! The server itself, with or without the library, is `server`'s.

mod agent;
mod programs;

pub(crate) use agent::{Agent, Found, SilentAgent, users};
pub(crate) use programs::Programs;

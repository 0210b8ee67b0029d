//! What the preload library and the agent tell each other, and the files by which they find each
//! other.
//!
//! ```text
//!   agent                                        library in a database server
//!     |--- ID.programs, ID.policy, ID.start -----> beside the socket   (control, notice, starter)
//!     |<-- Request ------------------------------- SOCK_SEQPACKET        (wire, connection)
//!     |--- Grant: data keys, layout, Policy -----> what is sealed, how   (wire/grant, policy)
//!     |--- generation in .tidelock/lock ---------> keys have changed     (control)
//!                     .tidelock/lock ------------> shared memory         (meeting)
//! ```
//!
//! `exit` is for whoever started them: what both end with.
//!
//! A leaf: everything here is carried by every listed program, so nothing parses text, derives keys
//! from passphrases, or listens.

#![forbid(unsafe_code)]

pub mod connection;
pub mod control;
mod exit;
mod meeting;
mod notice;
mod policy;
pub mod postgres;
mod starter;
pub mod wire;
mod writer;

pub use exit::ExitClass;
pub use meeting::{MEMORY_FOLDERS, Meeting, MeetingError, meet, part};
pub use notice::{MAX_NOTICE, Notice};
pub use policy::{
    Action, Decision, Glob, GlobError, MAX_POLICY, Origin, Policy, PolicyError, Rule, RuleIndex,
    Tablespace, names_program,
};
pub use starter::{Starter, StarterError};
pub use writer::Writer;

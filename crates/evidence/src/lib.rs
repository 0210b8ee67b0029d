//! What is shown to somebody who has to be convinced: bytes that are searched for plaintext, and a
//! report that says what was found, with a MAC.
//!
//! ```text
//!   raw bytes of a file --> Scan --> Seen       signatures, markers, statistics (signature, scan)
//!                                     |
//!   its name            --> Kind      |         what people call such a file (kind)
//!                             +-------+--> Coverage, a row for each kind (coverage)
//!
//!   facts (JSON) --canonical--> MAC --> Document        (document)
//!                                          |--> JSON    as it is
//!                                          +--> HTML    rendered from the same facts (page)
//!   a document --> check: the MAC is right, and a page is what its facts render to
//! ```
//!
//! Knows no keyring and opens no directory: the command brings bytes, names and facts. What the
//! search cannot see is said by [`NOT_SHOWN`], and in each report.
#![forbid(unsafe_code)]

mod controls;
mod coverage;
mod document;
mod kind;
mod page;
mod scan;
mod signature;

pub use controls::{Control, controls};
pub use coverage::{Coverage, Row};
pub use document::{Checked, Document, DocumentError, sha256};
pub use kind::Kind;
pub use page::render;
pub use scan::{Form, Markers, MarkersError, NOT_SHOWN, Scan, Seen, Sight};
pub use signature::Signature;

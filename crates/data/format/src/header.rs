//! The header: two copies, each within one 512-byte sector, the valid one with the higher sequence
//! wins.
//!
//! A torn first write leaves one whole copy and zeros; a torn update leaves the other copy: neither
//! can leave a doubtful file, so anything else is damage and an error. Nothing here is proven:
//! which copy counts is told by MACs, in `tidelock_cipher::choose`.

mod fields;
mod front;
mod region;

pub use fields::{
    COPY_LEN, Cipher, Form, Header, HeaderCopy, HeaderError, Kdf, MAC_LEN, MAGIC, NONCE_LEN,
    Outline, SIGNED_LEN, VERSION, bytes_agree, looks_sealed,
};
pub use front::Front;
pub use region::{HeaderRegion, PROBE_LEN, Probe, SECOND_COPY_AT, Start, WHOLE, WHOLE_AT};

//! The header: two copies, each within one 512-byte sector, the valid one with the higher sequence wins.
//!
//! A header that exists as [`Header`] has a good MAC; [`UnverifiedHeader`] has good fields only. A torn
//! first write leaves one whole copy and zeros; a torn update leaves the other copy: neither can leave a
//! doubtful file, so anything else is damage and an error.

mod fields;
mod region;

pub use fields::{
    COPY_LEN, Cipher, Header, HeaderError, Kdf, MAC_LEN, MAGIC, NONCE_LEN, SIGNED_LEN,
    UnverifiedHeader, VERSION, looks_sealed,
};
pub use region::{HeaderRegion, PROBE_LEN, Probe, SECOND_COPY_AT};

//! The sealed file format, version 1: what lies where on the disk, and what a size means.
//!
//! Pure arithmetic and byte layout, as FORMAT.md draws it. Knows no keys and no descriptors, never
//! allocates and makes no system call. Every function of sizes and offsets takes the [`Layout`].
//!
//! ```text
//!   plain offset --layout--> disk offset          (place)
//!   plain size   <--layout-> disk size            (size)
//!   plain range  ----------> units, edges         (span)
//!   256 bytes    <---------> Header               (header)
//!   64 bytes     <---------> EndMark              (stream)
//! ```

mod class;
mod header;
mod ident;
mod place;
mod size;
mod span;
mod stream;
mod wire;

pub use class::{Class, ZeroRule};
pub use header::{
    COPY_LEN, Cipher, Form, Front, Header, HeaderCopy, HeaderError, HeaderRegion, Kdf, MAC_LEN,
    MAGIC, NONCE_LEN, Outline, PROBE_LEN, Probe, SECOND_COPY_AT, SIGNED_LEN, Start, VERSION, WHOLE,
    WHOLE_AT, bytes_agree, looks_sealed,
};
pub use ident::{DataKeyId, Generation, KeyringId, Nonce};
pub use place::{DiskOffset, Layout, LayoutError, PlainOffset, UnitNumber};
pub use size::{DiskSize, PlainSize};
pub use span::{BLOCK, BLOCK_USIZE, Span, UNIT, UNIT_USIZE};
pub use stream::{END_LEN, END_MAGIC, END_SIGNED_LEN, EndMark};
pub use wire::{Reader, Truncated};

//! What PostgreSQL's control file says of checksums and full-page writes. It is sealed.
//!
//! Offsets of `ControlFileData` (src/include/catalog/pg_control.h), the same from version 13 to 18.

use std::path::Path;

use rustix::fs::OFlags;
use serde::Serialize;
use tidelock_format::UNIT_USIZE;

use crate::sealed::{Content, Keys, Wanted};
use crate::walk::open_file;

const VERSION_AT: usize = 8;
const STATE_AT: usize = 16;
/// `checkPointCopy.fullPageWrites`
const FULL_PAGE_WRITES_AT: usize = 56;
/// A constant by which a server knows its own byte order and number format.
const FLOAT_FORMAT_AT: usize = 208;
const FLOAT_FORMAT: f64 = 1_234_567.0;
const CHECKSUMS_AT: usize = 252;

/// A few fields of global/pg_control.
#[derive(Clone, Serialize)]
pub(crate) struct ControlFile {
    pub(crate) version: u32,
    pub(crate) state: &'static str,
    pub(crate) data_checksums: bool,
    /// As of the last checkpoint.
    pub(crate) full_page_writes: bool,
}

impl ControlFile {
    /// Reads it; `None` if there is none, or one of another form.
    pub(crate) fn read(dir: &Path, keys: &Keys) -> Option<Self> {
        let file = open_file(&dir.join("global/pg_control"), OFlags::RDONLY).ok()?;
        let Ok(Content::Sealed(sealed)) = keys.open(file, Wanted::Any) else { return None };
        let mut bytes = vec![0u8; UNIT_USIZE];
        let size = sealed.plain_size().ok()?;
        let count = sealed.read_plain(0, size, &mut bytes).ok()?;
        Self::parse(bytes.get(..count)?)
    }

    /// True if the server was stopped, and nothing is to be recovered.
    pub(crate) fn is_clean(&self) -> bool {
        ["shut down", "shut down in recovery"].contains(&self.state)
    }

    /// From its plain bytes.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let float = f64::from_le_bytes(*bytes.get(FLOAT_FORMAT_AT..)?.first_chunk()?);
        if float.to_bits() != FLOAT_FORMAT.to_bits() {
            return None;
        }
        let number = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        Some(Self {
            version: number(VERSION_AT)?,
            state: match number(STATE_AT)? {
                0 => "starting up",
                1 => "shut down",
                2 => "shut down in recovery",
                3 => "shutting down",
                4 => "in crash recovery",
                5 => "in archive recovery",
                6 => "in production",
                _ => "unknown",
            },
            data_checksums: number(CHECKSUMS_AT)? != 0,
            full_page_writes: bytes.get(FULL_PAGE_WRITES_AT)? != &0,
        })
    }
}

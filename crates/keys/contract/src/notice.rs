//! What a program without keys is told: which directory is protected, and which of its files are
//! sealed.
//!
//! ```text
//!    0  4  magic "TDLP"
//!    4  2  version, 1
//!    6  4  data offset
//!   10     directory (text)
//!          policy, to the end
//! ```
//!
//! Lies beside the socket, as the list of programs does; stays when the agent ends. Nothing in it
//! is secret, and nobody gets keys by it.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tidelock_format::{Layout, Reader, Truncated};

use crate::policy::Policy;
use crate::wire::WireError;
use crate::writer::Writer;

const MAGIC: &[u8; 4] = b"TDLP";
const VERSION: u16 = 1;
/// A policy has at most 64 KiB, a path 4.
pub const MAX_NOTICE: usize = 80 * 1024;

/// The protected directory of an agent, for programs without keys.
pub struct Notice {
    /// The directory, canonical.
    pub directory: PathBuf,
    /// Where the units of its files begin.
    pub layout: Layout,
    /// Which files are sealed.
    pub policy: Policy,
}

impl Notice {
    /// The file's bytes.
    #[must_use]
    pub fn encode(directory: &Path, layout: Layout, policy: &Policy) -> Vec<u8> {
        let directory = directory.as_os_str().as_bytes();
        let policy = policy.encode();
        let mut out = Writer::with_capacity(12 + directory.len() + policy.len());
        out.bytes(MAGIC);
        out.u16(VERSION);
        out.u32(layout.data_offset());
        out.text(directory);
        out.bytes(&policy);
        out.into_bytes()
    }

    /// Reads the file.
    ///
    /// # Errors
    /// [`WireError::Damaged`].
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let damaged = |_: Truncated| WireError::Damaged("notice");
        let mut from = Reader::new(bytes);
        if from.bytes(MAGIC.len()).map_err(damaged)? != MAGIC
            || from.u16().map_err(damaged)? != VERSION
        {
            return Err(WireError::Damaged("notice"));
        }
        let layout = Layout::new(from.u32().map_err(damaged)?);
        let layout = layout.map_err(|_| WireError::Damaged("data offset"))?;
        let len = usize::from(from.u16().map_err(damaged)?);
        let directory = from.bytes(len).map_err(damaged)?;
        let directory = PathBuf::from(std::ffi::OsStr::from_bytes(directory));
        if !directory.is_absolute() {
            return Err(WireError::Damaged("directory"));
        }
        let policy = Policy::decode(from.rest()).map_err(|_| WireError::Damaged("policy"))?;
        Ok(Self { directory, layout, policy })
    }
}

#[cfg(test)]
mod tests {
    use tidelock_format::Class;

    use super::*;
    use crate::policy::{Action, Glob, Origin, Rule};

    #[test]
    fn a_notice_is_read_as_it_was_written_and_a_cut_one_is_refused() {
        let glob = Glob::new(b"**").unwrap();
        let rule = Rule { glob, action: Action::Seal(Class::Log), origin: Origin::Owner };
        let names = vec!["server".to_owned()];
        let policy = Policy::new("test".into(), names, Vec::new(), None, vec![rule]).unwrap();
        let layout = Layout::new(8192).unwrap();
        let bytes = Notice::encode(Path::new("/srv/main"), layout, &policy);
        assert!(bytes.len() < MAX_NOTICE);
        let read = Notice::decode(&bytes).unwrap();
        assert_eq!(read.directory, Path::new("/srv/main"));
        assert_eq!((read.layout, read.policy), (layout, policy));
        for len in 0..bytes.len() {
            assert!(Notice::decode(&bytes[..len]).is_err(), "{len}");
        }
    }
}

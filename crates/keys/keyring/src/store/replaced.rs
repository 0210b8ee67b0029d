//! A keyring that another takes the place of stays beside it: `keyring.replaced-N`, the newest of
//! the highest number.
//!
//! It is a copy, made before the replacement, so a crash leaves one keyring too many, never too
//! few. What cannot be read as a keyring is kept as well.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use rustix::fs::{AtFlags, Dir, Gid, Mode, OFlags, Uid, fstat, openat, unlinkat};
use rustix::io::Errno;

use super::KeyringDir;
use crate::error::Error;

/// How their names begin; a number follows.
pub const PREFIX: &str = "keyring.replaced-";
/// As many stay.
const KEPT: u32 = 8;

impl KeyringDir {
    /// Keeps what is there beside it, unless it is just `next`. Where it is now; `None` if nothing
    /// is lost by writing `next`.
    ///
    /// # Errors
    /// [`Error::Io`]: then nothing must be replaced.
    pub(super) fn keep_replaced(&self, next: &[u8]) -> Result<Option<PathBuf>, Error> {
        let present = match self.bytes() {
            Ok(present) if present == next => return Ok(None),
            Ok(present) => present,
            // What is no regular file never was a keyring.
            Err(Error::NoKeyring { .. } | Error::LooseFile { .. }) => return Ok(None),
            Err(Error::Io { source, .. })
                if source.raw_os_error() == Some(Errno::LOOP.raw_os_error()) =>
            {
                return Ok(None);
            }
            Err(why) => return Err(why),
        };
        let numbers = self.numbers()?;
        let number = numbers.iter().max().map_or(1, |highest| highest.saturating_add(1));
        let name = format!("{PREFIX}{number}");
        let path = self.path.join(&name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let bits = Mode::RUSR | Mode::WUSR;
        let file = openat(&self.folder, &name, flags | OFlags::NOFOLLOW, bits)
            .map_err(|errno| Error::io("create", &path)(errno.into()))?;
        let mut file = File::from(file);
        let mut write = || {
            let owner = fstat(&self.folder)?;
            self.give_to(&file, (Uid::from_raw(owner.st_uid), Gid::from_raw(owner.st_gid)))?;
            file.write_all(&present)?;
            file.sync_all()?;
            self.folder.sync_all()
        };
        if let Err(why) = write() {
            let _ = unlinkat(&self.folder, &name, AtFlags::empty());
            return Err(Error::io("write", path)(why));
        }
        for old in numbers.iter().filter(|old| old.saturating_add(KEPT) <= number) {
            let _ = unlinkat(&self.folder, format!("{PREFIX}{old}"), AtFlags::empty());
        }
        Ok(Some(path))
    }

    fn numbers(&self) -> Result<Vec<u32>, Error> {
        let failed = |errno: Errno| Error::io("list", &self.path)(errno.into());
        let mut numbers = Vec::new();
        for entry in Dir::read_from(&self.folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let number = entry.file_name().to_str().ok().and_then(|it| it.strip_prefix(PREFIX));
            numbers.extend(number.and_then(|number| number.parse::<u32>().ok()));
        }
        Ok(numbers)
    }
}

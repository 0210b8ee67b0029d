//! Which directory a unit is installed for: protected already, or to be made when it first starts.

use std::path::{Path, PathBuf};

use tidelock_providers::{Config, Places};

use crate::error::{Error, Result};
use crate::init;
use crate::owner::Owner;
use crate::protected::{Protected, is_protected};
use crate::service::plan::{Unit, below};
use crate::unlock;

/// The directory of a unit, and what is configured for it.
pub(super) struct Target {
    /// Without links, and without the root of an image.
    pub(super) path: PathBuf,
    /// A path that exists on the disk where it lies or will lie, without the root of an image.
    pub(super) there: PathBuf,
    /// Whose it is or will be.
    pub(super) owner: Owner,
    /// It has a keyring already.
    pub(super) exists: bool,
    /// Root's.
    pub(super) config: Config,
}

impl Target {
    /// `dir`; else what /etc/tidelock/UNIT.toml names, or Debian's cluster has.
    ///
    /// # Errors
    /// It is neither protected nor configured to be made; nothing is configured for it.
    pub(super) fn find(unit: &Unit, dir: Option<&Path>, root: &Path) -> Result<Self> {
        // A server's agent is started with an empty environment: only root's configuration is
        // found.
        let places = Places { system: below(root, Path::new("/etc/tidelock")), own: None };
        let dir = match (dir, places.by_name(&unit.to_string())?) {
            (Some(dir), _) => dir.to_path_buf(),
            (None, Some(named)) => named.directory,
            (None, None) => unit.data_directory(root)?,
        };
        let here = if root == Path::new("/") { dir.clone() } else { below(root, &dir) };
        let named = places.named(&dir)?.filter(|named| named.config.auto_init);
        let Some(named) = named.filter(|_| !is_protected(&here)) else {
            let protected = Protected::open(&here)?;
            let path = without(root, &protected.path)?;
            let id = protected.keyring.id();
            let owner = Owner::of(&protected.path)?;
            // In an image the recorded directory is not where it will be.
            let config = match root == Path::new("/") {
                true => unlock::find_to_open(&places, id, &path, owner)?,
                false => places.find(id, &path)?,
            };
            let config = config.ok_or_else(|| not_configured(&path, id))?;
            return Ok(Self { there: path.clone(), path, owner, exists: true, config });
        };
        let (above, name) = (here.parent(), here.file_name());
        let above = above.unwrap_or(&here).canonicalize().map_err(Error::io("find", &here))?;
        let real = here.canonicalize().unwrap_or_else(|_| above.join(name.unwrap_or_default()));
        let there = if real.exists() { &real } else { &above };
        let owner = match init::configured_owner(&named)? {
            Some(owner) => owner,
            None => Owner::of(there)?,
        };
        Ok(Self {
            path: without(root, &real)?,
            there: without(root, there)?,
            owner,
            exists: false,
            config: named.config,
        })
    }
}

impl Target {
    /// A directory of this machine that will be protected, and configured, before the unit is
    /// installed.
    pub(super) fn to_be(dir: &Path, owner: Owner) -> Self {
        let (path, there) = (dir.to_path_buf(), dir.to_path_buf());
        Self { path, there, owner, exists: true, config: Config::default() }
    }
}

/// The path as the machine of an image has it.
fn without(root: &Path, path: &Path) -> Result<PathBuf> {
    let root = root.canonicalize().map_err(Error::io("find", root))?;
    let inside = path.strip_prefix(&root).map_err(|_| {
        Error::refused(
            format!("{} does not lie below {}", path.display(), root.display()),
            "with --root, the directory is one of the image",
        )
    })?;
    Ok(Path::new("/").join(inside))
}

fn not_configured(dir: &Path, id: tidelock_format::KeyringId) -> Error {
    Error::refused(
        format!("no provider is configured for {} in /etc/tidelock", dir.display()),
        format!("write /etc/tidelock/keyrings/{id}.toml, as docs/configuration.md shows"),
    )
}

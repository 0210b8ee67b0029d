//! What stands between the server and the kernel, and where the built command and library are.

use std::env;
use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use object::read::elf::{ElfFile64, ElfSymbol64};
use object::{Endianness, Object as _, ObjectSymbol as _, ReadCache};

use crate::error::{Error, Result, ensure};
use crate::unlinked;

/// One side of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arm {
    /// The stock server, nothing preloaded.
    Plain,
    /// The library is loaded and nothing is protected.
    Idle,
    /// The data directory is protected; every tool runs under `tidelock exec`.
    Sealed,
}

impl fmt::Display for Arm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Idle => "idle",
            Self::Sealed => "sealed",
        })
    }
}

/// The built command and library, at paths that the servers' account can reach.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The command `tidelock`.
    pub command: PathBuf,
    /// `libtidelock_preload.so`.
    pub library: PathBuf,
}

impl Programs {
    /// Where the command has to be: beside the running program, or where `TIDELOCK_BUILT` says.
    ///
    /// # Errors
    /// When the running program cannot be found.
    pub fn command_beside() -> Result<PathBuf> {
        Ok(built_dir()?.join("tidelock"))
    }

    /// Looks at both where they have to be, before anything is made: with a library that hooks
    /// nothing, what is measured or tested as sealed would be plain.
    ///
    /// # Errors
    /// [`Error::Missing`], or [`Error::Unexpected`] for a library without hooks.
    pub fn check() -> Result<()> {
        Self::built().map(|_| ())
    }

    /// Finds both beside the running program (`target/PROFILE`; installed, the library is in
    /// `../lib/tidelock`), or where `TIDELOCK_BUILT` says, and
    /// copies them into `shelf` if the servers' account could not read them there.
    ///
    /// # Errors
    /// [`Error::Missing`] when they are not built.
    pub fn find(shelf: &Path) -> Result<Self> {
        let found = Self::built()?;
        if reachable(&found.command) && reachable(&found.library) {
            return Ok(found);
        }
        let copy = |from: &Path| -> Result<PathBuf> {
            let to = shelf.join(from.file_name().unwrap_or_default());
            if !to.exists() {
                let what = format!("copying {} to {}", from.display(), to.display());
                unlinked::copy_program(from, &to).map_err(Error::io(what))?;
            }
            Ok(to)
        };
        Ok(Self { command: copy(&found.command)?, library: copy(&found.library)? })
    }

    /// Both where they have to be, as [`Programs::check`] does.
    ///
    /// # Errors
    /// As [`Programs::check`].
    pub fn built() -> Result<Self> {
        let dir = built_dir()?;
        let above = dir.parent().unwrap_or(&dir);
        let library = [dir.clone(), above.join("lib/tidelock"), above.join("lib")]
            .into_iter()
            .map(|dir| dir.join(LIBRARY))
            .find(|path| path.is_file())
            .unwrap_or_else(|| dir.join(LIBRARY));
        let found = Self { command: Self::command_beside()?, library };
        for path in [&found.command, &found.library] {
            if !path.is_file() {
                let hint = "make debug for tests, else make; or set TIDELOCK_BUILT=DIR";
                return Err(Error::Missing { path: path.clone(), hint });
            }
        }
        ensure(has_hooks(&found.library), || {
            format!(
                "{} does not hook file calls: it is damaged, or another library",
                found.library.display()
            )
        })?;
        Ok(found)
    }
}

/// True if the library defines a hook of libc's file calls.
fn has_hooks(library: &Path) -> bool {
    let Ok(file) = fs::File::open(library) else { return false };
    let data = ReadCache::new(file);
    ElfFile64::<Endianness, _>::parse(&data).is_ok_and(|library| {
        let is_hook = |symbol: ElfSymbol64<'_, '_, _, _>| {
            symbol.is_definition() && symbol.name_bytes() == Ok(b"openat")
        };
        library.dynamic_symbols().any(is_hook)
    })
}

const LIBRARY: &str = "libtidelock_preload.so";

/// `target/PROFILE`: where the test binary's own directory, or its parent, has the library.
fn built_dir() -> Result<PathBuf> {
    if let Some(dir) = env::var_os("TIDELOCK_BUILT") {
        return Ok(dir.into());
    }
    let me = env::current_exe().map_err(Error::io("finding the running program"))?;
    let dir = me.parent().unwrap_or(Path::new("/"));
    let above = if dir.ends_with("deps") { dir.parent().unwrap_or(dir) } else { dir };
    Ok(above.to_path_buf())
}

/// Whether everybody may read and execute `path` and pass through all directories above it.
fn reachable(path: &Path) -> bool {
    let everybody = |path: &Path| {
        fs::metadata(path).is_ok_and(|meta| meta.permissions().mode() & 0o005 == 0o005)
    };
    path.ancestors().all(everybody)
}

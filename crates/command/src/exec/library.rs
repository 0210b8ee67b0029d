//! Where the preload library is, and whether ld.so can be told of it.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSymbol, ReadCache};

use crate::error::{Error, Result};
use crate::this_program;

/// Its file.
const NAME: &str = "libtidelock_preload.so";

/// The preload library.
pub(crate) struct Library {
    /// Its absolute path.
    pub(crate) path: PathBuf,
}

impl Library {
    /// $TIDELOCK_LIBRARY, or beside this program, in ../lib/tidelock or in ../lib.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is nowhere, or where ld.so cannot be pointed to.
    pub(crate) fn find() -> Result<Self> {
        let path = match std::env::var_os("TIDELOCK_LIBRARY") {
            Some(given) => Path::new(&given).canonicalize().ok().filter(|path| path.is_file()),
            None => beside_this_program(),
        };
        let path = path.ok_or_else(|| {
            Error::refused(
                format!("{NAME} is not where it belongs: beside tidelock or in ../lib/tidelock"),
                "install it there, or name it with TIDELOCK_LIBRARY; without it nothing would be \
                 sealed",
            )
        })?;
        // ld.so takes both for the end of a name, and there is no quoting.
        if path.as_os_str().as_bytes().iter().any(|byte| b": ".contains(byte)) {
            return Err(Error::refused(
                format!(
                    "{} cannot be preloaded: ld.so ends a name at blanks and colons",
                    path.display()
                ),
                "install tidelock in a directory without them",
            ));
        }
        let library = Self { path };
        Self::refuse_without_hooks(&library.path)?;
        Ok(library)
    }

    /// ld.so only warns of a file that is no library, and says nothing of one that hooks nothing.
    ///
    /// # Errors
    /// It cannot be read; [`Error::Refused`].
    pub(crate) fn refuse_without_hooks(path: &Path) -> Result<()> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        let data = ReadCache::new(file);
        let hooks = ElfFile64::<Endianness, _>::parse(&data).is_ok_and(|library| {
            let is_hook = |symbol: object::read::elf::ElfSymbol64<'_, '_, _, _>| {
                symbol.is_definition() && symbol.name_bytes() == Ok(b"openat")
            };
            library.dynamic_symbols().any(is_hook)
        });
        if hooks {
            return Ok(());
        }
        Err(Error::refused(
            format!(
                "{} does not hook file calls: it is damaged, or built without them",
                path.display()
            ),
            "install it again; built by hand: `make debug`, or `make`",
        ))
    }
}

fn beside_this_program() -> Option<PathBuf> {
    let program = this_program::path().ok()?;
    let folder = program.parent()?;
    let above = folder.parent().unwrap_or(folder);
    [folder.to_path_buf(), above.join("lib/tidelock"), above.join("lib")]
        .into_iter()
        .map(|folder| folder.join(OsStr::new(NAME)))
        .find(|path| path.is_file())
}

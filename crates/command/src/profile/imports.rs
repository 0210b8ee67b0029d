//! The functions that a program and the libraries it needs import, and which of them are glibc's.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::path::{Path, PathBuf};

use object::elf::FileHeader64;
use object::read::elf::{Dyn, FileHeader, Sym, VersionTable};
use object::{Endianness, ReadCache, ReadRef, elf};

use crate::error::{Error, Result};

/// Where libraries are looked for; the loader's cache is not read.
const FOLDERS: [&str; 7] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/usr/local/lib",
];
/// glibc's own: what they import from each other is their affair.
const GLIBC: [&str; 9] = [
    "libc.so.6",
    "libm.so.6",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
    "libresolv.so.2",
    "libutil.so.1",
    "libanl.so.1",
    "ld-linux-x86-64.so.2",
];

/// What a program needs.
#[derive(Default)]
pub(super) struct Imports {
    /// Function, and whether it is glibc's.
    pub(super) names: BTreeMap<String, bool>,
    /// The libraries that were looked at.
    pub(super) libraries: Vec<PathBuf>,
    /// Those that are not in the usual places.
    pub(super) missing: Vec<String>,
}

impl Imports {
    /// Those of a program and of all libraries that it needs, glibc's own left out.
    ///
    /// # Errors
    /// A file cannot be read, or is no ELF file.
    pub(super) fn of(program: &Path) -> Result<Self> {
        let mut imports = Self::default();
        let mut queue = VecDeque::from([program.to_path_buf()]);
        while let Some(path) = queue.pop_front() {
            for name in imports.add(&path)? {
                if GLIBC.contains(&name.as_str()) {
                    continue;
                }
                match find(&name, &path) {
                    Some(found) if !imports.libraries.contains(&found) => {
                        imports.libraries.push(found.clone());
                        queue.push_back(found);
                    }
                    None if !imports.missing.contains(&name) => imports.missing.push(name),
                    _ => {}
                }
            }
        }
        Ok(imports)
    }

    /// Adds the imports of one file; the libraries that it needs.
    fn add(&mut self, path: &Path) -> Result<Vec<String>> {
        let file = File::open(path).map_err(Error::io("open", path))?;
        let data = ReadCache::new(file);
        self.parse(&data)
            .map_err(|why| Error::io("read the imports of", path)(std::io::Error::other(why)))
    }

    fn parse<'d, R: ReadRef<'d>>(&mut self, data: R) -> object::Result<Vec<String>> {
        let header = FileHeader64::<Endianness>::parse(data)?;
        let endian = header.endian()?;
        let sections = header.sections(endian, data)?;
        let symbols = sections.symbols(endian, data, elf::SHT_DYNSYM)?;
        let versions = sections.versions(endian, data)?;
        for (index, symbol) in symbols.enumerate() {
            if symbol.is_undefined(endian) && symbol.st_type() != elf::STT_OBJECT {
                let name =
                    String::from_utf8_lossy(symbols.symbol_name(endian, symbol)?).into_owned();
                let of_libc = versions.as_ref().is_some_and(|table| is_glibc(endian, table, index));
                if !name.is_empty() {
                    *self.names.entry(name).or_default() |= of_libc;
                }
            }
        }
        let Some((entries, link)) = sections.dynamic(endian, data)? else { return Ok(Vec::new()) };
        let strings = sections.strings(endian, data, link)?;
        let needed = entries.iter().filter(|entry| entry.tag(endian) == elf::DT_NEEDED);
        needed
            .map(|entry| Ok(String::from_utf8_lossy(entry.string(endian, strings)?).into_owned()))
            .collect()
    }
}

fn is_glibc(
    endian: Endianness,
    table: &VersionTable<'_, FileHeader64<Endianness>>,
    index: object::SymbolIndex,
) -> bool {
    let version = table.version(table.version_index(endian, index).index());
    matches!(version, Ok(Some(version)) if version.name().starts_with(b"GLIBC_"))
}

/// A needed library: beside the file that needs it, or in a usual place.
fn find(name: &str, needed_by: &Path) -> Option<PathBuf> {
    let beside = needed_by.parent().unwrap_or(needed_by);
    let beside = [beside.to_path_buf(), beside.join("../lib")];
    let usual = FOLDERS.iter().map(PathBuf::from);
    usual.chain(beside).map(|folder| folder.join(name)).find_map(|path| path.canonicalize().ok())
}

//! Counts the instructions that a program executes between its marks, and whose they are.
//!
//! ```text
//!   step/step.c      one step of the processor after the other (ptrace), into a file
//!        |
//!   counted          sections, each address with how often it was executed
//!        |
//!   Library          whose an address is: the library's own code, the cipher, everything else
//! ```
//!
//! The counts are the same on each run and each machine, whatever else it does: only what chooses
//! its code by the processor (AWS-LC, libc) differs, and is kept apart. valgrind would not do: it
//! knows no AVX-512, and to the agent a program under it is another program, which gets no keys.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSymbol as _};
use tidelock_servers::{Bounded as _, Error, Result};

/// What one section executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Instructions of the library's own code.
    pub library: u64,
    /// Instructions of the cipher: AWS-LC, and the path of our own for some processors.
    pub cipher: u64,
    /// Everything else: the program, libc. A system call is one.
    pub others: u64,
}

/// The program that steps, compiled into `into`.
///
/// # Errors
/// With gcc's words.
pub fn compile(into: &Path) -> Result<PathBuf> {
    let program = into.join("step");
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-o"]).arg(&program);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("step/step.c");
    let done = gcc.arg(source).finish().map_err(Error::io("running gcc"))?;
    match done.status.success() {
        true => Ok(program),
        false => Err(Error::Unexpected(String::from_utf8_lossy(&done.stderr).into_owned())),
    }
}

/// The sections of what `step` wrote, by name.
///
/// # Errors
/// When it is not what `step` writes, or the library cannot be read.
pub fn counted(trace: &str, library: &Path) -> Result<BTreeMap<String, Count>> {
    let library = Library::read(library, trace)?;
    let mut sections: BTreeMap<String, Count> = BTreeMap::new();
    let mut now = None;
    for line in trace.lines().filter(|line| !line.starts_with("map ")) {
        if let Some(name) = line.strip_prefix("begin ") {
            now = Some(sections.entry(name.to_owned()).or_default());
            continue;
        }
        let broken = || Error::Unexpected(format!("no line of step: {line:?}"));
        let (at, times) = line.split_once(' ').ok_or_else(broken)?;
        let at = u64::from_str_radix(at, 16).map_err(|_| broken())?;
        let times: u64 = times.parse().map_err(|_| broken())?;
        let section = now.as_mut().ok_or_else(broken)?;
        *match library.whose(at) {
            Whose::Library => &mut section.library,
            Whose::Cipher => &mut section.cipher,
            Whose::Others => &mut section.others,
        } += times;
    }
    Ok(sections)
}

/// Where the library lies in the program, and its functions.
struct Library {
    base: u64,
    end: u64,
    /// Where each begins, and whether it is of the cipher.
    functions: BTreeMap<u64, bool>,
}

enum Whose {
    Library,
    Cipher,
    Others,
}

impl Library {
    /// `trace` has the map of the program; without the library in it, everything is others'.
    fn read(path: &Path, trace: &str) -> Result<Self> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut places = trace.lines().filter_map(|line| {
            let line = line.strip_prefix("map ")?;
            let range = line.split_whitespace().next().filter(|_| line.ends_with(&name))?;
            let (low, high) = range.split_once('-')?;
            Some((u64::from_str_radix(low, 16).ok()?, u64::from_str_radix(high, 16).ok()?))
        });
        let Some((base, mut end)) = places.next() else {
            return Ok(Self { base: 0, end: 0, functions: BTreeMap::new() });
        };
        end = places.map(|(_, high)| high).fold(end, u64::max);
        let bytes = fs::read(path).map_err(Error::io(format!("reading {}", path.display())))?;
        let no_library = |why| Error::Unexpected(format!("{}: {why}", path.display()));
        let file = ElfFile64::<Endianness>::parse(&*bytes).map_err(no_library)?;
        let mut functions = BTreeMap::new();
        let text = |symbol: &object::read::elf::ElfSymbol64<'_, '_>| symbol.is_definition();
        for symbol in file.symbols().filter(text) {
            functions.insert(symbol.address(), is_cipher(symbol.name().unwrap_or_default()));
        }
        // Hooks have the names of libc's calls.
        for symbol in file.dynamic_symbols().filter(text) {
            functions.insert(symbol.address(), false);
        }
        if functions.values().all(|cipher| !cipher) {
            let why = "it has no symbols, so nothing tells the cipher from the rest";
            return Err(Error::Unexpected(format!("{}: {why}", path.display())));
        }
        Ok(Self { base, end, functions })
    }

    fn whose(&self, at: u64) -> Whose {
        if !(self.base..self.end).contains(&at) {
            return Whose::Others;
        }
        match self.functions.range(..=at - self.base).next_back() {
            Some((_, true)) => Whose::Cipher,
            _ => Whose::Library,
        }
    }
}

/// AWS-LC's functions have C names; of Rust's, the module with the path of our own is of it.
fn is_cipher(name: &str) -> bool {
    let rust = name.starts_with("_ZN") || name.starts_with("_R");
    !rust || name.contains("12tidelock_ffi4vaes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_the_function_before_it() {
        let functions = BTreeMap::from([(0x10, false), (0x20, true), (0x30, false)]);
        let library = Library { base: 0x1000, end: 0x2000, functions };
        let is = |at: u64| match library.whose(at) {
            Whose::Library => "library",
            Whose::Cipher => "cipher",
            Whose::Others => "others",
        };
        let places = [0x0fff, 0x1010, 0x101f, 0x1020, 0x102f, 0x1030, 0x1fff, 0x2000];
        let whose = places.map(is);
        let expected =
            ["others", "library", "library", "cipher", "cipher", "library", "library", "others"];
        assert_eq!(whose, expected);
    }

    #[test]
    fn names_of_c_are_the_ciphers() {
        assert!(is_cipher("aws_lc_0_47_0_aes_hw_xts_encrypt") && is_cipher("aes_xts_cipher"));
        assert!(is_cipher("_ZN12tidelock_ffi4vaes7encrypt17h0123456789abcdefE"));
        assert!(!is_cipher("_ZN12tidelock_ffi3xts3Xts4seal17h0123456789abcdefE"));
    }

    #[test]
    fn sections_without_the_library_are_others_work() {
        let trace = "map 1000-2000 r-xp 0 0:0 1 /bin/x\nbegin a\n1000 3\n1004 4\nbegin b\n9 1\n";
        let counts = counted(trace, Path::new("/no/libtidelock_preload.so")).unwrap();
        let others = |others| Count { others, ..Count::default() };
        assert_eq!(counts, BTreeMap::from([("a".into(), others(7)), ("b".into(), others(1))]));
        assert!(counted("7 8\n", Path::new("x")).is_err(), "a count before its section");
    }
}

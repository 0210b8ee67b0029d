//! A program by its name: which file runs, and would ld.so load the library into it?
//!
//! ld.so only warns when it cannot, and a musl or static program does not even do that: the files
//! would be written plain, or not be readable. So all of it is refused before.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use object::elf::{EM_X86_64, FileHeader64, PT_INTERP};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ReadCache};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// The oldest glibc that the library runs on.
const OLDEST_GLIBC: u32 = 28;
/// An interpreter line is no longer (linux, BINPRM_BUF_SIZE).
const MAX_LINE: usize = 256;
/// Scripts whose interpreter is a script, and so on.
const MAX_SCRIPTS: u32 = 4;

/// They clean the environment, or are set-user-ID, which root's caller does not see.
const CHANGE_USERS: &[&[u8]] = &[b"sudo", b"doas", b"pkexec", b"su"];

/// A program that was found.
pub(crate) struct Program {
    /// As execve gets it.
    pub(crate) called: PathBuf,
    /// The file that runs in the end, canonical: what /proc/PID/exe will be.
    pub(crate) path: PathBuf,
    /// The file to list for this run, canonical. Of a script it is the script itself, which is never
    /// any process's file: its interpreter would get keys for every other script too. The listed
    /// programs that it starts have them.
    pub(crate) listed: PathBuf,
}

/// What the loader would make of a file.
#[derive(PartialEq, Eq, Debug)]
enum Shape {
    Script(PathBuf),
    Static,
    Interpreted(PathBuf),
    OtherMachine,
    Unknown,
}

impl Program {
    /// Finds a program as a shell does: by its path, or in $PATH.
    ///
    /// # Errors
    /// [`Error::Usage`] if there is none.
    pub(crate) fn find(name: &OsStr) -> Result<Self> {
        let called = if name.as_bytes().contains(&b'/') {
            PathBuf::from(name)
        } else {
            let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
            std::env::split_paths(&path)
                .map(|folder| folder.join(name))
                .find(|file| is_executable(file))
                .ok_or_else(|| missing(name, "is in no directory of $PATH"))?
        };
        if !is_executable(&called) {
            return Err(missing(name, "is not a file that can be run"));
        }
        let mut path = fs::canonicalize(&called).map_err(Error::io("find", &called))?;
        let listed = path.clone();
        for _ in 0..MAX_SCRIPTS {
            match shape(&path)? {
                Shape::Script(interpreter) => {
                    path = fs::canonicalize(&interpreter)
                        .map_err(Error::io("find the interpreter", &interpreter))?;
                }
                _ => break,
            }
        }
        Ok(Self { called, path, listed })
    }

    /// # Errors
    /// [`Error::Refused`] if ld.so would not load the library into it.
    pub(crate) fn refuse_unless_it_loads(&self) -> Result<()> {
        let refuse = |why: &str, hint: &str| {
            Err(Error::refused(format!("{} {why}", self.path.display()), hint))
        };
        match shape(&self.path)? {
            Shape::Static => {
                return refuse(
                    "is a static program: nothing can be preloaded into it",
                    "use the build of your distribution, which is dynamic",
                );
            }
            Shape::Interpreted(loader) if is_musl(&loader) => {
                return refuse(
                    "is built for musl: the library needs glibc 2.28 or later",
                    "use a build for glibc, for example a Debian image instead of an Alpine one",
                );
            }
            Shape::Interpreted(loader) if !is_glibc(&loader) => {
                let why = format!("is loaded by {}, which is not glibc's", loader.display());
                return refuse(&why, "use a build for glibc 2.28 or later");
            }
            Shape::OtherMachine => {
                return refuse(
                    "is not a 64-bit program for x86-64",
                    "use the build of your distribution for amd64",
                );
            }
            Shape::Unknown | Shape::Script(_) => {
                return refuse("is neither a program nor a script", "is the file whole?");
            }
            Shape::Interpreted(_) => {}
        }
        if let Some(why) = self.changes_credentials()? {
            let hint = "ld.so loads no library into such a program: run a copy without it";
            return refuse(why, hint);
        }
        match glibc_of_this_process() {
            Some(minor) if minor < OLDEST_GLIBC => Err(Error::refused(
                format!("this system has glibc 2.{minor}; the library needs 2.28"),
                "use a distribution of 2018 or later",
            )),
            _ => Ok(()),
        }
    }

    /// A program that starts others as another user, without LD_PRELOAD.
    pub(crate) fn drops_the_environment(&self) -> bool {
        let name = self.listed.file_name().unwrap_or_default().as_bytes();
        CHANGE_USERS.contains(&name)
    }

    /// The loader ignores LD_PRELOAD for programs that run with more rights than their caller.
    fn changes_credentials(&self) -> Result<Option<&'static str>> {
        let found = fs::metadata(&self.path).map_err(Error::io("look at", &self.path))?;
        let mode = found.permissions().mode();
        let me = rustix::process::getuid();
        if mode & 0o4000 != 0 && found.uid() != me.as_raw() {
            return Ok(Some("is set-user-ID"));
        }
        if mode & 0o2010 == 0o2010 && found.gid() != rustix::process::getgid().as_raw() {
            return Ok(Some("is set-group-ID"));
        }
        let mut value = [0u8; 64];
        match rustix::fs::getxattr(&self.path, "security.capability", &mut value[..]) {
            Ok(_) | Err(Errno::RANGE) if !me.is_root() => Ok(Some("has file capabilities")),
            _ => Ok(None),
        }
    }
}

fn shape(path: &Path) -> Result<Shape> {
    let mut file = File::open(path).map_err(Error::io("open", path))?;
    let mut first = [0u8; MAX_LINE];
    let count = read_some(&mut file, &mut first).map_err(Error::io("read", path))?;
    let first = first.get(..count).unwrap_or_default();
    if let Some(line) = first.strip_prefix(b"#!") {
        return Ok(interpreter(line).map_or(Shape::Unknown, Shape::Script));
    }
    if !first.starts_with(&object::elf::ELFMAG) {
        return Ok(Shape::Unknown);
    }
    // EI_CLASS: 2 is 64 bits.
    if first.get(4) != Some(&2) {
        return Ok(Shape::OtherMachine);
    }
    let cache = ReadCache::new(file);
    Ok(elf_shape(&cache).unwrap_or(Shape::Unknown))
}

fn elf_shape(data: &ReadCache<File>) -> object::Result<Shape> {
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    if header.e_machine(endian) != EM_X86_64 {
        return Ok(Shape::OtherMachine);
    }
    for segment in header.program_headers(endian, data)? {
        if segment.p_type(endian) == PT_INTERP
            && let Ok(Some(loader)) = segment.interpreter(endian, data)
        {
            return Ok(Shape::Interpreted(PathBuf::from(OsString::from_vec(loader.to_vec()))));
        }
    }
    Ok(Shape::Static)
}

/// Behind `#!`: blanks, the interpreter, perhaps an argument.
fn interpreter(line: &[u8]) -> Option<PathBuf> {
    let line = line.split(|byte| *byte == b'\n').next()?;
    let name = line.split(|byte| b" \t\0".contains(byte)).find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(name)))
}

fn is_musl(loader: &Path) -> bool {
    loader.file_name().is_some_and(|name| name.as_bytes().starts_with(b"ld-musl"))
}

fn is_glibc(loader: &Path) -> bool {
    loader.file_name().is_some_and(|name| name.as_bytes().starts_with(b"ld-linux"))
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0)
}

fn missing(name: &OsStr, why: &str) -> Error {
    Error::usage(
        format!("{} {why}", name.display()),
        "name it by its path; PostgreSQL's are in /usr/lib/postgresql/VERSION/bin",
    )
}

fn read_some(file: &mut File, into: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read(rest)? {
            0 => break,
            count => done += count,
        }
    }
    Ok(done)
}

/// The minor version of the glibc that this process has loaded, from the versions that it defines;
/// `None` if there is no glibc in this process.
fn glibc_of_this_process() -> Option<u32> {
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let path = maps
        .lines()
        .filter_map(|line| line.find('/').map(|at| &line[at..]))
        .find(|path| path.rsplit('/').next().is_some_and(|name| name.starts_with("libc.so")))?;
    let file = ReadCache::new(File::open(path).ok()?);
    let library = ElfFile64::<Endianness, _>::parse(&file).ok()?;
    let names = library.section_by_name(".dynstr")?;
    // The versions that it defines are text there: GLIBC_2.2.5 to the newest one.
    let names = names.data().ok()?.split(|byte| *byte == 0);
    let minor = |name: &[u8]| {
        let rest = std::str::from_utf8(name.strip_prefix(b"GLIBC_2.")?).ok()?;
        rest.split('.').next()?.parse().ok()
    };
    names.filter_map(minor).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interpreter_of_a_script_is_found() {
        for (line, path) in [
            ("/bin/sh\nexit", "/bin/sh"),
            (" /usr/bin/perl -w\n", "/usr/bin/perl"),
            ("/usr/bin/env python3\n", "/usr/bin/env"),
        ] {
            assert_eq!(interpreter(line.as_bytes()), Some(path.into()));
        }
        assert_eq!(interpreter(b"\n"), None);
    }

    #[test]
    fn loaders_are_told_apart() {
        assert!(is_glibc(Path::new("/lib64/ld-linux-x86-64.so.2")));
        assert!(!is_glibc(Path::new("/lib/ld-musl-x86_64.so.1")));
        assert!(is_musl(Path::new("/lib/ld-musl-x86_64.so.1")));
    }

    #[test]
    fn the_glibc_of_a_test_is_a_recent_one() {
        assert!(glibc_of_this_process().is_some_and(|minor| (28..100).contains(&minor)));
    }
}

//! A program by its name: which file runs, and would ld.so load the library into it?
//!
//! ld.so only warns when it cannot, and a musl or static program does not even do that; a program
//! of Go has the library and goes round it, since its file calls are system calls of its own. The
//! files would be written plain, or not be readable. So all of it is refused before, by what the
//! ELF file says.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use object::elf::{DT_NEEDED, EM_X86_64, FileHeader64, PT_INTERP};
use object::read::elf::{Dyn, ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ReadCache};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::walk::header;

/// The oldest glibc that the library runs on.
const OLDEST_GLIBC: u32 = 28;
/// An interpreter line is no longer (linux, BINPRM_BUF_SIZE).
const MAX_LINE: usize = 256;
/// Scripts whose interpreter is a script, and so on.
const MAX_SCRIPTS: u32 = 4;

/// They clean the environment, or are set-user-ID, which root's caller does not see.
const CHANGE_USERS: &[&[u8]] = &[b"sudo", b"doas", b"pkexec", b"su"];
/// What they start is another program, without keys unless it is listed.
const SHELLS: &[&[u8]] = &[
    b"sh", b"ash", b"bash", b"busybox", b"csh", b"dash", b"fish", b"ksh", b"ksh93", b"mksh",
    b"rbash", b"tcsh", b"zsh",
];
/// Sections and a note that every linker of Go leaves, also in stripped programs and those with C
/// in them.
const GO_SECTIONS: &[&[u8]] = &[b".go.buildinfo", b".note.go.buildid", b".gopclntab"];
const GO_NOTE: &[u8] = b"Go";
/// glibc's file calls are in this one.
const LIBC: &[u8] = b"libc.so.6";

/// A program that was found.
pub(crate) struct Program {
    /// As execve gets it.
    pub(crate) called: PathBuf,
    /// The file that runs in the end, canonical: what /proc/PID/exe will be.
    pub(crate) path: PathBuf,
    /// The script, canonical, if it is one: then `path` is its interpreter, the one file that is
    /// named for this run. A script is never any process's file.
    pub(crate) script: Option<PathBuf>,
}

/// What the loader would make of a file.
#[derive(PartialEq, Eq, Debug)]
enum Shape {
    Script(Vec<OsString>),
    Go,
    Static,
    NoLibc,
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
        let called = in_path(name)?;
        let mut path = fs::canonicalize(&called).map_err(Error::io("find", &called))?;
        let first = path.clone();
        for _ in 0..MAX_SCRIPTS {
            let Shape::Script(line) = shape(&path)? else { break };
            path = interpreter(&line)?;
        }
        let script = (path != first).then_some(first);
        Ok(Self { called, path, script })
    }

    /// # Errors
    /// [`Error::Refused`] if ld.so would not load the library into it.
    pub(crate) fn refuse_unless_it_loads(&self) -> Result<()> {
        let refuse = |why: &str, hint: &str| {
            Err(Error::refused(format!("{} {why}", self.path.display()), hint))
        };
        match shape(&self.path)? {
            Shape::Go => {
                return refuse(
                    "is a Go program: its file calls go round libc, so nothing that it writes \
                     would be sealed",
                    "no build of it works, static or dynamic; put its files on an encrypted disk",
                );
            }
            Shape::Static => {
                return refuse(
                    "is a static program: nothing can be preloaded into it",
                    "use a build that is linked dynamically with glibc; `tidelock profile check` \
                     says whether it works",
                );
            }
            Shape::NoLibc => {
                return refuse(
                    "does not use glibc (it needs no libc.so.6): its file calls go round the \
                     library",
                    "use a build that is linked dynamically with glibc; `tidelock profile check` \
                     says whether it works",
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
            Shape::Unknown if header(&self.path).is_some() => {
                return refuse(
                    "is a sealed file: the kernel, which starts programs, sees sealed bytes",
                    "keep programs and scripts outside of the directory, or name them --plain",
                );
            }
            Shape::Unknown | Shape::Script(_) => {
                return refuse("is neither a program nor a script", "is the file complete?");
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
        let first = self.script.as_ref().unwrap_or(&self.path);
        CHANGE_USERS.contains(&first.file_name().unwrap_or_default().as_bytes())
    }

    /// A shell, or a script of one: it gets keys, and the programs that it starts do not.
    pub(crate) fn is_shell(&self) -> bool {
        let name = self.path.file_name().unwrap_or_default().as_bytes();
        SHELLS.contains(&name)
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
        return Ok(words(line).map_or(Shape::Unknown, Shape::Script));
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
    let mut loader = None;
    for segment in header.program_headers(endian, data)? {
        if let Ok(Some(mut notes)) = segment.notes(endian, data) {
            while let Ok(Some(note)) = notes.next() {
                if note.name() == GO_NOTE {
                    return Ok(Shape::Go);
                }
            }
        }
        if segment.p_type(endian) == PT_INTERP
            && let Ok(Some(found)) = segment.interpreter(endian, data)
        {
            loader = Some(PathBuf::from(OsString::from_vec(found.to_vec())));
        }
    }
    // A file without section headers tells less; ld.so does not need them.
    let sections = header.sections(endian, data)?;
    let is_go = |name: &&[u8]| sections.section_by_name(endian, name).is_some();
    if GO_SECTIONS.iter().any(is_go) {
        return Ok(Shape::Go);
    }
    let Some(loader) = loader else { return Ok(Shape::Static) };
    if is_glibc(&loader)
        && let Some((entries, link)) = sections.dynamic(endian, data)?
    {
        let strings = sections.strings(endian, data, link)?;
        let needed = entries.iter().filter(|entry| entry.tag(endian) == DT_NEEDED);
        let libc = |entry: &_| Dyn::string(entry, endian, strings) == Ok(LIBC);
        if !needed.clone().any(libc) {
            return Ok(Shape::NoLibc);
        }
    }
    Ok(Shape::Interpreted(loader))
}

/// Behind `#!`: blanks, the interpreter, perhaps an argument, in which there may be blanks.
fn words(line: &[u8]) -> Option<Vec<OsString>> {
    let line = line.split(|byte| *byte == b'\n').next()?;
    let words = line.split(|byte| b" \t\r\0".contains(byte)).filter(|word| !word.is_empty());
    let words: Vec<_> = words.map(|word| OsStr::from_bytes(word).to_owned()).collect();
    (!words.is_empty()).then_some(words)
}

/// The program that an interpreter line means: of `env NAME` the one of that name.
///
/// # Errors
/// [`Error::Usage`] if it is in no directory of $PATH.
fn interpreter(line: &[OsString]) -> Result<PathBuf> {
    let (first, rest) =
        line.split_first().ok_or_else(|| missing(OsStr::new("#!"), "names nothing"))?;
    let path = fs::canonicalize(first).map_err(Error::io("find the interpreter", first))?;
    if Path::new(first).file_name() != Some(OsStr::new("env")) {
        return Ok(path);
    }
    // env(1): options, `-S` before several words, settings, then the program.
    let is_name = |word: &&OsString| {
        let word = word.as_bytes();
        !word.starts_with(b"-") && !word.contains(&b'=')
    };
    match rest.iter().find(is_name) {
        Some(name) => {
            let found = in_path(name)?;
            fs::canonicalize(&found).map_err(Error::io("find the interpreter", &found))
        }
        None => Ok(path),
    }
}

/// As a shell does: by its path, or in $PATH.
fn in_path(name: &OsStr) -> Result<PathBuf> {
    let found = if name.as_bytes().contains(&b'/') {
        PathBuf::from(name)
    } else {
        let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
        std::env::split_paths(&path)
            .map(|folder| folder.join(name))
            .find(|file| is_executable(file))
            .ok_or_else(|| missing(name, "is in no directory of $PATH"))?
    };
    if is_executable(&found) {
        Ok(found)
    } else {
        Err(missing(name, "is not a file that can be run"))
    }
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
        let sh = fs::canonicalize("/bin/sh").unwrap();
        for line in [
            "/bin/sh\nexit",
            " /bin/sh -w\n",
            "/usr/bin/env sh\n",
            "/usr/bin/env -S sh -e -u\n",
            "/usr/bin/env A=b sh",
        ] {
            let words = words(line.as_bytes()).unwrap();
            assert_eq!(interpreter(&words).unwrap(), sh, "{line}");
        }
        assert_eq!(words(b"\n"), None);
        let none = words(b"/usr/bin/env no-such-interpreter").unwrap();
        assert!(interpreter(&none).is_err());
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

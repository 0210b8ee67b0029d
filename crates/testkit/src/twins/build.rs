//! Compiles a twin program: gcc, once with the plain names of libc and once with the checked ones.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tidelock_servers::Bounded as _;

use super::{Error, Result, failed, source_dir};

/// Which of libc's names a program calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// `read`, `open`, `fopen`.
    Common,
    /// `__read_chk`, `__open64_2`, `fopen64`: checked names, with 64-bit offsets.
    Fortified,
}

impl Build {
    /// Both builds.
    pub const ALL: [Self; 2] = [Self::Common, Self::Fortified];

    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Common => &["-U_FORTIFY_SOURCE"],
            Self::Fortified => {
                &["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2", "-D_FILE_OFFSET_BITS=64"]
            }
        }
    }
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Common => "built plainly",
            Self::Fortified => "built with checked and 64-bit names",
        })
    }
}

/// Compiles `twins/NAME.c` into `into`, with the library `NAME_library.c` if there is one.
///
/// The program is left without write permission: the agent gives no keys to a program that its own
/// user may change.
///
/// # Errors
/// [`Error::Compile`] with gcc's words.
pub fn compile(name: &str, build: Build, into: &Path) -> Result<PathBuf> {
    let program = into.join(name);
    let mut gcc = gcc(build, &source_dir().join(format!("{name}.c")), &program);
    let library_source = source_dir().join(format!("{name}_library.c"));
    if library_source.exists() {
        let library = into.join(format!("lib{name}.so"));
        let mut shared = self::gcc(build, &library_source, &library);
        shared.args(["-shared", "-fPIC"]);
        run(name, shared)?;
        gcc.arg(&library).arg(format!("-Wl,-rpath,{}", into.display()));
    }
    gcc.args(["-pthread", "-ldl"]);
    run(name, gcc)?;
    protect(&program)?;
    Ok(program)
}

/// Compiles another program of this crate, its source given below the crate's directory, as plain
/// twins are.
///
/// # Errors
/// [`Error::Compile`] with gcc's words.
pub fn compile_other(source: &str, into: &Path) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let program = into.join(source.file_stem().unwrap_or_default());
    let mut gcc = gcc(Build::Common, &source, &program);
    gcc.arg("-pthread");
    run(&source.display().to_string(), gcc)?;
    protect(&program)?;
    Ok(program)
}

fn protect(program: &Path) -> Result<()> {
    fs::set_permissions(program, fs::Permissions::from_mode(0o555))
        .map_err(failed(format!("protecting {}", program.display())))
}

fn gcc(build: Build, source: &Path, to: &Path) -> Command {
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=gnu11", "-O2", "-Wall", "-Wextra"]).args(build.flags());
    gcc.arg("-o").arg(to).arg(source);
    gcc
}

fn run(name: &str, mut gcc: Command) -> Result<()> {
    let done = gcc.finish().map_err(failed("running gcc".to_owned()))?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    Err(Error::Compile { program: name.to_owned(), said })
}

//! Runs each file-call behaviour as a small C program twice, plain and preloaded, and compares.
//!
//! ```text
//!   twins/NAME.c -- build --> program, program built with _FORTIFY_SOURCE and 64-bit names
//!                                |
//!                                +-- run plain, in a directory of its own --------+
//!                                +-- tidelock exec, in a protected directory -----+-- compare
//!                                                                      output, files, leaks
//! ```
//!
//! A program prints what every call answered. The preloaded run must print the same and leave files
//! whose plain bytes are the same, and nothing that it wrote may lie in the protected directory in
//! the clear. Where the library refuses by design, `NAME.refused` has the output that is expected
//! instead. What two plain runs print differently (times, inode numbers, paths) does not belong in
//! a program.
//!
//! `TIDELOCK_TWINS=plain` makes the second run plain as well: that checks the programs themselves.
//! `TIDELOCK_TWINS_KEEP=1` leaves the directories of a failed comparison behind.

mod build;
mod compare;
mod run;

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tidelock_servers::skip;

pub use build::{Build, compile, compile_other};
pub use run::{Ended, Product, Workspace, sections};

/// What keeps two runs from being equal, or from being made at all.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or process of the harness itself.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// The command or the library is not built.
    #[error(
        "{path} is missing\nhint: make debug, or set TIDELOCK_BUILT to the directory that has it"
    )]
    Missing {
        /// What was looked for.
        path: PathBuf,
    },
    /// gcc refused a program.
    #[error("{program} cannot be compiled:\n{said}")]
    Compile {
        /// The source.
        program: String,
        /// The compiler's words.
        said: String,
    },
    /// A command of the product failed.
    #[error("{call} ended with {status}:\n{said}")]
    Command {
        /// The command line.
        call: String,
        /// How it ended.
        status: String,
        /// What it wrote to stderr.
        said: String,
    },
    /// The two runs differ.
    #[error("{program} ({build}) {difference}")]
    Differs {
        /// The program.
        program: String,
        /// How it was built.
        build: Build,
        /// The first differences, for people.
        difference: String,
    },
}

/// The result of this module.
pub type Result<T> = std::result::Result<T, Error>;

/// Builds and runs one program both ways, in each build, and compares.
///
/// # Errors
/// [`Error::Differs`] with the differences; the others when a run could not be made.
pub fn check(name: &str) -> Result<()> {
    let expectation = source_dir().join(format!("{name}.refused"));
    let refused = match fs::read_to_string(&expectation) {
        Ok(text) => Some(compare::without_reason(&text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(source) => return Err(failed(format!("reading {}", expectation.display()))(source)),
    };
    let product = match env::var("TIDELOCK_TWINS") {
        Ok(mode) if mode == "plain" => {
            skip::because("TIDELOCK_TWINS is plain: the library is not tried");
            None
        }
        _ => Some(Product::find()?),
    };
    for build in Build::ALL {
        let place = Workspace::new(name)?;
        let difference = compare_runs(name, build, &place, product.as_ref(), refused.as_deref())?;
        if let Some(mut difference) = difference {
            if env::var_os("TIDELOCK_TWINS_KEEP").is_some() {
                difference = format!("{difference}\nkept in {}", place.keep().display());
            }
            return Err(Error::Differs { program: name.to_owned(), build, difference });
        }
    }
    Ok(())
}

fn compare_runs(
    name: &str,
    build: Build,
    place: &Workspace,
    product: Option<&Product>,
    refused: Option<&str>,
) -> Result<Option<String>> {
    let program = compile(name, build, &place.programs())?;
    let plain = place.plain();
    let first = place.run_plain(&program, &plain)?;
    if !first.good() {
        return Ok(Some(format!("fails already plain: {first}")));
    }
    let Some(product) = product else {
        let again = place.other_plain();
        let second = place.run_plain(&program, &again)?;
        return Ok(compare::outputs(&first.output, &second).or(compare::trees(
            &plain,
            &again,
            |path| fs::read(path).map_err(failed(format!("reading {}", path.display()))),
        )?));
    };
    let sealed = place.protect(product, "generic")?;
    let second = place.run_sealed(product, &program, &[sealed.as_os_str()], &sealed)?;
    if let Some(difference) = compare::outputs(refused.unwrap_or(&first.output), &second) {
        return Ok(Some(difference));
    }
    if let Some(leak) = compare::leaks(&sealed)? {
        return Ok(Some(leak));
    }
    if refused.is_none() {
        let cat = |path: &Path| place.cat(product, path);
        if let Some(difference) = compare::trees(&plain, &sealed, cat)? {
            return Ok(Some(difference));
        }
    }
    place.verify(product, &sealed)?;
    Ok(None)
}

/// Where the programs' sources lie.
#[must_use]
pub fn source_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("twins")
}

fn failed(what: String) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Io { what, source }
}

//! `hooks-doc`: writes docs/hooks.md from the ledger, or checks programs against it.
//!
//! Without arguments the page goes to standard output; with programs or libraries, their imports
//! are checked (nm of binutils), and the exit code is 1 if one calls something of libc that the
//! ledger does not know.
#![forbid(unsafe_code)]

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use tidelock_testkit::ledger;

/// Writes docs/hooks.md from the ledger, or checks programs against it.
#[derive(Parser)]
struct Arguments {
    /// Programs and libraries whose imports to check.
    programs: Vec<PathBuf>,
}

fn main() -> std::io::Result<ExitCode> {
    let arguments = Arguments::parse();
    let mut out = std::io::stdout();
    if arguments.programs.is_empty() {
        write!(out, "{}", ledger::page())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut code = ExitCode::SUCCESS;
    for program in arguments.programs {
        for name in ledger::unlisted_imports(&program)? {
            writeln!(out, "{}: {name}", program.display())?;
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

//! The program `tidelock-lab`: published experiments on the cost of encryption, on the reader's
//! machine.
//!
//! What is measured and concluded is in the library of this package; here is what can be typed.

#![forbid(unsafe_code)]

mod command;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::main()
}

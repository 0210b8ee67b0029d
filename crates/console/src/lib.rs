//! How the programs of Tidelock are typed and what they print: `tidelock` and `tidelock-lab`.
//!
//! ```text
//!   line        reads the command line, or says in two lines why not
//!   documents   completions and manual pages of a program
//!   shown       lines, JSON, errors with their hints, a spinner
//!   error       a call to the system that failed
//! ```
//!
//! Knows nothing of keys, directories or experiments.

#![forbid(unsafe_code)]

mod documents;
mod error;
mod line;
mod shown;

pub use documents::{Completions, Man};
pub use error::{Error, Result, hint};
pub use line::{USAGE, parse};
pub use shown::{
    fail, finish_output, print, print_for_sure, print_json, print_json_line, print_json_text,
    spinner, tell, warn,
};

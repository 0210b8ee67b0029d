//! The command `tidelock`: makes protected directories, runs programs on them, proves what is sealed.
//!
//! ```text
//!   command    what can be typed: one module for each call
//!      |         init, exec, status, verify, inspect, cat, seal and unseal, key, keyring,
//!      |         profile, audit, service, lab
//!      |
//!   protected  which directory does this file belong to?    unlock   who opens its keyring?
//!   walk       which files does it have?                    sealed   header, key, plain bytes
//!      |
//!   error      what went wrong, what to do, exit code       console  how it is shown
//!   cores      no core file has a key
//! ```
//!
//! Never goes through the hooks: sealed files are read with the format and the cipher themselves, so
//! that this is a second opinion on what the library wrote.

#![forbid(unsafe_code)]

mod agent;
mod audit;
mod cat;
mod command;
mod console;
mod cores;
mod documents;
mod error;
mod exec;
mod folder;
mod init;
mod inspect;
mod key;
mod keyring;
mod lab;
mod owner;
mod pipe;
mod profile;
mod protected;
mod sealed;
mod server;
mod service;
mod status;
mod unlock;
mod verify;
mod walk;

use std::process::ExitCode;

fn main() -> ExitCode {
    cores::forbid();
    let command = match command::parse() {
        Ok(command) => command,
        Err(code) => return code,
    };
    match command.run() {
        Ok(code) => code,
        Err(error) => {
            console::report(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

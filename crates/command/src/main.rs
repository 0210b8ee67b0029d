//! The command `tidelock`: makes protected directories, runs programs on them, proves what is
//! sealed.
//!
//! ```text
//!   command    what can be typed: one module for each call
//!      |         init, encrypt, decrypt and rekey, protect, unprotect and migrate, exec, status,
//!      |         verify, report, inspect, cat, seal and unseal, key, keyring, profile, audit,
//!      |         service, wal
//!      |
//!   protected  which directory does this file belong to?    unlock   who opens its keyring?
//!   walk       which files does it have?                    sealed   header, key, plain bytes
//!   census     how many are sealed under which key          links    where does a path lead?
//!      |
//!   running    programs and the agent that have its keys   server   is the library in it?
//!      |
//!   postgres   the server's own programs: start, stop, SQL by psql; its settings
//!   mysqld     MariaDB and MySQL: where one is told to keep files; start, stop, SQL by its client
//!   run_as     programs that run as the owner of a directory
//!   starter    who starts a server: a unit, another process of that, a person
//!   this_program   where this program is, also while a package replaces it
//!      |
//!   error      what went wrong, what to do, exit code       console  how it is shown
//!   cores      no core file has a key
//! ```
//!
//! Never goes through the hooks: sealed files are read with the format and the cipher themselves,
//! so that this is a second opinion on what the library wrote.

#![forbid(unsafe_code)]

mod agent;
mod audit;
mod begun;
mod cat;
mod census;
mod command;
mod console;
mod convert;
mod cores;
mod error;
mod exec;
mod folder;
mod init;
mod inspect;
mod key;
mod keyring;
mod links;
mod migrate;
mod mysqld;
mod owner;
mod pipe;
mod postgres;
mod primitives;
mod profile;
mod protect;
mod protected;
mod report;
mod rollback;
mod run_as;
mod running;
mod sealed;
mod server;
mod service;
mod space;
mod starter;
mod status;
#[cfg(test)]
mod testing;
mod this_program;
mod unlock;
mod verify;
mod wal;
mod walk;
mod whereabouts;

use std::process::ExitCode;

fn main() -> ExitCode {
    cores::forbid();
    let command = match tidelock_console::parse::<command::Cli>() {
        Ok(command) => command,
        // A mistake that was typed into restore_command must not be taken for the end of WAL.
        Err(code) if code == ExitCode::from(tidelock_console::USAGE) && wal::is_get() => {
            return ExitCode::from(wal::stops(tidelock_console::USAGE));
        }
        Err(code) => return code,
    };
    match command.run() {
        Ok(code) => code,
        Err(error) => {
            console::report(&error);
            let code = error.exit_code();
            ExitCode::from(if wal::is_get() { wal::stops(code) } else { code })
        }
    }
}

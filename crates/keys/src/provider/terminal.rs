//! Asks for a passphrase on the controlling terminal, without echo.
//!
//! The terminal is put back as it was however this ends; Ctrl-C is a key here, so that it cannot be
//! left without echo.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use super::Purpose;
use crate::error::Error;

const TTY: &str = "/dev/tty";
const MAX: usize = 4096;

/// Asks once, or twice for a new slot.
pub(super) fn ask(purpose: Purpose) -> Result<Zeroizing<Vec<u8>>, Error> {
    let terminal = open()?;
    match purpose {
        Purpose::Unlock => ask_on(&terminal, "Passphrase: "),
        Purpose::NewSlot => {
            let first = ask_on(&terminal, "New passphrase: ")?;
            let second = ask_on(&terminal, "The same again: ")?;
            if *first != *second {
                return Err(Error::NoPassphrase { why: "the two differ" });
            }
            Ok(first)
        }
    }
}

/// Asks once for something that is not shown: a PIN.
///
/// # Errors
/// [`Error::NoPassphrase`] without a terminal; [`Error::Interrupted`], [`Error::Io`].
pub fn ask_on_terminal(prompt: &str) -> Result<Zeroizing<Vec<u8>>, Error> {
    ask_on(&open()?, prompt)
}

fn open() -> Result<File, Error> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(TTY)
        .map_err(|_| Error::NoPassphrase { why: "there is no terminal to ask on" })
}

/// Puts the terminal back.
struct Quiet<'t> {
    terminal: &'t File,
    before: Termios,
}

impl<'t> Quiet<'t> {
    fn new(terminal: &'t File) -> Result<Self, Error> {
        let failed = |source: rustix::io::Errno| Error::io("change", TTY)(source.into());
        let before = tcgetattr(terminal).map_err(failed)?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG);
        let guard = Self { terminal, before };
        tcsetattr(terminal, OptionalActions::Flush, &quiet).map_err(failed)?;
        Ok(guard)
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.terminal, OptionalActions::Flush, &self.before);
        let mut terminal = self.terminal;
        let _ = terminal.write_all(b"\n");
    }
}

fn ask_on(mut terminal: &File, prompt: &str) -> Result<Zeroizing<Vec<u8>>, Error> {
    let _quiet = Quiet::new(terminal)?;
    terminal.write_all(prompt.as_bytes()).map_err(Error::io("write to", TTY))?;
    let mut line = Zeroizing::new(Vec::with_capacity(MAX));
    loop {
        let mut byte = Zeroizing::new([0]);
        let count = terminal.read(&mut *byte).map_err(Error::io("read from", TTY))?;
        match (count, byte[0]) {
            // Ctrl-C, Ctrl-backslash, Ctrl-Z
            (1, 0x03 | 0x1c | 0x1a) => return Err(Error::Interrupted),
            // Enter, or Ctrl-D
            (0, _) | (1, b'\r' | b'\n' | 0x04) => return Ok(line),
            // Ctrl-U
            (_, 0x15) => line.clear(),
            (_, 0x08 | 0x7f) => forget_character(&mut line),
            (_, byte) if line.len() < MAX => line.push(byte),
            _ => return Err(Error::NoPassphrase { why: "it has more than 4096 bytes" }),
        }
    }
}

/// Takes the last UTF-8 character away.
fn forget_character(line: &mut Vec<u8>) {
    while line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
}

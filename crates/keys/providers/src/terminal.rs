//! Asks for a passphrase on the controlling terminal, without echo.
//!
//! The terminal is put back as it was however this ends; Ctrl-C is a key here, so that it cannot be
//! left without echo.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tidelock_keyring::Error;
use zeroize::Zeroizing;

use crate::descriptor::MAX_LINE;

const TTY: &str = "/dev/tty";

/// Asks once for something that is not shown.
///
/// # Errors
/// [`Error::NoPassphrase`] without a terminal; [`Error::Interrupted`], [`Error::Io`].
pub(crate) fn ask(prompt: &str) -> Result<Zeroizing<Vec<u8>>, Error> {
    ask_on(&open()?, prompt)
}

/// Asks twice, for what will open a new slot.
///
/// # Errors
/// As [`ask`]; the two differ.
pub(crate) fn ask_twice(prompt: &str) -> Result<Zeroizing<Vec<u8>>, Error> {
    let terminal = open()?;
    let first = ask_on(&terminal, prompt)?;
    let second = ask_on(&terminal, "The same again: ")?;
    if *first != *second {
        return Err(Error::no_passphrase("the two differ"));
    }
    Ok(first)
}

/// Is there somebody to ask?
#[must_use]
pub fn has_terminal() -> bool {
    open().is_ok()
}

fn open() -> Result<File, Error> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(TTY)
        .map_err(|_| Error::no_passphrase("there is no terminal to ask on"))
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
    let mut line = Zeroizing::new(Vec::with_capacity(MAX_LINE));
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
            (_, byte) if line.len() < MAX_LINE => line.push(byte),
            _ => return Err(Error::no_passphrase("it has more than 4096 bytes")),
        }
    }
}

/// Takes the last UTF-8 character away.
fn forget_character(line: &mut Vec<u8>) {
    while line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
}

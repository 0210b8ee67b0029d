//! What a person gives through an open descriptor: passphrases, a line each, or a PIN.
//!
//! Read once, whoever asks and how often: a pipe has its lines only once.

use std::fmt;
use std::fs::File;
use std::io::{PipeReader, Read, Write};
use std::num::ParseIntError;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use rustix::io::{FdFlags, fcntl_setfd};
use tidelock_keyring::Error;
use zeroize::Zeroizing;

/// A passphrase or a PIN has no more bytes.
pub(crate) const MAX_LINE: usize = 4096;
/// One for each slot that a keyring may have.
const MAX_LINES: usize = 32;

/// An open descriptor, as `--passphrase-fd N` names it.
#[derive(Clone)]
pub struct Descriptor {
    number: u32,
    text: Arc<OnceLock<Zeroizing<Vec<u8>>>>,
}

impl Descriptor {
    /// Its number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Its lines: the first one, and all others that are not empty.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::NoPassphrase`] for lines that are too long or too many.
    pub(crate) fn lines(&self) -> Result<Vec<Zeroizing<Vec<u8>>>, Error> {
        let text = self.text()?;
        let lines: Vec<_> = text
            .split(|byte| *byte == b'\n')
            .enumerate()
            .filter(|(at, line)| *at == 0 || !line.is_empty())
            .map(|(_, line)| Zeroizing::new(line.to_vec()))
            .collect();
        if lines.len() > MAX_LINES {
            return Err(Error::no_passphrase("the descriptor has more than 32 lines"));
        }
        Ok(lines)
    }

    /// Its first line.
    ///
    /// # Errors
    /// As [`Descriptor::lines`].
    pub(crate) fn first(&self) -> Result<Zeroizing<Vec<u8>>, Error> {
        Ok(self.lines()?.into_iter().next().unwrap_or_default())
    }

    /// A pipe with the same text, for another program: what was read here is not in the descriptor
    /// any more.
    ///
    /// # Errors
    /// It cannot be read, or no pipe can be made.
    pub fn hand_on(&self) -> Result<PipeReader, Error> {
        let text = Zeroizing::new(self.text()?.to_vec());
        let failed = || Error::io("hand on the passphrase by", "a pipe");
        let (reader, mut writer) = std::io::pipe().map_err(failed())?;
        fcntl_setfd(&reader, FdFlags::empty()).map_err(|errno| failed()(errno.into()))?;
        // Nobody reads yet, and a pipe has not room for all of it.
        std::thread::spawn(move || writer.write_all(&text));
        Ok(reader)
    }

    fn text(&self) -> Result<&[u8], Error> {
        if let Some(text) = self.text.get() {
            return Ok(text);
        }
        let path = format!("/dev/fd/{}", self.number);
        let file =
            File::open(&path).map_err(Error::io("open the passphrase's descriptor", &path))?;
        let most = MAX_LINES * (MAX_LINE + 1);
        // All at once, so that no copy is left behind by growing.
        let mut bytes = Zeroizing::new(Vec::with_capacity(most + 1));
        file.take(most as u64 + 1)
            .read_to_end(&mut bytes)
            .map_err(Error::io("read the passphrase from", &path))?;
        if bytes.len() > most {
            return Err(Error::no_passphrase(
                "the descriptor has more than 32 lines of 4096 bytes",
            ));
        }
        Ok(self.text.get_or_init(|| bytes))
    }
}

impl FromStr for Descriptor {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        Ok(Self { number: text.parse()?, text: Arc::default() })
    }
}

impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Descriptor({})", self.number)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_pipe_is_read_once_and_gives_its_lines_again() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"one\n\ntwo\n").unwrap();
        drop(writer);
        let given: Descriptor = reader.as_raw_fd().to_string().parse().unwrap();
        for _ in 0..2 {
            let lines = given.clone().lines().unwrap();
            assert_eq!(lines.iter().map(|line| &**line).collect::<Vec<_>>(), [b"one", b"two"]);
            assert_eq!(**given.first().unwrap(), *b"one");
        }
        assert!(!format!("{given:?}").contains("one"));
    }

    #[test]
    fn what_a_pipe_gave_once_is_handed_on_whole() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let long = vec![b'x'; MAX_LINES * MAX_LINE];
        std::thread::spawn(move || writer.write_all(&long).unwrap());
        let given: Descriptor = reader.as_raw_fd().to_string().parse().unwrap();
        assert_eq!(given.first().unwrap().len(), MAX_LINES * MAX_LINE);
        let second = given.hand_on().unwrap();
        let again: Descriptor = second.as_raw_fd().to_string().parse().unwrap();
        assert_eq!(again.first().unwrap(), given.first().unwrap());
    }

    #[test]
    fn an_empty_first_line_is_an_answer_and_no_lines_are_one_too() {
        for (text, lines) in [("", 1), ("\n", 1), ("\nx\n", 2), ("x", 1)] {
            let (reader, mut writer) = std::io::pipe().unwrap();
            writer.write_all(text.as_bytes()).unwrap();
            drop(writer);
            let given: Descriptor = reader.as_raw_fd().to_string().parse().unwrap();
            assert_eq!(given.lines().unwrap().len(), lines, "{text:?}");
        }
    }
}

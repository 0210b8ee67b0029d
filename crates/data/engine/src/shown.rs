//! Names of files as people may see them: whatever could move a cursor, begin a line or hide
//! another letter is written as `\xNN`.
//!
//! A name is bytes that somebody else chose. On a terminal, ESC and its kin are commands; in a log,
//! a newline begins an entry. Nothing is lost: a backslash is written as `\x5c`, so that each text
//! stands for one name.

use core::fmt;

/// A name, or any text of others, escaped when it is formatted.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'n>(pub &'n [u8]);

impl Shown<'_> {
    /// The name of a path.
    #[must_use]
    pub fn path(path: &std::path::Path) -> Shown<'_> {
        Shown(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()))
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for letter in chunk.valid().chars() {
                if is_plain(letter) && letter != '\\' {
                    fmt::Write::write_char(f, letter)?;
                } else {
                    let mut bytes = [0; 4];
                    escape(letter.encode_utf8(&mut bytes).as_bytes(), f)?;
                }
            }
            escape(chunk.invalid(), f)?;
        }
        Ok(())
    }
}

/// True if a letter does nothing but show itself.
#[must_use]
pub fn is_plain(letter: char) -> bool {
    !letter.is_control()
        && !matches!(letter,
            // Lines and paragraphs, the direction of writing, and what is not seen at all.
            '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200b}'..='\u{200f}' | '\u{feff}')
}

fn escape(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_escaped() {
        let shown = |name: &[u8]| Shown(name).to_string();
        assert_eq!(shown(b"base/16384/2619"), "base/16384/2619");
        assert_eq!(shown(b"\x1b]0;title\x07"), "\\x1b]0;title\\x07");
        assert_eq!(shown(b"a\nerror: b\r\t"), "a\\x0aerror: b\\x0d\\x09");
        assert_eq!(shown(b"\x7f"), "\\x7f");
        // C1: CSI as one letter of UTF-8, and as a byte of Latin-1.
        assert_eq!(shown("\u{9b}31m".as_bytes()), "\\xc2\\x9b31m");
        assert_eq!(shown(b"\x9b31m"), "\\x9b31m");
        assert_eq!(shown("gr\u{fc}n \u{65e5}".as_bytes()), "gr\u{fc}n \u{65e5}");
        assert_eq!(shown("txt.\u{202e}exe".as_bytes()), "txt.\\xe2\\x80\\xaeexe");
        assert_eq!(shown(b"\\x1b"), "\\x5cx1b");
        assert_eq!(shown(b"half \xe6\x97"), "half \\xe6\\x97");
    }
}

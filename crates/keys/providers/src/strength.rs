//! Is a new passphrase hard enough to guess? By zxcvbn, which knows words, names, dates and the
//! patterns of a keyboard.
//!
//! Asked of new slots only: a slot that exists opens with what it has.

use tidelock_keyring::Error;
use zxcvbn::zxcvbn;

/// As a power of ten: guesses that a new passphrase must take. argon2id with 64 MiB allows a rich
/// thief some thousands a second.
const LEAST: u32 = 10;

/// # Errors
/// [`Error::WeakPassphrase`].
pub(crate) fn check(passphrase: &[u8]) -> Result<(), Error> {
    // Its crate's own limit is 100 characters, more than are needed to be strong.
    let text = String::from_utf8_lossy(passphrase);
    let found = zxcvbn(&text, &["tidelock", "postgres", "postgresql", "database"]);
    let guesses = found.guesses_log10();
    if guesses >= f64::from(LEAST) {
        return Ok(());
    }
    Err(Error::WeakPassphrase { guesses: format!("{guesses:.0}"), least: LEAST })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_guessed_first_is_refused() {
        for weak in
            ["x", "password", "Passw0rd!", "correct horse", "tidelock", "20240229", "qwertyuiop"]
        {
            assert!(matches!(check(weak.as_bytes()), Err(Error::WeakPassphrase { .. })), "{weak}");
        }
        for strong in [
            "seldom marble quiet vowel",
            "k3#vQ9!zLp2w",
            "\u{fffd}a7f3 91bc 22ee 04d1 9f",
            &"seldom marble quiet vowel ".repeat(20),
        ] {
            assert!(check(strong.as_bytes()).is_ok(), "{strong}");
        }
    }
}

//! A principal key as programs print it and people store it.

use tidelock_cipher::Secret;

/// 32 bytes, or 64 hexadecimal digits with blanks around them.
#[must_use]
pub fn parse_key(output: &[u8]) -> Option<Secret<32>> {
    let mut key = Secret::new([0; 32]);
    if let Ok(raw) = <&[u8; 32]>::try_from(output) {
        key.expose_mut().copy_from_slice(raw);
        return Some(key);
    }
    let digits = output.trim_ascii();
    if digits.len() != 64 {
        return None;
    }
    for (byte, pair) in key.expose_mut().iter_mut().zip(digits.as_chunks::<2>().0) {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let value = digit(pair[0])? << 4 | digit(pair[1])?;
        *byte = u8::try_from(value).ok()?;
    }
    Some(key)
}

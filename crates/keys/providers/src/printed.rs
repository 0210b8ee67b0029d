//! A principal key as programs print it and people store it.

use data_encoding::HEXLOWER_PERMISSIVE;
use tidelock_cipher::Secret;

/// 32 bytes, or 64 hexadecimal digits with blanks around them.
pub(crate) fn parse_key(output: &[u8]) -> Option<Secret<32>> {
    let mut key = Secret::new([0; 32]);
    if let Ok(raw) = <&[u8; 32]>::try_from(output) {
        key.expose_mut().copy_from_slice(raw);
        return Some(key);
    }
    let digits = output.trim_ascii();
    if digits.len() != 64 {
        return None;
    }
    HEXLOWER_PERMISSIVE.decode_mut(digits, key.expose_mut()).ok()?;
    Some(key)
}

//! Identifiers that travel in headers and keyrings. None of them is secret.

use core::fmt;

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident, $len:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; $len]);

        impl $name {
            /// All zeros: "none".
            pub const NONE: Self = Self([0; $len]);
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl core::str::FromStr for $name {
            type Err = ();

            /// Reads the hexadecimal form that `Display` writes.
            fn from_str(text: &str) -> Result<Self, ()> {
                let mut bytes = [0u8; $len];
                if text.len() != 2 * $len || !text.is_ascii() {
                    return Err(());
                }
                for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
                    let pair = core::str::from_utf8(pair).map_err(|_| ())?;
                    *byte = u8::from_str_radix(pair, 16).map_err(|_| ())?;
                }
                Ok(Self(bytes))
            }
        }
    };
}

identifier!(
    /// Names a keyring for ever; random.
    KeyringId, 16
);
identifier!(
    /// Names a data key for ever; random.
    DataKeyId, 16
);
identifier!(
    /// What makes the key of one file different from every other; from getrandom(2).
    Nonce, 32
);

/// How often a keyring has been replaced; a file tells which one wrote it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Generation(pub u64);

//! The fields of one copy of the header, and the rules they must keep.

use crate::class::{Class, ZeroRule};
use crate::ident::{DataKeyId, Generation, KeyringId, Nonce};
use crate::place::{Layout, LayoutError};
use crate::span::UNIT;
use crate::wire::Reader;

/// The first bytes of every sealed file. The high bit, CR LF and ^Z show transfers that changed
/// bytes.
pub const MAGIC: [u8; 8] = *b"\x89TDLK\r\n\x1a";
/// The version of the format.
pub const VERSION: u16 = 1;
/// The length of one copy.
pub const COPY_LEN: usize = 256;
/// The length of the MAC at the end of a copy.
pub const MAC_LEN: usize = 32;
/// The bytes that the MAC covers: all that precedes it.
pub const SIGNED_LEN: usize = COPY_LEN - MAC_LEN;
/// The length of a nonce.
pub const NONCE_LEN: usize = 32;

const AT_RESERVED: usize = at::WATERMARK + 8;

/// Field offsets, each computed from the one before.
mod at {
    pub(super) const VERSION: usize = 8;
    pub(super) const COPY_LEN: usize = VERSION + 2;
    pub(super) const DATA_OFFSET: usize = COPY_LEN + 2;
    pub(super) const CIPHER: usize = DATA_OFFSET + 4;
    pub(super) const KDF: usize = CIPHER + 1;
    pub(super) const ZERO_RULE: usize = KDF + 1;
    pub(super) const CLASS: usize = ZERO_RULE + 1;
    pub(super) const UNIT: usize = CLASS + 1;
    pub(super) const AUTH_UNIT: usize = UNIT + 4;
    pub(super) const PAD: usize = AUTH_UNIT + 4;
    pub(super) const COMPATIBLE: usize = PAD + 4;
    pub(super) const INCOMPATIBLE: usize = COMPATIBLE + 8;
    pub(super) const SEQUENCE: usize = INCOMPATIBLE + 8;
    pub(super) const KEYRING: usize = SEQUENCE + 8;
    pub(super) const GENERATION: usize = KEYRING + 16;
    pub(super) const DATA_KEY: usize = GENERATION + 8;
    pub(super) const NONCE: usize = DATA_KEY + 16;
    pub(super) const SECOND_KEY: usize = NONCE + 32;
    pub(super) const SECOND_NONCE: usize = SECOND_KEY + 16;
    pub(super) const WATERMARK: usize = SECOND_NONCE + 32;
}
const _: () =
    assert!(at::DATA_KEY == 80 && at::NONCE == 96 && AT_RESERVED == 184 && SIGNED_LEN == 224);

/// The cipher of the units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Cipher {
    /// AES-256-XTS (IEEE 1619-2018, NIST SP 800-38E), data unit 4096 bytes, tweak = unit number.
    Aes256Xts = 1,
}

/// How file keys come from data keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kdf {
    /// HKDF-Expand with SHA-256 (RFC 5869, section 2.3); no Extract, since data keys are uniform.
    HkdfExpandSha256 = 1,
}

/// What follows the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// The body of a file, whose size tells where the plain bytes end.
    File,
    /// A body and an end mark with a MAC over all of it, as `tidelock seal` writes it to a pipe.
    Stream,
}

/// The incompatible feature flag of a stream: whoever does not know it would read the end mark as
/// data.
const STREAM: u64 = 1;

/// The header of a sealed file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Header {
    /// Where the units begin.
    pub layout: Layout,
    /// The cipher of the units.
    pub cipher: Cipher,
    /// How the file key is derived.
    pub kdf: Kdf,
    /// What zeros on the disk mean.
    pub zero_rule: ZeroRule,
    /// The class the file was made with.
    pub class: Class,
    /// What follows it.
    pub form: Form,
    /// Features that a reader may ignore.
    pub compatible: u64,
    /// Counts the updates of the header; the valid copy with the higher one wins.
    pub sequence: u64,
    /// The keyring that held the data key when the file was made.
    pub keyring: KeyringId,
    /// The generation of that keyring.
    pub generation: Generation,
    /// The data key that the file key is derived from.
    pub data_key: DataKeyId,
    /// Makes the file key unique.
    pub nonce: Nonce,
}

/// What every version with this magic keeps in the same places, so that the MAC of a copy can be
/// checked, and the copy be refused for good, also by a program that does not know its fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outline {
    /// The version of the fields.
    pub version: u16,
    /// Counts the updates of the header.
    pub sequence: u64,
    /// The keyring that held the data key.
    pub keyring: KeyringId,
    /// The generation of that keyring.
    pub generation: Generation,
    /// The data key that the MAC's key is derived from.
    pub data_key: DataKeyId,
}

/// One copy that begins with the magic; nothing of it is proven.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HeaderCopy {
    /// What every version has.
    pub outline: Outline,
    /// The fields of version 1, or the first rule of version 1 that they break.
    pub fields: Result<Header, HeaderError>,
    /// The copy as it stands on the disk.
    pub bytes: [u8; COPY_LEN],
}

/// Why these bytes are no header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// All bytes are zero: never written, or lost in a crash.
    #[error("the header is all zeros")]
    Zero,
    /// There are not enough bytes.
    #[error("the header is cut off")]
    Truncated,
    /// The file begins with something else.
    #[error("the file does not begin with the magic of a sealed file")]
    Magic,
    /// A version that this program does not know.
    #[error("the file has format version {0}, this program knows version 1")]
    Version(u16),
    /// A field has a value that version 1 does not have.
    #[error("the header field {field} has the unknown value {value}")]
    Field {
        /// The name in FORMAT.md.
        field: &'static str,
        /// The value found.
        value: u64,
    },
    /// The layout is not one of ours.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A feature without which the file cannot be read.
    #[error("the file needs features that this program does not have (flags {0:#x})")]
    Incompatible(u64),
    /// Bytes that must be zero are not.
    #[error("reserved bytes of the header are not zero")]
    Reserved,
}

/// True if these are the first bytes of a sealed file, of which one copy of the header may be lost.
#[must_use]
pub fn looks_sealed(first: &[u8]) -> bool {
    let at = |place: usize| first.get(place..).is_some_and(|copy| copy.starts_with(&MAGIC));
    at(0) || at(super::SECOND_COPY_AT)
}

impl Header {
    /// The header of a new file, as this version makes it.
    #[must_use]
    pub const fn new(
        class: Class,
        layout: Layout,
        (keyring, generation): (KeyringId, Generation),
        data_key: DataKeyId,
        nonce: Nonce,
    ) -> Self {
        Self {
            layout,
            cipher: Cipher::Aes256Xts,
            kdf: Kdf::HkdfExpandSha256,
            zero_rule: class.zero_rule(),
            class,
            form: Form::File,
            compatible: 0,
            sequence: 1,
            keyring,
            generation,
            data_key,
            nonce,
        }
    }

    /// True if this is the header that a file of a directory with this layout must have where the
    /// policy wants this zero rule. The classes may differ: a file keeps its header when it is
    /// renamed.
    #[must_use]
    pub fn agrees(&self, layout: Layout, zero_rule: ZeroRule) -> bool {
        self.layout == layout && self.zero_rule == zero_rule
    }

    /// The bytes that the MAC covers.
    #[must_use]
    pub fn signed_bytes(&self) -> [u8; SIGNED_LEN] {
        let mut out = [0u8; SIGNED_LEN];
        let mut put = |at: usize, field: &[u8]| {
            if let Some(place) = out.get_mut(at..at + field.len()) {
                place.copy_from_slice(field);
            }
        };
        put(0, &MAGIC);
        put(at::VERSION, &VERSION.to_le_bytes());
        put(at::COPY_LEN, &256u16.to_le_bytes());
        put(at::DATA_OFFSET, &self.layout.data_offset().to_le_bytes());
        put(at::CIPHER, &[self.cipher as u8]);
        put(at::KDF, &[self.kdf as u8]);
        put(at::ZERO_RULE, &[self.zero_rule as u8]);
        put(at::CLASS, &[self.class as u8]);
        put(at::UNIT, &4096u32.to_le_bytes());
        put(at::COMPATIBLE, &self.compatible.to_le_bytes());
        let incompatible = match self.form {
            Form::File => 0,
            Form::Stream => STREAM,
        };
        put(at::INCOMPATIBLE, &incompatible.to_le_bytes());
        put(at::SEQUENCE, &self.sequence.to_le_bytes());
        put(at::KEYRING, &self.keyring.0);
        put(at::GENERATION, &self.generation.0.to_le_bytes());
        put(at::DATA_KEY, &self.data_key.0);
        put(at::NONCE, &self.nonce.0);
        out
    }
}

/// [`Header::agrees`], of the bytes of a copy that was proven before.
#[must_use]
pub fn bytes_agree(copy: &[u8; COPY_LEN], layout: Layout, zero_rule: ZeroRule) -> bool {
    let offset = copy.get(at::DATA_OFFSET..).and_then(<[u8]>::first_chunk);
    offset == Some(&layout.data_offset().to_le_bytes())
        && copy.get(at::ZERO_RULE) == Some(&(zero_rule as u8))
}

impl HeaderCopy {
    /// Reads one copy.
    ///
    /// # Errors
    /// [`HeaderError::Zero`], [`HeaderError::Truncated`] or [`HeaderError::Magic`]: there is none.
    pub fn parse(copy: &[u8]) -> Result<Self, HeaderError> {
        let bytes: &[u8; COPY_LEN] = match copy.first_chunk() {
            Some(bytes) => bytes,
            None if copy.starts_with(&MAGIC) || MAGIC.starts_with(copy) => {
                return Err(HeaderError::Truncated);
            }
            None if copy.iter().all(|&byte| byte == 0) => return Err(HeaderError::Zero),
            None => return Err(HeaderError::Magic),
        };
        if bytes.iter().all(|&byte| byte == 0) {
            return Err(HeaderError::Zero);
        }
        if !bytes.starts_with(&MAGIC) {
            return Err(HeaderError::Magic);
        }
        Ok(Self {
            outline: outline(bytes).ok_or(HeaderError::Truncated)?,
            fields: fields(Reader::new(signed_part(bytes))),
            bytes: *bytes,
        })
    }

    /// The bytes that the MAC covers, and the MAC found.
    #[must_use]
    pub fn signed(&self) -> (&[u8], &[u8]) {
        self.bytes.split_at_checked(SIGNED_LEN).unwrap_or((&self.bytes, &[]))
    }
}

fn signed_part(copy: &[u8; COPY_LEN]) -> &[u8] {
    copy.get(..SIGNED_LEN).unwrap_or(copy)
}

fn outline(copy: &[u8; COPY_LEN]) -> Option<Outline> {
    let from = |at: usize| copy.get(at..);
    Some(Outline {
        version: u16::from_le_bytes(*from(at::VERSION)?.first_chunk()?),
        sequence: u64::from_le_bytes(*from(at::SEQUENCE)?.first_chunk()?),
        keyring: KeyringId(*from(at::KEYRING)?.first_chunk()?),
        generation: Generation(u64::from_le_bytes(*from(at::GENERATION)?.first_chunk()?)),
        data_key: DataKeyId(*from(at::DATA_KEY)?.first_chunk()?),
    })
}

fn fields(mut from: Reader<'_>) -> Result<Header, HeaderError> {
    let cut = |_| HeaderError::Truncated;
    let unknown = |field, value| HeaderError::Field { field, value };
    from.bytes(MAGIC.len()).map_err(cut)?;
    let version = from.u16().map_err(cut)?;
    if version != VERSION {
        return Err(HeaderError::Version(version));
    }
    let len = from.u16().map_err(cut)?;
    if usize::from(len) != COPY_LEN {
        return Err(unknown("header length", len.into()));
    }
    let layout = Layout::new(from.u32().map_err(cut)?)?;
    let cipher = match from.u8().map_err(cut)? {
        1 => Cipher::Aes256Xts,
        other => return Err(unknown("cipher", other.into())),
    };
    let kdf = match from.u8().map_err(cut)? {
        1 => Kdf::HkdfExpandSha256,
        other => return Err(unknown("kdf", other.into())),
    };
    let zero = from.u8().map_err(cut)?;
    let zero_rule = ZeroRule::from_number(zero).ok_or(unknown("zero rule", zero.into()))?;
    let class = from.u8().map_err(cut)?;
    let class = Class::from_number(class).ok_or(unknown("class", class.into()))?;
    if zero_rule != class.zero_rule() {
        return Err(unknown("zero rule", zero.into()));
    }
    let unit = from.u32().map_err(cut)?;
    if u64::from(unit) != UNIT {
        return Err(unknown("unit size", unit.into()));
    }
    let auth_unit = from.u32().map_err(cut)?;
    if auth_unit != 0 {
        return Err(unknown("authentication unit size", auth_unit.into()));
    }
    let pad = from.u32().map_err(cut)?;
    let compatible = from.u64().map_err(cut)?;
    let incompatible = from.u64().map_err(cut)?;
    let form = match incompatible {
        0 => Form::File,
        STREAM => Form::Stream,
        other => return Err(HeaderError::Incompatible(other & !STREAM)),
    };
    let header = Header {
        layout,
        cipher,
        kdf,
        zero_rule,
        class,
        form,
        compatible,
        sequence: from.u64().map_err(cut)?,
        keyring: KeyringId(from.array().map_err(cut)?),
        generation: Generation(from.u64().map_err(cut)?),
        data_key: DataKeyId(from.array().map_err(cut)?),
        nonce: Nonce(from.array().map_err(cut)?),
    };
    // The second key and its watermark serve rekeying in place and are zero in version 1.
    if pad != 0 || from.rest().iter().any(|&byte| byte != 0) {
        return Err(HeaderError::Reserved);
    }
    Ok(header)
}

//! From a data key: the key of one file, and the MAC of its header (FORMAT.md, "Keys").

use aws_lc_rs::{hkdf, hmac};
use tidelock_format::{Header, HeaderCopy, SIGNED_LEN};

use crate::secret::Secret;

/// What a derived key is for. Labels never repeat, so no two uses share a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Label {
    /// The AES-256-XTS key of one file.
    FileKey,
    /// The MAC of file headers.
    HeaderMac,
    /// The MAC at the end of one stream.
    StreamEnd,
    /// The MAC of conversion journals.
    Journal,
    /// The MAC of `tidelock report`.
    Report,
    /// The chain of the audit log.
    Audit,
}

impl Label {
    /// The bytes that HKDF-Expand gets first.
    #[must_use]
    pub const fn bytes(self) -> &'static [u8] {
        match self {
            Self::FileKey => b"tidelock v1 file key",
            Self::HeaderMac => b"tidelock v1 header mac",
            Self::StreamEnd => b"tidelock v1 stream end",
            Self::Journal => b"tidelock v1 journal mac",
            Self::Report => b"tidelock v1 report mac",
            Self::Audit => b"tidelock v1 audit chain",
        }
    }
}

/// A root key: file keys and MAC keys come from it.
pub struct DataKey {
    key: Secret<32>,
    /// Of the MAC of headers, which every opening checks.
    header_mac: Secret<32>,
}

/// The AES-256-XTS key of one file; its halves differ.
pub struct FileKey(Secret<64>);

impl DataKey {
    /// Takes a key of 32 uniformly random bytes.
    #[must_use]
    pub fn new(key: Secret<32>) -> Self {
        let mut header_mac = Secret::new([0; 32]);
        expand(&key, &[Label::HeaderMac.bytes()], header_mac.expose_mut());
        Self { key, header_mac }
    }

    /// The key's bytes, for the keyring that stores them.
    #[must_use]
    pub const fn secret(&self) -> &Secret<32> {
        &self.key
    }

    /// The key of the file with this header: HKDF-Expand over label, cipher, layout and nonce.
    ///
    /// # Panics
    /// If its halves are equal, which SP 800-38E forbids; the odds are 2^-256.
    #[must_use]
    pub fn file_key(&self, header: &Header) -> FileKey {
        let mut key = Secret::new([0; 64]);
        self.expand_for(Label::FileKey, header, key.expose_mut());
        let (data, tweak) = key.expose().split_at(32);
        assert!(data != tweak, "the halves of an XTS key are equal, at odds of 2^-256");
        FileKey(key)
    }

    /// The MAC over the signed part of a header.
    #[must_use]
    pub fn header_mac(&self, signed: &[u8; SIGNED_LEN]) -> [u8; 32] {
        let mut mac = [0; 32];
        mac.copy_from_slice(hmac::sign(&self.header_mac_key(), signed).as_ref());
        mac
    }

    /// True if the MAC of this copy is what this data key gives.
    #[must_use]
    pub fn proves(&self, copy: &HeaderCopy) -> bool {
        let (signed, mac) = copy.signed();
        hmac::verify(&self.header_mac_key(), signed, mac).is_ok()
    }

    fn header_mac_key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, self.header_mac.expose())
    }

    /// The key of the MAC at the end of the stream with this header.
    #[must_use]
    pub(crate) fn stream_key(&self, header: &Header) -> hmac::Key {
        let mut key = Secret::<32>::new([0; 32]);
        self.expand_for(Label::StreamEnd, header, key.expose_mut());
        hmac::Key::new(hmac::HMAC_SHA256, key.expose())
    }

    /// A MAC key for one use.
    #[must_use]
    pub(crate) fn mac_key(&self, label: Label) -> hmac::Key {
        let mut key = Secret::<32>::new([0; 32]);
        self.expand(&[label.bytes()], key.expose_mut());
        hmac::Key::new(hmac::HMAC_SHA256, key.expose())
    }

    /// The MAC over a report.
    #[must_use]
    pub fn report_mac(&self, report: &[u8]) -> [u8; 32] {
        let mut mac = [0; 32];
        mac.copy_from_slice(hmac::sign(&self.mac_key(Label::Report), report).as_ref());
        mac
    }

    /// True if this is the MAC of the report under this data key.
    #[must_use]
    pub fn proves_report(&self, report: &[u8], mac: &[u8]) -> bool {
        hmac::verify(&self.mac_key(Label::Report), report, mac).is_ok()
    }

    /// The key of the audit log's chain.
    #[must_use]
    pub fn audit_key(&self) -> Secret<32> {
        let mut key = Secret::new([0; 32]);
        self.expand(&[Label::Audit.bytes()], key.expose_mut());
        key
    }

    /// What belongs to one file alone: label, cipher, layout and nonce.
    fn expand_for(&self, label: Label, header: &Header, out: &mut [u8]) {
        let layout = header.layout.data_offset().to_le_bytes();
        self.expand(&[label.bytes(), &[header.cipher as u8], &layout, &header.nonce.0], out);
    }

    fn expand(&self, info: &[&[u8]], out: &mut [u8]) {
        expand(&self.key, info, out);
    }
}

/// HKDF-Expand.
fn expand(key: &Secret<32>, info: &[&[u8]], out: &mut [u8]) {
    struct Length(usize);
    impl hkdf::KeyType for Length {
        fn len(&self) -> usize {
            self.0
        }
    }
    hkdf::Prk::new_less_safe(hkdf::HKDF_SHA256, key.expose())
        .expand(info, Length(out.len()))
        .and_then(|okm| okm.fill(out))
        .expect("at most 255 blocks of 32 bytes are asked for");
}

impl FileKey {
    /// The 64 bytes, for the cipher: data key, then tweak key.
    #[must_use]
    pub const fn expose(&self) -> &[u8; 64] {
        self.0.expose()
    }
}

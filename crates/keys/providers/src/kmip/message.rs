//! KMIP's messages (OASIS KMIP 1.4) as far as they are asked here: Get, Get Attributes, Encrypt,
//! Decrypt.
//!
//! Types for `kmip-ttlv`: a name is a tag, `Transparent:` one is a bare value. `kmip-protocol` has
//! the first two and the enumerations, not the payloads of Encrypt and Decrypt.

use kmip_protocol::types::common::{
    BlockCipherMode, CryptographicAlgorithm, CryptographicParameters, Operation, TagLength,
    UniqueIdentifier,
};
use kmip_protocol::types::request::{
    BatchCount, ProtocolVersion, ProtocolVersionMajor, ProtocolVersionMinor, RequestHeader,
};
use kmip_protocol::types::response::{self, ResultStatus};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// One operation and its payload.
#[derive(Serialize)]
#[serde(rename = "0x420078")]
pub(super) struct Request<P>(RequestHeader, RequestItem<P>);

#[derive(Serialize)]
#[serde(rename = "0x42000F")]
struct RequestItem<P>(Operation, P);

impl<P> Request<P> {
    /// In the version `1.minor` of the protocol.
    pub(super) fn new(minor: i32, operation: Operation, payload: P) -> Self {
        let version = ProtocolVersion(ProtocolVersionMajor(1), ProtocolVersionMinor(minor));
        let header = RequestHeader(version, None, None, BatchCount(1));
        Self(header, RequestItem(operation, payload))
    }
}

/// Get: the object with this identifier.
#[derive(Serialize)]
#[serde(rename = "0x420079")]
pub(super) struct Get(pub(super) UniqueIdentifier);

/// Get Attributes: the one with this name.
#[derive(Serialize)]
#[serde(rename = "0x420079")]
pub(super) struct GetAttribute(pub(super) UniqueIdentifier, pub(super) Name);

/// The name of an attribute.
#[derive(Serialize)]
#[serde(rename = "Transparent:0x42000A")]
pub(super) struct Name(pub(super) &'static str);

/// Encrypt: with which key and how, what, IV, associated data.
#[derive(Serialize)]
#[serde(rename = "0x420079")]
pub(super) struct Encrypt<'a>(
    pub(super) UniqueIdentifier,
    pub(super) CryptographicParameters,
    pub(super) Data<'a>,
    pub(super) Iv<'a>,
    pub(super) Associated<'a>,
);

/// Decrypt: the same, and the tag.
#[derive(Serialize)]
#[serde(rename = "0x420079")]
pub(super) struct Decrypt<'a>(
    pub(super) UniqueIdentifier,
    pub(super) CryptographicParameters,
    pub(super) Data<'a>,
    pub(super) Iv<'a>,
    pub(super) Associated<'a>,
    pub(super) Tag<'a>,
);

/// Data.
#[derive(Serialize)]
#[serde(rename = "Transparent:0x4200C2")]
pub(super) struct Data<'a>(#[serde(with = "serde_bytes")] pub(super) &'a [u8]);

/// IV/Counter/Nonce.
#[derive(Serialize)]
#[serde(rename = "Transparent:0x42003D")]
pub(super) struct Iv<'a>(#[serde(with = "serde_bytes")] pub(super) &'a [u8]);

/// Authenticated Encryption Additional Data.
#[derive(Serialize)]
#[serde(rename = "Transparent:0x4200FE")]
pub(super) struct Associated<'a>(#[serde(with = "serde_bytes")] pub(super) &'a [u8]);

/// Authenticated Encryption Tag.
#[derive(Serialize)]
#[serde(rename = "Transparent:0x4200FF")]
pub(super) struct Tag<'a>(#[serde(with = "serde_bytes")] pub(super) &'a [u8]);

/// AES-GCM with a tag of so many bytes.
pub(super) fn aes_gcm(tag: i32) -> CryptographicParameters {
    CryptographicParameters {
        block_cipher_mode: Some(BlockCipherMode::GCM),
        cryptographic_algorithm: Some(CryptographicAlgorithm::AES),
        tag_length: Some(TagLength(tag)),
        ..CryptographicParameters::default()
    }
}

/// The answer to one operation. Fields stand as the standard orders them, and `kmip-ttlv` reads
/// them so; those behind the last one are skipped.
#[derive(Deserialize)]
#[serde(rename = "0x42007B")]
pub(super) struct Response<P> {
    #[serde(rename = "0x42007A")]
    _header: ResponseHeader,
    #[serde(rename = "0x42000F")]
    pub(super) items: Vec<ResponseItem<P>>,
}

#[derive(Deserialize)]
#[serde(rename = "0x42007A")]
struct ResponseHeader {
    #[serde(rename = "0x420069")]
    _version: response::ProtocolVersion,
}

#[derive(Deserialize)]
#[serde(rename = "0x42000F")]
pub(super) struct ResponseItem<P> {
    #[serde(rename = "0x42005C")]
    _operation: Option<Operation>,
    #[serde(rename = "0x420093")]
    _id: Option<ByteBuf>,
    #[serde(rename = "0x42007F")]
    pub(super) status: ResultStatus,
    #[serde(rename = "0x42007E")]
    pub(super) reason: Option<Reason>,
    #[serde(rename = "0x42007D")]
    pub(super) message: Option<String>,
    #[serde(rename = "0x42007C")]
    pub(super) payload: Option<P>,
}

#[derive(Deserialize)]
#[serde(rename = "0x42007C")]
pub(super) struct Attributes {
    #[serde(rename = "0x420094")]
    _identifier: Option<String>,
    #[serde(rename = "0x420008")]
    pub(super) attributes: Option<Vec<Attribute>>,
}

#[derive(Deserialize)]
#[serde(rename = "0x420008")]
pub(super) struct Attribute {
    #[serde(rename = "0x42000A")]
    pub(super) name: String,
    #[serde(rename = "0x420009")]
    _index: Option<i32>,
    #[serde(rename = "0x42000B")]
    pub(super) value: i32,
}

/// What Encrypt gives. An IV is there if the server made or changed it.
#[derive(Deserialize)]
#[serde(rename = "0x42007C")]
pub(super) struct Encrypted {
    #[serde(rename = "0x420094")]
    _identifier: Option<String>,
    #[serde(rename = "0x4200C2")]
    pub(super) data: ByteBuf,
    #[serde(rename = "0x42003D")]
    pub(super) iv: Option<ByteBuf>,
    #[serde(rename = "0x4200FF")]
    pub(super) tag: Option<ByteBuf>,
}

/// What Decrypt gives.
#[derive(Deserialize)]
#[serde(rename = "0x42007C")]
pub(super) struct Decrypted {
    #[serde(rename = "0x420094")]
    _identifier: Option<String>,
    #[serde(rename = "0x4200C2")]
    pub(super) data: ByteBuf,
}

/// Why an operation failed (KMIP 1.4, 9.1.3.2.29).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename = "0x42007E")]
pub(super) enum Reason {
    #[serde(rename = "0x00000001")]
    ItemNotFound,
    #[serde(rename = "0x00000002")]
    ResponseTooLarge,
    #[serde(rename = "0x00000003")]
    AuthenticationNotSuccessful,
    #[serde(rename = "0x00000004")]
    InvalidMessage,
    #[serde(rename = "0x00000005")]
    OperationNotSupported,
    #[serde(rename = "0x00000006")]
    MissingData,
    #[serde(rename = "0x00000007")]
    InvalidField,
    #[serde(rename = "0x00000008")]
    FeatureNotSupported,
    #[serde(rename = "0x00000009")]
    Canceled,
    #[serde(rename = "0x0000000A")]
    CryptographicFailure,
    #[serde(rename = "0x0000000B")]
    IllegalOperation,
    #[serde(rename = "0x0000000C")]
    PermissionDenied,
    #[serde(rename = "0x0000000D")]
    ObjectArchived,
    #[serde(rename = "0x0000000E")]
    IndexOutOfBounds,
    #[serde(rename = "0x0000000F")]
    NamespaceNotSupported,
    #[serde(rename = "0x00000010")]
    KeyFormatNotSupported,
    #[serde(rename = "0x00000011")]
    KeyCompressionNotSupported,
    #[serde(rename = "0x00000012")]
    EncodingOption,
    #[serde(rename = "0x00000013")]
    KeyValueNotPresent,
    #[serde(rename = "0x00000014")]
    AttestationRequired,
    #[serde(rename = "0x00000015")]
    AttestationFailed,
    #[serde(rename = "0x00000016")]
    Sensitive,
    #[serde(rename = "0x00000017")]
    NotExtractable,
    #[serde(rename = "0x00000018")]
    AlreadyExists,
    #[serde(rename = "0x00000100")]
    GeneralFailure,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PyKMIP 0.11's answer to Get Attributes for a key of 256 bits.
    const ANSWER: &str = "\
        42007b01000000c842007a0100000048420069010000002042006a02000000040000000100000000\
        42006b020000000400000004000000004200920900000008000000006b01525d42000d0200000004\
        000000010000000042000f010000007042005c05000000040000000b0000000042007f0500000004\
        000000000000000042007c0100000048420094070000000131000000000000004200080100000030\
        42000a070000001443727970746f67726170686963204c656e6774680000000042000b0200000004\
        0000010000000000";

    fn bytes() -> Vec<u8> {
        data_encoding::HEXLOWER.decode(ANSWER.as_bytes()).unwrap()
    }

    fn length(bytes: &[u8]) -> Option<i32> {
        let answer: Response<Attributes> = kmip_ttlv::from_slice(bytes).ok()?;
        answer.items.first()?.payload.as_ref()?.attributes.as_ref()?.first().map(|one| one.value)
    }

    #[test]
    fn an_answer_is_read_and_a_broken_one_refused_without_a_panic() {
        let whole = bytes();
        assert_eq!(length(&whole), Some(256));
        for at in 0..whole.len() {
            assert_eq!(length(&whole[..at]), None, "cut at {at}");
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = whole.clone();
                // Lengths of gigabytes are another matter: the connection takes none.
                if at % 8 == 4 || at % 8 == 5 {
                    continue;
                }
                changed[at] = value;
                let _ = length(&changed);
            }
        }
    }
}

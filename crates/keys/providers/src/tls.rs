//! Whom a TLS connection trusts, over AWS-LC: the authorities of a file, else the machine's.

use std::path::Path;
use std::sync::Arc;

use rustls::AlertDescription as Alert;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tidelock_keyring::{Error, ServiceFault};

/// The one cryptographic library.
pub(crate) fn crypto() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

/// Whose trouble a failed handshake is, and what to say of the other side.
pub(crate) fn trouble(why: &rustls::Error, place: &str) -> (ServiceFault, String) {
    let rustls::Error::AlertReceived(alert) = why else {
        return (ServiceFault::Protocol, format!("cannot be trusted ({place}: {why})"));
    };
    // RFC 8446, 6.2
    let (fault, words) = match alert {
        Alert::HandshakeFailure | Alert::InsufficientSecurity | Alert::ProtocolVersion => {
            (ServiceFault::Protocol, "has no version and cipher of TLS in common with this program")
        }
        Alert::BadCertificate
        | Alert::UnsupportedCertificate
        | Alert::CertificateRevoked
        | Alert::CertificateExpired
        | Alert::CertificateUnknown
        | Alert::UnknownCA
        | Alert::AccessDenied
        | Alert::CertificateRequired => {
            (ServiceFault::Credentials, "does not accept the client certificate")
        }
        _ => (ServiceFault::Protocol, "ended the TLS handshake"),
    };
    let said = alert.as_str().unwrap_or("an alert without a name");
    (fault, format!("{words} ({place}: {said})"))
}

/// The certificates of a PEM file, or the machine's.
///
/// # Errors
/// The file cannot be read, or has no certificate.
pub(crate) fn authorities(file: Option<&Path>) -> Result<Vec<CertificateDer<'static>>, Error> {
    match file {
        Some(path) => certificates(path),
        None => Ok(rustls_native_certs::load_native_certs().certs),
    }
}

/// The certificates of a PEM file: at least one.
///
/// # Errors
/// The file cannot be read, or has no certificate.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let failed = |source| Error::Io { what: "read the certificates in", path: path.into(), source };
    let text = std::fs::read(path).map_err(failed)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let invalid = |why| failed(std::io::Error::new(std::io::ErrorKind::InvalidData, why));
    match read {
        Ok(found) if found.is_empty() => Err(invalid("there is none".to_string())),
        Ok(found) => Ok(found),
        Err(why) => Err(invalid(why.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cipher_that_is_not_in_common_is_not_the_certificates_fault() {
        for (alert, fault, words) in [
            (Alert::HandshakeFailure, ServiceFault::Protocol, "cipher"),
            (Alert::ProtocolVersion, ServiceFault::Protocol, "version"),
            (Alert::UnknownCA, ServiceFault::Credentials, "certificate"),
            (Alert::CertificateExpired, ServiceFault::Credentials, "certificate"),
            (Alert::InternalError, ServiceFault::Protocol, "ended"),
        ] {
            let (found, said) = trouble(&rustls::Error::AlertReceived(alert), "h:5696");
            assert_eq!(found, fault, "{said}");
            assert!(said.contains(words), "{said}");
        }
    }
}

//! Whom a TLS connection trusts, over AWS-LC: the authorities of a file, else the machine's.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tidelock_keys::Error;

/// The one cryptographic library.
pub(crate) fn crypto() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
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

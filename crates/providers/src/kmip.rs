//! A principal key that a KMIP server hands out over TLS: operation Get, a raw key of 256 bits.
//!
//! It leaves the server at each unlock. Encrypt and Decrypt, with which it would not, are not part
//! of the crate that speaks KMIP here.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kmip_protocol::types::common::{KeyMaterial, ObjectType, UniqueIdentifier};
use kmip_protocol::types::request::RequestPayload;
use kmip_protocol::types::response::{
    GetResponsePayload, ManagedObject, ResponseMessage, ResponsePayload, ResultReason, ResultStatus,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tidelock_cipher::Secret;
use tidelock_keys::{
    Error, Health, KmipChoice, PrincipalKey, Purpose, ServiceFault, SlotKind, SlotTerms, parse_key,
    read_secret,
};
use x509_parser::prelude::{FromDer, X509Certificate};
use zeroize::Zeroizing;

use crate::tls;

/// Opens slots with one key of one server.
pub(crate) struct KmipProvider {
    choice: KmipChoice,
}

/// A connection that ends at a moment, however slowly the other side speaks.
struct Timed {
    stream: TcpStream,
    until: Instant,
}

impl KmipProvider {
    pub(crate) fn new(choice: &KmipChoice) -> Self {
        Self { choice: choice.clone() }
    }

    fn connect(&self) -> Result<StreamOwned<ClientConnection, Timed>, Error> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(tls::authorities(self.choice.ca_file.as_deref())?);
        let chain = tls::certificates(&self.choice.certificate_file)?;
        let pem = read_secret(&self.choice.key_file)?;
        let credentials = |why: String| fault(ServiceFault::Credentials, why);
        let key = PrivateKeyDer::from_pem_slice(&pem).map_err(|_| {
            credentials(format!("gets no private key from {}", self.choice.key_file.display()))
        })?;
        let config = ClientConfig::builder_with_provider(tls::crypto())
            .with_safe_default_protocol_versions()
            .map_err(|why| self.distrust(&why))?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)
            .map_err(|why| credentials(format!("cannot use the client certificate: {why}")))?;
        let name = ServerName::try_from(self.choice.host.clone())
            .map_err(|_| fault(ServiceFault::Protocol, "has a name that is no host's"))?;
        let tls = ClientConnection::new(Arc::new(config), name);
        let mut tls = tls.map_err(|why| self.distrust(&why))?;
        let mut stream = self.reach().map_err(|why| self.no_answer(&why))?;
        while tls.is_handshaking() {
            tls.complete_io(&mut stream).map_err(|why| self.no_answer(&why))?;
        }
        Ok(StreamOwned::new(tls, stream))
    }

    fn reach(&self) -> io::Result<Timed> {
        let until = Instant::now() + Duration::from_secs(self.choice.timeout_seconds.into());
        let mut failure = io::ErrorKind::NotFound.into();
        for address in (&*self.choice.host, self.choice.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, left(until)?) {
                Ok(stream) => return Ok(Timed { stream, until }),
                Err(why) => failure = why,
            }
        }
        Err(failure)
    }

    fn distrust(&self, why: &rustls::Error) -> Error {
        let place = self.choice.place();
        match why {
            rustls::Error::AlertReceived(alert) => {
                let why = format!("does not accept the client certificate ({place}: {alert:?})");
                fault(ServiceFault::Credentials, why)
            }
            _ => fault(ServiceFault::Protocol, format!("cannot be trusted ({place}: {why})")),
        }
    }

    fn no_answer(&self, why: &io::Error) -> Error {
        let (place, seconds) = (self.choice.place(), self.choice.timeout_seconds);
        if let Some(why) = why.get_ref().and_then(|why| why.downcast_ref::<rustls::Error>()) {
            return self.distrust(why);
        }
        let words = match why.kind() {
            io::ErrorKind::TimedOut => format!("did not answer ({place}, {seconds} s)"),
            _ => format!("did not answer ({place}: {why})"),
        };
        fault(ServiceFault::NoAnswer, words)
    }

    fn get(&self) -> Result<GetResponsePayload, Error> {
        let id = UniqueIdentifier(self.choice.key_id.clone());
        let request = RequestPayload::Get(Some(id), None, None, None);
        let request = kmip_protocol::request::to_vec(request, None)
            .map_err(|_| fault(ServiceFault::Protocol, "cannot be asked for such a key"))?;
        let mut stream = self.connect()?;
        let answer = exchange(&mut stream, &request).map_err(|why| self.no_answer(&why))?;
        let message = answer
            .and_then(|bytes| kmip_protocol::response::from_slice::<ResponseMessage>(&bytes).ok())
            .and_then(|mut message| message.batch_items.pop());
        let not_kmip = || {
            let why = format!("gave an answer that is not KMIP's ({})", self.choice.place());
            fault(ServiceFault::Protocol, why)
        };
        let item = message.ok_or_else(not_kmip)?;
        match (&item.result_status, item.payload) {
            (ResultStatus::Success, Some(ResponsePayload::Get(got))) => Ok(got),
            (ResultStatus::OperationFailed, _) => {
                Err(self.refusal(item.result_reason.as_ref(), item.result_message.as_deref()))
            }
            _ => Err(not_kmip()),
        }
    }

    /// What the server means by its refusal.
    fn refusal(&self, reason: Option<&ResultReason>, said: Option<&str>) -> Error {
        let (place, key) = (self.choice.place(), &self.choice.key_id);
        let said: String =
            said.unwrap_or_default().chars().filter(|c| !c.is_control()).take(MAX_WORDS).collect();
        match reason {
            Some(ResultReason::ItemNotFound) => {
                let why = format!("has no key {key} for this client ({place})");
                fault(ServiceFault::NotFound, why)
            }
            Some(ResultReason::PermissionDenied) => {
                fault(ServiceFault::Denied, format!("refuses key {key} ({place}: {said})"))
            }
            Some(ResultReason::AuthenticationNotSuccessful) => {
                let why = format!("does not accept this client ({place}: {said})");
                fault(ServiceFault::Credentials, why)
            }
            _ => {
                fault(ServiceFault::Protocol, format!("does not give key {key} ({place}: {said})"))
            }
        }
    }
}

impl PrincipalKey for KmipProvider {
    fn kind(&self) -> SlotKind {
        SlotKind::Kmip
    }

    fn describe(&self) -> String {
        format!("KMIP key {} at {}", self.choice.key_id, self.choice.place())
    }

    fn reference(&self) -> String {
        self.choice.key_id.clone()
    }

    fn principal_key(&self, _: &SlotTerms, _: Purpose) -> Result<Secret<32>, Error> {
        let got = self.get()?;
        let place = self.choice.place();
        raw(got).and_then(|key| parse_key(&key)).ok_or_else(|| {
            let why = format!("has no raw symmetric key of 256 bits there ({place})");
            fault(ServiceFault::Protocol, why)
        })
    }

    fn health(&self) -> Health {
        let chain = tls::certificates(&self.choice.certificate_file).unwrap_or_default();
        let ends = chain.iter().filter_map(|one| {
            let (_, certificate) = X509Certificate::from_der(one).ok()?;
            Some(certificate.validity().not_after.timestamp())
        });
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let left = ends.min().map(|end| u64::try_from(end).unwrap_or(0).saturating_sub(now));
        Health { expires: left.map(|left| ("the client certificate".into(), left)) }
    }
}

impl Read for Timed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(left(self.until)?))?;
        self.stream.read(into).map_err(late)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(left(self.until)?))?;
        self.stream.write(bytes).map_err(late)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// One request, one answer: a TTLV structure tells its length in bytes 4 to 8. `None` if it is too
/// long.
fn exchange(
    stream: &mut (impl Read + Write),
    request: &[u8],
) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    stream.write_all(request)?;
    stream.flush()?;
    let mut head = [0; 8];
    stream.read_exact(&mut head)?;
    let length = usize::try_from(u32::from_be_bytes([head[4], head[5], head[6], head[7]]));
    let Some(length) = length.ok().filter(|length| *length <= MAX_ANSWER) else {
        return Ok(None);
    };
    let mut answer = Zeroizing::new(vec![0; 8 + length]);
    answer[..8].copy_from_slice(&head);
    stream.read_exact(&mut answer[8..])?;
    Ok(Some(answer))
}

/// More than nothing: no timeout is endless.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(timed_out()) } else { Ok(left) }
}

fn late(why: io::Error) -> io::Error {
    if why.kind() == io::ErrorKind::WouldBlock { timed_out() } else { why }
}

fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "timed out")
}

/// The bytes of a raw symmetric key.
fn raw(got: GetResponsePayload) -> Option<Zeroizing<Vec<u8>>> {
    let ManagedObject::SymmetricKey(key) = got.cryptographic_object else { return None };
    let KeyMaterial::Bytes(bytes) = key.key_block.key_value.key_material else { return None };
    let bytes = Zeroizing::new(bytes);
    (got.object_type == ObjectType::SymmetricKey && bytes.len() == 32).then_some(bytes)
}

fn fault(fault: ServiceFault, why: impl Into<String>) -> Error {
    Error::Service { provider: SlotKind::Kmip, fault, why: why.into() }
}

/// Of the server's own words, in an error.
const MAX_WORDS: usize = 200;
/// A key's answer has a few hundred bytes.
const MAX_ANSWER: usize = 64 * 1024;

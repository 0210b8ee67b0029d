//! One KMIP server: a TLS connection for each question, and what its refusals mean.
//!
//! Knows nothing of slots.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kmip_protocol::types::common::{Operation, UniqueIdentifier};
use kmip_protocol::types::response::ResultStatus;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde::{Deserialize, Serialize};
use tidelock_keyring::{Error, Health, ServiceFault};
use x509_parser::prelude::{FromDer, X509Certificate};
use zeroize::Zeroizing;

use super::message::{Reason, Request, Response, ResponseItem};
use super::{KmipChoice, fault};
use crate::tls;
use crate::trust::read_secret;

/// A server, the key that is asked for, and whose certificate asks.
pub(super) struct Server {
    choice: KmipChoice,
}

/// An operation that the server did not do.
pub(super) struct Refusal {
    pub(super) reason: Option<Reason>,
    said: String,
}

/// A connection that ends at a moment, however slowly the other side speaks.
struct Timed {
    stream: TcpStream,
    until: Instant,
}

impl Server {
    pub(super) fn new(choice: &KmipChoice) -> Self {
        Self { choice: choice.clone() }
    }

    /// `HOST:PORT`, for messages.
    pub(super) fn place(&self) -> String {
        self.choice.place()
    }

    /// The key's unique identifier.
    pub(super) fn key(&self) -> &str {
        &self.choice.key_id
    }

    /// The same, as messages have it.
    pub(super) fn identifier(&self) -> UniqueIdentifier {
        UniqueIdentifier(self.choice.key_id.clone())
    }

    /// Asks for one operation, in the version `1.minor`. The inner error is the server's refusal.
    pub(super) fn ask<Q: Serialize, A: for<'de> Deserialize<'de>>(
        &self,
        minor: i32,
        operation: Operation,
        payload: Q,
    ) -> Result<Result<A, Refusal>, Error> {
        let request = kmip_ttlv::to_vec(&Request::new(minor, operation, payload))
            .map(Zeroizing::new)
            .map_err(|_| fault(ServiceFault::Protocol, "cannot be asked for such a key"))?;
        let mut stream = self.connect()?;
        let answer = exchange(&mut stream, &request).map_err(|why| self.no_answer(&why))?;
        let message = answer
            .and_then(|bytes| kmip_ttlv::from_slice::<Response<A>>(&bytes).ok())
            .and_then(|mut message| message.items.pop());
        match message {
            Some(ResponseItem {
                status: ResultStatus::Success, payload: Some(payload), ..
            }) => Ok(Ok(payload)),
            Some(ResponseItem {
                status: ResultStatus::OperationFailed, reason, message, ..
            }) => {
                let said = message.unwrap_or_default();
                let said = said.chars().filter(|c| !c.is_control()).take(MAX_WORDS).collect();
                Ok(Err(Refusal { reason, said }))
            }
            _ => {
                let why = format!("gave an answer that is not KMIP's ({})", self.place());
                Err(fault(ServiceFault::Protocol, why))
            }
        }
    }

    /// What the server means by its refusal.
    pub(super) fn refused(&self, refusal: &Refusal) -> Error {
        let (place, key, said) = (self.place(), self.key(), &refusal.said);
        match refusal.reason {
            Some(Reason::ItemNotFound) => {
                let why = format!("has no key {key} for this client ({place})");
                fault(ServiceFault::NotFound, why)
            }
            Some(Reason::PermissionDenied | Reason::Sensitive | Reason::NotExtractable) => {
                fault(ServiceFault::Denied, format!("refuses key {key} ({place}: {said})"))
            }
            Some(Reason::AuthenticationNotSuccessful) => {
                let why = format!("does not accept this client ({place}: {said})");
                fault(ServiceFault::Credentials, why)
            }
            Some(Reason::OperationNotSupported | Reason::FeatureNotSupported) => {
                let why = format!("cannot do this with key {key} ({place}: {said})");
                fault(ServiceFault::Protocol, why)
            }
            _ => {
                fault(ServiceFault::Protocol, format!("does not give key {key} ({place}: {said})"))
            }
        }
    }

    /// When the client certificate ends.
    pub(super) fn health(&self) -> Health {
        let chain = tls::certificates(&self.choice.certificate_file).unwrap_or_default();
        let ends = chain.iter().filter_map(|one| {
            let (_, certificate) = X509Certificate::from_der(one).ok()?;
            Some(certificate.validity().not_after.timestamp())
        });
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let left = ends.min().map(|end| u64::try_from(end).unwrap_or(0).saturating_sub(now));
        Health { expires: left.map(|left| ("the client certificate".into(), left)) }
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
        // The name service has timeouts of its own, which leave nothing of a short one.
        let addresses = (&*self.choice.host, self.choice.port).to_socket_addrs()?;
        connect(addresses, Duration::from_secs(self.choice.timeout_seconds.into()))
    }

    fn distrust(&self, why: &rustls::Error) -> Error {
        let (kind, words) = tls::trouble(why, &self.choice.place());
        fault(kind, words)
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

/// The first address that answers. One that says nothing leaves the others their share of the time.
fn connect(
    addresses: impl ExactSizeIterator<Item = SocketAddr>,
    time: Duration,
) -> io::Result<Timed> {
    let until = Instant::now() + time;
    let mut failure = io::ErrorKind::NotFound.into();
    let mut waiting = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    for address in addresses {
        // Never nothing, which the system takes for a mistake.
        let share = (left(until)? / waiting.max(1)).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&address, share) {
            Ok(stream) => return Ok(Timed { stream, until }),
            Err(why) => failure = why,
        }
        waiting = waiting.saturating_sub(1);
    }
    Err(failure)
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

/// Of the server's own words, in an error.
const MAX_WORDS: usize = 200;
/// A key's answer has a few hundred bytes.
const MAX_ANSWER: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Where nobody accepts, the kernel takes some connections, and leaves others without an
    /// answer.
    #[test]
    fn an_address_that_says_nothing_leaves_the_next_one_its_share_of_the_time() {
        const MOST: usize = 900;
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [silent, good] = listeners.each_ref().map(|it| it.local_addr().unwrap());
        let patience = Duration::from_secs(1);
        let taken = std::iter::from_fn(|| TcpStream::connect_timeout(&silent, patience).ok());
        let taken: Vec<_> = taken.take(MOST).collect();
        assert!(taken.len() < MOST, "it takes any number");
        let reached = connect([silent, good].into_iter(), Duration::from_secs(4)).unwrap();
        assert_eq!(reached.stream.peer_addr().unwrap(), good);
    }
}

//! AWS KMS wraps, under a key that never leaves it: Encrypt and Decrypt with an encryption context.
//!
//! ```text
//!   version 1 | ciphertext of KMS
//!   context: tidelock:keyring, tidelock:slot, tidelock:terms = SHA-256 of the associated data
//! ```
//!
//! The context stands in CloudTrail in plain, so an audit sees which keyring was opened. What is
//! wrapped is 64 bytes that exist already, so GenerateDataKey has no use here. A runtime of one
//! thread lives for one call. Amazon's crates do not wipe their buffers of requests and answers.

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, Region};
use aws_lc_rs::digest::{SHA256, digest};
use aws_sdk_kms::Client;
use aws_sdk_kms::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_kms::config::{ConfigBag, Intercept, ProvideCredentials, RuntimeComponents};
use aws_sdk_kms::error::{BoxError, ProvideErrorMetadata, SdkError};
use aws_sdk_kms::primitives::Blob;
use data_encoding::HEXLOWER;
use tidelock_keyring::{Error, Payload, Provider, ServiceFault, SlotKind, SlotTerms, Wrapping};
use zeroize::Zeroizing;

use super::{AwsKmsProvider, SLOT, fault};

const VERSION: u8 = 1;
/// Of the reasons, in an error.
const MAX_WORDS: usize = 300;
/// The least time that a connection gets, within the time of the call.
const CONNECT: Duration = Duration::from_secs(3);

impl AwsKmsProvider {
    /// Runs one call, credentials included, for at most the configured time.
    fn run<T, F>(&self, call: impl FnOnce(Client) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|why| {
            self.place_fault(ServiceFault::NoAnswer, &format!("was not called: {why}"))
        })?;
        let limit = self.timeout();
        let work = async { call(self.client().await?).await };
        let done = runtime.block_on(async { tokio::time::timeout(limit, work).await });
        // A name that is still being looked up keeps a thread; it is not waited for.
        runtime.shutdown_background();
        done.unwrap_or_else(|_| {
            let why = format!("did not answer within {} s", limit.as_secs());
            Err(self.place_fault(ServiceFault::NoAnswer, &why))
        })
    }

    async fn client(&self) -> Result<Client, Error> {
        let limit = self.timeout();
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(CONNECT.min(limit))
            .operation_timeout(limit)
            .build();
        let mut loader = aws_config::defaults(BehaviorVersion::v2026_01_12())
            .timeout_config(timeouts)
            .retry_config(RetryConfig::standard());
        if let Some(region) = self.region() {
            loader = loader.region(Region::new(region.to_owned()));
        }
        if let Some(profile) = &self.profile {
            loader = loader.profile_name(profile);
        }
        if let Some(endpoint) = &self.endpoint {
            loader = loader.endpoint_url(endpoint);
        }
        let found = loader.load().await;
        if found.region().is_none() {
            let why = "has no region: neither configuration nor environment says one";
            return Err(self.place_fault(ServiceFault::NotFound, why));
        }
        let chain = found.credentials_provider().ok_or_else(|| {
            self.place_fault(ServiceFault::Credentials, "was given no credentials")
        })?;
        let credentials = chain.provide_credentials().await.map_err(|why| {
            let why = format!("was given no credentials: {}", causes(&why));
            self.place_fault(ServiceFault::Credentials, &why)
        })?;
        let config = aws_sdk_kms::config::Builder::from(&found)
            .credentials_provider(credentials)
            .interceptor(NeverInPlain)
            .build();
        Ok(Client::from_conf(config))
    }

    fn place(&self) -> String {
        let region = self.region().map_or(String::new(), |region| format!(" in {region}"));
        let endpoint = self.endpoint.as_ref();
        let endpoint = endpoint.map_or(String::new(), |endpoint| format!(" at {endpoint}"));
        format!("{}{region}{endpoint}", self.key)
    }

    fn place_fault(&self, kind: ServiceFault, why: &str) -> Error {
        fault(kind, format!("{why} ({})", self.place()))
    }

    /// Service errors by their code, all others by what broke.
    fn sdk_error<E, R>(&self, why: SdkError<E, R>) -> Error
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
        R: std::fmt::Debug,
    {
        match &why {
            SdkError::ServiceError(said) => {
                let said = said.err();
                let code = said.code().unwrap_or("an error without a code");
                let words = said.message().map_or(String::new(), |words| format!(": {words}"));
                self.place_fault(fault_of(code), &format!("answered {code}{words}"))
            }
            SdkError::TimeoutError(_) => {
                let seconds = self.timeout().as_secs();
                self.place_fault(
                    ServiceFault::NoAnswer,
                    &format!("did not answer within {seconds} s"),
                )
            }
            SdkError::DispatchFailure(failure) if failure.is_io() || failure.is_timeout() => {
                let why = format!("did not answer: {}", causes(&why));
                self.place_fault(ServiceFault::NoAnswer, &why)
            }
            _ => {
                let why = format!("was not understood: {}", causes(&why));
                self.place_fault(ServiceFault::Protocol, &why)
            }
        }
    }
}

impl Provider for AwsKmsProvider {
    fn kind(&self) -> SlotKind {
        SLOT
    }

    fn describe(&self) -> String {
        format!("AWS KMS key {}", self.place())
    }

    fn wrapping(&self) -> Wrapping {
        Wrapping::Remote
    }

    fn reference(&self) -> String {
        self.key.clone()
    }

    fn wrap(&self, terms: &SlotTerms, payload: &Payload) -> Result<Vec<u8>, Error> {
        self.run(async |client: Client| {
            let answer = client
                .encrypt()
                .key_id(&self.key)
                .set_encryption_context(Some(context(terms)))
                .plaintext(Blob::new(payload.expose().as_slice()))
                .send()
                .await
                .map_err(|why| self.sdk_error(why))?;
            let sealed = answer.ciphertext_blob().map(Blob::as_ref).unwrap_or_default();
            if sealed.is_empty() {
                return Err(
                    self.place_fault(ServiceFault::Protocol, "answered without a ciphertext")
                );
            }
            Ok([&[VERSION], sealed].concat())
        })
    }

    fn unwrap(&self, terms: &SlotTerms, wrapped: &[u8]) -> Result<Payload, Error> {
        let sealed = match wrapped.split_first() {
            Some((&VERSION, sealed)) if !sealed.is_empty() => sealed,
            _ => return Err(Error::Damaged { what: "a slot's wrapped bytes have another form" }),
        };
        self.run(async |client: Client| {
            let answer = client
                .decrypt()
                // Without it, KMS would take whichever key the ciphertext names.
                .key_id(&self.key)
                .set_encryption_context(Some(context(terms)))
                .ciphertext_blob(Blob::new(sealed))
                .send()
                .await
                .map_err(|why| match why.code() {
                    Some("IncorrectKeyException") => {
                        Error::WrongKey { slot: terms.id, provider: self.describe() }
                    }
                    Some("InvalidCiphertextException") => Error::Tampered { what: "its slot" },
                    _ => self.sdk_error(why),
                })?;
            let plain = Zeroizing::new(answer.plaintext.map(Blob::into_inner).unwrap_or_default());
            Payload::from_slice(&plain).ok_or_else(|| {
                self.place_fault(ServiceFault::Protocol, "unwraps to another length")
            })
        })
    }
}

/// An error and what brought it about, in their own words, each once: Amazon's crates say the rest
/// as text for developers only.
fn causes(why: &dyn std::error::Error) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut next = Some(why);
    while let Some(one) = next {
        let said: String = one.to_string().chars().filter(|c| !c.is_control()).collect();
        if !said.is_empty() && words.iter().all(|known| !known.contains(&said)) {
            words.push(said);
        }
        next = one.source();
    }
    words.join(": ").chars().take(MAX_WORDS).collect()
}

fn context(terms: &SlotTerms) -> HashMap<String, String> {
    [
        ("tidelock:keyring", terms.keyring.to_string()),
        ("tidelock:slot", terms.id.to_string()),
        ("tidelock:terms", HEXLOWER.encode(digest(&SHA256, &terms.associated_data()).as_ref())),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

fn fault_of(code: &str) -> ServiceFault {
    match code {
        "AccessDeniedException"
        | "AccessDenied"
        | "InvalidKeyUsageException"
        | "InvalidGrantTokenException" => ServiceFault::Denied,
        "DisabledException" | "KMSInvalidStateException" => ServiceFault::Disabled,
        "ExpiredTokenException"
        | "ExpiredToken"
        | "UnrecognizedClientException"
        | "InvalidClientTokenId"
        | "InvalidSignatureException"
        | "SignatureDoesNotMatch"
        | "IncompleteSignatureException"
        | "IncompleteSignature"
        | "MissingAuthenticationTokenException"
        | "MissingAuthenticationToken"
        | "OptInRequired" => ServiceFault::Credentials,
        "NotFoundException" => ServiceFault::NotFound,
        "KeyUnavailableException"
        | "DependencyTimeoutException"
        | "KMSInternalException"
        | "ThrottlingException"
        | "ServiceUnavailable"
        | "InternalFailure" => ServiceFault::NoAnswer,
        _ => ServiceFault::Protocol,
    }
}

/// Refuses to send over a connection without TLS, unless it stays on this machine: the request to
/// wrap has the keyring key in it. Looks at the request itself, so that it does not matter which
/// variable or file named the endpoint.
#[derive(Debug)]
struct NeverInPlain;

impl Intercept for NeverInPlain {
    fn name(&self) -> &'static str {
        "NeverInPlain"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let to = context.request().uri();
        if is_safe(to) { Ok(()) } else { Err(format!("{to} is not https").into()) }
    }
}

fn is_safe(uri: &str) -> bool {
    let Some(rest) = uri.strip_prefix("http://") else {
        return uri.starts_with("https://");
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    matches!(host, "127.0.0.1" | "[::1]" | "localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_sent_in_plain_to_this_machine_only() {
        for safe in [
            "https://kms.eu-west-1.amazonaws.com/",
            "http://127.0.0.1:5000/",
            "http://[::1]:5000/",
            "http://[::1]/",
            "http://localhost",
        ] {
            assert!(is_safe(safe), "{safe}");
        }
        for open in [
            "http://kms.eu-west-1.amazonaws.com/",
            "http://127.0.0.1.example.org/",
            "http://127.0.0.1@example.org/",
            "http://example.org/?127.0.0.1",
            "ftp://localhost/",
            "",
        ] {
            assert!(!is_safe(open), "{open}");
        }
    }

    #[test]
    fn every_refusal_of_kms_has_its_fault() {
        for (code, fault) in [
            ("AccessDeniedException", ServiceFault::Denied),
            ("DisabledException", ServiceFault::Disabled),
            ("ExpiredTokenException", ServiceFault::Credentials),
            ("UnrecognizedClientException", ServiceFault::Credentials),
            ("NotFoundException", ServiceFault::NotFound),
            ("ThrottlingException", ServiceFault::NoAnswer),
            ("SomethingNew", ServiceFault::Protocol),
        ] {
            assert_eq!(fault_of(code), fault, "{code}");
        }
    }
}

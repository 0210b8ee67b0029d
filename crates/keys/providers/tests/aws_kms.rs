//! Keys in the KMS of a moto server, each test with a server of its own.
//!
//! Amazon's crates take credentials from the environment, so a test runs itself again as a child
//! that has them. moto checks neither credentials nor policies nor the state of a key: what KMS
//! answers then is scripted.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidelock_format::KeyringId;
use tidelock_keyring::{
    Error, Payload, Provider, ServiceFault, SlotId, SlotKind, SlotTerms, Wrapping,
};
use tidelock_providers::ProviderChoice;
use tidelock_servers::{Bounded, Started, alone, listening};

const SECRET: &str = "tideSecretAccessKey";
const INSIDE: &str = "TIDELOCK_TEST_INSIDE";

/// Runs `test` in a child with credentials in the environment, or without.
fn as_child(name: &str, credentials: bool, test: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return test();
    }
    let mut child = alone(std::env::current_exe().unwrap());
    child.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(INSIDE, "1");
    for (variable, _) in std::env::vars().filter(|(variable, _)| variable.starts_with("AWS_")) {
        child.env_remove(variable);
    }
    child.env("HOME", "/nonexistent").env("AWS_EC2_METADATA_DISABLED", "true");
    if credentials {
        child.env("AWS_ACCESS_KEY_ID", "AKIATIDE").env("AWS_SECRET_ACCESS_KEY", SECRET);
    }
    let done = child.finish().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    let complained = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.contains("1 passed"), "{said}\n{complained}");
    assert!(!said.contains(SECRET) && !complained.contains(SECRET), "the secret was shown");
}

/// A moto server on a free port, ended with the test.
struct Moto {
    _server: Started,
    port: u16,
}

impl Moto {
    fn start() -> Self {
        let exe = std::env::current_exe().unwrap();
        // TARGET/debug/deps/this
        let python = exe.ancestors().nth(3).unwrap().join("python/bin/python3");
        assert!(python.exists(), "{} (see ci/python-env)", python.display());
        let (server, port) = listening(|port| {
            let mut moto = alone(&python);
            moto.args(["-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p"]);
            moto.arg(port.to_string());
            moto.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            moto
        })
        .unwrap();
        Self { _server: server, port }
    }

    /// One action of KMS, unsigned, since moto does not look.
    fn ask(&self, action: &str, body: &Value) -> Value {
        let body = body.to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        write!(
            stream,
            "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Amz-Target: TrentService.{action}\r\n\
             Authorization: AWS4-HMAC-SHA256 Credential=a/20260101/eu-west-1/kms/aws4_request\r\n\
             Content-Type: application/x-amz-json-1.1\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = BufReader::new(stream);
        let mut line = String::new();
        answer.read_line(&mut line).unwrap();
        assert!(line.contains(" 200 "), "{action}: {line}");
        let mut text = String::new();
        answer.read_to_string(&mut text).unwrap();
        let (_, body) = text.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap_or(Value::Null)
    }

    /// A new key, by its ARN.
    fn key(&self) -> String {
        self.ask("CreateKey", &json!({}))["KeyMetadata"]["Arn"].as_str().unwrap().to_owned()
    }

    fn provider(&self, key: &str) -> Box<dyn Provider> {
        provider(key, self.port)
    }
}

const SLOT: SlotKind = SlotKind::new(8, "aws-kms");

/// Nobody listens there, and nobody is given it.
const NOWHERE: u16 = 1;

fn provider(key: &str, port: u16) -> Box<dyn Provider> {
    open(key, &format!("endpoint = \"http://127.0.0.1:{port}\"\ntimeout_seconds = 60"))
}

fn open(key: &str, more: &str) -> Box<dyn Provider> {
    open_table(&format!("type = \"aws-kms\"\nkey = \"{key}\"\nregion = \"eu-west-1\"\n{more}"))
}

fn open_table(table: &str) -> Box<dyn Provider> {
    let choice: ProviderChoice = toml::from_str(table).unwrap();
    choice.open(Path::new("/nowhere"), None).unwrap()
}

fn terms() -> SlotTerms {
    SlotTerms {
        wrapping: Wrapping::Remote,
        created: 7,
        reference: "alias/pg".into(),
        ..SlotTerms::new(KeyringId([1; 16]), SlotId([2; 16]), SLOT)
    }
}

fn payload() -> Payload {
    Payload::from_slice(&[9; 64]).unwrap()
}

#[track_caller]
fn fault<T>(result: Result<T, Error>, wanted: ServiceFault) {
    match result {
        Err(error @ Error::Service { fault, .. }) => {
            assert_eq!(fault, wanted, "{error}");
            // Words for an operator, and no structures of Amazon's crates.
            let said = error.to_string();
            assert!(!said.contains(['{', '}']) && !said.contains("Error("), "{said}");
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it worked"),
    }
}

#[test]
fn a_key_opens_what_it_wrapped_for_the_same_slot_only() {
    as_child("a_key_opens_what_it_wrapped_for_the_same_slot_only", true, || {
        let moto = Moto::start();
        let key = moto.key();
        moto.ask("CreateAlias", &json!({ "AliasName": "alias/pg", "TargetKeyId": key }));
        let one = moto.provider(&key);
        let wrapped = one.wrap(&terms(), &payload()).unwrap();
        assert!(!wrapped.windows(8).any(|window| window == [9; 8]));
        assert_eq!(one.unwrap(&terms(), &wrapped).unwrap().expose(), &[9; 64]);
        let alias = moto.provider("alias/pg");
        assert_eq!(alias.unwrap(&terms(), &wrapped).unwrap().expose(), &[9; 64]);
        assert!(one.unwrap(&terms(), &alias.wrap(&terms(), &payload()).unwrap()).is_ok());

        for changed in [
            SlotTerms { created: 8, ..terms() },
            SlotTerms { id: SlotId([3; 16]), ..terms() },
            SlotTerms { keyring: KeyringId([3; 16]), ..terms() },
        ] {
            assert!(matches!(one.unwrap(&changed, &wrapped), Err(Error::Tampered { .. })));
        }
        let mut changed = wrapped.clone();
        *changed.last_mut().unwrap() ^= 1;
        assert!(matches!(one.unwrap(&terms(), &changed), Err(Error::Tampered { .. })));
        for cut in [&wrapped[..0], &wrapped[..1], &[&[9], &wrapped[1..]].concat()] {
            assert!(matches!(one.unwrap(&terms(), cut), Err(Error::Damaged { .. })));
        }
    });
}

#[test]
fn another_key_and_an_unknown_key_do_not_open_it() {
    as_child("another_key_and_an_unknown_key_do_not_open_it", true, || {
        let moto = Moto::start();
        let wrapped = moto.provider(&moto.key()).wrap(&terms(), &payload()).unwrap();
        // KMS says IncorrectKeyException, which is scripted below.
        fault(moto.provider(&moto.key()).unwrap(&terms(), &wrapped), ServiceFault::Denied);
        let none = "arn:aws:kms:eu-west-1:123456789012:key/00000000-0000-4000-8000-000000000000";
        for key in [none, "alias/none"] {
            fault(moto.provider(key).wrap(&terms(), &payload()), ServiceFault::NotFound);
            fault(moto.provider(key).unwrap(&terms(), &wrapped), ServiceFault::NotFound);
        }
    });
}

/// moto goes on using a disabled key, and knows no wrong credentials: the answers here are those
/// that Amazon documents, word for word but for the names, from a server that knows nothing else.
#[test]
fn what_kms_refuses_is_named() {
    as_child("what_kms_refuses_is_named", true, || {
        let port = scripted();
        let wrapped = [1, 2, 3];
        for (code, wanted) in [
            ("DisabledException", ServiceFault::Disabled),
            ("KMSInvalidStateException", ServiceFault::Disabled),
            ("AccessDeniedException", ServiceFault::Denied),
            ("ExpiredTokenException", ServiceFault::Credentials),
            ("UnrecognizedClientException", ServiceFault::Credentials),
            ("NotFoundException", ServiceFault::NotFound),
        ] {
            fault(provider(code, port).unwrap(&terms(), &wrapped), wanted);
            fault(provider(code, port).wrap(&terms(), &payload()), wanted);
        }
        let incorrect = provider("IncorrectKeyException", port).unwrap(&terms(), &wrapped);
        assert!(matches!(incorrect, Err(Error::WrongKey { .. })), "{:?}", incorrect.err());
        let invalid = provider("InvalidCiphertextException", port).unwrap(&terms(), &wrapped);
        assert!(matches!(invalid, Err(Error::Tampered { .. })), "{:?}", invalid.err());
    });
}

/// A server that refuses each request with the error that its KeyId names; ends with the process.
fn scripted() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut request = BufReader::new(stream);
            let (mut line, mut length) = (String::new(), 0);
            while request.read_line(&mut line).is_ok_and(|count| count > 2) {
                let lower = line.to_ascii_lowercase();
                if let Some(value) = lower.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            request.read_exact(&mut body).unwrap();
            let asked: Value = serde_json::from_slice(&body).unwrap();
            let answer = json!({ "__type": asked["KeyId"], "message": "as scripted" }).to_string();
            let _ = write!(
                request.get_mut(),
                "HTTP/1.1 400 Bad Request\r\nContent-Type: application/x-amz-json-1.1\r\n\
                 Content-Length: {}\r\nConnection: close\r\n\r\n{answer}",
                answer.len()
            );
        }
    });
    port
}

#[test]
fn a_server_that_is_down_or_slow_ends_in_time() {
    as_child("a_server_that_is_down_or_slow_ends_in_time", true, || {
        fault(provider("k", NOWHERE).wrap(&terms(), &payload()), ServiceFault::NoAnswer);
        let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = silent.local_addr().unwrap().port();
        let endpoint = format!("endpoint = \"http://127.0.0.1:{port}\"");
        let slow = open("k", &format!("{endpoint}\ntimeout_seconds = 1"));
        let begin = Instant::now();
        fault(slow.wrap(&terms(), &payload()), ServiceFault::NoAnswer);
        assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
    });
}

#[test]
fn nothing_is_sent_in_plain_to_another_machine() {
    as_child("nothing_is_sent_in_plain_to_another_machine", true, || {
        let plain = open("k", "endpoint = \"http://192.0.2.1:9\"");
        let said = plain.wrap(&terms(), &payload()).unwrap_err().to_string();
        assert!(said.contains("is not https"), "{said}");
    });
}

#[test]
fn missing_credentials_and_region_are_named() {
    as_child("missing_credentials_and_region_are_named", false, || {
        fault(provider("k", NOWHERE).wrap(&terms(), &payload()), ServiceFault::Credentials);
        let nowhere = open_table("type = \"aws-kms\"\nkey = \"k\"");
        fault(nowhere.wrap(&terms(), &payload()), ServiceFault::NotFound);
    });
}

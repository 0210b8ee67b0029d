//! Something between a provider and its service, which can take the service away.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// What becomes of a connection.
#[derive(Clone, Copy)]
pub(crate) enum Mode {
    /// It goes on to this port.
    Pass(u16),
    /// It is closed at once.
    Refuse,
    /// Nothing is ever said.
    Silent,
    /// The request is read, and gets this answer.
    Answer(&'static str),
}

/// Ends with the test's process.
pub(crate) struct Proxy {
    port: u16,
    mode: Arc<Mutex<Mode>>,
}

impl Proxy {
    pub(crate) fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().port();
        let mode = Arc::new(Mutex::new(Mode::Pass(port)));
        let shared = Arc::clone(&mode);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mode = *shared.lock().unwrap();
                thread::spawn(move || converse(stream, mode));
            }
        });
        Self { port: own, mode }
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn set(&self, mode: Mode) {
        *self.mode.lock().unwrap() = mode;
    }
}

/// A side that breaks off is no failure of ours.
fn converse(mut client: TcpStream, mode: Mode) {
    match mode {
        Mode::Refuse => {}
        Mode::Silent => thread::sleep(Duration::from_secs(120)),
        Mode::Answer(text) => {
            let mut request = [0u8; 65536];
            // The head and the body may come one after the other.
            let _ = client.read(&mut request);
            thread::sleep(Duration::from_millis(100));
            let _ = client.write_all(text.as_bytes());
            thread::sleep(Duration::from_millis(100));
        }
        Mode::Pass(port) => {
            let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)) else { return };
            let (Ok(mut from), Ok(mut to)) = (client.try_clone(), server.try_clone()) else {
                return;
            };
            thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(std::net::Shutdown::Write);
            });
            let _ = std::io::copy(&mut server, &mut client);
            let _ = client.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// One action of a KMS that does not look at signatures.
pub(crate) fn ask_kms(port: u16, action: &str, body: &Value) -> Value {
    let body = body.to_string();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
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
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{action}: {answer}");
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap_or(Value::Null)
}

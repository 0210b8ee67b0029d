//! What goes over the agent's socket. One SOCK_SEQPACKET message is one request or one answer.
//!
//! ```text
//!    0  4  magic "TDLA"
//!    4  2  version, 1
//!    6  2  kind
//!    8  4  length of the body
//!   12  4  reserved, zero
//!   16     body
//! ```
//!
//! All numbers are little-endian; a text is a length of 16 bits and bytes. A program that got a
//! [`Grant`] keeps its connection open for as long as it lives.

mod grant;

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tidelock_cipher::Secret;
use tidelock_format::{Generation, KeyringId, Reader};
use zeroize::Zeroizing;

use crate::writer::Writer;

pub use grant::{Grant, GrantedKey, KeyState, Terms};

const MAGIC: &[u8; 4] = b"TDLA";
const VERSION: u16 = 1;
/// Bytes before a body.
pub const HEAD: usize = 16;
/// No request is longer.
pub const MAX_REQUEST: usize = 8 * 1024;
/// No answer is longer.
pub const MAX_ANSWER: usize = 128 * 1024;
/// Clients that a status names; more are only counted.
const MAX_CLIENTS: usize = 256;

const KEYS: u16 = 1;
const ALLOW: u16 = 2;
const STATUS: u16 = 3;
const RELOAD: u16 = 4;
const GRANT: u16 = 0x8001;
const ALLOWED: u16 = 0x8002;
const STATUS_ANSWER: u16 = 0x8003;
const REFUSED: u16 = 0x8004;
const RELOADED: u16 = 0x8005;

/// A question to the agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// A listed program wants keys.
    Keys,
    /// `tidelock exec` lists the program that it will become, by absolute path, for itself.
    Allow(PathBuf),
    /// Who is there?
    Status,
    /// `tidelock key` has changed the keyring, which opens with this key.
    Reload(KeyringKey),
}

/// The keyring key on its way to the agent.
pub struct KeyringKey(pub Secret<32>);

impl Clone for KeyringKey {
    fn clone(&self) -> Self {
        Self(Secret::new(*self.0.expose()))
    }
}

impl PartialEq for KeyringKey {
    fn eq(&self, other: &Self) -> bool {
        self.0.equals(other.0.expose())
    }
}

impl Eq for KeyringKey {}

impl fmt::Debug for KeyringKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyringKey(..)")
    }
}

/// What the agent answers. A grant is decoded by [`Grant::decode`], since it holds keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer<'a> {
    /// The body of a grant.
    Grant(&'a [u8]),
    /// The program is listed now.
    Allowed,
    /// The agent has the keyring of this generation now.
    Reloaded(Generation),
    /// What the agent holds, and for whom.
    Status(Status),
    /// No.
    Refused(RefusalReason, String),
}

/// What an agent holds, and for whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// The keyring.
    pub keyring: KeyringId,
    /// Its generation when it was unlocked.
    pub generation: Generation,
    /// The protected directory.
    pub directory: PathBuf,
    /// The agent's process.
    pub pid: i32,
    /// How its memory is protected: "memfd_secret", "mlock", "none".
    pub protection: String,
    /// How many programs have keys.
    pub client_count: u32,
    /// The first 256 of them.
    pub clients: Vec<ClientInfo>,
    /// SHA-256 of the keyring file that was unlocked; zeros if it was another one already.
    pub file: [u8; 32],
}

/// A program that has keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientInfo {
    /// Its process when it connected.
    pub pid: i32,
    /// Its program.
    pub program: PathBuf,
}

/// Why the agent says no.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum RefusalReason {
    /// Its name is not on the list.
    NotListed = 1,
    /// The user of the server, a group or others could replace it.
    Writable = 2,
    /// Another user, not root.
    OtherUser = 3,
    /// Its file cannot be found out, or was replaced.
    UnknownProgram = 4,
    /// Only `tidelock` lists programs.
    NotTidelock = 5,
    /// The request makes no sense.
    BadRequest = 6,
    /// There is no room for more clients.
    Full = 7,
    /// The keyring on the disk does not open with that key, or is older.
    OtherKeyring = 8,
    /// The directory was made again since, and its old keyring is gone.
    KeyringGone = 9,
    /// The keyring has more data keys than fit into an answer.
    TooManyKeys = 10,
    /// A reason of a later version.
    Other = 0xffff,
}

/// Bytes that are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WireError {
    /// Too short, or too long.
    #[error("a message of {0} bytes")]
    Length(usize),
    /// Something else talks there.
    #[error("it is not an agent's message")]
    Magic,
    /// A later version.
    #[error("it has version {0}, not 1")]
    Version(u16),
    /// A kind that does not belong there.
    #[error("an unexpected message of kind {0}")]
    Kind(u16),
    /// A field that cannot be.
    #[error("a damaged {0}")]
    Damaged(&'static str),
}

impl Request {
    /// The request as a message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Keys => message(KEYS, |_| {}),
            Self::Status => message(STATUS, |_| {}),
            Self::Allow(path) => message(ALLOW, |out| out.text(bounded(path, 4096))),
            Self::Reload(key) => message(RELOAD, |out| out.bytes(key.0.expose())),
        }
    }

    /// Reads a request.
    ///
    /// # Errors
    /// [`WireError`] for anything else.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let (kind, body) = open(bytes, MAX_REQUEST)?;
        let mut from = Reader::new(body);
        let request = match kind {
            KEYS => Self::Keys,
            STATUS => Self::Status,
            ALLOW => {
                let path = PathBuf::from(std::ffi::OsStr::from_bytes(text(&mut from, "path")?));
                if !path.is_absolute() {
                    return Err(WireError::Damaged("path"));
                }
                Self::Allow(path)
            }
            RELOAD => {
                let mut key = Secret::new([0; 32]);
                let bytes = from.bytes(32).map_err(|_| WireError::Damaged("key"))?;
                key.expose_mut().copy_from_slice(bytes);
                Self::Reload(KeyringKey(key))
            }
            other => return Err(WireError::Kind(other)),
        };
        end(&from)?;
        Ok(request)
    }
}

impl<'a> Answer<'a> {
    /// Reads an answer.
    ///
    /// # Errors
    /// [`WireError`] for anything else.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        let (kind, body) = open(bytes, MAX_ANSWER)?;
        let mut from = Reader::new(body);
        let answer = match kind {
            GRANT => return Ok(Self::Grant(body)),
            ALLOWED => Self::Allowed,
            RELOADED => Self::Reloaded(Generation(
                from.u64().map_err(|_| WireError::Damaged("generation"))?,
            )),
            STATUS_ANSWER => Self::Status(Status::decode(&mut from)?),
            REFUSED => {
                let reason = from.u16().map_err(|_| WireError::Damaged("reason"))?;
                let detail = String::from_utf8_lossy(text(&mut from, "detail")?).into_owned();
                Self::Refused(RefusalReason::from_number(reason), detail)
            }
            other => return Err(WireError::Kind(other)),
        };
        end(&from)?;
        Ok(answer)
    }
}

/// The answer to [`Request::Reload`].
#[must_use]
pub fn reloaded(generation: Generation) -> Vec<u8> {
    message(RELOADED, |out| out.u64(generation.0))
}

/// The answer to [`Request::Allow`].
#[must_use]
pub fn allowed() -> Vec<u8> {
    message(ALLOWED, |_| {})
}

/// No, and why.
#[must_use]
pub fn refused(reason: RefusalReason, detail: &str) -> Vec<u8> {
    message(REFUSED, |out| {
        out.u16(reason as u16);
        out.text(detail.as_bytes().get(..1024).unwrap_or(detail.as_bytes()));
    })
}

impl Status {
    /// The status as a message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        message(STATUS_ANSWER, |out| {
            out.bytes(&self.keyring.0);
            out.u64(self.generation.0);
            out.text(bounded(&self.directory, 4096));
            out.bytes(&self.pid.to_le_bytes());
            out.text(self.protection.as_bytes());
            out.u32(self.client_count);
            // Long paths of many clients must not burst the message.
            let mut room = MAX_ANSWER / 2;
            let named = self.clients.iter().take(MAX_CLIENTS).take_while(|client| {
                let need = 6 + client.program.as_os_str().len();
                let fits = need <= room;
                room = room.saturating_sub(need);
                fits
            });
            let named: Vec<_> = named.collect();
            out.count(named.len());
            for client in named {
                out.bytes(&client.pid.to_le_bytes());
                out.text(bounded(&client.program, 4096));
            }
            out.bytes(&self.file);
        })
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, WireError> {
        let damaged = |_| WireError::Damaged("status");
        let path = |bytes: &[u8]| PathBuf::from(std::ffi::OsStr::from_bytes(bytes));
        let keyring = KeyringId(from.array().map_err(damaged)?);
        let generation = Generation(from.u64().map_err(damaged)?);
        let directory = path(text(from, "directory")?);
        let pid = i32::from_le_bytes(from.array().map_err(damaged)?);
        // To kill(2) the others mean many processes.
        if pid <= 0 {
            return Err(WireError::Damaged("status"));
        }
        let protection = String::from_utf8_lossy(text(from, "protection")?).into_owned();
        let client_count = from.u32().map_err(damaged)?;
        let named = usize::from(from.u16().map_err(damaged)?);
        if named > MAX_CLIENTS {
            return Err(WireError::Damaged("status"));
        }
        let clients = (0..named)
            .map(|_| {
                let pid = i32::from_le_bytes(from.array().map_err(damaged)?);
                Ok(ClientInfo { pid, program: path(text(from, "program")?) })
            })
            .collect::<Result<_, WireError>>()?;
        // An agent of an earlier version does not say.
        let file = from.array().unwrap_or_default();
        Ok(Self { keyring, generation, directory, pid, protection, client_count, clients, file })
    }
}

impl RefusalReason {
    const fn from_number(number: u16) -> Self {
        match number {
            1 => Self::NotListed,
            2 => Self::Writable,
            3 => Self::OtherUser,
            4 => Self::UnknownProgram,
            5 => Self::NotTidelock,
            6 => Self::BadRequest,
            7 => Self::Full,
            8 => Self::OtherKeyring,
            9 => Self::KeyringGone,
            10 => Self::TooManyKeys,
            _ => Self::Other,
        }
    }

    /// What to do about it.
    #[must_use]
    pub const fn hint(self) -> &'static str {
        match self {
            Self::NotListed => "start it with `tidelock exec`, or list it in the policy",
            Self::Writable => {
                "install it as root, in folders of root's that no group or others write, or set \
                 allow_writable_programs = true in the configuration"
            }
            Self::OtherUser => "unlock as the user of the server",
            Self::UnknownProgram => {
                "was the program replaced while it ran? start it again; one in another PID \
                 namespace (a container) needs an agent there"
            }
            Self::NotTidelock => "the agent and `tidelock` must be the same file",
            Self::BadRequest | Self::Other => "library and agent must be of one version",
            Self::Full => {
                "end some of its programs, or start it with more descriptors (ulimit -Hn, \
                 LimitNOFILE= of a unit)"
            }
            Self::TooManyKeys => {
                "destroy data keys that no file uses (`tidelock key destroy`), and let go of \
                 adopted ones (`tidelock key release`)"
            }
            Self::OtherKeyring => "was the keyring changed again meanwhile? run the command again",
            Self::KeyringGone => "start it with `tidelock exec`, which takes the new keyring",
        }
    }
}

impl fmt::Display for RefusalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotListed => "the program is not listed",
            Self::Writable => {
                "the program could be replaced by the user who runs it, by its owner, or by a \
                 group or others"
            }
            Self::OtherUser => "the program runs as another user",
            Self::UnknownProgram => "the program's file cannot be found out",
            Self::NotTidelock => "only tidelock itself may list a program",
            Self::BadRequest => "the request cannot be read",
            Self::Full => "as many programs have keys from it as it has descriptors for",
            Self::TooManyKeys => "the keyring has more data keys than fit into its answer",
            Self::OtherKeyring => {
                "the keyring on the disk is older, or does not open with that key"
            }
            Self::KeyringGone => "the directory was made again since, and its old keyring is gone",
            Self::Other => "for a reason that this version does not know",
        })
    }
}

/// A message with a body that `write` appends.
fn message(kind: u16, write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut body = Writer::with_capacity(256);
    write(&mut body);
    let body = Zeroizing::new(body.into_bytes());
    let mut out = head(kind, body.len());
    out.bytes(&body);
    out.into_bytes()
}

/// The head of a message, in a buffer with room for its body.
fn head(kind: u16, body: usize) -> Writer {
    let mut out = Writer::with_capacity(HEAD + body);
    out.bytes(MAGIC);
    out.u16(VERSION);
    out.u16(kind);
    out.u32(u32::try_from(body).expect("a message is at most 128 KiB"));
    out.u32(0);
    out
}

/// Kind and body of a message.
fn open(bytes: &[u8], most: usize) -> Result<(u16, &[u8]), WireError> {
    let length = |_| WireError::Length(bytes.len());
    if bytes.len() > most {
        return Err(WireError::Length(bytes.len()));
    }
    let mut from = Reader::new(bytes);
    if &from.array::<4>().map_err(length)? != MAGIC {
        return Err(WireError::Magic);
    }
    let version = from.u16().map_err(length)?;
    if version != VERSION {
        return Err(WireError::Version(version));
    }
    let kind = from.u16().map_err(length)?;
    let body = from.u32().map_err(length)?;
    if from.u32().map_err(length)? != 0 {
        return Err(WireError::Damaged("head"));
    }
    if usize::try_from(body) != Ok(from.rest().len()) {
        return Err(WireError::Length(bytes.len()));
    }
    Ok((kind, from.rest()))
}

fn text<'a>(from: &mut Reader<'a>, what: &'static str) -> Result<&'a [u8], WireError> {
    let len = from.u16().map_err(|_| WireError::Damaged(what))?;
    from.bytes(usize::from(len)).map_err(|_| WireError::Damaged(what))
}

fn end(from: &Reader<'_>) -> Result<(), WireError> {
    if from.rest().is_empty() { Ok(()) } else { Err(WireError::Damaged("end")) }
}

/// The bytes of a path; one that no system takes is cut.
fn bounded(path: &Path, most: usize) -> &[u8] {
    let bytes = path.as_os_str().as_bytes();
    bytes.get(..most).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_their_encoding() {
        for request in [Request::Keys, Request::Status, Request::Allow("/usr/bin/x".into())] {
            assert_eq!(Request::decode(&request.encode()).unwrap(), request);
        }
        assert!(Request::decode(&Request::Allow("x".into()).encode()).is_err());
    }

    #[test]
    fn answers_survive_their_encoding() {
        let status = Status {
            keyring: KeyringId([1; 16]),
            generation: Generation(3),
            directory: "/data/pg".into(),
            pid: 77,
            protection: "mlock".into(),
            client_count: 2,
            clients: vec![ClientInfo { pid: 5, program: "/x/postgres".into() }],
            file: [9; 32],
        };
        assert_eq!(Answer::decode(&status.encode()).unwrap(), Answer::Status(status));
        assert_eq!(Answer::decode(&allowed()).unwrap(), Answer::Allowed);
        let refusal = refused(RefusalReason::NotListed, ": /bin/cp");
        let expected = Answer::Refused(RefusalReason::NotListed, ": /bin/cp".into());
        assert_eq!(Answer::decode(&refusal).unwrap(), expected);
    }

    #[test]
    fn a_status_of_many_clients_fits_into_a_message() {
        let client = ClientInfo { pid: 1, program: format!("/{}", "x".repeat(4000)).into() };
        let status = Status {
            keyring: KeyringId([1; 16]),
            generation: Generation(3),
            directory: "/data/pg".into(),
            pid: 77,
            protection: "mlock".into(),
            client_count: 1000,
            clients: vec![client; 1000],
            file: [9; 32],
        };
        let bytes = status.encode();
        assert!(bytes.len() < MAX_ANSWER);
        let Answer::Status(decoded) = Answer::decode(&bytes).unwrap() else { panic!("no status") };
        assert_eq!(decoded.client_count, 1000);
        assert!(!decoded.clients.is_empty());
        assert_eq!(decoded.file, [9; 32]);
    }

    #[test]
    fn a_process_number_that_means_many_processes_is_refused() {
        for pid in [0, -1, i32::MIN] {
            let status = Status {
                keyring: KeyringId([1; 16]),
                generation: Generation(3),
                directory: "/data/pg".into(),
                pid,
                protection: "mlock".into(),
                client_count: 0,
                clients: Vec::new(),
                file: [9; 32],
            };
            let decoded = Answer::decode(&status.encode()).unwrap_err();
            assert_eq!(decoded, WireError::Damaged("status"), "{pid}");
        }
    }

    #[test]
    fn another_version_is_told() {
        let mut bytes = Request::Keys.encode();
        bytes[4] = 2;
        assert_eq!(Request::decode(&bytes), Err(WireError::Version(2)));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(kind: u16, body: Vec<u8>) {
            let mut bytes = head(kind, body.len());
            bytes.bytes(&body);
            let bytes = bytes.into_bytes();
            let _ = Request::decode(&bytes);
            let _ = Request::decode(&body);
            if let Ok(Answer::Grant(body)) = Answer::decode(&bytes) {
                let _ = Grant::decode(body);
            }
        }
    }
}

//! Talks to an agent: is this program listed, and what is granted to it?

use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use tidelock_agent::wire;
use zeroize::Zeroizing;

use crate::environment::Environment;
use crate::starter;

/// How often an agent is started: one that was about to end may have been asked.
const STARTS: u32 = 2;

/// A list of programs is no longer.
const MAX_LIST: usize = 64 * 1024;

/// What an agent gave.
pub(crate) struct Granted {
    /// The directory, its policy and its keys.
    pub(crate) grant: wire::Grant,
    /// Stays open as long as this process lives: the agent ends with its last client.
    pub(crate) connection: OwnedFd,
}

/// True if the list beside the socket names this program. The agent decides; this only tells who may ask.
/// Without the list, everybody must ask.
pub(crate) fn lists(socket: &[u8], exe: &[u8]) -> bool {
    let stem = socket.strip_suffix(b".sock").unwrap_or(socket);
    let path = [stem, b".programs"].concat();
    match read_file(&path, MAX_LIST) {
        Some(list) => list
            .split(|&byte| byte == b'\n')
            .any(|entry| !entry.is_empty() && tidelock_keys::names_program(entry, exe)),
        None => true,
    }
}

/// Why there are no keys, as a sentence.
enum Failure {
    /// Nobody is there.
    Absent(String),
    /// The agent says no, or what cannot be understood.
    Final(String),
}

/// Asks the agent behind `socket` for keys; starts one if none is alive.
///
/// # Errors
/// A sentence: the agent cannot be reached or started, says no, or says what cannot be understood.
pub(crate) fn ask(socket: &[u8], environment: Environment) -> Result<Granted, String> {
    let mut starts = 0;
    loop {
        match exchange(socket) {
            Ok(granted) => return Ok(granted),
            Err(Failure::Final(why)) => return Err(why),
            Err(Failure::Absent(why)) => {
                if starts == STARTS || !starter::start_agent(socket, environment)? {
                    return Err(why);
                }
                starts += 1;
            }
        }
    }
}

/// Asks an agent that is alive, for a process that has keys and wants newer ones. The connection is not kept.
///
/// # Errors
/// As [`ask`].
pub(crate) fn ask_running(socket: &[u8]) -> Result<wire::Grant, String> {
    match exchange(socket) {
        Ok(granted) => Ok(granted.grant),
        Err(Failure::Absent(why) | Failure::Final(why)) => Err(why),
    }
}

fn exchange(socket: &[u8]) -> Result<Granted, Failure> {
    use rustix::io::Errno;
    let failed = |what: &'static str| {
        move |error: Errno| {
            let why = format!("{what}: {error}");
            match error {
                Errno::NOENT | Errno::CONNREFUSED | Errno::CONNRESET | Errno::PIPE => {
                    Failure::Absent(why)
                }
                _ => Failure::Final(why),
            }
        }
    };
    let address = SocketAddrUnix::new(socket).map_err(failed("the agent's address is too long"))?;
    let connection = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(failed("no socket"))?;
    rustix::net::connect(&connection, &address).map_err(failed("its agent does not answer"))?;
    rustix::net::send(&connection, &wire::Request::Keys.encode(), SendFlags::NOSIGNAL)
        .map_err(failed("its agent does not listen"))?;

    let mut message = Zeroizing::new(vec![0u8; wire::MAX_ANSWER]);
    let received = loop {
        match rustix::net::recv(&connection, &mut *message, RecvFlags::empty()) {
            Err(rustix::io::Errno::INTR) => {}
            done => break done.map_err(failed("its agent does not answer"))?,
        }
    };
    let answer = message.get(..received.0).unwrap_or_default();
    if answer.is_empty() {
        return Err(Failure::Absent("its agent has ended".into()));
    }
    let sent = |why: wire::WireError| Failure::Final(format!("its agent sent {why}"));
    match wire::Answer::decode(answer).map_err(sent)? {
        wire::Answer::Grant(body) => {
            let grant = wire::Grant::decode(body).map_err(sent)?;
            Ok(Granted { grant, connection })
        }
        // The directory was made anew: another agent is started for its keyring.
        wire::Answer::Refused(wire::RefusalReason::KeyringGone, detail) => {
            let why = wire::RefusalReason::KeyringGone;
            Err(Failure::Absent(format!("its agent refuses, since {why}{detail}; {}", why.hint())))
        }
        wire::Answer::Refused(reason, detail) => {
            let hint = reason.hint();
            Err(Failure::Final(format!("its agent refuses, since {reason}{detail}; {hint}")))
        }
        _ => Err(Failure::Final("its agent sent something else".into())),
    }
}

/// The bytes of a file beside a socket, if there is one of at most this size.
pub(crate) fn read_file(path: &[u8], most: usize) -> Option<Vec<u8>> {
    let file =
        rustix::fs::openat(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut bytes = vec![0u8; most];
    let mut count = 0;
    loop {
        match rustix::io::read(&file, bytes.get_mut(count..)?) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    bytes.truncate(count);
    Some(bytes)
}

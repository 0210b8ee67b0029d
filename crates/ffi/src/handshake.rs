//! Talks to an agent: is this program listed, and what is granted to it?

use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::net::sockopt::{self, socket_peercred};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::time::{ClockId, clock_gettime};
use tidelock_agent::wire;
use zeroize::Zeroizing;

use crate::environment::Environment;
use crate::starter;

/// How often an agent is started: one that was about to end may have been asked.
const STARTS: u32 = 2;
/// How many seconds an agent may take to answer, who reads a little of /proc and adds a line to its log: when a
/// program starts, and when one that runs asks for newer keys, which it tries again later.
const AT_START: u8 = 20;
const AT_WORK: u8 = 5;

/// A list of programs is no longer.
const MAX_LIST: usize = 64 * 1024;

/// What an agent gave.
pub(crate) struct Granted {
    /// The directory, its policy and its keys.
    pub(crate) grant: wire::Grant,
    /// Stays open as long as this process lives: the agent ends with its last client.
    pub(crate) connection: OwnedFd,
    /// An agent was started for this.
    pub(crate) started: bool,
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
    ask_for(AT_START, socket, environment)
}

/// As [`ask`], for a process that has keys and wants newer ones.
///
/// # Errors
/// As [`ask`].
pub(crate) fn ask_again(socket: &[u8], environment: Environment) -> Result<Granted, String> {
    ask_for(AT_WORK, socket, environment)
}

fn ask_for(seconds: u8, socket: &[u8], environment: Environment) -> Result<Granted, String> {
    let mut starts = 0;
    loop {
        match exchange(socket, seconds) {
            Ok(granted) => return Ok(Granted { started: starts > 0, ..granted }),
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

/// The clock that a deadline is a time of.
fn now() -> Timespec {
    clock_gettime(ClockId::Monotonic)
}

/// An agent that is there and says nothing: stopped, or held up.
fn silent(connection: &OwnedFd, seconds: u8) -> Failure {
    let process = match socket_peercred(connection) {
        Ok(peer) => format!(" (process {})", peer.pid.as_raw_nonzero()),
        Err(_) => String::new(),
    };
    Failure::Final(format!(
        "its agent{process} does not answer within {seconds} s: let it go on (kill -CONT), or end it (kill -9)"
    ))
}

fn exchange(socket: &[u8], seconds: u8) -> Result<Granted, Failure> {
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
    let mut until = now();
    until.tv_sec += i64::from(seconds);
    // For connect and send, which wait where the agent takes nobody in any more.
    let limit = Some(core::time::Duration::from_secs(seconds.into()));
    sockopt::set_socket_timeout(&connection, sockopt::Timeout::Send, limit)
        .map_err(failed("no socket"))?;
    loop {
        match rustix::net::connect(&connection, &address) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Err(silent(&connection, seconds)),
            done => break done.map_err(failed("its agent does not answer"))?,
        }
    }
    match rustix::net::send(&connection, &wire::Request::Keys.encode(), SendFlags::NOSIGNAL) {
        Err(Errno::AGAIN) => return Err(silent(&connection, seconds)),
        done => drop(done.map_err(failed("its agent does not listen"))?),
    }

    let mut message = Zeroizing::new(vec![0u8; wire::MAX_ANSWER]);
    let received = loop {
        match rustix::net::recv(&connection, &mut *message, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => {
                let left = until - now();
                if left.tv_sec < 0 {
                    return Err(silent(&connection, seconds));
                }
                let mut fds = [PollFd::new(&connection, PollFlags::IN)];
                match poll(&mut fds, Some(&left)) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(failed("its agent cannot be waited for")(error)),
                }
            }
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
            Ok(Granted { grant, connection, started: false })
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

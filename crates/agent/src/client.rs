//! The other end, for the command: is an agent alive, list a program, ask for its status.
//!
//! The preload library does its own system calls with the codec of [`wire`](crate::wire);
//! [`Connection::keys`] is the same exchange for programs that are not preloaded.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
    connect as connect_to, recv, send, socket_with, sockopt,
};
use tidelock_cipher::Secret;
use tidelock_format::Generation;
use zeroize::Zeroizing;

use crate::error::Error;
use crate::wire::{Answer, Grant, KeyringKey, MAX_ANSWER, Request, Status, WireError};

/// How long an agent may take: it reads a little of /proc and adds a line to its log.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection to an agent. One that got keys counts as a client until it is dropped.
pub struct Connection {
    socket: OwnedFd,
    path: PathBuf,
}

/// Connects to the agent at `socket`; `None` if none is alive there.
///
/// # Errors
/// [`Error::Silent`], [`Error::Io`].
pub fn connect(socket: &Path) -> Result<Option<Connection>, Error> {
    let failed = |errno| Error::sys("connect to the agent at", socket)(errno);
    let kind = SocketType::SEQPACKET;
    let fd = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).map_err(failed)?;
    // For connect and send, which wait where the agent takes nobody in any more.
    let limit = Some(PATIENCE);
    sockopt::set_socket_timeout(&fd, sockopt::Timeout::Send, limit).map_err(failed)?;
    let address = SocketAddrUnix::new(socket).map_err(failed)?;
    loop {
        match connect_to(&fd, &address) {
            Ok(()) => return Ok(Some(Connection { socket: fd, path: socket.into() })),
            Err(Errno::NOENT | Errno::CONNREFUSED) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Err(silent(None, socket)),
            Err(errno) => return Err(failed(errno)),
        }
    }
}

fn silent(pid: Option<i32>, socket: &Path) -> Error {
    Error::Silent { pid, socket: socket.into(), seconds: PATIENCE.as_secs() }
}

impl Connection {
    /// What the agent holds, and for whom.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Wire`], [`Error::Io`].
    pub fn status(&self) -> Result<Status, Error> {
        let message = self.ask(&Request::Status)?;
        match Answer::decode(&message)? {
            Answer::Status(status) => Ok(status),
            other => Err(unexpected(other)),
        }
    }

    /// Lists a program for this process, which will become it, and for those that it starts; keeps
    /// an agent without clients for another 30 s. Name the file that will run: for a script, that is
    /// its interpreter, and better not listed.
    ///
    /// # Errors
    /// [`Error::Refused`] unless this process runs the agent's own file; [`Error::Wire`],
    /// [`Error::Io`].
    pub fn allow(&self, program: &Path) -> Result<(), Error> {
        let message = self.ask(&Request::Allow(program.into()))?;
        match Answer::decode(&message)? {
            Answer::Allowed => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    /// Keys, if this program is listed.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Wire`], [`Error::Io`].
    pub fn keys(&self) -> Result<Grant, Error> {
        let message = self.ask(&Request::Keys)?;
        match Answer::decode(&message)? {
            Answer::Grant(body) => Ok(Grant::decode(body)?),
            other => Err(unexpected(other)),
        }
    }

    /// Hands over the key of the keyring that `tidelock key` has just written; running programs get
    /// its data keys with their next file.
    ///
    /// # Errors
    /// [`Error::Refused`] unless this process runs the agent's own file; [`Error::Wire`],
    /// [`Error::Io`].
    pub fn reload(&self, key: &Secret<32>) -> Result<Generation, Error> {
        let key = KeyringKey(Secret::new(*key.expose()));
        let message = self.ask(&Request::Reload(key))?;
        match Answer::decode(&message)? {
            Answer::Reloaded(generation) => Ok(generation),
            other => Err(unexpected(other)),
        }
    }

    fn ask(&self, request: &Request) -> Result<Zeroizing<Vec<u8>>, Error> {
        let failed = |errno| Error::sys("talk to the agent at", &self.path)(errno);
        let question = Zeroizing::new(request.encode());
        let until = Instant::now() + PATIENCE;
        match send(&self.socket, &question, SendFlags::NOSIGNAL) {
            Ok(_) => {}
            Err(Errno::AGAIN) => return Err(silent(self.pid(), &self.path)),
            Err(errno) => return Err(failed(errno)),
        }
        let mut message = Zeroizing::new(vec![0; MAX_ANSWER + 1]);
        let length = loop {
            match recv(&self.socket, &mut *message, RecvFlags::DONTWAIT) {
                Ok((length, _)) => break length,
                Err(Errno::AGAIN | Errno::INTR) => self.wait(until)?,
                Err(errno) => return Err(failed(errno)),
            }
        };
        message.truncate(length);
        Ok(message)
    }

    /// Until there is something to read.
    fn wait(&self, until: Instant) -> Result<(), Error> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(silent(self.pid(), &self.path));
        }
        let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&left)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(Error::sys("wait for the agent at", &self.path)(errno)),
        }
    }

    /// Who listens there.
    fn pid(&self) -> Option<i32> {
        let peer = sockopt::socket_peercred(&self.socket).ok()?;
        Some(peer.pid.as_raw_nonzero().get())
    }
}

fn unexpected(answer: Answer<'_>) -> Error {
    match answer {
        Answer::Refused(reason, detail) => Error::Refused { reason, detail },
        _ => WireError::Damaged("answer to another question").into(),
    }
}

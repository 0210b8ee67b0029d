//! The other end, for the command: is an agent alive, list a program, ask for its status.

use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};
use tidelock_cipher::Secret;
use tidelock_contract::connection::{Connection as Socket, NoAnswer};
use tidelock_contract::wire::{Answer, Grant, KeyringKey, Request, Status, WireError};
use tidelock_format::Generation;
use zeroize::Zeroizing;

use crate::error::Error;
use crate::memory::Primitives;
use crate::peer;

/// How long an agent may take: it reads a little of /proc and adds a line to its log.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection to an agent. One that got keys counts as a client until it is dropped.
pub struct Connection {
    socket: Socket,
    path: PathBuf,
}

/// Connects to the agent at `socket`; `None` if none is alive there.
///
/// # Errors
/// [`Error::Silent`], [`Error::Io`].
pub fn connect(socket: &Path) -> Result<Option<Connection>, Error> {
    match Socket::open(socket.as_os_str().as_bytes(), PATIENCE) {
        Ok(opened) => Ok(Some(Connection { socket: opened, path: socket.into() })),
        Err(NoAnswer::Failed { errno: Errno::NOENT | Errno::CONNREFUSED, .. }) => Ok(None),
        Err(why) => Err(failed("connect to the agent at", why, socket)),
    }
}

/// As [`connect`], to an agent of one of these users. Somebody else's process is no agent: it must
/// not be told anything, least of all a key.
///
/// # Errors
/// As [`connect`].
pub fn connect_to(socket: &Path, users: &[u32]) -> Result<Option<Connection>, Error> {
    let trusted = |found: &Connection| found.socket.uid().is_some_and(|uid| users.contains(&uid));
    Ok(connect(socket)?.filter(trusted))
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
    /// an agent without clients as long as this process lives, and for another 30 s at least. Name
    /// the file that will run: for a script, that is its interpreter, and better not listed.
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

    /// The process that listens there, if the kernel says.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        self.socket.pid()
    }

    /// The user of the process that listens there, if the kernel says.
    #[must_use]
    pub fn uid(&self) -> Option<u32> {
        self.socket.uid()
    }

    /// Sends SIGTERM to the process that listens there, whichever one its status names.
    ///
    /// # Errors
    /// [`Error::Io`]: it has ended.
    pub fn terminate(&self, primitives: &Primitives) -> Result<(), Error> {
        let failed = |why| Error::io("end the agent at", &self.path)(why);
        let process = peer::process_of(self.socket.as_fd(), primitives).map_err(failed)?;
        // Where only its number was known, that may be another user's by now.
        let owner = self.pid().and_then(|pid| fs::metadata(format!("/proc/{pid}")).ok());
        if owner.map(|found| found.uid()) != self.socket.uid() || !peer::is_alive(&process) {
            return Err(failed(io::ErrorKind::NotFound.into()));
        }
        pidfd_send_signal(&process, Signal::TERM).map_err(|errno| failed(errno.into()))
    }

    fn ask(&self, request: &Request) -> Result<Zeroizing<Vec<u8>>, Error> {
        self.socket.ask(request).map_err(|why| failed("talk to the agent at", why, &self.path))
    }
}

fn failed(what: &'static str, why: NoAnswer, socket: &Path) -> Error {
    let socket = socket.into();
    match why {
        NoAnswer::Silent { pid, patience } => {
            Error::Silent { pid, socket, seconds: patience.as_secs() }
        }
        why if why.is_absence() => Error::Ended { socket },
        NoAnswer::Failed { errno, .. } => Error::Io { what, path: socket, source: errno.into() },
        NoAnswer::Ended => Error::Ended { socket },
    }
}

fn unexpected(answer: Answer<'_>) -> Error {
    match answer {
        Answer::Refused(reason, detail) => Error::Refused { reason, detail },
        _ => WireError::Damaged("answer to another question").into(),
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};

    use super::*;

    /// Whoever listens where an agent of another user would be gets no word of us.
    #[test]
    fn a_process_of_another_user_is_no_agent() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("sock");
        assert!(connect_to(&path, &[0]).unwrap().is_none(), "nobody listens");
        let listener = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&listener, 8).unwrap();
        let me = rustix::process::geteuid().as_raw();
        assert!(connect_to(&path, &[me + 1, me]).unwrap().is_some());
        assert!(connect_to(&path, &[me + 1]).unwrap().is_none());
    }
}

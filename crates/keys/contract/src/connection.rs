//! One exchange with an agent: connect, ask, wait for the answer no longer than was said.

use std::num::NonZeroI32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with, sockopt,
};
use zeroize::Zeroizing;

use crate::wire::{MAX_ANSWER, Request};

/// A connection to an agent. One that got keys counts as a client until it is dropped.
pub struct Connection {
    socket: OwnedFd,
    patience: Duration,
}

/// Why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoAnswer {
    /// A call failed.
    #[error("{what}: {errno}")]
    Failed {
        /// What was tried.
        what: &'static str,
        /// The error of the kernel.
        errno: Errno,
    },
    /// The agent is there and says nothing: it is stopped, or held up.
    #[error("its agent{} does not answer within {} s", process(*.pid), .patience.as_secs())]
    Silent {
        /// Its process, if the kernel says.
        pid: Option<i32>,
        /// How long it was waited for.
        patience: Duration,
    },
    /// The agent has closed the connection.
    #[error("its agent has ended")]
    Ended,
}

impl NoAnswer {
    /// True if no agent is alive there, so that one can be started.
    #[must_use]
    pub const fn is_absence(self) -> bool {
        use Errno as E;
        matches!(
            self,
            Self::Ended
                | Self::Failed { errno: E::NOENT | E::CONNREFUSED | E::CONNRESET | E::PIPE, .. }
        )
    }
}

impl Connection {
    /// Connects to the agent whose socket has this path. It may take `patience` for this, and for
    /// each answer.
    ///
    /// # Errors
    /// [`NoAnswer`]; ENOENT or ECONNREFUSED if nobody listens.
    pub fn open(socket: &[u8], patience: Duration) -> Result<Self, NoAnswer> {
        let address =
            SocketAddrUnix::new(socket).map_err(failed("the agent's address is too long"))?;
        let kind = SocketType::SEQPACKET;
        let fd = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
            .map_err(failed("no socket"))?;
        // For connect and send, which wait where the agent takes nobody in any more.
        sockopt::set_socket_timeout(&fd, sockopt::Timeout::Send, Some(patience))
            .map_err(failed("no socket"))?;
        let connection = Self { socket: fd, patience };
        loop {
            match connect(&connection.socket, &address) {
                Ok(()) => return Ok(connection),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(connection.silent()),
                Err(errno) => return Err(failed("its agent does not answer")(errno)),
            }
        }
    }

    /// The agent's answer, as bytes that are wiped.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub fn ask(&self, request: &Request) -> Result<Zeroizing<Vec<u8>>, NoAnswer> {
        let question = Zeroizing::new(request.encode());
        let until = Instant::now() + self.patience;
        match send(&self.socket, &question, SendFlags::NOSIGNAL) {
            Ok(_) => {}
            Err(Errno::AGAIN) => return Err(self.silent()),
            Err(errno) => return Err(failed("its agent does not listen")(errno)),
        }
        let flags = RecvFlags::DONTWAIT;
        // The room is of a program's locked memory: as much as the answer takes.
        let length = self.receive(&mut [], flags | RecvFlags::PEEK | RecvFlags::TRUNC, until)?;
        let mut message = Zeroizing::new(vec![0; length.min(MAX_ANSWER + 1)]);
        let length = self.receive(&mut message, flags, until)?;
        message.truncate(length);
        Ok(message)
    }

    /// Puts the next message into `room`; how long it is, as the flags say.
    fn receive(
        &self,
        room: &mut [u8],
        flags: RecvFlags,
        until: Instant,
    ) -> Result<usize, NoAnswer> {
        loop {
            match recv(&self.socket, &mut *room, flags) {
                Ok((_, 0)) => return Err(NoAnswer::Ended),
                Ok((_, length)) => return Ok(length),
                Err(Errno::AGAIN | Errno::INTR) => self.wait(until)?,
                Err(errno) => return Err(failed("its agent does not answer")(errno)),
            }
        }
    }

    /// Until there is something to read.
    fn wait(&self, until: Instant) -> Result<(), NoAnswer> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.silent());
        }
        let left = Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&left)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(failed("its agent cannot be waited for")(errno)),
        }
    }

    fn silent(&self) -> NoAnswer {
        NoAnswer::Silent { pid: self.pid(), patience: self.patience }
    }

    /// The user whose process listens there, if the kernel says.
    #[must_use]
    pub fn uid(&self) -> Option<u32> {
        Some(sockopt::socket_peercred(&self.socket).ok()?.uid.as_raw())
    }

    /// The process that listens there, if the kernel says: not what it says of itself.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        let peer = sockopt::socket_peercred(&self.socket).ok()?;
        Some(NonZeroI32::get(peer.pid.as_raw_nonzero()))
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The descriptor, to be kept open for as long as the process has the keys.
impl From<Connection> for OwnedFd {
    fn from(connection: Connection) -> Self {
        connection.socket
    }
}

fn failed(what: &'static str) -> impl FnOnce(Errno) -> NoAnswer {
    move |errno| NoAnswer::Failed { what, errno }
}

fn process(pid: Option<i32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

//! Asks an agent for keys, and starts one where none is alive.

use core::time::Duration;
use std::os::fd::OwnedFd;

use tidelock_contract::connection::{Connection, NoAnswer};
use tidelock_contract::wire::{Answer, Grant, RefusalReason, Request, WireError};

use crate::belief::may_grant;
use crate::host::Host;
use crate::starter;

/// How often an agent is started: one that was about to end may have been asked.
const STARTS: u32 = 2;
/// How long an agent may take to answer, who reads a little of /proc and adds a line to its log:
/// when a program starts, and when one that runs asks for newer keys, which it tries again later.
pub(crate) const AT_START: Duration = Duration::from_secs(20);
pub(crate) const AT_WORK: Duration = Duration::from_secs(5);
/// How many times as long its start may take: 10 minutes when a program starts, 2.5 when one runs
/// and its other threads may wait. It asks key services, and no person; each of these has a limit
/// of its own, 5 to 60 s unless the configuration says more (at most 5 minutes), but for the module
/// of a PKCS#11 token, which has none.
const TIMES_TO_START: u32 = 30;
/// Every connection of a server would wait as long for an agent that is stopped.
const AT_FORK: Duration = Duration::from_millis(500);

/// What an agent gave.
pub(crate) struct Granted {
    /// The directory, its policy and its keys.
    pub(crate) grant: Grant,
    /// Stays open as long as this process lives: the agent ends with its last client.
    pub(crate) connection: OwnedFd,
    /// An agent was started for this.
    pub(crate) started: bool,
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
pub(crate) fn ask(host: &dyn Host, socket: &[u8], patience: Duration) -> Result<Granted, String> {
    let mut starts = 0;
    loop {
        match exchange(socket, patience) {
            Ok(granted) => return Ok(Granted { started: starts > 0, ..granted }),
            Err(Failure::Final(why)) => return Err(why),
            Err(Failure::Absent(why)) => {
                let limit = patience.saturating_mul(TIMES_TO_START);
                if starts == STARTS || !starter::start_agent(host, socket, limit)? {
                    return Err(why);
                }
                starts += 1;
            }
        }
    }
}

/// As [`ask`], where an agent is alive and quick to answer.
pub(crate) fn ask_one_that_is_alive(socket: &[u8]) -> Option<Granted> {
    exchange(socket, AT_FORK).ok()
}

fn exchange(socket: &[u8], patience: Duration) -> Result<Granted, Failure> {
    let connection = Connection::open(socket, patience)?;
    if !connection.uid().is_some_and(may_grant) {
        return Err(Failure::Final("its agent is a process of another user".into()));
    }
    let answer = connection.ask(&Request::Keys)?;
    let sent = |why: WireError| Failure::Final(format!("its agent sent {why}"));
    match Answer::decode(&answer).map_err(sent)? {
        Answer::Grant(body) => {
            let grant = Grant::decode(body).map_err(sent)?;
            Ok(Granted { grant, connection: connection.into(), started: false })
        }
        Answer::Refused(reason, detail) => {
            let why = format!("its agent refuses, since {reason}{detail}; {}", reason.hint());
            // Where the directory was made again, another agent is started for its keyring.
            let absent = reason == RefusalReason::KeyringGone;
            Err(if absent { Failure::Absent(why) } else { Failure::Final(why) })
        }
        _ => Err(Failure::Final("its agent sent something else".into())),
    }
}

impl From<NoAnswer> for Failure {
    fn from(why: NoAnswer) -> Self {
        match why {
            _ if why.is_absence() => Self::Absent(why.to_string()),
            NoAnswer::Silent { .. } => {
                Self::Final(format!("{why}: let it go on (kill -CONT), or end it (kill -9)"))
            }
            _ => Self::Final(why.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;
    use std::sync::Barrier;
    use std::thread;

    use rustix::net::{
        AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept, bind,
        listen, recv, send, socket_with,
    };
    use rustix::process::{Uid, geteuid};
    use rustix::thread::set_thread_res_uid;
    use tidelock_cipher::{DataKey, Secret};
    use tidelock_contract::Policy;
    use tidelock_contract::wire::{KeyState, Terms};
    use tidelock_format::{DataKeyId, Generation, KeyringId, Layout};

    use super::*;

    /// Grants a key to the first that asks, as this user.
    fn grant_as(user: u32, socket: &Path, listens: &Barrier) {
        let uid = Uid::from_raw(user);
        set_thread_res_uid(uid, uid, uid).unwrap();
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let listener = socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        bind(&listener, &SocketAddrUnix::new(socket).unwrap()).unwrap();
        listen(&listener, 1).unwrap();
        listens.wait();
        let current = DataKeyId([2; 16]);
        let terms = Terms {
            directory: Path::new("/srv/data"),
            keyring: KeyringId([1; 16]),
            generation: Generation(1),
            layout: Layout::DEFAULT,
            current,
            core_dumps: false,
            policy: &Policy::new("test".into(), vec![], vec![], None, vec![]).unwrap(),
        };
        let key = DataKey::new(Secret::new([3; 32]));
        let message = Grant::encode(&terms, &[(current, &key, KeyState::Current)]).unwrap();
        let asks = accept(&listener).unwrap();
        if matches!(recv(&asks, &mut [0; 64], RecvFlags::empty()), Ok((_, 1..))) {
            send(&asks, &message, SendFlags::NOSIGNAL).unwrap();
        }
    }

    #[test]
    fn only_roots_agent_and_that_of_the_own_user_give_keys() {
        let place = tempfile::tempdir().unwrap();
        fs::set_permissions(place.path(), Permissions::from_mode(0o777)).unwrap();
        let me = geteuid().as_raw();
        let users = if me == 0 { vec![0, 54321] } else { vec![me] };
        for user in users {
            let (socket, listens) = (place.path().join(user.to_string()), Barrier::new(2));
            let granted = thread::scope(|scope| {
                scope.spawn(|| grant_as(user, &socket, &listens));
                listens.wait();
                exchange(socket.as_os_str().as_bytes(), AT_START)
            });
            match granted {
                Ok(granted) => assert!(user == me && granted.grant.keys.len() == 1),
                Err(Failure::Final(why) | Failure::Absent(why)) => {
                    assert_ne!(user, me, "{why}");
                    assert_eq!(why, "its agent is a process of another user");
                }
            }
        }
    }
}

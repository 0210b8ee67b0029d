//! How many programs an agent may have at a time: each takes descriptors of its process.
//!
//! Whoever finds no room waits until it is taken in, unless those who have it stay: then it is told
//! so. Taken in without room, it would be refused for another reason: the agent could not look at
//! its process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Server;

/// Connections at a time; more wait.
const MAX_CONNECTIONS: usize = 4096;
/// What a connection takes: itself, and where it has a program listed, that file and its process.
const EACH: usize = 3;
/// For what the agent opens itself: its log, the keyring, the process that asks.
const OWN: u64 = 64;

/// Raises the limit of descriptors as far as allowed; how many there are for connections.
pub(super) fn make_room() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let available = match limit != raised && setrlimit(Resource::Nofile, raised).is_ok() {
        true => raised.current,
        false => limit.current,
    };
    available.map_or(usize::MAX, left)
}

/// Half of them, where there are few.
fn left(available: u64) -> usize {
    usize::try_from(available - OWN.min(available / 2)).unwrap_or(usize::MAX)
}

impl Server {
    /// Connections without keys, which may soon be gone.
    fn silent(&self) -> usize {
        self.connections.iter().filter(|connection| connection.client.is_none()).count()
    }

    /// True if one more may find no room to look at its process.
    fn is_full(&self) -> bool {
        // Whoever has no keys yet may have a program listed.
        let more = (EACH - 1) * (self.silent() + self.allowed.len());
        let taken = self.connections.len() + self.companions.len() + more;
        self.connections.len() >= MAX_CONNECTIONS || taken + EACH > self.room
    }

    /// True if those who have keys or are waited for leave no room: nobody knows when they go.
    pub(super) fn is_full_for_long(&self) -> bool {
        let clients = self.clients().count();
        let taken = clients + self.companions.len() + (EACH - 1) * self.allowed.len();
        clients >= MAX_CONNECTIONS || taken + EACH > self.room
    }

    /// While others have it, but may soon be gone, one waits for room. Where they stay one is taken
    /// in at a time all the same, and told so: a program that waits in vain takes the agent for one
    /// that was stopped.
    pub(super) fn takes_in(&self) -> bool {
        !self.is_full() || self.is_full_for_long() && self.silent() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_keeps_descriptors_for_itself_however_few_there_are() {
        for (available, room) in [(0, 0), (1, 1), (40, 20), (128, 64), (1024, 960)] {
            assert_eq!(left(available), room, "{available}");
        }
    }
}

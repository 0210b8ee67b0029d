//! How many programs an agent may have at a time: each takes descriptors of its process.
//!
//! Whoever finds no room waits until it is taken in, unless those who have it stay: then it is told
//! so. Taken in without room, it would be refused for another reason: the agent could not look at
//! its process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Connections at a time; more wait.
pub(super) const MAX_CONNECTIONS: usize = 4096;
/// What a connection takes: itself, and where it has a program listed, that file and its process.
pub(super) const EACH: usize = 3;
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

//! What the agent needs that safe code cannot do, from `ffi`.

use tidelock_agent::{LockedBytes, Primitives};
use tidelock_ffi::LockedMapping;

struct Mapping(LockedMapping);

impl LockedBytes for Mapping {
    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    fn protection(&self) -> &'static str {
        self.0.protection()
    }
}

/// For an agent in this process.
pub(crate) fn primitives() -> Primitives {
    Primitives {
        lock: |bytes| Box::new(Mapping(LockedMapping::of(&bytes))),
        peer_pid: tidelock_ffi::peer_pid,
        peer_pidfd: tidelock_ffi::peer_pidfd,
        close_from: tidelock_ffi::close_from,
        wipe_stack: tidelock_ffi::wipe_stack,
    }
}

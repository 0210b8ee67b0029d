//! The one engine of this process, and whether it is at work.

use core::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};

use tidelock_engine::{Decide, KEYS, KeyPlace, KeyTable, Process, Sealing};
use tidelock_keys::{Decision, Policy};

use crate::system::Linux;
use crate::xts::Xts;

/// The engine over the real kernel and AWS-LC.
pub type ActiveProcess = Process<Linux, Xts, ActivePolicy>;

/// A policy of the keyring, as the engine asks it.
pub struct ActivePolicy(Policy);

impl ActivePolicy {
    /// The policy of a protected directory.
    #[must_use]
    pub const fn new(policy: Policy) -> Self {
        Self(policy)
    }
}

impl Decide for ActivePolicy {
    fn decide(&self, relative: &[u8]) -> Sealing {
        sealing(self.0.decide(relative))
    }

    fn decide_elsewhere(&self, path: &[u8]) -> Option<Sealing> {
        let tail = self.0.tablespace_tail(path)?;
        Some(sealing(self.0.decide_tablespace(tail)))
    }

    fn same_below(&self, from: &[u8], to: &[u8]) -> bool {
        self.0.same_below(from, to)
    }
}

const fn sealing(decision: Decision) -> Sealing {
    match decision {
        Decision::Seal(class) => Sealing::Sealed(class),
        Decision::Plain(_) => Sealing::Plain,
    }
}

static PROCESS: ActiveProcess = Process::new(Linux::new(), Xts::new(), KeyTable::over(&KEY_PLACES));
/// Apart from the engine, since all of it is zeros: pages of it come into being as they are used.
static KEY_PLACES: [KeyPlace; KEYS] = [const { KeyPlace::EMPTY }; KEYS];
static AT_WORK: AtomicBool = AtomicBool::new(false);

/// The engine, once the library has started in a listed program; `None` before, and everywhere else.
#[inline]
pub fn process() -> Option<&'static ActiveProcess> {
    AT_WORK.load(Acquire).then_some(&PROCESS)
}

/// The engine while it is being set up.
pub fn starting() -> &'static ActiveProcess {
    &PROCESS
}

/// From now on, every call goes through the engine.
pub fn begin() {
    AT_WORK.store(true, Release);
}

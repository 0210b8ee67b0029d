//! The one engine of this process, and whether it is at work.

use core::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};

use tidelock_engine::{KEYS, KeyPlace, KeyTable, Process};
use tidelock_runtime::Engine;

use crate::system::Linux;
use crate::xts::Xts;

/// The engine over the real kernel and AWS-LC.
pub type ActiveProcess = Engine<Linux, Xts>;

static PROCESS: ActiveProcess = Process::new(Linux::new(), Xts::new(), KeyTable::over(&KEY_PLACES));
/// Apart from the engine, since all of it is zeros: pages of it come into being as they are used.
static KEY_PLACES: [KeyPlace; KEYS] = [const { KeyPlace::EMPTY }; KEYS];
static AT_WORK: AtomicBool = AtomicBool::new(false);

/// The engine, once the library has started in a listed program; `None` before, and everywhere
/// else.
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

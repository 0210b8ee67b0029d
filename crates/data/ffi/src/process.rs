//! The one engine of this process, and whether it is at work.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Release};

use tidelock_engine::{
    DESCRIPTORS, ENDS, End, KEYS, KeyPlace, KeyTable, OPEN_FILES, Process, Roots, Slot, Table,
};
use tidelock_runtime::{Directory, Engine};

use crate::allowance;
use crate::system::Linux;
use crate::xts::{Cells, Xts};

/// The engine over the real kernel and AWS-LC.
pub type ActiveProcess = Engine<Linux, Xts>;

static PROCESS: ActiveProcess = Process::new(
    Linux::new(),
    Xts::over(&KEYS_OF_FILES),
    &ROOTS,
    KeyTable::over(&KEY_MARKS, &KEY_PLACES, allowance::grant),
    Table::over(&DESCRIPTOR_PLACES, &FILE_PLACES, &FILE_ENDS),
);
// Apart from the engine, since all of them are zeros: pages come into being as they are used.
static ROOTS: Roots<Directory> = Roots::new();
static KEYS_OF_FILES: Cells = Cells::EMPTY;
static KEY_MARKS: [AtomicU64; KEYS] = [const { AtomicU64::new(0) }; KEYS];
static KEY_PLACES: [KeyPlace; KEYS] = [const { KeyPlace::EMPTY }; KEYS];
static DESCRIPTOR_PLACES: [AtomicU32; DESCRIPTORS] = [const { AtomicU32::new(0) }; DESCRIPTORS];
static FILE_PLACES: [Slot; OPEN_FILES] = [const { Slot::FREE }; OPEN_FILES];
static FILE_ENDS: [End; ENDS] = [const { End::UNKNOWN }; ENDS];
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

/// The protected directories of this process: those of the engine, for the calls of the fast path,
/// which ask for them again and again.
#[inline]
pub(crate) fn roots() -> &'static Roots<Directory> {
    &ROOTS
}

/// Takes back the memory of places that no key has needed. Once, while the library starts.
pub(crate) fn start() {
    allowance::withhold(&KEY_PLACES);
}

/// From now on, every call goes through the engine.
pub fn begin() {
    AT_WORK.store(true, Release);
}

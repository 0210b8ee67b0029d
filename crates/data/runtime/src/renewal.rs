//! A keyring that changes while this process runs: another current data key, adopted ones, another
//! policy, another generation.
//!
//! ```text
//!   tidelock key ... --keyring key--> agent: unlocks the new keyring, announces its generation
//!   here: a new file, an unknown key or generation, a fork, or the first file of a forked child
//!         --> is that ahead of us? --> ask the agent
//! ```
//!
//! A process asks before it forks, so that its children have what is in force. Otherwise each
//! connection of a server would ask, and would have no key for the files of today where the agent
//! is gone by then and cannot be started without a person.
//!
//! The number is a hint that anybody who can write the disk may forge: it makes a process ask,
//! nothing else. Asking allocates (in the library's own memory) and makes a connection; it happens
//! at most once for each change. Where no agent is alive one is started, as when a program starts.
//! What cannot be done now is tried again, but not at every file.

use core::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
    Ordering::Release,
};

use rustix::time::{ClockId, clock_gettime};
use tidelock_cipher::{Root, UnitCipher};
use tidelock_contract::control::ANNOUNCED_AT;
use tidelock_engine::System;
use tidelock_format::{DiskOffset, Layout};

use crate::directory::{Directory, Served};
use crate::handshake::{self, Granted};
use crate::host::{Engine, Host};
use crate::{messages, start};

/// Seconds between an attempt that failed and the next: an agent that does not answer, or cannot be
/// started, costs seconds each.
const REST: u64 = 30;
/// Seconds until an agent is asked again that has not been told yet what another announced.
const SOON: u64 = 1;

/// When a fork may ask again, in seconds of the monotonic clock.
static FORK_NOT_BEFORE: AtomicU64 = AtomicU64::new(0);
static BUSY: AtomicBool = AtomicBool::new(false);

/// One thread asks; its signals wait, since a handler may open files.
struct Asking<'s, S: System> {
    system: &'s S,
    mask: u64,
}

impl<'s, S: System> Asking<'s, S> {
    fn begin(system: &'s S) -> Self {
        let mask = system.block_signals();
        let mut looks = 0;
        while BUSY.compare_exchange(false, true, Acquire, Relaxed).is_err() {
            system.pause(looks);
            looks += 1;
        }
        Self { system, mask }
    }

    /// `None` while another thread asks.
    fn try_begin(system: &'s S) -> Option<Self> {
        let mask = system.block_signals();
        if BUSY.compare_exchange(false, true, Acquire, Relaxed).is_ok() {
            return Some(Self { system, mask });
        }
        system.restore_signals(mask);
        None
    }
}

impl<S: System> Drop for Asking<'_, S> {
    fn drop(&mut self) {
        BUSY.store(false, Release);
        self.system.restore_signals(self.mask);
    }
}

/// Set in a child that has not looked yet: a server's connection is one, and begins with what is in
/// force then.
static NEW_CHILD: AtomicBool = AtomicBool::new(false);

/// After a fork, in the child: the thread that asked is not here.
pub(crate) fn after_fork_in_child() {
    BUSY.store(false, Release);
    NEW_CHILD.store(true, Release);
}

/// Catches up with the keyrings once in each child, when it opens its first file with a header.
pub(crate) fn follow_in_new_child<S: System, C: UnitCipher>(
    process: &Engine<S, C>,
    host: &dyn Host,
) {
    if !NEW_CHILD.load(Relaxed) || !NEW_CHILD.swap(false, AcqRel) {
        return;
    }
    for_all_behind(process, |directory, served| {
        let _asking = Asking::begin(process.system());
        // Without an answer it goes on with what it has, as its parent does.
        catch_up(process.system(), host, directory, served);
    });
}

/// True if a keyring was changed, and a fork may ask for it now.
pub(crate) fn has_news<S: System, C: UnitCipher>(process: &Engine<S, C>) -> bool {
    let roots = process.roots();
    let mut served =
        roots.numbers().filter_map(|root| roots.policy(root)).filter_map(Directory::keys);
    seconds() >= FORK_NOT_BEFORE.load(Relaxed)
        && served.any(|served| is_behind(process.system(), served))
}

/// Catches up with the keyrings before a fork, if an agent is quick to answer.
pub(crate) fn follow_before_fork<S: System, C: UnitCipher>(
    process: &Engine<S, C>,
    host: &dyn Host,
) {
    for_all_behind(process, |directory, served| {
        let Some(_asking) = Asking::try_begin(process.system()) else { return };
        let answered = catch_up(process.system(), host, directory, served);
        if is_behind(process.system(), served) {
            let rest = if answered { SOON } else { REST };
            FORK_NOT_BEFORE.fetch_max(seconds() + rest, Relaxed);
        }
    });
}

fn for_all_behind<S: System, C: UnitCipher>(
    process: &Engine<S, C>,
    mut follow: impl FnMut(&Directory, &Served),
) {
    let roots = process.roots();
    for directory in roots.numbers().filter_map(|root| roots.policy(root)) {
        if let Some(served) = directory.keys()
            && is_behind(process.system(), served)
        {
            follow(directory, served);
        }
    }
}

/// Asks an agent that is alive; true if it answered.
fn catch_up(system: &impl System, host: &dyn Host, directory: &Directory, served: &Served) -> bool {
    let announced = announced(system, served);
    let Some(granted) = handshake::ask_one_that_is_alive(&served.socket) else { return false };
    learn(host, directory, served, &granted, announced);
    true
}

/// Catches up with the keyring of `root` if it was changed; true if its keys here may be others
/// now.
#[inline]
pub(crate) fn follow<S: System, C: UnitCipher>(
    process: &Engine<S, C>,
    host: &dyn Host,
    root: Root,
) -> bool {
    let Some(directory) = process.roots().policy(root) else { return false };
    directory.keys().is_some_and(|served| {
        is_behind(process.system(), served) && ask(process.system(), host, directory, served)
    })
}

/// As [`follow`], for all directories.
#[cold]
pub(crate) fn follow_all<S: System, C: UnitCipher>(
    process: &Engine<S, C>,
    host: &dyn Host,
) -> bool {
    let mut changed = false;
    for root in process.roots().numbers() {
        changed |= follow(process, host, root);
    }
    changed
}

/// The generation of the keyring that was last announced in this directory; 0 if none was.
fn announced(system: &impl System, served: &Served) -> u64 {
    let mut bytes = [0u8; 8];
    let at = Layout::advance(DiskOffset::HEADER, ANNOUNCED_AT);
    match system.pread(served.lock, &mut bytes, at) {
        Ok(8) => u64::from_ne_bytes(bytes),
        _ => 0,
    }
}

fn is_behind(system: &impl System, served: &Served) -> bool {
    let announced = announced(system, served);
    announced > served.keyring.generation().0 && served.followed.load(Acquire) != announced
}

#[cold]
fn ask(system: &impl System, host: &dyn Host, directory: &Directory, served: &Served) -> bool {
    if seconds() < served.not_before.load(Acquire) {
        return false;
    }
    let _asking = Asking::begin(system);
    if !is_behind(system, served) {
        return true;
    }
    // Another thread asked meanwhile, and may have got an answer, if not the newest.
    if seconds() < served.not_before.load(Acquire) {
        return true;
    }
    let announced = announced(system, served);
    let Ok(granted) = handshake::ask(host, &served.socket, handshake::AT_WORK) else {
        served.not_before.store(seconds() + REST, Release);
        return false;
    };
    let taken = learn(host, directory, served, &granted, announced);
    if granted.started {
        // It ends with its last client, which would be this one.
        host.conceal(granted.connection);
    }
    taken
}

/// Takes over what an agent gave; false if there is no room for its keys.
fn learn(
    host: &dyn Host,
    directory: &Directory,
    served: &Served,
    granted: &Granted,
    announced: u64,
) -> bool {
    let taken = start::take(host, &granted.grant).is_some();
    if taken && !directory.learn(granted.grant.policy.clone()) {
        messages::profile_kept();
    }
    // Root's agent may be told, and announce, before this one is. A grant from before that settles
    // nothing.
    if granted.grant.generation.0 >= announced {
        served.followed.swap(announced, AcqRel);
    } else {
        served.not_before.store(seconds() + SOON, Release);
    }
    taken
}

fn seconds() -> u64 {
    u64::try_from(clock_gettime(ClockId::MonotonicCoarse).tv_sec).unwrap_or(0)
}

//! The contexts of this process (io_setup), and its requests on sealed files.
//!
//! ```text
//!   0   free     GONE   reserved     name   requests may be made
//!                                    name | GONE   io_destroy is under way
//! ```
//!
//! Whoever uses a context is counted, and the last one puts a destroyed one in order: a thread that
//! waits for events is told of the end by the kernel alone.
//!
//! UNSAFETY: requests lie in a map that stays as long as anybody is counted.
#![expect(unsafe_code, reason = "memory of requests")]

use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::AcqRel, Ordering::Acquire,
    Ordering::Relaxed, Ordering::Release, Ordering::SeqCst,
};

use tidelock_engine::Errno;

use super::held_back::{HeldBack, Push};
use super::maps::{map, unmap};
use super::request::{ANYWHERE, Request, are_under_way, forget_writes};
use super::{ring, submit};
use crate::allowance;

/// InnoDB makes one for each of its threads, up to 128.
const CONTEXTS: usize = 256;
/// The most requests on sealed files that a context has under way. MariaDB asks for 256 for each of
/// up to 128 threads.
const REQUESTS: usize = 32_768;
/// Names are addresses of pages.
const GONE: u64 = 1;

static ALL: [Context; CONTEXTS] = [const { Context::free() }; CONTEXTS];
/// So many of them were ever used: no other is looked at, since each look takes a page.
static USED: AtomicUsize = AtomicUsize::new(0);

/// What io_setup has made.
pub(super) struct Context {
    /// As the kernel names it: where its ring is.
    name: AtomicU64,
    users: AtomicU32,
    /// Those that use its name.
    lookers: AtomicU32,
    gone: AtomicBool,
    requests: AtomicPtr<Request>,
    len: AtomicUsize,
    /// How many the kernel surely takes: as many as the program asked for.
    room: AtomicUsize,
    held_back: HeldBack,
    /// So many of them were ever taken.
    used: AtomicUsize,
    taken: [AtomicU64; REQUESTS / 64],
}

/// A context that stays while this is held.
pub(super) struct Pin(&'static Context);

impl core::ops::Deref for Pin {
    type Target = Context;

    fn deref(&self) -> &Context {
        self.0
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// Takes back the memory of contexts, of which most processes make none. Once, while the library
/// starts.
pub(crate) fn start() {
    if USED.load(Relaxed) == 0 {
        allowance::withhold(&ALL);
    }
}

/// The context of this name, if we know it.
pub(super) fn find(name: u64) -> Option<Pin> {
    if !is_live(name) {
        return None;
    }
    let context = used().find(|context| context.name.load(Relaxed) == name)?;
    context.users.fetch_add(1, SeqCst);
    let pin = Pin(context);
    (context.name.load(SeqCst) == name).then_some(pin)
}

/// True if a context of this name is being destroyed, and no other has got the name.
#[cold]
pub(super) fn is_going(name: u64) -> bool {
    used().any(|context| context.name.load(SeqCst) == name | GONE)
}

const fn is_live(name: u64) -> bool {
    name & GONE == 0 && name != 0
}

fn used() -> impl Iterator<Item = &'static Context> {
    ALL.iter().take(USED.load(Acquire))
}

/// Remembers a context that the kernel has just made for `requests` requests.
///
/// # Errors
/// EAGAIN where there are too many, ENOMEM.
pub(super) fn add(name: u64, requests: usize) -> Result<(), Errno> {
    let reserve = |context: &Context| {
        context.name.load(Relaxed) == 0
            && context.name.compare_exchange(0, GONE, AcqRel, Relaxed).is_ok()
    };
    let mut reserved = None;
    for (index, context) in ALL.iter().enumerate() {
        if index >= USED.load(Acquire) {
            allowance::grant(core::slice::from_ref(context))?;
        }
        if reserve(context) {
            reserved = Some((index, context));
            break;
        }
    }
    let (index, context) = reserved.ok_or(Errno::AGAIN)?;
    USED.fetch_max(index + 1, Release);
    // The kernel lets a program have more under way than it asked for.
    let len = requests.saturating_mul(4).clamp(64, REQUESTS).next_multiple_of(64);
    if !context.make_room(len) {
        context.name.store(0, Release);
        return Err(Errno::NOMEM);
    }
    // A signal handler may have forked while its thread was counted.
    context.held_back.reset();
    context.room.store(requests, Relaxed);
    context.name.store(name, SeqCst);
    Ok(())
}

/// Gives back what writes held that the kernel is done with, also where the program has not fetched
/// their events; true if there was one.
#[inline]
pub(crate) fn look() -> bool {
    are_under_way() && look_into_rings()
}

#[cold]
fn look_into_rings() -> bool {
    // A handler that wants the event of a request which is just being looked at would wait for us.
    let mask = crate::sys::block_signals();
    let found = used().fold(false, |found, context| found | context.look());
    crate::sys::restore_signals(mask);
    found
}

/// In a forked child there are no contexts; what its parent's requests hold is the parent's.
pub(crate) fn after_fork_in_child() {
    for context in used() {
        if context.name.load(Relaxed) != 0 {
            context.each_taken(Request::forget);
            context.taken.iter().for_each(|word| word.store(0, Relaxed));
            context.users.store(0, Relaxed);
            context.lookers.store(0, Relaxed);
            context.gone.store(false, Relaxed);
            context.held_back.reset();
            context.name.store(0, Release);
        }
    }
    forget_writes();
}

impl Context {
    const fn free() -> Self {
        Self {
            name: AtomicU64::new(0),
            users: AtomicU32::new(0),
            lookers: AtomicU32::new(0),
            gone: AtomicBool::new(false),
            requests: AtomicPtr::new(core::ptr::null_mut()),
            len: AtomicUsize::new(0),
            room: AtomicUsize::new(0),
            held_back: HeldBack::none(),
            used: AtomicUsize::new(0),
            taken: [const { AtomicU64::new(0) }; REQUESTS / 64],
        }
    }

    pub(super) fn name(&self) -> u64 {
        self.name.load(Relaxed)
    }

    pub(super) const fn held_back(&self) -> &HeldBack {
        &self.held_back
    }

    /// Holds back a request that is set; with signals blocked.
    pub(super) fn hold_back(&self, request: &Request) -> Push {
        let Some(index) = self.number(request) else { return Push::Refused };
        let room = self.room.load(Relaxed) as u64;
        let push = |_| self.held_back.push(index, room, |before| request.follow(before));
        self.while_it_stays(push).unwrap_or(Push::Refused)
    }

    /// Takes all that are held back, the last one first. Each is to be ended, handed to the kernel
    /// or [put back](Self::put_back) before the next one is asked for.
    pub(super) fn take_held_back(&self) -> impl Iterator<Item = &Request> {
        core::iter::successors(self.at(self.held_back.take()), |request| self.at(request.follows()))
    }

    /// Takes what is held back and wanted. The rest is put back first: who waits for one of them
    /// looks for it there.
    pub(super) fn take_wanted(
        &self,
        mut is_wanted: impl FnMut(&Request) -> bool,
    ) -> impl Iterator<Item = &Request> {
        let mut last = None;
        for request in self.take_held_back() {
            if is_wanted(request) {
                request
                    .follow(last.and_then(|last| self.number(last)).map_or(0, |number| number + 1));
                last = Some(request);
            } else {
                self.put_back(request);
            }
        }
        core::iter::successors(last, |request| self.at(request.follows()))
    }

    /// Puts back one that was taken.
    pub(super) fn put_back(&self, request: &Request) {
        if let Some(index) = self.number(request) {
            self.held_back.put_back(index, |before| request.follow(before));
        }
    }

    /// A request that nobody has; `None` if all are taken.
    pub(super) fn take(&self) -> Option<&Request> {
        let len = self.len.load(Relaxed);
        for (index, word) in self.taken.iter().enumerate().take(len.div_ceil(64)) {
            let mut seen = word.load(Relaxed);
            while seen != u64::MAX {
                let bit = 1 << seen.trailing_ones();
                match word.compare_exchange_weak(seen, seen | bit, Acquire, Relaxed) {
                    Ok(_) => {
                        let index = index * 64 + seen.trailing_ones() as usize;
                        self.used.fetch_max(index + 1, Relaxed);
                        return self.request(index);
                    }
                    Err(now) => seen = now,
                }
            }
        }
        None
    }

    /// Ends a request: its file is left, and others may take it.
    pub(super) fn give_back(&self, request: &Request) {
        request.end();
        self.untake(request);
    }

    /// Gives a request back that was taken and not set.
    pub(super) fn untake(&self, request: &Request) {
        let index = self.index(request.address());
        if let Some(index) = index
            && let Some(word) = self.taken.get(index / 64)
        {
            word.fetch_and(!(1 << (index % 64)), Release);
        }
    }

    /// The request whose control block has this address, if it is one of ours.
    pub(super) fn of(&self, control: u64) -> Option<&Request> {
        self.index(control).and_then(|index| self.request(index))
    }

    /// The request that stands for this one of the program.
    pub(super) fn standing_for(&self, theirs: u64) -> Option<u64> {
        let mut found = None;
        self.each_taken(|request| {
            if request.theirs().0 == theirs {
                found = Some(request.address());
            }
        });
        found
    }

    /// Lets io_destroy run, which ends when the kernel has no request any more. Nobody holds one
    /// back from here on, or waits for one afterwards.
    pub(super) fn destroy(&self, name: u64, run: impl FnOnce() -> i64) -> i64 {
        if self.name.compare_exchange(name, name | GONE, SeqCst, Relaxed).is_err() {
            return -i64::from(libc::EINVAL);
        }
        while self.lookers.load(SeqCst) > 0 {
            core::hint::spin_loop();
        }
        let done = run();
        // The kernel has ended all of them. Nobody fetches the events any more, and users may wait.
        let mask = crate::sys::block_signals();
        self.each_taken(|request| request.let_go(ANYWHERE));
        crate::sys::restore_signals(mask);
        // The caller is one of the users.
        self.gone.store(true, Release);
        done
    }

    /// True if others than the caller use it.
    pub(super) fn has_others(&self) -> bool {
        self.users.load(SeqCst) > 1
    }

    fn leave(&self) {
        if self.users.fetch_sub(1, SeqCst) == 1 && self.gone.swap(false, AcqRel) {
            self.each_taken(Request::end);
            self.taken.iter().for_each(|word| word.store(0, Relaxed));
            self.held_back.reset();
            self.forget_memory();
            self.name.store(0, Release);
        }
    }

    /// What is done with its name before io_destroy may run; with signals blocked, since a handler
    /// may be who destroys it.
    pub(super) fn while_it_stays<R>(&self, work: impl FnOnce(u64) -> R) -> Option<R> {
        self.lookers.fetch_add(1, SeqCst);
        let name = self.name.load(SeqCst);
        let done = is_live(name).then(|| work(name));
        self.lookers.fetch_sub(1, SeqCst);
        done
    }

    fn look(&self) -> bool {
        if !is_live(self.name.load(Relaxed)) {
            return false;
        }
        let mut found = false;
        self.while_it_stays(|name| {
            // The caller may wait for one that is held back.
            submit::insist(self, || submit::send(self, name));
            let done = |event: ring::Event| {
                if let Some(request) = self.of(event.control) {
                    found |= request.let_go_of(event.data, event.result);
                }
            };
            // SAFETY: io_destroy waits for us.
            unsafe { ring::look(name, done) };
        });
        found
    }

    fn forget_memory(&self) {
        let used = self.used.swap(0, Relaxed);
        (0..used).filter_map(|index| self.request(index)).for_each(Request::forget_memory);
    }

    fn each_taken(&self, mut see: impl FnMut(&Request)) {
        for (index, word) in self.taken.iter().enumerate() {
            let word = word.load(Acquire);
            for bit in (0..64).filter(|bit| word >> bit & 1 == 1) {
                if let Some(request) = self.request(index * 64 + bit) {
                    see(request);
                }
            }
        }
    }

    fn request(&self, index: usize) -> Option<&Request> {
        let start = NonNull::new(self.requests.load(Acquire))?;
        if index >= self.len.load(Relaxed) {
            return None;
        }
        // SAFETY: a map of so many requests, all zeros at the beginning, which stays while the
        // context is in use.
        Some(unsafe { &*start.as_ptr().wrapping_add(index) })
    }

    /// Its index; all of them fit.
    fn number(&self, request: &Request) -> Option<u16> {
        self.index(request.address()).and_then(|index| u16::try_from(index).ok())
    }

    /// The one whose index and one this is.
    fn at(&self, place: u16) -> Option<&Request> {
        self.request(usize::from(place.checked_sub(1)?))
    }

    fn index(&self, address: u64) -> Option<usize> {
        let start = self.requests.load(Acquire).addr() as u64;
        let distance = usize::try_from(address.checked_sub(start)?).ok()?;
        let index = distance / size_of::<Request>();
        (distance.is_multiple_of(size_of::<Request>()) && index < self.len.load(Relaxed))
            .then_some(index)
    }

    /// Room for so many requests, in a context that nobody uses; false without memory.
    fn make_room(&self, len: usize) -> bool {
        let before = self.len.load(Relaxed);
        if before >= len {
            return true;
        }
        let Some(map) = map(len * size_of::<Request>()) else { return false };
        // In a forked child there may be some left.
        self.forget_memory();
        let old = self.requests.swap(map.cast(), AcqRel);
        self.len.store(len, Release);
        unmap((old.cast(), before * size_of::<Request>()));
        true
    }
}

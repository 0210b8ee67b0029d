//! Writes that wait a moment on their way to the kernel, so that several go in one call.
//!
//! InnoDB submits a hundred pages one by one. The kernel then tells the disk of each, and the disk
//! interrupts for each, unless they come faster than it takes them; sealing makes them slower.
//!
//! ```text
//!   io_submit      another request is with the kernel, and a thread waits for its event:
//!                  held back;  the MOST-th hands all of them over
//!   io_getevents   hands over what is held back, before it waits and when it comes back
//!   who waits for what a write holds (`look`), io_submit on a sealed file that holds nothing
//!   back, io_cancel, io_destroy: the same
//! ```
//!
//! So a write is held back no longer than the one that is already with the kernel takes: its event
//! comes without anybody's doing, and whoever fetches it hands over the others.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// The most that are held back.
const MOST: u64 = 32;

/// Which requests of a context are held back, who waits for events, and how many requests the
/// kernel has, in one word: who holds one back sees all of them at one moment.
///
/// ```text
///   bits 0..16   the last one held back: its index and one, or 0; each knows the one before it
///       16..27   how many are held back
///       27       nothing is held back any more: the kernel has refused something for good, or
///                there were too many threads to count
///       28..38   threads that wait for one event
///       38..48   threads that wait for several: they fetch one and wait on
///       48..64   requests of ours that the kernel has, or whose events nobody has fetched
/// ```
pub(super) struct HeldBack(AtomicU64);

const LAST: u64 = 0xffff;
const COUNT: Field = Field { at: 16, bits: 11 };
const NEVER: u64 = 1 << 27;
const FOR_ONE: Field = Field { at: 28, bits: 10 };
const FOR_SEVERAL: Field = Field { at: 38, bits: 10 };
const SENT: Field = Field { at: 48, bits: 16 };

#[derive(Clone, Copy)]
struct Field {
    at: u32,
    bits: u32,
}

impl Field {
    const fn most(self) -> u64 {
        (1 << self.bits) - 1
    }

    const fn of(self, word: u64) -> u64 {
        word >> self.at & self.most()
    }

    const fn times(self, count: u64) -> u64 {
        count << self.at
    }
}

/// What became of a request that was to be held back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Push {
    Held,
    /// It is held back, and no other will be.
    Last,
    /// Nobody would hand it over, or there is no room.
    Refused,
}

/// A thread that waits for events.
#[derive(Debug)]
#[must_use]
pub(super) struct Waits(u64);

impl HeldBack {
    pub(super) const fn none() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(super) fn reset(&self) {
        self.0.store(0, Relaxed);
    }

    #[inline]
    pub(super) fn any(&self) -> bool {
        self.0.load(SeqCst) & LAST != 0
    }

    /// Holds back the request of this index, unless nobody would hand it over, or `room` requests
    /// are under way; `link` is told the one before it, before others can see it.
    pub(super) fn push(&self, index: u16, room: u64, link: impl Fn(u16)) -> Push {
        let may = |word| {
            let (held, sent) = (COUNT.of(word), SENT.of(word));
            let is_fetched = FOR_ONE.of(word) > 0 && FOR_SEVERAL.of(word) == 0;
            let may = is_fetched && sent > 0 && word & NEVER == 0;
            (may && held < MOST && held + sent < room).then_some(0)
        };
        match self.add(index, link, may) {
            Some(before) if before + 1 == MOST => Push::Last,
            Some(_) => Push::Held,
            None => Push::Refused,
        }
    }

    /// Puts back one that was taken and that the kernel has no room for now.
    pub(super) fn put_back(&self, index: u16, link: impl Fn(u16)) {
        self.add(index, link, |_| Some(SENT.times(1)));
    }

    /// How many were held back before it; `may` says by how much the word falls besides.
    fn add(&self, index: u16, link: impl Fn(u16), may: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let last = u64::from(index) + 1;
        let added = self.0.fetch_update(SeqCst, Relaxed, |word| {
            may(word).map(|less| {
                link((word & LAST) as u16);
                (word & !LAST | last) + COUNT.times(1) - less
            })
        });
        added.ok().map(|before| COUNT.of(before))
    }

    /// True if something is held back that no event of ours will bring to mind: who waits for one
    /// may have looked while it was taken.
    pub(super) fn is_stranded(&self) -> bool {
        let word = self.0.load(SeqCst);
        let for_one = SENT.of(word) == 0 && FOR_ONE.of(word) > 0;
        COUNT.of(word) > 0 && (for_one || FOR_SEVERAL.of(word) > 0)
    }

    /// Nothing is held back any more.
    pub(super) fn never_again(&self) {
        self.0.fetch_or(NEVER, SeqCst);
    }

    /// Takes all of them: the last one's index and one, or 0. They count as with the kernel.
    pub(super) fn take(&self) -> u16 {
        let taken = self.0.fetch_update(SeqCst, Relaxed, |word| {
            let held = COUNT.of(word);
            (held > 0).then(|| (word & !LAST) - COUNT.times(held) + SENT.times(held))
        });
        taken.map_or(0, |word| (word & LAST) as u16)
    }

    /// The kernel is about to get so many requests.
    pub(super) fn send(&self, requests: usize) {
        self.0.fetch_add(SENT.times(requests as u64), SeqCst);
    }

    /// The kernel has not taken them.
    pub(super) fn unsend(&self, requests: usize) {
        self.0.fetch_sub(SENT.times(requests as u64), SeqCst);
    }

    /// This thread waits for at least so many events from here on.
    pub(super) fn waits(&self, least: i64) -> Waits {
        let kind = if least > 1 { FOR_SEVERAL } else { FOR_ONE };
        let one = kind.times(1);
        let counted = self.0.fetch_update(SeqCst, Relaxed, |word| {
            Some(if kind.of(word) < kind.most() { word + one } else { word | NEVER })
        });
        Waits(match counted {
            Ok(before) if kind.of(before) < kind.most() => one,
            _ => 0,
        })
    }

    /// It has come back, with so many events of ours.
    pub(super) fn came_back(&self, waits: Waits, ours: usize) {
        self.0.fetch_sub(waits.0 + SENT.times(ours as u64), SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::{COUNT, FOR_ONE, HeldBack, MOST, NEVER, Push, SENT};

    const ROOM: u64 = 256;

    fn push(held: &HeldBack, index: u16) -> Push {
        held.push(index, ROOM, |_| ())
    }

    fn with_one_under_way() -> HeldBack {
        let held = HeldBack::none();
        held.send(1);
        held
    }

    #[test]
    fn nothing_is_held_back_that_nobody_would_hand_over() {
        let held = HeldBack::none();
        assert_eq!(push(&held, 7), Push::Refused);
        held.send(1);
        assert_eq!(push(&held, 7), Push::Refused, "nobody waits");
        let waits = held.waits(1);
        assert_eq!(push(&held, 7), Push::Held);
        held.came_back(waits, 1);
        assert_eq!(held.take(), 8);
        let waits = held.waits(1);
        assert_eq!(push(&held, 7), Push::Held, "what was taken is with the kernel");
        assert_eq!(held.take(), 8);
        held.came_back(waits, 2);
        let _waits = held.waits(1);
        assert_eq!(push(&held, 7), Push::Refused, "no event will come");
    }

    #[test]
    fn a_thread_that_waits_for_several_events_forbids_it() {
        let held = with_one_under_way();
        let _one = held.waits(0);
        let several = held.waits(2);
        assert_eq!(push(&held, 1), Push::Refused);
        held.came_back(several, 0);
        assert_eq!(push(&held, 1), Push::Held);
    }

    #[test]
    fn so_many_are_held_back_and_no_more_than_there_is_room_for() {
        let held = with_one_under_way();
        let _waits = held.waits(1);
        let most = u16::try_from(MOST).expect("a few");
        let pushed: Vec<Push> = (0..=most).map(|index| push(&held, index)).collect();
        let (last, rest) = pushed.split_last().expect("some");
        assert_eq!(*last, Push::Refused);
        assert_eq!(rest.iter().filter(|push| **push == Push::Held).count() as u64, MOST - 1);
        assert_eq!(rest.last(), Some(&Push::Last));
        held.take();
        assert_eq!(held.push(0, MOST + 2, |_| ()), Push::Held);
        assert_eq!(held.push(1, MOST + 2, |_| ()), Push::Refused);
    }

    #[test]
    fn each_knows_the_one_before_it() {
        let held = with_one_under_way();
        let _waits = held.waits(1);
        let before = Cell::new(None);
        for (index, expected) in [(4, 0), (9, 5), (0, 10), (32_767, 1)] {
            held.push(index, ROOM, |link| before.set(Some(link)));
            assert_eq!(before.get(), Some(expected));
        }
        assert_eq!(held.take(), 32_768);
        assert_eq!(held.take(), 0);
        held.put_back(3, |link| before.set(Some(link)));
        assert_eq!(before.get(), Some(0));
        assert_eq!(SENT.of(held.0.load(super::Relaxed)), 4, "one of five is not with the kernel");
        assert_eq!(held.take(), 4);
    }

    #[test]
    fn what_is_put_back_while_a_thread_waits_is_stranded_until_the_kernel_has_something() {
        let held = with_one_under_way();
        let waits = held.waits(1);
        assert_eq!(push(&held, 1), Push::Held);
        assert!(!held.is_stranded(), "an event will come");
        held.take();
        held.came_back(waits, 1);
        held.put_back(1, |_| ());
        assert!(!held.is_stranded(), "nobody waits");
        let _waits = held.waits(2);
        assert!(held.is_stranded());
        held.send(1);
        assert!(held.is_stranded(), "one event is not several");
    }

    #[test]
    fn what_was_refused_for_good_ends_it() {
        let held = with_one_under_way();
        let _waits = held.waits(1);
        assert_eq!(push(&held, 1), Push::Held);
        held.never_again();
        assert_eq!(push(&held, 2), Push::Refused);
        assert_eq!(held.take(), 2, "what is held back stays");
    }

    #[test]
    fn more_threads_than_can_be_counted_end_it() {
        let held = with_one_under_way();
        let counted: Vec<_> = (0..FOR_ONE.most()).map(|_| held.waits(1)).collect();
        assert_eq!(push(&held, 1), Push::Held);
        let one_more = held.waits(1);
        assert_eq!(push(&held, 2), Push::Refused);
        held.came_back(one_more, 0);
        counted.into_iter().for_each(|waits| held.came_back(waits, 0));
        let word = held.0.load(super::Relaxed);
        assert_eq!((FOR_ONE.of(word), COUNT.of(word), word & NEVER), (0, 1, NEVER));
    }
}

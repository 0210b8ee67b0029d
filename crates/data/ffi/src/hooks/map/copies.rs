//! Which memory of the program is a copy of a sealed file: what mmap gave, less what was unmapped
//! since.
//!
//! To the kernel a copy is anonymous memory, which advice to drop it would fill with zeros. A table
//! of fixed size, without a lock: who unmaps a copy while another thread moves it has a race of his
//! own.

use core::ops::Range;
use core::sync::atomic::{
    AtomicUsize, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

/// How many copies there may be.
const COPIES: usize = 1024;
/// In `start`: an entry that somebody fills in.
const TAKEN: usize = usize::MAX;
/// In `end`, whose low bits are zeros otherwise: the program may have written to it.
const CHANGED: usize = 1;

struct Entry {
    /// 0 for none.
    start: AtomicUsize,
    end: AtomicUsize,
}

static TABLE: [Entry; COPIES] =
    [const { Entry { start: AtomicUsize::new(0), end: AtomicUsize::new(0) } }; COPIES];
/// Below this, entries have been used.
static TOP: AtomicUsize = AtomicUsize::new(0);

/// A part of a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Part {
    pub(super) range: Range<usize>,
    pub(super) changed: bool,
}

/// The parts of copies that lay in a range, taken out of the table.
pub(super) struct Taken {
    from: Range<usize>,
    parts: [Option<Part>; MOST_PARTS],
    /// If there were others: from the first of all to the last.
    more: Option<Range<usize>>,
}

/// So many are put back one by one.
const MOST_PARTS: usize = 16;

/// Takes out what lies in `range`.
pub(super) fn take(range: Range<usize>) -> Taken {
    let mut parts: [Option<Part>; MOST_PARTS] = [const { None }; MOST_PARTS];
    let mut found = within(range.clone());
    for (place, part) in parts.iter_mut().zip(found.by_ref()) {
        *place = Some(part);
    }
    let both = |one: Range<usize>, other: &Range<usize>| {
        one.start.min(other.start)..one.end.max(other.end)
    };
    let others = found.map(|part| part.range).reduce(|one, other| both(one, &other));
    let more =
        others.map(|rest| parts.iter().flatten().fold(rest, |all, part| both(all, &part.range)));
    remove(&range);
    Taken { from: range, parts, more }
}

impl Taken {
    /// The memory stays.
    pub(super) fn put_back(self) {
        let to = self.from.clone();
        self.put_at(to);
    }

    /// The memory lies in `to` now, as far as that reaches.
    pub(super) fn put_at(self, to: Range<usize>) {
        let Self { from, parts, more } = self;
        let shift = |at: usize| (at - from.start).saturating_add(to.start).min(to.end);
        if let Some(all) = more {
            // As one that was changed: no advice drops any of it.
            let _ = add(shift(all.start)..shift(all.end), true);
            return;
        }
        for part in parts.into_iter().flatten() {
            // Without room, it is what it is to the kernel.
            let _ = add(shift(part.range.start)..shift(part.range.end), part.changed);
        }
    }
}

/// Remembers a copy; false if there are too many.
pub(super) fn add(range: Range<usize>, changed: bool) -> bool {
    if range.is_empty() {
        return true;
    }
    let free = |entry: &Entry| entry.start.compare_exchange(0, TAKEN, AcqRel, Relaxed).is_ok();
    let Some(index) = TABLE.iter().position(free) else { return false };
    TABLE[index].end.store(range.end | if changed { CHANGED } else { 0 }, Release);
    TABLE[index].start.store(range.start, Release);
    TOP.fetch_max(index + 1, Release);
    true
}

/// The parts of copies that lie in `range`, in no order.
pub(super) fn within(range: Range<usize>) -> impl Iterator<Item = Part> {
    TABLE.iter().take(TOP.load(Acquire)).filter_map(move |entry| {
        let (copy, changed) = entry.get()?;
        let part = copy.start.max(range.start)..copy.end.min(range.end);
        (!part.is_empty()).then_some(Part { range: part, changed })
    })
}

/// What lies in `range` is a copy no more.
pub(super) fn remove(range: &Range<usize>) {
    for entry in TABLE.iter().take(TOP.load(Acquire)) {
        let Some((copy, changed)) = entry.get() else { continue };
        if copy.end <= range.start || range.end <= copy.start {
            continue;
        }
        // Another thread may have unmapped it, and a third one have its place.
        if entry.start.compare_exchange(copy.start, 0, AcqRel, Relaxed).is_err() {
            continue;
        }
        // Without room for both sides, the second is what it is to the kernel.
        let _ = add(copy.start..range.start, changed) & add(range.end..copy.end, changed);
    }
}

/// The program may write to what lies in `range` from now on; false if there are too many parts.
pub(super) fn mark_changed(range: Range<usize>) -> bool {
    let mut parts = within(range).filter(|part| !part.changed).map(|part| part.range);
    let mut done = true;
    // One at a time: the table changes.
    for _ in 0..COPIES {
        let Some(part) = parts.next() else { break };
        remove(&part);
        done &= add(part, true);
    }
    done
}

impl Entry {
    fn get(&self) -> Option<(Range<usize>, bool)> {
        let start = self.start.load(Acquire);
        let end = self.end.load(Acquire);
        // The end may be that of another copy by now, whose beginning was written before.
        let is_one = start != 0 && start != TAKEN && self.start.load(Relaxed) == start;
        is_one.then_some((start..end & !CHANGED, end & CHANGED != 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_cut_moved_and_marked() {
        let parts = |range| {
            let mut parts: Vec<_> =
                within(range).map(|p| (p.range.start, p.range.end, p.changed)).collect();
            parts.sort_unstable();
            parts
        };
        let all = 0x10_0000..0x20_0000;
        assert!(add(0x10_0000..0x11_0000, false));
        assert_eq!(parts(all.clone()), [(0x10_0000, 0x11_0000, false)]);
        remove(&(0x10_4000..0x10_5000));
        assert_eq!(
            parts(all.clone()),
            [(0x10_0000, 0x10_4000, false), (0x10_5000, 0x11_0000, false)]
        );
        assert_eq!(
            parts(0x10_3000..0x10_6000),
            [(0x10_3000, 0x10_4000, false), (0x10_5000, 0x10_6000, false)]
        );
        assert!(mark_changed(0x10_6000..0x10_7000));
        let marked = [
            (0x10_0000, 0x10_4000, false),
            (0x10_5000, 0x10_6000, false),
            (0x10_6000, 0x10_7000, true),
            (0x10_7000, 0x11_0000, false),
        ];
        assert_eq!(parts(all.clone()), marked);
        remove(&all);
        assert_eq!(parts(all), []);
    }

    #[test]
    fn what_is_taken_out_is_put_back_or_moved() {
        let parts = |range| {
            let mut parts: Vec<_> =
                within(range).map(|p| (p.range.start, p.range.end, p.changed)).collect();
            parts.sort_unstable();
            parts
        };
        let all = 0x40_0000..0x50_0000;
        assert!(add(0x40_0000..0x40_4000, false) && add(0x40_6000..0x40_8000, true));
        let taken = take(0x40_2000..0x40_7000);
        let left = [(0x40_0000, 0x40_2000, false), (0x40_7000, 0x40_8000, true)];
        assert_eq!(parts(all.clone()), left);
        taken.put_back();
        let back = [
            (0x40_0000, 0x40_2000, false),
            (0x40_2000, 0x40_4000, false),
            (0x40_6000, 0x40_7000, true),
            (0x40_7000, 0x40_8000, true),
        ];
        assert_eq!(parts(all.clone()), back);
        // To half the room: the last part does not come along.
        take(0x40_0000..0x40_8000).put_at(0x4a_0000..0x4a_5000);
        let moved = [(0x4a_0000, 0x4a_2000, false), (0x4a_2000, 0x4a_4000, false)];
        assert_eq!(parts(all.clone()), moved);
        remove(&all);

        let many = 17;
        let page = |number: usize| 0x40_0000 + number * 0x1000;
        for number in 0..many {
            assert!(add(page(2 * number)..page(2 * number + 1), false));
        }
        take(page(0)..page(2 * many)).put_back();
        assert_eq!(parts(all.clone()), [(page(0), page(2 * many - 1), true)]);
        remove(&all);
    }
}

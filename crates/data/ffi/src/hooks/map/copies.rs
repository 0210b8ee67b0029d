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

/// Remembers a copy; false if there are too many.
pub(super) fn add(range: Range<usize>, changed: bool) -> bool {
    if range.is_empty() {
        return true;
    }
    let free = |entry: &Entry| entry.start.compare_exchange(0, TAKEN, AcqRel, Relaxed).is_ok();
    let Some(index) = TABLE.iter().position(free) else { return false };
    TABLE[index].end.store(range.end | if changed { CHANGED } else { 0 }, Relaxed);
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
        entry.start.store(0, Release);
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
        let end = self.end.load(Relaxed);
        (start != 0 && start != TAKEN).then_some((start..end & !CHANGED, end & CHANGED != 0))
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
}

//! One file: its bytes as the page cache has them, what of them is synced, and what a crash could
//! leave.
//!
//! The crash model: sizes and holes are ordered metadata (a prefix of their changes survives);
//! every sector of 512 bytes is as it was at any moment since the last sync, independently of the
//! others, except that what a surviving cut has removed does not come back, and that what was
//! written out is there, as far as the size that survives shows it.

use std::collections::BTreeSet;

const SECTOR: usize = 512;
const BLOCK: usize = 4096;

/// A file of the simulated disk.
#[derive(Clone)]
pub struct SimFile {
    bytes: Vec<u8>,
    synced: Vec<u8>,
    since: Vec<Change>,
    /// Blocks that have room on the disk.
    allocated: BTreeSet<u64>,
    /// Blocks that were all zeros or not wholly there at some moment since the last sync.
    weak: BTreeSet<usize>,
}

#[derive(Clone)]
enum Change {
    Write { at: usize, bytes: Vec<u8> },
    Size(usize),
    Punch { at: usize, end: usize },
    Out { at: usize, end: usize },
}

impl SimFile {
    pub(super) fn synced(bytes: Vec<u8>) -> Self {
        let mut file = Self {
            bytes,
            synced: Vec::new(),
            since: Vec::new(),
            allocated: BTreeSet::new(),
            weak: BTreeSet::new(),
        };
        file.allocated.extend((0..file.bytes.len().div_ceil(BLOCK)).map(|block| block as u64));
        file.sync();
        file
    }

    /// The bytes, header included.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many blocks have room on the disk.
    #[must_use]
    pub fn allocated(&self) -> usize {
        self.allocated.len()
    }

    /// fsync(2).
    pub fn sync(&mut self) {
        self.synced.clone_from(&self.bytes);
        self.since.clear();
        self.weak.clear();
        for (index, block) in self.bytes.chunks(BLOCK).enumerate() {
            if block.len() < BLOCK || block.iter().all(|&byte| byte == 0) {
                self.weak.insert(index);
            }
        }
    }

    /// `sync_file_range(2)`, waiting for all.
    pub(super) fn write_out(&mut self, at: usize, end: usize) {
        self.change(Change::Out { at, end });
    }

    /// True if the 4096-byte block was whole and no hole, ever since the last sync: then a sector
    /// of it that no write touched reads as before after a crash, whatever the zero rule.
    #[must_use]
    pub fn is_firm(&self, block: usize) -> bool {
        (block + 1) * BLOCK <= self.synced.len() && !self.weak.contains(&block)
    }

    /// Writes as much as there is room for; how many bytes.
    pub(super) fn write(&mut self, at: usize, bytes: &[u8], room: &mut Option<u64>) -> usize {
        let mut fits = bytes.len();
        for block in at / BLOCK..(at + bytes.len()).div_ceil(BLOCK) {
            if self.allocated.contains(&(block as u64)) {
                continue;
            }
            if *room == Some(0) {
                fits = (block * BLOCK).saturating_sub(at).min(fits);
                break;
            }
            *room = room.map(|room| room - 1);
            self.allocated.insert(block as u64);
        }
        if fits > 0 {
            let bytes = bytes[..fits].to_vec();
            self.change(Change::Write { at, bytes });
        }
        fits
    }

    pub(super) fn set_size(&mut self, size: usize) {
        self.allocated.retain(|&block| block < size.div_ceil(BLOCK) as u64);
        self.weaken(size.min(self.bytes.len()), self.bytes.len());
        self.change(Change::Size(size));
    }

    pub(super) fn punch(&mut self, at: usize, end: usize) {
        for block in at.div_ceil(BLOCK)..end / BLOCK {
            self.allocated.remove(&(block as u64));
        }
        let end = end.min(self.bytes.len());
        if at < end {
            self.weaken(at, end);
            self.change(Change::Punch { at, end });
        }
    }

    /// Gives blocks room; false if there is not enough.
    pub(super) fn allocate(&mut self, at: usize, end: usize, room: &mut Option<u64>) -> bool {
        for block in at / BLOCK..end.div_ceil(BLOCK) {
            if !self.allocated.contains(&(block as u64)) {
                if *room == Some(0) {
                    return false;
                }
                *room = room.map(|room| room - 1);
                self.allocated.insert(block as u64);
            }
        }
        true
    }

    /// The next block with or without data from `at` on.
    pub(super) fn seek(&self, at: usize, data: bool) -> Option<usize> {
        let mut at = at;
        while at < self.bytes.len() {
            if self.allocated.contains(&((at / BLOCK) as u64)) == data {
                return Some(at);
            }
            at = (at / BLOCK + 1) * BLOCK;
        }
        (!data).then_some(self.bytes.len())
    }

    fn weaken(&mut self, from: usize, to: usize) {
        self.weak.extend(from / BLOCK..to.div_ceil(BLOCK));
    }

    fn change(&mut self, change: Change) {
        let before = self.bytes.len();
        apply(&mut self.bytes, &change);
        self.since.push(change);
        // A block that is not wholly there may be half there after a crash.
        self.weaken(before.min(self.bytes.len()), before.max(self.bytes.len()));
        if !before.is_multiple_of(BLOCK) {
            self.weak.insert(before / BLOCK);
        }
    }

    /// What a crash could leave of it, chosen by `dice`.
    pub(super) fn after_crash(&self, dice: &mut dyn FnMut(u64) -> u64) -> Self {
        let mut images = vec![self.synced.clone()];
        for change in &self.since {
            let mut next = images.last().cloned().unwrap_or_default();
            apply(&mut next, change);
            images.push(next);
        }
        let last = images.len() - 1;
        // Often all or nothing, since these are the states that a real crash leaves most.
        let kept = match dice(4) {
            0 => last,
            _ => pick(dice, 0, last),
        };
        let size = images[kept].len();
        let mut left = vec![0u8; size];
        for (index, sector) in left.chunks_mut(SECTOR).enumerate() {
            let (from, to) = (index * SECTOR, index * SECTOR + sector.len());
            let (mut earliest, mut latest) = (0, last);
            for (number, change) in self.since.iter().enumerate() {
                let (gone, end, whole) = match *change {
                    Change::Size(size) => (size, usize::MAX, size.next_multiple_of(BLOCK)),
                    Change::Punch { at, end } => (at, end, at),
                    Change::Out { at, end } => {
                        if from < end.next_multiple_of(BLOCK) && to > at - at % BLOCK {
                            earliest = earliest.max(number + 1);
                        }
                        continue;
                    }
                    Change::Write { .. } => continue,
                };
                if from < end && to > gone {
                    if number < kept {
                        earliest = number + 1;
                    } else if from >= whole {
                        latest = latest.min(number);
                    }
                }
            }
            let moment = pick(dice, earliest, latest.max(earliest));
            let image = &images[moment];
            if from < image.len() {
                let to = to.min(image.len());
                sector[..to - from].copy_from_slice(&image[from..to]);
            }
        }
        Self::synced(left)
    }
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write { at, bytes: new } => {
            if bytes.len() < at + new.len() {
                bytes.resize(at + new.len(), 0);
            }
            bytes[*at..at + new.len()].copy_from_slice(new);
        }
        Change::Size(size) => bytes.resize(*size, 0),
        Change::Punch { at, end } => bytes[*at..*end].fill(0),
        Change::Out { .. } => {}
    }
}

fn pick(dice: &mut dyn FnMut(u64) -> u64, from: usize, to: usize) -> usize {
    let count = (to - from + 1) as u64;
    from + usize::try_from(dice(count)).unwrap_or(0)
}

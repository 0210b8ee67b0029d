//! The words that all processes of a protected directory share, and what they say of one file.
//!
//! ```text
//!   sequences    writers of each 64 KiB at work, and how many writes were      sequence.rs
//!   generations  changes of a file's size: odd while one is under way          whole.rs, gate.rs
//!   gates        whole-unit writers share a file, all others have it alone      gate.rs
//!   turns        one user of an open file's offset at a time                    turn.rs
//!   posts        which thread of which process is at work where, so that what  roster.rs
//!                killed process left behind is told from one that somebody still needs
//! ```
//!
//! Plain memory of atomics: nothing here waits, allocates or knows where the memory comes from.
//! Files share words by hash of device and inode; those of class bytes have words of their own,
//! since their sizes change all the time.

use core::sync::atomic::AtomicU64;

use tidelock_cipher::Root;
use tidelock_format::Class;

/// How many words there are of each kind.
pub(crate) const WORDS: usize = 1024;
/// The same, for numbers of words.
pub(crate) const WORDS_U32: u32 = 1024;
const _: () = assert!(WORDS == WORDS_U32 as usize);
/// How many threads can be at work at once, in all processes of a directory.
pub(crate) const POSTS: usize = 4096;
/// Files of class bytes have the upper half.
const HALF: u16 = 512;

/// A word with the line of cache that it is alone in.
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) AtomicU64);

/// Where a thread says what it is at. Four share a line: a thread's post may be any of them.
#[repr(C, align(16))]
pub(crate) struct Post {
    /// The [`Actor`]'s code, or 0.
    pub(crate) owner: AtomicU64,
    /// What it works at, see `roster`; 0 while it has changed no word yet.
    pub(crate) what: AtomicU64,
}

/// A word on a page that it is alone on. The length of all words, by which versions that do not
/// agree about them tell each other apart, is one of pages.
#[repr(C, align(4096))]
struct Page(AtomicU64);

/// The shared words of one directory. All zeros at the beginning.
#[repr(C, align(4096))]
pub struct Words {
    /// How often a size began or ceased to change, in the whole directory.
    pub(crate) moves: Line,
    pub(crate) sequences: [Line; WORDS],
    pub(crate) generations: [Line; WORDS],
    pub(crate) gates: [Line; WORDS],
    pub(crate) turns: [Line; WORDS],
    pub(crate) posts: [Post; POSTS],
    /// How many numbers of processes were given.
    numbers: Page,
}

/// Which words are a file's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stripe {
    /// Which protected directory.
    pub root: Root,
    /// Which word of each kind.
    pub number: u16,
}

/// A thread of a process: who holds a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Actor(u64);

const THREAD_BITS: u32 = 41;

/// Numbers of processes are from 1 up to this.
pub const LARGEST_NUMBER: u32 = (1 << 22) - 1;

impl Actor {
    /// The thread whose control block lies at `thread`, a multiple of 64, of the process with this
    /// number.
    #[must_use]
    pub const fn new(number: u32, thread: u64) -> Self {
        let thread = thread >> 6 & ((1 << THREAD_BITS) - 1);
        Self(((number & LARGEST_NUMBER) as u64) << THREAD_BITS | thread)
    }

    /// In place of a thread: a request of the same process that the kernel carries out. No thread
    /// has its control block below the lowest address that can be mapped.
    pub(crate) const fn request(self, number: u32) -> Self {
        const LOWEST: u32 = 0x1_0000 >> 6;
        Self(self.0 >> THREAD_BITS << THREAD_BITS | (1 + number % (LOWEST - 1)) as u64)
    }

    pub(crate) const fn from_code(code: u64) -> Self {
        Self(code)
    }

    pub(crate) const fn code(self) -> u64 {
        self.0
    }

    /// The number of the process.
    #[must_use]
    pub const fn number(self) -> u32 {
        // 22 bits.
        (self.0 >> THREAD_BITS) as u32 & LARGEST_NUMBER
    }
}

impl Stripe {
    /// The words of a file.
    #[must_use]
    pub const fn of(root: Root, class: Class, device: u64, inode: u64) -> Self {
        let hash = (inode ^ device.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let [.., low, high] = hash.to_le_bytes();
        let number = u16::from_le_bytes([low, high]) % HALF;
        Self { root, number: if matches!(class, Class::Bytes) { number + HALF } else { number } }
    }
}

impl Default for Words {
    fn default() -> Self {
        Self::new()
    }
}

impl Words {
    /// Words of which nobody has made use.
    #[must_use]
    pub const fn new() -> Self {
        const fn lines() -> [Line; WORDS] {
            [const { Line(AtomicU64::new(0)) }; WORDS]
        }
        Self {
            moves: Line(AtomicU64::new(0)),
            sequences: lines(),
            generations: lines(),
            gates: lines(),
            turns: lines(),
            posts: [const { Post { owner: AtomicU64::new(0), what: AtomicU64::new(0) } }; POSTS],
            numbers: Page(AtomicU64::new(0)),
        }
    }

    /// The next number for a process, from 1 to [`LARGEST_NUMBER`]. One that may be another's still
    /// comes round after four million: the caller makes sure that no living process has it.
    pub fn next_number(&self) -> Numbered {
        use core::sync::atomic::Ordering::Relaxed;
        let before = self.numbers.0.fetch_add(1, Relaxed);
        let rest = u32::try_from(before % u64::from(LARGEST_NUMBER)).unwrap_or(0);
        Numbered { number: rest + 1, is_new: before < u64::from(LARGEST_NUMBER) }
    }

    /// A process has this number from now on: what is left of one that had it before is nobody's.
    /// Nobody had a new one, and then a connection of a server need not read all posts.
    pub fn inherit(&self, numbered: Numbered) {
        if !numbered.is_new {
            crate::roster::dismiss_number(self, numbered.number);
            crate::gate::dismiss_number(self, numbered.number);
            crate::turn::dismiss_number(self, numbered.number);
        }
    }

    /// In words that are not shared, in a forked child: its parent's threads are not here.
    pub fn forget_all(&self) {
        use core::sync::atomic::Ordering::Relaxed;
        for line in self.sequences.iter().chain(&self.gates).chain(&self.turns) {
            line.0.store(0, Relaxed);
        }
        for line in &self.generations {
            line.0.store(line.0.load(Relaxed).next_multiple_of(2), Relaxed);
        }
        self.posts.iter().for_each(|post| post.owner.store(0, Relaxed));
    }

    /// True if nobody holds anything and nobody is at work.
    #[must_use]
    pub fn are_at_rest(&self) -> bool {
        use core::sync::atomic::Ordering::Relaxed;
        let posts = self.posts.iter().all(|post| post.owner.load(Relaxed) == 0);
        let sequences = self.sequences.iter().all(|line| crate::sequence::is_quiet(&line.0));
        let gates = self.gates.iter().all(|line| crate::gate::is_free(&line.0));
        let turns = self.turns.iter().all(|line| line.0.load(Relaxed) == 0);
        let sizes = self.generations.iter().all(|line| line.0.load(Relaxed).is_multiple_of(2));
        posts && sequences && gates && turns && sizes
    }
}

/// A number of a process, see [`Words::next_number`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Numbered {
    /// The number.
    pub number: u32,
    is_new: bool,
}

/// The word of this number among lines of one kind.
#[inline]
pub(crate) fn line(lines: &[Line; WORDS], number: u64) -> &AtomicU64 {
    let index = usize::try_from(number % WORDS as u64).unwrap_or(0);
    #[expect(clippy::indexing_slicing, reason = "the index is a remainder of the length")]
    &lines[index].0
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn a_number_that_comes_round_again_takes_nothing_of_its_last_process_along() {
        let words = Box::new(Words::new());
        let first = words.next_number();
        assert_eq!((first.number, first.is_new), (1, true));
        words.numbers.0.store(u64::from(LARGEST_NUMBER) - 1, Relaxed);
        let last = words.next_number();
        assert_eq!((last.number, last.is_new), (LARGEST_NUMBER, true));
        let again = words.next_number();
        assert_eq!((again.number, again.is_new), (1, false));

        let [dead, other] = [1, 2].map(|number| Actor::new(number, 0x1_0000).code());
        words.posts[7].owner.store(dead, Relaxed);
        words.posts[8].owner.store(other, Relaxed);
        // Gates that both had, in the middle of a change; turns, one of which is waited for.
        for (place, number) in [(7, 1), (8, 2)] {
            words.gates[place].0.store(number << 16, Relaxed);
            words.generations[place].0.store(3, Relaxed);
        }
        words.turns[7].0.store(dead | 1 << 63, Relaxed);
        words.turns[8].0.store(other, Relaxed);
        words.inherit(again);
        assert_eq!(words.posts[7].owner.load(Relaxed), 0);
        assert_eq!(words.posts[8].owner.load(Relaxed), other);
        let [gates, sizes, turns] = [&words.gates, &words.generations, &words.turns]
            .map(|lines| [7, 8].map(|place| lines[place].0.load(Relaxed)));
        assert!(crate::gate::is_free(&words.gates[7].0), "{gates:?}");
        assert_eq!((gates[1], sizes, turns), (2 << 16, [4, 3], [0, other]));
    }
}

//! Who is at work, and where: so that words which a killed process left behind are told from those
//! that somebody needs.
//!
//! A thread takes a post before it changes a counting word, and leaves it after it changed the word
//! back. Whoever waits for such a word looks through the posts and asks the kernel which processes
//! live; time proves nothing. A post is the one thing that is taken before all others, so nobody
//! waits for one while holding something.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::kernel::Kernel;
use crate::words::{Actor, POSTS, Post, Stripe, WORDS, Words};
use tidelock_cipher::Root;

const VALID: u64 = 1 << 63;
/// The thread shares the gate of its file.
const SHARES: u64 = 1 << 62;
const GATE_AT: u32 = 52;
const GATES: u64 = WORDS as u64 - 1;
const COUNT_AT: u32 = 44;
const COUNTS: u64 = 0xff;
/// The word of that gate counts the thread.
const INSIDE: u64 = 1 << 43;
const FIRST: u64 = INSIDE - 1;
/// As a count: more areas than can be said.
const ALL: u64 = COUNTS;

/// A thread that is at work; no more when dropped.
pub(crate) struct AtWork<'k, K: Kernel> {
    kernel: &'k K,
    root: Root,
    actor: Actor,
    post: Option<&'k Post>,
}

/// The 64 KiB areas of one file that are being written.
#[derive(Clone, Copy)]
pub(crate) struct Areas {
    pub(crate) stripe: Stripe,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

impl Areas {
    /// The sequence word of an area.
    #[inline]
    pub(crate) const fn word(stripe: Stripe, area: u64) -> u64 {
        (stripe.number as u64 + area.wrapping_mul(0x9d)) % WORDS as u64
    }
}

/// What there is in the way: posts of others, and of the asking thread itself (a signal handler
/// asks).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Found {
    pub(crate) others: bool,
    pub(crate) own: bool,
}

impl<'k, K: Kernel> AtWork<'k, K> {
    /// Takes a post. Waits only where 4096 threads are at work at once.
    #[inline]
    pub(crate) fn begin(kernel: &'k K, root: Root) -> Self {
        let actor = kernel.actor(root);
        let mut looks = 0;
        loop {
            if let Some(at_work) = Self::try_of(kernel, root, actor) {
                return at_work;
            }
            dismiss_the_dead(kernel, root);
            kernel.pause(looks);
            looks += 1;
        }
    }

    /// Takes one for this actor of the process, if there is one.
    #[inline]
    pub(crate) fn try_of(kernel: &'k K, root: Root, actor: Actor) -> Option<Self> {
        let words = kernel.words(root);
        let start = (actor.code().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % POSTS;
        let (before, behind) = words.posts.split_at_checked(start).unwrap_or((&[], &[]));
        let post = behind.iter().chain(before).find(|post| {
            post.owner.load(Relaxed) == 0
                && post.owner.compare_exchange(0, actor.code(), AcqRel, Relaxed).is_ok()
        })?;
        // What is left of a process that was killed.
        post.what.store(0, Release);
        Some(Self { kernel, root, actor, post: Some(post) })
    }

    /// Says that the thread is about to share the gate of `stripe`.
    #[inline]
    pub(crate) fn shares(&self, stripe: Stripe) {
        self.say(|_| VALID | SHARES | gate(stripe));
    }

    /// Says that it is about to write these areas; what it shares stays.
    #[inline]
    pub(crate) fn writes(&self, areas: Areas) {
        let count = areas.last - areas.first + 1;
        let range = if count >= ALL || areas.first > FIRST {
            ALL << COUNT_AT
        } else {
            count << COUNT_AT | areas.first
        };
        self.say(|before| VALID | before & (SHARES | INSIDE) | gate(areas.stripe) | range);
    }

    /// Says that it writes no area any more.
    #[inline]
    pub(crate) fn wrote(&self) {
        self.say(|before| before & !(COUNTS << COUNT_AT | FIRST));
    }

    /// Says that the word of the gate that it shares counts it from now on.
    #[inline]
    pub(crate) fn is_counted(&self) {
        self.say(|before| before | INSIDE);
    }

    /// Says that it is about to be counted no longer.
    #[inline]
    pub(crate) fn ceases_to_count(&self) {
        self.say(|before| before & !INSIDE);
    }

    #[inline]
    fn say(&self, what: impl FnOnce(u64) -> u64) {
        if let Some(post) = self.post {
            post.what.store(what(post.what.load(Relaxed)), Release);
        }
    }

    #[inline]
    pub(crate) const fn kernel(&self) -> &'k K {
        self.kernel
    }

    /// True in the process that took the post. A child that was forked from a signal handler has a
    /// copy of what belongs to its parent.
    #[inline]
    pub(crate) fn is_ours(&self) -> bool {
        self.kernel.actor(self.root).number() == self.actor.number()
    }
}

impl<K: Kernel> AtWork<'_, K> {
    /// Leaves the post, before the drop would: once.
    pub(crate) fn end(&mut self) {
        if let Some(post) = self.post.take().filter(|_| self.is_ours()) {
            post.what.store(0, Release);
            post.owner.store(0, Release);
        }
    }
}

impl<K: Kernel> Drop for AtWork<'_, K> {
    #[inline]
    fn drop(&mut self) {
        self.end();
    }
}

const fn gate(stripe: Stripe) -> u64 {
    (stripe.number as u64 & GATES) << GATE_AT
}

/// Who shares the gate of a stripe.
#[cold]
pub(crate) fn sharers<K: Kernel>(kernel: &K, stripe: Stripe) -> Found {
    find(kernel, stripe.root, |what| {
        what & SHARES != 0 && what >> GATE_AT & GATES == u64::from(stripe.number)
    })
}

/// True if the word of this gate counts the asking thread: nobody has the gate alone, and nobody
/// will before the thread has left.
#[cold]
pub(crate) fn is_inside<K: Kernel>(kernel: &K, stripe: Stripe) -> bool {
    let inside = SHARES | INSIDE;
    let found = find(kernel, stripe.root, |what| {
        what & inside == inside && what >> GATE_AT & GATES == u64::from(stripe.number)
    });
    found.own
}

/// Who writes an area with the sequence word of this number.
#[cold]
pub(crate) fn writers<K: Kernel>(kernel: &K, root: Root, word: u64) -> Found {
    find(kernel, root, |what| {
        let number = u16::try_from(what >> GATE_AT & GATES).unwrap_or(0);
        let (count, first) = (what >> COUNT_AT & COUNTS, what & FIRST);
        let stripe = Stripe { root, number };
        count == ALL || (first..first + count).any(|area| Areas::word(stripe, area) == word)
    })
}

fn find<K: Kernel>(kernel: &K, root: Root, is_wanted: impl Fn(u64) -> bool) -> Found {
    let words: &Words = kernel.words(root);
    let me = kernel.actor(root);
    let mut found = Found::default();
    let mut living = None;
    for post in &words.posts {
        let owner = post.owner.load(Acquire);
        let what = post.what.load(Acquire);
        if owner == 0 || what & VALID == 0 || !is_wanted(what) {
            continue;
        }
        let owner = Actor::from_code(owner);
        if owner == me {
            found.own = true;
        } else if living == Some(owner.number()) || kernel.lives(root, owner.number()) {
            living = Some(owner.number());
            found.others = true;
        }
    }
    found
}

/// Takes the posts of processes that were killed. What they counted is set right by whoever meets
/// it.
#[cold]
pub(crate) fn dismiss_the_dead<K: Kernel>(kernel: &K, root: Root) {
    dismiss(kernel.words(root), |number| !kernel.lives(root, number));
}

/// Takes the posts that a process left whose number is given to another now.
pub(crate) fn dismiss_number(words: &Words, number: u32) {
    dismiss(words, |owner| owner == number);
}

fn dismiss(words: &Words, is_gone: impl Fn(u32) -> bool) {
    for post in &words.posts {
        let owner = post.owner.load(Acquire);
        if owner != 0 && is_gone(Actor::from_code(owner).number()) {
            // Another may have taken it away already, and a third may have the post now.
            let _ = post.owner.compare_exchange(owner, 0, AcqRel, Relaxed);
        }
    }
}

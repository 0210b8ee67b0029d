use core::mem::ManuallyDrop;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use tidelock_cipher::{Sealed, SealedHeader};
use tidelock_format::{Class, DiskOffset, DiskSize};

use tidelock_cipher::Root;

use super::*;
use crate::kernel::{Fd, FileStat, Synced};
use crate::roster::Areas;
use crate::sequence::{Writing, consistent};
use crate::turn::Turn;
use crate::words::{Actor, Words};

/// Words in this process's memory; threads say which process they are.
struct Memory {
    words: Box<Words>,
    killed: [AtomicBool; 8],
}

/// One thread of one process.
struct Thread<'s> {
    of: &'s Memory,
    actor: Actor,
}

impl Memory {
    fn new() -> Self {
        Self { words: Box::new(Words::new()), killed: Default::default() }
    }

    fn thread(&self, process: u32, thread: u64) -> Thread<'_> {
        Thread { of: self, actor: Actor::new(process, thread * 64) }
    }

    fn kill(&self, process: usize) {
        self.killed[process].store(true, SeqCst);
    }
}

impl Kernel for Thread<'_> {
    type Scratch = Vec<u8>;

    fn pread(&self, _: Fd, _: &mut [u8], _: DiskOffset) -> Result<usize, Errno> {
        unreachable!()
    }
    fn pwrite(&self, _: Fd, _: Sealed<'_>, _: DiskOffset) -> Result<usize, Errno> {
        unreachable!()
    }
    fn pwrite_first(
        &self,
        _: Fd,
        _: &SealedHeader,
        _: DiskOffset,
        _: Sealed<'_>,
    ) -> Result<usize, Errno> {
        unreachable!()
    }
    fn touch(&self, _: Fd) -> Result<(), Errno> {
        unreachable!()
    }
    fn set_size(&self, _: Fd, _: DiskSize) -> Result<(), Errno> {
        unreachable!()
    }
    fn stat(&self, _: Fd) -> Result<FileStat, Errno> {
        unreachable!()
    }
    fn allocate(&self, _: Fd, _: i32, _: DiskOffset, _: u64) -> Result<(), Errno> {
        unreachable!()
    }
    fn position(&self, _: Fd) -> Result<u64, Errno> {
        unreachable!()
    }
    fn set_position(&self, _: Fd, _: u64) -> Result<(), Errno> {
        unreachable!()
    }
    fn seek_back(&self, _: Fd, _: u64) -> Result<u64, Errno> {
        unreachable!()
    }
    fn seek(&self, _: Fd, _: DiskOffset, _: i32) -> Result<DiskOffset, Errno> {
        unreachable!()
    }
    fn synchronise(&self, _: Fd, _: Synced) -> Result<(), Errno> {
        unreachable!()
    }
    fn write_out(&self, _: Fd, _: DiskOffset, _: u64) -> Result<(), Errno> {
        unreachable!()
    }
    fn scratch(&self, len: usize) -> Result<Vec<u8>, Errno> {
        Ok(vec![0; len])
    }
    fn words(&self, _: Root) -> &Words {
        &self.of.words
    }
    fn actor(&self, _: Root) -> Actor {
        self.actor
    }
    fn lives(&self, _: Root, number: u32) -> bool {
        !self.of.killed[number as usize].load(SeqCst)
    }
    fn sleep(&self, word: &AtomicU64, seen: u64) {
        for _ in 0..20 {
            if word.load(SeqCst) != seen {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
    fn wake(&self, _: &AtomicU64) {}
    fn pause(&self, _: u32) {
        thread::yield_now();
    }
    fn block_signals(&self) -> u64 {
        0
    }
    fn restore_signals(&self, _: u64) {}
}

fn stripe() -> Stripe {
    Stripe::of(Root::FIRST, Class::Paged, 1, 2)
}

#[test]
fn who_has_the_gate_alone_meets_nobody() {
    let shared = Memory::new();
    let (alone, sharing) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        for number in 1..7u32 {
            let (shared, alone, sharing) = (&shared, &alone, &sharing);
            scope.spawn(move || {
                let kernel = shared.thread(number, 1);
                for round in 0..2000 {
                    if (round + number).is_multiple_of(3) {
                        let held = Alone::take(&kernel, stripe()).expect("it is had");
                        held.begin_change();
                        assert_eq!(alone.fetch_add(1, SeqCst), 0);
                        assert_eq!(sharing.load(SeqCst), 0);
                        alone.fetch_sub(1, SeqCst);
                    } else if let Some(_held) = Shared::try_take(&kernel, stripe()) {
                        sharing.fetch_add(1, SeqCst);
                        assert_eq!(alone.load(SeqCst), 0);
                        sharing.fetch_sub(1, SeqCst);
                    }
                }
            });
        }
    });
    assert!(shared.words.are_at_rest());
}

#[test]
fn what_a_killed_process_held_is_taken_over() {
    let shared = Memory::new();
    let (dead, heir) = (shared.thread(1, 1), shared.thread(2, 1));
    let held = Alone::take(&dead, stripe()).expect("it is had");
    held.begin_change();
    core::mem::forget(held);
    assert!(Shared::try_take(&heir, stripe()).is_none());
    shared.kill(1);
    drop(Alone::take(&heir, stripe()).expect("it is taken over"));
    let sizes = generation(&heir, stripe()).load(SeqCst);
    assert!(sizes.is_multiple_of(2) && sizes > 0, "the change is ended: {sizes}");
    assert!(is_free(word(&heir, stripe())));
}

#[test]
fn a_killed_sharer_keeps_nobody_out_and_a_living_one_does() {
    let shared = Memory::new();
    let (dead, living, wants) = (shared.thread(1, 1), shared.thread(2, 1), shared.thread(3, 1));
    core::mem::forget(Shared::try_take(&dead, stripe()).expect("shared"));
    shared.kill(1);
    let held = Shared::try_take(&living, stripe()).expect("shared too");
    let began = AtomicBool::new(false);
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            began.store(true, SeqCst);
            drop(Alone::take(&wants, stripe()).expect("it is had"));
        });
        while !began.load(SeqCst) {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(60));
        assert!(!waits.is_finished(), "the living one is waited for");
        drop(held);
    });
    assert!(is_free(word(&wants, stripe())));
}

#[test]
fn a_handler_above_a_shared_gate_is_refused_what_it_would_wait_for() {
    let shared = Memory::new();
    let (thread, other) = (shared.thread(1, 1), shared.thread(2, 1));
    let interrupted = Shared::try_take(&thread, stripe()).expect("shared");
    assert_eq!(Alone::take(&thread, stripe()).err(), Some(Errno::DEADLK));
    drop(Shared::try_take(&thread, stripe()).expect("whole units go beside each other"));
    thread::scope(|scope| {
        let waits = scope.spawn(|| drop(Alone::take(&other, stripe()).expect("it is had")));
        while is_unwanted(&other) {
            thread::yield_now();
        }
        // Also while another waits for this thread.
        drop(Shared::try_take(&thread, stripe()).expect("it does not wait for who waits for it"));
        assert!(!waits.is_finished());
        drop(interrupted);
    });
    assert!(shared.words.are_at_rest());
}

#[test]
fn a_handler_passes_no_gate_that_its_thread_is_just_leaving() {
    let shared = Memory::new();
    let (thread, other) = (shared.thread(1, 1), shared.thread(2, 1));
    let leaving = ManuallyDrop::new(Shared::try_take(&thread, stripe()).expect("shared"));
    // As its drop begins: another can have the gate alone from here on.
    leaving.at_work.ceases_to_count();
    word(&thread, stripe()).fetch_add(ONE_LEFT - 1, SeqCst);
    let alone = Alone::take(&other, stripe()).expect("it is had");
    assert!(Shared::try_take(&thread, stripe()).is_none(), "beside who has it alone");
    drop(alone);
    drop(Shared::try_take(&thread, stripe()).expect("nobody has it"));
}

#[test]
fn who_asks_for_sizes_looks_again_once_a_write_has_stopped_within_a_unit() {
    let shared = Memory::new();
    let thread = shared.thread(1, 1);
    let held = Shared::try_take(&thread, stripe()).expect("shared");
    let before = generation(&thread, stripe()).load(SeqCst);
    held.move_sizes();
    let after = generation(&thread, stripe()).load(SeqCst);
    assert!(after > before && after.is_multiple_of(2), "{before} and {after}");
}

fn is_unwanted(kernel: &Thread<'_>) -> bool {
    word(kernel, stripe()).load(SeqCst) & HOLDER == 0
}

#[test]
fn a_reader_waits_for_a_writer_that_stands_still_and_not_for_a_killed_one() {
    let shared = Memory::new();
    let (writer, reader) = (shared.thread(1, 1), shared.thread(2, 1));
    let areas = Areas::new(stripe(), 0, 4096);
    // Killed in the middle: neither is given back.
    let held = ManuallyDrop::new(Shared::try_take(&writer, stripe()).expect("shared"));
    let writing = Writing::begin(&held.at_work, areas);
    thread::scope(|scope| {
        let reads = scope.spawn(|| consistent(&reader, areas, || Ok(7)).map(|read| read.count));
        thread::sleep(Duration::from_millis(300));
        assert!(!reads.is_finished(), "time proves nothing");
        core::mem::forget(writing);
        shared.kill(1);
        assert_eq!(reads.join().expect("it ends"), Ok(7));
    });
    // The next reader does not meet it any more.
    let looks = AtomicU32::new(0);
    let read = || {
        looks.fetch_add(1, SeqCst);
        Ok(8)
    };
    assert_eq!(consistent(&reader, areas, read).map(|read| read.count), Ok(8));
    assert_eq!(looks.load(SeqCst), 1);
}

#[test]
fn one_has_the_offset_at_a_time_and_a_handler_within_its_own_thread() {
    let shared = Memory::new();
    let inside = AtomicU32::new(0);
    thread::scope(|scope| {
        for number in 1..5 {
            let (shared, inside) = (&shared, &inside);
            scope.spawn(move || {
                let kernel = shared.thread(number, 1);
                for _ in 0..2000 {
                    let turn = Turn::brief(&kernel, stripe());
                    assert_eq!(inside.fetch_add(1, SeqCst), 0);
                    drop(Turn::take(&kernel, stripe()));
                    inside.fetch_sub(1, SeqCst);
                    drop(turn);
                    let _turn = Turn::take(&kernel, stripe());
                    assert_eq!(inside.fetch_add(1, SeqCst), 0);
                    inside.fetch_sub(1, SeqCst);
                }
            });
        }
    });
    let dead = shared.thread(6, 1);
    core::mem::forget(Turn::take(&dead, stripe()));
    shared.kill(6);
    drop(Turn::take(&shared.thread(7, 1), stripe()));
    assert!(shared.words.are_at_rest());
}

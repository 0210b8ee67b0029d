//! Asynchronous I/O by io_submit, carried out sealed.
//!
//! ```text
//!   io_submit     a request on a sealed file becomes one of ours: sealed bytes, real descriptor
//!   the kernel    reads and writes, and puts events into its ring
//!   io_getevents  opens what was read; the program's request takes the place of ours in the event
//! ```
//!
//! The kernel is handed whole units with direct access (`engine::request`). All else is carried out
//! on the spot, as without direct access the kernel would do too. An empty read of the same file
//! takes its place in the queue, so that its event comes as all others do, by eventfd as well.
//!
//! UNSAFETY: control blocks, buffers and events are the program's, by the contract of the calls.
#![expect(unsafe_code, reason = "the memory that requests of the program name")]

mod context;
mod held_back;
mod maps;
mod request;
mod ring;
mod submit;

use core::ffi::c_void;
use core::sync::atomic::{AtomicI64, Ordering::Acquire};

use tidelock_engine::{Errno, Fd, Kernel as _, Synced};

use context::Context;
pub(crate) use context::{after_fork_in_child, look, start};
pub(crate) use request::are_under_way;
use request::{Request, Work};
pub(crate) use ring::{Control, Event};
pub(crate) use submit::submit;

use crate::hooks::deep;
use crate::process::{process, starting};
use crate::touch::{self, Want};
use crate::{Linux, raw, sys};

const RWF_SYNC: i32 = 0b100;
const RWF_DSYNC: i32 = 0b010;

/// A fork is about to happen. The child may read what the kernel writes for us, and its parent
/// may wait for it.
pub(crate) fn before_fork() {
    for looks in (0..LOOKS).take_while(|_| are_under_way()) {
        kernel().pause(looks);
    }
}

/// A tenth of a second: a disk takes less.
const LOOKS: u32 = 100;

fn kernel() -> &'static Linux {
    starting().system()
}

/// io_setup: a new context, whose name the kernel puts into `name`.
///
/// # Safety
/// The contract of io_setup.
pub(crate) unsafe fn setup(requests: i64, name: *mut u64) -> i64 {
    // SAFETY: the program's own arguments.
    let done = unsafe { raw::call(sys::nr::IO_SETUP, [requests, raw::Word::word(name)]) };
    if done != 0 || process().is_none() {
        return done;
    }
    // SAFETY: the kernel has just written there.
    let made = unsafe { *name };
    // SAFETY: the program does not know it yet.
    let added = if unsafe { ring::claim(made) } {
        context::add(made, usize::try_from(requests).unwrap_or(0))
    } else {
        Err(Errno::NOSYS)
    };
    let Err(why) = added else { return 0 };
    // SAFETY: the context that nobody knows yet.
    unsafe { raw::call(sys::nr::IO_DESTROY, [made.cast_signed()]) };
    // SAFETY: as above.
    unsafe { *name = 0 };
    why.negative()
}

/// io_destroy.
pub(crate) fn destroy(name: u64) -> i64 {
    // SAFETY: takes a number; what it frees is the kernel's.
    let run = || unsafe { raw::call(sys::nr::IO_DESTROY, [name.cast_signed()]) };
    match context::find(name) {
        Some(context) => {
            let done = context.destroy(name, || {
                let mask = sys::block_signals();
                if submit::send(&context, name).is_err() {
                    write_held_back(&context);
                }
                sys::restore_signals(mask);
                run()
            });
            if done == 0 {
                end(&context);
            }
            done
        }
        None if context::is_going(name) => Errno::INVAL.negative(),
        None => run(),
    }
}

/// Ends what is left of a context that the kernel has destroyed.
fn end(context: &Context) {
    // Who has just fetched events still works on memory of the program. Not for ever: a handler may
    // be above it.
    for looks in (0..LOOKS).take_while(|_| context.has_others()) {
        kernel().pause(looks);
    }
    // What another thread has put back meanwhile, too.
    let mask = sys::block_signals();
    write_held_back(context);
    sys::restore_signals(mask);
    // SAFETY: the contract of io_submit.
    unsafe { fetch_written(context, usize::MAX, |_, _| ()) };
}

/// io_getevents or io_pgetevents, by its number and with its words: how many events there are.
///
/// # Safety
/// The contract of the call.
pub(crate) unsafe fn events<const N: usize>(number: i64, words: [i64; N]) -> i64 {
    // SAFETY: the program's own arguments.
    let run = || unsafe { raw::call(number, words) };
    let [name, least, most, into, ..] = words.as_slice() else { return Errno::INVAL.negative() };
    let name = name.cast_unsigned();
    if process().is_none() {
        return run();
    }
    let Some(context) = context::find(name) else {
        // Its events are still those of our requests.
        return if context::is_going(name) { Errno::INVAL.negative() } else { run() };
    };
    let into = memory(into.cast_unsigned()).cast::<Event>();
    // First: what is held back until then is handed over here, and nothing is for the sake of a
    // thread that waits for one event once another waits for several.
    let mut waits = context.held_back().waits(*least);
    while let Err(why) = submit::hand_over(&context)
        && why != Errno::AGAIN
        && let Ok(most @ 1..) = usize::try_from(*most)
    {
        context.held_back().came_back(waits, 0);
        let room = most.saturating_mul(size_of::<Event>());
        if touch::reach(into.cast(), room, Want::Write) < room {
            return -i64::from(libc::EFAULT);
        }
        // SAFETY: there is room.
        let tell = |count, event| unsafe { into.wrapping_add(count).write_unaligned(event) };
        // SAFETY: the contract of io_submit.
        let count = unsafe { fetch_written(&context, most, tell) };
        if count > 0 {
            submit::insist(&context, || submit::hand_over(&context));
            return count as i64;
        }
        // Another thread has them.
        waits = context.held_back().waits(*least);
    }
    let count = run();
    let places = (0..usize::try_from(count).unwrap_or(0)).map(|index| into.wrapping_add(index));
    // SAFETY: the kernel has just written so many events there.
    let events = places.map(|place| (place, unsafe { place.read_unaligned() }));
    let ours = events.filter_map(|(place, event)| Some((place, event, context.of(event.control)?)));
    context.held_back().came_back(waits, ours.clone().count());
    // What the kernel does not take stays held back.
    submit::insist(&context, || submit::hand_over(&context));
    // To finish a read may mean to wait for writes, and nobody else has these events. A handler
    // would wait for who lets go below it.
    if are_under_way() {
        let mask = sys::block_signals();
        ours.clone().for_each(|(_, event, request)| request.let_go(event.result));
        sys::restore_signals(mask);
    }
    for (place, event, request) in ours {
        // SAFETY: the contract of io_submit: its memory is good until now.
        let event = unsafe { ended(request, event) };
        // SAFETY: where the kernel has written.
        unsafe { place.write_unaligned(event) };
        context.give_back(request);
    }
    count
}

/// Writes what is held back by calls, as the kernel would; with signals blocked. The events wait,
/// held back.
fn write_held_back(context: &Context) {
    for request in context.take_held_back() {
        request.write_now();
        context.put_back(request);
    }
}

/// Fetches the events of what was written by calls, so many at the most; how many there were.
/// `tell` gets the number and the event of each.
///
/// # Safety
/// The contract of io_submit: the memory of requests is good until their events are fetched.
unsafe fn fetch_written(
    context: &Context,
    most: usize,
    mut tell: impl FnMut(usize, Event),
) -> usize {
    // A handler would wait for what is in our hands.
    let mask = sys::block_signals();
    let mut room = most;
    let is_wanted = |request: &Request| {
        let fits = request.settled().is_some() && room > 0;
        room -= usize::from(fits);
        fits
    };
    let mut count = 0;
    for request in context.take_wanted(is_wanted) {
        context.held_back().unsend(1);
        let result = request.settled().unwrap_or_default();
        request.let_go(result);
        let event = Event { data: 0, control: 0, result, second: 0 };
        // SAFETY: the caller's promise.
        tell(count, unsafe { ended(request, event) });
        context.give_back(request);
        count += 1;
    }
    sys::restore_signals(mask);
    count
}

/// The event of a request of ours as the program gets it.
///
/// # Safety
/// As [`finish`].
unsafe fn ended(request: &Request, event: Event) -> Event {
    let (control, data) = request.theirs();
    // SAFETY: the caller's promise.
    Event { data, control, result: unsafe { finish(request, event.result) }, ..event }
}

/// io_cancel of a request.
///
/// # Safety
/// The contract of io_cancel.
pub(crate) unsafe fn cancel(name: u64, control: *const Control, into: *mut Event) -> i64 {
    let theirs = raw::Word::word(control).cast_unsigned();
    let ours = context::find(name).and_then(|context| {
        submit::insist(&context, || submit::hand_over(&context));
        context.standing_for(theirs)
    });
    let words = [name.cast_signed(), ours.unwrap_or(theirs).cast_signed(), raw::Word::word(into)];
    // SAFETY: the program's own arguments, or a request that the kernel has.
    unsafe { raw::call(sys::nr::IO_CANCEL, words) }
}

/// What RWF_DSYNC and RWF_SYNC promise.
fn synchronise(file: Fd, flags: i32) -> Result<(), Errno> {
    if flags & (RWF_SYNC | RWF_DSYNC) == 0 {
        return Ok(());
    }
    let synced = if flags & RWF_SYNC == 0 { Synced::Data } else { Synced::All };
    kernel().synchronise(file, synced)
}

/// The result of a request of ours that the kernel has ended with `result`.
///
/// # Safety
/// The memory that it named is good.
unsafe fn finish(request: &Request, result: i64) -> i64 {
    let count = usize::try_from(result);
    let again = result == Errno::INVAL.negative();
    let done = match request.work() {
        Work::Straight { .. } => return result,
        Work::OnTheSpot { result, .. } => return settled(result),
        // Cut short, or this file system wants other places: all of it, by the other way.
        Work::Write { file, from, len, at } if again || count.is_ok_and(|count| count < *len) => {
            // SAFETY: the caller's promise: `prepare` has seen that it is there.
            let from = unsafe { core::slice::from_raw_parts(*from, *len) };
            let there = count.unwrap_or(0);
            let written = deep(false, || file.write_again(from, *at, there));
            written.and_then(|count| synchronise(file.hidden(), request.rw_flags()).map(|()| count))
        }
        Work::Read { file, into, len, at, request } if again || count.is_ok() => {
            // SAFETY: as above.
            let into = unsafe { core::slice::from_raw_parts_mut(*into, *len) };
            match count.ok().and_then(|count| request.open(file, into, count)) {
                Some(count) => Ok(count),
                None => deep(false, || file.pread(into, *at)),
            }
        }
        Work::Write { .. } | Work::Read { .. } => return result,
    };
    done.map_or_else(Errno::negative, |count| count as i64)
}

/// The result of what is carried out on the spot, perhaps at this moment.
fn settled(result: &AtomicI64) -> i64 {
    let mut looks = 0;
    loop {
        match result.load(Acquire) {
            UNSETTLED => kernel().pause(looks),
            result => return result,
        }
        looks += 1;
    }
}

/// In the place of a result.
const UNSETTLED: i64 = i64::MIN;

/// Memory of the program by its address.
fn memory(address: u64) -> *mut c_void {
    core::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0))
}

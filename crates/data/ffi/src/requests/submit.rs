//! io_submit: what becomes of each request, and what goes to the kernel.
//!
//! UNSAFETY: control blocks and buffers are the program's, by the contract of io_submit.
#![expect(unsafe_code, reason = "the memory that requests of the program name")]

use core::sync::atomic::{AtomicI64, Ordering::Release};

use libc::iovec;
use tidelock_engine::{Descriptor, Errno};

use super::context::{self, Context};
use super::held_back::Push;
use super::maps::SPARE;
use super::request::{self, Request, Work};
use super::ring::{self, Control};
use super::{UNSETTLED, memory, synchronise};
use crate::hooks::{self, File, buffer, buffer_mut, deep, place, vectors};
use crate::process::process;
use crate::touch::{self, Want};
use crate::{raw, sys};

/// The longest write that the kernel is handed; a longer one is carried out on the spot.
const LONGEST: usize = SPARE;
/// How many requests of one call are looked at; the program hands in the rest again.
const MOST: usize = 1 << 16;
/// How many requests go to the kernel in one call.
const BATCH: usize = 32;
/// How often is tried again what the kernel has no room for.
const TRIES: usize = 1000;
/// What changes nothing of a request but how it is carried out: RWF_HIPRI, RWF_DSYNC, RWF_SYNC.
const RW_FLAGS: i32 = 0b111;

/// io_submit: how many requests were taken, or a negative error of the first.
///
/// # Safety
/// The contract of io_submit: control blocks, and the memory that they name until their events are
/// fetched.
pub(crate) unsafe fn submit(name: u64, count: i64, list: *const *const Control) -> i64 {
    let words = [name.cast_signed(), count, raw::Word::word(list)];
    let len = usize::try_from(count).unwrap_or(0).min(MOST);
    let room = len * size_of::<*const Control>();
    let there = || touch::reach(list.cast(), room, Want::Read) >= room;
    if len > 0 && process().is_some() && list.is_aligned() && there() {
        // SAFETY: the memory is there.
        let list = unsafe { core::slice::from_raw_parts(list, len) };
        // SAFETY: the contract of io_submit.
        if list.iter().any(|control| unsafe { is_sealed(*control) }) {
            return match context::find(name) {
                // SAFETY: the contract of io_submit.
                Some(context) => unsafe { Batch::of(&context).submit(list) },
                // Made by a way that we do not see.
                None => Errno::INVAL.negative(),
            };
        }
    }
    // SAFETY: the program's own arguments.
    unsafe { raw::call(sys::nr::IO_SUBMIT, words) }
}

/// # Safety
/// As `submit`, of one control block.
unsafe fn is_sealed(control: *const Control) -> bool {
    // SAFETY: the caller's promise.
    unsafe { read(control) }.is_some_and(|control| hooks::is_ours(control.file))
}

/// A control block, if it is there.
///
/// # Safety
/// As `submit`, of one control block.
unsafe fn read(control: *const Control) -> Option<Control> {
    let len = size_of::<Control>();
    let there = touch::reach(control.cast(), len, Want::Read) >= len;
    // SAFETY: the memory is there; the kernel does not ask for its alignment either.
    there.then(|| unsafe { control.read_unaligned() })
}

/// Hands what a context holds back to the kernel.
///
/// # Errors
/// [`Errno::AGAIN`] if it takes no more now. Another error if it will not have some of them, which
/// are then written. They stay held back, until there is room or somebody fetches their events.
pub(super) fn hand_over(context: &Context) -> Result<(), Errno> {
    if !context.held_back().any() {
        return Ok(());
    }
    // Each has a gate: a handler would wait for what the kernel does not have yet.
    let mask = sys::block_signals();
    let done = context.while_it_stays(|name| send(context, name));
    sys::restore_signals(mask);
    done.unwrap_or(Ok(()))
}

/// Tries again what leaves something held back that nobody would hand over: for who does not fetch
/// events afterwards.
pub(super) fn insist(context: &Context, hand_over: impl Fn() -> Result<(), Errno>) {
    // Whoever fetches makes room at once, unless this is a handler that it waits for.
    for _ in 0..TRIES {
        if hand_over() != Err(Errno::AGAIN) || !context.held_back().is_stranded() {
            return;
        }
        rustix::thread::sched_yield();
    }
}

/// The same as [`hand_over`], of a context that stays under this name, with signals blocked.
///
/// # Errors
/// As [`hand_over`].
pub(super) fn send(context: &Context, name: u64) -> Result<(), Errno> {
    let mut held_back = context.take_held_back();
    let mut refused = None;
    let mut put_back = |request: &Request, why| {
        if why != Errno::AGAIN {
            request.write_now();
            context.held_back().never_again();
        }
        context.put_back(request);
        refused = refused.filter(|before| *before != Errno::AGAIN).or(Some(why));
    };
    loop {
        let mut list = [0; BATCH];
        let mut requests = [None; BATCH];
        let mut first = BATCH;
        while first > 0
            && let Some(request) = held_back.next()
        {
            if request.settled().is_some() {
                put_back(request, Errno::INVAL);
                continue;
            }
            first -= 1;
            list[first] = request.address();
            requests[first] = Some(request);
        }
        if first == BATCH {
            return refused.map_or(Ok(()), Err);
        }
        // SAFETY: control blocks of requests of ours.
        let (taken, why) = unsafe { pass(name, &list[first..]) };
        requests[first..].iter().skip(taken).flatten().for_each(|request| put_back(request, why));
    }
}

/// How many of these requests the kernel takes, and why no more. What it refuses together it is
/// given one by one, as the program submitted them.
///
/// # Safety
/// The contract of io_submit.
unsafe fn pass(name: u64, list: &[u64]) -> (usize, Errno) {
    // SAFETY: the caller's promise.
    match sys::check(unsafe { call(name, list) }) {
        Ok(taken) => (usize::try_from(taken).unwrap_or(0), Errno::AGAIN),
        Err(why) if why == Errno::AGAIN || list.len() == 1 => (0, why),
        Err(_) => {
            for (taken, one) in list.iter().enumerate() {
                // SAFETY: the caller's promise.
                if let Err(why) = sys::check(unsafe { call(name, core::slice::from_ref(one)) }) {
                    return (taken, why);
                }
            }
            (list.len(), Errno::AGAIN)
        }
    }
}

/// io_submit by the kernel.
///
/// # Safety
/// The contract of io_submit.
unsafe fn call(name: u64, list: &[u64]) -> i64 {
    let words = [name.cast_signed(), list.len() as i64, raw::Word::word(list.as_ptr())];
    // SAFETY: the caller's promise.
    unsafe { raw::call(sys::nr::IO_SUBMIT, words) }
}

/// What becomes of a request.
enum Fate<'c> {
    /// As it is: not on a sealed file, or the kernel knows better what is wrong with it.
    Straight,
    /// One of ours is handed to the kernel in its place.
    Handed(&'c Request, u64),
    /// It has to be carried out on the spot.
    OnTheSpot(Control, File),
    Refused(Errno),
}

/// Requests on their way to the kernel, in their order.
struct Batch<'c> {
    context: &'c Context,
    /// The addresses for the kernel.
    list: [u64; BATCH],
    ours: [Option<&'c Request>; BATCH],
    len: usize,
    /// How many the kernel has taken before.
    taken: i64,
    /// Signals wait while one of them has a gate: a handler would wait for what the kernel does not
    /// have yet.
    mask: Option<u64>,
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.open_signals();
    }
}

impl<'c> Batch<'c> {
    fn open_signals(&mut self) {
        if let Some(mask) = self.mask.take() {
            sys::restore_signals(mask);
        }
    }

    fn of(context: &'c Context) -> Self {
        Self { context, list: [0; BATCH], ours: [None; BATCH], len: 0, taken: 0, mask: None }
    }

    /// # Safety
    /// As [`submit`], with a list that is there.
    unsafe fn submit(mut self, list: &[*const Control]) -> i64 {
        for &control in list {
            // SAFETY: the caller's promise.
            let (address, ours) = match unsafe { self.prepare(control) } {
                Fate::Handed(request, address) => (address, Some(request)),
                Fate::Straight => (raw::Word::word(control).cast_unsigned(), None),
                Fate::OnTheSpot(copy, file) => {
                    // SAFETY: the caller's promise.
                    match unsafe { self.carry_out(control, copy, file) } {
                        Ok(()) => continue,
                        Err(end) => return end,
                    }
                }
                Fate::Refused(why) => return self.end_with(why),
            };
            self.list[self.len] = address;
            self.ours[self.len] = ours;
            self.len += 1;
            if let ([_], Some(request)) = (list, ours)
                && self.holds_back(request)
            {
                return 1;
            }
            if self.len == BATCH
                && let Err(end) = self.flush()
            {
                return end;
            }
        }
        match self.flush() {
            Ok(()) => self.taken,
            Err(end) => end,
        }
    }

    /// True if the only request of the list waits for the next ones.
    fn holds_back(&mut self, request: &Request) -> bool {
        if !request.may_be_held_back() {
            return false;
        }
        let pushed = self.context.hold_back(request);
        if pushed == Push::Refused {
            return false;
        }
        self.len = 0;
        if pushed == Push::Last {
            insist(self.context, || hand_over(self.context));
        }
        self.open_signals();
        true
    }

    /// What io_submit answers where the next request is refused.
    fn end_with(&mut self, why: Errno) -> i64 {
        match self.flush() {
            Ok(()) if self.taken == 0 => why.negative(),
            Ok(()) => self.taken,
            Err(end) => end,
        }
    }

    /// Hands them to the kernel; what io_submit answers, if it takes no more.
    fn flush(&mut self) -> Result<(), i64> {
        let len = core::mem::take(&mut self.len);
        let done = self.hand_over(len);
        self.open_signals();
        done
    }

    fn hand_over(&mut self, len: usize) -> Result<(), i64> {
        if len == 0 {
            return Ok(());
        }
        insist(self.context, || hand_over(self.context));
        let ours = self.ours.iter().take(len);
        self.context.held_back().send(ours.clone().flatten().count());
        // SAFETY: control blocks of the program, by its promise, and of requests of ours.
        let done = unsafe { call(self.context.name(), &self.list[..len]) };
        let taken = usize::try_from(done).unwrap_or(0);
        for request in ours.skip(taken).flatten() {
            request.let_go(0);
            self.context.held_back().unsend(1);
            self.context.give_back(request);
        }
        if taken < len {
            // Others may have been held back for the sake of what has just been refused.
            insist(self.context, || hand_over(self.context));
        }
        self.taken += taken as i64;
        if taken == len { Ok(()) } else { Err(if self.taken > 0 { self.taken } else { done }) }
    }

    /// # Safety
    /// As [`submit`], of one control block.
    unsafe fn prepare(&mut self, theirs: *const Control) -> Fate<'c> {
        // SAFETY: the caller's promise.
        let Some(control) = (unsafe { read(theirs) }) else { return Fate::Straight };
        let file = match hooks::descriptor(control.file) {
            Descriptor::Foreign => return Fate::Straight,
            Descriptor::Hidden => return Fate::Refused(Errno::BADF),
            Descriptor::Sealed(file) => file,
        };
        let (Ok(at), Ok(len)) = (u64::try_from(control.at), usize::try_from(control.len)) else {
            return Fate::Refused(Errno::INVAL);
        };
        let moves = matches!(
            control.operation,
            ring::READ | ring::WRITE | ring::READ_PIECES | ring::WRITE_PIECES
        );
        if moves && control.rw_flags & !RW_FLAGS != 0 {
            return Fate::Refused(Errno::OPNOTSUPP);
        }
        // What is not ready may need a gate that those before it have.
        let one_piece = matches!(control.operation, ring::READ | ring::WRITE);
        if moves && !(one_piece && file.is_direct() && file.is_ready()) {
            return Fate::OnTheSpot(control, file);
        }
        let Some(request) = self.context.take() else { return Fate::Refused(Errno::AGAIN) };
        let order = Order { theirs, control, len, at };
        let handed = match control.operation {
            // SAFETY: the caller's promise.
            ring::READ => unsafe { order.hand_read(request, file) },
            ring::WRITE => {
                self.mask.get_or_insert_with(sys::block_signals);
                // SAFETY: the caller's promise.
                unsafe { order.hand_write(request, file) }
            }
            ring::SYNC | ring::DATA_SYNC | ring::POLL => {
                let control = Control { file: file.hidden().0, ..control };
                Ok(request.set(theirs, control, Work::Straight { _file: file }))
            }
            _ => {
                self.context.untake(request);
                return Fate::Refused(Errno::INVAL);
            }
        };
        match handed {
            Ok(address) => Fate::Handed(request, address),
            Err(file) => {
                self.context.untake(request);
                Fate::OnTheSpot(control, file)
            }
        }
    }

    /// Carries out a request, once an empty read has taken its place in the queue: what the kernel
    /// has no room for must not be done. What io_submit answers, if it takes no more.
    ///
    /// # Safety
    /// As [`submit`], of one control block.
    unsafe fn carry_out(
        &mut self,
        theirs: *const Control,
        control: Control,
        file: File,
    ) -> Result<(), i64> {
        // Those before it have the gate that it may wait for.
        self.flush()?;
        let writes = matches!(control.operation, ring::WRITE | ring::WRITE_PIECES);
        let access = file.flags().access();
        if !(if writes { access.write } else { access.read }) {
            return Err(self.end_with(Errno::BADF));
        }
        let Some(request) = self.context.take() else { return Err(self.end_with(Errno::AGAIN)) };
        let hidden = file.hidden();
        let work = Work::OnTheSpot { file, result: AtomicI64::new(UNSETTLED) };
        let empty = Control { operation: ring::READ, file: hidden.0, ..control.without_bytes() };
        self.list[0] = request.set(theirs, empty, work);
        self.ours[0] = Some(request);
        self.len = 1;
        self.flush()?;
        // Whoever fetches the event waits for the result, and ends the request then.
        let Work::OnTheSpot { file, result: place } = request.work() else { return Ok(()) };
        // SAFETY: the caller's promise.
        let mut result = unsafe { as_call(file, &control) };
        if writes
            && result >= 0
            && let Err(why) = synchronise(hidden, control.rw_flags)
        {
            result = why.negative();
        }
        place.store(result, Release);
        Ok(())
    }
}

/// A read or write that may be handed to the kernel.
struct Order {
    theirs: *const Control,
    control: Control,
    len: usize,
    at: u64,
}

impl Order {
    /// The address for the kernel; the file back, for what it cannot be handed.
    ///
    /// # Safety
    /// As [`submit`], of one control block that reads.
    unsafe fn hand_read(self, request: &Request, file: File) -> Result<u64, File> {
        let Self { theirs, control, len, at } = self;
        // SAFETY: the caller's promise.
        let into = unsafe { buffer_mut(memory(control.buffer), len) }.unwrap_or_default();
        if into.len() < len {
            return Err(file);
        }
        let begun = deep(file.is_ready(), || Ok(file.begin_read(into, at)));
        let Ok(Some((read, handed))) = begun else { return Err(file) };
        let control = Control { file: handed.file.0, at: handed.at.get().cast_signed(), ..control };
        let into = into.as_mut_ptr();
        Ok(request.set(theirs, control, Work::Read { file, into, len, at, request: read }))
    }

    /// The same.
    ///
    /// # Safety
    /// As [`submit`], of one control block that writes.
    unsafe fn hand_write(self, request: &Request, file: File) -> Result<u64, File> {
        let Self { theirs, control, len, at } = self;
        // SAFETY: the caller's promise.
        let from = unsafe { buffer(memory(control.buffer), len) }.unwrap_or_default();
        if from.len() < len || len > LONGEST || request::are_many() {
            return Err(file);
        }
        let Some(into) = request.memory(len) else { return Err(file) };
        let number = request.number();
        let begun = deep(file.is_ready(), || Ok(file.begin_write(from, at, into, number)));
        let Ok(Some((held, sealed, handed))) = begun else { return Err(file) };
        let control = Control {
            file: handed.file.0,
            at: handed.at.get().cast_signed(),
            buffer: raw::Word::word(sealed.as_bytes().as_ptr()).cast_unsigned(),
            ..control
        };
        let address =
            request.set(theirs, control, Work::Write { file, from: from.as_ptr(), len, at });
        request.hold(held);
        Ok(address)
    }
}

/// The call that a request stands for, of the file that its descriptor was when it was submitted;
/// its result, errors as negative numbers.
///
/// # Safety
/// As [`submit`], of one control block.
unsafe fn as_call(file: &File, control: &Control) -> i64 {
    let (at, start) = (control.at, memory(control.buffer));
    let len = usize::try_from(control.len).unwrap_or(usize::MAX);
    let done = match control.operation {
        // SAFETY: the caller's promise.
        ring::READ => unsafe { buffer_mut(start, len) }.and_then(|into| {
            place(at).and_then(|at| deep(file.is_ready(), || file.pread(into, at)))
        }),
        // SAFETY: as above.
        ring::WRITE => unsafe { buffer(start, len) }.and_then(|from| {
            place(at).and_then(|at| deep(file.is_at_once(len, at), || file.pwrite(from, at)))
        }),
        // SAFETY: as above.
        _ => return unsafe { as_vector_call(file, control) },
    };
    done.map_or_else(Errno::negative, |count| count as i64)
}

/// The same, of several pieces.
///
/// # Safety
/// As [`submit`], of one control block.
unsafe fn as_vector_call(file: &File, control: &Control) -> i64 {
    let before = raw::errno();
    let pieces = memory(control.buffer).cast::<iovec>().cast_const();
    let n = i32::try_from(control.len).unwrap_or(-1);
    let done = match control.operation {
        // SAFETY: the caller's promise.
        ring::READ_PIECES => unsafe { vectors::preadv_from(file, pieces, n, control.at) },
        // SAFETY: as above.
        _ => unsafe { vectors::pwritev_to(file, pieces, n, control.at) },
    };
    let result = if done < 0 { raw::errno().negative() } else { done as i64 };
    raw::set_errno(before);
    result
}

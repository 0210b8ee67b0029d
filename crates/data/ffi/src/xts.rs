//! AES-256-XTS behind `UnitCipher`: a table of what each installed file key needs. That is a pair
//! of AWS-LC's contexts; or schedules (vaes.rs) on a CPU where AWS-LC lacks the fast instructions.
//!
//! Schedules are only read once they are there. A context carries the tweak of the call that uses
//! it, so a call owns its context: the key's own one if it is free, else a spare that is given the
//! key for this call. A signal handler or another thread in between therefore never finds a context
//! in use. Spares are made when they are needed: every page that is in use costs each fork.
//!
//! UNSAFETY: EVP contexts are C objects. Each is used only by the holder of its owner word.
#![expect(unsafe_code, reason = "AWS-LC's C interface")]

use core::cell::UnsafeCell;
use core::ptr::{null, null_mut};
use core::sync::atomic::{
    AtomicPtr, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

use crate::aws_lc::{
    EVP_CIPHER_CTX, EVP_CIPHER_CTX_free, EVP_CIPHER_CTX_new, EVP_Cipher, EVP_CipherInit_ex,
    EVP_aes_256_xts,
};
use tidelock_cipher::{FileKey, KeySlot, Proven, Root, SealedHeader, UnitCipher, UnlockError};
use tidelock_format::{Class, Layout, UNIT_USIZE, UnitNumber};

use crate::host::HOST;
use crate::memory::{IN_PROGRAMS, wipe_stack};
use crate::process::starting;
#[cfg(not(feature = "fips"))]
use crate::vaes;
use crate::{stack, sys};

const SLOTS: usize = tidelock_engine::KEYS;
const SPARES: usize = 32;

/// AES-256-XTS with keys in locked memory.
pub struct Xts {
    cells: &'static [AtomicPtr<Cell>],
    spares: [AtomicPtr<Cell>; SPARES],
}

/// Places for the keys of a process. Zeros at first: pages come into being as they are used.
pub struct Cells([AtomicPtr<Cell>; SLOTS]);

impl Cells {
    /// Without keys.
    #[expect(
        clippy::declare_interior_mutable_const,
        reason = "the value that a static of it begins with"
    )]
    pub const EMPTY: Self = Self([const { AtomicPtr::new(null_mut()) }; SLOTS]);
}

/// One file key.
enum Cell {
    /// Its bytes, for spares, and its two contexts.
    AwsLc { key: UnsafeCell<[u8; 64]>, seal: Context, open: Context },
    /// Its schedules.
    #[cfg(not(feature = "fips"))]
    Vaes(Box<UnsafeCell<vaes::Keys>>),
}

struct Context {
    owner: AtomicU64,
    evp: *mut EVP_CIPHER_CTX,
    encrypt: i32,
}

// SAFETY: a cell's key or schedules are written only while its slot is being installed, which only
// one caller does and during which nobody uses it; contexts are used by their owners only.
unsafe impl Sync for Cell {}
// SAFETY: as above; the pointers are not bound to a thread.
unsafe impl Send for Cell {}

impl Context {
    fn new(encrypt: i32) -> Option<Self> {
        // SAFETY: allocates an empty context, or returns null.
        let evp = unsafe { EVP_CIPHER_CTX_new() };
        if evp.is_null() {
            return None;
        }
        // SAFETY: the cipher is a constant of AWS-LC.
        let cipher = unsafe { EVP_aes_256_xts() };
        // SAFETY: `evp` is a fresh context; no key yet, so that its memory is allocated now and
        // never later.
        let ready = unsafe { EVP_CipherInit_ex(evp, cipher, null_mut(), null(), null(), encrypt) };
        let new = Self { owner: AtomicU64::new(0), evp, encrypt };
        (ready == 1).then_some(new)
    }

    fn own(&self) -> Option<Owned<'_>> {
        let mine = self.owner.load(Relaxed) == 0
            && self.owner.compare_exchange(0, sys::thread(), Acquire, Relaxed).is_ok();
        // Lazily: an `Owned` that is made and dropped would give away what another call holds.
        mine.then(|| Owned(self))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: made by `new`, used by nobody else, and not seen again.
        unsafe { EVP_CIPHER_CTX_free(self.evp) };
    }
}

/// A context that this call may use.
struct Owned<'c>(&'c Context);

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        self.0.owner.store(0, Release);
    }
}

impl Owned<'_> {
    fn set_key(&self, key: &[u8; 64]) {
        // SAFETY: we own the context; a null cipher keeps the one it has, so nothing is allocated.
        let set = unsafe {
            EVP_CipherInit_ex(self.0.evp, null(), null_mut(), key.as_ptr(), null(), self.0.encrypt)
        };
        assert!(set == 1, "AES-256-XTS refused a key whose halves differ");
    }

    /// Units from `first` on, from `input` to `output`, which may be the same place.
    fn run(&self, first: UnitNumber, input: *const u8, output: *mut u8, len: usize) {
        let (mut at, mut number) = (0, first.0);
        while at < len {
            let count = (len - at).min(UNIT_USIZE);
            let (input, output) = (input.wrapping_add(at), output.wrapping_add(at));
            self.run_unit(UnitNumber(number), input, output, count);
            at += count;
            // Behind the last number there is nothing.
            number = number.wrapping_add(1);
        }
    }

    #[inline]
    fn run_unit(&self, unit: UnitNumber, input: *const u8, output: *mut u8, len: usize) {
        let mut tweak = [0u8; 16];
        tweak[..8].copy_from_slice(&unit.0.to_le_bytes());
        // SAFETY: we own the context; a null cipher and key keep what it has.
        let set = unsafe {
            EVP_CipherInit_ex(
                self.0.evp,
                null(),
                null_mut(),
                null(),
                tweak.as_ptr(),
                self.0.encrypt,
            )
        };
        // SAFETY: the callers pass slices of `len` bytes, a multiple of 16.
        let done = unsafe { EVP_Cipher(self.0.evp, output, input, len) };
        // Never write what was not encrypted.
        assert!(set == 1 && done == 1, "AES-256-XTS failed");
    }
}

impl Cell {
    fn new() -> Option<Box<Self>> {
        #[cfg(not(feature = "fips"))]
        if vaes::is_chosen() {
            return Some(Self::schedules());
        }
        let (seal, open) = (Context::new(1)?, Context::new(0)?);
        Some(Box::new(Self::AwsLc { key: UnsafeCell::new([0; 64]), seal, open }))
    }

    /// Apart: its stack is larger than that of the other way.
    #[cfg(not(feature = "fips"))]
    #[inline(never)]
    fn schedules() -> Box<Self> {
        Box::new(Self::Vaes(Box::new(UnsafeCell::new(vaes::Keys::new()))))
    }
}

/// Seals or opens units in place by AWS-LC, whatever is chosen; false if there is no memory. The
/// test at start seals with it, and tests open with it too.
#[cfg(not(feature = "fips"))]
pub(crate) fn by_aws_lc(
    way: vaes::Way,
    key: &[u8; 64],
    unit: UnitNumber,
    bytes: &mut [u8],
) -> bool {
    let Some(mut own) = Context::new(i32::from(way == vaes::Way::Seal)) else { return false };
    *own.owner.get_mut() = sys::thread();
    let owned = Owned(&own);
    owned.set_key(key);
    let place = bytes.as_mut_ptr();
    owned.run(unit, place.cast_const(), place, bytes.len());
    true
}

impl Xts {
    /// A cipher without keys, over static memory that no other cipher uses.
    #[must_use]
    pub const fn over(cells: &'static Cells) -> Self {
        Self { cells: &cells.0, spares: [const { AtomicPtr::new(null_mut()) }; SPARES] }
    }

    /// Decides who seals. AWS-LC makes its table of the cipher at the first use of it, under a lock
    /// that a signal handler would wait for: so that use is now, before the program runs.
    pub(crate) fn decide(&self) {
        #[cfg(not(feature = "fips"))]
        let _ = vaes::is_chosen();
        drop(Context::new(1));
    }

    /// True if keys that are installed from now on take the path of our own: for tests.
    #[cfg(not(feature = "fips"))]
    #[doc(hidden)]
    #[must_use]
    pub fn is_ours(&self) -> bool {
        vaes::is_chosen()
    }

    pub(crate) fn install(&self, slot: KeySlot, key: &FileKey) -> Result<(), UnlockError> {
        let cell =
            self.cells.get(slot.0 as usize).and_then(cell_in).ok_or(UnlockError::NoRandomness)?;
        match cell {
            Cell::AwsLc { key: place, seal, open } => {
                // SAFETY: nobody uses a slot that is being installed.
                unsafe { *place.get() = *key.expose() };
                for context in [seal, open] {
                    // A call that was cut off by a fork may have left it owned; then spares serve
                    // this key.
                    if let Some(owned) = context.own() {
                        owned.set_key(key.expose());
                    }
                }
            }
            #[cfg(not(feature = "fips"))]
            Cell::Vaes(keys) => {
                // SAFETY: nobody uses a slot that is being installed.
                let set = unsafe { &mut *keys.get() }.set(key.expose());
                assert!(set, "AES-256-XTS refused a key whose halves differ");
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn derive_and_install(&self, slot: KeySlot, proven: &Proven) -> Result<(), UnlockError> {
        let header = proven.header();
        let key = tidelock_runtime::find(header.data_key).ok_or(UnlockError::UnknownKey)?;
        self.install(slot, &key.file_key(header))
    }

    /// Units from `unit` on, the last of them perhaps in part.
    #[inline]
    fn run(
        &self,
        slot: KeySlot,
        unit: UnitNumber,
        encrypt: bool,
        bytes: (*const u8, *mut u8, usize),
    ) {
        let cell = self.cells.get(slot.0 as usize).and_then(existing);
        match cell.expect("a slot is used only after its key was installed") {
            Cell::AwsLc { key, seal, open } => {
                let home = if encrypt { seal } else { open };
                match home.own() {
                    Some(owned) => owned.run(unit, bytes.0, bytes.1, bytes.2),
                    None => self.run_elsewhere(key, unit, encrypt, bytes),
                }
            }
            #[cfg(not(feature = "fips"))]
            Cell::Vaes(keys) => {
                let way = if encrypt { vaes::Way::Seal } else { vaes::Way::Open };
                // SAFETY: schedules are written only while the slot is being installed, when nobody
                // uses it.
                let keys = unsafe { &*keys.get() };
                // SAFETY: installed, so `set` was true; the callers pass slices of this length.
                unsafe { keys.run(way, unit, bytes.0, bytes.1, bytes.2) };
            }
        }
    }

    /// With a spare context: the key's own is in use.
    #[cold]
    fn run_elsewhere(
        &self,
        key: &UnsafeCell<[u8; 64]>,
        unit: UnitNumber,
        encrypt: bool,
        bytes: (*const u8, *mut u8, usize),
    ) {
        // SAFETY: the key is written only while the slot is being installed, when nobody uses it.
        let key = unsafe { &*key.get() };
        // A new one on a stack of ours: the program's may be small.
        let spare = |place| existing(place).or_else(|| stack::run(|| cell_in(place)).ok()?);
        for (seal, open) in self.spares.iter().filter_map(spare).filter_map(contexts) {
            let context = if encrypt { seal } else { open };
            if let Some(owned) = context.own() {
                owned.set_key(key);
                return owned.run(unit, bytes.0, bytes.1, bytes.2);
            }
        }
        // To wait for one could be for ever: signal handlers may stand in front of all who have
        // them.
        let mut own =
            Context::new(i32::from(encrypt)).expect("there is locked memory for a context");
        *own.owner.get_mut() = sys::thread();
        let owned = Owned(&own);
        owned.set_key(key);
        owned.run(unit, bytes.0, bytes.1, bytes.2);
    }

    /// In a forked child only the forking thread exists: what others held is free.
    pub(crate) fn after_fork_in_child(&self) {
        let me = sys::thread();
        for (seal, open) in self.spares.iter().filter_map(existing).filter_map(contexts) {
            for context in [seal, open] {
                // Written only where it must be: each first write of a child copies a page.
                if ![0, me].contains(&context.owner.load(Relaxed)) {
                    context.owner.store(0, Relaxed);
                }
            }
        }
    }
}

/// The contexts of a spare, for sealing and for opening.
fn contexts(spare: &Cell) -> Option<(&Context, &Context)> {
    match spare {
        Cell::AwsLc { seal, open, .. } => Some((seal, open)),
        #[cfg(not(feature = "fips"))]
        Cell::Vaes(_) => None,
    }
}

fn existing(place: &AtomicPtr<Cell>) -> Option<&Cell> {
    let cell = place.load(Acquire);
    // SAFETY: cells are made once and never freed.
    unsafe { cell.as_ref() }
}

fn cell_in(place: &AtomicPtr<Cell>) -> Option<&Cell> {
    if existing(place).is_none() {
        let new = Box::into_raw(Cell::new()?);
        if place.compare_exchange(null_mut(), new, Release, Acquire).is_err() {
            // SAFETY: another call was faster; this one was never shown to anybody.
            drop(unsafe { Box::from_raw(new) });
        }
    }
    existing(place)
}

impl UnitCipher for Xts {
    fn choose(&self, first: &[u8]) -> Result<Proven, UnlockError> {
        stack::run(|| {
            let chosen = tidelock_runtime::choose(starting(), &HOST, first);
            wipe_stack::<IN_PROGRAMS>();
            chosen
        })
        .unwrap_or(Err(UnlockError::NoMemory))
    }

    fn unlock(&self, slot: KeySlot, header: &Proven) -> Result<(), UnlockError> {
        stack::run(|| {
            let unlocked = self.derive_and_install(slot, header);
            wipe_stack::<IN_PROGRAMS>();
            unlocked
        })
        .unwrap_or(Err(UnlockError::NoMemory))
    }

    fn prepare(&self, root: Root) {
        // Without memory the keys stay as they are.
        let _ = stack::run(|| {
            tidelock_runtime::prepare(starting(), &HOST, root);
            wipe_stack::<IN_PROGRAMS>();
        });
    }

    fn create(
        &self,
        root: Root,
        class: Class,
        layout: Layout,
    ) -> Result<SealedHeader, UnlockError> {
        stack::run(|| {
            let header = tidelock_runtime::new_header(starting(), root, class, layout);
            wipe_stack::<IN_PROGRAMS>();
            header
        })
        .unwrap_or(Err(UnlockError::NoMemory))
    }

    #[inline]
    fn seal(&self, slot: KeySlot, first: UnitNumber, plain: &[u8], sealed: &mut [u8]) {
        assert!(plain.len() == sealed.len(), "sealing changes no lengths");
        self.run(slot, first, true, (plain.as_ptr(), sealed.as_mut_ptr(), plain.len()));
    }

    #[inline]
    fn open(&self, slot: KeySlot, unit: UnitNumber, bytes: &mut [u8]) {
        let place = bytes.as_mut_ptr();
        self.run(slot, unit, false, (place.cast_const(), place, bytes.len()));
    }
}

//! libtidelock_preload.so: libc's file calls, by way of the engine. Nothing here but the symbols.

#[cfg(not(any(panic = "abort", test)))]
compile_error!("a panic must end the process: use `make debug`, or CARGO_PROFILE_DEV_PANIC=abort");

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
compile_error!("the library stands in front of glibc: build it for linux-gnu, not for musl");

/// Rust's allocations lie in locked memory of our own, never in the program's heap.
#[global_allocator]
static MEMORY: tidelock_ffi::memory::LockedMemory = tidelock_ffi::memory::LockedMemory;

/// The symbols, one for each hooked line of the ledger.
mod exports {
    use tidelock_ffi::ledger_types::*;

    tidelock_ffi::ledger!(tidelock_ffi::exports);
}

tidelock_ffi::constructors!();

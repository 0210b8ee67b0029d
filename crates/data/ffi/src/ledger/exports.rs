//! The exported symbols: one C function for each hooked name, which calls the hook.

/// Defines the symbols of the ledger in the crate that calls it; for the preload library only.
#[macro_export]
macro_rules! exports {
    (
        hooks { $( $note:literal { $(
            $function:ident :: $hook:ident $args:tt -> $result:ty : $($name:ident),+ ;
        )+ } )+ }
        refusals { $( $errno:ident $why:literal { $(
            $rfunction:ident :: $refusal:ident $rargs:tt -> $rresult:ty : $($rname:ident),+ ;
        )+ } )+ }
        passes $passes:tt
    ) => {
        $($($($crate::export!($name, $function::$hook, $args, $result);)+)+)+
        $($($($crate::export!($rname, $rfunction::$refusal, $rargs, $rresult);)+)+)+
    };
}

/// Defines one symbol.
#[doc(hidden)]
#[macro_export]
macro_rules! export {
    ($name:ident, $module:ident::$hook:ident, (...), $result:ty) => {
        /// See docs/hooks.md.
        ///
        /// # Safety
        /// The contract of the libc function of this name.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!("jmp {hook}", hook = sym $crate::hooks::$module::$hook)
        }
    };
    ($name:ident, $module:ident::$hook:ident, ($($arg:ident: $type:ty),* $(,)?), $result:ty) => {
        /// See docs/hooks.md.
        ///
        /// # Safety
        /// The contract of the libc function of this name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $result {
            // SAFETY: the contract is that of the hook.
            unsafe { $crate::hooks::$module::$hook($($arg),*) }
        }
    };
}

//! The ledger: every file call of libc, and what becomes of it.
//!
//! One table has three sections: *hook* (a function of ours stands in its place), *refuse* (the
//! same, and on a file of ours it ends with a named error) and *pass* (not hooked, and the reason
//! why that is safe). The last is in `ledger/passes.rs`, the others are in `ledger/table.rs`. From
//! the table come the exported symbols ([`exports`](crate::exports)), the list [`LEDGER`] that
//! docs/hooks.md is written from, and the check of a program's imports ([`unlisted`]).
//!
//! The symbols are defined by the preload library alone: it hands the table to `exports!`. So the
//! command and the tests link this crate, also in one build with the library, and do not hook
//! themselves.

mod exports;
pub(crate) mod numbers;
mod other;
mod passes;
mod table;

pub use numbers::{NUMBERS, Number};
pub use other::is_no_file_call;

/// A line of the ledger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The symbol.
    pub name: &'static str,
    /// What becomes of a call.
    pub action: Action,
    /// What the hook does, or why there is none.
    pub note: &'static str,
}

/// What becomes of a call.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Action {
    /// Carried out by the engine on files of ours.
    Hook,
    /// Refused on files of ours, with this errno.
    Refuse(&'static str),
    /// Not hooked.
    Pass,
}

macro_rules! entries {
    (
        hooks { $( $note:literal { $(
            $function:ident :: $hook:ident $args:tt -> $result:ty : $($name:ident),+ ;
        )+ } )+ }
        refusals { $( $errno:ident $why:literal { $(
            $rfunction:ident :: $refusal:ident $rargs:tt -> $rresult:ty : $($rname:ident),+ ;
        )+ } )+ }
        passes { $( $reason:literal { $($pass:ident)+ } )+ }
    ) => {
        /// Every file call, in the order of the table.
        pub const LEDGER: &[Entry] = &[
            $($($(Entry { name: stringify!($name), action: Action::Hook, note: $note },)+)+)+
            $($($(Entry {
                name: stringify!($rname),
                action: Action::Refuse(stringify!($errno)),
                note: $why,
            },)+)+)+
            $($(Entry { name: stringify!($pass), action: Action::Pass, note: $reason },)+)+
        ];
    };
}

crate::ledger!(entries);

/// The symbols among `imports` that are neither in the ledger nor known to be no file calls.
pub fn unlisted<'n>(imports: impl Iterator<Item = &'n str>) -> impl Iterator<Item = &'n str> {
    imports.filter(|name| !LEDGER.iter().any(|entry| entry.name == *name) && !is_no_file_call(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_symbol_stands_in_the_ledger_once() {
        for (index, entry) in LEDGER.iter().enumerate() {
            let again = LEDGER.iter().skip(index + 1).find(|other| other.name == entry.name);
            assert_eq!(again, None, "{}", entry.name);
        }
    }

    #[test]
    fn no_symbol_is_both_a_file_call_and_none() {
        let names = LEDGER.iter().map(|entry| entry.name);
        assert_eq!(names.filter(|name| is_no_file_call(name)).collect::<String>(), "");
    }

    #[test]
    fn a_new_file_call_is_seen() {
        let imports = ["open", "strlen", "open_a_new_way", "pthread_create"];
        assert_eq!(unlisted(imports.into_iter()).collect::<Vec<_>>(), ["open_a_new_way"]);
    }
}

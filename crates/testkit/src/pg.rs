//! PostgreSQL in the tests: private servers, and PostgreSQL's own suites.

pub mod extensions;
pub mod majors;
mod regress;
pub mod tap;

pub use regress::{Outcome, Suite};
pub use tidelock_servers::*;

/// Defines one test for each arm named: `arms!(survives_a_crash: plain, sealed)` makes the tests
/// `survives_a_crash::plain` and `survives_a_crash::sealed` from `fn survives_a_crash(arm: Arm)`.
///
/// A word after the name marks slow ones: `arms!(regress: sealed; slow)` is left to `make
/// test-full`.
#[macro_export]
macro_rules! arms {
    ($body:ident: $($arm:ident),+) => {
        mod $body {
            $(
                #[test]
                fn $arm() -> $crate::pg::Result<()> {
                    super::$body($crate::arms!(@ $arm))
                }
            )+
        }
    };
    ($body:ident: $($arm:ident),+; slow) => {
        mod $body {
            $(
                #[test]
                #[ignore = "long: make test-full"]
                fn $arm() -> $crate::pg::Result<()> {
                    super::$body($crate::arms!(@ $arm))
                }
            )+
        }
    };
    (@ plain) => { $crate::pg::Arm::Plain };
    (@ idle) => { $crate::pg::Arm::Idle };
    (@ sealed) => { $crate::pg::Arm::Sealed };
}

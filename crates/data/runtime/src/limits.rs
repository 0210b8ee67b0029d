//! Where hidden descriptors lie: above those of the program, as far as its limit allows.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Below this number a program finds its own descriptors.
const HIDDEN_FROM: i32 = 1024;
/// As if there were no limit.
const MANY: u64 = 1 << 20;

/// Makes room: the soft limit is raised as far as allowed. The lowest number for hidden
/// descriptors.
#[must_use]
pub fn make_room() -> i32 {
    let limit = getrlimit(Resource::Nofile);
    let soft = limit.current.unwrap_or(MANY);
    let wanted = 4 * u64::from(HIDDEN_FROM.cast_unsigned());
    let hard = limit.maximum.unwrap_or(MANY);
    let mut available = soft;
    if soft < wanted && hard > soft {
        let raised = Rlimit { current: Some(wanted.min(hard)), maximum: limit.maximum };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            available = wanted.min(hard);
        }
    }
    lowest(available)
}

/// The lowest number for hidden descriptors under the limit that the program has set itself: below
/// a higher one, or the kernel would not give the number.
#[must_use]
pub fn after_change() -> i32 {
    lowest(getrlimit(Resource::Nofile).current.unwrap_or(MANY))
}

/// The upper half belongs to us where there are few.
fn lowest(available: u64) -> i32 {
    let lowest = u64::from(HIDDEN_FROM.cast_unsigned()).min(available / 2);
    i32::try_from(lowest).unwrap_or(HIDDEN_FROM)
}

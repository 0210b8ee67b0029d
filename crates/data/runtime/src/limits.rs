//! Where hidden descriptors lie: above those of the program, as far as its limit allows.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Below this number a program finds its own descriptors.
const HIDDEN_FROM: i32 = 1024;
/// As if there were no limit.
const MANY: u64 = 1 << 20;

/// The numbers of descriptors that the process may have.
#[derive(Clone, Copy)]
pub struct Numbers {
    /// All lie below this one.
    pub end: i32,
    /// The lowest for hidden ones.
    pub hidden: i32,
}

/// Makes room: the soft limit is raised as far as allowed.
#[must_use]
pub fn make_room() -> Numbers {
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
    numbers(available)
}

/// Under the limit that the program has set itself: the kernel gives no number beyond it.
#[must_use]
pub fn after_change() -> Numbers {
    numbers(getrlimit(Resource::Nofile).current.unwrap_or(MANY))
}

/// The upper half belongs to us where there are few.
fn numbers(available: u64) -> Numbers {
    let hidden = u64::from(HIDDEN_FROM.cast_unsigned()).min(available / 2);
    Numbers {
        end: i32::try_from(available).unwrap_or(i32::MAX),
        hidden: i32::try_from(hidden).unwrap_or(HIDDEN_FROM),
    }
}

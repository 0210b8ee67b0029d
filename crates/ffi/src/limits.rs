//! Where hidden descriptors lie: above those of the program, as far as its limit allows.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidelock_engine::Fd;

use crate::process::{ActiveProcess, starting};

/// Below this number a program finds its own descriptors.
const HIDDEN_FROM: i32 = 1024;

/// Makes room: the soft limit is raised as far as allowed.
pub(crate) fn make_room() {
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
    starting().system().set_hidden_from(lowest(available));
}

/// The program has changed its limit: what is hidden from now on lies below the new one, or the kernel would not
/// give the number.
pub(crate) fn changed(process: &ActiveProcess) {
    let available = getrlimit(Resource::Nofile).current.unwrap_or(MANY);
    process.system().set_hidden_from(lowest(available));
    process.system().take_spares().for_each(|spare: Fd| process.drop_hidden(spare));
}

/// The upper half belongs to us where there are few.
fn lowest(available: u64) -> i32 {
    let lowest = u64::from(HIDDEN_FROM.cast_unsigned()).min(available / 2);
    i32::try_from(lowest).unwrap_or(HIDDEN_FROM)
}

/// As if there were no limit.
const MANY: u64 = 1 << 20;

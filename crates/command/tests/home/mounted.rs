//! A home in which something is mounted.

use tidelock_servers::skip;

use super::place::Shell;

/// A new home after these lines of root's, which end with a mount in a namespace and print nothing;
/// nothing where that cannot be.
#[track_caller]
pub(crate) fn mounted(lines: &str) -> Option<Shell> {
    if skip::unless_root("a mount namespace") {
        return None;
    }
    let place = Shell::new();
    let made = place.run(lines);
    if made.is_empty() {
        return Some(place);
    }
    skip::because(format_args!("no mount namespace can be made here: {made}"));
    None
}

//! Who is believed: whose keys a process takes, and whose word about the policy of a directory.
//!
//! Commands that a unit runs as root have the environment of its server: the socket that it names
//! lies in a folder of the server's user, who may put anything there. Keys come from root or the
//! process's own user alone. The policy, by which a program without keys is guarded, root's process
//! takes from the directory's owner too: what that user owns, that user reads and changes anyway.

use std::path::Path;

use rustix::process::geteuid;
use tidelock_contract::control::FOLDER;

/// True if this process takes keys of an agent that `user` runs.
pub(crate) fn may_grant(user: u32) -> bool {
    user == 0 || user == geteuid().as_raw()
}

/// True if what `user` says of the policy of `directory` holds for this process.
pub(crate) fn believes(user: u32, directory: &Path) -> bool {
    let owns = |path: &Path| rustix::fs::stat(path).is_ok_and(|found| found.st_uid == user);
    // Whoever made it protected counts as an owner: both may change what lies there.
    may_grant(user) || geteuid().is_root() && (owns(directory) || owns(&directory.join(FOLDER)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;

    use super::*;

    #[test]
    fn roots_process_believes_another_user_about_that_users_directory_alone() {
        let place = tempfile::tempdir().unwrap();
        let (me, other) = (geteuid(), 54321);
        assert!(believes(0, place.path()) && believes(me.as_raw(), Path::new("/nowhere")));
        assert!(!believes(other, place.path()) && !believes(other, Path::new("/nowhere")));
        if me.is_root() {
            chown(place.path(), Some(other), None).unwrap();
            assert!(believes(other, place.path()) && !believes(other + 1, place.path()));
            assert!(!may_grant(other));
        }
    }
}

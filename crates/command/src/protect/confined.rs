//! Policies of the machine that keep the library out of a server: the data would be sealed, and the
//! server would not start.

use std::fs;
use std::path::Path;

use crate::error::{Error, Result};

/// Where SELinux is enforced, systemd's start of a server is a change of domain, in which ld.so
/// drops the library.
///
/// # Errors
/// [`Error::Refused`].
pub(super) fn refuse_selinux() -> Result<()> {
    let enforced = fs::read_to_string("/sys/fs/selinux/enforce");
    if !enforced.is_ok_and(|text| text.trim() == "1") {
        return Ok(());
    }
    Err(Error::refused(
        "SELinux is enforced, and its policies of servers let no unit load the library",
        "try yours on a copy first (docs/service.md, \"What drops the library\"), then give \
         --selinux-allows",
    ))
}

/// A profile of AppArmor is attached by the program's path, however it is started: without rules
/// for the library the kernel refuses to map it.
///
/// # Errors
/// [`Error::Refused`] if one is enforced for this process.
pub(super) fn refuse_apparmor(pid: u32) -> Result<()> {
    let label = |process: &str| {
        fs::read_to_string(Path::new("/proc").join(process).join("attr/current")).ok()
    };
    let theirs = label(&pid.to_string());
    // That of a container holds for all that runs in it, us too.
    if theirs == label("self") {
        return Ok(());
    }
    let Some(profile) = theirs.as_deref().and_then(enforced) else { return Ok(()) };
    Err(Error::refused(
        format!("AppArmor's profile {profile} is enforced for process {pid}"),
        "write its rules for the library first (docs/service.md, \"What drops the library\"), then \
         give --apparmor-allows",
    ))
}

/// The profile of a label such as `/usr/sbin/mysqld (enforce)`. SELinux writes other labels there.
fn enforced(label: &str) -> Option<String> {
    let label = label.trim_end_matches(['\0', '\n']);
    label.strip_suffix(" (enforce)").map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_counts_where_it_is_enforced() {
        let profile = |label| enforced(label);
        assert_eq!(profile("/usr/sbin/mysqld (enforce)\n").as_deref(), Some("/usr/sbin/mysqld"));
        assert_eq!(profile("mariadbd (enforce)").as_deref(), Some("mariadbd"));
        for other in
            ["unconfined\n", "mariadbd (complain)\n", "system_u:system_r:mysqld_t:s0\0", ""]
        {
            assert_eq!(profile(other), None, "{other:?}");
        }
    }
}

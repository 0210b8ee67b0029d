//! What is mounted where, as this process sees it (proc(5), mountinfo).

use std::fs;

use procfs::process::MountInfo;

/// Every mount; a later one may lie on an earlier one.
pub(super) fn here() -> Vec<MountInfo> {
    parse(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
}

/// From the text of mountinfo. Lines that cannot be read are left out.
pub(super) fn parse(mountinfo: &str) -> Vec<MountInfo> {
    let mut mounts: Vec<MountInfo> =
        mountinfo.lines().filter_map(|line| MountInfo::from_line(line).ok()).collect();
    for mount in &mut mounts {
        // The kernel writes a blank so, and the crate leaves it.
        mount.mount_point = mount.mount_point.to_string_lossy().replace("\\040", " ").into();
    }
    mounts
}

//! Provisioned I/O: how many reads, writes and bytes a second the kernel lets through to one
//! device.
//!
//! Version 1 keeps the rule in its root group, where every bio of the device passes that no other
//! group of processes sends: the server's own reads and syncs, and what kernel threads write for it
//! (page cache, journal). Rules of version 1 do not add up over the tree, so a process in another
//! group would have a budget of its own: [`super::Group`] moves the server to the root. Version 2
//! keeps the rule in the server's group and counts the page cache's writes for the group that made
//! the pages dirty; its root has no rule. Either way the device must be the experiment's own.

use std::fs;
use std::path::{Path, PathBuf};

use super::caps::{Caps, Unlimited};
use super::device::DeviceNumber;
use super::hierarchy::{Controller, Hierarchy, Version};

/// A rule on a device, taken back on drop.
#[derive(Debug)]
pub struct Throttle {
    /// Files and the lines that take the rule back.
    undo: Vec<(PathBuf, String)>,
}

impl Throttle {
    /// Sets the rule in `root`, the root group of version 1.
    pub(super) fn version_1(
        root: &Path,
        device: DeviceNumber,
        caps: &Caps,
    ) -> Result<Self, Unlimited> {
        let rates = [("iops", caps.iops), ("bps", caps.throughput_mib.map(|mib| mib << 20))];
        let mut throttle = Self { undo: Vec::new() };
        for (unit, rate) in rates {
            let Some(rate) = rate else { continue };
            for way in ["read", "write"] {
                let file = root.join(format!("blkio.throttle.{way}_{unit}_device"));
                set(&file, &format!("{device} {rate}"))?;
                throttle.undo.push((file, format!("{device} 0")));
            }
        }
        Ok(throttle)
    }

    /// Sets the rule in `group`, a group of version 2.
    pub(super) fn version_2(
        group: &Path,
        device: DeviceNumber,
        caps: &Caps,
    ) -> Result<Self, Unlimited> {
        let mut rule = device.to_string();
        for (unit, rate) in [("iops", caps.iops), ("bps", caps.throughput_mib.map(|m| m << 20))] {
            if let Some(rate) = rate {
                rule += &format!(" r{unit}={rate} w{unit}={rate}");
            }
        }
        let file = group.join("io.max");
        set(&file, &rule)?;
        let free = format!("{device} riops=max wiops=max rbps=max wbps=max");
        Ok(Self { undo: vec![(file, free)] })
    }

    /// Takes back what a lab that died may have left on a device that is ours now.
    pub(super) fn clear(device: DeviceNumber) {
        let hierarchy = Hierarchy::here();
        let Some(tree) = hierarchy.tree(Controller::Io) else { return };
        if tree.version == Version::V1 {
            for rule in ["read_iops", "write_iops", "read_bps", "write_bps"] {
                let file = tree.root.join(format!("blkio.throttle.{rule}_device"));
                let ruled = fs::read_to_string(&file).unwrap_or_default();
                if ruled.lines().any(|line| line.split(' ').next() == Some(&device.to_string())) {
                    let _ = fs::write(file, format!("{device} 0"));
                }
            }
        }
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        for (file, free) in &self.undo {
            // The group, or the device, may be gone already, and the rule with it.
            let _ = fs::write(file, free);
        }
    }
}

/// Writes one value to a file of a control group.
pub(super) fn set(file: &Path, value: &str) -> Result<(), Unlimited> {
    fs::write(file, value).map_err(|e| {
        let file = match file.exists() {
            true => file.display().to_string(),
            // Nobody but the kernel can make one.
            false => format!("{}, which the groups above do not hand down", file.display()),
        };
        Unlimited::new(format!("the kernel refused {value:?} in {file}: {e}"))
    })
}

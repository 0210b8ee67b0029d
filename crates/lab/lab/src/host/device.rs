//! Block devices by number, and what the kernel counts for each.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{major, minor};

/// A block device, as `7:0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceNumber {
    /// Which driver; 7 is the loop driver.
    pub major: u32,
    /// Which of its devices.
    pub minor: u32,
}

impl DeviceNumber {
    /// The device that the file system of `path` lies on.
    ///
    /// File systems without one (tmpfs, btrfs, overlays) have a number that no device answers to.
    ///
    /// # Errors
    /// When there is no such path.
    pub fn of(path: &Path) -> std::io::Result<Self> {
        let dev = fs::metadata(path)?.dev();
        Ok(Self { major: major(dev), minor: minor(dev) })
    }

    /// What was done on the device so far; `None` when there is no such device.
    pub(super) fn counters(self) -> Option<Counters> {
        Counters::parse(&fs::read_to_string(format!("/sys/dev/block/{self}/stat")).ok()?)
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// Finished requests and bytes since boot (Documentation/block/stat.rst of the kernel).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    pub(super) reads: u64,
    pub(super) read_bytes: u64,
    pub(super) writes: u64,
    pub(super) written_bytes: u64,
}

impl Counters {
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<u64> = line.split_whitespace().map_while(|f| f.parse().ok()).collect();
        let [reads, _, read, _, writes, _, written, ..] = fields[..] else { return None };
        Some(Self { reads, read_bytes: read * SECTOR, writes, written_bytes: written * SECTOR })
    }
}

/// Bytes of a sector in the kernel's counters, whatever the device's own are.
const SECTOR: u64 = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_are_those_of_reads_and_writes() {
        let line =
            "     125        0     4632       21      400      31    12800     900 0 5 6 7 8 9 1 2";
        let wanted = Counters {
            reads: 125,
            read_bytes: 4632 * 512,
            writes: 400,
            written_bytes: 12800 * 512,
        };
        assert_eq!(Counters::parse(line), Some(wanted));
        assert_eq!(Counters::parse("1 2 3"), None);
    }
}

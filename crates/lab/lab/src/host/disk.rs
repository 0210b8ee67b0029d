//! The disk below a directory: its name, and how long it takes to make a write durable.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Instant;

use super::device::DeviceNumber;

/// Model (or name) and size of the disk of `path`; empty where the kernel shows none (tmpfs, an
/// overlay).
pub(super) fn name(path: &Path) -> String {
    let Ok(device) = DeviceNumber::of(path) else { return String::new() };
    let Ok(mut dir) = fs::canonicalize(format!("/sys/dev/block/{device}")) else {
        return String::new();
    };
    // A partition lies below its disk.
    if dir.join("partition").exists() {
        dir.pop();
    }
    let read =
        |name: &str| fs::read_to_string(dir.join(name)).unwrap_or_default().trim().to_owned();
    let kernels = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let model = Some(read("device/model")).filter(|model| !model.is_empty()).unwrap_or(kernels);
    let gib = read("size").parse::<f64>().map(|sectors| sectors * 512.0 / f64::from(1 << 30));
    let size = gib.map_or_else(|_| String::new(), |gib| format!(", {gib:.0} GiB"));
    let turns = if read("queue/rotational") == "1" { ", rotational" } else { "" };
    format!("{model}{size}{turns}")
}

/// Median milliseconds of a write of 8 KiB with its fdatasync below `dir`, of [`WRITES`].
///
/// # Errors
/// When no file can be written there.
pub(super) fn fsync_ms(dir: &Path) -> std::io::Result<f64> {
    let mut file = tempfile::tempfile_in(dir)?;
    let page = [0x5a; 8192];
    // As the log of a server: what is written is there already.
    for _ in 0..WRITES {
        file.write_all(&page)?;
    }
    file.sync_all()?;
    let mut times = Vec::new();
    for at in 0..WRITES {
        let start = Instant::now();
        file.write_all_at(&page, at * page.len() as u64)?;
        file.sync_data()?;
        times.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

const WRITES: u64 = 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_of_a_file_system_without_one_has_no_name() {
        assert_eq!(name(Path::new("/proc")), "");
        assert_eq!(name(Path::new("/no/such/dir")), "");
    }

    #[test]
    fn a_commit_takes_some_time_and_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        assert!(fsync_ms(dir.path()).unwrap() > 0.0);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(fsync_ms(Path::new("/no/such/dir")).is_err());
    }
}

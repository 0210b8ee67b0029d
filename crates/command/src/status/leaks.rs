//! Where the memory of a running server can get onto a disk: core files and swap.

use std::fs;
use std::path::{Path, PathBuf};

use procfs::process::{LimitValue, Process};

/// A core file has at least a page (Linux, ELF_EXEC_PAGESIZE); a lower limit writes none.
const PAGE: u64 = 4096;
/// With just this limit nothing goes to a program through a pipe either (core(5); Linux,
/// fs/coredump.c).
const NEVER: u64 = 1;

/// The machine's pattern of core files.
pub(super) fn core_pattern() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    text.trim_end().to_owned()
}

/// True if a process with this soft limit leaves core files by this pattern.
pub(super) fn leaves_cores(limit: Option<u64>, pattern: &str) -> bool {
    match pattern.as_bytes().first() {
        None => false,
        Some(b'|') => limit != Some(NEVER),
        // To a socket the kernel hands every core, whatever the limit is (coredump_sock_connect).
        Some(_) if names_socket(pattern) => true,
        Some(_) => limit.is_none_or(|limit| limit >= PAGE),
    }
}

/// True if cores go to who listens at a socket (Linux 6.16 and later).
pub(super) fn names_socket(pattern: &str) -> bool {
    pattern.starts_with('@')
}

/// The soft limit of core files of a process; `None` if it is not known, and `Some(None)` if
/// there is no limit.
#[expect(clippy::option_option, reason = "no limit and no answer are two things")]
pub(super) fn core_limit(pid: u32) -> Option<Option<u64>> {
    let limits = Process::new(i32::try_from(pid).ok()?).ok()?.limits().ok()?;
    match limits.max_core_file_size.soft_limit {
        LimitValue::Unlimited => Some(None),
        LimitValue::Value(bytes) => Some(Some(bytes)),
    }
}

/// Devices and files that memory is swapped to as it is.
pub(super) fn plain_swap() -> Vec<PathBuf> {
    plain_swap_of(Path::new("/proc/swaps"), Path::new("/sys"))
}

/// proc(5): a line of titles, then `PATH TYPE SIZE USED PRIORITY`, blanks in the path as \040.
fn plain_swap_of(swaps: &Path, sys: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(swaps).unwrap_or_default();
    let paths = text.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    let paths = paths.map(|path| PathBuf::from(path.replace("\\040", " ")));
    paths.filter(|path| !is_encrypted(path, sys)).collect()
}

/// What is not known counts as not encrypted.
fn is_encrypted(path: &Path, sys: &Path) -> bool {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let Ok(found) = fs::metadata(path) else { return false };
    let device = if found.file_type().is_block_device() { found.rdev() } else { found.dev() };
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    match fs::canonicalize(sys.join(format!("dev/block/{major}:{minor}"))) {
        Ok(block) => is_encrypted_block(&block),
        Err(_) => false,
    }
}

/// dm-crypt, or made of nothing else; compressed memory that is written to no disk.
fn is_encrypted_block(block: &Path) -> bool {
    let read = |name: &str| fs::read_to_string(block.join(name)).unwrap_or_default();
    if read("dm/uuid").starts_with("CRYPT-") {
        return true;
    }
    let name = block.file_name().unwrap_or_default().as_encoded_bytes();
    if name.starts_with(b"zram") {
        return matches!(read("backing_dev").trim(), "" | "none");
    }
    let below: Vec<_> =
        fs::read_dir(block.join("slaves")).into_iter().flatten().flatten().collect();
    let encrypted = |entry: &fs::DirEntry| {
        fs::canonicalize(entry.path()).is_ok_and(|below| is_encrypted_block(&below))
    };
    !below.is_empty() && below.iter().all(encrypted)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_limit_of_one_byte_leaves_no_core_but_by_a_socket_and_zero_by_a_file_alone() {
        let pipe = "|/usr/lib/systemd/systemd-coredump %P";
        assert!(!leaves_cores(Some(1), pipe) && !leaves_cores(Some(1), "core"));
        assert!(leaves_cores(Some(0), pipe) && !leaves_cores(Some(0), "core.%p"));
        assert!(leaves_cores(None, "core") && leaves_cores(Some(4096), "/cores/%e"));
        assert!(!leaves_cores(None, ""));
        for socket in ["@/run/cores.socket", "@@/run/cores.socket"] {
            assert!(leaves_cores(Some(1), socket) && leaves_cores(Some(0), socket), "{socket}");
        }
    }

    #[test]
    fn swap_is_encrypted_if_all_that_is_below_it_is() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        for name in ["sda", "dm-0/dm", "dm-1/dm", "dm-1/slaves", "dm-2/slaves", "zram0", "zram1"] {
            fs::create_dir_all(at(name)).unwrap();
        }
        fs::write(at("dm-0/dm/uuid"), "CRYPT-PLAIN-swap\n").unwrap();
        fs::write(at("dm-1/dm/uuid"), "LVM-x\n").unwrap();
        fs::write(at("zram0/backing_dev"), "none\n").unwrap();
        fs::write(at("zram1/backing_dev"), "/dev/sda\n").unwrap();
        symlink(at("dm-0"), at("dm-1/slaves/dm-0")).unwrap();
        symlink(at("dm-0"), at("dm-2/slaves/dm-0")).unwrap();
        symlink(at("sda"), at("dm-2/slaves/sda")).unwrap();
        for (name, encrypted) in [
            ("sda", false),
            ("dm-0", true),
            ("dm-1", true),
            ("dm-2", false),
            ("zram0", true),
            ("zram1", false),
        ] {
            assert_eq!(is_encrypted_block(&at(name)), encrypted, "{name}");
        }
        // A file whose file system lies on no device that can be told.
        let swaps = at("swaps");
        fs::write(
            &swaps,
            format!("Filename Type Size Used Priority\n{} file 1 0 -2\n", swaps.display()),
        )
        .unwrap();
        assert_eq!(plain_swap_of(&swaps, &at("sys")), std::slice::from_ref(&swaps));
    }
}

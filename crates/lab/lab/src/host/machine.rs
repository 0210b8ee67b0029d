//! Fills [`Machine`] from what the kernel and /etc/os-release say.
//!
//! What a file does not say stays empty: no number is guessed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;

use procfs::process::MountInfo;
use procfs::{CpuInfo, Current as _, Meminfo};
use rustix::system::uname;

use super::{Group, disk, mounts};
use crate::manifest::Machine;

impl Machine {
    /// This machine; `path` is where servers' directories lie, `versions` those of servers and
    /// tools.
    #[must_use]
    pub fn read(path: &Path, versions: BTreeMap<String, String>) -> Self {
        let info = CpuInfo::current().ok();
        let field = |name| info.as_ref().and_then(|info| info.get_field(0, name));
        let cpu = field("model name").unwrap_or(std::env::consts::ARCH).to_owned();
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        Self {
            name: format!("{}-{cpus}cpu", slug(&cpu)),
            cpus,
            cpu_features: features(field("flags").or(field("Features")).unwrap_or_default()),
            cpu,
            memory_mib: Meminfo::current().map_or(0, |memory| memory.mem_total >> 20),
            kernel: uname().release().to_string_lossy().into_owned(),
            system: system(&fs::read_to_string("/etc/os-release").unwrap_or_default()),
            file_system: file_system(mounts::here(), path),
            disk: disk::name(path),
            fsync_ms: None,
            versions,
            // Root alone is not enough where a container hides the groups.
            root: Group::create("probe").is_ok(),
        }
    }

    /// The same with what a commit costs on the disk of `path`.
    #[must_use]
    pub fn with_fsync(self, path: &Path) -> Self {
        Self { fsync_ms: disk::fsync_ms(path).ok(), ..self }
    }
}

/// What the first processor has of the instructions that ciphers use.
fn features(all: &str) -> Vec<String> {
    all.split_whitespace().filter(|flag| FEATURES.contains(flag)).map(str::to_owned).collect()
}

fn system(os_release: &str) -> String {
    let name = os_release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.unwrap_or_default().trim_matches('"').to_owned()
}

/// Type of the file system that `path` lies on: the last mount over its longest prefix.
fn file_system(mounts: Vec<MountInfo>, path: &Path) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let over = mounts.into_iter().filter(|mount| path.starts_with(&mount.mount_point));
    let nearest = over.max_by_key(|mount| mount.mount_point.as_os_str().len());
    nearest.map(|mount| mount.fs_type).unwrap_or_default()
}

/// At most three words of a CPU's name, for a directory: `AMD EPYC 7R13 Processor` is
/// `amd-epyc-7r13`.
fn slug(cpu: &str) -> String {
    let plain = cpu.replace("(R)", " ").replace("(TM)", " ").replace("(r)", " ").to_lowercase();
    let words = plain
        .split(|c: char| !c.is_ascii_alphanumeric())
        .take_while(|word| *word != "with")
        .filter(|word| !word.is_empty() && !NO_NAMES.contains(word) && !word.ends_with("ghz"))
        .take(3);
    let slug = words.collect::<Vec<_>>().join("-");
    if slug.is_empty() { std::env::consts::ARCH.to_owned() } else { slug }
}

/// Instructions that the speed of a cipher or hash depends on (x86-64, then AArch64).
const FEATURES: [&str; 12] = [
    "aes",
    "pclmulqdq",
    "avx2",
    "avx512f",
    "avx512vl",
    "vaes",
    "vpclmulqdq",
    "sha_ni",
    "pmull",
    "sha2",
    "sve",
    "sve2",
];

/// Words of CPU names that tell nothing.
const NO_NAMES: [&str; 5] = ["cpu", "processor", "core", "virtual", "r"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_processors_become_names_of_directories() {
        for (cpu, wanted) in [
            ("AMD EPYC", "amd-epyc"),
            ("AMD EPYC 7R13 Processor", "amd-epyc-7r13"),
            ("Intel(R) Xeon(R) Platinum 8488C CPU @ 2.40GHz", "intel-xeon-platinum"),
            ("AMD Ryzen 7 7840U w/ Radeon", "amd-ryzen-7"),
            ("", std::env::consts::ARCH),
        ] {
            assert_eq!(slug(cpu), wanted);
        }
    }

    #[test]
    fn the_nearest_and_last_mount_has_the_files() {
        let text = "27 1 254:0 / / rw - ext4 /dev/vda rw\n\
                      28 27 0:5 / /no rw - tmpfs t rw\n\
                      29 27 0:6 / /no/such rw - ext4 a rw\n\
                      30 27 0:7 / /no/such rw shared:1 - xfs b rw\n";
        let mounts = || mounts::parse(text);
        assert_eq!(file_system(mounts(), Path::new("/no/such/dir")), "xfs");
        assert_eq!(file_system(mounts(), Path::new("/no/suchdir")), "tmpfs");
        assert_eq!(file_system(mounts(), Path::new("/nowhere")), "ext4");
        assert_eq!(file_system(Vec::new(), Path::new("/nowhere")), "");
    }

    #[test]
    fn what_the_files_do_not_say_stays_empty() {
        assert_eq!(features("fp asimd aes pmull sha2 crc32"), ["aes", "pmull", "sha2"]);
        assert!(features("").is_empty() && system("").is_empty());
        assert_eq!(system("NAME=x\nPRETTY_NAME=\"Debian 12\"\n"), "Debian 12");
    }

    #[test]
    fn this_machine_can_be_read() {
        // What a chroot has as its root need not be mounted in it.
        let machine = Machine::read(Path::new("/proc"), BTreeMap::new());
        assert!(machine.cpus > 0 && machine.memory_mib > 0 && !machine.kernel.is_empty());
        assert_eq!(machine.file_system, "proc", "{machine:?}");
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        assert!(machine.name.chars().all(plain), "{}", machine.name);
    }
}

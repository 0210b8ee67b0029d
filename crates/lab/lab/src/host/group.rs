//! A control group that holds a server and all its children to the experiment's limits.
//!
//! One directory in each tree of the kernel's (version 1) or one in all (version 2), below the
//! group that the lab is in, so that limits on the lab hold for the server too. A version 2 group
//! with processes cannot have limited groups below it: there the nearest ancestor that can is
//! taken. Processes are never killed here; those that are left when the group ends go back to the
//! lab's group.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tidelock_servers::Process;

use super::caps::{Caps, Unlimited};
use super::device::DeviceNumber;
use super::hierarchy::{Controller, Hierarchy, Tree, Version};
use super::owner;
use super::throttle::{Throttle, set};

/// A group of this lab, removed on drop.
#[derive(Debug)]
pub struct Group {
    hierarchy: Hierarchy,
    /// The group's directory for each controller.
    dirs: BTreeMap<Controller, PathBuf>,
    seats: Vec<Seat>,
    caps: Caps,
    /// Whether the limit of memory is in force.
    limits_memory: bool,
    throttle: Option<Throttle>,
}

/// A directory that processes of the group are put into.
#[derive(Clone, Debug)]
struct Seat {
    dir: PathBuf,
    /// Where the lab itself is in this tree.
    home: PathBuf,
    version: Version,
    /// Whether this lab made it, and removes it.
    ours: bool,
}

impl Group {
    /// Makes a group without limits.
    ///
    /// # Errors
    /// The reason why there can be none here: no root, no control groups, a container that hides
    /// them.
    pub fn create(name: &str) -> Result<Self, Unlimited> {
        if !rustix::process::geteuid().is_root() {
            return Err(Unlimited::new("the limits of this experiment need root"));
        }
        Self::create_in(Hierarchy::here(), name)
    }

    /// One that counts nothing any more: somebody removed its directories.
    #[cfg(test)]
    pub(crate) fn vanished() -> Self {
        Self {
            hierarchy: Hierarchy::default(),
            dirs: BTreeMap::new(),
            seats: Vec::new(),
            caps: Caps::default(),
            limits_memory: false,
            throttle: None,
        }
    }

    fn create_in(hierarchy: Hierarchy, name: &str) -> Result<Self, Unlimited> {
        let mut group = Self {
            hierarchy: hierarchy.clone(),
            dirs: BTreeMap::new(),
            seats: Vec::new(),
            caps: Caps::default(),
            limits_memory: false,
            throttle: None,
        };
        for controller in [Controller::Cpu, Controller::Cpuacct, Controller::Memory, Controller::Io]
        {
            let Some(tree) = hierarchy.tree(controller) else { continue };
            if controller == Controller::Io && tree.version == Version::V1 {
                continue; // the rule is in the root group: see `throttle`
            }
            let dir = parent(tree).join(owner::name(name));
            if !group.seats.iter().any(|seat| seat.dir == dir) {
                fs::create_dir(&dir).map_err(|e| {
                    Unlimited::new(format!("no control group can be made: {}: {e}", dir.display()))
                })?;
                let (home, version) = (tree.own.clone(), tree.version);
                group.seats.push(Seat { dir: dir.clone(), home, version, ours: true });
            }
            group.dirs.insert(controller, dir);
        }
        match group.seats.is_empty() {
            true => Err(Unlimited::new("this kernel has no control groups mounted")),
            false => Ok(group),
        }
    }

    /// Sets the limits, once, before any process is in the group; `device` is the experiment's
    /// volume.
    ///
    /// Returns a reason for each limit that is not in force; the others are.
    #[must_use]
    pub fn apply(&mut self, caps: &Caps, device: Option<DeviceNumber>) -> Vec<Unlimited> {
        self.caps = *caps;
        [self.limit_cpus(caps), self.limit_memory(caps), self.limit_device(caps, device)]
            .into_iter()
            .filter_map(Result::err)
            .collect()
    }

    fn limit_cpus(&self, caps: &Caps) -> Result<(), Unlimited> {
        let Some(cpus) = caps.cpus else { return Ok(()) };
        let (dir, version) = self.dir(Controller::Cpu)?;
        let quota = (cpus * 1e6 * PERIOD.as_secs_f64()).round();
        let period = PERIOD.as_micros();
        match version {
            Version::V1 => {
                set(&dir.join("cpu.cfs_period_us"), &period.to_string())?;
                set(&dir.join("cpu.cfs_quota_us"), &quota.to_string())
            }
            Version::V2 => set(&dir.join("cpu.max"), &format!("{quota} {period}")),
        }
    }

    /// Swap is closed to the group, else the limit would only be one on speed.
    fn limit_memory(&mut self, caps: &Caps) -> Result<(), Unlimited> {
        let Some(bytes) = caps.memory_mib.map(|mib| (mib << 20).to_string()) else { return Ok(()) };
        let (dir, version) = self.dir(Controller::Memory)?;
        let (limit, with_swap, swap) = match version {
            Version::V1 => ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", &*bytes),
            Version::V2 => ("memory.max", "memory.swap.max", "0"),
        };
        let with_swap = dir.join(with_swap);
        set(&dir.join(limit), &bytes)?;
        // In force whatever becomes of swap.
        self.limits_memory = true;
        // Kernels without swap accounting have no such file.
        if with_swap.exists() { set(&with_swap, swap) } else { Ok(()) }
    }

    fn limit_device(&mut self, caps: &Caps, device: Option<DeviceNumber>) -> Result<(), Unlimited> {
        if !caps.limits_device() {
            return Ok(());
        }
        let Some(device) = device else {
            return Err(Unlimited::new("limits of I/O need a volume of the experiment's own"));
        };
        let Some(tree) = self.hierarchy.tree(Controller::Io) else {
            return Err(Unlimited::new("this kernel cannot limit I/O: no controller io or blkio"));
        };
        self.throttle = Some(match tree.version {
            Version::V1 => {
                if tree.own != tree.root {
                    let (dir, home) = (tree.root.clone(), tree.own.clone());
                    self.seats.push(Seat { dir, home, version: Version::V1, ours: false });
                }
                Throttle::version_1(&tree.root, device, caps)?
            }
            Version::V2 => Throttle::version_2(self.dir(Controller::Io)?.0, device, caps)?,
        });
        Ok(())
    }

    /// Does `work` so that every process that it starts is in the group from its first instruction.
    ///
    /// Version 1 moves this thread in and back. Version 2 can only move whole processes, so the lab
    /// with its other threads is in the group for as long: start servers in it, measure outside,
    /// start nothing else meanwhile. If the group runs out of memory then, the kernel may kill the
    /// lab: a limit has to leave room for a start. Others wait for their turn; `work` must not call
    /// this.
    ///
    /// # Errors
    /// When the kernel refuses to move us; then `work` was not done. When it refuses to move us
    /// back, `work` was done.
    pub fn inside<T>(&self, work: impl FnOnce() -> T) -> Result<T, Unlimited> {
        let moves_lab = self.seats.iter().any(|seat| seat.version == Version::V2);
        let _alone = moves_lab.then(|| MOVED.lock().unwrap_or_else(PoisonError::into_inner));
        let entered = self.seats.iter().try_for_each(|seat| seat.take_us(&seat.dir));
        let done = entered.map(|()| work());
        let left: Vec<_> = self.seats.iter().map(|seat| seat.take_us(&seat.home)).collect();
        let done = done?;
        left.into_iter().collect::<Result<(), Unlimited>>()?;
        Ok(done)
    }

    /// The processes in the group.
    #[must_use]
    pub fn processes(&self) -> Vec<Process> {
        let ours = self.seats.iter().find(|seat| seat.ours);
        ours.map(|seat| processes_in(&seat.dir)).unwrap_or_default()
    }

    /// Whether memory is limited, page cache included: not where the kernel refused the limit.
    #[must_use]
    pub fn limits_memory(&self) -> bool {
        self.limits_memory
    }

    /// CPU seconds, user and system, that its processes have used in it; ended ones too.
    #[must_use]
    pub fn cpu_seconds(&self) -> Option<f64> {
        let (dir, version) = self.dir(Controller::Cpuacct).ok()?;
        match version {
            Version::V1 => Some(number(&dir.join("cpuacct.usage"))? / 1e9),
            Version::V2 => Some(field(&dir.join("cpu.stat"), "usage_usec")? / 1e6),
        }
    }

    /// Directories whose CPU quota throttles the group though the experiment did not ask for it:
    /// those of a container, a service, a user.
    pub(super) fn foreign_quotas(&self) -> Vec<PathBuf> {
        let Some(tree) = self.hierarchy.tree(Controller::Cpu) else { return Vec::new() };
        let above = self.dirs.get(&Controller::Cpu).into_iter().flat_map(|dir| {
            let own = usize::from(self.caps.cpus.is_some());
            dir.ancestors().skip(own).take_while(|dir| dir.starts_with(&tree.root))
        });
        above.map(Path::to_path_buf).collect()
    }

    /// The group's directory where its own quota is counted.
    pub(super) fn own_quota(&self) -> Option<PathBuf> {
        self.dirs.get(&Controller::Cpu).cloned()
    }

    fn dir(&self, controller: Controller) -> Result<(&Path, Version), Unlimited> {
        let tree = self.hierarchy.tree(controller);
        match (self.dirs.get(&controller), tree) {
            (Some(dir), Some(tree)) => Ok((dir, tree.version)),
            _ => Err(Unlimited::new(format!("this kernel has no controller {controller:?}"))),
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.throttle = None;
        let until = Instant::now() + Duration::from_secs(2);
        for seat in self.seats.iter().filter(|seat| seat.ours) {
            while !processes_in(&seat.dir).is_empty() && Instant::now() < until {
                thread::sleep(Duration::from_millis(20));
            }
            remove(&seat.dir, &seat.home);
        }
    }
}

impl Seat {
    /// Moves this thread (version 1) or the lab (version 2) to `dir`, one of this tree.
    fn take_us(&self, dir: &Path) -> Result<(), Unlimited> {
        // Zero is whoever writes.
        match self.version {
            Version::V1 => set(&dir.join("tasks"), "0"),
            Version::V2 => set(&dir.join(PROCESSES), "0"),
        }
    }
}

/// Removes a group; processes that are still in it go to `home`. Whether it is gone.
pub(super) fn remove(dir: &Path, home: &Path) -> bool {
    let until = Instant::now() + Duration::from_secs(2);
    loop {
        for process in processes_in(dir) {
            let _ = fs::write(home.join(PROCESSES), process.id().to_string());
        }
        // A process that is ending keeps its group for a moment.
        match fs::remove_dir(dir) {
            Ok(()) => return true,
            Err(error) if error.kind() == ErrorKind::NotFound => return true,
            Err(_) if Instant::now() > until => return false,
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Seconds that the quota of `dir` held threads back, summed over processors.
pub(super) fn throttled_seconds(dir: &Path) -> f64 {
    let stat = dir.join("cpu.stat");
    let nanoseconds = field(&stat, "throttled_time").map(|n| n / 1e9);
    nanoseconds.or(field(&stat, "throttled_usec").map(|u| u / 1e6)).unwrap_or(0.0)
}

/// Where a group of ours can have limits.
fn parent(tree: &Tree) -> &Path {
    if tree.version == Version::V1 {
        return &tree.own;
    }
    let hands_down = |dir: &&Path| {
        let enabled = fs::read_to_string(dir.join(SUBTREE)).unwrap_or_default();
        LIMITING.iter().all(|name| enabled.split_whitespace().any(|word| word == *name))
    };
    let seen = tree.own.ancestors().take_while(|dir| dir.starts_with(&tree.root));
    seen.into_iter().find(hands_down).unwrap_or_else(|| {
        for name in LIMITING {
            // Whatever cannot be enabled is told when its limit is set.
            let enabled = fs::write(tree.root.join(SUBTREE), format!("+{name}"));
            // The top of a container has processes. `cpu` would be enabled there all the same, and
            // leave it a threaded group, which cannot have whole processes below it.
            if enabled.is_err_and(|error| error.kind() == ErrorKind::ResourceBusy) {
                break;
            }
        }
        &tree.root
    })
}

fn processes_in(dir: &Path) -> Vec<Process> {
    let listed = fs::read_to_string(dir.join(PROCESSES)).unwrap_or_default();
    listed.lines().filter_map(|line| Process::new(line.parse().ok()?)).collect()
}

fn number(file: &Path) -> Option<f64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn field(file: &Path, name: &str) -> Option<f64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// Held while the whole lab is in a group: another move would take its children elsewhere.
static MOVED: Mutex<()> = Mutex::new(());
/// Period of the CPU quota.
const PERIOD: Duration = Duration::from_millis(100);
/// The file that processes are listed in and moved by.
const PROCESSES: &str = "cgroup.procs";
/// What a group of version 2 hands down to those below it.
const SUBTREE: &str = "cgroup.subtree_control";
/// The controllers that limit something here; `cpu` is the last to be enabled.
const LIMITING: [&str; 3] = ["io", "memory", "cpu"];

#[cfg(test)]
mod tests;

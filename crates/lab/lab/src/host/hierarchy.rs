//! Where this kernel has its control groups: version 1 with a tree for each controller, version 2
//! with one tree, or both; and where we are in them.
//!
//! Formats: cgroups(7), proc(5) on mountinfo, Documentation/admin-guide/cgroup-{v1,v2} of the
//! kernel.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use procfs::process::MountInfo;

use super::mounts;

/// What limits or counts something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Controller {
    Cpu,
    /// Counts CPU time in version 1; part of `Cpu` in version 2.
    Cpuacct,
    Memory,
    Io,
}

/// Which interface a tree has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    V2,
}

/// A tree of groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tree {
    pub(super) version: Version,
    /// Its root, as far as it can be seen from here.
    pub(super) root: PathBuf,
    /// The group that we are in.
    pub(super) own: PathBuf,
}

/// The tree of each controller that exists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hierarchy(BTreeMap<Controller, Tree>);

impl Hierarchy {
    /// Reads /proc; empty where there are no control groups.
    pub(super) fn here() -> Self {
        let read = |name: &str| fs::read_to_string(name).unwrap_or_default();
        Self::parse(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"))
    }

    /// From the texts of mountinfo and cgroup; a controller that version 1 has is taken from there,
    /// since it can be in one place only.
    pub(super) fn parse(mountinfo: &str, cgroup: &str) -> Self {
        let mut trees = BTreeMap::new();
        for mount in mounts::parse(mountinfo) {
            let own = |names: &str| dir(&mount, path_in(cgroup, names)?);
            if mount.fs_type == "cgroup2" {
                let Some(own) = own("") else { continue };
                let offered = fs::read_to_string(mount.mount_point.join("cgroup.controllers"));
                for name in offered.unwrap_or_default().split_whitespace() {
                    for controller in of_v2(name) {
                        let tree = Tree {
                            version: Version::V2,
                            root: mount.mount_point.clone(),
                            own: own.clone(),
                        };
                        trees.entry(*controller).or_insert(tree);
                    }
                }
            } else if mount.fs_type == "cgroup" {
                for name in mount.super_options.keys() {
                    let (Some(controller), Some(own)) = (of_v1(name), own(name)) else { continue };
                    let root = mount.mount_point.clone();
                    let tree = Tree { version: Version::V1, root, own };
                    trees.insert(controller, tree);
                }
            }
        }
        Self(trees)
    }

    /// The tree of a controller.
    pub(super) fn tree(&self, controller: Controller) -> Option<&Tree> {
        self.0.get(&controller)
    }

    /// Every tree once.
    pub(super) fn trees(&self) -> Vec<&Tree> {
        let mut trees: Vec<&Tree> = Vec::new();
        for tree in self.0.values() {
            if !trees.contains(&tree) {
                trees.push(tree);
            }
        }
        trees
    }
}

fn of_v1(name: &str) -> Option<Controller> {
    Some(match name {
        "cpu" => Controller::Cpu,
        "cpuacct" => Controller::Cpuacct,
        "memory" => Controller::Memory,
        "blkio" => Controller::Io,
        _ => return None,
    })
}

fn of_v2(name: &str) -> &'static [Controller] {
    match name {
        "cpu" => &[Controller::Cpu, Controller::Cpuacct],
        "memory" => &[Controller::Memory],
        "io" => &[Controller::Io],
        _ => &[],
    }
}

/// Our path in the tree of a controller; the name of version 2 is empty.
fn path_in<'t>(cgroup: &'t str, controller: &str) -> Option<&'t Path> {
    cgroup.lines().find_map(|line| {
        let (names, path) = line.split_once(':')?.1.split_once(':')?;
        names.split(',').any(|name| name == controller).then(|| Path::new(path))
    })
}

/// Where the group `path` is seen: a container may see only a part of the tree. `None` where one of
/// both begins outside of our name space (`..`), for then the other does not tell where it is.
fn dir(mount: &MountInfo, path: &Path) -> Option<PathBuf> {
    let (root, point) = (Path::new(&mount.root), &mount.mount_point);
    let outside = |path: &Path| path.components().any(|part| part == Component::ParentDir);
    let below = match path.strip_prefix(root) {
        Ok(below) => below,
        Err(_) if outside(root) => return None,
        Err(_) => path.strip_prefix("/").unwrap_or(Path::new("")),
    };
    match below {
        below if outside(below) => None,
        below if below.as_os_str().is_empty() => Some(point.clone()),
        below => Some(point.join(below)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separate_and_joint_trees_of_version_1_are_found() {
        let mounts = "24 23 0:22 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpuacct,cpu\n\
                      25 23 0:23 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
                      26 23 0:24 /box /sys/fs/cgroup/blkio rw shared:4 - cgroup cgroup rw,blkio\n";
        let groups = "4:memory:/a/b\n3:cpuacct,cpu:/\n2:blkio:/box/in\n0::/\n";
        let found = Hierarchy::parse(mounts, groups);
        let own = |controller| found.tree(controller).unwrap().own.to_str().unwrap().to_owned();
        assert_eq!(own(Controller::Cpu), "/sys/fs/cgroup/cpu,cpuacct");
        assert_eq!(own(Controller::Cpuacct), own(Controller::Cpu));
        assert_eq!(own(Controller::Memory), "/sys/fs/cgroup/memory/a/b");
        assert_eq!(own(Controller::Io), "/sys/fs/cgroup/blkio/in");
        assert_eq!(found.trees().len(), 3);
    }

    #[test]
    fn version_2_has_what_version_1_has_not() {
        let fake = tempfile::tempdir().unwrap();
        fs::write(fake.path().join("cgroup.controllers"), "cpu io memory pids\n").unwrap();
        let point = fake.path().display();
        let mounts = format!(
            "25 23 0:23 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
             30 23 0:9 / {point} rw - cgroup2 cgroup2 rw\n"
        );
        let found = Hierarchy::parse(&mounts, "4:memory:/\n0::/user.slice\n");
        let tree = found.tree(Controller::Cpuacct).unwrap();
        assert_eq!((tree.version, &tree.own), (Version::V2, &fake.path().join("user.slice")));
        assert_eq!(found.tree(Controller::Memory).unwrap().version, Version::V1);
        assert_eq!(found.tree(Controller::Io).unwrap().version, Version::V2);
        assert_eq!(Hierarchy::parse("", ""), Hierarchy::default());
    }

    #[test]
    fn what_lies_outside_of_the_name_space_is_not_guessed() {
        let fake = tempfile::tempdir().unwrap();
        fs::write(fake.path().join("cgroup.controllers"), "cpu io memory\n").unwrap();
        let own = |root: &str, group: &str| {
            let mount = format!("30 23 0:9 {root} {} rw - cgroup2 c rw\n", fake.path().display());
            let found = Hierarchy::parse(&mount, &format!("0::{group}\n"));
            found.tree(Controller::Cpu).map(|tree| tree.own.clone())
        };
        assert_eq!(own("/", "/../out"), None, "we are outside of what is mounted");
        assert_eq!(own("/..", "/"), None, "the mount shows more, and not what we are called there");
        assert_eq!(own("/..", "/../out"), Some(fake.path().join("out")));
        assert_eq!(own("/", "/in"), Some(fake.path().join("in")));
    }
}

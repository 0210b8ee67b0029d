//! Does a server run on a protected directory, and is the library really loaded in it?
//!
//! ld.so only warns when it cannot load a library; what /proc says of the running process decides.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use procfs::process::{Process, all_processes};
use serde::Serialize;
use tidelock_contract::Policy;

use crate::console;
use crate::exec::Library;
use crate::mysqld::{self, Brand};
use crate::owner::Owner;
use crate::walk::read_small;
use crate::whereabouts::{DELETED, Identity, program_name, used_below, works_below, works_in};

/// The library's file.
const LIBRARY: &[u8] = b"libtidelock_preload.so";
/// The program of a server of PostgreSQL, and of each of its processes.
const POSTGRES: &str = "postgres";
/// It has this file as long as it runs.
const POSTMASTER: &str = "postmaster.pid";

/// The server of a directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub(crate) enum Server {
    /// None runs.
    Stopped,
    /// It has left its mark, and its processes cannot be looked at.
    Unseen,
    /// This process.
    Running {
        /// Its id.
        pid: u32,
        /// Its program, if it can be seen.
        #[serde(serialize_with = "console::lossy_if_any")]
        program: Option<PathBuf>,
        /// Is the library in it?
        library: Loaded,
    },
}

/// Is the library in a process?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Loaded {
    /// It is.
    #[serde(rename = "loaded")]
    Yes,
    /// No: the process does not see sealed files as plain.
    #[serde(rename = "not_loaded")]
    No,
    /// The process is somebody else's, or hidden.
    CannotBeTold,
}

impl Server {
    /// The server that works in `dir`: PostgreSQL's says so in a file, another is looked for. One
    /// that may work there and is hidden counts: that none runs is not said on a guess.
    pub(crate) fn on(dir: &Path) -> Self {
        match mysqld::server_on(dir).or_else(|| mysqld::hidden_server_on(dir)) {
            Some(pid) => Self::process(pid),
            None => Self::of_postmaster(dir),
        }
    }

    /// As [`Server::on`], and of another engine a program: one that the policy lists and that works
    /// below `dir` or has a file there open or mapped, else one of `with_keys`. Redis has no file
    /// open between dumps. A server of PostgreSQL, MariaDB or MySQL would show itself: where one
    /// belongs, a shell with keys is not taken for it.
    pub(crate) fn or_program_on(dir: &Path, with_keys: &[i32], policy: Option<&Policy>) -> Self {
        let found = Self::on(dir);
        if found != Self::Stopped {
            return found;
        }
        if is_known(dir, policy.map_or("", Policy::profile)) {
            return Self::Stopped;
        }
        let me = std::process::id();
        let mut pids = with_keys.iter().filter_map(|pid| u32::try_from(*pid).ok());
        let listed = policy.and_then(|policy| listed_on(dir, policy));
        let program = listed.or_else(|| pids.find(|pid| *pid != me));
        program.map_or(Self::Stopped, Self::process)
    }

    /// The server that wrote `postmaster.pid` in `dir`, if it lives and works there. The number in
    /// it is that of its own pid namespace, which may be a container's.
    fn of_postmaster(dir: &Path) -> Self {
        let Ok(text) = read_small(&dir.join(POSTMASTER)) else {
            return Self::Stopped;
        };
        let number = text.lines().next().and_then(|line| line.trim().parse::<u32>().ok());
        match number.filter(|pid| may_work_in(*pid, dir)) {
            Some(pid) => Self::process(pid),
            None if dir.join("PG_VERSION").exists() => Self::of_container(dir),
            None => Self::Stopped,
        }
    }

    /// The server of PostgreSQL that works in `dir`, whatever its number is there. By its program:
    /// a client or a shell may work in the directory of a server that has crashed.
    fn of_container(dir: &Path) -> Self {
        let (Ok(place), Ok(all)) = (Identity::of(dir), fs::read_dir("/proc")) else {
            return Self::Unseen;
        };
        let owner = Owner::of(dir).map(|owner| owner.uid).ok();
        let (mut found, mut hidden) = (Vec::new(), false);
        for entry in all.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok())
            else {
                continue;
            };
            let process = entry.path();
            match fs::read_link(process.join("exe")) {
                Ok(program) if program_name(&program) == POSTGRES => {
                    match Identity::of(&process.join("cwd")) {
                        Ok(works) if works == place => found.push(pid),
                        Err(why) => hidden |= why.kind() == io::ErrorKind::PermissionDenied,
                        Ok(_) => {}
                    }
                }
                Err(why) if why.kind() == io::ErrorKind::PermissionDenied => {
                    hidden |= is_hidden_postgres(&process, owner);
                }
                _ => {}
            }
        }
        // Its children work there too.
        let parent = |pid: u32| {
            let process = Process::new(i32::try_from(pid).ok()?).ok()?;
            u32::try_from(process.stat().ok()?.ppid).ok()
        };
        let is_head = |pid: &&u32| parent(**pid).is_some_and(|above| !found.contains(&above));
        match found.iter().find(is_head).or(found.first()) {
            Some(pid) => Self::process(*pid),
            None if hidden => Self::Unseen,
            None => Self::Stopped,
        }
    }

    /// True if the library in it is another file than the one that this command starts programs
    /// with, as after an upgrade.
    pub(crate) fn has_another_library(&self) -> bool {
        let Self::Running { pid, library: Loaded::Yes, .. } = self else { return false };
        let Ok(library) = Library::find() else { return false };
        let process = PathBuf::from(format!("/proc/{pid}"));
        let Ok(maps) = fs::read(process.join("maps")) else { return false };
        let mut mapped = maps.split(|byte| *byte == b'\n').filter(|line| is_ours(line)).peekable();
        mapped.peek().is_some() && !mapped.any(|line| is_mapped(line, &process, &library.path))
    }

    /// This process, whatever it is.
    pub(crate) fn process(pid: u32) -> Self {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let program = fs::read_link(process.join("exe")).ok();
        Self::Running { pid, program, library: Loaded::of(&process) }
    }
}

impl Loaded {
    /// Is it in the process whose folder in /proc is `process`? Read as bytes: mapped files have
    /// any names.
    pub(crate) fn of(process: &Path) -> Self {
        match fs::read(process.join("maps")) {
            // A process that ended, or a kernel thread, has no maps.
            Ok(maps) if maps.is_empty() => Self::CannotBeTold,
            Ok(maps) => {
                if maps.split(|byte| *byte == b'\n').any(is_ours) {
                    Self::Yes
                } else {
                    Self::No
                }
            }
            Err(why) if why.kind() == io::ErrorKind::NotFound => Self::No,
            Err(_) => Self::CannotBeTold,
        }
    }
}

/// True if [`Server::on`] knows the server of a directory, by its files or the name of its profile.
pub(crate) fn is_known(dir: &Path, profile: &str) -> bool {
    profile == POSTGRES
        || Brand::of_profile(profile).is_some()
        || dir.join("PG_VERSION").exists()
        || Brand::of(dir).is_some()
}

/// A program that the policy lists, and that works below `dir` or has a file there open or mapped.
fn listed_on(dir: &Path, policy: &Policy) -> Option<u32> {
    let me = std::process::id().cast_signed();
    let others = all_processes().into_iter().flatten().flatten().filter(|one| one.pid != me);
    let is_listed = |process: &Process| {
        let Ok(program) = process.exe() else { return false };
        // One that was replaced by an upgrade, too.
        let path = program.as_os_str().as_bytes();
        policy.lists(path.strip_suffix(DELETED.as_bytes()).unwrap_or(path))
    };
    let is_here =
        |process: &Process| works_below(process, dir) || used_below(process, dir).next().is_some();
    let mut found = others.filter(is_listed).filter(is_here);
    found.find_map(|process| u32::try_from(process.pid).ok())
}

/// A process has this number, and works in `dir` as far as it shows that: a number may have been
/// given away since, and servers work in their directory.
fn may_work_in(pid: u32, dir: &Path) -> bool {
    Path::new(&format!("/proc/{pid}")).is_dir() && works_in(pid, dir).unwrap_or(true)
}

/// A process of the owner that has the name of a server, whatever else it hides.
fn is_hidden_postgres(process: &Path, owner: Option<u32>) -> bool {
    let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
    // What is not dumpable is root's here, and may be anybody's.
    let user = fs::metadata(process).map(|found| found.uid()).ok();
    name.trim_end() == POSTGRES && (user == owner || user == Some(0))
}

/// A line of /proc/PID/maps that has the library.
fn is_ours(line: &[u8]) -> bool {
    line.rsplit(|byte| *byte == b'/').next().is_some_and(|name| name.starts_with(LIBRARY))
}

/// True if this line of the maps of a process is of the file `library`. Btrfs and overlays show
/// another device there than stat(2) does; then what the process has at that path decides.
fn is_mapped(line: &[u8], process: &Path, library: &Path) -> bool {
    let Ok(file) = fs::metadata(library) else { return false };
    if mapped_file(line) == Some((file.dev(), file.ino())) {
        return true;
    }
    let Some(at) = line.iter().position(|byte| *byte == b'/') else { return false };
    let path = line.get(at + 1..).unwrap_or_default();
    if path.ends_with(DELETED.as_bytes()) {
        return false;
    }
    let there = process.join("root").join(OsStr::from_bytes(path));
    matches!((Identity::of(&there), Identity::of(library)), (Ok(one), Ok(two)) if one == two)
}

/// Device and inode in a line of /proc/PID/maps: range, rights, offset, device, inode, path.
fn mapped_file(line: &[u8]) -> Option<(u64, u64)> {
    let line = String::from_utf8_lossy(line);
    let mut fields = line.split_ascii_whitespace().skip(3);
    let (major, minor) = fields.next()?.split_once(':')?;
    let number = |text: &str| u32::from_str_radix(text, 16).ok();
    let device = rustix::fs::makedev(number(major)?, number(minor)?);
    Some((device, fields.next()?.parse().ok()?))
}

/// The unit of systemd that a process runs in, by its control group.
pub(crate) fn unit_of(pid: u32) -> Option<String> {
    service_in(&fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?)
}

/// The innermost service, but for those of user sessions. Of the hierarchies of version 1, only
/// systemd's own shows each session; a systemd that has version 2 alone, as in a container, puts
/// nothing there.
fn service_in(groups: &str) -> Option<String> {
    let is_own =
        |line: &&str| line.split_once(":name=systemd:").is_some_and(|(_, path)| path.trim() != "/");
    let own = groups.lines().find(is_own).unwrap_or(groups);
    let mut lines = own.lines().filter(|line| !line.contains("/user.slice/"));
    let unit = lines.find_map(|line| line.rsplit('/').find(|name| name.ends_with(".service")))?;
    Some(unit.to_owned())
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    #[test]
    fn the_unit_of_a_server_is_that_of_its_control_group() {
        let groups = "0::/system.slice/system-postgresql.slice/postgresql@15-main.service\n";
        assert_eq!(service_in(groups).as_deref(), Some("postgresql@15-main.service"));
        let own = service_in("9:pids:/\n0::/data.slice/patroni.service\n");
        assert_eq!(own.as_deref(), Some("patroni.service"));
        assert_eq!(service_in("0::/user.slice/user-0.slice/session-1.scope\n"), None);
        let old = "8:devices:/system.slice/a.service\n1:name=systemd:/user.slice/b.scope\n";
        assert_eq!(service_in(old), None);
        let inner = "9:name=systemd:/\n4:memory:/x/y\n0::/system.slice/mine.service\n";
        assert_eq!(service_in(inner).as_deref(), Some("mine.service"));
        assert_eq!(service_in("0::/user.slice/user-0.slice/user@0.service/a.service\n"), None);
    }

    /// `sleep` by another name, which works in `dir`.
    fn sleeper(program: &Path, dir: &Path) -> Child {
        // Written by another process: what this one has open for writing, a child of another test
        // may hold for a moment, and then nothing runs it.
        if !program.exists() {
            assert!(Command::new("cp").arg("/bin/sleep").arg(program).status().unwrap().success());
        }
        Command::new(program).arg("60").current_dir(dir).spawn().unwrap()
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_server_with_another_number_than_it_wrote_is_found_and_no_client_is_one() {
        let home = tempfile::tempdir().unwrap();
        let (dir, other) = (home.path().join("data"), home.path().join("other"));
        for place in [&dir, &other] {
            fs::create_dir(place).unwrap();
            fs::write(place.join("PG_VERSION"), "15\n").unwrap();
            // The first process of a container; here it works elsewhere.
            fs::write(place.join(POSTMASTER), "1\n").unwrap();
        }
        let client = sleeper(&home.path().join("psql"), &dir);
        let beside = sleeper(&home.path().join("postgres"), &other);
        let running = |dir: &Path| match Server::of_container(dir) {
            Server::Running { pid, .. } => Some(pid),
            _ => None,
        };
        assert_eq!((running(&dir), running(&other)), (None, Some(beside.id())));
        let server = sleeper(&home.path().join("postgres"), &dir);
        assert_eq!(running(&dir), Some(server.id()));
        end(server);
        assert_eq!(running(&dir), None);
        end(client);
        end(beside);
    }

    #[test]
    fn a_mapped_file_is_told_by_device_and_inode_and_not_by_its_name() {
        let line = b"7f00-7f01 r-xp 00001000 fe:01 4711   /usr/lib/libtidelock_preload.so";
        assert!(is_ours(line));
        assert_eq!(mapped_file(line), Some((rustix::fs::makedev(0xfe, 1), 4711)));
        assert_eq!(mapped_file(b""), None);
        let home = tempfile::tempdir().unwrap();
        let library = home.path().join("libtidelock_preload.so");
        fs::write(&library, "the library").unwrap();
        let myself = Path::new("/proc/self");
        let at = |path: &Path, mark: &str| {
            format!("7f00-7f01 r-xp 0 00:00 1 {}{mark}", path.display()).into_bytes()
        };
        // The numbers are another file system's: what is at the path decides.
        assert!(is_mapped(&at(&library, ""), myself, &library));
        assert!(!is_mapped(&at(&library, " (deleted)"), myself, &library));
        let old = home.path().join("old");
        fs::write(&old, "another file").unwrap();
        assert!(!is_mapped(&at(&old, ""), myself, &library));
    }
}

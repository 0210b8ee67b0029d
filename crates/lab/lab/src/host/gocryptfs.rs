//! gocryptfs mounted over a private directory: what users do today who cannot encrypt the disk.
//!
//! `gocryptfs -init -passfile FILE -scryptn 10`: the cost of the password's scrypt is the lowest
//! that it takes (2^10; its default 2^16 takes a second at each mount), because the password guards
//! nothing here and is not what is measured. Contents are encrypted exactly as with the default:
//! AES-256-GCM in blocks of 4096 bytes. It runs in the foreground, as a child of the lab, so that
//! its CPU time can be counted.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tidelock_servers::{Account, Bounded as _, Process, Started};

use super::mounts;
use super::owner;
use super::program::{found, run_program};
use crate::error::{Error, Result};

/// What gocryptfs says when it serves.
const READY: &str = "mounted and ready";

/// A mount, undone on drop with everything that was stored in it.
#[derive(Debug)]
pub struct GocryptfsMount {
    child: Started,
    root: PathBuf,
    _private: tempfile::TempDir,
}

impl GocryptfsMount {
    /// Why gocryptfs cannot be mounted here; `None` if it can be tried.
    #[must_use]
    pub fn missing() -> Option<String> {
        let fusermount = ["fusermount3", "fusermount"].into_iter().any(found);
        let device = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
        if !found("gocryptfs") {
            Some("gocryptfs is not installed".into())
        } else if !fusermount && !rustix::process::geteuid().is_root() {
            Some("fusermount is not installed".into())
        } else {
            device.err().map(|error| format!("/dev/fuse cannot be opened: {error}"))
        }
    }

    /// Makes and mounts an empty file system whose root belongs to `account`, ciphertext below
    /// `base`.
    ///
    /// Start it inside the server's group: what it uses is part of what the server costs.
    ///
    /// # Errors
    /// When [`Self::missing`] says why not, or gocryptfs fails, with what it said.
    pub fn mount(base: &Path, account: &Account) -> Result<Self> {
        if let Some(why) = Self::missing() {
            return Err(Error::Other(why));
        }
        let prefix = owner::name("gocryptfs-");
        let failed = || Error::io(format!("making a private directory below {}", base.display()));
        let private = tempfile::Builder::new().prefix(&prefix).tempdir_in(base).map_err(failed())?;
        let path = |name: &str| private.path().join(name);
        let (cipher, root, password, log) =
            (path("cipher"), path("root"), path("password"), path("log"));
        let mode = |mode| fs::Permissions::from_mode(mode);
        fs::set_permissions(private.path(), mode(0o711)).map_err(failed())?;
        fs::create_dir(&cipher).map_err(failed())?;
        fs::create_dir(&root).map_err(failed())?;
        fs::set_permissions(&cipher, mode(0o700)).map_err(failed())?;
        fs::write(&password, "").map_err(failed())?;
        fs::set_permissions(&password, mode(0o600)).map_err(failed())?;
        let random = fs::read_to_string("/proc/sys/kernel/random/uuid").map_err(failed())?;
        fs::write(&password, random).map_err(failed())?;
        let gocryptfs = || {
            let mut command = Command::new("gocryptfs");
            command.args(["-nosyslog", "-passfile"]).arg(&password);
            command
        };
        run_program(gocryptfs().args(["-q", "-init", "-scryptn", "10"]).arg(&cipher))?;
        let mut mount = gocryptfs();
        mount.arg("-fg");
        if account.switches() {
            mount.arg("-allow_other");
        }
        let said = fs::File::create(&log).map_err(failed())?;
        let also = said.try_clone().map_err(failed())?;
        mount.arg(&cipher).arg(&root).stdin(Stdio::null()).stdout(said).stderr(also);
        // Ctrl-C is for the lab alone: its servers end before what they stand on.
        mount.process_group(0);
        let child = mount.start().map_err(Error::io("starting gocryptfs"))?;
        let mut mount = Self { child, root, _private: private };
        mount.wait_until_ready(&log)?;
        account.give(&mount.root)?;
        fs::set_permissions(&mount.root, mode(0o700))
            .map_err(Error::io(format!("preparing {}", mount.root.display())))?;
        Ok(mount)
    }

    /// Where plaintext is seen.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The process that encrypts; `tidelock_servers::cpu_seconds` tells what it used.
    #[must_use]
    pub fn process(&self) -> Option<Process> {
        Process::new(i32::try_from(self.child.id()).ok()?)
    }

    /// Until it says that it is ready. The mount is there before that: gocryptfs then opens a name
    /// in it itself, and if somebody makes a file there at the same moment, the two wait for each
    /// other for ever.
    fn wait_until_ready(&mut self, log: &Path) -> Result<()> {
        let start = Instant::now();
        loop {
            let said = fs::read_to_string(log).unwrap_or_default();
            if said.contains(READY) && is_mounted(&self.root) {
                return Ok(());
            }
            let ended = self.child.try_wait().map_err(Error::io("waiting for gocryptfs"))?;
            if ended.is_some() || start.elapsed() > Duration::from_secs(30) {
                let why = format!("gocryptfs did not say {READY:?}, but: {}", said.trim());
                return Err(Error::Other(why));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for GocryptfsMount {
    fn drop(&mut self) {
        let until = Instant::now() + Duration::from_secs(15);
        while is_mounted(&self.root) && !unmounted(&self.root, false) {
            if Instant::now() > until {
                unmounted(&self.root, true);
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
        // Without its mount it ends by itself; before the mount there was nothing to lose.
        let _ = self.child.ended_within(Duration::from_millis(50));
    }
}

/// Unmounts as root, or as the owner through the setuid program of libfuse; whether it did.
pub(super) fn unmounted(root: &Path, lazy: bool) -> bool {
    let lazy = if lazy { "-z" } else { "-u" };
    let by =
        |program: &str| run_program(Command::new(program).args(["-u", lazy]).arg(root)).is_ok();
    let as_root = || {
        let lazy: &[&str] = if lazy == "-z" { &["--lazy"] } else { &[] };
        run_program(Command::new("umount").args(lazy).arg(root)).is_ok()
    };
    (rustix::process::geteuid().is_root() && as_root()) || by("fusermount3") || by("fusermount")
}

/// Whether a file system is mounted here.
fn is_mounted(root: &Path) -> bool {
    mounts::here().iter().any(|mount| mount.mount_point == root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_lies_encrypted() {
        if let Some(why) = GocryptfsMount::missing() {
            eprintln!("cannot run here: {why}");
            let account = Account::of_servers().unwrap();
            assert!(GocryptfsMount::mount(&std::env::temp_dir(), &account).is_err());
            return;
        }
        let account = Account::of_servers().unwrap();
        let base = tempfile::tempdir().unwrap();
        let mount = GocryptfsMount::mount(base.path(), &account).unwrap();
        let marker = "a marker that must not be found ".repeat(200);
        fs::write(mount.root().join("file"), &marker).unwrap();
        assert_eq!(fs::read_to_string(mount.root().join("file")).unwrap(), marker);
        let cipher = mount.root().with_file_name("cipher");
        let mut sizes = 0;
        for entry in fs::read_dir(&cipher).unwrap() {
            let bytes = fs::read(entry.unwrap().path()).unwrap();
            assert!(!bytes.windows(8).any(|w| w == b"a marker"));
            sizes += bytes.len();
        }
        assert!(sizes > marker.len(), "nothing was stored");
        let mut touch = Command::new("touch");
        account.apply(touch.arg(mount.root().join("theirs")));
        assert!(touch.status().unwrap().success(), "the servers' account cannot write");
        assert!(mount.process().unwrap().lives());
        let root = mount.root().to_path_buf();
        drop(mount);
        assert!(!is_mounted(&root) && !root.exists());
    }
}

//! A file system of its own on a loop device, mounted at a private directory.
//!
//! Its device number is the experiment's alone, so that what is limited and counted there is the
//! server's I/O and nothing else. The kernel may encrypt what lies on it: below the file system
//! ([`VolumeType::Luks`]) or in it ([`VolumeType::Fscrypt`]). Needs root.

use std::fmt;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use tidelock_servers::Process;

use super::device::DeviceNumber;
use super::fscrypt::Fscrypt;
use super::luks::Luks;
use super::owner;
use super::program::{run_program, text_of};
use super::throttle::Throttle;
use crate::experiment::VolumeType;

/// How long an old mount of the image may stay in another namespace.
const DETACHED: Duration = Duration::from_secs(60);

/// A volume. Dropping it unmounts it and removes its image.
#[derive(Debug)]
pub struct Volume {
    fs: FileSystem,
    kind: Image,
    image: PathBuf,
    root: PathBuf,
    encryption: Encryption,
    mounted: bool,
    _private: tempfile::TempDir,
}

/// What encrypts a volume.
#[derive(Debug)]
enum Encryption {
    None,
    /// All of it.
    Luks(Luks),
    /// One directory on it.
    Fscrypt(Fscrypt),
}

impl Volume {
    /// Why this machine cannot have such a volume; `None` if it can be tried.
    #[must_use]
    pub fn missing(kind: VolumeType) -> Option<String> {
        if !rustix::process::geteuid().is_root() {
            return Some(VolumeError::NotRoot.to_string());
        }
        if !Path::new("/dev/loop-control").exists() {
            return Some(
                "there are no loop devices here, which a volume of one's own needs".into(),
            );
        }
        match kind {
            VolumeType::Ext4 => None,
            VolumeType::Luks => Luks::missing(),
            VolumeType::Fscrypt => Fscrypt::missing(),
        }
    }

    /// Makes and mounts a volume of `mib` MiB in a private directory below `base`.
    ///
    /// # Errors
    /// Without root, without mkfs, losetup or mount, or when `base` is full.
    pub fn create(base: &Path, fs: FileSystem, mib: u64, kind: Image) -> Result<Self, VolumeError> {
        let mut volume = Self::empty(base, fs, mib, kind)?;
        make_file_system(fs, &[], &volume.image)?;
        volume.mount()?;
        Ok(volume)
    }

    /// The same with ext4, encrypted as `kind` says. The key is random, and lies in a file beside
    /// the image that nobody else can read.
    ///
    /// # Errors
    /// As [`Self::create`], and when [`Self::missing`] says why not.
    pub fn of_type(
        base: &Path,
        kind: VolumeType,
        mib: u64,
        image: Image,
    ) -> Result<Self, VolumeError> {
        let fs = FileSystem::Ext4;
        let mut volume = Self::empty(base, fs, mib, image)?;
        let key = volume.image.with_file_name("key");
        match kind {
            VolumeType::Ext4 => {
                make_file_system(fs, &[], &volume.image)?;
                volume.mount()?;
            }
            VolumeType::Luks => {
                make_key(&key)?;
                let name = volume.image.parent().and_then(Path::file_name).unwrap_or_default();
                let name = name.to_string_lossy().into_owned();
                volume.encryption = Encryption::Luks(Luks::format(&volume.image, name, key)?);
                volume.mount_after(|device| make_file_system(fs, &[], device))?;
            }
            VolumeType::Fscrypt => {
                make_key(&key)?;
                make_file_system(fs, &["-O", "encrypt"], &volume.image)?;
                let fscrypt = Fscrypt::new(key);
                volume.mount()?;
                let identifier = fscrypt.unlock(&volume.root)?;
                volume.encryption = Encryption::Fscrypt(fscrypt);
                Fscrypt::make(&volume.data(), &identifier)?;
            }
        }
        Ok(volume)
    }

    /// An image of zeros.
    fn empty(base: &Path, fs: FileSystem, mib: u64, kind: Image) -> Result<Self, VolumeError> {
        if !rustix::process::geteuid().is_root() {
            return Err(VolumeError::NotRoot);
        }
        let prefix = owner::name("volume-");
        let private = tempfile::Builder::new().prefix(&prefix).tempdir_in(base)?;
        let (image, root) = (private.path().join("image"), private.path().join("root"));
        let file = fs::File::create_new(&image)?;
        file.set_len(mib << 20)?;
        if kind == Image::Direct {
            reserve(&file, mib << 20)?;
        }
        fs::create_dir(&root)?;
        // The server's own user has to reach the root of the volume.
        fs::set_permissions(private.path(), fs::Permissions::from_mode(0o755))?;
        let encryption = Encryption::None;
        Ok(Self { fs, kind, image, root, encryption, mounted: false, _private: private })
    }

    /// The root directory of the volume; root's own at first.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where data has to lie to be encrypted: in a directory of it under fscrypt, else the root.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        match self.encryption {
            Encryption::Fscrypt(_) => self.root.join("encrypted"),
            Encryption::None | Encryption::Luks(_) => self.root.clone(),
        }
    }

    /// Which file system this is.
    #[must_use]
    pub fn file_system(&self) -> FileSystem {
        self.fs
    }

    /// The block device below it.
    ///
    /// # Errors
    /// When the root directory cannot be examined.
    pub fn device(&self) -> io::Result<DeviceNumber> {
        DeviceNumber::of(&self.root)
    }

    /// Mounts the volume, which replays its journal. The kernel chooses a free loop device each
    /// time.
    ///
    /// # Errors
    /// When losetup or mount refuses.
    pub fn mount(&mut self) -> Result<(), VolumeError> {
        self.mount_after(|_| Ok(()))
    }

    /// The same, after `prepare` was done with the device.
    fn mount_after(
        &mut self,
        prepare: impl FnOnce(&Path) -> Result<(), VolumeError>,
    ) -> Result<(), VolumeError> {
        self.wait_until_detached()?;
        let mut attach = Command::new("losetup");
        attach.args(["--find", "--show"]);
        if self.kind == Image::Direct {
            attach.arg("--direct-io=on");
        }
        let device = text_of(attach.arg(&self.image))?;
        let device = Path::new(device.trim());
        let plain = match &self.encryption {
            Encryption::Luks(luks) => luks.open(device),
            Encryption::None | Encryption::Fscrypt(_) => Ok(device.to_path_buf()),
        };
        let mounted = plain.and_then(|plain| {
            prepare(&plain)?;
            run_program(Command::new("mount").arg(&plain).arg(&self.root))
        });
        // What is mounted is closed and detached as soon as it is unmounted, even if this lab dies.
        let closed = match &self.encryption {
            Encryption::Luks(luks) => luks.close_unused(),
            Encryption::None | Encryption::Fscrypt(_) => Ok(()),
        };
        let detached = run_program(Command::new("losetup").arg("--detach").arg(device));
        mounted?;
        self.mounted = true;
        Throttle::clear(self.device()?);
        if let Encryption::Fscrypt(fscrypt) = &self.encryption {
            fscrypt.unlock(&self.root)?;
        }
        closed.and(detached)
    }

    /// A namespace that was made while the volume was mounted may hold the old mount a little
    /// longer. Two mounts of one image would destroy it.
    fn wait_until_detached(&self) -> Result<(), VolumeError> {
        let until = Instant::now() + DETACHED;
        loop {
            let mut ask = Command::new("losetup");
            let left = text_of(ask.arg("--associated").arg(&self.image))?;
            if left.trim().is_empty() {
                return Ok(());
            }
            if Instant::now() > until {
                let command = "mount".to_owned();
                let said = format!("the image is still mounted elsewhere: {}", left.trim());
                return Err(VolumeError::Refused { command, said });
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Unmounts the volume once nobody uses it.
    ///
    /// # Errors
    /// When something still holds it after `patience`, with who it is.
    pub fn unmount(&mut self, patience: Duration) -> Result<(), VolumeError> {
        let until = Instant::now() + patience;
        while self.mounted {
            match run_program(Command::new("umount").arg(&self.root)) {
                Ok(()) => self.mounted = false,
                Err(_) if Instant::now() < until => thread::sleep(Duration::from_millis(20)),
                Err(VolumeError::Refused { command, said }) => {
                    let users: Vec<i32> = self.users().into_iter().map(Process::id).collect();
                    let said = format!("{said} (processes {users:?})");
                    return Err(VolumeError::Refused { command, said });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The processes whose directory or open files lie on this volume.
    #[must_use]
    pub fn users(&self) -> Vec<Process> {
        users_of(&self.root)
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if self.unmount(Duration::from_secs(15)).is_err() {
            // Whoever holds it keeps it, unseen, until they end: only then is the space free.
            let _ = run_program(Command::new("umount").arg("--lazy").arg(&self.root));
        }
    }
}

/// The processes, ourselves apart, whose directory or open files lie below `root`.
pub(super) fn users_of(root: &Path) -> Vec<Process> {
    let points_here = |link: PathBuf| fs::read_link(link).is_ok_and(|to| to.starts_with(root));
    let uses = |process: &Path| {
        points_here(process.join("cwd"))
            || fs::read_dir(process.join("fd"))
                .is_ok_and(|open| open.flatten().any(|fd| points_here(fd.path())))
    };
    let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
    all.flatten()
        .filter(|entry| uses(&entry.path()))
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|id| i32::try_from(std::process::id()) != Ok(*id))
        .filter_map(Process::new)
        .collect()
}

fn make_file_system(fs: FileSystem, more: &[&str], on: &Path) -> Result<(), VolumeError> {
    let arguments = match fs {
        // Nothing is left for a kernel thread to finish while somebody measures.
        FileSystem::Ext4 => {
            ["-q", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"].as_slice()
        }
        FileSystem::Xfs => &["-q", "-K"],
    };
    run_program(Command::new(format!("mkfs.{fs}")).args(arguments).args(more).arg(on))
}

/// A random key, as long as AES-256-XTS takes it, in a file of mode 0600.
fn make_key(path: &Path) -> io::Result<()> {
    let mut key = [0; 64];
    fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(&key)
}

/// Takes the space of the image now, so that a full disk is not met in the middle of a trial. File
/// systems that cannot reserve keep a sparse image.
fn reserve(file: &fs::File, bytes: u64) -> io::Result<()> {
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP) | Ok(()) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// How the loop device reaches its image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// Reserved, and past the page cache of the file system that it lies on: for measuring.
    /// Otherwise pages would be cached twice, and a limit on the server's memory would not be one.
    Direct,
    /// Sparse, through the page cache: quick, for everything else.
    Cached,
}

/// The file systems that are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// ext4 with its defaults: ordered data, delayed allocation.
    Ext4,
    /// XFS with its defaults.
    Xfs,
}

impl FileSystem {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Ext4, Self::Xfs];
}

impl fmt::Display for FileSystem {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        })
    }
}

impl FromStr for FileSystem {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|fs| fs.to_string() == name)
            .ok_or_else(|| format!("{name} is no file system of the trials: ext4 or xfs"))
    }
}

/// Why a volume could not be made, mounted or unmounted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VolumeError {
    /// Loop devices and mounts are root's.
    #[error("a volume of one's own needs root")]
    NotRoot,
    /// A program of the system said no.
    #[error("{command} failed: {said}")]
    Refused {
        /// The command line.
        command: String,
        /// Its standard error, or why it did not start.
        said: String,
    },
    /// The private directory could not be made.
    #[error("the private directory of a volume could not be made: {0}")]
    Private(#[from] io::Error),
}

impl From<VolumeError> for crate::Error {
    fn from(error: VolumeError) -> Self {
        Self::Other(error.to_string())
    }
}

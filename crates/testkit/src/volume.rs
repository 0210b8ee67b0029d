//! A file system of its own on a loop device, whose power can be cut.
//!
//! `cut` shuts the file system down without flushing its journal: what was not yet written to the
//! image is gone, as after a power failure. What was written to the image stays, so a disk that
//! loses or reorders its own cache is not modelled. Needs root and the programs of xfsprogs.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    process::Command,
    str::FromStr,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

/// A mounted volume. Dropping it ends what still runs on it, unmounts it and removes its image.
#[derive(Debug)]
pub struct Volume {
    fs: FileSystem,
    image: PathBuf,
    root: PathBuf,
    mounted: bool,
    _private: tempfile::TempDir,
}

impl Volume {
    /// Makes and mounts a sparse volume of `mib` MiB below the directory for temporary files.
    ///
    /// # Errors
    /// Without root, without mkfs or mount, or when the temporary directory is full.
    pub fn create(fs: FileSystem, mib: u64) -> Result<Self, VolumeError> {
        if !rustix::process::geteuid().is_root() {
            return Err(VolumeError::NotRoot);
        }
        let private = tempfile::Builder::new().prefix("tidelock-volume-").tempdir()?;
        let image = private.path().join("image");
        let root = private.path().join("root");
        fs::File::create_new(&image)?.set_len(mib << 20)?;
        fs::create_dir(&root)?;
        match fs {
            FileSystem::Ext4 => run(Command::new("mkfs.ext4").arg("-q").arg(&image))?,
            FileSystem::Xfs => run(Command::new("mkfs.xfs").arg("-q").arg(&image))?,
        }
        // The server's own user has to reach the root of the volume.
        run(Command::new("chmod").arg("0755").arg(private.path()))?;
        let mut volume = Self { fs, image, root, mounted: false, _private: private };
        volume.mount()?;
        Ok(volume)
    }

    /// The root directory of the volume.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Which file system this is.
    #[must_use]
    pub fn file_system(&self) -> FileSystem {
        self.fs
    }

    /// Mounts the volume, which replays its journal.
    ///
    /// # Errors
    /// When mount refuses; after a cut that would be a damaged journal.
    pub fn mount(&mut self) -> Result<(), VolumeError> {
        run(Command::new("mount").args(["-o", "loop"]).arg(&self.image).arg(&self.root))?;
        self.mounted = true;
        Ok(())
    }

    /// Cuts the power: from here on every call to the file system fails, and nothing more is
    /// written.
    ///
    /// # Errors
    /// When the shutdown is refused.
    pub fn cut(&self) -> Result<(), VolumeError> {
        // Without -f the log is not flushed: XFS_FSOP_GOING_FLAGS_NOLOGFLUSH, which ext4 knows too.
        run(Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(&self.root))
    }

    /// Ends every process that still uses the volume, and unmounts it.
    ///
    /// # Errors
    /// When something still holds it after ten seconds.
    pub fn unmount(&mut self) -> Result<(), VolumeError> {
        let until = Instant::now() + Duration::from_secs(10);
        while self.mounted {
            for process in self.users() {
                let _gone_already = kill_process(process, Signal::KILL);
            }
            match run(Command::new("umount").arg(&self.root)) {
                Ok(()) => self.mounted = false,
                Err(refused) if Instant::now() > until => return Err(refused),
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        }
        Ok(())
    }

    /// What a machine does after a power failure: nothing survives but the image.
    ///
    /// # Errors
    /// Those of `unmount` and `mount`.
    pub fn remount(&mut self) -> Result<(), VolumeError> {
        self.unmount()?;
        self.mount()
    }

    /// The processes whose directory, program or open files lie on this volume, which is private:
    /// so the harness has started them.
    fn users(&self) -> Vec<Pid> {
        let Ok(all) = fs::read_dir("/proc") else { return Vec::new() };
        all.flatten()
            .filter(|entry| self.is_used_by(&entry.path()))
            .filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
            .filter(|process| *process != rustix::process::getpid())
            .collect()
    }

    fn is_used_by(&self, process: &Path) -> bool {
        let points_here =
            |link: PathBuf| fs::read_link(link).is_ok_and(|to| to.starts_with(&self.root));
        points_here(process.join("cwd"))
            || fs::read_dir(process.join("fd"))
                .is_ok_and(|open| open.flatten().any(|fd| points_here(fd.path())))
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            eprintln!("volume: {error}");
        }
    }
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

/// Why a volume could not be made, mounted or cut.
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

/// Runs a program of the system to its end; its standard error becomes the message.
pub(crate) fn run(command: &mut Command) -> Result<(), VolumeError> {
    let said = match command.output() {
        Ok(output) if output.status.success() => return Ok(()),
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    Err(VolumeError::Refused { command: format!("{command:?}"), said })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut_keeps_what_was_synced_and_loses_the_rest(fs: FileSystem) {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: a volume of one's own needs root");
            return;
        }
        let mut volume = Volume::create(fs, 400).unwrap();
        let (synced, loose) = (volume.root().join("synced"), volume.root().join("loose"));
        fs::write(&synced, b"here").unwrap();
        fs::File::open(&synced).unwrap().sync_all().unwrap();
        fs::write(&loose, b"gone").unwrap();
        volume.cut().unwrap();
        fs::write(volume.root().join("late"), b"").unwrap_err();
        volume.remount().unwrap();
        assert_eq!(fs::read(&synced).unwrap(), b"here");
        assert!(!loose.exists(), "an unsynced file outlived the cut");
        let private = volume.root().parent().unwrap().to_owned();
        drop(volume);
        assert!(!private.exists());
    }

    #[test]
    fn cut_keeps_what_was_synced_and_loses_the_rest_on_ext4() {
        cut_keeps_what_was_synced_and_loses_the_rest(FileSystem::Ext4);
    }

    #[test]
    fn cut_keeps_what_was_synced_and_loses_the_rest_on_xfs() {
        cut_keeps_what_was_synced_and_loses_the_rest(FileSystem::Xfs);
    }
}

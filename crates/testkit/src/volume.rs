//! A file system of its own on a loop device, whose power can be cut.
//!
//! `cut` shuts the file system down without flushing its journal: what was not yet written to the
//! image is gone, as after a power failure. What was written to the image stays, so a disk that
//! loses or reorders its own cache is not modelled. Needs root and the programs of xfsprogs.

use std::{
    env, fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use rustix::process::Signal;
pub(crate) use tidelock_lab::host::run_program as run;
use tidelock_lab::host::{self, Image};
pub use tidelock_lab::host::{FileSystem, VolumeError};
use tidelock_servers::Process;

/// A mounted volume. Dropping it ends what still runs on it, unmounts it and removes its image.
#[derive(Debug)]
pub struct Volume(host::Volume);

impl Volume {
    /// Makes and mounts a sparse volume of `mib` MiB below the directory for temporary files.
    ///
    /// # Errors
    /// Without root, without mkfs or mount, or when the temporary directory is full.
    pub fn create(fs: FileSystem, mib: u64) -> Result<Self, VolumeError> {
        host::Volume::create(&env::temp_dir(), fs, mib, Image::Cached).map(Self)
    }

    /// The root directory of the volume.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.0.root()
    }

    /// Which file system this is.
    #[must_use]
    pub fn file_system(&self) -> FileSystem {
        self.0.file_system()
    }

    /// Cuts the power: from here on every call to the file system fails, and nothing more is
    /// written.
    ///
    /// # Errors
    /// When the shutdown is refused.
    pub fn cut(&self) -> Result<(), VolumeError> {
        // Without -f the log is not flushed: XFS_FSOP_GOING_FLAGS_NOLOGFLUSH, which ext4 knows too.
        run(Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(self.root()))
    }

    /// The same after every process that uses the volume was stopped (SIGSTOP). Otherwise a server
    /// that overlooks errors of its disk would acknowledge, behind the cut, what can be on no disk;
    /// so would one whose fsync overlaps the cut, which can return 0 on XFS (decision 4).
    ///
    /// # Errors
    /// As [`Volume::cut`].
    pub fn stop_users_and_cut(&self) -> Result<(), VolumeError> {
        let users = self.0.users();
        for process in &users {
            let _gone_already = process.signal(Signal::STOP);
        }
        let until = Instant::now() + Duration::from_secs(30);
        // All threads, and those that are in a call to the disk when it has returned.
        let goes_on =
            |process: &Process| states(*process).iter().any(|state| !"TtZX".contains(*state));
        while let Some(process) = users.iter().find(|process| goes_on(process)) {
            if Instant::now() > until {
                let said = format!("process {} does not stop", process.id());
                return Err(VolumeError::Refused { command: "SIGSTOP".to_owned(), said });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.cut()
    }

    /// What a machine does after a power failure: nothing survives but the image.
    ///
    /// # Errors
    /// Those of `unmount` and `mount`.
    pub fn remount(&mut self) -> Result<(), VolumeError> {
        self.unmount()?;
        self.mount()
    }

    /// Mounts the volume, which replays its journal.
    ///
    /// # Errors
    /// When mount refuses; after a cut that would be a damaged journal.
    pub fn mount(&mut self) -> Result<(), VolumeError> {
        self.0.mount()
    }

    /// Ends every process that still uses the volume, which is private, so the harness has started
    /// them; then unmounts it.
    ///
    /// # Errors
    /// When something still holds it after ten seconds.
    pub fn unmount(&mut self) -> Result<(), VolumeError> {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            for process in self.0.users() {
                let _gone_already = process.signal(Signal::KILL);
            }
            match self.0.unmount(Duration::from_millis(20)) {
                Err(_) if Instant::now() < until => {}
                ended => return ended,
            }
        }
    }
}

/// The states of a process's threads, as /proc has them.
fn states(process: Process) -> Vec<char> {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.id())).into_iter().flatten();
    let state = |stat: String| stat.rsplit_once(") ")?.1.chars().next();
    let stats =
        tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    stats.filter_map(state).collect()
}

impl Drop for Volume {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            eprintln!("volume: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use tidelock_servers::skip;

    fn cut_keeps_what_was_synced_and_loses_the_rest(fs: FileSystem) {
        if skip::unless_root("a volume of one's own") {
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

//! A short private directory for one test, with what a user's account has: home, keys, sockets.
//!
//! Short because a Unix socket's path may have 107 bytes. Removed on drop, unless `TIDELOCK_KEEP`
//! is set or the test failed; then its path is printed.

use std::env;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::account::Account;
use crate::arm::Programs;
use crate::error::{Error, Result, ensure};
use crate::home::{agents_listen, end_agents, free_memory};
use crate::process::Process;
use crate::tool::Tool;
use crate::unlinked;

/// A private directory, owned by the servers' account.
#[derive(Debug)]
pub struct Workspace {
    dir: Option<TempDir>,
    path: PathBuf,
    account: Account,
}

impl Workspace {
    /// Makes a workspace below `TIDELOCK_TEST_DIR`, or below the system's temporary directory.
    ///
    /// # Errors
    /// When it cannot be made or given to the servers' account.
    pub fn new() -> Result<Self> {
        Self::below(&env::var_os("TIDELOCK_TEST_DIR").map_or_else(env::temp_dir, PathBuf::from))
    }

    /// Makes a workspace below `base`, which the servers' account has to be able to pass through.
    ///
    /// # Errors
    /// As [`Workspace::new`].
    pub fn below(base: &Path) -> Result<Self> {
        Process::adopt_orphans();
        let account = Account::of_servers()?;
        let what = format!("making a private directory below {}", base.display());
        let dir = tempfile::Builder::new().prefix("tl-").tempdir_in(base);
        let dir = dir.map_err(Error::io(what))?;
        let path = dir.path().to_path_buf();
        let workspace = Self { dir: Some(dir), path, account };
        workspace.open_to_others()?;
        for name in ["home", "shelf"] {
            workspace.make_dir(name)?;
        }
        fs::create_dir(workspace.join(ROOTS_HOME)).map_err(Error::io("making a home for root"))?;
        Ok(workspace)
    }

    /// The directory itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path in it.
    #[must_use]
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Makes a directory in it that only the servers' account may enter.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn make_dir(&self, name: &str) -> Result<PathBuf> {
        let dir = self.join(name);
        let made = fs::create_dir_all(&dir).and_then(|()| {
            let opened = unlinked::directory(&dir)?;
            opened.set_permissions(fs::Permissions::from_mode(0o700))?;
            Ok(opened)
        });
        let opened = made.map_err(Error::io(format!("making {}", dir.display())))?;
        self.account.give_open(&opened, &dir)?;
        Ok(dir)
    }

    /// Writes a file that belongs to the servers' account.
    ///
    /// # Errors
    /// When it cannot be written, is a link, or has another name as well: the directory may be that
    /// account's, which is not to choose what root writes.
    pub fn write(&self, path: &Path, text: &str) -> Result<()> {
        self.write_as(path, text, None)
    }

    /// The same with a file that nobody else may read.
    ///
    /// # Errors
    /// As [`Workspace::write`].
    pub(crate) fn write_private(&self, path: &Path, text: &str) -> Result<()> {
        self.write_as(path, text, Some(fs::Permissions::from_mode(0o600)))
    }

    fn write_as(&self, path: &Path, text: &str, mode: Option<fs::Permissions>) -> Result<()> {
        let written = unlinked::to_write(path).and_then(|mut file| {
            if let Some(mode) = mode {
                file.set_permissions(mode)?;
            }
            file.set_len(0)?;
            file.write_all(text.as_bytes())?;
            Ok(file)
        });
        let file = written.map_err(Error::io(format!("writing {}", path.display())))?;
        self.account.give_open(&file, path)
    }

    /// Who runs servers here.
    #[must_use]
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// The built command and library.
    ///
    /// # Errors
    /// [`Error::Missing`] when they are not built.
    pub fn programs(&self) -> Result<Programs> {
        let shelf = self.join("shelf");
        unlinked::directory(&shelf)
            .and_then(|dir| dir.set_permissions(fs::Permissions::from_mode(0o755)))
            .map_err(Error::io(format!("opening {}", shelf.display())))?;
        Programs::find(&shelf)
    }

    /// Waits until no agent has an unlocked keyring here: they end soon after their last client.
    ///
    /// # Errors
    /// When one still listens after 90 seconds.
    pub fn wait_for_agents(&self) -> Result<()> {
        let start = Instant::now();
        let home = self.join("home");
        while agents_listen(&home) {
            ensure(start.elapsed() < Duration::from_secs(90), || {
                format!("an agent still listens below {}", home.display())
            })?;
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// One run of `program`: a PostgreSQL program by its name, another by name or path.
    #[must_use]
    pub fn tool(&self, program: impl AsRef<Path>) -> Tool<'_> {
        Tool::new(self, program.as_ref())
    }

    /// Everybody may pass through (nobody may list): the servers' account is not ours.
    fn open_to_others(&self) -> Result<()> {
        self.account.give(&self.path)?;
        fs::set_permissions(&self.path, fs::Permissions::from_mode(0o711))
            .map_err(Error::io(format!("opening {}", self.path.display())))
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        let Some(dir) = self.dir.take() else { return };
        if env::var_os("TIDELOCK_KEEP").is_some() || thread::panicking() {
            eprintln!("kept {}", dir.keep().display());
            return;
        }
        for home in ["home", ROOTS_HOME] {
            end_agents(&self.join(home));
        }
        free_memory(&self.path);
    }
}

/// The home of tools that keep root's account.
pub(crate) const ROOTS_HOME: &str = "root";

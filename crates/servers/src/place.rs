//! A short private directory for one test, with what a user's account has: home, keys, sockets.
//!
//! Short because a Unix socket's path may have 107 bytes. Removed on drop, unless `TIDELOCK_KEEP` is
//! set or the test failed; then its path is printed.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, UCred, connect, socket_with,
};
use rustix::process::{Signal, geteuid, getpid};
use tempfile::TempDir;

use crate::account::Account;
use crate::arm::Programs;
use crate::error::{Error, Result, ensure};
use crate::process::Process;
use crate::tool::Tool;

/// A private directory, owned by the servers' account.
#[derive(Debug)]
pub struct Place {
    dir: Option<TempDir>,
    path: PathBuf,
    account: Account,
}

impl Place {
    /// Makes a place below `TIDELOCK_TEST_DIR`, or below the system's temporary directory.
    ///
    /// # Errors
    /// When it cannot be made or given to the servers' account.
    pub fn new() -> Result<Self> {
        Self::below(&env::var_os("TIDELOCK_TEST_DIR").map_or_else(env::temp_dir, PathBuf::from))
    }

    /// Makes a place below `base`, which the servers' account has to be able to pass through.
    ///
    /// # Errors
    /// As [`Place::new`].
    pub fn below(base: &Path) -> Result<Self> {
        Process::adopt_orphans();
        let account = Account::of_servers()?;
        let what = format!("making a private directory below {}", base.display());
        let dir = tempfile::Builder::new().prefix("tl-").tempdir_in(base);
        let dir = dir.map_err(Error::io(what))?;
        let path = dir.path().to_path_buf();
        let place = Self { dir: Some(dir), path, account };
        place.open_to_others()?;
        for name in ["home", "run", "shelf"] {
            place.make_dir(name)?;
        }
        Ok(place)
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
        let what = format!("making {}", dir.display());
        fs::create_dir_all(&dir).map_err(Error::io(what.clone()))?;
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).map_err(Error::io(what))?;
        self.account.give(&dir)?;
        Ok(dir)
    }

    /// Writes a file that belongs to the servers' account.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, path: &Path, text: &str) -> Result<()> {
        fs::write(path, text).map_err(Error::io(format!("writing {}", path.display())))?;
        self.account.give(path)
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
        fs::set_permissions(&shelf, fs::Permissions::from_mode(0o755))
            .map_err(Error::io(format!("opening {}", shelf.display())))?;
        Programs::find(&shelf)
    }

    /// Waits until no agent has an unlocked keyring here: they end soon after their last client.
    ///
    /// # Errors
    /// When one still listens after 90 seconds.
    pub fn wait_for_agents(&self) -> Result<()> {
        let start = Instant::now();
        while self.agents_listen() {
            ensure(start.elapsed() < Duration::from_secs(90), || {
                format!("an agent still listens below {}", self.join("run").display())
            })?;
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Whether a socket below the run directory still has somebody behind it. An agent takes whoever connects
    /// for a client, and stays for it: so nobody is asked.
    fn agents_listen(&self) -> bool {
        sockets_of_agents(&self.path).iter().any(|path| {
            let listed = fs::read_to_string("/proc/net/unix").unwrap_or_default();
            listed.lines().any(|line| line.ends_with(&path.display().to_string()))
        })
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

impl Drop for Place {
    fn drop(&mut self) {
        let Some(dir) = self.dir.take() else { return };
        if env::var_os("TIDELOCK_KEEP").is_some() || thread::panicking() {
            eprintln!("kept {}", dir.keep().display());
            return;
        }
        end_agents(&self.path);
    }
}

/// Ends the agents of the place at `path`, whose servers have ended. They stay for ten seconds after their last
/// client, and one whose directories were removed meanwhile makes that of its audit log anew, to write
/// down its end.
pub fn end_agents(path: &Path) {
    let us = geteuid().as_raw();
    let servers = Account::of_servers().ok().and_then(|account| account.uid()).unwrap_or(us);
    for socket in sockets_of_agents(path) {
        // The place belongs to the servers' account, which may put there a way to a socket of another.
        let Ok(UCred { pid, uid, .. }) = listener(&socket) else { continue };
        let Some(agent) = Process::new(pid.as_raw_nonzero().get()) else { continue };
        if uid.as_raw() == servers && pid != getpid() && agent.signal(Signal::TERM).is_ok() {
            let _ = agent.wait_gone(Duration::from_secs(10));
            agent.reap();
        }
    }
}

fn sockets_of_agents(place: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(place.join("run/tidelock")) else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths.filter(|path| path.extension().is_some_and(|e| e == "sock")).collect()
}

/// Who listens at this socket.
fn listener(socket: &Path) -> rustix::io::Result<UCred> {
    let (flags, kind) = (SocketFlags::CLOEXEC, SocketType::SEQPACKET);
    let connection = socket_with(AddressFamily::UNIX, kind, flags, None)?;
    connect(&connection, &SocketAddrUnix::new(socket)?)?;
    socket_peercred(&connection)
}

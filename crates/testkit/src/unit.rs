//! Units of this machine in the tests: files of root's below /etc/tidelock, what `service install`
//! wrote, and the agents of units. All of it goes with the test.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use tidelock_agent::client;
use tidelock_servers::{Error, Process, Result, ensure};

/// The folder comes and goes with the files of these tests.
static FOLDER: Mutex<()> = Mutex::new(());
const ETC: &str = "/etc/tidelock";

/// Files of /etc/tidelock, for as long as this lives. One test of a process has it at a time.
#[derive(Debug)]
pub struct Etc {
    files: Mutex<Vec<PathBuf>>,
    _alone: MutexGuard<'static, ()>,
}

impl Etc {
    /// No files yet.
    ///
    /// # Errors
    /// When /etc/tidelock cannot be made.
    pub fn hold() -> Result<Self> {
        let alone = FOLDER.lock().unwrap_or_else(PoisonError::into_inner);
        fs::create_dir_all(ETC).map_err(Error::io("making /etc/tidelock"))?;
        Ok(Self { files: Mutex::new(Vec::new()), _alone: alone })
    }

    /// Writes NAME.toml, readable for all; its path.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let file = Path::new(ETC).join(format!("{name}.toml"));
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if !files.contains(&file) {
            files.push(file.clone());
        }
        // Whoever reads it meanwhile has the old one or the new one.
        let new = file.with_extension("new");
        fs::write(&new, text)
            .and_then(|()| fs::set_permissions(&new, fs::Permissions::from_mode(0o644)))
            .and_then(|()| fs::rename(&new, &file))
            .map_err(Error::io(format!("writing {}", file.display())))?;
        Ok(file)
    }
}

impl Drop for Etc {
    fn drop(&mut self) {
        for file in self.files.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let _ = fs::remove_file(file);
        }
        let _ = fs::remove_dir(ETC);
    }
}

/// The environment that `tidelock service install UNIT --root IMAGE` gives to the unit:
/// `LD_PRELOAD`, then `TIDELOCK_AGENT`.
///
/// # Errors
/// When there is no drop-in, or it has other variables.
pub fn environment_of(unit: &str, image: &Path) -> Result<Vec<(String, String)>> {
    let drop_in = image.join(format!("etc/systemd/system/{unit}.service.d/tidelock.conf"));
    let drop_in = fs::read_to_string(drop_in).map_err(Error::io("reading the drop-in"))?;
    let line = drop_in.lines().find_map(|line| line.strip_prefix("Environment="));
    let pairs = line.unwrap_or_default().split(' ').filter_map(|pair| pair.split_once('='));
    let found: Vec<_> = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    ensure(names == ["LD_PRELOAD", "TIDELOCK_AGENT"], || drop_in.clone())?;
    Ok(found)
}

/// What agents of units leave in /run/tidelock/UID; what was there before stays.
#[derive(Debug)]
pub struct RunFiles {
    folder: PathBuf,
    before: Vec<PathBuf>,
}

impl RunFiles {
    /// All that comes from now on to the folder of `socket`.
    #[must_use]
    pub fn beside(socket: &Path) -> Self {
        let folder = socket.parent().unwrap_or(socket).to_path_buf();
        Self { before: files(&folder), folder }
    }
}

impl Drop for RunFiles {
    fn drop(&mut self) {
        let made = || files(&self.folder).into_iter().filter(|file| !self.before.contains(file));
        made().for_each(|socket| end_agent(&socket));
        for file in made() {
            let _ = fs::remove_file(file);
        }
        let _ = fs::remove_dir(&self.folder);
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Sooner than it would end by itself, some seconds after its last program.
fn end_agent(socket: &Path) {
    if socket.extension().is_none_or(|ending| ending != "sock") {
        return;
    }
    let Ok(Some(connection)) = client::connect(socket) else { return };
    let Ok(status) = connection.status() else { return };
    if let Some(process) = Process::new(status.pid) {
        let _ = process.signal(Signal::TERM);
        let _ = process.wait_gone(Duration::from_secs(60));
    }
}

/// 32 bytes for a key file.
#[must_use]
pub fn random_key() -> Vec<u8> {
    (0..32).map(|_| fastrand::u8(..)).collect()
}

/// The id of the keyring of a protected directory: bytes 16 to 32 (FORMAT.md, "Keyring").
///
/// # Errors
/// When it cannot be read.
pub fn keyring_of(dir: &Path) -> Result<String> {
    let path = dir.join(".tidelock/keyring");
    let bytes = fs::read(&path).map_err(Error::io(format!("reading {}", path.display())))?;
    ensure(bytes.len() > 32, || format!("{} ends early", path.display()))?;
    Ok(data_encoding::HEXLOWER.encode(&bytes[16..32]))
}

/// Whether pg_control lies there without a header of ours.
///
/// # Errors
/// When it cannot be read.
pub fn is_plain_control(dir: &Path) -> Result<bool> {
    let path = dir.join("global/pg_control");
    let bytes = fs::read(&path).map_err(Error::io(format!("reading {}", path.display())))?;
    Ok(!bytes.starts_with(b"\x89TDLK"))
}

//! `tidelock exec ... -- pg_upgrade`: what it takes to bring one cluster into another.
//!
//! ```text
//!   arguments --> old and new cluster, mode  --> refused here, before a byte is written
//!   cp        --> gets keys for this run: pg_upgrade copies pg_xact and pg_multixact with it
//!   logs      --> NEW/pg_upgrade_output.d is a link to a directory in memory
//!   spaces    --> in each tablespace the new cluster gets a folder beside that of the old one
//! ```
//!
//! Shells append to the logs, and shells have no keys. In a plain file the logs would leave the
//! schema and the hashes of passwords on the disk, so they are in no file. PostgreSQL 15 and later
//! have that directory; older ones log to the working directory.

mod arguments;

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::statfs;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag;
use tidelock_agent::RunDir;

use self::arguments::Told;
use super::spaces::{self, Cluster};
use super::{Program, cores};
use crate::console;
use crate::error::{Error, Result};
use crate::protected::{Protected, is_protected};

const VARIABLE: &str = "TIDELOCK_UPGRADE";
const PROGRAM: &str = "pg_upgrade";
/// BASE_OUTPUTDIR of pg_upgrade.h.
const OUTPUT: &str = "pg_upgrade_output.d";
const FOLDER_NAME: &str = "tidelock-upgrade";
/// statfs(2): tmpfs and ramfs.
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];

/// A run of pg_upgrade that may begin.
pub(super) struct Upgrade {
    /// The `cp` that its shells find.
    pub(super) copier: PathBuf,
    /// The new cluster, if it is a protected one.
    new: Option<PathBuf>,
    /// Whose the folders in the tablespaces are.
    spaces: OsString,
}

/// Where the logs are during the run.
struct Logs {
    link: PathBuf,
    folder: PathBuf,
}

impl Upgrade {
    /// Looks at the arguments; `None` for another program.
    ///
    /// # Errors
    /// [`Error::Refused`] for what would fail half-way, or leave files that nobody can read.
    pub(super) fn plan(
        program: &Path,
        arguments: &[OsString],
        run: &[Protected],
    ) -> Result<Option<Self>> {
        if program.file_name() != Some(OsStr::new(PROGRAM)) {
            return Ok(None);
        }
        let told = Told::read(arguments);
        if told.asks_only() {
            return Ok(Some(Self { copier: copier()?, new: None, spaces: OsString::new() }));
        }
        if rustix::process::geteuid().is_root() {
            return Err(Error::refused(
                "pg_upgrade does not run as root",
                "run it as the owner of the clusters: sudo -u postgres tidelock exec ...",
            ));
        }
        if let Some(mode) = told.mode {
            return Err(Error::refused(
                format!(
                    "pg_upgrade {mode} would give files of one cluster to the other as they are, \
                     and each is sealed with keys of its own cluster"
                ),
                "leave it out: by default files are copied, and sealed again on their way",
            ));
        }
        let old = cluster("old", "-d", told.old, "PGDATAOLD")?;
        let new = cluster("new", "-D", told.new, "PGDATANEW")?;
        for dir in [&old, &new] {
            if is_protected(dir) && run.iter().all(|protected| protected.path != *dir) {
                return Err(Error::refused(
                    format!("{} is protected, and this run does not have its keys", dir.display()),
                    format!(
                        "name it before the program too: tidelock exec -D {} ...",
                        dir.display()
                    ),
                ));
            }
        }
        let protects = |dir: &Path| run.iter().any(|protected| protected.path == dir);
        let owner = |dir| Cluster { dir, protected: protects(dir) };
        let spaces = match protects(&old) || protects(&new) {
            true => spaces::upgraded(owner(&old), owner(&new))?,
            false => OsString::new(),
        };
        if protects(&old) && !protects(&new) {
            console::warn(
                format!("{} is not protected: what was sealed is plain there", new.display()),
                "if that is not what you want, make it with `tidelock init`, then initdb",
            );
        }
        let new = protects(&new).then_some(new);
        Ok(Some(Self { copier: copier()?, new, spaces }))
    }

    /// Runs it to its end; the code that it ends with.
    ///
    /// # Errors
    /// The logs have no place; it does not start.
    pub(super) fn run(self, mut command: Command) -> Result<ExitCode> {
        let logs = self.new.as_deref().map(Logs::make).transpose()?;
        let mut value = self.copier.into_os_string();
        value.push(":");
        if let Some(logs) = &logs {
            value.push(&logs.folder);
        }
        let program = PathBuf::from(command.get_program());
        command.env(VARIABLE, value).env(spaces::VARIABLE, self.spaces);
        let mut child = command.spawn().map_err(Error::io("run", &program))?;
        // The keys are the program's now, and the terminal's signals reach it too: this process
        // only waits for it.
        cores::forbid();
        let ended = outlive(&mut child).map_err(Error::io("wait for", &program))?;
        if let Some(logs) = logs {
            logs.clear()?;
        }
        Ok(match ended.code().map(u8::try_from) {
            Some(Ok(code)) => ExitCode::from(code),
            _ => ExitCode::FAILURE,
        })
    }
}

impl Logs {
    fn make(new: &Path) -> Result<Self> {
        let link = new.join(OUTPUT);
        match fs::read_link(&link) {
            // What a run that was killed has left.
            Ok(target) if is_ours(&target) => {
                fs::remove_file(&link).map_err(Error::io("remove", &link))?;
            }
            Ok(_) => return Err(in_the_way(&link)),
            Err(why) if why.kind() == io::ErrorKind::NotFound => {}
            // An empty directory of an earlier run.
            Err(_) => fs::remove_dir(&link).map_err(|_| in_the_way(&link))?,
        }
        let folder = folder_in_memory()?;
        if let Err(why) = symlink(&folder, &link) {
            let _ = fs::remove_dir(&folder);
            return Err(Error::io("make the link", &link)(why));
        }
        Ok(Self { link, folder })
    }

    /// After a run that went well pg_upgrade has removed what was in it; else people want to read
    /// it.
    fn clear(self) -> Result<()> {
        fs::remove_file(&self.link).map_err(Error::io("remove", &self.link))?;
        if fs::remove_dir(&self.folder).is_err() {
            console::warn(
                format!("the logs of pg_upgrade are in memory: {}", self.folder.display()),
                format!(
                    "they show the schema and hashes of passwords: read them, then `rm -r {}`",
                    self.folder.display()
                ),
            );
        }
        Ok(())
    }
}

/// Waits for the child, whatever signal comes: SIGTERM is handed on, and the terminal's reach it
/// anyway.
///
/// # Errors
/// The system's.
pub(crate) fn outlive(child: &mut Child) -> io::Result<ExitStatus> {
    let (asked, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    flag::register(SIGTERM, Arc::clone(&asked))?;
    for number in [SIGINT, SIGQUIT, SIGHUP] {
        flag::register(number, Arc::clone(&seen))?;
    }
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if asked.swap(false, Ordering::AcqRel) {
            // One that has ended is found by the next look.
            let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            let _ = pid.map(|pid| kill_process(pid, Signal::TERM));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The canonical data directory that was told; not Debian's folder of configuration files, from
/// which pg_upgrade finds the way to it by itself.
fn cluster(
    which: &'static str,
    option: &str,
    told: Option<OsString>,
    variable: &str,
) -> Result<PathBuf> {
    let told = told.or_else(|| std::env::var_os(variable)).filter(|told| !told.is_empty());
    let Some(told) = told.map(PathBuf::from) else {
        return Err(Error::usage(
            format!("pg_upgrade is not told where the {which} cluster is"),
            format!("name it with {option} or {variable}"),
        ));
    };
    let dir = fs::canonicalize(&told).map_err(Error::io("find", &told))?;
    if dir.join("PG_VERSION").exists() {
        return Ok(dir);
    }
    if dir.join("postgresql.conf").exists() {
        return Err(Error::refused(
            format!("{} has the configuration of a cluster, not its data", dir.display()),
            format!(
                "name the data directory with {option}, and its configuration with -o or -O \"-c \
                 config_file={}/postgresql.conf\"",
                dir.display()
            ),
        ));
    }
    Err(Error::refused(
        format!("{} is no cluster: it has no PG_VERSION", dir.display()),
        "make the new cluster first: tidelock exec -D DIR -- initdb -D DIR",
    ))
}

/// What the shells of pg_upgrade take for `cp`.
fn copier() -> Result<PathBuf> {
    let copier = Program::find(OsStr::new("cp"))?;
    copier.refuse_unless_it_loads()?;
    Ok(copier.path)
}

/// A directory for this user alone that no disk has: below the sockets, or in /dev/shm.
fn folder_in_memory() -> Result<PathBuf> {
    let run = RunDir::choose()?;
    let shared = Path::new("/dev/shm");
    let in_memory = |dir: &&Path| statfs(*dir).is_ok_and(|on| IN_MEMORY.contains(&on.f_type));
    let above = [run.path(), shared].into_iter().find(in_memory).ok_or_else(|| {
        Error::refused(
            format!(
                "neither {} nor /dev/shm is in memory, and the logs of pg_upgrade must not be on \
                 a disk",
                run.path().display()
            ),
            "name a directory of mode 0700 on a tmpfs with TIDELOCK_RUN_DIR",
        )
    })?;
    for number in 0u32.. {
        let folder = above.join(format!("{FOLDER_NAME}-{}-{number}", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => return Ok(folder),
            Err(why) if why.kind() == io::ErrorKind::AlreadyExists => {}
            Err(why) => return Err(Error::io("make", &folder)(why)),
        }
    }
    Err(Error::refused(format!("{} is full of such folders", above.display()), "remove old ones"))
}

fn is_ours(target: &Path) -> bool {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with(FOLDER_NAME)
}

fn in_the_way(link: &Path) -> Error {
    Error::refused(
        format!("{} is there already, and is not empty", link.display()),
        "keep what you need of an earlier run, then remove it: the logs of this one go to memory",
    )
}

//! The MariaDB server of a directory, or that of MySQL, as far as they are alike.
//!
//! ```text
//!   settings   options as its parser takes them, and the places that they name
//!   galera     what a node of a cluster must be told
//!   instance   the server that runs: how it was started, stop, start, SQL by its own client
//! ```
//!
//! Here: where a server is told to keep files, and what that would leave plain; whether one runs on
//! a directory, or has crashed there.
//!
//! A file below the protected directory is sealed, wherever a link there leads. A setting that
//! names another place for rows is refused before the server starts; one for logs that people read
//! is told. Reads the options as the server does, by MariaDB's own my_print_defaults. Tables with
//! `DATA DIRECTORY` are named in SQL, so they are not seen here.

mod galera;
mod instance;
mod settings;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use procfs::process::{Process, all_processes};
use tidelock_contract::control::{FOLDER, programs_beside};
use tidelock_keyring::Profile;

use crate::console;
use crate::error::{Error, Result};
use crate::exec::{Program, is_of};
use crate::mysql;
use crate::protected::Protected;
pub(crate) use instance::{Answer, Instance};
use settings::{Settings, Stray};

/// The name of the profile.
pub(crate) const PROFILE: &str = "mariadb";
/// Where the server keeps its data when nobody tells it: Debian's builds and upstream's.
pub(crate) const DEFAULT_DIRECTORY: &str = "/var/lib/mysql";
/// Files without which no bare server starts, whatever it is told: sealed first, made plain last.
/// Without the redo log it would make a new one beside tables of another time.
pub(crate) const GATE: [&str; 3] = ["ib_logfile0", "ibdata1", "aria_log_control"];
/// Files that a server locks before it uses any.
pub(crate) const LOCKED: [&str; 2] = ["aria_log_control", "ibdata1"];
/// Debian's socket of the unit, which is enabled.
const SOCKET: &str = "mariadb.socket";
/// A server makes them when it starts, and removes them when it stops in order.
const TRACES: [&str; 2] = ["ddl_recovery.log", "ibtmp1"];
/// Programs that are a server or start one, with the options of a server.
const SERVERS: [&str; 7] = [
    "mariadbd",
    "mysqld",
    "mysqld-debug",
    "mariadbd-safe",
    "mysqld_safe",
    "mariadb-install-db",
    "mysql_install_db",
];
/// The server of the distribution.
const SERVER: &str = "/usr/sbin/mariadbd";
/// Debian's unit, and its aliases.
const UNITS: [&str; 3] = ["mariadb", "mysql", "mysqld"];
/// Prints what the option files say.
const PRINTER: &str = "my_print_defaults";
/// They come before all others, and say which files are read.
const WHICH_FILES: [&str; 4] =
    ["--defaults-file", "--defaults-extra-file", "--defaults-group-suffix", "--no-defaults"];

/// Whose server reads the options.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    MariaDb,
    MySql,
}

/// For a run in these directories, whose agents listen at `sockets`: what TMPDIR has to be, if one
/// of them is of MariaDB or MySQL. Sorts and temporary tables then lie below the directory, unless
/// an option names another place.
///
/// # Errors
/// [`Error::Refused`] if the program is a server and would keep rows outside.
pub(crate) fn prepare(
    program: &Program,
    arguments: &[OsString],
    run: &[Protected],
    sockets: &[PathBuf],
) -> Result<Option<PathBuf>> {
    let mut all = run.iter().zip(sockets).filter_map(|(one, socket)| {
        let family = [(PROFILE, Family::MariaDb), (mysql::PROFILE, Family::MySql)];
        let found = family.into_iter().find(|(profile, _)| is_of(profile, socket));
        found.map(|(_, family)| (one, family, socket))
    });
    let Some((one, family, socket)) = all.next() else { return Ok(None) };
    let roots: Vec<&Path> = run.iter().map(|protected| &*protected.path).collect();
    let called = program.script.as_ref().unwrap_or(&program.path);
    let name = called.file_name().and_then(OsStr::to_str);
    if name.is_some_and(|name| SERVERS.contains(&name)) {
        let server = if family == Family::MySql { called } else { &program.called };
        let listed = std::fs::read_to_string(programs_beside(socket)).unwrap_or_default();
        let listed: Vec<String> = listed.lines().map(str::to_owned).collect();
        check(family, server, arguments, &roots, Some(&listed))?;
    }
    let present = std::env::var_os("TMPDIR").map(PathBuf::from);
    let inside = present.is_some_and(|dir| dir.is_dir() && settings::is_below(&dir, &roots));
    Ok((!inside).then(|| one.path.clone()))
}

/// True for the unit of this machine's server.
pub(crate) fn is_unit(name: &str) -> bool {
    UNITS.contains(&name.strip_suffix(".service").unwrap_or(name))
}

/// Refuses while systemd would start the server on `dir` for the next client.
///
/// # Errors
/// [`Error::Refused`].
pub(crate) fn refuse_socket(dir: &Path) -> Result<()> {
    let active = || {
        let mut command = Command::new("systemctl");
        command.args(["is-active", "--quiet", SOCKET]).status().is_ok_and(|it| it.success())
    };
    let systemd = Path::new("/run/systemd/system").is_dir();
    if !systemd || !active() || configured_directory()?.canonicalize().ok().as_deref() != Some(dir)
    {
        return Ok(());
    }
    Err(Error::refused(
        format!("{SOCKET} is active: the next client would have systemd start a server"),
        format!("`systemctl stop {SOCKET}` until this is done; `tidelock protect` does it itself"),
    ))
}

/// The data directory that the option files name for the server of this machine.
///
/// # Errors
/// They cannot be read.
pub(crate) fn configured_directory() -> Result<PathBuf> {
    let options = read(Family::MariaDb, Path::new(SERVER), &[])?;
    Ok(Settings::of(&options).directory().unwrap_or_else(|| DEFAULT_DIRECTORY.into()))
}

/// True if it looks like a data directory: system tables, and Aria, which every server has.
pub(crate) fn is_data_directory(dir: &Path) -> bool {
    dir.join("aria_log_control").is_file() && dir.join("mysql").is_dir()
}

/// Refuses what was not stopped in order: recovery belongs to the server that has crashed.
///
/// # Errors
/// [`Error::Refused`].
pub(crate) fn refuse_unclean(dir: &Path) -> Result<()> {
    match TRACES.iter().find(|name| dir.join(name).symlink_metadata().is_ok()) {
        None => Ok(()),
        Some(name) => Err(Error::refused(
            format!("the server on {} was not stopped cleanly: it has left {name}", dir.display()),
            "start it, let it recover, and stop it with `mariadb-admin shutdown`",
        )),
    }
}

/// The server that works in a data directory: it lies there as its current directory.
pub(crate) fn server_on(dir: &Path) -> Option<u32> {
    if !is_data_directory(dir) && !mysql::is_data_directory(dir) {
        return None;
    }
    let dir = dir.canonicalize().ok()?;
    let works_here = |process: &Process| {
        let name = process.exe().ok();
        let name = name.as_deref().and_then(Path::file_name).and_then(OsStr::to_str);
        name.is_some_and(|name| name.starts_with("mariadbd") || name.starts_with("mysqld"))
            && process.cwd().is_ok_and(|cwd| cwd == dir)
    };
    let found = all_processes().ok()?.flatten().find(works_here)?;
    u32::try_from(found.pid).ok()
}

/// For the unit of this machine's server, which is to run on `dir`.
///
/// # Errors
/// As [`prepare`].
pub(crate) fn check_unit(dir: &Path) -> Result<()> {
    let sealed = dir.join(FOLDER).symlink_metadata().is_ok();
    let listed = if sealed { None } else { Some(listed_at_first()?) };
    check(Family::MariaDb, Path::new(SERVER), &[], &[dir], listed.as_deref())
}

/// The programs that get keys in a directory that is to be sealed.
fn listed_at_first() -> Result<Vec<String>> {
    Ok(Profile::builtin(PROFILE)?.programs)
}

/// `listed`: as [`galera::check`] takes them.
fn check(
    family: Family,
    server: &Path,
    arguments: &[OsString],
    roots: &[&Path],
    listed: Option<&[String]>,
) -> Result<()> {
    let settings = Settings::of(&read(family, server, arguments)?);
    judge(&settings, roots)?;
    let datadir = settings.directory().unwrap_or_else(|| DEFAULT_DIRECTORY.into());
    let sst = || printed(server, arguments, &["sst"]);
    galera::check(&settings, &datadir, roots, sst, listed)
}

/// Refuses rows outside of the directories, and tells of logs there.
fn judge(settings: &Settings, roots: &[&Path]) -> Result<()> {
    let shown = roots.iter().map(|it| it.display().to_string()).collect::<Vec<_>>().join(", ");
    let datadir = settings.directory().unwrap_or_else(|| DEFAULT_DIRECTORY.into());
    if !settings::is_below(&datadir, roots) {
        console::warn(
            format!(
                "the server's datadir is {}, which is not below the protected {shown}: all that \
                 it writes there is plain",
                datadir.display()
            ),
            format!("tell it the directory: --datadir={}", roots[0].display()),
        );
        return Ok(());
    }
    for stray in settings.outside(&datadir, roots) {
        let Stray { setting, path, rows } = stray;
        let path = path.display();
        if rows {
            return Err(Error::refused(
                format!("{setting} is {path}: rows would lie there plain, outside of {shown}"),
                format!(
                    "leave {setting} away, or name a place below {shown}; a symbolic link there \
                     may lead to another disk"
                ),
            ));
        }
        console::warn(
            format!("{setting} is {path}, outside of {shown}: statements in it are plain"),
            "leave it away, and the log is sealed below the data directory; `tidelock cat -f` \
             reads it",
        );
    }
    Ok(())
}

/// The options of a server: those of its files, then those of its command line.
fn read(family: Family, server: &Path, arguments: &[OsString]) -> Result<Vec<OsString>> {
    let groups = match family {
        Family::MariaDb => {
            ["--mysqld", "mysqld_safe", "mariadb_safe", "mariadbd-safe"].map(str::to_owned).to_vec()
        }
        Family::MySql => mysql::groups(server)?,
    };
    let mut options = printed(server, arguments, &groups)?;
    options.extend(arguments.iter().skip_while(|argument| is_first(argument)).cloned());
    Ok(options)
}

/// What the option files that the arguments choose say in these groups, an option a line.
fn printed<G: AsRef<OsStr>>(
    server: &Path,
    arguments: &[OsString],
    groups: &[G],
) -> Result<Vec<OsString>> {
    let beside = server.parent().map(|dir| dir.join(PRINTER)).filter(|path| path.is_file());
    let printer = beside.unwrap_or_else(|| PRINTER.into());
    let mut command = Command::new(&printer);
    command.args(arguments.iter().take_while(|argument| is_first(argument))).args(groups);
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let told = command.output().map_err(Error::io("run", &printer))?;
    if !told.status.success() {
        return Err(Error::refused(
            format!("{} did not read the server's options: {}", printer.display(), told.status),
            "what it says above names the file and the line",
        ));
    }
    let lines = told.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    Ok(lines.map(|line| OsString::from_vec(line.to_vec())).collect())
}

fn is_first(argument: &OsString) -> bool {
    let name = argument.as_bytes().split(|byte| *byte == b'=').next().unwrap_or_default();
    WHICH_FILES.iter().any(|which| which.as_bytes() == name)
}

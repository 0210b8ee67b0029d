//! The server of a directory of MariaDB or MySQL, as far as they are alike.
//!
//! ```text
//!   brand      whose it is             mariadb, mysql   what only one of them has
//!   start      what a server is told   settings         the places that it names
//!   unit       what a unit of systemd tells it
//!   judge      what of that would leave rows or logs plain
//!   by_rule    which of the files that it names a rule leaves plain
//!   behind     one behind a wrapper, a shell or a script
//!   scripts    what starts one and shows no options
//!   elsewhere  tables that it keeps outside
//!   galera     what a node of a cluster must be told
//!   replay     a binary log that a client plays back
//!   instance   the server that runs: how it was started, stop, start, SQL by its own client
//!   sockets    where it takes clients
//! ```
//!
//! Here: which server is meant, in which of the directories of a run, and what is looked at before
//! it starts; whether one runs on a directory.

mod behind;
mod brand;
mod by_rule;
mod elsewhere;
mod galera;
mod instance;
mod judge;
mod mariadb;
mod mysql;
mod replay;
mod scripts;
mod settings;
mod sockets;
mod start;
mod unit;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use procfs::process::{Process, all_processes};
use tidelock_contract::control::{FOLDER, programs_beside};
use tidelock_keyring::Profile;

use crate::console;
use crate::error::{Error, Result};
use crate::exec::{Program, is_of};
use crate::owner::Owner;
use crate::protected::Protected;
use crate::run_as::RunAs;
use crate::whereabouts::{program_name, works_in};
pub(crate) use brand::Brand;
use by_rule::Rules;
pub(crate) use elsewhere::{refuse_files_elsewhere, refuse_tables_elsewhere};
pub(crate) use instance::{Answer, Instance};
use judge::{Datadir, check, refuse_temporary};
pub(crate) use mariadb::refuse_socket;
use settings::Settings;
use start::Start;
use unit::{Inherited, Started};
pub(crate) use unit::{variable, variable_of_files, variable_of_others, variables};

/// Where the server keeps its data when nobody tells it: Debian's builds and upstream's.
const DEFAULT_DIRECTORY: &str = "/var/lib/mysql";
/// The server's programs. None has more than 15 bytes, to which the kernel cuts the name of a
/// process.
const SERVERS: [&str; 3] = ["mariadbd", "mysqld", "mysqld-debug"];
/// Programs that start one, with the options of a server.
const STARTERS: [&str; 4] =
    ["mariadbd-safe", "mysqld_safe", "mariadb-install-db", "mysql_install_db"];
/// Units of packages: Debian's of MariaDB and its aliases, those of MySQL.
const UNITS: [&str; 3] = ["mariadb", "mysql", "mysqld"];

/// For a run in these directories, whose agents listen at `sockets`: what TMPDIR has to be, if one
/// of them is of MariaDB or MySQL, whatever its profile is called. Sorts and temporary tables then
/// lie below the directory, unless an option names another place.
///
/// # Errors
/// [`Error::Refused`] if the program is a server and would keep rows outside.
pub(crate) fn prepare(
    program: &Program,
    arguments: &[OsString],
    run: &[Protected],
    sockets: &[PathBuf],
) -> Result<Option<PathBuf>> {
    let roots: Vec<&Path> = run.iter().map(|protected| &*protected.path).collect();
    let behind = behind::wrapper(program, arguments);
    let (program, arguments) = match &behind {
        Some((server, rest)) => (server, *rest),
        None => (program, arguments),
    };
    let called = file_of(program);
    let Some((one, brand, socket)) = directory_of_one(&roots, sockets, called) else {
        return Ok(None);
    };
    replay::warn_of_loads(called, arguments);
    scripts::refuse(called, brand)?;
    let listed = fs::read_to_string(programs_beside(socket)).unwrap_or_default();
    let listed: Vec<String> = listed.lines().map(str::to_owned).collect();
    let rules = Rules::beside(sockets);
    if brand_of_program(called).is_some() {
        let start = Start { brand, server: as_started(program, brand), arguments, run_as: None };
        check(&start, &roots, Some(&listed), &rules, Datadir::Told)?;
    } else {
        behind::look(program, arguments, brand, &roots, &listed, &rules)?;
    }
    let present = std::env::var_os("TMPDIR").map(PathBuf::from);
    let inside = present.is_some_and(|dir| dir.is_dir() && settings::is_below(&dir, &roots));
    Ok((!inside).then(|| one.to_path_buf()))
}

/// A script, or the program, with links resolved.
fn file_of(program: &Program) -> &Path {
    program.script.as_ref().unwrap_or(&program.path)
}

/// A server or what starts one, as its option files know it: MariaDB's old names are links.
fn as_started(program: &Program, brand: Brand) -> &Path {
    if brand == Brand::MySql { file_of(program) } else { &program.called }
}

/// By its name, whether it shows the options or not.
fn starts_a_server(path: &Path) -> bool {
    is_server_or_starter(path) || scripts::hides_options(path)
}

/// By its name.
fn is_server_or_starter(path: &Path) -> bool {
    let mut names = SERVERS.iter().chain(&STARTERS);
    names.any(|name| path.file_name().is_some_and(|it| it == *name))
}

/// The first of these directories that is of MariaDB or MySQL, and its agent's socket: by the name
/// of its profile, else by what lies in it, else, for a program that is a server or starts one, by
/// that. One's own profile may have any name, and a new directory is empty: one with a name that is
/// not built in is then the likely one.
fn directory_of_one<'r>(
    roots: &[&'r Path],
    sockets: &'r [PathBuf],
    called: &Path,
) -> Option<(&'r Path, Brand, &'r Path)> {
    let all = || roots.iter().copied().zip(sockets.iter().map(PathBuf::as_path));
    let by_profile = all().find_map(|(dir, socket)| {
        let brand = Brand::ALL.into_iter().find(|brand| is_of(brand.profile(), socket))?;
        Some((dir, brand, socket))
    });
    let by_files = || all().find_map(|(dir, socket)| Some((dir, Brand::of(dir)?, socket)));
    let by_program = || {
        let brand = brand_of_program(called)?;
        let builtin = |socket: &Path| Profile::BUILTIN.iter().any(|name| is_of(name, socket));
        let own = all().find(|one| !builtin(one.1));
        let (dir, socket) = own.or_else(|| all().next())?;
        Some((dir, brand, socket))
    };
    by_profile.or_else(by_files).or_else(by_program)
}

/// Whose server a program is or starts, with links resolved: MariaDB's old names are links.
fn brand_of_program(called: &Path) -> Option<Brand> {
    let name = called.file_name().and_then(OsStr::to_str)?;
    if !is_server_or_starter(called) {
        return None;
    }
    // MySQL 8.0 and later have no mysql_install_db.
    Some(if name.starts_with("mysqld") { Brand::MySql } else { Brand::MariaDb })
}

/// True for the unit of a packaged server.
pub(crate) fn is_unit(name: &str) -> bool {
    UNITS.contains(&name.strip_suffix(".service").unwrap_or(name))
}

/// The data directory that the option files name for the server of this machine.
///
/// # Errors
/// They cannot be read.
pub(crate) fn configured_directory() -> Result<PathBuf> {
    let options = packaged(Brand::installed()).options()?;
    Ok(Settings::of(&options).directory().unwrap_or_else(|| DEFAULT_DIRECTORY.into()))
}

/// The server of a package, as its unit starts it.
fn packaged(brand: Brand) -> Start<'static> {
    Start { brand, server: Path::new(brand.packaged()), arguments: &[], run_as: None }
}

/// The server that works in a data directory: that is its current directory. Only one that shows
/// that, so that no other server is stopped.
pub(crate) fn server_on(dir: &Path) -> Option<u32> {
    Brand::of(dir)?;
    let all = all_processes().ok()?.flatten();
    let servers = all.filter(|process| process.exe().is_ok_and(|program| is_server(&program)));
    let mut pids = servers.filter_map(|process| u32::try_from(process.pid).ok());
    pids.find(|pid| works_in(*pid, dir).unwrap_or(false))
}

/// A server that may work in a data directory: one of its owner that shows neither its program nor
/// its current directory. To a user without its capabilities no process does, and Debian's unit of
/// MariaDB has CAP_IPC_LOCK.
pub(crate) fn hidden_server_on(dir: &Path) -> Option<u32> {
    let brand = Brand::of(dir)?;
    let owner = Owner::of(dir).ok()?;
    let inode = |name: &str| fs::metadata(dir.join(name)).map(|found| found.ino()).ok();
    let ours: Vec<u64> = brand.locked().into_iter().filter_map(inode).collect();
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let all = all_processes().ok()?.flatten();
    let hidden = all.filter(|process| is_hidden_server(process, owner.uid));
    let mut pids = hidden.filter_map(|process| u32::try_from(process.pid).ok());
    pids.find(|pid| may_lock(&locks, *pid, &ours))
}

/// What anybody sees of a process: its name and whose it is.
fn is_hidden_server(process: &Process, user: u32) -> bool {
    let proc = Path::new("/proc").join(process.pid.to_string());
    let hides = |name: &str| {
        let shown = fs::read_link(proc.join(name));
        shown.is_err_and(|why| why.kind() == io::ErrorKind::PermissionDenied)
    };
    let name = fs::read_to_string(proc.join("comm")).unwrap_or_default();
    SERVERS.contains(&name.trim_end())
        && (hides("exe") || hides("cwd"))
        && process.status().is_ok_and(|status| status.euid == user)
}

/// A server locks files of its directory. False for a process that has locks, by the kernel's table
/// of all, and none on one of these inodes: it works elsewhere. Their devices are not compared,
/// because Btrfs shows another one there.
fn may_lock(table: &str, pid: u32, inodes: &[u64]) -> bool {
    let pid = pid.to_string();
    let locked = table.lines().filter_map(|line| {
        // Number, kind, mode, access, process, device:inode, range. One that waits has a `->` more.
        let mut fields = line.split_ascii_whitespace().skip(4);
        fields.next().filter(|holder| *holder == pid)?;
        fields.next()?.rsplit(':').next()?.parse::<u64>().ok()
    });
    let locked: Vec<u64> = locked.collect();
    locked.is_empty() || locked.iter().any(|inode| inodes.contains(inode))
}

/// True for a server's program, as the kernel names that of a process.
pub(crate) fn is_server(program: &Path) -> bool {
    SERVERS.contains(&program_name(program))
}

/// What to do if nothing shows the options of a unit's server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unseen {
    Refuse,
    /// Its files may be sealed already.
    Warn,
    /// The same at a start: where no option names a directory, `service check` looks.
    Start,
}

/// For a unit whose server is to run on `dir`: looks at what the server there was started with, and
/// at what the unit starts.
///
/// # Errors
/// As [`prepare`]; the unit starts a server elsewhere; [`Unseen::Refuse`].
pub(crate) fn check_unit(unit: &str, dir: &Path, unseen: Unseen) -> Result<()> {
    let mut running = None;
    if server_on(dir).is_some() {
        let instance = Instance::find(dir, None)?;
        let options = instance.options()?;
        instance.refuse_places_outside(&options)?;
        running = Some(options.iter().skip(1).map(OsString::from).collect::<Vec<_>>());
    }
    let brand = Brand::of(dir).unwrap_or_else(Brand::installed);
    let listed = listed_in(dir, brand)?;
    let rules = Rules::to_be(dir, brand)?;
    // What a file of the unit names comes before the drop-in, and what another drop-in names may
    // come behind it. At a start it is there.
    let (temporary, inherited) = match unseen {
        Unseen::Start => (variable(unit, "TMPDIR"), Inherited::OfThisProcess),
        _ => {
            let of_files = variable_of_files(unit, "TMPDIR");
            let named = of_files.or_else(|| variable_of_others(unit, "TMPDIR"));
            (named, Inherited::OfSystemd)
        }
    };
    let temporary = temporary.filter(|dir| !dir.is_empty());
    let judge = |start: &Start<'_>| {
        // Only the package's own place is known where no option names one.
        let unnamed = running.is_some()
            || unseen == Unseen::Start
            || start.server != Path::new(brand.packaged());
        let temporary = temporary.as_ref().map(Path::new);
        let place = Datadir::OfUnit { unit, here: unnamed, temporary };
        check(start, &[dir], listed.as_deref(), &rules, place)
    };
    let started = Started::by(unit, inherited);
    if let (Started::Other(_), Some(dirs)) = (&started, &temporary) {
        // No options of it are seen but those of a server that runs.
        let settings = Settings::of(running.as_deref().unwrap_or_default());
        refuse_temporary(unit, Path::new(dirs), &settings, &[dir])?;
    }
    let why = match started {
        // The same words have been judged.
        Started::Server(_, arguments)
            if temporary.is_none() && running.as_ref() == Some(&arguments) =>
        {
            return Ok(());
        }
        Started::Server(server, arguments) => {
            // The unit may start it as the owner alone, who may have put it there.
            let owner = Owner::of(dir).ok().filter(|owner| owner.uid != 0);
            let run_as = owner.map(RunAs::new).transpose()?;
            let server = if dir.exists() { &server } else { Path::new(brand.packaged()) };
            let (arguments, run_as) = (&arguments, run_as.as_ref());
            return judge(&Start { brand, server, arguments, run_as });
        }
        _ if running.is_some() => return Ok(()),
        Started::Unknown if is_unit(unit) => return judge(&packaged(brand)),
        Started::Unknown => format!("systemd does not say what {unit} starts"),
        Started::Other(command) => {
            format!("{unit} starts `{command}`, which does not show the options of its server")
        }
    };
    if unseen == Unseen::Refuse {
        return Err(Error::refused(why, "start it first: the options of a server that runs show"));
    }
    console::warn(
        why,
        "a tmpdir, an innodb_undo_directory or the like outside of the directory would have plain \
         rows: look at its options",
    );
    Ok(())
}

/// The programs that get keys in a directory that is to be sealed; `None` for a sealed one, whose
/// keyring has the list.
fn listed_in(dir: &Path, brand: Brand) -> Result<Option<Vec<String>>> {
    if dir.join(FOLDER).symlink_metadata().is_ok() {
        return Ok(None);
    }
    Ok(Some(Profile::builtin(brand.profile())?.programs))
}

#[cfg(test)]
mod tests {
    use tidelock_contract::Notice;
    use tidelock_contract::control::notice_beside;
    use tidelock_format::Layout;

    use super::*;

    #[test]
    fn a_renamed_profile_is_known_by_its_directory_and_then_by_the_program() {
        let home = tempfile::tempdir().unwrap();
        let place = |name: &str, profile: &str, renamed: &str| {
            let dir = home.path().join(name);
            fs::create_dir(&dir).unwrap();
            let socket = home.path().join(format!("{name}.sock"));
            let mut profile = Profile::builtin(profile).unwrap();
            profile.name = renamed.to_owned();
            let policy = profile.compile(&[], &[]).unwrap();
            let notice = Notice::encode(&dir, Layout::DEFAULT, &policy);
            fs::write(notice_beside(&socket), notice).unwrap();
            (dir, socket)
        };
        let (other, first) = place("a", "generic", "generic");
        let (own, second) = place("b", "mariadb", "my-maria");
        let (named, third) = place("c", "mysql", "mysql");
        let (roots, sockets) = ([&*other, &*own, &*named], [first, second, third]);
        let found = |count: usize, program: &str| {
            let found = directory_of_one(&roots[..count], &sockets[..count], Path::new(program));
            found.map(|(dir, brand, socket)| {
                assert_eq!(socket, dir.with_extension("sock"));
                (dir, brand)
            })
        };
        let server = "/usr/sbin/mariadbd";
        assert_eq!(found(2, "/usr/bin/mariadb-backup"), None);
        assert_eq!(found(2, server), Some((&*own, Brand::MariaDb)));
        assert_eq!(found(2, "/x/mysqld-debug"), Some((&*own, Brand::MySql)));
        assert_eq!(found(1, "/usr/bin/mariadbd-safe"), Some((&*other, Brand::MariaDb)));
        assert_eq!(found(0, server), None);
        fs::write(own.join("aria_log_control"), "").unwrap();
        fs::create_dir(own.join("mysql")).unwrap();
        for program in [server, "/usr/bin/mariadb-backup"] {
            assert_eq!(found(2, program), Some((&*own, Brand::MariaDb)), "{program}");
            assert_eq!(found(3, program), Some((&*named, Brand::MySql)), "{program}");
        }
    }

    #[test]
    fn a_client_with_a_name_like_a_servers_is_no_server() {
        for server in ["/usr/sbin/mariadbd", "/usr/sbin/mysqld (deleted)", "/x/mysqld-debug"] {
            assert!(is_server(Path::new(server)), "{server}");
        }
        for other in ["/usr/bin/mysqldump", "/usr/bin/mariadbd-safe-helper", "/x/mariadbd.old"] {
            assert!(!is_server(Path::new(other)), "{other}");
        }
    }

    #[test]
    fn a_hidden_server_that_locks_files_elsewhere_is_not_ours() {
        let table = "1: POSIX  ADVISORY  WRITE 41 fe:00:7001 0 EOF\n\
                     2: POSIX  ADVISORY  WRITE 42 fe:00:7003 0 EOF\n\
                     2: -> POSIX  ADVISORY  WRITE 43 fe:00:7003 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 41 00:2e:7002 0 EOF\n";
        for (pid, inodes, may) in [
            (41, [7001, 7009], true),
            (41, [7002, 7009], true),
            (42, [7001, 7002], false),
            // Those that lock nothing, or wait, may be starting.
            (43, [7001, 7002], true),
            (7001, [7001, 7002], true),
        ] {
            assert_eq!(may_lock(table, pid, &inodes), may, "{pid} {inodes:?}");
        }
    }
}

//! Where a server is told to keep files, and what that would leave plain.
//!
//! A file below the protected directory is sealed, wherever a link there leads. A setting that
//! names another place for rows is refused before the server starts; one for logs that people read
//! is told. Tables with `DATA DIRECTORY` are named in SQL, so they are not seen before a start.

use std::path::{Path, PathBuf};

use super::by_rule::{self, Rules};
use super::settings::{self, Settings, Stray};
use super::start::Start;
use super::{DEFAULT_DIRECTORY, galera};
use crate::console;
use crate::error::{Error, Result};

/// What is known of a server's data directory.
#[derive(Clone, Copy)]
pub(super) enum Datadir<'a> {
    /// What the options say, and a person may mean another one.
    Told,
    /// The same, of a server that a script starts, which may say more.
    OfScript,
    /// The same of a unit, which must mean the protected one; `here` if it does where its options
    /// name none. `temporary` is its TMPDIR, if that is not ours.
    OfUnit { unit: &'a str, here: bool, temporary: Option<&'a Path> },
    /// It is this one, where the server runs.
    Is(&'a Path),
}

/// Judges what a server is told; `listed` as [`galera::check`] takes them.
///
/// # Errors
/// [`Error::Refused`]; the options cannot be asked for.
pub(super) fn check(
    start: &Start<'_>,
    roots: &[&Path],
    listed: Option<&[String]>,
    rules: &Rules,
    place: Datadir<'_>,
) -> Result<()> {
    let settings = Settings::of(&start.options()?);
    let datadir = match (place, settings.directory()) {
        (Datadir::Is(dir), _) => dir.to_path_buf(),
        (_, Some(named)) => named,
        (Datadir::OfUnit { here: true, .. } | Datadir::OfScript, None) => roots[0].to_path_buf(),
        (Datadir::Told, None) if !is_of_package(start.server) => {
            console::warn(
                format!(
                    "no option names the datadir, and where {} has it by itself is unknown: \
                     outside of the protected directory all that it writes is plain",
                    start.server.display()
                ),
                format!("tell it the directory: --datadir={}", roots[0].display()),
            );
            roots[0].to_path_buf()
        }
        (Datadir::OfUnit { .. } | Datadir::Told, None) => DEFAULT_DIRECTORY.into(),
    };
    judge(&settings, &datadir, roots, place)?;
    by_rule::judge(&settings, &datadir, rules)?;
    galera::check(&settings, &datadir, roots, || start.of_files(&["sst"]), listed)
}

/// True for what a distribution has put there, with its place for data.
fn is_of_package(server: &Path) -> bool {
    let real = server.canonicalize().unwrap_or_else(|_| server.to_path_buf());
    real.starts_with("/usr") && !real.starts_with("/usr/local")
}

/// Refuses the TMPDIR of a unit, which counts where no option names a place: directories with
/// colons between them.
///
/// # Errors
/// [`Error::Refused`].
pub(super) fn refuse_temporary(
    unit: &str,
    dirs: &Path,
    settings: &Settings,
    roots: &[&Path],
) -> Result<()> {
    let outside = |dir: &PathBuf| !settings::is_below(dir, roots);
    let Some(stray) = std::env::split_paths(dirs).find(outside) else { return Ok(()) };
    if settings.tmpdir().is_some() {
        return Ok(());
    }
    let shown = roots.iter().map(|it| it.display().to_string()).collect::<Vec<_>>().join(", ");
    Err(Error::refused(
        format!(
            "{unit} gives its server TMPDIR={}: sorts would lie there plain, outside of {shown}",
            stray.display()
        ),
        "remove that line from the file that EnvironmentFile= names, or from the drop-in; \
         Tidelock's drop-in has the right one",
    ))
}

/// Refuses rows outside of the directories, and tells of logs there.
///
/// # Errors
/// [`Error::Refused`].
pub(super) fn judge(
    settings: &Settings,
    datadir: &Path,
    roots: &[&Path],
    place: Datadir<'_>,
) -> Result<()> {
    let shown = roots.iter().map(|it| it.display().to_string()).collect::<Vec<_>>().join(", ");
    let is_elsewhere = !settings::is_below(datadir, roots);
    if is_elsewhere {
        if let Datadir::OfUnit { unit, .. } = place {
            return Err(Error::refused(
                format!(
                    "{unit} starts a server on {}, which is not below {shown}: all would be plain",
                    datadir.display()
                ),
                "name that directory with -D, or the unit of this one",
            ));
        }
        console::warn(
            format!(
                "the server's datadir is {}, which is not below the protected {shown}: all that \
                 it writes there is plain",
                datadir.display()
            ),
            format!("tell it the directory: --datadir={}", roots[0].display()),
        );
        if matches!(place, Datadir::Told) && settings.directory().is_some() {
            return Ok(());
        }
        // Nobody has named that directory for sure: the server may have another one.
    }
    if let Datadir::OfUnit { unit, temporary: Some(dirs), .. } = place {
        refuse_temporary(unit, dirs, settings, roots)?;
    }
    let is_told = |stray: &Stray| is_elsewhere && settings::is_below(&stray.path, &[datadir]);
    for stray in settings.outside(datadir, roots).into_iter().filter(|stray| !is_told(stray)) {
        let Stray { setting, path, rows } = stray;
        let path = path.display();
        if rows {
            return Err(Error::refused(
                format!("{setting} is {path}: rows would lie there plain, outside of {shown}"),
                settings::instead(setting, &shown),
            ));
        }
        let (what, hint) = match setting {
            settings::ERROR_LOG => (
                "it is plain, and with innodb_print_all_deadlocks it has values of rows",
                "name a file below the data directory, and it is sealed; without the setting it \
                 goes to standard error, which the journal keeps plain",
            ),
            _ => (
                "statements in it are plain",
                "leave it away, and the log is sealed below the data directory; `tidelock cat -f` \
                 reads it",
            ),
        };
        console::warn(format!("{setting} is {path}, outside of {shown}: {what}"), hint);
    }
    if settings.audits_to_syslog() {
        console::warn(
            "server_audit_output_type is syslog: the statements that it tells are plain there",
            "with server_audit_output_type=file they are sealed below the data directory",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::super::brand::Brand;
    use super::*;

    #[test]
    fn a_tmpdir_of_the_units_files_outside_is_refused_where_no_option_comes_before_it() {
        let dir = Path::new("/d");
        let judged = |option: &str, temporary: Option<&str>| {
            let settings = Settings::of(&[OsString::from(option)]);
            let temporary = temporary.map(Path::new);
            let place = Datadir::OfUnit { unit: "mariadb", here: true, temporary };
            judge(&settings, dir, &[dir], place).map_err(|why| why.to_string())
        };
        for (option, temporary) in
            [("--log-bin", None), ("--log-bin", Some("/d/tmp")), ("--tmpdir=/d/tmp", Some("/fast"))]
        {
            assert_eq!(judged(option, temporary), Ok(()), "{option} {temporary:?}");
        }
        for outside in ["/fast", "/d/tmp:/fast"] {
            let why = judged("--log-bin", Some(outside)).unwrap_err();
            assert!(why.contains("mariadb gives its server TMPDIR=/fast"), "{why}");
        }
    }

    /// `true` stands in for the program beside it that prints the option files.
    #[test]
    fn a_server_that_is_told_no_directory_is_judged_all_the_same() {
        let home = tempfile::tempdir().unwrap();
        for name in ["mariadbd", "my_print_defaults"] {
            let mut copy = std::process::Command::new("cp");
            assert!(copy.arg("/bin/true").arg(home.path().join(name)).status().unwrap().success());
        }
        let (dir, server) = (Path::new("/d"), home.path().join("mariadbd"));
        let judged = |options: &[&str]| {
            let arguments: Vec<OsString> = options.iter().map(OsString::from).collect();
            let start = Start {
                brand: Brand::MariaDb,
                server: &server,
                arguments: &arguments,
                run_as: None,
            };
            let rules = Rules::to_be(dir, Brand::MariaDb).unwrap();
            check(&start, &[dir], None, &rules, Datadir::Told).map_err(|why| why.to_string())
        };
        assert_eq!(judged(&["--log-bin=b", "--tmpdir=/d/tmp"]), Ok(()));
        let why = judged(&["--log-bin=b", "--tmpdir=/x"]).unwrap_err();
        assert!(why.starts_with("tmpdir is /x: rows"), "{why}");
        let why = judged(&["--innodb-data-file-path=sqldata01:12M"]).unwrap_err();
        assert!(why.starts_with("innodb_data_file_path is /d/sqldata01, and a rule"), "{why}");
    }

    #[test]
    fn a_place_outside_is_refused_although_the_packaged_servers_own_directory_is_too() {
        let judged = |options: &[&str]| {
            let options: Vec<OsString> = options.iter().map(OsString::from).collect();
            let settings = Settings::of(&options);
            let dir = settings.directory().unwrap_or_else(|| DEFAULT_DIRECTORY.into());
            let judged = judge(&settings, &dir, &[Path::new("/d")], Datadir::Told);
            judged.map_err(|why| why.to_string())
        };
        assert_eq!(judged(&["--log-bin=b", "--tmpdir=/var/lib/mysql/tmp"]), Ok(()));
        // What a person has named is another server's, and all of that is plain.
        assert_eq!(judged(&["--datadir=/e", "--tmpdir=/x"]), Ok(()));
        let why = judged(&["--log-bin=b", "--tmpdir=/x"]).unwrap_err();
        assert!(why.starts_with("tmpdir is /x: rows"), "{why}");
    }
}

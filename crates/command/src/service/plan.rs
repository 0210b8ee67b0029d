//! What is written for a unit: a drop-in for systemd, and for a Debian cluster a block in its
//! environment, which pg_ctlcluster empties otherwise, and a pg_ctlcluster and a pg_upgradecluster
//! in front of Debian's.

use std::fmt::{self, Write as _};
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tidelock_agent::alias::alias_name;

use crate::error::{Error, Result};
use crate::exec::Library;
use crate::links::without_links;
use crate::mysqld::{self, Brand, Unseen};
use crate::postgres::settings::{CONFIG, named_directory};
use crate::service::record::{Record, Written};
use crate::service::sandbox::Sandbox;
use crate::service::target::Target;
use crate::service::{before, start, upgrade};
use crate::this_program;

/// The address of a socket has no more bytes.
const MAX_SOCKET: usize = 107;

/// The name of a unit, without `.service`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Unit(String);

impl FromStr for Unit {
    type Err = &'static str;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        let name = text.strip_suffix(".service").unwrap_or(text);
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b"@-_.:\\".contains(&byte);
        if name.is_empty() || name.starts_with('.') || !name.bytes().all(good) {
            return Err("a unit has letters, digits and @-_.:\\");
        }
        Ok(Self(name.to_owned()))
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

impl Unit {
    /// The unit of a Debian cluster; `None` if no version and name can be meant.
    pub(super) fn of_cluster(version: &str, name: &str) -> Option<Self> {
        let is_version = version.starts_with(|c: char| c.is_ascii_digit());
        if !is_version || name.starts_with('-') {
            return None;
        }
        format!("postgresql@{version}-{name}").parse().ok()
    }

    /// Version and name of a Debian cluster.
    fn cluster(&self) -> Option<(&str, &str)> {
        self.0.strip_prefix("postgresql@")?.split_once('-')
    }

    /// `/etc/postgresql/15/main`
    fn cluster_folder(&self) -> Option<PathBuf> {
        let (version, name) = self.cluster()?;
        Some(Path::new("/etc/postgresql").join(version).join(name))
    }

    /// The file of an instance's template: `postgresql@.service`.
    pub(super) fn template(&self) -> Option<String> {
        self.0.split_once('@').map(|(name, _)| format!("{name}@.service"))
    }

    /// The line by which it unlocks its directory.
    pub(super) fn unlock(&self, program: &Path) -> String {
        format!("ExecStartPre=+{} service unlock {}", program.display(), self.as_word())
    }

    /// As a word of a unit's file, where a backslash begins an escape: systemd would call
    /// `db@srv-my\x2ddb` by another name.
    pub(super) fn as_word(&self) -> String {
        self.0.replace('\\', r"\\")
    }

    /// A packaged unit of MariaDB or MySQL, by its name or an alias.
    fn is_mysqld(&self) -> bool {
        mysqld::is_unit(&self.0)
    }

    /// True if its server is MariaDB's or MySQL's, by its name or by what lies in its directory.
    pub(super) fn is_mysqld_on(&self, dir: &Path) -> bool {
        self.is_mysqld() || Brand::of(dir).is_some()
    }

    /// Where a Debian cluster, MariaDB or MySQL has its data.
    ///
    /// # Errors
    /// [`Error::Usage`] for another unit; [`Error::Io`].
    pub(super) fn data_directory(&self, root: &Path) -> Result<PathBuf> {
        let ask = |why: &str| Error::usage(why, "name the protected directory with -D DIR");
        if self.is_mysqld() && root == Path::new("/") {
            return mysqld::configured_directory();
        }
        let folder = self.cluster_folder().ok_or_else(|| {
            ask(&format!("{self} is not a Debian cluster, so its directory is unknown"))
        })?;
        let folder = below(root, &folder);
        let (dir, _) = named_directory(&folder)?.ok_or_else(|| {
            ask(&format!("{} has no data_directory", folder.join(CONFIG).display()))
        })?;
        Ok(dir)
    }

    /// For a Debian cluster: as [`refuse_another_directory`].
    ///
    /// # Errors
    /// The same.
    pub(super) fn refuse_another_directory(&self, dir: &Path, root: &Path) -> Result<()> {
        match self.cluster_folder() {
            Some(folder) => refuse_another_directory(&self.0, &below(root, &folder), dir, root),
            None => Ok(()),
        }
    }
}

/// Refuses `dir` for a Debian cluster whose configuration in `folder` names another directory: the
/// server would work there, and all of it would be plain.
///
/// # Errors
/// [`Error::Refused`]; [`Error::Io`].
pub(crate) fn refuse_another_directory(
    unit: &str,
    folder: &Path,
    dir: &Path,
    root: &Path,
) -> Result<()> {
    let named = match named_directory(folder) {
        Err(why) if why.is_not_found() => None,
        named => named?,
    };
    let Some((named, file)) = named else { return Ok(()) };
    let real = |path: &Path| {
        let path = below(root, path);
        without_links(&path).unwrap_or(path)
    };
    if real(&named) == real(dir) {
        return Ok(());
    }
    Err(Error::refused(
        format!(
            "the server of {unit} works in {}, as {} says, and not in {}",
            named.display(),
            file.display(),
            dir.display()
        ),
        format!("name that directory, or have data_directory there name {}", dir.display()),
    ))
}

/// A path of the machine below the root of an image.
pub(super) fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Refuses what a unit's server is given as LD_PRELOAD by `whose`, if our library is not in it.
/// What a file has counts before any `Environment=`, and of these the last one counts.
///
/// # Errors
/// [`Error::Refused`].
pub(super) fn refuse_preload(
    unit: &Unit,
    whose: Whose,
    given: Option<&str>,
    library: &str,
) -> Result<()> {
    match given {
        Some(given) if !given.split([' ', ':']).any(|word| word == library) => Err(Error::refused(
            match whose {
                Whose::File => format!(
                    "a file that {unit}.service names by EnvironmentFile= has LD_PRELOAD={given}, \
                     which drops the library: {library}"
                ),
                Whose::Unit => format!(
                    "{unit}.service, or a drop-in of it, has LD_PRELOAD={given} without the library \
                     {library}: one of the two would drop the other"
                ),
            },
            format!(
                "remove the line there; an allocator goes into a drop-in that comes behind ours, \
                 Environment=\"LD_PRELOAD={library} {given}\""
            ),
        )),
        _ => Ok(()),
    }
}

/// What gives a server its variables.
#[derive(Clone, Copy)]
pub(super) enum Whose {
    /// One of `EnvironmentFile=`.
    File,
    /// `Environment=`.
    Unit,
}

/// True if a file has this line.
fn has_line(file: &Path, line: &str) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.lines().any(|it| it == line))
}

/// Operations a second on the disk of the directory.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) read: Option<u32>,
    pub(super) write: Option<u32>,
}

/// What will be written.
pub(super) struct Plan {
    pub(super) record: Record,
}

impl Plan {
    /// # Errors
    /// The library is not installed; [`Error::Refused`] for paths that the files cannot hold.
    pub(super) fn make(unit: &Unit, target: &Target, limits: Limits, root: &Path) -> Result<Self> {
        let library = Library::find()?.path;
        let program = this_program::path()?;
        let folder = PathBuf::from(format!("/run/tidelock/{}", target.owner.uid));
        let socket = folder.join(alias_name(&unit.to_string()));
        if socket.as_os_str().len() > MAX_SOCKET {
            return Err(Error::refused(
                format!("{} is too long for the path of a socket", socket.display()),
                "name the unit by a shorter alias of it",
            ));
        }
        for path in [&library, &program, &target.path] {
            let bad = |c: char| c.is_whitespace() || c.is_control() || "'\"\\%$:".contains(c);
            if path.to_str().is_none_or(|path| path.contains(bad)) {
                return Err(Error::refused(
                    format!("{} cannot be written into a unit", path.display()),
                    "use a path without blanks, quotes, colons, backslashes, % and $",
                ));
            }
        }
        let in_front = [
            (start::IN_FRONT, start::script(&program)),
            (upgrade::IN_FRONT, upgrade::script(&program)),
        ];
        let sandbox = match root == Path::new("/") {
            true => Sandbox::of(unit),
            false => Sandbox::default(),
        };
        sandbox.refuse_library(unit, &library)?;
        let unlock = unit.unlock(&program);
        let drop_in = PathBuf::from(format!("/etc/systemd/system/{unit}.service.d/tidelock.conf"));
        let (library, program) = (library.display(), program.display());
        let mut written = Vec::new();
        let mut text =
            "# Written by `tidelock service install`. Change it with `systemctl edit`, not here.\n"
                .to_owned();
        // Writing to a String cannot fail.
        let remote = target.config.providers.iter().any(|choice| choice.kind().is_remote);
        if target.config.auto_init || remote {
            text.push_str("[Unit]\n");
        }
        if target.config.auto_init {
            // An empty mount point is no directory to be made again.
            let _ = writeln!(text, "RequiresMountsFor={}", target.path.display());
        }
        if remote {
            let _ = writeln!(text, "Wants=network-online.target\nAfter=network-online.target");
        }
        text.push_str("[Service]\n");
        if let Some(text) = before::text(unit, &unlock, root) {
            written.push(Written { path: before::path(unit), block: false, text });
        }
        // Also behind the unit's own commands: a drop-in may have reset the list, and an agent
        // waits 30 s for its first client.
        let _ = writeln!(text, "{unlock}");
        let _ = writeln!(text, "ExecStartPost=+{program} service check {}", unit.as_word());
        for choice in &target.config.providers {
            if let Some(credential) = choice.credential() {
                // Without a path, which finds it in /etc/credstore.encrypted: with one, systemd
                // starts nothing while the file is gone, and `unlock` could not say so.
                let _ = writeln!(text, "LoadCredentialEncrypted={credential}");
            }
        }
        if unit.is_mysqld_on(&below(root, &target.path)) {
            if root == Path::new("/") {
                mysqld::check_unit(&unit.to_string(), &target.path, Unseen::Warn)?;
            }
            // Sorts and temporary tables; `tmpdir` of the option files would come before it.
            let _ = writeln!(text, "Environment=TMPDIR={}", target.path.display());
        }
        let present = below(root, &drop_in);
        for line in sandbox.lines(|line| has_line(&present, line)) {
            let _ = writeln!(text, "{line}");
        }
        for (setting, limit) in [("IOReadIOPSMax", limits.read), ("IOWriteIOPSMax", limits.write)] {
            if let Some(limit) = limit {
                // systemd takes the disk below the file system of this path.
                let _ = writeln!(text, "{setting}={} {limit}", target.there.display());
            }
        }
        match unit.cluster_folder() {
            Some(folder) if below(root, &folder).is_dir() => {
                let text =
                    format!("LD_PRELOAD = '{library}'\nTIDELOCK_AGENT = '{}'\n", socket.display());
                let path = folder.join("environment");
                written.push(Written { path, block: true, text });
                written.extend(in_front.map(|(path, text)| Written {
                    path: path.into(),
                    block: false,
                    text,
                }));
            }
            _ => {
                if root == Path::new("/") {
                    let (name, library) = (unit.to_string(), library.to_string());
                    let given = mysqld::variable_of_files(&name, start::PRELOAD);
                    refuse_preload(unit, Whose::File, given.as_deref(), &library)?;
                    let given = mysqld::variable_of_others(&name, start::PRELOAD);
                    refuse_preload(unit, Whose::Unit, given.as_deref(), &library)?;
                }
                let _ = writeln!(
                    text,
                    "Environment=LD_PRELOAD={library} TIDELOCK_AGENT={}",
                    socket.display()
                );
            }
        }
        written.push(Written { path: drop_in, block: false, text });
        let directory = target.path.clone();
        Ok(Self { record: Record { directory, socket, written, replaced: Vec::new() } })
    }

    /// For `--dry-run`.
    pub(super) fn text(&self) -> String {
        let part = |it: &Written| format!("--- {}\n{}", it.path.display(), it.text);
        self.record.written.iter().map(part).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_has_the_directory_that_any_of_its_files_names_last() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path();
        let folder = root.join("etc");
        for dir in ["etc/conf.d", "plain", "sealed"] {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        std::os::unix::fs::symlink("sealed", root.join("link")).unwrap();
        let judge = |dir: &str| {
            let judged = refuse_another_directory("u", &folder, Path::new(dir), root);
            judged.map_err(|why| (why.exit_code(), why.to_string()))
        };
        // What is not there says nothing.
        assert_eq!(judge("/sealed"), Ok(()));
        let main = folder.join(CONFIG);
        fs::write(&main, "data_directory = '/sealed'\ninclude_dir 'conf.d'\n").unwrap();
        assert_eq!(judge("/sealed"), Ok(()));
        assert_eq!(judge("/link"), Ok(()));
        let (code, why) = judge("/plain").unwrap_err();
        let told = [main.display().to_string(), "/sealed,".into(), "not in /plain".into()];
        assert!(code == 3 && told.iter().all(|it| why.contains(it)), "{why}");
        let other = folder.join("conf.d/other.conf");
        fs::write(&other, "data_directory '/link/to-be'\n").unwrap();
        assert_eq!(judge("/sealed/to-be"), Ok(()));
        fs::write(&other, "data_directory = '/plain'\n").unwrap();
        assert!(judge("/sealed").unwrap_err().1.contains(&other.display().to_string()));
        assert_eq!(named_directory(&folder).unwrap(), Some(("/plain".into(), other)));
    }

    #[test]
    fn a_library_that_drops_ours_is_refused_with_the_place_that_gives_it() {
        let (unit, ours) = ("mariadb".parse::<Unit>().unwrap(), "/usr/lib/tidelock/x.so");
        for (whose, told) in [(Whose::File, "EnvironmentFile="), (Whose::Unit, "a drop-in of it")] {
            for good in [None, Some(ours), Some("/usr/lib/tidelock/x.so:/jemalloc.so")] {
                refuse_preload(&unit, whose, good, ours).unwrap();
            }
            for bad in ["", "/jemalloc.so", "/jemalloc.so /usr/lib/tidelock/x.so.old"] {
                let why = refuse_preload(&unit, whose, Some(bad), ours).unwrap_err();
                let text = why.to_string();
                assert!(why.exit_code() == 3 && text.contains(ours), "{text}");
                assert!(text.contains(told), "{text}");
            }
        }
    }

    #[test]
    fn units_are_names_and_never_paths() {
        for bad in ["", ".", "../x", "a/b", "a b", "a\nb", ".service"] {
            assert!(bad.parse::<Unit>().is_err(), "{bad:?}");
        }
        let unit: Unit = "postgresql@15-my-own.service".parse().unwrap();
        assert_eq!(unit.cluster(), Some(("15", "my-own")));
        assert_eq!("mariadb".parse::<Unit>().unwrap().cluster(), None);
    }
}

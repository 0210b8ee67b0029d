//! Settings of a unit that would keep something from the library or the agent.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::plan::Unit;
use crate::error::{Error, Result};

/// The line that takes a unit's own users away. The agent reads which program a process is from
/// `/proc`, and the kernel shows that to no process outside of the other's user namespace.
const NO_PRIVATE_USERS: &str = "PrivateUsers=no";

/// The line by which a unit's own commands run as its user, as its server does.
const ALL_AS_ITS_USER: &str = "PermissionsStartOnly=no";
/// Runs before MySQL in Debian's and Ubuntu's packages, as root, and tries the server by `--help`:
/// the agent sees no program of root.
const TRIES_THE_SERVER: &str = "/mysql-systemd-start ";

/// The settings of a unit that matter here.
#[derive(Default, PartialEq, Eq, Debug)]
pub(super) struct Sandbox {
    private_users: bool,
    /// Its commands but that of the server run as root.
    commands_of_root: bool,
    tries_the_server: bool,
    /// Nothing below these may be executed or mapped so.
    forbidden: Vec<PathBuf>,
    /// But for what is below these.
    allowed: Vec<PathBuf>,
}

impl Sandbox {
    /// As systemd has it now. Without systemd there is none.
    pub(super) fn of(unit: &Unit) -> Self {
        let unit = format!("{unit}.service");
        let told = |words: &[&str]| {
            let told = Command::new("systemctl").args(words).arg(&unit).output();
            told.map(|told| String::from_utf8_lossy(&told.stdout).into_owned()).unwrap_or_default()
        };
        let names = "--property=PrivateUsers,ExecStartPre,NoExecPaths,ExecPaths";
        // This one is shown in files alone, of which the last counts.
        let mut text = told(&["show", names]);
        for line in told(&["cat"]).lines().filter(|line| line.starts_with("PermissionsStartOnly")) {
            let (name, value) = line.split_once('=').unwrap_or((line, ""));
            text.push_str(&format!("{}={}\n", name.trim(), value.trim()));
        }
        Self::read(&text)
    }

    fn read(text: &str) -> Self {
        let mut sandbox = Self::default();
        for (name, value) in text.lines().filter_map(|line| line.split_once('=')) {
            // `-` says that the path need not be there, `+` that it is below RootDirectory=.
            let paths = || {
                let words = value.split_whitespace();
                words.map(|word| word.trim_start_matches(['-', '+']).into()).collect()
            };
            match name {
                "PrivateUsers" => sandbox.private_users = !matches!(value, "no" | ""),
                "PermissionsStartOnly" => {
                    sandbox.commands_of_root = ["1", "yes", "y", "true", "t", "on"]
                        .iter()
                        .any(|yes| yes.eq_ignore_ascii_case(value));
                }
                "ExecStartPre" => sandbox.tries_the_server |= value.contains(TRIES_THE_SERVER),
                "NoExecPaths" => sandbox.forbidden = paths(),
                "ExecPaths" => sandbox.allowed = paths(),
                _ => {}
            }
        }
        sandbox
    }

    /// Lines of a drop-in that put this right. A drop-in that has them now keeps them: where it is,
    /// systemd shows what it says.
    pub(super) fn lines(&self, has: impl Fn(&str) -> bool) -> impl Iterator<Item = &'static str> {
        let as_root = self.commands_of_root && self.tries_the_server;
        let wanted = [(NO_PRIVATE_USERS, self.private_users), (ALL_AS_ITS_USER, as_root)];
        wanted.into_iter().filter(move |(line, wanted)| *wanted || has(line)).map(|(line, _)| line)
    }

    /// Refuses a library that the server could not map.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub(super) fn refuse_library(&self, unit: &Unit, library: &Path) -> Result<()> {
        let longest = |all: &[PathBuf]| {
            let of = all.iter().filter(|path| library.starts_with(path));
            of.map(|path| path.as_os_str().len()).max()
        };
        let (Some(forbidden), allowed) = (longest(&self.forbidden), longest(&self.allowed)) else {
            return Ok(());
        };
        if allowed.is_some_and(|allowed| allowed >= forbidden) {
            return Ok(());
        }
        Err(Error::refused(
            format!(
                "{unit}.service has NoExecPaths=, so its server may not load {}",
                library.display()
            ),
            format!(
                "`systemctl edit {unit}`, and write ExecPaths={} below [Service]",
                library.parent().unwrap_or(library).display()
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_is_read_as_systemd_shows_it() {
        // Debian's redis-server.service.
        let sandbox = Sandbox::read(
            "PrivateUsers=yes\nNoExecPaths=/\nExecPaths=/usr/bin/redis-server /usr/lib -/lib\n",
        );
        assert!(sandbox.private_users);
        assert_eq!(
            sandbox.allowed,
            ["/usr/bin/redis-server", "/usr/lib", "/lib"].map(PathBuf::from)
        );
        assert_eq!(
            Sandbox::read("PrivateUsers=no\nNoExecPaths=\nExecPaths=\n"),
            Sandbox::default()
        );
    }

    #[test]
    fn what_tries_the_server_as_root_runs_as_its_user() {
        // Debian's mysql.service.
        let pre = "ExecStartPre={ path=/usr/share/mysql/mysql-systemd-start ; \
                   argv[]=/usr/share/mysql/mysql-systemd-start pre ; ignore_errors=no }\n";
        let lines = |text: &str, present: &str| {
            Sandbox::read(text).lines(|line| line == present).collect::<Vec<_>>()
        };
        let as_root = format!("PermissionsStartOnly=yes\n{pre}ExecStartPre={{ path=/x ; }}\n");
        assert_eq!(lines(&as_root, ""), [ALL_AS_ITS_USER]);
        let later = "PermissionsStartOnly=no\n";
        assert_eq!(lines(&(as_root.clone() + later), ""), [""; 0]);
        assert_eq!(lines(&(as_root + later), ALL_AS_ITS_USER), [ALL_AS_ITS_USER]);
        // Another command may need root's rights.
        assert_eq!(lines("PermissionsStartOnly=yes\nExecStartPre={ path=/x ; }\n", ""), [""; 0]);
        assert_eq!(lines("PrivateUsers=yes\n", ""), [NO_PRIVATE_USERS]);
    }

    #[test]
    fn a_library_where_nothing_may_be_executed_is_refused() {
        let unit = "redis-server".parse::<Unit>().unwrap();
        let judge = |text: &str, library: &str| {
            Sandbox::read(text).refuse_library(&unit, Path::new(library)).is_ok()
        };
        let debian = "NoExecPaths=/\nExecPaths=/usr/bin/redis-server /usr/lib /lib";
        assert!(judge(debian, "/usr/lib/tidelock/x.so"));
        assert!(!judge(debian, "/usr/local/lib/tidelock/x.so"));
        assert!(!judge("NoExecPaths=/usr/lib/tidelock\nExecPaths=/usr", "/usr/lib/tidelock/x.so"));
        assert!(judge("NoExecPaths=/home", "/usr/local/lib/tidelock/x.so"));
        assert!(judge("", "/usr/local/lib/tidelock/x.so"));
    }
}

//! What a unit's sandbox would keep from the library and the agent.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::plan::Unit;
use crate::error::{Error, Result};

/// The line that takes a unit's own users away. The agent reads which program a process is from
/// `/proc`, and the kernel shows that to no process outside of the other's user namespace.
pub(super) const NO_PRIVATE_USERS: &str = "PrivateUsers=no";

/// The settings of a unit that matter here.
#[derive(Default, PartialEq, Eq, Debug)]
pub(super) struct Sandbox {
    pub(super) private_users: bool,
    /// Nothing below these may be executed or mapped so.
    forbidden: Vec<PathBuf>,
    /// But for what is below these.
    allowed: Vec<PathBuf>,
}

impl Sandbox {
    /// As systemd has it now. Without systemd there is none.
    pub(super) fn of(unit: &Unit) -> Self {
        let mut command = Command::new("systemctl");
        for name in ["PrivateUsers", "NoExecPaths", "ExecPaths"] {
            command.arg("--property").arg(name);
        }
        let told = command.arg("show").arg(format!("{unit}.service")).output();
        told.map_or_else(
            |_| Self::default(),
            |told| Self::read(&String::from_utf8_lossy(&told.stdout)),
        )
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
                "NoExecPaths" => sandbox.forbidden = paths(),
                "ExecPaths" => sandbox.allowed = paths(),
                _ => {}
            }
        }
        sandbox
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

//! The commands that a unit's own file runs before its server. They get the library as the server
//! does, so the unlock has to come before them. A drop-in can only append: this one resets the list
//! and repeats it behind the unlock.

use std::fs;
use std::path::{Path, PathBuf};

use crate::service::plan::Unit;

/// It comes before the drop-ins of the operator, so that what they append or reset stays so: also
/// before `00-NAME.conf`.
pub(super) const FILE: &str = "0-tidelock.conf";
/// Where systemd looks for a unit's file, in its order, below the root.
const FOLDERS: [&str; 5] = [
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
];
const KEY: &str = "ExecStartPre";

/// Where the drop-in of a unit lies.
pub(super) fn path(unit: &Unit) -> PathBuf {
    format!("/etc/systemd/system/{unit}.service.d/{FILE}").into()
}

/// The drop-in, with the line that unlocks; `None` for a unit that has no such commands.
pub(super) fn text(unit: &Unit, unlock: &str, root: &Path) -> Option<String> {
    let own = commands(&file(unit, root)?);
    (!own.is_empty()).then(|| {
        format!(
            "# Written by `tidelock service install`, which the next install writes again. The \
             commands of\n# {unit}.service come after the unlock, since they may need keys.\n\
             [Service]\n{KEY}=\n{unlock}\n{}",
            own.concat()
        )
    })
}

/// The unit's own file, or that of its template.
fn file(unit: &Unit, root: &Path) -> Option<String> {
    let names = [Some(format!("{unit}.service")), unit.template()];
    let mut paths = names
        .iter()
        .flatten()
        .flat_map(|name| FOLDERS.iter().map(move |folder| root.join(folder).join(name)));
    paths.find_map(|path| fs::read_to_string(path).ok())
}

/// The assignments that count, as they stand there, each with its line break.
fn commands(text: &str) -> Vec<String> {
    let mut all = Vec::new();
    let mut in_service = false;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let bare = line.trim();
        if bare.starts_with('[') {
            in_service = bare == "[Service]";
        }
        if bare.starts_with(['#', ';']) {
            continue;
        }
        let mut whole = format!("{bare}\n");
        let mut goes_on = bare.ends_with('\\');
        while goes_on && let Some(line) = lines.next() {
            // A comment in the middle does not end it.
            goes_on = line.ends_with('\\') || line.trim_start().starts_with(['#', ';']);
            whole += &format!("{line}\n");
        }
        match bare.split_once('=') {
            Some((key, value)) if in_service && key.trim_end() == KEY => {
                if value.trim().is_empty() {
                    all.clear();
                } else {
                    all.push(whole);
                }
            }
            _ => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[Unit]\nExecStartPre=/not/here\n[Service]\nExecStartPre=/before a reset\n\
                        ExecStartPre=\n ExecStartPre = +/usr/bin/install -d /run/x\nUser=mysql\n\
                        # ExecStartPre=/not/this \\\n\
                        ExecReload=/bin/sh -c \"one; \\\n[ two ] \\\n[Install]\"\n\
                        ExecStartPre=/bin/sh -c \"one; \\\n# in the middle\n two \\\n three\"\n\
                        ExecStart=/usr/sbin/server\n[Install]\nExecStartPre=/nor/here\n";

    #[test]
    fn the_unlock_comes_before_the_commands_of_the_unit() {
        let root = tempfile::tempdir().unwrap();
        let unit: Unit = "mariadb".parse().unwrap();
        assert_eq!(text(&unit, "UNLOCK", root.path()), None);
        let folder = root.path().join("lib/systemd/system");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("mariadb.service"), TEXT).unwrap();
        let written = text(&unit, "UNLOCK", root.path()).unwrap();
        let expected = "[Service]\nExecStartPre=\nUNLOCK\n\
                        ExecStartPre = +/usr/bin/install -d /run/x\n\
                        ExecStartPre=/bin/sh -c \"one; \\\n# in the middle\n two \\\n three\"\n";
        assert!(written.ends_with(expected), "{written}");
        // The operator's own file comes first.
        let folder = root.path().join("etc/systemd/system");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("mariadb.service"), "[Service]\nExecStart=/x\n").unwrap();
        assert_eq!(text(&unit, "UNLOCK", root.path()), None);
    }

    #[test]
    fn an_instance_has_the_commands_of_its_template() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("usr/lib/systemd/system");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("db@.service"), "[Service]\nExecStartPre=/a\n").unwrap();
        let written = text(&"db@one".parse().unwrap(), "UNLOCK", root.path()).unwrap();
        assert!(written.ends_with("UNLOCK\nExecStartPre=/a\n"), "{written}");
    }
}

//! Which programs get keys without being named: those of the policy, what their names lead to, and
//! root's helpers.
//!
//! Knows names and links. Who a process is, and whether its program may be trusted, is `peer`'s.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tidelock_contract::Policy;
use tidelock_contract::control::LIST_END;
use tidelock_format::KeyringId;

use crate::peer::Program;

/// Root's helpers for a keyring and its directory. Whoever starts the agent knows where they are
/// configured.
pub type Helpers = fn(KeyringId, &Path) -> Vec<PathBuf>;

/// The list for the library's pre-filter: those of the policy, and root's helpers. A program that
/// is named for one run is told so by its environment, not here, where it would concern all others
/// of its name.
pub(crate) fn list(policy: &Policy, helpers: &[PathBuf]) -> Vec<u8> {
    let mut text = Vec::new();
    let linked = policy.programs().iter().flat_map(|entry| links(entry)).map(|(_, file)| file);
    let linked: BTreeSet<PathBuf> = linked.collect();
    let listed = policy.programs().iter().map(|program| program.as_bytes());
    let paths = linked.iter().chain(helpers).map(|path| path.as_os_str().as_bytes());
    for program in listed.chain(paths).chain([LIST_END]) {
        text.extend_from_slice(program);
        text.push(b'\n');
    }
    text
}

/// Where a link by a listed name is looked for: what a process runs tells the file behind it only.
const FOLDERS: [&str; 6] =
    ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/bin", "/sbin"];

/// The links by a listed name, or at a listed path, that lead to a file of another name; and these
/// files.
fn links(entry: &str) -> Vec<(PathBuf, PathBuf)> {
    let places = match entry.starts_with('/') {
        true => vec![PathBuf::from(entry)],
        false => FOLDERS.iter().map(|folder| Path::new(folder).join(entry)).collect(),
    };
    let leads = |place: PathBuf| {
        let file = fs::canonicalize(&place).ok()?;
        let named = tidelock_contract::names_program(entry.as_bytes(), file.as_os_str().as_bytes());
        (!named).then_some((place, file))
    };
    places.into_iter().filter_map(leads).collect()
}

/// True if a link by a listed name leads to this program. It counts only where nobody but root can
/// put links.
pub(crate) fn is_linked(policy: &Policy, program: &Program, uid: u32) -> bool {
    let entries = policy.programs().iter().flat_map(|entry| links(entry));
    let mut ours = entries.filter(|(_, file)| *file == program.path);
    ours.any(|(link, _)| !Program { path: link, ..program.clone() }.is_writable_by(uid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_without_programs_is_not_taken_for_what_a_power_cut_has_left() {
        let none = Policy::new("test".into(), Vec::new(), Vec::new(), None, Vec::new()).unwrap();
        assert_eq!(list(&none, &[]), b"# the end\n");
        let helper = PathBuf::from("/usr/bin/pgbackrest");
        assert_eq!(list(&none, &[helper]), b"/usr/bin/pgbackrest\n# the end\n");
    }
}

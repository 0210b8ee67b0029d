//! `tidelock profile check -- PROGRAM`: runs a program plain, under strace, and says what the rules
//! of a profile would make of each file that it touches.
//!
//! The program runs without the library and without keys: nothing is sealed, and nothing is
//! refused. What it does in this run is seen, and no more.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use serde::Serialize;
use tidelock_contract::{Action, Policy};
use tidelock_ffi::ledger::{Action as Becomes, LEDGER, NUMBERS};

use crate::error::{Error, Result};
use crate::exec::{Program, outlive};
use crate::profile::trace::{self, Call};

/// What the program did, by the rules.
#[derive(Serialize)]
pub(super) struct Watched {
    pub(super) directory: PathBuf,
    /// As the program ended.
    pub(super) ended: String,
    /// The rules in their order.
    pub(super) rules: Vec<Matched>,
    /// Calls on files that would be sealed, which the library carries out.
    pub(super) sealed: Vec<String>,
    /// Calls on files that would be sealed, which it refuses.
    pub(super) refused: Vec<Refused>,
    /// Calls on files that would be sealed, which it does not know.
    pub(super) unknown: Vec<String>,
    /// Files outside of the directory that the program wrote: they stay plain.
    pub(super) outside: Vec<PathBuf>,
}

/// A rule, and the files that it decided about.
#[derive(Serialize)]
pub(super) struct Matched {
    pub(super) glob: String,
    /// The class, or "plain".
    pub(super) kind: &'static str,
    pub(super) files: Vec<String>,
}

/// A call that would be refused.
#[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Refused {
    pub(super) call: String,
    pub(super) errno: &'static str,
    /// The first file that it was for; none where it is refused before there is one.
    pub(super) file: Option<String>,
    pub(super) why: &'static str,
}

/// Runs the program, and judges what it did below `directory` by `policy`.
///
/// # Errors
/// There is no strace, or it cannot trace.
pub(super) fn watch(
    directory: &Path,
    policy: &Policy,
    program: &Program,
    arguments: &[OsString],
) -> Result<Watched> {
    let directory = std::fs::canonicalize(directory).map_err(Error::io("find", directory))?;
    let here = std::env::current_dir().map_err(Error::io("find", "."))?;
    let (ended, text) = run(program, arguments)?;
    let calls = trace::calls(&text, &here);
    if calls.is_empty() {
        return Err(Error::refused(
            format!("strace saw nothing of {}: {ended}", program.called.display()),
            "is ptrace allowed here? in containers it needs --cap-add SYS_PTRACE",
        ));
    }
    Ok(judge(directory, policy, &calls, ended.to_string()))
}

fn run(program: &Program, arguments: &[OsString]) -> Result<(ExitStatus, String)> {
    let folder =
        tempfile::tempdir().map_err(Error::io("make a folder in", std::env::temp_dir()))?;
    let file = folder.path().join("trace");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-y", "-qq", "-s", "0", "-e", "signal=none", "-e", TRACED, "-o"]);
    strace.arg(&file).arg(&program.called).args(arguments);
    let mut child = strace.spawn().map_err(|why| {
        if why.kind() == std::io::ErrorKind::NotFound {
            return Error::refused(
                "strace is missing, by which the program is observed",
                "install it: apt-get install strace",
            );
        }
        Error::io("run", "strace")(why)
    })?;
    let ended = outlive(&mut child).map_err(Error::io("wait for", &program.called))?;
    let text = std::fs::read(&file).map_err(Error::io("read", &file))?;
    Ok((ended, String::from_utf8_lossy(&text).into_owned()))
}

/// Everything about files, descriptors, and requests that the kernel carries out by itself.
const TRACED: &str = "trace=%file,%desc,clone,clone3,fork,vfork,io_uring_setup,io_uring_enter";

fn judge(directory: PathBuf, policy: &Policy, calls: &[Call], ended: String) -> Watched {
    let mut files: Vec<BTreeSet<String>> = vec![BTreeSet::new(); policy.rules().len()];
    let mut becomes: BTreeMap<&str, Option<Becomes>> = BTreeMap::new();
    let (mut refused, mut outside) = (BTreeSet::new(), BTreeSet::new());
    let mut names: BTreeMap<(&'static str, String), Refused> = BTreeMap::new();
    for call in calls {
        if let Some((errno, why)) = always_refused(&call.name) {
            refused.insert(Refused { call: call.name.clone(), errno, file: None, why });
        }
        let below: Vec<&[u8]> =
            call.paths.iter().filter_map(|it| relative(&directory, it)).collect();
        outside.extend(written_outside(call, &directory));
        for name in &below {
            if let Some(of) = policy.deciding_rule(name).and_then(|rule| files.get_mut(rule))
                && is_about_a_file(call, &directory, name)
            {
                of.insert(String::from_utf8_lossy(name).into_owned());
            }
        }
        let Some(sealed) = below.iter().find(|name| policy.kind(name).is_some()) else { continue };
        let file = String::from_utf8_lossy(sealed).into_owned();
        if let Some((errno, why)) = refused_here(call, policy, &directory) {
            let key = (errno, call.name.clone());
            let file = Some(file);
            names.entry(key).or_insert(Refused { call: call.name.clone(), errno, file, why });
        } else {
            becomes.insert(&call.name, what_becomes_of(&call.name));
        }
    }
    refused.extend(names.into_values());
    let mut watched = Watched {
        directory,
        ended,
        rules: Vec::new(),
        sealed: Vec::new(),
        refused: refused.into_iter().collect(),
        unknown: Vec::new(),
        outside: outside.into_iter().collect(),
    };
    for (name, action) in becomes {
        match action {
            Some(Becomes::Hook | Becomes::Pass) => watched.sealed.push(name.to_owned()),
            Some(Becomes::Refuse(errno)) => {
                let why = "not possible on sealed bytes";
                watched.refused.push(Refused { call: name.to_owned(), errno, file: None, why });
            }
            None => watched.unknown.push(name.to_owned()),
        }
    }
    for (rule, of) in policy.rules().iter().zip(files) {
        let kind = match &rule.action {
            Action::Seal(class) => class.name(),
            Action::Plain(_) => "plain",
        };
        let (glob, files) = (rule.glob.to_string(), of.into_iter().collect());
        watched.rules.push(Matched { glob, kind, files });
    }
    watched
}

/// A path below the directory, as the policy takes it.
fn relative<'p>(directory: &Path, path: &'p Path) -> Option<&'p [u8]> {
    let name = path.strip_prefix(directory).ok()?.as_os_str().as_bytes();
    (!name.is_empty()).then_some(name)
}

/// Directories are not sealed, and what is not there is no file.
fn is_about_a_file(call: &Call, directory: &Path, name: &[u8]) -> bool {
    let path = directory.join(std::ffi::OsStr::from_bytes(name));
    let makes = call.arguments.contains("O_CREAT") || call.name.starts_with("rename");
    call.done
        && !path.is_dir()
        && !call.arguments.contains("O_DIRECTORY")
        && (makes || path.is_file() || call.name.starts_with("unlink"))
}

/// Files that were opened there to be written.
fn written_outside(call: &Call, directory: &Path) -> Option<PathBuf> {
    let opens = matches!(call.name.as_str(), "open" | "openat" | "openat2" | "creat");
    let writes = ["O_WRONLY", "O_RDWR", "O_CREAT"].iter().any(|flag| call.arguments.contains(flag));
    let path = call.paths.last()?;
    let elsewhere = !path.starts_with(directory)
        && ["/dev", "/proc", "/sys"].iter().all(|top| !path.starts_with(top));
    (opens && writes && call.done && elsewhere).then(|| path.clone())
}

fn always_refused(call: &str) -> Option<(&'static str, &'static str)> {
    let reason = "rings go round libc; the program must fall back";
    (call == "io_uring_setup").then_some(("ENOSYS", reason))
}

/// What the library copies for a private map.
const LARGEST_MAP: u64 = 256 << 20;

/// The second argument of mmap, in bytes.
fn length_of_map(arguments: &str) -> Option<u64> {
    arguments.split(',').nth(1)?.trim().parse().ok()
}

/// Calls that depend on more than their name.
fn refused_here(
    call: &Call,
    policy: &Policy,
    directory: &Path,
) -> Option<(&'static str, &'static str)> {
    let kinds =
        || call.paths.iter().map(|path| relative(directory, path).map(|name| policy.kind(name)));
    match call.name.as_str() {
        "mmap" if call.arguments.contains("MAP_SHARED") => {
            Some(("ENODEV", "shared map of a sealed file; turn maps off in the program"))
        }
        "mmap" if length_of_map(&call.arguments).is_some_and(|len| len > LARGEST_MAP) => {
            Some(("ENODEV", "a private map of more than 256 MiB; the program must read"))
        }
        "open" | "openat" if call.arguments.contains("O_TMPFILE") => {
            Some(("EOPNOTSUPP", "a file without a name; the program must make one with a name"))
        }
        "rename" | "renameat" | "renameat2" | "link" | "linkat" => {
            let mut kinds = kinds();
            let (from, to) = (kinds.next()?, kinds.next()?);
            let rule = |kind: Option<Option<tidelock_format::Class>>| {
                kind.map(|kind| kind.map(tidelock_format::Class::zero_rule))
            };
            (rule(from) != rule(to))
                .then_some(("EXDEV", "the two names have different classes; one rule for both"))
        }
        "sendfile" | "splice" | "tee" => Some(("EINVAL", "the program must read and write")),
        "copy_file_range" => Some(("EXDEV", "the program must read and write")),
        _ => None,
    }
}

/// `None` for a call that the library has never heard of.
fn what_becomes_of(call: &str) -> Option<Becomes> {
    let of_libc = LEDGER.iter().find(|entry| entry.name == call);
    let by_number = || NUMBERS.iter().map(|number| &number.entry).find(|it| it.name == call);
    of_libc.or_else(by_number).map(|entry| entry.action)
}

/// Lines for people: label and words.
pub(super) fn lines(watched: &Watched) -> Vec<(&'static str, String)> {
    let mut lines = vec![(
        "observed",
        format!("below {}; the program ended with {}", watched.directory.display(), watched.ended),
    )];
    for rule in watched.rules.iter().filter(|rule| !rule.files.is_empty()) {
        let shown: Vec<&str> = rule.files.iter().take(SHOWN).map(String::as_str).collect();
        let more = rule.files.len().saturating_sub(SHOWN);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        lines.push((rule.kind, format!("{}: {}{more}", rule.glob, shown.join(" "))));
    }
    let unmatched: Vec<&str> =
        watched.rules.iter().filter(|it| it.files.is_empty()).map(|it| it.glob.as_str()).collect();
    if !unmatched.is_empty() {
        lines.push(("no file", unmatched.join(" ")));
    }
    if !watched.sealed.is_empty() {
        lines.push(("works", watched.sealed.join(" ")));
    }
    for it in &watched.refused {
        let of = it.file.as_ref().map_or(String::new(), |file| format!(" ({file})"));
        lines.push(("refused", format!("{}{of} with {}: {}", it.call, it.errno, it.why)));
    }
    if !watched.unknown.is_empty() {
        lines.push(("unknown", watched.unknown.join(" ")));
    }
    for path in &watched.outside {
        lines.push(("outside", format!("{} is written, and stays plain", path.display())));
    }
    lines
}

/// Names for each rule.
const SHOWN: usize = 6;

#[cfg(test)]
mod tests {
    use tidelock_keyring::Profile;

    use super::*;

    #[test]
    fn rules_refusals_and_files_outside_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().canonicalize().unwrap();
        for name in ["app.conf", "data", "log"] {
            std::fs::write(dir.join(name), "").unwrap();
        }
        let profile = "name = \"t\"\n[[rule]]\nglob = \"*.conf\"\nplain = \"read\"\n[[rule]]\n\
                       glob = \"never\"\nclass = \"log\"\n[[rule]]\nglob = \"**\"\nclass = \"bytes\"\n";
        let policy = Profile::parse_whole(profile).unwrap().compile(&[], &[]).unwrap();
        let d = dir.display();
        let text = format!(
            "1 openat(AT_FDCWD<{d}>, \"app.conf\", O_RDONLY) = 3<{d}/app.conf>\n\
             1 openat(AT_FDCWD<{d}>, \"data\", O_RDWR|O_CREAT, 0600) = 4<{d}/data>\n\
             1 mmap(NULL, 9, PROT_READ, MAP_SHARED, 4<{d}/data>, 0) = 0x7f\n\
             1 mmap(NULL, 9, PROT_READ, MAP_PRIVATE, 4<{d}/data>, 0) = 0x7f\n\
             1 rename(\"{d}/log\", \"{d}/log.conf\") = 0\n\
             1 io_uring_setup(8, {{flags=0}}) = 9<anon_inode:[io_uring]>\n\
             1 a_new_call(4<{d}/data>) = 0\n\
             1 openat(AT_FDCWD</>, \"/var/tmp/x\", O_RDWR|O_CREAT, 0600) = 5</var/tmp/x>\n"
        );
        let watched = judge(dir.clone(), &policy, &trace::calls(&text, &dir), "0".to_owned());
        let files: Vec<_> = watched.rules.iter().map(|it| it.files.join(" ")).collect();
        assert_eq!(files, ["app.conf log.conf", "", "data log"]);
        assert_eq!(watched.sealed, ["mmap", "openat"]);
        assert_eq!(watched.unknown, ["a_new_call"]);
        assert_eq!(watched.outside, [Path::new("/var/tmp/x")]);
        let refused: Vec<_> =
            watched.refused.iter().map(|it| (it.call.as_str(), it.errno)).collect();
        assert_eq!(
            refused,
            [("io_uring_setup", "ENOSYS"), ("mmap", "ENODEV"), ("rename", "EXDEV")]
        );
        let told: Vec<String> =
            lines(&watched).into_iter().map(|(label, _)| label.into()).collect();
        assert_eq!(told[..4], ["observed", "plain", "bytes", "no file"]);
    }
}

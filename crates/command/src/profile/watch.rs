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
use crate::protected::is_protected;

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
/// The program would run in a protected directory; there is no strace, or it cannot trace.
pub(super) fn watch(
    directory: &Path,
    policy: &Policy,
    program: &Program,
    arguments: &[OsString],
) -> Result<Watched> {
    let directory = std::fs::canonicalize(directory).map_err(Error::io("find", directory))?;
    let here = std::env::current_dir().map_err(Error::io("find", "."))?;
    for place in [&directory, &here] {
        refuse_protected(place)?;
    }
    let server = tidelock_runtime::loads_galera(program.path.as_os_str().as_bytes());
    let (ended, text) = run(program, arguments)?;
    let calls = trace::calls(&text, &here);
    if calls.is_empty() {
        return Err(Error::refused(
            format!("strace saw nothing of {}: {ended}", program.called.display()),
            "is ptrace allowed here? in containers it needs --cap-add SYS_PTRACE",
        ));
    }
    Ok(judge(&Place { directory, policy, server }, &calls, ended.to_string()))
}

/// What a program without the library writes there would be plain.
fn refuse_protected(place: &Path) -> Result<()> {
    match place.ancestors().find(|above| is_protected(above)) {
        Some(dir) => Err(Error::refused(
            format!(
                "{} is protected, and the program would write plain files there",
                dir.display()
            ),
            "use an empty directory: name it with --in, and start this command elsewhere",
        )),
        None => Ok(()),
    }
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

/// What calls are judged by.
struct Place<'p> {
    directory: PathBuf,
    policy: &'p Policy,
    /// The program may load Galera.
    server: bool,
}

impl Place<'_> {
    /// True for a shared map for which the library has memory.
    fn has_memory_for(&self, map: &Call) -> bool {
        let from_the_start = map.arguments.rsplit(',').next().is_some_and(|at| at.trim() == "0");
        let memory = |path: &PathBuf| {
            let path = path.as_os_str().as_bytes();
            tidelock_runtime::is_memory_of_galera(self.policy.profile(), self.server, path)
        };
        from_the_start && map.paths.iter().any(memory)
    }
}

fn judge(place: &Place<'_>, calls: &[Call], ended: String) -> Watched {
    let (directory, policy) = (place.directory.as_path(), place.policy);
    let mut files: Vec<BTreeSet<String>> = vec![BTreeSet::new(); policy.rules().len()];
    let mut becomes: BTreeMap<&str, Option<Becomes>> = BTreeMap::new();
    let (mut refused, mut outside) = (BTreeSet::new(), BTreeSet::new());
    let mut names: BTreeMap<(&'static str, String), Refused> = BTreeMap::new();
    for call in calls {
        let always = always_refused(&call.name);
        if let Some((errno, why)) = always {
            refused.insert(Refused { call: call.name.clone(), errno, file: None, why });
        }
        let below: Vec<&[u8]> =
            call.paths.iter().filter_map(|it| relative(directory, it)).collect();
        outside.extend(written_outside(call, directory));
        for name in &below {
            if let Some(of) = policy.deciding_rule(name).and_then(|rule| files.get_mut(rule))
                && is_about_a_file(call, directory, name)
            {
                of.insert(String::from_utf8_lossy(name).into_owned());
            }
        }
        let Some(sealed) = below.iter().find(|name| policy.kind(name).is_some()) else { continue };
        let file = String::from_utf8_lossy(sealed).into_owned();
        if always.is_some() {
            continue;
        }
        if let Some((errno, why)) = refused_here(call, place) {
            let key = (errno, call.name.clone());
            let file = Some(file);
            names.entry(key).or_insert(Refused { call: call.name.clone(), errno, file, why });
        } else {
            becomes.insert(&call.name, what_becomes_of(&call.name));
        }
    }
    refused.extend(names.into_values());
    let mut watched = Watched {
        directory: place.directory.clone(),
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
    // Of what lies below these, only shared memory is the program's own.
    let kernels = ["/dev", "/proc", "/sys"].iter().any(|top| path.starts_with(top))
        && !path.starts_with("/dev/shm");
    let elsewhere = !path.starts_with(directory) && !kernels;
    (opens && writes && call.done && elsewhere).then(|| path.clone())
}

fn always_refused(call: &str) -> Option<(&'static str, &'static str)> {
    match call {
        "io_uring_setup" => Some(("ENOSYS", "rings go round libc; the program must fall back")),
        "openat2" => {
            Some(("ENOSYS", "its way of resolving a path is not ours; the program must use openat"))
        }
        _ => None,
    }
}

/// What the library copies for a private map.
const LARGEST_MAP: u64 = 256 << 20;

/// The second argument of mmap, in bytes.
fn length_of_map(arguments: &str) -> Option<u64> {
    arguments.split(',').nth(1)?.trim().parse().ok()
}

/// Calls that depend on more than their name.
fn refused_here(call: &Call, place: &Place<'_>) -> Option<(&'static str, &'static str)> {
    let (directory, policy) = (place.directory.as_path(), place.policy);
    let says = |flags: &[&str]| flags.iter().any(|flag| call.arguments.contains(flag));
    let kinds =
        || call.paths.iter().map(|path| relative(directory, path).map(|name| policy.kind(name)));
    match call.name.as_str() {
        "mmap" if says(&["MAP_SHARED"]) => (!place.has_memory_for(call))
            .then_some(("ENODEV", "shared map of a sealed file; turn maps off in the program")),
        "mmap" if length_of_map(&call.arguments).is_some_and(|len| len > LARGEST_MAP) => {
            Some(("ENODEV", "a private map of more than 256 MiB; the program must read"))
        }
        "open" | "openat" if says(&["O_TMPFILE"]) => {
            Some(("EOPNOTSUPP", "a file without a name; the program must make one with a name"))
        }
        "renameat2" if says(&["RENAME_WHITEOUT"]) => {
            Some(("EINVAL", "a device is left behind; the program must rename without it"))
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
        "fallocate" if says(&MOVING) => {
            Some(("EOPNOTSUPP", "only room and holes; the program must write instead"))
        }
        "ioctl" if says(&SHARING) => {
            Some(("EOPNOTSUPP", "bytes are not where the kernel has them; the program must read"))
        }
        "fcntl" if says(&["F_SETLEASE", "F_GETLEASE"]) => {
            Some(("EINVAL", "the library takes leases itself; the program must do without"))
        }
        "preadv2" | "pwritev2" if has_other_flags(&call.arguments) => {
            Some(("EOPNOTSUPP", "only hints and synchronous writes; the program must do without"))
        }
        _ => None,
    }
}

/// Modes of fallocate that move or share blocks, or write zeros.
const MOVING: [&str; 5] = [
    "FALLOC_FL_ZERO_RANGE",
    "FALLOC_FL_COLLAPSE_RANGE",
    "FALLOC_FL_INSERT_RANGE",
    "FALLOC_FL_UNSHARE_RANGE",
    "FALLOC_FL_WRITE_ZEROES",
];
/// Requests of ioctl about where bytes lie. FICLONE stands for FICLONERANGE too.
const SHARING: [&str; 4] = ["FICLONE", "FIDEDUPERANGE", "FS_IOC_FIEMAP", "FIBMAP"];

/// True if the last argument, flags of one read or write, has another than these.
fn has_other_flags(arguments: &str) -> bool {
    let flags = arguments.rsplit(',').next().unwrap_or_default();
    flags.split('|').map(str::trim).any(|flag| !FLAGS.contains(&flag))
}

/// The last two are RWF_DONTCACHE, as an strace prints it that does not know it: alone, and behind
/// flags that it knows.
const FLAGS: [&str; 7] =
    ["0", "RWF_HIPRI", "RWF_DSYNC", "RWF_SYNC", "RWF_DONTCACHE", "0x80 /* RWF_??? */", "0x80"];

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
        let place = Place { directory: dir.clone(), policy: &policy, server: false };
        let watched = judge(&place, &trace::calls(&text, &dir), "0".to_owned());
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

    #[test]
    fn flags_and_requests_that_sealed_files_do_not_have_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().canonicalize().unwrap();
        let profile = "name = \"mariadb\"\n[[rule]]\nglob = \"**\"\nclass = \"bytes\"\n";
        let policy = Profile::parse_whole(profile).unwrap().compile(&[], &[]).unwrap();
        let d = dir.display();
        let text = format!(
            "1 openat2(AT_FDCWD<{d}>, \"a\", {{flags=O_RDWR, resolve=0}}, 24) = 3<{d}/a>\n\
             1 fallocate(3<{d}/a>, FALLOC_FL_KEEP_SIZE|FALLOC_FL_PUNCH_HOLE, 0, 9) = 0\n\
             1 fallocate(3<{d}/a>, FALLOC_FL_ZERO_RANGE, 0, 9) = 0\n\
             1 ioctl(3<{d}/a>, FIONREAD, [0]) = 0\n\
             1 ioctl(3<{d}/a>, BTRFS_IOC_CLONE or FICLONE, 4) = -1 EOPNOTSUPP (Not supported)\n\
             1 fcntl(3<{d}/a>, F_GETFL) = 0x8002 (flags O_RDWR|O_LARGEFILE)\n\
             1 fcntl(3<{d}/a>, F_SETLEASE, F_WRLCK) = 0\n\
             1 preadv2(3<{d}/a>, [...], 1, 0, RWF_NOWAIT) = 9\n\
             1 pwritev2(3<{d}/a>, [...], 1, 0, RWF_HIPRI|RWF_DSYNC) = 9\n\
             1 renameat2(AT_FDCWD<{d}>, \"a\", AT_FDCWD<{d}>, \"b\", RENAME_WHITEOUT) = 0\n\
             1 mmap(NULL, 9, PROT_READ, MAP_SHARED, 4<{d}/galera.cache>, 0) = 0x7f\n\
             1 openat(AT_FDCWD</>, \"/dev/shm/rows\", O_RDWR|O_CREAT, 0600) = 5</dev/shm/rows>\n\
             1 openat(AT_FDCWD</>, \"/dev/null\", O_RDWR) = 5</dev/null>\n"
        );
        let place = Place { directory: dir.clone(), policy: &policy, server: false };
        let watched = judge(&place, &trace::calls(&text, &dir), "0".to_owned());
        let refused: Vec<_> =
            watched.refused.iter().map(|it| (it.call.as_str(), it.errno)).collect();
        assert_eq!(
            refused,
            [
                ("fallocate", "EOPNOTSUPP"),
                ("fcntl", "EINVAL"),
                ("ioctl", "EOPNOTSUPP"),
                ("openat2", "ENOSYS"),
                ("preadv2", "EOPNOTSUPP"),
                ("renameat2", "EINVAL"),
            ]
        );
        assert_eq!(watched.sealed, ["fallocate", "fcntl", "ioctl", "mmap", "pwritev2"]);
        assert_eq!(watched.outside, [Path::new("/dev/shm/rows")]);

        // A program of another name, below a profile of another name.
        let profile = profile.replace("mariadb", "mine");
        let policy = Profile::parse_whole(&profile).unwrap().compile(&[], &[]).unwrap();
        let map = format!("1 mmap(NULL, 9, PROT_READ, MAP_SHARED, 4<{d}/galera.cache>, 0) = 1\n");
        let refused = |server| {
            let place = Place { directory: dir.clone(), policy: &policy, server };
            judge(&place, &trace::calls(&map, &dir), "0".to_owned()).refused.len()
        };
        assert_eq!((refused(false), refused(true)), (1, 0));
    }
}

//! The ledger of file calls as a page, and beside it what real programs import, what each libc
//! offers, and what headers and code say of that.

pub mod opinions;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::process::Command;

use tidelock_ffi::ledger::{Action, Entry, LEDGER, NUMBERS, unlisted};

/// docs/hooks.md.
#[must_use]
pub fn page() -> String {
    let mut page = String::from(HEAD);
    for (title, text, wanted) in SECTIONS {
        let _ = write!(page, "\n## {title}\n\n{text}\n\n{}", columns(*wanted));
        page.push_str(&lines(LEDGER.iter().copied(), *wanted));
    }
    page.push_str(NUMBERS_HEAD);
    for (title, text, wanted) in NUMBERS_SECTIONS {
        let _ = write!(page, "\n### {title}\n\n{text}\n\n{}", columns(*wanted));
        page.push_str(&lines(NUMBERS.iter().map(|one| one.entry), *wanted));
    }
    page.push_str(TAIL);
    page
}

/// The lines of a section: names with one reason share one.
fn lines(entries: impl Iterator<Item = Entry>, wanted: fn(Action) -> bool) -> String {
    let mut lines: Vec<(String, &str, Vec<&str>)> = Vec::new();
    for entry in entries.filter(|entry| wanted(entry.action)) {
        let errno = errno(entry);
        match lines.iter_mut().find(|(e, note, _)| *e == errno && *note == entry.note) {
            Some((_, _, names)) => names.push(entry.name),
            None => lines.push((errno, entry.note, vec![entry.name])),
        }
    }
    let mut text = String::new();
    for (errno, note, names) in lines {
        let names = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" ");
        let _ = writeln!(text, "| {names} | {errno}{note} |");
    }
    text
}

fn errno(entry: Entry) -> String {
    match entry.action {
        Action::Refuse(errno) => format!("{errno} | "),
        _ => String::new(),
    }
}

fn columns(wanted: fn(Action) -> bool) -> &'static str {
    if wanted(Action::Refuse("")) {
        "| call | error | reason |\n| --- | --- | --- |\n"
    } else if wanted(Action::Hook) {
        "| call | on a sealed file |\n| --- | --- |\n"
    } else {
        "| call | reason |\n| --- | --- |\n"
    }
}

/// The symbols of libc that a program or library imports and the ledger does not know.
///
/// # Errors
/// If nm of binutils cannot be run, or cannot read the file.
pub fn unlisted_imports(program: &Path) -> io::Result<BTreeSet<String>> {
    let text = output("nm", &["-D", "--undefined-only"], program)?;
    let imports = text.lines().filter_map(of_libc);
    Ok(unlisted(imports).map(str::to_owned).collect())
}

/// The symbols that a library defines for others.
///
/// # Errors
/// As [`unlisted_imports`].
pub fn exports(library: &Path) -> io::Result<BTreeSet<String>> {
    let text = output("nm", &["-D", "--defined-only"], library)?;
    Ok(text.lines().filter_map(|line| line.split_whitespace().last()).map(str::to_owned).collect())
}

/// The symbols that the ledger hooks, to carry out or to refuse.
#[must_use]
pub fn hooked() -> BTreeSet<String> {
    let hooked = LEDGER.iter().filter(|entry| entry.action != Action::Pass);
    hooked.map(|entry| entry.name.to_owned()).collect()
}

/// The functions that a library of glibc offers, also to programs of long ago.
///
/// # Errors
/// As [`unlisted_imports`].
pub fn functions(library: &Path) -> io::Result<BTreeSet<String>> {
    let text = output("nm", &["-D", "--defined-only"], library)?;
    let function = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let [_, "T" | "W" | "i", name] = words[..] else { return None };
        name.split('@').next().map(str::to_owned)
    };
    Ok(text.lines().filter_map(function).collect())
}

fn output(program: &str, arguments: &[&str], of: &Path) -> io::Result<String> {
    let output = Command::new(program).args(arguments).arg(of).output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The name in a line such as `U open@GLIBC_2.2.5`.
fn of_libc(line: &str) -> Option<&str> {
    let (name, version) = line.split_whitespace().last()?.split_once('@')?;
    version.trim_start_matches('@').starts_with("GLIBC_").then_some(name)
}

type Section = (&'static str, &'static str, fn(Action) -> bool);

const SECTIONS: &[Section] = &[
    ("Hooked", "A function of ours stands in front of libc's.", |action| action == Action::Hook),
    (
        "Refused",
        "On a sealed file the call ends with the error; on others it goes straight through.",
        |action| matches!(action, Action::Refuse(_)),
    ),
    ("Passed", "Not hooked, and why that is safe.", |action| action == Action::Pass),
];

const HEAD: &str = "\
# Hooks: every file call of libc, and what becomes of it

Generated from the ledger (`table.rs` and `passes.rs` in `crates/data/ffi/src/ledger`) by `cargo run -p tidelock-testkit --bin hooks-doc`;
do not edit. Tests compare this page with the ledger, and the ledger with every function of the libc at hand and of
glibc 2.28 to 2.43, with what the installed PostgreSQL imports, and with the C headers and libc's own code: a file call
that is not listed fails them.

In a program that is not listed, and for every file that is not ours, a hook makes the same system call with
the same arguments, without libc. What differs from libc then:

* `read`, `write` and the like are no cancellation points (`pthread_cancel`).
* `vfork` is a fork.
* A mode, a third argument of `fcntl` and the like are read from the register where the caller puts them, as
  libc does; only x86-64 is built and tested.
";

const NUMBERS_HEAD: &str = "
## System calls by number

`syscall(2)`, in a listed program. A number that is not here is refused: ENOSYS, as by a kernel without it. (A system
call by the instruction itself is seen by nobody; on a visible descriptor the kernel refuses it: EBADF.)
";

const NUMBERS_SECTIONS: &[Section] = &[
    ("By function", "On every file as the function of that name.", |action| action == Action::Hook),
    ("Refused by number", "Whatever the file is.", |action| matches!(action, Action::Refuse(_))),
    ("Straight", "To the kernel, with the program's own arguments.", |action| {
        action == Action::Pass
    }),
];

const TAIL: &str = "
## Not file calls

Functions that take no descriptor, path or stream are listed one by one in `crates/data/ffi/src/ledger/other.rs`, those of libm in `other/libm.rs`.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_imports_of_libc_count() {
        assert_eq!(of_libc("                 U open@GLIBC_2.2.5"), Some("open"));
        assert_eq!(of_libc("                 U stat@@GLIBC_2.33"), Some("stat"));
        assert_eq!(of_libc("                 w __gmon_start__"), None);
        assert_eq!(of_libc("                 U SSL_read@OPENSSL_3.0.0"), None);
    }
}

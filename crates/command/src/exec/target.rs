//! Does the program work in a protected directory of this run, or in another one by a slip of the
//! pen?
//!
//! `exec -D A -- initdb -D B` makes a plain cluster at B, and nothing would say so. Reads the
//! options that PostgreSQL's programs have for their data directory, and `dir` of Redis, and warns.
//! Does not refuse: a plain copy of a sealed cluster may be just what is wanted. What a script
//! passes on is not seen, nor a file that Redis's configuration includes.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::arguments::Spelling;
use crate::console;
use crate::links::without_links;
use crate::protected::Protected;

/// Programs that work in a cluster: -D, --pgdata or PGDATA names it.
const CLUSTER: &[&str] =
    &["initdb", "postgres", "pg_ctl", "pg_controldata", "pg_resetwal", "pg_checksums"];
/// Programs that write what a server gives them to the directory that -D names.
const COPY: &[&str] = &["pg_basebackup", "pg_receivewal", "pg_rewind", "pg_createsubscriber"];
/// The long options that name it.
const NAMES: &[&str] = &["pgdata", "target-pgdata", "directory"];
pub(super) const BASE_BACKUP: Spelling = Spelling {
    short: b"cdDFhilprsStTUXZ",
    long: &[
        "checkpoint",
        "compress",
        "dbname",
        "format",
        "host",
        "incremental",
        "label",
        "manifest-checksums",
        "max-rate",
        "pgdata",
        "port",
        "slot",
        "status-interval",
        "sync-method",
        "tablespace-mapping",
        "target",
        "username",
        "wal-method",
        "waldir",
    ],
    bare: &[
        "create-slot",
        "gzip",
        "help",
        "manifest-force-encode",
        "no-clean",
        "no-estimate-size",
        "no-manifest",
        "no-password",
        "no-slot",
        "no-sync",
        "no-verify-checksums",
        "password",
        "progress",
        "verbose",
        "version",
        "write-recovery-conf",
    ],
    alike: &[(b'D', "pgdata"), (b'T', "tablespace-mapping")],
};
/// Servers that work where `dir` says: in the file of the first argument, then in options.
const REDIS: &[&str] = &["redis-server", "valkey-server"];

/// Warns if the arguments, PGDATA or a configuration of Redis tell `program` to work elsewhere than
/// in one of these directories.
pub(super) fn warn_if_elsewhere(program: &Path, arguments: &[OsString], run: &[Protected]) {
    let name = program.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let named = if REDIS.contains(&name) {
        // What comes by a pipe is the server's to read.
        let by_pipe = arguments.iter().any(|it| it == "-");
        (!by_pipe).then(|| directory_of_redis(arguments))
    } else {
        named(name, arguments, std::env::var_os("PGDATA"))
    };
    let Some(named) = named else { return };
    let Ok(target) = without_links(&named) else { return };
    let roots: Vec<&Path> = run.iter().map(|protected| &*protected.path).collect();
    if roots.contains(&&*target) || is_configuration(&target) {
        return;
    }
    let all = roots.iter().map(|root| root.display().to_string()).collect::<Vec<_>>().join(", ");
    let target_shown = target.display();
    match roots.iter().find(|root| target.starts_with(root)) {
        None if COPY.contains(&name) => console::warn(
            format!(
                "{name} is told to work in {target_shown}, which is not below the protected {all}: \
                 what it writes there is plain, but tablespaces that -T does not move are sealed"
            ),
            "for a plain copy run it without `tidelock exec`; for a sealed one protect the target \
             (tidelock init) and name that with -D before the `--`",
        ),
        None => console::warn(
            format!(
                "{name} is told to work in {target_shown}, which is not below the protected {all}: \
                 what it writes there is plain"
            ),
            "if that is not what you want, name the protected directory, or protect that one first \
             (tidelock init) and name it with -D before the `--` too",
        ),
        Some(root) if CLUSTER.contains(&name) => console::warn(
            format!(
                "{name} is told to work in {target_shown}, below the protected {}: the rules for \
                 names are \
                 those of a cluster at its top, so every file of this one is sealed as bytes, PG_VERSION and \
                 configuration too",
                root.display()
            ),
            "protect the data directory itself: `tidelock init` for it, not for the directory \
             above",
        ),
        Some(_) => {}
    }
}

/// The data directory that a program is told.
fn named(name: &str, arguments: &[OsString], pgdata: Option<OsString>) -> Option<PathBuf> {
    let cluster = CLUSTER.contains(&name);
    if !cluster && !COPY.contains(&name) {
        return None;
    }
    let alike = &[(b'D', "pgdata")];
    let options = match name {
        "pg_basebackup" => Spelling { alike, ..BASE_BACKUP },
        _ => Spelling { short: with_value(name), long: NAMES, bare: &[], alike },
    };
    // The last one counts, as getopt_long has it.
    let all = options.read(arguments).into_iter();
    let mut values =
        all.filter(|(option, _)| NAMES.contains(option)).filter_map(|(_, value)| value);
    let found = values.next_back().map(OsStr::to_owned);
    let told = found.or(pgdata.filter(|_| cluster)).filter(|value| !value.is_empty())?;
    Some(PathBuf::from(told))
}

/// The short options of a program that have a value.
fn with_value(name: &str) -> &'static [u8] {
    match name {
        "initdb" => b"AcDELTUX",
        "postgres" => b"BCcDdfhkNprStvW",
        "pg_ctl" => b"DelmNopPStU",
        "pg_resetwal" => b"cDelmoOux",
        "pg_checksums" => b"Df",
        "pg_receivewal" => b"dDEhpsSUZ",
        "pg_createsubscriber" => b"dDpPRstU",
        // pg_controldata, pg_rewind
        _ => b"D",
    }
}

/// Where Redis keeps its files: it goes to each `dir` in turn, from where it was started.
fn directory_of_redis(arguments: &[OsString]) -> PathBuf {
    // A pipe is not opened: the server has to read it.
    let is_file = |it: &&OsString| !it.as_bytes().starts_with(b"-") && Path::new(it).is_file();
    let file = arguments.first().filter(is_file);
    let text = file.and_then(|file| fs::read(file).ok()).unwrap_or_default();
    let lines = text.split(|byte| *byte == b'\n').filter_map(|line| {
        let line = line.trim_ascii();
        let end = line.iter().position(u8::is_ascii_whitespace)?;
        let (name, value) = line.split_at(end);
        name.eq_ignore_ascii_case(b"dir").then(|| unquoted(value.trim_ascii()))
    });
    let options = arguments.windows(2).filter_map(|pair| match pair {
        [name, value] if name.as_bytes().eq_ignore_ascii_case(b"--dir") => Some(value.as_bytes()),
        _ => None,
    });
    lines.chain(options).fold(PathBuf::from("."), |from, dir| from.join(OsStr::from_bytes(dir)))
}

/// A value without the quotes around it; what is escaped between them stays so.
fn unquoted(value: &[u8]) -> &[u8] {
    match value {
        [b'"', inner @ .., b'"'] | [b'\'', inner @ .., b'\''] => inner,
        _ => value,
    }
}

/// Debian's /etc/postgresql/15/main: the data lies where its postgresql.conf says.
fn is_configuration(dir: &Path) -> bool {
    dir.join("postgresql.conf").exists() && !dir.join("PG_VERSION").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named_by(name: &str, arguments: &[&str], pgdata: Option<&str>) -> Option<PathBuf> {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        named(name, &arguments, pgdata.map(OsString::from))
    }

    #[test]
    fn every_way_to_name_a_data_directory_is_known() {
        for arguments in [
            &["-D", "/a"][..],
            &["-D/a"],
            &["--pgdata=/a"],
            &["--pgdata", "/a"],
            &["-D", "/b", "-D/a"],
            &["-kD", "/a"],
            &["--pgd=/a"],
        ] {
            assert_eq!(named_by("initdb", arguments, Some("/c")), Some("/a".into()));
        }
        assert_eq!(named_by("pg_ctl", &["start"], Some("/c")), Some("/c".into()));
        assert_eq!(named_by("pg_ctl", &["start"], Some("")), None);
        assert_eq!(named_by("pg_basebackup", &["-t", "server:/x"], Some("/c")), None);
        for arguments in [&["-PRD", "/a"][..], &["-dx", "-RD/a"], &["--pgd", "/a", "-T/D=/b"]] {
            assert_eq!(named_by("pg_basebackup", arguments, None), Some("/a".into()));
        }
        assert_eq!(named_by("pg_rewind", &["--target-pgdata=/a"], None), Some("/a".into()));
        assert_eq!(named_by("pgbench", &["-D", "scale=2"], Some("/c")), None);
        assert_eq!(named_by("postgres", &["-D"], None), None);
    }

    #[test]
    fn redis_works_where_its_file_and_its_options_say() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("redis.conf");
        let said = |text: &str, options: &[&str]| {
            fs::write(&file, text).unwrap();
            let options = options.iter().map(OsString::from);
            let first = std::iter::once(file.clone().into_os_string());
            directory_of_redis(&first.chain(options).collect::<Vec<_>>())
        };
        for text in ["port 0\n  DIR  /a  \n", "dir \"/a\"\r\n", "dir /b\ndir '/a'", "dir\t/a"] {
            assert_eq!(said(text, &["--save", ""]), Path::new("/a"), "{text:?}");
        }
        assert_eq!(said("dir /b\n", &["--port", "0", "--dir", "/a"]), Path::new("/a"));
        // What is relative is so to where it went before.
        assert_eq!(said("dir /a\n", &["--dir", "b"]), Path::new("/a/b"));
        for text in ["# dir /a\n", "dirs /a\n", "dir\n", ""] {
            assert_eq!(said(text, &[]), Path::new("."), "{text:?}");
        }
        let options = ["--dir", "/a", "--port", "0"].map(OsString::from);
        assert_eq!(directory_of_redis(&options), Path::new("/a"));
        assert_eq!(directory_of_redis(&[]), Path::new("."));
    }
}

//! A server behind another program: a wrapper that has it as a word, or a shell or script that may
//! start one although none of their words is one.
//!
//! What a script adds itself is not seen. One whose first word is an option gives its words to a
//! server, as docker-entrypoint.sh does. Of `sh -c TEXT` those commands show that name a server.
//! Any other may start one, which reads the option files, or do anything else: a warning.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::brand::Brand;
use super::by_rule::{self, Rules};
use super::judge::{Datadir, check, judge};
use super::settings::{self, Settings, is_below};
use super::start::Start;
use super::{as_started, file_of, scripts, starts_a_server};
use crate::console;
use crate::error::{Error, Result};
use crate::exec::Program;

/// The server, or what starts one, that a wrapper (`numactl`, `timeout`, docker-entrypoint.sh) gets
/// as a word, with the words behind it. Nothing if the program is such a one itself, or none is
/// there.
pub(super) fn wrapper<'a>(
    program: &Program,
    arguments: &'a [OsString],
) -> Option<(Program, &'a [OsString])> {
    if starts_a_server(file_of(program)) {
        return None;
    }
    let named = |word: &OsString| !is_option(word) && starts_a_server(Path::new(word));
    let found = |at: usize| {
        let (word, rest) = arguments.get(at..)?.split_first()?;
        // A directory may be called so too.
        let program = named(word).then(|| Program::find(word).ok())??;
        Some((program, rest))
    };
    // A word before it may be a user's name; behind it come its own options.
    let first = (0..arguments.len()).find(|at| found(*at).is_some())?;
    let is_own =
        |at: &usize| arguments.get(*at).is_some_and(|word| is_option(word) && *word != "--");
    let end = (first..arguments.len()).find(is_own).unwrap_or(arguments.len());
    (first..end).rev().find_map(found)
}

/// Looks at what `program` may start in directories, the first of which is of this brand, with the
/// machine's own server unless it names another. `listed`: the programs that get keys.
///
/// # Errors
/// [`Error::Refused`] for rows outside; the option files of a server that is named cannot be read.
pub(super) fn look(
    program: &Program,
    arguments: &[OsString],
    brand: Brand,
    roots: &[&Path],
    listed: &[String],
    rules: &Rules,
) -> Result<()> {
    let Some(found) = Found::of(program, arguments) else { return Ok(()) };
    let own = Program::find(OsStr::new(brand.server())).ok().map(|found| found.called);
    let packaged = || Some(PathBuf::from(brand.packaged())).filter(|path| path.is_file());
    let server = own.or_else(packaged);
    found.look(&Around { brand, server: server.as_deref(), roots, listed, rules })
}

/// In which directories, and which server it is if nothing names one.
struct Around<'a> {
    brand: Brand,
    server: Option<&'a Path>,
    roots: &'a [&'a Path],
    listed: &'a [String],
    rules: &'a Rules,
}

/// What a shell or a script is told.
enum Found {
    /// Its text has commands that start servers, with words.
    Named(Vec<(Program, Vec<OsString>)>),
    /// Its words are those of a server.
    HandsOn(Vec<OsString>),
    /// It may start one, with these options, or do anything else.
    Unknown(PathBuf, Vec<OsString>),
}

impl Found {
    /// Of a shell or script, or of the first one behind another program. Nothing if there is none.
    fn of(program: &Program, arguments: &[OsString]) -> Option<Self> {
        if is_shell_or_script(program) {
            return Some(Self::by(program, arguments));
        }
        (0..arguments.len()).find_map(|at| {
            let (word, rest) = arguments.get(at..)?.split_first()?;
            let program = (!is_option(word)).then(|| Program::find(word).ok())??;
            is_shell_or_script(&program).then(|| Self::by(&program, rest))
        })
    }

    fn by(program: &Program, arguments: &[OsString]) -> Self {
        if let Some((text, rest)) = text(program, arguments) {
            let named = servers(&text.to_string_lossy(), rest);
            if !named.is_empty() {
                return Self::Named(named);
            }
        }
        let words = match program.script {
            Some(_) => arguments,
            None => behind_name(arguments),
        };
        let is_long = |word: &OsString| word.as_bytes().starts_with(b"--");
        let hands_on = words.first().is_some_and(is_option) && words.iter().any(is_long);
        let options = words.iter().skip_while(|word| !is_option(word)).cloned().collect();
        match hands_on {
            true => Self::HandsOn(options),
            false => Self::Unknown(file_of(program).to_path_buf(), options),
        }
    }

    fn look(&self, around: &Around<'_>) -> Result<()> {
        let Around { brand, roots, listed, rules, .. } = *around;
        let start = |server, arguments| Start { brand, server, arguments, run_as: None };
        let options = match self {
            Self::Named(servers) => {
                return servers.iter().try_for_each(|(program, words)| {
                    scripts::refuse(file_of(program), brand)?;
                    let start = start(as_started(program, brand), words);
                    check(&start, roots, Some(listed), rules, Datadir::OfScript)
                });
            }
            Self::HandsOn(options) | Self::Unknown(_, options) => options,
        };
        match (self, around.server) {
            (Self::Unknown(program, _), server) => {
                let all = server.and_then(|server| start(server, options).options().ok());
                warn(program, &Settings::of(&all.unwrap_or_else(|| options.clone())), roots);
                Ok(())
            }
            (_, server) => {
                let one = server.map(|server| start(server, options));
                let judged =
                    one.map(|start| check(&start, roots, Some(listed), rules, Datadir::OfScript));
                match judged {
                    Some(judged @ (Ok(()) | Err(Error::Refused { .. }))) => judged,
                    // It may be no server that it starts, and the words are there.
                    _ => {
                        let settings = Settings::of(options);
                        let dir = settings.directory().unwrap_or_else(|| roots[0].to_path_buf());
                        judge(&settings, &dir, roots, Datadir::OfScript)?;
                        by_rule::judge(&settings, &dir, rules)
                    }
                }
            }
        }
    }
}

/// Tells of the first place for rows outside that the options of a server here have.
fn warn(program: &Path, settings: &Settings, roots: &[&Path]) {
    let datadir = settings.directory().unwrap_or_else(|| roots[0].to_path_buf());
    let mut strays = settings.outside(&datadir, roots).into_iter().filter(|stray| stray.rows);
    let (true, Some(stray)) = (is_below(&datadir, roots), strays.next()) else { return };
    let shown = roots.iter().map(|it| it.display().to_string()).collect::<Vec<_>>().join(", ");
    console::warn(
        format!(
            "if {} starts a server, its {} is {}: rows would lie there plain, outside of {shown}",
            program.display(),
            stray.setting,
            stray.path.display()
        ),
        settings::instead(stray.setting, &shown),
    );
}

fn is_shell_or_script(program: &Program) -> bool {
    program.script.is_some() || program.is_shell()
}

fn is_option(word: &OsString) -> bool {
    word.as_bytes().starts_with(b"-")
}

/// What `sh -c TEXT NAME WORD...` runs, and the words.
fn text<'a>(program: &Program, arguments: &'a [OsString]) -> Option<(&'a OsStr, &'a [OsString])> {
    let is_it = |word: &OsString| {
        let word = word.as_bytes();
        word.starts_with(b"-") && !word.starts_with(b"--") && word.contains(&b'c')
    };
    let at = arguments.iter().position(is_it).filter(|_| program.script.is_none())?;
    let (text, rest) = arguments.get(at + 1..)?.split_first()?;
    Some((text, rest.get(1..).unwrap_or_default()))
}

/// The words that a shell gives to the script that its first word names.
fn behind_name(arguments: &[OsString]) -> &[OsString] {
    let name = arguments.iter().position(|word| !is_option(word));
    name.and_then(|at| arguments.get(at + 1..)).unwrap_or_default()
}

/// The commands of a shell's text that start a server, with its words: those of the text, and
/// `rest`, which "$@" stands for.
fn servers(text: &str, rest: &[OsString]) -> Vec<(Program, Vec<OsString>)> {
    let text = text.replace("\\\n", " ");
    let commands = text.split(['\n', ';', '|', '&', '`', '(', ')']);
    let all = commands.filter_map(|command| {
        let words = command.split_whitespace().map(|word| word.replace(['"', '\''], ""));
        let words: Vec<OsString> = words.map(OsString::from).collect();
        (0..words.len()).find_map(|at| {
            let (word, own) = words.get(at..)?.split_first()?;
            let named = !is_option(word) && starts_a_server(Path::new(word));
            let program = named.then(|| Program::find(word).ok())??;
            Some((program, own.iter().chain(rest).cloned().collect()))
        })
    });
    all.collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;

    use super::*;

    /// A home with a script and a server, and what `look` says of a call there.
    fn judged(words: &[&str]) -> std::result::Result<(), String> {
        let home = tempfile::tempdir().unwrap();
        let place = home.path().canonicalize().unwrap();
        // What prints the option files has nothing to say.
        for name in ["mariadbd", "my_print_defaults", "numactl"] {
            let copy = Command::new("cp").arg("/bin/true").arg(place.join(name)).status();
            assert!(copy.unwrap().success());
        }
        fs::write(place.join("entry"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(place.join("entry"), fs::Permissions::from_mode(0o755)).unwrap();
        let here = |word: &&str| OsString::from(word.replace("HOME", &place.display().to_string()));
        let words: Vec<OsString> = words.iter().map(here).collect();
        let (first, arguments) = words.split_first().unwrap();
        let program = Program::find(first).unwrap();
        let server = place.join("mariadbd");
        let around = Around {
            brand: Brand::MariaDb,
            server: Some(&server),
            roots: &[Path::new("/d")],
            listed: &[],
            rules: &Rules::to_be(Path::new("/d"), Brand::MariaDb).unwrap(),
        };
        let Some(found) = Found::of(&program, arguments) else { return Ok(()) };
        found.look(&around).map_err(|why| why.to_string())
    }

    #[test]
    fn a_server_behind_a_wrapper_is_judged_by_the_words_behind_it() {
        let home = tempfile::tempdir().unwrap();
        let put = |name: &str| {
            let path = home.path().join(name);
            fs::copy("/bin/true", &path).unwrap();
            path.into_os_string()
        };
        let [numactl, server] = ["numactl", "mariadbd"].map(put);
        let numactl = Program::find(&numactl).unwrap();
        let behind = |words: &[&OsStr]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            let found = wrapper(&numactl, &words);
            found.map(|(found, rest)| (found.called.into_os_string(), rest.to_vec()))
        };
        let option = OsStr::new("--tmpdir=/x");
        let gone = home.path().join("mysqld").into_os_string();
        assert_eq!(
            behind(&[OsStr::new("--log=/x/mysqld"), &gone, &server, option]),
            Some((server.clone(), vec![option.to_owned()]))
        );
        // The user's name is that of a program too; what stands behind the options is a value.
        let (user, end) = (put("mysqld-debug"), OsStr::new("--"));
        assert_eq!(
            behind(&[OsStr::new("-u"), &user, end, &server, option, &user]),
            Some((server.clone(), vec![option.to_owned(), user.clone()]))
        );
        assert_eq!(behind(&[OsStr::new("5"), OsStr::new("/bin/true"), option]), None);
        assert_eq!(behind(&[&gone, option]), None);
        // What hides the options of a server counts as one.
        let (several, start) = (put("mysqld_multi"), OsStr::new("start"));
        assert_eq!(behind(&[&several, start]), Some((several.clone(), vec![start.to_owned()])));
        // A server names its own options.
        let itself = Program::find(&server).unwrap();
        assert!(wrapper(&itself, std::slice::from_ref(&server)).is_none());
    }

    #[test]
    fn a_server_that_a_script_or_shell_starts_is_judged_by_the_words_that_it_gets() {
        for words in [
            &["HOME/entry", "--tmpdir=/x"][..],
            &["HOME/entry", "-u", "mysql", "--tmpdir", "/x"],
            &["HOME/entry", "--datadir=/e", "--tmpdir=/x"],
            &["HOME/numactl", "--all", "HOME/entry", "--tmpdir=/x"],
            &["sh", "HOME/entry", "--tmpdir=/x"],
            &["sh", "-c", "exec HOME/mariadbd --tmpdir=/x"],
            &["sh", "-ec", "cd /; HOME/mariadbd \\\n  --tmpdir=\"/x\"; true"],
            &["sh", "-c", "exec HOME/mariadbd \"$@\"", "sh", "--tmpdir=/x"],
            &["HOME/numactl", "sh", "-c", "HOME/mariadbd --tmpdir=/x & wait"],
        ] {
            let why = judged(words).unwrap_err();
            assert!(
                why.starts_with("tmpdir is /x: rows would lie there plain"),
                "{words:?}: {why}"
            );
        }
        let plain = "--innodb-data-file-path=sqldata01:12M";
        for words in
            [&["HOME/entry", plain][..], &["sh", "-c", "HOME/mariadbd \"$@\"", "sh", plain]]
        {
            let why = judged(words).unwrap_err();
            assert!(why.contains("leaves that name plain"), "{words:?}: {why}");
        }
    }

    #[test]
    fn a_script_or_shell_that_names_no_place_outside_or_no_server_goes_on() {
        for words in [
            &["HOME/entry", "--log-bin=b", "--tmpdir=/d/tmp"][..],
            // These may be anything: what they name is told.
            &["HOME/entry", "backup", "--tmpdir=/x"],
            &["HOME/entry", "-a", "x"],
            &["sh"],
            &["sh", "-c", "ls --tmpdir=/x"],
            &["sh", "-c", "HOME/mariadbd; other --tmpdir=/x"],
            &["HOME/numactl", "--tmpdir=/x"],
        ] {
            assert_eq!(judged(words), Ok(()), "{words:?}");
        }
    }
}

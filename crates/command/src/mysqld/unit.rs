//! What a unit of systemd tells the server that it starts.
//!
//! systemd is asked, since it knows the drop-ins. Of a shell's text only the command that starts
//! the server is understood: `exec /usr/sbin/mariadbd $MYSQLD_OPTS`. What systemd prints has no
//! quotes, so words with blanks fall apart.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::is_server_or_starter;
use crate::owner::Owner;
use crate::service;

/// Where a variable comes from that the unit does not name itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Inherited {
    /// `systemctl set-environment`, as systemd has it now.
    OfSystemd,
    /// This process is one of the unit's own, and so has got the same.
    OfThisProcess,
}

/// What a unit starts.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Started {
    /// A server, or its wrapper, with these arguments.
    Server(PathBuf, Vec<OsString>),
    /// Something that starts it in its own way.
    Other(String),
    /// systemd does not run here, or does not know the unit.
    Unknown,
}

impl Started {
    /// By a unit, with or without `.service`.
    pub(super) fn by(unit: &str, inherited: Inherited) -> Self {
        let (inherited, given) = match inherited {
            Inherited::OfSystemd => {
                let told = systemctl(&["show-environment"]);
                (told.map(|told| manager(&told)).unwrap_or_default(), Variables::new())
            }
            Inherited::OfThisProcess => (Variables::new(), of_this_process()),
        };
        show(unit).map_or(Self::Unknown, |told| Self::of(&told, inherited, given))
    }

    /// By what systemctl has printed of the unit, the variables that it does not name itself, and
    /// those that systemd has given already, which are as the server gets them.
    fn of(told: &str, inherited: Variables, given: Variables) -> Self {
        // ExecStart={ path=/bin/sh ; argv[]=/bin/sh -c exec ... ; ignore_errors=no ; ... }
        let mut commands = told.lines().filter_map(|line| {
            let (_, words) = line.strip_prefix("ExecStart=")?.split_once("argv[]=")?;
            words.rsplit_once(" ; ignore_errors=").map(|(words, _)| words)
        });
        let Some(command) = commands.next_back() else { return Self::Unknown };
        let words: Vec<&str> = command.split_whitespace().collect();
        let Some(at) = words.iter().rposition(|word| starts_server_by_full_path(Path::new(word)))
        else {
            return Self::Other(command.to_owned());
        };
        let mut variables = inherited;
        variables.extend(own(told));
        variables.extend(of_files(told));
        variables.extend(given);
        // Behind a shell they end with its command.
        let ends = |word: &str| at > 0 && word.contains([';', '|', '&', '<', '>', '`']);
        let arguments = words.iter().skip(at + 1).take_while(|word| !ends(word));
        let arguments = arguments.flat_map(|word| expand(word, &variables)).map(OsString::from);
        Self::Server(words[at].into(), arguments.collect())
    }
}

fn starts_server_by_full_path(path: &Path) -> bool {
    path.is_absolute() && is_server_or_starter(path)
}

/// A variable as the files of a unit's `EnvironmentFile=` give it, which come before what any
/// drop-in says in `Environment=`. Nothing where systemd does not run.
pub(crate) fn variable_of_files(unit: &str, name: &str) -> Option<String> {
    of_files(&show(unit)?).remove(name)
}

/// A variable as `Environment=` of the unit and all drop-ins gives it, unless that is what
/// Tidelock's own drop-in says, which `service install` writes again.
pub(crate) fn variable_of_others(unit: &str, name: &str) -> Option<String> {
    let value = own(&show(unit)?).remove(name)?;
    (!service::has_assigned(unit, &format!("{name}={value}"))).then_some(value)
}

/// A variable as the server gets it, drop-ins included.
pub(crate) fn variable(unit: &str, name: &str) -> Option<String> {
    let told = show(unit)?;
    of_files(&told).remove(name).or_else(|| own(&told).remove(name))
}

/// All that systemd gives the commands of a unit, as far as it says so; nothing where it does not
/// run. With `User=` they have the home of that user, also those that run as root.
pub(crate) fn variables(unit: &str) -> Variables {
    let told = systemctl(&["show-environment"]);
    let mut all = told.map(|told| manager(&told)).unwrap_or_default();
    let properties = "--property=Environment,EnvironmentFiles,User";
    if let Some(told) = systemctl(&["show", unit, properties]) {
        let user = assigned(&told, "User=").next().and_then(|user| user.parse::<Owner>().ok());
        let home = user.and_then(Owner::home).map(|home| home.to_string_lossy().into_owned());
        all.extend(home.map(|home| ("HOME".to_owned(), home)));
        all.extend(own(&told));
        all.extend(of_files(&told));
    }
    all
}

fn show(unit: &str) -> Option<String> {
    systemctl(&["show", unit, "--property=ExecStart,Environment,EnvironmentFiles"])
}

fn systemctl(words: &[&str]) -> Option<String> {
    let mut command = Command::new("systemctl");
    command.args(words).stdin(Stdio::null()).stderr(Stdio::null());
    let told = command.output().ok().filter(|told| told.status.success())?;
    Some(String::from_utf8_lossy(&told.stdout).into_owned())
}

fn of_this_process() -> Variables {
    let text = |it: OsString| it.to_string_lossy().into_owned();
    std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect()
}

/// Names and values.
pub(crate) type Variables = BTreeMap<String, String>;

/// A variable a line. systemctl prints `NAME=$'a\'b'` where a value has more than plain letters.
fn manager(told: &str) -> Variables {
    let value = |text: &str| match text.strip_prefix("$'").and_then(|it| it.strip_suffix('\'')) {
        Some(quoted) => quoted.replace("\\'", "'").replace("\\\\", "\\"),
        None => text.to_owned(),
    };
    let pairs = told.lines().filter_map(|line| line.split_once('='));
    pairs.map(|(name, text)| (name.to_owned(), value(text))).collect()
}

/// Those of `Environment=`, with drop-ins.
fn own(told: &str) -> Variables {
    pairs(assigned(told, "Environment=").flat_map(words))
}

/// Those of `EnvironmentFile=`.
fn of_files(told: &str) -> Variables {
    let files = assigned(told, "EnvironmentFiles=").map(|file| {
        let path = file.rsplit_once(" (").map_or(file, |(path, _)| path);
        fs::read_to_string(path).unwrap_or_default()
    });
    files.flat_map(|text| in_file(&text)).collect()
}

/// Where a reader of such a file is.
#[derive(Clone, Copy)]
enum At {
    Line,
    Comment,
    CommentEscape,
    Name,
    /// Of a value, where blanks do not count.
    Blank,
    Value,
    Escape,
    Single,
    Double,
    DoubleEscape,
}

/// What a file of variables says, taken apart as systemd does it (src/basic/env-file.c): a value
/// goes on behind a backslash at the end of its line, and in quotes. A comment does not: before 254
/// it did, and what stands there counts rather than not.
fn in_file(text: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let (mut name, mut value) = (String::new(), String::new());
    // What has no quotes ends where its last letter is.
    let mut kept = 0;
    let mut at = At::Line;
    // A last line may lack its end.
    for letter in text.chars().chain(['\n']) {
        let ends = matches!(letter, '\n' | '\r');
        let is_blank = matches!(letter, ' ' | '\t') || ends;
        at = match (at, letter) {
            (At::Line, '#' | ';') => At::Comment,
            (At::Line, _) if is_blank => At::Line,
            (At::Line, _) => {
                name = letter.to_string();
                At::Name
            }
            (At::Comment, '\\') => At::CommentEscape,
            (At::Comment | At::CommentEscape, _) if ends => At::Line,
            (At::Comment | At::CommentEscape, _) => At::Comment,
            (At::Name, '=') => {
                value.clear();
                kept = 0;
                At::Blank
            }
            (At::Name, _) if ends => At::Line,
            (At::Name, _) => {
                name.push(letter);
                At::Name
            }
            (At::Blank | At::Value, _) if ends => {
                value.truncate(kept);
                all.push((name.trim_end().to_owned(), std::mem::take(&mut value)));
                At::Line
            }
            (At::Blank, '\'') => At::Single,
            (At::Blank, '"') => At::Double,
            (At::Blank, _) if is_blank => At::Blank,
            (At::Blank | At::Value, '\\') => At::Escape,
            (At::Single, '\'') | (At::Double, '"') => At::Blank,
            (At::Double, '\\') => At::DoubleEscape,
            (At::Escape, _) if ends => At::Value,
            (At::DoubleEscape, _) if ends => At::Double,
            (found, _) => {
                if matches!(found, At::DoubleEscape) && !"\"\\`$".contains(letter) {
                    value.push('\\');
                }
                value.push(letter);
                if !(matches!(found, At::Blank | At::Value) && is_blank) {
                    kept = value.len();
                }
                match found {
                    At::Single => At::Single,
                    At::Double | At::DoubleEscape => At::Double,
                    _ => At::Value,
                }
            }
        };
    }
    // Quotes that nobody has closed.
    if matches!(at, At::Value | At::Single | At::Double) {
        all.push((name.trim_end().to_owned(), value));
    }
    all
}

fn assigned<'t>(told: &'t str, name: &'static str) -> impl Iterator<Item = &'t str> {
    told.lines().filter_map(move |line| line.strip_prefix(name))
}

fn pairs(texts: impl Iterator<Item = String>) -> Variables {
    texts
        .filter_map(|text| {
            let (name, value) = text.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        })
        .collect()
}

/// Words that may have quotes.
fn words(text: &str) -> Vec<String> {
    let (mut all, mut word, mut quote) = (Vec::new(), String::new(), None);
    for letter in text.chars() {
        match (letter, quote) {
            ('\'' | '"', None) => quote = Some(letter),
            (letter, Some(open)) if letter == open => quote = None,
            (letter, None) if letter.is_whitespace() => all.push(std::mem::take(&mut word)),
            (letter, _) => word.push(letter),
        }
    }
    all.push(word);
    all.retain(|word| !word.is_empty());
    all
}

/// `$NAME` becomes words; `${NAME}` stands in a word. An unknown name is nothing.
fn expand(word: &str, variables: &Variables) -> Vec<String> {
    let value = |name: &str| variables.get(name).map(String::as_str).unwrap_or_default();
    let word = word.trim_matches(['"', '\'']);
    if let Some(name) = word.strip_prefix('$').filter(|name| !name.starts_with('{')) {
        return words(value(name));
    }
    let mut parts = word.split("${");
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('}').unwrap_or((part, ""));
        whole += value(name);
        whole += rest;
    }
    if whole.is_empty() { Vec::new() } else { vec![whole] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(told: &str) -> Vec<OsString> {
        arguments_with(told, "")
    }

    fn arguments_with(told: &str, inherited: &str) -> Vec<OsString> {
        match Started::of(told, manager(inherited), Variables::new()) {
            Started::Server(_, arguments) => arguments,
            other => panic!("{other:?}"),
        }
    }

    fn exec_start(words: &str) -> String {
        let path = words.split(' ').next().unwrap();
        format!(
            "ExecStart={{ path={path} ; argv[]={words} ; ignore_errors=no ; \
             start_time=[n/a] ; stop_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }}\n"
        )
    }

    #[test]
    fn the_arguments_of_a_unit_are_those_that_systemd_gives_its_server() {
        // As Debian's units of 10.11 have it, an instance and the shell's text.
        let instance = exec_start("/usr/sbin/mariadbd $MYSQLD_MULTI_INSTANCE $MYSQLD_OPTS")
            + "Environment=MYSQLD_MULTI_INSTANCE=--defaults-group-suffix=.one\n";
        assert_eq!(arguments(&instance), ["--defaults-group-suffix=.one"]);
        let shell = exec_start(
            "/bin/sh -c set -f; [ ! -e /usr/bin/galera_recovery ] && VAR= || \
             VAR=`/usr/bin/galera_recovery`; [ $? -eq 0 ] || exit 1; exec /usr/sbin/mariadbd \
             $MYSQLD_OPTS $_WSREP_NEW_CLUSTER $VAR",
        );
        assert_eq!(arguments(&shell), [""; 0]);
        let shell = shell + "Environment=\"MYSQLD_OPTS=--tmpdir=/a --log-bin\" LANG=C\n";
        assert_eq!(arguments(&shell), ["--tmpdir=/a", "--log-bin"]);
        let cut = exec_start("/bin/sh -c /usr/bin/mysqld_safe '--datadir=/d' & wait /x");
        assert_eq!(arguments(&cut), ["--datadir=/d"]);
        let within = exec_start("/usr/sbin/mysqld --datadir=${PLACE}/d --user=${USER}")
            + "Environment=PLACE=/srv USER=mysql\n";
        assert_eq!(arguments(&within), ["--datadir=/srv/d", "--user=mysql"]);
    }

    #[test]
    fn a_file_of_variables_comes_before_the_unit() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("mysql");
        fs::write(&file, "# MYSQLD_OPTS=--no\nMYSQLD_OPTS='--tmpdir=/a --log-bin'\n").unwrap();
        let told = exec_start("/usr/sbin/mysqld $MYSQLD_OPTS")
            + "Environment=MYSQLD_OPTS=--tmpdir=/b\n"
            + &format!("EnvironmentFiles={} (ignore_errors=yes)\n", file.display());
        assert_eq!(arguments(&told), ["--tmpdir=/a", "--log-bin"]);
        // What no file names is left to the drop-in.
        let given = of_files(&told);
        assert_eq!(given.get("MYSQLD_OPTS").map(String::as_str), Some("--tmpdir=/a --log-bin"));
        assert_eq!(given.get("TMPDIR"), None);
    }

    #[test]
    fn a_variable_that_goes_on_in_the_next_line_of_its_file_is_read_to_its_end() {
        let read = |text: &str| {
            let mut all = in_file(text);
            assert_eq!(all.len(), 1, "{text:?}: {all:?}");
            let (name, value) = all.remove(0);
            assert_eq!(name, "O", "{text:?}");
            value
        };
        for (text, value) in [
            ("O=--a \\\n --tmpdir=/x\n", "--a  --tmpdir=/x"),
            ("O='--a\n --tmpdir=/x'", "--a\n --tmpdir=/x"),
            ("O=\"--a\n --tmpdir=/x\"\n", "--a\n --tmpdir=/x"),
            ("O=\"--a \\\n--b \\\" \\c\" \n", "--a --b \" \\c"),
            ("# O=--no\n ; O=--no\n\nO = --a=\"b\"  \n", "--a=\"b\""),
            ("# it goes on \\\nO=--a", "--a"),
            ("O='a' \"b\"c\\ \n", "abc "),
            ("O=\n", ""),
        ] {
            assert_eq!(read(text), value, "{text:?}");
        }
        assert_eq!(in_file("no value\n=\nA=b\nO=c").len(), 2);
    }

    #[test]
    fn what_systemd_has_given_a_units_command_comes_before_its_files() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("mysql");
        fs::write(&file, "MYSQLD_OPTS=--tmpdir=/a\nMORE=--b\n").unwrap();
        let told = exec_start("/usr/sbin/mysqld $MYSQLD_OPTS $MORE")
            + &format!("EnvironmentFiles={} (ignore_errors=yes)\n", file.display());
        let given = manager("MYSQLD_OPTS=--tmpdir=/c\n");
        let Started::Server(_, arguments) = Started::of(&told, Variables::new(), given) else {
            panic!("no server");
        };
        assert_eq!(arguments, ["--tmpdir=/c", "--b"]);
    }

    #[test]
    fn what_systemd_gives_all_units_counts_where_the_unit_says_nothing() {
        let told = exec_start("/usr/sbin/mysqld $MYSQLD_OPTS ${MORE}");
        let inherited = "LANG=C\nMYSQLD_OPTS=$'--tmpdir=/a --log-bin'\nMORE=--b\n";
        assert_eq!(arguments_with(&told, inherited), ["--tmpdir=/a", "--log-bin", "--b"]);
        let own = told + "Environment=MYSQLD_OPTS=--tmpdir=/d\n";
        assert_eq!(arguments_with(&own, inherited), ["--tmpdir=/d", "--b"]);
    }

    #[test]
    fn what_starts_no_server_itself_is_named() {
        let script = exec_start("/usr/local/bin/start-it --user /x/mysqldump");
        let named = Started::Other("/usr/local/bin/start-it --user /x/mysqldump".to_owned());
        assert_eq!(Started::of(&script, Variables::new(), Variables::new()), named);
        let none = Started::of("Environment=A=b\n", Variables::new(), Variables::new());
        assert_eq!(none, Started::Unknown);
    }
}

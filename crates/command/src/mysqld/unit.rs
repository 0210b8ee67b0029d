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

use super::{SERVERS, STARTERS};

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
    pub(super) fn by(unit: &str) -> Self {
        let mut command = Command::new("systemctl");
        command.args(["show", unit, "--property=ExecStart,Environment,EnvironmentFiles"]);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        match command.output() {
            Ok(told) if told.status.success() => Self::of(&String::from_utf8_lossy(&told.stdout)),
            _ => Self::Unknown,
        }
    }

    /// By what systemctl has printed.
    fn of(told: &str) -> Self {
        // ExecStart={ path=/bin/sh ; argv[]=/bin/sh -c exec ... ; ignore_errors=no ; ... }
        let mut commands = told.lines().filter_map(|line| {
            let (_, words) = line.strip_prefix("ExecStart=")?.split_once("argv[]=")?;
            words.rsplit_once(" ; ignore_errors=").map(|(words, _)| words)
        });
        let Some(command) = commands.next_back() else { return Self::Unknown };
        let words: Vec<&str> = command.split_whitespace().collect();
        let Some(at) = words.iter().rposition(|word| is_server(Path::new(word))) else {
            return Self::Other(command.to_owned());
        };
        let variables = variables(told);
        // Behind a shell they end with its command.
        let ends = |word: &str| at > 0 && word.contains([';', '|', '&', '<', '>', '`']);
        let arguments = words.iter().skip(at + 1).take_while(|word| !ends(word));
        let arguments = arguments.flat_map(|word| expand(word, &variables)).map(OsString::from);
        Self::Server(words[at].into(), arguments.collect())
    }
}

fn is_server(path: &Path) -> bool {
    let mut names = SERVERS.iter().chain(&STARTERS);
    path.is_absolute() && names.any(|name| path.file_name().is_some_and(|it| it == *name))
}

/// The unit's own, then those of its files, which come before them.
fn variables(told: &str) -> BTreeMap<String, String> {
    let lines = |name: &'static str| told.lines().filter_map(move |line| line.strip_prefix(name));
    let mut texts: Vec<String> = lines("Environment=").flat_map(words).collect();
    for file in lines("EnvironmentFiles=") {
        let path = file.rsplit_once(" (").map_or(file, |(path, _)| path);
        let text = fs::read_to_string(path).unwrap_or_default();
        texts.extend(text.lines().map(|line| words(line).join(" ")));
    }
    let pairs = texts.iter().filter_map(|text| text.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
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
fn expand(word: &str, variables: &BTreeMap<String, String>) -> Vec<String> {
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
        match Started::of(told) {
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
    }

    #[test]
    fn what_starts_no_server_itself_is_named() {
        let script = exec_start("/usr/local/bin/start-it --user /x/mysqldump");
        let named = Started::Other("/usr/local/bin/start-it --user /x/mysqldump".to_owned());
        assert_eq!(Started::of(&script), named);
        assert_eq!(Started::of("Environment=A=b\n"), Started::Unknown);
    }
}

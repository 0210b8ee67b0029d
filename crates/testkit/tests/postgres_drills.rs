//! The drills of docs/drills.md: the page is the script. Each of its commands is run on a real
//! sealed server, and must print what the page says.
//!
//! A drill is a section of the page, behind the section that makes the server. A line `$ COMMAND`
//! is run by sh; what follows is its output, and `[exit N]` unless it ends with 0. Paths below /srv
//! are those of a private directory, `~` is its home. With TIDELOCK_BLESS=1 and one thread, outputs
//! and times are written into the page.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use tidelock_cipher::Secret;
use tidelock_keyring::{Error, PrincipalKey, Purpose, SealedKeyring, SlotKind, SlotTerms};
use tidelock_testkit::pg::{Arm, BINDIR, Cluster, Result, Workspace};

#[path = "../../command/tests/home/mask.rs"]
mod mask;

/// A test for each drill; those that are `long` are left to `make test-full`.
macro_rules! drills {
    (
        long { $($slow:ident $slow_title:literal,)+ }
        short { $($name:ident $title:literal,)+ }
    ) => {
        $(#[test]
        #[ignore = "long: make test-full"]
        fn $slow() -> Result<()> {
            drill($slow_title)
        })+

        $(#[test]
        fn $name() -> Result<()> {
            drill($title)
        })+

        const TITLES: &[&str] = &[$($slow_title,)+ $($title,)+];
    };
}

drills! {
    long {
        lost_keyring "A lost keyring",
        lost_node "A lost node",
        lost_machine "A lost machine",
        stolen_backup "A stolen backup",
        key_service_down "The key service is down at three in the morning",
        one_slot_lost "One of two slots is lost",
        new_principal_key "A new principal key",
        cryptoperiod "The end of a cryptoperiod",
    }
    short {
        lost_key_file "A lost key file",
        leaving_employee "A leaving employee",
        erasure "Erasure",
    }
}

/// The section that makes the server.
const SERVER: &str = "The server of the drills";
/// How a section's time is told.
const TOOK: &str = "The drill took ";

#[test]
fn every_drill_of_the_page_is_run() {
    let page = fs::read_to_string(page()).unwrap();
    let mut found: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let mut known = [TITLES, &[SERVER]].concat();
    found.sort_unstable();
    known.sort_unstable();
    assert_eq!(found, known);
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/drills.md")
}

/// The lines of a section, without its heading.
fn section<'p>(page: &'p str, title: &str) -> &'p str {
    let heading = format!("\n## {title}\n");
    let at = page.find(&heading).unwrap_or_else(|| panic!("the page has no \"{title}\""));
    let rest = &page[at + heading.len()..];
    rest.find("\n## ").map_or(rest, |end| &rest[..=end])
}

/// The page tries the stolen keyring as it is. A thief has more: the keyring key in it.
fn refuse_stolen_pair(place: &Workspace) {
    let read = |name: &str| SealedKeyring::parse(&fs::read(place.join(name)).unwrap()).unwrap();
    let key: [u8; 32] = fs::read(place.join("srv/thief.key")).unwrap().try_into().unwrap();
    let stolen = read("srv/thief/.tidelock/keyring").unlock(&StolenKey(key)).unwrap();
    let keyring_key = Secret::new(*stolen.keyring_key().expose());
    let opened = read("srv/pg/data/.tidelock/keyring").unlock_with(keyring_key);
    assert!(matches!(opened, Err(Error::WrongKeyringKey { .. })));
}

/// What was in the key file.
struct StolenKey([u8; 32]);

impl PrincipalKey for StolenKey {
    fn kind(&self) -> SlotKind {
        SlotKind::new(1, "file")
    }

    fn describe(&self) -> String {
        "the stolen key".into()
    }

    fn principal_key(&self, _: &SlotTerms, _: Purpose) -> std::result::Result<Secret<32>, Error> {
        Ok(Secret::new(self.0))
    }
}

fn drill(title: &str) -> Result<()> {
    let page = fs::read_to_string(page()).unwrap();
    let place = Workspace::new()?;
    for folder in ["srv", "srv/pg", "srv/key", "srv/safe", "srv/service"] {
        place.make_dir(folder)?;
    }
    // Stops the servers whatever happens.
    let server = |name: &str| -> Result<_> {
        Ok(Cluster::at(&place, name, Arm::Sealed)?.on(place.join(&format!("srv/pg/{name}"))))
    };
    let _servers = [server("data")?, server("standby")?];
    let mut begin = Instant::now();
    for title in [SERVER, title] {
        begin = Instant::now();
        let expected = section(&page, title);
        let found = perform(&place, expected)?;
        if std::env::var_os("TIDELOCK_BLESS").is_some() {
            bless(title, &found, begin.elapsed().as_secs());
        } else {
            assert_eq!(dense(&found), dense(expected), "\"{title}\" says otherwise");
        }
    }
    if title == "A stolen backup" {
        refuse_stolen_pair(&place);
    }
    eprintln!("{title}: {} s", begin.elapsed().as_secs());
    Ok(())
}

/// Blank lines do not count.
fn dense(text: &str) -> String {
    text.lines().filter(|line| !line.is_empty()).fold(String::new(), |all, line| all + line + "\n")
}

/// The same section with what its commands have printed.
fn perform(place: &Workspace, text: &str) -> Result<String> {
    let (mut found, mut example) = (String::new(), false);
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let fence = line.starts_with("```");
        if fence {
            example = line == "```console";
        }
        let Some(command) = line.strip_prefix("$ ").filter(|_| example) else {
            if fence || !example {
                let _ = writeln!(found, "{line}");
            }
            continue;
        };
        let _ = writeln!(found, "{line}");
        let mut command = command.to_owned();
        // A command goes on behind a backslash.
        while command.ends_with('\\') {
            let more = lines.next().unwrap_or_default();
            let _ = writeln!(found, "{more}");
            command.pop();
            command += more.trim_start();
        }
        found += &run(place, &command)?;
    }
    Ok(found)
}

/// One command of the page, as the servers' account.
fn run(place: &Workspace, command: &str) -> Result<String> {
    let (root, home) = (place.path().display().to_string(), place.join("home"));
    let command = command.replace("/srv/", &format!("{root}/srv/"));
    let programs = place.programs()?.command;
    let programs = programs.parent().unwrap_or(Path::new("/"));
    let bin = std::env::var("TIDELOCK_PG_BINDIR").unwrap_or_else(|_| BINDIR.to_owned());
    let output = place
        .tool("sh")
        .args([
            "-c",
            &format!("exec 2>&1\nunset XDG_CONFIG_HOME\ncd {}\n{command}", home.display()),
        ])
        .env("PATH", format!("{}:{bin}:/usr/bin:/bin", programs.display()))
        .env("PGDATA", place.join("srv/pg/data"))
        .env("PGHOST", place.join("srv/pg"))
        .env("PGUSER", "postgres")
        .env("PGDATABASE", "postgres")
        .env("COLUMNS", "100")
        .limit(300)
        .attempt()?;
    let text = output.stdout.replace(&format!("{root}/srv/"), "/srv/");
    let text = text.replace(&home.display().to_string(), "~");
    let mut text: String =
        text.split_inclusive('\n').map(|line| amounts(&mask::mask_line(line))).collect();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    if !output.status.success() {
        let code = output.status.code().map_or("signal".to_owned(), |code| code.to_string());
        let _ = writeln!(text, "[exit {code}]");
    }
    Ok(text)
}

/// Numbers of files, sizes, seconds and processes differ from run to run.
fn amounts(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let is = |at: usize, all: &[&str]| {
        words.get(at).is_some_and(|word| all.contains(&word.trim_end_matches([',', ';', '\n'])))
    };
    let is_number = |word: &str| {
        word.bytes().any(|byte| byte.is_ascii_digit())
            && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
    };
    let mut out = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let next = at + 1;
        let masked = match *word {
            // That there is none is said.
            word if !is_number(word) || word == "0" => word,
            _ if is(next, &["B", "KiB", "MiB", "GiB"]) => "[SIZE]",
            _ if is(next, &["file", "files", "more", "done", "sealed", "empty", "plain"]) => "[N]",
            _ if is(next, &["s"]) => "[S]",
            _ if at > 0 && is(at - 1, &["process"]) => "[PID]",
            word => word,
        };
        out.push(masked);
    }
    let line = out.join(" ");
    ["B", "KiB", "MiB", "GiB"]
        .iter()
        .fold(line, |line, unit| line.replace(&format!("[SIZE] {unit}"), "[SIZE]"))
}

/// Writes a section into the page, with the time that it took.
fn bless(title: &str, found: &str, seconds: u64) {
    let page_now = fs::read_to_string(page()).unwrap();
    let mut text = String::new();
    for line in found.lines() {
        if line.starts_with(TOOK) {
            let _ = writeln!(text, "{TOOK}{} s.", seconds.max(1));
        } else {
            let _ = writeln!(text, "{line}");
        }
    }
    let old = section(&page_now, title).to_owned();
    let heading = format!("\n## {title}\n");
    fs::write(page(), page_now.replacen(&(heading.clone() + &old), &(heading + &text), 1)).unwrap();
}

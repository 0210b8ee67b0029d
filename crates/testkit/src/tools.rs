//! docs/tools.md: what each stock tool does beside a sealed server, from the tests that run it.
//!
//! ```text
//!   a test --> Page::ran(template) --> the command, run with its words filled in
//!          --> Page::row           --> the row must stand in the page as it was measured
//! ```
//!
//! The printed command is the one that was run: words in capitals stand for what differs from run
//! to run. With `TIDELOCK_BLESS=1` the row is written into the page instead.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use tidelock_servers::{Error, Output, Result, Tool, Workspace, ensure};

const BEGIN: &str = "<!-- rows: written by tests, see crates/testkit/src/tools.rs -->\n";
const END: &str = "<!-- end of rows -->\n";

/// Where the tests of the page are, in `tests`.
pub const FILES: [&str; 12] = [
    "tools_page.rs",
    "postgres_tools.rs",
    "tools_page_newer.rs",
    "tools_page_across.rs",
    "postgres_upgrade_majors.rs",
    "postgres_backups.rs",
    "postgres_backup_hosts.rs",
    "postgres_barman.rs",
    "postgres_walg.rs",
    "debian.rs",
    "mariadb_tools.rs",
    "mariadb_tools/replicas.rs",
];

/// How the names of MariaDB's programs begin.
const MARIADBS: [&str; 5] = ["mariadb", "mbstream", "innochecksum", "aria_", "myisam"];

/// What a tool sees of sealed files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sees {
    /// It runs by `tidelock exec`, or asks a server.
    Plain,
    /// It runs without keys.
    SealedBytes,
}

/// The rows of one test.
pub struct Page<'w> {
    place: &'w Workspace,
    test: &'static str,
    words: Vec<(&'static str, String)>,
    bin: Option<PathBuf>,
}

impl<'w> Page<'w> {
    /// Rows of `test`, a function in one of the [`FILES`].
    #[must_use]
    pub fn new(place: &'w Workspace, test: &'static str) -> Self {
        Self { place, test, words: Vec::new(), bin: None }
    }

    /// The same with the programs of another build, where it has them.
    #[must_use]
    pub fn of(mut self, bin: &Path) -> Self {
        self.bin = Some(bin.to_path_buf());
        self
    }

    /// Lets a word in capitals stand for this.
    pub fn word(&mut self, word: &'static str, value: impl ToString) {
        self.words.retain(|(known, _)| *known != word);
        self.words.push((word, value.to_string()));
    }

    /// A command with its words filled in, to be run as it stands or by `exec`.
    #[must_use]
    pub fn tool(&self, template: &str) -> Tool<'w> {
        let mut words = template.split(' ').map(|word| self.fill(word));
        let program = words.next().unwrap_or_default();
        self.place.tool(self.program(&program)).args(words)
    }

    /// The other build's, if it has one.
    fn program(&self, name: &str) -> PathBuf {
        let theirs = self.bin.as_ref().map(|bin| bin.join(name)).filter(|path| path.is_file());
        theirs.unwrap_or_else(|| name.into())
    }

    /// Runs it to success, and writes down that it did.
    ///
    /// # Errors
    /// When it fails, or the page says otherwise.
    pub fn works(
        &self,
        tool: Tool<'_>,
        sees: Sees,
        template: &str,
        result: &str,
    ) -> Result<Output> {
        let output = tool.limit(300).run()?;
        self.row(sees, template, result)?;
        Ok(output)
    }

    /// Runs it to failure with these words, and writes down what it says.
    ///
    /// # Errors
    /// When it succeeds or says something else, or the page says otherwise.
    pub fn fails(&self, tool: Tool<'_>, sees: Sees, template: &str, said: &str) -> Result<Output> {
        let output = tool.limit(300).fails()?;
        ensure(output.text().contains(said), || format!("no {said:?}: {}", output.text()))?;
        self.row(sees, template, &format!("fails: \"{said}\""))?;
        Ok(output)
    }

    /// Compares one row with the page, or writes it.
    ///
    /// # Errors
    /// When the page has another row for the command, or none.
    pub fn row(&self, sees: Sees, template: &str, result: &str) -> Result<()> {
        let program = template.split(' ').next().unwrap_or_default();
        let sees = match sees {
            Sees::Plain => "plain",
            Sees::SealedBytes => "sealed bytes",
        };
        let version = self.version(program)?;
        let key = format!("| {program} | {version} | {sees} | `{template}` |");
        let row = format!("{key} {result} | {} |\n", self.test);
        let path = path();
        if std::env::var_os("TIDELOCK_BLESS").is_some() {
            return bless(&path, &key, &row);
        }
        let page = fs::read_to_string(&path).map_err(Error::io("reading docs/tools.md"))?;
        ensure(page.contains(&row), || {
            format!("docs/tools.md is old, TIDELOCK_BLESS=1 writes it again: {row}")
        })
    }

    fn fill(&self, word: &str) -> String {
        let mut filled = word.to_owned();
        for (name, value) in &self.words {
            filled = filled.replace(name, value);
        }
        filled
    }

    /// The first number that a program says of itself; of PostgreSQL's the major one.
    fn version(&self, program: &str) -> Result<String> {
        let program =
            if program.chars().all(|c| c.is_ascii_uppercase()) { "psql" } else { program };
        let program = if program.starts_with("pg_") && program.ends_with("cluster") {
            "pg_config"
        } else {
            program
        };
        // Most of MariaDB's tools have numbers of their own, or say none.
        let program = match MARIADBS.iter().any(|begin| program.starts_with(begin)) {
            true => "innochecksum",
            false => program,
        };
        // Before 2.47 it had no option for that.
        let asked = if program == "pgbackrest" { "version" } else { "--version" };
        let said = self.place.tool(self.program(program)).arg(asked).run()?.stdout;
        let is_number = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
        // `wal-g version v3.0.9<TAB>...`, which names PostgreSQL too.
        let words = said.split([' ', ',', '\n', '\t']).map(|it| it.strip_prefix('v').unwrap_or(it));
        let number = words.into_iter().find(is_number).unwrap_or("?");
        let parts = if said.contains("PostgreSQL") && program != "wal-g" { 1 } else { 2 };
        Ok(number.split('.').take(parts).collect::<Vec<_>>().join("."))
    }
}

/// The tests that the rows name.
///
/// # Errors
/// When the page cannot be read or has no rows.
pub fn named_tests() -> Result<Vec<String>> {
    let page = fs::read_to_string(path()).map_err(Error::io("reading docs/tools.md"))?;
    let (_, rows, _) = parts(&page)?;
    Ok(rows
        .iter()
        .filter_map(|row| row.rsplit('|').nth(1))
        .map(|it| it.trim().to_owned())
        .collect())
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tools.md")
}

fn parts(page: &str) -> Result<(&str, Vec<&str>, &str)> {
    let split = page.split_once(BEGIN).and_then(|(before, rest)| {
        let (rows, after) = rest.split_once(END)?;
        Some((before, rows.split_inclusive('\n').collect(), after))
    });
    split.ok_or_else(|| Error::Unexpected("docs/tools.md has lost the marks of its rows".into()))
}

fn bless(path: &Path, key: &str, row: &str) -> Result<()> {
    let lock = fs::File::open(path).map_err(Error::io("opening docs/tools.md"))?;
    flock(&lock, FlockOperation::LockExclusive)
        .map_err(|errno| Error::io("locking docs/tools.md")(errno.into()))?;
    let page = fs::read_to_string(path).map_err(Error::io("reading docs/tools.md"))?;
    let (before, mut rows, after) = parts(&page)?;
    rows.retain(|known| !known.starts_with(key));
    rows.push(row);
    // The two lines of the table's head stay where they are.
    let head = rows.iter().filter(|row| row.starts_with("| tool |") || row.starts_with("| --- |"));
    let head: Vec<&str> = head.copied().collect();
    let mut body: Vec<&str> = rows.iter().copied().filter(|row| !head.contains(row)).collect();
    body.sort_unstable();
    let text = [before, BEGIN, &head.concat(), &body.concat(), END, after].concat();
    // In place: the lock is on this file.
    fs::write(path, text).map_err(Error::io("writing docs/tools.md"))
}

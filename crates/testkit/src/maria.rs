//! MariaDB in the tests: small private servers, and clients whose acknowledged transactions are
//! written down outside of the server.

pub mod suite;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::marker::Marker;
use crate::pg::mysqld::Mysqld;
use crate::pg::{Arm, Error, Result, Running, Tool, Workspace, ensure};

/// Small, and quick on a busy disk: the machine outlives the test, so nothing needs an fsync.
pub const SMALL: [(&str, &str); 7] = [
    ("innodb_log_file_size", "4M"),
    ("innodb_buffer_pool_size", "16M"),
    ("aria_log_file_size", "8M"),
    ("innodb_flush_method", "nosync"),
    ("debug_no_sync", "ON"),
    ("key_buffer_size", "1M"),
    // As that of what functions of a client answer, so that both can be compared.
    ("character_set_server", "utf8mb3"),
];

/// An installed server that is not started, with [`SMALL`] and these settings.
///
/// # Errors
/// When it cannot be installed.
pub fn installed<'p>(
    place: &'p Workspace,
    name: &str,
    arm: Arm,
    settings: &[(&str, &str)],
) -> Result<Mysqld<'p>> {
    let maria = Mysqld::mariadb(place, name, arm)?;
    for (name, value) in SMALL.iter().chain(settings) {
        maria.set(name, value)?;
    }
    maria.install()?;
    Ok(maria)
}

/// As [`installed`], and started.
///
/// # Errors
/// When it does not come up.
pub fn started<'p>(
    place: &'p Workspace,
    name: &str,
    arm: Arm,
    settings: &[(&str, &str)],
) -> Result<Mysqld<'p>> {
    let maria = installed(place, name, arm, settings)?;
    maria.start()?;
    Ok(maria)
}

/// Searches a server's directory: sealed, the marker must be nowhere; plain, somewhere, or the
/// search proves nothing. Tells the names of the files that have it.
///
/// # Errors
/// When it is not so.
pub fn search(marker: &Marker, arm: Arm, roots: &[&Path]) -> Result<Vec<String>> {
    let seen = marker.search(roots).map_err(Error::io("searching"))?;
    ensure(seen.files > 20, || format!("only {} files were searched", seen.files))?;
    match arm {
        Arm::Plain => ensure(!seen.findings.is_empty(), || "the control finds nothing".into()),
        _ => ensure(seen.findings.is_empty(), || format!("{:?}", seen.findings)),
    }?;
    let name = |path: &Path| Some(path.file_name()?.to_string_lossy().into_owned());
    Ok(seen.findings.iter().filter_map(|found| name(&found.path)).collect())
}

/// A file that a running server has open and that has no name any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nameless {
    /// Its inode.
    pub number: u64,
    /// Bytes that the kernel has of it.
    pub len: u64,
    /// Whether the marker is among them.
    pub has_marker: bool,
}

/// Searches the files that a server has made below its directory, unlinked and still has open, by
/// the kernel's view of its descriptors. One that is closed meanwhile is no error.
///
/// # Errors
/// When no server runs, or a file cannot be read.
pub fn nameless(maria: &Mysqld<'_>, marker: &Marker) -> Result<Vec<Nameless>> {
    nameless_below(maria.process()?.id(), maria.dir(), marker)
}

/// The same of any process, by its id, and of any directory.
///
/// # Errors
/// When there is no such process, or a file cannot be read.
pub fn nameless_below(process: impl Display, dir: &Path, marker: &Marker) -> Result<Vec<Nameless>> {
    let descriptors = format!("/proc/{process}/fd");
    let reading = || Error::io(format!("reading {descriptors}"));
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(&descriptors).map_err(reading())? {
        let path = entry.map_err(reading())?.path();
        match searched(&path, dir, marker) {
            Ok(Some(file)) => drop(found.insert(file.number, file)),
            Ok(None) => {}
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => {}
            Err(why) => return Err(reading()(why)),
        }
    }
    Ok(found.into_values().collect())
}

/// The file behind a descriptor, if it was unlinked below `dir`.
fn searched(path: &Path, dir: &Path, marker: &Marker) -> std::io::Result<Option<Nameless>> {
    let target = fs::read_link(path)?;
    if !target.starts_with(dir) || !target.to_string_lossy().ends_with(" (deleted)") {
        return Ok(None);
    }
    let seen = marker.search_file(path)?;
    let number = fs::metadata(path)?.ino();
    Ok(Some(Nameless { number, len: seen.bytes, has_marker: !seen.findings.is_empty() }))
}

/// Every file below a directory but those of `.tidelock`, with its bytes: to see that nothing has
/// changed.
///
/// # Errors
/// When one cannot be read.
pub fn contents(dir: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![dir.to_path_buf()];
    while let Some(next) = waiting.pop() {
        let reading = || Error::io(format!("reading {}", next.display()));
        for entry in fs::read_dir(&next).map_err(reading())? {
            let entry = entry.map_err(reading())?;
            let kind = entry.file_type().map_err(reading())?;
            if kind.is_dir() && entry.file_name() != ".tidelock" {
                waiting.push(entry.path());
            } else if kind.is_file() {
                found.insert(entry.path(), fs::read(entry.path()).map_err(reading())?);
            }
        }
    }
    Ok(found)
}

/// A server that takes SQL: MariaDB's or MySQL's.
pub trait Sql {
    /// Where it lives.
    fn workspace(&self) -> &Workspace;

    /// Its client, which reads statements.
    ///
    /// # Errors
    /// When it is not installed.
    fn client(&self) -> Result<Tool<'_>>;

    /// Runs statements; each row of the answer is a line, with tabs.
    ///
    /// # Errors
    /// When one fails.
    fn sql(&self, text: &str) -> Result<String>;
}

impl Sql for Mysqld<'_> {
    fn workspace(&self) -> &Workspace {
        Mysqld::workspace(self)
    }

    fn client(&self) -> Result<Tool<'_>> {
        Mysqld::client(self, "mariadb")
    }

    fn sql(&self, text: &str) -> Result<String> {
        Mysqld::sql(self, text)
    }
}

/// Two hundred clients at once update a row each, 25 times, in the tables `names`: each has the
/// columns `k`, `n` and `b`, and is empty. Every change must count, whatever its length was.
///
/// # Errors
/// When a change is lost, or the server finds fault with a table.
pub fn two_hundred_clients_update(server: &impl Sql, names: &[&str]) -> Result<()> {
    let rows: Vec<String> = (1..=200).map(|k| format!("({k}, 0, REPEAT('x', {k} % 50))")).collect();
    let rows = rows.join(",");
    for name in names {
        server.sql(&format!("INSERT INTO {name} VALUES {rows}"))?;
    }
    let mut clients = Vec::new();
    for client in 1..=200 {
        let change = |name: &&str| {
            // The assignment of b sees the new n.
            format!(
                "UPDATE {name} SET n = n + 1, b = REPEAT('y', (n * 7 + k) % 180)
                 WHERE k = {client};\n"
            )
        };
        let text = names.iter().map(change).collect::<String>().repeat(25);
        clients.push(server.client()?.stdin(text).limit(900).spawn()?);
    }
    for client in clients {
        let output = client.wait()?;
        ensure(output.status.success(), || output.text())?;
    }
    for name in names {
        let good = "n = 25 AND b = REPEAT('y', (25 * 7 + k) % 180)";
        let found = server.sql(&format!("SELECT COUNT(*), SUM({good}) FROM {name}"))?;
        ensure(found == "200\t200", || format!("{name} has {found}"))?;
        let checked = server.sql(&format!("CHECK TABLE {name} EXTENDED"))?;
        ensure(checked.ends_with("OK"), || checked)?;
    }
    Ok(())
}

/// A client that inserts 1, 2, 3 ... into a table of its own, each number in a transaction, and
/// tells each that the server has acknowledged.
#[derive(Debug)]
pub struct Inserter {
    table: String,
    told: PathBuf,
    client: Option<Running>,
}

impl Inserter {
    /// Starts it behind `after`; `table` has the columns `k` and `b`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(server: &impl Sql, table: &str, after: u64) -> Result<Self> {
        let told = server.workspace().join(&format!("told-{}", table.replace('.', "-")));
        let numbers = after + 1..=after + PLENTY;
        let line =
            |k| format!("INSERT INTO {table} VALUES ({k}, REPEAT(SHA2({k}, 256), 2));SELECT {k};");
        let text = numbers.map(line).collect::<Vec<_>>().join("\n");
        let client = server
            .client()?
            .args(["--batch", "--skip-column-names", "--unbuffered"])
            .stdin(text)
            .stdout_to(&told)
            .limit(1800)
            .spawn()?;
        Ok(Self { table: table.into(), told, client: Some(client) })
    }

    /// Ends the client; what it was told stays.
    pub fn end(&mut self) {
        self.client = None;
    }

    /// Whether the client was ended.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.client.is_none()
    }

    /// The last number that was acknowledged, if any.
    ///
    /// # Errors
    /// When its record cannot be read.
    pub fn last(&self) -> Result<Option<u64>> {
        let text = fs::read_to_string(&self.told)
            .map_err(Error::io(format!("reading {}", self.told.display())))?;
        // A line that is not ended was not told.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        Ok(whole.lines().last().and_then(|line| line.parse().ok()))
    }

    /// Waits until it has got beyond `number`.
    ///
    /// # Errors
    /// When it does not within two minutes.
    pub fn wait_beyond(&self, number: u64) -> Result<()> {
        let begin = Instant::now();
        while self.last()?.is_none_or(|last| last <= number) {
            ensure(begin.elapsed() < Duration::from_secs(120), || {
                format!("{} stays at {:?}, below {number}", self.table, self.last())
            })?;
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Compares the table with what was acknowledged: all of it is there, at most one number more,
    /// whose answer did not arrive, and every row is whole. Tells the last number of the table.
    ///
    /// # Errors
    /// When something is lost.
    pub fn compare(&self, server: &impl Sql) -> Result<u64> {
        let table = &self.table;
        let told = self.last()?.unwrap_or_default();
        let found = server.sql(&format!(
            "SELECT COUNT(*), MAX(k), SUM(b <> REPEAT(SHA2(k, 256), 2)) FROM {table}; CHECK TABLE {table}"
        ))?;
        let mut fields = found.lines().next().unwrap_or_default().split('\t');
        let mut number = || fields.next().and_then(|field| field.parse::<u64>().ok());
        let (count, last, bad) = (number(), number(), number());
        let good = last == count
            && bad == Some(0)
            && found.ends_with("OK")
            && last.is_some_and(|last| last == told || last == told + 1);
        ensure(good, || format!("{table}: {told} was acknowledged, and it has\n{found}"))?;
        Ok(last.unwrap_or_default())
    }
}

/// More than any test waits for.
const PLENTY: u64 = 40_000;

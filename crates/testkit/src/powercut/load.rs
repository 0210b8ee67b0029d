//! What the server has to do until the cut, and what it must still know after it.
//!
//! Clients are psql processes that read an endless script and echo each commit that they have heard
//! of. Only what was echoed before the cut began is a promise.

use std::{
    collections::{BTreeMap, HashSet},
    fmt::Write as _,
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::{PowercutError, server::Server};

/// Made once, after initdb.
pub(super) const PREPARE: &str = "
    CREATE TABLE marker (n bigint PRIMARY KEY, fill text);
    CREATE TABLE wide (id int PRIMARY KEY, fill text);
    INSERT INTO wide SELECT i, repeat(md5(i::text), 6) FROM generate_series(1, 5000) i;";

/// Run after each check: what earlier cycles made would only fill the volume.
pub(super) const TIDY: &str = r"
    DO $$ DECLARE name text; BEGIN
        FOR name IN SELECT relname FROM pg_class WHERE relname ~ '^[tu]_[0-9_]+$' AND relkind = 'r'
        LOOP EXECUTE 'DROP TABLE ' || quote_ident(name); END LOOP;
    END $$;
    DELETE FROM marker;";

/// The clients of one cycle.
pub(super) struct Load {
    clients: Vec<Client>,
}

impl Load {
    /// Starts every client.
    pub(super) fn start(server: &Server, seed: u32) -> Result<Self, PowercutError> {
        let mut clients = vec![
            Client::start(server, "markers", markers(seed))?,
            Client::start(server, "tables", tables(seed))?,
            Client::start(server, "growth", growth(seed))?,
        ];
        if !seed.is_multiple_of(3) {
            clients.push(Client::start(server, "checkpoints", checkpoints(seed))?);
        }
        if seed.is_multiple_of(4) {
            clients.push(Client::start(server, "databases", databases(seed))?);
        }
        Ok(Self { clients })
    }

    /// Waits until a first commit was heard of, and a first database, which is at once unless the
    /// machine is very busy.
    ///
    /// # Errors
    /// When there is none within a minute, or its client is gone.
    pub(super) fn wait_for_a_commit(&self) -> Result<(), PowercutError> {
        let until = Instant::now() + Duration::from_secs(60);
        let counted = |it: &&Client| ["markers", "databases"].contains(&it.name);
        for client in self.clients.iter().filter(counted) {
            while client.heard.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
                let ended = client.feeder.is_finished() && !client.may_end();
                if ended || Instant::now() > until {
                    return Err(client.ended_early());
                }
                thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(())
    }

    /// What was heard so far; all that comes later is no promise.
    ///
    /// # Errors
    /// When a client is gone although the server still runs.
    pub(super) fn stop_listening(&self) -> Result<Acknowledged, PowercutError> {
        let mut all = Acknowledged::default();
        for client in &self.clients {
            let mut heard = client.heard.lock().unwrap_or_else(PoisonError::into_inner);
            for line in heard.drain(..) {
                all.add(&line);
            }
        }
        for client in &self.clients {
            if client.feeder.is_finished() && !client.may_end() {
                return Err(client.ended_early());
            }
        }
        Ok(all)
    }

    /// Waits for the clients, which have lost their server.
    ///
    /// What they still say promises nothing, but a table that one was about to drop need not be
    /// there.
    pub(super) fn end(self, promised: &mut Acknowledged) -> Result<(), PowercutError> {
        for mut client in self.clients {
            client.psql.wait()?;
            // Threads end with the pipes of their client.
            let _no_answer = (client.feeder.join(), client.listener.join());
            let heard = client.heard.lock().unwrap_or_else(PoisonError::into_inner);
            for table in heard.iter().filter_map(|line| line.strip_prefix("dropping ")) {
                promised.tables.remove(table);
            }
        }
        Ok(())
    }
}

/// What must be there after the cut.
#[derive(Debug, Default)]
pub(super) struct Acknowledged {
    pub(super) markers: Vec<u64>,
    pub(super) tables: BTreeMap<String, u64>,
    pub(super) databases: Vec<String>,
}

/// What a check has found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Commits that are gone.
    pub(super) lost: Vec<String>,
    /// What queries and amcheck said.
    pub(super) damage: Vec<String>,
}

impl Acknowledged {
    /// How many commits are promised.
    pub(super) fn count(&self) -> u64 {
        (self.markers.len() + self.tables.len() + self.databases.len()) as u64
    }

    /// Compares the promises with the server that came back.
    pub(super) fn check(&self, server: &Server) -> Result<Found, PowercutError> {
        let mut found = Found::default();
        let markers = "SELECT n FROM marker WHERE fill = repeat(md5(n::text), 4)";
        let answer = found.ask(server.query(markers))?;
        let there: HashSet<&str> = answer.lines().collect();
        let lost = self.markers.iter().filter(|n| !there.contains(n.to_string().as_str()));
        found.lost.extend(lost.map(|n| format!("marker {n}")));
        if !self.tables.is_empty() {
            let mut counts = String::new();
            for table in self.tables.keys() {
                // A table that is not there is a lost commit, not an error of the query.
                let _ = write!(
                    counts,
                    "SELECT CASE WHEN to_regclass('{table}') IS NOT NULL THEN (xpath('//n/text()', \
                     query_to_xml('SELECT count(b) AS n FROM {table}', false, true, '')))[1] END;"
                );
            }
            let answer = found.ask(server.query(&counts))?;
            for (at, (table, rows)) in self.tables.iter().enumerate() {
                if answer.lines().nth(at) != Some(&rows.to_string()) {
                    found.lost.push(format!("table {table} of {rows} rows"));
                }
            }
        }
        let answer = found.ask(server.query("SELECT datname FROM pg_database"))?;
        let lost = self.databases.iter().filter(|name| !answer.lines().any(|line| line == *name));
        found.lost.extend(lost.map(|name| format!("database {name}")));
        found.ask(server.amcheck().map(|()| String::new()))?;
        for name in answer.lines().filter(|name| name.starts_with("d_")) {
            found.ask(server.query(&format!("DROP DATABASE {name}")))?;
        }
        Ok(found)
    }

    fn add(&mut self, line: &str) {
        let mut words = line.split(' ');
        match (words.next(), words.next(), words.next()) {
            (Some("marker"), Some(n), None) => self.markers.extend(n.parse::<u64>()),
            (Some("table"), Some(name), Some(rows)) => {
                self.tables.extend(rows.parse().ok().map(|rows| (name.to_owned(), rows)));
            }
            (Some("dropping"), Some(name), None) => drop(self.tables.remove(name)),
            (Some("database"), Some(name), None) => self.databases.push(name.to_owned()),
            _ => {}
        }
    }
}

impl Found {
    /// Nothing lost, nothing damaged.
    pub(super) fn is_clean(&self) -> bool {
        self.lost.is_empty() && self.damage.is_empty()
    }

    /// A failed question is damage, and no answer.
    fn ask(&mut self, asked: Result<String, PowercutError>) -> Result<String, PowercutError> {
        match asked {
            Err(PowercutError::Program { said, .. }) => {
                self.damage.push(said.chars().take(2000).collect());
                Ok(String::new())
            }
            other => other,
        }
    }
}

/// One psql, its script and its echo.
struct Client {
    name: &'static str,
    psql: Child,
    errors: std::path::PathBuf,
    heard: Arc<Mutex<Vec<String>>>,
    feeder: JoinHandle<()>,
    listener: JoinHandle<()>,
}

impl Client {
    fn start(
        server: &Server,
        name: &'static str,
        script: impl Iterator<Item = String> + Send + 'static,
    ) -> Result<Self, PowercutError> {
        let errors = server.private(name);
        let mut psql = server.psql("postgres");
        psql.args(["-v", "ON_ERROR_STOP=1"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut psql = psql.stderr(File::create(&errors)?).spawn()?;
        let (Some(stdin), Some(stdout)) = (psql.stdin.take(), psql.stdout.take()) else {
            return Err(PowercutError::LoadEnded { client: name, said: String::new() });
        };
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hear = Arc::clone(&heard);
        let listener = thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                hear.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            }
        });
        let feeder = thread::spawn(move || feed(stdin, script));
        Ok(Self { name, psql, errors, heard, feeder, listener })
    }

    /// The databases of one cycle are few.
    fn may_end(&self) -> bool {
        self.name == "databases"
    }

    fn ended_early(&self) -> PowercutError {
        let said = fs::read_to_string(&self.errors).unwrap_or_default();
        PowercutError::LoadEnded { client: self.name, said }
    }
}

fn feed(mut stdin: ChildStdin, script: impl Iterator<Item = String>) {
    for statements in script {
        if stdin.write_all(statements.as_bytes()).is_err() {
            return;
        }
    }
}

/// One small commit after the other.
fn markers(seed: u32) -> impl Iterator<Item = String> {
    (0_u64..).map(move |i| {
        let n = u64::from(seed) * 1_000_000 + i;
        format!("INSERT INTO marker VALUES ({n}, repeat(md5('{n}'), 4));\n\\echo marker {n}\n")
    })
}

/// CREATE TABLE, indexes and COPY in one transaction; some tables are dropped again, some unlogged.
fn tables(seed: u32) -> impl Iterator<Item = String> {
    let mut state = seed.wrapping_mul(2_654_435_761);
    let mut any = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    (0_u32..).map(move |i| {
        let rows = 50 + any() % 2000;
        let table = format!("t_{seed}_{i}");
        let mut script = format!(
            "BEGIN;\nCREATE TABLE {table} (a int PRIMARY KEY, b text);\n\
             CREATE INDEX ON {table} (b);\nCOPY {table} FROM STDIN;\n"
        );
        for row in 0..rows {
            let (word, times) = (any(), 1 + any() as usize % 12);
            let _ = writeln!(script, "{row}\t{}", format!("{word:08x}").repeat(times));
        }
        let _ = write!(script, "\\.\nCOMMIT;\n\\echo table {table} {rows}\n");
        if i % 4 == 3 {
            let old = format!("t_{seed}_{}", i - 2);
            let _ = write!(script, "\\echo dropping {old}\nDROP TABLE {old};\n");
        }
        if i % 5 == 2 {
            let _ = writeln!(
                script,
                "CREATE UNLOGGED TABLE u_{seed}_{i} AS SELECT * FROM {table};\nVACUUM {table};"
            );
        }
        script
    })
}

/// WAL as fast as it goes, without waiting for it.
fn growth(seed: u32) -> impl Iterator<Item = String> {
    let settings = "SET synchronous_commit = off;\n".to_owned();
    let updates = (0_u32..).map(move |i| {
        let (part, length) = ((seed + i) % 10, (seed + i * 37) % 200);
        format!(
            "UPDATE wide SET fill = md5(fill || '{i}') || repeat('x', {length}) \
             WHERE id % 10 = {part};\n"
        )
    });
    std::iter::once(settings).chain(updates)
}

/// Checkpoints close together.
fn checkpoints(seed: u32) -> impl Iterator<Item = String> {
    (0_u32..).map(move |i| {
        let pause = 20 + (seed + i * 53) % 200;
        format!("SELECT pg_sleep({pause} / 1000.0) \\g /dev/null\nCHECKPOINT;\n")
    })
}

/// One database copied through WAL, one file by file.
fn databases(seed: u32) -> impl Iterator<Item = String> {
    ["wal_log", "file_copy"].into_iter().map(move |way| {
        format!("CREATE DATABASE d_{seed}_{way} STRATEGY {way};\n\\echo database d_{seed}_{way}\n")
    })
}

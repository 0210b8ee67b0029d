//! Questions to a running server: one psql that stays, asked through a pipe.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use crate::error::{Error, Result};
use crate::postgres::Programs;

/// No text of PostgreSQL's catalogs has these: between fields, between rows, after an answer.
const FIELD: char = '\u{1f}';
const ROW: char = '\u{1e}';
const END: u8 = 0x1d;

/// What counts more than the settings of a role or a database. Whoever may make functions in a
/// database must not have them called by a superuser, and texts end where we end them.
const OPTIONS: &str = "-c search_path= -c standard_conforming_strings=on -c \
                       client_min_messages=error";

/// Where a server listens, and as whom it is asked.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    /// A directory of sockets, or a host.
    pub(crate) host: PathBuf,
    pub(crate) port: u16,
    pub(crate) user: String,
}

impl Address {
    /// For libpq, with one more setting or none.
    pub(crate) fn conninfo(&self, more: &[(&str, &str)]) -> String {
        let port = self.port.to_string();
        let host = self.host.to_string_lossy();
        let own = [("host", &*host), ("port", &*port), ("user", &*self.user)];
        let all = own.iter().chain(more);
        let quoted = |value: &str| value.replace('\\', r"\\").replace('\'', r"\'");
        all.map(|(name, value)| format!("{name}='{}'", quoted(value))).collect::<Vec<_>>().join(" ")
    }
}

/// A psql that is connected.
pub(crate) struct Session {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Session {
    /// Connects; never asks for a password.
    ///
    /// # Errors
    /// [`Error::Tool`] with the server's reason; [`Error::Io`].
    pub(crate) fn open(programs: &Programs, address: &Address, database: &str) -> Result<Self> {
        let conninfo = address.conninfo(&[
            ("dbname", database),
            ("application_name", "tidelock migrate"),
            ("options", OPTIONS),
        ]);
        let mut command = programs.bare("psql")?;
        command
            .args(["-X", "-A", "-t", "-q", "-w", "-v", "ON_ERROR_STOP=1"])
            .args(["-F", &FIELD.to_string(), "-R", &ROW.to_string(), "-d", &conninfo])
            .env("LC_ALL", "C")
            .env("PGCLIENTENCODING", "UTF8")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let psql = || Path::new("psql");
        let mut child = command.spawn().map_err(Error::io("run", psql()))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = output.ok_or_else(|| broken(std::io::ErrorKind::BrokenPipe.into()))?;
        let mut session = Self { child, input, output: BufReader::new(output) };
        // What a role or database has set for its own sessions must not stop this one.
        session.ask(
            "SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; \
             SET synchronous_commit = local; SELECT 1",
        )?;
        Ok(session)
    }

    /// The rows that a statement answers.
    ///
    /// # Errors
    /// [`Error::Tool`] with the server's reason; [`Error::Io`].
    pub(crate) fn ask(&mut self, sql: &str) -> Result<Vec<Vec<String>>> {
        let text = format!("{sql}\n;\n\\echo '{}'\n", char::from(END));
        let sent = self
            .input
            .as_mut()
            .map(|input| input.write_all(text.as_bytes()).and_then(|()| input.flush()));
        let mut answer = Vec::new();
        self.output.read_until(END, &mut answer).map_err(broken)?;
        if answer.pop() != Some(END) || !matches!(sent, Some(Ok(()))) {
            return Err(self.failed());
        }
        // The end of the line behind the mark.
        self.output.read_until(b'\n', &mut Vec::new()).map_err(broken)?;
        let answer = String::from_utf8_lossy(&answer);
        let answer = answer.trim_end_matches('\n');
        if answer.is_empty() {
            return Ok(Vec::new());
        }
        let row = |row: &str| row.split(FIELD).map(str::to_owned).collect();
        Ok(answer.split(ROW).map(row).collect())
    }

    /// The one value that a statement answers; empty if it answers nothing.
    ///
    /// # Errors
    /// As [`Session::ask`].
    pub(crate) fn value(&mut self, sql: &str) -> Result<String> {
        let rows = self.ask(sql)?;
        Ok(rows.into_iter().flatten().next().unwrap_or_default())
    }

    /// psql has ended: what it said last.
    fn failed(&mut self) -> Error {
        self.input = None;
        let mut said = String::new();
        if let Some(stderr) = &mut self.child.stderr {
            let _ = stderr.read_to_string(&mut said);
        }
        let ended = self.child.wait().map_or_else(|why| why.to_string(), |it| it.to_string());
        let said = said.lines().map(str::trim).collect::<Vec<_>>().join("; ");
        Error::Tool { program: "psql".to_owned(), ended, said }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }
}

fn broken(why: std::io::Error) -> Error {
    Error::io("ask the server by", "psql")(why)
}

/// A string of SQL, in a [`Session`].
pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// A name of SQL.
pub(crate) fn name(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_backslashes_stay_in_their_value() {
        let address = Address { host: "/a b".into(), port: 5432, user: r"o'x\".into() };
        assert_eq!(address.conninfo(&[]), r"host='/a b' port='5432' user='o\'x\\'");
        assert_eq!(literal("a'b"), "'a''b'");
        assert_eq!(name("a\"b"), "\"a\"\"b\"");
    }
}

//! Workloads, one file each: what a trial does to a server, and what it got done.

pub(crate) mod billing;
pub(crate) mod cipher;
pub(crate) mod mysqlslap;
pub(crate) mod pace;
pub(crate) mod pgbench;
pub(crate) mod script;
pub(crate) mod sql;
pub(crate) mod sysbench;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tidelock_servers::{Output, Tool};

use crate::error::{Error, Result};

/// What a trial got done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Done {
    /// Transactions, rows or records.
    pub(crate) units: f64,
    /// Seconds of the work itself.
    pub(crate) seconds: f64,
    /// Metrics that only the workload knows.
    pub(crate) metrics: BTreeMap<String, f64>,
    /// Values over time.
    pub(crate) series: BTreeMap<String, Vec<(f64, f64)>>,
}

/// Runs a tool to its end; ends it, with all that it started, when the lab is interrupted and at
/// its limit.
///
/// # Errors
/// [`Error::Interrupted`]; what the tool said when it failed or took too long.
pub(crate) fn run(tool: Tool<'_>, stop: &AtomicBool) -> Result<Output> {
    let mut running = tool.spawn()?;
    while running.runs() {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Interrupted);
        }
        running.check_limit()?;
        thread::sleep(Duration::from_millis(5));
    }
    let output = running.wait()?;
    if stop.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    if output.status.success() {
        return Ok(output);
    }
    let (command, status) = (&output.command, output.status);
    Err(Error::Other(format!("{}\n  `{command}` ended with {status}", reason(&output))))
}

/// What a tool printed of its failure: its last lines, without its name before the first.
pub(crate) fn reason(output: &Output) -> String {
    let lines = output.stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines: Vec<&str> = lines.collect();
    let last = lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default();
    match last.join(" | ") {
        told if told.is_empty() => "it says nothing of why".into(),
        told => without_name(&told).to_owned(),
    }
}

/// Without the name of a program, and what it was reading: `psql: error: `, `psql:<stdin>:1: `.
fn without_name(told: &str) -> &str {
    let is_name = |word: &str| word.starts_with(|c: char| c.is_ascii_lowercase());
    match told.split_once(": ").filter(|(name, _)| is_name(name) && !name.contains(' ')) {
        Some((_, rest)) => rest.strip_prefix("error: ").unwrap_or(rest),
        None => told,
    }
}

/// Lines that tell why a tool failed.
const LINES: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use tidelock_servers::Workspace;

    #[test]
    fn a_reason_begins_with_what_the_server_said() {
        for (told, reason) in [
            ("psql: error: connection to server failed", "connection to server failed"),
            ("psql:<stdin>:1: ERROR:  must be owner", "ERROR:  must be owner"),
            ("FATAL:  no such database", "FATAL:  no such database"),
            ("it failed: why", "it failed: why"),
        ] {
            assert_eq!(without_name(told), reason);
        }
    }

    #[test]
    fn a_tool_that_hangs_ends_at_its_limit_with_its_name() {
        let place = Workspace::new().unwrap();
        let tool = place.tool("sleep").arg("600").limit(1);
        let error = run(tool, &AtomicBool::new(false)).unwrap_err().to_string();
        assert!(error.contains("sleep 600") && error.contains("within 1 s"), "{error}");
        let tool = place.tool("sleep").arg("600").limit(600);
        assert!(matches!(run(tool, &AtomicBool::new(true)), Err(Error::Interrupted)));
    }
}

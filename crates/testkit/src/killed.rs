//! Commands of several steps that are killed between two of them, and called again.

use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tidelock_servers::{Output, Process, Result, Running, Tool};

/// Kills the command alone once `reached` says so: what it has started goes on, as after any kill.
/// False if it ended before.
///
/// # Errors
/// When it cannot be killed, or runs too long.
pub fn kill_at(mut running: Running, reached: impl Fn() -> bool) -> Result<bool> {
    while running.runs() {
        if reached() {
            if let Some(process) = Process::new(i32::try_from(running.id()).unwrap_or(0)) {
                process.signal(Signal::KILL)?;
            }
            while running.runs() {
                thread::sleep(Duration::from_millis(1));
            }
            return Ok(true);
        }
        thread::sleep(Duration::from_millis(1));
        running.check_limit()?;
    }
    Ok(false)
}

/// Calls it until nothing that a killed call had started is at work: then the next one says so.
///
/// # Errors
/// When it cannot be started or runs too long.
pub fn again<'p>(tool: impl Fn() -> Result<Tool<'p>>) -> Result<Output> {
    let start = Instant::now();
    loop {
        let output = tool()?.attempt()?;
        let busy = !output.status.success() && output.stderr.contains("is at work");
        if !busy || start.elapsed() > Duration::from_secs(60) {
            return Ok(output);
        }
        thread::sleep(Duration::from_millis(100));
    }
}

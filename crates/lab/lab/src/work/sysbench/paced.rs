//! Slices by sysbench itself: its workers keep their connections and wait for the lab between two
//! transactions.
//!
//! ```text
//!   lab  -- number, at its moment -->  pipe `due`   -->  any worker: one event of the script
//!   lab  <-- number ----------------   pipe `done`  <--  when it has ended
//! ```
//!
//! Load is open, as in `pace`: a latency counts from the scheduled moment on.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use tidelock_servers::mysqld::Mysqld;
use tidelock_servers::{Running, Workspace};

use super::super::pace::Schedule;
use crate::error::{Error, Result};
use crate::experiment::Sysbench;

/// One sysbench that waits; it ends when this is dropped.
pub(crate) struct Paced {
    due: File,
    done: File,
    sysbench: Option<Running>,
}

impl Paced {
    /// Starts it.
    ///
    /// # Errors
    /// When its pipes cannot be made, or it does not start.
    pub(crate) fn open(
        mysqld: &Mysqld<'_>,
        work: &Sysbench,
        levels: &BTreeMap<String, String>,
        seed: u32,
    ) -> Result<Self> {
        let place = mysqld.workspace();
        let beside = place.make_dir(&format!("p-{}", mysqld.name()))?;
        let paths = ["due", "done"].map(|pipe| beside.join(pipe));
        // Writing must not wait for a reader that is gone.
        let due = pipe(place, &paths[0], OFlags::NONBLOCK)?;
        let done = pipe(place, &paths[1], OFlags::empty())?;
        let script = beside.join("paced.lua");
        place.write(&script, include_str!("paced.lua"))?;
        let tool = super::of(mysqld, work, levels, &script.display().to_string(), seed)?
            .args(["--time=0", "--events=0"])
            .env("TIDELOCK_LAB_SCRIPT", work.script.name())
            .env("TIDELOCK_LAB_DUE", &paths[0])
            .env("TIDELOCK_LAB_DONE", &paths[1]);
        let sysbench = Some(tool.arg("run").limit(DAY).spawn()?);
        Ok(Self { due, done, sysbench })
    }

    /// Runs a slice: milliseconds that each transaction took from its moment on.
    ///
    /// # Errors
    /// When sysbench ends, a transaction does not, or the lab is interrupted.
    pub(crate) fn slice(&mut self, schedule: &Schedule, stop: &AtomicBool) -> Result<Vec<f64>> {
        let (start, moments) = (Instant::now(), schedule.moments());
        let over = AtomicBool::new(false);
        let Self { due, done, sysbench } = self;
        let done = &*done;
        let due = &*due;
        thread::scope(|scope| {
            let sender = scope.spawn(|| send(due, moments, start, &over));
            let watcher = scope.spawn(|| watch(sysbench, done, stop, &over));
            let received = receive(done, moments, start);
            over.store(true, Ordering::Relaxed);
            sender.thread().unpark();
            watcher.thread().unpark();
            let broken = |_| Err(Error::Other("a thread of the lab ended early".into()));
            watcher.join().unwrap_or_else(broken)?;
            sender.join().unwrap_or_else(broken)?;
            received
        })
    }
}

/// Writes the number of each transaction at its moment.
fn send(mut due: &File, moments: &[Duration], start: Instant, over: &AtomicBool) -> Result<()> {
    for (number, moment) in (0_u64..).zip(moments) {
        // May wake before its time.
        while start.elapsed() < *moment && !over.load(Ordering::Relaxed) {
            thread::park_timeout(moment.saturating_sub(start.elapsed()));
        }
        while let Err(why) = due.write_all(&number.to_ne_bytes()) {
            if why.kind() != ErrorKind::WouldBlock {
                return Err(Error::io("writing to sysbench")(why));
            }
            if over.load(Ordering::Relaxed) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}

/// Reads the numbers of those that ended until all have, or until [`GIVE_UP`] comes.
fn receive(mut done: &File, moments: &[Duration], start: Instant) -> Result<Vec<f64>> {
    let (mut latencies, mut buffer) = (Vec::with_capacity(moments.len()), [0; 8 * 64]);
    while latencies.len() < moments.len() {
        let read = done.read(&mut buffer).map_err(Error::io("reading from sysbench"))?;
        let now = start.elapsed();
        for number in buffer[..read].as_chunks::<8>().0 {
            let number = u64::from_ne_bytes(*number);
            let moment = usize::try_from(number).ok().and_then(|number| moments.get(number));
            let Some(moment) = moment else {
                return Err(Error::Other(format!("sysbench gave up, or sent {number}")));
            };
            latencies.push(now.saturating_sub(*moment).as_secs_f64() * 1e3);
        }
    }
    Ok(latencies)
}

/// Looks after sysbench while somebody reads from it; ends the reading when there is no more.
fn watch(
    sysbench: &mut Option<Running>,
    mut done: &File,
    stop: &AtomicBool,
    over: &AtomicBool,
) -> Result<()> {
    let start = Instant::now();
    while !over.load(Ordering::Relaxed) {
        let why = if stop.load(Ordering::Relaxed) {
            Error::Interrupted
        } else if !sysbench.as_mut().is_some_and(Running::runs) {
            let told = sysbench.take().map(Running::wait).transpose()?;
            let told = told.map(|output| output.text()).unwrap_or_default();
            let told: Vec<&str> = told.lines().filter(|line| line.contains("FATAL")).collect();
            Error::Other(format!("sysbench ended: {}", told.join(" | ")))
        } else if start.elapsed() > LONGEST {
            Error::Other(format!("sysbench needs more than {} s for a slice", LONGEST.as_secs()))
        } else {
            thread::park_timeout(GLANCE);
            continue;
        };
        done.write_all(&GIVE_UP.to_ne_bytes()).map_err(Error::io("ending a slice"))?;
        return Err(why);
    }
    Ok(())
}

/// A named pipe of the servers' account. It is open for both, so that to open it waits for nobody.
fn pipe(place: &Workspace, path: &Path, flags: OFlags) -> Result<File> {
    let failed = || Error::io(format!("making the pipe {}", path.display()));
    // One of an earlier cell may be there.
    let _ = std::fs::remove_file(path);
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
        .map_err(|why| failed()(why.into()))?;
    place.account().give(path)?;
    let flags = flags.bits().cast_signed();
    OpenOptions::new().read(true).write(true).custom_flags(flags).open(path).map_err(failed())
}

/// No number of a transaction.
const GIVE_UP: u64 = u64::MAX;
/// How often sysbench is looked after.
const GLANCE: Duration = Duration::from_millis(50);
/// The longest slice: what waits in the queue of a slow server is worked off in it.
const LONGEST: Duration = Duration::from_secs(600);
/// Seconds for which it waits at most.
const DAY: u64 = 86_400;

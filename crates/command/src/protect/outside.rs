//! Who uses the files beside the server: programs that would meet sealed bytes, programs with keys,
//! and a server's log that lies in the directory.

use std::path::Path;

use procfs::process::{Process, all_processes};

use tidelock_contract::control::FOLDER;

use crate::error::{Error, Result};
use crate::running::Programs;
use crate::whereabouts::used_below;

/// Refuses while a program that is not the server's has a file of the directory open or mapped.
///
/// # Errors
/// [`Error::Refused`].
pub(super) fn refuse_readers(dir: &Path, server: Option<u32>) -> Result<()> {
    let me = std::process::id().cast_signed();
    let control = dir.join(FOLDER);
    for process in all_processes().into_iter().flatten().flatten() {
        if process.pid == me || is_the_servers(&process, server) {
            continue;
        }
        // The agent has its own there.
        let mut open = used_below(&process, dir).filter(|path| !path.starts_with(&control));
        if let Some(path) = open.next() {
            return Err(Error::refused(
                format!("{} has {} open or mapped", named(&process), path.display()),
                "end it: from outside the server the files are sealed bytes, and what it writes \
                 is lost",
            ));
        }
    }
    Ok(())
}

/// A process that the server, by its topmost process, has started, or is itself.
pub(super) fn is_the_servers(process: &Process, server: Option<u32>) -> bool {
    server.is_some_and(|server| is_below(process, server.cast_signed()))
}

/// Refuses while a program that is not the server's has keys of the directory: no conversion begins
/// beside it, though it may have no file open.
///
/// # Errors
/// [`Error::Refused`].
pub(super) fn refuse_programs(dir: &Path, server: Option<u32>) -> Result<()> {
    let server = server.map(u32::cast_signed);
    let heads = Programs::of(dir).heads().into_iter().filter_map(|pid| Process::new(pid).ok());
    // Also a shell that has started the server: it ends with it.
    let is_its_own = |one: &Process| {
        server.is_some_and(|server| {
            is_below(one, server) || Process::new(server).is_ok_and(|it| is_below(&it, one.pid))
        })
    };
    let mut others = heads.filter(|one| !is_its_own(one));
    match others.next() {
        None => Ok(()),
        Some(process) => Err(Error::refused(
            format!("{} has keys of {}", named(&process), dir.display()),
            "end it: no conversion begins while a program of `tidelock exec` runs",
        )),
    }
}

/// A shell has opened the log of `pg_ctl -l DIR/log`, plain.
///
/// # Errors
/// [`Error::Refused`].
pub(super) fn refuse_log_inside(dir: &Path, server: u32) -> Result<()> {
    for number in [1, 2] {
        let Ok(path) = std::fs::read_link(format!("/proc/{server}/fd/{number}")) else { continue };
        if path.starts_with(dir) && path.is_file() {
            return Err(Error::refused(
                format!(
                    "the server writes its log to {}, which a shell has opened",
                    path.display()
                ),
                "start it with a log outside of the directory, or with logging_collector = on, \
                 which has it sealed",
            ));
        }
    }
    Ok(())
}

/// `bash (process 17)`
fn named(process: &Process) -> String {
    let name = process.stat().map(|stat| stat.comm).unwrap_or_default();
    format!("{name} (process {})", process.pid)
}

/// The process itself, a child of it, or a child's child.
fn is_below(process: &Process, server: i32) -> bool {
    let mut above = process.stat().ok();
    for _ in 0..GENERATIONS {
        match above {
            Some(found) if found.pid == server => return true,
            Some(found) => above = Process::new(found.ppid).and_then(|it| it.stat()).ok(),
            None => break,
        }
    }
    false
}

/// A wrapper, its helper or server, and what that has started.
const GENERATIONS: u32 = 4;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_program_that_follows_a_file_is_named() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().canonicalize().unwrap();
        fs::write(dir.join("log"), "line\n").unwrap();
        refuse_readers(&dir, None).unwrap();
        let mut tail = Command::new("tail");
        let tail = tail.arg("-f").arg(dir.join("log")).stdout(Stdio::piped());
        let mut child = tail.spawn().unwrap();
        // It has printed the line, and so has the file open.
        child.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
        let found = refuse_readers(&dir, None).unwrap_err().to_string();
        let own = refuse_readers(&dir, Some(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found.contains("tail") && found.contains("log"), "{found}");
        own.unwrap();
    }
}

//! An archive behind a command: an object store, another machine.
//!
//! The command gets a sealed stream on its standard input, or gives one back on its standard
//! output. The end of a stream is authenticated, so whatever the command cuts off or changes is
//! told before the server gets the file.

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use procfs::process::Process;
use rustix::process::{Pid, Signal, kill_process_group};
use signal_hook::consts::{SIGINT, SIGQUIT, SIGTERM};
use signal_hook::low_level::{emulate_default_handler, pipe as signal_pipe};
use tidelock_format::{END_LEN, Form, PlainSize};

use crate::error::{Error, Result};
use crate::pipe;
use crate::sealed::{Keys, Mac};
use crate::wal::fresh::Fresh;
use crate::wal::name::WalName;
use crate::wal::place::Want;
use crate::wal::segment;
use crate::wal::source::{Reader, Source};

/// Names the file for the command.
const VARIABLE: &str = "TIDELOCK_WAL";
/// How long the stream is that it gets.
const BYTES: &str = "TIDELOCK_WAL_BYTES";
/// No segment has more than 1 GiB, nor a stream much more than that.
const MOST: u64 = (1 << 30) + (16 << 20);

/// The group of the command that is at work.
static AT_WORK: Mutex<Option<Pid>> = Mutex::new(None);
static WATCHED: AtomicBool = AtomicBool::new(false);

/// Sends a file; the command must have kept all of it when it ends with 0.
///
/// # Errors
/// The command fails; what is wrong with the source.
pub(super) fn put(command: &str, name: &WalName, source: &mut Source, keys: &Keys) -> Result<()> {
    let bytes = PlainSize(source.size()).on_disk(keys.layout).0 + END_LEN as u64;
    let mut shell = shell(command, name);
    shell.env(BYTES, bytes.to_string()).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut carrier = Carrier::start(shell)?;
    let mut reader = Reader::new(source);
    let mut input = carrier.child.stdin.take();
    let sent = match &mut input {
        Some(input) => pipe::seal_stream(&mut reader, keys, input)
            .and_then(|()| input.flush().map_err(Error::io("write to", command))),
        None => Ok(()),
    };
    let failure = reader.failure.take();
    // A command that reads no more tells by its code why.
    let is_ours = |why: &Error| !why.is(io::ErrorKind::BrokenPipe);
    let broken = failure.is_some() || sent.as_ref().is_err_and(is_ours);
    if broken {
        // What it has got is no file, and the end of its input would say that it is one.
        carrier.kill();
    }
    drop(input);
    let ended = carrier.wait(command)?;
    match (failure, broken || ended.success()) {
        (Some(why), _) => Err(why),
        (None, true) => sent,
        (None, false) => Err(failed(command, name, ended)),
    }
}

/// Fetches a file into `fresh`, as `want` says; false if the command gives nothing and ends with
/// the code `not_there`. What comes is proven once this returns.
///
/// # Errors
/// The command fails; the stream is cut, changed, or not what its name says.
pub(super) fn get(
    command: &str,
    not_there: u8,
    name: &WalName,
    keys: &Keys,
    (fresh, want): (&mut Fresh, Want<'_>),
) -> Result<bool> {
    let mut filling = fresh.begin(want, Mac::Header)?;
    let mut shell = shell(command, name);
    shell.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut carrier = Carrier::start(shell)?;
    let mut output = Noticed { output: carrier.child.stdout.take(), came: false, left: MOST };
    let unsealed = pipe::unseal(&mut output, keys, &mut filling);
    // If we went away before the end, `cat FILE || exit 1` would end as if there were no file.
    let rest = io::copy(&mut output, &mut io::sink());
    if output.left == 0 || rest.is_err() {
        carrier.kill();
    }
    let came = output.came;
    drop(output);
    let ended = carrier.wait(command)?;
    if let Some(why) = filling.failure.take() {
        return Err(why);
    }
    if !came && not_there != 0 && ended.code() == Some(not_there.into()) {
        return Ok(false);
    }
    let form = match unsealed {
        Err(why) if came => return Err(about(name, why)),
        _ if !ended.success() => return Err(failed(command, name, ended)),
        unsealed => unsealed.map_err(|why| about(name, why))?,
    };
    let (head, size) = filling.finish()?;
    if form == Form::File {
        return Err(bad(name, "it has no mark at its end"));
    }
    segment::check(name, &head, size).map_err(|why| bad(name, &why.to_string()))?;
    Ok(true)
}

/// What a command gives: whether anything came, and no more than a file can have.
struct Noticed {
    output: Option<ChildStdout>,
    came: bool,
    left: u64,
}

impl io::Read for Noticed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let room = usize::try_from(self.left).unwrap_or(usize::MAX).min(into.len());
        let (Some(output), Some(into)) = (&mut self.output, into.get_mut(..room)) else {
            return Ok(0);
        };
        let count = output.read(into)?;
        self.came |= count > 0;
        self.left = self.left.saturating_sub(count as u64);
        Ok(count)
    }
}

fn about(name: &WalName, why: Error) -> Error {
    match why {
        Error::Verification { what, .. } | Error::Refused { what, .. } => bad(name, &what),
        other => other,
    }
}

fn bad(name: &WalName, why: &str) -> Error {
    Error::Verification {
        what: format!("{name}: {why}"),
        hint: "use another copy; only what `tidelock wal put --through` sent can be restored"
            .to_owned(),
    }
}

/// By the shell, as PostgreSQL runs its own commands.
fn shell(command: &str, name: &WalName) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).env(VARIABLE, name.as_str()).env_remove(BYTES);
    shell
}

/// A command that runs, in a process group of its own: it ends as a whole, pipelines too.
struct Carrier {
    child: Child,
}

impl Carrier {
    fn start(mut shell: Command) -> Result<Self> {
        watch().map_err(Error::io("watch for", "signals"))?;
        // A signal that comes now waits until there is something to end.
        let mut at_work = at_work();
        let child = shell.process_group(0).spawn().map_err(Error::io("run", "sh"))?;
        *at_work = Some(Pid::from_child(&child));
        Ok(Self { child })
    }

    /// Ends all of its processes.
    fn kill(&self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
    }

    fn wait(mut self, command: &str) -> Result<ExitStatus> {
        let ended = self.child.wait().map_err(Error::io("wait for", command));
        *at_work() = None;
        ended
    }
}

fn at_work() -> MutexGuard<'static, Option<Pid>> {
    AT_WORK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has a signal that ends us end the command first, which would take the end of its input for the
/// end of the file.
fn watch() -> io::Result<()> {
    if WATCHED.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    // The server has some of them ignored.
    let ignored = Process::myself().and_then(|me| me.status()).map_or(0, |status| status.sigign);
    for signal in [SIGINT, SIGQUIT, SIGTERM] {
        if (ignored >> (signal - 1)) & 1 == 1 {
            continue;
        }
        let (mut told, wake) = UnixStream::pair()?;
        signal_pipe::register(signal, wake)?;
        thread::spawn(move || {
            if !matches!(told.read(&mut [0]), Ok(1)) {
                return;
            }
            let at_work = at_work();
            if let Some(group) = *at_work {
                let _ = kill_process_group(group, Signal::KILL);
            }
            // Ends us while the lock is held: no other command begins.
            let _ = emulate_default_handler(signal);
        });
    }
    Ok(())
}

fn failed(command: &str, name: &WalName, ended: ExitStatus) -> Error {
    Error::refused(
        format!("the command for {name} failed ({ended}): {command}"),
        "it must end with 0 once it has done its work; see what it says above",
    )
}

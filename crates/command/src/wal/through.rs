//! An archive behind a command: an object store, another machine.
//!
//! The command gets a sealed stream on its standard input, or gives one back on its standard
//! output. The end of a stream is authenticated, so whatever the command cuts off or changes is
//! told before the server gets the file.

use std::io::Write as _;
use std::process::{Child, Command, ExitStatus, Stdio};

use tidelock_format::Form;

use crate::error::{Error, Result};
use crate::pipe;
use crate::sealed::Keys;
use crate::wal::fresh::Fresh;
use crate::wal::name::WalName;
use crate::wal::place::Want;
use crate::wal::segment;
use crate::wal::source::{Reader, Source};

/// Names the file for the command.
const VARIABLE: &str = "TIDELOCK_WAL";

/// Sends a file; the command must have kept all of it when it ends with 0.
///
/// # Errors
/// The command fails; what is wrong with the source.
pub(super) fn put(command: &str, name: &WalName, source: &mut Source, keys: &Keys) -> Result<()> {
    let mut child = start(command, name, Stdio::piped(), Stdio::null())?;
    let mut reader = Reader::new(source);
    let sent = match child.stdin.take() {
        Some(mut input) => pipe::seal_stream(&mut reader, keys, &mut input)
            .and_then(|()| input.flush().map_err(Error::io("write to", command))),
        None => Ok(()),
    };
    let failure = reader.failure.take();
    if failure.is_some() {
        // What it has got is no file: it must not keep it.
        let _ = child.kill();
    }
    let ended = wait(&mut child, command)?;
    match (failure, ended.success()) {
        (Some(why), _) => Err(why),
        (None, true) => sent,
        (None, false) => Err(failed(command, name, ended)),
    }
}

/// Fetches a file into `fresh`, as `want` says; false if the command ends with the code
/// `not_there`. What comes is proven once this returns.
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
    let mut child = start(command, name, Stdio::null(), Stdio::piped())?;
    let mut filling = fresh.begin(want, false)?;
    let form = match child.stdout.take() {
        Some(mut output) => pipe::unseal(&mut output, keys, &mut filling),
        None => Ok(Form::File),
    };
    let ended = wait(&mut child, command)?;
    if ended.code() == Some(not_there.into()) && not_there != 0 {
        return Ok(false);
    }
    if let Some(why) = filling.failure.take() {
        return Err(why);
    }
    if !ended.success() {
        return Err(failed(command, name, ended));
    }
    let form = form.map_err(|why| about(name, why))?;
    let (head, size) = filling.finish()?;
    if form == Form::File {
        return Err(bad(name, "it has no mark at its end"));
    }
    segment::check(name, &head, size).map_err(|why| bad(name, &why.to_string()))?;
    Ok(true)
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
fn start(command: &str, name: &WalName, input: Stdio, output: Stdio) -> Result<Child> {
    Command::new("sh")
        .args(["-c", command])
        .env(VARIABLE, name.as_str())
        .stdin(input)
        .stdout(output)
        .spawn()
        .map_err(Error::io("run", "sh"))
}

fn wait(child: &mut Child, command: &str) -> Result<ExitStatus> {
    child.wait().map_err(Error::io("wait for", command))
}

fn failed(command: &str, name: &WalName, ended: ExitStatus) -> Error {
    Error::refused(
        format!("the command for {name} failed ({ended}): {command}"),
        "it must end with 0 once it has done its work; see what it says above",
    )
}

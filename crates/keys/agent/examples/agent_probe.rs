//! What the agent's tests run under several names: agent, starter, listed program and stranger.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use tidelock_agent::server::Options;
use tidelock_agent::spawn::{self, AgentCommand};
use tidelock_agent::{Error, Primitives, RunDir, client};
use tidelock_keyring::KeyringDir;
use tidelock_providers::FileProvider;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["agent", "detach"] => spawn::detach(&AgentCommand::this_program()),
        ["agent", "serve"] => spawn::serve(Primitives::default(), |_, _| Vec::new()),
        ["start", dir, key, run_dir, grace, linger, writable] => {
            start(dir, key, run_dir, [grace, linger], *writable == "writable")
        }
        ["keys", socket] => keys(socket, false),
        ["hold", socket] => keys(socket, true),
        ["visit", socket] => keys(socket, false).map(|()| wait()),
        ["allow", socket, program] => connected(socket, |it| it.allow(Path::new(program))),
        ["become", socket, program, rest @ ..] => become_program(socket, program, rest),
        ["spawn", program, rest @ ..] => {
            let status = std::process::Command::new(program).args(rest).status();
            let code = status.expect("it starts").code().unwrap_or(1);
            return ExitCode::from(u8::try_from(code).unwrap_or(1));
        }
        ["status", socket] => connected(socket, |it| {
            let status = it.status()?;
            println!("pid {}", status.pid);
            println!("directory {}", status.directory.display());
            for client in status.clients {
                println!("client {} {}", client.pid, client.program.display());
            }
            Ok(())
        }),
        _ => panic!("what is {words:?}?"),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("error: {why}\nhint: {}", why.hint());
            ExitCode::from(why.exit_class() as u8)
        }
    }
}

fn start(
    dir: &str,
    key: &str,
    run_dir: &str,
    [grace, linger]: [&str; 2],
    writable: bool,
) -> Result<(), Error> {
    let millis = |text: &str| Duration::from_millis(text.parse().expect("milliseconds"));
    let keyring =
        KeyringDir::open(Path::new(dir))?.read()?.unlock(&FileProvider { path: key.into() })?;
    let mut options = Options::new(RunDir::at(Path::new(run_dir))?);
    options.grace = millis(grace);
    options.linger = millis(linger);
    options.allow_writable_programs = writable;
    let command = AgentCommand::this_program();
    let socket = spawn::start(&keyring, Path::new(dir), &options, &command)?;
    println!("{}", socket.display());
    Ok(())
}

fn keys(socket: &str, hold: bool) -> Result<(), Error> {
    connected(socket, |connection| {
        let grant = connection.keys()?;
        println!("directory {}", grant.directory.display());
        println!("keys {}", grant.keys.len());
        if hold {
            wait();
        }
        Ok(())
    })
}

/// Until the test closes the pipe.
fn wait() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// What `tidelock exec` does.
fn become_program(socket: &str, program: &str, rest: &[&str]) -> Result<(), Error> {
    use std::os::unix::process::CommandExt;
    connected(socket, |it| it.allow(Path::new(program)))?;
    panic!("{}", std::process::Command::new(program).args(rest).exec());
}

fn connected(
    socket: &str,
    then: impl FnOnce(&client::Connection) -> Result<(), Error>,
) -> Result<(), Error> {
    match client::connect(&PathBuf::from(socket))? {
        Some(connection) => then(&connection),
        None => {
            println!("nobody");
            Ok(())
        }
    }
}

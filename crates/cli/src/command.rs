//! What can be typed.

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};

use crate::agent::AgentRole;
use crate::audit::AuditCommand;
use crate::cat::Cat;
use crate::console;
use crate::documents::{Completions, Man};
use crate::error::{self, Error, Result};
use crate::exec::Exec;
use crate::init::Init;
use crate::inspect::Inspect;
use crate::key::KeyCommand;
use crate::keyring::KeyringCommand;
use crate::lab::LabCommand;
use crate::pipe::{Seal, Unseal};
use crate::profile::ProfileCommand;
use crate::service::ServiceCommand;
use crate::status::Status;
use crate::verify::Verify;

/// Transparent encryption for databases: seals every file of a directory, for unmodified servers.
#[derive(Parser)]
#[command(name = "tidelock", version, disable_help_subcommand = true)]
#[command(after_help = "Exit codes: 0 done, 1 failure, 2 usage, 3 refused, 4 key or provider, \
                        5 verification, 6 partly done, 7 cannot be told, 130 interrupted.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Init(Init),
    Exec(Exec),
    Status(Status),
    Verify(Verify),
    Inspect(Inspect),
    Cat(Cat),
    Seal(Seal),
    Unseal(Unseal),
    #[command(subcommand)]
    Key(KeyCommand),
    #[command(subcommand)]
    Keyring(KeyringCommand),
    #[command(subcommand)]
    Profile(ProfileCommand),
    #[command(subcommand)]
    Service(ServiceCommand),
    #[command(subcommand)]
    Audit(AuditCommand),
    #[command(subcommand)]
    Lab(LabCommand),
    Completions(Completions),
    Man(Man),
    #[command(subcommand, hide = true)]
    Agent(AgentRole),
}

impl Cli {
    /// Does it; the code that the process ends with.
    ///
    /// # Errors
    /// What went wrong.
    pub(crate) fn run(self) -> Result<ExitCode> {
        let done = |()| ExitCode::SUCCESS;
        match self.command {
            Command::Init(init) => init.run().map(done),
            Command::Exec(exec) => exec.run().map(|never| match never {}),
            Command::Status(status) => status.run(),
            Command::Seal(seal) => seal.run().map(done),
            Command::Unseal(unseal) => unseal.run().map(done),
            Command::Verify(verify) => verify.run(),
            Command::Cat(cat) => cat.run().map(done),
            Command::Inspect(inspect) => inspect.run().map(done),
            Command::Key(key) => key.run(),
            Command::Keyring(keyring) => keyring.run().map(done),
            Command::Profile(profile) => profile.run().map(done),
            Command::Service(service) => service.run().map(done),
            Command::Audit(audit) => audit.run().map(done),
            Command::Lab(lab) => lab.run(),
            Command::Completions(completions) => completions.run().map(done),
            Command::Man(man) => man.run().map(done),
            Command::Agent(role) => role.run().map(done),
        }
    }
}

/// Reads the command line, or says in two lines why not.
pub(crate) fn parse() -> std::result::Result<Cli, ExitCode> {
    Cli::try_parse().map_err(|why| match why.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = why.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = why.print();
            ExitCode::from(error::USAGE)
        }
        _ => {
            console::report(&usage(&why));
            ExitCode::from(error::USAGE)
        }
    })
}

/// The parser's several paragraphs as an error and a hint.
fn usage(why: &clap::Error) -> Error {
    let text = why.render().to_string();
    let part = |label: &str| {
        let from = text.split_once(label)?.1;
        Some(from.split("\n\n").next().unwrap_or(from).trim().to_owned())
    };
    let what = part("error:").unwrap_or_else(|| text.clone());
    let hint = part("tip:").or_else(|| part("Usage:").map(|usage| format!("usage: {usage}")));
    Error::usage(what, hint.unwrap_or_else(help))
}

/// Which help to read: that of the command that was typed, if it is one.
fn help() -> String {
    let typed = std::env::args().nth(1).unwrap_or_default();
    match Cli::command().find_subcommand(&typed) {
        Some(found) => format!("see `tidelock {} --help`", found.get_name()),
        None => "see `tidelock --help`".to_owned(),
    }
}

//! What can be typed.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tidelock_console::{Completions, Man};

use crate::agent::AgentRole;
use crate::audit::AuditCommand;
use crate::cat::Cat;
use crate::convert::{Decrypt, Encrypt, Rekey};
use crate::error::Result;
use crate::exec::Exec;
use crate::init::Init;
use crate::inspect::Inspect;
use crate::key::KeyCommand;
use crate::keyring::KeyringCommand;
use crate::migrate::Migrate;
use crate::pipe::{Seal, Unseal};
use crate::profile::ProfileCommand;
use crate::protect::{Protect, Unprotect};
use crate::report::Report;
use crate::service::ServiceCommand;
use crate::status::Status;
use crate::verify::Verify;
use crate::wal::WalCommand;

/// Transparent encryption for databases: seals every file of a directory, for unmodified servers.
#[derive(Parser)]
#[command(name = "tidelock", version, disable_help_subcommand = true)]
#[command(after_help = "Exit codes: 0 done, 1 failure, 2 usage, 3 refused, 4 key or provider, \
                        5 verification, 6 partly done, 7 undecided, 130 interrupted.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Init(Init),
    Encrypt(Encrypt),
    Decrypt(Decrypt),
    Rekey(Rekey),
    Exec(Exec),
    Status(Status),
    Verify(Verify),
    Report(Report),
    Inspect(Inspect),
    Cat(Cat),
    Protect(Protect),
    Unprotect(Unprotect),
    Migrate(Migrate),
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
    Wal(WalCommand),
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
            Command::Encrypt(encrypt) => encrypt.run().map(done),
            Command::Decrypt(decrypt) => decrypt.run().map(done),
            Command::Rekey(rekey) => rekey.run().map(done),
            Command::Exec(exec) => exec.run(),
            Command::Status(status) => status.run(),
            Command::Seal(seal) => seal.run().map(done),
            Command::Unseal(unseal) => unseal.run().map(done),
            Command::Verify(verify) => verify.run(),
            Command::Report(report) => report.run(),
            Command::Cat(cat) => cat.run().map(done),
            Command::Protect(protect) => protect.run().map(done),
            Command::Unprotect(unprotect) => unprotect.run().map(done),
            Command::Migrate(migrate) => migrate.run().map(done),
            Command::Inspect(inspect) => inspect.run().map(done),
            Command::Key(key) => key.run(),
            Command::Keyring(keyring) => keyring.run().map(done),
            Command::Profile(profile) => profile.run().map(done),
            Command::Service(service) => service.run().map(done),
            Command::Audit(audit) => audit.run().map(done),
            Command::Wal(wal) => wal.run(),
            Command::Completions(completions) => Ok(completions.run::<Self>().map(done)?),
            Command::Man(man) => Ok(man.run::<Self>().map(done)?),
            Command::Agent(role) => role.run().map(done),
        }
    }
}

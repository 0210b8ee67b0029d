//! The keys of a directory for one segment: from the agent that is alive, else from a provider.
//!
//! A server archives a segment every few seconds, and a key service must not be asked each time. So
//! whoever had to ask leaves an agent behind, which stays as long as the server that it was for.

use std::ffi::OsStr;
use std::fs;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use tidelock_agent::server::Options;
use tidelock_agent::spawn::{self, AgentCommand};
use tidelock_agent::{RunDir, client};
use tidelock_contract::Policy;
use tidelock_contract::wire::Grant;
use tidelock_keyring::Conversion;
use tidelock_providers::Config;

use crate::audit::trail;
use crate::console;
use crate::error::Result;
use crate::owner::Owner;
use crate::protected::Protected;
use crate::sealed::Keys;
use crate::unlock::{self, KeyOptions};

/// The keys of a directory, and which of its files are sealed.
pub(super) struct Unlocked {
    pub(super) keys: Keys,
    pub(super) policy: Policy,
    /// What the directory is being made into.
    pub(super) conversion: Option<Conversion>,
}

/// Unlocks a directory; `server` is the process that an agent is to stay for. Providers that want a
/// terminal are asked only if there is one, or the command line names them.
///
/// # Errors
/// [`Error::Locked`](crate::error::Error::Locked).
pub(super) fn unlock(
    protected: &Protected,
    named: Option<&KeyOptions>,
    server: Option<i32>,
) -> Result<Unlocked> {
    let named = named.filter(|named| named.is_used());
    if named.is_none()
        && let Some(grant) = sockets(protected).find_map(|socket| ask(socket, protected))
    {
        // No agent serves a directory that is half converted.
        let (keys, policy) = (Keys::of_grant(&grant)?, grant.policy);
        return Ok(Unlocked { keys, policy, conversion: None });
    }
    let by_default = KeyOptions::default();
    let keys = named.unwrap_or(&by_default);
    let config = keys.to_open(&protected.keyring, &protected.path, protected.owner)?;
    let keyring = match named {
        Some(named) => named.unlock(protected)?,
        None if std::io::stdin().is_terminal() => by_default.unlock(protected)?,
        None => unlock::unattended(protected, &config)?,
    };
    if let Some(server) = server
        && let Err(why) = leave_agent(protected, &keyring, &config, server)
    {
        console::warn(
            format!(
                "no agent could be left behind, so the next file asks the provider again: {why}"
            ),
            why.hint(),
        );
    }
    let (keys, policy) = (Keys::install(&keyring)?, keyring.policy().clone());
    Ok(Unlocked { keys, policy, conversion: keyring.conversion() })
}

/// Where an agent may listen: where the server was told, the caller's place, the owner's.
fn sockets(protected: &Protected) -> impl Iterator<Item = PathBuf> {
    let name = format!("{}.sock", protected.keyring.id());
    let told = std::env::var_os("TIDELOCK_AGENT").unwrap_or_default();
    let told = told.as_bytes().split(|byte| *byte == b':').filter(|path| path.starts_with(b"/"));
    // A unit's socket is a link by another name.
    let told = told.filter_map(|path| fs::canonicalize(OsStr::from_bytes(path)).ok());
    let mut all: Vec<PathBuf> = told.filter(|path| path.ends_with(&name)).collect();
    all.extend(RunDir::choose().ok().map(|place| place.path().join(&name)));
    if let Ok(owner) = Owner::of(&protected.path) {
        all.push(format!("/run/tidelock/{}/{name}", owner.uid).into());
    }
    all.dedup();
    all.into_iter()
}

/// What the agent there gives, unless its keyring is older than that on the disk.
fn ask(socket: PathBuf, protected: &Protected) -> Option<Grant> {
    let grant = client::connect(&socket).ok()??.keys().ok()?;
    let ours = grant.keyring == protected.keyring.id();
    (ours && grant.generation >= protected.keyring.generation()).then_some(grant)
}

fn leave_agent(
    protected: &Protected,
    keyring: &tidelock_keyring::Keyring,
    config: &Config,
    server: i32,
) -> Result<()> {
    // An agent of root's would not be asked by the server.
    if Owner::of(&protected.path)?.uid != Owner::caller().uid {
        return Ok(());
    }
    let mut options = Options::new(RunDir::choose()?);
    options.log = Some(trail::log(&protected.keyring, &protected.path, config)?);
    options.allow_writable_programs = config.allow_writable_programs;
    options.core_dumps = config.core_dumps;
    options.accompany = vec![server];
    let socket = options.run_dir.socket(protected.keyring.id());
    match client::connect(&socket)? {
        // It was not asked, or did not give: its keyring is older than that on the disk.
        Some(agent) => agent.reload(keyring.keyring_key()).map(drop)?,
        None => {
            spawn::start(keyring, &protected.path, &options, &AgentCommand::this_program())?;
        }
    }
    Ok(())
}

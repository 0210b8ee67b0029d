//! From nothing to a standby that follows: keys, slot, base backup, its check, the private start.

use std::fs;
use std::io::IsTerminal;
use std::path::Path;
use std::process::Stdio;

use crate::console;
use crate::error::{Error, Result};
use crate::init::{self, Making, NewDirectory};
use crate::migrate::record::Record;
use crate::migrate::source::Source;
use crate::owner::Owner;
use crate::postgres::{Instance, Programs, Running};
use crate::protected::is_protected;
use crate::run_as::run;

/// pg_basebackup gives it this name last, when all is written and synced.
const MANIFEST: &str = "backup_manifest";

/// The new directory, which may get keys.
///
/// # Errors
/// As `tidelock init`.
pub(super) fn place(record: &Record, owner: Owner) -> Result<NewDirectory> {
    let another = owner.uid != Owner::caller().uid;
    NewDirectory::check(&record.to, another.then_some(owner))
}

/// A keyring, unless it has one; a protected directory that the caller has made is taken as it is.
///
/// # Errors
/// As `tidelock init`.
pub(super) fn keys(record: &Record, making: &Making, owner: Owner) -> Result<()> {
    if record.plain || is_protected(&record.to) {
        return Ok(());
    }
    let _alone = init::lock(&record.to)?;
    let made = making.make(&place(record, owner)?, "postgres", None)?;
    made.tell("a second copy of the keyring:")
}

/// The slot, which keeps the WAL that the copy still needs.
///
/// # Errors
/// [`Error::Tool`]; [`Error::Refused`] if the source has thrown that WAL away.
pub(super) fn slot(source: &mut Source, record: &Record) -> Result<()> {
    let name = &record.slot;
    let state = source.session.value(&format!(
        "SELECT coalesce(wal_status, 'reserved') FROM pg_replication_slots \
         WHERE slot_name = '{name}'"
    ))?;
    match &*state {
        "" => {
            let make = format!("SELECT pg_create_physical_replication_slot('{name}', true)");
            source.session.value(&make).map(drop)
        }
        "lost" => Err(Error::refused(
            format!("the source has removed WAL that the slot {name} needs"),
            "raise max_slot_wal_keep_size at the source, then begin again: --abort",
        )),
        _ => Ok(()),
    }
}

/// A whole base backup in the new directory. One that was cut off is removed and made again.
///
/// # Errors
/// [`Error::Tool`].
pub(super) fn base_backup(source: &Source, record: &Record, rate: Option<&str>) -> Result<()> {
    if record.to.join(MANIFEST).exists() {
        return console::print("base backup   is there already\n");
    }
    clear(&source.instance.programs, record)?;
    let mut command = source.instance.programs.on(&record.to, "pg_basebackup")?;
    let name = ("application_name", &*record.slot);
    command.arg("-D").arg(&record.to).args(["-d", &source.address.conninfo(&[name])]).args([
        "-Fp",
        "-R",
        "-w",
        "-X",
        "stream",
        "-c",
        "fast",
        "-S",
        &record.slot,
    ]);
    for (old, new) in &record.tablespaces {
        let mut mapping = escaped(old);
        mapping.push('=');
        mapping.push_str(&escaped(new));
        command.args(["-T", &mapping]);
    }
    if let Some(waldir) = &record.waldir {
        command.arg("--waldir").arg(waldir);
    }
    if let Some(rate) = rate {
        command.args(["-r", rate]);
    }
    if std::io::stderr().is_terminal() {
        command.arg("-P").stderr(Stdio::inherit());
    }
    run(command).map(drop)
}

/// pg_basebackup takes `\=` for a sign in a path.
fn escaped(path: &Path) -> String {
    path.to_string_lossy().replace('=', "\\=")
}

/// Throws away what an interrupted copy has left; as the owner, since the directory is the owner's.
fn clear(programs: &Programs, record: &Record) -> Result<()> {
    for dir in record.filled() {
        let is_empty = fs::read_dir(&dir)
            .map_or(true, |entries| entries.flatten().all(|it| it.file_name() == ".tidelock"));
        if is_empty {
            continue;
        }
        if !dir.is_absolute() {
            let what = format!("{} is no absolute path: where it leads is unknown", dir.display());
            return Err(Error::refused(what, "--abort, then begin again with the absolute path"));
        }
        let mut command = programs.run_as().program(Path::new("find"))?;
        command
            .arg(&dir)
            .args(["-mindepth", "1", "-maxdepth", "1", "!", "-name", ".tidelock"])
            .args(["-exec", "rm", "-rf", "--", "{}", "+"]);
        run(command)?;
    }
    Ok(())
}

/// Reads the whole copy through the new directory's keys, and compares it with what the source has
/// sent.
///
/// # Errors
/// [`Error::Tool`] if a file differs.
pub(super) fn verify_backup(programs: &Programs, record: &Record) -> Result<()> {
    let mut command = programs.on(&record.to, "pg_verifybackup")?;
    // The WAL of the copy is checked by its replay.
    command.args(["-q", "-n"]).arg(&record.to);
    run(command).map(drop)
}

/// Starts the standby where nobody but its owner finds it: no address, a socket in its directory.
///
/// # Errors
/// [`Error::Tool`].
pub(super) fn start_private(target: &Instance, record: &Record) -> Result<()> {
    if Running::on(&target.dir).is_some() {
        return Ok(());
    }
    let private = Instance { cluster: None, ..target.clone() };
    private.start(&private_options(record), &record.log())
}

/// Over all that the configuration says of places.
fn private_options(record: &Record) -> Vec<String> {
    let mut all: Vec<(String, String)> = [
        ("listen_addresses", ""),
        ("unix_socket_directories", "."),
        ("unix_socket_permissions", "0700"),
        ("ssl", "off"),
        ("external_pid_file", ""),
        ("logging_collector", "off"),
        ("log_destination", "stderr"),
        ("hot_standby", "on"),
        // A count may take long, and nobody else reads here.
        ("max_standby_streaming_delay", "-1"),
        ("max_standby_archive_delay", "-1"),
        ("synchronous_standby_names", ""),
        // What the source runs as a standby is meant for its own archive.
        ("restore_command", ""),
        ("archive_cleanup_command", ""),
        ("recovery_end_command", ""),
        ("recovery_min_apply_delay", "0"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .to_vec();
    all.push(("port".to_owned(), record.port.to_string()));
    all.push(("data_directory".to_owned(), record.to.display().to_string()));
    if let Some(config) = &record.config {
        all.push(("config_file".to_owned(), config.display().to_string()));
    }
    all.extend(record.at_least.iter().cloned());
    all.into_iter().flat_map(|(name, value)| ["-c".to_owned(), format!("{name}={value}")]).collect()
}

//! The switchover: the source stops, the standby has all of it, and takes its place.
//!
//! ```text
//!   stop the source --> its last checkpoint is replayed? --no--> start the source again
//!        |                        | yes
//!        |              source cannot be started any more (pg_control is moved aside)
//!        |                        |
//!   downtime            promote, still without clients --> configuration, service --> start
//! ```
//!
//! Each step finds out whether it is done. Before the promotion the source still has everything.

use std::fs;
use std::path::{Path, PathBuf};

use crate::begun::beside;
use crate::console;
use crate::error::{Error, Result};
use crate::migrate::copy;
use crate::migrate::record::{self, Record, Stage};
use crate::migrate::source::not_archived;
use crate::migrate::standby::{self, lsn};
use crate::owner::Owner;
use crate::postgres::{Cluster, Instance, Running, Session, settings};
use crate::protected::is_protected;
use crate::run_as::run;
use crate::service;

/// While it has this name, no server starts on the directory (pg_upgrade does the same).
const CONTROL: &str = "global/pg_control";
const MOVED: &str = "global/pg_control.migrated";
/// A standby has it (PostgreSQL 12 and later).
const SIGNAL: &str = "standby.signal";

/// Both ends of a migration.
pub(super) struct Ends<'m> {
    pub(super) source: &'m Instance,
    pub(super) target: &'m Instance,
}

/// Goes on from wherever it was cut off, to the end.
///
/// # Errors
/// [`Error::Tool`]; [`Error::Refused`] if the standby lacks something: the source runs again then.
pub(super) fn go_on(ends: &Ends<'_>, record: &mut Record) -> Result<()> {
    refuse_promoted(record)?;
    refuse_old_fence(record)?;
    if is_standby(record) && Running::on(&record.from).is_some() {
        refuse_service(record, ends.source.programs.run_as().owner())?;
    }
    if record.stage < Stage::Switching {
        record.stage = Stage::Switching;
        record.stopped_at = record::now();
        record.write()?;
    }
    if is_standby(record) {
        hand_over(ends, record)?;
    }
    let is_private = Running::on(&record.to).is_some_and(|it| it.host == record.to);
    let mut downtime = "not measured: the command was cut off".to_owned();
    if is_private || Running::on(&record.to).is_none() {
        open_to_clients(ends, record)?;
        let tenths = record::now().saturating_sub(record.stopped_at) / 100;
        downtime = format!(
            "{}.{} s, from the stop of the source to the start of the new server",
            tenths / 10,
            tenths % 10
        );
    }
    forget(ends.source, record)?;
    tell(ends, record, &downtime)
}

/// What the unit of the new server would be refused, when there is no way back any more.
///
/// # Errors
/// As `tidelock service install` and `remove`; an included file has the data directory of the
/// cluster.
pub(super) fn refuse_service(record: &Record, owner: Owner) -> Result<()> {
    if let Some(cluster) = record.unit.as_deref().and_then(Cluster::of_unit) {
        refuse_included(&cluster.folder(), &record.to)?;
    }
    match &record.unit {
        Some(unit) if record.plain => service::refuse_removal(unit),
        Some(unit) => service::refuse(unit, &record.to, owner),
        None => Ok(()),
    }
}

/// From the stop of the source to the promotion.
fn hand_over(ends: &Ends<'_>, record: &mut Record) -> Result<()> {
    copy::start_private(ends.target, record)?;
    ends.source.stop()?;
    if let Err(why) = has_everything(ends, record) {
        take_back(ends.source, record)?;
        return Err(why);
    }
    fence(ends.source)?;
    if Running::on(&record.from).is_some() {
        take_back(ends.source, record)?;
        return Err(Error::refused(
            "something has started the source again",
            "see which unit or script does, and stop that first",
        ));
    }
    let private = Instance { cluster: None, ..ends.target.clone() };
    let mut promote = private.programs.on(&record.to, "pg_ctl")?;
    promote.arg("-D").arg(&record.to).args(["-w", "-t", "86400", "promote"]);
    run(promote).map(drop)
}

/// The source ended in order, and the standby has replayed its last checkpoint.
fn has_everything(ends: &Ends<'_>, record: &Record) -> Result<()> {
    let control = if ends.source.dir.join(CONTROL).exists() {
        ends.source.control()?
    } else {
        // Fenced: this was found before.
        return Ok(());
    };
    if control.state != "shut down" {
        return Err(Error::refused(
            format!("the source did not end in order: it is \"{}\"", control.state),
            "see its log; it is started again, and nothing is switched over",
        ));
    }
    let last = lsn(&control.checkpoint).unwrap_or(u64::MAX);
    let mut there =
        Session::open(&ends.target.programs, &standby::address(ends.target, record), "postgres")?;
    // The record of the checkpoint begins there: beyond it all is replayed.
    standby::wait_for(&mut there, last.saturating_add(1))
}

/// From here on only one of the two can be started.
fn fence(source: &Instance) -> Result<()> {
    rename(source, CONTROL, MOVED)
}

/// The source is as before, and runs.
///
/// # Errors
/// [`Error::Tool`], [`Error::Io`].
pub(super) fn take_back(source: &Instance, record: &mut Record) -> Result<()> {
    rename(source, MOVED, CONTROL)?;
    if Running::on(&source.dir).is_none() {
        source.start(&record.options, &server_log(record, &record.from))?;
    }
    record.stage = Stage::Following;
    record.write()
}

/// As the owner, whose directory it is.
fn rename(source: &Instance, from: &str, to: &str) -> Result<()> {
    let (from, to) = (source.dir.join(from), source.dir.join(to));
    if !from.exists() {
        return Ok(());
    }
    let mut command = source.programs.run_as().program(Path::new("mv"))?;
    command.arg("-n").arg(&from).arg(&to);
    run(command)?;
    sync(&to)
}

fn sync(path: &Path) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    let opened = fs::File::open(folder).and_then(|folder| folder.sync_all());
    opened.map_err(Error::io("sync", folder))
}

/// Not promoted yet.
pub(super) fn is_standby(record: &Record) -> bool {
    record.to.join(SIGNAL).exists()
}

/// Only the fence proves that a promoted copy has all that the source had: without it, somebody has
/// promoted the copy by hand, and either of the two may have commits that the other lacks.
///
/// # Errors
/// [`Error::Refused`] if it is so.
pub(super) fn refuse_promoted(record: &Record) -> Result<()> {
    let has = |name: &str| record.from.join(name).exists();
    // Before this stage it would be the fence of another migration.
    let is_fenced = record.stage == Stage::Switching && has(MOVED) && !has(CONTROL);
    // A base backup gets the signal last, and has no server before.
    let is_copying = record.stage == Stage::Copying && Running::on(&record.to).is_none();
    let is_removed = record.stage < Stage::Switching && !record.to.join("PG_VERSION").exists();
    if is_standby(record) || is_fenced || is_copying || is_removed {
        return Ok(());
    }
    let (from, to) = (record.from.display(), record.to.display());
    Err(Error::refused(
        format!(
            "{to} is no standby any more, and not by this command: {from} can still be started"
        ),
        format!(
            "decide which of the two goes on, and stop the other; then `tidelock migrate {from} \
             {to} --forget` removes the record and touches no server"
        ),
    ))
}

/// With the name taken, the source could not be fenced, and nothing would prove that it was.
fn refuse_old_fence(record: &Record) -> Result<()> {
    let (control, moved) = (record.from.join(CONTROL), record.from.join(MOVED));
    if !(control.exists() && moved.exists()) {
        return Ok(());
    }
    Err(Error::refused(
        format!("{} is there beside {CONTROL}, from another migration", moved.display()),
        "move it out of the directory: the switchover needs its name",
    ))
}

/// The promoted server forgets the source, and starts where clients look for it.
fn open_to_clients(ends: &Ends<'_>, record: &Record) -> Result<()> {
    if Running::on(&record.to).is_none() {
        // Cut off between its stop and its start, or by a crash: it recovers without clients.
        copy::start_private(ends.target, record)?;
    }
    let address = standby::address(ends.target, record);
    let mut session = Session::open(&ends.target.programs, &address, "postgres")?;
    if session.value("SELECT pg_is_in_recovery()")? != "f" {
        return Err(Error::refused(
            "the new server is still a standby after its promotion",
            "see the log beside the new directory, NAME.migration.log",
        ));
    }
    session.ask("ALTER SYSTEM RESET primary_conninfo")?;
    session.ask("ALTER SYSTEM RESET primary_slot_name")?;
    drop(session);
    let private = Instance { cluster: None, ..ends.target.clone() };
    private.stop()?;
    if let Some(cluster) = &ends.target.cluster {
        configure(cluster, &record.to)?;
    }
    ends.target.start(&final_options(record), &server_log(record, &record.to))
}

/// Where it was, unless that lies in a directory; else beside this one.
fn server_log(record: &Record, dir: &Path) -> PathBuf {
    let outside = |log: &&PathBuf| !log.starts_with(&record.from) && !log.starts_with(&record.to);
    record.server_log.as_ref().filter(outside).cloned().unwrap_or_else(|| beside(dir, ".log"))
}

/// Debian's configuration names the new directory, and its unit gets what the keys need.
fn configure(cluster: &Cluster, to: &Path) -> Result<()> {
    let file = cluster.folder().join(settings::CONFIG);
    service::edit(&file, |text| with_data_directory(text, to))?;
    match is_protected(to) {
        true => service::install(&cluster.unit(), to),
        false => service::remove(&cluster.unit()),
    }
}

/// Refuses a cluster whose postgresql.conf includes a file that has the data directory behind it:
/// what [`configure`] writes would not count.
fn refuse_included(folder: &Path, to: &Path) -> Result<()> {
    let file = folder.join(settings::CONFIG);
    let text = service::text_of(&file)?;
    match settings::named_directory_in(folder, &with_data_directory(&text, to)) {
        Some((named, from)) if named != to => Err(Error::refused(
            format!(
                "data_directory is {} in {}: that counts, and not the line which the switchover \
                 changes",
                named.display(),
                from.display()
            ),
            format!("move that line to the end of {}", file.display()),
        )),
        _ => Ok(()),
    }
}

/// The last line counts; the others stay as they are.
fn with_data_directory(text: &str, to: &Path) -> String {
    let line = format!("data_directory = '{}'", to.display());
    let (mut last, mut at) = (None, 0);
    for whole in text.split_inclusive('\n') {
        let old = whole.trim_end_matches(['\r', '\n']);
        if settings::names_directory(old) {
            last = Some((at, old));
        }
        at += whole.len();
    }
    match last {
        Some((at, old)) => format!("{}{line}{}", &text[..at], &text[at + old.len()..]),
        None => format!("{}\n{line}\n", text.trim_end()),
    }
}

/// Those of the source's last start, for the new directory.
pub(super) fn final_options(record: &Record) -> Vec<String> {
    let mut options = record.options.clone();
    if record.config.is_some() {
        options.extend(["-c".to_owned(), format!("data_directory={}", record.to.display())]);
    }
    options
}

/// The slot in the stopped source, the log, and the record.
fn forget(source: &Instance, record: &Record) -> Result<()> {
    let slot = source.dir.join("pg_replslot").join(&record.slot);
    for path in [slot, record.log()] {
        if path.exists() {
            let mut command = source.programs.run_as().program(Path::new("rm"))?;
            command.args(["-rf", "--"]).arg(path);
            run(command)?;
        }
    }
    record.remove()
}

fn tell(ends: &Ends<'_>, record: &Record, downtime: &str) -> Result<()> {
    let (from, to) = (record.from.display(), record.to.display());
    let pid = Running::on(&record.to).map(|running| running.pid);
    let pid = pid.map_or_else(String::new, |pid| format!(", process {pid}"));
    let mut text = format!(
        "downtime      {downtime}\n\
         serves        {to}{pid}\n\
         stopped       {from}: all that it has logged is in the new directory; it cannot be started\n\
         {:14}while its {MOVED} has that name\n",
        ""
    );
    if record.config.is_some() && ends.target.cluster.is_none() {
        let config = record.config.clone().unwrap_or_default();
        text.push_str(&format!(
            "change        data_directory = '{to}' in {}, or the next start is without it\n",
            config.display()
        ));
    }
    let waiting = not_archived(&record.from);
    let mut when = "when it is not needed any more";
    if let (Some(first), Some(last)) = (waiting.first(), waiting.last()) {
        let (files, range) = match waiting.len() {
            1 => ("file", first.clone()),
            _ => ("files", format!("{first} to {last}")),
        };
        text.push_str(&format!(
            "not archived  {} {files} of WAL that only {from}/pg_wal has: {range};\n{:14}put them \
             into the archive, as archive_command does\n",
            waiting.len(),
            ""
        ));
        when = "when these are archived and it is not needed any more";
    }
    text.push_str(&format!(
        "later         {when}: rm -r {from}\n{:14}its blocks stay on the disk until they are \
         overwritten\n",
        ""
    ));
    console::print(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_data_directory_of_a_configuration_is_changed_and_nothing_else() {
        let to = Path::new("/new");
        for (text, changed) in [
            ("data_directory = '/old'\t# note\nport = 1\n", "data_directory = '/new'\nport = 1\n"),
            ("port = 1\n", "port = 1\ndata_directory = '/new'\n"),
            (
                "data_directory = '/a'\ndata_directory_mode = 0700\n",
                "data_directory = '/new'\ndata_directory_mode = 0700\n",
            ),
            (
                "data_directory = '/a'\ndata_directory '/b'\n",
                "data_directory = '/a'\ndata_directory = '/new'\n",
            ),
            (
                "#data_directory = '/a'\ndata_directory = '/a'\n",
                "#data_directory = '/a'\ndata_directory = '/new'\n",
            ),
            (
                "data_directory = '/a'\n# was: data_directory = '/a'\n",
                "data_directory = '/new'\n# was: data_directory = '/a'\n",
            ),
        ] {
            assert_eq!(with_data_directory(text, to), changed);
        }
    }

    #[test]
    fn a_data_directory_that_an_included_file_has_is_refused_where_it_would_count() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        fs::create_dir(folder.path().join("conf.d")).unwrap();
        let refused = || refuse_included(folder.path(), Path::new("/new")).is_err();
        put("postgresql.conf", "data_directory = '/old'\ninclude_dir = 'conf.d'\n");
        assert!(!refused());
        put("conf.d/dir.conf", "data_directory = '/old'\n");
        assert!(refused());
        // A line behind the others is added, or stands there.
        put("postgresql.conf", "include_dir = 'conf.d'\n");
        assert!(!refused());
        put("postgresql.conf", "include_dir = 'conf.d'\ndata_directory = '/old'\n");
        assert!(!refused());
    }
}

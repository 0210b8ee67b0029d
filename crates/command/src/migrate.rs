//! `tidelock migrate`: a running PostgreSQL moves to a new directory with keys of its own, or to a
//! plain one, through a standby.
//!
//! ```text
//!   source   what it says of itself, what stands in the way
//!   record   what has begun, for another call
//!   copy     keys, slot, base backup, private start of the standby
//!   standby  how far it is, the same rows?  switch   stop, promote, start
//! ```
//!
//! Until the switchover the source loses nothing and gains only a replication slot.

mod copy;
mod record;
mod source;
mod standby;
mod switch;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::begun::Lock;
use crate::console;
use crate::error::{Error, Result};
use crate::folder::Entry;
use crate::init::Making;
use crate::owner::Owner;
use crate::postgres::{Cluster, Instance, Running, Session, options};
use crate::protect::{data_directory, refuse_for_units};
use crate::protected::is_protected;
use crate::space::{Needs, Size};
use record::{MIGRATION, Record, Stage, slot_for};
use source::Source;
use standby::Check;
use switch::Ends;

/// Move a running PostgreSQL into a new protected directory, or out of one, through a standby
#[derive(clap::Args)]
#[command(
    after_help = "Until the switchover the source is only read, but for a replication slot. \
                        Another call goes on where one was cut off. docs/lifecycle.md has the rest."
)]
pub(crate) struct Migrate {
    /// The data directory of a running server, or a Debian cluster: postgresql@15-main
    from: PathBuf,
    /// The new data directory: absent, empty, or made by `tidelock init`
    to: PathBuf,
    /// Without keys: the way back to a plain server
    #[arg(long)]
    without_keys: bool,
    /// Stop the source and let the new server take its place, when that has caught up
    #[arg(long)]
    switch: bool,
    /// Take back what has begun: the slot at the source, the standby
    #[arg(long, conflicts_with_all = ["switch", "without_keys"])]
    abort: bool,
    /// After a switchover by hand: remove the record of the migration, and touch no server
    #[arg(long, conflicts_with_all = ["switch", "without_keys", "abort"])]
    forget: bool,
    /// Ask nothing
    #[arg(short, long)]
    yes: bool,
    /// What is compared before the switchover
    #[arg(long, value_enum, default_value = "backup", value_name = "WHAT")]
    check: Check,
    /// Where a tablespace goes, for each; both are absolute paths
    #[arg(short = 'T', long = "tablespace-mapping", value_name = "OLD=NEW", value_parser = mapping)]
    tablespaces: Vec<(PathBuf, PathBuf)>,
    /// Where pg_wal goes, if not into the new directory
    #[arg(long, value_name = "DIR")]
    waldir: Option<PathBuf>,
    /// Go on although other standbys, replication slots or rows of unlogged tables at the source do
    /// not come along
    #[arg(long)]
    leave_behind: bool,
    /// Go on although another process of its unit starts the source, or a unit that is not its
    /// cluster's: it leaves the server alone now, and you point it at NEW after the switchover
    #[arg(long)]
    without_supervisor: bool,
    /// The superuser who copies and compares [default: postgres]
    #[arg(
        short = 'U',
        long,
        value_name = "ROLE",
        default_value = "postgres",
        hide_default_value = true
    )]
    username: String,
    /// At most so much a second is copied, as pg_basebackup takes it: 100M
    #[arg(long, value_name = "RATE")]
    max_rate: Option<String>,
    /// Where the server's programs are [default: beside the running server]
    #[arg(long, value_name = "DIR")]
    bindir: Option<PathBuf>,
    #[command(flatten)]
    keys: Making,
}

fn mapping(text: &str) -> std::result::Result<(PathBuf, PathBuf), &'static str> {
    match text.split_once('=') {
        Some((old, new)) if old.starts_with('/') && new.starts_with('/') => {
            Ok((old.into(), new.into()))
        }
        _ => Err("a mapping is OLD=NEW, two absolute paths"),
    }
}

impl Migrate {
    /// # Errors
    /// Something stands in the way; a step failed, and another call goes on.
    pub(crate) fn run(self) -> Result<()> {
        let to = new_path(&self.to)?;
        refuse_for_shells(&to)?;
        let lock = MIGRATION.lock(&to)?;
        let found = Record::read(&to)?;
        if self.forget {
            return forget(found, &to);
        }
        if self.abort {
            return self.abort(found, &to, &lock);
        }
        // Before anything that hints at starting the source.
        if let Some(record) = found.as_ref().filter(|found| found.stage > Stage::Copying) {
            switch::refuse_promoted(record)?;
        }
        let mut record = match found {
            Some(record) if record.stage == Stage::Switching => {
                let (source, target) = self.ends(&record, &lock)?;
                let ends = Ends { source: &source, target: &target };
                return switch::go_on(&ends, &mut { record })
                    .map_err(|why| self.stopped("switchover", why));
            }
            found => self.plan(found, &to, &lock)?,
        };
        self.steps(&mut record, &lock)
    }

    /// Says what will be done, and asks once.
    fn plan(&self, begun: Option<Record>, to: &Path, lock: &Lock) -> Result<Record> {
        let mut source = self.source(&slot_for(to), lock)?;
        let lag = source.archive_lag()?;
        let from = &source.instance.dir;
        if let Some(other) = begun.as_ref().filter(|begun| begun.from != *from) {
            return Err(Error::refused(
                format!("a migration from {} to {} has begun", other.from.display(), to.display()),
                format!(
                    "`tidelock migrate {} {} --abort` ends it",
                    other.from.display(),
                    to.display()
                ),
            ));
        }
        let slot = slot_for(to);
        let supervised = source.supervised(self.without_supervisor).into_iter();
        let mut obstacles =
            supervised.chain(source.obstacles(&slot, begun.is_some(), self.leave_behind));
        if let Some(first) = obstacles.next() {
            for more in obstacles {
                console::warn(more.what, more.hint);
            }
            return Err(Error::refused(first.what, first.hint));
        }
        if let Some(lag) = lag {
            console::warn(
                lag,
                "see why archive_command does not take them; what it has not taken at the \
                 switchover stays in the old directory alone",
            );
        }
        if let Some(begun) = begun {
            if begun.plain != self.without_keys {
                let now = if begun.plain { "with" } else { "without" };
                return Err(Error::refused(
                    format!("the migration to {} has begun {now} --without-keys", to.display()),
                    "say it as before, or begin again: --abort",
                ));
            }
            console::print(format_args!("goes on       {} to {}\n", from.display(), to.display()))?;
            return Ok(begun);
        }
        let record = self.first_record(&source, to)?;
        let owner = source.instance.programs.run_as().owner();
        switch::refuse_service(&record, owner)?;
        self.refuse_keys_of_units(&source, &record)?;
        let needs = self.needs(&source, &record)?;
        self.print_plan(&source, &record, &needs)?;
        needs.check()?;
        if !record.plain && !is_protected(to) {
            self.keys.check(&copy::place(&record, owner)?, "postgres")?;
        }
        console::agree(self.yes)?;
        record.write()?;
        Ok(record)
    }

    /// New keys with which the unit of the source would not come back after a restart of the
    /// machine.
    fn refuse_keys_of_units(&self, source: &Source, record: &Record) -> Result<()> {
        let unit = record.unit.as_deref().or_else(|| source.facts.starter.unit());
        match (&self.keys.provider, unit) {
            (Some(choice), Some(unit)) if !record.plain && !is_protected(&record.to) => {
                refuse_for_units(choice, unit, &record.to)
            }
            _ => Ok(()),
        }
    }

    fn first_record(&self, source: &Source, to: &Path) -> Result<Record> {
        let from = &source.instance.dir;
        if to.starts_with(from) || from.starts_with(to) {
            return Err(Error::refused(
                format!("{} and {} lie in each other", from.display(), to.display()),
                "name a new directory beside the old one, or on another disk",
            ));
        }
        if source.instance.cluster.is_some() && Owner::caller().uid != 0 {
            return Err(Error::refused(
                "the source is a Debian cluster, whose configuration and unit will change",
                "run it as root",
            ));
        }
        let mut tablespaces = Vec::new();
        for old in &source.facts.tablespaces {
            let Some((_, new)) = self.tablespaces.iter().find(|(given, _)| given == old) else {
                return Err(Error::refused(
                    format!("the tablespace at {} has no new place", old.display()),
                    format!("name one: -T {}=NEW", old.display()),
                ));
            };
            refuse_for_shells(new)?;
            tablespaces.push((old.clone(), new.clone()));
        }
        // Kept for later calls, which may be made elsewhere.
        let waldir = self.waldir.as_deref().map(new_path).transpose()?;
        waldir.iter().try_for_each(|dir| refuse_for_shells(dir))?;
        let config = source.config();
        let record = Record {
            from: from.clone(),
            to: to.into(),
            slot: slot_for(to),
            plain: self.without_keys,
            stage: Stage::Copying,
            stopped_at: 0,
            port: source.address.port,
            host: source.address.host.clone(),
            user: self.username.clone(),
            options: options(from)?,
            server_log: source.facts.log.clone(),
            unit: source.instance.cluster.as_ref().map(Cluster::unit),
            config,
            at_least: source.at_least(),
            tablespaces,
            waldir,
        };
        for dir in record.filled() {
            refuse_filled(&dir, &record)?;
        }
        if record.plain && is_protected(to) {
            return Err(Error::refused(
                format!("{} is a protected directory", to.display()),
                "name another one, or leave --without-keys out",
            ));
        }
        Ok(record)
    }

    fn needs(&self, source: &Source, record: &Record) -> Result<Needs> {
        let from = &source.instance.dir;
        let mut needs = Needs::default();
        let all = Size::of(from);
        let wal = from.join("pg_wal");
        let linked = fs::symlink_metadata(&wal).is_ok_and(|found| found.is_symlink());
        let wal = Size::of(&wal.canonicalize().unwrap_or(wal));
        let data = if linked { all.copied() } else { all.copied().saturating_sub(wal.copied()) };
        needs.add(&record.to, data);
        needs.add(record.waldir.as_ref().unwrap_or(&record.to), wal.copied());
        for (old, new) in &record.tablespaces {
            needs.add(new, Size::of(old).copied());
        }
        Ok(needs)
    }

    fn print_plan(&self, source: &Source, record: &Record, needs: &Needs) -> Result<()> {
        let kind = |protected: bool| if protected { "protected" } else { "plain" };
        let (from, to) = (&record.from, &record.to);
        let keys = match (record.plain, is_protected(to)) {
            (true, _) => "plain: without keys",
            (false, true) => "protected, with the keys that it has",
            (false, false) => "protected, with new keys",
        };
        let mut text = format!(
            "from          {}: {}, PostgreSQL {}, process {}, {} connected\n\
             to            {}: {keys}\n\
             copy          about {}, by a base backup and a standby without clients; the slot {}\n",
            from.display(),
            kind(is_protected(from)),
            source.setting("server_version"),
            source.facts.pid,
            console::count(source.facts.clients, "client"),
            to.display(),
            console::bytes(needs.total()),
            record.slot,
        );
        for (old, new) in &record.tablespaces {
            text.push_str(&format!("tablespace    {} to {}\n", old.display(), new.display()));
        }
        if let Some(unit) = &record.unit {
            text.push_str(&format!(
                "unit          {unit}: data_directory will name {}, and `tidelock service` will \
                 {} it\n",
                to.display(),
                if record.plain { "leave" } else { "install" }
            ));
        }
        text.push_str(match self.check {
            Check::None => "check         nothing is compared\n",
            Check::Backup => "check         the backup by its checksums\n",
            Check::Counts => {
                "check         the backup by its checksums; the number of rows of each table\n"
            }
            Check::Sums => {
                "check         the backup by its checksums; a checksum of the rows of each table\n"
            }
        });
        if let Some(unit) = source.facts.starter.unit().filter(|_| record.unit.is_none()) {
            text.push_str(&format!(
                "unit          {unit} seems to start the source: point it at {} after the \
                 switchover,\n{:14}and see `tidelock service install`\n",
                to.display(),
                ""
            ));
        }
        let archive = source.setting("archive_command");
        if source.setting("archive_mode") != "off" && !matches!(archive, "" | "(disabled)") {
            let what = if record.plain { "plain" } else { "sealed" };
            text.push_str(&format!(
                "archive       after the switchover archive_command meets {what} WAL; take a new \
                 base backup then: {archive}\n"
            ));
        }
        let keep = source.setting("max_slot_wal_keep_size");
        if keep != "-1" {
            text.push_str(&format!(
                "keep in mind  max_slot_wal_keep_size is {keep} MB: if the copy is further behind, \
                 it is lost\n"
            ));
        }
        text.push_str(if self.switch {
            "switchover    yes: clients are sent away, and the downtime is told\n"
        } else {
            "switchover    not now: its command is printed\n"
        });
        console::print(text)
    }

    /// Everything that is still to be done.
    fn steps(&self, record: &mut Record, lock: &Lock) -> Result<()> {
        let stopped = |step: &'static str| move |why: Error| self.stopped(step, why);
        let mut source = self.source(&record.slot, lock)?;
        let owner = source.instance.programs.run_as().owner();
        if record.stage == Stage::Copying {
            copy::keys(record, &self.keys, owner).map_err(stopped("keys"))?;
            copy::slot(&mut source, record).map_err(stopped("slot"))?;
            copy::base_backup(&source, record, self.max_rate.as_deref())
                .map_err(stopped("base backup"))?;
            if self.check != Check::None {
                copy::verify_backup(&source.instance.programs, record)
                    .map_err(stopped("check of the base backup"))?;
                console::print("base backup   every file reads as the source sent it\n")?;
            }
            record.stage = Stage::Following;
            record.write()?;
        } else {
            copy::slot(&mut source, record).map_err(stopped("slot"))?;
        }
        switch::refuse_promoted(record)?;
        let (_, target) = self.ends(record, lock)?;
        copy::start_private(&target, record).map_err(stopped("start of the standby"))?;
        let address = standby::address(&target, record);
        let caught_up = Session::open(&target.programs, &address, "postgres")
            .and_then(|mut there| standby::catch_up(&mut source, &mut there));
        caught_up.map_err(stopped("catching up"))?;
        if matches!(self.check, Check::Counts | Check::Sums) {
            standby::compare(&mut source, &target, record, (self.check, self.switch))
                .map_err(stopped("comparison"))?;
        }
        if !self.switch {
            return self.tell_how_to_switch(record);
        }
        // What these write need not be written while clients wait.
        source.session.ask("CHECKPOINT").map_err(stopped("checkpoint"))?;
        Session::open(&target.programs, &address, "postgres")
            .and_then(|mut there| there.ask("CHECKPOINT"))
            .map_err(stopped("checkpoint"))?;
        switch::refuse_promoted(record)?;
        let instance = source.instance.clone();
        drop(source);
        switch::go_on(&Ends { source: &instance, target: &target }, record)
            .map_err(stopped("switchover"))
    }

    fn tell_how_to_switch(&self, record: &Record) -> Result<()> {
        let (from, to) = (record.from.display(), record.to.display());
        let plain = if record.plain { " --without-keys" } else { "" };
        let stop = match &record.unit {
            Some(unit) => format!("stop {unit}"),
            None => format!("pg_ctl -D {from} -m fast stop"),
        };
        let exec = if record.plain { String::new() } else { format!("tidelock exec -D {to} -- ") };
        console::print(format_args!(
            "follows       {to}, a standby that only its owner reaches, by the socket in it\n\
             next          tidelock migrate {from} {to}{plain} --switch\n\
             by hand       {stop}; {exec}pg_ctl -D {to} promote; restart it without the options\n\
             {:14}of postmaster.opts; then tidelock migrate {from} {to} --forget\n\
             undo          tidelock migrate {from} {to} --abort\n",
            ""
        ))
    }

    /// The slot goes, the standby stops; the new directory stays for its owner to remove.
    fn abort(&self, found: Option<Record>, to: &Path, lock: &Lock) -> Result<()> {
        let mut record = found.ok_or_else(|| not_begun(to))?;
        let (source, target) = self.ends(&record, lock)?;
        let refuse_promoted = |record: &Record| {
            switch::refuse_promoted(record)?;
            if record.stage == Stage::Switching && !switch::is_standby(record) {
                return Err(Error::refused(
                    format!("{} is promoted: it has the data now", to.display()),
                    "go on without --abort; the way back is a migration from it",
                ));
            }
            Ok(())
        };
        refuse_promoted(&record)?;
        let private = Instance { cluster: None, ..target };
        private.stop()?;
        // It may have been on its way.
        refuse_promoted(&record)?;
        if record.stage == Stage::Switching {
            switch::take_back(&source, &mut record)?;
        }
        // Its port may be another one by now, and its old one another server's.
        if !source::drop_slot(&source, &record.user, &record.slot)? {
            console::warn(
                format!("the source does not run, so its slot {} stays", record.slot),
                format!("start it, then SELECT pg_drop_replication_slot('{}')", record.slot),
            );
        }
        record.remove()?;
        let _ = fs::remove_file(record.log());
        let filled = record.filled();
        let filled = filled.iter().filter(|dir| dir.exists());
        let filled: Vec<String> = filled.map(|dir| dir.display().to_string()).collect();
        console::print(format_args!(
            "aborted       the source is as before\nlater         rm -r {}\n",
            filled.join(" ")
        ))
    }

    fn source(&self, slot: &str, lock: &Lock) -> Result<Source> {
        let (dir, cluster) = self.from()?;
        let mut instance = Instance::find(&dir, self.bindir.as_deref(), cluster)?;
        instance.programs.hold(lock)?;
        Source::ask(instance, &self.username, slot)
    }

    /// A directory, or the one of a cluster.
    fn from(&self) -> Result<(PathBuf, Option<Cluster>)> {
        let name = self.from.to_string_lossy();
        let Some(cluster) = Cluster::of_unit(&name).filter(|_| !self.from.exists()) else {
            return Ok((self.from.clone(), None));
        };
        let dir = data_directory(&cluster)?;
        Ok((dir, Some(cluster)))
    }

    /// By what the record says: the configuration may name the new directory already.
    fn ends(&self, record: &Record, lock: &Lock) -> Result<(Instance, Instance)> {
        let cluster = record.unit.as_deref().and_then(Cluster::of_unit);
        let mut source = Instance::find(&record.from, self.bindir.as_deref(), cluster.clone())?;
        source.programs.hold(lock)?;
        let target =
            Instance { dir: record.to.clone(), programs: source.programs.clone(), cluster };
        Ok((source, target))
    }

    fn stopped(&self, step: &'static str, why: Error) -> Error {
        let (from, to) = (self.from.display(), self.to.display());
        let again = format!(
            "the same command goes on; `tidelock migrate {from} {to} --abort` takes it back"
        );
        Error::Stopped { step, why: Box::new(why), again }
    }
}

/// The record goes, and nothing else: which server goes on is its operator's to say.
fn forget(found: Option<Record>, to: &Path) -> Result<()> {
    let record = found.ok_or_else(|| not_begun(to))?;
    let is_copying = record.stage == Stage::Copying && Running::on(to).is_none();
    if is_copying || switch::is_standby(&record) {
        return Err(Error::refused(
            format!("{} was not promoted: the migration to it goes on", to.display()),
            format!(
                "`tidelock migrate {} {} --abort` takes it back",
                record.from.display(),
                to.display()
            ),
        ));
    }
    record.remove()?;
    console::print(format_args!(
        "forgotten     the migration to {}; no server was stopped or started\n\
         later         where the source goes on, it keeps WAL for the copy until you drop the \
         slot:\n{:14}SELECT pg_drop_replication_slot('{}')\n\
         log           {} may still be written to\n",
        to.display(),
        "",
        record.slot,
        record.log().display()
    ))
}

fn not_begun(to: &Path) -> Error {
    Error::refused(
        format!("no migration to {} has begun", to.display()),
        format!("{} would say so", MIGRATION.path(to).display()),
    )
}

/// The path of a directory that need not exist, without links.
fn new_path(dir: &Path) -> Result<PathBuf> {
    match dir.canonicalize() {
        Ok(path) => Ok(path),
        Err(_) => Ok(Entry::of(dir)?.path()),
    }
}

/// Options go through pg_ctl and a shell, a path into the configuration, another into a socket.
fn refuse_for_shells(dir: &Path) -> Result<()> {
    let bad = |c: char| c.is_control() || "'\"\\$`,".contains(c);
    if dir.to_str().is_none_or(|path| path.contains(bad)) {
        return Err(Error::refused(
            format!("{} has signs that do not pass through a configuration", dir.display()),
            "name a directory without quotes, commas, backslashes and $",
        ));
    }
    // `/.s.PGSQL.65535`, and what a socket's address may have.
    if dir.as_os_str().len() + 15 > 107 {
        return Err(Error::refused(
            format!("{} is too long for the path of a socket", dir.display()),
            "name a directory with a shorter path",
        ));
    }
    Ok(())
}

/// Nothing but a keyring may be there before.
fn refuse_filled(dir: &Path, record: &Record) -> Result<()> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(why) => return Err(Error::io("list", dir)(why)),
    };
    let names = entries.flatten().map(|entry| entry.file_name());
    let keyring = |name: &std::ffi::OsString| dir == record.to && name == ".tidelock";
    match names.into_iter().find(|name| !keyring(name)) {
        None => Ok(()),
        Some(name) => Err(Error::refused(
            format!("{} is not empty: it has {}", dir.display(), name.display()),
            "name an empty directory, or one that does not exist",
        )),
    }
}

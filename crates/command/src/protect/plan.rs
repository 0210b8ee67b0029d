//! What `protect` is going to do: looked at while the server still runs, told, and agreed to.

use std::fmt;
use std::path::PathBuf;

use super::keys::Keys;
use super::record::{Goal, PROTECTION, Record, Stage, Typed};
use super::target::Target;
use super::{Protect, absolute, estimate, outside, set_aside};
use crate::console;
use crate::convert::{Encrypt, Foreseen};
use crate::error::{Error, Result};
use crate::exec::{Library, Program};
use crate::mysqld::Brand;
use crate::owner::Owner;
use crate::protected::is_protected;
use crate::service;

impl Protect {
    /// Whatever may refuse, then what will be done; asks once. `begun` is what a call has left that
    /// was cut off before there was a keyring: it may have stopped the server.
    pub(super) fn plan(
        &self,
        target: &Target,
        begun: Option<Record>,
        typed: Typed,
    ) -> Result<Record> {
        let dir = target.dir();
        if is_protected(dir) {
            return Err(Error::refused(
                format!("{} is a protected directory already", dir.display()),
                "`tidelock status` shows it; `tidelock service install` has a unit start it",
            ));
        }
        if let Some(begun) = &begun {
            take_over(target, begun, &typed)?;
        }
        let seen = self.look(target, begun)?;
        console::print(Plan { target, seen: &seen, undo: self.which.words() })?;
        console::agree(self.yes)?;
        target.refuse_started(seen.running)?;
        let record = seen.record(target, &self.keys, typed)?;
        PROTECTION.write(dir, &record)?;
        Ok(record)
    }

    /// Refuses whatever would refuse once the server is down.
    fn look(&self, target: &Target, begun: Option<Record>) -> Result<Seen> {
        let (dir, engine) = (target.dir(), &*target.engine);
        target.refuse_wrong_unit(Goal::Protect)?;
        self.refuse_confined(target)?;
        let version = engine.version()?;
        Library::find()?;
        Program::find(engine.program().as_os_str())?.refuse_unless_it_loads()?;
        self.keys.check(dir, target.unit.as_deref())?;
        self.keys.refuse_existing()?;
        let running = engine.running();
        if running.is_some() && target.unit.is_none() && Brand::of(dir).is_some() {
            self.keys.refuse_persons()?;
        }
        outside::refuse_readers(dir, engine.head())?;
        let notes = engine.notes(self.username.as_deref(), target.unit.as_deref())?;
        if let Some(unit) = &target.unit {
            service::refuse(unit, dir, Owner::of(dir)?)?;
        }
        // Now: it may end while a person thinks.
        let (mut options, mut log) = (target.options()?, engine.log());
        let (mut was_running, mut triggers) = (running.is_some(), Vec::new());
        if let Some(begun) = begun {
            was_running |= begun.was_running;
            triggers = begun.triggers;
            if running.is_none() {
                (options, log) = (begun.options, begun.log);
            }
        }
        let head = engine.head();
        let foreseen = Encrypt::typed(self.encryption(dir)?.get_args())?
            .foresee(&|process| outside::is_the_servers(process, head))?;
        if !was_running && self.yes {
            self.conversion.refuse_unread(dir, &foreseen)?;
        }
        let seconds = estimate::seconds(dir, foreseen.bytes, foreseen.files)?;
        let said = Said { version, notes, foreseen, seconds };
        Ok(Seen { running, was_running, options, log, triggers, said })
    }
}

/// Goes on from what a call has left: refuses where another unit would start the server again, and
/// moves what is in the way.
fn take_over(target: &Target, begun: &Record, typed: &Typed) -> Result<()> {
    let settled = target.engine.settled();
    // It would be started by what did not stop it.
    if let Some(before) = begun.typed.as_ref().filter(|it| it.unit != typed.unit)
        && begun.was_running
        && settled.is_none()
    {
        return Err(before.are_others(target.dir()));
    }
    set_aside(begun.recovery_file.as_deref())
}

/// The server as it is, or as a call before this one has found it.
struct Seen {
    running: Option<u32>,
    was_running: bool,
    options: Vec<String>,
    log: Option<PathBuf>,
    /// Of the call before.
    triggers: Vec<String>,
    said: Said,
}

/// What is only told.
struct Said {
    version: String,
    notes: String,
    foreseen: Foreseen,
    seconds: Option<f64>,
}

impl Seen {
    fn record(mut self, target: &Target, keys: &Keys, typed: Typed) -> Result<Record> {
        self.triggers.extend(target.triggers()?);
        Ok(Record {
            goal: Goal::Protect,
            stage: Stage::Converting,
            was_running: self.was_running,
            options: self.options,
            log: self.log,
            keyring_copy: absolute(keys.keyring_copy.as_deref())?,
            recovery_file: absolute(keys.recovery_file.as_deref())?,
            triggers: self.triggers,
            typed: Some(typed),
        })
    }
}

/// The plan, for people.
struct Plan<'p> {
    target: &'p Target,
    seen: &'p Seen,
    undo: String,
}

impl fmt::Display for Plan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, seen, undo } = self;
        let Said { version, notes, foreseen, seconds } = &seen.said;
        let runs = match seen.running {
            Some(pid) => format!("process {pid}"),
            None if seen.was_running => "stopped by a call before this one".to_owned(),
            None => "stopped".to_owned(),
        };
        let dir = target.dir().display();
        let files = console::count(foreseen.files, "file");
        writeln!(f, "protect       {dir}: {version}, {runs}, {files}")?;
        writeln!(
            f,
            "stops         for {}: {} are sealed in place, read back and compared{}",
            span(*seconds),
            console::bytes(foreseen.bytes),
            one_by_one(foreseen)
        )?;
        write!(f, "{}", places_outside(foreseen))?;
        let (needs, growth) = (console::bytes(foreseen.needs), console::bytes(foreseen.growth));
        writeln!(f, "disk          {needs} more while it goes on, {growth} more at its end")?;
        match &target.unit {
            Some(unit) => {
                writeln!(f, "{notes}service       {unit} unlocks it and loads the library")?;
            }
            None => writeln!(
                f,
                "{notes}service       none: start it with `{}`",
                target.engine.command()
            )?,
        }
        write!(f, "clear         old blocks of the disk, archives and backups stay as they are")?;
        if let Some(log) = &seen.log {
            write!(f, ";\n{:14}so does the server's log {}", "", log.display())?;
        }
        writeln!(f, "\nundo          tidelock unprotect {undo}")
    }
}

/// The lines of the plan about places that links lead to.
pub(super) fn places_outside(foreseen: &Foreseen) -> String {
    let lines = foreseen.places.iter().map(|place| {
        format!("outside       {}, where a link leads, is converted too\n", place.display())
    });
    lines.collect()
}

/// What the plan says where there is no room for more.
pub(super) fn one_by_one(foreseen: &Foreseen) -> &'static str {
    match foreseen.one_by_one {
        true => ",\n              one file at a time: there is no room for more",
        false => "",
    }
}

/// How long it will take, for people.
pub(super) fn span(seconds: Option<f64>) -> String {
    match seconds {
        None => "an unknown time".to_owned(),
        Some(seconds) if seconds < 90.0 => format!("about {:.0} s", seconds.max(1.0)),
        Some(seconds) if seconds < 5400.0 => format!("about {:.0} min", seconds / 60.0),
        Some(seconds) => format!("about {:.1} h", seconds / 3600.0),
    }
}

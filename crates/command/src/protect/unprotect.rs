//! `tidelock unprotect`: makes a server plain again, whatever `protect` has done by then.
//!
//! Stops nothing until the keyring has opened and its copy is written: the server may be the last
//! that has the keys.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tidelock_contract::ExitClass;
use tidelock_contract::control::{FOLDER, LOCK};
use tidelock_keyring::WITHOUT_KEYRING;

use super::keys::Opening;
use super::plan::{one_by_one, places_outside, span};
use super::target::{Target, Which};
use super::{
    Conversion, Goal, PROTECTION, Record, Stage, absolute, come_up, estimate, migrate, ourselves,
    outside, tidelock,
};
use crate::begun::Lock;
use crate::console;
use crate::convert::{Decrypt, How, Opened};
use crate::error::{Error, Result};
use crate::folder::Entry;
use crate::protected::is_protected;
use crate::server::Loaded;
use crate::service;

/// Make a protected server plain again, whatever `tidelock protect` has done by now
#[derive(clap::Args)]
pub(crate) struct Unprotect {
    #[command(flatten)]
    which: Which,
    /// Ask nothing
    #[arg(short, long)]
    yes: bool,
    /// Copy the running server to NEW instead, and stop it for the switchover only
    #[arg(
        long,
        value_name = "NEW",
        conflicts_with_all = ["provider", "recovery_file", "passphrase_fd", "keep_keyring"]
    )]
    without_stopping: Option<PathBuf>,
    /// The server's user who is asked whether it answers [default: postgres; else the owner of
    /// DIR]
    #[arg(short = 'U', long, value_name = "ROLE")]
    username: Option<String>,
    #[command(flatten)]
    conversion: Conversion,
    #[command(flatten)]
    keys: Opening,
}

/// Removes the folder of a keyring that has none: a call that was cut off has left it, and MariaDB
/// would take it for a database.
fn remove_empty_folder(dir: &Path) -> Result<()> {
    let control = Entry::of(&dir.join(FOLDER))?;
    if is_protected(dir) || !control.exists()? {
        return Ok(());
    }
    let folder = control.open_folder()?;
    // What else is there may be somebody's copy of a keyring.
    let ours = |name: &OsString| name == LOCK || WITHOUT_KEYRING.iter().any(|it| name == it);
    let names = folder.names()?;
    if !names.iter().all(ours) {
        return Ok(());
    }
    names.into_iter().try_for_each(|name| folder.entry(name).remove())?;
    control.remove_folder()?;
    control.folder().sync()
}

impl Unprotect {
    /// # Errors
    /// A step failed, and another call goes on.
    pub(crate) fn run(self) -> Result<()> {
        let mut target = self.which.find()?;
        if let Some(new) = &self.without_stopping {
            let mut command = migrate(&target, new, self.username.as_deref(), self.yes)?;
            command.arg("--without-keys");
            return tidelock(command, "migration");
        }
        service::refuse_other_units(target.unit.as_deref(), target.dir())?;
        let lock = PROTECTION.lock(target.dir())?;
        target.engine.hold(&lock)?;
        let mut opened = self.look(&target)?;
        let record = match PROTECTION.read::<Record>(target.dir())? {
            Some(record) if record.goal == Goal::Unprotect => record,
            found => self.plan(&target, found, opened.as_ref())?,
        };
        if let Some(opened) = &mut opened {
            opened.keep()?;
        }
        PROTECTION.write(target.dir(), &record)?;
        self.steps(&target, &record, opened.as_ref(), &lock)
    }

    /// Opens the keyring, and finds whatever would refuse once the server is down: it may be the
    /// last that has the keys. Nothing if there is no keyring.
    fn look(&self, target: &Target) -> Result<Option<Opened>> {
        let (dir, engine) = (target.dir(), &*target.engine);
        if !is_protected(dir) {
            return Ok(None);
        }
        outside::refuse_readers(dir, engine.head())?;
        outside::refuse_programs(dir, engine.head())?;
        let how = How::new(self.conversion.jobs, self.conversion.leave_links);
        let keep = absolute(self.keys.keep_keyring.as_deref())?;
        let decrypt = Decrypt::new(dir, keep.as_deref(), self.keys.options()?, how);
        match (decrypt.foresee(), engine.running()) {
            (Err(why), Some(pid)) if why.exit_class() == ExitClass::Key => {
                let (why, dump) = (Box::new(why), engine.dump());
                Err(Error::OpenInServerOnly { pid, why, dump })
            }
            (opened, _) => opened.map(Some),
        }
    }

    fn plan(
        &self,
        target: &Target,
        begun: Option<Record>,
        opened: Option<&Opened>,
    ) -> Result<Record> {
        let dir = target.dir();
        let engine = &*target.engine;
        let running = engine.running();
        if begun.is_none() && !is_protected(dir) {
            return Err(Error::refused(
                format!("{} is not a protected directory", dir.display()),
                "nothing is to be taken back",
            ));
        }
        target.refuse_wrong_unit(Goal::Unprotect)?;
        let was_running = running.is_some() || begun.as_ref().is_some_and(|it| it.was_running);
        if let Some(opened) = opened.filter(|_| self.yes && !was_running) {
            self.conversion.refuse_unread(dir, &opened.foreseen)?;
        }
        engine.refuse_to_stop(self.username.as_deref(), target.unit.as_deref())?;
        // Now: it may end while a person thinks.
        let now = match (&begun, running) {
            (Some(_), None) => None,
            _ => Some((target.options()?, engine.log())),
        };
        if let Some(unit) = &target.unit {
            service::refuse_removal(unit)?;
        }
        let what = match opened.map(|opened| &opened.foreseen) {
            Some(foreseen) => format!(
                "for {}: {} are made plain in place{}",
                span(estimate::seconds(dir, foreseen.bytes, foreseen.files)?),
                console::bytes(foreseen.bytes),
                one_by_one(foreseen)
            ),
            None => "shortly: nothing is sealed yet".to_owned(),
        };
        let places = opened.map(|opened| places_outside(&opened.foreseen)).unwrap_or_default();
        console::print(format_args!(
            "unprotect     {}\nstops         {what}\n{places}\
             keeps         keys and keyring, which open sealed backups and archives\n",
            dir.display()
        ))?;
        console::agree(self.yes)?;
        target.refuse_started(running)?;
        let (mut was_running, mut triggers) = (running.is_some(), target.triggers()?);
        let (mut options, mut log) = (Vec::new(), None);
        if let Some(record) = begun {
            was_running |= record.was_running;
            triggers.extend(record.triggers);
            (options, log) = (record.options, record.log);
        }
        // What runs now was started since, perhaps in another way. One that was just ending has no
        // options any more.
        if let Some((of_now, log_of_now)) = now
            && (!of_now.is_empty() || options.is_empty())
        {
            (options, log) = (of_now, log_of_now);
        }
        let record = Record {
            goal: Goal::Unprotect,
            stage: Stage::Converting,
            was_running,
            options,
            log,
            keyring_copy: None,
            recovery_file: None,
            triggers,
            typed: None,
        };
        Ok(record)
    }

    fn steps(
        &self,
        target: &Target,
        record: &Record,
        opened: Option<&Opened>,
        lock: &Lock,
    ) -> Result<()> {
        let dir = target.dir();
        let again = "the same command goes on".to_owned();
        let stopped = |step: &'static str| {
            let again = again.clone();
            move |why: Error| Error::Stopped { step, why: Box::new(why), again }
        };
        if let Some(opened) = opened {
            target.stop(&record.triggers).map_err(stopped("stop"))?;
            self.decrypt(dir, opened.is_half_done(), lock).map_err(stopped("conversion"))?;
        }
        remove_empty_folder(dir).map_err(stopped("conversion"))?;
        if let Some(unit) = &target.unit {
            service::remove(unit).map_err(stopped("service"))?;
        }
        target.start_triggers(&record.triggers);
        if record.was_running {
            come_up(target, record, self.username.as_deref(), Loaded::No)
                .map_err(|(step, why)| stopped(step)(why))?;
        }
        PROTECTION.remove(dir)?;
        console::print(format_args!("plain         {}\n", dir.display()))
    }

    fn decrypt(&self, dir: &Path, half_done: bool, lock: &Lock) -> Result<()> {
        let mut command = ourselves()?;
        command.arg("decrypt").arg(dir).stdin(lock.share()?);
        if half_done {
            command.arg("--resume");
        }
        self.conversion.pass(&mut command);
        let _passphrase = self.keys.pass(&mut command)?;
        tidelock(command, "decrypt")
    }
}

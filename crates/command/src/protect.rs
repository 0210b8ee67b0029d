//! `tidelock protect`: one command for an existing server; and what it shares with the one that
//! takes it back, `unprotect`.
//!
//! ```text
//!   target    which one, who starts it          outside   who else reads its files
//!   keys      options of the keyring            estimate  how long
//!   confined  policies that drop the library
//!   engine    what is asked of any server       postgres, mysqld   how each does it
//!   plan      what protect is going to do             record     what has begun, for another call
//!
//!   protect:    checks --> stop --> tidelock encrypt --> copy of the keyring, service --> start
//!   unprotect:  checks --> stop --> tidelock decrypt --> no service               --> start
//! ```
//!
//! Each step finds out whether it is done, so both go on where they were cut off; `unprotect` takes
//! back whatever `protect` has done by then.

mod confined;
mod engine;
mod estimate;
mod keys;
mod mysqld;
mod outside;
mod plan;
mod postgres;
mod record;
mod target;
mod unprotect;

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::io::Errno;

use crate::begun::Lock;
use crate::console;
use crate::convert::Foreseen;
use crate::error::{Error, Result};
use crate::folder::Entry;
use crate::protected::{Protected, is_protected};
use crate::server::{Loaded, Server};
use crate::service;
use crate::starter::without_suffix;
use crate::this_program;
use crate::unlock::KeyOptions;
use keys::Keys;
use record::{Goal, PROTECTION, Record, Stage, Typed};
use target::{Target, Which};

pub(crate) use keys::refuse_for_units;
pub(crate) use target::{data_directory, refuse_container};
pub(crate) use unprotect::Unprotect;

/// Seal an existing PostgreSQL, MariaDB or MySQL: stop, convert, have it start with the library
#[derive(clap::Args)]
#[command(
    after_help = "Another call goes on where one was cut off, and `tidelock unprotect` takes \
                        it back at any point. docs/lifecycle.md says what stays in the clear."
)]
pub(crate) struct Protect {
    #[command(flatten)]
    which: Which,
    /// Ask nothing
    #[arg(short, long)]
    yes: bool,
    /// Copy the running server to NEW instead, and stop it for the switchover only
    #[arg(long, value_name = "NEW")]
    without_stopping: Option<PathBuf>,
    /// The server's user who is asked for settings [default: postgres; else the owner of DIR]
    #[arg(short = 'U', long, value_name = "ROLE")]
    username: Option<String>,
    /// Go on although SELinux is enforced: its policy lets the unit's server load the library
    #[arg(long)]
    selinux_allows: bool,
    /// Go on although AppArmor confines the server: its profile lets it load and use the library
    #[arg(long)]
    apparmor_allows: bool,
    #[command(flatten)]
    conversion: Conversion,
    #[command(flatten)]
    keys: Keys,
}

/// How the files are converted in place, handed on to `tidelock encrypt` and `tidelock decrypt`
#[derive(clap::Args)]
struct Conversion {
    /// Work on so many files at once [default: the number of processors, at most 4]
    #[arg(long, value_name = "N", conflicts_with = "without_stopping")]
    jobs: Option<usize>,
    /// Convert files that have other names outside of the directory; these stay as they are
    #[arg(long, conflicts_with = "without_stopping")]
    leave_links: bool,
    /// The places that links of a stopped server lead to are its own, though nobody reads the plan
    #[arg(long, conflicts_with = "without_stopping")]
    outside: bool,
}

impl Protect {
    /// # Errors
    /// Something stands in the way; a step failed, and another call goes on.
    pub(crate) fn run(self) -> Result<()> {
        let mut target = self.which.find()?;
        if let Some(new) = &self.without_stopping {
            return self.by_a_copy(&target, new);
        }
        let lock = PROTECTION.lock(target.dir())?;
        target.engine.hold(&lock)?;
        let typed = self.typed(&target)?;
        let record = match PROTECTION.read::<Record>(target.dir())? {
            Some(record) if record.goal == Goal::Unprotect => {
                return Err(Error::refused(
                    format!("{} is being taken back", target.dir().display()),
                    format!("`tidelock unprotect {}` goes on", self.which.words()),
                ));
            }
            Some(record) if is_protected(target.dir()) => self.go_on(&target, record, &typed)?,
            // Nothing is protected yet, or `tidelock decrypt` has made all of it plain since.
            found => {
                let begun = found.filter(|it| it.stage == Stage::Converting);
                self.plan(&target, begun, typed)?
            }
        };
        self.steps(&target, record, &lock)
    }

    fn typed(&self, target: &Target) -> Result<Typed> {
        let unit = target.unit.as_deref().map(|unit| without_suffix(unit).to_owned());
        Ok(Typed { unit, keys: self.keys.words()? })
    }

    /// What was begun, and is protected by now. The second copy may go elsewhere.
    fn go_on(&self, target: &Target, mut record: Record, typed: &Typed) -> Result<Record> {
        let dir = target.dir();
        if let Some(before) = record.typed.as_ref().filter(|before| *before != typed) {
            return Err(before.are_others(dir));
        }
        if record.stage == Stage::Converted && half_done(dir)? {
            return Err(Error::refused(
                format!("another conversion of {} has begun since, and is not done", dir.display()),
                format!(
                    "`tidelock encrypt --resume {0}` or `tidelock decrypt --resume {0}` ends it; \
                     then the same command",
                    dir.display()
                ),
            ));
        }
        let copy = self.keys.copy_instead(record.keyring_copy.clone(), dir)?;
        if copy != record.keyring_copy {
            record.keyring_copy = copy;
            PROTECTION.write(dir, &record)?;
        }
        Ok(record)
    }

    /// As `tidelock migrate --switch` does it.
    fn by_a_copy(&self, target: &Target, new: &Path) -> Result<()> {
        self.refuse_confined(target)?;
        self.keys.check(target.dir(), target.unit.as_deref())?;
        let mut command = migrate(target, new, self.username.as_deref(), self.yes)?;
        self.keys.pass(&mut command)?;
        tidelock(command, "migration")?;
        copy_keyring(new, self.keys.keyring_copy.as_deref())
    }

    /// Refuses where the machine's policies may keep the library out of the server.
    fn refuse_confined(&self, target: &Target) -> Result<()> {
        if target.unit.is_some() && !self.selinux_allows {
            confined::refuse_selinux()?;
        }
        match target.engine.running() {
            Some(pid) if !self.apparmor_allows => confined::refuse_apparmor(pid),
            _ => Ok(()),
        }
    }

    /// Everything that is still to be done.
    fn steps(&self, target: &Target, mut record: Record, lock: &Lock) -> Result<()> {
        let dir = target.dir();
        let again = format!(
            "the same command goes on; `tidelock unprotect {}` takes it back",
            self.which.words()
        );
        let stopped = |step: &'static str| {
            let again = again.clone();
            move |why: Error| Error::Stopped { step, why: Box::new(why), again }
        };
        if record.stage == Stage::Converting {
            if let Err(why) = target.stop(&record.triggers) {
                return Err(match is_protected(dir) {
                    true => stopped("stop")(why),
                    false => self.start_again(target, &record, None, why),
                });
            }
            // What somebody has put there since the plan does not belong to this call.
            if !is_protected(dir)
                && let Err(why) = self.keys.refuse_existing()
            {
                return Err(self.start_again(target, &record, None, why));
            }
            if let Err(why) = self.encrypt(target, lock) {
                let recovery = record.recovery_file.as_deref();
                return Err(match is_protected(dir) {
                    true => stopped("conversion")(why),
                    false => self.start_again(target, &record, recovery, why),
                });
            }
            record.stage = Stage::Converted;
            PROTECTION.write(dir, &record)?;
        }
        copy_keyring(dir, record.keyring_copy.as_deref())
            .map_err(stopped("copy of the keyring"))?;
        if let Some(unit) = &target.unit {
            service::install(unit, dir).map_err(stopped("service"))?;
        }
        // A person opens it with the start below.
        if !self.keys.need_a_person() {
            let mut command = ourselves()?;
            command.args(["key", "check", "-D"]).arg(dir);
            let opens = tidelock(command, "key check");
            if target.unit.is_some() {
                opens.map_err(stopped("key check"))?;
            }
        }
        target.start_triggers(&record.triggers);
        if record.was_running {
            come_up(target, &record, self.username.as_deref(), Loaded::Yes)
                .map_err(|(step, why)| stopped(step)(why))?;
        }
        PROTECTION.remove(dir)?;
        console::print(format_args!(
            "protected     {}\nundo          tidelock unprotect {}\n",
            dir.display(),
            self.which.words()
        ))
    }

    /// Nothing is sealed, and the server goes on as it was; `recovery` is where the conversion may
    /// have written its recovery key.
    fn start_again(
        &self,
        target: &Target,
        record: &Record,
        recovery: Option<&Path>,
        why: Error,
    ) -> Error {
        let started = || -> Result<()> {
            set_aside(recovery)?;
            target.start_triggers(&record.triggers);
            if record.was_running {
                // Also where the server runs, and the unit was stopped without it.
                target.start_other_unit()?;
                let user = self.username.as_deref();
                come_up(target, record, user, Loaded::No).map_err(|(_, why)| why)?;
            }
            Ok(())
        };
        let started = started();
        // Nothing goes on from here, whatever has come up.
        let removed = PROTECTION.remove(target.dir());
        let told = || console::print("plain         nothing is sealed, and nothing has begun\n");
        match started.and(removed).and_then(|()| told()) {
            Ok(()) => why,
            Err(why) => Error::Stopped {
                step: "start",
                why: Box::new(why),
                again: "nothing is sealed: start the server as ever".to_owned(),
            },
        }
    }

    /// By a process of its own, which becomes the owner of the directory.
    fn encrypt(&self, target: &Target, lock: &Lock) -> Result<()> {
        let dir = target.dir();
        let mut command = self.encryption(dir)?;
        command.stdin(lock.share()?);
        if is_protected(dir) {
            if !half_done(dir)? {
                return Ok(());
            }
            command.arg("--resume");
        }
        tidelock(command, "encrypt")
    }

    fn encryption(&self, dir: &Path) -> Result<Command> {
        let mut command = ourselves()?;
        command.arg("encrypt").arg(dir);
        self.keys.pass(&mut command)?;
        self.conversion.pass(&mut command);
        Ok(command)
    }
}

impl Conversion {
    /// As they were typed.
    fn pass(&self, command: &mut Command) {
        if let Some(jobs) = self.jobs {
            command.args(["--jobs", &jobs.to_string()]);
        }
        if self.leave_links {
            command.arg("--leave-links");
        }
        // The plan names them.
        command.arg("--outside");
    }

    /// The links of a server that runs are its own; those of a copy are its original's.
    ///
    /// # Errors
    /// [`Error::Refused`] if there are such places, and nobody has said whose they are.
    fn refuse_unread(&self, dir: &Path, foreseen: &Foreseen) -> Result<()> {
        if self.outside || foreseen.places.is_empty() {
            return Ok(());
        }
        Err(Error::refused(
            format!(
                "links of {} lead out, and nobody has said that the places are its own",
                dir.display()
            ),
            "say --outside; or leave --yes out, and read the plan",
        ))
    }
}

/// A conversion of the directory was interrupted.
fn half_done(dir: &Path) -> Result<bool> {
    let keyring = KeyOptions::default().unlock(&Protected::open(dir)?)?;
    Ok(keyring.conversion().is_some())
}

/// Starts the server unless it runs, and asks it. One that a call had told to stop before it was
/// killed is waited for, and started again.
fn come_up(
    target: &Target,
    record: &Record,
    user: Option<&str>,
    wanted: Loaded,
) -> std::result::Result<(), (&'static str, Error)> {
    let settled = || target.engine.settled();
    let mut tries = 3;
    loop {
        let mut server = settled();
        if server.is_none() {
            let log = record.log.as_deref();
            target.start(&record.options, log).map_err(|why| ("start", why))?;
            server = target.started();
        }
        tries -= 1;
        match answers(target, user, wanted) {
            Ok(()) => return Ok(()),
            Err(_) if tries > 0 && settled() != server => {}
            Err(why) => return Err(("check", why)),
        }
    }
}

/// The server runs, with the library or without it, and answers.
fn answers(target: &Target, user: Option<&str>, wanted: Loaded) -> Result<()> {
    let dir = target.dir();
    let Server::Running { pid, library, .. } = Server::on(dir) else {
        return Err(Error::NoServer { dir: dir.into() });
    };
    match library {
        found if found == wanted => {}
        Loaded::No => return Err(Error::WithoutLibrary { pid }),
        Loaded::CannotBeTold => return Err(Error::LibraryUnknown { pid }),
        Loaded::Yes => {
            return Err(Error::refused(
                format!("the library is loaded in process {pid}, though nothing is sealed"),
                "take LD_PRELOAD out of what starts it",
            ));
        }
    }
    let told = target.engine.answer(user)?;
    let library = if wanted == Loaded::Yes { "with" } else { "without" };
    console::print(format_args!("runs          process {pid}, {library} the library; {told}\n"))
}

/// As it is found from any directory.
fn absolute(file: Option<&Path>) -> Result<Option<PathBuf>> {
    file.map(|file| std::path::absolute(file).map_err(Error::io("find", file))).transpose()
}

/// A recovery key that a call wrote which ended before there was a keyring opens nothing, and would
/// be in the way. Only its name changes, to one that is free: it may be another directory's.
fn set_aside(recovery: Option<&Path>) -> Result<()> {
    let Some(file) = recovery else { return Ok(()) };
    let entry = match Entry::of(file) {
        Err(why) if why.is_not_found() => return Ok(()),
        entry => entry?,
    };
    if !entry.exists()? {
        return Ok(());
    }
    let mut number = 1;
    let unused = loop {
        let mut name = entry.name().to_owned();
        name.push(".unused");
        if number > 1 {
            name.push(format!("-{number}"));
        }
        let unused = entry.folder().entry(name);
        match entry.become_new(&unused) {
            Ok(()) => break unused.path(),
            Err(Errno::EXIST) => number += 1,
            Err(errno) => return Err(Error::io("rename", file)(errno.into())),
        }
    };
    console::warn(
        format!(
            "{} was in the way, and is called {} now: a call that ended before there was a \
             keyring may have written it",
            file.display(),
            unused.display()
        ),
        "it may be the recovery key of another directory, or of a keyring that `tidelock decrypt` \
         has kept: try it there with `--recovery-file` before you remove it",
    );
    entry.folder().sync()
}

/// The second copy, if one is wanted.
fn copy_keyring(dir: &Path, file: Option<&Path>) -> Result<()> {
    let Some(file) = file else { return Ok(()) };
    let mut command = ourselves()?;
    command.args(["keyring", "backup", "-D"]).arg(dir).arg(file);
    tidelock(command, "keyring backup")
}

fn migrate(target: &Target, new: &Path, user: Option<&str>, yes: bool) -> Result<Command> {
    target.engine.refuse_without_copies()?;
    let mut command = ourselves()?;
    // Of the units, it knows those of clusters.
    let from = target.engine.unit().map_or_else(|| target.dir().into(), PathBuf::from);
    command.arg("migrate").arg(from).arg(new).arg("--switch");
    if let Some(user) = user {
        command.args(["--username", user]);
    }
    if yes {
        command.arg("--yes");
    }
    Ok(command)
}

/// The command itself, by the same user.
fn ourselves() -> Result<Command> {
    this_program::path().map(Command::new)
}

/// Runs it with this terminal; it says itself what goes wrong.
fn tidelock(mut command: Command, what: &'static str) -> Result<()> {
    let status = command.status().map_err(Error::io("run", command.get_program()))?;
    if status.success() {
        return Ok(());
    }
    Err(Error::Tool {
        program: format!("tidelock {what}"),
        ended: status.to_string(),
        said: "its message stands above".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_recovery_key_that_is_set_aside_takes_no_others_place() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("recovery");
        for text in ["one", "two", "three"] {
            fs::write(&file, text).unwrap();
            set_aside(Some(&file)).unwrap();
        }
        assert!(!file.exists());
        for (name, text) in [("unused", "one"), ("unused-2", "two"), ("unused-3", "three")] {
            let kept = fs::read_to_string(file.with_extension(name)).unwrap();
            assert_eq!(kept, text, "{name}");
        }
        // Nothing is there, or no place for it.
        set_aside(Some(&file)).unwrap();
        set_aside(Some(&home.path().join("no/recovery"))).unwrap();
    }
}

//! How a conversion begins: for the first time, or where an interrupted one stands.
//!
//! Whatever may refuse comes before the keyring records it; nothing is written until then.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Serialize;
use tidelock_agent::audit::Event;
use tidelock_format::{Layout, Probe, looks_sealed};
use tidelock_keyring::{Conversion, Direction, Keyring, KeyringDir, SealedKeyring};
use tidelock_providers::{Places, RecoveryKey};

use super::file::Conditions;
use super::rights::become_owner;
use super::scan::{NEXT, Scan, first, scan};
use super::throttle::Throttle;
use super::{
    BATCH, Decrypt, Encrypt, How, Rekey, Running, estimate, hold, instance, protected, rights,
};
use crate::console;
use crate::error::{Error, Result};
use crate::folder::Entry;
use crate::init::{self, NewDirectory};
use crate::keyring::earlier;
use crate::mysqld::Brand;
use crate::owner::Owner;
use crate::protected::{self as directory, Protected};
use crate::rollback;
use crate::running::{Found, Programs};
use crate::sealed::Keys;
use crate::server::Server;
use crate::unlock::KeyOptions;

/// A keyring is not longer.
const MOST: u64 = 2 << 20;
/// An agent ends a few seconds after its last program.
const PATIENCE: Duration = Duration::from_secs(20);

/// How much longer a file gets at most.
pub(super) fn growth(direction: Direction, layout: Layout) -> u64 {
    match direction {
        Direction::Encrypt => u64::from(layout.data_offset()) + 32,
        Direction::Decrypt | Direction::Rekey => 0,
    }
}

impl Encrypt {
    /// # Errors
    /// DIR is no stopped instance, or a protected directory already; a file cannot be converted.
    pub(crate) fn run(self) -> Result<()> {
        if let Some(found) = protected(&self.dir)? {
            let keys = KeyOptions {
                provider: self.making.provider.clone(),
                passphrase_fd: self.making.passphrase_fd.clone(),
                ..KeyOptions::default()
            };
            return match resume(&found, &keys, (Direction::Encrypt, None), &self.how)? {
                Some(running) => running.go(None),
                None => Err(Error::refused(
                    format!("{} is a protected directory already", found.path.display()),
                    "`tidelock rekey` encrypts it again; `tidelock verify` looks for plain files",
                )),
            };
        }
        let making = init::lock(&self.dir)?;
        let place = NewDirectory::with_data(&self.dir)?;
        let dir = place.path.clone();
        let profile = self.profile_for(&dir)?;
        let locked = instance::lock_out(&dir)?;
        instance::refuse_unclean(&dir, profile, None)?;
        crate::mysqld::refuse_tables_elsewhere(&dir)?;
        let (policy, layout) = self.making.check(&place, profile)?;
        instance::refuse_working(&dir, &policy, &|_| false)?;
        rights::check(&dir, &policy, place.owner, Direction::Encrypt)?;
        let scan = scan(&dir, &policy, self.how.leave_links)?;
        refuse_sealed(&scan)?;
        scan.refuse_protected_below(&dir)?;
        scan.refuse_everybodys(&dir)?;
        scan.refuse_too_many_links(&dir, &policy)?;
        // A lease is the owner's to take, and root's only with a capability.
        rights::as_owner(place.owner, || scan.refuse_written(&locked))?;
        let growth = growth(Direction::Encrypt, layout);
        let room = estimate::room(&scan, growth, self.how.jobs(), BATCH)?;
        if self.how.dry_run {
            let recovery = RecoveryKey::random()?;
            let keyring = Keyring::create(policy, layout, &[&recovery])?;
            become_owner(place.owner)?;
            return tell(&keyring, Direction::Encrypt, &scan, &room, &self.how);
        }
        if self.how.json && self.making.prints_recovery() {
            return Err(Error::refused(
                "a recovery key is not printed between lines of JSON",
                "write it to a file with --recovery-file FILE, or make none with --no-recovery",
            ));
        }
        scan.agree_to_places(&dir, &self.how)?;
        let conversion = Some(Conversion::begin(Direction::Encrypt));
        let made = self.making.make(&place, profile, conversion)?;
        if !self.how.json {
            let start = match instance::engine(&dir, profile) {
                "postgres" => format!("pg_ctl start -D {}", dir.display()),
                other => match Brand::of_profile(other) {
                    Some(brand) => format!("{} --datadir={}", brand.server(), dir.display()),
                    None => "PROGRAM".to_owned(),
                },
            };
            made.tell(&format!("tidelock exec -D {} -- {start}", dir.display()))?;
        }
        let alone = hold(&dir, &made.folder)?;
        // From here on the keyring keeps others away. The folder above may hold other directories.
        drop(making);
        let running = Running {
            direction: Direction::Encrypt,
            path: dir,
            keyring: made.keyring,
            folder: made.folder,
            how: &self.how,
            resumed: false,
            _alone: alone,
            locked,
        };
        running.begun(place.owner)?.go(None)
    }

    /// The profile that was named, else that of the engine.
    pub(super) fn profile_for(&self, dir: &Path) -> Result<&str> {
        self.profile.as_deref().or_else(|| instance::profile(dir)).ok_or_else(|| {
            Error::refused(
                format!("{} does not look like a data directory that is known", dir.display()),
                "name the profile, for example --profile generic",
            )
        })
    }
}

impl Decrypt {
    /// # Errors
    /// DIR is no stopped protected directory; the keyring does not open; a file cannot be
    /// converted.
    pub(crate) fn run(self) -> Result<()> {
        let found = Protected::open(&self.dir)?;
        let kept = self.kept(&found)?;
        let decrypt = (Direction::Decrypt, Some(&*kept));
        if let Some(running) = resume(&found, &self.keys, decrypt, &self.how)? {
            return running.go(Some(&kept));
        }
        let begin = Begin { found, keys: &self.keys, how: &self.how };
        begin.run(Direction::Decrypt, Some(&kept))
    }

    /// Where the copy of the keyring goes: not where it goes with the directory.
    pub(super) fn kept(&self, found: &Protected) -> Result<PathBuf> {
        let kept = self.place_of_copy(found)?;
        // Folders that are not there yet are made.
        let inside = kept.ancestors().skip(1).find_map(|folder| folder.canonicalize().ok());
        if inside.is_some_and(|folder| folder.starts_with(&found.path)) {
            return Err(Error::refused(
                format!("{} lies in the directory that is made plain", kept.display()),
                "name a file elsewhere with --keep-keyring FILE",
            ));
        }
        Ok(kept)
    }

    fn place_of_copy(&self, found: &Protected) -> Result<PathBuf> {
        if let Some(path) = &self.keep_keyring {
            return std::path::absolute(path).map_err(Error::io("find", path));
        }
        let id = found.keyring.id();
        let places = Places::of_process();
        let own = places.own.map(|own| own.join("keyrings"));
        let own = own.filter(|own| own.join(format!("{id}.toml")).exists());
        let folder = own.unwrap_or_else(|| places.system.join("keyrings"));
        Ok(folder.join(format!("{id}.keyring")))
    }
}

impl Rekey {
    /// # Errors
    /// As [`Decrypt::run`].
    pub(crate) fn run(self) -> Result<()> {
        let found = Protected::open(&self.dir)?;
        if let Some(running) = resume(&found, &self.keys, (Direction::Rekey, None), &self.how)? {
            return running.go(None);
        }
        Begin { found, keys: &self.keys, how: &self.how }.run(Direction::Rekey, None)
    }
}

impl Running<'_> {
    /// The keyring says now that it is under way: the audit log does too, and the files are left to
    /// the owner's rights.
    fn begun(self, owner: Owner) -> Result<Self> {
        self.record(Event::ConversionBegin);
        become_owner(owner)?;
        Ok(self)
    }
}

/// A conversion of a protected directory that begins.
struct Begin<'b> {
    found: Protected,
    keys: &'b KeyOptions,
    how: &'b How,
}

impl Begin<'_> {
    fn run(self, direction: Direction, kept: Option<&Path>) -> Result<()> {
        if self.how.resume {
            return Err(Error::refused(
                format!("nothing was interrupted on {}", self.found.path.display()),
                format!("leave --resume out: `tidelock {}` begins", direction.command()),
            ));
        }
        let dir = self.found.path.clone();
        refuse_use(&self.found)?;
        let (protected, folder) = Protected::hold(&directory::folder(&dir)?)?;
        let mut keyring = self.keys.unlock(&protected)?;
        rollback::refuse(&protected)?;
        let alone = hold(&dir, &folder)?;
        let locked = instance::lock_out(&dir)?;
        let owner = directory::folder(&dir)?.owner()?;
        let policy = keyring.policy();
        rights::check(&dir, policy, owner, direction)?;
        if self.how.dry_run {
            become_owner(owner)?;
        }
        let scan = scan(&dir, policy, self.how.leave_links)?;
        scan.refuse_sealed_at_plain(&keyring)?;
        scan.refuse_unopened(&keyring, direction)?;
        rights::as_owner(owner, || scan.refuse_written(&locked))?;
        let room = estimate::room(&scan, 0, self.how.jobs(), BATCH)?;
        instance::refuse_unclean_sealed(&dir, &keyring)?;
        scan.refuse_shared(&protected)?;
        if !self.how.dry_run {
            scan.agree_to_places(&dir, self.how)?;
        }
        if let Some(kept) = kept.filter(|_| !self.how.dry_run) {
            keep(&folder.bytes()?, kept)?;
            keep_replaced(&folder, kept)?;
        }
        if direction == Direction::Rekey {
            keyring.add_data_key()?;
        }
        if self.how.dry_run {
            return tell(&keyring, direction, &scan, &room, self.how);
        }
        keyring.set_conversion(Some(Conversion::begin(direction)));
        folder.write(&mut keyring)?;
        let running = Running {
            direction,
            path: dir,
            keyring,
            folder,
            how: self.how,
            resumed: false,
            _alone: alone,
            locked,
        };
        running.begun(owner)?.go(kept)
    }
}

/// The interrupted conversion of a directory, if there is one and it shall go on, in `direction`.
/// One that ends without a keyring leaves a copy of it in `kept`: what is turned round has none.
///
/// # Errors
/// It was not said that it shall; the keyring does not open; programs use the directory.
fn resume<'h>(
    found: &Protected,
    keys: &KeyOptions,
    (direction, kept): (Direction, Option<&Path>),
    how: &'h How,
) -> Result<Option<Running<'h>>> {
    let (protected, folder) = Protected::hold(&directory::folder(&found.path)?)?;
    let mut keyring = keys.unlock(&protected)?;
    let Some(conversion) = keyring.conversion() else { return Ok(None) };
    let (before, dir) = (conversion.direction, protected.path.clone());
    let is_rekey = [before, direction].contains(&Direction::Rekey);
    if before != direction && is_rekey && direction != Direction::Decrypt {
        return Err(other(before, &dir));
    }
    if how.dry_run || !(how.resume || agreed(conversion, &dir)?) {
        return Err(other(before, &dir));
    }
    refuse_use(&protected)?;
    rollback::refuse(&protected)?;
    let alone = hold(&dir, &folder)?;
    let locked = instance::lock_out(&dir)?;
    let owner = directory::folder(&dir)?.owner()?;
    rights::check(&dir, keyring.policy(), owner, direction)?;
    let found = scan(&dir, keyring.policy(), true)?;
    found.refuse_shared(&protected)?;
    match direction {
        Direction::Encrypt => instance::refuse_working(&dir, keyring.policy(), &|_| false)?,
        _ => found.refuse_sealed_at_plain(&keyring)?,
    }
    if let Some(kept) = kept {
        // Without the mark: nothing is half done where somebody restores it.
        keyring.set_conversion(None);
        let sealed = keyring.seal();
        keyring.set_conversion(Some(conversion));
        keep(&sealed?, kept)?;
        keep_replaced(&folder, kept)?;
    }
    if before != direction {
        let begun = console::time(conversion.begun);
        console::warn(
            format!("this turns round what `tidelock {}` began on {begun}", before.command()),
            "files that are done by now are done again",
        );
        // Which form they have does not change by this.
        let zeros_are_plain = conversion.zeros_are_plain;
        let turned = Conversion { zeros_are_plain, ..Conversion::begin(direction) };
        keyring.set_conversion(Some(turned));
        folder.write(&mut keyring)?;
    }
    let running = Running {
        direction,
        path: dir,
        keyring,
        folder,
        how,
        resumed: true,
        _alone: alone,
        locked,
    };
    running.begun(owner).map(Some)
}

fn other(before: Direction, dir: &Path) -> Error {
    tidelock_agent::Error::HalfConverted { directory: dir.to_path_buf(), direction: before }.into()
}

/// Asks somebody at a terminal whether it shall go on.
fn agreed(conversion: Conversion, dir: &Path) -> Result<bool> {
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(false);
    }
    eprint!(
        "`tidelock {}` of {} was begun on {} and interrupted. Go on? [y/N] ",
        conversion.direction.command(),
        dir.display(),
        console::time(conversion.begun)
    );
    let failed = |why| Error::io("ask at", "the terminal")(why);
    std::io::stderr().flush().map_err(failed)?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(failed)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Programs and agents have the keys until they end.
fn refuse_use(protected: &Protected) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        let server = Server::on(&protected.path);
        if let Server::Running { pid, .. } = server {
            return Err(Error::refused(
                format!("a server runs on {}: process {pid}", protected.path.display()),
                "stop it first",
            ));
        }
        let programs = Programs::of(&protected.path);
        let who = match Found::look(protected, &server, &programs) {
            Found::Answers(agent) => {
                if agent.clients == 0 && programs.heads().is_empty() {
                    agent.end(&protected.path);
                }
                format!("agent, process {}", agent.pid)
            }
            Found::Silent(agent) => agent.to_string(),
            Found::Nobody => match (programs.heads().first(), instance::user_of(&protected.path)) {
                (Some(pid), _) => format!("process {pid}"),
                (None, Some((pid, path))) => format!("process {pid} has {} open", path.display()),
                (None, None) => return Ok(()),
            },
        };
        if Instant::now() > until {
            return Err(Error::refused(
                format!("{} is in use: {who}", protected.path.display()),
                "stop them; the agent ends a few seconds after the last",
            ));
        }
        sleep(Duration::from_millis(200));
    }
}

/// A file that is sealed already belongs to another keyring, as does what a conversion has left.
pub(super) fn refuse_sealed(scan: &Scan) -> Result<()> {
    if let Some(path) = scan.leftovers.first() {
        return Err(Error::refused(
            format!("{} has a name that conversions use ({NEXT})", path.display()),
            "see what it is, and remove it",
        ));
    }
    for path in scan.items.iter().filter_map(|item| item.names.first()) {
        let first = match first(path) {
            // A server that runs has removed it meanwhile.
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => continue,
            first => first.map_err(Error::io("read", path))?,
        };
        if !looks_sealed(&first) {
            continue;
        }
        let probe = Probe::parse(&first);
        return Err(match probe.ranked().next() {
            Some(copy) => Error::refused(
                format!(
                    "{} is sealed already, under keyring {}",
                    path.display(),
                    copy.outline.keyring
                ),
                "move it out; or restore that keyring with `tidelock keyring restore`",
            ),
            None => Error::refused(
                format!("{} begins as a sealed file does, and is cut off", path.display()),
                "move it out",
            ),
        });
    }
    Ok(())
}

/// Keeps a copy of the keyring. A newer copy may have keys that this one has not, and is refused.
/// An older one, or another of the same generation, may have such keys too, as where a directory
/// was copied and both got data keys: it stays beside.
pub(super) fn keep(sealed: &[u8], kept: &Path) -> Result<()> {
    let entry = Entry::of_new_folder(kept)?;
    let ours = SealedKeyring::parse(sealed)?;
    if let Some(found) = entry.read(MOST)? {
        let there = SealedKeyring::parse(&found).ok().filter(|it| it.id() == ours.id());
        let Some(there) = there else {
            return Err(Error::refused(
                format!("{} is there already, and is no copy of this keyring", kept.display()),
                "name another file with --keep-keyring FILE",
            ));
        };
        let (newer, older) = (there.generation(), ours.generation());
        if newer > older {
            return Err(Error::refused(
                format!(
                    "{} is a newer copy of this keyring, generation {}: the one here has {}",
                    kept.display(),
                    newer.0,
                    older.0
                ),
                "was the keyring put back? else name another file with --keep-keyring FILE",
            ));
        }
        if found != sealed {
            earlier::keep(&entry, &found, &there)?;
        }
    }
    entry.replace(sealed, 0o600, None)
}

/// The same for keyrings that another has replaced.
fn keep_replaced(folder: &KeyringDir, kept: &Path) -> Result<()> {
    let control = Entry::of(folder.path())?.open_folder()?;
    earlier::keep_replaced(&control, &Entry::of_new_folder(kept)?)
}

/// What would be done, for programs.
#[derive(Serialize)]
struct Estimate {
    event: &'static str,
    files: usize,
    bytes: u64,
    empty: usize,
    plain: usize,
    jobs: usize,
    /// With one worker, by a sample of the files; null where none can be tried.
    seconds: Option<f64>,
    /// On each file system.
    space: Vec<Space>,
}

#[derive(Serialize)]
struct Space {
    folder: PathBuf,
    bytes: u64,
}

fn tell(
    keyring: &Keyring,
    direction: Direction,
    scan: &Scan,
    (jobs, needs): &(usize, Vec<(PathBuf, u64)>),
    how: &How,
) -> Result<()> {
    let stop = AtomicBool::new(false);
    let keys = Keys::install(keyring)?;
    let throttle = Arc::new(Throttle::new(how.rate));
    let conditions = Conditions { keys: &keys, task: direction.into(), throttle, stop: &stop };
    let seconds = estimate::time(&conditions, scan)?.map(|time| time.as_secs_f64());
    if how.json {
        let space =
            needs.iter().map(|(folder, bytes)| Space { folder: folder.clone(), bytes: *bytes });
        return console::print_json_line(
            direction.command(),
            &Estimate {
                event: "estimate",
                files: scan.items.len(),
                bytes: scan.bytes(),
                empty: scan.empty,
                plain: scan.plain.len(),
                jobs: *jobs,
                seconds,
                space: space.collect(),
            },
        );
    }
    let mut text = format!(
        "{} would be {}: {}; {} empty, {} plain by the profile\n",
        console::count(scan.items.len(), "file"),
        direction.participle(),
        console::bytes(scan.bytes()),
        scan.empty,
        scan.plain.len()
    );
    for (link, target) in scan.places() {
        text += &format!("{} leads to {}, converted too\n", link.display(), target.display());
    }
    text += &match seconds {
        Some(seconds) => format!(
            "about {seconds:.0} s with one worker, by a sample; comparing takes about half as \
             long again\n"
        ),
        None => "how long is not known: the file system has no files without a name\n".to_owned(),
    };
    if *jobs < how.jobs() {
        text += "one file at a time: there is no room for more\n";
    }
    for (folder, bytes) in needs {
        text += &format!("{} must be free around {}\n", console::bytes(*bytes), folder.display());
    }
    console::print(text)
}

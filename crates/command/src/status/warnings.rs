//! What is dangerous, and what to do about it.

use std::path::{Path, PathBuf};

use serde::Serialize;
use tidelock_providers::{Config, ProviderChoice, RecoveryKey};

use crate::console;
use crate::keyring::{CopyState, is_beside_data, is_same_filesystem};
use crate::postgres::settings::Setting;
use crate::server::{Loaded, Server};
use crate::status::pgbackrest::{self, Doubt};
use crate::status::{CopyReport, Output, leaks};

/// Something that should be otherwise.
#[derive(Serialize)]
pub(super) struct Warning {
    /// For programs; stays the same.
    pub(super) kind: &'static str,
    /// For people.
    pub(super) what: String,
    /// What to do.
    pub(super) hint: &'static str,
}

/// All that is dangerous here; `programs` run with keys, `choices` open the keyring.
pub(super) fn of(
    report: &Output,
    programs: &[i32],
    choices: &[ProviderChoice],
    config: &Config,
) -> Vec<Warning> {
    let mut found = Warnings(Vec::new());
    found.settings(&report.settings);
    found.conversion(report);
    found.archive(&report.settings);
    found.repositories(report, config);
    found.control_file(report);
    found.files(report);
    found.copies(report);
    found.recovery_key(report);
    found.data_key(report, config);
    found.providers(report, choices);
    let running = running(report, programs);
    found.no_agent(report, running);
    found.memory(running, config.core_dumps);
    found.agent(report);
    found.0
}

/// A process that runs with keys of this directory, if there is one.
fn running(report: &Output, programs: &[i32]) -> Option<u32> {
    match report.server {
        Server::Running { pid, library: Loaded::Yes, .. } => Some(pid),
        _ => programs.first().and_then(|pid| u32::try_from(*pid).ok()),
    }
}

/// As they are found, one function for each subject.
struct Warnings(Vec<Warning>);

impl Warnings {
    fn push(&mut self, kind: &'static str, what: impl Into<String>, hint: &'static str) {
        self.0.push(Warning { kind, what: what.into(), hint });
    }

    /// What the settings do to pages and to the library.
    fn settings(&mut self, settings: &[Setting]) {
        for setting in settings {
            let (value, from) = (&setting.value, setting.from.display());
            match setting.name.as_str() {
                "full_page_writes" if setting.is_off() => self.push(
                    "full_page_writes_off",
                    format!("full_page_writes = {value} ({from})"),
                    "set it to on: without it a power cut damages pages, sealed or not",
                ),
                "fsync" if setting.is_off() => self.push(
                    "fsync_off",
                    format!("fsync = {value} ({from})"),
                    "set it to on: without it a power cut loses headers, and with them whole files",
                ),
                "io_method" if value == "io_uring" => self.push(
                    "io_uring",
                    format!("io_method = io_uring ({from})"),
                    "set it to worker or sync: io_uring goes round the library, so the server will \
                     not start",
                ),
                _ => {}
            }
        }
    }

    /// A conversion that has begun and not ended.
    fn conversion(&mut self, report: &Output) {
        if let Some(it) = report.unlocked.as_ref().and_then(|all| all.conversion.as_ref()) {
            self.push(
                "half_converted",
                format!("the directory is half {}: start nothing on it", it.direction.participle()),
                "run `tidelock encrypt`, `decrypt` or `rekey`, whichever began, with --resume DIR",
            );
        }
    }

    /// What becomes of the WAL that leaves the directory.
    fn archive(&mut self, settings: &[Setting]) {
        let find = |name: &str| settings.iter().find(|setting| setting.name == name);
        let set = |name| find(name).filter(|setting| !setting.value.is_empty());
        if find("archive_mode").is_none_or(Setting::is_off) {
            return;
        }
        if let Some(library) = set("archive_library") {
            self.push(
                "plain_archive",
                format!(
                    "archive_library = {} ({}) writes plain WAL to wherever its archive is",
                    library.value,
                    library.from.display()
                ),
                "use archive_command = 'tidelock wal put %p ARCHIVE' (docs/archive.md)",
            );
        } else if let Some(command) = set("archive_command").filter(|it| copies_files(&it.value)) {
            self.push(
                "archive_under_own_keys",
                format!(
                    "archive_command = {} ({}) archives WAL under this directory's keys: another \
                     node cannot restore it",
                    command.value,
                    command.from.display()
                ),
                "use archive_command = 'tidelock wal put %p ARCHIVE' (docs/archive.md), or have \
                 the other nodes adopt the keys",
            );
        }
    }

    /// Where a pgBackRest that gets keys puts what it reads.
    fn repositories(&mut self, report: &Output, config: &Config) {
        let listed = report.unlocked.iter().flat_map(|all| &all.programs).map(Path::new);
        let mut with_keys = listed.chain(config.helpers.iter().map(PathBuf::as_path));
        if !with_keys.any(|path| path.file_name().is_some_and(|name| name == pgbackrest::PROGRAM)) {
            return;
        }
        for doubt in pgbackrest::doubts(&report.directory, &report.settings) {
            self.repository(doubt);
        }
    }

    fn repository(&mut self, doubt: Doubt) {
        match doubt {
            Doubt::Plain { repository, place, from } => self.push(
                "plain_repository",
                format!(
                    "pgBackRest gets plain pages and stores them plain: repo{repository}, {place} \
                     ({})",
                    from.display()
                ),
                "set repoN-cipher-type = aes-256-cbc and repoN-cipher-pass before stanza-create, \
                 or put the repository into a protected directory (docs/tools.md)",
            ),
            Doubt::Elsewhere { repository, host } => self.push(
                "repository_elsewhere",
                format!(
                    "pgBackRest gets plain pages, and {host} decides whether repo{repository} is \
                     encrypted"
                ),
                "set repoN-cipher-type and repoN-cipher-pass there before stanza-create; with \
                 repoN-cipher-type here as well this warning ends",
            ),
            Doubt::Unread { file, why } => self.push(
                "repository_unknown",
                format!(
                    "pgBackRest gets plain pages, and whether it encrypts them is not seen: {}: \
                     {why}",
                    file.display()
                ),
                "run this as a user who may read it",
            ),
        }
    }

    /// What PostgreSQL's control file says.
    fn control_file(&mut self, report: &Output) {
        if let Some(control) = report.unlocked.as_ref().and_then(|all| all.control_file.as_ref()) {
            if !control.data_checksums {
                self.push(
                    "data_checksums_off",
                    "data checksums are off",
                    "stop the server and run `tidelock exec -D DIR -- pg_checksums -e -D DIR`: \
                     they find damaged pages, which the cipher does not",
                );
            }
            let told = report.settings.iter().any(|setting| setting.name == "full_page_writes");
            if !control.full_page_writes && !told {
                self.push(
                    "full_page_writes_off",
                    "full_page_writes was off at the last checkpoint",
                    "set it to on: without it a power cut damages pages, sealed or not",
                );
            }
        }
    }

    fn files(&mut self, report: &Output) {
        if let Some(files) = report.unlocked.as_ref().map(|all| &all.files) {
            let doubtful = usize::try_from(files.doubtful + files.unreadable).unwrap_or(usize::MAX);
            if doubtful > 0 {
                self.push(
                    "doubtful_files",
                    format!("{} not as expected, or unreadable", console::count(doubtful, "file")),
                    "`tidelock verify -D DIR` names them",
                );
            }
        }
    }

    /// Second copies of the keyring.
    fn copies(&mut self, report: &Output) {
        let keyring = &report.keyring;
        let usable = |copy: &&CopyReport| copy.state != CopyState::Other;
        let Some(best) = keyring.copies.iter().filter(usable).max_by_key(|copy| copy.generation)
        else {
            return self.push(
                "no_second_copy",
                "the keyring has no second copy: when .tidelock is lost, the data is lost",
                "`tidelock keyring backup -D DIR FILE`, to another disk",
            );
        };
        if best.generation < keyring.generation {
            self.push(
                "second_copy_old",
                format!("the newest second copy of the keyring has generation {}", best.generation),
                "`tidelock keyring backup -D DIR FILE`, again",
            );
        }
        let elsewhere = |copy: &CopyReport| !is_same_filesystem(&report.directory, &copy.path);
        if !keyring.copies.iter().filter(usable).any(elsewhere) {
            self.push(
                "second_copy_beside_data",
                format!(
                    "the only second copy, {}, is on the same file system",
                    best.path.display()
                ),
                "take it to another disk or machine",
            );
        }
    }

    fn recovery_key(&mut self, report: &Output) {
        if report.keyring.slots.iter().any(|slot| slot.kind == RecoveryKey::SLOT.name()) {
            return;
        }
        self.push(
            "no_recovery_key",
            "there is no recovery key: when the key is lost, the data is lost",
            "`tidelock key recovery -D DIR`, or keep a second copy of the key on another machine",
        );
    }

    /// How long the current one has sealed new files.
    fn data_key(&mut self, report: &Output, config: &Config) {
        let period = u64::from(config.cryptoperiod_days.unwrap_or(CRYPTOPERIOD_DAYS));
        let current = report.unlocked.iter().flat_map(|all| &all.data_keys).next();
        if let Some(key) = current.filter(|key| key.retired.is_none() && key.age_days >= period) {
            self.push(
                "cryptoperiod",
                format!(
                    "the data key has sealed new files for {} days, longer than {period}",
                    key.age_days
                ),
                "`tidelock key new-data-key -D DIR`",
            );
        }
    }

    fn providers(&mut self, report: &Output, choices: &[ProviderChoice]) {
        for kind in choices.iter().map(ProviderChoice::kind).filter(|kind| kind.is_for_laboratories)
        {
            self.push(
                "insecure_provider",
                format!("provider {} is for laboratories", kind.slot),
                "`tidelock key add` another one, then remove this; docs/keys.md lists them",
            );
        }
        for choice in choices {
            if let Some(path) = choice.key_file()
                && is_beside_data(&report.directory, path)
            {
                self.push(
                    "key_beside_data",
                    format!(
                        "the key file {} is on the same file system as the data",
                        path.display()
                    ),
                    "a stolen disk has both: keep the key on another one, or use a passphrase or \
                     command",
                );
            }
        }
    }

    /// Programs run, or start, and no agent answers.
    fn no_agent(&mut self, report: &Output, running: Option<u32>) {
        if let Some(agent) = &report.silent_agent {
            self.push(
                "agent_silent",
                format!("{agent} does not answer: programs that start here wait for it in vain"),
                "if it was stopped, let it go on (kill -CONT); otherwise end it (kill -9), and \
                 another one starts",
            );
        } else if let (None, Some(pid)) = (&report.agent, running) {
            self.push(
                "no_agent",
                format!(
                    "no agent is running, but process {pid} has keys: new keys reach it late, or \
                     not at all"
                ),
                "`tidelock exec -D DIR -- true` leaves one, which stays as long as that process",
            );
        }
    }

    /// Ways on which pages in the memory of a running program get onto a disk.
    fn memory(&mut self, running: Option<u32>, core_dumps: bool) {
        let pattern = leaks::core_pattern();
        let limit = running.and_then(leaks::core_limit);
        if core_dumps {
            self.push(
                "core_files",
                format!(
                    "core files are allowed, and hold plain pages; core_pattern is \"{pattern}\""
                ),
                "remove core_dumps = true from the configuration, and restart the server",
            );
        } else if let (Some(pid), Some(limit)) = (running, limit)
            && leaks::leaves_cores(limit, &pattern)
        {
            let hint = match leaks::names_socket(&pattern) {
                true => {
                    "as root: set kernel.core_pattern to a file or a pipe, which keep to limits"
                }
                false => "as root: `prlimit --core=1:1 --pid PID` for it and its children",
            };
            self.push(
                "core_files",
                format!(
                    "process {pid} may leave core files, which hold plain pages; core_pattern is \
                     \"{pattern}\""
                ),
                hint,
            );
        }
        let swap = leaks::plain_swap();
        let (Some(_), [first, ..]) = (running, swap.as_slice()) else { return };
        self.push(
            "swap",
            format!(
                "swap is not encrypted ({}): pages of the server's memory may be written there",
                first.display()
            ),
            "encrypt it (dm-crypt, or zram without a disk behind it), or do without: swapoff -a",
        );
    }

    /// The agent answers.
    fn agent(&mut self, report: &Output) {
        if let Some(agent) = &report.agent
            && agent.generation != report.keyring.generation
        {
            self.push(
                "agent_outdated",
                format!("the agent holds generation {} of the keyring", agent.generation),
                "`tidelock exec -D DIR -- true` hands it the new one",
            );
        }
        if let Some(agent) = report.agent.as_ref().filter(|agent| agent.is_from_before) {
            self.push(
                "agent_of_another_version",
                format!(
                    "the agent (process {}) is from before an upgrade, and stays with a server \
                     that is restarted within 10 s",
                    agent.pid
                ),
                "stop the server, end the agent (kill PID), then start the server",
            );
        }
        if report.agent.as_ref().is_some_and(|agent| agent.protection == "none") {
            self.push(
                "agent_memory",
                "the agent could not lock its memory: keys may be swapped out",
                "raise the limit of locked memory (ulimit -l), or encrypt the swap",
            );
        }
    }
}

/// True for a command line that runs a program which copies the bytes that it finds: sealed ones.
fn copies_files(command: &str) -> bool {
    let names = command.split_whitespace().filter_map(|word| word.rsplit('/').next());
    names.into_iter().any(|name| COPIERS.contains(&name))
}

/// What the manual and most recipes copy WAL with. WAL-G is a Go program and never has keys; those
/// of Barman are scripts of a Python that nobody lists on a node.
const COPIERS: [&str; 11] = [
    "cp",
    "rsync",
    "scp",
    "install",
    "gzip",
    "zstd",
    "lz4",
    "dd",
    "wal-g",
    "barman-wal-archive",
    "barman-cloud-wal-archive",
];

/// Two years: the most that NIST SP 800-57 part 1 (5.3.6) recommends for a key that encrypts new
/// data.
pub(crate) const CRYPTOPERIOD_DAYS: u32 = 730;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_archive_sealed_bytes_are_known_behind_wrappers_too() {
        for command in [
            "cp %p /archive/%f",
            "test ! -f /a/%f && /bin/cp %p /a/%f",
            "envdir /etc/wal-g.d /usr/local/bin/wal-g wal-push %p",
        ] {
            assert!(copies_files(command), "{command}");
        }
        for command in ["tidelock wal put %p /archive", "pgbackrest archive-push %p"] {
            assert!(!copies_files(command), "{command}");
        }
    }
}

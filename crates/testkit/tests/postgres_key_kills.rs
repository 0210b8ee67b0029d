//! Commands that change keys are killed at random moments, and each time the server is restarted
//! from what is on the disk: it comes back, and `key check` has said so.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tidelock_testkit::pg::{Arm, Cluster, Error, Process, Result, Workspace, ensure};

/// What is killed, by turns.
const VERBS: &[&str] = &[
    "new-data-key",
    "add",
    "rotate",
    "remove",
    "recovery",
    "adopt",
    "release",
    "backup",
    "restore",
    "profile",
];

struct Drill<'p> {
    server: Cluster<'p>,
    other: Cluster<'p>,
    place: &'p Workspace,
}

impl Drill<'_> {
    fn json(&self, command: &[&str]) -> Result<Value> {
        let output = self
            .server
            .tidelock(command)?
            .args(["--json", "-D"])
            .arg(self.server.dir())
            .attempt()?;
        serde_json::from_str(&output.stdout)
            .map_err(|why| Error::Unexpected(format!("{why}: {}", output.text())))
    }

    /// The slots of key files, the oldest first.
    fn file_slots(&self) -> Result<Vec<String>> {
        let report = self.json(&["key", "list"])?;
        let slots = report["slots"].as_array().cloned().unwrap_or_default();
        let files = slots.iter().filter(|slot| slot["kind"] == "file");
        Ok(files.filter_map(|slot| slot["id"].as_str()).map(str::to_owned).collect())
    }

    fn adopted(&self) -> Result<Option<String>> {
        let report = self.json(&["status"])?;
        let keys = report["unlocked"]["data_keys"].as_array().cloned().unwrap_or_default();
        let adopted = keys.iter().find(|key| key["state"] == "adopted");
        Ok(adopted.and_then(|key| key["id"].as_str()).map(str::to_owned))
    }

    /// Who holds the keys, if anybody does.
    fn agent(&self) -> Result<Option<Process>> {
        let report = self.json(&["status"])?;
        let agent = &report["agent"];
        let pid = agent["pid"].as_u64().and_then(|pid| i32::try_from(pid).ok());
        let found = pid.and_then(Process::new);
        let is_told = found.is_some() || report.get("agent").is_some_and(Value::is_null);
        ensure(is_told && report.get("silent_agent").is_none_or(Value::is_null), || {
            format!("status does not tell who has the keys: {report}")
        })?;
        Ok(found)
    }

    /// The arguments of one command; another is taken where there is nothing to do for it.
    fn command(&self, verb: &str, number: usize) -> Result<Vec<String>> {
        let home = |name: &str| self.place.join(&format!("home/{name}")).display().to_string();
        let new_key = |name: &str| format!("file:{}", home(&format!("{name}-{number}.key")));
        let slots = self.file_slots()?;
        let last = slots.last().cloned().unwrap_or_default();
        let words: Vec<String> = match verb {
            "add" => vec!["key".into(), "add".into(), new_key("added")],
            "rotate" => {
                let to = new_key("rotated");
                let words = ["key", "rotate", "--no-renew", "--slot", &last, "--to", &to];
                words.map(String::from).into()
            }
            "remove" if slots.len() > 2 => {
                vec!["key".into(), "remove".into(), "--no-renew".into(), last]
            }
            "remove" => vec!["key".into(), "add".into(), new_key("instead")],
            "recovery" => {
                let file = home(&format!("recovery-{number}"));
                vec!["key".into(), "recovery".into(), "--new-recovery-file".into(), file]
            }
            "release" if let Some(id) = self.adopted()? => {
                vec!["key".into(), "release".into(), id]
            }
            "adopt" | "release" => {
                let from = self.other.dir().display().to_string();
                let key = format!("file:{}", home("other.key"));
                ["key", "adopt", "--from", &from, "--from-provider", &key].map(String::from).into()
            }
            "backup" => vec!["keyring".into(), "backup".into(), home("copy")],
            "restore" => {
                let copy = home(&format!("copy-{number}"));
                let backup = ["keyring", "backup", &copy];
                self.server.tidelock(&backup)?.arg("-D").arg(self.server.dir()).run()?;
                vec!["keyring".into(), "restore".into(), copy]
            }
            "profile" => {
                let glob = format!("note-{number}");
                vec!["profile".into(), "set".into(), "--plain".into(), glob]
            }
            verb => vec!["key".into(), verb.into()],
        };
        Ok(words)
    }

    /// Runs it, and kills it after `wait`; how long it ran, and whether it was killed.
    fn killed(&self, words: &[String], wait: Duration) -> Result<(Duration, bool)> {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let start = Instant::now();
        let mut running = self.server.tidelock(&words)?.arg("-D").arg(self.server.dir()).spawn()?;
        while running.runs() && start.elapsed() < wait {
            sleep(Duration::from_millis(1));
        }
        let killed = running.runs();
        if killed {
            kill(running.id(), Signal::KILL);
        }
        let output = running.wait()?;
        // 6: the keyring is changed, and not everybody could be told.
        ensure(killed || matches!(output.status.code(), Some(0 | 6)), || {
            format!("{} ended with {}: {}", output.command, output.status, output.text())
        })?;
        Ok((start.elapsed(), killed && !output.status.success()))
    }

    /// No server runs, and no agent has the keys any more.
    fn stop(&self) -> Result<()> {
        ensure(self.agent()?.is_some(), || "the server runs, and no agent is seen".into())?;
        self.server.stop("fast")?;
        // By itself it ends a few seconds after the last program.
        if let Some(agent) = self.agent()? {
            kill(agent.id().cast_unsigned(), Signal::TERM);
            agent.wait_gone(Duration::from_secs(30))?;
        }
        ensure(self.agent()?.is_none(), || "an agent has the keys still".into())
    }

    /// The server is started from the disk.
    fn restart(&self, is_stopped: bool) -> Result<()> {
        let checked = self.server.tidelock(&["key", "check", "-D"])?.arg(self.server.dir());
        let checked = checked.attempt()?;
        if !is_stopped {
            self.stop()?;
        }
        self.server.start()?;
        ensure(checked.status.success(), || {
            format!("key check said that it would not come back: {}", checked.text())
        })?;
        self.server.expect("SELECT count(*) FROM t", "1000")
    }
}

fn kill(pid: u32, signal: Signal) {
    // One that has just ended needs no signal.
    let _ = Pid::from_raw(pid.cast_signed()).map(|pid| kill_process(pid, signal));
}

fn kills(wanted: usize) -> Result<()> {
    let place = Workspace::new()?;
    let server = Cluster::started(&place, "server", Arm::Sealed)?;
    server.sql("CREATE TABLE t AS SELECT g FROM generate_series(1, 1000) g")?;
    let other = Cluster::empty(&place, "other", Arm::Sealed)?;
    let drill = Drill { server, other, place: &place };
    let mut random = fastrand::Rng::with_seed(11);
    let mut times = vec![Duration::from_millis(300); VERBS.len()];
    let (mut count, mut number) = (0, 0);
    while count < wanted {
        let (verb, time) = (number % VERBS.len(), &mut times[number % VERBS.len()]);
        let words = drill.command(VERBS[verb], number)?;
        // It is refused while anybody has the key.
        let is_stopped = words.get(1).is_some_and(|word| word == "release");
        if is_stopped {
            drill.stop()?;
        }
        let (took, killed) = drill.killed(&words, time.mul_f64(random.f64()))?;
        if !killed {
            *time = took;
        }
        count += usize::from(killed);
        drill.restart(is_stopped).map_err(|why| {
            Error::Unexpected(format!("run {number}, {words:?}, killed: {killed}: {why}"))
        })?;
        number += 1;
        ensure(number < 10 * wanted, || format!("only {count} of {number} were killed"))?;
    }
    drill.server.stop("fast")?;
    drill.server.tidelock(&["verify", "-D"])?.arg(drill.server.dir()).run()?;
    eprintln!("{count} kills of {number} commands, the server restarted after each");
    Ok(())
}

#[test]
fn a_killed_change_of_keys_never_keeps_the_server_down() -> Result<()> {
    kills(6)
}

#[test]
#[ignore = "long: make test-full"]
fn two_hundred_killed_changes_of_keys_never_keep_the_server_down() -> Result<()> {
    kills(200)
}

//! `tidelock-lab` as a user types it: every experiment in miniature; what can go wrong is in
//! `faults`, what makes no sense in `asked`, arms of a user's own in `arms` and `elsewhere`.
//!
//! Each test has its own work directory, so that the lab's lock is its own. The command `tidelock`
//! and the library have to be built beside the program: `make test` does it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use tidelock_lab::statistics::Estimate;
use tidelock_servers::{Account, Arm, Cluster, Workspace, skip};

#[path = "program/arms.rs"]
mod arms;
#[path = "program/asked.rs"]
mod asked;
#[path = "program/elsewhere.rs"]
mod elsewhere;
#[path = "program/faults.rs"]
mod faults;
#[path = "program/miniatures.rs"]
mod miniatures;

struct Bench {
    dir: TempDir,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("tl-lab-").tempdir().unwrap();
        // The servers' account passes through it.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(dir.path().join("work")).unwrap();
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs an experiment's file, and kills the lab when the first trial is finished.
    fn killed_in(&self, file: &str) {
        let mut command = self.measuring(&["run", file]);
        let mut child = command.arg("--out").arg(self.out()).stderr(Stdio::null()).spawn().unwrap();
        let start = Instant::now();
        while fs::metadata(self.out().join("results.jsonl")).map_or(0, |meta| meta.len()) == 0 {
            assert!(start.elapsed() < Duration::from_secs(120), "no trial was finished");
            thread::sleep(Duration::from_millis(20));
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn out(&self) -> PathBuf {
        self.path("out")
    }

    /// `tidelock-lab ARGS --work WORK`.
    fn measuring(&self, args: &[&str]) -> Command {
        let mut command = lab(args);
        command.arg("--work").arg(self.path("work"));
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = self.measuring(&[&["run"], args].concat());
        command.arg("--out").arg(self.out()).output().unwrap()
    }

    fn resume(&self) -> Output {
        self.measuring(&["resume"]).arg(self.out()).output().unwrap()
    }

    fn results(&self) -> String {
        fs::read_to_string(self.out().join("results.jsonl")).unwrap()
    }

    fn trials(&self) -> Vec<Value> {
        trials_of(&self.results())
    }

    /// Nothing that the lab started is left: no directory, no process in it, no agent that would
    /// make one.
    fn is_clean(&self) {
        let work = self.path("work");
        let left: Vec<_> = fs::read_dir(&work)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .filter(|name| !name.to_string_lossy().ends_with(".lock"))
            .collect();
        assert!(left.is_empty(), "left in {}: {left:?}", work.display());
        let listening = fs::read_to_string("/proc/net/unix").unwrap();
        let below = work.display().to_string();
        let agents: Vec<&str> = listening.lines().filter(|line| line.contains(&below)).collect();
        assert!(agents.is_empty(), "still listening: {agents:?}");
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let cwd = fs::read_link(entry.path().join("cwd")).unwrap_or_default();
            assert!(
                !cwd.starts_with(&work),
                "{} still works in {}",
                entry.path().display(),
                cwd.display()
            );
        }
    }
}

fn trials_of(results: &str) -> Vec<Value> {
    results.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The trials that count: of each block those of its latest sitting.
fn counted(trials: &[Value]) -> Vec<&Value> {
    let sitting = |trial: &Value| trial["sitting"].as_u64().unwrap_or(0);
    let of_block = |trial: &Value, other: &Value| {
        ["cell", "phase", "block"].iter().all(|k| trial[k] == other[k])
    };
    let latest = |trial: &&Value| {
        trials.iter().filter(|t| of_block(t, trial)).all(|t| sitting(t) <= sitting(trial))
    };
    trials.iter().filter(latest).collect()
}

/// Unmounted whatever becomes of the test.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn lab(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidelock-lab"));
    command.args(args).env("NO_COLOR", "1").stdin(Stdio::null());
    command
}

fn succeeded(output: &Output) {
    assert!(output.status.success(), "{}", told(output));
}

fn told(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}

/// An experiment of its own, quick and without a protected directory.
fn quick(bench: &Bench, change: impl Fn(String) -> String) -> String {
    let text = r#"
name = "quick"
question = "Does it work?"
engine = "postgresql"
arms = ["plain", "control"]
[settings]
max_connections = 10
[workload.read]
kind = "pgbench"
script = "select-only"
scale = 1
clients = 1
jobs = 1
seconds = 1
[stop]
blocks = 3
warm_up = 1
"#;
    let path = bench.path("quick.toml");
    fs::write(&path, change(text.to_owned())).unwrap();
    path.display().to_string()
}

/// Runs an experiment in miniature, then reports, gates and compares it.
fn miniature(name: &str) -> (Bench, Vec<Value>) {
    miniature_with(name, &[])
}

/// The same with variables of the environment.
fn miniature_with(name: &str, env: &[(&str, &Path)]) -> (Bench, Vec<Value>) {
    let bench = Bench::new();
    let mut run = bench.measuring(&["run", name, "--miniature", "--seed", "7"]);
    let run = run.envs(env.iter().copied()).arg("--out").arg(bench.out());
    succeeded(&run.output().unwrap());
    bench.is_clean();
    let trials = bench.trials();
    let manifest: Value =
        serde_json::from_str(&fs::read_to_string(bench.out().join("run.json")).unwrap()).unwrap();
    let arms = manifest["experiments"][0]["arms"].as_array().unwrap();
    for arm in arms.iter().filter(|arm| arm["missing"].is_null()) {
        let of_arm = trials.iter().filter(|trial| trial["arm"] == arm["name"]).count();
        assert!(of_arm > 0, "{name}: no trial of {arm}");
    }
    for trial in &trials {
        let metrics = trial["metrics"].as_object().unwrap();
        assert!(metrics.values().all(|value| value.as_f64().unwrap() >= 0.0), "{trial}");
        assert!(metrics["units"].as_f64().unwrap() > 0.0, "{trial}");
    }
    let report = lab(&["report"]).arg(bench.out()).output().unwrap();
    succeeded(&report);
    let page = fs::read_to_string(bench.out().join("report.html")).unwrap();
    assert!(page.contains(name), "the report does not name the experiment");
    assert!(page.contains("This run is a miniature"), "it speaks as if it said something of cost");
    let gate = lab(&["gate"]).arg(bench.out()).args(["--max-loss", "90%"]).output().unwrap();
    assert_eq!(gate.status.code(), Some(7), "{}", told(&gate));
    let again = lab(&["compare"]).arg(bench.out()).arg(bench.out()).output().unwrap();
    succeeded(&again);
    (bench, trials)
}

fn has_metric(trials: &[Value], metric: &str) -> bool {
    trials.iter().any(|trial| trial["metrics"].get(metric).is_some())
}

/// The major that the matrix was published with; it is older than some options of newer ones.
/// Whether a trial says that it had neither its volume nor its control group.
fn is_marked(trial: &Value) -> bool {
    // A trial without any has no such field.
    let warnings = trial["warnings"].as_array().map_or(&[][..], Vec::as_slice);
    let says = |text: &str| {
        let unlimited = warnings.iter().filter(|w| w["kind"] == "unlimited");
        unlimited.into_iter().any(|w| w["text"].as_str().unwrap().contains(text))
    };
    says("a volume") && says("limits of this experiment")
}

#[test]
fn an_ordinary_user_s_trials_say_that_nothing_was_limited() {
    let bench = Bench::new();
    let limits = "[limits]\ncpus = 1\nvolume = \"ext4\"\n[workload.read]";
    let file = quick(&bench, |text| {
        text.replace("[workload.read]", limits).replace("blocks = 3", "blocks = 1")
    });
    let program = bench.path("tidelock-lab");
    fs::copy(env!("CARGO_BIN_EXE_tidelock-lab"), &program).unwrap();
    let mut command = Command::new(program);
    command.args(["run", &file, "--work"]).arg(bench.path("work")).arg("--out");
    command
        .arg(bench.out())
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .current_dir(bench.dir.path());
    let account = Account::of_servers().unwrap();
    if account.switches() {
        for name in ["work", "out"] {
            fs::create_dir_all(bench.path(name)).unwrap();
            account.give(&bench.path(name)).unwrap();
        }
        account.apply(&mut command);
        command.env("HOME", bench.path("work"));
    }
    succeeded(&command.output().unwrap());
    let trials = bench.trials();
    assert!(trials.len() == 2 && trials.iter().all(is_marked), "{trials:?}");
}

#[test]
fn what_is_narrowed_keeps_what_conclusions_need_and_names_what_is_unknown() {
    let plan = |args: &[&str]| lab(&[&["plan"], args].concat()).output().unwrap();
    let sealed = plan(&["wal-stress", "--arms", "sealed"]);
    succeeded(&sealed);
    let arms: Vec<String> = told(&sealed)
        .lines()
        .filter_map(|line| {
            line.trim().strip_prefix("arm ")?.split_whitespace().next().map(Into::into)
        })
        .collect();
    assert_eq!(arms, ["plain", "control", "sealed"]);
    for (only, known) in [
        ("scael=15", "connections, scale, shared_buffers, workload"),
        ("scale=31", "it has 7, 20"),
        ("workload=tpcb", "it has read_only"),
    ] {
        let output = plan(&["shared-buffers", "cybertec-matrix", "--only", only]);
        assert_eq!(output.status.code(), Some(2), "{}", told(&output));
        assert!(told(&output).contains(known), "{}", told(&output));
    }
    // A factor that one of them has narrows that one.
    let output = plan(&["shared-buffers", "cybertec-matrix", "--only", "scale=20"]);
    succeeded(&output);
    assert!(told(&output).contains("scale 20") && !told(&output).contains("scale 50"));
    let output = plan(&["cybertec-matrix", "--only", "scale=7", "--only", "scale=20"]);
    succeeded(&output);
    assert!(["scale 7", "scale 20"].iter().all(|level| told(&output).contains(level)));
    assert!(!told(&output).contains("scale 50"));
}

#[test]
fn two_experiments_of_one_name_are_refused() {
    let bench = Bench::new();
    let file = quick(&bench, |text| text);
    let copy = bench.path("copy.toml").display().to_string();
    fs::copy(&file, &copy).unwrap();
    for (one, other, name) in
        [("wal-stress", "wal-stress", "wal-stress"), (&*file, &*copy, "quick")]
    {
        let output = lab(&["plan", one, other]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", told(&output));
        let said = format!("two experiments are named {name}");
        assert!(told(&output).contains(&said), "{}", told(&output));
    }
}

#[test]
fn a_precision_where_it_cannot_work_is_refused() {
    let bench = Bench::new();
    let plan = |change: fn(String) -> String| {
        let file = quick(&bench, change);
        lab(&["plan", &file, "--precision", "2%"]).output().unwrap()
    };
    let paced = "blocks = 3\nequal_work_blocks = 2";
    let lacks = |arm: &str| format!("and quick has no arm {arm}");
    let no_control = plan(|text| {
        text.replace("blocks = 3", "blocks = 3\nequal_work_blocks = 2")
            .replace("\"plain\", \"control\"", "\"plain\", \"sealed\"")
    });
    let no_plain = plan(|text| {
        text.replace("blocks = 3", "blocks = 3\nequal_work_blocks = 2")
            .replace("\"plain\", \"control\"", "\"control\", \"sealed\"")
    });
    let no_equal_work = plan(|text| text);
    for (output, why) in [
        (no_control, lacks("control")),
        (no_plain, lacks("plain")),
        (no_equal_work, "nothing that was named has any".into()),
    ] {
        assert_eq!(output.status.code(), Some(2), "{}", told(&output));
        assert!(told(&output).contains(&why), "{}", told(&output));
    }
    let file = quick(&bench, |text| text.replace("blocks = 3", paced));
    succeeded(&lab(&["plan", &file, "--precision", "2%"]).output().unwrap());
}

/// A run of so many transactions has no others, whatever waited at the end of its seconds.
#[test]
fn trials_at_a_fixed_rate_end_with_their_last_transaction() {
    let bench = Bench::new();
    let path = quick(&bench, |text| {
        let custom = "script = \"custom\"\ncustom = \"SELECT pg_sleep(0.03);\"";
        text.replace("script = \"select-only\"", custom)
            .replace("scale = 1", "scale = 0")
            .replace("clients = 1", "clients = 3")
            .replace("blocks = 3", "blocks = 1\nlatency_blocks = 2")
    });
    succeeded(&bench.run(&[&path, "--seed", "3"]));
    bench.is_clean();
    let trials = bench.trials();
    let rated: Vec<&Value> = trials.iter().filter(|t| t["phase"] == "fixed-rate").collect();
    assert_eq!(rated.len(), 4);
    for trial in rated {
        let metric = |name: &str| trial["metrics"][name].as_f64().unwrap();
        let due = (metric("rate") / 3.0).ceil() * 3.0;
        assert!((metric("units") - due).abs() < 0.5, "{due}: {trial}");
        // Each took at least what it slept.
        assert!(metric("latency_p50") >= 30.0, "{trial}");
    }
}

#[test]
fn minutes_are_for_a_run_with_a_precision() {
    let bench = Bench::new();
    let file = quick(&bench, |text| text.replace("blocks = 3", "blocks = 1"));
    succeeded(&bench.run(&[&file]));
    let mut command = bench.measuring(&["resume", "--minutes", "5"]);
    let output = command.arg(bench.out()).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    assert!(told(&output).contains("this one has none"), "{}", told(&output));
}

/// MariaDB answers to MySQL's name, and is not taken for it.
#[test]
fn an_experiment_without_its_server_is_left_out_with_the_reason() {
    let bench = Bench::new();
    let mysqld = bench.path("mysqld");
    fs::write(&mysqld, "#!/bin/sh\necho 'mysqld  Ver 10.11.19-MariaDB'\n").unwrap();
    fs::set_permissions(&mysqld, fs::Permissions::from_mode(0o755)).unwrap();
    let mut run = bench.measuring(&["run", "aurora-mysql", "--miniature"]);
    let run = run.env("TIDELOCK_MYSQL_BINDIR", bench.dir.path()).arg("--out").arg(bench.out());
    let output = run.output().unwrap();
    succeeded(&output);
    let why = "aurora-mysql is not measured: mysql is not installed";
    assert!(told(&output).contains(why), "{}", told(&output));
    assert!(bench.trials().is_empty());
}

#[test]
fn a_gate_that_cannot_tell_says_so_with_its_exit_code() {
    let bench = Bench::new();
    let file = quick(&bench, |text| text.replace("blocks = 3", "blocks = 1"));
    succeeded(&bench.run(&[&file]));
    let gate = |args: &[&str]| {
        let mut command = lab(&["gate"]);
        command.arg(bench.out()).args(args).output().unwrap()
    };
    let output = gate(&["--max-loss", "2%", "--arm", "control"]);
    assert_eq!(output.status.code(), Some(7), "{}", told(&output));
    assert_eq!(gate(&["--max-loss", "200%"]).status.code(), Some(2));
}

#[test]
fn plan_and_list_measure_nothing() {
    let list = lab(&["list"]).output().unwrap();
    succeeded(&list);
    let names: Vec<String> = String::from_utf8(list.stdout)
        .unwrap()
        .lines()
        .map(|line| line.split_whitespace().next().unwrap().to_owned())
        .collect();
    assert_eq!(names.len(), 12);
    for name in &names {
        let plan = lab(&["plan", name]).output().unwrap();
        succeeded(&plan);
        assert!(told(&plan).contains("in all"), "{}", told(&plan));
    }
    let unknown = lab(&["plan", "shared-bufers"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(2));
}

#[test]
fn completions_and_manual_pages_are_its_own() {
    let bench = Bench::new();
    let pages = bench.path("pages");
    succeeded(&lab(&["man"]).arg(&pages).output().unwrap());
    let page = fs::read_to_string(pages.join("tidelock-lab-run.1")).unwrap();
    assert!(page.contains("Run experiments"), "{page}");
    let hidden = fs::read_dir(&pages).unwrap().flatten().map(|entry| entry.file_name());
    assert!(!hidden.into_iter().any(|name| name == "tidelock-lab-cipher.1"));
    let bash = lab(&["completions", "bash"]).output().unwrap();
    succeeded(&bash);
    assert!(told(&bash).contains("tidelock__lab"), "{}", told(&bash));
}

#[test]
fn what_makes_no_sense_is_told_in_two_lines() {
    let output = lab(&["gate"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.starts_with("error: the following required arguments"), "{said}");
    assert!(said.contains("\nhint:  usage: tidelock-lab gate "), "{said}");
}

/// Equal work: as many transactions for each server, CPU time from each server's own group, over
/// connections that stay open.
#[test]
fn servers_get_equal_work_and_their_cpu_time_is_counted_in_nanoseconds() {
    let bench = Bench::new();
    let path = quick(&bench, |text| {
        let custom = "script = \"custom\"\ncustom = '''\n\\set delta random(-9, 9)\nUPDATE \
                      pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :scale;'''";
        text.replace("script = \"select-only\"", custom)
            .replace("arms = [\"plain\", \"control\"]", "arms = [\"plain\"]")
            .replace("clients = 1", "clients = 3")
            .replace("blocks = 3", "blocks = 1\nequal_work_blocks = 2\nservers = 2")
    });
    succeeded(&bench.run(&[&path, "--seed", "3"]));
    bench.is_clean();
    let trials = bench.trials();
    let of = |phase: &str| -> Vec<&Value> {
        trials.iter().filter(|trial| trial["phase"] == phase).collect()
    };
    assert_eq!((of("capacity").len(), of("equal-work").len()), (2, 4));
    for block in 0..2 {
        let here = || of("equal-work").into_iter().filter(move |trial| trial["block"] == block);
        let servers: std::collections::BTreeSet<String> = here()
            .map(|trial| format!("{} {}", trial["arm"], trial["instance"].as_u64().unwrap_or(0)))
            .collect();
        assert_eq!(servers.len(), 2, "{servers:?}");
        let units: Vec<&Value> = here().map(|trial| &trial["metrics"]["units"]).collect();
        assert!(units.iter().all(|unit| *unit == units[0]), "work is not equal: {units:?}");
        for trial in here() {
            let metrics = &trial["metrics"];
            assert!(metrics["cpu_per_unit"].as_f64().unwrap() > 0.0, "{trial}");
            let latency = |name: &str| metrics[name].as_f64().unwrap();
            assert!(latency("latency_p50") <= latency("latency_p99"), "{trial}");
            assert!(metrics.get("transactions_per_second").is_none(), "it was asked for");
            let warnings = trial.get("warnings").map(Value::to_string).unwrap_or_default();
            let coarse = warnings.contains("coarse-clock");
            let ticks = metrics["cpu_per_unit"].as_f64().unwrap() * latency("units") / 1e4;
            // In a group it is no number of whole ticks of 10 ms.
            let whole = (ticks - ticks.round()).abs() < 1e-6;
            assert_eq!(coarse, whole, "{ticks} ticks: {trial}");
            assert_eq!(coarse, !counts_groups(), "{trial}");
        }
    }
}

/// Slices before the first block are not measured, and what they changed is not paid for in it.
#[test]
fn the_first_block_of_equal_work_begins_after_a_checkpoint_as_the_others_do() {
    let bench = Bench::new();
    let path = quick(&bench, |text| {
        let custom = "script = \"custom\"\ncustom = '''\n\\set aid random(1, 100000)\nUPDATE \
                      pgbench_accounts SET abalance = abalance + 1 WHERE aid = :aid;'''";
        text.replace("script = \"select-only\"", custom)
            .replace("clients = 1", "clients = 2")
            .replace("blocks = 3", "blocks = 1\nequal_work_blocks = 2")
    });
    succeeded(&bench.run(&[&path, "--seed", "3"]));
    let trials = bench.trials();
    let images = |arm: &str, block: u64| {
        let of_it = |t: &&Value| t["phase"] == "equal-work" && t["arm"] == arm;
        let mut found = trials.iter().filter(of_it).filter(|t| t["block"] == block);
        found.next().unwrap()["metrics"]["page_images"].as_f64()
    };
    for arm in ["plain", "control"] {
        let Some((first, second)) = images(arm, 0).zip(images(arm, 1)) else {
            return skip::because("this PostgreSQL does not count full-page images");
        };
        assert!(first > 0.0 && first > second / 2.0, "{arm}: {first} and {second}");
    }
}

/// Whether the lab may make control groups that count CPU time.
fn counts_groups() -> bool {
    tidelock_lab::host::Group::create("test").is_ok_and(|group| group.cpu_seconds().is_some())
}

/// A process of the server for each transaction costs many times a SELECT, at full speed and by
/// equal work.
#[test]
fn a_new_connection_for_each_transaction_is_in_the_cpu_time() {
    if !counts_groups() {
        skip::because("no control group counts CPU time here");
        return;
    }
    let cpu = |connect: &str| {
        let bench = Bench::new();
        let path = quick(&bench, |text| {
            text.replace("seconds = 1", &format!("seconds = 1\n{connect}"))
                .replace("blocks = 3", "blocks = 1\nequal_work_blocks = 1")
        });
        succeeded(&bench.run(&[&path]));
        bench.is_clean();
        ["capacity", "equal-work"].map(|phase| {
            let trials = bench.trials();
            let trial = trials.iter().find(|t| t["phase"] == phase && t["arm"] == "plain").unwrap();
            trial["metrics"]["cpu_per_unit"].as_f64().unwrap()
        })
    };
    let (new, kept) = (cpu("connect = true"), cpu(""));
    assert!(new.iter().zip(kept).all(|(new, kept)| *new > 3.0 * kept), "{new:?} and {kept:?}");
}

/// The control alone ends it, at the first block at which it is known so well; the pre-flight says
/// before how long it takes. How many blocks that are, the machine and its other load decide.
#[test]
#[ignore = "long: make test-full"]
fn a_precision_says_how_long_it_takes_and_ends_by_the_control() {
    let bench = Bench::new();
    let path = quick(&bench, |text| {
        text.replace("blocks = 3", "blocks = 1\nequal_work_blocks = 2\nservers = 2")
    });
    let output = bench.run(&[&path, "--seed", "3", "--precision", "90%"]);
    succeeded(&output);
    let said = told(&output);
    let needs = said.split("90.0 % needs about ").nth(1).unwrap_or_else(|| panic!("{said}"));
    let blocks = needs.split(" min here: ").nth(1).and_then(|rest| rest.split(' ').next());
    assert!(blocks.unwrap().parse::<u32>().unwrap() >= 10, "{said}");
    // It is kept beside the rows, so that the run can be held to it.
    let kept = fs::read_to_string(bench.out().join("forecast")).unwrap();
    assert!(!kept.is_empty() && kept.lines().all(|line| said.contains(line)), "{kept}");
    succeeded(&lab(&["report"]).arg(bench.out()).output().unwrap());
    let report = fs::read_to_string(bench.out().join("report.md")).unwrap();
    assert!(report.contains("said before it began: 90.0 % needs about "), "{report}");
    let trials = bench.trials();
    let cpu_of_block = |block: usize| -> BTreeMap<String, f64> {
        let paced = trials.iter().filter(|trial| trial["phase"] == "equal-work");
        let of_block = paced.filter(|trial| trial["block"] == block);
        let cpu = |trial: &Value| trial["metrics"]["cpu_per_unit"].as_f64().unwrap();
        of_block.map(|t| (t["arm"].as_str().unwrap().to_owned(), cpu(t))).collect()
    };
    // The logarithm of control over plain, block by block; each block is whole.
    let blocks = (0..).map(cpu_of_block).take_while(|block| !block.is_empty());
    let logs: Vec<f64> = blocks.map(|block| (block["plain"] / block["control"]).ln()).collect();
    // Ten are the least, and the first at which half the width of the interval is small enough is
    // the last: neither one more, to see what it brings, nor one less.
    let half_width = |blocks: usize| {
        let interval = Estimate::of(&logs[..blocks], None).unwrap().interval(0.95);
        (interval.high / interval.low).ln() / 2.0
    };
    let enough = (10..=logs.len()).find(|blocks| half_width(*blocks) <= 1.9_f64.ln());
    assert_eq!(enough, Some(logs.len()), "{logs:?}");
    bench.is_clean();
    // What is done is done.
    succeeded(&bench.resume());
    assert_eq!(bench.trials().len(), trials.len());
}

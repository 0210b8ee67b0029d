//! `tidelock lab` as a user types it: every experiment in miniature, and everything that can go wrong.
//!
//! Each test has its own work directory, so that the lab's lock is its own. The library has to be built beside
//! the command: `make test` does it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stderr, reason = "a skipped test says why")]

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

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

    fn out(&self) -> PathBuf {
        self.path("out")
    }

    /// `tidelock lab ARGS --work WORK`.
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

    /// Nothing that the lab started is left: no directory, no process in it.
    fn is_clean(&self) {
        let work = self.path("work");
        let left: Vec<_> = fs::read_dir(&work)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .filter(|name| !name.to_string_lossy().ends_with(".lock"))
            .collect();
        assert!(left.is_empty(), "left in {}: {left:?}", work.display());
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
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidelock"));
    command.arg("lab").args(args).env("NO_COLOR", "1").stdin(Stdio::null());
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
    let bench = Bench::new();
    succeeded(&bench.run(&[name, "--miniature", "--seed", "7"]));
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
    let again = lab(&["compare"]).arg(bench.out()).arg(bench.out()).output().unwrap();
    succeeded(&again);
    (bench, trials)
}

fn has_metric(trials: &[Value], metric: &str) -> bool {
    trials.iter().any(|trial| trial["metrics"].get(metric).is_some())
}

#[test]
fn crypto_in_miniature() {
    let (_bench, trials) = miniature("crypto");
    assert!(has_metric(&trials, "gigabytes_per_second"));
    let rate = |arm: &str| {
        let of_arm = trials.iter().filter(|trial| trial["arm"] == arm);
        of_arm.map(|t| t["metrics"]["gigabytes_per_second"].as_f64().unwrap()).fold(0.0, f64::max)
    };
    // Hiding the instructions has to reach the cipher, else its arm would say nothing.
    assert!(rate("sealed-software") < rate("sealed") / 2.0, "{trials:?}");
}

#[test]
fn cpu_paths_in_miniature() {
    let (_bench, trials) = miniature("cpu-paths");
    let cpu = |arm: &str| {
        let of_arm = trials.iter().filter(|trial| trial["arm"] == arm);
        let values = of_arm.map(|t| t["metrics"]["cpu_per_unit"].as_f64().unwrap());
        values.fold(f64::INFINITY, f64::min)
    };
    // A page opened without AES-NI costs many times what one with it costs.
    assert!(
        cpu("sealed-software") > 1.15 * cpu("sealed"),
        "the server did not see OPENSSL_ia32cap"
    );
}

#[test]
fn shared_buffers_in_miniature() {
    let (_bench, trials) = miniature("shared-buffers");
    assert!(has_metric(&trials, "latency_p99") && has_metric(&trials, "cpu_per_unit"));
    assert!(trials.iter().any(|trial| trial["phase"] == "fixed-rate"));
}

#[test]
fn rds_encryption_in_miniature() {
    let (_bench, trials) = miniature("rds-encryption");
    assert!(has_metric(&trials, "elapsed") && has_metric(&trials, "rows_per_second"));
}

#[test]
fn cybertec_matrix_in_miniature() {
    let (_bench, trials) = miniature("cybertec-matrix");
    assert!(has_metric(&trials, "transactions_per_second"));
}

#[test]
fn wal_stress_in_miniature() {
    let (_bench, trials) = miniature("wal-stress");
    assert!(has_metric(&trials, "wal_bytes_per_second"));
}

#[test]
fn provisioned_iops_in_miniature() {
    let (_bench, trials) = miniature("provisioned-iops");
    for phase in ["billing/phase1", "billing/phase2", "billing/phase3"] {
        assert!(trials.iter().any(|trial| trial["cell"]["workload"] == phase), "{phase}");
    }
    let root = rustix::process::geteuid().is_root();
    let sampled = trials.iter().any(|trial| trial["series"].get("write_iops").is_some());
    let marked = trials.iter().all(is_marked);
    assert!(if root { sampled } else { marked }, "{trials:?}");
}

/// Whether a trial says that it had neither its volume nor its control group.
fn is_marked(trial: &Value) -> bool {
    let warnings = trial["warnings"].as_array().unwrap();
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
    let program = bench.path("tidelock");
    fs::copy(env!("CARGO_BIN_EXE_tidelock"), &program).unwrap();
    let mut command = Command::new(program);
    command.args(["lab", "run", &file, "--work"]).arg(bench.path("work")).arg("--out");
    command
        .arg(bench.out())
        .env("NO_COLOR", "1")
        .stdin(Stdio::null())
        .current_dir(bench.dir.path());
    if rustix::process::geteuid().is_root() {
        let passwd = fs::read_to_string("/etc/passwd").unwrap();
        let postgres = passwd.lines().find(|line| line.starts_with("postgres:")).unwrap();
        let ids: Vec<u32> =
            postgres.split(':').skip(2).take(2).map(|n| n.parse().unwrap()).collect();
        for name in ["work", "out"] {
            fs::create_dir_all(bench.path(name)).unwrap();
            std::os::unix::fs::chown(bench.path(name), Some(ids[0]), Some(ids[1])).unwrap();
        }
        command.uid(ids[0]).gid(ids[1]).env("HOME", bench.path("work"));
    }
    succeeded(&command.output().unwrap());
    let trials = bench.trials();
    assert!(trials.len() == 2 && trials.iter().all(is_marked), "{trials:?}");
}

#[test]
fn an_own_arm_runs_all_programs_of_its_directory() {
    let bench = Bench::new();
    let bin = bench.path("bin");
    fs::create_dir(&bin).unwrap();
    let ran = bench.path("ran");
    fs::write(&ran, "").unwrap();
    fs::set_permissions(&ran, fs::Permissions::from_mode(0o666)).unwrap();
    let stock =
        std::env::var("TIDELOCK_PG_BINDIR").unwrap_or_else(|_| tidelock_servers::BINDIR.to_owned());
    for name in ["initdb", "pg_ctl", "postgres", "pgbench"] {
        let script = format!(
            "#!/bin/sh\necho {name} \"$*\" >> {}\nexec {stock}/{name} \"$@\"\n",
            ran.display()
        );
        fs::write(bin.join(name), script).unwrap();
        fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let arm = "[[arm]]\nname = \"fork\"\ntitle = \"a fork\"\nlike = \"plain\"\nbin = \"bin\"\n\
               [factors]\nmemory = [\"4MB\", \"5MB\"]\n[settings]\nwork_mem = \"{memory}\"";
    let file = quick(&bench, |text| {
        let text = text.replace("\"control\"", "\"fork\"").replace("[settings]", arm);
        text.replace("blocks = 3", "blocks = 1")
    });
    succeeded(&bench.run(&[&file]));
    let ran = fs::read_to_string(ran).unwrap();
    let count = |start: &str| ran.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!(count("initdb -D"), 1, "{ran}");
    let pg_ctl = |verb: &str| ran.lines().any(|l| l.starts_with("pg_ctl") && l.contains(verb));
    assert!(pg_ctl(" start") && pg_ctl(" restart"), "{ran}");
    assert_eq!(count("postgres -D"), 2, "one start and one restart: {ran}");
    assert!(count("pgbench") > 2, "{ran}");
    assert!(fs::read_to_string(bench.out().join("run.json")).unwrap().contains("postgres of fork"));

    fs::remove_file(bin.join("postgres")).unwrap();
    let mut again = bench.measuring(&["run", &file]);
    let output = again.arg("--out").arg(bench.path("other")).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    assert!(told(&output).contains("has no program postgres"), "{}", told(&output));
    assert!(!bench.path("other").exists());
}

#[test]
fn a_run_does_not_go_on_where_its_numbers_would_be_others() {
    let bench = Bench::new();
    let file = quick(&bench, |text| text.replace("blocks = 3", "blocks = 1"));
    succeeded(&bench.run(&[&file]));
    let path = bench.out().join("run.json");
    let mut manifest: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    manifest["machine"]["kernel"] = "1.2.13".into();
    manifest["machine"]["versions"]["postgresql"] = "postgres 6.5".into();
    fs::write(&path, manifest.to_string()).unwrap();
    let before = bench.results();
    let output = bench.resume();
    assert_eq!(output.status.code(), Some(3), "{}", told(&output));
    for difference in ["kernel was 1.2.13, is ", "postgresql was postgres 6.5, is "] {
        assert!(told(&output).contains(difference), "{}", told(&output));
    }
    assert_eq!(bench.results(), before);
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
        ("scale=7", "it has 15, 31"),
        ("workload=tpcb", "it has read_only"),
    ] {
        let output = plan(&["shared-buffers", "cybertec-matrix", "--only", only]);
        assert_eq!(output.status.code(), Some(2), "{}", told(&output));
        assert!(told(&output).contains(known), "{}", told(&output));
    }
    // A factor that one of them has narrows that one.
    let output = plan(&["shared-buffers", "cybertec-matrix", "--only", "scale=15"]);
    succeeded(&output);
    assert!(told(&output).contains("scale 15") && !told(&output).contains("scale 31"));
}

#[test]
fn aurora_mysqlslap_in_miniature() {
    let (bench, trials) = miniature("aurora-mysqlslap");
    assert!(trials.iter().any(|trial| trial["arm"] == "own") && has_metric(&trials, "elapsed"));
    let manifest = fs::read_to_string(bench.out().join("run.json")).unwrap();
    assert!(manifest.contains("no profile for MariaDB"), "the missing arm is not named");
}

#[test]
fn an_interrupted_run_keeps_what_it_has_and_goes_on() {
    let bench = Bench::new();
    let file = quick(&bench, |text| text);
    let mut command = bench.measuring(&["run", &file, "--seed", "1"]);
    let mut child = command.arg("--out").arg(bench.out()).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    let lines = || {
        fs::read(bench.out().join("results.jsonl"))
            .map_or(0, |b| b.iter().filter(|c| **c == b'\n').count())
    };
    while lines() < 2 {
        assert!(start.elapsed() < Duration::from_secs(120), "no trial was finished");
        thread::sleep(Duration::from_millis(20));
    }
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    bench.is_clean();
    let kept = bench.results();
    assert!(kept.lines().count() < 6, "it was not interrupted");
    succeeded(&bench.resume());
    assert!(bench.results().starts_with(&kept));
    let trials = bench.trials();
    let counted = counted(&trials);
    let mut seen: Vec<String> = counted
        .iter()
        .map(|trial| format!("{} {} {}", trial["block"], trial["arm"], trial["phase"]))
        .collect();
    seen.sort();
    seen.dedup();
    assert_eq!((seen.len(), counted.len()), (6, 6));
    for block in 0..3 {
        let of_block = counted.iter().filter(|trial| trial["block"] == block);
        let mut sittings: Vec<u64> = of_block.map(|t| t["sitting"].as_u64().unwrap_or(0)).collect();
        sittings.dedup();
        assert_eq!(sittings.len(), 1, "block {block} was measured in two sittings: {trials:?}");
    }
    let before = bench.results();
    succeeded(&bench.resume());
    assert_eq!(bench.results(), before, "a finished run was measured again");
}

#[test]
fn the_next_lab_ends_what_a_killed_one_left() {
    let bench = Bench::new();
    let file = quick(&bench, |text| text);
    let mut command = bench.measuring(&["run", &file]);
    let mut child = command.arg("--out").arg(bench.out()).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    while fs::metadata(bench.out().join("results.jsonl")).map_or(0, |meta| meta.len()) == 0 {
        assert!(start.elapsed() < Duration::from_secs(120), "no trial was finished");
        thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    succeeded(&bench.resume());
    bench.is_clean();
    assert_eq!(counted(&bench.trials()).len(), 6);
}

#[test]
fn a_corrupt_line_is_named_and_measured_again() {
    let bench = Bench::new();
    let file = quick(&bench, |text| text.replace("blocks = 3", "blocks = 1"));
    succeeded(&bench.run(&[&file, "--seed", "1"]));
    let path = bench.out().join("results.jsonl");
    let whole = bench.results();
    let torn = &whole[..whole.len() - 30];
    fs::write(&path, torn).unwrap();
    let locks = || {
        let work = fs::read_dir(bench.path("work")).unwrap();
        work.flatten().map(|entry| entry.path()).collect::<Vec<_>>()
    };
    for lock in locks() {
        fs::remove_file(lock).unwrap();
    }
    // Where the servers' data lay is remembered.
    let resumed = lab(&["resume"]).arg(bench.out()).output().unwrap();
    succeeded(&resumed);
    assert_eq!(locks().len(), 1, "it worked elsewhere");
    assert!(told(&resumed).contains("line 2"), "{}", told(&resumed));
    // The trial that was left of the block has nothing to be paired with.
    let trials = bench.trials();
    assert_eq!(trials.len(), 3);
    assert!(counted(&trials).iter().all(|trial| trial["sitting"] == 1), "{trials:?}");
    assert_eq!(counted(&trials).len(), 2);
    assert!(bench.results().starts_with(torn), "what was there was changed");
}

#[test]
fn an_unknown_key_is_refused_with_its_line() {
    let bench = Bench::new();
    let file = quick(&bench, |text| text.replace("jobs = 1", "jobs = 1\nthreads = 2"));
    let output = bench.run(&[&file]);
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    assert!(told(&output).contains("threads"), "{}", told(&output));
    assert!(!bench.out().exists());
}

#[test]
fn a_server_that_does_not_start_ends_the_run_with_its_log() {
    let bench = Bench::new();
    let file = quick(&bench, |text| {
        text.replace("max_connections = 10", "shared_buffers = \"12 potatoes\"")
    });
    let output = bench.run(&[&file]);
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(told(&output).contains("potatoes"), "{}", told(&output));
    bench.is_clean();
}

#[test]
fn a_lost_server_ends_the_run_and_nothing_measured_is_lost() {
    let bench = Bench::new();
    let broken = "script = \"custom\"\ncustom = \"SELECT pg_terminate_backend(pg_backend_pid()) FROM pg_stat_activity WHERE 2 < (SELECT count(*) FROM lost); INSERT INTO lost VALUES (1);\"\nsetup = \"CREATE TABLE lost (n int)\"";
    let file = quick(&bench, |text| text.replace("script = \"select-only\"", broken));
    let output = bench.run(&[&file]);
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(told(&output).contains("pgbench"), "{}", told(&output));
    bench.is_clean();
}

#[test]
fn a_second_lab_is_refused_while_one_runs() {
    let bench = Bench::new();
    let file = quick(&bench, |text| text);
    let mut command = bench.measuring(&["run", &file]);
    let mut first = command.arg("--out").arg(bench.out()).stderr(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    while !bench.out().join("run.json").exists() {
        assert!(start.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(20));
    }
    let mut second = bench.measuring(&["run", &file]);
    let output = second.arg("--out").arg(bench.path("other")).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", told(&output));
    assert!(told(&output).contains(&first.id().to_string()), "{}", told(&output));
    let pid = Pid::from_raw(i32::try_from(first.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(first.wait().unwrap().code(), Some(130));
    bench.is_clean();
}

#[test]
fn a_full_disk_ends_the_run_and_after_making_room_it_goes_on() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not run: a full disk needs root (mount of a small file system)");
        return;
    }
    let bench = Bench::new();
    let mount = bench.path("small");
    fs::create_dir(&mount).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=6m", "none"])
        .arg(&mount)
        .status()
        .unwrap();
    assert!(mounted.success());
    let _mounted = Mounted(mount.clone());
    let file = quick(&bench, |text| text.replace("blocks = 3", "blocks = 2"));
    let out = mount.join("out");
    let mut ballast = Vec::new();
    let mut child = bench.measuring(&["run", &file, "--seed", "1"]);
    let child =
        child.arg("--out").arg(&out).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while !out.join("results.jsonl").exists() && start.elapsed() < Duration::from_secs(60) {
        thread::sleep(Duration::from_millis(5));
    }
    let path = mount.join("ballast");
    let mut file = fs::File::create(&path).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    drop(file);
    ballast.push(path);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(told(&output).contains("lab resume"), "{}", told(&output));
    for path in ballast {
        fs::remove_file(path).unwrap();
    }
    let resumed = bench.measuring(&["resume"]).arg(&out).output().unwrap();
    succeeded(&resumed);
    let lines = fs::read_to_string(out.join("results.jsonl")).unwrap();
    let whole = trials_of(&lines);
    assert_eq!((counted(&whole).len(), lines.lines().count()), (4, whole.len()), "{lines}");
    bench.is_clean();
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
    assert_eq!(names.len(), 8);
    for name in &names {
        let plan = lab(&["plan", name]).output().unwrap();
        succeeded(&plan);
        assert!(told(&plan).contains("in all"), "{}", told(&plan));
    }
    let unknown = lab(&["plan", "shared-bufers"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(2));
}

#[test]
fn a_directory_that_is_no_run_is_refused() {
    let bench = Bench::new();
    for verb in ["report", "resume"] {
        let output = lab(&[verb]).arg(bench.path("work")).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{}", told(&output));
    }
    assert!(!Path::new(&bench.path("work")).join("run.json").exists());
}

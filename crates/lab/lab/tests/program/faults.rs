//! What can go wrong in a run: interruptions, other machines, broken lines, full disks, servers
//! that do not start or are lost.

use super::*;

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
    bench.killed_in(&file);
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
fn a_library_without_hooks_is_refused_before_anything_is_made() {
    let bench = Bench::new();
    let built = bench.path("built");
    fs::create_dir(&built).unwrap();
    for name in ["tidelock", "libtidelock_preload.so"] {
        // A whole ELF file, but no library of ours.
        fs::copy("/bin/true", built.join(name)).unwrap();
    }
    let file = quick(&bench, |text| text.replace("control\"]", "control\", \"sealed\"]"));
    let output = bench
        .measuring(&["run", &file])
        .arg("--out")
        .arg(bench.out())
        .env("TIDELOCK_BUILT", &built)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(told(&output).contains("does not hook file calls"), "{}", told(&output));
    assert!(!bench.out().exists());
    bench.is_clean();
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
    let broken = "script = \"custom\"\ncustom = \"SELECT pg_terminate_backend(pg_backend_pid()) \
                  FROM pg_stat_activity WHERE 2 < (SELECT count(*) FROM lost); INSERT INTO lost \
                  VALUES (1);\"\nsetup = \"CREATE TABLE lost (n int)\"";
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
    if tidelock_servers::skip::unless_root("a small file system") {
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
    assert!(told(&output).contains("tidelock-lab resume"), "{}", told(&output));
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
fn a_directory_that_is_no_run_is_refused() {
    let bench = Bench::new();
    for verb in ["report", "resume"] {
        let output = lab(&[verb]).arg(bench.path("work")).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{}", told(&output));
    }
    assert!(!Path::new(&bench.path("work")).join("run.json").exists());
}

//! Arms of a user's own: other programs, other directories.

use tidelock_lab::experiment::VolumeType;
use tidelock_lab::host::Volume;

use super::*;

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

    // Without a server of its own it is left out, and the one that is installed does not run for
    // it.
    fs::remove_file(bin.join("postgres")).unwrap();
    let why = format!("its bin, {}, has no program postgres", bin.display());
    let other = bench.path("other");
    let output = bench.measuring(&["run", &file]).arg("--out").arg(&other).output().unwrap();
    succeeded(&output);
    let without = format!("is measured without fork: {why}");
    assert!(told(&output).contains(&without), "{}", told(&output));
    let results = fs::read_to_string(other.join("results.jsonl")).unwrap();
    assert!(trials_of(&results).iter().all(|trial| trial["arm"] == "plain"), "{results}");
    assert!(fs::read_to_string(other.join("report.md")).unwrap().contains(&why));
}

/// The files of peers are for whoever has them; what is shown and planned needs no server.
#[test]
fn an_arm_without_its_programs_stops_nothing_but_a_run_of_itself_alone() {
    let bench = Bench::new();
    let peers = format!("{}/experiments/peers", env!("CARGO_MANIFEST_DIR"));
    for peer in ["initdb-tde", "pg-tde", "open-pg-tde"] {
        let file = format!("{peers}/{peer}.toml");
        for verb in ["plan", "show"] {
            let output = lab(&[verb, &file]).output().unwrap();
            succeeded(&output);
            assert!(told(&output).contains("missing"), "{}", told(&output));
        }
    }
    let ghost = |arms: &str| {
        let own = "[[arm]]\nname = \"ghost\"\ntitle = \"\"\nlike = \"plain\"\nbin = \"no\"\n";
        quick(&bench, |text| {
            text.replace("[settings]", &format!("{own}[settings]"))
                .replace("\"plain\", \"control\"", arms)
                .replace("blocks = 3", "blocks = 1")
        })
    };
    let output = bench.run(&[&ghost("\"plain\", \"control\", \"ghost\""), "--arms", "control"]);
    succeeded(&output);
    assert!(!told(&output).contains("ghost"), "{}", told(&output));
    let mut alone = bench.measuring(&["run", &ghost("\"ghost\"")]);
    let output = alone.arg("--out").arg(bench.path("other")).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    assert!(told(&output).contains("`ghost`: its bin, "), "{}", told(&output));
    assert!(!bench.path("other").exists());
    // Nor is there time for it in a plan.
    let output = lab(&["plan", &ghost("\"ghost\", \"plain\"")]).output().unwrap();
    succeeded(&output);
    assert!(told(&output).contains("no cell is planned"), "{}", told(&output));
    assert!(told(&output).contains("about 0 s in all\n"), "{}", told(&output));
}

/// A peer is an arm of the file: initdb's arguments, SQL, a directory.
#[test]
fn an_arm_says_how_its_server_is_made_and_where_it_lies() {
    let bench = Bench::new();
    let on = bench.path("encrypted");
    fs::create_dir(&on).unwrap();
    // The kernel does not tell of a link where a server works.
    std::os::unix::fs::symlink(&on, bench.path("named")).unwrap();
    let path = quick(&bench, |text| {
        let peer = "[[arm]]\nname = \"peer\"\ntitle = \"a peer\"\nlike = \"plain\"\n\
             initdb = [\"--wal-segsize=4\"]\non = \"named\"\n\
             sql = \"CREATE TABLE made (n int); INSERT INTO made VALUES (1)\"\n[settings]";
        // Only a server that was made so has such segments, and the row.
        let custom = "script = \"custom\"\ncustom = \"SELECT 1 / (CASE \
                      current_setting('wal_segment_size') WHEN '4MB' THEN 1 ELSE 0 END), 1 / (SELECT \
                      count(*) FROM made);\"";
        text.replace("[settings]", peer)
            .replace("[\"plain\", \"control\"]", "[\"peer\"]")
            .replace("script = \"select-only\"", custom)
            .replace("scale = 1", "scale = 0")
            .replace("blocks = 3", "blocks = 1")
    });
    succeeded(&bench.run(&[&path]));
    bench.is_clean();
    assert_eq!(fs::read_dir(&on).unwrap().count(), 0, "something is left in it");
    assert_eq!(bench.trials().len(), 1);
}

#[test]
fn the_next_lab_removes_what_a_killed_one_left_where_an_arm_lies() {
    let bench = Bench::new();
    let on = bench.path("encrypted");
    fs::create_dir(&on).unwrap();
    fs::create_dir(on.join("yours")).unwrap();
    let file = quick(&bench, |text| {
        let peer = format!(
            "[[arm]]\nname = \"peer\"\ntitle = \"a peer\"\nlike = \"plain\"\non = \"{}\"\n\
             [settings]",
            on.display()
        );
        text.replace("[settings]", &peer).replace("\"control\"", "\"peer\"")
    });
    bench.killed_in(&file);
    assert_eq!(fs::read_dir(&on).unwrap().count(), 2, "its server lies elsewhere");
    succeeded(&bench.resume());
    bench.is_clean();
    assert!(on.join("yours").is_dir());
    assert_eq!(fs::read_dir(&on).unwrap().count(), 1, "something is left in it");
}

/// Some settings hold from the next start on: pg_tde's encryption of the log is one.
#[test]
fn an_arm_restarts_after_its_sql() {
    for (restart, level) in [("", "replica"), ("restart = true\n", "logical")] {
        let bench = Bench::new();
        let path = quick(&bench, |text| {
            let peer = format!(
                "[[arm]]\nname = \"peer\"\ntitle = \"a peer\"\nlike = \"plain\"\n\
                 sql = \"ALTER SYSTEM SET wal_level = logical;\"\n{restart}[settings]"
            );
            let custom = format!(
                "script = \"custom\"\ncustom = \"SELECT 1 / (CASE current_setting('wal_level') \
                 WHEN '{level}' THEN 1 ELSE 0 END);\""
            );
            text.replace("[settings]", &peer)
                .replace("[\"plain\", \"control\"]", "[\"peer\"]")
                .replace("script = \"select-only\"", &custom)
                .replace("scale = 1", "scale = 0")
                .replace("blocks = 3", "blocks = 1")
        });
        succeeded(&bench.run(&[&path]));
        bench.is_clean();
    }
}

/// The files of peers that lie on volumes of the lab, as they are.
#[test]
#[ignore = "long: make test-full"]
fn peers_on_volumes_of_the_lab_run_and_what_the_kernel_lacks_is_named() {
    for (peer, kind) in [("fscrypt", VolumeType::Fscrypt), ("luks", VolumeType::Luks)] {
        let bench = Bench::new();
        let file = format!("{}/experiments/peers/{peer}.toml", env!("CARGO_MANIFEST_DIR"));
        let output = bench.run(&[&file, "--miniature"]);
        succeeded(&output);
        nothing_is_left(&bench);
        let manifest = fs::read_to_string(bench.out().join("run.json")).unwrap();
        let manifest: Value = serde_json::from_str(&manifest).unwrap();
        let trials = fs::read_to_string(bench.out().join("results.jsonl")).unwrap_or_default();
        let trials = trials_of(&trials);
        for arm in manifest["experiments"][0]["arms"].as_array().unwrap() {
            let name = arm["name"].as_str().unwrap();
            let kind = if name == peer { kind } else { VolumeType::Ext4 };
            let why = Volume::missing(kind);
            assert_eq!(arm["missing"].as_str(), why.as_deref(), "{peer}");
            let measured = trials.iter().any(|trial| trial["arm"] == arm["name"]);
            assert_eq!(measured, why.is_none(), "{peer}: {arm}");
            if let Some(why) = why {
                skip::because(format!("{name} of {peer}: {why}"));
                let report = fs::read_to_string(bench.out().join("report.md")).unwrap();
                assert!(report.contains(&why), "{report}");
            }
        }
    }
}

#[test]
fn a_run_on_a_volume_that_fails_or_is_interrupted_leaves_nothing() {
    if skip::unless_root("a volume") {
        return;
    }
    for kind in [VolumeType::Ext4, VolumeType::Fscrypt, VolumeType::Luks] {
        if let Some(why) = Volume::missing(kind) {
            skip::because(format!("{kind:?}: {why}"));
            continue;
        }
        let name = format!("{kind:?}").to_lowercase();
        let on_volume = |settings: &str| {
            let arm = format!(
                "[[arm]]\nname = \"peer\"\ntitle = \"a peer\"\nlike = \"plain\"\n\
                 volume = \"{name}\"\n[limits]\nvolume_mib = 300\n[settings]\n{settings}"
            );
            move |text: String| {
                text.replace("[\"plain\", \"control\"]", "[\"peer\"]").replace("[settings]", &arm)
            }
        };
        let bench = Bench::new();
        let file = quick(&bench, on_volume("shared_buffers = \"12 potatoes\""));
        let output = bench.run(&[&file]);
        assert_eq!(output.status.code(), Some(1), "{}", told(&output));
        assert!(told(&output).contains("potatoes"), "{}", told(&output));
        nothing_is_left(&bench);

        let bench = Bench::new();
        let file = quick(&bench, on_volume(""));
        let mut command = bench.measuring(&["run", &file]);
        let child = command.arg("--out").arg(bench.out()).stderr(Stdio::null()).spawn();
        let mut child = child.unwrap();
        let start = Instant::now();
        while fs::metadata(bench.out().join("results.jsonl")).map_or(0, |meta| meta.len()) == 0 {
            assert!(start.elapsed() < Duration::from_secs(120), "no trial was finished");
            thread::sleep(Duration::from_millis(20));
        }
        assert!(!in_use(&bench).is_empty(), "its server lies elsewhere");
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        kill_process(pid, Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130));
        nothing_is_left(&bench);
    }
}

fn nothing_is_left(bench: &Bench) {
    bench.is_clean();
    assert_eq!(in_use(bench), Vec::<String>::new());
}

/// Mounts, loop devices and LUKS devices of the lab of this bench.
fn in_use(bench: &Bench) -> Vec<String> {
    let work = bench.path("work").display().to_string();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut found: Vec<String> =
        mounts.lines().filter(|line| line.contains(&work)).map(str::to_owned).collect();
    for block in fs::read_dir("/sys/block").unwrap().flatten() {
        let image = fs::read_to_string(block.path().join("loop/backing_file"));
        found.extend(image.ok().filter(|image| image.contains(&work)));
    }
    found
}

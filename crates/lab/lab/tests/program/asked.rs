//! What was asked for and makes no sense, and directories that are not the lab's: refused before
//! anything is made.

use super::*;

#[test]
fn options_that_measure_nothing_are_usage_errors() {
    let bench = Bench::new();
    let paced = |text: String| text.replace("blocks = 3", "blocks = 3\nequal_work_blocks = 2");
    let file = quick(&bench, paced);
    let precise = ["run", &*file, "--precision"];
    for (args, why) in [
        (&[&precise[..], &["0%"]].concat()[..], "above 0 and below 100"),
        (&[&precise[..], &["100%"]].concat(), "above 0 and below 100"),
        (&[&precise[..], &["2%", "--blocks", "4"]].concat(), "--blocks 4 is too few"),
        (&[&precise[..], &["2%", "--minutes", "0"]].concat(), "--minutes"),
        (&["resume", "no", "--minutes", "0"], "--minutes"),
        (&["run", &file, "--blocks", "0"], "--blocks"),
    ] {
        let mut command = bench.measuring(args);
        if args.first() == Some(&"run") {
            command.arg("--out").arg(bench.out());
        }
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", told(&output));
        assert!(told(&output).contains(why), "{args:?}: {}", told(&output));
        assert!(!bench.out().exists(), "{args:?}");
    }
    succeeded(&lab(&["plan", &file, "--precision", "2%", "--blocks", "10"]).output().unwrap());
}

#[test]
fn a_file_that_cannot_be_run_is_neither_planned_nor_shown() {
    let bench = Bench::new();
    for (from, to, why) in [
        ("clients = 1", "clients = 0", "workload.read.clients is 0"),
        ("scale = 1", "scale = 0", "workload.read.scale is 0"),
        ("seconds = 1", "seconds = \"{zz}\"", "workload.read.seconds: \"{zz}\" names zz"),
        ("[settings]", "[limits]\ncpus = -1\n[settings]", "limits.cpus is -1"),
        ("[settings]", "[factors]\nn = [1, 1]\n[settings]", "`n` has the level 1 twice"),
        ("\"quick\"", "\"../../etc\"", "experiment `../../etc`"),
        ("\"quick\"", "\"\"", "experiment ``"),
        ("max_connections = 10", "max_connections = 3", "max_connections is 3"),
    ] {
        let file = quick(&bench, |text| text.replace(from, to));
        for verb in ["plan", "show", "run"] {
            let mut command = lab(&[verb, &file]);
            if verb == "run" {
                command.arg("--out").arg(bench.out());
            }
            let output = command.output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{verb}: {}", told(&output));
            assert!(told(&output).contains(why), "{verb}: {}", told(&output));
        }
    }
    assert!(!bench.out().exists());
}

/// A run that is kept: reads, measured until the control was known to 2 %, where sealed lost 6.0 %
/// [4.7, 7.3].
#[test]
fn a_gate_on_a_kept_run_ends_by_where_its_interval_lies() {
    let kept = "../../../lab/runs/2026-11-27-reads-to-two-percent";
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join(kept);
    for (most, code) in [("2%", 5), ("3%", 5), ("5%", 7), ("8%", 0), ("20%", 0)] {
        let output = lab(&["gate"]).arg(&kept).args(["--max-loss", most]).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{most}: {}", told(&output));
    }
    let output = lab(&["gate"]).arg(&kept).args(["--max-loss", "2%", "--arm", "nosuch"]).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    assert!(told(&output).contains("nosuch"), "{}", told(&output));
}

#[test]
fn a_run_is_written_into_a_directory_of_its_own() {
    let bench = Bench::new();
    let file = quick(&bench, |text| text);
    let foreign = bench.path("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("thesis.tex"), "mine").unwrap();
    for (out, code, why) in [
        (&foreign, 3, "is no run, and has other files: thesis.tex"),
        (&foreign.join("thesis.tex"), 2, "that is a file"),
    ] {
        let output = bench.measuring(&["run", &file]).arg("--out").arg(out).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", told(&output));
        assert!(told(&output).contains(why), "{}", told(&output));
    }
    assert_eq!(fs::read_dir(&foreign).unwrap().count(), 1, "something was written");
    assert_eq!(fs::read_to_string(foreign.join("thesis.tex")).unwrap(), "mine");
}

#[test]
fn a_report_does_not_take_the_place_of_another_run_s() {
    let bench = Bench::new();
    let file = quick(&bench, |text| text.replace("blocks = 3", "blocks = 1"));
    succeeded(&bench.run(&[&file]));
    let other = bench.path("other");
    fs::create_dir(&other).unwrap();
    fs::copy(bench.out().join("results.jsonl"), other.join("results.jsonl")).unwrap();
    let manifest = fs::read_to_string(bench.out().join("run.json")).unwrap();
    let mut manifest: Value = serde_json::from_str(&manifest).unwrap();
    manifest["created"] = 7.into();
    fs::write(other.join("run.json"), manifest.to_string()).unwrap();
    let report = |run: &Path, out: &Path| {
        let mut command = lab(&["report"]);
        command.arg(run).arg("--out").arg(out).output().unwrap()
    };
    let apart = bench.path("apart");
    succeeded(&report(&other, &other));
    succeeded(&report(&bench.out(), &apart));
    succeeded(&report(&bench.out(), &apart));
    let page = || fs::read(other.join("report.html")).unwrap();
    let before = page();
    for (run, out) in [(&bench.out(), &other), (&other, &apart)] {
        let output = report(run, out);
        assert_eq!(output.status.code(), Some(3), "{}", told(&output));
        assert!(told(&output).contains("is not of "), "{}", told(&output));
    }
    assert_eq!(page(), before);
    let output = report(&other, Path::new(&file));
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    assert!(told(&output).contains("that is a file"), "{}", told(&output));

    if skip::unless_root("a small file system") {
        return;
    }
    let mount = bench.path("small");
    fs::create_dir(&mount).unwrap();
    let mut command = Command::new("mount");
    let command = command.args(["-t", "tmpfs", "-o", "size=6m", "none"]).arg(&mount);
    assert!(command.status().unwrap().success());
    let _mounted = Mounted(mount.clone());
    let small = mount.join("report");
    succeeded(&report(&bench.out(), &small));
    let whole = fs::read(small.join("report.html")).unwrap();
    let mut ballast = fs::File::create(mount.join("ballast")).unwrap();
    while ballast.write_all(&[0; 4096]).is_ok() {}
    let output = report(&bench.out(), &small);
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(told(&output).contains("make room, then the same command"), "{}", told(&output));
    assert_eq!(fs::read(small.join("report.html")).unwrap(), whole, "it was cut");
    assert_eq!(fs::read_dir(&small).unwrap().count(), 4, "something else is left");
}

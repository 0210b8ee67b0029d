//! Arms of a user's own: other programs, other directories, servers elsewhere.

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

    fs::remove_file(bin.join("postgres")).unwrap();
    let mut again = bench.measuring(&["run", &file]);
    let output = again.arg("--out").arg(bench.path("other")).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    assert!(told(&output).contains("has no program postgres"), "{}", told(&output));
    assert!(!bench.path("other").exists());
}

/// A peer is an arm of the file: initdb's arguments, SQL, a directory.
#[test]
fn an_arm_says_how_its_server_is_made_and_where_it_lies() {
    let bench = Bench::new();
    let on = bench.path("encrypted");
    fs::create_dir(&on).unwrap();
    let path = quick(&bench, |text| {
        let peer = format!(
            "[[arm]]\nname = \"peer\"\ntitle = \"a peer\"\nlike = \"plain\"\n\
             initdb = [\"--wal-segsize=4\"]\non = \"{}\"\n\
             sql = \"CREATE TABLE made (n int); INSERT INTO made VALUES (1)\"\n[settings]",
            on.display()
        );
        // Only a server that was made so has such segments, and the row.
        let custom = "script = \"custom\"\ncustom = \"SELECT 1 / (CASE \
                      current_setting('wal_segment_size') WHEN '4MB' THEN 1 ELSE 0 END), 1 / (SELECT \
                      count(*) FROM made);\"";
        text.replace("[settings]", &peer)
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

/// The lab reaches a server that it did not start, and leaves it as it was.
#[test]
fn a_server_elsewhere_keeps_nothing_of_the_lab() {
    let bench = Bench::new();
    let place = Workspace::below(bench.dir.path()).unwrap();
    let server = Cluster::new(&place, "elsewhere", Arm::Plain).unwrap();
    server.start().unwrap();
    server.sql("CREATE TABLE pgbench_accounts AS SELECT 'kept' AS mine").unwrap();
    let path = quick(&bench, |text| {
        let dsn = format!(
            "[[arm]]\nname = \"far\"\ntitle = \"elsewhere\"\nlike = \"plain\"\n\
             dsn = \"host={} port=5432 user=postgres dbname=postgres sslmode=disable\"\n[settings]",
            server.socket_dir().display()
        );
        text.replace("[settings]", &dsn)
            .replace("[\"plain\", \"control\"]", "[\"far\"]")
            .replace("select-only", "tpcb-like")
            .replace("blocks = 3", "blocks = 1\nlatency_blocks = 1")
    });
    succeeded(&bench.run(&[&path]));
    let trials = bench.trials();
    assert!(has_metric(&trials, "transactions_per_second") && has_metric(&trials, "latency_p95"));
    assert!(!has_metric(&trials, "cpu_per_unit"), "whose CPU time?");
    server.expect("SELECT mine FROM pgbench_accounts", "kept").unwrap();
    let left = "SELECT count(*) FROM pg_namespace WHERE nspname = 'tidelock_lab'";
    server.expect(left, "0").unwrap();
    server.stop("fast").unwrap();
}

/// What a managed server asks for: TLS, a certificate of a known authority, a password.
#[test]
fn a_server_elsewhere_is_reached_by_tls_and_no_other_is() {
    let bench = Bench::new();
    let place = Workspace::below(bench.dir.path()).unwrap();
    let server = Cluster::new(&place, "elsewhere", Arm::Plain).unwrap();
    let library = server.tool("postgres").args(["-C", "ssl_library", "-D"]).arg(server.dir());
    if library.run().unwrap().stdout.trim().is_empty() {
        skip::because("this server is built without TLS");
        return;
    }
    let port = free_port();
    let settings = [("ssl", "on"), ("listen_addresses", "127.0.0.1"), ("port", port.as_str())];
    for (name, value) in settings {
        server.set(name, value).unwrap();
    }
    certificate(&place, &place.join("other"));
    certificate(&place, &place.join("right"));
    for (from, to) in [("right.key", "server.key"), ("right.crt", "server.crt")] {
        place.tool("cp").arg(place.join(from)).arg(server.dir().join(to)).run().unwrap();
    }
    let rules = "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n";
    place.write(&server.dir().join("pg_hba.conf"), rules).unwrap();
    server.start().unwrap();
    let psql = |text: &str| {
        let psql = place.tool("psql").args(["-X", "-h"]).arg(server.socket_dir());
        psql.args(["-p", &port, "-U", "postgres", "-d", "postgres", "-Atc", text]).run().unwrap()
    };
    psql(
        "CREATE ROLE far LOGIN PASSWORD 'long and secret'; GRANT CREATE ON DATABASE postgres TO far",
    );
    psql("ALTER SYSTEM SET log_connections = on");
    psql("SELECT pg_reload_conf()");
    let run = |certificate: &str, password: &str| {
        let path = quick(&bench, |text| {
            let dsn = format!(
                "[[arm]]\nname = \"far\"\ntitle = \"elsewhere\"\nlike = \"plain\"\n\
                 dsn = \"host=localhost hostaddr=127.0.0.1 port={port} user=far dbname=postgres \
                 sslmode=verify-full sslrootcert={}\"\n[settings]",
                place.join(certificate).display()
            );
            text.replace("[settings]", &dsn)
                .replace("[\"plain\", \"control\"]", "[\"far\"]")
                .replace("blocks = 3", "blocks = 1")
        });
        let _ = fs::remove_dir_all(bench.out());
        let mut command = bench.measuring(&["run", &path]);
        command.arg("--out").arg(bench.out()).env("PGPASSWORD", password).output().unwrap()
    };
    for (certificate, password, why) in [
        ("other.crt", "long and secret", "certificate verify failed"),
        ("right.crt", "not this one", "password authentication failed"),
    ] {
        let output = run(certificate, password);
        assert!(!output.status.success() && told(&output).contains(why), "{}", told(&output));
        assert!(!told(&output).contains(password), "a password was printed: {}", told(&output));
    }
    succeeded(&run("right.crt", "long and secret"));
    assert!(has_metric(&bench.trials(), "transactions_per_second"));
    for kept in ["run.json", "results.jsonl"] {
        assert!(!fs::read_to_string(bench.out().join(kept)).unwrap().contains("long and secret"));
    }
    let log = fs::read_to_string(server.log()).unwrap();
    let authorized = log.lines().filter(|line| line.contains("authorized: user=far"));
    assert!(authorized.clone().count() > 0, "{log}");
    assert!(authorized.clone().all(|line| line.contains("SSL enabled")), "{log}");
    server.stop("fast").unwrap();
}

/// FILE.key and FILE.crt for localhost, of an authority that has signed nothing else: itself.
fn certificate(place: &Workspace, file: &Path) {
    let openssl = place.tool("openssl").args(["req", "-new", "-x509", "-days", "2", "-nodes"]);
    let openssl = openssl.args(["-subj", "/CN=localhost", "-out"]).arg(file.with_extension("crt"));
    openssl.arg("-keyout").arg(file.with_extension("key")).run().unwrap();
}

fn free_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port().to_string()
}

//! What the demo does, in order.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use tidelock_lab::statistics::{Estimate, Interval};
use tidelock_testkit::marker::{Marker, Searched};
use tidelock_testkit::pg::{
    Arm, Cluster, Error, Load, Result, Workspace, cpu_seconds, ensure, fill_pgbench,
};

use crate::tell::Teller;

/// From a plain server that exists, by its life as a sealed one, back to a plain one.
pub(crate) fn life(arm: Arm, scale: u32, teller: &Teller) -> Result<()> {
    let place = Workspace::new()?;
    teller.title(&format!(
        "A stock PostgreSQL, {arm}, as {} below {}",
        place.account().name(),
        place.path().display()
    ));
    let plain = teller.step("create", |_| {
        let plain = Cluster::started(&place, "main", Arm::Plain)?;
        Ok((plain, "initdb -k -D main; pg_ctl -D main start: nothing of Tidelock yet".to_owned()))
    })?;
    let marker = Marker::new();
    teller.step("load", |_| {
        let main = &plain;
        let version = main.sql("SHOW server_version")?;
        fill_pgbench(main, scale)?;
        main.sql(&format!(
            "CREATE TABLE secret AS SELECT g AS id, '{0}' || g AS told FROM generate_series(1, \
             1000) g;
             CREATE INDEX ON secret (told); COMMENT ON TABLE secret IS '{0}'; CHECKPOINT",
            marker.text()
        ))?;
        let size = main.sql("SELECT pg_size_pretty(pg_database_size('postgres'))")?;
        let text = marker.text();
        Ok(((), format!("server {version}, {size} of pgbench tables, and the marker {text}")))
    })?;
    let main = Cluster::at(&place, "main", arm)?;
    if arm == Arm::Sealed {
        teller.step("protect", |_| protect(&place, &main))?;
    }
    teller.step("crash", |_| crash(&main))?;
    teller.step("recover", |_| {
        main.start()?;
        balanced(&main)?;
        main.expect("SELECT count(DISTINCT told) FROM secret", "1000")?;
        let done = main.sql("SELECT count(*) FROM pgbench_history")?;
        Ok(((), format!("all balances agree over {done} committed transactions")))
    })?;
    let standby = teller.step("standby", |_| standby(&main, &marker, arm))?;
    let roots = [main.dir().to_path_buf(), standby.dir().to_path_buf()];
    teller.step("search", |_| search(&place, &main, &marker, &roots, arm))?;
    main.stop("fast")?;
    standby.stop("fast")?;
    if arm == Arm::Sealed {
        for cluster in [&main, &standby] {
            teller.step("verify", |_| {
                let dir = cluster.dir().display().to_string();
                let output = cluster.tidelock(&["verify", "-D", &dir])?.run()?;
                Ok(((), output.stdout.lines().last().unwrap_or("nothing wrong").to_owned()))
            })?;
        }
        teller.step("refuse", |_| refuse(&place))?;
        teller.step("unprotect", |_| unprotect(&plain))?;
    }
    Ok(())
}

/// One command for the server that runs; it stops while its files are converted.
fn protect(place: &Workspace, main: &Cluster<'_>) -> Result<((), String)> {
    let home = |name: &str| place.join("home").join(name).display().to_string();
    let dir = main.dir().display().to_string();
    let (key, copy) = (format!("file:{}", home("main.key")), home("main.keyring"));
    let words = ["protect", "--yes", "-D", &dir, "--provider", &key, "--keyring-copy", &copy];
    let output = main.tidelock(&words)?.args(["--recovery-file", &home("main.recovery")]).run()?;
    main.expect("SELECT count(DISTINCT told) FROM secret", "1000")?;
    let sealed = output.stdout.lines().find(|line| line.contains(" sealed: ")).unwrap_or_default();
    Ok(((), format!("tidelock protect -D main: {sealed}; the server runs again")))
}

/// The way back: the bare server has all rows.
fn unprotect(plain: &Cluster<'_>) -> Result<((), String)> {
    let dir = plain.dir().display().to_string();
    plain.tidelock(&["unprotect", "--yes", "-D", &dir])?.run()?;
    plain.start()?;
    balanced(plain)?;
    plain.expect("SELECT count(DISTINCT told) FROM secret", "1001")?;
    plain.stop("fast")?;
    Ok(((), "tidelock unprotect -D main: the bare server starts, and has every row".to_owned()))
}

/// Kills the postmaster with signal 9 in the middle of a load.
fn crash(main: &Cluster<'_>) -> Result<((), String)> {
    let args = ["-n", "-c", "4", "-j", "2", "-T", "60"];
    let mut load = main.client("pgbench").args(args).spawn()?;
    thread::sleep(Duration::from_secs(6));
    ensure(load.runs(), || "pgbench ended before the crash".into())?;
    let pid = main.postmaster()?.id();
    main.kill_nine()?;
    Ok(((), format!("kill -9 {pid} under four writing clients")))
}

fn balanced(cluster: &Cluster<'_>) -> Result<()> {
    cluster.expect(
        "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM \
         pgbench_history)
            AND (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(delta) FROM pgbench_history)
            AND (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(delta) FROM pgbench_history)",
        "t",
    )
}

/// A base backup into a second protected directory, which then streams.
fn standby<'p>(main: &Cluster<'p>, marker: &Marker, arm: Arm) -> Result<(Cluster<'p>, String)> {
    let standby = Cluster::empty(main.workspace(), "standby", arm)?;
    standby.backup_of(main, &["-R", "-X", "stream"])?;
    standby.start()?;
    let start = Instant::now();
    main.sql(&format!("INSERT INTO secret VALUES (1001, '{} streamed')", marker.text()))?;
    standby.wait_for("SELECT count(*) FROM secret", "1001")?;
    balanced(&standby)?;
    let lag = start.elapsed().as_millis();
    let own = only_if_sealed(arm, " into a directory with keys of its own", "");
    Ok((standby, format!("pg_basebackup{own}; a new row arrived by streaming in {lag} ms")))
}

/// Every byte of both directories; and a plain copy, where the same search has to find the marker.
fn search(
    place: &Workspace,
    main: &Cluster<'_>,
    marker: &Marker,
    roots: &[PathBuf],
    arm: Arm,
) -> Result<((), String)> {
    main.sql("CHECKPOINT")?;
    let dump = place.join("home/dump.sql");
    main.client("pg_dump").args(["-t", "secret", "-f"]).arg(&dump).run()?;
    let look = |paths: &[PathBuf]| marker.search(paths).map_err(Error::io("searching"));
    let Searched { files, bytes, findings } = look(roots)?;
    let control = look(&[dump])?;
    ensure(control.findings.len() == 1, || "the search missed the marker in a plain dump".into())?;
    let found = findings.len();
    let right = if arm == Arm::Sealed { found == 0 } else { found > 3 };
    ensure(right, || format!("the marker was found in {found} files: {findings:#?}"))?;
    let megabytes = bytes >> 20;
    Ok((
        (),
        format!(
            "the marker, in any byte order, is in {found} of {files} files ({megabytes} MiB read)\n\
         control: the same search finds it in a dump outside"
        ),
    ))
}

/// The stock server, started without Tidelock, must not come up.
fn refuse(place: &Workspace) -> Result<((), String)> {
    let bare = Cluster::at(place, "main", Arm::Plain)?;
    let output = place.tool("postgres").arg("-D").arg(bare.dir()).limit(60).fails()?;
    let line = output.text();
    let line = line.lines().find(|line| line.contains("FATAL") || line.contains("PANIC"));
    let line = line.unwrap_or("no message").to_owned();
    Ok(((), format!("the bare server ends with: {line}")))
}

/// Interleaved blocks on a plain and on a sealed server, in an order drawn from the seed.
pub(crate) fn measure(
    arm: Arm,
    rounds: usize,
    seconds: u32,
    seed: u64,
    teller: &Teller,
) -> Result<()> {
    let place = Workspace::new()?;
    teller.title(&format!(
        "Cost: {rounds} rounds of plain and {arm} blocks of {seconds} s in random order, seed \
         {seed}"
    ));
    let servers = teller.step("prepare", |_| {
        let servers = [("p", Arm::Plain), ("s", arm)].map(|(name, arm)| -> Result<_> {
            let server = Cluster::new(&place, name, arm)?;
            for (setting, value) in
                [("autovacuum", "off"), ("max_wal_size", "8GB"), ("checkpoint_timeout", "1h")]
            {
                server.set(setting, value)?;
            }
            server.start()?;
            fill_pgbench(&server, 10)?;
            server.sql("VACUUM; CHECKPOINT")?;
            Load::select_only(4, 1).run(&server)?;
            Ok(server)
        });
        let [plain, sealed] = servers;
        Ok(([plain?, sealed?], "pgbench scale 10 on each, shared_buffers 128 MB".to_owned()))
    })?;
    let loads =
        [("read only", Load::select_only(4, seconds)), ("TPC-B-like", Load::tpcb(4, seconds))];
    for (name, load) in loads {
        teller.step(name, |bar| {
            Teller::blocks(bar, rounds * 2);
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut speed, mut cpu) = ([vec![], vec![]], [vec![], vec![]]);
            for _ in 0..rounds {
                let mut order = [0, 1];
                random.shuffle(&mut order);
                for at in order {
                    let (each, used) = block(&servers[at], &load)?;
                    speed[at].push(each);
                    cpu[at].push(used);
                    bar.inc(1);
                }
            }
            let empty = || Error::Unexpected("a block did no work".into());
            let throughput = ratio(&speed[1], &speed[0]).ok_or_else(empty)?;
            let cpu = ratio(&cpu[0], &cpu[1]).ok_or_else(empty)?;
            let told = format!(
                "throughput {arm}/plain {throughput}, CPU per transaction plain/{arm} {cpu}"
            );
            Ok(((), told))
        })?;
    }
    println!(
        "        1.000 is no cost; in brackets the 95 % interval. `make bench` measures properly."
    );
    Ok(())
}

/// Of values that were measured beside each other, with the 95 % interval; `None` of fewer than two
/// pairs, or where a value is not positive.
fn ratio(of: &[f64], to: &[f64]) -> Option<Interval> {
    let logs: Vec<f64> = of.iter().zip(to).map(|(of, to)| (of / to).ln()).collect();
    Estimate::of(&logs, None).map(|it| it.interval(0.95))
}

/// One block: transactions a second, and CPU seconds of the server for each.
fn block(server: &Cluster<'_>, load: &Load) -> Result<(f64, f64)> {
    server.sql("CHECKPOINT")?;
    let postmaster = server.postmaster()?;
    let (start, cpu) = (Instant::now(), cpu_seconds(postmaster));
    let transactions = load.run(server)?.transactions;
    let seconds = start.elapsed().as_secs_f64();
    Ok((transactions / seconds, (cpu_seconds(postmaster) - cpu) / transactions))
}

fn only_if_sealed(arm: Arm, sealed: &str, otherwise: &str) -> String {
    if arm == Arm::Sealed { sealed.into() } else { otherwise.into() }
}

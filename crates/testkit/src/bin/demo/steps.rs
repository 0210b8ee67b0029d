//! What the demo does, in order.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use tidelock_testkit::marker::{Marker, Searched};
use tidelock_testkit::pg::{
    Arm, Cluster, Cost, Error, Load, Place, Result, Sample, ensure, fill_pgbench, run_rounds,
};

use crate::tell::Teller;

/// From initdb to the refusal of the bare server.
pub(crate) fn life(arm: Arm, scale: u32, teller: &Teller) -> Result<()> {
    let place = Place::new()?;
    teller.title(&format!(
        "A stock PostgreSQL, {arm}, as {} below {}",
        place.account().name(),
        place.path().display()
    ));
    let main = teller.step("create", |_| {
        let main = Cluster::new(&place, "main", arm)?;
        let told = "tidelock init main; tidelock exec -D main -- initdb -k -D main";
        Ok((main, only_if_sealed(arm, told, "initdb -k -D main")))
    })?;
    let marker = Marker::new();
    teller.step("load", |_| {
        main.start()?;
        let version = main.sql("SHOW server_version")?;
        fill_pgbench(&main, scale)?;
        main.sql(&format!(
            "CREATE TABLE secret AS SELECT g AS id, '{0}' || g AS told FROM generate_series(1, 1000) g;
             CREATE INDEX ON secret (told); COMMENT ON TABLE secret IS '{0}'; CHECKPOINT",
            marker.text()
        ))?;
        let size = main.sql("SELECT pg_size_pretty(pg_database_size('postgres'))")?;
        let text = marker.text();
        Ok(((), format!("server {version}, {size} of pgbench tables, and the marker {text}")))
    })?;
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
    }
    Ok(())
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
        "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)
            AND (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(delta) FROM pgbench_history)
            AND (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(delta) FROM pgbench_history)",
        "t",
    )
}

/// A base backup into a second protected directory, which then streams.
fn standby<'p>(main: &Cluster<'p>, marker: &Marker, arm: Arm) -> Result<(Cluster<'p>, String)> {
    let standby = Cluster::empty(main.place(), "standby", arm)?;
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
    place: &Place,
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
fn refuse(place: &Place) -> Result<((), String)> {
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
    let place = Place::new()?;
    teller.title(&format!(
        "Cost: {rounds} rounds of plain and {arm} blocks of {seconds} s in random order, seed {seed}"
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
            let samples = run_rounds(2, rounds, seed, |block| {
                let server = &servers[block.arm];
                server.sql("CHECKPOINT")?;
                let sample = Sample::of(server, || Ok(load.run(server)?.transactions));
                bar.inc(1);
                sample
            })?;
            let cost = Cost::of(&samples[1], &samples[0], seed);
            let cost = cost.ok_or_else(|| Error::Unexpected("a block did no work".into()))?;
            Ok((
                (),
                format!(
                    "throughput {arm}/plain {}, CPU per transaction plain/{arm} {}",
                    cost.throughput, cost.cpu
                ),
            ))
        })?;
    }
    println!(
        "        1.000 is no cost; in brackets the 95 % interval. `make bench` measures properly."
    );
    Ok(())
}

fn only_if_sealed(arm: Arm, sealed: &str, otherwise: &str) -> String {
    if arm == Arm::Sealed { sealed.into() } else { otherwise.into() }
}

//! Every experiment that is shipped, in miniature: run, reported, gated and compared.

use super::*;

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
    assert!(has_metric(&trials, "transactions_per_second") && has_metric(&trials, "cpu_per_unit"));
}

#[test]
fn rds_encryption_in_miniature() {
    let (_bench, trials) = miniature("rds-encryption");
    assert!(has_metric(&trials, "elapsed") && has_metric(&trials, "rows_per_second"));
    let fixed = |trial: &Value| trial["phase"] == "fixed-rate";
    assert!(has_metric(&trials, "latency_p99") && trials.iter().any(fixed));
}

#[test]
fn cybertec_matrix_in_miniature() {
    let (_bench, trials) = miniature("cybertec-matrix");
    assert!(has_metric(&trials, "transactions_per_second"));
}

#[test]
fn cybertec_matrix_in_miniature_on_postgresql_13() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../build/postgresql");
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
    let of_13 = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with("13.");
    let Some(bin) = entries.into_iter().find(of_13).map(|entry| entry.path().join("bin")) else {
        return skip::missing("PostgreSQL 13 (ci/pg-majors)");
    };
    let bin = bin.canonicalize().unwrap();
    let (bench, trials) = miniature_with("cybertec-matrix", &[("TIDELOCK_PG_BINDIR", &bin)]);
    assert!(has_metric(&trials, "transactions_per_second"));
    let manifest = fs::read_to_string(bench.out().join("run.json")).unwrap();
    assert!(manifest.contains("postgres (PostgreSQL) 13."), "{manifest}");
}

#[test]
fn latency_in_miniature() {
    let (_bench, trials) = miniature("latency");
    assert!(has_metric(&trials, "latency_p99") && has_metric(&trials, "cpu_per_unit"));
    // After a checkpoint each first change of a page is an image; a warm server has had them.
    let images = |workload: &str| {
        let paced = trials.iter().filter(|trial| trial["phase"] == "equal-work");
        let of_load = paced.filter(|trial| trial["cell"]["workload"] == workload);
        of_load.map(|t| t["metrics"]["page_images"].as_f64().unwrap()).fold(0.0, f64::max)
    };
    assert!(images("tpcb_warm") < images("tpcb") / 2.0, "{trials:?}");
    let checkpoints = |trial: &&Value| trial["metrics"]["checkpoints"].as_f64() != Some(0.0);
    let warm = trials.iter().filter(|trial| trial["cell"]["workload"] == "tpcb_warm");
    assert_eq!(warm.filter(checkpoints).count(), 0, "a checkpoint makes a warm server cold");
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
    let points = |trial: &Value| trial["series"]["write_iops"].as_array().map_or(0, Vec::len);
    // Two points at least: one is no line. Samples are 0.1 s apart.
    let long = |trial: &&Value| trial["seconds"].as_f64().unwrap() > 0.3;
    let sampled = trials.iter().any(|trial| long(&trial))
        && trials.iter().filter(long).all(|trial| points(trial) >= 2);
    let marked = trials.iter().all(is_marked);
    assert!(if root { sampled } else { marked }, "{trials:?}");
}

#[test]
fn regression_in_miniature() {
    let (_bench, trials) = miniature("regression");
    assert!(has_metric(&trials, "cpu_per_unit") && has_metric(&trials, "rows_per_second"));
    for workload in ["scan_two_workers", "tpcb_asynchronous", "new_connections"] {
        assert!(trials.iter().any(|trial| trial["cell"]["workload"] == workload), "{workload}");
    }
}

#[test]
fn aurora_mysqlslap_in_miniature() {
    let (bench, trials) = miniature("aurora-mysqlslap");
    for arm in ["own", "sealed"] {
        assert!(trials.iter().any(|trial| trial["arm"] == arm), "no trial of {arm}");
    }
    assert!(has_metric(&trials, "elapsed") && bench.out().join("run.json").is_file());
}

#[test]
#[ignore = "long: make test-full"]
fn aurora_mysql_in_miniature() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).unwrap();
    let bin = repository.join("build/mysql/8.0/bin");
    if !bin.join("mysqld").is_file() {
        return skip::because("build/mysql/8.0 is missing: ci/mysql");
    }
    let (bench, trials) = miniature_with("aurora-mysql", &[("TIDELOCK_MYSQL_BINDIR", &bin)]);
    for arm in ["plain", "control", "sealed"] {
        assert!(trials.iter().any(|trial| trial["arm"] == arm), "no trial of {arm}");
    }
    assert!(has_metric(&trials, "elapsed") && has_metric(&trials, "cpu_per_unit"));
    let told = fs::read_to_string(bench.out().join("run.json")).unwrap();
    assert!(told.contains("no component_keyring_file.so"), "{told}");
    assert!(told.contains("mysqld  Ver 8.0.15") && !told.contains("build/mysql"), "{told}");
}

#[test]
#[ignore = "long: make test-full"]
fn mariadb_sysbench_in_miniature() {
    if Command::new("sysbench").arg("--version").output().is_err() {
        return skip::missing("sysbench");
    }
    let (bench, trials) = miniature("mariadb-sysbench");
    let number = |trial: &Value, metric: &str| trial["metrics"][metric].as_f64();
    for arm in ["plain", "control", "own", "sealed"] {
        let paced: Vec<&Value> = trials
            .iter()
            .filter(|trial| trial["arm"] == arm && trial["phase"] == "equal-work")
            .collect();
        for workload in ["oltp_read_only", "oltp_read_write", "oltp_write_only"] {
            let of_load = |trial: &&&Value| trial["cell"]["workload"] == workload;
            let trial = paced.iter().find(of_load).unwrap_or_else(|| panic!("{arm}, {workload}"));
            // The same work as the plain server's, done by this one.
            let plain = trials.iter().find(|t| {
                t["arm"] == "plain" && t["phase"] == "equal-work" && t["cell"] == trial["cell"]
            });
            assert_eq!(number(plain.unwrap(), "units"), number(trial, "units"), "{arm}");
            assert!(number(trial, "cpu_per_unit") > Some(0.0), "{trial}");
            assert!(number(trial, "latency_p95") > Some(0.0), "{trial}");
        }
    }
    assert!(has_metric(&trials, "rows_per_second"));
    let page = fs::read_to_string(bench.out().join("report.html")).unwrap();
    assert!(page.contains("Sealed against another encryption"));
}

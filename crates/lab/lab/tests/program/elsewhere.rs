//! Servers elsewhere: only the lab's own schema is touched there, in the database that was named.

use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use tidelock_servers::unused_port;

use super::*;

/// A server with the databases `lab` and `lab2` of a user `lab`, whose name is not that of the
/// account that clients run as, and with tables of somebody in `lab`.
fn far_server<'p>(place: &'p Workspace, name: &str) -> Cluster<'p> {
    let server = Cluster::new(place, name, Arm::Plain).unwrap();
    server.set("log_connections", "on").unwrap();
    server.start().unwrap();
    server.sql("CREATE ROLE lab LOGIN PASSWORD 'long and secret'").unwrap();
    for database in ["lab", "lab2"] {
        server.sql(&format!("CREATE DATABASE {database} OWNER lab")).unwrap();
    }
    let theirs = "CREATE TABLE pgbench_accounts AS SELECT 'kept' AS mine; \
                  CREATE TABLE pgbench_history AS SELECT 'kept' AS mine";
    server.sql(theirs).unwrap();
    server.sql_in("lab", &format!("SET ROLE lab; {theirs}")).unwrap();
    server
}

/// Nobody's table was touched, and nothing of the lab is left.
fn is_as_it_was(server: &Cluster<'_>) {
    for database in ["lab", "lab2", "postgres"] {
        let left = "SELECT count(*) FROM pg_namespace WHERE nspname = 'tidelock_lab'";
        assert_eq!(server.sql_in(database, left).unwrap(), "0", "the schema is left in {database}");
        let tables = "SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class \
                      WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'";
        let all = if database == "lab2" { "" } else { "pgbench_accounts pgbench_history" };
        assert_eq!(server.sql_in(database, tables).unwrap(), all, "{database}");
        for table in all.split_whitespace() {
            let mine = format!("SELECT mine FROM {table}");
            assert_eq!(server.sql_in(database, &mine).unwrap(), "kept", "{database}: {table}");
        }
    }
}

/// An arm with this `dsn`, like `plain`.
fn arm(name: &str, dsn: &str) -> String {
    format!("[[arm]]\nname = \"{name}\"\ntitle = \"far\"\nlike = \"plain\"\ndsn = \"{dsn}\"\n")
}

/// The quick experiment with arms of these names and these parameters.
fn with_arms(text: &str, arms: &[(&str, &str)]) -> String {
    let names: Vec<String> = arms.iter().map(|(name, _)| format!("\"{name}\"")).collect();
    let all: String = arms.iter().map(|(name, dsn)| arm(name, dsn)).collect();
    text.replace("\"plain\", \"control\"", &names.join(", "))
        .replace("[settings]", &format!("{all}[settings]"))
        .replace("blocks = 3", "blocks = 1")
}

fn local(server: &Cluster<'_>, more: &str) -> String {
    format!("host={} port=5432 user=lab {more}", server.socket_dir().display())
}

/// The lab reaches a server that it did not start, and leaves it as it was.
#[test]
fn a_server_elsewhere_keeps_nothing_of_the_lab() {
    let bench = Bench::new();
    let place = Workspace::below(bench.dir.path()).unwrap();
    let server = far_server(&place, "elsewhere");
    // What a killed lab left.
    let left = "SET ROLE lab; CREATE SCHEMA tidelock_lab; CREATE TABLE tidelock_lab.pgbench_accounts (n int); \
                COMMENT ON SCHEMA tidelock_lab IS 'tidelock-lab tl-killed'";
    server.sql_in("lab", left).unwrap();
    let path = quick(&bench, |text| {
        with_arms(&text, &[("far", &local(&server, "dbname=lab"))])
            .replace("select-only", "tpcb-like")
            .replace("blocks = 1", "blocks = 1\nlatency_blocks = 1")
    });
    succeeded(&bench.run(&[&path]));
    let trials = bench.trials();
    assert!(has_metric(&trials, "transactions_per_second") && has_metric(&trials, "latency_p95"));
    assert!(!has_metric(&trials, "cpu_per_unit"), "whose CPU time?");
    is_as_it_was(&server);
    server.stop("fast").unwrap();
}

/// What an arm's `sql` installs lies in the lab's schema, and outlives a lab that is killed.
#[test]
fn tables_of_others_by_an_extension_in_the_schema_stay() {
    let bench = Bench::new();
    let place = Workspace::below(bench.dir.path()).unwrap();
    let server = far_server(&place, "elsewhere");
    let left = "SET ROLE lab; CREATE SCHEMA tidelock_lab; \
                COMMENT ON SCHEMA tidelock_lab IS 'tidelock-lab tl-killed'; \
                CREATE EXTENSION hstore SCHEMA tidelock_lab; \
                CREATE TABLE theirs (n int, h tidelock_lab.hstore); INSERT INTO theirs VALUES (1)";
    server.sql_in("lab", left).unwrap();
    let path = quick(&bench, |text| with_arms(&text, &[("far", &local(&server, "dbname=lab"))]));
    let refused = bench.run(&[&path]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("outside of the schema"), "{said}");
    let columns = "SELECT count(*) FROM pg_attribute WHERE attrelid = 'theirs'::regclass \
                   AND attnum > 0 AND NOT attisdropped";
    assert_eq!(server.sql_in("lab", columns).unwrap(), "2");
    server.sql_in("lab", "DROP TABLE theirs").unwrap();
    let _ = fs::remove_dir_all(bench.out());
    succeeded(&bench.run(&[&path]));
    is_as_it_was(&server);
    server.stop("fast").unwrap();
}

/// The lab's search_path is added to the options of a `dsn`, and counts more than what the role or
/// the database has.
#[test]
fn options_and_roles_do_not_lead_the_lab_to_tables_of_others() {
    let bench = Bench::new();
    let place = Workspace::below(bench.dir.path()).unwrap();
    let server = far_server(&place, "elsewhere");
    server.sql("ALTER ROLE lab SET search_path = public").unwrap();
    server.sql("ALTER DATABASE lab SET search_path = public").unwrap();
    server.sql("ALTER ROLE lab IN DATABASE lab SET search_path = public").unwrap();
    for (options, memory) in [("-cwork_mem=9MB", "9MB"), ("-csearch_path=public", "4MB")] {
        let path = quick(&bench, |text| {
            let custom = format!(
                "script = \"custom\"\ncustom = \"SELECT 1 / (CASE WHEN \
                 current_setting('work_mem') = '{memory}' AND current_schema() = 'tidelock_lab' \
                 THEN 1 ELSE 0 END) FROM pgbench_accounts LIMIT 1;\""
            );
            let dsn = local(&server, &format!("dbname=lab options={options}"));
            with_arms(&text, &[("far", &dsn)]).replace("script = \"select-only\"", &custom)
        });
        let _ = fs::remove_dir_all(bench.out());
        succeeded(&bench.run(&[&path]));
        is_as_it_was(&server);
    }
    server.stop("fast").unwrap();
}

/// pgbench takes the database of PGDATABASE or one with the name of its account, whatever a
/// connection service says.
#[test]
fn two_databases_of_one_server_are_two() {
    let bench = Bench::new();
    let place = Workspace::below(bench.dir.path()).unwrap();
    let server = far_server(&place, "elsewhere");
    let path = quick(&bench, |text| {
        let one = local(&server, "dbname=lab");
        with_arms(&text, &[("one", &one), ("two", &local(&server, "dbname=lab2"))])
    });
    succeeded(&bench.run(&[&path]));
    let log = fs::read_to_string(server.log()).unwrap();
    let pgbench = |user: &str, database: &str| {
        let told = format!("user={user} database={database} application_name=pgbench");
        log.lines().filter(|line| line.contains(&told)).count()
    };
    let all = log.lines().filter(|line| line.contains("application_name=pgbench")).count();
    let (one, two) = (pgbench("lab", "lab"), pgbench("lab", "lab2"));
    assert!(one > 2 && two > 2 && one + two == all, "{one} and {two} of {all}: {log}");
    is_as_it_was(&server);
    server.stop("fast").unwrap();
}

#[test]
fn two_arms_of_one_database_are_refused_whatever_they_call_it() {
    let bench = Bench::new();
    let place = Workspace::below(bench.dir.path()).unwrap();
    let server = far_server(&place, "elsewhere");
    let path = quick(&bench, |text| {
        let same = local(&server, "dbname=lab application_name=other");
        with_arms(&text, &[("one", &local(&server, "dbname=lab")), ("two", &same)])
    });
    let output = bench.run(&[&path]);
    assert_eq!(output.status.code(), Some(3), "{}", told(&output));
    // Whichever is connected to second, in drawn order.
    let is_refused = |arm: &&str| {
        let why =
            format!("the server of the arm {arm} is left alone: it is the database of another");
        told(&output).contains(&why)
    };
    assert_eq!(["one", "two"].iter().filter(|arm| is_refused(arm)).count(), 1, "{}", told(&output));
    is_as_it_was(&server);
    server.stop("fast").unwrap();
}

#[test]
fn a_schema_that_no_lab_made_is_not_dropped() {
    let bench = Bench::new();
    let place = Workspace::below(bench.dir.path()).unwrap();
    let server = far_server(&place, "elsewhere");
    let theirs = "CREATE SCHEMA tidelock_lab; CREATE TABLE tidelock_lab.mine AS SELECT 'kept' AS n";
    server.sql_in("lab", theirs).unwrap();
    let path = quick(&bench, |text| with_arms(&text, &[("far", &local(&server, "dbname=lab"))]));
    let output = bench.run(&[&path]);
    assert_eq!(output.status.code(), Some(3), "{}", told(&output));
    assert!(told(&output).contains("without the mark of a lab"), "{}", told(&output));
    assert_eq!(server.sql_in("lab", "SELECT n FROM tidelock_lab.mine").unwrap(), "kept");
    server.stop("fast").unwrap();
}

/// A pooler may drop what it does not know of a connection, or lead it elsewhere.
#[test]
fn a_pooler_that_leads_to_tables_of_others_is_refused() {
    let drops_options = |parameters: &mut Vec<String>| remove(parameters, "options");
    let drops_those_of_pgbench = |parameters: &mut Vec<String>| {
        if parameters.iter().any(|text| text == "pgbench") {
            remove(parameters, "options");
        }
    };
    let has_another_database_for_pgbench = |parameters: &mut Vec<String>| {
        if parameters.iter().any(|text| text == "pgbench") {
            remove(parameters, "database");
            parameters.extend(["database".to_owned(), "lab2".to_owned()]);
        }
    };
    let bench = Bench::new();
    let place = Workspace::below(bench.dir.path()).unwrap();
    let server = far_server(&place, "elsewhere");
    let poolers: [(Change, &str); 3] = [
        (drops_options, "have the search_path \"\\\"$user\\\", public\" and not the lab's"),
        (drops_those_of_pgbench, "\"schema public of database lab, as lab\""),
        (has_another_database_for_pgbench, "\"schema  of database lab2, as lab\""),
    ];
    for (change, why) in poolers {
        let port = pooler(&server, change);
        let path = quick(&bench, |text| {
            let dsn = format!(
                "host=127.0.0.1 port={port} user=lab dbname=lab sslmode=disable gssencmode=disable"
            );
            with_arms(&text, &[("far", &dsn)])
        });
        let _ = fs::remove_dir_all(bench.out());
        let output = bench.run(&[&path]);
        assert_eq!(output.status.code(), Some(3), "{}", told(&output));
        assert!(told(&output).contains(why), "{}", told(&output));
        is_as_it_was(&server);
    }
    server.stop("fast").unwrap();
}

/// Changes the parameters of a connection: keys and values in turns.
type Change = fn(&mut Vec<String>);

fn remove(parameters: &mut Vec<String>, key: &str) {
    if let Some(at) = parameters.iter().step_by(2).position(|other| other == key) {
        parameters.drain(2 * at..2 * at + 2);
    }
}

/// The port of something before the server that changes how a connection starts.
fn pooler(server: &Cluster<'_>, change: Change) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let socket = server.socket_dir().join(".s.PGSQL.5432");
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let _ = between(client, UnixStream::connect(&socket).unwrap(), change);
        }
    });
    port
}

fn between(mut client: TcpStream, mut server: UnixStream, change: Change) -> std::io::Result<()> {
    let mut length = [0; 4];
    client.read_exact(&mut length)?;
    let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
    client.read_exact(&mut body)?;
    let (version, rest) = body.split_at(4);
    let texts = rest.split(|byte| *byte == 0).take_while(|text| !text.is_empty());
    let mut texts: Vec<String> =
        texts.map(|text| String::from_utf8_lossy(text).into_owned()).collect();
    change(&mut texts);
    let mut start = version.to_vec();
    for text in texts {
        start.extend(text.as_bytes());
        start.push(0);
    }
    start.push(0);
    server.write_all(&(u32::try_from(start.len()).unwrap() + 4).to_be_bytes())?;
    server.write_all(&start)?;
    let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
    thread::spawn(move || {
        let _ = std::io::copy(&mut server, &mut client);
        let _ = client.shutdown(std::net::Shutdown::Both);
    });
    Ok(())
}

/// A server that TLS alone reaches, its port, and the file that has its authority. `None` where
/// this server is built without TLS.
fn tls_server<'p>(place: &'p Workspace, name: &str) -> Option<(Cluster<'p>, String)> {
    let server = far_server(place, name);
    let library = server.sql("SHOW ssl_library").unwrap();
    if library.is_empty() {
        skip::because("this server is built without TLS");
        return None;
    }
    server.stop("fast").unwrap();
    let port = unused_port().unwrap().to_string();
    let settings = [("ssl", "on"), ("listen_addresses", "127.0.0.1"), ("port", port.as_str())];
    for (name, value) in settings {
        server.set(name, value).unwrap();
    }
    certificate(place, &place.join(name));
    for (from, to) in [("key", "server.key"), ("crt", "server.crt")] {
        let from = place.join(name).with_extension(from);
        place.tool("cp").arg(from).arg(server.dir().join(to)).run().unwrap();
    }
    let rules = "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n";
    place.write(&server.dir().join("pg_hba.conf"), rules).unwrap();
    server.start().unwrap();
    Some((server, port))
}

/// What a managed server asks for: TLS, a certificate of a known authority, a password.
#[test]
fn a_server_elsewhere_is_reached_by_tls_and_no_other_is() {
    let bench = Bench::new();
    let place = Workspace::below(bench.dir.path()).unwrap();
    let Some((server, port)) = tls_server(&place, "right") else { return };
    certificate(&place, &place.join("other"));
    let run = |certificate: &str, password: &str| {
        let path = quick(&bench, |text| {
            let dsn = format!(
                "host=localhost hostaddr=127.0.0.1 port={port} user=lab dbname=lab \
                 sslmode=verify-full sslrootcert={}",
                place.join(certificate).display()
            );
            with_arms(&text, &[("far", &dsn)])
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
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        let error = said.lines().find(|line| line.starts_with("error:")).unwrap();
        // The reason itself is short, and nothing of a command stands before it.
        assert!(error.contains(why) && error.len() < 250, "{error}");
        assert!(!said.contains(password) && !said.contains("PGSERVICE"), "{said}");
    }
    succeeded(&run("right.crt", "long and secret"));
    assert!(has_metric(&bench.trials(), "transactions_per_second"));
    for kept in ["run.json", "results.jsonl"] {
        assert!(!fs::read_to_string(bench.out().join(kept)).unwrap().contains("long and secret"));
    }
    let log = fs::read_to_string(server.log()).unwrap();
    let ours = log.lines().filter(|line| line.contains("authorized: user=lab"));
    assert!(ours.clone().count() > 0, "{log}");
    assert!(ours.clone().all(|line| line.contains("SSL enabled")), "{log}");
    server.stop("fast").unwrap();
}

/// The file as it is, with the addresses of two servers of ours.
#[test]
fn the_file_of_a_peer_elsewhere_runs() {
    let bench = Bench::new();
    let place = Workspace::below(bench.dir.path()).unwrap();
    let Some((plain, one)) = tls_server(&place, "plain") else { return };
    let Some((encrypted, other)) = tls_server(&place, "encrypted") else { return };
    let authorities = place.join("authorities.crt");
    let both = ["plain.crt", "encrypted.crt"].map(|file| place.join(file));
    let both = both.map(|file| fs::read_to_string(file).unwrap()).concat();
    place.write(&authorities, &both).unwrap();
    let file = format!("{}/experiments/peers/elsewhere.toml", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(file).unwrap();
    let here = |port: &str| format!("host=localhost hostaddr=127.0.0.1 port={port} ");
    let text = text
        .replace("host=plain.example.com port=5432 ", &here(&one))
        .replace("host=encrypted.example.com port=5432 ", &here(&other))
        .replace("/etc/ssl/certs/ca-certificates.crt", &authorities.display().to_string());
    let path = bench.path("elsewhere.toml");
    fs::write(&path, text).unwrap();
    let mut command = bench.measuring(&["run", "--miniature"]);
    let command = command.arg(&path).arg("--out").arg(bench.out());
    succeeded(&command.env("PGPASSWORD", "long and secret").output().unwrap());
    let trials = bench.trials();
    let of = |arm: &str| trials.iter().filter(|trial| trial["arm"] == arm).count();
    assert!(of("unencrypted") > 0 && of("unencrypted") == of("encrypted"), "{trials:?}");
    for server in [plain, encrypted] {
        let log = fs::read_to_string(server.log()).unwrap();
        assert!(log.contains("user=lab database=lab application_name=pgbench"), "{log}");
        server.stop("fast").unwrap();
    }
}

/// FILE.key and FILE.crt for localhost, of an authority that has signed nothing else: itself.
fn certificate(place: &Workspace, file: &Path) {
    let openssl = place.tool("openssl").args(["req", "-new", "-x509", "-days", "2", "-nodes"]);
    let name = file.file_name().unwrap().to_string_lossy();
    // Authorities are told apart by their names.
    let subject = format!("/O={name}/CN=localhost");
    let openssl = openssl.args(["-subj", &subject, "-out"]).arg(file.with_extension("crt"));
    openssl.arg("-keyout").arg(file.with_extension("key")).run().unwrap();
}

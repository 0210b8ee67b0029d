//! A backup server on another host: it has no keys, asks a primary and a standby that have, and
//! keeps what it gets encrypted.
//!
//! ```text
//!   primary, standby           each sealed, each with keys of its own
//!      |         |
//!   pgbackrest server          below `tidelock exec`: reads plain pages
//!      |         |   TLS
//!   pgbackrest backup ----> repository <---- pgbackrest server <--TLS-- archive-push, restore
//! ```
//!
//! All hosts are this one; each has a configuration, certificates, locks and a spool of its own.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use tidelock_servers::{Running, skip, unused_port};
use tidelock_testkit::marker::Marker;
use tidelock_testkit::pg::{Arm, Cluster, Error, Result, Tool, Workspace, ensure};
use tidelock_testkit::tools::{Page, Sees};

const PGBACKREST: &str = "/usr/bin/pgbackrest";
const TEST: &str = "a_backup_server_without_keys_backs_up_a_sealed_standby_by_tls";

#[test]
#[ignore = "long: make test-full"]
fn a_backup_server_without_keys_backs_up_a_sealed_standby_by_tls() -> Result<()> {
    if !Path::new(PGBACKREST).is_file() {
        skip::missing("pgbackrest");
        return Ok(());
    }
    let place = Workspace::new()?;
    let marker = Marker::new();
    let hosts = Hosts::make(&place)?;
    let [one, two] = ["one", "two"].map(|name| listed(&place, name));
    let (one, two) = (one?, two?);
    one.initdb(&["-k"])?;
    one.set("archive_mode", "on")?;
    let push = format!("pgbackrest --config={} --stanza=main archive-push %p", hosts.of("one"));
    one.set("archive_command", &push)?;
    one.start()?;
    two.backup_of(&one, &["-R", "-X", "stream"])?;
    two.start()?;
    let mut page = Page::new(&place, TEST);
    page.word("NODE", hosts.of("one"));
    page.word("HOST", hosts.of("repository"));
    let _servers = [
        hosts.serve("repository", place.tool(PGBACKREST))?,
        hosts.serve("one", place.tool(PGBACKREST).under(Arm::Sealed, one.dir()))?,
        hosts.serve("two", place.tool(PGBACKREST).under(Arm::Sealed, two.dir()))?,
    ];
    let server = "pgbackrest --config=NODE server";
    page.row(Sees::Plain, server, "gives plain pages to the backup server, by TLS")?;

    one.sql("CREATE TABLE t (n int, t text)")?;
    let fill = |n: u32| {
        one.sql(&format!(
            "INSERT INTO t SELECT {n}, '{}' FROM generate_series(1, 1000) g; CHECKPOINT",
            marker.text()
        ))
    };
    let bare = |verb: &str, told: &str| {
        let template = format!("pgbackrest --config=HOST --stanza=main {verb}");
        page.works(page.tool(&template), Sees::SealedBytes, &template, told)
    };
    bare("stanza-create", "works from a host without keys, by the nodes' `pgbackrest server`")?;
    fill(1)?;
    let told = "copies the pages of a sealed standby and checks them; encrypted on this host";
    let verb = "--type=full --log-level-console=detail backup";
    let output = bare(verb, told)?;
    let waited = output.text().contains("wait for replay on the standby");
    ensure(waited && !output.text().contains("invalid page checksum"), || output.text())?;
    fill(2)?;
    let last = one.sql("SELECT pg_walfile_name(pg_switch_wal())")?;
    one.wait_for(&format!("SELECT last_archived_wal >= '{last}' FROM pg_stat_archiver"), "t")?;
    bare("verify", "works without keys of the nodes")?;
    has_nothing_of(&place.join("repository"), &marker)?;

    // What a node says of a repository that it does not see.
    let status = one.tidelock(&["status", "-D"])?.arg(one.dir()).attempt()?.stderr;
    let warning = "127.0.0.1 decides whether repo1 is encrypted";
    ensure(status.contains(warning), || status.clone())?;

    two.stop("fast")?;
    one.stop("fast")?;
    let new = listed(&place, "new")?;
    page.word("NEW", new.dir().display());
    let restore = "pgbackrest --config=NODE --pg1-path=NEW --stanza=main restore";
    let tool = page.tool(restore).under(Arm::Sealed, new.dir());
    let told = "from a repository on another host: sealed under the keys of NEW";
    page.works(tool, Sees::Plain, restore, told)?;
    comes_up(&new, "2000")?;
    new.stop("fast")?;
    new.tidelock(&["verify", "-D"])?.arg(new.dir()).run()?;
    has_nothing_of(new.dir(), &marker)?;

    let plain = Cluster::at(&place, "plain", Arm::Plain)?;
    place.make_dir("plain")?;
    page.word("OUT", plain.dir().display());
    let restore = "pgbackrest --config=NODE --pg1-path=OUT --stanza=main restore";
    let told = "from a repository on another host: a plain server";
    page.works(page.tool(restore), Sees::Plain, restore, told)?;
    comes_up(&plain, "2000")
}

/// The configuration of each host, and the port at which its server listens.
struct Hosts<'w> {
    place: &'w Workspace,
}

impl<'w> Hosts<'w> {
    /// Certificates, the repository, and all configurations.
    fn make(place: &'w Workspace) -> Result<Self> {
        let hosts = Self { place };
        hosts.certificates()?;
        let ports = [(); 3].map(|()| unused_port().map_err(Error::io("looking for a port")));
        let [repository, one, two] = ports;
        let (repository, one, two) = (repository?, one?, two?);
        let secret: String = std::iter::repeat_with(fastrand::alphanumeric).take(48).collect();
        let mut text = hosts.global("repository", repository)?;
        text += &format!("repo1-path={}\n", place.make_dir("repository")?.display());
        text += &format!("repo1-cipher-type=aes-256-cbc\nrepo1-cipher-pass={secret}\n");
        text += "repo1-retention-full=9\nstart-fast=y\nprocess-max=2\nbackup-standby=y\n[main]\n";
        for (number, (name, port)) in [("one", one), ("two", two)].into_iter().enumerate() {
            let node = format!("pg{}", number + 1);
            text += &hosts.reached(&node, "repository", name, port);
            text += &hosts.server(&node, name);
        }
        hosts.write("repository", &text)?;
        for (name, port) in [("one", one), ("two", two)] {
            let mut text = hosts.global(name, port)? + "archive-async=y\n";
            text += &hosts.reached("repo1", name, "repository", repository);
            text += "[main]\n";
            text += &hosts.server("pg1", name);
            hosts.write(name, &text)?;
        }
        Ok(hosts)
    }

    /// Where its configuration is.
    fn of(&self, name: &str) -> String {
        self.place.join(&format!("{name}.conf")).display().to_string()
    }

    /// Starts its server and waits until it listens.
    fn serve(&self, name: &str, pgbackrest: Tool<'w>) -> Result<Running> {
        let config = self.of(name);
        let text = fs::read_to_string(&config).map_err(Error::io("reading a configuration"))?;
        let port = text.lines().find_map(|line| line.strip_prefix("tls-server-port="));
        let port: u16 = port.and_then(|port| port.parse().ok()).unwrap_or(0);
        let tool = pgbackrest.arg(format!("--config={config}")).arg("server").limit(3600);
        let mut running = tool.spawn()?;
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if !running.runs() {
                return Err(Error::Unexpected(running.wait()?.text()));
            }
            ensure(start.elapsed() < Duration::from_secs(120), || {
                format!("the server of {name} does not listen")
            })?;
            thread::sleep(Duration::from_millis(50));
        }
        Ok(running)
    }

    /// Folders of its own, and its TLS server.
    fn global(&self, name: &str, port: u16) -> Result<String> {
        let mut text = String::from("[global]\n");
        for folder in ["log", "lock", "spool"] {
            let path = self.place.make_dir(&format!("{folder}-{name}"))?;
            text += &format!("{folder}-path={}\n", path.display());
        }
        text += &format!("tls-server-address=127.0.0.1\ntls-server-port={port}\n");
        for peer in ["repository", "one", "two"].iter().filter(|peer| **peer != name) {
            text += &format!("tls-server-auth={peer}=main\n");
        }
        Ok(text + &self.files("tls-server", name))
    }

    /// How `name` reaches `host` for the option group `group`.
    fn reached(&self, group: &str, name: &str, host: &str, port: u16) -> String {
        format!(
            "{group}-host=127.0.0.1\n{group}-host-type=tls\n{group}-host-port={port}\n\
             {group}-host-config={}\n{}",
            self.of(host),
            self.files(&format!("{group}-host"), name)
        )
    }

    fn files(&self, prefix: &str, name: &str) -> String {
        let file = |file: &str| self.place.join(&format!("home/{file}")).display().to_string();
        format!(
            "{prefix}-ca-file={}\n{prefix}-cert-file={}\n{prefix}-key-file={}\n",
            file("ca.crt"),
            file(&format!("{name}.crt")),
            file(&format!("{name}.key"))
        )
    }

    fn server(&self, group: &str, name: &str) -> String {
        let sockets = self.place.join(&format!("s-{name}"));
        format!(
            "{group}-path={}\n{group}-socket-path={}\n{group}-user=postgres\n",
            self.place.join(name).display(),
            sockets.display()
        )
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        self.place.write(Path::new(&self.of(name)), text)
    }

    /// pgBackRest compares its peer's name with that of the certificate.
    fn certificates(&self) -> Result<()> {
        let home = self.place.join("home");
        let openssl = |args: &str| {
            self.place.tool("/usr/bin/openssl").within(&home).args(args.split(' ')).run()
        };
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        openssl(&format!("req -x509 {key} -keyout ca.key -out ca.crt -subj /CN=ca -days 2"))?;
        self.place.write(&home.join("names"), "subjectAltName=DNS:127.0.0.1\n")?;
        for name in ["repository", "one", "two"] {
            openssl(&format!("req {key} -keyout {name}.key -out {name}.csr -subj /CN={name}"))?;
            openssl(&format!(
                "x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -out \
                 {name}.crt -extfile names"
            ))?;
            let mode = fs::Permissions::from_mode(0o600);
            fs::set_permissions(home.join(format!("{name}.key")), mode)
                .map_err(Error::io("closing a key"))?;
        }
        Ok(())
    }
}

/// A protected directory whose keyring lists pgBackRest.
fn listed<'w>(place: &'w Workspace, name: &str) -> Result<Cluster<'w>> {
    let cluster = Cluster::at(place, name, Arm::Sealed)?;
    let key: PathBuf = place.join(&format!("home/{name}.key.tidelock"));
    let init = place.tool(place.programs()?.command).arg("init").arg(cluster.dir());
    init.args(["--no-recovery", "--program", PGBACKREST, "--provider"])
        .arg(format!("file:{}", key.display()))
        .run()?;
    Ok(cluster)
}

fn comes_up(cluster: &Cluster<'_>, rows: &str) -> Result<()> {
    cluster.listen_here()?;
    cluster.set("archive_mode", "off")?;
    cluster.start()?;
    cluster.wait_for("SELECT pg_is_in_recovery()", "f")?;
    cluster.expect("SELECT count(*) FROM t", rows)
}

fn has_nothing_of(folder: &Path, marker: &Marker) -> Result<()> {
    let seen = marker.search(&[folder]).map_err(Error::io("searching"))?;
    ensure(seen.findings.is_empty() && seen.files > 500, || {
        format!("{} files, {:?}", seen.files, seen.findings)
    })
}

//! Barman beside a sealed server: by streaming it gets plain bytes, by rsync sealed ones; what lies
//! in its home then, and what can be restored where.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use tidelock_servers::{Running, skip, unused_port};
use tidelock_testkit::marker::Marker;
use tidelock_testkit::pg::{Arm, BINDIR, Cluster, Error, Result, Tool, Workspace, ensure};
use tidelock_testkit::tools::{Page, Sees};

const BARMAN: &str = "/usr/bin/barman";
const RSYNC: &str = "/usr/bin/rsync";
const SSHD: &str = "/usr/sbin/sshd";

/// The server sends plain bytes over its protocol: Barman's home is plain, unless it is a protected
/// directory of its own. Debian's python3 runs Barman, so it is listed there.
#[test]
#[ignore = "long: make test-full"]
fn barman_streams_into_a_plain_home_or_a_sealed_one() -> Result<()> {
    if lacks(&[(BARMAN, "barman"), (RSYNC, "rsync")]) {
        return Ok(());
    }
    let place = Workspace::new()?;
    let marker = Marker::new();
    let main = Cluster::started(&place, "main", Arm::Sealed)?;
    main.sql("CREATE TABLE t (n int, t text)")?;
    for (name, sealed) in [("open", false), ("closed", true)] {
        main.sql("TRUNCATE t")?;
        let barman = Barman::streaming(&place, &main, name, sealed)?;
        let (sees, told) = if sealed {
            (
                Sees::Plain,
                "sealed: Barman's home is a protected directory that lists python3, rsync",
            )
        } else {
            (Sees::SealedBytes, "**plain** backup and WAL: they come by the server's protocol")
        };
        barman.run("receive-wal --create-slot main")?;
        let _receiver = barman.tool("receive-wal main").limit(3600).spawn()?;
        let receives = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
        main.wait_for(receives, "1")?;
        fill(&main, 1, &marker)?;
        barman.archived()?;
        barman.works(sees, "check main", "works; needs nothing but SQL")?;
        barman.works(sees, "backup --wait main", told)?;
        fill(&main, 2, &marker)?;
        main.sql("SELECT pg_create_restore_point('here')")?;
        fill(&main, 3, &marker)?;
        barman.archived()?;
        let seen = marker.search(&[&barman.home]).map_err(Error::io("searching Barman's home"))?;
        ensure(seen.findings.is_empty() == sealed && seen.files > 500, || {
            format!("{name}: {} files, {:?}", seen.files, seen.findings)
        })?;

        let new = protected(&place, &format!("new-{name}"), &["python3", RSYNC])?;
        let told = "sealed under the keys of NEW, which lists python3 and rsync";
        barman.restores(sees, &new, "recover --target-name here main latest NEW", told)?;
        promoted(&new, "2000")?;
        is_sealed(&new, &marker)?;
        let out = Cluster::at(&place, &format!("out-{name}"), Arm::Plain)?;
        barman.restores(sees, &out, "recover main latest OUT", "a plain server")?;
        comes_up(&out, "3000")?;
        out.stop("fast")?;
    }
    Ok(())
}

/// rsync reads the files as they lie on the disk, and so does the archive command.
#[test]
#[ignore = "long: make test-full"]
fn barman_copies_sealed_files_by_rsync_and_the_key_opens_what_it_restores() -> Result<()> {
    if lacks(&[(BARMAN, "barman"), (RSYNC, "rsync"), (SSHD, "openssh-server")]) {
        return Ok(());
    }
    let place = Workspace::new()?;
    let marker = Marker::new();
    let ssh = Ssh::start(&place)?;
    let main = Cluster::new(&place, "main", Arm::Sealed)?;
    let barman = Barman::by_rsync(&place, &main, &ssh)?;
    main.set("archive_mode", "on")?;
    let incoming = barman.home.join("main/incoming");
    let push =
        format!("rsync -e \"{}\" %p {}:{}/%f", ssh.command(), ssh.address(), incoming.display());
    main.set("archive_command", &push)?;
    main.start()?;
    main.sql("CREATE TABLE t (n int, t text)")?;
    fill(&main, 1, &marker)?;
    // Makes the folders of its home, in which the server then archives.
    barman.tool("check main").attempt()?;
    barman.archived()?;
    let sees = Sees::SealedBytes;
    let told = "sealed bytes, keyring included; WAL sealed, as its archive command sees it";
    barman.works(sees, "backup --wait main", told)?;
    fill(&main, 2, &marker)?;
    main.sql("SELECT pg_create_restore_point('here')")?;
    fill(&main, 3, &marker)?;
    barman.archived()?;
    main.stop("fast")?;
    place.wait_for_agents()?;
    let seen = marker.search(&[&barman.home]).map_err(Error::io("searching Barman's home"))?;
    ensure(seen.findings.is_empty() && seen.files > 500, || format!("{seen:?}"))?;

    let new = Cluster::at(&place, "new", Arm::Sealed)?;
    let told = "starts with nothing but the key of the old server";
    barman.restores(sees, &new, "recover main latest NEW", told)?;
    comes_up(&new, "3000")?;
    new.stop("fast")?;
    is_sealed(&new, &marker)?;
    place.wait_for_agents()?;
    let point = Cluster::at(&place, "point", Arm::Sealed)?;
    let told = "point-in-time recovery with the key of the old server";
    barman.restores(sees, &point, "recover --target-name here main latest NEW", told)?;
    promoted(&point, "2000")?;
    is_sealed(&point, &marker)
}

/// A home of Barman, with its configuration.
struct Barman<'w> {
    place: &'w Workspace,
    test: &'static str,
    /// Stands for its configuration in docs/tools.md.
    word: &'static str,
    home: PathBuf,
    config: PathBuf,
    sealed: bool,
}

impl<'w> Barman<'w> {
    fn streaming(place: &'w Workspace, of: &Cluster<'_>, name: &str, sealed: bool) -> Result<Self> {
        let test = "barman_streams_into_a_plain_home_or_a_sealed_one";
        let barman = Self::make(place, (test, "STREAMING"), name, sealed)?;
        let text = format!(
            "streaming_conninfo = {}\nbackup_method = postgres\nstreaming_archiver = on\n\
             slot_name = barman_{name}\n",
            of.conninfo()
        );
        barman.configure(of, &text)?;
        Ok(barman)
    }

    fn by_rsync(place: &'w Workspace, of: &Cluster<'_>, ssh: &Ssh<'_>) -> Result<Self> {
        let test = "barman_copies_sealed_files_by_rsync_and_the_key_opens_what_it_restores";
        let barman = Self::make(place, (test, "RSYNC"), "barman", false)?;
        let ssh = format!("{} {}", ssh.command(), ssh.address());
        let text = format!("ssh_command = {ssh}\nbackup_method = rsync\narchiver = on\n");
        barman.configure(of, &text)?;
        Ok(barman)
    }

    fn make(
        place: &'w Workspace,
        (test, word): (&'static str, &'static str),
        name: &str,
        sealed: bool,
    ) -> Result<Self> {
        let home = place.join(name);
        if sealed {
            let server = |name: &str| Path::new(BINDIR).join(name).display().to_string();
            let [backup, receive] = ["pg_basebackup", "pg_receivewal"].map(server);
            init(place, &home, "generic", &["python3", RSYNC, &backup, &receive])?;
        } else {
            place.make_dir(name)?;
        }
        let config = place.join(&format!("{name}.conf"));
        Ok(Self { place, test, word, home, config, sealed })
    }

    fn configure(&self, of: &Cluster<'_>, more: &str) -> Result<()> {
        let (home, account) = (self.home.display(), self.place.account().name().to_owned());
        let text = format!(
            "[barman]\nbarman_home = {home}\nbarman_user = {account}\nlog_file = {log}\n\
             [main]\nconninfo = {conninfo}\npath_prefix = {BINDIR}\n{more}",
            log = self.place.join("barman.log").display(),
            conninfo = of.conninfo(),
        );
        self.place.write(&self.config, &text)
    }

    fn page(&self) -> Page<'w> {
        let mut page = Page::new(self.place, self.test);
        page.word(self.word, self.config.display());
        page
    }

    fn template(&self, verb: &str) -> String {
        format!("barman -c {} {verb}", self.word)
    }

    fn tool(&self, verb: &str) -> Tool<'w> {
        self.with_keys(self.page().tool(&self.template(verb)))
    }

    fn run(&self, verb: &str) -> Result<()> {
        self.tool(verb).run().map(drop)
    }

    fn with_keys(&self, tool: Tool<'w>) -> Tool<'w> {
        let tool = tool.log(&self.place.join("barman.log")).limit(600);
        if self.sealed { tool.under(Arm::Sealed, &self.home) } else { tool }
    }

    fn works(&self, sees: Sees, verb: &str, told: &str) -> Result<()> {
        let (page, template) = (self.page(), self.template(verb));
        page.works(self.with_keys(page.tool(&template)), sees, &template, told).map(drop)
    }

    /// Into a directory of the cluster, with its keys if it has any of its own.
    fn restores(&self, sees: Sees, to: &Cluster<'_>, verb: &str, told: &str) -> Result<()> {
        let (mut page, template) = (self.page(), self.template(verb));
        page.word("NEW", to.dir().display());
        page.word("OUT", to.dir().display());
        let tool = self.with_keys(page.tool(&template));
        let own = to.arm() == Arm::Sealed && to.dir().join(".tidelock").exists();
        let tool = if own { tool.under(Arm::Sealed, to.dir()) } else { tool };
        let sees = if own { Sees::Plain } else { sees };
        page.works(tool, sees, &template, told).map(drop)
    }

    /// Until all WAL of this moment is in its home.
    fn archived(&self) -> Result<()> {
        self.run("switch-wal --force --archive --archive-timeout 300 main")
    }
}

/// A server of ssh for the account of the servers.
struct Ssh<'w> {
    place: &'w Workspace,
    port: u16,
    _server: Running,
}

impl<'w> Ssh<'w> {
    fn start(place: &'w Workspace) -> Result<Self> {
        let home = place.join("home");
        let file = |name: &str| home.join(name).display().to_string();
        for key in ["host", "user"] {
            let args = ["-q", "-t", "ed25519", "-N", "", "-f"];
            place.tool("/usr/bin/ssh-keygen").args(args).arg(file(key)).run()?;
        }
        let port = unused_port().map_err(Error::io("looking for a port"))?;
        let text = format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\n\
             StrictModes no\nUsePAM no\n",
            file("host"),
            file("user.pub")
        );
        let config = home.join("sshd.conf");
        place.write(&config, &text)?;
        let sshd = place.tool(SSHD).args(["-D", "-e", "-f"]).arg(&config).limit(3600);
        let mut server = sshd.spawn()?;
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if !server.runs() {
                return Err(Error::Unexpected(server.wait()?.text()));
            }
            ensure(start.elapsed() < Duration::from_secs(120), || "sshd does not listen".into())?;
            thread::sleep(Duration::from_millis(50));
        }
        Ok(Self { place, port, _server: server })
    }

    fn command(&self) -> String {
        let (port, key) = (self.port, self.place.join("home/user"));
        format!(
            "ssh -F /dev/null -p {port} -i {} -o StrictHostKeyChecking=no \
             -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR",
            key.display()
        )
    }

    fn address(&self) -> String {
        format!("{}@127.0.0.1", self.place.account().name())
    }
}

/// Debian's packages, if one of them is not installed.
fn lacks(programs: &[(&str, &str)]) -> bool {
    let missing = programs.iter().find(|(path, _)| !Path::new(path).is_file());
    missing.inspect(|(_, package)| skip::missing(package)).is_some()
}

fn protected<'w>(place: &'w Workspace, name: &str, programs: &[&str]) -> Result<Cluster<'w>> {
    let cluster = Cluster::at(place, name, Arm::Sealed)?;
    init(place, cluster.dir(), "postgres", programs)?;
    Ok(cluster)
}

fn init(place: &Workspace, dir: &Path, profile: &str, programs: &[&str]) -> Result<()> {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let key = place.join(&format!("home/{name}.key"));
    let mut init = place.tool(place.programs()?.command).arg("init").arg(dir);
    for program in programs {
        let path = if program.starts_with('/') {
            PathBuf::from(program)
        } else {
            let link = Path::new("/usr/bin").join(program);
            fs::canonicalize(link).map_err(Error::io("finding a program"))?
        };
        init = init.arg("--program").arg(path);
    }
    init.args(["--profile", profile, "--no-recovery", "--provider"])
        .arg(format!("file:{}", key.display()))
        .run()
        .map(drop)
}

fn fill(cluster: &Cluster<'_>, n: u32, marker: &Marker) -> Result<()> {
    cluster
        .sql(&format!(
            "INSERT INTO t SELECT {n}, '{}' FROM generate_series(1, 1000); CHECKPOINT",
            marker.text()
        ))
        .map(drop)
}

fn comes_up(cluster: &Cluster<'_>, rows: &str) -> Result<()> {
    cluster.listen_here()?;
    cluster.set("archive_mode", "off")?;
    cluster.start()?;
    cluster.wait_for("SELECT pg_is_in_recovery()", "f")?;
    cluster.expect("SELECT count(*) FROM t", rows)
}

/// At its target a server waits for somebody who says what is next.
fn promoted(cluster: &Cluster<'_>, rows: &str) -> Result<()> {
    cluster.listen_here()?;
    cluster.set("archive_mode", "off")?;
    cluster.start()?;
    cluster.wait_for("SELECT pg_get_wal_replay_pause_state()", "paused")?;
    cluster.sql("SELECT pg_wal_replay_resume()")?;
    cluster.wait_for("SELECT pg_is_in_recovery()", "f")?;
    cluster.expect("SELECT count(*) FROM t", rows)?;
    cluster.stop("fast")
}

fn is_sealed(cluster: &Cluster<'_>, marker: &Marker) -> Result<()> {
    cluster.tidelock(&["verify", "-D"])?.arg(cluster.dir()).run()?;
    let seen = marker.search(&[cluster.dir()]).map_err(Error::io("searching"))?;
    ensure(seen.findings.is_empty() && seen.files > 500, || format!("{:?}", seen.findings))
}

//! One node: its Patroni, and the server that this starts.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tidelock_servers::{
    Arm, BINDIR, Bounded as _, Cluster, Error, Result, Started, Workspace, alone, ensure,
};

use super::{Net, PATRONI, end_of, rest};
use crate::unit::{Etc, environment_of, random_key};

/// A node of the fleet.
pub struct Node<'w> {
    /// By this Patroni knows it.
    pub name: String,
    /// Where server and REST interface listen.
    pub address: String,
    /// Its server, for SQL by the socket.
    pub cluster: Cluster<'w>,
    place: &'w Workspace,
    unit: String,
    key: PathBuf,
    /// The unit's files belong into an image: systemd is not asked to run them here.
    image: PathBuf,
    environment: Vec<(String, String)>,
    patroni: Option<Started>,
}

impl<'w> Node<'w> {
    /// Installs the unit. The directory is not there yet.
    pub(super) fn make(place: &'w Workspace, etc: &Etc, net: &Net, number: u8) -> Result<Self> {
        let name = format!("n{number}");
        let home = place.make_dir(&name)?;
        let cluster = Cluster::at(place, &name, Arm::Sealed)?.on(home.join("data"));
        let mut node = Self {
            unit: format!("tl-fleet-{}-{name}", std::process::id()),
            address: net.address(number),
            key: PathBuf::new(),
            image: place.join(&format!("image-{name}")),
            environment: Vec::new(),
            patroni: None,
            name,
            cluster,
            place,
        };
        for inside in [Path::new("/etc/tidelock"), home.as_path()] {
            let inside = node.image.join(inside.strip_prefix("/").unwrap_or(inside));
            fs::create_dir_all(inside).map_err(Error::io("making an image"))?;
        }
        let key = node.new_key(1)?;
        node.configure(etc, &key)?;
        place.write(&node.file("yml"), &node.patroni_yml(net))?;
        node.service("install")?;
        node.environment = environment_of(&node.unit, &node.image)?;
        Ok(node)
    }

    /// Unlocks as the unit does before its start, then starts Patroni, which starts the server or
    /// builds it.
    ///
    /// # Errors
    /// When one of the programs cannot be started.
    pub fn start(&mut self) -> Result<()> {
        self.service("unlock")?;
        let log = fs::File::options().create(true).append(true).open(self.file("log"));
        let log = log.map_err(Error::io("opening a log"))?;
        let copy = log.try_clone().map_err(Error::io("sharing a log"))?;
        let mut command = alone(PATRONI);
        self.place.account().apply(&mut command);
        command.env_clear().env("PATH", "/usr/bin:/bin").envs(self.environment.iter().cloned());
        command.arg(self.file("yml")).current_dir("/").stdout(log).stderr(copy);
        self.patroni = Some(command.start().map_err(Error::io("starting Patroni"))?);
        Ok(())
    }

    /// Stops Patroni, and it the server, as a service manager does.
    ///
    /// # Errors
    /// When one of them does not end.
    pub fn stop(&mut self) -> Result<()> {
        let Some(mut patroni) = self.patroni.take() else { return Ok(()) };
        let server = self.cluster.postmaster().ok();
        let id = i32::try_from(patroni.id()).ok().and_then(Pid::from_raw);
        if let Some(id) = id {
            kill_process(id, Signal::TERM)
                .map_err(|errno| Error::io("stopping Patroni")(errno.into()))?;
        }
        patroni.ended_within(Duration::from_secs(300)).map_err(Error::io("stopping Patroni"))?;
        server.map_or(Ok(()), |server| server.wait_gone(Duration::from_secs(300)))
    }

    /// The server ends with SIGKILL, Patroni goes on.
    ///
    /// # Errors
    /// When no server runs here.
    pub fn kill_server(&self) -> Result<()> {
        self.cluster.kill_nine()
    }

    /// Both end with SIGKILL, as if the machine were gone.
    ///
    /// # Errors
    /// When no server runs here.
    pub fn kill(&mut self) -> Result<()> {
        self.patroni = None;
        self.cluster.kill_nine()
    }

    /// What a new machine has: nothing but its configuration. The node must be down.
    ///
    /// # Errors
    /// When the directory cannot be removed.
    pub fn lose_everything(&self) -> Result<()> {
        fs::remove_dir_all(self.cluster.dir()).map_err(Error::io("removing a node's directory"))
    }

    /// Asks for another leader, and whether Patroni says that there is one. On a busy machine it
    /// may give up waiting, or not know a synchronous standby yet: who leads then is asked of the
    /// fleet.
    ///
    /// # Errors
    /// When Patroni does not answer, or not to that question.
    pub fn switch_over(&self) -> Result<bool> {
        let body = format!("{{\"leader\": \"{}\"}}", self.name);
        let (code, told) = rest::post(&self.address, "/switchover", &body)?;
        ensure(matches!(code, 200 | 412 | 503), || format!("{}: {code} {told}", self.name))?;
        Ok(code == 200)
    }

    /// Has Patroni remove the directory and copy the leader's.
    ///
    /// # Errors
    /// When Patroni does not begin.
    pub fn reinitialize(&self) -> Result<()> {
        self.does("/reinitialize", "{\"force\": true}")
    }

    /// The keyring key goes under a new key file, online; the configuration names it then. Root
    /// does it, whose configuration that is.
    ///
    /// # Errors
    /// When `key rotate` fails.
    pub fn rotate(&mut self, etc: &Etc, number: u32) -> Result<()> {
        let (old, new) = (self.key.clone(), self.new_key(number)?);
        let rotate = self.cluster.tidelock(&["key", "rotate", "-D"])?.arg(self.cluster.dir());
        rotate
            .as_ourselves()
            .args(["--slot", &self.slot()?])
            .arg("--to")
            .arg(format!("file:{}", new.display()))
            .run()?;
        self.configure(etc, &new)?;
        fs::remove_file(old).map_err(Error::io("removing the old key"))
    }

    /// The members as this node knows them.
    ///
    /// # Errors
    /// When its Patroni does not answer.
    pub fn members(&self) -> Result<Vec<rest::Member>> {
        rest::members(&self.address)
    }

    /// The end of what Patroni and the server said.
    #[must_use]
    pub fn end_of_log(&self) -> String {
        format!("{}:\n{}\n", self.name, end_of(&self.file("log")))
    }

    /// How often Patroni said this.
    #[must_use]
    pub fn said(&self, words: &str) -> usize {
        let log = fs::read(self.file("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).matches(words).count()
    }

    /// The one slot that it has.
    fn slot(&self) -> Result<String> {
        let status = self.cluster.tidelock(&["status", "--json", "-D"])?.arg(self.cluster.dir());
        let told: serde_json::Value = serde_json::from_str(&status.run()?.stdout)
            .map_err(|why| Error::Unexpected(format!("status prints no JSON: {why}")))?;
        let slot = told["keyring"]["slots"][0]["id"].as_str().map(str::to_owned);
        slot.ok_or_else(|| Error::Unexpected(format!("{} has no slot", self.name)))
    }

    fn does(&self, path: &str, body: &str) -> Result<()> {
        let (code, told) = rest::post(&self.address, path, body)?;
        ensure(code == 200, || format!("{path} of {}: {code} {told}", self.name))
    }

    fn new_key(&self, number: u32) -> Result<PathBuf> {
        let key = self.place.join(&format!("home/{}.key{number}", self.name));
        let mode = fs::Permissions::from_mode(0o600);
        fs::write(&key, random_key())
            .and_then(|()| fs::set_permissions(&key, mode))
            .map_err(Error::io("writing a key"))?;
        self.place.account().give(&key)?;
        Ok(key)
    }

    fn configure(&mut self, etc: &Etc, key: &Path) -> Result<()> {
        let text = format!(
            "directory = \"{}\"\nprofile = \"postgres\"\nauto_init = true\nowner = \"{}\"\n\
             audit = \"file:{}\"\n[[provider]]\ntype = \"file\"\npath = \"{}\"\n",
            self.cluster.dir().display(),
            self.place.account().name(),
            self.place.join(&format!("home/{}.audit", self.name)).display(),
            key.display(),
        );
        let file = etc.write(&self.unit, &text)?;
        let inside = self.image.join(file.strip_prefix("/").unwrap_or(&file));
        fs::copy(&file, inside).map_err(Error::io("copying the configuration"))?;
        self.key = key.to_path_buf();
        Ok(())
    }

    /// `tidelock service VERB UNIT`, as root's service manager runs it.
    fn service(&self, verb: &str) -> Result<()> {
        let command = self.place.tool(self.place.programs()?.command).as_ourselves();
        let command = command.args(["service", verb, &self.unit, "--root"]);
        command.arg(&self.image).run().map(drop)
    }

    fn file(&self, ending: &str) -> PathBuf {
        self.place.join(&format!("{}/patroni.{ending}", self.name))
    }

    /// A synchronous standby, so that a commit that was acknowledged is on two nodes. A server that
    /// crashed is not started again as the leader: another leads at once.
    fn patroni_yml(&self, net: &Net) -> String {
        let Self { name, address, .. } = self;
        format!(
            "scope: fleet
name: {name}
restapi: {{listen: '{address}:8008', connect_address: '{address}:8008'}}
etcd3: {{host: '{etcd}:2379'}}
bootstrap:
  dcs:
    ttl: 20
    loop_wait: 1
    retry_timeout: 5
    master_start_timeout: 0
    synchronous_mode: true
    postgresql:
      use_pg_rewind: true
      use_slots: true
      parameters: {{wal_level: logical, hot_standby: 'on', wal_log_hints: 'on'}}
  initdb: [{{encoding: UTF8}}, {{locale: C.UTF-8}}, data-checksums]
  pg_hba:
  - local all all trust
  - host all all 127.0.0.0/8 trust
  - host replication all 127.0.0.0/8 trust
postgresql:
  listen: '{address}:5432'
  connect_address: '{address}:5432'
  data_dir: {data}
  bin_dir: {BINDIR}
  pgpass: {home}/pgpass
  authentication:
    superuser: {{username: postgres}}
    replication: {{username: replicator}}
    rewind: {{username: rewinder}}
  parameters: {{unix_socket_directories: {sockets}}}
",
            etcd = net.etcd(),
            data = self.cluster.dir().display(),
            home = self.place.join(name).display(),
            sockets = self.cluster.socket_dir().display(),
        )
    }
}

impl Drop for Node<'_> {
    fn drop(&mut self) {
        // Before the server, or it would start that again.
        self.patroni = None;
    }
}

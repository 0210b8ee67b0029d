//! The provider `kmip` against PyKMIP, which `ci/python-env` installs.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tidelock_format::KeyringId;
use tidelock_keyring::{
    Error, Payload, Provider, ServiceFault, SlotId, SlotKind, SlotTerms, Wrapping,
};
use tidelock_providers::ProviderChoice;
use tidelock_servers::{Bounded, Started, alone, listening};

/// A server with a private folder, stopped when dropped.
struct Server {
    /// PyKMIP has a child that outlives it, but is in its group.
    _process: Started,
    home: tempfile::TempDir,
    port: u16,
}

impl Server {
    fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        certificates(home.path());
        let dir = home.path().display();
        fs::create_dir(home.path().join("policies")).unwrap();
        let program = python_env().join("bin/pykmip-server");
        let started = listening(|port| {
            let config = format!(
                "[server]\nhostname=127.0.0.1\nport={port}\ncertificate_path={dir}/server.pem\n\
                 key_path={dir}/server.key\nca_path={dir}/ca.pem\nauth_suite=TLS1.2\n\
                 policy_path={dir}/policies\nenable_tls_client_auth=True\n\
                 database_path={dir}/kmip.db\n"
            );
            fs::write(home.path().join("server.conf"), config).unwrap();
            let mut server = alone(&program);
            server.arg("-f").arg(home.path().join("server.conf"));
            server.arg("-l").arg(home.path().join("server.log")).current_dir(home.path());
            server.stdin(Stdio::null()).stdout(Stdio::null());
            server.stderr(fs::File::create(home.path().join("server.err")).unwrap());
            server
        });
        let (process, port) = started.unwrap_or_else(|why| {
            let log = fs::read_to_string(home.path().join("server.log")).unwrap_or_default();
            panic!("{why}\n{log}")
        });
        Self { home, _process: process, port }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.home.path().join("server.log")).unwrap_or_default()
    }

    /// Makes active AES keys as `client` and gives their identifiers.
    fn make(&self, client: &str, bits: &[u32]) -> Vec<String> {
        let script = format!(
            "for bits in {bits:?}:\n    \
             key = c.create(enums.CryptographicAlgorithm.AES, bits)\n    \
             c.activate(key)\n    print(key)\n"
        );
        self.tell(client, &script).lines().map(String::from).collect()
    }

    fn revoke(&self, client: &str, key: &str) {
        let why = "enums.RevocationReasonCode.CESSATION_OF_OPERATION";
        self.tell(client, &format!("c.revoke({why}, '{key}')\n"));
    }

    /// What a script of PyKMIP's own client prints.
    fn tell(&self, client: &str, script: &str) -> String {
        let dir = self.home.path().display();
        let script = format!(
            "from kmip.pie.client import ProxyKmipClient\n\
             from kmip import enums\n\
             c = ProxyKmipClient('127.0.0.1', {}, '{dir}/{client}.pem', '{dir}/{client}.key', \
             '{dir}/ca.pem', 'PROTOCOL_TLSv1_2')\n\
             c.open()\n{script}",
            self.port
        );
        let ran = alone(python_env().join("bin/python")).args(["-c", &script]).finish();
        let ran = ran.unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{said}\n{}", self.log());
        String::from_utf8(ran.stdout).unwrap()
    }

    fn provider(&self, client: &str, key: &str) -> Box<dyn Provider> {
        open(&self.uri(self.port, client, key))
    }

    fn uri(&self, port: u16, client: &str, key: &str) -> String {
        let dir = self.home.path().display();
        format!(
            "kmip:127.0.0.1:{port}/{key}?certificate={dir}/{client}.pem&key={dir}/{client}.key&\
             ca={dir}/ca.pem"
        )
    }

    fn wrapper(&self, client: &str, key: &str) -> Box<dyn Provider> {
        let (dir, port) = (self.home.path().display(), self.port);
        open(&format!(
            "kmip:127.0.0.1:{port}/{key}?certificate={dir}/{client}.pem&key={dir}/{client}.key&\
             ca={dir}/ca.pem&mode=encrypt"
        ))
    }
}

const SLOT: SlotKind = SlotKind::new(10, "kmip");

/// With patience, since a busy machine is no reason to fail.
fn open(text: &str) -> Box<dyn Provider> {
    open_within(text, 60)
}

fn open_within(text: &str, seconds: u16) -> Box<dyn Provider> {
    let usual: ProviderChoice = text.parse().unwrap();
    let usual = toml::to_string(&usual).unwrap();
    let default = "timeout_seconds = 5\n";
    assert!(usual.contains(default), "{usual}");
    let written = usual.replace(default, &format!("timeout_seconds = {seconds}\n"));
    let choice: ProviderChoice = toml::from_str(&written).unwrap();
    assert_eq!(toml::to_string(&choice).unwrap(), written);
    choice.open(Path::new("/data"), None).unwrap()
}

fn python_env() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../python");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../ci/python-env");
    static READY: std::sync::Once = std::sync::Once::new();
    READY.call_once(|| {
        assert!(alone(script).finish().unwrap().status.success());
    });
    folder
}

/// An authority, a certificate for 127.0.0.1, two clients, and a client of another authority.
fn certificates(folder: &Path) {
    let run = |arguments: &str| {
        let made = alone("openssl").args(arguments.split(' ')).current_dir(folder).finish();
        let made = made.unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    };
    let new = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2";
    run(&format!("{new} -subj /CN=authority -keyout ca.key -out ca.pem"));
    run(&format!("{new} -subj /CN=other -keyout other-ca.key -out other-ca.pem"));
    let names = [
        ("server", "serverAuth", "ca"),
        ("alice", "clientAuth", "ca"),
        ("bob", "clientAuth", "ca"),
        ("mallory", "clientAuth", "other-ca"),
    ];
    for (name, usage, ca) in names {
        run(&format!(
            "{new} -subj /CN={name} -addext subjectAltName=IP:127.0.0.1 -addext \
             basicConstraints=critical,CA:FALSE -addext extendedKeyUsage={usage} -CA {ca}.pem \
             -CAkey {ca}.key -keyout {name}.key -out {name}.pem"
        ));
        let key = folder.join(format!("{name}.key"));
        fs::set_permissions(key, fs::Permissions::from_mode(0o600)).unwrap();
    }
}

fn terms(provider: &dyn Provider) -> SlotTerms {
    SlotTerms {
        created: 1_700_000_000,
        wrapping: provider.wrapping(),
        reference: provider.reference(),
        ..SlotTerms::new(KeyringId([1; 16]), SlotId([2; 16]), SLOT)
    }
}

fn payload() -> Payload {
    let bytes: [u8; 64] = std::array::from_fn(|at| u8::try_from(at).unwrap());
    Payload::from_slice(&bytes).unwrap()
}

fn fault<T>(result: Result<T, Error>) -> (ServiceFault, String) {
    match result {
        Err(Error::Service { provider, fault, why }) if provider == SLOT => (fault, why),
        Err(other) => panic!("not a fault of the service: {other}"),
        Ok(_) => panic!("it worked"),
    }
}

#[test]
fn pykmip_gives_the_key_to_its_owner_only() {
    let server = Server::start();
    let keys = server.make("alice", &[256, 256, 128]);
    let provider = server.provider("alice", &keys[0]);
    let terms = terms(&*provider);
    let wrapped = provider.wrap(&terms, &payload()).unwrap();
    assert_eq!(provider.unwrap(&terms, &wrapped).unwrap().expose(), payload().expose());
    let (what, left) = provider.check(&terms, &wrapped).unwrap().expires.unwrap();
    assert_eq!(what, "the client certificate");
    assert!((86_400..=2 * 86_400).contains(&left), "{left}");

    let ask = |client: &str, key: &str| server.provider(client, key).unwrap(&terms, &wrapped);
    assert!(matches!(ask("alice", &keys[1]), Err(Error::WrongKey { .. })));
    assert_eq!(fault(ask("alice", &keys[2])).0, ServiceFault::Protocol);
    assert_eq!(fault(ask("alice", "999")).0, ServiceFault::NotFound);
    let (kind, why) = fault(ask("bob", &keys[0]));
    assert!(matches!(kind, ServiceFault::NotFound | ServiceFault::Denied), "{why}");
    let (kind, why) = fault(ask("mallory", &keys[0]));
    assert!(matches!(kind, ServiceFault::Credentials | ServiceFault::NoAnswer), "{why}");

    let key = server.home.path().join("alice.key");
    fs::set_permissions(key, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(ask("alice", &keys[0]), Err(Error::LooseFile { .. })));
}

#[test]
fn pykmip_wraps_and_keeps_the_key() {
    let server = Server::start();
    let keys = server.make("alice", &[256, 256, 128]);
    let provider = server.wrapper("alice", &keys[0]);
    let terms = terms(&*provider);
    assert_eq!(terms.wrapping, Wrapping::Remote);
    let wrapped = provider.wrap(&terms, &payload()).unwrap();
    assert_eq!(wrapped.len(), 139, "as FORMAT.md has it");
    assert_eq!(provider.unwrap(&terms, &wrapped).unwrap().expose(), payload().expose());
    let again = provider.wrap(&terms, &payload()).unwrap();
    assert!(wrapped[2..14] != again[2..14] && wrapped[14..78] != again[14..78], "one IV twice");
    let (what, _) = provider.check(&terms, &wrapped).unwrap().expires.unwrap();
    assert_eq!(what, "the client certificate");

    let other_terms = SlotTerms { reference: "another".into(), ..terms.clone() };
    let changed = provider.unwrap(&other_terms, &wrapped);
    assert!(matches!(changed, Err(Error::Tampered { .. })));
    for at in [2, 14, 77, 93] {
        let mut bytes = wrapped.clone();
        bytes[at] ^= 1;
        let changed = provider.unwrap(&terms, &bytes);
        assert!(matches!(changed, Err(Error::Tampered { .. })), "byte {at}");
    }
    for short in [&wrapped[..138], &wrapped[..1], &[]] {
        assert!(matches!(provider.unwrap(&terms, short), Err(Error::Damaged { .. })));
    }

    let ask = |client: &str, key: &str| server.wrapper(client, key).unwrap(&terms, &wrapped);
    assert!(matches!(ask("alice", &keys[1]), Err(Error::WrongKey { .. })));
    assert_eq!(fault(ask("alice", "999")).0, ServiceFault::NotFound);
    let (kind, why) = fault(ask("bob", &keys[0]));
    assert!(matches!(kind, ServiceFault::NotFound | ServiceFault::Denied), "{why}");
    let short = server.wrapper("alice", &keys[2]).wrap(&terms, &payload());
    assert!(fault(short).1.contains("no symmetric key of 256 bits"));
    let given = server.provider("alice", &keys[0]).unwrap(&terms, &wrapped);
    assert!(matches!(given, Err(Error::NoSlot { .. })), "mode get opens no such slot");

    server.revoke("alice", &keys[0]);
    let (kind, why) = fault(ask("alice", &keys[0]));
    assert!(kind == ServiceFault::Denied && why.contains("Active"), "{why}");
}

#[test]
fn a_server_that_is_away_or_silent_is_given_up_with_its_place() {
    let server = Server::start();
    // Nobody listens at port 1, and nobody is given it.
    let away = open(&server.uri(1, "alice", "1"));
    let (kind, why) = fault(away.wrap(&terms(&*away), &payload()));
    assert!(kind == ServiceFault::NoAnswer && why.contains("127.0.0.1:"), "{why}");
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let slow = open_within(&server.uri(port, "alice", "1"), 5);
    let began = Instant::now();
    let (kind, why) = fault(slow.wrap(&terms(&*slow), &payload()));
    let expected = format!("did not answer (127.0.0.1:{port}, 5 s)");
    assert_eq!((kind, why), (ServiceFault::NoAnswer, expected));
    assert!(began.elapsed() < Duration::from_secs(60));
}

/// A server whose ciphers are others than ours is told so, and not that the certificate is bad.
#[test]
fn a_server_without_a_cipher_in_common_is_not_the_certificates_fault() {
    let home = tempfile::tempdir().unwrap();
    certificates(home.path());
    let (_process, port) = listening(|port| {
        let mut server = alone("openssl");
        server.args(["s_server", "-quiet", "-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-SHA"]);
        server.args(["-accept", &format!("127.0.0.1:{port}")]);
        server.args(["-cert", "server.pem", "-key", "server.key"]).current_dir(home.path());
        server.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        server
    })
    .unwrap();
    let dir = home.path().display();
    let provider = open(&format!(
        "kmip:127.0.0.1:{port}/1?certificate={dir}/alice.pem&key={dir}/alice.key&ca={dir}/ca.pem"
    ));
    let (kind, why) = fault(provider.wrap(&terms(&*provider), &payload()));
    assert_eq!(kind, ServiceFault::Protocol, "{why}");
    assert!(why.contains("version and cipher") && !why.contains("certificate"), "{why}");
}

#[test]
fn a_server_of_another_authority_is_not_trusted() {
    let server = Server::start();
    let dir = server.home.path().display();
    let port = server.port;
    let provider = open(&format!(
        "kmip:127.0.0.1:{port}/1?certificate={dir}/alice.pem&key={dir}/alice.key&\
         ca={dir}/other-ca.pem"
    ));
    let (kind, why) = fault(provider.wrap(&terms(&*provider), &payload()));
    assert_eq!(kind, ServiceFault::Protocol);
    assert!(why.contains("cannot be trusted"), "{why}");
}

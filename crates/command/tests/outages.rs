//! Key services that are down, slow, somebody else, or tired of us: what `key check` says before a
//! restart, and whether the keyring then opens for a program, agree.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "home/place.rs"]
mod place;

#[expect(dead_code, reason = "the tests of the provider use all of it")]
#[path = "../../keys/providers/tests/vault/double.rs"]
mod double;

#[path = "outages/proxy.rs"]
mod proxy;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use double::{Double, Mood};
use place::Shell;
use proxy::{Mode, Proxy};
use serde_json::{Value, json};
use tidelock_servers::{Bounded, Started, alone, listening};

/// What the double of Vault has ready.
#[expect(dead_code, reason = "the double's own tests use all of it")]
struct Prepared {
    address: String,
    good: String,
    powerless: String,
    wraps: String,
    half: String,
    role_id: String,
    secret_id: String,
}

/// A protected directory whose only slot is the service's.
struct Site {
    place: Shell,
    /// Before each command.
    environment: String,
}

impl Site {
    fn new(environment: &str, provider: &str) -> Self {
        let site = Self { place: Shell::new(), environment: environment.to_owned() };
        site.configure(provider);
        assert_eq!(site.verdicts(), (0, 0), "{}", site.said());
        site
    }

    /// The first start makes the directory.
    fn configure(&self, provider: &str) {
        let written = self.place.run(&format!(
            "umask 077; mkdir -p .config/tidelock; cat > .config/tidelock/site.toml <<END\n\
             directory = \"$PWD/data\"\nauto_init = true\nprofile = \"generic\"\n\
             [[provider]]\n{provider}\nEND\n"
        ));
        assert_eq!(written, "");
    }

    /// Exit codes of `key check`, and of a program that starts where no agent is.
    fn verdicts(&self) -> (i32, i32) {
        let said = self.place.run(&format!(
            "{}n=$(($(cat n 2> /dev/null || echo 0) + 1)); echo $n > n; mkdir -m 700 r$n; \
             export TIDELOCK_RUN_DIR=$PWD/r$n; [ -e data ] || tidelock exec -D data -- true \
             > start 2>&1; tidelock key check -D data > check 2>&1; echo $?; \
             mkdir -m 700 s$n; TIDELOCK_RUN_DIR=$PWD/s$n tidelock exec -D data -- true \
             > start 2>&1; echo $?",
            self.environment
        ));
        let codes: Vec<i32> = said.lines().filter_map(|line| line.parse().ok()).collect();
        assert_eq!(codes.len(), 2, "{said}{}", self.said());
        (codes[0], codes[1])
    }

    fn said(&self) -> String {
        self.place.run("cat check start")
    }

    /// While `begin` holds, neither opens; after `end` both do.
    fn outage(&self, what: &str, begin: impl FnOnce(), end: impl FnOnce()) {
        begin();
        let (check, start) = self.verdicts();
        assert!(check == 4 && start == 4, "{what}: {check}, {start}: {}", self.said());
        end();
        assert_eq!(self.verdicts(), (0, 0), "after {what}: {}", self.said());
    }
}

fn python() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    // TARGET/debug/deps/this
    let python = exe.ancestors().nth(3).unwrap().join("python/bin/python3");
    assert!(python.exists(), "{} (see ci/python-env)", python.display());
    python
}

fn silent(command: &mut std::process::Command) {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
}

/// An authority with a server and two clients of it, and a server of another authority.
fn certificates(folder: &Path) {
    let run = |arguments: &str| {
        let made = alone("openssl").args(arguments.split(' ')).current_dir(folder).finish();
        let made = made.unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    };
    let new = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2";
    for ca in ["ca", "other-ca"] {
        run(&format!("{new} -subj /CN={ca} -keyout {ca}.key -out {ca}.pem"));
    }
    for (name, usage, ca) in [
        ("server", "serverAuth", "ca"),
        ("stranger", "serverAuth", "other-ca"),
        ("alice", "clientAuth", "ca"),
        ("mallory", "clientAuth", "other-ca"),
    ] {
        run(&format!(
            "{new} -subj /CN={name} -addext subjectAltName=IP:127.0.0.1 -addext \
             basicConstraints=critical,CA:FALSE -addext extendedKeyUsage={usage} -CA {ca}.pem \
             -CAkey {ca}.key -keyout {name}.key -out {name}.pem"
        ));
    }
    run("version");
    let modes = alone("/bin/sh").args(["-c", "chmod 600 *.key"]).current_dir(folder).finish();
    assert!(modes.unwrap().status.success());
}

/// A TLS server with a certificate of another authority.
fn stranger(folder: &Path) -> (Started, u16) {
    listening(|port| {
        let mut server = alone("openssl");
        server.args(["s_server", "-quiet", "-cert", "stranger.pem", "-key", "stranger.key"]);
        server.args(["-accept", &port.to_string()]).current_dir(folder);
        silent(&mut server);
        server
    })
    .unwrap()
}

#[test]
fn a_check_and_a_start_agree_while_vault_is_down() {
    let home = tempfile::tempdir().unwrap();
    certificates(home.path());
    let at = |name: &str| home.path().join(name);
    let vault = Double::start_tls(&at("server.pem"), &at("server.key"));
    let token = at("token");
    let write = |text: &str| {
        fs::write(&token, format!("{text}\n")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(&token, mode).unwrap();
    };
    write("hvs.good");
    let ca = |name: &str| {
        format!(
            "type = \"vault\"\naddress = \"{}\"\ntoken_file = \"{}\"\nca_file = \"{}\"\n\
             engine = \"transit\"\nkey = \"pg\"\ntimeout_seconds = 2",
            vault.prepared().address,
            token.display(),
            at(name).display()
        )
    };
    let site = Site::new("", &ca("ca.pem"));
    site.outage("slow", || vault.set(Mood::Slow), || vault.set(Mood::Fine));
    site.outage("sealed", || vault.set(Mood::Sealed), || vault.set(Mood::Fine));
    site.outage("an expired token", || write("hvs.expired"), || write("hvs.good"));
    let (other, ours) = (ca("other-ca.pem"), ca("ca.pem"));
    site.outage("another authority", || site.configure(&other), || site.configure(&ours));
    assert!(vault.asked().len() > 10);
}

/// The name of a secret is the same whatever version it has.
#[test]
fn a_new_version_of_a_secret_renews_the_keyring_key() {
    const NEW: &str = "HTTP/1.1 200 X\r\nContent-Type: application/json\r\nContent-Length: 92\r\n\
                       Connection: close\r\n\r\n{\"data\":{\"data\":{\"key\":\"\
                       a00102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\"\
                       }}}";
    let (vault, place) = (Double::start(), Shell::new());
    let token = vault.prepared().good;
    let begin = format!("export VAULT_ADDR={} VAULT_TOKEN={token};", vault.prepared().address);
    let made = place.run(&format!(
        "{begin} tidelock init data --profile generic --recovery-file r --provider \
         vault:kv/db/pg > out 2>&1 || cat out"
    ));
    assert_eq!(made, "");
    let rotate = format!(
        "{begin} tidelock key rotate -D data --recovery-file r --to vault:kv/db/pg --slot \
         $(tidelock key list -D data | grep vault | cut -c1-8)"
    );
    let said = place.run(&rotate);
    assert!(said.contains(", as before") && said.contains("its own key is not renewed"), "{said}");
    // A service that fails once, at whichever question, has no other key by that.
    let said = [0, 1, 2, 3, 4, 5, 6, 7].map(|answers| {
        vault.set(Mood::Fails(answers));
        place.run(&format!("{rotate} --no-renew --yes"))
    });
    assert!(said.iter().all(|said| !said.contains("destroy the old principal key")), "{said:#?}");
    let in_doubt = |said: &&String| !said.contains("[exit") && !said.contains(", as before");
    assert_eq!(said.iter().filter(in_doubt).count(), 1, "{said:#?}");
    let kept = said.iter().find(in_doubt).is_some_and(|said| said.contains("may need it"));
    assert!(kept, "{said:#?}");
    assert!(said.last().is_some_and(|said| said.contains(", as before")), "{said:#?}");
    vault.set(Mood::Raw(NEW));
    let said = place.run(&rotate);
    assert!(!said.contains(", as before"), "{said}");
    assert!(said.contains("only sealing the data again under other data keys"), "{said}");
    assert!(said.contains("destroy the old principal key of slot [SLOT] (vault)"), "{said}");
    let said = place.run(&format!("{begin} tidelock verify -D data --provider vault:kv/db/pg"));
    assert!(said.contains("0 problems") && !said.contains("[exit"), "{said}");
}

/// Two engines of one service wrap in two ways; neither opens what the other one wrapped.
#[test]
fn a_secret_that_becomes_a_transit_key_is_another_key() {
    let (vault, place) = (Double::start(), Shell::new());
    let token = vault.prepared().good;
    let begin = format!("export VAULT_ADDR={} VAULT_TOKEN={token};", vault.prepared().address);
    let said = place.run(&format!(
        "{begin} tidelock init data --profile generic --recovery-file r --provider \
         vault:kv/db/pg > out 2>&1; tidelock key rotate -D data --recovery-file r --to \
         vault:transit/pg --slot $(tidelock key list -D data | grep vault | cut -c1-8)"
    ));
    assert!(said.contains("only sealing the data again under other data keys"), "{said}");
    assert!(said.contains("destroy the old principal key of slot [SLOT] (vault)"), "{said}");
    assert!(!said.contains(", as before") && !said.contains("keep the"), "{said}");
}

#[test]
fn a_check_and_a_start_agree_while_kms_is_down() {
    let home = tempfile::tempdir().unwrap();
    certificates(home.path());
    let (_moto, port) = listening(|port| {
        let mut moto = alone(python());
        moto.args(["-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p"]);
        moto.arg(port.to_string());
        silent(&mut moto);
        moto
    })
    .unwrap();
    let made: Value = proxy::ask_kms(port, "CreateKey", &json!({}));
    let key = made["KeyMetadata"]["Arn"].as_str().unwrap().to_owned();
    let proxy = Proxy::to(port);
    let at = |endpoint: &str| {
        format!(
            "type = \"aws-kms\"\nkey = \"{key}\"\nregion = \"eu-west-1\"\n\
             endpoint = \"{endpoint}\"\ntimeout_seconds = 4"
        )
    };
    let ours = at(&format!("http://127.0.0.1:{}", proxy.port()));
    // Credentials come from a file, as on a server.
    let environment = "export AWS_EC2_METADATA_DISABLED=true; mkdir -p .aws; \
                       printf '[default]\\naws_access_key_id = AKIATIDE\\n\
                       aws_secret_access_key = secret\\n' > .aws/credentials; ";
    let site = Site::new(environment, &ours);
    let set = |mode: Mode| proxy.set(mode);
    site.outage("down", || set(Mode::Refuse), || set(Mode::Pass(port)));
    site.outage("slow", || set(Mode::Silent), || set(Mode::Pass(port)));
    site.outage("an expired token", || set(Mode::Answer(EXPIRED)), || set(Mode::Pass(port)));
    let (_stranger, other) = stranger(home.path());
    let other = at(&format!("https://127.0.0.1:{other}"));
    site.outage("another authority", || site.configure(&other), || site.configure(&ours));
}

const EXPIRED: &str = "HTTP/1.1 400 Bad Request\r\nContent-Type: application/x-amz-json-1.1\r\n\
                       Content-Length: 95\r\nConnection: close\r\n\r\n\
                       {\"__type\":\"ExpiredTokenException\",\
                       \"message\":\"The security token in the request is expired\"}  ";

#[test]
fn a_check_and_a_start_agree_while_kmip_is_down() {
    let home = tempfile::tempdir().unwrap();
    certificates(home.path());
    let dir = home.path().display().to_string();
    fs::create_dir(home.path().join("policies")).unwrap();
    let (_pykmip, port) = listening(|port| {
        let config = format!(
            "[server]\nhostname=127.0.0.1\nport={port}\ncertificate_path={dir}/server.pem\n\
             key_path={dir}/server.key\nca_path={dir}/ca.pem\nauth_suite=TLS1.2\n\
             policy_path={dir}/policies\nenable_tls_client_auth=True\ndatabase_path={dir}/kmip.db\n"
        );
        fs::write(home.path().join("server.conf"), config).unwrap();
        let mut server = alone(python().with_file_name("pykmip-server"));
        server.args(["-f", &format!("{dir}/server.conf"), "-l", &format!("{dir}/server.log")]);
        server.current_dir(home.path());
        silent(&mut server);
        server
    })
    .unwrap();
    let script = format!(
        "from kmip.pie.client import ProxyKmipClient\nfrom kmip import enums\n\
         c = ProxyKmipClient('127.0.0.1', {port}, '{dir}/alice.pem', '{dir}/alice.key', \
         '{dir}/ca.pem', 'PROTOCOL_TLSv1_2')\nc.open()\n\
         key = c.create(enums.CryptographicAlgorithm.AES, 256)\nc.activate(key)\nprint(key)\n"
    );
    let made = alone(python()).args(["-c", &script]).finish().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let key = String::from_utf8(made.stdout).unwrap().trim().to_owned();
    let proxy = Proxy::to(port);
    let of = |client: &str| {
        format!(
            "type = \"kmip\"\nhost = \"127.0.0.1\"\nport = {}\nkey_id = \"{key}\"\n\
             certificate_file = \"{dir}/{client}.pem\"\nkey_file = \"{dir}/{client}.key\"\n\
             ca_file = \"{dir}/ca.pem\"\ntimeout_seconds = 4",
            proxy.port()
        )
    };
    let ours = of("alice");
    let site = Site::new("", &ours);
    let set = |mode: Mode| proxy.set(mode);
    site.outage("down", || set(Mode::Refuse), || set(Mode::Pass(port)));
    site.outage("slow", || set(Mode::Silent), || set(Mode::Pass(port)));
    let (_stranger, other) = stranger(home.path());
    site.outage("another authority", || set(Mode::Pass(other)), || set(Mode::Pass(port)));
    let mallory = of("mallory");
    site.outage("a client of others", || site.configure(&mallory), || site.configure(&ours));
}

#[test]
fn a_check_and_a_start_agree_without_the_token() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().display().to_string();
    let pin = |text: &str| {
        let made =
            alone("/bin/sh").args(["-c", &format!("umask 077; echo {text} > {dir}/pin")]).finish();
        assert!(made.unwrap().status.success());
    };
    let made = alone("/bin/sh")
        .args([
            "-c",
            &format!(
                "mkdir {dir}/tokens; \
                 printf 'directories.tokendir = {dir}/tokens\\nlog.level = ERROR\\n' > {dir}/conf; \
                 export SOFTHSM2_CONF={dir}/conf; \
                 softhsm2-util --init-token --free --label one --pin 7315-tide --so-pin 12345678 \
                 && pkcs11-tool --module {MODULE} --token-label one --login --pin 7315-tide \
                 --keygen --key-type AES:32 --label pg --id 01 --sensitive"
            ),
        ])
        .finish()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    pin("7315-tide");
    let of = |object: &str| {
        format!(
            "type = \"pkcs11\"\nmodule = \"{MODULE}\"\ntoken = \"one\"\nkey = \"{object}\"\n\
             pin_file = \"{dir}/pin\""
        )
    };
    let ours = of("pg");
    let site = Site::new(&format!("export SOFTHSM2_CONF={dir}/conf; "), &ours);
    let (here, away) = (home.path().join("tokens"), home.path().join("away"));
    let take = || {
        fs::rename(&here, &away).unwrap();
        fs::create_dir(&here).unwrap();
    };
    let bring = || {
        fs::remove_dir_all(&here).unwrap();
        fs::rename(&away, &here).unwrap();
    };
    site.outage("no token", take, bring);
    site.outage("a changed PIN", || pin("0000-tide"), || pin("7315-tide"));
    let other = of("none");
    site.outage("no such key", || site.configure(&other), || site.configure(&ours));
}

const MODULE: &str = "/usr/lib/softhsm/libsofthsm2.so";

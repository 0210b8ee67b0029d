//! The credentials of key providers are found nowhere but in their own files: not in environment,
//! command line and core file of a program that runs on the data or of the agent, not in what
//! `tidelock` prints, logs and configures; and `tidelock` itself leaves no core file.
//!
//! Each provider is real (SoftHSM, PyKMIP, moto) but Vault, of which a few lines of Python are the
//! double.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use aho_corasick::AhoCorasick;
use rustix::process::{Pid, Signal, kill_process};
use tidelock_servers::{Bounded, Started, alone, listening, skip};

#[path = "home/home.rs"]
mod home;

const PIN: &str = "7315-tide-pin-of-token";
const TOKEN: &str = "hvs.tideTokenOfVaultXYZ";
const AWS: &str = "tideSecretAccessKeyOfAws";
const AWS_SESSION: &str = "tideSessionTokenOfAws";
const DIGITS: &str = "a90c5b7ec63bd5a1f8e26b1c9d3f40720a1b2c3d4e5f60718293a4b5c6d7e8f9";

/// What encrypts for whoever shows the token: /v1/transit/encrypt and decrypt.
const VAULT: &str = r#"
import base64, http.server, json, os, sys
kept = {}
class Vault(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers.get('Content-Length') or 0)) or '{}')
        status, data = 200, {}
        if self.headers.get('X-Vault-Token') != sys.argv[2]:
            status, data = 403, {'errors': ['permission denied']}
        elif '/encrypt/' in self.path:
            text = 'vault:v1:' + base64.b64encode(os.urandom(124)).decode()
            kept[text] = asked['plaintext']
            data = {'data': {'ciphertext': text}}
        elif '/decrypt/' in self.path:
            data = {'data': {'plaintext': kept[asked['ciphertext']]}}
        else:
            status, data = 404, {'errors': []}
        body = json.dumps(data).encode()
        self.send_response(status)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_GET = do_PUT = do_POST
    def log_message(self, *_):
        pass
http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), Vault).serve_forever()
"#;

/// A home, and what runs in it; all ended with the test.
struct Home {
    running: Vec<Started>,
    home: home::Home,
}

impl Home {
    fn new() -> Self {
        let home = home::Home::new();
        for name in ["cores", "doubles"] {
            fs::create_dir(home.path(name)).unwrap();
            fs::set_permissions(home.path(name), fs::Permissions::from_mode(0o700)).unwrap();
        }
        Self { running: Vec::new(), home }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path(name)
    }

    /// A line of shell with these variables.
    fn command(&self, line: &str, variables: &[(&str, &str)]) -> Command {
        let mut command = self.home.shell(line);
        command
            .env("SOFTHSM2_CONF", self.path("softhsm2.conf"))
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .envs(variables.iter().copied());
        command
    }

    fn run(&self, line: &str, variables: &[(&str, &str)]) -> Output {
        self.command(line, variables).finish().unwrap_or_else(|why| panic!("{line}: {why}"))
    }

    #[track_caller]
    fn done(&self, line: &str, variables: &[(&str, &str)]) -> String {
        let output = self.run(line, variables);
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// A server that is started with a port and answers there.
    fn serve(&mut self, line: impl Fn(&Self, u16) -> String) -> u16 {
        let (server, port) = listening(|port| {
            let out = fs::File::create(self.path("doubles/log")).unwrap();
            let mut command = self.command(&format!("exec {}", line(self, port)), &[]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(out);
            command
        })
        .unwrap();
        self.running.push(server);
        port
    }

    /// Files that are not the credentials themselves.
    fn files(&self) -> Vec<PathBuf> {
        let (mut all, mut folders) = (Vec::new(), vec![self.home.dir().to_owned()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                let ours = ["doubles", "cores", "tokens"].iter().any(|it| entry.ends_with(it));
                if entry.is_dir() && !entry.is_symlink() && !ours {
                    folders.push(entry);
                } else if entry.is_file() {
                    all.push(entry);
                }
            }
        }
        all
    }
}

fn python() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../python/bin");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ci/python-env");
    static READY: std::sync::Once = std::sync::Once::new();
    READY.call_once(|| assert!(alone(script).finish().unwrap().status.success()));
    folder
}

/// Which of the secrets these bytes hold.
fn found(secrets: &[(&str, Vec<u8>)], bytes: &[u8]) -> Vec<String> {
    let search = AhoCorasick::new(secrets.iter().map(|(_, secret)| secret)).unwrap();
    search.find_iter(bytes).map(|hit| secrets[hit.pattern().as_usize()].0.to_owned()).collect()
}

#[track_caller]
fn absent(what: &str, secrets: &[(&str, Vec<u8>)], bytes: &[u8]) {
    let found = found(secrets, bytes);
    assert!(found.is_empty(), "{what} has {found:?}");
}

/// A private key in PEM: a line of its text, and its bytes.
fn of_pem(path: &Path) -> [Vec<u8>; 2] {
    let text = fs::read_to_string(path).unwrap();
    let line = text.lines().nth(1).unwrap().as_bytes().to_vec();
    let der = alone("openssl").args(["pkey", "-outform", "DER", "-in"]).arg(path).finish();
    // PKCS#8 of P-256: the scalar is behind 36 bytes of names and lengths.
    let der = der.unwrap().stdout;
    let at = der.windows(2).rposition(|two| two == [0x04, 0x20]).unwrap();
    [line, der[at + 2..at + 34].to_vec()]
}

/// The agent that has the keys of this directory; those of other tests come and go.
fn agent(home: &Home, name: &str) -> i32 {
    let told = home.run(&format!("tidelock status -D {name}"), &[]);
    let told = String::from_utf8_lossy(&told.stdout);
    let process = |line: &str| {
        let rest = line.strip_prefix("agent ")?.trim_start().strip_prefix("process ")?;
        rest.split(',').next()?.parse().ok()
    };
    told.lines().find_map(process).unwrap_or_else(|| panic!("no agent: {told}"))
}

#[track_caller]
fn absent_in_process(home: &Home, secrets: &[(&str, Vec<u8>)], what: &str, id: i32) {
    let line = fs::read(format!("/proc/{id}/cmdline")).unwrap();
    absent(&format!("the command line of {what}"), secrets, &line);
    match fs::read(format!("/proc/{id}/environ")) {
        Ok(bytes) => absent(&format!("the environment of {what}"), secrets, &bytes),
        // The agent's is for those to read who may trace it.
        Err(why) => {
            assert!(what.starts_with("the agent"), "{what}: {why}");
            skip::because(format_args!("the environment of {what}: {why}"));
        }
    }
    let core = home.path("cores/core");
    let done = alone("gcore").arg("-o").arg(&core).arg(id.to_string()).finish().unwrap();
    let core = home.path(&format!("cores/core.{id}"));
    match fs::read(&core) {
        Ok(bytes) => {
            // What is on its stack shows that the file has its memory.
            let has_memory = !found(&[("its command line", line)], &bytes).is_empty();
            assert!(has_memory, "the core file of {what} does not have its memory");
            absent(&format!("a core file of {what}"), secrets, &bytes);
            fs::remove_file(core).unwrap();
        }
        Err(_) => {
            let said = String::from_utf8_lossy(&done.stderr);
            skip::because(format_args!(
                "a core of {what}, since gcore is refused: {}",
                said.trim_end()
            ));
        }
    }
}

/// A directory that `provider` opens, used as an operator would, with these variables set.
fn look_everywhere(
    home: &Home,
    name: &str,
    provider: &str,
    variables: &[(&str, &str)],
    secrets: &[(&str, Vec<u8>)],
) {
    let mut said = String::new();
    let mut tell = |line: &str| {
        let output = home.run(line, variables);
        said += &format!("$ {line}\n{}", String::from_utf8_lossy(&output.stdout));
        said += &String::from_utf8_lossy(&output.stderr);
        output.status.success()
    };
    let init =
        format!("tidelock init {name} --profile generic --no-recovery --provider '{provider}'");
    assert!(tell(&init), "{said}");
    assert!(
        tell(&format!(
            "echo text | tidelock seal --file -D {name} --provider '{provider}' > {name}/file"
        )),
        "{said}"
    );
    let mut exec = home.command(
        &format!("exec tidelock exec -D {name} --provider '{provider}' -- sleep 3000"),
        variables,
    );
    let mut program = exec.stdin(Stdio::null()).stderr(Stdio::null()).start().unwrap();
    let id = i32::try_from(program.id()).unwrap();
    let until = Instant::now() + Duration::from_secs(120);
    while !fs::read(format!("/proc/{id}/cmdline")).unwrap().starts_with(b"sleep\0") {
        assert!(Instant::now() < until && program.try_wait().unwrap().is_none(), "no program runs");
        sleep(Duration::from_millis(50));
    }
    absent_in_process(home, secrets, &format!("the program on {name}"), id);
    absent_in_process(home, secrets, &format!("the agent of {name}"), agent(home, name));
    for line in [
        "status",
        "status --json",
        "key list --json",
        "key check",
        "key check --json",
        "audit show",
        "verify --json",
        "key rotate",
        "key new-data-key",
    ] {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let line = match verb {
            "key" | "audit" => format!("tidelock {verb} {} -D {name}", rest),
            _ => format!("tidelock {verb} -D {name} {rest}"),
        };
        tell(&line);
    }
    tell(&format!("tidelock inspect --json {name}/.tidelock/keyring"));
    // What does not open is told without them too.
    let wrong: Vec<_> = variables.iter().map(|(name, _)| (*name, "another")).collect();
    let output = home.run(&format!("tidelock cat --provider '{provider}' {name}/file"), &wrong);
    said += &String::from_utf8_lossy(&output.stderr);
    program.end();
    assert!(said.contains("provider") && said.contains("unlock"), "{said}");
    absent(&format!("what was printed about {name}"), secrets, said.as_bytes());
    for file in home.files() {
        absent(&file.display().to_string(), secrets, &fs::read(&file).unwrap());
    }
}

#[test]
fn credentials_of_providers_stay_in_their_own_files() {
    let mut home = Home::new();
    let private = |home: &Home, name: &str, text: &str| {
        let path = home.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path.display().to_string()
    };
    let dir = home.home.dir().display().to_string();

    let digits = [("the key of the environment", DIGITS.as_bytes().to_vec())];
    look_everywhere(&home, "env", "env:TIDE_KEY", &[("TIDE_KEY", DIGITS)], &digits);

    let tokens = home.path("tokens");
    fs::create_dir(&tokens).unwrap();
    let conf = format!("directories.tokendir = {}\nlog.level = ERROR\n", tokens.display());
    fs::write(home.path("softhsm2.conf"), conf).unwrap();
    let module = "/usr/lib/softhsm/libsofthsm2.so";
    home.done(
        &format!(
            "softhsm2-util --init-token --free --label one --pin {PIN} --so-pin 12345678 && \
             pkcs11-tool \
             --module {module} --token-label one --login --pin {PIN} --keygen --key-type AES:32 --label pg \
             --id 01 --sensitive"
        ),
        &[],
    );
    let pin = private(&home, "doubles/pin", PIN);
    let uri = format!("pkcs11:token=one;object=pg?module-path={module}&pin-source=file:{pin}");
    let secrets = [("the PIN", PIN.as_bytes().to_vec())];
    assert_eq!(found(&secrets, &fs::read(&pin).unwrap()).len(), 1, "the search finds nothing");
    look_everywhere(&home, "pkcs11", &uri, &[], &secrets);

    let script = private(&home, "doubles/vault.py", VAULT);
    let port = home.serve(|_, port| format!("python3 {script} {port} {TOKEN}"));
    let address = format!("http://127.0.0.1:{port}");
    let secrets = [("the token", TOKEN.as_bytes().to_vec())];
    let variables = [("VAULT_ADDR", &*address), ("VAULT_TOKEN", TOKEN)];
    look_everywhere(&home, "vault", "vault:transit/pg", &variables, &secrets);

    let python = python().display().to_string();
    let moto = format!("{python}/python -c 'from moto.server import main; main()' -H 127.0.0.1 -p");
    let port = home.serve(|_, port| format!("{moto} {port}"));
    let address = format!("http://127.0.0.1:{port}");
    let variables = [
        ("AWS_ACCESS_KEY_ID", "AKIATIDE"),
        ("AWS_SECRET_ACCESS_KEY", AWS),
        ("AWS_SESSION_TOKEN", AWS_SESSION),
        ("AWS_REGION", "eu-west-1"),
        ("AWS_ENDPOINT_URL", &address),
    ];
    let make = "import boto3; print(boto3.client('kms').create_key()['KeyMetadata']['Arn'])";
    let key = home
        .done(&format!("AWS_DEFAULT_REGION=eu-west-1 {python}/python -c \"{make}\""), &variables);
    let secrets = [("the secret", AWS.as_bytes().to_vec()), ("the session", AWS_SESSION.into())];
    look_everywhere(&home, "aws", &format!("aws-kms:{}", key.trim()), &variables, &secrets);

    home.done(&certificates(), &[]);
    let port = home.serve(|home, port| {
        let conf = format!(
            "[server]\nhostname=127.0.0.1\nport={port}\ncertificate_path={dir}/doubles/server.pem\n\
             key_path={dir}/doubles/server.key\nca_path={dir}/doubles/ca.pem\nauth_suite=TLS1.2\n\
             policy_path={dir}/doubles\nenable_tls_client_auth=True\n\
             database_path={dir}/doubles/kmip.db\n"
        );
        private(home, "doubles/server.conf", &conf);
        format!("{python}/pykmip-server -f doubles/server.conf -l doubles/server.log")
    });
    let files =
        format!("'{dir}/doubles/alice.pem', '{dir}/doubles/alice.key', '{dir}/doubles/ca.pem'");
    let make = format!(
        "from kmip.pie.client import ProxyKmipClient\nfrom kmip import enums\n\
         c = ProxyKmipClient('127.0.0.1', {port}, {files}, 'PROTOCOL_TLSv1_2')\nc.open()\n\
         key = c.create(enums.CryptographicAlgorithm.AES, 256)\nc.activate(key)\nprint(key)\n"
    );
    private(&home, "doubles/make.py", &make);
    let key = home.done(&format!("{python}/python doubles/make.py"), &[]);
    let [line, scalar] = of_pem(&home.path("doubles/alice.key"));
    let secrets = [("a line of the client's key", line), ("the client's key", scalar)];
    let provider = format!(
        "kmip:127.0.0.1:{port}/{}?certificate={dir}/doubles/alice.pem&key={dir}/doubles/alice.key&\
         ca={dir}/doubles/ca.pem&mode=encrypt",
        key.trim()
    );
    look_everywhere(&home, "kmip", &provider, &[], &secrets);
}

/// An authority, a server and a client.
fn certificates() -> String {
    let new = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj";
    let mut line = format!("cd doubles && {new} /CN=authority -keyout ca.key -out ca.pem");
    for (name, usage) in [("server", "serverAuth"), ("alice", "clientAuth")] {
        line += &format!(
            " && {new} /CN={name} -addext subjectAltName=IP:127.0.0.1 -addext \
             basicConstraints=critical,CA:FALSE -addext extendedKeyUsage={usage} -CA ca.pem -CAkey ca.key \
             -keyout {name}.key -out {name}.pem"
        );
    }
    line + " && chmod 600 *.key"
}

#[test]
fn a_passphrase_descriptor_is_closed_and_a_crash_leaves_no_core_file() {
    let home = Home::new();
    home.done("echo 'open sesame of the tide' > words", &[]);
    let init = "tidelock init data --profile generic --no-recovery --provider passphrase \
                --passphrase-fd 7 \
                7< words";
    home.done(init, &[]);
    let list = "tidelock exec --passphrase-fd 7 -D data -- ls -l /proc/self/fd 7< words";
    let open = home.done(list, &[]);
    assert!(open.contains(" 0 ->") && !open.contains("words"), "{open}");
    // Nor does it inherit a file that was read as standard input.
    let cat = "tidelock exec --passphrase-fd 0 -D data -- cat < words";
    assert_eq!(home.done(cat, &[]), "");
    let recovery = "tidelock key recovery -D data --passphrase-fd 7 \
                    --new-recovery-file recovery 7< words";
    home.done(recovery, &[]);
    let cat = "tidelock exec --recovery-file - -D data -- cat < recovery";
    assert_eq!(home.done(cat, &[]), "");

    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://127.0.0.1:{}", silent.local_addr().unwrap().port());
    let line = "ulimit -c unlimited; cd cores; exec tidelock key add -D ../data --passphrase-fd 7 \
                vault:transit/pg 7< ../words";
    let variables = [("VAULT_ADDR", &*address), ("VAULT_TOKEN", TOKEN)];
    let mut command = home.command(line, &variables);
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::null()).start().unwrap();
    // It has connected, and waits with the token in its memory.
    silent.set_nonblocking(true).unwrap();
    let until = Instant::now() + Duration::from_secs(120);
    let _connection = loop {
        match silent.accept() {
            Ok(connection) => break connection,
            Err(_) => assert!(child.try_wait().unwrap().is_none(), "it ended by itself"),
        }
        assert!(Instant::now() < until, "it does not connect");
        sleep(Duration::from_millis(20));
    };
    let id = Pid::from_raw(child.id().cast_signed()).unwrap();
    kill_process(id, Signal::ABORT).unwrap();
    let status = child.ended_within(Duration::from_secs(120)).unwrap();
    assert!(status.code().is_none(), "{status}");
    let left: Vec<_> = fs::read_dir(home.path("cores")).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    // The program that `exec` becomes has keys, and what it starts has its limit.
    let limit = "ulimit -c 4096; tidelock exec --passphrase-fd 7 -D data -- \
                 sh -c 'grep core /proc/self/limits; ulimit -c 8 || :' 7< words 2>&1";
    let said = home.done(limit, &[]);
    let words: Vec<_> = said
        .lines()
        .find(|line| line.starts_with("Max core"))
        .unwrap()
        .split_whitespace()
        .collect();
    assert_eq!(words, ["Max", "core", "file", "size", "1", "1", "bytes"], "{said}");
    assert!(said.to_lowercase().contains("not permitted"), "{said}");
}

//! A real Vault: built once from its Go module, started as `vault server -dev` on a free port.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use ureq::Agent;

use crate::Prepared;
use crate::double::KEY;

const ROOT: &str = "root";

/// Stopped when dropped.
pub(crate) struct Vault {
    server: Child,
    address: String,
}

impl Drop for Vault {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Vault {
    pub(crate) fn start(home: &Path) -> Self {
        let program = build();
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let server = Command::new(program)
            .args(["server", "-dev", "-dev-no-store-token"])
            .arg(format!("-dev-root-token-id={ROOT}"))
            .arg(format!("-dev-listen-address={free}"))
            .env("HOME", home)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let vault = Self { server, address: format!("http://{free}") };
        let until = Instant::now() + Duration::from_secs(60);
        // The KV engine of a fresh server is upgraded for a moment after the start.
        while ask(&vault.address, ROOT, "secret/config", None)
            .is_none_or(|(status, _)| status != 200)
        {
            assert!(Instant::now() < until, "Vault did not start");
            std::thread::sleep(Duration::from_millis(200));
        }
        vault
    }

    fn make(&self, path: &str, body: Value) -> Value {
        let (status, answer) = ask(&self.address, ROOT, path, Some(body)).unwrap();
        assert!(status < 300, "{path}: {status} {answer}");
        answer
    }

    pub(crate) fn prepare(&self) -> Prepared {
        self.make("sys/mounts/transit", json!({ "type": "transit" }));
        self.make("transit/keys/pg", json!({ "type": "aes256-gcm96" }));
        self.make("transit/keys/other", json!({}));
        self.make("secret/data/db/pg", json!({ "data": { "key": KEY, "note": "not a key" } }));
        let rules = "path \"transit/encrypt/*\" { capabilities = [\"update\"] }
                     path \"transit/decrypt/*\" { capabilities = [\"update\"] }
                     path \"secret/data/db/*\" { capabilities = [\"read\"] }";
        self.make("sys/policies/acl/pg", json!({ "policy": rules }));
        let rules = "path \"transit/encrypt/*\" { capabilities = [\"update\"] }";
        self.make("sys/policies/acl/wraps", json!({ "policy": rules }));
        self.make("sys/auth/approle", json!({ "type": "approle" }));
        let role = json!({ "token_policies": "pg", "token_ttl": "20m" });
        self.make("auth/approle/role/pg", role);
        let role_id = ask(&self.address, ROOT, "auth/approle/role/pg/role-id", None).unwrap().1;
        let secret_id = self.make("auth/approle/role/pg/secret-id", json!({}));
        let token = |policies: &[&str], ttl: &str| {
            let made = self.make("auth/token/create", json!({ "policies": policies, "ttl": ttl }));
            made["auth"]["client_token"].as_str().unwrap().to_string()
        };
        let good = token(&["pg"], "1h");
        let powerless = token(&["default"], "1h");
        let wraps = token(&["wraps"], "1h");
        let half = token(&["pg"], "4s");
        std::thread::sleep(Duration::from_millis(2600));
        Prepared {
            address: self.address.clone(),
            good,
            powerless,
            wraps,
            half,
            role_id: role_id["data"]["role_id"].as_str().unwrap().into(),
            secret_id: secret_id["data"]["secret_id"].as_str().unwrap().into(),
        }
    }

    pub(crate) fn seal(&self) {
        self.make("sys/seal", json!({}));
    }
}

/// The same requests to both: status and shape must agree.
pub(crate) fn compare(real: &Prepared, double: &Prepared) {
    let token = json!({});
    let plain = json!({ "plaintext": "AAAA" });
    let foreign = json!({ "ciphertext": format!("vault:v1:{}", "A".repeat(168)) });
    let requests: [(&str, &str, Option<&Value>); 14] = [
        ("good", "auth/token/lookup-self", None),
        ("nonsense", "auth/token/lookup-self", None),
        ("good", "auth/token/renew-self", Some(&token)),
        ("good", "transit/encrypt/pg", Some(&plain)),
        ("powerless", "transit/encrypt/pg", Some(&plain)),
        ("nonsense", "transit/encrypt/pg", Some(&plain)),
        ("good", "transit/decrypt/pg", Some(&foreign)),
        ("good", "transit/decrypt/none", Some(&foreign)),
        ("good", "secret/data/db/pg", None),
        ("good", "secret/data/db/pg?version=1", None),
        ("good", "secret/data/db/none", None),
        ("powerless", "secret/data/db/pg", None),
        ("role", "auth/approle/login", None),
        ("stranger", "auth/approle/login", None),
    ];
    for (who, path, body) in requests {
        let of = |on: &Prepared| {
            let token = match who {
                "good" => &on.good,
                "powerless" => &on.powerless,
                _ => "hvs.nonsense",
            };
            let secret = if who == "role" { &on.secret_id } else { "stranger" };
            let login = json!({ "role_id": on.role_id, "secret_id": secret });
            let body = if path.ends_with("login") { Some(login) } else { body.cloned() };
            let (status, answer) = ask(&on.address, token, path, body).unwrap();
            (status, shape(&answer))
        };
        assert_eq!(of(real), of(double), "{who} {path}");
    }
}

/// Names and types; what is in a list or optional counts as null or its type does.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            // Only after a renewal.
            let fields = fields.iter().filter(|(name, _)| !name.starts_with("last_renewal"));
            fields.map(|(name, value)| (name.clone(), shape(value))).collect()
        }
        Value::Array(items) => items.first().map_or(json!([]), |item| json!([shape(item)])),
        Value::String(_) => json!("text"),
        Value::Number(_) => json!("number"),
        Value::Bool(_) => json!("bool"),
        Value::Null => Value::Null,
    }
}

fn ask(address: &str, token: &str, path: &str, body: Option<Value>) -> Option<(u16, Value)> {
    let agent: Agent =
        Agent::config_builder().http_status_as_error(false).proxy(None).build().into();
    let url = format!("{address}/v1/{path}");
    let sent = match body {
        Some(body) => {
            agent.post(&url).header("X-Vault-Token", token).send(body.to_string().as_bytes())
        }
        None => agent.get(&url).header("X-Vault-Token", token).call(),
    };
    let mut answer = sent.ok()?;
    let text = answer.body_mut().read_to_string().ok()?;
    Some((answer.status().as_u16(), serde_json::from_str(&text).unwrap_or(Value::Null)))
}

/// The program, which `ci/vault` builds if it is not there.
fn build() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../ci/vault");
    let made = Command::new(script).stderr(Stdio::inherit()).output().unwrap();
    assert!(made.status.success(), "ci/vault cannot build Vault: ci/packages full");
    PathBuf::from(String::from_utf8(made.stdout).unwrap().trim())
}

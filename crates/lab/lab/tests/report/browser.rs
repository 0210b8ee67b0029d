//! Chromium without a screen, driven by its DevTools protocol over two pipes.
//!
//! No crate: the protocol is JSON with a zero byte after each message, and
//! `--remote-debugging-pipe` needs neither a port nor a WebSocket. It says what the page requested,
//! logged and threw.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

/// A running browser with one page.
pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: Option<String>,
    sent: u64,
    /// Every event since the start: method and parameters.
    pub(crate) events: Vec<(String, Value)>,
    // Removed with everything in it once the browser has ended.
    _home: tempfile::TempDir,
}

impl Browser {
    pub(crate) fn start() -> Self {
        let home = tempfile::tempdir().unwrap();
        let log = File::create(home.path().join("log")).unwrap();
        // The shell moves the pipes to where Chromium looks for them: 3 and 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec chromium \"$@\" 3<&0 4>&1 </dev/null >&2", "sh"])
            .args(FLAGS)
            .arg(format!("--user-data-dir={}", home.path().join("profile").display()))
            .env("HOME", home.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let from = BufReader::new(from);
        let mut browser =
            Self { child, to, from, session: None, sent: 0, events: Vec::new(), _home: home };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Calls a method and waits for its answer.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.sent += 1;
        let id = self.sent;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(message.to_string().as_bytes()).unwrap();
        self.to.write_all(&[0]).unwrap();
        loop {
            let answer = self.receive();
            if answer["id"] == id {
                assert!(answer.get("error").is_none(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
        }
    }

    fn receive(&mut self) -> Value {
        let mut bytes = Vec::new();
        let length = self.from.read_until(0, &mut bytes).unwrap();
        assert!(length > 0, "Chromium ended; it is the Debian package chromium (ci/packages test)");
        bytes.pop();
        let message: Value = serde_json::from_slice(&bytes).unwrap();
        if let Some(method) = message["method"].as_str() {
            self.events.push((method.to_owned(), message["params"].clone()));
        }
        message
    }

    /// Opens a file and waits until it is loaded.
    pub(crate) fn open(&mut self, path: &Path) {
        let before = self.events.len();
        let url = format!("file://{}", path.canonicalize().unwrap().display());
        self.call("Page.navigate", json!({ "url": url }));
        while !self.events[before..].iter().any(|(method, _)| method == "Page.loadEventFired") {
            self.receive();
        }
    }

    /// The value of an expression, or of the promise that it is.
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let params =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.call("Runtime.evaluate", params);
        assert!(result.get("exceptionDetails").is_none(), "{expression}: {result}");
        result["result"]["value"].clone()
    }

    /// Size of the window in CSS pixels; `scale` device pixels make one.
    pub(crate) fn size(&mut self, width: u32, height: u32, scale: f64) {
        let mobile = width < 600;
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": scale, "mobile": mobile });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        self.settle();
    }

    /// `dark` or `light`.
    pub(crate) fn scheme(&mut self, value: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": value }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
        self.settle();
    }

    /// Waits until what follows from a change of size or scheme is drawn.
    fn settle(&mut self) {
        let drawn = "new Promise((done) => setTimeout(() => requestAnimationFrame(done), 250))\
                     .then(() => true)";
        self.evaluate(drawn);
    }

    /// PNG of what the expression's element covers, or of the window.
    pub(crate) fn screenshot(&mut self, element: Option<&str>) -> Vec<u8> {
        let mut params = json!({ "format": "png", "captureBeyondViewport": element.is_some() });
        if let Some(element) = element {
            params["clip"] = self.evaluate(&format!(
                "(() => {{ const b = ({element}).getBoundingClientRect(); return {{ x: b.x + \
                 scrollX, \
                 y: b.y + scrollY, width: b.width, height: b.height, scale: 1 }}; }})()"
            ));
        }
        let shot = self.call("Page.captureScreenshot", params);
        BASE64_STANDARD.decode(shot["data"].as_str().unwrap()).unwrap()
    }

    /// The page as PDF on A4.
    pub(crate) fn print(&mut self) -> Vec<u8> {
        let paper = json!({ "paperWidth": 8.27, "paperHeight": 11.69, "printBackground": true, "preferCSSPageSize": true });
        let pdf = self.call("Page.printToPDF", paper);
        BASE64_STANDARD.decode(pdf["data"].as_str().unwrap()).unwrap()
    }

    /// Lets downloads go into `dir`.
    pub(crate) fn downloads(&mut self, dir: &Path) {
        let session = self.session.take();
        let allow = json!({ "behavior": "allow", "downloadPath": dir, "eventsEnabled": true });
        self.call("Browser.setDownloadBehavior", allow);
        self.session = session;
    }

    /// Waits for an event, and returns its parameters.
    pub(crate) fn wait(&mut self, method: &str, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            let found = self.events.iter().find(|(name, params)| name == method && fits(params));
            if let Some((_, params)) = found {
                return params.clone();
            }
            self.receive();
        }
    }

    /// Exceptions, errors on the console, violations of the content security policy.
    pub(crate) fn complaints(&self) -> Vec<&Value> {
        let bad = |(method, params): &&(String, Value)| match method.as_str() {
            "Runtime.exceptionThrown" => true,
            "Runtime.consoleAPICalled" => params["type"] != "log",
            "Log.entryAdded" => params["entry"]["level"] == "error",
            _ => false,
        };
        self.events.iter().filter(bad).map(|(_, params)| params).collect()
    }

    /// Addresses of all requests.
    pub(crate) fn requests(&self) -> Vec<&str> {
        let sent = self.events.iter().filter(|(name, _)| name == "Network.requestWillBeSent");
        sent.filter_map(|(_, params)| params["request"]["url"].as_str()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const FLAGS: [&str; 14] = [
    "--headless=new",
    "--remote-debugging-pipe",
    // Containers and root have no sandbox of Chromium's; the page is our own.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--disable-crash-reporter",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--host-resolver-rules=MAP * ~NOTFOUND",
];

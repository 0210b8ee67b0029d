//! Files that ask what FORMAT.md must answer, made with valid MACs: the library below `exec`,
//! `tidelock cat`, `tidelock verify` and the reader in Python give the same verdict and the same
//! bytes.
//!
//! `reader/craft_files.py` makes them and says what must be found.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tidelock_servers::Bounded as _;
use tidelock_testkit::twins::{Product, Workspace};

/// Debian's, which has `python3-cryptography`; another one on the path may not.
const PYTHON: &str = "/usr/bin/python3";

const PROFILE: &str = "\
name = \"crafted\"
data_offset = 4096
programs = []
recovery = []

[[rule]]
glob = \"paged/**\"
class = \"paged\"

[[rule]]
glob = \"**\"
class = \"bytes\"
";

fn reader(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("reader").join(name)
}

/// A protected directory with all crafted files in it.
struct Crafted {
    product: Product,
    place: Workspace,
    dir: PathBuf,
    key: PathBuf,
    /// Name, verdict, and whether verify must be content.
    wanted: Vec<(PathBuf, String, bool)>,
}

impl Crafted {
    fn new() -> Self {
        let product = Product::find().expect("the command and the library are built");
        let place = Workspace::new("crafted").expect("a scratch directory can be made");
        let profile = place.programs().join("profile.toml");
        fs::write(&profile, PROFILE).expect("the scratch directory can be written");
        let dir = place
            .protect(&product, profile.to_str().expect("a scratch directory has a plain name"))
            .expect("the directory can be made");
        let key = dir.with_file_name("key");
        let mut craft = Command::new(PYTHON);
        craft.arg(reader("craft_files.py")).arg(&dir).arg(&key).arg(place.plain());
        let made = craft.finish().expect("python runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let line = |line: &[u8]| {
            let mut fields = line.splitn(3, |&byte| byte == b'\t');
            let mut text = || fields.next().expect("three fields").to_vec();
            let (verdict, verify, name) = (text(), text(), text());
            let verdict = String::from_utf8(verdict).expect("a word");
            (PathBuf::from(OsStr::from_bytes(&name)), verdict, verify == b"good")
        };
        let lines = made.stdout.split(|&byte| byte == b'\n');
        let wanted: Vec<_> = lines.filter(|text| !text.is_empty()).map(line).collect();
        assert!(wanted.len() > 100, "only {} files were made", wanted.len());
        Self { product, place, dir, key, wanted }
    }

    /// Has `read` read all files; each verdict, `cut` as `good` where only tools tell them apart.
    fn judge(&self, by: &str, mut read: Command, more: &[&Path], tells_cuts: bool) -> Vec<String> {
        let list = self.place.programs().join("list");
        let names: Vec<u8> = self
            .wanted
            .iter()
            .flat_map(|(name, ..)| [name.as_os_str().as_bytes(), b"\n"].concat())
            .collect();
        fs::write(&list, names).expect("the scratch directory can be written");
        let target = self.place.programs().join(by);
        read.arg(reader("read_files.py")).arg(&list).arg(&self.dir).arg(&target).args(more);
        let done = read.finish().expect("python runs");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let found: BTreeMap<PathBuf, String> = done
            .stdout
            .split(|&byte| byte == b'\n')
            .filter_map(|line| {
                let at = line.iter().position(|&byte| byte == b'\t')?;
                let name = PathBuf::from(OsStr::from_bytes(&line[at + 1..]));
                Some((name, String::from_utf8_lossy(&line[..at]).into_owned()))
            })
            .collect();
        let mut wrong = Vec::new();
        for (name, verdict, _) in &self.wanted {
            let verdict = if verdict == "cut" && !tells_cuts { "good" } else { verdict };
            let bytes = fs::read(target.join(name)).ok();
            let here = found.get(name).map_or("nothing", String::as_str);
            wrong.extend(self.compare(by, name, verdict, here, bytes.as_deref()));
        }
        wrong
    }

    fn compare(
        &self,
        by: &str,
        name: &Path,
        verdict: &str,
        found: &str,
        bytes: Option<&[u8]>,
    ) -> Option<String> {
        let same = verdict == "refused" || {
            let wanted = fs::read(self.place.plain().join(name)).expect("it was made");
            bytes == Some(&wanted[..])
        };
        let what = if verdict == found { "other bytes" } else { found };
        (verdict != found || !same)
            .then(|| format!("{}: {by} finds {what}, should be {verdict}\n", name.display()))
    }

    fn cat(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (name, verdict, _) in &self.wanted {
            let done =
                self.place.command(&self.product).arg("cat").arg(self.dir.join(name)).finish();
            let done = done.expect("the command runs");
            let whole = fs::read(self.place.plain().join(name)).expect("it was made");
            let found = match done.status.code() {
                Some(0) => "good",
                // What is left is given; a refusal gives nothing.
                Some(5) if verdict == "cut" && done.stdout == whole => "cut",
                Some(3..=5) if done.stdout.is_empty() => "refused",
                _ => "a failure",
            };
            if found != "good" && done.stderr.is_empty() {
                wrong.push(format!("{}: cat says nothing\n", name.display()));
            }
            wrong.extend(self.compare("cat", name, verdict, found, Some(&done.stdout)));
        }
        wrong
    }

    fn verify(&self) -> Vec<String> {
        let mut verify = self.place.command(&self.product);
        let done = verify.args(["verify", "--json", "-D"]).arg(&self.dir).finish();
        let done = done.expect("the command runs");
        let report: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
        let problems = report["problems"].as_array().expect("a list");
        let named: Vec<&str> = problems.iter().filter_map(|one| one["file"].as_str()).collect();
        let mut wrong = Vec::new();
        for (name, _, good) in &self.wanted {
            let path = self.dir.join(name).display().to_string();
            if named.contains(&path.as_str()) == *good {
                let says = if *good { "a problem" } else { "nothing" };
                wrong.push(format!("{}: verify says {says}\n", name.display()));
            }
        }
        wrong
    }
}

#[test]
fn everybody_answers_the_questions_of_the_format_alike() {
    let crafted = Crafted::new();
    let mut wrong = crafted.judge(
        "reader",
        Command::new(PYTHON),
        &[&crafted.dir.join(".tidelock/keyring"), &crafted.key],
        true,
    );
    let mut exec = crafted.place.command(&crafted.product);
    exec.args(["exec", "-D"]).arg(&crafted.dir).arg("--").arg(PYTHON);
    wrong.extend(crafted.judge("exec", exec, &[], false));
    wrong.extend(crafted.cat());
    wrong.extend(crafted.verify());
    assert!(wrong.is_empty(), "{} answers differ:\n{}", wrong.len(), wrong.concat());
}

//! Takes the script of Apache ECharts out of the crate `charming`, for the report to embed.
//!
//! The crate is pinned by `Cargo.lock` with its checksum, so this script is too: nothing is
//! committed and nothing but crates is downloaded. A vendored build has it as well. Only the file
//! is wanted; no code of the crate is linked into the lab.
//!
//! Notes the commit that the lab is built from, for the manifest of a run: again whenever a source
//! of the workspace changes, because what is measured is built from all of them.

use std::panic::Location;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use charming::element::ColorStop;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let script = asset();
    println!("cargo::rerun-if-changed={}", script.display());
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("echarts.js");
    let text = fs::read_to_string(&script)
        .unwrap_or_else(|e| panic!("the script of ECharts, {}: {e}", script.display()));
    // It goes into a script element, and its licence asks that the notice stays.
    assert!(!text.contains("</script"), "{} would end its element", script.display());
    assert!(text.contains("Apache Software Foundation"), "{} has no notice", script.display());
    fs::write(&out, text).unwrap_or_else(|e| panic!("{}: {e}", out.display()));
    println!("cargo::rustc-env=TIDELOCK_COMMIT={}", commit().unwrap_or_default());
}

/// The commit, `-changed` where files differ from it. `None` of a source archive.
fn commit() -> Option<String> {
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    // What does not exist would make cargo build again each time.
    let sources = SOURCES.map(|name| format!("../../../{name}"));
    for path in sources.iter().chain([&log]).filter(|path| Path::new(path).exists()) {
        println!("cargo::rerun-if-changed={path}");
    }
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changed.is_empty() { commit } else { format!("{commit}-changed") })
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok().filter(|o| o.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

/// Where the crate keeps the script: below its `src`, of which a file called [`Caller`].
fn asset() -> PathBuf {
    let mut source = String::new();
    let _ = ColorStop::new(0, Caller(&mut source));
    let src = Path::new(&source).ancestors().find(|dir| dir.ends_with("src"));
    src.unwrap_or_else(|| panic!("{source} is no source of the crate charming")).join(SCRIPT)
}

/// Notes which file turned it into a string. Cargo tells a build script nothing about the sources
/// of a dependency, but the compiler knows them.
struct Caller<'s>(&'s mut String);

#[expect(clippy::from_over_into, reason = "`From` would be called by core, not by the crate")]
impl Into<String> for Caller<'_> {
    #[track_caller]
    fn into(self) -> String {
        Location::caller().file().clone_into(self.0);
        String::new()
    }
}

/// What the programs and the library are built from, below the workspace's root.
const SOURCES: [&str; 3] = ["crates", "Cargo.toml", "Cargo.lock"];
const SCRIPT: &str = "asset/echarts-5.5.1.min.js";

//! Takes the script of Apache ECharts out of the crate `charming`, for the report to embed.
//!
//! The crate is pinned by `Cargo.lock` with its checksum, so this script is too: nothing is committed
//! and nothing but crates is downloaded. Only the file is wanted; no code of the crate is linked.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=Cargo.toml");
    let script = package("charming").join(SCRIPT);
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("echarts.js");
    let text = fs::read_to_string(&script)
        .unwrap_or_else(|e| panic!("the script of ECharts, {}: {e}", script.display()));
    // It goes into a script element, and its licence asks that the notice stays.
    assert!(!text.contains("</script"), "{} would end its element", script.display());
    assert!(text.contains("Apache Software Foundation"), "{} has no notice", script.display());
    fs::write(&out, text).unwrap_or_else(|e| panic!("{}: {e}", out.display()));
}

/// Directory of the sources of a package that this crate depends on.
fn package(name: &str) -> PathBuf {
    let lean = ["--offline"];
    // Without a network everything is there after `cargo fetch`; with one, what a build of less than
    // the workspace left out is fetched now.
    let metadata = metadata(&lean).or_else(|_| metadata(&[])).unwrap_or_else(|why| panic!("{why}"));
    let packages = metadata["packages"].as_array().expect("cargo metadata lists packages");
    let found = packages.iter().find(|package| package["name"] == name);
    let manifest = found.and_then(|package| package["manifest_path"].as_str());
    let manifest = manifest.unwrap_or_else(|| panic!("cargo metadata does not list {name}"));
    Path::new(manifest).parent().expect("a manifest lies in a directory").to_path_buf()
}

fn metadata(more: &[&str]) -> Result<serde_json::Value, String> {
    let cargo = env::var_os("CARGO").expect("cargo sets CARGO");
    let host = env::var("HOST").expect("cargo sets HOST");
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--locked", "--filter-platform", &host])
        .args(more)
        .output()
        .map_err(|e| format!("cargo metadata does not start: {e}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata: {e}"))
}

const SCRIPT: &str = "src/asset/echarts-5.5.1.min.js";

//! docs/hooks.md is the ledger's page, and the ledger knows every file call of the installed
//! PostgreSQL.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};

use tidelock_testkit::ledger;

#[test]
fn the_page_is_the_one_of_the_ledger() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/hooks.md");
    let page = fs::read_to_string(&path).unwrap();
    let hint = "cargo run -p tidelock-testkit --bin hooks-doc > docs/hooks.md";
    assert!(page == ledger::page(), "docs/hooks.md is old: {hint}");
}

/// The library lies beside the test, or where `TIDELOCK_BUILT` says.
#[test]
fn the_library_exports_the_ledger_and_nothing_else() {
    let built = std::env::var_os("TIDELOCK_BUILT").map(PathBuf::from).unwrap_or_else(|| {
        let me = std::env::current_exe().unwrap();
        me.ancestors().nth(2).unwrap().to_owned()
    });
    let library = built.join("libtidelock_preload.so");
    assert!(library.is_file(), "{} is missing: make build", library.display());
    assert_eq!(ledger::exports(&library).unwrap(), ledger::hooked());
}

/// Server, tools, modules, libpq: whatever versions are installed.
#[test]
fn every_file_call_of_the_installed_postgresql_is_in_the_ledger() {
    let mut programs = Vec::new();
    for version in entries(Path::new("/usr/lib/postgresql")) {
        programs.extend(entries(&version.join("bin")));
        let modules = entries(&version.join("lib"));
        programs.extend(modules.into_iter().filter(|path| path.extension() == Some("so".as_ref())));
    }
    let libraries = entries(Path::new("/usr/lib/x86_64-linux-gnu"));
    let of_libpq = |path: &PathBuf| path.to_string_lossy().contains("libpq.so.");
    programs.extend(libraries.into_iter().filter(of_libpq));
    let mut missing = Vec::new();
    for program in programs.iter().filter(|path| is_elf(path)) {
        let unlisted = ledger::unlisted_imports(program).unwrap();
        missing.extend(unlisted.into_iter().map(|name| format!("{}: {name}", program.display())));
    }
    assert!(missing.is_empty(), "not in crates/ffi/src/ledger/table.rs:\n{}", missing.join("\n"));
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let Ok(listing) = fs::read_dir(directory) else { return Vec::new() };
    listing.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

fn is_elf(path: &Path) -> bool {
    use std::io::Read as _;
    let mut magic = [0; 4];
    let read = fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && magic == *b"\x7fELF"
}

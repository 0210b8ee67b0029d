//! docs/hooks.md is the ledger's page, and the ledger knows every function of each glibc, every
//! system call of the kernel's headers, and every file call of the installed PostgreSQL.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};

use tidelock_ffi::ledger::{NUMBERS, is_no_file_call, unlisted};
use tidelock_testkit::ledger::{self, opinions};

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

/// Also those with old versions, and those that only glibc's other libraries are meant to call.
#[test]
fn every_function_of_this_glibc_is_in_the_ledger() {
    let libc = libc();
    let mut missing = Vec::new();
    let mut seen = 0;
    for name in LIBRARIES.split_ascii_whitespace() {
        let library = libc.with_file_name(name);
        if !library.exists() {
            continue;
        }
        let functions = ledger::functions(&library).unwrap();
        seen += functions.len();
        let unlisted = unlisted(functions.iter().map(String::as_str));
        missing.extend(unlisted.map(|function| format!("{name}: {function}")));
    }
    assert!(seen > 3000, "only {seen} functions of {}", libc.display());
    assert!(missing.is_empty(), "not in crates/data/ffi/src/ledger:\n{}", missing.join("\n"));
}

const LIBRARIES: &str = "libc.so.6 libm.so.6 libmvec.so.1 libpthread.so.0 librt.so.1 libdl.so.2 \
    libutil.so.1 libanl.so.1 libresolv.so.2 libBrokenLocale.so.1 ld-linux-x86-64.so.2";

#[test]
fn every_function_of_other_glibcs_is_in_the_ledger() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("glibc/functions");
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let names: Vec<_> = lines.filter_map(|line| line.split(' ').nth(3)).collect();
    assert!(names.len() > 300, "{}", names.len());
    let missing: Vec<_> = unlisted(names.into_iter()).collect();
    assert!(missing.is_empty(), "not in crates/data/ffi/src/ledger: {missing:?}");
}

#[test]
fn nothing_that_the_headers_declare_with_a_file_is_listed_as_no_file_call() {
    let declared = opinions::by_headers().unwrap();
    assert!(declared.len() > 300, "only {declared:?}");
    let wrong = declared.iter().filter(|name| is_no_file_call(name));
    let wrong: Vec<_> = wrong.filter(|name| !NAMES_ONLY.contains(&name.as_str())).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// They take a path as text and open nothing.
const NAMES_ONLY: &[&str] = &["__xpg_basename", "basename", "dirname"];

#[test]
fn nothing_of_libc_that_makes_a_system_call_about_files_is_listed_as_no_file_call() {
    let found = opinions::by_code(&libc()).unwrap();
    assert!(found.len() > 50, "only {found:?}");
    assert!(found.contains_key("__open64") && found.contains_key("__close"), "{found:?}");
    let wrong: Vec<_> = found.iter().filter(|(name, _)| is_no_file_call(name)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn every_system_call_of_the_kernels_headers_has_its_line() {
    let known = opinions::numbers().unwrap();
    assert!(known.len() > 350, "only {known:?}");
    let listed = |name: &str, number| {
        NUMBERS.iter().any(|one| one.number == number && one.entry.name == name)
    };
    let missing: Vec<_> = known.iter().filter(|(name, number)| !listed(name, **number)).collect();
    assert!(missing.is_empty(), "not in crates/data/ffi/src/ledger/numbers.rs: {missing:?}");
}

/// The libc that this test runs on.
fn libc() -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").expect("a process has maps");
    let mut paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    PathBuf::from(paths.find(|path| path.ends_with("/libc.so.6")).expect("libc is mapped"))
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
    programs.retain(|path| is_elf(path));
    assert!(programs.len() > 50, "found {} programs: ci/packages test", programs.len());
    let mut missing = Vec::new();
    for program in &programs {
        let unlisted = ledger::unlisted_imports(program).unwrap();
        missing.extend(unlisted.into_iter().map(|name| format!("{}: {name}", program.display())));
    }
    assert!(missing.is_empty(), "not in crates/data/ffi/src/ledger:\n{}", missing.join("\n"));
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

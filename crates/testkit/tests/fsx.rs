//! fsx, the file system exerciser, under the library: every byte that it reads back must be right.
//!
//! Its maps are shared ones, which sealed files refuse, so they are left out; so is copying inside
//! the kernel, which is refused so that callers fall back, and fsx does not.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tidelock_testkit::twins::{Product, Workspace};

/// One run: its name, the profile and the file, which decide the class, and the sizes of operations
/// and file.
struct Configuration {
    name: &'static str,
    profile: &'static str,
    file: &'static str,
    sizes: &'static str,
    /// On a grid fsx asks for ranges of length 0 at the end, which Linux refuses.
    allocates: bool,
}

/// Files of class bytes and paged files, on and off their grids.
const CONFIGURATIONS: [Configuration; 4] = [
    Configuration {
        name: "small and odd",
        profile: "generic",
        file: "exercised",
        sizes: "flen = 20000\n[opsize]\nmin = 1\nmax = 600\n",
        allocates: true,
    },
    Configuration {
        name: "any size, paged",
        profile: "postgres",
        file: "base/5/16384",
        sizes: "flen = 262144\n[opsize]\nmin = 1\nmax = 65536\n",
        allocates: true,
    },
    Configuration {
        name: "blocks",
        profile: "generic",
        file: "exercised",
        sizes: "flen = 131072\n[opsize]\nalign = 16\nmin = 16\nmax = 8192\n",
        allocates: false,
    },
    Configuration {
        name: "pages, paged",
        profile: "postgres",
        file: "base/5/16384",
        sizes: "flen = 1048576\n[opsize]\nalign = 8192\nmin = 8192\nmax = 65536\n",
        allocates: false,
    },
];

const WEIGHTS: &str = "[weights]\nread = 10\nwrite = 10\ntruncate = 3\nclose_open = 1\nfsync = \
                       0.2\n\
                       fdatasync = 0.2\nposix_fadvise = 1\npunch_hole = 1\ninvalidate = 0\n\
                       mapread = 0\nmapwrite = 0\nsendfile = 0\ncopy_file_range = 0\n";

#[test]
#[ignore = "long; builds fsx first (make test-full)"]
fn fsx_finds_no_wrong_byte() {
    let fsx = fsx();
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    for (seed, Configuration { name, profile, file, sizes, allocates }) in (1..).zip(CONFIGURATIONS)
    {
        let place = Workspace::new("fsx").unwrap();
        let dir = place.protect(&product, profile).unwrap_or_else(|error| panic!("{error}"));
        let config = place.programs().join("fsx.toml");
        let allocate = format!("posix_fallocate = {}\n", u8::from(allocates));
        fs::write(&config, format!("{sizes}{WEIGHTS}{allocate}")).unwrap();
        let (seed, file) = (format!("{seed}"), dir.join(file));
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let mut args: Vec<&OsStr> = ["-N", OPERATIONS, "-S", &seed, "-f"].map(OsStr::new).into();
        let artifacts = place.programs();
        args.extend([
            config.as_os_str(),
            OsStr::new("-P"),
            artifacts.as_os_str(),
            file.as_os_str(),
        ]);
        let ended = place.run_sealed(&product, &fsx, &args, &dir).unwrap();
        assert!(ended.good(), "{name}, seed {seed}: {ended}{}", ended.output);
        place.verify(&product, &dir).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// About a minute for all configurations.
const OPERATIONS: &str = "50000";

/// The program, installed once below the target directory.
fn fsx() -> PathBuf {
    let me = std::env::current_exe().unwrap();
    let target = me.ancestors().find(|dir| dir.ends_with("deps")).unwrap();
    let root = target.parent().unwrap().parent().unwrap().join("tools");
    let program = root.join("bin/fsx");
    if !program.exists() {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["install", "--locked", "--version", "=0.3.2", "fsx", "--root"]).arg(&root);
        assert!(cargo.status().unwrap().success(), "fsx could not be installed");
    }
    program
}

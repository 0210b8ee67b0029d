//! A cluster of Debian's postgresql-common, protected, made plain again and migrated by root, in a
//! mount namespace of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tidelock_testkit::pg::{Error, Result, Workspace, ensure, skip};

#[test]
#[ignore = "long: make test-full"]
fn a_debian_cluster_is_protected_and_migrated_and_comes_back() -> Result<()> {
    if skip::unless_root("a Debian cluster") {
        return Ok(());
    }
    if !Path::new("/usr/bin/pg_createcluster").exists() {
        skip::because("postgresql-common is not installed");
        return Ok(());
    }
    let place = Workspace::new()?;
    let own = |program: &str| place.tool(program).as_ourselves();
    if !own("unshare").args(["-m", "--propagation", "private", "true"]).attempt()?.status.success()
    {
        skip::because("no mount namespace can be made here");
        return Ok(());
    }
    // Reachable for the account postgres, whatever stands above the build.
    let bin = place.join("bin");
    fs::create_dir(&bin).map_err(Error::io("making a directory"))?;
    let programs = place.programs()?;
    for from in [&programs.command, &programs.library] {
        let to = bin.join(from.file_name().unwrap_or_default());
        fs::copy(from, &to).map_err(Error::io("copying"))?;
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).map_err(Error::io("chmod"))?;
    }
    let home = place.join("debian");
    fs::create_dir(&home).map_err(Error::io("making a directory"))?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/debian/cluster.sh");
    let output = own("unshare")
        .args(["-m", "--propagation", "private", "sh"])
        .arg(script)
        .args([&home, &bin])
        .limit(240)
        .attempt()?;
    ensure(output.status.success() && output.stdout.contains("step: done"), || output.text())
}

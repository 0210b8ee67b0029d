//! Clusters of Debian's postgresql-common in a mount namespace of their own, which root protects,
//! makes plain again, migrates and upgrades.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tidelock_testkit::pg::{Error, Result, Workspace, ensure, majors, skip};
use tidelock_testkit::tools::{Page, Sees};

/// Whether such a room can be made here; says why not.
fn can_run(place: &Workspace) -> Result<bool> {
    if skip::unless_root("a Debian cluster") {
        return Ok(false);
    }
    if !Path::new("/usr/bin/pg_createcluster").exists() {
        skip::because("postgresql-common is not installed");
        return Ok(false);
    }
    let try_one = place.tool("unshare").as_ourselves();
    if !try_one.args(["-m", "--propagation", "private", "true"]).attempt()?.status.success() {
        skip::because("no mount namespace can be made here");
        return Ok(false);
    }
    Ok(true)
}

/// Runs a script of `tests/debian` to its last step.
fn run(place: &Workspace, script: &str, more: &[PathBuf]) -> Result<()> {
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
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/debian").join(script);
    let output = place
        .tool("unshare")
        .as_ourselves()
        .args(["-m", "--propagation", "private", "sh"])
        .arg(script)
        .args([&home, &bin])
        .args(more)
        .limit(600)
        .attempt()?;
    ensure(output.status.success() && output.stdout.contains("step: done"), || output.text())
}

#[test]
#[ignore = "long: make test-full"]
fn a_debian_cluster_is_protected_and_migrated_and_comes_back() -> Result<()> {
    let place = Workspace::new()?;
    if !can_run(&place)? {
        return Ok(());
    }
    run(&place, "cluster.sh", &[])
}

/// The script runs the commands of the rows.
#[test]
#[ignore = "long: make test-full"]
fn a_debian_cluster_goes_to_another_major() -> Result<()> {
    let place = Workspace::new()?;
    if !can_run(&place)? {
        return Ok(());
    }
    let Some(built) = majors::built(17) else { return Ok(()) };
    let built = built.parent().map(Path::to_path_buf).unwrap_or_default();
    run(&place, "upgrade.sh", &[built, "17".into()])?;
    let page = Page::new(&place, "a_debian_cluster_goes_to_another_major");
    let refused = "refused by the pg_upgradecluster that `tidelock service install` puts in front, \
                   which names the way that works; Debian's own fails before anything is stopped";
    page.row(Sees::SealedBytes, "pg_upgradecluster -v 17 15 NAME", refused)?;
    let works = "works: the new cluster has keys of its own; pg_createcluster then takes it over";
    let template = "pg_upgrade -b BIN -B NEWBIN -d OLD -D NEW \
                    -o '-c config_file=/etc/postgresql/15/NAME/postgresql.conf'";
    page.row(Sees::Plain, template, works)
}

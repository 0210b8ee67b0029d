//! Directories of a few files and links, made for each test.

use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

use tidelock_servers::skip;

use super::*;

/// The names of the files, and what could not be looked at, both relative to `dir`.
fn look(dir: &Path) -> (Vec<String>, Vec<String>) {
    let below = |path: &Path| path.strip_prefix(dir).unwrap().display().to_string();
    let mut failed = Vec::new();
    let found = files(dir, &mut |path, why| {
        assert_eq!(why.kind(), io::ErrorKind::NotFound, "{why}");
        failed.push(below(path));
    });
    for file in &found {
        assert!(file.path.is_file(), "{}", file.path.display());
    }
    (found.iter().map(|file| file.name.display().to_string()).collect(), failed)
}

fn file(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "text").unwrap();
}

#[test]
fn a_link_that_leads_nowhere_is_named_and_no_file_that_vanished() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("data");
    file(&dir.join("a"));
    let up = "../gone";
    for (target, link) in [("/nowhere/at/all", "pg_wal"), ("someone@host.1:2", ".#a"), (up, "b")] {
        symlink(target, dir.join(link)).unwrap();
    }
    let (found, failed) = look(&dir);
    assert_eq!(found, ["a"]);
    assert_eq!(failed, ["b", "pg_wal"]);
    assert_eq!(look(&home.path().join("nothing")), (Vec::new(), Vec::new()));
}

#[test]
fn files_behind_a_link_inside_keep_their_own_names() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("data");
    file(&dir.join("pg_wal/1"));
    file(&dir.join(".tidelock/keyring"));
    // Some are listed before the folder, in whatever order the file system has.
    for number in 0..100 {
        symlink("pg_wal", dir.join(format!("{number}"))).unwrap();
        symlink(dir.join("pg_wal/1"), dir.join(format!("z{number}"))).unwrap();
    }
    symlink(".tidelock", dir.join("control")).unwrap();
    symlink(home.path().join("data"), dir.join("again")).unwrap();
    assert_eq!(look(&dir), (vec!["pg_wal/1".to_owned()], Vec::new()));
}

#[test]
fn files_behind_a_link_that_leads_out_have_its_name() {
    let home = tempfile::tempdir().unwrap();
    let (dir, far) = (home.path().join("data"), home.path().join("far"));
    file(&dir.join("a"));
    file(&far.join("wal/1"));
    file(&far.join("base/2"));
    file(&far.join("one"));
    symlink("../far/wal", dir.join("pg_wal")).unwrap();
    symlink(&far, dir.join("zz")).unwrap();
    symlink(far.join("one"), dir.join("one")).unwrap();
    // Links there: to what is visited already, and to the directory itself.
    symlink("base", far.join("again")).unwrap();
    symlink(&dir, far.join("back")).unwrap();
    let names = ["a", "one", "pg_wal/1", "zz/base/2", "zz/one"].map(str::to_owned);
    assert_eq!(look(&dir), (names.to_vec(), Vec::new()));
}

#[test]
fn what_a_link_leads_to_in_another_protected_directory_stays_that_ones() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().canonicalize().unwrap();
    let (dir, other) = (root.join("data"), root.join("other"));
    file(&dir.join(".tidelock/keyring"));
    file(&dir.join("a"));
    file(&other.join(".tidelock/keyring"));
    file(&other.join("sub/b"));
    for (target, link) in [("", "whole"), ("sub", "part"), ("sub/b", "one")] {
        symlink(other.join(target), dir.join(link)).unwrap();
    }
    let none: &mut dyn FnMut(&Path, io::Error) =
        &mut |path, why| panic!("{}: {why}", path.display());
    let listing = own(&dir, none);
    let names: Vec<_> = listing.files.iter().map(|found| found.name.clone()).collect();
    assert_eq!(names, [Path::new("a")]);
    let mut links: Vec<_> = listing.anothers.into_iter().collect();
    links.sort();
    let expected = ["one", "part", "whole"].map(|link| (dir.join(link), other.clone()));
    assert_eq!(links, expected);
    // A conversion must see them, to refuse.
    let all = list(&dir, none);
    assert!(all.anothers.is_empty());
    assert!(all.files.iter().any(|found| found.name == Path::new("whole/.tidelock/keyring")));
}

#[test]
fn another_users_link_leads_root_to_that_users_files_alone() {
    if skip::unless_root("links of another user") {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let root = home.path().canonicalize().unwrap();
    let (dir, far) = (root.join("data"), root.join("far"));
    for name in ["theirs/a", "roots/b", "roots/c"] {
        file(&far.join(name));
    }
    fs::create_dir(&dir).unwrap();
    let owner = Some(54321);
    chown(far.join("theirs"), owner, None).unwrap();
    chown(far.join("theirs/a"), owner, None).unwrap();
    for (target, link, owner) in [
        ("theirs", "space", owner),
        ("roots", "stolen", owner),
        ("roots/b", "one", owner),
        ("roots/c", "of-root", None),
    ] {
        symlink(far.join(target), dir.join(link)).unwrap();
        lchown(dir.join(link), owner, None).unwrap();
    }
    let none: &mut dyn FnMut(&Path, io::Error) =
        &mut |path, why| panic!("{}: {why}", path.display());
    let names = |files: &[Found]| {
        files.iter().map(|found| found.name.display().to_string()).collect::<Vec<_>>()
    };
    let listing = own(&dir, none);
    assert_eq!(names(&listing.files), ["of-root", "space/a"]);
    let foreign = [("one", "roots/b"), ("stolen", "roots")];
    let foreign = foreign.map(|(link, target)| (dir.join(link), far.join(target)));
    assert_eq!(listing.foreign, foreign);
    // A conversion must see them, to refuse.
    assert!(names(&list(&dir, none).files).contains(&"stolen/c".to_owned()));
}

#[test]
fn only_a_folder_that_is_seen_to_be_empty_holds_nothing() {
    let home = tempfile::tempdir().unwrap();
    assert!(!may_hold(home.path()));
    assert!(!may_hold(&home.path().join("none")));
    file(&home.path().join("#17"));
    assert!(may_hold(home.path()));
    // What cannot be listed may hold anything.
    assert!(may_hold(&home.path().join("#17")));
}

#[test]
fn a_tablespace_or_pg_wal_whose_disk_is_not_mounted_is_named() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("data");
    file(&dir.join("PG_VERSION"));
    fs::create_dir_all(dir.join("pg_tblspc")).unwrap();
    let links = [("one", "pg_tblspc/16400"), ("two", "pg_tblspc/16401"), ("w", "pg_wal")];
    for (name, link) in links {
        fs::create_dir(home.path().join(name)).unwrap();
        symlink(home.path().join(name), dir.join(link)).unwrap();
    }
    fs::create_dir(home.path().join("two/PG_15_202209061")).unwrap();
    let (found, failed) = look(&dir);
    assert_eq!(found, ["PG_VERSION"]);
    assert_eq!(failed, ["pg_tblspc/16400", "pg_wal"]);
    fs::create_dir(home.path().join("one/PG_15_202209061")).unwrap();
    fs::create_dir(home.path().join("w/archive_status")).unwrap();
    assert_eq!(look(&dir), (vec!["PG_VERSION".to_owned()], Vec::new()));
    // Of another engine it is not known what the folders of its own user hold.
    fs::remove_file(dir.join("PG_VERSION")).unwrap();
    fs::remove_dir(home.path().join("one/PG_15_202209061")).unwrap();
    assert_eq!(look(&dir), (Vec::new(), Vec::new()));
}

#[test]
fn a_tablespace_on_a_disk_that_is_mounted_inside_is_named_when_it_is_gone() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("data");
    file(&dir.join("PG_VERSION"));
    for folder in ["pg_tblspc", "disk", "wal"] {
        fs::create_dir(dir.join(folder)).unwrap();
    }
    symlink("../disk/space", dir.join("pg_tblspc/16400")).unwrap();
    symlink(dir.join("wal/pg"), dir.join("pg_wal")).unwrap();
    // A broken link of no tablespace says nothing.
    symlink("none", dir.join(".#lock")).unwrap();
    assert_eq!(look(&dir).1, ["pg_tblspc/16400", "pg_wal"]);
    fs::create_dir_all(dir.join("disk/space/PG_15_202209061")).unwrap();
    fs::create_dir_all(dir.join("wal/pg/archive_status")).unwrap();
    assert_eq!(look(&dir).1, Vec::<String>::new());
}

#[test]
fn a_pg_wal_that_is_a_mount_itself_is_named_when_it_is_empty() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("data");
    file(&dir.join("PG_VERSION"));
    fs::create_dir(dir.join("pg_wal")).unwrap();
    assert_eq!(look(&dir).1, ["pg_wal"]);
    // A base backup without WAL, as it was restored.
    file(&dir.join("backup_label"));
    assert_eq!(look(&dir).1, Vec::<String>::new());
}

#[test]
fn an_empty_folder_that_the_server_cannot_write_is_a_disk_that_is_not_mounted() {
    if skip::unless_root("a folder of another user") {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let (dir, far) = (home.path().join("data"), home.path().join("far"));
    file(&dir.join("a"));
    for place in [&dir.join("b"), &dir.join("own"), &dir.join("tmp"), &far] {
        fs::create_dir(place).unwrap();
    }
    symlink(&far, dir.join("d")).unwrap();
    for own in [&dir, &dir.join("own")] {
        chown(own, Some(12345), Some(12345)).unwrap();
    }
    fs::set_permissions(dir.join("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
    assert_eq!(look(&dir).1, ["b", "d"]);
    file(&far.join("1"));
    file(&dir.join("b/2"));
    assert_eq!(look(&dir).1, Vec::<String>::new());
}

#[test]
fn folders_of_other_versions_are_left_out_also_inside_of_the_directory() {
    let home = tempfile::tempdir().unwrap();
    let (dir, far) = (home.path().join("data"), home.path().join("far"));
    file(&dir.join("PG_VERSION"));
    fs::write(dir.join("PG_VERSION"), "17\n").unwrap();
    fs::create_dir(dir.join("pg_tblspc")).unwrap();
    for (number, space) in [("1", &far), ("2", &dir.join("near"))] {
        file(&space.join("PG_15_202209061/5/1"));
        file(&space.join("PG_17_202406281/5/2"));
        symlink(space, dir.join("pg_tblspc").join(number)).unwrap();
    }
    let names = ["PG_VERSION", "near/PG_17_202406281/5/2", "pg_tblspc/1/PG_17_202406281/5/2"];
    assert_eq!(look(&dir), (names.map(str::to_owned).to_vec(), Vec::new()));
    assert_eq!(other_versions(&dir).len(), 2);
}

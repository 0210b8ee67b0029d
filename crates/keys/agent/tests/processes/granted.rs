//! Who gets keys and who does not: listed programs, the agent's own, those of a run, and programs
//! that their user can replace.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};

use tidelock_servers::{Bounded as _, skip};

use super::{LONG, NOBODY, PATIENCE, World};

#[test]
fn a_listed_program_gets_keys_and_a_stranger_does_not() {
    let world = World::new();
    world.start();
    let (code, said) = world.ask("postgres", "keys");
    assert_eq!(code, 0, "{said}");
    assert!(said.contains(&format!("directory {}", world.path("data").display())), "{said}");
    assert!(said.contains("keys 1\n"), "{said}");
    let (code, said) = world.ask("cp", "keys");
    assert_eq!(code, 4, "{said}");
    assert!(said.contains("error: the agent refused: the program is not listed: "), "{said}");
    assert!(said.contains("\nhint: start it with `tidelock exec`"), "{said}");
    let audit = world.audit();
    assert!(audit[0].contains("\"event\":\"start\""), "{audit:?}");
    let line = |event: &str, name: &str| {
        let name = format!("\"program\":\"{}\"", world.bin(name).display());
        audit.iter().any(|line| line.contains(event) && line.contains(&name))
    };
    assert!(line("\"event\":\"grant\"", "postgres"), "{audit:?}");
    assert!(line("\"event\":\"refuse\"", "cp"), "{audit:?}");
    let secret = data_encoding::HEXLOWER.encode(&world.secret);
    assert!(!audit.concat().contains(&secret));
}

/// `tidelock wal` reads and writes segments by itself; a copy of it is a stranger.
#[test]
fn the_agents_own_program_gets_keys_and_a_copy_of_it_does_not() {
    let world = World::new();
    world.start();
    let (code, said) = world.ask("tidelock", "keys");
    assert_eq!(code, 0, "{said}");
    let name = format!("\"program\":\"{}\"", world.bin("tidelock").display());
    let told = |line: &String| line.contains("\"event\":\"grant\"") && line.contains(&name);
    assert!(world.audit().iter().any(told), "{:?}", world.audit());
    fs::create_dir(world.path("bin/copy")).unwrap();
    world.install("copy/tidelock");
    let (code, said) = world.ask("copy/tidelock", "keys");
    assert_eq!(code, 4, "{said}");
    assert!(said.contains("the program is not listed"), "{said}");
    if world.root {
        // Nor does the same file once its user can replace it.
        chown(world.bin(""), Some(NOBODY), None).unwrap();
        let (code, said) = world.ask("tidelock", "keys");
        assert_eq!(code, 4, "{said}");
    }
}

/// An upgrade replaces the file while its agent runs.
#[test]
fn the_program_that_takes_the_place_of_the_agents_on_the_disk_is_tidelock_too() {
    if skip::unless_root("a program that is not one's own") {
        return;
    }
    let world = World::new();
    world.start();
    world.install("tidelock.new");
    fs::rename(world.bin("tidelock.new"), world.bin("tidelock")).unwrap();
    let (code, said) = world.ask("tidelock", "keys");
    assert_eq!(code, 0, "{said}");
    let (code, said) = world.allow("tidelock", &world.bin("cp"));
    assert_eq!(code, 0, "{said}");
    // Not where its user could have put it.
    chown(world.bin("tidelock"), Some(NOBODY), None).unwrap();
    let (code, said) = world.ask("tidelock", "keys");
    assert_eq!(code, 4, "{said}");
}

#[test]
fn only_tidelock_lists_a_program_for_a_run() {
    let world = World::new();
    world.start();
    let list = || {
        let path = world.socket().with_extension("programs");
        fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let cp = world.bin("cp");
    assert!(list().contains(&"postgres".to_owned()));
    let (code, said) = world.allow("postgres", &cp);
    assert_eq!(code, 4, "{said}");
    assert!(said.contains("only tidelock itself"), "{said}");
    assert_eq!(world.ask("cp", "keys").0, 4);
    let socket = world.socket().to_str().unwrap().to_owned();
    let named = cp.to_str().unwrap();
    let run =
        |rest: &[&str]| world.run("tidelock", &[&["become", &socket, named][..], rest].concat()).0;
    assert_eq!(run(&["keys", &socket]), 0);
    // Its environment tells it; the list would tell every cp.
    assert!(!list().contains(&cp.display().to_string()));
    // Those that it starts, by whatever way; not the same program of somebody else's.
    assert_eq!(run(&["spawn", named, "keys", &socket]), 0);
    world.install("stranger");
    let stranger = world.bin("stranger");
    let stranger = stranger.to_str().unwrap();
    assert_eq!(run(&["spawn", stranger, "spawn", named, "keys", &socket]), 0);
    assert_eq!(run(&["spawn", stranger, "keys", &socket]), 4);
    let mut other = world.command(&world.bin("tidelock"));
    other.args(["become", &socket, named, "hold", &socket]);
    let mut other = world.holding(other);
    assert_eq!(world.ask("cp", "keys").0, 4);
    drop(other.stdin.take());
    other.ended_within(PATIENCE).unwrap();
    assert_eq!(world.allow("tidelock", &world.bin("missing")).0, 4);
}

#[test]
fn a_program_that_its_user_can_replace_is_refused() {
    if skip::unless_root("a program that is not one's own") {
        return;
    }
    let world = World::new();
    world.start();
    let own = world.path("data").join("postgres");
    fs::copy(world.bin("postgres"), &own).unwrap();
    let ask = || {
        let output =
            world.command(&own).args(["keys", world.socket().to_str().unwrap()]).finish().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    // Root's file, but in the user's directory.
    assert!(ask().contains("could be replaced by the user who runs it"));
    chown(&own, Some(NOBODY), None).unwrap();
    assert!(ask().contains("could be replaced by the user who runs it"));
    let (shared, bin) = (world.bin("pg_ctl"), world.path("bin"));
    fs::set_permissions(&shared, Permissions::from_mode(0o777)).unwrap();
    assert_eq!(world.ask("pg_ctl", "keys").0, 4);
    fs::set_permissions(&shared, Permissions::from_mode(0o755)).unwrap();
    assert_eq!(world.ask("pg_ctl", "keys").0, 0);
    fs::set_permissions(&bin, Permissions::from_mode(0o777)).unwrap();
    assert_eq!(world.ask("pg_ctl", "keys").0, 4);
    // By a group, whether or not the agent is in it: it may run without the groups of its user.
    fs::set_permissions(&bin, Permissions::from_mode(0o755)).unwrap();
    for place in [&shared, &bin] {
        chown(place, Some(0), Some(100)).unwrap();
        fs::set_permissions(place, Permissions::from_mode(0o775)).unwrap();
        assert_eq!(world.ask("pg_ctl", "keys").0, 4, "{}", place.display());
        fs::set_permissions(place, Permissions::from_mode(0o755)).unwrap();
        assert_eq!(world.ask("pg_ctl", "keys").0, 0, "{}", place.display());
    }
    // By a third user, whose it is.
    for place in [&shared, &bin] {
        chown(place, Some(54321), Some(0)).unwrap();
        assert_eq!(world.ask("pg_ctl", "keys").0, 4, "{}", place.display());
        chown(place, Some(0), Some(0)).unwrap();
        assert_eq!(world.ask("pg_ctl", "keys").0, 0, "{}", place.display());
    }
    // Named for this run by the user, it may be the user's own.
    fs::set_permissions(&bin, Permissions::from_mode(0o755)).unwrap();
    let (socket, named) = (world.socket(), own.to_str().unwrap());
    let socket = socket.to_str().unwrap();
    let (code, said) = world.run("tidelock", &["become", socket, named, "keys", socket]);
    assert!(code == 0 && said.contains("keys 1"), "{said}");
    assert!(ask().contains("could be replaced by the user who runs it"));
}

#[test]
fn the_configuration_can_accept_programs_of_ones_own() {
    let world = World::new();
    assert_eq!(world.start_with(LONG, "writable").0, 0);
    let own = world.path("data").join("postgres");
    fs::copy(world.bin("postgres"), &own).unwrap();
    let output =
        world.command(&own).args(["keys", world.socket().to_str().unwrap()]).finish().unwrap();
    assert!(output.status.success());
}

//! Root runs the command on a directory below one that somebody else owns, who puts links where the
//! command will look: instead of the directory, of a folder above it, of the files of `.tidelock`,
//! of a copy. Nothing outside is made, written or given away.
//!
//! Whose a link is can be told apart by root only; as another user, what remains is tested with
//! links of one's own.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use tidelock_servers::{Bounded, skip};

#[path = "home/home.rs"]
mod home;

use home::Home;

/// `nobody`, who owns the folder `theirs`.
const THEM: u32 = 65534;
const RUNS: u32 = 50;

struct World {
    home: Home,
}

/// All that a wrong step would change: names, owners, modes, contents, and when any of it was
/// changed.
type Snapshot = Vec<(PathBuf, u32, u32, u32, i64, i64, Vec<u8>)>;

impl World {
    /// HOME with the folders `theirs`, which is theirs if this is root, and `outside`, and a key.
    fn new() -> Self {
        let home = Home::new();
        fs::set_permissions(home.dir(), Permissions::from_mode(0o755)).unwrap();
        let world = Self { home };
        for (name, mode) in [("theirs", 0o755), ("outside", 0o700)] {
            fs::create_dir(world.at(name)).unwrap();
            fs::set_permissions(world.at(name), Permissions::from_mode(mode)).unwrap();
        }
        fs::create_dir(world.at("outside/empty")).unwrap();
        fs::write(world.at("outside/secret"), "not yours\n").unwrap();
        fs::write(world.at("key"), [7; 32]).unwrap();
        fs::set_permissions(world.at("key"), Permissions::from_mode(0o600)).unwrap();
        world.give("theirs");
        world
    }

    fn at(&self, name: &str) -> PathBuf {
        self.home.path(name)
    }

    /// Makes this theirs, a link itself.
    fn give(&self, name: &str) {
        if is_root() {
            lchown(self.at(name), Some(THEM), Some(THEM)).unwrap();
        }
    }

    /// A link that the owner has made.
    fn link(&self, to: &str, name: &str) {
        symlink(self.at(to), self.at(name)).unwrap();
        self.give(name);
    }

    fn folder(&self, name: &str) {
        fs::create_dir(self.at(name)).unwrap();
        self.give(name);
    }

    /// What `tidelock` says, and how it ends.
    fn run(&self, line: &str) -> (i32, String) {
        let output = self.home.shell(&format!("tidelock {line}")).finish().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned())
    }

    fn init(&self, dir: &str) -> (i32, String) {
        let key = self.at("key");
        self.run(&format!("init {dir} --no-recovery --provider file:{}", key.display()))
    }

    /// A protected directory of the user, with a copy of its keyring in `backup`.
    fn protected(&self, dir: &str) {
        self.folder(dir);
        let (code, said) = self.init(dir);
        assert_eq!(code, 0, "{said}");
        // Root configures the machine for others; this one is only a test.
        if is_root() {
            let file = said.lines().find_map(|line| line.strip_prefix("provider in"));
            fs::remove_file(file.unwrap().trim()).unwrap();
        }
        let (code, said) = self.run(&format!("keyring backup -D {dir} backup"));
        assert_eq!(code, 0, "{said}");
    }

    fn outside(&self) -> Snapshot {
        let mut found = Vec::new();
        look(&self.at("outside"), &mut found);
        found
    }

    /// A program below `exec` does not start, and nothing outside is touched. `name` is not what it
    /// must be.
    fn library_refuses(&self, exec: &str, name: &str) {
        let before = self.outside();
        let (code, said) = self.run(exec);
        assert_eq!(self.outside(), before, "{name}: {code}: {said}");
        assert!(code == 3 && said.contains(".tidelock/"), "{name}: {code}: {said}");
    }

    fn refused(&self, (code, said): (i32, String), words: &str) {
        assert!(code == 3 && said.contains(words), "{code}: {said}");
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn skipped() -> bool {
    skip::unless_root("a directory of somebody else")
}

fn look(path: &Path, found: &mut Snapshot) {
    let it = fs::symlink_metadata(path).unwrap();
    let text = if it.is_file() { fs::read(path).unwrap() } else { Vec::new() };
    found.push((path.into(), it.mode(), it.uid(), it.gid(), it.ctime(), it.ctime_nsec(), text));
    if it.is_dir() {
        let mut names: Vec<_> = fs::read_dir(path).unwrap().map(|it| it.unwrap().path()).collect();
        names.sort();
        names.iter().for_each(|path| look(path, found));
    }
}

const LINK: &str = "is a link that somebody else can change";

#[test]
fn a_link_of_the_owner_is_not_taken_for_the_directory_or_one_above_it() {
    if skipped() {
        return;
    }
    let world = World::new();
    world.link("outside/empty", "theirs/data");
    world.link("outside/new", "theirs/new");
    world.link("outside", "theirs/above");
    world.link("theirs/above", "theirs/again");
    let before = world.outside();
    for dir in ["theirs/data", "theirs/above/empty", "theirs/above/new", "theirs/again/empty"] {
        world.refused(world.init(dir), LINK);
        world.refused(world.run(&format!("init {dir} --no-recovery --owner {THEM}")), LINK);
    }
    world.refused(world.init("theirs/new"), LINK);
    world.refused(world.run("keyring backup -D theirs/data copy"), LINK);
    assert_eq!(world.outside(), before);
}

#[test]
fn a_link_of_roots_in_a_folder_of_roots_is_followed() {
    if skipped() {
        return;
    }
    let world = World::new();
    fs::create_dir(world.at("roots")).unwrap();
    symlink("outside/empty", world.at("link")).unwrap();
    let (code, said) = world.init("roots/../link");
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains(&format!("protected     {}", world.at("outside/empty").display())),
        "{said}"
    );
    // Others may change these: a link of root's in a folder of others, and a link of others in a
    // folder of root's.
    symlink(world.at("roots"), world.at("theirs/roots")).unwrap();
    world.refused(world.init("theirs/roots"), LINK);
    world.link("roots", "theirs-here");
    world.refused(world.init("theirs-here"), LINK);
}

#[test]
fn a_link_in_place_of_the_folder_of_the_keyring_is_not_followed() {
    let world = World::new();
    world.protected("theirs/kept");
    world.folder("theirs/data");
    world.link("outside/empty", "theirs/data/.tidelock");
    let before = world.outside();
    for line in [
        "init theirs/data",
        "keyring restore -D theirs/data backup",
        "keyring backup -D theirs/data copy",
    ] {
        let (code, said) = world.run(line);
        assert_ne!(code, 0, "{line}: {said}");
    }
    assert_eq!(world.outside(), before);
}

#[test]
fn a_second_name_of_another_file_is_neither_locked_nor_given_away() {
    for name in ["lock", "keyring.lock"] {
        let world = World::new();
        world.protected("theirs/kept");
        world.folder("theirs/data");
        world.folder("theirs/data/.tidelock");
        let lock = world.at("theirs/data/.tidelock").join(name);
        // A symbolic link.
        world.link("outside/secret", &format!("theirs/data/.tidelock/{name}"));
        let before = world.outside();
        for line in [
            "keyring restore -D theirs/data backup",
            "init theirs/data --no-recovery --provider file:key",
        ] {
            let (code, said) = world.run(line);
            assert_ne!(code, 0, "{name}: {line}: {said}");
            assert_eq!(world.outside(), before, "{name}: {line}");
        }
        if !world.at("theirs/data/.tidelock").exists() {
            world.folder("theirs/data/.tidelock");
        }
        let _ = fs::remove_file(&lock);
        // A hard link of another user's file, where the kernel lets them make it.
        fs::hard_link(world.at("outside/secret"), &lock).unwrap();
        if is_root() {
            // Root's own is not given away either, but taken for what an interrupted command left.
            chown(&lock, Some(1), Some(1)).unwrap();
        }
        let before = world.outside();
        world.refused(world.run("keyring restore -D theirs/data backup"), "hard link");
        assert_eq!(world.outside(), before, "{name}");
    }
}

#[test]
fn what_root_left_is_made_again_for_the_owner_and_never_given_away() {
    if skipped() {
        return;
    }
    let world = World::new();
    world.protected("theirs/kept");
    world.folder("theirs/data");
    world.folder("theirs/data/.tidelock");
    fs::hard_link(world.at("outside/secret"), world.at("theirs/data/.tidelock/lock")).unwrap();
    let (code, said) = world.run("keyring restore -D theirs/data backup");
    assert_eq!(code, 0, "{said}");
    let secret = fs::metadata(world.at("outside/secret")).unwrap();
    assert_eq!((secret.uid(), secret.nlink()), (0, 1));
    assert_eq!(fs::read(world.at("outside/secret")).unwrap(), b"not yours\n");
    for name in ["", "keyring", "lock", "keyring.lock"] {
        let path = world.at("theirs/data/.tidelock").join(name);
        assert_eq!(fs::metadata(&path).unwrap().uid(), THEM, "{}", path.display());
    }
}

#[test]
fn a_link_in_place_of_the_keyring_is_replaced_and_not_followed() {
    let world = World::new();
    world.protected("theirs/data");
    fs::remove_file(world.at("theirs/data/.tidelock/keyring")).unwrap();
    world.link("outside/secret", "theirs/data/.tidelock/keyring");
    let before = world.outside();
    for line in
        ["keyring backup -D theirs/data copy", "init theirs/data", "key list -D theirs/data"]
    {
        let (code, said) = world.run(line);
        assert_ne!(code, 0, "{line}: {said}");
        assert!(!said.contains("not yours"), "{line}: {said}");
    }
    let (code, said) = world.run("keyring restore -D theirs/data backup");
    assert_eq!(code, 0, "{said}");
    assert!(world.at("theirs/data/.tidelock/keyring").symlink_metadata().unwrap().is_file());
    assert_eq!(world.outside(), before);
}

#[test]
fn a_copy_and_the_list_of_copies_are_not_written_through_links() {
    let world = World::new();
    world.protected("theirs/data");
    let list = world.at("theirs/data/.tidelock/copies");
    for name in
        ["theirs/copy.tidelock-new", "theirs/copy.new", "theirs/data/.tidelock/copies.tidelock-new"]
    {
        world.link("outside/secret", name);
    }
    fs::remove_file(&list).unwrap();
    world.link("outside/secret", "theirs/data/.tidelock/copies");
    let before = world.outside();
    let (code, said) = world.run("keyring backup -D theirs/data theirs/copy");
    assert_eq!(code, 0, "{said}");
    assert_eq!(world.outside(), before);
    assert!(fs::read_to_string(&list).unwrap().ends_with("theirs/copy\n"));
    // The same by a hard link, which truncating would have emptied.
    fs::remove_file(&list).unwrap();
    fs::hard_link(world.at("outside/secret"), &list).unwrap();
    let (code, said) = world.run("keyring backup -D theirs/data theirs/copy");
    assert_eq!(code, 0, "{said}");
    assert_eq!(fs::read(world.at("outside/secret")).unwrap(), b"not yours\n");
    assert_eq!(
        fs::metadata(world.at("outside/secret")).unwrap().uid(),
        rustix::process::geteuid().as_raw()
    );
    // Over something else that is the user's.
    world.link("outside/secret", "theirs/other");
    let before = world.outside();
    world.refused(world.run("keyring backup -D theirs/data theirs/other"), LINK);
    assert_eq!(world.outside(), before);
}

#[test]
fn a_key_and_a_recovery_key_are_not_written_through_links() {
    let world = World::new();
    world.link("outside/new", "theirs/key");
    let before = world.outside();
    let key = world.at("theirs/key");
    let other = world.at("key");
    let lines = [
        format!("init data --no-recovery --provider file:{}", key.display()),
        format!("init data --provider file:{} --recovery-file theirs/key", other.display()),
    ];
    for line in &lines {
        let (code, said) = world.run(line);
        assert_ne!(code, 0, "{said}");
        assert!(!world.at("data").exists());
    }
    if is_root() {
        world.link("outside", "theirs/folder");
        let line = format!(
            "init data --provider file:{} --recovery-file theirs/folder/r",
            other.display()
        );
        world.refused(world.run(&line), LINK);
    }
    assert_eq!(world.outside(), before);
}

/// Swaps what the command works on for a link and back, all the while that it works; how often it
/// was done, and how often they were swapped. Once nobody swaps them it works.
fn swapped(world: &World, name: &str, to: &str, line: &str, between: impl Fn()) -> (u32, u32) {
    world.link(to, "theirs/swap");
    let (one, other) = (world.at(name), world.at("theirs/swap"));
    let (stop, swaps) = (AtomicBool::new(false), AtomicU32::new(0));
    let before = world.outside();
    let mut done = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
                swaps.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
        });
        for run in 0..RUNS {
            let (code, said) = world.run(line);
            let now = world.outside();
            if now != before || !matches!(code, 0 | 1 | 3 | 4) {
                stop.store(true, Ordering::Relaxed);
                panic!("run {run}: {code}: {said}: {now:?}");
            }
            done += u32::from(code == 0);
            between();
        }
        stop.store(true, Ordering::Relaxed);
    });
    if one.is_symlink() {
        renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
    }
    let (code, said) = world.run(line);
    assert_eq!(code, 0, "nobody swaps them any more: {said}");
    eprintln!("{name}: done in {done} of {RUNS} runs");
    (done, swaps.into_inner())
}

#[test]
fn a_directory_that_is_swapped_for_a_link_while_it_is_made_leads_nowhere() {
    if skipped() {
        return;
    }
    let world = World::new();
    fs::create_dir(world.at("theirs/data")).unwrap();
    let key = world.at("key");
    let line = format!("init theirs/data --no-recovery --provider file:{}", key.display());
    let empty = || {
        for name in ["theirs/data", "theirs/swap"] {
            if world.at(name).symlink_metadata().is_ok_and(|it| it.is_dir()) {
                let _ = fs::remove_dir_all(world.at(name).join(".tidelock"));
            }
        }
    };
    let (done, swaps) = swapped(&world, "theirs/data", "outside/empty", &line, empty);
    assert!(swaps > RUNS && done > 0, "{swaps}, {done} done");
}

#[test]
fn a_folder_above_that_is_swapped_for_a_link_leads_nowhere() {
    if skipped() {
        return;
    }
    let world = World::new();
    world.folder("theirs/above");
    world.protected("theirs/above/empty");
    let line = "keyring restore -D theirs/above/empty backup";
    let (done, swaps) = swapped(&world, "theirs/above", "outside", line, || {});
    assert!(swaps > RUNS && done > 0, "{swaps}, {done} done");
}

/// What the library does in a program of root's, which works on the user's directory.
#[test]
fn the_library_follows_no_link_of_the_owner_in_a_program_of_roots() {
    if skipped() {
        return;
    }
    let world = World::new();
    world.protected("theirs/data");
    let at = |name: &str| world.at("theirs/data/.tidelock").join(name);
    let exec =
        format!("exec --provider file:{} -D theirs/data -- /bin/true", world.at("key").display());
    let (code, said) = world.run(&exec);
    assert_eq!(code, 0, "{said}");
    let name = "lock";
    let kept = at("lock.kept");
    fs::rename(at(name), &kept).unwrap();
    world.link("outside/secret", "theirs/data/.tidelock/lock");
    world.library_refuses(&exec, name);
    fs::remove_file(at(name)).unwrap();
    // Another file of root's, by a second name; and a pipe, which must hold nobody.
    fs::hard_link(world.at("outside/secret"), at(name)).unwrap();
    world.library_refuses(&exec, name);
    fs::remove_file(at(name)).unwrap();
    rustix::fs::mknodat(
        CWD,
        at(name),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    world.library_refuses(&exec, name);
    fs::remove_file(at(name)).unwrap();
    fs::rename(&kept, at(name)).unwrap();
    let (code, said) = world.run(&exec);
    assert_eq!(code, 0, "{said}");
    // The folder itself, with everything in it that is looked for.
    fs::rename(world.at("theirs/data/.tidelock"), world.at("outside/folder")).unwrap();
    world.link("outside/folder", "theirs/data/.tidelock");
    let before = world.outside();
    let (code, said) = world.run(&exec);
    assert!(code != 0 && world.outside() == before, "{code}: {said}");
}

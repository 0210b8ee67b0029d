//! rename and link between the classes of a protected directory and over its border, and what lies
//! around it: on the simulated kernel.

use std::rc::Rc;

use libc::{
    AT_SYMLINK_FOLLOW, O_APPEND, O_CREAT, O_RDWR, O_TRUNC, O_WRONLY, RENAME_EXCHANGE,
    RENAME_WHITEOUT,
};
use tidelock_engine::{Descriptor, Errno, Fd, Refusal};
use tidelock_format::Layout;
use tidelock_testkit::sim::driver::{c, file, with_room};
use tidelock_testkit::sim::{Call, Engine, SimDisk};

const O_RDWR_CREAT: i32 = libc::O_RDWR | libc::O_CREAT;

fn start() -> (Rc<SimDisk>, Rc<Engine>) {
    let disk = SimDisk::new(Layout::DEFAULT);
    let engine = disk.process();
    (disk, engine)
}

fn make(engine: &Engine, path: &str) -> Result<i32, Errno> {
    engine.open(Fd::CWD, &c(path), O_RDWR_CREAT, 0o600)
}

fn rename(engine: &Engine, from: &str, to: &str, flags: u32) -> Result<(), Errno> {
    engine.rename((Fd::CWD, &c(from)), (Fd::CWD, &c(to)), flags)
}

fn link(engine: &Engine, from: &str, to: &str, flags: i32) -> Result<(), Errno> {
    engine.link((Fd::CWD, &c(from)), (Fd::CWD, &c(to)), flags)
}

#[test]
fn an_empty_file_does_not_cross() {
    with_room(|| {
        let (_, engine) = start();
        for path in ["/out/empty", "/pg/plain/empty", "/pg/paged/empty", "/pg/bytes/empty"] {
            make(&engine, path).unwrap();
        }
        for (from, to) in [
            ("/out/empty", "/pg/paged/new"),
            ("/pg/paged/empty", "/out/new"),
            ("/pg/plain/empty", "/pg/bytes/new"),
            ("/pg/bytes/empty", "/pg/plain/new"),
            ("/pg/paged/empty", "/pg/bytes/new"),
        ] {
            assert_eq!(rename(&engine, from, to, 0), Err(Errno::XDEV), "{from} -> {to}");
            assert_eq!(link(&engine, from, to, 0), Err(Errno::XDEV), "{from} -> {to}");
        }
        rename(&engine, "/out/empty", "/pg/plain/new", 0).unwrap();
        rename(&engine, "/pg/paged/empty", "/pg/log/new", 0).unwrap();
    });
}

#[test]
fn an_exchange_is_judged_both_ways_and_a_whiteout_is_refused() {
    with_room(|| {
        let (_, engine) = start();
        make(&engine, "/out/file").unwrap();
        make(&engine, "/out/other").unwrap();
        make(&engine, "/pg/paged/file").unwrap();
        for (from, to) in [("/out/file", "/pg/paged/file"), ("/pg/paged/file", "/out/file")] {
            assert_eq!(rename(&engine, from, to, RENAME_EXCHANGE), Err(Errno::XDEV));
        }
        // A directory that takes the place of one of another class.
        let classes = rename(&engine, "/pg/paged", "/pg/bytes", RENAME_EXCHANGE);
        assert_eq!(classes, Err(Errno::XDEV));
        assert_eq!(rename(&engine, "/out", "/pg", RENAME_EXCHANGE), Err(Errno::XDEV));
        let whiteout = rename(&engine, "/pg/paged/file", "/pg/paged/new", RENAME_WHITEOUT);
        assert_eq!(whiteout, Err(Errno::INVAL));
        rename(&engine, "/out/file", "/out/new", RENAME_WHITEOUT).unwrap();
    });
}

#[test]
fn a_directory_takes_its_files_nowhere_else() {
    with_room(|| {
        let (_, engine) = start();
        for (from, to) in [
            ("/pg/paged", "/pg/plain/x"),
            ("/pg/paged", "/pg/other"),
            ("/pg/plain", "/pg/paged/x"),
            ("/pg/bytes", "/out/x"),
            ("/pg/plain", "/out/x"),
            ("/out", "/pg/plain/x"),
            ("/out", "/pg/bytes/x"),
        ] {
            assert_eq!(rename(&engine, from, to, 0), Err(Errno::XDEV), "{from} -> {to}");
        }
        rename(&engine, "/pg/plain", "/pg/also_plain", 0).unwrap();
    });
}

#[test]
fn a_followed_link_is_judged_by_what_it_leads_to() {
    with_room(|| {
        let (disk, engine) = start();
        disk.put("/out/plain", b"tiny");
        disk.symlink("/out/link", "plain");
        let followed = link(&engine, "/out/link", "/pg/paged/name", AT_SYMLINK_FOLLOW);
        assert_eq!(followed, Err(Errno::XDEV));
        assert!(!disk.exists("/pg/paged/name"));
        link(&engine, "/out/link", "/pg/paged/name", 0).unwrap();
    });
}

/// Links below, links behind links, links from outside, and names that go up.
#[test]
fn each_link_on_the_way_takes_its_target_along() {
    with_room(|| {
        let (disk, engine) = start();
        for directory in ["/out/one", "/out/two", "/out/three", "/pg/paged/deep"] {
            disk.make_directory(directory);
        }
        disk.symlink("/pg/paged/deep/one", "/out/one");
        disk.symlink("/out/one/two", "../two");
        disk.symlink("/out/door", "/pg/paged/deep");
        disk.symlink("/pg/paged/deep/inside", "../deep");
        disk.symlink("/pg/paged/three", "/out/chain");
        disk.symlink("/out/chain", "three");
        disk.symlink("/pg/paged/deep/late", "/out/late_chain");
        disk.symlink("/out/late_chain", "/out/late");
        for path in [
            "/pg/paged/deep/one/a",
            "/pg/paged/deep/one/two/b",
            "/out/door/one/c",
            "/pg/paged/../paged/deep/one/d",
            "/pg/paged/deep/inside/one/two/e",
            "/pg/paged/three/f",
            "/pg/paged/deep/late",
        ] {
            let (engine, real) = (disk.process(), path.rsplit('/').next().unwrap());
            let fd = make(&engine, path).unwrap();
            assert!(matches!(engine.descriptor(fd), Descriptor::Sealed(_)), "{path}");
            // A program that follows the path by itself.
            let places = ["/out/one/", "/out/two/", "/out/three/", "/out/"];
            let real = places.map(|place| format!("{place}{real}"));
            let real = real.into_iter().find(|real| disk.exists(real)).unwrap();
            let engine = disk.process();
            engine.attach(Fd::CWD, &c(path)).unwrap();
            let fd = make(&engine, &real).unwrap();
            assert!(matches!(engine.descriptor(fd), Descriptor::Sealed(_)), "{path} as {real}");
        }
        // Nobody's.
        let fd = make(&engine, "/out/two/other").unwrap();
        assert!(matches!(engine.descriptor(fd), Descriptor::Foreign));
        disk.symlink("/out/loop", "/out/loop");
        assert_eq!(engine.attach(Fd::CWD, &c("/out/loop/x")), Ok(()));
        assert!(make(&engine, "/out/loop/x").is_err());
    });
}

/// The next start would end there.
#[test]
fn a_link_that_there_is_no_room_for_is_refused_when_it_is_made() {
    with_room(|| {
        let (disk, engine) = start();
        for directory in ["/out/one", "/out/two"] {
            disk.make_directory(directory);
        }
        let make = |target, name| engine.judge_new_link(&c(target), Fd::CWD, &c(name));
        assert_eq!(make("/out/one", "/pg/paged/link"), Ok(()));
        let mut count = 0;
        let root = engine.roots().numbers().next().unwrap();
        while engine.roots().attach(root, format!("/far/{count}").as_bytes(), b"x", false).is_ok() {
            count += 1;
        }
        for name in ["/pg/paged/link", "/pg/plain/link"] {
            assert_eq!(make("/out/one", name), Err(Errno::NFILE), "{name}");
        }
        assert_eq!(engine.system().take_reports(), [Refusal::TooManyLinks; 2]);
        // It leads nowhere new, or is nobody's.
        assert_eq!(make("/pg/paged", "/pg/bytes/link"), Ok(()));
        assert_eq!(make("/out/one", "/out/link"), Ok(()));
        // What was made by others is not opened either.
        disk.symlink("/pg/paged/link", "/out/two");
        let fd = engine.open(Fd::CWD, &c("/pg/paged/link/file"), O_RDWR_CREAT, 0o600);
        assert_eq!(fd, Err(Errno::NFILE));
    });
}

#[test]
fn what_lies_in_somebody_elses_protected_directory_is_not_written() {
    with_room(|| {
        let (disk, engine) = start();
        make(&engine, "/out/file").unwrap();
        disk.put("/out/theirs", b"tiny");
        let calls = |path: &str| {
            disk.forget_calls();
            make(&engine, path).unwrap();
            disk.trace().iter().filter(|call| **call == Call::Open).count()
        };
        // The directory and the file; that it has no protected one above is known by now.
        assert_eq!(calls("/out/another"), 2);

        let (disk, engine) = start();
        disk.put("/out/theirs", b"tiny");
        disk.make_directory("/out/.tidelock");
        assert_eq!(make(&engine, "/out/file"), Err(Errno::ACCES));
        assert_eq!(engine.open(Fd::CWD, &c("/out/theirs"), 1, 0), Err(Errno::ACCES));
        assert_eq!(engine.truncate_at(&c("/out/theirs"), 0), Err(Errno::ACCES));
        assert_eq!(engine.system().take_reports(), [Refusal::AnotherDirectory; 3]);
        assert!(!disk.exists("/out/file"));
        // Reading is free.
        engine.open(Fd::CWD, &c("/out/theirs"), 0, 0).unwrap();
        make(&engine, "/pg/plain/file").unwrap();
        for (from, to) in [("/pg/plain/file", "/out/moved"), ("/out/theirs", "/out/moved")] {
            assert_eq!(rename(&engine, from, to, 0), Err(Errno::ACCES), "{from} -> {to}");
            assert_eq!(link(&engine, from, to, 0), Err(Errno::ACCES), "{from} -> {to}");
        }
    });
}

#[test]
fn what_is_sealed_at_a_plain_name_is_not_appended_to() {
    with_room(|| {
        let (disk, engine) = start();
        let fd = make(&engine, "/pg/bytes/file").unwrap();
        file(&engine, fd).unwrap().write(b"tiny").unwrap();
        let sealed = disk.inspect("/pg/bytes/file", |file| file.bytes().to_vec());
        for path in ["/pg/plain/file", "/out/file"] {
            disk.put(path, &sealed);
            let open = |flags| engine.open(Fd::CWD, &c(path), flags, 0o600);
            let before = engine.system().visible();
            for flags in [O_WRONLY, O_WRONLY | O_APPEND, O_WRONLY | O_CREAT | O_APPEND, O_RDWR] {
                assert_eq!(open(flags), Err(Errno::IO), "{path} {flags:o}");
            }
            assert_eq!(engine.system().take_reports(), [Refusal::SealedWherePlain; 4]);
            assert_eq!(engine.system().visible(), before);
            // A second descriptor would cost the program its locks.
            engine.system().set_locked(true);
            open(O_WRONLY).unwrap();
            engine.system().set_locked(false);
            open(O_WRONLY | O_TRUNC).unwrap();
            assert_eq!(disk.inspect(path, |file| file.bytes().len()), 0);
            // Plain ones are as they were.
            disk.put(path, &vec![b'P'; sealed.len()]);
            open(O_WRONLY | O_APPEND).unwrap();
        }
    });
}

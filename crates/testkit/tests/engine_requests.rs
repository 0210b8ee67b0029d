//! Requests that the kernel carries out while the program goes on: what it is handed, what others
//! see meanwhile, and what is left to be carried out on the spot.

use std::rc::Rc;

use tidelock_engine::{Errno, Fd, Kernel as _};
use tidelock_format::Layout;
use tidelock_testkit::model::data;
use tidelock_testkit::sim::driver::{c, file, read_all, with_room};
use tidelock_testkit::sim::{Call, Engine, Fault, Plan, SimDisk};

const DIRECT: i32 = libc::O_RDWR | libc::O_CREAT | libc::O_DIRECT;

fn start() -> (Rc<SimDisk>, Rc<Engine>) {
    let disk = SimDisk::new(Layout::DEFAULT);
    let engine = disk.process();
    (disk, engine)
}

/// A file of 256 KiB.
fn made(engine: &Engine, path: &str, flags: i32) -> i32 {
    let fd = engine.open(Fd::CWD, &c(path), flags, 0o600).expect("it opens");
    let sealed = file(engine, fd).expect("it is sealed");
    sealed.pwrite(&data(1, 262_144), 0).expect("the first write makes the header");
    fd
}

/// Memory that begins a page.
struct Pages {
    bytes: Vec<u8>,
    from: usize,
}

impl Pages {
    fn new(len: usize) -> Self {
        let bytes = vec![0; len + 4096];
        let from = bytes.as_ptr().align_offset(4096);
        Self { bytes, from }
    }

    fn first(&mut self, len: usize) -> &mut [u8] {
        &mut self.bytes[self.from..self.from + len]
    }
}

#[test]
fn a_write_is_under_way_until_it_is_let_go() {
    with_room(|| {
        for path in ["/pg/paged/1", "/pg/bytes/1"] {
            let (disk, engine) = start();
            let fd = made(&engine, path, DIRECT);
            let sealed = file(&engine, fd).expect("it is sealed");
            let mut memory = Pages::new(8192);
            let begun = sealed.begin_write(&data(2, 8192), 65_536, memory.first(8192), 1);
            let (request, bytes, handed) = begun.expect("the kernel can be handed it");
            assert!(!engine.system().holds_no_lock(), "{path}");
            // What lies elsewhere is read and written as ever.
            assert_eq!(sealed.pwrite(&data(3, 4096), 0), Ok(4096));
            let mut back = Pages::new(4096);
            assert_eq!(sealed.pread(back.first(4096), 0), Ok(4096));
            assert!(back.first(4096) == data(3, 4096));
            disk.forget_calls();
            assert_eq!(engine.system().pwrite(handed.file, bytes, handed.at), Ok(8192));
            assert_eq!(disk.trace(), [Call::Pwrite], "{path}");
            drop(request);
            assert!(engine.system().holds_no_lock(), "{path}");
            let mut back = Pages::new(8192);
            assert_eq!(sealed.pread(back.first(8192), 65_536), Ok(8192));
            assert!(back.first(8192) == data(2, 8192), "{path}");
        }
    });
}

#[test]
fn a_read_is_opened_unless_somebody_wrote_meanwhile() {
    with_room(|| {
        let (_, engine) = start();
        let fd = made(&engine, "/pg/paged/1", DIRECT);
        let sealed = file(&engine, fd).expect("it is sealed");
        for overtaken in [false, true] {
            let mut memory = Pages::new(8192);
            let into = memory.first(8192);
            let (request, handed) = sealed.begin_read(into, 8192).expect("it can be handed over");
            assert_eq!(engine.system().pread(handed.file, into, handed.at), Ok(8192));
            if overtaken {
                assert_eq!(sealed.pwrite(&data(9, 4096), 8192), Ok(4096));
            }
            let opened = request.open(&sealed, into, 8192);
            assert_eq!(opened, (!overtaken).then_some(8192));
            if !overtaken {
                assert!(into == &data(1, 262_144)[8192..16_384]);
            }
        }
        // A size that changes may have moved the end.
        let mut memory = Pages::new(8192);
        let (request, _) = sealed.begin_read(memory.first(8192), 8192).expect("handed over");
        sealed.set_len(100_001).expect("cut");
        assert_eq!(request.open(&sealed, memory.first(8192), 8192), None);
    });
}

#[test]
fn nothing_is_read_beside_a_write_of_the_same_bytes() {
    with_room(|| {
        let (_, engine) = start();
        let fd = made(&engine, "/pg/paged/1", DIRECT);
        let sealed = file(&engine, fd).expect("it is sealed");
        let (mut out, mut into) = (Pages::new(4096), Pages::new(4096));
        let held = sealed.begin_write(&data(2, 4096), 8192, out.first(4096), 7).expect("begun");
        assert!(sealed.begin_read(into.first(4096), 8192).is_none());
        drop(held);
        assert!(sealed.begin_read(into.first(4096), 8192).is_some());
    });
}

/// As at a limit of the file's size, or on a full disk with small blocks.
#[test]
fn a_request_that_stops_within_a_unit_keeps_nobody_waiting_and_leaves_no_garbage() {
    const END: u64 = 262_144;
    with_room(|| {
        let cases = ["/pg/paged/1", "/pg/bytes/1"].map(|path| [(path, false), (path, true)]);
        for ((path, hole), stop) in
            cases.concat().iter().flat_map(|case| [1, 100, 512, 1040, 4095].map(|s| (*case, s)))
        {
            let case = format!("{path}, {stop} behind a unit, into a hole: {hole}");
            let (disk, engine) = start();
            let fd = made(&engine, path, DIRECT);
            let sealed = file(&engine, fd).expect("it is sealed");
            if hole {
                sealed.set_len(END + 16_384).expect("extended");
            }
            let mut memory = Pages::new(8192);
            let begun = sealed.begin_write(&data(2, 8192), END, memory.first(8192), 1);
            let (request, bytes, handed) = begun.expect("the kernel can be handed it");
            let disk_end = usize::try_from(handed.at.get()).expect("small") + 4096 + stop;
            disk.limit_size(Some(disk_end));
            assert_eq!(engine.system().pwrite(handed.file, bytes, handed.at), Ok(4096 + stop));
            request.stopped();
            drop(request);
            assert!(engine.system().holds_no_lock(), "{case}");
            // Before its event is fetched, by the same thread.
            assert_eq!(sealed.pwrite(&data(3, 100), 10), Ok(100), "{case}");
            let count = sealed.write_again(&data(2, 8192), END, 4096 + stop).unwrap_or(0);
            disk.limit_size(None);
            assert!((4096..=4096 + stop).contains(&count), "{case}: {count} written");
            let mut expected = data(1, 262_144);
            expected[10..110].copy_from_slice(&data(3, 100));
            expected.extend_from_slice(&data(2, 8192)[..count]);
            if hole {
                expected.resize(262_144 + 16_384, 0);
            }
            let found = read_all(&disk.process(), path).expect("read");
            let differs = found.iter().zip(&expected).position(|(a, b)| a != b);
            assert_eq!((found.len(), differs), (expected.len(), None), "{case}: {count} written");
        }
    });
}

#[test]
fn what_the_kernel_cannot_be_handed_is_left_to_the_caller() {
    with_room(|| {
        let (_, engine) = start();
        let mut memory = Pages::new(8192);
        let plain = data(2, 8192);
        let mut refused = |fd: i32, at: u64, len: usize| {
            let sealed = file(&engine, fd).expect("it is sealed");
            let write = sealed.begin_write(&plain[..len], at, memory.first(len), 1).is_none();
            let read = sealed.begin_read(memory.first(len), at).is_none();
            assert!(engine.system().holds_no_lock());
            (write, read)
        };
        let direct = made(&engine, "/pg/paged/1", DIRECT);
        for (at, len) in [(0, 100), (100, 4096), (512, 512), (0, 0), (u64::MAX - 4095, 4096)] {
            assert_eq!(refused(direct, at, len), (true, true), "{len} bytes at {at}");
        }
        assert_eq!(refused(direct, 0, 4096), (false, false));
        // Without direct access; at the end only; a size that cuts a unit.
        let cached = made(&engine, "/pg/paged/2", DIRECT & !libc::O_DIRECT);
        assert_eq!(refused(cached, 0, 4096), (true, true));
        let end = made(&engine, "/pg/paged/3", DIRECT | libc::O_APPEND);
        assert_eq!(refused(end, 0, 4096), (true, false));
        let odd = made(&engine, "/pg/bytes/4", DIRECT);
        file(&engine, odd).expect("it is sealed").set_len(10_001).expect("cut");
        assert_eq!(refused(odd, 0, 4096), (true, true));
        let only = engine.open(Fd::CWD, &c("/pg/paged/1"), libc::O_DIRECT, 0).expect("opened");
        assert_eq!(refused(only, 0, 4096), (true, false));
    });
    for refused in [Errno::INVAL, Errno::MFILE] {
        with_room(move || {
            let (disk, engine) = start();
            let fd = made(&engine, "/pg/paged/1", DIRECT);
            let sealed = file(&engine, fd).expect("it is sealed");
            disk.plan(Some(Plan { at: disk.calls() + 2, fault: Fault::Errno(refused) }));
            let mut memory = Pages::new(4096);
            assert!(sealed.begin_read(memory.first(4096), 0).is_none(), "{refused:?}");
            assert!(disk.trace().contains(&Call::Open), "{:?}", disk.trace());
        });
    }
}

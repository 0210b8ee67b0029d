//! Single cases at the edges: how many calls an aligned access costs, descriptors that the kernel
//! refuses or that were closed behind our back, magic links, lost headers that nobody wants.

use std::rc::Rc;

use libc::O_PATH;
use tidelock_engine::{Descriptor, Errno, Fd};
use tidelock_format::Layout;
use tidelock_testkit::model::data;
use tidelock_testkit::sim::driver::{c, file, read_all, with_room};
use tidelock_testkit::sim::{Call, Engine, Fault, Plan, SimDisk};

const O_RDWR_CREAT: i32 = libc::O_RDWR | libc::O_CREAT;

fn start() -> (Rc<SimDisk>, Rc<Engine>) {
    let disk = SimDisk::new(Layout::DEFAULT);
    let engine = disk.process();
    (disk, engine)
}

fn open(engine: &Engine, path: &str, flags: i32) -> Result<i32, Errno> {
    engine.open(Fd::CWD, &c(path), flags, 0o600)
}

/// And a file of that size at `path`, open.
fn start_with_5000_bytes(path: &str) -> (Rc<SimDisk>, Rc<Engine>, i32) {
    let (disk, engine) = start();
    let fd = open(&engine, path, O_RDWR_CREAT).expect("it opens");
    let sealed = file(&engine, fd).expect("it is sealed");
    sealed.pwrite(&data(1, 5000), 0).expect("written");
    drop(sealed);
    (disk, engine, fd)
}

/// Bytes on the disk before a file's first one.
fn header(disk: &SimDisk) -> usize {
    usize::try_from(disk.layout().data_offset()).expect("small")
}

/// Bytes that begin a page, as a server's buffers do.
fn aligned(len: usize) -> (Vec<u8>, usize) {
    let bytes = vec![0; len + 4096];
    let from = bytes.as_ptr().align_offset(4096);
    (bytes, from)
}

#[test]
fn an_aligned_access_is_one_call_and_takes_no_lock() {
    with_room(|| {
        for path in ["/pg/paged/1", "/pg/log/1"] {
            let (disk, engine) = start();
            let fd = open(&engine, path, O_RDWR_CREAT).expect("it opens");
            let sealed = file(&engine, fd).expect("it is sealed");
            sealed.pwrite(&data(1, 65_536), 0).expect("the first write makes the header");
            // The size has changed other than by whole units of a whole-unit file: looked at once.
            disk.forget_calls();
            assert_eq!(sealed.pwrite(&data(2, 4096), 0), Ok(4096));
            assert_eq!(disk.trace(), [Call::Stat, Call::Pwrite], "{path}");
            for (at, len) in [(0, 8192), (8192, 4096), (65_536, 8192), (4096, 16_384)] {
                disk.forget_calls();
                assert_eq!(sealed.pwrite(&data(2, len), at), Ok(len));
                assert_eq!(disk.trace(), [Call::Pwrite], "{path}: {len} bytes at {at}");
                let (mut bytes, from) = aligned(len);
                disk.forget_calls();
                assert_eq!(sealed.pread(&mut bytes[from..from + len], at), Ok(len));
                assert_eq!(disk.trace(), [Call::Pread], "{path}: {len} bytes at {at}");
                disk.forget_calls();
                let odd = &mut bytes[from + 1..from + 1 + len];
                assert_eq!(sealed.pread(odd, at), Ok(len));
                assert_eq!(disk.trace(), [Call::Pread], "{path}: to an odd address");
            }
        }
    });
}

#[test]
fn what_is_no_whole_unit_file_is_read_with_one_call_too() {
    with_room(|| {
        let (disk, engine) = start();
        let fd = open(&engine, "/pg/bytes/1", O_RDWR_CREAT).expect("it opens");
        let sealed = file(&engine, fd).expect("it is sealed");
        sealed.pwrite(&data(1, 10_001), 0).expect("written");
        disk.forget_calls();
        assert_eq!(sealed.pread(&mut [0; 20_000], 7), Ok(9994));
        assert_eq!(disk.trace(), [Call::Pread]);
    });
}

/// Whoever opened the file between its header and the data that found no room has its key.
#[test]
fn a_header_stays_though_its_first_data_found_no_room() {
    with_room(|| {
        let disk = SimDisk::new(Layout::new(8192).expect("a layout"));
        let (engine, other) = (disk.process(), disk.process());
        let path = "/pg/paged/1";
        let fd = open(&engine, path, O_RDWR_CREAT).expect("it opens");
        let sealed = file(&engine, fd).expect("it is sealed");
        disk.limit_room(Some(1));
        assert_eq!(sealed.pwrite(&data(1, 4096), 0), Err(Errno::NOSPC));
        let header = || disk.inspect(path, |file| file.bytes()[..768].to_vec());
        let first = header();
        let there = open(&other, path, libc::O_RDWR).expect("it opens with its header");
        disk.limit_room(None);
        assert_eq!(sealed.pwrite(&data(2, 4096), 4096), Ok(4096));
        let there = file(&other, there).expect("it is sealed");
        assert_eq!(there.pwrite(&data(3, 4096), 0), Ok(4096));
        assert_eq!(header(), first);
        let whole = [data(3, 4096), data(2, 4096)].concat();
        assert_eq!(read_all(&disk.process(), path), Ok(whole));
    });
}

/// As at a limit of the file's size, while the file is longer already.
#[test]
fn a_write_into_a_hole_that_stops_within_a_unit_leaves_no_garbage() {
    with_room(|| {
        for (path, stop) in ["/pg/paged/1", "/pg/bytes/1"]
            .into_iter()
            .flat_map(|path| [1, 100, 1024, 1040, 4095].map(|stop| (path, stop)))
        {
            for (at, len) in [(8192, 100), (8192 + 3000, 100), (8000, 300), (4096, 5000)] {
                let (disk, engine, fd) = start_with_5000_bytes(path);
                let sealed = file(&engine, fd).expect("it is sealed");
                sealed.set_len(20_000).expect("extended");
                let before = read_all(&disk.process(), path).expect("read");
                disk.limit_size(Some(header(&disk) + 8192 + stop));
                let count = sealed.pwrite(&data(2, len), at).unwrap_or(0);
                disk.limit_size(None);
                let mut expected = before;
                let from = usize::try_from(at).expect("small");
                expected[from..from + count].copy_from_slice(&data(2, len)[..count]);
                let found = read_all(&disk.process(), path).expect("read");
                let differs = found.iter().zip(&expected).position(|(a, b)| a != b);
                assert_eq!(
                    (found.len(), differs),
                    (20_000, None),
                    "{path}: {len} bytes at {at}, stopped {stop} behind 8192, {count} written"
                );
            }
        }
    });
}

/// Zeros that tell the size are no sign of a hole.
#[test]
fn a_write_that_stops_in_the_last_block_of_a_file_leaves_the_blocks_before_it() {
    with_room(|| {
        for path in ["/pg/paged/1", "/pg/bytes/1"] {
            let (disk, engine, fd) = start_with_5000_bytes(path);
            let sealed = file(&engine, fd).expect("it is sealed");
            disk.limit_size(Some(header(&disk) + 5000));
            let count = sealed.pwrite(&data(2, 30), 4970).unwrap_or(0);
            disk.limit_size(None);
            let found = read_all(&disk.process(), path).expect("read");
            assert_eq!(found.len(), 5000, "{path}");
            assert_eq!(found[..4970], data(1, 5000)[..4970], "{path}");
            assert_eq!(found[4970..4970 + count], data(2, 30)[..count], "{path}");
        }
    });
}

#[test]
fn a_call_that_cannot_move_the_end_leaves_it_where_it_was() {
    with_room(|| {
        for path in ["/pg/paged/1", "/pg/bytes/1"] {
            let (disk, engine, fd) = start_with_5000_bytes(path);
            let sealed = file(&engine, fd).expect("it is sealed");
            disk.limit_size(Some(header(&disk) + 8192));
            assert_eq!(sealed.set_len(100_000), Err(Errno::FBIG), "{path}");
            assert_eq!(sealed.allocate(0, 0, 100_000), Err(Errno::FBIG), "{path}");
            assert_eq!(sealed.size().map(|size| size.0), Ok(5000), "{path}");
            assert!(sealed.pwrite(&data(2, 100), 8192 + 100).is_err(), "{path}");
            disk.limit_size(Some(header(&disk) + 5600));
            assert!(sealed.pwrite(&data(2, 100), 6000).is_err(), "{path}");
            disk.limit_size(None);
            assert_eq!(sealed.size().map(|size| size.0), Ok(5000), "{path}");
            assert_eq!(read_all(&disk.process(), path), Ok(data(1, 5000)), "{path}");
            sealed.pwrite(&data(2, 100), 9000).expect("written");
            let whole = [data(1, 5000), vec![0; 4000], data(2, 100)].concat();
            assert_eq!(read_all(&disk.process(), path), Ok(whole), "{path}");
        }
    });
}

#[test]
fn what_is_allocated_beyond_the_end_is_given_back() {
    with_room(|| {
        for path in ["/pg/paged/1", "/pg/bytes/1"] {
            let (disk, engine, fd) = start_with_5000_bytes(path);
            let sealed = file(&engine, fd).expect("it is sealed");
            let allocated = || disk.inspect(path, |file| file.allocated());
            let before = allocated();
            for free in ["ftruncate to the same size", "a hole behind the end"] {
                sealed.allocate(1, 0, 1 << 20).expect("allocated");
                assert!(allocated() > before + 200, "{path}: {}", allocated());
                match free {
                    "a hole behind the end" => sealed.allocate(3, 5000, 1 << 20),
                    _ => sealed.set_len(5000),
                }
                .expect("given back");
                // The block where the bytes that tell the size lie may stay.
                assert!(allocated() <= before + 1, "{path}, {free}: {}", allocated());
            }
            assert_eq!(read_all(&disk.process(), path), Ok(data(1, 5000)), "{path}");
        }
    });
}

#[test]
fn a_dup2_that_the_kernel_refuses_changes_nothing() {
    with_room(|| {
        let (disk, engine) = start();
        let a = open(&engine, "/pg/bytes/a", O_RDWR_CREAT).expect("it opens");
        let b = open(&engine, "/pg/bytes/b", O_RDWR_CREAT).expect("it opens");
        file(&engine, b).expect("sealed").write(b"what b says").expect("written");
        let source = file(&engine, a).expect("sealed");
        disk.plan(Some(Plan { at: disk.calls(), fault: Fault::Errno(Errno::AGAIN) }));
        assert_eq!(engine.duplicate_onto(&source, b, false), Err(Errno::AGAIN));
        let mut found = [0; 32];
        let target = file(&engine, b).expect("it is still the other file");
        assert_eq!(target.pread(&mut found, 0), Ok(11));
        drop((source, target));
        engine.close(a).expect("closed");
        engine.close(b).expect("closed");
        assert_eq!(engine.system().real_files(), 0);
    });
}

/// A file of 64 KiB that the program has opened with O_DIRECT, on the disk.
fn direct_file(engine: &Engine, path: &str) -> i32 {
    let fd = open(engine, path, O_RDWR_CREAT | libc::O_DIRECT).expect("it opens");
    let sealed = file(engine, fd).expect("it is sealed");
    sealed.pwrite(&data(1, 65_536), 0).expect("the first write makes the header");
    fd
}

#[test]
fn whole_sectors_of_a_direct_file_go_by_one_call_past_the_page_cache() {
    with_room(|| {
        let (disk, engine) = start();
        let fd = direct_file(&engine, "/pg/bytes/a");
        let sealed = file(&engine, fd).expect("it is sealed");
        // Opens the second descriptor, once the header is on the disk.
        sealed.pwrite(&data(2, 8192), 0).expect("written");
        disk.forget_calls();
        assert_eq!(sealed.pwrite(&data(3, 8192), 4096), Ok(8192));
        assert_eq!(disk.trace(), [Call::Pwrite]);
        let (mut bytes, from) = aligned(8192);
        disk.forget_calls();
        assert_eq!(sealed.pread(&mut bytes[from..from + 8192], 4096), Ok(8192));
        assert_eq!(disk.trace(), [Call::Pread]);
        assert!(bytes[from..from + 8192] == data(3, 8192));
        // A redo log in sectors.
        disk.forget_calls();
        assert_eq!(sealed.pwrite(&data(4, 1024), 512), Ok(1024));
        assert_eq!(disk.trace(), [Call::Pwrite]);
        // What cuts a sector is waited for.
        disk.forget_calls();
        assert_eq!(sealed.pwrite(&data(5, 100), 9000), Ok(100));
        assert_eq!(disk.trace(), [Call::Pread, Call::Pwrite, Call::WriteOut]);
        // So is a read that cuts one, but for the wait.
        disk.forget_calls();
        assert_eq!(sealed.pread(&mut bytes[..100], 9000), Ok(100));
        assert_eq!(disk.trace(), [Call::Pread]);
        assert!(bytes[..100] == data(5, 100));
        drop(sealed);
        assert_eq!(engine.system().real_files(), 2);
        engine.close(fd).expect("closed");
        assert_eq!(engine.system().real_files(), 0);
    });
}

#[test]
fn where_no_direct_descriptor_can_be_had_each_write_is_waited_for() {
    for refused in [Errno::INVAL, Errno::MFILE, Errno::IO] {
        with_room(move || {
            let (disk, engine) = start();
            let fd = direct_file(&engine, "/pg/paged/1");
            let sealed = file(&engine, fd).expect("it is sealed");
            disk.plan(Some(Plan { at: disk.calls() + 2, fault: Fault::Errno(refused) }));
            assert_eq!(sealed.pwrite(&data(2, 8192), 8192), Ok(8192));
            assert!(disk.trace().contains(&Call::Open), "{:?}", disk.trace());
            disk.plan(None);
            disk.forget_calls();
            assert_eq!(sealed.pwrite(&data(3, 8192), 8192), Ok(8192));
            assert_eq!(disk.trace(), [Call::Pwrite, Call::WriteOut, Call::WriteOut]);
            drop(sealed);
            assert_eq!(engine.system().real_files(), 1);
            engine.close(fd).expect("closed");
            assert_eq!(engine.system().real_files(), 0);
        });
    }
}

#[test]
fn what_is_too_small_for_the_sectors_of_a_disk_is_waited_for() {
    with_room(|| {
        let (disk, engine) = start();
        let fd = direct_file(&engine, "/pg/bytes/a");
        let sealed = file(&engine, fd).expect("it is sealed");
        sealed.pwrite(&data(2, 4096), 0).expect("written");
        disk.forget_calls();
        disk.plan(Some(Plan { at: disk.calls(), fault: Fault::Errno(Errno::INVAL) }));
        assert_eq!(sealed.pwrite(&data(3, 512), 1024), Ok(512));
        assert_eq!(disk.trace(), [Call::Pwrite, Call::Pwrite, Call::WriteOut]);
    });
}

#[test]
fn a_descriptor_closed_behind_our_back_takes_its_file_along() {
    with_room(|| {
        let (_, engine) = start();
        let old = open(&engine, "/pg/bytes/a", O_RDWR_CREAT).expect("it opens");
        file(&engine, old).expect("sealed").write(b"sealed words").expect("written");
        engine.system().raw_close(old);
        let new = open(&engine, "/pg/plain/p", O_RDWR_CREAT).expect("it opens");
        assert_eq!(new, old);
        assert!(matches!(engine.descriptor(new), Descriptor::Foreign));
        // Only the plain file is open for real.
        assert_eq!(engine.system().real_files(), 1);
        engine.system().raw_close(new);
        let again = open(&engine, "/pg/bytes/b", O_RDWR_CREAT).expect("it opens");
        let copy =
            engine.duplicate(&file(&engine, again).expect("sealed"), 0, false).expect("a copy");
        engine.system().raw_close(copy);
        let other = open(&engine, "/pg/bytes/a", 0).expect("it opens");
        assert_eq!(other, copy);
        let mut found = [0; 32];
        assert_eq!(file(&engine, other).expect("sealed").pread(&mut found, 0), Ok(12));
    });
}

#[test]
fn a_magic_link_to_a_sealed_file_opens_it_sealed() {
    with_room(|| {
        let (disk, engine) = start();
        let fd = open(&engine, "/pg/paged/a", O_RDWR_CREAT).expect("it opens");
        file(&engine, fd).expect("sealed").pwrite(&data(1, 8192), 0).expect("written");
        let link = open(&engine, "/pg/paged/a", O_PATH).expect("a path is no file");
        for flags in [0, 1, 2] {
            let again = open(&engine, &format!("/proc/self/fd/{link}"), flags).expect("it opens");
            assert!(matches!(engine.descriptor(again), Descriptor::Sealed(_)), "flags {flags}");
            engine.close(again).expect("closed");
        }
        let dup = open(&engine, &format!("/proc/self/fd/{fd}"), 2).expect("it opens");
        assert!(matches!(engine.descriptor(dup), Descriptor::Sealed(_)));
        assert_eq!(read_all(&engine, "/pg/paged/a").expect("read"), data(1, 8192));
        drop(disk);
    });
}

#[test]
fn a_lost_header_does_not_keep_a_file_from_being_emptied() {
    with_room(|| {
        let (disk, engine) = start();
        disk.put("/pg/bytes/a", &[vec![0; 4096], vec![9; 64]].concat());
        assert_eq!(open(&engine, "/pg/bytes/a", 2), Err(Errno::IO));
        let fd = open(&engine, "/pg/bytes/a", 0o1002).expect("nothing of it is wanted");
        file(&engine, fd).expect("sealed").write(b"new words here").expect("written");
        assert_eq!(read_all(&engine, "/pg/bytes/a").expect("read"), b"new words here");
    });
}

#[test]
fn a_file_for_which_no_descriptor_has_a_place_is_not_made() {
    with_room(|| {
        let (disk, engine) = start();
        let fd = open(&engine, "/pg/bytes/a", O_RDWR_CREAT).expect("it opens");
        file(&engine, fd).expect("sealed").write(b"words").expect("written");
        engine.system().set_crowded(true);
        disk.forget_calls();
        assert_eq!(open(&engine, "/pg/bytes/b", O_RDWR_CREAT), Err(Errno::MFILE));
        assert!(!disk.trace().contains(&Call::Open), "it was made");
        assert_eq!(read_all(&engine, "/pg/bytes/a").expect("read"), b"words");
        engine.system().set_crowded(false);
        assert!(open(&engine, "/pg/bytes/b", O_RDWR_CREAT).is_ok());
    });
}

#[test]
fn places_that_no_file_has() {
    with_room(|| {
        let (_, engine) = start();
        let fd = open(&engine, "/pg/bytes/a", O_RDWR_CREAT).expect("it opens");
        let sealed = file(&engine, fd).expect("sealed");
        let far = i64::MAX.cast_unsigned() - 1;
        assert_eq!(sealed.pread(&mut [0; 8], far), Ok(0));
        assert_eq!(sealed.pwrite(b"far away", far), Err(Errno::FBIG));
        assert_eq!(sealed.set_len(far), Err(Errno::FBIG));
    });
}

#[test]
fn a_file_that_must_be_sealed_and_is_not_is_refused() {
    with_room(|| {
        let (disk, engine) = start();
        disk.put("/pg/paged/plain", b"these words were written without the library");
        disk.symlink("/pg/link", "/pg/paged/plain");
        assert_eq!(open(&engine, "/pg/paged/plain", 0), Err(Errno::IO));
        assert_eq!(open(&engine, "/pg/link", 2), Err(Errno::IO));
        assert_eq!(open(&engine, "/pg/paged/../paged/plain", 1), Err(Errno::IO));
        assert!(engine.system().visible().is_empty());
        assert_eq!(open(&engine, "/pg/.tidelock/keyring", 0), Err(Errno::NOENT));
    });
}

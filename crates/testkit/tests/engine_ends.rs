//! What a process remembers of a file's end: a small append asks the kernel for nothing, and
//! whatever moves the end, or changes the block that it cuts, is seen by who remembers it.

use std::io::IoSlice;
use std::rc::Rc;

use libc::{O_APPEND, O_CREAT, O_RDWR, O_TRUNC};
use tidelock_engine::{Errno, Fd, Refusal};
use tidelock_format::{BLOCK_USIZE, Layout, PlainSize, UNIT_USIZE};
use tidelock_testkit::model::data;
use tidelock_testkit::sim::driver::{c, file, read_all, with_room};
use tidelock_testkit::sim::{Call, Engine, SimDisk};

/// Of class bytes, and of a class whose units are whole or holes.
const PATHS: [&str; 2] = ["/pg/bytes/1", "/pg/paged/1"];

fn open(engine: &Engine, path: &str, flags: i32) -> i32 {
    engine.open(Fd::CWD, &c(path), flags, 0o600).expect("it opens")
}

/// What a process that remembers nothing reads.
fn contents(disk: &Rc<SimDisk>, path: &str) -> Vec<u8> {
    read_all(&disk.process(), path).expect("it is read")
}

fn write_all(engine: &Engine, fd: i32, bytes: &[u8], at: Option<u64>) {
    let sealed = file(engine, fd).expect("it is sealed");
    let done = match at {
        Some(at) => sealed.pwrite(bytes, at),
        None => sealed.write(bytes),
    };
    assert_eq!(done, Ok(bytes.len()));
}

fn put(plain: &mut Vec<u8>, bytes: &[u8], at: usize) {
    plain.resize(plain.len().max(at + bytes.len()), 0);
    plain[at..at + bytes.len()].copy_from_slice(bytes);
}

#[test]
fn a_small_append_is_one_call() {
    with_room(|| {
        for len in [1, 5, 15, 16, 17, 100, 120, 512, 4000] {
            for flags in [O_APPEND, 0] {
                let disk = SimDisk::new(Layout::DEFAULT);
                let engine = disk.process();
                let fd = open(&engine, PATHS[0], O_RDWR | O_CREAT | flags);
                let mut plain: Vec<u8> = Vec::new();
                for round in 0..200_u64 {
                    let (before, bytes) = (plain.len(), data(round, len));
                    disk.forget_calls();
                    write_all(&engine, fd, &bytes, None);
                    plain.extend_from_slice(&bytes);
                    // Whole units may have been written behind such an end by others.
                    let asks = before.is_multiple_of(UNIT_USIZE).then_some(Call::Stat);
                    // What tells an odd size lies behind its last block.
                    let fills = before / BLOCK_USIZE < plain.len() / BLOCK_USIZE
                        && plain.len().is_multiple_of(BLOCK_USIZE)
                        && before + BLOCK_USIZE > plain.len();
                    let cuts = fills.then_some(Call::SetSize);
                    let want: Vec<_> = asks.into_iter().chain([Call::Pwrite]).chain(cuts).collect();
                    if round > 0 {
                        assert_eq!(disk.trace(), want, "{len} bytes at {before}, {flags:#o}");
                    }
                }
                assert!(contents(&disk, PATHS[0]) == plain, "{len} bytes, {flags:#o}");
            }
        }
    });
}

#[test]
fn whole_blocks_within_a_file_are_written_by_one_call() {
    with_room(|| {
        let disk = SimDisk::new(Layout::DEFAULT);
        let engine = disk.process();
        let fd = open(&engine, PATHS[0], O_RDWR | O_CREAT);
        let mut plain = data(1, 65_536);
        write_all(&engine, fd, &plain, Some(0));
        for round in 0..100_u64 {
            let at = usize::try_from(round).expect("small") * 512;
            disk.forget_calls();
            write_all(&engine, fd, &data(round, 512), Some(at as u64));
            put(&mut plain, &data(round, 512), at);
            assert_eq!(disk.trace(), [Call::Pwrite], "at {at}");
        }
        assert!(contents(&disk, PATHS[0]) == plain);
    });
}

/// What another descriptor, of the same process or of another one, does to the file in between.
const CHANGES: [fn(&Engine, &str, &mut Vec<u8>); 10] = [
    |engine, path, plain| {
        let fd = open(engine, path, O_RDWR | O_APPEND);
        write_all(engine, fd, &data(3, 77), None);
        plain.extend(data(3, 77));
    },
    |engine, path, plain| {
        let fd = open(engine, path, O_RDWR);
        write_all(engine, fd, &data(4, 1), Some(plain.len() as u64 - 1));
        let last = plain.len() - 1;
        put(plain, &data(4, 1), last);
    },
    |engine, path, plain| {
        let fd = open(engine, path, O_RDWR);
        write_all(engine, fd, &data(5, 8), Some(0));
        put(plain, &data(5, 8), 0);
    },
    |engine, path, plain| {
        let fd = open(engine, path, O_RDWR);
        let end = plain.len().next_multiple_of(UNIT_USIZE);
        write_all(engine, fd, &data(6, UNIT_USIZE), Some(end as u64));
        put(plain, &data(6, UNIT_USIZE), end);
    },
    |engine, path, plain| {
        let fd = open(engine, path, O_RDWR);
        let len = plain.len() - 1;
        file(engine, fd).expect("sealed").set_len(len as u64).expect("cut");
        plain.truncate(len);
    },
    |engine, path, plain| {
        // Cut and grown again, so that the size is the same.
        let fd = open(engine, path, O_RDWR);
        let len = plain.len();
        let sealed = file(engine, fd).expect("sealed");
        sealed.set_len(len as u64 - 1).expect("cut");
        sealed.set_len(len as u64).expect("grown");
        plain[len - 1] = 0;
    },
    |engine, path, plain| {
        let fd = open(engine, path, O_RDWR);
        let len = plain.len() + 40_000;
        file(engine, fd).expect("sealed").set_len(len as u64).expect("grown");
        plain.resize(len, 0);
    },
    |engine, path, plain| {
        let _ = open(engine, path, O_RDWR | O_TRUNC);
        plain.clear();
    },
    |engine, path, plain| {
        let fd = open(engine, path, O_RDWR);
        let sealed = file(engine, fd).expect("sealed");
        let from = plain.len() - 3;
        sealed.allocate(3, from as u64, 3).expect("punched");
        plain[from..].fill(0);
    },
    |engine, path, plain| {
        let fd = open(engine, path, O_RDWR);
        let len = plain.len() + 5;
        file(engine, fd).expect("sealed").allocate(0, 0, len as u64).expect("allocated");
        plain.resize(len, 0);
    },
];

#[test]
fn what_others_do_at_the_end_is_seen_by_who_remembers_it() {
    with_room(|| {
        for path in PATHS {
            for (number, change) in CHANGES.iter().enumerate() {
                for size in [5, 4096, 5000, 5008, 65_536, 65_543, 131_071] {
                    for same_process in [true, false] {
                        let disk = SimDisk::new(Layout::DEFAULT);
                        let engine = disk.process();
                        let other = if same_process { Rc::clone(&engine) } else { disk.process() };
                        let fd = open(&engine, path, O_RDWR | O_CREAT | O_APPEND);
                        let mut plain = data(1, size);
                        write_all(&engine, fd, &plain, None);
                        // Twice: what is remembered after the first is not used.
                        for round in 0..2 {
                            change(&other, path, &mut plain);
                            write_all(&engine, fd, &data(7, 9 + round), None);
                            plain.extend(data(7, 9 + round));
                        }
                        let told = format!("{path}, change {number}, size {size}, {same_process}");
                        assert!(contents(&disk, path) == plain, "{told}");
                    }
                }
            }
        }
    });
}

#[test]
fn whole_units_that_others_wrote_behind_a_remembered_end_stay() {
    with_room(|| {
        for path in PATHS {
            let disk = SimDisk::new(Layout::DEFAULT);
            let (engine, other) = (disk.process(), disk.process());
            let fd = open(&engine, path, O_RDWR | O_CREAT);
            let theirs = open(&other, path, O_RDWR | O_CREAT);
            let mut plain = data(1, 2 * UNIT_USIZE);
            write_all(&engine, fd, &plain, Some(0));
            for round in 0..20_u64 {
                // Beside each other: the generation of sizes does not move.
                let end = plain.len();
                write_all(&other, theirs, &data(round, UNIT_USIZE), Some(end as u64));
                put(&mut plain, &data(round, UNIT_USIZE), end);
                write_all(&engine, fd, &data(round, 512), Some(512));
                put(&mut plain, &data(round, 512), 512);
                write_all(&engine, fd, &data(round, 100), Some(700));
                put(&mut plain, &data(round, 100), 700);
            }
            let log = open(&engine, path, O_RDWR | O_APPEND);
            write_all(&engine, log, &data(9, 3), None);
            plain.extend(data(9, 3));
            assert!(contents(&disk, path) == plain, "{path}");
        }
    });
}

/// The least that a size can be is no size to cut a file to.
#[test]
fn a_short_overwrite_cuts_nothing_that_was_written_behind_a_remembered_end() {
    with_room(|| {
        for path in PATHS {
            let disk = SimDisk::new(Layout::DEFAULT);
            let engine = disk.process();
            let fd = open(&engine, path, O_RDWR | O_CREAT);
            let plain = data(1, 3 * UNIT_USIZE);
            write_all(&engine, fd, &plain[..2 * UNIT_USIZE], Some(0));
            write_all(&engine, fd, &plain[2 * UNIT_USIZE..], Some(2 * UNIT_USIZE as u64));
            let start = usize::try_from(disk.layout().data_offset()).expect("small");
            disk.limit_size(Some(start + 4992));
            let sealed = file(&engine, fd).expect("it is sealed");
            let count = sealed.pwrite(&data(2, 6000), 100).unwrap_or(0);
            disk.limit_size(None);
            assert!(count < 6000, "{path}: the limit holds");
            let mut want = plain;
            put(&mut want, &data(2, 6000)[..count], 100);
            assert!(contents(&disk, path) == want, "{path}: {count} bytes were written");
        }
    });
}

#[test]
fn an_append_follows_what_is_left_of_pieces_that_were_stopped() {
    with_room(|| {
        for limit in [60, 77, 100, 3000, 4096, 5000] {
            let disk = SimDisk::new(Layout::DEFAULT);
            let engine = disk.process();
            let fd = open(&engine, PATHS[0], O_RDWR | O_CREAT | O_APPEND);
            write_all(&engine, fd, &data(1, 3), None);
            let start = usize::try_from(disk.layout().data_offset()).expect("small");
            let (first, second) = (data(2, 77), data(3, 5000));
            disk.limit_size(Some(start + limit));
            let sealed = file(&engine, fd).expect("it is sealed");
            let pieces = [IoSlice::new(&first), IoSlice::new(&second)];
            let count = sealed.writev(&pieces).unwrap_or(0);
            disk.limit_size(None);
            let mut plain = data(1, 3);
            plain.extend_from_slice(&[first.clone(), second.clone()].concat()[..count]);
            write_all(&engine, fd, &data(4, 9), None);
            plain.extend(data(4, 9));
            assert!(contents(&disk, PATHS[0]) == plain, "limit {limit}: {count} bytes");
        }
    });
}

#[test]
fn a_write_elsewhere_does_not_take_the_end_for_its_place() {
    with_room(|| {
        for at in [0, 1, 90, 95, 96, 101, 105, 4095, 4096, 5001, 70_001] {
            let disk = SimDisk::new(Layout::DEFAULT);
            let engine = disk.process();
            let fd = open(&engine, PATHS[0], O_RDWR | O_CREAT);
            let mut plain = data(1, 100);
            write_all(&engine, fd, &plain, Some(0));
            for round in 0..3 {
                write_all(&engine, fd, &data(2, 7), Some(at + round));
                put(&mut plain, &data(2, 7), usize::try_from(at + round).expect("small"));
                let end = plain.len();
                write_all(&engine, fd, &data(3, 5), Some(end as u64));
                put(&mut plain, &data(3, 5), end);
            }
            assert!(contents(&disk, PATHS[0]) == plain, "at {at}");
        }
    });
}

/// A forked child has the open file too: the parent goes by what the kernel says from then on.
#[test]
fn nothing_is_remembered_of_files_that_a_fork_shares() {
    with_room(|| {
        let disk = SimDisk::new(Layout::DEFAULT);
        let engine = disk.process();
        let fd = open(&engine, PATHS[0], O_RDWR | O_CREAT | O_APPEND);
        write_all(&engine, fd, &data(1, 100), None);
        engine.forked();
        disk.forget_calls();
        write_all(&engine, fd, &data(2, 100), None);
        assert!(disk.trace().contains(&Call::Stat), "{:?}", disk.trace());
        assert!(contents(&disk, PATHS[0]) == [data(1, 100), data(2, 100)].concat());
    });
}

/// `> FILE`, logrotate with copytruncate: the header goes with the bytes, and who has the file open
/// puts it there again.
#[test]
fn what_is_appended_after_a_program_without_the_library_cut_the_file_can_be_read() {
    with_room(|| {
        for path in PATHS {
            for (flags, len) in [(O_APPEND, 100), (O_APPEND, 16), (O_APPEND, 4096), (0, 100)] {
                let what = format!("{path} {flags} {len}");
                let disk = SimDisk::new(Layout::DEFAULT);
                let engine = disk.process();
                let fd = open(&engine, path, O_RDWR | O_CREAT | flags);
                let before: Vec<u8> = (0..3).flat_map(|round| data(round, len)).collect();
                write_all(&engine, fd, &before, None);
                disk.wait(100);
                write_all(&engine, fd, &data(3, len), None);
                disk.cut_off(path);
                // It may lie where it would have lain, until the header is looked for. Somebody who
                // appends without a pause looks too.
                for round in 4..8 {
                    write_all(&engine, fd, &data(round, len), None);
                    disk.wait(400);
                }
                let after: Vec<u8> = (4..8).flat_map(|round| data(round, len)).collect();
                let found = read_all(&disk.process(), path);
                let found = found.unwrap_or_else(|why| panic!("{what}: {why:?}"));
                assert!(found.ends_with(&after), "{what}: {} bytes", found.len());
                let hole = &found[..found.len() - after.len()];
                let old = [before, data(3, len)].concat();
                // The block that the end cut may have been written again.
                assert!(hole.iter().zip(&old).all(|(is, was)| [0, *was].contains(is)), "{what}");
                assert!(hole.len() <= old.len(), "{what}");
                // And as long as it is open.
                disk.cut_off(path);
                disk.wait(2000);
                write_all(&engine, fd, &data(9, len), None);
                assert!(contents(&disk, path).ends_with(&data(9, len)), "{what}");
            }
        }
    });
}

#[test]
fn a_file_that_a_fork_shares_gets_its_header_again_at_once() {
    with_room(|| {
        let disk = SimDisk::new(Layout::DEFAULT);
        let engine = disk.process();
        let fd = open(&engine, PATHS[0], O_RDWR | O_CREAT | O_APPEND);
        write_all(&engine, fd, &data(1, 100), None);
        engine.forked();
        disk.cut_off(PATHS[0]);
        write_all(&engine, fd, &data(2, 100), None);
        assert!(contents(&disk, PATHS[0]) == data(2, 100));
    });
}

#[test]
fn a_file_that_was_cut_and_is_made_longer_has_its_header() {
    with_room(|| {
        let disk = SimDisk::new(Layout::DEFAULT);
        let engine = disk.process();
        let fd = open(&engine, PATHS[0], O_RDWR | O_CREAT);
        write_all(&engine, fd, &data(1, 100), None);
        disk.cut_off(PATHS[0]);
        file(&engine, fd).expect("it is sealed").set_len(50).expect("it is made longer");
        assert!(contents(&disk, PATHS[0]) == [0; 50]);
    });
}

/// Who opened it after the cut has given it a key of its own.
#[test]
fn a_file_that_has_another_key_by_now_is_not_written_under_the_old_one() {
    with_room(|| {
        let disk = SimDisk::new(Layout::DEFAULT);
        let (first, second) = (disk.process(), disk.process());
        let fd = open(&first, PATHS[0], O_RDWR | O_CREAT | O_APPEND);
        write_all(&first, fd, &data(1, 100), None);
        write_all(&first, fd, &data(1, 100), None);
        disk.cut_off(PATHS[0]);
        let other = open(&second, PATHS[0], O_RDWR | O_APPEND);
        write_all(&second, other, &data(2, 100), None);
        disk.wait(2000);
        let sealed = file(&first, fd).expect("it is sealed");
        for _ in 0..3 {
            assert_eq!(sealed.write(&data(3, 100)), Err(Errno::IO));
            disk.wait(1);
        }
        assert_eq!(first.system().take_reports(), [Refusal::AnotherHeader]);
        write_all(&second, other, &data(4, 100), None);
        assert!(contents(&disk, PATHS[0]) == [data(2, 100), data(4, 100)].concat());
    });
}

#[test]
fn an_append_that_a_limit_stops_leaves_the_end_where_it_was() {
    with_room(|| {
        let lengths = [0, 1, 5, 15, 16, 17, 31, 33];
        for (before, len) in lengths.iter().flat_map(|a| lengths.map(|b| (*a, b + 1))) {
            for room in 0..len + 17 {
                let disk = SimDisk::new(Layout::DEFAULT);
                let engine = disk.process();
                let fd = open(&engine, PATHS[0], O_RDWR | O_CREAT | O_APPEND);
                // Longer, so that there is a header.
                let mut plain = data(1, before + 48);
                write_all(&engine, fd, &plain, None);
                let end = PlainSize(plain.len() as u64).on_disk(disk.layout()).0;
                disk.limit_size(Some(usize::try_from(end).expect("small") + room));
                let bytes = data(2, len);
                let done = file(&engine, fd).expect("it is sealed").write(&bytes).unwrap_or(0);
                disk.limit_size(None);
                plain.extend_from_slice(&bytes[..done]);
                let found = contents(&disk, PATHS[0]);
                assert!(found == plain, "{len} behind {before}, {room} of room: {done} done");
            }
        }
    });
}

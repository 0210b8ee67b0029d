//! What one file call costs sealed, beside the same call on a plain file in the same process.
//!
//! Run by `make bench` as `tidelock exec -D SEALED -- file_calls`, with two directories of one file system in
//! the environment; without the library both columns are plain, which is the control.

use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};

const FILE: u64 = 64 << 20;
const PAGE: usize = 8192;

#[repr(align(4096))]
struct Page([u8; PAGE]);

fn arms() -> [(&'static str, PathBuf); 2] {
    let place = |name: &str| PathBuf::from(std::env::var_os(name).unwrap_or_else(|| "target/bench".into()));
    [("plain", place("TIDELOCK_BENCH_PLAIN")), ("sealed", place("TIDELOCK_BENCH_SEALED"))]
}

/// A paged file: the name is that of a relation fork in the profile for PostgreSQL.
fn prepare(directory: &Path) -> (PathBuf, File) {
    let folder = directory.join("base/1");
    std::fs::create_dir_all(&folder).expect("the bench directory can be written");
    let path = folder.join("16384");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&path)
        .expect("the bench file can be made");
    let page = Page([0x5a; PAGE]);
    for at in (0..FILE).step_by(PAGE) {
        file.write_all_at(&page.0, at).expect("the bench file can be filled");
    }
    (path, file)
}

fn each(c: &mut Criterion, name: &str, run: impl Fn(&mut BenchmarkGroup<'_, WallTime>, &str, &Path, &File)) {
    let mut group = c.benchmark_group(name);
    for (arm, directory) in arms() {
        let (path, file) = prepare(&directory);
        run(&mut group, arm, &path, &file);
    }
    group.finish();
}

fn next(at: &mut u64) -> u64 {
    *at = (*at + 37 * PAGE as u64) % FILE;
    *at
}

fn calls(c: &mut Criterion) {
    each(c, "pread 8 KiB", |group, arm, _, file| {
        let (mut at, mut page) = (0, Page([0; PAGE]));
        group.bench_function(arm, |b| {
            b.iter(|| file.read_exact_at(black_box(&mut page.0), next(&mut at)).expect("read"));
        });
    });
    each(c, "pwrite 8 KiB", |group, arm, _, file| {
        let (mut at, page) = (0, Page([7; PAGE]));
        group.bench_function(arm, |b| {
            b.iter(|| file.write_all_at(black_box(&page.0), next(&mut at)).expect("write"));
        });
    });
    each(c, "open and close", |group, arm, path, _| {
        group.bench_function(arm, |b| b.iter(|| drop(File::open(black_box(path)).expect("open"))));
    });
    each(c, "pwrite 100 bytes unaligned", |group, arm, _, file| {
        let (mut at, bytes) = (0, [7u8; 100]);
        group.bench_function(arm, |b| {
            b.iter(|| file.write_all_at(black_box(&bytes), next(&mut at) + 37).expect("write"));
        });
    });
    each(c, "pread 100 bytes unaligned", |group, arm, _, file| {
        let (mut at, mut bytes) = (0, [0u8; 100]);
        group.bench_function(arm, |b| {
            b.iter(|| file.read_exact_at(black_box(&mut bytes), next(&mut at) + 37).expect("read"));
        });
    });
    each(c, "stat", |group, arm, path, _| {
        group.bench_function(arm, |b| b.iter(|| std::fs::metadata(black_box(path)).expect("stat")));
    });
}

criterion_group!(benches, calls);
criterion_main!(benches);

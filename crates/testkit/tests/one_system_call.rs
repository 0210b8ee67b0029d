//! An aligned 8 KiB read or write of a paged file, or a seek to its end, takes exactly one system
//! call, as strace sees it; the first read behind an open takes one more. What small files are used
//! for takes so many as are listed here.
//!
//! So an aligned page takes no lock and allocates nothing: the library's locks and its own
//! allocator (which serves AWS-LC too) block signals by a system call while they are held. Whoever
//! calls libc's allocator or locks between the marks ends the program, which replaces them.

use std::fs;

use rustix::fs::SeekFrom;
use tidelock_testkit::twins::{Build, Product, Workspace, compile, sections};

#[test]
fn an_aligned_page_takes_one_system_call() {
    let place = Workspace::new("one-call").unwrap();
    let program = compile("pages_by_one_call", Build::Common, &place.programs()).unwrap();
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    let dir = place.protect(&product, "postgres").unwrap_or_else(|error| panic!("{error}"));
    let trace = dir.with_extension("trace");
    let traced = place.run_traced(&product, &program, &dir, &trace, &[]);
    let ended = traced.unwrap_or_else(|error| panic!("{error}\nhint: install strace"));
    assert!(ended.good(), "{ended}");
    assert!(ended.output.contains("bad 0\n"), "{}", ended.output);

    let sections = sections(&fs::read_to_string(&trace).unwrap());
    let names: Vec<_> = sections.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["pwrite64", "pread64", "pread64", "pwrite64", "lseek"]);
    for (name, calls) in &sections {
        let others: Vec<_> = calls.iter().filter(|call| !call.starts_with(name)).collect();
        assert!(others.is_empty(), "besides {name}: {others:#?}");
        assert_eq!(calls.len(), 32, "{name}: {calls:#?}");
    }
}

/// Which system calls each section of the program takes, in their order. A call more is a choice to
/// be made, see docs/decisions/0017-small-files.md and 0019-small-writes.md.
const CALLS: [(&str, &str); 14] = [
    ("open and close", "openat2 statx pread64 dup3 dup3 close dup3"),
    ("sync", "openat2 statx pread64 dup3 dup3 fsync close dup3"),
    ("first read", "fcntl pread64"),
    ("writeback of all", "sync_file_range"),
    ("writeback of a later range", "sync_file_range sync_file_range"),
    ("fstat", "fstat"),
    ("stat", "newfstatat openat2 close"),
    ("write within a page", "rt_sigprocmask pread64 pwrite64 rt_sigprocmask"),
    ("append", "rt_sigprocmask pwrite64 rt_sigprocmask"),
    ("write on", "rt_sigprocmask pwrite64 rt_sigprocmask"),
    ("pwrite of blocks", "rt_sigprocmask pwrite64 rt_sigprocmask"),
    ("a page by write", "pwrite64"),
    ("rewind and read", "pread64"),
    ("a new file", "newfstatat openat2 statx utimensat dup3 dup3"),
];

#[test]
fn calls_of_small_files_are_counted() {
    let place = Workspace::new("few-calls").unwrap();
    let program = compile("small_files_by_few_calls", Build::Common, &place.programs()).unwrap();
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    let dir = place.protect(&product, "postgres").unwrap_or_else(|error| panic!("{error}"));
    let trace = dir.with_extension("trace");
    // The program alone: the agent looks after those that come and go meanwhile.
    let traced = place.run_traced(&product, &program, &dir, &trace, &[]);
    let ended = traced.unwrap_or_else(|error| panic!("{error}\nhint: install strace"));
    assert!(ended.good(), "{ended}");
    assert!(ended.output.contains("bad 0\n"), "{}", ended.output);

    let found = sections(&by_the_marker(&fs::read_to_string(&trace).unwrap()));
    let names = found.iter().map(|(name, calls)| {
        let calls = calls.iter().map(|call| call.split('(').next().unwrap_or_default());
        (name.as_str(), calls.collect::<Vec<_>>().join(" "))
    });
    let want: Vec<_> = CALLS.map(|(name, calls)| (name, calls.to_owned())).into();
    assert_eq!(names.collect::<Vec<_>>(), want, "{found:#?}");

    // And a header takes one block of the disk: behind it is a hole, up to the data at 8192.
    let file = fs::File::open(dir.join("base/5/16384")).unwrap();
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(0)), Ok(4096));
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(4096)), Ok(8192));
    assert_eq!(file.metadata().unwrap().len(), 16_384);
}

/// The lines of the process that writes the marks.
fn by_the_marker(trace: &str) -> String {
    let marker = trace.lines().find(|line| line.contains(" write(-1, \"begin"));
    let process = marker.and_then(|line| line.split(' ').next()).unwrap_or_default();
    let own = trace.lines().filter(|line| line.split(' ').next() == Some(process));
    // A call that another process interrupted in the trace has two lines.
    let whole = own.filter(|line| !line.contains("<... "));
    whole.flat_map(|line| [line, "\n"]).collect()
}

#[test]
fn a_trace_is_cut_at_its_marks() {
    let trace = "7 write(-1, \"begin pread64\", 13) = -1 EBADF\n7 pread64(1023, ...) = 8192\n\
                 7 write(-1, \"end\", 3) = -1 EBADF\n7 close(3) = 0\n";
    let call = "pread64(1023, ...) = 8192".to_owned();
    assert_eq!(sections(trace), [("pread64".to_owned(), vec![call])]);
}

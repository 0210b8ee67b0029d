//! An aligned 8 KiB read or write of a paged file, or a seek to its end, takes exactly one system
//! call, as strace sees it.
//!
//! So it takes no lock and allocates nothing: the library's locks and its own allocator (which
//! serves AWS-LC too) block signals by a system call while they are held. Whoever calls libc's
//! allocator or locks between the marks ends the program, which replaces them.

use std::fs;

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

#[test]
fn a_trace_is_cut_at_its_marks() {
    let trace = "7 write(-1, \"begin pread64\", 13) = -1 EBADF\n7 pread64(1023, ...) = 8192\n\
                 7 write(-1, \"end\", 3) = -1 EBADF\n7 close(3) = 0\n";
    let call = "pread64(1023, ...) = 8192".to_owned();
    assert_eq!(sections(trace), [("pread64".to_owned(), vec![call])]);
}

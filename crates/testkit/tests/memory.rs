//! What memory each process pays for the library: its initialised data, which takes a page of its
//! own where it is written, the pages of a small program that was started with keys, and what the
//! kernel charges it for where it does not overcommit.
//!
//! A server's connection is a process, so a page here is a page for each of them, and a fault. A
//! limit lies a little above what was measured when it was set. Raising one is a choice to be
//! explained in the commit. Tables begin as zeros and lie behind all else: `preload/tables.ld`.

use std::fs;

use fastrand::Rng;
use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSection as _};
use tidelock_testkit::alternate::Place;
use tidelock_testkit::twins::{Product, compile_other};

/// Bytes of sections, in the profiles dev and release.
const DATA: [(&str, u64, u64); 3] =
    [(".data", 8_000, 8_000), (".data.rel.ro", 50_000, 12_000), (".bss", 8_000, 8_000)];

#[test]
fn tables_of_the_library_lie_apart_and_are_not_initialised_data() {
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    let bytes = fs::read(product.library()).unwrap();
    let file = ElfFile64::<Endianness>::parse(&*bytes).unwrap();
    for (name, dev, release) in DATA {
        let limit = if is_release(&product) { release } else { dev };
        let size = file.section_by_name(name).expect("the library has it").size();
        println!("{name}: {size} bytes, limit {limit}");
        assert!(size <= limit, "{name} has {size} bytes, more than {limit}");
    }
}

/// KiB that a program has more when it was started with keys: private and dirty in the profiles dev
/// and release, and locked. First as it starts, then when it has read one file, whose shared words
/// count too as long as one process alone has them.
const MORE: [(&str, f64, f64, f64); 2] =
    [("at the start", 480.0, 250.0, 48.0), ("with one file", 520.0, 290.0, 48.0)];

#[test]
fn a_program_with_keys_has_few_pages_of_its_own() {
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    // Pages of a library that was just built, and are not on the disk yet, count as dirty.
    fs::File::open(product.library()).unwrap().sync_all().unwrap();
    let place = Place::new("memory").unwrap_or_else(|error| panic!("{error}"));
    let program = compile_other("benches/scale.c", &place.programs()).unwrap();
    let mut draw = Rng::with_seed(1);
    // By processes that end: what is measured did not make the files.
    place.start(&program).unwrap().round("fill 0 1", &mut draw).unwrap();
    let mut arms = place.start(&program).unwrap();
    for (when, dev, release, locked_limit) in MORE {
        let limit = if is_release(&product) { release } else { dev };
        let round = arms.round("memory 0 0", &mut draw).unwrap();
        let more = |index: usize| round[2][index] - round[0][index];
        let (dirty, locked) = (more(1), more(2));
        println!("{when}: {dirty} KiB, limit {limit}; locked {locked}, limit {locked_limit}");
        assert!(dirty > 0.0, "the program has no library");
        assert!(dirty <= limit, "{when}: {dirty} KiB more, limit {limit}");
        assert!(locked <= locked_limit, "{when}: {locked} KiB locked, limit {locked_limit}");
        arms.round("files 0 1", &mut draw).unwrap();
    }
}

/// KiB of private memory that a program with keys may write and has not asked for. Where the kernel
/// does not overcommit, each connection of a server is charged for it.
const CHARGED: f64 = 4096.0;

#[test]
fn a_program_with_keys_is_charged_for_little_that_it_does_not_use() {
    let place = Place::new("charged").unwrap_or_else(|error| panic!("{error}"));
    let program = compile_other("benches/scale.c", &place.programs()).unwrap();
    let mut draw = Rng::with_seed(1);
    place.start(&program).unwrap().round("fill 0 1", &mut draw).unwrap();
    let mut arms = place.start(&program).unwrap();
    arms.round("files 0 1", &mut draw).unwrap();
    let round = arms.round("memory 0 0", &mut draw).unwrap();
    let more = round[2][4] - round[0][4];
    println!("{more} KiB charged more, limit {CHARGED}");
    assert!(more > 0.0, "the program has no library");
    assert!(more <= CHARGED, "{more} KiB charged more, limit {CHARGED}");
}

/// Page faults that a child has more, below a program with keys that has read one file, in the
/// profiles dev and release. Here lie tables that nobody may look through at each fork. Measured:
/// 31 to 34 and 9 to 11. Code that was not optimised lies on more pages, and where the kernel put
/// the library moves both by one or two.
const FAULTS: (f64, f64) = (44.0, 16.0);

#[test]
fn a_fork_touches_few_pages() {
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    let limit = if is_release(&product) { FAULTS.1 } else { FAULTS.0 };
    let place = Place::new("faults").unwrap_or_else(|error| panic!("{error}"));
    let program = compile_other("benches/scale.c", &place.programs()).unwrap();
    let mut draw = Rng::with_seed(1);
    place.start(&program).unwrap().round("fill 0 1", &mut draw).unwrap();
    let mut arms = place.start(&program).unwrap();
    arms.round("files 0 1", &mut draw).unwrap();
    let round = arms.round("faults 200 0", &mut draw).unwrap();
    let more = round[2][0] - round[0][0];
    println!("{more} page faults more, limit {limit}");
    assert!(more > 0.0, "the program has no library");
    assert!(more <= limit, "{more} page faults more, limit {limit}");
}

fn is_release(product: &Product) -> bool {
    product.library().parent().is_some_and(|dir| dir.ends_with("release"))
}

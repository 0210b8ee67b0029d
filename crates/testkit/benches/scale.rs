//! Whether the library costs the same at every size: `make bench-scale`, or `cargo bench -p
//! tidelock-testkit --bench scale -- --only files`, after `make`.
//!
//! ```text
//!   sizes      reads and writes at random places of sparse files, 1 MiB to 100 GiB
//!   processes  1 to 1,000, forked from one parent, that read from the same 100 files
//!   threads    1 to 64, that read and write one file, or each its own
//!   files      10 to 100,000, opened one after the other; memory of the process
//! ```
//!
//! scale.c runs three times, plain, plain again and by `tidelock exec`, and all three take turns
//! (`tidelock_testkit::alternate`). Measured is CPU time of the threads that do the work.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use fastrand::Rng;
use tidelock_testkit::alternate::{Place, Round, Samples, base, more, rows_in, signed};
use tidelock_testkit::twins::{Result, compile_other};

/// Whether the library costs the same at every size.
#[derive(Parser)]
struct Given {
    /// How often the programs are started; intervals are over starts.
    #[arg(long, default_value_t = 6)]
    starts: usize,
    /// Blocks in each start.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// These parts; all without it.
    #[arg(long)]
    only: Vec<Part>,
    /// Random places in each file of `sizes`.
    #[arg(long, default_value_t = 4000)]
    places: u32,
    /// The most processes.
    #[arg(long, default_value_t = 1000)]
    processes: u32,
    /// The most files.
    #[arg(long, default_value_t = 100_000)]
    files: u32,
    /// A new file for all rounds, a line of JSON each: nanoseconds or bytes, by arm.
    #[arg(long)]
    rows: Option<PathBuf>,
    /// Seed of the order within the rounds.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Sizes,
    Processes,
    Threads,
    Files,
}

/// MiB of the files, with their names.
const SIZES: [(u32, &str); 4] =
    [(1, "1 MiB"), (100, "100 MiB"), (10_240, "10 GiB"), (102_400, "100 GiB")];
const PROCESSES: [u32; 4] = [1, 10, 100, 1000];
const THREADS: [u32; 4] = [1, 4, 16, 64];
const FILES: [u32; 4] = [10, 1000, 10_000, 100_000];
/// What `memory` answers.
const KINDS: [&str; 5] = [
    "resident",
    "private and dirty",
    "locked and there",
    "RLIMIT_MEMLOCK",
    "charged without overcommit",
];
/// Calls of all processes, or of all threads, in a block.
const CALLS: u32 = 20_000;

fn main() -> ExitCode {
    match measure(&Given::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(given: &Given) -> Result<()> {
    let place = Place::new("scale")?;
    let program = compile_other("benches/scale.c", &place.programs())?;
    let mut draw = Rng::with_seed(given.seed);
    let kept = given.rows.as_deref().map(rows_in).transpose()?;
    let kept = kept.as_ref();
    let wanted = |part| given.only.is_empty() || given.only.contains(&part);
    println!("{} starts of {} rounds; CPU time\n", given.starts, given.rounds);
    for part in [Part::Sizes, Part::Processes, Part::Threads].into_iter().filter(|p| wanted(*p)) {
        let rows = rows(part, given);
        let mut samples = Samples::kept_in(kept);
        for start in 0..given.starts {
            let mut arms = place.start(&program)?;
            // Files are made, caches filled.
            for row in &rows {
                arms.round(&row.order, &mut draw)?;
            }
            for _ in 0..given.rounds {
                for row in &rows {
                    samples.add(&row.order, start, arms.round(&row.order, &mut draw)?)?;
                }
            }
            eprintln!("start {} of {}", start + 1, given.starts);
        }
        print_table(part, &rows, &samples);
    }
    if wanted(Part::Files) {
        files(given, &place, &program, &mut draw, kept)?;
    }
    Ok(())
}

/// One order, and what it stands for.
struct Row {
    order: String,
    name: String,
}

fn rows(part: Part, given: &Given) -> Vec<Row> {
    let row = |order: String, name: String| Row { order, name };
    match part {
        Part::Sizes => SIZES
            .iter()
            .map(|(mib, name)| row(format!("size {mib} {}", given.places), (*name).into()))
            .collect(),
        Part::Processes => PROCESSES
            .iter()
            .filter(|n| **n <= given.processes)
            .map(|n| row(format!("forked {n} {}", CALLS / n), format!("{n} processes")))
            .collect(),
        Part::Threads => ["same", "distinct"]
            .iter()
            .flat_map(|files| THREADS.iter().map(move |n| (files, n)))
            .map(|(files, n)| row(format!("{files} {n} {CALLS}"), format!("{n} threads, {files}")))
            .collect(),
        Part::Files => Vec::new(),
    }
}

/// What the numbers of an answer are.
fn numbers(part: Part) -> &'static [&'static str] {
    match part {
        Part::Sizes => &["read", "write"],
        Part::Processes => &["fork", "open and first read", "read"],
        Part::Threads => &["read", "write", "both, as wall time"],
        Part::Files => &["open, read, close"],
    }
}

/// A table for each number; the last column says whether the cost is flat.
fn print_table(part: Part, rows: &[Row], samples: &Samples<'_>) {
    for (index, number) in numbers(part).iter().enumerate() {
        head(number);
        let mut first = None;
        for Row { order, name } in rows {
            print_row(name, samples, order, index, 1000.0, &mut first);
        }
        println!();
    }
}

fn head(number: &str) {
    println!(
        "| us: {number} | plain | sealed | difference [95 %] | sealed / plain [95 %] | \
         control / plain [95 %] | difference over the first |"
    );
    println!("| --- | ---: | ---: | --- | --- | --- | ---: |");
}

fn print_row(
    name: &str,
    samples: &Samples<'_>,
    order: &str,
    index: usize,
    unit: f64,
    first: &mut Option<f64>,
) {
    let over = |value: &dyn Fn(&Round) -> f64| samples.over(order, value);
    let plain = over(&|round| base(round, index) / unit);
    let sealed = over(&|round| round[2][index] / unit);
    let difference = over(&|round| more(round, index) / unit);
    let ratio = over(&|round| round[2][index] / base(round, index));
    let control = over(&|round| round[1][index] / round[0][index]);
    let first = *first.get_or_insert(difference.mid);
    println!(
        "| {name} | {:.3} | {:.3} | {} | {ratio} | {control} | {:.2} |",
        plain.mid,
        sealed.mid,
        signed(&difference),
        difference.mid / first
    );
}

/// A process that has opened ever more files: what the next ones cost, and its memory then.
fn files(
    given: &Given,
    place: &Place,
    program: &Path,
    draw: &mut Rng,
    kept: Option<&File>,
) -> Result<()> {
    let counts: Vec<u32> = FILES.into_iter().filter(|count| *count <= given.files).collect();
    let most = counts.last().copied().unwrap_or_default();
    let mut samples = Samples::kept_in(kept);
    for start in 0..given.starts {
        let mut arms = place.start(program)?;
        if start == 0 {
            arms.round(&format!("fill 0 {most}"), draw)?;
            // A process that has opened nothing yet.
            arms = place.start(program)?;
        }
        let mut from = 0;
        for count in &counts {
            let opened = arms.round(&format!("files {from} {count}"), draw)?;
            samples.add(&format!("first {count}"), start, opened)?;
            samples.add(&format!("memory {count}"), start, arms.round("memory 0 0", draw)?)?;
            from = *count;
        }
        for count in &counts {
            // The second time in a row, so that the keys are known where they are kept.
            arms.round(&format!("files 0 {count}"), draw)?;
            let opened = arms.round(&format!("files 0 {count}"), draw)?;
            samples.add(&format!("again {count}"), start, opened)?;
        }
        eprintln!("start {} of {}", start + 1, given.starts);
    }
    for (order, what) in [("first", "opened for the first time"), ("again", "opened again")] {
        head(&format!("open, read, close: {what}"));
        let mut first = None;
        for count in &counts {
            print_row(
                &format!("up to {count} files"),
                &samples,
                &format!("{order} {count}"),
                0,
                1000.0,
                &mut first,
            );
        }
        println!();
    }
    for (index, what) in KINDS.iter().enumerate() {
        println!("| memory, MiB: {what} | plain | sealed | difference [95 %] |");
        println!("| --- | ---: | ---: | --- |");
        for count in &counts {
            let order = format!("memory {count}");
            let over =
                |value: &dyn Fn(&Round) -> f64| samples.over(&order, |round| value(round) / 1024.0);
            let (plain, sealed) =
                (over(&|round| base(round, index)), over(&|round| round[2][index]));
            let difference = signed(&over(&|round| more(round, index)));
            println!("| {count} files | {:.3} | {:.3} | {difference} |", plain.mid, sealed.mid);
        }
        println!();
    }
    Ok(())
}

//! What single calls cost more when the file is sealed: `cargo bench -p tidelock-testkit --bench
//! calls`, after `make`. Options: `--starts 10 --rounds 20 --cold 1024` (MiB).
//!
//! calls.c runs three times, plain, plain again and by `tidelock exec`; all three and the cipher
//! alone take turns in blocks of some milliseconds (`tidelock_testkit::alternate`). Measured is the
//! CPU time of the thread, so that other load on the machine shows as a little noise, not as a
//! factor. Aligned calls are judged by what is left without the cipher.
//!
//! A hot page lies in the CPU's caches; a warm one is one of 8 MiB; a cold one has to come from
//! memory. A block by O_DIRECT goes to the device, as those of MariaDB's redo log do: the directory
//! of temporary files (TMPDIR) must lie on a file system that has it.

use std::fs;
use std::hint::black_box;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use fastrand::Rng;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use tidelock_cipher::{KeySlot, UnitCipher as _};
use tidelock_ffi::{Cells, HOST, Xts};
use tidelock_format::{Class, DataKeyId, Generation, KeyringId, Layout, UnitNumber};
use tidelock_lab::statistics::Interval;
use tidelock_runtime::{Source, header_under, take};
use tidelock_testkit::alternate::{Place, Samples, base, more, rows_in, signed};
use tidelock_testkit::twins::{Error, Result, compile_other};

/// The most that a call may cost more, in microseconds.
enum Bar {
    /// Beside the cipher of 8 KiB, which this way of it takes.
    Cipher(Way, f64),
    /// In all.
    Whole(f64),
}

#[derive(Clone, Copy)]
enum Way {
    Seal,
    Open,
}

use Bar::{Cipher, Whole};
use Way::{Open, Seal};

/// The order of calls.c, what it does, how often in a block, and the bar.
const CALLS: [(&str, &str, u32, Bar); 14] = [
    ("read-hot", "pread 8 KiB, hot", 1000, Cipher(Open, 0.1)),
    ("read-warm", "pread 8 KiB, of 8 MiB", 1000, Cipher(Open, 0.1)),
    ("read-cold", "pread 8 KiB, cold", 1000, Cipher(Open, 0.1)),
    ("write-hot", "pwrite 8 KiB, hot", 1000, Cipher(Seal, 0.1)),
    ("write-warm", "pwrite 8 KiB, of 8 MiB", 1000, Cipher(Seal, 0.1)),
    ("write-cold", "pwrite 8 KiB, cold", 1000, Cipher(Seal, 0.1)),
    ("open-close", "open and close", 500, Whole(1.5)),
    ("write-within", "pwrite 100 bytes, unaligned", 1000, Whole(1.0)),
    ("block-within", "pwrite 512 bytes within", 1000, Whole(1.0)),
    ("block-at-end", "pwrite 512 bytes at the end", 1000, Whole(1.0)),
    // The device is waited for, so there are few.
    ("block-direct", "pwrite 512 bytes, O_DIRECT", 100, Whole(1.0)),
    ("append", "write 120 bytes, O_APPEND", 1000, Whole(1.0)),
    ("write-on", "write 120 bytes at the end", 1000, Whole(1.0)),
    ("fstat", "fstat", 1000, Whole(0.5)),
];

/// What single calls cost more when the file is sealed.
#[derive(Parser)]
struct Given {
    /// How often the programs are started; intervals are over starts.
    #[arg(long, default_value_t = 10)]
    starts: usize,
    /// Blocks of each call in each start.
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// MiB of the file whose pages are cold.
    #[arg(long, default_value_t = 1024)]
    cold: u32,
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

fn main() -> ExitCode {
    match compare(&Given::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(given: &Given) -> Result<()> {
    let place = Place::new("calls")?;
    let program = compile_other("benches/calls.c", &place.programs())?;
    let cipher = TheCipher::new();
    one_processor().map_err(|source| Error::Io { what: "choosing a processor".into(), source })?;
    let mut draw = Rng::with_seed(given.seed);
    let rows = given.rows.as_deref().map(rows_in).transpose()?;
    let mut samples = Samples::kept_in(rows.as_ref());
    for start in 0..given.starts {
        let mut arms = place.start(&program)?;
        arms.round(&format!("prepare {}", given.cold), &mut draw)?;
        for _ in 0..given.rounds {
            for (order, _, count, bar) in &CALLS {
                let mut round = arms.round(&format!("{order} {count}"), &mut draw)?;
                // It stands beside plain and sealed of its own round.
                let alone = match bar {
                    Cipher(way, _) => cipher.measure(*way, *count),
                    Whole(_) => 0.0,
                };
                round[2].push(alone);
                samples.add(order, start, round)?;
            }
        }
        eprintln!("start {} of {}", start + 1, given.starts);
    }
    println!("{} starts of {} rounds; {}\n", given.starts, given.rounds, xts_path());
    print_table(&samples);
    Ok(())
}

fn print_table(samples: &Samples<'_>) {
    println!(
        "| CPU, microseconds | plain | control | sealed | difference [95 %] | cipher | \
         without the cipher [95 %] | bar | |"
    );
    println!("| --- | ---: | --- | ---: | --- | ---: | --- | ---: | --- |");
    for (order, name, _, bar) in &CALLS {
        let us = |value: &dyn Fn(&[Vec<f64>; 3]) -> f64| {
            samples.over(order, |round| value(round) / 1000.0)
        };
        let control = us(&|round| round[1][0] - round[0][0]);
        let (plain, sealed) = (us(&|round| base(round, 0)), us(&|round| round[2][0]));
        let (difference, alone) = (us(&|round| more(round, 0)), us(&|round| round[2][1]));
        let left = us(&|round| more(round, 0) - round[2][1]);
        let (cipher, beside, bar, judged) = match bar {
            Cipher(_, bar) => (format!("{:.3}", alone.mid), signed(&left), bar, left),
            Whole(bar) => ("-".into(), "-".into(), bar, difference),
        };
        println!(
            "| {name} | {:.3} | {} | {:.3} | {} | {cipher} | {beside} | +{bar:.1} | {} |",
            plain.mid,
            signed(&control),
            sealed.mid,
            signed(&difference),
            verdict(&judged, *bar)
        );
    }
}

/// Met or missed, and whether the interval leaves that open.
fn verdict(found: &Interval, bar: f64) -> String {
    let open = if found.holds(bar) { ", not decided" } else { "" };
    if found.mid <= bar {
        return format!("met{open}");
    }
    format!("missed by {:.2}{open}", found.mid - bar)
}

/// The cipher as the library runs it, on one page that is in the CPU's caches.
struct TheCipher(&'static Xts);

impl TheCipher {
    fn new() -> Self {
        static CELLS: Cells = Cells::EMPTY;
        static XTS: Xts = Xts::over(&CELLS);
        let (keyring, id) = (KeyringId([1; 16]), DataKeyId([2; 16]));
        let source = Source { keyring, generation: Generation(1), current: id };
        let held = take(&HOST, source, [(id, &[0x5a; 32])].into_iter()).expect("room for a key");
        let header = header_under(held, Class::Paged, Layout::DEFAULT).expect("a header");
        let found = XTS.choose(header.as_bytes()).expect("a good header");
        XTS.unlock(SLOT, &found).expect("its key is known");
        Self(&XTS)
    }

    /// Nanoseconds of CPU for one page, of `count` pages.
    fn measure(&self, way: Way, count: u32) -> f64 {
        let (plain, mut sealed) = (aligned_page(), aligned_page());
        let mut run = |pages: u32| {
            for number in 0..pages {
                let unit = UnitNumber(2 * u64::from(number));
                match way {
                    Seal => self.0.seal(SLOT, unit, black_box(&plain.0), &mut sealed.0),
                    Open => self.0.open(SLOT, unit, black_box(&mut sealed.0)),
                }
            }
        };
        run(count / 8);
        let begin = used();
        run(count);
        (used() - begin) / f64::from(count)
    }
}

const SLOT: KeySlot = KeySlot(0);

#[repr(align(4096))]
struct Page([u8; 8192]);

fn aligned_page() -> Page {
    let mut page = Page([0; 8192]);
    fastrand::fill(&mut page.0);
    page
}

/// Nanoseconds of CPU that this thread has used.
fn used() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// All that is measured runs on one processor, the last that we may use: its caches stay its own.
fn one_processor() -> std::io::Result<()> {
    let all = sched_getaffinity(None)?;
    let mut one = CpuSet::new();
    let last = (0..CpuSet::MAX_CPU).rev().find(|processor| all.is_set(*processor));
    one.set(last.expect("this runs on one"));
    Ok(sched_setaffinity(None, &one)?)
}

/// Which code seals on this CPU.
fn xts_path() -> &'static str {
    let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let has = |flag: &str| flags.split_whitespace().any(|word| word == flag);
    match (has("aes"), has("vaes") && has("vpclmulqdq"), has("avx512f") && has("avx512bw")) {
        (true, true, true) => "AES-XTS on this CPU: VAES with AVX-512",
        (true, true, false) => "AES-XTS on this CPU: VAES without AVX-512",
        (true, false, _) => "AES-XTS on this CPU: AES-NI",
        _ => "AES-XTS on this CPU: no AES instructions",
    }
}

//! Microbenchmarks of single calls, plain and sealed: `cargo bench -p tidelock-testkit --bench
//! calls`.
//!
//! The program starts itself twice, as servers are: bare on a plain directory, and by `tidelock
//! exec` on a protected one. Each run measures the same calls with criterion; the parent prints the
//! difference, which is what the library costs, beside the bar that was set for it.
//!
//! Measured is the CPU time of the thread, not the wall clock: other load on the machine then shows
//! as a little noise, not as a factor.

use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use std::{env, io};

use criterion::Criterion;
use criterion::measurement::{Measurement, ValueFormatter};
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use tidelock_testkit::pg::{Arm, Cluster, Error, Result, Workspace};

/// Name of the call, and the most that it may cost more, in microseconds.
const CALLS: [(&str, f64); 5] = [
    ("pread 8 KiB", 0.75),
    ("pwrite 8 KiB", 0.75),
    ("open and close", 2.0),
    ("pwrite 100 bytes unaligned", 1.5),
    ("fstat", 0.5),
];

/// Set in the runs that measure: where the file is.
const INSIDE: &str = "CALLS_FILE";

fn main() -> ExitCode {
    let result = match env::var_os(INSIDE) {
        Some(file) => measure(Path::new(&file)).map_err(Error::io("measuring")),
        None => compare(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The calls of a server on a file of 8 MiB.
fn measure(path: &Path) -> io::Result<()> {
    let page = aligned_page();
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?;
    for number in 0..PAGES {
        file.write_all_at(&page.0, number * 8192)?;
    }
    let mut criterion = Criterion::default()
        .with_measurement(CpuTime)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3));
    let mut at = 0;
    let mut next = || {
        at = (at + 97) % PAGES;
        at * 8192
    };
    let mut buffer = aligned_page();
    criterion.bench_function(CALLS[0].0, |b| {
        b.iter(|| file.read_exact_at(black_box(&mut buffer.0), next()));
    });
    criterion.bench_function(CALLS[1].0, |b| {
        b.iter(|| file.write_all_at(black_box(&page.0), next()));
    });
    criterion.bench_function(CALLS[2].0, |b| b.iter(|| drop(black_box(File::open(path)))));
    criterion.bench_function(CALLS[3].0, |b| {
        b.iter(|| file.write_all_at(black_box(&page.0[..100]), next() + 1237));
    });
    criterion.bench_function(CALLS[4].0, |b| b.iter(|| black_box(file.metadata()).is_ok()));
    Ok(())
}

const PAGES: u64 = 1024;

/// PostgreSQL's buffers are aligned so that they are congruent with the file offset.
#[repr(align(4096))]
struct Page([u8; 8192]);

fn aligned_page() -> Page {
    let mut page = Page([0; 8192]);
    fastrand::fill(&mut page.0);
    page
}

/// CPU seconds of the calling thread.
struct CpuTime;

impl Measurement for CpuTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::try_from(time).unwrap_or_default()
    }

    fn end(&self, start: Duration) -> Duration {
        self.start().saturating_sub(start)
    }

    fn add(&self, one: &Duration, other: &Duration) -> Duration {
        *one + *other
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_secs_f64() * 1e9
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        &Nanoseconds
    }
}

struct Nanoseconds;

impl ValueFormatter for Nanoseconds {
    fn scale_values(&self, _typical: f64, _values: &mut [f64]) -> &'static str {
        "ns of CPU"
    }

    fn scale_throughputs(
        &self,
        _typical: f64,
        _throughput: &criterion::Throughput,
        _values: &mut [f64],
    ) -> &'static str {
        "ns of CPU"
    }

    fn scale_for_machines(&self, _values: &mut [f64]) -> &'static str {
        "ns"
    }
}

fn compare() -> Result<()> {
    let place = Workspace::new()?;
    let me = place.join("shelf/calls");
    let exe = env::current_exe().map_err(Error::io("finding the running program"))?;
    fs::copy(&exe, &me)
        .and_then(|_| fs::set_permissions(&me, fs::Permissions::from_mode(0o755)))
        .map_err(Error::io("copying the running program"))?;
    place.programs()?;
    let plain = run(&place, &me, Arm::Plain)?;
    let sealed = run(&place, &me, Arm::Sealed)?;
    println!("{}", xts_path());
    println!("{:<28} {:>9} {:>9} {:>9}   bar", "microseconds", "plain", "sealed", "more");
    for (name, bar) in CALLS {
        let (plain, sealed) = (median(&plain, name)?, median(&sealed, name)?);
        let more = sealed - plain;
        let verdict = if more <= bar { "met" } else { "MISSED" };
        println!("{name:<28} {plain:>9.3} {sealed:>9.3} {more:>+9.3}   <= +{bar} {verdict}");
    }
    Ok(())
}

/// Which code AWS-LC has for this CPU: the bars were set for the first.
fn xts_path() -> &'static str {
    let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let has = |flag: &str| flags.split_whitespace().any(|word| word == flag);
    if has("vaes") && has("avx512f") && has("avx512bw") {
        "AES-XTS on this CPU: VAES with AVX-512, which the bars suppose"
    } else if has("aes") {
        "AES-XTS on this CPU: AES-NI, about half as fast as what the bars suppose"
    } else {
        "AES-XTS on this CPU: no AES instructions"
    }
}

/// One run of this program in an arm; returns where criterion put its estimates.
fn run(place: &Workspace, me: &Path, arm: Arm) -> Result<PathBuf> {
    let cluster = Cluster::empty(place, &arm.to_string(), arm)?;
    if arm == Arm::Plain {
        place.make_dir("plain")?;
    }
    let base = cluster.dir().join("base/1");
    let home = place.join("home").join(arm.to_string());
    place.tool("mkdir").arg("-p").arg(&base).run()?;
    let output = cluster
        .tool(me)
        .arg("--bench")
        .env(INSIDE, base.join("16384"))
        .env("CRITERION_HOME", &home)
        .run()?;
    eprint!("{}", output.text());
    Ok(home)
}

/// Criterion's median, in microseconds.
fn median(home: &Path, name: &str) -> Result<f64> {
    let path = home.join(name).join("new/estimates.json");
    let text =
        fs::read_to_string(&path).map_err(Error::io(format!("reading {}", path.display())))?;
    let value: Value = serde_json::from_str(&text)
        .map_err(|error| Error::Unexpected(format!("{}: {error}", path.display())))?;
    let nanoseconds = value["median"]["point_estimate"].as_f64().unwrap_or(f64::NAN);
    Ok(nanoseconds / 1000.0)
}

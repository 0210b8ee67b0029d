//! One line a step: a spinner while it runs, then what was found and how long it took.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use tidelock_testkit::pg::Result;

/// Prints the demo's lines; without a terminal only the finished ones.
pub(crate) struct Teller {
    start: Instant,
}

impl Teller {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now() }
    }

    /// A heading.
    pub(crate) fn title(&self, text: &str) {
        println!("\n{text}");
    }

    /// Runs one step; what it returns is printed beside its name.
    pub(crate) fn step<T>(
        &self,
        name: &str,
        work: impl FnOnce(&ProgressBar) -> Result<(T, String)>,
    ) -> Result<T> {
        let start = Instant::now();
        let bar = ProgressBar::new_spinner().with_message(name.to_owned());
        bar.enable_steady_tick(Duration::from_millis(100));
        let result = work(&bar);
        bar.finish_and_clear();
        let (value, told) = result.inspect_err(|_| println!("  FAIL  {name}"))?;
        let seconds = start.elapsed().as_secs_f64();
        let mut lines = told.lines();
        println!("  ok    {name:<12} {} ({seconds:.1} s)", lines.next().unwrap_or_default());
        for line in lines {
            println!("        {:<12} {line}", "");
        }
        Ok(value)
    }

    /// A bar of so many blocks with the time left.
    pub(crate) fn blocks(bar: &ProgressBar, count: usize) {
        bar.set_length(count as u64);
        let style = ProgressStyle::with_template("  {msg} [{bar:30}] {pos}/{len}, {eta} left");
        if let Ok(style) = style {
            bar.set_style(style.progress_chars("=> "));
        }
    }

    /// The last line.
    pub(crate) fn done(&self) {
        println!("\nAll steps passed in {:.0} s.", self.start.elapsed().as_secs_f64());
    }

    /// Two lines on standard error.
    pub(crate) fn failed(&self, error: &str) {
        eprintln!("error: {error}");
        eprintln!("hint:  TIDELOCK_KEEP=1 keeps the directories; `make test` narrows it down");
    }
}

//! No more than so many bytes in a second, over all workers.

use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Bytes in a second: `100MiB/s`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rate(u64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let amount = text.trim().strip_suffix("/s").unwrap_or(text.trim());
        let digits = amount.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = amount.get(digits.len()..).unwrap_or_default();
        let factor: u64 = match unit {
            "" | "B" => 1,
            "KiB" | "K" => 1 << 10,
            "MiB" | "M" => 1 << 20,
            "GiB" | "G" => 1 << 30,
            "kB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            other => return Err(format!("\"{other}\" is no unit: use KiB, MiB or GiB")),
        };
        let number: u64 = digits.trim().parse().map_err(|_| "it is not a number".to_owned())?;
        match number.checked_mul(factor) {
            Some(rate) if rate > 0 => Ok(Self(rate)),
            _ => Err("it must be more than nothing, and less than all".to_owned()),
        }
    }
}

/// Holds workers back.
pub(super) struct Throttle {
    rate: Option<Rate>,
    /// When all bytes so far would have been due.
    due: Mutex<Instant>,
}

impl Throttle {
    pub(super) fn new(rate: Option<Rate>) -> Self {
        Self { rate, due: Mutex::new(Instant::now()) }
    }

    /// Sleeps until `count` bytes more are due.
    pub(super) fn take(&self, count: usize) {
        let Some(Rate(rate)) = self.rate else { return };
        #[expect(clippy::cast_precision_loss, reason = "a nanosecond more or less")]
        let time = Duration::from_secs_f64(count as f64 / rate as f64);
        let until = {
            let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
            let now = Instant::now();
            let start = (*due).max(now);
            *due = start + time;
            *due
        };
        sleep(until.saturating_duration_since(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_bytes_in_a_second() {
        for (text, rate) in [
            ("100MiB/s", 100 << 20),
            ("1GiB", 1 << 30),
            ("512K/s", 512 << 10),
            ("20MB/s", 20_000_000),
            ("4096", 4096),
        ] {
            assert_eq!(text.parse(), Ok(Rate(rate)), "{text}");
        }
        for text in ["", "0", "MiB", "10 parsecs", "-1MiB", "99999999999GiB"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }
}

//! Times of audit lines: RFC 3339 in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

/// The time, with milliseconds.
pub(super) fn now() -> String {
    text(SystemTime::now())
}

fn text(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, rest) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    let millis = since.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Year, month and day of a day since 1970 (Howard Hinnant, "chrono-compatible low-level date
/// algorithms").
const fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, late) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (year + era * 400 + late, month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_those_of_the_date_command() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_210_096, "2024-02-29T12:34:56.000Z"),
            (4_102_444_799, "2099-12-31T23:59:59.000Z"),
        ] {
            assert_eq!(text(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
    }
}

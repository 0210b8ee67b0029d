//! The page that an auditor reads: one file without scripts, which also prints.
//!
//! A pure function of the facts, so that a page can be checked by making it again.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Error, UndefinedBehavior, Value as Shown, context};
use serde_json::Value;

/// Facts as a page, as [`Document::html`](crate::Document::html) does it, without a MAC: for
/// looking at.
///
/// # Errors
/// Facts that lack what the page shows.
pub fn render(facts: &Value) -> Result<String, Error> {
    page(facts, "", "", "{}")
}

/// `data` is the document, safe inside of a script element.
pub(crate) fn page(facts: &Value, mac: &str, key: &str, data: &str) -> Result<String, Error> {
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true);
    let mut environment = Environment::new();
    environment.set_syntax(syntax.build()?);
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.add_filter("bytes", bytes);
    environment.add_filter("digits", digits);
    environment.add_template("report.html", TEMPLATE)?;
    environment.get_template("report.html")?.render(context! {
        report => Serde(facts),
        style => Shown::from_safe_string(STYLE.to_owned()),
        data => Shown::from_safe_string(data.to_owned()),
        mac,
        key,
    })
}

const TEMPLATE: &str = include_str!("../page/report.html");
const STYLE: &str = include_str!("../page/report.css");

/// `1.5 MiB`; exact below 1 KiB.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    // Tenths, rounded down: a report does not claim more than there is.
    let (mut tenths, mut unit) = (u128::from(count) * 10 / 1024, 0);
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

/// Thousands apart: `1 234 567`, with spaces that do not break.
fn digits(count: u64) -> String {
    let plain = count.to_string();
    let mut out = String::new();
    for (index, digit) in plain.chars().enumerate() {
        if index > 0 && (plain.len() - index).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::json;

    /// Facts with all that the page shows.
    pub(crate) fn facts() -> Value {
        json!({
            "made": "2026-01-02 03:04:05 UTC", "host": "db1",
            "directory": "/srv/main", "name": "main", "profile": "postgres",
            "verdict": {"sealed": true, "words": "All files are as they must be."},
            "cipher": {"name": "AES-256-XTS", "unit": 4096, "library": "AWS-LC",
                       "derivation": "HKDF-Expand-SHA-256"},
            "keyring": {"id": "ab", "generation": 3},
            "build": {"version": "0.1.0",
                      "command": {"path": "/usr/bin/tidelock", "sha256": "c0"},
                      "library": {"path": "/usr/lib/tidelock/lib.so", "sha256": "c1"}},
            "server": "process 12 runs with the library",
            "files": {"sealed": 968, "empty": 2, "plain": 7, "bytes_read": 40_411_136},
            "deep": true,
            "coverage": [{"kind": "tables and indexes", "files": 968, "bytes": 40_411_136,
                "units": 9000, "holes": 12, "mean_chi_square": 255, "worst_chi_square": 371,
                "found": 0}],
            "markers": 1, "not_shown": "n",
            "problems": [], "notes": 0, "left_out": [],
            "plain_rules": [{"glob": "*.conf", "reason": "people edit it", "own": false,
                "files": 7, "examples": ["postgresql.conf"]}],
            "cryptoperiod_days": 730,
            "data_keys": [{"id": "dk", "state": "current", "created": "2026-01-01 00:00:00 UTC",
                "age_days": 1, "within": true, "files": 968, "bytes": 40_000_000}],
            "slots": [{"id": "s1", "kind": "file", "created": "2026-01-01 00:00:00 UTC"}],
            "audit": {"file": "/var/log/a", "lines": 10, "chained": 10, "whole": true,
                "words": "its chain is whole"},
            "events": [{"what": "Last rotation of a slot", "time": "never"}],
            "warnings": [{"what": "w", "hint": "h"}],
            "controls": crate::controls(),
        })
    }

    #[test]
    fn a_page_shows_the_facts_and_is_the_same_each_time() {
        let page = render(&facts()).unwrap();
        for word in
            ["Encryption report: main", "AES-256-XTS", "*.conf", "people edit it", "3.5.1.2", "c1"]
        {
            assert!(page.contains(word), "{word}");
        }
        assert_eq!(page, render(&facts()).unwrap());
    }

    #[test]
    fn folders_that_were_not_looked_at_are_named() {
        let mut facts = facts();
        assert!(!render(&facts).unwrap().contains("Not looked at"));
        facts["left_out"] = json!(["/srv/main/pg_tblspc/1/PG_13_202007201"]);
        let page = render(&facts).unwrap();
        let named = page.split_once("Not looked at").unwrap().1.contains("PG_13_202007201");
        assert!(named, "{page}");
    }

    /// Facts of before have none of them: their pages stay as they were made.
    #[test]
    fn what_later_versions_tell_is_shown_where_it_is_there() {
        let before = render(&facts()).unwrap();
        assert!(!before.contains("reading began"), "{before}");
        assert!(before.contains("Every byte of every file was read"), "{before}");
        let mut facts = facts();
        facts["began"] = json!("2026-01-01 23:04:05 UTC");
        facts["scope"] = json!(" that was looked at");
        facts["left_out"] = json!(["/srv/main/lost+found"]);
        facts["left_out_why"] = json!("for a reason");
        let page = render(&facts).unwrap();
        for words in [
            "2026-01-02 03:04:05 UTC (reading began 2026-01-01 23:04:05 UTC)",
            "Every byte of every file that was looked at was read",
            "<p>Not looked at, for a reason:</p>",
        ] {
            assert!(page.contains(words), "{words}: {page}");
        }
    }

    #[test]
    fn a_directory_without_a_sealed_file_is_not_called_sealed() {
        let mut facts = facts();
        assert!(render(&facts).unwrap().contains("<h2>Sealed</h2>"));
        facts["verdict"]["nothing"] = json!(true);
        let page = render(&facts).unwrap();
        assert!(page.contains("<h2>No file is sealed</h2>") && page.contains("verdict bad"));
    }

    #[test]
    fn facts_that_lack_something_make_no_page() {
        let mut facts = facts();
        facts.as_object_mut().unwrap().remove("coverage");
        assert!(render(&facts).is_err());
    }

    #[test]
    fn numbers_are_written_for_people() {
        for (count, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_048_575, "1023.9 KiB"),
            (1_048_576, "1.0 MiB"),
            (u64::MAX, "16383.9 PiB"),
        ] {
            assert_eq!(bytes(count), text);
        }
        assert_eq!(digits(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(digits(999), "999");
    }
}

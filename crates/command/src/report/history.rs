//! What the audit log remembers: when keys were changed last, and whether the log itself is whole.
//!
//! Only a line whose own MAC is right counts: whoever can write the file can add one without.

use std::path::Path;

use serde_json::{Value, json};
use tidelock_agent::audit::{ChainKey, verify_each};
use tidelock_keyring::Keyring;
use tidelock_providers::Config;

use crate::audit::trail;
use crate::console::count;
use crate::error::Result;
use crate::protected::Protected;

/// What is looked for, the last time that it was done, and what people call it.
const EVENTS: [(&str, &str); 7] = [
    ("report", "Last report before this one"),
    ("slot_rotate", "Last rotation of a slot"),
    ("keyring_renew", "Last new keyring key"),
    ("data_key_new", "Last new data key"),
    ("conversion_end", "Last encryption of all files"),
    ("policy_change", "Last change of what stays plain"),
    ("keyring_backup", "Last copy of the keyring"),
];

/// The log and its events, for the page.
pub(super) struct History {
    pub(super) audit: Value,
    pub(super) events: Value,
}

/// Of this keyring. A log that cannot be read is told as that.
pub(super) fn of(protected: &Protected, keyring: &Keyring, config: &Config) -> History {
    let nothing = |file: String, words: String| History {
        audit: json!({"file": file, "lines": 0, "chained": 0, "whole": false, "words": words}),
        events: events(&[const { None }; EVENTS.len()]),
    };
    let log = match trail::log(&protected.keyring, &protected.path, config) {
        Ok(log) => log.file,
        Err(why) => return nothing("(none)".to_owned(), format!("it cannot be found: {why}")),
    };
    let shown = log.display().to_string();
    match read(&log, keyring) {
        Ok(history) => history,
        Err(why) => nothing(shown, format!("it cannot be read: {why}")),
    }
}

fn read(log: &Path, keyring: &Keyring) -> Result<History> {
    let keys = ChainKey::all_of(keyring, crate::primitives::primitives().lock);
    let mut last = Last::of(keyring.id().to_string());
    let checked = verify_each(log, keyring.id(), &keys, None, &mut |line| last.take(line))?;
    let whole =
        checked.broken.is_empty() && checked.unknown.is_empty() && checked.unproven.is_empty();
    let words = match (checked.broken.first(), checked.unknown.len()) {
        (Some(first), _) => {
            format!("its chain is BROKEN at line {}: lines were changed or removed", first.place())
        }
        (None, _) if let Some(first) = checked.unproven.first() => {
            format!("line {first} has no MAC: it was ADDED by somebody without a key")
        }
        (None, 0) => {
            let torn = match checked.torn.len() {
                0 => String::new(),
                torn => format!("; {} without an end, as a crash leaves them", count(torn, "line")),
            };
            format!(
                "{} lines, {} of them chained by MACs, and the chain is whole{torn}",
                checked.lines, checked.chained
            )
        }
        (None, unknown) => format!(
            "{} cannot be checked, as their data key was destroyed: they may have been changed, \
             and others removed; behind them the chain is whole",
            count(unknown, "line")
        ),
    };
    Ok(History {
        audit: json!({
            "file": log.display().to_string(), "lines": checked.lines,
            "chained": checked.chained, "whole": whole, "words": words, "head": checked.head,
        }),
        events: events(&last.times),
    })
}

/// The time of the last of each event that was done.
struct Last {
    keyring: String,
    times: [Option<String>; EVENTS.len()],
}

impl Last {
    fn of(keyring: String) -> Self {
        Self { keyring, times: [const { None }; EVENTS.len()] }
    }

    /// The next line, which is proven.
    fn take(&mut self, line: &[u8]) {
        let Ok(line) = serde_json::from_slice::<Value>(line) else { return };
        if line["outcome"] != "done" || line["keyring"] != *self.keyring {
            return;
        }
        let event = EVENTS.iter().position(|(name, _)| line["event"] == *name);
        if let Some(place) = event.and_then(|event| self.times.get_mut(event)) {
            *place = line["time"].as_str().map(str::to_owned);
        }
    }
}

fn events(last: &[Option<String>; EVENTS.len()]) -> Value {
    let event = |((name, what), time): (&(&str, &str), &Option<String>)| {
        let time = time.as_deref().unwrap_or("not in this log");
        json!({"event": name, "what": what, "time": time})
    };
    EVENTS.iter().zip(last).map(event).collect()
}

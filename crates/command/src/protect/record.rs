//! What `protect` or `unprotect` has begun on a directory, for another call.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::begun::Begun;
use crate::error::Error;
use crate::postgres::shell_words;

pub(super) const PROTECTION: Begun = Begun { kind: "protection", command: "protect" };

/// What has begun, for another call.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    pub(super) goal: Goal,
    pub(super) stage: Stage,
    pub(super) was_running: bool,
    pub(super) options: Vec<String>,
    /// Where the server's log is, if what started it was told a file.
    #[serde(default)]
    pub(super) log: Option<PathBuf>,
    pub(super) keyring_copy: Option<PathBuf>,
    /// Where the recovery key goes: nothing was there when this began.
    #[serde(default)]
    pub(super) recovery_file: Option<PathBuf>,
    /// Units that started it for whoever connects, and are stopped meanwhile.
    #[serde(default)]
    pub(super) triggers: Vec<String>,
    /// Of `protect`; earlier records have none.
    #[serde(default)]
    pub(super) typed: Option<Typed>,
}

/// What a call that goes on says as the first one did: the server was stopped by its unit, and has
/// the keys that were named.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Typed {
    pub(super) unit: Option<String>,
    pub(super) keys: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Goal {
    Protect,
    Unprotect,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Stage {
    Converting,
    Converted,
}

impl Goal {
    /// As it is typed.
    pub(super) const fn command(self) -> &'static str {
        match self {
            Self::Protect => "protect",
            Self::Unprotect => "unprotect",
        }
    }
}

impl Typed {
    /// Refuses another call on `dir`, which names another unit, or other keys.
    pub(super) fn are_others(&self, dir: &Path) -> Error {
        let shown = dir.display().to_string();
        let place = ["-D".to_owned(), shown.clone()];
        let which: Vec<String> = self.unit.iter().cloned().chain(place).collect();
        let words: Vec<String> = which.iter().chain(&self.keys).cloned().collect();
        let words = as_typed(&words);
        Error::refused(
            format!("`tidelock protect` of {shown} has begun with other words: {words}"),
            format!(
                "say them again, with --keyring-copy or --no-keyring-copy, to go on; `tidelock \
                 unprotect {}` takes it back",
                as_typed(&which)
            ),
        )
    }
}

/// Words as a shell takes them.
fn as_typed(words: &[String]) -> String {
    let is_simple = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-=:@,+".contains(&byte);
    let word = |word: &String| match !word.is_empty() && word.bytes().all(is_simple) {
        true => word.clone(),
        false => shell_words(std::slice::from_ref(word)),
    };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

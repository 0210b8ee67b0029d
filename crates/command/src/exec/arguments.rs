//! The options of PostgreSQL's programs, as getopt_long(3) reads them: several letters in one
//! argument, values attached and apart, long names cut short.
//!
//! Knows the options of PostgreSQL 13 to 18. One that it does not know takes no value.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

/// The options of one program.
pub(super) struct Spelling {
    /// Short options with a value.
    pub(super) short: &'static [u8],
    /// Long options with a value.
    pub(super) long: &'static [&'static str],
    /// Long options without one.
    pub(super) bare: &'static [&'static str],
    /// The long names of short options, of those that concern us.
    pub(super) alike: &'static [(u8, &'static str)],
}

impl Spelling {
    /// The options that are given, by their long names, in their order. Of the short ones those
    /// that have one here.
    pub(super) fn read<'a>(
        &self,
        arguments: &'a [OsString],
    ) -> Vec<(&'static str, Option<&'a OsStr>)> {
        let mut found = Vec::new();
        let mut rest = arguments.iter().map(|argument| argument.as_bytes());
        while let Some(argument) = rest.next() {
            if argument == b"--" {
                break;
            } else if let Some(long) = argument.strip_prefix(b"--") {
                found.extend(self.long(long, &mut rest));
            } else if let Some(letters) = argument.strip_prefix(b"-") {
                self.short(letters, &mut rest, &mut found);
            }
        }
        found.into_iter().map(|(name, value)| (name, value.map(OsStr::from_bytes))).collect()
    }

    /// The values of one option, by its long name.
    pub(super) fn values<'a>(&self, option: &str, arguments: &'a [OsString]) -> Vec<&'a OsStr> {
        let all = self.read(arguments).into_iter();
        all.filter(|(name, _)| *name == option).filter_map(|(_, value)| value).collect()
    }

    fn long<'a>(
        &self,
        option: &'a [u8],
        rest: &mut impl Iterator<Item = &'a [u8]>,
    ) -> Option<(&'static str, Option<&'a [u8]>)> {
        let mut parts = option.splitn(2, |byte| *byte == b'=');
        let (name, attached) = (parts.next().unwrap_or_default(), parts.next());
        // A part of a name will do if it is that of one alone.
        let all = || self.long.iter().chain(self.bare).copied();
        let mut begin = all().filter(|long| long.as_bytes().starts_with(name));
        let one = match (begin.next(), begin.next()) {
            (Some(one), None) => one,
            _ => all().find(|long| long.as_bytes() == name)?,
        };
        let has_value = self.long.contains(&one);
        let value = if has_value { attached.or_else(|| rest.next()) } else { None };
        Some((one, value))
    }

    fn short<'a>(
        &self,
        mut letters: &'a [u8],
        rest: &mut impl Iterator<Item = &'a [u8]>,
        found: &mut Vec<(&'static str, Option<&'a [u8]>)>,
    ) {
        while let [letter, behind @ ..] = letters {
            letters = behind;
            let mut value = None;
            if self.short.contains(letter) {
                value = if behind.is_empty() { rest.next() } else { Some(behind) };
                letters = &[];
            }
            let long = self.alike.iter().find(|(short, _)| short == letter);
            found.extend(long.map(|(_, long)| (*long, value)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_getopt_long_reads_them() {
        const SPELLING: Spelling = Spelling {
            short: b"DT",
            long: &["pgdata", "tablespace-mapping"],
            bare: &["progress"],
            alike: &[(b'D', "pgdata"), (b'T', "tablespace-mapping"), (b'P', "progress")],
        };
        let read = |line: &str| {
            let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let all = SPELLING.read(&arguments).into_iter();
            all.map(|(name, value)| format!("{name} {}", value.unwrap_or_default().display()))
                .collect::<Vec<_>>()
                .join(", ")
        };
        for line in
            ["-PD /a", "-xPD/a", "--prog --pg=/a", "backup -P --pgdata /a", "-P -D /a -- -D /b"]
        {
            assert_eq!(read(line), "progress , pgdata /a", "{line}");
        }
        // Of two that begin so neither is meant, and a value is not an option.
        assert_eq!(read("--p=/a -T --pgdata -D"), "tablespace-mapping --pgdata, pgdata ");
    }
}

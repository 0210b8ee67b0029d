//! Matches a path against a glob: `*`, `?` and `[..]` within a component, `**` across components.
//!
//! Works on bytes, component by component, in time at most the product of both lengths. Never
//! allocates while it matches. There is no escape: `[*]` is a star.

use std::fmt;

/// A checked pattern. `**` stands alone in its component and for any number of them, at the end for
/// at least one.
#[derive(Clone, PartialEq, Eq)]
pub struct Glob {
    pattern: Box<[u8]>,
    /// So many bytes of the first component come before any star: most rules are about other
    /// directories, and a look at them is enough.
    literal: usize,
}

/// Why a text is no pattern.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GlobError {
    /// No bytes, or more than [`Glob::MAX`].
    #[error("a glob has 1 to 255 bytes")]
    Length,
    /// It starts or ends with a slash, or has two in a row.
    #[error("a glob is relative and has no empty component")]
    EmptyComponent,
    /// A component is `.` or `..`.
    #[error("a glob names no `.` or `..`")]
    Dots,
    /// `**` with something beside it.
    #[error("`**` stands alone between slashes")]
    LooseStars,
    /// `[` without `]`, or an empty set.
    #[error("`[` has no `]` in its component")]
    OpenSet,
    /// A backslash or a NUL.
    #[error("a glob has no backslash; `[*]` is a star")]
    Escape,
}

impl Glob {
    /// The longest pattern in bytes.
    pub const MAX: usize = 255;

    /// Checks a pattern.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(pattern: &[u8]) -> Result<Self, GlobError> {
        if pattern.is_empty() || pattern.len() > Self::MAX {
            return Err(GlobError::Length);
        }
        if pattern.contains(&b'\\') || pattern.contains(&0) {
            return Err(GlobError::Escape);
        }
        for component in pattern.split(|byte| *byte == b'/') {
            check_component(component)?;
        }
        let is_special = |byte: &u8| b"*?[/".contains(byte);
        let literal = pattern.iter().position(is_special).unwrap_or(pattern.len());
        Ok(Self { pattern: pattern.into(), literal })
    }

    /// The pattern.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.pattern
    }

    /// True if the pattern covers the path that starts with `prefix` and goes on with `tail`.
    pub(crate) fn matches_joined(&self, prefix: &[u8], tail: &[u8]) -> bool {
        let start = if prefix.is_empty() { tail } else { prefix };
        self.begins(start)
            && matches(Components::new(&self.pattern, &[]), Components::new(prefix, tail))
    }

    /// False if the first component of `path` differs before any star.
    fn begins(&self, path: &[u8]) -> bool {
        let path = path.iter().skip_while(|byte| **byte == b'/');
        self.pattern.iter().take(self.literal).zip(path).all(|(want, have)| want == have)
    }

    /// A path that the part of the pattern from byte `start` on covers, for the shorter ones; in
    /// `into`.
    pub(crate) fn example<'i>(&self, start: usize, into: &'i mut [u8]) -> Option<&'i [u8]> {
        let mut rest = self.pattern.get(start..)?;
        let mut len = 0;
        while let Some((&first, after)) = rest.split_first() {
            let byte = match first {
                b'[' => {
                    let (&member, _) = after.split_first()?;
                    rest = set_end(after)?;
                    // What a negated set has not: a byte that no engine gives a meaning.
                    if matches!(member, b'!' | b'^') { b'~' } else { member }
                }
                _ => {
                    rest = after;
                    if matches!(first, b'*' | b'?') { b'~' } else { first }
                }
            };
            *into.get_mut(len)? = byte;
            len += 1;
        }
        into.get(..len)
    }

    /// True if the pattern covers the path.
    #[must_use]
    pub fn matches(&self, path: &[u8]) -> bool {
        self.matches_joined(path, &[])
    }
}

impl fmt::Debug for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Glob({})", String::from_utf8_lossy(&self.pattern))
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.pattern))
    }
}

fn check_component(component: &[u8]) -> Result<(), GlobError> {
    match component {
        b"" => return Err(GlobError::EmptyComponent),
        b"." | b".." => return Err(GlobError::Dots),
        b"**" => return Ok(()),
        _ if component.windows(2).any(|pair| pair == b"**") => return Err(GlobError::LooseStars),
        _ => {}
    }
    let mut rest = component;
    while let Some((first, after)) = rest.split_first() {
        rest = match first {
            b'[' => set_end(after).ok_or(GlobError::OpenSet)?,
            _ => after,
        };
    }
    Ok(())
}

/// What follows the `]` that closes a set whose `[` was just read. A `]` that comes first is a
/// member.
fn set_end(after: &[u8]) -> Option<&[u8]> {
    let negated = usize::from(matches!(after.first(), Some(b'!' | b'^')));
    let members = after.get(negated..)?;
    let close = members.iter().skip(1).position(|byte| *byte == b']')? + 1;
    members.get(close + 1..)
}

/// The components of two pieces of a path, one after the other; empty ones are skipped.
#[derive(Clone, Copy)]
struct Components<'a> {
    first: &'a [u8],
    second: &'a [u8],
}

impl<'a> Components<'a> {
    const fn new(first: &'a [u8], second: &'a [u8]) -> Self {
        Self { first, second }
    }

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            if self.first.is_empty() {
                if self.second.is_empty() {
                    return None;
                }
                self.first = std::mem::take(&mut self.second);
            }
            let end = self.first.iter().position(|byte| *byte == b'/').unwrap_or(self.first.len());
            let (component, rest) = self.first.split_at(end);
            self.first = rest.get(1..).unwrap_or_default();
            if !component.is_empty() {
                return Some(component);
            }
        }
    }
}

fn matches(mut pattern: Components<'_>, mut path: Components<'_>) -> bool {
    // Where to go on when a component does not fit: after the last `**`, one more component taken
    // by it.
    let mut retry: Option<(Components<'_>, Components<'_>)> = None;
    loop {
        let at_path = path;
        match (pattern.next(), path.next()) {
            (None, None) => return true,
            (Some(b"**"), component) => {
                let mut after = pattern;
                if after.next().is_none() {
                    return component.is_some();
                }
                retry = Some((pattern, at_path));
                path = at_path;
            }
            (Some(want), Some(have)) if component_matches(want, have) => {}
            _ => {
                let Some((after_stars, mut taken)) = retry else { return false };
                if taken.next().is_none() {
                    return false;
                }
                retry = Some((after_stars, taken));
                pattern = after_stars;
                path = taken;
            }
        }
    }
}

fn component_matches(mut pattern: &[u8], mut text: &[u8]) -> bool {
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        let fits = match (pattern.split_first(), text.split_first()) {
            (None, None) => return true,
            (Some((b'*', [])), _) => return true,
            (Some((b'*', after)), _) => {
                retry = Some((after, text));
                pattern = after;
                continue;
            }
            (Some((b'?', after)), Some((_, rest))) => Some((after, rest)),
            (Some((b'[', after)), Some((byte, rest))) => {
                set_has(after, *byte).map(|after| (after, rest))
            }
            (Some((want, after)), Some((have, rest))) if want == have => Some((after, rest)),
            _ => None,
        };
        (pattern, text) = match (fits, retry) {
            (Some(next), _) => next,
            (None, Some((after, [_, rest @ ..]))) => {
                retry = Some((after, rest));
                (after, rest)
            }
            (None, _) => return false,
        };
    }
}

/// What follows the set, if the byte is in it.
fn set_has(after: &[u8], byte: u8) -> Option<&[u8]> {
    let end = set_end(after)?;
    let negated = matches!(after.first(), Some(b'!' | b'^'));
    let members = after.get(usize::from(negated)..after.len() - end.len() - 1)?;
    let mut found = false;
    let mut rest = members;
    while let [low, more @ ..] = rest {
        (found, rest) = match more {
            [b'-', high, after @ ..] => (found || (*low..=*high).contains(&byte), after),
            _ => (found || *low == byte, more),
        };
    }
    (found != negated).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(pattern: &str, path: &str) -> bool {
        Glob::new(pattern.as_bytes()).unwrap().matches(path.as_bytes())
    }

    #[test]
    fn a_star_stays_within_its_component() {
        assert!(fits("base/*/[0-9]*", "base/5/16384_fsm"));
        assert!(!fits("base/*/[0-9]*", "base/5/pg_filenode.map"));
        assert!(!fits("base/*", "base/5/16384"));
        assert!(fits("*.conf", "a.conf"));
        assert!(!fits("*.conf", "conf.d/a.conf"));
        assert!(fits("*a*b*", "xxaxxbxx"));
        assert!(!fits("*a*b", "xxaxxbxx"));
        assert!(fits("t[0-9]*_[0-9]*", "t3_16384"));
    }

    #[test]
    fn two_stars_cross_components() {
        assert!(fits("**", "a/b/c"));
        assert!(fits("pg_wal/**", "pg_wal/archive_status/x.done"));
        assert!(!fits("pg_wal/**", "pg_wal"));
        assert!(fits("**/x", "x"));
        assert!(fits("a/**/x", "a/b/c/x"));
        assert!(fits("a/**/x", "a/x"));
        assert!(fits("a/**/b/**/c", "a/b/x/b/y/c"));
        assert!(!fits("a/**/x", "a/b/c/y"));
        assert!(!fits("pg_wal/**", "pg_wal2/x"));
    }

    #[test]
    fn sets_have_ranges_negation_and_a_leading_bracket() {
        assert!(fits("[]a]", "]"));
        assert!(fits("[!0-9]x", "ax"));
        assert!(!fits("[!0-9]x", "1x"));
        assert!(fits("[a-]", "-"));
        assert!(fits("x[0-9]?", "x1?"));
    }

    #[test]
    fn bad_patterns_are_refused() {
        for (pattern, why) in [
            ("", GlobError::Length),
            ("/a", GlobError::EmptyComponent),
            ("a//b", GlobError::EmptyComponent),
            ("a/", GlobError::EmptyComponent),
            ("../a", GlobError::Dots),
            ("a**", GlobError::LooseStars),
            ("a[b", GlobError::OpenSet),
            ("a[]", GlobError::OpenSet),
            ("a\\*", GlobError::Escape),
        ] {
            assert_eq!(Glob::new(pattern.as_bytes()), Err(why), "{pattern}");
        }
    }

    #[test]
    fn a_pattern_made_to_backtrack_ends() {
        let pattern = format!("{}b", "*a".repeat(100));
        assert!(!fits(&pattern, &"a".repeat(250)));
    }

    #[test]
    fn a_joined_path_is_the_path() {
        let glob = Glob::new(b"pg_tblspc/*/PG_*/[0-9]*/[0-9]*").unwrap();
        assert!(glob.matches_joined(b"pg_tblspc/0", b"PG_15_1/5/16384"));
        assert!(!glob.matches_joined(b"pg_tblspc/0", b"PG_15_1/5/x"));
    }

    proptest::proptest! {
        #[test]
        fn any_pattern_and_path_end_in_an_answer(pattern: Vec<u8>, path: Vec<u8>) {
            if let Ok(glob) = Glob::new(&pattern) {
                let _ = glob.matches(&path);
            }
        }
    }
}

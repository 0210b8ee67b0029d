//! The tables of a configuration as people have written them, to take one out and leave the rest.

use super::Config;
use crate::ProviderChoice;

/// The text without the tables `[[provider]]` that say this.
pub(super) fn without(text: &str, choice: &ProviderChoice) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = next_table(rest, |line| line.starts_with("[[provider]]")) {
        let (before, table) = rest.split_at(start);
        kept.push_str(before);
        let first = table.find('\n').map_or(table.len(), |at| at + 1);
        let within = table.get(first..).unwrap_or_default();
        // Tables of its own, such as [provider.approle], belong to it.
        let end = next_table(within, |line| !line.starts_with("[provider."));
        let (table, after) = table.split_at(end.map_or(table.len(), |at| first + at));
        let says: Option<Config> = toml::from_str(table).ok();
        if says.is_none_or(|says| says.providers != std::slice::from_ref(choice)) {
            kept.push_str(table);
        }
        rest = after;
    }
    kept.push_str(rest);
    format!("{}\n", kept.trim_end())
}

/// Where the first line begins that is the head of such a table.
fn next_table(text: &str, is_it: impl Fn(&str) -> bool) -> Option<usize> {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let head = line.trim_start();
        if head.starts_with('[') && is_it(head) {
            return Some(at);
        }
        at += line.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# by hand\naudit = \"journal\"\n\n[keyring]\ncopy = \"/c\"\n\n\
        [[provider]] # the old one\ntype = \"file\"\npath = \"/a\"\n\n\
        [[provider]]\ntype = \"vault\"\naddress = \"https://v\"\nengine = \"transit\"\nkey = \"k\"\n\
        [provider.approle]\nrole_id = \"r\"\n\n\
        # the new one\n[[provider]]\ntype = \"file\"\npath = \"/b\"\n";

    #[test]
    fn one_table_goes_and_the_rest_stays_as_it_was_written() {
        let all: Config = toml::from_str(TEXT).unwrap();
        assert_eq!(all.providers.len(), 3);
        for gone in &all.providers {
            let left = without(TEXT, gone);
            let found: Config = toml::from_str(&left).unwrap();
            assert_eq!(found.providers.len(), 2);
            assert!(!found.providers.contains(gone));
            assert!(left.starts_with("# by hand\naudit") && left.contains("[keyring]"), "{left}");
        }
        let other = "file:/other".parse().unwrap();
        assert_eq!(without(TEXT, &other), TEXT);
    }
}

//! The page's content security policy: nothing is loaded, and only what was embedded here runs.
//!
//! Scripts and the style sheet are named by their SHA-256 digests (Content Security Policy Level 3,
//! 2.3.1 "Source Lists"), so that no markup from a name in the data could run, were it ever not
//! escaped.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// The text of an element as a browser will have it: HTML parsers make every end of a line a line
/// feed.
pub(super) fn embedded(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\r', "\n")
}

/// The policy of a page with these scripts and this style sheet, each exactly the text of its
/// element.
///
/// ECharts sets styles of the elements that it draws, so attributes may have any.
pub(super) fn policy(scripts: &[&str], style: &str) -> String {
    let mut scripts: Vec<String> = scripts.iter().map(|script| source(script)).collect();
    if scripts.is_empty() {
        scripts.push("'none'".into());
    }
    format!(
        "default-src 'none'; script-src {}; style-src-elem {}; style-src-attr 'unsafe-inline'; \
         base-uri 'none'; form-action 'none'",
        scripts.join(" "),
        source(style)
    )
}

fn source(text: &str) -> String {
    format!("'sha256-{}'", BASE64_STANDARD.encode(digest(&SHA256, text.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_names_each_script_by_its_digest_and_allows_no_other() {
        // FIPS 180-4, the examples of SHA-256: "abc", and the empty message.
        let policy = policy(&["abc", ""], "abc");
        let abc = "'sha256-ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0='";
        let empty = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='";
        assert!(policy.contains(&format!("; script-src {abc} {empty}; style-src-elem {abc};")));
        assert!(policy.starts_with("default-src 'none';"), "{policy}");
        assert_eq!(policy.matches("unsafe").count(), 1, "{policy}");
    }

    #[test]
    fn a_page_without_scripts_runs_none() {
        assert!(policy(&[], "abc").contains("; script-src 'none'; style-src-elem 'sha256-"));
    }

    #[test]
    fn ends_of_lines_are_those_of_the_parser() {
        assert_eq!(embedded("a\r\nb\rc\n"), "a\nb\nc\n");
    }
}

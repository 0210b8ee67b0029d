//! What differs from run to run, replaced by names in brackets.

/// Ids, keys and times, word by word.
pub(crate) fn mask_line(line: &str) -> String {
    if let Some((before, _)) = line.split_once("\"user\": \"") {
        return format!("{before}\"user\": \"[USER]\",\n");
    }
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let mut out = String::new();
    let mut rest = line;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        out += match word {
            _ if is_hex(word, 8) => "[SLOT]",
            _ if is_hex(word, 32) => "[ID]",
            _ if is_hex(word, 64) => "[BYTES]",
            _ if word.len() == 69 && word.matches('-').count() == 13 => "[RECOVERY KEY]",
            _ if is_date(word) => "[DATE]",
            _ if word.len() == 10 && word.starts_with('1') && number(word) => "[SECONDS]",
            _ => word,
        };
        let mut characters = after.chars();
        out.extend(characters.next());
        rest = characters.as_str();
    }
    mask_clock(&out)
}

fn mask_clock(line: &str) -> String {
    match line.split_once("[DATE] ") {
        Some((before, after)) if after.get(8..12) == Some(" UTC") => {
            format!("{before}[TIME]{}", mask_clock(after.get(12..).unwrap_or_default()))
        }
        _ => line.to_owned(),
    }
}

fn is_hex(word: &str, len: usize) -> bool {
    word.len() == len && word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn number(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_date(word: &str) -> bool {
    let parts: Vec<&str> = word.split('-').collect();
    word.len() == 10 && parts.len() == 3 && parts.iter().all(|part| number(part))
}

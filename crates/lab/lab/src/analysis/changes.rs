//! Whether a script of SQL changes rows, by the words with which its statements begin.
//!
//! A statement begins a script, or follows a semicolon or a parenthesis, as in `WITH gone AS
//! (DELETE FROM ...) SELECT ...`. The same words in names, literals, comments and elsewhere in a
//! statement say nothing. A query that locks rows writes to their pages, and to the log. CALL and
//! DO count, since nothing shows what they do. What a function does that a query calls is not seen.

/// Whether one of its statements changes rows.
pub(super) fn rows(script: &str) -> bool {
    let parts = parts(script);
    let begins = |at: usize| match at.checked_sub(1).and_then(|before| parts.get(before)) {
        None => true,
        Some(before) => matches!(before, Part::Mark(';' | '(' | ')')),
    };
    let word = |at: usize| match parts.get(at) {
        Some(Part::Word(word)) => Some(word.as_str()),
        _ => None,
    };
    let changes = |at: usize| match (word(at), word(at + 1)) {
        (Some("INSERT" | "MERGE"), Some("INTO")) | (Some("DELETE"), Some("FROM")) => true,
        (Some("UPDATE" | "TRUNCATE" | "CREATE" | "CALL" | "DO"), Some(_)) => true,
        (Some("UPDATE" | "TRUNCATE" | "CALL" | "DO"), None) => {
            matches!(parts.get(at + 1), Some(Part::Quoted))
        }
        (Some("COPY"), _) => copies_into(&parts[at + 1..]),
        _ => false,
    };
    let locks = |at: usize| {
        matches!(
            [0, 1, 2, 3].map(|more| word(at + more)),
            [Some("FOR"), Some("UPDATE" | "SHARE"), ..]
                | [Some("FOR"), Some("KEY"), Some("SHARE"), _]
                | [Some("FOR"), Some("NO"), Some("KEY"), Some("UPDATE")]
        )
    };
    (0..parts.len()).any(|at| (begins(at) && changes(at)) || locks(at))
}

/// Whether what follows COPY is a table, its columns maybe, and FROM.
fn copies_into(parts: &[Part]) -> bool {
    let mut depth = 0_i32;
    for part in parts {
        match part {
            Part::Mark('(') => depth += 1,
            Part::Mark(')') => depth -= 1,
            Part::Mark(';') => return false,
            Part::Word(word) if depth == 0 && word == "FROM" => return true,
            Part::Word(word) if depth == 0 && word == "TO" => return false,
            _ => {}
        }
    }
    false
}

#[derive(Debug)]
enum Part {
    /// In capital letters.
    Word(String),
    /// A name or a literal in quotes.
    Quoted,
    Mark(char),
}

/// The parts of a script, without comments and pgbench's own commands.
fn parts(script: &str) -> Vec<Part> {
    let lines = script.lines().filter(|line| !line.trim_start().starts_with('\\'));
    let text = lines.collect::<Vec<_>>().join("\n");
    let (mut parts, mut rest) = (Vec::new(), text.as_str());
    while let Some(first) = rest.chars().next() {
        let after = &rest[first.len_utf8()..];
        rest = match first {
            '-' if after.starts_with('-') => beyond(rest, "\n"),
            '/' if after.starts_with('*') => beyond(rest, "*/"),
            '\'' | '"' => {
                parts.push(Part::Quoted);
                beyond(after, &first.to_string())
            }
            'e' | 'E' if after.starts_with('\'') => {
                parts.push(Part::Quoted);
                beyond_escapes(&after[1..])
            }
            '$' => match after.split_once('$').filter(|(tag, _)| tag.chars().all(is_of_word)) {
                Some((tag, body)) => {
                    parts.push(Part::Quoted);
                    beyond(body, &format!("${tag}$"))
                }
                None => after,
            },
            _ if is_of_word(first) => {
                let end = rest.find(|c| !is_of_word(c)).unwrap_or(rest.len());
                parts.push(Part::Word(rest[..end].to_uppercase()));
                &rest[end..]
            }
            _ if first.is_whitespace() => after,
            _ => {
                parts.push(Part::Mark(first));
                after
            }
        };
    }
    parts
}

/// What follows `mark`; nothing where it does not come.
fn beyond<'t>(text: &'t str, mark: &str) -> &'t str {
    text.split_once(mark).map_or("", |(_, after)| after)
}

/// What follows the quote that ends a literal in which a backslash escapes.
fn beyond_escapes(text: &str) -> &str {
    let mut escaped = false;
    let end = text.find(|c| match c {
        _ if escaped => {
            escaped = false;
            false
        }
        '\\' => {
            escaped = true;
            false
        }
        c => c == '\'',
    });
    end.map_or("", |end| &text[end + 1..])
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::rows;

    #[test]
    fn names_and_literals_change_nothing() {
        for query in [
            "SELECT count(*) FROM inserts;",
            "SELECT updated_at, deleted FROM t;",
            "SELECT note FROM t WHERE note = 'a; INSERT INTO t VALUES (1)';",
            "SELECT \"x; delete from\" FROM t;",
            "SELECT $a$ ; DELETE FROM t $a$;",
            "SELECT 1; -- ; INSERT INTO t\n",
            "SELECT 1 /* ; UPDATE t */;",
            "SELECT sum(delete) FROM t;",
            "SELECT a FROM t WHERE b IN (SELECT c FROM update_log);",
            "\\set delete random(1, 2)\nSELECT :delete;",
            "SELECT E'it\\'s; DELETE FROM t';",
            "SELECT E'\\\\', e'; UPDATE t';",
            "COPY t TO STDOUT;",
            "COPY (SELECT a FROM t) TO STDOUT; SELECT a FROM t;",
            "SELECT substring(a FROM 1 FOR 2) FROM t;",
            "SELECT for_update, created, call FROM t;",
            "",
        ] {
            assert!(!rows(query), "{query}");
        }
    }

    #[test]
    fn statements_that_change_rows_are_found_wherever_they_stand() {
        for change in [
            "insert into t values (1);",
            "BEGIN;\nUPDATE t SET a = a + 1;\nEND;",
            "UPDATE \"T\" SET a = 1",
            "\\set id random(1, 9)\nDELETE FROM t WHERE id = :id;",
            "WITH gone AS (DELETE FROM t RETURNING a) SELECT count(*) FROM gone;",
            "WITH new AS (SELECT 1 AS a) INSERT INTO t SELECT a FROM new;",
            "SELECT 'it''s'; merge into t USING s ON t.a = s.a WHEN MATCHED THEN DO NOTHING;",
            "TRUNCATE t;",
            "SELECT E'it\\'s'; DELETE FROM t;",
            "SELECT E'\\\\'; DELETE FROM t;",
            "SELECT a FROM t WHERE a = 1 FOR UPDATE;",
            "SELECT a FROM t FOR NO KEY UPDATE;",
            "SELECT a FROM t for share;",
            "SELECT a FROM t FOR KEY SHARE SKIP LOCKED;",
            "COPY t (a, b) FROM STDIN;",
            "COPY \"T\" FROM '/tmp/rows';",
            "CREATE TABLE u AS SELECT a FROM t;",
            "CALL change(1);",
            "DO $$ BEGIN DELETE FROM t; END $$;",
        ] {
            assert!(rows(change), "{change}");
        }
    }
}

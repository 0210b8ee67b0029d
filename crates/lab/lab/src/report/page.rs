//! HTML and Markdown from templates; data for scripts is escaped so that it cannot leave its
//! element.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Output, State, Value, escape_formatter};
use serde::Serialize;

use super::policy::{embedded, policy};
use super::side_by_side;
use super::view::View;
use crate::error::{Error, Result};

/// `report.html`: everything in one file.
pub(super) fn html(view: &View) -> Result<String> {
    let figures: Vec<_> = view
        .sections
        .iter()
        .flat_map(|s| [&s.ratio_figures, &s.factor_figures, &s.latency_figures, &s.time_figures])
        .flatten()
        .collect();
    let raw = view.raw.iter().map(|(name, text)| Ok((*name, script_data(text)?)));
    let (style, script, echarts) = (embedded(STYLE), embedded(SCRIPT), embedded(ECHARTS));
    let context = minijinja::context! {
        view => Serde(view),
        figures_data => script_data(&figures)?,
        raw => raw.collect::<Result<Vec<_>>>()?,
        // The digests and names in it hold nothing that HTML would want escaped.
        policy => Value::from_safe_string(policy(&[&echarts, &script], &style)),
        style => Value::from_safe_string(style),
        script => Value::from_safe_string(script),
        echarts => Value::from_safe_string(echarts),
    };
    render("report.html", include_str!("../../report/report.html"), context)
}

/// Two runs in one page, which has no script.
pub(super) fn side_by_side(view: &side_by_side::View) -> Result<String> {
    let style = embedded(STYLE);
    let context = minijinja::context! {
        view => Serde(view),
        policy => Value::from_safe_string(policy(&[], &style)),
        style => Value::from_safe_string(style),
    };
    render("compare.html", include_str!("../../report/compare.html"), context)
}

/// `report.md`: verdicts and ratios for a repository's page.
pub(super) fn markdown(view: &View) -> Result<String> {
    let context = minijinja::context! { view => Serde(view) };
    render("report.md", include_str!("../../report/report.md"), context)
}

fn render(name: &str, template: &str, context: Value) -> Result<String> {
    let failed = |e: minijinja::Error| Error::Other(format!("{name} cannot be made: {e:#}"));
    let mut syntax = SyntaxConfig::builder();
    syntax.trim_blocks(true).lstrip_blocks(true);
    let mut environment = Environment::new();
    environment.set_syntax(syntax.build().map_err(failed)?);
    environment.set_auto_escape_callback(|name| {
        if name.ends_with(".html") { AutoEscape::Html } else { AutoEscape::Custom(MARKDOWN.into()) }
    });
    environment.set_formatter(formatted);
    // A number and its sign of percent stay on one line.
    environment.add_filter("tight", |text: String| text.replace(" %", "\u{a0}%"));
    environment.set_undefined_behavior(minijinja::UndefinedBehavior::Strict);
    environment.add_template("parts.html", PARTS).map_err(failed)?;
    environment.add_template(name, template).map_err(failed)?;
    environment.get_template(name).and_then(|t| t.render(context)).map_err(failed)
}

/// Every value of a template, escaped for what it goes into.
fn formatted(
    out: &mut Output<'_>,
    state: &mut State<'_, '_>,
    value: &Value,
) -> std::result::Result<(), minijinja::Error> {
    if !matches!(state.auto_escape(), AutoEscape::Custom(_)) {
        return escape_formatter(out, state, value);
    }
    out.write_str(&markdown_text(&value.to_string())).map_err(minijinja::Error::from)
}

/// Text that is only text in Markdown, also at the beginning of a line and in the cell of a table.
fn markdown_text(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    // A sign before a number is a sign; before anything else it would begin a list.
    let begins_block = text.starts_with(['#', '>', '-', '+', '=', '~'])
        && !text[1..].starts_with(|c: char| c.is_ascii_digit());
    if begins_block {
        safe.push('\\');
    }
    let mut before = '\0';
    for c in text.chars() {
        match c {
            '\r' | '\n' => safe.push(' '),
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '\\' | '|' | '`' | '*' => safe.extend(['\\', c]),
            // Brackets alone are text, and intervals have them; these would make them a link.
            '(' | ':' | '[' if before == ']' => safe.extend(['\\', c]),
            _ => safe.push(c),
        }
        before = c;
    }
    safe
}

/// JSON that may stand in a script element: without `<`, nothing in it ends the element or begins a
/// comment (HTML, 4.12.1.3 "Restrictions for contents of script elements").
fn script_data(data: &impl Serialize) -> Result<Value> {
    let text = serde_json::to_string(data)
        .map_err(|e| Error::Other(format!("data of the report cannot be written: {e}")))?;
    Ok(Value::from_safe_string(text.replace('<', "\\u003c")))
}

/// Name of the escaping of Markdown.
const MARKDOWN: &str = "markdown";
const PARTS: &str = include_str!("../../report/parts.html");
const STYLE: &str = include_str!("../../report/report.css");
const SCRIPT: &str = include_str!("../../report/report.js");
const ECHARTS: &str = include_str!(concat!(env!("OUT_DIR"), "/echarts.js"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_cannot_end_its_script_element() {
        let data = script_data(&"</script><!--<script>").unwrap().to_string();
        assert!(!data.contains('<'), "{data}");
        assert_eq!(serde_json::from_str::<String>(&data).unwrap(), "</script><!--<script>");
    }

    #[test]
    fn text_makes_no_markdown() {
        for (text, safe) in [
            ("a loss of 3.1 % [2.2, 4.0]", "a loss of 3.1 % [2.2, 4.0]"),
            ("-1", "-1"),
            ("- a\n# b", "\\- a # b"),
            ("# a", "\\# a"),
            ("a|b\\|c", "a\\|b\\\\\\|c"),
            ("<img src=x>&lt;", "&lt;img src=x>&amp;lt;"),
            ("![a](b) [a][b] [a]: b", "![a]\\(b) [a]\\[b] [a]\\: b"),
            ("`a` *b*", "\\`a\\` \\*b\\*"),
        ] {
            assert_eq!(markdown_text(text), safe);
        }
    }
}

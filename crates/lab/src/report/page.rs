//! HTML and Markdown from templates; data for scripts is escaped so that it cannot leave its element.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Value};
use serde::Serialize;

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
    let context = minijinja::context! {
        view => Serde(view),
        figures_data => script_data(&figures)?,
        raw => raw.collect::<Result<Vec<_>>>()?,
        style => Value::from_safe_string(STYLE.into()),
        script => Value::from_safe_string(SCRIPT.into()),
        echarts => Value::from_safe_string(ECHARTS.into()),
    };
    render("report.html", include_str!("../../report/report.html"), context)
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
        if name.ends_with(".html") { AutoEscape::Html } else { AutoEscape::None }
    });
    // A bar would end a cell of a Markdown table, an angle bracket could begin an element.
    environment.add_filter("cell", |text: String| {
        text.replace(['\r', '\n'], " ").replace('|', "\\|").replace('<', "&lt;")
    });
    // A number and its sign of percent stay on one line.
    environment.add_filter("tight", |text: String| text.replace(" %", "\u{a0}%"));
    environment.set_undefined_behavior(minijinja::UndefinedBehavior::Strict);
    environment.add_template(name, template).map_err(failed)?;
    environment.get_template(name).and_then(|t| t.render(context)).map_err(failed)
}

/// JSON that may stand in a script element: without `<`, nothing in it ends the element or begins a
/// comment (HTML, 4.12.1.3 "Restrictions for contents of script elements").
fn script_data(data: &impl Serialize) -> Result<Value> {
    let text = serde_json::to_string(data)
        .map_err(|e| Error::Other(format!("data of the report cannot be written: {e}")))?;
    Ok(Value::from_safe_string(text.replace('<', "\\u003c")))
}

const STYLE: &str = include_str!("../../report/report.css");
const SCRIPT: &str = include_str!("../../report/report.js");
const ECHARTS: &str = include_str!(concat!(env!("OUT_DIR"), "/echarts.js"));

#[cfg(test)]
mod tests {
    #[test]
    fn data_cannot_end_its_script_element() {
        let data = super::script_data(&"</script><!--<script>").unwrap().to_string();
        assert!(!data.contains('<'), "{data}");
        assert_eq!(serde_json::from_str::<String>(&data).unwrap(), "</script><!--<script>");
    }
}

//! `tidelock-lab show`: one experiment, as it would be run here.

use std::fmt::Display;

use serde_json::Value;
use tidelock_lab::experiment::{Experiment, Size};
use tidelock_lab::{arm, catalogue, run};

use super::error::Result;

/// Show what an experiment asks, compares, sets and measures, and what was published
#[derive(clap::Args)]
pub(super) struct Show {
    /// Name of the experiment, or a TOML file
    name: String,
    /// In the size that was published
    #[arg(long, conflicts_with = "miniature")]
    published_size: bool,
    /// In the size that shows in seconds that everything works
    #[arg(long)]
    miniature: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(super) fn run(self) -> Result<()> {
        let size = match (self.published_size, self.miniature) {
            (true, _) => Size::Published,
            (_, true) => Size::Miniature,
            _ => Size::Small,
        };
        let experiment = catalogue::find(&self.name, size)?;
        if self.json {
            return Ok(tidelock_console::print_json("show", &experiment)?);
        }
        Ok(tidelock_console::print(format_args!("{}", text(&experiment)))?)
    }
}

/// Its parts, each with its name; what it does not have is left out.
fn text(experiment: &Experiment) -> String {
    let mut text = format!("{}\n  {}\n", experiment.name, experiment.question);
    let mut part = |name: &str, lines: Vec<(String, String)>| {
        let width = lines.iter().map(|(left, _)| left.chars().count()).max().unwrap_or(0);
        if !lines.is_empty() {
            text += &format!("\n{name}\n");
        }
        for (left, right) in lines {
            let line = format!("  {left:width$}  {right}");
            text += line.trim_end();
            text.push('\n');
        }
    };
    let machine = run::machine(&run::default_work());
    let arms = arm::planned(experiment, &machine).into_iter().map(|arm| {
        let missing = arm.missing.map(|why| format!(" (missing here: {why})"));
        (arm.name, format!("{}{}", arm.title, missing.unwrap_or_default()))
    });
    part("arms", arms.collect());
    let levels = experiment.factors.iter().map(|(name, levels)| {
        let levels: Vec<&str> = levels.iter().map(|level| level.0.as_str()).collect();
        (name.clone(), levels.join(", "))
    });
    part("factors", levels.collect());
    part("settings", pairs(experiment.settings.iter().map(|(name, value)| (name, &value.0))));
    part("limits", of_json(&experiment.limits));
    for (name, work) in &experiment.workload {
        part(&format!("workload {name}"), of_json(work));
    }
    part("measured", of_json(&experiment.stop));
    let claims = experiment.claims.iter().map(|claim| (claim.id.clone(), claim.text.clone()));
    part("published", claims.collect());
    part("notes", experiment.notes.iter().map(|note| (note.clone(), String::new())).collect());
    text
}

fn pairs<'p>(
    all: impl Iterator<Item = (&'p String, &'p (impl Display + 'p))>,
) -> Vec<(String, String)> {
    all.map(|(name, value)| (name.clone(), value.to_string())).collect()
}

/// The keys that say something, as a TOML file has them.
fn of_json(part: &impl serde::Serialize) -> Vec<(String, String)> {
    let Ok(Value::Object(keys)) = serde_json::to_value(part) else { return Vec::new() };
    let shown = |value: Value| match value {
        Value::Null => None,
        Value::String(text) => Some(text.split_whitespace().collect::<Vec<_>>().join(" ")),
        Value::Array(items) => {
            let texts = items.iter().map(|i| i.as_str().map_or_else(|| i.to_string(), Into::into));
            Some(texts.collect::<Vec<_>>().join(" "))
        }
        other => Some(other.to_string()),
    };
    keys.into_iter().filter_map(|(name, value)| Some((name, shown(value)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_shows_what_it_asks_sets_and_measures() {
        for name in catalogue::names() {
            let experiment = catalogue::find(name, Size::Small).unwrap();
            let shown = text(&experiment);
            assert!(shown.starts_with(&format!("{name}\n  {}\n", experiment.question)));
            let mut named: Vec<&String> = experiment.arms.iter().collect();
            named.extend(experiment.factors.keys().chain(experiment.settings.keys()));
            named.extend(experiment.claims.iter().map(|claim| &claim.text));
            named.extend(&experiment.notes);
            for part in named {
                assert!(shown.contains(part.as_str()), "{name} does not show {part}");
            }
            assert!(!shown.lines().any(|line| line.ends_with(' ')), "{shown}");
        }
    }
}

//! What differs between the manifests of two runs, a sentence each.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use serde_json::Value;

use super::relation::Condition;
use crate::experiment::Experiment;
use crate::manifest::{Machine, Manifest};
use crate::run::OURS;

/// What is not the same in two runs.
#[derive(Debug, Default)]
pub(super) struct Differences {
    /// A sentence for each.
    pub(super) lines: Vec<String>,
    /// Conditions that hold for everything in the runs. Another version or commit of Tidelock does
    /// not count: to compare two of them is what this is for.
    pub(super) conditions: BTreeSet<Condition>,
    /// Names of the experiments that are not the same.
    pub(super) experiments: BTreeSet<String>,
}

impl Differences {
    /// Differences in what was planned, and where.
    pub(super) fn between(a: &Manifest, b: &Manifest) -> Self {
        let mut found = Self::default();
        found.note(None, "version of Tidelock", &a.tidelock, &b.tidelock);
        found.note(None, "commit", &a.commit, &b.commit);
        let size = |manifest: &Manifest| format!("{:?}", manifest.size).to_lowercase();
        found.note(Some(Condition::Size), "size", &size(a), &size(b));
        found.note(None, "seed", &a.seed, &b.seed);
        found.machines(&a.machine, &b.machine);
        for one in &a.experiments {
            let name = &one.experiment.name;
            let other = b.experiments.iter().find(|other| other.experiment.name == *name);
            if let Some(line) = other.and_then(|b| of_experiment(&one.experiment, &b.experiment)) {
                found.lines.push(line);
                found.experiments.insert(name.clone());
            }
        }
        found
    }

    fn machines(&mut self, a: &Machine, b: &Machine) {
        let machine = Some(Condition::Machine);
        let mut note = |what, a: &dyn Display, b: &dyn Display| self.note(machine, what, a, b);
        note("machine", &a.name, &b.name);
        note("CPU", &a.cpu, &b.cpu);
        note("processors", &a.cpus, &b.cpus);
        note("CPU features", &a.cpu_features.join(" "), &b.cpu_features.join(" "));
        note("memory in MiB", &a.memory_mib, &b.memory_mib);
        note("kernel", &a.kernel, &b.kernel);
        note("system", &a.system, &b.system);
        note("file system", &a.file_system, &b.file_system);
        if !a.disk.is_empty() && !b.disk.is_empty() {
            note("disk", &a.disk, &b.disk);
        }
        note("root", &a.root, &b.root);
        for (key, [a, b]) in unequal(&a.versions, &b.versions) {
            // A run of before they were noted.
            if key.starts_with(OURS) && (a.is_none() || b.is_none()) {
                continue;
            }
            let text = |version: Option<&String>| version.cloned().unwrap_or_default();
            let (what, is) = match key.starts_with(OURS) {
                true => (key.to_owned(), None),
                false => (format!("version of {key}"), Some(Condition::Versions)),
            };
            self.note(is, &what, &text(a), &text(b));
        }
    }

    fn note(&mut self, is: Option<Condition>, what: &str, a: &dyn Display, b: &dyn Display) {
        let (a, b) = (a.to_string(), b.to_string());
        if a != b {
            self.lines.push(format!("{what}: {} and {}", named(&a), named(&b)));
            self.conditions.extend(is);
        }
    }
}

/// The parts of an experiment that differ, but for what is only text for people.
fn of_experiment(a: &Experiment, b: &Experiment) -> Option<String> {
    let parts = |experiment: &Experiment| match serde_json::to_value(experiment) {
        Ok(Value::Object(parts)) => parts.into_iter().collect::<BTreeMap<String, Value>>(),
        _ => BTreeMap::new(),
    };
    let (a_parts, b_parts) = (parts(a), parts(b));
    let names: Vec<&str> = unequal(&a_parts, &b_parts)
        .into_keys()
        .filter(|key| !["question", "notes", "published", "stands_for", "claim"].contains(key))
        .collect();
    (!names.is_empty()).then(|| format!("{}: differs in {}", a.name, names.join(", ")))
}

/// Keys whose values are not the same on both sides.
fn unequal<'a, V: PartialEq>(
    a: &'a BTreeMap<String, V>,
    b: &'a BTreeMap<String, V>,
) -> BTreeMap<&'a str, [Option<&'a V>; 2]> {
    let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let both = keys.into_iter().map(|key| (key.as_str(), [a.get(key), b.get(key)]));
    both.filter(|(_, [a, b])| a != b).collect()
}

fn named(text: &str) -> &str {
    if text.is_empty() { "none" } else { text }
}

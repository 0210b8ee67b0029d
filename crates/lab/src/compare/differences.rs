//! What differs between the manifests of two runs, a sentence each.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use serde_json::Value;

use crate::experiment::Experiment;
use crate::manifest::{Machine, Manifest};

/// Differences in what was planned, and where.
pub(super) fn between(a: &Manifest, b: &Manifest) -> Vec<String> {
    let mut found = Vec::new();
    let mut note = |what: &str, a: &dyn Display, b: &dyn Display| {
        let (a, b) = (a.to_string(), b.to_string());
        if a != b {
            found.push(format!("{what}: {} and {}", named(&a), named(&b)));
        }
    };
    note("version of Tidelock", &a.tidelock, &b.tidelock);
    note("size", &format!("{:?}", a.size).to_lowercase(), &format!("{:?}", b.size).to_lowercase());
    note("seed", &a.seed, &b.seed);
    let Machine { name, cpu, cpus, cpu_features, memory_mib, kernel, system, .. } = &a.machine;
    let other = &b.machine;
    note("machine", name, &other.name);
    note("CPU", cpu, &other.cpu);
    note("processors", cpus, &other.cpus);
    note("CPU features", &cpu_features.join(" "), &other.cpu_features.join(" "));
    note("memory in MiB", memory_mib, &other.memory_mib);
    note("kernel", kernel, &other.kernel);
    note("system", system, &other.system);
    note("file system", &a.machine.file_system, &other.file_system);
    note("root", &a.machine.root, &other.root);
    for (key, [a, b]) in unequal(&a.machine.versions, &other.versions) {
        let text = |version: Option<&String>| version.cloned().unwrap_or_default();
        note(&format!("version of {key}"), &text(a), &text(b));
    }
    for one in &a.experiments {
        let same_name = |p: &&crate::manifest::Planned| p.experiment.name == one.experiment.name;
        if let Some(other) = b.experiments.iter().find(same_name) {
            found.extend(of_experiment(&one.experiment, &other.experiment));
        }
    }
    found
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
        .filter(|key| !["question", "notes", "published", "claim"].contains(key))
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

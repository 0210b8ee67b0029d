//! Reads an experiment and puts the parts that a size replaces in their place.

use toml::{Table, Value};

use super::{Engine, Experiment, Size};
use crate::error::{Error, Result};

/// The experiment that `text` says, at `size`; `name` is for messages.
///
/// # Errors
/// [`Error::Experiment`] with the line for what is not TOML, unknown keys, wrong types; and for
/// what contradicts itself: an arm, a metric, a factor or a level that nothing defines, no arm at
/// all.
pub fn read(name: &str, text: &str, size: Size) -> Result<Experiment> {
    let broken = |why: String| Error::Experiment { name: name.into(), why };
    let mut table: Table = toml::from_str(text).map_err(|e| broken(e.to_string()))?;
    // Kept only while it is resolved, so that a line number is still known for the whole file.
    let sizes = table.remove("size");
    if let Some(Value::Table(sizes)) = sizes {
        for key in sizes.keys() {
            if !["miniature", "small", "published"].contains(&key.as_str()) {
                return Err(broken(format!("unknown size `{key}` (miniature, small, published)")));
            }
        }
        if let Some(Value::Table(part)) = sizes.get(key_of(size)) {
            replace(&mut table, part);
        }
    }
    let mut experiment: Experiment =
        table.try_into().map_err(|e: toml::de::Error| broken(e.to_string()))?;
    if size == Size::Miniature {
        experiment.stop.warm_up = experiment.stop.warm_up.min(1);
    }
    check(&experiment).map_err(broken)?;
    Ok(experiment)
}

const fn key_of(size: Size) -> &'static str {
    match size {
        Size::Miniature => "miniature",
        Size::Small => "small",
        Size::Published => "published",
    }
}

/// Tables are merged, everything else is replaced.
fn replace(whole: &mut Table, part: &Table) {
    for (key, value) in part {
        match (whole.get_mut(key), value) {
            (Some(Value::Table(inner)), Value::Table(part)) => replace(inner, part),
            _ => drop(whole.insert(key.clone(), value.clone())),
        }
    }
}

fn check(experiment: &Experiment) -> Result<(), String> {
    let known = |arm: &String| {
        BUILT_IN.contains(&arm.as_str()) || experiment.own_arms.iter().any(|own| own.name == *arm)
    };
    if experiment.arms.is_empty() || experiment.workload.is_empty() {
        return Err("it needs at least one arm and one workload".into());
    }
    if experiment.stop.blocks == 0 {
        return Err("stop.blocks is 0, so nothing would be measured".into());
    }
    for arm in &experiment.arms {
        if !known(arm) {
            return Err(format!("unknown arm `{arm}`; built in are {}", BUILT_IN.join(", ")));
        }
    }
    for own in &experiment.own_arms {
        if !BUILT_IN.contains(&own.like.as_str()) {
            return Err(format!(
                "arm `{}` is like `{}`, which is not built in",
                own.name, own.like
            ));
        }
        if own.bin.is_some() && own.like == "sealed" && experiment.engine == Engine::None {
            return Err(format!("arm `{}` has a bin, but seals by this program alone", own.name));
        }
    }
    for (factor, levels) in &experiment.factors {
        if levels.is_empty() || factor == crate::trial::WORKLOAD {
            return Err(format!("factor `{factor}` has no levels, or is the name of the workload"));
        }
    }
    for claim in &experiment.claims {
        if crate::metric::find(&claim.metric).is_none() {
            return Err(format!("claim `{}` names an unknown metric `{}`", claim.id, claim.metric));
        }
        for arm in [&claim.arm, &claim.against] {
            if !known(arm) {
                return Err(format!("claim `{}` names an unknown arm `{arm}`", claim.id));
            }
        }
    }
    Ok(())
}

/// Arms that need no definition. `control` is plain once more; `own` is the engine's own
/// encryption.
pub const BUILT_IN: [&str; 6] = ["plain", "control", "idle", "sealed", "gocryptfs", "own"];

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        name = "t"
        question = "?"
        engine = "none"
        arms = ["plain"]
        [workload.seal]
        kind = "crypto"
        block = 1024
        seconds = 1
        [stop]
        blocks = 10
    "#;

    #[test]
    fn a_stop_rule_that_looks_at_the_results_is_unknown() {
        assert_eq!(read("t", TEXT, Size::Small).unwrap().stop.blocks, 10);
        for size in [Size::Small, Size::Miniature] {
            let text = format!("{TEXT}\nprecision = 0.02");
            let why = read("t", &text, size).unwrap_err().to_string();
            assert!(why.contains("unknown field `precision`"), "{why}");
        }
    }
}

//! The arms of a comparison: what they are, and whether this machine can measure them.

use std::path::PathBuf;

use tidelock_servers::Arm;
use tidelock_servers::mariadb::sealed_is_possible;

use crate::experiment::{Engine, Experiment, OwnArm};
use crate::host::GocryptfsMount;
use crate::manifest::{Machine, PlannedArm};

/// An arm with everything that its server needs.
#[derive(Clone, Debug)]
pub struct Definition {
    /// Name in trials.
    pub name: String,
    /// What lies between server and kernel.
    pub arm: Arm,
    /// Whether the data directory lies on a gocryptfs mount.
    pub gocryptfs: bool,
    /// Whether the engine encrypts by itself.
    pub own: bool,
    /// Directory of another build's programs.
    pub bin: Option<PathBuf>,
    /// Variables of the server's environment.
    pub env: Vec<(String, String)>,
    /// The experiment's own arm that it comes from.
    pub extra: Option<OwnArm>,
}

impl Definition {
    /// The arm `name` of `experiment`.
    #[must_use]
    pub fn of(experiment: &Experiment, name: &str) -> Self {
        let extra = experiment.own_arms.iter().find(|own| own.name == name).cloned();
        let like = extra.as_ref().map_or(name, |own| own.like.as_str());
        Self {
            name: name.into(),
            arm: match like {
                "sealed" => Arm::Sealed,
                "idle" => Arm::Idle,
                _ => Arm::Plain,
            },
            gocryptfs: like == "gocryptfs",
            own: like == "own",
            bin: extra.as_ref().and_then(|own| own.bin.as_ref()).map(PathBuf::from),
            env: extra.iter().flat_map(|own| own.env.clone()).collect(),
            extra,
        }
    }

    fn title(&self) -> String {
        if let Some(own) = &self.extra {
            return own.title.clone();
        }
        match self.name.as_str() {
            "plain" => "the server as it is",
            "control" => "the same once more: the noise",
            "idle" => "the library loaded, nothing protected",
            "sealed" => "sealed by Tidelock",
            "gocryptfs" => "on gocryptfs (FUSE)",
            "own" => "the server's own encryption",
            other => other,
        }
        .into()
    }
}

/// The arms of `experiment` on this machine; those that cannot be measured say why.
#[must_use]
pub fn planned(experiment: &Experiment, machine: &Machine) -> Vec<PlannedArm> {
    let arm = |name: &String| {
        let definition = Definition::of(experiment, name);
        let missing = missing(experiment, &definition, machine);
        PlannedArm { name: name.clone(), title: definition.title(), missing }
    };
    experiment.arms.iter().map(arm).collect()
}

fn missing(experiment: &Experiment, arm: &Definition, machine: &Machine) -> Option<String> {
    let needs = arm.extra.iter().flat_map(|own| &own.needs_cpu);
    let lacks: Vec<&str> =
        needs.filter(|f| !machine.cpu_features.contains(f)).map(String::as_str).collect();
    if !lacks.is_empty() {
        return Some(format!("this CPU has no {}", lacks.join(", ")));
    }
    if let Some(bin) = arm.bin.as_ref().filter(|bin| !bin.is_dir()) {
        return Some(format!("{} is not there", bin.display()));
    }
    if let Some(why) = arm.gocryptfs.then(GocryptfsMount::missing).flatten() {
        return Some(why);
    }
    let server = match experiment.engine {
        Engine::None => "openssl",
        Engine::Postgresql => "postgresql",
        Engine::Mariadb => "mariadb",
    };
    if arm.bin.is_none() && !machine.versions.contains_key(server) {
        return Some(format!("{server} is not installed"));
    }
    match (experiment.engine, arm.arm, arm.own) {
        (Engine::Mariadb, Arm::Sealed, _) => sealed_mariadb(),
        (Engine::Postgresql, _, true) => Some("PostgreSQL has no encryption of its own".into()),
        _ => None,
    }
}

fn sealed_mariadb() -> Option<String> {
    match std::env::current_exe() {
        Ok(tidelock) => sealed_is_possible(&tidelock).err(),
        Err(why) => Some(format!("this program cannot be found: {why}")),
    }
}

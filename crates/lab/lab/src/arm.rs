//! The arms of a comparison: what they are, and whether this machine can measure them.

use std::path::{Path, PathBuf};

use tidelock_servers::Arm;
use tidelock_servers::mysqld::{Brand, own_is_possible, program_of, sealed_is_possible};

use crate::error::{Error, Result};
use crate::experiment::{Engine, Experiment, Limits, OwnArm, Work};
use crate::host::{GocryptfsMount, Volume};
use crate::manifest::{Machine, Planned, PlannedArm};
use crate::results::instances;

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
    /// Directory of another build's programs, absolute.
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

    /// Whether its server is not ours.
    #[must_use]
    pub fn is_elsewhere(&self) -> bool {
        self.extra.as_ref().is_some_and(|own| own.dsn.is_some())
    }

    fn title(&self, engine: Engine) -> String {
        if let Some(own) = &self.extra {
            return own.title.clone();
        }
        match self.name.as_str() {
            "plain" if engine == Engine::None => "openssl speed: another cipher, no server",
            "control" if engine == Engine::None => "openssl speed once more: the noise",
            "sealed" if engine == Engine::None => "AWS-LC as the library uses it",
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

/// The programs of an engine that an arm with a directory of its own brings along.
pub(crate) struct Programs {
    /// The engine among the versions of a machine.
    pub(crate) name: &'static str,
    /// The server, and how it is asked for its version.
    pub(crate) server: (&'static str, &'static str),
    /// Those that it has to have; the machine's own clients do where it has none.
    pub(crate) all: &'static [&'static str],
}

pub(crate) const fn programs(engine: Engine) -> Programs {
    match engine {
        Engine::None => {
            Programs { name: "openssl", server: ("openssl", "version"), all: &["openssl"] }
        }
        Engine::Postgresql => Programs {
            name: "postgresql",
            server: ("postgres", "--version"),
            all: &["initdb", "pg_ctl", "postgres"],
        },
        Engine::Mariadb => Programs {
            name: "mariadb",
            server: ("mariadbd", "--version"),
            all: &["mariadbd", "mariadb-install-db"],
        },
        Engine::Mysql => {
            Programs { name: "mysql", server: ("mysqld", "--version"), all: &["mysqld"] }
        }
    }
}

/// Makes `bin` and `on` of each own arm absolute, relative to `base`, and without links where they
/// are there: the kernel tells without links where a server works.
pub(crate) fn find_directories(experiment: &mut Experiment, base: &Path) {
    let all = experiment.own_arms.iter_mut();
    for named in all.flat_map(|own| [own.bin.as_mut(), own.on.as_mut()]).flatten() {
        let dir = base.join(&*named);
        let dir = dir.canonicalize().or_else(|_| std::path::absolute(&dir)).unwrap_or(dir);
        *named = dir.display().to_string();
    }
}

/// What the `bin` of an own arm lacks; the server that is installed is not taken in its place.
fn lacks_programs(engine: Engine, own: &OwnArm) -> Option<String> {
    let dir = Path::new(own.bin.as_ref()?);
    if !dir.is_dir() {
        return Some(format!("its bin, {}, is no directory", dir.display()));
    }
    let has = |name: &str| match engine {
        Engine::Mariadb | Engine::Mysql => program_of(dir, name).is_some(),
        Engine::Postgresql | Engine::None => dir.join(name).is_file(),
    };
    let lacks = programs(engine).all.iter().find(|name| !has(name))?;
    Some(format!("its bin, {}, has no program {lacks}", dir.display()))
}

/// Refuses a run that could compare nothing because a `bin` lacks programs: that of the arm with
/// which others are compared, or those of all arms.
///
/// # Errors
/// [`Error::Experiment`] with arm, directory and program.
pub(crate) fn check_programs(all: &[Planned]) -> Result<()> {
    let nothing = all.iter().all(|planned| instances(planned).is_empty());
    for Planned { experiment, .. } in all {
        let own = experiment.own_arms.iter().filter(|own| experiment.arms.contains(&own.name));
        let lacks = own.filter_map(|own| Some((own, lacks_programs(experiment.engine, own)?)));
        for (own, why) in lacks {
            let what = match experiment.arms.first() == Some(&own.name) {
                _ if nothing => "no arm can be measured",
                true => "there is nothing to compare the other arms with",
                false => continue,
            };
            let why = format!("{what}; `{}`: {why}", own.name);
            return Err(Error::Experiment { name: experiment.name.clone(), why });
        }
    }
    Ok(())
}

/// The arms of `experiment` on this machine; those that cannot be measured say why.
#[must_use]
pub fn planned(experiment: &Experiment, machine: &Machine) -> Vec<PlannedArm> {
    let arm = |name: &String| {
        let definition = Definition::of(experiment, name);
        let missing = missing(experiment, &definition, machine);
        PlannedArm { name: name.clone(), title: definition.title(experiment.engine), missing }
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
    let lacks = arm.extra.as_ref().and_then(|own| lacks_programs(experiment.engine, own));
    if lacks.is_some() {
        return lacks;
    }
    if let Some(dir) = arm.extra.as_ref().and_then(|own| own.on.as_ref())
        && !Path::new(dir).is_dir()
    {
        return Some(format!("{dir} is no directory"));
    }
    if arm.is_elsewhere() {
        return None;
    }
    let volume = arm.extra.as_ref().and_then(|own| own.volume);
    if let Some(why) = volume.and_then(Volume::missing) {
        return Some(why);
    }
    if let Some(why) = arm.gocryptfs.then(GocryptfsMount::missing).flatten() {
        return Some(why);
    }
    let server = programs(experiment.engine).name;
    if arm.bin.is_none() && !machine.versions.contains_key(server) {
        let hint = match experiment.engine {
            Engine::Mysql => "; TIDELOCK_MYSQL_BINDIR says where a mysqld is",
            _ => "",
        };
        return Some(format!("{server} is not installed{hint}"));
    }
    let sysbench = experiment.workload.values().any(|work| matches!(work, Work::Sysbench(_)));
    if sysbench && !machine.versions.contains_key("sysbench") {
        return Some("sysbench is not installed".into());
    }
    match experiment.engine.brand() {
        Some(brand) => missing_of(brand, arm),
        None if arm.own && experiment.engine == Engine::Postgresql => {
            Some("PostgreSQL has no encryption of its own".into())
        }
        None => None,
    }
}

/// What the places of this experiment's arms keep from being said on this machine: volumes of the
/// lab, directories of the user's, and servers elsewhere.
#[must_use]
pub(crate) fn limits_of_places(experiment: &Experiment, machine: &Machine) -> Vec<String> {
    let those = |fits: fn(&OwnArm) -> bool| {
        let all = experiment.own_arms.iter().filter(|own| experiment.arms.contains(&own.name));
        let names: Vec<&str> = all.filter(|own| fits(own)).map(|own| own.name.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let mut limits: Vec<String> = Vec::new();
    if let Some(arms) = those(|own| own.dsn.is_some()) {
        limits.push(format!(
            "{arms}: a server elsewhere, with its own machine, settings and network; only \
             throughput and latency can be compared"
        ));
        let limited = experiment.limits != Limits::default();
        let unreached: Vec<&str> =
            [("limits", limited), ("settings", !experiment.settings.is_empty())]
                .into_iter()
                .filter_map(|(what, has)| has.then_some(what))
                .collect();
        if !unreached.is_empty() {
            limits.push(format!(
                "{arms}: the {} of this experiment do not reach a server elsewhere",
                unreached.join(" and ")
            ));
        }
    }
    if let Some(arms) = those(|own| own.on.is_some()) {
        let all: Vec<&str> = experiment.arms.iter().map(String::as_str).collect();
        limits.push(if experiment.uncounted(&all).is_none() {
            "all arms lie on one directory: what the kernel does there in threads of its own is in \
             the CPU time of none of them"
                .into()
        } else {
            format!(
                "{arms}: no control group counts what the kernel does there in threads of its own, \
                 so only throughput and latency can be compared with arms elsewhere, not CPU time"
            )
        });
    }
    let Some(arms) = those(OwnArm::kernel_encrypts) else { return limits };
    limits.push(format!(
        "{arms}: the kernel encrypts in threads of its own, which no control group counts, so \
         only throughput and latency can be compared, not CPU time"
    ));
    let has_aes = machine.cpu_features.iter().any(|feature| feature == "aes");
    let ciphers = std::fs::read_to_string("/proc/crypto").unwrap_or_default();
    if has_aes && !uses_aes_instructions(&ciphers) {
        limits.push(format!(
            "{arms}: this kernel has loaded no driver for the CPU's AES instructions, and encrypts \
             without them"
        ));
    }
    limits
}

/// Whether a driver of /proc/crypto does. Those of the kernel's plain code are templates around a
/// single block: `xts(ecb(aes-generic))`.
fn uses_aes_instructions(ciphers: &str) -> bool {
    let drivers = ciphers.lines().filter_map(|line| line.strip_prefix("driver"));
    let mut drivers = drivers.map(|line| line.trim_start_matches([' ', ':']));
    drivers.any(|driver| driver.starts_with("xts-aes-") || driver.starts_with("__xts-aes-"))
}

fn missing_of(brand: Brand, arm: &Definition) -> Option<String> {
    // A tree of MySQL may have the server alone.
    if brand.find(arm.bin.as_deref(), "mariadb").is_none() {
        return Some("no client of MySQL or MariaDB is installed".into());
    }
    if arm.arm == Arm::Sealed {
        return sealed_missing(brand);
    }
    arm.own.then(|| own_is_possible(brand, arm.bin.as_deref()).err()).flatten()
}

fn sealed_missing(brand: Brand) -> Option<String> {
    match tidelock_servers::Programs::command_beside() {
        Ok(tidelock) => sealed_is_possible(brand, &tidelock).err(),
        Err(why) => Some(why.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::VolumeType;
    use crate::synthetic::{experiment, own_arm};

    fn own(bin: &str) -> OwnArm {
        OwnArm { title: "a fork".into(), bin: Some(bin.into()), ..own_arm("fork") }
    }

    #[test]
    fn openssl_is_not_called_a_server() {
        let of = |name| {
            let experiment = crate::catalogue::find(name, crate::experiment::Size::Small).unwrap();
            Definition::of(&experiment, "plain").title(experiment.engine)
        };
        assert_eq!(of("crypto"), "openssl speed: another cipher, no server");
        assert_eq!(of("wal-stress"), "the server as it is");
    }

    #[test]
    fn a_kernel_without_aes_instructions_is_told_from_one_with_them() {
        let crypto = |driver: &str| format!("name         : xts(aes)\ndriver       : {driver}\n");
        for (driver, uses) in [
            ("xts-aes-aesni", true),
            ("xts-aes-vaes-avx512", true),
            ("__xts-aes-aesni", true),
            ("xts(ecb(aes-fixed-time))", false),
            ("cbc(ecb(aes-generic))", false),
        ] {
            assert_eq!(uses_aes_instructions(&crypto(driver)), uses, "{driver}");
        }
    }

    #[test]
    fn what_the_kernel_s_encryption_keeps_from_being_said_is_said() {
        let mut peers = experiment(&["plain", "fork"]);
        let arm = |kind| OwnArm { bin: None, volume: Some(kind), ..own("") };
        peers.own_arms = vec![arm(VolumeType::Ext4)];
        assert!(limits_of_places(&peers, &Machine::default()).is_empty());
        peers.own_arms = vec![arm(VolumeType::Luks)];
        let limits = limits_of_places(&peers, &Machine::default());
        assert!(limits.len() == 1 && limits[0].starts_with("fork: the kernel"), "{limits:?}");
    }

    #[test]
    fn a_directory_of_the_user_s_limits_what_can_be_said_wherever_its_arms_lie() {
        let mut peers = experiment(&["plain", "fork"]);
        let arm = |name: &str| OwnArm {
            name: name.into(),
            bin: None,
            on: Some("/mnt/zfs".into()),
            ..own("")
        };
        peers.own_arms = vec![arm("fork")];
        let limits = limits_of_places(&peers, &Machine::default());
        assert!(limits.len() == 1 && limits[0].starts_with("fork: no control"), "{limits:?}");
        peers.own_arms.push(arm("plain"));
        let limits = limits_of_places(&peers, &Machine::default());
        assert!(limits.len() == 1 && limits[0].starts_with("all arms lie"), "{limits:?}");
        peers.arms = vec!["sealed".into()];
        assert!(limits_of_places(&peers, &Machine::default()).is_empty(), "it is not measured");
    }

    #[test]
    fn what_does_not_reach_a_server_elsewhere_is_said() {
        let mut peers = experiment(&["plain", "far"]);
        peers.own_arms =
            vec![OwnArm { name: "far".into(), dsn: Some("host=far".into()), ..own_arm("far") }];
        let limits = limits_of_places(&peers, &Machine::default());
        assert!(
            limits.len() == 1 && limits[0].starts_with("far: a server elsewhere"),
            "{limits:?}"
        );
        peers.limits.cpus = Some("1".into());
        let limits = limits_of_places(&peers, &Machine::default());
        assert!(limits[1].starts_with("far: the limits of this experiment"), "{limits:?}");
        peers.settings.insert("work_mem".into(), "4MB".into());
        let limits = limits_of_places(&peers, &Machine::default());
        assert!(limits[1].starts_with("far: the limits and settings"), "{limits:?}");
    }

    #[test]
    fn a_bin_without_the_server_s_programs_leaves_out_its_arm_alone() {
        let base = tempfile::tempdir().unwrap();
        let mut fork = experiment(&["plain", "fork"]);
        fork.own_arms.push(own("bin"));
        find_directories(&mut fork, base.path());
        let here = Machine {
            versions: [("postgresql".to_owned(), "15".to_owned())].into(),
            ..Machine::default()
        };
        let plan = |fork: &Experiment| Planned {
            experiment: fork.clone(),
            arms: planned(fork, &here),
            limits: Vec::new(),
        };
        let missing = |fork: &Experiment| plan(fork).arms.remove(1).missing.unwrap_or_default();
        assert!(missing(&fork).ends_with("bin, is no directory"), "{}", missing(&fork));
        let bin = base.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        for name in ["initdb", "pg_ctl", "psql"] {
            std::fs::write(bin.join(name), "").unwrap();
        }
        assert!(missing(&fork).ends_with("has no program postgres"), "{}", missing(&fork));
        // Nor is it asked for where it is not among the arms.
        check_programs(&[plan(&fork)]).unwrap();
        fork.arms = vec!["fork".into()];
        let alone = plan(&fork);
        let error = check_programs(std::slice::from_ref(&alone)).unwrap_err().to_string();
        assert!(error.contains("`fork`: its bin") && error.contains("postgres"), "{error}");
        fork.arms.push("plain".into());
        let error = check_programs(&[plan(&fork)]).unwrap_err().to_string();
        assert!(error.contains("nothing to compare the other arms with; `fork`"), "{error}");
        fork.arms.pop();
        std::fs::write(bin.join("postgres"), "").unwrap();
        check_programs(&[plan(&fork)]).unwrap();
        fork.arms.insert(0, "plain".into());
        assert_eq!(missing(&fork), "");
        let definition = Definition::of(&fork, "fork");
        assert_eq!(definition.bin, Some(bin.canonicalize().unwrap()));
        assert_eq!(Definition::of(&fork, "plain").bin, None);
    }

    #[test]
    fn a_server_is_found_again_on_a_directory_that_was_named_by_a_link_or_from_the_file() {
        let base = tempfile::tempdir().unwrap();
        let real = base.path().canonicalize().unwrap().join("real");
        std::fs::create_dir(&real).unwrap();
        let link = base.path().join("link");
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let found = |on: &str| {
            let mut peers = experiment(&["plain", "fork"]);
            peers.own_arms = vec![OwnArm { on: Some(on.into()), ..own_arm("fork") }];
            find_directories(&mut peers, base.path());
            PathBuf::from(peers.own_arms.remove(0).on.unwrap())
        };
        for on in [link.to_str().unwrap(), "link", "real", "link/../real"] {
            assert_eq!(found(on), real, "{on}");
        }
        assert_eq!(found("absent"), base.path().join("absent"));
    }
}

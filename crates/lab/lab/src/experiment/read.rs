//! Reads an experiment and puts the parts that a size replaces in their place.

use std::collections::BTreeMap;

use serde::Deserialize as _;
use toml::{Table, Value};

use super::{Claim, Engine, Experiment, LevelsAgainst, OwnArm, Param, Size, Work};
use super::{names, numbers};
use crate::error::{Error, Result};
use crate::trial::WORKLOAD;

/// The experiment that `text` says, at `size`; `name` is for messages. One that `extends` another
/// of the lab has what that has, but for what it names: tables are merged, all else is replaced.
///
/// # Errors
/// [`Error::Experiment`] with the line for what is not TOML, unknown keys, wrong types; and for
/// what contradicts itself: an arm, a metric, a factor or a level that nothing defines, an arm that
/// is there twice or whose name no directory of a server can have, no arm at all.
pub fn read(name: &str, text: &str, size: Size) -> Result<Experiment> {
    let broken = |why: String| Error::Experiment { name: name.into(), why };
    let mut table: Table = toml::from_str(text).map_err(|e| broken(e.to_string()))?;
    if let Some(base) = table.remove("extends") {
        let found = base.as_str().and_then(crate::catalogue::text);
        let unknown = || broken(format!("it extends {base}, which is no experiment of the lab"));
        let whole: Table =
            toml::from_str(found.ok_or_else(unknown)?).map_err(|e| broken(e.to_string()))?;
        let part = std::mem::replace(&mut table, whole);
        replace(&mut table, &part);
        if table.contains_key("extends") {
            return Err(broken(format!("it extends {base}, which extends another itself")));
        }
    }
    // Kept only while it is resolved, so that a line number is still known for the whole file.
    let sizes = table.remove("size");
    let known =
        Known { levels: levels(&table, sizes.as_ref()), parts: parts(&table, sizes.as_ref()) };
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
    check(&experiment, &known).map_err(broken)?;
    Ok(experiment)
}

/// What a claim may name: some size has it.
struct Known {
    /// Levels by factor.
    levels: BTreeMap<String, Vec<Param>>,
    /// Workloads, and whether they have phases.
    parts: BTreeMap<String, bool>,
}

/// Every workload that some size has, and whether it has phases.
fn parts(table: &Table, sizes: Option<&Value>) -> BTreeMap<String, bool> {
    let of_sizes = sizes.and_then(Value::as_table).into_iter().flat_map(Table::values);
    let whole = of_sizes.filter_map(Value::as_table).chain([table]);
    let workloads = whole.filter_map(|t| t.get("workload")?.as_table()).flatten();
    let kind = |work: &Value| Some(work.get("kind")?.as_str()? == "billing");
    workloads.filter_map(|(name, work)| Some((name.clone(), kind(work)?))).collect()
}

/// Every level that a factor has in some size.
fn levels(table: &Table, sizes: Option<&Value>) -> BTreeMap<String, Vec<Param>> {
    let of_sizes = sizes.and_then(Value::as_table).into_iter().flat_map(Table::values);
    let whole = of_sizes.filter_map(Value::as_table).chain([table]);
    let factors = whole.filter_map(|t| t.get("factors")?.as_table()).flatten();
    let mut all: BTreeMap<String, Vec<Param>> = BTreeMap::new();
    for (name, levels) in factors {
        let levels = levels.as_array().into_iter().flatten();
        let levels = levels.filter_map(|level| Param::deserialize(level.clone()).ok());
        all.entry(name.clone()).or_default().extend(levels);
    }
    all
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

fn check(experiment: &Experiment, in_some_size: &Known) -> Result<(), String> {
    let known = |arm: &str| is_known(experiment, arm);
    names::check_experiment(&experiment.name)?;
    if experiment.arms.is_empty() || experiment.workload.is_empty() {
        return Err("it needs at least one arm and one workload".into());
    }
    if experiment.stop.blocks == 0 {
        return Err("stop.blocks is 0, so nothing would be measured".into());
    }
    if ![1, 2, 4].contains(&experiment.stop.servers) {
        return Err(format!("stop.servers is {}; it is 1, 2 or 4", experiment.stop.servers));
    }
    let rounds = experiment.stop.equal_work_rounds;
    if rounds == 0 || rounds % 2 == 1 {
        return Err(format!("stop.equal_work_rounds is {rounds}; it is an even number"));
    }
    for (at, arm) in experiment.arms.iter().enumerate() {
        if !known(arm) {
            return Err(format!("unknown arm `{arm}`; built in are {}", BUILT_IN.join(", ")));
        }
        if experiment.arms[..at].contains(arm) {
            return Err(format!("`arms` has `{arm}` twice"));
        }
    }
    for (at, own) in experiment.own_arms.iter().enumerate() {
        names::check_arm(experiment, &own.name)?;
        let before = &experiment.own_arms[..at];
        if before.iter().any(|other| other.name == own.name) {
            return Err(format!("two arms are named `{}`", own.name));
        }
        if !BUILT_IN.contains(&own.like.as_str()) {
            return Err(format!(
                "arm `{}` is like `{}`, which is not built in",
                own.name, own.like
            ));
        }
        if own.bin.is_some() && own.like == "sealed" && experiment.engine == Engine::None {
            return Err(format!("arm `{}` has a bin, but seals by this program alone", own.name));
        }
        check_own(experiment, own)?;
    }
    for (factor, levels) in &experiment.factors {
        if levels.is_empty() || factor == WORKLOAD {
            return Err(format!("factor `{factor}` has no levels, or is the name of the workload"));
        }
        for (at, Param(level)) in levels.iter().enumerate() {
            if levels.iter().take(at).any(|Param(other)| other == level) {
                return Err(format!("factor `{factor}` has the level {level} twice"));
            }
        }
    }
    numbers::check(experiment)?;
    for claim in &experiment.claims {
        if crate::metric::find(&claim.metric).is_none() {
            return Err(format!("claim `{}` names an unknown metric `{}`", claim.id, claim.metric));
        }
        claim.check()?;
        check_levels(claim, in_some_size)?;
        for arm in [&claim.arm, &claim.against] {
            if !known(arm) {
                return Err(format!("claim `{}` names an unknown arm `{arm}`", claim.id));
            }
        }
    }
    Ok(())
}

pub(super) fn is_known(experiment: &Experiment, arm: &str) -> bool {
    BUILT_IN.contains(&arm) || experiment.own_arms.iter().any(|own| own.name == arm)
}

/// A level or a workload may be one that this size lacks, but some size has it.
fn check_levels(claim: &Claim, Known { levels, parts }: &Known) -> Result<(), String> {
    let two = claim.levels_against.iter().flat_map(LevelsAgainst::changes);
    let two = two.flat_map(|(factor, level, base)| [(factor, level), (factor, base)]);
    for (factor, level) in claim.levels.iter().filter(|(name, _)| *name != WORKLOAD).chain(two) {
        let wrong = |what: &str| Err(format!("claim `{}` names an unknown {what}", claim.id));
        match levels.get(factor) {
            None => return wrong(&format!("factor `{factor}`")),
            Some(known) if !known.contains(level) => {
                return wrong(&format!("level `{}` of {factor}", level.0));
            }
            Some(_) => {}
        }
    }
    let Some(Param(work)) = claim.levels.get(WORKLOAD) else { return Ok(()) };
    let (name, part) = work.split_once('/').map_or((&**work, None), |(n, part)| (n, Some(part)));
    let known = match (parts.get(name), part) {
        (Some(true), Some(part)) => ["phase1", "phase2", "phase3"].contains(&part),
        (Some(_), part) => part.is_none(),
        (None, _) => false,
    };
    match known {
        true => Ok(()),
        false => Err(format!("claim `{}` names an unknown workload `{work}`", claim.id)),
    }
}

/// Which keys of an arm go together.
fn check_own(experiment: &Experiment, own: &OwnArm) -> Result<(), String> {
    let wrong = |why: &str| Err(format!("arm `{}` {why}", own.name));
    own.parameters()?;
    let postgresql = experiment.engine == Engine::Postgresql;
    if !postgresql && (!own.initdb.is_empty() || own.dsn.is_some()) {
        return wrong("has initdb or dsn, which are for PostgreSQL");
    }
    let placed = own.on.is_some() || own.volume.is_some();
    if experiment.engine == Engine::None && (own.sql.is_some() || placed) {
        return wrong("has sql, on or volume, and there is no server");
    }
    if own.volume.is_some() && (own.on.is_some() || experiment.limits.volume.is_some()) {
        return wrong("has a volume, and another place for its data");
    }
    if own.on.is_some() && (own.like == "gocryptfs" || experiment.limits.volume.is_some()) {
        return wrong("has on, and a volume of the lab's own");
    }
    if own.restart && (own.sql.is_none() || own.dsn.is_some()) {
        return wrong("has restart, which is for a server of the lab's own after its sql");
    }
    if own.dsn.is_none() {
        return Ok(());
    }
    let ours = own.bin.is_some() || placed || own.like != "plain";
    if ours || !own.initdb.is_empty() || !own.env.is_empty() || !own.settings.is_empty() {
        return wrong(
            "has a dsn: its server is elsewhere, and only sql and like = \"plain\" go with it",
        );
    }
    if experiment.stop.equal_work_blocks > 0 {
        return wrong(
            "has a dsn: CPU time elsewhere cannot be read, so stop.equal_work_blocks is 0",
        );
    }
    // Each drops the schema of the lab before it begins.
    let shared = experiment.own_arms.iter().filter(|other| other.dsn == own.dsn).count() > 1;
    if shared || experiment.stop.servers > 1 {
        return wrong("has a dsn, which is that of another arm or of a second server of it");
    }
    let works = |work: &Work| matches!(work, Work::Pgbench(_) | Work::Sql(_));
    if !experiment.workload.values().all(works) {
        return wrong("has a dsn: pgbench and sql run there, nothing else");
    }
    Ok(())
}

/// Arms that need no definition. `control` is plain once more; `own` is the engine's own
/// encryption.
pub const BUILT_IN: [&str; 6] = ["plain", "control", "idle", "sealed", "gocryptfs", "own"];

#[cfg(test)]
mod tests {
    use super::super::VolumeType;
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

    fn refused(text: &str) -> String {
        read("t", text, Size::Small).unwrap_err().to_string()
    }

    #[test]
    fn a_claim_on_what_no_size_has_is_refused_by_name() {
        let text = |levels: &str| {
            format!(
                "{TEXT}\n[factors]\nblock = [1024]\n[size.published.factors]\nblock = [8192]\n\
                 [size.published.workload.whole]\nkind = 'crypto'\nblock = 1\nseconds = 9\n\
                 [[claim]]\nid = 'c'\ntext = ''\nsource = ''\nmetric = 'elapsed'\n\
                 arm = 'plain'\nagainst = 'plain'\nexpect = {{ ratio = 0.5 }}\nwhere = {levels}"
            )
        };
        for levels in [
            "{}",
            "{ block = 1024 }",
            "{ block = 8192 }",
            "{ workload = 'seal' }",
            "{ workload = 'whole' }",
        ] {
            read("t", &text(levels), Size::Small).unwrap();
        }
        for (levels, what) in [
            ("{ block = 512 }", "level `512` of block"),
            ("{ blocks = 1024 }", "factor `blocks`"),
            ("{ workload = 'open' }", "workload `open`"),
            ("{ workload = 'seal/phase1' }", "workload `seal/phase1`"),
            ("{ workload = 'whole/phase1' }", "workload `whole/phase1`"),
        ] {
            let why = refused(&text(levels));
            assert!(why.contains("claim `c`") && why.contains(what), "{why}");
        }
    }

    #[test]
    fn an_arm_says_what_its_server_is_and_nothing_that_contradicts_it() {
        let arm = |engine: &str, keys: &str, stop: &str| {
            format!(
                "name = 't'\nquestion = ''\nengine = '{engine}'\narms = ['plain', 'peer']\n\
                 [[arm]]\nname = 'peer'\ntitle = ''\nlike = 'plain'\n{keys}\n[workload.w]\n\
                 kind = 'pgbench'\nscript = 'select-only'\nscale = 1\nclients = 1\njobs = 1\n\
                 seconds = 1\n[stop]\nblocks = 10\n{stop}"
            )
        };
        let keys = "initdb = ['-K', 'x']\nsql = 'CREATE EXTENSION pg_tde'\non = '/mnt/luks'";
        let read_arm = |keys| read("t", &arm("postgresql", keys, ""), Size::Small);
        assert_eq!(read_arm(keys).unwrap().own_arms[0].initdb, ["-K", "x"]);
        for (key, kind) in [
            ("volume = 'ext4'", VolumeType::Ext4),
            ("volume = 'luks'", VolumeType::Luks),
            ("volume = 'fscrypt'", VolumeType::Fscrypt),
        ] {
            let peer = read_arm(key).unwrap().own_arms.remove(0);
            assert_eq!(peer.volume, Some(kind));
        }
        let dsn = "dsn = 'host=db.example dbname=lab sslmode=verify-full'";
        let peer = read_arm(dsn).unwrap().own_arms.remove(0);
        assert_eq!(peer.parameters().unwrap()[2], ("sslmode".into(), "verify-full".into()));
        for (text, why) in [
            (arm("mariadb", "initdb = ['-K']", ""), "for PostgreSQL"),
            (arm("postgresql", dsn, "equal_work_blocks = 5"), "cannot be read"),
            (arm("postgresql", &format!("{dsn}\non = '/mnt'"), ""), "is elsewhere"),
            (arm("postgresql", "restart = true", ""), "after its sql"),
            (arm("postgresql", &format!("{dsn}\nsql = 'x'\nrestart = true"), ""), "lab's own"),
            (arm("postgresql", &format!("{dsn}\nvolume = 'luks'"), ""), "is elsewhere"),
            (arm("postgresql", "volume = 'zfs'", ""), "expected one of `ext4`, `luks`, `fscrypt`"),
            (arm("postgresql", "volume = 'luks'\non = '/mnt'", ""), "another place for its data"),
            (
                arm("postgresql", "volume = 'luks'", "[limits]\nvolume = 'xfs'"),
                "another place for its data",
            ),
            (arm("postgresql", dsn, "servers = 2"), "a second server of it"),
            (arm("postgresql", "dsn = 'host=a dbname=b password=c'", ""), "PGPASSWORD"),
            (arm("postgresql", "dsn = 'host=a'", ""), "no dbname"),
        ] {
            assert!(refused(&text).contains(why), "{}", refused(&text));
        }
    }

    #[test]
    fn an_arm_that_is_there_twice_and_three_servers_are_refused() {
        let own = "[[arm]]\nname = 'fork'\ntitle = ''\nlike = 'plain'\n";
        let arms = |arms: &str| TEXT.replace("[\"plain\"]", arms);
        for (text, why) in [
            (arms("[\"plain\", \"sealed\", \"plain\"]"), "`arms` has `plain` twice"),
            (format!("{TEXT}\n{own}{own}"), "two arms are named `fork`"),
            (format!("{TEXT}\n[factors]\nsize = [1, 2, 1]"), "factor `size` has the level 1 twice"),
            (TEXT.replace("\"t\"", "\"../../etc\""), "experiment `../../etc`"),
            (format!("{TEXT}\nservers = 0"), "stop.servers is 0"),
            (format!("{TEXT}\nservers = 3"), "stop.servers is 3"),
            (format!("{TEXT}\nequal_work_rounds = 0"), "stop.equal_work_rounds is 0"),
            (format!("{TEXT}\nequal_work_rounds = 5"), "stop.equal_work_rounds is 5"),
        ] {
            assert!(refused(&text).contains(why), "{}", refused(&text));
        }
        read("t", &format!("{TEXT}\nservers = 2\n{own}"), Size::Small).unwrap();
    }

    #[test]
    fn one_that_extends_another_has_its_claims_and_its_sizes_but_for_what_it_names() {
        let text = "extends = 'aurora-mysqlslap'\nname = 't'\nengine = 'mysql'\n\
                    [settings]\nmax_connections = 300\n[size.miniature.stop]\nblocks = 3";
        let whole = crate::catalogue::find("aurora-mysqlslap", Size::Miniature).unwrap();
        let part = read("t", text, Size::Miniature).unwrap();
        assert_eq!((part.name.as_str(), part.engine), ("t", Engine::Mysql));
        assert_eq!((&part.claims, &part.workload), (&whole.claims, &whole.workload));
        assert_eq!((part.stop.blocks, whole.stop.blocks), (3, 2));
        let of = |e: &Experiment, name: &str| e.settings[name].0.clone();
        assert_eq!(of(&part, "max_connections"), "300");
        assert_eq!(of(&part, "binlog_format"), of(&whole, "binlog_format"));
        for base in ["'aurora'", "'/etc/passwd'", "7"] {
            let why = refused(&format!("extends = {base}\n{TEXT}"));
            assert!(why.contains("is no experiment of the lab"), "{why}");
        }
        let why = refused(&format!("extends = 'aurora-mysql'\n{TEXT}"));
        assert!(why.contains("which extends another itself"), "{why}");
    }

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

//! Whether the values of an experiment can be used: in all combinations of levels, by their keys.
//!
//! What is wrong is said when the file is read; a server that is half made would say it late.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use super::{Billing, Experiment, Mysqlslap, Param, Pgbench, Script, Stop, Sysbench, Work};
use crate::error::Error;
use crate::host::{Caps, FileSystem};

type Levels = BTreeMap<String, String>;

/// # Errors
/// The key, and what it has to be.
pub(super) fn check(experiment: &Experiment) -> Result<(), String> {
    if experiment.stop.control_precision.is_some_and(|part| !(part > 0.0 && part < 1.0)) {
        return Err("stop.control_precision is a part of 1, and more than 0".into());
    }
    for own in &experiment.own_arms {
        for (name, value) in &own.settings {
            text(&format!("settings.{name}"), value, &Levels::new())
                .map_err(|why| format!("arm `{}`, {why} that an arm's settings have", own.name))?;
        }
    }
    for levels in combinations(experiment) {
        for (name, value) in &experiment.settings {
            text(&format!("settings.{name}"), value, &levels)?;
        }
        check_limits(experiment, &levels)?;
        check_rate(&experiment.stop, &levels)?;
        for (name, work) in &experiment.workload {
            check_work(work, &levels).map_err(|why| format!("workload.{name}.{why}"))?;
        }
    }
    Ok(())
}

/// Every combination of levels; one without any where there is no factor.
fn combinations(experiment: &Experiment) -> Vec<Levels> {
    let mut all = vec![Levels::new()];
    for (factor, levels) in &experiment.factors {
        let with = |one: &Levels, Param(level): &Param| {
            let mut one = one.clone();
            one.insert(factor.clone(), level.clone());
            one
        };
        all = all.iter().flat_map(|one| levels.iter().map(|level| with(one, level))).collect();
    }
    all
}

fn check_limits(experiment: &Experiment, levels: &Levels) -> Result<(), String> {
    let limits = &experiment.limits;
    Caps::resolve(limits, levels).map_err(|why| why.to_string())?;
    if let Some(volume) = &limits.volume {
        let name = text("limits.volume", volume, levels)?;
        if name != "none" {
            name.parse::<FileSystem>().map_err(|why| format!("limits.volume: {why}"))?;
        }
    }
    match &limits.volume_mib {
        Some(mib) if text("limits.volume_mib", mib, levels)? != "none" => {
            whole("limits.volume_mib", mib, levels, 1..=u64::MAX >> 20)
        }
        _ => Ok(()),
    }
}

fn check_rate(stop: &Stop, levels: &Levels) -> Result<(), String> {
    if stop.equal_work_blocks == 0 {
        return Ok(());
    }
    let text = text("stop.equal_work_rate", &stop.equal_work_rate, levels)?;
    match text.parse::<f64>() {
        Ok(rate) if (0.01..=1.0).contains(&rate) => Ok(()),
        _ => Err(format!("stop.equal_work_rate is {text}; it is a part of 1, from 0.01 on")),
    }
}

fn check_work(work: &Work, levels: &Levels) -> Result<(), String> {
    match work {
        Work::Pgbench(work) => check_pgbench(work, levels),
        Work::Sql(work) => {
            text("setup", &work.setup, levels)?;
            text("sql", &work.sql, levels)?;
            more_than_none("rows", &work.rows, levels)
        }
        Work::Mysqlslap(work) => check_mysqlslap(work, levels),
        Work::Sysbench(work) => check_sysbench(work, levels),
        Work::Billing(work) => check_billing(work, levels),
        Work::Crypto(work) => {
            whole("block", &work.block, levels, SOME)?;
            whole("seconds", &work.seconds, levels, SOME)
        }
    }
}

fn check_pgbench(work: &Pgbench, levels: &Levels) -> Result<(), String> {
    let is_custom = work.script == Script::Custom;
    if is_custom && work.custom.as_ref().is_none_or(|script| script.trim().is_empty()) {
        return Err("custom is empty, and script = \"custom\" runs it".into());
    }
    // Its own scripts read the tables.
    let scale = if is_custom { ANY } else { SOME };
    whole("scale", &work.scale, levels, scale)?;
    whole("clients", &work.clients, levels, SOME)?;
    whole("jobs", &work.jobs, levels, SOME)?;
    whole("seconds", &work.seconds, levels, SOME)
}

fn check_mysqlslap(work: &Mysqlslap, levels: &Levels) -> Result<(), String> {
    for arg in &work.args {
        text("args", arg, levels)?;
    }
    match work.concurrency(levels) {
        Ok(clients) if clients > 0 => more_than_none("queries", &work.queries, levels),
        Ok(_) => Err("args: --concurrency is 0".into()),
        Err(why) => Err(format!("args: {why}")),
    }
}

fn check_sysbench(work: &Sysbench, levels: &Levels) -> Result<(), String> {
    for arg in &work.args {
        text("args", arg, levels)?;
    }
    whole("threads", &work.threads, levels, SOME)?;
    if !work.script.is_oltp() {
        return whole("rows", &work.rows, levels, 1..=u64::MAX);
    }
    whole("tables", &work.tables, levels, SOME)?;
    whole("rows", &work.rows, levels, SOME)?;
    whole("seconds", &work.seconds, levels, SOME)
}

fn check_billing(work: &Billing, levels: &Levels) -> Result<(), String> {
    whole("records", &work.records, levels, 1..=u64::MAX)?;
    whole("days", &work.days, levels, 1..=30)?;
    whole("files", &work.files, levels, SOME)?;
    whole("workers", &work.workers, levels, SOME)?;
    whole("batch", &work.batch, levels, SOME)?;
    whole("meters", &work.meters, levels, SOME)
}

fn text(key: &str, param: &Param, levels: &Levels) -> Result<String, String> {
    param.text(levels).map_err(|why: Error| format!("{key}: {why}"))
}

fn whole(
    key: &str,
    param: &Param,
    levels: &Levels,
    range: RangeInclusive<u64>,
) -> Result<(), String> {
    let text = text(key, param, levels)?;
    if text.parse().is_ok_and(|number| range.contains(&number)) {
        return Ok(());
    }
    let (least, most) = range.into_inner();
    let most = if most < MANY { format!(" to {most}") } else { " on".to_owned() };
    Err(format!("{key} is {text}; it is a whole number from {least}{most}"))
}

fn more_than_none(key: &str, param: &Param, levels: &Levels) -> Result<(), String> {
    let text = text(key, param, levels)?;
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(()),
        _ => Err(format!("{key} is {text}; it is a number above 0")),
    }
}

/// From here on a limit says nothing to anybody.
const MANY: u64 = u32::MAX as u64;
/// Of what there has to be some.
const SOME: RangeInclusive<u64> = 1..=MANY;
/// Of what there may be none.
const ANY: RangeInclusive<u64> = 0..=MANY;

#[cfg(test)]
mod tests {
    use crate::experiment::{Size, read};

    const TEXT: &str = r#"
        name = "t"
        question = "?"
        engine = "postgresql"
        arms = ["plain"]
        [factors]
        load = [4, 8]
        [limits]
        cpus = 1
        memory_mib = 512
        volume = "ext4"
        [settings]
        work_mem = "{load}MB"
        [workload.read]
        kind = "pgbench"
        script = "select-only"
        scale = 1
        clients = "{load}"
        jobs = 2
        seconds = 3
        [stop]
        blocks = 10
    "#;

    fn refused(text: &str) -> String {
        read("t", text, Size::Small).unwrap_err().to_string()
    }

    #[test]
    fn what_would_fail_in_a_run_is_refused_by_its_key_when_the_file_is_read() {
        read("t", TEXT, Size::Small).unwrap();
        for (from, to, why) in [
            ("\"{load}\"", "-2", "workload.read.clients is -2; it is a whole number from 1 on"),
            ("\"{load}\"", "0", "workload.read.clients is 0;"),
            ("[4, 8]", "[4, 0]", "workload.read.clients is 0;"),
            ("[4, 8]", "[4, '8 ']", "workload.read.clients is 8 ;"),
            (
                "\"{load}\"",
                "'{zz}'",
                "workload.read.clients: \"{zz}\" names zz, which is no factor",
            ),
            ("jobs = 2", "jobs = 0", "workload.read.jobs is 0;"),
            ("seconds = 3", "seconds = 0", "workload.read.seconds is 0;"),
            ("seconds = 3", "seconds = 0.5", "workload.read.seconds is 0.5;"),
            ("seconds = 3", "seconds = -1", "workload.read.seconds is -1;"),
            ("seconds = 3", "seconds = 4294967296", "workload.read.seconds is 4294967296;"),
            ("scale = 1", "scale = 0", "workload.read.scale is 0;"),
            ("\"select-only\"", "'custom'", "workload.read.custom is empty"),
            ("cpus = 1", "cpus = 0", "limits.cpus is 0; it is a number from 0.01 to 4096"),
            ("cpus = 1", "cpus = -1", "limits.cpus is -1;"),
            ("memory_mib = 512", "memory_mib = 0", "limits.memory_mib is 0;"),
            ("memory_mib = 512", "memory_mib = 'all'", "limits.memory_mib is all;"),
            ("\"ext4\"", "'ntfs'", "limits.volume: "),
            ("\"ext4\"", "'xfs'\nvolume_mib = 0", "limits.volume_mib is 0;"),
            ("{load}MB", "{lod}MB", "settings.work_mem: \"{lod}MB\" names lod"),
            ("blocks = 10", "blocks = 10\ncontrol_precision = 0.0", "stop.control_precision"),
            (
                "blocks = 10",
                "blocks = 10\nequal_work_blocks = 1\nequal_work_rate = '{zz}'",
                "stop.equal_work_rate: \"{zz}\" names zz",
            ),
            (
                "blocks = 10",
                "blocks = 10\nequal_work_blocks = 1\nequal_work_rate = 2",
                "stop.equal_work_rate is 2;",
            ),
        ] {
            let said = refused(&TEXT.replace(from, to));
            assert!(said.contains(why), "{to}: {said}");
        }
        let custom = TEXT.replace("\"select-only\"", "'custom'\ncustom = 'SELECT 1;'");
        read("t", &custom.replace("scale = 1", "scale = 0"), Size::Small).unwrap();
    }

    #[test]
    fn an_arm_s_settings_take_no_level() {
        let own = "\n[[arm]]\nname = 'fork'\ntitle = ''\nlike = 'plain'\n\
                   settings = { work_mem = '{zz}' }";
        let why = refused(&format!("{TEXT}{own}"));
        assert!(why.contains("arm `fork`, settings.work_mem: \"{zz}\" names zz"), "{why}");
    }

    #[test]
    fn every_kind_of_work_has_some_of_what_it_does() {
        let works = [
            ("sql", "setup = ''\nsql = 'SELECT 1'\nrows = 1", &["rows"][..]),
            ("mysqlslap", "args = []\nqueries = 1", &["queries"]),
            (
                "sysbench",
                "script = 'oltp_read_only'\nthreads = 1\ntables = 1\nrows = 1\nseconds = 1",
                &["threads", "tables", "rows", "seconds"],
            ),
            ("sysbench", "script = 'bulk_insert'\nthreads = 1\nrows = 1", &["threads", "rows"]),
            (
                "billing",
                "records = 1\ndays = 1\nfiles = 1\nworkers = 1\nbatch = 1\nmeters = 1",
                &["records", "days", "files", "workers", "batch", "meters"],
            ),
            ("crypto", "block = 1\nseconds = 1", &["block", "seconds"]),
        ];
        for (kind, keys, all) in works {
            let text = |keys: &str| {
                format!(
                    "name = 't'\nquestion = ''\nengine = 'none'\narms = ['plain']\n\
                     [workload.w]\nkind = '{kind}'\n{keys}\n[stop]\nblocks = 1"
                )
            };
            read("t", &text(keys), Size::Small).unwrap();
            for key in all {
                let none = keys.replace(&format!("{key} = 1"), &format!("{key} = 0"));
                let said = refused(&text(&none));
                assert!(said.contains(&format!("workload.w.{key} is 0;")), "{said}");
            }
        }
    }
}

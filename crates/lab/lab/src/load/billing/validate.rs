//! Phase 2: each record against the contract of its meter and the reading before it.
//!
//! Two reads for each record, one by one, as such systems do it; what is found goes in with the
//! step. The steps are those of phase 1, whatever the batch size is now.

use super::Phase;
use super::crew::Tally;
use super::error::{Error, Result};
use super::record::{INTERVALS, Record, cost};
use super::store::{Finding, Step, Store};

/// Validates the records of one step.
pub(super) fn validate(
    store: &mut impl Store,
    step: &Step,
    name: &str,
    tally: &Tally<'_>,
) -> Result<()> {
    let at = |line: i64| {
        move |trouble: super::error::Trouble| -> Error {
            trouble.at(Phase::Validate, format!("{name}, line {line}"))
        }
    };
    let mut findings = Vec::new();
    for (line, record) in store.records(step).map_err(at(step.first))? {
        judge(store, line, &record, &mut findings).map_err(at(line))?;
    }
    store.found(step, &findings).map_err(at(step.first))?;
    tally.add(usize::try_from(step.records).unwrap_or(0), 0, findings.len());
    Ok(())
}

fn judge(
    store: &mut impl Store,
    line: i64,
    record: &Record,
    findings: &mut Vec<Finding>,
) -> Result<(), super::error::Trouble> {
    let mut find = |kind, expected, found| {
        findings.push(Finding { line, kind, expected, found });
    };
    let before = match record.interval {
        1 => record.date.previous_day().map(|day| (day, INTERVALS)),
        interval => Some((record.date, interval - 1)),
    };
    let before = match before {
        Some((date, interval)) => store.quantity(&record.meter, date, interval)?,
        None => None,
    };
    if let Some(before) = before
        && record.quantity > before * JUMP_TIMES + JUMP_WH
    {
        find("jump", before, record.quantity);
    }
    let Some(contract) = store.contract(&record.meter)? else {
        find("meter", 0, 0);
        return Ok(());
    };
    if contract.operator != record.operator {
        find("operator", 0, 0);
    }
    if contract.tariff != record.tariff {
        find("tariff", 0, 0);
    }
    let expected = cost(record.quantity, contract.price);
    if expected != record.charge {
        find("charge", expected, record.charge);
    }
    Ok(())
}

/// A half hour that has more than this many times the one before, and [`JUMP_WH`] on top, is a
/// jump.
const JUMP_TIMES: i64 = 10;
const JUMP_WH: i64 = 1000;

//! The standby while nobody else uses it: how far it is, and whether it has the same rows.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::console;
use crate::error::{Error, Result};
use crate::migrate::record::Record;
use crate::migrate::source::Source;
use crate::postgres::{Address, Instance, Session, literal, name};

/// A switchover begins when the standby is no further behind.
const NEAR: u64 = 16 << 20;
/// So long nothing may come before it is told as an error.
const PATIENCE: Duration = Duration::from_secs(120);

/// A table that is written to all the time is let go.
const TRIES: u32 = 10;

/// What is compared before the switchover.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Check {
    /// Nothing
    None,
    /// The base backup: every file against its checksum in the manifest
    Backup,
    /// Also the number of rows of each table, which is locked against writers meanwhile
    Counts,
    /// Also a checksum of all rows of each table, which is locked against writers meanwhile
    Sums,
}

/// Where the standby is asked.
pub(super) fn address(target: &Instance, record: &Record) -> Address {
    Address { host: target.dir.clone(), port: record.port, user: record.user.clone() }
}

/// `0/3000028` as a number.
pub(super) fn lsn(text: &str) -> Option<u64> {
    let (high, low) = text.split_once('/')?;
    Some(u64::from_str_radix(high, 16).ok()? << 32 | u64::from_str_radix(low, 16).ok()?)
}

/// How far the standby has replayed.
///
/// # Errors
/// [`Error::Tool`].
pub(super) fn replayed(standby: &mut Session) -> Result<u64> {
    let text = standby.value("SELECT coalesce(pg_last_wal_replay_lsn(), '0/0')")?;
    Ok(lsn(&text).unwrap_or(0))
}

/// Waits until the standby has replayed all up to here.
///
/// # Errors
/// [`Error::Refused`] if nothing comes any more; [`Error::Tool`].
pub(super) fn wait_for(standby: &mut Session, place: u64) -> Result<()> {
    let (mut last, mut since) = (0, Instant::now());
    loop {
        let now = replayed(standby)?;
        if now >= place {
            return Ok(());
        }
        if now > last {
            (last, since) = (now, Instant::now());
        }
        if since.elapsed() > PATIENCE {
            return Err(Error::refused(
                format!(
                    "the standby does not go on: it has replayed up to {}, and {} is needed",
                    shown(now),
                    shown(place)
                ),
                "see the log beside the new directory, NAME.migration.log",
            ));
        }
        sleep(Duration::from_millis(50));
    }
}

/// Waits until it is near; it then follows closely.
///
/// # Errors
/// As [`wait_for`].
pub(super) fn catch_up(source: &mut Source, standby: &mut Session) -> Result<()> {
    loop {
        let here = lsn(&source.session.value("SELECT pg_current_wal_flush_lsn()")?).unwrap_or(0);
        wait_for(standby, here.saturating_sub(NEAR))?;
        let here = lsn(&source.session.value("SELECT pg_current_wal_flush_lsn()")?).unwrap_or(0);
        let behind = here.saturating_sub(replayed(standby)?);
        if behind <= NEAR {
            return console::print(format_args!(
                "caught up     {} behind the source\n",
                console::bytes(behind)
            ));
        }
    }
}

/// Compares every table. Each is locked against writers at the source while it is counted there and
/// at the standby: so both see the same rows. One that cannot be locked is named, and stops a
/// `switch`.
///
/// # Errors
/// [`Error::Verification`] if they differ; [`Error::Refused`]; [`Error::Tool`].
pub(super) fn compare(
    source: &mut Source,
    target: &Instance,
    record: &Record,
    (check, switch): (Check, bool),
) -> Result<()> {
    let (mut tables, mut rows, mut held) = (0usize, 0u64, Vec::new());
    for database in source.databases()? {
        let programs = &source.instance.programs;
        let mut here = Session::open(programs, &source.address, &database)?;
        let mut there = Session::open(programs, &address(target, record), &database)?;
        let found = here.ask(
            "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n \
             ON n.oid = c.relnamespace WHERE c.relkind = 'r' AND c.relpersistence = 'p' \
             AND n.nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2",
        )?;
        for table in found {
            let [schema, table] = table.as_slice() else { continue };
            let table = format!("{}.{}", name(schema), name(table));
            // Made or dropped meanwhile: not a difference.
            here.ask("BEGIN")?;
            let is_there = format!("SELECT to_regclass({}) IS NOT NULL", literal(&table));
            if here.value(&is_there)? != "t" {
                here.ask("ROLLBACK")?;
                continue;
            }
            if !lock(&mut here, &table)? {
                here.ask("ROLLBACK")?;
                held.push(format!("{database}: {table}"));
                continue;
            }
            let place = lsn(&here.value("SELECT pg_current_wal_insert_lsn()")?).unwrap_or(0);
            // A commit: so all before it is on its way to the standby.
            let commit = "SELECT pg_logical_emit_message(true, 'tidelock', 'migrate')";
            source.session.value(commit)?;
            wait_for(&mut there, place)?;
            let sum = match check {
                // Not a cast, which the owner of the table may have made.
                Check::Sums => {
                    "sum(hashtextextended(format('%s', ROW(counted_row.*)), 0::bigint)::numeric)"
                }
                _ => "0",
            };
            let count =
                format!("SELECT count(*), coalesce({sum}, 0) FROM ONLY {table} counted_row");
            let (ours, theirs) = (here.ask(&count)?, there.ask(&count)?);
            here.ask("ROLLBACK")?;
            if ours != theirs {
                return Err(Error::Verification {
                    what: format!(
                        "{table} in the database {database} differs: {ours:?} at the source, \
                         {theirs:?} at the standby"
                    ),
                    hint: "do not switch over; --abort, and tell the makers of Tidelock".to_owned(),
                });
            }
            tables += 1;
            rows += ours.first().and_then(|row| row.first()?.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    if let Some(first) = held.first() {
        let what = format!(
            "{} not compared, because other transactions write to it: {first}",
            console::count(held.len(), "table")
        );
        if switch {
            return Err(Error::refused(what, "end them; or leave --check out"));
        }
        console::warn(what, "end them, or compare once more: the same command");
    }
    console::print(format_args!(
        "compared      {}, {rows} rows: the same at source and standby\n",
        console::count(tables, "table")
    ))
}

/// Locks a table against writers, if it can be had soon: whoever waits for it holds up all that
/// come later.
fn lock(here: &mut Session, table: &str) -> Result<bool> {
    let statement = statement_to_lock(table);
    for _ in 0..TRIES {
        let locked = here.value(&statement)?;
        if locked == "t" {
            return Ok(true);
        }
        sleep(Duration::from_millis(500));
    }
    Ok(false)
}

/// The name of a table may have whatever ends other quotes than those of strings.
fn statement_to_lock(table: &str) -> String {
    let lock = literal(&format!("LOCK TABLE ONLY {table} IN SHARE MODE"));
    let block = format!(
        "BEGIN EXECUTE {lock}; PERFORM set_config('tidelock.locked', 't', true); \
         EXCEPTION WHEN lock_not_available THEN NULL; END"
    );
    format!(
        "SET LOCAL lock_timeout = '500ms'; SET LOCAL tidelock.locked = ''; DO {}; \
         SELECT current_setting('tidelock.locked')",
        literal(&block)
    )
}

fn shown(lsn: u64) -> String {
    format!("{:X}/{:X}", lsn >> 32, lsn & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_s_name_ends_no_quote_of_the_statement_that_locks_it() {
        let statement = statement_to_lock(r#""public"."$lock$\! touch 'x' #""#);
        // All of it between quotes: an odd number of them before, and no other kind.
        let at = statement.find(r"\!").unwrap();
        assert_eq!(statement[..at].matches('\'').count() % 2, 1);
        assert!(statement.contains("''''x''''") && !statement.contains("DO $"));
    }

    #[test]
    fn places_in_the_wal_are_numbers() {
        assert_eq!(lsn("1/2A"), Some(0x1_0000_002a));
        assert_eq!(lsn(""), None);
        assert_eq!(shown(0x1_0000_002a), "1/2A");
    }
}

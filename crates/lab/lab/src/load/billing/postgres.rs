//! PostgreSQL's dialect: arrays with unnest for many rows at once, ON CONFLICT, advisory locks.

use std::env;
use std::error::Error as _;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::time::Duration;

use ::postgres::error::SqlState;
use ::postgres::types::ToSql;
use ::postgres::{Client, Config, Error, NoTls, Statement, Transaction};
use time::Date;

use super::Phase;
use super::error::Trouble;
use super::record::Record;
use super::store::{
    Batch, Charge, Contract, DUPLICATE, Done, File, Finding, Master, Rejected, Step, Store, Sum,
};

/// A connection with the statements that are repeated for each record or batch.
pub(super) struct Postgres {
    client: Client,
    load: Option<Statement>,
    contract: Option<Statement>,
    quantity: Option<Statement>,
}

impl Store for Postgres {
    fn connect(connection: &str) -> Result<Self, Trouble> {
        let mut config = config_of(connection, env::var_os("PGPASSWORD"))?;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(10));
        }
        // A server that falls silent is taken for lost within a minute or two (TCP only).
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(Duration::from_secs(60));
            config.keepalives_idle(Duration::from_secs(60));
        }
        if config.get_application_name().is_none() {
            config.application_name("tidelock-lab load billing");
        }
        let client = config.connect(NoTls).map_err(trouble)?;
        Ok(Self { client, load: None, contract: None, quantity: None })
    }

    fn lock(&mut self) -> Result<bool, Trouble> {
        let row = self.client.query_one("SELECT pg_try_advisory_lock($1)", &[&LOCK]);
        row.map(|row| row.get(0)).map_err(trouble)
    }

    fn prepare(&mut self, master: &Master) -> Result<(), Trouble> {
        let (tariffs, prices): (Vec<&str>, Vec<i64>) =
            master.tariffs.iter().map(|(name, price)| (name.as_str(), *price)).unzip();
        let numbers: Vec<i64> = (0..).take(master.meters.len()).collect();
        let meters: Vec<&str> = master.meters.iter().map(|(name, _)| name.as_str()).collect();
        let contracts = master.meters.iter().map(|(_, contract)| contract);
        let operators: Vec<&str> = contracts.clone().map(|c| c.operator.as_str()).collect();
        let agreed: Vec<&str> = contracts.map(|c| c.tariff.as_str()).collect();
        self.transaction(|transaction| {
            // NOTICEs of what is there already are of no interest.
            transaction.batch_execute("SET LOCAL client_min_messages = warning")?;
            transaction.batch_execute(include_str!("postgres/schema.sql"))?;
            transaction.execute(
                "INSERT INTO billing.tariff SELECT * FROM unnest($1::text[], $2::bigint[]) \
                 ON CONFLICT DO NOTHING",
                &[&tariffs, &prices],
            )?;
            transaction.execute(
                "INSERT INTO billing.meter SELECT * \
                 FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[]) \
                 ON CONFLICT DO NOTHING",
                &[&meters, &numbers, &operators, &agreed],
            )?;
            Ok(())
        })?;
        let same = self.client.query_one(
            "SELECT count(*) = cardinality($1::text[]) AND count(*) = (SELECT count(*) FROM \
             billing.meter) FROM billing.meter JOIN unnest($1::text[], $2::bigint[], $3::text[], \
             $4::text[]) AS master (meter, number, operator, tariff) \
             USING (meter, number, operator, tariff)",
            &[&meters, &numbers, &operators, &agreed],
        );
        match same.map_err(trouble)?.get(0) {
            true => Ok(()),
            false => Err(Trouble::Refused("it has the meters of another market".into())),
        }
    }

    fn settle(&mut self) -> Result<(), Trouble> {
        let sql = "ANALYZE billing.tariff, billing.meter, billing.record, billing.finding";
        self.client.batch_execute(sql).map_err(trouble)
    }

    fn file(&mut self, name: &str, bytes: i64) -> Result<File, Trouble> {
        self.transaction(|transaction| {
            transaction.execute(
                "INSERT INTO billing.file (file, name, bytes) \
                 SELECT coalesce(max(file), 0) + 1, $1, $2 FROM billing.file \
                 ON CONFLICT DO NOTHING",
                &[&name, &bytes],
            )?;
            let row = transaction.query_one(
                "SELECT f.file, f.bytes, coalesce(s.last, 0), coalesce(s.next_offset, 0), \
                 f.finished \
                 FROM billing.file f LEFT JOIN LATERAL \
                 (SELECT last, next_offset FROM billing.step WHERE phase = 1 AND file = f.file \
                 ORDER BY first DESC LIMIT 1) s ON true WHERE f.name = $1",
                &[&name],
            )?;
            Ok(File {
                id: row.get(0),
                bytes: row.get(1),
                line: row.get(2),
                offset: row.get(3),
                finished: row.get(4),
            })
        })
    }

    fn done(&mut self, phase: Phase) -> Result<Done, Trouble> {
        let row = self.client.query_one(
            "SELECT count(*), coalesce(sum(records), 0)::bigint FROM billing.step WHERE phase = $1",
            &[&phase.number()],
        );
        row.map(|row| Done {
            steps: row.get::<_, i64>(0).unsigned_abs(),
            records: row.get::<_, i64>(1).unsigned_abs(),
        })
        .map_err(trouble)
    }

    fn steps(&mut self, phase: Phase) -> Result<Vec<Step>, Trouble> {
        let rows = self.client.query(
            "SELECT file, first, last, records FROM billing.step WHERE phase = $1 \
             ORDER BY file, first",
            &[&phase.number()],
        );
        let step = |row: &::postgres::Row| Step {
            file: row.get(0),
            first: row.get(1),
            last: row.get(2),
            records: row.get(3),
        };
        rows.map(|rows| rows.iter().map(step).collect()).map_err(trouble)
    }

    fn load(&mut self, batch: &Batch) -> Result<Vec<i64>, Trouble> {
        let load = prepared(&mut self.load, &mut self.client, LOAD)?;
        let records = || batch.records.iter().map(|(_, record, _)| record);
        let lines: Vec<i64> = batch.records.iter().map(|(line, ..)| *line).collect();
        let operators: Vec<&str> = records().map(|r| r.operator.as_str()).collect();
        let meters: Vec<&str> = records().map(|r| r.meter.as_str()).collect();
        let dates: Vec<Date> = records().map(|r| r.date).collect();
        let intervals: Vec<i16> = records().map(|r| r.interval).collect();
        let tariffs: Vec<&str> = records().map(|r| r.tariff.as_str()).collect();
        let quantities: Vec<i64> = records().map(|r| r.quantity).collect();
        let charges: Vec<i64> = records().map(|r| r.charge).collect();
        self.transaction(|transaction| {
            let mut loaded: Vec<i64> = transaction
                .query(
                    &load,
                    &[
                        &batch.file,
                        &lines,
                        &operators,
                        &meters,
                        &dates,
                        &intervals,
                        &tariffs,
                        &quantities,
                        &charges,
                    ],
                )?
                .iter()
                .map(|row| row.get(0))
                .collect();
            loaded.sort_unstable();
            let twice = |line: &i64| loaded.binary_search(line).is_err();
            let duplicates: Vec<i64> = lines.iter().copied().filter(twice).collect();
            let mut rejected: Vec<(i64, &str, &[u8])> = Vec::new();
            for bad in &batch.rejected {
                rejected.push((bad.line, &bad.reason, &bad.bytes));
            }
            for (line, _, bytes) in batch.records.iter().filter(|(line, ..)| twice(line)) {
                rejected.push((*line, DUPLICATE, bytes));
            }
            reject(transaction, batch.file, &rejected)?;
            let step = Step {
                file: batch.file,
                first: batch.first,
                last: batch.last,
                records: i64::try_from(loaded.len()).unwrap_or(i64::MAX),
            };
            enter(transaction, Phase::Load, &step, batch.offset)?;
            if batch.finishes {
                let sql = "UPDATE billing.file SET finished = true WHERE file = $1";
                transaction.execute(sql, &[&batch.file])?;
            }
            Ok(duplicates)
        })
    }

    fn rejected(&mut self, file: i32) -> Result<Vec<Rejected>, Trouble> {
        let rows = self.client.query(
            "SELECT line, reason, bytes FROM billing.rejected WHERE file = $1 ORDER BY line",
            &[&file],
        );
        let rejected = |row: &::postgres::Row| Rejected {
            line: row.get(0),
            reason: row.get(1),
            bytes: row.get(2),
        };
        rows.map(|rows| rows.iter().map(rejected).collect()).map_err(trouble)
    }

    fn records(&mut self, step: &Step) -> Result<Vec<(i64, Record)>, Trouble> {
        let rows = self.client.query(
            "SELECT line, operator, meter, date, half_hour, tariff, quantity, charge \
             FROM billing.record WHERE file = $1 AND line BETWEEN $2 AND $3 ORDER BY line",
            &[&step.file, &step.first, &step.last],
        );
        let record = |row: &::postgres::Row| {
            let record = Record {
                operator: row.get(1),
                meter: row.get(2),
                date: row.get(3),
                interval: row.get(4),
                tariff: row.get(5),
                quantity: row.get(6),
                charge: row.get(7),
            };
            (row.get(0), record)
        };
        rows.map(|rows| rows.iter().map(record).collect()).map_err(trouble)
    }

    fn contract(&mut self, meter: &str) -> Result<Option<Contract>, Trouble> {
        let contract = prepared(&mut self.contract, &mut self.client, CONTRACT)?;
        let row = self.client.query_opt(&contract, &[&meter]).map_err(trouble)?;
        Ok(row.map(|row| Contract { operator: row.get(0), tariff: row.get(1), price: row.get(2) }))
    }

    fn quantity(&mut self, meter: &str, date: Date, interval: i16) -> Result<Option<i64>, Trouble> {
        let quantity = prepared(&mut self.quantity, &mut self.client, QUANTITY)?;
        let row = self.client.query_opt(&quantity, &[&meter, &date, &interval]).map_err(trouble)?;
        Ok(row.map(|row| row.get(0)))
    }

    fn found(&mut self, step: &Step, findings: &[Finding]) -> Result<(), Trouble> {
        let lines: Vec<i64> = findings.iter().map(|f| f.line).collect();
        let kinds: Vec<&str> = findings.iter().map(|f| f.kind).collect();
        let expected: Vec<i64> = findings.iter().map(|f| f.expected).collect();
        let found: Vec<i64> = findings.iter().map(|f| f.found).collect();
        self.transaction(|transaction| {
            transaction.execute(
                "INSERT INTO billing.finding SELECT $1, * \
                 FROM unnest($2::bigint[], $3::text[], $4::bigint[], $5::bigint[])",
                &[&step.file, &lines, &kinds, &expected, &found],
            )?;
            enter(transaction, Phase::Validate, step, 0)
        })
    }

    fn meters(&mut self) -> Result<i64, Trouble> {
        let row = self.client.query_one("SELECT count(*) FROM billing.meter", &[]);
        row.map(|row| row.get(0)).map_err(trouble)
    }

    fn sums(&mut self, first: i64, last: i64) -> Result<Vec<Sum>, Trouble> {
        let rows = self.client.query(
            "SELECT m.operator, m.meter, date_trunc('month', r.date::timestamp)::date, count(*), \
             sum(r.quantity)::bigint, sum(r.charge)::bigint, \
             coalesce(sum(f.found - f.expected), 0)::bigint \
             FROM billing.meter m JOIN billing.record r USING (meter) \
             LEFT JOIN billing.finding f \
             ON f.file = r.file AND f.line = r.line AND f.kind = 'charge' \
             WHERE m.number BETWEEN $1 AND $2 GROUP BY 1, 2, 3 ORDER BY 2, 3",
            &[&first, &last],
        );
        let sum = |row: &::postgres::Row| Sum {
            operator: row.get(0),
            meter: row.get(1),
            month: row.get(2),
            records: row.get(3),
            quantity: row.get(4),
            charge: row.get(5),
            disputed: row.get(6),
        };
        rows.map(|rows| rows.iter().map(sum).collect()).map_err(trouble)
    }

    fn charged(&mut self, step: &Step, charges: &[Charge]) -> Result<(), Trouble> {
        let sums = || charges.iter().map(|charge| &charge.sum);
        let meters: Vec<&str> = sums().map(|sum| sum.meter.as_str()).collect();
        let months: Vec<Date> = sums().map(|sum| sum.month).collect();
        let operators: Vec<&str> = sums().map(|sum| sum.operator.as_str()).collect();
        let numbers = |of: fn(&Charge) -> i64| charges.iter().map(of).collect::<Vec<i64>>();
        self.transaction(|transaction| {
            transaction.execute(
                "INSERT INTO billing.charge SELECT * FROM unnest($1::text[], $2::date[], \
                 $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], \
                 $9::bigint[], $10::bigint[])",
                &[
                    &meters,
                    &months,
                    &operators,
                    &numbers(|charge| charge.sum.records),
                    &numbers(|charge| charge.sum.quantity),
                    &numbers(|charge| charge.sum.charge),
                    &numbers(|charge| charge.sum.disputed),
                    &numbers(|charge| charge.fee),
                    &numbers(|charge| charge.tax),
                    &numbers(|charge| charge.total),
                ],
            )?;
            enter(transaction, Phase::Charge, step, 0)
        })
    }
}

impl Postgres {
    /// Runs `work` in one transaction. Two workers that meet at the same keys may lock one another
    /// out; the server ends one of them, which tries again.
    fn transaction<T>(
        &mut self,
        work: impl Fn(&mut Transaction<'_>) -> Result<T, Error>,
    ) -> Result<T, Trouble> {
        let mut tries = 0;
        loop {
            let attempt = |client: &mut Client| {
                let mut transaction = client.transaction()?;
                let answer = work(&mut transaction)?;
                transaction.commit()?;
                Ok(answer)
            };
            tries += 1;
            match attempt(&mut self.client) {
                Err(error) if tries < 20 && locked_out(&error) => {}
                result => return result.map_err(trouble),
            }
        }
    }
}

/// Which advisory lock is the engine's: "billing" in ASCII.
const LOCK: i64 = 0x0062_696c_6c69_6e67;

const LOAD: &str = "INSERT INTO billing.record SELECT $1, * FROM unnest($2::bigint[], $3::text[], \
     $4::text[], $5::date[], $6::smallint[], $7::text[], $8::bigint[], $9::bigint[]) \
     ON CONFLICT (meter, date, half_hour) DO NOTHING RETURNING line";

const CONTRACT: &str = "SELECT m.operator, m.tariff, t.price FROM billing.meter m \
     JOIN billing.tariff t USING (tariff) WHERE m.meter = $1";

const QUANTITY: &str = "SELECT quantity FROM billing.record \
     WHERE meter = $1 AND date = $2 AND half_hour = $3";

fn prepared(
    kept: &mut Option<Statement>,
    client: &mut Client,
    sql: &str,
) -> Result<Statement, Trouble> {
    if kept.is_none() {
        *kept = Some(client.prepare(sql).map_err(trouble)?);
    }
    kept.clone().ok_or_else(|| Trouble::Refused("no statement".into()))
}

fn reject(
    transaction: &mut Transaction<'_>,
    file: i32,
    rejected: &[(i64, &str, &[u8])],
) -> Result<(), Error> {
    if rejected.is_empty() {
        return Ok(());
    }
    let lines: Vec<i64> = rejected.iter().map(|(line, ..)| *line).collect();
    let reasons: Vec<&str> = rejected.iter().map(|(_, reason, _)| *reason).collect();
    let bytes: Vec<&[u8]> = rejected.iter().map(|(.., bytes)| *bytes).collect();
    let parameters: [&(dyn ToSql + Sync); 4] = [&file, &lines, &reasons, &bytes];
    let sql = "INSERT INTO billing.rejected \
               SELECT $1, * FROM unnest($2::bigint[], $3::text[], $4::bytea[])";
    transaction.execute(sql, &parameters).map(drop)
}

/// Writes a step into the ledger; its key refuses a second time.
fn enter(
    transaction: &mut Transaction<'_>,
    phase: Phase,
    step: &Step,
    offset: i64,
) -> Result<(), Error> {
    transaction
        .execute(
            "INSERT INTO billing.step (phase, file, first, last, next_offset, records) \
             VALUES ($1, $2, $3, $4, $5, $6)",
            &[&phase.number(), &step.file, &step.first, &step.last, &offset, &step.records],
        )
        .map(drop)
}

fn locked_out(error: &Error) -> bool {
    [&SqlState::T_R_DEADLOCK_DETECTED, &SqlState::T_R_SERIALIZATION_FAILURE]
        .into_iter()
        .any(|state| error.code() == Some(state))
}

/// Whether the connection is gone, and the message with its detail.
fn trouble(error: Error) -> Trouble {
    if let Some(db) = error.as_db_error() {
        let detail = db.detail().map(|detail| format!(" ({detail})")).unwrap_or_default();
        let why = format!("{}{detail}", db.message());
        // Class 57P: the server shuts down, crashed, or ended this session.
        let gone = error.code().is_some_and(|state| state.code().starts_with("57P"));
        return if gone { Trouble::Lost(why) } else { Trouble::Refused(why) };
    }
    let mut why = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let text = inner.to_string();
        if !why.contains(&text) {
            why = format!("{why}: {text}");
        }
        source = inner.source();
    }
    let io = error.source().is_some_and(|source| source.is::<std::io::Error>());
    if error.is_closed() || io { Trouble::Lost(why) } else { Trouble::Refused(why) }
}

/// The parameters, with the password of the environment where they have none.
fn config_of(connection: &str, password: Option<OsString>) -> Result<Config, Trouble> {
    let mut config: Config = connection.parse().map_err(trouble)?;
    // As for libpq, an empty one is none.
    if let Some(password) = password.filter(|password| !password.is_empty())
        && config.get_password().is_none()
    {
        config.password(password.into_vec());
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_comes_from_the_environment_where_the_connection_has_none() {
        let of = |connection: &str, password: Option<&str>| {
            let config = config_of(connection, password.map(Into::into)).ok().unwrap();
            config.get_password().map(|password| String::from_utf8_lossy(password).into_owned())
        };
        assert_eq!(of("host=a", Some("secret")), Some("secret".into()));
        assert_eq!(of("host=a password=own", Some("secret")), Some("own".into()));
        assert_eq!(of("postgresql://u:own@a/b", Some("secret")), Some("own".into()));
        assert_eq!(of("host=a", None), None);
        // As libpq: an empty one is none.
        assert_eq!(of("host=a", Some("")), None);
    }
}

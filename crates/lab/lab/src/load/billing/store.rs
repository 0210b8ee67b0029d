//! What the phases ask of a database. A dialect of SQL implements it; nothing else knows any SQL.
//!
//! Each writing call is one transaction that also writes its step into the ledger: it happens whole
//! and once. A step that is in the ledger already is refused by the ledger's key.

use time::Date;

use super::Phase;
use super::error::Trouble;
use super::record::Record;

/// One connection.
pub(super) trait Store: Sized {
    /// Connects.
    fn connect(connection: &str) -> Result<Self, Trouble>;
    /// Takes the lock of the engine for the life of this connection; false if another has it.
    fn lock(&mut self) -> Result<bool, Trouble>;
    /// Makes the tables where they are absent, and puts the master data in; refused if other master
    /// data is there.
    fn prepare(&mut self, master: &Master) -> Result<(), Trouble>;
    /// Lets the planner know what was put in since; not part of any phase's time.
    fn settle(&mut self) -> Result<(), Trouble>;
    /// The file of this name, entered if it is new.
    fn file(&mut self, name: &str, bytes: i64) -> Result<File, Trouble>;
    /// What is done of a phase.
    fn done(&mut self, phase: Phase) -> Result<Done, Trouble>;
    /// Every step of the ledger that a phase has done, in order.
    fn steps(&mut self, phase: Phase) -> Result<Vec<Step>, Trouble>;

    /// Phase 1: puts records and rejected lines in. Returns the lines whose key is there already;
    /// they were put among the rejected ones.
    fn load(&mut self, batch: &Batch) -> Result<Vec<i64>, Trouble>;
    /// The rejected lines of a file, in order.
    fn rejected(&mut self, file: i32) -> Result<Vec<Rejected>, Trouble>;

    /// Phase 2: the records of a step with their lines, in order.
    fn records(&mut self, step: &Step) -> Result<Vec<(i64, Record)>, Trouble>;
    /// What the contract of a meter says.
    fn contract(&mut self, meter: &str) -> Result<Option<Contract>, Trouble>;
    /// Quantity of a meter in a half hour.
    fn quantity(&mut self, meter: &str, date: Date, interval: i16) -> Result<Option<i64>, Trouble>;
    /// Puts in what was found.
    fn found(&mut self, step: &Step, findings: &[Finding]) -> Result<(), Trouble>;

    /// How many meters the master data has; their numbers are 0 and up.
    fn meters(&mut self) -> Result<i64, Trouble>;
    /// Phase 3: sums for each meter and month of the meters `first..=last`.
    fn sums(&mut self, first: i64, last: i64) -> Result<Vec<Sum>, Trouble>;
    /// Puts charges in.
    fn charged(&mut self, step: &Step, charges: &[Charge]) -> Result<(), Trouble>;
}

/// Meters and tariffs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Master {
    /// Name and price in hundredths of a cent a kWh.
    pub(super) tariffs: Vec<(String, i64)>,
    /// Name, operator, tariff; the place is the meter's number.
    pub(super) meters: Vec<(String, Contract)>,
}

/// What is agreed for a meter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contract {
    pub(super) operator: String,
    pub(super) tariff: String,
    /// Price of the tariff; 0 in master data, where the tariff has it.
    pub(super) price: i64,
}

/// A file and how far it was loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    pub(super) id: i32,
    /// Its size when it was first seen.
    pub(super) bytes: i64,
    /// Last line that was loaded or rejected; 0 if none.
    pub(super) line: i64,
    /// Where the next line starts.
    pub(super) offset: i64,
    pub(super) finished: bool,
}

/// Totals of the ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) steps: u64,
    pub(super) records: u64,
}

/// One transaction of the ledger: lines of a file, or in phase 3 numbers of meters (file 0).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Step {
    pub(super) file: i32,
    pub(super) first: i64,
    pub(super) last: i64,
    /// Records that were handled.
    pub(super) records: i64,
}

/// Lines of a file that go in together.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) file: i32,
    pub(super) first: i64,
    pub(super) last: i64,
    /// Where the line behind the last one starts.
    pub(super) offset: i64,
    /// Whether it ends the file.
    pub(super) finishes: bool,
    /// Good lines with their numbers and their bytes, in case the key is there already.
    pub(super) records: Vec<(i64, Record, Vec<u8>)>,
    pub(super) rejected: Vec<Rejected>,
}

/// A line that was not loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rejected {
    pub(super) line: i64,
    pub(super) reason: String,
    pub(super) bytes: Vec<u8>,
}

/// Why a line is rejected whose meter, date and interval were loaded before.
pub(super) const DUPLICATE: &str = "duplicate: this meter, date and interval are loaded already";

/// What phase 2 found about a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) line: i64,
    pub(super) kind: &'static str,
    /// What was calculated, in the unit of the field; 0 where the kind says it all.
    pub(super) expected: i64,
    /// What the record says.
    pub(super) found: i64,
}

/// What phase 3 reads: one meter, one month.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) operator: String,
    pub(super) meter: String,
    /// First day of the month.
    pub(super) month: Date,
    pub(super) records: i64,
    pub(super) quantity: i64,
    pub(super) charge: i64,
    /// What was charged above what phase 2 calculated.
    pub(super) disputed: i64,
}

/// What phase 3 inserts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Charge {
    pub(super) sum: Sum,
    /// For the days of the month.
    pub(super) fee: i64,
    pub(super) tax: i64,
    pub(super) total: i64,
}

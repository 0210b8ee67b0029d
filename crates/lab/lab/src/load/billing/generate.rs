//! Writes the month: market files and master data, the same bytes for the same settings.
//!
//! A file appears whole or not at all, and `market.json` last: a directory that has it is complete,
//! and is taken as it is when asked for again. Without it, what an attempt that was cut short has
//! made is made again, and nothing else is touched.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::error::{Error, Result};
use super::lines::LONGEST;
use super::made::Made;
use super::master;
use super::record::{HEADER, INTERVALS, cost};

/// The market to generate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Market {
    /// Good records in all files.
    pub records: u64,
    /// Days of each meter, 1 to 30: fewer days are more meters.
    #[serde(default = "month")]
    pub days: u32,
    /// Files. 0 counts as 1.
    pub files: u32,
    /// Seed of everything.
    pub seed: u64,
    /// How many bad lines there are for each good record, from 0 to 1.
    pub bad_lines: f64,
}

impl Default for Market {
    /// The month that was published: 3.7 million records. One line of 100,000 is bad.
    fn default() -> Self {
        Self { records: 3_700_000, days: month(), files: 74, seed: 1, bad_lines: 1e-5 }
    }
}

/// June, of which all records are.
const fn month() -> u32 {
    30
}

/// What was generated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Generated {
    /// From these settings.
    pub market: Market,
    /// Meters; each has a record for each half hour of its days in June 2013.
    pub meters: u64,
    /// Bytes of the market files.
    pub bytes: u64,
    /// Bad lines by kind.
    pub bad: BTreeMap<BadLine, u64>,
}

/// What is wrong with a bad line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BadLine {
    /// A field is missing.
    Fields,
    /// A quantity that is no number.
    Number,
    /// A month that does not exist.
    Date,
    /// Bytes that are not UTF-8.
    Encoding,
    /// More bytes than a line may have.
    Overlong,
    /// Meter, date and interval of the line before, with another quantity.
    Duplicate,
}

impl BadLine {
    /// All kinds.
    pub const ALL: [Self; 6] =
        [Self::Fields, Self::Number, Self::Date, Self::Encoding, Self::Overlong, Self::Duplicate];
}

/// Writes `market` into `dir`, which is made if absent. Does nothing if it is there already.
///
/// # Errors
/// When `dir` has another market, or cannot be written; [`Error::NotOurs`] when it has a file that
/// would have to be replaced, before anything is made.
pub fn generate(dir: &Path, market: &Market) -> Result<Generated> {
    let done = dir.join(DONE);
    if let Ok(text) = fs::read_to_string(&done) {
        return match serde_json::from_str::<Generated>(&text) {
            Ok(generated) if generated.market == *market => Ok(generated),
            _ => Err(Error::Order(format!(
                "{} has another market than the one asked for; {DONE} says which",
                dir.display()
            ))),
        };
    }
    if !(1..=month()).contains(&market.days) {
        return Err(Error::Order(format!(
            "a market has 1 to {} days, not {}",
            month(),
            market.days
        )));
    }
    let mut made = Made::read(dir)?;
    let names = names(market);
    for name in &names {
        made.is_free(name)?;
    }
    let master_dir = dir.join("master");
    fs::create_dir_all(&master_dir)
        .map_err(Error::io(format!("making {}", master_dir.display())))?;
    made.remove_all()?;
    made.claim(&names)?;
    let meters = market.records.div_ceil(RECORDS_A_DAY * u64::from(market.days)).max(1);
    let mut generated = Generated { market: *market, meters, bytes: 0, bad: BTreeMap::new() };
    write_master(dir, market.seed, meters)?;
    let files = u64::from(market.files.max(1));
    for file in 0..files {
        // In whole numbers, so that the files share the records to the last one.
        let share = |file: u64| {
            let share = u128::from(market.records) * u128::from(file) / u128::from(files);
            u64::try_from(share).unwrap_or(u64::MAX)
        };
        let path = dir.join(file_name(file));
        whole(&path, |out| {
            let mut writer = Writer { out, market, meters, generated: &mut generated };
            writer.file(file, share(file)..share(file + 1))
        })?;
        let what = || Error::io(format!("reading {}", path.display()));
        generated.bytes += fs::metadata(&path).map_err(what())?.len();
    }
    let json = serde_json::to_string_pretty(&generated).map_err(|e| Error::Order(e.to_string()))?;
    whole(&done, |out| writeln!(out, "{json}"))?;
    // Complete: from now on it is the user's, to change or to remove.
    made.give_up()?;
    Ok(generated)
}

/// Every file that is made, and its name while it is.
fn names(market: &Market) -> Vec<String> {
    let files = (0..u64::from(market.files.max(1))).map(file_name);
    let master = ["master/tariffs.csv", "master/meters.csv"].map(str::to_owned);
    let whole = files.chain(master).chain([DONE.to_owned()]);
    whole.flat_map(|name| [partial(Path::new(&name)).display().to_string(), name]).collect()
}

fn file_name(file: u64) -> String {
    format!("market-{:04}.csv", file + 1)
}

fn partial(path: &Path) -> PathBuf {
    path.with_extension("partial")
}

/// Its presence says that the directory is complete.
const DONE: &str = "market.json";
/// Half hours.
const RECORDS_A_DAY: u64 = 48;
const OPERATORS: u64 = 5;
/// Name and price in hundredths of a cent a kWh.
const TARIFFS: [(&str, i64); 4] =
    [("DOMESTIC", 2_431), ("BUSINESS", 1_987), ("CONTROLLED", 1_122), ("DEMAND", 1_518)];

/// Writes a file under another name and renames it.
fn whole(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<fs::File>) -> std::io::Result<()>,
) -> Result<()> {
    let partial = partial(path);
    let attempt = || {
        let mut out = BufWriter::with_capacity(1 << 18, fs::File::create(&partial)?);
        write(&mut out)?;
        out.into_inner()?.sync_all()?;
        fs::rename(&partial, path)
    };
    attempt().map_err(Error::io(format!("writing {}", path.display())))
}

fn write_master(dir: &Path, seed: u64, meters: u64) -> Result<()> {
    let [tariffs_path, meters_path] = master::paths(dir);
    whole(&tariffs_path, |out| {
        writeln!(out, "{}", master::TARIFFS)?;
        TARIFFS.iter().try_for_each(|(name, price)| writeln!(out, "{name},{price}"))
    })?;
    whole(&meters_path, |out| {
        writeln!(out, "{}", master::METERS)?;
        (0..meters).try_for_each(|number| {
            let Meter { operator, tariff: (tariff, _), .. } = Meter::of(seed, number);
            writeln!(out, "M{number:07},OP{operator},{tariff}")
        })
    })
}

/// What a meter's number says of it.
struct Meter {
    operator: u64,
    tariff: (&'static str, i64),
    /// Wh of an ordinary half hour.
    usual: i64,
}

impl Meter {
    fn of(seed: u64, number: u64) -> Self {
        let mut rng = Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Self {
            operator: rng.u64(1..=OPERATORS),
            tariff: TARIFFS[rng.usize(..TARIFFS.len())],
            usual: rng.i64(80..4_000),
        }
    }
}

struct Writer<'a, W> {
    out: &'a mut W,
    market: &'a Market,
    meters: u64,
    generated: &'a mut Generated,
}

impl<W: Write> Writer<'_, W> {
    /// Records are in the order of days, then meters, then half hours, as an operator sends them.
    fn file(&mut self, file: u64, numbers: std::ops::Range<u64>) -> std::io::Result<()> {
        let mut rng = Rng::with_seed(self.market.seed.rotate_left(32) ^ file);
        writeln!(self.out, "{HEADER}")?;
        for number in numbers {
            let line = self.line(&mut rng, number);
            self.out.write_all(line.as_bytes())?;
            self.out.write_all(b"\n")?;
            if self.market.bad_lines > 0.0 && rng.f64() < self.market.bad_lines {
                let kind = BadLine::ALL[rng.usize(..BadLine::ALL.len())];
                self.out.write_all(&spoil(&line, kind))?;
                self.out.write_all(b"\n")?;
                *self.generated.bad.entry(kind).or_default() += 1;
            }
        }
        Ok(())
    }

    fn line(&self, rng: &mut Rng, number: u64) -> String {
        let half_hours = u64::from(INTERVALS.unsigned_abs());
        let interval = number % half_hours + 1;
        let meter_number = number / half_hours % self.meters;
        let day = number / half_hours / self.meters + 1;
        let Meter { operator, mut tariff, usual } = Meter::of(self.market.seed, meter_number);
        let mut quantity = usual * rng.i64(70..130) / 100;
        let mut sort = 'M';
        let mut wrong = 0;
        // Of 1000 records some have what phase 2 is there to find.
        match rng.u32(..1000) {
            0..2 => quantity = quantity * 20 + 2_000,
            2 => sort = 'X',
            3 => tariff = TARIFFS[rng.usize(..TARIFFS.len())],
            4..9 => wrong = rng.i64(1..500),
            _ => {}
        }
        let charge = cost(quantity, tariff.1) + wrong;
        format!(
            "OP{operator},{sort}{meter_number:07},2013-06-{day:02},{interval},{},{}.{:03},{}.{:04}",
            tariff.0,
            quantity / 1000,
            quantity % 1000,
            charge / 10_000,
            charge % 10_000
        )
    }
}

/// A bad line beside the good `line`.
fn spoil(line: &str, kind: BadLine) -> Vec<u8> {
    let (rest, _) = line.rsplit_once(',').unwrap_or((line, ""));
    match kind {
        BadLine::Fields => rest.into(),
        BadLine::Number => format!("{rest},12.3x45").into(),
        BadLine::Date => line.replace("2013-06-", "2013-13-").into(),
        BadLine::Encoding => [line.as_bytes(), b"\xff\xfe"].concat(),
        BadLine::Overlong => format!("{line}{}", "0".repeat(2 * LONGEST)).into(),
        BadLine::Duplicate => format!("{rest},0.0001").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Market = Market { records: 300, days: 30, files: 2, seed: 7, bad_lines: 0.0 };

    /// Everything that lies in `dir`, by name.
    fn all(dir: &Path) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(dir).unwrap().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => found.extend(all(&entry.path())),
                false => {
                    let text = fs::read_to_string(entry.path()).unwrap();
                    found.insert(entry.path().display().to_string(), text);
                }
            }
        }
        found
    }

    #[test]
    fn a_file_of_the_user_s_stays_and_is_named() {
        for name in [
            "market-0002.csv",
            "market-0001.partial",
            "master/meters.csv",
            "master/tariffs.partial",
        ] {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir(dir.path().join("master")).unwrap();
            fs::write(dir.path().join(name), "theirs").unwrap();
            let before = all(dir.path());
            let error = generate(dir.path(), &SMALL).unwrap_err();
            assert!(matches!(&error, Error::NotOurs { path } if path.ends_with(name)), "{error}");
            assert_eq!(all(dir.path()), before);
        }
    }

    #[test]
    fn fewer_days_are_more_meters_and_no_market_has_none() {
        let dir = tempfile::tempdir().unwrap();
        let meters = |days: u32| {
            let dir = dir.path().join(days.to_string());
            generate(&dir, &Market { days, ..SMALL }).map(|generated| generated.meters)
        };
        assert_eq!((meters(30).unwrap(), meters(1).unwrap()), (1, 7));
        assert!(meters(0).is_err() && meters(31).is_err());
        let lines = fs::read_to_string(dir.path().join("1/market-0002.csv")).unwrap();
        assert!(lines.lines().skip(1).all(|line| line.contains(",2013-06-01,")), "{lines}");
    }

    #[test]
    fn an_attempt_that_was_cut_short_is_made_anew_even_as_another_market() {
        let dir = tempfile::tempdir().unwrap();
        let whole = tempfile::tempdir().unwrap();
        generate(whole.path(), &SMALL).unwrap();
        let larger = Market { files: 3, ..SMALL };
        let mut made = Made::read(dir.path()).unwrap();
        made.claim(&names(&larger)).unwrap();
        fs::write(dir.path().join("market-0003.csv"), "half").unwrap();
        fs::write(dir.path().join("market-0001.partial"), "half").unwrap();
        fs::write(dir.path().join("notes"), "theirs").unwrap();
        generate(dir.path(), &SMALL).unwrap();
        let texts = |dir: &Path| -> Vec<String> { all(dir).into_values().collect() };
        assert_eq!(fs::read_to_string(dir.path().join("notes")).unwrap(), "theirs");
        fs::remove_file(dir.path().join("notes")).unwrap();
        assert_eq!(texts(dir.path()), texts(whole.path()));
        // It is complete, so its files are not ours to replace any more.
        fs::remove_file(dir.path().join(DONE)).unwrap();
        assert!(matches!(generate(dir.path(), &SMALL), Err(Error::NotOurs { .. })));
    }

    #[test]
    fn the_same_settings_give_the_same_bytes() {
        let market = Market { records: 3_001, days: 30, files: 3, seed: 7, bad_lines: 0.02 };
        let read = || {
            let dir = tempfile::tempdir().unwrap();
            let generated = generate(dir.path(), &market).unwrap();
            assert_eq!(generate(dir.path(), &market).unwrap(), generated);
            assert!(generate(dir.path(), &Market { seed: 8, ..market }).is_err());
            let names = ["market-0001.csv", "market-0002.csv", "market-0003.csv"];
            let texts = names.map(|name| fs::read(dir.path().join(name)).unwrap());
            (texts, generated)
        };
        let (texts, generated) = read();
        assert_eq!((texts.clone(), generated.clone()), read());
        let lines: usize =
            texts.iter().map(|text| text.iter().filter(|byte| **byte == b'\n').count()).sum();
        let bad: u64 = generated.bad.values().sum();
        assert_eq!(lines as u64, 3_001 + bad + 3);
    }
}

//! Master data beside the market files: `master/tariffs.csv` and `master/meters.csv`.
//!
//! Unlike market files these are ours, so a bad line is an error and not rejected.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::{Error, Result};
use super::store::{Contract, Master};

/// First line of the tariffs; prices in hundredths of a cent a kWh.
pub(super) const TARIFFS: &str = "tariff,price";
/// First line of the meters; their order gives them numbers.
pub(super) const METERS: &str = "meter,operator,tariff";

/// Where the tariffs and the meters of the market in `dir` are.
pub(super) fn paths(dir: &Path) -> [PathBuf; 2] {
    ["tariffs.csv", "meters.csv"].map(|name| dir.join("master").join(name))
}

/// Reads both.
pub(super) fn read(dir: &Path) -> Result<Master> {
    let [tariffs, meters] = paths(dir);
    let mut master = Master::default();
    table(&tariffs, TARIFFS, |[name, price]: [&str; 2]| {
        let price = price.parse().map_err(|_| format!("{price:?} is no price"))?;
        master.tariffs.push((name.into(), price));
        Ok(())
    })?;
    let known: Vec<&str> = master.tariffs.iter().map(|(name, _)| name.as_str()).collect();
    table(&meters, METERS, |[name, operator, tariff]: [&str; 3]| {
        if !known.contains(&tariff) {
            return Err(format!("there is no tariff {tariff:?}"));
        }
        let contract = Contract { operator: operator.into(), tariff: tariff.into(), price: 0 };
        master.meters.push((name.into(), contract));
        Ok(())
    })?;
    Ok(master)
}

fn table<const N: usize>(
    path: &Path,
    header: &str,
    mut row: impl FnMut([&str; N]) -> Result<(), String>,
) -> Result<()> {
    let text = fs::read_to_string(path)
        .map_err(Error::io(format!("reading the master data {}", path.display())))?;
    for (number, line) in (1..).zip(text.lines()) {
        let wrong = |why| Error::File { path: path.into(), line: number, why };
        if number == 1 {
            if line != header {
                return Err(wrong(format!("{line:?} instead of {header:?}")));
            }
            continue;
        }
        let fields: Vec<&str> = line.split(',').collect();
        let fields =
            fields.try_into().map_err(|_| wrong(format!("{line:?} has not {N} fields")))?;
        row(fields).map_err(wrong)?;
    }
    Ok(())
}

//! The figures of others, as the files of `published/` have them, in one shape: a table for each
//! result.

use toml::{Table, Value};

use super::words;

/// A file of `published/`.
pub(super) struct Published {
    /// Title of the source.
    pub(super) title: String,
    /// What it ran on.
    pub(super) platform: String,
    /// Its results.
    pub(super) tables: Vec<PublishedTable>,
}

/// One result.
pub(super) struct PublishedTable {
    /// Workload, as the file names it.
    pub(super) workload: String,
    /// Levels that hold for the whole table, such as `scale` = `50`.
    pub(super) levels: Vec<(String, String)>,
    /// Unit of the values.
    pub(super) unit: String,
    /// Names of the columns.
    pub(super) columns: Vec<String>,
    /// Cells, as printed.
    pub(super) rows: Vec<Vec<String>>,
    /// What the source adds.
    pub(super) note: String,
}

/// The file with this name, without its directory and with or without `.toml`.
pub(super) fn find(name: &str) -> Option<Published> {
    let name = name.strip_suffix(".toml").unwrap_or(name);
    let (_, text) = FILES.iter().find(|(file, _)| *file == name)?;
    let table: Table = toml::from_str(text).ok()?;
    let source = table.get("source")?.as_table()?;
    let text_of = |key: &str| source.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
    let results = table.get("result").and_then(Value::as_array);
    let tables = results.into_iter().flatten().filter_map(|r| table_of(r.as_table()?)).collect();
    Some(Published { title: text_of("title"), platform: text_of("platform"), tables })
}

/// The keys of a result that are no columns.
const KNOWN: [&str; 5] = ["workload", "unit", "note", "rows", "columns"];

fn table_of(result: &Table) -> Option<PublishedTable> {
    let text_of = |key: &str| result.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
    let mut others: Vec<(String, String)> = result
        .iter()
        .filter(|(key, _)| !KNOWN.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), shown(value)))
        .collect();
    others.sort_by_key(|(key, _)| key == "encrypted");
    let (levels, columns, mut rows) = match result.get("rows").and_then(Value::as_array) {
        // Without rows the other keys are the only one.
        None => {
            let (columns, row): (Vec<_>, Vec<_>) = others.into_iter().unzip();
            (Vec::new(), columns, vec![row])
        }
        Some(rows) => match result.get("columns").and_then(Value::as_array) {
            Some(columns) => {
                let cells = |row: &Value| row.as_array().into_iter().flatten().map(shown).collect();
                (others, columns.iter().map(shown).collect(), rows.iter().map(cells).collect())
            }
            None => {
                let (columns, rows) = by_key(rows);
                (others, columns, rows)
            }
        },
    };
    align(&mut rows);
    let (workload, unit, note) = (text_of("workload"), text_of("unit"), text_of("note"));
    (!rows.is_empty()).then_some(PublishedTable { workload, levels, unit, columns, rows, note })
}

/// TOML forgets the zeros at the end of a printed number: each column gets as many digits as its
/// longest.
fn align(rows: &mut [Vec<String>]) {
    let digits = |cell: &String| cell.split_once('.').map_or(0, |(_, digits)| digits.len());
    for column in 0..rows.first().map_or(0, Vec::len) {
        let cells = || rows.iter().filter_map(|row| row.get(column));
        let most = cells().map(digits).max().unwrap_or(0);
        let numbers = cells().all(|cell| cell.replace(',', "").parse::<f64>().is_ok());
        if !numbers || cells().any(|cell| digits(cell) == 0) {
            continue;
        }
        for cell in rows.iter_mut().filter_map(|row| row.get_mut(column)) {
            let missing = most - digits(cell);
            cell.push_str(&"0".repeat(missing));
        }
    }
}

/// Rows that are tables: their keys are the columns, words before numbers.
fn by_key(rows: &[Value]) -> (Vec<String>, Vec<Vec<String>>) {
    let mut columns: Vec<(bool, String)> = Vec::new();
    for (key, value) in rows.iter().filter_map(Value::as_table).flatten() {
        let number = value.is_float() || value.is_integer();
        if !columns.iter().any(|(_, known)| known == key) {
            columns.push((number, key.clone()));
        }
    }
    columns.sort_by_key(|(number, key)| (*number, key == "encrypted"));
    let columns: Vec<String> = columns.into_iter().map(|(_, key)| key).collect();
    let cell = |row: &Value, key: &String| row.get(key).map_or_else(String::new, shown);
    let cells = |row: &Value| columns.iter().map(|key| cell(row, key)).collect();
    let rows = rows.iter().map(cells).collect();
    (columns, rows)
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Integer(number) => words::printed(*number as f64),
        // As printed, a figure with digits after the point keeps at least one: TOML has 3.0, not 3.
        Value::Float(number) if number.fract() == 0.0 => words::printed(*number) + ".0",
        Value::Float(number) => words::printed(*number),
        Value::Boolean(on) => if *on { "on" } else { "off" }.into(),
        other => other.to_string(),
    }
}

macro_rules! file {
    ($name:literal) => {
        ($name, include_str!(concat!("../../published/", $name, ".toml")))
    };
}

const FILES: [(&str, &str); 5] = [
    file!("aurora_mysqlslap"),
    file!("cybertec_tde"),
    file!("provisioned_iops"),
    file!("rds_encryption"),
    file!("shared_buffers"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_gives_its_tables_as_printed() {
        let count = |name| find(name).unwrap().tables.len();
        let counts = FILES.map(|(name, _)| count(name));
        assert_eq!(counts, [1, 6, 4, 2, 1]);
        let cybertec = find("cybertec_tde.toml").unwrap();
        let first = &cybertec.tables[0];
        assert_eq!(first.columns[..2], ["connections", "stock"]);
        assert_eq!(first.rows[0][..2], ["12", "598,004.94"]);
        assert_eq!(first.rows[8][3], "901,860.60");
        assert_eq!(first.levels, [("scale".to_owned(), "50".to_owned())]);
        let rds = &find("rds_encryption").unwrap().tables[0];
        assert_eq!(
            (rds.columns.join(" "), rds.rows[0].join(" ")),
            ("unencrypted encrypted".into(), "63 91".into())
        );
    }

    #[test]
    fn every_published_figure_stands_in_its_row_and_column() {
        let mut figures = 0;
        for (name, text) in FILES {
            let file: Table = toml::from_str(text).unwrap();
            let results = file["result"].as_array().unwrap();
            let tables = find(name).unwrap().tables;
            for (result, table) in results.iter().zip(&tables) {
                let result = result.as_table().unwrap();
                assert_eq!(result["unit"].as_str(), Some(table.unit.as_str()), "{name}");
                assert_eq!(result["workload"].as_str(), Some(table.workload.as_str()), "{name}");
                let single = [Value::Table(result.clone())];
                let rows = result.get("rows").and_then(Value::as_array).map_or(&single[..], |r| r);
                assert_eq!(rows.len(), table.rows.len(), "{name}");
                for (row, shown) in rows.iter().zip(&table.rows) {
                    assert_eq!(shown.len(), table.columns.len(), "{name}");
                    for (at, column) in table.columns.iter().enumerate() {
                        let value =
                            row.as_array().map_or_else(|| row.get(column), |row| row.get(at));
                        let number = value.and_then(|value| {
                            value.as_float().or(value.as_integer().map(|whole| whole as f64))
                        });
                        let Some(number) = number else { continue };
                        let told: f64 = shown[at].replace(',', "").parse().unwrap();
                        assert!((told - number).abs() < 1e-9, "{name}, {column}: {told}, {number}");
                        figures += 1;
                    }
                }
            }
        }
        // 6 tables of 10 rows with 6 numbers, and 4 x 2, 3, 1, 1, 2, 2, 2, 1.
        assert_eq!(figures, 360 + 20);
    }

    #[test]
    fn figures_keep_the_digits_that_were_printed() {
        let cybertec = find("cybertec_tde").unwrap();
        let tpcb = &cybertec.tables[3];
        assert_eq!(tpcb.rows[3][1], "6192.00", "TOML has 6192.00 as a number");
        assert!(find("shared_buffers").unwrap().tables[0].rows[0].contains(&"3.0".into()));
        assert!(find("provisioned_iops").unwrap().tables[2].rows[0].contains(&"0.0".into()));
    }
}

//! The report of a run: one HTML file that opens from disk, with CSV, JSON and Markdown beside it.
//!
//! ```text
//!   results --> view        what is said, as numbers and as words
//!                 |   costs      what sealed lost, in the sentences that come first
//!                 |   forest     kinds of load beside what others published, on one axis
//!                 |   heat       every cell as a tile
//!                 |   finding    what may be said of one comparison, and what may not
//!                 |   cells      trials of one cell and arm, summarised
//!                 |   words      rounded numbers and sentences
//!                 |   figure     charts as data, drawn by ECharts in the page
//!                 |   layout     the published tables, and ours in the same layout
//!                 v
//!               page        report.html      machine     report.json, report.csv
//!                 |         report.md
//!                 |   side_by_side   two runs in one page
//!                 |   policy     what the page may load and run: only what is embedded
//! ```
//!
//! Nothing is measured or judged here, and nothing is dropped: outliers, warnings, missing arms and
//! broken lines are all in it.

mod cells;
mod costs;
mod figure;
mod finding;
mod forest;
mod heat;
mod layout;
mod machine;
mod page;
mod policy;
mod published;
mod side_by_side;
mod view;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

use crate::analysis::{self, Comparison};
use crate::error::{Error, Result};
use crate::manifest::Planned;
use crate::results::{Results, replaced};

/// Writes the page that sets two runs side by side to `path`.
///
/// # Errors
/// When it cannot be written.
pub fn write_side_by_side(a: &Results, b: &Results, path: &Path) -> Result<()> {
    let page = side_by_side::html(a, b)?;
    fs::write(path, page).map_err(Error::io(format!("writing {}", path.display())))
}

/// Names of the files of a report.
pub const FILES: [&str; 4] = ["report.html", "report.md", "report.json", "report.csv"];

/// Writes `report.html`, `report.md`, `report.json` and `report.csv` into `out`, all or none, and
/// returns their paths.
///
/// # Errors
/// When the files of the run cannot be read, or those of the report cannot be written.
pub fn write(results: &Results, out: &Path) -> Result<Vec<PathBuf>> {
    let compared: Vec<Vec<Comparison>> = results
        .manifest
        .experiments
        .iter()
        .map(|p| analysis::compare(&p.experiment, &results.trials))
        .collect();
    let view = view::View::of(results, &compared);
    let beside_peer = |p: &Planned| analysis::beside_peer(&p.experiment, &results.trials);
    let mut compared = compared;
    for (all, planned) in compared.iter_mut().zip(&results.manifest.experiments) {
        all.extend(beside_peer(planned));
    }
    let [html, markdown, json, csv] = FILES;
    let files = [
        (html, page::html(&view)?),
        (markdown, page::markdown(&view)?),
        (json, machine::json(results, &view, compared)?),
        (csv, machine::csv(results)),
    ];
    fs::create_dir_all(out).map_err(Error::io(format!("making {}", out.display())))?;
    replaced(out, &files)?;
    Ok(files.iter().map(|(name, _)| out.join(name)).collect())
}

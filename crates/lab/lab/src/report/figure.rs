//! Charts as data: the page's script hands them to ECharts, which draws them.

mod lines;
mod ratios;
mod times;

use serde::Serialize;

pub(super) use lines::{latencies, over_factors};
pub(super) use ratios::ratios;
pub(super) use times::over_time;

/// One chart with its words.
#[derive(Debug, Serialize)]
pub(super) struct Figure {
    /// Unique in the page.
    pub(super) id: String,
    /// What is shown.
    pub(super) title: String,
    /// Under which conditions.
    pub(super) caption: String,
    /// What a reader who does not see it should know.
    pub(super) alt: String,
    /// Whether it takes the whole width.
    pub(super) wide: bool,
    /// What is drawn.
    pub(super) chart: Chart,
}

/// What is drawn.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(super) enum Chart {
    /// One row for each comparison: the interval, and the ratio of each block.
    Ratios { rows: Vec<Row> },
    /// A value over the levels of a factor, or over percentiles: medians, extremes, all trials.
    Lines { x: Axis, y: String, lines: Vec<Line> },
    /// Values over the time of trials.
    Times { y: String, tracks: Vec<Track> },
}

/// A comparison.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) label: String,
    pub(super) arm: String,
    pub(super) low: f64,
    pub(super) mid: f64,
    pub(super) high: f64,
    /// Block and ratio.
    pub(super) pairs: Vec<(u32, f64)>,
    pub(super) outliers: Vec<u32>,
    /// Where the control lies.
    pub(super) control: Option<(f64, f64)>,
    /// Whether too little was measured to say anything of it: drawn hollow.
    pub(super) untold: bool,
    pub(super) text: String,
}

/// The horizontal axis of lines.
#[derive(Debug, Serialize)]
pub(super) struct Axis {
    pub(super) title: String,
    pub(super) logarithmic: bool,
    /// Place and text of each level.
    pub(super) ticks: Vec<(f64, String)>,
}

/// One arm over the levels.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    pub(super) arm: String,
    pub(super) points: Vec<Point>,
}

/// One arm at one level.
#[derive(Debug, Serialize)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) low: f64,
    pub(super) mid: f64,
    pub(super) high: f64,
    pub(super) all: Vec<f64>,
    pub(super) text: String,
}

/// What one arm did over time.
#[derive(Debug, Serialize)]
pub(super) struct Track {
    pub(super) name: String,
    pub(super) arm: String,
    /// Place among the levels of what was provisioned: the style of the line.
    pub(super) style: usize,
    /// Median over the blocks for each second.
    pub(super) median: Vec<(f64, f64)>,
    /// Each block.
    pub(super) blocks: Vec<Vec<(f64, f64)>>,
}

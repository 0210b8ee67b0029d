//! The report in a real browser: it opens from disk alone, shows what was measured, and adds nothing.

#![expect(clippy::unwrap_used, reason = "a test")]

#[path = "report/browser.rs"]
mod browser;
#[path = "report/run.rs"]
mod run;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::Value;
use tidelock_lab::report;
use tidelock_lab::results::{RESULTS, Results};

use browser::Browser;

/// The synthetic run; its report lies in `report` below it. Made once for all tests of this program.
fn made() -> &'static Path {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    MADE.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lab-report");
        let _ = fs::remove_dir_all(&dir);
        run::make(&dir);
        let results = Results::read(&dir).unwrap();
        assert_eq!(results.broken.len(), 1, "the corrupt line is known");
        assert_eq!(report::write(&results, &dir.join("report")).unwrap().len(), 4);
        dir
    })
}

/// Opens the page of the synthetic run.
fn opened() -> Browser {
    let mut browser = Browser::start();
    browser.size(1280, 900, 1.0);
    browser.open(&made().join("report/report.html"));
    browser
}

/// The lines of results.jsonl, read without the lab's own types.
fn lines(dir: &Path) -> Vec<Value> {
    let text = fs::read_to_string(dir.join(RESULTS)).unwrap();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[test]
fn the_page_draws_every_chart_and_requests_and_complains_of_nothing() {
    let mut browser = opened();
    let state = browser.evaluate("window.tidelockReport");
    assert_eq!(state["errors"], serde_json::json!([]));
    assert!(state["figures"].as_u64().unwrap() >= 20, "{state}");
    assert_eq!(state["figures"], state["drawn"]);
    let empty = "[...document.querySelectorAll('.chart')].filter((chart) => { const svg = \
                 chart.querySelector('svg'); const box = svg && svg.getBoundingClientRect(); return !svg \
                 || box.width < 200 || box.height < 80 || svg.querySelectorAll('path').length < 5; })\
                 .map((chart) => chart.id)";
    assert_eq!(browser.evaluate(empty), serde_json::json!([]));
    // What is in the data is text, not markup.
    assert_eq!(browser.evaluate("window.intruder === undefined"), true);
    assert_eq!(browser.evaluate("document.querySelectorAll('img').length"), 0);
    let shown = browser.evaluate("document.body.innerText");
    assert!(shown.as_str().unwrap().contains(run::HOSTILE));

    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");
    let requests = browser.requests();
    assert!(requests.iter().all(|url| url.ends_with("/report.html")), "{requests:?}");
    assert_eq!(requests.len(), 1, "{requests:?}");
}

#[test]
fn its_numbers_are_those_of_the_results() {
    let mut browser = opened();
    // Throughput by arm and block in one cell, from the file itself.
    let mut values: BTreeMap<String, BTreeMap<u64, f64>> = BTreeMap::new();
    for line in lines(made()) {
        let cell = &line["cell"];
        let same =
            cell["workload"] == "tpcb_like" && cell["scale"] == "50" && cell["connections"] == "12";
        if same && line["phase"] == "capacity" {
            let value = line["metrics"]["transactions_per_second"].as_f64().unwrap();
            let arm = line["arm"].as_str().unwrap().to_owned();
            values.entry(arm).or_default().insert(line["block"].as_u64().unwrap(), value);
        }
    }
    let plain = &values["plain"];
    let expected: Vec<f64> = values["sealed"].iter().map(|(block, v)| v / plain[block]).collect();
    let mean = (expected.iter().map(|r| r.ln()).sum::<f64>() / expected.len() as f64).exp();

    let chart = "echarts.getInstanceByDom(document.getElementById(\
                 'cybertec-matrix-capacity-tpcb_like-transactions_per_second-ratio')).getOption()";
    // The row is found by its label; middle and blocks are what ECharts was given.
    let row = "JSON.parse(document.getElementById('figures').textContent).find((f) => f.id === \
               'cybertec-matrix-capacity-tpcb_like-transactions_per_second-ratio').chart.rows\
               .findIndex((r) => r.arm === 'sealed' && r.label === 'connections 12, scale 50')";
    let points = browser.evaluate(&format!(
        "(() => {{ const row = {row}; return {chart}.series.filter((s) => s.type === 'scatter').map((s) => \
         s.data.filter((d) => d.value[1] === row).map((d) => d.value[0])).filter((d) => d.length); }})()"
    ));
    let numbers = |value: &Value| -> Vec<f64> {
        value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
    };
    let (middle, blocks) = (numbers(&points[0]), numbers(&points[1]));
    assert_eq!(blocks.len(), 12);
    for (shown, expected) in blocks.iter().zip(&expected) {
        assert!((shown - expected).abs() < 1e-12, "{shown} for {expected}");
    }
    assert!((middle[0] - mean).abs() < 1e-9, "{} for {mean}", middle[0]);

    // The same in words: the row of the table, and the median in the layout of the publication.
    let mut sorted: Vec<f64> = plain.values().copied().collect();
    sorted.sort_by(f64::total_cmp);
    let median = f64::midpoint(sorted[5], sorted[6]);
    let digits = browser.evaluate(&format!(
        "new Intl.NumberFormat('en', {{ maximumSignificantDigits: 3, useGrouping: false }}).format({median})"
    ));
    let ours = browser.evaluate(
        "[...document.querySelectorAll('.pair')].find((p) => p.querySelector('h4').textContent === \
         'tpcb like, scale 50').querySelectorAll('table')[1].rows[2].cells[1].textContent",
    );
    assert_eq!(ours, digits);
    let table = browser.evaluate(
        "[...document.querySelectorAll('section.experiment td')].map((td) => td.textContent)",
    );
    let cells: Vec<&str> = table.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let rounded = format!("{mean:.3} [");
    assert!(cells.iter().any(|text| text.starts_with(&rounded)), "no cell begins {rounded}");

    // CSV and JSON say the same.
    let json: Value =
        serde_json::from_slice(&fs::read(made().join("report/report.json")).unwrap()).unwrap();
    let compared = json["experiments"][0]["comparisons"].as_array().unwrap();
    let same = compared.iter().find(|c| {
        c["arm"] == "sealed" && c["metric"] == "transactions_per_second" && c["phase"] == "capacity"
            && c["cell"] == serde_json::json!({ "workload": "tpcb_like", "scale": "50", "connections": "12" })
    });
    assert!((same.unwrap()["ratio"].as_f64().unwrap() - mean).abs() < 1e-9);
    let csv = fs::read_to_string(made().join("report/report.csv")).unwrap();
    let measured: usize =
        lines(made()).iter().map(|line| line["metrics"].as_object().unwrap().len()).sum();
    assert_eq!(csv.lines().count(), measured + 1);
    let markdown = fs::read_to_string(made().join("report/report.md")).unwrap();
    assert!(markdown.contains(&rounded) && !markdown.contains("<script"), "{markdown}");
}

#[test]
fn the_raw_results_come_out_of_the_page_as_they_went_in() {
    let mut browser = opened();
    let into = tempfile::tempdir().unwrap();
    browser.downloads(into.path());
    browser.evaluate("document.querySelector('[data-download=\"results.jsonl\"]').click()");
    browser.wait("Browser.downloadProgress", |progress| progress["state"] == "completed");
    let downloaded = fs::read(into.path().join("results.jsonl")).unwrap();
    assert!(downloaded == fs::read(made().join(RESULTS)).unwrap());
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
}

#[test]
fn a_phone_scrolls_no_page_sideways_and_dark_differs_from_light() {
    let mut browser = opened();
    for width in [320, 390, 768, 1280] {
        browser.size(width, 844, 1.0);
        let scrolled = browser.evaluate("document.documentElement.scrollWidth");
        assert_eq!(scrolled, width, "at {width} pixels");
    }
    browser.scheme("light");
    let light = browser.screenshot(None);
    let page_light = browser.evaluate("getComputedStyle(document.body).backgroundColor");
    browser.scheme("dark");
    let dark = browser.screenshot(None);
    let page_dark = browser.evaluate("getComputedStyle(document.body).backgroundColor");
    assert!(light != dark && page_light != page_dark, "{page_light} and {page_dark}");
    assert!(light.starts_with(b"\x89PNG") && dark.len() > 10_000);
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
}

#[test]
fn it_prints_and_says_everything_without_scripts() {
    let mut browser = opened();
    let pdf = browser.print();
    assert!(pdf.starts_with(b"%PDF-") && pdf.len() > 50_000, "{} bytes", pdf.len());
    let off = serde_json::json!({ "value": true });
    browser.call("Emulation.setScriptExecutionDisabled", off);
    browser.open(&made().join("report/report.html"));
    browser.call("Emulation.setScriptExecutionDisabled", serde_json::json!({ "value": false }));
    let text = browser.evaluate("document.body.innerText");
    let text = text.as_str().unwrap();
    for said in [
        "Charts and downloads need JavaScript",
        "not comparable",
        "gocryptfs is not installed",
        "line 22",
    ] {
        assert!(text.contains(said), "without scripts the page does not say {said:?}");
    }
    assert_eq!(browser.evaluate("document.querySelectorAll('svg').length"), 0);
}

/// Makes pictures of the run in TIDELOCK_LAB_RUN, for the README, in docs/images; without one, of the
/// synthetic run, in cargo's directory for the files of tests.
#[test]
#[ignore = "long: make test-full; makes pictures, of the run in TIDELOCK_LAB_RUN if it is set"]
fn pictures_of_a_run() {
    let (lab, images) = match std::env::var_os("TIDELOCK_LAB_RUN") {
        Some(lab) => {
            (PathBuf::from(lab), Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images"))
        }
        None => (made().to_path_buf(), Path::new(env!("CARGO_TARGET_TMPDIR")).join("lab-images")),
    };
    fs::create_dir_all(&images).unwrap();
    println!("pictures of {} in {}", lab.display(), images.display());
    let dir = tempfile::tempdir().unwrap();
    let page = report::write(&Results::read(&lab).unwrap(), dir.path()).unwrap()[0].clone();
    let mut browser = Browser::start();
    browser.open(&page);
    let save = |name: String, bytes: Vec<u8>| fs::write(images.join(name), bytes).unwrap();
    let sections = "[...document.querySelectorAll('.experiment h2')].map((h) => h.id)";
    let sections = browser.evaluate(sections);
    for scheme in ["light", "dark"] {
        browser.size(1120, 840, 1.5);
        browser.scheme(scheme);
        save(format!("lab-{scheme}.png"), browser.screenshot(None));
        for name in sections.as_array().unwrap().iter().filter_map(Value::as_str) {
            // The chart that says most: over time, else over a factor, else the ratios.
            let figures = format!(
                "(() => {{ const all = [...document.getElementById('{name}').parentElement\
                 .querySelectorAll('figure')]; return all.find((f) => f.querySelector('[id*=\"-time-\"]')) \
                 || all.find((f) => !f.classList.contains('wide')) || all[0]; }})()"
            );
            if browser.evaluate(&format!("!!{figures}")) == true {
                let png = browser.screenshot(Some(&figures));
                save(format!("lab-{name}-{scheme}.png"), png);
            }
        }
        browser.size(390, 844, 2.0);
        save(format!("lab-phone-{scheme}.png"), browser.screenshot(None));
    }
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
}

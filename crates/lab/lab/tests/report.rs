//! The report in a real browser: it opens from disk alone, shows what was measured, and adds
//! nothing.

#![expect(clippy::unwrap_used, reason = "a test")]

#[path = "report/browser.rs"]
mod browser;
#[path = "report/run.rs"]
mod run;
#[path = "report/screens.rs"]
mod screens;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::Value;
use tidelock_lab::report;
use tidelock_lab::results::{RESULTS, Results};

use browser::Browser;

/// The synthetic run; its report lies in `report` below it. Made once for all tests of this
/// program.
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

/// Opens the page of the synthetic run, and every experiment in it.
fn opened() -> Browser {
    let mut browser = closed();
    open_all(&mut browser);
    browser
}

/// Opens the page as a reader finds it.
fn closed() -> Browser {
    let mut browser = Browser::start();
    browser.size(1280, 900, 1.0);
    browser.open(&made().join("report/report.html"));
    browser
}

/// Opens every experiment, and waits until its charts were drawn.
fn open_all(browser: &mut Browser) {
    let opened = browser.evaluate(
        "Promise.all([...document.querySelectorAll('.experiment > details')].map((part) => new \
         Promise((done) => { if (part.open) done(true); part.addEventListener('toggle', () => done(part.open)); part.open = \
         true; })))",
    );
    assert!(opened.as_array().unwrap().iter().all(|open| *open == true), "{opened}");
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
fn it_begins_with_the_cost_and_every_form_says_the_same() {
    let mut browser = opened();
    let json: Value =
        serde_json::from_slice(&fs::read(made().join("report/report.json")).unwrap()).unwrap();
    let costs = &json["costs"];
    // 24 cells of cybertec-matrix, 5 of shared-buffers, 6 of provisioned-iops; all with a control.
    assert_eq!(costs["cells"], 35);
    let parts = ["losses", "gains", "same", "untold"].map(|part| costs[part].as_u64().unwrap());
    assert_eq!(parts.iter().sum::<u64>(), 35, "{costs}");
    // 14 % slower at 1 MB of shared_buffers is what the run was made with.
    let largest = &costs["largest_loss"];
    assert_eq!(largest["cell"]["shared_buffers"], "1MB");
    assert!((largest["ratio"].as_f64().unwrap() - 0.86).abs() < 0.02, "{largest}");
    // First what all blocks say together, in one sentence; then the largest of 35.
    let first = costs["said"].as_str().unwrap();
    assert!(first.starts_with("Sealed against unencrypted, over all loads: "), "{first}");
    assert_eq!(first.matches(". ").count(), 0, "{first}");
    let said = costs["by_cells"].as_str().unwrap();
    let begin = format!("in {} of 35 measured cells; the most was a loss of ", parts[0]);
    assert!(said.contains(&begin), "{said}");
    let whole = &costs["families"][0];
    assert_eq!((&whole["kind"], &whole["aspect"]), (&"all".into(), &"cpu".into()));
    assert_eq!(whole["cells"], 24, "CPU time was measured in cybertec-matrix alone");
    assert!(said.contains("in shared-buffers (read only, shared buffers 1MB)."), "{said}");
    let caveats: Vec<&str> =
        costs["caveats"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let begins = |text: &str| caveats.iter().any(|caveat| caveat.starts_with(text));
    assert!(begins("The run is not whole: 3 of 38 planned cells"), "{caveats:?}");
    assert!(begins("Fewer than 10 blocks were measured in 5 of 35"), "{caveats:?}");
    assert!(begins("Something may have disturbed ") && begins("1 line of"), "{caveats:?}");

    let shown = "[...document.querySelectorAll('h1, header li, .by-cells, .claims')].map((e) => \
                 e.textContent.replace(/\\u00a0/g, ' '))";
    let shown = browser.evaluate(shown);
    let mut expected: Vec<String> = vec![first.into()];
    expected.extend(caveats.iter().map(|caveat| format!("{caveat}.")));
    expected.extend([said, costs["claims"].as_str().unwrap()].map(String::from));
    assert_eq!(shown, serde_json::json!(expected));
    let markdown = fs::read_to_string(made().join("report/report.md")).unwrap();
    let paragraphs: Vec<&str> = markdown.split("\n\n").map(str::trim).collect();
    assert_eq!(paragraphs[1], first);
    assert!(paragraphs.contains(&said) && paragraphs.contains(&costs["claims"].as_str().unwrap()));
    // The largest of many cells stands below the verdicts.
    let at = |text: &str| markdown.find(text).unwrap();
    assert!(at("\n## Verdicts on") < at("\n## Cells\n") && at("\n## Cells\n") < at(said));
    for caveat in &caveats {
        assert!(markdown.contains(&format!("* {caveat}.")), "{caveat}");
    }
}

/// What a manager sees: a sentence, and the picture with what was published beside it.
#[test]
fn the_first_screen_has_the_sentence_and_the_whole_picture() {
    let mut browser = closed();
    browser.size(1400, 900, 1.0);
    let below =
        browser.evaluate("document.querySelector('.forest').getBoundingClientRect().bottom");
    assert!(below.as_f64().unwrap() <= 900.0, "the picture ends at {below}");
    assert_eq!(browser.evaluate("window.tidelockReport.drawn"), 0, "nothing closed is drawn");
    // Places in the picture are those of the ratios, on a logarithmic axis.
    let json: Value =
        serde_json::from_slice(&fs::read(made().join("report/report.json")).unwrap()).unwrap();
    let families = json["costs"]["families"].as_array().unwrap();
    let places = browser.evaluate(
        "[...document.querySelectorAll('.forest .mark')].map((mark) => { const [low, high] = \
         [mark.querySelector('line').x1, mark.querySelector('line').x2].map((x) => \
         x.baseVal.valueInSpecifiedUnits); const [, , mid] = [...mark.querySelectorAll('svg')].map((s) \
         => s.x.baseVal.valueInSpecifiedUnits); return [low, mid, high]; })",
    );
    let one = browser
        .evaluate("document.querySelector('.forest line.one').x1.baseVal.valueInSpecifiedUnits");
    let one = one.as_f64().unwrap();
    let places = places.as_array().unwrap();
    assert_eq!(places.len(), families.len());
    // Percent of the width for a step of the logarithm, from the longest whisker.
    let log = |value: &Value| value.as_f64().unwrap().ln();
    let mut steps = Vec::new();
    for (place, family) in places.iter().zip(families) {
        let ends = [
            (&place[0], &family["interval"][0]),
            (&place[1], &family["ratio"]),
            (&place[2], &family["interval"][1]),
        ];
        for (at, ratio) in ends {
            if log(ratio).abs() > 0.01 {
                steps.push((at.as_f64().unwrap() - one) / log(ratio));
            }
        }
    }
    assert!(steps.len() >= 3, "{families:?}");
    let middle = steps.iter().sum::<f64>() / steps.len() as f64;
    assert!(steps.iter().all(|step| (step / middle - 1.0).abs() < 0.05), "{steps:?}");
    // The matrix was published with 44 % lost: a hollow diamond left of everything of ours.
    let diamonds = browser.evaluate(
        "[...document.querySelectorAll('.forest g.published')].map((g) => [g.querySelector('title')\
         .textContent, g.querySelector('svg').x.baseVal.valueInSpecifiedUnits])",
    );
    let lost =
        diamonds.as_array().unwrap().iter().find(|d| d[0].as_str().unwrap().contains("44 %"));
    let at = lost.unwrap()[1].as_f64().unwrap();
    assert!((at - one - middle * 0.563_f64.ln()).abs() < 0.2, "{diamonds}, 1 at {one}");
}

/// An experiment is closed until somebody wants it.
#[test]
fn a_link_to_an_experiment_opens_it_and_draws_its_charts() {
    let mut browser = closed();
    let open = "document.querySelectorAll('.experiment > details[open]').length";
    assert_eq!(browser.evaluate(open), 0);
    let drawn = browser.evaluate(
        "new Promise((done) => { document.getElementById('shared-buffers').closest('details')\
         .addEventListener('toggle', () => done(window.tidelockReport.drawn)); location.hash = \
         'shared-buffers'; })",
    );
    assert!(drawn.as_u64().unwrap() >= 2, "{drawn}");
    assert_eq!(browser.evaluate(open), 1);
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
}

/// Every cell has its tiles, and each says what the table of numbers says.
#[test]
fn the_heat_map_has_every_cell_and_hides_none() {
    let mut browser = closed();
    let tiles = browser.evaluate(
        "[...document.querySelectorAll('.heat tbody tr')].map((row) => \
         row.querySelector('td.throughput').className.split(' ')[1])",
    );
    let tiles = tiles.as_array().unwrap();
    // 24 cells of cybertec-matrix, 5 of shared-buffers, 9 of provisioned-iops of which three were
    // not measured.
    assert_eq!(tiles.len(), 38);
    let of = |state: &str| tiles.iter().filter(|tile| **tile == state).count();
    let json: Value =
        serde_json::from_slice(&fs::read(made().join("report/report.json")).unwrap()).unwrap();
    let costs = &json["costs"];
    for (state, count) in
        [("loss", "losses"), ("gain", "gains"), ("same", "same"), ("wide", "hidden")]
    {
        assert_eq!(of(state) as u64, costs[count].as_u64().unwrap(), "{state}");
    }
    assert_eq!(of("absent"), 3);
}

#[test]
fn only_the_scripts_that_were_embedded_run_and_nothing_is_fetched() {
    let mut browser = opened();
    let policy = "document.querySelector('meta[http-equiv]').content";
    let policy = browser.evaluate(policy).as_str().unwrap().to_owned();
    let directives: BTreeMap<&str, &str> =
        policy.split("; ").filter_map(|directive| directive.split_once(' ')).collect();
    assert_eq!(directives["default-src"], "'none'");
    // The digests of what is there, by the browser itself.
    for (directive, elements) in [("script-src", "script:not([type])"), ("style-src-elem", "style")]
    {
        let digests = browser.evaluate(&format!(
            "Promise.all([...document.querySelectorAll('{elements}')].map(async (e) => {{ const \
             d = await \
             crypto.subtle.digest('SHA-256', new TextEncoder().encode(e.textContent)); return \
             \"'sha256-\" + btoa(String.fromCharCode(...new Uint8Array(d))) + \"'\"; \
               }})).then((d) => \
             d.join(' '))"
        ));
        assert_eq!(digests, directives[directive], "{directive}");
    }
    // Tips are made only when asked for; they too must need nothing else.
    let tip = "(() => { const chart = echarts.getInstanceByDom(document.querySelector('.chart')); \
               chart.dispatchAction({ type: 'showTip', seriesIndex: 1, dataIndex: 0 }); return \
               document.querySelector('.chart > div:last-child').textContent; })()";
    let tip = browser.evaluate(tip);
    assert!(tip.as_str().unwrap().contains("blocks"), "{tip}");
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());

    let intruder = "(() => { const s = document.createElement('script'); s.textContent = \
                    'window.intruder = 1'; document.body.append(s); const i = new Image(); i.src = \
                    'http://example.org/x.png'; document.body.insertAdjacentHTML('beforeend', '<p id=p \
                    onclick=\"window.intruder = 2\">'); document.getElementById('p').click(); \
                              return \
                    fetch('http://example.org/').then(() => 'fetched', () => 'refused'); })()";
    assert_eq!(browser.evaluate(intruder), "refused");
    assert_eq!(browser.evaluate("window.intruder === undefined"), true);
    let refused = browser.complaints();
    let by_policy = |why: &&&Value| why.to_string().contains("Content Security Policy");
    assert!(refused.iter().filter(by_policy).count() >= 4, "{refused:?}");
}

#[test]
fn hostile_names_are_text_in_every_form() {
    let dir = tempfile::tempdir().unwrap();
    run::make_hostile(dir.path());
    let out = dir.path().join("report");
    report::write(&Results::read(dir.path()).unwrap(), &out).unwrap();
    let mut browser = Browser::start();
    browser.size(1280, 900, 1.0);
    browser.open(&out.join("report.html"));
    open_all(&mut browser);
    let state = browser.evaluate("window.tidelockReport");
    assert_eq!(state["errors"], serde_json::json!([]));
    assert!(state["figures"].as_u64().unwrap() >= 2, "{state}");
    assert_eq!(state["figures"], state["drawn"]);
    assert_eq!(browser.evaluate("window.intruder === undefined"), true);
    assert_eq!(browser.evaluate("document.querySelectorAll('img').length"), 0);
    let scripts = browser.evaluate("document.querySelectorAll('script').length");
    assert_eq!(scripts, 5, "two that run, three of data");
    let name = browser.evaluate("document.querySelector('.experiment h3').textContent");
    assert_eq!(name, run::HOSTILE);
    let raw =
        "JSON.parse(document.querySelector('script[data-file=\"results.jsonl\"]').textContent)";
    assert_eq!(browser.evaluate(raw), fs::read_to_string(dir.path().join(RESULTS)).unwrap());
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());

    let read = |name: &str| fs::read_to_string(out.join(name)).unwrap();
    let markdown = read("report.md");
    assert!(!markdown.contains('<'), "{markdown}");
    let columns = |line: &str| line.replace("\\|", "").matches('|').count();
    let table: Vec<&str> = markdown.lines().filter(|line| line.starts_with('|')).collect();
    assert!(table.len() > 8, "{markdown}");
    for line in table {
        assert!([6, 7, 8].contains(&columns(line)), "{line}");
    }
    let rows = records(&read("report.csv"));
    // Those of `control`, which the plan has as missing, are not in it.
    assert!(rows.len() > 70 && rows.iter().all(|row| row.len() == rows[0].len()), "{rows:?}");
    let formulas = rows.iter().flatten().filter(|field| field.starts_with(['=', '+', '@']));
    assert_eq!(formulas.count(), 0);
    assert!(rows.iter().flatten().any(|field| field.strip_prefix('\'') == Some(run::FORMULA)));
    let json: Value = serde_json::from_str(&read("report.json")).unwrap();
    assert_eq!(json["experiments"][0]["name"], run::HOSTILE);
}

/// The records of a CSV file (RFC 4180).
fn records(text: &str) -> Vec<Vec<String>> {
    let mut records = vec![vec![String::new()]];
    let mut quoted = false;
    for c in text.chars() {
        let field = records.last_mut().unwrap().last_mut().unwrap();
        match c {
            // A quote that is doubled ends the field and begins it again.
            '"' => {
                if !quoted && !field.is_empty() {
                    field.push('"');
                }
                quoted = !quoted;
            }
            ',' if !quoted => records.last_mut().unwrap().push(String::new()),
            '\n' if !quoted => records.push(vec![String::new()]),
            '\r' if !quoted => {}
            c => field.push(c),
        }
    }
    assert_eq!(records.pop().unwrap(), [""], "the last line has no end");
    records
}

#[test]
fn csv_json_and_markdown_carry_the_same_numbers() {
    let read = |name: &str| fs::read_to_string(made().join("report").join(name)).unwrap();
    let rows = records(&read("report.csv"));
    let column = |name: &str| rows[0].iter().position(|field| field == name).unwrap();
    let json: Value = serde_json::from_str(&read("report.json")).unwrap();
    let markdown = read("report.md");
    let mut compared = 0;
    for experiment in json["experiments"].as_array().unwrap() {
        for comparison in experiment["comparisons"].as_array().unwrap() {
            let cell = comparison["cell"].as_object().unwrap();
            let of = |arm: &Value| -> BTreeMap<&str, f64> {
                let here = rows[1..].iter().filter(|row| {
                    row[column("experiment")] == experiment["name"]
                        && row[column("phase")] == comparison["phase"]
                        && row[column("metric")] == comparison["metric"]
                        && row[column("arm")] == *arm
                        && cell.iter().all(|(name, level)| row[column(name)] == *level)
                });
                let value = |row: &'_ Vec<String>| row[column("value")].parse::<f64>().unwrap();
                here.map(|row| (row[column("block")].as_str(), value(row))).collect()
            };
            let (base, arm) = (of(&comparison["base"]), of(&comparison["arm"]));
            let metric = comparison["metric"].as_str().unwrap();
            let less = metric.starts_with("latency") || metric == "cpu_per_unit";
            // plain and control are both the base of all others.
            let second = of(&Value::from("control"));
            let pooled = |block: &&str| match comparison["arm"] == "control" {
                true => base[*block],
                false => second.get(*block).map_or(base[*block], |s| (base[*block] * s).sqrt()),
            };
            let logs = arm.iter().map(|(block, value)| (value / pooled(block)).ln());
            let mean = logs.sum::<f64>() / arm.len() as f64;
            let ratio = if less { -mean } else { mean }.exp();
            let told = comparison["ratio"].as_f64().unwrap();
            assert!((told - ratio).abs() < 1e-9, "{comparison}: {ratio}");
            assert_eq!(comparison["blocks"], arm.len());
            let ends = [0_usize, 1].map(|at| comparison["interval"][at].as_f64().unwrap());
            let digits = if ends[1] - ends[0] > 0.1 { 2 } else { 3 };
            let row = format!(
                "| {} | {told:.digits$} [{:.digits$}, {:.digits$}] | ",
                comparison["arm"].as_str().unwrap(),
                ends[0],
                ends[1]
            );
            assert!(markdown.contains(&row), "no row {row}");
            compared += 1;
        }
    }
    assert!(compared > 100, "{compared}");
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
    let (plain, control) = (&values["plain"], &values["control"]);
    let base = |block: &u64| (plain[block] * control[block]).sqrt();
    let expected: Vec<f64> = values["sealed"].iter().map(|(block, v)| v / base(block)).collect();
    let mean = (expected.iter().map(|r| r.ln()).sum::<f64>() / expected.len() as f64).exp();

    let chart = "echarts.getInstanceByDom(document.getElementById(\
                 'cybertec-matrix-capacity-tpcb_like-transactions_per_second-ratio')).getOption()";
    // The row is found by its label; middle and blocks are what ECharts was given.
    let row = "JSON.parse(document.getElementById('figures').textContent).find((f) => f.id === \
               'cybertec-matrix-capacity-tpcb_like-transactions_per_second-ratio').chart.rows\
               .findIndex((r) => r.arm === 'sealed' && r.label === 'connections 12, scale 50')";
    let points = browser.evaluate(&format!(
        "(() => {{ const row = {row}; return {chart}.series.filter((s) => s.type === \
         'scatter').map((s) => \
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
        "new Intl.NumberFormat('en', {{ maximumSignificantDigits: 3, useGrouping: false \
         }}).format({median})"
    ));
    // In the row of the published 12 connections, after the five published figures.
    let row = browser.evaluate(
        "[...[...document.querySelectorAll('.pair')].find((p) => p.querySelector('h5').textContent \
         === 'tpcb like, scale 50').querySelector('table').rows].map((r) => [...r.cells].map((c) => \
         c.textContent)).find((cells) => cells[0] === '12')",
    );
    let cells: Vec<&str> = row.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(cells[..3], ["12", "3580.13", "3520.69"]);
    assert_eq!(serde_json::json!(cells[6]), digits);
    // What has no trial says so, and is not 0.
    assert_eq!(cells[9], "not measured", "the arm gocryptfs was not: {cells:?}");
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
fn it_prints_and_says_everything_without_scripts() {
    let mut browser = opened();
    let pdf = browser.print();
    assert!(pdf.starts_with(b"%PDF-") && pdf.len() > 50_000, "{} bytes", pdf.len());
    assert!(pages(&pdf) > 4, "what is open is printed too");
    let off = serde_json::json!({ "value": true });
    browser.call("Emulation.setScriptExecutionDisabled", off);
    browser.open(&made().join("report/report.html"));
    browser.call("Emulation.setScriptExecutionDisabled", serde_json::json!({ "value": false }));
    let text = browser.evaluate("document.body.innerText");
    let text = text.as_str().unwrap();
    assert!(!text.contains("A limit that is named"), "what is closed is not shown");
    let all = browser.evaluate("document.body.textContent");
    let text = all.as_str().unwrap();
    for said in [
        "Charts and downloads need JavaScript",
        "not comparable",
        "gocryptfs is not installed",
        "A limit that is named",
        "line 22",
    ] {
        assert!(text.contains(said), "without scripts the page does not say {said:?}");
    }
    assert_eq!(browser.evaluate("document.querySelectorAll('.chart svg').length"), 0);
    assert!(browser.evaluate("document.querySelectorAll('.forest svg').length") != 0);
}

#[test]
fn what_is_printed_fits_four_pages() {
    let pdf = closed().print();
    assert!((1..=4).contains(&pages(&pdf)), "{} pages", pages(&pdf));
    // A whole run of `make lab`.
    let kept = "../../../lab/runs/2026-11-27-intel-xeon-2cpu";
    let kept = Results::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(kept)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let page = report::write(&kept, dir.path()).unwrap()[0].clone();
    let mut browser = Browser::start();
    browser.open(&page);
    let pdf = browser.print();
    assert_eq!(pages(&pdf), 4);
}

/// Pages of a PDF: its objects of that type, whose dictionaries are not compressed.
fn pages(pdf: &[u8]) -> usize {
    pdf.windows(11).filter(|part| part == b"/Type /Page").count()
        - pdf.windows(12).filter(|part| part == b"/Type /Pages").count()
}

/// Makes the pictures of the README from the run in TIDELOCK_LAB_RUN, in docs/images; without one,
/// of the synthetic run, in cargo's directory for the files of tests.
#[test]
#[ignore = "long: make test-full; makes pictures, of the run in TIDELOCK_LAB_RUN if it is set"]
fn pictures_of_a_run() {
    let (lab, images) = match std::env::var_os("TIDELOCK_LAB_RUN") {
        Some(lab) => {
            (PathBuf::from(lab), Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/images"))
        }
        None => (made().to_path_buf(), Path::new(env!("CARGO_TARGET_TMPDIR")).join("lab-images")),
    };
    fs::create_dir_all(&images).unwrap();
    println!("pictures of {} in {}", lab.display(), images.display());
    let dir = tempfile::tempdir().unwrap();
    let page = report::write(&Results::read(&lab).unwrap(), dir.path()).unwrap()[0].clone();
    let json = fs::read(dir.path().join("report.json")).unwrap();
    let json: Value = serde_json::from_slice(&json).unwrap();
    // The ratios among which the largest loss is.
    let largest = &json["costs"]["largest_loss"];
    let text = |value: &Value| value.as_str().expect("a run with a loss").to_owned();
    let (experiment, metric) = (text(&largest["experiment"]), text(&largest["metric"]));
    let workload = text(&largest["cell"]["workload"]);
    let ratios = format!(
        "document.getElementById('{experiment}-capacity-{workload}-{metric}-ratio').closest('figure')"
    );
    let mut browser = Browser::start();
    browser.open(&page);
    browser.size(1400, 760, 1.2);
    for scheme in ["light", "dark"] {
        browser.scheme(scheme);
        browser
            .evaluate("document.querySelectorAll('details').forEach((d) => { d.open = false; })");
        let first = browser.screenshot(None);
        open_all(&mut browser);
        for (name, png) in [
            (format!("lab-{scheme}.png"), first),
            (format!("lab-ratios-{scheme}.png"), browser.screenshot(Some(&ratios))),
        ] {
            assert!((10_000..300_000).contains(&png.len()), "{name}: {} bytes", png.len());
            fs::write(images.join(name), png).unwrap();
        }
    }
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
}

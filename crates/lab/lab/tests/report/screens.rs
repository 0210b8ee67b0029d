//! The report and two runs side by side on wide and narrow screens.

use super::*;

#[test]
fn a_phone_scrolls_no_page_sideways_and_dark_differs_from_light() {
    let mut browser = opened();
    let sizes = [320, 390, 768, 1280, 1400, 1540];
    // Also where the machine has wide letters alone.
    browser.evaluate("document.body.style.fontFamily = 'monospace'");
    for width in sizes {
        browser.size(width, 844, 1.0);
        let scrolled = browser.evaluate("document.documentElement.scrollWidth");
        let wide = "[...document.querySelectorAll('body *')].filter((e) => \
                    e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.tagName + '.' + \
                    e.className).slice(0, 8).join()";
        assert_eq!(scrolled, width, "at {width} pixels: {}", browser.evaluate(wide));
    }
    browser.evaluate("document.body.style.fontFamily = ''");
    for width in sizes {
        browser.size(width, 844, 1.0);
        let [light, dark] = ["light", "dark"].map(|scheme| {
            browser.scheme(scheme);
            let scrolled = browser.evaluate("document.documentElement.scrollWidth");
            assert_eq!(scrolled, width, "{scheme}, at {width} pixels");
            let page = browser.evaluate("getComputedStyle(document.body).backgroundColor");
            (browser.screenshot(None), page)
        });
        assert!(light.0 != dark.0 && light.1 != dark.1, "{} and {} at {width}", light.1, dark.1);
        assert!(light.0.starts_with(b"\x89PNG") && dark.0.len() > 5_000, "at {width} pixels");
    }
    assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
}

/// The line of 1 stands where the axis says 1 in each row, and no two labels of the axis meet, also
/// where the machine has wide letters alone.
#[test]
fn the_rows_of_the_picture_have_the_scale_of_its_axis_on_every_screen() {
    let mut browser = closed();
    let sizes = [320, 390, 768, 1280, 1400, 1540];
    let all = ["inherit", "monospace"].into_iter().flat_map(|font| sizes.map(|size| (font, size)));
    for (font, width) in all {
        browser.size(width, 844, 1.0);
        browser.evaluate(&format!("document.body.style.fontFamily = '{font}'"));
        let away = browser.evaluate(
            "(() => { const middle = (e) => { const box = e.getBoundingClientRect(); return \
             (box.left + box.right) / 2; }; const one = [...document.querySelectorAll('.forest \
             .axis div:last-child span')].find((e) => e.textContent === '1'); return \
             Math.max(...[...document.querySelectorAll('.forest line.one')].map((line) => \
             Math.abs(middle(line) - middle(one)))); })()",
        );
        assert!(away.as_f64().unwrap() < 1.0, "{away} pixels away at {width}, {font}");
        let meet = browser.evaluate(
            "(() => { const all = [...document.querySelectorAll('.forest .axis span')].map((e) => \
             e.getBoundingClientRect()); return all.some((a, at) => all.slice(at + 1).some((b) => \
             a.left < b.right && b.left < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom\
             )); })()",
        );
        assert_eq!(meet, false, "labels meet at {width}, {font}");
    }
    let key = browser.evaluate("document.querySelector('.heat-key').textContent");
    let key = key.as_str().unwrap();
    for tile in ["-4.5", "+2.0", "<1.9", "<24", "~", "?"] {
        assert!(key.contains(&format!("{tile} ")), "{tile} is not in the key: {key}");
    }
}

/// `compare --html` on a screen and on a phone.
#[test]
fn two_runs_side_by_side_scroll_no_page_sideways_and_request_nothing() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("lab-compare.html");
    let other = tempfile::tempdir().unwrap();
    run::make_hostile(other.path());
    let [one, hostile] = [made(), other.path()].map(|dir| Results::read(dir).unwrap());
    for (a, b, rows) in [(&one, &one, 20), (&hostile, &hostile, 1), (&one, &hostile, 0)] {
        report::write_side_by_side(a, b, &path).unwrap();
        let mut browser = Browser::start();
        for width in [1400, 390] {
            browser.size(width, 844, 1.0);
            browser.open(&path);
            let pages = ["light", "dark"].map(|scheme| {
                browser.scheme(scheme);
                let scrolled = browser.evaluate("document.documentElement.scrollWidth");
                assert_eq!(scrolled, width, "{scheme}, at {width} pixels");
                browser.evaluate("getComputedStyle(document.body).backgroundColor")
            });
            assert_ne!(pages[0], pages[1], "at {width} pixels");
            let shown = browser.evaluate("document.querySelectorAll('main tbody tr').length");
            assert!(shown.as_u64().unwrap() >= rows, "{shown} rows");
        }
        let heading = browser.evaluate("document.querySelector('h1').textContent");
        assert!(heading.as_str().unwrap().contains("both runs have") || rows == 0, "{heading}");
        assert_eq!(browser.evaluate("window.intruder === undefined"), true);
        assert_eq!(browser.evaluate("document.querySelectorAll('script, img').length"), 0);
        assert!(browser.complaints().is_empty(), "{:?}", browser.complaints());
        let requests = browser.requests();
        assert!(requests.iter().all(|url| url.ends_with("/lab-compare.html")), "{requests:?}");
        assert_eq!(requests.len(), 2, "one for each width: {requests:?}");
    }
}

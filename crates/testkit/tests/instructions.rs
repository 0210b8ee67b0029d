//! What the library adds to the calls that a server makes most, in instructions, against what is
//! written down in `step/counts.toml`.
//!
//! Instructions are counted one by one, so a path that became longer shows on any machine, however
//! busy it is. `TIDELOCK_BLESS=1` writes the counts down; why they changed belongs in the commit.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tidelock_testkit::instructions::{self, Count};
use tidelock_testkit::twins::{Build, Product, Workspace, compile};

/// How much longer a call may become before it is a slower path. The counts repeat exactly, and
/// what grows by less each time would never be seen.
const MORE: f64 = 0.01;

#[test]
fn no_call_of_the_fast_path_has_become_longer() {
    let place = Workspace::new("instructions").unwrap();
    let program = compile("fast_path", Build::Common, &place.programs()).unwrap();
    let step = instructions::compile(&place.programs()).unwrap_or_else(|error| panic!("{error}"));
    let product = Product::find().unwrap_or_else(|error| panic!("{error}"));
    let dir = place.protect(&product, "postgres").unwrap_or_else(|error| panic!("{error}"));
    let library = product.library();
    let run = |sealed: bool, name: &str| {
        let (trace, dir) =
            (place.programs().join(name), if sealed { dir.clone() } else { place.plain() });
        let with = sealed.then_some(&product);
        let ended = place.run_stepped(with, &step, &program, &dir, &trace);
        let ended = ended.unwrap_or_else(|error| panic!("{error}"));
        assert!(ended.good() && ended.output.contains("bad 0\n"), "{ended}{}", ended.output);
        let text = fs::read_to_string(&trace).unwrap();
        let counts = instructions::counted(&text, &library);
        each_call(counts.unwrap_or_else(|error| panic!("{error}")))
    };
    let (plain, sealed) = (run(false, "plain.trace"), run(true, "sealed.trace"));
    let profile = if library.parent().is_some_and(|dir| dir.ends_with("release")) {
        "release"
    } else {
        "debug"
    };
    println!("{profile}: instructions of a call");
    println!("{:<18} {:>8} {:>8} {:>8} {:>8}", "", "plain", "library", "cipher", "others");
    for (name, now) in &sealed {
        let plain = plain[name];
        assert_eq!((plain.library, plain.cipher), (0, 0), "{name} is plain");
        assert!(now.library > 0, "{name} does not pass the library");
        println!(
            "{name:<18} {:>8} {:>8} {:>8} {:>8}",
            plain.others, now.library, now.cipher, now.others
        );
    }
    let calls = [
        "aligned read",
        "aligned write",
        "fstat",
        "open and close",
        "read of 16 pages",
        "seek to the end",
        "small write",
    ];
    assert_eq!(sealed.keys().map(String::as_str).collect::<Vec<_>>(), calls);
    // A run of units is looked up, locked and opened as one.
    let (one, many) = (sealed["aligned read"].library, sealed["read of 16 pages"].library);
    assert!(many < 5 * one, "{many} instructions for 16 pages, {one} for one");
    let found: BTreeMap<String, u64> =
        sealed.iter().map(|(name, count)| (name.clone(), count.library)).collect();
    if std::env::var_os("TIDELOCK_BLESS").is_some() {
        return write_down(profile, &found);
    }
    let known = written_down();
    assert!(
        known.contains_key(profile),
        "{profile}: nothing to compare with\nhint: TIDELOCK_BLESS=1 writes these down"
    );
    let longer: Vec<String> = found
        .iter()
        .filter_map(|(name, now)| {
            let before = *known.get(profile)?.get(name)?;
            let more = *now as f64 / before as f64 - 1.0;
            if more < -MORE {
                println!("{name}: {now} instructions instead of {before}: write it down");
            }
            (more > MORE).then(|| format!("{name}: {now} instructions instead of {before}"))
        })
        .collect();
    assert!(longer.is_empty(), "{profile}: {longer:#?}\nhint: TIDELOCK_BLESS=1 writes them down");
    assert_eq!(known[profile].keys().collect::<Vec<_>>(), found.keys().collect::<Vec<_>>());
}

/// Instructions of one call, without those of the marks.
fn each_call(mut sections: BTreeMap<String, Count>) -> BTreeMap<String, Count> {
    let marks = sections.remove("nothing").expect("the empty section");
    for count in sections.values_mut() {
        count.library = count.library.saturating_sub(marks.library);
        count.cipher = count.cipher.saturating_sub(marks.cipher);
        count.others = count.others.saturating_sub(marks.others);
    }
    sections
}

fn table() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("step/counts.toml")
}

/// Instructions by profile and call.
fn written_down() -> BTreeMap<String, BTreeMap<String, u64>> {
    toml::from_str(&fs::read_to_string(table()).unwrap()).unwrap()
}

fn write_down(profile: &str, found: &BTreeMap<String, u64>) {
    let mut known = written_down();
    known.insert(profile.into(), found.clone());
    let head = "# Instructions of the library for one call of the fast path, without the cipher:\n\
                # tests/instructions.rs compares, and writes them with TIDELOCK_BLESS=1.\n\n";
    fs::write(table(), format!("{head}{}", toml::to_string(&known).unwrap())).unwrap();
}

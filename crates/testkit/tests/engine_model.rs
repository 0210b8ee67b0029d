//! Random call sequences through the engine over the simulated kernel, against plain byte vectors:
//! every result and every final byte must be equal. Nothing fails here; see engine_faults.rs and
//! engine_crash.rs.

use proptest::prelude::*;
use tidelock_format::Layout;
use tidelock_testkit::model::{Action, Outcome, Plain, Raw};
use tidelock_testkit::sim::driver::with_room;
use tidelock_testkit::sim::{Driver, SimDisk};

/// Runs the actions on both sides; the trace of what was done, if they differ.
fn compare(raws: &[Raw], processes: usize, layout: Layout) -> Result<(), String> {
    let driver = Driver::new(SimDisk::new(layout), processes);
    let mut model = Plain::new(processes);
    let mut trace = Vec::new();
    for raw in raws {
        let Some(action) = model.concrete(*raw) else { continue };
        trace.push(format!("{action:?}"));
        let (want, got) = (model.apply(&action), driver.apply(&action));
        let told = |why: String| format!("{why}\n  after:\n  {}", trace.join("\n  "));
        check(&action, &want, &got).map_err(told)?;
        driver.compare(&model).map_err(told)?;
        let visible = |who| driver.process(who).system().visible();
        for who in 0..processes {
            if visible(who) != model.descriptors(who) {
                return Err(told(format!("process {who} has descriptors {:?}", visible(who))));
            }
        }
    }
    driver.finish()
}

fn check(action: &Action, want: &Outcome, got: &Outcome) -> Result<(), String> {
    if want == got { Ok(()) } else { Err(format!("{action:?} gave {got:?}, should give {want:?}")) }
}

fn raw() -> impl Strategy<Value = Raw> {
    any::<(u8, u8, u8, u8, u8, u8)>().prop_map(|(kind, who, which, at, near, len)| Raw {
        kind,
        who,
        which,
        at,
        near,
        len,
    })
}

fn layout() -> impl Strategy<Value = Layout> {
    prop_oneof![Just(Layout::DEFAULT), Just(Layout::new(8192).expect("a known layout"))]
}

fn run(processes: usize, cases: u32, len: usize) {
    let config = ProptestConfig {
        cases,
        max_shrink_iters: 3000,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(raws in prop::collection::vec(raw(), 1..len), layout in layout())| {
        if let Err(why) = compare(&raws, processes, layout) {
            return Err(TestCaseError::fail(why));
        }
    });
}

#[test]
fn one_process_sees_what_a_plain_file_shows() {
    with_room(|| run(1, 150, 60));
}

#[test]
fn two_processes_see_each_others_bytes() {
    with_room(|| run(2, 100, 80));
}

#[test]
fn three_processes_over_a_long_time() {
    with_room(|| {
        let mut seed = 0x7464_6c6b_u64;
        let mut dice = move || {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            u8::try_from(seed >> 56).expect("eight bits")
        };
        let mut raws = Vec::new();
        for _ in 0..4000 {
            let [kind, who, which, at, near, len] = [(); 6].map(|()| dice());
            raws.push(Raw { kind, who, which, at, near, len });
        }
        compare(&raws, 3, Layout::DEFAULT).unwrap();
    });
}

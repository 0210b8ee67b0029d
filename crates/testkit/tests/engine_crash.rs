//! The machine stops at the N-th call, for every N: what is left must be a state that a plain file
//! could be in, block by block, and a good file to go on with.
//!
//! What was synced before reads as before. What was not reads as any of its versions, 16 bytes by
//! 16 bytes. Two states have no counterpart and are what the format allows (FORMAT.md, "Torn
//! writes"): a header that was never synced may be lost, which is refused by name; and in a file of
//! zero rule 2 a unit that was a hole or cut by the end when it was last synced may read as
//! garbage, as a torn page does.

use std::collections::BTreeMap;

use tidelock_engine::{Errno, Refusal};
use tidelock_format::{Class, Layout, PROBE_LEN, Probe, UNIT_USIZE};
use tidelock_testkit::model::{Action, PATHS, Plain, Raw, class_of, data};
use tidelock_testkit::sim::driver::{half_hole, with_room};
use tidelock_testkit::sim::{Driver, Fault, Plan, SimDisk};

/// The contents that each file had since it was last synced, the synced one first.
type Versions = BTreeMap<&'static str, Vec<Vec<u8>>>;

struct Run {
    driver: Driver,
    versions: Versions,
    trace: Vec<String>,
}

impl Run {
    /// Acts until the planned crash, or to the end.
    fn until(raws: &[Raw], layout: Layout, plan: Option<Plan>) -> Self {
        let disk = SimDisk::new(layout);
        let mut run =
            Self { driver: Driver::new(disk, 1), versions: Versions::new(), trace: Vec::new() };
        let mut model = Plain::new(1);
        let disk = run.driver.disk().clone();
        disk.plan(plan.map(|plan| Plan { at: plan.at + disk.calls(), ..plan }));
        for raw in raws {
            let Some(action) = model.concrete(*raw) else { continue };
            if matches!(action, Action::Unlink { .. } | Action::Rename { .. } | Action::Link { .. })
            {
                continue;
            }
            run.trace.push(format!("{action:?}"));
            run.note_pieces(&action, &model);
            let want = model.apply(&action);
            let got = run.driver.apply(&action);
            run.note(&action, &model, disk.has_crashed());
            if disk.has_crashed() {
                break;
            }
            assert_eq!(format!("{got:?}"), format!("{want:?}"), "{action:?}");
        }
        run
    }

    /// Several pieces in one call arrive one after another.
    fn note_pieces(&mut self, action: &Action, model: &Plain) {
        let (Action::Write { pieces, .. } | Action::Pwrite { pieces, .. }) = action else { return };
        for count in 1..pieces.len() {
            let mut some = action.clone();
            if let Action::Write { pieces, .. } | Action::Pwrite { pieces, .. } = &mut some {
                pieces.truncate(count);
            }
            let mut between = model.fork();
            between.apply(&some);
            self.note(&some, &between, false);
        }
    }

    fn note(&mut self, action: &Action, model: &Plain, crashed: bool) {
        for path in PATHS {
            let Some(content) = model.content(path) else { continue };
            let versions = self.versions.entry(path).or_insert_with(|| vec![Vec::new()]);
            if versions.last().is_none_or(|last| last != content) {
                versions.push(content.to_vec());
            }
        }
        if let (Action::Sync { fd, .. }, false) = (action, crashed) {
            let synced = model.behind(0, *fd).and_then(|(file, _)| model.name_of(file));
            if let Some(versions) = synced.and_then(|path| self.versions.get_mut(path)) {
                versions.drain(..versions.len() - 1);
            }
        }
    }

    /// Looks at one of the states that the crash may have left.
    fn check(&self, dice: &mut dyn FnMut(u64) -> u64) -> Result<(), String> {
        let before = self.driver.disk();
        let after = Driver::new(before.after_crash(dice), 1);
        for (path, versions) in &self.versions {
            if !after.disk().exists(path) {
                continue;
            }
            let told = |why: String| format!("{path}: {why}\n  {}", self.trace.join("\n  "));
            if is_lost(after.disk(), path).map_err(told)? {
                // Only a header that was never synced can be lost, and it is told.
                if before.inspect(path, |file| file.is_firm(0)) {
                    return Err(told("a synced header is lost".to_owned()));
                }
                let got = after.content(path);
                if got != Err(Errno::IO) {
                    return Err(told(format!(
                        "a lost header gives {:?}",
                        got.map(|all| all.len())
                    )));
                }
                continue;
            }
            let seen = after.content(path).map_err(|error| told(format!("errno {}", error.0)))?;
            let firm = |unit: usize| {
                let start = before.layout().data_offset() as usize / UNIT_USIZE;
                class_of(path) == Class::Bytes
                    || before.inspect(path, |file| file.is_firm(start + unit))
            };
            among(versions, &seen, firm).map_err(told)?;
            let whole = after.disk().inspect(path, |file| {
                half_hole(file.bytes(), before.layout(), class_of(path)).is_none()
            });
            if whole {
                go_on(&after, path, &seen, dice).map_err(told)?;
            }
        }
        after.finish()
    }
}

/// Each block of `seen` is one that the file had since it was synced.
fn among(versions: &[Vec<u8>], seen: &[u8], firm: impl Fn(usize) -> bool) -> Result<(), String> {
    let sizes = versions.iter().map(Vec::len);
    let least = sizes.clone().min().unwrap_or(0);
    // A cut goes by way of the end of the block, growth by way of the end of the unit.
    let most = sizes.max().unwrap_or(0).next_multiple_of(16);
    if seen.len() < least || seen.len() > most {
        return Err(format!("{} bytes, should be {least} to {most}", seen.len()));
    }
    for (index, block) in seen.chunks(16).enumerate() {
        let known = versions.iter().any(|version| {
            (0..block.len())
                .all(|at| block[at] == version.get(index * 16 + at).copied().unwrap_or(0))
        });
        if !known && firm(index * 16 / UNIT_USIZE) {
            let text = String::from_utf8_lossy(block).into_owned();
            return Err(format!("the block at {} reads {text:?}", index * 16));
        }
    }
    Ok(())
}

/// All zeros where the header was, and something behind; an error if the header is anything but
/// good or blank.
fn is_lost(disk: &SimDisk, path: &str) -> Result<bool, String> {
    disk.inspect(path, |file| {
        let bytes = file.bytes();
        let first = &bytes[..bytes.len().min(PROBE_LEN)];
        if Probe::is_blank(first) {
            let start = disk.layout().data_offset() as usize;
            let behind = bytes.get(start..).unwrap_or_default();
            return Ok(behind.iter().any(|&byte| byte != 0));
        }
        let good = Probe::parse(first).likely().is_some();
        if good { Ok(false) } else { Err("the header is doubtful".to_owned()) }
    })
}

/// What was left is a file like any other: it grows, is cut and grows again, and shows zeros in
/// between.
fn go_on(
    after: &Driver,
    path: &'static str,
    seen: &[u8],
    dice: &mut dyn FnMut(u64) -> u64,
) -> Result<(), String> {
    let mut want = seen.to_vec();
    let mut number = |below: u64| usize::try_from(dice(below)).expect("small");
    let fd = match after.apply(&Action::Open { who: 0, path, flags: 2 }) {
        tidelock_testkit::model::Outcome::Number(fd) => i32::try_from(fd).expect("small"),
        other => return Err(format!("open gave {other:?}")),
    };
    for step in 0..3 {
        let action = if step == 1 || number(3) == 0 {
            let size = (want.len() + number(5000)).saturating_sub(number(5000));
            want.resize(size, 0);
            Action::SetLen { who: 0, fd, size: size as u64 }
        } else {
            let gap = [1, 20, 5000][number(3)];
            let at = want.len() + number(gap);
            let bytes = data(999 + step, number(40) + 1);
            want.resize(at, 0);
            want.extend_from_slice(&bytes);
            Action::Pwrite { who: 0, fd, at: at as u64, pieces: vec![bytes] }
        };
        let got = after.apply(&action);
        let now =
            after.content(path).map_err(|error| format!("errno {} after {action:?}", error.0))?;
        if let Some(why) = tidelock_testkit::sim::driver::differ(&want, &now) {
            return Err(format!("going on with {action:?}, which gave {got:?}: {why}"));
        }
    }
    after.apply(&Action::Close { who: 0, fd });
    Ok(())
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn raws(&mut self, count: usize) -> Vec<Raw> {
        let mut byte = |below| u8::try_from(self.below(below)).expect("eight bits");
        let mut raw = || Raw {
            kind: byte(32),
            who: 0,
            which: byte(12),
            at: byte(256),
            near: byte(256),
            len: byte(240),
        };
        (0..count).map(|_| raw()).collect()
    }
}

fn crash_everywhere(layout: Layout, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let mut dice = Dice(seed * 101 + 3);
        let raws = dice.raws(10);
        let whole = Run::until(&raws, layout, None);
        let calls = whole.driver.disk().calls();
        for at in 0..calls {
            let run = Run::until(&raws, layout, Some(Plan { at, fault: Fault::Crash }));
            for _ in 0..6 {
                if let Err(why) = run.check(&mut |below| dice.below(below)) {
                    panic!("seed {seed}, crash at call {at}: {why}");
                }
            }
        }
    }
}

#[test]
fn a_crash_at_every_call_leaves_what_a_plain_file_could_be() {
    with_room(|| crash_everywhere(Layout::DEFAULT, 0..25));
}

#[test]
#[ignore = "minutes: part of make test-full"]
fn a_crash_at_every_call_of_many_runs() {
    with_room(|| crash_everywhere(Layout::DEFAULT, 1000..2000));
}

#[test]
fn a_crash_at_every_call_with_a_larger_data_offset() {
    with_room(|| crash_everywhere(Layout::new(16_384).expect("a known layout"), 500..510));
}

#[test]
fn a_lost_header_is_told_and_replaced_only_in_recovery() {
    with_room(|| {
        let driver = Driver::new(SimDisk::new(Layout::DEFAULT), 1);
        let path = PATHS[0];
        let open = Action::Open { who: 0, path, flags: 0o102 };
        driver.apply(&open);
        driver.apply(&Action::Pwrite { who: 0, fd: 0, at: 0, pieces: vec![data(1, 8192)] });
        let crashed = driver.disk().after_crash(&mut |_| 0);
        crashed.put(
            path,
            &driver.disk().inspect(path, |file| {
                let mut bytes = file.bytes().to_vec();
                bytes[..4096].fill(0);
                bytes
            }),
        );
        let after = Driver::new(crashed, 1);
        let system = after.process(0).system();
        assert_eq!(format!("{:?}", after.apply(&open)), "errno 5");
        assert_eq!(system.take_reports(), [Refusal::LostHeader(8192)]);
        system.set_recovers(true);
        assert_eq!(format!("{:?}", after.apply(&open)), "0");
        assert_eq!(system.take_reports(), [Refusal::LostHeaderReplaced]);
        // The old blocks are garbage now: neither the plaintext nor zeros.
        let seen = after.content(path).expect("it can be read");
        assert_eq!(seen.len(), 8192);
        assert!(seen.iter().filter(|byte| byte.is_ascii_lowercase()).count() < 2000);
        assert!(seen.iter().filter(|&&byte| byte == 0).count() < 200);
    });
}

/// Writes to a synced file; true if the bytes are there after each of some crashes.
fn survives(layout: Layout, flags: i32, path: &'static str, at: u64, len: usize) -> bool {
    let driver = Driver::new(SimDisk::new(layout), 1);
    let write = |at, bytes: Vec<u8>| {
        let count = bytes.len();
        let action = Action::Pwrite { who: 0, fd: 0, at, pieces: vec![bytes] };
        assert_eq!(format!("{:?}", driver.apply(&action)), count.to_string());
    };
    driver.apply(&Action::Open { who: 0, path, flags: 0o102 | flags });
    write(0, data(1, 3 * UNIT_USIZE + 100));
    driver.apply(&Action::Sync { who: 0, fd: 0 });
    write(at, data(2, len));
    let now = driver.content(path).expect("it can be read");
    let mut dice = Dice(at * 31 + len as u64);
    (0..40).all(|_| {
        let after = Driver::new(driver.disk().after_crash(&mut |below| dice.below(below)), 1);
        after.content(path).is_ok_and(|seen| seen == now)
    })
}

/// Beside it stands the same without O_DIRECT, which may lose the bytes: or the disk of the
/// simulation would lose nothing.
#[test]
fn a_direct_write_within_a_synced_file_is_there_after_a_crash() {
    const DIRECT: i32 = 0o40_000;
    with_room(|| {
        for layout in [Layout::DEFAULT, Layout::new(16_384).expect("a known layout")] {
            for path in PATHS {
                for (at, len) in [(0, 4096), (4096, 8192), (5, 9000), (8191, 2), (12_288, 100)] {
                    assert!(survives(layout, DIRECT, path, at, len), "{path} at {at}");
                    assert!(!survives(layout, 0, path, at, len), "{path} at {at}");
                }
            }
        }
    });
}

/// What is there of a file after crashes behind a direct write; a lost header is an error.
fn left(
    layout: Layout,
    path: &'static str,
    (before, at): (usize, u64),
    synced: bool,
) -> Vec<Vec<u8>> {
    const DIRECT: i32 = 0o40_000;
    let driver = Driver::new(SimDisk::new(layout), 1);
    let write = |fd, at, bytes| Action::Pwrite { who: 0, fd, at, pieces: vec![bytes] };
    for flags in [0o102, 0o102 | DIRECT] {
        driver.apply(&Action::Open { who: 0, path, flags });
    }
    if before > 0 {
        driver.apply(&write(0, 0, data(1, before)));
    }
    if synced {
        driver.apply(&Action::Sync { who: 0, fd: 0 });
    }
    driver.apply(&write(1, at, data(2, 2 * UNIT_USIZE)));
    let now = driver.content(path).expect("it can be read");
    let mut dice = Dice(at * 37 + before as u64);
    let mut all = vec![now];
    for _ in 0..60 {
        let after = Driver::new(driver.disk().after_crash(&mut |below| dice.below(below)), 1);
        all.push(after.content(path).expect("its header is there"));
    }
    all
}

/// The size may be lost, since nobody has synced it. Where it is there, so is all that it shows.
#[test]
fn a_direct_write_that_grows_a_file_leaves_no_garbage_at_the_old_end() {
    with_room(|| {
        for layout in [Layout::DEFAULT, Layout::new(16_384).expect("a known layout")] {
            for path in PATHS {
                for (before, at) in [(0, 0), (0, 8192), (100, 8192), (4100, 20_480), (5, 12_289)] {
                    let all = left(layout, path, (before, at), true);
                    let grown: Vec<_> =
                        all[1..].iter().filter(|seen| seen.len() == all[0].len()).collect();
                    assert!(grown.iter().all(|seen| **seen == all[0]), "{path} {before} {at}");
                    assert!(grown.len() > 5, "{path} {before} {at}");
                }
            }
        }
    });
}

/// The bytes before it may be lost, since nobody has synced them.
#[test]
fn a_direct_write_takes_the_header_with_it() {
    with_room(|| {
        for layout in [Layout::DEFAULT, Layout::new(16_384).expect("a known layout")] {
            for path in PATHS {
                for place in [(100_usize, 8192), (12_288, 4096), (4100, 20_480)] {
                    left(layout, path, place, false);
                }
            }
        }
    });
}

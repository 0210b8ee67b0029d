//! The N-th call of the kernel fails, for every N: the program must see nothing that a plain file
//! could not show after a failed or short call, and everything after it must be as on a plain file
//! again.

use tidelock_engine::Errno;
use tidelock_format::Layout;
use tidelock_testkit::model::{Action, O_APPEND, O_TRUNC, Outcome, PATHS, Plain, Raw};
use tidelock_testkit::sim::driver::with_room;
use tidelock_testkit::sim::{Driver, Fault, Plan, SimDisk};

/// How a run ended: how many calls it made, or what was wrong.
type Ran = Result<u64, String>;

struct Run {
    driver: Driver,
    model: Plain,
    trace: Vec<String>,
}

impl Run {
    fn new() -> Self {
        Self {
            driver: Driver::new(SimDisk::new(Layout::DEFAULT), 1),
            model: Plain::new(1),
            trace: Vec::new(),
        }
    }

    /// Runs the actions while `plan` or the room on the disk may strike.
    fn all(mut self, raws: &[Raw], plan: Option<Plan>, room: Option<(usize, u64)>) -> Ran {
        let before = self.driver.disk().calls();
        let plan = plan.map(|plan| Plan { at: plan.at + before, ..plan });
        self.driver.disk().plan(plan);
        for (index, raw) in raws.iter().enumerate() {
            let Some(action) = self.model.concrete(*raw) else { continue };
            if loses_sight(&action, &self.model) {
                continue;
            }
            if let Some((from, blocks)) = room {
                self.driver.disk().limit_room((index >= from).then_some(blocks));
            }
            self.trace.push(format!("{action:?}"));
            self.step(&action, plan).map_err(|why| self.told(&why, plan, room))?;
        }
        let calls = self.driver.disk().calls() - before;
        self.driver.disk().plan(None);
        self.driver.disk().limit_room(None);
        self.driver.compare(&self.model).map_err(|why| self.told(&why, plan, room))?;
        self.driver.finish().map_err(|why| self.told(&why, plan, room))?;
        Ok(calls)
    }

    fn step(&mut self, action: &Action, plan: Option<Plan>) -> Result<(), String> {
        let old = self.model.fork();
        let want = self.model.apply(action);
        let from = self.driver.disk().calls();
        let got = self.driver.apply(action);
        let struck = plan.is_some_and(|plan| (from..self.driver.disk().calls()).contains(&plan.at));
        if got == want {
            if struck {
                self.driver.compare(&self.model)?;
            }
            return Ok(());
        }
        let failed = matches!(got, Outcome::Error(_));
        if plan.is_some_and(|plan| matches!(plan.fault, Fault::Short(_))) {
            return Err(format!(
                "{action:?} gave {got:?}: the rest of a short write was not tried"
            ));
        }
        if !struck && got != Outcome::Error(Errno::NOSPC.0) && !is_short(action, &got) {
            return Err(format!("{action:?} gave {got:?}, should give {want:?}"));
        }
        if failed && matches!(action, Action::Close { .. }) {
            // As on Linux, the descriptor is gone all the same.
            return self.driver.compare(&self.model);
        }
        let new = std::mem::replace(&mut self.model, old);
        self.accept(action, &got, &new)?;
        // A file that was made but cannot be looked at stays behind; for want of room or
        // descriptors, none does.
        self.adopt(action, &got, plan.is_some_and(|plan| plan.fault == Fault::Errno(Errno::IO)))
    }

    /// What a plain file could show after `action` ended with `got`, where `new` is what it was to
    /// do.
    fn accept(&self, action: &Action, got: &Outcome, new: &Plain) -> Result<(), String> {
        if let (Action::Read { .. } | Action::Pread { .. }, Outcome::Bytes(bytes)) = (action, got) {
            let mut old = self.model.fork();
            let Outcome::Bytes(all) = old.apply(action) else { return Err("no read".to_owned()) };
            return if all.starts_with(bytes) {
                Ok(())
            } else {
                Err("other bytes were read".to_owned())
            };
        }
        for path in PATHS {
            if !self.driver.disk().exists(path) {
                if self.model.content(path).is_some() {
                    return Err(format!("{path} is gone"));
                }
                continue;
            }
            let seen =
                self.driver.content(path).map_err(|error| format!("{path}: errno {}", error.0))?;
            let empty: &[u8] = &[];
            let before = self.model.content(path).unwrap_or(empty);
            let after = new.content(path).unwrap_or(empty);
            between(before, after, &seen, self.written(action, got, path))
                .map_err(|why| format!("{path}: {why} (after {action:?} gave {got:?})"))?;
        }
        Ok(())
    }

    /// The bytes that a short write says it has written to `path`.
    fn written(&self, action: &Action, got: &Outcome, path: &str) -> std::ops::Range<usize> {
        let (Some(start), Outcome::Number(count)) = (self.start(action, path), got) else {
            return 0..0;
        };
        start..start + usize::try_from(*count).expect("a small count")
    }

    fn start(&self, action: &Action, path: &str) -> Option<usize> {
        let (fd, at) = match *action {
            Action::Write { fd, .. } => (fd, None),
            Action::Pwrite { fd, at, .. } => (fd, Some(at)),
            _ => return None,
        };
        let (file, offset) = self.model.behind(0, fd)?;
        if self.model.names().get(path) != Some(&file) {
            return None;
        }
        let end = self.model.content(path)?.len();
        let at = usize::try_from(at.unwrap_or(offset)).ok()?;
        Some(if self.model.appends(0, fd) { end } else { at })
    }

    /// Goes on from what is there now.
    fn adopt(&mut self, action: &Action, got: &Outcome, may_stay: bool) -> Result<(), String> {
        if let Outcome::Error(_) = got {
            for path in PATHS {
                if self.driver.disk().exists(path) && self.model.content(path).is_none() {
                    // Only an open that failed after it had made the file may leave it behind.
                    let Action::Open { path: opened, .. } = action else {
                        return Err(format!("{path} is new"));
                    };
                    if *opened != path || !may_stay {
                        return Err(format!("{path} is new"));
                    }
                    self.model.add_empty(opened);
                }
            }
        }
        let mut moved = Vec::new();
        if let (Action::Write { fd, .. }, Outcome::Number(count)) = (action, got) {
            let (file, _) = self.model.behind(0, *fd).ok_or("the descriptor is open")?;
            let path = self.model.name_of(file).ok_or("the file has a name")?;
            moved.push((*fd, self.start(action, path).ok_or("it has a start")? as u64 + count));
        }
        if let (Action::Read { fd, .. }, Outcome::Bytes(bytes)) = (action, got) {
            let (_, offset) = self.model.behind(0, *fd).ok_or("the descriptor is open")?;
            moved.push((*fd, offset + bytes.len() as u64));
        }
        for path in PATHS {
            if self.driver.disk().exists(path) {
                let seen =
                    self.driver.content(path).map_err(|error| format!("errno {}", error.0))?;
                self.model.set_content(path, seen);
            }
        }
        for (fd, at) in moved {
            self.model.set_offset(0, fd, at);
        }
        let visible = self.driver.process(0).system().visible();
        if visible != self.model.descriptors(0) {
            return Err(format!("the descriptors are {visible:?}"));
        }
        for fd in visible {
            let seek = Action::Seek { who: 0, fd, offset: 0, whence: 1 };
            let at = self.driver.disk().quietly(|| self.driver.apply(&seek));
            let want = self.model.apply(&seek);
            if at != want {
                return Err(format!("the offset of {fd} is {at:?}, should be {want:?}"));
            }
        }
        Ok(())
    }

    fn told(&self, why: &str, plan: Option<Plan>, room: Option<(usize, u64)>) -> String {
        format!("{why}\n  with {plan:?}, room {room:?}, after:\n  {}", self.trace.join("\n  "))
    }
}

/// `seen` lies between `before` and `after`: its size, and each of its bytes; `written` ones are
/// new.
fn between(
    before: &[u8],
    after: &[u8],
    seen: &[u8],
    written: std::ops::Range<usize>,
) -> Result<(), String> {
    let (least, most) = (before.len().min(after.len()), before.len().max(after.len()));
    // A cut to a size within a block goes by way of the end of the block.
    if seen.len() < least || seen.len() > most || seen.len() < written.end {
        return Err(format!("{} bytes, neither {} nor {}", seen.len(), before.len(), after.len()));
    }
    for (at, byte) in seen.iter().enumerate() {
        let (old, new) = (before.get(at).copied(), after.get(at).copied());
        let good = if written.contains(&at) {
            Some(*byte) == new
        } else {
            *byte == old.unwrap_or(0) || Some(*byte) == new
        };
        if !good {
            return Err(format!("byte {at} is {byte:#x}, was {old:x?}, should become {new:x?}"));
        }
    }
    Ok(())
}

fn is_short(action: &Action, got: &Outcome) -> bool {
    matches!((action, got), (Action::Write { .. } | Action::Pwrite { .. }, Outcome::Number(_)))
}

/// Leaves out what hides a file from the comparison.
fn loses_sight(action: &Action, model: &Plain) -> bool {
    match action {
        Action::Unlink { .. } => true,
        Action::Rename { from, to, .. } => {
            from == to || model.content(to).is_some() || model.content(from).is_none()
        }
        Action::Open { flags, .. } => *flags == O_TRUNC | O_APPEND,
        _ => false,
    }
}

struct Dice(u64);

impl Dice {
    fn byte(&mut self) -> u8 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u8::try_from(self.0 >> 56).expect("eight bits")
    }

    fn raws(&mut self, count: usize) -> Vec<Raw> {
        let mut raw = || {
            let [kind, who, which, at, near, len] = [(); 6].map(|()| self.byte());
            Raw { kind, who, which: which % 16, at, near, len }
        };
        (0..count).map(|_| raw()).collect()
    }
}

fn every_call(fault: impl Fn(u64) -> Fault + Send + 'static, seeds: u64) {
    with_room(move || {
        for seed in 0..seeds {
            let raws = Dice(seed * 77 + 5).raws(14);
            let calls = Run::new().all(&raws, None, None).expect("a run without faults");
            for at in 0..calls {
                let plan = Plan { at, fault: fault(at) };
                if let Err(why) = Run::new().all(&raws, Some(plan), None) {
                    panic!("seed {seed}: {why}");
                }
            }
        }
    });
}

#[test]
fn an_input_output_error_at_every_call() {
    every_call(|_| Fault::Errno(Errno::IO), 40);
}

#[test]
fn an_interruption_at_every_call() {
    every_call(|_| Fault::Errno(Errno::INTR), 40);
}

#[test]
fn no_space_at_every_call() {
    every_call(|at| Fault::Errno(if at % 2 == 0 { Errno::NOSPC } else { Errno::DQUOT }), 40);
}

#[test]
fn no_descriptor_at_every_call() {
    every_call(|_| Fault::Errno(Errno::MFILE), 40);
}

#[test]
fn a_short_write_at_every_call() {
    every_call(|at| Fault::Short(usize::try_from(at * 37 % 5000).expect("small") + 1), 40);
}

#[test]
fn a_disk_that_fills_up_between_any_two_blocks() {
    with_room(|| {
        for seed in 0..120 {
            let raws = Dice(seed * 31 + 7).raws(16);
            for from in [2, 5, 9] {
                for blocks in 0..4 {
                    if let Err(why) = Run::new().all(&raws, None, Some((from, blocks))) {
                        panic!("seed {seed}: {why}");
                    }
                }
            }
        }
    });
}

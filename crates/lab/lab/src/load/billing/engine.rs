//! The engine itself: one phase after the other, its work shared out among threads.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::crew::{Crew, Tally};
use super::error::{Error, Result};
use super::load::Market;
use super::postgres::Postgres;
use super::store::{Done, Step, Store};
use super::summary::{PhaseSummary, Progress, Summary};
use super::{Phase, Settings, charge, load, master, validate};

/// Runs the phases that `settings` names, from where an earlier run was.
///
/// `progress` is called from this thread: when a phase begins, each `tell_every`, and when it ends.
/// Once `stop` is set, each worker ends after its transaction, and the summary says so.
///
/// # Errors
/// [`Error::Busy`] while another engine works on the database; [`Error::Lost`] and
/// [`Error::Refused`] with phase and place; files or directories that cannot be read or written; a
/// phase whose turn it is not. What was committed is kept in every case.
pub fn run(
    settings: &Settings,
    progress: &mut dyn FnMut(Progress),
    stop: &AtomicBool,
) -> Result<Summary> {
    run_on::<Postgres>(settings, progress, stop)
}

fn run_on<S: Store>(
    settings: &Settings,
    progress: &mut dyn FnMut(Progress),
    stop: &AtomicBool,
) -> Result<Summary> {
    let master = master::read(&settings.dir)?;
    let mut store = S::connect(&settings.connection)?;
    lock(&mut store)?;
    store.prepare(&master)?;
    let markets = load::files(&mut store, &settings.dir)?;
    let mut engine = Engine { store, settings, markets, progress, stop };
    let mut summary = Summary::default();
    let mut ended = true;
    for phase in Phase::ALL.into_iter().filter(|phase| settings.phases.contains(phase)) {
        if !ended || stop.load(Ordering::Relaxed) {
            ended = false;
            break;
        }
        let done;
        (done, ended) = match phase {
            Phase::Load => engine.load()?,
            Phase::Validate => engine.validate()?,
            Phase::Charge => engine.charge()?,
        };
        summary.phases.push(done);
    }
    summary.stopped = !ended;
    Ok(summary)
}

/// A backend whose client was killed keeps the lock until it notices.
fn lock(store: &mut impl Store) -> Result<()> {
    let start = Instant::now();
    while !store.lock()? {
        if start.elapsed() > Duration::from_secs(2) {
            return Err(Error::Busy);
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

struct Engine<'a, S> {
    /// Holds the lock; the workers have connections of their own.
    store: S,
    settings: &'a Settings,
    markets: Vec<Market>,
    progress: &'a mut dyn FnMut(Progress),
    stop: &'a AtomicBool,
}

impl<'a, S: Store> Engine<'a, S> {
    fn load(&mut self) -> Result<(PhaseSummary, bool)> {
        let before = self.store.done(Phase::Load)?;
        let open = |market: &&Market| !market.file.finished;
        if self.markets.iter().any(|market| !market.file.finished) {
            let later = [Phase::Validate, Phase::Charge];
            for phase in later {
                if self.store.done(phase)?.steps > 0 {
                    let name = &self.markets.iter().find(open).map_or("", |m| m.name.as_str());
                    return Err(Error::Order(format!(
                        "{phase} has begun, so {name} cannot be loaded any more"
                    )));
                }
            }
        }
        let items: Vec<&Market> = self.markets.iter().filter(open).collect();
        let batch = self.settings.batch.max(1);
        let work = |store: &mut S, market: &&Market, tally: &Tally<'_>| {
            load::load(store, market, batch, tally)
        };
        let start = |market: &&Market| format!("{}, line {}", market.name, market.file.line + 1);
        let done = self.crew(Phase::Load, before, None).run(&items, work, start, self.progress)?;
        let mut finished = true;
        for market in &mut self.markets {
            market.file = self.store.file(&market.name, market.file.bytes)?;
            finished &= market.file.finished;
        }
        Ok((done, finished))
    }

    fn validate(&mut self) -> Result<(PhaseSummary, bool)> {
        if let Some(open) = self.markets.iter().find(|market| !market.file.finished) {
            let name = &open.name;
            return Err(Error::Order(format!("phase 2 needs phase 1, and {name} is not loaded")));
        }
        self.store.settle()?;
        let before = self.store.done(Phase::Validate)?;
        let all = self.store.steps(Phase::Load)?;
        let key = |step: &Step| (step.file, step.first);
        let done: HashSet<_> = self.store.steps(Phase::Validate)?.iter().map(key).collect();
        let of = all.iter().map(|step| step.records.unsigned_abs()).sum::<u64>() - before.records;
        let items: Vec<Step> = all.into_iter().filter(|step| !done.contains(&key(step))).collect();
        let names: HashMap<i32, &str> =
            self.markets.iter().map(|m| (m.file.id, m.name.as_str())).collect();
        let name = |step: &Step| *names.get(&step.file).unwrap_or(&"a file that is gone");
        let work = |store: &mut S, step: &Step, tally: &Tally<'_>| {
            validate::validate(store, step, name(step), tally)
        };
        let start = |step: &Step| format!("{}, line {}", name(step), step.first);
        let crew = self.crew(Phase::Validate, before, Some(of));
        let summary = crew.run(&items, work, start, self.progress)?;
        let after = self.store.done(Phase::Validate)?;
        Ok((summary, after.steps == before.steps + items.len() as u64))
    }

    fn charge(&mut self) -> Result<(PhaseSummary, bool)> {
        let [loaded, validated, before] = {
            let mut done = |phase| self.store.done(phase);
            [done(Phase::Load)?, done(Phase::Validate)?, done(Phase::Charge)?]
        };
        let open = self.markets.iter().any(|market| !market.file.finished);
        if open || loaded.steps != validated.steps {
            return Err(Error::Order("phase 3 needs phase 2, which is not finished".into()));
        }
        self.store.settle()?;
        let done: HashSet<i64> =
            self.store.steps(Phase::Charge)?.iter().map(|step| step.first).collect();
        let meters = self.store.meters()?;
        let each = self.settings.meters.max(1);
        let firsts = (0..meters).step_by(usize::try_from(each).unwrap_or(usize::MAX));
        let items: Vec<i64> = firsts.filter(|first| !done.contains(first)).collect();
        let work = |store: &mut S, first: &i64, tally: &Tally<'_>| {
            charge::charge(store, *first, each, tally)
        };
        let start = |first: &i64| format!("meters from {first}");
        let of = Some(loaded.records - before.records);
        let summary =
            self.crew(Phase::Charge, before, of).run(&items, work, start, self.progress)?;
        let after = self.store.done(Phase::Charge)?;
        Ok((summary, after.steps == before.steps + items.len() as u64))
    }

    fn crew(&self, phase: Phase, before: Done, of: Option<u64>) -> Crew<'a> {
        Crew { settings: self.settings, stop: self.stop, phase, before: before.records, of }
    }
}

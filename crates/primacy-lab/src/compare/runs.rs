//! The runs, on several threads; their results are sorted into the order of the table, independent of the number of
//! threads.

use std::io::{IsTerminal as _, Write as _};
use std::num::NonZeroUsize;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use primacy_sim::compare::{ComparisonRow, Contender, Outcome, Scenario, Setup, run};

/// The interval at which the progress is shown.
const SHOWN_INTERVAL: Duration = Duration::from_millis(200);

/// The runs to make.
#[derive(Debug)]
pub(super) struct Runs {
    pub(super) setup: Setup,
    /// The rows of the table.
    pub(super) cells: Vec<(Contender, Scenario)>,
    /// The first seed.
    pub(super) from: u64,
    /// The number of runs of each.
    pub(super) seeds: u64,
    pub(super) jobs: NonZeroUsize,
}

/// The reason why there is no table.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    /// An invariant was broken, or a run panicked.
    Broken(String),
    /// A signal has arrived.
    Interrupted,
}

/// The result of one run: `None` if no leader emerged; or the reason why the run is invalid.
type Came = Result<Option<Outcome>, String>;

impl Runs {
    /// Runs everything.
    ///
    /// # Errors
    /// [`Stopped`], with the first invalid run in the order of the table.
    pub(super) fn run(&self, interrupted: &AtomicUsize) -> Result<Vec<ComparisonRow>, Stopped> {
        let came = self.all(interrupted);
        let mut rows = Vec::new();
        let each = usize::try_from(self.seeds).unwrap_or(usize::MAX);
        for (&(contender, scenario), came) in self.cells.iter().zip(came.chunks(each)) {
            let mut outcomes = Vec::new();
            for came in came {
                let outcome = came.as_ref().ok_or(Stopped::Interrupted)?;
                outcomes.push(outcome.clone().map_err(Stopped::Broken)?);
            }
            rows.push(ComparisonRow::of(contender, scenario, &outcomes));
        }
        Ok(rows)
    }

    /// The result of each run, by its number; `None` if a signal came before it.
    fn all(&self, interrupted: &AtomicUsize) -> Vec<Option<Came>> {
        let count = self.cells.len() * usize::try_from(self.seeds).unwrap_or(usize::MAX);
        let mut all: Vec<Option<Came>> = vec![None; count];
        let next = AtomicUsize::new(0);
        let (to_us, from_them) = channel();
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.get() {
                let (to_us, next) = (to_us.clone(), &next);
                scope.spawn(move || {
                    while interrupted.load(Ordering::SeqCst) == 0 {
                        let number = next.fetch_add(1, Ordering::SeqCst);
                        let Some(came) = self.one(number) else { return };
                        if to_us.send((number, came)).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(to_us);
            let mut progress = Progress::new(count);
            for (number, came) in from_them {
                all[number] = Some(came);
                progress.step();
            }
            progress.clear();
        });
        all
    }

    fn one(&self, number: usize) -> Option<Came> {
        let (cell, seed) = (number as u64 / self.seeds, number as u64 % self.seeds);
        let &(contender, scenario) = self.cells.get(usize::try_from(cell).ok()?)?;
        let seed = self.from.wrapping_add(seed);
        let which = || format!("{} in {}, seed {seed}", contender.name(), scenario.name());
        let came = catch_unwind(|| run(contender, scenario, &self.setup, seed));
        Some(match came {
            Ok(Some(Outcome { breaches, .. })) if !breaches.is_empty() => {
                Err(format!("{}: {}", which(), breaches[0]))
            }
            Ok(outcome) => Ok(outcome),
            // The panic hook has printed the panic itself.
            Err(_) => Err(format!("{}: panicked", which())),
        })
    }
}

/// The progress display on a terminal.
#[derive(Debug)]
struct Progress {
    done: usize,
    of: usize,
    terminal: bool,
    shown_at: Option<Instant>,
}

impl Progress {
    fn new(of: usize) -> Self {
        Self { done: 0, of, terminal: std::io::stderr().is_terminal(), shown_at: None }
    }

    fn step(&mut self) {
        self.done += 1;
        if self.terminal && self.shown_at.is_none_or(|at| at.elapsed() >= SHOWN_INTERVAL) {
            self.shown_at = Some(Instant::now());
            // An error is not a failure: the user may have closed standard error.
            let _ = write!(std::io::stderr(), "\r{} of {} runs\x1b[K", self.done, self.of);
        }
    }

    fn clear(&self) {
        if self.shown_at.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

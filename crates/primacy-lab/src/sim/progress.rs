//! The progress of the search: a bar on a terminal, and otherwise a line now and then; on standard error, so that the
//! totals can be redirected separately.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use super::search::Bound;
use super::totals::{Totals, per_second, span};

/// The interval between two updates of a bar.
const BAR_INTERVAL: Duration = Duration::from_millis(200);

/// The interval between two lines without a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// The number of parts of a bar.
const BAR: usize = 20;

/// The bar.
#[derive(Debug)]
pub(super) struct Progress {
    bound: Bound,
    elections: u64,
    terminal: bool,
    /// The time of the last display.
    shown_at: Duration,
    /// True if a bar must be erased.
    drawn: bool,
}

impl Progress {
    pub(super) fn new(bound: Bound, elections: usize) -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self { bound, elections: elections as u64, terminal, shown_at: Duration::ZERO, drawn: false }
    }

    /// Shows the progress, unless it was shown a moment ago.
    pub(super) fn show(&mut self, totals: &Totals, passed: Duration) {
        let interval = if self.terminal { BAR_INTERVAL } else { LINE_INTERVAL };
        if passed.saturating_sub(self.shown_at) < interval {
            return;
        }
        self.shown_at = passed;
        let text = self.text(totals, passed);
        // An error is not a failure: the user may have closed standard error.
        let mut stderr = std::io::stderr();
        let _ = if self.terminal { write!(stderr, "\r{text}\x1b[K") } else { writeln!(stderr, "{text}") };
        self.drawn = self.terminal;
    }

    /// Erases the bar, so that a line can be printed.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }

    fn text(&self, totals: &Totals, passed: Duration) -> String {
        let simulated = totals.simulated();
        let bar = self.share(totals).map_or_else(String::new, |share| {
            let full = "#".repeat(part(share, BAR));
            let left = Duration::try_from_secs_f64(passed.as_secs_f64() * (1.0 / share.max(1e-9) - 1.0));
            let left = left.map_or_else(|_| "long".to_owned(), span);
            format!("[{full:-<BAR$}] {:3.0} %, {left} to go, ", share * 100.0)
        });
        format!(
            "{bar}{} seeds, {} simulated, {:.0} times real time, {} bad",
            totals.seeds(),
            span(simulated),
            per_second(simulated.as_secs_f64(), passed),
            totals.failures()
        )
    }

    /// The completed share, from 0 to 1.
    fn share(&self, totals: &Totals) -> Option<f64> {
        let share = match self.bound {
            Bound::Seeds(seeds) => totals.seeds() as f64 / (seeds as f64 * self.elections as f64),
            Bound::Hours(hours) => totals.simulated().as_secs_f64() / (hours * 3_600.0),
            Bound::None => return None,
        };
        Some(share.min(1.0))
    }
}

/// The number of `parts` that a share fills.
fn part(share: f64, parts: usize) -> usize {
    (0..parts).filter(|&part| (part as f64 + 1.0) / parts as f64 <= share).count()
}

//! The watch for the machine's own pauses: the time for which it did not run a ready thread, for which the code under
//! test cannot be blamed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The interval at which the watching thread wakes.
const NAP: Duration = Duration::from_millis(5);
/// The shortest delay that is recorded.
const LATE_MIN: Duration = Duration::from_millis(1);

/// The watching thread, which ends on drop.
#[derive(Debug)]
pub(crate) struct Stalls {
    /// The times at which it woke late, each with the delay.
    noted: Arc<Mutex<Vec<(Instant, Duration)>>>,
}

impl Stalls {
    pub(crate) fn watch() -> Self {
        let noted = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::downgrade(&noted);
        std::thread::spawn(move || {
            while let Some(noted) = shared.upgrade() {
                let asleep_at = Instant::now();
                std::thread::sleep(NAP);
                let late = asleep_at.elapsed().saturating_sub(NAP);
                if late >= LATE_MIN {
                    noted.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), late));
                }
            }
        });
        Self { noted }
    }

    /// The sum of the delays in the latest `span`, for an action of many steps, each of which may have been delayed.
    pub(crate) fn in_the_latest(&self, span: Duration) -> Duration {
        let noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        noted.iter().rev().take_while(|(at, _)| at.elapsed() <= span).map(|(_, late)| *late).sum()
    }
}

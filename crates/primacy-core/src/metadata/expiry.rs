//! When sessions end that nobody ends before: the leader's to say, by its own clock.
//!
//! A new leader does not know when a session was kept alive last, so it gives each its whole time again, from when it became active
//! (as Chubby does). The earlier leader said until then that a session lived only while its own lease ran, which had ended before.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::command::SessionId;
use crate::time::{Duration, Instant};

/// Until when each session lives unless it is kept alive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Expiry {
    ends: BTreeMap<SessionId, Instant>,
    order: BTreeSet<(Instant, SessionId)>,
}

impl Expiry {
    /// These sessions, each with its whole time.
    pub(super) fn begin(now: Instant, sessions: impl Iterator<Item = (SessionId, Duration)>) -> Self {
        let mut expiry = Self::default();
        for (session, time_to_live) in sessions {
            expiry.set(session, now.after(time_to_live));
        }
        expiry
    }

    /// A session lives until then.
    pub(super) fn set(&mut self, session: SessionId, end: Instant) {
        self.remove(session);
        self.ends.insert(session, end);
        self.order.insert((end, session));
    }

    /// A session has ended.
    pub(super) fn remove(&mut self, session: SessionId) {
        if let Some(end) = self.ends.remove(&session) {
            self.order.remove(&(end, session));
        }
    }

    /// Until when a session lives; `None` if it has ended, or is about to.
    pub(super) fn end(&self, session: SessionId) -> Option<Instant> {
        self.ends.get(&session).copied()
    }

    /// When the next one ends.
    pub(super) fn next(&self) -> Option<Instant> {
        self.order.first().map(|&(end, _)| end)
    }

    /// Takes those whose time is over, so many at the most; they cannot be kept alive any more.
    pub(super) fn take_over(&mut self, now: Instant, most: usize) -> Vec<SessionId> {
        let mut over = Vec::new();
        while let Some(&(end, session)) = self.order.first()
            && now >= end
            && over.len() < most
        {
            self.remove(session);
            over.push(session);
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_ends_once_and_when_its_time_is_over() {
        let [one, two] = [1, 2].map(|number| SessionId::new(number).unwrap());
        let at = |millis| Instant::default().after(Duration::from_millis(millis));
        let time = Duration::from_millis(100);
        let mut expiry = Expiry::begin(at(50), [(one, time), (two, time)].into_iter());
        assert_eq!(expiry.next(), Some(at(150)));
        expiry.set(one, at(200));
        assert_eq!((expiry.end(one), expiry.end(two)), (Some(at(200)), Some(at(150))));
        assert_eq!(expiry.take_over(at(149), 9), []);
        assert_eq!(expiry.take_over(at(150), 0), []);
        assert_eq!(expiry.take_over(at(150), 9), [two]);
        assert_eq!((expiry.end(two), expiry.next()), (None, Some(at(200))));
        expiry.remove(one);
        assert_eq!(expiry.take_over(Instant::NEVER, 9), []);
    }
}

//! The end of sessions that are not kept alive: the leader decides it by its own clock.
//!
//! A new leader does not know when a session was last kept alive, so it gives each session its whole time again, from
//! when it became active (as Chubby does). That is late enough: the earlier leader answered keep-alives only during its
//! own lease, which had ended before.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use primacy_core::time::{Duration, Instant};

use crate::session_id::SessionId;

/// The time at which each session expires unless it is kept alive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Expiry {
    ends: BTreeMap<SessionId, Instant>,
    order: BTreeSet<(Instant, SessionId)>,
}

impl Expiry {
    /// The expiry of these sessions, each with its full time to live.
    pub(super) fn begin(now: Instant, sessions: impl Iterator<Item = (SessionId, Duration)>) -> Self {
        let mut expiry = Self::default();
        for (session, time_to_live) in sessions {
            expiry.set(session, now.after(time_to_live));
        }
        expiry
    }

    /// Sets the end of a session.
    pub(super) fn set(&mut self, session: SessionId, end: Instant) {
        self.remove(session);
        self.ends.insert(session, end);
        self.order.insert((end, session));
    }

    /// Forgets a session that has ended.
    pub(super) fn remove(&mut self, session: SessionId) {
        if let Some(end) = self.ends.remove(&session) {
            self.order.remove(&(end, session));
        }
    }

    /// The expiry of a session; `None` if it has ended, or its end is proposed.
    pub(super) fn end(&self, session: SessionId) -> Option<Instant> {
        self.ends.get(&session).copied()
    }

    /// The earliest expiry of any session.
    pub(super) fn next(&self) -> Option<Instant> {
        self.order.first().map(|&(end, _)| end)
    }

    /// Removes and returns at most `most` sessions whose time is over. They can no longer be kept alive.
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

//! The laws of [`Sessions`].

mod news;
mod standing;

use std::sync::Arc;
use std::time::Duration;

use primacy_core::election::lease::Holder;
use primacy_core::election::session::{Entry, QueuePosition, SessionId};
use primacy_core::{FencingToken, Identity, Incarnation, NodeId};
use primacy_stores::{Pending, SessionError, Sessions};
// On the simulated arm, this is simulated time.
use tokio::time::Instant;

pub use self::news::*;
pub use self::standing::*;
use crate::sessions_harness::{SessionCapabilities, SessionsHarness};
use crate::stalls::Stalls;

/// A guarantee of stores with sessions.
#[derive(Debug)]
pub struct SessionLaw {
    /// Its name, which states the guarantee.
    pub name: &'static str,
    /// The capabilities that a store needs to be checked.
    pub needs: SessionCapabilities,
    run: for<'a> fn(&'a dyn SessionsHarness) -> Pending<'a, ()>,
}

impl SessionLaw {
    /// Checks a store against this law.
    ///
    /// # Panics
    /// If it is broken.
    pub async fn check(&self, harness: &dyn SessionsHarness) {
        (self.run)(harness).await;
    }
}

const NONE: SessionCapabilities = SessionCapabilities::NONE;
const ORDERED: SessionCapabilities = SessionCapabilities { ordered: true, ..NONE };
const EXPIRY: SessionCapabilities = SessionCapabilities { expiry: true, ..NONE };
const REQUESTS: SessionCapabilities = SessionCapabilities { requests: true, ..NONE };
const DELETION: SessionCapabilities = SessionCapabilities { deletion: true, ..NONE };
const RESTART: SessionCapabilities = SessionCapabilities { restart: true, ..NONE };

macro_rules! law {
    ($law:ident) => {
        law!($law, NONE)
    };
    ($law:ident, $needs:expr) => {
        SessionLaw { name: stringify!($law), needs: $needs, run: |harness| Box::pin($law(harness)) }
    };
}

/// The single list of all laws.
pub const SESSION_LAWS: [SessionLaw; 29] = [
    law!(where_nobody_stands_nobody_is_first),
    law!(a_session_has_one_entry_however_often_it_stands),
    law!(an_entry_whose_answer_was_lost_is_found_again),
    law!(the_first_stays_the_first_while_others_stand),
    law!(the_oldest_is_the_first, ORDERED),
    law!(a_holder_is_shown_whole),
    law!(a_reader_never_sees_who_was_first_before),
    law!(of_many_rivals_exactly_one_is_first),
    law!(leaving_hands_over_to_the_next),
    law!(leaving_twice_is_leaving_once),
    law!(ending_a_session_takes_its_entry_along),
    law!(ending_takes_the_entry_along_also_where_others_share_the_session),
    law!(an_ended_session_is_told_as_ended),
    law!(an_ended_session_touches_no_later_one),
    law!(tokens_grow_across_leaving_and_ending),
    law!(tokens_grow_across_restart_of_everything, RESTART),
    law!(a_session_that_is_not_kept_alive_ends_in_time_and_not_before, EXPIRY),
    law!(a_session_that_is_kept_alive_lasts, EXPIRY),
    law!(evicting_takes_that_life_and_no_other),
    law!(two_handles_have_two_sessions),
    law!(queues_of_elections_do_not_touch_each_other),
    law!(a_request_to_resign_reaches_the_first_and_nobody_else, REQUESTS),
    law!(an_entry_that_was_removed_is_made_anew_with_a_higher_token, DELETION),
    law!(changed_wakes_the_next_when_the_first_goes),
    law!(changed_wakes_an_onlooker),
    law!(changed_wakes_the_first_whose_entry_is_removed, DELETION),
    law!(changed_wakes_the_first_that_is_asked_to_resign, REQUESTS),
    law!(changed_rests_while_nothing_changes),
    law!(changed_rests_for_whoever_has_lost_its_entry),
];

/// A candidate in a law, with its session.
struct Candidate {
    store: Arc<dyn Sessions>,
    holder: Holder,
    session: SessionId,
}

impl Candidate {
    /// Opens a new handle, with a session that outlasts the law.
    async fn new(harness: &dyn SessionsHarness, election: &str, name: &str) -> Self {
        let timeout = harness.long_timeout();
        Self::with(harness, election, name, timeout).await
    }

    async fn with(harness: &dyn SessionsHarness, election: &str, name: &str, timeout: Duration) -> Self {
        let store = harness.open(election).await;
        let begun = store.begin(timeout).await.expect("the store is there");
        Self { store, holder: holder(name, 1), session: begun.session }
    }

    async fn campaign(&self) -> QueuePosition {
        self.store.campaign(&self.session, &self.holder).await.expect("its session lives")
    }

    /// Enters the queue as the first.
    async fn lead(&self) -> FencingToken {
        match self.campaign().await {
            QueuePosition::First { token, .. } => token,
            QueuePosition::Behind { first } => {
                panic!("{} should be the first, and {first:?} is", self.holder.identity)
            }
        }
    }

    async fn leave(&self) {
        self.store.leave(&self.session).await.expect("its session lives");
    }

    /// Enters the queue behind another candidate. Returns the first entry.
    async fn wait_behind(&self) -> Entry {
        match self.campaign().await {
            QueuePosition::Behind { first } => first,
            QueuePosition::First { token, .. } => {
                panic!("it is the first, with {token}, and another one should be")
            }
        }
    }

    /// Reads the queue at every wake-up, until this candidate is the first.
    async fn become_first(&self) -> FencingToken {
        loop {
            if let QueuePosition::First { token, .. } = self.campaign().await {
                return token;
            }
            self.store.changed().await;
        }
    }
}

/// The holder of one incarnation of a node.
fn holder(name: &str, life: u64) -> Holder {
    let node: NodeId = name.parse().expect("a name");
    let identity = Identity::new(node, Incarnation { count: life, nonce: u64::MAX - life });
    Holder { identity, address: format!("{name}.example:7400") }
}

async fn first(store: &Arc<dyn Sessions>) -> Option<Entry> {
    store.first().await.expect("the store is there")
}

/// The first in the queue, and its token.
async fn first_of(store: &Arc<dyn Sessions>) -> Option<(Identity, FencingToken)> {
    first(store).await.map(|entry| (entry.holder.identity, entry.token))
}

fn is_ended<T: std::fmt::Debug>(answer: Result<T, SessionError>) {
    assert!(matches!(answer, Err(SessionError::Ended { .. })), "the session has ended: {answer:?}");
}

async fn within<T>(harness: &dyn SessionsHarness, what: &str, wait: impl Future<Output = T>) -> T {
    let patience = harness.patience();
    match tokio::time::timeout(patience, wait).await {
        Ok(done) => done,
        Err(_) => panic!("waited {patience:?} in vain for {what}"),
    }
}

/// Checks that a waiter was woken in time, apart from the machine's own pauses.
fn assert_within(stalls: &Stalls, bound: Duration, (from, to): (Instant, Instant)) {
    let took = to.saturating_duration_since(from);
    let stalled = stalls.in_the_latest(from.elapsed());
    assert!(took <= bound + stalled, "told after {took:?}, and the bound is {bound:?} (stalls: {stalled:?})");
}

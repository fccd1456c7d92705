//! [`Quorum`] among peers.

use primacy_core::election::quorum::{Answer, Body, Config, HardState, Message, Quorum};
use primacy_core::{Drift, Duration, Identity, NodeId};

use super::bounds::PeerBounds;
use super::machine::{Machine, View};
use super::node::{Fact, name, seat};
use crate::algorithm::Algorithm as _;
use crate::elections;
use crate::model::now::{NOW, ticks};

impl Machine for Quorum {
    const HEARS_THE_CONNECTED: bool = false;

    fn begin(me: Identity, bounds: &PeerBounds, disk: HardState) -> Self {
        let short = bounds.short_promise.filter(|_| seat(me.node) == 1);
        let config = Config {
            me,
            voters: (0..bounds.voters).map(name).collect(),
            safety: bounds.safety,
            heartbeat_interval: ticks(bounds.timers.heartbeat),
            miss_count: u32::from(bounds.timers.misses),
            promise_duration: ticks(short.unwrap_or(bounds.timers.promise)),
            initial_wait: Duration::ZERO,
            random_wait_max: Duration::ZERO,
            round_timeout: ticks(bounds.timers.round),
            stagger: Duration::ZERO,
            drift_max: Drift::from_ppm(bounds.drift_percent * 10_000),
            priority: 0,
            witness: seat(me.node) >= bounds.candidates,
            pre_vote: bounds.pre_vote,
            sticky: true,
            seed: 0,
        };
        Self::new(config, disk, NOW)
    }

    fn view(&self) -> View {
        let status = self.status();
        View {
            leads: status.role == "leader",
            connected: status.connected.into_iter().collect(),
            term: status.hard.term,
        }
    }

    fn fact(message: &Message, to: NodeId) -> Option<Fact> {
        let term = message.term;
        match message.body {
            Body::VoteReply { answer: Answer::Yes, to: incarnation, .. } => {
                Some(Fact::Votes { term, candidate: Identity::new(to, incarnation) })
            }
            Body::Heartbeat { .. } => Some(Fact::Leads { term, by_own_vote: true }),
            Body::Resigned { .. } => Some(Fact::Resigned),
            Body::VoteReply { answer: Answer::No(_), .. } => Some(Fact::Refuses),
            Body::PreVote { .. } | Body::PreVoteReply { .. } => None,
            Body::Vote { .. } | Body::HeartbeatReply { .. } => None,
        }
    }

    fn begins(message: &Message) -> Option<u64> {
        match message.body {
            Body::PreVote { round, .. } | Body::Vote { round, .. } | Body::Heartbeat { round } => {
                Some(round.0)
            }
            Body::PreVoteReply { .. } | Body::VoteReply { .. } | Body::HeartbeatReply { .. } => None,
            Body::Resigned { .. } => None,
        }
    }

    fn is_refusal(message: &Message) -> bool {
        match message.body {
            Body::PreVoteReply { answer, .. } | Body::VoteReply { answer, .. } => {
                matches!(answer, Answer::No(_))
            }
            Body::PreVote { .. } | Body::Vote { .. } | Body::Heartbeat { .. } => false,
            Body::HeartbeatReply { .. } | Body::Resigned { .. } => false,
        }
    }

    fn text(message: &Message) -> String {
        elections::quorum::Quorum::text(message)
    }
}

//! [`Ranked`] among peers. Its ballots count as the terms of the space.

use primacy_core::election::quorum::{HardState, Safety};
use primacy_core::election::ranked::{Body, Config, Message, Ranked};
use primacy_core::{Identity, NodeId};

use super::bounds::{self, Timers};
use super::machine::{Machine, View};
use super::node::{Fact, name, seat};
use crate::algorithm::Algorithm as _;
use crate::elections;
use crate::model::now::{NOW, ticks};

/// The bounds of a search. Times are in ticks.
#[derive(Clone, Copy, Debug)]
pub struct RankedBounds {
    /// The number of servers that vote, three or four.
    pub voters: u8,
    /// The number of servers that campaign; the others only vote.
    pub candidates: u8,
    /// The highest ballot.
    pub ballots: u8,
    /// The number of broadcasts, `Elect` and `Lead`, that all servers together may send.
    pub rounds: u8,
    /// The number of ticks that may pass; `None` for any number.
    pub ticks: Option<u8>,
    /// The number of times that a process crashes, between any two effects, and restarts with its disk.
    pub crashes: u8,
    /// The number of times that an operator makes a leader resign or transfer.
    pub resignations: u8,
    /// True if transfers are searched in addition to resignations.
    pub transfers: bool,
    /// The time between heartbeats of a leader.
    pub heartbeat: u8,
    /// The number of its heartbeats that may be missed.
    pub misses: u8,
    /// The time for which claims are gathered. With zero, a server may vote, and enter the next round, at any time.
    pub gathering: u8,
}

impl RankedBounds {
    /// Message delay and loss and process pauses, but no other faults.
    pub const CALM: Self = Self {
        voters: 3,
        candidates: 3,
        ballots: 2,
        rounds: 3,
        ticks: Some(0),
        crashes: 0,
        resignations: 0,
        transfers: false,
        heartbeat: 1,
        misses: 1,
        gathering: 0,
    };

    /// Returns these bounds as bounds of an election among peers.
    pub(in crate::model) const fn among_peers(self) -> bounds::PeerBounds {
        bounds::PeerBounds {
            safety: Safety::Fenced,
            voters: self.voters,
            candidates: self.candidates,
            terms: self.ballots,
            rounds: self.rounds,
            ticks: self.ticks,
            crashes: self.crashes,
            resignations: self.resignations,
            transfers: self.transfers,
            timers: Timers {
                heartbeat: self.heartbeat,
                misses: self.misses,
                promise: self.heartbeat * self.misses,
                round: self.gathering,
            },
            refusals: false,
            ..bounds::PeerBounds::CALM
        }
    }
}

impl Machine for Ranked {
    const HEARS_THE_CONNECTED: bool = true;

    fn begin(me: Identity, bounds: &bounds::PeerBounds, disk: HardState) -> Self {
        let config = Config {
            me,
            voters: (0..bounds.voters).map(name).collect(),
            heartbeat_interval: ticks(bounds.timers.heartbeat),
            miss_count: u32::from(bounds.timers.misses),
            initial_count: 0,
            gathering: ticks(bounds.timers.round),
            witness: seat(me.node) >= bounds.candidates,
            seed: 0,
        };
        Self::new(config, disk, NOW)
    }

    fn view(&self) -> View {
        let status = self.status();
        let leads = status.role == "leader";
        // A leader's last vote may be in an earlier ballot, and a server may be in a round above its last vote.
        let led = status.leader.filter(|_| leads).map(|leader| leader.term);
        let term = status.hard.term.max(status.ballot.unwrap_or_default()).max(led.unwrap_or_default());
        View { leads, connected: status.connected, term }
    }

    fn fact(message: &Message, to: NodeId) -> Option<Fact> {
        match message.body {
            Body::Vote { to: incarnation, ballot } => {
                Some(Fact::Votes { term: ballot, candidate: Identity::new(to, incarnation) })
            }
            // The leader may have voted for another node, whose claim did not reach that node's voters.
            Body::Lead { number, .. } => Some(Fact::Leads { term: number.term, by_own_vote: false }),
            Body::Resigned { .. } => Some(Fact::Resigned),
            Body::LeadReply { number, promised, .. } if promised > number.term => Some(Fact::Refuses),
            Body::LeadReply { .. } | Body::Elect { .. } | Body::Hears { .. } => None,
        }
    }

    fn begins(message: &Message) -> Option<u64> {
        match message.body {
            Body::Elect { .. } => Some(0),
            Body::Lead { number, .. } => Some(number.counter),
            Body::Hears { .. } | Body::Vote { .. } | Body::LeadReply { .. } | Body::Resigned { .. } => None,
        }
    }

    fn is_refusal(message: &Message) -> bool {
        match message.body {
            // The message only makes the receiver wait longer.
            Body::Hears { .. } => true,
            Body::Elect { .. } | Body::Vote { .. } | Body::Lead { .. } => false,
            Body::LeadReply { .. } | Body::Resigned { .. } => false,
        }
    }

    fn text(message: &Message) -> String {
        elections::ranked::Ranked::text(message)
    }
}

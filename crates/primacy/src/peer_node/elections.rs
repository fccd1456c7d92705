//! The elections among peers, adapted to the driver.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use primacy_core::election::confirmed::{self, Confirmed};
use primacy_core::election::lease::{self, Lease};
use primacy_core::election::quorum::{self, HardState, Quorum};
use primacy_core::election::ranked::{self, Ranked};
use primacy_core::election::seniority::{self, Seniority};
use primacy_core::election::{self, Advisory, AdvisorySettings};
use primacy_core::membership;
use primacy_core::{
    Duration, ElectionTrigger, Endpoint, Identity, Incarnation, Input, Instant, NodeId, Protocol, Term,
};

use super::PeersAndStore;
use crate::codec::{Spoken, Word, peer_elections};
use crate::config::{Config, Timers};
use crate::driver::announce::Announces;
use crate::driver::{AdminView, EffectHandler, Halt, Quiescent};
use crate::error::AdminError;
use crate::handshake::DiskId;
use crate::lease_node;
use crate::status::{ConfirmationView, ElectionView, View};

/// An election among peers, adapted to a node.
pub(super) trait AmongPeers: Spoken + Quiescent + Announces + Sized {
    /// Creates the machine of this node.
    fn begin(setup: Setup<'_>, now: Instant) -> Self;
    /// Converts the durable state for the state file.
    fn hard(durable: Self::Durable) -> HardState;
    /// The state of the election.
    fn view(&self) -> ElectionView;
    /// The highest term of which this node has heard without a durable promise, if the election has such terms: a node that has
    /// lost its disk must learn of it.
    fn heard_of(&self) -> Option<Term> {
        None
    }
    /// The highest term or round that this machine has reached without persisting it: other nodes may name higher ones only as
    /// far as elections can have led.
    fn reached(&self) -> Term {
        Term(0)
    }
    /// The side of a heartbeat that the message is, to time its round trip; `None` for other messages.
    fn beat(_: &Self::Message) -> Option<Beat> {
        None
    }
}

/// The parameters of a machine.
#[derive(Clone)]
pub(super) struct Setup<'a> {
    pub(super) me: Identity,
    pub(super) voters: BTreeSet<NodeId>,
    pub(super) config: &'a Config,
    pub(super) timers: &'a Timers,
    pub(super) seed: u64,
    pub(super) hard: HardState,
}

/// One side of a heartbeat's round trip.
pub(super) enum Beat {
    Asked { number: u64 },
    Answered { number: u64, to: Incarnation },
}

/// The time that a server of a ranked election listens at its start, in heartbeats: the value of the source.
const INITIAL_COUNT: u32 = 5;

/// The configuration of a quorum's machine.
pub(super) fn quorum_config(
    Setup { me, voters, config, timers, seed, hard: _ }: &Setup<'_>,
) -> quorum::Config {
    quorum::Config {
        me: *me,
        voters: voters.clone(),
        safety: config.safety,
        heartbeat_interval: timers.renewal.into(),
        miss_count: timers.miss_count,
        promise_duration: timers.lease.into(),
        initial_wait: timers.initial_wait.into(),
        random_wait_max: timers.random_wait_max.into(),
        round_timeout: timers.answer_timeout.into(),
        stagger: timers.stagger.into(),
        drift_max: timers.drift_max,
        priority: config.priority,
        witness: config.witness,
        pre_vote: true,
        sticky: true,
        seed: *seed,
    }
}

impl AmongPeers for Quorum {
    fn begin(setup: Setup<'_>, now: Instant) -> Self {
        Self::new(quorum_config(&setup), setup.hard, now)
    }

    fn hard(durable: HardState) -> HardState {
        durable
    }

    fn view(&self) -> ElectionView {
        ElectionView::Quorum(Box::new(self.status()))
    }

    fn beat(message: &quorum::Message) -> Option<Beat> {
        match message.body {
            quorum::Body::Heartbeat { round } => Some(Beat::Asked { number: round.0 }),
            quorum::Body::HeartbeatReply { round, to, .. } => Some(Beat::Answered { number: round.0, to }),
            quorum::Body::PreVote { .. }
            | quorum::Body::PreVoteReply { .. }
            | quorum::Body::Vote { .. }
            | quorum::Body::VoteReply { .. }
            | quorum::Body::Resigned { .. } => None,
        }
    }
}

impl Quiescent for Quorum {
    fn is_settled(&self) -> bool {
        true // What it has under way cannot make it the leader once it does not campaign.
    }

    fn promises(&self) -> BTreeMap<NodeId, Duration> {
        Self::promises(self)
    }

    fn trigger(&self) -> Option<ElectionTrigger> {
        Some(Self::trigger(self))
    }
}

impl AmongPeers for Ranked {
    fn begin(Setup { me, voters, config, timers, seed, hard }: Setup<'_>, now: Instant) -> Self {
        let config = ranked::Config {
            me,
            voters,
            heartbeat_interval: timers.renewal.into(),
            miss_count: timers.miss_count,
            initial_count: INITIAL_COUNT,
            gathering: timers.stagger.into(),
            witness: config.witness,
            seed,
        };
        Self::new(config, hard, now)
    }

    fn hard(durable: HardState) -> HardState {
        durable
    }

    fn view(&self) -> ElectionView {
        ElectionView::Ranked(Box::new(self.status()))
    }

    fn heard_of(&self) -> Option<Term> {
        Some(self.known())
    }

    fn beat(message: &ranked::Message) -> Option<Beat> {
        match message.body {
            ranked::Body::Lead { number, .. } => Some(Beat::Asked { number: number.counter }),
            ranked::Body::LeadReply { number, to, .. } => Some(Beat::Answered { number: number.counter, to }),
            ranked::Body::Elect { .. }
            | ranked::Body::Hears { .. }
            | ranked::Body::Vote { .. }
            | ranked::Body::Resigned { .. } => None,
        }
    }
}

impl Quiescent for Ranked {
    fn is_settled(&self) -> bool {
        true // As in a quorum: votes for one that does not stand make no leader.
    }

    fn trigger(&self) -> Option<ElectionTrigger> {
        Some(Self::trigger(self))
    }
}

/// Adapts the elections that the core runs as [`Advisory`].
macro_rules! advisory_elections {
    ($($way:ident $variant:ident($($machine:tt)*), $encoding:ident;)*) => {
        $(advisory_elections!(@$way $($machine)*);)*
    };
    (@advisory $($machine:tt)*) => {
        impl AmongPeers for election::$($machine)* {
            fn begin(Setup { me, voters, timers, .. }: Setup<'_>, now: Instant) -> Self {
                let settings = AdvisorySettings {
                    me,
                    nodes: voters,
                    heartbeat_interval: timers.renewal.into(),
                    miss_count: timers.miss_count,
                    answer_timeout: timers.answer_timeout.into(),
                    sticky: true,
                };
                Advisory::begin(settings, now)
            }

            fn hard((): ()) -> HardState {
                HardState::default()
            }

            fn reached(&self) -> Term {
                self.round()
            }

            fn view(&self) -> ElectionView {
                ElectionView::Advisory { role: self.role() }
            }
        }

        impl Announces for election::$($machine)* {}

        impl Quiescent for election::$($machine)* {
            fn is_settled(&self) -> bool {
                true // Nobody leads who does not campaign.
            }

            fn trigger(&self) -> Option<ElectionTrigger> {
                Some(Advisory::trigger(self))
            }
        }
    };
    (@$other:ident $($machine:tt)*) => {};
}

peer_elections!(advisory_elections);

impl AmongPeers for Seniority {
    fn begin(Setup { me, voters, config, timers, .. }: Setup<'_>, now: Instant) -> Self {
        Self::new(config.seniority.machine(me, &voters, &config.attributes, timers), now)
    }

    fn hard((): ()) -> HardState {
        HardState::default()
    }

    fn reached(&self) -> Term {
        self.term()
    }

    fn view(&self) -> ElectionView {
        ElectionView::Seniority(Box::new(self.status()))
    }
}

impl Quiescent for Seniority {
    fn is_settled(&self) -> bool {
        true // Nobody leads who does not campaign.
    }

    fn cluster(&self) -> Option<&Arc<membership::View>> {
        self.view()
    }

    fn why_stopped(&self) -> Option<String> {
        self.stopped().map(ToString::to_string)
    }

    fn trigger(&self) -> Option<ElectionTrigger> {
        Some(Self::trigger(self))
    }
}

/// A cluster by seniority whose splits a store decides.
impl EffectHandler<Seniority> for PeersAndStore {
    fn persist(&mut self, (): ()) -> Result<(), Halt> {
        Ok(()) // What must not be forgotten is in the store.
    }

    fn send(&mut self, to: Endpoint, message: seniority::Message) {
        match (to, message) {
            (Endpoint::Store, seniority::Message { body: seniority::Body::Store(message), .. }) => {
                EffectHandler::<Lease>::send(&mut self.store, to, message);
            }
            (_, message) => EffectHandler::<Seniority>::send(&mut self.peers, to, message),
        }
    }

    async fn arrival(&mut self) -> Result<Input<seniority::Message>, Halt> {
        let incarnation = self.peers.me.identity.incarnation;
        let said = |message| seniority::Message { incarnation, body: seniority::Body::Store(message) };
        tokio::select! {
            input = EffectHandler::<Seniority>::arrival(&mut self.peers) => input,
            input = EffectHandler::<Lease>::arrival(&mut self.store) => Ok(input?.map(said)),
        }
    }
}

impl AdminView<Seniority> for PeersAndStore {
    fn after(&mut self, machine: &Seniority, led: bool) -> Result<(), Halt> {
        AdminView::<Seniority>::after(&mut self.peers, machine, led)
    }

    fn view(&self, machine: &Seniority) -> View {
        AdminView::<Seniority>::view(&self.peers, machine)
    }

    fn readmit(&mut self, node: NodeId) -> Result<DiskId, AdminError> {
        AdminView::<Seniority>::readmit(&mut self.peers, node)
    }
}

/// Creates the machine of a nomination that is confirmed.
fn confirmed<N, C>(setup: Setup<'_>, confirmation: C, now: Instant) -> Confirmed<N, C>
where
    N: AmongPeers<Durable = ()>,
    C: Protocol,
{
    let config = confirmed::Config {
        me: setup.me.node,
        damping: (setup.timers.renewal * confirmed::DAMPING_COUNT).into(),
        patience: (setup.config.timers.lease * 2).into(),
    };
    Confirmed::new(config, N::begin(setup, now), confirmation)
}

impl<N: Spoken + Protocol<Durable = ()>> Spoken for Confirmed<N, Quorum> {
    fn say(message: Self::Message) -> Word {
        match message {
            confirmed::Message::Nomination(message) => N::say(message),
            confirmed::Message::Confirmation(message) => Quorum::say(message),
        }
    }

    fn hear(word: Word) -> Option<Self::Message> {
        if let Word::Quorum(message) = word {
            return Some(confirmed::Message::Confirmation(message));
        }
        N::hear(word).map(confirmed::Message::Nomination)
    }
}

impl<N: AmongPeers<Durable = ()>> AmongPeers for Confirmed<N, Quorum> {
    fn begin(setup: Setup<'_>, now: Instant) -> Self {
        let quorum = Quorum::begin(Setup { timers: &setup.config.timers, ..setup.clone() }, now);
        confirmed(setup, quorum, now)
    }

    fn hard(durable: HardState) -> HardState {
        durable
    }

    fn reached(&self) -> Term {
        self.nomination().reached()
    }

    fn view(&self) -> ElectionView {
        ElectionView::Confirmed {
            nominee: self.nominee(),
            nomination: Box::new(self.nomination().view()),
            by: Box::new(ConfirmationView::Quorum(self.confirmation().status())),
        }
    }

    fn beat(message: &Self::Message) -> Option<Beat> {
        match message {
            confirmed::Message::Nomination(message) => N::beat(message),
            confirmed::Message::Confirmation(message) => Quorum::beat(message),
        }
    }
}

impl<N: Protocol<Durable = ()> + Quiescent> Quiescent for Confirmed<N, Quorum> {
    fn is_settled(&self) -> bool {
        self.confirmation().is_settled()
    }

    fn cluster(&self) -> Option<&Arc<membership::View>> {
        self.nomination().cluster()
    }

    fn trigger(&self) -> Option<ElectionTrigger> {
        Some(self.confirmation().trigger())
    }

    fn promises(&self) -> BTreeMap<NodeId, Duration> {
        self.confirmation().promises()
    }
}

/// Creates the machine of a nomination that a store confirms.
pub(super) fn confirmed_by_store<N: AmongPeers<Durable = ()>>(
    setup: Setup<'_>,
    now: Instant,
) -> Confirmed<N, Lease> {
    let lease = lease_node::machine(setup.config, setup.me, setup.seed);
    confirmed(setup, lease, now)
}

/// A nomination that a store confirms. Its view of the peers is the nomination's.
impl<N: AmongPeers<Durable = ()>> EffectHandler<Confirmed<N, Lease>> for PeersAndStore {
    fn persist(&mut self, (): ()) -> Result<(), Halt> {
        Ok(()) // What must not be forgotten is in the store.
    }

    fn send(&mut self, to: Endpoint, message: confirmed::Message<N::Message, lease::Message>) {
        match message {
            confirmed::Message::Nomination(message) => EffectHandler::<N>::send(&mut self.peers, to, message),
            confirmed::Message::Confirmation(message) => {
                EffectHandler::<Lease>::send(&mut self.store, to, message)
            }
        }
    }

    async fn arrival(&mut self) -> Result<Input<confirmed::Message<N::Message, lease::Message>>, Halt> {
        tokio::select! {
            nomination = EffectHandler::<N>::arrival(&mut self.peers) => {
                Ok(nomination?.map(confirmed::Message::Nomination))
            }
            confirmation = EffectHandler::<Lease>::arrival(&mut self.store) => {
                Ok(confirmation?.map(confirmed::Message::Confirmation))
            }
        }
    }
}

impl<N: AmongPeers<Durable = ()>> AdminView<Confirmed<N, Lease>> for PeersAndStore {
    fn after(&mut self, machine: &Confirmed<N, Lease>, led: bool) -> Result<(), Halt> {
        AdminView::<N>::after(&mut self.peers, machine.nomination(), led)
    }

    fn view(&self, machine: &Confirmed<N, Lease>) -> View {
        let by = Box::new(ConfirmationView::Store(machine.confirmation().status()));
        let nomination = Box::new(machine.nomination().view());
        self.peers.view_with(ElectionView::Confirmed { nominee: machine.nominee(), nomination, by })
    }

    fn readmit(&mut self, node: NodeId) -> Result<DiskId, AdminError> {
        AdminView::<N>::readmit(&mut self.peers, node)
    }
}

impl<N: Protocol<Durable = ()> + Quiescent> Quiescent for Confirmed<N, Lease> {
    fn is_settled(&self) -> bool {
        self.confirmation().is_settled()
    }

    fn cluster(&self) -> Option<&Arc<membership::View>> {
        self.nomination().cluster()
    }

    fn trigger(&self) -> Option<ElectionTrigger> {
        None // The record shows who held it, and not how that ended.
    }
}

//! The simulator's adapter for a nomination and its confirmation.

use std::marker::PhantomData;

use primacy_core::election::confirmed::{Config, Confirmed as Machine, Message};
use primacy_core::election::lease as store;
use primacy_core::rng::Rng;
use primacy_core::{Duration, Identity, Instant, NodeId, Term};

use super::arbitrary_nominator::ArbitraryNominator;
use super::bully::{self, Bully};
use super::lease::{self, Lease};
use super::quorum::{self, Quorum};
use super::seniority::{self, Seniority};
use crate::algorithm::{
    Algorithm, KnownView, ProcessStart, Recovery, Settings, StartGuardian, StoreUse, Surroundings, duration,
};
use crate::invariants::{Invariant, Meaning};
use crate::swarm::{Beyond, Swarm, text};
use crate::trace::Trace;

/// `confirmed`: one election nominates, another one confirms.
#[derive(Clone, Copy, Debug)]
pub struct Confirmed<N, C>(PhantomData<(N, C)>);

/// Settings of a node: those of the confirmation under their own names, and those of the nomination as
/// `nominate.NAME`.
#[derive(Clone, Debug)]
pub struct Timers<N, C> {
    /// Settings of the election that nominates.
    pub nomination: N,
    /// Settings of the election that confirms.
    pub confirmation: C,
    /// The time for which another node must stay nominated before the leader hands over to it.
    pub damping: Duration,
    /// The time that a nominee waits for its confirmation.
    pub patience: Duration,
}

impl<N: Default, C: Default> Default for Timers<N, C> {
    /// The defaults of the library.
    fn default() -> Self {
        Self {
            nomination: N::default(),
            confirmation: C::default(),
            damping: Duration::from_secs(2),
            patience: Duration::from_secs(2),
        }
    }
}

impl<N: Settings, C: Settings> Settings for Timers<N, C> {
    fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
        match (key, key.strip_prefix("nominate.")) {
            ("damping", _) => self.damping = duration(text)?,
            ("patience", _) => self.patience = duration(text)?,
            (_, Some(key)) => self.nomination.set(key, text)?,
            (_, None) => self.confirmation.set(key, text)?,
        }
        Ok(())
    }

    fn priority_and_witness(&self) -> (u32, bool) {
        self.confirmation.priority_and_witness()
    }

    fn lease_duration(&self) -> Duration {
        self.confirmation.lease_duration()
    }

    fn patience(&self) -> Duration {
        self.nomination.patience().plus(self.confirmation.patience())
    }

    fn terms_of_use(&self) -> String {
        self.confirmation.terms_of_use()
    }
}

impl<N, C> Algorithm for Confirmed<N, C>
where
    N: Algorithm<Durable = ()>,
    C: Algorithm,
    N::Machine: Clone,
    C::Machine: Clone,
{
    type Message = Message<N::Message, C::Message>;
    type Durable = C::Durable;
    type Kept = C::Kept;
    type Machine = Machine<N::Machine, C::Machine>;
    type Settings = Timers<N::Settings, C::Settings>;

    const GUARDIAN: Option<StartGuardian<Self>> = match C::GUARDIAN {
        Some(_) => Some(Self::start_guardian),
        None => None,
    };
    const STORE: Option<StoreUse<Self>> = match C::STORE {
        Some(_) => Some(StoreUse { request: Self::store_request, reply: Self::store_reply }),
        None => None,
    };
    const VIEW: Option<fn(&Self::Machine) -> KnownView<'_>> = match N::VIEW {
        Some(_) => Some(Self::view),
        None => None,
    };
    const RECOVERY: Option<Recovery<Self>> = match C::RECOVERY {
        Some(_) => {
            Some(Recovery { term_to_report: Self::term_to_report, has_recovered: Self::has_recovered })
        }
        None => None,
    };

    const SETTLES: bool = N::SETTLES && C::SETTLES;

    fn start(settings: &Self::Settings, process: ProcessStart<'_, C::Kept>) -> Self::Machine {
        let ProcessStart { me, voters, seed, now, .. } = process;
        let nomination =
            N::start(&settings.nomination, ProcessStart { me, voters, durable: None, seed, now });
        let confirmation = C::start(&settings.confirmation, process);
        Machine::new(config(settings, me), nomination, confirmation)
    }

    fn kind(message: &Self::Message) -> &'static str {
        match message {
            Message::Nomination(message) => N::kind(message),
            Message::Confirmation(message) => C::kind(message),
        }
    }

    fn is_routine(message: &Self::Message) -> bool {
        match message {
            Message::Nomination(message) => N::is_routine(message),
            Message::Confirmation(message) => C::is_routine(message),
        }
    }

    fn text(message: &Self::Message) -> String {
        match message {
            Message::Nomination(message) => format!("{} (nomination)", N::text(message)),
            Message::Confirmation(message) => C::text(message),
        }
    }

    fn meaning(message: &Self::Message, to: Option<NodeId>) -> Meaning {
        match message {
            // A nomination only says which node campaigns, so its messages are not judged.
            Message::Nomination(_) => Meaning::Nothing,
            Message::Confirmation(message) => C::meaning(message, to),
        }
    }

    fn met(message: &Self::Message) -> Option<&'static str> {
        match message {
            Message::Nomination(message) => N::met(message),
            Message::Confirmation(message) => C::met(message),
        }
    }

    fn campaigns(machine: &Self::Machine) -> bool {
        C::campaigns(machine.confirmation())
    }

    /// First a node is nominated, which may be down and is then waited for in vain; then another one is confirmed.
    /// The previous leader hands over once another node has been nominated for the damping time.
    fn settles_within(nodes: &[&Self::Settings], surroundings: &Surroundings) -> Duration {
        let nominations: Vec<&N::Settings> = nodes.iter().map(|node| &node.nomination).collect();
        let confirmations: Vec<&C::Settings> = nodes.iter().map(|node| &node.confirmation).collect();
        let waits = nodes.iter().map(|node| node.damping.plus(node.patience)).max().unwrap_or_default();
        let once = N::settles_within(&nominations, surroundings).plus(waits);
        once.times(2).plus(C::settles_within(&confirmations, surroundings).times(2))
    }

    /// All invariants of the confirmation but I5: a nomination that changed before the calm still moves the lead
    /// during it. If the nomination has views, also its invariants about them.
    fn invariants(settings: &Self::Settings) -> Vec<Box<dyn Invariant>> {
        let confirmed = C::invariants(&settings.confirmation).into_iter();
        let nominated = N::invariants(&settings.nomination).into_iter();
        let views = nominated.filter(|invariant| invariant.name() == "I7");
        confirmed.filter(|invariant| invariant.name() != "I5").chain(views).collect()
    }
}

/// The capabilities of the two elections. Each function is used only where the election in question has the capability.
impl<N, C> Confirmed<N, C>
where
    N: Algorithm<Durable = ()>,
    C: Algorithm,
    N::Machine: Clone,
    C::Machine: Clone,
{
    fn start_guardian(
        settings: &Timers<N::Settings, C::Settings>,
        dead: Identity,
        seed: u64,
        now: Instant,
    ) -> Machine<N::Machine, C::Machine> {
        let guardian = C::GUARDIAN.expect("it has one")(&settings.confirmation, dead, seed, now);
        // It neither campaigns nor votes; it exists because a machine has two parts.
        let voters = [dead.node].into();
        let process = ProcessStart { me: dead, voters: &voters, durable: None, seed, now };
        Machine::new(config(settings, dead), N::start(&settings.nomination, process), guardian)
    }

    fn store_request(message: &Message<N::Message, C::Message>) -> Option<&store::Message> {
        match message {
            Message::Nomination(_) => None,
            Message::Confirmation(message) => (C::STORE?.request)(message),
        }
    }

    fn store_reply(reply: store::Message) -> Message<N::Message, C::Message> {
        Message::Confirmation((C::STORE.expect("it has one").reply)(reply))
    }

    fn view(machine: &Machine<N::Machine, C::Machine>) -> KnownView<'_> {
        N::VIEW.expect("it has views")(machine.nomination())
    }

    fn term_to_report(machine: &Machine<N::Machine, C::Machine>) -> Option<Term> {
        (C::RECOVERY?.term_to_report)(machine.confirmation())
    }

    fn has_recovered(kept: &C::Kept) -> bool {
        C::RECOVERY.is_some_and(|recovery| (recovery.has_recovered)(kept))
    }
}

fn config<N, C>(settings: &Timers<N, C>, me: Identity) -> Config {
    Config { me: me.node, damping: settings.damping, patience: settings.patience }
}

/// Draws worlds in which bully nominates and a quorum confirms.
pub(super) fn by_quorum(seed: u64, beyond: Option<Beyond>, trace: Trace) -> Swarm<Confirmed<Bully, Quorum>> {
    let (mut swarm, nodes) = begin(seed, beyond, trace);
    swarm.words = &[
        "PreVote",
        "PreVoteReply",
        "Vote",
        "VoteReply",
        "Heartbeat",
        "HeartbeatReply",
        "Resigned",
        "Election",
        "Alive",
        "Coordinator",
        "Died",
    ];
    bully::timers(&mut swarm, nodes, "nominate.");
    quorum::timers(&mut swarm, nodes, beyond);
    swarm
}

/// Draws worlds in which seniority nominates and a quorum confirms.
pub(super) fn of_the_oldest(
    seed: u64,
    beyond: Option<Beyond>,
    trace: Trace,
) -> Swarm<Confirmed<Seniority, Quorum>> {
    let (mut swarm, nodes) = begin(seed, beyond, trace);
    swarm.words = &[
        "PreVote",
        "PreVoteReply",
        "Vote",
        "VoteReply",
        "Heartbeat",
        "HeartbeatReply",
        "Resigned",
        "Join",
        "View",
        "ViewReply",
        "Probe",
        "MergeAsk",
        "Merge",
        "Died",
    ];
    let cluster = seniority::cluster(&mut swarm, nodes, "nominate.", seniority::WITHOUT_A_STORE);
    seniority::timers(&mut swarm, nodes, "nominate.", cluster.heartbeat);
    swarm.joins = true;
    quorum::timers(&mut swarm, nodes, beyond);
    swarm
}

/// Draws worlds in which bully nominates and a lease in a store confirms.
pub(super) fn by_lease(seed: u64, beyond: Option<Beyond>, trace: Trace) -> Swarm<Confirmed<Bully, Lease>> {
    let (mut swarm, nodes) = begin(seed, beyond, trace);
    swarm.words = &[
        "Read",
        "ReadReply",
        "Write",
        "WriteReply",
        "Heartbeat",
        "Election",
        "Alive",
        "Coordinator",
        "Died",
    ];
    bully::timers(&mut swarm, nodes, "nominate.");
    lease::timers(&mut swarm, nodes);
    swarm
}

/// Draws worlds in which each node nominates a random node, and another one a moment later, and a quorum confirms.
pub(super) fn by_arbitrary_nomination(
    seed: u64,
    beyond: Option<Beyond>,
    trace: Trace,
) -> Swarm<Confirmed<ArbitraryNominator, Quorum>> {
    let (mut swarm, nodes) = begin(seed, beyond, trace);
    swarm.words =
        &["PreVote", "PreVoteReply", "Vote", "VoteReply", "Heartbeat", "HeartbeatReply", "Resigned", "Died"];
    let longest = swarm.millis(5, 2_000);
    swarm.tell(format!("set nominate.lasts={}", text(longest)));
    quorum::timers(&mut swarm, nodes, beyond);
    swarm
}

fn begin<A: Algorithm>(seed: u64, beyond: Option<Beyond>, trace: Trace) -> (Swarm<A>, usize) {
    let mut swarm = Swarm::new(Rng::new(seed), beyond, trace);
    let nodes = [3, 3, 3, 5, 5, 4, 2, 1][swarm.index(8)];
    swarm.begin(seed, nodes);
    // A nomination that changes faster than the damping moves nothing; a slower one moves the lead, in order.
    let (damping, patience) = (swarm.millis(50, 3_000), swarm.millis(1_000, 5_000));
    swarm.tell(format!("set damping={} patience={}", text(damping), text(patience)));
    (swarm, nodes)
}

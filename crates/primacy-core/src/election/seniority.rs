//! Seniority (Joshi's "Emergent Leader"): the oldest member of the cluster coordinates it, and is the leader.
//! Assumes   bounded message delay most of the time; nodes know some seeds, and each has a name; crashes, and partitions,
//!           whose outcome the [`Policy`] decides.
//! Promises  the members agree on a view, with one coordinator, soon after the network is whole; ages and numbers of views
//!           never go back. *Not* one leader at a time: a part learns late that the cluster has split. No fencing token.
//! Costs     a heartbeat to every member from each, or from each to k; a change of members: 2n messages. A coordinator that
//!           dies is replaced after `stable_after` and the detection of its silence.   Prefer `quorum`; or let one confirm it.
//!
//! The roles of a node:
//!
//! ```text
//!             Join to the seeds, and a View came back          all older ones have left, or are lost
//!   Outside ──────────────────────────────────────────► Member ─────────────────────────────────────► Coordinator
//!      ▲  └─ the first seed, and there is no cluster ─────────────────────────────────────────────────────┤
//!      ├─────────── left, left out, or of a part that shall stop ────────┘                                │
//!      └─────────── joins the larger part, resigned, or of a part that shall stop ───────────────────────────┘
//! ```
//!
//! Why there is one coordinator in the end: all nodes agree which of two views of a cluster is the later one, and its
//! members take it. A node that is not in the later view joins anew, as the youngest. Two parts whose views exclude
//! each other probe for their lost members until they meet; then the smaller part joins the larger one, by a total
//! order of parts, and only after the larger one has promised to join no other part.
//!
//! Only nodes that campaign and are healthy are members. The exception is the last member: when it withdraws, it holds
//! the cluster without leading, and hands it to the next node that joins.

mod config;
mod coordinating;
mod decision;
mod message;
mod outside;
mod state_reduction;
mod status;
mod stopped;
#[cfg(test)]
mod tests;
mod watch;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

pub use self::config::{Config, ConfigError, SEEDS_MAX};
use self::decision::Decision;
pub use self::message::{Body, JoinAnswer, Message, Refusal};
use self::outside::Outside;
pub use self::status::Status;
pub use self::stopped::{Stopped, StoreAnswer};
use self::watch::Watch;
use super::ElectionDescriptor;
use crate::fence::FencingToken;
use crate::id::{Identity, NodeId};
use crate::membership::{Attributes, Fate, Member as MemberOf, Policy, Sight, View};
use crate::protocol::{Command, Endpoint, Event, Evidence, Input, Leader, Mandate, Output, Protocol, Reason};
use crate::term::Term;
use crate::time::Instant;

/// The facts about this election.
pub const DESCRIPTOR: ElectionDescriptor = ElectionDescriptor {
    name: "seniority",
    choose_when: "nodes come and go, and the oldest should lead",
    guarantee: "advisory: for a while two may lead",
    is_fenced: false,
};

/// The number of answer waits for which a part that has lost members asks the store before it stops.
const QUESTIONS_MAX: u64 = 4;

/// The limit on the number of a joining of an honest node.
const JOINING_MAX: u64 = u64::MAX / 2;

/// The state machine of one node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seniority {
    config: Config,
    membership: Membership,
    /// The number of its current or next joining, counted from 1.
    joining: u64,
    /// The highest term in which this process has become coordinator. It does so once per term, so that its views have
    /// different numbers.
    claimed: Term,
    /// The number of the last request to the store.
    request: u64,
    /// True if the application wants this node to belong to the cluster.
    campaigning: bool,
    healthy: bool,
    told_leader: Option<Leader>,
    outputs: VecDeque<Output<Message, ()>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Membership {
    Outside(Outside),
    Member(Box<Member>),
}

/// The state of a member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Member {
    view: Arc<View>,
    /// The state of a coordinator, while it is one.
    lead: Option<Lead>,
    watch: Watch,
    /// The nodes of the view that certainly are not members any more: they have left, or a guardian or an operator has
    /// reported them dead.
    gone: BTreeSet<NodeId>,
    /// The highest term of this cluster that was heard of.
    heard_of: Term,
    beat_at: Instant,
    /// The time before which it does not ask again for a later view.
    asked_until: Instant,
    decision: Option<Decision>,
    /// True if it has given up the lead with no other member left, and holds the cluster for the next node that
    /// campaigns: itself, or a node that asks to join.
    held: bool,
}

impl Member {
    /// The nodes of the view that send no heartbeats: they are gone, or have not been welcomed yet.
    fn absent(&self) -> BTreeSet<NodeId> {
        let gathering = self.lead.as_ref().and_then(|lead| lead.gathering.as_ref());
        let welcomes = gathering.map(|gathering| &gathering.welcomes);
        self.gone.iter().chain(welcomes.into_iter().flatten()).copied().collect()
    }

    /// Returns true if no other member of the view is left.
    fn is_alone(&self) -> bool {
        let is_left = |node: &NodeId| !self.gone.contains(node) && !self.watch.lost().contains(node);
        self.view.members().iter().filter(|member| is_left(&member.identity.node)).count() <= 1
    }

    /// Returns true if it does not lead, but will if the store chooses its part.
    fn is_undecided(&self, me: Identity) -> bool {
        self.lead.is_none() && (self.decision.is_some() || self.view.oldest().identity == me)
    }
}

/// The state of a coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lead {
    gathering: Option<Gathering>,
    /// The nodes that have asked to join and are not yet in the view, by name.
    joiners: BTreeMap<NodeId, Joiner>,
    probe_at: Instant,
    merge: Merge,
    /// The reason for resigning, while the work is being drained.
    resigning: Option<Reason>,
}

/// A gathering of answers to a view. When enough have answered, the new members are sent the view.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Gathering {
    waits_for: BTreeSet<NodeId>,
    until: Instant,
    welcomes: BTreeSet<NodeId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Joiner {
    identity: Identity,
    joining: u64,
    attributes: Arc<Attributes>,
}

/// A merge with another part: a coordinator has either asked to join the other part, or promised to join no other. So
/// two parts never join each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Merge {
    None,
    Asks { of: NodeId, until: Instant },
    Stays { until: Instant },
}

/// The action of a member after losses or departures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// Makes a view without the nodes that are gone.
    Dismiss,
    /// Makes a view without the nodes that are lost, too.
    GoOn,
    AskStore,
    /// Stops leading, because the store may choose the other part, and stays a member until the store has decided.
    StandAside,
    Stop,
}

impl Protocol for Seniority {
    type Message = Message;
    type Durable = ();

    fn handle(&mut self, now: Instant, input: Input<Message>) {
        debug_assert!(self.outputs.is_empty(), "all outputs must be drained before the next input");
        match input {
            Input::Message { from: Endpoint::Node(from), message } => self.on_message(now, from, message),
            Input::Message { from: Endpoint::Store, message } => self.on_store(now, message.body),
            Input::Message { from: Endpoint::Client, .. } => {} // This election knows none.
            Input::Timeout => {}                                // What is due is done below.
            Input::Command(command) => self.on_command(now, command),
            Input::Evidence(evidence) => self.on_evidence(now, evidence),
        }
        self.act(now);
        self.tell_leader();
    }

    fn poll(&mut self) -> Option<Output<Message, ()>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let next = match &self.membership {
            Membership::Outside(_) if !self.campaigns() => Instant::NEVER,
            Membership::Outside(outside) => outside.deadline(),
            Membership::Member(member) => {
                let act = self.plan(member).map_or(Instant::NEVER, |(at, _)| at);
                let lead = member.lead.as_ref().map_or(Instant::NEVER, Lead::deadline);
                let decision = member.decision.as_ref().map_or(Instant::NEVER, |decision| decision.until);
                member.beat_at.min(member.watch.check_at).min(act).min(lead).min(decision)
            }
        };
        Some(next).filter(|&at| at < Instant::NEVER)
    }
}

impl Seniority {
    /// The state machine of `config.me`. It belongs to no cluster, and asks to join one when commanded to campaign.
    ///
    /// # Panics
    /// If [`Config::check`] returns an error.
    #[must_use]
    pub fn new(config: Config, now: Instant) -> Self {
        assert_eq!(config.check(), Ok(()), "a configuration that cannot work");
        let membership = Membership::Outside(Outside::new(None, BTreeSet::new(), now));
        Self {
            config,
            membership,
            joining: 1,
            claimed: Term(0),
            request: 0,
            campaigning: false,
            healthy: true,
            told_leader: None,
            outputs: VecDeque::new(),
        }
    }

    fn on_message(&mut self, now: Instant, from: NodeId, message: Message) {
        if from == self.config.me.node {
            return;
        }
        let from = Identity::new(from, message.incarnation);
        match message.body {
            Body::Join { joining, .. } | Body::Leave { joining } if joining > JOINING_MAX => {}
            Body::Heartbeat { sight, .. }
            | Body::ViewReply(sight)
            | Body::Ask(sight)
            | Body::Probe(sight)
            | Body::ProbeReply(sight)
            | Body::MergeAsk(sight)
            | Body::MergeReply(sight)
            | Body::Merge { sight, .. }
                if !sight.is_possible() => {}
            Body::Join { joining, attributes } => {
                self.on_join(now, Joiner { identity: from, joining, attributes })
            }
            Body::JoinReply { joining, answer } if joining == self.joining => {
                self.on_join_reply(now, from.node, answer)
            }
            Body::JoinReply { .. } => {} // To an earlier joining.
            Body::View(view) => self.on_view(now, from, &view),
            Body::ViewReply(sight) => self.on_view_reply(now, from.node, sight),
            Body::Heartbeat { sight, suspects } => self.on_heartbeat(now, from, sight, suspects),
            Body::Ask(sight) => self.on_ask(from.node, sight),
            Body::Leave { joining } => self.on_leave(now, from, joining),
            Body::Down { identity, joining } => self.on_down(now, from, identity, joining),
            Body::Probe(sight) => self.on_probe(now, from.node, sight),
            Body::ProbeReply(sight) => self.on_probe_reply(now, from.node, sight),
            Body::MergeAsk(sight) => self.on_merge_ask(now, from.node, sight),
            Body::MergeReply(sight) => self.on_merge_reply(now, from.node, sight),
            Body::Merge { into, sight } => self.on_merge(now, from, into, sight),
            Body::Store(_) => {} // The store is no node.
        }
    }

    fn on_command(&mut self, now: Instant, command: Command) {
        match command {
            Command::Campaign if !self.campaigning => {
                self.campaigning = true;
                self.begin_campaign(now);
            }
            Command::Campaign => {}
            Command::Healthy(true) if !self.healthy => {
                self.healthy = true;
                self.begin_campaign(now);
            }
            Command::Healthy(true) => {}
            Command::Withdraw => {
                self.campaigning = false;
                self.retire(now, Reason::Resigned);
            }
            Command::Healthy(false) => {
                self.healthy = false;
                self.retire(now, Reason::Unhealthy);
            }
            // The ages alone decide which node is next.
            Command::Resign | Command::Transfer(_) if self.leads() => self.retire(now, Reason::Resigned),
            Command::Resign | Command::Transfer(_) => {} // It does not lead.
            Command::Down(node) => self.down(now, node),
            Command::Drained => self.on_drained(now),
        }
    }

    fn on_evidence(&mut self, now: Instant, evidence: Evidence) {
        match evidence {
            Evidence::Died(identity) => self.dismiss(now, identity, |_| true),
            Evidence::Connected(peer) => self.on_connected(peer.identity.node),
            // A closed connection proves nothing: silence decides. And there is no vote that a disk could lose.
            Evidence::Disconnected(_) | Evidence::Readmitted { .. } | Evidence::DiskRefused { .. } => {}
        }
    }

    // ── membership ──────────────────────────────────────────────────────────────────────────────────────────

    /// Becomes a member by this view, which includes this node.
    fn enter(&mut self, now: Instant, view: Arc<View>) {
        let Config { heartbeat_interval, detection, neighbours, answer_wait, .. } = self.config;
        let mut watch = Watch::new(self.config.me.node, heartbeat_interval, detection, neighbours, now);
        watch.follow(&view, &BTreeSet::new(), answer_wait, now);
        let (heard_of, gone) = (view.version().term, BTreeSet::new());
        let member = Member {
            view,
            lead: None,
            watch,
            gone,
            heard_of,
            beat_at: now,
            asked_until: now,
            decision: None,
            held: false,
        };
        self.membership = Membership::Member(Box::new(member));
    }

    /// Takes another view.
    fn take(&mut self, now: Instant, view: Arc<View>) {
        let longer = self.config.answer_wait;
        let Membership::Member(member) = &mut self.membership else { return };
        member.gone.retain(|&node| view.named(node) == member.view.named(node) && view.named(node).is_some());
        member.heard_of = member.heard_of.max(view.version().term);
        member.view = view;
        member.decision = None;
        member.watch.follow(&member.view, &member.absent(), longer, now);
    }

    /// Leaves the cluster, and asks `into`, or the seeds, to let it join again. With `tells` it tells the other
    /// members.
    fn leave(&mut self, now: Instant, into: Option<NodeId>, tells: bool) {
        self.joining += 1;
        let Membership::Member(member) = &self.membership else { return };
        let view = Arc::clone(&member.view);
        if tells {
            self.tell_members(&Body::Leave { joining: self.joining });
        }
        let candidates = into.into_iter().collect();
        self.membership = Membership::Outside(Outside::new(Some(view), candidates, now));
    }

    /// Leaves; a coordinator lets its work drain before.
    fn retire(&mut self, now: Instant, reason: Reason) {
        let Membership::Member(member) = &mut self.membership else { return };
        match &mut member.lead {
            Some(Lead { resigning: resigning @ None, .. }) => {
                *resigning = Some(reason);
                self.tell(Event::Resigning(reason));
            }
            Some(Lead { resigning: Some(_), .. }) => {} // It does so already.
            None => self.leave_or_hold(now),
        }
    }

    /// Leaves its cluster, or holds it if no other member is left, because the cluster would end otherwise.
    fn leave_or_hold(&mut self, now: Instant) {
        match &mut self.membership {
            Membership::Member(member)
                if member.is_alone() && member.view.oldest().identity == self.config.me =>
            {
                (member.lead, member.decision, member.held) = (None, None, true);
            }
            Membership::Member(_) | Membership::Outside(_) => self.leave(now, None, true),
        }
    }

    /// Returns true if it only holds the cluster for the next node.
    fn only_holds(&self) -> bool {
        matches!(&self.membership, Membership::Member(member) if member.held) && !self.campaigns()
    }

    fn on_drained(&mut self, now: Instant) {
        let Some(reason) = self.resigning() else { return };
        self.tell(Event::Deposed(reason));
        match reason {
            Reason::Transferred(into) => {
                let Membership::Member(member) = &self.membership else { return };
                let sight = member.view.sight();
                self.tell_members(&Body::Merge { into, sight });
                self.leave(now, Some(into), false);
            }
            Reason::Resigned | Reason::Unhealthy => self.leave_or_hold(now),
            Reason::Expired
            | Reason::Undecided
            | Reason::HigherTerm(_)
            | Reason::Overwritten
            | Reason::Removed
            | Reason::SessionEnded
            | Reason::DiskLost
            | Reason::Violation
            | Reason::Halted => self.leave(now, None, true),
        }
    }

    /// Stops leading.
    fn step_down(&mut self, reason: Reason) {
        if let Membership::Member(member) = &mut self.membership
            && member.lead.take().is_some()
        {
            self.tell(Event::Deposed(reason));
        }
    }

    /// Removes the member with this identity, if `which` is true for it.
    fn dismiss(&mut self, now: Instant, identity: Identity, which: impl Fn(&MemberOf) -> bool) {
        let longer = self.config.answer_wait;
        let Membership::Member(member) = &mut self.membership else { return };
        if identity != self.config.me
            && member.view.member(identity).is_some_and(which)
            && member.gone.insert(identity.node)
        {
            member.watch.follow(&member.view, &member.absent(), longer, now);
        }
    }

    fn on_leave(&mut self, now: Instant, from: Identity, joining: u64) {
        self.dismiss(now, from, |member| member.joining < joining);
    }

    /// Handles an operator's report that a node is dead; members pass it on.
    fn down(&mut self, now: Instant, node: NodeId) {
        match &mut self.membership {
            Membership::Outside(outside) => outside.down(node),
            Membership::Member(_) if node == self.config.me.node => self.retire(now, Reason::Resigned),
            Membership::Member(member) => {
                let Some(named) = member.view.named(node).cloned() else { return };
                let (identity, joining) = (named.identity, named.joining);
                self.tell_members(&Body::Down { identity, joining });
                self.dismiss(now, identity, |_| true);
            }
        }
    }

    fn on_down(&mut self, now: Instant, from: Identity, identity: Identity, joining: u64) {
        let Membership::Member(member) = &self.membership else { return };
        if member.view.member(from).is_none() {
            return; // Not its operator's to say.
        }
        if identity != self.config.me {
            self.dismiss(now, identity, |member| member.joining <= joining);
        } else if joining == self.joining {
            self.retire(now, Reason::Resigned);
        }
    }

    // ── views and heartbeats ────────────────────────────────────────────────────────────────────────────────

    fn on_view(&mut self, now: Instant, from: Identity, view: &Arc<View>) {
        let mine = view.member(self.config.me).map(|member| member.joining);
        let takes_me = mine == Some(self.joining) && self.campaigns();
        let is_newer = self.view().is_none_or(|known| view.sight().is_later_than(&known.sight()));
        if takes_me && is_newer && view.version().coordinator == self.config.me {
            return; // Nobody makes views in the name of this node; who took it would lead without knowing.
        }
        if mine.is_some() && !takes_me {
            // The coordinator has taken in this node by an old request, sent before the node left.
            self.send(from.node, Body::Leave { joining: self.joining });
        }
        let Membership::Member(member) = &self.membership else {
            if takes_me {
                self.enter(now, Arc::clone(view));
                self.send(from.node, Body::ViewReply(view.sight()));
            }
            return;
        };
        let (sight, known) = (view.sight(), member.view.sight());
        if sight == known {
            self.send(from.node, Body::ViewReply(sight));
        } else if sight.is_later_than(&known) && takes_me {
            self.step_down(Reason::HigherTerm(sight.version.term));
            self.take(now, Arc::clone(view));
            self.send(from.node, Body::ViewReply(sight));
        } else if sight.is_later_than(&known) {
            self.on_left_out(now, view);
        } else if known.is_later_than(&sight)
            && from == sight.version.coordinator
            && from != known.version.coordinator
        {
            // The peer coordinates by an earlier view: send it the later one.
            let view = Arc::clone(&member.view);
            self.send(from.node, Body::View(view));
        }
    }

    /// Handles a later view without this node. The members in both views have joined that part; the rest of this part
    /// goes on or stops as after any split, but no node goes on alone.
    fn on_left_out(&mut self, now: Instant, view: &View) {
        let Membership::Member(member) = &self.membership else { return };
        let has_gone_over = |other: &&MemberOf| view.members().contains(other);
        let over: BTreeMap<NodeId, Identity> = member
            .view
            .members()
            .iter()
            .filter(has_gone_over)
            .map(|other| (other.identity.node, other.identity))
            .collect();
        let coordinator = member.view.oldest().identity.node;
        let is_for_it_to_find_out = member.lead.is_some() || member.is_undecided(self.config.me);
        if !is_for_it_to_find_out && !over.contains_key(&coordinator) {
            return; // Its coordinator is to find out; or it is lost, and then that comes to pass.
        }
        let fate = member.view.fate(self.config.policy, &over.keys().copied().collect());
        let is_alone = over.len() + 1 >= member.view.members().len();
        if fate == Fate::GoesOn && !is_alone {
            over.into_values().for_each(|identity| self.dismiss(now, identity, |_| true));
        } else {
            self.step_down(Reason::HigherTerm(view.version().term));
            self.leave(now, Some(view.version().coordinator.node), true);
        }
    }

    fn on_heartbeat(&mut self, now: Instant, from: Identity, sight: Sight, suspects: BTreeSet<NodeId>) {
        let again = now.after(self.config.heartbeat_interval);
        let joining = self.joining;
        let Membership::Member(member) = &mut self.membership else {
            if joining > 1 && from == sight.version.coordinator {
                self.send(from.node, Body::Leave { joining }); // It was lost.
            }
            return;
        };
        let known = member.view.sight();
        if sight.cluster != known.cluster {
            return;
        }
        member.heard_of = member.heard_of.max(sight.version.term);
        if member.view.member(from).is_some() && !member.gone.contains(&from.node) {
            member.watch.heard(from.node, suspects, now);
        }
        if sight == known && self.only_holds() {
            return self.leave(now, None, true); // It has somebody to leave the cluster to.
        }
        let Membership::Member(member) = &mut self.membership else { return };
        if sight.is_later_than(&known) && now >= member.asked_until {
            member.asked_until = again;
            self.send(from.node, Body::Ask(known));
        } else if known.is_later_than(&sight)
            && member.lead.as_ref().is_some_and(|lead| !lead.waits_for(from.node))
        {
            let view = Arc::clone(&member.view);
            self.send(from.node, Body::View(view));
        }
    }

    fn on_ask(&mut self, from: NodeId, sight: Sight) {
        if let Some(view) = self.view().filter(|view| view.sight().is_later_than(&sight)) {
            let view = Arc::clone(view);
            self.send(from, Body::View(view));
        }
    }

    fn beat(&mut self, now: Instant) {
        let Membership::Member(member) = &mut self.membership else { return };
        member.beat_at = now.after(self.config.heartbeat_interval);
        // Includes nodes that are gone: other members may not know that, and wait until this member suspects them.
        let suspects: BTreeSet<NodeId> = member.watch.suspects().union(&member.gone).copied().collect();
        let recipients = member.watch.recipients(!suspects.is_empty());
        let body = Body::Heartbeat { sight: member.view.sight(), suspects };
        for node in recipients {
            self.send(node, body.clone());
        }
    }

    // ── lost members ────────────────────────────────────────────────────────────────────────────────────────

    /// The next action after losses or departures, and the time at which it is due.
    fn plan(&self, member: &Member) -> Option<(Instant, Act)> {
        let (lost, gone) = (member.watch.lost(), &member.gone);
        let leads = match &member.lead {
            Some(lead) if lead.resigning.is_some() => return None, // It will leave.
            Some(_) => true,
            None => false,
        };
        let stood_aside = !leads && member.view.oldest().identity == self.config.me;
        if member.held && !self.campaigns() {
            return None;
        }
        if stood_aside && !self.campaigns() {
            // The application's work may not have ended yet. The other members do not wait forever for it to campaign
            // again.
            let waits = self.config.store_wait.plus(self.config.answer_wait.times(QUESTIONS_MAX));
            let until =
                member.watch.since.after(self.config.settling()).after(self.config.margin()).after(waits);
            return (!member.is_alone()).then_some((until, Act::Stop));
        }
        let has_asked = member.decision.is_some();
        let rests_on_none = self.config.policy == Policy::Lease && member.view.decision() == FencingToken(0);
        if leads && rests_on_none && !has_asked {
            return Some((Instant::default(), Act::AskStore)); // What later decisions are told from.
        }
        if lost.is_empty() && gone.is_empty() {
            // All lost members have been heard again.
            return stood_aside.then_some((Instant::default(), Act::GoOn));
        }
        let left = if gone.is_empty() { None } else { member.view.without(gone) };
        let left = left.as_ref().unwrap_or(&member.view);
        let is_next = leads || left.is_next(self.config.me, lost);
        let at_once = leads || (lost.is_empty() && left.is_next(self.config.me, lost));
        if !gone.is_empty() && at_once {
            return Some((Instant::default(), Act::Dismiss));
        }
        if lost.is_empty() {
            return None;
        }
        let stable = member.watch.since.after(self.config.settling());
        let acts = if leads { stable } else { stable.after(self.config.margin()) };
        let settled = member.lead.as_ref().and_then(|lead| lead.settled(left));
        match settled.as_ref().unwrap_or(left).fate(self.config.policy, lost) {
            Fate::Stops => Some((stable, Act::Stop)),
            Fate::GoesOn if is_next => Some((acts, Act::GoOn)),
            Fate::AsksStore { waits: true } if leads && !has_asked => Some((stable, Act::StandAside)),
            Fate::AsksStore { .. } if is_next && rests_on_none => (!leads).then_some((stable, Act::Stop)),
            Fate::AsksStore { waits } if is_next && !has_asked => {
                Some((if waits { acts.after(self.config.store_wait) } else { acts }, Act::AskStore))
            }
            Fate::GoesOn | Fate::AsksStore { .. } => None, // Another one acts.
        }
    }

    fn act(&mut self, now: Instant) {
        let campaigns = self.campaigns();
        match &mut self.membership {
            Membership::Outside(_) if !campaigns => return,
            Membership::Outside(_) => return self.ask_to_join(now),
            Membership::Member(member) => member.watch.check(now),
        }
        self.act_on_losses(now);
        self.ask_store_again(now);
        self.coordinate(now);
        if matches!(&self.membership, Membership::Member(member) if now >= member.beat_at) {
            self.beat(now);
        }
    }

    /// Performs the actions that are due after losses or departures.
    pub(super) fn act_on_losses(&mut self, now: Instant) {
        while let Membership::Member(member) = &self.membership {
            let Some((_, act)) = self.plan(member).filter(|&(at, _)| now >= at) else { break };
            match act {
                Act::Dismiss => self.go_on(now, &BTreeSet::new()),
                Act::GoOn => {
                    let lost = member.watch.lost().clone();
                    self.go_on(now, &lost);
                }
                Act::AskStore => self.ask_store(now),
                Act::StandAside => self.stand_aside(),
                Act::Stop => self.stop(now, StoreAnswer::NotAsked),
            }
        }
    }

    /// Makes a view without the nodes that are gone and those in `lost`. A member that did not lead becomes the
    /// coordinator.
    fn go_on(&mut self, now: Instant, lost: &BTreeSet<NodeId>) {
        let (me, claimed) = (self.config.me, self.claimed);
        let Membership::Member(member) = &mut self.membership else { return };
        let without: BTreeSet<NodeId> = member.gone.union(lost).copied().collect();
        let leads = member.lead.is_some();
        let base = if leads {
            (*member.view).clone()
        } else {
            member.view.taken_over_by(me, member.heard_of.max(claimed))
        };
        let view = base.without(&without).expect("this member is left");
        let term = view.version().term;
        if !leads {
            (member.lead, member.held) = (Some(Lead::begin(now)), false);
            self.claimed = term;
            self.tell(Event::Elected { term, mandate: Mandate::Advisory, valid_until: Instant::NEVER });
        }
        self.publish(now, view, &without);
    }

    // ── the store ───────────────────────────────────────────────────────────────────────────────────────────

    fn ask_store(&mut self, now: Instant) {
        let wait = self.config.answer_wait;
        let (request, me) = (self.request + 1, self.config.me);
        let Membership::Member(member) = &mut self.membership else { return };
        let (rests_on, about) = (member.view.decision(), member.watch.lost().clone());
        // With no lost members there is nothing to decide, and no deadline.
        let stops_at = if about.is_empty() { Instant::NEVER } else { now.after(wait.times(QUESTIONS_MAX)) };
        let (decision, question) = Decision::begin(me, rests_on, about, request, (now.after(wait), stops_at));
        member.decision = Some(decision);
        self.ask(question);
    }

    /// Stops leading, but stays a member. It leads again only if the application campaigns again, after its work has
    /// ended.
    fn stand_aside(&mut self) {
        self.campaigning &= !self.leads();
        self.step_down(Reason::Undecided);
        if let Membership::Member(member) = &mut self.membership {
            member.decision = None;
        }
    }

    /// Asks the store again if no answer came in time.
    fn ask_store_again(&mut self, now: Instant) {
        let until = now.after(self.config.answer_wait);
        let Membership::Member(member) = &mut self.membership else { return };
        let (is_alone, rests_on_one) = (member.is_alone(), member.view.decision() != FencingToken(0));
        let Some(decision) = member.decision.as_mut().filter(|decision| now >= decision.until) else {
            return;
        };
        let is_late = now >= decision.stops_at;
        let (leads, is_last) = (member.lead.is_some(), is_alone && rests_on_one);
        if is_late && leads && is_last {
            self.stand_aside();
        } else if is_late && !is_last {
            // Another node of its part may reach the store.
            self.stop(now, StoreAnswer::None);
        } else {
            let question = decision.again(until);
            self.ask(question);
        }
    }

    fn on_store(&mut self, now: Instant, body: Body) {
        let Body::Store(answer) = body else { return };
        let until = now.after(self.config.answer_wait);
        let Membership::Member(member) = &mut self.membership else { return };
        let Some(decision) = &mut member.decision else { return };
        match decision.on_answer(answer, until) {
            decision::Answer::Won(token) => {
                // Even if some of them were heard again meanwhile: the store's decision is final.
                let about = decision.about().clone();
                member.decision = None;
                member.view = Arc::new((*member.view).clone().decided(token));
                self.go_on(now, &about);
            }
            decision::Answer::Lost => self.stop(now, StoreAnswer::Against),
            decision::Answer::Ask(question) => self.ask(*question),
            decision::Answer::Nothing => {}
        }
    }

    fn ask(&mut self, question: crate::election::lease::Message) {
        let message = Message { incarnation: self.config.me.incarnation, body: Body::Store(question) };
        if let Membership::Member(member) = &self.membership {
            self.request = member.decision.as_ref().map_or(self.request, Decision::request);
        }
        self.outputs.push_back(Output::Send { to: Endpoint::Store, message });
    }

    // ── helpers ─────────────────────────────────────────────────────────────────────────────────────────────

    const fn campaigns(&self) -> bool {
        self.campaigning && self.healthy
    }

    fn leads(&self) -> bool {
        matches!(&self.membership, Membership::Member(member) if member.lead.is_some())
    }

    /// The reason for giving up the lead, while its work drains.
    fn resigning(&self) -> Option<Reason> {
        let Membership::Member(member) = &self.membership else { return None };
        member.lead.as_ref()?.resigning
    }

    fn leader(&self) -> Option<Leader> {
        let Membership::Member(member) = &self.membership else { return None };
        let view = &member.view;
        let leader = Leader { identity: view.oldest().identity, term: view.version().term };
        // An undecided member does not report itself as the leader.
        Some(leader).filter(|_| !member.is_undecided(self.config.me))
    }

    fn tell_leader(&mut self) {
        let leader = self.leader();
        if leader != self.told_leader {
            self.told_leader = leader;
            self.tell(Event::LeaderChanged(leader));
        }
    }

    fn tell(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    fn send(&mut self, to: NodeId, body: Body) {
        let message = Message { incarnation: self.config.me.incarnation, body };
        self.outputs.push_back(Output::Send { to: Endpoint::Node(to), message });
    }

    fn tell_members(&mut self, body: &Body) {
        let Membership::Member(member) = &self.membership else { return };
        let me = self.config.me.node;
        let others: Vec<NodeId> = member
            .view
            .members()
            .iter()
            .map(|other| other.identity.node)
            .filter(|&node| node != me)
            .collect();
        others.into_iter().for_each(|node| self.send(node, body.clone()));
    }
}

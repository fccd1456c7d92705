//! A node with metadata: its election and its log on a disk, and the requests of its clients.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::Path;
use std::sync::Arc;

use primacy_core::election::quorum::{DiskState, Quorum};
use primacy_core::hard_state::Durability;
use primacy_core::{Duration, ElectionTrigger, Endpoint, Input, Instant, LeaderSequence, NodeId};
use primacy_kv::command::Outcome;
use primacy_kv::machine::clients::Ticket;
use primacy_kv::machine::{self, Answer, Ask, Durable, Message};
use primacy_kv::replication::log::{Stored, Write};
use primacy_kv::replication::replica::{self, Progress, VoterChange};
use primacy_kv::replication::voters::Voters;
use tokio::sync::{mpsc, oneshot};

use super::elections::{AmongPeers, Setup, quorum_config};
use super::state_dir::{OpenLog, open_log};
use super::{Entry, PeersEffects};
use crate::clock;
use crate::codec::Word;
use crate::config::{Config, RESEND_AFTER};
use crate::disk::{self, DiskError};
use crate::driver::announce::Announces;
use crate::driver::{AdminView, EffectHandler, Frontend, Halt, Quiescent, drive};
use crate::error::AdminError;
use crate::error::ConnectError;
use crate::handshake::DiskId;
use crate::log_file::{Limits, LogFile};
use crate::metadata::{MapEnd, MapError, MapRequest, REQUESTS_MAX, SharedState};
use crate::peers::Peers;
use crate::status::{MetadataView, PeersView, View};
use crate::transport::TransportError;

type Metadata = machine::Metadata<SharedState>;

/// The bytes of records in one append message.
const APPEND_MAX: usize = 256 << 10;
/// The most bytes in flight to one follower.
const WINDOW: usize = 2 << 20;
/// The bytes of a snapshot in one message.
const PART_MAX: usize = 256 << 10;
/// The bytes of records after which a snapshot replaces them.
const SNAPSHOT_AFTER: usize = 64 << 20;
/// The most bytes of records that are kept in memory.
const KEPT_MAX: usize = 8 << 20;
/// The most cost of records applied in one step, in bytes of records that take as long to apply: a few milliseconds, even on a slow
/// machine.
const APPLY_MAX: usize = 64 << 10;
/// The most bytes that may wait for one peer: above what the log ever has in flight to it.
pub(super) const BUFFER_MAX: usize = 4 * WINDOW;

/// The opened log of a node, and the receiver of requests to its map.
#[derive(Debug)]
pub(crate) struct Keeping {
    log: LogFile,
    stored: Stored,
    map: MapEnd,
    voters: Arc<Voters>,
    durability: Durability,
    /// True if an earlier process had a log that is lost.
    log_lost: bool,
}

/// The effects of a machine with metadata: on the disk, the log, the mesh and the clients.
#[derive(Debug)]
struct MetadataEffects {
    peers: PeersEffects,
    log: LogFile,
    durability: Durability,
    map: MapEnd,
    next: u64,
    waiting: HashMap<Ticket, Waiter>,
    /// The unfinished writes, with the bytes of each, whether or not their callers still wait.
    open_writes: HashMap<Ticket, usize>,
    open_bytes: usize,
    /// The number of waiting requests at which those without a caller are removed.
    sweep_at: usize,
    arrived: VecDeque<super::Arrival>,
    reached: Reached,
    /// The number of writes that the leader could not read.
    unreadable: u64,
}

/// The voters and nodes that the mesh was last given.
#[derive(Debug, Default)]
struct Reached {
    voters: Option<Arc<Voters>>,
    /// The nodes to which the mesh connects.
    nodes: BTreeMap<NodeId, Arc<str>>,
    /// True if there are other nodes among them than voters.
    more: bool,
}

#[derive(Debug)]
enum Waiter {
    Write(oneshot::Sender<Result<Outcome, MapError>>),
    Read(oneshot::Sender<Result<(), MapError>>),
    Session(oneshot::Sender<Result<Option<std::time::Duration>, MapError>>),
    Revise(oneshot::Sender<Result<Progress, MapError>>),
    AcceptLoss(oneshot::Sender<Result<bool, MapError>>),
}

/// The most bytes of unfinished writes.
const OPEN_BYTES_MAX: usize = 64 << 20;

/// The number of waiting requests before the first sweep.
const SWEEP_FIRST: usize = 8192;

impl Keeping {
    /// Opens the log of a node whose state file is open.
    pub(crate) fn open(
        config: &Config,
        dir: &Path,
        peers: &Peers,
        durability: Durability,
        entry: &mut Entry,
        map: MapEnd,
    ) -> Result<Self, ConnectError> {
        let (of, files) = ((config.election.as_str(), config.node), (&mut entry.state, &entry.stored));
        let opened = open_log(Limits::default(), dir, of, durability, files)?;
        let OpenLog { log, stored, found, log_lost } = opened;
        for found in found {
            tracing::warn!("{found}");
        }
        let members = members(peers);
        // Voters that do not fit into the state file are refused now, and not at the first election, which would record
        // them.
        disk::check_room(&members)?;
        let voters = Arc::new(Voters { number: LeaderSequence::NONE, members });
        Ok(Self { log, stored, map, voters, durability, log_lost })
    }
}

impl Entry {
    /// Takes part with metadata until the node leaves or halts. Must be called inside a `LocalSet`; the driver reports why it
    /// ended.
    pub(crate) async fn live_keeping(
        self,
        config: &Config,
        keeping: Keeping,
        mut frontend: Frontend,
        ready: oneshot::Sender<Result<(), ConnectError>>,
    ) {
        let Keeping { log, stored, map, voters: configured, durability, log_lost } = keeping;
        // The machine uses the voters of the log if they are newer.
        let voters = self.stored.voters.clone().unwrap_or_else(|| Arc::clone(&configured));
        let begin = |setup: Setup<'_>, now: Instant| {
            let config = machine::Config {
                replica: replica_config(&setup, durability),
                election: quorum_config(&setup),
            };
            let stored_state = machine::StoredState { hard: setup.hard, voters, log: stored, log_lost };
            Metadata::new(config, stored_state, now)
        };
        let started = self.start(config, Arc::clone(&frontend.stats), begin).await;
        match started {
            Ok((Ok(mut machine), peers)) => {
                let _ = map.state.set(machine.state().share());
                map.board.send_modify(|board| board.voters = Arc::clone(machine.replica().voters()));
                let mut effects = MetadataEffects::new(peers, log, durability, map);
                if machine.election().disk_state() == DiskState::Lost {
                    // Its list of voters may be newer than its loss of the disk; it must also hear the configured nodes
                    // that are not on that list.
                    effects.reached.nodes = configured.members.clone();
                }
                // Before the first connection: the configured voters may be outdated.
                if let Err(error) = effects.tell_mesh(&machine) {
                    let _ = ready.send(Err(error.into()));
                    return effects.peers.close().await;
                }
                let _ = ready.send(Ok(()));
                let _ = drive(&mut machine, &mut effects, &mut frontend).await;
                effects.peers.close().await;
            }
            Ok((Err(unreadable), peers)) => {
                let _ = ready.send(Err(ConnectError::LaterLog(unreadable)));
                peers.close().await;
            }
            Err(error) => {
                let _ = ready.send(Err(error));
            }
        }
    }
}

/// The voters of the configuration.
pub(super) fn members(peers: &Peers) -> BTreeMap<NodeId, Arc<str>> {
    peers.iter().map(|(node, address)| (node, address.into())).collect()
}

fn replica_config(setup: &Setup<'_>, durability: Durability) -> replica::Config {
    replica::Config {
        me: setup.me,
        durability,
        resend_after: RESEND_AFTER,
        append_max: APPEND_MAX,
        window: WINDOW,
        part_max: PART_MAX,
        snapshot_after: SNAPSHOT_AFTER,
        kept_max: KEPT_MAX,
        apply_max: APPLY_MAX,
    }
}

impl MetadataEffects {
    fn new(peers: PeersEffects, log: LogFile, durability: Durability, map: MapEnd) -> Self {
        let (waiting, arrived) = (HashMap::new(), VecDeque::new());
        let reached = Reached::default();
        let open_writes = HashMap::new();
        Self {
            peers,
            log,
            durability,
            map,
            next: 0,
            waiting,
            open_writes,
            open_bytes: 0,
            sweep_at: SWEEP_FIRST,
            arrived,
            reached,
            unreadable: 0,
        }
    }

    /// Records in the state file how far the log reaches.
    fn note_log(&mut self) -> Result<(), Halt> {
        let noted = self.peers.state.note_log(self.log.reach());
        noted.map_err(|error| Halt::Failed { why: error.to_string() })
    }

    /// Halts this node if its state directory is gone.
    fn check_in_place(&self) -> Result<(), Halt> {
        self.peers.state.check_in_place().map_err(|error| Halt::Failed { why: error.to_string() })?;
        self.log.check_in_place().map_err(|error| Halt::Failed { why: error.to_string() })
    }

    /// Passes the nodes to reach and the voters to the mesh, if they have changed.
    fn tell_mesh(&mut self, machine: &Metadata) -> Result<(), TransportError> {
        let (replica, reached) = (machine.replica(), &mut self.reached);
        let voters = replica.voters();
        let same = reached.voters.as_ref().is_some_and(|known| Arc::ptr_eq(known, voters));
        // Only a leader reaches other nodes than voters, while a node is being added or removed.
        if same && !reached.more && !replica.is_active() {
            return Ok(());
        }
        let mut nodes = replica.reach();
        // Former voters must learn of their removal, so they stay connected until it is committed. A node that has lost its disk
        // must hear all nodes that it has known as voters.
        if replica.committed() < voters.number || machine.election().disk_state() == DiskState::Lost {
            for (node, address) in &reached.nodes {
                nodes.entry(*node).or_insert_with(|| Arc::clone(address));
            }
        }
        if same && nodes == reached.nodes {
            return Ok(());
        }
        self.peers.mesh.set_peers(&nodes, voters)?;
        self.map.reached.send_replace(nodes.clone());
        if reached.voters.as_ref().is_none_or(|known| known.members != voters.members) {
            let names: Vec<String> = voters.members.keys().map(ToString::to_string).collect();
            tracing::info!(number = %voters.number, voters = names.join(", "), "these are the voters");
        }
        let more = nodes.len() > voters.count();
        *reached = Reached { voters: Some(Arc::clone(voters)), nodes, more };
        Ok(())
    }

    /// Checks that the node can be made a voter, as far as this node knows.
    fn may_add(&self, node: NodeId, address: &Arc<str>) -> Result<(), String> {
        self.peers.mesh.may_add(node, address).map_err(|error| error.to_string())?;
        let voters = self.reached.voters.iter().flat_map(|voters| voters.members.clone());
        let members = voters.chain([(node, Arc::clone(address))]).collect();
        disk::check_room(&members).map_err(|error| error.to_string())
    }

    /// The input for a request; `None` if it was answered at once.
    fn ask(&mut self, asked: MapRequest) -> Option<Input<Message>> {
        let ticket = Ticket(self.next);
        self.next += 1;
        let (waiter, ask) = match asked {
            MapRequest::Write(command, answer) => {
                if self.open_writes.len() >= REQUESTS_MAX || self.open_bytes >= OPEN_BYTES_MAX {
                    // The callers of unfinished writes may be gone; the writes still wait for a leader.
                    let _ = answer.send(Err(MapError::Busy));
                    return None;
                }
                let bytes = command.bytes();
                self.open_bytes += bytes;
                self.open_writes.insert(ticket, bytes);
                (Waiter::Write(answer), Ask::Write(ticket, command))
            }
            MapRequest::Read(answer) => (Waiter::Read(answer), Ask::Read(ticket)),
            MapRequest::Session(session, keep, answer) => {
                (Waiter::Session(answer), Ask::Session(ticket, session, keep))
            }
            MapRequest::Revise(change, answer) => {
                if let VoterChange::Add { node, address } = &change
                    && let Err(why) = self.may_add(*node, address)
                {
                    let _ = answer.send(Err(MapError::Voter { why }));
                    return None;
                }
                (Waiter::Revise(answer), Ask::Revise(ticket, change))
            }
            MapRequest::AcceptLoss(answer) => (Waiter::AcceptLoss(answer), Ask::AcceptLoss(ticket)),
        };
        self.sweep();
        self.waiting.insert(ticket, waiter);
        Some(Input::Message { from: Endpoint::Client, message: Message::Ask(ask) })
    }

    /// Removes waiting requests whose callers are gone.
    fn sweep(&mut self) {
        if self.waiting.len() < self.sweep_at {
            return;
        }
        self.waiting.retain(|_, waiter| !waiter.is_gone());
        self.sweep_at = SWEEP_FIRST.max(2 * self.waiting.len());
    }

    fn is_done(&mut self, write: Ticket) {
        self.open_bytes -= self.open_writes.remove(&write).unwrap_or_default();
    }

    fn on_answer(&mut self, answer: Answer) {
        // The caller may have stopped waiting.
        match answer {
            Answer::Readable(ticket) => {
                if let Some(Waiter::Read(answer)) = self.waiting.remove(&ticket) {
                    let _ = answer.send(Ok(()));
                }
            }
            Answer::Written(ticket, outcome) => {
                self.is_done(ticket);
                if let Some(Waiter::Write(answer)) = self.waiting.remove(&ticket) {
                    let _ = answer.send(Ok(outcome));
                }
            }
            Answer::Done(ticket) => {
                self.is_done(ticket);
                if let Some(Waiter::Write(answer)) = self.waiting.remove(&ticket) {
                    let _ = answer.send(Err(MapError::AnswerLost));
                }
            }
            Answer::Unreadable(ticket) => {
                self.is_done(ticket);
                self.unreadable += 1;
                // Clients set the rate, so only the first, second, fourth occurrence and so on are logged.
                if self.unreadable.is_power_of_two() {
                    tracing::error!(
                        times = self.unreadable,
                        "the leader cannot read what this node writes: it is of an earlier version; upgrade it"
                    );
                }
                if let Some(Waiter::Write(answer)) = self.waiting.remove(&ticket) {
                    let _ = answer.send(Err(MapError::Unreadable));
                }
            }
            Answer::Revised(ticket, progress) => {
                if let Some(Waiter::Revise(answer)) = self.waiting.remove(&ticket) {
                    let _ = answer.send(Ok(progress));
                }
            }
            Answer::LossAccepted(ticket, was_lost) => {
                if let Some(Waiter::AcceptLoss(answer)) = self.waiting.remove(&ticket) {
                    let _ = answer.send(Ok(was_lost));
                }
            }
            Answer::Session(ticket, left) => {
                if let Some(Waiter::Session(answer)) = self.waiting.remove(&ticket) {
                    let _ = answer.send(Ok(left.map(Into::into)));
                }
            }
        }
    }

    /// Publishes this node's progress to the handles of the map.
    fn post(&mut self, machine: &Metadata) {
        // Not while a snapshot is ahead of the committed records.
        if machine.replica().is_current() {
            let (version, step) = {
                let state = machine.state().read();
                (state.version(), state.partitions().step())
            };
            self.map.version.send_if_modified(|known| std::mem::replace(known, version) != version);
            self.map.steps.send_if_modified(|known| std::mem::replace(known, step) != step);
        }
        let replica = machine.replica();
        let (leader, term, voters) = (machine.leader(), replica.bound(), replica.voters());
        self.map.board.send_if_modified(|known| {
            let changed = (known.leader, known.term, known.voters.number) != (leader, term, voters.number);
            if changed {
                (known.leader, known.term, known.voters) = (leader, term, Arc::clone(voters));
            }
            (known.last, known.applied, known.committed) =
                (replica.last(), replica.applied(), replica.committed());
            (known.uncommitted, known.log_lost) = (replica.uncommitted(), replica.is_recovering());
            known.behind.clear();
            known.behind.extend(replica.behind());
            changed
        });
    }

    fn take(&mut self, arrival: super::Arrival) -> Result<Option<Input<Message>>, Halt> {
        match arrival {
            super::Arrival::Message { from, message } => {
                let Word::Metadata(message) = message else { return Ok(None) };
                if let Message::Election { message, .. } = &*message {
                    self.peers.time(from, Quorum::beat(message));
                }
                Ok(Some(Input::Message { from: Endpoint::Node(from), message: *message }))
            }
            super::Arrival::Evidence(evidence) => Ok(Some(Input::Evidence(evidence))),
            super::Arrival::PeerDisk { node, disk } => {
                match self.peers.state.record_peer_disk(node, disk) {
                    // As an error, it would halt one leader after the other.
                    Err(error @ DiskError::TooLong { .. }) => {
                        tracing::warn!(%node, "its disk is not remembered, so that a later one would be taken at its word: {error}");
                    }
                    recorded => recorded.map_err(|error| Halt::Failed { why: error.to_string() })?,
                }
                Ok(None)
            }
        }
    }
}

/// The next arrival that may be handled in one batch, and so with one write, with those before it.
///
/// Evidence always begins a new batch: if a list of voters came before it, that list must be in force when this node talks to the node
/// that the evidence connects it with. And nothing overtakes evidence, because its sender may have sent the next message too.
fn next_ready(
    arrived: &mut VecDeque<super::Arrival>,
    inbox: &mut mpsc::Receiver<super::Arrival>,
) -> Option<super::Arrival> {
    if !arrived.is_empty() {
        return None;
    }
    let arrival = inbox.try_recv().ok()?;
    if matches!(arrival, super::Arrival::Evidence(_)) {
        arrived.push_back(arrival);
        return None;
    }
    Some(arrival)
}

impl Waiter {
    fn is_gone(&self) -> bool {
        match self {
            Self::Write(answer) => answer.is_closed(),
            Self::Read(answer) => answer.is_closed(),
            Self::Session(answer) => answer.is_closed(),
            Self::Revise(answer) => answer.is_closed(),
            Self::AcceptLoss(answer) => answer.is_closed(),
        }
    }
}

impl EffectHandler<Metadata> for MetadataEffects {
    fn persist(&mut self, durable: Durable) -> Result<(), Halt> {
        match durable {
            Durable::Hard(hard) => EffectHandler::<Quorum>::persist(&mut self.peers, hard),
            Durable::Voters(voters) => {
                let recorded = self.peers.state.persist_voters(&voters);
                recorded.map_err(|error| Halt::Failed { why: error.to_string() })
            }
            Durable::LogLost(lost) => {
                let recorded = self.peers.state.persist_log_lost(lost);
                recorded.map_err(|error| Halt::Failed { why: error.to_string() })
            }

            Durable::Log(write) => {
                let began = clock::now();
                let written = match &write {
                    // Its records are on this node already, so no caller waits for it, and it is written in the
                    // background.
                    Write::Snapshot(snapshot) if self.log.passes(snapshot.number) => {
                        self.log.begin_snapshot(snapshot)
                    }
                    Write::Snapshot(_) | Write::Append(_) => self.log.write(&write),
                };
                written.map_err(|error| Halt::Failed { why: error.to_string() })?;
                self.note_log()?;
                self.peers.stats.state_writes.observe(clock::now().since(began));
                Ok(())
            }
        }
    }

    fn send(&mut self, to: Endpoint, message: Message) {
        match (to, message) {
            (Endpoint::Node(node), message) => {
                if let Message::Election { message, .. } = &message
                    && let Some(super::Beat::Asked { number }) = Quorum::beat(message)
                {
                    self.peers.heartbeats.sent(node, number, clock::now());
                }
                // The mesh counts lost messages, and the machine repeats them.
                let _ = self.peers.mesh.send(node, Word::Metadata(Box::new(message)));
            }
            (Endpoint::Client, Message::Answer(answer)) => self.on_answer(answer),
            (Endpoint::Client | Endpoint::Store, _) => {} // There is no store, and clients are only answered.
        }
    }

    async fn arrival(&mut self) -> Result<Input<Message>, Halt> {
        loop {
            if let Some(arrival) = self.arrived.pop_front() {
                match self.take(arrival)? {
                    Some(input) => return Ok(input),
                    None => continue,
                }
            }
            tokio::select! {
                biased;
                () = self.peers.presence.due() => self.check_in_place()?,
                arrival = self.peers.inbox.recv() => match arrival {
                    Some(arrival) => self.arrived.push_back(arrival),
                    None => {
                        return Err(Halt::Failed { why: "the connections to the peers have ended".to_owned() });
                    }
                },
                Some(asked) = self.map.asks.recv() => {
                    if let Some(input) = self.ask(asked) {
                        return Ok(input);
                    }
                }
                () = self.peers.mismatch.changed() => return Ok(Input::Timeout),
            }
        }
    }

    fn ready(&mut self) -> Result<Option<Input<Message>>, Halt> {
        while let Some(arrival) = next_ready(&mut self.arrived, &mut self.peers.inbox) {
            if let Some(input) = self.take(arrival)? {
                return Ok(Some(input));
            }
        }
        while let Ok(asked) = self.map.asks.try_recv() {
            if let Some(input) = self.ask(asked) {
                return Ok(Some(input));
            }
        }
        Ok(None)
    }
}

impl AdminView<Metadata> for MetadataEffects {
    fn after(&mut self, machine: &Metadata, led: bool) -> Result<(), Halt> {
        self.log.finish_snapshot().map_err(|error| Halt::Failed { why: error.to_string() })?;
        self.note_log()?;
        if let Some(unreadable) = machine.replica().unreadable() {
            let why = format!(
                "{unreadable}. A node of a newer version has sent it: start the newer Primacy here. Nothing of it was taken, and what \
                 this node holds is as it was"
            );
            return Err(Halt::Failed { why });
        }
        self.post(machine);
        self.tell_mesh(machine)?;
        AdminView::<Quorum>::after(&mut self.peers, machine.election(), led)
    }

    fn view(&self, machine: &Metadata) -> View {
        let (replica, (_, voters_number)) = (machine.replica(), self.peers.mesh.voters());
        let metadata = MetadataView {
            voters_number,
            durability: self.durability,
            last: replica.last(),
            committed: replica.committed(),
            applied: replica.applied(),
            recovering: replica.is_recovering(),
            elected: machine.elected(),
        };
        match self.peers.view_with(machine.election().view()) {
            View::Peers(view) => {
                let awaited = replica.awaited();
                View::Peers(Box::new(PeersView { metadata: Some(metadata), awaited, ..*view }))
            }
            view @ (View::Store(_) | View::Sessions(_)) => view,
        }
    }

    fn readmit(&mut self, node: NodeId) -> Result<DiskId, AdminError> {
        AdminView::<Quorum>::readmit(&mut self.peers, node)
    }
}

impl Quiescent for Metadata {
    fn is_settled(&self) -> bool {
        self.election().is_settled()
    }

    fn trigger(&self) -> Option<ElectionTrigger> {
        Some(self.election().trigger())
    }

    fn promises(&self) -> BTreeMap<NodeId, Duration> {
        self.election().promises()
    }
}

impl Announces for Metadata {}

#[cfg(test)]
mod tests {
    use primacy_core::{Evidence, Term};

    use super::*;
    use crate::transport::Arrival;

    /// A readmitted node waits for the evidence of the others. If the request for its log overtook that, it would answer like a node
    /// that has lost nothing.
    #[test]
    fn evidence_begins_anew_and_nothing_overtakes_it() {
        let node = NodeId::new("b").unwrap();
        let said = |ticket: u64| {
            let message = Message::Ask(Ask::Read(Ticket(ticket)));
            Arrival::Message { from: node, message: Word::Metadata(Box::new(message)) }
        };
        let evidence = Arrival::Evidence(Evidence::Readmitted { by: node, term: Term(3) });
        let (send, mut inbox) = mpsc::channel(3);
        for arrival in [said(1), evidence.clone(), said(2)] {
            send.try_send(arrival).unwrap();
        }
        let mut arrived = VecDeque::new();
        assert_eq!(next_ready(&mut arrived, &mut inbox), Some(said(1)));
        // Also if another input, such as a deadline, is the first of the next batch.
        for _ in 0..2 {
            assert_eq!(next_ready(&mut arrived, &mut inbox), None);
            assert_eq!(arrived, std::slice::from_ref(&evidence));
        }
        arrived.clear();
        assert_eq!(next_ready(&mut arrived, &mut inbox), Some(said(2)));
    }
}

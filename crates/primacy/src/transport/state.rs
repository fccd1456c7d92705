//! The state that the tasks of a mesh share.

use std::cell::{Ref, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration as StdDuration;

use primacy_core::rng::Rng;
use primacy_core::{Duration, Evidence, Identity, Instant, LeaderSequence, NodeId, Term};
use primacy_kv::machine::Message;
use primacy_kv::replication::voters::Voters;
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use crate::clock;
use crate::codec::{Frame, Refused, TooLong, Word, encode};
use crate::handshake::{
    ConfigMismatch, DiskId, Hello, Known, PeerDisk, Refusal, RefusalKind, Role, TlsProblem, judge,
    judge_answer,
};
use crate::versions::Versions;

use super::accept::Caller;
use super::dial::OutboundPeer;
use super::pending::{PendingConnection, PendingConnections};
use super::stream::Stream;
use super::tls::{self, Credentials, Sides, Tls, TlsFailure};
use super::{Arrival, Counters, Limits, MeshConfig, PeerRefusal, PeerStatus, Security, TransportError};

/// The most connections that one peer, or its guardian, may have with this node. Briefly there is more than one when a process
/// replaces its predecessor; beyond the limit the oldest one is closed.
const CONNECTIONS_PER_PEER_MAX: usize = 4;

/// The most by which a received term may be above this node's own. Terms grow by one with each attempt to be elected, so this is more
/// than a century of one attempt per second. Without it, a single message with the highest term of all would end all elections.
pub(super) const TERM_LEAP_MAX: u64 = 1 << 32;

/// The last log message about refusals of one kind, from one peer or from unauthenticated connections.
#[derive(Debug)]
struct Logged {
    at: Instant,
    text: String,
}

impl Logged {
    /// True if the refusal's text differs from the logged one, and the pause between log messages is over.
    fn is_outdated_by(&self, noted: &PeerRefusal, limits: &Limits) -> bool {
        let age = noted.at.since(self.at);
        let news =
            self.text != noted.text && (!names_the_time(noted.kind) || age >= limits.refusal_log_again);
        news && age >= limits.refusal_log_pause
    }
}

/// True if the text of such a refusal contains the time, and so differs each time.
fn names_the_time(kind: RefusalKind) -> bool {
    use TlsProblem::{Expired, NotYetValid, OutOfDate};
    matches!(kind, RefusalKind::Tls(Expired | NotYetValid | OutOfDate))
}

/// The state that the tasks of a mesh share. All run on one thread; no borrow is held across an `await`.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) election: String,
    /// This node.
    pub(super) node: NodeId,
    pub(super) security: Security,
    pub(super) tls: Option<Arc<Tls>>,
    pub(super) limits: Limits,
    introduction: RefCell<Rc<Introduction>>,
    links: RefCell<BTreeMap<NodeId, Rc<OutboundPeer>>>,
    pub(super) ready: Vec<u8>,
    inbox: Rc<Inbox>,
    pending: Rc<PendingConnections>,
    /// The text of the last configuration mismatch with a peer.
    pub(super) config_mismatch: watch::Sender<Option<String>>,
    /// Behind a mutex, because metrics are read on another thread. Locked only for an addition or a copy.
    counters: Arc<Mutex<Counters>>,
    state: RefCell<State>,
    tasks: RefCell<JoinSet<()>>,
}

/// The hello of this node with its present voters, and its encoded frames.
#[derive(Debug)]
pub(super) struct Introduction {
    pub(super) me: Hello,
    pub(super) hello: Vec<u8>,
    pub(super) welcome: Vec<u8>,
    /// The first frame to a node with older voters.
    voters: Option<Vec<u8>>,
}

/// The channel to the driver. Closing it tells the driver that the mesh has ended.
#[derive(Debug)]
struct Inbox(RefCell<Option<mpsc::Sender<Arrival>>>);

/// Ends the mesh if the task that holds it panics.
struct Alarm(Rc<Inbox>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!("a task of the connections to the peers has panicked; all of them end");
            self.0.0.take();
        }
    }
}

#[derive(Debug)]
struct State {
    peer_disks: BTreeMap<NodeId, PeerDisk>,
    /// The last disk with which each node was refused since it was last connected.
    refused_disks: BTreeMap<NodeId, DiskId>,
    /// The nodes that report the loss of an earlier disk, each with its present disk.
    lost: BTreeMap<NodeId, DiskId>,
    term: Option<Term>,
    /// The highest term or number that this node has reached, whether or not it may report it.
    term_highest: Term,
    /// The nodes that have named a term that is too high; each is logged once.
    leapt: BTreeSet<NodeId>,
    accepted: Vec<Accepted>,
    hellos_heard: u64,
    round_trips: BTreeMap<NodeId, Duration>,
    /// The time of each node's last message.
    heard_at: BTreeMap<NodeId, Instant>,
    refusals: BTreeMap<NodeId, PeerRefusal>,
    unidentified_refused: Option<PeerRefusal>,
    /// The last log message for each peer and kind.
    logged: BTreeMap<(Option<NodeId>, RefusalKind), Logged>,
    random: Rng,
}

/// An accepted connection that has completed its handshake.
#[derive(Debug)]
struct Accepted {
    /// The number of its [`Caller`].
    number: u64,
    identity: Identity,
    role: Role,
    disk: DiskId,
    /// The record that stated the peer's voters at the handshake.
    voters_number: LeaderSequence,
    close: Rc<Notify>,
}

/// The registration of an accepted connection.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    pub(super) number: u64,
    /// Notified when this side must close the connection.
    pub(super) close: Rc<Notify>,
}

impl Introduction {
    pub(super) fn new(me: Hello, voters: Option<&Arc<Voters>>) -> Result<Self, TransportError> {
        let frame = |frame: &Frame| {
            encode(&me.election, frame).map_err(|TooLong(length)| TransportError::TooLong { length })
        };
        let (hello, welcome) = (frame(&Frame::Hello(me.clone()))?, frame(&Frame::Welcome(me.clone()))?);
        let told = |voters: &Arc<Voters>| {
            let (incarnation, voters) = (me.identity.incarnation, Arc::clone(voters));
            frame(&Frame::Message(Word::Metadata(Box::new(Message::Voters { incarnation, voters }))))
        };
        let voters = voters.map(told).transpose()?;
        Ok(Self { me, hello, welcome, voters })
    }
}

impl Shared {
    pub(super) fn new(
        config: MeshConfig,
        links: BTreeMap<NodeId, Rc<OutboundPeer>>,
        inbox: mpsc::Sender<Arrival>,
    ) -> Result<Self, TransportError> {
        let MeshConfig { me, limits, peer_disks, term, security, listen: _, peers: _ } = config;
        let tls = security.open(me.identity.node, &me.cluster, links.keys().copied(), Sides::Both)?;
        let seed = u64::from_be_bytes(crate::disk::entropy()?);
        let (node, election) = (me.identity.node, me.election.clone());
        let introduction = RefCell::new(Rc::new(Introduction::new(me, None)?));
        let state = State {
            peer_disks,
            refused_disks: BTreeMap::new(),
            lost: BTreeMap::new(),
            term,
            term_highest: term.unwrap_or_default(),
            leapt: BTreeSet::new(),
            accepted: Vec::new(),
            hellos_heard: 0,
            round_trips: BTreeMap::new(),
            heard_at: BTreeMap::new(),
            refusals: BTreeMap::new(),
            unidentified_refused: None,
            logged: BTreeMap::new(),
            random: Rng::new(seed),
        };
        let ready =
            encode(&election, &Frame::Ready).map_err(|TooLong(length)| TransportError::TooLong { length })?;
        let (state, tasks) = (RefCell::new(state), RefCell::new(JoinSet::new()));
        let (pending, counters) = (Rc::default(), Arc::default());
        Ok(Self {
            config_mismatch: watch::Sender::new(None),
            election,
            node,
            introduction,
            ready,
            security,
            tls,
            limits,
            links: RefCell::new(links),
            inbox: Rc::new(Inbox(RefCell::new(Some(inbox)))),
            pending,
            counters,
            state,
            tasks,
        })
    }

    /// The present hello of this node.
    pub(super) fn introduction(&self) -> Rc<Introduction> {
        Rc::clone(&self.introduction.borrow())
    }

    /// The outbound connections, by peer. Not to be borrowed across an `await`.
    pub(super) fn links(&self) -> Ref<'_, BTreeMap<NodeId, Rc<OutboundPeer>>> {
        self.links.borrow()
    }

    pub(super) fn link(&self, node: NodeId) -> Option<Rc<OutboundPeer>> {
        self.links.borrow().get(&node).cloned()
    }

    /// Encodes a frame.
    pub(super) fn encode(&self, frame: &Frame) -> Result<Vec<u8>, TooLong> {
        encode(&self.election, frame)
    }

    /// Runs a task until it ends or the mesh is closed. If it panics, the whole mesh ends, because it cannot work without any of its
    /// tasks.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let mut tasks = self.tasks.borrow_mut();
        // Removes ended tasks, which would accumulate with every connection. The alarm has reported panics.
        while tasks.try_join_next().is_some() {}
        let alarm = Alarm(Rc::clone(&self.inbox));
        tasks.spawn_local(async move {
            let _alarm = alarm;
            task.await;
        });
    }

    pub(super) fn take_tasks(&self) -> JoinSet<()> {
        self.tasks.take()
    }

    /// Sends an arrival to the driver; waits while its queue is full. It is lost if the driver has ended; then the mesh
    /// will be closed.
    pub(super) async fn deliver(&self, arrival: Arrival) {
        self.deliver_when(|| Some(arrival)).await;
    }

    /// Waits until the driver has room, and only then calls `arrival`: so the driver receives events in the order in which they happen,
    /// however many connections wait. If the driver has ended, does nothing.
    pub(super) async fn deliver_when(&self, arrival: impl FnOnce() -> Option<Arrival>) {
        let Some(inbox) = self.inbox.0.borrow().clone() else { return };
        let Ok(room) = inbox.reserve().await else { return };
        if let Some(arrival) = arrival() {
            room.send(arrival);
        }
    }

    pub(super) fn count(&self, count: impl FnOnce(&mut Counters)) {
        count(&mut self.counters.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Logs that a message was too long to be sent: the first, second, fourth time and so on, because the election repeats it.
    pub(super) fn say_oversized(&self, to: NodeId, error: TooLong) {
        let mut times = 0;
        self.count(|counters| {
            counters.frames_oversized += 1;
            times = counters.frames_oversized;
        });
        if times.is_power_of_two() {
            tracing::error!(%to, %error, times, "a message is too long to be sent, and what it says is not known there");
        }
    }

    pub(super) fn random_up_to(&self, max: Duration) -> Duration {
        self.state.borrow_mut().random.duration_up_to(max)
    }

    /// Registers an unauthenticated connection for its handshake. If there are too many, another one is closed.
    pub(super) fn enter(&self, tcp: &Rc<TcpStream>) -> PendingConnection {
        let (pending, full) = self.pending.enter(tcp, self.limits.pending_max);
        if full {
            self.count(|counters| counters.pending_over_limit += 1);
        }
        pending
    }

    /// Checks that the certificate of a dialling node names the node of its hello.
    pub(super) fn judge_name(&self, stream: &Stream, node: NodeId) -> Result<(), Refused> {
        let Stream::Tls(session) = stream else { return Ok(()) };
        let presented = session.presented();
        let leaf = presented.first().ok_or(rustls::Error::NoCertificatesPresented);
        let mine = self.tls.as_ref().expect("a session is one of TLS").current();
        let Err(error) = leaf.and_then(|leaf| mine.names.check(leaf, node)) else { return Ok(()) };
        let text = tls::failure::other_name(self.node, node, &error, &mine);
        let failure = TlsFailure { problem: TlsProblem::OtherName, by_peer: false, text };
        // The name is not proved, so the refusal is not shown with the peer of that name.
        Err(self.note_failure(None, &failure))
    }

    /// Judges a node that has dialled this node.
    pub(super) fn judge(&self, theirs: &Hello) -> Result<(), Refused> {
        let verdict = self.with_known(|mine, known| judge(mine, known, theirs));
        verdict.map_err(|refusal| self.refuse(&refusal, theirs.identity.node, theirs.role))
    }

    /// Refuses a dialling node of which only the name and the versions are known, none of which this node speaks.
    pub(super) fn refuse_version(&self, node: NodeId, theirs: Versions) -> Refused {
        let refusal = self.introduction().me.of_other_version(node, theirs);
        self.refuse(&refusal, node, Role::Node)
    }

    fn with_known<T>(&self, judge: impl FnOnce(&Hello, Known<'_>) -> T) -> T {
        let peers = self.links.borrow().keys().copied().collect();
        let disks = &self.state.borrow().peer_disks;
        judge(&self.introduction().me, Known { disks, peers: &peers })
    }

    /// Sends the voters over a new connection to a node that counts older ones. It may know none of the other voters any more, so it
    /// could not even ask.
    pub(super) fn tell_voters(&self, link: &OutboundPeer, theirs: &Hello) {
        let introduction = self.introduction();
        if theirs.voters_number < introduction.me.voters_number
            && theirs.voters != introduction.me.voters
            && let Some(frame) = &introduction.voters
        {
            link.send(frame, usize::MAX);
        }
    }

    /// Sends the first message after this node's hello, if it must send one: that it has lost its disk, or the term for a
    /// readmitted node.
    pub(super) fn say_first_word(&self, link: &OutboundPeer) {
        let word = {
            let state = self.state.borrow();
            let readmitted = state.peer_disks.get(&link.node).is_some_and(|known| known.readmitted);
            match state.term {
                None => Frame::Lost,
                Some(term) if readmitted => Frame::Readmitted(term),
                Some(_) => return,
            }
        };
        // A readmitted node also gets the voters, because it needs the term of each of them.
        if let (Frame::Readmitted(_), Some(voters)) = (&word, &self.introduction().voters) {
            link.send(voters, usize::MAX);
        }
        if let Ok(frame) = self.encode(&word) {
            // Buffered without a limit. If the connection breaks, the next one begins with it again.
            link.send(&frame, usize::MAX);
        }
    }

    pub(super) fn term(&self) -> Option<Term> {
        self.state.borrow().term
    }

    /// Sets the term, and returns the former one.
    pub(super) fn set_term(&self, term: Option<Term>) -> Option<Term> {
        let mut state = self.state.borrow_mut();
        state.term_highest = term.unwrap_or_default().max(state.term_highest);
        std::mem::replace(&mut state.term, term)
    }

    pub(super) fn set_reached(&self, term: Term) {
        let mut state = self.state.borrow_mut();
        state.term_highest = state.term_highest.max(term);
    }

    pub(super) fn disk_to_readmit(&self, node: NodeId) -> Option<DiskId> {
        let state = self.state.borrow();
        let known = state.peer_disks.get(&node).map(|known| known.disk);
        let waits = state.lost.get(&node).copied().filter(|&disk| Some(disk) == known);
        state.refused_disks.get(&node).copied().or(waits)
    }

    /// True if the term is plausible. Otherwise counts it, and logs it once for each node.
    pub(super) fn is_within_reach(&self, from: NodeId, term: Term) -> bool {
        let mut state = self.state.borrow_mut();
        let mine = state.term_highest;
        if term.0 <= mine.0.saturating_add(TERM_LEAP_MAX) {
            return true;
        }
        self.count(|counters| counters.frames_term_too_high += 1);
        if state.leapt.insert(from) {
            tracing::error!(
                node = %from, %term, %mine,
                "a message is dropped, and more like it will be: no election leads that far; find out what speaks as {from}"
            );
        }
        false
    }

    /// Records that a node has lost a disk before the presented one.
    pub(super) fn has_lost(&self, theirs: &Hello) {
        let node = theirs.identity.node;
        let mut state = self.state.borrow_mut();
        let readmitted = state.peer_disks.get(&node).is_some_and(|known| known.readmitted);
        if state.lost.insert(node, theirs.disk) != Some(theirs.disk) && !readmitted {
            tracing::warn!(%node, "it has lost an earlier disk, and waits to be readmitted here as well");
        }
    }

    /// Judges the node that has answered at the address of `expected`.
    pub(super) fn judge_answer(&self, expected: NodeId, theirs: &Hello) -> Result<(), Refused> {
        let verdict = self.with_known(|mine, known| judge_answer(mine, known, expected, theirs));
        // Shown with the peer that has this address, where an operator looks for it.
        verdict.map_err(|refusal| self.refuse(&refusal, expected, theirs.role))
    }

    fn refuse(&self, refusal: &Refusal, about: NodeId, role: Role) -> Refused {
        let refused = Refused::new(refusal.kind(), &refusal.to_string());
        self.note_refusal(Some(about), false, &refused);
        // The guardian of an earlier process may still have that process's configuration.
        if role == Role::Node {
            self.note_mismatch(about, &refused);
        }
        // A guardian may outlive the disk of its node. A former disk is never readmitted, so it must not hide one that
        // can be.
        if let (Role::Node, ConfigMismatch::Disk { presented, former, .. }) = (role, &refusal.reason) {
            let mut state = self.state.borrow_mut();
            let waits = state.refused_disks.entry(refusal.of).or_insert(*presented);
            if !former {
                *waits = *presented;
            }
        }
        refused
    }

    /// Records that a peer, or its guardian, has refused this node. If the reason is this node's disk, that is evidence.
    pub(super) async fn refused_by(&self, node: NodeId, role: Role, refused: &Refused) {
        self.note_refusal(Some(node), true, refused);
        self.note_mismatch(node, refused);
        let is_of_disk = matches!(refused.kind, RefusalKind::Disk | RefusalKind::DiskReplaced);
        // Where no vote counts, a lost disk has lost no votes; and a guardian knows no disks.
        if is_of_disk && role == Role::Node && self.introduction().me.kind.needs_majority() {
            self.deliver_disk_refused(node, refused.kind == RefusalKind::DiskReplaced).await;
        }
    }

    /// Reports the evidence about this node's disk in the hello of a dialling node, even if that node is refused.
    pub(super) async fn heed_known_disk(&self, theirs: &Hello) {
        if self.introduction().me.is_known_otherwise_by(theirs) {
            self.deliver_disk_refused(theirs.identity.node, false).await;
        }
    }

    async fn deliver_disk_refused(&self, by: NodeId, replaced: bool) {
        self.deliver(Arrival::Evidence(Evidence::DiskRefused { by, replaced })).await;
    }

    /// The hello to a node, with the disk that is recorded for it.
    pub(super) fn hello_to(&self, node: NodeId) -> Vec<u8> {
        let introduction = self.introduction();
        let known_disk = self.state.borrow().peer_disks.get(&node).map(|known| (node, known.disk));
        let hello = Hello { known_disk, ..introduction.me.clone() };
        // Without the disk if the hello would be too long with it.
        self.encode(&Frame::Hello(hello)).unwrap_or_else(|_| introduction.hello.clone())
    }

    fn note_mismatch(&self, node: NodeId, refused: &Refused) {
        if refused.kind.is_about_the_election() && self.links.borrow().contains_key(&node) {
            self.config_mismatch.send_replace(Some(refused.text.clone()));
        }
    }

    /// Explains a TLS error.
    pub(super) fn explain(&self, error: &rustls::Error, peer: &str, mine: &Credentials) -> TlsFailure {
        tls::explain(error, self.node, peer, mine)
    }

    /// Records why there is no TLS connection to a peer, or to a client that has not named its node.
    pub(super) fn note_failure(&self, node: Option<NodeId>, failure: &TlsFailure) -> Refused {
        let refused = Refused::new(RefusalKind::Tls(failure.problem), &failure.text);
        self.note_refusal(node, failure.by_peer, &refused);
        refused
    }

    fn note_refusal(&self, node: Option<NodeId>, by_peer: bool, refused: &Refused) {
        let noted = PeerRefusal { by_peer, kind: refused.kind, text: refused.text.clone(), at: clock::now() };
        self.count(|counters| {
            let counted = if by_peer { &mut counters.refused_by_peers } else { &mut counters.refused };
            *counted.entry(refused.kind).or_default() += 1;
        });
        let mut state = self.state.borrow_mut();
        let node = node.filter(|node| self.links.borrow().contains_key(node));
        let before = match node {
            Some(node) => state.refusals.insert(node, noted.clone()),
            None => state.unidentified_refused.replace(noted.clone()),
        };
        // A refusal is repeated at every attempt, and logged once. Unauthenticated clients can cause any number of reasons, so there is
        // a pause between two messages about one kind.
        let again = node.is_some() && before.is_none();
        let is_news = |last: &Logged| {
            last.is_outdated_by(&noted, &self.limits)
                || again && noted.at.since(last.at) >= self.limits.refusal_log_pause
        };
        if state.logged.get(&(node, noted.kind)).is_none_or(is_news) {
            tracing::warn!(by_peer, "{}", noted.text);
            state.logged.insert((node, noted.kind), Logged { at: noted.at, text: noted.text });
        } else {
            tracing::debug!(by_peer, "{}", noted.text);
        }
    }

    /// Resolves when the other side's certificate has been unacceptable for longer than permitted: it has expired, or
    /// its authority is no longer accepted.
    pub(super) async fn outlives_trust(&self, stream: &Stream, node: NodeId) {
        let (Stream::Tls(session), Some(tls)) = (stream, &self.tls) else {
            return std::future::pending().await;
        };
        let mut doubted_at = None;
        loop {
            tokio::time::sleep(self.limits.certificate_check.into()).await;
            let credentials = tls.current();
            let Err(error) = session.judge_again(&credentials, node, tls::wall_time()) else {
                doubted_at = None;
                continue;
            };
            let (now, grace) = (clock::now(), self.limits.certificate_grace);
            let failure = self.explain(&error, node.as_str(), &credentials);
            if doubted_at.is_none() {
                let grace = StdDuration::from(grace);
                tracing::warn!(%node, "its connection is closed in {grace:?} at the latest: {}", failure.text);
            }
            if now.since(*doubted_at.get_or_insert(now)) >= grace {
                self.note_failure(Some(node), &failure);
                return;
            }
        }
    }

    /// Records that a handshake has succeeded, in either direction. If the peer's disk is new, returns the arrival to
    /// deliver.
    pub(super) fn agreed(&self, theirs: &Hello) -> Option<Arrival> {
        let node = theirs.identity.node;
        let mut state = self.state.borrow_mut();
        state.refusals.remove(&node);
        if theirs.role != Role::Node {
            return None;
        }
        // It once came with another disk and is back with its own: there is nothing to readmit any more.
        state.refused_disks.remove(&node);
        if state.peer_disks.contains_key(&node) {
            return None;
        }
        state.peer_disks.insert(node, PeerDisk::first(theirs.disk));
        Some(Arrival::PeerDisk { node, disk: theirs.disk })
    }

    /// Returns the number of a [`Hello`] that was received just now.
    pub(super) fn number_hello(&self) -> u64 {
        let mut state = self.state.borrow_mut();
        state.hellos_heard += 1;
        state.hellos_heard
    }

    /// Registers a connection whose handshake has succeeded, and closes the ones that it replaces.
    ///
    /// Returns `None` if an operator has removed this peer meanwhile, or if a registered connection has a later hello of the node: the
    /// last frame of a handshake can arrive after its process has ended and the next one has connected, and must not make the ended
    /// process the latest one. A running process dials again.
    pub(super) fn admit(&self, caller: &Caller) -> Option<ConnectionSlot> {
        let Caller { hello: theirs, number, round_trip } = caller;
        self.judge(theirs).ok()?;
        let mut state = self.state.borrow_mut();
        let rival =
            |other: &Accepted| other.identity.node == theirs.identity.node && other.role == theirs.role;
        let outdated = |other: &Accepted| rival(other) && other.number > *number;
        // The guardians of two incarnations each report the death of their own.
        if theirs.role == Role::Node && state.accepted.iter().any(outdated) {
            return None;
        }
        if theirs.role == Role::Node {
            state.round_trips.insert(theirs.identity.node, *round_trip);
        }
        let rivals = state.accepted.iter().filter(|other| rival(other)).count();
        let mut excess = (rivals + 1).saturating_sub(CONNECTIONS_PER_PEER_MAX);
        state.accepted.retain(|other| {
            // If the same process has dialled again, its earlier connection is broken, whether or not this side has noticed. Another
            // incarnation of the node may still be running, and keeps its connection.
            let replaced = rival(other) && (other.identity == theirs.identity || excess > 0);
            if replaced {
                excess = excess.saturating_sub(1);
                other.close.notify_one();
            }
            !replaced
        });
        let close = Rc::new(Notify::new());
        let (identity, role, disk) = (theirs.identity, theirs.role, theirs.disk);
        let voters_number = theirs.voters_number;
        let close_too = Rc::clone(&close);
        let accepted = Accepted { number: *number, identity, role, disk, voters_number, close: close_too };
        state.accepted.push(accepted);
        Some(ConnectionSlot { number: *number, close })
    }

    /// Removes the registration. If no connection from the node is left, that is evidence.
    pub(super) fn retire(&self, place: &ConnectionSlot, theirs: &Hello) -> Option<Arrival> {
        let node = theirs.identity.node;
        let mut state = self.state.borrow_mut();
        state.accepted.retain(|accepted| accepted.number != place.number);
        let heard = |other: &Accepted| other.identity.node == node && other.role == Role::Node;
        let silent = theirs.role == Role::Node && !state.accepted.iter().any(heard);
        silent.then_some(Arrival::Evidence(Evidence::Disconnected(node)))
    }

    pub(super) fn readmit(&self, node: NodeId, disk: DiskId) {
        let mut state = self.state.borrow_mut();
        state.peer_disks.entry(node).or_insert_with(|| PeerDisk::first(disk)).readmit(disk);
        state.refused_disks.remove(&node);
        state.refusals.remove(&node);
        // Their tasks remove the registrations, so that the last one produces evidence.
        let outdated = |other: &&Accepted| other.identity.node == node && other.disk != disk;
        state.accepted.iter().filter(outdated).for_each(|other| other.close.notify_one());
        drop(state);
        if let Some(link) = self.link(node)
            && link.readmit(disk)
        {
            self.say_first_word(&link);
        }
    }

    /// Replaces the voters and the outbound connections. Returns the former connections.
    pub(super) fn replace(
        &self,
        introduction: Introduction,
        links: BTreeMap<NodeId, Rc<OutboundPeer>>,
    ) -> Vec<Rc<OutboundPeer>> {
        let (voters, number) = (introduction.me.voters.clone(), introduction.me.voters_number);
        self.introduction.replace(Rc::new(introduction));
        let before = self.links.replace(links);
        let links = self.links.borrow();
        let mut state = self.state.borrow_mut();
        for node in before.keys().filter(|node| !links.contains_key(*node)) {
            state.refusals.remove(node);
            state.round_trips.remove(node);
            state.heard_at.remove(node);
            state.refused_disks.remove(node);
            state.lost.remove(node);
        }
        // These nodes would be refused now. Their tasks remove the registrations, which produces evidence that they are gone.
        let gone = |other: &&Accepted| {
            let node = other.identity.node;
            !links.contains_key(&node) && !voters.contains(node) && other.voters_number <= number
        };
        state.accepted.iter().filter(gone).for_each(|other| other.close.notify_one());
        let still = |link: &Rc<OutboundPeer>| links.get(&link.node).is_some_and(|now| Rc::ptr_eq(now, link));
        before.into_values().filter(|link| !still(link)).collect()
    }

    pub(super) fn counters(&self) -> Counters {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn shared_counters(&self) -> Arc<Mutex<Counters>> {
        Arc::clone(&self.counters)
    }

    /// Records that the node has sent a frame.
    pub(super) fn has_heard(&self, node: NodeId) {
        self.state.borrow_mut().heard_at.insert(node, clock::now());
    }

    pub(super) fn unidentified_refused(&self) -> Option<PeerRefusal> {
        self.state.borrow().unidentified_refused.clone()
    }

    pub(super) fn peers(&self) -> Vec<PeerStatus> {
        let state = self.state.borrow();
        let heard = |node: NodeId, role: Role| {
            let from = |other: &&Accepted| other.identity.node == node && other.role == role;
            state.accepted.iter().rev().find(from).map(|other| other.identity)
        };
        let status = |link: &Rc<OutboundPeer>| PeerStatus {
            node: link.node,
            address: link.address.clone(),
            outbound: link.connected_to(),
            version: link.version(),
            inbound: heard(link.node, Role::Node),
            guardian: heard(link.node, Role::GuardianOf),
            round_trip: state.round_trips.get(&link.node).copied(),
            heard_at: state.heard_at.get(&link.node).copied(),
            refusal: state.refusals.get(&link.node).cloned(),
            trouble: link.trouble(),
        };
        self.links.borrow().values().map(status).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_is_told_again_when_it_is_news_and_not_too_soon() {
        let limits = Limits::default();
        let (pause, again) = (limits.refusal_log_pause, limits.refusal_log_again);
        let start = Instant::from_nanos(0);
        let last = Logged { at: start, text: "at noon".into() };
        let outdated = |kind, text: &str, after: Duration| {
            let noted = PeerRefusal { by_peer: false, kind, text: text.into(), at: start.after(after) };
            last.is_outdated_by(&noted, &limits)
        };
        let (voters, expired) = (RefusalKind::Voters, RefusalKind::Tls(TlsProblem::Expired));
        assert!(outdated(voters, "later", pause) && !outdated(voters, "at noon", again));
        assert!(!outdated(voters, "later", pause.minus(Duration::from_millis(1))));
        // The text differs each time; an hour later, though, it may be another client.
        assert!(!outdated(expired, "later", pause) && outdated(expired, "later", again));
    }
}

//! The contract that every election fulfils.
//!
//! An election is a value: a loop feeds it inputs and drains its effects, in order:
//!
//! ```text
//!     loop:
//!         wait for an input, or for deadline()
//!         read the clock                         (after the input was taken, never before)
//!         machine.handle(now, input)
//!         while let Some(output) = machine.poll()
//!             finish the effect before starting the next
//! ```
//!
//! The daemon, the simulator, the script runner and the model checker all run this loop.

use core::fmt;

use crate::fence::FencingToken;
use crate::id::{Identity, Incarnation, NodeId};
use crate::term::Term;
use crate::time::{Duration, Instant};

/// An election, as a state machine without I/O.
pub trait Protocol {
    /// A message to another node, a store or a client.
    type Message: Clone;
    /// The part of its state that must survive a crash; `()` where there is none.
    type Durable: Clone;

    /// Takes one input. It never fails and never blocks. All outputs must have been drained before.
    fn handle(&mut self, now: Instant, input: Input<Self::Message>);

    /// The next effect, in the order in which effects must take place. Drain it to `None` before the next
    /// [`handle`](Self::handle); finish each effect before the next one is started. If a `Persist` fails, no later
    /// effect may be performed: drop the machine, as in a crash.
    fn poll(&mut self) -> Option<Output<Self::Message, Self::Durable>>;

    /// The time at which to feed [`Input::Timeout`] if no other input comes first. An early timeout does nothing.
    fn deadline(&self) -> Option<Instant>;
}

/// The origin or destination of a message: a node, a client, or the store, which is linearizable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    /// Another node.
    Node(NodeId),
    /// The store that the election is held in.
    Store,
    /// A client of the state that this node replicates with the others.
    Client,
}

/// An input to a machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input<M> {
    /// A message came. The transport vouches for the sender.
    Message {
        /// The sender.
        from: Endpoint,
        /// The message.
        message: M,
    },
    /// The deadline has come.
    Timeout,
    /// The application or its operator has given a command.
    Command(Command),
    /// The transport or a guardian has noticed something about another node.
    Evidence(Evidence),
}

impl<M> Input<M> {
    /// The same, with its message wrapped by `wrap`.
    pub fn map<W>(self, wrap: impl FnOnce(M) -> W) -> Input<W> {
        match self {
            Self::Message { from, message } => Input::Message { from, message: wrap(message) },
            Self::Timeout => Input::Timeout,
            Self::Command(command) => Input::Command(command),
            Self::Evidence(evidence) => Input::Evidence(evidence),
        }
    }
}

/// A command of the application or its operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Campaign until further notice. A machine starts without campaigning.
    Campaign,
    /// Stop campaigning; a leader resigns.
    Withdraw,
    /// Give up the lead in order: stop accepting, drain, release. Nothing happens if this node does not lead.
    Resign,
    /// Resign in order, and hand the lead to this node. For elections among peers.
    Transfer(NodeId),
    /// The work of this leadership has ended, after [`Event::Resigning`]: only now is the lead released. The work of an
    /// earlier leadership, from which this node was deposed, may still be draining.
    Drained,
    /// An operator reports that this node is dead: it is removed from the cluster at once. For `seniority`; other
    /// elections take their members from their configuration.
    Down(NodeId),
    /// The result of the health check: a node that is not healthy does not campaign, and gives up the lead.
    Healthy(bool),
}

/// Knowledge about another node from another source than its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Evidence {
    /// A connection from this node has been made, and its handshake was accepted.
    Connected(Peer),
    /// The last connection from this node has closed. That proves only that the node is not heard: kernels reset the
    /// connections of live processes, and proxies close connections at will.
    Disconnected(NodeId),
    /// The guardian of this incarnation reports that the process and all its work have ended.
    Died(Identity),
    /// This node has another durable state than `by` knew, and an operator has told `by` to accept it.
    Readmitted {
        /// The node that reports this.
        by: NodeId,
        /// The highest term that it knows of.
        term: Term,
    },
    /// The other node refuses this one, because it knows this one with another durable state: this node has lost its
    /// disk, or its disk was restored from an earlier state.
    DiskRefused {
        /// The node that refuses.
        by: NodeId,
        /// True if this node's present disk is a former disk, already replaced by the one that is known. It cannot be
        /// readmitted.
        replaced: bool,
    },
}

/// A node's report about itself in its handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The node and its incarnation.
    pub identity: Identity,
    /// The priority: nodes of higher priority campaign first.
    pub priority: u32,
    /// True if it only votes and never campaigns.
    pub witness: bool,
    /// The round-trip time of the handshake.
    pub round_trip: Duration,
}

/// The effects, each to be finished before the next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Output<M, D> {
    /// Replace the durable state by this one, and return only when it would survive a power cut.
    Persist(D),
    /// Send this. It may be lost.
    Send {
        /// The receiver.
        to: Endpoint,
        /// The message.
        message: M,
    },
    /// Tell the application.
    Event(Event),
}

/// The kind of a leader's authority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mandate {
    /// The election gave this token to no other leadership.
    Fenced(FencingToken),
    /// A partition may have a second leader, so there is no token.
    Advisory,
}

/// A leader, as one node knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Leader {
    /// The incarnation that leads.
    pub identity: Identity,
    /// Its term.
    pub term: Term,
}

/// An event for the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// This node leads.
    Elected {
        /// The number of this leadership.
        term: Term,
        /// The authority that this node may present to resources.
        mandate: Mandate,
        /// The end of the leadership on this node's own clock; the work must stop by then unless [`Event::Renewed`]
        /// moves the end.
        valid_until: Instant,
    },
    /// The leadership was extended.
    Renewed {
        /// The new end; later than the one before.
        valid_until: Instant,
    },
    /// The application is to stop accepting work, drain, and then send [`Command::Drained`]. Until then the lead is
    /// kept and renewed, however long that takes, so that no other node starts work before this node's work has ended.
    Resigning(Reason),
    /// This node no longer leads.
    Deposed(Reason),
    /// The leader that this node knows of has changed; `None` if it knows of none.
    LeaderChanged(Option<Leader>),
    /// An invariant is broken. This node does not lead, and an operator should investigate.
    Violation(Violation),
}

/// The trigger of a campaign: the end of the previous leadership, as far as the node knew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElectionTrigger {
    /// The leader was not heard for too long, and nothing was reported about it.
    Silence,
    /// The leader's last connection was closed; see [`Evidence::Disconnected`].
    Disconnected,
    /// The leader resigned.
    Resigned,
    /// The leader resigned in favour of this node.
    Transferred,
    /// The leader's guardian reported its death.
    Died,
}

/// The reason why a leadership ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The application or an operator asked for it.
    Resigned,
    /// The lead goes to this node.
    Transferred(NodeId),
    /// The health check failed.
    Unhealthy,
    /// The leadership was not renewed in time; in `seniority`, the policy stops this part of a split cluster.
    Expired,
    /// The cluster has split, and a store decides which part goes on. The node stays a member until then, and leads
    /// again if the store chooses its part and the application has [campaigned](Command::Campaign) again.
    Undecided,
    /// Another node has a higher term. In an advisory election: another leader prevails, whose term this is.
    HigherTerm(Term),
    /// Another process has taken the record.
    Overwritten,
    /// The record, or the entry, was deleted from the store, by an operator or by a cleanup job.
    Removed,
    /// The store has ended this node's session.
    SessionEnded,
    /// The others know this node with another durable state: this one lacks its votes, so another node may lead.
    DiskLost,
    /// A violation was seen, which must never be.
    Violation,
    /// The node stops: its state could not be written, or it closes without having drained.
    Halted,
}

impl Reason {
    /// Returns true if no other node leads before this leadership's end, so that work may drain. Otherwise another node
    /// may lead already.
    #[must_use]
    pub const fn leaves_time(self) -> bool {
        match self {
            Self::Resigned | Self::Transferred(_) | Self::Unhealthy | Self::Expired => true,
            Self::Undecided | Self::HigherTerm(_) | Self::Halted => true,
            Self::Overwritten | Self::Removed | Self::SessionEnded => false,
            Self::DiskLost | Self::Violation => false,
        }
    }
}

/// A broken invariant, as a machine has observed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Violation {
    /// Two leaders in one term.
    TwoLeaders {
        /// The term.
        term: Term,
        /// The leader that was known.
        known: Identity,
        /// The other leader.
        other: Identity,
    },
    /// The store shows a token that is lower than one that it has shown before.
    TokenWentDown {
        /// The highest token that was seen.
        seen: FencingToken,
        /// The token that the store shows now.
        found: FencingToken,
    },
    /// The record that this node holds is gone from the store.
    RecordVanished {
        /// The token that it had.
        held: FencingToken,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TwoLeaders { term, known, other } => {
                write!(f, "two leaders in the term {term}: {known} and {other}")
            }
            Self::TokenWentDown { seen, found } => write!(
                f,
                "the store shows the token {found}, and has shown {seen} before: an earlier state was put back, or another program \
                 has written there"
            ),
            Self::RecordVanished { held } => {
                write!(f, "the record with the token {held} is gone from the store")
            }
        }
    }
}

impl Identity {
    /// Makes an identity of a node and its incarnation.
    #[must_use]
    pub const fn new(node: NodeId, incarnation: Incarnation) -> Self {
        Self { node, incarnation }
    }
}

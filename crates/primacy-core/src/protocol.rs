//! The one contract that every election honours.
//!
//! An election is a value. It is handed inputs and drained of effects, in order:
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
//! The daemon, the simulator, the script runner and the model checker are all this loop.

use core::fmt;

use crate::fence::FencingToken;
use crate::id::{Identity, Incarnation, NodeId};
use crate::term::Term;
use crate::time::{Duration, Instant};

/// An election, as a state machine without I/O.
pub trait Protocol {
    /// What it says to others.
    type Message: Clone;
    /// What of its state must survive a crash; `()` where nothing must.
    type Durable: Clone;

    /// Takes one input. It never fails and never blocks. All outputs must have been drained before.
    fn handle(&mut self, now: Instant, input: Input<Self::Message>);

    /// The next effect, in the order in which effects must take place. Drain it to `None` before the next
    /// [`handle`](Self::handle); finish each effect before the next one is started. If a `Persist` fails, nothing after it
    /// may happen: the machine is to be thrown away, as in a crash.
    fn poll(&mut self) -> Option<Output<Self::Message, Self::Durable>>;

    /// When to hand it [`Input::Timeout`] if nothing else comes before. One that comes early does nothing.
    fn deadline(&self) -> Option<Instant>;
}

/// Where a message comes from or goes to. A store is one more endpoint, which happens to be linearizable; a client is one too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    /// Another node.
    Node(NodeId),
    /// The store that the election is held in.
    Store,
    /// Whoever asks this node for something of the state that it keeps with the others.
    Client,
}

/// What can happen to a machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input<M> {
    /// A message came. The transport vouches for the sender.
    Message {
        /// Who sent it.
        from: Endpoint,
        /// What it says.
        message: M,
    },
    /// The deadline has come.
    Timeout,
    /// The application or its operator wants something.
    Command(Command),
    /// The transport or a guardian has noticed something about another node.
    Evidence(Evidence),
}

impl<M> Input<M> {
    /// The same, with what a message says as `wrap` has it.
    pub fn map<W>(self, wrap: impl FnOnce(M) -> W) -> Input<W> {
        match self {
            Self::Message { from, message } => Input::Message { from, message: wrap(message) },
            Self::Timeout => Input::Timeout,
            Self::Command(command) => Input::Command(command),
            Self::Evidence(evidence) => Input::Evidence(evidence),
        }
    }
}

/// What the application or its operator may want.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Stand for election until further notice. A machine starts without standing.
    Campaign,
    /// Stand no more; a leader resigns.
    Withdraw,
    /// Give up the lead in order: stop accepting, drain, release. Nothing happens if this node does not lead.
    Resign,
    /// The same, and let this node have the lead. For elections among peers.
    Transfer(NodeId),
    /// The work of this leadership has ended, after [`Event::Resigning`]: the lead may be released, and is not before. Of the work of an earlier
    /// one, from which this node was deposed, it says nothing.
    Drained,
    /// An operator vouches that this node is not to be waited for: it is removed from the cluster at once. For `seniority`; other
    /// elections have their members from their configuration.
    Down(NodeId),
    /// What the health check says: a node that is not healthy does not campaign, and gives up the lead.
    Healthy(bool),
}

/// What may be known of another node without a message from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Evidence {
    /// A connection from this node has been made, and its handshake was accepted.
    Connected(Peer),
    /// The last connection from this node has closed. It is not heard any more, and that is all: kernels reset
    /// the connections of living processes, and proxies close what they like.
    Disconnected(NodeId),
    /// The guardian of this process life vouches that it is gone, and after it all its work.
    Died(Identity),
    /// This node's durable state is not the one that `by` knew it with, and an operator has told `by` to take it back.
    Readmitted {
        /// Who says so.
        by: NodeId,
        /// The highest term that it knows of.
        term: Term,
    },
    /// The other node refuses this one, which it knows with another durable state: this node has lost that one, or has been given back
    /// one from before.
    DiskRefused {
        /// The node that refuses.
        by: NodeId,
        /// True if the state that this node has was replaced by the one that is known, so that no readmission takes it back.
        replaced: bool,
    },
}

/// What a node tells of itself in its handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// Who it is.
    pub identity: Identity,
    /// Its priority: nodes of higher priority stand first.
    pub priority: u32,
    /// Whether it votes only and never stands.
    pub witness: bool,
    /// How long the handshake's round trip took.
    pub round_trip: Duration,
}

/// The effects, each to be finished before the next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Output<M, D> {
    /// Write this, in place of what was written before, and return only when it would survive a power cut.
    Persist(D),
    /// Send this. It may be lost.
    Send {
        /// To whom.
        to: Endpoint,
        /// What.
        message: M,
    },
    /// Tell the application.
    Event(Event),
}

/// What a leader was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mandate {
    /// The election reserved this number for this leadership alone.
    Fenced(FencingToken),
    /// Nothing keeps a second leader away in a partition; so there is no token.
    Advisory,
}

/// Who leads, as one node knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Leader {
    /// The process life that leads.
    pub identity: Identity,
    /// Its term.
    pub term: Term,
}

/// What an application is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// This node leads.
    Elected {
        /// The number of this leadership.
        term: Term,
        /// What it may show to resources.
        mandate: Mandate,
        /// The end on this node's own clock; the work must have ended by then unless it is [`Event::Renewed`].
        valid_until: Instant,
    },
    /// This node leads for longer.
    Renewed {
        /// The new end; later than the one before.
        valid_until: Instant,
    },
    /// This node shall give up the lead: stop accepting, drain, then hand in [`Command::Drained`]. Until then the lead is kept
    /// and [`Event::Renewed`] as before, however long that takes: no other node may work beside work that has not ended.
    Resigning(Reason),
    /// This node leads no more.
    Deposed(Reason),
    /// Another node leads, as far as this node knows, or none.
    LeaderChanged(Option<Leader>),
    /// Something that must never be was seen. This node does not lead, and an operator should look.
    Violation(Violation),
}

/// What made a node stand: the best that it knew of the end of the leadership before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Occasion {
    /// Nothing was heard, and nobody told anything.
    Silence,
    /// The leader's last connection was closed; see [`Evidence::Disconnected`].
    Disconnected,
    /// The leader resigned.
    Resigned,
    /// The leader resigned, and let this node have the lead.
    Transferred,
    /// The leader's guardian vouched for its death.
    Died,
}

/// Why a leadership ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The application or an operator asked for it.
    Resigned,
    /// The lead goes to this node.
    Transferred(NodeId),
    /// The health check failed.
    Unhealthy,
    /// It could not be renewed in time; by seniority, its part of the cluster does not go on after a split, by the policy.
    Expired,
    /// Its part of the cluster has lost the others, and a store is to say which one goes on. The node keeps its place until then, and
    /// leads again if its part is chosen; first the application must [campaign](Command::Campaign) again.
    Undecided,
    /// A node had a higher term.
    HigherTerm(Term),
    /// Another process has taken the record.
    Overwritten,
    /// The record, or the entry, was deleted from the store: by an operator, or by something that cleans up there.
    Removed,
    /// The store has ended this node's session.
    SessionEnded,
    /// The others know this node with another durable state: it has forgotten its votes, and another node may lead.
    DiskLost,
    /// What must never be was seen.
    Violation,
    /// The node cannot go on: its state could not be written, or it is closing without having drained.
    Halted,
}

impl Reason {
    /// Returns whether the lead still is this node's until its end, so that work may drain. Otherwise another node may lead already.
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

/// What must never be, and was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Violation {
    /// Two leaders in one term.
    TwoLeaders {
        /// The term.
        term: Term,
        /// The one that was known.
        known: Identity,
        /// The other one.
        other: Identity,
    },
    /// The store shows a token that is lower than one that it has shown before.
    TokenWentDown {
        /// The highest that was seen.
        seen: FencingToken,
        /// What the store shows now.
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
    /// This life of a node.
    #[must_use]
    pub const fn new(node: NodeId, incarnation: Incarnation) -> Self {
        Self { node, incarnation }
    }
}

//! The events of a run as data: messages and their delivery, changes of nodes, and faults.
//!
//! [`lines`] formats them for people, one per event; [`json`] for programs; [`crate::draw`] draws them. These modules
//! use nothing but the trace.

mod json;
mod level;
mod lines;

use core::fmt;
use core::fmt::Write as _;
use std::collections::BTreeSet;

use primacy_core::{Duration, Endpoint, Event, FencingToken, Mandate, NodeId, Term};

use crate::clock::Moment;
use crate::network::Remark;

pub use json::json;
pub use level::{Level, Levels};
pub use lines::{Line, grouped, lines};

/// A party to an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Party {
    /// A node.
    Node(NodeId),
    /// The guardian of a node.
    Guardian(NodeId),
    /// The store.
    Store,
    /// The clients of the nodes' replicated state.
    Clients,
}

/// The delivery of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The moments of its arrival: once, twice, or not at all.
    pub arrivals: [Option<Moment>; 2],
    /// The deviation from normal delivery, if any.
    pub remark: Option<Remark>,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// A party sends a message.
    Says {
        /// The sender.
        from: Party,
        /// The receiver.
        to: Party,
        /// The kind of message.
        kind: &'static str,
        /// The message, for people; it begins with the kind.
        text: String,
        /// Its delivery.
        delivery: Delivery,
    },
    /// A message arrives so late that the arrival has a line of its own.
    Hears {
        /// The receiver.
        to: Party,
        /// The sender.
        from: Party,
        /// The kind of message.
        kind: &'static str,
        /// The message, for people.
        text: String,
        /// The moment at which it was sent.
        sent_at: Moment,
    },
    /// An event for a node's application, or a change of a node.
    Node {
        /// The node.
        who: Party,
        /// The change.
        turn: Turn,
        /// The sentence, whose subject is the node.
        text: String,
    },
    /// A deed on parties, or a command to them.
    Deed {
        /// The parties; empty for all.
        to: Vec<Party>,
        /// The deed, in the words of a script's command.
        text: String,
    },
    /// A write of a leader's work arrives at the resource.
    Write {
        /// The node of the work.
        node: NodeId,
        /// The token that it presents, if it has one.
        token: Option<FencingToken>,
        /// True if the resource accepts it.
        accepted: bool,
        /// The line, for people.
        text: String,
    },
    /// An invariant is broken.
    Breach {
        /// The name of the invariant.
        invariant: &'static str,
        /// The violation.
        text: String,
    },
    /// Any other event.
    World {
        /// The event.
        text: String,
    },
}

/// A change of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// A process begins.
    Begins,
    /// It campaigns from now on.
    Campaigns,
    /// It does not campaign any more, and does not lead.
    StopsCampaigning,
    /// It leads from now on.
    Leads {
        /// In this term.
        term: Term,
        /// With this token, if there is one.
        token: Option<FencingToken>,
        /// Until this moment in true time, unless something ends it earlier.
        until: Moment,
    },
    /// Its leadership is renewed.
    Renewed {
        /// Until this moment in true time.
        until: Moment,
    },
    /// It drains its work before it gives up the lead.
    Drains,
    /// It does not lead any more.
    Deposed,
    /// It names this node as the leader from now on, or none.
    Names(Option<NodeId>),
    /// It has raised an alarm, because it has detected a violation.
    Alarm,
    /// Its process is gone.
    Ends,
    /// Its process is paused.
    Paused,
    /// Its process is resumed.
    Resumed,
    /// No change.
    Nothing,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The moment.
    pub at: Moment,
    /// Its level.
    pub level: Level,
    /// The event.
    pub what: TraceEvent,
}

/// The kept entries, or only a hash that differs between differing runs.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The levels that are kept.
    keep: Levels,
    entries: Vec<Entry>,
    /// The entries that are recorded in addition, for drawings or programs.
    recorded: Option<Recording>,
    digest: Option<u64>,
    /// The nodes that were reported to campaign.
    campaigning: BTreeSet<NodeId>,
}

#[derive(Clone, Debug)]
struct Recording {
    /// `None` for the kept levels and the scene.
    levels: Option<Levels>,
    entries: Vec<Entry>,
}

impl Trace {
    /// A trace that keeps the entries of these levels.
    #[must_use]
    pub fn keeping(levels: &[Level]) -> Self {
        Self {
            keep: levels.into(),
            entries: Vec::new(),
            recorded: None,
            digest: None,
            campaigning: BTreeSet::new(),
        }
    }

    /// A trace that keeps no entry, only a hash of all entries.
    #[must_use]
    pub fn digesting() -> Self {
        let keep = Levels::down_to(Level::Disk).with(Level::Scene, false); // A scene shows what follows from the rest.
        Self { keep, digest: Some(0xcbf2_9ce4_8422_2325), ..Self::keeping(&[]) }
    }

    /// Sets whether entries of this level are kept from now on.
    pub fn show(&mut self, level: Level, wanted: bool) {
        self.keep = self.keep.with(level, wanted);
    }

    /// The levels whose entries are kept.
    #[must_use]
    pub const fn kept(&self) -> Levels {
        self.keep
    }

    /// Keeps the entries of these levels from now on, and no others.
    pub const fn set_kept(&mut self, levels: Levels) {
        self.keep = levels;
    }

    /// Records entries in addition to those that [`take`](Self::take) returns: those of these levels, or if none are
    /// given, of the kept levels and the scene. Renewals are always included: without them a renewed leadership would
    /// look like an expired one.
    pub fn record(&mut self, levels: Option<Levels>) {
        self.recorded = Some(Recording { levels, entries: Vec::new() });
    }

    /// Takes the entries recorded so far.
    pub fn take_recorded(&mut self) -> Vec<Entry> {
        self.recorded.as_mut().map(|recording| core::mem::take(&mut recording.entries)).unwrap_or_default()
    }

    fn records(&self, entry: &Entry) -> bool {
        let told = self.keep.with(Level::Scene, true);
        let wanted = |recording: &Recording| recording.levels.unwrap_or(told).contain(entry.level);
        self.recorded.as_ref().is_some_and(|recording| wanted(recording) || entry.prolongs())
    }

    /// True if entries of this level are wanted; call this before making one.
    #[must_use]
    pub fn wants(&self, level: Level) -> bool {
        self.keep.contain(level) || self.recorded.is_some()
    }

    /// Adds an entry.
    pub fn add(&mut self, entry: Entry) {
        if let Some(digest) = self.digest {
            let mut fold = Fold(digest);
            let _ = write!(fold, "{entry}"); // It takes everything.
            self.digest = Some(fold.0);
            return;
        }
        if self.records(&entry)
            && let Some(recording) = &mut self.recorded
        {
            recording.entries.push(entry.clone());
        }
        if self.keep.contain(entry.level) {
            self.entries.push(entry);
        }
    }

    /// Takes the entries since the last call.
    pub fn take(&mut self) -> Vec<Entry> {
        core::mem::take(&mut self.entries)
    }

    /// The digest, if this trace makes one.
    #[must_use]
    pub const fn digest(&self) -> Option<u64> {
        self.digest
    }

    /// Records whether a node campaigns. Returns true if that has changed.
    pub fn notes_campaigning(&mut self, node: NodeId, campaigns: bool) -> bool {
        if campaigns { self.campaigning.insert(node) } else { self.campaigning.remove(&node) }
    }
}

impl Entry {
    /// True if the change is the renewal of a leadership.
    #[must_use]
    pub const fn prolongs(&self) -> bool {
        matches!(self.what, TraceEvent::Node { turn: Turn::Renewed { .. }, .. })
    }
}

impl Turn {
    /// Returns the change of a node that an event causes; `when` converts an instant of the node's clock to a moment.
    #[must_use]
    pub fn of(event: &Event, when: impl FnOnce(primacy_core::Instant) -> Moment) -> Self {
        match *event {
            Event::Elected { term, mandate, valid_until } => {
                let token = match mandate {
                    Mandate::Fenced(token) => Some(token),
                    Mandate::Advisory => None,
                };
                Self::Leads { term, token, until: when(valid_until) }
            }
            Event::Renewed { valid_until } => Self::Renewed { until: when(valid_until) },
            Event::Resigning(_) => Self::Drains,
            Event::Deposed(_) => Self::Deposed,
            Event::LeaderChanged(leader) => Self::Names(leader.map(|leader| leader.identity.node)),
            Event::Violation(_) => Self::Alarm,
        }
    }
}

impl Turn {
    /// True if even a quick reader of a trace must see the change.
    #[must_use]
    pub const fn is_loud(self) -> bool {
        match self {
            Self::Leads { .. } | Self::Drains | Self::Deposed | Self::Alarm | Self::Ends => true,
            Self::Begins | Self::Campaigns | Self::StopsCampaigning | Self::Renewed { .. } => false,
            Self::Names(_) | Self::Paused | Self::Resumed | Self::Nothing => false,
        }
    }
}

impl From<Endpoint> for Party {
    fn from(endpoint: Endpoint) -> Self {
        match endpoint {
            Endpoint::Node(node) => Self::Node(node),
            Endpoint::Store => Self::Store,
            Endpoint::Client => Self::Clients,
        }
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "{node}"),
            Self::Guardian(node) => write!(f, "{node}:guardian"),
            Self::Store => f.write_str("store"),
            Self::Clients => f.write_str("clients"),
        }
    }
}

/// FNV-1a over the written text: sufficient to detect that two runs differ.
struct Fold(u64);

impl fmt::Write for Fold {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }
}

/// Returns the end of a leadership as text.
#[must_use]
pub fn until(moment: Moment) -> String {
    if moment == Moment::NEVER { "until further notice".to_owned() } else { format!("until {moment}") }
}

/// True if so much time has passed that the text should state it.
#[must_use]
pub fn is_late(sent_at: Moment, now: Moment) -> bool {
    now.since(sent_at) >= Duration::from_millis(100)
}

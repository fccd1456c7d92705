//! What happened, as data: who told whom what and what became of it, how nodes changed, what was done to them.
//!
//! People read it as [`lines`], one an event; programs as [`json`] lines; [`crate::draw`] draws it. None of them knows
//! anything else of a run.

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

/// Who takes part in what happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Party {
    /// A node.
    Node(NodeId),
    /// The guardian of a node.
    Guardian(NodeId),
    /// The store.
    Store,
    /// Those who ask nodes for something.
    Clients,
}

/// What becomes of a message on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// When it arrives: once, twice, or not at all.
    pub arrivals: [Option<Moment>; 2],
    /// What is remarkable about it.
    pub remark: Option<Remark>,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Somebody says something.
    Says {
        /// Who.
        from: Party,
        /// To whom.
        to: Party,
        /// The kind of message.
        kind: &'static str,
        /// What, for people; it begins with the kind.
        text: String,
        /// What becomes of it.
        way: Way,
    },
    /// A message arrives so late that it is worth a line.
    Hears {
        /// Who hears it.
        to: Party,
        /// Whose words they are.
        from: Party,
        /// The kind of message.
        kind: &'static str,
        /// What, for people.
        text: String,
        /// When it was sent.
        sent_at: Moment,
    },
    /// A node's application is told something, or something happens to a node.
    Node {
        /// Whose it is.
        who: Party,
        /// What it changes.
        turn: Turn,
        /// What, as a sentence whose subject is the node.
        text: String,
    },
    /// Somebody or chance does something to these, or wants something of them.
    Deed {
        /// To whom; to everything, if none is named.
        to: Vec<Party>,
        /// What, in the words of a script's command.
        text: String,
    },
    /// A write of a leader's work comes to the resource.
    Write {
        /// Whose work it is.
        node: NodeId,
        /// The token that it shows, if it has one.
        token: Option<FencingToken>,
        /// Whether the resource takes it.
        accepted: bool,
        /// The line, for people.
        text: String,
    },
    /// An invariant is broken.
    Breach {
        /// Which.
        invariant: &'static str,
        /// How.
        text: String,
    },
    /// Something else happens.
    World {
        /// What.
        text: String,
    },
}

/// What changes for a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// A process begins its life.
    Begins,
    /// It asks for votes, or for the record, from now on.
    Stands,
    /// It does so no more, and does not lead.
    StandsNoMore,
    /// It leads from now on.
    Leads {
        /// In this term.
        term: Term,
        /// With this token, if there is one.
        token: Option<FencingToken>,
        /// Until then in true time, if nothing comes between.
        until: Moment,
    },
    /// Its leadership is prolonged.
    Renewed {
        /// Until then in true time.
        until: Moment,
    },
    /// It drains its work to give up the lead.
    Drains,
    /// It leads no more.
    Deposed,
    /// It takes this node for the leader from now on, or nobody.
    Names(Option<NodeId>),
    /// It has seen what must never be.
    Alarm,
    /// Its process is gone.
    Ends,
    /// Its process stands still.
    Paused,
    /// Its process goes on.
    Resumed,
    /// Nothing that is told by itself.
    Nothing,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When.
    pub at: Moment,
    /// How much it matters.
    pub level: Level,
    /// What.
    pub what: What,
}

/// The entries that are wanted, or only a number that any difference between two runs would change.
#[derive(Clone, Debug)]
pub struct Trace {
    /// What is told.
    keep: Levels,
    entries: Vec<Entry>,
    /// What is kept besides, to be drawn or given to programs.
    recorded: Option<Recording>,
    digest: Option<u64>,
    /// The nodes of which it was said that they campaign.
    standing: BTreeSet<NodeId>,
}

#[derive(Clone, Debug)]
struct Recording {
    /// `None` for what is told, and the scene around it.
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
            standing: BTreeSet::new(),
        }
    }

    /// A trace that keeps no entry, and of each only what it adds to the digest.
    #[must_use]
    pub fn digesting() -> Self {
        let keep = Levels::down_to(Level::Disk).with(Level::Scene, false); // What a scene shows, comes of the rest.
        Self { keep, digest: Some(0xcbf2_9ce4_8422_2325), ..Self::keeping(&[]) }
    }

    /// Keeps the entries of this level from now on, or does not.
    pub fn show(&mut self, level: Level, wanted: bool) {
        self.keep = self.keep.with(level, wanted);
    }

    /// The levels of which entries are kept.
    #[must_use]
    pub const fn kept(&self) -> Levels {
        self.keep
    }

    /// Keeps the entries of these levels from now on, and no others.
    pub const fn set_kept(&mut self, levels: Levels) {
        self.keep = levels;
    }

    /// Keeps entries a second time, apart from those that are taken while the run goes on: those of these levels, or if
    /// none are given, those that are told, and the scene around them. Renewals are always among them: without them a
    /// lead that goes on would look like one that has run out.
    pub fn record(&mut self, levels: Option<Levels>) {
        self.recorded = Some(Recording { levels, entries: Vec::new() });
    }

    /// Takes the entries that were recorded so far.
    pub fn take_recorded(&mut self) -> Vec<Entry> {
        self.recorded.as_mut().map(|recording| core::mem::take(&mut recording.entries)).unwrap_or_default()
    }

    fn records(&self, entry: &Entry) -> bool {
        let told = self.keep.with(Level::Scene, true);
        let wanted = |recording: &Recording| recording.levels.unwrap_or(told).contain(entry.level);
        self.recorded.as_ref().is_some_and(|recording| wanted(recording) || entry.prolongs())
    }

    /// Whether entries of this level are wanted; ask before making one.
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

    /// Takes the entries that have come together.
    pub fn take(&mut self) -> Vec<Entry> {
        core::mem::take(&mut self.entries)
    }

    /// The digest, if this trace makes one.
    #[must_use]
    pub const fn digest(&self) -> Option<u64> {
        self.digest
    }

    /// Notes whether a node campaigns, and says whether that is news.
    pub fn notes_standing(&mut self, node: NodeId, stands: bool) -> bool {
        if stands { self.standing.insert(node) } else { self.standing.remove(&node) }
    }
}

impl Entry {
    /// Whether it says that a lead goes on.
    #[must_use]
    pub const fn prolongs(&self) -> bool {
        matches!(self.what, What::Node { turn: Turn::Renewed { .. }, .. })
    }
}

impl Turn {
    /// What an event changes for its node; `when` says when its clock will show an instant.
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
    /// Whether whoever skims a trace must not miss it.
    #[must_use]
    pub const fn is_loud(self) -> bool {
        match self {
            Self::Leads { .. } | Self::Drains | Self::Deposed | Self::Alarm | Self::Ends => true,
            Self::Begins | Self::Stands | Self::StandsNoMore | Self::Renewed { .. } => false,
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

/// FNV-1a over what is written to it: enough to notice that two runs differ.
struct Fold(u64);

impl fmt::Write for Fold {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }
}

/// The end of a belief, for people.
#[must_use]
pub fn until(moment: Moment) -> String {
    if moment == Moment::NEVER { "until further notice".to_owned() } else { format!("until {moment}") }
}

/// How long ago something was, where that is worth telling.
#[must_use]
pub fn is_late(sent_at: Moment, now: Moment) -> bool {
    now.since(sent_at) >= Duration::from_millis(100)
}

//! What happened, one line an event.

use core::fmt;

use primacy_core::{Duration, Endpoint, NodeId};

use crate::clock::Moment;
use crate::network::Remark;

/// Which lines are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// What applications are told, faults, and broken invariants.
    Event,
    /// What nodes say to each other and to the store.
    Message,
    /// What they say all the time, and the renewals that come of it.
    Heartbeat,
    /// What is written to disks, and who connects.
    Disk,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A node says something; the same thing to several, or from several, at the same time is one line.
    Says {
        /// Who.
        from: Vec<Endpoint>,
        /// To whom, and what is remarkable about the way.
        to: Vec<(Endpoint, Option<Remark>)>,
        /// What.
        text: String,
    },
    /// A message arrives so late that it is worth a line.
    Hears {
        /// Who hears it.
        to: Endpoint,
        /// Whose words they are.
        from: Endpoint,
        /// What.
        text: String,
        /// When it was sent.
        sent_at: Moment,
    },
    /// A node's application is told something, or something happens to a node; the same to several is one line.
    Node {
        /// Which.
        nodes: Vec<NodeId>,
        /// What, as a sentence whose subject is the node.
        text: String,
    },
    /// Something else happens.
    World {
        /// What.
        text: String,
    },
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When.
    pub at: Moment,
    /// How much it matters.
    pub level: Level,
    /// What.
    pub what: What,
}

/// The lines that are wanted, or only a number that any difference between two runs would change.
#[derive(Clone, Debug)]
pub struct Trace {
    keep: Vec<Level>,
    entries: Vec<Entry>,
    digest: Option<u64>,
}

impl Trace {
    /// A trace that keeps the lines of these levels.
    #[must_use]
    pub fn keeping(levels: &[Level]) -> Self {
        Self { keep: levels.to_vec(), entries: Vec::new(), digest: None }
    }

    /// A trace that keeps no line, and of each only what it adds to the digest.
    #[must_use]
    pub const fn digesting() -> Self {
        Self { keep: Vec::new(), entries: Vec::new(), digest: Some(0xcbf2_9ce4_8422_2325) }
    }

    /// Keeps the lines of this level from now on, or does not.
    pub fn show(&mut self, level: Level, wanted: bool) {
        self.keep.retain(|&kept| kept != level);
        if wanted {
            self.keep.push(level);
        }
    }

    /// The levels of which lines are kept.
    #[must_use]
    pub fn kept(&self) -> &[Level] {
        &self.keep
    }

    /// Keeps the lines of these levels from now on, and no others.
    pub fn set_kept(&mut self, levels: &[Level]) {
        self.keep = levels.to_vec();
    }

    /// Whether lines of this level are wanted; ask before making one.
    #[must_use]
    pub fn wants(&self, level: Level) -> bool {
        self.digest.is_some() || self.keep.contains(&level)
    }

    /// Adds a line.
    pub fn add(&mut self, entry: Entry) {
        if let Some(digest) = &mut self.digest {
            // FNV-1a: enough to notice that two runs differ.
            for byte in entry.to_string().bytes() {
                *digest = (*digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
            return;
        }
        if !self.keep.contains(&entry.level) {
            return;
        }
        let joined = self
            .entries
            .last_mut()
            .is_some_and(|last| last.at == entry.at && last.what.takes_in(&entry.what));
        if !joined {
            self.entries.push(entry);
        }
    }

    /// Takes the lines that have come together.
    pub fn take(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.entries)
    }

    /// The digest, if this trace makes one.
    #[must_use]
    pub const fn digest(&self) -> Option<u64> {
        self.digest
    }
}

impl What {
    /// Makes one line of two that say the same.
    fn takes_in(&mut self, next: &Self) -> bool {
        match (self, next) {
            (Self::Node { nodes, text }, Self::Node { nodes: more, text: same }) if text == same => {
                nodes.extend_from_slice(more);
                true
            }
            (Self::Says { from, to, text }, Self::Says { from: from_next, to: to_next, text: same })
                if text == same =>
            {
                if from == from_next {
                    to.extend_from_slice(to_next);
                    return true;
                }
                if to == to_next && to.len() == 1 {
                    from.extend_from_slice(from_next);
                    return true;
                }
                false
            }
            (
                Self::Says { .. } | Self::Hears { .. } | Self::Node { .. } | Self::World { .. },
                Self::Says { .. } | Self::Hears { .. } | Self::Node { .. } | Self::World { .. },
            ) => false,
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>8}  ", self.at)?;
        match &self.what {
            What::Says { from, to, text } => {
                let to = joined(to, |&(to, remark)| addressee(to, remark));
                write!(f, "{} → {}  {text}", joined(from, |&from| name(from)), to)
            }
            What::Hears { to, from, text, sent_at } => {
                write!(f, "{} ← {}  {text} (sent at {sent_at})", name(*to), name(*from))
            }
            What::Node { nodes, text } => write!(f, "{} {text}", joined(nodes, ToString::to_string)),
            What::World { text } => f.write_str(text),
        }
    }
}

fn joined<T>(items: &[T], text: impl Fn(&T) -> String) -> String {
    items.iter().map(text).collect::<Vec<String>>().join(" ")
}

fn name(endpoint: Endpoint) -> String {
    match endpoint {
        Endpoint::Node(node) => node.to_string(),
        Endpoint::Store => "store".to_owned(),
    }
}

fn addressee(to: Endpoint, remark: Option<Remark>) -> String {
    let name = name(to);
    match remark {
        None => name,
        Some(Remark::Cut) => format!("{name}(cut)"),
        Some(Remark::Unconnected) => format!("{name}(not connected)"),
        Some(Remark::Lost) => format!("{name}(lost)"),
        Some(Remark::Doubled) => format!("{name}(twice)"),
        Some(Remark::Late(later)) => format!("{name}(late by {later})"),
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

//! Identities: a node by its name, and one incarnation of its process.

use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};

/// The name of a node: 1 to 63 bytes of letters, digits, `.`, `_`, `-` and `:`.
///
/// Names are ordered by their bytes; where an algorithm needs an order of nodes, it is this one. The bytes are stored
/// inline, so that a `NodeId` is `Copy`, and a machine that contains names is cloned, hashed and compared without
/// following pointers.
#[derive(Clone, Copy)]
pub struct NodeId {
    // Padded with zeros, which no name contains, so the arrays order as the names do.
    bytes: [u8; NodeId::LENGTH_MAX],
    length: u8,
}

/// The reason why a text is no [`NodeId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeIdError {
    /// The name is empty.
    Empty,
    /// The name has more than [`NodeId::LENGTH_MAX`] bytes; this many.
    TooLong(usize),
    /// The name has a character other than letters, digits, `.`, `_`, `-` and `:`.
    Character(char),
}

impl NodeId {
    /// The longest name, in bytes.
    pub const LENGTH_MAX: usize = 63;

    /// Parses a name.
    ///
    /// # Errors
    /// [`NodeIdError`] if the name is empty, too long, or has a character that is not allowed.
    pub fn new(name: &str) -> Result<Self, NodeIdError> {
        if name.is_empty() {
            return Err(NodeIdError::Empty);
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':');
        if let Some(character) = name.chars().find(|&c| !allowed(c)) {
            return Err(NodeIdError::Character(character));
        }
        let mut bytes = [0; Self::LENGTH_MAX];
        let Some(place) = bytes.get_mut(..name.len()) else {
            return Err(NodeIdError::TooLong(name.len()));
        };
        place.copy_from_slice(name.as_bytes());
        let length = u8::try_from(name.len()).expect("at most LENGTH_MAX");
        Ok(Self { bytes, length })
    }

    /// The first eight bytes as a big-endian number, and true if the name has no byte after them (it is shorter than
    /// eight bytes).
    const fn head(&self) -> (u64, bool) {
        let [a, b, c, d, e, f, g, h, ..] = self.bytes;
        (u64::from_be_bytes([a, b, c, d, e, f, g, h]), self.length < 8)
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let name = &self.bytes[..usize::from(self.length)];
        core::str::from_utf8(name).expect("only ASCII gets in")
    }
}

/// Orders names by their bytes. Most names are short and machines compare them often, so the rest is read only if the
/// first eight bytes are equal.
impl Ord for NodeId {
    fn cmp(&self, other: &Self) -> Ordering {
        let (head, is_all) = self.head();
        let decided = head.cmp(&other.head().0);
        if decided == Ordering::Equal && !is_all { self.bytes.cmp(&other.bytes) } else { decided }
    }
}

impl PartialOrd for NodeId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for NodeId {
    fn eq(&self, other: &Self) -> bool {
        let (head, is_all) = self.head();
        head == other.head().0 && (is_all || self.bytes == other.bytes)
    }
}

impl Eq for NodeId {}

/// Hashes the name without its padding: machines that hold names are hashed often in a search.
impl Hash for NodeId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes[..usize::from(self.length)].hash(state);
    }
}

impl core::str::FromStr for NodeId {
    type Err = NodeIdError;
    fn from_str(name: &str) -> Result<Self, NodeIdError> {
        Self::new(name)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for NodeIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("a node needs a name; this one is empty"),
            Self::TooLong(length) => {
                write!(f, "a node's name has at most {} bytes; this one has {length}", NodeId::LENGTH_MAX)
            }
            Self::Character(character) => write!(
                f,
                "a node's name has only letters, digits, '.', '_', '-' and ':'; this one has {character:?}"
            ),
        }
    }
}

impl core::error::Error for NodeIdError {}

/// One run of a node's process.
///
/// The counter is durable and grows with every start, for people to read; the nonce is drawn anew at every start, so
/// that a disk restored from a backup never repeats an incarnation. Two incarnations are equal only if both fields are
/// equal; their order has no meaning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation {
    /// The number of times the node has started.
    pub count: u64,
    /// A number drawn at random at each start.
    pub nonce: u64,
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:016x}", self.count, self.nonce)
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One incarnation of one node: what votes and promises are given to, and what holds a lease.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// The node.
    pub node: NodeId,
    /// The incarnation of its process.
    pub incarnation: Incarnation,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.node, self.incarnation)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_or_refused_with_a_reason() {
        assert_eq!(NodeId::new("host-1.example_a:7").unwrap().as_str(), "host-1.example_a:7");
        assert_eq!(NodeId::new(&"x".repeat(63)).unwrap().as_str().len(), 63);
        assert_eq!(NodeId::new(""), Err(NodeIdError::Empty));
        assert_eq!(NodeId::new(&"x".repeat(64)), Err(NodeIdError::TooLong(64)));
        assert_eq!(NodeId::new("a b"), Err(NodeIdError::Character(' ')));
        assert_eq!(NodeId::new("é"), Err(NodeIdError::Character('é')));
    }

    #[test]
    fn names_are_ordered_like_their_texts() {
        let long = ["node-abc", "node-abcd", "node-abce", "node-abd"];
        let names = ["a", "a-b", "aa", "b", "n1", "n10", "n2"].into_iter().chain(long).collect::<Vec<&str>>();
        for (one, other) in names.iter().flat_map(|one| names.iter().map(move |other| (one, other))) {
            let ids = (NodeId::new(one).unwrap(), NodeId::new(other).unwrap());
            assert_eq!((ids.0.cmp(&ids.1), ids.0 == ids.1), (one.cmp(other), one == other));
        }
        let mut ids: Vec<NodeId> = names.iter().rev().map(|name| NodeId::new(name).unwrap()).collect();
        ids.sort();
        assert_eq!(ids.iter().map(NodeId::as_str).collect::<Vec<_>>(), names);
    }
}

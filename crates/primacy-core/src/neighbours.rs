//! The neighbours of a node on a ring with missing nodes, for the elections on rings.
//!
//! In each direction a node sends to the nearest node that it does not mark as gone. It marks a node as gone when its
//! connection closes, its death is reported, or it does not confirm a message in time, and as present as soon as it
//! hears from it. While nodes disagree about this, a message may skip a node, or pass it twice; the election's message
//! numbers and timers handle both.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::id::{Identity, Incarnation, NodeId};
use crate::protocol::Evidence;

/// A way around the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// In the order in which the nodes are configured.
    Onward,
    /// Against it.
    Back,
}

/// The ring as one node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Neighbours {
    /// All nodes, in the order of the ring. Shared, because a simulated ring has thousands of nodes.
    ring: Arc<[NodeId]>,
    /// The index of this node.
    position: usize,
    gone: BTreeSet<NodeId>,
    /// The latest incarnation heard of each node: a report of the death of an earlier one is ignored.
    lives: BTreeMap<NodeId, Incarnation>,
}

impl Direction {
    /// The opposite direction.
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Onward => Self::Back,
            Self::Back => Self::Onward,
        }
    }
}

impl Neighbours {
    /// The ring, as the node of this name sees it; `None` if it is not on it, or a name is on it twice.
    #[must_use]
    pub fn new(ring: Arc<[NodeId]>, me: NodeId) -> Option<Self> {
        let position = ring.iter().position(|&node| node == me)?;
        is_ring(&ring).then(|| Self::at(position, ring))
    }

    /// The views of all nodes of the ring, in its order; `None` if a name is on it twice.
    #[must_use]
    pub fn all(ring: &Arc<[NodeId]>) -> Option<Vec<Self>> {
        is_ring(ring).then(|| (0..ring.len()).map(|position| Self::at(position, Arc::clone(ring))).collect())
    }

    const fn at(position: usize, ring: Arc<[NodeId]>) -> Self {
        Self { ring, position, gone: BTreeSet::new(), lives: BTreeMap::new() }
    }

    /// The number of nodes on the ring, present or gone.
    #[must_use]
    pub fn count(&self) -> usize {
        self.ring.len()
    }

    /// True if the node is on the ring. Searches the nearest nodes first, because most messages come from them.
    #[must_use]
    pub fn knows(&self, node: NodeId) -> bool {
        let count = self.ring.len();
        (0..=count / 2).any(|step| {
            let (onward, back) = ((self.position + step) % count, (self.position + count - step) % count);
            self.ring[onward] == node || self.ring[back] == node
        })
    }

    /// The next node in this direction that is not gone; `None` if all others are.
    #[must_use]
    pub fn next(&self, direction: Direction) -> Option<NodeId> {
        self.others(direction).find(|node| !self.gone.contains(node))
    }

    /// The nodes that are skipped on the way to the next one, in either direction; some of them twice.
    pub fn skipped(&self) -> impl Iterator<Item = NodeId> {
        let passed_over = |direction| self.others(direction).take_while(|node| self.gone.contains(node));
        passed_over(Direction::Onward).chain(passed_over(Direction::Back))
    }

    /// True if the node is marked as gone.
    #[must_use]
    pub fn is_gone(&self, node: NodeId) -> bool {
        self.gone.contains(&node)
    }

    /// All others, the nearest in this direction first.
    fn others(&self, direction: Direction) -> impl Iterator<Item = NodeId> {
        let count = self.ring.len();
        let place = move |step| match direction {
            Direction::Onward => (self.position + step) % count,
            Direction::Back => (self.position + count - step) % count,
        };
        (1..count).map(move |step| self.ring[place(step)])
    }

    /// Marks a node as gone, because it has not answered in time.
    pub fn suspect(&mut self, node: NodeId) {
        self.gone.insert(node);
    }

    /// Marks a node as present, because this incarnation of it was heard.
    pub fn heard(&mut self, identity: Identity) {
        self.gone.remove(&identity.node);
        self.lives.insert(identity.node, identity.incarnation);
    }

    /// Applies evidence about a node.
    pub fn learn(&mut self, evidence: Evidence) {
        match evidence {
            Evidence::Connected(peer) => self.heard(peer.identity),
            Evidence::Disconnected(node) => self.suspect(node),
            Evidence::Died(Identity { node, incarnation }) => {
                if self.lives.get(&node).is_none_or(|&life| life == incarnation) {
                    self.suspect(node);
                }
            }
            Evidence::Readmitted { .. } | Evidence::DiskRefused { .. } => {} // There is no vote that a disk could lose.
        }
    }
}

/// True if no name occurs twice.
fn is_ring(nodes: &[NodeId]) -> bool {
    let names: BTreeSet<&NodeId> = nodes.iter().collect();
    names.len() == nodes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeId {
        NodeId::new(name).unwrap()
    }

    fn life(name: &str, nonce: u64) -> Identity {
        Identity::new(node(name), Incarnation { count: 1, nonce })
    }

    #[test]
    fn the_end_of_an_earlier_life_says_nothing() {
        let mut a = Neighbours::new(["a", "b"].map(node).into(), node("a")).unwrap();
        a.heard(life("b", 2));
        a.learn(Evidence::Died(life("b", 1)));
        assert!(!a.is_gone(node("b")));
        a.learn(Evidence::Died(life("b", 2)));
        assert!(a.is_gone(node("b")));
    }

    #[test]
    fn the_next_one_is_whoever_is_there() {
        let ring: Arc<[NodeId]> = ["c", "a", "d", "b"].map(node).into();
        let mut a = Neighbours::new(Arc::clone(&ring), node("a")).unwrap();
        assert_eq!((a.next(Direction::Onward), a.next(Direction::Back)), (Some(node("d")), Some(node("c"))));
        a.suspect(node("d"));
        a.suspect(node("c"));
        assert_eq!((a.next(Direction::Onward), a.next(Direction::Back)), (Some(node("b")), Some(node("b"))));
        a.heard(life("c", 1));
        a.learn(Evidence::Disconnected(node("b")));
        assert_eq!((a.next(Direction::Onward), a.next(Direction::Back)), (Some(node("c")), Some(node("c"))));
        a.suspect(node("c"));
        assert_eq!(a.next(Direction::Onward), None);
        assert_eq!(Neighbours::new(Arc::clone(&ring), node("e")), None);
        a.heard(life("d", 1));
        assert_eq!(a.skipped().collect::<Vec<NodeId>>(), [node("c"), node("b")], "d is there");
        assert!(a.knows(node("c")) && a.is_gone(node("c")) && !a.knows(node("e")));
        assert_eq!(
            Neighbours::all(&ring).unwrap()[1],
            Neighbours::new(Arc::clone(&ring), node("a")).unwrap()
        );
        assert_eq!(
            Neighbours::new(["a", "b", "a"].map(node).into(), node("a")),
            None,
            "one of them is there twice"
        );
        assert_eq!(Neighbours::new([node("a")].into(), node("a")).unwrap().next(Direction::Back), None);
    }
}

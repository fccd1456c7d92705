//! Who is next on a ring, when some are not there: what the elections on rings share.
//!
//! A node sends to the next one in each direction that it does not take to be gone. It takes one to be gone whose connection
//! has closed, whose death was vouched for, or that has not said in time that it received something; and to be back as
//! soon as it hears from it. As long as two nodes disagree, a message may leave somebody out, or come round twice; numbers and
//! timers of the election make up for that.

use alloc::collections::BTreeSet;
use alloc::sync::Arc;

use crate::id::NodeId;
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
    /// All nodes, in the order of the ring. Shared, for a simulated ring has thousands.
    ring: Arc<[NodeId]>,
    /// Where this node is.
    position: usize,
    gone: BTreeSet<NodeId>,
}

impl Direction {
    /// The other one.
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Onward => Self::Back,
            Self::Back => Self::Onward,
        }
    }
}

impl Neighbours {
    /// The ring, as the node of this name sees it; `None` if it is not on it, or somebody is on it twice.
    #[must_use]
    pub fn new(ring: Arc<[NodeId]>, me: NodeId) -> Option<Self> {
        let position = ring.iter().position(|&node| node == me)?;
        let names: BTreeSet<&NodeId> = ring.iter().collect();
        (names.len() == ring.len()).then(|| Self { position, gone: BTreeSet::new(), ring: Arc::clone(&ring) })
    }

    /// How many are on the ring, whether they are there or not.
    #[must_use]
    pub fn count(&self) -> usize {
        self.ring.len()
    }

    /// Whether it is on the ring.
    #[must_use]
    pub fn knows(&self, node: NodeId) -> bool {
        self.ring.contains(&node)
    }

    /// The next one in this direction that is not gone; `None` if all others are.
    #[must_use]
    pub fn next(&self, direction: Direction) -> Option<NodeId> {
        let count = self.ring.len();
        let steps = (1..count).map(|step| match direction {
            Direction::Onward => (self.position + step) % count,
            Direction::Back => (self.position + count - step) % count,
        });
        steps.map(|place| self.ring[place]).find(|node| !self.gone.contains(node))
    }

    /// It has not answered in time.
    pub fn suspect(&mut self, node: NodeId) {
        self.gone.insert(node);
    }

    /// It was heard.
    pub fn heard(&mut self, node: NodeId) {
        self.gone.remove(&node);
    }

    /// What is known without a message.
    pub fn learn(&mut self, evidence: Evidence) {
        match evidence {
            Evidence::Connected(peer) => self.heard(peer.identity.node),
            Evidence::Disconnected(node) => self.suspect(node),
            Evidence::Died(identity) => self.suspect(identity.node),
            Evidence::Readmitted { .. } => {} // There is no vote that a disk could lose.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeId {
        NodeId::new(name).unwrap()
    }

    #[test]
    fn the_next_one_is_whoever_is_there() {
        let ring: Arc<[NodeId]> = ["c", "a", "d", "b"].map(node).into();
        let mut a = Neighbours::new(Arc::clone(&ring), node("a")).unwrap();
        assert_eq!((a.next(Direction::Onward), a.next(Direction::Back)), (Some(node("d")), Some(node("c"))));
        a.suspect(node("d"));
        a.suspect(node("c"));
        assert_eq!((a.next(Direction::Onward), a.next(Direction::Back)), (Some(node("b")), Some(node("b"))));
        a.heard(node("c"));
        a.learn(Evidence::Disconnected(node("b")));
        assert_eq!((a.next(Direction::Onward), a.next(Direction::Back)), (Some(node("c")), Some(node("c"))));
        a.suspect(node("c"));
        assert_eq!(a.next(Direction::Onward), None);
        assert_eq!(Neighbours::new(Arc::clone(&ring), node("e")), None);
        assert_eq!(
            Neighbours::new(["a", "b", "a"].map(node).into(), node("a")),
            None,
            "one of them is there twice"
        );
        assert_eq!(Neighbours::new([node("a")].into(), node("a")).unwrap().next(Direction::Back), None);
    }
}

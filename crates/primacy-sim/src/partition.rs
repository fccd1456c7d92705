//! The three shapes of partitions in which elections get stuck (OmniPaxos, EuroSys 2023, section 2): each node
//! reaches different nodes.

/// A shape, relative to the leader at the time when the links fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Only one node reaches a majority. It is not the leader, and still hears the leader.
    QuorumLoss,
    /// Only one node reaches a majority, and the leader reaches no node.
    ConstrainedElection,
    /// Each node reaches only its neighbours, and some nodes do not hear the leader.
    Chained,
}

impl Shape {
    /// Returns the shape of these links for this leader; `None` if it is none of the three.
    #[must_use]
    pub fn of(nodes: usize, leader: usize, linked: impl Fn(usize, usize) -> bool) -> Option<Self> {
        let links = |a: usize| (0..nodes).filter(|&b| b != a && linked(a, b)).count();
        let able: Vec<usize> = (0..nodes).filter(|&a| links(a) + 1 > nodes / 2).collect();
        match *able {
            [hub] if hub != leader && links(leader) == 0 => Some(Self::ConstrainedElection),
            [hub] if hub != leader && linked(hub, leader) => Some(Self::QuorumLoss),
            _ if links(leader) + 1 < nodes && is_chain(nodes, &linked) => Some(Self::Chained),
            _ => None,
        }
    }

    /// The name of the counter of packets that this shape drops.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::QuorumLoss => "partition: quorum loss",
            Self::ConstrainedElection => "partition: constrained election",
            Self::Chained => "partition: chained",
        }
    }
}

/// True if the links form a chain: all nodes are connected, none has more than two neighbours, and two have only one.
fn is_chain(nodes: usize, linked: &impl Fn(usize, usize) -> bool) -> bool {
    let neighbours = |a: usize| (0..nodes).filter(move |&b| b != a && linked(a, b));
    let Some(end) = (0..nodes).find(|&a| neighbours(a).count() == 1) else { return false };
    let (mut chain, mut last) = (vec![end], end);
    while let Some(next) = neighbours(last).find(|next| !chain.contains(next)) {
        chain.push(next);
        last = next;
    }
    let links: usize = (0..nodes).map(|a| neighbours(a).count()).sum();
    chain.len() == nodes && links == 2 * (nodes - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(nodes: usize, leader: usize, links: &[(usize, usize)]) -> Option<Shape> {
        Shape::of(nodes, leader, |a, b| links.contains(&(a, b)) || links.contains(&(b, a)))
    }

    #[test]
    fn shapes_are_what_the_leader_and_the_others_still_reach() {
        let star = [(2, 0), (2, 1), (2, 3), (2, 4)];
        assert_eq!(shape(5, 0, &star), Some(Shape::QuorumLoss));
        assert_eq!(shape(5, 2, &star), None, "the leader is the one that reaches all");
        let without_leader = [(2, 1), (2, 3), (2, 4)];
        assert_eq!(shape(5, 0, &without_leader), Some(Shape::ConstrainedElection));
        assert_eq!(shape(5, 1, &without_leader), Some(Shape::QuorumLoss), "the other one is only down");
        let chain = [(0, 1), (1, 2), (2, 3), (3, 4)];
        assert_eq!([shape(5, 0, &chain), shape(5, 2, &chain)], [Some(Shape::Chained); 2]);
        assert_eq!(shape(3, 0, &[(0, 1), (1, 2)]), Some(Shape::Chained));
        assert_eq!(shape(3, 1, &[(0, 1), (1, 2)]), None, "all hear the leader");
        assert_eq!(shape(3, 0, &[(1, 2)]), None, "that is an isolated leader");
        assert_eq!(shape(5, 0, &[(0, 1), (2, 3), (3, 4), (4, 2)]), None, "these are two parts");
        assert_eq!(shape(3, 0, &[(0, 1), (1, 2), (0, 2)]), None, "nothing is wrong");
        assert_eq!([shape(2, 0, &[]), shape(1, 0, &[])], [None; 2]);
    }
}

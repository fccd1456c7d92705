//! Ring (Chang and Roberts 1979): a probe that goes round carries the highest name that it has met.
//! Assumes   a ring on which everybody reaches the next one that is alive; crashes, not partitions.
//! Promises  at most one leader *only while that holds*; a partition elects two. No token.
//! Costs     with all n nodes starting, n·Hₙ probes on the average over all rings, 2n − 1 at best, n(n + 1)/2 at worst; and n
//!           messages to announce the leader. Each heartbeat is n messages.   Prefer `quorum`; or let one confirm it.
//!
//! How it goes: whoever misses the leader sends a probe with its own name. A node passes on a probe with a higher name than its
//! own; a lower one it replaces by its own, once, and swallows after that. A node that its own name comes back to has the
//! highest one, and [says so](super::on_a_ring).

use alloc::vec;
use alloc::vec::Vec;

use super::on_a_ring::{Found, OnARing, Place, Probing};
use crate::id::Identity;
use crate::neighbours::Direction;

/// The machine of one node.
pub type Ring = OnARing<ChangRoberts>;

/// What a node remembers of one round.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ChangRoberts {
    /// Its own name has left it, or a higher one, against which it cannot win.
    takes_part: bool,
}

/// The highest name so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Probe {
    /// Whose name it is.
    pub candidate: Identity,
    /// How many have passed it on.
    pub hops: u32,
}

impl Probing for ChangRoberts {
    type Probe = Probe;

    fn begin(&mut self, me: Identity) -> Vec<(Direction, Probe)> {
        self.takes_part = true;
        vec![(Direction::Onward, Probe { candidate: me, hops: 0 })]
    }

    fn take(&mut self, at: Place, direction: Direction, probe: Probe) -> Found<Probe> {
        let Probe { candidate, hops } = probe;
        if candidate == at.me && at.stands {
            Found::Highest
        } else if candidate.node > at.me.node || (!at.stands && candidate.node != at.me.node) {
            self.takes_part = true;
            // What has met as many nodes as there are goes no further: its own node is not there any more.
            let goes_on = (hops as usize) + 1 < at.count;
            Found::Send(
                goes_on.then_some((direction, Probe { candidate, hops: hops + 1 })).into_iter().collect(),
            )
        } else if candidate.node < at.me.node && !self.takes_part {
            Found::Send(self.begin(at.me)) // In place of the lower one.
        } else {
            Found::Send(Vec::new()) // A lower name, or that of an earlier life.
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use alloc::collections::VecDeque;
    use alloc::sync::Arc;

    use super::super::on_a_ring::{Body, Config, Message};
    use super::*;
    use crate::id::{Incarnation, NodeId};
    use crate::protocol::{Command, Endpoint, Input, Output, Protocol as _};
    use crate::time::{Duration, Instant};

    /// How many probes and how many announcements it takes if all of this ring start at once.
    fn counted(ring: &[usize]) -> (u64, u64) {
        let names: Arc<[NodeId]> =
            ring.iter().map(|place| NodeId::new(&std::format!("n{place:02}")).unwrap()).collect();
        let now = Instant::default();
        let mut nodes: BTreeMap<NodeId, Ring> =
            names.iter().map(|&name| (name, machine(&names, name))).collect();
        let mut under_way = VecDeque::new();
        for (&name, node) in &mut nodes {
            node.handle(now, Input::Command(Command::Campaign));
            node.initiate(now);
            take(node, name, &mut under_way);
        }
        let (mut probes, mut announcements) = (0, 0);
        while let Some((from, to, message)) = under_way.pop_front() {
            match message.body {
                Body::Probe { .. } => probes += 1,
                Body::Elected { .. } => announcements += 1,
                Body::Resigned { .. } | Body::Received => {}
            }
            let node = nodes.get_mut(&to).unwrap();
            node.handle(now, Input::Message { from: Endpoint::Node(from), message });
            take(node, to, &mut under_way);
        }
        let leaders: Vec<&NodeId> =
            nodes.iter().filter(|(_, node)| node.role() == "leading").map(|(name, _)| name).collect();
        assert_eq!(leaders, [names.iter().max().unwrap()]);
        (probes, announcements)
    }

    fn machine(ring: &Arc<[NodeId]>, name: NodeId) -> Ring {
        let millis = Duration::from_millis;
        let config = Config {
            me: Identity::new(name, Incarnation { count: 1, nonce: 1 }),
            ring: Arc::clone(ring),
            heartbeat_interval: millis(100),
            miss_count: 3,
            hop_timeout: millis(50),
            sticky: true,
        };
        Ring::new(config, Instant::default())
    }

    fn take(node: &mut Ring, name: NodeId, under_way: &mut VecDeque<(NodeId, NodeId, Message<Probe>)>) {
        while let Some(output) = node.poll() {
            match output {
                Output::Send { to: Endpoint::Node(to), message } => under_way.push_back((name, to, message)),
                Output::Send { to: Endpoint::Store, .. } | Output::Persist(()) => {
                    panic!("it has no store, and no disk")
                }
                Output::Event(_) => {}
            }
        }
    }

    /// Every order of these, as Heap's algorithm has them.
    fn orders(of: &mut [usize], count: usize, visit: &mut impl FnMut(&[usize])) {
        if count <= 1 {
            return visit(of);
        }
        for place in 0..count {
            orders(of, count - 1, visit);
            of.swap(if count % 2 == 0 { place } else { 0 }, count - 1);
        }
    }

    /// Chang and Roberts 1979: with all starting, 2n − 1 at best, n(n + 1)/2 at worst, and n·Hₙ on the average.
    #[test]
    fn every_ring_of_seven_or_fewer_takes_as_many_probes_as_the_formula_says() {
        for n in 2..=7_usize {
            let (mut sum, mut rings, mut best, mut worst) = (0, 0_u64, u64::MAX, 0);
            orders(&mut (0..n).collect::<Vec<usize>>(), n, &mut |ring| {
                let (probes, announcements) = counted(ring);
                assert_eq!(announcements, n as u64);
                (sum, rings) = (sum + probes, rings + 1);
                (best, worst) = (best.min(probes), worst.max(probes));
            });
            let n = n as u64;
            assert_eq!((best, worst), (2 * n - 1, n * (n + 1) / 2), "{n}");
            // n! · n · Hₙ is a whole number.
            let expected: u64 = (1..=n).map(|k| rings / k * n).sum();
            assert_eq!(sum, expected, "{n}");
        }
    }
}

//! Message complexity: the messages of an election, counted in the real machines and compared with the
//! formulas of its authors.
//!
//! Without faults: all links are equally fast, no message is lost, and all nodes begin at the same moment. So the
//! counts are the same in every run, and must equal each exact formula. Where a formula is only a bound, the count
//! must equal the exact number computed from the order of the ring.

pub mod formulas;
mod run;

use primacy_core::rng::Rng;

use run::Counted;

/// The maximum number of messages that are simulated; beyond it only the formula is drawn.
pub const MESSAGES_MAX: u64 = 3_000_000;

/// The largest number of nodes.
pub const NODES_MAX: usize = 100_000;

/// The seed of the random ring; the same in every run.
const RING_SEED: u64 = 1;

/// The elections whose messages are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedElection {
    /// `bully`: the highest name is dead.
    Bully,
    /// `ring`.
    Ring,
    /// `ring_bidirectional`.
    RingBidirectional,
}

/// The nodes that start the election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Initiators {
    /// All of them, at the same moment.
    All,
    /// One of them.
    One,
}

/// One case of an election, with its formula.
#[derive(Clone, Debug)]
pub struct Case {
    /// The name of the case.
    pub name: &'static str,
    /// The formula in mathematical notation.
    pub formula: &'static str,
    /// The number of messages among this many nodes, by the formula.
    pub expected: fn(u64) -> f64,
    /// True if the formula is an upper bound rather than an exact count.
    pub is_bound: bool,
    /// The counts.
    pub points: Vec<Point>,
}

/// The count among one number of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// The number of nodes.
    pub nodes: usize,
    /// The number of messages until one node was elected; on a ring without the announcements, which are one for each
    /// node.
    pub messages: u64,
    /// The exact expected number.
    pub exact: u64,
}

/// The input of a count: the order of the ring, and the nodes that begin.
struct Plan {
    name: &'static str,
    formula: &'static str,
    expected: fn(u64) -> f64,
    is_bound: bool,
    ring: fn(usize) -> Vec<usize>,
    begins: fn(usize) -> Begins,
}

/// The nodes that begin.
#[derive(Clone, Copy, Debug)]
enum Begins {
    All,
    /// The node of this rank among the names.
    Only(usize),
}

impl Point {
    /// True if the count is the exact number.
    #[must_use]
    pub const fn is_met(&self) -> bool {
        self.messages == self.exact
    }
}

impl CountedElection {
    /// The name, which is also that of the folder of its scripts.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bully => "bully",
            Self::Ring => "ring",
            Self::RingBidirectional => "ring_bidirectional",
        }
    }

    /// Counts among 2, 4, 8 … nodes and among `nodes`, in each case.
    ///
    /// # Panics
    /// If an election does not terminate, or a leader is not announced in as many messages as there are nodes.
    #[must_use]
    pub fn count(self, initiators: Initiators, nodes: usize) -> Vec<Case> {
        self.plans(initiators).into_iter().map(|plan| self.case(&plan, nodes)).collect()
    }

    fn case(self, plan: &Plan, nodes: usize) -> Case {
        let &Plan { name, formula, expected, is_bound, .. } = plan;
        let few = |&count: &usize| (expected)(count as u64) <= MESSAGES_MAX as f64;
        let counts = sizes(nodes).into_iter().filter(few);
        let points = counts.map(|count| self.point(plan, count)).collect();
        Case { name, formula, expected, is_bound, points }
    }

    fn point(self, plan: &Plan, nodes: usize) -> Point {
        let (ring, begins) = ((plan.ring)(nodes), (plan.begins)(nodes));
        let counted = match self {
            Self::Bully => run::bully(nodes, begins),
            Self::Ring => run::ring(&ring, begins),
            Self::RingBidirectional => run::ring_bidirectional(&ring, begins),
        };
        let exact = match (self, begins) {
            (Self::Bully, Begins::All) => formulas::bully(nodes, 0),
            (Self::Bully, Begins::Only(place)) => formulas::bully(nodes, place),
            (Self::Ring, Begins::All) => formulas::ring(&ring),
            (Self::RingBidirectional, Begins::All) => formulas::ring_bidirectional(&ring),
            (Self::Ring, Begins::Only(_)) => nodes as u64, // It is the highest.
            (Self::RingBidirectional, Begins::Only(_)) => formulas::ring_bidirectional_alone(nodes),
        };
        let Counted { elect, announce } = counted;
        let announced = if self == Self::Bully { 0 } else { nodes as u64 };
        assert_eq!(announce, announced, "{} nodes announce their leader", nodes);
        Point { nodes, messages: elect, exact }
    }

    fn plans(self, initiators: Initiators) -> Vec<Plan> {
        let plan = |name, formula, expected, ring, begins| Plan {
            name,
            formula,
            expected,
            is_bound: false,
            ring,
            begins,
        };
        let all = |_| Begins::All;
        let highest = |nodes: usize| Begins::Only(nodes - 1);
        match (self, initiators) {
            (Self::Bully, Initiators::All) => {
                vec![plan(
                    "all start, the highest is dead",
                    "n² − n − 1",
                    formulas::bully_most,
                    ascending,
                    all,
                )]
            }
            (Self::Bully, Initiators::One) => vec![
                plan("the lowest starts", "n² − n − 1", formulas::bully_most, ascending, |_| {
                    Begins::Only(0)
                }),
                plan(
                    "the second highest starts",
                    "n − 1",
                    |n| n as f64 - 1.0,
                    ascending,
                    |nodes| Begins::Only(nodes - 2),
                ),
            ],
            (Self::Ring, Initiators::All) => vec![
                plan("worst order", "n(n + 1)/2", |n| n as f64 * (n as f64 + 1.0) / 2.0, descending, all),
                plan("a random order", "n·Hₙ on the average", formulas::ring_mean, random, all),
                plan("best order", "2n − 1", |n| 2.0 * n as f64 - 1.0, ascending, all),
            ],
            (Self::Ring, Initiators::One) => {
                vec![plan("the highest starts", "n", |n| n as f64, random, highest)]
            }
            (Self::RingBidirectional, Initiators::All) => vec![
                Plan {
                    is_bound: true,
                    ..plan(
                        "a random order",
                        "at most 8n(1 + ⌈log₂ n⌉)",
                        formulas::both_ways_most,
                        random,
                        all,
                    )
                },
                plan(
                    "ascending order",
                    "4·2^⌈log₂ n⌉ + 5n − 8",
                    formulas::both_ways_ascending,
                    ascending,
                    all,
                ),
            ],
            (Self::RingBidirectional, Initiators::One) => vec![plan(
                "the highest starts",
                "4·2^⌈log₂ n⌉ + 2n − 4",
                formulas::both_ways_alone,
                random,
                highest,
            )],
        }
    }
}

impl Case {
    /// True if the formula is an average over random rings, from which a single ring may differ.
    #[must_use]
    pub fn is_mean(&self) -> bool {
        self.formula.ends_with("average")
    }

    /// True if every count is exact, and no bound was exceeded.
    #[must_use]
    pub fn is_met(&self) -> bool {
        let within =
            |point: &Point| !self.is_bound || point.messages as f64 <= (self.expected)(point.nodes as u64);
        self.points.iter().all(|point| point.is_met() && within(point))
    }
}

/// Returns the powers of two below `nodes`, and `nodes`.
fn sizes(nodes: usize) -> Vec<usize> {
    let powers = (1..usize::BITS - 1).map(|power| 1 << power).take_while(|&power| power < nodes);
    powers.chain([nodes]).collect()
}

/// Returns a ring on which each probe but that of the highest goes one hop.
fn ascending(nodes: usize) -> Vec<usize> {
    (0..nodes).collect()
}

/// Returns a ring on which each probe passes all lower names first.
fn descending(nodes: usize) -> Vec<usize> {
    (0..nodes).rev().collect()
}

fn random(nodes: usize) -> Vec<usize> {
    let mut rng = Rng::new(RING_SEED);
    let mut ring = ascending(nodes);
    for place in (1..nodes).rev() {
        let other = usize::try_from(rng.up_to(place as u64)).unwrap_or(0);
        ring.swap(place, other);
    }
    ring
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_is_met_to_the_message() {
        for election in [CountedElection::Bully, CountedElection::Ring, CountedElection::RingBidirectional] {
            for initiators in [Initiators::All, Initiators::One] {
                for case in election.count(initiators, 100) {
                    assert!(case.is_met(), "{case:?}");
                    assert_eq!(case.points.len(), 7, "2, 4, 8, 16, 32, 64 and 100: {case:?}");
                    let formula = |point: &Point| (case.expected)(point.nodes as u64);
                    let exact = |point: &Point| {
                        case.is_bound || case.is_mean() || formula(point) == point.exact as f64
                    };
                    assert!(
                        case.points.iter().all(exact),
                        "the formula that is drawn is the one that is met: {case:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn what_takes_too_many_messages_is_not_counted() {
        let cases = CountedElection::Ring.count(Initiators::All, 4_096);
        let counted = |case: &Case| case.points.last().map(|point| point.nodes);
        assert_eq!(cases.iter().map(counted).collect::<Vec<_>>(), [Some(2_048), Some(4_096), Some(4_096)]);
    }

    #[test]
    fn what_is_missed_is_seen() {
        let mut cases = CountedElection::RingBidirectional.count(Initiators::All, 4);
        cases[0].points[0].messages += 1;
        assert!(!cases[0].is_met());
    }
}

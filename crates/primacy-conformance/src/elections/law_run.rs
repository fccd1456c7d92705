//! A run of a law: its commands, its events, and the check of all events at the end.

use std::time::Duration;

use super::harness::{ElectionHarness, NAMES, NODES, NodeCommand, NodeEvent, NodeEventKind, Pace};

/// A run of a law.
pub struct LawRun<'a> {
    harness: &'a mut dyn ElectionHarness,
    /// All events so far.
    pub seen: Vec<NodeEvent>,
}

/// An election that was won.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Win {
    /// The node that won.
    pub node: usize,
    /// Its token.
    pub token: u64,
    /// Its term.
    pub term: u64,
    /// The time.
    pub at: u64,
}

/// The time for which a node has believed that it leads.
#[derive(Clone, Copy, Debug)]
struct Belief {
    node: usize,
    token: u64,
    from: u64,
    until: u64,
    has_ended: bool,
}

impl<'a> LawRun<'a> {
    /// Begins a new election, and starts all its nodes.
    pub async fn new(harness: &'a mut dyn ElectionHarness, election: &str, pace: Pace) -> Self {
        harness.begin(election, pace).await;
        let mut run = Self { harness, seen: Vec::new() };
        run.all(NodeCommand::Start).await;
        run
    }

    /// The arm.
    pub fn harness(&self) -> &dyn ElectionHarness {
        self.harness
    }

    /// Gives a command to a node.
    pub async fn command(&mut self, node: usize, command: NodeCommand) {
        self.harness.command(node, command).await;
    }

    /// Gives a command to all nodes.
    pub async fn all(&mut self, command: NodeCommand) {
        for node in 0..NODES {
            self.command(node, command).await;
        }
    }

    /// Waits until this event is observed.
    ///
    /// # Panics
    /// If it does not occur.
    pub async fn until(&mut self, what: &str, mut is_it: impl FnMut(&NodeEvent) -> bool) -> NodeEvent {
        let patience = u64::try_from(self.harness.patience().as_nanos()).unwrap_or(u64::MAX);
        let end = self.harness.now().saturating_add(patience);
        while self.harness.now() < end
            && let Some(seen) = self.harness.next().await
        {
            self.seen.push(seen);
            if is_it(&seen) {
                return seen;
            }
        }
        panic!("waited in vain for {what}; seen:\n{}", self.story());
    }

    /// Waits until a node that `may` allows is elected. Elections of other nodes are recorded meanwhile.
    pub async fn elected(&mut self, what: &str, mut may: impl FnMut(usize) -> bool) -> Win {
        let is_it = |seen: &NodeEvent| matches!(seen.what, NodeEventKind::Elected { .. }) && may(seen.node);
        let seen = self.until(what, is_it).await;
        win(&seen).expect("it is one")
    }

    /// Waits until this node has stopped acting as the leader.
    pub async fn ended(&mut self, node: usize) -> u64 {
        self.until("the end of a lead", |seen| seen.node == node && seen.what == NodeEventKind::Ended)
            .await
            .at
    }

    /// Makes a node write. Returns true if the resource has accepted the write.
    pub async fn write(&mut self, node: usize) -> bool {
        self.command(node, NodeCommand::Write).await;
        self.written(node).await
    }

    /// Waits for the resource's answer to a write of this node. Returns true if it has accepted the write.
    pub async fn written(&mut self, node: usize) -> bool {
        let is_it = |seen: &NodeEvent| seen.node == node && matches!(seen.what, NodeEventKind::Wrote { .. });
        let seen = self.until("the answer to a write", is_it).await;
        matches!(seen.what, NodeEventKind::Wrote { is_accepted: true, .. })
    }

    /// All elections so far.
    pub fn wins(&self) -> impl Iterator<Item = Win> {
        self.seen.iter().filter_map(win)
    }

    /// Checks that something did not exceed its bound, apart from the machine's own pauses.
    ///
    /// # Panics
    /// If it took longer.
    pub fn assert_within(&self, bound: Duration, (from, to): (u64, u64), what: &str) {
        let took = Duration::from_nanos(to.saturating_sub(from));
        let stalled = self.harness.stalled_since(from);
        assert!(
            took <= bound + stalled,
            "{what} took {took:?}, and the bound is {bound:?} (the machine's own pauses: {stalled:?})\n{}",
            self.story()
        );
    }

    /// Checks the guarantees of every run: no two nodes have led at the same time, and tokens have grown.
    ///
    /// # Panics
    /// If a guarantee was broken.
    pub fn judge(&self) {
        let breaches = self.harness.breaches();
        assert!(breaches.is_empty(), "{breaches:?}\n{}", self.story());
        let beliefs = self.beliefs();
        for (i, one) in beliefs.iter().enumerate() {
            for other in &beliefs[i + 1..] {
                let apart = one.until <= other.from || other.until <= one.from;
                assert!(apart, "two lead at a time: {one:?} and {other:?}\n{}", self.story());
                let (earlier, later) = if one.from < other.from { (one, other) } else { (other, one) };
                assert!(
                    earlier.token < later.token,
                    "the token {} comes after {}\n{}",
                    later.token,
                    earlier.token,
                    self.story()
                );
            }
        }
    }

    fn beliefs(&self) -> Vec<Belief> {
        let mut beliefs: Vec<Belief> = Vec::new();
        for NodeEvent { at, node, what } in self.seen.iter().copied() {
            let latest = beliefs.iter_mut().rfind(|belief| belief.node == node && !belief.has_ended);
            match (what, latest) {
                (NodeEventKind::Elected { token, until, .. }, _) => {
                    beliefs.push(Belief { node, token, from: at, until, has_ended: false });
                }
                (NodeEventKind::Renewed { until }, Some(belief)) => belief.until = until,
                (NodeEventKind::Ended, Some(belief)) => {
                    belief.until = belief.until.min(at);
                    belief.has_ended = true;
                }
                (NodeEventKind::Renewed { .. } | NodeEventKind::Ended, None)
                | (
                    NodeEventKind::Checked { .. } | NodeEventKind::Wrote { .. } | NodeEventKind::Saw { .. },
                    _,
                ) => {}
            }
        }
        beliefs
    }

    /// The events as text; of consecutive renewals only the last.
    fn story(&self) -> String {
        let is_renewal = |seen: &NodeEvent| matches!(seen.what, NodeEventKind::Renewed { .. });
        let is_repeated = |(place, seen): &(usize, &NodeEvent)| {
            let next = self.seen[place + 1..].iter().find(|next| next.node == seen.node);
            is_renewal(seen) && next.is_some_and(is_renewal)
        };
        let line = |seen: &NodeEvent| {
            let (seconds, nanos) = (seen.at / 1_000_000_000, seen.at % 1_000_000_000);
            format!("  {seconds}.{nanos:09} {} {:?}\n", NAMES[seen.node], seen.what)
        };
        let told = self.seen.iter().enumerate().filter(|seen| !is_repeated(seen));
        told.map(|(_, seen)| line(seen)).collect()
    }
}

fn win(seen: &NodeEvent) -> Option<Win> {
    match seen.what {
        NodeEventKind::Elected { term, token, .. } => Some(Win { node: seen.node, token, term, at: seen.at }),
        NodeEventKind::Renewed { .. }
        | NodeEventKind::Ended
        | NodeEventKind::Checked { .. }
        | NodeEventKind::Wrote { .. }
        | NodeEventKind::Saw { .. } => None,
    }
}

impl std::fmt::Debug for LawRun<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LawRun({}, {} seen)", self.harness.name(), self.seen.len())
    }
}

//! The listener of all live arms: it collects the nodes' reports, and passes their writes to the resource.

use std::time::Duration;

use primacy::clock;
use primacy_core::{Fence, FencingToken};
use tokio::sync::mpsc;

use super::candidate::{CandidateEvent, NodeReport};
use super::harness::{NodeEvent, NodeEventKind};
use crate::stalls::Stalls;

/// The time to wait for an expected event: far longer than any that works takes.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);

/// Listens to the nodes of one arm.
#[derive(Debug)]
pub(super) struct Listener {
    event: mpsc::UnboundedReceiver<(NodeIncarnation, NodeReport)>,
    tell: mpsc::UnboundedSender<(NodeIncarnation, NodeReport)>,
    /// The number of incarnations of nodes so far.
    lives: u64,
    resource: Fence,
    stalls: Stalls,
}

/// One incarnation of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeIncarnation {
    node: usize,
    /// Counted from 1; 0 for reports about a node after its end.
    number: u64,
}

/// The sender of the reports of one incarnation of a node.
#[derive(Clone, Debug)]
pub(super) struct Teller {
    life: NodeIncarnation,
    tell: mpsc::UnboundedSender<(NodeIncarnation, NodeReport)>,
}

impl Teller {
    /// Sends a report. After the end of a law the receiver is gone, and the report is lost.
    pub(super) fn tell(&self, report: NodeReport) {
        let _ = self.tell.send((self.life, report));
    }
}

impl Listener {
    pub(super) fn new() -> Self {
        let (tell, event) = mpsc::unbounded_channel();
        Self { event, tell, lives: 0, resource: Fence::default(), stalls: Stalls::watch() }
    }

    /// Begins the next law: with a new resource, and without earlier reports.
    pub(super) fn begin(&mut self) {
        self.resource = Fence::default();
        (self.tell, self.event) = mpsc::unbounded_channel();
    }

    /// Creates a new incarnation of this node, and its sender.
    pub(super) fn new_life(&mut self, node: usize) -> (NodeIncarnation, Teller) {
        self.lives += 1;
        let life = NodeIncarnation { node, number: self.lives };
        (life, Teller { life, tell: self.tell.clone() })
    }

    /// Reports the end of an incarnation, after which nothing of it acts; its unread reports from before are
    /// obsolete.
    pub(super) fn tell_end(&self, life: NodeIncarnation) {
        let teller = Teller { life: NodeIncarnation { number: 0, ..life }, tell: self.tell.clone() };
        teller.tell(NodeReport { at: clock::now().as_nanos(), event: CandidateEvent::Ended });
    }

    /// Returns the next report of a current incarnation; `None` if none arrives.
    pub(super) async fn next(
        &mut self,
        current: impl Fn(usize) -> Option<NodeIncarnation>,
    ) -> Option<NodeEvent> {
        loop {
            let (life, report) = tokio::time::timeout(PATIENCE, self.event.recv()).await.ok()??;
            if life.number == 0 || current(life.node) == Some(life) {
                return Some(self.see(life.node, report));
            }
        }
    }

    /// The time since `start` for which the machine did not run ready threads.
    pub(super) fn stalled_since(&self, start: u64) -> Duration {
        self.stalls.in_the_latest(Duration::from_nanos(clock::now().as_nanos().saturating_sub(start)))
    }

    /// Converts a node's report into an event; a write is passed to the resource.
    fn see(&mut self, node: usize, report: NodeReport) -> NodeEvent {
        let what = match report.event {
            CandidateEvent::Elected { term, token, until } => NodeEventKind::Elected { term, token, until },
            CandidateEvent::Renewed { until } => NodeEventKind::Renewed { until },
            CandidateEvent::Ended => NodeEventKind::Ended,
            CandidateEvent::Checked { may_act } => NodeEventKind::Checked { may_act },
            CandidateEvent::Writes { token } => {
                NodeEventKind::Wrote { token, is_accepted: self.resource.admit(FencingToken(token)).is_ok() }
            }
            CandidateEvent::Saw { term } => NodeEventKind::Saw { term },
        };
        NodeEvent { at: report.at, node, what }
    }
}

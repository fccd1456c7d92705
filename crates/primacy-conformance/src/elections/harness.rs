//! The interface between the laws and an election: the required abilities, the commands, and the observed events.

use std::pin::Pin;
use std::time::Duration;

/// The number of nodes: `a`, `b` and `c`, by their numbers 0 to 2.
pub const NODES: usize = 3;
/// Their names.
pub const NAMES: [&str; NODES] = ["a", "b", "c"];

/// A future of an arm, with the arm's own clock. It need not be `Send`.
pub type Waiting<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// An election under the laws: three nodes, and the commands to them.
pub trait ElectionHarness {
    /// The arm's name, for the report.
    fn name(&self) -> String;

    /// Returns the reason why this arm lacks an ability that a law needs; `None` if it has it.
    fn lacks(&self, need: Need) -> Option<&'static str>;

    /// Checks that the arm is available.
    ///
    /// # Errors
    /// The reason why it is not.
    fn reach(&self) -> Result<(), String> {
        Ok(())
    }

    /// Starts over, with a new election of this name and no running node.
    fn begin<'a>(&'a mut self, election: &'a str, pace: Pace) -> Waiting<'a, ()>;

    /// Gives a command to a node.
    fn command(&mut self, node: usize, command: NodeCommand) -> Waiting<'_, ()>;

    /// Returns the next event, in order; `None` if there is none for the time of [`patience`](Self::patience).
    fn next(&mut self) -> Waiting<'_, Option<NodeEvent>>;

    /// The time on the clock of events, in nanoseconds.
    fn now(&self) -> u64;

    /// The time that a law waits for an expected event: far longer than any that works takes.
    fn patience(&self) -> Duration;

    /// The documented bounds of a leader change, at this pace.
    fn bounds(&self) -> Bounds;

    /// Returns the violations that the arm itself has detected.
    fn breaches(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the time since `start` for which this machine did not run a ready thread, for which no election can be
    /// blamed.
    fn stalled_since(&self, start: u64) -> Duration {
        let _ = start;
        Duration::ZERO
    }
}

/// An ability that not every arm has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// To stop a node as by SIGSTOP, and to resume it.
    Pause,
    /// To cut a node off in both directions, without notice to other nodes.
    Silence,
    /// To set the rates of clocks.
    Drift,
}

/// The length of the leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Short, so that a law can wait for a lease to expire.
    Quick,
    /// Long, so that a prompt event cannot be due to an expired lease.
    Patient,
}

/// A command of a law to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeCommand {
    /// Its process starts, and observes; it does not campaign.
    Start,
    /// It campaigns, until it is elected or ordered to [`Cancel`](Self::Cancel).
    Campaign,
    /// It stops campaigning; if it is elected at that moment, it gives up the lead.
    Cancel,
    /// It gives up the lead in order.
    Resign,
    /// It checks whether it may act as the leader, and reports [`NodeEventKind::Checked`].
    Check,
    /// It writes to the resource with its latest token, without checking whether it still leads, and reports
    /// [`NodeEventKind::Wrote`] once the resource has answered. A write that is commanded during a pause is one that
    /// was under way.
    Write,
    /// Its process ends, without notice if the arm can do that.
    Stop,
    /// Begins [`Need::Pause`].
    Pause,
    /// Ends the pause.
    Resume,
    /// Begins [`Need::Silence`].
    Silence,
    /// Ends the silence.
    Heal,
    /// [`Need::Drift`]: its clock is as slow as the bound allows, and the other clocks are as fast.
    SlowestClock,
}

/// An observed event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeEvent {
    /// The time, in nanoseconds of the arm's clock.
    pub at: u64,
    /// The node.
    pub node: usize,
    /// The event.
    pub what: NodeEventKind,
}

/// An event of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeEventKind {
    /// It was elected, and believes that it leads until `until` unless that is extended.
    Elected {
        /// The number of the leadership.
        term: u64,
        /// The fencing token.
        token: u64,
        /// The end, on the arm's clock.
        until: u64,
    },
    /// Its leadership was extended.
    Renewed {
        /// The new end, on the arm's clock.
        until: u64,
    },
    /// It has stopped acting as the leader.
    Ended,
    /// It has checked whether it may act as the leader.
    Checked {
        /// The result.
        may_act: bool,
    },
    /// The resource has answered a write.
    Wrote {
        /// The token of the write.
        token: u64,
        /// The answer of the resource.
        is_accepted: bool,
    },
    /// It has learned of the leader.
    Saw {
        /// The number of the leadership; `None` if there is no leader.
        term: Option<u64>,
    },
}

/// The bounds of a change of leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// From the moment when a resigning leader has stopped acting until another node leads.
    pub release: Duration,
    /// From the last message of the leader until another node leads.
    pub expiry: Duration,
}

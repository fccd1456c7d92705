//! The interface between the laws and an election: what they need of it, and what they see of it.

use std::pin::Pin;
use std::time::Duration;

/// The number of nodes: `a`, `b` and `c`, by their numbers 0 to 2.
pub const NODES: usize = 3;
/// Their names.
pub const NAMES: [&str; NODES] = ["a", "b", "c"];

/// A future of an arm, which takes the arm's own time. It may hold what cannot be sent to another thread.
pub type Waiting<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// An election under the laws: three nodes, and the commands to them.
pub trait ElectionHarness {
    /// The arm's name, for the report.
    fn name(&self) -> String;

    /// The reason why this arm lacks an ability that a law needs; `None` if it has it.
    fn lacks(&self, need: Need) -> Option<&'static str>;

    /// Checks that the arm is there.
    ///
    /// # Errors
    /// The reason why it cannot be run.
    fn reach(&self) -> Result<(), String> {
        Ok(())
    }

    /// Begins anew, with an election of this name that is new, and no node started.
    fn begin<'a>(&'a mut self, election: &'a str, pace: Pace) -> Waiting<'a, ()>;

    /// Gives a command to a node.
    fn command(&mut self, node: usize, command: NodeCommand) -> Waiting<'_, ()>;

    /// The next thing that is seen, in order; `None` if nothing has been seen for the time of [`patience`](Self::patience).
    fn next(&mut self) -> Waiting<'_, Option<NodeEvent>>;

    /// The time on the clock by which things are seen, in nanoseconds.
    fn now(&self) -> u64;

    /// The time that a law waits for something that must come: far longer than anything takes that works.
    fn patience(&self) -> Duration;

    /// The documented bounds of a change of leader, at this pace.
    fn bounds(&self) -> Bounds;

    /// The violations that the arm itself has seen, beside what it shows.
    fn breaches(&self) -> Vec<String> {
        Vec::new()
    }

    /// The time since `start` for which this machine has kept a thread from running that wanted to run, for which no election can be
    /// blamed.
    fn stalled_since(&self, start: u64) -> Duration {
        let _ = start;
        Duration::ZERO
    }
}

/// An ability that not every arm has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Stop a node as SIGSTOP does, and let it go on.
    Pause,
    /// Keep a node from hearing and being heard, without notice to other nodes.
    Silence,
    /// Let clocks run at other rates.
    Drift,
}

/// The length of the leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// So short that a law can wait for one to run out.
    Quick,
    /// So long that what comes soon does not come from a lease that has run out.
    Patient,
}

/// A command of a law to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeCommand {
    /// Its process starts, and watches; it does not campaign.
    Start,
    /// It campaigns, until it is elected or ordered to [`Cancel`](Self::Cancel).
    Campaign,
    /// It campaigns no more; if it is elected at that very moment, it gives up the lead.
    Cancel,
    /// It gives up the lead in order.
    Resign,
    /// It looks whether it may act as the leader, and shows [`NodeEventKind::Checked`].
    Check,
    /// It writes to the resource with the token that it was given last, without checking whether it still leads; shows [`NodeEventKind::Wrote`] when
    /// the resource has answered. A write that is ordered while it is paused is one that was on its way.
    Write,
    /// Its process ends without notice, as far as the arm can do that.
    Stop,
    /// [`Need::Pause`].
    Pause,
    /// The end of it.
    Resume,
    /// [`Need::Silence`].
    Silence,
    /// The end of it.
    Heal,
    /// [`Need::Drift`]: its clock is as slow as the bound allows, and the others' are as fast.
    SlowestClock,
}

/// Something that is seen.
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
    /// It leads, and believes so until `until` if it hears nothing more.
    Elected {
        /// The number of the leadership.
        term: u64,
        /// The fencing token.
        token: u64,
        /// On the arm's clock.
        until: u64,
    },
    /// It leads for longer, until then.
    Renewed {
        /// On the arm's clock.
        until: u64,
    },
    /// It acts as the leader no more.
    Ended,
    /// It looked whether it may act as the leader.
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
    /// From the moment when the leader acts no more, having given up the lead, until another leads.
    pub release: Duration,
    /// From the moment when the leader was last heard until another leads.
    pub expiry: Duration,
}

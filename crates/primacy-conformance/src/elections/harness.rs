//! What the laws need to know of an election, and what they see of it.

use std::pin::Pin;
use std::time::Duration;

/// How many nodes there are: `a`, `b` and `c`, by their numbers 0 to 2.
pub const NODES: usize = 3;
/// Their names.
pub const NAMES: [&str; NODES] = ["a", "b", "c"];

/// What an arm does in its own time. It may hold what cannot be sent to another thread.
pub type Waiting<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// An election under the laws: three nodes, and what can be done to them.
pub trait ElectionHarness {
    /// The arm's name, for the report.
    fn name(&self) -> String;

    /// Why this arm cannot do something that a law needs; `None` if it can.
    fn lacks(&self, need: Need) -> Option<&'static str>;

    /// Whether the arm is there; an error says why not.
    ///
    /// # Errors
    /// Why it cannot be run.
    fn reach(&self) -> Result<(), String> {
        Ok(())
    }

    /// Begins anew, with an election of this name of which nobody has heard, and no node started.
    fn begin<'a>(&'a mut self, election: &'a str, pace: Pace) -> Waiting<'a, ()>;

    /// Does something to a node.
    fn order(&mut self, node: usize, order: Order) -> Waiting<'_, ()>;

    /// The next thing that is seen, in order; `None` if nothing has been seen for the time of [`patience`](Self::patience).
    fn next(&mut self) -> Waiting<'_, Option<Seen>>;

    /// What time it is on the clock by which things are seen, in nanoseconds.
    fn now(&self) -> u64;

    /// How long a law waits for something that must come: far longer than anything takes that works.
    fn patience(&self) -> Duration;

    /// How long a change of leader may take, by what is documented, at this pace.
    fn bounds(&self) -> Bounds;

    /// What the arm itself has seen that must never be, beside what it shows.
    fn breaches(&self) -> Vec<String> {
        Vec::new()
    }

    /// For how long since `start` this machine has kept a thread from running that wanted to run: what no election can
    /// be blamed for.
    fn stalled_since(&self, start: u64) -> Duration {
        let _ = start;
        Duration::ZERO
    }
}

/// What not every arm can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Stop a node as SIGSTOP does, and let it go on.
    Pause,
    /// Keep a node from hearing and being heard, without a word to anybody.
    Silence,
    /// Let clocks run at other rates.
    Drift,
}

/// How long leases are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// So short that a law can wait for one to run out.
    Quick,
    /// So long that what comes soon does not come from one that has run out.
    Patient,
}

/// What a law does to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Its process starts, and watches; it does not campaign.
    Start,
    /// It stands, until it is elected or [`Cancel`](Self::Cancel) is said.
    Campaign,
    /// It stands no more; if it is elected at that very moment, it gives up the lead.
    Cancel,
    /// It gives up the lead in order.
    Resign,
    /// It looks whether it may act as the leader, and shows [`What::Checked`].
    Check,
    /// It writes to the resource with the token that it was given last, without looking whether it still leads; shows
    /// [`What::Wrote`] when the resource has answered. What is ordered while it is paused is what was on its way.
    Write,
    /// Its process ends without a word, as far as the arm can do that.
    Stop,
    /// [`Need::Pause`].
    Pause,
    /// The end of it.
    Resume,
    /// [`Need::Silence`].
    Silence,
    /// The end of it.
    Heal,
    /// [`Need::Drift`]: its clock is as slow as the bound allows, and the others' are as fast, so that they may just be
    /// relied on.
    SlowestClock,
}

/// Something that is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// When, in nanoseconds of the arm's clock.
    pub at: u64,
    /// At which node.
    pub node: usize,
    /// What.
    pub what: What,
}

/// What can be seen of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It leads, and believes so until `until` if it hears nothing more.
    Elected {
        /// The number of the leadership.
        term: u64,
        /// The fencing token.
        token: u64,
        /// On the arm's clock.
        until: u64,
    },
    /// It believes so until then.
    Renewed {
        /// On the arm's clock.
        until: u64,
    },
    /// It acts as the leader no more.
    Ended,
    /// It looked whether it may act as the leader.
    Checked {
        /// What it found.
        may_act: bool,
    },
    /// The resource has answered a write.
    Wrote {
        /// What it was written with.
        token: u64,
        /// What the resource said.
        is_accepted: bool,
    },
    /// It has learned who leads.
    Saw {
        /// The number of the leadership; `None` if nobody leads.
        term: Option<u64>,
    },
}

/// How long a change of leader may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// From the moment when the leader acts no more, having given up the lead, until another leads.
    pub release: Duration,
    /// From the moment when the leader was last heard until another leads.
    pub expiry: Duration,
}

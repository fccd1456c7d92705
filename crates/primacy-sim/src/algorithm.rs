//! The interface of an election to the world that runs its machines.

use core::fmt::Debug;
use std::collections::BTreeSet;
use std::sync::Arc;

use primacy_core::election::{lease as store, session as queue};
use primacy_core::membership::View;
use primacy_core::{Drift, Duration, Identity, Instant, NodeId, Protocol, Term};
use primacy_kv::machine::{Answer, Ask, Metadata};
use primacy_kv::replication::log::Write;
use primacy_kv::replication::voters::Voters;

use crate::invariants::{Invariant, Meaning};

/// The maximum number of nodes of a generated world.
pub(crate) const NODES_MAX: usize = 5;

/// The maximum number of rounds that candidates lose by chance after the healing. Two candidates spoil a round for
/// both if they campaign within one message delay of each other. If that happens every other time, one run in 10⁹
/// loses this many.
pub const ATTEMPTS: u64 = 30;

/// An election that runs in the world.
pub trait Algorithm: Debug + Sized + 'static {
    /// The messages of its machines.
    type Message: Clone + Debug;
    /// The state that its machines write to disk.
    type Durable: Clone + Debug;
    /// The accumulated contents of a disk after all writes; the last write, if each replaces the one before it.
    type Kept: Clone + Debug + From<Self::Durable>;
    /// The machine: the same code that real nodes run.
    type Machine: Protocol<Message = Self::Message, Durable = Self::Durable> + Debug;
    /// The settings of each node.
    type Settings: Settings;

    /// Starts a machine.
    fn start(settings: &Self::Settings, process: ProcessStart<'_, Self::Kept>) -> Self::Machine;

    /// Starts the machine that a guardian runs once its process is gone and the work has ended; `None` without such a machine.
    const GUARDIAN: Option<StartGuardian<Self>> = None;

    /// The requests to a compare-and-set store, for elections over one.
    const STORE: Option<StoreUse<Self>> = None;

    /// The requests to a store with sessions, for elections over one.
    const SESSIONS: Option<SessionsUse<Self>> = None;

    /// Returns a machine's view of the cluster, for elections that have views.
    const VIEW: Option<fn(&Self::Machine) -> KnownView<'_>> = None;

    /// Checks that a request that needs a minimum number of members is served, for elections that count members.
    const SERVES: Option<Serves<Self>> = None;

    /// The recovery of a node that has lost its disk, for elections in which its peers report their terms to it.
    const RECOVERY: Option<Recovery<Self>> = None;

    /// The replicated log and map, for nodes that keep them.
    const REPLICATION: Option<Replication<Self>> = None;

    /// Adds a write to the contents of a disk.
    fn keep(kept: &mut Option<Self::Kept>, written: Self::Durable) {
        *kept = Some(written.into());
    }

    /// True if the number of an incarnation is above those of all earlier ones, even after a lost disk, like a number
    /// taken from the time of day. Needed where peers remember the requests of a node's earlier incarnations.
    const COUNTS_ON: bool = false;

    /// True if the voters change, so that nodes with different lists of voters must communicate.
    const VOTERS_CHANGE: bool = false;

    /// True if the driver takes all pending inputs before it checks the machine's deadline, because the machine
    /// serves several inputs with one write. If the driver checked the deadline after each input, a leader with
    /// several due deadlines, each with a write, would never read its followers' messages.
    const TAKES_WHAT_HAS_COME: bool = false;

    /// True if each write replaces all earlier ones. Only then can a rotten disk return an earlier write.
    const REPLACES: bool = true;

    /// Returns the name of the message's kind, by which scripts aim faults.
    fn kind(message: &Self::Message) -> &'static str;

    /// True if the message is sent all the time, so that scripts hide it by default.
    fn is_routine(message: &Self::Message) -> bool;

    /// Returns the message as text for people, beginning with its kind.
    fn text(message: &Self::Message) -> String;

    /// Returns the meaning of the message for the invariants.
    fn meaning(message: &Self::Message, to: Option<NodeId>) -> Meaning;

    /// Returns the name of the counter that this message increments, if it shows that a relevant branch was taken.
    fn met(message: &Self::Message) -> Option<&'static str> {
        let _ = message;
        None
    }

    /// Returns the counters that a search of many seeds must have incremented, in addition to the world's own.
    fn must_meet() -> &'static [&'static str] {
        &[]
    }

    /// Returns the maximum time from the end of all faults until all nodes name one leader.
    fn settles_within(nodes: &[&Self::Settings], surroundings: &Surroundings) -> Duration {
        let _ = (nodes, surroundings);
        Duration::ZERO
    }

    /// True if mandates are advisory: two nodes may lead while not all nodes hear each other, and a node that is cut
    /// off or paused may elect itself. Then leaders are judged only after the healing, and a cut or a pause is not
    /// one of the small faults that must not cost the leader its lead.
    const ADVISORY: bool = false;

    /// True if leaders have tokens, by which a resource refuses the requests of an earlier leader.
    const FENCED: bool = !Self::ADVISORY;

    /// True if without faults all nodes come to name one leader, and keep it.
    const SETTLES: bool = true;

    /// Returns the node that must lead without faults if all campaign, if this election determines it.
    fn rightful(nodes: &[(NodeId, &Self::Settings)]) -> Option<NodeId> {
        let _ = nodes;
        None
    }

    /// True if a node campaigns now: it asks for the lead, and does not lead.
    fn campaigns(machine: &Self::Machine) -> bool {
        let _ = machine;
        false
    }

    /// Returns the invariants that this election promises.
    fn invariants(settings: &Self::Settings) -> Vec<Box<dyn Invariant>>;
}

/// Starts the machine of a guardian: with the settings, the dead process, a seed and the time on its clock.
pub type StartGuardian<A> =
    fn(&<A as Algorithm>::Settings, Identity, u64, Instant) -> <A as Algorithm>::Machine;

/// Checks that a machine serves a request; the error is the reason why it does not.
pub type Serves<A> = fn(&<A as Algorithm>::Machine) -> Result<(), String>;

/// An election's use of a compare-and-set store.
#[derive(Debug)]
pub struct StoreUse<A: Algorithm> {
    /// Returns the request to the store in a message, if it is one.
    pub request: fn(&A::Message) -> Option<&store::Message>,
    /// Wraps a reply of the store.
    pub reply: fn(store::Message) -> A::Message,
}

/// An election's use of a store with sessions.
#[derive(Debug)]
pub struct SessionsUse<A: Algorithm> {
    /// Returns the request to the store in a message, if it is one.
    pub request: fn(&A::Message) -> Option<&queue::Message>,
    /// Wraps a reply of the store.
    pub reply: fn(queue::Message) -> A::Message,
}

/// The number of a node's joining, and the members of the cluster as it knows them.
pub type KnownView<'a> = (u64, Option<&'a Arc<View>>);

/// The recovery of a node that has lost its disk.
#[derive(Debug)]
pub struct Recovery<A: Algorithm> {
    /// Returns the term that a node would report to a peer that has lost its disk. `None` if the node has lost its disk too,
    /// and so cannot vouch for a term.
    pub term_to_report: fn(&A::Machine) -> Option<Term>,
    /// True if the node lost an earlier disk, and has since learned the highest term that it can have voted in with it.
    pub has_recovered: fn(&A::Kept) -> bool,
}

/// The replicated log and map.
#[derive(Debug)]
pub struct Replication<A: Algorithm> {
    /// Returns the replicated state of a machine.
    pub state: fn(&A::Machine) -> &Metadata,
    /// Wraps a client's request.
    pub ask: fn(Ask) -> A::Message,
    /// Returns the answer to a client in a message, if it is one.
    pub answer: fn(&A::Message) -> Option<&Answer>,
    /// Returns the write to the log on disk, if it is one.
    pub write: fn(&A::Durable) -> Option<&Write>,
    /// Returns the voters that a node counts when it starts with this disk, if the disk names any.
    pub voters: fn(&A::Kept) -> Option<&Arc<Voters>>,
    /// Returns the message that reports the voters to a peer that has lost its disk, sent before the term.
    pub voters_to_tell: fn(Identity, &A::Machine) -> A::Message,
    /// Removes the log, and nothing else, from a disk's contents.
    pub lose_log: fn(&mut Option<A::Kept>),
}

/// Returns the replicated state of a machine, if it has any.
pub(crate) fn metadata<A: Algorithm>(machine: &A::Machine) -> Option<&Metadata> {
    A::REPLICATION.map(|replication| (replication.state)(machine))
}

/// The arguments for starting the machine of one process.
#[derive(Clone, Debug)]
pub struct ProcessStart<'a, D> {
    /// The node and its incarnation.
    pub me: Identity,
    /// The voters that this node's configuration names.
    pub voters: &'a BTreeSet<NodeId>,
    /// The state found on its disk.
    pub durable: Option<D>,
    /// The seed of its random waits.
    pub seed: u64,
    /// The time on its clock.
    pub now: Instant,
}

/// The delays of an election that runs without faults.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings {
    /// The maximum age of a packet that is already under way, and its maximum remaining delay.
    pub lag: Duration,
    /// The delay of a packet sent from now on.
    pub delay: Duration,
    /// The time that a write takes.
    pub disk_latency: Duration,
    /// The time after which a closed connection is made again.
    pub reconnect: Duration,
    /// The time that work takes to end, drained or killed.
    pub drain: Duration,
}

/// Settings of a node by name.
pub trait Settings: Clone + Debug + Default {
    /// Sets one setting.
    ///
    /// # Errors
    /// If it is unknown or the value is invalid, with the reason.
    fn set(&mut self, key: &str, value: &str) -> Result<(), String>;

    /// Applies a profile: the numbers that a source states.
    ///
    /// # Errors
    /// If there is no profile of that name.
    fn profile(&mut self, name: &str) -> Result<(), String> {
        Err(format!("there is no profile {name} here"))
    }

    /// Returns the node's own part of its handshake: its priority, and whether it only votes.
    fn priority_and_witness(&self) -> (u32, bool) {
        (0, false)
    }

    /// Returns the duration of a lease, for elections that have one.
    fn lease_duration(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns the time in which nodes replace a silent leader.
    fn patience(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns the settings that must be equal on two nodes that communicate, as text.
    fn terms_of_use(&self) -> String {
        String::new()
    }
}

/// Parses `250ms`, `1.5s` or `90us`.
///
/// # Errors
/// If the text has none of these forms.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration; write 250ms, 1.5s or 90us");
    let (number, unit) = if let Some(number) = text.strip_suffix("ms") {
        (number, 1_000_000)
    } else if let Some(number) = text.strip_suffix("us") {
        (number, 1_000)
    } else {
        (text.strip_suffix('s').ok_or_else(wrong)?, 1_000_000_000)
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let mut nanos = whole.parse::<u64>().map_err(|_| wrong())?.checked_mul(unit).ok_or_else(wrong)?;
    let mut place = unit / 10;
    for digit in part.chars() {
        let more = u64::from(digit.to_digit(10).ok_or_else(wrong)?) * place;
        nanos = nanos.checked_add(more).ok_or_else(wrong)?;
        place /= 10;
    }
    Ok(Duration::from_nanos(nanos))
}

/// Parses `1%`, `+2%`, `-0.5%` or `300ppm` into parts per million.
///
/// # Errors
/// If the text has none of these forms.
pub fn parts_per_million(text: &str) -> Result<i32, String> {
    let wrong = || format!("{text:?} is no rate; write 1%, -0.5% or 300ppm");
    if let Some(number) = text.strip_suffix("ppm") {
        return number.parse().map_err(|_| wrong());
    }
    let number = text.strip_suffix('%').ok_or_else(wrong)?;
    let (sign, number) = match number.strip_prefix('-') {
        Some(number) => (-1, number),
        None => (1, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let mut ppm = whole.parse::<i32>().map_err(|_| wrong())?.checked_mul(10_000).ok_or_else(wrong)?;
    for (digit, place) in part.chars().zip([1_000, 100, 10, 1]) {
        let more = i32::try_from(digit.to_digit(10).ok_or_else(wrong)?).map_err(|_| wrong())? * place;
        ppm = ppm.checked_add(more).ok_or_else(wrong)?;
    }
    Ok(sign * ppm)
}

/// Parses a bound on drift.
///
/// # Errors
/// If the text is no rate, or a negative one.
pub fn drift(text: &str) -> Result<Drift, String> {
    let ppm = u32::try_from(parts_per_million(text)?).map_err(|_| "a bound is not negative".to_owned())?;
    Ok(Drift::from_ppm(ppm))
}

/// Parses a value by its [`FromStr`](core::str::FromStr).
///
/// # Errors
/// If the text is not such a value.
pub fn value<T: core::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} does not fit here"))
}

/// Returns the error for an unknown setting.
///
/// # Errors
/// Always.
pub fn unknown_setting(key: &str) -> Result<(), String> {
    Err(format!("there is no setting {key} here"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_rates_are_read_as_people_write_them() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("1.05s"), Ok(Duration::from_millis(1_050)));
        assert_eq!(duration("90us"), Ok(Duration::from_nanos(90_000)));
        assert!(duration("5").is_err() && duration("s").is_err() && duration("1.xs").is_err());
        assert_eq!(parts_per_million("+2%"), Ok(20_000));
        assert_eq!(parts_per_million("-0.5%"), Ok(-5_000));
        assert_eq!(parts_per_million("300ppm"), Ok(300));
        assert!(drift("-1%").is_err());
        assert!(duration("18446744073.9s").is_err() && parts_per_million("214748.9%").is_err());
    }
}

//! What the world must know of an election to run its machines: one small file for each.

pub mod appointed;
pub mod article;
pub mod bully;
pub mod confirmed;
pub mod lease;
pub mod metadata;
pub mod naive;
pub mod note;
pub mod quorum;
pub mod ranked;
pub mod ring;
pub mod seniority;
pub mod session;
pub mod whim;

use core::fmt::Debug;
use std::collections::BTreeSet;
use std::sync::Arc;

use primacy_core::election::{lease as store, session as queue};
use primacy_core::membership::View;
use primacy_core::metadata::log::Write;
use primacy_core::metadata::machine::{Answer, Ask, Metadata};
use primacy_core::metadata::voters::Voters;
use primacy_core::{Drift, Duration, Identity, Instant, NodeId, Protocol, Term};

use crate::invariants::{Invariant, Meaning};

/// An election that runs in the world.
pub trait Algorithm: Debug + Sized + 'static {
    /// What its machines say.
    type Message: Clone + Debug;
    /// What its machines keep on disk.
    type Durable: Clone + Debug;
    /// What all that was written on a disk comes to; where each write replaces the one before it, the last of them.
    type Kept: Clone + Debug + From<Self::Durable>;
    /// The machine itself, the one that real nodes run.
    type Machine: Protocol<Message = Self::Message, Durable = Self::Durable> + Debug;
    /// What can be set for each node.
    type Settings: Settings;

    /// Starts a machine.
    fn start(settings: &Self::Settings, life: Life<'_, Self::Kept>) -> Self::Machine;

    /// Starts what a guardian runs once the process that it guards is gone and its work has ended, if it runs
    /// anything.
    fn undertaker(
        settings: &Self::Settings,
        dead: Identity,
        seed: u64,
        now: Instant,
    ) -> Option<Self::Machine> {
        let _ = (settings, dead, seed, now);
        None
    }

    /// Takes a write into what is kept on a disk.
    fn keep(kept: &mut Option<Self::Kept>, written: Self::Durable) {
        *kept = Some(written.into());
    }

    /// Takes the log away from what is kept on a disk, and nothing else; whether there is such a thing.
    fn lose_log(kept: &mut Option<Self::Kept>) -> bool {
        let _ = kept;
        false
    }

    /// The number of a life is above those of all lives before it, whatever disk it has, as one that is of the time of day: where
    /// others remember what the lives of a node have asked.
    const COUNTS_ON: bool = false;

    /// Voters come and go, so that nodes talk whose configurations name others.
    const VOTERS_CHANGE: bool = false;

    /// Its driver takes all that has come already before the machine's deadline has its turn again, for the machine does with one write
    /// what several inputs want. Where it looked at the deadline each time, a leader whose deadlines are due one after the other, each
    /// with a write, would not hear its followers.
    const TAKES_WHAT_HAS_COME: bool = false;

    /// Each write replaces all that was written before. Then what was written before can be found again, by mistake.
    const REPLACES: bool = true;

    /// The name of a kind of message, by which faults are aimed.
    fn kind(message: &Self::Message) -> &'static str;

    /// Whether it is said all the time, so that a story had better leave it out.
    fn is_routine(message: &Self::Message) -> bool;

    /// What it says, for people; it begins with the kind.
    fn text(message: &Self::Message) -> String;

    /// What it means to the judge.
    fn meaning(message: &Self::Message, to: Option<NodeId>) -> Meaning;

    /// The request to the store in it, for elections that are held in one.
    fn request(message: &Self::Message) -> Option<&store::Message> {
        let _ = message;
        None
    }

    /// The store's words, for elections that are held in one.
    fn reply(message: store::Message) -> Option<Self::Message> {
        drop(message);
        None
    }

    /// The request to a store that keeps sessions, for elections that are held in one.
    fn session_request(message: &Self::Message) -> Option<&queue::Message> {
        let _ = message;
        None
    }

    /// That store's words.
    fn session_reply(message: queue::Message) -> Option<Self::Message> {
        drop(message);
        None
    }

    /// The term that a node would tell another one that has lost its disk, for elections in which that matters. `None`
    /// if what it knows is worth nothing, because it has lost its own.
    fn term_to_report(machine: &Self::Machine) -> Option<Term> {
        let _ = machine;
        None
    }

    /// What it tells that one of the voters before, for elections in which they change.
    fn voters_to_tell(me: Identity, machine: &Self::Machine) -> Option<Self::Message> {
        let _ = (me, machine);
        None
    }

    /// Whether a node with this on its disk had lost an earlier disk, and has heard since how far it can have gone.
    fn has_recovered(kept: &Self::Kept) -> bool {
        let _ = kept;
        false
    }

    /// The name under which this word is counted, where it shows that a branch was taken that matters.
    fn met(message: &Self::Message) -> Option<&'static str> {
        let _ = message;
        None
    }

    /// What a search of many seeds must have met, beside what the world itself asks for.
    fn must_meet() -> &'static [&'static str] {
        &[]
    }

    /// Who belongs to the cluster, as a machine knows it, and which of its joinings it is in; for elections that have views.
    fn view(machine: &Self::Machine) -> Option<(u64, Option<&Arc<View>>)> {
        let _ = machine;
        None
    }

    /// Whether a request that needs a cluster of some size is served, and otherwise why not; for elections that have views.
    fn serves(machine: &Self::Machine) -> Option<Result<(), String>> {
        let _ = machine;
        None
    }

    /// The metadata that a machine keeps with the others, if it does.
    fn metadata(machine: &Self::Machine) -> Option<&Metadata> {
        let _ = machine;
        None
    }

    /// A client's question, for machines that keep metadata.
    fn ask(ask: Ask) -> Option<Self::Message> {
        drop(ask);
        None
    }

    /// The answer to a client.
    fn answer(message: &Self::Message) -> Option<&Answer> {
        let _ = message;
        None
    }

    /// What is written to the disk of a log, for machines that have one.
    fn write(durable: &Self::Durable) -> Option<&Write> {
        let _ = durable;
        None
    }

    /// The voters that a node counts which starts with this on its disk, where they may change and it was told of any.
    fn voters(kept: &Self::Kept) -> Option<&Arc<Voters>> {
        let _ = kept;
        None
    }

    /// Whether a node that starts again knows nothing any more of what the others count on, and has to ask them.
    fn forgets(settings: &Self::Settings) -> bool {
        let _ = settings;
        false
    }

    /// How long it may take from the end of all faults until all name one leader.
    fn settles_within(nodes: &[&Self::Settings], surroundings: &Surroundings) -> Duration {
        let _ = (nodes, surroundings);
        Duration::ZERO
    }

    /// Whether this election gives advisory mandates: two may lead when the nodes cannot all hear each other, and one that is cut
    /// off, or stands still, may elect itself. Then nothing is asked of who leads until all is healed, and these two do not count
    /// among the small things that must not cost the leader its lead.
    const ADVISORY: bool = false;

    /// Whether leaders have tokens, so that what a resource is told by an earlier one is refused.
    const FENCED: bool = !Self::ADVISORY;

    /// Whether all name one leader once nothing is wrong, and keep it.
    const SETTLES: bool = true;

    /// Who must lead once nothing is wrong and all stand, if this election says so.
    fn rightful(nodes: &[(NodeId, &Self::Settings)]) -> Option<NodeId> {
        let _ = nodes;
        None
    }

    /// Whether a node campaigns at present: it asks for the lead, and does not lead.
    fn stands(machine: &Self::Machine) -> bool {
        let _ = machine;
        false
    }

    /// What this election promises.
    fn invariants(settings: &Self::Settings) -> Vec<Box<dyn Invariant>>;
}

/// One life of a process, as its machine is told of it.
#[derive(Clone, Debug)]
pub struct Life<'a, D> {
    /// Who.
    pub me: Identity,
    /// The voters that this node's configuration names.
    pub voters: &'a BTreeSet<NodeId>,
    /// What was found on its disk.
    pub durable: Option<D>,
    /// For its random waits.
    pub seed: u64,
    /// What its clock shows.
    pub now: Instant,
}

/// What slows an election down that nobody disturbs.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings {
    /// How long a packet may have been under way already, and may still be.
    pub lag: Duration,
    /// How long a packet takes from now on.
    pub delay: Duration,
    /// How long a write takes.
    pub disk_latency: Duration,
    /// After how long a closed connection is made again.
    pub reconnect: Duration,
    /// How long work takes to end, in order or not.
    pub drain: Duration,
}

/// What can be set for a node by name.
pub trait Settings: Clone + Debug + Default {
    /// Sets one thing.
    ///
    /// # Errors
    /// Why that cannot be set.
    fn set(&mut self, key: &str, value: &str) -> Result<(), String>;

    /// Sets what a source states.
    ///
    /// # Errors
    /// If there is no profile of that name.
    fn profile(&mut self, name: &str) -> Result<(), String> {
        Err(format!("there is no profile {name} here"))
    }

    /// What a node tells of itself in its handshake: its priority, and whether it votes only.
    fn standing(&self) -> (u32, bool) {
        (0, false)
    }

    /// How long a lease is, for elections that have one.
    fn lease_duration(&self) -> Duration {
        Duration::ZERO
    }

    /// In how much time a silent leader is replaced.
    fn patience(&self) -> Duration {
        Duration::ZERO
    }

    /// What must be the same on two nodes that talk.
    fn terms_of_use(&self) -> String {
        String::new()
    }
}

/// Parses `250ms`, `1.5s` or `90us`.
///
/// # Errors
/// If it is none of these.
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
/// If it is none of these.
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
/// If it is none, or negative.
pub fn drift(text: &str) -> Result<Drift, String> {
    let ppm = u32::try_from(parts_per_million(text)?).map_err(|_| "a bound is not negative".to_owned())?;
    Ok(Drift::from_ppm(ppm))
}

/// Parses `true` or `false`, a number, or anything else that knows how.
///
/// # Errors
/// If it is not such a thing.
pub fn value<T: core::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} does not fit here"))
}

/// What to say of a setting that is not known.
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

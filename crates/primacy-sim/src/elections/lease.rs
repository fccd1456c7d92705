//! The simulator's adapter for the lease over a store, and for the guardian's release of it.

use primacy_core::election::lease::{Config, Found, Lease as Candidate, Message, Record, SetError};
use primacy_core::election::record_update::{RecordUpdate, Task};
use primacy_core::rng::Rng;
use primacy_core::{Drift, Duration, FencingToken, Identity, Input, Instant, NodeId, Output, Protocol};

use crate::algorithm::{
    Algorithm, ProcessStart, Settings, StartGuardian, StoreUse, Surroundings, drift, duration,
    unknown_setting,
};
use crate::display::record_text;
use crate::invariants::drained_before_released::DrainedBeforeReleased;
use crate::invariants::leader_after_healing::LeaderAfterHealing;
use crate::invariants::no_needless_change::NoNeedlessChange;
use crate::invariants::one_leader_at_a_time::OneLeaderAtATime;
use crate::invariants::one_leader_per_term::OneLeaderPerTerm;
use crate::invariants::tokens_grow::TokensGrow;
use crate::invariants::{Invariant, Meaning};
use crate::swarm::{Beyond, Swarm, in_micros, text};
use crate::trace::Trace;

/// `lease`.
#[derive(Clone, Copy, Debug)]
pub struct Lease;

/// Settings of a node.
#[derive(Clone, Debug)]
pub struct Timers {
    /// The duration of a lease.
    pub duration: Duration,
    /// The bound on drift.
    pub drift_max: Drift,
    /// The time between renewals by the holder.
    pub renew_interval: Duration,
    /// The time after which a request is taken to be lost.
    pub request_timeout: Duration,
    /// The time between reads of a candidate.
    pub poll_interval: Duration,
}

impl Default for Timers {
    /// The defaults of the library.
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(10),
            drift_max: Drift::from_ppm(10_000),
            renew_interval: Duration::from_millis(3_333),
            request_timeout: Duration::from_secs(1),
            poll_interval: Duration::from_secs(1),
        }
    }
}

impl Settings for Timers {
    fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
        match key {
            "duration" => {
                self.duration = duration(text)?;
                self.renew_interval = self.duration.divided_by(3);
            }
            "drift_max" => self.drift_max = drift(text)?,
            "renew_interval" => self.renew_interval = duration(text)?,
            "request_timeout" => self.request_timeout = duration(text)?,
            "poll_interval" => self.poll_interval = duration(text)?,
            _ => return unknown_setting(key),
        }
        Ok(())
    }

    fn lease_duration(&self) -> Duration {
        self.duration
    }

    fn patience(&self) -> Duration {
        self.duration
    }
}

/// A client of the store: a candidate, or the guardian of a dead node, which releases the node's lease.
#[derive(Clone, Debug)]
pub enum Machine {
    /// A candidate.
    Candidate(Box<Candidate>),
    /// The guardian of a dead node, which releases the node's lease.
    Guardian(Box<RecordUpdate>),
}

impl Protocol for Machine {
    type Message = Message;
    type Durable = ();

    fn handle(&mut self, now: Instant, input: Input<Message>) {
        match self {
            Self::Candidate(machine) => machine.handle(now, input),
            Self::Guardian(machine) => machine.handle(now, input),
        }
    }

    fn poll(&mut self) -> Option<Output<Message, ()>> {
        match self {
            Self::Candidate(machine) => machine.poll(),
            Self::Guardian(machine) => machine.poll(),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Candidate(machine) => machine.deadline(),
            Self::Guardian(machine) => machine.deadline(),
        }
    }
}

impl Algorithm for Lease {
    type Message = Message;
    type Durable = ();
    type Kept = ();
    type Machine = Machine;
    type Settings = Timers;

    const GUARDIAN: Option<StartGuardian<Self>> = Some(guardian);
    const STORE: Option<StoreUse<Self>> =
        Some(StoreUse { request: |message| Some(message), reply: core::convert::identity });

    fn start(settings: &Timers, process: ProcessStart<'_, ()>) -> Machine {
        let config = Config {
            me: process.me,
            address: String::new(),
            duration: settings.duration,
            drift_max: settings.drift_max,
            renew_interval: settings.renew_interval,
            request_timeout: settings.request_timeout,
            poll_interval: settings.poll_interval,
            seed: process.seed,
        };
        Machine::Candidate(Box::new(Candidate::new(config, process.now)))
    }

    fn kind(message: &Message) -> &'static str {
        match message {
            Message::Read { .. } => "Read",
            Message::ReadReply { .. } => "ReadReply",
            Message::CompareAndSet { .. } => "Write",
            Message::CompareAndSetReply { .. } => "WriteReply",
            Message::Changed => "Changed",
        }
    }

    /// Reads and renewals are sent all the time, and so are the successful replies to writes.
    fn is_routine(message: &Message) -> bool {
        match message {
            Message::Read { .. } | Message::ReadReply { .. } => true,
            Message::CompareAndSet { record, .. } => record.holder.is_some() && record.renewal > 0,
            Message::CompareAndSetReply { result, .. } => result.is_ok(),
            Message::Changed => false,
        }
    }

    fn text(message: &Message) -> String {
        match message {
            Message::Read { .. } => "Read".to_owned(),
            Message::ReadReply { found: None, .. } => "ReadReply not reached".to_owned(),
            Message::ReadReply { found: Some(Found::Absent { .. }), .. } => "ReadReply absent".to_owned(),
            Message::ReadReply { found: Some(Found::Record { record, version }), .. } => {
                format!("ReadReply {}, version {version:?}", record_text(record))
            }
            Message::CompareAndSet { expect: Some(version), record, .. } => {
                format!("Write {}, over version {version:?}", record_text(record))
            }
            Message::CompareAndSet { expect: None, record, .. } => {
                format!("Write {}, as the first record", record_text(record))
            }
            Message::CompareAndSetReply { result, .. } => match result {
                Ok(version) => format!("WriteReply done, version {version:?}"),
                Err(SetError::Conflict) => "WriteReply conflict".to_owned(),
                Err(SetError::Unknown) => "WriteReply unknown".to_owned(),
                Err(SetError::Unavailable) => "WriteReply not reached".to_owned(),
            },
            Message::Changed => "Changed".to_owned(),
        }
    }

    fn meaning(message: &Message, _to: Option<NodeId>) -> Meaning {
        match message {
            Message::CompareAndSet { record: Record { holder: None, token, .. }, .. } => {
                Meaning::Releases { token: FencingToken(token.0) }
            }
            Message::CompareAndSet { .. } | Message::Read { .. } | Message::ReadReply { .. } => {
                Meaning::Nothing
            }
            Message::CompareAndSetReply { .. } | Message::Changed => Meaning::Nothing,
        }
    }

    fn met(message: &Message) -> Option<&'static str> {
        match message {
            Message::CompareAndSet { expect: None, .. } => Some("first record written"),
            Message::CompareAndSet { record: Record { holder: None, .. }, .. } => Some("record released"),
            Message::CompareAndSet { record: Record { young: true, .. }, .. } => Some("young record written"),
            Message::CompareAndSet { .. } | Message::Read { .. } => None,
            Message::CompareAndSetReply { result: Err(error), .. } => Some(match error {
                SetError::Conflict => "write: conflict",
                SetError::Unknown => "write: unknown",
                SetError::Unavailable => "write: store not reached",
            }),
            Message::ReadReply { found: None, .. } => Some("read: store not reached"),
            Message::ReadReply { found: Some(Found::Absent { .. }), .. } => Some("read: absent"),
            Message::ReadReply { found: Some(Found::Record { record, .. }), .. }
                if record.is_asked_to_resign() =>
            {
                Some("read: a request to resign")
            }
            Message::ReadReply { .. } | Message::CompareAndSetReply { result: Ok(_), .. } => None,
            Message::Changed => Some("change told"),
        }
    }

    fn must_meet() -> &'static [&'static str] {
        &[
            "first record written",
            "young record written",
            "record released",
            "write: conflict",
            "write: unknown",
            "write: store not reached",
            "read: store not reached",
            "read: absent",
            "read: a request to resign",
            "deposed: resigned",
            "deposed: unhealthy",
            "deposed: expired",
            "deposed: removed",
            "death told",
            "store: silent",
            "store: done, and the reply lost",
            "store: done, and said to be unknown",
            "store: not done, and said to be unknown",
            "store: done twice",
            "store: the record was deleted, and is missed",
            "ploy: disown",
        ]
    }

    /// Requests under way may renew the record once more; then it stays unchanged for one duration. Two further
    /// leases are possible: the next holder may have stopped campaigning when its claim is written, and after a
    /// deletion the creator of a new record waits for the holder of the old one. Of several simultaneous writes one
    /// succeeds, so no attempt is lost by chance; but each candidate reads only once per interval, and may first have
    /// to give up a lost request.
    fn settles_within(nodes: &[&Timers], surroundings: &Surroundings) -> Duration {
        let longest =
            |of: fn(&Timers) -> Duration| nodes.iter().map(|node| of(node)).max().unwrap_or_default();
        let Surroundings { lag, delay, disk_latency: _, reconnect: _, drain } = *surroundings;
        let leases = longest(|node| node.drift_max.lengthen(node.duration)).times(4);
        let looks =
            longest(|node| node.request_timeout.plus(node.poll_interval.times(2))).plus(delay.times(4));
        lag.plus(drain).plus(leases).plus(looks.times(4))
    }

    fn campaigns(machine: &Machine) -> bool {
        match machine {
            Machine::Candidate(machine) => machine.status().role == "claiming",
            Machine::Guardian(_) => false,
        }
    }

    fn invariants(_settings: &Timers) -> Vec<Box<dyn Invariant>> {
        vec![
            Box::new(OneLeaderPerTerm::default()),
            Box::new(OneLeaderAtATime::default()),
            Box::new(TokensGrow::in_order_of_elections()),
            Box::new(NoNeedlessChange::default()),
            Box::new(LeaderAfterHealing::default()),
            Box::new(DrainedBeforeReleased),
        ]
    }
}

fn guardian(settings: &Timers, dead: Identity, seed: u64, now: Instant) -> Machine {
    let task = Task::ReleaseFor(dead);
    let release = RecordUpdate::new(task, settings.duration, settings.poll_interval, seed, now);
    Machine::Guardian(Box::new(release))
}

/// Draws the candidates, their leases, the record of the store, and whether it announces changes.
pub(super) fn draw(seed: u64, beyond: Option<Beyond>, trace: Trace) -> Swarm<Lease> {
    let mut swarm = Swarm::new(Rng::new(seed), beyond, trace);
    let nodes = 2 + swarm.index(3);
    swarm.begin(seed, nodes);
    swarm.words = &["Read", "ReadReply", "Write", "WriteReply", "Died"];
    timers(&mut swarm, nodes);
    swarm
}

/// Draws the leases of a store that elects or confirms, its record, and whether it announces changes.
pub(super) fn timers<A: Algorithm>(swarm: &mut Swarm<A>, nodes: usize) {
    let round_trip = swarm.world().conditions.delay.times(2);
    let round_trip = swarm.lengthen(round_trip);
    let (duration, one_for_all) = (swarm.millis(500, 2_000), swarm.one_in(2));
    swarm.tell(format!("set drift_max={}ppm", swarm.drift));
    for name in ["a", "b", "c", "d", "e"].into_iter().take(nodes) {
        let duration = if one_for_all { duration } else { swarm.millis(500, 2_000) };
        let request_timeout = round_trip.plus(swarm.millis(20, 200));
        let poll_interval = swarm.millis(20, 150);
        swarm.tell(format!(
            "set {name} duration={} renew_interval={} request_timeout={} poll_interval={}",
            text(duration),
            text(in_micros(duration.divided_by(3))),
            text(request_timeout),
            text(poll_interval),
        ));
    }
    swarm.was_absent = swarm.one_in(3);
    if !swarm.was_absent {
        swarm.tell("store init".to_owned());
    }
    if swarm.one_in(2) {
        swarm.tell("store tells changes".to_owned());
    }
    swarm.deletes = one_for_all;
}

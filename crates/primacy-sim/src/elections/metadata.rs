//! The simulator's adapter for replicated metadata: an election of `quorum`, the log beside it, and client requests.

use std::sync::{Arc, LazyLock};

use primacy_core::election::quorum::HardState;
use primacy_core::hard_state::Durability;
use primacy_core::rng::Rng;
use primacy_core::{Duration, Identity, LeaderSequence, NodeId};
use primacy_kv::machine::{Answer, Config, Durable, Message, Metadata as Machine, StoredState};
use primacy_kv::replication::log::{Record, Stored, Write};
use primacy_kv::replication::message::Body;
use primacy_kv::replication::replica;
use primacy_kv::replication::voters::Voters;

use super::quorum::{self, Quorum, Timers as ElectionTimers};
use crate::algorithm::{
    Algorithm, ProcessStart, Recovery, Replication, Settings, Surroundings, duration, value,
};
use crate::display::metadata::{progress_text, voter_change_text};
use crate::invariants::one_log::OneLog;
use crate::invariants::sessions_live::SessionsLive;
use crate::invariants::shown_is_durable::ShownIsDurable;
use crate::invariants::{Invariant, Meaning};
use crate::process_slot::ProcessSlot;
use crate::swarm::primaries::Sharing;
use crate::swarm::{Beyond, Swarm, text};
use crate::trace::Trace;

/// `metadata`.
#[derive(Clone, Copy, Debug)]
pub struct Metadata;

/// Settings of a node: those of the election under their own names, and those of the log.
#[derive(Clone, Debug)]
pub struct Timers {
    /// Settings of the election.
    pub election: ElectionTimers,
    /// The durability of a record that a node holds.
    pub durability: Durability,
    /// The time without an answer after which a message is sent again.
    pub resend_after: Duration,
    /// The maximum number of bytes of records in one message.
    pub append_max: usize,
    /// The maximum number of bytes of records in flight to one follower.
    pub window: usize,
    /// The maximum number of bytes of a snapshot in one message.
    pub part_max: usize,
    /// The number of bytes of records after which a snapshot replaces them.
    pub snapshot_after: usize,
    /// The maximum number of bytes of records kept in memory.
    pub kept_max: usize,
    /// The maximum cost of the records applied in one step, expressed in bytes of records.
    pub apply_max: usize,
}

impl Default for Timers {
    /// The defaults of the library.
    fn default() -> Self {
        Self {
            election: ElectionTimers::default(),
            durability: Durability::Fsync,
            resend_after: Duration::from_millis(250),
            append_max: 256 << 10,
            window: 2 << 20,
            part_max: 256 << 10,
            snapshot_after: 64 << 20,
            kept_max: 8 << 20,
            apply_max: 64 << 10,
        }
    }
}

impl Settings for Timers {
    fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
        match key {
            "durability" => {
                self.durability = match text {
                    "fsync" => Durability::Fsync,
                    "memory" => Durability::Memory,
                    _ => return Err("durability is fsync or memory".to_owned()),
                }
            }
            "resend_after" => self.resend_after = duration(text)?,
            "append_max" => self.append_max = value(text)?,
            "window" => self.window = value(text)?,
            "part_max" => self.part_max = value(text)?,
            "snapshot_after" => self.snapshot_after = value(text)?,
            "kept_max" => self.kept_max = value(text)?,
            "apply_max" => self.apply_max = value(text)?,
            _ => self.election.set(key, text)?,
        }
        Ok(())
    }

    fn profile(&mut self, name: &str) -> Result<(), String> {
        self.election.profile(name)
    }

    fn priority_and_witness(&self) -> (u32, bool) {
        self.election.priority_and_witness()
    }

    fn patience(&self) -> Duration {
        self.election.patience()
    }

    fn terms_of_use(&self) -> String {
        format!("{} {:?}", self.election.terms_of_use(), self.durability)
    }
}

/// The contents of a disk.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    hard: HardState,
    voters: Option<Arc<Voters>>,
    log_lost: bool,
    log: Stored,
}

impl Kept {
    fn take(&mut self, written: Durable) {
        match written {
            Durable::Hard(hard) => self.hard = hard,
            Durable::Voters(voters) => self.voters = Some(voters),
            Durable::LogLost(lost) => self.log_lost = lost,
            Durable::Log(Write::Append(records)) => {
                for record in records {
                    let last = self.log.records.last().map(|record| record.number);
                    let snapshot = self.log.snapshot.as_ref().map(|snapshot| snapshot.number);
                    let last = last.or(snapshot).unwrap_or_default();
                    assert!(record.follows(last), "record {} is written after {last}", record.number);
                    self.log.records.push(record);
                }
            }
            Durable::Log(Write::Snapshot(snapshot)) => {
                self.log.records.retain(|record| record.number > snapshot.number);
                self.log.snapshot = Some(snapshot);
            }
        }
    }
}

impl From<Durable> for Kept {
    fn from(written: Durable) -> Self {
        let mut kept = Self::default();
        kept.take(written);
        kept
    }
}

impl Algorithm for Metadata {
    type Message = Message;
    type Durable = Durable;
    type Kept = Kept;
    type Machine = Machine;
    type Settings = Timers;

    const RECOVERY: Option<Recovery<Self>> = Some(Recovery {
        term_to_report: |machine| quorum::term_to_report(machine.election()),
        has_recovered: |kept| quorum::has_recovered(&kept.hard),
    });
    const REPLICATION: Option<Replication<Self>> = Some(Replication {
        state: |machine| machine,
        ask: Message::Ask,
        answer,
        write,
        voters,
        voters_to_tell,
        lose_log,
    });

    const COUNTS_ON: bool = true;
    const VOTERS_CHANGE: bool = true;
    const TAKES_WHAT_HAS_COME: bool = true;
    const REPLACES: bool = false;

    fn start(settings: &Timers, process: ProcessStart<'_, Kept>) -> Machine {
        let config = Config {
            election: settings.election.config(process.me, process.voters, process.seed),
            replica: replica::Config {
                me: process.me,
                durability: settings.durability,
                resend_after: settings.resend_after,
                append_max: settings.append_max,
                window: settings.window,
                part_max: settings.part_max,
                snapshot_after: settings.snapshot_after,
                kept_max: settings.kept_max,
                apply_max: settings.apply_max,
            },
        };
        let Kept { hard, voters, log_lost, log } = process.durable.unwrap_or_default();
        let configured = || {
            let members = process.voters.iter().map(|&voter| (voter, Arc::from(voter.as_str()))).collect();
            Arc::new(Voters { number: LeaderSequence::NONE, members })
        };
        let is_first = process.me.incarnation.count == 1;
        let log_lost = log_lost || (settings.durability == Durability::Memory && !is_first);
        let stored_state = StoredState { hard, voters: voters.unwrap_or_else(configured), log, log_lost };
        Machine::new(config, stored_state, process.now).expect("what it has written it can read")
    }

    fn keep(kept: &mut Option<Kept>, written: Durable) {
        kept.get_or_insert_default().take(written);
    }

    fn kind(message: &Message) -> &'static str {
        match message {
            Message::Election { message, .. } => Quorum::kind(message),
            Message::Voters { .. } => "Voters",
            Message::Log { body, .. } => match body {
                Body::Sync => "Sync",
                Body::SyncReply { .. } => "SyncReply",
                Body::Fetch { .. } => "Fetch",
                Body::Fetched { .. } => "Fetched",
                Body::Append { .. } => "Append",
                Body::AppendReply { .. } => "AppendReply",
                Body::Offer { .. } => "Offer",
                Body::Part { .. } => "Part",
                Body::PartReply { .. } => "PartReply",
                Body::Recover => "Recover",
                Body::RecoverReply { .. } => "RecoverReply",
            },
            Message::Propose { .. } => "Propose",
            Message::Told { .. } => "Told",
            Message::Revise { .. } => "Revise",
            Message::Revised { .. } => "Revised",
            Message::Ask(_) => "Ask",
            Message::Answer(_) => "Answer",
        }
    }

    fn is_routine(message: &Message) -> bool {
        match message {
            Message::Election { message, .. } => Quorum::is_routine(message),
            Message::Log { body: Body::Append { records, .. }, .. } => records.is_empty(),
            Message::Log { body: Body::AppendReply { gap, recovering, .. }, .. } => !gap && !recovering,
            Message::Propose { requests, read, .. } => requests.is_empty() && read.is_none(),
            Message::Told { read, .. } => read.is_none(),
            Message::Voters { .. } | Message::Log { .. } | Message::Ask(_) | Message::Answer(_) => false,
            Message::Revise { .. } | Message::Revised { .. } => false,
        }
    }

    fn text(message: &Message) -> String {
        let kind = Self::kind(message);
        match message {
            Message::Election { message, .. } => Quorum::text(message),
            Message::Voters { voters, .. } => format!("{kind} of {}", voters.number),
            Message::Log { term, body, .. } => format!("{kind}{} in term {term}", body_text(body)),
            Message::Propose { requests, read, sessions, .. } => {
                let writes = counted(requests.len(), "request");
                let parts = [
                    (!requests.is_empty()).then_some(writes),
                    read.map(|round| format!("reads of round {round}")),
                    (!sessions.is_empty()).then(|| counted(sessions.len(), "session")),
                ];
                let parts: Vec<String> = parts.into_iter().flatten().collect();
                format!("{kind} {}", parts.join(", "))
            }
            Message::Told { read, sessions, .. } => {
                let read = read.map(|(round, number)| format!("reads of round {round} after {number}"));
                let sessions = (!sessions.is_empty()).then(|| counted(sessions.len(), "session"));
                let parts: Vec<String> = [read, sessions].into_iter().flatten().collect();
                format!("{kind} {}", parts.join(", "))
            }
            Message::Revise { change, .. } => format!("{kind}: {}", voter_change_text(change)),
            Message::Revised { progress, .. } => format!("{kind}: {}", progress_text(*progress)),
            Message::Ask(_) | Message::Answer(_) => kind.to_owned(),
        }
    }

    fn meaning(message: &Message, to: Option<NodeId>) -> Meaning {
        match message {
            Message::Election { message, .. } => Quorum::meaning(message, to),
            Message::Voters { .. } | Message::Log { .. } | Message::Propose { .. } => Meaning::Nothing,
            Message::Told { .. } | Message::Ask(_) | Message::Answer(_) => Meaning::Nothing,
            Message::Revise { .. } | Message::Revised { .. } => Meaning::Nothing,
        }
    }

    fn campaigns(machine: &Machine) -> bool {
        Quorum::campaigns(machine.election())
    }

    fn met(message: &Message) -> Option<&'static str> {
        match message {
            Message::Election { message, .. } => Quorum::met(message),
            Message::Log { body, .. } => match body {
                Body::Sync => Some("a new leader asks how far the logs are"),
                Body::Fetch { .. } => Some("a leader that is behind fetches"),
                Body::Fetched { records, .. } if !records.is_empty() => {
                    Some("a leader that is behind is helped")
                }
                Body::Offer { .. } => Some("snapshot offered"),
                Body::PartReply { offset, length, bytes, .. } if offset + bytes.len() as u64 == *length => {
                    Some("snapshot sent")
                }
                Body::AppendReply { gap: true, .. } => Some("records did not fit"),
                Body::AppendReply { recovering: true, .. } => Some("records taken that do not count yet"),
                Body::Recover => Some("a node asks for its log"),
                Body::RecoverReply { leads_up_to: Some(_), .. } => Some("recovery granted"),
                Body::Append { records, .. } if records.len() > 1 => Some("records sent together"),
                Body::SyncReply { .. } | Body::Fetched { .. } | Body::Append { .. } => None,
                Body::AppendReply { .. } | Body::Part { .. } | Body::PartReply { .. } => None,
                Body::RecoverReply { .. } => None,
            },
            Message::Propose { requests, sessions, .. } => match (requests.is_empty(), sessions.is_empty()) {
                (false, _) => Some("write passed on"),
                (true, true) => Some("read passed on"),
                (true, false) => Some("session passed on"),
            },
            Message::Voters { .. } => Some("a candidate with older voters is refused, and told"),
            Message::Told { .. } | Message::Ask(_) | Message::Answer(_) => None,
            Message::Revise { .. } | Message::Revised { .. } => None,
        }
    }

    fn must_meet() -> &'static [&'static str] {
        // A leader in these worlds seldom learns of a higher term. Instead, these worlds have leaders that lost their
        // disks.
        static ALL: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
            Quorum::must_meet()
                .iter()
                .filter(|&&what| what != "deposed: higher term")
                .chain(OWN)
                .copied()
                .collect()
        });
        &ALL
    }

    /// After the election, the leader hears from a majority and fetches the records that it lacks, the followers
    /// receive its log, and sessions that no client keeps alive expire.
    fn settles_within(nodes: &[&Timers], surroundings: &Surroundings) -> Duration {
        let elections: Vec<&ElectionTimers> = nodes.iter().map(|node| &node.election).collect();
        let elected = Quorum::settles_within(&elections, surroundings);
        let resend = nodes.iter().map(|node| node.resend_after).max().unwrap_or_default();
        let step = surroundings.delay.times(2).plus(surroundings.disk_latency.times(2));
        let caught_up = resend.times(RESENDS).plus(step.times(STEPS));
        let patience = nodes.iter().map(|node| node.patience()).max().unwrap_or_default();
        // No client draws a session longer than one and a half times the patience.
        elected.plus(caught_up).plus(patience.times(2))
    }

    fn invariants(settings: &Timers) -> Vec<Box<dyn Invariant>> {
        let mut promised = Quorum::invariants(&settings.election);
        promised.push(Box::new(OneLog::default()));
        promised.push(Box::new(SessionsLive::within(settings.election.drift_max)));
        promised.push(Box::new(ShownIsDurable::default()));
        promised
    }
}

fn answer(message: &Message) -> Option<&Answer> {
    match message {
        Message::Answer(answer) => Some(answer),
        Message::Election { .. } | Message::Voters { .. } | Message::Log { .. } => None,
        Message::Propose { .. } | Message::Told { .. } | Message::Ask(_) => None,
        Message::Revise { .. } | Message::Revised { .. } => None,
    }
}

fn write(durable: &Durable) -> Option<&Write> {
    match durable {
        Durable::Log(write) => Some(write),
        Durable::Hard(_) | Durable::Voters(_) | Durable::LogLost(_) => None,
    }
}

fn voters(kept: &Kept) -> Option<&Arc<Voters>> {
    let logged = kept.log.records.iter().filter_map(Record::voters);
    let snapshot = kept.log.snapshot.iter().map(|snapshot| &snapshot.voters);
    kept.voters.iter().chain(snapshot).chain(logged).max_by_key(|voters| voters.number)
}

fn voters_to_tell(me: Identity, machine: &Machine) -> Message {
    let (incarnation, voters) = (me.incarnation, Arc::clone(machine.replica().voters()));
    Message::Voters { incarnation, voters }
}

fn lose_log(kept: &mut Option<Kept>) {
    let kept = kept.get_or_insert_default();
    (kept.log, kept.log_lost) = (Stored::default(), true);
}

/// The maximum number of resends until a log is complete: the leader finds that it has diverged, offers a snapshot,
/// and must offer another one if that snapshot is gone.
const RESENDS: u64 = 30;

/// The number of round trips to send a snapshot and the records after it.
const STEPS: u64 = 200;

const OWN: &[&str] = &[
    "deposed: disk lost",
    "records written",
    "snapshot written",
    "records sent together",
    "records did not fit",
    "records taken that do not count yet",
    "a new leader asks how far the logs are",
    "a leader that is behind fetches",
    "a leader that is behind is helped",
    "snapshot offered",
    "snapshot sent",
    "a node asks for its log",
    "recovery granted",
    "write passed on",
    "read passed on",
    "session passed on",
    "window full",
    "read while the leader writes",
    "a later leader has committed",
    "a session has run out",
    "a session has outlived a leader",
    "a session of a dead leader was ended before its time",
    "client: written",
    "client: refused",
    "client: done, and what came of it is not known",
    "client: read",
    "client: told of a session",
    "client: told that a session is over",
    "voter added",
    "voter removed",
    "a candidate with older voters is refused, and told",
    "operator: what was written before comes first",
    "ploy: left behind",
    "ploy: of two",
    "primaries: one for what was nobody's",
    "primaries: another one",
    "primaries: the same one under another number",
    "primaries: write accepted",
    "primaries: stale write refused",
];

fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn body_text(body: &Body) -> String {
    match body {
        Body::Sync | Body::Recover => String::new(),
        Body::SyncReply { last, .. } => format!(" up to {last}"),
        Body::Fetch { after } => format!(" after {after}"),
        Body::Fetched { after, records, .. } => {
            format!(" {} after {after}", counted(records.len(), "record"))
        }
        Body::Append { after, records, committed, .. } => {
            let records = match (records.first(), records.last()) {
                (Some(first), Some(last)) if first != last => format!(" {} to {}", first.number, last.number),
                (Some(first), _) => format!(" {}", first.number),
                (None, _) => format!(" nothing after {after}"),
            };
            format!("{records}, committed {committed}")
        }
        Body::AppendReply { last, gap, recovering, .. } => {
            let gap = if *gap { ", did not fit" } else { "" };
            format!(" up to {last}{gap}{}", if *recovering { ", does not count" } else { "" })
        }
        Body::Offer { number } => format!(" of a snapshot up to {number}"),
        Body::Part { number, offset } => format!(" of {number} from byte {offset}"),
        Body::PartReply { number, offset, bytes, length, .. } => {
            format!(" of {number}, {} bytes from {offset} of {length}", bytes.len())
        }
        Body::RecoverReply { leads_up_to: Some(last), .. } => format!(" leads up to {last}"),
        Body::RecoverReply { leads_up_to: None, .. } => " does not lead".to_owned(),
    }
}

/// The limits of records applied in one step: one record, a few, and the library's own limit. Chosen by the seed
/// itself, so that all other draws stay the same.
const APPLY_MAX: [usize; 3] = [1, 400, 64 << 10];

/// Draws the nodes, their timers, and the settings of their logs.
pub(super) fn draw(seed: u64, beyond: Option<Beyond>, trace: Trace) -> Swarm<Metadata> {
    let mut swarm = Swarm::new(Rng::new(seed), beyond, trace);
    let nodes = [3, 3, 3, 5, 5, 4, 2, 1][swarm.index(8)];
    swarm.begin(seed, nodes);
    swarm.words = &[
        "PreVote",
        "Vote",
        "VoteReply",
        "Heartbeat",
        "HeartbeatReply",
        "Resigned",
        "Sync",
        "SyncReply",
        "Fetched",
        "Append",
        "AppendReply",
        "Offer",
        "PartReply",
        "RecoverReply",
        "Propose",
        "Told",
        "Died",
    ];
    // Where only tokens keep leaders apart, an earlier leader may read stale data. A new leader writes the first
    // record of its term, and the clients' pending requests; with a shorter lease no node would lead for long.
    quorum::timers_with(&mut swarm, nodes, false, 2);
    // A lone node that has lost its log has no peer to ask.
    let forgets = nodes > 2 && swarm.one_in(3);
    swarm.forgets = forgets;
    let delay = swarm.world().conditions.delay;
    let disk_latency = swarm.world().node(ProcessSlot(0)).disk.latency;
    let resend = delay.times(2).plus(disk_latency.times(2)).plus(swarm.millis(10, 300));
    let small = |swarm: &mut Swarm<Metadata>, least: u64, most: u64| least + swarm.rng.up_to(most - least);
    let (append, window) = (small(&mut swarm, 200, 2_000), small(&mut swarm, 200, 4_000));
    let (part, kept) = (small(&mut swarm, 50, 1_000), small(&mut swarm, 0, 4_000));
    let snapshot = small(&mut swarm, 300, 6_000);
    let durability = if forgets { "memory" } else { "fsync" };
    swarm.tell(format!(
        "set durability={durability} resend_after={} append_max={append} window={window} part_max={part} \
         snapshot_after={snapshot} kept_max={kept} apply_max={}",
        text(resend),
        APPLY_MAX[usize::try_from(seed % 3).expect("less than three")]
    ));
    swarm.asks = true;
    swarm.begin_with_voters(seed, nodes);
    swarm.sharing = Sharing::of(seed);
    swarm
}

#[cfg(test)]
mod tests {
    use primacy_core::Term;

    use super::*;

    #[test]
    fn what_is_written_is_added_to_what_is_there() {
        let mut kept = None;
        let hard = HardState { term: Term(3), ..HardState::default() };
        Metadata::keep(&mut kept, Durable::Hard(hard));
        Metadata::keep(&mut kept, Durable::Log(Write::Append(Vec::new())));
        let kept = kept.unwrap();
        assert_eq!((kept.hard, kept.log), (hard, Stored::default()));
    }
}

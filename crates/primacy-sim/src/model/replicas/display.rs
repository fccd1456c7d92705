//! Messages and actions as text for people.

use primacy_core::LeaderSequence;
use primacy_kv::replication::log::{Record, RecordBody};
use primacy_kv::replication::message::Body;

use super::node::{Item, ReplicaAction, name};

/// Returns the contents of a message as text.
pub(super) fn body(body: &Body) -> String {
    match body {
        Body::Sync => "sync".to_owned(),
        Body::SyncReply { to, last } => format!("sync answered to life {}: up to {last}", to.count),
        Body::Fetch { after } => format!("fetch after {after}"),
        Body::Fetched { to, after, records } => {
            format!("fetched by life {} after {after}: {}", to.count, numbers(records))
        }
        Body::Append { round, after, records, committed } => {
            format!(
                "append {round} after {after}: {}; committed {}",
                numbers(records),
                or_nothing(*committed)
            )
        }
        Body::AppendReply { to, round, last, gap, recovering } => format!(
            "append {round} answered to life {}: up to {last}{}{}",
            to.count,
            if *gap { ", gap" } else { "" },
            if *recovering { ", recovering" } else { "" }
        ),
        Body::Offer { number } => format!("offer of a snapshot up to {number}"),
        Body::Part { number, offset } => format!("asks for the snapshot up to {number}, from byte {offset}"),
        Body::PartReply { to, number, offset, length, .. } => {
            format!("to life {}: the snapshot up to {number}, from byte {offset} of {length}", to.count)
        }
        Body::Recover => "recover".to_owned(),
        Body::RecoverReply { to, leads_up_to } => match leads_up_to {
            Some(last) => format!("recover answered to life {}: leads, up to {last}", to.count),
            None => format!("recover answered to life {}: does not lead", to.count),
        },
    }
}

fn or_nothing(number: LeaderSequence) -> String {
    if number == LeaderSequence::NONE { "nothing".to_owned() } else { number.to_string() }
}

fn numbers(records: &[Record]) -> String {
    let text = |record: &Record| match &record.body {
        RecordBody::Begin { after, .. } => format!("{} begins after {after}", record.number),
        RecordBody::Voters(_) | RecordBody::Payload(_) => record.number.to_string(),
    };
    if records.is_empty() {
        return "nothing".to_owned();
    }
    records.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// Returns an action as text.
pub(super) fn action(seat: u8, action: ReplicaAction, item: Option<&Item>) -> String {
    let who = name(seat);
    match (action, item) {
        (ReplicaAction::Hear(_), Some(item)) => {
            format!("{who} hears {} in term {}: {}", item.from, item.term, body(&item.body))
        }
        (ReplicaAction::Hear(_), None) => format!("{who} hears"),
        (ReplicaAction::Due, _) => format!("{who} does what is due"),
        (ReplicaAction::Late(_), _) => format!("{who} has waited long enough for an answer"),
        (ReplicaAction::Propose, _) => format!("{who} is to write something"),
        (ReplicaAction::Lead(term), _) => format!("{who} is told to lead in term {term}"),
        (ReplicaAction::Connected(seat, _), _) => {
            format!("{who} is connected with a new process of {}", name(seat))
        }
        (ReplicaAction::Crash, _) => format!("{who} crashes, and starts again"),
        (ReplicaAction::LoseDisk, _) => format!("{who} crashes, and starts again without its log"),
        (ReplicaAction::Accept, _) => format!("an operator has {who} go on with what it has"),
    }
}

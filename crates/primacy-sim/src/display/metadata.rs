//! Commands, results and states of replicated metadata as text for people.

use core::fmt::Write as _;

use primacy_kv::command::{
    Answer as Done, Applied, Command, Compared, Comparison, Keys, Operation, Outcome, Read, Replace,
};
use primacy_kv::machine::Metadata;
use primacy_kv::partitions::Command as Order;
use primacy_kv::replication::replica::{Progress, Refusal as NotAllowed, VoterChange};

/// Returns an operator's change for the voters as text for people.
#[must_use]
pub fn voter_change_text(change: &VoterChange) -> String {
    match change {
        VoterChange::Add { node, .. } => format!("add voter {node}"),
        VoterChange::Remove { node } => format!("remove voter {node}"),
    }
}

/// Returns the progress of such a change as text for people.
#[must_use]
pub fn progress_text(progress: Progress) -> String {
    match progress {
        Progress::Done => "done".to_owned(),
        Progress::Committing => "written".to_owned(),
        Progress::CatchingUp { held, last } => format!("holds {held} of {last}"),
        Progress::Waiting => "what was written before comes first".to_owned(),
        Progress::Resigning => "the leader resigns first".to_owned(),
        Progress::Refused(NotAllowed::NotLeading) => "refused: does not lead".to_owned(),
        Progress::Refused(NotAllowed::Last) => "refused: no voter would be left".to_owned(),
        Progress::Refused(NotAllowed::TooMany) => "refused: too many voters".to_owned(),
        Progress::Refused(NotAllowed::NoMajority { heard, voters }) => {
            format!("refused: of {voters} voters {heard} would be heard")
        }
        Progress::Refused(NotAllowed::OtherAddress) => "refused: it is reached elsewhere".to_owned(),
        Progress::Refused(NotAllowed::NoOtherLeader) => "refused: no other node took the lead".to_owned(),
    }
}

/// Returns a command as text for people.
#[must_use]
pub fn command_text(command: &Command) -> String {
    match command {
        Command::Operate(operation) => operation_text(operation),
        Command::Begin { session, time_to_live } => format!("begin session {session} of {time_to_live}"),
        Command::End { session } => format!("end session {session}"),
        Command::Expire { session } => format!("session {session} has run out"),
        Command::Partitions(order) => order_text(order),
        Command::Compact(version) => format!("compact up to version {version}"),
        Command::Forget { node } => format!("forget the requests of {node}"),
        Command::Limit(_) => "set limits".to_owned(),
        Command::Share(_) => "share a secret".to_owned(),
    }
}

fn order_text(order: &Order) -> String {
    match order {
        Order::Join { session, time_to_live } => format!("join with session {session} of {time_to_live}"),
        Order::Leave { session } => format!("leave session {session}"),
        Order::Release { session, up_to, ranges } => {
            let given = ranges.iter().flat_map(|it| it.ranges.iter().map(|range| (&it.group, range)));
            let given: Vec<String> =
                given.map(|(group, range)| format!("{group} {} to {}", range.start, range.end - 1)).collect();
            let given = if given.is_empty() { "nothing".to_owned() } else { given.join(", ") };
            format!("give back {given} up to number {up_to} in session {session}")
        }
        Order::Create { group, count } => format!("create {group} of {count}"),
        Order::Drop { group } => format!("drop {group}"),
        Order::Drain { node } => format!("drain {node}"),
        Order::Undrain { node } => format!("undrain {node}"),
        Order::Move { group, index, node } => format!("move {group} {index} to {node}"),
    }
}

pub(crate) fn operation_text(operation: &Operation) -> String {
    match operation {
        Operation::Read(read) => match &read.keys {
            Keys::One(key) => format!("get {}", words(key)),
            Keys::Between(..) | Keys::From(_) => "get all".to_owned(),
        },
        Operation::Write(write) => {
            let mut text = format!("put {}", words(&write.key));
            if let Replace::With(value) = &write.value {
                let _ = write!(text, " = {}", words(value));
            }
            if let Replace::With(Some(session)) = write.session {
                let _ = write!(text, " in session {session}");
            }
            text
        }
        Operation::Delete(delete) => format!("delete {}", words(delete.keys.first())),
        Operation::Transaction(transaction) => {
            let then: Vec<String> = transaction.then.iter().map(operation_text).collect();
            let then = then.join(", ");
            match transaction.comparisons.first() {
                Some(Comparison { keys, compared: Compared::Value(value), .. }) => {
                    format!("if {} = {} {then}", words(keys.first()), words(value))
                }
                Some(_) | None => then,
            }
        }
    }
}

pub(crate) fn outcome_text(outcome: &Outcome) -> String {
    let text = match &outcome.result {
        Err(refusal) => return refusal.to_string(),
        Ok(Done::Decided { held: false, .. }) => "not so, ".to_owned(),
        Ok(Done::Found(found)) => {
            let entries = found.entries.iter();
            let entries: Vec<String> =
                entries.map(|entry| format!("{} = {}", words(entry.key()), words(entry.value()))).collect();
            if entries.is_empty() { "nothing, ".to_owned() } else { format!("{}, ", entries.join(" ")) }
        }
        Ok(Done::Decided { held: true, .. } | Done::Written { .. } | Done::Deleted { .. }) => String::new(),
        Ok(Done::Ended { .. } | Done::Done) => String::new(),
    };
    format!("{text}version {}", outcome.version)
}

/// Returns the result of a request as text for people.
#[must_use]
pub fn applied_text(applied: &Applied) -> String {
    match applied {
        Applied::First(outcome) => outcome_text(outcome),
        Applied::Duplicate => "was done before".to_owned(),
    }
}

/// Returns the end of the log and the contents of the map as text for people.
#[must_use]
pub fn state_text(machine: &Metadata) -> String {
    let replica = machine.replica();
    let mut text = format!("log up to {}", replica.last());
    if replica.is_recovering() {
        text.push_str(", lost");
    }
    if replica.is_current() {
        let _ = write!(text, ", committed {}", replica.committed());
    } else {
        text.push_str(", nothing is known to be committed");
    }
    let read = machine.state().observe(&Operation::Read(Box::new(Read::of(Keys::all()))));
    let _ = write!(text, "; {}", read.as_ref().map_or_else(String::new, outcome_text));
    for (session, it) in machine.state().sessions() {
        let _ = write!(text, ", session {session} of {}", it.time_to_live());
    }
    text
}

fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

//! Events as text for people, alike in the simulator and in a running node.

use alloc::borrow::ToOwned as _;
use alloc::format;
use alloc::string::String;

use crate::protocol::{Event, Mandate, Reason, Violation};
use crate::time::Instant;

/// An event as a sentence whose subject is the node. `until` formats the end of a leadership, an instant of the node's
/// clock.
#[must_use]
pub fn event(event: &Event, until: impl FnOnce(Instant) -> String) -> String {
    match *event {
        Event::Elected { term, mandate, valid_until } => {
            let token = match mandate {
                Mandate::Fenced(token) => format!("token {token}"),
                Mandate::Advisory => "no token".to_owned(),
            };
            format!("⇨ leads in term {term} with {token}, {}", until(valid_until))
        }
        Event::Renewed { valid_until } => format!("⇨ renewed, {}", until(valid_until)),
        Event::Resigning(reason) => format!("⇨ resigning ({})", reason_text(reason)),
        Event::Deposed(reason) => format!("⇨ deposed ({})", reason_text(reason)),
        Event::LeaderChanged(Some(leader)) => {
            format!("· leader: {} in term {}", leader.identity.node, leader.term)
        }
        Event::LeaderChanged(None) => "· leader: none".to_owned(),
        Event::Violation(violation) => format!("⇨ VIOLATION: {}", violation_text(violation)),
    }
}

fn reason_text(reason: Reason) -> String {
    match reason {
        Reason::Resigned => "asked to".to_owned(),
        Reason::Transferred(to) => format!("transfer to {to}"),
        Reason::Unhealthy => "unhealthy".to_owned(),
        Reason::Expired => "expired".to_owned(),
        Reason::Undecided => "undecided".to_owned(),
        Reason::HigherTerm(term) => format!("term {term} exists"),
        Reason::Overwritten => "overwritten".to_owned(),
        Reason::Removed => "removed".to_owned(),
        Reason::SessionEnded => "session ended".to_owned(),
        Reason::DiskLost => "disk lost".to_owned(),
        Reason::Violation => "violation".to_owned(),
        Reason::Halted => "halted".to_owned(),
    }
}

fn violation_text(violation: Violation) -> String {
    match violation {
        Violation::TwoLeaders { term, known, other } => {
            format!("{} and {} both lead in term {term}", known.node, other.node)
        }
        Violation::TokenWentDown { seen, found } => {
            format!("the store shows token {found} after token {seen}")
        }
        Violation::RecordVanished { held } => format!("the record with token {held} is gone"),
    }
}
